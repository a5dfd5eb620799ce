//! Time on the space's clock.
use crate::sys;
pub use crate::x86_64::counter;

/// The time on the clock of the program's space, in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    sys::clock_get()
}

/// Waits for the deadline.
pub fn sleep_until(deadline: u64) {
    sys::thread_sleep_until(deadline);
}

/// Waits for so many nanoseconds.
pub fn sleep(nanoseconds: u64) {
    sleep_until(now().saturating_add(nanoseconds));
}
