//! The interface between the counter and its clients: a trait. `#[interface]` makes of it the proxy that clients call
//! (`CountersClient`) and the stub that takes requests apart for the server (`CountersStub`); `CountersCalls` is the
//! trait for callers, of a session or of an object in the program.
#![no_std]

use interface::{interface, Error};

/// The name by which clients find the server.
pub const NAME: &str = "counter";
/// The most counters: a client must not be able to fill the server's memory.
pub const MOST: usize = 100;
/// The longest name of a counter, in bytes.
pub const LONGEST: usize = 32;

/// Named counters that all clients share.
#[interface]
pub trait Counters {
    /// The value of a counter. Errors: `NotFound` if there is none of this name. May be repeated: a client that is
    /// restored in the middle of it asks again.
    fn get(&self, name: &str) -> Result<u64, Error>;
    /// Makes the value of a counter this, and makes the counter if there is none of this name. Errors: `Invalid` if
    /// the name is empty or longer than [`LONGEST`], `Limit` if there are [`MOST`] already. May be repeated.
    fn set(&self, value: u64, name: &str) -> Result<(), Error>;
    /// Adds to a counter. Returns its new value. Errors: `NotFound`, `Invalid` if it would overflow. Must not be
    /// repeated, and is not: it is done once, however often the client is stopped or restored meanwhile.
    #[once]
    fn add(&self, amount: u64, name: &str) -> Result<u64, Error>;
    /// Waits until a counter is at least this. Returns its value. The server serves others meanwhile. Errors: none of
    /// its own. May be repeated.
    async fn at_least(&self, value: u64, name: &str) -> Result<u64, Error>;
    /// How many counters there are. Errors: none of its own. May be repeated.
    fn count(&self) -> Result<u64, Error>;
}

/// The sum of all counters: another interface that a counter server may have.
#[interface]
pub trait Totals {
    /// The sum of all counters. Errors: `Limit` if it is too large. May be repeated.
    fn sum(&self) -> Result<u64, Error>;
}

/// Sets a counter as `said` says, `NAME=VALUE`, wherever the counters are.
///
/// # Errors
/// `Invalid` if `said` has another form; those of [`Counters::set`].
pub fn set_as(counters: &mut dyn CountersCalls, said: &str) -> Result<u64, Error> {
    let (name, value) = said.split_once('=').ok_or(Error::Invalid)?;
    let value = value.parse().map_err(|_| Error::Invalid)?;
    counters.set(value, name).map(|()| value)
}
