//! The locks with threads of the host.

use crate::lock::{Lock, Threads};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;
use std::sync::{Condvar, Mutex};
use std::thread::scope;

/// Threads of the host. At every step the process-level thread checks whether it is to stop.
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
    /// Waits until `f` returns a value, and notifies all waiting threads.
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
        // The thread that stops this one learns of it, and then this one waits.
        while self.until(|state| {
            state.stopped = state.stop;
            Some(state.stop)
        }) {
            self.until(|state| (!state.stop).then_some(()));
        }
    }

    fn away(&self, away: bool) {
        self.until(|state| {
            // A stopped thread does not come back.
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

/// Two numbers that only a handler changes, one after the other, and that the other side must always find equal.
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
        Lock::of(AtomicU32::new(0)),
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
