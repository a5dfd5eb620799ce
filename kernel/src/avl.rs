//! A balanced tree, that of Adelson-Velsky and Landis ("An algorithm for the organization of information", 1962): below
//! every item the depths of the two subtrees differ by at most one. A tree of n items is at most 1.44 log2(n + 2)
//! levels deep, whatever their keys and the order of insertion: 15 levels for 4,096 items, 18 for 16,000.
//!
//! Insertion and removal descend twice and never ascend, so that items need no links to their parents and nothing is
//! kept on the stack: the first descent finds the lowest subtree whose depth does not change, the second one balances
//! the subtrees below it.

use core::cell::Cell;
use hal::NarrowCell;

/// An item of a tree. Its key does not change while the item is in a tree. No two items of a tree have the same key.
pub(crate) trait Item: Sized + 'static {
    type Key: PartialOrd;
    fn key(&self) -> Self::Key;
    fn node(&self) -> &Node<Self>;
    /// By how many levels the item's right subtree is deeper than its left one: -1, 0 or 1. Only the tree changes it.
    fn balance(&self) -> &Cell<i8>;
}

/// An item's place in its tree: the subtrees below it.
pub(crate) struct Node<T: 'static> {
    /// The left one and the right one.
    children: [NarrowCell<T>; 2],
}

impl<T> Node<T> {
    pub(crate) const fn new() -> Self {
        Node {
            children: [NarrowCell::none(), NarrowCell::none()],
        }
    }

    #[inline(always)]
    fn child(&self, right: bool) -> &NarrowCell<T> {
        &self.children[usize::from(right)]
    }
}

/// The balance of an item whose subtree on that side is the deeper one.
#[inline(always)]
const fn lean(right: bool) -> i8 {
    if right {
        1
    } else {
        -1
    }
}

/// A search tree of items by their keys.
pub(crate) struct Tree<T: 'static> {
    root: NarrowCell<T>,
}

impl<T: Item> Tree<T> {
    pub(crate) const fn new() -> Self {
        Tree {
            root: NarrowCell::none(),
        }
    }

    /// The first item, in the order of the keys, for which `behind` holds. If `behind` holds for an item, it must
    /// hold for all items after that item.
    #[inline(always)]
    pub(crate) fn first(&self, behind: impl Fn(&'static T) -> bool) -> Option<&'static T> {
        let mut at = self.root.get();
        let mut best = None;
        while let Some(item) = at {
            at = if behind(item) {
                best = Some(item);
                item.node().child(false).get()
            } else {
                item.node().child(true).get()
            };
        }
        best
    }

    /// Adds an item. Returns its neighbours in the order of the keys.
    #[inline(always)]
    pub(crate) fn insert(&self, item: &'static T) -> (Option<&'static T>, Option<&'static T>) {
        let key = item.key();
        let (mut before, mut after) = (None, None);
        // Links to the lowest item on the way that is not level, or else to the root: above it no depth changes.
        let mut top = &self.root;
        let mut link = &self.root;
        while let Some(other) = link.get() {
            if other.balance().get() != 0 {
                top = link;
            }
            link = if key < other.key() {
                after = Some(other);
                other.node().child(false)
            } else {
                before = Some(other);
                other.node().child(true)
            };
        }
        link.set(Some(item));
        item.node().child(false).set(None);
        item.node().child(true).set(None);
        item.balance().set(0);
        // All items between `top` and the new item were level, and now lean to the side of the new item.
        let is_new = |other: &T| core::ptr::eq(other, item);
        let Some(highest) = top.get().filter(|highest| !is_new(highest)) else {
            return (before, after);
        };
        let grown = key >= highest.key();
        let mut at = highest.node().child(grown).get();
        while let Some(other) = at.filter(|other| !is_new(other)) {
            let right = key >= other.key();
            other.balance().set(lean(right));
            at = other.node().child(right).get();
        }
        let balance = highest.balance().get();
        if balance == lean(grown) {
            rotate(top, highest, grown);
        } else {
            highest.balance().set(balance + lean(grown));
        }
        (before, after)
    }

    /// Removes an item that is in the tree.
    #[inline(always)]
    pub(crate) fn remove(&self, item: &T) {
        let key = item.key();
        // Links to the lowest item on the way whose depth stays the same if that side loses a level, or else to the
        // root.
        let mut top = &self.root;
        let mut link = &self.root;
        while let Some(at) = link.get().filter(|at| !core::ptr::eq(*at, item)) {
            let right = key > at.key();
            if stops(at, right) {
                top = link;
            }
            link = at.node().child(right);
        }
        let mut place = link;
        // The node to unlink must have one child at most. That is the item itself or, if it has a right subtree, its
        // successor, which then takes the item's place.
        let Some(mut last) = link.get() else { return };
        let mut right = true;
        while let Some(next) = last.node().child(right).get() {
            if stops(last, right) {
                top = link;
            }
            link = last.node().child(right);
            last = next;
            right = false;
        }
        link = top;
        while let Some(at) = link.get().filter(|at| !core::ptr::eq(*at, last)) {
            let right = key >= at.key();
            let balance = at.balance().get();
            let above = if balance == -lean(right) {
                rotate(link, at, !right).node().child(right)
            } else {
                at.balance().set(balance - lean(right));
                link
            };
            if core::ptr::eq(at, item) {
                place = above;
            }
            link = at.node().child(right);
        }
        let node = last.node();
        link.set(node.child(!right).get());
        if !core::ptr::eq(last, item) {
            node.child(false).set(item.node().child(false).get());
            node.child(true).set(item.node().child(true).get());
            last.balance().set(item.balance().get());
            place.set(Some(last));
        }
    }

    /// Removes all items.
    pub(crate) fn clear(&self) {
        self.root.set(None);
    }
}

/// Whether the subtree of this item keeps its depth when the subtree on one side of the item loses a level.
#[inline(always)]
fn stops<T: Item>(at: &T, right: bool) -> bool {
    let balance = at.balance().get();
    let is_level = |other: &T| other.balance().get() == 0;
    let other = || at.node().child(!right).get();
    balance == 0 || (balance > 0) != right && other().is_some_and(is_level)
}

/// Balances the item of this link, whose subtree on the side `deep` is two levels deeper than the other one. Returns
/// the item that has taken its place; the balanced item is now a child of that one, on the other side.
#[inline(never)]
fn rotate<T: Item>(link: &NarrowCell<T>, top: &'static T, deep: bool) -> &'static T {
    let Some(child) = top.node().child(deep).get() else {
        return top;
    };
    let inner = child.node().child(!deep);
    let leaning = child.balance().get();
    match inner.get().filter(|_| leaning == -lean(deep)) {
        // The deeper subtree is between `top` and its child: it is divided among them.
        Some(middle) => {
            inner.set(middle.node().child(deep).get());
            top.node().child(deep).set(middle.node().child(!deep).get());
            middle.node().child(deep).set(Some(child));
            middle.node().child(!deep).set(Some(top));
            let leaning = middle.balance().get();
            let rest = |side: i8| if leaning == side { -side } else { 0 };
            top.balance().set(rest(lean(deep)));
            child.balance().set(rest(-lean(deep)));
            middle.balance().set(0);
            link.set(Some(middle));
            middle
        }
        None => {
            top.node().child(deep).set(inner.get());
            inner.set(Some(top));
            top.balance().set(lean(deep) - leaning);
            child.balance().set(leaning - lean(deep));
            link.set(Some(child));
            child
        }
    }
}

#[cfg(any(test, fermata_probe))]
impl<T: Item> Tree<T> {
    /// Calls `f` with all items in order, and checks that they are balanced. Returns the number of levels.
    pub(crate) fn each(&self, f: &dyn Fn(&'static T)) -> i8 {
        fn below<T: Item>(at: Option<&'static T>, f: &dyn Fn(&'static T)) -> i8 {
            let Some(item) = at else { return 0 };
            let left = below(item.node().child(false).get(), f);
            f(item);
            let right = below(item.node().child(true).get(), f);
            let balance = item.balance().get();
            assert_eq!(right - left, balance, "the depths of what is below an item");
            assert!(balance.abs() <= 1, "an item that is not balanced");
            1 + left.max(right)
        }
        below(self.root.get(), f)
    }
}
