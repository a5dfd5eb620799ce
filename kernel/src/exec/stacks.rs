//! Kernel stacks of the continuation model: only a thread that runs or was preempted in the kernel has one
//! (Draves et al., section 2).

use crate::kept;
use core::cell::Cell;
use hal::Stack;

/// The kernel stacks that no thread has at present.
pub(crate) struct Stacks([Cell<Option<&'static Stack>>; SPARE]);

/// Number of kernel stacks: one for the thread that runs, one for a thread that is preempted in the kernel.
const SPARE: usize = 2;

impl Stacks {
    /// As many as the model needs, or `None` if memory does not suffice.
    pub(crate) fn new() -> Option<Self> {
        let stacks = Stacks([const { Cell::new(None) }; SPARE]);
        if kept::CONTINUES {
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
