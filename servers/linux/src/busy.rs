//! Files that are executed, and files that are open for writing: as in Linux, none is both (`ETXTBSY`).
//!
//! A memory holds an [`Executed`] of the file that its program came from, which keeps that open, so that its number is
//! no other file's. The last one that goes says so by itself, however the process ended. Descriptions are counted by
//! file, and those that may be written. So each question is one look into a table.
//!
//! Only the program itself is protected, as in Linux: no interpreter, no script, no library once it is mapped.

use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::files::Request;
use crate::host::Host;
use crate::process::{Description, Kind};
use crate::system::System;
use services::fs::ON_DISK;

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

/// Who has a file.
#[derive(Debug, Default)]
struct Had {
    executed: Weak<Executed>,
    /// How many descriptions it has.
    open: usize,
    /// How many of them may be written.
    written: usize,
    /// How many of them were opened by another one's descriptor, for which the file system was not asked.
    shared: usize,
}

impl Had {
    fn is_executed(&self) -> bool {
        self.executed.strong_count() > 0
    }

    fn is_had(&self) -> bool {
        self.open > 0 || self.is_executed()
    }
}

/// What is known of such files.
#[derive(Debug, Default)]
pub struct Busy {
    /// Those that somebody has.
    files: BTreeMap<u64, Had>,
    /// Files that the last one has ceased to execute, each to be closed once.
    ended: Rc<RefCell<Vec<u64>>>,
    /// The last names of those of them that have none any more, and had these when somebody had them. Apart, since most files
    /// have a name and come and go with every `open` and `close`.
    lost: BTreeMap<u64, Box<str>>,
}

/// Most names that are kept of files that have lost them, and most bytes of one.
const MAX_LOST: (usize, usize) = (1024, 255);

impl Busy {
    /// A file, which is open, is executed from now on; and whether it was not before. Then it is closed when nobody
    /// executes it any more, and the caller does not close it.
    pub fn execute(&mut self, ino: u64) -> (Rc<Executed>, bool) {
        let had = self.files.entry(ino).or_default();
        if let Some(executed) = had.executed.upgrade() {
            return (executed, false);
        }
        let executed = Rc::new(Executed {
            ino,
            ended: Rc::clone(&self.ended),
        });
        had.executed = Rc::downgrade(&executed);
        (executed, true)
    }

    /// Whether somebody executes the file.
    #[must_use]
    pub fn is_executed(&self, ino: u64) -> bool {
        self.files.get(&ino).is_some_and(Had::is_executed)
    }

    /// How many descriptions of the file may be written.
    #[must_use]
    pub fn writers(&self, ino: u64) -> usize {
        self.files.get(&ino).map_or(0, |had| had.written)
    }

    /// How many descriptions a file has.
    #[must_use]
    pub fn descriptions(&self, ino: u64) -> usize {
        self.files.get(&ino).map_or(0, |had| had.open)
    }

    /// Whether a file has a description, or somebody executes it.
    #[must_use]
    pub fn is_open(&self, ino: u64) -> bool {
        self.files.get(&ino).is_some_and(Had::is_had)
    }

    /// Whether somebody has a file, on the disk or in memory.
    #[must_use]
    pub fn has_any(&self, on_disk: bool) -> bool {
        match on_disk {
            true => self.files.range(ON_DISK..).next().is_some(),
            false => self.files.range(..ON_DISK).next().is_some(),
        }
    }

    /// A file has lost its last name. It is kept for those who have the file, unless there are very many of such.
    pub fn lose_name(&mut self, ino: u64, name: &str) {
        let (most, longest) = MAX_LOST;
        if self.is_open(ino) && self.lost.len() < most && name.len() <= longest {
            self.lost.entry(ino).or_insert_with(|| name.into());
        }
    }

    /// The last name of a file that has none any more, if it is known.
    #[must_use]
    pub fn lost_name(&self, ino: u64) -> Option<&str> {
        self.lost.get(&ino).map(|name| &**name)
    }

    /// There is one more description.
    pub fn opened(&mut self, description: &Description) {
        if let Some(ino) = description.ino() {
            let had = self.files.entry(ino).or_default();
            had.open += 1;
            had.written += usize::from(writes_file(description));
        }
    }

    /// One of the descriptions of the file was opened by a descriptor of another one: the file system knows nothing of it.
    pub fn shared(&mut self, ino: u64) {
        self.files.entry(ino).or_default().shared += 1;
    }

    /// A description is gone: whether the file system is to be told.
    pub fn closed(&mut self, description: &Description) -> bool {
        let Some(ino) = description.ino() else {
            return false;
        };
        let mut is_told = true;
        self.give_up(ino, |had| {
            had.open -= 1;
            had.written -= usize::from(writes_file(description));
            if had.shared > 0 {
                // Whichever goes first: as many stay open as there are descriptions, but one.
                had.shared -= 1;
                is_told = false;
            }
        });
        is_told
    }

    /// Changes who has a file, which is not known any more if that is nobody.
    fn give_up(&mut self, ino: u64, change: impl FnOnce(&mut Had)) {
        if let Entry::Occupied(mut file) = self.files.entry(ino) {
            change(file.get_mut());
            if !file.get().is_had() {
                file.remove();
                if !self.lost.is_empty() {
                    self.lost.remove(&ino);
                }
            }
        }
    }

    /// Whether a file is to be closed that nobody executes any more.
    #[must_use]
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.ended.borrow().is_empty()
    }

    /// How many files are executed, and how many descriptions may be written.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let executed = self.files.values().filter(|had| had.is_executed());
        let written = self.files.values().map(|had| had.written);
        (executed.count(), written.sum())
    }
}

/// Whether somebody can write to a file by it.
pub(crate) fn writes_file(description: &Description) -> bool {
    matches!(description.kind, Kind::File { .. }) && description.writable()
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
                self.busy.give_up(ino, |had| had.executed = Weak::new());
                if !self.inotify.is_unwatched() {
                    self.let_go(host, ino);
                }
            }
            let _ = host.fs_now(&Request::Close { ino }, &[], &mut []);
        }
    }
}
