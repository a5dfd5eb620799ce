//! Keeper numbers: the space of each memory has a keeper of its own, whose number tells the memory's exceptions from
//! others.

use proto::Error;

/// The bit of a port's alias that marks a keeper; the bits below are its number.
const KEEPER: u64 = 1 << 62;

/// The numbers given out so far. None is given out twice, however many memories come and go.
#[derive(Debug, Default)]
pub struct Keepers {
    last: u64,
}

impl Keepers {
    /// Numbers up to `last` are in use.
    #[must_use]
    pub const fn after(last: u64) -> Self {
        Keepers { last }
    }

    /// A number that was never given out. Errors: `Limit` when all have been.
    pub fn another(&mut self) -> Result<u64, Error> {
        let next = self.last.checked_add(1).filter(|number| *number < KEEPER);
        self.last = next.ok_or(Error::Limit)?;
        Ok(self.last)
    }
}

/// The alias of the port of the keeper with this number.
#[must_use]
pub const fn alias_of(number: u64) -> u64 {
    KEEPER | number
}

/// The number of the keeper whose port has this alias; `None` for other ports.
#[must_use]
#[inline]
pub const fn number_of(alias: u64) -> Option<u64> {
    match alias & KEEPER {
        0 => None,
        _ => Some(alias & !KEEPER),
    }
}

#[cfg(test)]
mod tests {
    use super::{alias_of, number_of, Keepers};
    use alloc::collections::BTreeSet;
    use proto::Error;

    /// Programs that start and end for days use up 32-bit numbers.
    #[test]
    fn no_two_keepers_have_one_number() {
        let old = [1, 2, u64::from(u32::MAX)];
        let mut keepers = Keepers::after(u64::from(u32::MAX));
        let mut numbers = BTreeSet::from(old);
        let mut aliases = BTreeSet::from(old.map(alias_of));
        for _ in 0..1000 {
            let next = keepers.another();
            let rule = "S1: a memory can be made after 2^32 others";
            assert!(next.is_ok(), "{rule}");
            let number = next.unwrap_or(0);
            let rule = "S2: two keepers have one number";
            assert!(numbers.insert(number), "{rule}: {number}");
            assert!(aliases.insert(alias_of(number)), "{rule}: {number}");
            assert_eq!(number_of(alias_of(number)), Some(number), "{rule}");
        }
        // Control ports of processes and the supervisor port have lower aliases.
        for alias in [0, 1 << 32, (1 << 33) - 1, 1 << 34] {
            assert_eq!(number_of(alias), None);
            assert!(!aliases.contains(&alias));
        }
        // A server may choose aliases below bit 63 only.
        assert!(aliases.iter().all(|alias| alias >> 63 == 0));
    }

    #[test]
    fn the_last_number_is_the_last() {
        let mut keepers = Keepers::after((1 << 62) - 2);
        assert_eq!(keepers.another(), Ok((1 << 62) - 1));
        for _ in 0..2 {
            assert_eq!(keepers.another(), Err(Error::Limit), "S1: there is none");
        }
        assert_eq!(Keepers::after(u64::MAX).another(), Err(Error::Limit));
    }
}
