//! On-demand reading of an image: which chunks of a process's memory its segment owes, and in which order they are
//! supplied.
//!
//! Chunks with kernel objects are not owed: objects are made before the process runs, and their pages have to be
//! present then. Nor are chunks of which the image has no page: they are zero. A restore makes all others owed
//! ([`services::memory::Supplier`]) and supplies them while the process runs, from front to back, but first those for
//! which a thread waits.

use crate::chain::{Bytes, Chain};
use crate::meta::{Meta, Place, Segment};
use abi::PAGE_SIZE;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use proto::layout::CHUNK;

/// Chunks of the memory of a process, by their numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// First number of each stretch, and the number behind its last one.
    stretches: BTreeMap<u64, u64>,
}

impl Owed {
    /// The chunks of which the image has pages, in itself or in its parents.
    #[must_use]
    pub fn of(meta: &Meta, process: u32) -> Self {
        let place = |segment| Place {
            process,
            segment,
            offset: 0,
        };
        // The runs of its memory.
        let (start, end) = (place(Segment::Memory), place(Segment::Control));
        let before = |end: Place| meta.runs.partition_point(|run| run.place < end);
        let own = &meta.runs[before(start)..before(end)];
        let before = |end: Place| meta.same.partition_point(|same| same.place() < end);
        let theirs = &meta.same[before(start)..before(end)];
        let mut owed = Owed::default();
        owed.add_pages(own.iter().map(|run| (run.place.offset, run.bytes())));
        owed.add_pages(theirs.iter().map(|same| (same.offset, same.bytes())));
        owed
    }

    /// Adds the chunks of these pages, given by offset and size in rising order.
    fn add_pages(&mut self, pages: impl Iterator<Item = (u64, u64)>) {
        let (mut from, mut to) = (0, 0);
        for (offset, bytes) in pages {
            let (first, behind) = (offset / CHUNK, (offset + bytes).div_ceil(CHUNK));
            if first > to {
                self.add(from, to);
                from = first;
            }
            to = behind;
        }
        self.add(from, to);
    }

    /// Adds a stretch, of which some chunks may be in the set already.
    fn add(&mut self, mut from: u64, mut to: u64) {
        if from == to {
            return;
        }
        while let Some((start, end)) = self.touching(from, to) {
            self.stretches.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.stretches.insert(from, to);
    }

    /// A stretch that overlaps or touches this one.
    fn touching(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let before = self.stretches.range(..=to).next_back();
        let (start, end) = before.map(|(start, end)| (*start, *end))?;
        (end >= from).then_some((start, end))
    }

    /// Removes the chunks that have kernel objects, and returns them.
    pub fn without_objects(&mut self, meta: &Meta, process: u32) -> Vec<u64> {
        let mut taken: Vec<u64> = Vec::new();
        let start = Place {
            process,
            segment: Segment::Memory,
            offset: 0,
        };
        for object in meta.objects_in(start, Segment::Memory.size()) {
            let number = object.place.offset / CHUNK;
            if self.take(number) {
                taken.push(number);
            }
        }
        taken
    }

    /// The stretches: first number, and the number behind the last one.
    pub fn stretches(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.stretches.iter().map(|(start, end)| (*start, *end))
    }

    /// Removes a chunk. Returns whether it was in the set.
    pub fn take(&mut self, number: u64) -> bool {
        let before = self.stretches.range(..=number).next_back();
        let found = before.filter(|(_, end)| **end > number);
        let Some((start, end)) = found.map(|(start, end)| (*start, *end)) else {
            return false;
        };
        self.stretches.remove(&start);
        if start < number {
            self.stretches.insert(start, number);
        }
        if number + 1 < end {
            self.stretches.insert(number + 1, end);
        }
        true
    }

    /// Removes the chunk to supply next: the one at the offset that a thread waits for, or the first one. Returns its
    /// number, and whether a thread waits for it.
    pub fn take_next(&mut self, wanted: Option<u64>) -> Option<(u64, bool)> {
        if let Some(number) = wanted.map(|offset| offset / CHUNK) {
            if self.take(number) {
                return Some((number, true));
            }
        }
        let (number, _) = self.stretches().next()?;
        self.take(number);
        Some((number, false))
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }
}

/// Reads the chunk with this number of the memory of a process: returns offset and size of its pages, from the first to
/// the last one that the image has. Missing pages between them are zero.
///
/// # Errors
/// A sentence, if a page cannot be read or does not match its checksum.
pub fn read_chunk<B: Bytes>(
    chain: &mut Chain<B>,
    process: u32,
    number: u64,
    into: &mut Vec<u8>,
) -> Result<(u64, u64), String> {
    into.resize(CHUNK as usize, 0);
    let (mut first, mut end) = (CHUNK, 0);
    for (at, page) in (0..)
        .step_by(PAGE_SIZE as usize)
        .zip(into.chunks_exact_mut(PAGE_SIZE as usize))
    {
        if chain.page(process, number * CHUNK + at, page)? {
            (first, end) = (first.min(at), at + PAGE_SIZE);
        } else {
            page.fill(0);
        }
    }
    let first = first.min(end);
    into.copy_within(first as usize..end as usize, 0);
    into.truncate((end - first) as usize);
    Ok((number * CHUNK + first, end - first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::tests::{first, image, open};
    use crate::meta::tests::{child, sample};
    use crate::meta::{Run, Same};
    use alloc::vec;

    fn run(process: u32, segment: Segment, offset: u64, pages: u32) -> Run {
        let place = Place {
            process,
            segment,
            offset,
        };
        Run { place, pages }
    }

    fn stretches(owed: &Owed) -> Vec<(u64, u64)> {
        owed.stretches().collect()
    }

    #[test]
    fn what_the_image_has_is_owed_but_where_objects_are() {
        use Segment::{Control, Memory};
        let mut meta = sample();
        meta.runs = vec![
            run(0, Memory, 0x2000, 1),
            run(0, Memory, 0xf000, 2),
            run(0, Memory, 0x2_0000, 15),
            run(0, Memory, 0x2_f000, 3),
            run(0, Memory, 0x9_0000, 1),
            run(0, Control, 0x20_0000, 1),
            run(1, Memory, 0x5_f000, 1),
        ];
        let same = |process, offset, pages| Same {
            process,
            offset,
            pages,
            theirs: 0,
        };
        meta.same = vec![same(0, 0x5_0000, 16), same(0, 0x8_8000, 8), same(1, 0, 17)];
        let mut owed = Owed::of(&meta, 0);
        assert_eq!(stretches(&owed), [(0, 4), (5, 6), (8, 10)]);
        assert_eq!(
            owed.without_objects(&meta, 0),
            [1],
            "A1: an object is made where its page is still to come"
        );
        assert_eq!(stretches(&owed), [(0, 1), (2, 4), (5, 6), (8, 10)]);
        assert_eq!(stretches(&Owed::of(&meta, 1)), [(0, 2), (5, 6)]);
        assert_eq!(stretches(&Owed::of(&meta, 2)), []);
    }

    #[test]
    fn who_waits_comes_first_and_nothing_comes_twice() {
        let mut owed = Owed::default();
        owed.add(7, 9);
        owed.add(2, 5);
        owed.add(5, 6);
        let at = |number| Some(number * CHUNK);
        let next = owed.take_next(at(4));
        assert_eq!(next, Some((4, true)), "S1: who waits comes first");
        assert_eq!(owed.take_next(at(4)), Some((2, false)), "it has come");
        assert_eq!(owed.take_next(at(8)), Some((8, true)));
        let mut rest = Vec::new();
        while let Some((number, waits)) = owed.take_next(at(100)) {
            assert!(!waits, "nobody waits for what is not owed");
            rest.push(number);
        }
        assert_eq!(rest, [3, 5, 7], "S3: each once, from front to back");
        assert!(owed.is_empty());
    }

    #[test]
    fn a_chunk_has_the_pages_that_it_had() {
        let first = first();
        let mut chain = Chain::new(open(&first), &[]).expect("it is whole");
        let mut bytes = Vec::new();
        let read = |chain: &mut Chain<&[u8]>, number, bytes: &mut Vec<u8>| {
            read_chunk(chain, 0, number, bytes).expect("it can be read")
        };
        assert_eq!(read(&mut chain, 0, &mut bytes), (0, CHUNK));
        let page = |bytes: &[u8], n: usize| bytes[n * PAGE_SIZE as usize + 17];
        let is: Vec<u8> = (0..16).map(|n| page(&bytes, n)).collect();
        let then: Vec<u8> = (17..29).collect();
        assert_eq!(is[..4], [1, 0, 0, 0], "A1: pages that are not there");
        assert_eq!(is[4..], then, "A1: pages of a chunk");
        // Bytes of an earlier chunk do not stay in the buffer.
        assert_eq!(read(&mut chain, 2, &mut bytes), (2 * CHUNK, 12 * PAGE_SIZE));
        assert_eq!(bytes.len() as u64, 12 * PAGE_SIZE);
        assert_eq!((page(&bytes, 0), page(&bytes, 11)), (46, 58));
        assert_eq!(read(&mut chain, 0, &mut bytes), (0, CHUNK));
        assert_eq!(page(&bytes, 1), 0, "A1: what another chunk had");
        assert_eq!(read(&mut chain, 3, &mut bytes), (3 * CHUNK, 0));
        assert!(bytes.is_empty());
    }

    #[test]
    fn an_incremental_image_leads_what_it_is_based_on() {
        let first = first();
        let mut second = child(open(&first).identity());
        second.same.pop();
        let bytes = image(&second, |run, page| (100 + run * 16 + page) as u8);
        let parents = Chain::new(open(&first), &second.same).expect("it has what is left to it");
        let mut chain = parents.led_by(open(&bytes));
        let mut chunk = Vec::new();
        read_chunk(&mut chain, 0, 0, &mut chunk).expect("it can be read");
        let page = |n: usize| chunk[n * PAGE_SIZE as usize];
        assert_eq!([0, 1, 2, 3, 4].map(page), [1, 100, 101, 116, 17]);
    }

    #[test]
    fn a_damaged_page_is_no_page() {
        let mut first = first();
        let at = first.len() - 200;
        let stored = open(&first).stored_bytes() as usize;
        // A byte of the last run.
        let at = at.min(first.len() - 4 * 8 - stored / 64);
        first[at] ^= 1;
        let mut chain = Chain::new(open(&first), &[]).expect("the description is whole");
        let mut bytes = Vec::new();
        let damaged = (0..3).any(|number| read_chunk(&mut chain, 0, number, &mut bytes).is_err());
        assert!(damaged, "A1: damaged bytes are given out");
    }
}
