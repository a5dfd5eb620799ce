//! Chunks that a segment owes: their bytes are still to come from its *supplier*.
//!
//! A server that fills a segment from elsewhere (as a restore does, from an image) need not have read all of it before
//! a process runs in it. As the supplier it says which chunks are owed, and supplies one after the other; a thread that
//! touches an owed chunk waits until it has come. An owed chunk is promised to the segment's account and taken when it
//! comes, so that its supply never fails because others have taken the memory.
//!
//! Requests that would need owed bytes are refused with [`Error::WouldBlock`]: copying and freezing a segment that owes
//! chunks, and making single pages of an owed chunk present or giving them back; such a chunk is then wanted next.
use super::{accounts, Id, Machine, Refusal, Run, Segment, Segments, Work, CHUNK, PAGES};
use abi::PAGE_SIZE;
use alloc::collections::BTreeMap;
use proto::Error;

/// The chunks that a segment owes. Stored as stretches, of which there are at most as many as owed chunks: each takes
/// the memory that is kept for the run of a free chunk.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// First number of each stretch, and the number behind its last one.
    stretches: BTreeMap<u64, u64>,
    /// The number of owed chunks.
    count: usize,
    /// The chunk that a thread waits for, to be supplied next.
    wanted: Option<u64>,
}

impl Owed {
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The stretch that has this chunk, or the first one behind it.
    fn from(&self, number: u64) -> Option<(u64, u64)> {
        let before = self.stretches.range(..=number).next_back();
        let stretch = before.filter(|(_, end)| **end > number);
        let stretch = stretch.or_else(|| self.stretches.range(number..).next());
        stretch.map(|(start, end)| (*start, *end))
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.from(number).is_some_and(|(start, _)| start <= number)
    }

    /// Whether any chunk is owed from this one on, and before `end`.
    pub(super) fn any(&self, number: u64, end: u64) -> bool {
        self.from(number).is_some_and(|(start, _)| start < end)
    }

    fn add(&mut self, from: u64, to: u64) {
        self.stretches.insert(from, to);
        self.count += (to - from) as usize;
    }

    /// Takes the chunks `from..to`, all of one stretch, out of the set.
    fn remove(&mut self, from: u64, to: u64) {
        let Some((start, end)) = self.from(from) else {
            return;
        };
        self.stretches.remove(&start);
        if start < from {
            self.stretches.insert(start, from);
        }
        if to < end {
            self.stretches.insert(to, end);
        }
        self.count -= (to - from) as usize;
        self.wanted = self.wanted.filter(|wanted| !(from..to).contains(wanted));
    }
}

/// The answer to a supplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How many chunks are still owed.
    pub chunks: u64,
    /// The offset of the chunk that a thread waits for.
    pub wanted: Option<u64>,
}

impl Segments {
    /// Marks the `size` bytes of chunks from `offset` on, of which no page is present, as owed. Errors: `Invalid` also
    /// if the segment is a copy, is frozen, has some of these chunks, or owes some already and not all; `NoMemory` if
    /// its account may not take so many.
    pub fn owe(&mut self, id: Id, offset: u64, size: u64) -> Result<(), Refusal> {
        let segment = self.get(id)?;
        let end = offset.checked_add(size);
        let end = end.filter(|end| *end <= segment.size.next_multiple_of(CHUNK));
        let end = end.ok_or(Error::Invalid)?;
        let whole = offset.is_multiple_of(CHUNK) && size.is_multiple_of(CHUNK) && size > 0;
        let (from, to) = (offset / CHUNK, end / CHUNK);
        let plain = segment.below.is_none() && segment.copy.is_none() && segment.original.is_none();
        let there = segment.runs.from(from).next();
        let is_there = there.is_some_and(|(number, _)| *number < to);
        let known = segment.owed.from(from);
        if whole && known.is_some_and(|(start, end)| start <= from && to <= end) {
            return Ok(());
        }
        if !whole || !plain || is_there || segment.owed.any(from, to) {
            return Err(Error::Invalid.into());
        }
        let (account, count) = (segment.account, (to - from) as usize);
        let owed = self.accounts.owe(account, count, self.chunks.free());
        self.or_again(owed)?;
        self.segment(id)?.owed.add(from, to);
        Ok(())
    }

    /// Supplies the pages of this range, all of one chunk, from the same places in the first chunk of the segment
    /// `source`. The other pages of the chunk become zero, all of them if the size is 0. A chunk that is not owed any
    /// more has come before, and stays as it is.
    pub fn supply(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        (offset, size): (u64, u64),
        source: Id,
    ) -> Result<Left, Refusal> {
        let end = offset.checked_add(size).ok_or(Error::Invalid)?;
        let number = offset / CHUNK;
        let pages = offset.is_multiple_of(PAGE_SIZE) && size.is_multiple_of(PAGE_SIZE);
        let segment = self.get(id)?;
        // Checked first: `number + 1` would overflow for the highest offsets.
        if !pages || offset >= segment.size || end > segment.size.min((number + 1) * CHUNK) {
            return Err(Error::Invalid.into());
        }
        if !segment.owed.contains(number) {
            return Ok(self.left(id)?);
        }
        let came = match size {
            0 => Ok(()),
            _ => self.take_in(machine, id, (number, offset, size), source),
        };
        self.or_again(came)?;
        let segment = self.segment(id)?;
        segment.owed.remove(number, number + 1);
        let account = segment.account;
        self.accounts.change(account, |a| a.owed -= 1);
        Ok(self.left(id)?)
    }

    /// Copies pages into a chunk of an owing segment that has none yet.
    fn take_in(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        (number, offset, size): (u64, u64, u64),
        source: Id,
    ) -> Result<(), Error> {
        let from = self.get(source)?;
        let plain = from.below.is_none() && from.copy.is_none() && from.owed.is_empty();
        let first = (offset / PAGE_SIZE % PAGES) as u8;
        let end = first + (size / PAGE_SIZE) as u8;
        let has = |run: &&Run| run.first <= first && end <= run.end;
        let run = from.runs.get(0).filter(has).filter(|_| plain);
        let bytes = self.chunks.address(run.ok_or(Error::Invalid)?.chunk);
        let segment = self.get(id)?;
        let (window, account) = (segment.window, segment.account);
        // The chunk is promised to the account, so there is one.
        let chunk = self.chunks.allocate().ok_or(Error::NoMemory)?;
        let physical = self.chunks.address(chunk);
        let mut run = Run {
            chunk,
            first,
            end,
            own: true,
            objects: false,
            mapping: 0,
        };
        let shown = run.shown(window, number, physical);
        machine.copy(bytes + (shown.physical - physical), shown.physical, size);
        let Some(mapping) = machine.map(shown) else {
            let _ = self.chunks.leave(chunk);
            self.chunks.release(chunk);
            return Err(Error::NoMemory);
        };
        run.mapping = mapping;
        let segment = self.segment(id)?;
        segment.resident += run.pages();
        segment.runs.insert(number, run);
        self.runs += 1;
        self.accounts.change(account, |a| {
            a.chunks += 1;
            a.runs += 1;
        });
        Ok(())
    }

    /// What the segment still owes.
    pub fn left(&self, id: Id) -> Result<Left, Error> {
        let owed = &self.get(id)?.owed;
        Ok(Left {
            chunks: owed.count as u64,
            wanted: owed.wanted.map(|number| number * CHUNK),
        })
    }

    /// [`Error::WouldBlock`] for a chunk that is owed, which is then wanted next.
    pub(super) fn has_come(&mut self, id: Id, number: u64) -> Result<(), Error> {
        let owed = &mut self.segment(id)?.owed;
        if owed.is_empty() || !owed.contains(number) {
            return Ok(());
        }
        owed.wanted = Some(number);
        Err(Error::WouldBlock)
    }

    /// [`Error::WouldBlock`] for a segment that owes chunks.
    pub(super) fn all_has_come(&self, id: Id) -> Result<(), Error> {
        match self.get(id)?.owed.is_empty() {
            true => Ok(()),
            false => Err(Error::WouldBlock),
        }
    }

    /// Ends the debt for the chunks that are wholly in the pages `from..to`, which are discarded. Returns whether the
    /// step sufficed. [`Error::WouldBlock`] if an owed chunk is only partly in the range.
    pub(super) fn waive(
        &mut self,
        id: Id,
        (from, to): (u64, u64),
        work: &mut Work,
    ) -> Result<bool, Error> {
        if self.get(id)?.owed.is_empty() {
            return Ok(true);
        }
        let pages = self.get(id)?.size / PAGE_SIZE;
        let (first, end) = (from.div_ceil(PAGES), to / PAGES);
        // The last chunk may not be whole.
        let end = if to == pages { to.div_ceil(PAGES) } else { end };
        for part in [from / PAGES, (to - 1) / PAGES] {
            if part < first || part >= end {
                self.has_come(id, part)?;
            }
        }
        let mut number = first;
        while let Some((start, behind)) = self.get(id)?.owed.from(number) {
            let (start, behind) = (start.max(first), behind.min(end));
            if start >= behind {
                break;
            }
            if work.is_over() {
                return Ok(false);
            }
            work.spend(1);
            let segment = self.segment(id)?;
            segment.owed.remove(start, behind);
            let account = segment.account;
            let count = (behind - start) as usize;
            self.accounts.change(account, |a| a.owed -= count);
            number = behind;
        }
        Ok(true)
    }
}

impl Segment {
    /// Ends its debt, since it ends. Returns its account, and how many chunks are no longer promised for it.
    pub(super) fn forgive(&mut self) -> (accounts::Id, usize) {
        let owed = core::mem::take(&mut self.owed);
        (self.account, owed.count)
    }
}
