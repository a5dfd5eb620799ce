//! Interrupts: the timer ends waits whose deadline has come; a device's line becomes a thread interrupt of the
//! thread that is attached to it. The line stays masked until that thread waits again.

use crate::object::thread::Thread;
use crate::K;
use abi::state::Waiting;
use abi::Code;

/// Handles an interrupt of a device, whose line the machine has masked.
pub(crate) fn device(k: K, line: u8) {
    if let Some(t) = k.lines.of(line) {
        if k.lock.is_holder(t) {
            // The holder finds the flag when it releases the lock.
            t.interrupt.set(true);
        } else {
            t.interrupt(k);
        }
    }
}

/// The most waits that one ring of the timer ends. If more deadlines have come, the timer rings again at once.
const DUE_PER_TURN: u32 = 2;

/// Handles the timer, which has rung while a thread of the priority `floor` ran: ends waits whose deadline has come.
/// Deadlines of lower priorities are put off.
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
    // A sleep completes with `Ok` and other waits with `TimedOut`; a thread in `cond_wait_until` goes on with the
    // `mutex_lock` that its call has become.
    match t.waiting() {
        Waiting::Deadline => t.complete(k, Code::Ok),
        Waiting::Cond => t.wake(k),
        _ => t.complete(k, Code::TimedOut),
    }
}
