//! Turns of programs between the steps of long work.
//!
//! The server has a higher priority than all programs: while it works none of them runs. Long work that is not a
//! program's call (writing a file back, waking many tasks, ending many processes) is therefore done in steps, each of
//! which is requested by a thread with the priority of programs. That thread runs after all programs that are ready, so
//! each of them has a time slice before each step.

use core::sync::atomic::{AtomicBool, Ordering};

use proto::layout::PRIORITY_PROGRAM;
use rt::obj::Ref;
use rt::{sys, thread, Code};

/// Set when the programs have had a turn.
static TURN: AtomicBool = AtomicBool::new(false);

/// The thread that requests steps.
pub(crate) struct Pace {
    thread: Ref,
    /// Whether it has been told to request one.
    asked: bool,
}

impl Pace {
    /// Starts the thread, which wakes the server by its bell.
    pub(crate) fn new(bell: Ref) -> Result<Self, Code> {
        let thread = thread::spawn_at(PRIORITY_PROGRAM, move || loop {
            sys::thread_wait_interrupt();
            // If the server asked while this thread was still running, the thread's old slice would go on, so it yields
            // first.
            sys::thread_yield();
            TURN.store(true, Ordering::Release);
            let _ = bell.poke();
        })?;
        let thread = thread.reference()?;
        let asked = false;
        Ok(Pace { thread, asked })
    }

    /// Has the thread wake the server when the programs have had a turn; returns whether it will.
    pub(crate) fn ask(&mut self) -> bool {
        self.asked = self.asked || self.thread.interrupt().is_ok();
        self.asked
    }

    /// Whether the programs have had a turn since the server asked.
    pub(crate) fn take(&mut self) -> bool {
        let turn = self.asked && TURN.swap(false, Ordering::AcqRel);
        self.asked &= !turn;
        turn
    }
}
