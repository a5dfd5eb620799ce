//! A hostile client: random requests of every service, for ever.

use super::counters::{Counters, Outcome};
use super::error;
use super::pending::{PendingCall, WAYS};
use super::references::{SilentKeeper, SILENT_BYTES};
use super::table::{
    place_of, Given, Kind, Request, Service, Writer, ADOPTED, MOST_KINDS, SERVICES,
};
use abi::message::Segment;
use abi::registers::Area;
use abi::{Call, Code, MAX_LIST_REFS, MAX_SHORT, PAGE_SIZE};
use alloc::vec::Vec;
use proto::{Error, MAX_BULK};
use rt::obj::{Ref, RefAt, RefBlock};
use rt::sys::{self, IpcRegs};
use services::memory::SupplierClient;
use services::process::{DebugClient, ProcessClient, ProcessesClient};

/// Most threads that are held in the middle of a request at a time.
const MOST_STUCK: usize = 3;
/// Most threads that a client loses for ever.
const MOST_LOST: u32 = 6;
/// Most references of one kind that are kept of what one service has handed out.
const MOST_GIVEN: usize = 6;

/// A hostile client.
pub struct Client {
    writer: Writer,
    silent: SilentKeeper,
    /// The number and port of each service that the machine has.
    ports: Vec<(usize, Ref)>,
    counters: Counters,
    /// References that are sent, and those that are received.
    out: RefBlock,
    into: RefBlock,
    answer: Vec<u8>,
    pending: Vec<PendingCall>,
    lost: u32,
}

/// A request in the form in which it is sent.
struct Sent {
    to: Ref,
    message: Vec<u8>,
    /// How many references are sent with it.
    refs: usize,
    /// The place of its method, if the request is not spoilt and goes to a port that has this method.
    place: Option<usize>,
}

/// Calls that a server's port refuses, or calls for something else.
const OTHER_CALLS: [Call; 4] = [
    Call::ClientConnect,
    Call::ClientConnectSend,
    Call::ClientSend,
    Call::ClientDisconnect,
];

impl Client {
    /// A client whose choices follow from the seed.
    pub fn new(seed: u64, counters: Counters) -> Result<Self, Error> {
        let silent = SilentKeeper::new()?;
        let port = |(n, service): (usize, &Service)| Some((n, (service.port)().ok()?));
        let ports: Vec<(usize, Ref)> = SERVICES.iter().enumerate().filter_map(port).collect();
        let mut answer = Vec::new();
        answer
            .try_reserve_exact(4096 + MAX_BULK)
            .map_err(|_| Error::NoMemory)?;
        let mut writer = Writer::new(seed, &silent)?;
        for (service, port) in &ports {
            if SERVICES[*service].is_manager {
                // Other clients of its job may have all processes.
                writer.given[*service] = process_of(port).unwrap_or_default();
            }
        }
        Ok(Client {
            writer,
            silent,
            ports,
            counters,
            out: RefBlock::new(MAX_LIST_REFS as usize).map_err(error)?,
            into: RefBlock::new(MAX_LIST_REFS as usize).map_err(error)?,
            answer,
            pending: Vec::new(),
            lost: 0,
        })
    }

    /// Makes one request, perhaps several times.
    pub fn step(&mut self) {
        let count = self.ports.len() as u64;
        let mut which = self.writer.random.below(count) as usize;
        if SERVICES[self.ports[which].0].is_much_work && self.writer.chance(75) {
            which = self.writer.random.below(count) as usize;
        }
        let (service, ref port) = self.ports[which];
        let port = **port;
        let request = (SERVICES[service].write)(&mut self.writer, service);
        let (waits, gives) = (request.waits, request.gives);
        let Some(Sent {
            to,
            message,
            refs,
            place,
        }) = self.spoil(service, port, request)
        else {
            return;
        };
        if waits {
            if let Some(place) = place {
                self.counters.answered(place);
            }
            return self.hold(service, &to, &message, refs, true);
        }
        let again = if self.writer.chance(10) { 3 } else { 1 };
        for _ in 0..again {
            let (code, came) = match self.writer.random.below(100) {
                0 => {
                    self.hold(service, &to, &message, refs, false);
                    continue;
                }
                1 => (self.other_call(&to, &message), 0),
                _ => self.ask(&to, &message, refs),
            };
            if let Some(place) = place.filter(|_| code == Code::Ok) {
                self.counters.answered(place);
            }
            self.look(service, code, came, gives);
        }
    }

    /// Chooses the destination, the bytes and the references (in `out`), sometimes with something wrong.
    fn spoil(&mut self, service: usize, port: RefAt, request: Request) -> Option<Sent> {
        let w = &mut self.writer;
        // A name may lead to any program's port, which may not answer.
        let handed = match SERVICES[service].answers {
            true => w.given[service].len() as u64,
            false => 0,
        };
        let (to, mut right) = if w.chance(3) {
            let other = w.random.below(self.ports.len() as u64) as usize;
            (*self.ports[other].1, false)
        } else if (request.given || w.chance(3)) && handed > 0 {
            let (port, kind) = w.given_of(service, request.kind)?;
            (port, kind == request.kind)
        } else {
            (port, !request.given)
        };
        let mut refs = request.refs.clone();
        if w.chance(10) {
            for _ in 0..w.random.below(MAX_LIST_REFS) {
                let reference = w.pool.any(&mut w.random);
                refs.push(reference);
            }
        }
        refs.truncate(MAX_LIST_REFS as usize);
        right &= refs.len() == request.refs.len();
        let words = request.header.len() as u64;
        let mut message = request.message();
        let places = places(&message);
        match w.random.below(25) {
            0 => message.truncate(w.random.below(message.len() as u64 + 1) as usize),
            1 | 2 => {
                for _ in 0..1 + w.random.below(4) {
                    let at = w.random.below(message.len() as u64) as usize;
                    message[at] = w.random.number() as u8;
                }
            }
            3 => {
                let at = w.random.below(1 + words) as usize;
                let byte = w.random.number() as u8;
                message.insert(at.min(message.len()), byte);
            }
            4 => message.resize(w.random.below(SERVICES[service].most) as usize, 0xff),
            _ => {}
        }
        right &= message == request.message();
        if SERVICES[service].name == "console" && waits(&message) && !request.waits {
            // The client's own thread would wait for input that never comes; other threads make such requests.
            return None;
        }
        if self::places(&message) < places {
            // A path outside of its place: every client can reach all files, and other files must not be changed.
            return None;
        }
        for (n, reference) in refs.iter().enumerate() {
            // A reference that cannot be copied any more is sent as a null reference.
            if self.out.get(n).point_to(*reference).is_err() {
                let _ = self.out.get(n).clear();
            }
        }
        let place = place_of(service, request.kind, request.method);
        Some(Sent {
            to: to.copy().ok()?,
            message,
            refs: refs.len(),
            place: place.filter(|_| right),
        })
    }

    /// The registers of a call that sends this, with so many references of the list `out`.
    fn regs(&self, to: &RefAt, message: &[u8], refs: usize) -> IpcRegs {
        IpcRegs::to(to.handle()).sending(Area {
            address: message.as_ptr() as u64,
            length: message.len() as u64,
            refs: if refs == 0 { 0 } else { self.out.list(refs) },
            ..Area::default()
        })
    }

    /// Makes a request in one of the ordinary ways. Returns the code of the call, and how many references were
    /// received. The answer is kept.
    fn ask(&mut self, to: &RefAt, message: &[u8], refs: usize) -> (Code, usize) {
        if refs == 0 && message.len() as u64 <= MAX_SHORT && self.writer.chance(50) {
            return (self.ask_short(to, message), 0);
        }
        let room = match self.writer.random.below(20) {
            0 => 0,
            1 => self.writer.random.below(64),
            _ => self.answer.capacity() as u64,
        };
        self.answer.clear();
        let regs = self.regs(to, message, refs);
        // In several pieces at times.
        let middle = message.len() / 3;
        let rest = [Segment {
            address: message[middle..].as_ptr() as u64,
            length: (message.len() - middle) as u64,
        }];
        let mut regs = regs.receiving(Area {
            address: self.answer.as_mut_ptr() as u64,
            length: room,
            refs: self.into.list(MAX_LIST_REFS as usize),
            ..Area::default()
        });
        if self.writer.chance(20) {
            regs = regs.sending(Area {
                length: middle as u64,
                list: rest.as_ptr() as u64,
                entries: 1,
                ..regs.unsent()
            });
        }
        // SAFETY: the message is only read; only this client uses the buffer.
        let code = unsafe { sys::ipc(Call::Call, &mut regs) };
        let received = room.saturating_sub(regs.left().length).min(room) as usize;
        // SAFETY: the kernel has written so many bytes.
        unsafe { self.answer.set_len(received) };
        let left = (regs.left().refs & MAX_LIST_REFS) as usize;
        (code, (MAX_LIST_REFS as usize).saturating_sub(left))
    }

    /// Makes a request by a register message.
    fn ask_short(&mut self, to: &RefAt, message: &[u8]) -> Code {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(message.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(eight);
        }
        let mut regs = IpcRegs::to(to.handle()).sending_words(words, message.len());
        // SAFETY: a register message without references touches no memory.
        let code = unsafe { sys::ipc(Call::CallShort, &mut regs) };
        self.answer.clear();
        for word in regs.short_words() {
            self.answer.extend_from_slice(&word.to_le_bytes());
        }
        self.answer.truncate(regs.short_len());
        code
    }

    /// Keeps the number of a file, if the answer is that of a file that was opened.
    fn learn(&mut self, service: usize) {
        let answer = &self.answer;
        let Some(bytes) = answer.get(8..16).filter(|_| answer.len() >= 32) else {
            return;
        };
        let mut number = [0; 8];
        number.copy_from_slice(bytes);
        let opened = &mut self.writer.opened[service];
        opened.truncate(30);
        let at = self.writer.random.below(opened.len() as u64 + 1);
        opened.insert(at as usize, u64::from_le_bytes(number));
    }

    /// Counts the answer, and keeps its references for further requests, under the kinds that they are meant to have.
    fn look(&mut self, service: usize, code: Code, refs: usize, gives: [Kind; MOST_KINDS]) {
        let outcome = match (code, &self.answer[..]) {
            (Code::Ok, [0, 0, 0, 0, 0, 0, 0, 0, ..]) => Outcome::Done,
            (Code::Ok, _) => Outcome::Refused,
            _ => Outcome::Code,
        };
        self.counters.count(service, outcome);
        if outcome != Outcome::Done {
            return;
        }
        if SERVICES[service].place.is_some() {
            self.learn(service);
        }
        for n in 0..refs {
            let Ok(copy) = self.into.get(n).copy() else {
                continue;
            };
            let w = &mut self.writer;
            if w.chance(30) {
                if let Ok(copy) = copy.copy() {
                    w.pool.keep(&mut w.random, copy);
                }
            }
            let one = Given {
                port: copy,
                kind: gives.get(n).copied().unwrap_or_default(),
            };
            // A reference replaces one of its own kind: references of rare kinds are kept.
            let given = &mut w.given[service];
            let which = w.random.below(MOST_GIVEN as u64) as usize;
            let such = given.iter().filter(|other| other.kind == one.kind);
            if such.count() < MOST_GIVEN {
                given.push(one);
                continue;
            }
            let mut such = given.iter_mut().filter(|other| other.kind == one.kind);
            if let Some(place) = such.nth(which) {
                *place = one;
            }
        }
    }

    /// Makes another call than those that servers take.
    fn other_call(&mut self, to: &RefAt, message: &[u8]) -> Code {
        let mut regs = self.regs(to, message, 0);
        let call = OTHER_CALLS[self.writer.random.below(OTHER_CALLS.len() as u64) as usize];
        // SAFETY: what is sent is only read.
        let code = unsafe { sys::ipc(call, &mut regs) };
        self.answer.clear();
        code
    }

    /// Makes a request by a thread of its own: one that may be answered late, one that the thread cannot finish, or
    /// one whose answer has nowhere to go.
    fn hold(&mut self, service: usize, to: &RefAt, message: &[u8], refs: usize, whole: bool) {
        self.pending.retain(PendingCall::is_away);
        if self.pending.len() >= MOST_STUCK {
            self.let_go();
        }
        let never = self.silent.memory + PAGE_SIZE;
        // The message, the list of references and the buffer must stay while the thread exists.
        let message = message.to_vec().leak();
        let mut held = Vec::new();
        if let Ok(port) = to.copy() {
            held.push(port);
        }
        let Some(to) = held.first() else {
            return;
        };
        let mut regs = self.regs(to, message, 0);
        let room = Area {
            address: never,
            length: SILENT_BYTES - PAGE_SIZE,
            ..Area::default()
        };
        let ways = if whole { 1 } else { 6 };
        match self.writer.random.below(ways) {
            // The whole message is there.
            0 => {
                regs = regs.receiving(Area {
                    address: alloc::vec![0u8; 4096].leak().as_mut_ptr() as u64,
                    length: 4096,
                    ..Area::default()
                });
            }
            // Half of the message is there.
            1 => {
                let segments: &'static [Segment] = alloc::vec![Segment {
                    address: never,
                    length: 64,
                }]
                .leak();
                regs = regs.sending(Area {
                    list: segments.as_ptr() as u64,
                    entries: 1,
                    ..regs.unsent()
                });
            }
            2 => regs = regs.sending(room),
            3 => regs = regs.receiving(room),
            // Reference lists at addresses without memory.
            4 => {
                regs = regs.sending(Area {
                    refs: abi::ref_list(never, 3),
                    ..regs.unsent()
                });
            }
            _ => regs = regs.taking_refs(abi::ref_list(never, 3)),
        }
        if refs > 0 && self.writer.chance(50) {
            regs = regs.sending(Area {
                refs: self.out.list(refs),
                ..regs.unsent()
            });
        }
        // SAFETY: the message is leaked; the other memory is not in use.
        match unsafe { PendingCall::new(Call::Call, regs, held) } {
            Ok(pending) => {
                self.counters.count(service, Outcome::Held);
                self.pending.push(pending);
            }
            Err(_) => self.let_go(),
        }
    }

    /// Does something to a thread that is held.
    fn let_go(&mut self) {
        let count = self.pending.len() as u64;
        if count == 0 {
            return;
        }
        let pending = self
            .pending
            .swap_remove(self.writer.random.below(count) as usize);
        let way = self.writer.random.below(WAYS.len() as u64) as usize;
        let _ = (WAYS[way].1)(&pending);
        if way != WAYS.len() - 1 && self.lost < MOST_LOST {
            self.lost += 1;
            core::mem::forget(pending);
        }
    }
}

/// A process of this manager and its ports, so that even a client with few requests reaches these.
fn process_of(manager: &RefAt) -> Result<Vec<Given>, Error> {
    let mut all = Vec::new();
    let mut give = |kind: Kind, port: &RefAt| {
        let port = port.copy().map_err(error)?;
        all.push(Given { port, kind });
        Ok::<_, Error>(())
    };
    let mut processes = ProcessesClient::open_known(manager)?;
    give(ProcessesClient::ID, &processes.session().kept().0)?;
    let (_, refs) = processes.adopt(&rt::start::names())?;
    for (kind, port) in ADOPTED.iter().zip(&refs) {
        give(*kind, port)?;
    }
    let control = refs.first().ok_or(Error::Broken)?;
    let mut process = ProcessClient::open_known(control)?;
    give(ProcessClient::ID, &process.session().kept().0)?;
    // Without a debugger's session the client has one interface less.
    if let Ok(debug) = DebugClient::open_known(control) {
        give(DebugClient::ID, &debug.session().kept().0)?;
    }
    if let Ok(supplier) = process.supplier(0) {
        give(SupplierClient::ID, &supplier)?;
    }
    Ok(all)
}

/// Whether this is a request of the console that may wait, for room or for input.
fn waits(message: &[u8]) -> bool {
    matches!(message, [2 | 3, 0, ..])
}

/// How often the message names places of hostile clients.
fn places(message: &[u8]) -> usize {
    let named = |place: &str| {
        let windows = message.windows(place.len());
        windows.filter(|w| *w == place.as_bytes()).count()
    };
    let places = SERVICES.iter().filter_map(|service| service.place);
    places.map(named).sum()
}

/// The program; its argument is the seed, and its reference the counters.
pub fn run(seed: u64) -> u8 {
    let counters = rt::start::passed(0)
        .ok_or(Error::Invalid)
        .and_then(Counters::at);
    let Ok(mut client) = counters.and_then(|counters| Client::new(seed, counters)) else {
        return 1;
    };
    loop {
        client.step();
    }
}
