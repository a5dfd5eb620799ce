//! Deadlines of waiting threads.

use crate::avl::{self, Tree};
use crate::config::{CONFIG, FULL};
use crate::object::thread::{Run, Thread};
#[cfg(any(test, fermata_probe))]
use crate::queue::same;
use abi::state::Waiting;
use abi::PRIORITIES;
use core::cell::Cell;
use hal::NarrowCell;

/// The threads with a deadline: for each priority, in the order of their deadlines on the machine's clock.
///
/// The timer must not delay the running thread for deadlines of threads of lower priorities, however many expire:
/// those threads could not run anyway. Such deadlines are *put off*.
///
/// Under full preemption the timer may ring while a thread is in the middle of a call, perhaps while it changes
/// the queue in which the thread with the expired deadline waits. From then on until the call ends, deadlines
/// of waits in queues are *withheld*, and only deadlines of threads that are in no queue are handled.
pub(crate) struct Deadlines {
    /// First the threads that wait in no queue, then those that wait in a queue. Without full preemption there is
    /// one entry for both.
    kinds: [Levels; KINDS],
    /// Deadlines below this priority are put off. 0: none are.
    floor: Cell<u8>,
    /// When the deadlines that are put off are checked again, or `u64::MAX`.
    again: Cell<u64>,
    /// When the timer has to ring: at the first deadline that is neither put off nor withheld, or at `again` if
    /// that is earlier.
    next: Cell<u64>,
    /// Whether deadlines of waits in queues are withheld.
    withheld: Cell<bool>,
    /// The thread in the middle of a call whose own deadline has come. It has begun its wait and is about to
    /// leave the kernel.
    late: NarrowCell<Thread>,
}

const KINDS: usize = 1 + FULL as usize;

/// Threads with a deadline by their priorities.
struct Levels {
    levels: [Level; PRIORITIES as usize],
    /// Bit n: there are threads of priority n.
    occupied: Cell<u32>,
}

/// The threads of one priority that have a deadline.
struct Level {
    tree: Tree<Thread>,
    /// The thread with the first deadline.
    first: NarrowCell<Thread>,
}

/// Nanoseconds after which deadlines that are put off are checked again, if no thread of a priority below the floor
/// runs before.
///
/// A kernel for cut tests gets more time: it checks its structures at the end of every trap, so that one ring of the
/// timer takes more than 100 µs, and it would do nothing else.
pub(crate) const PUT_OFF: u64 = if CONFIG.probe { 10_000_000 } else { 100_000 };

/// A thread's place among the deadlines.
pub(crate) struct DeadlineLinks {
    /// The deadline, in nanoseconds on the machine's clock; `u64::MAX` while there is none.
    at: Cell<u64>,
    place: avl::Node<Thread>,
}

impl DeadlineLinks {
    pub(crate) const fn new() -> Self {
        DeadlineLinks {
            at: Cell::new(u64::MAX),
            place: avl::Node::new(),
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

/// A bit of the flags of a thread: the thread is in a queue while it waits until its deadline.
pub(crate) const DEADLINE_IN_QUEUE: u8 = 4;

impl Thread {
    /// Whether it is in a queue while it waits until its deadline.
    fn deadline_in_queue(&self) -> bool {
        self.flags.get() & DEADLINE_IN_QUEUE != 0
    }

    fn set_deadline_in_queue(&self, in_queue: bool) {
        let others = self.flags.get() & !DEADLINE_IN_QUEUE;
        self.flags.set(if in_queue {
            others | DEADLINE_IN_QUEUE
        } else {
            others
        });
    }
}

impl avl::Item for Thread {
    /// The thread's deadline, and its address, which orders threads with equal deadlines.
    type Key = u128;
    #[inline(always)]
    fn key(&self) -> u128 {
        u128::from(self.deadline.at()) << 64 | core::ptr::from_ref(self).addr() as u128
    }
    #[inline(always)]
    fn node(&self) -> &avl::Node<Thread> {
        &self.deadline.place
    }
    #[inline(always)]
    fn balance(&self) -> &Cell<i8> {
        &self.deadline_balance
    }
}

impl Level {
    const fn new() -> Self {
        Level {
            tree: Tree::new(),
            first: NarrowCell::none(),
        }
    }
}

impl Deadlines {
    pub(crate) fn new() -> Self {
        Deadlines {
            kinds: [const {
                Levels {
                    levels: [const { Level::new() }; PRIORITIES as usize],
                    occupied: Cell::new(0),
                }
            }; KINDS],
            floor: Cell::new(0),
            again: Cell::new(u64::MAX),
            next: Cell::new(u64::MAX),
            withheld: Cell::new(false),
            late: NarrowCell::none(),
        }
    }

    /// The thread's kind (in a queue or not) and its level there.
    #[inline(always)]
    fn level_of(&self, t: &Thread) -> (&Levels, &Level) {
        let kind = &self.kinds[usize::from(FULL && t.deadline_in_queue())];
        (kind, &kind.levels[usize::from(t.priority.get())])
    }

    /// The kinds whose deadlines are not withheld.
    #[inline(always)]
    fn seen_to(&self) -> &[Levels] {
        if FULL && self.withheld.get() {
            &self.kinds[..1]
        } else {
            &self.kinds
        }
    }

    /// When the timer has to ring, or `u64::MAX`.
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.next.get()
    }

    /// Adds the deadline `at` of a thread that has none and has begun its wait. `u64::MAX` means never: nothing
    /// is added.
    pub(crate) fn add(&self, t: &'static Thread, at: u64) {
        if at == u64::MAX {
            return;
        }
        if FULL {
            let alone = matches!(
                t.run.get(),
                Run::Waiting(Waiting::Deadline | Waiting::Interrupt)
            );
            t.set_deadline_in_queue(!alone);
        }
        self.insert(t, at);
    }

    fn insert(&self, t: &'static Thread, at: u64) {
        t.deadline.at.set(at);
        let p = t.priority.get();
        let (kind, level) = self.level_of(t);
        let (before, _) = level.tree.insert(t);
        if before.is_none() {
            level.first.set(Some(t));
            kind.occupied.set(kind.occupied.get() | 1 << p);
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

    /// Removes the deadline of a thread that goes on waiting, and returns that deadline; `u64::MAX` if it had none.
    pub(crate) fn suspend(&self, t: &Thread) -> u64 {
        let at = t.deadline.at();
        self.remove(t);
        at
    }

    #[inline(never)]
    fn take_out(&self, t: &Thread) {
        if self.is_late(t) {
            self.late.set(None);
        } else {
            let (kind, level) = self.level_of(t);
            level.tree.remove(t);
            if level.first.get().is_some_and(|f| core::ptr::eq(f, t)) {
                let first = level.tree.first(|_| true);
                level.first.set(first);
                if first.is_none() {
                    let p = t.priority.get();
                    kind.occupied.set(kind.occupied.get() & !(1 << p));
                }
                self.find_next();
            }
        }
        t.deadline.at.set(u64::MAX);
    }

    /// Whether the thread's own deadline has come while it was in the middle of a call.
    fn is_late(&self, t: &Thread) -> bool {
        FULL && self.late.get().is_some_and(|late| core::ptr::eq(late, t))
    }

    /// Gives the thread another priority and keeps its deadline.
    pub(crate) fn with_priority(&self, t: &'static Thread, priority: u8) {
        if !t.deadline.is_set() || self.is_late(t) {
            t.priority.set(priority);
            return;
        }
        let at = t.deadline.at();
        self.take_out(t);
        t.priority.set(priority);
        self.insert(t, at);
    }

    /// The priorities from `floor` up that have deadlines which are not withheld, highest first, each with its
    /// thread of the earliest deadline.
    fn firsts(&self, floor: u8) -> impl Iterator<Item = (u8, &'static Thread)> + '_ {
        let kinds = self.seen_to();
        let mut left =
            kinds.iter().fold(0, |all, kind| all | kind.occupied.get()) & u32::MAX << floor;
        core::iter::from_fn(move || {
            let p = left.checked_ilog2()?;
            left ^= 1 << p;
            let firsts = kinds
                .iter()
                .filter_map(|kind| kind.levels[p as usize].first.get());
            Some((p as u8, firsts.min_by_key(|first| first.deadline.at())?))
        })
    }

    fn find_next(&self) {
        let mut next = self.again.get();
        for (_, t) in self.firsts(self.floor.get()) {
            next = next.min(t.deadline.at());
        }
        self.next.set(next);
    }

    /// The thread of the highest priority whose deadline has come at `now`. `None` if there is none from
    /// `floor` up.
    pub(crate) fn due(&self, now: u64, floor: u8) -> Option<&'static Thread> {
        let mut firsts = self.firsts(floor).map(|(_, t)| t);
        firsts.find(|t| t.deadline.at() <= now)
    }

    /// Puts off the deadlines of priorities below `floor`, the running thread's priority, if any of them has come.
    /// Returns the highest priority that has a deadline which has come.
    pub(crate) fn put_off(&self, now: u64, floor: u8) -> Option<u8> {
        let mut firsts = self.firsts(0);
        let due = firsts.find(|(p, t)| *p < floor && t.deadline.at() <= now);
        let (floor, again) = if due.is_some() {
            (floor, now + PUT_OFF)
        } else {
            (0, u64::MAX)
        };
        self.look_from(floor, again);
        due.map(|(p, _)| p)
    }

    fn look_from(&self, floor: u8, again: u64) {
        self.floor.set(floor);
        self.again.set(again);
        self.find_next();
    }

    /// The priority below which deadlines are put off.
    #[inline(always)]
    pub(crate) fn floor(&self) -> u8 {
        self.floor.get()
    }

    /// No longer puts deadlines off, as a thread of a priority below the floor runs next, or no thread does.
    #[cold]
    pub(crate) fn look_again(&self) {
        self.look_from(0, u64::MAX);
    }

    /// Withholds deadlines of waits in queues: the timer has rung while `holder` is in the middle of a call.
    pub(crate) fn withhold(&self, holder: &'static Thread, now: u64) {
        self.withheld.set(true);
        let at = holder.deadline.at();
        if at <= now && !self.is_late(holder) {
            self.take_out(holder);
            holder.deadline.at.set(at);
            self.late.set(Some(holder));
        }
    }

    /// Whether deadlines are withheld.
    #[inline(always)]
    pub(crate) fn are_withheld(&self) -> bool {
        self.withheld.get()
    }

    /// No longer withholds deadlines: the call is over. Returns the thread that made it if its own deadline has
    /// come.
    pub(crate) fn release(&self) -> Option<&'static Thread> {
        self.withheld.set(false);
        self.find_next();
        self.late.get()
    }
}

#[cfg(any(test, fermata_probe))]
impl Deadlines {
    /// Calls `f` with each deadline and its thread, and checks the structure.
    pub(crate) fn each(&self, f: impl FnMut(u64, &'static Thread)) {
        let f = core::cell::RefCell::new(f);
        let next = Cell::new(self.again.get());
        for (kind, p, level) in self.kinds.iter().flat_map(|kind| {
            kind.levels
                .iter()
                .enumerate()
                .map(move |(p, level)| (kind, p, level))
        }) {
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
            let occupied = kind.occupied.get() & 1 << p != 0;
            assert_eq!(occupied, first.get().is_some(), "priorities with deadlines");
            let seen_to = self.seen_to().iter().any(|seen| core::ptr::eq(seen, kind));
            let counts = seen_to && p >= usize::from(self.floor.get());
            if let Some(first) = first.get().filter(|_| counts) {
                next.set(next.get().min(first.deadline.at()));
            }
        }
        assert_eq!(self.next.get(), next.get(), "the next deadline");
    }
}
