//! The process and interrupt locks (K. Van Maren, section 4.3), without a kernel and tested on the host.
//!
//! One thread works *in the driver*, the process-level thread; interrupt threads run handlers, which are atomic to
//! it. While the process-level thread is outside, a handler just runs, and the thread cannot come in meanwhile: no
//! thread is stopped (the uncontested case). While it is inside, it is stopped for as long as the handler takes,
//! unless it has disabled interrupts: then the interrupt is pending, and its thread waits until they are enabled
//! again. Disabling interrupts is setting a bit in memory (Stodolsky, Chen and Bershad, *Fast interrupt priority
//! management in operating system kernels*).
//!
//! The interrupt thread reads whether interrupts are disabled while the process-level thread is stopped, so that this
//! cannot change meanwhile: nothing relies on priorities or on the number of processors. A model checker (`model.rs`,
//! with its own `atomic`) tries all orders of the steps, and what processors may see of each other's writes.
use super::atomic::{AtomicU32, Ordering};

/// The process-level thread is in the driver.
const INSIDE: u32 = 1;
/// It has disabled interrupts.
const OFF: u32 = 2;
/// An interrupt thread waits until they are enabled.
const PENDING: u32 = 4;
/// A handler runs.
const HANDLER: u32 = 8;

/// What the protocol needs of threads.
pub trait Threads {
    /// Stops the process-level thread: it executes nothing more when this returns.
    fn stop(&self);
    /// Lets it go on.
    fn resume(&self);
    /// Makes an interrupt thread wait for one [`Threads::enabled`], which may have come before.
    fn wait_enabled(&self);
    /// Lets the interrupt thread that waits for it go on, now or soon.
    fn enabled(&self);
    /// Takes the interrupt lock, so that interrupt threads run one after the other.
    fn lock(&self);
    /// Gives it back.
    fn unlock(&self);
}

/// The locks of one driver.
#[derive(Debug)]
pub struct Lock(AtomicU32);

impl Lock {
    /// The locks when no thread is in the driver: `word` must be 0.
    #[must_use]
    pub const fn of(word: AtomicU32) -> Self {
        Lock(word)
    }

    /// The process-level thread comes in, when no handler runs.
    pub fn enter(&self, threads: &impl Threads) {
        while self
            .0
            .compare_exchange(0, INSIDE, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            // The thread that has the interrupt lock is about to end a handler.
            threads.lock();
            threads.unlock();
        }
    }

    /// The process-level thread leaves, which enables interrupts.
    pub fn leave(&self, threads: &impl Threads) {
        if self
            .0
            .fetch_and(!(INSIDE | OFF | PENDING), Ordering::AcqRel)
            & PENDING
            != 0
        {
            threads.enabled();
        }
    }

    /// Disables interrupts. Returns whether they were enabled; in a handler they are not.
    pub fn disable(&self) -> bool {
        if self.in_handler() {
            return false;
        }
        self.0.fetch_or(OFF, Ordering::Acquire) & OFF == 0
    }

    /// Enables interrupts; in a handler they stay disabled.
    pub fn enable(&self, threads: &impl Threads) {
        if !self.in_handler() && self.0.fetch_and(!(OFF | PENDING), Ordering::AcqRel) & PENDING != 0
        {
            threads.enabled();
        }
    }

    /// Whether interrupts are enabled.
    pub fn is_enabled(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (OFF | HANDLER) == 0
    }

    /// Whether a handler runs. If a thread in the driver asks, it is the one that runs it.
    pub fn in_handler(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HANDLER != 0
    }

    /// An interrupt thread runs a handler.
    pub fn interrupt(&self, threads: &impl Threads, handler: impl FnOnce()) {
        threads.lock();
        loop {
            if self
                .0
                .compare_exchange(0, HANDLER, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                handler();
                self.0.fetch_and(!HANDLER, Ordering::Release);
                break;
            }
            threads.stop();
            let state = self.0.load(Ordering::Acquire);
            if state & OFF != 0 {
                self.0.fetch_or(PENDING, Ordering::AcqRel);
                threads.resume();
                threads.wait_enabled();
            } else if state & INSIDE != 0 {
                self.0.fetch_or(HANDLER, Ordering::Acquire);
                handler();
                self.0.fetch_and(!HANDLER, Ordering::Release);
                threads.resume();
                break;
            } else {
                threads.resume();
            }
        }
        threads.unlock();
    }
}
