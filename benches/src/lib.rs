//! The parts of which the guest's benchmarks are made.
//!
//! A benchmark is a loop in assembly language ([`loops`]) that a thread of its own runs, alone or
//! against the loop of a second thread; [`run`] makes the threads, waits, checks that the work was
//! really done, and reads the sample. Two threads are in two spaces unless a benchmark says
//! otherwise: a [`twin::Twin`] is a space in which the program's own memory has the same addresses,
//! and [`pages::Pages`] are pages that it may find absent.
//!
//! [`fluke`] is the set of the small operations, which several programs run.
//!
//! [`service`] measures the additional cost of an interface over an RPC.
//!
//! Results go out over the machine's control channel ([`report`]), where `./fermata bench` reads
//! them. Marker instructions around each measured stretch tell the counting plugin of the emulator
//! where it begins and ends.
#![no_std]

extern crate alloc;

pub mod fluke;
pub mod loops;
pub mod pages;
pub mod report;
pub mod run;
pub mod service;
pub mod twin;
