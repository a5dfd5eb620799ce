//! A program lends a part of its memory, with the objects in it.

use rt::abi::state::RegionState;
use rt::abi::{access, Type, PAGE_SIZE};
use rt::obj::{MutexAt, Region};
use rt::window::Window;
use rt::Code;

pub fn example() -> Result<(), Code> {
    let segment = rt::memory::create(4 * PAGE_SIZE).map_err(|_| Code::NoMemory)?;
    let mine =
        Window::map(&segment.region, 0, 4 * PAGE_SIZE, access::ALL).map_err(|_| Code::NoMemory)?;

    // Two pages of the caller's space (0), without a keeper of their own (0).
    let region = Region::new()?;
    let state = RegionState {
        start: mine.address() + PAGE_SIZE,
        size: 2 * PAGE_SIZE,
        protection: access::READ | access::WRITE | access::OBJECTS,
    };
    region.set_state(&state, 0, 0)?;
    // A holder of this reference can map and search what the region exports, and no more.
    let reference = region.reference()?;

    // An object in the lent memory, found by its offset.
    let mutex = MutexAt(mine.address() + PAGE_SIZE + 0x40);
    mutex.create()?;
    let mutexes = 1 << Type::Mutex as u64;
    let found = reference.search(0, state.size, mutexes)?;
    assert_eq!(found, (0x40, Type::Mutex as u64));
    assert_eq!(
        reference.search(0x50, state.size, mutexes),
        Err(Code::NotFound)
    );

    // Mapped elsewhere it is the same object: the address at which it appears is a handle of it.
    let theirs = Window::map(&reference, 0, state.size, access::READ | access::OBJECTS)
        .map_err(|_| Code::NoMemory)?;
    let same = MutexAt(theirs.address() + found.0);
    assert!(same.try_lock());
    assert!(!mutex.try_lock());

    // The protection of the region limits all mappings of it, including existing ones.
    region.protect(access::READ)?;
    assert_eq!(region.get_state(0, 0)?.protection, access::READ);

    mutex.destroy()?;
    drop((theirs, mine));
    segment.destroy().map_err(|_| Code::Invalid)
}
