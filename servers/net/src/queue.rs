//! Frames on their way between a network and the stack: a batch that has come, and one that is to leave.

use crate::segments::Segments;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use services::link::{frames, BATCH, FRAME, MOST};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::{
    ArpPacket, EthernetFrame, EthernetProtocol, IpAddress, Ipv4Packet, Ipv6Packet,
};

/// Frames that the stack takes and makes.
#[derive(Debug)]
pub(crate) struct Queue {
    medium: Medium,
    /// What has come, and how far it was taken.
    came: Vec<u8>,
    at: usize,
    /// What is to leave, and how many frames these are.
    leaves: Vec<u8>,
    count: usize,
    /// The machine's addresses here: nobody else has them.
    pub(crate) own: Vec<IpAddress>,
    /// Looks at what passes.
    pub(crate) segments: Segments,
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
    batch: &'a mut Vec<u8>,
    count: &'a mut usize,
    segments: &'a mut Segments,
    counters: &'a mut [u64; 4],
}

impl Queue {
    /// Nothing yet.
    pub(crate) fn new(medium: Medium) -> Self {
        Queue {
            medium,
            came: Vec::new(),
            at: 0,
            leaves: Vec::new(),
            count: 0,
            own: Vec::new(),
            segments: Segments::default(),
            counters: [0; 4],
        }
    }

    /// A batch has come: all of the last one was taken. What is left in `batch` is memory.
    pub(crate) fn put(&mut self, batch: &mut Vec<u8>) {
        core::mem::swap(&mut self.came, batch);
        self.at = 0;
        batch.clear();
    }

    /// Takes the batch that is to leave, in exchange for memory. Whether there is one.
    pub(crate) fn take(&mut self, batch: &mut Vec<u8>) -> bool {
        batch.clear();
        if self.leaves.capacity() == 0 {
            self.leaves.reserve(BATCH);
        }
        core::mem::swap(&mut self.leaves, batch);
        self.count = 0;
        !batch.is_empty()
    }

    /// Whether some of what has come was not taken.
    pub(crate) fn came_some(&self) -> bool {
        self.at < self.came.len()
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

/// Whether a frame of the wire claims to come from this very machine, at one of its addresses here (`own`) or at one for itself, or is for
/// one of the latter. An IPv4 address in the form of IPv6 is on no wire (RFC 4291, section 2.5.5.2), and would be taken for that one.
fn is_forged(frame: &[u8], own: &[IpAddress]) -> bool {
    let Ok(frame) = EthernetFrame::new_checked(frame) else {
        return false;
    };
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => Ipv4Packet::new_checked(frame.payload()).is_ok_and(|packet| {
            let (from, to) = (packet.src_addr(), packet.dst_addr());
            from.is_loopback() || to.is_loopback() || own.contains(&from.into())
        }),
        EthernetProtocol::Ipv6 => Ipv6Packet::new_checked(frame.payload()).is_ok_and(|packet| {
            let (from, to) = (packet.src_addr(), packet.dst_addr());
            let is_none =
                |address: Ipv6Addr| address.is_loopback() || address.to_ipv4_mapped().is_some();
            is_none(from) || is_none(to) || own.contains(&from.into())
        }),
        EthernetProtocol::Arp => ArpPacket::new_checked(frame.payload()).is_ok_and(|packet| {
            let from: Option<[u8; 4]> = packet.source_protocol_addr().try_into().ok();
            from.is_some_and(|from| own.contains(&Ipv4Addr::from(from).into()))
        }),
        _ => false,
    }
}

impl phy::Device for Queue {
    type RxToken<'a> = Came<'a>;
    type TxToken<'a> = Leaves<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Came<'_>, Leaves<'_>)> {
        let frame = loop {
            let length = frames(&self.came[self.at..]).next()?.len();
            let place = self.at + 2..self.at + 2 + length;
            self.at = place.end;
            self.counters[0] += 1;
            let frame = &mut self.came[place.clone()];
            let is_forged = self.medium == Medium::Ethernet && is_forged(frame, &self.own);
            if !is_forged && self.segments.came(self.medium, frame) {
                break &self.came[place];
            }
            self.counters[1] += 1;
        };
        let leaves = Leaves {
            medium: self.medium,
            batch: &mut self.leaves,
            count: &mut self.count,
            segments: &mut self.segments,
            counters: &mut self.counters,
        };
        Some((Came(frame), leaves))
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
        let start = self.batch.len();
        self.batch.extend_from_slice(&(length as u16).to_le_bytes());
        self.batch.resize(start + 2 + length, 0);
        let result = f(&mut self.batch[start + 2..]);
        if *self.count >= MOST || length > FRAME {
            self.batch.truncate(start);
            self.counters[3] += 1;
        } else {
            self.segments.leaves(self.medium, &self.batch[start + 2..]);
            *self.count += 1;
            self.counters[2] += 1;
        }
        result
    }
}
