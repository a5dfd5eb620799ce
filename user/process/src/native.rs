//! The start page of a native program.
use crate::executable::Reason;
use crate::image::{Loading, Plan};
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
    /// Whether it may give parts of its memory back: then it gets the control port of its memory,
    /// too.
    pub gives_back: bool,
    /// The references that the starter passes on.
    pub passed: &'a [&'a RefAt],
}

/// The program of a file of this size, to be loaded into a new process.
#[must_use]
pub const fn loading(size: u64) -> Loading {
    Loading::new(size, PROGRAM_BASE, START_PAGE + START_SIZE, HEAP_START)
}

/// Starts the program that was loaded into a process, which was [furnished](furnish).
pub fn start(process: &mut Process, plan: &Plan, priority: u64) -> Result<(), Error> {
    process.map_all(plan, OBJECTS)?;
    let registers = Registers {
        rip: process.base() + plan.entry,
        rsp: process.base() + STACK_TOP - 16,
        rflags: 0x202,
        ..Registers::default()
    };
    process.start(&registers, 0, priority)
}

/// Gives a new process everything that a native program has at its start, except the program
/// itself.
pub fn furnish(
    process: &mut Process,
    start: &Start,
    priority: u64,
    references: &References<'_>,
) -> Result<(), (Error, Reason)> {
    let plain = |error: Error| (error, error.text());
    let rights = READ | WRITE | OBJECTS;
    for (first, size) in [
        (START_PAGE, START_SIZE),
        (HEAP_START, HEAP_END - HEAP_START),
        (STACK_TOP - STACK_SIZE, STACK_SIZE),
    ] {
        let address = process.base() + first;
        process.map(address, size, first, rights).map_err(plain)?;
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
        .reference_into(at(START_SPACE))
        .map_err(code)?;
    at(START_THREAD).create().map_err(code)?;
    process
        .thread()
        .reference_into(at(START_THREAD))
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
    Ok(())
}
