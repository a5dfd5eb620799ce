//! Sessions: what a client has open.

use crate::tree::FileSystem;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Ref, RefCell, RefMut};
use core::ops::Deref;
use proto::Error;
use services::fs::server::{attributes, encode, text, two, Open};
use services::fs::{Files, Flags, Ino};

/// The file system, as its sessions share it.
pub struct Shared {
    files: RefCell<FileSystem>,
    /// What is done before each request.
    before: Box<dyn Fn(&mut FileSystem)>,
}

impl Shared {
    /// `before` is called before each request.
    #[must_use]
    pub fn new(files: FileSystem, before: impl Fn(&mut FileSystem) + 'static) -> Rc<Self> {
        Rc::new(Shared {
            files: RefCell::new(files),
            before: Box::new(before),
        })
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
}

/// Bytes of a file: from where they lie, or gathered.
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
    /// A session that can have so many files open.
    #[must_use]
    pub fn new(shared: &Rc<Shared>, most: u64) -> Self {
        Session {
            shared: Rc::clone(shared),
            open: Open::new(most),
        }
    }

    /// The file system, if the session has this open.
    fn with(&self, file: Ino) -> Result<RefMut<'_, FileSystem>, Error> {
        if !self.open.has(file) {
            return Err(Error::NotFound);
        }
        Ok(self.shared.files())
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

    fn stat(
        &self,
        follow: bool,
        path: &str,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        attributes(&self.shared.files().stat(path, follow)?, room)
    }

    fn attributes(&self, file: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        attributes(&self.with(file)?.stat_ino(file)?, room)
    }

    fn read(
        &self,
        file: u64,
        offset: u64,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        self.with(file)?.mark_read(file);
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
        let written = self.with(file)?.write(file, offset, false, bytes);
        written.map(|(length, _)| length)
    }

    fn append(&self, file: u64, bytes: &[u8]) -> Result<(u32, u64), Error> {
        self.with(file)?.write(file, 0, true, bytes)
    }

    fn truncate(&self, file: u64, size: u64) -> Result<(), Error> {
        self.with(file)?.truncate(file, size)
    }

    fn read_dir(
        &self,
        file: u64,
        cookie: u64,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        encode(&self.with(file)?.read_dir(file, cookie)?, room)
    }

    fn mkdir(&self, mode: u32, path: &str) -> Result<(), Error> {
        self.shared.files().mkdir(path, mode).map(|_| ())
    }

    fn unlink(&self, path: &str) -> Result<(), Error> {
        self.shared.files().unlink(path)
    }

    fn rmdir(&self, path: &str) -> Result<(), Error> {
        self.shared.files().rmdir(path)
    }

    fn rename(&self, first: u32, paths: &str) -> Result<(), Error> {
        let (from, to) = two(first, paths)?;
        self.shared.files().rename(from, to)
    }

    fn link(&self, first: u32, paths: &str) -> Result<(), Error> {
        let (from, to) = two(first, paths)?;
        self.shared.files().link(from, to)
    }

    fn symlink(&self, first: u32, paths: &str) -> Result<(), Error> {
        let (target, path) = two(first, paths)?;
        self.shared.files().symlink(target, path)
    }

    fn readlink(&self, path: &str, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        text(self.shared.files().readlink(path)?, room)
    }

    fn path_of(&self, file: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        text(self.with(file)?.path_of(file)?, room)
    }

    fn chmod(&self, file: u64, mode: u32) -> Result<(), Error> {
        self.with(file)?.chmod(file, mode)
    }

    fn chown(&self, file: u64, uid: u32, gid: u32) -> Result<(), Error> {
        self.with(file)?.chown(file, uid, gid)
    }

    fn utimens(&self, file: u64, atime_ns: u64, mtime_ns: u64) -> Result<(), Error> {
        self.with(file)?.utimens(file, atime_ns, mtime_ns)
    }

    fn usage(&self) -> Result<(u64, u64), Error> {
        let mut files = self.shared.files();
        Ok((files.budget().used(), files.files()))
    }

    fn sync(&self, file: u64) -> Result<(), Error> {
        self.with(file).map(drop)
    }
}
