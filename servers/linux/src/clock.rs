//! The machine's clock, in nanoseconds since boot. It is not part of a checkpoint image.
//!
//! A call that waits reads it several times, so it is computed from the processor's counter, as programs do it
//! ([`vdso`]), without a kernel call. The kernel uses the same formula, so both agree.

use core::sync::atomic::{AtomicU64, Ordering};

/// The value of the counter when the clock was 0, and the nanoseconds of one step of the counter in units of 2^-32. The
/// rate is 0 if it is not known.
static START: AtomicU64 = AtomicU64::new(0);
static RATE: AtomicU64 = AtomicU64::new(0);

/// Start and rate of the counter, which init passes as an argument. The clock is read from the counter from then on.
pub(crate) fn told() -> Option<(u64, u64)> {
    let mut words = rt::start().args.iter().skip(1);
    let (start, rate) = words
        .find_map(|word| word.strip_prefix("clock="))?
        .split_once(':')?;
    let (start, rate) = (start.parse().ok()?, rate.parse().ok()?);
    START.store(start, Ordering::Relaxed);
    RATE.store(rate, Ordering::Relaxed);
    Some((start, rate))
}

/// Nanoseconds since boot.
pub(crate) fn now() -> u64 {
    match RATE.load(Ordering::Relaxed) {
        0 => rt::time::now(),
        rate => {
            let steps = rt::time::counter().wrapping_sub(START.load(Ordering::Relaxed));
            ((u128::from(steps) * u128::from(rate)) >> 32) as u64
        }
    }
}
