//! Mappings: each imports a part of a region into a space.

use super::region::Region;
use super::space::Space;
#[cfg(test)]
use super::tree::Mappings;
use super::tree::Node;
use super::{Handles, Header, Link, NonNullLink, Object, Table, Target};
use crate::K;
use abi::Type;
use core::cell::Cell;
use hal::NarrowCell;

/// A mapping.
pub(crate) struct Mapping {
    head: Header,
    pub(crate) start: Cell<u64>,
    pub(crate) size: Cell<u64>,
    pub(crate) offset: Cell<u64>,
    pub(crate) protection: Cell<u64>,
    pub(crate) region: Cell<NonNullLink<Region>>,
    pub(crate) space: Cell<Link<Space>>,
    /// Its place in the space's tree.
    pub(super) node: Node,
    /// Links of the region's list of importers.
    next: NarrowCell<Mapping>,
    prev: NarrowCell<Mapping>,
}

/// The kind of change that setting a mapping's state makes.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// The mapping grows at its end and keeps all that it mapped before.
    Grow,
    /// The mapping's range changes, but not its place among its neighbours.
    Slide,
    /// The mapping goes to another place or space, and maps the same region.
    Move(&'static Space),
    Install(&'static Space, &'static Region),
    /// The mapping leaves its space and maps nothing.
    Withdraw,
}

impl Mapping {
    pub(crate) fn end_address(&self) -> u64 {
        self.start.get() + self.size.get()
    }

    /// Makes the mapping that stands for none: it covers nothing, and nothing comes after it.
    pub(crate) fn none(no_region: &'static Region) -> Option<&'static Self> {
        let none = super::no_object::<Self>(no_region)?;
        none.start.set(u64::MAX);
        Some(none)
    }

    /// Whether the mapping covers the address.
    #[inline(always)]
    pub(super) fn covers(&self, address: u64) -> bool {
        address.wrapping_sub(self.start.get()) < self.size.get()
    }

    /// The change after which the mapping maps this part of the region in the space. `None` if another mapping is in
    /// the way.
    #[inline(always)]
    pub(crate) fn change(
        &self,
        space: &'static Space,
        region: &'static Region,
        [start, size, offset, protection]: [u64; 4],
    ) -> Option<Change> {
        let shown = self.region.get().is(region);
        if shown && self.space.get().is(space) && self.can_slide(start, size) {
            let grows = self.start.get() == start
                && self.offset.get() == offset
                && self.protection.get() == protection
                && self.size.get() <= size;
            return Some(if grows { Change::Grow } else { Change::Slide });
        }
        if space.mappings.overlaps(start, size, self) {
            return None;
        }
        Some(if shown {
            Change::Move(space)
        } else {
            Change::Install(space, region)
        })
    }

    /// Makes the change that [`Mapping::change`] has found. `state`: start, size, offset and protection.
    #[inline(always)]
    pub(crate) fn make(&'static self, k: K, change: Change, state: [u64; 4]) {
        match change {
            Change::Grow => {}
            Change::Slide => self.forget(k),
            Change::Move(_) => self.leave_space(k),
            Change::Install(..) | Change::Withdraw => self.withdraw(k),
        }
        let [start, size, offset, protection] = state;
        self.start.set(start);
        self.size.set(size);
        self.offset.set(offset);
        self.protection.set(protection);
        match change {
            Change::Grow | Change::Slide | Change::Withdraw => {}
            Change::Move(space) => self.enter(space),
            Change::Install(space, region) => self.install(space, region),
        }
    }

    /// Drops the translations that were made through the mapping.
    pub(crate) fn forget(&self, k: K) {
        if let Some(space) = self.space.get().get() {
            space.forget(k, self.start.get(), self.size.get());
        }
    }

    /// Detaches the mapping from region and space, and drops the translations through it.
    pub(crate) fn withdraw(&'static self, k: K) {
        self.leave_space(k);
        self.leave_region();
        self.space.set(Link::NONE);
        self.size.set(0);
    }

    fn leave_space(&'static self, k: K) {
        self.forget(k);
        if let Some(space) = self.space.get().get() {
            space.mappings.remove(k, self);
        }
    }

    fn enter(&'static self, space: &'static Space) {
        self.space.set(Link::to(space));
        space.mappings.insert(self);
    }

    pub(crate) fn leave_region(&'static self) {
        if let Some(region) = self.region.get().get() {
            match self.prev.get() {
                Some(p) => p.next.set(self.next.get()),
                None => region.importers.set(self.next.get()),
            }
            if let Some(n) = self.next.take() {
                n.prev.set(self.prev.get());
            }
        }
        self.next.set(None);
        self.prev.set(None);
        self.region.set(self.region.get().cut());
    }

    /// Detaches the mapping from its region, which has ended. Returns the region's next importer.
    pub(crate) fn orphan(&self) -> Option<&'static Mapping> {
        self.prev.set(None);
        self.region.set(self.region.get().cut());
        self.next.take()
    }

    /// Attaches the mapping. The caller has checked that the range is free and the values are valid.
    pub(crate) fn install(&'static self, space: &'static Space, region: &'static Region) {
        self.region.set(NonNullLink::to(region));
        let first = region.importers.replace(Some(self));
        self.next.set(first);
        self.prev.set(None);
        if let Some(first) = first {
            first.prev.set(Some(self));
        }
        self.enter(space);
    }

    /// Whether it imports a part of this region.
    #[cfg(any(test, fermata_probe))]
    pub(crate) fn imports(&self, region: &'static Region) -> bool {
        self.region.get().is(region)
    }

    pub(crate) fn next_importer(&self) -> Option<&'static Mapping> {
        self.next.get()
    }
}

impl Object for Mapping {
    const TYPE: Type = Type::Mapping;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Mapping(link)
    }
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Mapping(link) => Some(link),
            _ => None,
        }
    }
    /// The region that stands for none.
    type Seed = &'static Region;
    fn blank(head: Header, no_region: &'static Region) -> Self {
        Mapping {
            head,
            start: Cell::new(0),
            size: Cell::new(0),
            offset: Cell::new(0),
            protection: Cell::new(0),
            region: Cell::new(NonNullLink::none(no_region)),
            space: Cell::new(Link::NONE),
            node: Node::new(),
            next: NarrowCell::none(),
            prev: NarrowCell::none(),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.mappings
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.mappings
    }
    fn open(&'static self, _: K) {
        // A vacant mapping keeps its range until its new state is set.
        if self.space.get().get().is_none() {
            for field in [&self.start, &self.size, &self.offset, &self.protection] {
                field.set(0);
            }
        }
    }
    fn close(&'static self, k: K) {
        // The mapping keeps its range: accesses there wait for its new body.
        self.forget(k);
    }
    fn end(&'static self, k: K) {
        self.withdraw(k);
    }
}

#[cfg(any(test, fermata_probe))]
impl Mapping {
    pub(crate) fn previous_importer(&self) -> Option<&'static Mapping> {
        self.prev.get()
    }
}

#[cfg(test)]
impl Mapping {
    /// Puts it into a tree, or takes it out, at an address.
    pub(crate) fn plant(&'static self, tree: &Mappings, at: u64, size: u64) {
        self.start.set(at);
        self.size.set(size);
        tree.insert(self);
    }
    pub(crate) fn uproot(&'static self, k: K, tree: &Mappings) {
        tree.remove(k, self);
    }
}
