//! Socket names: the conversion between `struct sockaddr` and [`Name`].

use super::MAX_NAME;
use crate::emulate::{Caller, Result, Target, AT_FDCWD};
use crate::errno::{EAFNOSUPPORT, ECONNREFUSED, EINVAL, ENETUNREACH, ENOENT};
use crate::memory::WRITE;
use crate::socket::{is_any, is_loopback, mapped, Family, Name, LOOPBACK_4, LOOPBACK_6};
use crate::wire::{u16_at, u32_at, Writer};
use alloc::vec::Vec;
use linux_raw_sys::net;

/// Most bytes of the path of a Unix socket.
const MAX_PATH: usize = 108;
/// Most bytes of a `struct sockaddr_un`: a family and a path.
const MAX_UNIX: usize = 2 + MAX_PATH;

/// A name that a program passes in a `struct sockaddr`.
pub(super) enum Written {
    /// A family without a name: `bind` chooses one.
    Nothing,
    /// `AF_UNSPEC`: `connect` dissolves the connection.
    NoFamily,
    Path(Vec<u8>),
    Abstract(Vec<u8>),
    Port(u128, u16),
    /// Number and groups of a netlink socket.
    Number(u32, u32),
}

/// Bytes of a `struct sockaddr_nl`.
const MAX_NETLINK: usize = 12;

/// Reads a `struct sockaddr` of `length` bytes, for a socket of this family.
pub(super) fn read_name(c: &mut Caller, family: Family, at: u64, length: u32) -> Result<Written> {
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
        (Family::Unix, net::AF_UNIX) if raw.len() > MAX_UNIX => Err(EINVAL.into()),
        (Family::Unix, net::AF_UNIX) => Ok(match &raw[2..] {
            [] => Written::Nothing,
            [0, name @ ..] => Written::Abstract(name.to_vec()),
            path => {
                let end = path.iter().position(|byte| *byte == 0);
                Written::Path(path[..end.unwrap_or(path.len())].to_vec())
            }
        }),
        (Family::Unix, net::AF_UNSPEC) => Ok(Written::NoFamily),
        (Family::Unix, _) => Err(EINVAL.into()),
        (Family::V4 | Family::V6, net::AF_INET) if raw.len() < 16 => Err(EINVAL.into()),
        (Family::V4, net::AF_INET) => Ok(Written::Port(mapped(big(4, 4) as u32), big(2, 2) as u16)),
        (Family::V6, net::AF_INET6) if raw.len() < 24 => Err(EINVAL.into()),
        (Family::V6, net::AF_INET6) => Ok(Written::Port(big(8, 16), big(2, 2) as u16)),
        (Family::Netlink, net::AF_NETLINK) if raw.len() >= MAX_NETLINK => {
            Ok(Written::Number(u32_at(&raw, 4), u32_at(&raw, 8)))
        }
        (Family::Netlink, _) => Err(EINVAL.into()),
        _ => Err(EAFNOSUPPORT.into()),
    }
}

/// A name as a `struct sockaddr` of this family.
pub(super) fn written(family: Family, name: Option<&Name>) -> Vec<u8> {
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
        (Family::Netlink, name) => {
            let (number, groups) = match name {
                Some(Name::Number(number, groups)) => (*number, *groups),
                _ => (0, 0),
            };
            let out = Writer::new().u16(net::AF_NETLINK as u16).u16(0);
            return out.u32(number).u32(groups).done();
        }
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

/// Writes a name to the program's buffer, cut to its size, and its full length to `length_at`; nothing if `at` is null.
pub(super) fn give_name(c: &mut Caller, at: u64, length_at: u64, name: &[u8]) -> Result<()> {
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

/// The inode of the file at a path.
pub(super) fn inode(c: &mut Caller, path: &[u8]) -> Result<u64> {
    let path = core::str::from_utf8(path).map_err(|_| ENOENT)?;
    match c.target(AT_FDCWD, path)? {
        Target::Path(path) => c.with_open(path, true, |_, opened| Ok(opened.ino)),
        Target::Special(_) => Err(ECONNREFUSED.into()),
    }
}

/// The name that a program connects or sends to. Addresses that stand for all mean the loopback.
pub(super) fn target(c: &mut Caller, name: Written) -> Result<Name> {
    Ok(match name {
        Written::Nothing | Written::NoFamily | Written::Number(..) => return Err(EINVAL.into()),
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
