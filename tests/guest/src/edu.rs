//! The interface between the driver of QEMU's `edu` device (`bin/edu.rs`) and the program that tests it
//! (`bin/edus.rs`).
//!
//! The device transfers [`WORDS`] from memory into a buffer of its own, or back, 100 ms after the request, and then
//! interrupts. Nothing stops such a transfer, not even a reset of the machine's bus: a driver that takes the device
//! over waits for its end.

use interface::{interface, plain, Error};

mod words;
pub use words::{word, WORDS};

/// The services of the two drivers.
pub const NAMES: [&str; 2] = ["edu", "edu2"];

plain! {
    /// What the driver tries although no driver may.
    pub enum Attempt {
        /// To get what other drivers have, or what it was not granted.
        Taken = 0,
        /// To write its device's configuration.
        Configuration = 1,
        /// To get everything: lines, ports, memory, functions.
        Everything = 2,
        /// To allocate and free without end.
        Loop = 3,
        /// To pass references that are not of the required kind.
        References = 4,
        /// Never to acknowledge an interrupt: the device raises its line until the driver ends.
        Silence = 5,
        /// On a line that is shared: to acknowledge an interrupt to nobody.
        Mute = 6,
        /// On a line that is shared: to acknowledge an interrupt to the device server a hundred times, and never to the
        /// device.
        Careless = 7,
        /// Channels of ISA DMA, and memory for them, that are not its own.
        Channels = 8,
        /// To repeat a request by the number of one that was answered, as a client does that was stopped before it
        /// had the answer.
        Repeats = 9,
    }
}

/// The driver; its door is its control port.
#[interface]
pub trait Edu {
    /// Claims the device. Returns whether the device was in the middle of a transfer for an earlier driver. Errors:
    /// `Exists` if the driver has it; `Broken` if memory that it is given is not all zeros; what the device server
    /// refuses. Must not be repeated.
    #[once]
    fn drive(&self) -> Result<bool, Error>;
    /// Whether the device's buffer contained the words of this seed when the device was claimed. Errors: `NotFound`
    /// if it has not claimed the device. May be repeated.
    fn had(&self, seed: u64) -> Result<bool, Error>;
    /// Starts a transfer of the words of a seed to the device; with `back`, transfers them there and starts the
    /// transfer back. Errors: `NotFound` if it has not claimed the device. Must not be repeated.
    #[once]
    fn begin(&self, seed: u64, back: bool) -> Result<(), Error>;
    /// Transfers the words of a seed there and back, and compares. Errors: `NotFound` if it has not claimed the
    /// device; `Broken` if they differ, or if an interrupt does not come. Must not be repeated.
    #[once]
    fn echo(&self, seed: u64) -> Result<(), Error>;
    /// Makes the device interrupt, and waits for the interrupt. Errors: `NotFound` if it has not claimed the device;
    /// `Broken` if the interrupt does not come. Must not be repeated.
    #[once]
    fn ring(&self) -> Result<(), Error>;
    /// For a driver without a device: allocates all the memory that it may have, and frees and allocates pieces of
    /// it. Errors: `Broken` if a piece that it is given is not all zeros, or if others have written to one. Must not
    /// be repeated.
    #[once]
    fn watch(&self, seed: u64) -> Result<(), Error>;
    /// Tries something. Returns a line for each request with its result, for display. Errors: `NotFound` if it has
    /// not claimed the device, `Limit` if there is no room for the lines. Must not be repeated.
    #[once]
    fn attempt(&self, what: Attempt) -> Result<Bytes, Error>;
}
