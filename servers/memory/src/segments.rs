//! Segments: what is where, and what each fault and request changes.
//!
//! A segment is a window in the server's own address space, exported as a region. Of each chunk of a
//! segment a contiguous run of pages is present, shown by one mapping of physical memory in the
//! window. A fault beside the run lengthens it; pages that join it are zeroed then, and not before.
//!
//! A chunk that is shared by copy on write is mapped without the right to write, in every place;
//! whoever writes first gets a copy of the run, and the last place left takes the original over.
//!
//! Key types: [`Segments`], and [`Machine`], through which all effects go.
use crate::chunks::{Chunks, Index, CHUNK, PAGES};
use abi::access::{ALL, EXECUTE, OBJECTS, READ, WRITE};
use abi::PAGE_SIZE;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proto::Error;

/// Rights of a chunk that nobody shares.
const OWN: u64 = ALL;
/// Rights of a shared chunk.
const SHARED: u64 = READ | EXECUTE;

/// A fault brings in all absent pages of so many, aligned: neighbours are wanted next, and every
/// growth of a run costs as much as a fault.
pub const AROUND: u64 = 4;

/// A piece of physical memory and where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Address in the server's space.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Physical address.
    pub physical: u64,
    /// Rights, of [`abi::access`].
    pub rights: u64,
}

/// What the bookkeeping does to the world.
pub trait Machine {
    /// Makes a mapping: its handle, or `None` when the kernel's memory is out.
    fn map(&mut self, shown: Shown) -> Option<u64>;
    /// Changes a mapping: false if that is impossible.
    fn change(&mut self, mapping: u64, shown: Shown) -> bool;
    /// Takes a mapping away.
    fn unmap(&mut self, mapping: u64);
    /// Zeroes physical memory.
    fn zero(&mut self, physical: u64, size: u64);
    /// Copies physical memory.
    fn copy(&mut self, from: u64, to: u64, size: u64);
    /// Whether there are kernel objects in physical memory.
    fn has_objects(&mut self, physical: u64, size: u64) -> bool;
    /// Destroys all kernel objects in physical memory.
    fn destroy_objects(&mut self, physical: u64, size: u64);
}

/// The present pages of one chunk of a segment.
#[derive(Clone, Copy, Debug)]
struct Run {
    chunk: Index,
    /// First present page.
    first: u8,
    /// End of the present pages.
    end: u8,
    /// Mapped with all rights.
    own: bool,
    mapping: u64,
}

impl Run {
    fn shown(&self, window: u64, number: u64, physical: u64) -> Shown {
        let first = u64::from(self.first) * PAGE_SIZE;
        Shown {
            address: window + number * CHUNK + first,
            size: u64::from(self.end - self.first) * PAGE_SIZE,
            physical: physical + first,
            rights: if self.own { OWN } else { SHARED },
        }
    }
}

/// A segment.
#[derive(Debug)]
struct Segment {
    window: u64,
    size: u64,
    may_use_reserve: bool,
    /// By number of the chunk in the segment.
    runs: BTreeMap<u64, Run>,
    /// Pages present.
    resident: u64,
}

/// All segments and the memory they are made of.
#[derive(Debug, Default)]
pub struct Segments {
    chunks: Chunks,
    segments: Vec<Option<Segment>>,
    /// Runs in all segments, which is what the server's own memory is used for.
    runs: usize,
    /// Most of them.
    max_runs: usize,
}

/// Names a segment.
pub type Id = usize;

/// Most segments.
pub const MAX_SEGMENTS: usize = 4096;

impl Segments {
    /// No segments; `chunks` is the memory there is.
    #[must_use]
    pub fn new(chunks: Chunks) -> Self {
        // Sharing multiplies the runs of a chunk.
        let max_runs = chunks.total() * 2;
        Segments {
            chunks,
            segments: Vec::new(),
            runs: 0,
            max_runs,
        }
    }

    fn get(&mut self, id: Id) -> Result<&mut Segment, Error> {
        self.segments
            .get_mut(id)
            .and_then(Option::as_mut)
            .ok_or(Error::NotFound)
    }

    /// The number that the next segment will have.
    pub fn next_id(&self) -> Result<Id, Error> {
        let id = self
            .segments
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.segments.len());
        if id < MAX_SEGMENTS {
            Ok(id)
        } else {
            Err(Error::NoMemory)
        }
    }

    /// Makes a segment of `size` bytes with its window at this address (a multiple of the size of
    /// a chunk).
    pub fn create(&mut self, window: u64, size: u64, may_use_reserve: bool) -> Result<Id, Error> {
        let id = self.next_id()?;
        let segment = Segment {
            window,
            size,
            may_use_reserve,
            runs: BTreeMap::new(),
            resident: 0,
        };
        match self.segments.get_mut(id) {
            Some(place) => *place = Some(segment),
            None => self.segments.push(Some(segment)),
        }
        Ok(id)
    }

    /// Bytes of memory, of which free for this segment or, without one, for ordinary segments; and
    /// bytes present in the segment.
    #[must_use]
    pub fn usage(&self, id: Option<Id>) -> (u64, u64, u64) {
        let segment = id
            .and_then(|id| self.segments.get(id))
            .and_then(Option::as_ref);
        let free = self
            .chunks
            .available(segment.is_some_and(|s| s.may_use_reserve));
        (
            self.chunks.total() as u64 * CHUNK,
            free as u64 * CHUNK,
            segment.map_or(0, |s| s.resident * PAGE_SIZE),
        )
    }

    /// Serves a fault: `Ok` when the access can be tried again.
    pub fn fault(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        offset: u64,
        access: u64,
    ) -> Result<(), Error> {
        let segment = self.get(id)?;
        if offset >= segment.size {
            return Err(Error::Invalid);
        }
        let pages = segment.size.div_ceil(PAGE_SIZE) - offset / CHUNK * PAGES;
        let page = offset / PAGE_SIZE % PAGES;
        let first = page / AROUND * AROUND;
        let end = (first + AROUND).min(pages);
        self.bring(
            machine,
            id,
            offset / CHUNK,
            (first as u8, page as u8, end as u8),
            access,
        )
    }

    /// Makes page `at` of a chunk present for this access, and those from `first` to `end` with it
    /// as far as that is no more than lengthening the run.
    fn bring(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        number: u64,
        (first, at, end): (u8, u8, u8),
        access: u64,
    ) -> Result<(), Error> {
        let Segments {
            chunks,
            segments,
            runs,
            max_runs,
        } = self;
        let segment = segments
            .get_mut(id)
            .and_then(Option::as_mut)
            .ok_or(Error::NotFound)?;
        let window = segment.window;
        let Some(run) = segment.runs.get_mut(&number) else {
            if *runs >= *max_runs {
                return Err(Error::NoMemory);
            }
            let chunk = chunks
                .allocate(segment.may_use_reserve)
                .ok_or(Error::NoMemory)?;
            let physical = chunks.address(chunk);
            let mut run = Run {
                chunk,
                first,
                end,
                own: true,
                mapping: 0,
            };
            let shown = run.shown(window, number, physical);
            machine.zero(shown.physical, shown.size);
            let Some(mapping) = machine.map(shown) else {
                let _ = chunks.leave(chunk);
                chunks.release(chunk);
                return Err(Error::NoMemory);
            };
            run.mapping = mapping;
            segment.resident += u64::from(end - first);
            segment.runs.insert(number, run);
            *runs += 1;
            return Ok(());
        };
        let inside = (run.first..run.end).contains(&at);
        let mut changed = false;
        if !run.own && (!inside || access & (WRITE | OBJECTS) != 0) {
            unshare(chunks, machine, run, segment.may_use_reserve)?;
            changed = true;
        }
        let before = *run;
        if !inside {
            let physical = chunks.address(run.chunk);
            let (low, high) = (run.first.min(first), run.end.max(end));
            for (from, to) in [(low, run.first), (run.end, high)] {
                if from < to {
                    machine.zero(
                        physical + u64::from(from) * PAGE_SIZE,
                        u64::from(to - from) * PAGE_SIZE,
                    );
                }
            }
            (run.first, run.end) = (low, high);
            changed = true;
        }
        if changed {
            let shown = run.shown(window, number, chunks.address(run.chunk));
            if !machine.change(run.mapping, shown) {
                (run.first, run.end) = (before.first, before.end);
                return Err(Error::NoMemory);
            }
            segment.resident += u64::from(run.end - run.first);
            segment.resident -= u64::from(before.end - before.first);
        }
        Ok(())
    }

    /// Makes all pages of a range present and writable.
    pub fn populate(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        let (from, to) = self.range(id, offset, size)?;
        for (number, first, end) in pieces(from, to) {
            self.bring(machine, id, number, (first, first, end), WRITE)?;
            self.bring(machine, id, number, (first, end - 1, end), WRITE)?;
        }
        Ok(())
    }

    /// The range in pages, outermost.
    fn range(&mut self, id: Id, offset: u64, size: u64) -> Result<(u64, u64), Error> {
        let segment = self.get(id)?;
        let end = offset.checked_add(size).filter(|end| *end <= segment.size);
        let end = end.ok_or(Error::Invalid)?;
        Ok((offset / PAGE_SIZE, end.div_ceil(PAGE_SIZE)))
    }

    /// Gives the pages of a range back; objects in them die.
    pub fn discard(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        if !offset.is_multiple_of(PAGE_SIZE) || !size.is_multiple_of(PAGE_SIZE) {
            return Err(Error::Invalid);
        }
        let (from, to) = self.range(id, offset, size)?;
        let Segments {
            chunks,
            segments,
            runs,
            ..
        } = self;
        let segment = segments
            .get_mut(id)
            .and_then(Option::as_mut)
            .ok_or(Error::NotFound)?;
        if from >= to {
            return Ok(());
        }
        let numbers: Vec<u64> = segment
            .runs
            .range(from / PAGES..=(to - 1) / PAGES)
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            let low = from.saturating_sub(number * PAGES).min(PAGES) as u8;
            let high = (to - number * PAGES).min(PAGES) as u8;
            let Some(run) = segment.runs.get_mut(&number) else {
                continue;
            };
            let (low, high) = (low.max(run.first), high.min(run.end));
            if low >= high {
                continue;
            }
            if low == run.first && high == run.end {
                segment.resident -= u64::from(run.end - run.first);
                let run = *run;
                segment.runs.remove(&number);
                *runs -= 1;
                drop_run(chunks, machine, &run);
                continue;
            }
            let before = *run;
            if low > run.first && high < run.end {
                // In the middle of the run: the pages stay, as zero pages of one's own.
                if !run.own {
                    unshare(chunks, machine, run, segment.may_use_reserve)?;
                }
            } else if low == run.first {
                run.first = high;
            } else {
                run.end = low;
            }
            let physical = chunks.address(run.chunk);
            let shown = run.shown(segment.window, number, physical);
            machine.change(run.mapping, shown);
            // A shared chunk has no objects, and its pages are still someone else's.
            if run.own {
                let start = physical + u64::from(low) * PAGE_SIZE;
                let size = u64::from(high - low) * PAGE_SIZE;
                machine.destroy_objects(start, size);
                if run.first == before.first && run.end == before.end {
                    machine.zero(start, size);
                }
            }
            segment.resident -= u64::from(before.end - before.first);
            segment.resident += u64::from(run.end - run.first);
        }
        Ok(())
    }

    /// Makes the (new, empty) segment `to` a copy of `from`. If memory runs out on the way, what
    /// has been copied stays, and the caller destroys `to`.
    pub fn copy(&mut self, machine: &mut impl Machine, from: Id, to: Id) -> Result<(), Error> {
        let numbers: Vec<u64> = self.get(from)?.runs.keys().copied().collect();
        self.get(to)?;
        for number in numbers {
            if self.runs >= self.max_runs {
                return Err(Error::NoMemory);
            }
            let source = self.get(from)?;
            let window = source.window;
            let Some(run) = source.runs.get_mut(&number) else {
                continue;
            };
            let original = *run;
            let physical = self.chunks.address(original.chunk);
            let shown = original.shown(window, number, physical);
            let target_window = self.get(to)?.window;
            let may_use_reserve = self.get(to)?.may_use_reserve;
            let mut copy = original;
            if original.own && machine.has_objects(shown.physical, shown.size) {
                // Pages with objects are never copied on write.
                let chunk = self
                    .chunks
                    .allocate(may_use_reserve)
                    .ok_or(Error::NoMemory)?;
                let at = self.chunks.address(chunk);
                machine.copy(shown.physical, at + (shown.physical - physical), shown.size);
                copy.chunk = chunk;
            } else {
                let mut shared = original;
                shared.own = false;
                // No write may slip in between: first the right to write goes.
                if original.own
                    && !machine.change(original.mapping, shared.shown(window, number, physical))
                {
                    return Err(Error::NoMemory);
                }
                if let Some(run) = self.get(from)?.runs.get_mut(&number) {
                    *run = shared;
                }
                self.chunks.share(original.chunk);
                copy.own = false;
            }
            let at = self.chunks.address(copy.chunk);
            let Some(mapping) = machine.map(copy.shown(target_window, number, at)) else {
                if self.chunks.leave(copy.chunk) {
                    self.chunks.release(copy.chunk);
                }
                return Err(Error::NoMemory);
            };
            copy.mapping = mapping;
            let target = self.get(to)?;
            target.resident += u64::from(copy.end - copy.first);
            target.runs.insert(number, copy);
            self.runs += 1;
        }
        Ok(())
    }

    /// Ends a segment: its window, so that its addresses can be used again.
    pub fn destroy(&mut self, machine: &mut impl Machine, id: Id) -> Result<(u64, u64), Error> {
        let place = self.segments.get_mut(id).ok_or(Error::NotFound)?;
        let segment = place.take().ok_or(Error::NotFound)?;
        for run in segment.runs.values() {
            drop_run(&mut self.chunks, machine, run);
        }
        self.runs -= segment.runs.len();
        Ok((segment.window, segment.size))
    }
}

/// Gives a run a chunk of its own with the same content. The mapping is not yet changed.
fn unshare(
    chunks: &mut Chunks,
    machine: &mut impl Machine,
    run: &mut Run,
    may_use_reserve: bool,
) -> Result<(), Error> {
    if chunks.is_shared(run.chunk) {
        let chunk = chunks.allocate(may_use_reserve).ok_or(Error::NoMemory)?;
        let first = u64::from(run.first) * PAGE_SIZE;
        machine.copy(
            chunks.address(run.chunk) + first,
            chunks.address(chunk) + first,
            u64::from(run.end - run.first) * PAGE_SIZE,
        );
        // Shared, so this is not the last place.
        let _ = chunks.leave(run.chunk);
        run.chunk = chunk;
    }
    run.own = true;
    Ok(())
}

/// Takes a run out of the world. Its chunk is cleared of objects when nobody else has it; its data
/// is overwritten before a page is shown again.
fn drop_run(chunks: &mut Chunks, machine: &mut impl Machine, run: &Run) {
    machine.unmap(run.mapping);
    if chunks.leave(run.chunk) {
        // All of it: a run may have been longer once.
        machine.destroy_objects(chunks.address(run.chunk), CHUNK);
        chunks.release(run.chunk);
    }
}

/// The chunks that the pages `from..to` touch: number, first page, end.
fn pieces(from: u64, to: u64) -> impl Iterator<Item = (u64, u8, u8)> {
    let numbers = if from < to {
        from / PAGES..(to - 1) / PAGES + 1
    } else {
        0..0
    };
    numbers.map(move |number| {
        let start = number * PAGES;
        (
            number,
            from.saturating_sub(start).min(PAGES) as u8,
            (to - start).min(PAGES) as u8,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{Machine, Segments, Shown};
    use crate::chunks::{Chunks, CHUNK};
    use abi::access::{READ, WRITE};
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use alloc::vec::Vec;
    use proto::Error;

    /// Physical memory with one byte and perhaps an object per page.
    #[derive(Default)]
    struct Model {
        bytes: BTreeMap<u64, u8>,
        objects: BTreeMap<u64, ()>,
        mappings: BTreeMap<u64, Shown>,
        next: u64,
        fail_map: bool,
    }

    impl Model {
        fn find(&self, address: u64) -> Option<(u64, u64)> {
            self.mappings.values().find_map(|m| {
                (m.address..m.address + m.size)
                    .contains(&address)
                    .then(|| (m.physical + (address - m.address), m.rights))
            })
        }
    }

    impl Machine for Model {
        fn map(&mut self, shown: Shown) -> Option<u64> {
            if self.fail_map {
                return None;
            }
            for m in self.mappings.values() {
                assert!(
                    shown.address + shown.size <= m.address || m.address + m.size <= shown.address
                );
            }
            self.next += 1;
            self.mappings.insert(self.next, shown);
            Some(self.next)
        }
        fn change(&mut self, mapping: u64, shown: Shown) -> bool {
            assert!(shown.size > 0);
            self.mappings.insert(mapping, shown).is_some()
        }
        fn unmap(&mut self, mapping: u64) {
            self.mappings.remove(&mapping).unwrap();
        }
        fn zero(&mut self, physical: u64, size: u64) {
            for page in (physical..physical + size).step_by(4096) {
                assert!(!self.objects.contains_key(&page), "zeroed over an object");
                self.bytes.insert(page, 0);
            }
        }
        fn copy(&mut self, from: u64, to: u64, size: u64) {
            for page in (0..size).step_by(4096) {
                self.bytes.insert(to + page, self.bytes[&(from + page)]);
            }
        }
        fn has_objects(&mut self, physical: u64, size: u64) -> bool {
            self.objects
                .range(physical..physical + size)
                .next()
                .is_some()
        }
        fn destroy_objects(&mut self, physical: u64, size: u64) {
            self.objects
                .retain(|page, ()| !(physical..physical + size).contains(page));
        }
    }

    struct World {
        segments: Segments,
        model: Model,
        windows: Vec<(usize, u64)>,
        created: u64,
    }

    const SIZE: u64 = 8 * CHUNK;

    impl World {
        fn new(chunks: u64) -> Self {
            let mut memory = Chunks::new();
            memory.add(0x10_0000, chunks * CHUNK);
            memory.finish(0);
            let mut model = Model::default();
            // What was there before.
            for page in 0..chunks * 16 {
                model.bytes.insert(0x10_0000 + page * 4096, 0xee);
            }
            World {
                segments: Segments::new(memory),
                model,
                windows: Vec::new(),
                created: 0,
            }
        }

        fn create(&mut self) -> usize {
            self.created += 1;
            let window = 0x1000_0000_0000 + self.created * 16 * SIZE;
            let id = self.segments.create(window, SIZE, false).unwrap();
            self.windows.retain(|(other, _)| *other != id);
            self.windows.push((id, window));
            id
        }

        fn window(&self, id: usize) -> u64 {
            self.windows
                .iter()
                .find(|(other, _)| *other == id)
                .unwrap()
                .1
        }

        /// An access of a program: faults until it succeeds.
        fn access(&mut self, id: usize, page: u64, write: Option<u8>) -> Result<u8, Error> {
            let need = if write.is_some() { WRITE } else { READ };
            for _ in 0..2 {
                if let Some((physical, rights)) = self.model.find(self.window(id) + page * 4096) {
                    if rights & need != 0 {
                        if let Some(value) = write {
                            self.model.bytes.insert(physical, value);
                        }
                        return Ok(self.model.bytes[&physical]);
                    }
                }
                self.segments
                    .fault(&mut self.model, id, page * 4096, need)?;
            }
            panic!("a served fault did not help");
        }
    }

    #[test]
    fn zero_pages_appear_and_go() {
        let mut w = World::new(16);
        let id = w.create();
        assert_eq!(w.access(id, 5, None), Ok(0));
        assert_eq!(w.access(id, 5, Some(7)), Ok(7));
        assert_eq!(w.access(id, 0, Some(1)), Ok(1));
        assert_eq!(w.access(id, 5, None), Ok(7));
        assert_eq!(w.model.mappings.len(), 1);
        assert_eq!(
            w.segments.usage(Some(id)),
            (16 * CHUNK, 15 * CHUNK, 8 * 4096)
        );
        w.segments
            .discard(&mut w.model, id, 5 * 4096, 4096)
            .unwrap();
        assert_eq!(w.access(id, 5, None), Ok(0));
        assert_eq!(w.access(id, 0, None), Ok(1));
        assert_eq!(
            w.segments.fault(&mut w.model, id, SIZE, READ),
            Err(Error::Invalid)
        );
        assert_eq!(
            w.segments.fault(&mut w.model, id + 1, 0, READ),
            Err(Error::NotFound)
        );
        w.segments.destroy(&mut w.model, id).unwrap();
        assert!(w.model.mappings.is_empty());
        assert_eq!(w.segments.usage(None).1, 16 * CHUNK);
    }

    #[test]
    fn memory_runs_out_and_comes_back() {
        let mut w = World::new(2);
        let id = w.create();
        assert_eq!(w.access(id, 0, None), Ok(0));
        assert_eq!(w.access(id, 16, None), Ok(0));
        assert_eq!(w.access(id, 32, None), Err(Error::NoMemory));
        assert_eq!(
            w.segments.populate(&mut w.model, id, 0, SIZE),
            Err(Error::NoMemory)
        );
        w.segments.discard(&mut w.model, id, 0, CHUNK).unwrap();
        w.model.fail_map = true;
        assert_eq!(w.access(id, 32, None), Err(Error::NoMemory));
        w.model.fail_map = false;
        assert_eq!(w.access(id, 32, None), Ok(0));
    }

    #[test]
    fn populate_makes_every_page_present() {
        let mut w = World::new(16);
        let id = w.create();
        w.access(id, 18, Some(9)).unwrap();
        w.segments
            .populate(&mut w.model, id, 3 * 4096 + 5, 40 * 4096)
            .unwrap();
        let window = w.window(id);
        for page in 3..44 {
            let (_, rights) = w.model.find(window + page * 4096).unwrap();
            assert_ne!(rights & WRITE, 0);
        }
        assert_eq!(w.access(id, 18, None), Ok(9));
        assert_eq!(
            w.segments.populate(&mut w.model, id, SIZE, 1),
            Err(Error::Invalid)
        );
        assert_eq!(
            w.segments.populate(&mut w.model, id, 4096, u64::MAX),
            Err(Error::Invalid)
        );
    }

    #[test]
    fn objects_do_not_survive_their_page() {
        let mut w = World::new(4);
        let a = w.create();
        w.access(a, 1, Some(3)).unwrap();
        let (physical, _) = w.model.find(w.window(a) + 4096).unwrap();
        w.model.objects.insert(physical, ());
        let b = w.create();
        w.segments.copy(&mut w.model, a, b).unwrap();
        // The page with the object was copied at once, without the object.
        assert_eq!(w.model.objects.len(), 1);
        assert_eq!(w.access(b, 1, None), Ok(3));
        assert_eq!(w.access(a, 1, Some(4)), Ok(4));
        assert_eq!(w.access(b, 1, None), Ok(3));
        w.segments.destroy(&mut w.model, a).unwrap();
        assert!(w.model.objects.is_empty());
    }

    /// Segments against plain arrays, a few thousand random steps.
    #[test]
    fn segments_behave_like_arrays() {
        for seed in 1..40u64 {
            let mut w = World::new(40);
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = |n: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % n
            };
            let mut plain: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
            for _ in 0..1500 {
                let ids: Vec<usize> = plain.keys().copied().collect();
                let id = ids.get(random(ids.len().max(1) as u64) as usize).copied();
                let page = random(128);
                match (random(40), id) {
                    (0..=1, _) | (_, None) if plain.len() < 5 => {
                        let id = w.create();
                        plain.insert(id, vec![0; 128]);
                    }
                    (2, Some(id)) if plain.len() < 5 => {
                        let new = w.create();
                        match w.segments.copy(&mut w.model, id, new) {
                            Ok(()) => {
                                let content = plain[&id].clone();
                                plain.insert(new, content);
                            }
                            Err(error) => {
                                assert_eq!(error, Error::NoMemory);
                                w.segments.destroy(&mut w.model, new).unwrap();
                            }
                        }
                    }
                    (3, Some(id)) => {
                        w.segments.destroy(&mut w.model, id).unwrap();
                        plain.remove(&id);
                    }
                    (4..=6, Some(id)) => {
                        let size = random(128 - page + 1);
                        let done = w
                            .segments
                            .discard(&mut w.model, id, page * 4096, size * 4096);
                        if done.is_ok() {
                            plain.get_mut(&id).unwrap()[page as usize..(page + size) as usize]
                                .fill(0);
                        } else {
                            // Out of memory in the middle: pages before are gone, later not.
                            for p in page..page + size {
                                if let Ok(value) = w.access(id, p, None) {
                                    plain.get_mut(&id).unwrap()[p as usize] = value;
                                }
                            }
                        }
                    }
                    (7..=20, Some(id)) => {
                        let value = random(255) as u8 + 1;
                        if w.access(id, page, Some(value)).is_ok() {
                            plain.get_mut(&id).unwrap()[page as usize] = value;
                        }
                    }
                    (_, Some(id)) => {
                        if let Ok(value) = w.access(id, page, None) {
                            assert_eq!(value, plain[&id][page as usize], "seed {seed}");
                        }
                    }
                    (_, None) => {}
                }
            }
            for id in plain.keys() {
                w.segments.destroy(&mut w.model, *id).unwrap();
            }
            assert!(w.model.mappings.is_empty());
            assert_eq!(w.segments.usage(None).1, 40 * CHUNK);
        }
    }
}
