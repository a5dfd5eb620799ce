//! Whose card is asked for, besides by the stack.
//!
//! `smoltcp` asks for one card per second, whoever waits for how many: a program that sends to addresses which nobody has
//! would keep everybody else from their router. So this asks, too, for each neighbour that somebody waits for, once per
//! second, and for the router before the stack forgets its card. The stack takes the answers as if it had asked itself.
//! What is asked for is bounded by the number of sockets: one neighbour for each at a time.

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

/// How often it is looked who is waited for, in nanoseconds, and how often each is asked.
const EVERY: u64 = 1_000_000_000;
/// How long a card is known, in nanoseconds: the stack forgets it after a minute.
pub(super) const KNOWN: u64 = 30_000_000_000;

/// Those that somebody waits for: until when it is not asked for them, since they were asked or have answered.
#[derive(Default)]
pub(super) struct Neighbours {
    all: BTreeMap<Ipv4Addr, u64>,
    /// When it is looked next, and how often that was.
    next: u64,
    looks: usize,
}

impl Stack {
    /// Whether something that a socket has sent over the wire has not left, or may not have.
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

    /// Who has the card to which a frame for this address goes; and whether that is the router.
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

    /// Who is waited for, one for each socket. One at the other end of a connection that is there is known by what he
    /// sends; the router is not.
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
                // The one that is waited for is among them.
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

    /// Asks for the cards of those who are waited for, if it is time.
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
            // For one that is new the stack asks, if it can.
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
