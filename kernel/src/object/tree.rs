//! The mappings of a space, by address.
//!
//! A treap: a search tree whose shape depends on random weights, so that no choice of addresses makes it
//! degenerate. Each mapping knows its neighbours besides, and the tree whom it found last: a page is
//! mostly looked for where the one before it was.

use super::mapping::Mapping;
#[cfg(any(test, fermata_probe))]
use crate::check::same;
use crate::K;
use core::cell::Cell;
use hal::{NarrowCell, NarrowRef};

type Link = NarrowCell<Mapping>;

/// The mappings of a space. No two overlap, and none is empty.
pub(crate) struct Mappings {
    root: Link,
    /// One of them, or what stands for none.
    found: Cell<NarrowRef<Mapping>>,
}

/// A mapping's place in the tree that it is in.
pub(super) struct Node {
    /// No greater than that of the mapping above.
    weight: Cell<u32>,
    left: Link,
    right: Link,
    /// Its neighbours in the order of addresses.
    before: Link,
    after: Link,
}

impl Node {
    pub(super) const fn new() -> Self {
        Node {
            weight: Cell::new(0),
            left: NarrowCell::none(),
            right: NarrowCell::none(),
            before: NarrowCell::none(),
            after: NarrowCell::none(),
        }
    }
}

impl Mappings {
    pub(crate) fn new(none: &'static Mapping) -> Self {
        Mappings {
            root: NarrowCell::none(),
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
        let mut at = self.root.get();
        while let Some(m) = at {
            at = if address < m.start.get() {
                m.node.left.get()
            } else if m.covers(address) {
                self.found.set(NarrowRef::of(m));
                return Some(m);
            } else {
                m.node.right.get()
            };
        }
        None
    }

    /// The first mapping that ends behind the address: it covers it or comes next.
    pub(crate) fn at_or_after(&self, address: u64) -> Option<&'static Mapping> {
        let mut at = self.root.get();
        let mut best = None;
        while let Some(m) = at {
            if m.end_address() > address {
                best = Some(m);
                at = m.node.left.get();
            } else {
                at = m.node.right.get();
            }
        }
        best
    }

    /// Whether another mapping than `except`, which may be in another space, lies in the range.
    pub(crate) fn overlaps(&self, start: u64, size: u64, except: &Mapping) -> bool {
        let first = match self.at_or_after(start) {
            Some(m) if core::ptr::eq(m, except) => m.node.after.get(),
            first => first,
        };
        first.is_some_and(|m| m.start.get() < start + size)
    }

    /// Adds a mapping, whose range is free.
    pub(super) fn insert(&self, m: &'static Mapping, weight: u32) {
        m.node.weight.set(weight);
        let (mut before, mut after) = (None, None);
        // Down to where the weights say it belongs, then split what is below by its address.
        let mut link = &self.root;
        while let Some(n) = link.get() {
            if n.node.weight.get() < weight {
                break;
            }
            link = if m.start.get() < n.start.get() {
                after = Some(n);
                &n.node.left
            } else {
                before = Some(n);
                &n.node.right
            };
        }
        let mut below = link.replace(Some(m));
        let mut left = &m.node.left;
        let mut right = &m.node.right;
        while let Some(n) = below {
            if n.start.get() < m.start.get() {
                before = below;
                left.set(below);
                left = &n.node.right;
                below = left.get();
            } else {
                after = below;
                right.set(below);
                right = &n.node.left;
                below = right.get();
            }
        }
        left.set(None);
        right.set(None);
        join(before, Some(m));
        join(Some(m), after);
        self.found.set(NarrowRef::of(m));
    }

    /// Takes out a mapping that is in it.
    pub(super) fn remove(&self, k: K, m: &'static Mapping) {
        let mut link = &self.root;
        while let Some(n) = link.get() {
            if core::ptr::eq(n, m) {
                break;
            }
            link = if m.start.get() < n.start.get() {
                &n.node.left
            } else {
                &n.node.right
            };
        }
        // Merge the two subtrees in its place.
        let mut left = m.node.left.take();
        let mut right = m.node.right.take();
        loop {
            match (left, right) {
                (Some(l), Some(r)) if l.node.weight.get() >= r.node.weight.get() => {
                    link.set(Some(l));
                    link = &l.node.right;
                    left = l.node.right.get();
                }
                (Some(_), Some(r)) => {
                    link.set(Some(r));
                    link = &r.node.left;
                    right = r.node.left.get();
                }
                (rest, None) | (None, rest) => {
                    link.set(rest);
                    break;
                }
            }
        }
        join(m.node.before.take(), m.node.after.take());
        self.found.set(NarrowRef::of(k.no_mapping));
    }

    /// Lets go of all of them.
    pub(super) fn clear(&self, k: K) {
        self.root.set(None);
        self.found.set(NarrowRef::of(k.no_mapping));
    }
}

/// The one comes right before the other.
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

    /// Whether nothing but itself lies between where it is, in a tree, and that range: then it can have
    /// the range and stay where it is in the tree.
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
    /// Calls `f` with all of them in order, checking the tree on the way.
    pub(crate) fn each(&self, f: &dyn Fn(&'static Mapping)) {
        let last = NarrowCell::none();
        below(self.root.get(), u32::MAX, &|m| {
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
    }

    /// Whom it found last.
    pub(crate) fn found(&self) -> Option<&'static Mapping> {
        Some(self.found.get().get()).filter(|m| m.size.get() > 0)
    }
}

#[cfg(any(test, fermata_probe))]
fn below(at: Option<&'static Mapping>, above: u32, f: &dyn Fn(&'static Mapping)) {
    let Some(m) = at else { return };
    let weight = m.node.weight.get();
    assert!(weight <= above, "a heavy mapping below a light one");
    assert!(m.size.get() > 0, "an empty mapping in a tree");
    below(m.node.left.get(), weight, f);
    f(m);
    below(m.node.right.get(), weight, f);
}

#[cfg(test)]
impl Mappings {
    /// How many mappings a search goes along at most.
    pub(crate) fn depth(&self) -> usize {
        fn of(at: Option<&'static Mapping>) -> usize {
            at.map_or(0, |m| 1 + of(m.node.left.get()).max(of(m.node.right.get())))
        }
        of(self.root.get())
    }
}
