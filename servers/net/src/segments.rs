//! What the stack does not get right about TCP, put right in the segments on their way: six rules of this server's,
//! each with a test that fails without it.
//!
//! * **A connection is begun once.** A segment that begins one may come again when the connection is there: who sent it
//!   heard no answer, or its driver died and the next one sent its batch again. The stack gives it to the first socket
//!   that listens if that stands before the connection's own, and all that comes later to that one, which resets the
//!   connection. So it is dropped.
//! * **Probes may cross.** Who may send nothing, since the other end has no room, probes with one byte now and then
//!   (RFC 9293, section 3.8.6.1). If both ends do so at the same time and both have room again, each confirms the
//!   other's byte in segments whose own number is the one before that byte. The stack takes nothing from a segment that
//!   begins before what it expects, not even its confirmation, and both ends would wait for ever. So such a segment
//!   gets the number that is expected.
//! * **A connection is given up by who knows its numbers** (RFC 5961, section 3.2). The stack gives it up for a segment
//!   anywhere in the window that says so, of which somebody who sees nothing of it needs a few thousand. Now only one
//!   with the very number that is expected does that, and who sends another one is told the right one: it is the other
//!   end if it can use that. That holds from the answer on to who begins a connection: it is known when that leaves.
//! * **A socket forgets who has given up.** When a connection is given up before it was there, the stack has its socket
//!   listen again, which keeps when it sent its last segment. The next connection confirms that, perhaps after days,
//!   and the stack's arithmetic overflows. So the stack does not hear of it: the socket is made anew
//!   ([`Segments::take_given_up`]).
//! * **A port that is full is not closed.** The stack refuses whoever asks for a connection while no socket is free
//!   that listens. Where somebody listens such a segment is dropped: it comes again, and by then there may be a place.
//! * **What lies nowhere near is nothing.** Of two numbers that lie half of all numbers apart either is behind the other.
//!   Behind a window that is full and a connection that was ended there is such a number, and a byte that has it is
//!   taken for one in the window: the sums that follow overflow, and the server ends. So it is dropped.
//!
//! And it is noted whose end was confirmed: of a connection that is over the stack does not say how that came.

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
    /// It was asked for, and answered, but not confirmed.
    is_half: bool,
    /// The number behind the end of what this end sends, from when that was sent until it is confirmed.
    end: Option<TcpSeqNumber>,
}

/// Most connections that are known before they are said to be there: each is a socket of the stack.
const MOST_NEW: usize = 512;

/// The connections of one network, in the order of the stack's sockets, and behind them those of which it was not said
/// yet that they are there. Mostly they are few, and as they were when the last frames came: then nothing of this is
/// made anew.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    connections: Vec<(Ends, Connection)>,
    given_up: Vec<Ends>,
    confirmed: Vec<Ends>,
    /// The ports where somebody listens, and for how many connections more there is a place.
    pub(crate) listeners: Vec<(u16, usize)>,
}

impl Segments {
    /// These connections are being made or there, and no others; and whether they were asked for and not confirmed.
    pub(crate) fn set_connections<I: Iterator<Item = (Ends, bool)>>(
        &mut self,
        connections: impl Fn() -> I,
    ) {
        let all = self.connections.iter();
        if connections().eq(all.map(|(ends, connection)| (*ends, connection.is_half))) {
            return;
        }
        let before = core::mem::take(&mut self.connections);
        // Those that were there are in the same order: where the last one was found the next one is.
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

    /// The connections that were asked for, not confirmed, and given up since this was called last.
    pub(crate) fn take_given_up(&mut self) -> Vec<Ends> {
        core::mem::take(&mut self.given_up)
    }

    /// The connections of which the other end has confirmed all that was sent, and that no more comes, since this was
    /// called last.
    pub(crate) fn take_confirmed(&mut self) -> Vec<Ends> {
        core::mem::take(&mut self.confirmed)
    }

    /// Whether the stack hears of somebody who asks for a connection with this port. One for which there is a place has
    /// that.
    fn has_place(&mut self, port: u16) -> bool {
        let listener = self.listeners.iter_mut().find(|(its, _)| *its == port);
        match listener {
            // The stack says that nobody is there.
            None => true,
            Some((_, 0)) => false,
            Some((_, free)) => {
                *free -= 1;
                true
            }
        }
    }

    /// A frame has come, as it was sent. Whether the stack gets it. (Nothing looks at its checksum behind this.)
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
            // Of what says more than that nothing is believed.
            if segment.segment_len() > 0 {
                return false;
            }
            // The stack answers to it as to a probe, with what it expects, and takes nothing from it.
            segment.clear_flags();
            segment.set_ack(true);
            segment.set_seq_number(expects - 1);
            segment.set_ack_number(sent);
            return true;
        }
        if segment.rst() && connection.is_half {
            // Once.
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

    /// What is known of a connection.
    fn known(&mut self, ends: Ends) -> Option<&mut Connection> {
        let mut all = self.connections.iter_mut();
        let (_, connection) = all.find(|(its, _)| *its == ends)?;
        Some(connection)
    }

    /// A frame leaves.
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

/// Whether two numbers are so near that one of them is the later one: windows are far smaller than that.
fn are_near(one: TcpSeqNumber, other: TcpSeqNumber) -> bool {
    one.0.wrapping_sub(other.0).unsigned_abs() < 1 << 30
}

/// The segment in a packet, to whom it goes and from whom.
fn segment<'a>(packet: &Packet, frame: &'a mut [u8]) -> Option<(TcpPacket<&'a mut [u8]>, Ends)> {
    if packet.protocol != IpProtocol::Tcp {
        return None;
    }
    let segment = TcpPacket::new_checked(frame.get_mut(packet.place.clone())?).ok()?;
    let from = IpEndpoint::new(packet.from, segment.src_port());
    let to = IpEndpoint::new(packet.to, segment.dst_port());
    Some((segment, (to, from)))
}
