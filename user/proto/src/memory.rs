//! The memory server: accounts, and segments of zero-filled, demand-paged, copy-on-write memory.
//!
//! A segment is a region with the server as its keeper, and a *control* port that names it. It belongs to an
//! *account*, a port too: what is promised to the account is there for it whatever others do, and it gets no
//! more than its limit. Whoever manages processes makes an account for each, through the server's *supervisor*
//! port, and ends it with the process: everything in it goes.
//!
//! A request whose work depends on how much memory it is about is done in steps, each a call of its own, so
//! that nobody waits for another's memory: [`Reply::More`] says how far it is, and the client asks for the rest.
//! All requests may be repeated; a repeated `Create` or `Copy` makes another segment, which stays in the account.
use serde::{Deserialize, Serialize};

/// What one can ask, and at which port.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Request {
    /// At an account: a new segment. Reply: two references, its region and its control port.
    Create {
        /// Bytes, a multiple of the page size.
        size: u64,
    },
    /// At a segment: a copy-on-write copy in the same account. Pages with objects are copied at once, as bytes.
    /// Reply: two references, region and control port of the new segment. After `More` the copy is to be
    /// finished with `CopyOn`; what is written to either meanwhile may be in it or not.
    Copy,
    /// At a segment that is being made as a copy: the next step. Reply: `Done` or `More`.
    CopyOn,
    /// At a segment: gives the pages of the range back; they read as zero afterwards. Objects in them die.
    /// Reply: `Done` or `More`.
    Discard {
        /// First byte, a multiple of the page size.
        offset: u64,
        /// Bytes, a multiple of the page size.
        size: u64,
    },
    /// At a segment: ends it. Its region and control port die at once, its pages go.
    Destroy,
    /// At any port: how much memory there is.
    Usage,
    /// At a segment: makes all pages of the range present, so that touching them cannot fail for want of
    /// memory. For whoever writes into the memory of others and must not be stopped by a refusal. Reply:
    /// `Done` or `More`.
    Populate {
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// At the supervisor port: a new account. Reply: two references, the account and its control port.
    CreateAccount(Limits),
    /// At an account's control port: ends it with all its segments.
    EndAccount,
    /// At an account: promises it so many bytes more than it has taken, and no others than these and those that its
    /// manager has promised it. For whoever must not end because others have taken the memory that it was going to
    /// touch. `NoMemory` if it could not take so many now; then nothing changes.
    Reserve {
        /// Bytes.
        size: u64,
    },
}

/// What an account may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes that are there for it, whatever others do.
    pub promised: u64,
    /// Most bytes. Memory is counted in chunks of 64 KB.
    pub most: u64,
    /// Most segments.
    pub segments: u32,
}

/// What comes back.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// A step is done; of `Discard` and `Populate` with so many bytes from the start of the range on.
    More(u64),
    /// In bytes.
    Usage {
        /// Physical memory that the server manages.
        total: u64,
        /// What the account may still take now; at the supervisor port: all that is in no segment.
        free: u64,
        /// Resident in this segment or taken by this account; 0 at the supervisor port.
        resident: u64,
    },
}
