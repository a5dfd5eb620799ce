//! Frames on their way between a network and the stack: a batch that has come, and one that is to leave.

use alloc::vec::Vec;
use services::link::{frames, BATCH, FRAME, MOST};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpEndpoint, IpProtocol, IpVersion, Ipv4Packet,
    Ipv6Packet, TcpPacket,
};

/// The two ends of a connection: this one, the other one.
pub(crate) type Ends = (IpEndpoint, IpEndpoint);

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
    /// The connections that there are. A frame that asks for one of them is of no use: the stack would give it to the first socket that listens, if that stands
    /// before the connection's, and what comes later to the wrong one, which resets the connection.
    pub(crate) connections: Vec<Ends>,
    /// Frames that came, and those of them that make no sense; that left, and that there was no room for.
    pub(crate) counters: [u64; 4],
}

/// A frame that came.
#[derive(Debug)]
pub(crate) struct Came<'a>(&'a [u8]);

/// Room for a frame that leaves.
#[derive(Debug)]
pub(crate) struct Leaves<'a> {
    batch: &'a mut Vec<u8>,
    count: &'a mut usize,
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
            connections: Vec::new(),
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

/// The connection for which a frame asks, if it does.
fn begins(medium: Medium, frame: &[u8]) -> Option<Ends> {
    let packet = match medium {
        Medium::Ethernet => EthernetFrame::new_checked(frame).ok()?.payload(),
        Medium::Ip => frame,
    };
    let (from, to, protocol, segment): (IpAddress, IpAddress, _, _) =
        match IpVersion::of_packet(packet.get(..1)?).ok()? {
            IpVersion::Ipv4 => {
                let packet = Ipv4Packet::new_checked(packet).ok()?;
                let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
                (from, to, packet.next_header(), packet.payload())
            }
            IpVersion::Ipv6 => {
                let packet = Ipv6Packet::new_checked(packet).ok()?;
                let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
                (from, to, packet.next_header(), packet.payload())
            }
        };
    if protocol != IpProtocol::Tcp {
        return None;
    }
    let segment = TcpPacket::new_checked(segment).ok()?;
    let ends = (
        IpEndpoint::new(to, segment.dst_port()),
        IpEndpoint::new(from, segment.src_port()),
    );
    (segment.syn() && !segment.ack()).then_some(ends)
}

/// Whether a frame of the wire claims to come from this very machine's addresses for itself, which nobody outside has.
fn is_forged(frame: &[u8]) -> bool {
    let Ok(frame) = EthernetFrame::new_checked(frame) else {
        return false;
    };
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => Ipv4Packet::new_checked(frame.payload())
            .is_ok_and(|packet| packet.src_addr().is_loopback() || packet.dst_addr().is_loopback()),
        EthernetProtocol::Ipv6 => Ipv6Packet::new_checked(frame.payload())
            .is_ok_and(|packet| packet.src_addr().is_loopback() || packet.dst_addr().is_loopback()),
        _ => false,
    }
}

impl phy::Device for Queue {
    type RxToken<'a> = Came<'a>;
    type TxToken<'a> = Leaves<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Came<'_>, Leaves<'_>)> {
        let frame = loop {
            let frame = frames(&self.came[self.at..]).next()?;
            self.at += 2 + frame.len();
            self.counters[0] += 1;
            let is_forged = self.medium == Medium::Ethernet && is_forged(frame);
            let is_there = || {
                let ends = begins(self.medium, frame);
                ends.is_some_and(|ends| self.connections.contains(&ends))
            };
            match is_forged || is_there() {
                true => self.counters[1] += 1,
                false => break frame,
            }
        };
        let leaves = Leaves {
            batch: &mut self.leaves,
            count: &mut self.count,
            counters: &mut self.counters,
        };
        Some((Came(frame), leaves))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaves<'_>> {
        (!self.is_full()).then_some(Leaves {
            batch: &mut self.leaves,
            count: &mut self.count,
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
            *self.count += 1;
            self.counters[2] += 1;
        }
        result
    }
}
