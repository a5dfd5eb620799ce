//! The slab of object slots.
//!
//! Kernel objects live at addresses. Those of a program's objects come from a part of the heap's
//! address range that is set aside when the program starts. Only a bitmap beside the slots says
//! which are free, never the slot itself, since its bytes may belong to the kernel a moment later.
//!
//! [`Map`] is the pure bookkeeping and is tested on the host.
use crate::sync::{self, RawLock};
use core::cell::UnsafeCell;
use core::ops::DerefMut;

/// Bookkeeping of slots: a bitmap, in a slice or a vector, in which a set bit is a slot in use.
#[derive(Debug)]
pub struct Map<W> {
    words: W,
    slots: usize,
    /// No free slot is below this word.
    hint: usize,
}

impl<W: DerefMut<Target = [u64]>> Map<W> {
    /// All `slots` free. The words must be zero.
    pub fn new(words: W, slots: usize) -> Self {
        let slots = slots.min(words.len() * 64);
        Map {
            words,
            slots,
            hint: 0,
        }
    }

    /// Takes `count` consecutive slots (at most 64, all in one word of the bitmap).
    pub fn allocate(&mut self, count: usize) -> Option<usize> {
        if count == 0 || count > 64 {
            return None;
        }
        let mask = if count == 64 {
            u64::MAX
        } else {
            (1 << count) - 1
        };
        let limit = self.slots.div_ceil(64);
        let mut first_free = None;
        for index in self.hint..limit {
            let word = self.words[index];
            if word != u64::MAX && first_free.is_none() {
                first_free = Some(index);
                self.hint = index;
            }
            let mut shift = (!word).trailing_zeros() as usize;
            while shift + count <= 64 {
                if word & (mask << shift) == 0 {
                    let slot = index * 64 + shift;
                    if slot + count > self.slots {
                        return None;
                    }
                    self.words[index] |= mask << shift;
                    return Some(slot);
                }
                shift += 1;
            }
        }
        None
    }

    /// Takes this slot, which may be taken already.
    pub fn take(&mut self, slot: usize) {
        if slot < self.slots {
            self.words[slot / 64] |= 1 << (slot % 64);
        }
    }

    /// Gives slots back.
    pub fn free(&mut self, slot: usize, count: usize) {
        for slot in slot..(slot + count).min(self.slots) {
            self.words[slot / 64] &= !(1 << (slot % 64));
        }
        self.hint = self.hint.min(slot / 64);
    }
}

type StaticMap = Map<&'static mut [u64]>;

struct Slab {
    lock: RawLock,
    /// Address of the first slot, and which are in use.
    inner: UnsafeCell<Option<(u64, StaticMap)>>,
}

// SAFETY: `inner` is only touched by the holder of `lock`, or before there are other threads.
unsafe impl Sync for Slab {}

static SLAB: Slab = Slab {
    lock: RawLock::new(),
    inner: UnsafeCell::new(None),
};

/// Sets the slab up in `start..start + size`, page-aligned zero memory in which objects may be
/// created: first the bitmap, then the slots.
///
/// # Safety
/// Called once, before there are other threads; the memory is mapped, or appears on demand, and
/// nobody else uses it.
pub unsafe fn init(start: u64, size: u64) {
    let slots = (size - size / 128) / abi::OBJECT_SIZE;
    let words = slots.div_ceil(64);
    let first = (start + words * 8).next_multiple_of(abi::PAGE_SIZE);
    let slots = slots.min((start + size - first) / abi::OBJECT_SIZE);
    // SAFETY: promised by the caller.
    let words = unsafe { core::slice::from_raw_parts_mut(start as *mut u64, words as usize) };
    let mut map = Map::new(words, slots as usize);
    let queue = map
        .allocate(1)
        .map(|slot| first + slot as u64 * abi::OBJECT_SIZE);
    // SAFETY: there are no other threads yet.
    unsafe { *SLAB.inner.get() = Some((first, map)) };
    if let Some(handle) = queue {
        if sync::make_queue(handle) {
            SLAB.lock.prepare(handle);
        }
    }
}

fn with<R>(f: impl FnOnce(u64, &mut StaticMap) -> R) -> Option<R> {
    SLAB.lock.lock();
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *SLAB.inner.get() };
    let result = inner.as_mut().map(|(first, map)| f(*first, map));
    SLAB.lock.unlock();
    result
}

/// Takes `count` consecutive slots (at most 64): the address of the first.
#[must_use]
pub fn allocate(count: usize) -> Option<u64> {
    with(|first, map| {
        map.allocate(count)
            .map(|slot| first + slot as u64 * abi::OBJECT_SIZE)
    })
    .flatten()
}

/// Gives slots back. The caller has destroyed the objects in them.
pub fn free(address: u64, count: usize) {
    with(|first, map| map.free(((address - first) / abi::OBJECT_SIZE) as usize, count));
}

#[cfg(test)]
mod tests {
    use super::Map;
    use alloc::vec::Vec;

    #[test]
    fn slots_are_distinct_and_reused() {
        let mut words = [0; 4];
        let mut map = Map::new(&mut words[..], 200);
        let all: Vec<usize> = (0..200).map(|_| map.allocate(1).unwrap()).collect();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
        assert_eq!(map.allocate(1), None);
        map.free(77, 1);
        map.free(3, 1);
        assert_eq!(map.allocate(1), Some(3));
        assert_eq!(map.allocate(1), Some(77));
        assert_eq!(map.allocate(1), None);
    }

    /// A slot that was given back is found again, wherever it is, and none is handed out twice.
    #[test]
    fn no_slot_is_lost() {
        let mut words = [0; 4];
        let mut map = Map::new(&mut words[..], 200);
        for round in 0..3 {
            let mut taken: Vec<usize> = core::iter::from_fn(|| map.allocate(1)).collect();
            assert_eq!(taken.len(), 200, "slots in round {round}");
            taken.dedup();
            assert_eq!(taken.len(), 200, "a slot is handed out twice");
            taken.iter().rev().for_each(|&slot| map.free(slot, 1));
        }
        let mut words = [0; 2];
        let mut map = Map::new(&mut words[..], 70);
        let runs: Vec<usize> = core::iter::from_fn(|| map.allocate(8)).collect();
        let within = runs.iter().all(|run| run + 8 <= 70);
        assert!(within, "slots behind the end are handed out: {runs:?}");
    }

    #[test]
    fn runs_fit_between_others() {
        let mut words = [0; 2];
        let mut map = Map::new(&mut words[..], 128);
        let first = map.allocate(8).unwrap();
        let single = map.allocate(1).unwrap();
        let second = map.allocate(8).unwrap();
        assert!(single >= first + 8 && second > single);
        map.free(first, 8);
        assert_eq!(map.allocate(8), Some(first));
        assert_eq!(map.allocate(64), Some(64));
        assert_eq!(map.allocate(64), None);
        assert_eq!(map.allocate(65), None);
    }
}
