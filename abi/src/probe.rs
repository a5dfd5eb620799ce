//! The probe: how a test drives a kernel that was built for cut tests (`--cfg fermata_probe`).
//!
//! None of this is part of the interface: an ordinary kernel has neither the call nor the line. In
//! a kernel with the probe every access to a user's memory, every lookup of a handle, every
//! preemption point and every wait passes a *site*. When the probe is armed for the n-th site of
//! certain threads, it stops the call there as a fault at that point would, and raises its interrupt
//! line, so that the thread attached to the line runs next and can take threads and objects apart.
//!
//! [`CALL`] takes a reference to the device authority and an operation as arguments 0 and 1. Its
//! results are in the parameters from 0 on ([`crate::registers`]).

/// The number of the probe's call, which no row of the table has.
pub const CALL: u8 = 0xff;

/// The probe's interrupt line, for `device_attach_interrupt`: behind those of the machine.
pub const LINE: u64 = 16;

/// The threads that the probe watches have this in the upper half of their tags, and a role below
/// [`ROLES`] in the lower half.
pub const WATCHED: u64 = 0x7072_6f62 << 32;

/// The number of roles.
pub const ROLES: u64 = 32;

/// Arms the probe: it fires at the site with the number in argument 2, counted from now on (0: disarms), of
/// threads whose roles are in the mask in argument 3.
/// With [`SWEEP`] it fires at the first site that such a thread passes in a state in which the probe has
/// not fired since [`FRESH`], and each further ARM with [`SWEEP`] goes on from there.
pub const ARM: u64 = 1;

/// See [`ARM`]: every distinct state once.
pub const SWEEP: u64 = u64::MAX;

/// Clears the states in which the probe has fired, and its counts of sites passed and bytes moved.
pub const FRESH: u64 = 7;

/// Reads what happened since [`ARM`], in seven parameters: sites passed; if the probe has fired, the site
/// and the role of the thread; the number of instructions that the thread that was cut last executed from its
/// last progress until it reached the same site in the same state again; bytes of messages moved;
/// instructions that the probe itself has used since the machine started; and how often a thread has been
/// preempted in the kernel since then.
pub const READ: u64 = 2;

/// Reads the entry at the index in argument 2 of the table of sites that watched threads have passed: the
/// site, and how often it was passed; 0 if the entry is empty. [`SITES`] is the size of the table.
pub const SITE: u64 = 3;

/// Sets the number of exits from the kernel from one check of its structures to the next (argument 2; 0: no
/// checks), and [`GENERAL_PATH`] or 0 (argument 3).
pub const SET: u64 = 4;

/// Clears the table of sites.
pub const FORGET: u64 = 5;

/// Reads the number of objects of each type, in nine parameters.
pub const CENSUS: u64 = 6;

/// Raises the line in argument 2, as if a device did.
pub const RAISE: u64 = 8;

/// Calls take no fast path.
pub const GENERAL_PATH: u64 = 1;

/// Places in the table of sites.
pub const SITES: u64 = 1024;

/// The kind of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An access to a user's memory.
    Access = 1,
    /// A lookup of a handle.
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
