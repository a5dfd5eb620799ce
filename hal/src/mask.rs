//! How the kernel holds interrupts back: levels, and sections in which one is masked.
//!
//! The kernel is entered with everything masked ([`Level::All`]) and left that way. In between it may
//! lower the mask and raise it again: [`raise`] returns what was masked before, [`restore`] goes back to
//! that, and [`masked`] is the pair around a closure. A kernel without preemption does none of this.
//!
//! There are two implementations, chosen at build time ([`IRQ`]):
//!
//! * *hardware*: `All` is the processor's interrupt flag; the levels below it are masked in the
//!   controllers.
//! * *optimistic* (Stodolsky, Chen and Bershad, 1993; [`optimistic`]): a mask is a byte in memory. The
//!   interrupt that arrives although it is masked notes itself, masks its likes by hardware, and goes
//!   away; the end of the section finds the note and handles it.
//!
//! A kernel can be built to measure what the processor's other ways of masking cost in the core of its
//! scheduler (`--cfg fermata_mask`, [`core_section`]).
//!
//! Neighbours: `x86_64/mask.rs` has both for the real machine, `host` simulates them; ADR 0011 says why
//! it is so.

// The simulated machine lets interrupts in at few points, and needs none of it.
#[cfg(any(target_os = "none", test))]
pub(crate) mod optimistic;

use crate::machine;

/// How interrupts are masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irq {
    /// By the processor's interrupt flag and the controllers.
    Hardware,
    /// By a byte in memory, which an interrupt finds when it comes.
    Optimistic,
}

/// How this kernel masks them.
pub const IRQ: Irq = if cfg!(fermata_irq = "optimistic") {
    Irq::Optimistic
} else {
    Irq::Hardware
};

/// How [`core_section`] masks interrupts where masking is by hardware. Ordinary kernels use the flag; the
/// others exist to be measured (Stodolsky et al., Table 3), each in a kernel that has no interrupts but those
/// that it masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaskMethod {
    /// The interrupt flag.
    Flag,
    /// The processor's task priority, as its register CR8. No device interrupts.
    Cr8,
    /// The same, as a register of the local APIC in memory.
    LapicTpr,
    /// The mask of the first 8259, on which the second one hangs. The timer is the 8254.
    Pic,
}

/// How this kernel masks them there.
pub(crate) const METHOD: MaskMethod = if cfg!(fermata_mask = "cr8") {
    MaskMethod::Cr8
} else if cfg!(fermata_mask = "lapic_tpr") {
    MaskMethod::LapicTpr
} else if cfg!(fermata_mask = "pic") {
    MaskMethod::Pic
} else {
    MaskMethod::Flag
};

/// Interrupt levels, in their order: who masks one masks all below it.
///
/// As a number, a level has one bit for each level that it masks.
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
    /// All levels, in their order.
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

/// Masks interrupts of `level` and below, and returns what was masked before. Never lowers the mask:
/// where more is masked already, this changes nothing.
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

/// Runs `section` with everything masked. Called where either nothing or everything is masked; `section` must
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

/// Runs `section` as [`core_section`] does, and leaves everything masked, by the flag: for the last section
/// before the kernel is left.
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
