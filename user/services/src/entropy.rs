//! Random numbers of a device, as its driver offers them to the server of random bytes ([`crate::random`]).
//!
//! There is one session at a time, and its bytes are given to nobody else. The door is the driver's control port, which
//! init gives to that server and to the holder of the system port; the name alone gives no access.
use interface::interface;

/// Most bytes of one answer.
pub const MOST: usize = 64;

/// The driver of a device of random numbers.
#[interface]
pub trait Entropy {
    /// Waits, perhaps for ever, until the device has given some bytes, and returns them: at least one and at most
    /// [`MOST`]. The driver does not check how random they are. Errors: `Invalid` if there is room for fewer than
    /// [`MOST`]; `Broken` if the device no longer answers sensibly. Must not be repeated.
    async fn bytes(&self) -> Result<Bytes, Error>;
}
