//! Physical memory: its division, and the kernel's mappings of it.
//!
//! RAM above the first megabyte is divided at boot, for ever. The kernel has its image and one contiguous *pool*;
//! everything else belongs to users. The pool is allocated from its low end ([`alloc_slice`], never freed) and from its
//! high end in pages (stacks, the kernel's own translations); its highest quarter is the budget of table pages for
//! users' translations (`paging`).
//!
//! The kernel sees
//!
//! | address | what | rights |
//! |---|---|---|
//! | [`DIRECT_BASE`] + physical | all RAM above 1 MiB except the image (the direct map) | RW |
//! | [`IMAGE_BASE`] + physical | the image | RX, R, RW by section |
//! | [`POOL_BASE`] | the pool | RW |
//! | [`STACK_BASE`] | kernel stacks with unmapped pages between them | RW |
//! | [`DEVICE_BASE`] | the local APIC | RW, uncached |
//!
//! so that no byte is both writable and executable, at whatever address. `SAFETY` comments here rely on that
//! division: no Rust object is ever made in a user's frame, and no frame of the kernel is a [`user_frame`]. All ranges
//! except the direct map are in the highest 2 GiB, and so is every object to which there is a reference
//! ([`crate::NarrowCell`] relies on this). The direct map is used only for plain bytes and page tables, and no
//! reference to them leaves this crate.

use super::boot::Found;
use super::instructions::set_cr3;
use super::ranges::{reach, Ranges, BYTES_OF_FRAME};
use super::Global;
use crate::{NarrowCell, NarrowRef, Pfn};
use abi::boot::PhysRange;
use abi::PAGE_SIZE;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::cell::Cell;

/// The address at which physical memory is mapped: the direct map.
pub(super) const DIRECT_BASE: u64 = 0xffff_8000_0000_0000;
/// The most bytes of physical memory that the direct map can have.
const DIRECT_SIZE: u64 = 1 << 44;
/// The address at which the pool is mapped, up to [`POOL_MOST`] bytes.
const POOL_BASE: u64 = 0xffff_ffff_9000_0000;
const POOL_MOST: u64 = 256 * MIB;
/// The address at which kernel stacks are mapped.
pub(super) const STACK_BASE: u64 = POOL_BASE + POOL_MOST;
/// The address at which the local APIC is mapped.
pub(super) const DEVICE_BASE: u64 = 0xffff_ffff_ffe0_0000;
/// The difference between addresses of the image and its physical addresses.
pub(super) const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;

const MIB: u64 = 1 << 20;
/// The end of the translations that the boot code makes; the pool must lie below.
const FIRST_REACH: u64 = 1 << 32;

pub(super) const PRESENT: u64 = 1;
pub(super) const WRITABLE: u64 = 1 << 1;
pub(super) const USER: u64 = 1 << 2;
pub(super) const UNCACHED: u64 = 1 << 4 | 1 << 3;
pub(super) const ACCESSED: u64 = 1 << 5;
pub(super) const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
pub(super) const NO_EXECUTE: u64 = 1 << 63;
/// The physical address in an entry.
pub(super) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Flags of readable and writable data of the kernel.
const DATA: u64 = PRESENT | WRITABLE | ACCESSED | DIRTY | GLOBAL | NO_EXECUTE;

const _: () = assert!(size_of::<NarrowCell<u64>>() as u64 == BYTES_OF_FRAME);

/// The division of memory. Set once by [`init`].
pub(super) struct Memory {
    /// Users' RAM, largest range first: (first frame, frames).
    user: [Cell<(u32, u32)>; Ranges::MOST],
    frame_limit: Cell<u32>,
    /// The highest frame that the processor can address.
    last_frame: Cell<u32>,
    /// Physical bounds of the free part of the pool.
    free_start: Cell<u64>,
    free_end: Cell<u64>,
    pool_total: Cell<u64>,
    /// Physical bounds of the pool.
    pool: Cell<PhysRange>,
    /// Physical address of the kernel's own root table.
    root: Cell<u64>,
}

static MEMORY: Global<Memory> = Global(Memory {
    user: [const { Cell::new((0, 0)) }; Ranges::MOST],
    frame_limit: Cell::new(0),
    last_frame: Cell::new(0),
    free_start: Cell::new(0),
    free_end: Cell::new(0),
    pool_total: Cell::new(0),
    pool: Cell::new(PhysRange { start: 0, size: 0 }),
    root: Cell::new(0),
});

/// Symbols of the linker script: only their addresses mean something.
mod image {
    extern "C" {
        pub(super) static image_start: u8;
        pub(super) static image_end: u8;
        pub(super) static text_start: u8;
        pub(super) static text_end: u8;
        pub(super) static rodata_start: u8;
        pub(super) static rodata_end: u8;
        pub(super) static data_start: u8;
        pub(super) static data_end: u8;
    }
}

/// Divides the memory and activates the kernel's final translations.
pub(super) fn init(found: &Found) {
    let image = PhysRange {
        start: &raw const image::image_start as u64,
        size: &raw const image::image_end as u64 - &raw const image::image_start as u64,
    };
    let ram = Ranges::of_ram(&found.ram[..found.ram_count], DIRECT_SIZE).without(image);
    let total = ram.bytes();
    let pool = choose_pool(&ram.without(found.archive), total);
    MEMORY.0.pool.set(pool);
    MEMORY.0.free_start.set(pool.start);
    let tables = pool.size / 4 / PAGE_SIZE * PAGE_SIZE;
    MEMORY.0.free_end.set(pool.start + pool.size - tables);

    let reach = reach(pool.size);
    let mut user = ram.without(pool).below(reach);
    if user.bytes() < ram.without(pool).bytes() {
        super::serial::log(format_args!(
            "of {total} bytes of RAM those above {reach:#x} are not used: the kernel has no memory to manage them"
        ));
    }
    // The pool, and the loader's structures and archive, lie below the reach of the first translations.
    let ram = ram.below(reach.max(FIRST_REACH));
    user.list[..user.count].sort_unstable_by_key(|range| core::cmp::Reverse(range.size));
    for (slot, range) in MEMORY.0.user.iter().zip(user.all()) {
        slot.set((
            (range.start / PAGE_SIZE) as u32,
            (range.size / PAGE_SIZE) as u32,
        ));
    }
    let end = user
        .all()
        .iter()
        .map(|range| range.start + range.size)
        .max()
        .unwrap_or(0);
    MEMORY.0.frame_limit.set((end / PAGE_SIZE) as u32);
    let last = ((1u64 << physical_bits()) / PAGE_SIZE) - 1;
    MEMORY
        .0
        .last_frame
        .set(u32::try_from(last).unwrap_or(u32::MAX));

    map_kernel(&ram);
    super::paging::init(pool.start + pool.size - tables, (tables / PAGE_SIZE) as u32);
    MEMORY
        .0
        .pool_total
        .set(MEMORY.0.free_end.get() - MEMORY.0.free_start.get());
}

/// Chooses the place of the pool: an eighth of all RAM, at least 16 MiB and at most 256 MiB, in large pages; less on a
/// machine that has no free range of this size.
fn choose_pool(ram: &Ranges, total: u64) -> PhysRange {
    let mut size = (total / 8).clamp(16 * MIB, POOL_MOST) / (2 * MIB) * (2 * MIB);
    while size >= 2 * MIB {
        for range in ram.all() {
            let start = range.start.next_multiple_of(2 * MIB);
            let end = (range.start + range.size).min(FIRST_REACH);
            if end.saturating_sub(start) >= size {
                return PhysRange { start, size };
            }
        }
        size = size / (4 * MIB) * (2 * MIB);
    }
    panic!("there is too little memory for the kernel: {total} bytes of RAM");
}

/// Takes a zeroed page from the high end of the pool. Returns its physical address.
pub(super) fn take_page() -> Option<u64> {
    let memory = &MEMORY.0;
    if memory.free_end.get() - memory.free_start.get() < PAGE_SIZE {
        return None;
    }
    let page = memory.free_end.get() - PAGE_SIZE;
    memory.free_end.set(page);
    // SAFETY: the page belongs to the pool, and was free.
    unsafe { zero_page(page) };
    Some(page)
}

/// # Safety
/// The physical page must belong to the pool, and no Rust object may be in it.
pub(super) unsafe fn zero_page(physical: u64) {
    // SAFETY: the pool is mapped for writing; the caller promises the rest.
    unsafe { ((DIRECT_BASE + physical) as *mut [u64; 512]).write_bytes(0, 1) };
}

/// The word at `index` of a table of users' translations. The processor only reads it.
///
/// # Safety
/// `physical` must be the address of a page of the pool that contains only such words.
#[inline(always)]
pub(super) unsafe fn table_word(physical: u64, index: usize) -> &'static Cell<u64> {
    let address = DIRECT_BASE | physical | (index as u64 & 511) << 3;
    // SAFETY: the pool is mapped for ever, and the address is a multiple of 8; the caller promises the rest.
    unsafe { &*(address as *const Cell<u64>) }
}

/// Builds the kernel's half of every address space and switches to it.
fn map_kernel(ram: &Ranges) {
    let none = "no memory for the kernel's own translations";
    MEMORY.0.root.set(take_page().expect(none));
    // All tables to which the kernel's half of the root will ever lead are made here, since users' roots copy
    // that half when they are made.
    let huge = __cpuid(0x8000_0001).edx & 1 << 26 != 0;
    for range in ram.all() {
        let (mut at, end) = (range.start, range.start + range.size);
        while at < end {
            let level = [(1 << 30, 3), (1 << 21, 2), (1 << 12, 1)]
                .into_iter()
                .find(|&(size, level)| at % size == 0 && end - at >= size && (level < 3 || huge));
            let (size, level) = level.unwrap_or((PAGE_SIZE, 1));
            map(DIRECT_BASE + at, at, DATA, level).expect(none);
            at += size;
        }
    }
    let section = |start: *const u8, end: *const u8, flags: u64| {
        for page in (start as u64..end as u64).step_by(PAGE_SIZE as usize) {
            if !super::stack::is_guard_of_cpu_stack(page) {
                map(page, page - IMAGE_BASE, flags, 1).expect(none);
            }
        }
    };
    let executable = PRESENT | ACCESSED | GLOBAL;
    section(
        &raw const image::text_start,
        &raw const image::text_end,
        executable,
    );
    section(
        &raw const image::rodata_start,
        &raw const image::rodata_end,
        executable | NO_EXECUTE,
    );
    section(
        &raw const image::data_start,
        &raw const image::data_end,
        DATA,
    );
    assert!(&raw const image::data_end as u64 <= POOL_BASE);
    let pool = MEMORY.0.pool.get();
    for at in (0..pool.size).step_by(2 * MIB as usize) {
        map(POOL_BASE + at, pool.start + at, DATA, 2).expect(none);
    }
    super::stack::init().expect(none);
    let apic = super::time::apic_physical();
    map(DEVICE_BASE, apic, DATA | UNCACHED, 1).expect(none);

    // SAFETY: all that the kernel uses is mapped where it was, with the rights that it needs. Only the
    // mapping of low memory goes, which only the boot code used.
    unsafe { set_cr3(kernel_root()) };
}

/// Physical address of the kernel's own root table, which translates nothing for users.
#[inline]
pub(super) fn kernel_root() -> u64 {
    MEMORY.0.root.get()
}

/// The entry of the kernel's root table at `index`: an entry of a collocated place (0 if no space has ever had the
/// place), or of the upper half.
pub(super) fn kernel_root_entry(index: usize) -> u64 {
    entry_of(MEMORY.0.root.get(), index).get()
}

/// Sets an entry of the kernel's root table, which roots that are made from now on copy.
pub(super) fn set_kernel_root_entry(index: usize, entry: u64) {
    entry_of(MEMORY.0.root.get(), index).set(entry);
}

/// The place of the kernel's own root, for threads without a page table.
pub(crate) fn no_root() -> NarrowRef<Cell<u64>> {
    NarrowRef::of(&MEMORY.0.root)
}

/// An entry of one of the kernel's own tables.
fn entry_of(table: u64, index: usize) -> &'static Cell<u64> {
    assert!(index < 512);
    let address = DIRECT_BASE + table + 8 * index as u64;
    // SAFETY: `table` is a page that `take_page` gave for a table, and nothing else is in it. The
    // processor only reads these entries: accessed and dirty are set from the beginning.
    unsafe { &*(address as *const Cell<u64>) }
}

/// Maps one page of the kernel's half; at level 2 a page of 2 MiB, at level 3 a page of 1 GiB. `None` if there is no
/// memory for a table page.
pub(super) fn map(address: u64, physical: u64, flags: u64, level: u32) -> Option<()> {
    assert!(address >= DIRECT_BASE);
    let mut table = MEMORY.0.root.get();
    let index = |level: u32| (address >> (12 + 9 * (level - 1)) & 511) as usize;
    for above in (level + 1..=4).rev() {
        let entry = entry_of(table, index(above));
        if entry.get() == 0 {
            entry.set(take_page()? | PRESENT | WRITABLE | ACCESSED);
        }
        assert!(entry.get() & LARGE == 0, "a small page inside a large one");
        table = entry.get() & ADDRESS;
    }
    let entry = entry_of(table, index(level));
    assert!(entry.get() == 0, "two pages at one address");
    entry.set(physical | flags | if level > 1 { LARGE } else { 0 });
    Some(())
}

/// Makes `n` values of `T` in the kernel's pool, for ever. `None` if the pool is used up.
pub fn alloc_slice<T: 'static>(n: usize, mut init: impl FnMut(usize) -> T) -> Option<&'static [T]> {
    let bytes = (size_of::<T>() as u64).checked_mul(n as u64)?;
    assert!(align_of::<T>() as u64 <= PAGE_SIZE);
    let memory = &MEMORY.0;
    let start = memory
        .free_start
        .get()
        .next_multiple_of(align_of::<T>() as u64);
    let end = start.checked_add(bytes)?;
    if end > memory.free_end.get() {
        return None;
    }
    // Taken before `init` runs, which may itself allocate.
    memory.free_start.set(end);
    let first = (POOL_BASE + (start - memory.pool.get().start)) as *mut T;
    for i in 0..n {
        // SAFETY: within the piece just taken from the pool, which is mapped, aligned, and used by no
        // other code.
        unsafe { first.add(i).write(init(i)) };
    }
    // SAFETY: all `n` values have been written, and the piece is never used for anything else.
    Some(unsafe { core::slice::from_raw_parts(first, n) })
}

/// The number of bytes of the pool that [`alloc_slice`] and [`super::alloc_stack`] allocate from: the total, and the
/// free ones.
pub fn pool_bytes() -> (u64, u64) {
    let memory = &MEMORY.0;
    (
        memory.pool_total.get(),
        memory.free_end.get() - memory.free_start.get(),
    )
}

/// Whether the frame is RAM that belongs to users.
#[inline]
pub fn user_frame(pfn: Pfn) -> bool {
    let (first, count) = MEMORY.0.user[0].get();
    pfn.0.wrapping_sub(first) < count || other_user_frame(pfn)
}

fn other_user_frame(pfn: Pfn) -> bool {
    // Unused entries are empty ranges.
    let within = |(first, count)| pfn.0.wrapping_sub(first) < count;
    MEMORY.0.user[1..].iter().map(Cell::get).any(within)
}

/// The number of bits of a physical address. A page-table entry with higher bits set faults at every access.
fn physical_bits() -> u32 {
    let most = 0x8000_0008;
    if __cpuid(0x8000_0000).eax >= most {
        return (__cpuid(most).eax & 0xff).clamp(32, 52);
    }
    36
}

/// Whether the frame may be mapped as device memory ([`device_frames`]).
pub fn device_frame(pfn: Pfn) -> bool {
    device_frames(pfn, 1)
}

/// Whether all of `count` frames from `first` on may be mapped as device memory: the processor can address them, and
/// none belongs to users' RAM, the kernel, or the interrupt controller. Does not loop over the frames, since a driver
/// chooses their number.
pub fn device_frames(first: Pfn, count: u32) -> bool {
    let start = u64::from(first.0) * PAGE_SIZE;
    let end = start + u64::from(count) * PAGE_SIZE;
    let apart = |from: u64, size: u64| end <= from || from + size <= start;
    let frames = |(first, count)| apart(u64::from(first) * PAGE_SIZE, u64::from(count) * PAGE_SIZE);
    let pool = MEMORY.0.pool.get();
    let image = &raw const image::image_start as u64;
    let image_size = &raw const image::image_end as u64 - image;
    end <= (u64::from(MEMORY.0.last_frame.get()) + 1) * PAGE_SIZE
        && MEMORY.0.user.iter().map(Cell::get).all(frames)
        && apart(pool.start, pool.size)
        && apart(image, image_size.next_multiple_of(PAGE_SIZE))
        && apart(super::time::apic_physical(), PAGE_SIZE)
}

/// One more than the highest frame of users' RAM.
pub fn frame_limit() -> u32 {
    MEMORY.0.frame_limit.get()
}

/// Calls `f` for each range (start, size) of free user memory.
pub fn free_ranges(f: &mut dyn FnMut(u64, u64)) {
    let mut user = Ranges::new();
    for (first, count) in MEMORY.0.user.iter().map(Cell::get) {
        let start = u64::from(first) * PAGE_SIZE;
        user.add(start, start + u64::from(count) * PAGE_SIZE);
    }
    let (start, size) = super::boot::archive();
    let mut free = user.without(PhysRange { start, size });
    free.list[..free.count].sort_unstable_by_key(|range| range.start);
    for range in free.all() {
        f(range.start, range.size);
    }
}

/// The address of `length` bytes at `offset` of a user's frame.
#[inline]
fn user_bytes(pfn: Pfn, offset: u64, length: u64) -> u64 {
    assert!(user_frame(pfn), "not a frame of user memory");
    assert!(
        offset <= PAGE_SIZE && length <= PAGE_SIZE - offset,
        "an access that crosses a page"
    );
    DIRECT_BASE + u64::from(pfn.0) * PAGE_SIZE + offset
}

/// Reads the aligned word at `offset` of the frame.
#[inline]
pub fn read_word(pfn: Pfn, offset: u64) -> u64 {
    assert!(offset.is_multiple_of(8), "a misaligned word");
    let address = user_bytes(pfn, offset, 8);
    // SAFETY: mapped and aligned; no Rust object is there. Volatile, because programs write the word, too.
    unsafe { (address as *const u64).read_volatile() }
}

/// Writes the aligned word at `offset` of the frame.
#[inline]
pub fn write_word(pfn: Pfn, offset: u64, value: u64) {
    assert!(offset.is_multiple_of(8), "a misaligned word");
    let address = user_bytes(pfn, offset, 8);
    // SAFETY: mapped and aligned; no Rust object is there.
    unsafe { (address as *mut u64).write_volatile(value) };
}

/// Reads aligned words from `offset` of the frame on. Panics if they do not lie within it.
#[inline]
pub fn read_words(pfn: Pfn, offset: u64, into: &mut [u64]) {
    assert!(offset.is_multiple_of(8), "a misaligned word");
    let from = user_bytes(pfn, offset, into.len() as u64 * 8) as *const u64;
    for (i, word) in into.iter_mut().enumerate() {
        // SAFETY: as in `read_word`, for each.
        *word = unsafe { from.add(i).read_volatile() };
    }
}

/// Reads `N` aligned words from `offset` of the frame on. Panics if they do not lie within it.
#[inline(always)]
pub fn read_array<const N: usize>(pfn: Pfn, offset: u64) -> [u64; N] {
    assert!(offset.is_multiple_of(8), "a misaligned word");
    let from = user_bytes(pfn, offset, N as u64 * 8) as *const u64;
    // SAFETY: as in `read_word`, for each.
    core::array::from_fn(|i| unsafe { from.add(i).read_volatile() })
}

/// Writes aligned words from `offset` of the frame on. Panics if they do not lie within it.
#[inline]
pub fn write_words(pfn: Pfn, offset: u64, from: &[u64]) {
    assert!(offset.is_multiple_of(8), "a misaligned word");
    let to = user_bytes(pfn, offset, from.len() as u64 * 8) as *mut u64;
    for (i, word) in from.iter().enumerate() {
        // SAFETY: as in `write_word`, for each.
        unsafe { to.add(i).write_volatile(*word) };
    }
}

/// Reads bytes from `offset` of the frame on. Panics if they do not lie within it.
pub fn read_bytes(pfn: Pfn, offset: u64, into: &mut [u8]) {
    let from = user_bytes(pfn, offset, into.len() as u64);
    // SAFETY: `from` is readable as just checked, `into` is a mutable reference; they do not overlap, as
    // `into` is an object of the kernel.
    unsafe { copy(into.as_mut_ptr() as u64, from, into.len() as u64) };
}

/// Writes bytes from `offset` of the frame on. Panics if they do not lie within it.
pub fn write_bytes(pfn: Pfn, offset: u64, from: &[u8]) {
    let to = user_bytes(pfn, offset, from.len() as u64);
    // SAFETY: `to` is writable as just checked, and no Rust object is there.
    unsafe { copy(to, from.as_ptr() as u64, from.len() as u64) };
}

/// Copies bytes between frames (frame, offset). Panics if they do not lie within one frame on each side. If the
/// ranges overlap, the result is not specified.
#[inline(always)]
pub fn copy_bytes(to: (Pfn, u64), from: (Pfn, u64), length: u64) {
    let source = user_bytes(from.0, from.1, length);
    let target = user_bytes(to.0, to.1, length);
    // SAFETY: both are users' memory as just checked, where no Rust object is.
    unsafe { copy(target, source, length) };
}

/// Copies upwards, by words and then the rest by bytes. In assembly, because devices may change the bytes
/// meanwhile.
///
/// # Safety
/// `length` bytes at `from` must be readable, and at `to` writable.
#[inline]
unsafe fn copy(to: u64, from: u64, length: u64) {
    // SAFETY: the caller's promise. The direction flag is clear in Rust code.
    unsafe {
        asm!(
            "rep movsq",
            "mov ecx, {rest:e}",
            "rep movsb",
            rest = in(reg) length % 8,
            inout("rcx") length / 8 => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}

/// The addresses of the kernel's code.
pub(super) fn code() -> core::ops::Range<u64> {
    &raw const image::text_start as u64..&raw const image::text_end as u64
}
