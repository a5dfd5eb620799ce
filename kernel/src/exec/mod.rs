//! Execution models: what becomes of the kernel stack when a thread waits.
//!
//! This directory is all that differs between the models (Ford et al., sections 3 and 5). Handlers
//! know nothing of it: a wait is a tail, `return Ok(Outcome::Wait)`. What the dispatcher then does
//! is [`switch`]:
//!
//! * *interrupt*: the stack is the processor's. It is simply used for the next thread, whose frame
//!   is restored.
//! * *process*: the stack is the thread's. It keeps the activation until somebody switches back to
//!   it, which then goes on to restore the frame. The activation is a cache of the frame: it can
//!   be dropped at any time ([`drop_activation`]).

use crate::config::{Model, Preemption, CONFIG};
use crate::object::thread::Thread;
use crate::Kernel;
use hal::Context;

/// Whether [`switch`] leaves the stack that it is called on.
pub(crate) const SWITCHES_STACKS: bool = matches!(CONFIG.model, Model::Process);

impl Kernel {
    /// A preemption point: lets interrupts in that have been held back, and says whether the running
    /// thread should now leave its call, which its frame says how to go on with.
    pub(crate) fn preempts(&self, t: &Thread) -> bool {
        match CONFIG.preemption {
            Preemption::None => false,
            Preemption::Points | Preemption::Full => {
                hal::let_interrupts_in();
                self.sched.wants(t)
            }
        }
    }
}

/// Kernel stack per thread, in bytes, charged to whoever creates the thread.
pub(crate) const STACK_COST: u64 = match CONFIG.model {
    Model::Process => hal::STACK_BYTES as u64,
    Model::Interrupt | Model::Continuation => 0,
};

/// Gives a thread's slot the stack that it needs. A slot keeps its stack for its next thread.
pub(crate) fn provide_stack(ctx: &'static Context) -> Option<()> {
    match CONFIG.model {
        Model::Interrupt | Model::Continuation => Some(()),
        Model::Process if ctx.has_stack() => Some(()),
        Model::Process => {
            ctx.set_stack(hal::alloc_stack()?);
            Some(())
        }
    }
}

/// Drops what the kernel keeps for a thread that is not running, apart from its frame.
pub(crate) fn drop_activation(ctx: &'static Context) {
    match CONFIG.model {
        Model::Interrupt | Model::Continuation => {}
        Model::Process => ctx.reset_stack(),
    }
}

/// The processor goes on with `next`. Returns the frame that the caller's return leads to.
pub(crate) fn switch(from: &'static Context, next: &'static Context) -> &'static Context {
    match CONFIG.model {
        Model::Interrupt | Model::Continuation => next,
        Model::Process => {
            if !core::ptr::eq(from, next) {
                hal::switch_stack(from, next);
            }
            from
        }
    }
}
