//! The Fermata kernel: all of its logic, and none of its machine.
//!
//! This crate knows no register of a processor and contains no unsafe code; it asks `hal` for
//! what a machine does, and runs as well on the simulated machine of the host.
//!
//! A trap comes in at [`Kernel::trap`]. The frame of the thread is all that a handler gets and all
//! that it leaves behind (rule A1). Handlers check everything first, then change things and cannot
//! fail any more (A2); what stops them on the way is a [`Stop`], what steers the dispatcher
//! afterwards an [`Outcome`] (A4).
//!
//! The rooms, from the ground up: `kernel` has the state, `object` the nine types, `sched` knows who runs next, `irq`
//! what interrupts mean, `exec` what becomes of the stack, `leave` ends a trap, `memory` walks the mapping hierarchy,
//! `handle` finds objects by address, `ipc` moves messages and talks to keepers, `syscall` decodes and doubts
//! arguments, `trap` is where the machine calls. A room imports only from rooms below it (`./fermata check`).
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod config;
mod counters;
mod exec;
mod first;
mod handle;
mod ipc;
mod irq;
mod kept;
mod kernel;
mod leave;
mod memory;
mod object;
mod probe;
mod sched;
mod stop;
mod syscall;
mod trap;
mod treap;

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
