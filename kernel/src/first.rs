//! What the kernel makes at boot, before any program runs: its own state, and the first space.

use crate::counters::Counters;
use crate::deadlines::Deadlines;
use crate::exec::{Forgotten, Stacks};
use crate::kernel::{AllHandles, Cpu, Processors};
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
use crate::object::region::{Region, Source};
use crate::object::space::Space;
use crate::object::thread::Thread;
use crate::object::{self, Handles, Table, Target, Vacancies};
use crate::sched::Scheduler;
use crate::stop::Access;
use crate::{memory, syscall, Kernel, Stop, K};
use abi::{access, boot, OBJECT_SIZE, PAGE_SIZE};
use core::cell::Cell;
use hal::NarrowCell;

/// A range of physical memory in the first space.
#[derive(Clone, Copy, Debug)]
pub struct FirstMapping {
    /// Address in the space.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Physical address.
    pub physical: u64,
    /// Rights, bits of [`abi::access`].
    pub rights: u64,
}

/// The description of the first space. Its first mapping must be that of the boot page.
pub struct FirstSpace<'a> {
    /// Its mappings, at most [`boot::BOOT_MAPPINGS`].
    pub mappings: &'a [FirstMapping],
    /// The address at which its thread starts.
    pub entry: u64,
    /// Its thread's stack pointer.
    pub stack: u64,
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
        let stacks = Stacks::new()?;
        let mut parts = Some((
            (mutexes, conds, mappings, regions, ports, portsets),
            (spaces, threads, references, stacks),
        ));
        // The kernel's state is too large for the stack, so it is constructed in its final place.
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
                processors: Processors::new(Cpu {
                    sched: Scheduler::new(),
                    deadlines: Deadlines::new(),
                    stacks,
                }),
                counters: Counters::new(),
                forgotten: Forgotten::new(),
                table_hand: Cell::new(0),
                seed: Cell::new(0x9e37_79b9),
                epochs: Cell::new(0),
                redo: syscall::redo,
            })
        };
        hal::alloc_slice(1, kernel)?.first()?.as_ref()
    }

    /// Makes the first space and its thread, which get all authority over the machine, and returns the
    /// thread. `None` if the description is invalid or the kernel's memory does not suffice.
    #[must_use]
    pub fn first_space(&'static self, first: &FirstSpace<'_>) -> Option<&'static Thread> {
        let thread = build(self, first).ok()?;
        self.begin(thread);
        Some(thread)
    }
}

fn build(k: K, first: &FirstSpace<'_>) -> Result<&'static Thread, Stop> {
    let nothing = Stop::Code(abi::Code::Invalid);
    let account = k
        .accounts
        .open(None)
        .ok_or(Stop::Code(abi::Code::NoMemory))?;
    // Quotas count only the slots of objects, which are allocated from the pool; page tables are not charged.
    account.endow(hal::pool_bytes().1);
    let page = first
        .mappings
        .first()
        .filter(|m| m.start == boot::BOOT_PAGE)
        .ok_or(nothing)?;
    let at = |address: u64| object::place_at(page.physical, address - boot::BOOT_PAGE);

    let root = object::create::<Region>(k, account, &at(boot::ROOT_REGION + 0x1f0), None)?;
    root.source.set(Source::Memory);
    root.size.set(u64::from(hal::frame_limit()) * PAGE_SIZE);
    root.protection.set(access::ALL);
    let space = object::create::<Space>(k, account, &at(boot::ROOT_SPACE), None)?;
    if let Some(unused) = space.account.replace(Some(account)) {
        unused.close(k);
    }
    space.max_priority.set((abi::PRIORITIES - 1) as u8);
    for (i, m) in first.mappings.iter().enumerate() {
        let handle = boot::FIRST_MAPPING + i as u64 * OBJECT_SIZE;
        let mapping = object::create::<Mapping>(k, account, &at(handle), None)?;
        mapping.start.set(m.start);
        mapping.size.set(m.size);
        mapping.offset.set(m.physical);
        mapping.protection.set(m.rights);
        mapping.install(space, root);
        memory::probe(k, space, m.start, m.size, Access(0))?;
    }
    let thread = object::create::<Thread>(k, account, &at(boot::ROOT_THREAD), None)?;
    thread
        .ctx
        .set_registers(&abi::Registers::starting(first.entry, first.stack, 0));
    thread.stop_count.set(0);
    thread.priority.set((abi::PRIORITIES / 2) as u8);
    thread.attach(k, Some(space));
    let region = object::create::<Reference>(k, account, &at(boot::ROOT_REGION), None)?;
    region.point(k, Target::to(root));
    let authority = object::create::<Reference>(k, account, &at(boot::AUTHORITY), None)?;
    authority.point(k, Target::Authority);
    Ok(thread)
}
