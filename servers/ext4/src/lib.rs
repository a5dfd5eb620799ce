//! The file system on the disk: ext4, by the crate `rsext4`, as the interface of files wants it. README.md has the rules that keep
//! what was synced.
//!
//! * [`volume`]: paths, what is open, and in which order things reach the disk;
//! * [`check`]: what a disk says, looked at before the library believes it;
//! * [`tap`]: the disk below the library;
//! * [`session`]: what one client has open;
//! * [`desk`]: the queue of requests between the thread that serves clients and the one that waits for the disk.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bits;
pub mod check;
pub mod desk;
pub mod session;
pub mod tap;
pub mod volume;

#[cfg(test)]
mod deaths;
#[cfg(test)]
mod harm;
#[cfg(test)]
mod tests;
