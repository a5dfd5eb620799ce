//! Masks of the real machine.
//!
//! *Hardware*: `All` is the interrupt flag, which is also how the kernel is entered and left; the levels
//! below it are held back in the controllers (`interrupts`): lines of the 8259 by its masks, vectors of
//! the local APIC by the task priority.

use super::interrupts;
use crate::mask::Level;
use core::arch::asm;

/// The interrupt flag.
const FLAG: u64 = 1 << 9;

/// Whether the flag lets interrupts in.
#[inline(always)]
fn is_open() -> bool {
    let flags: u64;
    // SAFETY: reads the flags.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(nomem, preserves_flags)) };
    flags & FLAG != 0
}

/// Lets no interrupt in. A barrier for the compiler.
#[inline(always)]
fn close() {
    // SAFETY: no interrupt comes from here on, which is what the rest of this crate expects anyway.
    unsafe { asm!("cli", options(nostack)) };
}

/// Lets interrupts in that the controllers do not hold back. A barrier for the compiler.
#[inline(always)]
fn open() {
    // SAFETY: what an interrupt may do to the code that it interrupts is said at `Global`. `sti` takes
    // effect after the next instruction.
    unsafe { asm!("sti", options(nostack)) };
}

/// Runs `f` without any interrupt, for a few instructions.
pub(super) fn closed<R>(f: impl FnOnce() -> R) -> R {
    let was_open = is_open();
    close();
    let result = f();
    if was_open {
        open();
    }
    result
}

/// See [`crate::mask::raise`].
#[inline(always)]
pub(crate) fn mask_raise(level: Level) -> Level {
    if !is_open() {
        return Level::All;
    }
    let before = interrupts::held_back();
    if level == Level::All {
        close();
    } else if level > before {
        interrupts::hold_back(level);
    }
    before
}

/// See [`crate::mask::restore`].
#[inline(always)]
pub(crate) fn mask_restore(previous: Level) {
    if previous == Level::All {
        return close();
    }
    if interrupts::held_back() != previous {
        interrupts::hold_back(previous);
    }
    open();
}
