//! The scheduler: fixed priorities, round robin within one.

use crate::object::thread::{Run, Thread};
use crate::wait::{self, WaitQueue};
use crate::K;
use abi::PRIORITIES;
use core::cell::Cell;

/// Time slice, in nanoseconds.
const SLICE: u64 = 10_000_000;

/// Who is ready.
pub(crate) struct Scheduler {
    ready: [WaitQueue; PRIORITIES as usize],
    /// Bit n: `ready[n]` is not empty.
    bits: Cell<u32>,
    /// When the running thread's slice ends, on the machine's clock.
    slice_end: Cell<u64>,
    /// For each priority, what is left of the turn of a thread that was displaced in it by a higher
    /// one; 0 if none was.
    left: [Cell<u64>; PRIORITIES as usize],
    /// What the timer was last set to.
    timer: Cell<u64>,
    /// The timer may have to be set.
    changed: Cell<bool>,
    /// The running thread should give way to one of its own priority.
    yielded: Cell<bool>,
}

impl Scheduler {
    pub(crate) const fn new() -> Self {
        Scheduler {
            ready: [const { WaitQueue::new() }; PRIORITIES as usize],
            bits: Cell::new(0),
            slice_end: Cell::new(0),
            left: [const { Cell::new(0) }; PRIORITIES as usize],
            timer: Cell::new(u64::MAX),
            changed: Cell::new(false),
            yielded: Cell::new(false),
        }
    }

    /// Puts a thread behind the others of its priority.
    pub(crate) fn add(&'static self, t: &'static Thread) {
        let p = usize::from(t.priority.get());
        self.ready[p].push(t);
        self.bits.set(self.bits.get() | 1 << p);
    }

    /// Takes a ready thread out.
    pub(crate) fn remove(&self, t: &Thread) {
        wait::leave_queue(t);
        let p = usize::from(t.priority.get());
        if self.ready[p].is_empty() {
            self.bits.set(self.bits.get() & !(1 << p));
        }
    }

    /// Whether somebody is ready who comes before that thread.
    #[inline]
    pub(crate) fn somebody_above(&self, t: &Thread) -> bool {
        // The priority is below 32, so that the shift is at most 32.
        u64::from(self.bits.get()) >> (u32::from(t.priority.get()) + 1) != 0
    }

    fn highest(&self) -> Option<usize> {
        31u32
            .checked_sub(self.bits.get().leading_zeros())
            .map(|p| p as usize)
    }

    /// The running thread has had its turn.
    pub(crate) fn yield_turn(&self) {
        self.yielded.set(true);
    }

    /// Whether there is anything to decide at all: somebody is ready, or the timer has rung and must
    /// be set again. (Who adds a deadline waits, and is through with running anyway.)
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.bits.get() != 0 || self.changed.get()
    }

    /// Whether a ready thread should run instead of the running one.
    pub(crate) fn wants(&self, t: &Thread) -> bool {
        let same = self.bits.get() & 1 << t.priority.get() != 0;
        self.somebody_above(t) || (self.yielded.get() && same)
    }

    /// As [`Scheduler::wants`]; whoever yielded has now been asked.
    #[inline]
    fn should_give_way(&self, t: &Thread) -> bool {
        let wants = self.wants(t);
        self.yielded.set(false);
        wants
    }

    /// Whom to run: the running thread goes on unless it waits or somebody else comes first. With
    /// nobody ready the processor sleeps until an interrupt makes somebody ready.
    pub(crate) fn next(&'static self, k: K, t: &'static Thread) -> &'static Thread {
        if t.run.get() == Run::Running {
            if !self.should_give_way(t) {
                // Nobody of its priority waits: another slice. An end that has passed would make
                // the timer ring at once, for ever.
                if self.changed.get() && hal::now() >= self.slice_end.get() {
                    self.slice_end.set(hal::now().saturating_add(SLICE));
                }
                self.set_timer(k);
                return t;
            }
            // Who is displaced by a higher priority has not used up its turn.
            let left = self.slice_end.get().saturating_sub(hal::now());
            t.run.set(Run::Ready);
            if left == 0 || self.highest() == Some(usize::from(t.priority.get())) {
                self.add(t);
            } else {
                let p = usize::from(t.priority.get());
                self.ready[p].push_front(t);
                // Only the rest of it: else whoever is displaced often would never pass it on.
                self.left[p].set(left);
                self.bits.set(self.bits.get() | 1 << p);
            }
        }
        self.yielded.set(false);
        let next = loop {
            if let Some(next) = self.highest().and_then(|p| self.ready[p].first()) {
                break next;
            }
            self.set_timer(k);
            hal::wait_for_interrupt();
        };
        self.remove(next);
        next.run.set(Run::Running);
        let slice = match self.left[usize::from(next.priority.get())].replace(0) {
            0 => SLICE,
            left => left,
        };
        self.slice_end.set(hal::now().saturating_add(slice));
        self.set_timer(k);
        next
    }

    /// The timer rings at the first deadline, or at the end of the slice if somebody waits for it.
    fn set_timer(&self, k: K) {
        self.changed.set(false);
        let mut at = k.deadlines.first();
        if self.bits.get() != 0 {
            at = at.min(self.slice_end.get());
        }
        if at != self.timer.replace(at) {
            hal::set_timer(at);
        }
    }

    /// The timer has rung.
    pub(crate) fn tick(&self, now: u64) {
        self.timer.set(u64::MAX);
        self.changed.set(true);
        if now >= self.slice_end.get() {
            self.yield_turn();
        }
    }
}

#[cfg(test)]
impl Scheduler {
    pub(crate) fn state(&'static self) -> (&'static [WaitQueue], u32) {
        (&self.ready, self.bits.get())
    }
}
