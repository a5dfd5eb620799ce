//! The calls on sockets: making and connecting them is here, the rest in [`mod@name`], [`mod@send`], [`mod@receive`],
//! [`mod@option`] and [`netlink`]. The sockets themselves are in [`crate::socket`].

pub mod list;
mod name;
pub mod netlink;
mod option;
mod outside;
mod receive;
mod send;

use crate::emulate::{Caller, Keys, Result, Stop, Wake, AT_FDCWD};
use crate::errno::{
    Errno, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EBADF, ECONNREFUSED, EEXIST, EFAULT,
    EINPROGRESS, EINVAL, EISCONN, ENOTCONN, ENOTSOCK, ENOTSUP, EPROTONOSUPPORT, EPROTOTYPE,
    ESOCKTNOSUPPORT,
};
use crate::memory::WRITE;
use crate::outside::is_outside;
use crate::process::{open_flags, Description, Kind};
use crate::socket::{is_loopback, mapped, Family, Name, Sender, Socket, State, Style};
use crate::system::Key;
use crate::wire::Writer;
use linux_raw_sys::general as linux;
use linux_raw_sys::net;
use name::{give_name, inode, read_name, target, written, Written};
pub use option::{getsockopt, setsockopt};
pub use receive::{read, recvfrom, recvmmsg, recvmsg, sendmmsg};
pub use send::{put, sendmsg, sendto, write};

/// Flags of `sendmsg`, `recvmsg` and the like.
mod msg {
    pub(super) use linux_raw_sys::net::MSG_DONTWAIT as DONTWAIT;
    pub(super) const OOB: u32 = 1;
    pub(super) const ERRQUEUE: u32 = 0x2000;
    pub(super) const PEEK: u32 = 2;
    pub(super) const CTRUNC: u32 = 8;
    pub(super) const TRUNC: u32 = 0x20;
    pub(super) const WAITALL: u32 = 0x100;
    pub(super) const NOSIGNAL: u32 = 0x4000;
    pub(super) const WAITFORONE: u32 = 0x1_0000;
    pub(super) const CMSG_CLOEXEC: u32 = 0x4000_0000;
}
const RIGHTS: u32 = 1;
const CREDENTIALS: u32 = 2;
/// Bytes of `struct cmsghdr`.
const HEAD: usize = 16;
/// Most bytes of a socket name (`struct sockaddr_storage`).
const MAX_NAME: u32 = 128;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;

// --- Making sockets ---

/// The family and style of socket that the arguments of `socket` ask for.
fn which(family: u32, kind: u32, protocol: u32) -> Result<(Family, Style)> {
    let family = match family {
        net::AF_UNIX => Family::Unix,
        net::AF_INET => Family::V4,
        net::AF_INET6 => Family::V6,
        net::AF_NETLINK => {
            netlink::check_kind(kind, protocol)?;
            return Ok((Family::Netlink, Style::Datagram));
        }
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
        owner: None,
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
    if family == Family::Netlink {
        // Raw and datagram sockets of netlink differ only in what `SO_TYPE` returns.
        let option = (net::SOL_SOCKET, net::SO_TYPE);
        let kind = u64::from(kind & 0xf);
        c.s.socket(id)?.options.insert(option, kind);
    }
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
    let owner = owner(c);
    c.s.pair(one, other, owner);
    install(c, first, one, kind);
    install(c, second, other, kind);
    c.write(into, &Writer::new().u32(first).u32(second).done())?;
    Ok(0)
}

/// The identity of the socket that a file descriptor is open on, and the flags of its file description.
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

/// The caller's process with its real user and group.
fn sender(c: &mut Caller) -> Sender {
    identity(c, 0)
}

/// The caller's process with its effective user and group, as the other end of a connection sees it (`SO_PEERCRED`).
fn owner(c: &mut Caller) -> Sender {
    identity(c, 1)
}

/// The caller's process with its real (`which` is 0) or effective (1) user and group.
fn identity(c: &mut Caller, which: usize) -> Sender {
    let number = c.p.task.number;
    let ids = c.process().ids;
    Sender(number, ids.uid[which], ids.gid[which])
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
        name if family == Family::Netlink => return netlink::bind(c, id, &name),
        Written::Nothing if is_named => return Ok(0),
        Written::Path(path) if is_named => {
            let is_there = inode(c, &path).is_ok();
            return Err(if is_there { EADDRINUSE } else { EINVAL }.into());
        }
        _ if is_named => return Err(EINVAL.into()),
        Written::NoFamily if family == Family::V4 => Name::Port(mapped(0), 0),
        Written::NoFamily if family == Family::V6 => return Err(EAFNOSUPPORT.into()),
        Written::NoFamily => return Err(EINVAL.into()),
        Written::Number(..) => return Err(EINVAL.into()),
        Written::Nothing => c.s.free_name(),
        Written::Abstract(name) => Name::Abstract(name),
        Written::Path(path) => {
            let ino = make_node(c, &path)?;
            Name::File(path, ino)
        }
        Written::Port(address, port) if !is_loopback(address) && c.h.has_network() => {
            outside::bind(c, id, address, port)?;
            return Ok(0);
        }
        Written::Port(address, _) if is_outside(address) => return Err(EADDRNOTAVAIL.into()),
        Written::Port(address, 0) => Name::Port(address, c.s.free_port(id, address)?),
        Written::Port(address, port) => Name::Port(address, port),
    };
    c.s.name_socket(id, name)?;
    Ok(0)
}

/// Creates the file that stands for a Unix socket; returns its inode.
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
    if family != Family::Unix && c.h.has_network() {
        outside::listen(c, id)?;
    }
    if find(c, id)?.name.is_none() {
        let address = if family == Family::V4 { mapped(0) } else { 0 };
        let port = c.s.free_port(id, address)?;
        c.s.set_name(id, Name::Port(address, port));
    }
    // As on Linux, a negative backlog is a very large one.
    let owner = owner(c);
    c.s.listen(id, backlog as u32 as usize, owner)?;
    Ok(0)
}

/// Parks the call until the socket changes, at most as long as the option `timeout` says. Errors: `EAGAIN` if
/// `nonblocking`, or after that time.
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

/// As [`blocked`], and also until there is room in the socket `full`.
fn blocked_by<T>(c: &mut Caller, id: u64, full: u64, nonblocking: bool) -> Result<T> {
    c.s.blocks(full, id);
    blocked(c, id, nonblocking, net::SO_SNDTIMEO).map_err(|stop| match stop {
        Stop::Park(mut wake) => {
            wake.keys.push(Key::Room(full));
            Stop::Park(wake)
        }
        stop => stop,
    })
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
    if let Some(error) = c.s.socket(id)?.error.take() {
        return Err(Errno(error).into());
    }
    let Some(end) = find(c, id)?.ready.front().copied() else {
        return blocked(c, id, own & open_flags::NONBLOCK != 0, net::SO_RCVTIMEO);
    };
    let new = super::file::free_fd(c)?;
    let peer = find(c, end)?.peer_name.clone();
    give_name(c, at, length_at, &written(family, peer.as_ref()))?;
    let payer = c.process().payer;
    c.s.accept(id, payer)?;
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
    if family == Family::Netlink {
        return netlink::connect(c, id, &name);
    }
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
    if let Some(to) = outside::is_meant(c, id, &name)? {
        return outside::connect(c, id, to, flags & open_flags::NONBLOCK != 0);
    }
    let name = target(c, name)?;
    let found = c.s.sockets.by_name(&name, style);
    let is_port = family != Family::Unix;
    let nonblocking = flags & open_flags::NONBLOCK != 0;
    let owner = owner(c);
    if let Name::Port(address, _) = name {
        c.s.own_name(id, address)?;
    }
    let (is_there, payer) = (found.is_some(), c.process().payer);
    let result = match found {
        Some(to) => c.s.connect(id, to, (is_port.then_some(name), owner), payer),
        None => Err(ECONNREFUSED),
    };
    match result {
        // Over TCP a connection is never complete when a non-blocking call returns.
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
            Err(Stop::Park(Wake {
                keys: Keys::from_slice(&[Key::Socket(id), Key::Socket(to)]),
                ..Wake::default()
            }))
        }
        Ok(()) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Connects a datagram socket: it sends to this address by default, and receives from it only.
fn connect_datagrams(c: &mut Caller, id: u64, name: Written) -> Result {
    if let Written::Port(address, port) = name {
        if is_outside(address) {
            let own = outside::reach(c, id, address)?;
            if let Some(Name::Port(_, own_port)) = find(c, id)?.name {
                c.s.set_name(id, Name::Port(own, own_port));
            }
            c.s.set_peer(id, None);
            let socket = c.s.socket(id)?;
            socket.state = State::Connected;
            socket.peer_name = Some(Name::Port(address, port));
            c.s.wake(Key::Socket(id));
            return Ok(0);
        }
    }
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
    // The socket behind a port is looked up for each message.
    c.s.set_peer(id, found.filter(|_| !matches!(name, Name::Port(..))));
    let socket = c.s.socket(id)?;
    socket.state = State::Connected;
    socket.peer_name = Some(name);
    c.s.wake(Key::Socket(id));
    Ok(0)
}

fn disconnect(c: &mut Caller, id: u64) -> Result {
    let socket = c.s.socket(id)?;
    if socket.style != Style::Datagram {
        return Err(EINVAL.into());
    }
    (socket.state, socket.peer_name) = (State::Idle, None);
    c.s.set_peer(id, None);
    // A sender that waits for room in the old peer now sends elsewhere, or fails.
    c.s.wake(Key::Socket(id));
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
        (Family::Netlink, _) => return Err(ENOTSUP.into()),
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

/// `getsockname`, or `getpeername` if `peer`.
pub fn name_of(c: &mut Caller, fd: u32, at: u64, length_at: u64, peer: bool) -> Result {
    let (id, _) = of(c, fd)?;
    let socket = find(c, id)?;
    let is_netlink = socket.family == Family::Netlink;
    if peer && socket.state != State::Connected && !is_netlink {
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

// --- Requests from other modules ---

/// How many bytes a read can return at once (`FIONREAD`).
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

/// The events that a socket is ready for, as `poll` has them.
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
        if socket.state == State::Listening {
            ready |= input;
        }
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
            let outbox = c.s.outbox(id);
            let other = socket.peer.or(outbox);
            match other.and_then(|other| c.s.sockets.find(other)) {
                Some(peer) if peer.room() < peer.longest() / 2 => full = other,
                _ => ready |= output,
            }
        }
        (State::Idle, _) if c.s.is_connecting(id) => {}
        (State::Idle, _) => {
            ready |= output | linux::POLLHUP;
            if socket.error.is_some() {
                ready |= input | linux::POLLRDHUP;
            }
        }
        (State::Connected, _) => {
            // A Unix socket is told when its peer closes or stops reading; over TCP only the end of the peer's writing
            // is known.
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
