//! How a handler ends, or is stopped before its end.

use crate::object::region::Region;
use crate::object::thread::Thread;
use crate::object::Header;
use crate::K;
use abi::{access, Code, Exception};

/// The reason why a handler stopped before it changed anything.
pub(crate) enum Stop {
    /// A page is absent: its region's keeper is asked.
    Fault(Fault),
    /// The page of an object that a call manages is absent: the keeper of its region is asked. If there is no keeper,
    /// the call's result is `NoObject`.
    Absent(Fault),
    /// The kernel would have to access device memory for the program: address and access.
    Device(u64, Access),
    /// Wrong use of a call: an exception, with its address, for the keeper of the thread's space.
    Exception(Exception, u64),
    /// This identity is vacant: the thread waits until it has a body or is dead.
    Vacant(&'static Header),
    /// A result code: a condition that a correct program can meet.
    Code(Code),
    /// Another thread should run, or the call has done enough for one turn. The frame says how to go on.
    Again,
    /// The probe of a kernel for cut tests wants the call to stop here.
    Cut,
}

/// How a handler that was not stopped ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The frame holds the result.
    Done,
    /// The thread has begun a wait.
    Wait,
}

/// The result of a handler.
pub(crate) type Handled = Result<Outcome, Stop>;

/// A handler: makes the call in the frame of the running thread. Returns the thread to resume.
pub(crate) type Handler = fn(K, &'static Thread) -> &'static Thread;

/// The function of a continuation: goes on with the interrupted work of the running thread, from the words that
/// it kept. Returns the thread to resume.
pub(crate) type Function = fn(K, &'static Thread, [u64; 4]) -> &'static Thread;

/// The rights that an access needs, bits of [`abi::access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(pub(crate) u64);

impl Access {
    pub(crate) const READ: Access = Access(access::READ);
    pub(crate) const WRITE: Access = Access(access::WRITE);
    /// To find or create objects.
    pub(crate) const OBJECT: Access = Access(access::OBJECTS);
}

/// A page fault: the walk through the mappings found no page.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    /// The address in the space where the access was made.
    pub(crate) address: u64,
    pub(crate) access: Access,
    /// The region where the walk failed, and the offset in it. `None` if no mapping covers the address.
    pub(crate) at: Option<(&'static Region, u64)>,
}
