//! The interfaces of Fermata's services.
//!
//! * [`console`] is the terminal, [`fs`] has files.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod console;
pub mod fs;
