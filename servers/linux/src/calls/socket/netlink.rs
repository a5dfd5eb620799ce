//! Netlink: sockets by which programs ask about network interfaces, addresses and routes (`NETLINK_ROUTE`). The answers
//! are put into the socket's queue at once. The interfaces themselves are in [`crate::interfaces`].
//!
//! An answer that does not fit into the queue is dropped, and the next call fails with `ENOBUFS`, as on Linux. Requests
//! for changes fail with `EPERM`. Groups can be joined, but no events are ever sent to them.

use super::find;
use super::name::Written;
use crate::calls::interface::interfaces;
use crate::emulate::{Caller, Result};
use crate::errno::{
    Errno, EADDRINUSE, ECONNREFUSED, EINVAL, EMSGSIZE, ENETUNREACH, ENOBUFS, ENODEV, ENOTSUP,
    EPERM, EPROTONOSUPPORT, ESOCKTNOSUPPORT,
};
use crate::interfaces::{scope_of, Interface, Interfaces, Route, Table};
use crate::socket::{is_mapped, mapped, Delivery, Message, Name, State};
use crate::system::Key;
use crate::wire::{u16_at, u32_at, Writer};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use linux_raw_sys::net;

/// The only supported protocol, `NETLINK_ROUTE`.
const ROUTE: u32 = 0;
/// Most bytes of requests in one call.
const LONGEST: u64 = 16 << 10;
/// Approximate limit of the bytes of answers in one message: programs have buffers of limited size, glibc of 4,096
/// bytes.
const PIECE: usize = 3500;
/// Bytes of `struct nlmsghdr`.
const HEAD: usize = 16;
/// Most memory that answers take until they are in the queue.
const ROOM: u64 = 256 << 10;

/// Types of messages.
mod kind {
    pub(super) const ERROR: u16 = 2;
    pub(super) const DONE: u16 = 3;
    /// The first request. Requests are in groups of four: new, delete, get, set; only the third one does not change
    /// anything.
    pub(super) const FIRST: u16 = 16;
    /// The first type that Linux does not know.
    pub(super) const UNKNOWN: u16 = 124;
    pub(super) const NEW_LINK: u16 = 16;
    pub(super) const GET_LINK: u16 = 18;
    pub(super) const NEW_ADDRESS: u16 = 20;
    pub(super) const GET_ADDRESS: u16 = 22;
    pub(super) const NEW_ROUTE: u16 = 24;
    pub(super) const GET_ROUTE: u16 = 26;
}

/// Flags of messages.
mod flag {
    pub(super) const REQUEST: u16 = 1;
    pub(super) const MULTI: u16 = 2;
    pub(super) const ACKNOWLEDGE: u16 = 4;
    pub(super) const CAPPED: u16 = 0x100;
    pub(super) const DUMP: u16 = 0x300;
}

/// Attributes of interfaces, of addresses and of routes.
mod link {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const BROADCAST: u16 = 2;
    pub(super) const NAME: u16 = 3;
    pub(super) const MTU: u16 = 4;
    pub(super) const ORDER: u16 = 6;
    pub(super) const COUNTERS: u16 = 7;
    pub(super) const QUEUE: u16 = 13;
    pub(super) const STATE: u16 = 16;
    pub(super) const MODE: u16 = 17;
    pub(super) const LONG_COUNTERS: u16 = 23;
    pub(super) const GROUP: u16 = 27;
    pub(super) const CARRIER: u16 = 33;
    pub(super) const OTHER_NAME: u16 = 53;
}
mod address {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const LOCAL: u16 = 2;
    pub(super) const LABEL: u16 = 3;
    pub(super) const BROADCAST: u16 = 4;
    pub(super) const LIFE: u16 = 6;
    pub(super) const FLAGS: u16 = 8;
    /// `IFA_F_PERMANENT`: it was configured, not assigned for a time.
    pub(super) const PERMANENT: u8 = 0x80;
}
mod way {
    pub(super) const TO: u16 = 1;
    pub(super) const INTERFACE: u16 = 4;
    pub(super) const GATEWAY: u16 = 5;
    pub(super) const METRIC: u16 = 6;
    pub(super) const SOURCE: u16 = 7;
    pub(super) const TABLE: u16 = 15;
    /// `RTM_F_CLONED`: the result of a look-up, not an entry of a table.
    pub(super) const CLONED: u32 = 0x200;
    /// Origin of a route: the kernel itself, or the configuration at boot.
    pub(super) const OF_KERNEL: u8 = 2;
    pub(super) const OF_BOOT: u8 = 3;
}

/// Fails unless the arguments of `socket` ask for a supported netlink socket.
pub(super) fn check_kind(kind: u32, protocol: u32) -> Result<()> {
    match kind {
        net::SOCK_RAW | net::SOCK_DGRAM if protocol == ROUTE => Ok(()),
        net::SOCK_RAW | net::SOCK_DGRAM => Err(EPROTONOSUPPORT.into()),
        _ => Err(ESOCKTNOSUPPORT.into()),
    }
}

// --- Names ---

/// `bind`.
pub(super) fn bind(c: &mut Caller, id: u64, name: &Written) -> Result {
    let Written::Number(number, groups) = *name else {
        return Err(EINVAL.into());
    };
    let named = find(c, id)?.name.clone();
    let number = match named {
        Some(Name::Number(own, _)) if own == number => own,
        Some(_) => return Err(EINVAL.into()),
        None if number == 0 => free(c),
        None if !taken(c).contains(&number) => number,
        None => return Err(EADDRINUSE.into()),
    };
    c.s.set_name(id, Name::Number(number, groups));
    Ok(0)
}

/// `connect`: sets the default destination, which must be the kernel (number 0).
pub(super) fn connect(c: &mut Caller, id: u64, name: &Written) -> Result {
    let state = match *name {
        Written::NoFamily => State::Idle,
        Written::Number(0, 0) => State::Connected,
        Written::Number(..) => return Err(ECONNREFUSED.into()),
        _ => return Err(EINVAL.into()),
    };
    own_number(c, id)?;
    c.s.socket(id)?.state = state;
    Ok(0)
}

/// The number of a socket, which gets a free one if it has none.
fn own_number(c: &mut Caller, id: u64) -> Result<u32> {
    if let Some(Name::Number(number, _)) = find(c, id)?.name {
        return Ok(number);
    }
    let number = free(c);
    c.s.set_name(id, Name::Number(number, 0));
    Ok(number)
}

/// The numbers of all sockets that count for the caller's payer.
fn taken(c: &mut Caller) -> BTreeSet<u32> {
    let payer = c.process().payer;
    let own = c.s.sockets.all().filter(|(_, its)| its.payer() == payer);
    own.filter_map(|(_, its)| match its.name {
        Some(Name::Number(number, _)) => Some(number),
        _ => None,
    })
    .collect()
}

/// A free number: the process's own or, if that is taken, the highest free one.
fn free(c: &mut Caller) -> u32 {
    let (own, taken) = (c.process().number, taken(c));
    let mut all = core::iter::once(own).chain((1..=u32::MAX - 4096).rev());
    all.find(|number| !taken.contains(number)).unwrap_or(own)
}

// --- Requests ---

/// The addressee of an answer, and the request that it answers.
#[derive(Clone, Copy)]
struct To {
    sequence: u32,
    number: u32,
}

fn message(to: To, kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let whole = HEAD + body.len();
    let out = Writer::with_room(whole + 4).u32(whole as u32);
    let out = out.u16(kind).u16(flags).u32(to.sequence).u32(to.number);
    out.bytes(body).pad_to(whole.next_multiple_of(4)).done()
}

/// Appends an attribute.
fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = 4 + value.len();
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The value of an attribute of a message, if it has that.
fn attribute(mut all: &[u8], kind: u16) -> Option<&[u8]> {
    while all.len() >= 4 {
        let length = usize::from(u16_at(all, 0));
        let value = all.get(4..length)?;
        // The two highest bits are flags (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
        if u16_at(all, 2) & 0x3fff == kind {
            return Some(value);
        }
        all = all.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// Sends requests of `total` bytes, which `read` reads; each is answered at once.
pub(super) fn send(
    c: &mut Caller,
    id: u64,
    to: Option<Written>,
    total: u64,
    read: impl FnOnce(&mut Caller, usize) -> Result<Vec<u8>>,
) -> Result {
    match to {
        None | Some(Written::Number(0, _)) => {}
        Some(Written::Number(..)) => return Err(ECONNREFUSED.into()),
        Some(_) => return Err(EINVAL.into()),
    }
    if total > LONGEST {
        return Err(EMSGSIZE.into());
    }
    c.h.room(ROOM)?;
    let all = interfaces(c)?;
    let requests = read(c, total as usize)?;
    let number = own_number(c, id)?;
    let mut rest = &requests[..];
    while rest.len() >= HEAD {
        let length = u32_at(rest, 0) as usize;
        let Some(request) = rest.get(..length).filter(|request| request.len() >= HEAD) else {
            break;
        };
        if !answer(c, id, number, request, &all)? {
            break;
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(total)
}

/// Answers a request. Returns whether the answer fitted into the queue.
fn answer(c: &mut Caller, id: u64, number: u32, request: &[u8], all: &Interfaces) -> Result<bool> {
    let (kind, flags) = (u16_at(request, 4), u16_at(request, 6));
    let to = To {
        sequence: u32_at(request, 8),
        number,
    };
    let body = &request[HEAD..];
    let asks = kind & 3 == 2;
    let is_request = flags & flag::REQUEST != 0 && kind >= kind::FIRST;
    if is_request && asks && flags & flag::DUMP != 0 && !body.is_empty() {
        if let Some((_, parts)) = DUMPS.iter().find(|(its, _)| *its == kind) {
            return dump(c, id, to, parts(all, body[0]));
        }
    }
    let done = match kind {
        _ if !is_request || body.is_empty() => Ok(None),
        kind::UNKNOWN.. => Err(ENOTSUP),
        _ if !asks => Err(EPERM),
        kind::GET_LINK if flags & flag::DUMP == 0 => one_link(body, all).map(Some),
        kind::GET_ROUTE if flags & flag::DUMP == 0 => one_way(body, all).map(Some),
        _ => Err(ENOTSUP),
    };
    let mut is_taken = true;
    if let Ok(Some((kind, body))) = &done {
        is_taken = deliver(c, id, message(to, *kind, 0, body))?;
    }
    if done.is_err() || flags & flag::ACKNOWLEDGE != 0 {
        let error = done.err();
        // Of a successful request only the header is repeated.
        let (copied, flags) = match error {
            Some(_) => (request, 0),
            None => (&request[..HEAD], flag::CAPPED),
        };
        let code = error.map_or(0, |Errno(number)| -number);
        let body = [&code.to_le_bytes()[..], copied].concat();
        is_taken = is_taken && deliver(c, id, message(to, kind::ERROR, flags, &body))?;
    }
    Ok(is_taken)
}

/// Puts a message into the queue of the socket; returns whether it fitted. If not, the next call fails with `ENOBUFS`.
fn deliver(c: &mut Caller, id: u64, bytes: Vec<u8>) -> Result<bool> {
    let message = Message {
        bytes,
        from: Some(Name::Number(0, 0)),
        ..Message::default()
    };
    Ok(match c.s.deliver(id, message)? {
        Delivery::Taken(_) => true,
        Delivery::Full(_) => {
            c.s.socket(id)?.error = Some(ENOBUFS.0);
            c.s.wake(Key::Socket(id));
            false
        }
    })
}

/// One message of an answer: its type and its body.
type Part = (u16, Vec<u8>);

/// Makes the messages about all interfaces, for a family of addresses.
type Dump = fn(&Interfaces, u8) -> Vec<Part>;

/// The requests that list everything, and what makes their answers.
const DUMPS: &[(u16, Dump)] = &[
    (kind::GET_LINK, |all, _| {
        all.all.iter().map(link_part).collect()
    }),
    (kind::GET_ADDRESS, addresses),
    (kind::GET_ROUTE, |all, family| {
        let routes = all.routes();
        let own = routes
            .iter()
            .filter(|route| speaks(family, route.is_four()));
        own.map(|route| way_part(route, route.to.1, 0)).collect()
    }),
];

/// Whether a request for this family is about IPv4 or IPv6 addresses (`is_four`). Other families mean both.
fn speaks(family: u8, is_four: bool) -> bool {
    match u32::from(family) {
        net::AF_INET => is_four,
        net::AF_INET6 => !is_four,
        _ => true,
    }
}

/// Answers with several messages and a final `NLMSG_DONE`. As many messages are joined as programs have room for.
fn dump(c: &mut Caller, id: u64, to: To, parts: Vec<Part>) -> Result<bool> {
    let mut piece = Vec::new();
    for (kind, body) in parts {
        let next = message(to, kind, flag::MULTI, &body);
        let is_full = !piece.is_empty() && piece.len() + next.len() > PIECE;
        if is_full && !deliver(c, id, core::mem::take(&mut piece))? {
            return Ok(false);
        }
        piece.extend_from_slice(&next);
    }
    let done = message(to, kind::DONE, flag::MULTI, &[0; 4]);
    let is_taken = piece.is_empty() || deliver(c, id, piece)?;
    Ok(is_taken && deliver(c, id, done)?)
}

/// Number of counters in `struct rtnl_link_stats`, and in its 64-bit form.
const COUNTERS: usize = 24;

/// The message about an interface.
fn link_part(of: &Interface) -> Part {
    let head = Writer::new().u16(0).u16(of.kind).u32(of.index);
    let mut out = head.u32(of.flags).u32(0).done();
    let [came, useless, left, dropped] = of.counters;
    let mut counters = [0; COUNTERS];
    (counters[0], counters[1]) = (came, left);
    (counters[6], counters[7]) = (useless, dropped);
    put(&mut out, link::NAME, &[of.name.as_bytes(), &[0]].concat());
    put(&mut out, link::QUEUE, &of.queue.to_le_bytes());
    // `IF_OPER_UNKNOWN` or `IF_OPER_UP`.
    put(
        &mut out,
        link::STATE,
        &[if of.is_loopback() { 0 } else { 6 }],
    );
    put(&mut out, link::MODE, &[0]);
    put(&mut out, link::MTU, &of.mtu.to_le_bytes());
    put(&mut out, link::GROUP, &[0; 4]);
    put(&mut out, link::CARRIER, &[1]);
    put(&mut out, link::ORDER, &[of.order.as_bytes(), &[0]].concat());
    put(&mut out, link::ADDRESS, &of.hardware[0]);
    put(&mut out, link::BROADCAST, &of.hardware[1]);
    let long = counters.map(u64::to_le_bytes).concat();
    put(&mut out, link::LONG_COUNTERS, &long);
    let short = counters.map(|count| (count as u32).to_le_bytes()).concat();
    put(&mut out, link::COUNTERS, &short);
    (kind::NEW_LINK, out)
}

/// The messages about addresses, those of IPv4 first.
fn addresses(all: &Interfaces, family: u8) -> Vec<Part> {
    let mut parts = Vec::new();
    for is_four in [true, false] {
        if !speaks(family, is_four) {
            continue;
        }
        for of in &all.all {
            let own = of.addresses.iter();
            let own = own.filter(|(its, _)| is_mapped(*its) == is_four);
            parts.extend(own.map(|(its, bits)| (kind::NEW_ADDRESS, address_body(of, *its, *bits))));
        }
    }
    parts
}

fn address_body(of: &Interface, its: u128, bits: u8) -> Vec<u8> {
    let family = if is_mapped(its) {
        net::AF_INET
    } else {
        net::AF_INET6
    };
    let head = [family as u8, bits, address::PERMANENT, scope_of(its)];
    let mut out = Writer::new().bytes(&head).u32(of.index).done();
    put(&mut out, address::ADDRESS, &shown(its));
    if is_mapped(its) {
        put(&mut out, address::LOCAL, &shown(its));
        if let Some(all) = of.broadcast((its as u32, bits)) {
            put(&mut out, address::BROADCAST, &all.to_be_bytes());
        }
        put(
            &mut out,
            address::LABEL,
            &[of.name.as_bytes(), &[0]].concat(),
        );
    }
    put(
        &mut out,
        address::FLAGS,
        &u32::from(address::PERMANENT).to_le_bytes(),
    );
    // Valid and preferred for ever; created and updated at boot.
    let life = Writer::new().u32(u32::MAX).u32(u32::MAX).u64(0).done();
    put(&mut out, address::LIFE, &life);
    out
}

/// The bytes of an address in a message.
fn shown(address: u128) -> Vec<u8> {
    match is_mapped(address) {
        true => (address as u32).to_be_bytes().to_vec(),
        false => address.to_be_bytes().to_vec(),
    }
}

/// The message about a route; `bits` is the length of its destination prefix.
fn way_part(route: &Route, bits: u8, flags: u32) -> Part {
    let family = if route.is_four() {
        net::AF_INET
    } else {
        net::AF_INET6
    };
    let made = match route.gateway {
        Some(_) => way::OF_BOOT,
        None => way::OF_KERNEL,
    };
    let head = [
        family as u8,
        bits,
        0,
        0,
        route.table as u8,
        made,
        route.scope,
        route.end as u8,
    ];
    let mut out = Writer::new().bytes(&head).u32(flags).done();
    put(&mut out, way::TABLE, &(route.table as u32).to_le_bytes());
    if bits != 0 {
        put(&mut out, way::TO, &shown(route.to.0));
    }
    if let Some(source) = route.source {
        put(&mut out, way::SOURCE, &shown(source));
    }
    if let Some(gateway) = route.gateway {
        put(&mut out, way::GATEWAY, &shown(gateway));
    }
    if route.metric != 0 {
        put(&mut out, way::METRIC, &route.metric.to_le_bytes());
    }
    put(&mut out, way::INTERFACE, &route.interface.to_le_bytes());
    (kind::NEW_ROUTE, out)
}

/// Answers a request for one interface, which it names by index or by name.
fn one_link(body: &[u8], all: &Interfaces) -> core::result::Result<Part, Errno> {
    if body.len() < HEAD {
        return Err(EINVAL);
    }
    let attributes = &body[HEAD..];
    let name = attribute(attributes, link::NAME).or(attribute(attributes, link::OTHER_NAME));
    let found = match (u32_at(body, 4), name) {
        (0, None) => return Err(EINVAL),
        (0, Some(name)) => {
            let end = name.iter().position(|byte| *byte == 0);
            all.by_name(&name[..end.unwrap_or(name.len())])
        }
        (index, _) => all.by_index(index),
    };
    found.map(link_part).ok_or(ENODEV)
}

/// Answers a request for the route to an address.
fn one_way(body: &[u8], all: &Interfaces) -> core::result::Result<Part, Errno> {
    const FIXED: usize = 12;
    if body.len() < FIXED {
        return Err(EINVAL);
    }
    let to = attribute(&body[FIXED..], way::TO);
    let (to, whole) = match (u32::from(body[0]), to) {
        (net::AF_INET, Some(&[a, b, c, d])) => (mapped(u32::from_be_bytes([a, b, c, d])), 32),
        (net::AF_INET6, Some(to)) => {
            let bytes = to.first_chunk::<16>().filter(|_| to.len() == 16);
            (u128::from_be_bytes(*bytes.ok_or(EINVAL)?), 128)
        }
        (net::AF_INET | net::AF_INET6, _) => return Err(EINVAL),
        _ => return Err(ENOTSUP),
    };
    let (route, source) = all.way(to).ok_or(ENETUNREACH)?;
    let found = Route {
        to: (to, whole),
        source,
        // As on Linux, the table of any result of a look-up.
        table: Table::Main,
        ..route
    };
    Ok(way_part(&found, whole, way::CLONED))
}
