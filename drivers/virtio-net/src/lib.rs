//! Which frame has which slot: the driver's bookkeeping, without a device and tested on the host.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;

/// The number of a slot for a frame.
pub type Slot = usize;

/// The slots of one queue: each is free, or the device has it.
#[derive(Debug)]
pub struct Slots {
    free: Vec<Slot>,
    /// The slot of each token that the queue gave.
    with_device: Vec<Option<Slot>>,
}

impl Slots {
    /// The slots of a range, all of them free, for a queue with so many tokens.
    #[must_use]
    pub fn new(slots: core::ops::Range<Slot>, tokens: usize) -> Self {
        Slots {
            free: slots.rev().collect(),
            with_device: (0..tokens).map(|_| None).collect(),
        }
    }

    /// A free slot.
    pub fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    /// Whether there is a free slot.
    #[must_use]
    pub fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Notes that the device has the slot, under this token.
    pub fn give(&mut self, slot: Slot, token: u16) {
        if let Some(place) = self.with_device.get_mut(usize::from(token)) {
            *place = Some(slot);
        }
    }

    /// Notes that the device is done with the slot under this token. Returns the slot; `None` if the device has none
    /// under it.
    pub fn done(&mut self, token: u16) -> Option<Slot> {
        self.with_device.get_mut(usize::from(token))?.take()
    }

    /// Makes the slot free again.
    pub fn put(&mut self, slot: Slot) {
        self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn a_slot_is_in_one_place() {
        let mut slots = Slots::new(2..4, 2);
        let (first, second) = (slots.take(), slots.take());
        assert_eq!((first, second, slots.take()), (Some(2), Some(3), None));
        slots.give(2, 1);
        slots.give(3, 0);
        assert_eq!(slots.done(1), Some(2));
        assert_eq!(slots.done(1), None, "it has nothing by this token any more");
        assert_eq!(slots.done(9), None, "there is no such token");
        slots.put(2);
        assert!(slots.any_free());
        assert_eq!(slots.take(), Some(2));
        assert_eq!(slots.done(0), Some(3));
    }
}
