//! Which part of the memory that devices reach is free: blocks of powers of two, each aligned to its size. Pure, tested on the host.
use alloc::vec;
use alloc::vec::Vec;

/// The smallest block, as a power of two.
const SMALLEST: u32 = 6;
/// The number of block sizes.
const SIZES: usize = 24;
/// No block.
const NONE: u32 = u32::MAX;

/// A place of [`SMALLEST`] bytes where no block begins.
const INNER: u8 = 0xff;
/// The block is free.
const FREE: u8 = 0x80;

/// Blocks of an arena, by their offsets.
#[derive(Debug)]
pub struct Buddy {
    /// For each place of the smallest size: [`INNER`], or the block's size as a power of two over the smallest, with
    /// [`FREE`] if the block is free.
    places: Vec<u8>,
    /// A list of the free blocks of each size: the first block, and for each place the next block and the one before.
    first: [u32; SIZES],
    links: Vec<[u32; 2]>,
}

impl Buddy {
    /// An arena of so many bytes, all of it free.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let count = size >> SMALLEST;
        let mut buddy = Buddy {
            places: vec![INNER; count],
            first: [NONE; SIZES],
            links: vec![[NONE; 2]; count],
        };
        let mut at = 0;
        while at < count {
            let aligned = if at == 0 {
                usize::BITS
            } else {
                at.trailing_zeros()
            };
            let fits = (count - at).ilog2();
            let order = aligned.min(fits).min(SIZES as u32 - 1);
            buddy.put(at, order as u8);
            at += 1 << order;
        }
        buddy
    }

    /// Takes a block of at least so many bytes, aligned to `align` (a power of two). Returns its offset.
    pub fn take(&mut self, size: usize, align: usize) -> Option<usize> {
        let bytes = size
            .max(align)
            .max(1 << SMALLEST)
            .checked_next_power_of_two()?;
        let order = (bytes.trailing_zeros() - SMALLEST) as usize;
        let found = (order..SIZES).find(|order| self.first[*order] != NONE)?;
        let at = self.first[found] as usize;
        self.unlink(at, found);
        for smaller in (order..found).rev() {
            self.put(at + (1 << smaller), smaller as u8);
        }
        self.places[at] = order as u8;
        Some(at << SMALLEST)
    }

    /// Gives a block back. Returns whether a block was taken there.
    pub fn give(&mut self, offset: usize) -> bool {
        let Some(mut order) = self.order(offset) else {
            return false;
        };
        let mut at = offset >> SMALLEST;
        self.places[at] = INNER;
        while order + 1 < SIZES {
            let other = at ^ (1 << order);
            if self.places.get(other) != Some(&(order as u8 | FREE)) {
                break;
            }
            self.unlink(other, order);
            at = at.min(other);
            order += 1;
        }
        self.put(at, order as u8);
        true
    }

    /// Bytes of the block at this offset, if it is taken.
    #[must_use]
    pub fn size(&self, offset: usize) -> Option<usize> {
        self.order(offset).map(|order| 1 << SMALLEST << order)
    }

    fn order(&self, offset: usize) -> Option<usize> {
        let place = self.places.get(offset >> SMALLEST)?;
        let taken = offset.is_multiple_of(1 << SMALLEST) && *place & FREE == 0;
        taken.then_some(usize::from(*place))
    }

    fn put(&mut self, at: usize, order: u8) {
        self.places[at] = order | FREE;
        let next = self.first[usize::from(order)];
        self.links[at] = [next, NONE];
        if next != NONE {
            self.links[next as usize][1] = at as u32;
        }
        self.first[usize::from(order)] = at as u32;
    }

    fn unlink(&mut self, at: usize, order: usize) {
        let [next, before] = self.links[at];
        match before {
            NONE => self.first[order] = next,
            before => self.links[before as usize][0] = next,
        }
        if next != NONE {
            self.links[next as usize][1] = before;
        }
        self.places[at] = INNER;
    }
}

#[cfg(test)]
mod tests {
    use super::Buddy;
    use alloc::vec::Vec;

    #[test]
    fn blocks_are_aligned_and_apart_and_come_together_again() {
        let size = 1 << 16;
        let mut buddy = Buddy::new(size);
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for _ in 0..20_000 {
            if next(2) == 0 || taken.is_empty() {
                let (bytes, align) = (next(3000) as usize + 1, 1 << next(10));
                let Some(at) = buddy.take(bytes, align) else {
                    let at = next(taken.len() as u64) as usize;
                    let (at, _) = taken.swap_remove(at);
                    assert!(buddy.give(at));
                    continue;
                };
                assert!(at.is_multiple_of(align) && at + bytes <= size);
                assert!(buddy.size(at).is_some_and(|size| size >= bytes));
                for &(other, length) in &taken {
                    assert!(at + bytes <= other || other + length <= at, "apart");
                }
                taken.push((at, bytes));
            } else {
                let at = next(taken.len() as u64) as usize;
                let (at, _) = taken.swap_remove(at);
                assert!(buddy.give(at));
                assert!(!buddy.give(at), "it is free already");
            }
        }
        for (at, _) in taken {
            assert!(buddy.give(at));
        }
        assert_eq!(buddy.take(size, 1), Some(0), "all of it is one block");
        assert!(!buddy.give(64) && !buddy.give(1) && !buddy.give(1 << 20));
    }

    #[test]
    fn an_arena_of_any_size_is_used_whole() {
        let mut buddy = Buddy::new(0x60000);
        assert_eq!(buddy.take(0x40000, 1), Some(0));
        assert_eq!(buddy.take(0x20000, 1), Some(0x40000));
        assert_eq!(buddy.take(1, 1), None);
        assert_eq!(buddy.take(usize::MAX, 1), None);
    }
}
