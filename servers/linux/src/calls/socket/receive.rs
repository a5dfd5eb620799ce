//! Receiving bytes, datagrams and control messages.

use super::name::{give_name, written};
use super::send::{header, sendmsg};
use super::{blocked, find, msg, of, CREDENTIALS, HEAD, MAX_NAME, RIGHTS};
use crate::calls::file::pieces;
use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{Errno, EAGAIN, EFAULT, EINVAL, ENOTCONN, EPIPE};
use crate::memory::{READ, WRITE};
use crate::process::{open_flags, release_dropped, Description, Fd, Shared};
use crate::socket::{Family, Name, Sender, Socket, State, Style, MAX_RIGHTS};
use crate::wire::{u32_at, Writer};
use alloc::vec::Vec;
use linux_raw_sys::net;

/// What a call has received.
#[derive(Default)]
struct Incoming {
    /// Number of bytes received, and length of the message.
    taken: usize,
    whole: usize,
    from: Option<Name>,
    sender: Sender,
    rights: Vec<Shared<Description>>,
}

/// Writes bytes into several ranges, from their byte `done` on. Errors: `EFAULT`.
fn copy_out(c: &mut Caller, ranges: &[(u64, u64)], done: u64, bytes: &[u8]) -> Result<()> {
    let mut moved = 0;
    for (address, part) in pieces(ranges, done, bytes.len()) {
        c.write(address, &bytes[moved..moved + part])?;
        moved += part;
    }
    match moved == bytes.len() {
        true => Ok(()),
        false => Err(EFAULT.into()),
    }
}

/// The queue is empty: `Ok` at the end of the data, an error, or parks the call. If the call has received something
/// already (`is_more`) it returns that, and an error of the socket is left for the next call.
fn nothing(c: &mut Caller, id: u64, nonblocking: bool, is_more: bool) -> Result<()> {
    let socket = c.s.socket(id)?;
    if socket.error.is_some() && is_more {
        return Ok(());
    }
    if c.s.still_comes(id) {
        // Data that arrived before the error is read first.
        return blocked(c, id, nonblocking, net::SO_RCVTIMEO);
    }
    let socket = c.s.socket(id)?;
    if let Some(error) = socket.error.take() {
        if socket.style != Style::Datagram && socket.family != Family::Unix {
            socket.shut = (true, true);
        }
        return match error == EPIPE.0 && socket.family != Family::Unix {
            true => Ok(()),
            false => Err(Errno(error).into()),
        };
    }
    let socket = find(c, id)?;
    if is_at_end(c, socket) {
        return Ok(());
    }
    blocked(c, id, nonblocking, net::SO_RCVTIMEO)
}

/// Whether no more data can come.
fn is_at_end(c: &Caller, socket: &Socket) -> bool {
    let peer = socket.peer.and_then(|peer| c.s.sockets.find(peer));
    socket.shut.0 || socket.style != Style::Datagram && peer.is_none_or(|peer| peer.shut.1)
}

fn receive(c: &mut Caller, fd: u32, ranges: &[(u64, u64)], flags: u32) -> Result<Incoming> {
    let (id, own) = of(c, fd)?;
    let nonblocking = (own & open_flags::NONBLOCK != 0) || flags & msg::DONTWAIT != 0;
    let total = ranges
        .iter()
        .map(|range| range.1)
        .fold(0u64, u64::saturating_add);
    c.h.room(256 << 10)?;
    let socket = find(c, id)?;
    if flags & msg::OOB != 0 {
        return Err(EINVAL.into());
    }
    if flags & msg::ERRQUEUE != 0 {
        // The error queue is always empty, and reads from it never wait.
        return Err(EAGAIN.into());
    }
    match (socket.style, socket.family, socket.state) {
        (Style::Datagram, ..) | (_, _, State::Connected) => {}
        (Style::Stream, Family::Unix, _) => return Err(EINVAL.into()),
        _ if c.s.is_connecting(id) => return blocked(c, id, nonblocking, net::SO_RCVTIMEO),
        // The failure of `connect` is reported once, to the first call that asks.
        _ => {
            let error = c.s.socket(id)?.error.take().map(Errno);
            return Err(error.unwrap_or(ENOTCONN).into());
        }
    }
    if socket.style == Style::Stream {
        return receive_bytes(c, id, ranges, total, flags, nonblocking);
    }
    let Some(first) = socket.queue.front() else {
        nothing(c, id, nonblocking, false)?;
        return Ok(Incoming::default());
    };
    let bytes = first.rest();
    let whole = bytes.len();
    let taken = (whole as u64).min(total) as usize;
    let bytes = bytes[..taken].to_vec();
    let (from, sender) = (first.from.clone(), first.sender);
    let mut rights = first.rights.clone();
    copy_out(c, ranges, 0, &bytes)?;
    if flags & msg::PEEK == 0 {
        rights = c.s.taken(id, taken, true);
    }
    Ok(Incoming {
        taken,
        whole,
        from,
        sender,
        rights,
    })
}

fn receive_bytes(
    c: &mut Caller,
    id: u64,
    ranges: &[(u64, u64)],
    total: u64,
    flags: u32,
    nonblocking: bool,
) -> Result<Incoming> {
    let peeks = flags & msg::PEEK != 0;
    let is_unix = find(c, id)?.family == Family::Unix;
    // For TCP, `MSG_TRUNC` discards the bytes.
    let drops = flags & msg::TRUNC != 0 && !is_unix;
    let mut done = c.p.task.wait.map_or(0, |wait| wait.progress);
    let mut into = Incoming::default();
    let mut index = 0;
    while done < total {
        let socket = find(c, id)?;
        let passes = socket.option(net::SOL_SOCKET, net::SO_PASSCRED) != 0;
        let Some(message) = socket.queue.get(index) else {
            if done > 0 && (flags & msg::WAITALL == 0 || peeks) {
                break;
            }
            match nothing(c, id, nonblocking, done > 0) {
                Err(Stop::Park(wake)) => {
                    if done > 0 {
                        c.wait().progress = done;
                    }
                    return Err(Stop::Park(wake));
                }
                Err(Stop::Errno(_)) if done > 0 => break,
                Err(stop) => return Err(stop),
                Ok(()) => break,
            }
        };
        // Data of another sender, or with descriptors, is not joined with the data before it.
        let is_other = passes && message.sender != into.sender;
        if into.taken > 0 && (is_other || !message.rights.is_empty()) {
            break;
        }
        let rest = message.rest();
        let length = (rest.len() as u64).min(total - done) as usize;
        let bytes = rest[..length].to_vec();
        let sender = message.sender;
        let rights = message.rights.clone();
        let copied = match drops {
            true => Ok(()),
            false => copy_out(c, ranges, done, &bytes),
        };
        if let Err(stop) = copied {
            match done > 0 {
                true => break,
                false => return Err(stop),
            }
        }
        into.sender = sender;
        into.taken += length;
        done += length as u64;
        if peeks {
            into.rights = rights;
            index += 1;
        } else {
            drop(rights);
            into.rights = c.s.taken(id, length, false);
        }
        if !into.rights.is_empty() {
            break;
        }
    }
    into.taken = done as usize;
    into.whole = into.taken;
    Ok(into)
}

/// Closes received descriptors that the program does not take.
fn drop_rights(c: &mut Caller, rights: Vec<Shared<Description>>) {
    if !rights.is_empty() {
        c.s.dropped.extend(rights);
        release_dropped(c.s, c.h);
        c.s.clear_circles();
        release_dropped(c.s, c.h);
    }
}

/// `read` and `readv`: receives into several ranges.
pub fn read(c: &mut Caller, fd: u32, ranges: &[(u64, u64)]) -> Result {
    let got = receive(c, fd, ranges, 0)?;
    drop_rights(c, got.rights);
    Ok(got.taken as u64)
}

/// The number that a receiving call returns: with `MSG_TRUNC` the length of the whole message.
fn length(got: &Incoming, flags: u32) -> u64 {
    match flags & msg::TRUNC != 0 {
        true => got.whole as u64,
        false => got.taken as u64,
    }
}

/// The name of the sender as a `struct sockaddr`; empty over connections.
fn name_from(c: &Caller, fd: u32, got: &Incoming) -> Result<Vec<u8>> {
    let (id, _) = of(c, fd)?;
    let family = find(c, id)?.family;
    Ok(match &got.from {
        Some(name) => written(family, Some(name)),
        None => Vec::new(),
    })
}

/// `recvfrom`.
pub fn recvfrom(c: &mut Caller, [fd, at, size, flags, name, name_length]: [u64; 6]) -> Result {
    let (fd, flags) = (fd as u32, flags as u32);
    if name != 0 {
        c.check(name_length, 4, READ | WRITE)?;
        let room = u32_at(&c.read(name_length, 4)?, 0).min(MAX_NAME);
        c.check(name, u64::from(room), WRITE)?;
    }
    let got = receive(c, fd, &[(at, size)], flags)?;
    let from = name_from(c, fd, &got)?;
    let length = length(&got, flags);
    drop_rights(c, got.rights);
    give_name(c, name, name_length, &from)?;
    Ok(length)
}

/// `recvmsg`.
pub fn recvmsg(c: &mut Caller, fd: u32, at: u64, flags: u32) -> Result {
    let mut rest = Vec::new();
    let received = receive_message(c, fd, at, flags, &mut rest);
    drop_rights(c, rest);
    received
}

/// Receives one message of `recvmsg` or `recvmmsg`. Descriptors that do not fit are added to `rest`; the caller drops
/// them.
fn receive_message(
    c: &mut Caller,
    fd: u32,
    at: u64,
    flags: u32,
    rest: &mut Vec<Shared<Description>>,
) -> Result {
    let header = header(c, at)?;
    c.check(at, 56, WRITE)?;
    let name_room = header.name_length.min(MAX_NAME);
    if header.name_length > i32::MAX as u32 {
        return Err(EINVAL.into());
    }
    if header.name != 0 {
        c.check(header.name, u64::from(name_room), WRITE)?;
    }
    // The largest control data possible: credentials and descriptors.
    let room = match header.control {
        0 => 0,
        _ => header
            .control_length
            .min(2 * HEAD as u64 + 16 + 4 * MAX_RIGHTS as u64 + 4),
    };
    c.check(header.control, room, WRITE)?;
    let (id, _) = of(c, fd)?;
    let got = receive(c, fd, &header.ranges, flags)?;
    let length = length(&got, flags);
    let mut result = flags & msg::CMSG_CLOEXEC;
    if got.taken < got.whole {
        result |= msg::TRUNC;
    }
    let from = name_from(c, fd, &got)?;
    let socket = find(c, id)?;
    let passes = socket.option(net::SOL_SOCKET, net::SO_PASSCRED) != 0;
    let mut out = Writer::new();
    let mut used = 0;
    if passes && socket.family == Family::Unix && got.whole + got.rights.len() > 0 {
        let full = HEAD + 12;
        if room as usize >= full {
            let Sender(number, user, group) = got.sender;
            out = out
                .u64(full as u64)
                .u32(net::SOL_SOCKET)
                .u32(CREDENTIALS)
                .u32(number)
                .u32(user)
                .u32(group);
            used = full.next_multiple_of(8).min(room as usize);
            out = out.pad_to(used);
        } else {
            result |= msg::CTRUNC;
        }
    }
    let (out, rights, used) = give_rights(c, got.rights, room as usize, used, out, flags);
    if !rights.is_empty() {
        result |= msg::CTRUNC;
    }
    rest.extend(rights);
    if header.name != 0 {
        let length = from.len().min(name_room as usize);
        c.write(header.name, &from[..length])?;
    }
    c.write(at + 8, &(from.len() as u32).to_le_bytes())?;
    c.write(header.control, &out.done())?;
    c.write(at + 40, &(used as u64).to_le_bytes())?;
    c.write(at + 48, &result.to_le_bytes())?;
    Ok(length)
}

/// Gives the program as many of the descriptors as there is room for. Returns the control data, the descriptors that
/// are left, and how much of `room` is used.
fn give_rights(
    c: &mut Caller,
    mut rights: Vec<Shared<Description>>,
    room: usize,
    used: usize,
    out: Writer,
    flags: u32,
) -> (Writer, Vec<Shared<Description>>, usize) {
    let fits = room.saturating_sub(used + HEAD) / 4;
    let mut rest = rights.split_off(rights.len().min(fits));
    let cloexec = flags & msg::CMSG_CLOEXEC != 0;
    let mut numbers = Vec::new();
    let mut rights = rights.into_iter();
    for description in rights.by_ref() {
        let Ok(fd) = crate::calls::file::free_fd(c) else {
            rest.push(description);
            break;
        };
        let entry = Fd {
            description,
            cloexec,
        };
        c.p.files.fds.insert(fd, entry);
        numbers.push(fd);
    }
    rest.extend(rights);
    if numbers.is_empty() {
        return (out, rest, used);
    }
    let full = HEAD + 4 * numbers.len();
    let mut out = out.u64(full as u64).u32(net::SOL_SOCKET).u32(RIGHTS);
    for number in numbers {
        out = out.u32(number);
    }
    let end = (used + full.next_multiple_of(8)).min(room);
    (out.pad_to(end), rest, end)
}

/// Bytes of `struct mmsghdr`.
const HEADER: u64 = 64;
/// Most messages of one call, so that others get their turn: each can have a thousand ranges. Programs call again for
/// the rest.
const AT_ONCE: u32 = 64;

/// The address of entry `number` of an array of `struct mmsghdr`, which must be readable and writable.
fn one_of(c: &mut Caller, at: u64, number: u64) -> Result<u64> {
    let one = at.checked_add(number * HEADER).ok_or(EFAULT)?;
    c.check(one, HEADER, READ | WRITE)?;
    Ok(one)
}

/// A message of several has been sent or received: writes its length.
fn moved(c: &mut Caller, one: u64, length: u64) -> Result<()> {
    // The progress was that of this message, not of the next one.
    if let Some(wait) = &mut c.p.task.wait {
        wait.progress = 0;
    }
    c.write(one + 56, &(length as u32).to_le_bytes())
}

/// `sendmmsg`: waits for the first message, then sends as many as go without waiting. While the call waits for the
/// disk, where the name of the next message is looked up, it keeps the number of messages sent. Only datagrams have
/// names, and these are never sent in parts, so the progress means nothing else then.
pub fn sendmmsg(c: &mut Caller, fd: u32, at: u64, count: u32, flags: u32) -> Result {
    let (id, _) = of(c, fd)?;
    let is_whole = find(c, id)?.style == Style::Datagram;
    let mut done = match &mut c.p.task.wait {
        Some(wait) if is_whole => core::mem::take(&mut wait.progress),
        _ => 0,
    };
    while done < u64::from(count.min(AT_ONCE)) {
        let one = one_of(c, at, done)?;
        let further = if done > 0 { msg::DONTWAIT } else { 0 };
        match sendmsg(c, fd, one, flags | further) {
            Ok(length) => moved(c, one, length)?,
            Err(Stop::Errno(_) | Stop::Park(_)) if done > 0 && c.h.waits() => {
                c.wait().progress = done;
                return Err(Stop::Park(Wake::firm()));
            }
            Err(Stop::Errno(_) | Stop::Park(_)) if done > 0 => break,
            Err(stop) => return Err(stop),
        }
        done += 1;
    }
    Ok(done)
}

/// `recvmmsg`: waits for all messages; with `MSG_WAITFORONE` or a time limit for the first one only, because Linux
/// checks the limit after each message. While the call waits it keeps the number of messages received. With
/// `MSG_WAITALL` it keeps the bytes of the first message instead, so it waits for no other.
pub fn recvmmsg(
    c: &mut Caller,
    fd: u32,
    at: u64,
    count: u32,
    flags: u32,
    has_limit: bool,
) -> Result {
    let mut rest = Vec::new();
    let received = receive_messages(c, fd, (at, count), flags, has_limit, &mut rest);
    drop_rights(c, rest);
    received
}

fn receive_messages(
    c: &mut Caller,
    fd: u32,
    (at, count): (u64, u32),
    flags: u32,
    has_limit: bool,
    rest: &mut Vec<Shared<Description>>,
) -> Result {
    let for_one = has_limit || flags & (msg::WAITFORONE | msg::WAITALL) != 0;
    let mut done = match (for_one, &mut c.p.task.wait) {
        (false, Some(wait)) => core::mem::take(&mut wait.progress),
        _ => 0,
    };
    while done < u64::from(count.min(AT_ONCE)) {
        let one = one_of(c, at, done)?;
        let further = if for_one && done > 0 {
            msg::DONTWAIT
        } else {
            0
        };
        match receive_message(c, fd, one, flags | further, rest) {
            Ok(length) => moved(c, one, length)?,
            Err(Stop::Park(wake)) if done > 0 => {
                c.wait().progress = done;
                return Err(Stop::Park(wake));
            }
            // As on Linux, the next call reports that error.
            Err(Stop::Errno(errno)) if done > 0 => {
                let (id, _) = of(c, fd)?;
                if errno != EAGAIN {
                    c.s.socket(id)?.error = Some(errno.0);
                }
                break;
            }
            Err(stop) => return Err(stop),
        }
        done += 1;
    }
    Ok(done)
}
