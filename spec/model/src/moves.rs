//! What can happen next: the moves of each thread, from the table of calls.
//!
//! A free hostile thread makes every call of the table (that its scene allows) with every combination of a small
//! alphabet: the handles that its space has, for objects each of the right type; rooms for new objects; references
//! whose kinds fit; a few states of each type; messages of nothing, of some bytes, and with a reference. Calls that
//! the kernel refuses for a type alone are left out. A manager does what its tasks say. Honest threads, and threads
//! that waited, do what their frames say.

use crate::scene::{role, Line, Role, Scene, Task};
use crate::scene::{HOLE, HOSTILE, OURS, SAVED, SCRATCH, THEIRS, THEIR_DATA};
use abi::ipc::{plan, Plan};
use abi::state::{space_flags, Stage, REGISTER_WORDS, THREAD_WORDS};
use abi::syscalls::Param;
use abi::{
    access, ref_list, registers, Call, Common, RefKind, Registers, Syscall, Type, PAGE_SIZE,
    SYSCALLS,
};
use spec::object::{Body, Phase};
use spec::wait::Status;
use spec::{Id, System};

/// Something that can happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// A free thread makes a call with these registers, after words were stored in its memory.
    Call {
        /// The thread.
        who: Id,
        /// Its registers.
        registers: Box<Registers>,
        /// The address, and which of [`CONTENTS`] is stored there.
        store: Option<(u64, usize)>,
        /// Of threads that wait alike, the later one goes first.
        late: bool,
    },
    /// A thread does what its script or its frame says.
    Go {
        /// The thread.
        who: Id,
        /// Of threads that wait alike, the later one goes first.
        late: bool,
    },
    /// A free thread meets a breakpoint.
    Bad(Id),
    /// A waiting thread begins its call again.
    Restart(Id),
    /// Time passes.
    Timer,
}

/// The states that `set_state` is given. Those of a reference come first, one for each kind.
pub const CONTENTS: &[(Type, &[u64])] = {
    use Type::*;
    const ALL: u64 = access::ALL;
    &[
        (Reference, &[0]),
        (Reference, &[1]),
        (Reference, &[2]),
        (Reference, &[3]),
        (Reference, &[4]),
        (Reference, &[5]),
        (Reference, &[6]),
        (Reference, &[7]),
        (Reference, &[8]),
        (Reference, &[9]),
        (Reference, &[10]),
        (Reference, &[11]),
        (Reference, &[12]),
        (Mutex, &[0]),
        (Mutex, &[1]),
        (Mapping, &[0, 0, 0, 0]),
        (Mapping, &[HOLE, PAGE_SIZE, 0, ALL]),
        (Region, &[THEIRS, PAGE_SIZE, ALL]),
        (Region, &[HOLE, PAGE_SIZE, ALL]),
        (Port, &[7]),
        (Space, &[0, 1, 0, 0, 1]),
        (Space, &[space_flags::FOREIGN, 1, 0, 0, 2]),
        (Cond, &[]),
        (Portset, &[]),
    ]
};

/// The states that a thread is given: client stage, server stage, delivered, interrupt.
const ENDS: &[[Stage; 2]] = {
    use Stage::{Ack, Call, Exception, Fault, None, Over, Receiving, Sending};
    &[
        [None, None],
        [Sending, None],
        [Receiving, None],
        [Over, None],
        [Ack, None],
        [None, Sending],
        [None, Receiving],
        [None, Over],
        [None, Ack],
        [None, Call],
        [None, Fault],
        [None, Exception],
    ]
};

/// The words behind a number of [`Move::Call::store`].
#[must_use]
pub fn content(number: usize) -> Vec<u64> {
    if let Some((_, words)) = CONTENTS.get(number) {
        return words.to_vec();
    }
    let [client, server] = ENDS[number - CONTENTS.len()];
    let mut words = Registers::starting(HOSTILE, 0, 0).to_words().to_vec();
    words.resize(THREAD_WORDS, 0);
    let fields = &mut words[REGISTER_WORDS..];
    (fields[1], fields[2]) = (1, 1);
    (fields[4], fields[5]) = (client as u64, server as u64);
    let fpu = abi::state::initial_fpu();
    words.extend(fpu.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default())));
    words
}

/// Collects every move that can be made next.
pub fn all(scene: &Scene, system: &System, moves: &mut Vec<Move>) {
    for (id, thread) in system.threads() {
        match (thread.status, role(&thread.registers)) {
            (Status::Ready, Some(role)) => {
                let begun = thread.registers.call() & 0xff != 0;
                let from = moves.len();
                match role {
                    _ if begun => moves.push(Move::Go { who: id, late: false }),
                    Role::Hostile => hostile(scene, system, id, moves),
                    Role::Manager => manager(scene, system, id, moves),
                    Role::Script(script, line) => {
                        let line = scene.scripts.get(script).and_then(|s| s.lines.get(line));
                        if !matches!(line, None | Some(Line::End)) {
                            moves.push(Move::Go { who: id, late: false });
                        }
                    }
                }
                if may_choose(system) {
                    for n in from..moves.len() {
                        let mut other = moves[n].clone();
                        if let Move::Call { late, .. } | Move::Go { late, .. } = &mut other {
                            *late = true;
                            moves.push(other);
                        }
                    }
                }
            }
            (Status::Waiting(_), _) if scene.restarts => moves.push(Move::Restart(id)),
            // Vacancy ends without the specification saying which thread to wake.
            (Status::Waiting(spec::wait::Waiting::Vacant), _) => moves.push(Move::Restart(id)),
            _ => {}
        }
    }
    if system.now == 0 && system.threads().any(|(_, t)| t.deadline.is_some()) {
        moves.push(Move::Timer);
    }
}

/// Whether two threads wait for the same thing.
fn may_choose(system: &System) -> bool {
    let mut waits: Vec<_> = system
        .threads()
        .filter(|(_, t)| matches!(t.status, Status::Waiting(_)))
        .map(|(_, t)| (t.at, t.waits_for().0 as u8, t.priority))
        .collect();
    waits.sort_unstable();
    waits.windows(2).any(|w| w[0] == w[1])
}

// ---- a hostile thread ----------------------------------------------------------------------------

/// A call that is being put together.
#[derive(Clone, Copy)]
struct Draft {
    registers: Registers,
    store: Option<(u64, usize)>,
}

/// What a parameter can be: values of parameters, a count, words that are stored.
type Choice = (Vec<(usize, u64)>, u64, Option<(u64, usize)>);

fn hostile(scene: &Scene, system: &System, who: Id, moves: &mut Vec<Move>) {
    let slots: Vec<(u64, Option<Id>)> = scene.their_slots(system).collect();
    for row in SYSCALLS.iter().filter(|row| (scene.calls)(row.call)) {
        let mut registers = system.thread(who).registers;
        registers.set_call(row.number.into());
        let draft = Draft { registers, store: None };
        complete(system, &slots, who, row, 0, draft, moves);
    }
    if (scene.calls)(Call::ThreadSelf) {
        moves.push(Move::Bad(who));
    }
}

/// Gives the parameter `n`, and those after it, every value.
fn complete(
    system: &System,
    slots: &[(u64, Option<Id>)],
    who: Id,
    row: &'static Syscall,
    n: usize,
    draft: Draft,
    moves: &mut Vec<Move>,
) {
    if n == row.params.len() {
        if sensible(system, slots, row, &draft) {
            let registers = Box::new(draft.registers);
            moves.push(Move::Call { who, registers, store: draft.store, late: false });
        }
        return;
    }
    for (values, count, store) in choices(system, slots, row, n) {
        let mut draft = draft;
        for (parameter, value) in values {
            draft.registers.set_parameter(parameter, value);
        }
        draft.registers.set_call(draft.registers.call() | count << 8);
        draft.store = draft.store.or(store);
        complete(system, slots, who, row, n + 1, draft, moves);
    }
}

fn choices(
    system: &System,
    slots: &[(u64, Option<Id>)],
    row: &'static Syscall,
    n: usize,
) -> Vec<Choice> {
    let (name, kind) = row.params[n];
    let one = |value: u64| (vec![(n, value)], 0, None);
    let of = |ty: Type| {
        let is = move |id: Id| system.objects.get(&id).is_some_and(|o| o.body.ty() == ty);
        slots.iter().filter(move |s| s.1.is_some_and(is)).map(|s| s.0)
    };
    match kind {
        Param::Object(ty) => of(ty).map(one).collect(),
        Param::OptReference => std::iter::once(0).chain(of(Type::Reference)).map(one).collect(),
        Param::Fresh => {
            let free = |id: Id| system.objects.get(&id).is_none_or(|o| o.phase == Phase::Vacant);
            slots.iter().filter(|s| s.1.is_none_or(free)).map(|s| one(s.0)).collect()
        }
        Param::State => states(row).map(|s| (vec![(n, THEIR_DATA)], 0, s)).collect(),
        Param::Unused => vec![one(0)],
        Param::Registers => vec![one(THEIR_DATA)],
        Param::OptFpu => vec![one(0), one(THEIR_DATA)],
        Param::Rights => vec![one(0), one(access::ALL)],
        Param::Deadline if plan(row.call).is_ipc() => {
            vec![(vec![(registers::DEADLINE, 1)], 0, None)]
        }
        Param::Deadline => vec![one(0), one(1)],
        Param::Word => vec![one(match name {
            "end" => 2 * PAGE_SIZE,
            "kinds" => 0x3ff,
            "priority" => 2,
            "count" | "line" => 1,
            "size" => PAGE_SIZE,
            _ => 0,
        })],
        Param::SendBuffer => {
            let [address, length, .., refs] = registers::SEND;
            let long = if plan(row.call).has(Plan::REPLY) { 8 * REGISTER_WORDS as u64 } else { 8 };
            let plain =
                [0, long].map(|bytes| (vec![(address, THEIR_DATA), (length, bytes)], 0, None));
            let with = of(Type::Reference).map(|r| (vec![(refs, ref_list(r, 1))], 0, None));
            plain.into_iter().chain(with).collect()
        }
        Param::ReceiveBuffer => {
            let [address, length, .., refs] = registers::RECEIVE;
            let room =
                move |list| (vec![(address, THEIR_DATA), (length, 256), (refs, list)], 0, None);
            let with = of(Type::Reference).map(move |r| room(ref_list(r, 1)));
            std::iter::once(room(0)).chain(with).collect()
        }
        Param::ShortBuffer if name == "send" => {
            let pc = (registers::WORDS[0], HOSTILE);
            let plain = [(vec![], 0, None), (vec![pc], 32, None)];
            let refs = registers::WORDS_REFS;
            let with = of(Type::Reference).map(|r| (vec![(refs, ref_list(r, 1))], 0, None));
            plain.into_iter().chain(with).collect()
        }
        Param::ShortBuffer => {
            let refs = registers::RECEIVE[4];
            let with = of(Type::Reference).map(|r| (vec![(refs, ref_list(r, 1))], 0, None));
            std::iter::once((vec![], 0, None)).chain(with).collect()
        }
    }
}

/// What stands in memory for a call that reads or writes a state.
fn states(row: &'static Syscall) -> impl Iterator<Item = Option<(u64, usize)>> {
    let ty = abi::TYPES.into_iter().find(|&ty| Common::SetState.of(ty) == row.call);
    let plain = (0..CONTENTS.len()).filter(move |&n| Some(CONTENTS[n].0) == ty);
    let ends = if ty == Some(Type::Thread) { ENDS.len() } else { 0 };
    let all = plain.chain((0..ends).map(|n| CONTENTS.len() + n));
    let none = ty.is_none().then_some(None);
    none.into_iter().chain(all.map(|n| Some((THEIR_DATA, n))))
}

/// Whether a call with these parameters can do anything: calls that the kernel refuses for the kind of a reference
/// alone are left out.
fn sensible(
    system: &System,
    slots: &[(u64, Option<Id>)],
    row: &'static Syscall,
    draft: &Draft,
) -> bool {
    let kind = |n: usize| {
        let handle = draft.registers.parameter(n);
        let slot = slots.iter().find(|s| handle != 0 && s.0 == handle)?;
        match &system.objects.get(&slot.1?)?.body {
            Body::Reference(r) => Some((r.target.kind, r.keeps)),
            _ => None,
        }
    };
    let fits = |n: usize, wanted: RefKind| kind(n).is_none_or(|k| k.0 == wanted);
    let given = |n: usize| draft.registers.parameter(n) != 0;
    let Some(&ty) = abi::TYPES.get((row.number as usize - 1) / 6) else {
        return match row.call {
            Call::ReferenceEqual => draft.registers.parameter(0) < draft.registers.parameter(1),
            Call::ThreadInterrupt => fits(0, RefKind::Thread),
            Call::RegionSearch => fits(0, RefKind::Region),
            call if plan(call).has(Plan::CONNECT) || plan(call).has(Plan::CALL) => {
                fits(0, RefKind::Port)
            }
            _ => true,
        };
    };
    let plain = RefKind::from_raw(ty as u64).unwrap_or(RefKind::Null);
    match (row.number - 1) % 6 {
        // A new object in an empty room, or a vacant identity at the place where it was.
        0 => match kind(1) {
            None => slots.iter().any(|s| s.0 == draft.registers.parameter(0) && s.1.is_none()),
            Some(kept) => kept == (plain, true),
        },
        2 => slots.iter().any(|s| s.0 == draft.registers.parameter(1) && s.1.is_none()),
        // At most one reference is asked for at a time.
        4 => (2..5).filter(|&n| n < row.params.len() && given(n)).count() <= 1,
        5 => match (ty, draft.store.map(|s| s.1)) {
            (Type::Thread, Some(n)) => {
                let [client, server] = ENDS[n - CONTENTS.len()];
                (!given(2) || fits(2, RefKind::Space))
                    && (client != Stage::None) == given(3)
                    && (server != Stage::None) == given(4)
                    && fits(3, RefKind::ServerEnd)
                    && fits(4, RefKind::ClientEnd)
            }
            (Type::Mapping, _) => fits(2, RefKind::Region) && fits(3, RefKind::Space),
            (Type::Region, _) => fits(2, RefKind::Space) && fits(3, RefKind::Port),
            (Type::Port, _) => fits(2, RefKind::Portset),
            (Type::Space, _) => fits(2, RefKind::Port),
            (Type::Reference, Some(n)) => kind(2).map_or(0, |k| k.0 as u64) == CONTENTS[n].1[0],
            _ => true,
        },
        _ => true,
    }
}

// ---- the manager ---------------------------------------------------------------------------------

/// Whether the call manages an object by its handle. Such a call always returns.
#[must_use]
pub fn manages(call: Call) -> bool {
    !call.row().params.is_empty() && call.row().manages(0)
}

fn manager(scene: &Scene, system: &System, who: Id, moves: &mut Vec<Move>) {
    let mut call = |call: Call, parameters: &[u64], store: Option<(u64, usize)>| {
        let mut registers = system.thread(who).registers;
        registers.set_call(call as u64);
        for (n, &value) in parameters.iter().enumerate() {
            registers.set_parameter(n, value);
        }
        moves.push(Move::Call { who, registers: Box::new(registers), store, late: false });
    };
    let [space, client, server, identity] = scene.shelf;
    let keeps = scene.at(system, identity).and_then(|id| match &system.objects[&id].body {
        Body::Reference(r) if r.keeps => Some(r.target.id),
        _ => None,
    });
    let saved = scene.has_saved(system);
    for &(handle, task) in &scene.tasks {
        let Some(id) = scene.at(system, handle) else { continue };
        let object = &system.objects[&id];
        let ty = object.body.ty();
        let vacant = object.phase == Phase::Vacant;
        let thread = match &object.body {
            Body::Thread(t) => Some(t),
            _ => None,
        };
        let stopped = thread.is_some_and(|t| t.stops > 0);
        match task {
            Task::Destroy => call(Common::Destroy.of(ty), &[handle, 0], None),
            Task::Stop if stopped => call(Call::ThreadResume, &[handle], None),
            Task::Stop => call(Call::ThreadStop, &[handle], None),
            Task::Cut => match (keeps == Some(id), object.phase, saved) {
                (true, Phase::Vacant, _) => call(Common::Create.of(ty), &[handle, identity], None),
                (_, Phase::Vacant, _) => {}
                (_, Phase::Fresh, true) => {
                    call(Call::ThreadSetState, &[handle, SAVED, space, client, server], None);
                }
                (_, _, false) if !stopped => call(Call::ThreadStop, &[handle], None),
                (_, _, false) => {
                    call(Call::ThreadGetState, &[handle, SAVED, space, client, server], None);
                    call(Call::ThreadResume, &[handle], None);
                }
                (_, _, true) if stopped && keeps.is_none() => {
                    call(Call::ThreadDestroy, &[handle, identity], None);
                }
                _ => {}
            },
            Task::Everything => {
                for row in SYSCALLS.iter().filter(|row| manages(row.call)) {
                    if row.params.first().map(|p| p.1) != Some(Param::Object(ty)) {
                        continue;
                    }
                    match row.params {
                        // The move to the same place: nothing changes, but it must return.
                        [_, (_, Param::Fresh)] => call(row.call, &[handle, handle], None),
                        // The identity is kept in the manager's own reference, or ends.
                        [_, ("identity", _)] => {
                            call(row.call, &[handle, 0], None);
                            if keeps.is_none() && !vacant {
                                call(row.call, &[handle, identity], None);
                            }
                        }
                        [_, (_, Param::Object(Type::Reference))] => {
                            call(row.call, &[handle, server], None);
                        }
                        [_, (_, Param::State), ..] if row.call == Call::ThreadSetState => {
                            let theirs = scene.their_space;
                            let state = Some((SCRATCH, CONTENTS.len()));
                            call(row.call, &[handle, SCRATCH, theirs], state);
                        }
                        [_, (_, Param::State), ..] => {
                            let set = Common::SetState.of(ty) == row.call;
                            let n = CONTENTS.iter().position(|c| set && c.0 == ty);
                            call(row.call, &[handle, SCRATCH], n.map(|n| (SCRATCH, n)));
                        }
                        [_, (_, Param::Rights)] => call(row.call, &[handle, access::ALL], None),
                        _ => call(row.call, &[handle, 1], None),
                    }
                }
                if keeps == Some(id) && vacant {
                    call(Common::Create.of(ty), &[handle, identity], None);
                }
            }
        }
    }
    debug_assert!(scene.shelf.iter().all(|&r| r > OURS && r < THEIRS));
}

/// What the numbers of [`content`] behind [`CONTENTS`] stand for.
#[must_use]
pub fn ends(number: usize) -> String {
    let [client, server] = ENDS[number];
    format!("client end {client:?}, server end {server:?}")
}
