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
    /// Index of the queue into which threads go that begin to wait.
    entrance: Cell<bool>,
}

impl Cond {
    /// The queue into which threads go that begin to wait.
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

    /// Wakes a waiter. Those that a broadcast has still to wake do not count, since they are woken anyway: if there are
    /// any, it wakes the first of them too, in case that broadcast was given up.
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
            // Whatever there is to wake, what the thread remembered is gone.
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
            // Any other call that it makes next has to see that.
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
        // Each goes on with the `mutex_lock` that it has become: a spurious return (A8).
        for queue in self.queues() {
            queue.wake_all(k);
        }
    }
    fn end(&'static self, _: K) {}
}
