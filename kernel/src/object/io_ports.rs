//! I/O ports: which space may use which ports. A port belongs to one space at a time, so one table has all granted
//! ranges; the ranges of a space are chained through the table.

use super::space::Space;
use crate::kernel::core;
use core::cell::Cell;

/// Most ranges of a space.
pub(crate) const MAX_PORTS: usize = 32;
/// Most ranges of all spaces.
const MAX_RANGES: usize = 512;

/// A range, or a free place if its count is 0.
struct Range {
    first: Cell<u16>,
    count: Cell<u16>,
    /// The next range of the same space; 0 for none.
    next: Cell<Number>,
}

/// The place of a range in the table, from 1 on; 0 for none.
type Number = u16;

/// All granted ranges. They are changed only in the core: under full preemption a thread that preempts the change may
/// read the ranges of its space when it leaves the kernel.
pub(crate) struct IoPorts {
    ranges: [Range; MAX_RANGES],
}

impl IoPorts {
    pub(crate) const fn new() -> Self {
        IoPorts {
            ranges: [const {
                Range {
                    first: Cell::new(0),
                    count: Cell::new(0),
                    next: Cell::new(0),
                }
            }; MAX_RANGES],
        }
    }

    fn at(&self, number: Number) -> Option<&Range> {
        self.ranges.get(usize::from(number).checked_sub(1)?)
    }

    /// The ranges of a space as (first, count).
    pub(crate) fn of(&self, space: &Space) -> impl Iterator<Item = (u16, u16)> + '_ {
        let first = self.at(space.io_ports.get());
        core::iter::successors(first, |range| self.at(range.next.get()))
            .map(|range| (range.first.get(), range.count.get()))
    }

    /// Whether a space has one of these ports.
    pub(crate) fn has_any(&self, first: u64, count: u64) -> bool {
        self.ranges.iter().any(|range| {
            let (f, n) = (u64::from(range.first.get()), u64::from(range.count.get()));
            n != 0 && f < first + count && first < f + n
        })
    }

    /// Grants a space `count` ports from `first` on, which no space has; `count` is not 0. Returns false if the table
    /// or the space has no room for one more range.
    pub(crate) fn grant(&self, space: &Space, first: u16, count: u16) -> bool {
        let free = self.ranges.iter().position(|range| range.count.get() == 0);
        let Some(index) = free.filter(|_| self.of(space).count() < MAX_PORTS) else {
            return false;
        };
        let range = &self.ranges[index];
        range.first.set(first);
        range.count.set(count);
        core(|| range.next.set(space.io_ports.replace(index as Number + 1)));
        true
    }

    /// Takes a range from a space. Returns false if the space has no range with exactly these ports.
    pub(crate) fn revoke(&self, space: &Space, first: u64, count: u64) -> bool {
        let mut link = &space.io_ports;
        while let Some(range) = self.at(link.get()) {
            if (u64::from(range.first.get()), u64::from(range.count.get())) == (first, count) {
                core(|| {
                    range.count.set(0);
                    link.set(range.next.get());
                });
                return true;
            }
            link = &range.next;
        }
        false
    }

    /// The number of granted ranges.
    #[cfg(any(test, fermata_probe))]
    pub(crate) fn count(&self) -> usize {
        self.ranges.iter().filter(|r| r.count.get() != 0).count()
    }

    /// Takes all ranges from a space that ends.
    pub(crate) fn revoke_all(&self, space: &Space) {
        while let Some(range) = self.at(space.io_ports.get()) {
            core(|| {
                range.count.set(0);
                space.io_ports.set(range.next.get());
            });
        }
    }
}
