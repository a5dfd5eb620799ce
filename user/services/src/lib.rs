//! The interfaces of Fermata's services.
//!
//! * [`checkpoint`] saves and restores processes, [`console`] is the terminal, [`fs`] has files.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod checkpoint;
pub mod console;
pub mod fs;
