//! The network server (README.md). All of it but the transport of frames to and from the driver is in this library,
//! which makes no kernel call and is tested on the host with two machines and a wire that loses, doubles and alters
//! frames.
//!
//! * [`Leaving`]: leaving frames for the thread that sends; `queue`: frames between a network and the stack, in batches
//!   ([`Batch`]); `packet`: the contents of frames and their checksums; `segments`: corrections of what the stack gets
//!   wrong about TCP;
//! * [`Stack`]: the sockets, on the crate `smoltcp` twice: for the wire and for the machine itself;
//! * [`Session`]: what one client has.
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
