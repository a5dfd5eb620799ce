//! Sockets that reach other machines: their calls wait until the network server has done what they ask for.

use super::name::Written;
use super::{blocked, find};
use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EADDRINUSE, EADDRNOTAVAIL, EAGAIN, EALREADY, EINPROGRESS, EINVAL, ENETUNREACH};
use crate::outside::{is_outside, Here, Place, Stage};
use crate::socket::{is_any, is_loopback, mapped, Family, Name};
use crate::system::Key;
use linux_raw_sys::net;

/// Parks the call until the network server has answered. It answers soon, so no signal but one that ends the process
/// interrupts the wait.
fn asked<T>(id: u64) -> Result<T> {
    Err(Stop::Park(Wake {
        firm: true,
        ..Wake::on(Key::Socket(id))
    }))
}

/// Fails with the reason why the link could not be made.
fn failure<T>(c: &mut Caller, id: u64) -> Result<T> {
    Err(c.s.take_failure(id).unwrap_or(ENETUNREACH).into())
}

/// `bind` to an address other than the loopback's, or to all addresses: the network server has to give the port to the
/// socket, too.
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
            // If several sockets share a port, the first one has it at the network server.
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

/// The address that stands for all addresses of a family.
fn any(family: Family) -> u128 {
    match family {
        Family::V4 => mapped(0),
        _ => 0,
    }
}

/// `listen`: accepts connections from other machines, too, if the network server has given the port to the socket.
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
        // An attempt that has failed is repeated, with the port that the socket has by now.
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
        // Without a network, it accepts connections over the loopback only.
        Some(Stage::Nowhere) => {
            c.s.unlink(id);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The place on another machine that a stream socket is to be connected to; `None` if that is within this machine, and
/// then the socket's port at the network server is given back. Errors: `EALREADY` if it is connecting to another
/// machine already.
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

/// `connect` to another machine. Whether there is a route is known at once, the rest may take long.
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

/// Gives a datagram socket a port at the network server, a free one if it has no name. Returns its own address on the
/// way to `to`.
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
        // The machine may have got its addresses since the socket was bound.
        None if c.p.task.wait.is_none() => {
            c.s.look_again(id);
            asked(id)
        }
        None => Err(ENETUNREACH.into()),
    }
}
