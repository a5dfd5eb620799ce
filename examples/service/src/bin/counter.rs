//! A service: named counters, until it is killed: `counter &`.
//!
//! Whatever a client sends, it gets an answer or a refusal, and the others are served.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::string::String;
use rt::server::{decode, Event, Server};
use rt::Error;
use service::{Reply, Request, LONGEST, MOST, NAME};

rt::entry!(main);

fn main() -> u8 {
    match serve() {
        Ok(never) => match never {},
        Err(error) => {
            rt::println!("counter: {}", error.text());
            1
        }
    }
}

fn serve() -> Result<core::convert::Infallible, Error> {
    let mut server = Server::new().map_err(rt::error_of)?;
    let port = server.port(0).map_err(rt::error_of)?;
    rt::names::register(NAME, &port)?;
    let mut counters = BTreeMap::new();
    loop {
        match server.next(None) {
            Event::Request { header, .. } => {
                let reply = decode(header).and_then(|request| answer(&mut counters, request));
                server.reply(&reply, &[], &[]);
            }
            _ => server.drop_client(),
        }
    }
}

fn answer(counters: &mut BTreeMap<String, u64>, request: Request) -> Result<Reply, Error> {
    match request {
        Request::Get { name } => counters.get(&name).copied().ok_or(Error::NotFound),
        Request::Set { name, .. } if name.is_empty() || name.len() > LONGEST => Err(Error::Invalid),
        Request::Set { name, value } => {
            if counters.len() == MOST && !counters.contains_key(&name) {
                return Err(Error::NoMemory);
            }
            counters.insert(name, value);
            Ok(value)
        }
        Request::Count => Ok(counters.len() as u64),
    }
}
