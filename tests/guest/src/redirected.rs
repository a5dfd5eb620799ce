//! What the test of the call gate and the program that it redirects say to each other.
use core::sync::atomic::AtomicU64;

/// In [`Mailbox::result`]: a call went wrong.
pub const WRONG: u64 = u64::MAX;

/// What the program finds, and where it leaves its result.
#[repr(C)]
pub struct Mailbox {
    /// A free slot for an object.
    pub slot: u64,
    /// A reference to a port whose server answers.
    pub port: u64,
    /// 0 until the program is through; then how many calls it made, or [`WRONG`].
    pub result: AtomicU64,
}
