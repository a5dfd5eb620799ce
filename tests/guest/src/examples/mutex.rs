//! The unlock hands the lock to a waiter: the mutex is never free in between.

use alloc::sync::Arc;
use rt::obj::Mutex;
use rt::{sys, Code};

pub fn example() -> Result<(), Code> {
    let mutex = Arc::new(Mutex::new()?);
    mutex.lock();
    assert_eq!(sys::mutex_trylock(mutex.handle()), Code::WouldBlock);

    let other = mutex.clone();
    let waiter = rt::thread::spawn(move || other.lock())?;
    // As long as the thread waits, its registers say that it is about to call `mutex_lock`.
    while waiter.with(|thread| thread.get_state(0, 0, 0))?.waiting == 0 {
        rt::time::sleep(10_000);
    }
    mutex.unlock();
    assert_eq!(sys::mutex_trylock(mutex.handle()), Code::WouldBlock);

    // The whole state of a mutex. It has no owner, so any thread may unlock it.
    assert_eq!(mutex.get_state()?.locked, 1);
    assert_eq!(sys::mutex_unlock(mutex.handle()), Code::Ok);
    assert_eq!(sys::mutex_unlock(mutex.handle()), Code::Invalid);
    Ok(())
}
