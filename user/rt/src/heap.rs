//! The heap: zero pages on demand between two addresses.
//!
//! The range has three parts: the slab of object slots ([`crate::slots`]); small blocks, managed by
//! `talc`; and, where the heap has its usual size, large blocks ([`crate::large`]), whose memory goes
//! back to the memory server when much of it is free. That needs the control port of the program's
//! own memory, which only servers have: a program's memory goes back when it ends.
use crate::large::{Units, MAX_UNITS, UNIT};
use crate::slots;
use crate::sync::RawLock;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{null_mut, NonNull};
use talc::{ErrOnOom, Span, Talc};

/// Smallest large block.
const LARGE: usize = 48 * 1024;
/// So many free dirty units are kept before memory is given back.
const KEEP: usize = (4 << 20) / UNIT;

struct Inner {
    talc: Talc<ErrOnOom>,
    units: Units,
    /// First address of the large blocks; 0 without them.
    large: usize,
}

struct State {
    lock: RawLock,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched by the holder of `lock`.
unsafe impl Sync for State {}

static STATE: State = State {
    lock: RawLock::new(),
    inner: UnsafeCell::new(Inner {
        talc: Talc::new(ErrOnOom),
        units: Units::new(),
        large: 0,
    }),
};

/// Sets the heap up in `start..end`, the first `slots` bytes of it as object slots, and what is
/// behind `large` for large blocks (`end` for none).
///
/// # Safety
/// Called once, before there are other threads and before the first allocation. The range is
/// page-aligned, mapped (or appears on demand) readable, writable and for objects, zero, and
/// nobody else uses it.
pub unsafe fn init(start: u64, end: u64, slots: u64, large: u64) {
    // SAFETY: promised by the caller.
    unsafe { slots::init(start, slots) };
    let span = Span::new((start + slots) as *mut u8, large as *mut u8);
    // SAFETY: there are no other threads yet, and the memory is ours.
    let inner = unsafe { &mut *STATE.inner.get() };
    // SAFETY: as above.
    let _ = unsafe { inner.talc.claim(span) };
    if large < end {
        inner.large = large as usize;
        inner
            .units
            .set_count(((end - large) as usize / UNIT).min(MAX_UNITS));
    }
}

/// The allocator of a program; [`crate::program!`] registers it.
#[derive(Debug)]
pub struct Heap;

/// Bytes of free large blocks that have not been given back: they can be used again without asking
/// the memory server.
#[must_use]
pub fn kept() -> u64 {
    with(|inner| (inner.units.dirty_count() * UNIT) as u64)
}

fn with<R>(f: impl FnOnce(&mut Inner) -> R) -> R {
    STATE.lock.lock();
    // SAFETY: the lock is held.
    let result = f(unsafe { &mut *STATE.inner.get() });
    STATE.lock.unlock();
    result
}

impl Inner {
    fn is_large(&self, size: usize, align: usize) -> bool {
        self.large != 0 && size >= LARGE && align <= UNIT
    }

    /// A block of this layout, and whether it is known to be zero.
    fn allocate(&mut self, layout: Layout) -> (*mut u8, bool) {
        if self.is_large(layout.size(), layout.align()) {
            return match self.units.take(layout.size().div_ceil(UNIT)) {
                Some((first, zero)) => ((self.large + first * UNIT) as *mut u8, zero),
                None => (null_mut(), false),
            };
        }
        // SAFETY: the layout's size is not 0, as the callers of the allocator promise.
        let block = unsafe { self.talc.malloc(layout) };
        (block.map_or(null_mut(), NonNull::as_ptr), false)
    }

    /// # Safety
    /// The block came from `allocate` with this layout.
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        if self.is_large(layout.size(), layout.align()) {
            let first = (block.as_ptr() as usize - self.large) / UNIT;
            self.units.give(first, layout.size().div_ceil(UNIT));
            if self.units.dirty_count() > KEEP {
                self.trim();
            }
            return;
        }
        // SAFETY: promised by the caller.
        unsafe { self.talc.free(block, layout) };
    }

    /// Gives free memory back.
    fn trim(&mut self) {
        let mut from = 0;
        while let Some((first, count)) = self.units.dirty_run(from) {
            from = first + count;
            let address = (self.large + first * UNIT) as u64;
            if !crate::memory::discard_own(address, (count * UNIT) as u64) {
                // It stays dirty; this is asked again after the next free.
                return;
            }
            self.units.cleaned(first, count);
        }
    }

    /// Changes the size of a block in place, if that can be done.
    ///
    /// # Safety
    /// The block came from `allocate` with this layout; the new size is not 0.
    unsafe fn resize(&mut self, block: NonNull<u8>, layout: Layout, new_size: usize) -> bool {
        let large = self.is_large(layout.size(), layout.align());
        if large != self.is_large(new_size, layout.align()) {
            return false;
        }
        if !large {
            if new_size <= layout.size() {
                // SAFETY: promised by the caller; the size is not larger.
                unsafe { self.talc.shrink(block, layout, new_size) };
                return true;
            }
            // SAFETY: promised by the caller; the size is larger.
            return unsafe { self.talc.grow_in_place(block, layout, new_size) }.is_ok();
        }
        let first = (block.as_ptr() as usize - self.large) / UNIT;
        let (old, new) = (layout.size().div_ceil(UNIT), new_size.div_ceil(UNIT));
        if new <= old {
            self.units.give(first + new, old - new);
            return true;
        }
        self.units.take_at(first + old, new - old)
    }
}

// SAFETY: blocks of `Talc` and of `Units` are distinct, as long as asked for, and aligned; all calls
// are under the lock.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        with(|inner| inner.allocate(layout)).0
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (block, zero) = with(|inner| inner.allocate(layout));
        if !block.is_null() && !zero {
            // SAFETY: the block has this size.
            unsafe { core::ptr::write_bytes(block, 0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the block came from `alloc` with this layout, as the caller promises.
            with(|inner| unsafe { inner.free(block, layout) });
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(old) = NonNull::new(block) else {
            return null_mut();
        };
        // SAFETY: as for `dealloc`; the new size is not 0, as the caller promises.
        if with(|inner| unsafe { inner.resize(old, layout, new_size) }) {
            return block;
        }
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else {
            return null_mut();
        };
        // SAFETY: both blocks are valid for the smaller size, and distinct.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(block, new, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}
