//! Condition variables. They have no state: whoever waits has already become a `mutex_lock`.

use super::{Header, Object, Table, CHUNK, NO_PARTS};
use crate::wait::WaitQueue;
use crate::K;
use abi::{RefKind, Type};

/// A condition variable.
pub(crate) struct Cond {
    head: Header,
    pub(crate) waiters: WaitQueue,
}

impl Object for Cond {
    const TYPE: Type = Type::Cond;
    const KIND: RefKind = RefKind::Cond;
    type Part = ();
    fn parts() -> Option<&'static [(); CHUNK]> {
        Some(NO_PARTS)
    }
    fn blank(head: Header, _: &'static ()) -> Self {
        Cond { head, waiters: WaitQueue::new() }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.conds
    }
    fn open(&'static self, _: K) {}
    fn close(&'static self, k: K) {
        // Each goes on with the `mutex_lock` that it has become: a spurious return (A8).
        self.waiters.wake_all(k);
    }
    fn end(&'static self, _: K) {}
}
