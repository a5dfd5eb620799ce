//! Calls on memory.

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{Errno, EACCES, EBADF, EEXIST, EFAULT, EINVAL, ENODEV, ENOMEM, EOVERFLOW};
use crate::exec::RESERVE;
use crate::files::Request;
use crate::loading::{self, Mapping};
use crate::memory::{
    is_data, page_up, Area, Areas, Kind, OfFile, Prot, Source, END, EXECUTE, LOWEST, MMAP_TOP,
    PAGE, READ, WRITE,
};
use crate::object::Use;
use crate::system::Key;
use linux_raw_sys::general as linux;

/// Fails with `ENOMEM` unless `size` bytes of memory are free beside the reserve. This is checked when private writable
/// memory is mapped; the memory is not reserved for the program.
pub fn afford(c: &mut Caller, size: u64) -> Result<()> {
    if size > 0 && c.h.memory_usage().free < size.saturating_add(RESERVE) {
        return Err(ENOMEM.into());
    }
    Ok(())
}

/// As [`afford`], for a mapping of a file, which takes at most as much as the file has from `offset` on: programs map
/// small files with much room behind. The file system is asked only if there is too little memory for the whole range.
fn afford_file(c: &mut Caller, ino: u64, offset: u64, size: u64) -> Result<()> {
    if afford(c, size).is_ok() {
        return Ok(());
    }
    let rest = c.attr(&Request::StatIno { ino })?.size;
    afford(c, size.min(rest.saturating_sub(offset)))
}

/// `brk`: returns the new end of the heap, or the old one if it cannot be changed.
pub fn brk(c: &mut Caller, end: u64) -> Result {
    let old = c.p.memory.brk;
    if end < c.p.memory.brk_start || end == old {
        return Ok(old);
    }
    let (Some(old_page), Some(new_page)) = (page_up(old), page_up(end)) else {
        return Ok(old);
    };
    if new_page > old_page {
        if new_page > MMAP_TOP
            || super::limit::may_map(c, new_page - old_page, true).is_err()
            || !c.p.memory.areas.is_free(old_page, new_page)
            || afford(c, new_page - old_page).is_err()
        {
            return Ok(old);
        }
        let new =
            c.p.memory
                .areas
                .replaced(old_page, new_page, Some((READ | WRITE, Kind::Heap)));
        if c.p.memory.areas.apply(c.h, new).is_err() {
            return Ok(old);
        }
    } else if new_page < old_page && remove(c, new_page, old_page).is_err() {
        return Ok(old);
    }
    c.p.memory.brk = end;
    Ok(end)
}

/// Unmaps a range and gives its pages back.
pub(super) fn remove(c: &mut Caller, start: u64, end: u64) -> Result<()> {
    if c.p.memory.areas.is_free(start, end) {
        return Ok(());
    }
    let new = c.p.memory.areas.replaced(start, end, None);
    c.p.memory.areas.apply(c.h, new)?;
    c.h.discard(start, end - start);
    tidy(c);
    Ok(())
}

/// Unmaps the areas for which `goes` holds, in one change of the list. They must show memory objects, so that the
/// process has no pages of its own there to give back.
pub fn unmap_object(c: &mut Caller, goes: impl Fn(&Area) -> bool) -> Result<()> {
    let areas = c.p.memory.areas.list().iter();
    let new = areas.filter(|area| !goes(area)).copied().collect();
    c.p.memory.areas.apply(c.h, new)?;
    tidy(c);
    Ok(())
}

/// Drops the references to memory objects of which no area is left.
fn tidy(c: &mut Caller) {
    let memory = &mut *c.p.memory;
    memory.objects.tidy(&memory.areas);
}

/// The page-aligned range of a call. Errors: `EINVAL` if the start is not aligned, `ENOMEM` if the end overflows.
fn range(start: u64, size: u64) -> Result<(u64, u64)> {
    if !start.is_multiple_of(PAGE) {
        return Err(EINVAL.into());
    }
    let end = start.checked_add(size).and_then(page_up).ok_or(ENOMEM)?;
    Ok((start, end))
}

/// `mmap`.
pub fn mmap(
    c: &mut Caller,
    hint: u64,
    size: u64,
    prot: u32,
    flags: u32,
    fd: i32,
    offset: u64,
) -> Result {
    use linux::{
        MAP_ANONYMOUS as ANONYMOUS, MAP_FIXED as FIXED, MAP_FIXED_NOREPLACE as FIXED_NOREPLACE,
        MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_TYPE,
    };
    let kind_of_mapping = flags & MAP_TYPE;
    let known = matches!(
        kind_of_mapping,
        MAP_SHARED | MAP_PRIVATE | MAP_SHARED_VALIDATE
    );
    if size == 0 || !known || !offset.is_multiple_of(PAGE) {
        return Err(EINVAL.into());
    }
    let size = page_up(size).ok_or(ENOMEM)?;
    let prot = (prot & 7) as Prot;
    let mut shared = kind_of_mapping != MAP_PRIVATE;
    let mut file = None;
    let mut may_write = true;
    if flags & ANONYMOUS == 0 {
        if let Some((ino, is_writable)) = super::file::mappable(c, fd)? {
            file = Some(ino);
            may_write = is_writable;
        }
    }
    if let Some(ino) = file.filter(|_| shared) {
        if prot & WRITE != 0 && !may_write {
            return Err(EACCES.into());
        }
        let end = offset.checked_add(size).ok_or(EOVERFLOW)?;
        if ino & services::fs::ON_DISK != 0 {
            if prot & WRITE != 0 {
                let topic = 1 << 32 | c.entry.rax;
                c.note(
                    topic,
                    "a writable shared mapping of a file on the disk is not supported yet",
                );
                return Err(ENODEV.into());
            }
            shared = false;
        } else if end > END {
            return Err(ENOMEM.into());
        } else if !may_write && !c.s.objects.is_writable(ino) {
            // No mapping can change the file, and a process that has a private copy of it instead can be checkpointed.
            shared = false;
        }
        // A seal affects new mappings only; a mapping that was writable before stays so.
        const SEALED: u32 = linux::F_SEAL_WRITE | linux::F_SEAL_FUTURE_WRITE;
        if super::memfd::seals(c, ino) & SEALED != 0 {
            if prot & WRITE != 0 {
                return Err(crate::errno::EPERM.into());
            }
            may_write = false;
        }
    }
    if let Some(mapping) = loading::begun(c, file.filter(|_| !shared)) {
        return loading::map(c, mapping);
    }
    let fixed = flags & (FIXED | FIXED_NOREPLACE) != 0;
    let start = if fixed {
        let (start, end) = range(hint, size)?;
        if start < LOWEST {
            return Err(crate::errno::EPERM.into());
        }
        if end > END {
            return Err(ENOMEM.into());
        }
        if flags & FIXED_NOREPLACE != 0 && !c.p.memory.areas.is_free(start, end) {
            return Err(EEXIST.into());
        }
        start
    } else {
        let areas = &c.p.memory.areas;
        let found = match flags & linux::MAP_32BIT {
            0 => areas.find_free(size, hint),
            _ => areas.find_low(size, hint),
        };
        found.ok_or(ENOMEM)?
    };
    let end = start + size;
    may_replace(c, start, end, prot & WRITE != 0 && !shared)?;
    if let Some(ino) = file {
        afford_file(c, ino, offset, size)?;
    } else if prot & WRITE != 0 && flags & linux::MAP_NORESERVE == 0 {
        afford(c, size)?;
    }
    if shared {
        return map_object(
            c,
            (start, end),
            prot,
            file.map(|_| fd as u32),
            // Anonymous memory has no offset, whatever the caller passes.
            file.map_or(0, |_| offset),
            may_write,
        );
    }
    // The old contents are removed before the new ones are read.
    remove(c, start, end)?;
    let (prot_now, kind) = match file {
        // The range is reserved, without access, until all of the file is loaded.
        Some(_) => {
            let thread = c.p.task.thread;
            (0, Kind::Loading { thread })
        }
        None => (prot, Kind::Anonymous),
    };
    let by = Some((prot_now, kind));
    let new = c.p.memory.areas.replaced(start, end, by);
    c.p.memory.areas.apply(c.h, new)?;
    let Some(ino) = file else { return Ok(start) };
    let mapping = Mapping {
        ino,
        offset,
        start,
        end,
        prot,
        shared: kind_of_mapping != MAP_PRIVATE,
        done: 0,
    };
    loading::map(c, mapping)
}

/// Fails if a limit of the process forbids a new area in the place of what is mapped in the range.
pub fn may_replace(c: &Caller, start: u64, end: u64, is_data: bool) -> Result<()> {
    let taken = c.p.memory.areas.taken(start, end);
    super::limit::may_map(c, end - start - taken, is_data)
}

/// Maps a new memory object or, with `fd`, the object of that file, from `offset` on.
fn map_object(
    c: &mut Caller,
    (start, end): (u64, u64),
    prot: Prot,
    fd: Option<u32>,
    offset: u64,
    may_write: bool,
) -> Result {
    let payer = c.process().payer;
    let used = match fd {
        None => c.s.new_object(c.h, payer)?,
        Some(fd) => {
            let description = Rc::clone(&c.p.files.fds.get(fd).ok_or(EBADF)?.description);
            let ino = description.borrow().ino().ok_or(ENODEV)?;
            let used = c.s.object_of_file(c.h, payer, ino, &description)?;
            let bytes = (offset, offset + (end - start));
            if !c.s.load_object(c.h, used.id(), bytes)? {
                // The call that is made again finds the object by its file.
                return Err(loading::go_on_with(c, used));
            }
            used
        }
    };
    map_used(c, (start, end), prot, used, offset, may_write)
}

/// Maps a memory object from `offset` on, in the place of what is mapped in the range.
pub fn map_used(
    c: &mut Caller,
    (start, end): (u64, u64),
    prot: Prot,
    used: Rc<Use>,
    offset: u64,
    may_write: bool,
) -> Result {
    remove(c, start, end)?;
    let kind = Kind::Shared {
        id: used.id(),
        shift: offset.wrapping_sub(start),
        may_write,
    };
    let new = c.p.memory.areas.replaced(start, end, Some((prot, kind)));
    c.p.memory.objects.insert(used);
    let mapped = c.p.memory.areas.apply(c.h, new);
    tidy(c);
    mapped?;
    Ok(start)
}

/// `munmap`.
pub fn munmap(c: &mut Caller, start: u64, size: u64) -> Result {
    if size == 0 || start > END {
        return Err(EINVAL.into());
    }
    let (start, end) = range(start, size).map_err(|_| Stop::Errno(EINVAL))?;
    let ids = settle(c, |area| area.start < end && start < area.end)?;
    remove(c, start, end)?;
    // If the call has waited, others may have mapped the objects meanwhile and changed them.
    if c.progress() == 0 && tasks_in_memory(c) == 1 {
        for id in ids {
            c.s.objects.is_as_written(id);
        }
    }
    Ok(0)
}

/// Before these areas go: waits until the changes of mapped files that nobody else has mapped are written back. Returns
/// the objects.
fn settle(c: &mut Caller, which: impl Fn(&Area) -> bool) -> Result<BTreeSet<u64>> {
    if c.p.memory.objects.is_empty() {
        return Ok(BTreeSet::new());
    }
    let areas = c.p.memory.areas.list().iter().filter(|a| which(a));
    let ids: BTreeSet<u64> = areas
        .filter_map(Area::object)
        .filter(|id| c.s.objects.goes_with(*id))
        .collect();
    // As on Linux, what cannot be written back does not keep the areas from going.
    let _ = write_back(c, ids.clone(), true)?;
    Ok(ids)
}

/// As `settle`, for all areas, before the process ends or executes another program. Not if other tasks share the
/// memory: they would go on changing it.
pub fn settle_all(c: &mut Caller) -> Result<()> {
    if tasks_in_memory(c) == 1 {
        settle(c, |_| true)?;
    }
    Ok(())
}

/// How many tasks share the caller's memory.
pub(super) fn tasks_in_memory(c: &Caller) -> usize {
    // The call itself holds one more reference.
    Rc::strong_count(&c.p.task.shares.memory) - 1
}

/// `mprotect`.
pub fn mprotect(c: &mut Caller, start: u64, size: u64, prot: u32) -> Result {
    const GROWS: u32 = linux::PROT_GROWSDOWN | linux::PROT_GROWSUP;
    if prot & !(u32::from(READ | WRITE | EXECUTE) | GROWS) != 0 || prot & GROWS == GROWS {
        return Err(EINVAL.into());
    }
    let (mut start, end) = range(start, size)?;
    if prot & GROWS != 0 && start < end {
        // The protection applies down to the lowest page of the stack. No area grows upwards.
        let area = c.p.memory.areas.find(start).ok_or(ENOMEM)?;
        if area.kind != Kind::Stack || prot & linux::PROT_GROWSUP != 0 {
            return Err(EINVAL.into());
        }
        start = area.start;
    }
    let prot = prot & !GROWS;
    if start == end {
        return Ok(0);
    }
    if prot & u32::from(WRITE) != 0 {
        let forbids = |area: &Area| {
            // A private copy that stands for a shared mapping would not pass on what is written to it.
            let only_reads = matches!(
                area.kind,
                Kind::Shared {
                    may_write: false,
                    ..
                } | Kind::Mapped(OfFile { shared: true, .. })
            );
            only_reads && area.start < end && start < area.end
        };
        if c.p.memory.areas.list().iter().any(forbids) {
            return Err(EACCES.into());
        }
    }
    let new =
        c.p.memory
            .areas
            .protected(start, end, prot as Prot)
            .ok_or(ENOMEM)?;
    if prot & u32::from(WRITE) != 0 {
        let areas = c.p.memory.areas.list()[c.p.memory.areas.first_after(start)..].iter();
        let those = areas.take_while(|area| area.start < end);
        let those = those.filter(|area| area.prot & WRITE == 0 && is_data(WRITE, area.kind));
        let more = those.map(|area| area.end.min(end) - area.start.max(start));
        super::limit::may_write(c, more.sum())?;
    }
    c.p.memory.areas.apply(c.h, new)?;
    Ok(0)
}

/// `mremap`.
pub fn mremap(c: &mut Caller, start: u64, old: u64, new: u64, flags: u32, to: u64) -> Result {
    use linux::{MREMAP_FIXED as FIXED, MREMAP_MAYMOVE as MAYMOVE};
    if !start.is_multiple_of(PAGE)
        || new == 0
        || old == 0
        || flags & !(MAYMOVE | FIXED) != 0
        || flags & FIXED != 0 && (flags & MAYMOVE == 0 || !to.is_multiple_of(PAGE))
    {
        return Err(EINVAL.into());
    }
    let old = page_up(old).ok_or(EINVAL)?;
    let new = page_up(new).ok_or(ENOMEM)?;
    let area = c.p.memory.areas.find(start).filter(|a| !a.is_loading());
    let area = *area.ok_or(EFAULT)?;
    let end = start
        .checked_add(old)
        .filter(|end| *end <= END)
        .ok_or(EFAULT)?;
    if flags & FIXED == 0 && new <= old {
        // This only unmaps the tail, in whatever areas it is.
        remove(c, start + new, end)?;
        return Ok(start);
    }
    if end > area.end {
        return Err(EFAULT.into());
    }
    if new > old && area.is_of_file() {
        // The file would have to be read further, and it may be gone.
        return Err(ENOMEM.into());
    }
    if flags & FIXED == 0 {
        let grown = start.checked_add(new).filter(|grown| *grown <= MMAP_TOP);
        if let Some(grown) =
            grown.filter(|grown| end == area.end && c.p.memory.areas.is_free(end, *grown))
        {
            super::limit::may_map(c, new - old, is_data(area.prot, area.kind))?;
            afford(c, new - old)?;
            grow_object(c, &area, grown)?;
            let areas =
                c.p.memory
                    .areas
                    .replaced(end, grown, Some((area.prot, area.kind)));
            c.p.memory.areas.apply(c.h, areas)?;
            return Ok(start);
        }
        if flags & MAYMOVE == 0 {
            return Err(ENOMEM.into());
        }
    }
    let target = if flags & FIXED != 0 {
        let (target, target_end) = range(to, new)?;
        if target < LOWEST || target_end > END || (target < end && start < target_end) {
            return Err(EINVAL.into());
        }
        target
    } else {
        c.p.memory.areas.find_free(new, 0).ok_or(ENOMEM)?
    };
    let more = new.saturating_sub(old);
    super::limit::may_map(c, more, is_data(area.prot, area.kind))?;
    afford(c, new)?;
    grow_object(c, &area, start.checked_add(new).ok_or(ENOMEM)?)?;
    remove(c, target, target + new)?;
    let kind = match area.kind {
        Kind::Shared {
            id,
            shift,
            may_write,
        } => Kind::Shared {
            id,
            shift: shift.wrapping_add(start).wrapping_sub(target),
            may_write,
        },
        Kind::Mapped(from) => Kind::Mapped(OfFile {
            shift: from.shift.wrapping_add(start).wrapping_sub(target),
            ..from
        }),
        kind => kind,
    };
    let areas =
        c.p.memory
            .areas
            .replaced(target, target + new, Some((area.prot, kind)));
    c.p.memory.areas.apply(c.h, areas)?;
    if area.object().is_some() {
        remove(c, start, end)?;
        return Ok(target);
    }
    // The contents of a page are stored at the offset of its address, so pages are moved by copying.
    c.h.hide_breakpoints(true);
    let copied = copy(c, start, target, old.min(new));
    c.h.hide_breakpoints(false);
    copied?;
    remove(c, start, end)?;
    Ok(target)
}

/// Copies memory of the process to a range that reads as zeros.
fn copy(c: &mut Caller, from: u64, to: u64, length: u64) -> Result<()> {
    let mut chunk = c.s.take_chunk();
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(chunk.len() as u64) as usize;
        c.h.read_memory(from + done, &mut chunk[..piece])?;
        for (i, page) in chunk[..piece].chunks(PAGE as usize).enumerate() {
            // The target reads as zeros already.
            if page.iter().any(|b| *b != 0) {
                c.h.write_memory(to + done + i as u64 * PAGE, page)?;
            }
        }
        done += piece as u64;
    }
    c.s.give_chunk(chunk);
    Ok(())
}

/// Before an area is extended up to `end`: has its memory object load that much of its file.
fn grow_object(c: &mut Caller, area: &Area, end: u64) -> Result<()> {
    let Source::Object { id, offset } = area.source() else {
        return Ok(());
    };
    let upto = offset
        .checked_add(end - area.start)
        .filter(|upto| *upto <= END);
    let bytes = (offset, upto.ok_or(ENOMEM)?);
    // How far loading has come is kept with the object, so other programs can have their turns in between.
    match c.s.load_object(c.h, id, bytes)? {
        true => Ok(()),
        false => Err(Stop::Turn),
    }
}

/// `madvise`.
pub fn madvise(c: &mut Caller, start: u64, size: u64, advice: u32) -> Result {
    let (start, end) = range(start, size)?;
    match advice {
        linux::MADV_DONTNEED => drop_pages(c, start, end),
        linux::MADV_REMOVE => give_back(c, start, end),
        linux::MADV_FREE => {
            // Linux frees such pages when memory is short, at once if it is.
            let is_other = |area: &&Area| {
                let is_own = matches!(area.kind, Kind::Anonymous | Kind::Heap | Kind::Stack);
                !is_own && start < end && area.start < end && start < area.end
            };
            let mut others = c.p.memory.areas.list().iter().filter(is_other);
            match others.next() {
                Some(_) => Err(EINVAL.into()),
                None => drop_pages(c, start, end),
            }
        }
        // Hints that may be ignored. `MADV_DONTFORK` and `MADV_WIPEONFORK` are refused, because
        // programs rely on their effect.
        0..=3 | 11..=17 | 19..=21 | 25 => Ok(0),
        _ => Err(EINVAL.into()),
    }
}

/// `MADV_DONTNEED`: private memory reads as zero afterwards. Pages of memory objects keep their contents, and so do
/// read-only copies of files, which equal their files.
fn drop_pages(c: &mut Caller, start: u64, end: u64) -> Result {
    let is_met = |area: &&Area| area.start < end && start < area.end && area.is_of_file();
    let areas = &c.p.memory.areas;
    let of_files = || areas.list().iter().filter(is_met);
    if of_files().any(|area| area.prot & WRITE != 0) {
        // The file would have to be read again, and it may have changed.
        return Err(EINVAL.into());
    }
    let is_covered = areas.covers(start, end);
    let done = begun_at(c, start, end);
    // The parts of the range between copies of files, without those that earlier turns have done.
    let mut from = start;
    let mut between = Vec::new();
    for (until, behind) in of_files()
        .map(|area| (area.start, area.end))
        .chain([(end, end)])
    {
        let piece = (from.max(done), until.max(start));
        if piece.0 < piece.1 && between.len() <= RANGES_AT_ONCE {
            between.push(piece);
        }
        from = behind;
    }
    for (at, until) in between.iter().take(RANGES_AT_ONCE) {
        c.h.discard(*at, until - at);
    }
    match between.get(RANGES_AT_ONCE) {
        Some((at, _)) => Err(c.turn(at - start)),
        // As on Linux, the mapped parts are dropped before the call fails because of holes.
        None => is_covered.then_some(0).ok_or(ENOMEM.into()),
    }
}

/// Ranges of memory objects that a call gives back in one turn: each is a request to the memory server.
pub(crate) const RANGES_AT_ONCE: usize = 64;

/// Where a call that goes through a range in turns continues. Its progress is in bytes of the range; it may come from a
/// checkpoint image, so it can be any number.
fn begun_at(c: &Caller, start: u64, end: u64) -> u64 {
    start.saturating_add(c.progress() & !(PAGE - 1)).min(end)
}

/// `MADV_REMOVE`: gives back the pages of memory objects that are mapped there.
fn give_back(c: &mut Caller, start: u64, end: u64) -> Result {
    let mut at = begun_at(c, start, end);
    for _ in 0..RANGES_AT_ONCE {
        let Some(range) = range_of_object(&c.p.memory.areas, at, end)? else {
            return Ok(0);
        };
        c.h.discard_object(range.id, range.from, range.to - range.from);
        at = range.behind;
    }
    match at < end {
        true => Err(c.turn(at - start)),
        false => Ok(0),
    }
}

/// Pages of a memory object.
struct Range {
    id: u64,
    from: u64,
    to: u64,
    /// The address behind their mapping.
    behind: u64,
}

/// The pages of one memory object that are mapped from `at` on, as far as they are contiguous in both the address space
/// and the object. Errors: `EINVAL` if the first area is not of a memory object, or not writable.
fn range_of_object(areas: &Areas, at: u64, end: u64) -> Result<Option<Range>> {
    let mut found: Option<Range> = None;
    for area in &areas.list()[areas.first_after(at)..] {
        let (start, behind) = (area.start.max(at), area.end.min(end));
        if start >= end {
            break;
        }
        let (Source::Object { id, offset }, true) = (area.source(), area.prot & WRITE != 0) else {
            match found {
                None => return Err(EINVAL.into()),
                Some(_) => break,
            }
        };
        let from = offset + (start - area.start);
        let to = from + (behind - start);
        match &mut found {
            None => {
                found = Some(Range {
                    id,
                    from,
                    to,
                    behind,
                });
            }
            Some(range) if range.id == id && range.to == from => {
                (range.to, range.behind) = (to, behind);
            }
            Some(_) => break,
        }
    }
    Ok(found)
}

/// `msync`: writes the changes of mapped files back, and with `MS_SYNC` waits until that is done.
pub fn msync(c: &mut Caller, start: u64, size: u64, flags: u32) -> Result {
    use linux::{MS_ASYNC as ASYNC, MS_INVALIDATE as INVALIDATE, MS_SYNC as SYNC};
    if flags & !(ASYNC | INVALIDATE | SYNC) != 0 || flags & (ASYNC | SYNC) == ASYNC | SYNC {
        return Err(EINVAL.into());
    }
    let (start, end) = range(start, size)?;
    if !c.p.memory.areas.covers(start, end) {
        return Err(ENOMEM.into());
    }
    let areas = c.p.memory.areas.list().iter();
    let those = areas.filter(|a| a.start < end && start < a.end);
    let ids: BTreeSet<u64> = those.filter_map(Area::object).collect();
    match write_back(c, ids, flags & SYNC != 0)? {
        None => Ok(0),
        Some(error) => Err(error.into()),
    }
}

/// Has the files of memory objects written back as they are at this time; waits for that if `waits`. Returns the error
/// because of which that was given up.
pub fn write_back(c: &mut Caller, ids: BTreeSet<u64>, waits: bool) -> Result<Option<Errno>> {
    let mut asked = c.progress();
    if asked == 0 {
        let mut first = None;
        for id in &ids {
            if let Some(now) = c.s.objects.write_back(*id, waits) {
                asked = now;
                first = first.or(Some(*id));
            }
        }
        // For most calls this completes it. Further objects are written back in turns.
        if let Some(id) = first {
            c.s.settle_object(c.h, id);
        }
    }
    if asked == 0 || !waits {
        return Ok(None);
    }
    let behind: Vec<Key> = ids
        .iter()
        .filter(|id| c.s.objects.is_behind(**id, asked))
        .map(|id| Key::Object(*id))
        .collect();
    if behind.is_empty() {
        return Ok(ids.iter().find_map(|id| c.s.objects.failure(*id, asked)));
    }
    c.wait().progress = asked;
    Err(Stop::Park(Wake {
        keys: behind.into(),
        firm: true,
        ..Wake::default()
    }))
}

/// `mincore`: all pages are reported as resident.
pub fn mincore(c: &mut Caller, start: u64, size: u64, into: u64) -> Result {
    let (start, end) = range(start, size)?;
    if !c.p.memory.areas.covers(start, end) {
        return Err(ENOMEM.into());
    }
    let pages = (end - start) / PAGE;
    if pages > 1 << 20 {
        return Err(EACCES.into());
    }
    for done in (0..pages).step_by(PAGE as usize) {
        let length = (pages - done).min(PAGE) as usize;
        c.write(into.saturating_add(done), &[1; PAGE as usize][..length])?;
    }
    Ok(0)
}
