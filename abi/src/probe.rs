//! The probe: how a test drives a kernel that was built for cut tests (`--cfg fermata_probe`).
//!
//! None of this is part of the interface: an ordinary kernel has neither the call nor the line. In
//! a kernel with the probe every access to a user's memory, every look at a handle and every wait
//! passes a *site*. Armed for the n-th site of certain threads, the probe stops the call there as a
//! fault at that point would, and raises its interrupt line, so that whoever is attached to it
//! runs next and can take things apart.
//!
//! [`CALL`] takes a reference to the device authority and an operation as arguments 0 and 1. What it
//! tells comes back in the parameters from 0 on ([`crate::registers`]).

/// The number of the probe's call, which no row of the table has.
pub const CALL: u8 = 0xff;

/// The probe's interrupt line, for `device_attach_interrupt`: behind those of the machine.
pub const LINE: u64 = 16;

/// The threads that the probe watches have this in the upper half of their tags, and a role below
/// [`ROLES`] in the lower one.
pub const WATCHED: u64 = 0x7072_6f62 << 32;

/// How many roles there are.
pub const ROLES: u64 = 32;

/// Arms for site argument 2 from now on (0: disarms) of the threads whose roles are in the mask that is
/// argument 3.
/// With [`SWEEP`] it fires at the first site that such a thread passes in a state in which it has
/// not fired since [`FRESH`], and each further ARM with [`SWEEP`] goes on from there.
pub const ARM: u64 = 1;

/// See [`ARM`]: every distinct state once.
pub const SWEEP: u64 = u64::MAX;

/// Forgets in which states it has fired, and what it has counted.
pub const FRESH: u64 = 7;

/// What happened since [`ARM`], in seven parameters: sites passed; if it has fired, the site and the
/// role of the thread; the instructions from its last progress on when the thread that was cut last
/// came to the same site in the same state again; bytes of messages moved; instructions that the probe
/// itself has used since the machine began, and how often a thread has been preempted in the kernel
/// since then.
pub const READ: u64 = 2;

/// The site with the index that is argument 2 in the table of sites that watched threads have passed,
/// and how often; 0 if nothing stands there. [`SITES`] is the size of the table.
pub const SITE: u64 = 3;

/// Argument 2: check the kernel's structures at every that many exits (0: never). Argument 3: bits of
/// [`GENERAL_PATH`].
pub const SET: u64 = 4;

/// Forgets all sites.
pub const FORGET: u64 = 5;

/// The numbers of objects that there are, of each type, in nine parameters.
pub const CENSUS: u64 = 6;

/// The line that is argument 2 is raised, as if by a device.
pub const RAISE: u64 = 8;

/// Calls take no fast path.
pub const GENERAL_PATH: u64 = 1;

/// Places in the table of sites.
pub const SITES: u64 = 1024;

/// What kind of site it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An access to a user's memory.
    Access = 1,
    /// A look at a handle.
    Handle = 2,
    /// The beginning of a wait.
    Wait = 3,
    /// A point at which the call can be preempted.
    Point = 4,
}

/// A site as one word: a hash of the file's name, the kind, line and column.
#[must_use]
pub const fn site(file: &str, kind: Kind, line: u32, column: u32) -> u64 {
    file_hash(file) << 36
        | (kind as u64) << 32
        | ((line & 0xf_ffff) as u64) << 12
        | (column & 0xfff) as u64
}

/// The hash of a file's name that its sites carry in their upper 28 bits (FNV-1a).
#[must_use]
pub const fn file_hash(file: &str) -> u64 {
    let bytes = file.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x100_0000_01b3);
        i += 1;
    }
    hash >> 36
}
