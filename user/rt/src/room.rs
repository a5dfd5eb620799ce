//! How much memory a server may still touch, which is reserved for it at the memory server.
//!
//! If there is no memory when a server touches a page, the server ends. So it first reserves what it is going to touch,
//! and refuses requests for which it has no room: a request that keeps memory asks with [`crate::heap::want`], one that
//! takes much for a while holds it with [`crate::heap::Hold`].
//!
//! [`Room`] is the bookkeeping, tested on the host.

/// Bytes that are reserved beyond a request, so that not every small request asks the memory server.
const STRIDE: u64 = 512 << 10;
/// Bytes that are left by requests which ask: for those that keep nothing, and for those by which clients give
/// something back.
const LOW: u64 = 256 << 10;
/// Bytes that are reserved for memory outside of the heap: the slots of objects, the first thread's stack.
const REST: u64 = 256 << 10;

/// The reservation.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// How much of it the heap has not touched yet; `None` in a program that reserves nothing.
    left: Option<u64>,
    /// How much of it is held for some requests.
    held: u64,
}

impl Room {
    /// For a program that reserves nothing.
    pub(crate) const fn new() -> Self {
        Room {
            left: None,
            held: 0,
        }
    }

    /// Whether the program reserves memory.
    pub(crate) const fn reserves(&self) -> bool {
        self.left.is_some()
    }

    /// Returns whether the heap may touch `bytes` more, which then count as touched. `reserve` asks the memory server.
    pub(crate) fn take(&mut self, bytes: u64, reserve: impl Fn(u64) -> bool) -> bool {
        let Some(left) = self.left else {
            return true;
        };
        if left < bytes {
            // Reserves what is held as well, if there is that much.
            let beside = self.held.saturating_add(bytes);
            if !self.ask(beside, &reserve) && !self.ask(bytes, reserve) {
                return false;
            }
        }
        self.left = self.left.map(|left| left - bytes);
        true
    }

    /// Whether `bytes` are available beyond what is held and what must be left. From the first call on the heap
    /// reserves.
    pub(crate) fn want(&mut self, bytes: u64, reserve: impl Fn(u64) -> bool) -> bool {
        let need = self.held.saturating_add(LOW).saturating_add(bytes);
        self.left.is_some_and(|left| left >= need) || self.ask(need, reserve)
    }

    /// Holds `bytes` instead of `before`, if that much is available.
    pub(crate) fn hold(&mut self, before: u64, bytes: u64, reserve: impl Fn(u64) -> bool) -> bool {
        self.held -= before;
        let held = self.want(bytes, reserve);
        self.held += if held { bytes } else { before };
        held
    }

    /// Holds `bytes` less. Gives back a reservation that is larger than needed then.
    pub(crate) fn release(&mut self, bytes: u64, reserve: impl Fn(u64) -> bool) {
        self.held = self.held.saturating_sub(bytes);
        if self
            .left
            .is_some_and(|left| left > self.held + LOW + 2 * STRIDE)
        {
            self.gave(reserve);
        }
    }

    /// Called when the heap has given memory back, which is still reserved: lowers the reservation.
    pub(crate) fn gave(&mut self, reserve: impl Fn(u64) -> bool) {
        if self.reserves() {
            self.ask(self.held.saturating_add(LOW), reserve);
        }
    }

    fn ask(&mut self, need: u64, reserve: impl Fn(u64) -> bool) -> bool {
        let more = [need.saturating_add(STRIDE), need];
        let granted = more
            .into_iter()
            .find(|bytes| reserve(bytes.saturating_add(REST)));
        if granted.is_some() {
            self.left = granted;
        }
        granted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{Room, LOW, REST, STRIDE};
    use core::cell::Cell;

    /// A memory server with this many bytes.
    struct Free(Cell<u64>);

    impl Free {
        fn reserve(&self) -> impl Fn(u64) -> bool + '_ {
            |bytes| bytes <= self.0.get()
        }

        fn touched(&self, bytes: u64) {
            self.0.set(self.0.get() - bytes);
        }
    }

    #[test]
    fn what_reserves_nothing_may_touch_everything() {
        let mut room = Room::new();
        assert!(room.take(u64::MAX, |_| panic!("asks")));
    }

    #[test]
    fn what_was_wanted_can_be_touched_when_nobody_has_any_more() {
        let free = Free(Cell::new(10 << 20));
        let mut room = Room::new();
        assert!(room.want(1 << 20, free.reserve()));
        free.0.set(0);
        assert!(room.take((1 << 20) + LOW, |_| false), "what was wanted");
        assert!(!room.take(STRIDE + REST, |_| false), "more than that");
    }

    #[test]
    fn something_is_left_for_requests_that_only_give_back() {
        let free = Free(Cell::new(4 << 20));
        let mut room = Room::new();
        let mut taken = 0;
        while room.want(64 << 10, free.reserve()) {
            assert!(room.take(64 << 10, free.reserve()));
            free.touched(64 << 10);
            taken += 64 << 10;
        }
        assert!(taken > 3 << 20, "only {taken}");
        assert!(room.take(LOW - (64 << 10), |_| false), "nothing is left");
    }

    #[test]
    fn what_was_held_for_nothing_is_given_back() {
        let reserved = Cell::new(0);
        let reserve = |bytes| {
            reserved.set(bytes);
            true
        };
        let mut room = Room::new();
        assert!(room.hold(0, 1 << 30, reserve));
        assert!(reserved.get() > 1 << 30);
        room.release(1 << 30, reserve);
        assert!(reserved.get() <= LOW + STRIDE + REST, "{}", reserved.get());
    }

    #[test]
    fn what_nobody_wanted_takes_nothing_from_what_is_held() {
        let mut room = Room::new();
        assert!(room.hold(0, 1 << 20, |_| true));
        assert!(room.take(4 << 20, |_| true));
        assert!(room.take(1 << 20, |_| false), "S1: what was held is gone");
        // When there is not enough for both, memory that is touched now comes first.
        let free = Free(Cell::new(5 << 20));
        assert!(room.take(4 << 20, free.reserve()));
    }

    #[test]
    fn what_is_held_is_not_given_to_others() {
        let free = Free(Cell::new(8 << 20));
        let mut room = Room::new();
        assert!(room.hold(0, 3 << 20, free.reserve()));
        assert!(room.hold(0, 2 << 20, free.reserve()));
        assert!(!room.hold(0, 3 << 20, free.reserve()), "held twice");
        assert!(!room.want(3 << 20, free.reserve()), "given twice");
        room.release(3 << 20, free.reserve());
        assert!(room.want(3 << 20, free.reserve()));
        assert!(!room.want(u64::MAX, free.reserve()));
    }
}
