//! Calls on memory.

use crate::emulate::{Caller, Result, Stop};
use crate::errno::{EACCES, EEXIST, EFAULT, EINVAL, ENODEV, ENOMEM};
use crate::exec::RESERVE;
use crate::memory::{page_up, Kind, Prot, END, EXECUTE, LOWEST, MMAP_TOP, PAGE, READ, WRITE};
use linux_raw_sys::general as linux;

/// Bytes moved at a time.
const CHUNK: u64 = 64 * 1024;

/// Fails when there is not so much memory to be had. Private writable memory is promised only
/// while there is free memory for it; what a program does with the promise is its own affair.
fn afford(c: &mut Caller, size: u64) -> Result<()> {
    if size > 0 && c.h.memory_usage().free < size.saturating_add(RESERVE) {
        return Err(ENOMEM.into());
    }
    Ok(())
}

/// `brk`: returns the new end of the heap, or the old one when it cannot be.
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
fn remove(c: &mut Caller, start: u64, end: u64) -> Result<()> {
    if c.p.memory.areas.is_free(start, end) {
        return Ok(());
    }
    let new = c.p.memory.areas.replaced(start, end, None);
    c.p.memory.areas.apply(c.h, new)?;
    c.h.discard(start, end - start);
    Ok(())
}

/// The page-aligned range of a call, all of it within a program's memory.
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
    let kind = flags & MAP_TYPE;
    let known = matches!(kind, MAP_SHARED | MAP_PRIVATE | MAP_SHARED_VALIDATE);
    if size == 0 || !known || !offset.is_multiple_of(PAGE) {
        return Err(EINVAL.into());
    }
    let size = page_up(size).ok_or(ENOMEM)?;
    let prot = (prot & 7) as Prot;
    let mut file = None;
    if flags & ANONYMOUS == 0 {
        let (ino, _) = super::file::mappable(c, fd)?;
        if kind != MAP_PRIVATE && prot & WRITE != 0 {
            let topic = 1 << 32 | c.entry.rax;
            c.report(
                topic,
                "a writable shared mapping of a file is not supported yet",
            );
            return Err(ENODEV.into());
        }
        file = Some(ino);
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
        c.p.memory.areas.find_free(size, hint).ok_or(ENOMEM)?
    };
    let end = start + size;
    if file.is_some() || prot & WRITE != 0 {
        afford(c, size)?;
    }
    // The old contents are removed before the new ones are read.
    remove(c, start, end)?;
    let kind = if file.is_some() {
        Kind::File
    } else {
        Kind::Anonymous
    };
    let new = c.p.memory.areas.replaced(start, end, Some((prot, kind)));
    c.p.memory.areas.apply(c.h, new)?;
    if let Some(ino) = file {
        let mut chunk = alloc::vec![0; CHUNK as usize];
        let mut done = 0;
        while done < size {
            let want = (size - done).min(CHUNK) as usize;
            let got = match super::file::read_file_now(c, ino, offset + done, &mut chunk[..want]) {
                Ok(got) => got,
                Err(stop) => {
                    remove(c, start, end)?;
                    return Err(stop);
                }
            };
            c.h.write_memory(start + done, &chunk[..got])?;
            done += got as u64;
            if got < want {
                break;
            }
        }
    }
    Ok(start)
}

/// `munmap`.
pub fn munmap(c: &mut Caller, start: u64, size: u64) -> Result {
    if size == 0 || start > END {
        return Err(EINVAL.into());
    }
    let (start, end) = range(start, size).map_err(|_| Stop::Errno(EINVAL))?;
    remove(c, start, end)?;
    Ok(0)
}

/// `mprotect`.
pub fn mprotect(c: &mut Caller, start: u64, size: u64, prot: u32) -> Result {
    const GROWS: u32 = linux::PROT_GROWSDOWN | linux::PROT_GROWSUP;
    if prot & !u32::from(READ | WRITE | EXECUTE) != 0 {
        return Err(if prot & GROWS != 0 { ENOMEM } else { EINVAL }.into());
    }
    let (start, end) = range(start, size)?;
    if start == end {
        return Ok(0);
    }
    let new =
        c.p.memory
            .areas
            .protected(start, end, prot as Prot)
            .ok_or(ENOMEM)?;
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
    let area = *c.p.memory.areas.find(start).ok_or(EFAULT)?;
    let end = start
        .checked_add(old)
        .filter(|end| *end <= END)
        .ok_or(EFAULT)?;
    if end > area.end {
        return Err(EFAULT.into());
    }
    if flags & FIXED == 0 {
        if new <= old {
            remove(c, start + new, end)?;
            return Ok(start);
        }
        let grown = start.checked_add(new).filter(|grown| *grown <= MMAP_TOP);
        if let Some(grown) =
            grown.filter(|grown| end == area.end && c.p.memory.areas.is_free(end, *grown))
        {
            afford(c, new - old)?;
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
    afford(c, new)?;
    remove(c, target, target + new)?;
    let areas =
        c.p.memory
            .areas
            .replaced(target, target + new, Some((area.prot, area.kind)));
    c.p.memory.areas.apply(c.h, areas)?;
    // A page lives at the offset of its address, so moving is copying.
    let mut chunk = alloc::vec![0; CHUNK as usize];
    let mut done = 0;
    while done < old.min(new) {
        let piece = (old.min(new) - done).min(CHUNK) as usize;
        c.h.read_memory(start + done, &mut chunk[..piece])?;
        for (i, page) in chunk[..piece].chunks(PAGE as usize).enumerate() {
            // A page of zeros is what is there already.
            if page.iter().any(|b| *b != 0) {
                c.h.write_memory(target + done + i as u64 * PAGE, page)?;
            }
        }
        done += piece as u64;
    }
    remove(c, start, end)?;
    Ok(target)
}

/// `madvise`.
pub fn madvise(c: &mut Caller, start: u64, size: u64, advice: u32) -> Result {
    let (start, end) = range(start, size)?;
    match advice {
        // Private memory reads as zero afterwards.
        linux::MADV_DONTNEED => {
            if !c.p.memory.areas.covers(start, end) {
                return Err(ENOMEM.into());
            }
            let refills = |a: &&crate::memory::Area| {
                a.start < end && start < a.end && matches!(a.kind, Kind::File | Kind::Program)
            };
            if c.p.memory.areas.list().iter().any(|a| refills(&a)) {
                // It would have to be read again from a file that may have changed.
                return Err(EINVAL.into());
            }
            if start < end {
                c.h.discard(start, end - start);
            }
            Ok(0)
        }
        // Hints that may be ignored, MADV_FREE among them.
        0..=3 | 8..=21 | 25 => Ok(0),
        _ => Err(EINVAL.into()),
    }
}

/// `msync`: there are no shared mappings of files that could have changed.
pub fn msync(c: &mut Caller, start: u64, size: u64) -> Result {
    let (start, end) = range(start, size)?;
    if c.p.memory.areas.covers(start, end) {
        Ok(0)
    } else {
        Err(ENOMEM.into())
    }
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
