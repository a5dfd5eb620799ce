//! Execution models: what becomes of the kernel stack when a thread waits.
//!
//! This directory is all that differs between the configurations (Ford et al., sections 3 and 5; Draves
//! et al., section 2). Handlers know nothing of it: a wait is a tail, `return Ok(Outcome::Wait)`. What
//! the dispatcher then does is [`switch`]:
//!
//! * *interrupt*: the stack is the processor's. It is simply used for the next thread, whose frame
//!   is restored.
//! * *process*: the stack is the thread's. It keeps the activation until somebody switches back to
//!   it, which then goes on to restore the frame. The activation is a cache of the frame: it can
//!   be dropped at any time ([`Thread::drop_activation`]).
//! * *continuation*: the stack is handed to the next thread. What the thread keeps is in
//!   `continuation`, a cache of the frame as well.
//!
//! `lock` is what full preemption needs.

mod lock;
mod stacks;

pub(crate) use lock::Lock;
pub(crate) use stacks::Stacks;

use crate::config::{Model, Preemption, CONFIG};
use crate::counters::{self, Kind};
use crate::object::thread::Thread;
use crate::{kept, probe, Kernel, K};
use core::cell::Cell;

/// Whether [`switch`] leaves the stack that it is called on, or moves it.
pub(crate) const SWITCHES_STACKS: bool = !matches!(CONFIG.model, Model::Interrupt);

/// Whether the end of a call can make somebody ready who waited for that.
pub(crate) const MAY_BE_KEPT: bool = matches!(CONFIG.preemption, Preemption::Full);

/// How often a forgetful kernel has dropped what a thread kept.
pub(crate) struct Forgotten(Cell<u64>);

impl Forgotten {
    pub(crate) const fn new() -> Self {
        Forgotten(Cell::new(0))
    }

    /// Whether what is kept is to be dropped now: by chance, and a forgetful kernel only. It says in its
    /// log how often, now and then.
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

/// The thread that runs first.
pub(crate) fn begin(k: K, t: &'static Thread) {
    if kept::CONTINUES {
        hal::stack_attach::<Kernel>(t, k.cpu().stacks.take());
    }
}

/// The processor goes on with `next`, which is not `from`. Returns the thread that the caller's return
/// leads to.
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
                // Who would only wait for the lock there can as well go out.
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
    /// A preemption point: lets interrupts in that have been held back, and says whether the running
    /// thread should now leave its call to somebody more important, which its frame says how to go on with.
    #[cfg_attr(fermata_probe, track_caller)]
    pub(crate) fn preempts(&'static self, t: &Thread) -> bool {
        match CONFIG.preemption {
            Preemption::None => false,
            // An interrupt has seen to it already, but for who waits for the lock.
            Preemption::Full => self.lock.is_wanted(t),
            Preemption::Points => {
                self.look_at_interrupts();
                probe::preempts() || self.cpu().sched.wants(t)
            }
        }
    }

    /// Sees to interrupts where the kernel has preemption points. Nobody else runs.
    #[inline(always)]
    pub(crate) fn look_at_interrupts(&'static self) {
        if matches!(CONFIG.preemption, Preemption::Points) {
            hal::let_interrupts_in();
            if self.cpu().sched.has_rung() {
                // It may be long before the call is over.
                self.cpu().sched.keep_time_in_kernel(self);
            }
        }
    }

    /// The running thread goes on from its continuation, at the beginning of its stack.
    pub(crate) fn resume_continuation(&'static self, t: &'static Thread) -> &'static Thread {
        let Some(continuation) = t.kept.take() else {
            return t;
        };
        if !self.enter(t) {
            return self.exit_trap(t);
        }
        self.counters.begin(t);
        (continuation.function)(self, t, continuation.words)
    }

    /// The holder of the lock is interrupted, and the processor goes on with `next`. Returns when the
    /// holder does.
    fn preempt_holder(&'static self, holder: &'static Thread, next: &'static Thread) {
        if matches!(CONFIG.model, Model::Continuation) {
            next.kept.clear();
            hal::stack_attach::<Kernel>(next, self.cpu().stacks.take());
        }
        counters::blocked(holder, Kind::Kept);
        probe::preempted();
        self.activate_space(holder, next);
        hal::switch_stack(&holder.ctx, &next.ctx);
    }
}
