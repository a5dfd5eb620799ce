//! Execution models: what becomes of the kernel stack when a thread waits.
//!
//! This room and [`crate::kept`] have all that differs between the execution models; preemption points are in
//! [`crate::preempt`], full preemption is in [`crate::lock`] (Ford et al., sections 3 and 5; Draves et al., section 2).
//! Handlers do not depend on the model: a handler that waits ends with `return Ok(Outcome::Wait)`. The dispatcher then
//! calls [`switch`]:
//!
//! * *interrupt*: the stack belongs to the processor. The next thread simply uses it, and its frame
//!   is restored.
//! * *process*: the stack belongs to the thread. It keeps the activation until the processor switches
//!   back to the thread; the activation then goes on to restore the frame. It is a cache of the frame
//!   and can be dropped at any time ([`Thread::drop_activation`]).
//! * *continuation*: the stack is handed to the next thread. The waiting thread keeps only a
//!   continuation ([`crate::kept`]), which is a cache of the frame as well.

mod stacks;

pub(crate) use stacks::Stacks;

use crate::config::{Model, CONFIG};
use crate::counters::{self, Kind};
use crate::object::thread::Thread;
use crate::{kept, probe, Kernel, K};
use core::cell::Cell;

/// Whether [`switch`] changes the stack that it is called on, or hands it over.
pub(crate) const SWITCHES_STACKS: bool = !matches!(CONFIG.model, Model::Interrupt);

/// How often a forgetful kernel has dropped a thread's activation or continuation.
pub(crate) struct Forgotten(Cell<u64>);

impl Forgotten {
    pub(crate) const fn new() -> Self {
        Forgotten(Cell::new(0))
    }

    /// Decides whether a forgetful kernel drops an activation or continuation now: at random, one time in four. Logs
    /// the count each time that it reaches a power of two.
    fn now(&self, k: K) -> bool {
        if !CONFIG.forgetful || k.random() & 3 != 0 {
            return false;
        }
        let times = self.0.get() + 1;
        self.0.set(times);
        if times.is_power_of_two() {
            hal::log(format_args!("forgotten: {times}"));
        }
        true
    }
}

/// Gives the first thread that runs a stack, if the model needs one.
pub(crate) fn begin(k: K, t: &'static Thread) {
    if kept::CONTINUES {
        hal::stack_attach::<Kernel>(t, k.cpu().stacks.take());
    }
}

/// Switches the processor from `from` to `next`, another thread, as the execution model requires (see the head of
/// this file). Returns the thread whose frame the caller returns to.
#[inline]
pub(crate) fn switch(k: K, from: &'static Thread, next: &'static Thread) -> &'static Thread {
    let preempted = k.lock.resumes(next);
    match CONFIG.model {
        Model::Interrupt => {
            counters::blocked(from, Kind::HandedOff);
            next
        }
        Model::Process => {
            counters::blocked(from, Kind::Kept);
            if !preempted && k.forgotten.now(k) {
                next.drop_activation();
            }
            hal::switch_stack(&from.ctx, &next.ctx);
            from
        }
        Model::Continuation => {
            if preempted {
                counters::blocked(from, Kind::Compressed);
                if let Some(stack) = hal::stack_detach(&from.ctx) {
                    k.cpu().stacks.give(stack);
                }
                hal::switch_context(&next.ctx);
            }
            counters::blocked(from, Kind::HandedOff);
            hal::stack_handoff(&from.ctx, &next.ctx);
            if next.kept.is_set() {
                // If the lock is held the continuation would only wait for the lock, so the thread goes on
                // from its frame instead.
                if !k.forgotten.now(k) && k.lock.holder().is_none() {
                    hal::call_continuation::<Kernel>(next);
                }
                next.kept.clear();
            }
            next
        }
    }
}

impl Kernel {
    /// Switches the processor from the holder of the lock, which an interrupt preempts, to `next`. Returns when
    /// the holder goes on.
    pub(crate) fn preempt_holder(&'static self, holder: &'static Thread, next: &'static Thread) {
        if matches!(CONFIG.model, Model::Continuation) {
            next.kept.clear();
            hal::stack_attach::<Kernel>(next, self.cpu().stacks.take());
        }
        counters::blocked(holder, Kind::Kept);
        probe::preempted();
        hal::switch_stack(&holder.ctx, &next.ctx);
    }
}
