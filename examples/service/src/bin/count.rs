//! Asks the counter: `count NAME` prints a counter, `count NAME VALUE` sets it, `count` alone says how many
//! there are.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::ToString;
use rt::Error;
use service::{Reply, Request, NAME};

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

fn ask() -> Result<Reply, Error> {
    let args = &rt::start().args;
    let request = match (args.get(1), args.get(2)) {
        (None, _) => Request::Count,
        (Some(name), None) => Request::Get {
            name: name.to_string(),
        },
        (Some(name), Some(value)) => Request::Set {
            name: name.to_string(),
            value: value.parse().map_err(|_| Error::Invalid)?,
        },
    };
    let port = rt::names::wait_for(NAME, rt::time::now() + PATIENCE)?;
    rt::rpc::ask(&port, &request)
}
