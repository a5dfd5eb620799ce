//! Sockets. [`crate::socket`] has what they are; here are names, control messages and options as programs write them.

use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use linux_raw_sys::net;

use crate::emulate::{Caller, Result, Stop, Target, Wake, AT_FDCWD};
use crate::errno::{
    Errno, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EBADF, ECONNREFUSED, EDESTADDRREQ,
    EEXIST, EFAULT, EINPROGRESS, EINVAL, EISCONN, EMSGSIZE, ENETUNREACH, ENOENT, ENOPROTOOPT,
    ENOTCONN, ENOTSOCK, ENOTSUP, EPERM, EPIPE, EPROTONOSUPPORT, EPROTOTYPE, ESOCKTNOSUPPORT, ESRCH,
};
use crate::memory::{READ, WRITE};
use crate::process::{open_flags, release_dropped, Description, Fd, Kind, Shared};
use crate::signal::{sig, Origin};
use crate::socket::{
    is_any, is_loopback, is_mapped, mapped, Delivery, Family, Message, Name, Sender, Socket, State,
    Style, IPPROTO_IPV6, LOOPBACK_4, LOOPBACK_6, MAX_OPTIONS, MAX_RIGHTS,
};
use crate::system::{Key, Which};
use crate::wire::{u16_at, u32_at, u64_at, Writer};

/// Flags of messages.
mod msg {
    pub(super) use linux_raw_sys::net::MSG_DONTWAIT as DONTWAIT;
    pub(super) const OOB: u32 = 1;
    pub(super) const PEEK: u32 = 2;
    pub(super) const CTRUNC: u32 = 8;
    pub(super) const TRUNC: u32 = 0x20;
    pub(super) const WAITALL: u32 = 0x100;
    pub(super) const NOSIGNAL: u32 = 0x4000;
    pub(super) const CMSG_CLOEXEC: u32 = 0x4000_0000;
}
const RIGHTS: u32 = 1;
const CREDENTIALS: u32 = 2;
/// Bytes of the head of a control message.
const HEAD: usize = 16;
/// Longest name, as Linux has it.
const MAX_NAME: u32 = 128;
/// Longest path of a name.
const MAX_PATH: usize = 108;
/// Most bytes that are moved in one step.
const PIECE: usize = 16 << 10;
/// Longest datagram of UDP.
const MAX_UDP: usize = 65_507;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;

// --- Names ---

/// A name as a program wrote it.
enum Written {
    /// Nothing: any name.
    Nothing,
    /// No family: whoever it was connected to is that no more.
    NoFamily,
    Path(Vec<u8>),
    Abstract(Vec<u8>),
    Port(u128, u16),
}

/// Reads a name.
fn read_name(c: &mut Caller, family: Family, at: u64, length: u32) -> Result<Written> {
    if length > MAX_NAME {
        return Err(EINVAL.into());
    }
    let raw = c.read(at, length as usize)?;
    if raw.len() < 2 {
        return Err(EINVAL.into());
    }
    let given = u32::from(u16_at(&raw, 0));
    if given == net::AF_UNSPEC && family != Family::Unix {
        return Ok(Written::NoFamily);
    }
    let big = |at: usize, bytes: usize| {
        let field = raw[at..at + bytes].iter();
        field.fold(0u128, |value, byte| value << 8 | u128::from(*byte))
    };
    match (family, given) {
        (Family::Unix, net::AF_UNIX) => Ok(match &raw[2..] {
            [] => Written::Nothing,
            [0, name @ ..] => Written::Abstract(name.to_vec()),
            path => {
                let end = path.iter().position(|byte| *byte == 0);
                let path = &path[..end.unwrap_or(path.len())];
                if path.len() > MAX_PATH {
                    return Err(EINVAL.into());
                }
                Written::Path(path.to_vec())
            }
        }),
        (Family::Unix, net::AF_UNSPEC) => Ok(Written::NoFamily),
        (Family::Unix, _) => Err(EINVAL.into()),
        (Family::V4 | Family::V6, net::AF_INET) if raw.len() < 16 => Err(EINVAL.into()),
        (Family::V4, net::AF_INET) => Ok(Written::Port(mapped(big(4, 4) as u32), big(2, 2) as u16)),
        (Family::V6, net::AF_INET6) if raw.len() < 24 => Err(EINVAL.into()),
        (Family::V6, net::AF_INET6) => Ok(Written::Port(big(8, 16), big(2, 2) as u16)),
        _ => Err(EAFNOSUPPORT.into()),
    }
}

/// A name as programs read it.
fn written(family: Family, name: Option<&Name>) -> Vec<u8> {
    let (address, port) = match (family, name) {
        (Family::Unix, Some(Name::File(path, _))) => {
            let out = Writer::new().u16(net::AF_UNIX as u16).bytes(path);
            return out.bytes(&[0]).done();
        }
        (Family::Unix, Some(Name::Abstract(name))) => {
            let out = Writer::new().u16(net::AF_UNIX as u16).bytes(&[0]);
            return out.bytes(name).done();
        }
        (Family::Unix, _) => return Writer::new().u16(net::AF_UNIX as u16).done(),
        (_, Some(Name::Port(address, port))) => (*address, *port),
        (Family::V4, _) => (mapped(0), 0),
        (Family::V6, _) => (0, 0),
    };
    let port = port.to_be_bytes();
    match family {
        Family::V4 => {
            let out = Writer::new().u16(net::AF_INET as u16).bytes(&port);
            out.bytes(&(address as u32).to_be_bytes()).pad_to(16).done()
        }
        _ => {
            let out = Writer::new().u16(net::AF_INET6 as u16).bytes(&port).u32(0);
            out.bytes(&address.to_be_bytes()).pad_to(28).done()
        }
    }
}

/// Writes a name where there is room for it, and how long it is.
fn give_name(c: &mut Caller, at: u64, length_at: u64, name: &[u8]) -> Result<()> {
    if at == 0 {
        return Ok(());
    }
    let room = u32_at(&c.read(length_at, 4)?, 0);
    if room > i32::MAX as u32 {
        return Err(EINVAL.into());
    }
    let length = name.len().min(room as usize);
    c.check(length_at, 4, WRITE)?;
    c.write(at, &name[..length])?;
    c.write(length_at, &(name.len() as u32).to_le_bytes())
}

/// The inode of a path that a program gave.
fn inode(c: &mut Caller, path: &[u8]) -> Result<u64> {
    let path = core::str::from_utf8(path).map_err(|_| ENOENT)?;
    match c.target(AT_FDCWD, path)? {
        Target::Path(path) => c.with_open(path, true, |_, opened| Ok(opened.ino)),
        Target::Special(_) => Err(ECONNREFUSED.into()),
    }
}

/// The name that a program means who connects or sends to it.
fn target(c: &mut Caller, name: Written) -> Result<Name> {
    Ok(match name {
        Written::Nothing | Written::NoFamily => return Err(EINVAL.into()),
        Written::Path(path) => {
            let ino = inode(c, &path)?;
            Name::File(path, ino)
        }
        Written::Abstract(name) => Name::Abstract(name),
        Written::Port(0, port) => Name::Port(LOOPBACK_6, port),
        Written::Port(address, port) if is_any(address) => Name::Port(LOOPBACK_4, port),
        Written::Port(address, _) if !is_loopback(address) => return Err(ENETUNREACH.into()),
        Written::Port(address, port) => Name::Port(address, port),
    })
}

// --- Making them ---

/// Which sockets these numbers mean.
fn which(family: u32, kind: u32, protocol: u32) -> Result<(Family, Style)> {
    let family = match family {
        net::AF_UNIX => Family::Unix,
        net::AF_INET => Family::V4,
        net::AF_INET6 => Family::V6,
        _ => return Err(EAFNOSUPPORT.into()),
    };
    let is_unix = family == Family::Unix;
    let (style, own) = match kind {
        net::SOCK_STREAM => (Style::Stream, IPPROTO_TCP),
        net::SOCK_DGRAM => (Style::Datagram, IPPROTO_UDP),
        net::SOCK_RAW if is_unix => (Style::Datagram, 0),
        net::SOCK_RAW => return Err(EPROTONOSUPPORT.into()),
        net::SOCK_SEQPACKET if is_unix => (Style::Packets, 0),
        0..=10 => return Err(ESOCKTNOSUPPORT.into()),
        _ => return Err(EINVAL.into()),
    };
    let own = if is_unix { net::AF_UNIX } else { own };
    match protocol == 0 || protocol == own {
        true => Ok((family, style)),
        false => Err(EPROTONOSUPPORT.into()),
    }
}

const FLAGS: u32 = open_flags::CLOEXEC | open_flags::NONBLOCK;

fn install(c: &mut Caller, fd: u32, id: u64, flags: u32) {
    let description = Description {
        kind: Kind::Socket { id },
        flags: open_flags::RDWR | flags & open_flags::NONBLOCK,
        offset: 0,
    };
    let cloexec = flags & open_flags::CLOEXEC != 0;
    c.p.files.install(fd, description, cloexec);
}

/// `socket`.
pub fn socket(c: &mut Caller, family: u32, kind: u32, protocol: u32) -> Result {
    if kind & !(0xf | FLAGS) != 0 {
        return Err(EINVAL.into());
    }
    let (family, style) = which(family, kind & 0xf, protocol)?;
    let fd = super::file::free_fd(c)?;
    let payer = c.process().payer;
    let id = c.s.new_socket(family, style, payer)?;
    install(c, fd, id, kind);
    Ok(u64::from(fd))
}

/// `socketpair`.
pub fn socketpair(c: &mut Caller, family: u32, kind: u32, protocol: u32, into: u64) -> Result {
    if kind & !(0xf | FLAGS) != 0 {
        return Err(EINVAL.into());
    }
    let (family, style) = which(family, kind & 0xf, protocol)?;
    if family != Family::Unix {
        return Err(ENOTSUP.into());
    }
    c.check(into, 8, WRITE)?;
    let first = super::file::free_fd(c)?;
    let second = super::file::free_fd_from(c, first + 1)?;
    let payer = c.process().payer;
    let one = c.s.new_socket(family, style, payer)?;
    let other = match c.s.new_socket(family, style, payer) {
        Ok(other) => other,
        Err(error) => {
            c.s.close_socket(one);
            return Err(error.into());
        }
    };
    let owner = sender(c);
    c.s.pair(one, other, owner);
    install(c, first, one, kind);
    install(c, second, other, kind);
    c.write(into, &Writer::new().u32(first).u32(second).done())?;
    Ok(0)
}

/// The identity of the socket behind a descriptor, and the flags of its description.
fn of(c: &Caller, fd: u32) -> Result<(u64, u32)> {
    let description = c.p.files.get(fd)?;
    match description.kind {
        _ if description.flags & open_flags::PATH != 0 => Err(EBADF.into()),
        Kind::Socket { id } => Ok((id, description.flags)),
        _ => Err(ENOTSOCK.into()),
    }
}

fn find<'a>(c: &'a Caller, id: u64) -> Result<&'a Socket> {
    Ok(c.s.sockets.find(id).ok_or(EINVAL)?)
}

/// Who the caller is.
fn sender(c: &mut Caller) -> Sender {
    let number = c.p.task.number;
    let ids = c.process().ids;
    Sender(number, ids.uid[0], ids.gid[0])
}

// --- Connections ---

/// `bind`.
pub fn bind(c: &mut Caller, fd: u32, at: u64, length: u32) -> Result {
    let (id, _) = of(c, fd)?;
    let (family, is_named) = {
        let socket = find(c, id)?;
        (socket.family, socket.name.is_some())
    };
    let name = match read_name(c, family, at, length)? {
        Written::Nothing if is_named => return Ok(0),
        Written::Path(path) if is_named => {
            let is_there = inode(c, &path).is_ok();
            return Err(if is_there { EADDRINUSE } else { EINVAL }.into());
        }
        _ if is_named => return Err(EINVAL.into()),
        Written::NoFamily if family == Family::V4 => Name::Port(mapped(0), 0),
        Written::NoFamily if family == Family::V6 => return Err(EAFNOSUPPORT.into()),
        Written::NoFamily => return Err(EINVAL.into()),
        Written::Nothing => c.s.free_name(),
        Written::Abstract(name) => Name::Abstract(name),
        Written::Path(path) => {
            let ino = make_node(c, &path)?;
            Name::File(path, ino)
        }
        Written::Port(address, _) if !is_any(address) && !is_loopback(address) => {
            return Err(EADDRNOTAVAIL.into())
        }
        Written::Port(address, 0) => Name::Port(address, c.s.free_port(id, address)?),
        Written::Port(address, port) => Name::Port(address, port),
    };
    c.s.name_socket(id, name)?;
    Ok(0)
}

/// Makes the file that stands for a socket.
fn make_node(c: &mut Caller, path: &[u8]) -> Result<u64> {
    let path = core::str::from_utf8(path).map_err(|_| EINVAL)?;
    let made = super::name::make_node(c, AT_FDCWD, path, crate::node::SOCKET | 0o777);
    made.map_err(|stop| match stop {
        Stop::Errno(EEXIST) => EADDRINUSE.into(),
        other => other,
    })
}

/// `listen`.
pub fn listen(c: &mut Caller, fd: u32, backlog: i32) -> Result {
    let (id, _) = of(c, fd)?;
    let socket = find(c, id)?;
    let (style, state, family) = (socket.style, socket.state, socket.family);
    let is_named = socket.name.is_some();
    if style == Style::Datagram {
        return Err(ENOTSUP.into());
    }
    if state == State::Connected || family == Family::Unix && !is_named {
        return Err(EINVAL.into());
    }
    if !is_named {
        let address = if family == Family::V4 { mapped(0) } else { 0 };
        let port = c.s.free_port(id, address)?;
        c.s.set_name(id, Name::Port(address, port));
    }
    // As an unsigned number, as Linux has it.
    let owner = sender(c);
    c.s.listen(id, backlog as u32 as usize, owner)?;
    Ok(0)
}

/// The call waits at a socket, at most as long as the option says, unless it must not.
fn blocked<T>(c: &mut Caller, id: u64, nonblocking: bool, timeout: u32) -> Result<T> {
    if nonblocking {
        return Err(EAGAIN.into());
    }
    let most = find(c, id)?.option(net::SOL_SOCKET, timeout);
    let deadline = match most {
        0 => None,
        most => {
            let deadline = c.deadline_after(most);
            if c.now() >= deadline {
                return Err(EAGAIN.into());
            }
            Some(deadline)
        }
    };
    Err(Stop::Park(Wake {
        deadline,
        ..Wake::on(Key::Socket(id))
    }))
}

/// `accept` and `accept4`.
pub fn accept(c: &mut Caller, fd: u32, at: u64, length_at: u64, flags: u32) -> Result {
    if flags & !FLAGS != 0 {
        return Err(EINVAL.into());
    }
    let (id, own) = of(c, fd)?;
    let socket = find(c, id)?;
    if socket.style == Style::Datagram {
        return Err(ENOTSUP.into());
    }
    if socket.state != State::Listening || socket.shut.0 {
        return Err(EINVAL.into());
    }
    let family = socket.family;
    let Some(end) = socket.ready.front().copied() else {
        return blocked(c, id, own & open_flags::NONBLOCK != 0, net::SO_RCVTIMEO);
    };
    let new = super::file::free_fd(c)?;
    let peer = find(c, end)?.peer_name.clone();
    give_name(c, at, length_at, &written(family, peer.as_ref()))?;
    c.s.accept(id);
    install(c, new, end, flags);
    Ok(u64::from(new))
}

/// `connect`.
pub fn connect(c: &mut Caller, fd: u32, at: u64, length: u32) -> Result {
    let (id, flags) = of(c, fd)?;
    let (family, style) = {
        let socket = find(c, id)?;
        (socket.family, socket.style)
    };
    let name = read_name(c, family, at, length)?;
    if let Written::NoFamily = name {
        return disconnect(c, id);
    }
    if style == Style::Datagram {
        return connect_datagrams(c, id, name);
    }
    let socket = c.s.socket(id)?;
    match socket.state {
        State::Listening if family == Family::Unix => return Err(EINVAL.into()),
        State::Listening => return Err(EISCONN.into()),
        State::Connected if core::mem::take(&mut socket.is_news) => return Ok(0),
        State::Connected => return Err(EISCONN.into()),
        State::Idle => {}
    }
    if let Some(error) = socket.error.take() {
        return Err(Errno(error).into());
    }
    let name = target(c, name)?;
    let found = c.s.sockets.by_name(&name, style);
    let is_port = family != Family::Unix;
    let nonblocking = flags & open_flags::NONBLOCK != 0;
    let owner = sender(c);
    if let Name::Port(address, _) = name {
        c.s.own_name(id, address)?;
    }
    let is_there = found.is_some();
    let result = match found {
        Some(to) => c.s.connect(id, to, (is_port.then_some(name), owner)),
        None => Err(ECONNREFUSED),
    };
    match result {
        // The answer of a connection of TCP comes later than the call goes.
        Ok(()) if nonblocking && is_port => {
            c.s.socket(id)?.is_news = true;
            Err(EINPROGRESS.into())
        }
        Err(ECONNREFUSED) if nonblocking && is_port => {
            c.s.socket(id)?.error = Some(ECONNREFUSED.0);
            c.s.wake(Key::Socket(id));
            Err(EINPROGRESS.into())
        }
        Err(EAGAIN) if is_port => Err(ECONNREFUSED.into()),
        Err(EAGAIN) if !nonblocking && is_there => {
            let to = found.unwrap_or(id);
            c.s.blocks(to, id);
            Err(Stop::Park(Wake {
                keys: Vec::from([Key::Socket(id), Key::Socket(to)]),
                ..Wake::default()
            }))
        }
        Ok(()) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Datagrams go to this socket, and come from it only.
fn connect_datagrams(c: &mut Caller, id: u64, name: Written) -> Result {
    let name = target(c, name)?;
    let found = c.s.sockets.by_name(&name, Style::Datagram);
    match name {
        Name::Port(address, _) => c.s.own_name(id, address)?,
        _ => {
            let other = find(c, found.ok_or(ECONNREFUSED)?)?;
            if other.style != Style::Datagram {
                return Err(EPROTOTYPE.into());
            }
        }
    }
    let socket = c.s.socket(id)?;
    socket.state = State::Connected;
    // Who has a port is found anew each time.
    socket.peer = found.filter(|_| !matches!(name, Name::Port(..)));
    socket.peer_name = Some(name);
    c.s.wake(Key::Socket(id));
    Ok(0)
}

fn disconnect(c: &mut Caller, id: u64) -> Result {
    let socket = c.s.socket(id)?;
    if socket.style != Style::Datagram {
        return Err(EINVAL.into());
    }
    (socket.state, socket.peer, socket.peer_name) = (State::Idle, None, None);
    Ok(0)
}

/// `shutdown`.
pub fn shutdown(c: &mut Caller, fd: u32, how: u32) -> Result {
    let (id, _) = of(c, fd)?;
    if how > net::SHUT_RDWR {
        return Err(EINVAL.into());
    }
    let (read, write) = (how != net::SHUT_WR, how != net::SHUT_RD);
    let socket = find(c, id)?;
    match (socket.family, socket.state) {
        (Family::V4 | Family::V6, State::Idle) => return Err(ENOTCONN.into()),
        (Family::V4 | Family::V6, State::Listening) => {
            if read {
                c.s.stop_listening(id);
            }
            return Ok(0);
        }
        _ => {}
    }
    c.s.shut_socket(id, read, write);
    Ok(0)
}

/// `getsockname`, and (`peer`) `getpeername`.
pub fn name_of(c: &mut Caller, fd: u32, at: u64, length_at: u64, peer: bool) -> Result {
    let (id, _) = of(c, fd)?;
    let socket = find(c, id)?;
    if peer && socket.state != State::Connected {
        return Err(ENOTCONN.into());
    }
    let name = if peer {
        &socket.peer_name
    } else {
        &socket.name
    };
    let name = written(socket.family, name.as_ref());
    if at == 0 {
        return Err(EFAULT.into());
    }
    give_name(c, at, length_at, &name)?;
    Ok(0)
}

// --- Sending ---

/// What is to be sent.
struct Outgoing<'a> {
    ranges: &'a [(u64, u64)],
    total: u64,
    flags: u32,
    to: Option<Written>,
    sender: Sender,
    rights: Vec<Shared<Description>>,
}

/// Copies a piece of several ranges, from byte `done` on.
fn copy_in(c: &mut Caller, ranges: &[(u64, u64)], done: u64, length: usize) -> Result<Vec<u8>> {
    c.h.room(2 * length as u64)?;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = done + bytes.len() as u64;
        let (address, left) = super::file::piece(ranges, at).ok_or(EFAULT)?;
        let start = bytes.len();
        let part = left.min((length - start) as u64);
        c.check(address, part, READ)?;
        bytes.resize(start + part as usize, 0);
        c.h.read_memory(address, &mut bytes[start..])?;
    }
    Ok(bytes)
}

/// The other end takes nothing any more.
fn broken(c: &mut Caller, flags: u32) -> Stop {
    if flags & msg::NOSIGNAL == 0 {
        let origin = Origin::default();
        c.p.task.signals.post(&c.p.actions, sig::PIPE, origin);
    }
    EPIPE.into()
}

/// The socket to which the bytes of a stream or the packets of a connection go.
fn connected(c: &mut Caller, id: u64, flags: u32) -> Result<Option<u64>> {
    let socket = c.s.socket(id)?;
    let is_unix = socket.family == Family::Unix;
    if !is_unix {
        if let Some(error) = socket.error.take() {
            socket.shut = (true, true);
            if error != EPIPE.0 {
                return Err(Errno(error).into());
            }
        }
    }
    let (shut, state, peer) = (socket.shut, socket.state, socket.peer);
    if state != State::Connected && is_unix {
        return Err(ENOTCONN.into());
    }
    let Some(peer) = peer.filter(|_| !shut.1 && state == State::Connected) else {
        if !is_unix && state == State::Connected && !shut.1 {
            // It goes out, and the answer is that there is nobody.
            c.s.socket(id)?.error = Some(EPIPE.0);
            c.s.wake(Key::Socket(id));
            return Ok(None);
        }
        return Err(broken(c, flags));
    };
    match is_unix && find(c, peer)?.shut.0 {
        true => Err(broken(c, flags)),
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
    if out.total == 0 {
        connected(c, id, out.flags)?;
    }
    while done < out.total {
        let sent = connected(c, id, out.flags).and_then(|peer| {
            let length = (out.total - done).min(PIECE as u64) as usize;
            let bytes = copy_in(c, out.ranges, done, length)?;
            let Some(peer) = peer else {
                return Ok(Delivery::Taken(length));
            };
            let message = Message {
                bytes,
                sender: out.sender,
                rights: rights.clone(),
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
            Ok(Delivery::Full(peer)) => {
                c.s.blocks(peer, id);
                blocked(c, id, nonblocking, net::SO_SNDTIMEO)
            }
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

/// The socket to which a message goes, and the name of who sends it; no socket if nobody has the port.
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
        return Ok((connected(c, id, out.flags)?, name));
    }
    if let Some(error) = socket.error.take() {
        return Err(Errno(error).into());
    }
    if socket.shut.1 {
        return Err(broken(c, out.flags));
    }
    let name = match to {
        Some(Written::NoFamily | Written::Nothing) => return Err(EINVAL.into()),
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
        let found = c.s.sockets.by_name(&name, style);
        let takes = |to: &u64| {
            let socket = c.s.sockets.find(*to);
            let only = socket.and_then(|socket| socket.peer_name.as_ref());
            only.is_none_or(|only| *only == from)
        };
        let found = found.filter(takes);
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
    let is_port = find(c, id)?.family != Family::Unix;
    if is_port && out.total > MAX_UDP as u64 {
        return Err(EMSGSIZE.into());
    }
    let flags = out.flags;
    let (to, from) = receiver(c, id, &mut out)?;
    let Some(to) = to else {
        return Ok(out.total);
    };
    let other = find(c, to)?;
    if out.total > other.longest() as u64 {
        return Err(EMSGSIZE.into());
    }
    if other.shut.0 && !is_port {
        return Err(broken(c, flags));
    }
    let bytes = copy_in(c, out.ranges, 0, out.total as usize)?;
    let message = Message {
        bytes,
        from,
        sender: out.sender,
        rights: out.rights,
        ..Message::default()
    };
    match c.s.deliver(to, message)? {
        Delivery::Taken(taken) => Ok(taken as u64),
        // What has no room is lost, as on any network.
        Delivery::Full(_) if is_port => Ok(out.total),
        Delivery::Full(to) => {
            c.s.blocks(to, id);
            blocked(c, id, nonblocking, net::SO_SNDTIMEO)
        }
    }
}

/// `write`, `writev`: sends several ranges.
pub fn write(c: &mut Caller, fd: u32, ranges: &[(u64, u64)], total: u64) -> Result {
    let sender = sender(c);
    let out = Outgoing {
        ranges,
        total,
        flags: 0,
        to: None,
        sender,
        rights: Vec::new(),
    };
    send(c, fd, out)
}

/// Sends these bytes of a file over a connection, as far as there is room.
pub fn put(c: &mut Caller, id: u64, flags: u32, bytes: &[u8]) -> Result<usize> {
    let Some(peer) = connected(c, id, 0)? else {
        return Ok(bytes.len());
    };
    let sender = sender(c);
    c.h.room(2 * bytes.len() as u64)?;
    let message = Message {
        bytes: bytes.to_vec(),
        sender,
        ..Message::default()
    };
    match c.s.deliver(peer, message)? {
        Delivery::Taken(taken) => Ok(taken),
        Delivery::Full(peer) => {
            c.s.blocks(peer, id);
            blocked(c, id, flags & open_flags::NONBLOCK != 0, net::SO_SNDTIMEO)
        }
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
        total: length,
        flags: flags as u32,
        to,
        sender,
        rights: Vec::new(),
    };
    send(c, fd as u32, out)
}

/// The fields of a `struct msghdr`.
struct Header {
    name: u64,
    name_length: u32,
    ranges: Vec<(u64, u64)>,
    control: u64,
    control_length: u64,
}

fn header(c: &mut Caller, at: u64) -> Result<Header> {
    let raw = c.read(at, 56)?;
    let (list, count) = (u64_at(&raw, 16), u64_at(&raw, 24));
    if count > 1024 {
        return Err(EMSGSIZE.into());
    }
    Ok(Header {
        name: u64_at(&raw, 0),
        name_length: u32_at(&raw, 8),
        ranges: super::file::vector(c, list, count)?,
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
        flags,
        to,
        sender,
        rights,
    };
    send(c, fd, out)
}

/// What the control messages of a message say.
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
                    let fd = c.p.files.fds.get(&u32_at(fd, 0)).ok_or(EBADF)?;
                    rights.push(Rc::clone(&fd.description));
                }
            }
            CREDENTIALS if family == Family::Unix => {
                if body.len() != 12 {
                    return Err(EINVAL.into());
                }
                let number = u32_at(body, 0);
                // Everybody may say to be somebody else, who is there.
                if c.s.those(c.p.task.pid, Which::Number(number)).is_empty() {
                    return Err(ESRCH.into());
                }
                *sender = Sender(number, u32_at(body, 4), u32_at(body, 8));
            }
            _ => return Err(EINVAL.into()),
        }
        let next = (length as usize).next_multiple_of(8).min(raw.len());
        raw = &raw[next..];
    }
    Ok(())
}

// --- Receiving ---

/// What was received.
#[derive(Default)]
struct Incoming {
    /// How many bytes, and how many there were.
    taken: usize,
    whole: usize,
    from: Option<Name>,
    sender: Sender,
    rights: Vec<Shared<Description>>,
}

/// Writes bytes into ranges, from byte `done` on.
fn copy_out(c: &mut Caller, ranges: &[(u64, u64)], done: u64, bytes: &[u8]) -> Result<()> {
    let mut moved = 0;
    while moved < bytes.len() {
        let at = done + moved as u64;
        let (address, left) = super::file::piece(ranges, at).ok_or(EFAULT)?;
        let part = left.min((bytes.len() - moved) as u64) as usize;
        c.write(address, &bytes[moved..moved + part])?;
        moved += part;
    }
    Ok(())
}

/// Why nothing can be received: an error, the end (`Ok`), or that the call waits.
fn nothing(c: &mut Caller, id: u64, nonblocking: bool) -> Result<()> {
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

/// Whether nothing more comes.
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
    match (socket.style, socket.family, socket.state) {
        (Style::Datagram, ..) | (_, _, State::Connected) => {}
        (Style::Stream, Family::Unix, _) => return Err(EINVAL.into()),
        _ => return Err(ENOTCONN.into()),
    }
    if socket.style == Style::Stream {
        return receive_bytes(c, id, ranges, total, flags, nonblocking);
    }
    let Some(first) = socket.queue.front() else {
        nothing(c, id, nonblocking)?;
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
            match nothing(c, id, nonblocking) {
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
        // What was sent by another one, or with descriptors, is received by itself.
        let is_other = passes && message.sender != into.sender;
        if into.taken > 0 && (is_other || !message.rights.is_empty()) {
            break;
        }
        let rest = message.rest();
        let length = (rest.len() as u64).min(total - done) as usize;
        let bytes = rest[..length].to_vec();
        let sender = message.sender;
        let rights = message.rights.clone();
        if let Err(stop) = copy_out(c, ranges, done, &bytes) {
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

/// Descriptors that nobody takes are closed.
fn drop_rights(c: &mut Caller, rights: Vec<Shared<Description>>) {
    if !rights.is_empty() {
        c.s.dropped.extend(rights);
        release_dropped(c.s, c.h);
        c.s.clear_circles();
        release_dropped(c.s, c.h);
    }
}

/// `read`, `readv`: receives into several ranges.
pub fn read(c: &mut Caller, fd: u32, ranges: &[(u64, u64)]) -> Result {
    let got = receive(c, fd, ranges, 0)?;
    drop_rights(c, got.rights);
    Ok(got.taken as u64)
}

/// What a call that receives returns.
fn length(got: &Incoming, flags: u32) -> u64 {
    match flags & msg::TRUNC != 0 {
        true => got.whole as u64,
        false => got.taken as u64,
    }
}

/// The name of who has sent it, as programs read it; nothing over connections.
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
    let header = header(c, at)?;
    c.check(at, 56, WRITE)?;
    let name_room = header.name_length.min(MAX_NAME);
    if header.name_length > i32::MAX as u32 {
        return Err(EINVAL.into());
    }
    if header.name != 0 {
        c.check(header.name, u64::from(name_room), WRITE)?;
    }
    // All that there could be: who sent it, and descriptors.
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
    drop_rights(c, rights);
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

/// Gives as many of the descriptors to the program as there is room for: what is written of them, the others, and how much
/// of the room is used then.
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
        let Ok(fd) = super::file::free_fd(c) else {
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

/// `sendmmsg`, and (`receives`) `recvmmsg`: several messages, as many as go at once.
pub fn several(c: &mut Caller, fd: u32, at: u64, count: u32, flags: u32, receives: bool) -> Result {
    const HEADER: u64 = 64;
    const FOR_ONE: u32 = 0x10000;
    // The caller asks on: each may have a thousand ranges, and others have their turn between two calls.
    const AT_ONCE: u32 = 64;
    let mut done = 0;
    while done < u64::from(count.min(AT_ONCE)) {
        let one = at.checked_add(done * HEADER).ok_or(EFAULT)?;
        c.check(one, HEADER, READ | WRITE)?;
        // After the first one nothing is waited for.
        let flags = match done > 0 && (!receives || flags & FOR_ONE != 0) {
            true => flags | msg::DONTWAIT,
            false => flags,
        };
        let moved = match (receives, done > 0) {
            (true, true) => recvmsg(c, fd, one, flags | msg::DONTWAIT),
            (true, false) => recvmsg(c, fd, one, flags),
            (false, _) => sendmsg(c, fd, one, flags),
        };
        match moved {
            Ok(length) => c.write(one + 56, &(length as u32).to_le_bytes())?,
            Err(Stop::Errno(_) | Stop::Park(_)) if done > 0 => break,
            Err(stop) => return Err(stop),
        }
        done += 1;
    }
    Ok(done)
}

// --- Options ---

/// Options that are kept and have no effect, or one elsewhere: level and number.
const KEPT: &[(u32, u32)] = &[
    (net::SOL_SOCKET, net::SO_REUSEADDR),
    (net::SOL_SOCKET, net::SO_REUSEPORT),
    (net::SOL_SOCKET, net::SO_KEEPALIVE),
    (net::SOL_SOCKET, net::SO_BROADCAST),
    (net::SOL_SOCKET, net::SO_DONTROUTE),
    (net::SOL_SOCKET, net::SO_OOBINLINE),
    (net::SOL_SOCKET, net::SO_PRIORITY),
    (net::SOL_SOCKET, net::SO_TIMESTAMP),
    (net::SOL_SOCKET, net::SO_PASSCRED),
    (IPPROTO_IPV6, net::IPV6_V6ONLY),
    // IP_TOS, IP_TTL, IP_RECVERR, IP_MTU_DISCOVER, IP_BIND_ADDRESS_NO_PORT, multicast's loop and life.
    (0, 1),
    (0, 2),
    (0, 10),
    (0, 11),
    (0, 24),
    (0, 33),
    (0, 34),
    // IPV6_UNICAST_HOPS, IPV6_RECVERR, IPV6_TCLASS.
    (IPPROTO_IPV6, 16),
    (IPPROTO_IPV6, 25),
    (IPPROTO_IPV6, 67),
    (IPPROTO_TCP, net::TCP_NODELAY),
    // TCP_CORK, keep-alive, TCP_SYNCNT, TCP_LINGER2, TCP_DEFER_ACCEPT, TCP_QUICKACK, TCP_USER_TIMEOUT, TCP_FASTOPEN.
    (IPPROTO_TCP, 3),
    (IPPROTO_TCP, 4),
    (IPPROTO_TCP, 5),
    (IPPROTO_TCP, 6),
    (IPPROTO_TCP, 7),
    (IPPROTO_TCP, 8),
    (IPPROTO_TCP, 9),
    (IPPROTO_TCP, 12),
    (IPPROTO_TCP, 18),
    (IPPROTO_TCP, 23),
];

/// Whether the option is for sockets of this family and style.
fn applies(socket: &Socket, level: u32) -> bool {
    match level {
        net::SOL_SOCKET => true,
        0 => socket.family != Family::Unix,
        IPPROTO_IPV6 => socket.family == Family::V6,
        IPPROTO_TCP => socket.family != Family::Unix && socket.style == Style::Stream,
        _ => false,
    }
}

/// `setsockopt`.
pub fn setsockopt(c: &mut Caller, fd: u32, level: u32, number: u32, at: u64, size: u32) -> Result {
    let (id, _) = of(c, fd)?;
    if size > i32::MAX as u32 {
        return Err(EINVAL.into());
    }
    let socket = find(c, id)?;
    if !applies(socket, level) {
        let none = if socket.family == Family::Unix {
            ENOTSUP
        } else {
            ENOPROTOOPT
        };
        return Err(none.into());
    }
    let is_full = socket.options.len() >= MAX_OPTIONS;
    let value = match (level, number) {
        (net::SOL_SOCKET, net::SO_RCVTIMEO | net::SO_SNDTIMEO) => {
            if size < 16 {
                return Err(EINVAL.into());
            }
            super::time::read_timeval(c, at)?
        }
        (net::SOL_SOCKET, net::SO_LINGER) => {
            if size < 8 {
                return Err(EINVAL.into());
            }
            c.word(at)?
        }
        (net::SOL_SOCKET, net::SO_SNDBUF | net::SO_RCVBUF) => {
            // Twice as much is kept, as in Linux; how much there is stays as it is.
            let value = u32_at(&c.read(at, 4)?, 0);
            u64::from(value.clamp(2304, 212_992)) * 2
        }
        known if KEPT.contains(&known) => {
            if size < 4 && !(level == 0 && size > 0) {
                return Err(EINVAL.into());
            }
            let bytes = c.read(at, size.min(4) as usize)?;
            let value = u32_at(&[&bytes[..], &[0; 4]].concat(), 0);
            let is_flag = level == net::SOL_SOCKET && number != net::SO_PRIORITY;
            u64::from(if is_flag {
                u32::from(value != 0)
            } else {
                value
            })
        }
        _ => return Err(ENOPROTOOPT.into()),
    };
    if is_full && !find(c, id)?.options.contains_key(&(level, number)) {
        return Err(ENOPROTOOPT.into());
    }
    c.s.socket(id)?.options.insert((level, number), value);
    Ok(0)
}

/// `getsockopt`.
pub fn getsockopt(
    c: &mut Caller,
    fd: u32,
    level: u32,
    number: u32,
    (at, size_at): (u64, u64),
) -> Result {
    let (id, _) = of(c, fd)?;
    let socket = find(c, id)?;
    if !applies(socket, level) {
        return Err(ENOTSUP.into());
    }
    let word = |value: u32| Writer::new().u32(value).done();
    let kept = socket.option(level, number);
    let value = match (level, number) {
        (net::SOL_SOCKET, net::SO_TYPE) => word(match socket.style {
            Style::Stream => net::SOCK_STREAM,
            Style::Datagram => net::SOCK_DGRAM,
            Style::Packets => net::SOCK_SEQPACKET,
        }),
        (net::SOL_SOCKET, net::SO_DOMAIN) => word(match socket.family {
            Family::Unix => net::AF_UNIX,
            Family::V4 => net::AF_INET,
            Family::V6 => net::AF_INET6,
        }),
        (net::SOL_SOCKET, net::SO_PROTOCOL) => word(match (socket.family, socket.style) {
            (Family::Unix, _) => 0,
            (_, Style::Stream) => IPPROTO_TCP,
            _ => IPPROTO_UDP,
        }),
        (net::SOL_SOCKET, net::SO_ACCEPTCONN) => word(u32::from(socket.state == State::Listening)),
        (net::SOL_SOCKET, net::SO_ERROR) => {
            let socket = c.s.socket(id)?;
            socket.is_news = false;
            word(socket.error.take().unwrap_or(0) as u32)
        }
        (net::SOL_SOCKET, net::SO_SNDBUF | net::SO_RCVBUF) if kept == 0 => word(212_992),
        (net::SOL_SOCKET, net::SO_SNDBUF | net::SO_RCVBUF) => word(kept as u32),
        (net::SOL_SOCKET, net::SO_RCVLOWAT) => word(1),
        (net::SOL_SOCKET, net::SO_LINGER) => kept.to_le_bytes().to_vec(),
        (net::SOL_SOCKET, net::SO_RCVTIMEO | net::SO_SNDTIMEO) => Writer::new()
            .u64(kept / 1_000_000_000)
            .u64(kept % 1_000_000_000 / 1000)
            .done(),
        (net::SOL_SOCKET, net::SO_PEERCRED) => {
            let is_known = socket.family == Family::Unix && socket.state != State::Idle;
            let none = Sender(0, u32::MAX, u32::MAX);
            let Sender(number, user, group) = if is_known { socket.owner } else { none };
            Writer::new().u32(number).u32(user).u32(group).done()
        }
        known if KEPT.contains(&known) => word(kept as u32),
        _ => return Err(ENOPROTOOPT.into()),
    };
    let room = u32_at(&c.read(size_at, 4)?, 0);
    if room > i32::MAX as u32 {
        return Err(EINVAL.into());
    }
    let length = value.len().min(room as usize);
    c.write(at, &value[..length])?;
    c.write(size_at, &(length as u32).to_le_bytes())?;
    Ok(0)
}

// --- What others ask ---

/// How many bytes can be read at once.
pub fn readable_bytes(c: &Caller, id: u64) -> usize {
    let Some(socket) = c.s.sockets.find(id) else {
        return 0;
    };
    let bytes = socket.queue.iter().map(|message| message.rest().len());
    match socket.style {
        Style::Stream => bytes.sum(),
        _ => bytes.take(1).sum(),
    }
}

/// What a socket is ready for.
pub fn readiness(c: &mut Caller, id: u64) -> u16 {
    let Some(socket) = c.s.sockets.find(id) else {
        return 0;
    };
    let (input, output) = (
        linux::POLLIN | linux::POLLRDNORM,
        linux::POLLOUT | linux::POLLWRNORM,
    );
    let mut ready = 0;
    let mut full = None;
    if socket.error.is_some() {
        ready |= linux::POLLERR;
    }
    if !socket.queue.is_empty() || !socket.ready.is_empty() {
        ready |= input;
    }
    let is_port = socket.family != Family::Unix;
    let peer = socket.peer.and_then(|peer| c.s.sockets.find(peer));
    match (socket.state, socket.style) {
        (State::Listening, _) => {}
        (_, Style::Datagram) => {
            if socket.shut.0 {
                ready |= input | linux::POLLRDHUP;
            }
            if socket.shut == (true, true) {
                ready |= linux::POLLHUP;
            }
            match peer {
                Some(peer) if peer.room() < peer.longest() / 2 => full = socket.peer,
                _ => ready |= output,
            }
        }
        (State::Idle, _) => {
            ready |= output | linux::POLLHUP;
            if socket.error.is_some() {
                ready |= input | linux::POLLRDHUP;
            }
        }
        (State::Connected, _) => {
            // Whether both directions are over is known by who closes a socket of this family.
            let ended = socket.shut.0 || peer.is_none_or(|peer| peer.shut.1);
            let mute = socket.shut.1 || !is_port && peer.is_none_or(|peer| peer.shut.0);
            let is_reset = is_port && peer.is_none() && socket.error.is_some();
            if ended {
                ready |= input | linux::POLLRDHUP;
            }
            if ended && mute || is_reset {
                ready |= linux::POLLHUP;
            }
            match peer {
                Some(peer) if peer.room() < peer.longest() / 4 => full = socket.peer,
                _ => ready |= output,
            }
        }
    }
    if let Some(full) = full {
        c.s.blocks(full, id);
    }
    ready as u16
}
