//! The real machine: an x86-64 processor with FSGSBASE and a local APIC.
//!
//! * `cpu`: the state that each processor has of its own, and the functions to reach it.
//! * `boot`: from the boot loader to the kernel's first line.
//! * `memory`: the division of physical memory, and the kernel's translations; `paging`: the translations of
//!   users; `stack`: the kernel's stacks.
//! * `trap`: the entry and exit code; `registers`: where registers lie in a context.
//! * `fpu`: switching of FPU registers; `descriptors`: the segment, task and port tables.
//! * `events`: the events that a counting emulator sees.
//! * `interrupts`: the interrupt controllers; `mask`: the masking of interrupts by level; `time`: the clock and
//!   the timer; `serial`: the control channel.

mod boot;
mod cpu;
mod descriptors;
mod events;
mod fpu;
mod instructions;
mod interrupts;
mod mask;
mod memory;
mod paging;
mod ranges;
mod registers;
mod serial;
mod stack;
mod time;
mod trap;

pub use boot::{archive, command_line};
pub use descriptors::{forget_ports, load_ports};
pub use events::{event, EVENTS};
pub use interrupts::{irq_mask, irq_raise, irq_unmask, IRQ_LINES, OWN_LINES};
pub use mask::{let_interrupts_in, wait_for_interrupt};
pub use memory::{
    alloc_slice, copy_bytes, device_frame, device_frames, frame_limit, free_ranges, pool_bytes,
    read_array, read_bytes, read_word, read_words, user_frame, write_bytes, write_word,
    write_words,
};
pub use paging::PageTable;
pub use registers::Frame;
pub use serial::{die, log};
pub use stack::{
    alloc_stack, call_continuation, reset_stack, stack_attach, stack_detach, stack_handoff,
    switch_context, switch_stack, Stack, STACK_BYTES,
};
pub use time::{clock, now, set_timer, ticks, time_of};
pub use trap::start;

pub(crate) use boot::keeps_rings_apart;
pub(crate) use fpu::{fpu_drop, fpu_flush, fpu_mask};
pub(crate) use mask::{begin_section, end_section, mask_raise, mask_restore};
pub(crate) use memory::no_root;
pub(crate) use paging::Root;
pub(crate) use stack::{cpu_stack_top, set_stack};
pub(crate) use trap::OWN_STACKS;

/// A static of which there is one per machine, however many processors it has. The state that each processor has of its
/// own is in a [`cpu::PerCpu`], which only [`cpu`] can make.
#[repr(transparent)]
struct Global<T>(T);

// SAFETY: at most one processor runs the kernel at a time: there is only one. (With several, a lock around the kernel
// would be needed here; nothing else in this crate depends on their number.) And the code of an interrupt or exception
// does not interrupt other Rust code: traps from user mode come when no Rust code runs, and interrupts in the kernel
// come only while the kernel lets them in (`wait_for_interrupt`, `let_interrupts_in`, `mask::restore`), which is a call
// like any other. With optimistic masking an interrupt may come anywhere; its code then touches only the atomics of
// `Cpu::mask` and the controllers, and other code turns interrupts off before it touches those. All other traps in the
// kernel (bugs, machine checks) never return, and only write to the serial port.
unsafe impl<T> Sync for Global<T> {}
