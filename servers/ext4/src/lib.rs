//! The file system on the disk: ext4, by the crate `rsext4`, as the interface of files wants it. README.md has the rules that keep
//! what was synced.
//!
//! * [`volume`]: paths, what is open, and in which order things reach the disk;
//! * [`session`]: what one client has open;
//! * [`desk`]: the queue of requests between the thread that serves clients and the one that waits for the disk.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod desk;
pub mod session;
pub mod volume;

#[cfg(test)]
mod deaths;
#[cfg(test)]
mod tests;
