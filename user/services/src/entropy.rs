//! Random numbers of a device, as its driver offers them to the server of random bytes ([`crate::random`]).
//!
//! There is one session at a time, and what comes in it was given to nobody else. The door is the driver's control
//! port, which init gives to that server and to who has the system port; the name alone leads nowhere.
use interface::interface;

/// Most bytes of one answer.
pub const MOST: usize = 64;

/// The driver of a device of random numbers.
#[interface]
pub trait Entropy {
    /// Waits until the device has given some bytes, which may be for ever: these bytes, at least one and at most
    /// [`MOST`]. How random they are is the device's affair. Errors: `Invalid` if there is room for fewer than
    /// [`MOST`]; `Broken` if the device has stopped making sense. Must not be repeated.
    async fn bytes(&self) -> Result<Bytes, Error>;
}
