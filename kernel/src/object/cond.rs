//! Condition variables. They have no state: whoever waits has already become a `mutex_lock`.

use super::{Handles, Header, NonNullLink, Object, Table, Target};
use crate::object::thread::Thread;
use crate::wait::WaitQueue;
use crate::{Stop, K};
use abi::Type;

/// A condition variable.
pub(crate) struct Cond {
    head: Header,
    pub(crate) waiters: WaitQueue,
}

impl Object for Cond {
    const TYPE: Type = Type::Cond;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Cond(link)
    }
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Cond(link) => Some(link),
            _ => None,
        }
    }
    type Seed = ();
    fn blank(head: Header, (): ()) -> Self {
        Cond {
            head,
            waiters: WaitQueue::new(),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.conds
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.conds
    }
    fn open(&'static self, _: K) {}
    fn disperse(&'static self, k: K, t: &Thread) -> Result<(), Stop> {
        self.waiters.wake_all_or_again(k, t)
    }
    fn close(&'static self, k: K) {
        // Each goes on with the `mutex_lock` that it has become: a spurious return (A8).
        self.waiters.wake_all(k);
    }
    fn end(&'static self, _: K) {}
}
