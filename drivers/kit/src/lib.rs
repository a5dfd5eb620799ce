//! osenv: what drivers that were written for other systems need of one, as the appendix of K. Van Maren, *The Fluke Device Driver
//! Framework*, defines it. README.md says what is there and what is missing; `include/osenv.h` is the same in C.
//!
//! A *driver set* is one program. One thread of it is the **process-level thread**: it comes [in](inside) before it
//! calls into the driver. Handlers of interrupts and of timers run on threads of their own, and are atomic to it
//! ([`lock`]).
//!
//! **The rule for what the kit and its users do with locks:** a handler may run while the process-level thread is
//! stopped anywhere inside. So whoever is inside takes no lock of the runtime (which allocates, writes to the console,
//! asks a server) but in [`outside`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// What the locks are made of.
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
