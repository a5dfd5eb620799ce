//! Spaces: an address space, the threads in it, its account and its clock.

use super::account::Account;
use super::mapping::Mapping;
use super::region::Region;
use super::thread::Thread;
use super::{Header, Object, Table, Target, CHUNK, NO_PARTS};
use crate::memory::MAX_DEPTH;
use crate::K;
use abi::{RefKind, Type};
use core::cell::Cell;
use hal::PageTable;

/// Most ranges of I/O ports that a space can be granted.
pub(crate) const MAX_PORTS: usize = 8;

/// A space.
pub(crate) struct Space {
    head: Header,
    /// A cache of the mapping hierarchy.
    pub(crate) table: PageTable,
    /// Changes whenever a translation is taken away; no two spaces ever have the same.
    pub(crate) epoch: Cell<u64>,
    pub(crate) mappings: Cell<Option<&'static Mapping>>,
    pub(crate) regions: Cell<Option<&'static Region>>,
    pub(crate) threads: Cell<Option<&'static Thread>>,
    pub(crate) foreign: Cell<bool>,
    pub(crate) clock_offset: Cell<u64>,
    pub(crate) keeper: Cell<Target>,
    pub(crate) account: Cell<Option<&'static Account>>,
    /// Granted I/O ports, (first, count); unused entries have count 0.
    pub(crate) ports: [Cell<(u16, u16)>; MAX_PORTS],
}

impl Space {
    /// The time on the space's clock, in nanoseconds.
    pub(crate) fn clock(&self) -> u64 {
        hal::now().wrapping_add(self.clock_offset.get())
    }

    /// A time on the space's clock as one on the machine's. What has passed is 0.
    pub(crate) fn machine_time(&self, deadline: u64) -> u64 {
        let left = deadline.saturating_sub(self.clock());
        hal::now().saturating_add(left)
    }

    /// Whether it has been granted I/O ports.
    pub(crate) fn has_ports(&self) -> bool {
        self.ports[0].get().1 != 0
    }

    /// Drops the translations of a range, here and wherever it was exported to.
    pub(crate) fn forget(&self, k: K, start: u64, size: u64) {
        self.forget_below(k, start, size, 0);
    }

    pub(crate) fn forget_below(&self, k: K, start: u64, size: u64, depth: u32) {
        self.table.remove(start, size);
        self.epoch.set(k.next_epoch());
        if depth >= MAX_DEPTH {
            return;
        }
        let mut at = self.regions.get();
        while let Some(r) = at {
            let from = start.max(r.start.get());
            let to = (start + size).min(r.start.get() + r.size.get());
            if from < to {
                r.forget(k, from - r.start.get(), to - from, depth + 1);
            }
            at = r.next.get();
        }
    }
}

impl Object for Space {
    const TYPE: Type = Type::Space;
    const KIND: RefKind = RefKind::Space;
    type Part = ();
    fn parts() -> Option<&'static [(); CHUNK]> {
        Some(NO_PARTS)
    }
    fn blank(head: Header, _: &'static ()) -> Self {
        Space {
            head,
            table: PageTable::new(),
            epoch: Cell::new(0),
            mappings: Cell::new(None),
            regions: Cell::new(None),
            threads: Cell::new(None),
            foreign: Cell::new(false),
            clock_offset: Cell::new(0),
            keeper: Cell::new(Target::NULL),
            account: Cell::new(None),
            ports: [const { Cell::new((0, 0)) }; MAX_PORTS],
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.spaces
    }
    fn open(&'static self, k: K) {
        self.epoch.set(k.next_epoch());
        self.foreign.set(false);
        self.clock_offset.set(0);
        self.keeper.set(Target::NULL);
    }
    fn close(&'static self, k: K) {
        // What others see through it goes; the space itself keeps its mappings for a new body.
        let mut at = self.regions.get();
        while let Some(r) = at {
            r.forget_all(k);
            at = r.next.get();
        }
        self.table.clear();
        self.epoch.set(k.next_epoch());
        // Its threads cannot go on until it has a body again: each finds that out by itself.
        let mut at = self.threads.get();
        while let Some(t) = at {
            at = t.next_in_space.get();
            t.suspend_for_space(k);
        }
    }
    fn end(&'static self, k: K) {
        while let Some(t) = self.threads.get() {
            t.attach(None);
            t.suspend_for_space(k);
        }
        while let Some(r) = self.regions.get() {
            r.withdraw(k);
        }
        self.mappings.set(None);
        if self.has_ports() {
            for range in &self.ports {
                range.set((0, 0));
            }
            k.inside.set(None);
        }
        if let Some(account) = self.account.take() {
            account.close(k);
        }
    }
}
