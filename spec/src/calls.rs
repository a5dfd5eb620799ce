//! What each call does: the six that every type has, then the rest in the order of the table. (Their
//! parameters and results: [`abi::syscalls`].)
//!
//! A call makes all its checks, then its changes (rule A2): after a function here has first changed
//! anything, it has no `?`.

use crate::object::{Body, Phase, Source, Target};
use crate::wait::{Status, Waiting};
use crate::{rights, Handled, Id, Outcome, Stop, System};
use abi::{access, collocated, Call, Code, RefKind, Type, PAGE_SIZE, PRIORITIES, TYPES};
use std::sync::Arc;

/// Pages that `region_search` looks at before others have a turn, at most.
pub const PAGES_PER_TURN: u64 = 512;

/// The thread that makes a call, its space, and the parameters in order.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) t: Id,
    pub(crate) space: Id,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) c: u64,
    pub(crate) d: u64,
    pub(crate) e: u64,
}

impl System {
    /// Does a call.
    pub(crate) fn call(&mut self, t: Id, space: Id, call: Call) -> Handled {
        let r = self.thread(t).registers;
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|n| r.parameter(n));
        let c = Caller { t, space, a, b, c, d, e };
        let number = call as usize - 1;
        if let Some(&ty) = TYPES.get(number / 6) {
            return match number % 6 {
                0 => self.create(c, ty),
                1 => self.destroy_call(c, ty),
                2 => self.move_call(c, ty),
                3 => self.reference_to(c, ty, RefKind::from_raw(ty as u64)),
                4 => self.get_state(c, ty),
                _ => self.set_state(c, ty),
            };
        }
        match call {
            Call::MutexLock => self.mutex_lock(c),
            Call::MutexTrylock => self.mutex_trylock(c),
            Call::MutexUnlock => self.mutex_unlock(c),
            Call::CondWait => self.cond_wait(c, u64::MAX),
            Call::CondWaitUntil => self.cond_wait(c, c.c),
            Call::CondSignal => self.cond_signal(c, false),
            Call::CondBroadcast => self.cond_signal(c, true),
            Call::MappingProtect => self.mapping_protect(c),
            Call::RegionProtect => self.region_protect(c),
            Call::RegionSearch => self.region_search(c),
            Call::ThreadSelf => self.value(c, self.thread(c.t).tag),
            // Which thread runs next is the scheduler's affair.
            Call::ThreadYield => self.done(c),
            Call::ThreadSleepUntil => self.thread_sleep_until(c),
            Call::ThreadStop => self.thread_stop(c),
            Call::ThreadResume => self.thread_resume(c),
            Call::ThreadInterrupt => self.thread_interrupt(c),
            Call::ThreadWaitInterrupt => self.thread_wait_interrupt(c, u64::MAX),
            Call::ThreadWaitInterruptUntil => self.thread_wait_interrupt(c, c.a),
            Call::ThreadSetPriority => self.thread_set_priority(c),
            Call::ThreadReferenceClientEnd => {
                self.reference_to(c, Type::Thread, Some(RefKind::ClientEnd))
            }
            Call::ThreadReferenceServerEnd => {
                self.reference_to(c, Type::Thread, Some(RefKind::ServerEnd))
            }
            Call::ReferenceCheck => self.reference_check(c),
            Call::ReferenceEqual => self.reference_equal(c),
            Call::ClockGet => self.value(c, self.clock(c.space)),
            Call::DeviceAttachInterrupt => self.device_attach_interrupt(c),
            Call::DeviceGrantPorts => self.device_grant_ports(c),
            Call::DeviceMapPhysical => self.device_map_physical(c),
            Call::DeviceDetachInterrupt => self.device_detach_interrupt(c),
            Call::DeviceRevokePorts => self.device_revoke_ports(c),
            Call::DeviceCollocate => self.device_collocate(c),
            Call::ServerRelease => self.server_release(c),
            Call::ThreadAnswer => self.thread_answer(c),
            Call::SpaceSetPayer => self.space_set_payer(c),
            // All others are sequences of stages, which their names say.
            _ => self.ipc(t, call),
        }
    }

    pub(crate) fn done(&mut self, c: Caller) -> Handled {
        self.code(c, Code::Ok)
    }

    fn code(&mut self, c: Caller, code: Code) -> Handled {
        self.finish(c.t, code);
        Ok(Outcome::Done)
    }

    fn value(&mut self, c: Caller, value: u64) -> Handled {
        self.thread_mut(c.t).registers.set_parameter(0, value);
        self.done(c)
    }
}

// ---- common to all types -------------------------------------------------------------------------

impl System {
    /// `*_create`: a new object, or a new body for an identity that a reference keeps.
    fn create(&mut self, c: Caller, ty: Type) -> Handled {
        let mut kept = None;
        if c.b != 0 {
            let reference = self.find(c.space, c.b, Type::Reference)?;
            let target = self.reference(reference).target;
            let id = self.named(target, ty).ok_or(Stop::Code(Code::Dead))?;
            if !self.reference(reference).keeps || self.objects[&id].phase != Phase::Vacant {
                return Err(Stop::Code(Code::Invalid));
            }
            kept = Some((reference, id));
        }
        let place = self.find_place(c.space, c.a, kept.map(|k| k.1))?;
        let ceiling = self.space(c.space).max_priority;
        if let Some((reference, id)) = kept {
            self.take_over(c, id)?;
            self.embody(id, place);
            self.reference_mut(reference).keeps = false;
            if ty == Type::Space {
                self.space_mut(id).max_priority = ceiling;
            }
            return self.done(c);
        }
        let payer = self.space(c.space).account;
        let id = self.make(ty, place, payer)?;
        if ty == Type::Space {
            let parent = Some(payer);
            self.accounts.push(crate::object::Account { parent, ..Default::default() });
            let account = self.accounts.len() - 1;
            let space = self.space_mut(id);
            (space.account, space.max_priority) = (account, ceiling);
        }
        self.done(c)
    }

    /// `*_destroy`: the body goes; the identity goes too, unless a reference is given to keep it. A vacant identity
    /// ends even if a reference keeps it; it cannot be given to another reference.
    fn destroy_call(&mut self, c: Caller, ty: Type) -> Handled {
        let id = self.look_up_managed(c.space, c.a, ty)?;
        let mut keeper = None;
        if c.b != 0 {
            keeper = Some(self.find(c.space, c.b, Type::Reference)?);
            if keeper == Some(id) {
                return Err(Stop::Code(Code::Invalid));
            }
            if self.objects[&id].phase == Phase::Vacant {
                return Err(Stop::Code(Code::Vacant));
            }
        }
        // A thread that destroys itself has made this call.
        self.finish(c.t, Code::Ok);
        if let Some(keeper) = keeper {
            self.point(keeper, self.target(id));
            self.reference_mut(keeper).keeps = true;
        }
        self.destroy(id, keeper.is_some());
        Ok(Outcome::Done)
    }

    /// `*_move`: moves the object to another address, which no other thread notices.
    fn move_call(&mut self, c: Caller, ty: Type) -> Handled {
        let id = self.find_body(c.space, c.a, ty)?;
        let place = self.find_place(c.space, c.b, Some(id))?;
        self.take_over(c, id)?;
        self.relocate(id, place);
        self.done(c)
    }

    /// The caller that moves an object pays for it from then on, and for the quota if it is a space, unless the old
    /// payer lives of the caller's account anyhow. (The caller cannot pay for the space that it lives in or lives of:
    /// that space has more than the caller.)
    fn take_over(&mut self, c: Caller, id: Id) -> Result<(), Stop> {
        let (by, payer) = (self.space(c.space).account, self.objects[&id].payer);
        let account = match &self.objects[&id].body {
            Body::Space(space) => Some(space.account),
            _ => None,
        };
        let cost = match self.lives_of(payer, by) {
            true => 0,
            false => self.cost(self.objects[&id].body.ty()),
        };
        let lender = account.and_then(|account| self.accounts[account].parent);
        let lender = lender.filter(|&lender| !self.lives_of(lender, by));
        let lent = match (account, lender) {
            (Some(account), Some(_)) => self.accounts[account].quota + self.machine.account_cost,
            _ => 0,
        };
        self.charge(by, cost + lent).map_err(|_| Stop::Code(Code::Denied))?;
        if cost > 0 {
            self.discharge(payer, cost);
            if let Some(object) = self.objects.get_mut(&id).map(Arc::make_mut) {
                object.payer = by;
            }
        }
        if let (Some(account), Some(lender)) = (account, lender) {
            self.accounts[account].parent = Some(by);
            self.discharge(lender, lent);
        }
        Ok(())
    }

    /// The payer's account must have room for the space's quota, and must be one that the caller may spend. (A space
    /// that lives of the given space cannot be its payer: it has less.)
    fn space_set_payer(&mut self, c: Caller) -> Handled {
        let space = self.find_body(c.space, c.a, Type::Space)?;
        let payer = match c.b {
            0 => c.space,
            reference => self.find_open_target(c.space, reference, Type::Space)?,
        };
        let account = |id: Id| self.space(id).account;
        let (account, payer, by) = (account(space), account(payer), account(c.space));
        let Some(old) = self.accounts[account].parent.filter(|_| self.lives_of(payer, by)) else {
            return Err(Stop::Code(Code::Denied));
        };
        if old != payer {
            let all = self.accounts[account].quota + self.machine.account_cost;
            self.charge(payer, all)?;
            self.accounts[account].parent = Some(payer);
            self.discharge(old, all);
        }
        self.done(c)
    }

    /// Whether `account` is `of`, or gets all that it has from it.
    pub(crate) fn lives_of(&self, account: usize, of: usize) -> bool {
        let mut all = std::iter::successors(Some(account), |a| self.accounts[*a].parent);
        all.any(|account| account == of)
    }

    /// `*_reference`: points a reference at the object, in a role.
    fn reference_to(&mut self, c: Caller, ty: Type, kind: Option<RefKind>) -> Handled {
        let id = self.find_body(c.space, c.a, ty)?;
        let reference = self.find(c.space, c.b, Type::Reference)?;
        self.point(reference, Target { kind: kind.unwrap_or(RefKind::Null), id, of_server: false });
        self.done(c)
    }
}

// ---- mutex and cond ------------------------------------------------------------------------------

impl System {
    fn mutex_lock(&mut self, c: Caller) -> Handled {
        let mutex = self.find(c.space, c.a, Type::Mutex)?;
        if self.mutex(mutex).locked {
            self.wait(c.t, Waiting::Mutex, Some(mutex));
            return Ok(Outcome::Wait);
        }
        self.mutex_mut(mutex).locked = true;
        self.done(c)
    }

    fn mutex_trylock(&mut self, c: Caller) -> Handled {
        let mutex = self.find(c.space, c.a, Type::Mutex)?;
        let was = std::mem::replace(&mut self.mutex_mut(mutex).locked, true);
        self.code(c, if was { Code::WouldBlock } else { Code::Ok })
    }

    fn mutex_unlock(&mut self, c: Caller) -> Handled {
        let mutex = self.find(c.space, c.a, Type::Mutex)?;
        if !self.mutex(mutex).locked {
            return Err(Stop::Code(Code::Invalid));
        }
        self.unlock(mutex);
        self.done(c)
    }

    /// Hands the lock to a waiter, whose call is thereby complete, or frees it.
    fn unlock(&mut self, mutex: Id) {
        match self.first(mutex, Waiting::Mutex) {
            Some(waiter) => self.complete(waiter, Code::Ok),
            None => self.mutex_mut(mutex).locked = false,
        }
    }

    /// An unlock and a `mutex_lock`, with a wait in between.
    fn cond_wait(&mut self, c: Caller, deadline: u64) -> Handled {
        let cond = self.find(c.space, c.a, Type::Cond)?;
        let mutex = self.find(c.space, c.b, Type::Mutex)?;
        if !self.mutex(mutex).locked {
            return Err(Stop::Code(Code::Invalid));
        }
        self.thread_mut(c.t).registers.set_parameter(0, c.b);
        self.become_call(c.t, Call::MutexLock);
        self.unlock(mutex);
        self.wait(c.t, Waiting::Cond, Some(cond));
        let deadline = self.until(c.space, deadline);
        let t = self.thread_mut(c.t);
        (t.deadline, t.cond) = (deadline, c.a);
        Ok(Outcome::Wait)
    }

    /// One waiter, or all, go on with the `mutex_lock` that they have become.
    fn cond_signal(&mut self, c: Caller, all: bool) -> Handled {
        let cond = self.find(c.space, c.a, Type::Cond)?;
        while let Some(waiter) = self.first(cond, Waiting::Cond) {
            self.wake(waiter);
            if !all {
                break;
            }
        }
        self.done(c)
    }
}

// ---- memory --------------------------------------------------------------------------------------

impl System {
    fn mapping_protect(&mut self, c: Caller) -> Handled {
        let mapping = self.find_open(c.space, c.a, Type::Mapping)?;
        self.mapping_mut(mapping).protection = rights(c.b)?;
        self.done(c)
    }

    fn region_protect(&mut self, c: Caller) -> Handled {
        let region = self.find_open(c.space, c.a, Type::Region)?;
        self.region_mut(region).protection = rights(c.b)?;
        self.done(c)
    }

    /// Finds the first object of these types, or page, from an offset on. If the search cannot go on, the frame says
    /// from which offset it will: nothing that it looks for has been passed, and no page is looked at twice.
    fn region_search(&mut self, c: Caller) -> Handled {
        let region = self.find_target(c.space, c.a, Type::Region)?;
        let (end, kinds) = (c.c.min(self.region(region).size), c.d);
        if kinds & !0x3ff != 0 {
            return Err(Stop::Code(Code::Invalid));
        }
        let wants = |ty: u64| kinds >> ty & 1 != 0;
        let (mut at, mut looked) = (c.b, 0);
        loop {
            let pauses = self.seen.pause.get(&c.t).is_some_and(|frame| frame.parameter(1) == at);
            if looked == PAGES_PER_TURN || looked > 0 && pauses {
                return Err(Stop::Again);
            }
            let next = if at < end { self.next_mapped(region, at) } else { None };
            let Some(next) = next.filter(|&next| next < end) else {
                // The frame is the same whether there has been a pause or not (rule A8).
                self.thread_mut(c.t).registers.set_parameter(1, at.max(end));
                return Err(Stop::Code(Code::NotFound));
            };
            let page = crate::memory::page(next);
            if let Some(frame) = self.region_frame(region, page)? {
                // The page itself counts as type 0, at its beginning.
                let objects = self.objects_in(frame).into_iter().map(|(at, ty)| (at, ty as u64));
                let all = [(0, 0)].into_iter().chain(objects).map(|(at, ty)| (page + at, ty));
                let mut here = all.filter(|&(at, ty)| (next..end).contains(&at) && wants(ty));
                if let Some((at, ty)) = here.next() {
                    return self.found(c, at, ty);
                }
            }
            looked += 1;
            at = page + PAGE_SIZE;
            self.thread_mut(c.t).registers.set_parameter(1, at);
        }
    }

    fn found(&mut self, c: Caller, at: u64, ty: u64) -> Handled {
        let r = &mut self.thread_mut(c.t).registers;
        r.set_parameter(1, at);
        r.set_parameter(4, ty);
        self.done(c)
    }
}

// ---- threads and time ----------------------------------------------------------------------------

impl System {
    /// A space's clock.
    fn clock(&self, space: Id) -> u64 {
        self.now.wrapping_add(self.space(space).clock_offset)
    }

    /// Converts a time on a space's clock to the machine's clock: `None` if it never comes.
    pub(crate) fn machine_time(&self, space: Id, deadline: u64) -> Option<u64> {
        let left = deadline.saturating_sub(self.clock(space));
        Some(self.now.saturating_add(left)).filter(|&at| at != u64::MAX)
    }

    /// As [`System::machine_time`], for the calls in which `u64::MAX` stands for never.
    fn until(&self, space: Id, deadline: u64) -> Option<u64> {
        self.machine_time(space, deadline).filter(|_| deadline != u64::MAX)
    }

    fn thread_sleep_until(&mut self, c: Caller) -> Handled {
        let at = self.machine_time(c.space, c.a);
        if at.is_some_and(|at| at <= self.now) {
            return self.done(c);
        }
        self.wait(c.t, Waiting::Deadline, None);
        self.thread_mut(c.t).deadline = at;
        Ok(Outcome::Wait)
    }

    fn thread_stop(&mut self, c: Caller) -> Handled {
        let target = self.find_open(c.space, c.a, Type::Thread)?;
        // A thread that stops itself has completed this call.
        self.finish(c.t, Code::Ok);
        self.stop(target);
        Ok(Outcome::Done)
    }

    fn thread_resume(&mut self, c: Caller) -> Handled {
        let target = self.find_open(c.space, c.a, Type::Thread)?;
        if self.thread(target).stops == 0 {
            return Err(Stop::Code(Code::Invalid));
        }
        let t = self.thread_mut(target);
        t.stops -= 1;
        if t.stops == 0 {
            if !t.exception_delivered {
                // No keeper can have an exception that was not delivered.
                t.keeper = None;
            }
            self.go_on(target);
        }
        self.done(c)
    }

    /// Interrupts of a vacant thread accumulate in its identity.
    fn thread_interrupt(&mut self, c: Caller) -> Handled {
        let target = self.target_at(c.space, c.a)?;
        let thread = self.named(target, Type::Thread).ok_or(Stop::Code(Code::Dead))?;
        self.interrupt(thread);
        self.done(c)
    }

    fn thread_wait_interrupt(&mut self, c: Caller, deadline: u64) -> Handled {
        if std::mem::take(&mut self.thread_mut(c.t).interrupt) {
            return self.done(c);
        }
        let at = self.until(c.space, deadline);
        if at.is_some_and(|at| at <= self.now) {
            return Err(Stop::Code(Code::TimedOut));
        }
        self.wait(c.t, Waiting::Interrupt, None);
        self.thread_mut(c.t).deadline = at;
        Ok(Outcome::Wait)
    }

    fn thread_set_priority(&mut self, c: Caller) -> Handled {
        let target = self.find_open(c.space, c.a, Type::Thread)?;
        if c.b >= u64::from(PRIORITIES) {
            return Err(Stop::Code(Code::Invalid));
        }
        self.ceiling(c, self.thread(target).space, c.b)?;
        self.thread_mut(target).priority = c.b;
        self.done(c)
    }

    /// Nobody gives a thread a higher priority than the giver's own space allows, nor than the thread's space allows.
    pub(crate) fn ceiling(&self, c: Caller, space: Option<Id>, priority: u64) -> Result<(), Stop> {
        let allows = |space: Id| priority <= self.space(space).max_priority;
        if allows(c.space) && space.is_none_or(allows) {
            Ok(())
        } else {
            Err(Stop::Code(Code::Denied))
        }
    }

    /// The space's clock has been set: threads that wait for a time on it begin their waits again.
    pub(crate) fn wake_timed(&mut self, space: Id) {
        let timed = |t: &crate::object::Thread| {
            t.space == Some(space) && t.deadline.is_some() && t.status != Status::Stopped
        };
        let all: Vec<Id> = self.threads().filter(|(_, t)| timed(t)).map(|(id, _)| id).collect();
        for t in all {
            self.wake(t);
        }
    }

    /// The exception stays delivered; from now on the thread's manager has to answer it.
    fn server_release(&mut self, c: Caller) -> Handled {
        let end = self.thread(c.t).server;
        if end.stage != abi::state::Stage::Exception {
            return Err(Stop::Code(Code::WrongStage));
        }
        if let Some(client) = self.live(end.peer, Type::Thread) {
            if self.thread(client).keeper == Some(c.t) {
                self.thread_mut(client).keeper = None;
            }
        }
        self.thread_mut(c.t).server = Default::default();
        self.done(c)
    }
}

// ---- references ----------------------------------------------------------------------------------

impl System {
    fn reference_check(&mut self, c: Caller) -> Handled {
        let target = self.target_at(c.space, c.a)?;
        if !self.alive(target) {
            return Err(Stop::Code(Code::Dead));
        }
        self.value(c, target.kind as u64)
    }

    fn reference_equal(&mut self, c: Caller) -> Handled {
        let one = self.find(c.space, c.a, Type::Reference)?;
        let two = self.find(c.space, c.b, Type::Reference)?;
        let (one, two) = (self.reference(one).target, self.reference(two).target);
        let code = match (one.kind, one.id) == (two.kind, two.id) {
            false => Code::NotFound,
            true if self.alive(one) => Code::Ok,
            true => Code::Dead,
        };
        self.code(c, code)
    }
}

// ---- devices -------------------------------------------------------------------------------------

/// Ranges of I/O ports that one space can have.
const MAX_PORTS: usize = 32;
/// Ranges of I/O ports that all spaces can have.
const ALL_PORTS: usize = 512;
/// Device memory that one region can export.
const MAX_DEVICE: u64 = 64 << 20;

impl System {
    fn authority(&self, c: Caller) -> Result<(), Stop> {
        match self.target_at(c.space, c.a)?.kind {
            RefKind::Authority => Ok(()),
            _ => Err(Stop::Code(Code::Denied)),
        }
    }

    fn device_attach_interrupt(&mut self, c: Caller) -> Handled {
        self.authority(c)?;
        let thread = self.find_open_target(c.space, c.b, Type::Thread)?;
        let line = usize::try_from(c.c).ok().and_then(|line| self.lines.get_mut(line));
        let line = line.ok_or(Stop::Code(Code::Invalid))?;
        if line.is_some_and(|other| other != thread) {
            return Err(Stop::Code(Code::InUse));
        }
        *line = Some(thread);
        self.done(c)
    }

    fn device_grant_ports(&mut self, c: Caller) -> Handled {
        self.authority(c)?;
        let space = self.find_open_target(c.space, c.b, Type::Space)?;
        let (first, count) = (c.c, c.d);
        if count == 0 || count > 0xffff || first >= 0x1_0000 || count > 0x1_0000 - first {
            return Err(Stop::Code(Code::Invalid));
        }
        let all = self.objects.values().flat_map(|o| match &o.body {
            Body::Space(s) => &s.ports[..],
            _ => &[],
        });
        let (mut granted, mut taken) = (0, false);
        for &(f, n) in all {
            granted += 1;
            taken |= f < first + count && first < f + n;
        }
        if taken || granted == ALL_PORTS || self.space(space).ports.len() == MAX_PORTS {
            return Err(Stop::Code(Code::InUse));
        }
        self.space_mut(space).ports.push((first, count));
        self.done(c)
    }

    fn device_detach_interrupt(&mut self, c: Caller) -> Handled {
        self.authority(c)?;
        let line = usize::try_from(c.b).ok().and_then(|line| self.lines.get_mut(line));
        let line = line.ok_or(Stop::Code(Code::Invalid))?;
        match line.take() {
            Some(_) => self.done(c),
            None => Err(Stop::Code(Code::NotFound)),
        }
    }

    /// A call that manages: a vacant space can lose its ports too.
    fn device_revoke_ports(&mut self, c: Caller) -> Handled {
        self.authority(c)?;
        let target = self.target_at(c.space, c.b)?;
        let space = self.named(target, Type::Space).ok_or(Stop::Code(Code::Dead))?;
        let ports = &mut self.space_mut(space).ports;
        let at = ports.iter().position(|&range| range == (c.c, c.d));
        let at = at.ok_or(Stop::Code(Code::NotFound))?;
        ports.swap_remove(at);
        self.done(c)
    }

    fn device_collocate(&mut self, c: Caller) -> Handled {
        self.authority(c)?;
        let space = self.find_open_target(c.space, c.b, Type::Space)?;
        let place = c.c;
        if place >= collocated::COUNT {
            return Err(Stop::Code(Code::Invalid));
        }
        let someone_there = self
            .objects
            .values()
            .any(|o| matches!(&o.body, Body::Space(s) if s.place == Some(place)));
        let somebody_in_it = self
            .objects
            .values()
            .any(|o| matches!(&o.body, Body::Thread(t) if t.space == Some(space)));
        let something_in_it = self.mappings_of(space).next().is_some();
        let placed = self.space(space).place.is_some();
        if someone_there || somebody_in_it || something_in_it || placed {
            return Err(Stop::Code(Code::InUse));
        }
        self.space_mut(space).place = Some(place);
        self.done(c)
    }

    fn device_map_physical(&mut self, c: Caller) -> Handled {
        self.authority(c)?;
        let region = self.find_open(c.space, c.b, Type::Region)?;
        let (start, size) = (c.c, c.d);
        let sound = start % PAGE_SIZE == 0
            && size % PAGE_SIZE == 0
            && (PAGE_SIZE..=MAX_DEVICE).contains(&size)
            && start <= u64::from(u32::MAX) * PAGE_SIZE - MAX_DEVICE;
        // Devices are neither below nor in programs' memory, nor where the processor has no addresses.
        let (first, end) = (self.machine.frames.end, self.machine.end_frame);
        if !sound || start / PAGE_SIZE < first || (start + size) / PAGE_SIZE > end {
            return Err(Stop::Code(Code::Invalid));
        }
        let r = self.region_mut(region);
        (r.source, r.start, r.size, r.space) = (Source::Device, start, size, None);
        r.protection = access::READ | access::WRITE;
        self.done(c)
    }
}
