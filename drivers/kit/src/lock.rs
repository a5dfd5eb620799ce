//! The process and interrupt locks (K. Van Maren, section 4.3), without a kernel: tested on the host.
//!
//! One thread works *in the driver*, the process-level thread; interrupt threads run handlers, which are atomic to it.
//! While it is outside a handler just runs, and it cannot come in meanwhile: nobody is stopped (the uncontested case).
//! While it is inside it is stopped for as long as the handler takes, unless it has disabled interrupts: then the
//! interrupt is pending, and its thread waits until they are enabled again. To disable interrupts is to set a bit in
//! memory (Stodolsky, Chen and Bershad, *Fast interrupt priority management in operating system kernels*).
//!
//! Whether interrupts are disabled is asked when the thread is stopped, so that it cannot change its mind: nothing
//! relies on priorities or on the number of processors. All orders of its steps are tried, with what processors may see of
//! each other's writes, by a model checker (`model.rs`), for which `atomic` is another one.
use super::atomic::{AtomicU32, Ordering};

/// The process-level thread is in the driver.
const INSIDE: u32 = 1;
/// It has disabled interrupts.
const OFF: u32 = 2;
/// An interrupt thread waits until they are enabled.
const PENDING: u32 = 4;
/// A handler runs.
const HANDLER: u32 = 8;

/// What the protocol does with threads.
pub trait Threads {
    /// Stops the process-level thread: it executes nothing more when this returns.
    fn stop(&self);
    /// Lets it go on.
    fn resume(&self);
    /// An interrupt thread waits for one [`Threads::enabled`], which may have been before.
    fn wait_enabled(&self);
    /// Lets an interrupt thread go on that waits so, now or soon.
    fn enabled(&self);
    /// Takes the interrupt lock: interrupt threads follow each other.
    fn lock(&self);
    /// Gives it back.
    fn unlock(&self);
}

/// The locks of one driver.
#[derive(Debug)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Nobody is in the driver. The word is 0.
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
            // Whoever has the interrupt lock is about to end a handler.
            threads.lock();
            threads.unlock();
        }
    }

    /// It leaves; interrupts are enabled thereby.
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

    /// Disables interrupts: whether they were enabled. In a handler they are not.
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

    /// Whether a handler runs: whoever is in the driver and asks this is it.
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
