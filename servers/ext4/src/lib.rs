//! The file system on the disk: ext4, by the crate `rsext4`, behind the interface of files. README.md has the rules
//! that keep synced data safe.
//!
//! * [`volume`]: paths, open files, and the order in which data reaches the disk;
//! * [`check`]: checks of a disk's structures, before the library uses them;
//! * [`tap`]: the disk below the library;
//! * [`session`]: the open files of one client;
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
