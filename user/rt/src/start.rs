//! How a program begins: its heap, and the start information.
//!
//! `_start` (in [`crate::program!`]) relocates the program and calls `fermata_main`, which calls
//! [`begin`]. The start page is described in [`proto::layout`].
use crate::heap;
use crate::obj::RefAt;
use crate::sync::Lazy;
use abi::PAGE_SIZE;
use base::place::at;
use proto::layout::{
    HEAP_END, HEAP_START, MAX_PASSED, START_HEAP, START_INFO, START_MEMORY, START_NAMES,
    START_PAGE, START_PASSED, START_PRIORITY, START_SEGMENT, START_SIZE, START_SPACE, START_THREAD,
};
use services::process::Start;

/// Part of the heap's range that is set aside for object slots: room for half a million.
const SLOT_BYTES: u64 = 8 << 20;

/// Part of the heap's range that is for slots and small blocks.
const SMALL_BLOCKS: u64 = 256 << 20;

/// Sets up the heap of a usual program. Called once by the start code.
pub fn begin() {
    let limit = heap_limit();
    let size = heap_size(limit);
    let slots = (size / 8 / PAGE_SIZE * PAGE_SIZE).min(SLOT_BYTES);
    let large = if limit == 0 { SMALL_BLOCKS } else { size };
    let start = at(HEAP_START);
    // SAFETY: the first thing that a program does; its memory segment is mapped there.
    unsafe { heap::init(start, start + size, slots, start + large) };
}

/// Bytes of the heap; 0 if it is all of its range.
fn heap_limit() -> u64 {
    // SAFETY: the start area is mapped readable in every usual program.
    unsafe { (at(START_HEAP) as *const u64).read_volatile() }
}

fn heap_size(limit: u64) -> u64 {
    match limit {
        0 => HEAP_END - HEAP_START,
        limit => limit.min(HEAP_END - HEAP_START),
    }
}

/// The addresses of the heap: where it begins, and how many bytes it has.
#[must_use]
pub fn heap_range() -> (u64, u64) {
    (at(HEAP_START), heap_size(heap_limit()))
}

/// The priority that the first thread was started with.
#[must_use]
pub fn priority() -> u64 {
    // SAFETY: as in `begin`.
    let priority = unsafe { (at(START_PRIORITY) as *const u64).read_volatile() };
    priority.min(u64::from(abi::PRIORITIES) - 1)
}

static START: Lazy<Start> = Lazy::new();

/// The arguments, environment and streams that the program was started with.
pub fn start() -> &'static Start {
    let made: Result<_, core::convert::Infallible> = START.get(|| Ok(read().unwrap_or_default()));
    match made {
        Ok(start) => start,
        Err(never) => match never {},
    }
}

fn read() -> Option<Start> {
    // SAFETY: the start area is mapped readable in every usual program.
    let length = unsafe { (at(START_INFO) as *const u64).read_volatile() };
    if length > START_PAGE + START_SIZE - START_INFO - 8 {
        return None;
    }
    // SAFETY: within the start area, which nobody writes.
    let bytes =
        unsafe { core::slice::from_raw_parts(at(START_INFO + 8) as *const u8, length as usize) };
    postcard::from_bytes(bytes).ok()
}

/// The program's own port at init, for names and for ending the process.
#[must_use]
#[inline(always)]
pub fn names() -> RefAt {
    RefAt(at(START_NAMES))
}

/// The program's memory account, a port of the memory server.
#[must_use]
#[inline(always)]
pub fn memory() -> RefAt {
    RefAt(at(START_MEMORY))
}

/// The process's own space.
#[must_use]
#[inline(always)]
pub fn space() -> RefAt {
    RefAt(at(START_SPACE))
}

/// The first thread.
#[must_use]
#[inline(always)]
pub fn thread() -> RefAt {
    RefAt(at(START_THREAD))
}

/// The control port of the program's memory; names nothing except in servers.
#[must_use]
#[inline(always)]
pub fn segment() -> RefAt {
    RefAt(at(START_SEGMENT))
}

/// The `index`th further reference that the starter of the program passed on.
#[must_use]
pub fn passed(index: usize) -> Option<RefAt> {
    ((index as u64) < MAX_PASSED).then(|| RefAt(at(START_PASSED + index as u64 * abi::OBJECT_SIZE)))
}

/// The ELF note that every native program carries.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4))]
pub struct Note {
    name_length: u32,
    length: u32,
    kind: u32,
    name: [u8; 8],
}

/// Its content: [`services::process::NATIVE_NOTE`], and nothing else.
pub const NOTE: Note = {
    let mut name = [0; 8];
    let text = services::process::NATIVE_NOTE.as_bytes();
    assert!(text.len() + 1 == name.len());
    let mut i = 0;
    while i < text.len() {
        name[i] = text[i];
        i += 1;
    }
    Note {
        name_length: name.len() as u32,
        length: 0,
        kind: 1,
        name,
    }
};
