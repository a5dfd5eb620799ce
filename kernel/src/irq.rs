//! Interrupts: the timer ends waits whose deadline has come; a device's line becomes a thread interrupt of the
//! thread that is attached to it. The line stays masked until that thread waits again.

use crate::kernel::core;
use crate::object::thread::Thread;
use crate::object::Link;
use crate::{CONFIG, K};
use abi::state::Waiting;
use abi::Code;
use core::cell::Cell;

/// The thread that is attached to each line.
pub(crate) struct Irqs {
    lines: [Cell<Link<Thread>>; LINES],
}

/// The number of lines: the machine's, and in a kernel for cut tests one of the probe.
const LINES: usize = hal::IRQ_LINES as usize + CONFIG.probe as usize;

impl Irqs {
    pub(crate) const fn new() -> Self {
        Irqs {
            lines: [const { Cell::new(Link::NONE) }; LINES],
        }
    }

    fn slot(&self, line: u64) -> Result<&Cell<Link<Thread>>, Code> {
        let slot = usize::try_from(line).ok().and_then(|l| self.lines.get(l));
        slot.ok_or(Code::Invalid)
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
        for (line, slot) in self.lines.iter().enumerate() {
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
        for (line, slot) in self.lines.iter().enumerate() {
            if slot.get() == Link::to(t) {
                core(|| unmask(line));
            }
        }
    }
}

/// Makes a line nobody's: it is masked until somebody is attached again.
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

/// Handles an interrupt of a device, whose line the machine has masked.
pub(crate) fn device(k: K, line: u8) {
    if let Some(t) = k
        .irqs
        .lines
        .get(usize::from(line))
        .and_then(|l| l.get().get())
    {
        if k.lock.is_holder(t) {
            // The holder finds the flag when it releases the lock.
            t.interrupt.set(true);
        } else {
            t.interrupt(k);
        }
    }
}

/// Most waits that one ring of the timer ends. If more deadlines have come the timer rings again at once.
const DUE_PER_TURN: u32 = 2;

/// Handles the timer, which has rung while a thread of the priority `floor` ran: ends the waits whose deadline
/// has come. Deadlines of lower priorities are put off.
pub(crate) fn timer(k: K, floor: u8) {
    let now = hal::now();
    let cpu = k.cpu();
    if let Some(holder) = k.lock.holder() {
        cpu.deadlines.withhold(holder, now);
    }
    for _ in 0..DUE_PER_TURN {
        let Some(t) = cpu.deadlines.due(now, floor) else {
            break;
        };
        time_out(k, t);
    }
    if let Some(priority) = cpu.deadlines.put_off(now, floor) {
        cpu.sched.is_put_off(priority);
    }
    cpu.sched.tick(now);
}

/// Called at the end of a call in which the timer may have rung.
#[inline(always)]
pub(crate) fn late(k: K) {
    if k.cpu().deadlines.are_withheld() {
        release(k);
    }
}

/// No longer withholds deadlines. Those that have come make the timer ring at once.
#[cold]
fn release(k: K) {
    let cpu = k.cpu();
    if let Some(t) = cpu.deadlines.release() {
        time_out(k, t);
    }
    cpu.sched.note_deadline(cpu.deadlines.next());
}

/// Ends the wait of a thread whose deadline has come.
fn time_out(k: K, t: &'static Thread) {
    // A sleep completes with `Ok` and other waits with `TimedOut`; `cond_wait_until` goes on as the
    // `mutex_lock` that it has become.
    match t.waiting() {
        Waiting::Deadline => t.complete(k, Code::Ok),
        Waiting::Cond => t.wake(k),
        _ => t.complete(k, Code::TimedOut),
    }
}
