//! The areas of a process's memory, as `mmap` and its relatives see them.
//!
//! A process's memory segment is as large as its address space, and offset and address are the
//! same number. An area is a range with one protection; each area that can be accessed at all is
//! one mapping object, named by its *slot*. Changes are made by computing the new list and then
//! applying the difference ([`Areas::apply`]), so that a failure half-way can be undone.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::errno::{Errno, ENOMEM};
use crate::host::Host;

/// Bytes of a page.
pub const PAGE: u64 = abi::PAGE_SIZE;
/// No area begins below this address.
pub const LOWEST: u64 = 0x1_0000;
/// Load address of a position-independent program.
pub const PIE_BASE: u64 = 0x1_0000_0000;
/// `mmap` hands out addresses below this one, from the top down.
pub const MMAP_TOP: u64 = 0xe_0000_0000;
/// The address behind the stack.
pub const STACK_TOP: u64 = VDSO;
/// Address of the vDSO, the functions that read the clock ([`vdso`]).
pub const VDSO: u64 = 0xf_0000_0000 - vdso::SIZE;
/// Bytes of the stack by default (`RLIMIT_STACK`).
pub const STACK_SIZE: u64 = 8 << 20;
/// Most bytes of the stack, whatever its limit is.
pub const MOST_STACK: u64 = 1 << 30;
/// Most bytes that the stack counts for limits. Its whole range is mapped at once here, while a stack of Linux begins
/// with this size and grows.
pub const COUNTED_STACK: u64 = 132 << 10;
/// The end of the address space.
pub const END: u64 = proto::layout::MEMORY_SIZE;
/// Most areas of a process: each is a mapping in the control segment.
pub const MAX_AREAS: usize = 16_000;
/// The slot of areas without a mapping.
pub const NO_SLOT: u32 = u32::MAX;

/// Protection, with Linux's bits, which are also those of [`abi::access`].
pub type Prot = u8;
/// Loads.
pub const READ: Prot = 1;
/// Stores.
pub const WRITE: Prot = 2;
/// Instruction fetch.
pub const EXECUTE: Prot = 4;

/// What an area is for. Areas of different kinds never merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// From the program's file, in an old image that does not have the offset.
    Program,
    /// Grown by `brk`.
    Heap,
    /// The stack.
    Stack,
    /// Anonymous memory.
    Anonymous,
    /// Private copy of a file, in an old image that does not say of which.
    File,
    /// Pages of a memory object ([`crate::object`]).
    Shared {
        /// The identity of the object.
        id: u64,
        /// Added to an address in the area, modulo 2^64, gives the offset in the object: the same for all parts of an
        /// area that is split.
        shift: u64,
        /// Whether `mprotect` may make it writable.
        may_write: bool,
    },
    /// Reserved for a file that this thread is mapping piece by piece ([`crate::loading`]). Programs cannot access it
    /// yet.
    Loading {
        /// The number of the thread as programs see it.
        thread: u32,
    },
    /// The vDSO and its clock page.
    Vdso,
    /// Private copy of a file. (This variant is last, so that images without such areas keep their encoding.)
    Mapped(OfFile),
}

/// The file of which an area is a private copy, and the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfFile {
    /// [`OfFile::PROGRAM`], or 1 plus the index of the file in the memory's list ([`crate::process::Mapped`]). An index
    /// without an entry is an unknown file.
    pub file: u16,
    /// Added to an address in the area, modulo 2^64, gives the offset in the file: the same for all parts of an area
    /// that is split.
    pub shift: u64,
    /// Whether the program asked for `MAP_SHARED`. The area is a private copy all the same.
    pub shared: bool,
}

impl OfFile {
    /// The program's own file.
    pub const PROGRAM: u16 = 0;
    /// An unknown file.
    pub const UNKNOWN: u16 = u16::MAX;
}

/// The memory that a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The process's own memory, at the same address.
    Own,
    /// A memory object.
    Object {
        /// The identity of the object.
        id: u64,
        /// Offset in the object at which the mapping begins.
        offset: u64,
    },
}

/// A range of addresses with one protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Protection.
    pub prot: Prot,
    /// Its kind.
    pub kind: Kind,
    /// The slot of its mapping, or [`NO_SLOT`] if its protection allows no access.
    pub slot: u32,
}

impl Area {
    /// The memory that its mapping shows.
    #[must_use]
    pub const fn source(&self) -> Source {
        match self.kind {
            Kind::Shared { id, shift, .. } => Source::Object {
                id,
                offset: self.start.wrapping_add(shift),
            },
            _ => Source::Own,
        }
    }

    /// Whether its protection allows this access. The processor lets programs read what they may write or execute, and
    /// so do calls.
    #[must_use]
    pub const fn allows(&self, need: Prot) -> bool {
        let read = if self.prot == 0 { 0 } else { READ };
        (self.prot | read) & need == need
    }

    /// The offset in its file or memory object at which it begins; 0 for other areas.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        match self.kind {
            Kind::Shared { shift, .. } | Kind::Mapped(OfFile { shift, .. }) => {
                self.start.wrapping_add(shift)
            }
            _ => 0,
        }
    }

    /// Whether its bytes come from a file.
    #[must_use]
    pub const fn is_of_file(&self) -> bool {
        matches!(self.kind, Kind::Program | Kind::File | Kind::Mapped(_))
    }

    /// Whether its bytes come from the program's own file.
    #[must_use]
    pub const fn is_of_program(&self) -> bool {
        matches!(
            self.kind,
            Kind::Program
                | Kind::Mapped(OfFile {
                    file: OfFile::PROGRAM,
                    ..
                })
        )
    }

    /// Whether it is reserved for a file that is being mapped.
    #[must_use]
    pub const fn is_loading(&self) -> bool {
        matches!(self.kind, Kind::Loading { .. })
    }

    /// Whether it lies within the memory object that it shows; true if it shows none.
    fn is_in_object(&self) -> bool {
        let Source::Object { offset, .. } = self.source() else {
            return true;
        };
        let end = offset.checked_add(self.end - self.start);
        offset.is_multiple_of(PAGE) && end.is_some_and(|end| end <= END)
    }

    /// Whether the program can write to it, or can make it writable.
    pub(crate) fn may_become_writable(&self) -> bool {
        let may_write = matches!(
            self.kind,
            Kind::Shared {
                may_write: true,
                ..
            }
        );
        may_write || self.prot & WRITE != 0
    }

    fn same_but_slot(&self, other: &Area) -> bool {
        (self.start, self.end, self.prot, self.kind)
            == (other.start, other.end, other.prot, other.kind)
    }
}

/// Whether an area counts as data: writable memory of the process's own.
#[must_use]
pub const fn is_data(prot: Prot, kind: Kind) -> bool {
    prot & WRITE != 0 && !matches!(kind, Kind::Shared { .. } | Kind::Stack)
}

/// Rounds up to a multiple of the page size; `None` if that is beyond [`END`].
#[must_use]
pub fn page_up(value: u64) -> Option<u64> {
    let up = value.checked_add(PAGE - 1)? & !(PAGE - 1);
    (up <= END).then_some(up)
}

/// Start address of a stack with this limit in bytes, which is used from the address `used` up.
#[must_use]
pub fn stack_start(limit: u64, used: u64) -> u64 {
    let start = STACK_TOP - (limit.min(MOST_STACK) & !(PAGE - 1));
    start.min(used & !(PAGE - 1))
}

/// All areas of a process in the order of their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Areas {
    list: Vec<Area>,
}

impl Areas {
    /// Areas from a list, in the order of their addresses. Makes no mappings.
    #[must_use]
    pub fn from_list(list: Vec<Area>) -> Self {
        Areas { list }
    }

    /// The areas, in the order of their addresses.
    #[must_use]
    pub fn list(&self) -> &[Area] {
        &self.list
    }

    /// Index of the first area that ends behind `address`.
    pub(crate) fn first_after(&self, address: u64) -> usize {
        self.list.partition_point(|a| a.end <= address)
    }

    /// Index of the first area that begins at `address` or behind it.
    pub(crate) fn first_from(&self, address: u64) -> usize {
        self.list.partition_point(|a| a.start < address)
    }

    /// The area that contains `address`.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&Area> {
        let area = self.list.get(self.first_after(address))?;
        (area.start <= address).then_some(area)
    }

    /// Whether the whole range is in areas that allow `need`.
    #[must_use]
    pub fn allows(&self, address: u64, length: u64, need: Prot) -> bool {
        self.reach(address, length, need) == length
    }

    /// How many bytes from `address` on, at most `length`, are in areas that allow `need`.
    #[must_use]
    pub fn reach(&self, address: u64, length: u64, need: Prot) -> u64 {
        let mut at = address;
        let Some(end) = address.checked_add(length) else {
            return 0;
        };
        for area in &self.list[self.first_after(address)..] {
            if at >= end || area.start > at || !area.allows(need) || area.is_loading() {
                break;
            }
            at = area.end;
        }
        at.min(end) - address
    }

    /// How many bytes from `address` on, at most `length`, a tracer may read, or write if it `writes`: private memory
    /// whatever its protection, and memory objects with access (for writing: with write access).
    #[must_use]
    pub fn reach_by_force(&self, address: u64, length: u64, writes: bool) -> u64 {
        let Some(end) = address.checked_add(length) else {
            return 0;
        };
        let mut at = address;
        for area in &self.list[self.first_after(address)..] {
            // An area of an object without access has no mapping through which it could be reached.
            let need = if writes {
                WRITE
            } else {
                READ | WRITE | EXECUTE
            };
            let may = area.source() == Source::Own || area.prot & need != 0;
            if at >= end || area.start > at || !may || area.is_loading() {
                break;
            }
            at = area.end;
        }
        at.min(end) - address
    }

    /// Whether no area overlaps the range.
    #[must_use]
    pub fn is_free(&self, start: u64, end: u64) -> bool {
        self.list
            .get(self.first_after(start))
            .is_none_or(|a| a.start >= end)
    }

    /// Whether every byte of the range is in an area.
    #[must_use]
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.allows(start, end - start, 0)
    }

    /// The start of a free range of `size` bytes: at `hint` if that is free, else as high as possible.
    #[must_use]
    pub fn find_free(&self, size: u64, hint: u64) -> Option<u64> {
        let hint = hint & !(PAGE - 1);
        let end = hint.checked_add(size).filter(|end| *end <= MMAP_TOP);
        if hint >= LOWEST && end.is_some_and(|end| self.is_free(hint, end)) {
            return Some(hint);
        }
        let mut top = MMAP_TOP;
        for area in self.list.iter().rev() {
            if area.end <= top && top - area.end >= size {
                return Some(top - size);
            }
            top = top.min(area.start);
        }
        (top >= LOWEST && top - LOWEST >= size).then(|| top - size)
    }

    /// The start of a free range of `size` bytes below 2 GB, for `MAP_32BIT`: at `hint` if that is free, else as low as
    /// possible in the second gigabyte, as in Linux.
    #[must_use]
    pub fn find_low(&self, size: u64, hint: u64) -> Option<u64> {
        const LOW: u64 = 1 << 30;
        const HIGH: u64 = 2 << 30;
        let hint = hint & !(PAGE - 1);
        let suits = |start: u64| HIGH.checked_sub(size).is_some_and(|last| start <= last);
        if hint >= LOWEST && suits(hint) && self.is_free(hint, hint + size) {
            return Some(hint);
        }
        let mut start = LOW;
        for area in &self.list[self.first_after(LOW)..] {
            if area.start >= start && area.start - start >= size {
                break;
            }
            start = start.max(area.end);
        }
        suits(start).then_some(start)
    }

    /// Bytes in the areas that satisfy `those`; the stack counts at most [`COUNTED_STACK`].
    #[must_use]
    pub fn bytes(&self, those: impl Fn(&Area) -> bool) -> u64 {
        let (mut all, mut stack) = (0, 0);
        for area in self.list.iter().filter(|area| those(area)) {
            match area.kind {
                Kind::Stack => stack += area.end - area.start,
                _ => all += area.end - area.start,
            }
        }
        all + stack.min(COUNTED_STACK)
    }

    /// Bytes in writable areas: the most memory that the process can occupy, apart from its stack.
    #[must_use]
    pub fn writable(&self) -> u64 {
        self.bytes(|area| area.prot & WRITE != 0)
    }

    /// The bytes that count for limits: in all areas (`RLIMIT_AS`), and in data areas (`RLIMIT_DATA`).
    #[must_use]
    pub fn counted(&self) -> (u64, u64) {
        (
            self.bytes(|_| true),
            self.bytes(|area| is_data(area.prot, area.kind)),
        )
    }

    /// Bytes of the range that are in areas.
    #[must_use]
    pub fn taken(&self, start: u64, end: u64) -> u64 {
        let those = self.list[self.first_after(start)..].iter();
        let those = those.take_while(|area| area.start < end);
        those
            .map(|area| area.end.min(end) - area.start.max(start))
            .sum()
    }

    /// The list with the range replaced by one new area, or by nothing.
    #[must_use]
    pub fn replaced(&self, start: u64, end: u64, by: Option<(Prot, Kind)>) -> Vec<Area> {
        let mut new = Vec::with_capacity(self.list.len() + 2);
        let mut by = by.map(|(prot, kind)| Area {
            start,
            end,
            prot,
            kind,
            slot: NO_SLOT,
        });
        for area in &self.list {
            if area.end <= start {
                push(&mut new, *area);
                continue;
            }
            if area.start < start {
                push(
                    &mut new,
                    Area {
                        end: start,
                        ..*area
                    },
                );
            }
            if let Some(inserted) = by.take() {
                push(&mut new, inserted);
            }
            if area.end > end {
                push(
                    &mut new,
                    Area {
                        start: area.start.max(end),
                        ..*area
                    },
                );
            }
        }
        if let Some(inserted) = by {
            push(&mut new, inserted);
        }
        new
    }

    /// The list with another protection in the range; `None` if not all of the range is in areas.
    #[must_use]
    pub fn protected(&self, start: u64, end: u64, prot: Prot) -> Option<Vec<Area>> {
        if !self.covers(start, end) {
            return None;
        }
        let mut new = Vec::with_capacity(self.list.len() + 2);
        for area in &self.list {
            let from = area.start.max(start);
            let to = area.end.min(end);
            if from >= to {
                push(&mut new, *area);
                continue;
            }
            if area.start < from {
                push(&mut new, Area { end: from, ..*area });
            }
            push(
                &mut new,
                Area {
                    start: from,
                    end: to,
                    prot,
                    ..*area
                },
            );
            if area.end > to {
                push(&mut new, Area { start: to, ..*area });
            }
        }
        Some(new)
    }

    /// The list with all ranges that are reserved for a thread turned into mappings of this file. Other tasks can have
    /// cut these into thousands of pieces; all are done in one pass.
    #[must_use]
    pub fn with_loaded(&self, thread: u32, prot: Prot, from: OfFile) -> Vec<Area> {
        let mut new = Vec::with_capacity(self.list.len());
        for area in &self.list {
            let area = match area.kind {
                Kind::Loading { thread: of } if of == thread => Area {
                    prot,
                    kind: Kind::Mapped(from),
                    slot: NO_SLOT,
                    ..*area
                },
                _ => *area,
            };
            push(&mut new, area);
        }
        new
    }

    /// Replaces the identities of the memory objects that areas show; `new` maps old to new ones.
    pub(crate) fn rename_objects(&mut self, new: impl Fn(u64) -> u64) {
        for area in &mut self.list {
            if let Kind::Shared { id, .. } = &mut area.kind {
                *id = new(*id);
            }
        }
    }

    /// Whether the clock page of the program is still mapped at its first address.
    #[must_use]
    pub fn have_clock(&self) -> bool {
        let at = VDSO + vdso::CLOCK;
        self.find(at)
            .is_some_and(|area| area.kind == Kind::Vdso && area.slot != NO_SLOT)
    }

    /// Removes the ranges that are reserved for these threads and returns them. They have no mappings.
    pub fn forget_loading(&mut self, those: impl Fn(u32) -> bool) -> Vec<(u64, u64)> {
        let mut gone = Vec::new();
        self.list.retain(|area| match area.kind {
            Kind::Loading { thread } if those(thread) => {
                gone.push((area.start, area.end));
                false
            }
            _ => true,
        });
        gone
    }

    /// Makes `new` the list of areas and the mappings agree with it. On failure nothing has
    /// changed.
    pub fn apply(&mut self, host: &mut dyn Host, new: Vec<Area>) -> Result<(), Errno> {
        if new.len() > MAX_AREAS {
            return Err(ENOMEM);
        }
        // Most changes touch a few neighbouring areas of a long list, so unchanged areas at both ends are skipped.
        let head = self
            .list
            .iter()
            .zip(&new)
            .take_while(|(a, b)| a.same_but_slot(b))
            .count();
        let tail = self.list[head..]
            .iter()
            .rev()
            .zip(new[head..].iter().rev())
            .take_while(|(a, b)| a.same_but_slot(b))
            .count();
        let old_middle = self.list[head..self.list.len() - tail].to_vec();
        let mut middle = new[head..new.len() - tail].to_vec();

        let mut used = Slots::new(&self.list);
        let outcome = change(host, &mut used, &old_middle, &mut middle);
        if outcome.is_err() {
            // Going back cannot fail for lack of slots or kernel memory, which the failed change still has: only ranges
            // change.
            let mut back = old_middle;
            let now = middle;
            if change(host, &mut used, &now, &mut back).is_err() {
                host.log("the memory of a process could not be put back after a failed change");
            }
            middle = back;
        }
        let end = self.list.len() - tail;
        self.list.splice(head..end, middle);
        outcome
    }

    /// Whether a list of areas from an image is consistent. Its mappings exist already.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let mut previous_end = LOWEST;
        let mut slots: Vec<u32> = Vec::new();
        for area in &self.list {
            if area.start < previous_end
                || area.start >= area.end
                || area.end > END
                || (area.start | area.end) % PAGE != 0
                || area.prot & !(READ | WRITE | EXECUTE) != 0
                || (area.prot == 0) != (area.slot == NO_SLOT)
                || area.is_loading() && area.prot != 0
                || !area.is_in_object()
            {
                return false;
            }
            previous_end = area.end;
            if area.slot != NO_SLOT {
                slots.push(area.slot);
            }
        }
        slots.sort_unstable();
        self.list.len() <= MAX_AREAS
            && slots.windows(2).all(|w| w[0] != w[1])
            && slots.last().is_none_or(|s| (*s as usize) < MAX_AREAS)
    }
}

/// Appends an area, merging it with the last one if the two are adjacent and have the same protection and kind.
fn push(list: &mut Vec<Area>, area: Area) {
    if let Some(last) = list.last_mut() {
        if last.end == area.start && last.prot == area.prot && last.kind == area.kind {
            last.end = area.end;
            return;
        }
    }
    list.push(area);
}

/// Turns the mappings of `old` into those of `new` and fills in the slots of `new`. On failure `new` lists the mappings
/// that exist (with slots), some possibly with smaller ranges than asked for.
fn change(
    host: &mut dyn Host,
    used: &mut Slots,
    old: &[Area],
    new: &mut Vec<Area>,
) -> Result<(), Errno> {
    // Each new area takes over the mapping of the first old area that it overlaps and that no earlier new area has.
    // Both lists are in the order of addresses, so an old area that ends before a new one is of no use to later ones.
    let mut taken = alloc::vec![None; old.len()];
    let mut first = 0;
    for (n, area) in new.iter_mut().enumerate() {
        area.slot = NO_SLOT;
        if area.prot == 0 {
            continue;
        }
        let is_past = |o: usize, before: &Area| {
            before.end <= area.start || before.slot == NO_SLOT || taken[o].is_some()
        };
        while old.get(first).is_some_and(|before| is_past(first, before)) {
            first += 1;
        }
        if let Some(before) = old.get(first).filter(|before| before.start < area.end) {
            taken[first] = Some(n);
            area.slot = before.slot;
        }
    }
    // Mappings are made smaller before others grow, because two mappings must not overlap.
    let mut shrunk: Vec<Option<Area>> = alloc::vec![None; new.len()];
    for (before, n) in old.iter().zip(&taken) {
        if before.slot == NO_SLOT {
            continue;
        }
        let Some(n) = *n else {
            host.unmap(before.slot);
            used.remove(before.slot);
            continue;
        };
        let start = before.start.max(new[n].start);
        let end = before.end.min(new[n].end);
        if (start, end) != (before.start, before.end) {
            // Shrinking a mapping takes no memory, so it should not fail.
            let smaller = Area {
                start,
                end,
                ..*before
            };
            if let Err(error) = host.remap(&smaller) {
                host.log("a mapping could not be made smaller");
                return Err(error);
            }
        }
        shrunk[n] = Some(Area {
            start,
            end,
            ..*before
        });
    }
    for n in 0..new.len() {
        let area = new[n];
        if area.prot == 0 {
            continue;
        }
        let done = match shrunk[n] {
            Some(now) if now.same_but_slot(&area) => Ok(()),
            Some(_) => host.remap(&area),
            None => {
                let slot = used.lowest_free();
                new[n].slot = slot;
                host.map(&new[n]).map(|()| used.insert(slot))
            }
        };
        if let Err(error) = done {
            // List the mappings as they are now, so that the caller can undo the change.
            let mut there = new[..n].to_vec();
            for (area, now) in new[n..].iter().zip(&shrunk[n..]) {
                match now {
                    Some(now) => there.push(*now),
                    None if area.prot == 0 => there.push(*area),
                    None => {}
                }
            }
            *new = there;
            return Err(error);
        }
    }
    Ok(())
}

/// The slots in use, one bit each.
struct Slots {
    words: Vec<u64>,
    /// No word before this one has a free slot.
    first: usize,
}

impl Slots {
    /// The slots of the areas.
    fn new(list: &[Area]) -> Self {
        let mut slots = Slots {
            words: alloc::vec![0; list.len() / 64 + 1],
            first: 0,
        };
        for area in list.iter().filter(|area| area.slot != NO_SLOT) {
            slots.insert(area.slot);
        }
        slots
    }

    fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (slot % 64);
    }

    fn remove(&mut self, slot: u32) {
        let word = slot as usize / 64;
        self.words[word] &= !(1 << (slot % 64));
        self.first = self.first.min(word);
    }

    /// The lowest free slot.
    fn lowest_free(&mut self) -> u32 {
        while self.words.get(self.first) == Some(&u64::MAX) {
            self.first += 1;
        }
        let word = self.words.get(self.first).copied().unwrap_or(0);
        self.first as u32 * 64 + word.trailing_ones()
    }
}
