//! The interfaces of Fermata's services.
//!
//! * [`console`]: the terminal.
#![no_std]
#![forbid(unsafe_code)]

pub mod console;
