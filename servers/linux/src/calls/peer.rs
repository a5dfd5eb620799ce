//! `process_vm_readv` and `process_vm_writev`: memory of another task that stands still for the caller, or its own.

use super::file::{gather, length_of, pieces, scatter, vector};
use crate::emulate::{Caller, Result, STEP};
use crate::errno::{EFAULT, EINVAL, EPERM, ESRCH};
use crate::memory::{Prot, READ, WRITE};
use crate::system::Tid;

/// Most bytes that are moved in one piece.
const CHUNK: usize = proto::MAX_BULK;

/// Whose memory a call means.
#[derive(Clone, Copy)]
enum Whose {
    /// That of the caller.
    Own,
    /// That of this task, which it traces and which has stopped.
    Traced(Tid),
}

/// Whose memory that of the task with this number is. Errors: `ESRCH`; `EPERM` unless it is the caller's own, or that of a task that stands
/// still for it. (Linux asks for the right to trace it.)
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
    /// How many of so many bytes at this address may be read, or written (`need`).
    fn reach(self, c: &Caller, address: u64, length: usize, need: Prot) -> usize {
        let length = length as u64;
        let found = match self {
            Whose::Own => c.p.memory.areas.reach(address, length, need),
            Whose::Traced(tid) => {
                let process = c.s.find(c.s.task_process(tid));
                let look = |areas: &crate::memory::Areas| areas.reach(address, length, need);
                process
                    .and_then(|process| process.seen.areas(&c.p.memory, look))
                    .unwrap_or(0)
            }
        };
        found as usize
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

/// `process_vm_readv`, or `process_vm_writev` (`writes`), with the ranges here and there. As many bytes are moved as
/// both sides allow from the first on.
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
        // It has gone on in between.
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
        // The next piece there.
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
