//! The mappings of a space, by address.
//!
//! Besides the tree, each mapping has links to its neighbours, and the tree remembers the mapping that it found last,
//! since most lookups are near the previous one.

use super::mapping::Mapping;
use crate::avl::{self, Tree};
#[cfg(any(test, fermata_probe))]
use crate::queue::same;
use crate::K;
use core::cell::Cell;
use hal::{NarrowCell, NarrowRef};

/// The mappings of a space. No two overlap, and none is empty.
pub(crate) struct Mappings {
    tree: Tree<Mapping>,
    /// The mapping that was found last, or `no_mapping`, which stands for none.
    found: Cell<NarrowRef<Mapping>>,
}

/// A mapping's place in its tree.
pub(super) struct Node {
    place: avl::Node<Mapping>,
    balance: Cell<i8>,
    /// Its neighbours in the order of addresses.
    before: NarrowCell<Mapping>,
    after: NarrowCell<Mapping>,
}

impl Node {
    pub(super) const fn new() -> Self {
        Node {
            place: avl::Node::new(),
            balance: Cell::new(0),
            before: NarrowCell::none(),
            after: NarrowCell::none(),
        }
    }
}

impl avl::Item for Mapping {
    type Key = u64;
    #[inline(always)]
    fn key(&self) -> u64 {
        self.start.get()
    }
    #[inline(always)]
    fn node(&self) -> &avl::Node<Self> {
        &self.node.place
    }
    #[inline(always)]
    fn balance(&self) -> &Cell<i8> {
        &self.node.balance
    }
}

impl Mappings {
    pub(crate) fn new(none: &'static Mapping) -> Self {
        Mappings {
            tree: Tree::new(),
            found: Cell::new(NarrowRef::of(none)),
        }
    }

    /// The mapping that covers the address.
    #[inline(always)]
    pub(crate) fn covering(&self, address: u64) -> Option<&'static Mapping> {
        let m = self.found.get().get();
        if m.covers(address) {
            Some(m)
        } else if m.is_before_a_gap_at(address) {
            None
        } else {
            self.search(address)
        }
    }

    #[inline(never)]
    fn search(&self, address: u64) -> Option<&'static Mapping> {
        let found = self.at_or_after(address).filter(|m| m.covers(address))?;
        self.found.set(NarrowRef::of(found));
        Some(found)
    }

    /// The first mapping that ends behind the address: the one that covers the address, or else the next one.
    pub(crate) fn at_or_after(&self, address: u64) -> Option<&'static Mapping> {
        self.tree.first(|m| m.end_address() > address)
    }

    /// [`Mappings::at_or_after`], for a caller that asks for ascending addresses: the result is mostly the mapping
    /// found last or the next one.
    pub(crate) fn next(&self, address: u64) -> Option<&'static Mapping> {
        let last = self.found.get().get();
        let near = if last.covers(address) {
            Some(last)
        } else {
            let behind = last.node.after.get();
            behind.filter(|m| last.end_address() <= address && address < m.end_address())
        };
        let next = near.or_else(|| self.at_or_after(address))?;
        self.found.set(NarrowRef::of(next));
        Some(next)
    }

    /// Whether a mapping other than `except` lies in the range. `except` may be in another space.
    pub(crate) fn overlaps(&self, start: u64, size: u64, except: &Mapping) -> bool {
        let first = match self.at_or_after(start) {
            Some(m) if core::ptr::eq(m, except) => m.node.after.get(),
            first => first,
        };
        first.is_some_and(|m| m.start.get() < start + size)
    }

    /// Adds a mapping, whose range is free.
    pub(super) fn insert(&self, m: &'static Mapping) {
        let (before, after) = self.tree.insert(m);
        join(before, Some(m));
        join(Some(m), after);
        self.found.set(NarrowRef::of(m));
    }

    /// Removes a mapping that is in the tree.
    pub(super) fn remove(&self, k: K, m: &'static Mapping) {
        self.tree.remove(m);
        join(m.node.before.take(), m.node.after.take());
        self.found.set(NarrowRef::of(k.no_mapping));
    }

    /// Removes all mappings.
    pub(super) fn clear(&self, k: K) {
        self.tree.clear();
        self.found.set(NarrowRef::of(k.no_mapping));
    }
}

/// Links two neighbours.
fn join(before: Option<&'static Mapping>, after: Option<&'static Mapping>) {
    if let Some(m) = before {
        m.node.after.set(after);
    }
    if let Some(m) = after {
        m.node.before.set(before);
    }
}

impl Mapping {
    /// Whether the address lies between this mapping and the next.
    #[inline(always)]
    fn is_before_a_gap_at(&self, address: u64) -> bool {
        let next = self.node.after.get().map_or(u64::MAX, |m| m.start.get());
        self.end_address() <= address && address < next
    }

    /// Whether the new range lies between the mapping's neighbours, so that the mapping can get it without changing its
    /// place in the tree.
    #[inline(always)]
    pub(crate) fn can_slide(&self, start: u64, size: u64) -> bool {
        self.node
            .before
            .get()
            .is_none_or(|m| m.end_address() <= start)
            && self
                .node
                .after
                .get()
                .is_none_or(|m| start + size <= m.start.get())
    }
}

#[cfg(any(test, fermata_probe))]
impl Mappings {
    /// Calls `f` with all mappings in order, and checks the tree. Returns its depth: the most mappings that a search
    /// visits.
    pub(crate) fn each(&self, f: &dyn Fn(&'static Mapping)) -> i8 {
        let last = NarrowCell::none();
        let depth = self.tree.each(&|m| {
            assert!(m.size.get() > 0, "an empty mapping in a tree");
            assert!(
                same(m.node.before.get(), last.get()),
                "a mapping's neighbours"
            );
            if let Some(last) = last.replace(Some(m)) {
                assert!(last.end_address() <= m.start.get(), "mappings overlap");
                assert!(
                    same(last.node.after.get(), Some(m)),
                    "a mapping's neighbours"
                );
            }
            f(m);
        });
        let end = last.get().and_then(|m: &Mapping| m.node.after.get());
        assert!(end.is_none(), "a mapping's neighbours");
        depth
    }

    /// The mapping that was found last, if any.
    pub(crate) fn found(&self) -> Option<&'static Mapping> {
        Some(self.found.get().get()).filter(|m| m.size.get() > 0)
    }
}
