//! Pages that a second space sees and that may be absent.
//!
//! The second space has a mapping of a region of the program's own space; it sees what the program maps there. Where
//! nothing is mapped, the region's keeper is asked.
use crate::loops::Loop;
use crate::run::{Must, Role};
use crate::twin::Twin;
use abi::state::{MappingState, RegionState};
use abi::{access::ALL, PAGE_SIZE};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use rt::memory::Segment;
use rt::obj::{Mapping, Ref, Region};

/// Pages of this program that a [`Twin`] sees through a region with a keeper.
pub struct Pages {
    // In the order in which they must be dropped.
    view: Mapping,
    supplied: Mapping,
    region_ref: Ref,
    _region: Region,
    segment: Option<Segment>,
    base: u64,
    size: u64,
    /// What the keeper sets: start, size, offset and protection of `supplied`.
    state: Vec<u64>,
}

impl Pages {
    /// `count` pages in the twin, none of them present, with this keeper (a reference or 0).
    pub fn new(count: u64, twin: &Twin, keeper: u64) -> Result<Self, String> {
        let size = count * PAGE_SIZE;
        let base = rt::window::take_addresses(size, PAGE_SIZE).ok_or("no addresses")?;
        let region = Region::new().must("a region")?;
        let state = RegionState {
            start: base,
            size,
            protection: ALL,
        };
        region
            .set_state(&state, 0, keeper)
            .must("the state of a region")?;
        let region_ref = region.reference().must("a reference")?;
        let view = Mapping::new().must("a mapping")?;
        let state = MappingState {
            start: base,
            size,
            offset: 0,
            protection: ALL,
        };
        view.set_state(&state, region_ref.handle(), twin.space_ref.handle())
            .must("the state of a mapping")?;
        let segment = rt::memory::create(size).must("a segment")?;
        segment.populate(0, size).must("populate")?;
        Ok(Pages {
            view,
            supplied: Mapping::new().must("a mapping")?,
            region_ref,
            _region: region,
            segment: Some(segment),
            base,
            size,
            state: vec![base, PAGE_SIZE, 0, ALL],
        })
    }

    /// Address of the first page.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// A thread that receives from the portset and supplies one page at a time, as one of the keepers.
    pub fn keeper(&mut self, way: Loop, portset: u64) -> Result<Role, String> {
        let segment = self.segment.as_ref().ok_or("no segment")?;
        Ok(Role::new(
            way,
            &[
                portset,
                self.supplied.handle(),
                self.state.as_mut_ptr() as u64,
                segment.region.handle(),
            ],
        ))
    }

    /// The end address of the page that the keeper supplied last.
    #[must_use]
    pub fn supplied_to(&self) -> u64 {
        let word = |i: usize| {
            // SAFETY: an element of a live vector, which the keeper writes.
            unsafe { core::ptr::from_ref(&self.state[i]).read_volatile() }
        };
        word(0) + word(1)
    }

    /// Maps all pages, so that faults on them are soft.
    pub fn supply(&self) -> Result<(), String> {
        let segment = self.segment.as_ref().ok_or("no segment")?;
        let state = MappingState {
            start: self.base,
            size: self.size,
            offset: 0,
            protection: ALL,
        };
        self.supplied
            .set_state(&state, segment.region.handle(), 0)
            .must("the state of a mapping")
    }

    /// Unmaps all pages, so that faults on them are hard.
    pub fn take_away(&self) -> Result<(), String> {
        self.supplied
            .set_state(&MappingState::default(), 0, 0)
            .must("the state of a mapping")
    }

    /// Removes the pages from the twin's page table.
    pub fn forget(&self) -> Result<(), String> {
        self.view.protect(ALL).must("protect")
    }

    /// A reference to the region.
    #[must_use]
    pub fn region(&self) -> &Ref {
        &self.region_ref
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // The addresses are freed when nothing is mapped there.
        let _ = self.supplied.at().destroy();
        let _ = self.supplied.at().create();
        rt::window::give_addresses(self.base, self.size);
        if let Some(segment) = self.segment.take() {
            // It is not used any more; if it cannot be destroyed, it goes with the program.
            let _ = segment.destroy();
        }
    }
}
