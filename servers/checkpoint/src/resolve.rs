//! Names for the references that saved objects hold.
//!
//! A reference means something only in its own boot. [`Known`] collects a reference to everything
//! that an image can name, with the name; [`Known::name`] compares a reference that was found with
//! them. Comparing is a kernel call, so whoever uses this brings it along ([`Compare`]).

use crate::meta::Target;
use abi::RefKind;
use alloc::vec::Vec;

/// What is asked about references.
pub trait Compare {
    /// A reference.
    type Ref;
    /// What it names; `Null` also when that is dead.
    fn kind(&self, reference: &Self::Ref) -> RefKind;
    /// Whether both name the same thing in the same role.
    fn equal(&self, a: &Self::Ref, b: &Self::Ref) -> bool;
}

/// What an image can name.
pub struct Known<R> {
    entries: Vec<(RefKind, R, Target)>,
}

impl<R> Default for Known<R> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
        }
    }
}

impl<R> Known<R> {
    /// Makes the thing that `reference` names known as `target`. The first name wins.
    pub fn add<C: Compare<Ref = R>>(&mut self, compare: &C, reference: R, target: Target) {
        let kind = compare.kind(&reference);
        if kind != RefKind::Null {
            self.entries.push((kind, reference, target));
        }
    }

    /// The name of what `reference` names, or its kind if that is nothing that an image can name.
    pub fn name<C: Compare<Ref = R>>(&self, compare: &C, reference: &R) -> Result<Target, RefKind> {
        let kind = compare.kind(reference);
        if kind == RefKind::Null {
            return Ok(Target::Null);
        }
        self.entries
            .iter()
            .filter(|(known, _, _)| *known == kind)
            .find(|(_, known, _)| compare.equal(known, reference))
            .map(|(_, _, target)| target.clone())
            .ok_or(kind)
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
}
