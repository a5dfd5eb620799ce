//! Random bytes that are good for secrets, where the processor has random numbers.
use interface::interface;

/// Most bytes of one answer.
pub const MOST: usize = 4096;

/// What everybody can ask.
#[interface]
pub trait Random {
    /// Random bytes: as many as there is room for, at most [`MOST`]. Errors: none of its own. May be repeated, and
    /// gives others each time.
    fn bytes(&self) -> Result<Bytes, Error>;
}
