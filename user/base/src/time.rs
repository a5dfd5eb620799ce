//! Time on the space's clock.
use crate::sys;

/// Nanoseconds.
#[must_use]
pub fn now() -> u64 {
    sys::clock_get()
}

/// Waits for the deadline.
pub fn sleep_until(deadline: u64) {
    sys::thread_sleep_until(deadline);
}

/// Waits this long.
pub fn sleep(nanoseconds: u64) {
    sleep_until(now().saturating_add(nanoseconds));
}
