//! Random programs for the kernel beside its specification.
//!
//! [`Generator`] writes a program while the program runs, so that a call mostly fits what its thread has begun and its
//! handles mostly name existing objects. Programs that fail are [shortened](shorten) to the lines that matter and
//! printed. The test must reach every result of every row of the table of calls, except those that [`UNREACHED`] lists
//! with reasons; [`fuzz`] runs for any time and keeps the programs that reached something new, to change them further.
//!
//! `FERMATA_SEED=n` replays one sequence, `FERMATA_PROGRAM=file` a program.

use super::hostile::Random;
use super::sequence::*;
use super::world::{
    BASE_WORD, CLIENT_WORD, DELIVERED_WORD, FLAGS_WORD, INTERRUPT_WORD, PC_WORD, PRIORITY_WORD,
    SERVER_WORD,
};
use crate::probe::points;
use abi::ipc::{plan, Plan};
use abi::state::Stage;
use abi::syscalls::{Param, Syscall};
use abi::{access, Call, Common, RefKind, Type, PAGE_SIZE, ROLES, SYSCALLS, TYPES};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use spec::object::Body;
use spec::Id;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::format;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::println;
use std::string::{String, ToString};
use std::sync::Mutex;
use std::vec;
use std::vec::Vec;

/// The address at which states are written and read.
const STATES: u64 = DATA;
/// The address at which the states of objects that are cut are kept.
const CUT: u64 = DATA + PAGE_SIZE;
/// The address of messages to send, and of scatter lists.
const SEND: u64 = DATA + 2 * PAGE_SIZE;
const LISTS: u64 = SEND + 0x800;
/// The address at which messages are received.
const RECEIVE: u64 = DATA + 3 * PAGE_SIZE;
/// An address that no mapping covers.
const NOWHERE: u64 = 0x5000;

/// Writes programs.
struct Generator {
    random: Random,
    /// The next lines of a longer sequence that has begun.
    agenda: VecDeque<Op>,
}

fn register(name: &str) -> usize {
    let n = REGISTERS.iter().position(|r| r.0 == name);
    n.unwrap_or_else(|| panic!("no register {name}"))
}

/// A call under construction.
struct Draft {
    call: Call,
    count: u64,
    registers: Vec<(usize, Value)>,
    store: Vec<(u64, Vec<u64>)>,
}

impl Draft {
    fn new(call: Call) -> Draft {
        Draft {
            call,
            count: 0,
            registers: Vec::new(),
            store: Vec::new(),
        }
    }
    fn set(&mut self, name: &str, value: u64) {
        self.value(name, Value::Is(value));
    }
    fn value(&mut self, name: &str, value: Value) {
        let n = register(name);
        self.registers.retain(|r| r.0 != n);
        self.registers.push((n, value));
    }
    fn by(self, who: usize) -> Op {
        let Draft {
            call,
            count,
            registers,
            store,
        } = self;
        Op::Call {
            who,
            call: call as u8,
            count,
            registers,
            store,
        }
    }
}

impl Generator {
    fn new(seed: u64) -> Generator {
        Generator {
            random: Random::new(seed),
            agenda: VecDeque::new(),
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    /// The next line.
    fn next(&mut self, play: &Play<'_>) -> Op {
        if self.chance(60) {
            if let Some(op) = self.agenda.pop_front() {
                return op;
            }
        }
        let able: Vec<usize> = (0..play.threads.len())
            .filter(|&n| play.can_have_a_turn(play.threads[n]))
            .collect();
        let kind = self.random.below(100);
        if able.is_empty() || kind < 3 {
            return match self.random.below(8) {
                0 => Op::Line(self.random.below(4) as u8),
                1 if points::are_on() => Op::Points(0),
                1 | 2 => Op::Points(1 + self.random.below(3)),
                _ => Op::Tick(self.random.below(4) * TURN + 1),
            };
        }
        let mut who = self.random.one_of(&able);
        let busy = |n: &usize| {
            let t = play.lock.spec.thread(play.threads[*n]);
            t.client.stage != Stage::None || t.server.stage != Stage::None
        };
        if kind >= 20 && !busy(&who) {
            // A thread that has begun an exchange mostly goes on with it.
            who = able.iter().copied().find(busy).unwrap_or(who);
        }
        match kind {
            3 => Op::Line(self.random.below(4) as u8),
            4 => Op::Short(if play.lock.short {
                u64::MAX
            } else {
                self.random.below(3)
            }),
            5..=8 => Op::Touch {
                who,
                address: self.buffer(true),
                access: self
                    .random
                    .one_of(&[access::READ, access::WRITE, access::EXECUTE]),
            },
            9 => Op::Bad {
                who,
                vector: self.random.one_of(&[0, 1, 3, 6, 13, 14, 16, 19, 29]),
            },
            10..=15 => self.cut(play, who),
            16..=18 => self.supply(play, who),
            19 => self.poverty(who),
            20..=59 => match self.fitting(play, who) {
                Some(call) => self.ipc(play, who, call),
                None => self.begin(play, who),
            },
            _ => {
                let row = &SYSCALLS[self.random.below(SYSCALLS.len() as u64) as usize];
                let rare = row.name.ends_with("_destroy") || row.call == Call::ThreadStop;
                if rare && self.chance(50) {
                    return self.begin(play, who);
                }
                if plan(row.call).is_ipc() {
                    self.ipc(play, who, row.call)
                } else if self.chance(1) {
                    Op::Call {
                        who,
                        call: 0,
                        count: 0,
                        registers: Vec::new(),
                        store: Vec::new(),
                    }
                } else {
                    self.ordinary(play, who, row)
                }
            }
        }
    }

    // ---- values ----------------------------------------------------------------------------------

    fn handle(&mut self, play: &Play<'_>, ty: Type) -> u64 {
        let slot = OBJECTS + self.random_slot();
        match self.random.below(40) {
            0 => self
                .random
                .one_of(&[slot + 8, NOWHERE, KEPT, DATA, CONST, HOLE, 0, 1 << 63]),
            1 => slot,
            _ => {
                let all = play.handles(ty);
                if all.is_empty() {
                    return slot;
                }
                self.random.one_of(&all).0
            }
        }
    }

    fn random_slot(&mut self) -> u64 {
        self.random.below(SLOTS.len() as u64 + 2) * abi::OBJECT_SIZE
    }

    /// A reference to an object of one of these kinds.
    fn reference(&mut self, play: &Play<'_>, kinds: &[RefKind]) -> u64 {
        let all: Vec<(u64, Id)> = play.handles(Type::Reference);
        let fitting: Vec<u64> = all
            .iter()
            .filter(|&&(_, id)| kinds.contains(&play.lock.spec.reference(id).target.kind))
            .map(|r| r.0)
            .collect();
        if fitting.is_empty() || self.chance(6) {
            return self.handle(play, Type::Reference);
        }
        self.random.one_of(&fitting)
    }

    /// A reference object that may be overwritten: mostly one that names nothing.
    fn place(&mut self, play: &Play<'_>) -> u64 {
        match self.random.below(5) {
            0 => 0,
            1 => self.handle(play, Type::Reference),
            _ => self.reference(play, &[RefKind::Null]),
        }
    }

    fn fresh(&mut self, play: &Play<'_>) -> u64 {
        let free = play.free_slots();
        match self.random.below(20) {
            0 => self
                .random
                .one_of(&[DATA, NOWHERE, OBJECTS + 8, KEPT + 16, 1 << 47]),
            1 => OBJECTS + self.random_slot(),
            _ if free.is_empty() => OBJECTS + self.random_slot(),
            _ => self.random.one_of(&free),
        }
    }

    fn buffer(&mut self, from: bool) -> u64 {
        let at = if from { SEND } else { RECEIVE };
        match self.random.below(16) {
            0 => KEPT + self.random.below(2 * PAGE_SIZE),
            1 => at + PAGE_SIZE - self.random.below(64),
            2 => CONST + self.random.below(256),
            3 => self
                .random
                .one_of(&[NOWHERE, 0, abi::USER_END - 8, u64::MAX - 4, HOLE + 16]),
            _ => at + self.random.below(1024),
        }
    }

    fn state_at(&mut self) -> u64 {
        match self.random.below(16) {
            0 => KEPT + self.random.below(8) * 8,
            1 => self
                .random
                .one_of(&[CONST, NOWHERE, DATA + 4, abi::USER_END, KEPT - 8]),
            _ => STATES + self.random.below(32) * 8,
        }
    }

    fn deadline(&mut self) -> Value {
        match self.random.below(10) {
            0 => Value::Is(0),
            1 => Value::Is(u64::MAX),
            2 => Value::Soon(-(self.random.below(1 << 30) as i64)),
            _ => Value::Soon(self.random.below(6 * TURN) as i64),
        }
    }

    fn rights(&mut self) -> u64 {
        self.random.one_of(&[0, 1, 3, 7, 15, 15, 16, 8, 9])
    }

    /// Segment, list and references, in these registers.
    fn message(&mut self, d: &mut Draft, from: bool) {
        let names = match from {
            true => ["a1", "a2", "a3", "a4", "a5"],
            false => ["a6", "a7", "a8", "a9", "a10"],
        };
        let length = match self.random.below(12) {
            0 => 0,
            1 => PAGE_SIZE + self.random.below(PAGE_SIZE),
            2 => self.random.below(8),
            3 => 129 * 1024,
            4 | 5 => 192,
            _ => 8 * self.random.below(40),
        };
        let at = self.buffer(from);
        d.set(names[0], at);
        d.set(names[1], if self.chance(8) { 160 } else { length });
        let (mut list, mut left) = (0, 0);
        if self.chance(20) {
            list = LISTS + self.random.below(16) * 32 + if from { 0 } else { 512 };
            left = 1 + self.random.below(3);
            let mut words = Vec::new();
            for _ in 0..left {
                words.extend([self.buffer(from), self.random.one_of(&[0, 5, 8, 40, 100])]);
            }
            if self.chance(5) {
                (list, left) = (list + 4, left);
            } else if self.chance(3) {
                // Nothing but empty segments.
                (list, left) = (DATA, 1 << 20);
            }
            d.store.push((list & !7, words));
        }
        d.set(names[2], list);
        d.set(names[3], left);
        let refs = self.references();
        d.set(names[4], refs);
    }

    fn references(&mut self) -> u64 {
        if self.chance(70) {
            return 0;
        }
        let from = self
            .random
            .one_of(&["r_q0", "r_p0", "r_ta", "n0", "n1", "r_all", "n2"]);
        match self.random.below(20) {
            0 => abi::ref_list(OBJECTS, 2),
            1 => abi::ref_list(0, 1),
            _ => abi::ref_list(slot(from), 1 + self.random.below(3)),
        }
    }

    // ---- ipc -------------------------------------------------------------------------------------

    /// A call that goes on with the exchange that the thread has begun, if it has begun any.
    fn fitting(&mut self, play: &Play<'_>, who: usize) -> Option<Call> {
        let t = play.lock.spec.thread(play.threads[who]);
        let (stage, side) = match (t.client.stage, t.server.stage) {
            (Stage::None, Stage::None) => return None,
            (Stage::None, s) => (s, Plan::SERVER),
            (c, Stage::None) => (c, Plan::CLIENT),
            (c, _) if self.random.below(2) == 0 => (c, Plan::CLIENT),
            (_, s) => (s, Plan::SERVER),
        };
        let first: &[Plan] = match stage {
            Stage::None => return None,
            Stage::Sending => &[
                Plan::SEND,
                Plan::SEND,
                Plan::OVER,
                Plan::WAIT,
                Plan::DISCONNECT,
            ],
            Stage::Receiving | Stage::Over | Stage::Finished => &[
                Plan::RECEIVE,
                Plan::RECEIVE,
                Plan::RECEIVE,
                Plan::DISCONNECT,
                Plan::WAIT,
            ],
            Stage::Ack => &[Plan::ACK],
            Stage::Call | Stage::Fault | Stage::Exception => &[Plan::REPLY],
        };
        if stage == Stage::Exception && self.chance(10) {
            return Some(Call::ServerRelease);
        }
        let first = self.random.one_of(first);
        let fits = |call: Call| plan(call).has(side) && plan(call).first() == Some(first);
        let all: Vec<Call> = SYSCALLS
            .iter()
            .map(|r| r.call)
            .filter(|&c| fits(c))
            .collect();
        (!all.is_empty()).then(|| self.random.one_of(&all))
    }

    /// The beginning of an exchange with which other threads can go on.
    fn begin(&mut self, play: &Play<'_>, who: usize) -> Op {
        let server = [
            Call::ServerWaitReceive,
            Call::ServerWaitReceive,
            Call::ServerWaitReceiveShort,
            Call::ServerWaitReceiveUntil,
            Call::ServerWaitReceiveShortUntil,
            Call::ServerWait,
        ];
        let client = [
            Call::ClientConnect,
            Call::ClientConnectSend,
            Call::ClientConnectSendOver,
            Call::ClientConnectSendOverReceive,
            Call::ClientConnectSendOverReceiveShort,
            Call::Call,
            Call::CallShort,
        ];
        let other = [
            Call::MutexLock,
            Call::CondWait,
            Call::MutexUnlock,
            Call::CondSignal,
        ];
        let call = match self.random.below(5) {
            0 | 1 => self.random.one_of(&server),
            2 | 3 => self.random.one_of(&client),
            _ => {
                let row = self.random.one_of(&other).row();
                return self.ordinary(play, who, row);
            }
        };
        self.ipc(play, who, call)
    }

    fn ipc(&mut self, play: &Play<'_>, who: usize, call: Call) -> Op {
        let stages = plan(call);
        let mut d = Draft::new(call);
        if stages.has(Plan::CONNECT) || stages.has(Plan::CALL) {
            let port = self.reference(play, &[RefKind::Port]);
            d.set("a0", port);
        } else if stages.has(Plan::WAIT) {
            let set = self.handle(play, Type::Portset);
            d.set("a0", set);
        }
        if stages.has(Plan::SHORT) {
            d.count = self
                .random
                .one_of(&[0, 0, 8, 8, 16, 24, 32, 40, 48, 56, 64, 5, 61, 255]);
            for name in ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"] {
                let word = self.random.below(1 << 20);
                d.set(name, word);
            }
            let refs = (self.references(), self.references());
            d.set("a9", refs.0);
            d.set("a10", refs.1);
        } else {
            if stages.has(Plan::SEND) || stages.has(Plan::REPLY) || stages.has(Plan::CALL) {
                self.message(&mut d, true);
            }
            if stages.has(Plan::RECEIVE) || stages.has(Plan::CALL) {
                self.message(&mut d, false);
            }
        }
        if stages.has(Plan::REPLY) && !stages.has(Plan::SHORT) {
            self.answer(play, who, &mut d);
        }
        if stages.has(Plan::UNTIL) {
            let deadline = self.deadline();
            d.value("a11", deadline);
        }
        d.by(who)
    }

    /// The reply to an exception: registers with which the thread can go on.
    fn answer(&mut self, play: &Play<'_>, who: usize, d: &mut Draft) {
        let end = play.lock.spec.thread(play.threads[who]).server;
        let peer = end.peer.and_then(|p| play.lock.spec.objects.get(&p));
        if end.stage != Stage::Exception || self.chance(10) {
            return;
        }
        let Some(Body::Thread(t)) = peer.map(|o| &o.body) else {
            return;
        };
        let pc = self.random.one_of(&[
            CALL + ROLES.call_bytes,
            CALL + ROLES.call_bytes,
            CALL,
            1 << 50,
        ]);
        let registers = t.registers();
        let words = if self.chance(50) {
            [pc, registers.sp(), registers.flags(), registers.call()].to_vec()
        } else {
            let mut words = registers.to_words();
            words[PC_WORD] = pc;
            words.to_vec()
        };
        d.set("a1", SEND);
        d.set("a2", words.len() as u64 * 8);
        d.store.push((SEND, words));
        d.set("a3", 0);
        d.set("a4", 0);
        d.set("a5", 0);
    }

    // ---- everything else -------------------------------------------------------------------------

    /// Lines that take an object apart and make it again.
    fn cut(&mut self, play: &Play<'_>, who: usize) -> Op {
        let ty = match self.random.below(3) {
            0 => self.random.one_of(&TYPES),
            _ => Type::Thread,
        };
        let all = play.handles(ty);
        if all.is_empty() || !self.agenda.is_empty() {
            return self.begin(play, who);
        }
        let (handle, id) = self.random.one_of(&all);
        if play.is_vacant(id) || id == play.threads[who] {
            return self.begin(play, who);
        }
        let draft = |call: Call, values: &[u64]| {
            let mut d = Draft::new(call);
            for (name, value) in ["a0", "a1", "a2", "a3", "a4"].iter().zip(values) {
                d.set(name, *value);
            }
            d.by(who)
        };
        let [a, b, c, kept] = ["n0", "n1", "n2", "n3"].map(slot);
        let state = CUT + self.random.below(3) * 0x400;
        let mut ops = VecDeque::new();
        if ty == Type::Thread {
            ops.push_back(draft(Call::ThreadStop, &[handle]));
        }
        ops.push_back(draft(Common::GetState.of(ty), &[handle, state, a, b, c]));
        if self.chance(75) {
            let to = if self.chance(80) {
                handle
            } else {
                self.fresh(play)
            };
            ops.push_back(draft(Common::Destroy.of(ty), &[handle, kept]));
            ops.push_back(draft(Common::Create.of(ty), &[to, kept]));
            if to != handle && self.chance(50) {
                ops.push_back(draft(Common::Move.of(ty), &[to, handle]));
                ops.push_back(draft(Common::SetState.of(ty), &[handle, state, a, b, c]));
            } else {
                ops.push_back(draft(Common::SetState.of(ty), &[to, state, a, b, c]));
            }
        } else {
            ops.push_back(draft(Common::SetState.of(ty), &[handle, state, a, b, c]));
        }
        if ty == Type::Thread {
            ops.push_back(draft(Call::ThreadResume, &[handle]));
        }
        let first = ops.pop_front();
        self.agenda = ops;
        first.unwrap_or(Op::Tick(1))
    }

    /// Lines that leave a space no kernel memory and let a thread make an object.
    fn poverty(&mut self, who: usize) -> Op {
        let mut d = Draft::new(Call::SpaceSetState);
        d.store.push((STATES, vec![0, 0, 0, 0, 7]));
        d.set("a0", if who % 4 < 2 { slot("s0") } else { slot("s1") });
        d.set("a1", STATES);
        d.set("a2", slot("r_p0"));
        let ty = self.random.one_of(&TYPES);
        let mut next = Draft::new(Common::Create.of(ty));
        next.set("a0", slot("f0"));
        next.set("a1", 0);
        if self.agenda.is_empty() {
            self.agenda.push_back(next.by(who));
        }
        d.by(who)
    }

    /// A page for a keeper's region.
    fn supply(&mut self, play: &Play<'_>, who: usize) -> Op {
        let mut d = Draft::new(Call::MappingSetState);
        let mapping = if self.chance(80) {
            slot("g0")
        } else {
            self.handle(play, Type::Mapping)
        };
        let space = self.reference(play, &[RefKind::Space]);
        let region = if self.chance(80) {
            slot("r_all")
        } else {
            slot("r_h0")
        };
        let page = self.random.below(KEPT_PAGES);
        let offset = ALL_DATA + self.random.below(DATA_PAGES + 2) * PAGE_SIZE;
        let rights = if self.chance(80) {
            access::ALL
        } else {
            self.rights()
        };
        d.store.push((
            STATES,
            vec![HOLE + page * PAGE_SIZE, PAGE_SIZE, offset, rights],
        ));
        d.set("a0", mapping);
        d.set("a1", STATES);
        d.set("a2", region);
        d.set("a3", space);
        d.by(who)
    }

    fn state_of(&mut self, play: &Play<'_>, ty: Type, handle: u64) -> Vec<u64> {
        match ty {
            Type::Mutex => vec![self.random.below(9) / 4],
            Type::Cond | Type::Portset => Vec::new(),
            Type::Port => {
                let flags = self
                    .random
                    .one_of(&[0, 0, 0, 0, 0, 1, 2, 2, 2, 3, 4, 4, 6, 7, 8]);
                vec![self.random.below(1000), flags]
            }
            Type::Reference => vec![self.random.below(13)],
            Type::Mapping | Type::Region => {
                let page = self.random.below(3) * PAGE_SIZE;
                let start = self.random.one_of(&[
                    HOLE,
                    KEPT,
                    DATA,
                    0x50_0000,
                    0x50_0000,
                    abi::collocated::range(1).0,
                ]) + page;
                let size = self.random.one_of(&[0, 1, 1, 2, 4]) * PAGE_SIZE;
                let offset = self.random.below(5) * PAGE_SIZE;
                let mut words = vec![start, size];
                if ty == Type::Mapping {
                    words.push(offset);
                }
                let rights = self.rights();
                words.push(rights);
                if self.chance(8) {
                    let n = self.random.below(words.len() as u64) as usize;
                    words[n] =
                        self.random
                            .one_of(&[1, u64::MAX, 1 << 47, 0u64.wrapping_sub(PAGE_SIZE)]);
                }
                words
            }
            Type::Space => {
                let clock = match self.random.below(4) {
                    0 => self.random.next(),
                    1 => self.random.below(8 * TURN),
                    _ => 0,
                };
                let quota = self
                    .random
                    .one_of(&[0, 0x200, 0x1000, 0x2000, 0x4000, 1 << 40]);
                let ceiling = self.random.one_of(&[7, 7, 7, 7, 7, 7, 6, 4, 8, 32]);
                vec![self.random.below(12) / 10, quota, 0, clock, ceiling]
            }
            Type::Thread => self.thread_state(play, handle),
        }
    }

    fn thread_state(&mut self, play: &Play<'_>, handle: u64) -> Vec<u64> {
        let of = play
            .handles(Type::Thread)
            .into_iter()
            .find(|t| t.0 == handle);
        let mut words = match of {
            Some((_, id)) => {
                let t = play.lock.spec.thread(id);
                let mut words = t.registers().to_words().to_vec();
                words.extend([
                    t.tag,
                    t.priority,
                    t.stops.max(1),
                    u64::from(t.interrupt),
                    t.client.stage as u64,
                    t.server.stage as u64,
                    u64::from(t.exception_delivered),
                    u64::from(t.exception.0),
                    t.exception.1,
                    0,
                    0,
                    0,
                ]);
                words
            }
            None => vec![0; abi::state::THREAD_WORDS],
        };
        if words[PC_WORD] != CALL {
            words[PC_WORD] = CALL + ROLES.call_bytes;
        }
        for _ in 0..self.random.below(3) {
            let wrong = self.chance(10);
            match self.random.below(9) {
                0 => words[PC_WORD] = self.random.one_of(&[CALL, 1 << 47, 0x9000]),
                1 => words[ROLES.call as usize] = self.random.below(141),
                2 => words[FLAGS_WORD] = self.random.next(),
                3 => words[BASE_WORD] = self.random.one_of(&[0, 1 << 47, 0x1234]),
                4 => words[PRIORITY_WORD] = 4 + self.random.below(3) + if wrong { 32 } else { 0 },
                5 => words[INTERRUPT_WORD] = self.random.below(2) + u64::from(wrong),
                6 => words[CLIENT_WORD] = self.random.below(9),
                7 => words[SERVER_WORD] = self.random.below(9),
                _ => words[DELIVERED_WORD] = u64::from(wrong),
            }
        }
        words.extend([0; abi::state::FPU_BYTES / 8]);
        words
    }

    fn ordinary(&mut self, play: &Play<'_>, who: usize, row: &Syscall) -> Op {
        const ARGS: [&str; 6] = ["a0", "a1", "a2", "a3", "a4", "a5"];
        let mut d = Draft::new(row.call);
        let mut handle = 0;
        let sets = row.name.ends_with("_set_state");
        let ty = TYPES.into_iter().find(|ty| row.name.starts_with(ty.name()));
        for (n, &(name, param)) in row.params.iter().enumerate() {
            let value = match param {
                Param::Object(Type::Reference) => match name {
                    "port" => self.reference(play, &[RefKind::Port]),
                    "region" => self.reference(play, &[RefKind::Region]),
                    "thread" => self.reference(play, &[RefKind::Thread]),
                    "space" => self.reference(play, &[RefKind::Space]),
                    "authority" => self.reference(play, &[RefKind::Authority]),
                    _ if row.call == Call::ReferenceEqual && n == 1 && self.chance(40) => handle,
                    "reference" if n == 1 => self.reference(play, &[RefKind::Null]),
                    _ => self.handle(play, Type::Reference),
                },
                Param::Object(ty) => self.handle(play, ty),
                Param::OptReference => self.optional(play, row, name, ty),
                Param::Fresh => self.fresh(play),
                Param::State => {
                    let at = self.state_at();
                    if sets {
                        let words = self.state_of(play, ty.unwrap_or(Type::Mutex), handle);
                        d.store.push((at & !7, words));
                    }
                    at
                }
                Param::Registers => {
                    let at = self.state_at();
                    let words = self.thread_state(play, handle);
                    d.store
                        .push((at & !7, words[..abi::REGISTER_WORDS].to_vec()));
                    at
                }
                Param::OptFpu if self.chance(50) => 0,
                Param::OptFpu => self.state_at(),
                Param::Rights => self.rights(),
                Param::Word => self.word(row.call, name),
                Param::Deadline => {
                    let deadline = self.deadline();
                    d.value(ARGS[n], deadline);
                    continue;
                }
                _ => 0,
            };
            if n == 0 {
                handle = value;
            }
            d.set(ARGS[n], value);
        }
        d.by(who)
    }

    fn optional(&mut self, play: &Play<'_>, row: &Syscall, name: &str, ty: Option<Type>) -> u64 {
        if name == "identity" {
            if row.name.ends_with("_destroy") {
                return if self.chance(50) {
                    0
                } else {
                    self.reference(play, &[RefKind::Null])
                };
            }
            let keeping = play.handles(Type::Reference).into_iter().find(|&(_, id)| {
                let r = play.lock.spec.reference(id);
                r.keeps && Some(r.target.kind as u8) == ty.map(|ty| ty as u8)
            });
            return match keeping {
                Some((at, _)) if self.chance(60) => at,
                _ if self.chance(85) => 0,
                _ => match ty.and_then(|ty| RefKind::from_raw(ty as u64)) {
                    Some(kind) if self.chance(60) => self.reference(play, &[kind]),
                    _ => self.handle(play, Type::Reference),
                },
            };
        }
        if row.name.ends_with("_get_state") {
            return self.place(play);
        }
        if self.chance(15) {
            return 0;
        }
        match name {
            "region" => self.reference(play, &[RefKind::Region]),
            "space" | "payer" => self.reference(play, &[RefKind::Space]),
            "keeper" => self.reference(play, &[RefKind::Port]),
            "portset" => self.reference(play, &[RefKind::Portset]),
            "client_end" => self.reference(play, &[RefKind::ServerEnd, RefKind::Null]),
            "server_end" => self.reference(play, &[RefKind::ClientEnd, RefKind::Null]),
            _ => self.handle(play, Type::Reference),
        }
    }

    fn word(&mut self, call: Call, name: &str) -> u64 {
        match (call, name) {
            (Call::ThreadSetPriority, _) => self.random.one_of(&[4, 5, 5, 5, 5, 5, 6, 7, 8, 32]),
            (Call::RegionSearch, "offset") => self.random.below(5) * 0x400,
            (Call::RegionSearch, "end") => self.random.one_of(&[0x400, 0x1000, 0x8000, 1 << 40]),
            (Call::RegionSearch, _) => self.random.below(0x420),
            (Call::DeviceAttachInterrupt, _) => self.random.one_of(&[0, 0, 1, 2, 3, 7, 16]),
            // The manager keeps its line; without the line it could not be interrupted.
            (Call::DeviceDetachInterrupt, _) => self.random.one_of(&[0, 0, 1, 2, 3, 16]),
            // Often I/O ports that were granted before.
            (Call::DeviceGrantPorts | Call::DeviceRevokePorts, "first") => {
                let ranges = if self.chance(50) { 16 } else { 2 };
                self.random.below(ranges) * 0x10 + if self.chance(5) { 0x1_0000 } else { 0 }
            }
            (Call::DeviceGrantPorts, _) => self.random.one_of(&[0, 1, 8, 8, 8, 16, 0x1_0000]),
            (Call::DeviceRevokePorts, _) => self.random.one_of(&[1, 8, 8, 8, 8]),
            (Call::DeviceMapPhysical, "start") => {
                const END: u64 = hal::host::END_FRAME as u64 * PAGE_SIZE;
                self.random.one_of(&[
                    0xfee0_0000,
                    0xfee0_0000,
                    0x1000,
                    0xfee0_0001,
                    END,
                    END - PAGE_SIZE,
                ])
            }
            (Call::DeviceCollocate, _) => self.random.one_of(&[0, 1, 1, 1, 2, 15, 16]),
            (Call::DeviceMapPhysical, _) => self.random.one_of(&[PAGE_SIZE, 2 * PAGE_SIZE, 5, 0]),
            _ => self.random.below(16),
        }
    }
}

// ---- running -------------------------------------------------------------------------------------

/// A failure: the program up to where it failed, and what differed.
struct Failure {
    program: Vec<Op>,
    why: String,
}

/// The message of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()))
        .unwrap_or_else(|| "a panic".into())
}

/// Runs the lines that are given, and then writes and runs further ones.
fn generate(
    scene: &Scene,
    seed: u64,
    given: &[Op],
    lines: usize,
    checked: bool,
) -> Result<(Vec<Op>, Vec<Feature>), Failure> {
    let mut program = Vec::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut generator = Generator::new(seed);
        let mut play = scene.begin();
        scene.check(checked);
        for n in 0..given.len() + lines {
            let op = match given.get(n) {
                Some(op) => op.clone(),
                None => generator.next(&play),
            };
            program.push(op.clone());
            play.perform(&op)?;
        }
        scene.check(false);
        let features = std::mem::take(&mut play.features);
        play.end()?;
        Ok(features)
    }));
    match done {
        Ok(Ok(features)) => Ok((program, features)),
        Ok(Err(why)) => Err(Failure { program, why }),
        Err(panic) => Err(Failure {
            program,
            why: format!("panic: {}", panic_text(&*panic)),
        }),
    }
}

/// Runs a program on a fresh machine. Returns the failure, if any.
pub(super) fn replay(program: &[Op]) -> Option<String> {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let scene = Scene::new();
        scene.check(true);
        run(&scene, program)
    }));
    match done {
        Ok(Ok(_)) => None,
        Ok(Err((n, why))) => Some(format!("after line {n}: {why}")),
        Err(panic) => Some(format!("panic: {}", panic_text(&*panic))),
    }
}

/// Removes the lines of a failing program that are not needed for it to fail.
fn shorten(program: &[Op]) -> Vec<Op> {
    let mut best = program.to_vec();
    let mut size = best.len().div_ceil(2);
    loop {
        let mut start = 0;
        while start < best.len() {
            let mut less = best.clone();
            less.drain(start..(start + size).min(best.len()));
            if replay(&less).is_some() {
                best = less;
            } else {
                start += size;
            }
        }
        if size == 1 {
            break;
        }
        size = size.div_ceil(2);
    }
    for n in 0..best.len() {
        let Op::Call {
            registers, store, ..
        } = &best[n]
        else {
            continue;
        };
        let (registers, store) = (registers.len(), store.len());
        for r in (0..registers).rev() {
            let mut less = best.clone();
            if let Op::Call { registers, .. } = &mut less[n] {
                registers.remove(r);
            }
            if replay(&less).is_some() {
                best = less;
            }
        }
        for s in (0..store).rev() {
            let mut less = best.clone();
            if let Op::Call { store, .. } = &mut less[n] {
                store.remove(s);
            }
            if replay(&less).is_some() {
                best = less;
            }
        }
    }
    best
}

/// Prints a failure.
fn report(failure: &Failure, seed: u64) -> String {
    let Some(_) = replay(&failure.program) else {
        return format!(
            "{}\nThis fails only after others; repeat with FERMATA_SEED={seed}.\n{}",
            failure.why,
            print(&failure.program)
        );
    };
    let short = shorten(&failure.program);
    let why = replay(&short).unwrap_or_else(|| failure.why.clone());
    format!(
        "{why}\nThe program, which FERMATA_PROGRAM=FILE replays (FERMATA_SEED={seed}):\n{}",
        print(&short)
    )
}

/// The number of lines of a sequence.
fn lines(seed: u64) -> usize {
    8 + (seed % 4) as usize * 4
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}

/// The results that no program reaches, with the reasons.
const UNREACHED: &[(&str, &str, &str)] = &[(
    "thread_set_state",
    "NoMemory",
    "a thousand threads of one space, which a test of conformance makes",
)];

/// Programs for results that random programs reach too rarely.
const RARE: &[&str] = &[
    // A server that may send ends the connection and gets the message about a fault.
    "a server_wait_receive a0=q0 a6=data+0x3000 a7=0x100 a8=0 a9=0 a10=0
     b client_connect_send_over a0=r_p0 a1=0 a2=0 a3=0 a4=0 a5=0
     a server_ack
     c touch kept 1
     a server_send_wait_receive a0=q0 a1=0 a2=0 a3=0 a4=0 a5=0 a6=data+0x3000 a7=0x100
     c touch kept 1",
    // And a server that gets a call next.
    "a server_wait_receive a0=q0 a6=data+0x3000 a7=0x100 a8=0 a9=0 a10=0
     b client_connect_send_over a0=r_p0 a1=0 a2=0 a3=0 a4=0 a5=0
     a server_ack
     c call a0=r_p0 a1=0 a2=0 a3=0 a4=0 a5=0 a6=data+0x3000 a7=0x100 a8=0 a9=0 a10=0
     a server_send_wait_receive a0=q0 a1=0 a2=0 a3=0 a4=0 a5=0 a6=data+0x3000 a7=0x100",
    // A reference that is taken apart twice.
    "a reference_destroy a0=n0 a1=n1
     a reference_destroy a0=n0 a1=n2",
];

/// The states of a server, and the calls with which it waits again, while a notice is due for one of its ports.
const UNNAMED: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "server_wait",
            "server_wait_receive",
            "server_wait_receive_until",
            "server_wait_receive_short",
            "server_wait_receive_short_until",
        ],
    ),
    (
        "a server_wait_receive a0=q0 a6=data+0x3000 a7=0x100 a8=0 a9=0 a10=0
         b client_connect_send_over a0=r_p0 a1=0 a2=0 a3=0 a4=0 a5=0",
        &["server_ack_send_wait_receive"],
    ),
    (
        "a server_wait_receive a0=q0 a6=data+0x3000 a7=0x100 a8=0 a9=0 a10=0
         b client_connect_send_over a0=r_p0 a1=0 a2=0 a3=0 a4=0 a5=0
         a server_ack",
        &["server_send_wait_receive", "server_send_wait_receive_short"],
    ),
    (
        "a server_wait_receive_short a0=q0 a9=0 a10=0
         b client_connect_send_over_receive_short a0=r_p0 a9=0 a10=0",
        &["server_ack_send_wait_receive_short"],
    ),
    (
        "a server_wait_receive a0=q0 a6=data+0x3000 a7=0x100 a8=0 a9=0 a10=0
         b call a0=r_p0 a1=0 a2=0 a3=0 a4=0 a5=0 a6=data+0x3000 a7=0x100 a8=0 a9=0 a10=0",
        &["reply_wait_receive", "reply_wait_receive_until"],
    ),
    (
        "a server_wait_receive_short a0=q0 a9=0 a10=0
         b call_short a0=r_p0 a9=0 a10=0",
        &["reply_wait_receive_short", "reply_wait_receive_short_until"],
    ),
];

/// The programs of [`RARE`] and [`UNNAMED`].
fn rare() -> impl Iterator<Item = String> {
    let unnamed = |before: &str, call: &str| {
        format!(
            "{before}
             c port_create a0=f0 a1=0
             store data+0x2000 0x9 0x2
             c port_set_state a0=f0 a1=data+0x2000 a2=r_q0
             a {call} a0=q0 a1=0 a2=0 a3=0 a4=0 a5=0 a6=data+0x3000 a7=0x100 a8=0 a9=0 a10=0 \
             a11=0x7fffffffffffffff"
        )
    };
    let of = move |&(before, calls): &(&'static str, &'static [&'static str])| {
        calls.iter().map(move |call| unnamed(before, call))
    };
    let written = RARE.iter().map(|text| text.to_string());
    written.chain(UNNAMED.iter().flat_map(of))
}

type Reached = BTreeMap<(u8, u8), u64>;

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get())
}

/// Many sequences on all processors.
fn sequences(first: u64, count: u64) -> Reached {
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let all = Mutex::new(Reached::new());
    let failures = Mutex::new(Vec::new());
    const BATCH: u64 = 4000;
    let worker = || {
        let mut reached = Reached::new();
        while !failed.load(Ordering::Relaxed) {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            if from >= first + count {
                break;
            }
            let scene = Scene::new();
            for seed in from..(from + BATCH).min(first + count) {
                match generate(&scene, seed, &[], lines(seed), seed % 64 == 0) {
                    Ok((_, features)) => {
                        for (call, result, ..) in features {
                            *reached.entry((call, result)).or_insert(0) += 1;
                        }
                    }
                    Err(failure) => {
                        failed.store(true, Ordering::Relaxed);
                        failures.lock().unwrap().push((failure, seed));
                        break;
                    }
                }
            }
        }
        let mut all = all.lock().unwrap();
        for (result, n) in reached {
            *all.entry(result).or_insert(0) += n;
        }
    };
    std::thread::scope(|s| {
        for _ in 0..processors() {
            s.spawn(worker);
        }
    });
    if let Some((failure, seed)) = failures.lock().unwrap().first() {
        panic!("{}", report(failure, *seed));
    }
    all.into_inner().unwrap()
}

/// The results of calls that no program reached.
fn missing(reached: &Reached) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for row in SYSCALLS {
        for &code in row.codes {
            if !reached.contains_key(&(row.number, code as u8)) {
                all.insert((row.name.to_string(), code.name().to_string()));
            }
        }
    }
    all
}

#[test]
fn the_kernel_does_what_the_specification_says() {
    if let Some(file) = std::env::var_os("FERMATA_PROGRAM") {
        let text = std::fs::read_to_string(file).expect("the program can be read");
        let program = read(&text).expect("a program");
        if let Some(why) = replay(&program) {
            panic!("{why}");
        }
        return;
    }
    if let Some(seed) = variable("FERMATA_SEED") {
        if let Err(failure) = generate(&Scene::new(), seed, &[], lines(seed), true) {
            panic!("{}\n{}", failure.why, report(&failure, seed));
        }
        return;
    }
    let count = variable("FERMATA_SEQUENCES").unwrap_or(1_000_000);
    let start = std::time::Instant::now();
    let mut reached = sequences(0, count);
    for text in rare() {
        let features = run(&Scene::new(), &read(&text).expect("a program"));
        for (call, result, ..) in features.expect("no difference") {
            *reached.entry((call, result)).or_insert(0) += 1;
        }
    }
    let results = SYSCALLS.iter().map(|row| row.codes.len()).sum::<usize>();
    let missing = missing(&reached);
    println!(
        "note {count} sequences in {} s on {} processors; {} of {results} results reached",
        start.elapsed().as_secs(),
        processors(),
        results - missing.len()
    );
    let expected: BTreeSet<(String, String)> = UNREACHED
        .iter()
        .map(|u| (u.0.to_string(), u.1.to_string()))
        .collect();
    let surprising: Vec<_> = missing.difference(&expected).collect();
    if count < 1_000_000 {
        println!("not reached by so few: {surprising:?}");
    }
    assert!(
        surprising.is_empty() || count < 1_000_000,
        "not reached: {surprising:#?}"
    );
    let known = |number: u8, code: u8| {
        let codes = Call::from_number(number).map_or(&[][..], |call| call.row().codes);
        code >= 64 || codes.iter().any(|&c| c as u8 == code)
    };
    let unknown: Vec<_> = reached.keys().filter(|r| !known(r.0, r.1)).collect();
    assert!(unknown.is_empty(), "not in the table: {unknown:?}");
}

// ---- for any time --------------------------------------------------------------------------------

/// Programs that reached a feature that no earlier program had reached. New programs are made from them.
struct Corpus {
    directory: Option<std::path::PathBuf>,
    programs: Vec<Vec<Op>>,
    features: BTreeSet<Feature>,
    /// The pairs of features that programs have reached in a row.
    pairs: BTreeSet<(Feature, Feature)>,
}

impl Corpus {
    /// The programs that are kept in a directory, if there is one.
    fn open(directory: Option<std::path::PathBuf>) -> Corpus {
        let mut programs = Vec::new();
        if let Some(directory) = &directory {
            let _ = std::fs::create_dir_all(directory);
            let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
            let mut files: Vec<_> = files.map(|file| file.path()).collect();
            files.sort();
            let texts = files
                .iter()
                .filter_map(|file| std::fs::read_to_string(file).ok());
            programs.extend(texts.filter_map(|text| read(&text)));
        }
        Corpus {
            directory,
            programs,
            features: BTreeSet::new(),
            pairs: BTreeSet::new(),
        }
    }

    /// Keeps the program if it reached a step, or two steps in a row, that no other had.
    fn add(&mut self, program: Vec<Op>, features: &[Feature]) -> bool {
        let mut new = false;
        for &feature in features {
            new |= self.features.insert(feature);
        }
        for pair in features.windows(2) {
            // Without the stages, since there would be too many pairs.
            let of = |f: Feature| (f.0, f.1, 0, 0);
            new |= self.pairs.insert((of(pair[0]), of(pair[1])));
        }
        if new {
            if let Some(directory) = &self.directory {
                let file = directory.join(format!("{:06}", self.programs.len()));
                let _ = std::fs::write(file, print(&program));
            }
            self.programs.push(program);
        }
        new
    }
}

/// Runs programs until the time is over: half of them are new, half begin with a kept program and go on at random.
#[test]
#[ignore = "`./fermata fuzz` runs it"]
fn fuzz() {
    let seconds = variable("FERMATA_TIME").unwrap_or(10);
    let first = variable("FERMATA_SEED").unwrap_or(0);
    let start = std::time::Instant::now();
    let over = || start.elapsed().as_secs() >= seconds;
    let directory = std::env::var_os("FERMATA_CORPUS").map(Into::into);
    let corpus = Mutex::new(Corpus::open(directory));
    let kept = corpus.lock().unwrap().programs.len() as u64;
    let next = AtomicU64::new(0);
    let said = AtomicU64::new(0);
    let failure = Mutex::new(None);
    println!("fuzz: seed {first}, {kept} programs kept from before");
    let worker = || {
        while !over() && failure.lock().unwrap().is_none() {
            let scene = Scene::new();
            for _ in 0..1000 {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let seed = first.wrapping_add(n);
                let mut random = Random::new(!seed);
                let given = {
                    let corpus = corpus.lock().unwrap();
                    let programs = &corpus.programs;
                    match programs.len() as u64 {
                        // The programs that were kept are run again first.
                        _ if n < kept => programs[n as usize].clone(),
                        all if all > 0 && random.below(2) == 0 => {
                            let mut given = programs[random.below(all) as usize].clone();
                            if random.below(3) == 0 {
                                let other = &programs[random.below(all) as usize];
                                let cut = random.below(other.len() as u64 + 1) as usize;
                                given.extend_from_slice(&other[cut..]);
                            }
                            let from = random.below(given.len() as u64 + 1) as usize;
                            given.truncate(from.max(1));
                            given.truncate(60);
                            given
                        }
                        _ => Vec::new(),
                    }
                };
                let more = if n < kept {
                    0
                } else {
                    4 + random.below(16) as usize
                };
                match generate(&scene, seed, &given, more, n.is_multiple_of(16)) {
                    Ok((program, features)) => {
                        corpus.lock().unwrap().add(program, &features);
                    }
                    Err(failed) => {
                        failure.lock().unwrap().get_or_insert((failed, seed));
                        return;
                    }
                }
                let now = start.elapsed().as_secs();
                if now >= said.load(Ordering::Relaxed) + 5 {
                    said.store(now, Ordering::Relaxed);
                    let corpus = corpus.lock().unwrap();
                    println!(
                        "fuzz: {now} s, {} sequences, {} programs kept, {} steps, {} pairs of steps",
                        n + 1,
                        corpus.programs.len(),
                        corpus.features.len(),
                        corpus.pairs.len()
                    );
                }
                if over() {
                    break;
                }
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 0..processors() {
            s.spawn(worker);
        }
    });
    if let Some((failed, seed)) = failure.into_inner().unwrap() {
        println!("fuzz: shortening what failed");
        let text = report(&failed, seed);
        if let Some(file) = std::env::var_os("FERMATA_FAILURE") {
            // Lines that do not belong to the program become comments.
            let mut program = String::new();
            for line in text.lines() {
                let words = if read(line).is_some() || line.starts_with("store ") {
                    ""
                } else {
                    "# "
                };
                program += &format!("{words}{line}\n");
            }
            let _ = std::fs::write(file, program);
        }
        panic!("{text}");
    }
    let corpus = corpus.into_inner().unwrap();
    println!(
        "fuzz: {} sequences, {} different steps, no difference",
        next.into_inner(),
        corpus.features.len()
    );
}
