//! The scheduler: fixed priorities, round robin among threads of the same priority.
//!
//! A thread that becomes ready while no ready thread has its priority or a higher one is the *heir*. It is in
//! no queue, and the processor is handed to it when the running thread begins a wait (Draves et al., section
//! 2.4: handoff). If something else happens first, the heir is put into the ready queue of its priority, which
//! is then empty.

use crate::kernel::core;
use crate::object::thread::{Run, Thread};
use crate::queue::{self, WaitQueue};
use crate::{Kernel, K};
use abi::PRIORITIES;
use core::cell::Cell;
use hal::NarrowCell;

/// The time slice, in nanoseconds.
const SLICE: u64 = 10_000_000;

/// The ready threads and the running thread's time slice.
pub(crate) struct Scheduler {
    ready: [WaitQueue; PRIORITIES as usize],
    /// Bit n: `ready[n]` is not empty. Bit [`Scheduler::HEIR`]: there is an heir. Bits from [`Scheduler::RUNG`]
    /// on: something else has to be done before the running thread may go on.
    attention: Cell<u64>,
    /// The heir, valid while [`Scheduler::HEIR`] is set.
    heir: NarrowCell<Thread>,
    /// The highest priority of a ready thread, 0 if there is none.
    top: Cell<u8>,
    /// Begin of the running thread's slice, in [`hal::ticks`], and its length in nanoseconds.
    slice_began: Cell<u64>,
    slice: Cell<u64>,
    /// For each priority: the rest, in nanoseconds, of the slice of the first thread in its ready queue, if
    /// that thread was preempted by one of a higher priority; otherwise 0.
    left: [Cell<u64>; PRIORITIES as usize],
    /// The highest priority of threads whose turn, or whose deadline, was due while a thread of a higher priority
    /// ran. That one may have run on behalf of a thread of the overdue priority or a lower one; that client then goes
    /// behind the overdue threads, and the processor is not handed off to it. [`Scheduler::NOBODY`] if no thread is
    /// overdue.
    overdue: Cell<u8>,
    /// When the timer will ring, in nanoseconds on the machine's clock. It may ring before there is anything to do,
    /// which costs less than setting the timer whenever a slice begins.
    timer: Cell<u64>,
    /// The timer is set for the end of a slice or earlier. So it rings before the end of any slice that began since
    /// then.
    ticking: Cell<bool>,
}

impl Scheduler {
    /// There is an heir: a ready thread that runs before all threads in the ready queues.
    const HEIR: u64 = 1 << 32;
    /// The timer must be set: it has rung, or there is a deadline before the time for which it is set.
    const RUNG: u64 = 1 << 33;
    /// The running thread should give way to a thread of its own priority.
    const YIELDED: u64 = 1 << 34;
    /// Notices are to be delivered to servers ([`crate::object::port::Notices`]).
    const NOTICES: u64 = 1 << 35;
    /// A deadline was put off, so that the general path must choose the next thread.
    const DUE: u64 = 1 << 36;
    /// Stands for no priority in `overdue`.
    const NOBODY: u8 = 0;
    /// All bits that say that some thread is ready.
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

    /// Adds a thread that becomes ready, behind the others of its priority.
    #[inline]
    pub(crate) fn add(&'static self, t: &'static Thread) {
        core(|| {
            if self.has(Self::READY) {
                return self.add_to_others(t);
            }
            self.inherit(t);
        });
    }

    /// Makes the thread the heir. Its priority is higher than that of all ready threads.
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

    /// Puts the heir, if there is one, into the ready queue of its priority.
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

    /// Takes a thread that is ready out of its queue, or out of the place of the heir.
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
                queue::leave_queue(t);
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

    /// Sets `top` to the highest priority whose ready queue is not empty. There is no heir.
    #[inline(always)]
    fn find_top(&self) {
        let bits = self.attention.get() as u32;
        self.top.set(bits.checked_ilog2().unwrap_or(0) as u8);
    }

    /// Whether there is an heir, no other ready thread, and nothing else to do.
    #[inline(always)]
    pub(crate) fn has_only_heir(&self) -> bool {
        self.attention.get() == Self::HEIR
    }

    /// Takes the heir for a handoff from `t`, which begins a wait; the heir gets the rest of the slice. Called
    /// only if [`Scheduler::has_only_heir`]. Returns `None` if the general path has to decide.
    #[inline(always)]
    pub(crate) fn take_heir(&self, k: K, t: &Thread) -> Option<&'static Thread> {
        if k.lock.preempted().is_some() {
            return None;
        }
        // `t` itself may have been woken since its wait began.
        let heir = self.heir.get().filter(|heir| !core::ptr::eq(*heir, t))?;
        self.attention.set(0);
        self.top.set(0);
        heir.run.set(Run::Running);
        Some(heir)
    }

    /// Whether a thread of a higher priority than this one's is ready.
    #[inline(always)]
    pub(crate) fn somebody_above(&self, t: &Thread) -> bool {
        self.is_above(t.priority.get())
    }

    /// Whether a thread is ready whose priority is higher than `priority`.
    #[inline(always)]
    pub(crate) fn is_above(&self, priority: u8) -> bool {
        self.top.get() > priority
    }

    /// Whether the processor may be handed off to this thread, whose wait ends with a reply.
    #[inline(always)]
    pub(crate) fn comes_next(&self, t: &Thread) -> bool {
        !self.somebody_above(t) && t.priority.get() > self.overdue.get()
    }

    /// Notes that notices have to be delivered before the trap ends.
    pub(crate) fn raise_notices(&self) {
        core(|| self.raise(Self::NOTICES));
    }

    /// Whether there are notices to deliver; the caller delivers them.
    #[inline(always)]
    pub(crate) fn take_notices(&self) -> bool {
        let notices = self.has(Self::NOTICES);
        if notices {
            core(|| self.lower(Self::NOTICES));
        }
        notices
    }

    /// Ends the running thread's turn: the next thread of its priority runs, if one is ready.
    #[inline(always)]
    pub(crate) fn yield_turn(&self) {
        core(|| self.raise(Self::YIELDED));
    }

    /// Whether the scheduler has anything to do before the running thread `t` goes on: a thread of a higher
    /// priority is ready, a thread is ready for which the slice must end, or a flag is raised.
    #[inline(always)]
    pub(crate) fn pending(&self, t: &Thread) -> bool {
        let attention = self.attention.get();
        attention != 0 && (attention > Self::READY || !self.ticking.get() || self.somebody_above(t))
    }

    /// Ends the running thread's turn and returns the next thread of its priority. Returns `None`, having
    /// changed nothing, if the general path has to decide.
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

    /// Chooses the thread that runs next: `t` again, unless it waits or another thread comes first. If no
    /// thread is ready, the processor sleeps until an interrupt makes one ready.
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
                    // A thread has become ready, so the slice has to end.
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
                    match k.lock.slice_left() {
                        // The slice is used up: the holder's turn ends with its call.
                        0 => {
                            self.raise(Self::YIELDED);
                            self.begin_slice(k, SLICE, priority);
                        }
                        left => self.resume_slice(k, left, priority),
                    }
                    return holder;
                }
            }
            if let Some(next) = self.take_ready() {
                let p = next.priority.get();
                if matches!(t.run.get(), Run::Waiting(_))
                    && p > t.priority.get()
                    && self.is_alone(p)
                {
                    // `next` may be a server at work for `t`, which waits. So it runs in the rest of the slice of `t`,
                    // as an heir does. If it got a slice of its own, `t` would never use up a slice.
                    self.keep_time(k, p);
                } else {
                    self.take_turn(k, p);
                }
                return next;
            }
            self.keep_time(k, 0);
            hal::wait_for_interrupt();
        }
    }

    /// Takes the first ready thread out of its queue and makes it the running one.
    #[inline]
    pub(crate) fn take_first(&'static self, k: K) -> Option<&'static Thread> {
        let next = self.take_ready()?;
        self.take_turn(k, next.priority.get());
        Some(next)
    }

    /// Whether no other thread of the priority `p` of the running thread is ready or has the rest of a slice.
    #[inline(always)]
    fn is_alone(&self, p: u8) -> bool {
        !self.has(1 << p) && self.left[usize::from(p)].get() == 0
    }

    /// As [`Scheduler::take_first`], but begins no slice.
    #[inline(always)]
    fn take_ready(&'static self) -> Option<&'static Thread> {
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
        Some(next)
    }

    /// Begins a slice for a thread of this priority, or goes on with the rest of its last slice.
    #[inline(always)]
    fn take_turn(&self, k: K, p: u8) {
        if p <= self.overdue.get() {
            self.overdue.set(Self::NOBODY);
            self.lower(Self::DUE);
        }
        match self.left[usize::from(p)].get() {
            0 => self.begin_slice(k, SLICE, p),
            left => {
                self.left[usize::from(p)].set(0);
                self.resume_slice(k, left, p);
            }
        }
    }

    /// Goes on with a slice of which `left` nanoseconds remain.
    #[inline(always)]
    fn resume_slice(&self, k: K, left: u64, p: u8) {
        // The rest ends earlier than a whole slice, and the timer may be set for the end of a whole slice.
        self.ticking.set(false);
        self.begin_slice(k, left, p);
    }

    /// Puts the thread behind the others of its priority and makes the first of them the running thread.
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

    /// The end of the running thread's slice, in nanoseconds on the machine's clock.
    fn slice_end(&self) -> u64 {
        hal::time_of(self.slice_began.get()).saturating_add(self.slice.get())
    }

    /// What is left of the running thread's slice, in nanoseconds.
    pub(crate) fn slice_left(&self) -> u64 {
        self.slice_end().saturating_sub(hal::now())
    }

    /// Notes that threads of this priority, below that of the running thread, are due: the running thread may hand the
    /// processor off only to a thread of a higher priority than theirs.
    fn is_due(&self, priority: u8) {
        self.overdue.set(self.overdue.get().max(priority));
    }

    /// Notes that a deadline of this priority, below that of the running thread, was put off.
    pub(crate) fn is_put_off(&self, priority: u8) {
        self.is_due(priority);
        self.raise(Self::DUE);
    }

    /// Sets the timer again for the running thread, which goes on after the timer has rung.
    #[cold]
    fn extend_slice(&self, k: K, t: &Thread) {
        let priority = t.priority.get();
        // No other thread of its priority is ready, so the thread gets another slice. Otherwise the timer would be set
        // to a time that has passed, and ring at once, again and again.
        if hal::now() >= self.slice_end() {
            // The thread may be a server at work for a thread of a lower priority, whose turn has ended.
            if self.has(Self::READY) {
                self.is_due(self.top.get());
            }
            self.begin_slice(k, SLICE, priority);
        } else {
            self.keep_time(k, priority);
        }
    }

    /// Puts the running thread, which a thread of a higher priority preempts, before the others of its own
    /// priority, with the rest of its slice.
    #[inline(never)]
    fn preempt(&'static self, t: &'static Thread) {
        // The thread keeps the rest of its slice; if nothing is left, its turn is over.
        let left = self.slice_left();
        if left == 0 {
            self.add(t);
            return;
        }
        let p = t.priority.get();
        // The holder of the kernel's lock may run instead, with the priority of a waiter: then neither `top`
        // nor the heir has a higher priority than `t`.
        if p >= self.top.get() {
            self.settle();
            self.top.set(p);
        }
        self.ready[usize::from(p)].push_front(t);
        // If it got a whole slice again, a thread that is preempted often would never end its turn.
        self.left[usize::from(p)].set(left);
        self.raise(1 << p);
    }

    /// Sets the timer, if necessary, for a running thread of this priority (0: no thread runs): to the first
    /// deadline, or to the end of the slice if that is earlier and a thread is ready.
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

    /// Sets the timer for a thread to which the processor is handed off.
    pub(crate) fn set_timer_for(&self, k: K, to: &Thread) {
        core(|| self.keep_time(k, to.priority.get()));
    }

    /// As [`Scheduler::keep_time`], after an interrupt in the kernel. It sets the timer for deadlines only; for
    /// the end of the slice it is set at the end of the trap.
    pub(crate) fn keep_time_in_kernel(&self, k: K) {
        self.set_timer(k, false);
    }

    /// Notes that a thread has the deadline `at`, so that the timer is set earlier if necessary.
    pub(crate) fn note_deadline(&self, at: u64) {
        if at < self.timer.get() {
            self.raise(Self::RUNG);
        }
    }

    /// Notes that the timer has rung, at `now`, and ends the running thread's turn if its slice is over.
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
    /// Calls `f` with each ready thread in the order in which they would run. Changes nothing.
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
    /// Adds the deadline of the running thread, which begins a wait.
    pub(crate) fn add_deadline(&self, t: &'static Thread, at: u64) {
        let cpu = self.cpu_of(t);
        core(|| {
            cpu.deadlines.add(t, at);
            cpu.sched.note_deadline(at);
        });
    }
}
