//! What a native program finds at its start.
use crate::executable::Reason;
use crate::Process;
use abi::access::{OBJECTS, READ, WRITE};
use abi::state::Registers;
use abi::PAGE_SIZE;
use proto::layout::{
    HEAP_END, HEAP_START, MAX_PASSED, PROGRAM_BASE, STACK_SIZE, STACK_TOP, START_INFO,
    START_MEMORY, START_NAMES, START_PAGE, START_PASSED, START_PRIORITY, START_SEGMENT, START_SIZE,
    START_SPACE, START_THREAD,
};
use proto::Error;
use rt::error_of;
use rt::obj::RefAt;
use services::process::Start;

/// The references of a native program's start page.
#[derive(Clone, Copy, Debug)]
pub struct References<'a> {
    /// Its own port at init.
    pub init: &'a RefAt,
    /// Whether it may give parts of its memory back: its memory's control port is passed on too.
    pub gives_back: bool,
    /// Passed on.
    pub passed: &'a [&'a RefAt],
}

/// Fills a new process with a native program, so that [`Process::start`] with the registers that
/// come back runs it.
pub fn prepare(
    process: &mut Process,
    file: &[u8],
    start: &Start,
    priority: u64,
    references: &References<'_>,
) -> Result<Registers, (Error, Reason)> {
    let plain = |error: Error| (error, error.text());
    let plan = process.load_elf(file, PROGRAM_BASE, OBJECTS)?;
    if plan.end > HEAP_START {
        return Err((Error::BadFormat, "it reaches into the heap"));
    }
    let rights = READ | WRITE | OBJECTS;
    for (first, size) in [
        (START_PAGE, START_SIZE),
        (HEAP_START, HEAP_END - HEAP_START),
        (STACK_TOP - STACK_SIZE, STACK_SIZE),
    ] {
        process.map(first, size, first, rights).map_err(plain)?;
    }

    let info = postcard::to_allocvec(start).map_err(|_| plain(Error::NoMemory))?;
    if info.len() as u64 > START_PAGE + START_SIZE - START_INFO - 8 {
        return Err((Error::Invalid, "its arguments are too long"));
    }
    process
        .write(START_INFO + 8, &info)
        .and_then(|()| process.write(START_INFO, &(info.len() as u64).to_le_bytes()))
        .and_then(|()| process.write(START_PRIORITY, &priority.to_le_bytes()))
        .map_err(plain)?;
    let window = process.memory_window();

    let at = |address: u64| RefAt(window.address() + address);
    let code = |code| plain(error_of(code));
    let account = *process.account().account;
    for (address, target) in [(START_NAMES, references.init), (START_MEMORY, &account)] {
        at(address).create().map_err(code)?;
        at(address).point_to(*target).map_err(code)?;
    }
    at(START_SEGMENT).create().map_err(code)?;
    if references.gives_back {
        at(START_SEGMENT)
            .point_to(*process.memory().control)
            .map_err(code)?;
    }
    at(START_SPACE).create().map_err(code)?;
    process
        .space()
        .and_then(|space| space.reference_into(at(START_SPACE)))
        .map_err(code)?;
    at(START_THREAD).create().map_err(code)?;
    process
        .thread()
        .and_then(|thread| thread.reference_into(at(START_THREAD)))
        .map_err(code)?;
    if references.passed.len() as u64 > MAX_PASSED {
        return Err((Error::Invalid, "too many references"));
    }
    for index in 0..MAX_PASSED {
        let passed = at(START_PASSED + index * abi::OBJECT_SIZE);
        passed.create().map_err(code)?;
        if let Some(target) = references.passed.get(index as usize) {
            passed.point_to(**target).map_err(code)?;
        }
    }
    const _: () = assert!(START_PASSED + MAX_PASSED * abi::OBJECT_SIZE <= START_SEGMENT);
    const _: () = assert!(START_PAGE.is_multiple_of(PAGE_SIZE));
    Ok(Registers {
        rip: plan.entry,
        rsp: STACK_TOP - 16,
        rflags: 0x202,
        ..Registers::default()
    })
}
