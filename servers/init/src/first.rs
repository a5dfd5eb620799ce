//! Starts the memory server, with memory that is taken from free frames.
use crate::slow;
use abi::access::{EXECUTE, OBJECTS, READ, WRITE};
use abi::boot::ROOT_REGION;
use abi::state::{MappingState, Registers, SpaceState, ThreadState};
use abi::{OBJECT_SIZE, PAGE_SIZE};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fermata_init::Frames;
use process::image::Plan;
use proto::layout::{
    HEAP_START, PRIORITY_MEMORY, PROGRAM_BASE, STACK_SIZE, STACK_TOP, START_HEAP, START_INFO,
    START_MEMORY, START_NAMES, START_PAGE, START_PASSED, START_PRIORITY, START_SEGMENT, START_SIZE,
    START_SPACE, START_THREAD,
};
use rt::obj::{Mapping, Ref, RefAt, Space, Thread};
use rt::window::Window;
use rt::{sys, time, Code};
use services::process::Start;

/// The root region.
pub(crate) const ROOT: RefAt = RefAt(ROOT_REGION);

/// Size of the memory server's stack: smaller than a program's, since all of its pages are present from the start.
const STACK: u64 = 128 * 1024;
/// Size of the memory server's heap: this, and one part in [`HEAP_PART`] of the memory that it manages, for its
/// bookkeeping.
const HEAP: u64 = 2 << 20;
const HEAP_PART: u64 = 128;

/// How long the memory server may take to start, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;

/// The memory server's space as it is being built.
struct Builder<'a> {
    frames: &'a mut Frames,
    space: Ref,
}

impl Builder<'_> {
    /// Puts fresh zeroed frames at this address of the memory server, and returns a window on them.
    fn memory(&mut self, start: u64, size: u64) -> Result<Window, String> {
        let physical = self.frames.take(size).ok_or("there is too little memory")?;
        let window = Window::map(&ROOT, physical, size, READ | WRITE | OBJECTS)
            .map_err(|error| error.text())?;
        // SAFETY: fresh memory, all of it in the window.
        unsafe { core::ptr::write_bytes(window.address() as *mut u8, 0, size as usize) };
        self.show(start, size, physical, READ | WRITE | OBJECTS)?;
        Ok(window)
    }

    /// Maps physical memory into the memory server's space.
    fn show(&self, start: u64, size: u64, physical: u64, rights: u64) -> Result<(), String> {
        let mapping = Mapping::new().map_err(words)?;
        let state = MappingState {
            start,
            size,
            offset: physical,
            protection: rights,
        };
        mapping
            .set_state(&state, ROOT.0, self.space.handle())
            .map_err(words)?;
        // The mapping stays as long as the machine runs.
        core::mem::forget(mapping);
        Ok(())
    }

    /// Loads the program. Returns its entry point.
    fn program(&mut self, file: &[u8]) -> Result<u64, String> {
        let plan = Plan::new(file, PROGRAM_BASE, PROGRAM_BASE, HEAP_START)?;
        let first = plan.pages[0].start;
        let size = plan.end.next_multiple_of(PAGE_SIZE) - first;
        let physical = self.frames.take(size).ok_or("there is too little memory")?;
        let window =
            Window::map(&ROOT, physical, size, READ | WRITE).map_err(|error| error.text())?;
        // SAFETY: fresh memory, all of it in the window.
        unsafe { core::ptr::write_bytes(window.address() as *mut u8, 0, size as usize) };
        for piece in &plan.pieces {
            let bytes = &file[piece.offset..piece.offset + piece.length];
            window
                .write(piece.address - first, bytes)
                .map_err(|error| error.text())?;
        }
        for pages in &plan.pages {
            let extra = if pages.rights & WRITE != 0 {
                OBJECTS
            } else {
                0
            };
            let rights = pages.rights & (READ | WRITE | EXECUTE) | extra;
            self.show(
                pages.start,
                pages.size,
                physical + (pages.start - first),
                rights,
            )?;
        }
        Ok(plan.entry)
    }
}

fn words(code: Code) -> String {
    format!("{code:?}")
}

/// Starts the memory server, and gives it all frames that are left. Returns its supervisor port. `starter`: the calling
/// thread, which the server wakes when it has put that port in its start page.
pub(crate) fn start(
    file: &[u8],
    mut frames: Frames,
    quota: u64,
    starter: RefAt,
) -> Result<Ref, String> {
    let space = Space::new().map_err(words)?;
    space
        .set_state(
            &SpaceState {
                quota,
                max_priority: PRIORITY_MEMORY,
                ..SpaceState::default()
            },
            0,
        )
        .map_err(words)?;
    let thread = Thread::new().map_err(words)?;
    let heap = (HEAP + frames.total() / HEAP_PART).next_multiple_of(PAGE_SIZE);
    let mut builder = Builder {
        frames: &mut frames,
        space: space.reference().map_err(words)?,
    };
    let entry = builder.program(file)?;
    builder.memory(HEAP_START, heap)?;
    builder.memory(STACK_TOP - STACK, STACK)?;
    const _: () = assert!(STACK <= STACK_SIZE);
    let page = builder.memory(START_PAGE, START_SIZE)?;
    let space_ref = builder.space;

    let mut args = vec!["memory".to_string()];
    args.extend(
        frames
            .rest()
            .iter()
            .map(|range| format!("{:x}+{:x}", range.start, range.size)),
    );
    slow::log(&format!("free memory: {}", args[1..].join(" ")));
    let info = postcard::to_allocvec(&Start {
        args,
        ..Start::default()
    })
    .map_err(|_| "its arguments are too long")?;
    let offset = |address: u64| address - START_PAGE;
    let write = |address: u64, bytes: &[u8]| {
        page.write(offset(address), bytes)
            .map_err(|error| error.text())
    };
    write(START_INFO, &(info.len() as u64).to_le_bytes())?;
    write(START_INFO + 8, &info)?;
    write(START_HEAP, &heap.to_le_bytes())?;
    write(START_PRIORITY, &PRIORITY_MEMORY.to_le_bytes())?;

    let at = |address: u64| RefAt(page.address() + offset(address));
    for address in [
        START_NAMES,
        START_MEMORY,
        START_SPACE,
        START_THREAD,
        START_SEGMENT,
    ] {
        at(address).create().map_err(words)?;
    }
    at(START_SPACE).point_to(*space_ref).map_err(words)?;
    thread.reference_into(at(START_THREAD)).map_err(words)?;
    // References that the server expects, in the order of its module `passed`: the root region, its supervisor port,
    // which it fills in itself, and the thread to wake.
    let passed: Vec<RefAt> = (0..3)
        .map(|index| at(START_PASSED + index * OBJECT_SIZE))
        .collect();
    for reference in &passed {
        reference.create().map_err(words)?;
    }
    passed[0].point_to(ROOT).map_err(words)?;
    passed[2].point_to(starter).map_err(words)?;

    let state = ThreadState {
        registers: Registers {
            rip: entry,
            rsp: STACK_TOP - 16,
            rflags: 0x202,
            ..Registers::default()
        },
        priority: PRIORITY_MEMORY,
        stop_count: 1,
        ..ThreadState::default()
    };
    thread
        .set_state(&state, space_ref.handle(), 0, 0)
        .map_err(words)?;
    thread.resume().map_err(words)?;
    let deadline = time::now() + PATIENCE;
    while passed[1].kind() != abi::RefKind::Port {
        if sys::thread_wait_interrupt_until(deadline) == Code::TimedOut {
            return Err("it does not start".to_string() + &state_of(&thread));
        }
    }
    let supervisor = passed[1].copy().map_err(words)?;
    // The objects of the server live as long as the machine runs, and so does its start page.
    core::mem::forget((space, thread, page));
    Ok(supervisor)
}

/// What the server's thread is doing, for the message that it did not start in time.
fn state_of(thread: &Thread) -> String {
    match thread.get_state(0, 0, 0) {
        Ok(state) => format!(
            ": {} (exception {} at {:#x})",
            process::words::doing(&state, false),
            state.exception,
            state.exception_address
        ),
        Err(code) => format!(": {code:?}"),
    }
}
