//! The steps by which everything is taken back when a driver's session ends, in order.
//!
//! The threads of the driver are gone by then: that is why the session ends. The device still works, and may pull its
//! line or write to memory at any instant, so it is silenced first, and the memory that it reaches is taken back last.

use crate::refusal::Thing;
use alloc::vec::Vec;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The function raises no interrupts any more.
    Silence(u16),
    /// The function reaches no memory any more.
    StopMastering(u16),
    /// The function answers at none of its addresses any more.
    StopDecoding(u16),
    /// The driver's channel of ISA DMA with this index moves nothing any more.
    Mask(usize),
    /// The driver gets no interrupts of the line, or of its part of one, any more.
    Detach(Thing),
    /// The space to which the driver's ports with this index were granted cannot use them any more.
    Revoke(usize),
    /// The regions of the device's memory, and of memory that devices reach, show nothing any more.
    Withdraw,
    /// The memory that devices reach is given to nobody until the device has been reset.
    Hold,
    /// That memory is cleared and freed, since no device was reaching it. Memory that is held since an earlier death
    /// stays held: this driver did not reset the device.
    Free,
}

/// The steps that silence one function.
#[must_use]
pub const fn silence(function: u16) -> [Step; 3] {
    [
        Step::Silence(function),
        Step::StopMastering(function),
        Step::StopDecoding(function),
    ]
}

/// The steps for a driver with these functions, so many channels, these interrupt lines and so many ranges of ports,
/// one of whose functions reaches memory or not. A masked channel moves no more bytes, so that its device need not be
/// reset.
#[must_use]
pub fn steps(
    functions: &[u16],
    channels: usize,
    lines: &[Thing],
    ports: usize,
    reaches: bool,
) -> Vec<Step> {
    // First the interrupts of all functions, then the bus mastering of all.
    let each = |place: usize| functions.iter().map(move |f| silence(*f)[place]);
    (0..3)
        .flat_map(each)
        .chain((0..channels).map(Step::Mask))
        .chain(lines.iter().copied().map(Step::Detach))
        .chain((0..ports).map(Step::Revoke))
        .chain([Step::Withdraw])
        .chain([if reaches { Step::Hold } else { Step::Free }])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{steps, Step};
    use crate::refusal::Thing;

    #[test]
    fn a_device_is_silent_before_anything_is_withdrawn_and_memory_goes_last() {
        use Step::{
            Detach, Free, Hold, Mask, Revoke, Silence, StopDecoding, StopMastering, Withdraw,
        };
        let level = Thing::Level {
            line: 11,
            function: 8,
            shares: true,
        };
        let all = [
            Silence(8),
            Silence(9),
            StopMastering(8),
            StopMastering(9),
            StopDecoding(8),
            StopDecoding(9),
            Mask(0),
            Mask(1),
            Detach(Thing::Line(5)),
            Detach(level),
            Revoke(0),
            Revoke(1),
            Withdraw,
            Hold,
        ];
        let taken = steps(&[8, 9], 2, &[Thing::Line(5), level], 2, true);
        assert_eq!(taken, all, "S2: what is taken back, and in which order");
        assert_eq!(steps(&[], 0, &[], 0, false), [Withdraw, Free]);
        assert_eq!(
            steps(&[], 1, &[], 0, false),
            [Mask(0), Withdraw, Free],
            "S2: memory is free that a channel still reaches"
        );
    }
}
