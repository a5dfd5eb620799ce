//! Sessions: the open files of a client. They are on the thread that waits for the disk; [`desk`](crate::desk) passes
//! requests on to them.

use crate::volume::Volume;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{RefCell, RefMut};
use core::ops::{Deref, DerefMut};
use proto::Error;
use rsext4::BlockIo;
use rt::heap::Hold;
use services::fs::server::{attributes, fitting, text, two, Open};
use services::fs::{Entry, Files, Flags, Ino, Listing};

/// Bytes of memory that a request may take: a block of each structure on a path, and the data.
const ROOM: u64 = 1 << 20;

/// The file system, which all sessions share, or the reason why there is none.
pub type Shared<D> = Rc<RefCell<Result<Volume<D>, Error>>>;

/// The file system during a request, and the memory for it.
struct Busy<'a, D: BlockIo> {
    volume: RefMut<'a, Volume<D>>,
    _room: Hold,
}

impl<D: BlockIo> Deref for Busy<'_, D> {
    type Target = Volume<D>;

    fn deref(&self) -> &Volume<D> {
        &self.volume
    }
}

impl<D: BlockIo> DerefMut for Busy<'_, D> {
    fn deref_mut(&mut self) -> &mut Volume<D> {
        &mut self.volume
    }
}

/// A session. Its open files can be named by no other session, and are closed when it ends.
pub struct Session<D: BlockIo> {
    shared: Shared<D>,
    open: Open,
}

impl<D: BlockIo> Session<D> {
    /// A session that can have at most `most` files open.
    #[must_use]
    pub fn new(shared: &Shared<D>, most: u64) -> Self {
        Session {
            shared: Rc::clone(shared),
            open: Open::new(most),
        }
    }

    /// The file system, if there is memory for a request. The memory is held, so that requests which arrive meanwhile
    /// cannot take it.
    fn volume(&self) -> Result<Busy<'_, D>, Error> {
        let room = Hold::new(ROOM)?;
        Ok(Busy {
            volume: self.volume_at_once()?,
            _room: room,
        })
    }

    /// The file system, for a request that frees something.
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

    /// As [`Files::read`].
    pub(crate) fn read_owned(&self, file: Ino, offset: u64, room: usize) -> Result<Vec<u8>, Error> {
        self.with(file)?.read(file, offset, room)
    }

    /// The file system, if the session has this file open.
    fn with(&self, file: Ino) -> Result<Busy<'_, D>, Error> {
        match self.open.has(file) {
            true => self.volume(),
            false => Err(Error::NotFound),
        }
    }
}

impl<D: BlockIo> Drop for Session<D> {
    fn drop(&mut self) {
        for file in self.open.take() {
            let volume = self.volume_at_once();
            let _ = volume.and_then(|mut volume| volume.close(file));
        }
    }
}

impl<D: BlockIo + 'static> Files for Session<D> {
    fn open_file(&self, flags: u32, mode: u32, path: &str) -> Result<(u64, u32, u64), Error> {
        let flags = Flags::from_bits(flags).ok_or(Error::Invalid)?;
        self.open.add(|| self.volume()?.open(path, flags, mode))
    }

    fn close(&self, file: u64) -> Result<(), Error> {
        if !self.open.has(file) {
            return Err(Error::NotFound);
        }
        let mut volume = self.volume_at_once()?;
        self.open.remove(file);
        volume.close(file)
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
        attributes(&self.volume()?.stat(path, follow)?, room)
    }

    fn attributes(&self, file: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        attributes(&self.with(file)?.attributes(file)?, room)
    }

    fn read(
        &self,
        file: u64,
        offset: u64,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        self.read_owned(file, offset, room)
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
        let (entries, next) = self.with(file)?.read_dir(file, cookie)?;
        let mut listing = Listing::new();
        for Entry { ino, mode, name } in &entries {
            listing.add(*ino, *mode, name);
        }
        fitting(listing.done(next), room)
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

    fn usage(&self) -> Result<(u64, u64, u64, u64), Error> {
        let volume = self.volume()?;
        let ((bytes, files), (most_bytes, most_files)) = (volume.usage(), volume.most());
        Ok((bytes, files, most_bytes, most_files))
    }

    fn sync(&self, file: u64) -> Result<(), Error> {
        self.with(file)?.sync()
    }

    fn memory(&self, _part: u32) -> Result<(u64, rt::obj::Ref), Error> {
        Err(Error::Unsupported)
    }

    fn place(&self, _file: u64, _offset: u64) -> Result<(u64, u32, u64), Error> {
        Err(Error::Unsupported)
    }
}
