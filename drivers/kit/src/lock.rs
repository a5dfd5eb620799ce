//! The process and interrupt locks (K. Van Maren, section 4.3), without a kernel: tested on the host.
//!
//! One thread works *in the driver*, the process-level thread; interrupt threads run handlers, which are atomic to it.
//! While it is outside a handler just runs, and it cannot come in meanwhile: nobody is stopped (the uncontested case).
//! While it is inside it is stopped for as long as the handler takes, unless it has disabled interrupts: then the
//! interrupt is pending, and its thread waits until they are enabled again. To disable interrupts is to set a bit in
//! memory (Stodolsky, Chen and Bershad, *Fast interrupt priority management in operating system kernels*).
//!
//! Whether interrupts are disabled is asked when the thread is stopped, so that it cannot change its mind: nothing
//! relies on priorities or on the number of processors.
use core::sync::atomic::{AtomicU32, Ordering};

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

impl Default for Lock {
    fn default() -> Self {
        Lock::new()
    }
}

impl Lock {
    /// Nobody is in the driver.
    #[must_use]
    pub const fn new() -> Self {
        Lock(AtomicU32::new(0))
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

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Lock, Threads};
    use core::cell::UnsafeCell;
    use std::sync::{Condvar, Mutex};
    use std::thread::scope;

    /// Threads of the host. The process-level thread looks whether it is to stop at every step that it takes.
    #[derive(Default)]
    struct Host {
        state: Mutex<State>,
        change: Condvar,
    }

    #[derive(Default)]
    struct State {
        stop: bool,
        stopped: bool,
        /// The process-level thread waits or is outside, where stopping it is immediate.
        away: bool,
        locked: bool,
        enabled: bool,
        waits: u32,
    }

    impl Host {
        /// Waits until `f` has something, and tells everybody.
        fn until<T>(&self, mut f: impl FnMut(&mut State) -> Option<T>) -> T {
            let mut state = self.state.lock().expect("no panic");
            loop {
                if let Some(value) = f(&mut state) {
                    self.change.notify_all();
                    return value;
                }
                state = self.change.wait(state).expect("no panic");
            }
        }

        fn set(&self, f: impl FnOnce(&mut State)) {
            f(&mut self.state.lock().expect("no panic"));
            self.change.notify_all();
        }

        /// A point between two instructions of the process-level thread.
        fn step(&self) {
            // Who stops it hears of it, and then it waits.
            while self.until(|state| {
                state.stopped = state.stop;
                Some(state.stop)
            }) {
                self.until(|state| (!state.stop).then_some(()));
            }
        }

        fn away(&self, away: bool) {
            self.until(|state| {
                // Who is stopped does not come back.
                let may = away || !state.stop;
                state.away = away || !may;
                may.then_some(())
            });
        }
    }

    impl Threads for Host {
        fn stop(&self) {
            self.set(|state| state.stop = true);
            self.until(|state| (state.stopped || state.away).then_some(()));
        }
        fn resume(&self) {
            self.set(|state| state.stop = false);
        }
        fn wait_enabled(&self) {
            self.until(|state| core::mem::take(&mut state.enabled).then_some(()));
            self.set(|state| state.waits += 1);
        }
        fn enabled(&self) {
            self.set(|state| {
                assert!(!state.enabled, "once for each wait");
                state.enabled = true;
            });
        }
        fn lock(&self) {
            self.until(|state| (!core::mem::replace(&mut state.locked, true)).then_some(()));
        }
        fn unlock(&self) {
            self.set(|state| state.locked = false);
        }
    }

    /// Two numbers that only a handler changes, one after the other, and that the other side may find equal only.
    struct Shared(UnsafeCell<[u32; 2]>);

    // SAFETY: the protocol under test is what keeps the two sides apart.
    unsafe impl Sync for Shared {}

    impl Shared {
        fn place(&self) -> *mut [u32; 2] {
            self.0.get()
        }
    }

    #[test]
    fn handlers_are_atomic_and_disabled_interrupts_wait() {
        const ROUNDS: u32 = 1000;
        let (lock, host, shared) = (
            Lock::new(),
            Host::default(),
            Shared(UnsafeCell::new([0; 2])),
        );
        // SAFETY: as above.
        let read = || unsafe { shared.place().read_volatile() };
        scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    for _ in 0..ROUNDS {
                        lock.interrupt(&host, || {
                            assert!(!lock.is_enabled());
                            assert!(!lock.disable());
                            lock.enable(&host);
                            assert!(!lock.is_enabled(), "a handler cannot enable interrupts");
                            let at = shared.place();
                            // SAFETY: as above.
                            unsafe {
                                (*at)[0] += 1;
                                std::thread::yield_now();
                                (*at)[1] += 1;
                            }
                        });
                    }
                });
            }
            let mut most = 0;
            while most < 2 * ROUNDS {
                host.away(false);
                lock.enter(&host);
                host.step();
                let [first, second] = read();
                assert_eq!(first, second);
                host.step();
                assert!(lock.disable());
                host.step();
                let before = read();
                std::thread::yield_now();
                host.step();
                assert_eq!(read(), before, "interrupts are disabled");
                lock.enable(&host);
                host.step();
                most = read()[0];
                lock.leave(&host);
                host.away(true);
            }
        });
        let state = host.state.lock().expect("no panic");
        assert!(state.waits > 0, "no interrupt met disabled interrupts");
        assert!(!state.locked && !state.enabled);
        assert!(lock.is_enabled());
    }
}
