//! Preemption points: where a long call lets interrupts in, and ends early so that a more important thread can run
//! (Ford et al., section 5.2).
//!
//! At each of them the frame already says how the call goes on (rule A3), so a handler that is preempted there simply
//! returns. Full preemption is in [`crate::lock`].

use crate::config::{Preemption, CONFIG};
use crate::object::thread::Thread;
use crate::{probe, Kernel};

impl Kernel {
    /// A preemption point: lets pending interrupts in and returns whether the running thread should leave its
    /// call so that a more important thread can run. Its frame must say how the call goes on.
    #[cfg_attr(fermata_probe, track_caller)]
    pub(crate) fn preempts(&'static self, t: &Thread) -> bool {
        match CONFIG.preemption {
            // Only a test on the host makes calls stop here.
            Preemption::None => cfg!(test) && probe::preempts(),
            // Interrupts preempt the thread by themselves, so only waiters for the lock remain to be checked.
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
                // The timer is set again at the end of the call, which may be far off.
                self.cpu().sched.keep_time_in_kernel(self);
            }
        }
    }
}
