//! Sending bytes, datagrams and control messages.

use super::name::{read_name, target, Written};
use super::outside::reach;
use super::{blocked, blocked_by, find, msg, netlink, of, sender, CREDENTIALS, HEAD, RIGHTS};
use crate::calls::file::pieces;
use crate::emulate::{Caller, Result, Stop};
use crate::errno::{
    Errno, EBADF, ECONNREFUSED, EDESTADDRREQ, EFAULT, EINVAL, EISCONN, EMSGSIZE, ENOTCONN, ENOTSUP,
    EPERM, EPIPE, EPROTOTYPE, ESRCH,
};
use crate::memory::READ;
use crate::outside::{is_outside, LONGEST};
use crate::process::{open_flags, Description, Shared};
use crate::socket::{
    is_any, is_mapped, mapped, Delivery, Family, Message, Name, Sender, State, Style, LOOPBACK_4,
    LOOPBACK_6, MAX_RIGHTS,
};
use crate::system::{Key, Which};
use crate::wire::{u32_at, u64_at};
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::net;

/// Most bytes of a stream that are put into the peer's queue at once.
const PIECE: usize = 16 << 10;
/// Most bytes of a UDP datagram.
const MAX_UDP: usize = 65_507;

/// What a call sends.
struct Outgoing<'a> {
    ranges: &'a [(u64, u64)],
    /// The bytes to send if they come from a file (`sendfile`), not from `ranges`; of a message, as many as fit are
    /// sent.
    given: Option<&'a [u8]>,
    total: u64,
    flags: u32,
    to: Option<Written>,
    sender: Sender,
    rights: Vec<Shared<Description>>,
}

/// Asks for the memory that a message of `length` bytes takes in the queue of the socket `to`.
fn message_room(c: &mut Caller, to: Option<u64>, length: usize) -> Result<()> {
    let growth = to.map_or(0, |to| c.s.sockets.growth(to));
    c.h.room(2 * length as u64 + growth)?;
    Ok(())
}

/// Reads `length` bytes of several ranges, from their byte `done` on.
fn copy_in(
    c: &mut Caller,
    to: Option<u64>,
    ranges: &[(u64, u64)],
    done: u64,
    length: usize,
) -> Result<Vec<u8>> {
    message_room(c, to, length)?;
    let mut bytes = Vec::with_capacity(length);
    for (address, part) in pieces(ranges, done, length) {
        let start = bytes.len();
        c.check(address, part as u64, READ)?;
        bytes.resize(start + part, 0);
        c.h.read_memory(address, &mut bytes[start..])?;
    }
    // The program may have changed the ranges since the length was computed.
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(EFAULT.into()),
    }
}

/// The error of a call whose peer takes nothing any more: `EPIPE`. `SIGPIPE` is sent only for a stream, and only if
/// nothing was sent.
fn broken(c: &mut Caller, style: Style, flags: u32, are_sent: bool) -> Stop {
    if style == Style::Stream && flags & msg::NOSIGNAL == 0 && !are_sent {
        crate::calls::signal::broken_pipe(c);
    }
    EPIPE.into()
}

/// The socket at the other end of the connection; `None` if TCP data is to be dropped because the peer is gone. If some
/// bytes `are_sent` already, the call returns their number, so an error of the socket is left for the next call.
fn connected(c: &mut Caller, id: u64, flags: u32, are_sent: bool) -> Result<Option<u64>> {
    let still_comes = c.s.still_comes(id);
    let socket = c.s.socket(id)?;
    let is_unix = socket.family == Family::Unix;
    if !is_unix {
        if let (Some(error), true) = (socket.error, are_sent) {
            return Err(Errno(error).into());
        }
        if let Some(error) = socket.error.take() {
            socket.shut = (!still_comes, true);
            if error != EPIPE.0 {
                return Err(Errno(error).into());
            }
        }
    }
    let (shut, state, peer) = (socket.shut, socket.state, socket.peer);
    let style = socket.style;
    if state != State::Connected && is_unix {
        return Err(ENOTCONN.into());
    }
    let Some(peer) = peer.filter(|_| !shut.1 && state == State::Connected) else {
        if !is_unix && state == State::Connected && !shut.1 {
            // As over a network, the data is sent, and the answer is that the connection does not exist.
            c.s.socket(id)?.error = Some(EPIPE.0);
            c.s.wake(Key::Socket(id));
            return Ok(None);
        }
        return Err(broken(c, style, flags, are_sent));
    };
    match is_unix && find(c, peer)?.shut.0 {
        true => Err(broken(c, style, flags, are_sent)),
        false => Ok(Some(peer)),
    }
}

fn send(c: &mut Caller, fd: u32, out: Outgoing) -> Result {
    let (id, own) = of(c, fd)?;
    let nonblocking = (own & open_flags::NONBLOCK != 0) || out.flags & msg::DONTWAIT != 0;
    let socket = find(c, id)?;
    if out.flags & msg::OOB != 0 {
        return Err(ENOTSUP.into());
    }
    match socket.style {
        Style::Stream => send_bytes(c, id, nonblocking, out),
        Style::Packets | Style::Datagram => send_message(c, id, nonblocking, out),
    }
}

fn send_bytes(c: &mut Caller, id: u64, nonblocking: bool, out: Outgoing) -> Result {
    let socket = find(c, id)?;
    if out.to.is_some() && socket.family == Family::Unix {
        let is_connected = socket.state == State::Connected;
        return Err(if is_connected { EISCONN } else { ENOTSUP }.into());
    }
    let mut done = c.p.task.wait.map_or(0, |wait| wait.progress);
    let mut rights = if done == 0 { out.rights } else { Vec::new() };
    if c.s.is_connecting(id) {
        return blocked(c, id, nonblocking, net::SO_SNDTIMEO);
    }
    if out.total == 0 {
        connected(c, id, out.flags, false)?;
    }
    while done < out.total {
        let sent = connected(c, id, out.flags, done > 0).and_then(|peer| {
            let length = (out.total - done).min(PIECE as u64) as usize;
            let bytes = copy_in(c, peer, out.ranges, done, length)?;
            let Some(peer) = peer else {
                return Ok(Delivery::Taken(length));
            };
            let message = Message {
                bytes,
                sender: out.sender,
                rights: rights.clone(),
                payer: c.process().payer,
                ..Message::default()
            };
            Ok(c.s.deliver(peer, message)?)
        });
        let stopped = match sent {
            Ok(Delivery::Taken(taken)) => {
                rights.clear();
                done += taken as u64;
                continue;
            }
            Ok(Delivery::Full(peer)) => blocked_by(c, id, peer, nonblocking),
            Err(stop) => Err(stop),
        };
        match stopped {
            Err(Stop::Park(wake)) => {
                if done > 0 {
                    c.wait().progress = done;
                }
                return Err(Stop::Park(wake));
            }
            Err(Stop::Errno(_)) if done > 0 => break,
            other => return other,
        }
    }
    Ok(done)
}

/// The socket that a message goes to, and the name of its sender; no socket if nobody listens at the port. For a
/// message to another machine: the socket's outbox, and the name of the addressee.
fn receiver(c: &mut Caller, id: u64, out: &mut Outgoing) -> Result<(Option<u64>, Option<Name>)> {
    let to = out.to.take();
    let socket = c.s.socket(id)?;
    let (style, family, state) = (socket.style, socket.family, socket.state);
    if style == Style::Packets {
        if to.is_some() {
            let is_connected = state == State::Connected;
            return Err(if is_connected { EISCONN } else { ENOTSUP }.into());
        }
        let name = socket.name.clone();
        return Ok((connected(c, id, out.flags, false)?, name));
    }
    if let Some(error) = socket.error.take() {
        return Err(Errno(error).into());
    }
    if socket.shut.1 {
        return Err(EPIPE.into());
    }
    let name = match to {
        Some(Written::NoFamily | Written::Nothing) => return Err(EINVAL.into()),
        Some(Written::Port(address, port)) if is_outside(address) => Name::Port(address, port),
        Some(name) => target(c, name)?,
        None => {
            let socket = find(c, id)?;
            let none = if family == Family::Unix {
                ENOTCONN
            } else {
                EDESTADDRREQ
            };
            if family == Family::Unix && state == State::Connected {
                let peer = socket.peer.filter(|peer| c.s.sockets.find(*peer).is_some());
                let name = socket.name.clone();
                return Ok((Some(peer.ok_or(ECONNREFUSED)?), name));
            }
            socket.peer_name.clone().ok_or(none)?
        }
    };
    if let Name::Port(address, _) = name {
        if is_outside(address) {
            reach(c, id, address)?;
            // A message in the outbox carries the name of its addressee.
            return Ok((c.s.outbox(id), Some(name)));
        }
        if find(c, id)?.name.is_none() {
            let any = if family == Family::V4 { mapped(0) } else { 0 };
            let port = c.s.free_port(id, any)?;
            c.s.set_name(id, Name::Port(any, port));
        }
        let Some(Name::Port(from, port)) = find(c, id)?.name else {
            return Err(EINVAL.into());
        };
        let own = if is_mapped(address) {
            LOOPBACK_4
        } else {
            LOOPBACK_6
        };
        let from = Name::Port(if is_any(from) { own } else { from }, port);
        let found = c.s.sockets.receiver(&name, style, Some(&from));
        if found.is_none() && state == State::Connected {
            c.s.socket(id)?.error = Some(ECONNREFUSED.0);
            c.s.wake(Key::Socket(id));
        }
        return Ok((found, Some(from)));
    }
    let found = c.s.sockets.by_name(&name, style).ok_or(ECONNREFUSED)?;
    let other = find(c, found)?;
    if other.style != Style::Datagram {
        return Err(EPROTOTYPE.into());
    }
    if other.peer.is_some_and(|peer| peer != id) {
        return Err(EPERM.into());
    }
    Ok((Some(found), find(c, id)?.name.clone()))
}

fn send_message(c: &mut Caller, id: u64, nonblocking: bool, mut out: Outgoing) -> Result {
    if find(c, id)?.family == Family::Netlink {
        let (to, total) = (out.to.take(), out.total);
        return netlink::send(c, id, to, total, |c, length| match out.given {
            Some(bytes) => Ok(bytes[..length].to_vec()),
            None => copy_in(c, None, out.ranges, 0, length),
        });
    }
    let is_port = find(c, id)?.family != Family::Unix;
    let mut longest = if is_port { MAX_UDP } else { usize::MAX };
    if out.total > longest as u64 && out.given.is_none() {
        return Err(EMSGSIZE.into());
    }
    let (to, from) = receiver(c, id, &mut out)?;
    if let Some(to) = to {
        let is_outside = c.s.outbox(id) == Some(to);
        let room = find(c, to)?.longest();
        if is_port && !is_outside && out.given.is_none() && out.total > room as u64 {
            // As on any network, a datagram that does not fit is lost: the receiver's queue is small, and the sender
            // does not know it.
            return Ok(out.total);
        }
        longest = longest.min(room);
        longest = longest.min(if is_outside { LONGEST } else { usize::MAX });
    }
    if out.total > longest as u64 {
        if out.given.is_none() {
            return Err(EMSGSIZE.into());
        }
        out.total = longest as u64;
    }
    let Some(to) = to else {
        return Ok(out.total);
    };
    if find(c, to)?.shut.0 && !is_port {
        return Err(EPIPE.into());
    }
    let bytes = match out.given {
        Some(bytes) => {
            message_room(c, Some(to), bytes.len())?;
            bytes[..bytes.len().min(longest)].to_vec()
        }
        None => copy_in(c, Some(to), out.ranges, 0, out.total as usize)?,
    };
    let message = Message {
        bytes,
        from,
        sender: out.sender,
        rights: out.rights,
        payer: c.process().payer,
        ..Message::default()
    };
    match c.s.deliver(to, message)? {
        Delivery::Taken(taken) => Ok(taken as u64),
        // As on any network, a datagram that does not fit is lost.
        Delivery::Full(to) if is_port && c.s.outbox(id) != Some(to) => Ok(out.total),
        Delivery::Full(to) => blocked_by(c, id, to, nonblocking),
    }
}

/// `write` and `writev`: sends several ranges.
pub fn write(c: &mut Caller, fd: u32, ranges: &[(u64, u64)], total: u64) -> Result {
    let sender = sender(c);
    let out = Outgoing {
        ranges,
        given: None,
        total,
        flags: 0,
        to: None,
        sender,
        rights: Vec::new(),
    };
    send(c, fd, out)
}

/// `sendfile` to a socket: sends as many of the bytes as fit into the peer's queue, or into one message; returns how
/// many. `are_sent`: the same call has sent bytes before.
pub fn put(c: &mut Caller, id: u64, flags: u32, bytes: &[u8], are_sent: bool) -> Result<usize> {
    let sender = sender(c);
    if find(c, id)?.style != Style::Stream {
        let out = Outgoing {
            ranges: &[],
            given: Some(bytes),
            total: bytes.len() as u64,
            flags: 0,
            to: None,
            sender,
            rights: Vec::new(),
        };
        let sent = send_message(c, id, flags & open_flags::NONBLOCK != 0, out)?;
        return Ok(sent as usize);
    }
    let Some(peer) = connected(c, id, 0, are_sent)? else {
        return Ok(bytes.len());
    };
    message_room(c, Some(peer), bytes.len())?;
    let message = Message {
        bytes: bytes.to_vec(),
        sender,
        ..Message::default()
    };
    match c.s.deliver(peer, message)? {
        Delivery::Taken(taken) => {
            // A program may take a short count for a full queue and wait until there is room.
            if taken < bytes.len() {
                c.s.blocks(peer, id);
            }
            Ok(taken)
        }
        Delivery::Full(peer) => blocked_by(c, id, peer, flags & open_flags::NONBLOCK != 0),
    }
}

/// `sendto`.
pub fn sendto(c: &mut Caller, [fd, at, length, flags, name, name_length]: [u64; 6]) -> Result {
    let (id, _) = of(c, fd as u32)?;
    let family = find(c, id)?.family;
    let to = match name {
        0 => None,
        name => Some(read_name(c, family, name, name_length as u32)?),
    };
    c.check(at, length, READ)?;
    let sender = sender(c);
    let out = Outgoing {
        ranges: &[(at, length)],
        given: None,
        total: length,
        flags: flags as u32,
        to,
        sender,
        rights: Vec::new(),
    };
    send(c, fd as u32, out)
}

/// The fields of a `struct msghdr`.
pub(super) struct Header {
    pub(super) name: u64,
    pub(super) name_length: u32,
    pub(super) ranges: Vec<(u64, u64)>,
    pub(super) control: u64,
    pub(super) control_length: u64,
}

pub(super) fn header(c: &mut Caller, at: u64) -> Result<Header> {
    let raw = c.read(at, 56)?;
    let (list, count) = (u64_at(&raw, 16), u64_at(&raw, 24));
    if count > 1024 {
        return Err(EMSGSIZE.into());
    }
    Ok(Header {
        name: u64_at(&raw, 0),
        name_length: u32_at(&raw, 8),
        ranges: crate::calls::file::vector(c, list, count)?,
        control: u64_at(&raw, 32),
        control_length: u64_at(&raw, 40),
    })
}

/// `sendmsg`.
pub fn sendmsg(c: &mut Caller, fd: u32, at: u64, flags: u32) -> Result {
    let (id, _) = of(c, fd)?;
    let family = find(c, id)?.family;
    let header = header(c, at)?;
    let to = match header.name {
        0 => None,
        _ if header.name_length == 0 => None,
        name => Some(read_name(c, family, name, header.name_length)?),
    };
    let mut sender = sender(c);
    let mut rights = Vec::new();
    if header.control != 0 && header.control_length >= HEAD as u64 {
        if header.control_length > 4096 {
            return Err(crate::errno::ENOMEM.into());
        }
        let raw = c.read(header.control, header.control_length as usize)?;
        control(c, family, &raw, &mut sender, &mut rights)?;
    }
    let out = Outgoing {
        total: header.ranges.iter().map(|range| range.1).sum(),
        ranges: &header.ranges,
        given: None,
        flags,
        to,
        sender,
        rights,
    };
    send(c, fd, out)
}

/// Reads the control messages of a message: descriptors to pass, and the sender's credentials.
fn control(
    c: &mut Caller,
    family: Family,
    mut raw: &[u8],
    sender: &mut Sender,
    rights: &mut Vec<Shared<Description>>,
) -> Result<()> {
    while raw.len() >= HEAD {
        let length = u64_at(raw, 0);
        if length < HEAD as u64 || length > raw.len() as u64 {
            return Err(EINVAL.into());
        }
        let body = &raw[HEAD..length as usize];
        let is_ours = u32_at(raw, 8) == net::SOL_SOCKET;
        match u32_at(raw, 12) {
            _ if !is_ours => {}
            RIGHTS if family == Family::Unix => {
                if rights.len() + body.len() / 4 > MAX_RIGHTS {
                    return Err(EINVAL.into());
                }
                for fd in body.chunks_exact(4) {
                    let fd = c.p.files.fds.get(u32_at(fd, 0)).ok_or(EBADF)?;
                    rights.push(Rc::clone(&fd.description));
                }
            }
            CREDENTIALS if family == Family::Unix => {
                if body.len() != 12 {
                    return Err(EINVAL.into());
                }
                let [number, uid, gid] = [0, 4, 8].map(|at| u32_at(body, at));
                let own = c.p.task.number;
                let ids = &c.process().ids;
                // Root may name any existing process, user and group; others only their own numbers.
                let is_own = number == own && ids.uid.contains(&uid) && ids.gid.contains(&gid);
                if !ids.is_root() && !is_own {
                    return Err(EPERM.into());
                }
                if c.s.those(c.p.task.pid, Which::Number(number)).is_empty() {
                    return Err(ESRCH.into());
                }
                *sender = Sender(number, uid, gid);
            }
            _ => return Err(EINVAL.into()),
        }
        let next = (length as usize).next_multiple_of(8).min(raw.len());
        raw = &raw[next..];
    }
    Ok(())
}
