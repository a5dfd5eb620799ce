//! Calls on file descriptors.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use linux_raw_sys::ioctl;

use crate::files::{Reply, Request};

use crate::emulate::{Caller, Result, Stop, Wake, STEP};
use crate::errno::{
    EAGAIN, EBADF, EFAULT, EFBIG, EINVAL, EIO, EISDIR, ENODEV, ENOSPC, ENOTDIR, ENOTSUP, ENOTTY,
    ENXIO, EPERM, ESPIPE, ESRCH,
};
use crate::memory::{READ, WRITE};
use crate::proc::{self, Folder};
use crate::process::{
    open_flags, shared, AsyncOwner, Description, Device, Entry, Fd, Kind, Shown, MAX_FDS,
};
use crate::pty::{default_termios, TERMIOS};
use crate::signal::{bit, sig, SIGNALS};
use crate::special;
use crate::system::{Key, Which};
use crate::wire::{u32_at, u64_at, Writer};
use services::fs::Listed;

/// Most bytes of one read or write, as in Linux.
const MAX_TRANSFER: u64 = 0x7fff_f000;
/// Most bytes of one request to the file server.
const CHUNK: usize = proto::MAX_BULK;
/// Largest offset.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// Where a transfer begins.
#[derive(Clone, Copy)]
enum Position {
    /// At the file description's offset, which advances.
    Shared(u64),
    /// At an offset that the call names, which does not advance.
    Given(u64),
}

fn position(description: &Description, at: Option<u64>) -> Result<Position> {
    match at {
        None => Ok(Position::Shared(description.offset)),
        Some(_) if !description.kind.can_seek() => Err(ESPIPE.into()),
        Some(at) if at > MAX_OFFSET => Err(EINVAL.into()),
        Some(at) => Ok(Position::Given(at)),
    }
}

impl Position {
    fn offset(self) -> u64 {
        match self {
            Position::Shared(offset) | Position::Given(offset) => offset,
        }
    }
}

fn commit(c: &mut Caller, fd: u32, position: Position, end: u64) -> Result<()> {
    if let Position::Shared(_) = position {
        // `/dev/zero` has no end, but no offset is above the largest one.
        c.p.files.get_mut(fd)?.offset = end.min(MAX_OFFSET);
    }
    Ok(())
}

/// Most bytes that one step moves from or to this file. For a file on the disk these are the bytes of one request, so
/// that no earlier request of a step has to be remembered while the call waits for the next one.
#[must_use]
pub const fn step_of(ino: u64) -> u64 {
    match ino & services::fs::ON_DISK {
        0 => STEP,
        _ => CHUNK as u64,
    }
}

/// Reads from `offset` on, until `into` is full or the file ends; returns the number of bytes.
pub fn read_file(c: &mut Caller, ino: u64, offset: u64, into: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let length = (into.len() - done).min(CHUNK);
        let request = Request::Read {
            ino,
            offset: offset + done as u64,
            length: length as u32,
        };
        let (_, got) = c.h.fs(&request, &[], &mut into[done..done + length])?;
        if got == 0 {
            break;
        }
        done += got.min(length);
    }
    c.s.read_object(c.h, ino, offset, &mut into[..done])?;
    Ok(done)
}

/// `read` and `pread64`.
pub fn read(c: &mut Caller, fd: u32, address: u64, length: u64, at: Option<u64>) -> Result {
    read_vector(c, fd, &[(address, length.min(MAX_TRANSFER))], at)
}

/// Reads into several ranges one after the other, as one read.
fn read_vector(c: &mut Caller, fd: u32, ranges: &[(u64, u64)], at: Option<u64>) -> Result {
    let description = c.p.files.get(fd)?;
    if !description.readable() {
        return Err(EBADF.into());
    }
    let position = position(&description, at)?;
    let flags = description.flags;
    // A source that never waits, or a stream.
    let from = match &description.kind {
        Kind::Directory { .. } | Kind::Folder(_) => return Err(EISDIR.into()),
        Kind::File { ino } => Ok(Source::File(*ino)),
        Kind::Text(_) => Ok(Source::Text(fd)),
        Kind::Device(Device::Zero | Device::Full) => Ok(Source::Zeros),
        Kind::Device(Device::Random) => Ok(Source::Random),
        stream => Err(stream.clone()),
    };
    drop(description);
    for (address, _) in ranges {
        c.check(*address, 0, WRITE)?;
    }
    let from = match from {
        Ok(from) => from,
        // A read of 0 bytes must not take a message, not even an empty one.
        Err(Kind::Socket { .. }) if length_of(ranges) == 0 => return Ok(0),
        Err(Kind::Socket { .. }) => return super::socket::read(c, fd, ranges),
        Err(stream) => {
            // A console returns one line, an `eventfd` one number: into the first range that is not empty.
            let is_first = |range: &(u64, u64)| range.1 != 0;
            let at = ranges.iter().position(is_first).unwrap_or(0);
            let (address, length) = *ranges.get(at).unwrap_or(&(0, 0));
            let done = read_stream(c, fd, &stream, flags, address, length)?;
            return match stream {
                // A pipe fills the other ranges, too, as far as it has bytes.
                Kind::Pipe { id, pipe, .. } if done == length => {
                    Ok(done + super::pipe::read_more(c, (id, &pipe), &ranges[at..]))
                }
                _ => Ok(done),
            };
        }
    };
    let before = c.progress();
    let (done, end, goes_on) = move_in(c, from, position.offset(), at.is_none(), ranges)?;
    if done > before {
        super::inotify::did(c, fd, linux::IN_ACCESS);
    }
    commit(c, fd, position, end)?;
    match goes_on {
        true => Err(c.turn(done)),
        false => Ok(done),
    }
}

/// Reads from a stream what it has at the moment; waits if that is nothing.
fn read_stream(
    c: &mut Caller,
    fd: u32,
    kind: &Kind,
    flags: u32,
    address: u64,
    length: u64,
) -> Result {
    match *kind {
        Kind::Device(Device::Null) => Ok(0),
        Kind::Counter { .. } => super::counter::read(c, fd, address, length),
        Kind::Signals { id, mask } => {
            super::epoll::read_signals(c, (id, mask), flags, address, length)
        }
        Kind::Inotify { id } => super::inotify::read(c, id, flags, address, length),
        Kind::Pipe { id, ref pipe, .. } => super::pipe::read(c, (id, pipe), flags, address, length),
        Kind::Pty { number, id, master } => {
            let end = super::pty::End { number, id, master };
            super::pty::read(c, end, flags, address, length)
        }
        Kind::Device(Device::Console) => {
            if length == 0 {
                return Ok(0);
            }
            c.check(address, length, WRITE)?;
            in_foreground(c, sig::TTIN)?;
            let mut bytes = alloc::vec![0; length.min(4096) as usize];
            let mode = c.console_mode();
            match c.h.console_read(&mut bytes, mode) {
                Ok(got) => {
                    let got = got.min(bytes.len());
                    c.h.write_memory(address, &bytes[..got])?;
                    Ok(got as u64)
                }
                Err(proto::Error::WouldBlock) => blocked(flags),
                Err(error) => Err(error.into()),
            }
        }
        _ => Err(EINVAL.into()),
    }
}

/// A source of bytes that is read by offset.
#[derive(Clone, Copy)]
enum Source {
    /// A file, by its inode.
    File(u64),
    /// A generated text (of `/proc` and the like), by its file descriptor.
    Text(u32),
    Zeros,
    Random,
}

impl Source {
    /// Most bytes of one step. A random byte costs about sixty instructions.
    const fn step(self) -> u64 {
        match self {
            Source::Random => STEP / 16,
            Source::File(ino) => step_of(ino),
            _ => STEP,
        }
    }

    /// Fills `into` with the bytes from `offset` on; returns how many there were.
    fn read(self, c: &mut Caller, offset: u64, into: &mut [u8]) -> Result<usize> {
        match self {
            Source::File(ino) => {
                let left = MAX_OFFSET - offset.min(MAX_OFFSET);
                let length = left.min(into.len() as u64) as usize;
                read_file(c, ino, offset, &mut into[..length])
            }
            Source::Text(fd) => special::read(c, fd, offset, into),
            Source::Zeros => {
                into.fill(0);
                Ok(into.len())
            }
            Source::Random => {
                c.h.random(into)?;
                Ok(into.len())
            }
        }
    }
}

/// Reads the next step of a call into the program's memory. `offset` is the source's offset at the first byte of the
/// call or, if `advances`, at the first byte of this step. Returns the number of bytes that the call has moved so far,
/// the offset behind them, and whether the call goes on.
fn move_in(
    c: &mut Caller,
    from: Source,
    offset: u64,
    advances: bool,
    ranges: &[(u64, u64)],
) -> Result<(u64, u64, bool)> {
    let total = length_of(ranges);
    let mut done = c.progress().min(total);
    let mut offset = if advances {
        offset
    } else {
        offset.saturating_add(done)
    };
    let until = total.min(done + from.step());
    let mut chunk = c.s.take_chunk();
    let mut goes_on = true;
    while goes_on && done < until {
        let want = (until - done).min(CHUNK as u64) as usize;
        let got = match from.read(c, offset, &mut chunk[..want]) {
            Ok(got) => got,
            Err(Stop::Errno(_)) if done > 0 => 0,
            Err(stop) => return Err(stop),
        };
        // Only the ranges that receive bytes have to be writable.
        let moved = scatter(c, ranges, done, &chunk[..got])?;
        if moved < got && done + moved as u64 == 0 {
            return Err(EFAULT.into());
        }
        done += moved as u64;
        offset = offset.saturating_add(moved as u64);
        goes_on = moved == want;
    }
    c.s.give_chunk(chunk);
    Ok((done, offset, goes_on && done < total))
}

/// `getrandom`.
pub fn getrandom(c: &mut Caller, into: u64, size: u64) -> Result {
    c.check(into, 0, WRITE)?;
    let ranges = [(into, size.min(MAX_TRANSFER))];
    match move_in(c, Source::Random, 0, true, &ranges)? {
        (done, _, true) => Err(c.turn(done)),
        (done, _, false) => Ok(done),
    }
}

/// Number of bytes of several ranges.
pub(super) fn length_of(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|range| range.1).sum()
}

/// The parts of several ranges that hold their bytes `from` to `from + length`, as addresses and lengths.
pub(crate) fn pieces(
    ranges: &[(u64, u64)],
    from: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize)> + '_ {
    let (mut skip, mut left) = (from, length as u64);
    ranges.iter().filter_map(move |(address, size)| {
        let skipped = skip.min(*size);
        skip -= skipped;
        let taken = (size - skipped).min(left);
        left -= taken;
        (taken != 0).then_some((address.wrapping_add(skipped), taken as usize))
    })
}

/// Writes the bytes into several ranges, from their byte `from` on; returns how many, up to the first part that is not
/// writable.
pub(super) fn scatter(
    c: &mut Caller,
    ranges: &[(u64, u64)],
    from: u64,
    bytes: &[u8],
) -> Result<usize> {
    let mut done = 0;
    for (address, length) in pieces(ranges, from, bytes.len()) {
        if c.check(address, length as u64, WRITE).is_err() {
            break;
        }
        c.h.write_memory(address, &bytes[done..done + length])?;
        done += length;
    }
    Ok(done)
}

/// Fills `into` from several ranges, from their byte `from` on; returns how many bytes, up to the first part that is
/// not readable.
pub(super) fn gather(
    c: &mut Caller,
    ranges: &[(u64, u64)],
    from: u64,
    into: &mut [u8],
) -> Result<usize> {
    let mut done = 0;
    for (address, length) in pieces(ranges, from, into.len()) {
        if c.check(address, length as u64, READ).is_err() {
            break;
        }
        c.h.read_memory(address, &mut into[done..done + length])?;
        done += length;
    }
    Ok(done)
}

/// Whether the caller blocks or ignores the signal, so that it would not stop the caller.
pub fn cannot_stop(c: &Caller, signal: u32) -> bool {
    c.p.task.signals.mask & bit(signal) != 0 || c.p.actions.ignores(signal)
}

/// Whether the signal is pending for the caller already: a call that is made again, before the caller is stopped by it,
/// must not send it again.
pub fn is_pending(c: &mut Caller, signal: u32) -> bool {
    let pending = c.p.task.signals.pending.set() | c.process().pending.set();
    pending & bit(signal) != 0
}

/// Fails, or stops the caller by the signal, unless its process group is in the foreground of the console.
fn in_foreground(c: &mut Caller, signal: u32) -> Result<()> {
    let ignores = cannot_stop(c, signal);
    let is_pending = is_pending(c, signal);
    match c
        .s
        .check_foreground(c.p.task.pid, signal, (ignores, is_pending))
    {
        None => Ok(()),
        Some(Ok(())) => Err(Stop::Park(Wake::on(Key::Console))),
        Some(Err(error)) => Err(error.into()),
    }
}

/// Parks the call until something happens at the console. Errors: `EAGAIN` with `O_NONBLOCK`.
fn blocked(flags: u32) -> Result {
    if flags & open_flags::NONBLOCK != 0 {
        return Err(EAGAIN.into());
    }
    Err(Stop::Park(Wake::on(Key::Console)))
}

/// `write` and `pwrite64`.
pub fn write(c: &mut Caller, fd: u32, address: u64, length: u64, at: Option<u64>) -> Result {
    write_vector(c, fd, &[(address, length.min(MAX_TRANSFER))], at, true)
}

/// A write to `/proc/self/said`: the caller, whose number this is, tells the starter of its tree something; all of it or
/// nothing.
fn say(c: &mut Caller, number: u32, ranges: &[(u64, u64)], total: u64) -> Result {
    proc::may_say(c, number, total)?;
    let before = c.process().said.bytes().len() as u64;
    c.h.room(2 * (total + before))?;
    let mut bytes = alloc::vec![0; total as usize];
    if gather(c, ranges, 0, &mut bytes)? < bytes.len() {
        return Err(EFAULT.into());
    }
    c.process().said.say(&bytes)?;
    Ok(total)
}

/// Writes several ranges one after the other, as one write. An empty message is sent to a socket only if `is_one`
/// (`write`, not `writev`).
fn write_vector(
    c: &mut Caller,
    fd: u32,
    ranges: &[(u64, u64)],
    at: Option<u64>,
    is_one: bool,
) -> Result {
    let description = c.p.files.get(fd)?;
    if !description.writable() {
        return Err(EBADF.into());
    }
    let position = position(&description, at)?;
    let flags = description.flags;
    let kind = description.kind.clone();
    drop(description);
    let total = length_of(ranges);
    if let Kind::File { ino } = kind {
        return write_to_file(c, fd, ino, ranges, position, flags);
    }
    for (address, length) in ranges {
        c.check(*address, *length, READ)?;
    }
    match kind {
        Kind::Text(reading) if reading.which().memory().is_some() => {
            let number = reading.which().memory().ok_or(EBADF)?;
            write_to_memory(c, fd, number, ranges, position)
        }
        Kind::Text(reading) if reading.which().said().is_some() => {
            let number = reading.which().said().ok_or(EBADF)?;
            say(c, number, ranges, total)
        }
        Kind::Text(reading) => {
            let mut bytes = [0; Shown::MAX_COMM];
            let length = gather(c, ranges, 0, &mut bytes)?;
            proc::write(c, reading.which(), &bytes[..length])?;
            Ok(total)
        }
        Kind::Directory { .. } | Kind::Folder(_) | Kind::File { .. } => Err(EBADF.into()),
        Kind::Counter { .. } => super::counter::write(c, fd, ranges, total),
        Kind::Signals { .. } | Kind::Epoll { .. } | Kind::Inotify { .. } => Err(EINVAL.into()),
        Kind::Socket { .. } if total == 0 && !is_one => Ok(0),
        Kind::Socket { .. } => super::socket::write(c, fd, ranges, total),
        Kind::Pipe { id, pipe, .. } => super::pipe::write(c, (id, &pipe), flags, ranges, total),
        Kind::Pty { number, id, master } => {
            let end = super::pty::End { number, id, master };
            super::pty::write(c, end, flags, ranges, total)
        }
        Kind::Device(Device::Null | Device::Zero | Device::Random) => Ok(total),
        Kind::Device(Device::Full) => Err(ENOSPC.into()),
        Kind::Device(Device::Console) => write_console(c, ranges, total, flags),
    }
}

/// Writes the next step of a call to a file, at most [`step_of`] bytes.
fn write_to_file(
    c: &mut Caller,
    fd: u32,
    ino: u64,
    ranges: &[(u64, u64)],
    position: Position,
    flags: u32,
) -> Result {
    let mut total = length_of(ranges);
    if let Some(done) = made_durable(c, ino)? {
        return Ok(done);
    }
    let before = c.progress().min(total);
    let mut done = before;
    // As on Linux, `pwrite` appends, too, if the file is open with `O_APPEND`.
    let append = flags & open_flags::APPEND != 0;
    let mut end = match position {
        Position::Shared(offset) => offset,
        Position::Given(offset) => offset.saturating_add(done),
    };
    if !append
        && end
            .checked_add(total - done)
            .is_none_or(|end| end > MAX_OFFSET)
    {
        return Err(EFBIG.into());
    }
    if done < total {
        let room = super::limit::room_in_file(c, ino, end, append)?;
        if room == 0 && done == 0 {
            return Err(super::limit::too_long(c));
        }
        total = total.min(done.saturating_add(room));
    }
    let until = total.min(done + step_of(ino));
    let mut chunk = c.s.take_chunk();
    let mut goes_on = true;
    let mut failure = None;
    while goes_on && done < until {
        let want = (until - done).min(CHUNK as u64) as usize;
        let got = gather(c, ranges, done, &mut chunk[..want])?;
        let result = match got {
            0 => Err(EFAULT.into()),
            _ => write_file(c, ino, end, append, &chunk[..got]),
        };
        match result {
            Ok((written, now)) => {
                end = now;
                done += written;
                goes_on = written == want as u64;
            }
            Err(stop) => {
                failure = Some(stop);
                goes_on = false;
            }
        }
    }
    c.s.give_chunk(chunk);
    if done > before {
        super::inotify::did(c, fd, linux::IN_MODIFY);
    }
    commit(c, fd, position, end)?;
    match failure {
        Some(stop) if done == 0 => Err(stop),
        _ if goes_on && done < total => Err(c.turn(done)),
        _ => is_written(c, ino, flags, done),
    }
}

/// The result of a call that has written all that it will write to the file, `done` bytes. If the file is open with
/// `O_DSYNC` and on the disk, the data is made durable in a turn of its own ([`made_durable`]), which no signal cuts
/// short, so that this is done once.
fn is_written(c: &mut Caller, ino: u64, flags: u32, done: u64) -> Result {
    // A call of which a request waits for the disk begins again, whatever its result is: it has not written all.
    let is_over = done > 0 && !c.h.waits();
    if !is_over || flags & open_flags::DSYNC == 0 || ino & services::fs::ON_DISK == 0 {
        return Ok(done);
    }
    c.wait().is_written = true;
    Err(c.turn(done))
}

/// If the call has written everything and only has to make it durable: does that, and returns the number of bytes
/// written.
fn made_durable(c: &mut Caller, ino: u64) -> Result<Option<u64>> {
    let done = c.progress();
    if !c.p.task.wait.is_some_and(|wait| wait.is_written) {
        return Ok(None);
    }
    c.fs(&Request::Sync { ino })?;
    Ok(Some(done))
}

/// Writes the next [`STEP`] bytes of several ranges to the memory of the task with this number (`/proc/N/mem`).
fn write_to_memory(
    c: &mut Caller,
    fd: u32,
    number: u32,
    ranges: &[(u64, u64)],
    position: Position,
) -> Result {
    let total = length_of(ranges);
    let mut done = c.progress().min(total);
    let mut at = match position {
        Position::Shared(offset) => offset,
        Position::Given(offset) => offset.saturating_add(done),
    };
    let until = total.min(done + STEP);
    let mut chunk = c.s.take_chunk();
    let mut goes_on = true;
    while goes_on && done < until {
        let want = (until - done).min(CHUNK as u64) as usize;
        let got = gather(c, ranges, done, &mut chunk[..want])?;
        let written = match super::peer::write_memory(c, number, at, &chunk[..got]) {
            Ok(written) => written,
            Err(Stop::Errno(_)) if done > 0 => 0,
            Err(stop) => return Err(stop),
        };
        done += written as u64;
        at = at.saturating_add(written as u64);
        goes_on = written == want;
    }
    c.s.give_chunk(chunk);
    commit(c, fd, position, at)?;
    match goes_on && done < total {
        true => Err(c.turn(done)),
        false => Ok(done),
    }
}

/// Writes to a file with one request; returns how many bytes were written, and the offset behind them.
pub fn write_file(
    c: &mut Caller,
    ino: u64,
    offset: u64,
    append: bool,
    bytes: &[u8],
) -> Result<(u64, u64)> {
    if !c.s.memfds.is_empty() {
        let end = match append {
            true => u64::MAX,
            false => offset.saturating_add(bytes.len() as u64),
        };
        super::memfd::check_write(c, ino, end)?;
    }
    if c.s.objects.of_ino(ino).is_some() {
        let from = match append {
            true => c.attr(&Request::StatIno { ino })?.size,
            false => offset,
        };
        // Who writes is not to blame if who has mapped the file has no memory left.
        let held = c.s.hold_object(c.h, ino, from, bytes.len() as u64);
        held.map_err(|_| ENOSPC)?;
    }
    let request = Request::Write {
        ino,
        offset,
        append,
    };
    match c.h.fs(&request, bytes, &mut []) {
        Ok((Reply::Written { length, offset }, _)) => {
            let length = u64::from(length).min(bytes.len() as u64);
            c.s.write_object(c.h, ino, offset, &bytes[..length as usize])?;
            Ok((length, offset.saturating_add(length)))
        }
        Ok(_) => Err(EIO.into()),
        // Files in memory are limited by free memory only, so the program is told that the device is full.
        Err(proto::Error::NoMemory) => Err(ENOSPC.into()),
        Err(error) => Err(error.into()),
    }
}

/// Writes to the console, which takes as much as fits at the moment. The call returns when the console has taken
/// everything; until then its [`Wait`](crate::process::Wait) keeps the number of bytes taken.
fn write_console(c: &mut Caller, ranges: &[(u64, u64)], total: u64, flags: u32) -> Result {
    let mut done = c.progress();
    let until = total.min(done.saturating_add(STEP));
    let mut bytes = Vec::new();
    while done < until {
        let Some((address, length)) = piece(ranges, done) else {
            return Ok(done);
        };
        bytes.resize(length.min(4096) as usize, 0);
        c.h.read_memory(address, &mut bytes)?;
        match c.h.console_write(&bytes) {
            Ok(0) | Err(proto::Error::WouldBlock) => {
                if flags & open_flags::NONBLOCK != 0 && done > 0 {
                    return Ok(done);
                }
                if done > 0 {
                    c.wait().progress = done;
                }
                return blocked(flags);
            }
            Ok(taken) => done += taken.min(bytes.len()) as u64,
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error.into()),
        }
    }
    match done < total {
        true => Err(c.turn(done)),
        false => Ok(done),
    }
}

/// The rest of the range that contains byte `at` of several ranges. The ranges may have changed since the call began,
/// so the caller must check that it may access them.
pub fn piece(ranges: &[(u64, u64)], at: u64) -> Option<(u64, u64)> {
    let mut skip = at;
    ranges.iter().find_map(|(address, length)| {
        if skip < *length {
            return Some((address.wrapping_add(skip), *length - skip));
        }
        skip -= *length;
        None
    })
}

/// The ranges of an array of `struct iovec`, cut to [`MAX_TRANSFER`] bytes in total.
pub fn vector(c: &mut Caller, address: u64, count: u64) -> Result<Vec<(u64, u64)>> {
    if count > 1024 {
        return Err(EINVAL.into());
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let raw = c.read(address, count as usize * 16)?;
    let mut left = MAX_TRANSFER;
    raw.chunks_exact(16)
        .map(|entry| {
            let (address, length) = (u64_at(entry, 0), u64_at(entry, 8));
            if length > MAX_OFFSET {
                return Err(EINVAL.into());
            }
            let length = length.min(left);
            left -= length;
            Ok((address, length))
        })
        .collect()
}

/// `readv` and `preadv`.
pub fn readv(c: &mut Caller, fd: u32, address: u64, count: u64, at: Option<u64>) -> Result {
    let ranges = vector(c, address, count)?;
    read_vector(c, fd, &ranges, at)
}

/// `writev` and `pwritev`.
pub fn writev(c: &mut Caller, fd: u32, address: u64, count: u64, at: Option<u64>) -> Result {
    let ranges = vector(c, address, count)?;
    write_vector(c, fd, &ranges, at, false)
}

/// If this is the last descriptor of its file description: waits until everything written to the file is durable.
fn settle(c: &mut Caller, fd: u32) -> Result<()> {
    let description = c.p.files.fds.get(fd).map(|fd| &fd.description);
    let last = description.filter(|description| Rc::strong_count(description) == 1);
    let ino = last.and_then(|description| description.borrow().ino());
    ino.map_or(Ok(()), |ino| c.settle(ino))
}

/// As `settle`, for all file descriptors, before the task ends.
pub fn settle_all(c: &mut Caller) -> Result<()> {
    let fds: Vec<u32> = c.p.files.fds.numbers().collect();
    fds.into_iter().try_for_each(|fd| settle(c, fd))
}

/// `close`.
pub fn close(c: &mut Caller, fd: u32) -> Result {
    settle(c, fd)?;
    c.p.files.close(c.s, c.h, fd)?;
    Ok(0)
}

/// `close_range`.
pub fn close_range(c: &mut Caller, first: u32, last: u32, flags: u32) -> Result {
    const UNSHARE: u32 = 2;
    const CLOEXEC: u32 = 4;
    if first > last || flags & !(CLOEXEC | UNSHARE) != 0 {
        return Err(EINVAL.into());
    }
    let fds: Vec<u32> =
        c.p.files
            .fds
            .from(first)
            .map(|(fd, _)| fd)
            .take_while(|fd| *fd <= last)
            .collect();
    if flags & CLOEXEC == 0 {
        // A call that waits is made again from its beginning, so it must do all its waiting before it closes the first
        // descriptor.
        fds.iter().try_for_each(|fd| settle(c, *fd))?;
    }
    // One reference is the task's, one the call's.
    let is_shared = Rc::strong_count(&c.p.task.shares.files) > 2;
    let mut own = None;
    if flags & UNSHARE != 0 && is_shared {
        c.h.room(64 * c.p.files.fds.len() as u64)?;
        own = Some(c.p.files.clone());
    }
    let files = own.as_mut().unwrap_or(&mut c.p.files);
    if flags & CLOEXEC == 0 {
        files.close_these(c.s, c.h, fds);
    } else {
        for fd in fds {
            if let Some(entry) = files.fds.get_mut(fd) {
                entry.cloexec = true;
            }
        }
    }
    if let Some(own) = own {
        c.p.task.shares.files = shared(own);
    }
    Ok(0)
}

/// `lseek`.
pub fn lseek(c: &mut Caller, fd: u32, offset: i64, whence: u32) -> Result {
    let description = c.p.files.get(fd)?;
    let current = description.offset;
    if let Kind::Counter { .. } | Kind::Signals { .. } | Kind::Epoll { .. } | Kind::Inotify { .. } =
        description.kind
    {
        return Ok(0);
    }
    if !description.kind.can_seek() {
        return Err(ESPIPE.into());
    }
    let file = match description.kind {
        Kind::File { ino } if whence >= linux::SEEK_END => Some(ino),
        Kind::Device(_) => return Ok(0),
        _ => None,
    };
    let is_memory = match &description.kind {
        Kind::Text(reading) => reading.which().memory().is_some(),
        _ => false,
    };
    drop(description);
    let size = match file {
        Some(ino) => c.attr(&Request::StatIno { ino })?.size,
        // A text of `/proc` has no size: it is generated when it is read.
        None => 0,
    };
    let base = match whence {
        linux::SEEK_SET => 0,
        linux::SEEK_CUR => current,
        // The memory of a task has no end.
        linux::SEEK_END if is_memory => return Err(EINVAL.into()),
        linux::SEEK_END => size,
        // Every file is reported as data without holes; as on Linux, its end counts as a hole.
        linux::SEEK_DATA | linux::SEEK_HOLE if offset < 0 || offset as u64 >= size => {
            return Err(ENXIO.into())
        }
        linux::SEEK_DATA => offset as u64,
        linux::SEEK_HOLE => size,
        _ => return Err(EINVAL.into()),
    };
    let offset = if whence >= linux::SEEK_DATA {
        0
    } else {
        offset
    };
    let new = base
        .checked_add_signed(offset)
        .filter(|n| *n <= MAX_OFFSET)
        .ok_or(EINVAL)?;
    let mut description = c.p.files.get_mut(fd)?;
    if let Kind::Directory {
        pending, cookie, ..
    } = &mut description.kind
    {
        // Any other position is reached by the next read, which starts from the beginning of the directory.
        if new != current || new == 0 {
            pending.clear();
            *cookie = 0;
        }
    }
    description.offset = new;
    Ok(new)
}

fn fd_limit(c: &Caller) -> u32 {
    let process = c.s.find(c.p.task.pid);
    process
        .and_then(|process| process.limits.get(&linux::RLIMIT_NOFILE))
        .map_or(MAX_FDS, |l| l.0.min(u64::from(MAX_FDS)) as u32)
}

/// The lowest free file descriptor. Errors: `EMFILE`.
pub fn free_fd(c: &Caller) -> Result<u32> {
    free_fd_from(c, 0)
}

/// The lowest free file descriptor that is at least `from`. Errors: `EMFILE`.
pub fn free_fd_from(c: &Caller, from: u32) -> Result<u32> {
    Ok(c.p.files.lowest(from, fd_limit(c))?)
}

/// `dup`, and `fcntl(F_DUPFD)`.
pub fn dup(c: &mut Caller, fd: u32, from: u32, cloexec: bool) -> Result {
    let description = Rc::clone(&c.p.files.fds.get(fd).ok_or(EBADF)?.description);
    if from >= fd_limit(c) {
        return Err(EINVAL.into());
    }
    let new = c.p.files.lowest(from, fd_limit(c))?;
    c.p.files.fds.insert(
        new,
        Fd {
            description,
            cloexec,
        },
    );
    Ok(u64::from(new))
}

/// `dup2` and `dup3`.
pub fn dup_to(c: &mut Caller, fd: u32, new: u32, flags: Option<u32>) -> Result {
    let description = Rc::clone(&c.p.files.fds.get(fd).ok_or(EBADF)?.description);
    if new >= fd_limit(c) {
        return Err(EBADF.into());
    }
    let cloexec = match flags {
        Some(flags) if fd == new || flags & !open_flags::CLOEXEC != 0 => return Err(EINVAL.into()),
        Some(flags) => flags != 0,
        None if fd == new => return Ok(u64::from(new)),
        None => false,
    };
    settle(c, new)?;
    let _ = c.p.files.close(c.s, c.h, new);
    c.p.files.fds.insert(
        new,
        Fd {
            description,
            cloexec,
        },
    );
    Ok(u64::from(new))
}

/// `fcntl`.
pub fn fcntl(c: &mut Caller, fd: u32, command: u32, argument: u64) -> Result {
    c.p.files.get(fd)?;
    match command {
        linux::F_DUPFD => dup(c, fd, argument.min(u64::from(u32::MAX)) as u32, false),
        linux::F_DUPFD_CLOEXEC => dup(c, fd, argument.min(u64::from(u32::MAX)) as u32, true),
        linux::F_GETFD => Ok(u64::from(c.p.files.fds.get(fd).is_some_and(|f| f.cloexec))),
        linux::F_SETFD => {
            if let Some(entry) = c.p.files.fds.get_mut(fd) {
                entry.cloexec = argument as u32 & linux::FD_CLOEXEC != 0;
            }
            Ok(0)
        }
        linux::F_GETPIPE_SZ | linux::F_SETPIPE_SZ => match &c.p.files.get(fd)?.kind {
            // The capacity cannot change. A program that asks for more must not be told that it has it: it could wait
            // for ever.
            Kind::Pipe { pipe, .. } => {
                let capacity = pipe.borrow().capacity as u64;
                match argument as u32 {
                    _ if command == linux::F_GETPIPE_SZ => Ok(capacity),
                    0x8000_0001.. => Err(EINVAL.into()),
                    size if u64::from(size) > capacity => Err(EPERM.into()),
                    _ => Ok(capacity),
                }
            }
            _ => Err(EBADF.into()),
        },
        linux::F_GETFL => Ok(u64::from(c.p.files.get(fd)?.flags)),
        linux::F_SETFL => {
            let mut description = c.p.files.get_mut(fd)?;
            let set = argument as u32 & open_flags::SETTABLE;
            description.flags = (description.flags & !open_flags::SETTABLE) | set;
            Ok(0)
        }
        linux::F_GETLK
        | linux::F_SETLK
        | linux::F_SETLKW
        | linux::F_OFD_GETLK
        | linux::F_OFD_SETLK
        | linux::F_OFD_SETLKW => super::lock::record(c, fd, command, argument),
        linux::F_SETOWN
        | linux::F_GETOWN
        | linux::F_SETOWN_EX
        | linux::F_GETOWN_EX
        | linux::F_SETSIG
        | linux::F_GETSIG => owner(c, fd, command, argument),
        linux::F_ADD_SEALS => super::memfd::seal(c, fd, Some(argument as u32)),
        linux::F_GET_SEALS => super::memfd::seal(c, fd, None),
        _ => Err(EINVAL.into()),
    }
}

/// `F_SETOWN` and the like: who gets a signal when the description is ready. The owner is only stored: no signal is
/// ever sent, but programs that set an owner before they use the descriptor go on.
fn owner(c: &mut Caller, fd: u32, command: u32, argument: u64) -> Result {
    let mut owner = match &c.p.files.get(fd)?.owner {
        Some(owner) => AsyncOwner::clone(owner),
        None => AsyncOwner::default(),
    };
    match command {
        linux::F_GETOWN if owner.kind == AsyncOwner::GROUP => {
            return Ok(-i64::from(owner.number) as u64);
        }
        linux::F_GETOWN => return Ok(u64::from(owner.number)),
        linux::F_GETOWN_EX => {
            let words = Writer::new().u32(u32::from(owner.kind)).u32(owner.number);
            c.write(argument, &words.done())?;
            return Ok(0);
        }
        linux::F_GETSIG => return Ok(u64::from(owner.signal)),
        linux::F_SETSIG if argument > u64::from(SIGNALS) => return Err(EINVAL.into()),
        linux::F_SETSIG => owner.signal = argument as u8,
        linux::F_SETOWN => {
            let number = argument as i32;
            owner.kind = match number {
                i32::MIN => return Err(EINVAL.into()),
                _ if number < 0 => AsyncOwner::GROUP,
                _ => AsyncOwner::PROCESS,
            };
            owner.number = number.unsigned_abs();
        }
        _ => {
            let words = c.read(argument, 8)?;
            owner.kind = u8::try_from(u32_at(&words, 0)).map_err(|_| EINVAL)?;
            owner.number = u32_at(&words, 4);
        }
    }
    if !owner.is_sound() {
        return Err(EINVAL.into());
    }
    let own = c.p.task.pid;
    let is_there = match owner.kind {
        _ if owner.number == 0 || command == linux::F_SETSIG => true,
        AsyncOwner::THREAD => c.s.thread_by_number(own, owner.number).is_some(),
        AsyncOwner::PROCESS => c.s.by_number(own, owner.number).is_some(),
        _ => !c.s.those(own, Which::Group(owner.number)).is_empty(),
    };
    if !is_there {
        return Err(ESRCH.into());
    }
    c.p.files.get_mut(fd)?.owner = Some(Box::new(owner));
    Ok(0)
}

/// `ioctl`.
pub fn ioctl(c: &mut Caller, fd: u32, request: u32, argument: u64) -> Result {
    let description = c.p.files.get(fd)?;
    let kind = description.kind.clone();
    let offset = description.offset;
    drop(description);
    match request {
        ioctl::FIOCLEX | ioctl::FIONCLEX => {
            if let Some(entry) = c.p.files.fds.get_mut(fd) {
                entry.cloexec = request == ioctl::FIOCLEX;
            }
            return Ok(0);
        }
        ioctl::FIONBIO => {
            let on = u32_at(&c.read(argument, 4)?, 0) != 0;
            let mut description = c.p.files.get_mut(fd)?;
            description.flags &= !open_flags::NONBLOCK;
            if on {
                description.flags |= open_flags::NONBLOCK;
            }
            return Ok(0);
        }
        ioctl::FIOASYNC => {
            let on = u32_at(&c.read(argument, 4)?, 0) != 0;
            let tells_nobody = matches!(
                kind,
                Kind::File { .. } | Kind::Directory { .. } | Kind::Folder(_) | Kind::Text(_)
            );
            if on && tells_nobody {
                return Err(ENOTTY.into());
            }
            let mut description = c.p.files.get_mut(fd)?;
            description.flags &= !open_flags::FASYNC;
            if on {
                description.flags |= open_flags::FASYNC;
            }
            return Ok(0);
        }
        _ => {}
    }
    if let (Kind::File { ino }, ioctl::FIONREAD) = (&kind, request) {
        let size = c.attr(&Request::StatIno { ino: *ino })?.size;
        let left = size.saturating_sub(offset).min(i32::MAX as u64) as u32;
        c.write(argument, &left.to_le_bytes())?;
        return Ok(0);
    }
    if let (Kind::Pipe { pipe, .. }, ioctl::FIONREAD) = (&kind, request) {
        let left = pipe.borrow().bytes.len() as u32;
        c.write(argument, &left.to_le_bytes())?;
        return Ok(0);
    }
    if let (Kind::Socket { id }, ioctl::FIONREAD) = (&kind, request) {
        let left = super::socket::readable_bytes(c, *id) as u32;
        c.write(argument, &left.to_le_bytes())?;
        return Ok(0);
    }
    if let Kind::Socket { id } = kind {
        let family = c.s.sockets.find(id).ok_or(EBADF)?.family;
        return super::interface::ioctl(c, family, request, argument);
    }
    if let (Kind::Inotify { id }, ioctl::FIONREAD) = (&kind, request) {
        let left = c.s.inotify.queue(*id).map_or(0, |queue| queue.len()) as u32;
        c.write(argument, &left.to_le_bytes())?;
        return Ok(0);
    }
    if let Kind::Pty { number, id, master } = kind {
        let end = super::pty::End { number, id, master };
        return super::pty::ioctl(c, end, request, argument);
    }
    let Kind::Device(Device::Console) = kind else {
        return Err(ENOTTY.into());
    };
    match request {
        ioctl::TCGETS => {
            let settings = c.s.console_settings(c.p.task.pid);
            let termios = settings.map_or_else(default_termios, Vec::from);
            c.write(argument, &termios)?;
        }
        ioctl::TCSETS | ioctl::TCSETSW | ioctl::TCSETSF => {
            let termios = c.read(argument, TERMIOS)?;
            if !cannot_stop(c, sig::TTOU) {
                in_foreground(c, sig::TTOU)?;
            }
            c.s.set_console(c.p.task.pid, termios);
            c.console_mode();
        }
        ioctl::TIOCGPGRP => {
            let group = c.s.foreground(c.p.task.pid);
            c.write(argument, &group.to_le_bytes())?;
        }
        ioctl::TIOCGSID => {
            let session = c.process().session;
            c.write(argument, &session.to_le_bytes())?;
        }
        ioctl::TIOCSPGRP => {
            let raw = c.read(argument, 4)?;
            let ignores = cannot_stop(c, sig::TTOU);
            if !ignores {
                in_foreground(c, sig::TTOU)?;
            }
            c.s.set_foreground(c.p.task.pid, crate::wire::u32_at(&raw, 0))?;
        }
        ioctl::TIOCSCTTY
        | ioctl::TIOCNOTTY
        | ioctl::TCFLSH
        | ioctl::TCXONC
        | ioctl::TCSBRK
        | ioctl::TIOCSWINSZ => {}
        // A serial line has no size; 24 lines of 80 columns are what terminals begin with.
        ioctl::TIOCGWINSZ => c.write(argument, &[24, 0, 80, 0, 0, 0, 0, 0])?,
        ioctl::FIONREAD => {
            let mode = c.console_mode();
            let some = u32::from(c.h.console_readable(mode));
            c.write(argument, &some.to_le_bytes())?;
        }
        _ => return Err(ENOTTY.into()),
    }
    Ok(0)
}

/// `sendfile`.
pub fn sendfile(c: &mut Caller, to: u32, from: u32, offset_at: u64, count: u64) -> Result {
    let source = c.p.files.get(from)?;
    if !source.readable() {
        return Err(EBADF.into());
    }
    let ino = match source.kind {
        Kind::File { ino } => ino,
        Kind::Directory { .. } | Kind::Folder(_) => return Err(EISDIR.into()),
        _ => return Err(EINVAL.into()),
    };
    let mut from_offset = source.offset;
    drop(source);
    if offset_at != 0 {
        c.check(offset_at, 8, WRITE)?;
        from_offset = c.word(offset_at)?;
        if from_offset > MAX_OFFSET {
            return Err(EINVAL.into());
        }
    }
    let target = c.p.files.get(to)?;
    if !target.writable() || matches!(target.kind, Kind::Directory { .. } | Kind::Text(_)) {
        return Err(EBADF.into());
    }
    if target.flags & open_flags::APPEND != 0 {
        return Err(EINVAL.into());
    }
    let flags = target.flags;
    let kind = target.kind.clone();
    let mut to_offset = target.offset;
    drop(target);
    if let Kind::File { ino: to } = kind {
        if let Some(done) = made_durable(c, to)? {
            return Ok(done);
        }
    }
    let count = count
        .min(MAX_TRANSFER)
        .min(MAX_OFFSET - from_offset.min(MAX_OFFSET));
    let mut done = c.progress().min(count);
    let step = match kind {
        Kind::File { ino: to } => step_of(ino).min(step_of(to)),
        _ => step_of(ino),
    };
    let until = count.min(done + step);
    let mut chunk = c.s.take_chunk();
    // What earlier turns have moved is included in the offsets already.
    let before = done;
    // Other targets than files and pipes get all bytes, so the call waits until there is room. A pipe takes what it has
    // room for, as on Linux.
    let is_whole = !matches!(kind, Kind::File { .. } | Kind::Pipe { .. });
    let waits = is_whole && flags & open_flags::NONBLOCK == 0;
    let mut goes_on = true;
    while goes_on && done < until {
        let want = (until - done).min(CHUNK as u64) as usize;
        let at = from_offset.saturating_add(done - before);
        let got = match read_file(c, ino, at, &mut chunk[..want]) {
            Ok(got) => got,
            Err(_) if done > 0 => 0,
            Err(stop) => return Err(stop),
        };
        if got == 0 {
            goes_on = false;
            break;
        }
        let written = match kind {
            Kind::File { ino } => match super::limit::room_in_file(c, ino, to_offset, false)? {
                0 => Err(super::limit::too_long(c)),
                room => {
                    let length = (got as u64).min(room) as usize;
                    let written = write_file(c, ino, to_offset, false, &chunk[..length]);
                    if written.is_ok() && length < got {
                        // `SIGXFSZ` is sent, because Linux tries to write the rest, too.
                        super::limit::too_long(c);
                    }
                    written.map(|(length, _)| length)
                }
            },
            Kind::Device(Device::Console) => match c.h.console_write(&chunk[..got]) {
                Ok(0) | Err(proto::Error::WouldBlock) => blocked(flags),
                Ok(taken) => Ok(taken.min(got) as u64),
                Err(error) => Err(error.into()),
            },
            Kind::Pipe { id, ref pipe, .. } => {
                super::pipe::put(c, (id, pipe), flags, &chunk[..got], 1).map(|n| n as u64)
            }
            Kind::Socket { id } => {
                let sent = super::socket::put(c, id, flags, &chunk[..got], done > 0);
                sent.map(|n| n as u64)
            }
            Kind::Pty { number, id, master } => {
                let end = super::pty::End { number, id, master };
                super::pty::send(c, end, flags, &chunk[..got])
            }
            Kind::Device(Device::Full) => Err(ENOSPC.into()),
            _ => Ok(got as u64),
        };
        match written {
            Ok(written) => {
                done += written;
                to_offset = to_offset.saturating_add(written);
                goes_on = got == want;
                if written < got as u64 {
                    // If it waits for room, the next turn continues from the new offsets.
                    goes_on = waits;
                    break;
                }
            }
            Err(Stop::Park(_)) if waits && done > before => break,
            Err(Stop::Park(wake)) if waits => return Err(Stop::Park(wake)),
            // `sendfile` may return a short count; the program calls it again for the rest.
            Err(Stop::Errno(_) | Stop::Park(_)) if done > 0 => goes_on = false,
            Err(stop) => return Err(stop),
        }
    }
    c.s.give_chunk(chunk);
    if done > before {
        super::inotify::did(c, from, linux::IN_ACCESS);
        if let Kind::File { .. } = kind {
            super::inotify::did(c, to, linux::IN_MODIFY);
        }
    }
    from_offset = from_offset.saturating_add(done - before);
    if offset_at == 0 {
        c.p.files.get_mut(from)?.offset = from_offset;
    } else {
        c.write(offset_at, &from_offset.to_le_bytes())?;
    }
    let mut target = c.p.files.get_mut(to)?;
    if let Kind::File { .. } = target.kind {
        // Source and target may be the same description; its offset is the target's in the end.
        target.offset = to_offset;
    }
    drop(target);
    match kind {
        _ if goes_on && done < count => Err(c.turn(done)),
        Kind::File { ino: to } => is_written(c, to, flags, done),
        _ => Ok(done),
    }
}

/// The inode of a file that is open for writing.
fn writable_file(c: &Caller, fd: u32) -> Result<u64> {
    let description = c.p.files.get(fd)?;
    match description.kind {
        Kind::File { ino } if description.writable() => Ok(ino),
        _ => Err(EINVAL.into()),
    }
}

/// `ftruncate`.
pub fn ftruncate(c: &mut Caller, fd: u32, size: u64) -> Result {
    let ino = writable_file(c, fd)?;
    set_size(c, ino, size)?;
    super::inotify::did(c, fd, linux::IN_MODIFY);
    Ok(0)
}

/// Sets the size of a file.
pub fn set_size(c: &mut Caller, ino: u64, size: u64) -> Result {
    if size > MAX_OFFSET {
        return Err(EINVAL.into());
    }
    super::limit::may_grow_file(c, ino, size)?;
    super::memfd::check_size(c, ino, size)?;
    match c.h.fs(&Request::Truncate { ino, size }, &[], &mut []) {
        Ok(_) => {
            c.s.cut_object(c.h, ino, size)?;
            Ok(0)
        }
        Err(proto::Error::NoMemory) => Err(ENOSPC.into()),
        Err(error) => Err(error.into()),
    }
}

/// `fallocate`: the file is extended if necessary; no space is reserved.
pub fn fallocate(c: &mut Caller, fd: u32, mode: u32, offset: u64, length: u64) -> Result {
    use linux::FALLOC_FL_KEEP_SIZE as KEEP_SIZE;
    let ino = writable_file(c, fd).map_err(|_| Stop::Errno(EBADF))?;
    if mode & !KEEP_SIZE != 0 {
        return Err(ENOTSUP.into());
    }
    let end = offset
        .checked_add(length)
        .filter(|e| *e <= MAX_OFFSET && length > 0)
        .ok_or(EINVAL)?;
    if mode & KEEP_SIZE == 0 && c.attr(&Request::StatIno { ino })?.size < end {
        set_size(c, ino, end)?;
    }
    super::inotify::did(c, fd, linux::IN_MODIFY);
    Ok(0)
}

/// `fsync` and `fdatasync`: writes mapped pages of the file back and makes the file durable.
pub fn fsync(c: &mut Caller, fd: u32) -> Result {
    let ino = c.p.files.get(fd)?.ino().ok_or(EINVAL)?;
    if let Some(id) = c.s.objects.of_ino(ino) {
        if let Some(error) = super::memory::write_back(c, [id].into(), true)? {
            return Err(error.into());
        }
    }
    c.fs(&Request::Sync { ino })?;
    Ok(0)
}

/// Makes everything that was written to the disk durable, whatever file it was written to: a sync of one file there
/// syncs all. The mount point is used because it always exists. Requests to the disk are made in order,
/// so files that others have closed without waiting are included.
fn sync_disk(c: &mut Caller) -> Result<()> {
    c.with_open(String::from(services::fs::MOUNT), true, |c, opened| {
        c.fs(&Request::Sync { ino: opened.ino }).map(drop)
    })
}

/// `sync`, which reports no errors.
pub fn sync(c: &mut Caller) -> Result {
    match sync_disk(c) {
        Err(stop) if c.h.waits() => Err(stop),
        _ => Ok(0),
    }
}

/// `syncfs`. Files in memory cannot be made more durable.
pub fn syncfs(c: &mut Caller, fd: u32) -> Result {
    let ino = c.p.files.get(fd)?.ino();
    if ino.is_some_and(|ino| ino & services::fs::ON_DISK != 0) {
        sync_disk(c)?;
    }
    Ok(0)
}

/// The offset that `preadv2` and `pwritev2` name, with these flags; `None` for the description's own.
///
/// # Errors
/// `ENOTSUP` for flags that change what is read or written: callers fall back to calls without flags.
pub fn place_of(at: u64, flags: u32) -> Result<Option<u64>> {
    // RWF_HIPRI only asks for polling of the device, which changes no result.
    const HIGH_PRIORITY: u32 = 1;
    match flags & !HIGH_PRIORITY {
        0 => Ok((at != u64::MAX).then_some(at)),
        _ => Err(ENOTSUP.into()),
    }
}

/// `fadvise64` and `readahead`: there is nothing to do.
pub fn fadvise(c: &mut Caller, fd: u32) -> Result {
    match c.p.files.get(fd)?.kind.can_seek() {
        true => Ok(0),
        false => Err(ESPIPE.into()),
    }
}

/// Most bytes of directory entries that one call returns.
pub const MAX_LISTED: usize = 32 << 10;

/// Bytes of a directory entry with a name of `name` bytes (`struct linux_dirent64`, aligned to 8).
const fn record_of(name: usize) -> usize {
    (19 + name + 1 + 7) & !7
}

/// Appends a directory entry. `place` is the position of the entry behind it, `used` the length of `out` afterwards.
fn write_entry(out: &mut Vec<u8>, (ino, mode, name): Listed<'_>, place: u64, used: usize) {
    let mut head = [0; 19];
    head[..8].copy_from_slice(&services::fs::shown(ino).to_le_bytes());
    head[8..16].copy_from_slice(&place.to_le_bytes());
    head[16..18].copy_from_slice(&(record_of(name.len()) as u16).to_le_bytes());
    // The file type is the upper half of the mode's type bits.
    head[18] = (mode >> 12) as u8;
    out.extend_from_slice(&head);
    out.extend_from_slice(name.as_bytes());
    out.resize(used, 0);
}

/// `getdents64` of a directory that is not in a file system (`/proc` and the like).
fn list_folder(c: &mut Caller, fd: u32, folder: Folder, address: u64, size: u32) -> Result {
    c.check(address, u64::from(size), WRITE)?;
    c.h.room(192 << 10)?;
    if folder.is_below(super::interface::DIRECTORY) {
        // The entries below depend on the interfaces, which are asked for here once.
        super::interface::interfaces(c)?;
    }
    let mut place = c.p.files.get(fd)?.offset;
    let entries = crate::proc::entries(c, folder, place);
    let (mut out, mut used) = (Vec::new(), 0);
    for (at, entry) in &entries {
        let record = record_of(entry.name.len());
        if used + record > size as usize {
            if used == 0 {
                return Err(EINVAL.into());
            }
            break;
        }
        (place, used) = (at + 1, used + record);
        write_entry(&mut out, (entry.ino, entry.mode, &entry.name), place, used);
    }
    c.write(address, &out)?;
    c.p.files.get_mut(fd)?.offset = place;
    Ok(used as u64)
}

/// Lists of entries that one turn skips on the way to the position of an open directory.
const PASSED_AT_ONCE: u64 = 8;

/// Reads the list of directory entries from a cookie on into `chunk`; returns its length in bytes.
fn read_list(c: &mut Caller, ino: u64, cookie: u64, chunk: &mut [u8]) -> Result<usize> {
    let room = &mut chunk[..services::fs::ENTRIES_ROOM];
    let (_, came) = c.h.fs(&Request::ReadDir { ino, cookie }, &[], room)?;
    Ok(came.min(room.len()))
}

/// Advances towards the position `place` that `lseek` has set in an open directory. Positions count entries from the
/// beginning, so lists are skipped. Returns how many entries of the list at `cookie` are before the position; takes
/// another turn if it is not reached.
fn pass(c: &mut Caller, fd: u32, ino: u64, cookie: &mut u64, place: u64) -> Result<u64> {
    let mut left = place - c.progress().min(place);
    let mut chunk = c.s.take_chunk();
    let is_there = pass_lists(c, ino, cookie, &mut left, &mut chunk);
    c.s.give_chunk(chunk);
    if is_there? {
        return Ok(left);
    }
    // The cookie reached is kept with the directory, the number of entries before it with the call.
    if let Kind::Directory { cookie: kept, .. } = &mut c.p.files.get_mut(fd)?.kind {
        *kept = *cookie;
    }
    Err(c.turn(place - left))
}

/// Skips lists with `left` entries in all, at most [`PASSED_AT_ONCE`] of them. Returns whether the position is in the
/// list at `cookie`, or the directory ends there.
fn pass_lists(
    c: &mut Caller,
    ino: u64,
    cookie: &mut u64,
    left: &mut u64,
    chunk: &mut [u8],
) -> Result<bool> {
    for _ in 0..PASSED_AT_ONCE {
        let came = read_list(c, ino, *cookie, chunk)?;
        let (next, entries) = services::fs::listing(&chunk[..came])?;
        let count = entries.count() as u64;
        if count == 0 {
            *left = 0;
        }
        if count == 0 || count > *left {
            return Ok(true);
        }
        *left -= count;
        *cookie = next;
    }
    Ok(false)
}

/// `getdents64`.
pub fn getdents64(c: &mut Caller, fd: u32, address: u64, size: u32) -> Result {
    let open = c.p.files.get(fd)?;
    let place = open.offset;
    let (ino, is_new, mut cookie) = match &open.kind {
        Kind::Directory {
            ino,
            pending,
            cookie,
        } => (*ino, pending.is_empty() && *cookie == 0, *cookie),
        Kind::Folder(folder) => {
            let folder = *folder;
            drop(open);
            return list_folder(c, fd, folder, address, size);
        }
        _ => return Err(ENOTDIR.into()),
    };
    drop(open);
    c.check(address, u64::from(size), WRITE)?;
    // A position other than 0 where nothing has been read yet was set by `lseek`.
    let is_set = is_new && place > 0 || c.progress() > 0;
    let before = match is_set {
        true => pass(c, fd, ino, &mut cookie, place)?,
        false => 0,
    };
    // More entries would take too long a step, and `mod.rs` (`room`) accounts for no more memory.
    let size = (size as usize).min(MAX_LISTED);
    let mut listed = Listing {
        size,
        out: Vec::with_capacity(size.min(4096)),
        place,
        done: 0,
        rest: Vec::new(),
    };
    let mut pending = match &mut c.p.files.get_mut(fd)?.kind {
        Kind::Directory { pending, .. } => core::mem::take(pending),
        _ => return Err(ENOTDIR.into()),
    };
    let mut chunk = c.s.take_chunk();
    let from = (ino, before);
    let result = list(c, &mut listed, &pending, from, &mut cookie, &mut chunk);
    c.s.give_chunk(chunk);
    let result = result.and_then(|()| c.write(address, &listed.out));
    if result.is_ok() {
        super::inotify::did(c, fd, linux::IN_ACCESS);
        pending.drain(..listed.done);
        pending.append(&mut listed.rest);
    }
    let mut description = c.p.files.get_mut(fd)?;
    if let Kind::Directory {
        pending: kept,
        cookie: reached,
        ..
    } = &mut description.kind
    {
        *kept = pending;
        if result.is_ok() {
            *reached = cookie;
        }
    }
    result?;
    description.offset = listed.place;
    Ok(listed.out.len() as u64)
}

/// The directory entries that a call returns.
struct Listing {
    /// Most bytes of `out`.
    size: usize,
    /// Entries as `struct linux_dirent64`, and the position behind the last one.
    out: Vec<u8>,
    place: u64,
    /// How many entries of the directory's `pending` are in `out`, and the entries of the last list that did not fit.
    done: usize,
    rest: Vec<Entry>,
}

impl Listing {
    /// Appends an entry; `false` if it does not fit.
    fn put(&mut self, entry: Listed<'_>) -> bool {
        let used = self.out.len() + record_of(entry.2.len());
        if used > self.size {
            return false;
        }
        self.place += 1;
        write_entry(&mut self.out, entry, self.place, used);
        true
    }
}

/// Lists the pending entries, then those of the directory from `cookie` on without the first `before`. Errors: `EINVAL`
/// if not even one entry fits.
fn list(
    c: &mut Caller,
    listed: &mut Listing,
    pending: &[Entry],
    (ino, mut before): (u64, u64),
    cookie: &mut u64,
    chunk: &mut [u8],
) -> Result<()> {
    for Entry { ino, mode, name } in pending {
        if !listed.put((*ino, *mode, name)) {
            break;
        }
        listed.done += 1;
    }
    let mut goes_on = listed.done == pending.len();
    while goes_on {
        let came = read_list(c, ino, *cookie, chunk)?;
        let (next, entries) = services::fs::listing(&chunk[..came])?;
        *cookie = next;
        let mut entries = entries.peekable();
        goes_on = entries.peek().is_some();
        for entry in entries {
            let (ino, mode, name) = entry?;
            if before > 0 {
                before -= 1;
                continue;
            }
            let mode = c.s.nodes.mode(ino).unwrap_or(mode);
            if listed.rest.is_empty() && listed.put((ino, mode, name)) {
                continue;
            }
            let name = name.into();
            listed.rest.push(Entry { ino, mode, name });
            goes_on = false;
        }
    }
    let is_short = listed.done < pending.len() || !listed.rest.is_empty();
    match listed.out.is_empty() && is_short {
        true => Err(EINVAL.into()),
        false => Ok(()),
    }
}

/// For `mmap`: the inode that the file descriptor is open on, and whether it is writable; `None` for `/dev/zero`.
pub fn mappable(c: &Caller, fd: i32) -> Result<Option<(u64, bool)>> {
    let description = c.p.files.get(fd as u32)?;
    if !description.readable() {
        return Err(crate::errno::EACCES.into());
    }
    match description.kind {
        Kind::File { ino } => Ok(Some((ino, description.writable()))),
        Kind::Device(Device::Zero) => Ok(None),
        _ => Err(ENODEV.into()),
    }
}
