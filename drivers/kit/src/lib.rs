//! osenv: what a driver written for another system needs of the system that it runs in, as the appendix of K. Van
//! Maren, *The Fluke Device Driver Framework*, defines it. README.md says what is there and what is missing;
//! `include/osenv.h` declares it for C.
//!
//! A *driver set* is one program. One thread of it is the **process-level thread**: it comes [in](inside) before it
//! calls into the driver. Handlers of interrupts and of timers run on threads of their own, and are atomic to it
//! ([`lock`]).
//!
//! **The rule for locks, for the kit and its users:** a handler may run while the process-level thread is stopped
//! anywhere inside. So a thread that is inside takes a lock of the runtime (which allocating, writing to the console
//! and asking a server do) only in [`outside`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// The atomic words of the locks.
use core::sync::atomic;

pub mod buddy;
pub mod lock;

mod interrupt;
mod io;
mod isadma;
mod log;
pub mod memory;
mod pci;
mod set;
pub mod sleep;
mod timer;

#[cfg(test)]
mod model;
#[cfg(test)]
mod threads;

pub use set::{inside, later, outside, run, Set};
