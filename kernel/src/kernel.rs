//! The state of the kernel, which every room reaches through a [`K`].
//!
//! This file names the types of the rooms' parts, and calls no function of theirs except constructors.

use crate::config::FULL;
use crate::counters::Counters;
use crate::exec;
use crate::lock::Lock;
use crate::object::account::Accounts;
use crate::object::cond::Cond;
use crate::object::deadlines::Deadlines;
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
use crate::object::{self, Handles, Next, Table, Vacancies};
use crate::sched::Scheduler;
use core::cell::Cell;
use hal::{mask, NarrowCell};

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
    /// The space that stands for none. Nothing else has its epoch, so no lookup in it succeeds.
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
    cpu: Cpu,
    pub(crate) counters: Counters,
    pub(crate) forgotten: exec::Forgotten,
    /// Index of the space whose page table is cleared next when table pages run out.
    pub(crate) table_hand: Cell<usize>,
    pub(crate) seed: Cell<u32>,
    pub(crate) epochs: Cell<u64>,
}

/// The state of one processor. There is one instance: [`Kernel::cpu`] and [`Kernel::cpu_of`] are the only ways
/// to it.
pub(crate) struct Cpu {
    pub(crate) sched: Scheduler,
    pub(crate) deadlines: Deadlines,
    pub(crate) stacks: exec::Stacks,
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
    /// Makes a kernel without objects. `None` if there is not enough memory.
    #[must_use]
    pub fn new() -> Option<&'static Kernel> {
        let frames = hal::alloc_slice(hal::frame_limit() as usize, |_| NarrowCell::none())?;
        let no_region = object::no_object::<Region>(())?;
        let no_mapping = Mapping::none(no_region)?;
        let spaces = Table::<Space>::new(no_mapping)?;
        let nowhere = object::no_object::<Space>(no_mapping)?;
        nowhere.epoch.set(u64::MAX);
        let threads = Table::<Thread>::new(nowhere)?;
        let (mutexes, conds) = (Table::<Mutex>::new(())?, Table::<Cond>::new(())?);
        let (mappings, regions) = (Table::<Mapping>::new(no_region)?, Table::<Region>::new(())?);
        let (ports, portsets) = (Table::<Port>::new(())?, Table::<Portset>::new(())?);
        let references = Table::<Reference>::new(())?;
        let stacks = exec::Stacks::new()?;
        let mut parts = Some((
            (mutexes, conds, mappings, regions, ports, portsets),
            (spaces, threads, references, stacks),
        ));
        // The kernel is too large for the stack, so it is made in its place.
        let kernel = |_| {
            let (
                (mutexes, conds, mappings, regions, ports, portsets),
                (spaces, threads, references, stacks),
            ) = parts.take()?;
            Some(Kernel {
                handles: AllHandles {
                    mutexes: Handles::new(mutexes.first_slot()?),
                    conds: Handles::new(conds.first_slot()?),
                    mappings: Handles::new(mappings.first_slot()?),
                    regions: Handles::new(regions.first_slot()?),
                    ports: Handles::new(ports.first_slot()?),
                    portsets: Handles::new(portsets.first_slot()?),
                    spaces: Handles::new(spaces.first_slot()?),
                    threads: Handles::new(threads.first_slot()?),
                    references: Handles::new(references.first_slot()?),
                },
                mutexes,
                conds,
                mappings,
                regions,
                ports,
                portsets,
                spaces,
                threads,
                references,
                nowhere,
                no_mapping,
                accounts: Accounts::new(),
                frames,
                vacancies: Vacancies::new(),
                notices: Notices::new(),
                lines: Lines::new(),
                io_ports: IoPorts::new(),
                places: Places::new(),
                lock: Lock::new(),
                cpu: Cpu {
                    sched: Scheduler::new(),
                    deadlines: Deadlines::new(),
                    stacks,
                },
                counters: Counters::new(),
                forgotten: exec::Forgotten::new(),
                table_hand: Cell::new(0),
                seed: Cell::new(0x9e37_79b9),
                epochs: Cell::new(0),
            })
        };
        hal::alloc_slice(1, kernel)?.first()?.as_ref()
    }

    /// The processor that this code runs on.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// The processor whose ready queues and deadlines hold the thread.
    #[inline(always)]
    pub(crate) fn cpu_of(&self, _: &Thread) -> &Cpu {
        &self.cpu
    }

    /// A pseudo-random number. Users may guess it: it only shapes trees and makes a forgetful kernel forget.
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

    /// The number of objects of each type, in the order of [`abi::Type`].
    pub(crate) fn census(&self) -> [usize; 9] {
        [
            self.mutexes.used(),
            self.conds.used(),
            self.mappings.used(),
            self.regions.used(),
            self.ports.used(),
            self.portsets.used(),
            self.spaces.used(),
            self.threads.used(),
            self.references.used(),
        ]
    }
}
