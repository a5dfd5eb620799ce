//! Accounts: who pays for kernel memory.
//!
//! Every space has an account with a quota; objects that are created from the space are charged to it. The quota is
//! taken from the account that pays for this one: that of the space's creator, until `space_set_payer` or a move.
//! Objects that outlive the space stay charged to its account, which is then closed: its quota is what these objects
//! take, and its payer bears that.
//!
//! An account's parent pays for it as for an object. An account outlives its space as long as objects or accounts are
//! charged to it. So a program can build a long chain of accounts: it makes a space in a space, ends the outer one, and
//! repeats this. The chain is as long as its quota allows, and each change passes through the chain. That is why an
//! account costs more than its memory ([`COST`]).

use crate::Stop;
use crate::K;
use abi::Code;
use core::cell::Cell;
use hal::NarrowCell;

/// An account. Slots are reused through a free list and never change their type.
pub(crate) struct Account {
    parent: NarrowCell<Account>,
    quota: Cell<u64>,
    /// The costs of the objects charged here, and of child accounts with their quotas.
    used: Cell<u64>,
    /// The space has ended. From then on the quota is always equal to `used`.
    closed: Cell<bool>,
    next_free: NarrowCell<Account>,
}

/// All accounts.
pub(crate) struct Accounts {
    free: NarrowCell<Account>,
}

const CHUNK: usize = 64;

/// What an account costs its parent, in bytes: its memory, and a price for the changes that pass through it when its
/// space has ended. So a quota bounds how many accounts can be above another one.
pub(crate) const COST: u64 = 384;
const _: () = assert!(COST >= core::mem::size_of::<Account>() as u64);

impl Accounts {
    pub(crate) const fn new() -> Self {
        Accounts {
            free: NarrowCell::none(),
        }
    }

    /// Opens an account with a quota of 0 under a parent, which pays for it. `None` if the parent's quota, or the
    /// kernel's memory, does not suffice.
    pub(crate) fn open(&self, parent: Option<&'static Account>) -> Option<&'static Account> {
        if self.free.get().is_none() {
            let chunk = hal::alloc_slice(CHUNK, |_| Account {
                parent: NarrowCell::none(),
                quota: Cell::new(0),
                used: Cell::new(0),
                closed: Cell::new(false),
                next_free: NarrowCell::none(),
            })?;
            for account in chunk {
                account.next_free.set(self.free.replace(Some(account)));
            }
        }
        let account = self.free.get()?;
        if let Some(parent) = parent {
            parent.charge(COST).ok()?;
        }
        self.free.set(account.next_free.take());
        account.parent.set(parent);
        account.quota.set(0);
        account.used.set(0);
        account.closed.set(false);
        Some(account)
    }
}

impl Account {
    pub(crate) fn quota(&self) -> u64 {
        self.quota.get()
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.get()
    }

    /// Charges `bytes`, or fails with `NoMemory` if the quota does not suffice.
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), Stop> {
        let used = self
            .used
            .get()
            .checked_add(bytes)
            .ok_or(Stop::Code(Code::NoMemory))?;
        if used > self.quota.get() {
            return Err(Stop::Code(Code::NoMemory));
        }
        self.used.set(used);
        Ok(())
    }

    /// Gives back `bytes` that were charged. A closed account passes them on to its parent at once, and ends when
    /// nothing is charged to it any more.
    pub(crate) fn discharge(&'static self, k: K, mut bytes: u64) {
        let mut at = self;
        loop {
            at.used.set(at.used.get() - bytes);
            if !at.closed.get() {
                return;
            }
            at.quota.set(at.used.get());
            let parent = at.parent.get();
            if at.used.get() == 0 {
                at.parent.set(None);
                at.next_free.set(k.accounts.free.replace(Some(at)));
                bytes += COST;
            }
            match parent {
                Some(parent) => at = parent,
                None => return,
            }
        }
    }

    /// Whether this account is an ancestor of `other`, which then gets its quota from it, directly or through others.
    pub(crate) fn is_above(&self, other: &Account) -> bool {
        let mut above = other.parent.get();
        while let Some(account) = above {
            if core::ptr::eq(account, self) {
                return true;
            }
            above = account.parent.get();
        }
        false
    }

    /// Checks that a caller with the account `by` may set the quota to this value. Only a caller whose account is an
    /// ancestor may raise the quota, since the increase comes from its own: any other holder of the space could
    /// otherwise take all that the space's creator has.
    pub(crate) fn check_quota(&self, quota: u64, by: Option<&Account>) -> Result<(), Stop> {
        if quota < self.used.get() {
            return Err(Stop::Code(Code::Invalid));
        }
        match self.parent.get() {
            Some(parent) if quota > self.quota.get() => {
                if !by.is_some_and(|by| by.is_above(self)) {
                    return Err(Stop::Code(Code::Denied));
                }
                let more = quota - self.quota.get();
                if more > parent.quota.get() - parent.used.get() {
                    return Err(Stop::Code(Code::NoMemory));
                }
                Ok(())
            }
            Some(_) => Ok(()),
            None if quota == self.quota.get() => Ok(()),
            None => Err(Stop::Code(Code::Invalid)),
        }
    }

    /// Sets the quota after [`Account::check_quota`]; the difference moves from or to the parent.
    pub(crate) fn set_quota(&self, k: K, quota: u64) {
        if let Some(parent) = self.parent.get() {
            let old = self.quota.get();
            if quota >= old {
                parent.used.set(parent.used.get() + (quota - old));
            } else {
                parent.discharge(k, old - quota);
            }
            self.quota.set(quota);
        }
    }

    /// The account that pays for this one; `None` for the first account.
    pub(crate) fn payer(&self) -> Option<&'static Account> {
        self.parent.get()
    }

    /// The bytes that this account takes from its payer's quota.
    pub(crate) fn lent(&self) -> u64 {
        self.quota.get() + COST
    }

    /// Makes the account `to` pay for this one and its quota from now on. `Denied` unless `to` is the caller's account
    /// `by` or a descendant of it; `NoMemory` if the quota of `to` does not suffice.
    pub(crate) fn set_payer(
        &'static self,
        k: K,
        to: &'static Account,
        by: &Account,
    ) -> Result<(), Stop> {
        let old = self.parent.get().ok_or(Stop::Code(Code::Denied))?;
        if !core::ptr::eq(to, by) && !by.is_above(to) {
            return Err(Stop::Code(Code::Denied));
        }
        if !core::ptr::eq(old, to) {
            // No cycle can arise: a descendant of this account has less than this account's quota, so the charge fails.
            to.charge(self.lent())?;
            self.pass(k, to);
        }
        Ok(())
    }

    /// Makes the account `to`, which has been charged already, pay for this one and its quota from now on.
    pub(crate) fn pass(&'static self, k: K, to: &'static Account) {
        if let Some(old) = self.parent.replace(Some(to)) {
            old.discharge(k, self.lent());
        }
    }

    /// Sets the quota of the first account, which has no parent.
    pub(crate) fn endow(&self, quota: u64) {
        self.quota.set(quota);
    }

    /// Closes the account because its space ends: the unused quota goes back to the parent now, the rest when
    /// objects end.
    pub(crate) fn close(&'static self, k: K) {
        let unused = self.quota.get() - self.used.get();
        self.used.set(self.quota.get());
        self.closed.set(true);
        self.discharge(k, unused);
    }
}

#[cfg(any(test, fermata_probe))]
impl Account {
    /// Parent, and whether the space has ended.
    pub(crate) fn books(&self) -> (Option<&'static Account>, bool) {
        (self.parent.get(), self.closed.get())
    }
}
