//! Hostile callers: threads that make every call with random arguments.
//!
//! Two spaces share some pages full of objects; six threads with handles of all these objects, themselves included,
//! make random calls, fault, and set random states. After every trap the invariants are checked; at the end the
//! manager destroys everything, and nothing may be left. A failure prints its seed; `FERMATA_SEED=n` repeats
//! that round alone and prints its steps.

use super::world::*;
use crate::check;
use crate::object::thread::{Run, Thread};
use crate::object::{Object, Phase};
use abi::ipc::{plan, Plan};
use abi::state::Stage;
use abi::{access, boot, Call, Code, Type, PAGE_SIZE, ROLES, SYSCALLS, USER_END};
use hal::Trap;
use std::collections::BTreeMap;
use std::format;
use std::println;
use std::vec::Vec;

/// A pseudo-random sequence.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub(super) fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
    pub(super) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// The most accesses to memory, page tables and links of objects that a call of a program, or another trap (`None`),
/// may take in a kernel without preemption (rule A9; published in docs/proof.md). Reliable messages may use many list
/// entries in one go; all other messages have short lists.
pub(super) fn most_accesses(call: Option<Call>) -> u64 {
    match call {
        Some(call) if plan(call).is_ipc() => 16 * abi::ENTRIES_PER_TURN,
        _ => 2_000,
    }
}

/// The address of the shared pages in both spaces, and their number.
const JAIL: u64 = 0x10_0000;
const JAIL_PAGES: u64 = 8;
/// The address at which both spaces have the shared pages a second time.
const AGAIN: u64 = 0x50_0000;
/// The page for states.
const STATES: u64 = JAIL + 2 * PAGE_SIZE;
/// Pages that are never written.
const ZEROS: u64 = JAIL + 4 * PAGE_SIZE;
/// A range that a region with a keeper exports, and the address at which its pages would have to be mapped.
const KEPT: u64 = 0x20_0000;
const HOLE: u64 = 0x90_0000;
/// The address at which programs make calls.
const CALL: u64 = 0x7000;
/// The number of slots for objects.
const SLOTS: u64 = 56;

struct Round {
    w: World,
    random: Random,
    /// The shared pages, in the first space.
    pages: u64,
    trace: bool,
    authority: bool,
}

struct Report(u64);

impl Drop for Report {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("hostile: repeat with FERMATA_SEED={}", self.0);
        }
    }
}

fn slot(n: u64) -> u64 {
    JAIL + n * abi::OBJECT_SIZE
}

impl Round {
    fn new(seed: u64, trace: bool) -> Round {
        let w = World::with_frames(64);
        w.checked.set(false);
        let mut random = Random::new(seed);
        let pages = w.pages(JAIL_PAGES);
        let authority = random.below(4) == 0;
        let mut r = Round {
            w,
            random,
            pages,
            trace,
            authority,
        };
        r.build();
        r.w.bound.set(most_accesses);
        r.w.checked.set(true);
        check::invariants(r.w.k);
        r
    }

    /// The manager's address of an address in the shared pages.
    fn mine(&self, address: u64) -> u64 {
        address - JAIL + self.pages
    }

    fn build(&mut self) {
        let w = &self.w;
        let (_, all) = w.region(0, self.pages, JAIL_PAGES * PAGE_SIZE, 0);
        let at = |n| self.mine(slot(n));
        let state = w.page();
        let temporary = w.create(Call::ReferenceCreate);
        let mut next_ref = 20;
        let mut refer = |w: &World, call: Call, object: u64| {
            let r = self.pages + next_ref * abi::OBJECT_SIZE;
            next_ref += 1;
            w.ok(Call::ReferenceCreate, &[r, 0]);
            w.ok(call, &[object, r]);
            r
        };
        for (n, call) in [
            (8, Call::MutexCreate),
            (9, Call::MutexCreate),
            (10, Call::CondCreate),
            (11, Call::PortsetCreate),
            (12, Call::PortsetCreate),
            (13, Call::PortCreate),
            (14, Call::PortCreate),
            (15, Call::RegionCreate),
            (16, Call::MappingCreate),
        ] {
            w.ok(call, &[at(n), 0]);
        }
        let sets = [
            refer(w, Call::PortsetReference, at(11)),
            refer(w, Call::PortsetReference, at(12)),
        ];
        for (n, set) in sets.iter().enumerate() {
            w.poke(state, 100 + n as u64);
            w.ok(Call::PortSetState, &[at(13 + n as u64), state, *set]);
        }
        let ports = [
            refer(w, Call::PortReference, at(13)),
            refer(w, Call::PortReference, at(14)),
        ];
        let mut spaces = Vec::new();
        for n in 0..2 {
            w.ok(Call::SpaceCreate, &[at(n), 0]);
            w.words(state, &[0, 0x2_0000, 0, 0, 9]);
            w.ok(Call::SpaceSetState, &[at(n), state, ports[n as usize]]);
            let s = refer(w, Call::SpaceReference, at(n));
            w.map(s, JAIL, JAIL_PAGES * PAGE_SIZE, all, 0);
            w.map(s, AGAIN, JAIL_PAGES * PAGE_SIZE, all, 0);
            spaces.push(s);
        }
        w.words(state, &[HOLE, 0x10_000, access::ALL]);
        w.ok(Call::RegionSetState, &[at(15), state, spaces[1], ports[0]]);
        let hole = refer(w, Call::RegionReference, at(15));
        w.words(state, &[KEPT, 0x10_000, 0, access::ALL]);
        w.ok(Call::MappingSetState, &[at(16), state, hole, spaces[0]]);
        for n in 2..8 {
            w.ok(Call::ThreadCreate, &[at(n), 0]);
            let mut words = [0; abi::state::THREAD_WORDS];
            words[PC_WORD] = CALL + ROLES.call_bytes;
            words[PRIORITY_WORD] = 5 + n % 3;
            words[STOPS_WORD] = 1;
            w.words(state, &words);
            w.ok(
                Call::ThreadSetState,
                &[at(n), state, spaces[(n % 2) as usize], 0, 0],
            );
            w.ok(Call::ThreadResume, &[at(n)]);
            refer(w, Call::ThreadReference, at(n));
        }
        refer(w, Call::ThreadReferenceClientEnd, at(2));
        refer(w, Call::ThreadReferenceServerEnd, at(3));
        let all_again = refer(w, Call::ThreadReference, at(2));
        w.poke(state, abi::RefKind::Region as u64);
        w.ok(Call::ReferenceSetState, &[all_again, state, all]);
        if self.authority {
            let r = refer(w, Call::ThreadReference, at(2));
            w.poke(state, abi::RefKind::Authority as u64);
            w.ok(Call::ReferenceSetState, &[r, state, boot::AUTHORITY]);
        }
        w.ok(Call::ReferenceDestroy, &[temporary, 0]);
    }

    // ---- random values ---------------------------------------------------------------------------

    fn handle(&mut self) -> u64 {
        match self.random.below(40) {
            0 => 0,
            1 => slot(self.random.below(SLOTS)) + self.random.below(16),
            2 => JAIL + PAGE_SIZE - 16,
            3 => JAIL + PAGE_SIZE + self.random.below(4) * 16,
            4 => KEPT + self.random.below(3) * PAGE_SIZE,
            5 => self.wild(),
            6..12 => slot(self.random.below(SLOTS)) - JAIL + AGAIN,
            _ => slot(self.random.below(SLOTS)),
        }
    }

    fn wild(&mut self) -> u64 {
        let near = self.random.below(32).wrapping_sub(16).wrapping_mul(8);
        let base = [
            0,
            u64::MAX,
            USER_END,
            1 << 47,
            1 << 63,
            0u64.wrapping_sub(PAGE_SIZE),
            HOLE,
            KEPT,
            STATES,
            1 << 32,
        ];
        match self.random.below(8) {
            0 => self.random.next(),
            1 => 1 << self.random.below(64),
            _ => self.random.one_of(&base).wrapping_add(near),
        }
    }

    fn buffer(&mut self) -> u64 {
        match self.random.below(16) {
            0 => self.wild(),
            1 => KEPT + self.random.below(0x3000),
            2 => JAIL + 3 * PAGE_SIZE - self.random.below(64) * 8,
            3 => slot(self.random.below(SLOTS)),
            _ => STATES + self.random.below(256) * 8,
        }
    }

    fn number(&mut self) -> u64 {
        match self.random.below(8) {
            0 => self.wild(),
            1 => self.random.below(3) * PAGE_SIZE,
            2 => hal::now().wrapping_add(self.random.below(1_000_000)),
            3 => self.random.below(200),
            4 => self.random.below(10_000),
            _ => self.random.below(9),
        }
    }

    fn anything(&mut self) -> u64 {
        match self.random.below(4) {
            0 => self.handle(),
            1 => self.buffer(),
            2 => self.number(),
            _ => {
                let list = slot(self.random.below(SLOTS));
                abi::ref_list(list, self.random.below(5))
            }
        }
    }

    /// A number that is mostly page-aligned.
    fn range(&mut self) -> u64 {
        let at = self.random.below(6) * PAGE_SIZE;
        match self.random.below(8) {
            0 => self.wild(),
            1 => self.wild() & !(PAGE_SIZE - 1),
            2 => at,
            3 => HOLE + at,
            4 => JAIL + at,
            5 => 0x40_0000 + at,
            6 => KEPT + at,
            _ => self.random.below(4) << 30,
        }
    }

    /// Writes a random state of this type at the address, if that is in the page for states.
    fn write_state(&mut self, ty: Type, at: u64) {
        if !(STATES..STATES + 2048).contains(&at) || !at.is_multiple_of(8) {
            return;
        }
        let words: Vec<u64> = match ty {
            Type::Mutex => [self.random.below(3)].into(),
            Type::Cond | Type::Portset => [].into(),
            Type::Mapping => {
                let size = self.random.one_of(&[0, 1, 1, 2, 3, 16]) * PAGE_SIZE;
                let size = if self.random.below(10) == 0 {
                    self.range()
                } else {
                    size
                };
                [
                    self.range(),
                    size,
                    self.range() % (1 << 20),
                    self.random.below(17),
                ]
                .into()
            }
            Type::Region => [self.range(), self.range(), self.random.below(17)].into(),
            Type::Port => [self.random.below(1000), self.random.below(3)].into(),
            Type::Space => {
                let quota = match self.random.below(4) {
                    0 => self.wild(),
                    _ => self.random.below(0x3_0000),
                };
                let flags = u64::from(self.random.below(6) == 0);
                let clock = if self.random.below(3) == 0 {
                    self.wild()
                } else {
                    0
                };
                [flags, quota, 0, clock].into()
            }
            Type::Thread => {
                let mut words = Vec::new();
                for _ in 0..abi::REGISTER_WORDS {
                    words.push(self.anything());
                }
                words[ROLES.call as usize] = self.random.below(SYSCALLS.len() as u64 + 3);
                let behind = CALL + ROLES.call_bytes;
                let pc = self.random.one_of(&[CALL, CALL, behind, behind, 0]);
                words[PC_WORD] = if pc == 0 { self.wild() } else { pc };
                words[FLAGS_WORD] = self.random.next();
                for &base in ROLES.bases {
                    words[base as usize] = 0;
                }
                words.extend([
                    self.random.next(),
                    self.random.below(33),
                    1 + self.random.below(8) / 7,
                    self.random.below(2),
                    self.random.below(9),
                    self.random.below(9),
                    self.random.below(8) / 7,
                    self.random.below(40),
                ]);
                words.extend([self.anything(), 0, 0, 0]);
                // Mostly without a connection, because states with one are mostly refused.
                if self.random.below(2) == 0 {
                    words[CLIENT_WORD] = 0;
                    words[SERVER_WORD] = 0;
                }
                words
            }
            Type::Reference => [self.random.below(14)].into(),
        };
        let mine = self.mine(at);
        self.w.words(mine, &words);
    }

    /// Writes a random scatter list at the address, if that is in the page for states.
    fn write_list(&mut self, at: u64) {
        if !(STATES..STATES + 2048).contains(&at) || !at.is_multiple_of(8) {
            return;
        }
        for n in 0..3 {
            let (address, length) = (self.buffer(), self.number());
            let mine = self.mine(at);
            self.w.words(mine + n * 16, &[address, length]);
        }
    }

    fn type_of(name: &str) -> Option<Type> {
        abi::TYPES
            .into_iter()
            .find(|ty| name.starts_with(ty.name()))
    }

    /// A call that goes on with the exchange that the thread has begun, if it has begun any.
    fn fitting(&mut self, t: &Thread) -> Option<Call> {
        let (ours, side) = match (t.client().stage.get(), t.server().stage.get()) {
            (Stage::None, Stage::None) => return None,
            (Stage::None, s) => (s, Plan::SERVER),
            (c, Stage::None) => (c, Plan::CLIENT),
            (c, _) if self.random.below(2) == 0 => (c, Plan::CLIENT),
            (_, s) => (s, Plan::SERVER),
        };
        let first: &[Plan] = match ours {
            Stage::None => return None,
            Stage::Sending => &[Plan::SEND, Plan::SEND, Plan::OVER, Plan::WAIT],
            Stage::Receiving | Stage::Over | Stage::Finished => &[Plan::RECEIVE],
            Stage::Ack => &[Plan::ACK],
            Stage::Call | Stage::Fault | Stage::Exception => &[Plan::REPLY],
        };
        let first = self.random.one_of(first);
        let fits = |call: Call| plan(call).has(side) && plan(call).first() == Some(first);
        let all: Vec<Call> = SYSCALLS
            .iter()
            .map(|r| r.call)
            .filter(|&c| fits(c))
            .collect();
        (!all.is_empty()).then(|| self.random.one_of(&all))
    }

    /// Fills the registers of the thread for a random call.
    fn prepare(&mut self, t: &Thread) {
        let c = &t.ctx;
        let fitting = if self.random.below(3) > 0 {
            self.fitting(t)
        } else {
            None
        };
        let call = loop {
            if let Some(call) = fitting {
                break call;
            }
            if self.random.below(4) == 0 {
                // Some thread must begin an exchange.
                let begin = [
                    Call::ClientConnect,
                    Call::ClientConnectSend,
                    Call::ClientConnectSendOverReceive,
                    Call::ClientConnectSendOverReceiveShort,
                    Call::Call,
                    Call::CallShort,
                    Call::ServerWaitReceive,
                    Call::ServerWaitReceiveShort,
                    Call::ServerWaitReceiveUntil,
                    Call::ServerWait,
                ];
                break self.random.one_of(&begin);
            }
            let row = &SYSCALLS[self.random.below(SYSCALLS.len() as u64) as usize];
            // Objects are destroyed less often than they are made.
            let rare = row.name.ends_with("destroy") || row.call == Call::ThreadStop;
            if !rare || self.random.below(6) == 0 {
                break row.call;
            }
        };
        let name = call.name();
        let junk = self.random.below(10) == 0;
        for register in [A0, A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11] {
            let value = self.anything();
            register(c).set(value);
        }
        let mut number = call as u64;
        if plan(call).is_ipc() {
            if !junk {
                let (one, other) = (
                    slot(20 + self.random.below(24)),
                    slot(11 + self.random.below(2)),
                );
                let server = name.starts_with("server") || name.starts_with("reply");
                c.parameter(0).set(if server { other } else { one });
                if self.random.below(4) != 0 {
                    c.parameter(0).set(if server {
                        other
                    } else {
                        slot(22 + self.random.below(2))
                    });
                }
                for (address, length, list, left, refs) in
                    [(A1, A2, A3, A4, A5), (A6, A7, A8, A9, A10)]
                {
                    let at = self.buffer();
                    address(c).set(at);
                    length(c).set(self.number() % 10_000);
                    let at = self.buffer();
                    self.write_list(at);
                    list(c).set(at);
                    left(c).set(self.random.below(3));
                    if self.random.below(12) == 0 {
                        // Entries of zeros, as many as the pages have, or more than there can be.
                        list(c).set(ZEROS + self.random.below(4) * 16);
                        let most = [
                            abi::MAX_ENTRIES,
                            1024,
                            4096,
                            u64::from(u32::MAX),
                            u64::MAX >> 4,
                        ];
                        left(c).set(self.random.one_of(&most));
                    }
                    let list = slot(20 + self.random.below(30));
                    let count = self.random.below(6) / 4;
                    refs(c).set(abi::ref_list(list, count));
                }
                if t.server().stage.get() == Stage::Exception && call.name().starts_with("reply") {
                    let at = STATES + self.random.below(16) * 64;
                    self.write_state(Type::Thread, at);
                    c.parameter(1).set(at);
                    c.parameter(2).set(abi::state::REGISTER_WORDS as u64 * 8);
                    c.parameter(4).set(0);
                    c.parameter(5).set(0);
                }
                let soon = hal::now().wrapping_add(self.random.below(100_000));
                c.parameter(11).set(soon);
            }
            number |= self.random.below(80) << 8;
            if plan(call).has(Plan::SHORT) && !junk {
                let list = slot(20 + self.random.below(30));
                c.parameter(9)
                    .set(abi::ref_list(list, self.random.below(8) / 6));
            }
        } else if !junk {
            let object = match Self::type_of(name) {
                _ if name.ends_with("create") => slot(44 + self.random.below(12)),
                Some(Type::Space) => slot(self.random.below(2)),
                Some(Type::Thread) if name.ends_with("interrupt") => {
                    slot(20 + self.random.below(20))
                }
                Some(Type::Thread) => slot(2 + self.random.below(6)),
                Some(Type::Mutex) => slot(8 + self.random.below(2)),
                Some(Type::Cond) => slot(10),
                Some(Type::Portset) => slot(11 + self.random.below(2)),
                Some(Type::Port) => slot(13 + self.random.below(2)),
                Some(Type::Region) if name.ends_with("search") => {
                    slot(self.random.one_of(&[26, 35]))
                }
                Some(Type::Region) => slot(15),
                Some(Type::Mapping) => slot(16),
                _ => slot(20 + self.random.below(24)),
            };
            let object = if self.random.below(4) == 0 {
                self.handle()
            } else {
                object
            };
            c.parameter(0).set(object);
            if name.starts_with("device") {
                c.parameter(0).set(slot(36));
                let thread = call == Call::DeviceAttachInterrupt;
                let other = if thread {
                    27 + self.random.below(6)
                } else {
                    24 + self.random.below(2)
                };
                let other = if call == Call::DeviceMapPhysical {
                    15
                } else {
                    other
                };
                c.parameter(1).set(slot(other));
                let (one, two) = (self.number(), self.number());
                c.parameter(2).set(if thread { one % 20 } else { one });
                c.parameter(3).set(two);
                if call == Call::DeviceDetachInterrupt {
                    // The manager keeps its line; without the line it could not be interrupted.
                    let line = one % 20;
                    let managers = u64::from(super::world::LINE);
                    c.parameter(1).set(if line == managers { 0 } else { line });
                }
            }
            if call == Call::RegionSearch {
                let (from, to) = (self.number(), self.number());
                c.parameter(1).set(from);
                c.parameter(2).set(to.max(1 << 20));
                c.parameter(3).set(self.random.next() & 0x3ff);
            }
            if name.ends_with("_state") {
                let at = STATES + self.random.below(16) * 64;
                c.parameter(1).set(at);
                if let Some(ty) = Self::type_of(name) {
                    if name.ends_with("set_state") {
                        self.write_state(ty, at);
                    }
                }
                for register in [A2, A3, A4] {
                    let r = self.random.below(32);
                    register(c).set(if r < 8 { 0 } else { slot(20 + r - 8) });
                }
            } else if name.ends_with("create") || name.ends_with("destroy") {
                let r = self.random.below(24);
                c.parameter(1).set(if r < 8 { 0 } else { slot(20 + r) });
            } else if name.starts_with("cond_wait") {
                c.parameter(1).set(slot(8 + self.random.below(2)));
            }
        }
        c.call().set(number);
        c.pc().set(CALL);
        c.set_full(false);
        if self.trace {
            println!("  {name} {:x?}", c.registers());
        }
    }

    /// Makes the running thread take a random step.
    fn step(&mut self) -> Met {
        let t = self.w.current.get();
        if t.run.get() != Run::Running {
            return Met::Idle;
        }
        hal::host::set_now(hal::now().saturating_add(1 + self.random.below(2000)));
        if self.random.below(200) == 0 {
            hal::host::set_now(hal::now().saturating_add(self.random.below(20_000_000)));
        }
        if self.random.below(100) == 0 {
            hal::host::raise(self.random.below(6) as u8);
        }
        if let Some(trap) = hal::host::take_interrupt() {
            self.w.trap(trap);
            return Met::Step(true);
        }
        if core::ptr::eq(t, self.w.manager) {
            return Met::Manager;
        }
        if self.trace {
            println!("thread {:?} at {:x}", t.head().id(), t.ctx.pc().get());
        }
        if t.ctx.pc().get() == CALL {
            // Its call begins again: with other registers after an exception or a set state.
            t.ctx.set_full(false);
            self.w.trap(Trap::Syscall);
            return Met::Step(true);
        }
        match self.random.below(30) {
            0 => {
                let address = self.buffer() & ((1 << 47) - 1);
                let (write, execute) = (self.random.below(2) == 0, self.random.below(4) == 0);
                t.ctx.set_full(true);
                self.w.trap(Trap::PageFault {
                    address,
                    write,
                    execute,
                    present: false,
                });
            }
            1 => {
                t.ctx.set_full(true);
                let vector = self.random.below(32) as u8;
                self.w.trap(Trap::Exception {
                    vector,
                    error: self.random.0,
                });
            }
            _ => {
                self.prepare(t);
                self.w.trap(Trap::Syscall);
            }
        }
        Met::Step(true)
    }

    /// Makes the manager set a thread to a state in which it can run again.
    fn revive(&mut self) {
        self.w.call_manager();
        let w = &self.w;
        let (n, s) = (2 + self.random.below(6), 24 + self.random.below(2));
        let thread = self.mine(slot(n));
        let space = self.pages + s * abi::OBJECT_SIZE;
        let t = w.k.threads.iter().find(|t| {
            t.head().phase() == Phase::Active && t.head().bound() == Some(self.place(thread))
        });
        let open = w.k.references.iter().find_map(|r| {
            let h = r.head();
            let here = h.phase() == Phase::Active && h.bound() == Some(self.place(space));
            let named = r.target.get().get::<crate::object::space::Space>();
            named.filter(|s| here && s.head().phase() == Phase::Active)
        });
        let Some((t, open)) = t.zip(open) else {
            return;
        };
        if t.stop_count.get() == 0 {
            w.ok(Call::ThreadStop, &[thread]);
        }
        let at = self.mine(STATES + 2048);
        let mut words = [0; abi::state::THREAD_WORDS];
        words[PC_WORD] = CALL + ROLES.call_bytes;
        // The threads may have lowered their own ceiling.
        words[PRIORITY_WORD] = open.max_priority.get().min(5).into();
        words[STOPS_WORD] = 1;
        w.words(at, &words);
        w.ok(Call::ThreadSetState, &[thread, at, space, 0, 0]);
        w.ok(Call::ThreadResume, &[thread]);
    }

    fn place(&self, address: u64) -> (hal::Pfn, u64) {
        let pfn = hal::Pfn((self.w.physical(address) / PAGE_SIZE) as u32);
        (pfn, address % PAGE_SIZE)
    }

    /// Makes the manager destroy all objects in the shared pages.
    fn destroy_all(&mut self) {
        fn of<T: Object>(
            table: &'static crate::object::Table<T>,
            inside: impl Fn((hal::Pfn, u64)) -> Option<u64>,
        ) -> Vec<u64> {
            let bodies = table
                .iter()
                .filter(|o| matches!(o.head().phase(), Phase::Active | Phase::Fresh));
            bodies.filter_map(|o| inside(o.head().bound()?)).collect()
        }
        self.w.call_manager();
        let pages = self.pages;
        let first = self.place(pages).0 .0;
        let inside = |(pfn, offset): (hal::Pfn, u64)| {
            let page = u64::from(pfn.0.wrapping_sub(first));
            (page < JAIL_PAGES).then_some(pages + page * PAGE_SIZE + offset)
        };
        let k = self.w.k;
        let w = &self.w;
        let destroy = |call: Call, handles: Vec<u64>| {
            for handle in handles {
                w.ok(call, &[handle, 0]);
            }
        };
        // In a different order each time.
        let first = self.random.below(9);
        for n in 0..9 {
            match (first + n) % 9 {
                0 => destroy(Call::ReferenceDestroy, of(&k.references, inside)),
                1 => destroy(Call::ThreadDestroy, of(&k.threads, inside)),
                2 => destroy(Call::SpaceDestroy, of(&k.spaces, inside)),
                3 => destroy(Call::MappingDestroy, of(&k.mappings, inside)),
                4 => destroy(Call::RegionDestroy, of(&k.regions, inside)),
                5 => destroy(Call::PortDestroy, of(&k.ports, inside)),
                6 => destroy(Call::PortsetDestroy, of(&k.portsets, inside)),
                7 => destroy(Call::MutexDestroy, of(&k.mutexes, inside)),
                _ => destroy(Call::CondDestroy, of(&k.conds, inside)),
            }
        }
    }
}

type Returned = BTreeMap<(u8, u8), u64>;

fn round(
    seed: u64,
    steps: u32,
    trace: bool,
    returned: &mut Returned,
    longest: &mut BTreeMap<u8, u64>,
) {
    let report = Report(seed);
    let mut r = Round::new(seed, trace);
    // The number of threads that the manager made for itself.
    let outside = {
        let inside = r.w.k.threads.counts().0;
        inside - 6
    };
    match r.random.below(6) {
        0 => hal::host::set_table_limit(hal::host::tables_used() + r.random.below(12) as u32),
        1 => hal::host::fail_allocations_after(r.random.below(4)),
        _ => {}
    }
    r.w.release();
    for n in 0..steps {
        if r.step() == Met::Idle || n % 97 == 96 {
            r.revive();
            r.w.release();
        }
    }
    hal::host::fail_allocations_after(u64::MAX);
    hal::host::set_table_limit(u32::MAX);
    for (call, cost) in (0..=u8::MAX).zip(&r.w.longest) {
        let most = longest.entry(call).or_insert(0);
        *most = cost.get().max(*most);
    }
    // The manager's calls may take more accesses.
    r.w.bound.set(|_| u64::MAX);
    r.destroy_all();
    let left = r.w.k.census();
    // What belongs to the manager: mappings of its first space and two of each of the other spaces, a region of
    // the pages and the root region, its space, itself, three references and its own.
    assert_eq!(
        (left[0], left[1], left[4], left[5]),
        (0, 0, 0, 0),
        "left over: {left:?}"
    );
    assert_eq!((left[6], left[7]), (1, outside), "left over: {left:?}");
    assert_eq!(
        (left[2], left[3], left[8]),
        (6, 2, 4),
        "left over: {left:?}"
    );
    for (result, n) in r.w.returned.borrow().iter() {
        *returned.entry(*result).or_insert(0) += n;
    }
    drop(report);
}

/// No call returns a code that its row in the table does not list.
fn known(returned: &Returned) {
    let mut unknown = Vec::new();
    for (&(number, code), n) in returned {
        let (call, code) = (Call::from_number(number), Code::from_word(u64::from(code)));
        if !call.is_some_and(|c| c.row().codes.contains(&code)) {
            unknown.push(format!("{} {code:?} ({n})", call.map_or("?", Call::name)));
        }
    }
    assert!(unknown.is_empty(), "not in the table: {unknown:#?}");
}

#[test]
fn hostile_callers() {
    let (mut returned, mut longest) = (Returned::new(), BTreeMap::new());
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse().ok());
    if let Some(seed) = number("FERMATA_SEED") {
        return round(seed, 3000, true, &mut returned, &mut longest);
    }
    for seed in 0..number("FERMATA_ROUNDS").unwrap_or(40) {
        round(seed, 1000, false, &mut returned, &mut longest);
    }
    let reached: std::collections::BTreeSet<u8> = returned.keys().map(|r| r.0).collect();
    println!(
        "{} of {} calls, {} results",
        reached.len(),
        SYSCALLS.len(),
        returned.len()
    );
    for (call, cost) in longest.iter().filter(|(_, cost)| **cost > 0) {
        let name = Call::from_number(*call).map_or("a fault or interrupt", Call::name);
        println!("{name}: at most {cost} accesses");
    }
    for row in SYSCALLS {
        let missing: Vec<_> = row
            .codes
            .iter()
            .filter(|&&c| !returned.contains_key(&(row.number, c as u8)))
            .collect();
        if !missing.is_empty() {
            println!("{}: not met {missing:?}", row.name);
        }
    }
    known(&returned);
}
