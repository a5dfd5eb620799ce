//! Clocks, sleeping and timers.
//!
//! All clocks of a process but the date are its own clock: the machine's plus an offset. A restore sets the offset, so
//! that the clock goes on from where it stood. The date is the machine's, and jumps when a process is restored.
//! Processor time is an estimate ([`crate::work`]); timers and sleeps by it go by the process's clock.

use alloc::vec::Vec;
use linux_raw_sys::general as linux;

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EINVAL, EPERM};
use crate::memory::WRITE;
use crate::timer::Alarm;
use crate::wire::{u32_at, u64_at, Writer};

/// Whose usage `getrusage` asks for.
const SELF: i32 = linux::RUSAGE_SELF as i32;
const CHILDREN: i32 = linux::RUSAGE_CHILDREN;
const THREAD: i32 = linux::RUSAGE_THREAD as i32;
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

/// The same for `select`, which also takes a second or more in microseconds.
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
        which if is_date(which) => Ok(c.date()),
        linux::CLOCK_MONOTONIC
        | linux::CLOCK_MONOTONIC_RAW
        | linux::CLOCK_MONOTONIC_COARSE
        | linux::CLOCK_BOOTTIME
        | linux::CLOCK_BOOTTIME_ALARM => Ok(now),
        linux::CLOCK_PROCESS_CPUTIME_ID => Ok(spent(c)),
        linux::CLOCK_THREAD_CPUTIME_ID => Ok(spent_by_thread(c)),
        which if which & OF_ANOTHER != 0 => spent_by(c, which),
        _ => Err(EINVAL.into()),
    }
}

/// Whether this clock shows the date.
pub const fn is_date(which: u32) -> bool {
    matches!(
        which,
        linux::CLOCK_REALTIME
            | linux::CLOCK_REALTIME_COARSE
            | linux::CLOCK_REALTIME_ALARM
            | linux::CLOCK_TAI
    )
}

/// Bits of a clock number: the clock is the processor time of a process, or of a thread if [`OF_THREAD`] is set, too.
/// The bits above the lowest three are the process or thread number, inverted.
const OF_ANOTHER: u32 = 1 << 31;
const OF_THREAD: u32 = 4;
/// The kind of processor time; Linux has three.
const KIND: u32 = 3;

/// The processor time that a task would have by now if it had never waited.
pub(crate) fn each(c: &mut Caller) -> u64 {
    c.s.work.each(c.h.now())
}

/// The processor time of the process or thread that a clock number names.
fn spent_by(c: &mut Caller, which: u32) -> Result<u64> {
    let (number, own) = (!((which as i32) >> 3) as u32, c.p.task.pid);
    if which & KIND == KIND {
        return Err(EINVAL.into());
    }
    if which & OF_THREAD != 0 {
        let thread = match number {
            0 => c.p.task.thread,
            number => number,
        };
        let (tid, pid) = c.s.thread_by_number(own, thread).ok_or(EINVAL)?;
        if pid != own {
            return Err(EINVAL.into());
        }
        let each = each(c);
        let spent = c.process().shown(tid).map(|shown| shown.spent.get());
        return Ok(spent.ok_or(EINVAL)?.total(each));
    }
    let pid = match number {
        0 => own,
        number => c.s.by_number(own, number).ok_or(EINVAL)?,
    };
    let each = each(c);
    Ok(c.s.process(pid).spent.get().total(each))
}

/// The processor time of the calling process.
fn spent(c: &mut Caller) -> u64 {
    let each = each(c);
    c.process().spent.get().total(each)
}

/// The processor time of the calling thread.
fn spent_by_thread(c: &mut Caller) -> u64 {
    let each = each(c);
    c.p.task.shown.spent.get().total(each)
}

/// The time on the process's clock at which the clock `which` shows `time`.
pub fn deadline_at(c: &mut Caller, which: u32, time: u64) -> Result<u64> {
    let left = time.saturating_sub(clock(c, which)?);
    Ok(c.now().saturating_add(left))
}

/// The same for a periodic timer: one whose first expiration is past keeps the rhythm of its interval.
pub fn beginning_at(c: &mut Caller, which: u32, time: u64, interval: u64) -> Result<u64> {
    let late = clock(c, which)?.saturating_sub(time);
    match late {
        0 => deadline_at(c, which, time),
        late => {
            let late = i64::try_from(late).unwrap_or(i64::MAX);
            Ok(crate::timer::sooner(c.now(), late, interval))
        }
    }
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

/// `adjtimex` and `clock_adjtime`: report a clock that is not synchronized. Adjusting it fails with `EPERM`.
pub fn adjtimex(c: &mut Caller, at: u64) -> Result {
    const SIZE: usize = 208;
    /// The state of a clock that is not synchronized, and its status bit.
    const TIME_ERROR: u64 = 5;
    const UNSYNCHRONIZED: u32 = 0x40;
    /// The maximum error, in microseconds.
    const LARGEST: u64 = 16_000_000;
    if u32_at(&c.read(at, SIZE)?, 0) != 0 {
        return Err(EPERM.into());
    }
    let date = c.date();
    let told = Writer::new()
        // `modes`, `offset` and `freq`.
        .u64(0)
        .u64(0)
        .u64(0)
        .u64(LARGEST)
        .u64(LARGEST)
        .u32(UNSYNCHRONIZED)
        .u32(0)
        // `constant`, `precision` and `tolerance`: Linux's initial values.
        .u64(2)
        .u64(1)
        .u64(32_768_000)
        .u64(date / SECOND)
        .u64(date % SECOND / 1000)
        // `tick`, in microseconds.
        .u64(10_000)
        .pad_to(SIZE)
        .done();
    c.write(at, &told)?;
    Ok(TIME_ERROR)
}

/// `time`.
pub fn time(c: &mut Caller, into: u64) -> Result {
    let seconds = c.date() / SECOND;
    c.write_optional(into, &seconds.to_le_bytes())?;
    Ok(seconds)
}

/// Waits until the deadline. If a signal ends the wait earlier, writes the time left to `left_at`, unless that is null.
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
    let ticks = [spent(c), 0, c.process().spent_by_children, 0].map(|time| time / TICK);
    let times = ticks.into_iter().fold(Writer::new(), Writer::u64);
    c.write_optional(into, &times.done())?;
    Ok(c.now() / TICK)
}

/// `struct rusage` for `spent` nanoseconds of processor time, all of it user time, and a maximum of `memory` bytes.
/// Page faults are not counted.
pub(super) fn usage(spent: u64, memory: u64) -> Vec<u8> {
    let system = 0;
    timeval(spent)
        .bytes(&timeval(system).done())
        .u64(memory / 1024)
        .pad_to(144)
        .done()
}

/// `getrusage`.
pub fn getrusage(c: &mut Caller, who: i32, into: u64) -> Result {
    // Only the upper limit of the resident memory is known: all writable memory.
    let memory = c.p.memory.areas.writable();
    let usage = match who {
        SELF => usage(spent(c), memory),
        THREAD => usage(spent_by_thread(c), memory),
        CHILDREN => usage(c.process().spent_by_children, 0),
        _ => return Err(EINVAL.into()),
    };
    c.write(into, &usage)?;
    Ok(0)
}

/// Nanoseconds until the interval timer `which` expires, and its interval.
fn remaining(c: &mut Caller, which: u32) -> Result<(u64, u64)> {
    let now = c.now();
    let alarm = *c.process().timers.interval(which).ok_or(EINVAL)?;
    // A timer that is late but has not been processed is still armed, so the time left is not 0.
    Ok(alarm.map_or((0, 0), |a| {
        (a.deadline.saturating_sub(now).max(1000), a.interval)
    }))
}

/// `alarm`.
pub fn alarm(c: &mut Caller, seconds: u32) -> Result {
    let (left, _) = remaining(c, linux::ITIMER_REAL)?;
    let deadline = c.now().saturating_add(u64::from(seconds) * SECOND);
    let alarm = (seconds != 0).then_some(Alarm {
        deadline,
        interval: 0,
    });
    c.s.set_timers(c.p.task.pid).alarm = alarm;
    // Rounded to seconds, but not to 0 while the timer is armed.
    let rounded = left.saturating_add(SECOND / 2) / SECOND;
    Ok(rounded.max(u64::from(left > 0)))
}

fn itimerval(left: u64, interval: u64) -> Vec<u8> {
    timeval(interval).bytes(&timeval(left).done()).done()
}

/// `setitimer`.
pub fn setitimer(c: &mut Caller, which: u32, new: u64, old: u64) -> Result {
    let (left, old_interval) = remaining(c, which)?;
    let (interval, value) = if new == 0 {
        (0, 0)
    } else {
        (read_timeval(c, new)?, read_timeval(c, new + 16)?)
    };
    c.write_optional(old, &itimerval(left, old_interval))?;
    let deadline = c.now().saturating_add(value);
    let alarm = (value != 0).then_some(Alarm { deadline, interval });
    *c.s.set_timers(c.p.task.pid).interval(which).ok_or(EINVAL)? = alarm;
    Ok(0)
}

/// `getitimer`.
pub fn getitimer(c: &mut Caller, which: u32, into: u64) -> Result {
    let (left, interval) = remaining(c, which)?;
    c.write(into, &itimerval(left, interval))?;
    Ok(0)
}
