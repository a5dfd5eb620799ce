//! The file system of the tests' host: requests of the personality as calls of a session with the file server's own
//! code.

extern crate std;

use super::{Reply, Request};
use fermata_fs::session::Session;
use proto::Error;
use services::fs::{self, Files, Opened, ENTRIES_ROOM};
use std::vec::Vec;

const ROOM: usize = 1 << 16;

fn attr(bytes: Result<impl core::ops::Deref<Target = [u8]>, Error>) -> Result<Reply, Error> {
    fs::attr(&bytes?).map(Reply::Attr)
}

fn text(bytes: Result<impl core::ops::Deref<Target = [u8]>, Error>) -> Result<Reply, Error> {
    Ok(Reply::Path(
        std::string::String::from_utf8(bytes?.to_vec()).unwrap(),
    ))
}

/// Makes a request: the reply, and the bytes that come with it.
pub(crate) fn ask(
    files: &Session,
    request: &Request,
    bulk: &[u8],
) -> Result<(Reply, Vec<u8>), Error> {
    let done = |()| Reply::Done;
    let reply = match request.clone() {
        Request::Open { path, flags, mode } => {
            let (ino, mode, size) = files.open_file(flags.bits(), mode, &path)?;
            Reply::Opened(Opened { ino, mode, size })
        }
        Request::Close { ino } => files.close(ino).map(done)?,
        Request::Stat { path, follow } => attr(files.stat(follow, &path, ROOM))?,
        Request::StatIno { ino } => attr(files.attributes(ino, ROOM))?,
        Request::Read {
            ino,
            offset,
            length,
        } => {
            let bytes = files.read(ino, offset, length as usize)?;
            return Ok((Reply::Done, bytes.to_vec()));
        }
        Request::Write {
            ino, append: true, ..
        } => {
            let (length, offset) = files.append(ino, bulk)?;
            Reply::Written { length, offset }
        }
        Request::Write { ino, offset, .. } => {
            let length = files.write(ino, offset, bulk)?;
            Reply::Written { length, offset }
        }
        Request::Truncate { ino, size } => files.truncate(ino, size).map(done)?,
        Request::ReadDir { ino, cookie } => {
            let bytes = files.read_dir(ino, cookie, ENTRIES_ROOM)?;
            return Ok((Reply::Done, bytes.to_vec()));
        }
        Request::Mkdir { path, mode } => files.mkdir(mode, &path).map(done)?,
        Request::Unlink { path } => files.unlink(&path).map(done)?,
        Request::Rmdir { path } => files.rmdir(&path).map(done)?,
        Request::Rename { from, to } => {
            let (first, both) = fs::pair(&from, &to);
            files.rename(first, &both).map(done)?
        }
        Request::Link { from, to } => {
            let (first, both) = fs::pair(&from, &to);
            files.link(first, &both).map(done)?
        }
        Request::Symlink { target, path } => {
            let (first, both) = fs::pair(&target, &path);
            files.symlink(first, &both).map(done)?
        }
        Request::Readlink { path } => text(files.readlink(&path, ROOM))?,
        Request::PathOf { ino } => text(files.path_of(ino, ROOM))?,
        Request::Chmod { ino, mode } => files.chmod(ino, mode).map(done)?,
        Request::Chown { ino, uid, gid } => files.chown(ino, uid, gid).map(done)?,
        Request::Utimens {
            ino,
            atime_ns,
            mtime_ns,
        } => files.utimens(ino, atime_ns, mtime_ns).map(done)?,
        Request::Usage { .. } => {
            let (bytes, files, most_bytes, most_files) = files.usage()?;
            Reply::Usage {
                bytes,
                files,
                most_bytes,
                most_files,
            }
        }
        Request::Sync { ino } => files.sync(ino).map(done)?,
    };
    Ok((reply, Vec::new()))
}
