//! The states that `get_state` writes and `set_state` reads.
//!
//! A state has two parts: simple fields, in one of these structures, and the references that the
//! object holds, which travel in reference objects named by further parameters. Together they are
//! all there is to know about an object (rule A6): if a manager destroys it, creates it anew and
//! sets the state, no other program can tell.
//!
//! All structures consist of 64-bit words (the FPU area apart) and have no padding.
//!
//! [`STATES`] lists, for every type of object, the structure and the references.

use crate::table::{numbered, structures, Layout};
use crate::Type;

pub use crate::machine::{clean_fpu, initial_fpu, Registers, FPU_BYTES, REGISTER_WORDS};

structures! {
    /// State of a mutex.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct MutexState {
        /// 1 while locked, else 0. There is no owner.
        pub locked: u64,
    }
}

structures! {
    /// Simple fields of a mapping. Its references: the region it imports, the space it imports into.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct MappingState {
        /// First address in the space; a multiple of the page size.
        pub start: u64,
        /// Length in bytes; a multiple of the page size. An empty mapping is inert.
        pub size: u64,
        /// Offset in the region that appears at `start`; a multiple of the page size.
        pub offset: u64,
        /// Rights, of [`crate::access`]; those of the region cap them at each access.
        pub protection: u64,
    }
}

structures! {
    /// Simple fields of a region. Its references: the space it exports from, its keeper port.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct RegionState {
        /// First address in the space; a multiple of the page size.
        pub start: u64,
        /// Length in bytes; a multiple of the page size.
        pub size: u64,
        /// The most that any mapping of the region can allow, of [`crate::access`].
        pub protection: u64,
    }
}

structures! {
    /// Simple fields of a port. Its reference: the portset at which its clients are received.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct PortState {
        /// A word of the server's choice. A thread that receives from this port gets it.
        pub alias: u64,
        /// Of [`port_flags`].
        pub flags: u64,
    }
}

/// Flags of a port.
pub mod port_flags {
    /// Clients may call this port but not connect to it: `client_connect` and the calls that begin with it
    /// return `Denied`. A client that connects holds the server until the client has sent, which a server
    /// must not allow to clients that it does not know.
    pub const CALLS_ONLY: u64 = 1;
    /// A server that waits at the port's portset gets [`crate::Code::Unreferenced`] with the port's alias
    /// when nothing names the port: no reference, and no region or space whose keeper it is. The flag is then
    /// cleared; a server that goes on with the port sets it again. (Mach's no-senders notification.)
    pub const NOTIFY_UNREFERENCED: u64 = 2;
    /// A client that calls the port or connects to it waits until this flag is cleared: no server takes a client of
    /// the port. Notices are delivered all the same, so that a server that lets a client wait learns that the client
    /// has ended.
    pub const HOLD_CLIENTS: u64 = 4;
    /// All flags.
    pub const ALL: u64 = 7;
}

/// Flags of a space.
pub mod space_flags {
    /// The `syscall` instruction goes to the keeper as an exception
    /// ([`crate::Exception::ForeignCall`]) instead of to the kernel.
    pub const FOREIGN: u64 = 1;
}

structures! {
    /// Simple fields of a space. Its reference: the keeper port for exceptions, and for memory faults
    /// that no keeper of a region resolves.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct SpaceState {
        /// Of [`space_flags`].
        pub flags: u64,
        /// Kernel memory that objects created from this space may use, in bytes. Setting it moves the difference
        /// between the account of this space and the account that pays for it. A higher quota can only be set from
        /// the space with that account, or from a space whose account is above it: the memory comes from there.
        pub quota: u64,
        /// Kernel memory in use, in bytes. Ignored by `set_state`.
        pub used: u64,
        /// The difference between the space's clock and the machine's, in nanoseconds, modulo 2^64.
        pub clock_offset: u64,
        /// The highest priority that threads in this space can be given. It cannot be set above that of
        /// the caller's space; a new space has that of its creator's space. Threads in the space keep
        /// their priorities.
        pub max_priority: u64,
    }
}

numbered! {
    /// The stage of one end of a connection.
    pub enum Stage = None {
        /// There is no connection.
        None = 0,
        /// This end may send: it has the direction.
        Sending = 1,
        /// The other end has the direction.
        Receiving = 2,
        /// This end has turned the direction round; the other end has received that and not yet acknowledged it.
        Over = 3,
        /// The other end has turned the direction round; this end must `ack` before it sends.
        Ack = 4,
        /// Server end only: holds an idempotent request and owes a `reply`.
        Call = 5,
        /// Server end only: holds a memory fault and owes a `reply`.
        Fault = 6,
        /// Server end only: holds an exception and owes a `reply` with registers.
        Exception = 7,
        /// Client end only: the server has ended the connection in order; the next receive returns `Ok`.
        Finished = 8,
    }
}

numbered! {
    /// The kind of wait of a thread. Exported for people and debuggers, ignored by `set_state`.
    pub enum Waiting = Nothing {
        /// For nothing: the thread runs or is ready, or did so when it was stopped.
        Nothing = 0,
        /// For a mutex.
        Mutex = 1,
        /// For a condition.
        Cond = 2,
        /// For a deadline.
        Deadline = 3,
        /// For an interrupt.
        Interrupt = 4,
        /// A client, for a server to receive from the port.
        Port = 5,
        /// A server, for a client.
        Portset = 6,
        /// For the other end of its connection.
        Peer = 7,
        /// For the reply to an idempotent call or a memory fault.
        Reply = 8,
        /// For the reply to an exception.
        Exception = 9,
        /// For a vacant identity to be given a body.
        Vacant = 10,
        /// For the kernel's lock, which a thread that was preempted in the kernel holds.
        Kernel = 11,
    }
}

/// The state of an FPU by itself, as at the end of a [`ThreadState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct FpuState(pub [u8; FPU_BYTES]);

structures! {
    /// Simple fields of a thread. Its references: its space, the peer at the client end of its
    /// connection (a reference to a server end), the peer at its server end (to a client end).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(C, align(16))]
    pub struct ThreadState {
        /// The registers. While the thread waits in a call, the program counter is at the instruction
        /// that made the call, and the other registers say what is left to do of it (rule A1).
        pub registers: Registers,
        /// A word of its manager's choice: `thread_self` returns it, and exception messages carry it.
        pub tag: u64,
        /// Scheduling priority, below [`crate::PRIORITIES`].
        pub priority: u64,
        /// Number of stops that have not been resumed; `set_state` takes at least 1.
        pub stop_count: u64,
        /// 1 while an interrupt is pending.
        pub interrupt: u64,
        /// [`Stage`] of the client end.
        pub client_stage: u64,
        /// [`Stage`] of the server end.
        pub server_stage: u64,
        /// 1 while an exception has been delivered to a keeper and the keeper has not replied.
        pub exception_delivered: u64,
        /// [`crate::Exception`] code of the last exception that stopped the thread or was delivered.
        pub exception: u64,
        /// The address of that exception: of the memory access, or of the wrong handle.
        pub exception_address: u64,
        /// [`Waiting`]. Ignored by `set_state`.
        pub waiting: u64,
        /// What the thread waits for, as an address in its space or a deadline. Ignored by `set_state`.
        pub waiting_for: u64,
        /// Reserved, zero.
        pub reserved: u64,
        /// The state of the FPU, as the architecture's instructions store it.
        pub fpu: [u8; FPU_BYTES],
    }
}

/// Words in a [`ThreadState`] before the FPU area.
pub const THREAD_WORDS: usize = REGISTER_WORDS + 12;

impl Default for ThreadState {
    fn default() -> Self {
        ThreadState {
            registers: Registers::default(),
            tag: 0,
            priority: 0,
            stop_count: 1,
            interrupt: 0,
            client_stage: 0,
            server_stage: 0,
            exception_delivered: 0,
            exception: 0,
            exception_address: 0,
            waiting: 0,
            waiting_for: 0,
            reserved: 0,
            fpu: initial_fpu(),
        }
    }
}

structures! {
    /// State of a reference. Its reference: a copy of itself.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(C)]
    pub struct ReferenceState {
        /// [`crate::RefKind`] of the target; `Null` also when the target is dead.
        pub kind: u64,
    }
}

/// All there is to know about an object of a type (rule A6).
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// The type.
    pub object: Type,
    /// Its simple fields, if it has any.
    pub fields: Option<&'static Layout>,
    /// The references that it holds: the parameters of `get_state` and `set_state` that carry
    /// them, and what they name.
    pub references: &'static [(&'static str, &'static str)],
}

/// The states of all types, in the order of [`crate::TYPES`].
pub const STATES: [State; 9] = [
    State { object: Type::Mutex, fields: Some(&MutexState::LAYOUT), references: &[] },
    State { object: Type::Cond, fields: None, references: &[] },
    State {
        object: Type::Mapping,
        fields: Some(&MappingState::LAYOUT),
        references: &[
            ("region", "the region that it imports"),
            ("space", "the space that it imports into"),
        ],
    },
    State {
        object: Type::Region,
        fields: Some(&RegionState::LAYOUT),
        references: &[
            ("space", "the space that it exports from"),
            ("keeper", "the port that hears of its memory faults"),
        ],
    },
    State {
        object: Type::Port,
        fields: Some(&PortState::LAYOUT),
        references: &[("portset", "the portset at which its clients are received")],
    },
    State { object: Type::Portset, fields: None, references: &[] },
    State {
        object: Type::Space,
        fields: Some(&SpaceState::LAYOUT),
        references: &[(
            "keeper",
            "the port that hears of its threads' exceptions, and of memory faults that no keeper of \
             a region resolves",
        )],
    },
    State {
        object: Type::Thread,
        fields: Some(&ThreadState::LAYOUT),
        references: &[
            ("space", "the space that it runs in"),
            ("client_end", "the peer of its client end: the server end of another thread"),
            ("server_end", "the peer of its server end: the client end of another thread"),
        ],
    },
    State {
        object: Type::Reference,
        fields: Some(&ReferenceState::LAYOUT),
        references: &[("target", "a copy of the reference itself")],
    },
];

/// The table of states and the table of calls agree.
const _: () = {
    let mut i = 0;
    while i < STATES.len() {
        let state = &STATES[i];
        assert!(
            state.object as usize == i + 1,
            "the states must be in the order of the types"
        );
        // The common calls of a type stand six in a row; the last two get and set the state.
        let mut set = 0;
        while set < 2 {
            let params = crate::SYSCALLS[i * 6 + 4 + set].params;
            assert!(
                params.len() == 2 + state.references.len(),
                "get_state and set_state take a parameter per reference"
            );
            let mut r = 0;
            while r < state.references.len() {
                assert!(
                    same(params[2 + r].0.as_bytes(), state.references[r].0.as_bytes()),
                    "a reference of a state has the name of its parameter"
                );
                r += 1;
            }
            set += 1;
        }
        i += 1;
    }
};

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len()
}
