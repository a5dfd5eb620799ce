//! Waits: how a thread begins one, and how it ends.
//!
//! There is one way to wait: the handler puts the thread into a queue and returns [`crate::Outcome::Wait`] as
//! its last act. A waker does one of two things (rule A8): it *completes* the waiter's call in its frame
//! ([`crate::object::thread::Thread::complete`]), or it *wakes* the waiter with nothing granted, and the waiter
//! does its call again.

use super::thread::Thread;
use crate::queue::WaitQueue;
use crate::{Stop, K};

/// Number of waiters that are woken between two preemption points.
const WAKES_PER_TURN: u32 = 64;

impl WaitQueue {
    /// Wakes every waiter with nothing granted.
    #[inline(always)]
    pub(crate) fn wake_all(&self, k: K) {
        if !self.is_empty() {
            self.wake_until(k, || false);
        }
    }

    /// As [`WaitQueue::wake_all`], but lets interrupts in between. For handlers that depend on nothing that an
    /// interrupt could change meanwhile.
    #[inline(always)]
    pub(crate) fn wake_all_in_turns(&self, k: K) {
        if !self.is_empty() {
            self.wake_until(k, || {
                k.look_at_interrupts();
                false
            });
        }
    }

    /// As [`WaitQueue::wake_all`], for a call of `t` that has changed nothing yet: if another thread should run first,
    /// returns `Again`, and the call begins again later.
    #[inline(always)]
    pub(crate) fn wake_all_or_again(&self, k: K, t: &Thread) -> Result<(), Stop> {
        if !self.is_empty() && self.wake_until(k, || k.preempts(t)) {
            return Err(Stop::Again);
        }
        Ok(())
    }

    /// Wakes waiters, and calls `stop` after every [`WAKES_PER_TURN`] of them. Returns whether `stop` ended the loop
    /// early.
    #[inline(never)]
    fn wake_until(&self, k: K, stop: impl Fn() -> bool) -> bool {
        // A waiter that cannot run yet may come back to the end of this same queue (a thread whose space
        // is vacant, see `append`), so the loop ends with the thread that is the last one now.
        let Some(last) = self.last() else {
            return false;
        };
        let mut woken = 0;
        while let Some(t) = self.first() {
            t.wake(k);
            if core::ptr::eq(t, last) {
                break;
            }
            woken += 1;
            if woken % WAKES_PER_TURN == 0 && stop() {
                return true;
            }
        }
        false
    }
}
