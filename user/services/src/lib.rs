//! The interfaces of Fermata's services.
//!
//! * [`console`]: the terminal.
//! * [`fs`]: files.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod console;
pub mod fs;
