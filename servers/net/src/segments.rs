//! Corrects TCP segments on their way to and from the stack, where the stack gets TCP wrong. There are six rules, each
//! with a test that fails without it.
//!
//! * **A connection is begun once.** The segment that begins a connection may come again when the connection exists:
//!   its sender heard no answer, or the sender's driver died and the next driver sent the same batch again. If a
//!   listening socket precedes the connection's own in the stack's list, the stack gives the segment to that socket,
//!   and then all later segments, and the listening socket resets the connection. So the segment is dropped.
//! * **Probes may cross.** An end that may send nothing, since the other end has no room, sends probes of one byte now
//!   and then (RFC 9293, section 3.8.6.1). If both ends do so at the same time and both have room again, each confirms
//!   the other's byte in segments whose own sequence number is the one before that byte. The stack takes nothing from a
//!   segment that begins before what it expects, not even the confirmation, and both ends would wait for ever. So such
//!   a segment gets the expected sequence number.
//! * **A reset needs the exact sequence number** (RFC 5961, section 3.2). The stack accepts a reset with any number in
//!   the window, so somebody who does not see the connection needs only a few thousand attempts. Here a reset is passed
//!   on only with the number that is expected; another one is answered with that number, which the real other end can
//!   use. When this end was asked for the connection, the number is known once its answer has left.
//! * **A socket forgets a connection that was given up.** When a connection is reset before it is established, the
//!   stack has its socket listen again, but the socket keeps the time at which it sent its last segment. The next
//!   connection may confirm that segment days later, and the stack's arithmetic overflows. So the stack does not get
//!   the reset, and the socket is made to listen anew ([`Segments::take_given_up`]).
//! * **A full port is not closed.** The stack refuses a connection when no listening socket is free. If there are
//!   listening sockets at the port, the segment is dropped instead: its sender repeats it, and there may be a free
//!   socket by then.
//! * **A distant sequence number is invalid.** Of two sequence numbers that differ by half of the number space, each is
//!   behind the other. Behind a full window and the end of the stream there is such a number, and the stack takes a
//!   byte that has it for one in the window; its sums then overflow, and the server would end. So the segment is
//!   dropped.
//!
//! It also notes whose end of the stream was confirmed: of a connection that is over, the stack does not say how it
//! ended.

use crate::packet::Packet;
use alloc::vec::Vec;
use smoltcp::wire::{IpEndpoint, IpProtocol, TcpPacket, TcpSeqNumber};

/// The two ends of a connection: this machine's first.
pub(crate) type Ends = (IpEndpoint, IpEndpoint);

/// The state of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// The next byte that this end expects, as its last segment said.
    expects: Option<TcpSeqNumber>,
    /// The sequence number behind all that this end has sent, probes aside.
    sent: Option<TcpSeqNumber>,
    /// Whether the other end has said that it has no room.
    is_full: bool,
    /// Whether the connection was asked for and answered, but not confirmed.
    is_half: bool,
    /// The sequence number behind the end of this end's stream, from when that end was sent until it is confirmed.
    end: Option<TcpSeqNumber>,
}

/// Most connections that are kept here before [`Segments::set_connections`] contains them: each is a socket of the
/// stack.
const MOST_NEW: usize = 512;

/// The connections of one network, in the order of the stack's sockets, and behind them those that
/// [`Segments::set_connections`] has not contained yet. Usually they are few and the same as when the last frames came;
/// then nothing here is rebuilt.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    connections: Vec<(Ends, Connection)>,
    given_up: Vec<Ends>,
    confirmed: Vec<Ends>,
    /// The ports at which sockets listen, and how many of the sockets are free.
    pub(crate) listeners: Vec<(u16, usize)>,
}

impl Segments {
    /// Sets the connections that exist or are being made, each with whether it is half open: asked for and answered,
    /// but not confirmed.
    pub(crate) fn set_connections<I: Iterator<Item = (Ends, bool)>>(
        &mut self,
        connections: impl Fn() -> I,
    ) {
        let all = self.connections.iter();
        if connections().eq(all.map(|(ends, connection)| (*ends, connection.is_half))) {
            return;
        }
        let before = core::mem::take(&mut self.connections);
        // Known connections are in the same order, so the search begins behind the last one that was found.
        let mut next = 0;
        let known = |(ends, is_half): (Ends, bool)| {
            let (first, rest) = before.split_at(next);
            let found = rest.iter().chain(first).position(|(its, _)| *its == ends);
            let mut connection = Connection::default();
            if let Some(found) = found {
                let at = (next + found) % before.len();
                next = at + 1;
                connection = before[at].1;
            }
            connection.is_half = is_half;
            (ends, connection)
        };
        self.connections = connections().map(known).collect();
    }

    /// The half-open connections that were reset since the last call.
    pub(crate) fn take_given_up(&mut self) -> Vec<Ends> {
        core::mem::take(&mut self.given_up)
    }

    /// The connections of which the other end has confirmed, since the last call, all that was sent and the end of the
    /// stream.
    pub(crate) fn take_confirmed(&mut self) -> Vec<Ends> {
        core::mem::take(&mut self.confirmed)
    }

    /// Whether the stack may get a request for a connection to this port. Takes one of the port's free sockets for it.
    fn has_place(&mut self, port: u16) -> bool {
        let listener = self.listeners.iter_mut().find(|(its, _)| *its == port);
        match listener {
            // The stack refuses the request, since nobody listens.
            None => true,
            Some((_, 0)) => false,
            Some((_, free)) => {
                *free -= 1;
                true
            }
        }
    }

    /// Corrects a segment that has come in a frame whose checksum was right. Returns whether the stack may get the
    /// frame. (The checksum is not updated, since nothing checks it afterwards.)
    pub(crate) fn came(&mut self, packet: &Packet, frame: &mut [u8]) -> bool {
        let Some((mut segment, (to, from))) = segment(packet, frame) else {
            return true;
        };
        let ends = (to, from);
        let begins = segment.syn() && !segment.ack();
        let Some(connection) = self.known(ends) else {
            return !begins || segment.rst() || self.has_place(to.port);
        };
        if begins {
            return false;
        }
        let (Some(expects), Some(sent)) = (connection.expects, connection.sent) else {
            connection.is_full = segment.window_len() == 0;
            return true;
        };
        if segment.segment_len() > 0 && !are_near(segment.seq_number(), expects) {
            return false;
        }
        if segment.rst() && segment.seq_number() != expects {
            // A reset that also has data, or begins or ends a stream, is dropped.
            if segment.segment_len() > 0 {
                return false;
            }
            // The segment becomes a keep-alive probe: the stack answers with the number that it expects, and takes
            // nothing from it.
            segment.clear_flags();
            segment.set_ack(true);
            segment.set_seq_number(expects - 1);
            segment.set_ack_number(sent);
            return true;
        }
        if segment.rst() && connection.is_half {
            // Reported once.
            connection.is_half = false;
            self.given_up.push(ends);
            return false;
        }
        connection.is_full = segment.window_len() == 0;
        let is_empty = segment.segment_len() == 0 && segment.ack() && !segment.rst();
        let crosses = segment.seq_number() + 1 == expects && segment.ack_number() == sent + 1;
        if is_empty && crosses {
            segment.set_seq_number(expects);
        }
        let confirms = segment.ack() && !segment.rst();
        if confirms && connection.end == Some(segment.ack_number()) {
            connection.end = None;
            self.confirmed.push(ends);
        }
        true
    }

    /// The state of a connection, if it is known.
    fn known(&mut self, ends: Ends) -> Option<&mut Connection> {
        let mut all = self.connections.iter_mut();
        let (_, connection) = all.find(|(its, _)| *its == ends)?;
        Some(connection)
    }

    /// Takes note of a leaving segment.
    pub(crate) fn leaves(&mut self, packet: &Packet, frame: &mut [u8]) {
        let Some((segment, (to, from))) = segment(packet, frame) else {
            return;
        };
        let ends = (from, to);
        if segment.syn()
            && segment.ack()
            && self.connections.len() < MOST_NEW
            && self.known(ends).is_none()
        {
            self.connections.push((ends, Connection::default()));
        }
        let Some(connection) = self.known(ends) else {
            return;
        };
        if segment.ack() {
            connection.expects = Some(segment.ack_number());
        }
        let is_probe = connection.is_full && segment.segment_len() == 1;
        let end = segment.seq_number() + segment.segment_len();
        if segment.fin() {
            connection.end = Some(end);
        }
        if !is_probe && connection.sent.is_none_or(|sent| sent < end) {
            connection.sent = Some(end);
        }
    }
}

/// Whether two sequence numbers are so near that it is clear which is later. Windows are far smaller than that.
fn are_near(one: TcpSeqNumber, other: TcpSeqNumber) -> bool {
    one.0.wrapping_sub(other.0).unsigned_abs() < 1 << 30
}

/// The TCP segment in a packet, with its destination first and its source second.
fn segment<'a>(packet: &Packet, frame: &'a mut [u8]) -> Option<(TcpPacket<&'a mut [u8]>, Ends)> {
    if packet.protocol != IpProtocol::Tcp {
        return None;
    }
    let segment = TcpPacket::new_checked(frame.get_mut(packet.place.clone())?).ok()?;
    let from = IpEndpoint::new(packet.from, segment.src_port());
    let to = IpEndpoint::new(packet.to, segment.dst_port());
    Some((segment, (to, from)))
}
