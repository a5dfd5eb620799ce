//! Resource limits of a process (`setrlimit`), and what they forbid.
//!
//! The limits of descriptors and of nice values are checked where these are given out, the limit of processor time when
//! it has passed ([`System::work_left`](crate::system::System::work_left)). All limits that are checked neither there
//! nor here are only stored and reported.

use linux_raw_sys::general as linux;

use super::{memory, signal};
use crate::emulate::{Caller, Result, Stop};
use crate::errno::{EFBIG, EINVAL, ENOMEM, EPERM};
use crate::files::Request;
use crate::memory::{stack_start, Area, Kind, PAGE, STACK_TOP};
use crate::process::MAX_FDS;
use crate::signal::sig;
use crate::wire::{u64_at, Writer};

/// Soft and hard limit of the calling process; `u64::MAX` if they were never set.
fn own(c: &Caller, which: u32) -> (u64, u64) {
    if !c.s.has_limits {
        return (u64::MAX, u64::MAX);
    }
    let process = c.s.find(c.p.task.pid);
    process.map_or((u64::MAX, u64::MAX), |process| process.limit(which))
}

/// `prlimit64`, `getrlimit` and `setrlimit`.
pub fn prlimit64(c: &mut Caller, pid: u32, which: u32, new: u64, old: u64) -> Result {
    use linux::{RLIMIT_NOFILE as NOFILE, RLIM_NLIMITS as LIMITS};
    let own = c.p.task.pid;
    let target = super::process::target(c, pid)?;
    if target != own {
        c.s.may_signal(own, target)?;
    }
    if which >= LIMITS {
        return Err(EINVAL.into());
    }
    let before = c.s.process(target).limit(which);
    let mut after = None;
    if new != 0 {
        let raw = c.read(new, 16)?;
        let (soft, hard) = (u64_at(&raw, 0), u64_at(&raw, 8));
        if soft > hard {
            return Err(EINVAL.into());
        }
        let is_too_many = which == NOFILE && hard > MAX_FDS.into();
        if hard > before.1 && (!c.process().ids.is_root() || is_too_many) {
            return Err(EPERM.into());
        }
        after = Some((soft, hard));
    }
    c.write_optional(old, &Writer::new().u64(before.0).u64(before.1).done())?;
    if let Some(after) = after {
        c.s.set_limit(target, which, after);
        if which == linux::RLIMIT_STACK && target == own {
            fit_stack(c, after.0);
        }
    }
    Ok(0)
}

/// How many bytes `RLIMIT_FSIZE` lets the process write to a file, from `offset` on or (`append`) at its end.
pub fn room_in_file(c: &mut Caller, ino: u64, offset: u64, append: bool) -> Result<u64> {
    let most = own(c, linux::RLIMIT_FSIZE).0;
    if most == u64::MAX {
        return Ok(u64::MAX);
    }
    let offset = match append {
        true => c.attr(&Request::StatIno { ino })?.size,
        false => offset,
    };
    Ok(most.saturating_sub(offset))
}

/// Fails with `EFBIG` if setting the size of a file would make it longer than `RLIMIT_FSIZE` allows.
pub fn may_grow_file(c: &mut Caller, ino: u64, size: u64) -> Result<()> {
    let is_long = size > own(c, linux::RLIMIT_FSIZE).0;
    match is_long && c.attr(&Request::StatIno { ino })?.size < size {
        true => Err(too_long(c)),
        false => Ok(()),
    }
}

/// The failure of a call that would make a file too long: `EFBIG`, with `SIGXFSZ` for the thread.
pub fn too_long(c: &mut Caller) -> Stop {
    signal::post_to_itself(c, sig::XFSZ);
    EFBIG.into()
}

/// Fails with `ENOMEM` if `bytes` more of address space exceed `RLIMIT_AS` or, if they are private and writable
/// (`is_data`), `RLIMIT_DATA`.
pub fn may_map(c: &Caller, bytes: u64, is_data: bool) -> Result<()> {
    let most = own(c, linux::RLIMIT_AS).0;
    if bytes > 0 && most != u64::MAX {
        fits(c.p.memory.areas.counted().0, bytes, most)?;
    }
    match is_data {
        true => may_write(c, bytes),
        false => Ok(()),
    }
}

/// Fails with `ENOMEM` if `bytes` more of private writable memory exceed `RLIMIT_DATA`.
pub fn may_write(c: &Caller, bytes: u64) -> Result<()> {
    let most = match own(c, linux::RLIMIT_DATA) {
        // A soft limit of 0 does not count, as in Linux, for programs that run others in their own memory.
        (0, hard) => hard,
        (soft, _) => soft,
    };
    match bytes > 0 && most != u64::MAX {
        true => fits(c.p.memory.areas.counted().1, bytes, most),
        false => Ok(()),
    }
}

fn fits(has: u64, more: u64, most: u64) -> Result<()> {
    match has.saturating_add(more) > most {
        true => Err(ENOMEM.into()),
        false => Ok(()),
    }
}

/// Lets the stack of the process reach as far down as `limit` allows. The part above the caller's stack pointer stays,
/// and all of the stack if the caller runs on another stack. Nothing changes if other processes use the memory.
fn fit_stack(c: &mut Caller, limit: u64) {
    let tasks = c.process().tasks.len();
    let memory = &c.p.memory;
    let at = memory.areas.first_after(STACK_TOP - PAGE);
    let mut low: Option<Area> = None;
    for area in memory.areas.list()[..(at + 1).min(memory.areas.list().len())]
        .iter()
        .rev()
    {
        let is_next = low.map_or(STACK_TOP, |low| low.start) == area.end;
        if area.kind != Kind::Stack || !is_next {
            break;
        }
        low = Some(*area);
    }
    let Some(low) = low.filter(|_| memory::tasks_in_memory(c) == tasks) else {
        return;
    };
    // Below the stack pointer a program uses nothing but the red zone of leaf functions.
    let used = c.entry.rsp.wrapping_sub(128);
    let is_there = (low.start..STACK_TOP).contains(&used);
    let start = stack_start(limit, if is_there { used } else { STACK_TOP });
    if start < low.start {
        let areas = &c.p.memory.areas;
        let below = areas.first_from(low.start).checked_sub(1);
        let below = below.and_then(|at| areas.list().get(at));
        let start = below.map_or(start, |area| area.end.max(start));
        if start >= low.start {
            return;
        }
        let by = Some((low.prot, Kind::Stack));
        let new = c.p.memory.areas.replaced(start, low.start, by);
        // The stack keeps its size if there is no memory for the change.
        let _ = c.p.memory.areas.apply(c.h, new);
    } else if start > low.start && is_there && !c.p.task.signals.stack.holds(c.entry.rsp) {
        let _ = memory::remove(c, low.start, start);
    }
}
