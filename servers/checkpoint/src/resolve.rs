//! Names for the references that saved objects hold.
//!
//! A reference means something only in its own boot. [`Known`] collects a reference to everything that an image can
//! name, with the name; [`Known::name`] compares a reference that was found with them. Comparing is a kernel call, so
//! the user of this module supplies it ([`Compare`]).

use crate::meta::Target;
use abi::RefKind;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// Operations on references.
pub trait Compare {
    /// A reference.
    type Ref;
    /// What it names; `Null` also when that is dead.
    fn kind(&self, reference: &Self::Ref) -> RefKind;
    /// Whether both name the same thing in the same role.
    fn equal(&self, a: &Self::Ref, b: &Self::Ref) -> bool;
}

impl<C: Compare> Compare for &C {
    type Ref = C::Ref;

    fn kind(&self, reference: &C::Ref) -> RefKind {
        (**self).kind(reference)
    }

    fn equal(&self, a: &C::Ref, b: &C::Ref) -> bool {
        (**self).equal(a, b)
    }
}

/// After so many comparisons waiting threads may run. How many a reference needs depends on the process that is saved.
pub const AT_A_TIME: u32 = 1000;

/// Compares with another [`Compare`], and lets others run after every [`AT_A_TIME`] comparisons.
pub struct Paced<C, F> {
    compare: C,
    pause: F,
    compared: Cell<u32>,
}

impl<C, F: Fn()> Paced<C, F> {
    /// Compares as `compare` does; `pause` lets others run.
    pub const fn new(compare: C, pause: F) -> Self {
        Paced {
            compare,
            pause,
            compared: Cell::new(0),
        }
    }
}

impl<C: Compare, F: Fn()> Compare for Paced<C, F> {
    type Ref = C::Ref;

    fn kind(&self, reference: &C::Ref) -> RefKind {
        self.compare.kind(reference)
    }

    fn equal(&self, a: &C::Ref, b: &C::Ref) -> bool {
        let compared = self.compared.get() + 1;
        self.compared.set(compared % AT_A_TIME);
        if compared == AT_A_TIME {
            (self.pause)();
        }
        self.compare.equal(a, b)
    }
}

/// The things that an image can name.
pub struct Known<R> {
    /// By kind.
    kinds: Vec<Entries<R>>,
}

/// What is known of one kind, in the order in which it became known.
struct Entries<R> {
    all: Vec<(R, Target)>,
    /// Numbers of the entries that were found last, the latest first. Objects mostly refer to the same things as those
    /// before them, or to the next thing in order, so that a few comparisons suffice.
    latest: RefCell<VecDeque<usize>>,
    /// The entry behind the one that was last found by a search.
    next: Cell<usize>,
}

/// How many of the latest entries are tried first.
const LATEST: usize = 8;

impl<R> Default for Known<R> {
    fn default() -> Self {
        Self { kinds: Vec::new() }
    }
}

impl<R> Default for Entries<R> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            latest: RefCell::default(),
            next: Cell::new(0),
        }
    }
}

impl<R> Known<R> {
    /// Adds `target` as the name of the thing that `reference` names. The first name wins. Objects and ends of threads
    /// of the set must be added before all others, and each only once.
    pub fn add<C: Compare<Ref = R>>(&mut self, compare: &C, reference: R, target: Target) {
        let kind = compare.kind(&reference);
        if kind != RefKind::Null {
            if self.kinds.len() <= kind as usize {
                self.kinds.resize_with(kind as usize + 1, Entries::default);
            }
            self.kinds[kind as usize].all.push((reference, target));
        }
    }

    /// The name of what `reference` names, or its kind if an image cannot name it.
    pub fn name<C: Compare<Ref = R>>(&self, compare: &C, reference: &R) -> Result<Target, RefKind> {
        let kind = compare.kind(reference);
        if kind == RefKind::Null {
            return Ok(Target::Null);
        }
        let entries = self.kinds.get(kind as usize).ok_or(kind)?;
        let is_it = |n: usize| compare.equal(&entries.all[n].0, reference);
        let found = entries.find(is_it).ok_or(kind)?;
        Ok(entries.all[found].1.clone())
    }
}

impl<R> Entries<R> {
    /// The first entry for which `is_it` holds.
    fn find(&self, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mut latest = self.latest.borrow_mut();
        // An entry that was found has no other entry for the same thing before it.
        let again = latest.iter().position(|n| is_it(*n));
        let found = match again.and_then(|place| latest.remove(place)) {
            Some(found) => found,
            None => {
                let next = self.next.get();
                let is_own = |n: usize| {
                    let target = self.all.get(n).map(|(_, target)| target);
                    use Target::{ClientEnd, Object, ServerEnd};
                    matches!(target, Some(Object(_) | ClientEnd(_) | ServerEnd(_)))
                };
                let found = match is_own(next) && is_it(next) {
                    true => next,
                    false => (0..self.all.len()).find(|n| is_it(*n))?,
                };
                self.next.set(found + 1);
                found
            }
        };
        latest.push_front(found);
        latest.truncate(LATEST);
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// References are pairs of a kind and a number.
    struct Pairs;

    impl Compare for Pairs {
        type Ref = (RefKind, u32);
        fn kind(&self, reference: &Self::Ref) -> RefKind {
            reference.0
        }
        fn equal(&self, a: &Self::Ref, b: &Self::Ref) -> bool {
            a == b
        }
    }

    #[test]
    fn references_get_their_names() {
        let mut known = Known::default();
        known.add(&Pairs, (RefKind::Port, 1), Target::Outside("fs".into()));
        known.add(&Pairs, (RefKind::Port, 2), Target::Object(5));
        known.add(&Pairs, (RefKind::Port, 2), Target::Manager(0));
        known.add(&Pairs, (RefKind::Thread, 1), Target::Object(6));
        known.add(&Pairs, (RefKind::ClientEnd, 1), Target::ClientEnd(6));
        known.add(&Pairs, (RefKind::Null, 0), Target::Object(7));
        let name = |reference| known.name(&Pairs, &reference);
        assert_eq!(name((RefKind::Port, 1)), Ok(Target::Outside("fs".into())));
        assert_eq!(name((RefKind::Port, 2)), Ok(Target::Object(5)));
        assert_eq!(name((RefKind::Thread, 1)), Ok(Target::Object(6)));
        assert_eq!(name((RefKind::ClientEnd, 1)), Ok(Target::ClientEnd(6)));
        assert_eq!(name((RefKind::Null, 9)), Ok(Target::Null));
        assert_eq!(name((RefKind::ServerEnd, 1)), Err(RefKind::ServerEnd));
        assert_eq!(name((RefKind::Port, 3)), Err(RefKind::Port));
    }

    /// Counts comparisons.
    struct Counted(Cell<u32>);

    impl Compare for Counted {
        type Ref = u32;
        fn kind(&self, _: &u32) -> RefKind {
            RefKind::Port
        }
        fn equal(&self, a: &u32, b: &u32) -> bool {
            self.0.set(self.0.get() + 1);
            a == b
        }
    }

    /// Whatever was found before, the first name wins; and references to the same thing as before, or in order, take
    /// few comparisons.
    #[test]
    fn what_was_found_before_is_found_at_once() {
        const MANY: u32 = 1000;
        let counted = Counted(Cell::new(0));
        let mut known = Known::default();
        for n in 0..MANY {
            known.add(&counted, n, Target::Object(n));
        }
        for n in (0..MANY + 3).rev() {
            known.add(&counted, n, Target::Manager(n));
        }
        let name = |n| known.name(&counted, &n);
        let expected = |n| match n < MANY {
            true => Ok(Target::Object(n)),
            false => Ok(Target::Manager(n)),
        };
        for n in 0..MANY {
            // One thing that all refer to, and one that only this object refers to.
            assert_eq!((name(7), name(n)), (expected(7), expected(n)));
        }
        let most = (2 * LATEST as u32 + 3) * MANY;
        assert!(counted.0.get() < most, "{} comparisons", counted.0.get());
        let mut random = 1u32;
        for _ in 0..1000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let n = (random >> 8) % (MANY + 3);
            assert_eq!(name(n), expected(n));
        }
        assert_eq!(name(MANY + 3), Err(RefKind::Port));
        for n in 0..=LATEST as u32 {
            assert_eq!(name(n), expected(n));
        }
        // The next entry there is the other name of an object.
        assert_eq!(name(MANY), expected(MANY));
        assert_eq!(name(MANY - 1), expected(MANY - 1), "the first name");
    }

    /// Each of many objects refers to one anywhere among them: on average two such searches take as many comparisons as
    /// there are objects.
    #[test]
    fn others_run_by_comparisons_and_not_by_objects() {
        const MANY: u32 = 5000;
        let counted = Counted(Cell::new(0));
        let (paused, longest, last) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let mut known = Known::default();
        for n in 0..MANY {
            known.add(&counted, n, Target::Object(n));
        }
        let paced = Paced::new(&counted, || {
            let now = counted.0.get();
            paused.set(paused.get() + 1);
            longest.set(longest.get().max(now - last.replace(now)));
        });
        for n in 0..MANY / 10 {
            let n = n * 3571 % MANY;
            assert_eq!(known.name(&paced, &n), Ok(Target::Object(n)));
        }
        let all = counted.0.get();
        assert!(all > 100 * AT_A_TIME, "{all} comparisons are few");
        assert_eq!(paused.get(), all / AT_A_TIME);
        assert!(
            longest.get() <= AT_A_TIME,
            "S2: {} at a time",
            longest.get()
        );
    }
}
