//! Sessions: the open files of a client.

use crate::tree::FileSystem;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Ref, RefCell, RefMut};
use core::ops::Deref;
use core::sync::atomic::{fence, AtomicU64, Ordering};
use proto::Error;
use rt::obj::{Ref as Reference, Region};
use services::fs::server::{attributes, fitting, text, two, Open};
use services::fs::{part, Files, Flags, Ino, Place};

/// The number of requests so far that may change something ([`Files::memory`]), in a page of its own.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Changes {
    count: AtomicU64,
    rest: [u64; 511],
}

impl Changes {
    /// The number.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn add(&self) {
        // Only this thread counts.
        let next = self.count.load(Ordering::Relaxed).wrapping_add(1);
        self.count.store(next, Ordering::Release);
        // No later change becomes visible before the new number.
        fence(Ordering::Release);
    }
}

/// The state that all sessions share.
pub struct Shared {
    files: RefCell<FileSystem>,
    /// Called before each request.
    before: Box<dyn Fn(&mut FileSystem)>,
    changes: Box<Changes>,
    /// The parts that others can read, in the order of [`part`], if any.
    shown: RefCell<Vec<Shown>>,
}

/// A part of the server's memory that others can read.
pub struct Shown {
    /// Its first address.
    pub start: u64,
    /// How many bytes it has.
    pub size: u64,
    /// Its region.
    pub region: Region,
}

impl Shared {
    /// `before` is called before each request.
    #[must_use]
    pub fn new(files: FileSystem, before: impl Fn(&mut FileSystem) + 'static) -> Rc<Self> {
        Rc::new(Shared {
            files: RefCell::new(files),
            before: Box::new(before),
            changes: Box::new(Changes {
                count: AtomicU64::new(1),
                rest: [0; 511],
            }),
            shown: RefCell::default(),
        })
    }

    /// The number of changes, for the region that shows its page.
    pub const fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Lets others read these parts of memory, which are in the order of [`part`].
    pub fn show(&self, parts: Vec<Shown>) {
        *self.shown.borrow_mut() = parts;
    }

    /// Finds bytes in the memory that others can read: the part, and the offset there.
    fn find(&self, bytes: &[u8]) -> Result<(u32, u64), Error> {
        let at = bytes.as_ptr().addr() as u64;
        let shown = self.shown.borrow();
        let mut parts = (part::WRITTEN..).zip(shown.iter().skip(part::WRITTEN as usize));
        let found = parts.find(|(_, one)| (one.start..one.start + one.size).contains(&at));
        let (part, one) = found.ok_or(Error::Unsupported)?;
        Ok((part, at - one.start))
    }

    /// The file system, at the beginning of a request that may change something.
    fn changing(&self) -> RefMut<'_, FileSystem> {
        self.changes.add();
        self.files()
    }

    /// The file system, at the beginning of a request.
    fn files(&self) -> RefMut<'_, FileSystem> {
        let mut files = self.files.borrow_mut();
        (self.before)(&mut files);
        files
    }

    /// The file system, outside of requests.
    pub fn borrow_mut(&self) -> RefMut<'_, FileSystem> {
        self.files.borrow_mut()
    }
}

/// A session. Its open files can be named by no other session, and are closed when it ends.
pub struct Session {
    shared: Rc<Shared>,
    open: Open,
    /// Whether the client is a server or the shell.
    trusted: bool,
}

/// Bytes of a file: borrowed from where they are, or gathered.
enum Piece<'a> {
    There(Ref<'a, [u8]>),
    Gathered(Vec<u8>),
}

impl Deref for Piece<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Piece::There(bytes) => bytes,
            Piece::Gathered(bytes) => bytes,
        }
    }
}

impl Session {
    /// A session of this job, which is 0 for servers and the shell, that can have at most `most` files open.
    #[must_use]
    pub fn new(shared: &Rc<Shared>, job: u32, most: u64) -> Self {
        Session {
            shared: Rc::clone(shared),
            open: Open::new(most),
            trusted: job == 0,
        }
    }

    /// The file system, if the session has this file open.
    fn with(&self, file: Ino) -> Result<RefMut<'_, FileSystem>, Error> {
        if !self.open.has(file) {
            return Err(Error::NotFound);
        }
        Ok(self.shared.files())
    }

    /// The same for a request that may change something.
    fn changing(&self, file: Ino) -> Result<RefMut<'_, FileSystem>, Error> {
        self.shared.changes.add();
        self.with(file)
    }

    /// The file system, if the session may ask about a file: a server also about files that it has not open.
    fn about(&self, file: Ino) -> Result<RefMut<'_, FileSystem>, Error> {
        match self.trusted {
            true => Ok(self.shared.files()),
            false => self.with(file),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut files = self.shared.files();
        for file in self.open.take() {
            let _ = files.close(file);
        }
    }
}

impl Files for Session {
    fn open_file(&self, flags: u32, mode: u32, path: &str) -> Result<(u64, u32, u64), Error> {
        let flags = Flags::from_bits(flags).ok_or(Error::Invalid)?;
        if flags.change() {
            self.shared.changes.add();
        }
        self.open.add(|| {
            let attr = self.shared.files().open(path, flags, mode)?;
            Ok((attr.ino, attr.mode, attr.size))
        })
    }

    fn close(&self, file: u64) -> Result<(), Error> {
        let mut files = self.with(file)?;
        self.open.remove(file);
        files.close(file)
    }

    fn close_all(&self, files: &[u8]) -> Result<(), Error> {
        let closed = services::fs::numbers(files)?.map(|file| self.close(file));
        closed.fold(Ok(()), Result::and)
    }

    fn stat(
        &self,
        follow: bool,
        path: &str,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        attributes(&self.shared.files().stat(path, follow)?, room)
    }

    fn attributes(&self, file: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        attributes(&self.about(file)?.stat_ino(file)?, room)
    }

    fn read(
        &self,
        file: u64,
        offset: u64,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        self.changing(file)?.mark_read(file);
        let mut gathered = None;
        let files = Ref::filter_map(self.shared.files.borrow(), |files| {
            match files.read(file, offset, room) {
                Ok(Cow::Borrowed(bytes)) => Some(bytes),
                Ok(Cow::Owned(bytes)) => {
                    gathered = Some(Ok(bytes));
                    None
                }
                Err(error) => {
                    gathered = Some(Err(error));
                    None
                }
            }
        });
        match (files, gathered) {
            (Ok(bytes), _) => Ok(Piece::There(bytes)),
            (Err(_), Some(gathered)) => gathered.map(Piece::Gathered),
            (Err(_), None) => Err(Error::Broken),
        }
    }

    fn write(&self, file: u64, offset: u64, bytes: &[u8]) -> Result<u32, Error> {
        let written = self.changing(file)?.write(file, offset, false, bytes);
        written.map(|(length, _)| length)
    }

    fn append(&self, file: u64, bytes: &[u8]) -> Result<(u32, u64), Error> {
        self.changing(file)?.write(file, 0, true, bytes)
    }

    fn truncate(&self, file: u64, size: u64) -> Result<(), Error> {
        self.changing(file)?.truncate(file, size)
    }

    fn read_dir(
        &self,
        file: u64,
        cookie: u64,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        fitting(self.changing(file)?.read_dir(file, cookie)?, room)
    }

    fn mkdir(&self, mode: u32, path: &str) -> Result<(), Error> {
        self.shared.changing().mkdir(path, mode).map(|_| ())
    }

    fn unlink(&self, path: &str) -> Result<(), Error> {
        self.shared.changing().unlink(path)
    }

    fn rmdir(&self, path: &str) -> Result<(), Error> {
        self.shared.changing().rmdir(path)
    }

    fn rename(&self, first: u32, paths: &str) -> Result<(), Error> {
        let (from, to) = two(first, paths)?;
        self.shared.changing().rename(from, to)
    }

    fn link(&self, first: u32, paths: &str) -> Result<(), Error> {
        let (from, to) = two(first, paths)?;
        self.shared.changing().link(from, to)
    }

    fn symlink(&self, first: u32, paths: &str) -> Result<(), Error> {
        let (target, path) = two(first, paths)?;
        self.shared.changing().symlink(target, path)
    }

    fn readlink(&self, path: &str, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        text(self.shared.files().readlink(path)?, room)
    }

    fn path_of(&self, file: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        text(self.about(file)?.path_of(file)?, room)
    }

    fn chmod(&self, file: u64, mode: u32) -> Result<(), Error> {
        self.changing(file)?.chmod(file, mode)
    }

    fn chown(&self, file: u64, uid: u32, gid: u32) -> Result<(), Error> {
        self.changing(file)?.chown(file, uid, gid)
    }

    fn utimens(&self, file: u64, atime_ns: u64, mtime_ns: u64) -> Result<(), Error> {
        self.changing(file)?.utimens(file, atime_ns, mtime_ns)
    }

    fn usage(&self) -> Result<(u64, u64, u64, u64), Error> {
        let mut files = self.shared.files();
        Ok((files.budget().used(), files.files(), 0, 0))
    }

    fn sync(&self, file: u64) -> Result<(), Error> {
        self.with(file).map(drop)
    }

    fn memory(&self, part: u32) -> Result<(u64, Reference), Error> {
        if !self.trusted {
            return Err(Error::Denied);
        }
        if part >= part::COUNT {
            return Err(Error::Invalid);
        }
        let shown = self.shared.shown.borrow();
        let one = shown.get(part as usize).ok_or(Error::Unsupported)?;
        let region = one.region.reference().map_err(rt::error_of)?;
        Ok((one.size, region))
    }

    fn place(&self, file: u64, offset: u64) -> Result<(u64, u32, u64), Error> {
        if !self.trusted {
            return Err(Error::Denied);
        }
        let mut files = self.changing(file)?;
        files.mark_read(file);
        let (bytes, size) = files.piece(file, offset)?;
        let (part, start) = match bytes {
            [] => (part::WRITTEN, 0),
            bytes => self.shared.find(bytes)?,
        };
        let length = bytes.len() as u32;
        let place = Place {
            part,
            start,
            length,
            size,
        };
        Ok(place.to_words())
    }
}
