//! The heap: zero pages on demand between two addresses, managed by `talc`.
//!
//! The first part of the range is the slab of object slots ([`crate::slots`]).
use crate::slots;
use crate::sync::RawLock;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{null_mut, NonNull};
use talc::{ErrOnOom, Span, Talc};

struct State {
    lock: RawLock,
    talc: UnsafeCell<Talc<ErrOnOom>>,
}

// SAFETY: `talc` is only touched by the holder of `lock`.
unsafe impl Sync for State {}

static STATE: State = State {
    lock: RawLock::new(),
    talc: UnsafeCell::new(Talc::new(ErrOnOom)),
};

/// Sets the heap up in `start..end`, the first `slots` bytes of it as object slots.
///
/// # Safety
/// Called once, before there are other threads and before the first allocation. The range is
/// page-aligned, mapped (or appears on demand) readable, writable and for objects, zero, and
/// nobody else uses it.
pub unsafe fn init(start: u64, end: u64, slots: u64) {
    // SAFETY: promised by the caller.
    unsafe { slots::init(start, slots) };
    let span = Span::new((start + slots) as *mut u8, end as *mut u8);
    // SAFETY: there are no other threads yet, and the memory is ours.
    let _ = unsafe { (*STATE.talc.get()).claim(span) };
}

/// The allocator of a program; [`crate::program!`] registers it.
#[derive(Debug)]
pub struct Heap;

fn with<R>(f: impl FnOnce(&mut Talc<ErrOnOom>) -> R) -> R {
    STATE.lock.lock();
    // SAFETY: the lock is held.
    let result = f(unsafe { &mut *STATE.talc.get() });
    STATE.lock.unlock();
    result
}

// SAFETY: `Talc` keeps the contract of `GlobalAlloc`, and all calls are under the lock.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout's size is not 0, as the caller promises.
        with(|talc| unsafe { talc.malloc(layout) }).map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: the pointer came from `alloc` with this layout, as the caller promises.
            with(|talc| unsafe { talc.free(pointer, layout) });
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(old) = NonNull::new(pointer) else {
            return null_mut();
        };
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else {
            return null_mut();
        };
        if new_size <= layout.size() {
            // SAFETY: the new size is not 0 and not larger, the pointer came from `alloc`.
            with(|talc| unsafe { talc.shrink(old, layout, new_size) });
            return pointer;
        }
        // SAFETY: the new size is larger and the pointer came from `alloc`.
        if let Ok(grown) = with(|talc| unsafe { talc.grow_in_place(old, layout, new_size) }) {
            return grown.as_ptr();
        }
        // SAFETY: as in `alloc`; both blocks are valid for the old size, and distinct.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(pointer, new, layout.size());
                self.dealloc(pointer, layout);
            }
            new
        }
    }
}
