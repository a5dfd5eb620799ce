//! Pipes and FIFOs.

use alloc::collections::VecDeque;
use alloc::rc::Rc;

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EAGAIN, EFAULT, EINVAL, ENXIO, EPIPE};
use crate::files::Request;
use crate::memory::WRITE;
use crate::process::{
    open_flags, shared, Description, End, Kind, Pipe, Shared, PIPE_BUF, PIPE_CAPACITY,
};
use crate::system::{Key, Payer};
use crate::wire::Writer;
use linux_raw_sys::general as linux;
use smallvec::SmallVec;

/// Writes of at most this many bytes need no buffer from the heap.
const SHORT: usize = 128;
/// A pipe whose buffer has grown beyond this frees it when it is empty.
const KEPT: usize = 8 << 10;

/// `pipe` and `pipe2`.
pub fn pipe2(c: &mut Caller, into: u64, flags: u32) -> Result {
    if flags & !(open_flags::CLOEXEC | open_flags::NONBLOCK) != 0 {
        return Err(EINVAL.into());
    }
    c.check(into, 8, WRITE)?;
    let first = super::file::free_fd(c)?;
    let second = super::file::free_fd_from(c, first + 1)?;
    let payer = c.process().payer;
    let (id, large) = c.s.new_pipe(payer)?;
    let pipe = new(payer, large);
    let cloexec = flags & open_flags::CLOEXEC != 0;
    for (fd, end) in [(first, End::Read), (second, End::Write)] {
        let pipe = Rc::clone(&pipe);
        pipe.borrow_mut().open(end);
        let access = if end.writes() { open_flags::WRONLY } else { 0 };
        let ino = None;
        let description = Description {
            kind: Kind::Pipe { id, end, ino, pipe },
            flags: access | flags & open_flags::NONBLOCK,
            offset: 0,
            owner: None,
        };
        c.p.files.install(fd, description, cloexec);
    }
    c.write(into, &Writer::new().u32(first).u32(second).done())?;
    Ok(0)
}

/// A pipe without ends.
fn new(payer: Payer, large: bool) -> Shared<Pipe> {
    shared(Pipe {
        capacity: if large { PIPE_CAPACITY } else { PIPE_BUF },
        payer,
        ..Pipe::default()
    })
}

/// Opens a FIFO, the file with this inode, which must be open and is closed on failure. Unless the call opens both
/// ends, or must not wait, it waits until the other end is opened; a call that waits counts as having opened its end.
pub fn open_fifo(c: &mut Caller, ino: u64, flags: u32) -> Result<Kind> {
    let result = try_fifo(c, ino, flags);
    if result.is_err() {
        c.fs(&Request::Close { ino })?;
    }
    result
}

/// The end that is opened with these flags.
pub fn end_of(flags: u32) -> End {
    match flags & open_flags::ACCESS {
        0 => End::Read,
        open_flags::WRONLY => End::Write,
        _ => End::Both,
    }
}

fn try_fifo(c: &mut Caller, ino: u64, flags: u32) -> Result<Kind> {
    let end = end_of(flags);
    let nonblocking = flags & open_flags::NONBLOCK != 0;
    let tid = c.p.task.tid;
    if let Some((id, pipe)) = c.s.nodes.take_granted(tid, ino) {
        let ino = Some(ino);
        return Ok(Kind::Pipe { id, end, ino, pipe });
    }
    // An earlier attempt may have waited for another FIFO, which had the same path.
    c.s.leave_queues(tid);
    let known = c.s.nodes.fifo(ino);
    let is_met = known.as_ref().is_some_and(|(_, pipe)| {
        let pipe = pipe.borrow();
        let other = if end == End::Read {
            pipe.writers
        } else {
            pipe.readers
        };
        other > 0
    });
    let waits = match end {
        End::Read => !nonblocking && !is_met,
        // A reader that waits for a writer has opened its end.
        End::Write if nonblocking && !is_met && !c.s.nodes.is_awaited(ino, true) => {
            return Err(ENXIO.into())
        }
        End::Write => !is_met,
        End::Both => false,
    };
    if waits && !c.s.nodes.meets(ino, tid, end.writes()) {
        // With a `process::Wait`, the task leaves the queue of the FIFO when it makes another call instead.
        c.wait();
        return Err(Stop::Park(Wake::on(Key::Node(ino))));
    }
    let (id, pipe) = match known {
        Some(known) => known,
        None => {
            let payer = c.process().payer;
            let (id, large) = c.s.new_pipe(payer)?;
            let pipe = new(payer, large);
            c.s.nodes.set_fifo(ino, id, &pipe);
            (id, pipe)
        }
    };
    pipe.borrow_mut().open(end);
    c.s.nodes.grant(ino, end, id, &pipe);
    c.s.wake(Key::Node(ino));
    c.s.wake(Key::Pipe(id));
    let ino = Some(ino);
    Ok(Kind::Pipe { id, end, ino, pipe })
}

/// Parks the call until the pipe changes. Errors: `EAGAIN` with `O_NONBLOCK`.
fn blocked<T>(id: u64, flags: u32) -> Result<T> {
    if flags & open_flags::NONBLOCK != 0 {
        return Err(EAGAIN.into());
    }
    Err(Stop::Park(Wake::on(Key::Pipe(id))))
}

/// Reads the bytes that the pipe has, at most `length`; waits if it has none and there is a writer.
pub fn read(
    c: &mut Caller,
    (id, pipe): (u64, &Shared<Pipe>),
    flags: u32,
    address: u64,
    length: u64,
) -> Result {
    if length == 0 {
        return Ok(0);
    }
    let mut pipe = pipe.borrow_mut();
    let was_full = pipe.room() < PIPE_BUF;
    let length = length.min(pipe.bytes.len() as u64) as usize;
    if length == 0 {
        return match pipe.writers {
            0 => Ok(0),
            _ => blocked(id, flags),
        };
    }
    c.check(address, length as u64, WRITE)?;
    let (first, second) = pipe.bytes.as_slices();
    let first = &first[..first.len().min(length)];
    let second = &second[..length - first.len()];
    c.h.write_memory(address, first)?;
    c.h.write_memory(address + first.len() as u64, second)?;
    pipe.bytes.drain(..length);
    if pipe.bytes.is_empty() && pipe.bytes.capacity() > KEPT {
        pipe.bytes = VecDeque::new();
    }
    // A writer waits only while fewer than `PIPE_BUF` bytes fit.
    if was_full {
        c.s.wake_for(Key::Pipe(id), linux::POLLOUT);
    }
    Ok(length as u64)
}

/// Reads what the pipe still has into the ranges behind the first one, which is full; returns how many bytes.
pub fn read_more(c: &mut Caller, (id, pipe): (u64, &Shared<Pipe>), ranges: &[(u64, u64)]) -> u64 {
    let mut done = 0;
    for (address, length) in ranges.iter().skip(1).copied() {
        if pipe.borrow().bytes.is_empty() {
            break;
        }
        // If a range is not writable, the count of the bytes read so far is returned, so that these are not lost.
        let Ok(read) = self::read(c, (id, pipe), 0, address, length) else {
            break;
        };
        done += read;
        if read < length {
            break;
        }
    }
    done
}

/// Puts as many of the bytes into the pipe as fit; waits if these are fewer than `least`. Errors: `EPIPE`, with
/// `SIGPIPE`, if there is no reader.
pub fn put(
    c: &mut Caller,
    (id, pipe): (u64, &Shared<Pipe>),
    flags: u32,
    bytes: &[u8],
    least: usize,
) -> Result<usize> {
    let mut pipe = pipe.borrow_mut();
    if pipe.readers == 0 {
        super::signal::broken_pipe(c);
        return Err(EPIPE.into());
    }
    let length = bytes.len().min(pipe.room());
    if length < least {
        return blocked(id, flags);
    }
    // While the buffer grows, the old one and the new one (up to twice as large) exist.
    c.h.room(3 * (pipe.bytes.len() + length) as u64)?;
    pipe.bytes.extend(&bytes[..length]);
    c.s.wake_for(Key::Pipe(id), linux::POLLIN);
    Ok(length)
}

/// Writes several ranges one after the other. Up to [`PIPE_BUF`] bytes are written at once; of more, as many as fit
/// each time, and the number of those written is kept with the call while it waits.
pub fn write(
    c: &mut Caller,
    pipe: (u64, &Shared<Pipe>),
    flags: u32,
    ranges: &[(u64, u64)],
    total: u64,
) -> Result {
    let mut done = c.p.task.wait.map_or(0, |w| w.progress);
    let mut bytes: SmallVec<[u8; SHORT]> = SmallVec::new();
    if total == 0 {
        return Ok(0);
    }
    while done < total {
        let whole = total <= PIPE_BUF as u64;
        let most = (total - done).min(PIPE_BUF as u64) as usize;
        bytes.clear();
        for (address, length) in super::file::pieces(ranges, done, most) {
            let start = bytes.len();
            bytes.resize(start + length, 0);
            c.h.read_memory(address, &mut bytes[start..])?;
        }
        if bytes.len() < most {
            return Err(EFAULT.into());
        }
        match put(c, pipe, flags, &bytes, if whole { most } else { 1 }) {
            Ok(taken) => done += taken as u64,
            Err(Stop::Park(wake)) => {
                if done > 0 {
                    c.wait().progress = done;
                }
                return Err(Stop::Park(wake));
            }
            Err(Stop::Errno(_)) if done > 0 => break,
            Err(stop) => return Err(stop),
        }
    }
    Ok(done)
}
