//! Files that are executed, and files that are open for writing: as in Linux, none is both (`ETXTBSY`).
//!
//! A memory holds an [`Executed`] of the file that its program came from, which keeps that open, so that its number is no other file's. The last one that
//! goes says so by itself, however the process ended. Descriptions that may be written are counted by file. So both questions are one look into a table.
//!
//! Only the program itself is protected, as in Linux: no interpreter, no script, no library once it is mapped.

use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::files::Request;
use crate::host::Host;
use crate::process::{Description, Kind};
use crate::system::System;

/// That a file is executed, by whoever has this.
#[derive(Debug, PartialEq, Eq)]
pub struct Executed {
    ino: u64,
    ended: Rc<RefCell<Vec<u64>>>,
}

impl Executed {
    /// The file's inode.
    #[must_use]
    pub const fn ino(&self) -> u64 {
        self.ino
    }
}

impl Drop for Executed {
    fn drop(&mut self) {
        self.ended.borrow_mut().push(self.ino);
    }
}

/// What is known of such files.
#[derive(Debug, Default)]
pub struct Busy {
    executed: BTreeMap<u64, Weak<Executed>>,
    /// How many descriptions of a file may be written; none is not there.
    written: BTreeMap<u64, usize>,
    /// Files that the last one has ceased to execute, each to be closed once.
    ended: Rc<RefCell<Vec<u64>>>,
}

impl Busy {
    /// A file, which is open, is executed from now on; and whether it was not before. Then it is closed when nobody executes it any more, and the caller does not
    /// close it.
    pub fn execute(&mut self, ino: u64) -> (Rc<Executed>, bool) {
        if let Some(executed) = self.executed.get(&ino).and_then(Weak::upgrade) {
            return (executed, false);
        }
        let executed = Rc::new(Executed {
            ino,
            ended: Rc::clone(&self.ended),
        });
        self.executed.insert(ino, Rc::downgrade(&executed));
        (executed, true)
    }

    /// Whether somebody executes the file.
    #[must_use]
    pub fn is_executed(&self, ino: u64) -> bool {
        let executed = self.executed.get(&ino);
        executed.is_some_and(|executed| executed.strong_count() > 0)
    }

    /// How many descriptions of the file may be written.
    #[must_use]
    pub fn writers(&self, ino: u64) -> usize {
        self.written.get(&ino).copied().unwrap_or(0)
    }

    /// There is one more description.
    pub fn opened(&mut self, description: &Description) {
        if let Kind::File { ino } = description.kind {
            if description.writable() {
                *self.written.entry(ino).or_default() += 1;
            }
        }
    }

    /// A description is gone.
    pub fn closed(&mut self, description: &Description) {
        let Kind::File { ino } = description.kind else {
            return;
        };
        if let Some(count) = self
            .written
            .get_mut(&ino)
            .filter(|_| description.writable())
        {
            *count -= 1;
            if *count == 0 {
                self.written.remove(&ino);
            }
        }
    }

    /// Whether a file is to be closed that nobody executes any more.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.ended.borrow().is_empty()
    }

    /// How many files are executed, and how many descriptions may be written.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let executed = self.executed.values().filter(|e| e.strong_count() > 0);
        (executed.count(), self.written.values().sum())
    }
}

impl System {
    /// Whether somebody could write to a file: it is open so, or mapped. (Who executes it waits until it has been written back.)
    #[must_use]
    pub fn is_written(&self, ino: u64) -> bool {
        match self.busy.writers(ino) {
            0 => self.objects.is_writable(ino),
            1 => !self.objects.keeps_writable(ino),
            _ => true,
        }
    }

    /// Closes files that nobody executes any more.
    pub fn settle_executed(&mut self, host: &mut dyn Host) {
        let ended = core::mem::take(&mut *self.busy.ended.borrow_mut());
        for ino in ended {
            if !self.busy.is_executed(ino) {
                self.busy.executed.remove(&ino);
            }
            let _ = host.fs_now(&Request::Close { ino }, &[], &mut []);
        }
    }
}
