//! The network server: README.md. Everything but the frames' way to and from the driver is this library, which makes no
//! kernel call and is tested on the host: two machines with a wire between them that loses, doubles and alters frames.
//!
//! * [`Leaving`] hands what leaves to the thread that sends, `queue` carries frames between a network and the stack, in
//!   batches ([`Batch`]), `packet` looks at what is in them, `segments` puts right in them what the stack gets wrong;
//!   [`Stack`] has the sockets, and is the crate `smoltcp` twice: for the wire and for the machine itself; [`Session`]
//!   is what one client has.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod batch;
mod leaving;
mod packet;
mod queue;
mod segments;
mod session;
mod stack;
#[cfg(test)]
mod tests;

pub use batch::{Batch, ROOM};
pub use leaving::Leaving;
pub use session::{Session, Shared};
pub use stack::{Address, Id, Options, Stack};
