//! Continuations: how a waiting thread goes on, by name (Draves et al., section 2).
//!
//! In the continuation model a thread that waits leaves a function and 32 bytes behind and gives up
//! its stack. When it is woken with nothing granted, the function is called at the beginning of
//! whatever stack it then has, and the thread need not go out to its instruction and come in again.
//! All of it is a cache of the frame (rule A1): each function looks whether the frame still is what
//! its words remember, and a thread without a continuation goes on from its frame.
//!
//! A thread whose call is completed in its frame needs none: its continuation is the way to user
//! mode, which Draves et al. call `thread_syscall_return`.

use super::Model;
use crate::config::CONFIG;
use crate::memory::Access;
use crate::object::mutex::Mutex;
use crate::object::thread::Thread;
use crate::object::Handles;
use crate::{fault, syscall, K};
use abi::Call;
use core::cell::Cell;
use hal::Stack;

/// A function and 32 bytes for it.
#[derive(Clone, Copy)]
pub(crate) struct Continuation {
    pub(super) function: Function,
    pub(super) words: [u64; 4],
}

type Function = fn(K, &'static Thread, [u64; 4]) -> &'static Thread;

/// Number of continuations that a thread has room for.
const ROOM: usize = matches!(CONFIG.model, Model::Continuation) as usize;

/// The place for a continuation. Its words count while it has a function.
struct Place {
    function: Cell<Option<Function>>,
    words: Cell<[u64; 4]>,
}

/// What a thread keeps while it waits; nothing in the models that keep something else.
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

    /// The thread goes on with its call, whose words are its frame.
    #[inline(always)]
    pub(super) fn redo(&self) {
        if let Some(place) = self.0.first() {
            place.function.set(Some(redo));
        }
    }

    #[inline(always)]
    pub(super) fn set(&self, continuation: Continuation) {
        if let Some(place) = self.0.first() {
            place.function.set(Some(continuation.function));
            place.words.set(continuation.words);
        }
    }

    #[inline(always)]
    pub(super) fn clear(&self) {
        if let Some(place) = self.0.first() {
            place.function.set(None);
        }
    }

    #[inline(always)]
    pub(super) fn is_set(&self) -> bool {
        self.0
            .first()
            .is_some_and(|place| place.function.get().is_some())
    }

    #[inline(always)]
    pub(super) fn take(&self) -> Option<Continuation> {
        let place = self.0.first()?;
        Some(Continuation {
            function: place.function.take()?,
            words: place.words.get(),
        })
    }
}

/// Does the call that stands in the frame.
fn redo(k: K, t: &'static Thread, _: [u64; 4]) -> &'static Thread {
    syscall::HANDLERS[t.ctx.call().get() as u8 as usize](k, t)
}

impl Thread {
    /// The wait that has just begun ends with the mutex locked; its frame is a `mutex_lock`.
    #[inline(always)]
    pub(crate) fn goes_on_to_lock(&self) {
        if ROOM == 0 {
            return;
        }
        self.kept.set(Continuation {
            function: lock,
            words: [self.ctx.parameter(0).get(), 0, 0, 0],
        });
    }

    /// The wait that has just begun is for a page that an instruction of its own needs.
    #[inline(always)]
    pub(crate) fn goes_on_with_page(&self, address: u64, need: Access) {
        if ROOM == 0 {
            return;
        }
        self.kept.set(Continuation {
            function: page,
            words: [address, need.0, self.ctx.pc().get(), 0],
        });
    }
}

/// Locks the mutex if it is where it was and free: without arguments to decode.
fn lock(k: K, t: &'static Thread, [handle, ..]: [u64; 4]) -> &'static Thread {
    let same =
        t.ctx.call().get() as u8 == Call::MutexLock as u8 && t.ctx.parameter(0).get() == handle;
    let space = t.goes_straight().filter(|_| same);
    let mutexes: &Handles<Mutex> = &k.handles.mutexes;
    if let Some(mutex) = space.and_then(|space| mutexes.probe(space, handle)) {
        if !mutex.locked.replace(true) {
            t.finish(abi::Code::Ok);
            return k.exit_trap(t);
        }
    }
    redo(k, t, [0; 4])
}

/// Looks for the page again: the instruction does not have to fault to find out.
fn page(k: K, t: &'static Thread, [address, need, pc, _]: [u64; 4]) -> &'static Thread {
    if t.ctx.pc().get() == pc {
        return fault::absent(k, t, address, Access(need));
    }
    k.exit_trap(t)
}

/// Stacks that no thread has.
pub(crate) struct Stacks([Cell<Option<&'static Stack>>; SPARE]);

/// Most stacks that are ever without a thread: one thread runs, one can be displaced in the kernel.
const SPARE: usize = 2;

impl Stacks {
    /// As many as the model needs, or `None` if memory does not suffice.
    pub(crate) fn new() -> Option<Self> {
        let stacks = Stacks([const { Cell::new(None) }; SPARE]);
        if ROOM != 0 {
            for place in &stacks.0 {
                place.set(Some(hal::alloc_stack()?));
            }
        }
        Some(stacks)
    }

    pub(super) fn take(&self) -> &'static Stack {
        match self.0.iter().find_map(Cell::take) {
            Some(stack) => stack,
            None => hal::die(format_args!("three threads have a stack")),
        }
    }

    pub(super) fn give(&self, stack: &'static Stack) {
        match self.0.iter().find(|place| place.get().is_none()) {
            Some(place) => place.set(Some(stack)),
            None => hal::die(format_args!("more stacks come back than were given out")),
        }
    }
}
