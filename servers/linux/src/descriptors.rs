//! The table of a process's file descriptors.

use alloc::vec::Vec;

use crate::process::Fd;

/// File descriptors by number. As in Linux this is an array up to the highest number in use: nearly every call looks
/// one up, and programs open and close the lowest free number again and again.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    /// The last entry is never `None`.
    by_number: Vec<Option<Fd>>,
    count: usize,
}

impl Descriptors {
    /// Number of file descriptors.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no file descriptors.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entry of a file descriptor.
    #[must_use]
    #[inline]
    pub fn get(&self, fd: u32) -> Option<&Fd> {
        self.by_number.get(fd as usize)?.as_ref()
    }

    /// The entry of a file descriptor, to be changed.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, fd: u32) -> Option<&mut Fd> {
        self.by_number.get_mut(fd as usize)?.as_mut()
    }

    /// Sets the entry of a file descriptor; returns the previous one.
    pub fn insert(&mut self, fd: u32, entry: Fd) -> Option<Fd> {
        let index = fd as usize;
        if index >= self.by_number.len() {
            self.by_number.resize_with(index + 1, || None);
        }
        let old = self.by_number[index].replace(entry);
        self.count += usize::from(old.is_none());
        old
    }

    /// Removes a file descriptor; returns its entry.
    pub fn remove(&mut self, fd: u32) -> Option<Fd> {
        let old = self.by_number.get_mut(fd as usize)?.take()?;
        self.count -= 1;
        while let Some(None) = self.by_number.last() {
            self.by_number.pop();
        }
        Some(old)
    }

    /// The lowest free number that is at least `from`.
    #[must_use]
    pub fn lowest(&self, from: u32) -> u32 {
        let behind = self.by_number.iter().skip(from as usize);
        let taken = behind.take_while(|entry| entry.is_some()).count();
        from + taken as u32
    }

    /// The file descriptors from `first` on, in rising order.
    pub fn from(&self, first: u32) -> impl Iterator<Item = (u32, &Fd)> {
        // Counted from 0, because counting from `first` overflows if that is the highest number.
        let behind = self.by_number.iter().enumerate().skip(first as usize);
        behind.filter_map(|(fd, entry)| Some((fd as u32, entry.as_ref()?)))
    }

    /// All file descriptors, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Fd)> {
        self.from(0)
    }

    /// The numbers in use, in rising order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.iter().map(|(fd, _)| fd)
    }

    /// All entries, in rising order of their numbers.
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

    /// Random insertions and removals leave the same entries as in a map.
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
