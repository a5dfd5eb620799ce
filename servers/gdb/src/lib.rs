//! The debugger's server, without the machine around it.
//!
//! * [`registers`]: a thread's registers in GDB's layout, and the description that tells GDB about it.
//! * [`signal`]: exceptions and the ends of processes as GDB's signals.
//! * [`numbers`]: one number for GDB for each process of either manager.
//! * [`watch`]: watchpoints; [`access`]: the accesses of an instruction that has met a watched page.
//! * [`newcomer`]: notices from the bytes on the serial line that another debugger has connected.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod access;
pub mod newcomer;
pub mod numbers;
pub mod registers;
pub mod signal;
pub mod watch;
