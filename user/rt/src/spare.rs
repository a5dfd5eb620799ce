//! Small blocks of the heap that were freed, to be used again without a search.
//!
//! Servers allocate and free a few small blocks for each request. A few freed blocks of each size are kept in a list,
//! and the allocator proper handles only the others.
use core::alloc::Layout;
use core::ptr::NonNull;

/// Sizes are multiples of this, which is also the strictest alignment of blocks that are kept.
const STEP: usize = 8;
/// Largest block that is kept.
const LARGEST: usize = 512;
/// Most blocks of a size that are kept.
const MOST: u8 = 16;

/// A size of blocks that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(usize);

impl Class {
    /// The class of blocks of this layout, if such are kept.
    #[inline]
    pub(crate) const fn of(layout: &Layout) -> Option<Self> {
        let size = layout.size();
        if size == 0 || size > LARGEST || layout.align() > STEP {
            return None;
        }
        Some(Class((size - 1) / STEP))
    }

    /// The layout of its blocks.
    #[inline]
    const fn layout(self) -> Layout {
        // SAFETY: the alignment is a power of two, and the size far from overflow.
        unsafe { Layout::from_size_align_unchecked((self.0 + 1) * STEP, STEP) }
    }
}

/// The layout that is really allocated for a requested one.
#[inline]
pub(crate) const fn fitted(layout: Layout) -> Layout {
    match Class::of(&layout) {
        Some(class) => class.layout(),
        None => layout,
    }
}

/// The blocks. The first word of each is the address of the next.
pub(crate) struct Spare {
    first: [Option<NonNull<u8>>; LARGEST / STEP],
    count: [u8; LARGEST / STEP],
}

impl Spare {
    /// None.
    pub(crate) const fn new() -> Self {
        Spare {
            first: [None; LARGEST / STEP],
            count: [0; LARGEST / STEP],
        }
    }

    /// Takes a block of this class, if one is kept.
    #[inline]
    pub(crate) fn take(&mut self, class: Class) -> Option<NonNull<u8>> {
        let first = self.first.get_mut(class.0)?;
        let block = (*first)?;
        // SAFETY: the block was kept: it is nobody else's, aligned to a word, and its first word was written then.
        *first = unsafe { block.cast::<Option<NonNull<u8>>>().read() };
        self.count[class.0] -= 1;
        Some(block)
    }

    /// Keeps a block, if there is room. Returns whether it was kept.
    ///
    /// # Safety
    /// The block has the layout of the class, and nobody uses it from now on.
    #[inline]
    pub(crate) unsafe fn keep(&mut self, block: NonNull<u8>, class: Class) -> bool {
        let (Some(first), Some(count)) = (self.first.get_mut(class.0), self.count.get_mut(class.0))
        else {
            return false;
        };
        if *count >= MOST {
            return false;
        }
        // SAFETY: it has room for a word, and is aligned to one.
        unsafe { block.cast::<Option<NonNull<u8>>>().write(*first) };
        (*first, *count) = (Some(block), *count + 1);
        true
    }

    /// Takes any block, with its layout.
    pub(crate) fn take_any(&mut self) -> Option<(NonNull<u8>, Layout)> {
        let index = self.first.iter().position(Option::is_some)?;
        let class = Class(index);
        Some((self.take(class)?, class.layout()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use alloc::vec::Vec;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    /// A block has room for what its layout asks for, and at most a step more.
    #[test]
    fn blocks_fit() {
        for size in 1..2 * LARGEST {
            for align in [1, 2, 4, 8, 16, 64] {
                let asked = layout(size, align);
                let fitted = fitted(asked);
                let fits = fitted.size() >= size && fitted.align() >= align;
                assert!(fits && fitted.size() < size + STEP, "{asked:?} {fitted:?}");
                let is_kept = size <= LARGEST && align <= STEP;
                assert_eq!(Class::of(&asked).is_some(), is_kept, "{asked:?}");
                // A layout of the same class yields the same block when it is freed.
                assert_eq!(super::fitted(fitted), fitted);
            }
        }
        assert_eq!(Class::of(&layout(0, 1)), None);
    }

    /// Each block that is kept is given out once, to a request for its size, and only so many are kept.
    #[test]
    fn a_block_is_given_once() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut spare = Spare::new();
        let mut memory = vec![0u64; 200 * LARGEST / STEP];
        let block = |memory: &mut [u64], n: usize| {
            NonNull::new(memory[n * LARGEST / STEP..].as_mut_ptr().cast()).unwrap()
        };
        let mut owned: Vec<NonNull<u8>> = (0..200).map(|n| block(&mut memory, n)).collect();
        let mut kept: BTreeMap<usize, Vec<NonNull<u8>>> = BTreeMap::new();
        for _ in 0..20_000 {
            let class = Class(random.usize(..4) * 21);
            let of_class = kept.entry(class.0).or_default();
            if random.bool() && !owned.is_empty() {
                let one = owned.swap_remove(random.usize(..owned.len()));
                // SAFETY: the block is large enough for all classes, and not owned any more.
                let is_kept = unsafe { spare.keep(one, class) };
                assert_eq!(
                    is_kept,
                    of_class.len() < usize::from(MOST),
                    "as many as there is room for"
                );
                match is_kept {
                    true => of_class.push(one),
                    false => owned.push(one),
                }
            } else {
                let taken = spare.take(class);
                assert_eq!(taken, of_class.pop(), "the last one of its size");
                owned.extend(taken);
            }
        }
        let mut left: usize = kept.values().map(Vec::len).sum();
        while let Some((one, layout)) = spare.take_any() {
            let class = Class::of(&layout).unwrap();
            let known = kept.get_mut(&class.0).and_then(Vec::pop);
            assert_eq!(Some(one), known, "one of its size");
            left -= 1;
        }
        assert_eq!(left, 0, "all of them");
    }
}
