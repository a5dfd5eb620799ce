//! What `tally_client` and `tally_server` both use: requests that must not be repeated.

use interface::{interface, Error};

/// The server's name.
pub const NAME: &str = "test-tally";
/// How often each request is made.
pub const ROUNDS: u64 = 400;
/// The text that the client appends in a round: long enough to need memory, and to span several pages at times.
#[must_use]
pub fn line(round: u64) -> alloc::string::String {
    "line ".repeat(20 + (round % 7 * 300) as usize)
}

/// Requests that must be done exactly once, in the three forms: in registers, with bytes, and answered later.
#[interface]
pub trait Tally {
    /// Adds, and returns the sum. Errors: none of its own. Must not be repeated.
    #[once]
    fn add(&self, amount: u64) -> Result<u64, Error>;
    /// Appends the text. Returns the length of all appended text. Errors: none of its own. Must not be repeated.
    #[once]
    fn append(&self, text: &str) -> Result<u64, Error>;
    /// Waits for another client's call of this method, and returns its number. Errors: none of its own. Must not be
    /// repeated.
    async fn swap(&self, number: u64) -> Result<u64, Error>;
}
