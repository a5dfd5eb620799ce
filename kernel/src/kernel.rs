//! The state of the kernel, which every room reaches through a [`K`].
//!
//! This file names the types of the rooms' parts and calls no function of theirs. [`crate::first`] makes it.

use crate::config::FULL;
use crate::counters::Counters;
use crate::deadlines::Deadlines;
use crate::exec::{Forgotten, Stacks};
use crate::lock::Lock;
use crate::object::account::Accounts;
use crate::object::cond::Cond;
use crate::object::io_ports::IoPorts;
use crate::object::lines::Lines;
use crate::object::mapping::Mapping;
use crate::object::mutex::Mutex;
use crate::object::places::Places;
use crate::object::port::{Notices, Port, Portset};
use crate::object::reference::Reference;
use crate::object::region::Region;
use crate::object::space::Space;
use crate::object::thread::Thread;
use crate::object::{Handles, Next, Table, Vacancies};
use crate::sched::Scheduler;
use crate::stop::Handler;
use core::cell::Cell;
use hal::mask;

/// The reference through which all code reaches the kernel's state.
pub(crate) type K = &'static Kernel;

/// The whole state of the kernel.
pub struct Kernel {
    pub(crate) mutexes: Table<Mutex>,
    pub(crate) conds: Table<Cond>,
    pub(crate) mappings: Table<Mapping>,
    pub(crate) regions: Table<Region>,
    pub(crate) ports: Table<Port>,
    pub(crate) portsets: Table<Portset>,
    pub(crate) spaces: Table<Space>,
    pub(crate) threads: Table<Thread>,
    pub(crate) references: Table<Reference>,
    /// The space that stands for no space. No cached lookup has its epoch, so none is found in it.
    pub(crate) nowhere: &'static Space,
    pub(crate) no_mapping: &'static Mapping,
    pub(crate) handles: AllHandles,
    pub(crate) accounts: Accounts,
    /// For each physical frame, the first object that lives in it.
    pub(crate) frames: &'static [Next],
    pub(crate) vacancies: Vacancies,
    pub(crate) notices: Notices,
    pub(crate) lines: Lines,
    pub(crate) io_ports: IoPorts,
    pub(crate) places: Places,
    pub(crate) lock: Lock,
    pub(crate) processors: Processors,
    pub(crate) counters: Counters,
    pub(crate) forgotten: Forgotten,
    /// Index of the space whose page table is cleared next when table pages run out.
    pub(crate) table_hand: Cell<usize>,
    pub(crate) seed: Cell<u32>,
    pub(crate) epochs: Cell<u64>,
    /// Makes the call in the frame of the running thread again: `syscall::redo`. It is a function pointer, since the
    /// continuation that a waiting thread keeps ([`crate::kept`]) calls it, and the rooms in which waits begin are
    /// below `syscall` and cannot name it.
    pub(crate) redo: Handler,
}

/// The processors. [`Kernel::cpu`] and [`Kernel::cpu_of`] are the only ways to them.
pub(crate) struct Processors(Cpu);

impl Processors {
    /// There is one processor.
    pub(crate) fn new(cpu: Cpu) -> Self {
        Processors(cpu)
    }
}

/// The state of one processor.
pub(crate) struct Cpu {
    pub(crate) sched: Scheduler,
    pub(crate) deadlines: Deadlines,
    pub(crate) stacks: Stacks,
}

/// The caches of handle lookups, one for each type.
pub(crate) struct AllHandles {
    pub(crate) mutexes: Handles<Mutex>,
    pub(crate) conds: Handles<Cond>,
    pub(crate) mappings: Handles<Mapping>,
    pub(crate) regions: Handles<Region>,
    pub(crate) ports: Handles<Port>,
    pub(crate) portsets: Handles<Portset>,
    pub(crate) spaces: Handles<Space>,
    pub(crate) threads: Handles<Thread>,
    pub(crate) references: Handles<Reference>,
}

/// Runs a section of the core, with interrupts masked under full preemption (see [`crate::lock`]).
#[inline(always)]
pub(crate) fn core<R>(section: impl FnOnce() -> R) -> R {
    if FULL {
        mask::core_section(section)
    } else {
        section()
    }
}

impl Kernel {
    /// The processor that this code runs on.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> &Cpu {
        &self.processors.0
    }

    /// The processor whose ready queues and deadlines hold the thread.
    #[inline(always)]
    pub(crate) fn cpu_of(&self, _: &Thread) -> &Cpu {
        &self.processors.0
    }

    /// A pseudo-random number. Programs may guess it: it only decides what a forgetful kernel drops.
    pub(crate) fn random(&self) -> u32 {
        let mut x = self.seed.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.seed.set(x);
        x
    }

    /// A number that has not been given out before.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.epochs.set(self.epochs.get() + 1);
        self.epochs.get()
    }
}
