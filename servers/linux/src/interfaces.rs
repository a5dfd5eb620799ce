//! The network interfaces of the machine as Linux shows them: the loopback always, and `eth0` once the network server
//! has reported a card. Everything that programs read about interfaces, by `ioctl`, by netlink and in files, is
//! computed from this.

use alloc::vec::Vec;

use crate::outside::Card;
use crate::socket::{is_loopback, is_mapped, mapped, LOOPBACK_4, LOOPBACK_6};

/// The index of the loopback.
pub const LOOPBACK: u32 = 1;
/// The index of the card.
pub const CARD: u32 = 2;
/// The name of the card, also below `/sys/class/net`.
pub const CARD_NAME: &str = "eth0";

/// Flags of an interface, as Linux has them.
pub mod flag {
    /// The interface is switched on.
    pub const UP: u32 = 1;
    /// The interface has a broadcast address.
    pub const BROADCAST: u32 = 2;
    /// The interface is the loopback.
    pub const LOOPBACK: u32 = 8;
    /// The interface is operational.
    pub const RUNNING: u32 = 0x40;
    /// The interface can send to multicast groups.
    pub const MULTICAST: u32 = 0x1000;
    /// There is a carrier.
    pub const LOWER_UP: u32 = 0x1_0000;
}

/// Scopes of addresses and routes, with Linux's numbers.
pub mod scope {
    /// Valid everywhere.
    pub const WORLD: u8 = 0;
    /// Valid in the network of the interface.
    pub const LINK: u8 = 253;
    /// Valid in this machine.
    pub const HOST: u8 = 254;
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: &'static str,
    /// Its ARP hardware type: 1 is an Ethernet, 772 the loopback.
    pub kind: u16,
    /// Its [`flag`]s.
    pub flags: u32,
    /// Most bytes of a packet (MTU).
    pub mtu: u32,
    /// Packets that its send queue can hold.
    pub queue: u32,
    /// Name of the discipline of the send queue, as Linux names it.
    pub order: &'static str,
    /// Its hardware address and the hardware broadcast address.
    pub hardware: [[u8; 6]; 2],
    /// Its addresses and the prefix lengths of their networks. IPv4 addresses are mapped into IPv6.
    pub addresses: Vec<(u128, u8)>,
    /// Packets received, dropped as useless, sent, and dropped for lack of room.
    pub counters: [u64; 4],
}

impl Interface {
    /// Whether it is the loopback.
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        self.index == LOOPBACK
    }

    /// Its IPv4 addresses, with prefix lengths.
    pub fn fours(&self) -> impl Iterator<Item = (u32, u8)> + '_ {
        let fours = self.addresses.iter().filter(|(its, _)| is_mapped(*its));
        fours.map(|(address, bits)| (*address as u32, (*bits).min(32)))
    }

    /// Its IPv6 addresses, with prefix lengths.
    pub fn sixes(&self) -> impl Iterator<Item = (u128, u8)> + '_ {
        let sixes = self.addresses.iter().filter(|(its, _)| !is_mapped(*its));
        sixes.map(|(address, bits)| (*address, (*bits).min(128)))
    }

    /// The broadcast address of the network of an IPv4 address; none on the loopback.
    #[must_use]
    pub fn broadcast(&self, (address, bits): (u32, u8)) -> Option<u32> {
        let has = self.flags & flag::BROADCAST != 0 && bits < 31;
        has.then_some(address | !mask(bits))
    }
}

/// The network mask of IPv4 for a prefix length.
#[must_use]
pub const fn mask(bits: u8) -> u32 {
    match u32::MAX.checked_shl(32u32.saturating_sub(bits as u32)) {
        Some(mask) => mask,
        None => 0,
    }
}

/// The first address of the network of an address with this prefix length.
const fn network((address, bits): (u128, u8)) -> u128 {
    let width = if is_mapped(address) { 32 } else { 128 };
    let apart = (width as u32).saturating_sub(bits as u32);
    match u128::MAX.checked_shl(apart) {
        Some(mask) => address & mask,
        None => 0,
    }
}

/// The [`scope`] of an address.
#[must_use]
pub const fn scope_of(address: u128) -> u8 {
    match address {
        _ if is_loopback(address) => scope::HOST,
        _ if address >> 118 == 0xfe80 >> 6 => scope::LINK,
        _ => scope::WORLD,
    }
}

/// A routing table, with Linux's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Routes to other machines.
    Main = 254,
    /// Routes to this machine itself.
    Local = 255,
}

/// The type of a route, with Linux's number: what the addresses at its end are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum End {
    Others = 1,
    Self_ = 2,
    All = 3,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The table that has the route.
    pub table: Table,
    /// The type of the route.
    pub end: End,
    /// The first destination address, and the prefix length.
    pub to: (u128, u8),
    /// The router that forwards the packets, if one does.
    pub gateway: Option<u128>,
    /// The source address of packets on this route, if one is set.
    pub source: Option<u128>,
    /// The scope of the destination.
    pub scope: u8,
    /// Its weight.
    pub metric: u32,
    /// Index of the interface.
    pub interface: u32,
}

impl Route {
    /// Whether it is a route of IPv4.
    #[must_use]
    pub const fn is_four(&self) -> bool {
        is_mapped(self.to.0)
    }

    /// Whether it leads to an address.
    fn leads_to(&self, address: u128) -> bool {
        is_mapped(address) == self.is_four() && network((address, self.to.1)) == self.to.0
    }
}

/// All interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// The interfaces by rising index.
    pub all: Vec<Interface>,
    router: Option<u128>,
}

impl Interfaces {
    /// The interfaces of a machine with this card, or without one.
    #[must_use]
    pub fn new(card: Option<&Card>) -> Self {
        let mut all = Vec::from([Interface {
            index: LOOPBACK,
            name: "lo",
            kind: 772,
            flags: flag::UP | flag::LOOPBACK | flag::RUNNING | flag::LOWER_UP,
            mtu: 65_536,
            queue: 1000,
            order: "noqueue",
            hardware: [[0; 6]; 2],
            addresses: Vec::from([(LOOPBACK_4, 8), (LOOPBACK_6, 128)]),
            counters: [0; 4],
        }]);
        all.extend(card.map(|card| {
            let [_, _, hardware @ ..] = card.address.to_be_bytes();
            Interface {
                index: CARD,
                name: CARD_NAME,
                kind: 1,
                flags: flag::UP
                    | flag::BROADCAST
                    | flag::RUNNING
                    | flag::MULTICAST
                    | flag::LOWER_UP,
                mtu: card.mtu,
                queue: 1000,
                order: "pfifo_fast",
                hardware: [hardware, [0xff; 6]],
                addresses: card.here.addresses.clone(),
                counters: card.counters,
            }
        }));
        Interfaces {
            all,
            router: card.and_then(|card| card.router),
        }
    }

    /// The interface with this index.
    #[must_use]
    pub fn by_index(&self, index: u32) -> Option<&Interface> {
        self.all.iter().find(|interface| interface.index == index)
    }

    /// The interface with this name.
    #[must_use]
    pub fn by_name(&self, name: &[u8]) -> Option<&Interface> {
        self.all
            .iter()
            .find(|interface| interface.name.as_bytes() == name)
    }

    /// All routes: the default route, then the routes of IPv4, then those of IPv6, in each family the main table first.
    #[must_use]
    pub fn routes(&self) -> Vec<Route> {
        let mut all = Vec::new();
        if let Some(gateway) = self.router.filter(|_| self.by_index(CARD).is_some()) {
            all.push(Route {
                table: Table::Main,
                end: End::Others,
                to: (mapped(0), 0),
                gateway: Some(gateway),
                source: None,
                scope: scope::WORLD,
                metric: 0,
                interface: CARD,
            });
        }
        for is_four in [true, false] {
            for table in [Table::Main, Table::Local] {
                let routes = self.all.iter().flat_map(|i| routes_of(i, is_four, table));
                all.extend(routes);
            }
        }
        all
    }

    /// The route to an address, and the source address of packets on it.
    #[must_use]
    pub fn way(&self, to: u128) -> Option<(Route, Option<u128>)> {
        let all = self.routes();
        let found = all.iter().filter(|route| route.leads_to(to));
        // The longest prefix wins; of equal ones the route to the machine itself.
        let best = found.max_by_key(|route| (route.to.1, route.table as u32))?;
        let of_interface = |index| {
            let interface = self.by_index(index)?;
            let mut own = interface.addresses.iter().map(|(its, _)| *its);
            own.find(|its| is_mapped(*its) == is_mapped(to))
        };
        if best.end == End::Self_ {
            // Packets for the machine itself do not leave it.
            let found = Route {
                interface: LOOPBACK,
                ..*best
            };
            return Some((found, best.source.or(Some(to))));
        }
        let own = best.source.or_else(|| of_interface(best.interface));
        Some((*best, own))
    }
}

/// The routes of one family in one table that follow from the addresses of an interface.
fn routes_of(interface: &Interface, is_four: bool, table: Table) -> Vec<Route> {
    let mut all = Vec::new();
    for (address, bits) in interface.addresses.iter().copied() {
        if is_mapped(address) != is_four {
            continue;
        }
        let whole: u8 = if is_four { 32 } else { 128 };
        let bits = bits.min(whole);
        let base = Route {
            table,
            end: End::Others,
            to: (network((address, bits)), bits),
            gateway: None,
            source: is_four.then_some(address),
            scope: if is_four { scope::LINK } else { scope::WORLD },
            metric: if is_four { 0 } else { 256 },
            interface: interface.index,
        };
        let own = Route {
            end: End::Self_,
            scope: if is_four { scope::HOST } else { scope::WORLD },
            metric: 0,
            ..base
        };
        match table {
            // All addresses of the loopback's IPv4 network are the machine itself, so it has no route in the main
            // table.
            Table::Main if is_four && (interface.is_loopback() || bits == whole) => {}
            Table::Main => all.push(base),
            Table::Local => {
                if is_four && interface.is_loopback() {
                    all.push(own);
                }
                all.push(Route {
                    to: (address, whole),
                    ..own
                });
                let broadcast = interface.broadcast((address as u32, bits));
                all.extend(broadcast.filter(|_| is_four).map(|to| Route {
                    end: End::All,
                    to: (mapped(to), whole),
                    ..base
                }));
            }
        }
    }
    all
}
