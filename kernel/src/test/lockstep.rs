//! Only this file reads the kernel's structures for that.

use super::world::World;
use crate::deadlines::PUT_OFF;
use crate::object::account::Account;
use crate::object::connection::End;
use crate::object::port::Port;
use crate::object::region::Source;
use crate::object::thread::{Hint, PendingFault, PortWait, Run, Thread};
use crate::object::{self, Header, Link, Object, Phase, Target};
use crate::probe::points;
use crate::queue;
use crate::K;
use abi::ipc::Plan;
use abi::state::{port_flags, Stage, Waiting};
use abi::{RefKind, PAGE_SIZE};
use hal::Trap;
use spec::object as model;
use spec::object::{Answer, Body};
use spec::wait::{Meets, Status};
use spec::{Event, Id, Place, Seen, System};
use std::boxed::Box;
use std::collections::btree_map::{BTreeMap, Entry};
use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

/// A kernel and its specification.
pub(super) struct Lockstep<'w> {
    pub(super) w: &'w World,
    pub(super) spec: System,
    /// The object of the kernel for each identity of the specification.
    pairs: BTreeMap<Id, Target>,
    /// Frames whose contents are compared.
    data: Vec<u64>,
    /// Allocations may fail.
    pub(super) short: bool,
}

/// A difference between kernel and specification.
pub(super) type Difference = String;

fn place(h: &Header) -> Place {
    let (pfn, offset) = h.place();
    (u64::from(pfn.0), offset)
}

/// The place of the object that a link names, if the object is alive.
fn at<T: Object>(link: Link<T>) -> Option<Place> {
    link.get().map(|object| place(object.head()))
}

/// Every object of the kernel.
fn objects(k: K) -> Vec<(Place, Target)> {
    fn all<T: Object>(k: K, list: &mut Vec<(Place, Target)>) {
        let live = T::table(k)
            .iter()
            .filter(|o| o.head().phase() != Phase::Free);
        list.extend(live.map(|o| (place(o.head()), Target::to(o))));
    }
    let mut list = Vec::with_capacity(96);
    all::<object::mutex::Mutex>(k, &mut list);
    all::<object::cond::Cond>(k, &mut list);
    all::<object::mapping::Mapping>(k, &mut list);
    all::<object::region::Region>(k, &mut list);
    all::<object::port::Port>(k, &mut list);
    all::<object::port::Portset>(k, &mut list);
    all::<object::space::Space>(k, &mut list);
    all::<Thread>(k, &mut list);
    all::<object::reference::Reference>(k, &mut list);
    list
}

fn phase(h: &Header) -> Option<model::Phase> {
    match h.phase() {
        Phase::Free => None,
        Phase::Active => Some(model::Phase::Active),
        Phase::Vacant => Some(model::Phase::Vacant),
        Phase::Fresh => Some(model::Phase::Fresh),
    }
}

fn source(of: Source) -> model::Source {
    match of {
        Source::Space => model::Source::Space,
        Source::Memory => model::Source::Memory,
        Source::Device => model::Source::Device,
    }
}

/// The target of a reference: its role, and the place of its object if the object is alive.
fn named(target: Target) -> (RefKind, Option<Place>) {
    (target.kind(), target.header().map(place))
}

fn status(t: &Thread) -> Status {
    match t.run.get() {
        Run::Ready | Run::Running => Status::Ready,
        Run::Waiting(why) => Status::Waiting(why),
        Run::Stopped => Status::Stopped,
    }
}

// ---- a system as the kernel has it ---------------------------------------------------------------

/// Reads the world's objects into a specification of the present state.
fn import(w: &World, data: &[u64]) -> (System, BTreeMap<Id, Target>) {
    let k = w.k;
    let all = objects(k);
    let numbered = all.iter().zip(1..).filter_map(|(&(at, target), n)| {
        let ty = abi::Type::from_raw(target.kind() as u64)?;
        Some((at, spec::id(ty, n)))
    });
    let ids: BTreeMap<Place, Id> = numbered.collect();
    let frames = u64::from(hal::host::FIRST_FRAME)..u64::from(hal::frame_limit());
    let mut s = System {
        machine: spec::Machine {
            costs: costs(),
            account_cost: object::account::COST,
            frames,
            end_frame: u64::from(hal::host::END_FRAME),
        },
        now: hal::now(),
        last: all.len() as u32,
        ..System::default()
    };
    let mut books: Vec<&'static Account> = Vec::new();
    let mut account = |s: &mut System, of: &'static Account| -> usize {
        let mut chain = std::vec![of];
        while let Some(parent) = chain[chain.len() - 1].books().0 {
            chain.push(parent);
        }
        let mut last = None;
        for a in chain.into_iter().rev() {
            let known = books.iter().position(|b| core::ptr::eq(*b, a));
            last = Some(known.unwrap_or_else(|| {
                books.push(a);
                s.accounts.push(model::Account {
                    parent: last,
                    quota: a.quota(),
                    used: a.used(),
                    closed: a.books().1,
                });
                books.len() - 1
            }));
        }
        last.expect("a chain has an end")
    };
    let id = |place: Option<Place>| place.and_then(|place| ids.get(&place).copied());
    let end = |end: End<'_>| model::End {
        stage: end.stage.get(),
        peer: id(at(end.shown())),
    };
    let mut pairs = BTreeMap::new();
    for &(here, target) in &all {
        let body = match target {
            Target::Mutex(m) => Body::Mutex(model::Mutex {
                locked: m.get().is_some_and(|m| m.locked.get()),
            }),
            Target::Cond(_) => Body::Cond,
            Target::Portset(_) => Body::Portset,
            Target::Mapping(m) => {
                let m = m.get().expect("it lives");
                Body::Mapping(model::Mapping {
                    start: m.start.get(),
                    size: m.size.get(),
                    offset: m.offset.get(),
                    protection: m.protection.get(),
                    region: id(at(m.region.get().link())),
                    space: id(at(m.space.get())),
                })
            }
            Target::Region(r) => {
                let r = r.get().expect("it lives");
                Body::Region(model::Region {
                    source: source(r.source.get()),
                    start: r.start.get(),
                    size: r.size.get(),
                    protection: r.protection.get(),
                    space: id(at(r.space.get())),
                    keeper: id(named(r.keeper.get()).1),
                })
            }
            Target::Port(p) => {
                let p = p.link().get().expect("it lives");
                let portset = id(at(p.portset()));
                Body::Port(model::Port {
                    alias: p.alias.get(),
                    calls_only: p.calls_only.get(),
                    notify: p.notify.get(),
                    holds: p.flags() & port_flags::HOLD_CLIENTS != 0,
                    portset,
                })
            }
            Target::Space(of) => {
                let of = of.get().expect("it lives");
                Body::Space(model::Space {
                    foreign: of.foreign.get(),
                    clock_offset: of.clock_offset.get(),
                    max_priority: of.max_priority.get().into(),
                    keeper: id(named(of.keeper.get()).1),
                    account: account(&mut s, of.account.get().expect("it has one")),
                    ports: Vec::new(),
                    place: None,
                })
            }
            Target::Thread(t) => {
                let t = t.get().expect("it lives");
                Body::Thread(Box::new(model::Thread {
                    registers: t.ctx.registers(),
                    in_call: !t.ctx.is_full(),
                    fpu: t.ctx.fpu(),
                    tag: t.ctx.tag.get(),
                    priority: u64::from(t.priority.get()),
                    stops: u64::from(t.stop_count.get()),
                    interrupt: t.interrupt.get(),
                    space: t.space().and_then(|of| id(Some(place(of.head())))),
                    client: end(t.client()),
                    server: end(t.server()),
                    status: status(t),
                    waited: (t.waiting(), t.waiting_for()),
                    ..model::Thread::default()
                }))
            }
            Target::Reference(r) => {
                let r = r.get().expect("it lives");
                let (kind, names) = named(r.target.get());
                let target = model::Target {
                    kind,
                    id: id(names).unwrap_or(0),
                    of_server: matches!(r.target.get(), Target::Client(_)),
                };
                Body::Reference(model::Reference {
                    target,
                    keeps: r.keeps(),
                })
            }
            _ => panic!("no object is a {target:?}"),
        };
        let header = target.header().expect("it lives");
        let object = model::Object {
            place: here,
            phase: phase(header).expect("it lives"),
            payer: account(&mut s, header.payer().expect("somebody pays")),
            body,
        };
        let id = ids[&here];
        s.objects.insert(id, Arc::new(object));
        pairs.insert(id, target);
    }
    let current = w.current.get();
    s.running = ids[&place(current.head())];
    for &frame in data {
        let mut page = [0; PAGE_SIZE as usize];
        hal::read_bytes(hal::Pfn(frame as u32), 0, &mut page);
        s.memory.insert(frame, Arc::new(page));
    }
    (s, pairs)
}

fn costs() -> [u64; 9] {
    [
        object::mutex::Mutex::cost(),
        object::cond::Cond::cost(),
        object::mapping::Mapping::cost(),
        object::region::Region::cost(),
        object::port::Port::cost(),
        object::port::Portset::cost(),
        object::space::Space::cost(),
        Thread::cost(),
        object::reference::Reference::cost(),
    ]
}

// ---- ready threads -------------------------------------------------------------------------------

/// A thread, and its priority.
type Ranked = (&'static Thread, u8);

/// The running thread, if any, and the ready threads, in order.
struct Ready {
    runs: Option<Ranked>,
    others: Vec<Ranked>,
}

impl Ready {
    fn now(w: &World) -> Ready {
        let ranked = |t: &'static Thread| (t, t.priority.get());
        let mut others = Vec::new();
        w.k.cpu().sched.each_ready(|t| others.push(ranked(t)));
        let current = w.current.get();
        let runs = (current.run.get() == Run::Running).then(|| ranked(current));
        Ready { runs, others }
    }

    /// Checks what `README.md` of the specification promises about one priority: ready threads stay in their
    /// order, a thread that joins them goes behind them, and one that ran goes before all of them or behind.
    fn keeps_order(&self, after: &Ready) -> Result<(), Difference> {
        let is = |a: &Ranked, b: &Ranked| core::ptr::eq(a.0, b.0) && a.1 == b.1;
        let place = |of: &Ranked| self.others.iter().position(|t| is(t, of));
        for p in 0..abi::PRIORITIES as u8 {
            let now: Vec<&Ranked> = after.others.iter().filter(|t| t.1 == p).collect();
            let ran = |t: &Ranked| self.runs.is_some_and(|r| is(&r, t));
            let old: Vec<Option<usize>> =
                now.iter().filter(|t| !ran(t)).map(|t| place(t)).collect();
            let stay = old.iter().take_while(|place| place.is_some()).count();
            let behind = old[stay..].iter().all(Option::is_none);
            if !behind || !old[..stay].is_sorted() {
                return Err(format!("the order of priority {p} is lost: {old:?}"));
            }
            let at = now.iter().position(|t| ran(t));
            if at.is_some_and(|at| at > 0 && at < stay) {
                return Err(format!("who ran goes between others of priority {p}"));
            }
        }
        Ok(())
    }
}

// ---- step by step --------------------------------------------------------------------------------

impl<'w> Lockstep<'w> {
    /// Begins with the present state, in which no thread may wait for anything except an interrupt.
    pub(super) fn new(w: &'w World, data: Vec<u64>) -> Lockstep<'w> {
        let (mut spec, pairs) = import(w, &data);
        // The manager's line.
        let manager = spec.object_at(place(w.manager.head()));
        spec.lines[usize::from(super::world::LINE)] = manager;
        Lockstep {
            w,
            spec,
            pairs,
            data,
            short: false,
        }
    }

    /// The kernel's thread of that identity.
    pub(super) fn thread(&self, id: Id) -> Option<&'static Thread> {
        match self.pairs.get(&id) {
            Some(Target::Thread(t)) => t.get(),
            _ => None,
        }
    }

    /// Makes an event happen to the kernel and to the specification.
    pub(super) fn step(&mut self, event: Event) -> Result<(), Difference> {
        let before = self.w.current.get();
        let pc = before.ctx.pc().get();
        let trap = match event {
            Event::Syscall => {
                before.ctx.set_full(false);
                Trap::Syscall
            }
            Event::PageFault { address, access } => {
                before.ctx.set_full(true);
                Trap::PageFault {
                    address,
                    write: access == abi::access::WRITE,
                    execute: access == abi::access::EXECUTE,
                    present: false,
                }
            }
            Event::Processor { vector, error } => {
                before.ctx.set_full(true);
                Trap::Exception { vector, error }
            }
            Event::Timer => {
                // The timer has rung, and does not ring again until it is set again.
                hal::set_timer(u64::MAX);
                Trap::Timer
            }
            Event::Line(line) => Trap::Irq(line),
        };
        // A thread that is set to the priority that it already has counts as a thread that joins.
        let call = before.ctx.call().get() as u8;
        let anew = trap == Trap::Syscall && call == abi::Call::ThreadSetPriority as u8;
        let ready = Ready::now(self.w);
        self.w.trap(trap);
        if !anew {
            ready.keeps_order(&Ready::now(self.w))?;
        }
        let ended = before.ctx.pc().get() == pc.wrapping_add(abi::ROLES.call_bytes);
        let no_memory = ended && before.ctx.call().get() & 0xff == abi::Code::NoMemory as u64;
        let no_memory = self.short && no_memory;
        let left = self.left(trap)?;
        let told = self.told();
        let pauses = trap == Trap::Syscall && !ended && status(before) == Status::Ready;
        let pause = if pauses {
            self.all_frames()
        } else {
            BTreeMap::new()
        };
        let refused = points::take_refusals();
        let of = |keepers| refused.filter(|r| r.1 == keepers).map(|r| u64::from(r.0));
        let (refused, keepers) = (of(false), of(true));
        let seen = |order| Seen {
            order,
            refused,
            keepers,
            no_memory,
            pause: pause.clone(),
            told: told.clone(),
            left: left.clone(),
        };
        let order = self.moved();
        if !self.may_choose() {
            return self.explain(event, seen(order));
        }
        // The order in which the kernel chose the threads cannot always be observed. There must be an order that
        // explains the result.
        let spec = self.spec.clone();
        let first = self.explain(event, seen(order.clone()));
        if first.is_ok() {
            return first;
        }
        for order in orders(&order) {
            self.spec = spec.clone();
            self.pairs.retain(|id, _| spec.objects.contains_key(id));
            if self.explain(event, seen(order)).is_ok() {
                return Ok(());
            }
        }
        first
    }

    /// The frames of all threads.
    fn all_frames(&self) -> BTreeMap<Id, abi::Registers> {
        let threads = self.pairs.iter().filter_map(|(&id, target)| {
            let t = target.get::<Thread>()?;
            Some((id, t.ctx.registers()))
        });
        threads.collect()
    }

    /// The threads whose deadline has come but whose wait the ring of the timer has not ended: it must ring again for
    /// them.
    fn left(&self, trap: Trap) -> Result<Vec<Id>, Difference> {
        let has_come = |t: &model::Thread| t.deadline.is_some_and(|at| at <= hal::now());
        let is_left = |id: &Id| self.thread(*id).is_some_and(|t| t.deadline.is_set());
        let come = self
            .spec
            .threads()
            .filter(|(_, t)| trap == Trap::Timer && has_come(t));
        let left: Vec<Id> = come.map(|(id, _)| id).filter(is_left).collect();
        let rings = hal::host::deadline() <= hal::now() + PUT_OFF;
        same(
            "the timer rings for who is left",
            rings || left.is_empty(),
            true,
        )?;
        Ok(left)
    }

    /// The ports for which servers have got a notice in this step.
    fn told(&self) -> Vec<Id> {
        let told = self.w.k.notices.told.take();
        let id = |port: &'static Port| {
            let is = |target: &Target| target.get::<Port>().is_some_and(|p| core::ptr::eq(p, port));
            let found = self.pairs.iter().find(|(_, target)| is(target));
            found.map(|(&id, _)| id)
        };
        told.into_iter().filter_map(id).collect()
    }

    /// Whether several threads of the same priority wait for the same thing, or may do so during the next step, which
    /// may ask the keeper of a thread that waits for a message.
    fn may_choose(&self) -> bool {
        let waits = |t: &model::Thread| match t.status {
            Status::Waiting(
                why @ (Waiting::Port | Waiting::Portset | Waiting::Peer | Waiting::Reply),
            ) => Some((None, t.priority, (why == Waiting::Portset) as u8)),
            _ => t.at.map(|at| (Some(at), t.priority, t.waits_for().0 as u8)),
        };
        let mut all: Vec<_> = self.spec.threads().filter_map(|(_, t)| waits(t)).collect();
        all.sort_unstable();
        all.windows(2).any(|w| w[0] == w[1])
    }

    /// Makes the event happen to the specification, and checks that the kernel has done the same.
    fn explain(&mut self, event: Event, seen: Seen) -> Result<(), Difference> {
        self.spec.step(event, hal::now(), seen);
        self.follow();
        self.compare()
    }

    /// Writes to memory on both sides, without a call.
    pub(super) fn poke(&mut self, frame: u64, offset: u64, bytes: &[u8]) {
        hal::write_bytes(hal::Pfn(frame as u32), offset, bytes);
        self.spec.poke(frame, offset, bytes);
    }

    /// The threads that waited: first those that no longer wait, and of these first the threads whose frames have not
    /// changed.
    fn moved(&self) -> Vec<Id> {
        let mut all: Vec<(u8, Id)> = Vec::new();
        for (id, model) in self.spec.threads() {
            let Status::Waiting(_) = model.status else {
                continue;
            };
            let Some(t) = self.thread(id) else { continue };
            let rank = match (
                status(t) != model.status,
                t.ctx.registers() != model.registers(),
            ) {
                (true, false) => 0,
                (_, true) => 1,
                (false, false) => 2,
            };
            all.push((rank, id));
        }
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// Makes the threads that began their call again in the kernel begin it again in the specification, and checks that
    /// the same thread runs.
    fn follow(&mut self) {
        let again: Vec<Id> = self
            .spec
            .threads()
            .filter(|&(id, model)| {
                matches!(model.status, Status::Waiting(_))
                    && self.thread(id).is_some_and(|t| status(t) != model.status)
            })
            .map(|(id, _)| id)
            .collect();
        for id in again {
            self.spec.restart(id);
        }
        let current = self.w.current.get();
        let runs = |&id: &Id| self.thread(id).is_some_and(|t| core::ptr::eq(t, current));
        let found = self.spec.threads().map(|(id, _)| id).find(runs);
        self.spec.running = found.unwrap_or_else(|| {
            self.spec
                .object_at(place(current.head()))
                .unwrap_or_default()
        });
    }

    /// Compares everything that can be observed.
    fn compare(&mut self) -> Result<(), Difference> {
        if !self.pairs.keys().eq(self.spec.objects.keys()) {
            self.pair()?;
        }
        for (object, &target) in self.spec.objects.values().zip(self.pairs.values()) {
            if let Err(difference) = self.object(object, target) {
                return Err(format!(
                    "{:?} at {:#x}: {difference}",
                    object.body.ty(),
                    object.place.1
                ));
            }
        }
        self.deadlines()?;
        self.lines()?;
        for n in 0..self.data.len() {
            self.frame(self.data[n])?;
        }
        self.decisions()
    }

    /// Compares the objects that have been made and that have ended.
    fn pair(&mut self) -> Result<(), Difference> {
        let dead = |id: &Id| !self.spec.objects.contains_key(id);
        let gone: Vec<Id> = self.pairs.keys().copied().filter(dead).collect();
        for id in gone {
            if let Some(header) = self.pairs.remove(&id).and_then(Target::header) {
                return Err(format!("{:?} has not ended", header.id()));
            }
        }
        let all: BTreeMap<Place, Target> = objects(self.w.k).into_iter().collect();
        for (&id, object) in &self.spec.objects {
            if let Entry::Vacant(entry) = self.pairs.entry(id) {
                let Some(&target) = all.get(&object.place) else {
                    return Err(format!("no {:?} at {:x?}", object.body.ty(), object.place));
                };
                entry.insert(target);
            }
        }
        same("objects", all.len(), self.spec.objects.len())
    }

    /// Checks choices of the kernel that the specification leaves open.
    fn decisions(&self) -> Result<(), Difference> {
        if !self.spec.may_run(self.spec.running) {
            return Err(format!(
                "runs, but may not: {:?}",
                self.spec.objects.get(&self.spec.running)
            ));
        }
        for (id, t) in self.spec.threads() {
            if !self.spec.may_wait(id) {
                return Err(format!(
                    "a lost wake-up: tag {} waits for {:?}",
                    t.tag,
                    t.waits_for()
                ));
            }
        }
        Ok(())
    }

    fn deadlines(&self) -> Result<(), Difference> {
        let deadline = |(id, t): (Id, &model::Thread)| Some((t.deadline?, self.lives(Some(id))?));
        let mut model: Vec<(u64, Place)> = self.spec.threads().filter_map(deadline).collect();
        model.sort_unstable();
        let mut kernel = Vec::new();
        let deadlines = &self.w.k.cpu().deadlines;
        deadlines.each(|at, t| kernel.push((at, place(t.head()))));
        kernel.sort_unstable();
        same("deadlines", kernel, model)
    }

    /// Compares the thread that is attached to each line.
    fn lines(&self) -> Result<(), Difference> {
        for (n, &attached) in (0..).zip(&self.spec.lines) {
            let kernel = self.w.k.lines.of(n).map(|t| place(t.head()));
            same(&format!("line {n}"), kernel, self.lives(attached))?;
        }
        Ok(())
    }

    /// Compares the payer: the account and those above it, each with its quota, its use, and whether it is closed.
    fn payer(&self, mut kernel: Option<&'static Account>, model: usize) -> Result<(), Difference> {
        let mut model = Some(model);
        while let (Some(account), Some(index)) = (kernel, model) {
            let books = self.spec.accounts.get(index).ok_or("no such account")?;
            let (parent, closed) = account.books();
            let found = (account.quota(), account.used(), closed);
            same("who pays", found, (books.quota, books.used, books.closed))?;
            (kernel, model) = (parent, books.parent);
        }
        same("how many pay", kernel.is_some(), model.is_some())
    }

    fn frame(&mut self, frame: u64) -> Result<(), Difference> {
        let pfn = hal::Pfn(frame as u32);
        let equal = |spec: &System| {
            let model = spec.memory.get(&frame);
            model.is_none_or(|model| hal::host::holds(pfn, &model[..]))
        };
        if equal(&self.spec) {
            return Ok(());
        }
        // The word at a handle is not specified.
        let handles = self.spec.objects.values().map(|o| o.place);
        let handles: Vec<Place> = handles.filter(|place| place.0 == frame).collect();
        for (_, offset) in handles {
            let mut word = [0; 8];
            hal::read_bytes(pfn, offset, &mut word);
            self.spec.poke(frame, offset, &word);
        }
        let Some(model) = self.spec.memory.get(&frame).filter(|_| !equal(&self.spec)) else {
            return Ok(());
        };
        let mut kernel = [0; PAGE_SIZE as usize];
        hal::read_bytes(pfn, 0, &mut kernel);
        let at = kernel
            .iter()
            .zip(model.iter())
            .position(|(a, b)| a != b)
            .unwrap_or(0)
            & !7;
        let word =
            |page: &[u8]| u64::from_le_bytes(page[at..at + 8].try_into().unwrap_or_default());
        same(
            &format!("memory at {at:#x} of frame {frame}"),
            word(&kernel),
            word(&model[..]),
        )
    }

    /// The place of an identity of the specification, if the identity is alive.
    fn lives(&self, id: Option<Id>) -> Option<Place> {
        self.spec.objects.get(&id?).map(|o| o.place)
    }

    fn object(&self, object: &model::Object, target: Target) -> Result<(), Difference> {
        let header = target.header().ok_or("it has ended")?;
        same("place", place(header), object.place)?;
        same("phase", phase(header), Some(object.phase))?;
        self.payer(header.payer(), object.payer)?;
        match (&object.body, target) {
            (Body::Mutex(model), Target::Mutex(m)) => same(
                "locked",
                m.get().map(|m| m.locked.get()),
                Some(model.locked),
            ),
            (Body::Cond, Target::Cond(_)) | (Body::Portset, Target::Portset(_)) => Ok(()),
            (Body::Mapping(model), Target::Mapping(m)) => {
                let m = m.get().ok_or("gone")?;
                same("start", m.start.get(), model.start)?;
                same("size", m.size.get(), model.size)?;
                same("offset", m.offset.get(), model.offset)?;
                same("protection", m.protection.get(), model.protection)?;
                same(
                    "region",
                    at(m.region.get().link()),
                    self.lives(model.region),
                )?;
                same("space", at(m.space.get()), self.lives(model.space))
            }
            (Body::Region(model), Target::Region(r)) => {
                let r = r.get().ok_or("gone")?;
                same("source", source(r.source.get()), model.source)?;
                same("start", r.start.get(), model.start)?;
                same("size", r.size.get(), model.size)?;
                same("protection", r.protection.get(), model.protection)?;
                same("space", at(r.space.get()), self.lives(model.space))?;
                same("keeper", named(r.keeper.get()).1, self.lives(model.keeper))
            }
            (Body::Port(model), Target::Port(p)) => {
                let p = p.link().get().ok_or("gone")?;
                same("alias", p.alias.get(), model.alias)?;
                same("calls only", p.calls_only.get(), model.calls_only)?;
                same("notify", p.notify.get(), model.notify)?;
                let holds = p.flags() & port_flags::HOLD_CLIENTS != 0;
                same("holds", holds, model.holds)?;
                same("portset", at(p.portset()), self.lives(model.portset))
            }
            (Body::Space(model), Target::Space(s)) => {
                let s = s.get().ok_or("gone")?;
                let account = s.account.get().ok_or("no account")?;
                let books = &self.spec.accounts[model.account];
                let ports = self.w.k.io_ports.of(s).map(|(f, n)| (f.into(), n.into()));
                let mut ports: Vec<(u64, u64)> = ports.collect();
                let mut granted = model.ports.clone();
                ports.sort_unstable();
                granted.sort_unstable();
                same("foreign", s.foreign.get(), model.foreign)?;
                same("clock", s.clock_offset.get(), model.clock_offset)?;
                same("ceiling", s.max_priority.get().into(), model.max_priority)?;
                same("keeper", named(s.keeper.get()).1, self.lives(model.keeper))?;
                same("quota", account.quota(), books.quota)?;
                same("use", account.used(), books.used)?;
                same("ports", &ports, &granted)?;
                same("place", self.w.k.places.of(s), model.place)
            }
            (Body::Thread(model), Target::Thread(t)) => self.frames(model, t.get().ok_or("gone")?),
            (Body::Reference(model), Target::Reference(r)) => {
                let r = r.get().ok_or("gone")?;
                let names = (model.target.kind, self.lives(Some(model.target.id)));
                same("target", named(r.target.get()), names)?;
                let of_server = matches!(r.target.get(), Target::Client(_));
                same("what it is good for", of_server, model.target.of_server)?;
                same("keeps", r.keeps(), model.keeps)
            }
            _ => Err(format!("it is a {target:?}")),
        }
    }

    fn frames(&self, model: &model::Thread, t: &'static Thread) -> Result<(), Difference> {
        let (kernel, expected) = (t.ctx.registers(), model.registers());
        if kernel != expected {
            for (register, (a, b)) in abi::Register::ALL
                .iter()
                .zip(kernel.to_words().iter().zip(expected.to_words()))
            {
                same(register.name(), *a, b)?;
            }
        }
        same("status", status(t), model.status)?;
        if t.ctx.fpu() != model.fpu {
            return Err("another FPU state".into());
        }
        same("tag", t.ctx.tag.get(), model.tag)?;
        same("priority", u64::from(t.priority.get()), model.priority)?;
        same("stops", u64::from(t.stop_count.get()), model.stops)?;
        same("interrupt", t.interrupt.get(), model.interrupt)?;
        same(
            "space",
            t.space().map(|s| place(s.head())),
            self.lives(model.space),
        )?;
        let ends = |end: End<'_>| (end.stage.get(), at(end.shown()));
        let end = |end: model::End| match end.stage {
            Stage::None | Stage::Finished => (end.stage, None),
            stage => (stage, self.lives(end.peer)),
        };
        same("client end", ends(t.client()), end(model.client))?;
        same("server end", ends(t.server()), end(model.server))?;
        same(
            "exception delivered",
            t.exception_delivered(),
            model.exception_delivered,
        )?;
        same(
            "exception",
            (t.exception.get(), t.exception_address.get()),
            model.exception,
        )?;
        if t.head().is_open() {
            // Without a body the thread has no state that shows its wait.
            same("waiting", (t.waiting(), t.waiting_for()), model.waits_for())?;
        }
        self.notes(model, t)?;
        let Status::Waiting(why) = model.status else {
            return Ok(());
        };
        let queue = model
            .at
            .and_then(|at| self.pairs.get(&at))
            .and_then(|target| match *target {
                Target::Mutex(m) => m.get().map(|m| &m.waiters),
                Target::Cond(c) => c
                    .get()
                    .and_then(|c| c.queues().iter().find(|q| queue::is_in(t, Some(q)))),
                Target::Portset(s) => s.get().map(|s| &s.servers),
                Target::Port(p) => p.link().get().map(|p| p.client_queue()),
                _ => None,
            });
        if why != Waiting::Vacant && !queue::is_in(t, queue) {
            return Err(format!("waits elsewhere than expected for {why:?}"));
        }
        Ok(())
    }

    /// Compares the kernel's hints beside the thread's frame and state with those that follow from the rules.
    fn notes(&self, model: &model::Thread, t: &'static Thread) -> Result<(), Difference> {
        let meets = match t.hint.get() {
            Hint::PendingFault(PendingFault::Page(address, access)) => {
                Some(Meets::Page(address.0, access.into()))
            }
            Hint::PendingFault(PendingFault::Wrong(exception, at)) => {
                Some(Meets::Wrong(exception, at.0))
            }
            // When the thread has begun another call, the hint is void; the kernel has only not cleared it yet.
            Hint::Refused {
                missing,
                in_call,
                called: false,
            } => {
                let need = Some(missing.access().0).filter(|_| in_call);
                Some(Meets::Refused(missing.page(), need))
            }
            _ => None,
        };
        same("what it meets first", meets, model.meets)?;
        if model.status == Status::Waiting(Waiting::Port) {
            // The order that explains a later result can depend on this hint.
            let wants = match t.hint.get() {
                Hint::PortWait(_, purpose) => Some(purpose),
                _ => None,
            };
            let first = t.call().and_then(|call| abi::ipc::plan(call).first());
            let expected = match first {
                _ if model.tells => Some(PortWait::Trap),
                Some(Plan::CONNECT) => Some(PortWait::Connect),
                Some(Plan::CALL) => Some(PortWait::Call),
                _ => None,
            };
            same("what it wants at the port", wants, expected)?;
        }
        if model.exception_delivered || model.answer.is_some() {
            let keeper = match t.hint.get() {
                Hint::Excepted(keeper) => at(keeper),
                _ => None,
            };
            same("who has its exception", keeper, self.lives(model.keeper))?;
        }
        let answer = match t.hint.get() {
            Hint::Answered { short: true } => Some(Answer::Control),
            Hint::Answered { short: false } => Some(Answer::Whole),
            _ => None,
        };
        same("the answer that it has not got", answer, model.answer)?;
        if model.status == Status::Waiting(Waiting::Reply) {
            let (server, stage) = t.served_by();
            let owes = |(s, stage)| (self.lives(Some(s)), stage);
            let expected = model.served_by().map_or((None, Stage::None), owes);
            same("who owes the reply", (at(server), stage), expected)?;
        }
        Ok(())
    }
}

/// All permutations of a few items, the given order first.
fn orders(of: &[Id]) -> Vec<Vec<Id>> {
    if of.is_empty() {
        return std::vec![Vec::new()];
    }
    let mut all = Vec::new();
    for n in 0..of.len() {
        let mut rest = of.to_vec();
        let first = rest.remove(n);
        for mut order in orders(&rest) {
            order.insert(0, first);
            all.push(order);
        }
    }
    all
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, kernel: T, spec: T) -> Result<(), Difference> {
    if kernel == spec {
        Ok(())
    } else {
        Err(format!(
            "{what}: the kernel has {kernel:x?}, the specification {spec:x?}"
        ))
    }
}

/// The places of objects, in order.
pub(super) fn places(k: K) -> Vec<Place> {
    let mut all: Vec<Place> = objects(k).into_iter().map(|o| o.0).collect();
    all.sort_unstable();
    all
}

/// Every object: its place, its type, and a function that returns whether the object still exists and has a body.
pub(super) fn list(k: K) -> Vec<(Place, abi::Type, impl Fn() -> bool)> {
    let of = |(place, target): (Place, Target)| {
        let there = move || target.header().is_some_and(|h| h.phase() != Phase::Vacant);
        Some((place, target.header()?.id().ty()?, there))
    };
    objects(k).into_iter().filter_map(of).collect()
}
