//! A second space with the program's own memory in it, at a process's addresses even if the program is collocated.
use abi::state::{MappingState, RegionState, SpaceState};
use abi::Code;
use base::place;
use proto::layout::{HEAP_END, STACK_TOP, START_PAGE};
use rt::obj::{Mapping, Ref, Region, Space};

/// An address of this program in a space: 0 is the program's own space, any other value a reference to a [`Twin`].
/// The two differ only if the program is collocated. A value that is no address of the program is returned unchanged.
#[must_use]
pub fn address_in(space: u64, here: u64) -> u64 {
    let offset = here.wrapping_sub(place::start());
    match space != 0 && offset < abi::collocated::SIZE {
        true => offset,
        false => here,
    }
}

/// A space in which the program's memory has the same addresses; if the program is collocated, the addresses that it
/// has in a process.
#[derive(Debug)]
pub struct Twin {
    // In the order in which they must be dropped.
    _mapping: Mapping,
    _region: Region,
    /// A reference to the space.
    pub space_ref: Ref,
    /// The space.
    pub space: Space,
}

impl Twin {
    /// A twin with this quota of kernel memory and this keeper (a reference or 0).
    pub fn new(quota: u64, keeper: u64) -> Result<Self, Code> {
        let (start, size) = (START_PAGE, STACK_TOP.max(HEAP_END) - START_PAGE);
        let space = Space::new()?;
        let space_ref = space.reference()?;
        let state = SpaceState {
            quota,
            ..space.get_state(0)?
        };
        space.set_state(&state, keeper)?;
        let region = Region::new()?;
        let state = RegionState {
            start: place::at(start),
            size,
            protection: abi::access::ALL,
        };
        region.set_state(&state, 0, 0)?;
        let region_ref = region.reference()?;
        let mapping = Mapping::new()?;
        let state = MappingState {
            start,
            size,
            offset: 0,
            protection: abi::access::ALL,
        };
        mapping.set_state(&state, region_ref.handle(), space_ref.handle())?;
        Ok(Twin {
            _mapping: mapping,
            _region: region,
            space_ref,
            space,
        })
    }
}
