//! The control channel: lines of text on the second serial port, and the end of the machine.
//!
//! Each line begins with a word that says what it is; `log` and `panic` are the kernel's. Output is
//! polled, so that it works in any state of the kernel. Nothing is ever read.

use super::instructions::{frame_pointer, halt, inb, outb};
use super::Global;
use core::cell::Cell;
use core::fmt::{self, Arguments, Write};

const PORT: u16 = 0x2f8;
const LINE_STATUS: u16 = PORT + 5;
const TRANSMITTER_EMPTY: u8 = 0x20;
/// `isa-debug-exit` of QEMU.
const EXIT_PORT: u16 = 0xf4;
/// What the host takes for a panic.
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
    // A machine without the port reads as all ones, and one that does not drain is not waited for.
    for _ in 0..100_000 {
        if inb(LINE_STATUS) & TRANSMITTER_EMPTY != 0 {
            break;
        }
    }
    outb(PORT, byte);
}

/// Writes text, and begins each line with a word.
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

/// Set by the first that dies: who dies while dying does so in silence.
static DYING: Global<Cell<bool>> = Global(Cell::new(false));

/// Writes `panic` lines with the message and the chain of callers, and ends the machine.
pub fn die(message: Arguments) -> ! {
    die_at(message, None, frame_pointer())
}

/// As [`die`], where the chain of callers begins at an instruction and a frame.
pub(super) fn die_at(message: Arguments, rip: Option<u64>, frame: u64) -> ! {
    if !DYING.0.replace(true) {
        write("panic", message);
        if let Some(rip) = rip {
            write("panic", format_args!("  at {rip:#x}"));
        }
        callers(frame, |rip| {
            write("panic", format_args!("  called from {rip:#x}"))
        });
    }
    outb(EXIT_PORT, EXIT_PANIC);
    halt()
}

/// Follows saved frame pointers as far as they lead up a kernel stack.
fn callers(mut frame: u64, mut f: impl FnMut(u64)) {
    for _ in 0..24 {
        let Some(room) = super::stack::rest_of_stack(frame) else {
            return;
        };
        if !frame.is_multiple_of(8) || room < 16 {
            return;
        }
        // SAFETY: 16 readable bytes, as just checked. The kernel is built with frame pointers, so
        // these are the caller's frame and the return address; if not, they are only printed.
        let (next, rip) = unsafe {
            (
                (frame as *const u64).read(),
                (frame as *const u64).add(1).read(),
            )
        };
        if rip < super::memory::IMAGE_BASE {
            return;
        }
        f(rip);
        if next <= frame {
            return;
        }
        frame = next;
    }
}
