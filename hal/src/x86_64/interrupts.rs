//! Device interrupts: the pair of 8259 controllers that every PC has or emulates.
//!
//! They offer the sixteen lines that all legacy devices use, and to which the firmware routes PCI functions, so
//! that no table of the firmware has to be read. They interrupt the processor that booted: its local APIC passes their
//! requests on through its LINT0 pin. For one processor an I/O APIC would only add lines.
//!
//! A line is masked when its interrupt arrives and stays masked until [`irq_unmask`]: the handler of the device decides
//! when the next interrupt may come.
//!
//! After those sixteen come the processor's own lines, which it raises itself, through its local APIC
//! ([`irq_raise`]). They are acknowledged when they arrive, and never masked one by one.
//!
//! All lines together can be held back by level ([`hold_back`]): those of the 8259s by their masks, interrupts
//! of the local APIC by the processor's task priority.

use super::cpu::cpu;
use super::instructions::{inb, outb};
use super::{mask, time, Global};
use crate::mask::{Level, MaskMethod, METHOD};
use core::arch::asm;
use core::cell::Cell;
use core::ops::Range;

/// The number of device interrupt lines.
pub const IRQ_LINES: u8 = 16;
/// The vector of line 0.
const BASE: u8 = 0x20;
/// The line of the first controller to which the second is connected.
const CASCADE: u8 = 2;
/// The processor's own lines, four for each level below `All`.
pub const OWN_LINES: Range<u8> = IRQ_LINES..IRQ_LINES + 12;
const OWN_PER_LEVEL: u8 = 4;

const FIRST: u16 = 0x20;
const SECOND: u16 = 0xa0;
const READ_IN_SERVICE: u8 = 0x0b;
const END_OF: u8 = 0x60;

/// The lines that [`irq_mask`] has masked, as bits.
static MASK: Global<Cell<u16>> = Global(Cell::new(!(1 << CASCADE)));
/// Whether [`mask_all_lines`] holds all lines back.
static ALL_HELD: Global<Cell<bool>> = Global(Cell::new(false));
/// The masks that were last written to the controllers.
static WRITTEN: Global<Cell<u16>> = Global(Cell::new(!(1 << CASCADE)));

/// The priority class (the upper four bits of the vector) of interrupts of the local APIC with this level.
const fn class(level: Level) -> u8 {
    match level {
        Level::None => 0,
        Level::Low => 0x5,
        Level::High => 0x9,
        Level::Clock | Level::All => 0xd,
    }
}

/// The vector of the timer where it is line 0.
pub(super) const LINE_0: u8 = BASE;

/// The vector of the timer, of the highest class.
pub(super) const TIMER: u8 = (class(Level::Clock) << 4) | 0x8;

/// The vector that the processor sends itself to handle kept interrupts (`mask`). It is above all other vectors, so
/// that it arrives first.
pub(super) const AGAIN: u8 = 0xe0;

/// The vector of one of the processor's own lines.
const fn own_vector(line: u8) -> u8 {
    (class(Level::of_line(line)) << 4) | ((line - OWN_LINES.start) % OWN_PER_LEVEL)
}

/// The line that has this vector.
fn line_of(vector: u8) -> Option<u8> {
    let legacy = vector.checked_sub(BASE).filter(|&line| line < IRQ_LINES);
    legacy.or_else(|| {
        OWN_LINES
            .into_iter()
            .find(|&line| own_vector(line) == vector)
    })
}

/// The level of the interrupt with this vector. `None` for a spurious interrupt and for [`AGAIN`], which this function
/// acknowledges.
pub(super) fn level_of(vector: u8) -> Option<Level> {
    if vector == TIMER {
        return Some(Level::Clock);
    }
    if vector == AGAIN {
        time::end_of_interrupt();
        return None;
    }
    line_of(vector)
        .filter(|&line| !is_spurious(line))
        .map(Level::of_line)
}

/// The lines of the 8259 that a level masks.
fn lines(level: Level) -> u16 {
    let masked = |line: &u8| *line != CASCADE && Level::of_line(*line) <= level;
    (0..IRQ_LINES)
        .filter(masked)
        .fold(0, |lines, line| lines | 1 << line)
}

/// The level that is held back by [`hold_back`].
#[inline(always)]
pub(super) fn held_back() -> Level {
    cpu().held.get()
}

/// Makes the controllers hold back interrupts of `level` and below, and no others. Not for `All`, which is
/// masked by the interrupt flag.
#[cold]
pub(super) fn hold_back(level: Level) {
    mask::closed(|| {
        cpu().held.set(level);
        set_cr8(u64::from(class(level)));
        write_masks();
    });
}

/// Maps the lines to vectors from [`BASE`] on, all masked.
pub(super) fn init() {
    for (port, base, cascade) in [(FIRST, BASE, 1 << CASCADE), (SECOND, BASE + 8, CASCADE)] {
        outb(port, 0x11);
        outb(port + 1, base);
        outb(port + 1, cascade);
        outb(port + 1, 0x01);
    }
    let mask = MASK.0.get();
    outb(FIRST + 1, mask as u8);
    outb(SECOND + 1, (mask >> 8) as u8);
}

/// The task priority that holds back all interrupts of the local APIC.
pub(super) const HIGHEST_CLASS: u64 = 0xf;

/// The task priority.
#[inline(always)]
pub(super) fn cr8() -> u64 {
    let class;
    // SAFETY: only reads the register.
    unsafe { asm!("mov {}, cr8", out(reg) class, options(nostack, preserves_flags)) };
    class
}

/// Sets the task priority: interrupts of the local APIC with a class up to this are held back.
#[inline(always)]
pub(super) fn set_cr8(class: u64) {
    // SAFETY: holds interrupts back or lets them through.
    unsafe { asm!("mov cr8, {}", in(reg) class, options(nostack, preserves_flags)) };
}

/// Holds back all lines of both controllers, and returns whether they were held back already. One write to the
/// first controller, to which the second is connected, holds all back at the same instant.
#[inline(always)]
pub(super) fn mask_all_lines() -> bool {
    outb(FIRST + 1, 0xff);
    WRITTEN.0.set(WRITTEN.0.get() | 0xff);
    ALL_HELD.0.replace(true)
}

/// Ends [`mask_all_lines`]; `held` is the value that it returned.
#[inline(always)]
pub(super) fn unmask_all_lines(held: bool) {
    if !held {
        ALL_HELD.0.set(false);
        let mask = MASK.0.get() | lines(cpu().held.get());
        WRITTEN.0.set(WRITTEN.0.get() & 0xff00 | mask & 0xff);
        outb(FIRST + 1, mask as u8);
    }
}

/// Writes the masks that have changed to the controllers.
fn write_masks() {
    let all = if matches!(METHOD, MaskMethod::Pic) && ALL_HELD.0.get() {
        0xff
    } else {
        0
    };
    let mask = MASK.0.get() | lines(cpu().held.get()) | all;
    let changed = WRITTEN.0.replace(mask) ^ mask;
    if changed & 0xff != 0 {
        outb(FIRST + 1, mask as u8);
    }
    if changed >> 8 != 0 {
        outb(SECOND + 1, (mask >> 8) as u8);
    }
}

fn set_mask(change: impl FnOnce(u16) -> u16) {
    mask::closed(|| {
        MASK.0.set(change(MASK.0.get()));
        write_masks();
    });
}

/// Masks the line.
pub fn irq_mask(line: u8) {
    assert!(line < IRQ_LINES);
    if line != CASCADE {
        set_mask(|mask| mask | 1 << line);
    }
}

/// Unmasks the line.
pub fn irq_unmask(line: u8) {
    assert!(line < IRQ_LINES);
    set_mask(|mask| mask & !(1 << line));
}

/// Raises one of the processor's own lines. Returns false if it is raised already and has not arrived yet.
pub fn irq_raise(line: u8) -> bool {
    assert!(OWN_LINES.contains(&line), "not the processor's own line");
    time::raise(own_vector(line))
}

/// Whether the interrupt is spurious: a controller whose request has gone reports its last line, which is not in
/// service then. Acknowledges a spurious interrupt of the second controller at the first.
fn is_spurious(line: u8) -> bool {
    let port = match line {
        7 => FIRST,
        15 => SECOND,
        _ => return false,
    };
    outb(port, READ_IN_SERVICE);
    if inb(port) & 0x80 != 0 {
        return false;
    }
    if line == 15 {
        outb(FIRST, END_OF | CASCADE);
    }
    true
}

/// Acknowledges the interrupt with this vector, and masks its line if it is one of the 8259s. Returns the line;
/// `None` if the interrupt is spurious.
pub(super) fn fired(vector: u8) -> Option<u8> {
    let line = line_of(vector)?;
    if OWN_LINES.contains(&line) {
        time::end_of_interrupt();
        return Some(line);
    }
    if is_spurious(line) {
        return None;
    }
    irq_mask(line);
    if line >= 8 {
        outb(SECOND, END_OF | (line % 8));
        outb(FIRST, END_OF | CASCADE);
    } else {
        outb(FIRST, END_OF | line);
    }
    Some(line)
}
