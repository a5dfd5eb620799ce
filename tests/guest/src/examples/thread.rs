//! Takes a thread apart in the middle of its work and makes it anew; the thread does not notice.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use rt::obj::Ref;
use rt::{sys, Code};

pub fn example() -> Result<(), Code> {
    let count = Arc::new(AtomicU64::new(0));
    let theirs = count.clone();
    let worker = rt::thread::spawn(move || {
        for _ in 0..1000 {
            theirs.fetch_add(1, Ordering::Relaxed);
            rt::time::sleep(10_000);
        }
    })?;

    let (space, client_end, server_end) = (Ref::new()?, Ref::new()?, Ref::new()?);
    for _ in 0..100 {
        rt::time::sleep(30_000);
        worker.with(|thread| {
            // When `stop` returns, the thread is stopped, whatever it was doing, and its state is complete.
            thread.stop()?;
            let refs = [space.handle(), client_end.handle(), server_end.handle()];
            let state = thread.get_state(refs[0], refs[1], refs[2])?;
            assert_eq!(state.stop_count, 1);

            thread.destroy()?;
            thread.create()?;
            // A new thread is stopped; the state that is set says that it still is.
            thread.set_state(&state, refs[0], refs[1], refs[2])?;
            assert_eq!(sys::thread_set_priority(thread.handle(), 32), Code::Invalid);
            thread.resume()
        })?;
    }
    while !worker.is_finished() {
        rt::time::sleep(100_000);
    }
    assert_eq!(count.load(Ordering::Relaxed), 1000);
    Ok(())
}
