//! The table of a process's descriptors.

use alloc::vec::Vec;

use crate::process::Fd;

/// Descriptors by number. As in Linux it is an array, as long as the highest number needs: nearly every call looks one
/// up, and programs open and close the lowest free one again and again.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    /// The last one is there.
    by_number: Vec<Option<Fd>>,
    count: usize,
}

impl Descriptors {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One of them.
    #[must_use]
    #[inline]
    pub fn get(&self, fd: u32) -> Option<&Fd> {
        self.by_number.get(fd as usize)?.as_ref()
    }

    /// One of them, to be changed.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, fd: u32) -> Option<&mut Fd> {
        self.by_number.get_mut(fd as usize)?.as_mut()
    }

    /// Puts one there: what was there before.
    pub fn insert(&mut self, fd: u32, entry: Fd) -> Option<Fd> {
        let index = fd as usize;
        if index >= self.by_number.len() {
            self.by_number.resize_with(index + 1, || None);
        }
        let old = self.by_number[index].replace(entry);
        self.count += usize::from(old.is_none());
        old
    }

    /// Takes one out.
    pub fn remove(&mut self, fd: u32) -> Option<Fd> {
        let old = self.by_number.get_mut(fd as usize)?.take()?;
        self.count -= 1;
        while let Some(None) = self.by_number.last() {
            self.by_number.pop();
        }
        Some(old)
    }

    /// The lowest number from `from` on that is free.
    #[must_use]
    pub fn lowest(&self, from: u32) -> u32 {
        let behind = self.by_number.iter().skip(from as usize);
        let taken = behind.take_while(|entry| entry.is_some()).count();
        from + taken as u32
    }

    /// Those from a number on, in their order.
    pub fn from(&self, first: u32) -> impl Iterator<Item = (u32, &Fd)> {
        // Counted from 0, and not from `first`: behind the highest number there is no next one.
        let behind = self.by_number.iter().enumerate().skip(first as usize);
        behind.filter_map(|(fd, entry)| Some((fd as u32, entry.as_ref()?)))
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Fd)> {
        self.from(0)
    }

    /// The numbers, in their order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.iter().map(|(fd, _)| fd)
    }

    /// All of them without their numbers.
    pub fn values(&self) -> impl Iterator<Item = &Fd> {
        self.by_number.iter().flatten()
    }
}

impl FromIterator<(u32, Fd)> for Descriptors {
    fn from_iter<I: IntoIterator<Item = (u32, Fd)>>(entries: I) -> Self {
        let mut made = Descriptors::default();
        for (fd, entry) in entries {
            made.insert(fd, entry);
        }
        made
    }
}

#[cfg(test)]
impl core::ops::Index<u32> for Descriptors {
    type Output = Fd;

    fn index(&self, fd: u32) -> &Fd {
        self.get(fd).expect("a descriptor that is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{shared, Description, Device, Kind};
    use alloc::collections::BTreeMap;

    /// Whatever is put in and taken out, it is a map from numbers.
    #[test]
    fn the_table_is_a_map_of_numbers() {
        let mut random = fastrand::Rng::with_seed(3);
        let (mut table, mut map) = (Descriptors::default(), BTreeMap::new());
        for round in 0..5000 {
            let fd = random.u32(..40);
            if random.bool() {
                let description = shared(Description {
                    kind: Kind::Device(Device::Null),
                    flags: round,
                    offset: 0,
                    owner: None,
                });
                let entry = Fd {
                    description,
                    cloexec: random.bool(),
                };
                let old = map.insert(fd, round);
                let was = table.insert(fd, entry);
                assert_eq!(was.map(|was| was.description.borrow().flags), old);
            } else {
                let old = map.remove(&fd);
                let was = table.remove(fd);
                assert_eq!(was.map(|was| was.description.borrow().flags), old);
            }
            let flags = |entry: &Fd| entry.description.borrow().flags;
            let all: Vec<(u32, u32)> = table.iter().map(|(fd, entry)| (fd, flags(entry))).collect();
            let expected: Vec<(u32, u32)> = map.iter().map(|(fd, flags)| (*fd, *flags)).collect();
            assert_eq!(all, expected, "the table is in the order of numbers");
            assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
            assert_eq!(table.get(fd).map(flags), map.get(&fd).copied());
            let free = (fd..).find(|fd| !map.contains_key(fd));
            assert_eq!(
                Some(table.lowest(fd)),
                free,
                "the lowest free number from {fd}"
            );
            let behind: Vec<u32> = table.from(fd).map(|(fd, _)| fd).collect();
            let expected: Vec<u32> = map.range(fd..).map(|(fd, _)| *fd).collect();
            assert_eq!(behind, expected);
            for first in [1 << 31, u32::MAX - 1, u32::MAX] {
                assert_eq!(table.from(first).count(), 0, "none from {first} on");
            }
            assert_eq!(table.values().count(), map.len());
            assert!(
                !matches!(table.by_number.last(), Some(None)),
                "the table ends with one"
            );
        }
    }
}
