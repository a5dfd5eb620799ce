//! What the device server decides, without any kernel call and with any configuration space of PCI, so that it is
//! tested on the host: who may ask for what ([`manifest`]), who has what ([`ledger`]), who is told when a line rings
//! ([`lines`]), PCI functions ([`pci`]) and what a driver may do with their configuration ([`config`]), memory that
//! devices reach ([`pool`]), what is taken back when a driver dies ([`death`]), why something was refused
//! ([`refusal`]); and the date ([`clock`]).
#![no_std]

extern crate alloc;

pub mod channel;
pub mod clock;
pub mod config;
pub mod death;
pub mod ledger;
pub mod lines;
pub mod manifest;
pub mod pci;
pub mod pool;
pub mod refusal;

/// A driver, by its number in the manifest.
pub type Driver = usize;
