//! Which frame stands where: the driver's bookkeeping, without a device, tested on the host.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;

/// A place for a frame.
pub type Slot = usize;

/// The slots of one queue: each is free, or the device has it.
#[derive(Debug)]
pub struct Slots {
    free: Vec<Slot>,
    /// By the token that the queue gave.
    with_device: Vec<Option<Slot>>,
}

impl Slots {
    /// These slots, all of them free, of a queue with so many tokens.
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

    /// The device has the slot, by this token.
    pub fn give(&mut self, slot: Slot, token: u16) {
        if let Some(place) = self.with_device.get_mut(usize::from(token)) {
            *place = Some(slot);
        }
    }

    /// The device is done with what it has by this token: which slot. `None`: it has nothing by it.
    pub fn done(&mut self, token: u16) -> Option<Slot> {
        self.with_device.get_mut(usize::from(token))?.take()
    }

    /// The slot is free again.
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
