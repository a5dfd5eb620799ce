//! Turns of programs between the steps of long work.
//!
//! The server is above all programs: as long as it works none of them runs. What takes long and is nobody's call (a file that is
//! written back, a crowd that is woken, the end of many processes) is therefore done in steps, each of which a thread asks for that
//! has the priority of programs. It comes behind those that can run, so each of them has a slice first.

use core::sync::atomic::{AtomicBool, Ordering};

use proto::layout::PRIORITY_PROGRAM;
use rt::obj::Ref;
use rt::{sys, thread, Code};

/// The programs have had a turn.
static TURN: AtomicBool = AtomicBool::new(false);

/// The thread that asks.
pub(crate) struct Pace {
    thread: Ref,
    /// It has been told to.
    asked: bool,
}

impl Pace {
    /// Starts the thread, which makes the server look by its bell.
    pub(crate) fn new(bell: Ref) -> Result<Self, Code> {
        let thread = thread::spawn_at(PRIORITY_PROGRAM, move || loop {
            sys::thread_wait_interrupt();
            // The server may have asked again before this thread was done: its slice goes on then.
            sys::thread_yield();
            TURN.store(true, Ordering::Release);
            let _ = bell.poke();
        })?;
        let thread = thread.reference()?;
        let asked = false;
        Ok(Pace { thread, asked })
    }

    /// Has the server look when the programs have had a turn: whether it will.
    pub(crate) fn ask(&mut self) -> bool {
        self.asked = self.asked || self.thread.interrupt().is_ok();
        self.asked
    }

    /// Whether they have had one since the server asked.
    pub(crate) fn take(&mut self) -> bool {
        let turn = self.asked && TURN.swap(false, Ordering::AcqRel);
        self.asked &= !turn;
        turn
    }
}
