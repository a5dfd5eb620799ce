//! The end of a trap: choosing the thread that runs next, and switching to it.

use crate::config::{CONFIG, FULL};
use crate::exec::{self, switch, SWITCHES_STACKS};
use crate::object::thread::{Run, Thread};
use crate::{counters, irq, probe, Kernel};
use abi::state::Waiting;
use abi::Code;
use hal::mask;

impl Kernel {
    /// Ends a trap: returns the thread that runs next.
    #[inline(always)]
    pub(crate) fn exit_trap(&'static self, t: &'static Thread) -> &'static Thread {
        self.release_lock(t);
        self.watch();
        if t.run.get() == Run::Running {
            if !self.cpu().sched.pending(t) {
                return t;
            }
        } else if self.cpu().sched.has_only_heir() {
            return self.schedule_heir(t);
        }
        self.schedule(t)
    }

    /// In a kernel for cut tests: raises the probe's line if the probe has fired, and checks the kernel's structures
    /// if it is time.
    #[inline(always)]
    fn watch(&'static self) {
        if probe::takes_ring() {
            irq::device(self, abi::probe::LINE as u8);
        }
        if probe::is_check_due() {
            #[cfg(fermata_probe)]
            crate::check::invariants(self);
        }
    }

    /// Ends a trap in which the running thread began a wait and only an heir is ready: hands the processor off
    /// to it.
    #[inline(never)]
    pub(crate) fn schedule_heir(&'static self, t: &'static Thread) -> &'static Thread {
        match self.cpu().sched.take_heir(self, t) {
            Some(heir) => self.tail_switch_to(t, heir),
            None => self.schedule(t),
        }
    }

    #[inline(never)]
    pub(crate) fn schedule(&'static self, t: &'static Thread) -> &'static Thread {
        let was = t.run.get();
        if !FULL {
            self.tell_notices();
        }
        let next = self.cpu().sched.next(self, t);
        if core::ptr::eq(t, next) {
            counters::resumed(was);
            return t;
        }
        self.switch_to(t, next)
    }

    /// Releases the lock: from here on the running thread uses the core only, no objects.
    #[inline(always)]
    pub(crate) fn release_lock(&'static self, t: &'static Thread) {
        if FULL {
            self.release_held(t);
        }
    }

    fn release_held(&'static self, t: &'static Thread) {
        mask::last_section(|| {
            if !self.lock.is_held_by(t) {
                return;
            }
            self.tell_notices();
            self.lock.give_back();
            irq::late(self);
            if t.run.get() == Run::Waiting(Waiting::Interrupt) && t.interrupt.take() {
                t.complete(self, Code::Ok);
            }
            if !self.lock.waiters().is_empty() {
                self.wake_for_lock();
            }
        });
    }

    /// Wakes all waiters for the lock that have the highest priority among its waiters; they then try again. Usually
    /// there is one, which takes the lock and wakes the next when it releases the lock. But a woken waiter may no
    /// longer need the lock and never take it, so waiters of its priority must not depend on it. (Waiters of lower
    /// priority would not run before it anyway.)
    #[cold]
    #[inline(never)]
    fn wake_for_lock(&'static self) {
        let mut highest = 0;
        while let Some(waiter) = self.lock.waiters().first() {
            let priority = waiter.priority.get();
            if priority < highest {
                break;
            }
            highest = priority;
            waiter.wake(self);
        }
    }

    /// Delivers to waiting servers the notices of ports that lost their last reference in this trap.
    #[inline(always)]
    pub(crate) fn tell_notices(&'static self) {
        if self.cpu().sched.take_notices() {
            self.notices.tell(self);
        }
    }

    /// Switches the processor to another thread and its stack. `hal` loads that thread's page table when the thread
    /// leaves the kernel.
    #[inline]
    pub(crate) fn switch_to(
        &'static self,
        from: &'static Thread,
        to: &'static Thread,
    ) -> &'static Thread {
        switch(self, from, to)
    }

    /// As [`Kernel::switch_to`], compiled to a tail call where the model allows it.
    #[inline(always)]
    pub(crate) fn tail_switch_to(
        &'static self,
        from: &'static Thread,
        to: &'static Thread,
    ) -> &'static Thread {
        if SWITCHES_STACKS || CONFIG.counters {
            return self.switch_to(from, to);
        }
        to
    }

    /// As [`Kernel::switch_to`], in a trap in which the timer has rung, or in which a thread has become ready so that
    /// the slice must have an end. Sets the timer first.
    #[cold]
    #[inline(never)]
    fn switch_in_time(
        &'static self,
        from: &'static Thread,
        to: &'static Thread,
    ) -> &'static Thread {
        self.cpu().sched.set_timer_for(self, to);
        self.switch_to(from, to)
    }

    /// Ends a trap in which the running thread waits, and hands the processor off to `to`, which is in no
    /// queue.
    #[inline(always)]
    pub(crate) fn exit_trap_to(
        &'static self,
        from: &'static Thread,
        to: &'static Thread,
    ) -> &'static Thread {
        self.release_lock(from);
        if !FULL || !self.cpu().sched.pending(to) {
            return self.switch_to(from, to);
        }
        if !self.cpu().sched.somebody_above(to) {
            return self.switch_in_time(from, to);
        }
        // Releasing the lock has woken a thread of a higher priority, which had waited for the lock.
        to.run.set(Run::Ready);
        self.cpu().sched.add(to);
        self.schedule(from)
    }

    /// Makes `t` the first thread that runs.
    pub(crate) fn begin(&'static self, t: &'static Thread) {
        t.run.set(Run::Running);
        exec::begin(self, t);
    }
}
