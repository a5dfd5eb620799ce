//! All state that each processor has of its own, and the functions to reach it: [`cpu`], [`stacks`] and [`gates`].
//!
//! There is one instance of each today, at an address that the linker knows, so that the entry code needs no
//! instruction to find it. With several processors, each would get a copy of the few hundred bytes of entry code with
//! the addresses of its own state (`LSTAR` and the interrupt descriptor table are per processor), and these three
//! functions would find the state by a segment base.

use super::descriptors::{Gate, LoadedPorts, TaskState, SEGMENTS};
use super::stack::CpuStacks;
use crate::mask::optimistic::Optimistic;
use crate::mask::Level;
use crate::Context;
use core::cell::Cell;

/// A static that each processor has of its own. Only this file can make one.
#[repr(transparent)]
pub(super) struct PerCpu<T>(T);

// SAFETY: only the processor that it belongs to uses it, and not in the middle of another use: see `super::Global`.
unsafe impl<T> Sync for PerCpu<T> {}

/// The state of one processor, except its stacks and gates.
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

/// For [`cpu`] and the entry code only.
pub(super) static CPU: PerCpu<Cpu> = PerCpu(Cpu {
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

/// For [`stacks`] and the entry code only. The stacks are zero at first, so that they take no room in the image; as
/// part of [`Cpu`] they would.
pub(super) static CPU_STACKS: PerCpu<CpuStacks> = PerCpu(CpuStacks::new());

/// The stacks of the processor that this code runs on.
#[inline(always)]
pub(super) fn stacks() -> &'static CpuStacks {
    &CPU_STACKS.0
}

static GATES: PerCpu<[Gate; 256]> = PerCpu([const { Gate::new() }; 256]);

/// The interrupt descriptor table of the processor that this code runs on.
pub(super) fn gates() -> &'static [Gate; 256] {
    &GATES.0
}
