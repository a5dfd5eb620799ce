//! Frames on their way between a network and the stack: a batch that has come, and one that is to leave.

use crate::batch::Batch;
use crate::packet::Packet;
use crate::segments::Segments;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use services::link::{FRAME, MOST};
use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::{ArpPacket, EthernetFrame, EthernetProtocol, IpAddress};

/// Most neighbours that are remembered to have said something, until somebody looks.
const MOST_HEARD: usize = 64;

/// Frames that the stack takes and makes.
#[derive(Debug)]
pub(crate) struct Queue {
    medium: Medium,
    /// What has come, and how far it was taken.
    came: Batch,
    at: usize,
    /// What is to leave, and how many frames these are.
    leaves: Batch,
    count: usize,
    /// The machine's addresses here: nobody else has them.
    pub(crate) own: Vec<IpAddress>,
    /// Looks at what passes.
    pub(crate) segments: Segments,
    /// Whose cards are known since this was emptied, some of them.
    pub(crate) heard: Vec<Ipv4Addr>,
    /// Frames that came, and those of them that make no sense; that left, and that there was no room for.
    pub(crate) counters: [u64; 4],
}

/// A frame that came.
#[derive(Debug)]
pub(crate) struct Came<'a>(&'a [u8]);

/// Room for a frame that leaves.
#[derive(Debug)]
pub(crate) struct Leaves<'a> {
    medium: Medium,
    batch: &'a mut Batch,
    count: &'a mut usize,
    segments: &'a mut Segments,
    counters: &'a mut [u64; 4],
}

impl Queue {
    /// Nothing yet.
    pub(crate) fn new(medium: Medium) -> Self {
        Queue {
            medium,
            came: Batch::new(),
            at: 0,
            leaves: Batch::new(),
            count: 0,
            own: Vec::new(),
            segments: Segments::default(),
            heard: Vec::new(),
            counters: [0; 4],
        }
    }

    /// A batch has come: all of the last one was taken. What is left in `batch` is memory.
    pub(crate) fn put(&mut self, batch: &mut Batch) {
        core::mem::swap(&mut self.came, batch);
        self.at = 0;
        batch.clear();
    }

    /// Takes the batch that is to leave, in exchange for memory. Whether there is one.
    pub(crate) fn take(&mut self, batch: &mut Batch) -> bool {
        batch.clear();
        core::mem::swap(&mut self.leaves, batch);
        self.count = 0;
        !batch.is_empty()
    }

    /// Whether some of what has come was not taken.
    pub(crate) fn came_some(&self) -> bool {
        self.at < self.came.bytes().len()
    }

    /// Whether frames wait to be taken.
    pub(crate) fn leaves_some(&self) -> bool {
        self.count > 0
    }

    /// Whether there is no room for a frame more.
    pub(crate) fn is_full(&self) -> bool {
        self.count >= MOST
    }

    /// What leaves comes back: the network is the machine itself. Whether there was something.
    pub(crate) fn turn_round(&mut self) -> bool {
        let mut batch = core::mem::take(&mut self.came);
        let some = self.take(&mut batch);
        self.put(&mut batch);
        some
    }
}

/// Whether a packet of the wire claims to come from this very machine, at one of its addresses here (`own`) or at one
/// for itself, or is for one of the latter. An IPv4 address in the form of IPv6 is on no wire (RFC 4291, section
/// 2.5.5.2), and would be taken for that one. 0.0.0.0 is nobody (RFC 1122, section 3.2.1.3): only who has no address
/// yet sends from there, to servers of addresses, of which this machine is none. The stack would answer to it, which it
/// must not: it panics. (It asks the server of addresses again at the address from which that has answered.)
fn is_forged(packet: &Packet, own: &[IpAddress]) -> bool {
    let is_none = |address: IpAddress| match address {
        IpAddress::Ipv4(address) => address.is_loopback() || address.is_unspecified(),
        IpAddress::Ipv6(address) => {
            let is_mapped = |address: Ipv6Addr| address.to_ipv4_mapped().is_some();
            address.is_loopback() || is_mapped(address)
        }
    };
    is_none(packet.from) || is_none(packet.to) || own.contains(&packet.from)
}

/// Whether the stack may get a frame of the wire that has no packet of IP in it: a question for cards, or an answer to
/// one, that does not claim to come from this very machine. What says that it is a packet and is none is nothing.
fn is_question(frame: &[u8], own: &[IpAddress]) -> bool {
    let Ok(frame) = EthernetFrame::new_checked(frame) else {
        return false;
    };
    frame.ethertype() == EthernetProtocol::Arp
        && ArpPacket::new_checked(frame.payload()).is_ok_and(|packet| {
            let from: Option<[u8; 4]> = packet.source_protocol_addr().try_into().ok();
            !from.is_some_and(|from| own.contains(&Ipv4Addr::from(from).into()))
        })
}

/// Who says in a frame what his card is.
fn asks_or_answers(frame: &[u8]) -> Option<Ipv4Addr> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let packet = ArpPacket::new_checked(frame.payload()).ok()?;
    let from: [u8; 4] = packet.source_protocol_addr().try_into().ok()?;
    Some(from.into())
}

impl Queue {
    /// The next frame that the stack may get: where it stands in the batch.
    fn next(&mut self) -> Option<core::ops::Range<usize>> {
        loop {
            let place = self.came.frame(self.at)?;
            self.at = place.end;
            self.counters[0] += 1;
            let frame = &mut self.came.bytes_mut()[place.clone()];
            let may = match Packet::of(self.medium, frame) {
                // The machine's own packets are not altered on their way.
                Some(packet) if self.medium == Medium::Ip => self.segments.came(&packet, frame),
                Some(packet) => {
                    let is_forged = is_forged(&packet, &self.own);
                    !is_forged && packet.is_whole(frame) && self.segments.came(&packet, frame)
                }
                None => {
                    let may = self.medium == Medium::Ethernet && is_question(frame, &self.own);
                    if may && self.heard.len() < MOST_HEARD {
                        self.heard.extend(asks_or_answers(frame));
                    }
                    may
                }
            };
            if may {
                return Some(place);
            }
            self.counters[1] += 1;
        }
    }
}

impl phy::Device for Queue {
    type RxToken<'a> = Came<'a>;
    type TxToken<'a> = Leaves<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Came<'_>, Leaves<'_>)> {
        let place = self.next()?;
        let leaves = Leaves {
            medium: self.medium,
            batch: &mut self.leaves,
            count: &mut self.count,
            segments: &mut self.segments,
            counters: &mut self.counters,
        };
        Some((Came(&self.came.bytes()[place]), leaves))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaves<'_>> {
        (!self.is_full()).then_some(Leaves {
            medium: self.medium,
            batch: &mut self.leaves,
            count: &mut self.count,
            segments: &mut self.segments,
            counters: &mut self.counters,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = self.medium;
        capabilities.max_transmission_unit = match self.medium {
            Medium::Ethernet => FRAME,
            Medium::Ip => FRAME - 14,
        };
        // Ours to look at and to fill in; nobody's of what the machine sends to itself.
        capabilities.checksum.tcp = Checksum::None;
        capabilities.checksum.udp = Checksum::None;
        if self.medium == Medium::Ip {
            capabilities.checksum.ipv4 = Checksum::None;
        }
        capabilities
    }
}

impl phy::RxToken for Came<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl phy::TxToken for Leaves<'_> {
    /// An answer for which there is no room is dropped: what comes is always taken.
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let result = f(self.batch.push(length));
        if *self.count >= MOST || length > FRAME {
            self.batch.take_back(length);
            self.counters[3] += 1;
            return result;
        }
        let frame = self.batch.last_mut(length);
        if let Some(packet) = Packet::of(self.medium, frame) {
            if self.medium == Medium::Ethernet {
                packet.fill(frame);
            }
            self.segments.leaves(&packet, frame);
        }
        *self.count += 1;
        self.counters[2] += 1;
        result
    }
}
