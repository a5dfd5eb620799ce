//! The requests that wait until all output has left the machine, and when that is checked.
//!
//! The device interrupts when it takes more bytes. When it has taken all, no interrupt tells that the last byte has
//! left: that is checked after the time of a byte, then after twice as long each time.

use alloc::vec::Vec;

/// The time to the first check, in nanoseconds: a byte takes 87 µs.
const FIRST: u64 = 100_000;
/// The longest time between two checks, in nanoseconds: the other side may delay the last bytes as long as it likes.
const LONGEST: u64 = 10_000_000;

/// The waiting requests.
#[derive(Debug, Default)]
pub struct Drains {
    /// The deadline of each.
    until: Vec<u64>,
    pause: u64,
}

impl Drains {
    /// No requests.
    #[must_use]
    pub const fn new() -> Self {
        Drains {
            until: Vec::new(),
            pause: FIRST,
        }
    }

    /// Adds a request with this deadline.
    pub fn begin(&mut self, until: u64) {
        self.until.push(until);
        self.pause = FIRST;
    }

    /// Removes a request with this deadline.
    pub fn end(&mut self, until: u64) {
        if let Some(place) = self.until.iter().position(|other| *other == until) {
            self.until.swap_remove(place);
        }
    }

    /// Whether a request waits.
    #[must_use]
    pub fn is_waited(&self) -> bool {
        !self.until.is_empty()
    }

    /// Whether a deadline has passed.
    #[must_use]
    pub fn is_late(&self, now: u64) -> bool {
        self.until.iter().any(|until| *until <= now)
    }

    /// When to check again if the device does not interrupt before. Ignores requests whose deadline has passed, since
    /// they are answered now. `has_all`: the device has taken all bytes.
    pub fn next(&mut self, now: u64, has_all: bool) -> Option<u64> {
        let ahead = self.until.iter().copied().filter(|until| *until > now);
        let end = ahead.min()?;
        if !has_all {
            self.pause = FIRST;
            return Some(end);
        }
        let look = now.saturating_add(self.pause);
        self.pause = (2 * self.pause).min(LONGEST);
        Some(look.min(end))
    }
}

#[cfg(test)]
mod tests {
    use super::{Drains, FIRST, LONGEST};

    #[test]
    fn nobody_is_looked_for_who_does_not_wait() {
        let mut drains = Drains::new();
        assert!(!drains.is_waited() && !drains.is_late(u64::MAX));
        assert_eq!(drains.next(5, true), None);
        drains.begin(100);
        assert!(drains.is_waited() && !drains.is_late(99) && drains.is_late(100));
        drains.end(7);
        assert!(drains.is_waited());
        drains.end(100);
        assert_eq!(drains.next(5, true), None);
    }

    #[test]
    fn while_bytes_wait_the_device_says_when_and_the_end_of_patience_does() {
        let mut drains = Drains::new();
        drains.begin(LONGEST * 100);
        drains.begin(LONGEST * 50);
        for now in [0, 1, LONGEST * 49] {
            assert_eq!(drains.next(now, false), Some(LONGEST * 50));
        }
        // The first request is answered then, and is no reason for further checks, whether it has been removed yet or
        // not.
        assert!(drains.is_late(LONGEST * 50));
        assert_eq!(drains.next(LONGEST * 50, false), Some(LONGEST * 100));
        assert_eq!(drains.next(LONGEST * 100, false), None);
        assert_eq!(drains.next(LONGEST * 100, true), None);
    }

    #[test]
    fn the_last_byte_is_looked_for_soon_and_then_seldom() {
        let mut drains = Drains::new();
        let (mut now, mut looks) = (0, 0);
        drains.begin(100 * LONGEST);
        while let Some(next) = drains.next(now, true) {
            assert!(next > now && next - now <= LONGEST);
            assert!(next <= 2 * now + FIRST, "at most twice as late as it was");
            (now, looks) = (next, looks + 1);
        }
        assert_eq!(now, 100 * LONGEST);
        assert!(looks <= 110, "S3: {looks} looks");
        // The first check for the next request is soon again.
        drains.end(100 * LONGEST);
        drains.begin(200 * LONGEST);
        assert_eq!(drains.next(now, true), Some(now + FIRST));
    }
}
