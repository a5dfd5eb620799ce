//! A treap: a search tree whose shape depends on weights that users cannot foresee, so that no choice of keys
//! makes it degenerate. With overwhelming probability, adding and removing take a number of steps logarithmic
//! in the number of items.

use hal::NarrowCell;

/// An item of a treap. Its key and weight do not change while it is in one, and no two items there have the
/// same key.
pub(crate) trait Item: Sized + 'static {
    type Key: PartialOrd;
    fn key(&self) -> Self::Key;
    /// The weight, by which the tree is a heap: no greater than that of the item above.
    fn weight(&self) -> u32;
    fn node(&self) -> &Node<Self>;
}

/// An item's place in the treap that it is in.
pub(crate) struct Node<T: 'static> {
    left: NarrowCell<T>,
    right: NarrowCell<T>,
}

impl<T> Node<T> {
    pub(crate) const fn new() -> Self {
        Node {
            left: NarrowCell::none(),
            right: NarrowCell::none(),
        }
    }
}

/// A search tree of items by their keys.
pub(crate) struct Treap<T: 'static> {
    root: NarrowCell<T>,
}

impl<T: Item> Treap<T> {
    pub(crate) const fn new() -> Self {
        Treap {
            root: NarrowCell::none(),
        }
    }

    /// The first item, in the order of the keys, for which `behind` holds. `behind` must hold for all items
    /// after one for which it holds.
    #[inline(always)]
    pub(crate) fn first(&self, behind: impl Fn(&'static T) -> bool) -> Option<&'static T> {
        let mut at = self.root.get();
        let mut best = None;
        while let Some(item) = at {
            at = if behind(item) {
                best = Some(item);
                item.node().left.get()
            } else {
                item.node().right.get()
            };
        }
        best
    }

    /// Adds an item. Returns its neighbours in the order of the keys.
    #[inline(always)]
    pub(crate) fn insert(&self, item: &'static T) -> (Option<&'static T>, Option<&'static T>) {
        let (key, weight) = (item.key(), item.weight());
        let (mut before, mut after) = (None, None);
        // Descend to the level where its weight belongs, then split the subtree there by its key.
        let mut link = &self.root;
        while let Some(other) = link.get() {
            if other.weight() < weight {
                break;
            }
            link = if key < other.key() {
                after = Some(other);
                &other.node().left
            } else {
                before = Some(other);
                &other.node().right
            };
        }
        let mut below = link.replace(Some(item));
        let mut left = &item.node().left;
        let mut right = &item.node().right;
        while let Some(other) = below {
            if other.key() < key {
                before = below;
                left.set(below);
                left = &other.node().right;
                below = left.get();
            } else {
                after = below;
                right.set(below);
                right = &other.node().left;
                below = right.get();
            }
        }
        left.set(None);
        right.set(None);
        (before, after)
    }

    /// Removes an item that is in the tree.
    #[inline(always)]
    pub(crate) fn remove(&self, item: &T) {
        let key = item.key();
        let mut link = &self.root;
        while let Some(other) = link.get() {
            if core::ptr::eq(other, item) {
                break;
            }
            link = if key < other.key() {
                &other.node().left
            } else {
                &other.node().right
            };
        }
        // Merge the two subtrees in its place.
        let mut left = item.node().left.take();
        let mut right = item.node().right.take();
        loop {
            match (left, right) {
                (Some(l), Some(r)) if l.weight() >= r.weight() => {
                    link.set(Some(l));
                    link = &l.node().right;
                    left = l.node().right.get();
                }
                (Some(_), Some(r)) => {
                    link.set(Some(r));
                    link = &r.node().left;
                    right = r.node().left.get();
                }
                (rest, None) | (None, rest) => {
                    link.set(rest);
                    break;
                }
            }
        }
    }

    /// Removes all items.
    pub(crate) fn clear(&self) {
        self.root.set(None);
    }
}

#[cfg(any(test, fermata_probe))]
impl<T: Item> Treap<T> {
    /// Calls `f` with all items in order, and checks the weights.
    pub(crate) fn each(&self, f: &dyn Fn(&'static T)) {
        below(self.root.get(), u32::MAX, f);
    }

    /// The number of levels.
    #[cfg(test)]
    pub(crate) fn depth(&self) -> usize {
        fn depth<T: Item>(at: Option<&'static T>) -> usize {
            let Some(item) = at else { return 0 };
            let node = item.node();
            1 + depth(node.left.get()).max(depth(node.right.get()))
        }
        depth(self.root.get())
    }
}

#[cfg(any(test, fermata_probe))]
fn below<T: Item>(at: Option<&'static T>, above: u32, f: &dyn Fn(&'static T)) {
    let Some(item) = at else { return };
    let weight = item.weight();
    assert!(weight <= above, "a heavy item below a light one");
    below(item.node().left.get(), weight, f);
    f(item);
    below(item.node().right.get(), weight, f);
}
