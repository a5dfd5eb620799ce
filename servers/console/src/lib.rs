//! The console, without the device and the server around it.
//!
//! * [`mod@line`] is the line discipline: it turns input into lines, echo and events.
//! * [`output`] is the queue of bytes to send, [`drains`] the requests that wait until it is empty and all has left.
//! * The crate `uart` drives a 16550 through a trait, so that a simulated one serves the tests.
//!
//! [`Console`] joins them. The server in `main.rs` calls it with the machine's ports, on a request
//! and on an interrupt.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod drains;
pub mod line;
pub mod output;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use interface::Error;
use line::Line;
use output::Output;
use services::console::{Event, Mode};
use uart::{Ports, Uart};

/// Most bytes that are taken from the device in one go, so that a device that always has another byte, or a peer that
/// is that fast, blocks neither the console nor the processor.
const BURST: usize = 256;

/// The terminal: line discipline, output and device.
#[derive(Debug)]
pub struct Console<P> {
    line: Line,
    output: Output,
    uart: Uart<P>,
    /// The device may have more bytes than were taken.
    has_more: bool,
}

impl<P: Ports> Console<P> {
    /// Takes over the device behind `ports`. An `interactive` console echoes and edits
    /// lines; otherwise bytes pass unchanged, for scripts.
    pub fn new(ports: P, interactive: bool) -> Self {
        Console {
            line: Line::new(interactive),
            output: Output::new(),
            uart: Uart::new(ports),
            has_more: false,
        }
    }

    /// Moves bytes between the device and the queues. To be called after an interrupt and after everything that fills
    /// or empties a queue. Returns whether there is news for watchers. If there [may be more](Console::has_more), it is
    /// to be called again.
    pub fn pump(&mut self) -> bool {
        let full = self.output.is_full();
        let mut news = false;
        self.has_more = true;
        for _ in 0..BURST {
            let byte = match self.line.has_room() {
                true => self.uart.receive(),
                false => None,
            };
            let Some(byte) = byte else {
                self.has_more = false;
                break;
            };
            news |= self.line.input(byte, &mut self.output);
        }
        self.uart.send(|| self.output.pop());
        self.uart
            .enable(self.line.has_room(), !self.output.is_empty());
        news || full && !self.output.is_full()
    }

    /// Whether bytes may be left in the device, for which it does not interrupt again.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Takes bytes for output; returns how many.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut taken = self.output.write(bytes);
        // Bytes that the device takes at once make room for more.
        loop {
            self.uart.send(|| self.output.pop());
            let more = self.output.write(&bytes[taken..]);
            if more == 0 {
                return taken;
            }
            taken += more;
        }
    }

    /// See [`services::console::Console::read`].
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing yet.
    pub fn read(&mut self, length: usize) -> Result<Vec<u8>, Error> {
        self.line.read(length).ok_or(Error::WouldBlock)
    }

    /// Reads input that arrived in raw mode.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing yet.
    pub fn read_raw(&mut self, length: usize) -> Result<Vec<u8>, Error> {
        self.line.read_raw(length).ok_or(Error::WouldBlock)
    }

    /// Whether there is something to read in this mode.
    #[must_use]
    pub fn is_readable(&self, mode: Mode) -> bool {
        self.line.is_readable(mode)
    }

    /// Whether there is room for output.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.output.is_full()
    }

    /// Sets the mode. Returns whether there is news for watchers.
    pub fn set_mode(&mut self, mode: Mode) -> bool {
        self.line.set_mode(mode, &mut self.output)
    }

    /// Takes the oldest event.
    pub fn take_event(&mut self) -> Option<Event> {
        self.line.take_event()
    }

    /// Whether the device has taken all output.
    #[must_use]
    pub fn has_sent(&self) -> bool {
        self.output.is_empty()
    }

    /// Whether all output has left the machine.
    pub fn is_drained(&mut self) -> bool {
        self.output.is_empty() && self.uart.is_idle()
    }
}
