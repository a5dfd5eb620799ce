//! The scheduler: fixed priorities, round robin within one.
//!
//! A thread that becomes ready and has a higher priority than all others that are ready is the *heir*. It is in no
//! queue, and the processor goes straight to it when the running thread begins a wait (Draves et al., section
//! 2.4: handoff). If something else happens first, it goes into its queue, which is empty.

use crate::kernel::core;
use crate::object::thread::{Run, Thread};
use crate::object::wait::{self, WaitQueue};
use crate::{Kernel, K};
use abi::PRIORITIES;
use core::cell::Cell;
use hal::NarrowCell;

/// Time slice, in nanoseconds.
const SLICE: u64 = 10_000_000;

/// The threads that are ready.
pub(crate) struct Scheduler {
    ready: [WaitQueue; PRIORITIES as usize],
    /// Bit n: `ready[n]` is not empty. [`Scheduler::HEIR`]: there is an heir. Bits of
    /// [`Scheduler::RUNG`] on: something else to see to before the running thread may go on.
    attention: Cell<u64>,
    /// The heir, if there is one.
    heir: NarrowCell<Thread>,
    /// The highest priority of a ready thread, 0 if there is none.
    top: Cell<u8>,
    /// When the running thread's slice began, in [`hal::ticks`], and how long it is.
    slice_began: Cell<u64>,
    slice: Cell<u64>,
    /// For each priority, what is left of the turn of a thread that was preempted in it by a higher
    /// one; 0 if none was.
    left: [Cell<u64>; PRIORITIES as usize],
    /// The priority of the threads for which a turn should have ended while a more important thread was at work:
    /// whose turn it was goes behind them. [`Scheduler::NOBODY`]: there are none.
    overdue: Cell<u8>,
    /// When the timer will ring. It may ring before there is anything to do: to find that out
    /// then is cheaper than to set it whenever a slice begins.
    timer: Cell<u64>,
    /// It was set for the end of a slice, or earlier: then it rings before any slice ends that
    /// began since.
    ticking: Cell<bool>,
}

impl Scheduler {
    /// There is an heir: a ready thread that comes before all in the queues.
    const HEIR: u64 = 1 << 32;
    /// The timer has rung, or should ring earlier than it will, and must be set.
    const RUNG: u64 = 1 << 33;
    /// The running thread should give way to one of its own priority.
    const YIELDED: u64 = 1 << 34;
    /// Servers have something to hear ([`crate::object::port::Notices`]).
    const NOTICES: u64 = 1 << 35;
    /// No priority.
    const NOBODY: u8 = u8::MAX;
    /// A thread is ready.
    const READY: u64 = Self::RUNG - 1;

    pub(crate) const fn new() -> Self {
        Scheduler {
            ready: [const { WaitQueue::new() }; PRIORITIES as usize],
            attention: Cell::new(0),
            heir: NarrowCell::none(),
            top: Cell::new(0),
            slice_began: Cell::new(0),
            slice: Cell::new(0),
            left: [const { Cell::new(0) }; PRIORITIES as usize],
            overdue: Cell::new(Self::NOBODY),
            timer: Cell::new(u64::MAX),
            ticking: Cell::new(false),
        }
    }

    #[inline(always)]
    fn raise(&self, flags: u64) {
        self.attention.set(self.attention.get() | flags);
    }

    #[inline(always)]
    fn lower(&self, flags: u64) {
        self.attention.set(self.attention.get() & !flags);
    }

    #[inline(always)]
    fn has(&self, flags: u64) -> bool {
        self.attention.get() & flags != 0
    }

    /// A thread becomes ready: behind the others of its priority.
    #[inline]
    pub(crate) fn add(&'static self, t: &'static Thread) {
        core(|| {
            if self.has(Self::READY) {
                return self.add_to_others(t);
            }
            self.inherit(t);
        });
    }

    /// The thread comes before all others.
    #[inline(always)]
    fn inherit(&self, t: &'static Thread) {
        self.heir.set(Some(t));
        self.raise(Self::HEIR);
        self.top.set(t.priority.get());
    }

    #[inline(never)]
    fn add_to_others(&'static self, t: &'static Thread) {
        let p = t.priority.get();
        if p >= self.top.get() {
            self.settle();
        }
        if p > self.top.get() {
            return self.inherit(t);
        }
        self.ready[usize::from(p)].append(t);
        self.raise(1 << p);
    }

    /// The heir, if there is one, goes into its queue.
    fn settle(&'static self) {
        if let Some(heir) = self.heir() {
            let p = heir.priority.get();
            self.ready[usize::from(p)].append(heir);
            self.lower(Self::HEIR);
            self.raise(1 << p);
        }
    }

    #[inline(always)]
    fn heir(&self) -> Option<&'static Thread> {
        self.heir.get().filter(|_| self.has(Self::HEIR))
    }

    /// Takes a ready thread out.
    pub(crate) fn remove(&self, t: &Thread) {
        core(|| {
            if self.heir().is_some_and(|heir| core::ptr::eq(heir, t)) {
                self.lower(Self::HEIR);
                self.find_top();
            } else {
                let p = t.priority.get();
                let queue = &self.ready[usize::from(p)];
                if queue.first().is_some_and(|first| core::ptr::eq(first, t)) {
                    // What was left of its turn, if it was preempted, is not for the next.
                    self.left[usize::from(p)].set(0);
                }
                wait::leave_queue(t);
                self.removed(p);
            }
        });
    }

    #[inline(always)]
    fn removed(&self, p: u8) {
        if self.ready[usize::from(p)].is_empty() {
            self.lower(1 << p);
            if !self.has(Self::HEIR) {
                self.find_top();
            }
        }
    }

    /// There is no heir: the first of the queues.
    #[inline(always)]
    fn find_top(&self) {
        let bits = self.attention.get() as u32;
        self.top.set(bits.checked_ilog2().unwrap_or(0) as u8);
    }

    /// Whether an heir is all that there is to see to.
    #[inline(always)]
    pub(crate) fn has_only_heir(&self) -> bool {
        self.attention.get() == Self::HEIR
    }

    /// The heir, if the processor goes to it when the running thread begins a wait; it gets what is left of the
    /// slice. Called if [`Scheduler::has_only_heir`].
    #[inline(always)]
    pub(crate) fn take_heir(&self, k: K, t: &Thread) -> Option<&'static Thread> {
        if k.lock.preempted().is_some() {
            return None;
        }
        // It may have been woken in the meantime.
        let heir = self.heir.get().filter(|heir| !core::ptr::eq(*heir, t))?;
        self.attention.set(0);
        self.top.set(0);
        heir.run.set(Run::Running);
        Some(heir)
    }

    /// Whether a thread is ready that comes before this one.
    #[inline(always)]
    pub(crate) fn somebody_above(&self, t: &Thread) -> bool {
        self.is_above(t.priority.get())
    }

    /// Whether somebody of a higher priority is ready.
    #[inline(always)]
    pub(crate) fn is_above(&self, priority: u8) -> bool {
        self.top.get() > priority
    }

    /// Whether the processor may go straight to this thread, which an answer ends the wait of.
    #[inline(always)]
    pub(crate) fn comes_next(&self, t: &Thread) -> bool {
        !self.somebody_above(t) && self.overdue.get() != t.priority.get()
    }

    /// Before the trap ends servers are to hear something.
    pub(crate) fn raise_notices(&self) {
        core(|| self.raise(Self::NOTICES));
    }

    /// Whether servers are to hear something now.
    #[inline(always)]
    pub(crate) fn take_notices(&self) -> bool {
        let notices = self.has(Self::NOTICES);
        if notices {
            core(|| self.lower(Self::NOTICES));
        }
        notices
    }

    /// The running thread has had its turn.
    #[inline(always)]
    pub(crate) fn yield_turn(&self) {
        core(|| self.raise(Self::YIELDED));
    }

    /// Whether there is anything to decide while this thread runs: a thread is ready that comes before it or for
    /// which its slice must end, or the timer must be set.
    #[inline(always)]
    pub(crate) fn pending(&self, t: &Thread) -> bool {
        let attention = self.attention.get();
        attention != 0 && (attention > Self::READY || !self.ticking.get() || self.somebody_above(t))
    }

    /// Ends the running thread's turn and returns the next thread of its priority, if nothing else has to be
    /// decided.
    #[inline(always)]
    pub(crate) fn pass_turn(&'static self, k: K, t: &'static Thread) -> Option<&'static Thread> {
        let p = t.priority.get();
        let plain = self.attention.get() < Self::HEIR
            && self.top.get() == p
            && self.ticking.get()
            && k.lock.preempted().is_none();
        let queue = self.ready.get(usize::from(p)).filter(|_| plain)?;
        let left = self.left.get(usize::from(p))?;
        let next = queue.first().filter(|_| left.get() == 0)?;
        queue.append(t);
        queue.pop(next);
        t.run.set(Run::Ready);
        next.run.set(Run::Running);
        self.slice_began.set(hal::ticks());
        self.slice.set(SLICE);
        Some(next)
    }

    /// Whether a ready thread should run instead of the running one.
    #[inline]
    pub(crate) fn wants(&self, t: &Thread) -> bool {
        self.somebody_above(t)
            || (self.has(Self::YIELDED)
                && self.has(Self::READY)
                && self.top.get() == t.priority.get())
    }

    /// The thread to run: the running one, unless it waits or another one comes first. If none is ready the
    /// processor sleeps until an interrupt makes one ready.
    #[inline]
    pub(crate) fn next(&'static self, k: K, t: &'static Thread) -> &'static Thread {
        if t.run.get() == Run::Running {
            let held_up = k
                .lock
                .preempted()
                .is_some_and(|(_, priority)| priority > t.priority.get());
            let wants = self.wants(t) || held_up;
            self.lower(Self::YIELDED);
            if !wants {
                if self.has(Self::RUNG) {
                    self.extend_slice(k, t);
                } else {
                    // Somebody has become ready: then the slice has an end.
                    self.keep_time(k, t.priority.get());
                }
                return t;
            }
            t.run.set(Run::Ready);
            if self.top.get() == t.priority.get() {
                self.settle();
                if !held_up {
                    if let Some(next) = self.rotate(k, t) {
                        return next;
                    }
                }
                self.add(t);
            } else {
                self.preempt(t);
            }
        } else {
            self.lower(Self::YIELDED);
        }
        loop {
            if let Some((holder, priority)) = k.lock.preempted() {
                if !self.is_above(priority) {
                    self.begin_slice(k, SLICE, priority);
                    return holder;
                }
            }
            if let Some(next) = self.take_first(k) {
                return next;
            }
            self.keep_time(k, 0);
            hal::wait_for_interrupt();
        }
    }

    /// Takes the first of the ready threads out, to run.
    #[inline]
    pub(crate) fn take_first(&'static self, k: K) -> Option<&'static Thread> {
        if !self.has(Self::READY) {
            return None;
        }
        let p = self.top.get();
        let next = if let Some(heir) = self.heir() {
            self.lower(Self::HEIR);
            self.find_top();
            heir
        } else {
            let queue = self.ready.get(usize::from(p))?;
            let first = queue.first()?;
            queue.pop(first);
            self.removed(p);
            first
        };
        next.run.set(Run::Running);
        self.take_turn(k, p);
        Some(next)
    }

    /// The first thread of a priority begins its turn, or goes on with what is left of it.
    #[inline(always)]
    fn take_turn(&self, k: K, p: u8) {
        if p <= self.overdue.get() {
            self.overdue.set(Self::NOBODY);
        }
        let slice = match self.left[usize::from(p)].get() {
            0 => SLICE,
            left => {
                self.left[usize::from(p)].set(0);
                // It ends before a whole slice would, for which the timer may be set.
                self.ticking.set(false);
                left
            }
        };
        self.begin_slice(k, slice, p);
    }

    /// The thread goes behind the others of its priority, the first of which takes its turn.
    #[inline(always)]
    fn rotate(&'static self, k: K, t: &'static Thread) -> Option<&'static Thread> {
        let p = t.priority.get();
        let queue = self.ready.get(usize::from(p))?;
        let next = queue.first()?;
        queue.append(t);
        queue.pop(next);
        next.run.set(Run::Running);
        self.take_turn(k, p);
        Some(next)
    }

    #[inline(always)]
    fn begin_slice(&self, k: K, slice: u64, priority: u8) {
        self.slice_began.set(hal::ticks());
        self.slice.set(slice);
        self.keep_time(k, priority);
    }

    /// When the running thread's slice ends, on the machine's clock.
    fn slice_end(&self) -> u64 {
        hal::time_of(self.slice_began.get()).saturating_add(self.slice.get())
    }

    /// The running thread goes on after the timer has rung.
    #[cold]
    fn extend_slice(&self, k: K, t: &Thread) {
        let priority = t.priority.get();
        // No other thread of its priority is ready: another slice. An end that has passed would make the timer
        // ring at once, for ever.
        if hal::now() >= self.slice_end() {
            // It may be at work for another thread, whose turn this was.
            let others = self.has(Self::READY);
            self.overdue
                .set(if others { self.top.get() } else { Self::NOBODY });
            self.begin_slice(k, SLICE, priority);
        } else {
            self.keep_time(k, priority);
        }
    }

    /// The running thread gives way to a higher priority, and goes on before others of its own.
    #[inline(never)]
    fn preempt(&'static self, t: &'static Thread) {
        // A thread that is preempted by a higher priority has not used up its turn.
        let left = self.slice_end().saturating_sub(hal::now());
        if left == 0 {
            self.add(t);
            return;
        }
        let p = t.priority.get();
        // The thread that it waits for may have a lower priority, and so may the heir.
        if p >= self.top.get() {
            self.settle();
            self.top.set(p);
        }
        self.ready[usize::from(p)].push_front(t);
        // Only the rest of the turn: with a whole one, a thread that is preempted often would never pass it on.
        self.left[usize::from(p)].set(left);
        self.raise(1 << p);
    }

    /// A thread of this priority runs, or none (0). The timer rings no later than at the first deadline, or at the
    /// end of the slice if somebody waits for it.
    #[inline(always)]
    fn keep_time(&self, k: K, priority: u8) {
        self.lower(Self::RUNG);
        if priority < k.cpu().deadlines.floor() {
            k.cpu().deadlines.look_again();
        }
        let ends = self.has(Self::READY) && !self.ticking.get();
        if ends || k.cpu().deadlines.next() < self.timer.get() {
            self.set_timer(k, ends);
        }
    }

    #[inline(never)]
    fn set_timer(&self, k: K, slice_ends: bool) {
        let mut at = k.cpu().deadlines.next();
        if slice_ends {
            at = at.min(self.slice_end());
            self.ticking.set(true);
        }
        if at < self.timer.get() {
            self.timer.set(at);
            hal::set_timer(at);
        }
    }

    /// Whether the timer has rung and has not been set again.
    #[inline(always)]
    pub(crate) fn has_rung(&self) -> bool {
        self.has(Self::RUNG)
    }

    /// Sets the timer for this thread, to which the processor goes straight.
    pub(crate) fn set_timer_for(&self, k: K, to: &Thread) {
        core(|| self.keep_time(k, to.priority.get()));
    }

    /// As [`Scheduler::keep_time`], after an interrupt in the kernel: the end of the slice is seen to on
    /// the way out.
    pub(crate) fn keep_time_in_kernel(&self, k: K) {
        self.set_timer(k, false);
    }

    /// Somebody has a deadline now.
    pub(crate) fn note_deadline(&self, at: u64) {
        if at < self.timer.get() {
            self.raise(Self::RUNG);
        }
    }

    /// The timer has rung.
    pub(crate) fn tick(&self, now: u64) {
        self.timer.set(u64::MAX);
        self.ticking.set(false);
        self.raise(Self::RUNG);
        if now >= self.slice_end() {
            self.yield_turn();
        }
    }
}

#[cfg(test)]
impl Scheduler {
    /// Calls `f` with each ready thread, in the order in which they run, and changes nothing.
    pub(crate) fn each_ready(&'static self, mut f: impl FnMut(&'static Thread)) {
        if let Some(heir) = self.heir() {
            f(heir);
        }
        for queue in self.ready.iter().rev() {
            queue.each(&mut f);
        }
    }
}

#[cfg(any(test, fermata_probe))]
impl Scheduler {
    pub(crate) fn state(&'static self) -> (&'static [WaitQueue], u32) {
        self.settle();
        (&self.ready, self.attention.get() as u32)
    }
}

impl Kernel {
    /// The running thread, which begins a wait, has a deadline.
    pub(crate) fn add_deadline(&self, t: &'static Thread, at: u64) {
        let cpu = self.cpu_of(t);
        core(|| {
            cpu.deadlines.add(t, at);
            cpu.sched.note_deadline(at);
        });
    }
}
