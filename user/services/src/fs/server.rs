//! Parts that every file server needs: the open files of its sessions, and the form of their answers.
use super::{Attr, Ino, ATTR_ROOM};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Deref;
use interface::Error;

/// Most files that a program's session can have open.
const MAX_OPEN: u64 = 256;
/// Most files that the session of a server or of the shell can have open. The personality of Linux programs has one
/// session for all its processes.
const MAX_OPEN_TRUSTED: u64 = 1 << 20;

/// Most files that a session of this job can have open.
#[must_use]
pub const fn most_open(job: u32) -> u64 {
    match job {
        0 => MAX_OPEN_TRUSTED,
        _ => MAX_OPEN,
    }
}

/// The files that a session has open. The server has to close them when it drops this ([`Open::take`]).
#[derive(Debug)]
pub struct Open {
    /// How often each is open.
    files: RefCell<BTreeMap<Ino, u64>>,
    /// How many more there may be.
    left: Cell<u64>,
}

impl Open {
    /// No open files, of at most `most`.
    #[must_use]
    pub const fn new(most: u64) -> Self {
        Open {
            files: RefCell::new(BTreeMap::new()),
            left: Cell::new(most),
        }
    }

    /// Whether this one is open.
    #[must_use]
    pub fn has(&self, file: Ino) -> bool {
        self.files.borrow().contains_key(&file)
    }

    /// Opens one more file with `open`. Returns its number, mode and size.
    ///
    /// # Errors
    /// [`Error::Limit`] if there are as many as there may be; those of `open`.
    pub fn add(
        &self,
        open: impl FnOnce() -> Result<(Ino, u32, u64), Error>,
    ) -> Result<(Ino, u32, u64), Error> {
        let left = self.left.get().checked_sub(1).ok_or(Error::Limit)?;
        let opened = open()?;
        self.left.set(left);
        *self.files.borrow_mut().entry(opened.0).or_default() += 1;
        Ok(opened)
    }

    /// Notes that the file is open once less.
    pub fn remove(&self, file: Ino) {
        let mut files = self.files.borrow_mut();
        if let Some(times) = files.get_mut(&file) {
            *times -= 1;
            if *times == 0 {
                files.remove(&file);
            }
            self.left.set(self.left.get() + 1);
        }
    }

    /// Takes all open files, each as often as it is open.
    pub fn take(&mut self) -> impl Iterator<Item = Ino> + use<> {
        let files = core::mem::take(self.files.get_mut());
        files
            .into_iter()
            .flat_map(|(file, times)| (0..times).map(move |_| file))
    }
}

/// The bytes of an answer, if the client has room for them.
///
/// # Errors
/// [`Error::Invalid`] if there is not.
pub fn fitting(bytes: Vec<u8>, room: usize) -> Result<Vec<u8>, Error> {
    (bytes.len() <= room).then_some(bytes).ok_or(Error::Invalid)
}

/// Encoded attributes.
#[derive(Clone, Copy, Debug)]
pub struct AttrBytes([u8; ATTR_ROOM]);

impl Deref for AttrBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Encoded attributes, if the client has room for them.
///
/// # Errors
/// [`Error::Invalid`] if there is not.
pub fn attributes(attr: &Attr, room: usize) -> Result<AttrBytes, Error> {
    (room >= ATTR_ROOM)
        .then(|| AttrBytes(attr.to_bytes()))
        .ok_or(Error::Invalid)
}

/// A path as bytes, if the client has room for it.
///
/// # Errors
/// [`Error::NameTooLong`] if there is not.
pub fn text(path: String, room: usize) -> Result<Vec<u8>, Error> {
    (path.len() <= room)
        .then(|| path.into_bytes())
        .ok_or(Error::NameTooLong)
}

/// The two paths of a [`pair`](super::pair), of which the first has `first` bytes.
///
/// # Errors
/// [`Error::Invalid`] if `paths` cannot be split there.
pub fn two(first: u32, paths: &str) -> Result<(&str, &str), Error> {
    paths.split_at_checked(first as usize).ok_or(Error::Invalid)
}
