//! What has to be known of a frame before the stack gets it and before it leaves: the addresses of its packet, the
//! protocol, and where the payload is. This module also has the checksums of TCP and UDP, which the stack would compute
//! two bytes at a time; here it is eight.
//!
//! **No TCP or UDP from the wire gets to the stack unless its checksum was right**: the stack finds a packet's payload
//! behind the IP header and, in IPv6, behind one hop-by-hop options header, as [`Packet::of`] does; the stack checks
//! all other protocols that it takes itself.

use core::ops::Range;
use smoltcp::phy::Medium;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, IpVersion, Ipv4Packet, Ipv6Packet,
    TcpPacket, UdpPacket,
};

/// An IP packet in a frame.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// The source and the destination.
    pub(crate) from: IpAddress,
    pub(crate) to: IpAddress,
    /// The protocol of the payload, and where the payload is in the frame.
    pub(crate) protocol: IpProtocol,
    pub(crate) place: Range<usize>,
}

/// The protocol of a payload behind a hop-by-hop options header, and where that payload is in the packet. `place`: the
/// header and what follows it.
fn behind_options(packet: &[u8], place: Range<usize>) -> Option<(IpProtocol, Range<usize>)> {
    let [protocol, eights] = *packet.get(place.clone())?.first_chunk()?;
    let start = place.start + 8 * (1 + usize::from(eights));
    (start <= place.end).then_some((protocol.into(), start..place.end))
}

impl Packet {
    /// The packet in a frame, if the frame contains a complete one.
    pub(crate) fn of(medium: Medium, frame: &[u8]) -> Option<Self> {
        let (begin, version) = match medium {
            Medium::Ethernet => {
                let version = match EthernetFrame::new_checked(frame).ok()?.ethertype() {
                    EthernetProtocol::Ipv4 => IpVersion::Ipv4,
                    EthernetProtocol::Ipv6 => IpVersion::Ipv6,
                    _ => return None,
                };
                (EthernetFrame::<&[u8]>::header_len(), Some(version))
            }
            Medium::Ip => (0, None),
        };
        let packet = &frame[begin..];
        let says = IpVersion::of_packet(packet.get(..1)?).ok()?;
        if version.is_some_and(|version| version != says) {
            return None;
        }
        let (from, to, (protocol, place)) = match says {
            IpVersion::Ipv4 => {
                let packet = Ipv4Packet::new_checked(packet).ok()?;
                let place = packet.header_len().into()..packet.total_len().into();
                let carries = (packet.next_header(), place);
                (packet.src_addr().into(), packet.dst_addr().into(), carries)
            }
            IpVersion::Ipv6 => {
                let whole = packet;
                let packet = Ipv6Packet::new_checked(packet).ok()?;
                let place = packet.header_len()..packet.total_len();
                let carries = match packet.next_header() {
                    IpProtocol::HopByHop => behind_options(whole, place)?,
                    protocol => (protocol, place),
                };
                (packet.src_addr().into(), packet.dst_addr().into(), carries)
            }
        };
        Some(Packet {
            from,
            to,
            protocol,
            place: begin + place.start..begin + place.end,
        })
    }

    /// The checksum's sum over these bytes of the payload and the pseudo-header.
    fn sum(&self, bytes: &[u8]) -> u16 {
        let besides = bytes.len() as u64 + u64::from(u8::from(self.protocol));
        // In the byte order of the words in memory, first byte first.
        let mut total = u64::from((besides as u16).to_be());
        let mut carried = 0;
        for address in [self.from, self.to] {
            match address {
                IpAddress::Ipv4(address) => {
                    total += u64::from(u32::from_ne_bytes(address.octets()));
                }
                IpAddress::Ipv6(address) => {
                    carried += chain(&mut total, address.octets().as_chunks().0);
                }
            }
        }
        sum(total, carried, bytes)
    }

    /// Whether a TCP or UDP payload arrived as it was sent. The stack checks other protocols.
    pub(crate) fn is_whole(&self, frame: &[u8]) -> bool {
        let bytes = &frame[self.place.clone()];
        match self.protocol {
            IpProtocol::Tcp => self.sum(bytes) == 0xffff,
            IpProtocol::Udp => {
                let Ok(datagram) = UdpPacket::new_checked(bytes) else {
                    return false;
                };
                match (datagram.checksum(), self.from) {
                    // The checksum is optional in IPv4 (RFC 768) and required in IPv6 (RFC 8200, section 8.1).
                    (0, IpAddress::Ipv4(_)) => true,
                    (0, IpAddress::Ipv6(_)) => false,
                    _ => self.sum(&bytes[..datagram.len().into()]) == 0xffff,
                }
            }
            _ => true,
        }
    }

    /// Fills in the TCP or UDP checksum of a packet that the stack has made, where the stack has left 0.
    pub(crate) fn fill(&self, frame: &mut [u8]) {
        if !matches!(self.protocol, IpProtocol::Tcp | IpProtocol::Udp) {
            return;
        }
        let bytes = &mut frame[self.place.clone()];
        // In the byte order of memory, first byte first.
        let sum = u16::from_be(!self.sum(bytes));
        match self.protocol {
            IpProtocol::Tcp => TcpPacket::new_unchecked(bytes).set_checksum(sum),
            // A checksum of 0 would mean that there is none.
            _ => UdpPacket::new_unchecked(bytes).set_checksum(if sum == 0 { 0xffff } else { sum }),
        }
    }
}

/// Adds the halves of a sum until 16 bits are left.
const fn fold(mut total: u64) -> u16 {
    total = (total >> 32) + (total & 0xffff_ffff);
    total = (total >> 32) + (total & 0xffff_ffff);
    total = (total >> 16) + (total & 0xffff);
    total = (total >> 16) + (total & 0xffff);
    total = (total >> 16) + (total & 0xffff);
    total as u16
}

/// Adds words, each with the carry of the one before, and returns the last carry: the processor has an instruction for
/// that.
#[inline(always)]
fn chain(total: &mut u64, words: &[[u8; 8]]) -> u64 {
    let mut carry = false;
    for word in words {
        let (sum, first) = total.overflowing_add(u64::from_ne_bytes(*word));
        let (sum, second) = sum.overflowing_add(carry.into());
        (*total, carry) = (sum, first | second);
    }
    carry.into()
}

/// The one's complement sum of the bytes as 16-bit words in memory order (RFC 1071), and of two numbers. Summing words
/// of 64 and 32 bits gives the same.
fn sum(mut total: u64, mut carried: u64, bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (eights, words) = words.as_chunks::<8>();
    for eight in eights {
        carried = carried.wrapping_add(chain(&mut total, eight));
    }
    for word in words {
        carried = carried.wrapping_add(chain(&mut total, &[*word]));
    }
    // So far `carried` counts at most one for each word, and only a few short words are added here: it cannot overflow.
    let (fours, rest) = rest.as_chunks::<4>();
    for four in fours {
        carried = carried.wrapping_add(u32::from_ne_bytes(*four).into());
    }
    let (twos, rest) = rest.as_chunks::<2>();
    for two in twos {
        carried = carried.wrapping_add(u16::from_ne_bytes(*two).into());
    }
    if let [byte] = rest {
        carried = carried.wrapping_add(u16::from_ne_bytes([*byte, 0]).into());
    }
    fold(u64::from(fold(total)) + carried)
}

#[cfg(test)]
mod tests {
    use super::{sum, Packet};
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use fastrand::Rng;
    use smoltcp::phy::{ChecksumCapabilities, Medium};
    use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpPacket, UdpPacket};

    /// A packet between two addresses, as the stack makes it, with the checksum filled in by the stack's own functions.
    fn packet(ends: (IpAddr, IpAddr), protocol: IpProtocol, carried: &[u8]) -> Vec<u8> {
        let (from, to): (IpAddress, IpAddress) = (ends.0.into(), ends.1.into());
        let head = IpRepr::new(from, to, protocol, carried.len(), 64);
        let mut bytes = vec![0; head.buffer_len()];
        head.emit(&mut bytes[..], &ChecksumCapabilities::default());
        let behind = &mut bytes[head.header_len()..];
        behind.copy_from_slice(carried);
        match protocol {
            IpProtocol::Tcp => TcpPacket::new_unchecked(behind).fill_checksum(&from, &to),
            IpProtocol::Udp => {
                let mut datagram = UdpPacket::new_unchecked(behind);
                datagram.set_len(carried.len() as u16);
                datagram.fill_checksum(&from, &to);
            }
            _ => {}
        }
        bytes
    }

    /// The source and destination of test packets of either version.
    const FOUR: (IpAddr, IpAddr) = (
        IpAddr::V4(Ipv4Addr::new(10, 0, 3, 9)),
        IpAddr::V4(Ipv4Addr::new(250, 255, 255, 1)),
    );
    const SIX: (IpAddr, IpAddr) = (
        IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0x5054, 0xff, 0xfe12, 0x3456)),
        IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0xffff, 0xffff, 0xffff, 7)),
    );

    fn ether(kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &kind, packet].concat()
    }

    /// A payload of a header and `more` random bytes.
    fn carried(random: &mut Rng, protocol: IpProtocol, more: usize) -> Vec<u8> {
        let head = if protocol == IpProtocol::Tcp { 20 } else { 8 };
        let mut bytes: Vec<u8> = (0..head + more).map(|_| random.u8(..)).collect();
        if protocol == IpProtocol::Tcp {
            // The header's length.
            bytes[12] = 0x50;
        }
        bytes
    }

    /// The checksums equal those of the stack's own functions for any length, when they are filled in and when they are
    /// checked.
    #[test]
    fn checksums_are_those_of_the_protocols() {
        let mut random = Rng::with_seed(1);
        let none = [].as_slice();
        assert_eq!((sum(0, 0, none), sum(0, 0, &[0xff; 64])), (0, 0xffff));
        for more in (0..200).chain([1000, 1452, 1459]) {
            for (ends, kind) in [(FOUR, [8, 0]), (SIX, [0x86, 0xdd])] {
                for protocol in [IpProtocol::Tcp, IpProtocol::Udp] {
                    let carried = carried(&mut random, protocol, more);
                    let good = ether(kind, &packet(ends, protocol, &carried));
                    let found = Packet::of(Medium::Ethernet, &good).unwrap();
                    assert!(found.is_whole(&good), "{protocol} with {more} bytes more");
                    let mut made = good.clone();
                    let at = found.place.start + if protocol == IpProtocol::Tcp { 16 } else { 6 };
                    made[at..at + 2].fill(0);
                    found.fill(&mut made);
                    assert_eq!(made, good, "{protocol} with {more} bytes more");
                }
            }
        }
    }

    /// A packet of which a bit was altered on the way is rejected, wherever the bit is in what the checksum covers, and
    /// also behind hop-by-hop options.
    #[test]
    fn what_was_altered_is_not_whole() {
        let mut random = Rng::with_seed(2);
        for options in [false, true] {
            for (ends, kind) in [(FOUR, [8, 0]), (SIX, [0x86, 0xdd])] {
                for protocol in [IpProtocol::Tcp, IpProtocol::Udp] {
                    let carried = carried(&mut random, protocol, 33);
                    let mut bytes = packet(ends, protocol, &carried);
                    if options {
                        if ends == FOUR {
                            continue;
                        }
                        // Eight bytes: the next header, the number of further eights, and a padding option.
                        let head = [u8::from(protocol), 0, 1, 4, 0, 0, 0, 0];
                        bytes.splice(40..40, head);
                        bytes[6] = 0;
                        bytes[5] += 8;
                    }
                    let good = ether(kind, &bytes);
                    let found = Packet::of(Medium::Ethernet, &good).unwrap();
                    assert_eq!(
                        found.protocol, protocol,
                        "S2: it is looked at behind options"
                    );
                    assert!(found.is_whole(&good), "{protocol}, options: {options}");
                    let start = found.place.start;
                    for bit in 8 * start..8 * good.len() {
                        let mut bad = good.clone();
                        bad[bit / 8] ^= 1 << (bit % 8);
                        // Also an altered length in a datagram's header, which can make the datagram shorter than the
                        // payload.
                        assert!(
                            !found.is_whole(&bad),
                            "S2: {protocol} with bit {} of byte {} altered",
                            bit % 8,
                            bit / 8 - start
                        );
                    }
                }
            }
        }
    }

    /// A datagram without a checksum is accepted in IPv4 only. A frame that claims to contain a packet and does not,
    /// and a packet with options longer than itself, are no packets.
    #[test]
    fn what_has_no_checksum() {
        for (ends, kind, whole) in [(FOUR, [8, 0], true), (SIX, [0x86, 0xdd], false)] {
            let mut bytes = ether(kind, &packet(ends, IpProtocol::Udp, &[7; 30]));
            let found = Packet::of(Medium::Ethernet, &bytes).unwrap();
            bytes[found.place.start + 6..][..2].fill(0);
            assert_eq!(found.is_whole(&bytes), whole, "S2: {ends:?}");
        }
        let four = packet(FOUR, IpProtocol::Udp, &[7; 30]);
        assert!(Packet::of(Medium::Ethernet, &ether([0x86, 0xdd], &four)).is_none());
        assert!(Packet::of(Medium::Ethernet, &ether([8, 0], &four[..20])).is_none());
        let mut six = packet(SIX, IpProtocol::HopByHop, &[17; 30]);
        assert!(Packet::of(Medium::Ip, &six).is_none(), "longer than it is");
        six[41] = 1;
        let found = Packet::of(Medium::Ip, &six).unwrap();
        assert_eq!((found.protocol, found.place), (IpProtocol::Udp, 56..70));
    }
}
