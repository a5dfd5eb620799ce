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
//! until the holder leaves ([`crate::deadlines::Deadlines`]).
//!
//! This room has the lock itself; [`crate::trap`] takes it where a trap begins, and [`crate::leave`] gives it back
//! where one ends. In the other configurations all of this compiles to nothing.

use crate::config::FULL;
use crate::object::thread::Thread;
use crate::queue::WaitQueue;
use core::cell::Cell;
use hal::NarrowCell;

/// The kernel's lock.
pub(crate) struct Lock {
    holder: NarrowCell<Thread>,
    /// The holder has been preempted. Its activation is on its stack.
    preempted: Cell<bool>,
    /// What was left of its slice then, in nanoseconds.
    slice_left: Cell<u64>,
    waiters: WaitQueue,
}

impl Lock {
    pub(crate) const fn new() -> Self {
        Lock {
            holder: NarrowCell::none(),
            preempted: Cell::new(false),
            slice_left: Cell::new(0),
            waiters: WaitQueue::new(),
        }
    }

    /// Takes it for `t`. If this returns false, another thread holds it.
    pub(crate) fn take(&self, t: &'static Thread) -> bool {
        let free = self.holder.get().is_none();
        if free {
            self.holder.set(Some(t));
        }
        free
    }

    /// Gives it back.
    pub(crate) fn give_back(&self) {
        self.holder.set(None);
    }

    /// The threads that wait for it.
    pub(crate) fn waiters(&'static self) -> &'static WaitQueue {
        &self.waiters
    }

    pub(crate) fn is_held_by(&self, t: &Thread) -> bool {
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
    pub(crate) fn lent_to(&self, holder: &Thread) -> u8 {
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
    pub(crate) fn is_wanted(&self, holder: &Thread) -> bool {
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

    /// Notes that the holder is preempted, with so much left of its slice, in nanoseconds.
    pub(crate) fn note_preempted(&self, slice_left: u64) {
        self.preempted.set(true);
        self.slice_left.set(slice_left);
    }

    /// What the thread that was preempted in the kernel has left of its slice, in nanoseconds.
    pub(crate) fn slice_left(&self) -> u64 {
        self.slice_left.get()
    }

    /// Notes that `t` goes on. Whether it is the thread that was preempted in the kernel.
    pub(crate) fn resumes(&self, t: &Thread) -> bool {
        FULL && self.is_held_by(t) && self.preempted.replace(false)
    }
}
