//! The decisions of the device server, without kernel calls and for any PCI configuration space, so that they are
//! tested on the host: what each driver may request ([`manifest`]) and has ([`ledger`]), which drivers are interrupted
//! when a line rings ([`lines`]), PCI functions ([`pci`]) and drivers' access to their configuration ([`config`]),
//! memory that devices reach ([`pool`]), channels of ISA DMA ([`channel`]), the steps when a driver dies ([`death`]),
//! reasons for refusals ([`refusal`]); and the date ([`clock`]).
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
