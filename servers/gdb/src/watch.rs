//! GDB's watchpoints, and whether an access has met one.
use crate::access::Access;
use abi::access::{READ, WRITE};
use abi::PAGE_SIZE;
use alloc::vec;
use alloc::vec::Vec;
use gdbstub::target::ext::breakpoints::WatchKind;

/// A watchpoint: a range of bytes that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The first byte.
    pub address: u64,
    /// How many bytes: at most a page.
    pub size: u64,
    /// The kind of access they are watched for.
    pub kind: WatchKind,
    /// The bytes as they were when the program was let run; empty if they could not be read.
    before: Vec<u8>,
}

impl Point {
    /// The watched kinds of access, as rights of [`abi::access`].
    #[must_use]
    pub const fn access(&self) -> u64 {
        match self.kind {
            WatchKind::Write => WRITE,
            WatchKind::Read => READ,
            WatchKind::ReadWrite => READ | WRITE,
        }
    }

    const fn meets(&self, address: u64, size: u64) -> bool {
        address < self.address + self.size && self.address < address.saturating_add(size)
    }

    /// Whether the range is watched for writes and its bytes have changed since the last such call, or since the
    /// program was let run.
    fn has_changed(&mut self, read: &mut impl FnMut(u64, &mut [u8]) -> bool) -> bool {
        if self.access() & WRITE == 0 || self.before.is_empty() {
            return false;
        }
        let mut now = vec![0; self.size as usize];
        let changed = read(self.address, &mut now) && now != self.before;
        if changed {
            self.before = now;
        }
        changed
    }
}

/// All watchpoints.
#[derive(Debug, Default)]
pub struct Points(Vec<Point>);

impl Points {
    /// A watchpoint, if it is possible: `None` for no bytes, more than a page, or a range beyond the end of all
    /// addresses.
    #[must_use]
    pub fn point(address: u64, size: u64, kind: WatchKind) -> Option<Point> {
        let fits = (1..=PAGE_SIZE).contains(&size) && address.checked_add(size).is_some();
        fits.then_some(Point {
            address,
            size,
            kind,
            before: Vec::new(),
        })
    }

    /// Adds a watchpoint, which replaces an equal one.
    pub fn add(&mut self, point: Point) {
        self.remove(&point);
        self.0.push(point);
    }

    /// Removes a watchpoint.
    pub fn remove(&mut self, point: &Point) {
        let same =
            |p: &Point| (p.address, p.size, p.kind) == (point.address, point.size, point.kind);
        self.0.retain(|other| !same(other));
    }

    /// Removes all watchpoints.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there are no watchpoints.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something in the page of this address is watched.
    #[must_use]
    pub fn has_page(&self, address: u64) -> bool {
        let page = address & !(PAGE_SIZE - 1);
        self.0.iter().any(|point| point.meets(page, PAGE_SIZE))
    }

    /// Keeps the present bytes of all watched ranges. `read` returns whether it could read them.
    pub fn note(&mut self, mut read: impl FnMut(u64, &mut [u8]) -> bool) {
        for point in &mut self.0 {
            let mut now = vec![0; point.size as usize];
            point.before = match read(point.address, &mut now) {
                true => now,
                false => Vec::new(),
            };
        }
    }

    /// Whether there is a watchpoint of this kind at this address.
    #[must_use]
    pub fn has(&self, address: u64, kind: WatchKind) -> bool {
        let mut points = self.0.iter();
        points.any(|point| (point.address, point.kind) == (address, kind))
    }

    /// The watchpoint that was met by an instruction or a call with these accesses, and perhaps others that are not
    /// known: one whose bytes have changed and that was accessed; else one whose bytes have changed; else one that was
    /// accessed as it is watched for. A change is reported once, so a concurrent call does not get it again.
    pub fn met(
        &mut self,
        accesses: &[Option<Access>],
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<&Point> {
        let is_there = |point: &Point| {
            let mut accesses = accesses.iter().flatten();
            accesses.any(|access| point.meets(access.address, access.operand.size))
        };
        let accessed = |point: &Point| {
            let met = |access: &Access| {
                let operand = access.operand;
                // A write that leaves the bytes as they are does not stop GDB's `watch`.
                point.access() & READ != 0
                    && point.access() & operand.access != 0
                    && point.meets(access.address, operand.size)
            };
            accesses.iter().flatten().any(met)
        };
        let mut points = self.0.iter_mut();
        let changed = points.position(|point| is_there(point) && point.has_changed(&mut read));
        let mut points = self.0.iter_mut();
        let changed = changed.or_else(|| points.position(|point| point.has_changed(&mut read)));
        let met = changed.or_else(|| self.0.iter().position(accessed));
        met.map(|at| &self.0[at])
    }
}

#[cfg(test)]
mod tests {
    use super::{Point, Points};
    use crate::access::{Access, Operand};
    use abi::access::{READ, WRITE};
    use abi::PAGE_SIZE;
    use gdbstub::target::ext::breakpoints::WatchKind;

    fn point(address: u64, size: u64, kind: WatchKind) -> Point {
        Points::point(address, size, kind).expect("a point")
    }

    fn access(address: u64, size: u64, access: u64) -> [Option<Access>; 1] {
        let operand = Operand { size, access };
        [Some(Access { address, operand })]
    }

    #[test]
    fn a_write_is_met_when_the_bytes_have_changed() {
        let mut points = Points::default();
        points.add(point(0x1008, 8, WatchKind::Write));
        let mut memory = [0; 64];
        let read = |memory: &[u8; 64], at: u64, into: &mut [u8]| {
            let from = (at - 0x1000) as usize;
            into.copy_from_slice(&memory[from..][..into.len()]);
            true
        };
        points.note(|at, into| read(&memory, at, into));
        let met = |points: &mut Points, memory: &[u8; 64], accesses: &[Option<Access>]| {
            let met = points.met(accesses, |at, into| read(memory, at, into));
            met.map(|point| point.address)
        };
        // The same page, the same value.
        memory[16] = 1;
        memory[7] = 1;
        assert_eq!(met(&mut points, &memory, &access(0x1000, 8, WRITE)), None);
        assert_eq!(met(&mut points, &memory, &access(0x1008, 8, WRITE)), None);
        memory[15] = 1;
        assert_eq!(met(&mut points, &memory, &[None]), Some(0x1008));
        assert_eq!(met(&mut points, &memory, &[None]), None, "told twice");
        // Bytes that could not be read have not changed.
        points.note(|_, _| false);
        memory[15] = 2;
        assert_eq!(met(&mut points, &memory, &[None]), None);
    }

    /// When several threads have written before the program was stopped, each is reported.
    #[test]
    fn each_is_told_of_what_it_has_changed() {
        let mut points = Points::default();
        points.add(point(0x1000, 8, WatchKind::Write));
        points.add(point(0x1008, 8, WatchKind::ReadWrite));
        points.note(|_, into| {
            into.fill(0);
            true
        });
        let mut met = |address| {
            let met = points.met(&access(address, 1, WRITE), |_, into| {
                into.fill(1);
                true
            });
            met.map(|point| point.address)
        };
        let rule = "who has written a word is told of that word";
        assert_eq!(
            (met(0x1008), met(0x1000)),
            (Some(0x1008), Some(0x1000)),
            "{rule}"
        );
        let rule = "a change is told once, an access each time";
        assert_eq!((met(0x1000), met(0x1008)), (None, Some(0x1008)), "{rule}");
        assert!(points.has(0x1008, WatchKind::ReadWrite) && !points.has(0x1008, WatchKind::Read));
    }

    #[test]
    fn a_read_is_met_when_it_is_of_these_bytes() {
        let mut points = Points::default();
        points.add(point(0x1008, 4, WatchKind::Read));
        points.add(point(0x1020, 1, WatchKind::ReadWrite));
        let mut met = |accesses: &[Option<Access>]| {
            let met = points.met(accesses, |_, _| false);
            met.map(|point| point.address)
        };
        assert_eq!(met(&access(0x1000, 8, READ)), None);
        assert_eq!(met(&access(0x1000, 9, READ)), Some(0x1008));
        assert_eq!(met(&access(0x100b, 1, READ)), Some(0x1008));
        assert_eq!(met(&access(0x100c, 1, READ)), None);
        assert_eq!(met(&access(0x1008, 4, WRITE)), None, "it was not read");
        assert_eq!(met(&access(0x1020, 4, WRITE)), Some(0x1020));
        assert_eq!(met(&access(0x1018, 16, READ)), Some(0x1020));
        assert_eq!(met(&[None]), None);
    }

    #[test]
    fn pages_are_known_until_nothing_is_watched_there() {
        let mut points = Points::default();
        let across = point(0x1ffc, 8, WatchKind::Write);
        points.add(across.clone());
        points.add(across.clone());
        points.add(point(0x2010, 1, WatchKind::Read));
        assert!(points.has_page(0x1000) && points.has_page(0x2fff));
        assert!(!points.has_page(0x3000) && !points.has_page(0xfff));
        points.remove(&across);
        assert!(!points.has_page(0x1000) && points.has_page(0x2000));
        points.clear();
        assert!(points.is_empty());
        for (at, size) in [(0, 0), (0, PAGE_SIZE + 1), (u64::MAX, 1)] {
            assert_eq!(Points::point(at, size, WatchKind::Write), None);
        }
    }
}
