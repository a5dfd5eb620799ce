//! Timers that send signals: `timer_create` and the calls that go with it.

use super::time::{beginning_at, deadline_at, is_date, read_timespec, timespec};
use crate::emulate::{Caller, Result};
use crate::errno::{EAGAIN, EFAULT, EINVAL, ENOTSUP};
use crate::memory::{READ, WRITE};
use crate::signal::{sig, REAL_TIME, SIGNALS};
use crate::timer::{Alarm, Notice, Timer};
use crate::wire::{u32_at, u64_at, Writer};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

/// Bytes of `struct sigevent`.
const EVENT: usize = 64;
/// Bytes of `struct itimerspec`.
const SETTING: u64 = 32;

/// The signal that a timer sends, as `struct sigevent` describes it; `None` for `SIGEV_NONE`. Errors: `EINVAL`.
fn notice(c: &mut Caller, event: &[u8]) -> Result<Option<Notice>> {
    let (value, signal) = (u64_at(event, 0), u32_at(event, 8));
    let is_known = (1..=SIGNALS).contains(&signal);
    let thread = match u32_at(event, 12) {
        linux::SIGEV_NONE => return Ok(None),
        linux::SIGEV_SIGNAL | linux::SIGEV_THREAD if is_known => None,
        linux::SIGEV_THREAD_ID if is_known => {
            let (own, number) = (c.p.task.pid, u32_at(event, 16));
            let thread = c.s.thread_by_number(own, number);
            let is_own = thread.is_some_and(|(_, of)| of == own);
            Some(is_own.then_some(number).ok_or(EINVAL)?)
        }
        _ => return Err(EINVAL.into()),
    };
    Ok(Some(Notice {
        signal,
        value,
        thread,
    }))
}

/// `timer_create`.
pub fn timer_create(c: &mut Caller, clock: u32, event: u64, into: u64) -> Result {
    let event = match event {
        0 => None,
        at => Some(c.read(at, EVENT)?),
    };
    match clock {
        linux::CLOCK_MONOTONIC_RAW
        | linux::CLOCK_MONOTONIC_COARSE
        | linux::CLOCK_REALTIME_COARSE
        | linux::CLOCK_REALTIME_ALARM
        | linux::CLOCK_BOOTTIME_ALARM => return Err(ENOTSUP.into()),
        clock => deadline_at(c, clock, 0)?,
    };
    let notice = event.map(|event| notice(c, &event)).transpose()?;
    c.check(into, 4, WRITE)?;
    // Memory for the signal is asked for here, since no call could fail when the timer expires.
    super::signal::queue_room(c, REAL_TIME, 1)?;
    let signal = notice.flatten().map_or(sig::ALRM, |notice| notice.signal);
    let pid = c.p.task.pid;
    let what = |id: u32| {
        notice.unwrap_or(Some(Notice {
            signal,
            value: u64::from(id),
            thread: None,
        }))
    };
    let id = c.s.set_timers(pid).create(clock, what).ok_or(EAGAIN)?;
    c.write(into, &id.to_le_bytes())?;
    Ok(0)
}

/// The timer with this number.
fn find<'a>(c: &'a mut Caller, id: u32) -> Result<&'a Timer> {
    Ok(c.process().timers.get(id).ok_or(EINVAL)?)
}

/// The current `struct itimerspec` of a timer.
fn setting(c: &mut Caller, id: u32) -> Result<Vec<u8>> {
    let now = c.now();
    let (left, interval) = find(c, id)?.left(now);
    let setting = Writer::new()
        .bytes(&timespec(interval))
        .bytes(&timespec(left));
    Ok(setting.done())
}

/// `timer_settime`.
pub fn timer_settime(c: &mut Caller, id: u32, flags: u32, new: u64, old: u64) -> Result {
    if new == 0 {
        return Err(EINVAL.into());
    }
    c.check(new, SETTING, READ)?;
    let interval = read_timespec(c, new)?;
    let value = read_timespec(c, new.checked_add(16).ok_or(EFAULT)?)?;
    let clock = find(c, id)?.clock;
    let before = setting(c, id)?;
    let deadline = match flags & linux::TIMER_ABSTIME {
        0 => c.now().saturating_add(value),
        _ => beginning_at(c, clock, value, interval)?,
    };
    c.write_optional(old, &before)?;
    let alarm = (value != 0).then_some(Alarm { deadline, interval });
    let pid = c.p.task.pid;
    let by_date = flags & linux::TIMER_ABSTIME != 0 && is_date(clock);
    c.s.set_timers(pid).set(id, alarm, by_date);
    Ok(0)
}

/// `timer_gettime`.
pub fn timer_gettime(c: &mut Caller, id: u32, into: u64) -> Result {
    let setting = setting(c, id)?;
    c.write(into, &setting)?;
    Ok(0)
}

/// `timer_getoverrun`.
pub fn timer_getoverrun(c: &mut Caller, id: u32) -> Result {
    let thread = find(c, id)?.notice.and_then(|notice| notice.thread);
    let own = c.p.task.pid;
    let task = thread.and_then(|number| c.s.thread_by_number(own, number));
    let is_pending = match task {
        Some((tid, _)) if tid == c.p.task.tid => c.p.task.signals.pending.has_of_timer(id),
        // Another thread's signals are not seen here: what is pending there counts as delivered.
        Some(_) => false,
        None => c.process().pending.has_of_timer(id),
    };
    let overrun = find(c, id)?.overrun(is_pending);
    Ok(overrun as u64)
}

/// `timer_delete`.
pub fn timer_delete(c: &mut Caller, id: u32) -> Result {
    let pid = c.p.task.pid;
    match c.s.set_timers(pid).delete(id) {
        true => Ok(0),
        false => Err(EINVAL.into()),
    }
}
