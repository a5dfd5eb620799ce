//! User memory as the kernel sees it: the mapping hierarchy, and access through it.
//!
//! A page is found by walking the hierarchy: mapping, region, space, mapping, ... down to a region of physical
//! memory. Page tables are a cache of the results of walks. A fault is *soft* if the walk finds the page; otherwise it
//! is *hard* and names the region where the walk failed (Ford et al., Table 3).
//!
//! Every function here works on the memory of any space, not only that of the running thread, so that the thread at
//! either end of a connection can copy for both.

use crate::object::mapping::Mapping;
use crate::object::region::{Region, Source};
use crate::object::space::Space;
use crate::object::thread::Missing;
use crate::object::Header;
use crate::object::{Life, Link, ObjId, Object};
use crate::probe::{self, Kind};
use crate::stop::{Access, Fault, Stop};
use crate::K;
use abi::{access, PAGE_SIZE, USER_END};
use core::ops::Range;
use hal::Pfn;

/// Most levels of the hierarchy that a walk descends. A deeper hierarchy, or a cycle, has no pages.
const MAX_DEPTH: u32 = 8;

/// The result of a walk that found a page.
#[derive(Clone, Copy)]
struct Found {
    pfn: Pfn,
    rights: u64,
    device: bool,
}

/// The reason why a walk found no page.
#[derive(Clone, Copy)]
enum Miss {
    /// There is no page: see [`Fault::at`].
    Absent(Option<(&'static Region, u64)>),
    /// The walk reached this vacant identity.
    Vacant(&'static Header),
}

impl Miss {
    /// The miss of a walk that followed this link and found no active object.
    fn behind<T: Object>(link: Link<T>) -> Self {
        match link.get() {
            Some(object) => Miss::Vacant(object.head()),
            None => Miss::Absent(None),
        }
    }

    /// The `Stop` of an access whose walk missed.
    fn stop(self, address: u64, access: Access) -> Stop {
        match self {
            Miss::Absent(at) => Stop::Fault(Fault {
                address,
                access,
                at,
            }),
            Miss::Vacant(met) => Stop::Vacant(met),
        }
    }
}

/// Walks the hierarchy from an address in a space down to a physical frame.
#[inline(always)]
fn walk(space: &'static Space, address: u64, need: Access) -> Result<Found, Miss> {
    let mut rights = access::ALL;
    let end = descend::<false>(space, address, need, &mut rights, |_, _, _| ());
    if rights & need.0 != need.0 {
        return forbidden(space, address, need);
    }
    end
}

/// Finds the level at which a walk fails for lack of a right: the first level that does not give the right.
#[cold]
#[inline(never)]
fn forbidden(space: &'static Space, address: u64, need: Access) -> Result<Found, Miss> {
    descend::<true>(space, address, need, &mut { access::ALL }, |_, _, _| ())
}

/// Descends the hierarchy. Each level removes from `rights` the rights that it does not give. Only with `EXACT` the
/// walk fails at the level where the needed right is missing; otherwise the caller must check `rights` afterwards.
/// `pass` is called at each level with the mapping, the region and the offset in the region.
#[inline(always)]
fn descend<const EXACT: bool>(
    space: &'static Space,
    address: u64,
    need: Access,
    rights: &mut u64,
    mut pass: impl FnMut(&Mapping, &Region, u64),
) -> Result<Found, Miss> {
    let mut allow = |given: u64| {
        *rights &= given;
        !EXACT || *rights & need.0 == need.0
    };
    let mut at = None;
    let (mut space, mut here) = (space, address);
    for _ in 0..MAX_DEPTH {
        let Some(m) = space.mappings.covering(here) else {
            return Err(Miss::Absent(at));
        };
        if !m.head().is_open() {
            return Err(Miss::Vacant(m.head()));
        }
        if !allow(m.protection.get()) {
            return Err(Miss::Absent(at));
        }
        // A mapping of a dead region maps nothing, and no keeper can supply it.
        let link = m.region.get();
        let Some(region) = link.active() else {
            return Err(Miss::behind(link.link()));
        };
        // Neither sum overflows: ranges are checked when they are set.
        let offset = here
            .wrapping_sub(m.start.get())
            .wrapping_add(m.offset.get());
        if offset >= region.size.get() {
            return Err(Miss::Absent(None));
        }
        pass(m, region, offset);
        at = Some((region, offset));
        if !allow(region.protection.get()) {
            return Err(Miss::Absent(at));
        }
        match region.source.get() {
            Source::Space => {
                let link = region.space.get();
                let Some(next) = link.active() else {
                    return Err(Miss::behind(link));
                };
                here = offset.wrapping_add(region.start.get());
                space = next;
            }
            Source::Memory => {
                let pfn = frame(offset);
                if !hal::user_frame(pfn) {
                    return Err(Miss::Absent(None));
                }
                return Ok(Found {
                    pfn,
                    rights: *rights,
                    device: false,
                });
            }
            Source::Device => {
                // Device memory holds no objects, and the kernel does not copy from or to it.
                let pfn = frame(region.start.get() + offset);
                return Ok(Found {
                    pfn,
                    rights: *rights & !access::OBJECTS,
                    device: true,
                });
            }
        }
    }
    Err(Miss::Absent(None))
}

fn frame(physical: u64) -> Pfn {
    Pfn((physical / PAGE_SIZE) as u32)
}

/// Resolves a soft fault: finds the physical frame of a page and enters it into the page table.
#[inline(always)]
fn resolve(k: K, space: &'static Space, address: u64, need: Access) -> Result<Pfn, Stop> {
    match walk(space, address, need) {
        Ok(found) => remember(k, space, address, need, found),
        Err(miss) => Err(miss.stop(address, need)),
    }
}

/// Enters the result of a walk into the page table. If table pages have run out, evicts some first ([`evict`]).
#[inline(always)]
fn remember(
    k: K,
    space: &'static Space,
    address: u64,
    need: Access,
    found: Found,
) -> Result<Pfn, Stop> {
    let page = address & !(PAGE_SIZE - 1);
    let Found {
        pfn,
        rights,
        device,
    } = found;
    while space.table.insert(page, pfn, rights, device).is_none() {
        evict(k, space)?;
    }
    if device {
        // The program may use the page; the kernel itself does not touch device memory.
        return Err(Stop::Device(address, need));
    }
    Ok(pfn)
}

/// Number of table pages with which a space can make progress, whatever memory one of its instructions accesses.
const FEW_TABLES: u32 = 32;

/// Number of table pages that are taken from another space at once. They are few, since the evicting thread spends its
/// own time on another space's tables, and a space that has many table pages loses no memory, only translations.
const TABLES_TAKEN: u32 = 8;

/// Frees table pages for `keep` when they have run out. The victim is another space that has at least as many as `keep`
/// or, if `keep` has fewer than [`FEW_TABLES`], any other space that has one; without such a space, `keep` loses all of
/// its own. So a space that accesses much memory evicts tables only of spaces like it, or its own. Later walks fill the
/// tables again.
#[cold]
#[inline(never)]
fn evict(k: K, keep: &'static Space) -> Result<(), Stop> {
    let least = match keep.table.pages() {
        own if own < FEW_TABLES => 1,
        own => own,
    };
    for _ in 0..2 * k.spaces.slots().max(1) {
        let hand = k.table_hand.get();
        k.table_hand.set(hand + 1);
        if let Some(victim) = k.spaces.get(hand % k.spaces.slots().max(1)) {
            if !core::ptr::eq(victim, keep) && victim.table.pages() >= least {
                victim.give_tables(k, TABLES_TAKEN);
                return Ok(());
            }
        }
    }
    if keep.table.pages() > 0 {
        keep.empty_table(k);
        return Ok(());
    }
    Err(Stop::Code(abi::Code::NoMemory))
}

/// [`resolve`], for an access by the kernel.
#[cold]
#[inline(never)]
fn walk_for(k: K, space: &'static Space, address: u64, need: Access) -> Result<Pfn, Stop> {
    k.counters.look(|| resolve(k, space, address, need))
}

/// [`translate`], for a page that is not among the space's latest translations: looks into the page table.
fn look_up(k: K, space: &'static Space, address: u64, need: Access) -> Result<Pfn, Stop> {
    match in_table(space, address, need) {
        Some(pfn) => Ok(pfn),
        None => walk_for(k, space, address, need),
    }
}

/// The frame of a page that is in the page table with this right.
#[inline(always)]
fn in_table(space: &'static Space, address: u64, need: Access) -> Option<Pfn> {
    let (pfn, rights) = space.table.lookup(address)?;
    let here = rights & need.0 == need.0 && hal::user_frame(pfn);
    here.then(|| {
        space.note_near(address, pfn, rights);
        pfn
    })
}

/// As [`translate`], but only for a page that is among the latest translations or in the page table: walks no hierarchy
/// and never stops the call.
#[inline(always)]
pub(crate) fn present(space: &'static Space, address: u64, need: Access) -> Option<Pfn> {
    #[inline(never)]
    fn farther(space: &'static Space, address: u64, need: Access) -> Option<Pfn> {
        in_table(space, address, need)
    }
    match space.near(address, need) {
        Some(pfn) => Some(pfn),
        None => farther(space, address, need),
    }
}

/// Translates an address of a space to a physical frame, for an access of this kind by the kernel.
#[inline]
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn translate(
    k: K,
    space: &'static Space,
    address: u64,
    need: Access,
) -> Result<Pfn, Stop> {
    probe::site(Kind::Access)?;
    match space.near(address, need) {
        Some(pfn) => Ok(pfn),
        None => look_up(k, space, address, need),
    }
}

/// Makes a page present for the program itself. After [`Stop::Device`] the page is present, too.
#[cfg_attr(fermata_probe, track_caller)]
#[inline(always)]
pub(crate) fn make_present(
    k: K,
    space: &'static Space,
    address: u64,
    need: Access,
) -> Result<Pfn, Stop> {
    probe::site(Kind::Access)?;
    resolve(k, space, address, need)
}

/// Number of pages, an aligned group, of which a soft fault of an instruction enters the absent ones, as far as one
/// walk leads to all of them. So a thread that accesses a chunk (64 KB) of the memory server page by page faults once.
const AROUND: u64 = 16;

/// Enters the pages around a page that has just been entered, unless the neighbouring page is there already. The cost
/// does not grow with memory: no table page is allocated, and no other translation is changed.
#[inline(never)]
pub(crate) fn enter_around(space: &'static Space, address: u64) {
    let page = address & !(PAGE_SIZE - 1);
    if space.table.lookup(page ^ PAGE_SIZE).is_some() {
        return;
    }
    // The bytes that one walk covers, before the page and from the page on.
    let mut before = page % (AROUND * PAGE_SIZE);
    let mut after = AROUND * PAGE_SIZE - before;
    let rights = &mut { access::ALL };
    let pass = |m: &Mapping, region: &Region, offset: u64| {
        let in_mapping = offset - m.offset.get();
        before = before.min(in_mapping);
        let left = region.size.get() - offset;
        after = after.min(m.size.get() - in_mapping).min(left);
    };
    match descend::<false>(space, page, Access(0), rights, pass) {
        Ok(found) if !found.device => {
            let pages = (before + after) / PAGE_SIZE;
            let first = Pfn(found.pfn.0.wrapping_sub((before / PAGE_SIZE) as u32));
            space.table.fill(page - before, pages, first, found.rights);
        }
        _ => {}
    }
}

/// Whether the walk to a page that was missing still fails in the same region. (A page that this region's
/// keeper supplied may have to be supplied by another keeper in turn.) If the walk succeeds, the page is
/// entered into the page table, so that the thread need not fault again.
#[inline(always)]
pub(crate) fn still_missing(
    k: K,
    space: &'static Space,
    missing: Missing,
    region: (ObjId, Life),
) -> bool {
    match resolve(k, space, missing.page(), missing.access()) {
        Err(Stop::Fault(Fault { at, .. })) => {
            at.is_none_or(|(failed, _)| failed.head().name() == region)
        }
        _ => false,
    }
}

/// Whether the space's own mapping allows objects at the address. Where nothing is mapped this is true: the
/// access fails later, and rights that a region withholds are a matter for its keeper.
pub(crate) fn takes_objects(space: &'static Space, address: u64) -> bool {
    space
        .mappings
        .covering(address)
        .is_none_or(|m| m.protection.get() & access::OBJECTS != 0)
}

/// Consecutive pages of a region whose physical frames are consecutive, too.
pub(crate) struct Run {
    /// The frame of the first page. `None`: the run is one page, and that page has no frame.
    first: Option<Pfn>,
    /// Length in bytes from the beginning of the first page; the last page may be included in part.
    pub(crate) bytes: u64,
}

impl Run {
    /// The frame of the page `pages` pages after the first.
    pub(crate) fn frame(&self, pages: u64) -> Option<Pfn> {
        Some(Pfn(self.first?.0.wrapping_add(pages as u32)))
    }
}

/// The run that begins with the page at this offset of a region, for searches. The offset must be inside the region.
/// A vacant identity stops the call.
pub(crate) fn region_run(region: &'static Region, offset: u64) -> Result<Run, Stop> {
    const NOTHING: Run = Run {
        first: None,
        bytes: PAGE_SIZE,
    };
    let mut bytes = region.size.get() - offset;
    Ok(match region.source.get() {
        Source::Memory => Run {
            first: Some(frame(offset)),
            bytes,
        },
        Source::Device => NOTHING,
        Source::Space => {
            let Some(space) = region.space.get().get() else {
                return Ok(NOTHING);
            };
            let at = region.start.get() + offset;
            let rights = &mut { access::ALL };
            let pass = |m: &Mapping, region: &Region, offset| {
                let in_mapping = m.size.get() - (offset - m.offset.get());
                bytes = bytes.min(in_mapping).min(region.size.get() - offset);
            };
            match descend::<false>(space, at, Access(0), rights, pass) {
                Ok(found) if !found.device => Run {
                    first: Some(found.pfn),
                    bytes,
                },
                Ok(_) | Err(Miss::Absent(_)) => NOTHING,
                Err(Miss::Vacant(met)) => return Err(Stop::Vacant(met)),
            }
        }
    })
}

/// The first offset from `offset` on at which something may be mapped, or `None`.
pub(crate) fn next_mapped(region: &'static Region, offset: u64) -> Option<u64> {
    if region.source.get() != Source::Space {
        return Some(offset);
    }
    let space = region.space.get().get()?;
    let at = region.start.get() + offset;
    let m = space.mappings.next(at)?;
    Some(m.start.get().max(at) - region.start.get())
}

/// Whether `length` bytes at the address lie below the end of user memory.
fn in_range(address: u64, length: u64) -> bool {
    address < USER_END && length <= USER_END - address
}

fn outside(address: u64, need: Access) -> Stop {
    Stop::Fault(Fault {
        address,
        access: need,
        at: None,
    })
}

/// Makes every page of a range present, so that a later access does not fault (unless the page is taken away in
/// between).
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn probe(
    k: K,
    space: &'static Space,
    address: u64,
    length: u64,
    need: Access,
) -> Result<(), Stop> {
    if length == 0 {
        return Ok(());
    }
    if !in_range(address, length) {
        return Err(outside(address, need));
    }
    let mut page = address & !(PAGE_SIZE - 1);
    while page < address + length {
        translate(k, space, page.max(address), need)?;
        page += PAGE_SIZE;
    }
    Ok(())
}

/// A range of a program's memory, at most one page long, whose physical frames have been found, so that access to it
/// cannot fail. A handler finds its spans before it changes anything, since a fault makes the handler begin again.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// Physical frame of the first byte, and the byte's offset there.
    start: (Pfn, u64),
    /// Number of bytes that lie in that frame.
    border: usize,
    /// The physical frame of the remaining bytes, which begin at its start.
    next: Pfn,
}

impl Span {
    /// Finds `count` words, at least one. The address must be aligned to 8.
    #[inline(always)]
    #[cfg_attr(fermata_probe, track_caller)]
    pub(crate) fn words(
        k: K,
        space: &'static Space,
        address: u64,
        count: usize,
        need: Access,
    ) -> Result<Self, Stop> {
        word_aligned(address)?;
        let (offset, length) = (address % PAGE_SIZE, count as u64 * 8);
        if offset + length > PAGE_SIZE {
            return Span::across(k, space, address, length, need);
        }
        let pfn = translate(k, space, address, need)?;
        Ok(Span {
            start: (pfn, offset),
            border: length as usize,
            next: pfn,
        })
    }

    /// [`Span::words`], for a range that crosses a page border.
    #[inline(never)]
    #[cfg_attr(fermata_probe, track_caller)]
    fn across(
        k: K,
        space: &'static Space,
        address: u64,
        length: u64,
        need: Access,
    ) -> Result<Self, Stop> {
        if !in_range(address, length) {
            return Err(outside(address, need));
        }
        let offset = address % PAGE_SIZE;
        let border = PAGE_SIZE - offset;
        Ok(Span {
            start: (translate(k, space, address, need)?, offset),
            border: border as usize,
            next: translate(k, space, address + border, need)?,
        })
    }

    /// Calls `f` for the part of the bytes in each physical frame: the frame, the offset in it, and the range
    /// of bytes.
    #[inline(always)]
    fn parts(&self, bytes: Range<usize>, mut f: impl FnMut(Pfn, u64, Range<usize>)) {
        let (pfn, offset) = self.start;
        let (begin, end) = (bytes.start, bytes.end);
        if begin < self.border {
            f(pfn, offset + begin as u64, begin..end.min(self.border));
        }
        if end > self.border {
            let begin = begin.max(self.border);
            f(self.next, (begin - self.border) as u64, begin..end);
        }
    }

    /// Reads the first `N` words.
    #[inline(always)]
    pub(crate) fn read<const N: usize>(&self) -> [u64; N] {
        if self.border >= 8 * N {
            return hal::read_array(self.start.0, self.start.1);
        }
        let mut words = [0; N];
        self.parts(0..8 * N, |pfn, at, part| {
            hal::read_words(pfn, at, &mut words[part.start / 8..part.end / 8]);
        });
        words
    }

    /// Writes the first words.
    #[inline(always)]
    pub(crate) fn write(&self, words: &[u64]) {
        self.parts(0..8 * words.len(), |pfn, at, part| {
            hal::write_words(pfn, at, &words[part.start / 8..part.end / 8]);
        });
    }

    /// Reads bytes, from byte `from` on.
    pub(crate) fn read_bytes(&self, from: usize, into: &mut [u8]) {
        self.parts(from..from + into.len(), |pfn, at, part| {
            hal::read_bytes(pfn, at, &mut into[part.start - from..part.end - from]);
        });
    }

    /// Writes bytes, from byte `from` on.
    pub(crate) fn write_bytes(&self, from: usize, bytes: &[u8]) {
        self.parts(from..from + bytes.len(), |pfn, at, part| {
            hal::write_bytes(pfn, at, &bytes[part.start - from..part.end - from]);
        });
    }
}

/// Checks that the address of words is aligned to 8.
pub(crate) fn word_aligned(address: u64) -> Result<(), Stop> {
    if address.is_multiple_of(8) {
        Ok(())
    } else {
        Err(Stop::Exception(abi::Exception::Misaligned, address))
    }
}

/// The frame and rights that a walk finds, for comparison with page tables.
#[cfg(any(test, fermata_probe))]
pub(crate) fn look(space: &'static Space, page: u64) -> Option<(Pfn, u64)> {
    walk(space, page, Access(0))
        .ok()
        .map(|found| (found.pfn, found.rights))
}
