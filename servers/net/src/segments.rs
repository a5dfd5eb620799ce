//! What the stack does not get right about TCP, put right in the segments on their way: two rules of this server's, each with a test that fails without it.
//!
//! * **A connection is begun once.** A segment that begins one may come again when the connection is there: who sent it heard no answer, or its driver died and the
//!   next one sent its batch again. The stack gives it to the first socket that listens if that stands before the connection's own, and all that comes later to
//!   that one, which resets the connection. So it is dropped.
//! * **Probes may cross.** Who may send nothing, since the other end has no room, probes with one byte now and then (RFC 9293, section 3.8.6.1). If both ends do so
//!   at the same time and both have room again, each confirms the other's byte in segments whose own number is the one before that byte. The stack takes nothing
//!   from a segment that begins before what it expects, not even its confirmation, and both ends would wait for ever. So such a segment gets the number that is
//!   expected.

use alloc::collections::BTreeMap;
use core::ops::Range;
use smoltcp::phy::Medium;
use smoltcp::wire::{
    EthernetFrame, IpAddress, IpEndpoint, IpProtocol, IpVersion, Ipv4Packet, Ipv6Packet, TcpPacket,
    TcpSeqNumber,
};

/// The two ends of a connection: this one, the other one.
pub(crate) type Ends = (IpEndpoint, IpEndpoint);

/// What is known of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// The next byte that this end expects, as it said last.
    expects: Option<TcpSeqNumber>,
    /// The number behind all that this end has sent, probes aside.
    sent: Option<TcpSeqNumber>,
    /// The other end has no room.
    is_full: bool,
}

/// The connections of one network.
#[derive(Debug, Default)]
pub(crate) struct Segments(BTreeMap<Ends, Connection>);

/// A segment in a frame: who sent it, who gets it, where it stands.
fn segment(medium: Medium, frame: &[u8]) -> Option<(IpEndpoint, IpEndpoint, Range<usize>)> {
    let packet = match medium {
        Medium::Ethernet => EthernetFrame::new_checked(frame).ok()?.payload(),
        Medium::Ip => frame,
    };
    let begin = frame.len() - packet.len();
    let (from, to, protocol, header, end): (IpAddress, IpAddress, _, _, _) =
        match IpVersion::of_packet(packet.get(..1)?).ok()? {
            IpVersion::Ipv4 => {
                let packet = Ipv4Packet::new_checked(packet).ok()?;
                let header = usize::from(packet.header_len());
                let end = usize::from(packet.total_len());
                let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
                (from, to, packet.next_header(), header, end)
            }
            IpVersion::Ipv6 => {
                let packet = Ipv6Packet::new_checked(packet).ok()?;
                let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
                let (header, end) = (packet.header_len(), packet.total_len());
                (from, to, packet.next_header(), header, end)
            }
        };
    if protocol != IpProtocol::Tcp {
        return None;
    }
    let place = begin + header..begin + end;
    let segment = TcpPacket::new_checked(frame.get(place.clone())?).ok()?;
    let from = IpEndpoint::new(from, segment.src_port());
    let to = IpEndpoint::new(to, segment.dst_port());
    Some((from, to, place))
}

impl Segments {
    /// These connections are being made or there, and no others.
    pub(crate) fn set_connections(&mut self, connections: impl Iterator<Item = Ends>) {
        let mut before = core::mem::take(&mut self.0);
        self.0 = connections
            .map(|ends| (ends, before.remove(&ends).unwrap_or_default()))
            .collect();
    }

    /// A frame has come. Whether the stack gets it.
    pub(crate) fn came(&mut self, medium: Medium, frame: &mut [u8]) -> bool {
        let Some((from, to, place)) = segment(medium, frame) else {
            return true;
        };
        let Some(connection) = self.0.get_mut(&(to, from)) else {
            return true;
        };
        let mut segment = TcpPacket::new_unchecked(&mut frame[place]);
        if segment.syn() && !segment.ack() {
            return false;
        }
        connection.is_full = segment.window_len() == 0;
        let (Some(expects), Some(sent)) = (connection.expects, connection.sent) else {
            return true;
        };
        let is_empty = segment.segment_len() == 0 && segment.ack() && !segment.rst();
        let crosses = segment.seq_number() + 1 == expects && segment.ack_number() == sent + 1;
        // What was altered on its way is not made whole.
        if is_empty && crosses && segment.verify_checksum(&from.addr, &to.addr) {
            segment.set_seq_number(expects);
            segment.fill_checksum(&from.addr, &to.addr);
        }
        true
    }

    /// A frame leaves.
    pub(crate) fn leaves(&mut self, medium: Medium, frame: &[u8]) {
        let Some((from, to, place)) = segment(medium, frame) else {
            return;
        };
        let Some(connection) = self.0.get_mut(&(from, to)) else {
            return;
        };
        let segment = TcpPacket::new_unchecked(&frame[place]);
        if segment.ack() {
            connection.expects = Some(segment.ack_number());
        }
        let is_probe = connection.is_full && segment.segment_len() == 1;
        let end = segment.seq_number() + segment.segment_len();
        if !is_probe && connection.sent.is_none_or(|sent| sent < end) {
            connection.sent = Some(end);
        }
    }
}
