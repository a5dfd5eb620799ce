//! The messages that the kernel sends to keepers.

use crate::state::{Registers, REGISTER_WORDS};
use crate::table::structures;

structures! {
    /// A memory fault, sent to the keeper of the first region where the walk of the mapping hierarchy
    /// fails. Idempotent: it may be delivered again, and a late reply is dropped. It fits into a
    /// register message. The reply carries nothing; the thread then tries again.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct FaultMessage {
        /// Offset of the missing page in the region.
        pub offset: u64,
        /// Address of the missing page in the space that the region exports.
        pub address: u64,
        /// The access that was tried, of [`crate::access`].
        pub access: u64,
        /// The tag of the thread that faulted.
        pub tag: u64,
    }
}

/// Words in a [`FaultMessage`].
pub const FAULT_WORDS: usize = 4;

structures! {
    /// An exception, sent to the keeper of the thread's space. Reliable: once delivered, the thread's
    /// state says so, a restart does not deliver it again, and the reply is the commit. The reply is
    /// a [`Registers`] structure of exactly its size with which the thread goes on, or a [`ShortAnswer`]
    /// in one segment of exactly its size.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct ExceptionMessage {
        /// The [`crate::Exception`] code.
        pub code: u64,
        /// The address concerned: of the memory access, or of the wrong handle.
        pub address: u64,
        /// A detail: the access that was tried, or the processor's error code.
        pub detail: u64,
        /// The tag of the thread.
        pub tag: u64,
        /// The registers of the thread. For a foreign call the program counter is at the instruction
        /// that made it.
        pub registers: Registers,
    }
}

/// Words in an [`ExceptionMessage`].
pub const EXCEPTION_WORDS: usize = 4 + REGISTER_WORDS;

structures! {
    /// The message about an exception to a keeper that receives in registers, where an
    /// [`ExceptionMessage`] would not fit: the registers that handlers need most. The reply is a
    /// [`ShortAnswer`], and does not change the other registers. (The keeper can read them by
    /// `thread_get_state`, after a `thread_stop`.)
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct ShortExceptionMessage {
        /// The [`crate::Exception`] code.
        pub code: u64,
        /// The address concerned.
        pub address: u64,
        /// A detail: the access that was tried, or the processor's error code.
        pub detail: u64,
        /// The tag of the thread.
        pub tag: u64,
        /// The thread's program counter.
        pub pc: u64,
        /// The thread's stack pointer.
        pub sp: u64,
        /// The thread's flags.
        pub flags: u64,
        /// The thread's word of the call: for a foreign call, its number.
        pub call: u64,
    }
}

/// Words in a [`ShortExceptionMessage`].
pub const SHORT_EXCEPTION_WORDS: usize = 8;

structures! {
    /// The reply to an exception by a keeper that sends in registers, or in memory as one segment of exactly this
    /// size: the thread goes on with these registers, and all other registers as they were.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct ShortAnswer {
        /// The thread's program counter.
        pub pc: u64,
        /// The thread's stack pointer.
        pub sp: u64,
        /// The thread's flags.
        pub flags: u64,
        /// The thread's word of the call.
        pub call: u64,
    }
}

/// Words in a [`ShortAnswer`].
pub const SHORT_ANSWER_WORDS: usize = 4;

structures! {
    /// One segment of a scatter list: when the current segment (address and length in registers) is
    /// used up, the next segment of the list becomes the current one.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct Segment {
        /// First byte.
        pub address: u64,
        /// Number of bytes.
        pub length: u64,
    }
}
