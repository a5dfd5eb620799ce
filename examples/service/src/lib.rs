//! What the counter and its clients say to each other: a trait. `#[interface]` makes of it the proxy that clients
//! call (`CountersClient`) and the stub that takes requests apart for the server (`CountersStub`); `CountersCalls`
//! is the trait as callers see it, of a session or of an object of the program.
#![no_std]

use interface::{interface, Error};

/// The name that it is known by.
pub const NAME: &str = "counter";
/// How many counters there can be: a client must not be able to fill the server's memory.
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
    /// Adds to a counter: its value then. Errors: `NotFound`, `Invalid` if it would overflow. Must not be repeated, and is not:
    /// it is done once, however often the client is stopped or restored meanwhile.
    #[once]
    fn add(&self, amount: u64, name: &str) -> Result<u64, Error>;
    /// Waits until a counter is so large: its value. The server serves others meanwhile. Errors: none of its own.
    /// May be repeated.
    async fn at_least(&self, value: u64, name: &str) -> Result<u64, Error>;
    /// How many counters there are. Errors: none of its own. May be repeated.
    fn count(&self) -> Result<u64, Error>;
}

/// What all counters come to: an interface that a counter may have besides.
#[interface]
pub trait Totals {
    /// The sum of all counters. Errors: `Limit` if it is too large. May be repeated.
    fn sum(&self) -> Result<u64, Error>;
}

/// Sets counters as this says, `NAME=VALUE`: wherever they are.
///
/// # Errors
/// `Invalid` if it says something else; those of [`Counters::set`].
pub fn set_as(counters: &mut dyn CountersCalls, said: &str) -> Result<u64, Error> {
    let (name, value) = said.split_once('=').ok_or(Error::Invalid)?;
    let value = value.parse().map_err(|_| Error::Invalid)?;
    counters.set(value, name).map(|()| value)
}
