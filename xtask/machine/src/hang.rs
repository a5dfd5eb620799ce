//! Decides when a machine has run for too long. Hosts are shared and slow at times, so most of the criterion is the
//! processor time that QEMU has used, not the time that has passed.

use std::time::{Duration, Instant};

/// The time between two checks.
const LOOK: Duration = Duration::from_secs(5);
/// A machine that uses less than this in [`STILL`] waits for something that does not come.
const LITTLE: Duration = Duration::from_secs(3);
const STILL: Duration = Duration::from_secs(300);
/// Ticks of `/proc/PID/stat` in a second, on x86-64.
const TICKS: u64 = 100;

/// Watches a process.
pub(crate) struct Watch {
    limit: Duration,
    by_host_time: bool,
    begun: Instant,
    looked: Instant,
    /// When the process had last used some processor time, and how much in all by then.
    busy: (Instant, Duration),
}

impl Watch {
    /// The process may take `limit`, and, unless only the host's time counts, half of that in processor time.
    pub(crate) fn new(limit: Duration, by_host_time: bool) -> Self {
        let now = Instant::now();
        Watch {
            limit,
            by_host_time,
            begun: now,
            looked: now,
            busy: (now, Duration::ZERO),
        }
    }

    /// Whether the process with this number has run for too long, or has stopped doing anything.
    pub(crate) fn is_over(&mut self, pid: u32) -> bool {
        let now = Instant::now();
        if now - self.begun >= self.limit {
            return true;
        }
        if self.by_host_time || now - self.looked < LOOK {
            return false;
        }
        self.looked = now;
        processor_time(pid).is_some_and(|used| self.has_used(used, now))
    }

    fn has_used(&mut self, used: Duration, now: Instant) -> bool {
        if used >= self.busy.1 + LITTLE {
            self.busy = (now, used);
        }
        used >= self.limit / 2 || now - self.busy.0 >= STILL
    }
}

/// The processor time that a process has used, all its threads together.
fn processor_time(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis(
        (ticks()? + ticks()?) * (1000 / TICKS),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_is_processor_time() {
        let second = Duration::from_secs(1);
        let mut watch = Watch::new(100 * second, false);
        let start = watch.begun;
        assert!(!watch.has_used(49 * second, start + 99 * second));
        assert!(watch.has_used(50 * second, start + 99 * second));
        let mut watch = Watch::new(10_000 * second, false);
        let mut at =
            |seconds: u32, used: u32| watch.has_used(used * second, start + seconds * second);
        assert!(!at(299, 0) && at(301, 0), "it does nothing");
        assert!(!at(302, 4) && !at(601, 5) && at(603, 5));
        assert!(!at(604, 8));
        let pid = std::process::id();
        assert!(processor_time(pid).is_some());
        // Who says how long a machine may run has said nothing of how much it may compute.
        for (by_host_time, is_over) in [(false, true), (true, false)] {
            let mut watch = Watch::new(100 * second, by_host_time);
            watch.looked = start.checked_sub(LOOK).unwrap_or(start);
            watch.busy.0 = start.checked_sub(STILL).unwrap_or(start);
            assert_eq!(
                watch.is_over(pid),
                is_over,
                "by the host's time: {by_host_time}"
            );
        }
    }
}
