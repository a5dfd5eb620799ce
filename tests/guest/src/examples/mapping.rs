//! One page of memory at two addresses.

use rt::abi::state::MappingState;
use rt::abi::{access, PAGE_SIZE};
use rt::obj::Mapping;
use rt::Code;

pub fn example() -> Result<(), Code> {
    // The memory server makes memory; the program gets a reference to a region.
    let segment = rt::memory::create(16 * PAGE_SIZE).map_err(|_| Code::NoMemory)?;
    let base = rt::window::take_addresses(2 * PAGE_SIZE, PAGE_SIZE).ok_or(Code::InUse)?;

    let state = |address| MappingState {
        start: address,
        size: PAGE_SIZE,
        offset: 5 * PAGE_SIZE,
        protection: access::READ | access::WRITE,
    };
    let (one, other) = (Mapping::new()?, Mapping::new()?);
    // 0 for the space: the mapping imports into the caller's own space.
    one.set_state(&state(base), segment.region.handle(), 0)?;
    other.set_state(&state(base + PAGE_SIZE), segment.region.handle(), 0)?;
    // Two mappings of a space do not overlap.
    let third = Mapping::new()?;
    let taken = third.set_state(&state(base), segment.region.handle(), 0);
    assert_eq!(taken, Err(Code::InUse));

    let (a, b) = (base as *mut u64, (base + PAGE_SIZE) as *mut u64);
    // SAFETY: both addresses are mapped, and nothing else uses that memory.
    unsafe {
        a.write_volatile(1999);
        assert_eq!(b.read_volatile(), 1999);
    }
    // From now on a store to the second address is an exception.
    other.protect(access::READ)?;
    assert_eq!(other.get_state(0, 0)?.protection, access::READ);

    drop((one, other));
    rt::window::give_addresses(base, 2 * PAGE_SIZE);
    segment.destroy().map_err(|_| Code::Invalid)
}
