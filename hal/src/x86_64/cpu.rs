//! The state of one processor.

use super::descriptors::{LoadedPorts, TaskState, SEGMENTS};
use super::Global;
use crate::mask::optimistic::Optimistic;
use crate::mask::Level;
use crate::Context;
use core::cell::Cell;

/// The state of one processor, except its stacks ([`super::stack::CPU_STACKS`]). There is one instance, which
/// code reaches through [`cpu`] and the entry code directly. With several processors it would be found by a
/// segment base.
#[repr(C)]
pub(super) struct Cpu {
    /// The context that runs in user mode, or whose trap the kernel handles.
    pub(super) current: Cell<Option<&'static Context>>,
    /// The context whose FPU registers are in the processor, if there is one.
    pub(super) fpu_owner: Cell<Option<&'static Context>>,
    /// The value of `needs` with which a context can be resumed on the exit code's fast path: the number of the
    /// I/O ports that are loaded. While it contains [`super::fpu::LOADED`] no context's needs have this value.
    pub(super) plain: Cell<u32>,
    /// The user's stack pointer, during a few instructions of the entry code.
    pub(super) user_rsp: Cell<u64>,
    /// The addresses of the kernel and of the function that calls it for `syscall`.
    pub(super) kernel: Cell<u64>,
    pub(super) syscall: Cell<u64>,
    /// The state of optimistic masking.
    pub(super) mask: Optimistic,
    /// The level that the controllers hold back.
    pub(super) held: Cell<Level>,
    /// The time for which the timer is set, in nanoseconds; `u64::MAX`: none.
    pub(super) deadline: Cell<u64>,
    pub(super) ports: LoadedPorts,
    pub(super) segments: [Cell<u64>; 10],
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

/// The processor that this code runs on.
#[inline(always)]
pub(super) fn cpu() -> &'static Cpu {
    &CPU.0
}
