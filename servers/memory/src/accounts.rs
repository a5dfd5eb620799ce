//! Memory accounts: how much each client may take.
//!
//! Every segment belongs to an account, and every chunk to the account of the segments that show it (copies stay in the
//! account of what they copy). An account is *promised* a number of chunks, which nobody else can take, and may take
//! more, up to its *limit*, of those that are promised to nobody. The invariant: the free chunks suffice for all chunks
//! that are promised and not yet taken. A part of the memory, the *spare*, is kept for new promises, so that programs
//! can be started even if others have taken everything else.
//!
//! Pure bookkeeping in chunks; [`crate::segments`] asks it before every chunk that it takes.
use alloc::vec::Vec;
use proto::Error;

/// Names an account of an [`Accounts`].
pub type Id = usize;

/// Most accounts.
pub const MAX_ACCOUNTS: usize = 256;

/// What an account may have. Counts of chunks, but for `segments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Chunks that it can always take, whatever others do.
    pub promised: usize,
    /// Most places for chunks in its segments: a chunk that two of its segments share counts twice.
    pub most: usize,
    /// Most segments.
    pub segments: usize,
}

/// What an account has.
#[derive(Clone, Debug)]
pub struct Account {
    limits: Limits,
    /// Chunks in all up to which it has reserved memory.
    reserved: usize,
    /// Chunks that it has taken.
    pub(crate) chunks: usize,
    /// Chunks that its segments owe ([`crate::segments`]): promised to it, and to nothing else that it takes.
    pub(crate) owed: usize,
    /// Places in its segments that have a chunk.
    pub(crate) runs: usize,
    /// Its segments, including those that have ended and are still being taken apart.
    pub(crate) segments: usize,
    /// It has been ended, and is removed when its last segment has gone.
    ended: bool,
}

impl Account {
    /// Chunks that it is promised and has not taken: none when it has ended, since they may be promised to others by
    /// then.
    fn open(&self) -> usize {
        if self.ended {
            0
        } else {
            self.open_to_all() + self.owed
        }
    }

    /// Those of them that are not reserved for owed chunks.
    fn open_to_all(&self) -> usize {
        if self.ended {
            return 0;
        }
        let promised = self.limits.promised.max(self.reserved);
        promised.saturating_sub(self.chunks + self.owed)
    }
}

/// All accounts.
#[derive(Debug, Default)]
pub struct Accounts {
    accounts: Vec<Option<Account>>,
    /// Sum over all accounts of the chunks that are promised and not taken.
    open: usize,
    spare: usize,
}

impl Accounts {
    /// No accounts yet; `spare` chunks are kept for new promises.
    #[must_use]
    pub const fn new(spare: usize) -> Self {
        Accounts {
            accounts: Vec::new(),
            open: 0,
            spare,
        }
    }

    /// A new account, if `free` chunks suffice for its promise.
    pub fn create(&mut self, limits: Limits, free: usize) -> Result<Id, Error> {
        let id = self
            .accounts
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.accounts.len());
        let room = free.saturating_sub(self.open);
        if id >= MAX_ACCOUNTS || limits.promised > room {
            return Err(Error::NoMemory);
        }
        if limits.promised > limits.most {
            return Err(Error::Invalid);
        }
        let account = Account {
            limits,
            reserved: 0,
            chunks: 0,
            owed: 0,
            runs: 0,
            segments: 0,
            ended: false,
        };
        self.open += limits.promised;
        match self.accounts.get_mut(id) {
            Some(place) => *place = Some(account),
            None => self.accounts.push(Some(account)),
        }
        Ok(id)
    }

    /// What an account has.
    #[must_use]
    pub fn get(&self, id: Id) -> Option<&Account> {
        self.accounts.get(id).and_then(Option::as_ref)
    }

    /// Changes what an account has, and keeps the sum of open promises.
    pub(crate) fn change(&mut self, id: Id, change: impl FnOnce(&mut Account)) {
        if let Some(account) = self.accounts.get_mut(id).and_then(Option::as_mut) {
            self.open -= account.open();
            change(account);
            self.open += account.open();
        }
        self.forget(id);
    }

    /// Removes the account if it has ended and has nothing.
    fn forget(&mut self, id: Id) {
        if let Some(place) = self.accounts.get_mut(id) {
            if place.as_ref().is_some_and(|a| a.ended && a.segments == 0) {
                *place = None;
            }
        }
    }

    /// Ends an account: its promise ends, and it is removed with its last segment.
    pub fn end(&mut self, id: Id) {
        self.change(id, |account| account.ended = true);
    }

    /// How many more chunks an account may take when `free` are free.
    #[must_use]
    pub fn room(&self, id: Id, free: usize) -> usize {
        let Some(account) = self.get(id) else {
            return 0;
        };
        let common = free.saturating_sub(self.open).saturating_sub(self.spare);
        (account.open_to_all() + common)
            .min(
                account
                    .limits
                    .most
                    .saturating_sub(account.runs + account.owed),
            )
            .min(free)
    }

    /// Promises an account `chunks` beyond those that it has, if it could take them now, of `free` ones. This replaces
    /// an earlier reservation.
    pub fn reserve(&mut self, id: Id, chunks: usize, free: usize) -> Result<(), Error> {
        if chunks > self.room(id, free) {
            return Err(Error::NoMemory);
        }
        self.change(id, |account| {
            account.reserved = account.chunks + account.owed + chunks;
        });
        Ok(())
    }

    /// Promises an account `chunks` that its segments owe from now on, if it could take them now, of `free` ones.
    pub(crate) fn owe(&mut self, id: Id, chunks: usize, free: usize) -> Result<(), Error> {
        if chunks > self.room(id, free) {
            return Err(Error::NoMemory);
        }
        self.change(id, |account| account.owed += chunks);
        Ok(())
    }

    /// Whether an account may have one more place for a chunk that it has already.
    #[must_use]
    pub fn may_share(&self, id: Id) -> bool {
        self.get(id)
            .is_some_and(|a| a.runs + a.owed < a.limits.most)
    }

    /// Whether an account may have one more segment.
    #[must_use]
    pub fn may_have_segment(&self, id: Id) -> bool {
        self.get(id)
            .is_some_and(|a| !a.ended && a.segments < a.limits.segments)
    }

    /// Sum of the chunks that are promised and not taken.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Number of accounts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.accounts.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::{Accounts, Limits, MAX_ACCOUNTS};
    use proto::Error;

    fn limits(promised: usize, most: usize) -> Limits {
        Limits {
            promised,
            most,
            segments: 2,
        }
    }

    fn take(accounts: &mut Accounts, id: usize, chunks: usize) {
        accounts.change(id, |a| {
            a.chunks += chunks;
            a.runs += chunks;
        });
    }

    #[test]
    fn what_is_promised_is_there() {
        let mut accounts = Accounts::new(10);
        let a = accounts.create(limits(20, 80), 100).unwrap();
        let b = accounts.create(limits(5, 1000), 100).unwrap();
        // All except the other account's promise and the spare.
        assert_eq!(accounts.room(b, 100), 100 - 20 - 10);
        assert_eq!(accounts.room(a, 100), 80);
        take(&mut accounts, b, 70);
        assert_eq!(accounts.room(b, 30), 0);
        assert_eq!(accounts.room(a, 30), 20);
        // The spare is for new promises.
        let c = accounts.create(limits(10, 10), 30).unwrap();
        assert_eq!(accounts.create(limits(1, 10), 30), Err(Error::NoMemory));
        take(&mut accounts, c, 10);
        take(&mut accounts, a, 20);
        assert_eq!((accounts.open(), accounts.room(a, 0)), (0, 0));
    }

    /// The limit holds however much is free, and whatever is promised to others.
    #[test]
    fn an_account_takes_no_more_than_its_limit() {
        let mut accounts = Accounts::new(10);
        let a = accounts.create(limits(0, 30), 1000).unwrap();
        let b = accounts.create(limits(50, 100), 1000).unwrap();
        assert_eq!(accounts.room(a, 1000), 30, "S2: the limit of an account");
        take(&mut accounts, a, 30);
        assert_eq!(accounts.room(a, 970), 0, "S2: the limit of an account");
        assert!(!accounts.may_share(a), "S2: the limit of an account");
        assert_eq!(accounts.room(b, 55), 50, "S2: what is promised is there");
        assert_eq!(accounts.room(a, 55), 0, "S2: what is promised to another");
    }

    #[test]
    fn what_is_reserved_is_there_and_no_more_than_could_be_taken() {
        let mut accounts = Accounts::new(10);
        let a = accounts.create(limits(5, 50), 100).unwrap();
        let b = accounts.create(limits(0, 1000), 100).unwrap();
        take(&mut accounts, a, 10);
        assert_eq!(
            accounts.reserve(a, 41, 90),
            Err(Error::NoMemory),
            "S2: the limit of an account"
        );
        assert_eq!(
            accounts.reserve(b, 81, 90),
            Err(Error::NoMemory),
            "S2: the spare"
        );
        assert_eq!(accounts.open(), 0, "a refusal changes something");
        accounts.reserve(a, 30, 90).unwrap();
        assert_eq!(
            accounts.room(b, 90),
            90 - 30 - 10,
            "S2: what is reserved is there"
        );
        take(&mut accounts, b, 50);
        take(&mut accounts, a, 20);
        assert_eq!(accounts.room(a, 20), 10, "S2: what is reserved is there");
        // Chunks that it gives back stay reserved for it, until it reserves less.
        accounts.change(a, |a| {
            a.chunks -= 25;
            a.runs -= 25;
        });
        assert_eq!((accounts.open(), accounts.room(b, 45)), (35, 0));
        accounts.reserve(a, 1, 45).unwrap();
        assert_eq!((accounts.open(), accounts.room(b, 45)), (1, 45 - 1 - 10));
        accounts.end(a);
        assert_eq!(accounts.open(), 0);
    }

    /// The account is kept for its last segment, and its promise is free for others meanwhile.
    #[test]
    fn an_account_that_has_ended_is_promised_nothing() {
        let mut accounts = Accounts::new(0);
        let a = accounts.create(limits(20, 80), 100).unwrap();
        accounts.change(a, |a| a.segments = 1);
        assert_eq!(accounts.room(a, 100), 80);
        accounts.end(a);
        let b = accounts.create(limits(100, 100), 100).unwrap();
        assert_eq!(
            accounts.room(a, 100),
            0,
            "S2: a promise that was given back is another's"
        );
        assert_eq!(accounts.room(b, 100), 100, "S2: what is promised is there");
    }

    #[test]
    fn an_account_ends_when_it_is_empty() {
        let mut accounts = Accounts::new(0);
        let a = accounts.create(limits(5, 5), 10).unwrap();
        accounts.change(a, |a| a.segments = 1);
        accounts.end(a);
        assert_eq!(accounts.open(), 0);
        assert!(!accounts.may_have_segment(a));
        assert!(accounts.get(a).is_some());
        accounts.change(a, |a| a.segments = 0);
        assert!(accounts.get(a).is_none());
        assert_eq!(accounts.create(limits(6, 5), 10), Err(Error::Invalid));
        for _ in 0..MAX_ACCOUNTS {
            accounts.create(limits(0, 5), 0).unwrap();
        }
        assert_eq!(accounts.create(limits(0, 5), 0), Err(Error::NoMemory));
        assert_eq!(accounts.count(), MAX_ACCOUNTS);
    }
}
