//! What requests of each service look like: the one place that knows them.

use super::references::{ReferencePool, SilentKeeper};
use crate::harness::Random;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use interface::wire::{self, Shape};
use proto::Error;
use rt::obj::{Ref, RefAt};
use services::block::BlockClient;
use services::checkpoint::{self, CheckpointClient};
use services::console::{ConsoleClient, ConsoleControlClient};
use services::device::DevicesClient;
use services::entropy::EntropyClient;
use services::fs::{self, FilesClient, Flags};
use services::link::{self, LinkClient};
use services::memory::{AccountClient, MemorySupervisorClient, SegmentClient};
use services::names::{NamesClient, RESERVED};
use services::net::{self, NetworkClient};
use services::process::{
    DebugClient, ProcessClient, ProcessesClient, Program, Start, Stdio, SupervisorClient, ROOM,
};
use services::random::RandomClient;
use services::sound::SoundClient;
use services::system::SystemClient;

/// A service.
pub struct Service {
    /// Its name, for people.
    pub name: &'static str,
    /// Its port.
    pub port: fn() -> Result<Ref, Error>,
    /// Writes a request that it could be asked, to the service with this number.
    pub write: fn(&mut Writer, usize) -> Request,
    /// Whether the ports that it hands out are its own, so that whoever calls them is answered.
    pub answers: bool,
    /// Most bytes of nonsense behind a request: somebody reads what the console is sent.
    pub most: u64,
    /// Where hostile clients have their files, if it has files: what they remove there harms nobody.
    pub place: Option<&'static str>,
}

/// All services, of which those of devices are there if the machine has these. Ports that they hand out are asked by the same rows.
pub const SERVICES: [Service; 15] = [
    service("memory", || copy(rt::start::memory()), |w, _| w.memory()),
    Service {
        answers: false,
        ..service("names", || copy(rt::start::names()), |w, _| w.names())
    },
    service("native", || lookup("native"), |w, _| w.native()),
    service("linux", || lookup("linux"), |w, _| w.linux()),
    Service {
        place: Some(PLACE),
        ..service("fs", || lookup("fs"), Writer::fs)
    },
    Service {
        most: 40,
        ..service("console", || lookup("console"), |w, _| w.console())
    },
    service("checkpoint", || lookup("checkpoint"), |w, _| w.checkpoint()),
    service(
        "random",
        || lookup("random"),
        |w, own| w.session(own, RandomClient::ID, RandomClient::METHODS),
    ),
    service(
        "device",
        || lookup("device"),
        |w, own| w.session(own, DevicesClient::ID, DevicesClient::METHODS),
    ),
    service(
        "net",
        || lookup("net"),
        |w, own| w.session(own, NetworkClient::ID, NetworkClient::METHODS),
    ),
    service(
        "link",
        || with_power("link"),
        |w, own| w.session(own, LinkClient::ID, LinkClient::METHODS),
    ),
    service(
        "entropy",
        || with_power("entropy"),
        |w, own| w.session(own, EntropyClient::ID, EntropyClient::METHODS),
    ),
    Service {
        place: Some(PLACE_ON_DISK),
        ..service("ext4", || lookup("ext4"), Writer::fs)
    },
    service(
        "disk",
        || with_power("disk"),
        |w, own| w.session(own, BlockClient::ID, BlockClient::METHODS),
    ),
    service(
        "sound",
        || lookup("sound"),
        |w, own| w.session(own, SoundClient::ID, SoundClient::METHODS),
    ),
];

/// The number of a method of an interface, by its name.
macro_rules! method {
    ($interface:ident, $name:literal) => {
        const { wire::numbered($interface::METHODS, $name) }
    };
}

/// What takes a segment as a reference.
const COPY: u16 = wire::numbered(AccountClient::METHODS, "copy");

/// Where some stand among them.
const MEMORY: usize = 0;
const NATIVE: usize = 2;
const LINUX: usize = 3;
const CHECKPOINT: usize = 6;

/// The service with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Service> {
    SERVICES.iter().find(|service| service.name == name)
}

/// Whether this machine has it.
#[must_use]
pub fn is_there(service: &Service) -> bool {
    (service.port)().is_ok()
}

fn lookup(name: &str) -> Result<Ref, Error> {
    rt::names::lookup(name)
}

/// Which argument of a hostile client is the first that names a service whose control port it was passed, in this
/// order, behind the counters.
pub const FIRST_POWER: usize = 3;

/// The control port of a service, for who was passed it; else what everybody finds by its name.
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
        place: None,
    }
}

fn copy(reference: RefAt) -> Result<Ref, Error> {
    reference.copy().map_err(rt::error_of)
}

/// Where hostile clients have their files in memory.
pub const PLACE: &str = "/tmp/hostile";
/// Those on the disk.
const PLACE_ON_DISK: &str = "/disk/hostile";
/// The program that native processes of hostile clients run.
pub const PROGRAM: &str = "/test/services";
/// Its argument.
pub const IDLE: &str = "idle";

/// A request before it is spoilt.
pub struct Request {
    /// To a port that the service has handed out, if there is one.
    pub given: bool,
    /// It may be answered late or never, and is for a thread of its own.
    pub waits: bool,
    /// Its words.
    pub header: Vec<u8>,
    /// Bytes behind it.
    pub bulk: Vec<u8>,
    /// What goes with it.
    pub refs: Vec<RefAt>,
}

impl Request {
    /// As the service takes it.
    pub fn message(&self) -> Vec<u8> {
        [&self.header[..], &self.bulk].concat()
    }
}

/// Writes requests.
pub struct Writer {
    /// Where all choices come from.
    pub random: Random,
    /// References of every kind.
    pub pool: ReferencePool,
    /// References that each service has handed out.
    pub given: [Vec<Ref>; SERVICES.len()],
    /// Numbers of what each service has opened for it.
    pub opened: [Vec<u64>; SERVICES.len()],
}

impl Writer {
    /// One whose choices follow from the seed.
    pub fn new(seed: u64, silent: &SilentKeeper) -> Result<Self, Error> {
        Ok(Writer {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            pool: ReferencePool::new(silent)?,
            given: Default::default(),
            opened: Default::default(),
        })
    }

    /// Whether something that happens so often out of a hundred times happens now.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.random.below(of.len() as u64) as usize].clone()
    }

    /// A number at some edge, or any.
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

    /// A reference that could be meant, or another.
    fn reference(&mut self, meant: RefAt) -> RefAt {
        if self.chance(70) {
            meant
        } else {
            self.pool.any(&mut self.random)
        }
    }

    /// A reference that the service with this index has handed out, or another.
    fn handed(&mut self, service: usize) -> RefAt {
        let count = self.given[service].len() as u64;
        if count == 0 || self.chance(10) {
            return self.pool.any(&mut self.random);
        }
        *self.given[service][self.random.below(count) as usize]
    }

    fn text(&mut self, most: u64) -> String {
        let bytes = self.bytes(most);
        bytes.iter().map(|b| char::from(b'a' + b % 26)).collect()
    }

    fn memory(&mut self) -> Request {
        let (offset, size) = (self.number(), self.number());
        let segment = self.handed(MEMORY);
        let (account, method, arguments): (bool, u16, &[u64]) = match self.random.below(22) {
            0..=2 => (
                true,
                method!(AccountClient, "create"),
                &[size & !4095 & 0xf_ffff],
            ),
            3 => (true, method!(AccountClient, "create"), &[size]),
            4 => (true, COPY, &[]),
            5 if self.chance(50) => {
                let size = (1 + self.random.below(64)) << 20;
                (true, method!(AccountClient, "reserve"), &[size])
            }
            5 => (true, method!(AccountClient, "reserve"), &[size]),
            6 => (true, method!(AccountClient, "usage"), &[]),
            7 => (false, method!(SegmentClient, "number"), &[]),
            8 => (false, method!(SegmentClient, "copy_on"), &[]),
            9 => (false, method!(SegmentClient, "release"), &[]),
            10 => (false, method!(SegmentClient, "is_intact"), &[]),
            11 => (false, method!(SegmentClient, "present_from"), &[offset]),
            12 => (false, method!(SegmentClient, "objects_from"), &[offset]),
            13 => (
                false,
                method!(SegmentClient, "discard"),
                &[offset & !4095, size & !4095],
            ),
            14 => (false, method!(SegmentClient, "discard"), &[offset, size]),
            15 | 16 => (
                false,
                method!(SegmentClient, "populate"),
                &[offset & 0xffff, size & 0xfff],
            ),
            17 => (false, method!(SegmentClient, "populate"), &[offset, size]),
            18 => (false, method!(SegmentClient, "usage"), &[]),
            19 | 20 => (false, method!(SegmentClient, "destroy"), &[]),
            // What the port of the process must not be able to ask.
            _ => {
                let method = method!(MemorySupervisorClient, "create_account");
                let head = wire::head(method, MemorySupervisorClient::ID);
                return Request {
                    given: false,
                    ..self.asked_with(head, &[offset, size, 5], None)
                };
            }
        };
        if !account {
            return Request {
                given: true,
                ..self.shared(SegmentClient::ID, method, arguments, None)
            };
        }
        // Its own requests have other numbers: this program goes on with its account.
        let number = self.number() | 1 << 47;
        let mut request = Request {
            given: false,
            ..self.asked_with(wire::head(method, number), arguments, None)
        };
        if method == COPY {
            request.refs.push(segment);
        }
        request
    }

    fn names(&mut self) -> Request {
        let name = match self.random.below(4) {
            0 => self.one(&RESERVED).to_string(),
            1 | 2 => format!("hostile-{}", self.random.below(40)),
            _ => self.text(5000),
        };
        let port = self.reference(rt::start::memory());
        let control = self.reference(rt::start::memory());
        // In the order of the trait.
        let (method, status, refs): (u16, Option<u64>, &[RefAt]) = match self.random.below(200) {
            0 => (1, Some(self.random.below(256)), &[]),
            1..=19 => return self.door(&[SystemClient::ID]),
            20..=29 => (5, None, &[port]),
            30..=110 => (2, None, &[]),
            111..=130 => (4, None, &[port, control]),
            131..=135 => (6, None, &[]),
            136..=145 => (7, None, &[]),
            _ => (3, None, &[port]),
        };
        let bytes = matches!(method, 2..=4 | 7).then(|| name.into());
        let mut request = self.shared(NamesClient::ID, method, status.as_slice(), bytes);
        request.refs = refs.to_vec();
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
        let id = if self.chance(97) { id } else { self.number() };
        Request {
            given: false,
            ..self.asked_with(wire::head(method, id), arguments, bytes)
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

    /// What one can ask about a process, in a session.
    fn control(&mut self) -> Request {
        let (offset, size) = (self.number(), self.number());
        let room = if self.chance(90) {
            ROOM as u64
        } else {
            self.number()
        };
        let control = u64::from(self.chance(50));
        let (member, flag) = (self.random.below(3), u64::from(self.chance(50)));
        if self.chance(25) {
            return self.debug();
        }
        // What waits is for other threads.
        let (method, arguments): (u16, Vec<u64>) = match self.random.below(32) {
            0 => (method!(ProcessClient, "status"), [].into()),
            1 => (method!(ProcessClient, "reap"), [].into()),
            2 => (method!(ProcessClient, "kill"), [].into()),
            3 | 4 => (method!(ProcessClient, "stop"), [].into()),
            5 | 6 => (method!(ProcessClient, "go_on"), [].into()),
            7 => (method!(ProcessClient, "typed"), [flag].into()),
            8 | 9 => (method!(ProcessClient, "info"), [room].into()),
            // It does not do that, so there is an answer at once.
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
            27 => (method!(ProcessClient, "supplier"), [member].into()),
            _ => {
                let place = if self.chance(70) { 0 } else { offset };
                let bytes = self.bytes(60_000);
                let arguments = [place, size & 0x3_ffff, offset];
                return self.asked(method!(ProcessClient, "rebuild"), &arguments, Some(bytes));
            }
        };
        self.asked(method, &arguments, None)
    }

    /// What a debugger can ask.
    fn debug(&mut self) -> Request {
        let (offset, size) = (self.number(), self.number());
        let flag = u64::from(self.chance(50));
        let spot = self.one(&[0x10, u64::MAX, offset]);
        let (method, arguments): (u16, Vec<u64>) = match self.random.below(16) {
            0 => (method!(DebugClient, "regions"), [].into()),
            1..=3 => (method!(DebugClient, "hold"), [].into()),
            4..=6 => (method!(DebugClient, "let_run"), [spot].into()),
            7 => (method!(DebugClient, "threads"), [ROOM as u64].into()),
            8 => (method!(DebugClient, "taken"), [].into()),
            // There were not so many, so there is an answer at once.
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
            _ => (method!(DebugClient, "leave"), [].into()),
        };
        self.asked(method, &arguments, None)
    }

    fn process(&mut self, path: &str, start: Start, service: usize) -> Request {
        let own = self.reference(rt::start::names());
        let passed = self.pool.any(&mut self.random);
        let knock = if self.given[service].is_empty() {
            60
        } else {
            15
        };
        if self.chance(knock) {
            return self.door(&[ProcessesClient::ID]);
        }
        if self.chance(15) {
            // A control port is a door too.
            return Request {
                given: true,
                ..self.door(&[ProcessClient::ID, DebugClient::ID])
            };
        }
        // Starting a program is much work.
        match self.random.below(60) {
            0..=2 => {
                let path = if self.chance(70) {
                    path.to_string()
                } else {
                    self.path()
                };
                let program = Program { path, start };
                let bytes = postcard::to_allocvec(&program).unwrap_or_default();
                let mut request = self.asked(method!(ProcessesClient, "spawn"), &[], Some(bytes));
                request.refs = [own, passed].to_vec();
                request
            }
            3..=6 => Request {
                refs: [own].to_vec(),
                ..self.asked(method!(ProcessesClient, "adopt"), &[], None)
            },
            7 | 8 => {
                let refs = [self.handed(service)].to_vec();
                Request {
                    refs,
                    ..self.asked(method!(ProcessesClient, "verify"), &[], None)
                }
            }
            9..=12 => {
                let (method, number) = (self.one(&[1, 2]), self.random.below(20));
                self.shared(SupervisorClient::ID, method, &[number, ROOM as u64], None)
            }
            _ => self.control(),
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

    /// A path, almost always below this one, of few names, so that clients meet.
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
            // What another one may have open.
            fs::FIRST_INO + self.random.below(1000)
        }
    }

    /// Knocks at a door where there are sessions for this interface, if there is none yet, and at times.
    fn knock(&mut self, service: usize, id: u64) -> Option<Request> {
        // Most that can be asked is asked in a session.
        let knock = match self.given[service].is_empty() {
            true => 90,
            false => 5,
        };
        self.chance(knock).then(|| self.door(&[id]))
    }

    /// Any method of this interface, in a session with this service.
    fn session(&mut self, service: usize, id: u64, methods: &[Shape]) -> Request {
        if let Some(door) = self.knock(service, id) {
            return door;
        }
        let method = self.random.below(methods.len() as u64) as usize;
        let shape = &methods[method];
        let mut arguments: Vec<u64> = Vec::new();
        for word in shape.words {
            arguments.push(self.word(word));
        }
        if shape.room {
            arguments.push(if self.chance(90) { 4096 } else { self.number() });
        }
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
            _ => self.bytes(60_000),
        });
        let refs = (0..shape.refs).map(|_| self.pool.any(&mut self.random));
        Request {
            refs: refs.collect(),
            waits: shape.waits,
            ..self.asked(1 + method as u16, &arguments, bytes)
        }
    }

    /// An argument of this name: mostly one that could be meant.
    fn word(&mut self, name: &str) -> u64 {
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
        // In the order of the trait.
        let (method, arguments, bytes): (u16, Vec<u64>, Option<Vec<u8>>) =
            match self.random.below(32) {
                0..=5 => (1, [flags.bits().into(), mode].into(), Some(path.into())),
                6 | 7 => (2, [ino].into(), None),
                8 => (3, [follow, room].into(), Some(look.into())),
                9 => (4, [ino, room].into(), None),
                10 | 11 => (5, [ino, start, room].into(), None),
                12..=14 => (6, [ino, at].into(), Some(self.bytes(60_000))),
                15 => (7, [ino].into(), Some(self.bytes(60_000))),
                16 => (8, [ino, offset].into(), None),
                17 => (9, [ino, offset, room].into(), None),
                18 | 19 => (10, [mode].into(), Some(path.into())),
                20 => (11, Vec::new(), Some(path.into())),
                21 => (12, Vec::new(), Some(path.into())),
                22 => (13, [first].into(), Some(both.into())),
                23 => (14, [first].into(), Some(both.into())),
                24 => (15, [first].into(), Some(both.into())),
                25 => (16, [room].into(), Some(path.into())),
                26 => (17, [ino, room].into(), None),
                27 => (18, [ino, number].into(), None),
                28 => (20, [ino, offset, offset].into(), None),
                29 => (19, [ino, number, number >> 32].into(), None),
                30 => (22, [ino].into(), None),
                _ => (21, Vec::new(), None),
            };
        self.asked(method, &arguments, bytes)
    }

    /// A request of a session: a method with arguments in words and, if it takes any, bytes.
    fn asked(&mut self, method: u16, arguments: &[u64], bytes: Option<Vec<u8>>) -> Request {
        let head = wire::head(method, self.number());
        self.asked_with(head, arguments, bytes)
    }

    /// As [`Writer::asked`], with this for a first word.
    fn asked_with(&self, head: u64, arguments: &[u64], bytes: Option<Vec<u8>>) -> Request {
        let mut words = [head, 0, 0, 0, 0, 0, 0, 0];
        words[1..=arguments.len()].copy_from_slice(arguments);
        // Those with bytes have all words.
        let count = match bytes {
            Some(_) => words.len(),
            None => 1 + arguments.len(),
        };
        Request {
            given: true,
            waits: false,
            header: words[..count]
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect(),
            bulk: bytes.unwrap_or_default(),
            refs: Vec::new(),
        }
    }

    /// Knocks at a door where sessions for these interfaces are opened.
    fn door(&mut self, interfaces: &[u64]) -> Request {
        let query = wire::QUERY;
        let method = self.one(&[query, query, query, query, wire::KEEP, wire::RESUME]);
        let mut words = [wire::head(method, self.number()), 0, 0, 0, 0, 0, 0, 0];
        for word in &mut words[1..] {
            *word = self.number();
        }
        if self.chance(80) {
            words[1] = self.one(interfaces);
        }
        let mut header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if self.chance(20) {
            header.truncate(8 * (1 + self.random.below(8)) as usize);
        }
        Request {
            given: false,
            waits: false,
            header,
            // What an image says that came with a reply.
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
        let method = self.one(&[wire::QUERY, 1, 4, 5]);
        let mut words = [wire::head(method, self.number()), 0, 0, 0, 0, 0, 0, 0];
        for word in &mut words[1..] {
            *word = self.number();
        }
        if self.chance(80) {
            words[1] = self.one(&interfaces);
        }
        let mut header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bulk = Vec::new();
        if method == 1 {
            bulk = self.text(8).into_bytes();
        } else {
            header.truncate(8 * (1 + self.random.below(8)) as usize);
        }
        Request {
            given: true,
            waits: false,
            header,
            bulk,
            refs: Vec::new(),
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
        if self.chance(70) {
            let lazy = u64::from(self.chance(50));
            return self.asked(
                method!(CheckpointClient, "restore"),
                &[lazy, room],
                Some(path.into()),
            );
        }
        let how = [self.chance(10), self.chance(20)].map(u64::from);
        let arguments = [how[0], how[1], room];
        let mut request = self.asked(
            method!(CheckpointClient, "save"),
            &arguments,
            Some(path.into()),
        );
        for _ in 0..1 + self.random.below(3) {
            let manager = self.one(&[NATIVE, LINUX]);
            let process = self.handed(manager);
            request.refs.push(process);
        }
        request
    }
}
