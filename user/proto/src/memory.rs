//! The memory server: segments of zero-filled, demand-paged, copy-on-write memory.
//!
//! A segment is a region with the server as its keeper, and a *control* port that names it.
use serde::{Deserialize, Serialize};

/// What one can ask. `Create` goes to the server's own port, the others to a segment's control
/// port.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Request {
    /// A new segment. Reply: two references, its region and its control port.
    Create {
        /// Bytes, a multiple of the page size.
        size: u64,
    },
    /// A copy-on-write copy of the segment. Pages with objects are copied at once, as bytes.
    /// Reply: two references, region and control port of the new segment.
    Copy,
    /// Gives the pages of the range back; they read as zero afterwards. Objects in them die.
    Discard {
        /// First byte, a multiple of the page size.
        offset: u64,
        /// Bytes, a multiple of the page size.
        size: u64,
    },
    /// Ends the segment: its pages go, its region and control port die.
    Destroy,
    /// How much memory there is.
    Usage,
    /// Makes all pages of the range present, so that touching them cannot fail for want of memory.
    /// For whoever writes into the memory of others and must not be stopped by a refusal.
    Populate {
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
    },
}

/// What comes back.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// In bytes.
    Usage {
        /// Physical memory that the server manages.
        total: u64,
        /// Of which free.
        free: u64,
        /// Resident in this segment (0 when asked of the server).
        resident: u64,
    },
}
