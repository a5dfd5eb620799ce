//! The forms of the requests of each service: the only place that knows them.

use super::references::{ReferencePool, SilentKeeper};
use crate::harness::Random;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use interface::wire::{self, Shape};
use proto::Error;
use rt::memory::Segment;
use rt::obj::{Ref, RefAt};
use services::block::BlockClient;
use services::checkpoint::{self, CheckpointClient};
use services::console::{ConsoleClient, ConsoleControlClient};
use services::device::DevicesClient;
use services::entropy::EntropyClient;
use services::fs::{self, FilesClient, Flags};
use services::link::{self, LinkClient};
use services::memory::{
    AccountClient, AccountControlClient, MemorySupervisorClient, SegmentClient, SupplierClient,
};
use services::names::{NamesClient, RESERVED};
use services::net::{self, NetworkClient};
use services::process::{
    DebugClient, ProcessClient, ProcessesClient, Program, Start, Stdio, SupervisorClient, ROOM,
};
use services::random::RandomClient;
use services::sound::SoundClient;
use services::system::SystemClient;

/// The number of a method of an interface, by its name.
macro_rules! method {
    ($interface:ident, $name:literal) => {
        const { wire::numbered($interface::METHODS, $name) }
    };
}

/// An interface, by its client.
macro_rules! of {
    ($client:ident) => {
        Interface {
            name: stringify!($client),
            id: $client::ID,
            methods: $client::METHODS,
        }
    };
}

/// An interface.
#[derive(Clone, Copy)]
pub struct Interface {
    /// The name of its client.
    pub name: &'static str,
    /// Its id.
    pub id: u64,
    /// Its methods, in their order.
    pub methods: &'static [Shape],
}

/// A service.
pub struct Service {
    /// Its name, for display.
    pub name: &'static str,
    /// Its port.
    pub port: fn() -> Result<Ref, Error>,
    /// Writes a plausible request to the service with this number.
    pub write: fn(&mut Writer, usize) -> Request,
    /// Whether the ports that it hands out are its own, so that calls of them are answered.
    pub answers: bool,
    /// Most bytes of nonsense behind a request: the console shows what it is sent.
    pub most: u64,
    /// One request takes the service as much work as very many others.
    pub is_much_work: bool,
    /// It manages processes; each client has one of these from the beginning.
    pub is_manager: bool,
    /// The directory for the files of hostile clients, if the service has files: what they remove there harms no
    /// other client.
    pub place: Option<&'static str>,
}

/// All services; services of devices are there if the machine has the device. The same rows make requests to ports
/// that services hand out.
pub const SERVICES: [Service; 15] = [
    service("memory", || copy(rt::start::memory()), |w, _| w.memory()),
    Service {
        answers: false,
        ..service("names", || copy(rt::start::names()), |w, _| w.names())
    },
    Service {
        is_manager: true,
        ..service("native", || lookup("native"), |w, _| w.native())
    },
    Service {
        is_manager: true,
        ..service("linux", || lookup("linux"), |w, _| w.linux())
    },
    Service {
        place: Some(PLACE),
        ..service("fs", || lookup("fs"), Writer::fs)
    },
    Service {
        most: 40,
        ..service("console", || lookup("console"), |w, _| w.console())
    },
    Service {
        is_much_work: true,
        ..service("checkpoint", || lookup("checkpoint"), |w, _| w.checkpoint())
    },
    service(
        "random",
        || lookup("random"),
        |w, own| w.session(own, &of!(RandomClient)),
    ),
    service(
        "device",
        || lookup("device"),
        |w, own| w.session(own, &of!(DevicesClient)),
    ),
    service(
        "net",
        || lookup("net"),
        |w, own| w.session(own, &of!(NetworkClient)),
    ),
    service(
        "link",
        || with_power("link"),
        |w, own| w.session(own, &of!(LinkClient)),
    ),
    service(
        "entropy",
        || with_power("entropy"),
        |w, own| w.session(own, &of!(EntropyClient)),
    ),
    Service {
        place: Some(PLACE_ON_DISK),
        ..service("ext4", || lookup("ext4"), Writer::fs)
    },
    service(
        "disk",
        || with_power("disk"),
        |w, own| w.session(own, &of!(BlockClient)),
    ),
    service(
        "sound",
        || lookup("sound"),
        |w, own| w.session(own, &of!(SoundClient)),
    ),
];

/// The method that takes a segment as a reference.
const COPY: u16 = wire::numbered(AccountClient::METHODS, "copy");

/// The positions of some services.
const MEMORY: usize = 0;
const NAMES: usize = 1;
const NATIVE: usize = 2;
const LINUX: usize = 3;
const FS: usize = 4;
const CONSOLE: usize = 5;
const CHECKPOINT: usize = 6;
const RANDOM: usize = 7;
const NET: usize = 9;
const LINK: usize = 10;
const EXT4: usize = 12;
const DISK: usize = 13;
const SOUND: usize = 14;

/// Interfaces of these services that hostile clients reach. No method of them may be left out: the warden reports
/// methods that were never answered.
pub const REACHED: [(usize, Interface); 19] = [
    (MEMORY, of!(AccountClient)),
    (MEMORY, of!(SegmentClient)),
    (NAMES, of!(NamesClient)),
    (NATIVE, of!(ProcessesClient)),
    (NATIVE, of!(ProcessClient)),
    (NATIVE, of!(DebugClient)),
    (NATIVE, of!(SupplierClient)),
    (LINUX, of!(ProcessesClient)),
    (LINUX, of!(ProcessClient)),
    (LINUX, of!(DebugClient)),
    (FS, of!(FilesClient)),
    (CONSOLE, of!(ConsoleClient)),
    (CHECKPOINT, of!(CheckpointClient)),
    (RANDOM, of!(RandomClient)),
    (NET, of!(NetworkClient)),
    (LINK, of!(LinkClient)),
    (EXT4, of!(FilesClient)),
    (DISK, of!(BlockClient)),
    (SOUND, of!(SoundClient)),
];

/// How many methods all of these have.
pub const REACHED_METHODS: usize = before(REACHED.len());

/// How many methods the interfaces before this one have.
const fn before(which: usize) -> usize {
    let (mut at, mut methods) = (0, 0);
    while at < which {
        methods += REACHED[at].1.methods.len();
        at += 1;
    }
    methods
}

/// The position of a method of an interface of this service among all methods that are reached.
#[must_use]
pub fn place_of(service: usize, kind: u64, method: u16) -> Option<usize> {
    let is_it = |(of, interface): &(usize, Interface)| *of == service && interface.id == kind;
    let which = REACHED.iter().position(is_it)?;
    let method = usize::from(method).checked_sub(1)?;
    (method < REACHED[which].1.methods.len()).then(|| before(which) + method)
}

/// The names of the methods of a service for which `is` holds, by their positions.
#[must_use]
pub fn methods_of(service: usize, is: impl Fn(usize) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    for (which, (_, interface)) in REACHED.iter().enumerate() {
        if REACHED[which].0 != service {
            continue;
        }
        for (n, shape) in interface.methods.iter().enumerate() {
            if is(before(which) + n) {
                names.push(format!("{}::{}", interface.name, shape.name));
            }
        }
    }
    names
}

/// The service with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Service> {
    SERVICES.iter().find(|service| service.name == name)
}

/// Whether this machine has the service.
#[must_use]
pub fn is_there(service: &Service) -> bool {
    (service.port)().is_ok()
}

fn lookup(name: &str) -> Result<Ref, Error> {
    rt::names::lookup(name)
}

/// The number of the first argument of a hostile client that names a service whose control port the client was
/// passed; the control ports follow the counters, in this order.
pub const FIRST_POWER: usize = 3;

/// The control port of a service, if the program was passed it; otherwise the port that every program finds by the
/// name.
pub(super) fn with_power(name: &str) -> Result<Ref, Error> {
    let args = &rt::start().args;
    let passed = args.iter().skip(FIRST_POWER).position(|word| word == name);
    match passed.and_then(|at| rt::start::passed(1 + at)) {
        Some(port) => copy(port),
        None => lookup(name),
    }
}

const fn service(
    name: &'static str,
    port: fn() -> Result<Ref, Error>,
    write: fn(&mut Writer, usize) -> Request,
) -> Service {
    Service {
        name,
        port,
        write,
        answers: true,
        most: 50_000,
        is_much_work: false,
        is_manager: false,
        place: None,
    }
}

/// The kinds of the first references of an answer.
fn gives(kinds: &[Kind]) -> [Kind; MOST_KINDS] {
    let mut all = [ANY; MOST_KINDS];
    all[..kinds.len()].copy_from_slice(kinds);
    all
}

/// Whether requests of this interface have its id in place of a number.
fn is_shared(id: Kind) -> bool {
    matches!(
        id,
        NamesClient::ID
            | SegmentClient::ID
            | SupplierClient::ID
            | SupervisorClient::ID
            | MemorySupervisorClient::ID
    )
}

/// The offset of this chunk of a segment.
const fn offset_of_chunk(number: u64) -> u64 {
    number << 16
}

fn copy(reference: RefAt) -> Result<Ref, Error> {
    reference.copy().map_err(rt::error_of)
}

/// The directory for hostile clients' files in memory.
pub const PLACE: &str = "/tmp/hostile";
/// The directory for those on the disk.
const PLACE_ON_DISK: &str = "/disk/hostile";
/// The program that native processes of hostile clients run.
pub const PROGRAM: &str = "/test/services";
/// Its argument.
pub const IDLE: &str = "idle";

/// The kind of a reference that a service has handed out: the id of the interface behind it, or one of these.
pub type Kind = u64;
/// Of unknown kind.
const ANY: Kind = 0;
/// The control port of a process.
const CONTROL_PORT: Kind = 1;

/// The references that come with an adopted process.
pub const ADOPTED: [Kind; 5] = [CONTROL_PORT, ANY, ANY, ANY, AccountClient::ID];

/// Most references of an answer whose kinds are given.
pub const MOST_KINDS: usize = 5;

/// A reference that a service has handed out.
pub struct Given {
    /// The reference.
    pub port: Ref,
    /// Its kind.
    pub kind: Kind,
}

/// A request before it is spoilt.
pub struct Request {
    /// Whether it goes to a port that the service has handed out, if there is one.
    pub given: bool,
    /// The kind of port that it is meant for.
    pub kind: Kind,
    /// Its method; 0 at a door.
    pub method: u16,
    /// The kinds of the references that come with an answer.
    pub gives: [Kind; MOST_KINDS],
    /// It may be answered late or never, and must be made by a thread of its own.
    pub waits: bool,
    /// Its words.
    pub header: Vec<u8>,
    /// Bytes behind it.
    pub bulk: Vec<u8>,
    /// Its references.
    pub refs: Vec<RefAt>,
}

impl Request {
    /// The message as the service takes it.
    pub fn message(&self) -> Vec<u8> {
        [&self.header[..], &self.bulk].concat()
    }
}

/// Writes requests.
pub struct Writer {
    /// The source of all choices.
    pub random: Random,
    /// References of every kind.
    pub pool: ReferencePool,
    /// References that each service has handed out.
    pub given: [Vec<Given>; SERVICES.len()],
    /// Numbers of what each service has opened for this client.
    pub opened: [Vec<u64>; SERVICES.len()],
    /// A segment whose pages are all there, and its number; none if there is no memory.
    source: Option<(Segment, u32)>,
}

/// The first chunk of a segment, from which chunks are supplied.
fn source() -> Result<(Segment, u32), Error> {
    const CHUNK: u64 = 1 << 16;
    let segment = rt::memory::create(CHUNK)?;
    let number = SegmentClient::at(*segment.control).number()?;
    segment.populate(0, CHUNK)?;
    Ok((segment, number))
}

impl Writer {
    /// A writer whose choices follow from the seed.
    pub fn new(seed: u64, silent: &SilentKeeper) -> Result<Self, Error> {
        Ok(Writer {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            pool: ReferencePool::new(silent)?,
            given: Default::default(),
            opened: Default::default(),
            source: source().ok(),
        })
    }

    /// True with a probability of so many percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.random.below(of.len() as u64) as usize].clone()
    }

    /// A number at some limit, or any number.
    pub fn number(&mut self) -> u64 {
        let edge = self.one(&[
            0,
            1,
            15,
            16,
            4095,
            4096,
            65_536,
            1 << 20,
            1 << 31,
            1 << 32,
            1 << 36,
            1 << 46,
            1 << 63,
            u64::MAX,
        ]);
        match self.random.below(5) {
            0 => self.random.number(),
            1 => edge.wrapping_sub(self.random.below(3)),
            2 => self.random.below(64) << 12,
            3 => self.random.below(100),
            _ => edge,
        }
    }

    /// Some bytes, mostly few.
    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let most = if self.chance(90) { most.min(256) } else { most };
        let length = self.random.below(most + 1);
        let seed = self.random.number();
        (0..length)
            .map(|n| (seed.rotate_left(n as u32 % 64) ^ n) as u8)
            .collect()
    }

    /// The reference that is meant, or another.
    fn reference(&mut self, meant: RefAt) -> RefAt {
        if self.chance(70) {
            meant
        } else {
            self.pool.any(&mut self.random)
        }
    }

    /// A reference of this kind that the service with this index has handed out, or another.
    fn handed(&mut self, service: usize, kind: Kind) -> RefAt {
        if self.chance(10) {
            return self.pool.any(&mut self.random);
        }
        match self.given_of(service, kind) {
            Some((port, _)) => port,
            None => self.pool.any(&mut self.random),
        }
    }

    /// One of the references that this service has handed out, mostly of this kind if there is one, and its kind.
    pub fn given_of(&mut self, service: usize, kind: Kind) -> Option<(RefAt, Kind)> {
        let only = self.chance(85) && self.has(service, kind);
        let fits = |given: &&Given| !only || given.kind == kind;
        let count = self.given[service].iter().filter(fits).count() as u64;
        let which = match count {
            0 => return None,
            count => self.random.below(count) as usize,
        };
        let given = self.given[service].iter().filter(fits).nth(which)?;
        Some((*given.port, given.kind))
    }

    /// Whether the service has handed out a reference of this kind.
    fn has(&self, service: usize, kind: Kind) -> bool {
        self.given[service].iter().any(|given| given.kind == kind)
    }

    fn text(&mut self, most: u64) -> String {
        let bytes = self.bytes(most);
        bytes.iter().map(|b| char::from(b'a' + b % 26)).collect()
    }

    fn memory(&mut self) -> Request {
        match self.random.below(23) {
            // Requests that the port of the process must refuse.
            0 => Request {
                given: false,
                ..self.any(MEMORY, &of!(MemorySupervisorClient))
            },
            1..=8 => self.account(),
            _ => Request {
                given: true,
                ..self.segment(MEMORY)
            },
        }
    }

    fn account(&mut self) -> Request {
        let size = self.number();
        let segment = self.handed(MEMORY, SegmentClient::ID);
        let (method, arguments): (u16, &[u64]) = match self.random.below(8) {
            0..=2 => (method!(AccountClient, "create"), &[size & !4095 & 0xf_ffff]),
            3 => (method!(AccountClient, "create"), &[size]),
            4 => (COPY, &[]),
            5 if self.chance(50) => {
                let size = (1 + self.random.below(64)) << 20;
                (method!(AccountClient, "reserve"), &[size])
            }
            5 => (method!(AccountClient, "reserve"), &[size]),
            6 => (method!(AccountClient, "usage"), &[]),
            _ => {
                return Request {
                    given: false,
                    ..self.own_account(&of!(AccountClient))
                }
            }
        };
        // Other request numbers than its own, since this program continues to use its account.
        let number = self.number() | 1 << 47;
        let head = wire::head(method, number);
        let mut request = Request {
            given: false,
            gives: gives(&[ANY, SegmentClient::ID]),
            ..self.asked_with((AccountClient::ID, method), head, arguments, None)
        };
        if method == COPY {
            request.refs.push(segment);
        }
        request
    }

    /// Any request to an account that this program continues to use.
    fn own_account(&mut self, of: &Interface) -> Request {
        let mut request = self.any(MEMORY, of);
        request.header[7] |= 0x80;
        request
    }

    /// A request to a segment that this service has handed out.
    fn segment(&mut self, service: usize) -> Request {
        let (offset, size) = (self.number(), self.number());
        let (method, arguments): (u16, &[u64]) = match self.random.below(15) {
            0 => (method!(SegmentClient, "number"), &[]),
            1 => (method!(SegmentClient, "copy_on"), &[]),
            2 => (method!(SegmentClient, "release"), &[]),
            3 => (method!(SegmentClient, "is_intact"), &[]),
            4 => (method!(SegmentClient, "present_from"), &[offset]),
            5 => (method!(SegmentClient, "objects_from"), &[offset]),
            6 => (
                method!(SegmentClient, "discard"),
                &[offset & !4095, size & !4095],
            ),
            7 => (method!(SegmentClient, "discard"), &[offset, size]),
            8 | 9 => (
                method!(SegmentClient, "populate"),
                &[offset & 0xffff, size & 0xfff],
            ),
            10 => (method!(SegmentClient, "populate"), &[offset, size]),
            11 => (method!(SegmentClient, "usage"), &[]),
            12 | 13 => (method!(SegmentClient, "destroy"), &[]),
            _ => return self.any(service, &of!(SegmentClient)),
        };
        self.shared(SegmentClient::ID, method, arguments, None)
    }

    /// A request to the supplier of a segment that this manager has handed out.
    fn supplier(&mut self, service: usize) -> Request {
        let chunk = (offset_of_chunk(self.random.below(64)), 1 << 16);
        let (offset, size) = match self.chance(80) {
            true => chunk,
            false => (self.number(), self.number()),
        };
        let number = match &self.source {
            Some((_, number)) if self.random.below(100) < 80 => u64::from(*number),
            _ => self.number(),
        };
        let control = self.source.as_ref().map(|(source, _)| *source.control);
        let control = control.unwrap_or(rt::start::memory());
        match self.random.below(8) {
            0..=2 => {
                let most = offset_of_chunk(1 + self.random.below(8));
                let owed = [offset, if size == 1 << 16 { most } else { size }];
                self.shared(
                    SupplierClient::ID,
                    method!(SupplierClient, "owe"),
                    &owed,
                    None,
                )
            }
            3..=5 => {
                let pages = [0, 4096, 1 << 16][self.random.below(3) as usize];
                let come = [offset, if size == 1 << 16 { pages } else { size }, number];
                let method = method!(SupplierClient, "supply");
                let mut request = self.shared(SupplierClient::ID, method, &come, None);
                request.refs.push(self.reference(control));
                request
            }
            6 => self.shared(
                SupplierClient::ID,
                method!(SupplierClient, "left"),
                &[],
                None,
            ),
            _ => self.any(service, &of!(SupplierClient)),
        }
    }

    fn names(&mut self) -> Request {
        let name = match self.random.below(4) {
            0 => self.one(&RESERVED).to_string(),
            1 | 2 => format!("hostile-{}", self.random.below(40)),
            _ => self.text(5000),
        };
        let port = self.reference(rt::start::memory());
        let control = self.reference(rt::start::memory());
        let status = [self.random.below(256)];
        let (method, status, refs): (u16, &[u64], &[RefAt]) = match self.random.below(200) {
            0 => (method!(NamesClient, "exit"), &status, &[]),
            1..=16 => return self.door(&[SystemClient::ID]),
            17..=19 => return self.any(NAMES, &of!(NamesClient)),
            20..=29 => (method!(NamesClient, "job"), &[], &[port]),
            30..=110 => (method!(NamesClient, "lookup"), &[], &[]),
            111..=130 => (method!(NamesClient, "register_with"), &[], &[port, control]),
            131..=135 => (method!(NamesClient, "date"), &[], &[]),
            136..=145 => (method!(NamesClient, "control"), &[], &[]),
            _ => (method!(NamesClient, "register"), &[], &[port]),
        };
        let has_name = NamesClient::METHODS[usize::from(method) - 1]
            .bytes
            .is_some();
        let bytes = has_name.then(|| name.into());
        let mut request = self.shared(NamesClient::ID, method, status, bytes);
        request.refs = refs.to_vec();
        request.waits = method == method!(NamesClient, "exit");
        request
    }

    /// A request of a shared interface, mostly of this one.
    fn shared(
        &mut self,
        id: u64,
        method: u16,
        arguments: &[u64],
        bytes: Option<Vec<u8>>,
    ) -> Request {
        let (id, kind) = match self.chance(97) {
            true => (id, id),
            false => (self.number(), ANY),
        };
        Request {
            given: false,
            ..self.asked_with((kind, method), wire::head(method, id), arguments, bytes)
        }
    }

    fn start(&mut self, args: &[&str]) -> Start {
        let mut start = Start {
            args: args.iter().map(ToString::to_string).collect(),
            env: Vec::new(),
            stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
            cwd: "/".to_string(),
        };
        if self.chance(20) {
            for _ in 0..self.random.below(40) {
                start.args.push(self.text(200));
                start.env.push(self.text(4000));
            }
            start.cwd = self.path();
            start.stdio = (0..self.random.below(5))
                .map(|_| Stdio::File {
                    path: self.path(),
                    append: true,
                })
                .collect();
        }
        start
    }

    /// A request about a process, in a session.
    fn control(&mut self, service: usize) -> Request {
        let (offset, size) = (self.number(), self.number());
        let room = if self.chance(90) {
            ROOM as u64
        } else {
            self.number()
        };
        let control = u64::from(self.chance(50));
        let (member, flag) = (self.random.below(3), u64::from(self.chance(50)));
        if self.chance(25) {
            return self.debug(service);
        }
        // Requests that wait are for other threads.
        let (method, arguments): (u16, Vec<u64>) = match self.random.below(34) {
            0 => (method!(ProcessClient, "status"), [].into()),
            1 => (method!(ProcessClient, "reap"), [].into()),
            2 => (method!(ProcessClient, "kill"), [].into()),
            3 | 4 => (method!(ProcessClient, "stop"), [].into()),
            5 | 6 => (method!(ProcessClient, "go_on"), [].into()),
            7 => (method!(ProcessClient, "typed"), [flag].into()),
            8 => (method!(ProcessClient, "info"), [room].into()),
            9 => (method!(ProcessClient, "why"), [room].into()),
            // The process has another status, so there is an answer at once.
            10 => (method!(ProcessClient, "changed"), [0x7702].into()),
            11..=14 => (method!(ProcessClient, "freeze"), [flag, room].into()),
            15 | 16 => (method!(ProcessClient, "part"), [offset, room].into()),
            17 => (method!(ProcessClient, "part"), [0, room].into()),
            18 => (method!(ProcessClient, "member"), [member, room].into()),
            19 | 20 => (method!(ProcessClient, "copy"), [member].into()),
            21 | 22 => (method!(ProcessClient, "thaw"), [].into()),
            23 => (method!(ProcessClient, "adopt_member"), [control].into()),
            24 => (
                method!(ProcessClient, "populate"),
                [member, control, offset, size].into(),
            ),
            25 | 26 => (
                method!(ProcessClient, "populate"),
                [0, control, offset & 0xf_f000, size & 0xf000].into(),
            ),
            27 => (method!(ProcessClient, "supplier"), [0].into()),
            28 => (method!(ProcessClient, "supplier"), [member].into()),
            29 => return self.any(service, &of!(ProcessClient)),
            _ => {
                let place = if self.chance(70) { 0 } else { offset };
                let bytes = self.bytes(60_000);
                let arguments = [place, size & 0x3_ffff, offset];
                let method = method!(ProcessClient, "rebuild");
                return self.asked((ProcessClient::ID, method), &arguments, Some(bytes));
            }
        };
        let gives = match method {
            method if method == method!(ProcessClient, "copy") => {
                gives(&[ANY, SegmentClient::ID, AccountControlClient::ID])
            }
            method if method == method!(ProcessClient, "supplier") => gives(&[SupplierClient::ID]),
            _ => gives(&[]),
        };
        Request {
            gives,
            ..self.asked((ProcessClient::ID, method), &arguments, None)
        }
    }

    /// A request of a debugger.
    fn debug(&mut self, service: usize) -> Request {
        let (offset, size) = (self.number(), self.number());
        let flag = u64::from(self.chance(50));
        let spot = self.one(&[0x10, u64::MAX, offset]);
        let (method, arguments): (u16, Vec<u64>) = match self.random.below(17) {
            0 => (method!(DebugClient, "regions"), [].into()),
            1..=3 => (method!(DebugClient, "hold"), [].into()),
            4..=6 => (method!(DebugClient, "let_run"), [spot].into()),
            7 => (method!(DebugClient, "threads"), [ROOM as u64].into()),
            8 => (method!(DebugClient, "taken"), [].into()),
            // The count is different, so there is an answer at once.
            9 => (method!(DebugClient, "more_taken"), [0x7702].into()),
            10 => (method!(DebugClient, "pass"), [spot].into()),
            11 => (method!(DebugClient, "breakpoint"), [offset, flag].into()),
            12 | 13 => (
                method!(DebugClient, "breakpoint"),
                [0x40_0000 + (offset & 0xffff), flag].into(),
            ),
            14 => (
                method!(DebugClient, "make_present"),
                [offset & 0xf_f000, size & 0xf000].into(),
            ),
            15 => (method!(DebugClient, "leave"), [].into()),
            _ => return self.any(service, &of!(DebugClient)),
        };
        self.asked((DebugClient::ID, method), &arguments, None)
    }

    /// A request to a port that the memory server has handed out by this manager, if there is one.
    fn of_memory(&mut self, service: usize) -> Option<Request> {
        let kind = self.one(&[
            SupplierClient::ID,
            SupplierClient::ID,
            SegmentClient::ID,
            AccountControlClient::ID,
            AccountClient::ID,
        ]);
        if !self.has(service, kind) {
            return None;
        }
        let request = match kind {
            SupplierClient::ID => self.supplier(service),
            SegmentClient::ID => self.segment(service),
            AccountClient::ID => self.any(service, &of!(AccountClient)),
            _ => self.any(service, &of!(AccountControlClient)),
        };
        Some(Request {
            given: true,
            ..request
        })
    }

    fn process(&mut self, path: &str, start: Start, service: usize) -> Request {
        let own = self.reference(rt::start::names());
        let passed = self.pool.any(&mut self.random);
        let knock = match self.has(service, ProcessesClient::ID) {
            true => 15,
            false => 60,
        };
        if self.chance(knock) {
            return self.door(&[ProcessesClient::ID]);
        }
        if self.chance(15) {
            // A control port is a door, too.
            return Request {
                given: true,
                kind: CONTROL_PORT,
                ..self.door(&[ProcessClient::ID, DebugClient::ID])
            };
        }
        if self.chance(15) {
            if let Some(request) = self.of_memory(service) {
                return request;
            }
        }
        // Starting a program is much work.
        let (method, refs, kinds): (u16, &[RefAt], &[Kind]) = match self.random.below(60) {
            0..=2 => {
                let path = if self.chance(70) {
                    path.to_string()
                } else {
                    self.path()
                };
                let program = Program { path, start };
                let bytes = postcard::to_allocvec(&program).unwrap_or_default();
                let of = (ProcessesClient::ID, method!(ProcessesClient, "spawn"));
                return Request {
                    refs: [own, passed].to_vec(),
                    gives: gives(&[CONTROL_PORT]),
                    ..self.asked(of, &[], Some(bytes))
                };
            }
            3..=6 => (method!(ProcessesClient, "adopt"), &[own], &ADOPTED),
            7 => {
                let control = self.handed(service, CONTROL_PORT);
                (method!(ProcessesClient, "verify"), &[control], &[])
            }
            8 => (method!(ProcessesClient, "count_as_one"), &[], &[]),
            9 => return self.any(service, &of!(ProcessesClient)),
            10..=12 => {
                return Request {
                    given: false,
                    ..self.any(service, &of!(SupervisorClient))
                }
            }
            _ => return self.control(service),
        };
        Request {
            refs: refs.to_vec(),
            gives: gives(kinds),
            ..self.asked((ProcessesClient::ID, method), &[], None)
        }
    }

    fn native(&mut self) -> Request {
        let start = self.start(&["hostile", IDLE]);
        self.process(PROGRAM, start, NATIVE)
    }

    fn linux(&mut self) -> Request {
        let seconds = self.one(&["0", "1", "100"]);
        let start = self.start(&["busybox", "sleep", seconds]);
        self.process("/bin/busybox", start, LINUX)
    }

    /// A path, almost always below [`PLACE`].
    pub fn path(&mut self) -> String {
        self.path_in(PLACE)
    }

    /// A path, almost always below this one, with few names, so that clients meet.
    fn path_in(&mut self, place: &str) -> String {
        let mut path = place.to_string();
        for _ in 0..1 + self.random.below(3) {
            path.push('/');
            path += self.one(&["a", "b", "c", "a", "b", ".", "", "image"]);
        }
        match self.random.below(40) {
            0 => path += &self.text(6000),
            1 => path = format!("{place}/{}", self.text(300)),
            2 => path.push('\0'),
            _ => {}
        }
        path
    }

    /// A file that this service has opened, or another.
    fn file(&mut self, service: usize) -> u64 {
        let count = self.opened[service].len() as u64;
        if count > 0 && self.chance(80) {
            self.opened[service][self.random.below(count) as usize]
        } else {
            // A file that another client may have open.
            fs::FIRST_INO + self.random.below(1000)
        }
    }

    /// Opens a session of this interface at a door, if there is none yet, and sometimes again.
    fn knock(&mut self, service: usize, id: u64) -> Option<Request> {
        // Most requests are made in a session.
        let knock = match self.has(service, id) {
            true => 5,
            false => 90,
        };
        self.chance(knock).then(|| self.door(&[id]))
    }

    /// Any method of this interface, in a session with this service.
    fn session(&mut self, service: usize, of: &Interface) -> Request {
        match self.knock(service, of.id) {
            Some(door) => door,
            None => self.any(service, of),
        }
    }

    /// Any method of this interface, in the declared form: so methods are called that this table does not mention.
    fn any(&mut self, service: usize, of: &Interface) -> Request {
        let method = self.random.below(of.methods.len() as u64) as usize;
        let shape = &of.methods[method];
        let mut arguments: Vec<u64> = Vec::new();
        for word in shape.words {
            arguments.push(self.word(service, word));
        }
        if shape.room {
            arguments.push(if self.chance(90) { 4096 } else { self.number() });
        }
        let most = SERVICES[service].most.min(60_000);
        let bytes = shape.bytes.map(|name| match (name, self.chance(70)) {
            // Sectors.
            ("data", true) => alloc::vec![0x5a; 512 * (1 + self.random.below(16)) as usize],
            // Frames of a sound.
            ("samples", true) => alloc::vec![0x40; 4 * (1 + self.random.below(4096)) as usize],
            // Frames.
            ("batch", true) => {
                let mut batch = Vec::new();
                for _ in 0..1 + self.random.below(40) {
                    let frame = self.bytes(1600);
                    link::push(&mut batch, &frame);
                }
                batch
            }
            ("name", true) => self
                .one(&["localhost", "10.0.3.1", "nobody.example", "..", ""])
                .into(),
            ("path" | "paths", _) => {
                let place = SERVICES[service].place.unwrap_or(PLACE);
                let one = self.path_in(place);
                (one + &self.path_in(place)).into()
            }
            _ => self.bytes(most),
        });
        let refs = (0..shape.refs).map(|_| self.pool.any(&mut self.random));
        let refs = refs.collect();
        let method = 1 + method as u16;
        // Requests of a shared interface have its id in place of a number.
        let number = match is_shared(of.id) {
            true => of.id,
            false => self.number(),
        };
        let head = wire::head(method, number);
        Request {
            refs,
            waits: shape.waits,
            ..self.asked_with((of.id, method), head, &arguments, bytes)
        }
    }

    /// An argument of this name: mostly a plausible one.
    fn word(&mut self, service: usize, name: &str) -> u64 {
        if self.chance(15) {
            return self.number();
        }
        let (high, low) = net::words(IpAddr::V4(Ipv4Addr::LOCALHOST));
        match name {
            "kind" => self.random.below(4),
            "socket" | "tag" | "index" => self.random.below(12),
            "readable" | "writable" => self.random.below(1 << 12),
            "port" => 7000 + self.random.below(20),
            "high" => high,
            "low" => low,
            "backlog" => 1 + self.random.below(8),
            "most" => self.random.below(1 << 20),
            "sector" => self.random.below(4096),
            "sectors" => 1 + self.random.below(128),
            "rate" => self.one(&[4000, 8000, 44_100]),
            "channels" => 1 + self.random.below(2),
            "format" => self.random.below(2),
            "file" => self.file(service),
            "follow" | "suspend" | "shared" | "control" | "set" | "lazy" => self.random.below(2),
            "part" | "member" | "number" | "how" => self.random.below(4),
            "status" => self.random.below(256),
            _ => self.number(),
        }
    }

    fn fs(&mut self, service: usize) -> Request {
        if let Some(door) = self.knock(service, FilesClient::ID) {
            return door;
        }
        let place = SERVICES[service].place.unwrap_or(PLACE);
        let (path, ino, offset) = (self.path_in(place), self.file(service), self.number());
        let number = self.number();
        let flags = Flags {
            create: self.chance(80),
            exclusive: self.chance(10),
            truncate: self.chance(20),
            nofollow: self.chance(10),
            symlink: self.chance(10),
            nameless: self.chance(10),
        };
        let look = self
            .one(&["/..//tmp/./..", "/dev/console", "/bin/ls", &path])
            .to_string();
        let (first, both) = fs::pair(&path, &self.path_in(place));
        let first = if self.chance(90) {
            first.into()
        } else {
            number
        };
        let room = if self.chance(80) { 4096 } else { number };
        let start = if self.chance(50) { 0 } else { offset };
        let at = if self.chance(80) {
            offset & 0x7_ffff
        } else {
            offset
        };
        let mode = self.one(&[0o755, 0o644, number]);
        let follow = u64::from(self.chance(50));
        let (method, arguments, bytes): (u16, Vec<u64>, Option<Vec<u8>>) =
            match self.random.below(40) {
                0..=5 => (
                    method!(FilesClient, "open_file"),
                    [flags.bits().into(), mode].into(),
                    Some(path.into()),
                ),
                6 | 7 => (method!(FilesClient, "close"), [ino].into(), None),
                8 => {
                    let count = self.random.below(1 + fs::MAX_CLOSED as u64);
                    let files: Vec<u64> = (0..count).map(|_| self.file(service)).collect();
                    let bytes = files.iter().flat_map(|file| file.to_le_bytes());
                    let bytes = bytes.collect();
                    (method!(FilesClient, "close_all"), Vec::new(), Some(bytes))
                }
                9 | 10 => {
                    let look = Some(look.into());
                    (method!(FilesClient, "stat"), [follow, room].into(), look)
                }
                11 => (method!(FilesClient, "attributes"), [ino, room].into(), None),
                12 | 13 => {
                    let arguments = [ino, start, room].into();
                    (method!(FilesClient, "read"), arguments, None)
                }
                14..=16 => {
                    let bytes = Some(self.bytes(60_000));
                    (method!(FilesClient, "write"), [ino, at].into(), bytes)
                }
                17 => {
                    let bytes = Some(self.bytes(60_000));
                    (method!(FilesClient, "append"), [ino].into(), bytes)
                }
                18 => (method!(FilesClient, "truncate"), [ino, offset].into(), None),
                19 => (
                    method!(FilesClient, "read_dir"),
                    [ino, start, if room == 4096 { 4 * room } else { room }].into(),
                    None,
                ),
                20 | 21 => (
                    method!(FilesClient, "mkdir"),
                    [mode].into(),
                    Some(path.into()),
                ),
                22 => (
                    method!(FilesClient, "unlink"),
                    Vec::new(),
                    Some(path.into()),
                ),
                23 => (method!(FilesClient, "rmdir"), Vec::new(), Some(path.into())),
                24 => (
                    method!(FilesClient, "rename"),
                    [first].into(),
                    Some(both.into()),
                ),
                25 => (
                    method!(FilesClient, "link"),
                    [first].into(),
                    Some(both.into()),
                ),
                26 => (
                    method!(FilesClient, "symlink"),
                    [first].into(),
                    Some(both.into()),
                ),
                27 => (
                    method!(FilesClient, "readlink"),
                    [room].into(),
                    Some(path.into()),
                ),
                28 => (method!(FilesClient, "path_of"), [ino, room].into(), None),
                29 => (method!(FilesClient, "chmod"), [ino, mode].into(), None),
                30 => {
                    let owners = [ino, number, number >> 32].into();
                    (method!(FilesClient, "chown"), owners, None)
                }
                31 => {
                    let times = [ino, offset, number].into();
                    (method!(FilesClient, "utimens"), times, None)
                }
                32 => (method!(FilesClient, "usage"), Vec::new(), None),
                33 => (method!(FilesClient, "sync"), [ino].into(), None),
                34 => (method!(FilesClient, "memory"), [number % 4].into(), None),
                35 | 36 => (method!(FilesClient, "place"), [ino, start].into(), None),
                _ => return self.any(service, &of!(FilesClient)),
            };
        self.asked((FilesClient::ID, method), &arguments, bytes)
    }

    /// A request of a session: a method with arguments in words and, if it takes any, bytes.
    fn asked(
        &mut self,
        (kind, method): (Kind, u16),
        arguments: &[u64],
        bytes: Option<Vec<u8>>,
    ) -> Request {
        let head = wire::head(method, self.number());
        self.asked_with((kind, method), head, arguments, bytes)
    }

    /// As [`Writer::asked`], with this first word.
    fn asked_with(
        &self,
        (kind, method): (Kind, u16),
        head: u64,
        arguments: &[u64],
        bytes: Option<Vec<u8>>,
    ) -> Request {
        let mut words = [head, 0, 0, 0, 0, 0, 0, 0];
        words[1..=arguments.len()].copy_from_slice(arguments);
        // Requests with bytes have all words.
        let count = match bytes {
            Some(_) => words.len(),
            None => 1 + arguments.len(),
        };
        Request {
            given: true,
            kind,
            method,
            gives: gives(&[]),
            waits: false,
            header: words[..count]
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect(),
            bulk: bytes.unwrap_or_default(),
            refs: Vec::new(),
        }
    }

    /// A request at a door where sessions of these interfaces are opened.
    fn door(&mut self, interfaces: &[u64]) -> Request {
        let query = wire::QUERY;
        let method = self.one(&[query, query, query, query, wire::KEEP, wire::RESUME]);
        let mut words = [wire::head(method, self.number()), 0, 0, 0, 0, 0, 0, 0];
        for word in &mut words[1..] {
            *word = self.number();
        }
        let mut opens = ANY;
        if self.chance(80) {
            opens = self.one(interfaces);
            words[1] = opens;
        }
        let mut header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if self.chance(20) {
            header.truncate(8 * (1 + self.random.below(8)) as usize);
        }
        Request {
            given: false,
            kind: ANY,
            method: 0,
            gives: gives(&[opens]),
            waits: false,
            header,
            // The content of a kept reply, as from an image.
            bulk: match method {
                wire::RESUME if self.chance(20) => {
                    alloc::vec![7; self.random.below(1 + wire::KEPT_BYTES as u64) as usize]
                }
                _ => Vec::new(),
            },
            refs: [self.reference(rt::start::names())].to_vec(),
        }
    }

    fn console(&mut self) -> Request {
        let interfaces = [ConsoleClient::ID, ConsoleControlClient::ID];
        if self.chance(43) {
            return self.door(&interfaces);
        }
        match self.random.below(12) {
            // The console shows what it is sent.
            0..=2 => {
                let text = self.text(8).into_bytes();
                let of = (ConsoleClient::ID, method!(ConsoleClient, "write"));
                self.asked(of, &[], Some(text))
            }
            // Only the holder of its control port may do that.
            3..=5 => self.any(CONSOLE, &of!(ConsoleControlClient)),
            // Whether it has other interfaces, too.
            6..=8 => Request {
                given: true,
                kind: ConsoleClient::ID,
                ..self.door(&interfaces)
            },
            _ => self.any(CONSOLE, &of!(ConsoleClient)),
        }
    }

    fn checkpoint(&mut self) -> Request {
        if let Some(door) = self.knock(CHECKPOINT, CheckpointClient::ID) {
            return door;
        }
        let path = if self.chance(80) {
            format!("{PLACE}/image")
        } else {
            self.path()
        };
        let room = if self.chance(90) {
            checkpoint::ROOM as u64
        } else {
            self.number()
        };
        if self.chance(5) {
            return self.any(CHECKPOINT, &of!(CheckpointClient));
        }
        if self.chance(70) {
            let lazy = u64::from(self.chance(50));
            let of = (CheckpointClient::ID, method!(CheckpointClient, "restore"));
            return Request {
                gives: gives(&[CONTROL_PORT]),
                ..self.asked(of, &[lazy, room], Some(path.into()))
            };
        }
        let how = [self.chance(10), self.chance(20)].map(u64::from);
        let arguments = [how[0], how[1], room];
        let of = (CheckpointClient::ID, method!(CheckpointClient, "save"));
        let mut request = self.asked(of, &arguments, Some(path.into()));
        for _ in 0..1 + self.random.below(3) {
            let manager = self.one(&[NATIVE, LINUX]);
            let process = self.handed(manager, CONTROL_PORT);
            request.refs.push(process);
        }
        request
    }
}
