//! Condition variables. They have no state except their waiters, whose calls have already become `mutex_lock`.

use super::{Handles, Header, NonNullLink, Object, Table, Target};
use crate::object::thread::{Hint, Thread};
use crate::queue::WaitQueue;
use crate::{Stop, K};
use abi::Type;
use core::cell::Cell;

/// A condition variable.
pub(crate) struct Cond {
    head: Header,
    /// The waiters. A broadcast has preemption points and wakes only the threads that waited when it began:
    /// these are in one queue, and threads that begin to wait meanwhile go into the other.
    queues: [WaitQueue; 2],
    /// Index of the queue that threads enter when they begin to wait.
    entrance: Cell<bool>,
}

impl Cond {
    /// The queue that threads enter when they begin to wait.
    pub(crate) fn entrance(&'static self) -> &'static WaitQueue {
        &self.queues[usize::from(self.entrance.get())]
    }

    /// The queue of the threads that a broadcast still has to wake.
    fn exit(&'static self) -> &'static WaitQueue {
        &self.queues[usize::from(!self.entrance.get())]
    }

    /// Both queues.
    pub(crate) fn queues(&'static self) -> &'static [WaitQueue; 2] {
        &self.queues
    }

    /// Wakes the first waiter. Waiters that a broadcast still has to wake do not count, since the broadcast wakes them;
    /// the signal wakes the first of them as well, in case the broadcast was abandoned.
    pub(crate) fn signal(&'static self, k: K) {
        for queue in self.queues() {
            if let Some(waiter) = queue.first() {
                waiter.wake(k);
            }
        }
    }

    /// From now on threads that begin to wait go into the other queue.
    pub(crate) fn turn_round(&self) {
        self.entrance.set(!self.entrance.get());
    }

    /// Wakes all threads that wait now, in a call of `t`. [`Stop::Again`]: some are left, and the call goes on
    /// later.
    pub(crate) fn broadcast(&'static self, k: K, t: &'static Thread) -> Result<(), Stop> {
        let goes_on = matches!(t.hint.get(), Hint::Broadcast(cond) if cond.is(self));
        if !goes_on {
            // Even if there is nobody to wake, the thread's note of an earlier broadcast is void.
            t.forget_broadcast(k);
            // First the waiters that an earlier broadcast has left.
            self.exit().wake_all_or_again(k, t)?;
            if self.entrance().is_empty() {
                return Ok(());
            }
            self.turn_round();
        }
        t.hint.set(Hint::Broadcast(NonNullLink::to(self)));
        if let Err(again) = self.exit().wake_all_or_again(k, t) {
            // If the thread makes another call next, that call must take the general path and drop the note.
            t.note_space(k);
            return Err(again);
        }
        t.forget_broadcast(k);
        Ok(())
    }
}

impl Object for Cond {
    const TYPE: Type = Type::Cond;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Cond(link)
    }
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Cond(link) => Some(link),
            _ => None,
        }
    }
    type Seed = ();
    fn blank(head: Header, (): ()) -> Self {
        Cond {
            head,
            queues: [const { WaitQueue::new() }; 2],
            entrance: Cell::new(false),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.conds
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.conds
    }
    fn open(&'static self, _: K) {}
    fn disperse(&'static self, k: K, t: &'static Thread) -> Result<(), Stop> {
        for queue in self.queues() {
            queue.wake_all_or_again(k, t)?;
        }
        Ok(())
    }
    fn close(&'static self, k: K) {
        // Each waiter goes on with the `mutex_lock` that its call has become: a spurious return (A8).
        for queue in self.queues() {
            queue.wake_all(k);
        }
    }
    fn end(&'static self, _: K) {}
}
