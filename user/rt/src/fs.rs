//! Client of the file system.
use crate::obj::Ref;
use crate::rpc::{self, Io};
use crate::sync::Lazy;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
pub use proto::fs::{mode, Attr, Entry, Flags, Ino};
use proto::fs::{Reply, Request};
use proto::{Error, MAX_BULK};

static PORT: Lazy<Ref> = Lazy::new();

/// How long to wait for the file system to be there, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;

/// Tells the file system's port to a program that has no name service (it is the name service).
pub fn set_port(port: Ref) {
    PORT.set(port);
}

/// The file system's port.
pub fn port() -> Result<&'static Ref, Error> {
    PORT.get(|| crate::names::wait_for("fs", crate::time::now() + PATIENCE))
}

fn done(request: &Request) -> Result<(), Error> {
    match rpc::ask(port()?, request)? {
        Reply::Done => Ok(()),
        _ => Err(Error::Broken),
    }
}

fn attr(request: &Request) -> Result<Attr, Error> {
    match rpc::ask(port()?, request)? {
        Reply::Attr(attr) => Ok(attr),
        _ => Err(Error::Broken),
    }
}

fn path(request: &Request) -> Result<String, Error> {
    match rpc::ask(port()?, request)? {
        Reply::Path(path) => Ok(path),
        _ => Err(Error::Broken),
    }
}

/// Opens a file or directory; it lives until as many [`close`].
pub fn open(path: &str, flags: Flags, mode: u32) -> Result<Attr, Error> {
    attr(&Request::Open {
        path: path.to_string(),
        flags,
        mode,
    })
}

/// Opens once more by number.
pub fn reopen(ino: Ino) -> Result<Attr, Error> {
    attr(&Request::Reopen { ino })
}

/// Closes.
pub fn close(ino: Ino) -> Result<(), Error> {
    done(&Request::Close { ino })
}

/// Attributes by path.
pub fn stat(path: &str, follow: bool) -> Result<Attr, Error> {
    attr(&Request::Stat {
        path: path.to_string(),
        follow,
    })
}

/// Attributes by number.
pub fn stat_ino(ino: Ino) -> Result<Attr, Error> {
    attr(&Request::StatIno { ino })
}

/// Reads at most `to.len()` bytes (and at most [`MAX_BULK`]); 0 at the end.
pub fn read(ino: Ino, offset: u64, to: &mut [u8]) -> Result<usize, Error> {
    let length = to.len().min(MAX_BULK);
    let mut io = Io {
        bulk_in: &mut to[..length],
        ..Io::default()
    };
    match rpc::call(
        port()?,
        &Request::Read {
            ino,
            offset,
            length: length as u32,
        },
        &mut io,
    )? {
        Reply::Done => Ok(io.bulk_len),
        _ => Err(Error::Broken),
    }
}

/// Writes at most [`MAX_BULK`] bytes: how many, and where they went.
pub fn write(ino: Ino, offset: u64, append: bool, from: &[u8]) -> Result<(usize, u64), Error> {
    let from = &from[..from.len().min(MAX_BULK)];
    let mut io = Io {
        bulk: from,
        ..Io::default()
    };
    match rpc::call(
        port()?,
        &Request::Write {
            ino,
            offset,
            append,
        },
        &mut io,
    )? {
        Reply::Written { length, offset } if length as usize <= from.len() => {
            Ok((length as usize, offset))
        }
        _ => Err(Error::Broken),
    }
}

/// Cuts or lengthens.
pub fn truncate(ino: Ino, size: u64) -> Result<(), Error> {
    done(&Request::Truncate { ino, size })
}

/// Some entries of a directory, and the cookie of the next call; no entries at the end.
pub fn read_dir(ino: Ino, cookie: u64) -> Result<(Vec<Entry>, u64), Error> {
    match rpc::ask(port()?, &Request::ReadDir { ino, cookie })? {
        Reply::Entries { entries, next } => Ok((entries, next)),
        _ => Err(Error::Broken),
    }
}

/// Makes a directory.
pub fn mkdir(path: &str, mode: u32) -> Result<(), Error> {
    done(&Request::Mkdir {
        path: path.to_string(),
        mode,
    })
}

/// Removes a name of what is not a directory.
pub fn unlink(path: &str) -> Result<(), Error> {
    done(&Request::Unlink {
        path: path.to_string(),
    })
}

/// Removes an empty directory.
pub fn rmdir(path: &str) -> Result<(), Error> {
    done(&Request::Rmdir {
        path: path.to_string(),
    })
}

/// Renames.
pub fn rename(from: &str, to: &str) -> Result<(), Error> {
    done(&Request::Rename {
        from: from.to_string(),
        to: to.to_string(),
    })
}

/// Gives a file another name.
pub fn link(from: &str, to: &str) -> Result<(), Error> {
    done(&Request::Link {
        from: from.to_string(),
        to: to.to_string(),
    })
}

/// Makes a symbolic link.
pub fn symlink(target: &str, path: &str) -> Result<(), Error> {
    done(&Request::Symlink {
        target: target.to_string(),
        path: path.to_string(),
    })
}

/// What a symbolic link says.
pub fn readlink(link: &str) -> Result<String, Error> {
    path(&Request::Readlink {
        path: link.to_string(),
    })
}

/// The path by which an inode can be found now.
pub fn path_of(ino: Ino) -> Result<String, Error> {
    path(&Request::PathOf { ino })
}

/// Changes the permission bits.
pub fn chmod(ino: Ino, mode: u32) -> Result<(), Error> {
    done(&Request::Chmod { ino, mode })
}

/// Changes the owner.
pub fn chown(ino: Ino, uid: u32, gid: u32) -> Result<(), Error> {
    done(&Request::Chown { ino, uid, gid })
}

/// Changes the times.
pub fn utimens(ino: Ino, atime_ns: u64, mtime_ns: u64) -> Result<(), Error> {
    done(&Request::Utimens {
        ino,
        atime_ns,
        mtime_ns,
    })
}

/// Bytes stored, and files.
pub fn usage() -> Result<(u64, u64), Error> {
    match rpc::ask(port()?, &Request::Usage)? {
        Reply::Usage { bytes, files } => Ok((bytes, files)),
        _ => Err(Error::Broken),
    }
}

/// A file that is closed when this is dropped.
#[derive(Debug)]
pub struct File {
    attr: Attr,
}

impl File {
    /// Opens.
    pub fn open(path: &str, flags: Flags, mode: u32) -> Result<Self, Error> {
        Ok(File {
            attr: open(path, flags, mode)?,
        })
    }

    /// The attributes as they were when the file was opened.
    #[must_use]
    pub const fn attr(&self) -> &Attr {
        &self.attr
    }

    /// The number.
    #[must_use]
    pub const fn ino(&self) -> Ino {
        self.attr.ino
    }

    /// Fills `to` from `offset` on, as far as the file goes.
    pub fn read_full(&self, offset: u64, to: &mut [u8]) -> Result<usize, Error> {
        let mut length = 0;
        while length < to.len() {
            match read(self.attr.ino, offset + length as u64, &mut to[length..])? {
                0 => break,
                n => length += n,
            }
        }
        Ok(length)
    }

    /// Writes all of `from` at `offset`.
    pub fn write_all(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let mut length = 0;
        while length < from.len() {
            match write(
                self.attr.ino,
                offset + length as u64,
                false,
                &from[length..],
            )? {
                (0, _) => return Err(Error::NoMemory),
                (n, _) => length += n,
            }
        }
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = close(self.attr.ino);
    }
}

/// The whole content of a file.
pub fn read_all(path: &str) -> Result<Vec<u8>, Error> {
    let file = File::open(path, Flags::default(), 0)?;
    if file.attr.mode & mode::TYPE == mode::DIRECTORY {
        return Err(Error::IsDirectory);
    }
    let size = usize::try_from(file.attr.size).map_err(|_| Error::NoMemory)?;
    let mut content = Vec::new();
    content
        .try_reserve_exact(size)
        .map_err(|_| Error::NoMemory)?;
    content.resize(size, 0);
    let mut length = file.read_full(0, &mut content)?;
    // It may have grown meanwhile.
    let mut more = vec![0; 4096];
    while length == content.len() {
        let n = file.read_full(length as u64, &mut more)?;
        if n == 0 {
            break;
        }
        content.extend_from_slice(&more[..n]);
        length += n;
    }
    content.truncate(length);
    Ok(content)
}

/// Makes or replaces a file.
pub fn write_all(path: &str, content: &[u8], mode: u32) -> Result<(), Error> {
    let flags = Flags {
        create: true,
        truncate: true,
        ..Flags::default()
    };
    File::open(path, flags, mode)?.write_all(0, content)
}
