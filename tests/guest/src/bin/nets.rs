//! The network under load:
//!
//! * `nets serve PORT` sends back what arrives, connection by connection, until one brings no bytes;
//! * `nets kill WHOM` kills this process.
//! * `nets load HOST PORT WHOM SEED KILLS` sends to that server and compares what comes back, while WHOM
//!   (`virtio-net` or `network`) is killed again and again. Connections may be reset if the network server is killed,
//!   and only then.
//! * `nets talk HOST PORT FRAMES` sends to that server over one connection, a piece at a time, and compares what
//!   comes back, until so many frames have arrived at the machine; then it makes another connection.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use guest_tests::killer;
use rt::net::{Network, Place, Socket, ALWAYS};
use rt::proto::Error;
use rt::{println, thread, time};

rt::entry!(main);

/// Longest time between two kills, in nanoseconds.
const PAUSE: u64 = 20_000_000;
/// The pause between two attempts to reach a missing server, in nanoseconds.
const LOOK: u64 = 1_000_000;
/// Bytes that are sent over a connection.
const LOAD: usize = 200_000;

/// A session, once there is a server.
fn open() -> Network {
    loop {
        match Network::open() {
            Ok(net) => return net,
            Err(_) => time::sleep(LOOK),
        }
    }
}

/// Sends back what arrives. Returns how many bytes.
fn echo(net: &mut Network, socket: Socket) -> Result<usize, Error> {
    let mut buffer = vec![0; 16 * 1024];
    let mut all = 0;
    loop {
        match net.read(socket, &mut buffer)? {
            0 => break,
            length => {
                net.write_all(socket, &buffer[..length])?;
                all += length;
            }
        }
    }
    net.shut(socket)?;
    net.close(socket)?;
    Ok(all)
}

fn serve(port: u16) -> Result<(), Error> {
    let mut net = open();
    let (listening, _) = net.listen(port, 4)?;
    loop {
        let (socket, _) = net.accept(listening)?;
        match echo(&mut net, socket) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // The other end is gone.
            Err(_) => {
                let _ = net.close(socket);
            }
        }
    }
}

/// Sends bytes that follow from a seed. Returns whether the same bytes came back.
fn exchange(net: &mut Network, to: Place, bytes: &[u8]) -> Result<bool, Error> {
    let socket = net.connect(to)?;
    let mut buffer = vec![0; 16 * 1024];
    let (mut sent, mut came) = (0, 0);
    if bytes.is_empty() {
        net.shut(socket)?;
    }
    loop {
        let wanted = if sent < bytes.len() { 1 << socket } else { 0 };
        let (readable, writable) = net.wait(1 << socket, wanted, ALWAYS)?;
        if writable != 0 {
            sent += net.write(socket, &bytes[sent..])?;
            if sent == bytes.len() {
                net.shut(socket)?;
            }
        }
        if readable != 0 {
            let length = net.read(socket, &mut buffer)?;
            if bytes.get(came..came + length) != Some(&buffer[..length]) {
                return Ok(false);
            }
            came += length;
            if length != 0 {
                killer::served();
            } else {
                net.close(socket)?;
                return Ok(came == bytes.len());
            }
        }
    }
}

fn load(to: Place, whom: &str, seed: u64, kills: u64) -> Result<(), String> {
    let name = String::from(whom);
    let mut net = open();
    // The other machine may not have started yet.
    while exchange(&mut net, to, b"there?") != Ok(true) {
        time::sleep(LOOK);
    }
    thread::spawn(move || killer::run_at_work(&name, seed, kills, PAUSE))
        .map_err(|_| "no thread")?;
    let mut random = fastrand::Rng::with_seed(!seed);
    let (mut done, mut resets) = (0, 0);
    while !killer::is_done() || done == 0 {
        let first = random.u32(..);
        let bytes: Vec<u8> = (first..)
            .take(LOAD / 4)
            .flat_map(u32::to_le_bytes)
            .collect();
        match exchange(&mut net, to, &bytes) {
            Ok(true) => done += 1,
            Ok(false) => return Err("something else came back".into()),
            Err(_) if whom == "network" => {
                resets += 1;
                net = open();
            }
            Err(error) => return Err(error.text().into()),
        }
    }
    // An empty connection: the other machine may end.
    while exchange(&mut net, to, b"").is_err() {
        net = open();
    }
    if whom == "network" && resets == 0 {
        return Err("no connection was reset".into());
    }
    println!(
        "nets: {} kills, {} at work",
        killer::killed(),
        killer::at_work()
    );
    rt::eprintln!("nets: {done} exchanges, {resets} resets");
    Ok(())
}

fn talk(to: Place, frames: u64) -> Result<(), Error> {
    let mut net = open();
    let mut random = fastrand::Rng::with_seed(frames);
    let socket = loop {
        // The other machine may not listen yet.
        match net.connect(to) {
            Ok(socket) => break socket,
            Err(_) => time::sleep(LOOK),
        }
    };
    let mut rounds = 0u64;
    while net.counters()?.came < frames {
        let first = random.u32(..);
        let words = (first..).take(random.usize(1..2000));
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        net.write_all(socket, &bytes)?;
        let mut came = vec![0; bytes.len()];
        let mut length = 0;
        while length < came.len() {
            match net.read(socket, &mut came[length..])? {
                0 => return Err(Error::Reset),
                more => length += more,
            }
        }
        if came != bytes {
            return Err(Error::Broken);
        }
        rounds += 1;
    }
    net.shut(socket)?;
    net.close(socket)?;
    while exchange(&mut net, to, b"another") != Ok(true) {
        time::sleep(LOOK);
    }
    // An empty connection: the other machine may end.
    while exchange(&mut net, to, b"").is_err() {
        time::sleep(LOOK);
    }
    let counters = net.counters()?;
    rt::eprintln!(
        "{rounds} rounds, {} frames came, {} of no use",
        counters.came,
        counters.useless
    );
    Ok(())
}

fn main() -> u8 {
    let words: Vec<&str> = rt::start()
        .args
        .iter()
        .skip(1)
        .map(String::as_str)
        .collect();
    let number = |word: &str| word.parse::<u64>().unwrap_or(0);
    let place = |host: &str, port: &str| Place {
        address: host
            .parse()
            .unwrap_or(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED)),
        port: number(port) as u16,
    };
    let text = |error: Error| String::from(error.text());
    let done = match words[..] {
        ["serve", port] => serve(number(port) as u16).map_err(text),
        ["load", host, port, whom, seed, kills] => {
            load(place(host, port), whom, number(seed), number(kills))
        }
        ["kill", whom] => killer::kill_but(whom, 0).map_err(text),
        ["talk", host, port, frames] => talk(place(host, port), number(frames)).map_err(text),
        _ => Err("serve, kill, load or talk".into()),
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            println!("nets: {why}");
            1
        }
    }
}
