//! The properties that must hold in every state that can be reached: one function per property, from the rules of the
//! design. [docs/model.md](../../../docs/model.md) states each in a sentence or two.

use crate::explore::{settle, Exploration, State};
use crate::key::key;
use crate::moves::{manages, Move};
use crate::scene::{role, Role, Scene, CEILING, SAVED};
use abi::{access, Call, Code, Common, RefKind, Type, PAGE_SIZE};
use spec::object::{Body, Source, Target};
use spec::wait::{Status, Waiting};
use spec::{Event, Id, Seen, System};
use stateright::Property as Checked;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A property that must hold.
pub struct Property {
    /// Its name.
    pub name: &'static str,
    /// The rules of the design that it is taken from.
    pub rules: &'static str,
    judge: Judge,
}

enum Judge {
    /// Judges a step: the exploration, the state before, the move, the system after.
    Step(fn(&Exploration, &State, &Move, &System) -> bool),
    /// Judges a state.
    State(fn(&Exploration, &State) -> bool),
}

/// All properties.
pub const PROPERTIES: [Property; 10] = [
    Property {
        name: "a manager's call returns",
        rules: "A5, identity and body",
        judge: Judge::Step(a_managers_call_returns),
    },
    Property {
        name: "nobody reaches what was not given",
        rules: "power, S2",
        judge: Judge::State(nobody_reaches_what_was_not_given),
    },
    Property {
        name: "an exception is answered by its keeper or by nobody",
        rules: "memory and exceptions, S2",
        judge: Judge::Step(an_exception_is_answered_by_its_keeper),
    },
    Property {
        name: "a frame is written by whom it calls",
        rules: "A1, S2",
        judge: Judge::Step(a_frame_is_written_by_whom_it_calls),
    },
    Property {
        name: "no wake-up is lost",
        rules: "A1, A8",
        judge: Judge::State(no_wake_up_is_lost),
    },
    Property {
        name: "no interrupt is lost",
        rules: "A6, A8",
        judge: Judge::Step(no_interrupt_is_lost),
    },
    Property {
        name: "a stopped thread's state is complete",
        rules: "A1, A6",
        judge: Judge::State(a_stopped_threads_state_is_complete),
    },
    Property {
        name: "nobody is more important than was allowed",
        rules: "power, S2",
        judge: Judge::State(nobody_is_more_important_than_was_allowed),
    },
    Property {
        name: "work on what is others' is bounded",
        rules: "A9",
        judge: Judge::Step(work_on_what_is_others_is_bounded),
    },
    Property {
        name: "nobody pays for what others do",
        rules: "quotas, S2",
        judge: Judge::Step(nobody_pays_for_what_others_do),
    },
];

impl Property {
    /// Whether a step keeps the property. A property of states is judged with the state.
    pub(crate) fn judge_step(
        &self,
        model: &Exploration,
        before: &State,
        next: &Move,
        after: &System,
    ) -> bool {
        match self.judge {
            Judge::Step(holds) => holds(model, before, next, after),
            Judge::State(_) => true,
        }
    }
}

fn holds<const N: usize>(model: &Exploration, state: &State) -> bool {
    match PROPERTIES[N].judge {
        Judge::Step(_) => state.broken != Some(N),
        Judge::State(holds) => holds(model, state),
    }
}

/// The properties in the form that the model checker takes.
pub(crate) fn for_checker() -> Vec<Checked<Exploration>> {
    let all: [fn(&Exploration, &State) -> bool; PROPERTIES.len()] = [
        holds::<0>, holds::<1>, holds::<2>, holds::<3>, holds::<4>, holds::<5>, holds::<6>,
        holds::<7>, holds::<8>, holds::<9>,
    ];
    let checked =
        |(p, holds): (&Property, fn(&Exploration, &State) -> bool)| Checked::always(p.name, holds);
    PROPERTIES.iter().zip(all).map(checked).collect()
}

/// The thread that acts in a move, and the call that it makes.
fn call_of(system: &System, next: &Move) -> Option<(Id, Call)> {
    let (who, word) = match next {
        Move::Call { who, registers, .. } => (*who, registers.call()),
        Move::Go { who, .. } => (*who, system.thread(*who).registers.call()),
        _ => return None,
    };
    Some((who, Call::from_number(word as u8)?))
}

fn actor(next: &Move) -> Option<Id> {
    match next {
        Move::Call { who, .. } | Move::Go { who, .. } | Move::Bad(who) => Some(*who),
        Move::Restart(_) | Move::Timer => None,
    }
}

fn runs(system: &System, id: Id) -> Option<Role> {
    match system.objects.get(&id).map(|o| &o.body) {
        Some(Body::Thread(t)) => role(&t.registers),
        _ => None,
    }
}

/// **A manager's call returns.** When a manager has made a call that manages an object by its handle, it
/// does not wait, whatever the object's owner did before: the call has a result, or is an exception of the
/// manager's own.
fn a_managers_call_returns(_: &Exploration, before: &State, next: &Move, after: &System) -> bool {
    let Some((who, call)) = call_of(&before.system, next) else {
        return true;
    };
    let managing = runs(&before.system, who) == Some(Role::Manager) && manages(call);
    !managing || !matches!(after.thread(who).status, Status::Waiting(_))
}

/// **Nobody reaches what was not given.** Hostile threads have only handles, references and pages to which a chain of
/// references led from what they had at the beginning ([`Reach::closure`]), or that were made from their own quota
/// since.
fn nobody_reaches_what_was_not_given(model: &Exploration, state: &State) -> bool {
    let now = Reach::held(&state.system, model.scene.theirs);
    let given = &model.reach;
    let own = |id: Id| {
        let made = id & 0xff_ffff > given.last;
        made && state.system.objects.get(&id).is_none_or(|o| o.payer != 0)
    };
    let known = |&(kind, id): &(u8, Id)| own(id) || given.targets.contains(&(kind, id));
    let mapped =
        |(frame, rights): (&u64, &u64)| given.frames.get(frame).is_some_and(|g| rights & !g == 0);
    now.targets.iter().all(known) && now.frames.iter().all(mapped)
}

/// **An exception is answered by its keeper or by nobody.** Once delivered, it stays so until the thread to
/// which it was delivered answers it, or a manager sets the state of the thread whose exception it is.
fn an_exception_is_answered_by_its_keeper(
    model: &Exploration,
    before: &State,
    next: &Move,
    after: &System,
) -> bool {
    let delivered = |system: &System, id: Id| {
        let body = system.objects.get(&id).map(|o| &o.body);
        matches!(body, Some(Body::Thread(t)) if t.exception_delivered)
    };
    before.system.threads().filter(|(_, t)| t.exception_delivered).all(|(id, _)| {
        if delivered(after, id) || !after.objects.contains_key(&id) {
            return true;
        }
        let holder = before.holders.iter().find(|h| h.0 == id).map(|h| h.1);
        let managed = call_of(&before.system, next).is_some_and(|(who, call)| {
            let manages = [Call::ThreadSetState, Call::ThreadCreate, Call::ThreadDestroy];
            manages.contains(&call) && object_named(model, &before.system, who, next) == Some(id)
        });
        managed || holder.is_some() && actor(next) == holder
    })
}

/// The object whose handle is the first parameter of the call.
fn object_named(model: &Exploration, system: &System, who: Id, next: &Move) -> Option<Id> {
    let registers = match next {
        Move::Call { registers, .. } => **registers,
        _ => system.thread(who).registers,
    };
    model.scene.at(system, registers.parameter(0))
}

/// **A frame is written by whom it calls.** A hostile thread's step changes an honest thread's registers only if the
/// honest thread waits for this very thread: as a client at its port, as the other end of its connection, or for its
/// answer to an exception.
fn a_frame_is_written_by_whom_it_calls(
    _: &Exploration,
    before: &State,
    next: &Move,
    after: &System,
) -> bool {
    let Some(who) = actor(next) else { return true };
    if runs(&before.system, who) != Some(Role::Hostile) {
        return true;
    }
    before.system.threads().all(|(id, t)| {
        let honest = matches!(role(&t.registers), Some(Role::Script(..) | Role::Manager));
        let same = after.objects.get(&id).is_some_and(|o| match &o.body {
            Body::Thread(new) => new.registers == t.registers,
            _ => false,
        });
        let theirs = |set: Id| {
            let payer = before.system.objects.get(&set).map(|o| o.payer);
            payer.is_some_and(|payer| payer != 0)
        };
        let asked = match t.status {
            Status::Waiting(Waiting::Peer) => t.client.peer == Some(who),
            Status::Waiting(Waiting::Reply) => t.served_by().is_some_and(|(s, _)| s == who),
            Status::Waiting(Waiting::Port) => t.at.is_some_and(|port| {
                before.system.objects.contains_key(&port)
                    && before.system.port(port).portset.is_some_and(theirs)
            }),
            // A waiting server takes any client that calls.
            Status::Waiting(Waiting::Portset) => true,
            Status::Waiting(Waiting::Exception) => before.holders.contains(&(id, who)),
            _ => false,
        };
        let serves = t.server.peer == Some(who) && t.status == Status::Waiting(Waiting::Peer);
        !honest || same || asked || serves
    })
}

/// **No wake-up is lost.** A thread that waits has to: if it did its call again now, it would not get any further. (A
/// thread whose names its own side has changed meanwhile waits for what they led to before.)
fn no_wake_up_is_lost(model: &Exploration, state: &State) -> bool {
    state.system.threads().all(|(id, t)| {
        let Status::Waiting(why) = t.status else {
            return true;
        };
        let leads_to = named(model, &state.system, t);
        let elsewhere = match t.at {
            Some(at) => leads_to != Some(at),
            // The server that owes the reply was found by the port.
            None => {
                why == Waiting::Reply && leads_to.is_none_or(|id| id >> 24 != Type::Port as u32)
            }
        };
        if elsewhere && !t.tells && why != Waiting::Cond {
            return true;
        }
        match why {
            // These wait for something else than their frame's call.
            Waiting::Cond | Waiting::Vacant | Waiting::Exception | Waiting::Kernel => true,
            _ if t.asked.is_some_and(|asked| asked.missing.is_some()) => true,
            Waiting::Port if t.tells => {
                let set = t.at.map(|port| state.system.port(port).portset);
                let serves = |t: &spec::object::Thread| {
                    t.status == Status::Waiting(Waiting::Portset) && Some(t.at) == set
                };
                !state.system.threads().any(|(_, t)| serves(t))
            }
            _ => {
                let mut again = state.system.clone();
                again.restart(id);
                if again.thread(id).status == Status::Ready {
                    again.running = id;
                    model.advance(&mut again, Event::Syscall, Seen::default());
                }
                // A thread whose handle leads to something else by now gets an exception when it begins again.
                let new = again.thread(id);
                let waits = matches!(new.status, Status::Waiting(_));
                waits || new.stops > t.stops
            }
        }
    })
}

/// What the first parameter in a frame leads to now: the object there, or the target of the reference there.
fn named(model: &Exploration, system: &System, t: &spec::object::Thread) -> Option<Id> {
    let id = model.scene.at(system, t.registers.parameter(0))?;
    match &system.objects[&id].body {
        Body::Reference(r) => Some(r.target.id),
        _ => Some(id),
    }
}

/// **No interrupt is lost.** A thread that was interrupted has the interrupt pending, or has taken it.
fn no_interrupt_is_lost(model: &Exploration, before: &State, next: &Move, after: &System) -> bool {
    let Some((who, Call::ThreadInterrupt)) = call_of(&before.system, next) else {
        return true;
    };
    let reference = object_named(model, &before.system, who, next);
    let target = reference.and_then(|r| match &before.system.objects[&r].body {
        Body::Reference(r) => Some(r.target.id),
        _ => None,
    });
    let Some(Body::Thread(old)) =
        target.and_then(|t| before.system.objects.get(&t)).map(|o| &o.body)
    else {
        return true;
    };
    let Some(Body::Thread(new)) = target.and_then(|t| after.objects.get(&t)).map(|o| &o.body)
    else {
        return true;
    };
    let returned = after.thread(who).registers.pc() != before.system.thread(who).registers.pc();
    let took = old.status == Status::Waiting(Waiting::Interrupt) && new.status == Status::Ready;
    !returned || new.interrupt || took
}

/// **A stopped thread's state is complete.** Stop a thread, save its state, destroy it and keep the identity, create
/// it anew, restore its state, let it go on: the result is as if it had only been stopped and resumed. (What the
/// kernel remembers of how its last wait ended may be lost.)
fn a_stopped_threads_state_is_complete(model: &Exploration, state: &State) -> bool {
    let (scene, system) = (&model.scene, &state.system);
    let Some(manager) = scene.manager(system) else { return true };
    let [space, client, server, identity] = scene.shelf;
    let free = system.thread(manager).status == Status::Ready
        && system.thread(manager).registers.call() & 0xff == 0
        && !scene.has_saved(system)
        && scene.at(system, identity).is_some_and(|id| system.reference(id).target == Target::NULL);
    if !free {
        return true;
    }
    let threads = scene.names.keys().filter(|&&handle| {
        let id = scene.at(system, handle);
        id.is_some_and(|id| id >> 24 == Type::Thread as u32 && system.is_open(id))
    });
    threads.into_iter().all(|&t| {
        let mut stopped = system.clone();
        let mut again = system.clone();
        let call = |system: &mut System, call: Call, parameters: &[u64]| {
            let registers = &mut system.thread_mut(manager).registers;
            *registers = abi::Registers::starting(registers.pc(), 0, 0);
            registers.set_call(call as u64);
            parameters.iter().enumerate().for_each(|(n, &value)| registers.set_parameter(n, value));
            let pc = registers.pc();
            system.running = manager;
            model.advance(system, Event::Syscall, Seen::default());
            settle(system);
            let registers = &mut system.thread_mut(manager).registers;
            let ended = registers.pc() != pc && registers.call() & 0xff == Code::Ok as u64;
            *registers = abi::Registers::starting(pc, 0, 0);
            system.thread_mut(manager).in_call = false;
            ended
        };
        call(&mut stopped, Call::ThreadStop, &[t]);
        call(&mut stopped, Call::ThreadResume, &[t]);
        let cut = call(&mut again, Call::ThreadStop, &[t])
            && call(&mut again, Call::ThreadGetState, &[t, SAVED, space, client, server])
            && call(&mut again, Common::Destroy.of(Type::Thread), &[t, identity])
            && call(&mut again, Common::Create.of(Type::Thread), &[t, identity])
            && call(&mut again, Call::ThreadSetState, &[t, SAVED, space, client, server])
            && call(&mut again, Call::ThreadResume, &[t]);
        cut && same(scene, &mut stopped, &mut again)
    })
}

/// **Nobody is more important than was allowed.** No hostile thread has a priority above what its space was
/// given in the beginning.
fn nobody_is_more_important_than_was_allowed(_: &Exploration, state: &State) -> bool {
    let hostile = |t: &spec::object::Thread| role(&t.registers) == Some(Role::Hostile);
    state.system.threads().all(|(_, t)| !hostile(t) || t.priority <= CEILING)
}

/// The most objects of others that a step of a hostile thread touches: the one thread that it waits for, or that
/// waits for it.
const TOUCHED: usize = 1;

/// **Work on what is others' is bounded.** In one step a hostile thread makes the kernel write, make or end at most
/// so many objects that it does not pay for, however many there are: work that grows with a number of objects grows
/// with a number that the hostile thread itself pays for.
fn work_on_what_is_others_is_bounded(
    _: &Exploration,
    before: &State,
    next: &Move,
    after: &System,
) -> bool {
    let Some(who) = actor(next) else { return true };
    if runs(&before.system, who) != Some(Role::Hostile) {
        return true;
    }
    let (old, new) = (&before.system.objects, &after.objects);
    // Some hostile threads are paid for by us, so that no hostile thread has their handles.
    let is_others = |id: Id| {
        let object = old.get(&id).or_else(|| new.get(&id));
        let hostile = runs(&before.system, id) == Some(Role::Hostile);
        object.is_some_and(|o| o.payer == 0) && !hostile
    };
    let same = |id: &Id| match (old.get(id), new.get(id)) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        _ => false,
    };
    let touched: BTreeSet<Id> = old.keys().chain(new.keys()).copied().collect();
    let others = touched.into_iter().filter(|id| !same(id) && is_others(*id));
    others.count() <= TOUCHED
}

/// **Nobody pays for what others do.** What a hostile thread does is charged to the account of its space, or to one
/// below that: our account has no less afterwards.
fn nobody_pays_for_what_others_do(
    _: &Exploration,
    before: &State,
    next: &Move,
    after: &System,
) -> bool {
    let hostile = |who| runs(&before.system, who) == Some(Role::Hostile);
    let free = |system: &System| system.accounts[0].quota - system.accounts[0].used;
    !actor(next).is_some_and(hostile) || free(after) >= free(&before.system)
}

/// Whether two systems differ in nothing but what may be forgotten.
fn same(scene: &Scene, one: &mut System, two: &mut System) -> bool {
    for system in [&mut *one, &mut *two] {
        system.memory.clear();
        for &handle in &scene.shelf {
            if let Some(id) = scene.at(system, handle) {
                system.reference_mut(id).target = Target::NULL;
            }
        }
        let threads: Vec<Id> = system.threads().map(|(id, _)| id).collect();
        for id in threads {
            let t = system.thread_mut(id);
            (t.waited, t.in_call) = ((Waiting::Nothing, 0), false);
            // A wait may begin again, and what a thread meets first it meets again. Which thread had an exception
            // that has been answered makes no difference.
            (t.asked, t.tells, t.cond, t.meets) = (None, false, 0, None);
            if !t.exception_delivered {
                t.keeper = None;
            }
            for &(register, _) in abi::ROLES.lost {
                t.registers.set(register, 0);
            }
        }
    }
    key(one, &scene.shelves) == key(two, &scene.shelves)
}

// ---- who reaches what ----------------------------------------------------------------------------

/// What the threads of a space reach.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Frames, and the rights to them.
    pub frames: BTreeMap<u64, u64>,
    /// What references and handles name, and in which role.
    pub targets: BTreeSet<(u8, Id)>,
    /// The serial number of the last identity that was there.
    pub last: u32,
}

/// The frame behind an address of a space, and the rights to it, found by walking the mappings and regions, each of
/// which can take rights away.
fn page_behind(system: &System, space: Id, address: u64) -> Option<(u64, u64)> {
    let (mut space, mut address, mut rights) = (space, address, access::ALL);
    for _ in 0..8 {
        let m = system.mapping(system.mapping_at(space, address)?);
        let r = match system.objects.get(&m.region?).map(|o| &o.body) {
            Some(Body::Region(r)) => r,
            _ => return None,
        };
        rights &= m.protection & r.protection;
        let offset = m.offset + (address - m.start);
        if offset >= r.size {
            return None;
        }
        match r.source {
            Source::Memory => return Some((offset / PAGE_SIZE, rights)),
            Source::Device => return None,
            Source::Space => {
                space = r.space.filter(|id| system.objects.contains_key(id))?;
                address = r.start + offset;
            }
        }
    }
    None
}

fn plain(id: Id) -> u8 {
    (id >> 24) as u8
}

impl Reach {
    /// What the space has now, without another step: pages, the objects in them, and the targets of the references in
    /// them.
    #[must_use]
    pub fn held(system: &System, space: Id) -> Reach {
        let mut reach = Reach::default();
        if system.objects.contains_key(&space) {
            reach.pages(system, space);
        }
        let targets: Vec<(u8, Id)> = reach.targets.iter().copied().collect();
        for (_, id) in targets {
            if let Some(Body::Reference(r)) = system.objects.get(&id).map(|o| &o.body) {
                if system.objects.contains_key(&r.target.id) {
                    reach.targets.insert((r.target.kind as u8, r.target.id));
                }
            }
        }
        reach
    }

    /// The pages of a space, and the handles in them.
    fn pages(&mut self, system: &System, space: Id) {
        let all: Vec<(u64, u64)> = system
            .all(Type::Mapping)
            .map(|(id, _)| system.mapping(id))
            .filter(|m| m.space == Some(space))
            .map(|m| (m.start, m.size))
            .collect();
        for (start, size) in all {
            for address in (start..start + size).step_by(PAGE_SIZE as usize) {
                if let Some((frame, rights)) = page_behind(system, space, address) {
                    self.page(system, frame, rights);
                }
            }
        }
    }

    fn page(&mut self, system: &System, frame: u64, rights: u64) {
        *self.frames.entry(frame).or_default() |= rights;
        if rights & access::OBJECTS != 0 {
            let here = system.objects.iter().filter(|(_, o)| o.place.0 == frame);
            self.targets.extend(here.map(|(&id, _)| (plain(id), id)));
        }
    }

    /// All that a chain of references leads to. A handle gives what the object's state names. A reference gives its
    /// use: of a space, all that its threads reach; of a region, the pages behind it; of a port, the other end of a
    /// connection to its server. A client that calls at a port of theirs gives them its client end.
    #[must_use]
    pub fn closure(system: &System, space: Id) -> Reach {
        let mut reach = Reach { last: system.last, ..Reach::default() };
        reach.pages(system, space);
        loop {
            let before = (reach.frames.clone(), reach.targets.len());
            let targets: Vec<(u8, Id)> = reach.targets.iter().copied().collect();
            for (_, id) in targets {
                reach.follow(system, id);
            }
            if before == (reach.frames.clone(), reach.targets.len()) {
                return reach;
            }
        }
    }

    fn follow(&mut self, system: &System, id: Id) {
        let Some(object) = system.objects.get(&id) else { return };
        let mut name = |id: Option<Id>| self.targets.extend(id.map(|id| (plain(id), id)));
        match &object.body {
            Body::Mutex(_) | Body::Cond => {}
            Body::Mapping(m) => {
                name(m.region);
                name(m.space);
            }
            Body::Region(r) => {
                name(r.space);
                name(r.keeper);
                if r.source == Source::Space {
                    for at in (r.start..r.start + r.size).step_by(PAGE_SIZE as usize) {
                        let page = r.space.and_then(|space| page_behind(system, space, at));
                        if let Some((frame, rights)) = page {
                            self.page(system, frame, rights & r.protection);
                        }
                    }
                }
            }
            Body::Port(p) => name(p.portset),
            Body::Portset => {
                // A server of the port can be the other end, and so can a client that calls there.
                let ports = system.all(Type::Port).map(|(id, _)| id);
                let ports: Vec<Id> =
                    ports.filter(|&p| system.port(p).portset == Some(id)).collect();
                let called = |r: &Target| ports.contains(&r.id);
                let used = system
                    .all(Type::Reference)
                    .any(|(r, o)| called(&system.reference(r).target) && o.payer == 0);
                for (t, _) in system.threads().filter(|_| used) {
                    self.targets.insert((RefKind::ClientEnd as u8, t));
                    self.targets.insert((RefKind::ServerEnd as u8, t));
                }
            }
            Body::Space(s) => {
                name(s.keeper);
                self.pages(system, id);
            }
            Body::Thread(t) => {
                name(t.space);
                self.targets.insert((RefKind::ClientEnd as u8, id));
                self.targets.insert((RefKind::ServerEnd as u8, id));
                let ends = [
                    (RefKind::ServerEnd as u8, t.client.peer),
                    (RefKind::ClientEnd as u8, t.server.peer),
                ];
                self.targets.extend(ends.iter().filter_map(|&(kind, peer)| Some((kind, peer?))));
            }
            Body::Reference(r) => {
                self.targets.insert((r.target.kind as u8, r.target.id));
            }
        }
    }
}
