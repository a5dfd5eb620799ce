//! Interrupt lines, and the thread that is attached to each. A line without a thread is masked.

use super::thread::Thread;
use super::Link;
use crate::config::CONFIG;
use crate::kernel::core;
use abi::Code;
use core::cell::Cell;

/// The thread that is attached to each line.
pub(crate) struct Lines {
    threads: [Cell<Link<Thread>>; LINES],
}

/// The number of lines: those of the machine, and in a kernel for cut tests the probe's.
const LINES: usize = hal::IRQ_LINES as usize + CONFIG.probe as usize;

impl Lines {
    pub(crate) const fn new() -> Self {
        Lines {
            threads: [const { Cell::new(Link::NONE) }; LINES],
        }
    }

    fn slot(&self, line: u64) -> Result<&Cell<Link<Thread>>, Code> {
        let slot = usize::try_from(line).ok().and_then(|l| self.threads.get(l));
        slot.ok_or(Code::Invalid)
    }

    /// The thread that is attached to the line, if it lives.
    #[inline(always)]
    pub(crate) fn of(&self, line: u8) -> Option<&'static Thread> {
        self.threads
            .get(usize::from(line))
            .and_then(|l| l.get().get())
    }

    /// Attaches a thread to a line that is free.
    pub(crate) fn attach(&self, line: u64, t: &'static Thread) -> Code {
        let slot = match self.slot(line) {
            Ok(slot) => slot,
            Err(code) => return code,
        };
        match slot.get().get() {
            Some(other) if !core::ptr::eq(other, t) => Code::InUse,
            _ => {
                core(|| {
                    slot.set(Link::to(t));
                    t.set_has_lines(true);
                    unmask(line as usize);
                });
                Code::Ok
            }
        }
    }

    /// Takes the line from the thread that is attached to it.
    pub(crate) fn detach(&self, line: u64) -> Code {
        match self.slot(line) {
            Ok(slot) if slot.get().get().is_some() => {
                free(line as usize, slot);
                Code::Ok
            }
            Ok(_) => Code::NotFound,
            Err(code) => code,
        }
    }

    /// Frees the lines of a thread that ends.
    pub(crate) fn detach_all(&self, t: &'static Thread) {
        for (line, slot) in self.threads.iter().enumerate() {
            if slot.get() == Link::to(t) {
                free(line, slot);
            }
        }
    }

    /// Unmasks the lines of a thread.
    #[inline(always)]
    pub(crate) fn unmask(&self, t: &'static Thread) {
        if t.has_lines() {
            self.unmask_all(t);
        }
    }

    #[inline(never)]
    fn unmask_all(&self, t: &'static Thread) {
        for (line, slot) in self.threads.iter().enumerate() {
            if slot.get() == Link::to(t) {
                core(|| unmask(line));
            }
        }
    }
}

/// Detaches a line from its thread. The line stays masked until a thread is attached again.
fn free(line: usize, slot: &Cell<Link<Thread>>) {
    core(|| {
        slot.set(Link::NONE);
        if line < usize::from(hal::IRQ_LINES) {
            hal::irq_mask(line as u8);
        }
    });
}

/// Unmasks a line, if it is one of the machine's.
fn unmask(line: usize) {
    if line < usize::from(hal::IRQ_LINES) {
        hal::irq_unmask(line as u8);
    }
}
