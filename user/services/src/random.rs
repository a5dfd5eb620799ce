//! Random bytes that are good for secrets, if the processor or a device provides random numbers.
use interface::{interface, Error};

/// Most bytes of one answer.
pub const MOST: usize = 4096;

/// Open to every client.
#[interface]
pub trait Random {
    /// Random bytes: as many as there is room for, at most [`MOST`]. Errors: none of its own. May be repeated, and
    /// yields others each time.
    fn bytes(&self) -> Result<Bytes, Error>;
    /// Whether its bytes are good for secrets, and how many pieces of a device's bytes have gone into its key, of
    /// whatever quality. Its bytes are good, and stay so, once the processor has given numbers, or a device some that
    /// look random. Errors: none of its own. May be repeated.
    fn state(&self) -> Result<(bool, u64), Error>;
}
