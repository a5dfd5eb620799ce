//! User memory as the kernel sees it: the mapping hierarchy, and access through it.
//!
//! A page is found by walking the hierarchy: mapping, region, space, mapping, ... down to a region
//! of physical memory. Page tables only remember what walks have found. A walk that finds the page
//! is a *soft* fault; one that does not is a *hard* fault and names the region where it failed
//! (Ford et al., Table 3).
//!
//! Every function here works on the memory of any space, not only the running one, so that either
//! end of a connection can do the work of both.

use crate::object::region::{Region, Source};
use crate::object::space::Space;
use crate::object::thread::Missing;
use crate::object::{Life, Link, ObjId, Object};
use crate::probe::{self, Kind};
use crate::{Stop, K};
use abi::{access, PAGE_SIZE, USER_END};
use core::ops::Range;
use hal::Pfn;

/// Most levels of the hierarchy that a walk looks at. A hierarchy that is deeper, or a cycle, has
/// no pages.
const MAX_DEPTH: u32 = 8;

/// Rights that an access needs, of [`abi::access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(pub(crate) u64);

impl Access {
    pub(crate) const READ: Access = Access(access::READ);
    pub(crate) const WRITE: Access = Access(access::WRITE);
    /// To find or create objects.
    pub(crate) const OBJECT: Access = Access(access::OBJECTS);
}

/// A page that a walk did not find.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    /// The access, in the space where it was made.
    pub(crate) address: u64,
    pub(crate) access: Access,
    /// The region where the walk failed, and the offset in it; none if no mapping covers the
    /// address at all.
    pub(crate) at: Option<(&'static Region, u64)>,
}

/// What a walk found.
#[derive(Clone, Copy)]
struct Found {
    pfn: Pfn,
    rights: u64,
    device: bool,
}

/// Why a walk found nothing.
#[derive(Clone, Copy)]
enum Miss {
    /// It failed: see [`Fault::at`].
    Absent(Option<(&'static Region, u64)>),
    /// It came to a vacant identity.
    Vacant,
}

impl Miss {
    /// A link on the way does not lead to an active object.
    fn behind<T: Object>(link: Link<T>) -> Self {
        match link.get() {
            Some(_) => Miss::Vacant,
            None => Miss::Absent(None),
        }
    }

    /// What stops an access for which this was the walk.
    fn stop(self, address: u64, access: Access) -> Stop {
        match self {
            Miss::Absent(at) => Stop::Fault(Fault {
                address,
                access,
                at,
            }),
            Miss::Vacant => Stop::Vacant,
        }
    }
}

/// Walks the hierarchy.
#[inline(always)]
fn walk(space: &'static Space, address: u64, need: Access) -> Result<Found, Miss> {
    let mut rights = access::ALL;
    let end = descend::<false>(space, address, need, &mut rights);
    if rights & need.0 != need.0 {
        return forbidden(space, address, need);
    }
    end
}

/// A walk that lacks a right fails where it begins to lack it, whatever lies below.
#[cold]
#[inline(never)]
fn forbidden(space: &'static Space, address: u64, need: Access) -> Result<Found, Miss> {
    descend::<true>(space, address, need, &mut { access::ALL })
}

/// One walk. What it does not allow is taken from the rights; only if `EXACT` it ends where they do not
/// suffice.
#[inline(always)]
fn descend<const EXACT: bool>(
    space: &'static Space,
    address: u64,
    need: Access,
    rights: &mut u64,
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
            return Err(Miss::Vacant);
        }
        if !allow(m.protection.get()) {
            return Err(Miss::Absent(at));
        }
        // A mapping of a dead region maps nothing, whoever keeps what is above it.
        let link = m.region.get();
        let Some(region) = link.active() else {
            return Err(Miss::behind(link.link()));
        };
        // Neither sum is too large: ranges have been looked at where they were set.
        let offset = here
            .wrapping_sub(m.start.get())
            .wrapping_add(m.offset.get());
        if offset >= region.size.get() {
            return Err(Miss::Absent(None));
        }
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
                // No objects and no kernel copies in device memory.
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

/// Finds the frame of a page and remembers it in the page table: the soft fault.
#[inline(always)]
fn resolve(k: K, space: &'static Space, address: u64, need: Access) -> Result<Pfn, Stop> {
    match walk(space, address, need) {
        Ok(found) => remember(k, space, address, need, found),
        Err(miss) => Err(miss.stop(address, need)),
    }
}

/// Puts what a walk found into the page table.
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
        // The table is right for the program; the kernel itself does not touch device memory.
        return Err(Stop::Device(address, need));
    }
    Ok(pfn)
}

/// Table pages are out: empties the table of another space. It loses nothing but time.
#[cold]
#[inline(never)]
fn evict(k: K, keep: &'static Space) -> Result<(), Stop> {
    for _ in 0..2 * k.spaces.slots().max(1) {
        let hand = k.table_hand.get();
        k.table_hand.set(hand + 1);
        if let Some(victim) = k.spaces.get(hand % k.spaces.slots().max(1)) {
            if !core::ptr::eq(victim, keep) && victim.table.pages() > 0 {
                victim.empty_table(k);
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

/// [`resolve`] for an access of the kernel.
#[cold]
#[inline(never)]
fn walk_for(k: K, space: &'static Space, address: u64, need: Access) -> Result<Pfn, Stop> {
    resolve(k, space, address, need)
}

/// [`translate`] by the page table.
fn look_up(k: K, space: &'static Space, address: u64, need: Access) -> Result<Pfn, Stop> {
    match space.table.lookup(address) {
        Some((pfn, rights)) if rights & need.0 == need.0 && hal::user_frame(pfn) => {
            space.note_near(address, pfn, rights);
            Ok(pfn)
        }
        _ => walk_for(k, space, address, need),
    }
}

/// The frame behind an address, for an access of this kind by the kernel.
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

/// Makes a page present for the program itself. With [`Stop::Device`] it is present, too.
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

/// Whether a walk still fails as it did, in the same region. (What its keeper supplied may in turn have
/// to be supplied by another keeper.) If it does not fail, the page is present from then on: who faulted
/// need not fault again to find that out.
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

/// Whether the program itself allows objects at the address. (Where nothing is mapped it is a bad
/// access, and what the region forbids is its keeper's affair.)
pub(crate) fn takes_objects(space: &'static Space, address: u64) -> bool {
    space
        .mappings
        .covering(address)
        .is_none_or(|m| m.protection.get() & access::OBJECTS != 0)
}

/// The frame behind an offset of a region, if it is there: for searches. Whether it is there may
/// have to wait for a vacant identity.
pub(crate) fn region_frame(region: &'static Region, offset: u64) -> Result<Option<Pfn>, Stop> {
    Ok(match region.source.get() {
        Source::Memory => Some(frame(offset)).filter(|&pfn| hal::user_frame(pfn)),
        Source::Device => None,
        Source::Space => {
            let Some(space) = region.space.get().get() else {
                return Ok(None);
            };
            match walk(space, region.start.get() + offset, Access(0)) {
                Ok(found) => (!found.device).then_some(found.pfn),
                Err(Miss::Vacant) => return Err(Stop::Vacant),
                Err(Miss::Absent(_)) => None,
            }
        }
    })
}

/// The first offset from `offset` on behind which something can be mapped.
pub(crate) fn next_mapped(region: &'static Region, offset: u64) -> Option<u64> {
    if region.source.get() != Source::Space {
        return Some(offset);
    }
    let space = region.space.get().get()?;
    let at = region.start.get() + offset;
    let m = space.mappings.at_or_after(at)?;
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

/// Makes sure that every page of a range is there, so that a later access does not fault (unless
/// its owner takes the page away in between).
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

/// Gives `f` the parts of `count` units at the address that lie in one page each: frame, offset in
/// it, and which units these are. All pages are there before the first is given.
#[inline]
#[cfg_attr(fermata_probe, track_caller)]
fn by_page<const UNIT: u64>(
    k: K,
    space: &'static Space,
    address: u64,
    count: usize,
    need: Access,
    mut f: impl FnMut(Pfn, u64, Range<usize>),
) -> Result<(), Stop> {
    let length = count as u64 * UNIT;
    if on_one_page(address, length) {
        let pfn = translate(k, space, address, need)?;
        f(pfn, address % PAGE_SIZE, 0..count);
        return Ok(());
    }
    probe(k, space, address, length, need)?;
    let mut done = 0;
    while done < count {
        let at = address + done as u64 * UNIT;
        let n = (count - done).min(((PAGE_SIZE - at % PAGE_SIZE) / UNIT) as usize);
        let pfn = translate(k, space, at, need)?;
        f(pfn, at % PAGE_SIZE, done..done + n);
        done += n;
    }
    Ok(())
}

/// Reads words. The address must be aligned to 8.
#[inline]
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn read_words(
    k: K,
    space: &'static Space,
    address: u64,
    words: &mut [u64],
) -> Result<(), Stop> {
    word_aligned(address)?;
    by_page::<8>(
        k,
        space,
        address,
        words.len(),
        Access::READ,
        |pfn, at, n| {
            hal::read_words(pfn, at, &mut words[n]);
        },
    )
}

/// Reads so many words. The address must be aligned to 8.
#[inline(always)]
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn read_array<const N: usize>(
    k: K,
    space: &'static Space,
    address: u64,
) -> Result<[u64; N], Stop> {
    word_aligned(address)?;
    if on_one_page(address, 8 * N as u64) {
        let pfn = translate(k, space, address, Access::READ)?;
        return Ok(hal::read_array(pfn, address % PAGE_SIZE));
    }
    let mut words = [0; N];
    read_words(k, space, address, &mut words)?;
    Ok(words)
}

/// Writes words, all or none. The address must be aligned to 8.
#[inline]
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn write_words(
    k: K,
    space: &'static Space,
    address: u64,
    words: &[u64],
) -> Result<(), Stop> {
    word_aligned(address)?;
    by_page::<8>(
        k,
        space,
        address,
        words.len(),
        Access::WRITE,
        |pfn, at, n| {
            hal::write_words(pfn, at, &words[n]);
        },
    )
}

/// Reads bytes.
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn read_bytes(
    k: K,
    space: &'static Space,
    address: u64,
    into: &mut [u8],
) -> Result<(), Stop> {
    by_page::<1>(k, space, address, into.len(), Access::READ, |pfn, at, n| {
        hal::read_bytes(pfn, at, &mut into[n]);
    })
}

/// Writes bytes, all or none.
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn write_bytes(
    k: K,
    space: &'static Space,
    address: u64,
    from: &[u8],
) -> Result<(), Stop> {
    by_page::<1>(
        k,
        space,
        address,
        from.len(),
        Access::WRITE,
        |pfn, at, n| {
            hal::write_bytes(pfn, at, &from[n]);
        },
    )
}

/// Whether the range is not empty, and what is true of its first byte is true of all.
#[inline(always)]
fn on_one_page(address: u64, length: u64) -> bool {
    length > 0 && address % PAGE_SIZE + length <= PAGE_SIZE
}

/// Words must be aligned to 8.
pub(crate) fn word_aligned(address: u64) -> Result<(), Stop> {
    if address.is_multiple_of(8) {
        Ok(())
    } else {
        Err(Stop::Exception(abi::Exception::Misaligned, address))
    }
}

/// What a walk finds: frame and rights, for comparison with what tables remember.
#[cfg(any(test, fermata_probe))]
pub(crate) fn look(space: &'static Space, page: u64) -> Option<(Pfn, u64)> {
    walk(space, page, Access(0))
        .ok()
        .map(|found| (found.pfn, found.rights))
}
