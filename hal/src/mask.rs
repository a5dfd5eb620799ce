//! How the kernel holds interrupts back: levels, and sections in which a level is masked.
//!
//! The kernel is entered with everything masked ([`Level::All`]) and left that way. In between it may
//! lower the mask and raise it again: [`raise`] returns the previous level, [`restore`] goes back to it,
//! and [`masked`] does both around a closure. A kernel without preemption does none of this.
//!
//! There are two implementations, chosen at build time ([`IRQ`]):
//!
//! * *hardware*: `All` is the processor's interrupt flag; the levels below it are masked in the
//!   controllers.
//! * *optimistic* (Stodolsky, Chen and Bershad, 1993; [`optimistic`]): a mask is a byte in memory. If an interrupt
//!   arrives although it is masked, its handler notes the interrupt, masks its level by hardware, and returns; the
//!   end of the section finds the note and handles the interrupt.
//!
//! A kernel can be built to measure the cost of the processor's other methods of masking in its core (`--cfg
//! fermata_mask`, [`core_section`]).
//!
//! `x86_64/mask.rs` has both for the real machine, `host` simulates them; ADR 0011 gives the reasons.

// The simulated machine lets interrupts in at few points and does not need it.
#[cfg(any(target_os = "none", test))]
pub(crate) mod optimistic;

use crate::machine;

/// The implementation of masking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irq {
    /// By the processor's interrupt flag and the controllers.
    Hardware,
    /// By a byte in memory, which the entry code checks when an interrupt arrives.
    Optimistic,
}

/// The implementation that this kernel uses.
pub const IRQ: Irq = if cfg!(fermata_irq = "optimistic") {
    Irq::Optimistic
} else {
    Irq::Hardware
};

/// The method by which [`core_section`] masks interrupts where masking is by hardware. Ordinary kernels use the
/// flag; the others exist to be measured (Stodolsky et al., Table 3), each in a kernel whose only interrupts
/// are those that the method can mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaskMethod {
    /// The interrupt flag.
    Flag,
    /// The processor's task priority, by its register CR8. There are no device interrupts.
    Cr8,
    /// The task priority, by the local APIC's register in memory. There are no device interrupts.
    LapicTpr,
    /// The mask of the first 8259, to which the second one is connected. The timer is the 8254.
    Pic,
}

/// The method that this kernel uses.
pub(crate) const METHOD: MaskMethod = if cfg!(fermata_mask = "cr8") {
    MaskMethod::Cr8
} else if cfg!(fermata_mask = "lapic_tpr") {
    MaskMethod::LapicTpr
} else if cfg!(fermata_mask = "pic") {
    MaskMethod::Pic
} else {
    MaskMethod::Flag
};

/// Interrupt levels, in ascending order: masking a level masks all levels below it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing.
    None = 0b0,
    /// Slow devices: lines 3 to 7, serial ports among them; the processor's own lines 16 to 19.
    Low = 0b1,
    /// All other devices; the processor's own lines 20 to 23.
    High = 0b11,
    /// The timer; the processor's own lines 24 to 27.
    Clock = 0b111,
    /// Everything.
    All = 0b1111,
}

impl Level {
    /// All levels, in ascending order.
    pub const EVERY: [Level; 5] = [
        Level::None,
        Level::Low,
        Level::High,
        Level::Clock,
        Level::All,
    ];

    /// The level of an interrupt line.
    #[must_use]
    pub const fn of_line(line: u8) -> Level {
        match line {
            3..=7 | 16..=19 => Level::Low,
            24.. => Level::Clock,
            _ => Level::High,
        }
    }
}

/// Masks interrupts of `level` and below, and returns the level that was masked before. Never lowers the mask:
/// if a higher level is masked already, this changes nothing.
#[inline(always)]
#[must_use = "what was masked before is to be restored"]
pub fn raise(level: Level) -> Level {
    machine::mask_raise(level)
}

/// Masks interrupts of `previous` and below, and no others. Interrupts that were held back and are no longer
/// masked are handled before this returns.
#[inline(always)]
pub fn restore(previous: Level) {
    machine::mask_restore(previous);
}

/// Runs `section` with everything masked. Must be called while nothing or everything is masked; `section` must
/// not switch threads.
#[inline(always)]
pub fn core_section<R>(section: impl FnOnce() -> R) -> R {
    if IRQ == Irq::Optimistic || matches!(METHOD, MaskMethod::Flag) {
        return masked(Level::All, section);
    }
    let before = machine::begin_section(METHOD);
    let result = section();
    machine::end_section(METHOD, before);
    result
}

/// Runs `section` as [`core_section`] does, and leaves everything masked, by the flag. For the last section
/// before the processor leaves the kernel.
#[inline(always)]
pub fn last_section<R>(section: impl FnOnce() -> R) -> R {
    if IRQ == Irq::Optimistic || matches!(METHOD, MaskMethod::Flag) {
        let _ = raise(Level::All);
        return section();
    }
    let before = machine::begin_section(METHOD);
    let result = section();
    let _ = raise(Level::All);
    machine::end_section(METHOD, before);
    result
}

/// Runs `section` while interrupts of `level` and below are masked.
#[inline(always)]
pub fn masked<R>(level: Level, section: impl FnOnce() -> R) -> R {
    let previous = raise(level);
    let result = section();
    restore(previous);
    result
}
