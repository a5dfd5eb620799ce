//! System calls: dispatch, and the checks of everything that a program passes.
//!
//! A handler reads its arguments from the frame, makes every check, and only then changes anything (rule A2).
//! `common` has the six calls of every type, `state` the state of each type, `search` the search of a region,
//! `probe` the call of a kernel for cut tests, this module the rest.

mod common;
mod probe;
mod search;
mod state;

use crate::config::FULL;
use crate::ipc::{self, keeper};
use crate::kept::Continuation;
use crate::kernel::core;
use crate::object::cond::Cond;
use crate::object::mapping::Mapping;
use crate::object::mutex::Mutex;
use crate::object::reference::Reference;
use crate::object::region::{Region, Source};
use crate::object::space::Space;
use crate::object::thread::{Hint, Run, Thread, Word};
use crate::object::{self, Object, Target};
use crate::stop::{Handled, Handler, Outcome, Stop};
use crate::{handle, CONFIG, K};
use abi::state::Waiting;
use abi::{access, Call as Entry, Code, Exception, PAGE_SIZE, PRIORITIES, SYSCALLS};

/// The arguments of an ordinary call (one that is not IPC), with the calling thread and its space.
#[derive(Clone, Copy)]
pub(crate) struct Args {
    k: K,
    t: &'static Thread,
    space: &'static Space,
}

impl Args {
    fn a(self) -> u64 {
        self.t.ctx.parameter(0).get()
    }
    fn b(self) -> u64 {
        self.t.ctx.parameter(1).get()
    }
    fn c(self) -> u64 {
        self.t.ctx.parameter(2).get()
    }
    fn d(self) -> u64 {
        self.t.ctx.parameter(3).get()
    }
    fn e(self) -> u64 {
        self.t.ctx.parameter(4).get()
    }

    /// The object at the handle in the first argument.
    #[cfg_attr(fermata_probe, track_caller)]
    fn object<T: Object>(self) -> Result<&'static T, Stop> {
        handle::find(self.k, self.space, self.a())
    }

    /// As [`Args::object`], for a call that manages the object.
    #[cfg_attr(fermata_probe, track_caller)]
    fn open_object<T: Object>(self) -> Result<&'static T, Stop> {
        handle::find_open(self.k, self.space, self.a())
    }

    /// Completes the call with `Ok`.
    fn done(self) -> Handled {
        self.t.finish(Code::Ok);
        Ok(Outcome::Done)
    }

    /// Completes the call with `Ok` and a value in the first parameter.
    fn value(self, value: u64) -> Handled {
        self.t.ctx.parameter(0).set(value);
        self.done()
    }

    /// Completes the call with this code.
    fn code(self, code: Code) -> Handled {
        self.t.finish(code);
        Ok(Outcome::Done)
    }
}

/// The handler for every number of a call.
pub(crate) static HANDLERS: [Handler; 256] = {
    let mut all: [Handler; 256] = [no_call; 256];
    let mut i = 0;
    while i < ORDINARY.len() {
        all[ORDINARY[i].0 as usize] = ORDINARY[i].1;
        i += 1;
    }
    all[Entry::ThreadYield as usize] = thread_yield_short;
    let mut i = 0;
    while i < FAST_PATHS.len() {
        all[FAST_PATHS[i].0 as usize] = FAST_PATHS[i].1;
        i += 1;
    }
    if CONFIG.probe {
        all[abi::probe::CALL as usize] = |k, t| ordinary(k, t, probe::control);
    }
    let mut i = 0;
    while i < SYSCALLS.len() {
        let call = SYSCALLS[i].call;
        if abi::ipc::plan(call).is_ipc() {
            all[call as usize] = match ipc::fast::handler(call) {
                Some(short_cut) => short_cut,
                None => ipc::call,
            };
        } else {
            let mut found = false;
            let mut j = 0;
            while j < ORDINARY.len() {
                found |= ORDINARY[j].0 as u8 == call as u8;
                j += 1;
            }
            assert!(found, "an entrypoint without a handler");
        }
        i += 1;
    }
    all
};

/// Makes the call in the frame of the running thread again. Returns the thread to resume.
pub(crate) fn redo(k: K, t: &'static Thread) -> &'static Thread {
    HANDLERS[t.ctx.call().get() as u8 as usize](k, t)
}

/// A table of the handlers of ordinary calls. Each is compiled into a function of its own that does the whole
/// call, from decoding the frame to ending the trap.
macro_rules! handlers {
    ($a:ident: $($call:ident => $handle:expr,)*) => {
        const ORDINARY: &[(Entry, Handler)] = &[$((Entry::$call, {
            #[inline(never)]
            fn handler(k: K, t: &'static Thread) -> &'static Thread {
                ordinary(k, t, |$a| $handle)
            }
            handler
        }),)*];
    };
}

handlers! { a:
    MutexCreate => common::create::<Mutex>(a),
    MutexDestroy => common::destroy::<Mutex>(a),
    MutexMove => common::relocate::<Mutex>(a),
    MutexReference => common::reference::<Mutex>(a),
    MutexGetState => state::mutex_get(a),
    MutexSetState => state::mutex_set(a),
    CondCreate => common::create::<Cond>(a),
    CondDestroy => common::destroy::<Cond>(a),
    CondMove => common::relocate::<Cond>(a),
    CondReference => common::reference::<Cond>(a),
    CondGetState => state::nothing_get::<Cond>(a),
    CondSetState => state::nothing_set::<Cond>(a),
    MappingCreate => common::create::<Mapping>(a),
    MappingDestroy => common::destroy::<Mapping>(a),
    MappingMove => common::relocate::<Mapping>(a),
    MappingReference => common::reference::<Mapping>(a),
    MappingGetState => state::mapping_get(a),
    MappingSetState => state::mapping_set(a),
    RegionCreate => common::create::<Region>(a),
    RegionDestroy => common::destroy::<Region>(a),
    RegionMove => common::relocate::<Region>(a),
    RegionReference => common::reference::<Region>(a),
    RegionGetState => state::region_get(a),
    RegionSetState => state::region_set(a),
    PortCreate => common::create::<object::port::Port>(a),
    PortDestroy => common::destroy::<object::port::Port>(a),
    PortMove => common::relocate::<object::port::Port>(a),
    PortReference => common::reference::<object::port::Port>(a),
    PortGetState => state::port_get(a),
    PortSetState => state::port_set(a),
    PortsetCreate => common::create::<object::port::Portset>(a),
    PortsetDestroy => common::destroy::<object::port::Portset>(a),
    PortsetMove => common::relocate::<object::port::Portset>(a),
    PortsetReference => common::reference::<object::port::Portset>(a),
    PortsetGetState => state::nothing_get::<object::port::Portset>(a),
    PortsetSetState => state::nothing_set::<object::port::Portset>(a),
    SpaceCreate => common::create_space(a),
    SpaceDestroy => common::destroy::<Space>(a),
    SpaceMove => common::relocate::<Space>(a),
    SpaceReference => common::reference::<Space>(a),
    SpaceGetState => state::space_get(a),
    SpaceSetState => state::space_set(a),
    ThreadCreate => common::create::<Thread>(a),
    ThreadDestroy => common::destroy::<Thread>(a),
    ThreadMove => common::relocate::<Thread>(a),
    ThreadReference => common::reference::<Thread>(a),
    ThreadGetState => state::thread_get(a),
    ThreadSetState => state::thread_set(a),
    ReferenceCreate => common::create::<Reference>(a),
    ReferenceDestroy => common::destroy::<Reference>(a),
    ReferenceMove => common::relocate::<Reference>(a),
    ReferenceReference => common::reference::<Reference>(a),
    ReferenceGetState => state::reference_get(a),
    ReferenceSetState => state::reference_set(a),
    MutexLock => mutex_lock(a, a.object()?),
    MutexTrylock => mutex_trylock(a, a.object()?),
    MutexUnlock => mutex_unlock(a, a.object()?),
    CondWait => cond_wait(a, u64::MAX),
    CondWaitUntil => cond_wait(a, a.c()),
    CondSignal => cond_signal(a, a.object()?),
    CondBroadcast => cond_broadcast(a),
    MappingProtect => mapping_protect(a),
    RegionProtect => region_protect(a),
    RegionSearch => search::region_search(a),
    ThreadSelf => a.value(a.t.ctx.tag.get()),
    ThreadYield => thread_yield(a),
    ThreadSleepUntil => thread_sleep_until(a),
    ThreadStop => thread_stop(a),
    ThreadResume => thread_resume(a),
    ThreadInterrupt => thread_interrupt(a, handle::target_at(a.k, a.space, a.a())?),
    ThreadWaitInterrupt => thread_wait_interrupt(a, u64::MAX),
    ThreadWaitInterruptUntil => thread_wait_interrupt(a, a.a()),
    ThreadSetPriority => thread_set_priority(a),
    ThreadReferenceClientEnd => common::reference_end(a, Target::ClientEnd),
    ThreadReferenceServerEnd => common::reference_end(a, Target::ServerEnd),
    ReferenceCheck => reference_check(a),
    ReferenceEqual => reference_equal(a),
    ClockGet => a.value(a.space.clock()),
    DeviceAttachInterrupt => device_attach_interrupt(a),
    DeviceGrantPorts => device_grant_ports(a),
    DeviceMapPhysical => device_map_physical(a),
    DeviceDetachInterrupt => device_detach_interrupt(a),
    DeviceRevokePorts => device_revoke_ports(a),
    DeviceCollocate => device_collocate(a),
    ServerRelease => ipc::release(a.t),
    ThreadAnswer => state::thread_answer(a),
    SpaceSetPayer => space_set_payer(a),
}

/// A table of fast paths, for calls whose first argument is a handle that the cache of lookups has. All other
/// cases go to the handler of the first table, a separate function, so that the fast path need not save registers
/// for functions that only the other cases call.
macro_rules! fast_paths {
    ($a:ident, $object:ident: $($call:ident $ty:ty => $handle:expr,)*) => {
        const FAST_PATHS: &[(Entry, Handler)] = &[$((Entry::$call, {
            fn handler(k: K, t: &'static Thread) -> &'static Thread {
                match found::<$ty>(k, t) {
                    Some(($a, $object)) => done(k, t, $handle),
                    None => (const { ordinary_handler(Entry::$call) })(k, t),
                }
            }
            handler
        }),)*];
    };
}

fast_paths! { a, object:
    MutexLock Mutex => mutex_lock(a, object),
    MutexTrylock Mutex => mutex_trylock(a, object),
    MutexUnlock Mutex => mutex_unlock(a, object),
    CondSignal Cond => cond_signal(a, object),
    ThreadInterrupt Reference => thread_interrupt(a, object.target.get()),
}

const fn ordinary_handler(call: Entry) -> Handler {
    let mut i = 0;
    while ORDINARY[i].0 as u8 != call as u8 {
        i += 1;
    }
    ORDINARY[i].1
}

/// The arguments, and the object that the cache has for the first one. `None` if the call has to take the
/// general path.
#[inline(always)]
fn found<T: Object>(k: K, t: &'static Thread) -> Option<(Args, &'static T)> {
    if CONFIG.probe {
        return None;
    }
    let space = t.goes_straight()?;
    let object = T::handles(k).probe(space, t.ctx.parameter(0).get())?;
    Some((Args { k, t, space }, object))
}

/// Runs an ordinary call: decodes the arguments, calls the handler and ends the trap.
#[inline(always)]
fn ordinary(k: K, t: &'static Thread, handle: impl FnOnce(Args) -> Handled) -> &'static Thread {
    let space = match t.goes_straight() {
        Some(space) => space,
        None => match keeper::prepare_ordinary(k, t) {
            Ok(space) => space,
            Err(next) => return next,
        },
    };
    done(k, t, handle(Args { k, t, space }))
}

/// Ends the trap of an ordinary call.
#[inline(always)]
fn done(k: K, t: &'static Thread, handled: Handled) -> &'static Thread {
    match handled {
        Ok(_) => k.exit_trap(t),
        Err(stop) => k.stopped(t, stop),
    }
}

/// The handler of entrypoints that belong to no call.
fn no_call(k: K, t: &'static Thread) -> &'static Thread {
    ordinary(k, t, |a| {
        Err(Stop::Exception(Exception::NoCall, a.t.ctx.call().get()))
    })
}

// ---- mutex and cond ------------------------------------------------------------------------------

fn mutex_lock(a: Args, mutex: &'static Mutex) -> Handled {
    if mutex.locked.replace(true) {
        a.t.wait_on(&mutex.waiters, Waiting::Mutex);
        goes_on_to_lock(a.t);
        return Ok(Outcome::Wait);
    }
    a.done()
}

/// Sets the continuation of a thread that has begun to wait for a mutex, and whose frame is a `mutex_lock`.
#[inline(always)]
fn goes_on_to_lock(t: &Thread) {
    t.kept.set(Continuation {
        function: relock,
        words: [t.ctx.parameter(0).get(), 0, 0, 0],
    });
}

/// The continuation: locks the mutex without decoding the arguments again, if the mutex is free and the cache has its
/// handle.
fn relock(k: K, t: &'static Thread, [handle, ..]: [u64; 4]) -> &'static Thread {
    let same =
        t.ctx.call().get() as u8 == Entry::MutexLock as u8 && t.ctx.parameter(0).get() == handle;
    let space = t.goes_straight().filter(|_| same);
    let mutexes = Mutex::handles(k);
    if let Some(mutex) = space.and_then(|space| mutexes.probe(space, handle)) {
        if !mutex.locked.replace(true) {
            t.finish(abi::Code::Ok);
            return k.exit_trap(t);
        }
    }
    redo(k, t)
}

fn mutex_trylock(a: Args, mutex: &'static Mutex) -> Handled {
    let code = if mutex.locked.replace(true) {
        Code::WouldBlock
    } else {
        Code::Ok
    };
    a.code(code)
}

#[inline(always)]
fn mutex_unlock(a: Args, mutex: &'static Mutex) -> Handled {
    if !mutex.locked.get() {
        return Err(Stop::Code(Code::Invalid));
    }
    unlock(a.k, mutex);
    a.done()
}

/// Hands the lock over to the first waiter, whose call is then complete, or frees it.
fn unlock(k: K, mutex: &'static Mutex) {
    match mutex.waiters.first() {
        Some(waiter) => waiter.complete(k, Code::Ok),
        None => mutex.locked.set(false),
    }
}

/// A wait on a cond is an unlock and a `mutex_lock` with a pause in between: the frame becomes the `mutex_lock`
/// before the pause begins.
fn cond_wait(a: Args, deadline: u64) -> Handled {
    let cond = a.object::<Cond>()?;
    let mutex = handle::find::<Mutex>(a.k, a.space, a.b())?;
    if !mutex.locked.get() {
        return Err(Stop::Code(Code::Invalid));
    }
    let handle = a.a();
    a.t.ctx.parameter(0).set(a.b());
    a.t.become_call(Entry::MutexLock);
    unlock(a.k, mutex);
    a.t.wait_on(cond.entrance(), Waiting::Cond);
    goes_on_to_lock(a.t);
    a.t.hint.set(Hint::Cond(Word(handle)));
    if deadline != u64::MAX {
        a.k.add_deadline(a.t, a.space.machine_time(deadline));
    }
    Ok(Outcome::Wait)
}

fn cond_signal(a: Args, cond: &'static Cond) -> Handled {
    cond.signal(a.k);
    a.done()
}

fn cond_broadcast(a: Args) -> Handled {
    let cond = a.object::<Cond>()?;
    cond.broadcast(a.k, a.t)?;
    a.done()
}

// ---- memory --------------------------------------------------------------------------------------

fn rights(value: u64) -> Result<u64, Stop> {
    if value & !access::ALL == 0 {
        Ok(value)
    } else {
        Err(Stop::Code(Code::Invalid))
    }
}

fn mapping_protect(a: Args) -> Handled {
    let mapping = a.open_object::<Mapping>()?;
    mapping.protection.set(rights(a.b())?);
    mapping.forget(a.k);
    a.done()
}

fn region_protect(a: Args) -> Handled {
    let region = a.open_object::<Region>()?;
    region.protection.set(rights(a.b())?);
    region.forget_all(a.k);
    a.done()
}

// ---- threads -------------------------------------------------------------------------------------

fn thread_yield(a: Args) -> Handled {
    a.k.cpu().sched.yield_turn();
    a.done()
}

/// The fast path of `thread_yield`, for the case that the next thread of the same priority runs.
fn thread_yield_short(k: K, t: &'static Thread) -> &'static Thread {
    if FULL || CONFIG.probe || CONFIG.counters || t.goes_straight().is_none() {
        return ordinary(k, t, thread_yield);
    }
    let Some(next) = k.cpu().sched.pass_turn(k, t) else {
        return ordinary(k, t, thread_yield);
    };
    t.finish(Code::Ok);
    k.tail_switch_to(t, next)
}

fn thread_sleep_until(a: Args) -> Handled {
    let at = a.space.machine_time(a.a());
    if at <= hal::now() {
        return a.done();
    }
    a.t.wait_plain(Waiting::Deadline);
    a.k.add_deadline(a.t, at);
    Ok(Outcome::Wait)
}

fn thread_stop(a: Args) -> Handled {
    let target = a.open_object::<Thread>()?;
    // If a thread stops itself, its call must be complete before it stops.
    a.t.finish(Code::Ok);
    target.stop(a.k);
    Ok(Outcome::Done)
}

fn thread_resume(a: Args) -> Handled {
    let target = a.open_object::<Thread>()?;
    if target.stop_count.get() == 0 {
        return Err(Stop::Code(Code::Invalid));
    }
    target.resume(a.k);
    a.done()
}

fn thread_interrupt(a: Args, target: Target) -> Handled {
    // An interrupt for a vacant thread is kept by its identity.
    let thread = target.get::<Thread>().ok_or(Stop::Code(Code::Dead))?;
    thread.interrupt(a.k);
    a.done()
}

fn thread_wait_interrupt(a: Args, deadline: u64) -> Handled {
    a.k.lines.unmask(a.t);
    // An interrupt that comes after this is found when the call releases the lock.
    if core(|| a.t.interrupt.take()) {
        return a.done();
    }
    let mut at = u64::MAX;
    if deadline != u64::MAX {
        at = a.space.machine_time(deadline);
        if at <= hal::now() {
            return Err(Stop::Code(Code::TimedOut));
        }
    }
    a.t.wait_plain(Waiting::Interrupt);
    if at != u64::MAX {
        a.k.add_deadline(a.t, at);
    }
    Ok(Outcome::Wait)
}

fn thread_set_priority(a: Args) -> Handled {
    let target = a.open_object::<Thread>()?;
    if a.b() >= u64::from(PRIORITIES) {
        return Err(Stop::Code(Code::Invalid));
    }
    ceiling(a, target.space(), a.b())?;
    set_priority(a.k, target, a.b() as u8);
    a.done()
}

/// Refuses a priority above the ceiling of the caller's space or of the thread's space.
fn ceiling(a: Args, space: Option<&'static Space>, priority: u64) -> Result<(), Stop> {
    let most = |space: &Space| u64::from(space.max_priority.get());
    if priority <= most(a.space) && space.is_none_or(|space| priority <= most(space)) {
        Ok(())
    } else {
        Err(Stop::Code(Code::Denied))
    }
}

/// Sets the priority of a thread, wherever it is queued.
fn set_priority(k: K, target: &'static Thread, priority: u8) {
    core(|| {
        if target.run.get() == Run::Ready {
            k.cpu_of(target).sched.remove(target);
            target.priority.set(priority);
            k.cpu_of(target).sched.add(target);
        } else {
            k.cpu_of(target).deadlines.with_priority(target, priority);
            crate::queue::requeue(target);
        }
    });
}

// ---- references ----------------------------------------------------------------------------------

fn reference_check(a: Args) -> Handled {
    let target = handle::target_at(a.k, a.space, a.a())?;
    if !target.alive() {
        return Err(Stop::Code(Code::Dead));
    }
    a.value(target.kind() as u64)
}

fn reference_equal(a: Args) -> Handled {
    let one: Target = a.object::<Reference>()?.target.get();
    let other: Target = handle::find::<Reference>(a.k, a.space, a.b())?.target.get();
    let code = match one.is_like(other) {
        false => Code::NotFound,
        true if one.alive() => Code::Ok,
        true => Code::Dead,
    };
    a.code(code)
}

// ---- devices -------------------------------------------------------------------------------------

/// Refuses a caller whose first argument is not a reference to the device authority.
#[cfg_attr(fermata_probe, track_caller)]
fn authority(a: Args) -> Result<(), Stop> {
    match handle::target_at(a.k, a.space, a.a())? {
        Target::Authority => Ok(()),
        _ => Err(Stop::Code(Code::Denied)),
    }
}

fn device_attach_interrupt(a: Args) -> Handled {
    authority(a)?;
    let thread = handle::find_open_target::<Thread>(a.k, a.space, a.b())?;
    let code = a.k.lines.attach(a.c(), thread);
    a.code(code)
}

fn device_detach_interrupt(a: Args) -> Handled {
    authority(a)?;
    let code = a.k.lines.detach(a.b());
    a.code(code)
}

fn device_grant_ports(a: Args) -> Handled {
    authority(a)?;
    let space = handle::find_open_target::<Space>(a.k, a.space, a.b())?;
    let (first, count) = (a.c(), a.d());
    // The count has 16 bits.
    if count == 0 || count > 0xffff || first >= 0x1_0000 || count > 0x1_0000 - first {
        return Err(Stop::Code(Code::Invalid));
    }
    if a.k.io_ports.has_any(first, count) {
        return Err(Stop::Code(Code::InUse));
    }
    if space.number_for_ports().is_none() {
        return Err(Stop::Code(Code::NoMemory));
    }
    if !a.k.io_ports.grant(space, first as u16, count as u16) {
        return Err(Stop::Code(Code::InUse));
    }
    ports_changed(space);
    a.done()
}

fn device_revoke_ports(a: Args) -> Handled {
    authority(a)?;
    // A space without a body keeps its ports, and loses them here all the same.
    let target = handle::target_at(a.k, a.space, a.b())?;
    let space = target.get::<Space>().ok_or(Stop::Code(Code::Dead))?;
    if !a.k.io_ports.revoke(space, a.c(), a.d()) {
        return Err(Stop::Code(Code::NotFound));
    }
    ports_changed(space);
    a.done()
}

fn space_set_payer(a: Args) -> Handled {
    let space = handle::find_body::<Space>(a.k, a.space, a.a())?;
    let payer = match a.b() {
        0 => a.space,
        named => handle::find_open_target::<Space>(a.k, a.space, named)?,
    };
    let account = |space: &Space| space.account.get().ok_or(Stop::Code(Code::Denied));
    account(space)?.set_payer(a.k, account(payer)?, account(a.space)?)?;
    a.done()
}

fn device_collocate(a: Args) -> Handled {
    authority(a)?;
    let space = handle::find_open_target::<Space>(a.k, a.space, a.b())?;
    let code = a.k.places.give(a.k, a.c(), space);
    a.code(code)
}

/// Makes the machine load the space's changed I/O ports before any thread runs: the last thread that ran, also while
/// this call was preempted, may be one of the space, with the old ports loaded.
fn ports_changed(space: &'static Space) {
    space.note_ports();
    core(hal::forget_ports);
}

/// Most bytes of device memory that one region exports.
const MAX_DEVICE: u64 = 64 << 20;

fn device_map_physical(a: Args) -> Handled {
    authority(a)?;
    let region = handle::find_open::<Region>(a.k, a.space, a.b())?;
    let (start, size) = (a.c(), a.d());
    let sound = start.is_multiple_of(PAGE_SIZE)
        && size.is_multiple_of(PAGE_SIZE)
        && (PAGE_SIZE..=MAX_DEVICE).contains(&size)
        && start <= u64::from(u32::MAX) * PAGE_SIZE - MAX_DEVICE;
    let first = hal::Pfn((start / PAGE_SIZE) as u32);
    if !sound || !hal::device_frames(first, (size / PAGE_SIZE) as u32) {
        return Err(Stop::Code(Code::Invalid));
    }
    region.withdraw(a.k);
    region.source.set(Source::Device);
    region.start.set(start);
    region.size.set(size);
    region.protection.set(access::READ | access::WRITE);
    a.done()
}
