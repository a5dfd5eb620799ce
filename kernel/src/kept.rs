//! Continuations: the function that a waiting thread goes on with (Draves et al., section 2).
//!
//! In the continuation model a thread that waits leaves a function and 32 bytes behind and gives up its stack.
//! When it is woken and its call is not complete, the function is called at the beginning of the stack that the thread
//! then has, so that the thread need not return to its instruction and enter the kernel again. A continuation is only
//! a cache of the frame (rule A1): each function checks whether the frame still is as its words say, and a thread
//! without a continuation goes on from its frame.
//!
//! A thread whose call is completed in its frame keeps no function: its continuation is the return to user mode,
//! which Draves et al. call `thread_syscall_return`.

use crate::config::{Model, CONFIG};
use crate::stop::Function;
use core::cell::Cell;
use hal::Context;

/// Whether each thread has a kernel stack of its own.
pub(crate) const OWN_STACK: bool = matches!(CONFIG.model, Model::Process);

/// The size of a thread's kernel stack, in bytes, charged to the account of the thread's creator.
pub(crate) const STACK_COST: u64 = match CONFIG.model {
    Model::Process => hal::STACK_BYTES as u64,
    Model::Interrupt | Model::Continuation => 0,
};

/// Gives a thread's slot a kernel stack, in the process model. A slot keeps its stack for its next thread. `None` if
/// the kernel's memory has run out.
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

/// A continuation: a function and 32 bytes for it.
#[derive(Clone, Copy)]
pub(crate) struct Continuation {
    pub(crate) function: Function,
    pub(crate) words: [u64; 4],
}

/// Whether a waiting thread keeps a continuation.
pub(crate) const CONTINUES: bool = ROOM != 0;

/// Number of continuations that a thread has room for.
const ROOM: usize = matches!(CONFIG.model, Model::Continuation) as usize;

/// The place for a continuation. The words are valid while there is a function.
struct Place {
    function: Cell<Option<Function>>,
    words: Cell<[u64; 4]>,
}

/// The continuation that a waiting thread keeps; empty in the other models.
pub(crate) struct Kept([Place; ROOM]);

impl Kept {
    pub(crate) const fn new() -> Self {
        Kept(
            [const {
                Place {
                    function: Cell::new(None),
                    words: Cell::new([0; 4]),
                }
            }; ROOM],
        )
    }

    /// Sets the continuation that makes the call in the thread's frame again.
    #[inline(always)]
    pub(crate) fn redo(&self) {
        if let Some(place) = self.0.first() {
            place.function.set(Some(|k, t, _| (k.redo)(k, t)));
        }
    }

    /// Sets the continuation of a thread whose wait has just begun.
    #[inline(always)]
    pub(crate) fn set(&self, continuation: Continuation) {
        if let Some(place) = self.0.first() {
            place.function.set(Some(continuation.function));
            place.words.set(continuation.words);
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&self) {
        if let Some(place) = self.0.first() {
            place.function.set(None);
        }
    }

    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.0
            .first()
            .is_some_and(|place| place.function.get().is_some())
    }

    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Continuation> {
        let place = self.0.first()?;
        Some(Continuation {
            function: place.function.take()?,
            words: place.words.get(),
        })
    }
}
