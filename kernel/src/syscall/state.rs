//! `get_state` and `set_state` of every type.
//!
//! `get_state` never changes the object. `set_state` trusts no input: every field and every reference is checked
//! before the first change. `get_state` finds its destination before it gathers the state, so that a fault leaves
//! nothing half done and little work to repeat.

use super::{ceiling, rights, set_priority, Args};
use crate::handle;
use crate::ipc;
use crate::kernel::core;
use crate::memory::Span;
use crate::object::connection::{is_of_connection, End};
use crate::object::mapping::{Change, Mapping};
use crate::object::mutex::Mutex;
use crate::object::port::{Port, Portset};
use crate::object::reference::Reference;
use crate::object::region::{Region, Source};
use crate::object::space::Space;
use crate::object::thread::{self, Hint, Thread};
use crate::object::{self, Link, NonNullLink, Object, Phase, Target};
use crate::stop::{Access, Handled, Stop};
use abi::state::{
    port_flags, space_flags, Stage, Waiting, FPU_BYTES, REGISTER_WORDS, THREAD_WORDS,
};
use abi::{Code, RefKind, Registers, MAX_THREADS, PAGE_SIZE, PRIORITIES, USER_END};

fn invalid() -> Stop {
    Stop::Code(Code::Invalid)
}

/// The reference object, named by an argument, into which the call writes a reference; `None` for the handle 0.
#[cfg_attr(fermata_probe, track_caller)]
fn place(a: Args, handle: u64) -> Result<Option<&'static Reference>, Stop> {
    if handle == 0 {
        return Ok(None);
    }
    handle::find::<Reference>(a.k, a.space, handle).map(Some)
}

fn give(a: Args, place: Option<&'static Reference>, target: Target) {
    if let Some(place) = place {
        let alive = target.alive();
        place.point(a.k, if alive { target } else { Target::Null });
    }
}

/// The object named by a reference argument; `None` for the handle 0 or a null reference.
#[cfg_attr(fermata_probe, track_caller)]
fn named<T: Object>(a: Args, handle: u64) -> Result<Option<&'static T>, Stop> {
    let target = handle::target_at(a.k, a.space, handle)?;
    if matches!(target, Target::Null) {
        return Ok(None);
    }
    target.get::<T>().map(Some).ok_or(Stop::Code(Code::Dead))
}

/// As [`named`], with the caller's own space for 0. A null reference means no space, so that an object that had no
/// space does not end up in the space of the program that restores it.
#[inline(always)]
#[cfg_attr(fermata_probe, track_caller)]
fn named_space(a: Args, handle: u64) -> Result<Option<&'static Space>, Stop> {
    match handle {
        0 => Ok(Some(a.space)),
        _ => named::<Space>(a, handle),
    }
}

#[inline(always)]
#[cfg_attr(fermata_probe, track_caller)]
fn read<const N: usize>(a: Args, address: u64) -> Result<[u64; N], Stop> {
    Ok(Span::words(a.k, a.space, address, N, Access::READ)?.read())
}

/// The destination of a state with `count` words.
#[inline(always)]
#[cfg_attr(fermata_probe, track_caller)]
fn room(a: Args, count: usize) -> Result<Span, Stop> {
    Span::words(a.k, a.space, a.b(), count, Access::WRITE)
}

fn page_range(start: u64, size: u64, limit: u64) -> Result<(), Stop> {
    let pages = (start | size).is_multiple_of(PAGE_SIZE);
    if pages && size <= limit && start <= limit - size {
        Ok(())
    } else {
        Err(invalid())
    }
}

// ---- objects without state -----------------------------------------------------------------------

pub(super) fn nothing_get<T: Object>(a: Args) -> Handled {
    handle::find_body::<T>(a.k, a.space, a.a())?;
    a.done()
}

pub(super) fn nothing_set<T: Object>(a: Args) -> Handled {
    let object = handle::find_body::<T>(a.k, a.space, a.a())?;
    object::opening(a.k, a.t, object.head())?;
    object::opened(a.k, object.head());
    a.done()
}

// ---- mutex ---------------------------------------------------------------------------------------

pub(super) fn mutex_get(a: Args) -> Handled {
    let mutex = handle::find_body::<Mutex>(a.k, a.space, a.a())?;
    room(a, 1)?.write(&[u64::from(mutex.locked.get())]);
    a.done()
}

pub(super) fn mutex_set(a: Args) -> Handled {
    let mutex = handle::find_body::<Mutex>(a.k, a.space, a.a())?;
    let [locked] = read(a, a.b())?;
    if locked > 1 {
        return Err(invalid());
    }
    if locked == 0 {
        // The waiters try again and find the mutex free.
        mutex.waiters.wake_all_or_again(a.k, a.t)?;
    }
    object::opening(a.k, a.t, mutex.head())?;
    mutex.locked.set(locked == 1);
    object::opened(a.k, mutex.head());
    a.done()
}

// ---- mapping -------------------------------------------------------------------------------------

pub(super) fn mapping_get(a: Args) -> Handled {
    let m = handle::find_body::<Mapping>(a.k, a.space, a.a())?;
    let (region, space) = (place(a, a.c())?, place(a, a.d())?);
    let words = [
        m.start.get(),
        m.size.get(),
        m.offset.get(),
        m.protection.get(),
    ];
    room(a, words.len())?.write(&words);
    let (r, s) = (m.region.get().link(), m.space.get());
    give(a, region, Target::of(r));
    give(a, space, Target::of(s));
    a.done()
}

pub(super) fn mapping_set(a: Args) -> Handled {
    let m = handle::find_body::<Mapping>(a.k, a.space, a.a())?;
    let [start, size, offset, protection] = read(a, a.b())?;
    let region = named::<Region>(a, a.c())?;
    let space = named_space(a, a.d())?;
    rights(protection)?;
    page_range(start, size, USER_END)?;
    page_range(offset, size, !(PAGE_SIZE - 1))?;
    if size > 0 && region.is_some() && space.is_some_and(|space| !space.holds(start, size)) {
        return Err(invalid());
    }
    object::opening(a.k, a.t, m.head())?;
    let state = [start, size, offset, protection];
    let change = match region.zip(space).filter(|_| size > 0) {
        Some((region, space)) => m.change(space, region, state),
        None => Some(Change::Withdraw),
    };
    m.make(a.k, change.ok_or(Stop::Code(Code::InUse))?, state);
    object::opened(a.k, m.head());
    a.done()
}

// ---- region --------------------------------------------------------------------------------------

pub(super) fn region_get(a: Args) -> Handled {
    let r = handle::find_body::<Region>(a.k, a.space, a.a())?;
    let (space, keeper) = (place(a, a.c())?, place(a, a.d())?);
    let words = [r.start.get(), r.size.get(), r.protection.get()];
    room(a, words.len())?.write(&words);
    let (s, port) = (r.space.get(), r.keeper.get());
    give(a, space, Target::of(s));
    give(a, keeper, port);
    a.done()
}

pub(super) fn region_set(a: Args) -> Handled {
    let r = handle::find_body::<Region>(a.k, a.space, a.a())?;
    let [start, size, protection] = read(a, a.b())?;
    let space = named_space(a, a.c())?;
    let keeper = named::<Port>(a, a.d())?;
    rights(protection)?;
    page_range(start, size, USER_END)?;
    if r.source.get() == Source::Memory {
        return Err(invalid());
    }
    object::opening(a.k, a.t, r.head())?;
    r.withdraw(a.k);
    r.start.set(start);
    r.size.set(size);
    r.protection.set(protection);
    r.keeper.set(a.k, keeper.map_or(Target::Null, Target::to));
    if let Some(space) = space {
        r.export(space);
    }
    object::opened(a.k, r.head());
    a.done()
}

// ---- port ----------------------------------------------------------------------------------------

pub(super) fn port_get(a: Args) -> Handled {
    let port = handle::find_body::<Port>(a.k, a.space, a.a())?;
    let portset = place(a, a.c())?;
    room(a, 2)?.write(&[port.alias.get(), port.flags()]);
    give(a, portset, Target::of(port.portset()));
    a.done()
}

pub(super) fn port_set(a: Args) -> Handled {
    let port = handle::find_body::<Port>(a.k, a.space, a.a())?;
    let [alias, flags] = read(a, a.b())?;
    let portset = named::<Portset>(a, a.c())?;
    if flags & !port_flags::ALL != 0 {
        return Err(invalid());
    }
    let portset = portset.map_or(Link::NONE, Link::to);
    port.disperse_for(a.k, a.t, portset, flags)?;
    object::opening(a.k, a.t, port.head())?;
    port.alias.set(alias);
    port.set(portset, flags);
    object::opened(a.k, port.head());
    port.list(a.k);
    a.done()
}

// ---- space ---------------------------------------------------------------------------------------

pub(super) fn space_get(a: Args) -> Handled {
    let s = handle::find_body::<Space>(a.k, a.space, a.a())?;
    let keeper = place(a, a.c())?;
    let account = s.account.get();
    let flags = if s.foreign.get() {
        space_flags::FOREIGN
    } else {
        0
    };
    let words = [
        flags,
        account.map_or(0, |c| c.quota()),
        account.map_or(0, |c| c.used()),
        s.clock_offset.get(),
        u64::from(s.max_priority.get()),
    ];
    room(a, words.len())?.write(&words);
    let port = s.keeper.get();
    give(a, keeper, port);
    a.done()
}

pub(super) fn space_set(a: Args) -> Handled {
    let s = handle::find_body::<Space>(a.k, a.space, a.a())?;
    let [flags, quota, _, clock_offset, max_priority] = read(a, a.b())?;
    let keeper = named::<Port>(a, a.c())?;
    if flags & !space_flags::FOREIGN != 0 || max_priority >= u64::from(PRIORITIES) {
        return Err(invalid());
    }
    ceiling(a, None, max_priority)?;
    let account = s.account.get().ok_or(invalid())?;
    account.check_quota(quota, a.space.account.get())?;
    if s.clock_offset.get() != clock_offset {
        s.wake_timed(a.k, a.t)?;
    }
    account.set_quota(a.k, quota);
    s.max_priority.set(max_priority as u8);
    s.set_foreign(a.k, flags & space_flags::FOREIGN != 0);
    s.clock_offset.set(clock_offset);
    s.keeper.set(a.k, keeper.map_or(Target::Null, Target::to));
    object::opened(a.k, s.head());
    a.done()
}

// ---- thread --------------------------------------------------------------------------------------

/// The size of a thread's whole state in words, including the FPU's state.
const STATE_WORDS: usize = THREAD_WORDS + FPU_BYTES / 8;

pub(super) fn thread_get(a: Args) -> Handled {
    let t = handle::find_body::<Thread>(a.k, a.space, a.a())?;
    let (space, client, server) = (place(a, a.c())?, place(a, a.d())?, place(a, a.e())?);
    let room = room(a, STATE_WORDS)?;
    let mut words = [0; THREAD_WORDS];
    // In one section: `t` may not be stopped, and it could run in between if an interrupt came.
    let (registers, fpu) = core(|| (t.ctx.registers(), t.ctx.fpu()));
    words[..REGISTER_WORDS].copy_from_slice(&registers.to_words());
    words[REGISTER_WORDS..].copy_from_slice(&[
        t.ctx.tag.get(),
        u64::from(t.priority.get()),
        u64::from(t.stop_count.get()),
        u64::from(t.interrupt.get()),
        t.client().stage.get() as u64,
        t.server().stage.get() as u64,
        u64::from(t.exception_delivered()),
        u64::from(t.exception.get()),
        t.exception_address.get(),
        t.waiting() as u64,
        t.waiting_for(),
        0,
    ]);
    room.write(&words);
    room.write_bytes(THREAD_WORDS * 8, &fpu);
    let (c, v) = (t.client().shown(), t.server().shown());
    give(a, space, t.space().map_or(Target::Null, Target::to));
    give(a, client, end_target(c, Target::ServerEnd));
    give(a, server, end_target(v, Target::Client));
    a.done()
}

fn end_target(link: Link<Thread>, role: fn(NonNullLink<Thread>) -> Target) -> Target {
    link.non_null().map_or(Target::Null, role)
}

/// The peer that a reference to an end of a thread's connection names, if the end has this role.
#[cfg_attr(fermata_probe, track_caller)]
fn named_end(
    a: Args,
    handle: u64,
    role: fn(Target) -> Option<NonNullLink<Thread>>,
) -> Result<Link<Thread>, Stop> {
    let target = handle::target_at(a.k, a.space, handle)?;
    match role(target) {
        Some(link) if target.alive() => Ok(link.link()),
        None if target == Target::Null => Ok(Link::NONE),
        _ => Err(Stop::Code(Code::Dead)),
    }
}

fn server_end(target: Target) -> Option<NonNullLink<Thread>> {
    match target {
        Target::ServerEnd(link) => Some(link),
        _ => None,
    }
}

fn client_end(target: Target) -> Option<NonNullLink<Thread>> {
    match target {
        Target::ClientEnd(link) | Target::Client(link) => Some(link),
        _ => None,
    }
}

fn flag(value: u64) -> Result<bool, Stop> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(invalid()),
    }
}

/// Sets one end of a connection. If the peer or the kind of connection changes, `drop_end` first ends the old
/// connection.
fn set_end(end: End<'_>, stage: Stage, peer: Link<Thread>, drop_end: impl FnOnce()) {
    let old = end.stage.get();
    let same = end.peer() == peer;
    // The server has ended the connection in order since this state was taken.
    let finished = old == Stage::Finished && matches!(stage, Stage::Receiving | Stage::Over);
    if finished && same {
        return;
    }
    // A request is not a connection, even with the same peer.
    let kind = |s: Stage| {
        if is_of_connection(s) {
            Stage::Sending
        } else {
            s
        }
    };
    if old != Stage::None && !(same && kind(old) == kind(stage)) {
        drop_end();
    }
    end.set(stage, peer);
}

pub(super) fn thread_set(a: Args) -> Handled {
    let t = handle::find_body::<Thread>(a.k, a.space, a.a())?;
    if t.stop_count.get() == 0 {
        return Err(Stop::Code(Code::NotStopped));
    }
    let state = Span::words(a.k, a.space, a.b(), STATE_WORDS, Access::READ)?;
    let space = named_space(a, a.c())?;
    let client_peer = named_end(a, a.d(), server_end)?;
    let server_peer = named_end(a, a.e(), client_end)?;
    let is_keeper = matches!(
        handle::target_at(a.k, a.space, a.e())?,
        Target::ClientEnd(_)
    );

    let words: [u64; THREAD_WORDS] = state.read();
    let mut register_words = [0; REGISTER_WORDS];
    register_words.copy_from_slice(&words[..REGISTER_WORDS]);
    let registers = Registers::from_words(&register_words);
    let [tag, priority, stops, interrupt, client, server, delivered, exception, address, ..] =
        words[REGISTER_WORDS..]
    else {
        return Err(invalid());
    };
    let client = Stage::from_raw(client).ok_or(invalid())?;
    let server = Stage::from_raw(server).ok_or(invalid())?;
    let (interrupt, delivered) = (flag(interrupt)?, flag(delivered)?);
    let client_ok = match client {
        Stage::None | Stage::Finished => client_peer.is_none(),
        Stage::Call | Stage::Fault | Stage::Exception => false,
        _ => true,
    };
    let server_ok = match server {
        Stage::None => server_peer.is_none(),
        Stage::Finished => false,
        _ => true,
    };
    let sound = hal::user_registers_ok(&registers)
        && priority < u64::from(PRIORITIES)
        && (1..=u64::from(u32::MAX)).contains(&stops)
        && exception <= u64::from(u8::MAX)
        && client_ok
        && server_ok;
    if !sound {
        return Err(invalid());
    }
    ceiling(a, space, priority)?;
    let joins = |space: &Space| !t.space().is_some_and(|its| core::ptr::eq(its, space));
    if space.is_some_and(|space| joins(space) && space.population.get() == MAX_THREADS) {
        return Err(Stop::Code(Code::NoMemory));
    }
    object::opening(a.k, a.t, t.head())?;

    // A keeper's reply that came while the thread was vacant counts if this state waits for one.
    let (registers, delivered) = match t.hint.get() {
        Hint::Answered { short } if delivered => {
            let answer = t.ctx.registers();
            (thread::answered(registers, &answer, short), false)
        }
        _ => (registers, delivered),
    };
    t.ctx.set_registers(&registers);
    set_fpu(t, &state, THREAD_WORDS * 8);
    t.drop_activation();
    t.ctx.tag.set(tag);
    set_priority(a.k, t, priority as u8);
    t.stop_count.set(stops as u32);
    // An interrupt that came while the thread was vacant stays pending.
    core(|| {
        let pending = t.head().phase() == Phase::Fresh && t.interrupt.get();
        t.interrupt.set(interrupt || pending);
    });
    t.set_exception_delivered(delivered);
    t.exception.set(exception as u8);
    t.exception_address.set(address);
    // If the exception is delivered, the server that has it may still reply.
    if !(delivered && matches!(t.hint.get(), Hint::Excepted(_))) {
        t.hint.set(Hint::None);
    }
    t.waiting.set(Waiting::Nothing);
    set_end(t.client(), client, client_peer, || t.drop_client_end(a.k));
    set_end(t.server(), server, server_peer, || t.drop_server_end(a.k));
    if let (Stage::Exception, true, Some(client)) = (server, is_keeper, server_peer.get()) {
        ipc::take_over_exception(a.k, t, client);
    }
    t.attach(a.k, space);
    object::opened(a.k, t.head());
    a.done()
}

/// Sets the thread's FPU state from the bytes at this offset of `from`.
fn set_fpu(t: &Thread, from: &Span, offset: usize) {
    let mut fpu = [0; FPU_BYTES];
    from.read_bytes(offset, &mut fpu);
    core(|| t.ctx.set_fpu(&fpu));
}

/// `thread_answer`: does what a keeper's reply does, for a caller that holds the thread's handle.
pub(super) fn thread_answer(a: Args) -> Handled {
    let t = a.open_object::<Thread>()?;
    if !t.exception_delivered() {
        return Err(Stop::Code(Code::WrongStage));
    }
    let registers = Registers::from_words(&read(a, a.b())?);
    let fpu = match a.c() {
        0 => None,
        at => Some(Span::words(a.k, a.space, at, FPU_BYTES / 8, Access::READ)?),
    };
    if !hal::user_registers_ok(&registers) {
        return Err(invalid());
    }
    t.ctx.set_registers(&registers);
    if let Some(from) = fpu {
        set_fpu(t, &from, 0);
    }
    ipc::end_exception_of(a.k, t);
    a.done()
}

// ---- reference -----------------------------------------------------------------------------------

pub(super) fn reference_get(a: Args) -> Handled {
    let reference = handle::find_body::<Reference>(a.k, a.space, a.a())?;
    let copy = place(a, a.c())?;
    let target = reference.target.get();
    let kind = if target.alive() {
        target.kind()
    } else {
        RefKind::Null
    };
    room(a, 1)?.write(&[kind as u64]);
    give(a, copy, target);
    a.done()
}

pub(super) fn reference_set(a: Args) -> Handled {
    let reference = handle::find_body::<Reference>(a.k, a.space, a.a())?;
    let [kind] = read(a, a.b())?;
    let target = handle::target_at(a.k, a.space, a.c())?;
    if RefKind::from_raw(kind) != Some(target.kind()) {
        return Err(invalid());
    }
    object::opening(a.k, a.t, reference.head())?;
    reference.point(a.k, target);
    object::opened(a.k, reference.head());
    a.done()
}
