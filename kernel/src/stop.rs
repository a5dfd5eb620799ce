//! How a handler ends, or is stopped on the way.

use crate::object::region::Region;
use crate::object::thread::Thread;
use crate::object::Header;
use crate::K;
use abi::{access, Code, Exception};

/// What stops a handler before it has changed anything.
pub(crate) enum Stop {
    /// A page is not there.
    Fault(Fault),
    /// The kernel would have to touch device memory for the program.
    Device(u64, Access),
    /// Wrong use: an exception for the thread's keeper.
    Exception(Exception, u64),
    /// This identity is vacant: wait until it has a body, or is dead.
    Vacant(&'static Header),
    /// A condition that a correct program can meet.
    Code(Code),
    /// Enough for once: the frame tells how to go on.
    Again,
    /// The probe of a kernel for cut tests wants the call to stop here.
    Cut,
}

/// What a handler tells the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The frame holds the result.
    Done,
    /// The thread has begun a wait.
    Wait,
}

/// What a handler returns.
pub(crate) type Handled = Result<Outcome, Stop>;

/// Does a call that stands in the frame of the running thread. Returns whom to resume.
pub(crate) type Handler = fn(K, &'static Thread) -> &'static Thread;

/// Goes on with what the running thread was about when it began to wait, of which it kept these words. Returns whom
/// to resume.
pub(crate) type Function = fn(K, &'static Thread, [u64; 4]) -> &'static Thread;

/// Rights that an access needs, of [`abi::access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(pub(crate) u64);

impl Access {
    pub(crate) const READ: Access = Access(access::READ);
    pub(crate) const WRITE: Access = Access(access::WRITE);
    /// To find or create objects.
    pub(crate) const OBJECT: Access = Access(access::OBJECTS);
}

/// A page that a walk did not find.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    /// The access, in the space where it was made.
    pub(crate) address: u64,
    pub(crate) access: Access,
    /// The region where the walk failed, and the offset in it; none if no mapping covers the
    /// address at all.
    pub(crate) at: Option<(&'static Region, u64)>,
}
