//! Device interrupts: the pair of 8259 controllers that every PC has or emulates.
//!
//! They offer the sixteen lines that all legacy devices use, and that PCI functions are routed to
//! by the firmware, without any table of the firmware being read. An I/O APIC would add lines and
//! nothing else with one processor. The local APIC passes their requests on through its LINT0 pin.
//!
//! A line is masked when its interrupt arrives and stays so until [`irq_unmask`]: whoever handles
//! the device decides when the next may come.

use super::instructions::{inb, outb};
use super::Global;
use core::arch::asm;
use core::cell::Cell;

/// Device interrupt lines.
pub const IRQ_LINES: u8 = 16;
/// The vector of line 0.
const BASE: u8 = 0x20;
/// The line that the second controller hangs on.
const CASCADE: u8 = 2;

const FIRST: u16 = 0x20;
const SECOND: u16 = 0xa0;
const READ_IN_SERVICE: u8 = 0x0b;
const END_OF: u8 = 0x60;

static MASK: Global<Cell<u16>> = Global(Cell::new(!(1 << CASCADE)));

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

fn set_mask(mask: u16) {
    let changed = MASK.0.replace(mask) ^ mask;
    if changed & 0xff != 0 {
        outb(FIRST + 1, mask as u8);
    }
    if changed >> 8 != 0 {
        outb(SECOND + 1, (mask >> 8) as u8);
    }
}

/// Holds back interrupts of the line.
pub fn irq_mask(line: u8) {
    assert!(line < IRQ_LINES);
    if line != CASCADE {
        set_mask(MASK.0.get() | 1 << line);
    }
}

/// Lets interrupts of the line through.
pub fn irq_unmask(line: u8) {
    assert!(line < IRQ_LINES);
    set_mask(MASK.0.get() & !(1 << line));
}

/// The line whose interrupt has this vector. It is masked and acknowledged.
pub(super) fn fired(vector: u8) -> Option<u8> {
    let line = vector.checked_sub(BASE).filter(|&line| line < IRQ_LINES)?;
    // A request that went away is reported as the controller's last line, and is not in service.
    if line % 8 == 7 {
        let port = if line < 8 { FIRST } else { SECOND };
        outb(port, READ_IN_SERVICE);
        if inb(port) & 0x80 == 0 {
            if line == 15 {
                outb(FIRST, END_OF | CASCADE);
            }
            return None;
        }
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

/// Waits for an interrupt. It goes to [`crate::Kernel::interrupt`] before this returns.
pub fn wait_for_interrupt() {
    // SAFETY: interrupts come only between `sti` and `cli`, with the stack as the compiler expects
    // it around a call, and their code preserves all registers. `sti` takes effect after the next
    // instruction, so that none is lost before `hlt`.
    unsafe { asm!("sti", "hlt", "cli") };
}

/// Lets interrupts in that are pending, and no others: they go to [`crate::Kernel::interrupt`].
pub fn let_interrupts_in() {
    // SAFETY: as above. Interrupts come after the instruction that follows `sti`.
    unsafe { asm!("sti", "nop", "cli") };
}
