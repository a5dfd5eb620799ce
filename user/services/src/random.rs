//! Random bytes that are good for secrets, where the processor or a device has random numbers.
use interface::{interface, Error};

/// Most bytes of one answer.
pub const MOST: usize = 4096;

/// What everybody can ask.
#[interface]
pub trait Random {
    /// Random bytes: as many as there is room for, at most [`MOST`]. Errors: none of its own. May be repeated, and
    /// gives others each time.
    fn bytes(&self) -> Result<Bytes, Error>;
    /// Whether what it gives is good for secrets, and how many pieces that a device has given have gone into its key,
    /// whatever they looked like. It is good, and stays so, once the processor has given it numbers or a device some
    /// that look like chance. Errors: none of its own. May be repeated.
    fn state(&self) -> Result<(bool, u64), Error>;
}
