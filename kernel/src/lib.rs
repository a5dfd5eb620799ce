//! The Fermata kernel: all of its logic, nothing that depends on the machine.
//!
//! This crate names no register of a processor and contains no unsafe code. All that depends on the machine is in
//! `hal`, so this crate also runs on the simulated machine of the host.
//!
//! A trap enters at [`hal::Kernel::trap`]. The frame of the thread is all that a handler gets and all that it leaves
//! behind (rule A1). A handler makes all checks first; then it makes its changes, which cannot fail (A2). If a check
//! fails the handler returns a [`Stop`], otherwise an [`Outcome`], which tells the dispatcher what to do next (A4).
//!
//! The modules are rooms, one above the other; the kernel's README describes each. A room calls only rooms below it
//! (`./fermata check`).
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod avl;
mod config;
mod counters;
mod deadlines;
mod exec;
mod first;
mod handle;
mod ipc;
mod irq;
mod kept;
mod kernel;
mod leave;
mod lock;
mod memory;
mod object;
mod preempt;
mod probe;
mod queue;
mod sched;
mod stop;
mod syscall;
mod trap;

#[cfg(any(test, fermata_probe))]
mod check;
#[cfg(test)]
mod test;

pub use config::{Config, CONFIG};
pub use first::{FirstMapping, FirstSpace};
pub use kernel::Kernel;
pub use object::thread::Thread;

pub(crate) use kernel::K;
pub(crate) use stop::{Handled, Outcome, Stop};
