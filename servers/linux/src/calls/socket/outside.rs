//! Sockets that reach other machines: what their programs wait for until the network's server has done it.

use super::name::Written;
use super::{blocked, find};
use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EADDRINUSE, EADDRNOTAVAIL, EAGAIN, EALREADY, EINPROGRESS, EINVAL, ENETUNREACH};
use crate::outside::{is_outside, Here, Place, Stage};
use crate::socket::{is_any, is_loopback, mapped, Family, Name};
use crate::system::Key;
use linux_raw_sys::net;

/// What can be asked now is asked at once, so only the end of the process ends this wait.
fn asked<T>(id: u64) -> Result<T> {
    Err(Stop::Park(Wake {
        firm: true,
        ..Wake::on(Key::Socket(id))
    }))
}

/// Why a link has not become what it was to be.
fn failure<T>(c: &mut Caller, id: u64) -> Result<T> {
    Err(c.s.take_failure(id).unwrap_or(ENETUNREACH).into())
}

/// `bind` to an address that is not of the loopback, or to all: the port is taken outside, too.
pub(super) fn bind(c: &mut Caller, id: u64, address: u128, port: u16) -> Result<()> {
    let place = match c.s.link(id).map(|(_, stage)| stage.clone()) {
        None => {
            let is_free = port == 0 || c.s.is_free(id, address, port);
            if !is_free {
                return Err(EADDRINUSE.into());
            }
            let wanted = match port {
                0 => c.s.free_port(id, address)?,
                port => port,
            };
            let style = find(c, id)?.style;
            // Of several that share a port the first one has it outside.
            if c.s.is_linked(style, wanted) {
                Name::Port(address, wanted)
            } else {
                c.s.socket(id)?.any_port = port == 0;
                c.s.begin_bind(id, wanted)?;
                return asked(id);
            }
        }
        Some(Stage::Asked) => return asked(id),
        Some(Stage::Bound(here)) if is_any(address) || here.has(address) => {
            Name::Port(address, c.s.link_port(id).unwrap_or(port))
        }
        Some(Stage::Nowhere) if is_any(address) => {
            let wanted = c.s.link_port(id).unwrap_or(port);
            c.s.unlink(id);
            Name::Port(address, wanted)
        }
        Some(Stage::Failed(_)) => return failure(c, id),
        Some(_) => {
            c.s.unlink(id);
            return Err(EADDRNOTAVAIL.into());
        }
    };
    c.s.name_socket(id, place).map_err(|error| {
        c.s.unlink(id);
        error.into()
    })
}

/// An address that stands for all.
fn any(family: Family) -> u128 {
    match family {
        Family::V4 => mapped(0),
        _ => 0,
    }
}

/// `listen`: connections are taken from outside, too, at a port that is taken there.
pub(super) fn listen(c: &mut Caller, id: u64) -> Result<()> {
    let socket = find(c, id)?;
    if socket.name.is_none() {
        let any = any(socket.family);
        bind(c, id, any, 0)?;
    }
    match c.s.link(id).map(|(_, stage)| stage.clone()) {
        Some(Stage::Bound(_)) => {
            c.s.begin_listen(id)?;
            asked(id)
        }
        // One that has failed is begun anew, with the port that the socket has.
        None => match find(c, id)?.name {
            Some(Name::Port(own, port)) if !is_loopback(own) => {
                let style = find(c, id)?.style;
                if c.s.is_linked(style, port) {
                    return Ok(());
                }
                c.s.socket(id)?.any_port = false;
                c.s.begin_bind(id, port)?;
                asked(id)
            }
            _ => Ok(()),
        },
        Some(Stage::Asked) => asked(id),
        Some(Stage::Failed(_)) => failure(c, id),
        // It can be reached over the loopback only.
        Some(Stage::Nowhere) => {
            c.s.unlink(id);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Where outside a socket for connections is to be connected to, or is being connected to. What it has of a port
/// outside is given back if it is to be connected within this machine.
pub(super) fn is_meant(c: &mut Caller, id: u64, name: &Written) -> Result<Option<Place>> {
    match *name {
        Written::Port(address, port) if is_outside(address) => Ok(Some((address, port))),
        _ if c.s.is_connecting(id) => Err(EALREADY.into()),
        _ => {
            c.s.unlink(id);
            Ok(None)
        }
    }
}

/// `connect` to another machine. Whether there is a way is known at once, the rest may take long.
pub(super) fn connect(c: &mut Caller, id: u64, to: Place, nonblocking: bool) -> Result {
    match c.s.link(id).map(|(_, stage)| stage.clone()) {
        None | Some(Stage::Bound(_)) => {
            if !find(c, id)?.speaks_with(to.0) || !c.h.has_network() {
                return Err(ENETUNREACH.into());
            }
            match find(c, id)?.name {
                Some(Name::Port(own, _)) if is_loopback(own) => return Err(EINVAL.into()),
                _ => {}
            }
            c.s.begin_connect(id, to)?;
            asked(id)
        }
        Some(Stage::Asked) => asked(id),
        Some(Stage::Connecting(told)) if nonblocking => {
            c.s.told_of_connecting(id);
            Err(if told { EALREADY } else { EINPROGRESS }.into())
        }
        Some(Stage::Connecting(_)) => {
            blocked(c, id, false, net::SO_SNDTIMEO).map_err(|stop| match stop {
                Stop::Errno(EAGAIN) => EINPROGRESS.into(),
                stop => stop,
            })
        }
        Some(_) => failure(c, id),
    }
}

/// A socket for datagrams is to have a port outside, any if it has none: its own address on the way to `to`.
pub(super) fn reach(c: &mut Caller, id: u64, to: u128) -> Result<u128> {
    if !find(c, id)?.speaks_with(to) || !c.h.has_network() {
        return Err(ENETUNREACH.into());
    }
    let here: Here = match c.s.link(id).map(|(_, stage)| stage.clone()) {
        Some(Stage::Bound(here)) => here,
        Some(Stage::Asked) => return asked(id),
        Some(_) => return failure(c, id),
        None => {
            let socket = find(c, id)?;
            let (name, any) = (socket.name.clone(), any(socket.family));
            let port = match name {
                Some(Name::Port(own, _)) if is_loopback(own) => return Err(EINVAL.into()),
                Some(Name::Port(_, port)) => port,
                _ => c.s.free_port(id, any)?,
            };
            c.s.socket(id)?.any_port = name.is_none();
            c.s.begin_bind(id, port)?;
            return asked(id);
        }
    };
    if find(c, id)?.name.is_none() {
        let any = any(find(c, id)?.family);
        let port = c.s.link_port(id).unwrap_or(0);
        c.s.name_socket(id, Name::Port(any, port))?;
    }
    match here.way(to) {
        Some(own) => Ok(own),
        // The machine may have got its addresses since.
        None if c.p.task.wait.is_none() => {
            c.s.look_again(id);
            asked(id)
        }
        None => Err(ENETUNREACH.into()),
    }
}
