//! What a processor has of its own.

use super::descriptors::{LoadedPorts, TaskState, SEGMENTS};
use super::Global;
use crate::mask::optimistic::Optimistic;
use crate::mask::Level;
use crate::Context;
use core::cell::Cell;

/// What a processor has of its own, but for its stacks ([`super::stack::CPU_STACKS`]). There is one: [`cpu`] is the
/// way to it, and the entry code's. With several it would be found by a segment base.
#[repr(C)]
pub(super) struct Cpu {
    /// The context that runs in user mode, or whose trap the kernel handles.
    pub(super) current: Cell<Option<&'static Context>>,
    /// The context whose FPU registers are in the processor, if there is one.
    pub(super) fpu_owner: Cell<Option<&'static Context>>,
    /// The value of `needs` with which a context can be resumed on the exit code's fast path: the number of the
    /// I/O ports that are loaded. With [`super::fpu::LOADED`] no context has this value.
    pub(super) plain: Cell<u32>,
    /// The user's stack pointer for a few instructions.
    pub(super) user_rsp: Cell<u64>,
    /// Addresses of the kernel that is called and of the function that calls it.
    pub(super) kernel: Cell<u64>,
    pub(super) syscall: Cell<u64>,
    /// What is masked, where that is done optimistically.
    pub(super) mask: Optimistic,
    /// The level that is held back, where that is done by the task priority.
    pub(super) held: Cell<Level>,
    /// When the timer is to ring; `u64::MAX`: never.
    pub(super) deadline: Cell<u64>,
    pub(super) ports: LoadedPorts,
    pub(super) segments: [Cell<u64>; 8],
    pub(super) task: TaskState,
}

pub(super) static CPU: Global<Cpu> = Global(Cpu {
    current: Cell::new(None),
    fpu_owner: Cell::new(None),
    plain: Cell::new(0),
    user_rsp: Cell::new(0),
    kernel: Cell::new(0),
    syscall: Cell::new(0),
    mask: Optimistic::new(),
    held: Cell::new(Level::None),
    deadline: Cell::new(u64::MAX),
    ports: LoadedPorts::none(),
    segments: SEGMENTS,
    task: TaskState::new(),
});

/// The processor that this runs on.
#[inline(always)]
pub(super) fn cpu() -> &'static Cpu {
    &CPU.0
}
