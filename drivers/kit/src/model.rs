//! The locks under a model checker: loom tries the orders of the steps of their threads, and, by the memory orderings
//! that they use, what each may see of the others' writes, on any number of processors.
//!
//! `lock.rs` itself is checked, with loom's atomic words. The process-level thread may be stopped before each of its
//! steps: it holds a token while it takes a step, and stopping it means taking the token.

use alloc::sync::Arc;
use core::cell::RefCell;
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// Atomic words; the process-level thread may be stopped before each access to them.
#[allow(unreachable_pub, reason = "`lock` names it as it names core's")]
mod atomic {
    use super::step;
    pub use core::sync::atomic::Ordering;

    #[derive(Debug)]
    pub struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub fn new(value: u32) -> Self {
            AtomicU32(loom::sync::atomic::AtomicU32::new(value))
        }

        pub fn load(&self, order: Ordering) -> u32 {
            step();
            self.0.load(order)
        }

        pub fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
            step();
            self.0.fetch_or(bits, order)
        }

        pub fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
            step();
            self.0.fetch_and(bits, order)
        }

        pub fn compare_exchange(
            &self,
            old: u32,
            new: u32,
            done: Ordering,
            failed: Ordering,
        ) -> Result<u32, u32> {
            step();
            self.0.compare_exchange(old, new, done, failed)
        }
    }
}

#[allow(
    unreachable_pub,
    clippy::duplicate_mod,
    reason = "the kit's own, with other words"
)]
#[path = "lock.rs"]
mod lock;

use lock::{Lock, Threads};

/// Something that one thread holds at a time.
struct Token {
    is_free: Mutex<bool>,
    change: Condvar,
}

impl Token {
    fn new(is_free: bool) -> Self {
        Token {
            is_free: Mutex::new(is_free),
            change: Condvar::new(),
        }
    }

    fn take(&self) {
        let mut is_free = self.is_free.lock().unwrap();
        while !*is_free {
            is_free = self.change.wait(is_free).unwrap();
        }
        *is_free = false;
    }

    /// Gives the token back. Returns whether no thread held it.
    fn give(&self) -> bool {
        let was_free = core::mem::replace(&mut *self.is_free.lock().unwrap(), true);
        self.change.notify_one();
        was_free
    }
}

struct Host {
    /// Its holder may take a step as the process-level thread, or keep that thread from taking one.
    runs: Token,
    interrupts: Token,
    enabled: Token,
}

loom::thread_local! {
    /// The host, in the process-level thread only.
    static PROCESS: RefCell<Option<Arc<Host>>> = RefCell::new(None);
}

fn process() -> Option<Arc<Host>> {
    PROCESS.with(|process| process.borrow().clone())
}

/// A point between two steps, where the thread may be stopped.
fn step() {
    if let Some(host) = process() {
        host.runs.give();
        host.runs.take();
    }
}

impl Threads for Host {
    fn stop(&self) {
        self.runs.take();
    }
    fn resume(&self) {
        self.runs.give();
    }
    fn wait_enabled(&self) {
        self.enabled.take();
    }
    fn enabled(&self) {
        assert!(!self.enabled.give(), "once for each wait");
    }
    fn lock(&self) {
        // A thread that waits can be stopped.
        let is_process = process().is_some();
        if is_process {
            self.runs.give();
        }
        self.interrupts.take();
        if is_process {
            self.runs.take();
        }
    }
    fn unlock(&self) {
        self.interrupts.give();
    }
}

/// All that a set has: the locks, its threads, and two numbers that handlers change one after the other.
struct System {
    lock: Lock,
    host: Arc<Host>,
    numbers: [UnsafeCell<u32>; 2],
}

// SAFETY: as for `Shared` in `threads.rs`; loom checks each access.
unsafe impl Sync for System {}

impl System {
    fn number(&self, at: usize) -> u32 {
        // SAFETY: the protocol under test is what keeps the two sides apart; loom fails if it does not.
        self.numbers[at].with(|number| unsafe { *number })
    }

    /// Both, in two steps.
    fn read(&self) -> [u32; 2] {
        let first = self.number(0);
        step();
        [first, self.number(1)]
    }

    /// Both, in one step.
    fn read_at_once(&self) -> [u32; 2] {
        [self.number(0), self.number(1)]
    }

    fn handle(&self) {
        self.lock.interrupt(&*self.host, || {
            assert!(!self.lock.is_enabled() && !self.lock.disable());
            self.lock.enable(&*self.host);
            assert!(!self.lock.is_enabled(), "a handler cannot enable them");
            for number in &self.numbers {
                // SAFETY: as above.
                number.with_mut(|number| unsafe { *number += 1 });
            }
        });
    }
}

/// Makes so many interrupt threads take an interrupt each, beside the process-level thread, which does `work`.
fn check(interrupts: u32, preemptions: usize, work: fn(&System)) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(move || {
        let host = Arc::new(Host {
            runs: Token::new(false),
            interrupts: Token::new(true),
            enabled: Token::new(false),
        });
        let system = Arc::new(System {
            lock: Lock::of(atomic::AtomicU32::new(0)),
            host: Arc::clone(&host),
            numbers: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let threads: alloc::vec::Vec<_> = (0..interrupts)
            .map(|_| {
                let system = Arc::clone(&system);
                thread::spawn(move || system.handle())
            })
            .collect();
        PROCESS.with(|process| *process.borrow_mut() = Some(Arc::clone(&host)));
        work(&system);
        // The process-level thread is away from here on.
        PROCESS.with(|process| *process.borrow_mut() = None);
        host.runs.give();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(system.read(), [interrupts; 2], "an interrupt was lost");
        assert!(system.lock.is_enabled());
    });
}

#[test]
fn a_handler_is_atomic_to_who_has_disabled_interrupts() {
    check(1, 4, |system| {
        system.lock.enter(&*system.host);
        assert!(system.lock.disable());
        let [first, second] = system.read();
        assert_eq!(first, second, "half of a handler");
        let again = system.read();
        assert_eq!(again, [first; 2], "interrupts are disabled");
        system.lock.enable(&*system.host);
        system.lock.leave(&*system.host);
    });
}

#[test]
fn who_leaves_or_comes_in_meets_no_half_of_a_handler() {
    check(1, 4, |system| {
        for _ in 0..2 {
            system.lock.enter(&*system.host);
            let [first, second] = system.read_at_once();
            assert_eq!(first, second, "half of a handler");
            system.lock.leave(&*system.host);
        }
    });
}

#[test]
fn interrupts_that_wait_come_when_who_disabled_them_leaves() {
    check(2, 2, |system| {
        system.lock.enter(&*system.host);
        system.lock.disable();
        system.lock.leave(&*system.host);
    });
}
