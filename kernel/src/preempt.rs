//! Preemption points: where a long call lets interrupts in, and leaves so that a more important thread can run.
//!
//! Before each of them the frame says how the call goes on (rule A3), so that to be preempted there is to return. Full
//! preemption is in [`crate::lock`]. (Ford et al., section 5.2.)

use crate::config::{Preemption, CONFIG};
use crate::object::thread::Thread;
use crate::{probe, Kernel};

impl Kernel {
    /// A preemption point: lets pending interrupts in and returns whether the running thread should leave its
    /// call so that a more important thread can run. Its frame must say how the call goes on.
    #[cfg_attr(fermata_probe, track_caller)]
    pub(crate) fn preempts(&'static self, t: &Thread) -> bool {
        match CONFIG.preemption {
            // Except where a test on the host says so.
            Preemption::None => cfg!(test) && probe::preempts(),
            // Interrupts preempt by themselves; what is left are waiters for the lock.
            Preemption::Full => self.lock.is_wanted(t),
            Preemption::Points => {
                self.look_at_interrupts();
                probe::preempts() || self.cpu().sched.wants(t)
            }
        }
    }

    /// Lets pending interrupts in, in a kernel with preemption points. No other thread runs.
    #[inline(always)]
    pub(crate) fn look_at_interrupts(&'static self) {
        if matches!(CONFIG.preemption, Preemption::Points) {
            hal::let_interrupts_in();
            if self.cpu().sched.has_rung() {
                // It may be long until the end of the call, where the timer would be set.
                self.cpu().sched.keep_time_in_kernel(self);
            }
        }
    }
}
