//! The Linux personality: runs unmodified Linux programs on Fermata.
//!
//! This library is the emulation itself, pure logic that knows neither the kernel nor the servers:
//! what it needs of them is the trait [`host::Host`]. The server (`main.rs`) implements it over
//! Fermata; the tests implement it over a fake, or over a real process on the development machine.
//!
//! * [`process`] is a task and what it shares with others beyond memory and registers; [`system`] is the table of all
//!   processes.
//! * [`emulate`] takes the registers of a thread at a `syscall` instruction and says how it goes
//!   on: with other registers, later, or not at all. Every call is atomic: it happens as a whole,
//!   or it has not begun and can be delivered again.
//! * [`calls`] has the calls, by subject.
//! * [`socket`] has sockets, [`outside`] those that reach other machines, [`node`] sockets' names in the file system
//!   and FIFOs, [`interfaces`] the network interfaces and routes; [`epoll`] has the watches of descriptors, [`inotify`]
//!   those of files; [`job`] is job control; [`pty`] has pseudo-terminals, [`futex`] the wait queues of memory words.
//! * [`ipc`] has System V IPC; [`memory`] is the list of mapped areas, [`object`] the pages that several processes map;
//!   [`lock`] has locks on files, [`busy`] the files that are executed or open; [`exec`] loads programs, [`native`] has
//!   native ones started; [`signal`] delivers signals; [`path`], [`special`] and [`proc`] know the names that are not
//!   files.
//! * [`part`] is what a checkpoint holds of a process, and the checks on the way back.
//! * [`files`] has the requests to the file system, [`late`] the calls that wait for a file system.
//! * [`number`] and [`errno`] are Linux's numbers, [`keeper`] has the numbers of the memories' keepers.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod busy;
pub mod calls;
pub mod descriptors;
pub mod emulate;
pub mod epoll;
pub mod errno;
pub mod exec;
pub mod files;
pub mod futex;
pub mod host;
pub mod inotify;
pub mod interfaces;
pub mod ipc;
pub mod job;
pub mod keeper;
pub mod kept;
pub mod known;
pub mod late;
pub mod loading;
pub mod lock;
pub mod memory;
pub mod native;
pub mod node;
pub mod number;
pub mod object;
pub mod outside;
pub mod part;
pub mod path;
pub mod proc;
pub mod process;
pub mod pty;
pub mod signal;
pub mod socket;
pub mod special;
pub mod system;
pub mod templates;
#[cfg(test)]
mod tests;
pub mod timer;
pub mod trace;
pub mod wire;
pub mod work;
