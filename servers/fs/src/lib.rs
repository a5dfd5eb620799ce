//! The file system in memory, without the server around it.
//!
//! * [`session`] has the open files of a client: [`session::Session`] answers requests.
//! * [`tree`] holds inodes, directories and paths.
//! * [`content`] holds the bytes of a file.
//! * [`archive`] reads the boot archive.
//!
//! The server in `main.rs` serves [`services::fs::Files`], and asks the memory server how much memory is left.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod archive;
pub mod content;
pub mod session;
#[cfg(test)]
mod tests;
pub mod tree;
