//! Masks of the real machine.
//!
//! *Hardware*: `All` is the interrupt flag, which is also how the kernel is entered and left; the levels
//! below it are held back in the controllers (`interrupts`): lines of the 8259 by its masks, vectors of
//! the local APIC by the task priority.
//!
//! *Optimistic*: a byte in [`cpu`]. The flag stays on, in the kernel as in user mode. An interrupt in the
//! kernel arrives on a stack of its own, and [`interrupted`] decides what to do; flag and controllers are
//! changed only if the interrupt was masked. The byte says that everything is masked when the kernel is left
//! and when it is entered, and has no effect in user mode. An interrupt that is still kept when the kernel is
//! left arrives once more by the vector [`interrupts::AGAIN`], when the return to user mode turns the flag on.

use super::cpu::cpu;
use super::trap::{self, KernelFrame};
use super::{interrupts, time};
use crate::mask::optimistic::{Arrival, Controllers};
use crate::mask::{Irq, Level, MaskMethod, IRQ};
use core::arch::asm;

/// The interrupt flag.
pub(super) const FLAG: u64 = 1 << 9;

/// Whether the interrupt flag is on.
#[inline(always)]
fn is_open() -> bool {
    let flags: u64;
    // SAFETY: reads the flags.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(nomem, preserves_flags)) };
    flags & FLAG != 0
}

/// Turns the interrupt flag off. A barrier for the compiler.
#[inline(always)]
pub(super) fn close() {
    // SAFETY: no interrupt comes from here on, as the rest of this crate expects anyway.
    unsafe { asm!("cli", options(nostack)) };
}

/// Turns the interrupt flag on. A barrier for the compiler.
#[inline(always)]
fn open() {
    // SAFETY: the comment at `Global` says what an interrupt may do to the code that it interrupts. `sti`
    // takes effect after the next instruction.
    unsafe { asm!("sti", options(nostack)) };
}

/// Runs `f`, which must be short, with the interrupt flag off.
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
    if IRQ == Irq::Optimistic {
        return cpu().mask.raise(level);
    }
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
    if IRQ == Irq::Optimistic {
        return cpu().mask.restore(previous, &Hardware);
    }
    if previous == Level::All {
        return close();
    }
    if interrupts::held_back() != previous {
        interrupts::hold_back(previous);
    }
    open();
}

/// Masks everything by `method`; does nothing if that is the flag. Returns the previous state for [`end_section`].
#[inline(always)]
pub(crate) fn begin_section(method: MaskMethod) -> u64 {
    match method {
        MaskMethod::Flag => 0,
        MaskMethod::Cr8 => {
            let before = interrupts::cr8();
            interrupts::set_cr8(interrupts::HIGHEST_CLASS);
            before
        }
        MaskMethod::LapicTpr => {
            let before = time::task_priority();
            time::set_task_priority((interrupts::HIGHEST_CLASS as u32) << 4);
            u64::from(before)
        }
        MaskMethod::Pic => interrupts::mask_all_lines().into(),
    }
}

/// Ends a section that [`begin_section`] began; `before` is the value that it returned.
#[inline(always)]
pub(crate) fn end_section(method: MaskMethod, before: u64) {
    match method {
        MaskMethod::Flag => {}
        MaskMethod::Cr8 => interrupts::set_cr8(before),
        MaskMethod::LapicTpr => time::set_task_priority(before as u32),
        MaskMethod::Pic => interrupts::unmask_all_lines(before != 0),
    }
}

/// Waits for an interrupt. [`crate::Kernel::interrupt`] is called for it before this returns.
pub fn wait_for_interrupt() {
    if IRQ == Irq::Hardware {
        // SAFETY: interrupts come only between `sti` and `cli`, with the stack as the compiler expects
        // it around a call, and their code preserves all registers. `sti` takes effect after the next
        // instruction, so that no interrupt is lost before `hlt`.
        unsafe { asm!("sti", "hlt", "cli") };
        return;
    }
    // An interrupt that comes from here on ends the `hlt`.
    close();
    if cpu().mask.held() == Level::None {
        cpu().mask.set(Level::None);
        // SAFETY: as above; a later interrupt is handled at once or kept, as the mask says.
        unsafe { asm!("sti", "hlt") };
    }
    let_interrupts_in();
}

/// Lets pending interrupts in, and no others: [`crate::Kernel::interrupt`] is called for them.
#[inline]
pub fn let_interrupts_in() {
    match IRQ {
        // SAFETY: as in `wait_for_interrupt`. Interrupts come after the instruction that follows `sti`.
        Irq::Hardware => unsafe { asm!("sti", "nop", "cli") },
        Irq::Optimistic => {
            cpu().mask.restore(Level::None, &Hardware);
            cpu().mask.set(Level::All);
        }
    }
}

// ---- optimistic ----------------------------------------------------------------------------------

/// The hardware under optimistic masking.
struct Hardware;

impl Controllers for Hardware {
    fn hold_back(&self, level: Level) {
        close();
        if level != Level::All {
            hold_back(level);
            open();
        }
    }

    fn handle(&self, vector: u8) {
        // The handler may switch to another thread and leave the kernel. So that the other kept interrupts are not
        // lost, they are made to arrive again before the handler runs.
        call_back();
        trap::interrupt(vector);
    }
}

/// Makes the controllers hold back `level` and those below. Called with the flag off.
fn hold_back(level: Level) {
    if interrupts::held_back() != level {
        interrupts::hold_back(level);
    }
}

/// Handles the kept interrupts, on the stack that was interrupted.
pub(super) fn handle_now() {
    let mask = &cpu().mask;
    let rest = mask.handle_kept(mask.level(), &Hardware);
    // The return from the interrupt turns the flag on.
    hold_back(rest);
}

/// Arranges that the kept interrupts arrive again as soon as the flag is on, unless they are taken before. Until then
/// the controllers hold back the highest level of the kept interrupts and the levels below it.
fn call_back() {
    let kept = cpu().mask.kept();
    hold_back(kept);
    if kept != Level::None {
        time::raise(interrupts::AGAIN);
    }
}

/// Takes the highest interrupt that is still kept after the kernel was left. The others arrive again later.
pub(super) fn take_kept() -> Option<u8> {
    let mask = &cpu().mask;
    mask.close(&Hardware);
    let vector = mask.take(Level::None);
    call_back();
    vector
}

/// Handles the arrival of an interrupt in the kernel. Returns the frame to go on with: the interrupt's own frame if the
/// interrupt is kept or spurious; a copy on the interrupted stack if the interrupt is to be handled there now.
pub(super) fn interrupted(frame: &mut KernelFrame) -> &mut KernelFrame {
    let vector = frame.vector as u8;
    let mask = &cpu().mask;
    let masked = mask.level();
    let arrival = match interrupts::level_of(vector) {
        Some(level) => mask.arrive(vector, level, masked),
        // The vector `AGAIN` came before the kernel was left, so it must come again later.
        None if vector == interrupts::AGAIN
            && masked == Level::All
            && mask.kept() != Level::None =>
        {
            mask.put_off()
        }
        None => return frame,
    };
    match arrival {
        Arrival::Later(Level::All) => {
            frame.rflags &= !FLAG;
            call_back();
            frame
        }
        Arrival::Later(masked) => {
            hold_back(masked);
            frame
        }
        // SAFETY: the interrupt was not masked. In the entry and exit code everything is masked, so it has
        // interrupted other kernel code, on a stack of the kernel.
        Arrival::Now => unsafe { frame.moved() },
    }
}
