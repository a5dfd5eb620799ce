//! One thread makes things, another waits for them.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use rt::obj::{Cond, Mutex};
use rt::Code;

struct Shelf {
    mutex: Mutex,
    filled: Cond,
    /// Only touched with the mutex locked.
    things: AtomicU64,
}

pub fn example() -> Result<(), Code> {
    let shelf = Arc::new(Shelf {
        mutex: Mutex::new()?,
        filled: Cond::new()?,
        things: AtomicU64::new(0),
    });
    let maker = shelf.clone();
    rt::thread::spawn(move || {
        for _ in 0..10 {
            maker.mutex.lock();
            maker.things.fetch_add(1, Ordering::Relaxed);
            maker.mutex.unlock();
            maker.filled.signal();
        }
    })?;

    for _ in 0..10 {
        shelf.mutex.lock();
        // A wait can return for no reason, for instance after a restore: always check the condition again.
        while shelf.things.load(Ordering::Relaxed) == 0 {
            shelf.filled.wait(shelf.mutex.at());
        }
        shelf.things.fetch_sub(1, Ordering::Relaxed);
        shelf.mutex.unlock();
    }

    // A deadline is a time on the space's clock; the thread checks the clock after the wait.
    shelf.mutex.lock();
    let deadline = rt::time::now() + 1_000_000;
    while rt::time::now() < deadline {
        shelf.filled.wait_until(shelf.mutex.at(), deadline);
    }
    shelf.mutex.unlock();
    Ok(())
}
