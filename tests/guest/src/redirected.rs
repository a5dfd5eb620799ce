//! The memory through which the test of the call gate and the program that it redirects exchange data.
use core::sync::atomic::AtomicU64;

/// In [`Mailbox::result`]: a call went wrong.
pub const WRONG: u64 = u64::MAX;

/// The program's parameters and its result.
#[repr(C)]
pub struct Mailbox {
    /// A free slot for an object.
    pub slot: u64,
    /// A reference to a port whose server answers.
    pub port: u64,
    /// 0 until the program has finished; then how many calls it made, or [`WRONG`].
    pub result: AtomicU64,
}
