//! `tcp`: copies standard input to a connection, and the connection to standard output.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use net_tools::{end, open, resolve, Explain, Failure};
use rt::net::{Network, Place, Socket};
use rt::{io, time, Error};

rt::entry!(main);

const USAGE: &str = "\
usage: tcp HOST PORT     connect
       tcp -w HOST PORT  connect, when somebody listens there
       tcp -l PORT       wait for one connection
Standard input is sent, a line or a block at a time; what comes goes to standard output, until the other end has closed.";

/// Bytes that are moved at a time.
const PIECE: usize = 16 * 1024;
/// How long it tries to connect, and the pause between two attempts, in nanoseconds.
const PATIENCE: u64 = 60_000_000_000;
const PAUSE: u64 = 100_000_000;

/// Writes what has come to standard output. Returns whether the other end has closed.
fn take(net: &mut Network, socket: Socket, buffer: &mut [u8]) -> Result<bool, Failure> {
    let length = net.read(socket, buffer).explain(net)?;
    io::write(&buffer[..length])?;
    Ok(length == 0)
}

/// Copies both ways until both ends are done and the other end has confirmed all that was sent, since the machine may
/// be switched off next.
fn carry(net: &mut Network, socket: Socket) -> Result<(), Failure> {
    let (mut buffer, mut input) = (vec![0; PIECE], vec![0; PIECE]);
    let mut closed = false;
    loop {
        let length = io::read(&mut input)?;
        if length == 0 {
            break;
        }
        let mut rest = &input[..length];
        while !rest.is_empty() {
            // The other end may read no more before its own data has been read.
            let wanted = if closed { 0 } else { 1 << socket };
            let (readable, writable) = net
                .wait(wanted, 1 << socket, rt::net::ALWAYS)
                .explain(net)?;
            if readable != 0 {
                closed = take(net, socket, &mut buffer)?;
            }
            if writable != 0 {
                let taken = net.write(socket, rest).explain(net)?;
                rest = rest.get(taken..).unwrap_or_default();
            }
        }
    }
    net.shut(socket).explain(net)?;
    while !closed {
        closed = take(net, socket, &mut buffer)?;
    }
    net.sent(socket).explain(net)?;
    net.close(socket).explain(net)
}

fn connect(host: &str, port: u16, waits: bool) -> Result<(), Failure> {
    let mut net = open()?;
    let address = resolve(&mut net, host)?;
    let deadline = time::now() + PATIENCE;
    let socket = loop {
        match net.connect(Place { address, port }) {
            Err(Error::Refused) if waits && time::now() < deadline => time::sleep(PAUSE),
            socket => break socket.explain(&mut net)?,
        }
    };
    carry(&mut net, socket)
}

fn listen(port: u16) -> Result<(), Failure> {
    let mut net = open()?;
    let (listening, _) = net.listen(port, 1).explain(&mut net)?;
    let (socket, _) = net.accept(listening).explain(&mut net)?;
    net.close(listening).explain(&mut net)?;
    carry(&mut net, socket)
}

fn main() -> u8 {
    let args = &rt::start().args;
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    let port = |word: &str| {
        let port = word.parse().ok().filter(|port| *port != 0);
        port.ok_or(Failure::Usage)
    };
    let done = match words[..] {
        ["-l", at] => port(at).and_then(listen),
        ["-w", host, at] => port(at).and_then(|port| connect(host, port, true)),
        [host, at] => port(at).and_then(|port| connect(host, port, false)),
        _ => Err(Failure::Usage),
    };
    end("tcp", USAGE, done)
}
