//! Memory that devices reach: some ranges of physical memory, in pieces that are never moved.
//!
//! Memory that a driver gives back is free at once, and cleared some pages at a time, since clearing all of it would
//! delay other drivers. It may be allocated to another driver before that, which gets it when it is clear.

use crate::refusal::Refusal;
use crate::Driver;
use abi::PAGE_SIZE;
use alloc::vec::Vec;
use services::device::Reach;

/// A piece that a driver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The driver that has it.
    pub driver: Driver,
    /// Physical address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Its driver has ended, and a device may still write to it: it is given to nobody until the device has been reset.
    pub held: bool,
}

/// Most pieces that one driver has: each is a region of the device server's.
pub const MOST: usize = 256;

/// Most pages that are cleared before others are served: some 10,000 instructions.
pub const PAGES_AT_ONCE: u64 = 16;

/// The memory that devices reach, and the pieces of it that drivers have.
#[derive(Debug, Default)]
pub struct Pool {
    /// All memory: start and size. Pieces come from the first range that has room.
    ranges: Vec<(u64, u64)>,
    /// By address.
    pieces: Vec<Piece>,
    /// Memory that is to be cleared: start and end. No two of these ranges touch.
    stained: Vec<(u64, u64)>,
}

/// The end of the addresses that a device with this reach can use.
const fn end_of(reach: Reach) -> u64 {
    match reach {
        Reach::Low => 16 << 20,
        Reach::Bits32 => 1 << 32,
        Reach::All => u64::MAX,
    }
}

impl Pool {
    /// A pool of these ranges of whole pages; uses the highest ones first.
    #[must_use]
    pub fn new(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.retain(|(start, size)| start.checked_add(*size).is_some());
        ranges.sort_unstable_by_key(|(start, _)| core::cmp::Reverse(*start));
        Pool {
            ranges,
            pieces: Vec::new(),
            stained: Vec::new(),
        }
    }

    /// Bytes that a driver has, including those that are held for it.
    #[must_use]
    pub fn used(&self, driver: Driver) -> u64 {
        let own = self.pieces.iter().filter(|piece| piece.driver == driver);
        own.map(|piece| piece.size).sum()
    }

    /// Gives a driver that may have `most` bytes a piece, and returns its physical address. The driver gets access when
    /// the piece is [clear](Pool::is_clear).
    pub fn take(
        &mut self,
        driver: Driver,
        most: u64,
        (size, align, reach): (u64, u64, Reach),
    ) -> Result<u64, Refusal> {
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) || !align.is_power_of_two() {
            return Err(Refusal::Nonsense(
                "memory that devices reach comes in whole pages, aligned to a power of two",
            ));
        }
        if size > most.saturating_sub(self.used(driver)) {
            return Err(Refusal::Allowance(most));
        }
        if self.pieces.iter().filter(|p| p.driver == driver).count() >= MOST {
            return Err(Refusal::Nonsense(
                "a driver has at most 256 pieces of memory",
            ));
        }
        let align = align.max(PAGE_SIZE);
        let found = self
            .ranges
            .iter()
            .find_map(|&(start, length)| self.find(start, length, (size, align, end_of(reach))));
        let start = found.ok_or(Refusal::NoMemory)?;
        let place = self.pieces.partition_point(|piece| piece.start < start);
        self.pieces.insert(
            place,
            Piece {
                driver,
                start,
                size,
                held: false,
            },
        );
        Ok(start)
    }

    /// The first place in a range.
    fn find(&self, start: u64, length: u64, (size, align, below): (u64, u64, u64)) -> Option<u64> {
        let end = (start + length).min(below);
        let mut at = start.checked_next_multiple_of(align)?;
        for piece in &self.pieces {
            if at.checked_add(size)? <= piece.start {
                break;
            }
            if piece.start + piece.size > at {
                at = (piece.start + piece.size).checked_next_multiple_of(align)?;
            }
        }
        (at.checked_add(size)? <= end).then_some(at)
    }

    /// The piece that a driver has at this address, if it is not held.
    #[must_use]
    pub fn at(&self, driver: Driver, start: u64) -> Option<Piece> {
        let is = |piece: &&Piece| piece.driver == driver && piece.start == start && !piece.held;
        self.pieces.iter().find(is).copied()
    }

    /// Whether a piece of the driver, which is clear and not held, covers this range.
    #[must_use]
    pub fn covers(&self, driver: Driver, start: u64, size: u64) -> bool {
        let end = start.checked_add(size);
        let covers = |piece: &Piece| {
            let inside =
                piece.start <= start && end.is_some_and(|end| end <= piece.start + piece.size);
            let is_shown = !piece.held && self.is_clear(piece.start, piece.size);
            piece.driver == driver && is_shown && inside
        };
        self.pieces.iter().any(covers)
    }

    /// Takes a piece back: it is free, and will be cleared.
    pub fn free(&mut self, start: u64) {
        if let Some(place) = self.pieces.iter().position(|piece| piece.start == start) {
            self.free_at(place);
        }
    }

    /// The same for all pieces of a driver that are held, or that are not.
    pub fn free_all(&mut self, driver: Driver, held: bool) {
        let is = |piece: &Piece| piece.driver == driver && piece.held == held;
        while let Some(place) = self.pieces.iter().position(is) {
            self.free_at(place);
        }
    }

    fn free_at(&mut self, place: usize) {
        let piece = self.pieces.remove(place);
        let (mut start, mut end) = (piece.start, piece.start + piece.size);
        self.stained.retain(|&(from, to)| {
            let is_apart = to < start || end < from;
            if !is_apart {
                (start, end) = (start.min(from), end.max(to));
            }
            is_apart
        });
        self.stained.push((start, end));
    }

    /// Whether no part of this range has to be cleared.
    #[must_use]
    pub fn is_clear(&self, start: u64, size: u64) -> bool {
        let end = start.saturating_add(size);
        let is_apart = |&(from, to): &(u64, u64)| to <= start || end <= from;
        self.stained.iter().all(is_apart)
    }

    /// Whether no memory has to be cleared.
    #[must_use]
    pub fn is_all_clear(&self) -> bool {
        self.stained.is_empty()
    }

    /// Clears some of the memory that has to be cleared, page by page. Returns whether there was any.
    pub fn clear_some(&mut self, mut clear: impl FnMut(u64)) -> bool {
        let Some((start, end)) = self.stained.first_mut() else {
            return false;
        };
        let until = (*start + PAGES_AT_ONCE * PAGE_SIZE).min(*end);
        for page in (*start..until).step_by(PAGE_SIZE as usize) {
            clear(page);
        }
        *start = until;
        if until == *end {
            self.stained.remove(0);
        }
        true
    }

    /// Holds the pieces of a driver that has ended, until its device has been reset.
    pub fn hold(&mut self, driver: Driver) {
        for piece in self.pieces.iter_mut().filter(|p| p.driver == driver) {
            piece.held = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pool, MOST as PIECES};
    use crate::refusal::Refusal;
    use alloc::vec;
    use alloc::vec::Vec;
    use services::device::Reach;

    const PAGE: u64 = 4096;
    const MOST: u64 = 1 << 20;

    #[test]
    fn pieces_are_apart_aligned_and_within_reach() {
        let low = (0x10_1000, 16 * PAGE);
        let high = (1 << 32, 16 * PAGE);
        let mut pool = Pool::new(vec![low, high]);
        let mut take = |size, align, reach| pool.take(0, MOST, (size, align, reach));
        assert_eq!(
            take(PAGE, 1, Reach::All),
            Ok(1 << 32),
            "low memory is for who needs it"
        );
        assert_eq!(take(PAGE, 4 * PAGE, Reach::All), Ok((1 << 32) + 4 * PAGE));
        assert_eq!(take(2 * PAGE, PAGE, Reach::All), Ok((1 << 32) + PAGE));
        assert_eq!(take(PAGE, 8 * PAGE, Reach::Bits32), Ok(0x10_8000));
        assert_eq!(take(8 * PAGE, PAGE, Reach::Low), Ok(0x10_9000));
        assert_eq!(take(8 * PAGE, PAGE, Reach::Low), Err(Refusal::NoMemory));
        assert_eq!(take(7 * PAGE, PAGE, Reach::Low), Ok(0x10_1000));
        for (size, align) in [(0, PAGE), (1, PAGE), (PAGE, 3), (PAGE, 0)] {
            let refused = take(size, align, Reach::All).unwrap_err();
            assert_eq!(refused.error(), proto::Error::Invalid);
        }
        assert_eq!(
            take(1 << 40, PAGE, Reach::All),
            Err(Refusal::Allowance(MOST))
        );
    }

    #[test]
    fn what_a_driver_has_is_counted_and_comes_back() {
        let mut pool = Pool::new(vec![(0x10_0000, 8 * PAGE)]);
        let want = (4 * PAGE, PAGE, Reach::All);
        let first = pool.take(0, 4 * PAGE, want).unwrap();
        assert_eq!(
            pool.take(0, 4 * PAGE, want),
            Err(Refusal::Allowance(4 * PAGE))
        );
        assert_eq!(pool.at(1, first), None, "another's piece");
        let second = pool.take(1, 4 * PAGE, want).unwrap();
        assert_eq!(pool.take(2, 4 * PAGE, want), Err(Refusal::NoMemory));
        // The driver ends: nobody gets its memory until the device has been reset.
        pool.hold(0);
        assert_eq!(pool.at(0, first), None, "a piece that is held");
        let taken = pool.take(2, 4 * PAGE, want);
        assert_eq!(
            taken,
            Err(Refusal::NoMemory),
            "S2: a device may still write to it"
        );
        pool.free_all(0, false);
        assert_eq!(
            pool.take(2, 4 * PAGE, want),
            Err(Refusal::NoMemory),
            "what the next one may free that has not reset it"
        );
        pool.free_all(1, true);
        assert_eq!(pool.take(2, 4 * PAGE, want), Err(Refusal::NoMemory));
        pool.free_all(0, true);
        assert_eq!(pool.used(0), 0);
        assert_eq!(pool.take(2, 4 * PAGE, want), Ok(first));
        assert!(pool.at(1, second).is_some());
    }

    #[test]
    fn what_a_channel_may_be_told_is_a_piece_of_ones_own() {
        let mut pool = Pool::new(vec![(0x10_0000, 8 * PAGE)]);
        let want = (2 * PAGE, PAGE, Reach::Low);
        let own = pool.take(0, MOST, want).unwrap();
        let next = pool.take(0, MOST, want).unwrap();
        let other = pool.take(1, MOST, want).unwrap();
        assert!(pool.covers(0, own, 2 * PAGE) && pool.covers(0, own + 5, 1));
        for (start, size) in [
            (own, 2 * PAGE + 1),
            (own - 1, 2),
            (next + PAGE, 2 * PAGE),
            (other, PAGE),
            (other + 4 * PAGE, 1),
            (own, u64::MAX),
            (u64::MAX, 2),
        ] {
            assert!(!pool.covers(0, start, size), "S2: {start:#x}+{size:#x}");
        }
        pool.hold(0);
        assert!(!pool.covers(0, own, 1), "S2: a piece that is held");
        pool.free(own);
        assert!(!pool.covers(0, own, 1), "S2: a piece that was given back");
    }

    /// Clears some of the pool. Returns how many pages.
    fn clear(pool: &mut Pool, memory: &mut [u8]) -> u64 {
        let mut pages = 0;
        pool.clear_some(|page| {
            memory[(page / PAGE) as usize] = 0;
            pages += 1;
        });
        pages
    }

    #[test]
    fn what_a_driver_had_is_cleared_in_pieces_before_another_has_it() {
        const PAGES: usize = 700;
        let mut pool = Pool::new(vec![(0, PAGES as u64 * PAGE)]);
        // The contents of a page: the driver that had it.
        let mut memory = [0; PAGES];
        let want = |pages: u64| (pages * PAGE, PAGE, Reach::All);
        let first = pool.take(0, u64::MAX, want(650)).unwrap();
        let second = pool.take(1, u64::MAX, want(50)).unwrap();
        assert!(pool.is_all_clear() && pool.covers(0, first, PAGE));
        memory.fill(1);
        pool.hold(0);
        pool.free_all(0, true);
        pool.free(second);
        // A request meanwhile is not refused, and gets the memory when it is clear.
        let large = pool.take(0, u64::MAX, want(640)).unwrap();
        let small = pool.take(2, u64::MAX, want(60)).unwrap();
        let mut turns = 0;
        for (driver, start, pages) in [(0, large, 640), (2, small, 60)] {
            let own = start / PAGE..start / PAGE + pages;
            let rule = "S2: a driver is shown what another one has left";
            while !pool.is_clear(start, pages * PAGE) {
                assert!(!pool.covers(driver, start, PAGE), "{rule}");
                let cleared = clear(&mut pool, &mut memory);
                let rule = "S1: others wait while all that a driver had is cleared";
                assert!((1..=16).contains(&cleared), "{rule}: {cleared} pages");
                turns += 1;
            }
            assert!(pool.covers(driver, start, pages * PAGE));
            let mut own = own.map(|page| memory[page as usize]);
            assert!(own.all(|whose| whose == 0), "{rule}");
        }
        assert!(pool.is_all_clear() && !pool.clear_some(|_| unreachable!()));
        assert_eq!(turns, PAGES.div_ceil(16));
    }

    /// Drivers come and go, and the memory of some is still to be cleared when it is held or freed again.
    #[test]
    fn nothing_is_given_that_is_not_clear() {
        const PAGES: u64 = 96;
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..100 {
            // Two adjacent ranges.
            let ranges = vec![(0, PAGES / 2 * PAGE), (PAGES / 2 * PAGE, PAGES / 2 * PAGE)];
            let mut pool = Pool::new(ranges);
            let mut memory = [0; PAGES as usize];
            // Driver, first page and number of pages, and whether the driver got access.
            let mut taken: Vec<(usize, u64, u64, bool)> = Vec::new();
            for _ in 0..300 {
                let driver = random.usize(..3);
                match random.u32(..8) {
                    0..3 => {
                        let pages = random.u64(1..40);
                        let want = (pages * PAGE, PAGE, Reach::All);
                        if let Ok(start) = pool.take(driver, u64::MAX, want) {
                            taken.push((driver, start / PAGE, pages, false));
                        }
                    }
                    3 => {
                        pool.hold(driver);
                        pool.free_all(driver, true);
                        taken.retain(|piece| piece.0 != driver);
                    }
                    4 if !taken.is_empty() => {
                        let (_, page, ..) = taken.swap_remove(random.usize(..taken.len()));
                        pool.free(page * PAGE);
                    }
                    _ => {
                        clear(&mut pool, &mut memory);
                    }
                }
                for (_, page, pages, shown) in &mut taken {
                    let own = *page as usize..(*page + *pages) as usize;
                    if !*shown && pool.is_clear(*page * PAGE, *pages * PAGE) {
                        *shown = true;
                        let clear = memory[own.clone()].iter().all(|whose| *whose == 0);
                        assert!(clear, "S2: it is what another one has left");
                    }
                    if *shown {
                        memory[own].fill(1);
                    }
                }
            }
            while clear(&mut pool, &mut memory) > 0 {}
            assert!(pool.is_all_clear());
        }
    }

    #[test]
    fn a_driver_has_so_many_pieces_and_no_more() {
        let mut pool = Pool::new(vec![(0, 2 * PIECES as u64 * PAGE)]);
        let mut take = |driver| pool.take(driver, u64::MAX, (PAGE, PAGE, Reach::All));
        assert!((0..PIECES).all(|_| take(0).is_ok()));
        assert_eq!(take(0).unwrap_err().error(), proto::Error::Invalid);
        assert!(take(1).is_ok(), "others have theirs");
    }
}
