//! The places of collocated spaces ([`abi::collocated`]), and the space that has each of them.

use super::space::Space;
use crate::K;
use abi::collocated::COUNT;
use abi::Code;
use hal::NarrowCell;

/// All places.
pub(crate) struct Places {
    spaces: [NarrowCell<Space>; COUNT as usize],
}

impl Places {
    pub(crate) const fn new() -> Self {
        Places {
            spaces: [const { NarrowCell::none() }; COUNT as usize],
        }
    }

    /// Gives the space a place until the space ends. The space must have no threads and no mappings, since these
    /// already have addresses outside of the place.
    pub(crate) fn give(&self, k: K, place: u64, space: &'static Space) -> Code {
        let Some(at) = usize::try_from(place)
            .ok()
            .and_then(|at| self.spaces.get(at))
        else {
            return Code::Invalid;
        };
        let empty = space.threads.get().is_none() && space.mappings.at_or_after(0).is_none();
        if at.get().is_some() || !empty || space.table.is_collocated() {
            return Code::InUse;
        }
        // Existing page tables do not lead to a place that no space has had yet, so they are emptied.
        if !hal::PageTable::leads_to(place) {
            for other in (0..k.spaces.slots()).filter_map(|i| k.spaces.get(i)) {
                if other.table.pages() > 0 {
                    other.empty_table(k);
                    k.look_at_interrupts();
                }
            }
        }
        if space.table.collocate(place).is_none() {
            return Code::Invalid;
        }
        at.set(Some(space));
        Code::Ok
    }

    /// Takes the place of a space that ends, if it has one.
    pub(crate) fn take(&self, space: &'static Space) {
        if !space.table.is_collocated() {
            return;
        }
        space.table.leave_place();
        for place in &self.spaces {
            if place.get().is_some_and(|s| core::ptr::eq(s, space)) {
                place.set(None);
            }
        }
    }

    /// The place of a space.
    #[cfg(any(test, fermata_probe))]
    pub(crate) fn of(&self, space: &'static Space) -> Option<u64> {
        let is = |place: &NarrowCell<Space>| place.get().is_some_and(|s| core::ptr::eq(s, space));
        self.spaces.iter().position(is).map(|place| place as u64)
    }
}
