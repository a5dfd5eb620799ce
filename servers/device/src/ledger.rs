//! Which driver has which resource: none belongs to two drivers. Functions that can share an interrupt line have a part
//! of it each.

use crate::refusal::{Refusal, Thing};
use crate::Driver;
use alloc::vec::Vec;

/// Most things that one driver has at a time.
pub const MOST: usize = 256;

/// The resources of each driver. No part of anything belongs to two drivers.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Vec<(Driver, Thing)>,
}

/// Whether two things overlap.
fn overlap(a: Thing, b: Thing) -> bool {
    let ranges =
        |(a, n): (u64, u64), (b, m): (u64, u64)| a < b.saturating_add(m) && b < a.saturating_add(n);
    match (a, b) {
        (Thing::Line(a), Thing::Line(b)) => a == b,
        (Thing::Line(a), Thing::Level { line, .. })
        | (Thing::Level { line, .. }, Thing::Line(a)) => a == line,
        (
            Thing::Level {
                line: a,
                function: f,
                shares: can,
            },
            Thing::Level {
                line: b,
                function: g,
                shares: other_can,
            },
        ) => a == b && (f == g || !can || !other_can),
        (Thing::Function(a), Thing::Function(b)) => a == b,
        (Thing::Channel(a), Thing::Channel(b)) => a == b,
        (Thing::Ports(a, n), Thing::Ports(b, m)) | (Thing::Memory(a, n), Thing::Memory(b, m)) => {
            ranges((a, n), (b, m))
        }
        _ => false,
    }
}

/// The function that cannot share its interrupt line, because of which two parts of the line conflict.
fn unshared(taken: Thing, wanted: Thing) -> Option<u16> {
    let cannot = |thing| match thing {
        Thing::Level {
            function,
            shares: false,
            ..
        } => Some(function),
        _ => None,
    };
    match (taken, wanted) {
        (Thing::Level { .. }, Thing::Level { .. }) => cannot(wanted).or(cannot(taken)),
        _ => None,
    }
}

impl Ledger {
    /// A ledger in which no driver has anything.
    #[must_use]
    pub const fn new() -> Self {
        Ledger {
            entries: Vec::new(),
        }
    }

    /// Notes that a driver has something. `name` returns the name of a driver.
    pub fn take<'a>(
        &mut self,
        driver: Driver,
        thing: Thing,
        name: impl Fn(Driver) -> &'a str,
    ) -> Result<(), Refusal> {
        if let Some(&(owner, taken)) = self.entries.iter().find(|(_, t)| overlap(*t, thing)) {
            return Err(match (owner == driver, unshared(taken, thing)) {
                (true, _) => Refusal::Twice(thing),
                (false, Some(function)) => Refusal::Unshared(thing, name(owner).into(), function),
                (false, None) => Refusal::Taken(thing, name(owner).into()),
            });
        }
        if self.of(driver).count() >= MOST {
            return Err(Refusal::Nonsense("a driver has at most 256 things"));
        }
        self.entries.push((driver, thing));
        Ok(())
    }

    /// Whether a driver has exactly this resource.
    #[must_use]
    pub fn has(&self, driver: Driver, thing: Thing) -> bool {
        self.entries.contains(&(driver, thing))
    }

    /// Removes a resource from a driver.
    pub fn give(&mut self, driver: Driver, thing: Thing) -> Result<(), Refusal> {
        let place = self.entries.iter().position(|e| *e == (driver, thing));
        let place = place.ok_or(Refusal::NotYours(thing))?;
        self.entries.swap_remove(place);
        Ok(())
    }

    /// The resources of a driver.
    pub fn of(&self, driver: Driver) -> impl Iterator<Item = Thing> + '_ {
        let own = self.entries.iter().filter(move |e| e.0 == driver);
        own.map(|e| e.1)
    }

    /// The holders of this interrupt line, or of parts of it: the driver, and the function of the part.
    pub fn on_line(&self, line: u8) -> impl Iterator<Item = (Driver, Option<u16>)> + '_ {
        self.entries.iter().filter_map(move |e| match e.1 {
            Thing::Line(own) if own == line => Some((e.0, None)),
            Thing::Level {
                line: own,
                function,
                ..
            } if own == line => Some((e.0, Some(function))),
            _ => None,
        })
    }

    /// The driver that has this function.
    #[must_use]
    pub fn owner(&self, function: u16) -> Option<Driver> {
        let mut all = self.entries.iter();
        all.find(|e| e.1 == Thing::Function(function)).map(|e| e.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, MOST};
    use crate::refusal::{Refusal, Thing};
    use alloc::string::ToString;
    use alloc::vec::Vec;

    const NAMES: [&str; 2] = ["console", "disk"];

    /// A test per kind: a resource of one driver, or a part of it, is refused to another, with a sentence; it is free
    /// after it was given back.
    fn is_one_drivers(thing: Thing, parts: &[Thing], others: &[Thing], sentence: &str) {
        let name = |driver: usize| NAMES[driver];
        let mut ledger = Ledger::new();
        assert_eq!(ledger.take(0, thing, name), Ok(()));
        for part in parts.iter().chain([&thing]) {
            let refused = ledger.take(1, *part, name);
            let refused = refused.expect_err("S2: two drivers have a part of the same thing");
            assert_eq!(refused, Refusal::Taken(*part, "console".to_string()));
            assert_eq!(refused.error(), proto::Error::Exists);
            assert_eq!(ledger.take(0, *part, name), Err(Refusal::Twice(*part)));
        }
        assert_eq!(
            ledger.take(1, thing, name).unwrap_err().to_string(),
            sentence
        );
        for other in others {
            assert_eq!(ledger.take(1, *other, name), Ok(()), "{other:?}");
        }
        assert_eq!(ledger.give(1, thing), Err(Refusal::NotYours(thing)));
        assert_eq!(ledger.give(0, thing), Ok(()));
        assert_eq!(ledger.take(1, thing, name), Ok(()));
        assert!(ledger.has(1, thing) && !ledger.has(0, thing));
    }

    #[test]
    fn a_line() {
        let sentence = "console has interrupt line 4, or a part";
        is_one_drivers(Thing::Line(4), &[], &[Thing::Line(5)], sentence);
    }

    const fn level(line: u8, function: u16, shares: bool) -> Thing {
        Thing::Level {
            line,
            function,
            shares,
        }
    }

    #[test]
    fn who_is_on_a_line_and_has_a_function() {
        let name = |driver: usize| NAMES[driver];
        let mut ledger = Ledger::new();
        for (driver, thing) in [
            (0, Thing::Line(4)),
            (0, level(10, 0x10, true)),
            (1, level(10, 0x18, true)),
            (1, Thing::Function(0x18)),
        ] {
            assert_eq!(ledger.take(driver, thing, name), Ok(()));
        }
        let on = |line| ledger.on_line(line).collect::<Vec<_>>();
        assert_eq!(on(4), [(0, None)]);
        assert_eq!(on(10), [(0, Some(0x10)), (1, Some(0x18))]);
        assert_eq!(on(11), []);
        assert_eq!((ledger.owner(0x18), ledger.owner(0x10)), (Some(1), None));
    }

    #[test]
    fn the_line_of_a_function_that_cannot_share() {
        let name = |driver: usize| NAMES[driver];
        let (old, new) = (level(10, 0x10, false), level(10, 0x18, true));
        for (first, second) in [(old, new), (new, old)] {
            let mut ledger = Ledger::new();
            assert_eq!(ledger.take(0, first, name), Ok(()));
            let refused = ledger.take(1, second, name).unwrap_err();
            let sentence = "console has interrupt line 10, and the PCI function 00:02.0 cannot share it: it does not say whether it interrupts";
            assert_eq!(refused.to_string(), sentence);
            assert_eq!(refused.error(), proto::Error::Exists);
            assert_eq!(ledger.take(0, second, name), Err(Refusal::Twice(second)));
            let other_line = level(11, 0x18, false);
            assert_eq!(ledger.take(1, other_line, name), Ok(()));
            assert_eq!(ledger.give(0, first), Ok(()));
            assert_eq!(ledger.take(1, second, name), Ok(()));
        }
    }

    #[test]
    fn functions_that_can_share_a_line_have_a_part_of_it_each() {
        let name = |driver: usize| NAMES[driver];
        let mut ledger = Ledger::new();
        let (first, second) = (level(10, 0x10, true), level(10, 0x18, true));
        assert_eq!(ledger.take(0, first, name), Ok(()));
        assert_eq!(ledger.take(1, second, name), Ok(()));
        assert_eq!(ledger.take(0, level(10, 0x20, true), name), Ok(()));
        assert_eq!(
            ledger.take(1, second, name),
            Err(Refusal::Twice(second)),
            "the same function twice"
        );
        // Nobody can get the whole line, and a function that cannot share is refused.
        let whole = ledger.take(1, Thing::Line(10), name).unwrap_err();
        let sentence = "console has interrupt line 10, or a part";
        assert_eq!(whole.to_string(), sentence);
        let late = level(10, 0x28, false);
        let refused = ledger.take(1, late, name).unwrap_err();
        let by = "console".to_string();
        assert_eq!(refused, Refusal::Unshared(late, by, 0x28));
        assert_eq!(refused.error(), proto::Error::Exists);
        // Each gives back its own part.
        assert_eq!(ledger.give(1, first), Err(Refusal::NotYours(first)));
        assert_eq!(ledger.give(0, first), Ok(()));
        assert!(ledger.has(1, second));
    }

    #[test]
    fn ports() {
        is_one_drivers(
            Thing::Ports(0x3f8, 8),
            &[
                Thing::Ports(0x3ff, 1),
                Thing::Ports(0, 0x1000),
                Thing::Ports(0x3f0, 9),
            ],
            &[
                Thing::Ports(0x3f0, 8),
                Thing::Ports(0x400, 1),
                Thing::Memory(0x3f8, 8),
            ],
            "console has the I/O ports 0x3f8 to 0x3ff, or a part",
        );
    }

    #[test]
    fn memory() {
        is_one_drivers(
            Thing::Memory(0xb_8000, 0x8000),
            &[Thing::Memory(0xb_f000, 0x1000), Thing::Memory(0, u64::MAX)],
            &[Thing::Memory(0xc_0000, 0x1000)],
            "console has the physical memory 0xb8000 to 0xbffff, or a part",
        );
    }

    #[test]
    fn a_function() {
        let sentence = "console has the PCI function 00:03.1, or a part";
        is_one_drivers(
            Thing::Function(0x19),
            &[],
            &[Thing::Function(0x18)],
            sentence,
        );
    }

    #[test]
    fn a_channel() {
        is_one_drivers(
            Thing::Channel(1),
            &[],
            &[Thing::Channel(5), Thing::Line(1), Thing::Ports(0, 0x10)],
            "console has the ISA DMA channel 1, or a part",
        );
    }

    #[test]
    fn a_driver_has_so_much_and_no_more() {
        let mut ledger = Ledger::new();
        let mut take = |n: usize| ledger.take(0, Thing::Ports(n as u64, 1), |_| "");
        assert!((0..MOST).all(|n| take(n).is_ok()));
        assert_eq!(take(MOST).unwrap_err().error(), proto::Error::Invalid);
    }
}
