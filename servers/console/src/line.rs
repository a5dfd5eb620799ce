//! The line discipline: it turns input into lines, echo and events.
//!
//! In cooked mode [`Line`] gathers a line, lets its last part be erased, and hands it out when it is complete; Ctrl-C
//! and Ctrl-Z become events. In quiet mode there is no echo. In raw mode bytes wait as they came. Input that was not
//! read when the mode changes is treated as if it came in the new mode.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use services::console::{Event, Mode};

use crate::output::Output;

/// Most bytes of waiting input.
const CAPACITY: usize = 64 * 1024;
/// Longest line that can be edited.
const MAX_LINE: usize = 4096;
/// Most waiting events; more are dropped.
const MAX_EVENTS: usize = 16;

const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BELL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;
const KILL: u8 = 0x15;
const WORD_ERASE: u8 = 0x17;
const SUSPEND: u8 = 0x1a;
const DELETE: u8 = 0x7f;

/// Input that arrived and was not read yet.
#[derive(Debug)]
pub struct Line {
    interactive: bool,
    mode: Mode,
    /// In raw mode, the bytes that arrived.
    raw: VecDeque<u8>,
    /// In line modes, the line that is being typed.
    typed: Vec<u8>,
    /// In line modes, the bytes of complete lines.
    waiting: VecDeque<u8>,
    /// The length of each complete line, at most [`MAX_LINE`]. A length of 0 is an end of input.
    lines: VecDeque<u16>,
    events: VecDeque<Event>,
}

impl Line {
    /// A line discipline in cooked mode. If it is not `interactive` there is no echo and no
    /// editing, and no byte is changed or dropped.
    #[must_use]
    pub fn new(interactive: bool) -> Self {
        Line {
            interactive,
            mode: Mode::Cooked,
            raw: VecDeque::new(),
            typed: Vec::new(),
            waiting: VecDeque::new(),
            lines: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Echoes typed bytes, except in quiet mode.
    fn echo(&self, bytes: &[u8], output: &mut Output) {
        if self.mode != Mode::Quiet {
            output.echo(bytes);
        }
    }

    fn queued(&self) -> usize {
        self.raw.len() + self.typed.len() + self.waiting.len()
    }

    /// Whether more input is taken. On an interactive console it always is, for the next key may be Ctrl-C: too much
    /// input is dropped instead.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.interactive || self.queued() < CAPACITY
    }

    /// Takes a byte of input. Returns whether there is something new to read, or an event.
    pub fn input(&mut self, byte: u8, output: &mut Output) -> bool {
        if self.mode == Mode::Raw {
            if self.raw.len() < CAPACITY {
                self.raw.push_back(byte);
            }
            return true;
        }
        match byte {
            INTERRUPT => return self.event(Event::Interrupt, b"^C\n", output),
            SUSPEND => return self.event(Event::Suspend, b"^Z\n", output),
            END => {
                self.complete();
                return true;
            }
            _ => {}
        }
        if !self.interactive {
            self.typed.push(byte);
            if byte == b'\n' || self.typed.len() == MAX_LINE {
                self.complete();
                return true;
            }
            return false;
        }
        match byte {
            b'\r' | b'\n' if self.queued() < CAPACITY => {
                self.echo(b"\n", output);
                self.typed.push(b'\n');
                self.complete();
                return true;
            }
            BACKSPACE | DELETE => self.erase(output),
            KILL => {
                while !self.typed.is_empty() {
                    self.erase(output);
                }
            }
            WORD_ERASE => {
                while self.typed.last() == Some(&b' ') {
                    self.erase(output);
                }
                while self.typed.last().is_some_and(|byte| *byte != b' ') {
                    self.erase(output);
                }
            }
            _ if self.typed.len() == MAX_LINE - 1 || self.queued() >= CAPACITY => {
                self.echo(&[BELL], output)
            }
            _ => {
                self.typed.push(byte);
                if is_control(byte) {
                    self.echo(&[b'^', byte ^ 0x40], output);
                } else {
                    self.echo(&[byte], output);
                }
            }
        }
        false
    }

    /// Queues an event, which discards the line that is being typed.
    fn event(&mut self, event: Event, echo: &[u8], output: &mut Output) -> bool {
        self.typed.clear();
        if self.interactive {
            self.lines.clear();
            self.waiting.clear();
            self.echo(echo, output);
        }
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        }
        true
    }

    /// Makes the typed line readable.
    fn complete(&mut self) {
        // Ends of input take no bytes, so their number needs a bound of its own.
        if self.typed.is_empty() && self.lines.len() >= CAPACITY {
            return;
        }
        self.lines.push_back(self.typed.len() as u16);
        self.waiting.extend(self.typed.drain(..));
    }

    /// Erases the last character, also on the screen.
    fn erase(&mut self, output: &mut Output) {
        while let Some(byte) = self.typed.pop() {
            // A character of several bytes takes one place on the screen, which is erased with its first byte.
            if byte & 0xc0 != 0x80 {
                let shown: &[u8] = match is_control(byte) {
                    true => b"\x08 \x08\x08 \x08",
                    false => b"\x08 \x08",
                };
                self.echo(shown, output);
                return;
            }
        }
    }

    /// Reads at most `length` bytes of one line; nothing at the end of input. In raw mode readers of lines wait.
    pub fn read(&mut self, length: usize) -> Option<Vec<u8>> {
        if self.mode == Mode::Raw {
            return None;
        }
        let line = self.lines.front_mut()?;
        let count = length.min(usize::from(*line));
        *line -= count as u16;
        if *line == 0 {
            self.lines.pop_front();
        }
        Some(self.waiting.drain(..count).collect())
    }

    /// Reads at most `length` bytes that came in raw mode.
    pub fn read_raw(&mut self, length: usize) -> Option<Vec<u8>> {
        if self.mode != Mode::Raw || self.raw.is_empty() {
            return None;
        }
        let count = length.min(self.raw.len());
        Some(self.raw.drain(..count).collect())
    }

    /// Whether there is something to read in this mode.
    #[must_use]
    pub fn is_readable(&self, mode: Mode) -> bool {
        match (mode, self.mode) {
            (Mode::Raw, Mode::Raw) => !self.raw.is_empty(),
            (Mode::Raw, _) | (_, Mode::Raw) => false,
            _ => !self.lines.is_empty(),
        }
    }

    /// Sets the mode. Returns whether there is something new to read, or an event.
    pub fn set_mode(&mut self, mode: Mode, output: &mut Output) -> bool {
        if mode == self.mode {
            return false;
        }
        let before = core::mem::replace(&mut self.mode, mode);
        match mode {
            // Both modes have lines.
            Mode::Cooked | Mode::Quiet if before != Mode::Raw => false,
            Mode::Cooked | Mode::Quiet => {
                let raw = core::mem::take(&mut self.raw);
                let mut news = false;
                for byte in raw {
                    news |= self.input(byte, output);
                }
                news
            }
            Mode::Raw => {
                for line in core::mem::take(&mut self.lines) {
                    if line == 0 {
                        self.raw.push_back(END);
                    }
                    self.raw.extend(self.waiting.drain(..usize::from(line)));
                }
                self.raw.extend(self.typed.drain(..));
                !self.raw.is_empty()
            }
        }
    }

    /// Takes the oldest event.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Whether the byte is shown with a caret.
fn is_control(byte: u8) -> bool {
    byte < 0x20 && byte != b'\t'
}
