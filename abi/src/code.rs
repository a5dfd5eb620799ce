//! Result codes and exception codes.
//!
//! A *result code* reports a condition that a correct program can meet. It is in the low byte of the word of the call
//! ([`crate::registers`]) when a call completes. Wrong use (no object at the handle of an object to be used, an object
//! of another type, a misaligned handle, an unknown entrypoint) is never a code: it is a synchronous [`Exception`],
//! delivered to the keeper of the thread's space.

use crate::table::numbered;

numbered! {
    /// Result of a call, in the low byte of the word of the call.
    pub enum Code {
        /// Done. For a receive: the message is complete and the direction has turned.
        Ok = 0,
        /// The receive buffer or reference list is full, and there is more of the message to receive.
        More = 1,
        /// The peer ended the connection, or died, before the call was complete.
        Disconnected = 2,
        /// The reference is null, names an object of another kind, or its target is dead.
        Dead = 3,
        /// The deadline passed.
        TimedOut = 4,
        /// The mutex is locked.
        WouldBlock = 5,
        /// The space's quota of kernel memory, or the kernel's memory, is used up; or the space has as many threads as
        /// a space may have ([`crate::MAX_THREADS`]).
        NoMemory = 6,
        /// The address, address range, interrupt line, range of I/O ports or place is taken.
        InUse = 7,
        /// A state or argument that no object can have.
        Invalid = 8,
        /// The connection is not in a stage in which this call is possible.
        WrongStage = 9,
        /// The message is larger than this form of message allows, or than the peer's buffer.
        TooLarge = 10,
        /// The message was larger than the buffer; the part that fitted was delivered.
        Truncated = 11,
        /// The search found nothing in the rest of the range; the references name different objects; or no thread is
        /// attached to the line, or this range of ports was not granted to the space.
        NotFound = 12,
        /// The caller lacks the right: the reference given as authority is not the device authority, the memory may not
        /// hold objects, the port is for calls only, the priority is above the ceiling of the caller's or the thread's
        /// space, or the caller's account does not allow the change of a quota or of a payer.
        Denied = 13,
        /// The thread must be stopped for this call.
        NotStopped = 14,
        /// The object that the call manages is vacant: it has no body, or its body has not been opened yet.
        Vacant = 15,
        /// Received: a message of the idempotent form, to be answered with a `reply` call.
        Call = 16,
        /// Received: a memory fault, from the kernel (see [`crate::message::FaultMessage`]).
        Fault = 17,
        /// Received: an exception, from the kernel (see [`crate::message::ExceptionMessage`]).
        Exception = 18,
        /// Received: nothing names the port with this alias any more
        /// ([`crate::state::port_flags::NOTIFY_UNREFERENCED`]).
        Unreferenced = 19,
        /// The object that the call manages is not there: at the handle is no object of this type, or no page that may
        /// hold objects. A manager of objects in other programs' memory meets this code when they take an object away.
        NoObject = 20,
    }
}

impl Code {
    /// The code in the low byte of the word of the call. An unknown number reads as [`Code::Invalid`].
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        match Code::from_raw(word & 0xff) {
            Some(code) => code,
            None => Code::Invalid,
        }
    }
}

numbered! {
    /// Why a thread cannot go on by itself. Numbers below 32 are the processor's vectors.
    pub enum Exception {
        /// Integer division by zero or overflow.
        Divide = 0,
        /// Single step or hardware breakpoint.
        Debug = 1,
        /// A breakpoint; the program counter is at the instruction.
        Breakpoint = 3,
        /// `into`.
        Overflow = 4,
        /// `bound`.
        Bound = 5,
        /// `ud2` or an instruction that the processor does not have.
        InvalidOpcode = 6,
        /// A general protection fault: privileged instruction, non-canonical address.
        Protection = 13,
        /// An x87 floating point error.
        X87 = 16,
        /// A misaligned access with alignment checks on.
        Alignment = 17,
        /// An SSE floating point error.
        Simd = 19,
        /// Any other processor exception.
        Processor = 31,
        /// A memory access that no mapping, region or keeper allows.
        Memory = 32,
        /// A handle at which there is no object.
        NoObject = 33,
        /// A handle whose object has another type.
        WrongType = 34,
        /// A misaligned handle, list or state.
        Misaligned = 35,
        /// An entrypoint that does not exist.
        NoCall = 36,
        /// The `syscall` instruction in a space marked foreign.
        ForeignCall = 37,
        /// The thread's space is dead.
        NoSpace = 38,
    }
}
