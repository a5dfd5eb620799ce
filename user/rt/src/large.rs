//! Bookkeeping of the part of the heap from which large blocks come.
//!
//! Blocks are whole units of pages in an address range, found first-fit from below. Freed units stay *dirty* (present,
//! with old content) until there are many; then they are given back to the memory server in runs, so that a server
//! which once held a lot of data does not keep the memory for ever. Units that were never used, or were given back, are
//! zero.
//!
//! [`Units`] is pure and tested on the host.

/// Bytes of a unit.
pub const UNIT: usize = 16 * 1024;
/// Most units.
pub const MAX_UNITS: usize = 48 * 1024;

const WORDS: usize = MAX_UNITS / 64;

/// Which units are in use, and which free ones are dirty.
#[derive(Debug)]
pub struct Units {
    used: [u64; WORDS],
    dirty: [u64; WORDS],
    count: usize,
    used_count: usize,
    dirty_count: usize,
    /// No free unit is below this one.
    hint: usize,
}

fn get(words: &[u64; WORDS], unit: usize) -> bool {
    words[unit / 64] >> (unit % 64) & 1 != 0
}

impl Units {
    /// No units.
    #[must_use]
    pub const fn new() -> Self {
        Units {
            used: [0; WORDS],
            dirty: [0; WORDS],
            count: 0,
            used_count: 0,
            dirty_count: 0,
            hint: 0,
        }
    }

    /// Sets the number of units, all free and zero.
    pub fn set_count(&mut self, count: usize) {
        self.count = count.min(MAX_UNITS);
    }

    /// How many are free.
    #[must_use]
    pub const fn free_count(&self) -> usize {
        self.count - self.used_count
    }

    /// How many free units are dirty.
    #[must_use]
    pub const fn dirty_count(&self) -> usize {
        self.dirty_count
    }

    /// Takes `count` consecutive units. Returns the first, and whether all of them are zero. `None` if `may` refuses,
    /// which gets the first unit, and whether all of them are dirty.
    pub fn take(
        &mut self,
        count: usize,
        may: impl FnOnce(usize, bool) -> bool,
    ) -> Option<(usize, bool)> {
        let first = self.find(count)?;
        let dirty = self.dirty_in(first, count);
        if !may(first, dirty == count) {
            return None;
        }
        if first == self.hint {
            self.hint = first + count;
        }
        self.claim(first, count);
        Some((first, dirty == 0))
    }

    /// The first of `count` consecutive free units.
    fn find(&mut self, count: usize) -> Option<usize> {
        if count == 0 {
            return None;
        }
        let mut start = self.hint;
        let mut at = start;
        let mut first_free = None;
        while at < self.count {
            if at.is_multiple_of(64) && self.used[at / 64] == u64::MAX {
                at += 64;
                start = at;
                continue;
            }
            if get(&self.used, at) {
                start = at + 1;
            } else {
                self.hint = *first_free.get_or_insert(at);
                if at + 1 - start == count {
                    return Some(start);
                }
            }
            at += 1;
        }
        None
    }

    /// Takes these units if they are free and `may` agrees, which gets whether all of them are dirty. Returns whether
    /// they were taken.
    pub fn take_at(&mut self, first: usize, count: usize, may: impl FnOnce(bool) -> bool) -> bool {
        let free =
            first + count <= self.count && !(first..first + count).any(|u| get(&self.used, u));
        let takes = free && may(self.dirty_in(first, count) == count);
        if takes {
            self.claim(first, count);
        }
        takes
    }

    fn dirty_in(&self, first: usize, count: usize) -> usize {
        let units = first..first + count;
        units.filter(|unit| get(&self.dirty, *unit)).count()
    }

    fn claim(&mut self, first: usize, count: usize) {
        self.used_count += count;
        for unit in first..first + count {
            let bit = 1 << (unit % 64);
            self.used[unit / 64] |= bit;
            if self.dirty[unit / 64] & bit != 0 {
                self.dirty[unit / 64] &= !bit;
                self.dirty_count -= 1;
            }
        }
    }

    /// Gives units back; they are dirty.
    pub fn give(&mut self, first: usize, count: usize) {
        for unit in first..(first + count).min(self.count) {
            let bit = 1 << (unit % 64);
            self.used_count -= 1;
            self.used[unit / 64] &= !bit;
            self.dirty[unit / 64] |= bit;
            self.dirty_count += 1;
        }
        self.hint = self.hint.min(first);
    }

    /// A run of dirty units at or after `from`: first and number.
    #[must_use]
    pub fn dirty_run(&self, from: usize) -> Option<(usize, usize)> {
        let mut first = from;
        while first < self.count && !get(&self.dirty, first) {
            first += if first.is_multiple_of(64) && self.dirty[first / 64] == 0 {
                64
            } else {
                1
            };
        }
        if first >= self.count {
            return None;
        }
        let mut end = first + 1;
        while end < self.count && get(&self.dirty, end) {
            end += 1;
        }
        Some((first, end - first))
    }

    /// Notes that these free units are zero now.
    pub fn cleaned(&mut self, first: usize, count: usize) {
        for unit in first..first + count {
            let bit = 1 << (unit % 64);
            if self.dirty[unit / 64] & bit != 0 {
                self.dirty[unit / 64] &= !bit;
                self.dirty_count -= 1;
            }
        }
    }
}

impl Default for Units {
    fn default() -> Self {
        Units::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Units;
    use alloc::boxed::Box;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn blocks_are_reused_and_cleaned() {
        let mut units = Box::new(Units::new());
        units.set_count(200);
        assert_eq!(units.take(3, |_, _| true), Some((0, true)));
        assert_eq!(units.take(70, |_, _| true), Some((3, true)));
        assert_eq!(units.take(128, |_, _| true), None);
        assert_eq!(units.take(127, |_, _| true), Some((73, true)));
        assert_eq!(units.take(1, |_, _| true), None);
        units.give(3, 70);
        assert_eq!(units.dirty_count(), 70);
        assert_eq!(units.dirty_run(0), Some((3, 70)));
        assert_eq!(units.take(2, |_, _| true), Some((3, false)));
        assert_eq!(units.dirty_run(0), Some((5, 68)));
        units.cleaned(5, 68);
        assert_eq!(units.dirty_run(0), None);
        assert_eq!(units.dirty_count(), 0);
        assert!(units.take_at(5, 10, |_| true));
        assert!(!units.take_at(14, 10, |_| true));
        assert!(!units.take_at(199, 2, |_| true));
        assert_eq!(units.take(58, |_, _| true), Some((15, true)));
        assert_eq!(units.take(0, |_, _| true), None);
    }

    #[test]
    fn random_blocks_never_overlap() {
        let mut units = Box::new(Units::new());
        units.set_count(1000);
        let mut owner = vec![0u32; 1000];
        let mut dirty = vec![false; 1000];
        let mut blocks: Vec<(usize, usize, u32)> = Vec::new();
        let mut generator = fastrand::Rng::with_seed(1);
        let mut random = |n: u64| generator.u64(..n) as usize;
        for id in 1..20_000u32 {
            match random(5) {
                0..=2 => {
                    let count = random(40) + 1;
                    if let Some((first, zero)) = units.take(count, |_, _| true) {
                        assert!(owner[first..first + count].iter().all(|o| *o == 0));
                        assert_eq!(zero, !dirty[first..first + count].iter().any(|d| *d));
                        owner[first..first + count].fill(id);
                        dirty[first..first + count].fill(false);
                        blocks.push((first, count, id));
                    } else {
                        let run = owner.split(|o| *o != 0).map(<[u32]>::len).max();
                        assert!(run.unwrap() < count);
                    }
                }
                3 if !blocks.is_empty() => {
                    let (first, count, _) = blocks.swap_remove(random(blocks.len() as u64));
                    units.give(first, count);
                    owner[first..first + count].fill(0);
                    dirty[first..first + count].fill(true);
                }
                _ if id % 50 == 0 => {
                    let mut from = 0;
                    while let Some((first, count)) = units.dirty_run(from) {
                        assert!(dirty[first..first + count].iter().all(|d| *d));
                        units.cleaned(first, count);
                        dirty[first..first + count].fill(false);
                        from = first + count;
                    }
                    assert!(!dirty.iter().any(|d| *d));
                }
                _ => {}
            }
            assert_eq!(units.dirty_count(), dirty.iter().filter(|d| **d).count());
            let free = owner.iter().filter(|owner| **owner == 0).count();
            assert_eq!(units.free_count(), free);
        }
    }

    #[test]
    fn who_may_not_touch_clean_units_takes_none() {
        let mut units = Units::new();
        units.set_count(8);
        assert_eq!(
            units.take(2, |first, dirty| (first, dirty) != (0, false)),
            None
        );
        assert_eq!(units.take(2, |_, _| true), Some((0, true)), "it was taken");
        units.give(0, 2);
        assert_eq!(units.take(2, |_, dirty| dirty), Some((0, false)), "dirty");
        units.give(1, 1);
        assert!(!units.take_at(1, 2, |dirty| dirty), "one of them is clean");
        assert!(units.take_at(1, 1, |dirty| dirty), "dirty");
        assert_eq!(units.take(6, |_, dirty| !dirty), Some((2, true)));
    }
}
