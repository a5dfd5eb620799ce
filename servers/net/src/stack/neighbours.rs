//! ARP requests in addition to those of the stack.
//!
//! `smoltcp` sends one ARP request per second in all, so a program that sends to addresses which nobody has would keep
//! everybody else from reaching their router. So this module, too, sends a request once per second for each neighbour
//! that a socket waits for, and one for the router before the stack forgets its card. The stack takes the answers as if
//! it had asked itself. The number of sockets bounds the requests: one neighbour for each at a time.

use super::{Entry, Socket, Stack};
use alloc::collections::{BTreeMap, BTreeSet};
use core::net::Ipv4Addr;
use services::net::Kind;
use smoltcp::phy::{Device, TxToken};
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    HardwareAddress, IpAddress, IpCidr,
};

/// How often the sockets are searched for neighbours that they wait for, and how often each of these is asked for, in
/// nanoseconds.
const EVERY: u64 = 1_000_000_000;
/// How long a card counts as known, in nanoseconds: the stack forgets it after a minute.
pub(super) const KNOWN: u64 = 30_000_000_000;

/// The neighbours that sockets wait for, each with the time before which it is not asked for, since it was just asked
/// for or has answered.
#[derive(Default)]
pub(super) struct Neighbours {
    all: BTreeMap<Ipv4Addr, u64>,
    /// The time of the next search, and how many there were.
    next: u64,
    looks: usize,
}

impl Stack {
    /// Whether something that a socket has sent over the wire may not have left yet.
    pub(super) fn waits_to_leave(&self, entry: &Entry) -> bool {
        let Socket::Packets {
            kind,
            at: [(_, at), _],
        } = entry.socket
        else {
            return false;
        };
        let sockets = &self.wire.sockets;
        let bytes = match kind {
            Kind::Echo => sockets.get::<icmp::Socket<'_>>(at).send_queue(),
            _ => sockets.get::<udp::Socket<'_>>(at).send_queue(),
        };
        bytes > 0 || self.now < entry.empty_until
    }

    /// The neighbour that gets frames for this address, and whether it is the router.
    fn hop(&self, address: IpAddress) -> Option<(Ipv4Addr, bool)> {
        let IpAddress::Ipv4(to) = address else {
            return None;
        };
        let interface = &self.wire.interface;
        let is_near = |cidr: &IpCidr| cidr.contains_addr(&address);
        match interface.ip_addrs().iter().any(is_near) {
            true => Some((to, false)),
            false => {
                let route = interface.routes().get_default_ipv4_route()?;
                match route.via_router {
                    IpAddress::Ipv4(router) => Some((router, true)),
                    IpAddress::Ipv6(_) => None,
                }
            }
        }
    }

    /// The neighbours that sockets wait for, one for each socket. The other end of an established connection is known
    /// from its own packets; the router is not.
    fn waited_for(&self) -> BTreeSet<Ipv4Addr> {
        let mut all = BTreeSet::new();
        for (_, socket) in self.wire.sockets.iter() {
            let smoltcp::socket::Socket::Tcp(socket) = socket else {
                continue;
            };
            let is_there = socket.may_send() || socket.may_recv();
            let is_over = matches!(socket.state(), tcp::State::Closed | tcp::State::TimeWait);
            let hop = socket.remote_endpoint().filter(|_| !is_over);
            match hop.and_then(|end| self.hop(end.addr)) {
                Some((hop, is_router)) if is_router || !is_there => all.insert(hop),
                _ => false,
            };
        }
        let looks = self.neighbours.looks;
        for entry in self.entries.values() {
            if self.waits_to_leave(entry) && !entry.sends.is_empty() {
                // The address that the socket waits for is among these; each search takes another one.
                let to = entry.sends[looks % entry.sends.len()];
                all.extend(self.hop(to).map(|(hop, _)| hop));
            }
        }
        if self.queries.are_some() {
            let servers = self.name_servers.iter();
            all.extend(servers.filter_map(|server| Some(self.hop(*server)?.0)));
        }
        all
    }

    /// Sends ARP requests for the neighbours that are waited for, if it is time.
    pub(super) fn ask_neighbours(&mut self) {
        let now = self.now;
        for heard in core::mem::take(&mut self.wire.queue.heard) {
            if let Some(until) = self.neighbours.all.get_mut(&heard) {
                *until = now.saturating_add(KNOWN);
            }
        }
        if now < self.neighbours.next {
            return;
        }
        self.neighbours.next = now.saturating_add(EVERY);
        self.neighbours.looks = self.neighbours.looks.wrapping_add(1);
        let waited_for = self.waited_for();
        self.neighbours
            .all
            .retain(|hop, _| waited_for.contains(hop));
        for hop in waited_for {
            // For a new neighbour the stack sends a request, if it can.
            let until = self.neighbours.all.entry(hop).or_insert(now + EVERY / 2);
            if *until <= now {
                *until = now.saturating_add(EVERY / 2);
                self.ask_neighbour(hop);
            }
        }
    }

    fn ask_neighbour(&mut self, neighbour: Ipv4Addr) {
        let interface = &self.wire.interface;
        let (HardwareAddress::Ethernet(card), Some(own)) = (
            interface.hardware_addr(),
            interface.get_source_address_ipv4(&neighbour),
        ) else {
            return;
        };
        let question = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: card,
            source_protocol_addr: own,
            target_hardware_addr: EthernetAddress::BROADCAST,
            target_protocol_addr: neighbour,
        };
        let Some(room) = self.wire.queue.transmit(super::instant(self.now)) else {
            return;
        };
        let length = EthernetFrame::<&[u8]>::buffer_len(question.buffer_len());
        room.consume(length, |frame| {
            let mut frame = EthernetFrame::new_unchecked(frame);
            frame.set_dst_addr(EthernetAddress::BROADCAST);
            frame.set_src_addr(card);
            frame.set_ethertype(EthernetProtocol::Arp);
            question.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
        });
    }
}
