//! Mutexes: locked or not, without an owner and without priority inheritance.

use super::{Handles, Header, NonNullLink, Object, Table, Target};
use crate::object::thread::Thread;
use crate::queue::WaitQueue;
use crate::{Stop, K};
use abi::Type;
use core::cell::Cell;

/// A mutex. An unlock hands the lock over to the first waiter: the mutex stays locked and the waiter's call is
/// complete (rule A8).
pub(crate) struct Mutex {
    head: Header,
    pub(crate) locked: Cell<bool>,
    pub(crate) waiters: WaitQueue,
}

impl Object for Mutex {
    const TYPE: Type = Type::Mutex;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Mutex(link)
    }
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Mutex(link) => Some(link),
            _ => None,
        }
    }
    type Seed = ();
    fn blank(head: Header, (): ()) -> Self {
        Mutex {
            head,
            locked: Cell::new(false),
            waiters: WaitQueue::new(),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.mutexes
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.mutexes
    }
    fn open(&'static self, _: K) {
        self.locked.set(false);
    }
    fn disperse(&'static self, k: K, t: &'static Thread) -> Result<(), Stop> {
        self.waiters.wake_all_or_again(k, t)
    }
    fn close(&'static self, k: K) {
        self.waiters.wake_all(k);
    }
    fn end(&'static self, _: K) {}
}
