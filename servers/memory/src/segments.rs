//! Segments: their contents, and how each fault and request changes them.
//!
//! A segment is a window in the server's own address space, exported as a region. In each chunk of a segment at most
//! one contiguous run of pages is present, shown by one mapping of physical memory in the window. A fault beside the
//! run lengthens it; pages that join it are zeroed then, and not before.
//!
//! A chunk that is shared by copy on write is mapped without the right to write, in every place; the first place that
//! is written to gets a copy of the run, and the last place takes the original over. A segment can also be frozen as a
//! whole ([`frozen`]).
//!
//! A chunk is mapped without the right to have kernel objects until a client makes one there. So the server knows which
//! chunks may hold objects ([`Segments::objects_from`]), and the others need not be searched.
//!
//! The bytes of a chunk may be still to come, from a supplier ([`owed`]).
//!
//! **Nothing takes long.** Work that a client can make large (populating, discarding, copying, ending a segment) is
//! done in steps of at most [`STEP`] units of work and the last chunk's, and between two steps the server serves other
//! clients. The client gets how far its request has come, and asks for the rest; a segment that has ended belongs to no
//! client and is taken apart by [`Segments::reap`].
//!
//! Key types: [`Segments`], and [`Machine`], through which all effects go.
use crate::accounts::{self, Accounts, Limits};
use crate::chunks::{Chunks, Index, CHUNK, PAGES};
use abi::access::{ALL, EXECUTE, OBJECTS, READ, WRITE};
use abi::PAGE_SIZE;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proto::Error;
use runs::Runs;

pub mod frozen;
pub mod owed;
mod runs;

/// Rights of a chunk that has one user and no objects.
const OWN: u64 = READ | WRITE | EXECUTE;
/// Rights of a chunk that may hold objects.
const WITH_OBJECTS: u64 = ALL;
/// Rights of a shared chunk.
const SHARED: u64 = READ | EXECUTE;

/// A fault makes all absent pages of this many, aligned, present: neighbours are usually touched next, and every growth
/// of a run costs as much as a fault.
pub const AROUND: u64 = 4;

/// Units of work of a step, after which it ends. A unit is a mapping made, changed or taken away, a page zeroed or
/// copied, an object destroyed, a search, or a run skipped.
pub const STEP: u64 = 64;

/// Most units of work of a step: the last run that it begins is finished, which can mean to search for objects, to copy
/// and to zero a chunk, and to change a mapping.
pub const MOST_WORK: u64 = STEP + 2 * PAGES + 4;

/// A piece of physical memory and where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Address in the server's space.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Physical address, or the offset in the region below a frozen segment.
    pub physical: u64,
    /// Rights, of [`abi::access`].
    pub rights: u64,
}

/// The effects of the bookkeeping, which tests replace.
pub trait Machine {
    /// Makes a mapping: its handle, or `None` if there is no kernel memory.
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
    /// Destroys at most `most` kernel objects in physical memory, and returns how many. Fewer than `most` means that
    /// there is none left.
    fn destroy_objects(&mut self, physical: u64, size: u64, most: u64) -> u64;
    /// Exports this window of the server's space as the segment: false if that is impossible.
    fn export(&mut self, id: Id, window: u64, size: u64) -> bool;
    /// Makes the segment's region show this window of its own, without rights: the segment was a copy, and has no
    /// memory any more.
    fn withdraw(&mut self, id: Id, window: u64, size: u64);
    /// Exports this window as the region below the segment, read-only. Returns false if that is impossible.
    fn begin_below(&mut self, id: Id, window: u64, size: u64) -> bool;
    /// [`Machine::map`], of the region below the segment.
    fn map_below(&mut self, id: Id, shown: Shown) -> Option<u64>;
    /// [`Machine::change`], of the region below the segment.
    fn change_below(&mut self, id: Id, mapping: u64, shown: Shown) -> bool;
    /// Ends the region below the segment.
    fn end_below(&mut self, id: Id);
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// With this error.
    Error(Error),
    /// There may be memory when ended segments have been taken apart: the same request is to be made again after a step
    /// of that ([`Segments::reap`]).
    Again,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Error(error)
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is done.
    Done,
    /// A step is done; this many bytes from the start of the range have been served.
    More(u64),
}

/// The work of a step.
struct Work {
    left: u64,
}

impl Work {
    const fn new() -> Self {
        Work { left: STEP }
    }

    fn spend(&mut self, units: u64) {
        self.left = self.left.saturating_sub(units);
    }

    const fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Destroys objects in physical memory, as many as the step allows. Returns whether none is left.
    fn clear(&mut self, machine: &mut impl Machine, physical: u64, size: u64) -> bool {
        let most = self.left;
        let gone = machine.destroy_objects(physical, size, most);
        self.spend(gone + 1);
        gone < most
    }
}

/// The present pages of one chunk of a segment.
#[derive(Clone, Copy, Debug)]
struct Run {
    chunk: Index,
    /// First present page.
    first: u8,
    /// End of the present pages.
    end: u8,
    /// Mapped with the right to write; the chunk is in no other place.
    own: bool,
    /// Mapped with the right to have objects as well. Never without `own`.
    objects: bool,
    mapping: u64,
}

impl Run {
    fn pages(&self) -> u64 {
        u64::from(self.end - self.first)
    }

    fn shown(&self, window: u64, number: u64, physical: u64) -> Shown {
        let first = u64::from(self.first) * PAGE_SIZE;
        Shown {
            address: window + number * CHUNK + first,
            size: self.pages() * PAGE_SIZE,
            physical: physical + first,
            rights: match (self.own, self.objects) {
                (false, _) => SHARED,
                (true, false) => OWN,
                (true, true) => WITH_OBJECTS,
            },
        }
    }
}

/// The source of a segment that is being copied.
#[derive(Clone, Copy, Debug)]
struct Original {
    id: Id,
    serial: u64,
    /// Chunks from this number on are still to be copied.
    next: u64,
}

/// A segment.
#[derive(Debug)]
struct Segment {
    window: u64,
    size: u64,
    account: accounts::Id,
    /// Tells segments with the same number apart.
    serial: u64,
    runs: Runs,
    /// Pages present.
    resident: u64,
    original: Option<Original>,
    /// Set while it is frozen.
    below: Option<frozen::Below>,
    /// Set if it is a frozen copy.
    copy: Option<frozen::Copy>,
    /// Chunks whose bytes are still to come.
    owed: owed::Owed,
}

/// All segments and the memory they are made of.
#[derive(Debug)]
pub struct Segments {
    chunks: Chunks,
    accounts: Accounts,
    segments: Vec<Option<Segment>>,
    vacant: Vec<Id>,
    /// Segments that have ended and are to be taken apart.
    ended: VecDeque<Segment>,
    /// Frozen copies that have ended, but still share chunks with their segments.
    leaving: VecDeque<Id>,
    /// The last so many of `leaving` could not be removed for lack of kernel memory.
    stuck: usize,
    serial: u64,
    /// Runs in all segments, which take the server's own memory.
    runs: usize,
    /// The most runs that there may be: one for each chunk, and as many again for chunks that are in several places.
    max_runs: usize,
    /// Half as many runs as this are kept free for writes to frozen segments.
    set_aside: usize,
}

/// The number of a segment.
pub type Id = usize;

/// Most segments.
pub const MAX_SEGMENTS: usize = 4096;

impl Segments {
    /// No segments and no accounts; `chunks` is the memory there is, of which `spare` chunks are kept for the
    /// promises of new accounts.
    #[must_use]
    pub fn new(chunks: Chunks, spare: usize) -> Self {
        // A shared chunk has several runs.
        let max_runs = chunks.total() * 2;
        Segments {
            chunks,
            accounts: Accounts::new(spare),
            segments: Vec::new(),
            vacant: Vec::new(),
            ended: VecDeque::new(),
            leaving: VecDeque::new(),
            stuck: 0,
            serial: 0,
            runs: 0,
            max_runs,
            set_aside: 0,
        }
    }

    fn get(&self, id: Id) -> Result<&Segment, Error> {
        self.segments
            .get(id)
            .and_then(Option::as_ref)
            .ok_or(Error::NotFound)
    }

    /// Makes an account.
    pub fn create_account(&mut self, limits: Limits) -> Result<accounts::Id, Refusal> {
        let made = self.accounts.create(limits, self.chunks.free());
        self.or_again(made)
    }

    /// Ends an account and all its segments.
    pub fn end_account(&mut self, account: accounts::Id) {
        for id in 0..self.segments.len() {
            if self.get(id).is_ok_and(|s| s.account == account) {
                let _ = self.destroy(id);
            }
        }
        self.accounts.end(account);
    }

    /// The segments of an account.
    pub fn of_account(&self, account: accounts::Id) -> impl Iterator<Item = Id> + '_ {
        self.segments
            .iter()
            .enumerate()
            .filter(move |(_, place)| place.as_ref().is_some_and(|s| s.account == account))
            .map(|(id, _)| id)
    }

    /// Account and size of a segment.
    pub fn describe(&self, id: Id) -> Result<(accounts::Id, u64), Error> {
        self.get(id).map(|segment| (segment.account, segment.size))
    }

    /// The window of a segment.
    pub fn window(&self, id: Id) -> Result<u64, Error> {
        self.get(id).map(|segment| segment.window)
    }

    /// Makes a segment of `size` bytes with its window at this address (a multiple of the size of
    /// a chunk).
    pub fn create(&mut self, account: accounts::Id, window: u64, size: u64) -> Result<Id, Refusal> {
        let made = self.new_segment(account, window, size);
        self.or_again(made)
    }

    fn new_segment(&mut self, account: accounts::Id, window: u64, size: u64) -> Result<Id, Error> {
        if !self.accounts.may_have_segment(account) {
            return Err(Error::NoMemory);
        }
        let id = match self.vacant.pop() {
            Some(id) => id,
            None if self.segments.len() < MAX_SEGMENTS => {
                self.segments.push(None);
                self.segments.len() - 1
            }
            None => return Err(Error::NoMemory),
        };
        self.serial += 1;
        self.segments[id] = Some(Segment {
            window,
            size,
            account,
            serial: self.serial,
            runs: Runs::default(),
            resident: 0,
            original: None,
            below: None,
            copy: None,
            owed: owed::Owed::default(),
        });
        self.accounts.change(account, |a| a.segments += 1);
        Ok(id)
    }

    /// Turns an error for lack of memory into [`Refusal::Again`] while ended segments still hold some.
    fn or_again<T>(&self, result: Result<T, Error>) -> Result<T, Refusal> {
        result.map_err(|error| match error {
            Error::NoMemory if self.has_ended() => Refusal::Again,
            error => Refusal::Error(error),
        })
    }

    /// Bytes of memory, and how many more an account may take.
    #[must_use]
    pub fn usage(&self, account: accounts::Id) -> (u64, u64) {
        (
            self.chunks.total() as u64 * CHUNK,
            self.accounts.room(account, self.chunks.free()) as u64 * CHUNK,
        )
    }

    /// Promises an account so many bytes beyond those that it has taken.
    pub fn reserve(&mut self, account: accounts::Id, bytes: u64) -> Result<(), Error> {
        let chunks = usize::try_from(bytes.div_ceil(CHUNK)).map_err(|_| Error::NoMemory)?;
        self.accounts.reserve(account, chunks, self.chunks.free())
    }

    /// Bytes of memory, and how many of them are in no segment.
    #[must_use]
    pub fn machine_usage(&self) -> (u64, u64) {
        (
            self.chunks.total() as u64 * CHUNK,
            self.chunks.free() as u64 * CHUNK,
        )
    }

    /// Bytes present in a segment.
    #[must_use]
    pub fn resident(&self, id: Id) -> u64 {
        self.get(id).map_or(0, |s| s.resident * PAGE_SIZE)
    }

    /// Bytes that an account has taken, including the chunks that its segments owe.
    #[must_use]
    pub fn taken(&self, account: accounts::Id) -> u64 {
        self.accounts
            .get(account)
            .map_or(0, |a| (a.chunks + a.owed) as u64 * CHUNK)
    }

    /// Serves a fault: `Ok` if the access can be retried. Errors: [`Error::WouldBlock`] if the chunk is owed.
    pub fn fault(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        offset: u64,
        access: u64,
    ) -> Result<(), Refusal> {
        let segment = self.get(id)?;
        if offset >= segment.size {
            return Err(Error::Invalid.into());
        }
        let pages = segment.size.div_ceil(PAGE_SIZE) - offset / CHUNK * PAGES;
        let page = offset / PAGE_SIZE % PAGES;
        let first = page / AROUND * AROUND;
        let end = (first + AROUND).min(pages);
        let range = (first as u8, page as u8, end as u8);
        let brought = self.bring(machine, id, offset / CHUNK, range, access);
        self.or_again(brought.map(drop))
    }

    /// Takes a chunk for an account.
    fn allocate(
        chunks: &mut Chunks,
        accounts: &mut Accounts,
        account: accounts::Id,
    ) -> Result<Index, Error> {
        if accounts.room(account, chunks.free()) == 0 {
            return Err(Error::NoMemory);
        }
        let chunk = chunks.allocate().ok_or(Error::NoMemory)?;
        accounts.change(account, |a| a.chunks += 1);
        Ok(chunk)
    }

    /// Makes page `at` of a chunk present for this access, and with it those of `first..end` that only lengthen the
    /// run. Returns the units of work.
    fn bring(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        number: u64,
        (first, at, end): (u8, u8, u8),
        access: u64,
    ) -> Result<u64, Error> {
        self.not_a_copy(id)?;
        self.has_come(id, number)?;
        let parted = match &self.get(id)?.below {
            None => 0,
            Some(below) => match below.lent.get(number) {
                // A lent page can be read where it is.
                Some(lent)
                    if (lent.first..lent.end).contains(&at) && access & (WRITE | OBJECTS) == 0 =>
                {
                    return Ok(1);
                }
                _ => self.part(machine, id, number)?,
            },
        };
        let Segments {
            chunks,
            accounts,
            segments,
            runs,
            max_runs,
            ..
        } = self;
        let segment = segments
            .get_mut(id)
            .and_then(Option::as_mut)
            .ok_or(Error::NotFound)?;
        let (window, account) = (segment.window, segment.account);
        let Some(run) = segment.runs.get_mut(number) else {
            if *runs >= *max_runs {
                return Err(Error::NoMemory);
            }
            let chunk = Segments::allocate(chunks, accounts, account)?;
            let physical = chunks.address(chunk);
            let mut run = Run {
                chunk,
                first,
                end,
                own: true,
                objects: access & OBJECTS != 0,
                mapping: 0,
            };
            let shown = run.shown(window, number, physical);
            machine.zero(shown.physical, shown.size);
            let Some(mapping) = machine.map(shown) else {
                let _ = chunks.leave(chunk);
                chunks.release(chunk);
                accounts.change(account, |a| a.chunks -= 1);
                return Err(Error::NoMemory);
            };
            run.mapping = mapping;
            segment.resident += run.pages();
            segment.runs.insert(number, run);
            *runs += 1;
            accounts.change(account, |a| a.runs += 1);
            return Ok(1 + run.pages());
        };
        let inside = (run.first..run.end).contains(&at);
        let mut changed = false;
        let mut work = 1 + parted;
        let before = *run;
        if !run.own && (!inside || access & (WRITE | OBJECTS) != 0) {
            work += unshare(chunks, accounts, account, machine, run)?;
            changed = true;
        }
        if access & OBJECTS != 0 {
            run.objects = true;
            changed = true;
        }
        if !inside {
            let physical = chunks.address(run.chunk);
            let (low, high) = (run.first.min(first), run.end.max(end));
            for (from, to) in [(low, run.first), (run.end, high)] {
                if from < to {
                    work += u64::from(to - from);
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
            work += 1;
            let shown = run.shown(window, number, chunks.address(run.chunk));
            if !machine.change(run.mapping, shown) {
                let after = core::mem::replace(run, before);
                if after.chunk != before.chunk {
                    // The mapping still shows the shared chunk, which keeps its number of places; the copy was never
                    // shown.
                    chunks.share(before.chunk);
                    let _ = chunks.leave(after.chunk);
                    chunks.release(after.chunk);
                    accounts.change(account, |a| a.chunks -= 1);
                }
                return Err(Error::NoMemory);
            }
            segment.resident += run.pages();
            segment.resident -= before.pages();
            if run.objects != before.objects {
                segment.runs.note(number);
            }
        }
        Ok(work)
    }

    /// Does a step of making all pages of a range present and writable.
    pub fn populate(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        offset: u64,
        size: u64,
    ) -> Result<Progress, Refusal> {
        let (from, to) = self.range(id, offset, size)?;
        let mut work = Work::new();
        for (number, first, end) in pieces(from, to) {
            if work.is_over() {
                return Ok(Progress::More(number * CHUNK - offset));
            }
            for at in [first, end - 1] {
                let brought = self.bring(machine, id, number, (first, at, end), WRITE);
                work.spend(self.or_again(brought)?);
            }
        }
        Ok(Progress::Done)
    }

    /// The range in pages, rounded outwards.
    fn range(&self, id: Id, offset: u64, size: u64) -> Result<(u64, u64), Error> {
        let segment = self.get(id)?;
        let end = offset.checked_add(size).filter(|end| *end <= segment.size);
        let end = end.ok_or(Error::Invalid)?;
        Ok((offset / PAGE_SIZE, end.div_ceil(PAGE_SIZE)))
    }

    /// Does a step of giving the pages of a range back; objects in them die.
    pub fn discard(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        offset: u64,
        size: u64,
    ) -> Result<Progress, Refusal> {
        if !offset.is_multiple_of(PAGE_SIZE) || !size.is_multiple_of(PAGE_SIZE) {
            return Err(Error::Invalid.into());
        }
        self.not_a_copy(id)?;
        let (from, to) = self.range(id, offset, size)?;
        if from >= to {
            return Ok(Progress::Done);
        }
        let mut work = Work::new();
        if !self.waive(id, (from, to), &mut work)? {
            return Ok(Progress::More(0));
        }
        let numbers = (from / PAGES, (to - 1) / PAGES);
        let mut next = numbers.0;
        while let Some(number) = self.run_from(id, next).filter(|n| *n <= numbers.1) {
            let cleared = if work.is_over() {
                false
            } else {
                let discarded = self.discard_in(machine, id, number, (from, to), &mut work);
                self.or_again(discarded)?
            };
            if !cleared {
                let reached = (number * CHUNK).max(offset);
                return Ok(Progress::More(reached - offset));
            }
            next = number + 1;
        }
        Ok(Progress::Done)
    }

    /// Number of the first run of a segment from this number on.
    fn run_from(&self, id: Id, number: u64) -> Option<u64> {
        let segment = self.get(id).ok()?;
        let own = segment.runs.from(number).next();
        let below = segment.below.as_ref();
        let lent = below.and_then(|below| below.lent.from(number).next());
        own.into_iter().chain(lent).map(|(at, _)| *at).min()
    }

    /// The offset of the first chunk of a segment from this offset on that may hold kernel objects. For a frozen copy
    /// this is about its segment, since a copy has no objects.
    ///
    /// Chunks that hold no objects any more are skipped, as many as a step allows, and lose the right to have objects,
    /// so that repeated searches do not check them again.
    pub fn objects_from(
        &mut self,
        machine: &mut impl Machine,
        mut id: Id,
        offset: u64,
    ) -> Result<u64, Error> {
        if let Some(copy) = &self.get(id)?.copy {
            id = copy.of().ok_or(Error::NotFound)?;
        }
        let number = offset.div_ceil(CHUNK);
        let mut work = Work::new();
        loop {
            let segment = self.get(id)?;
            let own = segment.runs.objects_from(number);
            let below = segment.below.as_ref();
            let lent = below.and_then(|below| below.lent.objects_from(number));
            let first = own.into_iter().chain(lent).min().ok_or(Error::NotFound)?;
            let is_own = own == Some(first) && lent != Some(first);
            if !is_own || work.is_over() || self.keeps_objects(machine, id, first, &mut work) {
                return Ok(first * CHUNK);
            }
        }
    }

    /// Whether a chunk that may hold objects still may. If it holds none, the right to make some is removed.
    fn keeps_objects(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        number: u64,
        work: &mut Work,
    ) -> bool {
        let Segments {
            chunks, segments, ..
        } = self;
        let Some(segment) = segments.get_mut(id).and_then(Option::as_mut) else {
            return false;
        };
        let window = segment.window;
        let Some(run) = segment.runs.get_mut(number) else {
            return false;
        };
        let physical = chunks.address(run.chunk);
        let shown = run.shown(window, number, physical);
        work.spend(1);
        if machine.has_objects(shown.physical, shown.size) {
            return true;
        }
        run.objects = false;
        work.spend(3);
        // The second check decides: no object can be made after the right was removed.
        let keeps = !machine.change(run.mapping, run.shown(window, number, physical))
            || machine.has_objects(shown.physical, shown.size);
        if keeps {
            run.objects = true;
            // If this fails, the next program that makes an object there causes a fault and gets the right.
            machine.change(run.mapping, shown);
        }
        segment.runs.note(number);
        keeps
    }

    /// Gives back the pages `from..to` of a run. Returns false if the step ended before that.
    fn discard_in(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        number: u64,
        (from, to): (u64, u64),
        work: &mut Work,
    ) -> Result<bool, Error> {
        work.spend(self.part(machine, id, number)?);
        let Segments {
            chunks,
            accounts,
            segments,
            runs,
            ..
        } = self;
        let segment = segments
            .get_mut(id)
            .and_then(Option::as_mut)
            .ok_or(Error::NotFound)?;
        let account = segment.account;
        work.spend(1);
        let low = from.saturating_sub(number * PAGES).min(PAGES) as u8;
        let high = (to - number * PAGES).min(PAGES) as u8;
        let Some(run) = segment.runs.get_mut(number) else {
            return Ok(true);
        };
        let (low, high) = (low.max(run.first), high.min(run.end));
        if low >= high {
            return Ok(true);
        }
        // Objects are destroyed while their pages are still present, so that an interrupted step leaves no unknown
        // objects behind.
        let physical = chunks.address(run.chunk);
        let start = physical + u64::from(low) * PAGE_SIZE;
        let size = u64::from(high - low) * PAGE_SIZE;
        if run.objects && !work.clear(machine, start, size) {
            return Ok(false);
        }
        if low == run.first && high == run.end {
            segment.resident -= run.pages();
            let run = *run;
            segment.runs.remove(number);
            *runs -= 1;
            accounts.change(account, |a| a.runs -= 1);
            drop_run(chunks, accounts, account, machine, &run);
            work.spend(1);
            return Ok(true);
        }
        let before = *run;
        if low > run.first && high < run.end {
            // Pages in the middle of the run stay, as zero pages in a chunk of the segment's own.
            if !run.own {
                work.spend(unshare(chunks, accounts, account, machine, run)?);
            }
        } else if low == run.first {
            run.first = high;
        } else {
            run.end = low;
        }
        let physical = chunks.address(run.chunk);
        let shown = run.shown(segment.window, number, physical);
        machine.change(run.mapping, shown);
        work.spend(1);
        // A shared chunk has no objects, and its pages are still in use elsewhere.
        if run.own {
            let start = physical + u64::from(low) * PAGE_SIZE;
            if run.objects {
                clear_late(machine, start, size);
            }
            if run.first == before.first && run.end == before.end {
                machine.zero(start, size);
                work.spend(u64::from(high - low));
            }
        }
        segment.resident -= before.pages();
        segment.resident += run.pages();
        Ok(true)
    }

    /// Begins to make the (new, empty) segment `to`, of the same account, a copy of `from`, and does a step of it.
    /// Writes to either segment before the last step may be in the copy or not. On an error what has been copied stays,
    /// and the caller destroys `to`.
    pub fn copy(
        &mut self,
        machine: &mut impl Machine,
        from: Id,
        to: Id,
    ) -> Result<Progress, Refusal> {
        let original = Original {
            id: from,
            serial: self.get(from)?.serial,
            next: 0,
        };
        self.not_a_copy(from)?;
        self.all_has_come(from)?;
        if self.get(from)?.account != self.get(to)?.account {
            return Err(Error::Invalid.into());
        }
        if let Some(segment) = self.segments.get_mut(to).and_then(Option::as_mut) {
            segment.original = Some(original);
        }
        self.copy_on(machine, to)
    }

    /// Does the next step of a copy.
    pub fn copy_on(&mut self, machine: &mut impl Machine, to: Id) -> Result<Progress, Refusal> {
        if self.get(to)?.copy.is_some() {
            return self.freeze_on(machine, to);
        }
        let mut work = Work::new();
        loop {
            let Some(original) = self.get(to)?.original else {
                return Ok(Progress::Done);
            };
            let known = self
                .get(original.id)
                .is_ok_and(|s| s.serial == original.serial);
            if !known {
                return Err(Error::NotFound.into());
            }
            self.all_has_come(original.id)?;
            let next = self.run_from(original.id, original.next);
            if next.is_some() && work.is_over() {
                return Ok(Progress::More(original.next * CHUNK));
            }
            if let Some(number) = next {
                let copied = self.copy_run(machine, original.id, to, number, &mut work);
                self.or_again(copied)?;
            }
            if let Some(segment) = self.segments.get_mut(to).and_then(Option::as_mut) {
                segment.original = next.map(|number| Original {
                    next: number + 1,
                    ..original
                });
            }
        }
    }

    /// Whether a chunk may be in one place more. A run is kept for every free chunk, and those that are set aside, so
    /// that promises are kept however much others share.
    fn may_share(&self) -> bool {
        self.has_room_for(1, 0)
    }

    /// Whether there is room for `runs` more runs that are not for free chunks, and for half of `aside` more set aside.
    fn has_room_for(&self, runs: usize, aside: usize) -> bool {
        2 * (self.runs + runs + self.chunks.free()) + self.set_aside + aside <= 2 * self.max_runs
    }

    fn copy_run(
        &mut self,
        machine: &mut impl Machine,
        from: Id,
        to: Id,
        number: u64,
        work: &mut Work,
    ) -> Result<(), Error> {
        work.spend(1 + self.part(machine, from, number)?);
        let target = self.get(to)?;
        let (target_window, account) = (target.window, target.account);
        let there = target.runs.get(number).is_some();
        let source = self.get(from)?;
        let Some(original) = source.runs.get(number).copied().filter(|_| !there) else {
            return Ok(());
        };
        if !self.accounts.may_share(account) {
            return Err(Error::NoMemory);
        }
        let physical = self.chunks.address(original.chunk);
        let shown = original.shown(source.window, number, physical);
        let mut copy = Run {
            objects: false,
            ..original
        };
        work.spend(2);
        if original.objects && machine.has_objects(shown.physical, shown.size) {
            // Pages with objects are never shared by copy on write: they are copied at once.
            let chunk = Segments::allocate(&mut self.chunks, &mut self.accounts, account)?;
            let at = self.chunks.address(chunk);
            machine.copy(shown.physical, at + (shown.physical - physical), shown.size);
            work.spend(original.pages());
            copy.chunk = chunk;
        } else {
            if !self.may_share() {
                return Err(Error::NoMemory);
            }
            let rights = SHARED;
            // The right to write is taken away first, so that no program writes while the chunk becomes shared.
            if original.own {
                work.spend(1);
                if !machine.change(original.mapping, Shown { rights, ..shown }) {
                    return Err(Error::NoMemory);
                }
                if let Some(source) = self.segments.get_mut(from).and_then(Option::as_mut) {
                    if let Some(run) = source.runs.get_mut(number) {
                        (run.own, run.objects) = (false, false);
                    }
                    source.runs.note(number);
                }
            }
            self.chunks.share(original.chunk);
            copy.own = false;
        }
        let at = self.chunks.address(copy.chunk);
        let Some(mapping) = machine.map(copy.shown(target_window, number, at)) else {
            if self.chunks.leave(copy.chunk) {
                self.chunks.release(copy.chunk);
                self.accounts.change(account, |a| a.chunks -= 1);
            }
            return Err(Error::NoMemory);
        };
        copy.mapping = mapping;
        if let Some(target) = self.segments.get_mut(to).and_then(Option::as_mut) {
            target.resident += copy.pages();
            target.runs.insert(number, copy);
        }
        self.runs += 1;
        self.accounts.change(account, |a| a.runs += 1);
        Ok(())
    }

    /// Ends a segment. It is taken apart by [`Segments::reap`], and its window is in use until then.
    pub fn destroy(&mut self, id: Id) -> Result<(), Error> {
        // The end of a segment may make room for the removal of stuck copies.
        self.stuck = 0;
        // If it is a copy, the chunks that it shares go back to its segment step by step. No client reaches the copy
        // meanwhile.
        let copy = self.segment(id)?.copy.as_mut();
        if copy.and_then(frozen::Copy::give_up).is_some() {
            if !self.leaving.contains(&id) {
                self.leaving.push_back(id);
            }
            return Ok(());
        }
        self.remove(id)
    }

    fn remove(&mut self, id: Id) -> Result<(), Error> {
        let place = self.segments.get_mut(id).ok_or(Error::NotFound)?;
        let mut segment = place.take().ok_or(Error::NotFound)?;
        let (account, owed) = segment.forgive();
        self.accounts.change(account, |a| a.owed -= owed);
        self.leave_to_copy(&mut segment);
        // It may be in `leaving`, if its own segment has ended since. Another segment may get its number from now on.
        if let Some(at) = self.leaving.iter().position(|leaving| *leaving == id) {
            self.leaving.remove(at);
            self.stuck = 0;
        }
        self.vacant.push(id);
        self.ended.push_back(segment);
        Ok(())
    }

    /// Whether there are ended segments to be taken apart. Copies that cannot be removed for lack of kernel memory do
    /// not count, since a wait for them might never end. They are tried again when another segment ends.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty() || self.stuck < self.leaving.len()
    }

    /// Does a step of taking ended segments apart. Passes the windows of those that are gone to `give`.
    pub fn reap(&mut self, machine: &mut impl Machine, give: &mut impl FnMut(u64, u64)) {
        if self.stuck < self.leaving.len() {
            self.stuck = match self.let_one_go(machine) {
                true => 0,
                false => self.stuck + 1,
            };
            return;
        }
        if self.ended.is_empty() {
            return;
        }
        self.take_apart(machine);
        while let Some(segment) = self.ended.front().filter(|s| s.is_empty()) {
            give(segment.window, segment.size);
            let (account, copy) = (segment.account, segment.copy.as_ref());
            let lender = copy.map(|copy| copy.lender);
            self.ended.pop_front();
            for account in [Some(account), lender].into_iter().flatten() {
                self.accounts.change(account, |a| a.segments -= 1);
            }
        }
        // That freed mappings, for lack of which copies may be stuck: one copy is tried after each step, and all at the
        // end.
        self.stuck = match self.ended.is_empty() {
            true => 0,
            false => self.leaving.len().saturating_sub(1),
        };
    }

    /// Does a step of removing the first copy of `leaving`. Returns false if that is impossible now: then the next one
    /// is first.
    fn let_one_go(&mut self, machine: &mut impl Machine) -> bool {
        let Some(copy) = self.leaving.front().copied() else {
            return false;
        };
        match self.release(machine, copy) {
            Ok(Progress::More(_)) => {}
            // Its window still shows chunks of the segment, and cannot be reused before that ends.
            Err(_) if self.get(copy).is_ok_and(Self::shares) => {
                self.leaving.rotate_left(1);
                return false;
            }
            _ => {
                self.leaving.pop_front();
                let _ = self.remove(copy);
            }
        }
        true
    }

    /// Removes pages from segments that have ended.
    fn take_apart(&mut self, machine: &mut impl Machine) {
        let Segments {
            chunks,
            accounts,
            ended,
            runs,
            ..
        } = self;
        let mut work = Work::new();
        for segment in ended {
            while let Some((number, run)) = segment.last_run() {
                if work.is_over() {
                    return;
                }
                work.spend(1);
                // The whole chunk, since the run may have been longer once. Also if a copy still shows the chunk,
                // because it got no bytes of its own: the copy does not track objects, so they would never be
                // destroyed.
                if run.objects && !work.clear(machine, chunks.address(run.chunk), CHUNK) {
                    return;
                }
                let (place, chunk) = segment.remove_run(number, &run);
                *runs -= 1;
                accounts.change(place, |a| a.runs -= 1);
                drop_run(chunks, accounts, chunk, machine, &run);
            }
            while !segment.is_empty() {
                if work.is_over() {
                    return;
                }
                work.spend(1);
                segment.hide_one(machine);
                *runs -= 1;
            }
        }
    }
}

/// Gives a run a chunk of its own with the same content, and returns the units of work. Does not change the mapping
/// yet.
fn unshare(
    chunks: &mut Chunks,
    accounts: &mut Accounts,
    account: accounts::Id,
    machine: &mut impl Machine,
    run: &mut Run,
) -> Result<u64, Error> {
    let mut work = 0;
    if chunks.is_shared(run.chunk) {
        let chunk = Segments::allocate(chunks, accounts, account)?;
        let first = u64::from(run.first) * PAGE_SIZE;
        machine.copy(
            chunks.address(run.chunk) + first,
            chunks.address(chunk) + first,
            run.pages() * PAGE_SIZE,
        );
        work += run.pages();
        // The chunk is shared, so this is not its last place.
        let _ = chunks.leave(run.chunk);
        run.chunk = chunk;
    }
    run.own = true;
    Ok(work)
}

/// Removes a run and its mapping. If no other place uses its chunk the caller has destroyed the objects in it; its
/// data is overwritten before a page is shown again.
fn drop_run(
    chunks: &mut Chunks,
    accounts: &mut Accounts,
    account: accounts::Id,
    machine: &mut impl Machine,
    run: &Run,
) {
    machine.unmap(run.mapping);
    if chunks.leave(run.chunk) {
        if run.objects {
            clear_late(machine, chunks.address(run.chunk), CHUNK);
        }
        chunks.release(run.chunk);
        accounts.change(account, |a| a.chunks -= 1);
    }
}

/// Destroys objects that were made in memory after it was cleared and before it was unmapped: with one processor none,
/// since no program runs in between, with several a few.
fn clear_late(machine: &mut impl Machine, physical: u64, size: u64) {
    while machine.destroy_objects(physical, size, STEP) == STEP {}
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
mod tests;
