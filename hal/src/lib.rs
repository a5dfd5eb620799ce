//! The machine under the kernel: the only kernel crate with `unsafe`.
//!
//! Two machines provide the same names: `x86_64` (for `target_os = "none"`) is the real one, and
//! `host` (for everything else) simulates one per thread for tests. [`context`] is common to both:
//! the registers of a thread and the [`Kernel`] trait by which the machine calls the kernel.
//!
//! Every function here is safe to call: whatever the kernel passes, memory safety holds, and an invalid argument
//! panics. At most one processor is in the kernel at a time (there is only one), with interrupts off except inside
//! [`wait_for_interrupt`] and [`let_interrupts_in`], and where the kernel lowers the mask ([`mask::restore`]).
//! `README.md` describes the interface as a whole and argues why it is sound.
#![cfg_attr(target_os = "none", no_std)]
#![deny(missing_docs)]

pub mod context;
pub use context::{user_pc_ok, user_registers_ok, Area, Context, Kernel, Trap};
pub mod mask;
mod narrow;
pub use mask::{Irq, IRQ};
pub use narrow::{Narrow, NarrowCell, NarrowRef};

#[cfg(target_os = "none")]
mod x86_64;
#[cfg(target_os = "none")]
use x86_64 as machine;
#[cfg(not(target_os = "none"))]
pub mod host;
#[cfg(not(target_os = "none"))]
use host as machine;
#[cfg(test)]
#[path = "x86_64/paging_model.rs"]
mod paging_model;
#[cfg(test)]
#[path = "x86_64/ranges.rs"]
mod ranges;

pub use machine::{
    alloc_slice, alloc_stack, archive, call_continuation, clock, command_line, copy_bytes,
    device_frame, device_frames, die, event, forget_ports, frame_limit, free_ranges, irq_mask,
    irq_raise, irq_unmask, let_interrupts_in, load_ports, log, now, pool_bytes, read_array,
    read_bytes, read_word, read_words, reset_stack, set_timer, stack_attach, stack_detach,
    stack_handoff, start, switch_context, switch_stack, ticks, time_of, user_frame,
    wait_for_interrupt, write_bytes, write_word, write_words, Frame, PageTable, Stack, EVENTS,
    IRQ_LINES, OWN_LINES, STACK_BYTES,
};

/// The number of a physical frame: its address divided by [`abi::PAGE_SIZE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(pub u32);
