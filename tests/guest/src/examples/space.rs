//! A new space is empty, and may use as much kernel memory as its creator gives it.

use rt::abi::state::SpaceState;
use rt::obj::Space;
use rt::Code;

pub fn example() -> Result<(), Code> {
    let space = Space::new()?;
    let new = space.get_state(0)?;
    assert_eq!((new.quota, new.used, new.clock_offset), (0, 0, 0));

    // 64 KiB of the caller's kernel memory, and a clock one hour ahead of the machine's. A process that comes from
    // another machine gets the difference of the clocks here, so that its deadlines stay valid.
    let state = SpaceState {
        quota: 64 << 10,
        clock_offset: 3_600_000_000_000,
        ..new
    };
    space.set_state(&state, 0)?;
    assert_eq!(space.get_state(0)?, state);

    // The caller cannot give more than it has.
    let much = SpaceState {
        quota: 1 << 50,
        ..state
    };
    assert_eq!(space.set_state(&much, 0), Err(Code::NoMemory));

    // Threads and mappings name their space by a reference.
    let reference = space.reference()?;
    drop(space);
    assert_eq!(reference.kind(), rt::abi::RefKind::Null);
    Ok(())
}
