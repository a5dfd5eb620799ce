//! Frames that no well-behaved machine sends, for the first machine of a pair: each follows from a seed.

use fastrand::Rng;

/// The addresses of the machine's card, and of the other end's.
const CARD: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const OTHER: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x57];
/// The IPv4 addresses of the machine, and of the other end.
const OURS: [u8; 4] = [10, 0, 3, 1];
const THEIRS: [u8; 4] = [10, 0, 3, 2];
/// The IPv6 address of the machine.
const OURS_6: [u8; 16] = [
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0x12, 0x34, 0x56,
];
const THEIRS_6: [u8; 16] = [
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0x12, 0x34, 0x57,
];

/// Most bytes of a frame.
const FRAME: usize = 1514;

const IPV4: u16 = 0x800;
const ARP: u16 = 0x806;
const IPV6: u16 = 0x86dd;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_6: u8 = 58;

/// Flags of TCP.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The checksum in the headers of IP, TCP and UDP.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes = parts.concat();
    let pairs = bytes.chunks(2);
    let mut sum: u32 = pairs
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn ethernet(to: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &OTHER, &kind.to_be_bytes(), payload].concat();
    frame.truncate(FRAME);
    frame
}

/// A datagram. `fragment` is the word of flags and offset.
fn ipv4(from: [u8; 4], to: [u8; 4], protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend(length.to_be_bytes());
    header.extend([0x12, 0x34]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(from);
    header.extend(to);
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum);
    ethernet(CARD, IPV4, &[&header[..], payload].concat())
}

fn ipv6(from: [u8; 16], to: [u8; 16], next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((payload.len() as u16).to_be_bytes());
    header.extend([next, 255]);
    header.extend(from);
    header.extend(to);
    ethernet(CARD, IPV6, &[&header[..], payload].concat())
}

/// The pseudo header that TCP and UDP include in their checksums.
fn pseudo(from: [u8; 4], to: [u8; 4], protocol: u8, length: usize) -> Vec<u8> {
    let length = (length as u16).to_be_bytes();
    [&from[..], &to, &[0, protocol], &length].concat()
}

fn tcp(random: &mut Rng, from: [u8; 4], ports: (u16, u16), flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(ports.0.to_be_bytes());
    segment.extend(ports.1.to_be_bytes());
    segment.extend(random.u32(..).to_be_bytes());
    segment.extend(random.u32(..).to_be_bytes());
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(payload);
    let sum = checksum(&[&pseudo(from, OURS, TCP, segment.len()), &segment]);
    segment[16..18].copy_from_slice(&sum);
    ipv4(from, OURS, TCP, 0, &segment)
}

fn udp(from: [u8; 4], ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len();
    let mut datagram = Vec::new();
    datagram.extend(ports.0.to_be_bytes());
    datagram.extend(ports.1.to_be_bytes());
    datagram.extend((length as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    let sum = checksum(&[&pseudo(from, OURS, UDP, length), &datagram]);
    datagram[6..8].copy_from_slice(&sum);
    ipv4(from, OURS, UDP, 0, &datagram)
}

fn some(random: &mut Rng, most: usize) -> Vec<u8> {
    let length = random.usize(..most);
    (0..length).map(|_| random.u8(..)).collect()
}

/// The claimed sender of a frame: the other end, the machine itself, address 0, broadcast, or any address.
fn liar(random: &mut Rng) -> [u8; 4] {
    match random.u8(..8) {
        0 => OURS,
        1 => [127, 0, 0, 1],
        2 => [0; 4],
        3 => [255; 4],
        4 => [224, 0, 0, 1],
        5 => [10, 0, 3, random.u8(..)],
        _ => THEIRS,
    }
}

/// A port: that of the ongoing connection, one with a listener, or one of the machine's own.
fn port(random: &mut Rng) -> u16 {
    match random.u8(..4) {
        0 => 7,
        1 => 9,
        _ => random.u16(49152..),
    }
}

/// A correct frame, of any protocol.
fn sound(random: &mut Rng) -> Vec<u8> {
    let ports = (port(random), port(random));
    let payload = some(random, 1400);
    match random.u8(..4) {
        0 => udp(THEIRS, ports, &payload),
        1 => arp(random, THEIRS),
        2 => ipv6(THEIRS_6, OURS_6, 59, &payload),
        _ => tcp(random, THEIRS, ports, ACK, &payload),
    }
}

/// A question or an answer about the owner of `whom`.
fn arp(random: &mut Rng, whom: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, random.u8(1..3)];
    packet.extend(match random.bool() {
        true => [2, 0, 0, 0, 0, random.u8(..)],
        false => CARD,
    });
    packet.extend(whom);
    packet.extend(CARD);
    packet.extend(OURS);
    let to = if random.bool() { CARD } else { [0xff; 6] };
    ethernet(to, ARP, &packet)
}

/// Extension headers of every kind, with wrong lengths.
fn extensions(random: &mut Rng) -> Vec<u8> {
    /// Hop by hop, routing, fragment, authentication, destination, nothing behind, mobility.
    const KINDS: [u8; 7] = [0, 43, 44, 51, 60, 59, 135];
    let first = KINDS[random.usize(..KINDS.len())];
    let mut payload = Vec::new();
    for _ in 0..random.usize(1..40) {
        let next = match random.u8(..4) {
            0 => [TCP, UDP, ICMP_6][random.usize(..3)],
            _ => KINDS[random.usize(..KINDS.len())],
        };
        let length = if random.bool() { 0 } else { random.u8(..) };
        payload.extend([next, length]);
        payload.extend((0..6).map(|_| random.u8(..)));
    }
    payload.extend(some(random, 64));
    let from = if random.bool() { THEIRS_6 } else { OURS_6 };
    ipv6(from, OURS_6, first, &payload)
}

/// Messages of neighbours and routers, with wrong lengths and options.
fn neighbour(random: &mut Rng) -> Vec<u8> {
    let mut message = vec![random.u8(128..140), 0, 0, 0, random.u8(..), 0, 0, 0];
    message.extend(if random.bool() { OURS_6 } else { THEIRS_6 });
    message.extend([
        random.u8(1..6),
        random.u8(..3),
        2,
        0,
        0,
        0,
        0,
        random.u8(..),
    ]);
    let length = (message.len() as u32).to_be_bytes();
    let head = [&THEIRS_6[..], &OURS_6, &length, &[0, 0, 0, ICMP_6]].concat();
    let sum = checksum(&[&head, &message]);
    message[2..4].copy_from_slice(&sum);
    ipv6(THEIRS_6, OURS_6, ICMP_6, &message)
}

/// An error about a connection of the machine, or an echo request that is too large.
fn icmp(random: &mut Rng) -> Vec<u8> {
    let ports = (port(random), port(random));
    let inner = tcp(random, OURS, ports, ACK, &[]);
    let kind = [3, 4, 5, 8, 11, 12, 13, 17][random.usize(..8)];
    let mut message = vec![kind, random.u8(..16), 0, 0, 0, 0, 0, 0];
    message.extend(&inner[14..]);
    if kind == 8 {
        message.resize(random.usize(8..1480), 0xaa);
    }
    let sum = checksum(&[&message]);
    message[2..4].copy_from_slice(&sum);
    let from = liar(random);
    ipv4(from, OURS, ICMP, 0, &message)
}

/// The kinds of frames.
type Kind = fn(&mut Rng) -> Vec<u8>;
const KINDS: [Kind; 12] = [
    // Anything, to any address.
    |random| {
        let kind = random.u16(..);
        let to = if random.bool() { CARD } else { [0xff; 6] };
        ethernet(to, kind, &some(random, FRAME))
    },
    // Truncated.
    |random| {
        let mut frame = sound(random);
        // The emulator takes an empty frame for the end of the wire.
        frame.truncate(random.usize(1..frame.len()));
        frame
    },
    // With some bytes changed, so that checksums or lengths are wrong.
    |random| {
        let mut frame = sound(random);
        for _ in 0..random.usize(1..8) {
            let at = random.usize(12..frame.len());
            frame[at] = random.u8(..);
        }
        frame
    },
    // Fragments: overlapping, without an end, beyond the largest datagram.
    |random| {
        let offset = if random.bool() {
            random.u16(..64)
        } else {
            0x1fff
        };
        let more = if random.bool() { 0x2000 } else { 0 };
        let payload = some(random, 1400);
        let from = liar(random);
        let protocol = [ICMP, TCP, UDP][random.usize(..3)];
        ipv4(from, OURS, protocol, more | offset, &payload)
    },
    // Connections that are opened and not continued.
    |random| {
        let from = [10, 0, 3, random.u8(3..)];
        let to = if random.bool() { 9 } else { random.u16(1024..) };
        let ports = (random.u16(..), to);
        tcp(random, from, ports, SYN, &[])
    },
    // FINs and data of a connection with guessed sequence numbers.
    |random| {
        let flags = [
            RST,
            RST | ACK,
            FIN | ACK,
            ACK,
            SYN | ACK,
            SYN | FIN | RST,
            0,
            0xff,
        ];
        let flags = flags[random.usize(..flags.len())];
        let from = liar(random);
        let ports = (port(random), port(random));
        let payload = some(random, 64);
        tcp(random, from, ports, flags, &payload)
    },
    // ARP.
    |random| {
        let whom = liar(random);
        arp(random, whom)
    },
    // ARP with wrong lengths and kinds.
    |random| {
        let mut frame = arp(random, THEIRS);
        let at = random.usize(14..22);
        frame[at] = random.u8(..);
        frame
    },
    extensions,
    neighbour,
    icmp,
    // Headers that claim to be shorter or longer than they are, or than the frame.
    |random| {
        let payload = some(random, 200);
        let mut frame = tcp(random, THEIRS, (7, 7), ACK, &payload);
        match random.u8(..3) {
            0 => frame[14] = random.u8(..),
            1 => frame[16..18].copy_from_slice(&random.u16(..).to_be_bytes()),
            _ => frame[46] = random.u8(..),
        }
        if random.bool() {
            frame[24..26].fill(0);
            let end = 14 + 4 * usize::from(frame[14] & 15);
            let sum = checksum(&[&frame[14..end.clamp(15, frame.len())]]);
            frame[24..26].copy_from_slice(&sum);
        }
        frame
    },
];

/// Whether a frame ends a direction of a connection over IPv4.
pub(crate) fn is_end(frame: &[u8]) -> bool {
    const FLAGS: usize = 14 + 20 + 13;
    frame.len() > FLAGS
        && frame[12..14] == IPV4.to_be_bytes()
        && frame[14 + 9] == TCP
        && frame[FLAGS] & FIN != 0
}

/// The frame of a seed.
pub(crate) fn hostile(seed: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(seed);
    KINDS[random.usize(..KINDS.len())](&mut random)
}
