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

/// Pauses between attempts without success: each is twice as long as the one before, up to a longest.
#[derive(Debug)]
pub struct Pauses {
    first: u64,
    last: u64,
    next: u64,
}

impl Pauses {
    /// From the shortest pause to the longest, in nanoseconds.
    #[must_use]
    pub const fn new([first, last]: [u64; 2]) -> Self {
        Pauses {
            first,
            last,
            next: first,
        }
    }

    /// The next pause, in nanoseconds.
    pub fn next_pause(&mut self) -> u64 {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.last);
        pause
    }

    /// Makes the next pause.
    pub fn pause(&mut self) {
        sleep(self.next_pause());
    }

    /// An attempt succeeded: the next pause is the shortest again.
    pub fn end(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::Pauses;

    #[test]
    fn what_is_of_no_use_is_asked_ever_more_seldom() {
        const MS: u64 = 1_000_000;
        for [first, last] in [[MS, 2000 * MS], [10 * MS, 60_000 * MS], [1, u64::MAX]] {
            let mut pauses = Pauses::new([first, last]);
            let mut all = 0u64;
            for _ in 0..100 {
                let pause = pauses.next_pause();
                assert!((first..=last).contains(&pause), "{pause}");
                all = all.saturating_add(pause);
            }
            let rule = "S1: what is gone is asked for again and again";
            assert!(all / 80 >= last / 100, "{rule}: 100 times in {all} ns");
            pauses.end();
            assert_eq!(pauses.next_pause(), first, "what is back is there at once");
        }
    }
}
