//! Full preemption: the kernel's lock, and its core.
//!
//! Under `fp` the kernel runs with interrupts on. One lock guards all objects: a thread takes it on
//! its way in, before it changes or even reads anything, and gives it back on its way out. An
//! interrupt may preempt it in between at any instruction; it keeps its stack, and whoever is more
//! important runs. What runs then is user code, until it wants into the kernel itself: it waits for
//! the lock, and meanwhile the holder runs with its priority (priority inheritance). Two consequences
//! carry the design:
//!
//! * At most one thread is ever preempted in the kernel, the holder. All others are in user mode or
//!   wait, with a frame that says everything (rule A1). To stop a thread or to read its state one needs
//!   the lock, and while one holds it no other thread is in the middle of a call.
//! * There is only this lock, so that no order of locks is needed.
//!
//! What interrupts themselves touch is the *core*: who is ready, deadlines, the end of a sleep or of a
//! wait for an interrupt. It is used with interrupts masked ([`core`](crate::kernel::core)), and must be short, as
//! nothing preempts it. An interrupt that concerns more, the deadline of a wait in a queue of an object, is withheld
//! until the holder leaves ([`crate::object::deadlines::Deadlines`]).
//!
//! In the other configurations all of this compiles to nothing.

use crate::config::FULL;
use crate::irq;
use crate::object::thread::{Run, Thread};
use crate::queue::WaitQueue;
use crate::Kernel;
use abi::state::Waiting;
use abi::Code;
use core::cell::Cell;
use hal::mask::{self, Level};
use hal::NarrowCell;

/// The kernel's lock.
pub(crate) struct Lock {
    holder: NarrowCell<Thread>,
    /// The holder has been preempted. Its activation is on its stack.
    preempted: Cell<bool>,
    waiters: WaitQueue,
}

impl Lock {
    pub(crate) const fn new() -> Self {
        Lock {
            holder: NarrowCell::none(),
            preempted: Cell::new(false),
            waiters: WaitQueue::new(),
        }
    }

    fn is_held_by(&self, t: &Thread) -> bool {
        self.holder.get().is_some_and(|h| core::ptr::eq(h, t))
    }

    /// The thread in the middle of a call, if there is one: an interrupt must leave it alone, and all queues of
    /// objects.
    #[inline(always)]
    pub(crate) fn holder(&self) -> Option<&'static Thread> {
        self.holder.get().filter(|_| FULL)
    }

    /// Whether the thread holds the lock, so that an interrupt may find it in the middle of a call.
    pub(crate) fn is_holder(&self, t: &Thread) -> bool {
        FULL && self.is_held_by(t)
    }

    /// The holder's effective priority: that of the first waiter for the lock if it is higher than its own.
    #[inline(always)]
    fn lent_to(&self, holder: &Thread) -> u8 {
        let waiter = self.waiters.first().map_or(0, |w| w.priority.get());
        holder.priority.get().max(waiter)
    }

    /// The effective priority of its holder, 0 if there is none.
    pub(crate) fn priority(&self) -> u8 {
        let holder = self.holder.get().filter(|_| FULL);
        holder.map_or(0, |holder| self.lent_to(holder))
    }

    /// Whether a thread of a higher priority than its holder's waits for it.
    #[inline(always)]
    pub(super) fn is_wanted(&self, holder: &Thread) -> bool {
        self.lent_to(holder) > holder.priority.get()
    }

    /// The thread that was preempted in the kernel, with its effective priority.
    #[inline(always)]
    pub(crate) fn preempted(&self) -> Option<(&'static Thread, u8)> {
        if !FULL || !self.preempted.get() {
            return None;
        }
        let holder = self.holder.get()?;
        Some((holder, self.lent_to(holder)))
    }

    /// Notes that `t` goes on. Whether it is the thread that was preempted in the kernel.
    pub(super) fn resumes(&self, t: &Thread) -> bool {
        FULL && self.is_held_by(t) && self.preempted.replace(false)
    }
}

impl Kernel {
    /// Takes the lock for the running thread, which enters the kernel for more than an interrupt. If this
    /// returns false, the thread waits for the lock.
    #[inline(always)]
    #[must_use]
    pub(crate) fn enter(&'static self, t: &'static Thread) -> bool {
        !FULL || self.take_lock(t)
    }

    fn take_lock(&'static self, t: &'static Thread) -> bool {
        if self.lock.holder.get().is_some() {
            t.wait_on(&self.lock.waiters, Waiting::Kernel);
            return false;
        }
        self.lock.holder.set(Some(t));
        mask::restore(Level::None);
        true
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
            self.lock.holder.set(None);
            irq::late(self);
            if t.run.get() == Run::Waiting(Waiting::Interrupt) && t.interrupt.take() {
                t.complete(self, Code::Ok);
            }
            if let Some(waiter) = self.lock.waiters.first() {
                waiter.wake(self);
            }
        });
    }

    /// Preempts the holder if a thread more important than it is ready. Called after an interrupt in the kernel
    /// has been handled.
    #[inline(always)]
    pub(crate) fn preempt(&'static self) {
        if !FULL {
            return;
        }
        let Some(t) = self.lock.holder.get() else {
            // The processor was idle, or in the core.
            return;
        };
        self.cpu().sched.keep_time_in_kernel(self);
        if !self.cpu().sched.is_above(self.lock.lent_to(t)) {
            return;
        }
        let Some(next) = self.cpu().sched.take_first(self) else {
            return;
        };
        self.lock.preempted.set(true);
        self.preempt_holder(t, next);
    }
}
