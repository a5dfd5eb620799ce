//! Mappings: import a part of a region into a space.
//!
//! The mappings of a space form a treap by start address: a search tree whose shape depends on
//! random priorities, so that no choice of addresses makes it degenerate.

use super::region::Region;
use super::space::Space;
use super::{Handles, Header, Link, Object, Table, Target, CHUNK, NO_PARTS};
use crate::K;
use abi::Type;
use core::cell::Cell;

/// A mapping.
pub(crate) struct Mapping {
    head: Header,
    pub(crate) start: Cell<u64>,
    pub(crate) size: Cell<u64>,
    pub(crate) offset: Cell<u64>,
    pub(crate) protection: Cell<u64>,
    pub(crate) region: Cell<Link<Region>>,
    pub(crate) space: Cell<Link<Space>>,
    /// In the space's tree.
    weight: Cell<u32>,
    left: Cell<Option<&'static Mapping>>,
    right: Cell<Option<&'static Mapping>>,
    /// In the region's list of importers.
    next: Cell<Option<&'static Mapping>>,
    prev: Cell<Option<&'static Mapping>>,
}

type Tree = Cell<Option<&'static Mapping>>;

impl Mapping {
    pub(crate) fn end_address(&self) -> u64 {
        self.start.get() + self.size.get()
    }

    /// Sets start, size, offset and protection of one that is in no space.
    #[inline]
    pub(crate) fn set(&self, [start, size, offset, protection]: [u64; 4]) {
        self.start.set(start);
        self.size.set(size);
        self.offset.set(offset);
        self.protection.set(protection);
    }

    /// Whether it shows a part of that region.
    #[inline]
    pub(crate) fn shows(&self, region: &'static Region) -> bool {
        self.region.get().is(region)
    }

    /// Shows another part of its region, or elsewhere.
    pub(crate) fn relocate(&'static self, k: K, space: &'static Space, state: [u64; 4]) {
        self.leave_space(k);
        self.set(state);
        self.enter(k, space);
    }

    /// Detaches the mapping from region and space: what it made visible goes.
    pub(crate) fn withdraw(&'static self, k: K) {
        self.leave_space(k);
        self.leave_region();
        self.space.set(Link::NONE);
        self.size.set(0);
    }

    fn leave_space(&'static self, k: K) {
        if let Some(space) = self.space.get().get() {
            space.forget(k, self.start.get(), self.size.get());
            remove(&space.mappings, self);
        }
    }

    fn enter(&'static self, k: K, space: &'static Space) {
        self.space.set(Link::to(space));
        self.weight.set(k.random());
        insert(&space.mappings, self);
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
        self.region.set(Link::NONE);
    }

    /// Its region is no more: forgets it, and returns the next importer.
    pub(crate) fn orphan(&self) -> Option<&'static Mapping> {
        self.prev.set(None);
        self.region.set(Link::NONE);
        self.next.take()
    }

    /// Attaches it. The caller has checked that the range is free and the values make sense.
    pub(crate) fn install(&'static self, k: K, space: &'static Space, region: &'static Region) {
        self.region.set(Link::to(region));
        let first = region.importers.replace(Some(self));
        self.next.set(first);
        self.prev.set(None);
        if let Some(first) = first {
            first.prev.set(Some(self));
        }
        self.enter(k, space);
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

/// The mapping that covers the address.
#[inline]
pub(crate) fn covering(tree: &Tree, address: u64) -> Option<&'static Mapping> {
    let mut node = tree.get();
    while let Some(m) = node {
        if address < m.start.get() {
            node = m.left.get();
        } else if address - m.start.get() < m.size.get() {
            return Some(m);
        } else {
            node = m.right.get();
        }
    }
    None
}

/// The first mapping that ends behind the address: it covers it or comes next.
pub(crate) fn at_or_after(tree: &Tree, address: u64) -> Option<&'static Mapping> {
    let mut node = tree.get();
    let mut best = None;
    while let Some(m) = node {
        if m.end_address() > address {
            best = Some(m);
            node = m.left.get();
        } else {
            node = m.right.get();
        }
    }
    best
}

/// Whether another mapping than `except` lies in the range.
pub(crate) fn overlaps(tree: &Tree, start: u64, size: u64, except: &Mapping) -> bool {
    let mut at = start;
    while let Some(m) = at_or_after(tree, at) {
        if m.start.get() >= start + size {
            return false;
        }
        if !core::ptr::eq(m, except) {
            return true;
        }
        at = m.end_address();
    }
    false
}

fn insert(tree: &Tree, m: &'static Mapping) {
    // Down to where the weights say it belongs, then split what is below by its address.
    let mut link = tree;
    while let Some(node) = link.get() {
        if node.weight.get() < m.weight.get() {
            break;
        }
        link = if m.start.get() < node.start.get() {
            &node.left
        } else {
            &node.right
        };
    }
    let mut below = link.replace(Some(m));
    let mut left = &m.left;
    let mut right = &m.right;
    while let Some(node) = below {
        if node.start.get() < m.start.get() {
            left.set(Some(node));
            left = &node.right;
            below = left.get();
        } else {
            right.set(Some(node));
            right = &node.left;
            below = right.get();
        }
    }
    left.set(None);
    right.set(None);
}

fn remove(tree: &Tree, m: &'static Mapping) {
    let mut link = tree;
    while let Some(node) = link.get() {
        if core::ptr::eq(node, m) {
            break;
        }
        link = if m.start.get() < node.start.get() {
            &node.left
        } else {
            &node.right
        };
    }
    // Merge the two subtrees in its place.
    let mut left = m.left.take();
    let mut right = m.right.take();
    loop {
        match (left, right) {
            (Some(l), Some(r)) if l.weight.get() >= r.weight.get() => {
                link.set(Some(l));
                link = &l.right;
                left = l.right.get();
            }
            (Some(_), Some(r)) => {
                link.set(Some(r));
                link = &r.left;
                right = r.left.get();
            }
            (rest, None) | (None, rest) => {
                link.set(rest);
                return;
            }
        }
    }
}

impl Object for Mapping {
    const TYPE: Type = Type::Mapping;
    fn target(link: Link<Self>) -> Target {
        Target::Mapping(link)
    }
    fn named(target: Target) -> Option<Link<Self>> {
        match target {
            Target::Mapping(link) => Some(link),
            _ => None,
        }
    }
    type Part = ();
    fn parts() -> Option<&'static [(); CHUNK]> {
        Some(NO_PARTS)
    }
    fn blank(head: Header, _: &'static ()) -> Self {
        Mapping {
            head,
            start: Cell::new(0),
            size: Cell::new(0),
            offset: Cell::new(0),
            protection: Cell::new(0),
            region: Cell::new(Link::NONE),
            space: Cell::new(Link::NONE),
            weight: Cell::new(0),
            left: Cell::new(None),
            right: Cell::new(None),
            next: Cell::new(None),
            prev: Cell::new(None),
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
        // A vacant mapping stands in its place until its new state is set.
        if self.space.get().get().is_none() {
            for field in [&self.start, &self.size, &self.offset, &self.protection] {
                field.set(0);
            }
        }
    }
    fn close(&'static self, k: K) {
        // It keeps its place, where accesses wait for its new body as they wait for a page.
        if let Some(space) = self.space.get().get() {
            space.forget(k, self.start.get(), self.size.get());
        }
    }
    fn end(&'static self, k: K) {
        self.withdraw(k);
    }
}

#[cfg(any(test, fermata_probe))]
impl Mapping {
    /// Weight and subtrees.
    pub(crate) fn node(&self) -> (u32, Option<&'static Mapping>, Option<&'static Mapping>) {
        (self.weight.get(), self.left.get(), self.right.get())
    }
    pub(crate) fn previous_importer(&self) -> Option<&'static Mapping> {
        self.prev.get()
    }
}

#[cfg(test)]
impl Mapping {
    /// Puts it into a tree, or takes it out, at an address.
    pub(crate) fn plant(
        &'static self,
        k: K,
        tree: &Cell<Option<&'static Mapping>>,
        at: u64,
        size: u64,
    ) {
        self.start.set(at);
        self.size.set(size);
        self.weight.set(k.random());
        insert(tree, self);
    }
    pub(crate) fn uproot(&'static self, tree: &Cell<Option<&'static Mapping>>) {
        remove(tree, self);
    }
}
