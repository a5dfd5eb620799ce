//! The interface between the Fermata kernel and everything above it.
//!
//! The meaning of calls, the roles of registers, the layout of an object's state in memory: all of
//! this is defined here once, and the kernel, the user stubs, the tools and the tests use these
//! definitions. This crate depends on nothing and contains only definitions.
//!
//! * [`syscalls`] is the table of entrypoints: the single source of truth.
//! * [`registers`] says what roles registers have; [`x86_64`] assigns these roles to the registers of
//!   that architecture, and [`simulated`] to those of the machine of the host's tests.
//! * [`ipc`] says which stages each IPC entrypoint runs through and where it restarts.
//! * [`state`] holds the structures that `get_state` writes and `set_state` reads.
//! * [`message`] holds the messages that the kernel itself sends to keepers.
//! * [`code`] holds result codes and exception codes.
//! * [`gate`] is the form of calls in a program's code, so that a loader can redirect them.
//! * [`table`] makes those structures and codes into data for the reference and the C header.
//! * [`probe`] is the interface by which tests drive a kernel that was built for cut tests.
//! * [`boot`] describes the memory and objects that the first program has when it starts.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod boot;
pub mod code;
pub mod gate;
pub mod ipc;
pub mod message;
pub mod probe;
pub mod registers;
pub mod simulated;
pub mod state;
pub mod syscalls;
pub mod table;
pub mod x86_64;

#[cfg(feature = "simulated")]
use simulated as machine;
#[cfg(not(feature = "simulated"))]
use x86_64 as machine;

pub use code::{Code, Exception};
pub use machine::{Register, Registers, REGISTER_WORDS, ROLES};
pub use syscalls::{Call, Class, Common, Syscall, SYSCALLS};

use table::numbered;

/// Size of a page and of a physical frame, in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// First address beyond what a program can map.
pub const USER_END: u64 = 0x0000_7fff_ffff_f000;

/// The addresses of collocated spaces: programs that run in the kernel's rings, in ring 1, though at addresses below
/// [`USER_END`] (Draves and Cutshall, Unifying the User and Kernel Environments, section 4).
///
/// Each collocated space has a *place* of its own, and no addresses outside it. No other space has addresses here.
pub mod collocated {
    use crate::{PAGE_SIZE, USER_END};

    /// The first address of the first place.
    pub const START: u64 = 0x0000_4000_0000_0000;
    /// Bytes of a place.
    pub const SIZE: u64 = 4 << 40;
    /// The number of places.
    pub const COUNT: u64 = 16;

    const _: () = assert!(START + COUNT * SIZE == USER_END + PAGE_SIZE);

    /// The addresses of a place: the first, and the end.
    #[must_use]
    pub const fn range(place: u64) -> (u64, u64) {
        let end = START + (place + 1) * SIZE;
        (
            START + place * SIZE,
            if end > USER_END { USER_END } else { end },
        )
    }
}

/// Bytes that an object occupies in the memory of the program that owns it.
///
/// The address of an object is its handle. While the object exists these bytes belong to the
/// kernel; a program that writes there harms at most itself.
pub const OBJECT_SIZE: u64 = 16;

/// Alignment of every handle, in bytes. A handle never crosses a page.
pub const OBJECT_ALIGN: u64 = 16;

/// The most references that one reference list can name (see [`ref_list`]).
pub const MAX_LIST_REFS: u64 = 15;

/// Largest message of the idempotent form, in bytes. It is moved without a preemption point, which is the longest
/// stretch without one in a kernel with preemption points (`docs/proof.md`).
pub const MAX_IDEMPOTENT: u64 = 68 * 1024;

/// The most entries of both sides' lists that such a message can use, empty ones included. With more entries the
/// message is `TooLarge`.
pub const MAX_ENTRIES: u64 = 64;

/// Number of entries of both sides' lists after which a reliable message pauses, so that interrupts are handled; its
/// frames say how it goes on.
pub const ENTRIES_PER_TURN: u64 = 4096;

/// The most threads of a space. An operation on all of them, such as the end of the space, is one stretch of the kernel
/// without a switch to another thread (`docs/proof.md`).
pub const MAX_THREADS: u32 = 1024;

/// Bytes that a register message can carry.
pub const MAX_SHORT: u64 = 64;

/// Number of scheduling priorities. A higher number runs first.
pub const PRIORITIES: u32 = 32;

/// Packs a list of `count` reference objects that begin at `address` into the one parameter that
/// the IPC calls take: the address is aligned to 16, so its low four bits carry the count.
///
/// Progress is the same word with the address advanced by [`OBJECT_SIZE`] and the count reduced.
#[must_use]
pub const fn ref_list(address: u64, count: u64) -> u64 {
    address | (count & MAX_LIST_REFS)
}

/// Memory access rights, in mappings, regions and fault messages.
pub mod access {
    /// Loads are allowed.
    pub const READ: u64 = 1;
    /// Stores are allowed.
    pub const WRITE: u64 = 2;
    /// Instruction fetch is allowed.
    pub const EXECUTE: u64 = 4;
    /// Kernel objects may be created here, and handles found here.
    pub const OBJECTS: u64 = 8;
    /// Every right.
    pub const ALL: u64 = 15;
}

/// The types of kernel objects, in the order of the paper's Table 2 (Ford et al., Interface and
/// Execution Models in the Fluke Kernel, section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Type {
    /// A lock that threads of any space can share.
    Mutex = 1,
    /// A condition variable.
    Cond = 2,
    /// Imports a part of a region into a space.
    Mapping = 3,
    /// Exports a range of a space.
    Region = 4,
    /// An object at which a server receives, and to which clients connect.
    Port = 5,
    /// A set of ports on which server threads wait.
    Portset = 6,
    /// An address space with the threads in it.
    Space = 7,
    /// A thread of control.
    Thread = 8,
    /// Names another object across spaces and carries the right to use it.
    Reference = 9,
}

/// All types of objects, in numerical order.
pub const TYPES: [Type; 9] = [
    Type::Mutex,
    Type::Cond,
    Type::Mapping,
    Type::Region,
    Type::Port,
    Type::Portset,
    Type::Space,
    Type::Thread,
    Type::Reference,
];

impl Type {
    /// The type with the number `raw`, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Option<Self> {
        if raw >= 1 && raw <= 9 {
            Some(TYPES[(raw - 1) as usize])
        } else {
            None
        }
    }

    /// The type's name, as it begins the names of its calls.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Type::Mutex => "mutex",
            Type::Cond => "cond",
            Type::Mapping => "mapping",
            Type::Region => "region",
            Type::Port => "port",
            Type::Portset => "portset",
            Type::Space => "space",
            Type::Thread => "thread",
            Type::Reference => "reference",
        }
    }
}

numbered! {
    /// What a reference names. The first nine agree with [`Type`].
    pub enum RefKind {
        /// Nothing.
        Null = 0,
        /// A mutex.
        Mutex = 1,
        /// A condition variable.
        Cond = 2,
        /// A mapping.
        Mapping = 3,
        /// A region: the right to map and search it.
        Region = 4,
        /// A port: the right to connect to it.
        Port = 5,
        /// A portset: the right to attach ports to it.
        Portset = 6,
        /// A space: the right to attach threads, mappings and regions to it.
        Space = 7,
        /// A thread: the right to interrupt it.
        Thread = 8,
        /// A reference object, as an identity kept across destruction.
        Reference = 9,
        /// The client end of a thread's connection: the right to be the server at its other end.
        ClientEnd = 10,
        /// The server end of a thread's connection: the right to be the client at its other end.
        ServerEnd = 11,
        /// The device authority, handed to the first program by boot.
        Authority = 12,
    }
}
