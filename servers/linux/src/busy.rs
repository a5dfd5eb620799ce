//! Files that are being executed, and files that are open for writing: as in Linux, no file is both (`ETXTBSY`).
//!
//! The memory of a program holds an [`Executed`] of its executable file. It keeps the file open, so that the inode
//! number is not used again. When the last [`Executed`] of a file is dropped, the file is put on a list to be closed,
//! however the process ended. File descriptions, and the writable ones among them, are counted by file, so each
//! question is one look-up.
//!
//! Only the program itself is protected, as in Linux, not its interpreter, a script, or a library that has been mapped.

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

/// Marks a file as executed as long as somebody holds this.
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

/// How a file is in use.
#[derive(Debug, Default)]
struct Had {
    executed: Weak<Executed>,
    /// Number of file descriptions.
    open: usize,
    /// How many of them are writable.
    written: usize,
    /// How many of them were opened through another file description of the file (`/proc/self/fd/N`), without the file
    /// system being asked.
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

/// The files in use.
#[derive(Debug, Default)]
pub struct Busy {
    /// The files that have a file description or are executed, by inode.
    files: BTreeMap<u64, Had>,
    /// Files whose last [`Executed`] has been dropped, each to be closed once.
    ended: Rc<RefCell<Vec<u64>>>,
    /// The last names of files in use that have lost all their names. Kept apart from `files`, since most files have a
    /// name, and their entries come and go with every `open` and `close`.
    lost: BTreeMap<u64, Box<str>>,
}

/// Most entries of [`Busy::lost`], and most bytes of a name in it.
const MAX_LOST: (usize, usize) = (1024, 255);

impl Busy {
    /// Marks an open file as executed. Returns whether it was not executed before: in that case the file is closed when
    /// nobody executes it any more, and the caller must not close it.
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

    /// Number of writable file descriptions of the file.
    #[must_use]
    pub fn writers(&self, ino: u64) -> usize {
        self.files.get(&ino).map_or(0, |had| had.written)
    }

    /// Number of file descriptions of the file.
    #[must_use]
    pub fn descriptions(&self, ino: u64) -> usize {
        self.files.get(&ino).map_or(0, |had| had.open)
    }

    /// Whether the file has a file description or is executed.
    #[must_use]
    pub fn is_open(&self, ino: u64) -> bool {
        self.files.get(&ino).is_some_and(Had::is_had)
    }

    /// Whether any file on the disk (`on_disk`) or in memory is in use.
    #[must_use]
    pub fn has_any(&self, on_disk: bool) -> bool {
        match on_disk {
            true => self.files.range(ON_DISK..).next().is_some(),
            false => self.files.range(..ON_DISK).next().is_some(),
        }
    }

    /// Keeps the last name that a file has lost, if the file is in use and there is room for it.
    pub fn lose_name(&mut self, ino: u64, name: &str) {
        let (most, longest) = MAX_LOST;
        if self.is_open(ino) && self.lost.len() < most && name.len() <= longest {
            self.lost.entry(ino).or_insert_with(|| name.into());
        }
    }

    /// The last name of a file that has lost all its names, if it was kept.
    #[must_use]
    pub fn lost_name(&self, ino: u64) -> Option<&str> {
        self.lost.get(&ino).map(|name| &**name)
    }

    /// Counts a new file description.
    pub fn opened(&mut self, description: &Description) {
        if let Some(ino) = description.ino() {
            let had = self.files.entry(ino).or_default();
            had.open += 1;
            had.written += usize::from(writes_file(description));
        }
    }

    /// Notes that one of the file descriptions of the file was opened through another one, without the file system
    /// being asked.
    pub fn shared(&mut self, ino: u64) {
        self.files.entry(ino).or_default().shared += 1;
    }

    /// Counts a closed file description off. Returns whether the file system is to be asked to close the file.
    pub fn closed(&mut self, description: &Description) -> bool {
        let Some(ino) = description.ino() else {
            return false;
        };
        let mut is_told = true;
        self.give_up(ino, |had| {
            had.open -= 1;
            had.written -= usize::from(writes_file(description));
            if had.shared > 0 {
                // It does not matter which of them is closed first: the file system has been asked to open the file
                // once fewer.
                had.shared -= 1;
                is_told = false;
            }
        });
        is_told
    }

    /// Changes the entry of a file, and removes it if the file is not in use any more.
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

    /// Whether files that nobody executes any more are still to be closed.
    #[must_use]
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.ended.borrow().is_empty()
    }

    /// Number of executed files, and of writable file descriptions.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let executed = self.files.values().filter(|had| had.is_executed());
        let written = self.files.values().map(|had| had.written);
        (executed.count(), written.sum())
    }
}

/// Whether the file description allows writing to a regular file.
pub(crate) fn writes_file(description: &Description) -> bool {
    matches!(description.kind, Kind::File { .. }) && description.writable()
}

impl System {
    /// Whether a process can still write to the file: it is open for writing, or mapped writable. A file that is open
    /// only because its object is still to be written back does not count; `execve` waits for that.
    #[must_use]
    pub fn is_written(&self, ino: u64) -> bool {
        match self.busy.writers(ino) {
            0 => self.objects.is_writable(ino),
            1 => !self.objects.keeps_writable(ino),
            _ => true,
        }
    }

    /// Closes the files that nobody executes any more.
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
