//! Clocks, sleeping and timers.
//!
//! All clocks of a process are its own clock: the machine's plus an offset that a restore changes,
//! so that a process never sees time jump. Real time is the machine's date, and jumps when a
//! process is restored. Processor time is not measured; the time since the process began stands
//! for it.

use alloc::vec::Vec;
use linux_raw_sys::general as linux;

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::EINVAL;
use crate::memory::WRITE;
use crate::timer::Alarm;
use crate::wire::{u64_at, Writer};

const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a tick of `times` (`AT_CLKTCK` is 100).
const TICK: u64 = 10_000_000;

pub(super) fn timespec(nanoseconds: u64) -> Vec<u8> {
    Writer::new()
        .u64(nanoseconds / SECOND)
        .u64(nanoseconds % SECOND)
        .done()
}

pub(super) fn timeval(nanoseconds: u64) -> Writer {
    Writer::new()
        .u64(nanoseconds / SECOND)
        .u64(nanoseconds % SECOND / 1000)
}

/// Reads a `struct timespec` as nanoseconds.
pub fn read_timespec(c: &mut Caller, address: u64) -> Result<u64> {
    let raw = c.read(address, 16)?;
    join(u64_at(&raw, 0), u64_at(&raw, 8))
}

/// Reads a `struct timeval` as nanoseconds.
pub fn read_timeval(c: &mut Caller, address: u64) -> Result<u64> {
    let raw = c.read(address, 16)?;
    join(
        u64_at(&raw, 0),
        u64_at(&raw, 8).checked_mul(1000).ok_or(EINVAL)?,
    )
}

/// The same for `select`, which takes microseconds that are more than a second.
pub fn read_loose_timeval(c: &mut Caller, address: u64) -> Result<u64> {
    let raw = c.read(address, 16)?;
    let (seconds, micros) = (u64_at(&raw, 0) as i64, u64_at(&raw, 8) as i64);
    let whole = seconds.checked_add(micros / 1_000_000).ok_or(EINVAL)?;
    join(whole as u64, (micros % 1_000_000 * 1000) as u64)
}

fn join(seconds: u64, rest: u64) -> Result<u64> {
    if (seconds as i64) < 0 || rest >= SECOND {
        return Err(EINVAL.into());
    }
    Ok(seconds.saturating_mul(SECOND).saturating_add(rest))
}

fn clock(c: &mut Caller, which: u32) -> Result<u64> {
    let now = c.now();
    match which {
        linux::CLOCK_REALTIME
        | linux::CLOCK_REALTIME_COARSE
        | linux::CLOCK_REALTIME_ALARM
        | linux::CLOCK_TAI => Ok(c.date()),
        linux::CLOCK_MONOTONIC
        | linux::CLOCK_MONOTONIC_RAW
        | linux::CLOCK_MONOTONIC_COARSE
        | linux::CLOCK_BOOTTIME
        | linux::CLOCK_BOOTTIME_ALARM => Ok(now),
        // Processor time; a process's by its number, too.
        linux::CLOCK_PROCESS_CPUTIME_ID | linux::CLOCK_THREAD_CPUTIME_ID => {
            Ok(now.wrapping_sub(c.process().started))
        }
        which if which & 0x8000_0000 != 0 => Ok(now.wrapping_sub(c.process().started)),
        _ => Err(EINVAL.into()),
    }
}

/// When this clock shows that time, on the process's clock.
pub fn deadline_at(c: &mut Caller, which: u32, time: u64) -> Result<u64> {
    let left = time.saturating_sub(clock(c, which)?);
    Ok(c.now().saturating_add(left))
}

/// `clock_gettime`.
pub fn clock_gettime(c: &mut Caller, which: u32, into: u64) -> Result {
    let now = clock(c, which)?;
    c.write(into, &timespec(now))?;
    Ok(0)
}

/// `clock_getres`.
pub fn clock_getres(c: &mut Caller, which: u32, into: u64) -> Result {
    clock(c, which)?;
    c.write_optional(into, &timespec(1))?;
    Ok(0)
}

/// `gettimeofday`.
pub fn gettimeofday(c: &mut Caller, into: u64, zone: u64) -> Result {
    let date = c.date();
    c.write_optional(into, &timeval(date).done())?;
    c.write_optional(zone, &[0; 8])?;
    Ok(0)
}

/// `time`.
pub fn time(c: &mut Caller, into: u64) -> Result {
    let seconds = c.date() / SECOND;
    c.write_optional(into, &seconds.to_le_bytes())?;
    Ok(seconds)
}

/// Waits until the deadline; when a signal ends the wait before, tells how much was left.
fn sleep_until(c: &mut Caller, deadline: u64, left_at: u64) -> Result {
    let now = c.now();
    if now >= deadline {
        return Ok(0);
    }
    if left_at != 0 && c.is_signalled() {
        c.write(left_at, &timespec(deadline - now))?;
    }
    Err(Stop::Park(Wake::at(Some(deadline))))
}

/// `nanosleep`.
pub fn nanosleep(c: &mut Caller, request: u64, left_at: u64) -> Result {
    clock_nanosleep(c, 1, 0, request, left_at)
}

/// `clock_nanosleep`.
pub fn clock_nanosleep(
    c: &mut Caller,
    which: u32,
    flags: u32,
    request: u64,
    left_at: u64,
) -> Result {
    use linux::TIMER_ABSTIME as ABSOLUTE;
    clock(c, which)?;
    let time = read_timespec(c, request)?;
    if flags & ABSOLUTE != 0 {
        let deadline = deadline_at(c, which, time)?;
        return sleep_until(c, deadline, 0);
    }
    if left_at != 0 {
        c.check(left_at, 16, WRITE)?;
    }
    let deadline = c.deadline_after(time);
    sleep_until(c, deadline, left_at)
}

/// `times`.
pub fn times(c: &mut Caller, into: u64) -> Result {
    let now = c.now();
    let own = now.wrapping_sub(c.process().started) / TICK;
    c.write_optional(into, &Writer::new().u64(own).pad_to(32).done())?;
    Ok(now / TICK)
}

/// `getrusage`.
pub fn getrusage(c: &mut Caller, into: u64) -> Result {
    let own = c.now().wrapping_sub(c.process().started);
    // The kind of memory that can become resident, in kilobytes, is known; faults are not counted.
    let out = timeval(own)
        .u64(0)
        .u64(0)
        .u64(c.p.memory.areas.writable() / 1024)
        .pad_to(144)
        .done();
    c.write(into, &out)?;
    Ok(0)
}

/// Nanoseconds until the timer is due, and its interval.
fn remaining(c: &mut Caller) -> (u64, u64) {
    let now = c.now();
    // A timer that is set but late has the least bit of time left.
    c.process().timers.alarm.map_or((0, 0), |a| {
        (a.deadline.saturating_sub(now).max(1000), a.interval)
    })
}

/// `alarm`.
pub fn alarm(c: &mut Caller, seconds: u32) -> Result {
    let (left, _) = remaining(c);
    let deadline = c.now().saturating_add(u64::from(seconds) * SECOND);
    let alarm = (seconds != 0).then_some(Alarm {
        deadline,
        interval: 0,
    });
    c.s.set_timers(c.p.task.pid).alarm = alarm;
    Ok(left.div_ceil(SECOND))
}

fn itimerval(left: u64, interval: u64) -> Vec<u8> {
    timeval(interval).bytes(&timeval(left).done()).done()
}

/// `setitimer`.
pub fn setitimer(c: &mut Caller, which: u32, new: u64, old: u64) -> Result {
    if which != 0 {
        return Err(EINVAL.into());
    }
    let (interval, value) = if new == 0 {
        (0, 0)
    } else {
        (read_timeval(c, new)?, read_timeval(c, new + 16)?)
    };
    let (left, old_interval) = remaining(c);
    c.write_optional(old, &itimerval(left, old_interval))?;
    let deadline = c.now().saturating_add(value);
    let alarm = (value != 0).then_some(Alarm { deadline, interval });
    c.s.set_timers(c.p.task.pid).alarm = alarm;
    Ok(0)
}

/// `getitimer`.
pub fn getitimer(c: &mut Caller, which: u32, into: u64) -> Result {
    if which != 0 {
        return Err(EINVAL.into());
    }
    let (left, interval) = remaining(c);
    c.write(into, &itimerval(left, interval))?;
    Ok(0)
}
