//! The real machine: one x86-64 processor with FSGSBASE and a local APIC.
//!
//! * `boot` leads from the boot loader to the kernel's first line.
//! * `memory` divides physical memory and builds the kernel's translations; `paging` holds those
//!   of users; `stack` the kernel's stacks.
//! * `trap` is the way in and out: the entry code, and who is called; `registers` where they lie.
//! * `fpu` switches FPU registers lazily; `descriptors` holds the segment, task and port tables.
//! * `events` tells a counting emulator what happens.
//! * `interrupts` is the interrupt controller, `mask` the masking of interrupts by level, `time` the
//!   clock and the timer, `serial` the control channel.
//!
//! There is one processor, and its state is in statics that the entry code addresses directly: no
//! instruction is spent on finding it. For several processors each would get a copy of the few
//! hundred bytes of entry code, whose addresses lead to its own state (`LSTAR` and the interrupt
//! descriptor table are per processor), so that this remains true.

use crate::mask::optimistic::Optimistic;
use crate::Context;
use core::cell::Cell;

mod boot;
mod descriptors;
mod events;
mod fpu;
mod instructions;
mod interrupts;
mod mask;
mod memory;
mod paging;
mod registers;
mod serial;
mod stack;
mod time;
mod trap;

pub use boot::{archive, command_line};
pub use descriptors::load_ports;
pub use events::{event, EVENTS};
pub use interrupts::{irq_mask, irq_raise, irq_unmask, IRQ_LINES, OWN_LINES};
pub use mask::{let_interrupts_in, wait_for_interrupt};
pub use memory::{
    alloc_slice, copy_bytes, device_frame, frame_limit, free_ranges, pool_bytes, read_array,
    read_bytes, read_word, read_words, user_frame, write_bytes, write_word, write_words,
};
pub use paging::{activate_none, PageTable};
pub use registers::Frame;
pub use serial::{die, log};
pub use stack::{
    alloc_stack, call_continuation, reset_stack, stack_attach, stack_detach, stack_handoff,
    switch_context, switch_stack, Stack, STACK_BYTES,
};
pub use time::{now, set_timer, ticks, time_of};
pub use trap::start;

pub(crate) use fpu::{fpu_drop, fpu_flush, mxcsr_mask};
pub(crate) use mask::{begin_section, end_section, mask_raise, mask_restore};
pub(crate) use stack::{cpu_stack_top, set_stack};
pub(crate) use trap::OWN_STACKS;

/// A static of a machine with one processor.
#[repr(transparent)]
struct Global<T>(T);

// SAFETY: one processor, and code that an interrupt or exception runs does not interrupt other
// Rust code: those from user mode come when no Rust code runs, those from the kernel only while it
// lets them in (`wait_for_interrupt`, `let_interrupts_in`, `mask::restore`), which is a call like any
// other. With optimistic masking an interrupt may come anywhere; it then touches nothing but the atomics
// of `Cpu::mask`, and the controllers, which whoever else touches closes the processor for. The rest
// (bugs, machine checks) never return, and only write to the serial port.
unsafe impl<T> Sync for Global<T> {}

/// State of the processor that the entry code uses.
#[repr(C)]
struct Cpu {
    /// The context that runs in user mode, or whose trap the kernel handles.
    current: Cell<Option<&'static Context>>,
    /// The context whose FPU registers are in the processor, if there is one.
    fpu_owner: Cell<Option<&'static Context>>,
    /// The value of `needs` with which a context can be resumed on the exit code's fast path: the number of the
    /// I/O ports that are loaded. With [`fpu::LOADED`] no context has this value.
    plain: Cell<u32>,
    /// The user's stack pointer for a few instructions.
    user_rsp: Cell<u64>,
    /// Addresses of the kernel that is called and of the function that calls it.
    kernel: Cell<u64>,
    syscall: Cell<u64>,
    /// What is masked, where that is done optimistically.
    mask: Optimistic,
}

static CPU: Global<Cpu> = Global(Cpu {
    current: Cell::new(None),
    fpu_owner: Cell::new(None),
    plain: Cell::new(0),
    user_rsp: Cell::new(0),
    kernel: Cell::new(0),
    syscall: Cell::new(0),
    mask: Optimistic::new(),
});
