//! The machine's clock, which is this server's own: it is in no image.
//!
//! It is read several times for calls that wait, and so from the processor's counter, as programs read theirs
//! ([`vdso`]), not by a call of the kernel. The kernel makes the time of the counter in the same way, so that both say
//! the same.

use core::sync::atomic::{AtomicU64, Ordering};

/// What the counter shows when the clock is 0, and nanoseconds of a step of it, in units of 2^-32; 0 if that is not known.
static START: AtomicU64 = AtomicU64::new(0);
static RATE: AtomicU64 = AtomicU64::new(0);

/// What init says of the clock: where the counter starts, and its rate. It is read by it from now on.
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
