//! What the echo server and its clients say to each other: a trait. `#[interface]` makes of it the proxy that clients
//! call (`EchoClient`) and the stub that takes requests apart for the server (`EchoStub`).
#![no_std]

use interface::interface;

/// The name that the server is known by.
pub const NAME: &str = "echo";

/// Says what it hears.
#[interface]
pub trait Echo {
    /// The same text. Errors: `Invalid` if the client has less room than that. May be repeated.
    fn echo(&self, text: &str) -> Result<Bytes, Error>;
}
