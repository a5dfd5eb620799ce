//! Answers every request with what came in it, until it is killed: `echo_server &`.
//!
//! A server has a portset, and ports in it. Clients find a port by the name that it is registered by.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use rt::server::{decode, Event, Server};
use rt::Error;

rt::entry!(main);

fn main() -> u8 {
    match serve() {
        Ok(never) => match never {},
        Err(error) => {
            rt::println!("echo_server: {}", error.text());
            1
        }
    }
}

fn serve() -> Result<core::convert::Infallible, Error> {
    let mut server = Server::new().map_err(rt::error_of)?;
    let port = server.port(0).map_err(rt::error_of)?;
    rt::names::register("echo", &port)?;
    loop {
        // The answer goes out with the next wait, in one call of the kernel.
        match server.next(None) {
            Event::Request { header, .. } => {
                let answer: Result<String, Error> = decode(header);
                server.reply(&answer, &[], &[]);
            }
            // Nobody sends anything else here. Whoever does is not answered, and sees the connection end.
            _ => server.drop_client(),
        }
    }
}
