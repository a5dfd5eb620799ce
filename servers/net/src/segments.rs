//! What the stack does not get right about TCP, put right in the segments on their way: two rules of this server's, each with a test that fails without it.
//!
//! * **A connection is begun once.** A segment that begins one may come again when the connection is there: who sent it heard no answer, or its driver died and the
//!   next one sent its batch again. The stack gives it to the first socket that listens if that stands before the connection's own, and all that comes later to
//!   that one, which resets the connection. So it is dropped.
//! * **Probes may cross.** Who may send nothing, since the other end has no room, probes with one byte now and then (RFC 9293, section 3.8.6.1). If both ends do so
//!   at the same time and both have room again, each confirms the other's byte in segments whose own number is the one before that byte. The stack takes nothing
//!   from a segment that begins before what it expects, not even its confirmation, and both ends would wait for ever. So such a segment gets the number that is
//!   expected.

use crate::packet::Packet;
use alloc::vec::Vec;
use smoltcp::wire::{IpEndpoint, IpProtocol, TcpPacket, TcpSeqNumber};

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

/// The connections of one network, in the order of the stack's sockets. Mostly they are few, and as they were when the last frames came: then nothing of this is
/// made anew.
#[derive(Debug, Default)]
pub(crate) struct Segments(Vec<(Ends, Connection)>);

impl Segments {
    /// These connections are being made or there, and no others.
    pub(crate) fn set_connections<I: Iterator<Item = Ends>>(
        &mut self,
        connections: impl Fn() -> I,
    ) {
        if connections().eq(self.0.iter().map(|(ends, _)| *ends)) {
            return;
        }
        let before = core::mem::take(&mut self.0);
        // Those that were there are in the same order: where the last one was found the next one is.
        let mut next = 0;
        let known = |ends: Ends| {
            let (first, rest) = before.split_at(next);
            let found = rest.iter().chain(first).position(|(its, _)| *its == ends);
            let Some(found) = found else {
                return (ends, Connection::default());
            };
            let at = (next + found) % before.len();
            next = at + 1;
            (ends, before[at].1)
        };
        self.0 = connections().map(known).collect();
    }

    /// The segment in a packet, and what is known of its connection: `ends` says which this is.
    fn segment<'a>(
        &mut self,
        packet: &Packet,
        frame: &'a mut [u8],
        ends: impl FnOnce(IpEndpoint, IpEndpoint) -> Ends,
    ) -> Option<(TcpPacket<&'a mut [u8]>, &mut Connection)> {
        if packet.protocol != IpProtocol::Tcp || self.0.is_empty() {
            return None;
        }
        let segment = TcpPacket::new_checked(frame.get_mut(packet.place.clone())?).ok()?;
        let from = IpEndpoint::new(packet.from, segment.src_port());
        let to = IpEndpoint::new(packet.to, segment.dst_port());
        let ends = ends(from, to);
        let (_, connection) = self.0.iter_mut().find(|(its, _)| *its == ends)?;
        Some((segment, connection))
    }

    /// A frame has come, as it was sent. Whether the stack gets it. (Nothing looks at its checksum behind this.)
    pub(crate) fn came(&mut self, packet: &Packet, frame: &mut [u8]) -> bool {
        let Some((mut segment, connection)) = self.segment(packet, frame, |from, to| (to, from))
        else {
            return true;
        };
        if segment.syn() && !segment.ack() {
            return false;
        }
        connection.is_full = segment.window_len() == 0;
        let (Some(expects), Some(sent)) = (connection.expects, connection.sent) else {
            return true;
        };
        let is_empty = segment.segment_len() == 0 && segment.ack() && !segment.rst();
        let crosses = segment.seq_number() + 1 == expects && segment.ack_number() == sent + 1;
        if is_empty && crosses {
            segment.set_seq_number(expects);
        }
        true
    }

    /// A frame leaves.
    pub(crate) fn leaves(&mut self, packet: &Packet, frame: &mut [u8]) {
        let Some((segment, connection)) = self.segment(packet, frame, |from, to| (from, to)) else {
            return;
        };
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
