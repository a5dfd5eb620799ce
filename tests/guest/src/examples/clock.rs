//! Every timeout is a time on the space's clock.

use rt::{sys, Code};

pub fn example() -> Result<(), Code> {
    let start = sys::clock_get();
    // However often this thread is stopped, saved and restored meanwhile, it wakes at that time.
    assert_eq!(sys::thread_sleep_until(start + 2_000_000), Code::Ok);
    assert!(sys::clock_get() >= start + 2_000_000);

    // A call whose deadline has passed does not wait.
    assert_eq!(sys::thread_sleep_until(start), Code::Ok);
    assert_eq!(sys::thread_wait_interrupt_until(start), Code::TimedOut);
    Ok(())
}
