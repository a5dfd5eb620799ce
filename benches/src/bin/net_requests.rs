//! The costs of datagrams and of bytes of a connection, at both ends: `net_requests serve [FILTER]` in one machine,
//! and `net_requests ask ADDRESS [FILTER]` in another one on the same wire.
//!
//! Both ends measure the same row at the same time, each its own instructions. A datagram's first byte is its kind.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use benches::loops;
use benches::report::{Outcome, Report, Sample};
use benches::run::Must;
use core::net::IpAddr;
use rt::net::{Network, Place, Socket};
use rt::time;

rt::entry!(main);

/// The ports of the other end: for datagrams, and for connections.
const DATAGRAMS: u16 = 7;
const STREAMS: u16 = 8;
/// Datagrams that are echoed, and how many are before the measurement.
const ECHOES: u64 = 500;
const WARM: u64 = 100;
/// Kilobytes that are sent, and how many before the measurement; bytes of a write.
const KILOBYTES: u64 = 1024;
const WARM_KILOBYTES: u64 = 128;
const PIECE: usize = 16 * 1024;
/// The kinds of datagrams: to be echoed; the beginning of the stretch; its end.
const ECHO: u8 = 0;
const BEGIN: u8 = 1;
const END: u8 = 2;
/// How long a step may take, in nanoseconds, and the pause before another attempt at a server that may not have
/// started.
const PATIENCE: u64 = 60_000_000_000;
const PAUSE: u64 = 100_000_000;
/// After how many nanoseconds a datagram counts as lost, and how often a row is attempted.
const LOST: u64 = 5_000_000_000;
const ATTEMPTS: u32 = 4;

/// The rows of datagrams, and their bytes.
const ROWS: [(&str, usize); 4] = [
    ("udp_1", 1),
    ("udp_64", 64),
    ("udp_512", 512),
    ("udp_1400", 1400),
];
const BULK: &str = "tcp_kb";

/// A session, once there is a server.
fn open() -> Result<Network, String> {
    let deadline = time::now() + PATIENCE;
    loop {
        match Network::open() {
            Ok(net) => return Ok(net),
            Err(_) if time::now() < deadline => time::sleep(PAUSE),
            Err(error) => return Err(error).must("the network"),
        }
    }
}

/// Echoes datagrams until a stretch has begun and ended. Returns how many were echoed meanwhile, plus one, since the
/// first one sent and the last one received are half of one each. If a stretch is begun again, counting begins again.
fn answer(net: &mut Network, socket: Socket) -> Outcome {
    let next = |net: &mut Network| {
        let came = net.receive(socket, PATIENCE).must("receive")?;
        came.ok_or_else(|| String::from("nothing comes any more"))
    };
    let (mut from, mut bytes) = next(net)?;
    loop {
        if bytes.first() != Some(&BEGIN) {
            net.send(socket, from, &bytes).must("send")?;
            (from, bytes) = next(net)?;
            continue;
        }
        let (count, last) = loops::stretch(|| {
            let mut count = 0;
            let mut last = (from, bytes);
            loop {
                net.send(socket, last.0, &last.1).must("send")?;
                count += 1;
                last = next(net)?;
                if last.1.first() != Some(&ECHO) {
                    return Ok::<_, String>((count, last));
                }
            }
        })?;
        let sample = Sample::of_block(count);
        (from, bytes) = last;
        if bytes.first() == Some(&END) {
            net.send(socket, from, &bytes).must("send")?;
            return Ok(sample);
        }
    }
}

/// Sends a datagram until it comes back.
fn insist(net: &mut Network, socket: Socket, to: Place, bytes: &[u8]) -> Result<(), String> {
    let deadline = time::now() + PATIENCE;
    while time::now() < deadline {
        net.send(socket, to, bytes).must("send")?;
        while let Some((_, came)) = net.receive(socket, LOST).must("receive")? {
            if came == bytes {
                return Ok(());
            }
        }
    }
    Err("nobody answers".into())
}

/// Sends so many datagrams of this length, each after the previous one has come back. Returns whether all did.
fn echoes(
    net: &mut Network,
    socket: Socket,
    to: Place,
    bytes: &[u8],
    count: u64,
) -> Result<bool, String> {
    for _ in 0..count {
        net.send(socket, to, bytes).must("send")?;
        match net.receive(socket, LOST).must("receive")? {
            // Not every byte is checked: that would be work of this program's own.
            Some((from, came))
                if from == to
                    && came.len() == bytes.len()
                    && (came.first(), came.last()) == (bytes.first(), bytes.last()) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Measures datagrams of so many bytes. If one is lost the stretch begins again, since sending it again is additional
/// work.
fn ask(net: &mut Network, to: IpAddr, length: usize) -> Outcome {
    let to = Place {
        address: to,
        port: DATAGRAMS,
    };
    let (socket, _) = net.datagrams(0).must("a socket")?;
    let of = |purpose| {
        let mut bytes = vec![ECHO; length];
        bytes[0] = purpose;
        bytes
    };
    let (echo, begin, end) = (of(ECHO), of(BEGIN), of(END));
    insist(net, socket, to, &echo)?;
    echoes(net, socket, to, &echo, WARM)?;
    for _ in 0..ATTEMPTS {
        insist(net, socket, to, &begin)?;
        if loops::stretch(|| echoes(net, socket, to, &echo, ECHOES))? {
            let sample = Sample::of_block(ECHOES);
            insist(net, socket, to, &end)?;
            net.close(socket).must("close")?;
            return Ok(sample);
        }
    }
    Err(format!("datagrams were lost {ATTEMPTS} times"))
}

/// Writes or reads so many kilobytes.
fn write(net: &mut Network, socket: Socket, kilobytes: u64) -> Result<(), String> {
    let piece = vec![1; PIECE];
    let mut left = kilobytes as usize * 1024;
    while left > 0 {
        let length = left.min(PIECE);
        net.write_all(socket, &piece[..length]).must("write")?;
        left -= length;
    }
    Ok(())
}

fn read(net: &mut Network, socket: Socket, kilobytes: u64) -> Result<(), String> {
    let mut piece = vec![0; PIECE];
    let mut left = kilobytes as usize * 1024;
    while left > 0 {
        let most = left.min(PIECE);
        match net.read(socket, &mut piece[..most]).must("read")? {
            0 => return Err("the connection has ended".into()),
            length => left -= length,
        }
    }
    Ok(())
}

/// Receives the data of a connection.
fn take(net: &mut Network, listening: Socket) -> Outcome {
    let (socket, _) = net.accept(listening).must("accept")?;
    read(net, socket, WARM_KILOBYTES)?;
    loops::stretch(|| read(net, socket, KILOBYTES))?;
    let sample = Sample::of_block(KILOBYTES);
    net.close(socket).must("close")?;
    Ok(sample)
}

/// Sends over a connection, until all has arrived.
fn give(net: &mut Network, to: IpAddr) -> Outcome {
    let to = Place {
        address: to,
        port: STREAMS,
    };
    let deadline = time::now() + PATIENCE;
    let socket = loop {
        match net.connect(to) {
            Ok(socket) => break socket,
            Err(_) if time::now() < deadline => time::sleep(PAUSE),
            Err(error) => return Err(error).must("connect"),
        }
    };
    write(net, socket, WARM_KILOBYTES)?;
    loops::stretch(|| {
        write(net, socket, KILOBYTES)?;
        net.sent(socket).must("sent")
    })?;
    let sample = Sample::of_block(KILOBYTES);
    net.close(socket).must("close")?;
    Ok(sample)
}

fn serve(report: &Report) -> Result<bool, String> {
    let mut net = open()?;
    let (socket, _) = net.datagrams(DATAGRAMS).must("a socket")?;
    let (listening, _) = net.listen(STREAMS, 1).must("listen")?;
    let mut good = true;
    for (name, _) in ROWS {
        good &= report.bench(name, "echo", || answer(&mut net, socket));
    }
    good &= report.bench(BULK, "KB", || take(&mut net, listening));
    Ok(good)
}

fn client(report: &Report, to: &str) -> Result<bool, String> {
    let to: IpAddr = to.parse().map_err(|_| format!("{to} is no address"))?;
    let mut net = open()?;
    let mut good = true;
    for (name, length) in ROWS {
        good &= report.bench(name, "echo", || ask(&mut net, to, length));
    }
    good &= report.bench(BULK, "KB", || give(&mut net, to));
    Ok(good)
}

fn main() -> u8 {
    let arguments = &rt::start().args;
    let word = |n: usize| arguments.get(n).map_or("", String::as_str);
    let done = match word(1) {
        "serve" => serve(&Report::of_filter(word(2))),
        "ask" => client(&Report::of_filter(word(3)), word(2)),
        _ => Err("how?".into()),
    };
    match done {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(why) => {
            rt::println!("net_requests: {why}");
            1
        }
    }
}
