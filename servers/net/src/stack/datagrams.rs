//! Sockets for datagrams and echoes.

use super::neighbours::KNOWN;
use super::{place, refusal, Done, Handle, Id, Party, Socket, Stack, Which, SHARE, WAITING};
use alloc::vec::Vec;
use core::task::Waker;
use services::net::{Kind, Place, DATAGRAM};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress};

impl Stack {
    /// Whether a party has given the stack as many datagrams for the wire as it may before the next turn.
    fn has_given_all(&self, party: Party) -> bool {
        let mut all = self.given.iter();
        all.any(|(its, count)| *its == party && *count >= SHARE)
    }

    /// The same as [`Stack::has_given_all`]; if so, the waker is woken in the next turn.
    pub(super) fn waits_for_turn(&mut self, party: Party, waker: &Waker) -> bool {
        let waits = self.has_given_all(party);
        if waits && !self.waiting.iter().any(|its| its.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
        waits
    }

    /// Sends a datagram.
    pub(crate) fn send(&mut self, id: Id, to: Place, bytes: &[u8]) -> Done<()> {
        let entry = self.entry(id)?;
        let (port, echo, both) = match entry.socket {
            Socket::Packets { kind, at } => (entry.port, kind == Kind::Echo, at),
            _ => return Err(refusal::KIND),
        };
        if bytes.len() > if echo { DATAGRAM - 8 } else { DATAGRAM } {
            return Err(refusal::LONG);
        }
        let which = self.way(to.address);
        let port_or_number = if echo { to.port.max(1) } else { to.port };
        let end = self.check_way(
            which,
            Place {
                port: port_or_number,
                ..to
            },
        )?;
        let port = match port {
            Some(port) => port,
            None => self.bind(id, 0)?,
        };
        let at = both[which as usize];
        let party = self.entry(id)?.holder.party();
        if which == Which::Wire {
            if self.has_given_all(party) {
                return Err(refusal::WAIT);
            }
            let waits = self.waits_to_leave(self.entries.get(&id).ok_or(refusal::NONE)?);
            let may_be_empty_until = self.now.saturating_add(KNOWN);
            let entry = self.entry(id)?;
            if !waits {
                entry.sends.clear();
            }
            if bytes.is_empty() && !echo {
                entry.empty_until = may_be_empty_until;
            }
            // An address is listed once, and the addresses of all datagrams that wait are among the last ones.
            entry.sends.retain(|to| *to != end.addr);
            if entry.sends.len() >= WAITING {
                entry.sends.remove(0);
            }
            entry.sends.push(end.addr);
        }
        let sent = match echo {
            false => self.udp(at).send_slice(bytes, end).is_ok(),
            true => self.ask_echo(at, end.addr, (port, to.port), bytes),
        };
        self.net(which).changed = true;
        if sent && which == Which::Wire {
            match self.given.iter_mut().find(|(its, _)| *its == party) {
                Some((_, count)) => *count += 1,
                None => self.given.push((party, 1)),
            }
        }
        sent.then_some(()).ok_or(refusal::WAIT)
    }

    /// Sends an echo request. Returns whether there was room for it.
    pub(super) fn ask_echo(
        &mut self,
        at: Handle,
        to: IpAddress,
        (ident, seq_no): (u16, u16),
        data: &[u8],
    ) -> bool {
        let checksums = ChecksumCapabilities::default();
        let from = self.net(at.0).interface.get_source_address(&to);
        match (to, from) {
            (IpAddress::Ipv4(_), _) => {
                let request = Icmpv4Repr::EchoRequest {
                    ident,
                    seq_no,
                    data,
                };
                let Ok(room) = self.icmp(at).send(request.buffer_len(), to) else {
                    return false;
                };
                request.emit(&mut Icmpv4Packet::new_unchecked(room), &checksums);
            }
            (IpAddress::Ipv6(to6), Some(IpAddress::Ipv6(from))) => {
                let request = Icmpv6Repr::EchoRequest {
                    ident,
                    seq_no,
                    data,
                };
                let Ok(room) = self.icmp(at).send(request.buffer_len(), to) else {
                    return false;
                };
                let mut packet = Icmpv6Packet::new_unchecked(room);
                request.emit(&from, &to6, &mut packet, &checksums);
            }
            _ => return false,
        }
        true
    }

    /// Takes a datagram or an echo reply that has come, with its sender.
    pub(crate) fn receive(&mut self, id: Id) -> Done<(Place, Vec<u8>)> {
        match self.entry(id)?.socket {
            Socket::Packets {
                kind: Kind::Echo,
                at,
            } => {
                for at in at {
                    while self.icmp(at).can_recv() {
                        // The reply is at most this long.
                        self.room_to_give(DATAGRAM)?;
                        let Ok((bytes, from)) = self.icmp(at).recv() else {
                            break;
                        };
                        if let Some((port, bytes)) = echo(from, bytes) {
                            let address = from.into();
                            return Ok((Place { address, port }, bytes));
                        }
                    }
                }
                Err(refusal::WAIT)
            }
            Socket::Packets { at, .. } => {
                for at in at {
                    let Ok(size) = self.udp(at).peek().map(|(bytes, _)| bytes.len()) else {
                        continue;
                    };
                    self.room_to_give(size)?;
                    if let Ok((bytes, from)) = self.udp(at).recv() {
                        return Ok((place(Some(from.endpoint)), bytes.to_vec()));
                    }
                }
                Err(refusal::WAIT)
            }
            _ => Err(refusal::KIND),
        }
    }
}

/// The sequence number and the data of an echo reply; `None` for other packets.
fn echo(from: IpAddress, bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
    match from {
        IpAddress::Ipv4(_) => {
            let packet = Icmpv4Packet::new_checked(bytes).ok()?;
            let answer = Icmpv4Repr::parse(&packet, &ChecksumCapabilities::ignored()).ok()?;
            match answer {
                Icmpv4Repr::EchoReply { seq_no, data, .. } => Some((seq_no, data.to_vec())),
                _ => None,
            }
        }
        IpAddress::Ipv6(from) => {
            let packet = Icmpv6Packet::new_checked(bytes).ok()?;
            let none = ChecksumCapabilities::ignored();
            match Icmpv6Repr::parse(&from, &from, &packet, &none).ok()? {
                Icmpv6Repr::EchoReply { seq_no, data, .. } => Some((seq_no, data.to_vec())),
                _ => None,
            }
        }
    }
}
