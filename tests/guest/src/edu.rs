//! What the driver of QEMU's `edu` device (`bin/edu.rs`) and the program that tests it (`bin/edus.rs`) say to each other.
//!
//! The device brings [`WORDS`] from memory into a buffer of its own, or back, 100 ms after it was told to, and interrupts then.
//! Nothing stops such a transfer, not even a reset of the machine's bus: a driver that takes the device over waits for its end.

use interface::{interface, plain, Error};

mod words;
pub use words::{word, WORDS};

/// The services of the two drivers.
pub const NAMES: [&str; 2] = ["edu", "edu2"];

plain! {
    /// What the driver tries that no driver may.
    pub enum Attempt {
        /// To have what others have, or what it was not given.
        Taken = 0,
        /// To write its device's configuration.
        Configuration = 1,
        /// To have all there is: lines, ports, memory, functions.
        Everything = 2,
        /// To take and give back without an end.
        Loop = 3,
        /// References that are not what is asked for.
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
        /// To ask again, by the number of a request that was answered, as who was stopped before it had the answer.
        Repeats = 9,
    }
}

/// The driver, whose door is its control port.
#[interface]
pub trait Edu {
    /// Takes the device: whether it was in the middle of a transfer, for an earlier driver. Errors: `Exists` if
    /// the driver has it; `Broken` if memory that it is given is not all zeros; what the device server refuses.
    /// Must not be repeated.
    #[once]
    fn drive(&self) -> Result<bool, Error>;
    /// Whether the device's buffer had the bytes of this seed when it was taken. Errors: `NotFound` if it has not
    /// taken the device. May be repeated.
    fn had(&self, seed: u64) -> Result<bool, Error>;
    /// Begins to bring the bytes of a seed to the device; or brings them there, and begins to bring them back.
    /// Errors: `NotFound` if it has not taken the device. Must not be repeated.
    #[once]
    fn begin(&self, seed: u64, back: bool) -> Result<(), Error>;
    /// Brings the bytes of a seed there and back, and compares. Errors: `NotFound` if it has not taken the device;
    /// `Broken` if they are others, or if an interrupt does not come. Must not be repeated.
    #[once]
    fn echo(&self, seed: u64) -> Result<(), Error>;
    /// Has the device interrupt, and waits for it. Errors: `NotFound` if it has not taken the device; `Broken` if
    /// it does not come. Must not be repeated.
    #[once]
    fn ring(&self) -> Result<(), Error>;
    /// A driver without a device: has all the memory that it may have, and gives back and takes pieces of it.
    /// Errors: `Broken` if a piece that it is given is not all zeros, or if others have written to one. Must not
    /// be repeated.
    #[once]
    fn watch(&self, seed: u64) -> Result<(), Error>;
    /// Tries something: for people, a line for each request, what was said to it. Errors: `NotFound` if it has not
    /// taken the device, `Limit` if there is no room for it. Must not be repeated.
    #[once]
    fn attempt(&self, what: Attempt) -> Result<Bytes, Error>;
}
