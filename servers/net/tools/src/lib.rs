//! What the programs for the network share: sessions, names, and messages when something goes wrong.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::string::{String, ToString};
use core::net::IpAddr;
use rt::net::Network;
use rt::Error;

/// Why a program could not do what it was asked to do.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are wrong.
    Usage,
    /// A sentence that says why.
    Because(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Because(error.text().to_string())
    }
}

/// Opens a session with the network server.
pub fn open() -> Result<Network, Failure> {
    Network::open().map_err(|error| match error {
        Error::NotFound => Failure::Because("there is no network: run --net user".to_string()),
        error => error.into(),
    })
}

/// Turns errors into the network server's sentences.
pub trait Explain<T> {
    /// The result, with the network's sentence if it is an error.
    fn explain(self, net: &mut Network) -> Result<T, Failure>;
}

impl<T> Explain<T> for Result<T, Error> {
    fn explain(self, net: &mut Network) -> Result<T, Failure> {
        self.map_err(|error| Failure::Because(net.why(error)))
    }
}

/// The first address of a name.
pub fn resolve(net: &mut Network, name: &str) -> Result<IpAddr, Failure> {
    let all = net.resolve(name).explain(net)?;
    all.first().copied().ok_or(Error::NotFound.into())
}

/// Prints what went wrong, and returns the program's exit status.
pub fn end(program: &str, usage: &str, done: Result<(), Failure>) -> u8 {
    match done {
        Ok(()) => 0,
        Err(Failure::Usage) => {
            rt::eprintln!("{usage}");
            2
        }
        Err(Failure::Because(why)) => {
            rt::eprintln!("{program}: {why}");
            1
        }
    }
}
