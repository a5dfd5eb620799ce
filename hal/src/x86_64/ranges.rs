//! Ranges of physical memory.
use abi::boot::PhysRange;
use abi::PAGE_SIZE;

/// RAM below this is not used: it has real-mode data, firmware and video memory.
const LOW_END: u64 = 1 << 20;
/// Bytes of the pool that the kernel needs for each frame below the end of users' RAM: a cell with a narrow reference.
pub(super) const BYTES_OF_FRAME: u64 = 4;

/// A short list of ranges of physical memory, page aligned, none empty.
pub(super) struct Ranges {
    pub(super) list: [PhysRange; Ranges::MOST],
    pub(super) count: usize,
}

impl Ranges {
    pub(super) const MOST: usize = 64;

    pub(super) const fn new() -> Ranges {
        Ranges {
            list: [PhysRange { start: 0, size: 0 }; Ranges::MOST],
            count: 0,
        }
    }

    pub(super) fn all(&self) -> &[PhysRange] {
        &self.list[..self.count]
    }

    /// Adds a range, if it is not empty. If the list is full, the memory of the range stays unused.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if end > start && self.count < Ranges::MOST {
            self.list[self.count] = PhysRange {
                start,
                size: end - start,
            };
            self.count += 1;
        }
    }

    /// These ranges without the pages that overlap with `hole`, which need not be page aligned.
    pub(super) fn without(&self, hole: PhysRange) -> Ranges {
        let low = hole.start / PAGE_SIZE * PAGE_SIZE;
        let high = hole.start.saturating_add(hole.size).div_ceil(PAGE_SIZE) * PAGE_SIZE;
        let mut rest = Ranges::new();
        for range in self.all() {
            let end = range.start + range.size;
            if hole.size == 0 || high <= range.start || low >= end {
                rest.add(range.start, end);
            } else {
                rest.add(range.start, low.max(range.start));
                rest.add(high.min(end), end);
            }
        }
        rest
    }

    /// The parts of these ranges below an address, which is page aligned.
    pub(super) fn below(&self, end: u64) -> Ranges {
        let mut low = Ranges::new();
        for range in self.all() {
            low.add(range.start, (range.start + range.size).min(end));
        }
        low
    }

    /// The sum of the sizes, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.all().iter().map(|range| range.size).sum()
    }

    /// The whole usable pages of RAM in the loader's map, below the address `most`, each once.
    pub(super) fn of_ram(found: &[PhysRange], most: u64) -> Ranges {
        let mut ranges = Ranges::new();
        for ram in found {
            let start = ram.start.clamp(LOW_END, most).div_ceil(PAGE_SIZE) * PAGE_SIZE;
            let end = ram.start.saturating_add(ram.size).min(most) / PAGE_SIZE * PAGE_SIZE;
            // The specification forbids entries that overlap, but some firmware has them.
            let size = end.saturating_sub(start);
            ranges = ranges.without(PhysRange { start, size });
            ranges.add(start, end);
        }
        ranges
    }
}

/// The highest possible end of users' RAM with a pool of this size: the kernel needs [`BYTES_OF_FRAME`] of the pool for
/// each frame below the end, which may take half of the pool; the other half must suffice for everything else.
pub(super) const fn reach(pool: u64) -> u64 {
    pool / 2 / BYTES_OF_FRAME * PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::{reach, PhysRange, Ranges, BYTES_OF_FRAME, LOW_END, PAGE_SIZE};

    const GIB: u64 = 1 << 30;
    /// The size of the direct map.
    const MOST: u64 = 1 << 44;

    fn range(start: u64, size: u64) -> PhysRange {
        PhysRange { start, size }
    }

    fn pairs(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.all().iter().map(|r| (r.start, r.size)).collect()
    }

    #[test]
    fn ram_is_whole_pages_each_once() {
        let found = [
            range(0, 0x9_fc00),
            range(0x10_0200, 0x1000_0000),
            range(0x20_0000, 0x1000),
            range(u64::MAX - 5, 100),
        ];
        let ram = Ranges::of_ram(&found, MOST);
        assert_eq!(ram.bytes(), 0x1000_0000 - PAGE_SIZE);
        assert!(ram.all().iter().all(|r| r.start >= LOW_END));
        let rest = ram.without(range(0x30_0800, 0x100));
        assert_eq!(rest.bytes(), ram.bytes() - PAGE_SIZE);
    }

    /// The kernel's list of frames fits into half of the pool, however much RAM there is and wherever it lies.
    #[test]
    fn a_list_of_all_frames_leaves_half_of_the_pool() {
        let found = [
            range(LOW_END, 3 * GIB),
            range(4 * GIB, 600 * GIB),
            range(1 << 43, GIB),
        ];
        let ram = Ranges::of_ram(&found, MOST);
        for pool in [16 << 20, 64 << 20, 256 << 20] {
            let user = ram.below(reach(pool));
            let end = user.all().iter().map(|r| r.start + r.size).max();
            let list = end.unwrap_or(0) / PAGE_SIZE * BYTES_OF_FRAME;
            assert_eq!(list, pool / 2, "of a pool of {pool} bytes");
        }
        // A machine with at most 128 GiB can use all of its RAM.
        assert_eq!(reach(256 << 20), 128 * GIB);
        let small = ram.below(100 * GIB);
        assert_eq!(pairs(&small.below(reach(256 << 20))), pairs(&small));
    }
}
