//! What becomes of threads that block, counted per reason (Draves et al., Continuations, Tables 1
//! and 2), and what restarts cost (Ford et al., Table 3).
//!
//! Only a kernel that is built to count tells of anything ([`crate::Config::counters`]); in any
//! other all of this is nothing. And it does not count itself: every happening is an event of the
//! machine ([`hal::event`]), which the emulator's plugin sees. So there is no counter to read, to
//! reset or to protect, and a measured stretch has exactly its own events.
//!
//! The neighbours that call this: [`super::switch`], where a thread leaves the processor;
//! [`crate::Kernel`], where a call is abandoned and begun again; [`crate::object::thread::Thread`],
//! where a call is completed.

use crate::config::{Model, CONFIG};
use crate::object::thread::{Run, Thread};
use crate::Stop;
use abi::state::Waiting;
use hal::NarrowCell;

/// What is counted, for each [`Waiting`] reason; `Nothing` is for a thread that gives way to another,
/// by a yield or because it was preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Blocked, and kept its kernel stack.
    Kept = 0,
    /// Blocked with nothing but its frame or continuation, and the stack became free (compression).
    Compressed = 1,
    /// The same, and the next thread went on on that very stack (compression and handoff).
    HandedOff = 2,
    /// A blocked thread's call was completed in its frame by who woke it (recognition).
    Recognised = 3,
    /// A call that met an absent page was abandoned ([`ABANDONED`]) or begun again ([`BEGUN`]); the
    /// kernel begins to look for a page that the page table lacks ([`LOOKS`]), or ends that
    /// ([`LOOKED`]), in no restart. These have a time rather than a reason.
    Restart = 4,
}

/// Reasons per kind, in the numbers of events.
const REASONS: u8 = 16;
const _: () = assert!(Kind::Restart as u8 * REASONS + 4 <= hal::EVENTS);

const ABANDONED: u8 = 0;
const BEGUN: u8 = 1;
const LOOKS: u8 = 2;
const LOOKED: u8 = 3;

/// What is counted for a thread that blocked and was the next to run, because no other thread was ready.
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

    /// The running thread's call cannot go on: if that is for a page that is not there, the work of
    /// others begins that makes it present.
    #[inline(always)]
    pub(crate) fn abandon(&self, t: &'static Thread, stop: &Stop) {
        if CONFIG.counters && matches!(stop, Stop::Fault(_)) {
            self.abandoned.set(Some(t));
            event(Kind::Restart, ABANDONED);
        }
    }

    /// Looks for a page that the page table lacks.
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

    /// The running thread begins a call.
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

/// Counts.
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
        // A thread that stops itself waits for nothing that has a name.
        Run::Ready | Run::Running | Run::Stopped => Waiting::Nothing,
    };
    count(kind, reason);
}

/// Counts that the thread which was in this state goes on itself. If it waited, no other thread was ready
/// meanwhile.
#[inline(always)]
pub(crate) fn resumed(was: Run) {
    if let Run::Waiting(why) = was {
        count(ALONE, why);
    }
}

/// A call is completed in the frame: if its thread was blocked in it, its restart is never executed.
#[inline(always)]
pub(crate) fn completed(t: &Thread) {
    if let Run::Waiting(why) = t.run.get() {
        count(Kind::Recognised, why);
    }
}

/// How often this was counted on the simulated machine.
#[cfg(test)]
pub(crate) fn counted(kind: Kind, reason: Waiting) -> u64 {
    hal::host::events(kind as u8 * REASONS + reason as u8)
}

/// How often calls were abandoned, and begun again.
#[cfg(test)]
pub(crate) fn restarts() -> [u64; 2] {
    [ABANDONED, BEGUN].map(|n| hal::host::events(Kind::Restart as u8 * REASONS + n))
}
