//! Counts of what becomes of threads that block, per reason (Draves et al., Continuations, Tables 1 and 2), and
//! of what restarts cost (Ford et al., Table 3).
//!
//! Only a kernel that is built to count does any of this ([`crate::Config::counters`]). The kernel has no
//! counters of its own: each count is an event of the machine ([`hal::event`]), which the emulator's plugin
//! sees. So there is no counter to read, to reset or to protect, and a measured stretch has exactly its own
//! events.
//!
//! The counting functions are called from [`crate::exec`], where a thread leaves the processor; from
//! [`crate::Kernel`], where a call is abandoned and begun again; and from [`crate::object::thread::Thread`], where a
//! call is completed.

use crate::config::{Model, CONFIG};
use crate::object::thread::{Run, Thread};
use crate::Stop;
use abi::state::Waiting;
use hal::NarrowCell;

/// The kind of a count. There is one count for each kind and [`Waiting`] reason; `Nothing` is the reason of a
/// thread that gives way to another, by a yield or because it was preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A thread blocked and kept its kernel stack.
    Kept = 0,
    /// A thread blocked with only its frame or continuation, and its stack became free (compression).
    Compressed = 1,
    /// A thread blocked with only its frame or continuation, and the next thread took over its stack (compression and
    /// handoff).
    HandedOff = 2,
    /// A blocked thread's call was completed in its frame by its waker (recognition).
    Recognised = 3,
    /// A call that met an absent page was abandoned ([`ABANDONED`]) or begun again ([`BEGUN`]); or, outside of a
    /// restart, the kernel began to search for a page that the page table lacks ([`LOOKS`]), or ended the search
    /// ([`LOOKED`]). These events are for measuring times and have no reason.
    Restart = 4,
}

/// Number of reasons per kind: kind times this plus reason is the number of the event.
const REASONS: u8 = 16;
const _: () = assert!(Kind::Restart as u8 * REASONS + 4 <= hal::EVENTS);

const ABANDONED: u8 = 0;
const BEGUN: u8 = 1;
const LOOKS: u8 = 2;
const LOOKED: u8 = 3;

/// The kind that is counted for a thread that blocked and then was the next to run, because no other was ready.
const ALONE: Kind = match CONFIG.model {
    Model::Process => Kind::Kept,
    Model::Interrupt | Model::Continuation => Kind::Compressed,
};

/// The thread whose restart is being measured.
pub(crate) struct Counters {
    abandoned: NarrowCell<Thread>,
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Counters {
            abandoned: NarrowCell::none(),
        }
    }

    /// Notes that the running thread's call cannot go on. If the reason is an absent page, the measured interval
    /// begins here.
    #[inline(always)]
    pub(crate) fn abandon(&self, t: &'static Thread, stop: &Stop) {
        if CONFIG.counters && matches!(stop, Stop::Fault(_) | Stop::Absent(_)) {
            self.abandoned.set(Some(t));
            event(Kind::Restart, ABANDONED);
        }
    }

    /// Measures the search for a page that the page table lacks.
    #[inline(always)]
    pub(crate) fn look<R>(&self, look: impl FnOnce() -> R) -> R {
        if !CONFIG.counters || self.abandoned.get().is_some() {
            return look();
        }
        event(Kind::Restart, LOOKS);
        let found = look();
        event(Kind::Restart, LOOKED);
        found
    }

    /// Notes that the running thread begins a call, perhaps again.
    #[inline(always)]
    pub(crate) fn begin(&self, t: &'static Thread) {
        if CONFIG.counters && self.abandoned.get().is_some_and(|a| core::ptr::eq(a, t)) {
            self.abandoned.set(None);
            event(Kind::Restart, BEGUN);
        }
    }
}

#[inline(always)]
fn event(kind: Kind, reason: u8) {
    hal::event(kind as u8 * REASONS + reason);
}

/// Counts one event.
#[inline(always)]
pub(crate) fn count(kind: Kind, reason: Waiting) {
    if CONFIG.counters {
        event(kind, reason as u8);
    }
}

/// Counts that the thread leaves the processor to another one; `kind` says what becomes of its stack.
#[inline(always)]
pub(crate) fn blocked(t: &Thread, kind: Kind) {
    let reason = match t.run.get() {
        Run::Waiting(why) => why,
        // A thread that stops itself has no reason of its own.
        Run::Ready | Run::Running | Run::Stopped => Waiting::Nothing,
    };
    count(kind, reason);
}

/// Counts that the thread which left the processor in this state is the next to run.
#[inline(always)]
pub(crate) fn resumed(was: Run) {
    if let Run::Waiting(why) = was {
        count(ALONE, why);
    }
}

/// Counts that a call is completed in the frame of a blocked thread, which does not restart it.
#[inline(always)]
pub(crate) fn completed(t: &Thread) {
    if let Run::Waiting(why) = t.run.get() {
        count(Kind::Recognised, why);
    }
}

/// The number of events of this kind and reason on the simulated machine.
#[cfg(test)]
pub(crate) fn counted(kind: Kind, reason: Waiting) -> u64 {
    hal::host::events(kind as u8 * REASONS + reason as u8)
}

/// The number of calls that were abandoned, and that were begun again.
#[cfg(test)]
pub(crate) fn restarts() -> [u64; 2] {
    [ABANDONED, BEGUN].map(|n| hal::host::events(Kind::Restart as u8 * REASONS + n))
}
