//! A client of the counter: `count NAME` prints a counter, `count NAME VALUE` or `count NAME=VALUE` sets it, `count
//! NAME +VALUE` adds to it, `count NAME @VALUE` waits until it is at least that, `count --sum` prints the sum of all
//! counters if the server can compute it, and `count` alone prints how many counters there are.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use rt::Error;
use service::{set_as, CountersClient, TotalsCalls, NAME};

rt::entry!(main);

/// How long to wait for the server, in nanoseconds: it may have been started a moment ago.
const PATIENCE: u64 = 5_000_000_000;

fn main() -> u8 {
    match ask() {
        Ok(value) => {
            rt::println!("{value}");
            0
        }
        Err(Error::NotFound) => {
            rt::println!("count: there is no such counter");
            1
        }
        Err(error) => {
            rt::println!("count: {}", error.text());
            1
        }
    }
}

fn ask() -> Result<u64, Error> {
    let mut args = rt::start().args.iter().skip(1).map(String::as_str);
    let door = rt::names::wait_for(NAME, rt::time::now() + PATIENCE)?;
    let mut counters = CountersClient::open(&door)?;
    let Some(name) = args.next() else {
        return counters.count();
    };
    if name == "--sum" {
        return interface::query_interface::<dyn TotalsCalls>(&mut counters)?.sum();
    }
    let Some(what) = args.next() else {
        return match name.contains('=') {
            true => set_as(&mut counters, name),
            false => counters.get(name),
        };
    };
    let value = what.trim_start_matches(['+', '@']);
    let value = value.parse().map_err(|_| Error::Invalid)?;
    match what.as_bytes().first() {
        Some(b'+') => counters.add(value, name),
        Some(b'@') => counters.at_least(value, name),
        _ => counters.set(value, name).map(|()| value),
    }
}
