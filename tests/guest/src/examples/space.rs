//! A new space has nothing, and may use of the kernel what its creator gives it.

use rt::abi::state::SpaceState;
use rt::obj::Space;
use rt::Code;

pub fn example() -> Result<(), Code> {
    let space = Space::new()?;
    let new = space.get_state(0)?;
    assert_eq!((new.quota, new.used, new.clock_offset), (0, 0, 0));

    // 64 KiB of the caller's kernel memory, and a clock one hour ahead of the machine's. A process
    // that comes from another machine gets the difference here: its deadlines stay what they were.
    let state = SpaceState {
        quota: 64 << 10,
        clock_offset: 3_600_000_000_000,
        ..new
    };
    space.set_state(&state, 0)?;
    assert_eq!(space.get_state(0)?, state);

    // More than the caller has cannot be given.
    let much = SpaceState {
        quota: 1 << 50,
        ..state
    };
    assert_eq!(space.set_state(&much, 0), Err(Code::NoMemory));

    // What runs in it, and what is mapped in it, names it by a reference.
    let reference = space.reference()?;
    drop(space);
    assert_eq!(reference.kind(), rt::abi::RefKind::Null);
    Ok(())
}
