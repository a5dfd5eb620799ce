//! A tone in integer arithmetic: a sine that is accurate to a thousandth, and the same on every machine.

/// The largest sample: half of the range.
const LOUD: i64 = 16_384;
/// One, in fixed point.
const ONE: i64 = 1 << 15;

/// The sine of `phase`, in units of 1/2^32 of a turn, as a sample.
#[must_use]
pub fn sine(phase: u32) -> i16 {
    // Half a turn is the same, the other way round; so is the second quarter, backwards.
    let half = i64::from(phase & 0x7fff_ffff);
    let quarter = half.min((1 << 31) - half);
    let x = (quarter * ONE) >> 30;
    // A polynomial of the fifth degree with the right values and slopes at both ends: coefficients pi / 2, pi - 5 / 2
    // and pi / 2 - 3 / 2.
    let square = x * x / ONE;
    let inner = 21_021 - square * 2_320 / ONE;
    let y = x * (51_472 - square * inner / ONE) / ONE;
    let loud = y * LOUD / ONE;
    let loud = if phase >> 31 == 0 { loud } else { -loud };
    loud as i16
}

/// How far the phase advances in one frame, for a tone of `hz` turns a second.
#[must_use]
pub fn step(hz: u64, rate: u64) -> u32 {
    ((hz << 32) / rate.max(1)) as u32
}

/// Sample `number` of a tone.
#[must_use]
pub fn sample(hz: u64, rate: u64, number: u64) -> i16 {
    sine(step(hz, rate).wrapping_mul(number as u32))
}
