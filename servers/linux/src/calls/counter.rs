//! File descriptors that count: `eventfd` and `timerfd`.

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EAGAIN, EFAULT, EINVAL};
use crate::memory::{READ, WRITE};
use crate::process::{open_flags, Counter, Description, Kind};
use crate::system::Key;
use crate::timer::sooner;
use crate::wire::{u64_at, Writer};
use linux_raw_sys::general as linux;

/// The highest value of an `eventfd`.
const MOST: u64 = u64::MAX - 1;
/// `EFD_SEMAPHORE`.
const SEMAPHORE: u32 = 1;

fn install(c: &mut Caller, counter: Counter, flags: u32) -> Result {
    let fd = super::file::free_fd(c)?;
    let id = c.s.new_identity();
    let description = Description {
        kind: Kind::Counter { id, counter },
        flags: open_flags::RDWR | flags & open_flags::NONBLOCK,
        offset: 0,
        owner: None,
    };
    let cloexec = flags & open_flags::CLOEXEC != 0;
    c.p.files.install(fd, description, cloexec);
    Ok(u64::from(fd))
}

/// `eventfd` and `eventfd2`.
pub fn eventfd(c: &mut Caller, count: u32, flags: u32) -> Result {
    if flags & !(SEMAPHORE | open_flags::CLOEXEC | open_flags::NONBLOCK) != 0 {
        return Err(EINVAL.into());
    }
    let counter = Counter::Event {
        count: u64::from(count),
        semaphore: flags & SEMAPHORE != 0,
    };
    install(c, counter, flags)
}

/// `timerfd_create`.
pub fn timerfd_create(c: &mut Caller, clock: u32, flags: u32) -> Result {
    let known = [
        linux::CLOCK_REALTIME,
        linux::CLOCK_MONOTONIC,
        linux::CLOCK_BOOTTIME,
    ];
    if !known.contains(&clock) || flags & !(open_flags::CLOEXEC | open_flags::NONBLOCK) != 0 {
        return Err(EINVAL.into());
    }
    let counter = Counter::Timer {
        clock,
        next: None,
        interval: 0,
        by_date: false,
    };
    install(c, counter, flags)
}

/// `struct itimerspec` of a timer: its interval, and the time that is left until it expires.
fn setting(now: u64, next: Option<u64>, interval: u64) -> alloc::vec::Vec<u8> {
    // A periodic timer that has expired unread expires again at a multiple of its interval.
    let left = next.map_or(0, |next| match next.checked_sub(now) {
        Some(left) => left.max(1),
        None if interval == 0 => 0,
        None => interval - (now - next) % interval,
    });
    Writer::new()
        .bytes(&super::time::timespec(interval))
        .bytes(&super::time::timespec(left))
        .done()
}

/// The identity, clock, next expiration and interval of a `timerfd`.
fn timer(c: &Caller, fd: u32) -> Result<(u64, u32, Option<u64>, u64)> {
    match &c.p.files.get(fd)?.kind {
        Kind::Counter {
            id,
            counter:
                Counter::Timer {
                    clock,
                    next,
                    interval,
                    ..
                },
        } => Ok((*id, *clock, *next, *interval)),
        _ => Err(EINVAL.into()),
    }
}

/// `timerfd_gettime`.
pub fn timerfd_gettime(c: &mut Caller, fd: u32, into: u64) -> Result {
    let (_, _, next, interval) = timer(c, fd)?;
    let now = c.now();
    c.write(into, &setting(now, next, interval))?;
    Ok(0)
}

/// `timerfd_settime`.
pub fn timerfd_settime(c: &mut Caller, fd: u32, flags: u32, new: u64, old: u64) -> Result {
    if flags & !(linux::TFD_TIMER_ABSTIME | linux::TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(EINVAL.into());
    }
    let (id, clock, before, interval_before) = timer(c, fd)?;
    c.check(new, 32, READ)?;
    let interval = super::time::read_timespec(c, new)?;
    let value = super::time::read_timespec(c, new.checked_add(16).ok_or(EFAULT)?)?;
    let now = c.now();
    c.write_optional(old, &setting(now, before, interval_before))?;
    let next = match value {
        0 => None,
        value if flags & linux::TFD_TIMER_ABSTIME != 0 => {
            Some(super::time::beginning_at(c, clock, value, interval)?)
        }
        value => Some(now.saturating_add(value)),
    };
    if let Kind::Counter { counter, .. } = &mut c.p.files.get_mut(fd)?.kind {
        *counter = Counter::Timer {
            clock,
            next,
            interval,
            by_date: flags & linux::TFD_TIMER_ABSTIME != 0 && super::time::is_date(clock),
        };
    }
    c.s.wake(Key::Counter(id));
    Ok(0)
}

/// `read` of an `eventfd` or `timerfd`: returns the count, and resets it (a semaphore counts down by 1).
pub fn read(c: &mut Caller, fd: u32, address: u64, length: u64) -> Result {
    if length < 8 {
        return Err(EINVAL.into());
    }
    c.check(address, 8, WRITE)?;
    let now = c.now();
    let mut description = c.p.files.get_mut(fd)?;
    let flags = description.flags;
    let Kind::Counter { id, counter } = &mut description.kind else {
        return Err(EINVAL.into());
    };
    let id = *id;
    let at = counter.goes_off();
    let count = counter.take(now);
    drop(description);
    if count == 0 {
        if flags & open_flags::NONBLOCK != 0 {
            return Err(EAGAIN.into());
        }
        return Err(Stop::Park(Wake {
            deadline: at,
            ..Wake::on(Key::Counter(id))
        }));
    }
    c.s.wake_for(Key::Counter(id), linux::POLLOUT);
    c.write(address, &count.to_le_bytes())?;
    Ok(8)
}

/// `write` of an `eventfd`: adds to its count.
pub fn write(c: &mut Caller, fd: u32, ranges: &[(u64, u64)], total: u64) -> Result {
    let at = ranges.iter().find(|(_, length)| *length != 0);
    let (address, length) = *at.ok_or(EINVAL)?;
    if total < 8 || length < 8 {
        return Err(EINVAL.into());
    }
    let raw = c.read(address, 8)?;
    let more = u64_at(&raw, 0);
    let mut description = c.p.files.get_mut(fd)?;
    let flags = description.flags;
    let Kind::Counter {
        id,
        counter: Counter::Event { count, .. },
    } = &mut description.kind
    else {
        return Err(EINVAL.into());
    };
    let id = *id;
    if more == u64::MAX {
        return Err(EINVAL.into());
    }
    if *count > MOST - more {
        if flags & open_flags::NONBLOCK != 0 {
            return Err(EAGAIN.into());
        }
        return Err(Stop::Park(Wake::on(Key::Counter(id))));
    }
    *count += more;
    drop(description);
    c.s.wake_for(Key::Counter(id), linux::POLLIN);
    Ok(8)
}

impl Counter {
    /// Whether a counter from a checkpoint image is valid.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        match self {
            Counter::Event { count, .. } => *count <= MOST,
            Counter::Timer { clock, .. } => {
                matches!(
                    *clock,
                    linux::CLOCK_REALTIME | linux::CLOCK_MONOTONIC | linux::CLOCK_BOOTTIME
                )
            }
        }
    }

    /// The next expiration of a timer, on the process's clock.
    #[must_use]
    pub const fn goes_off(&self) -> Option<u64> {
        match self {
            Counter::Event { .. } => None,
            Counter::Timer { next, .. } => *next,
        }
    }

    /// Adjusts a timer that was set to a date to a process clock that has stood still: the date has advanced by `later`
    /// nanoseconds more than the clock, which reads `now`. A timer that has expired stays expired, also if the date has
    /// gone back.
    pub fn keep_date(&mut self, now: u64, later: i64) {
        if let Counter::Timer {
            next: Some(next),
            interval,
            by_date: true,
            ..
        } = self
        {
            if later > 0 || *next > now {
                *next = sooner(*next, later, *interval);
            }
        }
    }

    /// Whether it can be read, and whether it can be written, without waiting.
    #[must_use]
    pub fn ready(&self, now: u64) -> (bool, bool) {
        match self {
            Counter::Event { count, .. } => (*count > 0, *count < MOST),
            Counter::Timer { next, .. } => (next.is_some_and(|next| next <= now), false),
        }
    }

    /// Takes the count: 0 if a `read` has to wait.
    fn take(&mut self, now: u64) -> u64 {
        match self {
            Counter::Event { count, semaphore } => {
                let taken = if *semaphore { (*count).min(1) } else { *count };
                *count -= taken;
                taken
            }
            Counter::Timer { next, interval, .. } => match *next {
                Some(at) if at <= now => {
                    let times = (now - at)
                        .checked_div(*interval)
                        .map_or(1, |n| n.saturating_add(1));
                    *next = (*interval != 0)
                        .then(|| at.saturating_add(times.saturating_mul(*interval)));
                    times
                }
                _ => 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such times can come from a checkpoint image.
    #[test]
    fn a_timer_that_went_off_as_often_as_can_be_counted_is_told() {
        let mut timer = Counter::Timer {
            clock: linux::CLOCK_MONOTONIC,
            next: Some(0),
            interval: 1,
            by_date: false,
        };
        assert_eq!(timer.take(u64::MAX), u64::MAX);
        assert_eq!(timer.goes_off(), Some(u64::MAX));
    }

    #[test]
    fn what_has_gone_off_stays_so_where_it_is_earlier() {
        let timer = |next| Counter::Timer {
            clock: linux::CLOCK_REALTIME,
            next: Some(next),
            interval: 0,
            by_date: true,
        };
        for (next, later, wanted) in [(70, -50, 70), (130, -50, 180), (130, 50, 80), (70, 50, 20)] {
            let mut counter = timer(next);
            counter.keep_date(100, later);
            assert_eq!(counter.goes_off(), Some(wanted), "A6: {next} and {later}");
        }
    }
}
