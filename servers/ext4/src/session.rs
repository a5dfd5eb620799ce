//! Sessions: what a client has open.

use crate::volume::Volume;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell, RefMut};
use core::ops::Deref;
use proto::Error;
use rsext4::BlockIo;
use serde::Serialize;
use services::fs::{Files, Flags, Ino};

/// Most files that the session of a program has open.
pub const MAX_OPEN: u64 = 256;
/// Most files that the session of a server, or of the shell, has open.
pub const MAX_OPEN_TRUSTED: u64 = 1 << 20;

/// Memory that a request may take: a block of everything on the way of a path, and what is read or written.
const ROOM: u64 = 1 << 20;

/// The file system, as its sessions share it; or why there is none.
pub type Shared<D> = Rc<RefCell<Result<Volume<D>, Error>>>;

/// A session. Its open files can be named by no other session, and are closed when it ends.
pub struct Session<D: BlockIo> {
    shared: Shared<D>,
    /// How often each is open.
    open: RefCell<BTreeMap<Ino, u64>>,
    /// How many more files it may open.
    left: Cell<u64>,
}

fn encode<T: Serialize>(value: &T, room: usize) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_allocvec(value).map_err(|_| Error::NoMemory)?;
    (bytes.len() <= room).then_some(bytes).ok_or(Error::Invalid)
}

fn text(path: String, room: usize) -> Result<Vec<u8>, Error> {
    (path.len() <= room)
        .then(|| path.into_bytes())
        .ok_or(Error::NameTooLong)
}

fn two(first: u32, paths: &str) -> Result<(&str, &str), Error> {
    paths.split_at_checked(first as usize).ok_or(Error::Invalid)
}

impl<D: BlockIo> Session<D> {
    /// A session that can have so many files open.
    #[must_use]
    pub fn new(shared: &Shared<D>, most: u64) -> Self {
        Session {
            shared: Rc::clone(shared),
            open: RefCell::new(BTreeMap::new()),
            left: Cell::new(most),
        }
    }

    /// The file system, when there is memory for a request.
    fn volume(&self) -> Result<RefMut<'_, Volume<D>>, Error> {
        rt::heap::want(ROOM)?;
        self.volume_at_once()
    }

    /// The file system, for what gives something back.
    fn volume_at_once(&self) -> Result<RefMut<'_, Volume<D>>, Error> {
        let mut why = Error::Broken;
        let shared = self.shared.borrow_mut();
        let volume = RefMut::filter_map(shared, |volume| match volume {
            Ok(volume) => Some(volume),
            Err(error) => {
                why = *error;
                None
            }
        });
        volume.map_err(|_| why)
    }

    /// The file system, if the session has this open.
    fn with(&self, file: Ino) -> Result<RefMut<'_, Volume<D>>, Error> {
        match self.open.borrow().contains_key(&file) {
            true => self.volume(),
            false => Err(Error::NotFound),
        }
    }
}

impl<D: BlockIo> Drop for Session<D> {
    fn drop(&mut self) {
        for (file, times) in core::mem::take(self.open.get_mut()) {
            for _ in 0..times {
                let volume = self.volume_at_once();
                let _ = volume.and_then(|mut volume| volume.close(file));
            }
        }
    }
}

impl<D: BlockIo + 'static> Files for Session<D> {
    fn open_file(&self, flags: u32, mode: u32, path: &str) -> Result<(u64, u32, u64), Error> {
        let flags = Flags::from_bits(flags).ok_or(Error::Invalid)?;
        let left = self.left.get().checked_sub(1).ok_or(Error::Limit)?;
        let opened = self.volume()?.open(path, flags, mode)?;
        self.left.set(left);
        *self.open.borrow_mut().entry(opened.0).or_default() += 1;
        Ok(opened)
    }

    fn close(&self, file: u64) -> Result<(), Error> {
        if !self.open.borrow().contains_key(&file) {
            return Err(Error::NotFound);
        }
        let mut volume = self.volume_at_once()?;
        let mut open = self.open.borrow_mut();
        if let Some(times) = open.get_mut(&file) {
            *times -= 1;
            if *times == 0 {
                open.remove(&file);
            }
            self.left.set(self.left.get() + 1);
        }
        volume.close(file)
    }

    fn stat(
        &self,
        follow: bool,
        path: &str,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        encode(&self.volume()?.stat(path, follow)?, room)
    }

    fn attributes(&self, file: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        encode(&self.with(file)?.attributes(file)?, room)
    }

    fn read(
        &self,
        file: u64,
        offset: u64,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        self.with(file)?.read(file, offset, room)
    }

    fn write(&self, file: u64, offset: u64, bytes: &[u8]) -> Result<u32, Error> {
        let written = self.with(file)?.write(file, Some(offset), bytes);
        written.map(|(length, _)| length)
    }

    fn append(&self, file: u64, bytes: &[u8]) -> Result<(u32, u64), Error> {
        self.with(file)?.write(file, None, bytes)
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
        self.volume()?.mkdir(path, mode)
    }

    fn unlink(&self, path: &str) -> Result<(), Error> {
        self.volume()?.unlink(path)
    }

    fn rmdir(&self, path: &str) -> Result<(), Error> {
        self.volume()?.rmdir(path)
    }

    fn rename(&self, first: u32, paths: &str) -> Result<(), Error> {
        let (from, to) = two(first, paths)?;
        self.volume()?.rename(from, to)
    }

    fn link(&self, first: u32, paths: &str) -> Result<(), Error> {
        let (from, to) = two(first, paths)?;
        self.volume()?.link(from, to)
    }

    fn symlink(&self, first: u32, paths: &str) -> Result<(), Error> {
        let (target, path) = two(first, paths)?;
        self.volume()?.symlink(target, path)
    }

    fn readlink(&self, path: &str, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        text(self.volume()?.readlink(path)?, room)
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
        Ok(self.volume()?.usage())
    }

    fn sync(&self, file: u64) -> Result<(), Error> {
        self.with(file)?.sync()
    }
}
