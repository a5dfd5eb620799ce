//! Access to the memory of another task, which must be stopped for the caller as its tracer, or to the caller's own:
//! `process_vm_readv`, `process_vm_writev`, and `/proc/PID/mem` and `auxv`.

use alloc::vec::Vec;

use super::file::{gather, length_of, pieces, scatter, vector};
use crate::emulate::{Caller, Result, Stop, STEP};
use crate::errno::{EFAULT, EINVAL, EIO, EPERM, ESRCH};
use crate::exec;
use crate::memory::{Areas, Prot, READ, WRITE};
use crate::system::Tid;

/// Most bytes that are moved at once.
const CHUNK: usize = proto::MAX_BULK;

/// The memory that a call accesses.
#[derive(Clone, Copy)]
enum Whose {
    /// The caller's.
    Own,
    /// The memory of this task, which the caller traces and which is stopped.
    Traced(Tid),
}

/// The memory of the task with this number. Errors: `ESRCH` if there is none; `EPERM` unless the task belongs to the
/// caller's process, or is stopped for the caller as its tracer. (Linux only asks whether the caller may trace it.)
fn find(c: &mut Caller, number: i32) -> Result<Whose> {
    let own = c.p.task.pid;
    let number = u32::try_from(number).map_err(|_| ESRCH)?;
    let (tid, pid) = c.s.thread_by_number(own, number).ok_or(ESRCH)?;
    if pid == own {
        return Ok(Whose::Own);
    }
    let trace = c.s.trace(tid);
    let stands = trace.is_some_and(|t| t.tracer == own && !t.leaves && t.stop.is_some());
    Ok(stands.then_some(Whose::Traced(tid)).ok_or(EPERM)?)
}

impl Whose {
    /// How many of `length` bytes at this address the program may read or write (`need`).
    fn reach(self, c: &Caller, address: u64, length: usize, need: Prot) -> usize {
        self.look(c, |areas| {
            areas.reach(address, length as u64, need) as usize
        })
    }

    /// As `reach`, whatever protection the areas have ([`Areas::reach_by_force`]).
    fn reach_by_force(self, c: &Caller, address: u64, length: usize, writes: bool) -> usize {
        let reach = |areas: &Areas| areas.reach_by_force(address, length as u64, writes) as usize;
        self.look(c, reach)
    }

    /// Calls `act` with the areas of the memory; 0 if the process has ended.
    fn look(self, c: &Caller, act: impl FnOnce(&Areas) -> usize) -> usize {
        match self {
            Whose::Own => act(&c.p.memory.areas),
            Whose::Traced(tid) => {
                let process = c.s.find(c.s.task_process(tid));
                let found = process.and_then(|process| process.seen.areas(&c.p.memory, act));
                found.unwrap_or(0)
            }
        }
    }

    fn read(self, c: &mut Caller, address: u64, into: &mut [u8]) -> Result<()> {
        match self {
            Whose::Own => Ok(c.h.read_memory(address, into)?),
            Whose::Traced(tid) => Ok(c.h.read_peer(tid, address, into)?),
        }
    }

    fn write(self, c: &mut Caller, address: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Whose::Own => Ok(c.h.write_memory(address, bytes)?),
            Whose::Traced(tid) => Ok(c.h.write_peer(tid, address, bytes)?),
        }
    }
}

/// Whether the caller may open `/proc/PID/mem` of the task with this number. Errors: `EACCES`.
pub fn may_open(c: &mut Caller, number: u32) -> Result<()> {
    match find(c, number as i32) {
        Ok(_) => Ok(()),
        Err(_) => Err(crate::errno::EACCES.into()),
    }
}

/// Finds what an access to `/proc/PID/mem` of the task with this number reaches: the memory, and how many of the
/// `length` bytes at `address` can be accessed; 0 if the task has ended. Errors: `EIO` if nothing is mapped there;
/// `EPERM` if the task is neither the caller's nor stopped for it.
fn at_memory(
    c: &mut Caller,
    number: u32,
    address: u64,
    length: usize,
    writes: bool,
) -> Result<(Whose, usize)> {
    let whose = match find(c, number as i32) {
        Err(Stop::Errno(ESRCH)) => return Ok((Whose::Own, 0)),
        // The process has ended, and its parent has not waited for it yet.
        Err(_) if has_ended(c, number) => return Ok((Whose::Own, 0)),
        whose => whose?,
    };
    match whose.reach_by_force(c, address, length, writes) {
        0 if length > 0 => Err(EIO.into()),
        reach => Ok((whose, reach)),
    }
}

/// Whether the process of the task with this number has ended.
fn has_ended(c: &Caller, number: u32) -> bool {
    let task = c.s.thread_by_number(c.p.task.pid, number);
    let process = task.and_then(|(_, pid)| c.s.find(pid));
    process.is_none_or(|process| process.status.is_some())
}

/// Reads from `/proc/PID/mem` of the task with this number; returns how many bytes. Errors: see `at_memory`.
pub fn read_memory(c: &mut Caller, number: u32, address: u64, into: &mut [u8]) -> Result<usize> {
    let (whose, reach) = at_memory(c, number, address, into.len(), false)?;
    whose.read(c, address, &mut into[..reach])?;
    Ok(reach)
}

/// Writes to `/proc/PID/mem` of the task with this number; returns how many bytes. Errors: see `at_memory`.
pub fn write_memory(c: &mut Caller, number: u32, address: u64, bytes: &[u8]) -> Result<usize> {
    let (whose, reach) = at_memory(c, number, address, bytes.len(), true)?;
    whose.write(c, address, &bytes[..reach])?;
    Ok(reach)
}

/// The auxiliary vector of the process with this number, read from its program's memory; empty if the caller may not
/// read that.
pub fn auxiliary_vector(c: &mut Caller, number: u32) -> Result<Vec<u8>> {
    let Ok(whose) = find(c, number as i32) else {
        return Ok(Vec::new());
    };
    let arguments = crate::proc::with_memory(c, number, |memory| memory.args.0)?;
    let Some(at) = arguments.checked_sub(exec::MOST_OF_VECTOR as u64) else {
        return Ok(Vec::new());
    };
    let mut before = [0; exec::MOST_OF_VECTOR];
    let reach = whose.reach_by_force(c, at, before.len(), false);
    if reach < before.len() {
        return Ok(Vec::new());
    }
    whose.read(c, at, &mut before)?;
    Ok(exec::vector(&before).unwrap_or_default().to_vec())
}

/// `process_vm_readv` or, if `writes`, `process_vm_writev`. `here` and `there`: address and count of the arrays of
/// ranges. Bytes are moved up to the first one that either side forbids.
pub fn transfer(
    c: &mut Caller,
    number: i32,
    here: (u64, u64),
    there: (u64, u64),
    flags: u64,
    writes: bool,
) -> Result {
    if flags != 0 {
        return Err(EINVAL.into());
    }
    let (here, there) = (vector(c, here.0, here.1)?, vector(c, there.0, there.1)?);
    let total = length_of(&here).min(length_of(&there));
    if total == 0 {
        return Ok(0);
    }
    let whose = match find(c, number) {
        // The task has been resumed since the last turn.
        Err(_) if c.progress() > 0 => return Ok(c.progress()),
        whose => whose?,
    };
    let need = if writes { WRITE } else { READ };
    let mut done = c.progress().min(total);
    let until = total.min(done + STEP);
    let mut chunk = c.s.take_chunk();
    let mut goes_on = true;
    while goes_on && done < until {
        let want = (until - done).min(CHUNK as u64) as usize;
        // The next contiguous range of the other memory.
        let (address, length) = pieces(&there, done, want).next().unwrap_or((0, 0));
        let reach = whose.reach(c, address, length, need);
        let bytes = &mut chunk[..reach];
        let moved = match writes {
            true => gather(c, &here, done, bytes)?,
            false => {
                whose.read(c, address, bytes)?;
                scatter(c, &here, done, bytes)?
            }
        };
        if writes {
            whose.write(c, address, &chunk[..moved])?;
        }
        done += moved as u64;
        goes_on = moved == length && length > 0;
    }
    c.s.give_chunk(chunk);
    match (done, goes_on && done < total) {
        (0, _) => Err(EFAULT.into()),
        (done, true) => Err(c.turn(done)),
        (done, false) => Ok(done),
    }
}
