//! Queues of threads: threads that wait for the same thing, and ready threads of one priority.
//!
//! A queue is in order of priority, and first come, first served within a priority. A thread is in at most one queue,
//! ready queues included, and stopped threads are in none. How a thread begins and ends a wait is in `object/wait.rs`.

use crate::object::thread::Thread;
use hal::NarrowCell;

/// A queue of threads.
pub(crate) struct WaitQueue {
    head: NarrowCell<Thread>,
    tail: NarrowCell<Thread>,
}

/// A thread's place in the queue that it is in.
pub(crate) struct Links {
    queue: NarrowCell<WaitQueue>,
    next: NarrowCell<Thread>,
    prev: NarrowCell<Thread>,
}

impl Links {
    pub(crate) const fn new() -> Self {
        Links {
            queue: NarrowCell::none(),
            next: NarrowCell::none(),
            prev: NarrowCell::none(),
        }
    }
}

impl WaitQueue {
    pub(crate) const fn new() -> Self {
        WaitQueue {
            head: NarrowCell::none(),
            tail: NarrowCell::none(),
        }
    }

    pub(crate) fn first(&self) -> Option<&'static Thread> {
        self.head.get()
    }

    pub(crate) fn last(&self) -> Option<&'static Thread> {
        self.tail.get()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.get().is_none()
    }

    /// Adds the thread behind the other threads of its priority.
    #[inline(always)]
    pub(crate) fn push(&'static self, t: &'static Thread) {
        if !self.push_last(t) {
            self.push_between(t);
        }
    }

    /// Adds the thread if its place is behind all others, and returns whether it did.
    #[inline(always)]
    pub(crate) fn push_last(&'static self, t: &'static Thread) -> bool {
        let last = self.tail.get();
        match last {
            None => self.head.set(Some(t)),
            Some(last) => {
                if last.priority.get() < t.priority.get() {
                    return false;
                }
                last.links.next.set(Some(t));
            }
        }
        t.links.prev.set(last);
        self.tail.set(Some(t));
        t.links.next.set(None);
        t.links.queue.set(Some(self));
        true
    }

    #[inline(never)]
    fn push_between(&'static self, t: &'static Thread) {
        let mut after = self.tail.get();
        while let Some(other) = after {
            if other.priority.get() >= t.priority.get() {
                break;
            }
            after = other.links.prev.get();
        }
        self.insert(t, after);
    }

    /// Adds the thread before all others. None of them may have a higher priority.
    pub(crate) fn push_front(&'static self, t: &'static Thread) {
        self.insert(t, None);
    }

    /// Adds the thread behind all others, whatever its priority.
    #[inline(always)]
    pub(crate) fn append(&'static self, t: &'static Thread) {
        let last = self.tail.replace(Some(t));
        t.links.prev.set(last);
        t.links.next.set(None);
        t.links.queue.set(Some(self));
        match last {
            Some(last) => last.links.next.set(Some(t)),
            None => self.head.set(Some(t)),
        }
    }

    fn insert(&'static self, t: &'static Thread, after: Option<&'static Thread>) {
        let next = match after {
            Some(a) => a.links.next.replace(Some(t)),
            None => self.head.replace(Some(t)),
        };
        t.links.prev.set(after);
        t.links.next.set(next);
        match next {
            Some(n) => n.links.prev.set(Some(t)),
            None => self.tail.set(Some(t)),
        }
        t.links.queue.set(Some(self));
    }

    /// Removes `t`, which must be the first thread.
    #[inline]
    pub(crate) fn pop(&self, t: &'static Thread) {
        let next = t.links.next.get();
        self.head.set(next);
        match next {
            Some(n) => n.links.prev.set(None),
            None => self.tail.set(None),
        }
        t.links.queue.set(None);
    }
}

/// Takes the thread out of the queue that it is in, if any.
pub(crate) fn leave_queue(t: &Thread) {
    let Some(queue) = t.links.queue.take() else {
        return;
    };
    let prev = t.links.prev.take();
    let next = t.links.next.take();
    match prev {
        Some(p) => p.links.next.set(next),
        None => queue.head.set(next),
    }
    match next {
        Some(n) => n.links.prev.set(prev),
        None => queue.tail.set(prev),
    }
}

/// Puts a thread whose priority has changed into its new place.
pub(crate) fn requeue(t: &'static Thread) {
    if let Some(queue) = t.links.queue.get() {
        leave_queue(t);
        queue.push(t);
    }
}

#[cfg(any(test, fermata_probe))]
impl WaitQueue {
    /// Calls `f` with each thread in the queue, in order, and checks the links.
    pub(crate) fn each(&'static self, mut f: impl FnMut(&'static Thread)) {
        let mut last: Option<&'static Thread> = None;
        let mut at = self.head.get();
        while let Some(t) = at {
            assert!(same(t.links.prev.get(), last), "a queue's links");
            assert!(is_in(t, Some(self)), "in a queue without knowing it");
            f(t);
            last = at;
            at = t.links.next.get();
        }
        assert!(same(self.tail.get(), last), "a queue's end");
    }
}

/// Whether `queue` is the queue that the thread is in (`None`: it is in no queue).
#[cfg(any(test, fermata_probe))]
pub(crate) fn is_in(t: &Thread, queue: Option<&'static WaitQueue>) -> bool {
    same(t.links.queue.get(), queue)
}

/// Whether both are the same object, or none.
#[cfg(any(test, fermata_probe))]
pub(crate) fn same<T>(a: Option<&'static T>, b: Option<&'static T>) -> bool {
    a.map(core::ptr::from_ref) == b.map(core::ptr::from_ref)
}
