//! `poll` and `select`. Files are always ready; the console, pipes, sockets and descriptors that count may have to be
//! waited for.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EBADF, EINTR, EINVAL};
use crate::memory::WRITE;
use crate::process::{Description, Device, Kind, Shared, PIPE_BUF};
use crate::system::Key;
use crate::wire::{u16_at, u32_at};
use linux_raw_sys::general as linux;

const IN: u16 = linux::POLLIN as u16;
const OUT: u16 = linux::POLLOUT as u16;
const PRI: u16 = linux::POLLPRI as u16;
const ERR: u16 = linux::POLLERR as u16;
const HUP: u16 = linux::POLLHUP as u16;
const INVALID: u16 = linux::POLLNVAL as u16;
const RDNORM: u16 = linux::POLLRDNORM as u16;
const WRNORM: u16 = linux::POLLWRNORM as u16;
const RDBAND: u16 = linux::POLLRDBAND as u16;
const WRBAND: u16 = linux::POLLWRBAND as u16;

/// The events and times that may change which descriptors are ready.
#[derive(Default)]
pub struct Changes {
    pub(super) keys: Vec<Key>,
    /// The events that the call asks for.
    pub(super) events: u32,
    /// What each file description is ready for, by its address: several descriptors of the call can share one.
    seen: BTreeMap<usize, u16>,
    /// The earliest time, on the process's clock, at which something becomes ready.
    at: Option<u64>,
    /// Instances of `epoll` whose polled watches have been asked already.
    pub(super) asked: BTreeSet<u64>,
    /// Whether any watch of an instance of `epoll` is ready, for those already looked at.
    pub(super) known: BTreeMap<u64, bool>,
}

impl Changes {
    /// Notes that something becomes ready at this time.
    pub(super) fn until(&mut self, at: Option<u64>) {
        self.at = self.at.into_iter().chain(at).min();
    }

    /// As [`Changes::wait`]; but if the timeout has passed and a signal is pending, the call fails with `EINTR`.
    fn wait_or_signal(self, c: &mut Caller, timeout: Option<u64>) -> Result {
        match self.wait(c, timeout) {
            Ok(0) if c.is_signalled() => Err(EINTR.into()),
            other => other,
        }
    }

    /// The result of a call for which nothing is ready: 0 if its timeout has passed, else it is parked until a change.
    pub(super) fn wait(self, c: &mut Caller, timeout: Option<u64>) -> Result {
        let deadline = match timeout {
            Some(0) => return Ok(0),
            Some(nanoseconds) => {
                let deadline = c.deadline_after(nanoseconds);
                if c.now() >= deadline {
                    return Ok(0);
                }
                Some(deadline)
            }
            None => None,
        };
        Err(Stop::Park(Wake {
            keys: self.keys.into(),
            events: Some(self.events),
            deadline: deadline.into_iter().chain(self.at).min(),
            firm: false,
        }))
    }
}

/// The events that a file descriptor is ready for; `None` if it is not open. Notes what may change that for the wanted
/// events.
fn ready(c: &mut Caller, fd: u32, wanted: u16, changes: &mut Changes) -> Option<u16> {
    let description = Rc::clone(&c.p.files.fds.get(fd)?.description);
    // Changes are reported by `POLLIN` and `POLLOUT`, without bands.
    changes.events |= u32::from(wanted | ERR | HUP);
    if wanted & (RDNORM | RDBAND) != 0 {
        changes.events |= u32::from(IN);
    }
    if wanted & (WRNORM | WRBAND) != 0 {
        changes.events |= u32::from(OUT);
    }
    let address = Rc::as_ptr(&description).addr();
    if let Some(ready) = changes.seen.get(&address) {
        return Some(*ready);
    }
    let key = description.borrow().kind.key();
    changes.keys.extend(key);
    let ready = readiness(c, &description, changes);
    changes.seen.insert(address, ready);
    Some(ready)
}

/// The events that a file description is ready for. Notes the times at which that changes.
pub fn readiness(c: &mut Caller, description: &Shared<Description>, changes: &mut Changes) -> u16 {
    let (input, output) = (IN | RDNORM, OUT | WRNORM);
    let both = |readable: bool, writable: bool| {
        (if readable { input } else { 0 }) | (if writable { output } else { 0 })
    };
    match &description.borrow().kind {
        Kind::Device(Device::Console) => {
            let mode = c.console_mode();
            both(c.h.console_readable(mode), true)
        }
        Kind::Pipe { end, pipe, .. } => {
            let pipe = pipe.borrow();
            let (room, bytes) = (pipe.room() >= PIPE_BUF, !pipe.bytes.is_empty());
            let ended = end.reads() && pipe.writers == 0 && pipe.had_writer;
            let broken = end.writes() && pipe.readers == 0;
            both(end.reads() && bytes, end.writes() && room)
                | (if ended { HUP } else { 0 })
                | (if broken { ERR } else { 0 })
        }
        Kind::Counter { counter, .. } => {
            let (readable, writable) = counter.ready(c.now());
            if !readable {
                changes.until(counter.goes_off());
            }
            both(readable, writable)
        }
        Kind::Signals { mask, .. } => {
            let is = super::epoll::signalled(c, *mask).is_some();
            both(is, false)
        }
        Kind::Epoll { id } => both(super::epoll::is_ready(c, *id, changes), false),
        Kind::Inotify { id } => {
            let queue = c.s.inotify.queue(*id);
            both(queue.is_some_and(|queue| !queue.is_empty()), false)
        }
        Kind::Socket { id } => super::socket::readiness(c, *id),
        Kind::Pty { number, id, master } => {
            let (number, id, master) = (*number, *id, *master);
            let end = super::pty::End { number, id, master };
            let (readable, writable, gone) = super::pty::readiness(c, end);
            let gone = match (gone, master) {
                (true, true) => HUP,
                (true, false) => HUP | ERR,
                (false, _) => 0,
            };
            let news = match super::pty::has_news(c, end) {
                true => PRI,
                false => 0,
            };
            both(readable, writable) | gone | news
        }
        Kind::File { .. }
        | Kind::Directory { .. }
        | Kind::Folder(_)
        | Kind::Device(_)
        | Kind::Text(_) => both(true, true),
    }
}

/// Asks for the memory that a wait for many descriptors takes. A few need no check.
fn keys_room(c: &mut Caller, count: u64) -> Result<()> {
    if count > 64 {
        c.h.room(128 * count)?;
    }
    Ok(())
}

/// `poll`. A negative timeout waits for ever.
pub fn poll(c: &mut Caller, address: u64, count: u64, milliseconds: i32) -> Result {
    let timeout = super::epoll::milliseconds(milliseconds);
    poll_until(c, address, count, timeout)
}

/// `ppoll`.
pub fn ppoll(c: &mut Caller, address: u64, count: u64, timeout: u64, mask: u64) -> Result {
    let timeout = match timeout {
        0 => None,
        at => Some(super::time::read_timespec(c, at)?),
    };
    super::signal::suspend_mask(c, mask)?;
    poll_until(c, address, count, timeout)
}

fn poll_until(c: &mut Caller, address: u64, count: u64, timeout: Option<u64>) -> Result {
    if count > u64::from(crate::process::MAX_FDS) {
        return Err(EINVAL.into());
    }
    keys_room(c, count)?;
    let mut list = c.read(address, count as usize * 8)?;
    c.check(address, list.len() as u64, WRITE)?;
    let mut found = 0;
    let mut changes = Changes::default();
    for entry in list.chunks_exact_mut(8) {
        let fd = u32_at(entry, 0);
        let wanted = u16_at(entry, 4);
        let got = if fd as i32 >= 0 {
            let is = ready(c, fd, wanted, &mut changes);
            is.map_or(INVALID, |is| is & (wanted | ERR | HUP))
        } else {
            0
        };
        entry[6..8].copy_from_slice(&got.to_le_bytes());
        found += u64::from(got != 0);
    }
    let result = match found {
        0 => changes.wait_or_signal(c, timeout),
        _ => Ok(found),
    };
    if result.is_ok() {
        c.write(address, &list)?;
    }
    result
}

/// `select` and `pselect6`.
pub fn select(c: &mut Caller, count: i32, sets: [u64; 3], timeout: u64, precise: bool) -> Result {
    let count = u32::try_from(count)
        .map_err(|_| EINVAL)?
        .min(crate::process::MAX_FDS);
    let timeout = match timeout {
        0 => None,
        at if precise => Some(super::time::read_timespec(c, at)?),
        at => Some(super::time::read_loose_timeval(c, at)?),
    };
    if precise && c.entry.r9 != 0 {
        let mask = c.word(c.entry.r9)?;
        super::signal::suspend_mask(c, mask)?;
    }
    keys_room(c, 3 * u64::from(count))?;
    let bytes = count.div_ceil(64) as usize * 8;
    let mut found = 0;
    let mut changes = Changes::default();
    let mut results = [const { None }; 3];
    for ((address, bits), result) in sets
        .into_iter()
        .zip([IN | HUP | ERR, OUT | ERR, PRI])
        .zip(&mut results)
    {
        if address == 0 {
            continue;
        }
        let mut set = c.read(address, bytes)?;
        c.check(address, bytes as u64, WRITE)?;
        for fd in 0..count {
            let (byte, bit) = (fd as usize / 8, 1 << (fd % 8));
            if set[byte] & bit == 0 {
                continue;
            }
            let is = ready(c, fd, bits, &mut changes).ok_or(EBADF)?;
            if is & bits != 0 {
                found += 1;
            } else {
                set[byte] &= !bit;
            }
        }
        *result = Some(set);
    }
    let result = match found {
        0 => changes.wait_or_signal(c, timeout),
        _ => Ok(found),
    };
    if result.is_ok() {
        for (address, set) in sets.into_iter().zip(results) {
            if let Some(set) = set {
                c.write(address, &set)?;
            }
        }
        tell_time_left(c);
    }
    result
}

/// Writes the time that `select` or `pselect6` had left into the caller's timeout, if the call has waited.
pub fn tell_time_left(c: &mut Caller) {
    let Some(deadline) = c.p.task.wait.and_then(|wait| wait.deadline) else {
        return;
    };
    let (at, left) = (c.entry.r8, deadline.saturating_sub(c.now()));
    let left = match c.entry.rax {
        crate::number::select => super::time::timeval(left).done(),
        _ => super::time::timespec(left),
    };
    // As on Linux, a failure to write it is not reported.
    let _ = c.write(at, &left);
}
