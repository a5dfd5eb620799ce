//! What programs ask about network interfaces by `ioctl`, below `/sys/class/net` and in `/proc/net`. The interfaces
//! themselves are in [`crate::interfaces`], the answers by netlink in [`super::socket::netlink`].

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;
use linux_raw_sys::{ioctl, net};
use serde::{Deserialize, Serialize};

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{Errno, EADDRNOTAVAIL, EINVAL, ENODEV, ENOTTY, EPERM};
use crate::interfaces::{mask, scope, scope_of, Interface, Interfaces, Table, CARD, LOOPBACK};
use crate::memory::WRITE;
use crate::proc::Text;
use crate::socket::Family;
use crate::system::Key;
use crate::wire::{u32_at, u64_at, Writer};

/// The current interfaces. The network server is asked once for each call, which waits for the answer.
pub fn interfaces(c: &mut Caller) -> Result<Interfaces> {
    if !c.h.has_network() {
        return Ok(Interfaces::new(None));
    }
    let answers = c.s.outside.answers();
    let asked_at = *c.wait().answers.get_or_insert(answers);
    // Any answer that has come since this call asked will do, whoever has asked for it. (After a restore in another
    // boot the count may be lower, and 0 if none has come yet.)
    match asked_at != answers && answers > 0 {
        true => Ok(Interfaces::new(c.s.outside.card())),
        false => {
            c.s.outside.ask_for_card();
            Err(Stop::Park(Wake {
                firm: true,
                ..Wake::on(Key::Card)
            }))
        }
    }
}

// --- ioctl ---

/// Bytes of an interface name (`IFNAMSIZ`).
const NAME: usize = 16;
/// Bytes of a `struct ifreq`: a name, and the value that is asked for.
const REQUEST: usize = 40;

/// `struct sockaddr_in` of an IPv4 address.
fn four(address: u32) -> Vec<u8> {
    let out = Writer::new().u16(net::AF_INET as u16).u16(0);
    out.bytes(&address.to_be_bytes()).pad_to(16).done()
}

fn word(value: u32) -> Option<Vec<u8>> {
    Some(value.to_le_bytes().to_vec())
}

/// The answer to a request about an interface; `None` if it has no such address.
type Asked = fn(&Interface) -> Option<Vec<u8>>;

/// Requests that sockets of all families answer.
const OF_ALL: &[(u32, Asked)] = &[
    (ioctl::SIOCGIFINDEX, |of| word(of.index)),
    (ioctl::SIOCGIFFLAGS, |of| {
        Some((of.flags as u16).to_le_bytes().to_vec())
    }),
    (ioctl::SIOCGIFMTU, |of| word(of.mtu)),
    (ioctl::SIOCGIFMETRIC, |_| word(0)),
    (ioctl::SIOCGIFTXQLEN, |of| word(of.queue)),
    (ioctl::SIOCGIFMAP, |_| Some(Vec::from([0; 24]))),
    (ioctl::SIOCGIFHWADDR, |of| {
        let out = Writer::new().u16(of.kind).bytes(&of.hardware[0]);
        Some(out.pad_to(16).done())
    }),
];

/// Requests that sockets of IPv4 answer.
const OF_FOUR: &[(u32, Asked)] = &[
    (ioctl::SIOCGIFADDR, |of| {
        of.fours().next().map(|(address, _)| four(address))
    }),
    // The interface's own address, as on Linux: no interface is point-to-point.
    (ioctl::SIOCGIFDSTADDR, |of| {
        of.fours().next().map(|(address, _)| four(address))
    }),
    (ioctl::SIOCGIFBRDADDR, |of| {
        let first = of.fours().next()?;
        Some(four(of.broadcast(first).unwrap_or(0)))
    }),
    (ioctl::SIOCGIFNETMASK, |of| {
        of.fours().next().map(|(_, bits)| four(mask(bits)))
    }),
];

/// Requests that would change something. They all fail with `EPERM`.
const CHANGING: &[u32] = &[
    ioctl::SIOCADDRT,
    ioctl::SIOCDELRT,
    ioctl::SIOCSIFFLAGS,
    ioctl::SIOCSIFADDR,
    ioctl::SIOCSIFDSTADDR,
    ioctl::SIOCSIFBRDADDR,
    ioctl::SIOCSIFNETMASK,
    ioctl::SIOCSIFMETRIC,
    ioctl::SIOCSIFMTU,
    ioctl::SIOCSIFNAME,
    ioctl::SIOCSIFHWADDR,
    ioctl::SIOCSIFHWBROADCAST,
    ioctl::SIOCSIFPFLAGS,
    ioctl::SIOCSIFTXQLEN,
    ioctl::SIOCSIFMAP,
    ioctl::SIOCADDMULTI,
    ioctl::SIOCDELMULTI,
    ioctl::SIOCDIFADDR,
    ioctl::SIOCSARP,
    ioctl::SIOCDARP,
];

/// `ioctl` of a socket of this family. Errors: `ENOTTY` for requests that are not about interfaces.
pub fn ioctl(c: &mut Caller, family: Family, request: u32, at: u64) -> Result {
    let find = |table: &[(u32, Asked)]| table.iter().find(|(its, _)| *its == request).copied();
    let of_four = || find(OF_FOUR).filter(|_| family == Family::V4);
    let asked = find(OF_ALL).or_else(of_four);
    if request == ioctl::SIOCGIFCONF {
        return list(c, at);
    }
    if CHANGING.contains(&request) {
        c.read(at, REQUEST)?;
        return Err(EPERM.into());
    }
    if asked.is_none() && request != ioctl::SIOCGIFNAME {
        return Err(ENOTTY.into());
    }
    let raw = c.read(at, REQUEST)?;
    let all = interfaces(c)?;
    let Some((_, asked)) = asked else {
        let of = all.by_index(u32_at(&raw, NAME)).ok_or(ENODEV)?;
        c.write(at, &padded(of.name))?;
        return Ok(0);
    };
    // The part behind a colon (`eth0:1`) is an alias of old, one of several addresses of the interface.
    let name = raw[..NAME - 1]
        .split(|byte| matches!(byte, 0 | b':'))
        .next();
    let of = all.by_name(name.unwrap_or_default()).ok_or(ENODEV)?;
    let answer = asked(of).ok_or(EADDRNOTAVAIL)?;
    c.write(at + NAME as u64, &answer)?;
    Ok(0)
}

fn padded(name: &str) -> Vec<u8> {
    Writer::new().bytes(name.as_bytes()).pad_to(NAME).done()
}

/// `SIOCGIFCONF`: the names and addresses of the interfaces that have an IPv4 address, as many as fit; with a null
/// buffer, how many bytes they need.
fn list(c: &mut Caller, at: u64) -> Result {
    let raw = c.read(at, 16)?;
    let (length, into) = (u32_at(&raw, 0), u64_at(&raw, 8));
    if length > i32::MAX as u32 {
        return Err(EINVAL.into());
    }
    let all = interfaces(c)?;
    let mut out = Writer::new();
    let mut used = 0;
    for interface in &all.all {
        for (address, _) in interface.fours() {
            if into != 0 && used + REQUEST > length as usize {
                break;
            }
            used += REQUEST;
            let head = out.bytes(&padded(interface.name));
            out = head.bytes(&four(address)).pad_to(used);
        }
    }
    c.check(at, 16, WRITE)?;
    if into != 0 {
        c.write(into, &out.done())?;
    }
    c.write(at, &(used as u32).to_le_bytes())?;
    Ok(0)
}

// --- /sys/class/net ---

fn card_bytes(bytes: &[u8; 6]) -> String {
    let parts = bytes.map(|byte| format!("{byte:02x}"));
    parts.join(":")
}

/// A file below `/sys/class/net`: its paths for the loopback and for the card, and its contents.
type Property = ([&'static str; 2], fn(&Interface) -> String);

macro_rules! properties {
    ($($name:literal: $text:expr,)*) => {
        /// The properties of each interface.
        const PROPERTIES: &[Property] = &[$((
            [
                concat!("/sys/class/net/lo/", $name),
                concat!("/sys/class/net/eth0/", $name),
            ],
            $text,
        ),)*];
    };
}

properties! {
    "addr_assign_type": |_| "0".into(),
    "addr_len": |_| "6".into(),
    "address": |of| card_bytes(&of.hardware[0]),
    "broadcast": |of| card_bytes(&of.hardware[1]),
    "carrier": |_| "1".into(),
    "dev_id": |_| "0x0".into(),
    "flags": |of| format!("{:#x}", of.flags & !(crate::interfaces::flag::RUNNING | crate::interfaces::flag::LOWER_UP)),
    "ifindex": |of| of.index.to_string(),
    "iflink": |of| of.index.to_string(),
    "mtu": |of| of.mtu.to_string(),
    "operstate": |of| if of.is_loopback() { "unknown" } else { "up" }.into(),
    "statistics/rx_bytes": |_| "0".into(),
    "statistics/rx_dropped": |of| of.counters[1].to_string(),
    "statistics/rx_errors": |_| "0".into(),
    "statistics/rx_packets": |of| of.counters[0].to_string(),
    "statistics/tx_bytes": |_| "0".into(),
    "statistics/tx_dropped": |of| of.counters[3].to_string(),
    "statistics/tx_errors": |_| "0".into(),
    "statistics/tx_packets": |of| of.counters[2].to_string(),
    "tx_queue_len": |of| of.queue.to_string(),
    "type": |of| of.kind.to_string(),
    "uevent": |of| format!("INTERFACE={}\nIFINDEX={}", of.name, of.index),
}

/// The directory that lists interfaces.
pub const DIRECTORY: &str = "/sys/class/net";
/// The directory of the card, which exists if the card does.
pub const OF_CARD: &str = "/sys/class/net/eth0";

/// The paths of all files about interfaces.
pub fn paths() -> impl Iterator<Item = &'static str> {
    PROPERTIES.iter().flat_map(|(paths, _)| *paths)
}

/// The file with this path.
#[must_use]
pub fn find(path: &str) -> Option<Text> {
    if !path.starts_with(DIRECTORY) {
        return None;
    }
    (0u8..).zip(PROPERTIES).find_map(|(at, (paths, _))| {
        let which = (LOOPBACK..).zip(paths).find(|(_, its)| **its == path)?.0;
        Some(Text::Interface(which, at))
    })
}

/// Whether a reference to such a file in a checkpoint image is valid.
#[must_use]
pub fn is_sound(interface: u32, at: u8) -> bool {
    (LOOPBACK..=CARD).contains(&interface) && usize::from(at) < PROPERTIES.len()
}

/// The current contents of a file about an interface. Errors: `ENODEV` if the interface has gone.
pub fn property(c: &mut Caller, interface: u32, at: u8) -> Result<Vec<u8>> {
    let all = interfaces(c)?;
    let of = all.by_index(interface).ok_or(ENODEV)?;
    let (_, text) = PROPERTIES.get(usize::from(at)).ok_or(ENODEV)?;
    Ok((text(of) + "\n").into_bytes())
}

// --- /proc/net ---

/// A file in `/proc/net` that does not list sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum List {
    /// `dev`: packets received and sent.
    Counters,
    /// `route`: routes of IPv4.
    Routes,
    /// `if_inet6`: addresses of IPv6.
    Sixes,
    /// `ipv6_route`: routes of IPv6.
    SixRoutes,
}

/// The current contents of the file.
pub fn text(c: &mut Caller, which: List) -> Result<Vec<u8>> {
    let all = interfaces(c)?;
    let text = match which {
        List::Counters => counters(&all),
        List::Routes => routes(&all),
        List::Sixes => sixes(&all),
        List::SixRoutes => six_routes(&all),
    };
    // Writing to a string cannot fail.
    Ok(text.unwrap_or_default().into_bytes())
}

type Written = core::result::Result<String, core::fmt::Error>;

fn counters(all: &Interfaces) -> Written {
    let mut out = String::from(
        "Inter-|   Receive                                                |  Transmit\n \
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
    );
    for of in &all.all {
        let [came, useless, left, dropped] = of.counters;
        writeln!(
            out,
            "{:>6}: {:7} {came:7} {:4} {useless:4} {:4} {:5} {:10} {:9} {:8} {left:7} {:4} {dropped:4} {:4} {:5} {:7} {:10}",
            of.name, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        )?;
    }
    Ok(out)
}

/// Flags of a route, with Linux's values (`RTF_UP`, `RTF_GATEWAY`, `RTF_HOST`).
const USED: u32 = 1;
const BY_GATEWAY: u32 = 2;
const TO_ONE: u32 = 4;
/// The route is to this machine itself (`RTF_LOCAL`).
const TO_SELF: u32 = 0x8000_0000;

/// Each line is padded to this length.
const LINE: usize = 127;

fn routes(all: &Interfaces) -> Written {
    let head =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
    let mut out = format!("{head:LINE$}\n");
    let is_shown =
        |route: &&crate::interfaces::Route| route.is_four() && route.table == Table::Main;
    for route in all.routes().iter().filter(is_shown) {
        let name = all.by_index(route.interface).map_or("*", |of| of.name);
        // In network byte order, printed as words of the processor.
        let [to, gateway] = [Some(route.to.0), route.gateway].map(|address| {
            let address = address.unwrap_or(0) as u32;
            address.swap_bytes()
        });
        let line = format!(
            "{name}\t{to:08X}\t{gateway:08X}\t{:04X}\t0\t0\t{}\t{:08X}\t0\t0\t0",
            flags(route) & 0xffff,
            route.metric,
            mask(route.to.1).swap_bytes(),
        );
        writeln!(out, "{line:LINE$}")?;
    }
    Ok(out)
}

fn flags(route: &crate::interfaces::Route) -> u32 {
    let whole = if route.is_four() { 32 } else { 128 };
    let flag = |is: bool, flag| if is { flag } else { 0 };
    USED | flag(route.gateway.is_some(), BY_GATEWAY)
        | flag(route.to.1 == whole, TO_ONE)
        | flag(route.table == Table::Local, TO_SELF)
}

/// `IFA_F_PERMANENT`: the address was configured, not assigned for a time.
const PERMANENT: u32 = 0x80;

fn sixes(all: &Interfaces) -> Written {
    let mut out = String::new();
    for of in &all.all {
        for (address, bits) in of.sixes() {
            let scope = match scope_of(address) {
                scope::HOST => 0x10,
                scope::LINK => 0x20,
                _ => 0,
            };
            writeln!(
                out,
                "{address:032x} {:02x} {bits:02x} {scope:02x} {PERMANENT:02x} {:>8}",
                of.index, of.name
            )?;
        }
    }
    Ok(out)
}

fn six_routes(all: &Interfaces) -> Written {
    let mut out = String::new();
    for route in all.routes().iter().filter(|route| !route.is_four()) {
        let name = all.by_index(route.interface).map_or("*", |of| of.name);
        writeln!(
            out,
            "{:032x} {:02x} {:032x} 00 {:032x} {:08x} {:08x} {:08x} {:08x} {name:>8}",
            route.to.0,
            route.to.1,
            0,
            route.gateway.unwrap_or(0),
            route.metric,
            1,
            0,
            flags(route),
        )?;
    }
    Ok(out)
}

/// Fails with `none` if there is no card.
pub fn check_card(c: &mut Caller, none: Errno) -> Result<()> {
    let all = interfaces(c)?;
    all.by_index(CARD).map(|_| ()).ok_or(none.into())
}
