//! Answers every request with the text of the request, until it is killed: `echo_server &`.
//!
//! A service is a trait and an implementation of it. Clients find the server by its registered name, and each of them
//! gets a value of its own: its session.
#![no_std]
#![no_main]

use core::ops::Deref;
use echo::{Echo, EchoStub, NAME};
use interface::server::Visitor;
use interface::{Error, Server};

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

/// A client's session. This service keeps nothing for it.
struct Session;

impl Echo for Session {
    fn echo(&self, text: &str, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        match text.len() <= room {
            true => Ok(text.as_bytes()),
            false => Err(Error::Invalid),
        }
    }
}

fn serve() -> Result<core::convert::Infallible, Error> {
    let server = Server::new(|_: &Visitor| Ok(EchoStub(Session)))?;
    rt::names::register(NAME, server.door())?;
    server.run()
}
