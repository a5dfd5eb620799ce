//! Socket options.

use super::{find, of, IPPROTO_TCP, IPPROTO_UDP};
use crate::emulate::{Caller, Result};
use crate::errno::{EINVAL, ENOPROTOOPT, ENOTSUP};
use crate::socket::{Family, Sender, Socket, State, Style, IPPROTO_IPV6, MAX_OPTIONS};
use crate::wire::{u32_at, Writer};
use linux_raw_sys::net;

/// The option level of netlink.
const SOL_NETLINK: u32 = 270;

/// Options that are only stored, or whose effect is elsewhere: level and number.
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
    // NETLINK_ADD_MEMBERSHIP, NETLINK_DROP_MEMBERSHIP, NETLINK_PKTINFO, NETLINK_CAP_ACK, NETLINK_EXT_ACK.
    (SOL_NETLINK, 1),
    (SOL_NETLINK, 2),
    (SOL_NETLINK, 3),
    (SOL_NETLINK, 10),
    (SOL_NETLINK, 11),
    // IP_TOS, IP_TTL, IP_RECVERR, IP_MTU_DISCOVER, IP_BIND_ADDRESS_NO_PORT, multicast's interface, life and loop.
    (0, 1),
    (0, 2),
    (0, 10),
    (0, 11),
    (0, 24),
    (0, 32),
    (0, 33),
    (0, 34),
    // IPV6_UNICAST_HOPS, multicast's interface, hops and loop, IPV6_RECVERR, IPV6_TCLASS.
    (IPPROTO_IPV6, 16),
    (IPPROTO_IPV6, 17),
    (IPPROTO_IPV6, 18),
    (IPPROTO_IPV6, 19),
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

/// The value that Linux reports for an option that was never set.
fn unset(option: (u32, u32)) -> u32 {
    match option {
        // IP_TTL, and IPV6_UNICAST_HOPS.
        (0, 2) | (IPPROTO_IPV6, 16) => 64,
        // TTL and loop of multicast, of both protocols.
        (0, 33 | 34) | (IPPROTO_IPV6, 18 | 19) => 1,
        // TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_SYNCNT.
        (IPPROTO_TCP, 4) => 7200,
        (IPPROTO_TCP, 5) => 75,
        (IPPROTO_TCP, 6) => 9,
        (IPPROTO_TCP, 7) => 6,
        // TCP_LINGER2, TCP_QUICKACK.
        (IPPROTO_TCP, 8) => 60,
        (IPPROTO_TCP, 12) => 1,
        _ => 0,
    }
}

/// Whether sockets of this family and style have options of this level.
fn applies(socket: &Socket, level: u32) -> bool {
    match level {
        net::SOL_SOCKET => true,
        SOL_NETLINK => socket.family == Family::Netlink,
        0 => matches!(socket.family, Family::V4 | Family::V6),
        IPPROTO_IPV6 => socket.family == Family::V6,
        IPPROTO_TCP => socket.family != Family::Unix && socket.style == Style::Stream,
        _ => false,
    }
}

/// Fails if such sockets have no options of this level, with Linux's error for the family and for `setsockopt` (`sets`)
/// or `getsockopt`.
fn check_level(socket: &Socket, level: u32, sets: bool) -> Result<()> {
    let none = match socket.family {
        Family::Unix => ENOTSUP,
        Family::V4 if !sets => ENOTSUP,
        Family::V4 | Family::V6 | Family::Netlink => ENOPROTOOPT,
    };
    applies(socket, level).then_some(()).ok_or(none.into())
}

/// `setsockopt`.
pub fn setsockopt(c: &mut Caller, fd: u32, level: u32, number: u32, at: u64, size: u32) -> Result {
    let (id, _) = of(c, fd)?;
    if size > i32::MAX as u32 {
        return Err(EINVAL.into());
    }
    let socket = find(c, id)?;
    check_level(socket, level, true)?;
    let is_full = socket.options.len() >= MAX_OPTIONS;
    let value = match (level, number) {
        (net::SOL_SOCKET, net::SO_RCVTIMEO | net::SO_SNDTIMEO) => {
            if size < 16 {
                return Err(EINVAL.into());
            }
            crate::calls::time::read_timeval(c, at)?
        }
        (net::SOL_SOCKET, net::SO_LINGER) => {
            if size < 8 {
                return Err(EINVAL.into());
            }
            c.word(at)?
        }
        (net::SOL_SOCKET, net::SO_SNDBUF | net::SO_RCVBUF) => {
            if size < 4 {
                return Err(EINVAL.into());
            }
            // As on Linux, twice the value is stored. The actual size of the buffers does not change.
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
    check_level(socket, level, false)?;
    let word = |value: u32| Writer::new().u32(value).done();
    let kept = socket.option(level, number);
    let value = match (level, number) {
        (net::SOL_SOCKET, net::SO_TYPE) if kept != 0 => word(kept as u32),
        (net::SOL_SOCKET, net::SO_TYPE) => word(match socket.style {
            Style::Stream => net::SOCK_STREAM,
            Style::Datagram => net::SOCK_DGRAM,
            Style::Packets => net::SOCK_SEQPACKET,
        }),
        (net::SOL_SOCKET, net::SO_DOMAIN) => word(match socket.family {
            Family::Unix => net::AF_UNIX,
            Family::V4 => net::AF_INET,
            Family::V6 => net::AF_INET6,
            Family::Netlink => net::AF_NETLINK,
        }),
        (net::SOL_SOCKET, net::SO_PROTOCOL) => word(match (socket.family, socket.style) {
            (Family::Unix | Family::Netlink, _) => 0,
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
        known if KEPT.contains(&known) => word(match socket.options.get(&known) {
            Some(kept) => *kept as u32,
            None => unset(known),
        }),
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
