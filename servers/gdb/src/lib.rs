//! The debugger's server, without the machine around it.
//!
//! * [`registers`]: a thread's registers as GDB has them, and the description that says which these are.
//! * [`signal`]: exceptions and the ends of processes as GDB's signals.
//! * [`numbers`]: processes of both managers as one row of numbers.
//! * [`watch`]: what GDB watches; [`access`]: what an instruction does where it has met a watched page.
//! * [`newcomer`]: that another debugger has connected, at a line that does not say so.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod access;
pub mod newcomer;
pub mod numbers;
pub mod registers;
pub mod signal;
pub mod watch;
