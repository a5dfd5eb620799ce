//! One function per kernel call.
//!
//! Those that move no message are generated from the rows of [`abi::syscalls`] by `build.rs`, with
//! their documentation. Handles and addresses are plain numbers here; [`crate::obj`] wraps them in
//! owned types. The calls that move messages use the register map of the widest call, [`IpcRegs`],
//! and go through one assembly stub ([`ipc`]). All of them enter the kernel by [`mod@crate::gate`].
pub use crate::gate::Returned;
pub use crate::x86_64::{ipc, syscall, IpcRegs};
use abi::state::{
    FpuState, MappingState, MutexState, PortState, ReferenceState, RegionState, SpaceState,
    ThreadState,
};
use abi::{Call, Code, RefKind, Registers};

include!(concat!(env!("OUT_DIR"), "/calls.rs"));
