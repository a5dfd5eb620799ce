//! The heap: zero pages on demand between two addresses.
//!
//! The range has three parts: the slab of object slots ([`crate::slots`]); small blocks, managed by `talc` in a range
//! that grows; and, where the heap has its usual size, large blocks ([`crate::large`]), whose memory goes back to the
//! memory server when much of it is free. When the range for small blocks is full, pieces of the range for large blocks
//! are added to it for good. A few freed small blocks of each size are kept for reuse ([`crate::spare`]). Giving memory
//! back needs the control port of the program's own memory, which only servers have: a program's memory goes back when
//! it ends.
//!
//! The heap of a server reserves memory before it touches it, from the first [`want`] on. An allocation for which no
//! memory can be reserved fails.
use crate::large::{Units, MAX_UNITS, UNIT};
use crate::room::Room;
use crate::slots;
use crate::spare::{fitted, Class, Spare};
use crate::sync::RawLock;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{null_mut, NonNull};
use proto::layout::CHUNK;
use proto::Error;
use talc::{OomHandler, Span, Talc};

/// Size of the smallest large block in bytes. Whole units are large blocks too.
const LARGE: usize = 48 * 1024;
/// Most free dirty units that are kept; more are given back.
const KEEP: usize = (4 << 20) / UNIT;
/// Units that small blocks get at a time when their own range is full.
const PIECE: usize = (1 << 20) / UNIT;
/// Bytes of addresses that requests which ask for memory leave free.
const LAST: u64 = 4 << 20;
/// Bytes by which the range for small blocks grows at a time.
const STEP: usize = CHUNK as usize;

/// The range for small blocks.
struct Small {
    /// The part that `talc` has.
    heap: Span,
    /// Where it ends.
    end: usize,
    /// The memory that all of the heap may still touch.
    room: Room,
}

impl Small {
    /// Bytes that the range can still grow by.
    fn left(&self) -> u64 {
        let reached = self
            .heap
            .get_base_acme()
            .map_or(0, |(_, acme)| acme as usize);
        self.end.saturating_sub(reached) as u64
    }

    /// Whether the next `STEP` bytes from `start` on may be used. If they had to be reserved, this touches them.
    fn next(&mut self, start: usize) -> Option<usize> {
        let end = start.checked_add(STEP).filter(|end| *end <= self.end)?;
        self.room.touch(start, end).then_some(end)
    }
}

impl OomHandler for Small {
    #[cold]
    fn handle_oom(talc: &mut Talc<Self>, _: Layout) -> Result<(), ()> {
        let heap = talc.oom_handler.heap;
        let (base, acme) = heap.get_base_acme().ok_or(())?;
        // `talc` may not use the last few bytes of its part.
        let start = (acme as usize).next_multiple_of(STEP);
        let end = talc.oom_handler.next(start).ok_or(())?;
        // SAFETY: the range continues the one that `talc` has, is the heap's, and nobody else uses it.
        talc.oom_handler.heap = unsafe { talc.extend(heap, Span::new(base, end as *mut u8)) };
        Ok(())
    }
}

impl Room {
    /// Takes the chunks that contain `start..end`, of which some may not have been touched yet, and touches them.
    fn touch(&mut self, start: usize, end: usize) -> bool {
        let chunks = start / STEP..end.div_ceil(STEP);
        if !self.take((chunks.len() * STEP) as u64, reserve) {
            return false;
        }
        if self.reserves() {
            for chunk in chunks {
                // SAFETY: it is in a part of the heap that was free until now.
                unsafe { ((chunk * STEP).max(start) as *mut u8).write_volatile(0) };
            }
        }
        true
    }

    /// The same for units, where unit 0 is at `large`.
    fn touch_units(&mut self, large: usize, first: usize, count: usize) -> bool {
        let start = large + first * UNIT;
        self.touch(start, start + count * UNIT)
    }
}

fn reserve(bytes: u64) -> bool {
    crate::memory::reserve(bytes).is_ok()
}

struct Inner {
    talc: Talc<Small>,
    spare: Spare,
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
        talc: Talc::new(Small {
            heap: Span::empty(),
            end: 0,
            room: Room::new(),
        }),
        spare: Spare::new(),
        units: Units::new(),
        large: 0,
    }),
};

/// Sets the heap up in `start..end`, the first `slots` bytes of it as object slots, and the part from `large` on for
/// large blocks (`end` for none).
///
/// # Safety
/// Called once, before there are other threads and before the first allocation. The range is
/// page-aligned, mapped (or appears on demand) readable, writable and for objects, zero, and
/// nobody else uses it.
pub unsafe fn init(start: u64, end: u64, slots: u64, large: u64) {
    // SAFETY: promised by the caller.
    unsafe { slots::init(start, slots) };
    // SAFETY: there are no other threads yet, and the memory is ours.
    let inner = unsafe { &mut *STATE.inner.get() };
    let first = start + slots;
    let small = (first as usize + 1)
        .next_multiple_of(STEP)
        .min(large as usize);
    let span = Span::new(first as *mut u8, small as *mut u8);
    // SAFETY: as above.
    let heap = unsafe { inner.talc.claim(span) };
    inner.talc.oom_handler.heap = heap.unwrap_or(Span::empty());
    inner.talc.oom_handler.end = large as usize;
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

/// Checks that a server may allocate so many bytes more: `NoMemory` if that memory is not available. From the first
/// call on, the heap reserves memory before it touches it. Some memory is left for requests that do not call this, so
/// every request that keeps something for a client must call it. For a program, which reserves nothing, this always
/// succeeds.
pub fn want(bytes: u64) -> Result<(), Error> {
    ask(bytes, |room| room.want(bytes, reserve))
}

/// Asks the heap's bookkeeping whether memory and addresses are left; always yes for a program.
fn ask(bytes: u64, question: impl FnOnce(&mut Room) -> bool) -> Result<(), Error> {
    let may = with(|inner| {
        let left = inner.addresses_left();
        let room = &mut inner.talc.oom_handler.room;
        let server = room.reserves() || inner.large != 0 && crate::memory::has_own();
        !server || left >= bytes.saturating_add(LAST) && question(room)
    });
    may.then_some(()).ok_or(Error::NoMemory)
}

/// A reservation of memory for work that allocates little by little and must not fail half-way: no other request gets
/// this memory until the reservation is cleared or dropped.
#[derive(Debug, Default)]
pub struct Hold(u64);

impl Hold {
    /// Holds so many bytes.
    pub fn new(bytes: u64) -> Result<Self, Error> {
        let mut hold = Hold(0);
        hold.set(bytes)?;
        Ok(hold)
    }

    /// Holds so many more.
    pub fn add(&mut self, bytes: u64) -> Result<(), Error> {
        self.set(self.0.saturating_add(bytes))
    }

    /// How many bytes it holds.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.0
    }

    /// Holds so many bytes from now on, however many of the earlier ones have been allocated; on failure it holds what
    /// it held before.
    pub fn set(&mut self, bytes: u64) -> Result<(), Error> {
        let more = bytes.saturating_sub(self.0);
        ask(more, |room| room.hold(self.0, bytes, reserve))?;
        self.0 = bytes;
        Ok(())
    }

    /// Holds nothing any more.
    #[inline]
    pub fn clear(&mut self) {
        let bytes = core::mem::take(&mut self.0);
        if bytes != 0 {
            with(|inner| inner.talc.oom_handler.room.release(bytes, reserve));
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.clear();
    }
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
        self.large != 0 && (size >= LARGE || size.is_multiple_of(UNIT)) && align <= UNIT
    }

    /// A block of this layout, and whether it is known to be zero.
    #[inline]
    fn allocate(&mut self, layout: Layout) -> (*mut u8, bool) {
        let spare = Class::of(&layout).and_then(|class| self.spare.take(class));
        match spare {
            Some(block) => (block.as_ptr(), false),
            None => self.allocate_anew(fitted(layout)),
        }
    }

    #[inline(never)]
    fn allocate_anew(&mut self, layout: Layout) -> (*mut u8, bool) {
        if self.is_large(layout.size(), layout.align()) {
            return self.allocate_large(layout.size());
        }
        loop {
            // SAFETY: the layout's size is not 0, as the callers of the allocator promise.
            match unsafe { self.talc.malloc(layout) } {
                Ok(block) => return (block.as_ptr(), false),
                Err(()) if self.use_spare() => {}
                Err(()) if layout.align() <= UNIT && self.continue_in_large() => {}
                Err(()) => return (null_mut(), false),
            }
        }
    }

    /// Gives the kept blocks back to the allocator, which joins them with others. Returns whether there were any.
    #[cold]
    fn use_spare(&mut self) -> bool {
        let mut were = false;
        while let Some((block, layout)) = self.spare.take_any() {
            were = true;
            // SAFETY: the block came from the allocator, with this layout.
            unsafe { self.talc.free(block, layout) };
        }
        were
    }

    /// Gives small blocks a piece of the range for large ones, if their own is full. Returns whether they got one.
    #[cold]
    fn continue_in_large(&mut self) -> bool {
        let own = &self.talc.oom_handler;
        if self.large == 0 || own.left() >= STEP as u64 {
            return false;
        }
        let (piece, _) = self.allocate_large(PIECE * UNIT);
        let span = Span::from_base_size(piece, PIECE * UNIT);
        // SAFETY: the piece is the heap's, touched or known to be zero, and used for nothing else from now on.
        !piece.is_null() && unsafe { self.talc.claim(span) }.is_ok()
    }

    /// Bytes of the heap's addresses that nothing has used yet, or that large blocks have given back.
    fn addresses_left(&self) -> u64 {
        self.talc.oom_handler.left() + (self.units.free_count() * UNIT) as u64
    }

    #[inline(never)]
    fn allocate_large(&mut self, size: usize) -> (*mut u8, bool) {
        let (large, room) = (self.large, &mut self.talc.oom_handler.room);
        let count = size.div_ceil(UNIT);
        let may = |first, dirty| dirty || room.touch_units(large, first, count);
        match self.units.take(count, may) {
            Some((first, zero)) => ((large + first * UNIT) as *mut u8, zero),
            None => (null_mut(), false),
        }
    }

    #[inline(never)]
    fn free_large(&mut self, block: NonNull<u8>, size: usize) {
        let first = (block.as_ptr() as usize - self.large) / UNIT;
        self.units.give(first, size.div_ceil(UNIT));
        if self.units.dirty_count() > KEEP {
            self.trim();
        }
    }

    /// # Safety
    /// The block came from `allocate` with this layout.
    #[inline]
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        if let Some(class) = Class::of(&layout) {
            // SAFETY: promised by the caller; a block of such a layout has the layout of the class.
            if unsafe { self.spare.keep(block, class) } {
                return;
            }
        }
        // SAFETY: promised by the caller.
        unsafe { self.free_at_once(block, fitted(layout)) };
    }

    /// # Safety
    /// As of `free`, with the layout that the block was allocated with.
    #[inline(never)]
    unsafe fn free_at_once(&mut self, block: NonNull<u8>, layout: Layout) {
        if self.is_large(layout.size(), layout.align()) {
            self.free_large(block, layout.size());
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
                // The run stays dirty; the next `free` tries again.
                return;
            }
            self.units.cleaned(first, count);
        }
        self.talc.oom_handler.room.gave(reserve);
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
            let Ok(new) = Layout::from_size_align(new_size, layout.align()) else {
                return false;
            };
            let (layout, new_size) = (fitted(layout), fitted(new).size());
            if new_size == layout.size() {
                return true;
            }
            if new_size < layout.size() {
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
        let (large, room) = (self.large, &mut self.talc.oom_handler.room);
        let (first, count) = (first + old, new - old);
        let may = |dirty| dirty || room.touch_units(large, first, count);
        self.units.take_at(first, count, may)
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
