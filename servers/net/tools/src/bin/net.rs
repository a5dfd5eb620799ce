//! `net`: shows the machine's addresses and counters of frames. `net up` waits until the machine has an address in its
//! network, and writes the servers of names down for Linux programs.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use core::fmt::Write as _;
use net_tools::{end, open, Explain, Failure};
use rt::net::Network;
use rt::{fs, println, time};

rt::entry!(main);

const USAGE: &str = "\
usage: net            addresses, router, frames
       net up [S]     wait for an address, at most S seconds (10)";

/// The pause between two looks for an address, in nanoseconds.
const PAUSE: u64 = 10_000_000;

fn show() -> Result<(), Failure> {
    let mut net = open()?;
    for (address, bits) in net.addresses().explain(&mut net)? {
        println!("address {address}/{bits}");
    }
    if let Some(router) = net.router().explain(&mut net)? {
        println!("router {router}");
    }
    let counters = net.counters().explain(&mut net)?;
    println!(
        "frames {} in, {} of no use; {} out, {} without room",
        counters.came, counters.useless, counters.left, counters.dropped
    );
    Ok(())
}

/// The file in which Linux programs find the servers of names.
const RESOLVER: &str = "/etc/resolv.conf";

/// Writes the servers of names to that file, if there are any and the file does not exist.
fn tell_resolver(net: &mut Network) -> Result<(), Failure> {
    let servers = net.names().explain(net)?;
    if servers.is_empty() || fs::stat(RESOLVER, true).is_ok() {
        return Ok(());
    }
    let mut text = String::new();
    for server in servers {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "nameserver {server}");
    }
    Ok(fs::write_all(RESOLVER, text.as_bytes(), 0o644)?)
}

fn up(seconds: &str) -> Result<(), Failure> {
    let seconds: u64 = seconds.parse().map_err(|_| Failure::Usage)?;
    let until = time::now().saturating_add(seconds.saturating_mul(1_000_000_000));
    let mut net = open()?;
    loop {
        let addresses = net.addresses().explain(&mut net)?;
        let mut others = addresses.iter().map(|(address, _)| address);
        if others.any(|address| address.is_ipv4() && !address.is_loopback()) {
            return tell_resolver(&mut net);
        }
        if time::now() >= until {
            return Err(Failure::Because("nobody has given an address".into()));
        }
        time::sleep(PAUSE);
    }
}

fn main() -> u8 {
    let args = &rt::start().args;
    let done = match (args.get(1).map(|word| &word[..]), args.get(2), args.len()) {
        (None, ..) => show(),
        (Some("up"), seconds, 2..=3) => up(seconds.map_or("10", |seconds| seconds)),
        _ => Err(Failure::Usage),
    };
    end("net", USAGE, done)
}
