//! Frozen copies: the contents of a segment at one instant, kept while the segment changes.
//!
//! Copying a large segment chunk by chunk takes long, and a process that is being saved is stopped meanwhile. So a
//! segment is frozen at once: its copy takes its window, with all mappings in it, and the segment gets another window,
//! with one mapping for each stretch of chunks that shows the first window without the right to write (*shown*). The
//! chunks that the segment no longer shares with its copy are in its new window:
//!
//! ```text
//! region of the segment -> new window:  [ own ][ shown ........... ][ own ][ shown ]
//!                                                  |                          |
//! region of the copy ---> old window:   [ copy ][ lent ........... ][ copy ][ lent ]
//! ```
//!
//! At a write to a lent chunk the server *parts* it: the segment keeps its memory, which moves to the new window, and
//! the copy gets bytes of its own. So pages with kernel objects stay where they are, and the memory of the copy is
//! charged to the copy's account. If that account may not have more, the copy shows the segment's memory from then on:
//! it is not [`Segments::is_intact`] any more. So being copied does not harm a program, and a present page never
//! disappears from a copy.
//!
//! When the copy is released ([`Segments::release`]) the segment gets its old window back if few chunks were parted;
//! else the other chunks move into the new window, step by step.
use super::runs::Runs;
use super::{
    accounts, drop_run, Id, Machine, Progress, Refusal, Run, Segment, Segments, Shown, Work, CHUNK,
    SHARED,
};
use abi::PAGE_SIZE;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proto::Error;

/// Most stretches of chunks of a segment that is frozen: each costs a mapping.
pub const MAX_STRETCHES: usize = 32;

/// At most this many parted chunks let a segment get its old window back, in one step.
const FEW: usize = 12;

/// Most chunks that one request for present pages searches.
const MOST_PRESENT: u64 = 32;

/// The region below a frozen segment's own runs.
#[derive(Debug)]
pub(super) struct Below {
    /// The copy, in whose window the lent runs are.
    copy: Id,
    /// Runs that the segment shares with its copy. They are charged to the segment's account.
    pub(super) lent: Runs,
    /// The mappings that show the lent runs: by the number of the first chunk, the number behind the last one, and the
    /// mapping.
    shown: BTreeMap<u64, (u64, u64)>,
}

impl Below {
    /// Twice the number of further runs that parting all lent chunks can need: one for each chunk of which the copy
    /// gets no bytes of its own and shows the segment's; and one for each stretch that is cut in two, both parts of
    /// which are lent.
    fn aside(&self) -> usize {
        aside(self.lent.len(), self.shown.len())
    }

    /// Removes a mapping that shows the region below. Returns false if there is none any more.
    fn hide_one(&mut self, machine: &mut impl Machine) -> bool {
        match self.shown.pop_last() {
            Some((_, (_, mapping))) => {
                machine.unmap(mapping);
                true
            }
            None => false,
        }
    }
}

/// The relation of a frozen copy to its segment.
#[derive(Debug)]
pub(super) struct Copy {
    /// The segment, while it exists.
    of: Option<Id>,
    /// The account of the segment, which stays while lent runs are charged to it.
    pub(super) lender: accounts::Id,
    /// It has all of its original contents.
    intact: bool,
    /// It is being released: parted chunks are not kept for it.
    ending: bool,
    /// Runs lent by a segment that has ended.
    left: Runs,
}

impl Copy {
    /// The segment with which it shares chunks.
    pub(super) const fn of(&self) -> Option<Id> {
        self.of
    }

    /// Begins its release, so that it may lack contents from now on. Returns the segment with which it shares chunks.
    pub(super) fn give_up(&mut self) -> Option<Id> {
        (self.intact, self.ending) = (false, true);
        self.of
    }
}

/// [`Below::aside`] of `lent` chunks in `stretches` stretches.
const fn aside(lent: usize, stretches: usize) -> usize {
    (3 * lent).saturating_sub(stretches)
}

/// How a segment with this window shows a stretch of chunks of the region below.
const fn shown(window: u64, from: u64, to: u64) -> Shown {
    Shown {
        address: window + from * CHUNK,
        size: (to - from) * CHUNK,
        physical: from * CHUNK,
        rights: SHARED,
    }
}

/// A run that is parted from the copy.
struct Parting {
    run: Run,
    copy: Id,
    /// The copy's account.
    account: accounts::Id,
    /// The window of the copy.
    window: u64,
}

impl Segments {
    pub(super) fn segment(&mut self, id: Id) -> Result<&mut Segment, Error> {
        let segment = self.segments.get_mut(id).and_then(Option::as_mut);
        segment.ok_or(Error::NotFound)
    }

    /// [`Error::Invalid`] for a frozen copy, which cannot be changed.
    pub(super) fn not_a_copy(&self, id: Id) -> Result<(), Error> {
        match self.get(id)?.copy {
            Some(_) => Err(Error::Invalid),
            None => Ok(()),
        }
    }

    /// Freezes a segment, and returns its copy, in this account. The segment continues in this window, as large as its
    /// old one. The copy has to be completed by [`Segments::copy_on`] before anybody writes to the segment. Errors:
    /// [`Error::Limit`] if the segment has a copy or is one, or is too scattered; [`Error::WouldBlock`] if it owes
    /// chunks.
    pub fn freeze(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        account: accounts::Id,
        window: u64,
    ) -> Result<Id, Refusal> {
        self.all_has_come(id)?;
        let segment = self.get(id)?;
        let (old, size, lender, resident) = (
            segment.window,
            segment.size,
            segment.account,
            segment.resident,
        );
        let plain = segment.below.is_none() && segment.copy.is_none() && segment.original.is_none();
        let stretches = segment.runs.count_stretches();
        if !plain
            || stretches > MAX_STRETCHES
            || !self.has_room_for(stretches, aside(segment.runs.len(), stretches))
        {
            return Err(Error::Limit.into());
        }
        let made = self.new_segment(account, old, size);
        let copy = self.or_again(made)?;
        let Some(shown) = self.show(machine, id, window) else {
            self.segments[copy] = None;
            self.vacant.push(copy);
            self.accounts.change(account, |a| a.segments -= 1);
            return Err(Error::NoMemory.into());
        };
        let segment = self.segment(id)?;
        segment.window = window;
        let below = Below {
            copy,
            lent: core::mem::take(&mut segment.runs),
            shown,
        };
        let aside = below.aside();
        segment.below = Some(below);
        self.set_aside += aside;
        let made = self.segment(copy)?;
        made.resident = resident;
        made.copy = Some(Copy {
            of: Some(id),
            lender,
            intact: true,
            ending: false,
            left: Runs::default(),
        });
        // The lender's account is kept while runs are charged to it.
        self.accounts.change(lender, |a| a.segments += 1);
        Ok(copy)
    }

    /// Shows all runs of a segment in another window, which becomes the segment's. Returns `None`, and changes nothing,
    /// if that is impossible.
    fn show(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        window: u64,
    ) -> Option<BTreeMap<u64, (u64, u64)>> {
        let segment = self.segments.get(id)?.as_ref()?;
        let (old, size) = (segment.window, segment.size);
        if !machine.begin_below(id, old, size.next_multiple_of(CHUNK)) {
            return None;
        }
        let mut maps = BTreeMap::new();
        let mut complete = true;
        for (from, to) in segment.runs.stretches() {
            match machine.map_below(id, shown(window, from, to)) {
                Some(mapping) => maps.insert(from, (to, mapping)),
                None => {
                    complete = false;
                    break;
                }
            };
        }
        if complete && machine.export(id, window, size) {
            self.runs += maps.len();
            return Some(maps);
        }
        for (_, mapping) in maps.into_values() {
            machine.unmap(mapping);
        }
        machine.end_below(id);
        None
    }

    /// Does a step of completing a frozen copy: it gets bytes of its own for all chunks that may hold objects.
    pub(super) fn freeze_on(
        &mut self,
        machine: &mut impl Machine,
        copy: Id,
    ) -> Result<Progress, Refusal> {
        let mut work = Work::new();
        loop {
            let known = self.get(copy)?.copy.as_ref().and_then(|copy| copy.of);
            let id = known.ok_or(Error::NotFound)?;
            let below = self.get(id)?.below.as_ref().ok_or(Error::Broken)?;
            let Some(number) = below.lent.objects_from(0) else {
                return Ok(Progress::Done);
            };
            if work.is_over() {
                return Ok(Progress::More(0));
            }
            work.spend(self.part(machine, id, number)?);
            if !self.is_intact(copy) {
                return Err(Error::NoMemory.into());
            }
        }
    }

    /// Whether a frozen copy still has all of its original contents.
    #[must_use]
    pub fn is_intact(&self, copy: Id) -> bool {
        let copy = self.get(copy).ok().and_then(|c| c.copy.as_ref());
        copy.is_some_and(|copy| copy.intact)
    }

    /// Parts a chunk from the frozen copy, if it is lent to one: from then on only the segment has it. Returns the
    /// units of work.
    pub(super) fn part(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        number: u64,
    ) -> Result<u64, Error> {
        let Some(below) = &self.get(id)?.below else {
            return Ok(0);
        };
        let Some(run) = below.lent.get(number).copied() else {
            return Ok(0);
        };
        let copy = below.copy;
        let (account, window) = {
            let copy = self.get(copy)?;
            (copy.account, copy.window)
        };
        let mut work = self.take_over(machine, id, number, run)?;
        let ending = self.get(copy)?.copy.as_ref().is_none_or(|c| c.ending);
        if ending {
            return Ok(work);
        }
        let parting = Parting {
            run,
            copy,
            account,
            window,
        };
        match self.keep(machine, &parting, number) {
            Some(more) => work += more,
            None => {
                if let Some(copy) = &mut self.segment(copy)?.copy {
                    copy.intact = false;
                }
                self.chunks.share(run.chunk);
                let shared = Run {
                    own: false,
                    objects: false,
                    ..run
                };
                work += self.place(machine, &parting, number, shared).unwrap_or(0);
            }
        }
        Ok(work)
    }

    /// Moves a lent run to the segment's own window.
    fn take_over(
        &mut self,
        machine: &mut impl Machine,
        id: Id,
        number: u64,
        run: Run,
    ) -> Result<u64, Error> {
        let chunks = &self.chunks;
        let segment = self.segments.get_mut(id).and_then(Option::as_mut);
        let segment = segment.ok_or(Error::NotFound)?;
        let window = segment.window;
        let below = segment.below.as_mut().ok_or(Error::Broken)?;
        let before = below.aside();
        let stretch = below.shown.range(..=number).next_back();
        let Some((&from, &(to, mapping))) = stretch else {
            return Err(Error::Broken);
        };
        // The chunks before this one, if any, keep the mapping.
        let behind = shown(window, number + 1, to);
        if from < number {
            if !machine.change_below(id, mapping, shown(window, from, number)) {
                return Err(Error::NoMemory);
            }
            if number + 1 < to {
                let Some(other) = machine.map_below(id, behind) else {
                    machine.change_below(id, mapping, shown(window, from, to));
                    return Err(Error::NoMemory);
                };
                below.shown.insert(number + 1, (to, other));
                self.runs += 1;
            }
            below.shown.insert(from, (number, mapping));
        } else {
            below.shown.remove(&from);
            if number + 1 < to {
                if !machine.change_below(id, mapping, behind) {
                    below.shown.insert(from, (to, mapping));
                    return Err(Error::NoMemory);
                }
                below.shown.insert(number + 1, (to, mapping));
            } else {
                machine.unmap(mapping);
                self.runs -= 1;
            }
        }
        machine.change(
            run.mapping,
            run.shown(window, number, chunks.address(run.chunk)),
        );
        below.lent.remove(number);
        self.set_aside -= before - below.aside();
        segment.runs.insert(number, run);
        Ok(3)
    }

    /// Keeps the contents of a chunk that the segment has taken over for the copy: as bytes of its own, or as one more
    /// place for a chunk that is shared by copy on write. Returns the units of work; `None` if that is impossible.
    fn keep(&mut self, machine: &mut impl Machine, parting: &Parting, number: u64) -> Option<u64> {
        let Parting { run, account, .. } = *parting;
        let mut kept = Run {
            objects: false,
            ..run
        };
        let mut work = 1;
        if run.own {
            if self.runs >= self.max_runs {
                return None;
            }
            kept.chunk = Segments::allocate(&mut self.chunks, &mut self.accounts, account).ok()?;
            let first = u64::from(run.first) * PAGE_SIZE;
            machine.copy(
                self.chunks.address(run.chunk) + first,
                self.chunks.address(kept.chunk) + first,
                run.pages() * PAGE_SIZE,
            );
            work += run.pages();
        } else {
            if !self.may_share() || !self.accounts.may_share(account) {
                return None;
            }
            self.chunks.share(run.chunk);
        }
        Some(work + self.place(machine, parting, number, kept)?)
    }

    /// Puts a run into a copy, which has been charged for the chunk. Returns the units of work; `None` if it cannot be
    /// mapped.
    fn place(
        &mut self,
        machine: &mut impl Machine,
        parting: &Parting,
        number: u64,
        mut kept: Run,
    ) -> Option<u64> {
        let Parting {
            copy,
            account,
            window,
            ..
        } = *parting;
        let Some(mapping) =
            machine.map(kept.shown(window, number, self.chunks.address(kept.chunk)))
        else {
            if self.chunks.leave(kept.chunk) {
                self.chunks.release(kept.chunk);
                self.accounts.change(account, |a| a.chunks -= 1);
            }
            return None;
        };
        kept.mapping = mapping;
        self.runs += 1;
        self.accounts.change(account, |a| a.runs += 1);
        if let Ok(copy) = self.segment(copy) {
            copy.runs.insert(number, kept);
        }
        Some(1)
    }

    /// The first run of pages present in a segment, or a frozen copy, from this offset on: offset and size. The run
    /// ends at an absent page, or after [`MOST_PRESENT`] chunks. [`Error::WouldBlock`] if the segment owes chunks.
    pub fn present_from(&self, id: Id, offset: u64) -> Result<(u64, u64), Error> {
        self.all_has_come(id)?;
        let segment = self.get(id)?;
        let (copy, below) = (segment.copy.as_ref(), segment.below.as_ref());
        let lender = copy
            .and_then(|copy| copy.of)
            .and_then(|id| self.get(id).ok());
        let all = [
            Some(&segment.runs),
            below.map(|below| &below.lent),
            copy.map(|copy| &copy.left),
            lender
                .and_then(|l| l.below.as_ref())
                .map(|below| &below.lent),
        ];
        let next = |number| {
            let firsts = all.into_iter().flatten();
            let firsts = firsts.filter_map(|runs| runs.from(number).next());
            firsts.min_by_key(|(number, _)| **number)
        };
        let mut number = offset / CHUNK;
        let (mut start, mut end) = (0, 0);
        for _ in 0..MOST_PRESENT {
            let Some((&at, run)) = next(number) else {
                break;
            };
            let from = at * CHUNK + u64::from(run.first) * PAGE_SIZE;
            let to = at * CHUNK + u64::from(run.end) * PAGE_SIZE;
            number = at + 1;
            if end == 0 {
                // The first run may end before the offset.
                if to > offset {
                    (start, end) = (from.max(offset), to);
                }
            } else if from == end {
                end = to;
            } else {
                break;
            }
        }
        if end == 0 {
            // Only runs without a page behind the offset are skipped, and there is at most one.
            return Err(Error::NotFound);
        }
        Ok((start, end - start))
    }

    /// Does a step of giving the chunks shared with this frozen copy back to the segment. The copy is not intact from
    /// then on.
    pub fn release(&mut self, machine: &mut impl Machine, copy: Id) -> Result<Progress, Error> {
        let Some(state) = &mut self.segment(copy)?.copy else {
            return Err(Error::Invalid);
        };
        let Some(id) = state.give_up() else {
            return Ok(Progress::Done);
        };
        let few = {
            let (segment, copied) = (self.get(id)?, self.get(copy)?);
            let below = segment.below.as_ref().ok_or(Error::Broken)?;
            segment.runs.len() <= FEW
                && copied.runs.len() <= FEW
                && below.shown.len() <= MAX_STRETCHES + FEW
        };
        if few && self.go_back(machine, id, copy)? {
            return Ok(Progress::Done);
        }
        let mut work = Work::new();
        loop {
            let below = self.get(id)?.below.as_ref().ok_or(Error::Broken)?;
            let Some((number, run)) = below.lent.from(0).next() else {
                break;
            };
            if work.is_over() {
                return Ok(Progress::More(0));
            }
            let (number, run) = (*number, *run);
            work.spend(self.take_over(machine, id, number, run)?);
        }
        self.unfrozen(machine, id, copy)?;
        Ok(Progress::Done)
    }

    /// Gives a segment its old window back, and the copy the other one. Returns whether that was possible.
    fn go_back(&mut self, machine: &mut impl Machine, id: Id, copy: Id) -> Result<bool, Error> {
        let old = self.get(copy)?.window;
        let size = self.get(id)?.size;
        // The copy's own runs are in the way.
        self.drop_copies(machine, copy)?;
        let chunks = &self.chunks;
        let segment = self.segments.get_mut(id).and_then(Option::as_mut);
        let segment = segment.ok_or(Error::NotFound)?;
        let numbers: Vec<u64> = segment.runs.from(0).map(|(number, _)| *number).collect();
        if !machine.export(id, old, size) {
            return Ok(false);
        }
        let below = segment.below.as_mut().ok_or(Error::Broken)?;
        self.set_aside -= below.aside();
        for number in numbers {
            if let Some(run) = segment.runs.remove(number) {
                machine.change(
                    run.mapping,
                    run.shown(old, number, chunks.address(run.chunk)),
                );
                below.lent.insert(number, run);
            }
        }
        segment.runs = core::mem::take(&mut below.lent);
        let window = core::mem::replace(&mut segment.window, old);
        self.segment(copy)?.window = window;
        // Otherwise holders of the copy's region could go on reading the segment, and the next user of that window.
        machine.withdraw(copy, window, size);
        self.unfrozen(machine, id, copy)?;
        Ok(true)
    }

    /// Drops the copy's own runs.
    fn drop_copies(&mut self, machine: &mut impl Machine, copy: Id) -> Result<(), Error> {
        let Segments {
            chunks,
            accounts,
            segments,
            runs,
            ..
        } = self;
        let copy = segments.get_mut(copy).and_then(Option::as_mut);
        let copy = copy.ok_or(Error::NotFound)?;
        while let Some((number, run)) = copy.runs.last() {
            copy.runs.remove(number);
            *runs -= 1;
            accounts.change(copy.account, |a| a.runs -= 1);
            let payer = copy.payer(&run);
            drop_run(chunks, accounts, payer, machine, &run);
        }
        Ok(())
    }

    /// Ends the relation between a segment and its copy, which share nothing any more.
    fn unfrozen(&mut self, machine: &mut impl Machine, id: Id, copy: Id) -> Result<(), Error> {
        if let Some(mut below) = self.segment(id)?.below.take() {
            while below.hide_one(machine) {
                self.runs -= 1;
            }
        }
        machine.end_below(id);
        if let Some(copy) = &mut self.segment(copy)?.copy {
            copy.of = None;
        }
        Ok(())
    }

    /// For a segment that ends while it has a copy: its lent runs stay with the copy, charged to the segment's account.
    pub(super) fn leave_to_copy(&mut self, segment: &mut Segment) {
        let Some(below) = &mut segment.below else {
            return;
        };
        self.set_aside -= below.aside();
        let lent = core::mem::take(&mut below.lent);
        let copy = below.copy;
        if let Some(copy) = self.segment(copy).ok().and_then(|c| c.copy.as_mut()) {
            (copy.left, copy.of) = (lent, None);
        }
    }

    /// Whether a segment is a copy that shares chunks with its segment.
    pub(super) const fn shares(segment: &Segment) -> bool {
        matches!(&segment.copy, Some(copy) if copy.of.is_some())
    }
}

/// Taking apart a segment that has ended.
impl Segment {
    /// Whether nothing is left of it.
    pub(super) fn is_empty(&self) -> bool {
        let left = self.copy.as_ref().is_none_or(|copy| copy.left.is_empty());
        let shown = self
            .below
            .as_ref()
            .is_none_or(|below| below.shown.is_empty());
        self.runs.is_empty() && left && shown
    }

    /// Its last run.
    pub(super) fn last_run(&self) -> Option<(u64, Run)> {
        let left = self.copy.as_ref();
        self.runs.last().or_else(|| left?.left.last())
    }

    /// Removes the last run. Returns the accounts that the place and the chunk were charged to.
    pub(super) fn remove_run(&mut self, number: u64, run: &Run) -> (accounts::Id, accounts::Id) {
        let payer = self.payer(run);
        if self.runs.remove(number).is_some() {
            return (self.account, payer);
        }
        match &mut self.copy {
            Some(copy) => {
                copy.left.remove(number);
                (copy.lender, copy.lender)
            }
            None => (self.account, payer),
        }
    }

    /// Removes a mapping that shows the region below.
    pub(super) fn hide_one(&mut self, machine: &mut impl Machine) {
        if let Some(below) = &mut self.below {
            below.hide_one(machine);
        }
    }

    /// The account that a run's chunk is charged to: a chunk that a copy shares by copy on write is charged to the
    /// account that lent it.
    fn payer(&self, run: &Run) -> accounts::Id {
        match &self.copy {
            Some(copy) if !run.own => copy.lender,
            _ => self.account,
        }
    }
}
