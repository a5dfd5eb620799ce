//! How what leaves gets from the thread that has the stack to the one that sends: a batch at a time.

use crate::batch::Batch;
use crate::stack::Stack;

/// What the two threads share, behind a lock.
#[derive(Debug, Default)]
pub struct Leaving {
    batch: Batch,
    /// The thread that sends has been given a batch, and has not sent it yet.
    busy: bool,
    /// There was more to leave meanwhile.
    more: bool,
}

impl Leaving {
    /// Nothing leaves.
    #[must_use]
    pub const fn new() -> Self {
        Leaving {
            batch: Batch::new(),
            busy: false,
            more: false,
        }
    }

    /// Gives the thread that sends what is to leave, in exchange for memory, unless it has something: then it asks for
    /// this when it has sent that. Whether it was given something, and is to be woken.
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

    /// The thread that sends takes what it was given, in exchange for memory: nothing is in `batch` before, nor after
    /// if it was given nothing.
    pub fn take(&mut self, batch: &mut Batch) {
        core::mem::swap(&mut self.batch, batch);
    }

    /// The thread that sends has sent what it took, and can be given more from now on. Whether there is more: it has to
    /// ask the other thread, which may wait for nothing else.
    #[must_use]
    pub fn sent(&mut self) -> bool {
        self.busy = false;
        core::mem::take(&mut self.more)
    }
}
