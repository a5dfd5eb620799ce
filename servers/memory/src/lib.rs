//! The memory server's bookkeeping, without any kernel call.
//!
//! * [`accounts`]: how much each client may take.
//! * [`alias`]: what a port of the server is about.
//! * [`chunks`]: physical memory in chunks of 64 KB, with reference counts.
//! * [`segments`]: the contents of each segment, and how faults and requests change them. It acts
//!   through [`segments::Machine`], which the server implements with kernel calls and the tests
//!   with a model.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod accounts;
pub mod alias;
pub mod chunks;
pub mod segments;
