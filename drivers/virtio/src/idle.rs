//! Interrupts for which the device has done nothing.
//!
//! A device's line is masked from when it rings until the driver's thread waits again. A device that keeps raising a
//! line of its own would be served again and again, above all programs. So after a number of interrupts in a row with
//! nothing to take, the driver leaves the line masked for a while, as the device server does with shared lines.

/// After so many interrupts in a row with nothing to take, the device is served only now and then. One or two are no
/// fault: their work was taken with the previous interrupt, or when a client asked.
const MOST: u32 = 16;
/// How long the line then stays masked, in nanoseconds.
pub const IDLE_PAUSE: u64 = 1_000_000;

/// How many interrupts in a row had nothing to take.
#[derive(Debug, Default)]
pub struct Idle(u32);

impl Idle {
    /// No such interrupts yet.
    #[must_use]
    pub const fn new() -> Self {
        Idle(0)
    }

    /// Counts a served interrupt. Returns whether the line is to stay masked for [`IDLE_PAUSE`].
    #[must_use]
    pub fn served(&mut self, brought_something: bool) -> bool {
        self.0 = match brought_something {
            true => 0,
            false => (self.0 + 1).min(MOST),
        };
        self.0 == MOST
    }
}

#[cfg(test)]
mod tests {
    use super::{Idle, MOST};

    #[test]
    fn who_brings_nothing_is_served_now_and_then() {
        let mut idle = Idle::new();
        let pauses = |idle: &mut Idle, some: bool, count: u32| {
            (0..count).filter(|_| idle.served(some)).count() as u32
        };
        assert_eq!(pauses(&mut idle, true, 1000), 0);
        assert_eq!(pauses(&mut idle, false, MOST - 1), 0, "some are no fault");
        assert_eq!(pauses(&mut idle, true, 1), 0, "it has brought something");
        let rule = "S3: a device that holds its line up takes the processor from nobody";
        assert_eq!(pauses(&mut idle, false, 1000), 1000 - MOST + 1, "{rule}");
        assert_eq!(pauses(&mut idle, true, 1), 0);
        assert_eq!(pauses(&mut idle, false, MOST), 1);
    }
}
