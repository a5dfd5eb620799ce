//! Regions: each exports a range of a space. The hierarchy of regions and mappings ends at regions that export
//! physical memory.

use super::mapping::Mapping;
use super::port::Naming;
use super::space::{Forget, Space};
use super::{Handles, Header, Link, NonNullLink, Object, Table, Target};
use crate::K;
use abi::Type;
use core::cell::Cell;
use hal::NarrowCell;

/// The kind of memory that a region exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A range of its space.
    Space,
    /// Physical memory: the root region. Offsets are physical addresses.
    Memory,
    /// A physical range of a device.
    Device,
}

/// A region.
pub(crate) struct Region {
    head: Header,
    pub(crate) source: Cell<Source>,
    pub(crate) start: Cell<u64>,
    pub(crate) size: Cell<u64>,
    pub(crate) protection: Cell<u64>,
    pub(crate) space: Cell<Link<Space>>,
    pub(crate) keeper: Naming,
    pub(crate) importers: NarrowCell<Mapping>,
    /// Links of the list of regions of its space.
    pub(crate) next: NarrowCell<Region>,
    prev: NarrowCell<Region>,
}

impl Region {
    /// Adds to a pass all ranges of spaces that import `size` bytes at `offset` of the region: the pass drops their
    /// translations.
    pub(crate) fn forget(&'static self, k: K, pass: &Forget, offset: u64, size: u64) {
        let mut at = self.importers.get();
        while let Some(m) = at {
            #[cfg(any(test, fermata_probe))]
            assert!(m.imports(self), "an importer of something else");
            let from = offset.max(m.offset.get());
            let to = (offset + size).min(m.offset.get().saturating_add(m.size.get()));
            if from < to {
                if let Some(space) = m.space.get().get() {
                    let start = m.start.get() + (from - m.offset.get());
                    pass.add(space, start, start + (to - from));
                }
            }
            at = m.next_importer();
            k.look_at_interrupts();
        }
    }

    /// Drops every translation that was made through the region.
    pub(crate) fn forget_all(&'static self, k: K) {
        if self.importers.get().is_none() {
            return;
        }
        let pass = Forget::new(k);
        self.forget(k, &pass, 0, self.size.get());
        pass.run(k);
    }

    /// Makes the region export a range of a space, after [`Region::withdraw`].
    pub(crate) fn export(&'static self, space: &'static Space) {
        self.source.set(Source::Space);
        self.space.set(Link::to(space));
        let first = space.regions.replace(Some(self));
        self.next.set(first);
        self.prev.set(None);
        if let Some(first) = first {
            first.prev.set(Some(self));
        }
    }

    /// Takes the region out of its space and drops all translations made through the region.
    pub(crate) fn withdraw(&'static self, k: K) {
        self.forget_all(k);
        self.unlink();
    }

    /// Takes the region out of its space. No translation made through the region may be left.
    #[inline(always)]
    pub(crate) fn unlink(&'static self) {
        if let Some(space) = self.space.get().get() {
            match self.prev.get() {
                Some(p) => p.next.set(self.next.get()),
                None => space.regions.set(self.next.get()),
            }
            if let Some(n) = self.next.take() {
                n.prev.set(self.prev.get());
            }
        }
        self.next.set(None);
        self.prev.set(None);
        self.space.set(Link::NONE);
        self.source.set(Source::Space);
    }
}

impl Object for Region {
    const TYPE: Type = Type::Region;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Region(link)
    }
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Region(link) => Some(link),
            _ => None,
        }
    }
    type Seed = ();
    fn blank(head: Header, (): ()) -> Self {
        Region {
            head,
            source: Cell::new(Source::Space),
            start: Cell::new(0),
            size: Cell::new(0),
            protection: Cell::new(0),
            space: Cell::new(Link::NONE),
            keeper: Naming::new(),
            importers: NarrowCell::none(),
            next: NarrowCell::none(),
            prev: NarrowCell::none(),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.regions
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.regions
    }
    fn open(&'static self, k: K) {
        self.start.set(0);
        self.size.set(0);
        self.protection.set(0);
        self.keeper.set(k, Target::Null);
    }
    fn close(&'static self, k: K) {
        self.withdraw(k);
        self.keeper.set(k, Target::Null);
    }
    fn end(&'static self, k: K) {
        // The identity is dead already, so the mappings' links to it no longer lead here.
        let mut importer = self.importers.take();
        while let Some(m) = importer {
            importer = m.orphan();
            k.look_at_interrupts();
        }
    }
}
