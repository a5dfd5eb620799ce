//! The frames between a network and the stack: a batch that has come, and one that is to leave.

use crate::batch::Batch;
use crate::packet::Packet;
use crate::segments::Segments;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use services::link::{FRAME, MOST};
use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::{ArpPacket, EthernetFrame, EthernetProtocol, IpAddress};

/// Most senders of ARP packets that are remembered until the next turn takes them.
const MOST_HEARD: usize = 64;

/// The device of one network, as the stack uses it.
#[derive(Debug)]
pub(crate) struct Queue {
    medium: Medium,
    /// The batch that has come, and how many of its bytes have been taken.
    came: Batch,
    at: usize,
    /// The batch that is to leave, and its number of frames.
    leaves: Batch,
    count: usize,
    /// The machine's addresses on this network, from which nobody else may send.
    pub(crate) own: Vec<IpAddress>,
    /// Corrects TCP segments that pass.
    pub(crate) segments: Segments,
    /// Neighbours whose cards have become known since this was emptied, at most [`MOST_HEARD`].
    pub(crate) heard: Vec<Ipv4Addr>,
    /// Counters of frames: came, came but useless, left, dropped for lack of room.
    pub(crate) counters: [u64; 4],
}

/// A frame that has come.
#[derive(Debug)]
pub(crate) struct Came<'a>(&'a [u8]);

/// Room for a leaving frame.
#[derive(Debug)]
pub(crate) struct Leaves<'a> {
    medium: Medium,
    batch: &'a mut Batch,
    count: &'a mut usize,
    segments: &'a mut Segments,
    counters: &'a mut [u64; 4],
}

impl Queue {
    /// A queue without frames.
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

    /// Takes a batch that has come; all of the last one must have been taken. `batch` is left with memory only.
    pub(crate) fn put(&mut self, batch: &mut Batch) {
        core::mem::swap(&mut self.came, batch);
        self.at = 0;
        batch.clear();
    }

    /// Takes the batch that is to leave, in exchange for memory. Returns whether it has frames.
    pub(crate) fn take(&mut self, batch: &mut Batch) -> bool {
        batch.clear();
        core::mem::swap(&mut self.leaves, batch);
        self.count = 0;
        !batch.is_empty()
    }

    /// Whether frames that have come are still to be taken.
    pub(crate) fn came_some(&self) -> bool {
        self.at < self.came.bytes().len()
    }

    /// Whether frames are waiting to leave.
    pub(crate) fn leaves_some(&self) -> bool {
        self.count > 0
    }

    /// Whether there is no room for another leaving frame.
    pub(crate) fn is_full(&self) -> bool {
        self.count >= MOST
    }

    /// Turns the leaving frames into frames that have come, for the network of the machine itself. Returns whether
    /// there were any.
    pub(crate) fn turn_round(&mut self) -> bool {
        let mut batch = core::mem::take(&mut self.came);
        let some = self.take(&mut batch);
        self.put(&mut batch);
        some
    }
}

/// Whether a packet from the wire claims to come from this very machine (from one of its addresses, `own`, or a
/// loopback address), or has an address that must not be on a wire. A loopback destination would reach the machine
/// itself. An IPv4-mapped IPv6 address is on no wire (RFC 4291, section 2.5.5.2), and would be taken for the IPv4
/// address. 0.0.0.0 is nobody (RFC 1122, section 3.2.1.3): only a machine without an address sends from there, to DHCP
/// servers, and this machine is none. The stack panics when it sends to 0.0.0.0, in an answer or when it renews a lease
/// with a DHCP server that has answered from there.
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

/// Whether the stack may get a frame from the wire that contains no IP packet: only a valid ARP packet that does not
/// claim to come from this very machine.
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

/// The sender of an ARP packet, who tells its card's address.
fn asks_or_answers(frame: &[u8]) -> Option<Ipv4Addr> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let packet = ArpPacket::new_checked(frame.payload()).ok()?;
    let from: [u8; 4] = packet.source_protocol_addr().try_into().ok()?;
    Some(from.into())
}

impl Queue {
    /// The next frame that the stack may get, as its position in the batch.
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
        // `packet.rs` checks and fills in these checksums; packets of the machine to itself have none.
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
    /// A frame without room is dropped: the stack answers frames that come even when the batch is full.
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
