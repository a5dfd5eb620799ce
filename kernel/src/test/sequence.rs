//! Sequences of calls by several threads of two spaces, for the kernel beside its specification.
//!
//! A *program* is a list of [`Op`]s in a *scene* that is always the same: two spaces with two threads
//! each, which share a page of objects and some pages of data, a keeper's region without pages, and
//! references to everything. A program is text: [`Op`] can read what it prints, so that a failure
//! can be read, replayed, shortened and kept as a test.

use super::lockstep::{Difference, Lockstep};
use super::world::*;
use crate::probe::points;
use abi::{access, boot, Call, Common, RefKind, Type, PAGE_SIZE, ROLES};
use core::fmt;
use spec::object::{Body, Phase};
use spec::wait::Status;
use spec::{Event, Id};
use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::vec::Vec;

/// The page of objects, in both spaces.
pub(super) const OBJECTS: u64 = 0x10_0000;
/// Pages of data, in both spaces, with the rights to read and write, but not to hold objects.
pub(super) const DATA: u64 = 0x20_0000;
pub(super) const DATA_PAGES: u64 = 4;
/// The first two pages of data, read only.
pub(super) const CONST: u64 = 0x30_0000;
/// Pages of a keeper: absent until a thread maps memory at [`HOLE`] in the other space.
pub(super) const KEPT: u64 = 0x40_0000;
/// The range in the other space that [`KEPT`] imports.
pub(super) const HOLE: u64 = 0x80_0000;
pub(super) const KEPT_PAGES: u64 = 2;
/// Spare pages to be mapped at [`HOLE`]; `r_all` exports them after the data.
const SPARE_PAGES: u64 = 2;
/// The address at which all threads make their calls.
pub(super) const CALL: u64 = 0x7000;
/// Pages that `r_all` exports: objects, data, spare.
const PAGES: u64 = 1 + DATA_PAGES + SPARE_PAGES;
/// Offset of the first page of data in `r_all`.
pub(super) const ALL_DATA: u64 = PAGE_SIZE;
/// Longer than a time slice.
pub(super) const TURN: u64 = 10_000_000;

/// The slots of the page of objects: name and, if the object is there from the beginning, type.
pub(super) const SLOTS: &[(&str, Option<Type>)] = &[
    ("s0", Some(Type::Space)),
    ("s1", Some(Type::Space)),
    ("ta", Some(Type::Thread)),
    ("tb", Some(Type::Thread)),
    ("tc", Some(Type::Thread)),
    ("td", Some(Type::Thread)),
    ("m0", Some(Type::Mutex)),
    ("m1", Some(Type::Mutex)),
    ("c0", Some(Type::Cond)),
    ("q0", Some(Type::Portset)),
    ("q1", Some(Type::Portset)),
    ("p0", Some(Type::Port)),
    ("p1", Some(Type::Port)),
    ("h0", Some(Type::Region)),
    ("h1", Some(Type::Region)),
    ("k0", Some(Type::Mapping)),
    ("k1", Some(Type::Mapping)),
    ("g0", Some(Type::Mapping)),
    ("r_q0", Some(Type::Reference)),
    ("r_q1", Some(Type::Reference)),
    ("r_p0", Some(Type::Reference)),
    ("r_p1", Some(Type::Reference)),
    ("r_s0", Some(Type::Reference)),
    ("r_s1", Some(Type::Reference)),
    ("r_h0", Some(Type::Reference)),
    ("r_h1", Some(Type::Reference)),
    ("r_ta", Some(Type::Reference)),
    ("r_tc", Some(Type::Reference)),
    ("r_client", Some(Type::Reference)),
    ("r_server", Some(Type::Reference)),
    ("r_all", Some(Type::Reference)),
    ("r_device", Some(Type::Reference)),
    ("n0", Some(Type::Reference)),
    ("n1", Some(Type::Reference)),
    ("n2", Some(Type::Reference)),
    ("n3", Some(Type::Reference)),
    ("f0", None),
    ("f1", None),
    ("f2", None),
    ("f3", None),
    ("s2", Some(Type::Space)),
    ("r_s2", Some(Type::Reference)),
];

/// The slot of that name.
pub(super) fn slot(name: &str) -> u64 {
    let n = SLOTS.iter().position(|s| s.0 == name);
    OBJECTS + n.unwrap_or_else(|| panic!("no slot {name}")) as u64 * abi::OBJECT_SIZE
}

// ---- programs ------------------------------------------------------------------------------------

/// A value in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// This value.
    Is(u64),
    /// The present time plus that many nanoseconds.
    Soon(i64),
}

/// Registers of a call, by name.
pub(super) const REGISTERS: &[(&str, R)] = &[
    ("a0", A0),
    ("a1", A1),
    ("a2", A2),
    ("a3", A3),
    ("a4", A4),
    ("a5", A5),
    ("a6", A6),
    ("a7", A7),
    ("a8", A8),
    ("a9", A9),
    ("a10", A10),
    ("a11", A11),
];

/// A line of a program. `who` is a thread: 0 is `a`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A call, with the count of a register message, and words that are stored before.
    Call {
        who: usize,
        call: u8,
        count: u64,
        registers: Vec<(usize, Value)>,
        store: Vec<(u64, Vec<u64>)>,
    },
    /// An access to memory.
    Touch {
        who: usize,
        address: u64,
        access: u64,
    },
    /// An instruction that the processor refuses.
    Bad { who: usize, vector: u8 },
    /// Time passes, and the timer rings.
    Tick(u64),
    /// A device raises its line.
    Line(u8),
    /// The kernel's allocations fail after this many; `u64::MAX`: they succeed again.
    Short(u64),
    /// Calls stop at every n-th preemption point; 0: at none.
    Points(u64),
}

fn name_of(address: u64) -> String {
    let n = address.wrapping_sub(OBJECTS);
    let page = |name: &str, start: u64, pages: u64| {
        let offset = address.wrapping_sub(start);
        (offset < pages * PAGE_SIZE).then(|| match offset {
            0 => name.to_string(),
            _ => std::format!("{name}+{offset:#x}"),
        })
    };
    if let Some((name, _)) = SLOTS.get((n / abi::OBJECT_SIZE) as usize) {
        return match n % abi::OBJECT_SIZE {
            0 => (*name).into(),
            rest => std::format!("{name}+{rest:#x}"),
        };
    }
    page("data", DATA, DATA_PAGES)
        .or_else(|| page("const", CONST, 2))
        .or_else(|| page("kept", KEPT, KEPT_PAGES))
        .or_else(|| page("hole", HOLE, KEPT_PAGES))
        .unwrap_or_else(|| std::format!("{address:#x}"))
}

fn address_of(text: &str) -> Option<u64> {
    let (name, offset) = text.split_once('+').unwrap_or((text, "0"));
    let base = match name {
        "data" => DATA,
        "const" => CONST,
        "kept" => KEPT,
        "hole" => HOLE,
        _ => match SLOTS.iter().position(|s| s.0 == name) {
            Some(n) => OBJECTS + n as u64 * abi::OBJECT_SIZE,
            None => number(name)?,
        },
    };
    Some(base + number(offset)?)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn letter(who: usize) -> char {
    char::from(b'a' + who.min(25) as u8)
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Call {
                who,
                call,
                count,
                registers,
                store,
            } => {
                for (at, words) in store {
                    write!(f, "store {}", name_of(*at))?;
                    for word in words {
                        write!(f, " {word:#x}")?;
                    }
                    writeln!(f)?;
                }
                let name =
                    Call::from_number(*call).map_or_else(|| call.to_string(), |c| c.name().into());
                write!(f, "{} {name}", letter(*who))?;
                if *count > 0 {
                    write!(f, "/{count}")?;
                }
                for &(register, value) in registers {
                    let name = REGISTERS[register].0;
                    match value {
                        Value::Is(value) => write!(f, " {name}={}", name_of(value))?,
                        Value::Soon(after) => write!(f, " {name}=now{after:+}")?,
                    }
                }
                Ok(())
            }
            Op::Touch {
                who,
                address,
                access,
            } => {
                write!(f, "{} touch {} {access}", letter(*who), name_of(*address))
            }
            Op::Bad { who, vector } => write!(f, "{} bad {vector}", letter(*who)),
            Op::Tick(ns) => write!(f, "tick {ns}"),
            Op::Line(line) => write!(f, "line {line}"),
            Op::Short(u64::MAX) => f.write_str("memory"),
            Op::Short(n) => write!(f, "memory {n}"),
            Op::Points(n) => write!(f, "points {n}"),
        }
    }
}

/// Reads the text of a program.
pub(super) fn read(text: &str) -> Option<Vec<Op>> {
    let mut ops = Vec::new();
    let mut stored = Vec::new();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let op = match words[..] {
            ["store", at, ref words @ ..] => {
                let words: Option<Vec<u64>> = words.iter().map(|w| number(w)).collect();
                stored.push((address_of(at)?, words?));
                continue;
            }
            ["tick", ns] => Op::Tick(number(ns)?),
            ["line", line] => Op::Line(number(line)? as u8),
            ["memory"] => Op::Short(u64::MAX),
            ["memory", n] => Op::Short(number(n)?),
            ["points", n] => Op::Points(number(n)?),
            [who, "touch", at, access] => Op::Touch {
                who: thread(who)?,
                address: address_of(at)?,
                access: number(access)?,
            },
            [who, "bad", vector] => Op::Bad {
                who: thread(who)?,
                vector: number(vector)? as u8,
            },
            [who, call, ref registers @ ..] => {
                let (name, count) = call.split_once('/').unwrap_or((call, "0"));
                let known = abi::SYSCALLS
                    .iter()
                    .find(|row| row.name == name)
                    .map(|row| row.number);
                let mut values = Vec::new();
                for pair in registers {
                    let (register, value) = pair.split_once('=')?;
                    let register = REGISTERS.iter().position(|r| r.0 == register)?;
                    let value = match value.strip_prefix("now") {
                        Some(after) => Value::Soon(after.parse().ok()?),
                        None => Value::Is(address_of(value)?),
                    };
                    values.push((register, value));
                }
                Op::Call {
                    who: thread(who)?,
                    call: known.or_else(|| name.parse().ok())?,
                    count: number(count)?,
                    registers: values,
                    store: std::mem::take(&mut stored),
                }
            }
            _ => return None,
        };
        ops.push(op);
    }
    Some(ops)
}

fn thread(letter: &str) -> Option<usize> {
    match letter.as_bytes() {
        [c @ b'a'..=b'z'] => Some(usize::from(c - b'a')),
        _ => None,
    }
}

/// A program as text.
pub(super) fn print(program: &[Op]) -> String {
    program
        .iter()
        .fold(String::new(), |text, op| text + &op.to_string() + "\n")
}

// ---- the scene -----------------------------------------------------------------------------------

/// A machine with a kernel on which programs run, one after the other.
pub(super) struct Scene {
    w: World,
    /// The pages, in the manager's space.
    pages: u64,
    state: u64,
    all: u64,
    base: Vec<spec::Place>,
}

impl Scene {
    pub(super) fn new() -> Scene {
        let w = World::with_frames(32);
        w.bound.set(super::hostile::most_accesses);
        w.checked.set(false);
        let pages = w.pages(PAGES);
        let state = w.page();
        let (_, all) = w.region(0, pages, PAGES * PAGE_SIZE, 0);
        // One thread can always run, so that time passes only when a program says so.
        w.thread(0, Program::new().jump(0), 0);
        let base = super::lockstep::places(w.k);
        Scene {
            w,
            pages,
            state,
            all,
            base,
        }
    }

    /// Whether the kernel's invariants are checked after each event.
    pub(super) fn check(&self, checked: bool) {
        self.w.checked.set(checked);
    }

    /// The manager's address of a slot.
    fn at(&self, name: &str) -> u64 {
        slot(name) - OBJECTS + self.pages
    }

    fn ok(&self, call: Call, args: &[u64]) {
        self.w.ok(call, args);
    }

    fn build(&self) {
        let w = &self.w;
        for (name, ty) in SLOTS {
            if let Some(ty) = ty {
                self.ok(Common::Create.of(*ty), &[self.at(name), 0]);
            }
        }
        for (call, object, reference) in [
            (Call::PortsetReference, "q0", "r_q0"),
            (Call::PortsetReference, "q1", "r_q1"),
            (Call::PortReference, "p0", "r_p0"),
            (Call::PortReference, "p1", "r_p1"),
            (Call::SpaceReference, "s0", "r_s0"),
            (Call::SpaceReference, "s1", "r_s1"),
            (Call::SpaceReference, "s2", "r_s2"),
            (Call::RegionReference, "h0", "r_h0"),
            (Call::RegionReference, "h1", "r_h1"),
            (Call::ThreadReference, "ta", "r_ta"),
            (Call::ThreadReference, "tc", "r_tc"),
            (Call::ThreadReferenceClientEnd, "ta", "r_client"),
            (Call::ThreadReferenceServerEnd, "tc", "r_server"),
        ] {
            self.ok(call, &[self.at(object), self.at(reference)]);
        }
        for (name, kind, copy) in [
            ("r_all", RefKind::Region, self.all),
            ("r_device", RefKind::Authority, boot::AUTHORITY),
        ] {
            w.poke(self.state, kind as u64);
            self.ok(Call::ReferenceSetState, &[self.at(name), self.state, copy]);
        }
        for (n, (port, set)) in [("p0", "r_q0"), ("p1", "r_q1")].into_iter().enumerate() {
            w.poke(self.state, 100 + n as u64);
            self.ok(
                Call::PortSetState,
                &[self.at(port), self.state, self.at(set)],
            );
        }
        for (space, keeper) in [("s0", "r_p0"), ("s1", "r_p1")] {
            w.words(self.state, &[0, 0x4000, 0, 0, 7]);
            self.ok(
                Call::SpaceSetState,
                &[self.at(space), self.state, self.at(keeper)],
            );
        }
        let map = |at: u64, start, size, offset, rights, region, space: &str| {
            w.words(self.state, &[start, size, offset, rights]);
            self.ok(
                Call::MappingSetState,
                &[at, self.state, region, self.at(space)],
            );
        };
        let plain = access::READ | access::WRITE | access::EXECUTE;
        // The mappings of the pages that both spaces see belong to the manager.
        for (n, space) in ["r_s0", "r_s1"].into_iter().enumerate() {
            let mine = |i: u64| self.state + 1024 + (n as u64 * 3 + i) * abi::OBJECT_SIZE;
            for i in 0..3 {
                self.ok(Call::MappingCreate, &[mine(i), 0]);
            }
            map(mine(0), OBJECTS, PAGE_SIZE, 0, access::ALL, self.all, space);
            map(
                mine(1),
                DATA,
                DATA_PAGES * PAGE_SIZE,
                ALL_DATA,
                plain,
                self.all,
                space,
            );
            map(
                mine(2),
                CONST,
                2 * PAGE_SIZE,
                ALL_DATA,
                access::READ,
                self.all,
                space,
            );
        }
        for (region, mapping, from, to) in
            [("h0", "k0", "r_s1", "r_s0"), ("h1", "k1", "r_s0", "r_s1")]
        {
            w.words(self.state, &[HOLE, KEPT_PAGES * PAGE_SIZE, access::ALL]);
            let keeper = self.at("r_p0");
            self.ok(
                Call::RegionSetState,
                &[self.at(region), self.state, self.at(from), keeper],
            );
            let reference = self.at(if region == "h0" { "r_h0" } else { "r_h1" });
            let size = KEPT_PAGES * PAGE_SIZE;
            map(self.at(mapping), KEPT, size, 0, access::ALL, reference, to);
        }
        for (n, name) in ["ta", "tb", "tc", "td"].into_iter().enumerate() {
            let mut words = [0; abi::state::THREAD_WORDS];
            words[PC_WORD] = CALL + ROLES.call_bytes;
            words[TAG_WORD] = n as u64;
            words[PRIORITY_WORD] = 5;
            words[STOPS_WORD] = 1;
            w.words(self.state, &words);
            let fpu = self.state + abi::state::THREAD_WORDS as u64 * 8;
            w.write(fpu, &abi::state::initial_fpu());
            let space = self.at(if n < 2 { "r_s0" } else { "r_s1" });
            self.ok(
                Call::ThreadSetState,
                &[self.at(name), self.state, space, 0, 0],
            );
            self.ok(Call::ThreadResume, &[self.at(name)]);
        }
        for n in 0..DATA_PAGES + SPARE_PAGES {
            let page: Vec<u8> = (0..PAGE_SIZE)
                .map(|i| if n < 2 { 0 } else { (i * 7 + n) as u8 })
                .collect();
            w.write(self.pages + (1 + n) * PAGE_SIZE, &page);
        }
    }

    /// Destroys all objects that a program has left.
    fn clear(&self) -> Result<(), Difference> {
        hal::host::fail_allocations_after(u64::MAX);
        points::stop_at_every(0);
        self.w.call_manager();
        let first = u64::from(hal::host::FIRST_FRAME);
        // In several rounds, because a vacant identity ends with the reference that keeps it.
        for round in 0..4 {
            for (place, ty, is_there) in super::lockstep::list(self.w.k) {
                let mine = RAM + (place.0 - first) * PAGE_SIZE + place.1;
                let late = round == 0 && ty != Type::Reference;
                if self.base.contains(&place) || late {
                    continue;
                }
                if is_there() {
                    self.ok(Common::Destroy.of(ty), &[mine, 0]);
                }
            }
        }
        let left = super::lockstep::places(self.w.k);
        if left == self.base {
            Ok(())
        } else {
            Err(std::format!(
                "left over: {left:x?} instead of {:x?}",
                self.base
            ))
        }
    }

    /// Begins a program.
    pub(super) fn begin(&self) -> Play<'_> {
        points::stop_at_every(0);
        self.w.call_manager();
        self.build();
        self.w.release();
        let physical = |n: u64| self.w.physical(self.pages + n * PAGE_SIZE) / PAGE_SIZE;
        let data = (0..PAGES).map(physical).collect();
        let lock = Lockstep::new(&self.w, data);
        let base = |place: &spec::Place| self.base.contains(place);
        let mut threads: Vec<(spec::Place, Id)> = lock
            .spec
            .threads()
            .map(|(id, _)| (lock.spec.objects[&id].place, id))
            .filter(|(place, _)| !base(place))
            .collect();
        threads.sort_unstable();
        Play {
            frames: (0..PAGES).map(physical).collect(),
            threads: threads.into_iter().map(|t| t.1).collect(),
            last: lock.spec.last,
            lock,
            scene: self,
            begun: BTreeMap::new(),
            features: Vec::new(),
        }
    }
}

/// The record of what a step reached: the call, how the call ended (a code, 64 + the kind of its wait, 128: it goes on,
/// 192 + an exception), and the stages of both ends when the call was made.
pub(super) type Feature = (u8, u8, u8, u8);

/// A program that is being run.
pub(super) struct Play<'s> {
    scene: &'s Scene,
    pub(super) lock: Lockstep<'s>,
    /// The frames of objects, data and spare pages.
    frames: Vec<u64>,
    /// The threads in the order in which they were made.
    pub(super) threads: Vec<Id>,
    last: u32,
    /// The calls that threads have begun and not ended, with the stages of both ends at their beginning.
    begun: BTreeMap<Id, (u8, u8, u8)>,
    pub(super) features: Vec<Feature>,
}

impl Play<'_> {
    /// The frame of the page of objects.
    pub(super) fn objects_frame(&self) -> u64 {
        self.frames[0]
    }

    /// Runs a line. Does nothing if its thread cannot run now.
    pub(super) fn perform(&mut self, op: &Op) -> Result<(), Difference> {
        match op {
            Op::Tick(ns) => {
                hal::host::set_now(hal::now().saturating_add(*ns));
                self.step(Event::Timer)?;
                // The timer rings again at once for the deadlines that it has left.
                let mut rings = 0;
                while hal::host::deadline() <= hal::now() {
                    self.step(Event::Timer)?;
                    rings += 1;
                    if rings == 64 {
                        return Err("the timer rings for ever".into());
                    }
                }
            }
            Op::Line(line) => self.step(Event::Line(*line))?,
            Op::Short(n) => {
                hal::host::fail_allocations_after(*n);
                self.lock.short = *n != u64::MAX;
            }
            Op::Points(n) => points::stop_at_every(*n),
            Op::Bad { who, vector } => {
                if self.bring(*who)? {
                    self.step(Event::Processor {
                        vector: *vector,
                        error: 0,
                    })?;
                }
            }
            Op::Touch {
                who,
                address,
                access,
            } => {
                if self.bring(*who)? {
                    self.touch(*address, *access)?;
                }
            }
            Op::Call {
                who,
                call,
                count,
                registers,
                store,
            } => {
                if self.bring(*who)? {
                    for (at, words) in store {
                        self.store(*at, words);
                    }
                    let id = self.threads[*who];
                    for &(register, value) in registers {
                        let value = match value {
                            Value::Is(value) => value,
                            Value::Soon(after) => hal::now().wrapping_add_signed(after),
                        };
                        self.set(id, REGISTERS[register].1, value);
                    }
                    self.set(id, RESULT, u64::from(*call) | count << 8);
                    self.set_pc(id, CALL);
                    // The thread may have been in the middle of another call, which it gives up.
                    self.begun.remove(&id);
                    self.syscall(id)?;
                }
            }
        }
        self.settle()
    }

    fn set(&mut self, id: Id, register: R, value: u64) {
        let Some(t) = self.lock.thread(id) else {
            return;
        };
        register(&t.ctx).set(value);
        self.copy(id);
    }

    fn set_pc(&mut self, id: Id, pc: u64) {
        let Some(t) = self.lock.thread(id) else {
            return;
        };
        t.ctx.pc().set(pc);
        self.copy(id);
    }

    /// Copies a thread's registers, which its program has changed, to the specification.
    fn copy(&mut self, id: Id) {
        let Some(t) = self.lock.thread(id) else {
            return;
        };
        let registers = t.ctx.registers();
        let model = self.lock.spec.thread_mut(id);
        let before = core::mem::replace(&mut model.registers, registers);
        for &(lost, _) in ROLES.lost {
            model.registers.set(lost, before.get(lost));
        }
    }

    fn syscall(&mut self, id: Id) -> Result<(), Difference> {
        let t = self.lock.spec.thread(id);
        let call = (
            t.registers.call() as u8,
            t.client.stage as u8,
            t.server.stage as u8,
        );
        self.begun.entry(id).or_insert(call);
        self.step(Event::Syscall)
    }

    /// Makes an event happen, and records the features that it reached.
    fn step(&mut self, event: Event) -> Result<(), Difference> {
        let id = self.lock.spec.running;
        self.lock.step(event)?;
        // The calls that have ended, and the state of the running thread's call.
        let mut ended = Vec::new();
        for (&id, &(call, client, server)) in &self.begun {
            let how = match self.lock.spec.objects.get(&id).map(|o| &o.body) {
                // The thread's registers have been set, which ended the call.
                Some(Body::Thread(t)) if !t.in_call => None,
                Some(Body::Thread(t)) if t.registers.pc() != CALL => Some(t.registers.call() as u8),
                Some(Body::Thread(_)) => continue,
                _ => None,
            };
            self.features
                .extend(how.map(|how| (call, how, client, server)));
            ended.push(id);
        }
        if let (Some(&(call, client, server)), false) = (self.begun.get(&id), ended.contains(&id)) {
            let how = match self.lock.spec.thread(id).status {
                Status::Waiting(abi::state::Waiting::Exception) | Status::Stopped => {
                    192 + self.lock.spec.thread(id).exception.0
                }
                Status::Waiting(why) => 64 + why as u8,
                Status::Ready => 128,
            };
            self.features.push((call, how, client, server));
        }
        for id in ended {
            self.begun.remove(&id);
        }
        Ok(())
    }

    /// An access by the running thread: allowed by the machine only if a walk finds the page.
    fn touch(&mut self, address: u64, access: u64) -> Result<(), Difference> {
        let current = self.scene.w.current.get();
        let found = current.space().and_then(|s| s.table.lookup(address));
        if found.is_none_or(|(_, rights)| rights & access != access) {
            return self.step(Event::PageFault { address, access });
        }
        let walked = self.lock.spec.thread(self.lock.spec.running).space;
        match walked.map(|s| self.lock.spec.look(s, address, access)) {
            Some(true) => Ok(()),
            _ => Err(std::format!(
                "the machine allows {access:#x} at {address:#x}, the hierarchy does not"
            )),
        }
    }

    fn store(&mut self, at: u64, words: &[u64]) {
        for (i, word) in words.iter().enumerate() {
            let at = at + i as u64 * 8;
            let n = at.wrapping_sub(DATA) / PAGE_SIZE;
            if n < DATA_PAGES {
                let frame = self.frames[1 + n as usize];
                self.lock.poke(frame, at % PAGE_SIZE, &word.to_le_bytes());
            }
        }
    }

    /// If the running thread is in a call, makes it go on with the call: not for long if calls stop at preemption
    /// points, so that other threads come between.
    fn settle(&mut self) -> Result<(), Difference> {
        let turns = if points::are_on() { 2 } else { 24 };
        for _ in 0..turns {
            let id = self.lock.spec.running;
            let in_call =
                self.threads.contains(&id) && self.lock.spec.thread(id).registers.pc() == CALL;
            if !in_call {
                break;
            }
            self.syscall(id)?;
        }
        while self.last < self.lock.spec.last {
            self.last += 1;
            let id = spec::id(Type::Thread, self.last);
            if self.lock.spec.objects.contains_key(&id) {
                self.threads.push(id);
            }
        }
        Ok(())
    }

    /// Makes the thread the running one, if possible.
    fn bring(&mut self, who: usize) -> Result<bool, Difference> {
        let Some(&id) = self.threads.get(who) else {
            return Ok(false);
        };
        for _ in 0..8 {
            if self.lock.spec.running == id {
                return Ok(true);
            }
            if !self.can_have_a_turn(id) {
                return Ok(false);
            }
            hal::host::set_now(hal::now() + TURN);
            self.step(Event::Timer)?;
            self.settle()?;
        }
        Ok(false)
    }

    /// Whether the thread is ready and has the priority of the running thread.
    pub(super) fn can_have_a_turn(&self, id: Id) -> bool {
        let priority = |id: Id| match self.lock.spec.objects.get(&id).map(|o| &o.body) {
            Some(Body::Thread(t)) => Some((t.priority, t.status)),
            _ => None,
        };
        match (priority(id), priority(self.lock.spec.running)) {
            (Some((mine, Status::Ready)), Some((theirs, _))) => mine == theirs,
            _ => false,
        }
    }

    /// Ends a program: destroys all that it has left.
    pub(super) fn end(self) -> Result<(), Difference> {
        self.scene.clear()
    }

    /// Objects in the page of objects, of a type: handle and identity.
    pub(super) fn handles(&self, ty: Type) -> Vec<(u64, Id)> {
        let frame = self.objects_frame();
        let here = self.lock.spec.all(ty).filter(|(_, o)| o.place.0 == frame);
        here.map(|(id, o)| (OBJECTS + o.place.1, id)).collect()
    }

    /// The slots that are free.
    pub(super) fn free_slots(&self) -> Vec<u64> {
        let frame = self.objects_frame();
        let taken: BTreeMap<u64, ()> = self
            .lock
            .spec
            .objects
            .values()
            .filter(|o| o.place.0 == frame)
            .map(|o| (o.place.1, ()))
            .collect();
        (0..SLOTS.len() as u64 + 4)
            .map(|n| n * abi::OBJECT_SIZE)
            .filter(|at| !taken.contains_key(at))
            .map(|at| OBJECTS + at)
            .collect()
    }

    /// Whether the object has lost its body.
    pub(super) fn is_vacant(&self, id: Id) -> bool {
        self.lock
            .spec
            .objects
            .get(&id)
            .is_some_and(|o| o.phase == Phase::Vacant)
    }
}

/// Runs a program from its beginning. Returns a difference, if any, and the number of lines before it.
pub(super) fn run(scene: &Scene, program: &[Op]) -> Result<Vec<Feature>, (usize, Difference)> {
    let mut play = scene.begin();
    for (n, op) in program.iter().enumerate() {
        play.perform(op).map_err(|difference| (n + 1, difference))?;
    }
    let features = std::mem::take(&mut play.features);
    play.end()
        .map_err(|difference| (program.len(), difference))?;
    Ok(features)
}

#[test]
fn hand_over() {
    let scene = Scene::new();
    let program = read(
        "a mutex_lock a0=m0
         b mutex_lock a0=m0
         c mutex_lock a0=m0
         a mutex_unlock a0=m0
         d cond_wait a0=c0 a1=m0
         a cond_signal a0=c0
         c server_wait_receive_short a0=q0
         a client_connect_send_over_receive_short/16 a0=r_p0 a1=1 a2=2
         c server_ack_send_wait_receive_short/8 a0=q0 a1=7
         a touch kept 1
         c reply_wait_receive_short a0=q0
         a bad 6",
    );
    for _ in 0..3 {
        if let Err((n, difference)) = run(&scene, &program.clone().expect("a program")) {
            panic!("line {n}: {difference}");
        }
    }
}
