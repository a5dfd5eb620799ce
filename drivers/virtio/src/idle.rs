//! Interrupts that bring nothing.
//!
//! The line of a device is masked from when it rings until the driver's thread waits again. Alone on its line, a device
//! that holds it up would be served again and again, above all programs. So, after so many interrupts in a row of which
//! there was nothing to take, the driver leaves the line masked for a while first, as the device server does with lines
//! that are shared.

/// Interrupts in a row that bring nothing, until the device is served only now and then. One or two are no fault: what
/// they were for was taken with the last one, or when a client asked.
const MOST: u32 = 16;
/// How often it is served then, in nanoseconds.
pub const IDLE_PAUSE: u64 = 1_000_000;

/// How many interrupts in a row have brought nothing.
#[derive(Debug, Default)]
pub struct Idle(u32);

impl Idle {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Idle(0)
    }

    /// One has been served. Whether the line is to stay masked for [`IDLE_PAUSE`].
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
