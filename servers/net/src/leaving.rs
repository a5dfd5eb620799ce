//! Hands leaving frames from the thread that has the stack to the thread that sends, a batch at a time.

use crate::batch::Batch;
use crate::stack::Stack;

/// The state that the two threads share, behind a lock.
#[derive(Debug, Default)]
pub struct Leaving {
    batch: Batch,
    /// Whether the thread that sends has been given a batch that it has not sent yet.
    busy: bool,
    /// Whether more frames were to leave meanwhile.
    more: bool,
}

impl Leaving {
    /// A state without frames.
    #[must_use]
    pub const fn new() -> Self {
        Leaving {
            batch: Batch::new(),
            busy: false,
            more: false,
        }
    }

    /// Gives the leaving frames to the thread that sends, in exchange for memory (`spare`), unless that thread is still
    /// sending a batch: it asks for the next one itself then ([`Leaving::sent`]). Returns whether a batch was given, so
    /// that the thread is to be woken.
    #[must_use]
    pub fn give(&mut self, stack: &mut Stack, spare: &mut Batch) -> bool {
        if !stack.has_leaving() {
            return false;
        }
        if self.busy {
            self.more = true;
            return false;
        }
        stack.take_leaving(spare);
        core::mem::swap(&mut self.batch, spare);
        self.busy = true;
        true
    }

    /// Called by the thread that sends: takes the batch that it was given, in exchange for memory. `batch` has no
    /// frames before, and none afterwards if nothing was given.
    pub fn take(&mut self, batch: &mut Batch) {
        core::mem::swap(&mut self.batch, batch);
    }

    /// Called by the thread that sends when its batch has been sent, so that it can be given another. Returns whether
    /// more is to leave: then the caller must wake the other thread, which may have nothing else to wake it.
    #[must_use]
    pub fn sent(&mut self) -> bool {
        self.busy = false;
        core::mem::take(&mut self.more)
    }
}
