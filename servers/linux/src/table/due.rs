//! Tasks whose calls are to be made again.

use alloc::vec::Vec;
use personality::system::Tid;

/// Tasks that take turns, by their numbers, also if each one makes others due.
#[derive(Default)]
pub(super) struct Due {
    /// In order. There are few at a time, and the memory of a crowd stays for the next one.
    tasks: Vec<Tid>,
    /// Whose turn was last.
    last: Tid,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn insert(&mut self, tid: Tid) {
        if let Err(at) = self.tasks.binary_search(&tid) {
            self.tasks.insert(at, tid);
        }
    }

    pub(super) fn remove(&mut self, tid: Tid) {
        if let Ok(at) = self.tasks.binary_search(&tid) {
            self.tasks.remove(at);
        }
    }

    /// The next one in turn, which is not due any longer.
    pub(super) fn next(&mut self) -> Option<Tid> {
        let after = self.tasks.partition_point(|tid| *tid <= self.last);
        let at = if after < self.tasks.len() { after } else { 0 };
        self.last = *self.tasks.get(at)?;
        Some(self.tasks.remove(at))
    }

    /// The one whose turn it was could not have it: it is the first one of the next turn.
    pub(super) fn first_again(&mut self, tid: Tid) {
        self.insert(tid);
        self.last = tid.wrapping_sub(1);
    }
}
