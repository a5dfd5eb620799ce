//! Interrupts: the timer wakes whose deadline has come; a device's line becomes a thread interrupt
//! of the thread that is attached to it. The line stays masked until that thread waits again.

use crate::kernel::core;
use crate::object::thread::Thread;
use crate::object::Link;
use crate::{CONFIG, K};
use abi::state::Waiting;
use abi::Code;
use core::cell::Cell;

/// Who is attached to which line.
pub(crate) struct Irqs {
    lines: [Cell<Link<Thread>>; LINES],
}

/// The machine's lines, and in a kernel for cut tests that of the probe.
const LINES: usize = hal::IRQ_LINES as usize + CONFIG.probe as usize;

impl Irqs {
    pub(crate) const fn new() -> Self {
        Irqs {
            lines: [const { Cell::new(Link::NONE) }; LINES],
        }
    }

    /// Attaches a thread to a line that is free.
    pub(crate) fn attach(&self, line: u64, t: &'static Thread) -> Code {
        let Some(slot) = usize::try_from(line).ok().and_then(|l| self.lines.get(l)) else {
            return Code::Invalid;
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

    /// The thread ends: its lines are free again.
    pub(crate) fn detach(&self, t: &'static Thread) {
        for (line, slot) in self.lines.iter().enumerate() {
            if slot.get() == Link::to(t) {
                core(|| {
                    slot.set(Link::NONE);
                    if line < usize::from(hal::IRQ_LINES) {
                        hal::irq_mask(line as u8);
                    }
                });
            }
        }
    }

    /// Lets the lines of a thread through again.
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

/// Lets a line through, if it is one of the machine's.
fn unmask(line: usize) {
    if line < usize::from(hal::IRQ_LINES) {
        hal::irq_unmask(line as u8);
    }
}

/// A device interrupt has come; its line is masked.
pub(crate) fn device(k: K, line: u8) {
    if let Some(t) = k
        .irqs
        .lines
        .get(usize::from(line))
        .and_then(|l| l.get().get())
    {
        if k.lock.is_holder(t) {
            // It finds that on its way out.
            t.interrupt.set(true);
        } else {
            t.interrupt(k);
        }
    }
}

/// Most deadlines that are seen to when the timer rings once. If more have come it rings again at once.
const DUE_PER_TURN: u32 = 8;

/// The timer has rung while a thread of the priority `floor` ran: deadlines of lower priorities are put off.
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
    cpu.deadlines.put_off(now, floor);
    cpu.sched.tick(now);
}

/// A call is over in which the timer may have rung.
#[inline(always)]
pub(crate) fn late(k: K) {
    if k.cpu().deadlines.are_withheld() {
        release(k);
    }
}

/// Deadlines that were withheld and have come make the timer ring at once.
#[cold]
fn release(k: K) {
    let cpu = k.cpu();
    if let Some(t) = cpu.deadlines.release() {
        time_out(k, t);
    }
    cpu.sched.note_deadline(cpu.deadlines.next());
}

/// The thread's deadline has come.
fn time_out(k: K, t: &'static Thread) {
    // A sleep is complete, and so is a wait with a deadline; `cond_wait_until` goes on as the
    // `mutex_lock` that it has become.
    match t.waiting() {
        Waiting::Deadline => t.complete(k, Code::Ok),
        Waiting::Cond => t.wake(k),
        _ => t.complete(k, Code::TimedOut),
    }
}
