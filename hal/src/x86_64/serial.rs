//! The control channel: lines of text on the second serial port, and the end of the machine.
//!
//! Each line begins with a word for its kind; `log` and `panic` are the kernel's. Output is polled, so that it
//! works in any state of the kernel. Nothing is ever read.

use super::instructions::{halt, inb, outb, stack_pointer};
use super::Global;
use core::cell::Cell;
use core::fmt::{self, Arguments, Write};

const PORT: u16 = 0x2f8;
const LINE_STATUS: u16 = PORT + 5;
const TRANSMITTER_EMPTY: u8 = 0x20;
/// `isa-debug-exit` of QEMU.
const EXIT_PORT: u16 = 0xf4;
/// The exit status by which the host recognizes a panic.
const EXIT_PANIC: u8 = 63;

/// 115,200 baud, 8 bits, no parity, no interrupts.
pub(super) fn init() {
    for (register, value) in [
        (1, 0x00),
        (3, 0x80),
        (0, 0x01),
        (1, 0x00),
        (3, 0x03),
        (2, 0x07),
        (4, 0x03),
    ] {
        outb(PORT + register, value);
    }
}

fn put(byte: u8) {
    // Without a port the status reads as all ones. The wait is limited, in case the transmitter never becomes empty.
    for _ in 0..100_000 {
        if inb(LINE_STATUS) & TRANSMITTER_EMPTY != 0 {
            break;
        }
    }
    outb(PORT, byte);
}

/// A writer that begins each line with a word.
struct Lines {
    word: &'static str,
    at_start: bool,
}

impl Write for Lines {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.at_start {
                self.word.bytes().for_each(put);
                put(b' ');
            }
            put(byte);
            self.at_start = byte == b'\n';
        }
        Ok(())
    }
}

fn write(word: &'static str, text: Arguments) {
    let mut lines = Lines {
        word,
        at_start: true,
    };
    let _ = lines.write_fmt(text);
    if !lines.at_start {
        put(b'\n');
    }
}

/// Writes `log` lines.
pub fn log(line: Arguments) {
    write("log", line);
}

/// Set by the first panic, so that a panic within a panic writes nothing.
static DYING: Global<Cell<bool>> = Global(Cell::new(false));

/// Writes `panic` lines with the message and the callers, and ends the machine.
pub fn die(message: Arguments) -> ! {
    die_at(message, None, stack_pointer())
}

/// As [`die`], for an instruction at `rip` with the stack pointer `stack`.
pub(super) fn die_at(message: Arguments, rip: Option<u64>, stack: u64) -> ! {
    // Nothing else may run from here on.
    super::mask::close();
    if !DYING.0.replace(true) {
        write("panic", message);
        if let Some(rip) = rip {
            write("panic", format_args!("  at {rip:#x}"));
        }
        callers(stack, |rip| {
            write("panic", format_args!("  called from {rip:#x}"))
        });
    }
    outb(EXIT_PORT, EXIT_PANIC);
    halt()
}

/// Most callers that a panic shows.
const MAX_CALLERS: u32 = 32;

/// Calls `f` with every word on the stack that looks like a return address, that is, points behind a call instruction
/// of the kernel. Some may be left over from calls that have returned; frame pointers would be exact, but would cost
/// three instructions in every function.
fn callers(stack: u64, mut f: impl FnMut(u64)) {
    let stack = stack.next_multiple_of(8);
    let Some(room) = super::stack::rest_of_stack(stack) else {
        return;
    };
    let mut shown = 0;
    for at in (stack..stack + room).step_by(8) {
        // SAFETY: a word of a kernel stack, as just checked.
        let word = unsafe { (at as *const u64).read_volatile() };
        if is_return_address(word) && shown < MAX_CALLERS {
            shown += 1;
            f(word);
        }
    }
}

fn is_return_address(address: u64) -> bool {
    let code = super::memory::code();
    if address < code.start + 7 || address >= code.end {
        return false;
    }
    // SAFETY: bytes of the kernel's code.
    let before = |n: u64| unsafe { ((address - n) as *const u8).read() };
    // `call` with an offset, or `ff /2` with one to six bytes of operand.
    before(5) == 0xe8 || (2..=7).any(|n| before(n) == 0xff && before(n - 1) & 0x38 == 0x10)
}
