//! Tests of the kernel's calls, run inside the guest by programs that have only what every program has.
//!
//! * [`harness`] is their vocabulary: above all [`harness::Actor`], a thread that makes one call at a time for a
//!   test, so that the test can look at its frame before, during and after the call.
//! * [`cuts`] holds the cuts at every site, for a kernel with the probe.
//! * [`holds`] holds a thread in every state in which it can wait.
//! * [`edu`] is the interface of a driver of the tests.
//! * [`killer`] kills drivers at seeded instants.
//! * [`redirected`] is the memory that the test of the call gate shares with its program.
//! * [`services`] holds random hostile clients of every service.
//! * [`demo`] and [`tally`] hold what the programs that get checkpointed share.
//!
//! The bins: `kernel` runs tests in its own process, `runner` runs each in a fresh one and reports.
#![no_std]

extern crate alloc;

pub mod cuts;
pub mod demo;
pub mod edu;
pub mod harness;
pub mod holds;
pub mod killer;
pub mod redirected;
pub mod services;
pub mod tally;
