//! Accounts: who pays for kernel memory.
//!
//! Every space has an account with a quota; objects that are created from the space are charged to it. A quota
//! is taken from the account of the space's creator and goes back there when the space ends; objects that
//! outlive the space are then charged to that account, so that every object is always charged to one.

use crate::Stop;
use crate::K;
use abi::Code;
use core::cell::Cell;
use hal::NarrowCell;

/// An account. Slots are reused through a free list and never change their type.
pub(crate) struct Account {
    parent: NarrowCell<Account>,
    quota: Cell<u64>,
    used: Cell<u64>,
    /// Number of objects charged here, child accounts in use, and the space itself.
    holders: Cell<u32>,
    /// The space has ended.
    closed: Cell<bool>,
    next_free: NarrowCell<Account>,
}

/// All accounts.
pub(crate) struct Accounts {
    free: NarrowCell<Account>,
}

const CHUNK: usize = 64;

impl Accounts {
    pub(crate) const fn new() -> Self {
        Accounts {
            free: NarrowCell::none(),
        }
    }

    /// Opens an account with a quota of 0 under a parent.
    pub(crate) fn open(&self, parent: Option<&'static Account>) -> Option<&'static Account> {
        if self.free.get().is_none() {
            let chunk = hal::alloc_slice(CHUNK, |_| Account {
                parent: NarrowCell::none(),
                quota: Cell::new(0),
                used: Cell::new(0),
                holders: Cell::new(0),
                closed: Cell::new(false),
                next_free: NarrowCell::none(),
            })?;
            for account in chunk {
                account.next_free.set(self.free.replace(Some(account)));
            }
        }
        let account = self.free.get()?;
        self.free.set(account.next_free.take());
        account.parent.set(parent);
        account.quota.set(0);
        account.used.set(0);
        account.holders.set(1);
        account.closed.set(false);
        if let Some(parent) = parent {
            parent.hold();
        }
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

    pub(crate) fn hold(&self) {
        self.holders.set(self.holders.get() + 1);
    }

    /// Takes one holder away. The last one frees the account.
    pub(crate) fn release(&'static self, k: K) {
        self.holders.set(self.holders.get() - 1);
        if self.holders.get() == 0 {
            if let Some(parent) = self.parent.take() {
                parent.release(k);
            }
            self.next_free.set(k.accounts.free.replace(Some(self)));
        }
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

    /// Returns `bytes`. A closed account passes them on to its parent at once.
    pub(crate) fn discharge(&self, bytes: u64) {
        self.used.set(self.used.get() - bytes);
        if self.closed.get() {
            self.quota.set(self.quota.get() - bytes);
            if let Some(parent) = self.parent.get() {
                parent.discharge(bytes);
            }
        }
    }

    /// Whether [`Account::set_quota`] to this value will succeed.
    pub(crate) fn check_quota(&self, quota: u64) -> Result<(), Stop> {
        if quota < self.used.get() {
            return Err(Stop::Code(Code::Invalid));
        }
        match self.parent.get() {
            Some(parent) if quota > self.quota.get() => {
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
    pub(crate) fn set_quota(&self, quota: u64) {
        if let Some(parent) = self.parent.get() {
            let old = self.quota.get();
            if quota >= old {
                parent.used.set(parent.used.get() + (quota - old));
            } else {
                parent.discharge(old - quota);
            }
            self.quota.set(quota);
        }
    }

    /// Sets the quota of the first account, which has no parent.
    pub(crate) fn endow(&self, quota: u64) {
        self.quota.set(quota);
    }

    /// Closes the account because its space ends: the unused quota goes back to the parent now, the rest when
    /// objects end.
    pub(crate) fn close(&'static self, k: K) {
        let left = self.quota.get() - self.used.get();
        self.quota.set(self.used.get());
        if let Some(parent) = self.parent.get() {
            parent.discharge(left);
        }
        self.closed.set(true);
        self.release(k);
    }
}

#[cfg(any(test, fermata_probe))]
impl Account {
    /// Parent, holders, and whether the space has ended.
    pub(crate) fn books(&self) -> (Option<&'static Account>, u32, bool) {
        (self.parent.get(), self.holders.get(), self.closed.get())
    }
}
