//! Full preemption: the kernel's lock, and its core.
//!
//! Under `fp` the kernel runs with interrupts on. One lock guards all objects: a thread takes the lock
//! when it enters the kernel, before it changes or even reads anything, and releases it when it leaves.
//! In between an interrupt may preempt the holder at any instruction; the holder keeps its stack, and a
//! thread of a higher priority runs. That thread runs user code until it enters the kernel itself; then
//! it waits for the lock, and meanwhile the holder runs with the waiter's priority (priority
//! inheritance). The design rests on two consequences:
//!
//! * At most one thread is ever preempted in the kernel, the holder. All others are in user mode or
//!   wait, with a complete frame (rule A1). A thread that stops another or reads its state holds the
//!   lock, so no other thread is in the middle of a call meanwhile.
//! * There is only this lock, so that no order of locks is needed.
//!
//! The *core* is what interrupt handlers themselves change: the ready queues, the deadlines, the end of a sleep or of a
//! wait for an interrupt. Code of the core runs with interrupts masked ([`core`](crate::kernel::core)) and must be
//! short, as nothing preempts it. The deadline of a wait in a queue of an object concerns more than the core, so it is
//! withheld until the holder releases the lock ([`crate::deadlines::Deadlines`]).
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
    /// What was left of the holder's slice when it was preempted, in nanoseconds.
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

    /// Takes the lock for `t`. Returns false if another thread holds it.
    pub(crate) fn take(&self, t: &'static Thread) -> bool {
        let free = self.holder.get().is_none();
        if free {
            self.holder.set(Some(t));
        }
        free
    }

    /// Releases the lock.
    pub(crate) fn give_back(&self) {
        self.holder.set(None);
    }

    /// The threads that wait for the lock.
    pub(crate) fn waiters(&'static self) -> &'static WaitQueue {
        &self.waiters
    }

    pub(crate) fn is_held_by(&self, t: &Thread) -> bool {
        self.holder.get().is_some_and(|h| core::ptr::eq(h, t))
    }

    /// The thread in the middle of a call, if there is one: an interrupt must not change this thread or any queue of an
    /// object.
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

    /// The effective priority of the lock's holder, 0 if there is none.
    pub(crate) fn priority(&self) -> u8 {
        let holder = self.holder.get().filter(|_| FULL);
        holder.map_or(0, |holder| self.lent_to(holder))
    }

    /// Whether a thread of a higher priority than the holder's waits for the lock.
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

    /// Notes that the holder is preempted, with `slice_left` nanoseconds left of its slice.
    pub(crate) fn note_preempted(&self, slice_left: u64) {
        self.preempted.set(true);
        self.slice_left.set(slice_left);
    }

    /// What the thread that was preempted in the kernel has left of its slice, in nanoseconds.
    pub(crate) fn slice_left(&self) -> u64 {
        self.slice_left.get()
    }

    /// Notes that `t` goes on. Returns whether `t` is the thread that was preempted in the kernel.
    pub(crate) fn resumes(&self, t: &Thread) -> bool {
        FULL && self.is_held_by(t) && self.preempted.replace(false)
    }
}
