//! Tasks whose calls are to be made again.

use alloc::vec::Vec;
use personality::system::Tid;

/// A set of tasks that get turns in the order of their numbers, round and round, also if each turn makes others due.
#[derive(Default)]
pub(super) struct Due {
    /// Sorted. There are few at a time; the memory for many is kept.
    tasks: Vec<Tid>,
    /// The task that had the last turn.
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

    /// Removes and returns the task whose turn is next.
    pub(super) fn next(&mut self) -> Option<Tid> {
        let after = self.tasks.partition_point(|tid| *tid <= self.last);
        let at = if after < self.tasks.len() { after } else { 0 };
        self.last = *self.tasks.get(at)?;
        Some(self.tasks.remove(at))
    }

    /// Puts back a task that could not use its turn, as the next one.
    pub(super) fn first_again(&mut self, tid: Tid) {
        self.insert(tid);
        self.last = tid.wrapping_sub(1);
    }
}
