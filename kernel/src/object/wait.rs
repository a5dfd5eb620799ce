//! Wait queues: who waits for what, and how a wait ends.
//!
//! There is one way to wait: the handler notes the queue and returns [`crate::Outcome::Wait`] as
//! its last act. A waker does one of two things (rule A8): it *completes* the waiter's call in its
//! frame ([`crate::object::thread::Thread::complete`]), or it *wakes* the waiter with nothing
//! granted, and the waiter does its call again.
//!
//! A queue is in order of priority, first come first served within one. A thread is in at most
//! one queue, ready queues included, and stopped threads are in none.

#[cfg(any(test, fermata_probe))]
use crate::check::same;
use crate::object::thread::Thread;
use crate::treap::{self, Treap};
use crate::{Stop, CONFIG, K};
use abi::PRIORITIES;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use hal::NarrowCell;

/// Waiters that are woken between two looks at the interrupts.
const WAKES_PER_TURN: u32 = 64;

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

    pub(crate) fn is_empty(&self) -> bool {
        self.head.get().is_none()
    }

    /// Adds the thread behind those of its priority.
    #[inline(always)]
    pub(crate) fn push(&'static self, t: &'static Thread) {
        if !self.push_last(t) {
            self.push_between(t);
        }
    }

    /// Adds the thread if its place is behind all others. Whether it is.
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

    /// Adds the thread before those of its priority.
    pub(crate) fn push_front(&'static self, t: &'static Thread) {
        let mut after = self.tail.get();
        while let Some(other) = after {
            if other.priority.get() > t.priority.get() {
                break;
            }
            after = other.links.prev.get();
        }
        self.insert(t, after);
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

    /// Takes out the first thread, which is `t`.
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

    /// Wakes every waiter with nothing granted.
    #[inline(always)]
    pub(crate) fn wake_all(&self, k: K) {
        if !self.is_empty() {
            self.wake_until(k, || false);
        }
    }

    /// As [`WaitQueue::wake_all`], with a look at the interrupts now and then: for a handler that is in the
    /// middle of nothing that an interrupt could change.
    #[inline(always)]
    pub(crate) fn wake_all_in_turns(&self, k: K) {
        if !self.is_empty() {
            self.wake_until(k, || {
                k.look_at_interrupts();
                false
            });
        }
    }

    /// The same for a call of that thread which has changed nothing yet: if somebody else should run
    /// it begins again.
    #[inline(always)]
    pub(crate) fn wake_all_or_again(&self, k: K, t: &Thread) -> Result<(), Stop> {
        if !self.is_empty() && self.wake_until(k, || k.preempts(t)) {
            return Err(Stop::Again);
        }
        Ok(())
    }

    /// Wakes waiters, and asks after some whether to stop. Whether it has stopped.
    #[inline(never)]
    fn wake_until(&self, k: K, stop: impl Fn() -> bool) -> bool {
        // A waiter that cannot run yet may come back to the end of this very queue (a thread
        // whose space is vacant, see `append`): the last one of now is the last one to look at.
        let Some(last) = self.tail.get() else {
            return false;
        };
        let mut woken = 0;
        while let Some(t) = self.first() {
            t.wake(k);
            if core::ptr::eq(t, last) {
                break;
            }
            woken += 1;
            if woken % WAKES_PER_TURN == 0 && stop() {
                return true;
            }
        }
        false
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

/// Threads with a deadline: for each priority, in the order of their deadlines on the machine's clock. The deadlines
/// of threads that could not run if they came are no concern of the running thread: however many come, it is not
/// held up by those of lower priorities, which are *put off*.
pub(crate) struct Deadlines {
    levels: [Level; PRIORITIES as usize],
    /// Bit n: there are threads of priority n.
    occupied: Cell<u32>,
    /// Below this priority they are put off. 0: none is.
    floor: Cell<u8>,
    /// When those that are put off are looked at again, or `u64::MAX`.
    again: Cell<u64>,
    /// When there is something to see to: the first deadline of those that are not put off, or `again`.
    next: Cell<u64>,
    /// Threads whose deadline came while another thread was preempted in the kernel, perhaps while it changed the
    /// queue in which they wait. In any order.
    late: NarrowCell<Thread>,
}

/// The threads of one priority that have a deadline.
struct Level {
    tree: Treap<Thread>,
    /// The first of the tree.
    first: NarrowCell<Thread>,
}

/// Deadlines that are put off are looked at again after so many nanoseconds, if nothing has happened before that lets
/// their threads run.
///
/// A kernel that checks its structures on every way out needs more than that for one ring of the timer, and would
/// do nothing else.
const PUT_OFF: u64 = if CONFIG.probe { 10_000_000 } else { 100_000 };

/// What the weights of threads depend on, and nothing else does.
static SECRET: AtomicU32 = AtomicU32::new(0);

/// A thread's place among the deadlines.
pub(crate) struct DeadlineLinks {
    /// On the machine's clock, in nanoseconds; `u64::MAX` while there is none.
    at: Cell<u64>,
    /// Its place in the tree; or of those that are late its neighbours.
    place: Place,
}

/// Both are as large, and one thread is in one of the two at a time.
type Place = treap::Node<Thread>;

impl DeadlineLinks {
    pub(crate) const fn new() -> Self {
        DeadlineLinks {
            at: Cell::new(u64::MAX),
            place: treap::Node::new(),
        }
    }

    #[inline(always)]
    fn at(&self) -> u64 {
        self.at.get()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.at() != u64::MAX
    }
}

impl treap::Item for Thread {
    /// Threads with the same deadline are in the order of their addresses.
    type Key = (u64, usize);
    #[inline(always)]
    fn key(&self) -> Self::Key {
        (self.deadline.at(), core::ptr::from_ref(self).addr())
    }
    /// A hash of its address, which is the same whenever it sleeps, with a number that nobody knows: it has
    /// no room for a weight of its own.
    #[inline(always)]
    fn weight(&self) -> u32 {
        let mut x = core::ptr::from_ref(self).addr() as u32 ^ SECRET.load(Relaxed);
        x = (x ^ x >> 16).wrapping_mul(0x85eb_ca6b);
        x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
        x ^ x >> 16
    }
    #[inline(always)]
    fn node(&self) -> &Place {
        &self.deadline.place
    }
}

impl Level {
    const fn new() -> Self {
        Level {
            tree: Treap::new(),
            first: NarrowCell::none(),
        }
    }
}

impl Deadlines {
    pub(crate) fn new() -> Self {
        // The first kernel decides, for a test may have several at once.
        let _ = SECRET.compare_exchange(0, hal::ticks() as u32 | 1, Relaxed, Relaxed);
        Deadlines {
            levels: [const { Level::new() }; PRIORITIES as usize],
            occupied: Cell::new(0),
            floor: Cell::new(0),
            again: Cell::new(u64::MAX),
            next: Cell::new(u64::MAX),
            late: NarrowCell::none(),
        }
    }

    /// When there is something to see to, or `u64::MAX`.
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.next.get()
    }

    /// Adds a thread that has none. At `u64::MAX`, never, there is nothing to add.
    pub(crate) fn add(&self, t: &'static Thread, at: u64) {
        if at == u64::MAX {
            return;
        }
        t.deadline.at.set(at);
        let p = t.priority.get();
        let level = &self.levels[usize::from(p)];
        let (before, _) = level.tree.insert(t);
        if before.is_none() {
            level.first.set(Some(t));
            self.occupied.set(self.occupied.get() | 1 << p);
            if p >= self.floor.get() && at < self.next.get() {
                self.next.set(at);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn remove(&self, t: &Thread) {
        if t.deadline.is_set() {
            self.take_out(t);
        }
    }

    #[inline(never)]
    fn take_out(&self, t: &Thread) {
        if t.is_late() {
            t.set_late(false);
            t.deadline.place.leave_aside(&self.late);
        } else {
            let p = t.priority.get();
            let level = &self.levels[usize::from(p)];
            level.tree.remove(t);
            if level.first.get().is_some_and(|f| core::ptr::eq(f, t)) {
                let first = level.tree.first(|_| true);
                level.first.set(first);
                if first.is_none() {
                    self.occupied.set(self.occupied.get() & !(1 << p));
                }
                self.find_next();
            }
        }
        t.deadline.at.set(u64::MAX);
    }

    /// The thread gets another priority: its deadline stays.
    pub(crate) fn with_priority(&self, t: &'static Thread, priority: u8) {
        if !t.deadline.is_set() || t.is_late() {
            t.priority.set(priority);
            return;
        }
        let at = t.deadline.at();
        self.take_out(t);
        t.priority.set(priority);
        self.add(t, at);
    }

    /// The priorities from this one on of which there are threads, the highest first, with their first deadlines.
    fn firsts(&self, floor: u8) -> impl Iterator<Item = (u8, &'static Thread)> + '_ {
        let mut left = self.occupied.get() & u32::MAX << floor;
        core::iter::from_fn(move || {
            let p = left.checked_ilog2()?;
            left ^= 1 << p;
            Some((p as u8, self.levels[p as usize].first.get()?))
        })
    }

    fn find_next(&self) {
        let mut next = self.again.get();
        for (_, t) in self.firsts(self.floor.get()) {
            next = next.min(t.deadline.at());
        }
        self.next.set(next);
    }

    /// A thread whose deadline has come, of the highest priority, if that is at least the floor.
    pub(crate) fn due(&self, now: u64, floor: u8) -> Option<&'static Thread> {
        let mut firsts = self.firsts(floor).map(|(_, t)| t);
        firsts.find(|t| t.deadline.at() <= now)
    }

    /// While a thread of this priority runs: those that have come for lower ones are put off.
    pub(crate) fn put_off(&self, now: u64, floor: u8) {
        let due = self
            .firsts(0)
            .any(|(p, t)| p < floor && t.deadline.at() <= now);
        let (floor, again) = if due {
            (floor, now + PUT_OFF)
        } else {
            (0, u64::MAX)
        };
        self.look_from(floor, again);
    }

    fn look_from(&self, floor: u8, again: u64) {
        self.floor.set(floor);
        self.again.set(again);
        self.find_next();
    }

    /// Below which priority they are put off.
    #[inline(always)]
    pub(crate) fn floor(&self) -> u8 {
        self.floor.get()
    }

    /// A thread of a lower priority than the floor runs next, or none.
    #[cold]
    pub(crate) fn look_again(&self) {
        self.look_from(0, u64::MAX);
    }

    /// Puts a thread whose deadline has come aside, until it can be told.
    pub(crate) fn postpone(&self, t: &'static Thread) {
        let at = t.deadline.at.get();
        self.remove(t);
        t.deadline.at.set(at);
        t.set_late(true);
        treap::Node::put_aside(t, &self.late);
    }

    /// The first thread that was put aside.
    pub(crate) fn postponed(&self) -> Option<&'static Thread> {
        self.late.get()
    }
}

#[cfg(any(test, fermata_probe))]
impl WaitQueue {
    /// Calls `f` with who is in the queue, checking its links on the way.
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

/// Whether that is the queue that the thread is in.
#[cfg(any(test, fermata_probe))]
pub(crate) fn is_in(t: &Thread, queue: Option<&'static WaitQueue>) -> bool {
    same(t.links.queue.get(), queue)
}

#[cfg(any(test, fermata_probe))]
impl Deadlines {
    /// Calls `f` with who has a deadline and when it is, checking the order on the way.
    pub(crate) fn each(&self, f: impl FnMut(u64, &'static Thread)) {
        let f = core::cell::RefCell::new(f);
        let next = Cell::new(self.again.get());
        for (p, level) in self.levels.iter().enumerate() {
            let (last, first) = (Cell::new(0), NarrowCell::none());
            level.tree.each(&|t: &'static Thread| {
                if first.get().is_none() {
                    first.set(Some(t));
                }
                let at = t.deadline.at();
                assert!(last.replace(at) <= at, "deadlines out of order");
                assert_eq!(usize::from(t.priority.get()), p, "a deadline's priority");
                f.borrow_mut()(at, t);
            });
            assert!(same(level.first.get(), first.get()), "the first deadline");
            let occupied = self.occupied.get() & 1 << p != 0;
            assert_eq!(occupied, first.get().is_some(), "priorities with deadlines");
            if let Some(first) = first.get().filter(|_| p >= usize::from(self.floor.get())) {
                next.set(next.get().min(first.deadline.at()));
            }
        }
        assert_eq!(self.next.get(), next.get(), "the next deadline");
    }
}
