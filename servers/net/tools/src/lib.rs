//! What the programs for the network share: how they end when something goes wrong.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::string::{String, ToString};
use core::net::IpAddr;
use rt::net::Network;
use rt::Error;

/// Why a program did not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// It was asked for nothing that there is.
    Usage,
    /// A sentence.
    Because(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Because(error.text().to_string())
    }
}

/// A session with the network.
pub fn open() -> Result<Network, Failure> {
    Network::open().map_err(|error| match error {
        Error::NotFound => Failure::Because("there is no network: run --net user".to_string()),
        error => error.into(),
    })
}

/// Says why a request was refused.
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

/// The status that a program ends with, after it has said what went wrong.
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
