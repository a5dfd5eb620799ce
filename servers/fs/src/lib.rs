//! The file system in memory, without the server around it.
//!
//! * [`tree`] holds inodes, directories and paths: [`tree::FileSystem`] answers requests.
//! * [`content`] holds the bytes of a file.
//! * [`archive`] reads the boot archive.
//!
//! The server in `main.rs` receives requests of [`proto::fs`], asks the memory server how much
//! memory is left, and passes them on to [`tree::FileSystem::handle`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod archive;
pub mod content;
#[cfg(test)]
mod tests;
pub mod tree;
