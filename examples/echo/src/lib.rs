//! The interface between the echo server and its clients: a trait. `#[interface]` makes of it the proxy that clients
//! call (`EchoClient`) and the stub that takes requests apart for the server (`EchoStub`).
#![no_std]

use interface::interface;

/// The name by which clients find the server.
pub const NAME: &str = "echo";

/// Returns the text that it gets.
#[interface]
pub trait Echo {
    /// The same text. Errors: `Invalid` if the client has less room than that. May be repeated.
    fn echo(&self, text: &str) -> Result<Bytes, Error>;
}
