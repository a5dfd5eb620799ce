//! `epoll`, and signals that are read from a file descriptor (`signalfd`).

use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

use super::poll::{readiness, Changes};
use crate::emulate::{Caller, Result, Stop, Wake};
use crate::epoll::{EDGE, EXCLUSIVE};
use crate::errno::{EAGAIN, EBADF, EFAULT, EINVAL, EPERM};
use crate::memory::WRITE;
use crate::process::{open_flags, Counter, Description, Kind};
use crate::signal::UNBLOCKABLE;
use crate::system::Key;
use crate::wire::{u32_at, u64_at, Writer};

/// Bytes of `struct epoll_event`, which has no padding.
const EVENT: u64 = 12;
/// Most events of one call.
const MOST: i32 = i32::MAX / EVENT as i32;
/// Bytes of `struct signalfd_siginfo`.
const SIGNAL: usize = 128;

fn install(c: &mut Caller, fd: u32, kind: Kind, flags: u32) -> Result {
    let description = Description {
        kind,
        flags: open_flags::RDWR | flags & open_flags::NONBLOCK,
        offset: 0,
        owner: None,
    };
    let cloexec = flags & open_flags::CLOEXEC != 0;
    c.p.files.install(fd, description, cloexec);
    Ok(u64::from(fd))
}

/// `epoll_create1`.
pub fn create(c: &mut Caller, flags: u32) -> Result {
    if flags & !open_flags::CLOEXEC != 0 {
        return Err(EINVAL.into());
    }
    let fd = super::file::free_fd(c)?;
    let payer = c.process().payer;
    let id = c.s.new_epoll(payer);
    install(c, fd, Kind::Epoll { id }, flags)
}

/// The `epoll` instance behind a file descriptor.
fn instance(c: &Caller, fd: u32) -> Result<u64> {
    match c.p.files.get(fd)?.kind {
        Kind::Epoll { id } => Ok(id),
        _ => Err(EINVAL.into()),
    }
}

/// `epoll_ctl`.
pub fn control(c: &mut Caller, epoll: u32, operation: u32, fd: u32, event: u64) -> Result {
    let mut wanted = (0, 0);
    if operation != linux::EPOLL_CTL_DEL {
        let raw = c.read(event, EVENT as usize)?;
        wanted = (u32_at(&raw, 0), u64_at(&raw, 4));
    }
    c.p.files.get(epoll)?;
    let description = Rc::clone(&c.p.files.fds.get(fd).ok_or(EBADF)?.description);
    if description.borrow().kind.key().is_none() {
        return Err(EPERM.into());
    }
    let id = instance(c, epoll)?;
    let is_epoll = matches!(description.borrow().kind, Kind::Epoll { .. });
    let is_own = Rc::ptr_eq(
        &description,
        &c.p.files.fds.get(epoll).ok_or(EBADF)?.description,
    );
    if is_own {
        return Err(EINVAL.into());
    }
    if wanted.0 & EXCLUSIVE != 0 {
        const ALLOWED: u32 = linux::EPOLLIN
            | linux::EPOLLOUT
            | linux::EPOLLERR
            | linux::EPOLLHUP
            | linux::EPOLLWAKEUP
            | EDGE
            | EXCLUSIVE;
        let is_add = operation == linux::EPOLL_CTL_ADD;
        if !is_add || is_epoll || wanted.0 & !ALLOWED != 0 {
            return Err(EINVAL.into());
        }
    }
    let watch = match operation {
        linux::EPOLL_CTL_ADD => c.s.watch(id, fd, &description, wanted)?,
        linux::EPOLL_CTL_MOD => c.s.change_watch(id, fd, &description, wanted)?,
        linux::EPOLL_CTL_DEL => {
            c.s.unwatch(id, fd, &description)?;
            return Ok(0);
        }
        _ => return Err(EINVAL.into()),
    };
    // A description that is ready already is reported, also to edge-triggered watches.
    c.s.may_be_ready(id, watch);
    Ok(0)
}

/// Polls the watches whose descriptions become ready without an event (timers, signals, nested instances), and notes in
/// `changes` what can make them ready.
fn ask(c: &mut Caller, epoll: u64, changes: &mut Changes) {
    if !changes.asked.insert(epoll) {
        return;
    }
    for watch in c.s.epolls.asked(epoll) {
        let Some((_, description)) = c.s.epolls.watch(epoll, watch) else {
            continue;
        };
        let description = description.borrow();
        let answer = match &description.kind {
            Kind::Counter {
                counter: counter @ Counter::Timer { .. },
                ..
            } => {
                let now = c.now();
                let is_ready = counter.ready(now).0;
                if !is_ready {
                    changes.until(counter.goes_off());
                }
                // At least 1: 0 is what a watch that has reported nothing has seen, also if the timer expired at time 0
                // of the clock.
                is_ready.then(|| counter.goes_off().unwrap_or(0).max(1))
            }
            Kind::Signals { mask, .. } => signalled(c, *mask),
            Kind::Epoll { id } => {
                ask(c, *id, changes);
                None
            }
            _ => None,
        };
        drop(description);
        if answer.is_some_and(|value| c.s.epolls.answers(epoll, watch, value)) {
            c.s.wake_for(Key::Epoll(epoll), linux::EPOLLIN);
        }
    }
}

/// Takes watches off the ready list of an instance, until `most` ready ones are found; those that prove not to be ready
/// are dropped from the list. For each ready watch: its number, its events, and its `data`.
fn take(c: &mut Caller, epoll: u64, most: usize, changes: &mut Changes) -> Vec<(u64, u32, u64)> {
    let mut found = Vec::new();
    for _ in 0..c.s.epolls.listed(epoll) {
        if found.len() == most {
            break;
        }
        let Some(id) = c.s.epolls.take(epoll) else {
            break;
        };
        let Some((watch, description)) = c.s.epolls.watch(epoll, id) else {
            continue;
        };
        let (events, data) = (watch.events, watch.data);
        let ready = u32::from(readiness(c, &description, changes)) & events;
        if ready != 0 {
            found.push((id, ready, data));
        }
    }
    found
}

fn put_back(c: &mut Caller, epoll: u64, found: &[(u64, u32, u64)]) {
    for (id, ..) in found.iter().rev() {
        c.s.epolls.put_back(epoll, *id, true);
    }
}

/// Whether any watch of an instance is ready.
pub fn is_ready(c: &mut Caller, epoll: u64, changes: &mut Changes) -> bool {
    if let Some(known) = changes.known.get(&epoll) {
        return *known;
    }
    ask(c, epoll, changes);
    let found = take(c, epoll, 1, changes);
    put_back(c, epoll, &found);
    changes.known.insert(epoll, !found.is_empty());
    !found.is_empty()
}

/// `epoll_wait`, `epoll_pwait` and `epoll_pwait2`. `timeout` is in nanoseconds, `None` waits for ever.
pub fn wait(c: &mut Caller, fd: u32, address: u64, most: i32, timeout: Option<u64>) -> Result {
    if !(1..=MOST).contains(&most) {
        return Err(EINVAL.into());
    }
    if address
        .checked_add(most as u64 * EVENT)
        .is_none_or(|end| end > crate::memory::END)
    {
        return Err(EFAULT.into());
    }
    let epoll = instance(c, fd)?;
    let mut changes = Changes::default();
    ask(c, epoll, &mut changes);
    let found = take(c, epoll, most as usize, &mut changes);
    if found.is_empty() {
        // The keys of the watched descriptions are not needed: their events wake the instance.
        changes.keys = Vec::from([Key::Epoll(epoll)]);
        changes.events = linux::EPOLLIN;
        return changes.wait(c, timeout);
    }
    let mut out = Writer::new();
    for (_, events, data) in &found {
        out = out.u32(*events).u64(*data);
    }
    if let Err(stop) = c.write(address, &out.done()) {
        put_back(c, epoll, &found);
        return Err(stop);
    }
    for (id, ..) in &found {
        c.s.epolls.told(epoll, *id);
    }
    Ok(found.len() as u64)
}

/// `epoll_pwait`.
pub fn pwait(c: &mut Caller, [fd, address, most, timeout, mask, size]: [u64; 6]) -> Result {
    super::signal::wait_mask(c, mask, size)?;
    wait(
        c,
        fd as u32,
        address,
        most as i32,
        milliseconds(timeout as i32),
    )
}

/// `epoll_pwait2`.
pub fn pwait2(c: &mut Caller, [fd, address, most, timeout, mask, size]: [u64; 6]) -> Result {
    let timeout = match timeout {
        0 => None,
        at => Some(super::time::read_timespec(c, at)?),
    };
    super::signal::wait_mask(c, mask, size)?;
    wait(c, fd as u32, address, most as i32, timeout)
}

/// A timeout in milliseconds as nanoseconds; `None`, for ever, if it is negative.
pub fn milliseconds(timeout: i32) -> Option<u64> {
    u64::try_from(timeout).ok().map(|ms| ms * 1_000_000)
}

// --- Signals that are read ---

/// If the task has pending signals of the mask: how many signals have ever been sent to it and its process. Notes that
/// the task awaits these signals.
pub fn signalled(c: &mut Caller, mask: u64) -> Option<u64> {
    c.p.task.awaits |= mask;
    let own = &c.p.task.signals.pending;
    let (set, sent) = (own.set(), own.sent());
    let of_process = &c.process().pending;
    let is_ready = (set | of_process.set()) & mask != 0;
    is_ready.then(|| sent.wrapping_add(of_process.sent()))
}

/// `signalfd4`.
pub fn signalfd(c: &mut Caller, fd: i32, mask: u64, size: u64, flags: u32) -> Result {
    if size != 8 {
        return Err(EINVAL.into());
    }
    let mask = c.word(mask)? & !UNBLOCKABLE;
    if flags & !(open_flags::CLOEXEC | open_flags::NONBLOCK) != 0 {
        return Err(EINVAL.into());
    }
    if fd == -1 {
        let fd = super::file::free_fd(c)?;
        let id = c.s.new_identity();
        return install(c, fd, Kind::Signals { id, mask }, flags);
    }
    let key = {
        let mut description = c.p.files.get_mut(fd as u32)?;
        let Kind::Signals { id, mask: old } = &mut description.kind else {
            return Err(EINVAL.into());
        };
        *old = mask;
        Key::Signals(*id)
    };
    c.s.wake(key);
    Ok(fd as u64)
}

/// `read` of a `signalfd`: takes as many pending signals as fit into `length` bytes.
pub fn read_signals(
    c: &mut Caller,
    (id, mask): (u64, u64),
    flags: u32,
    address: u64,
    length: u64,
) -> Result {
    let room = (length / SIGNAL as u64).min(u64::from(crate::signal::SIGNALS)) as usize;
    if room == 0 {
        return Err(EINVAL.into());
    }
    if signalled(c, mask).is_none() {
        if flags & open_flags::NONBLOCK != 0 {
            return Err(EAGAIN.into());
        }
        return Err(Stop::Park(Wake::on(Key::Signals(id))));
    }
    let count = c.p.task.signals.pending.count(mask) + c.process().pending.count(mask);
    let count = room.min(count);
    c.check(address, (count * SIGNAL) as u64, WRITE)?;
    let mut out = Writer::new();
    for n in 1..=count {
        let set = c.p.task.signals.pending.set() | c.process().pending.set();
        let signal = (set & mask).trailing_zeros() + 1;
        let of_process = &mut c.s.process(c.p.task.pid).pending;
        let origin = c.p.task.signals.take(of_process, signal);
        let ([pid, uid], [timer, overrun]) = match origin.timer {
            None => ([origin.pid, origin.uid], [0, 0]),
            Some(_) => ([0, 0], [origin.pid, origin.uid]),
        };
        out = out
            .u32(signal)
            .u32(0)
            .u32(origin.code as u32)
            .u32(pid)
            .u32(uid)
            // In order: `ssi_fd`, `ssi_tid`, `ssi_band`, `ssi_overrun`, `ssi_trapno`.
            .u32(0)
            .u32(timer)
            .u32(0)
            .u32(overrun)
            .u32(0)
            .u32(origin.status)
            .u32(origin.value as u32)
            .u64(origin.value)
            .u64(0)
            .u64(0)
            .u64(origin.address)
            .pad_to(n * SIGNAL);
    }
    c.write(address, &out.done())?;
    Ok((count * SIGNAL) as u64)
}
