//! Client of the file system.
//!
//! Open files belong to the program's session. A restored program has another session, in which nothing is open: a
//! [`File`] opens itself again, by its path. The numbers of files that were opened otherwise ([`open`]) are void then.
use crate::guard;
use crate::obj::{Ref, RefAt};
use crate::session::RESTORES;
use crate::sync::Mutex;
use crate::window::Window;
use abi::access;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use proto::{Error, MAX_BULK};
use services::fs::lasting::{Known, Lasting, Servers};
use services::fs::{
    is_on_disk, part, FilesClient, ATTR_ROOM, ENTRIES_ROOM, ON_DISK, PATH_ROOM, PIECE,
};
pub use services::fs::{mode, Attr, Entry, Flags, Ino, Opened, CONSOLE_INO, NULL_INO, TTY_INO};

/// How long to wait for a server, in nanoseconds: for the first one, and for the next one when it has died.
const PATIENCE: u64 = 10_000_000_000;

/// The successive servers of a file service, as a program finds them.
#[derive(Debug)]
pub struct Doors {
    name: &'static str,
    /// Whether the service is on a disk: not every machine has one, and the files outlive the server.
    disk: bool,
    /// The door that was last found or set, and the port that the program presents as its own.
    door: Option<(Ref, RefAt)>,
    /// Where the door is set in a program that has no name service ([`TOLD`]).
    told: &'static Told,
    /// The door that was last replaced was dead.
    died: bool,
}

/// A door that was set. It has its own lock, so that the setter need not wait for a request that is under way.
type Told = Mutex<Option<(Ref, RefAt)>>;

impl Doors {
    const fn new(name: &'static str, disk: bool, told: &'static Told) -> Self {
        Doors {
            name,
            disk,
            door: None,
            told,
            died: false,
        }
    }

    /// Whether the known door is that of a dead server.
    fn is_dead(&self) -> bool {
        self.door
            .as_ref()
            .is_some_and(|door| door.0.kind() == abi::RefKind::Null)
    }

    /// Takes the door that was set last.
    fn listen(&mut self) {
        if let Some(door) = self.told.lock().take() {
            // Kept for the next `open`, which reports it.
            self.died |= self.is_dead();
            self.door = Some(door);
        }
    }

    /// Whether there is such a service, or was.
    pub fn is_there(&mut self) -> bool {
        self.listen();
        if self.door.is_none() && is_told() {
            return DISK_EXPECTED.load(Ordering::Relaxed);
        }
        if self.door.is_none() {
            match crate::names::lookup(self.name) {
                Ok(door) => self.door = Some((door, crate::start::names())),
                Err(Error::NotFound) => {}
                // The server is being replaced, or this program has no room for a reference. The request will report
                // the error; it must not go to the file system in memory instead.
                Err(_) => return true,
            }
        }
        self.door.is_some()
    }
}

impl Servers for Doors {
    type Session = FilesClient;
    type Room = crate::heap::Hold;

    fn hold(&self, bytes: u64) -> Result<Self::Room, Error> {
        crate::heap::Hold::new(bytes)
    }

    fn is_durable(&self) -> bool {
        self.disk
    }

    fn open(&mut self, died: &mut bool) -> Result<FilesClient, Error> {
        let deadline = crate::time::now() + PATIENCE;
        loop {
            *died |= self.is_dead();
            self.listen();
            *died |= core::mem::take(&mut self.died);
            let dead = self.door.is_none() || self.is_dead();
            if is_told() && dead {
                // This program starts the next server itself, and must not wait for it here.
                return Err(Error::Broken);
            }
            if dead {
                let until = if self.disk && !*died { 0 } else { deadline };
                match crate::names::wait_for(self.name, until) {
                    Err(Error::Broken) if crate::time::now() < deadline => *died = true,
                    door => self.door = Some((door?, crate::start::names())),
                }
            }
            let Some((door, own)) = &self.door else {
                continue;
            };
            match FilesClient::open_as(door, *own) {
                // The server has died meanwhile, or is about to.
                Err(Error::Broken) if !is_told() && crate::time::now() < deadline => {
                    *died = true;
                    crate::time::sleep(PAUSE);
                }
                session => return session,
            }
        }
    }
}

/// The memory that the server of files in memory shows to other servers ([`services::fs::Files::memory`]).
#[derive(Debug)]
pub struct Shown {
    changes: Window,
    /// The parts with files, as far as the server shows them.
    parts: [Option<Window>; part::COUNT as usize - 1],
}

impl Shown {
    /// Gets the parts from the server. Errors: those of [`services::fs::Files::memory`].
    pub fn open() -> Result<Self, Error> {
        let door = crate::names::lookup("fs")?;
        let mut files = FilesClient::open_known(&door)?;
        let mut map = |part| {
            let (size, region) = files.memory(part)?;
            Window::map(&region, 0, size, access::READ)
        };
        Ok(Shown {
            changes: map(part::CHANGES)?,
            parts: [part::WRITTEN, part::ARCHIVE].map(|part| map(part).ok()),
        })
    }

    /// The number of changes, as it is now; `None` if the server has ended.
    #[must_use]
    #[inline]
    pub fn changes(&self) -> Option<u64> {
        let number = guard::word(self.changes.address()).ok();
        // Later reads of files happen after the read of the number.
        core::sync::atomic::fence(Ordering::Acquire);
        number
    }

    /// Reads bytes of a part. They are the file's if the number of changes is the same before and afterwards. Errors:
    /// `Unsupported` for a part that is not shown, `Invalid` for a range beyond its end.
    pub fn read(&self, part: u32, start: u64, into: &mut [u8]) -> Result<(), Error> {
        let index = part.wrapping_sub(part::WRITTEN) as usize;
        let window = self.parts.get(index).and_then(Option::as_ref);
        window.ok_or(Error::Unsupported)?.read(start, into)?;
        // The caller's next read of the number happens after that of the bytes.
        core::sync::atomic::fence(Ordering::Acquire);
        Ok(())
    }
}

/// Pause between attempts to reach the next server, in nanoseconds.
const PAUSE: u64 = 200_000;

/// Files of a service. If the server of the files on the disk dies, requests only take longer.
pub type Files = Lasting<Doors>;

/// Files in memory, in a session of their own.
#[must_use]
pub const fn memory() -> Files {
    Lasting::new(Doors::new("fs", false, &MEMORY_TOLD))
}

/// Files on the disk, in a session of their own.
#[must_use]
pub const fn disk() -> Files {
    Lasting::new(Doors::new("ext4", true, &DISK_TOLD))
}

static MEMORY_TOLD: Told = Mutex::new(None);
static DISK_TOLD: Told = Mutex::new(None);
static MEMORY: Mutex<Files> = Mutex::new(memory());
static DISK: Mutex<Files> = Mutex::new(disk());

/// This program has no name service (it is the name service): its doors are set, and it looks none up.
static TOLD: AtomicBool = AtomicBool::new(false);
/// Such a program expects a file system on the disk, whose server may not run yet.
static DISK_EXPECTED: AtomicBool = AtomicBool::new(false);

fn is_told() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// Sets the file system's door in a program that has no name service (it is the name service), and the port that it
/// presents as its own.
pub fn set_door(door: Ref, own: RefAt) {
    TOLD.store(true, Ordering::Relaxed);
    *MEMORY_TOLD.lock() = Some((door, own));
}

/// Tells such a program to expect a file system on the disk, whose door will be set: until then requests about it fail
/// with `Broken`. Without this call the program has no disk.
pub fn expect_disk() {
    DISK_EXPECTED.store(true, Ordering::Relaxed);
}

/// As [`set_door`], for the file system on the disk; to be called again when that has another server.
pub fn set_disk_door(door: Ref, own: RefAt) {
    *DISK_TOLD.lock() = Some((door, own));
}

/// Makes a request about an open file in the program's session.
fn ask<T>(file: Ino, request: impl FnOnce(&mut Files) -> T) -> T {
    match file & ON_DISK {
        0 => request(&mut MEMORY.lock()),
        _ => request(&mut DISK.lock()),
    }
}

/// Makes a request about a path in the program's session.
fn ask_at<T>(path: &str, request: impl FnOnce(&mut Files) -> Result<T, Error>) -> Result<T, Error> {
    if is_on_disk(path) {
        let mut disk = DISK.lock();
        // Without a disk, the file system in memory answers that the path does not exist.
        if disk.servers().is_there() {
            return request(&mut disk);
        }
    }
    request(&mut MEMORY.lock())
}

/// The path in the answer to a request.
fn path(request: impl FnOnce(&mut [u8]) -> Result<usize, Error>) -> Result<String, Error> {
    let mut path = vec![0; PATH_ROOM];
    let length = request(&mut path)?;
    path.truncate(length);
    String::from_utf8(path).map_err(|_| Error::Broken)
}

/// The attributes in the answer to a request.
fn attr(request: impl FnOnce(&mut [u8]) -> Result<usize, Error>) -> Result<Attr, Error> {
    let mut bytes = [0; ATTR_ROOM];
    let length = request(&mut bytes)?;
    services::fs::attr(bytes.get(..length).ok_or(Error::Broken)?)
}

/// Makes a request about two paths. The second one decides which file system it goes to.
fn pair(
    first: &str,
    second: &str,
    request: impl FnOnce(&mut Files, u32, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    let (length, both) = services::fs::pair(first, second);
    ask_at(second, |files| request(files, length, &both))
}

/// Opens a file or directory; it is open until it has been closed as often ([`close`]).
pub fn open(path: &str, flags: Flags, mode: u32) -> Result<Opened, Error> {
    let (ino, mode, size) = ask_at(path, |files| files.open_file(flags.bits(), mode, path))?;
    Ok(Opened { ino, mode, size })
}

/// As [`open`], for a [`File`].
fn open_known(path: &str, flags: Flags, mode: u32) -> Result<(Known, u32, u64), Error> {
    ask_at(path, |files| files.open_known(flags.bits(), mode, path))
}

/// Closes a file.
pub fn close(file: Ino) -> Result<(), Error> {
    ask(file, |files| files.close(file))
}

/// Attributes by path.
pub fn stat(path: &str, follow: bool) -> Result<Attr, Error> {
    attr(|into| ask_at(path, |files| files.stat(follow, path, into)))
}

/// Attributes of an open file.
pub fn attributes(file: Ino) -> Result<Attr, Error> {
    attr(|into| ask(file, |files| files.attributes(file, into)))
}

/// Reads at most `to.len()` bytes (and at most [`MAX_BULK`]); 0 at the end.
pub fn read(file: Ino, offset: u64, to: &mut [u8]) -> Result<usize, Error> {
    ask(file, |files| read_in(files, file, offset, to))
}

fn read_in(files: &mut Files, file: Ino, offset: u64, to: &mut [u8]) -> Result<usize, Error> {
    let length = to.len().min(MAX_BULK);
    let came = files.read(file, offset, &mut to[..length])?;
    (came <= length).then_some(came).ok_or(Error::Broken)
}

/// Writes at most [`MAX_BULK`] bytes, and returns how many.
pub fn write(file: Ino, offset: u64, from: &[u8]) -> Result<usize, Error> {
    ask(file, |files| write_in(files, file, offset, from))
}

fn write_in(files: &mut Files, file: Ino, offset: u64, from: &[u8]) -> Result<usize, Error> {
    let from = &from[..from.len().min(MAX_BULK)];
    let length = files.write(file, offset, from)? as usize;
    (length <= from.len())
        .then_some(length)
        .ok_or(Error::Broken)
}

/// Writes at most [`MAX_BULK`] bytes at the end, and returns how many, and the offset.
pub fn append(file: Ino, from: &[u8]) -> Result<(usize, u64), Error> {
    ask(file, |files| append_in(files, file, from))
}

fn append_in(files: &mut Files, file: Ino, from: &[u8]) -> Result<(usize, u64), Error> {
    let from = &from[..from.len().min(MAX_BULK)];
    let (length, offset) = files.append(file, from)?;
    let length = length as usize;
    (length <= from.len())
        .then_some((length, offset))
        .ok_or(Error::Broken)
}

/// Cuts or lengthens a file.
pub fn truncate(file: Ino, size: u64) -> Result<(), Error> {
    ask(file, |files| files.truncate(file, size))
}

/// Some entries of a directory, and the cookie of the next call; no entries at the end.
pub fn read_dir(file: Ino, cookie: u64) -> Result<(Vec<Entry>, u64), Error> {
    ask(file, |files| read_dir_in(files, file, cookie))
}

fn read_dir_in(files: &mut Files, file: Ino, cookie: u64) -> Result<(Vec<Entry>, u64), Error> {
    let mut bytes = vec![0; ENTRIES_ROOM];
    let length = files.read_dir(file, cookie, &mut bytes)?;
    services::fs::entries(bytes.get(..length).ok_or(Error::Broken)?)
}

/// Makes a directory.
pub fn mkdir(path: &str, mode: u32) -> Result<(), Error> {
    ask_at(path, |files| files.mkdir(mode, path))
}

/// Removes a name of something that is not a directory.
pub fn unlink(path: &str) -> Result<(), Error> {
    ask_at(path, |files| files.unlink(path))
}

/// Removes an empty directory.
pub fn rmdir(path: &str) -> Result<(), Error> {
    ask_at(path, |files| files.rmdir(path))
}

/// A rename or link between the two file systems is refused: nothing has names in both.
fn same_disk(from: &str, to: &str) -> Result<(), Error> {
    let same = is_on_disk(from) == is_on_disk(to);
    same.then_some(()).ok_or(Error::Unsupported)
}

/// Renames.
pub fn rename(from: &str, to: &str) -> Result<(), Error> {
    same_disk(from, to)?;
    pair(from, to, Files::rename)
}

/// Gives a file another name.
pub fn link(from: &str, to: &str) -> Result<(), Error> {
    same_disk(from, to)?;
    pair(from, to, Files::link)
}

/// Makes a symbolic link.
pub fn symlink(target: &str, path: &str) -> Result<(), Error> {
    pair(target, path, Files::symlink)
}

/// The target of a symbolic link.
pub fn readlink(link: &str) -> Result<String, Error> {
    path(|into| ask_at(link, |files| files.readlink(link, into)))
}

/// The path at which an open file is now.
pub fn path_of(file: Ino) -> Result<String, Error> {
    path(|into| ask(file, |files| files.path_of(file, into)))
}

/// Changes the permission bits.
pub fn chmod(file: Ino, mode: u32) -> Result<(), Error> {
    ask(file, |files| files.chmod(file, mode))
}

/// Changes the owner.
pub fn chown(file: Ino, uid: u32, gid: u32) -> Result<(), Error> {
    ask(file, |files| files.chown(file, uid, gid))
}

/// Changes the times.
pub fn utimens(file: Ino, atime_ns: u64, mtime_ns: u64) -> Result<(), Error> {
    ask(file, |files| files.utimens(file, atime_ns, mtime_ns))
}

/// Bytes stored, and files.
pub fn usage() -> Result<(u64, u64), Error> {
    let (bytes, files, _, _) = MEMORY.lock().usage()?;
    Ok((bytes, files))
}

/// Returns when all that was written survives a loss of power, if files of that service do.
pub fn sync(file: Ino) -> Result<(), Error> {
    ask(file, |files| files.sync(file))
}

/// A file that is closed when this is dropped; a program that has written to it calls [`close`](File::close) to learn
/// whether the data is durable. If the file is not open in the session, since the program was restored, it is opened
/// again by its path.
#[derive(Debug)]
pub struct File {
    path: String,
    opened: Opened,
    /// The inode number with which it is open now.
    known: Cell<Known>,
    is_closed: bool,
}

impl File {
    /// Opens the file, and keeps the path.
    pub fn open(path: &str, flags: Flags, mode: u32) -> Result<Self, Error> {
        let (known, mode, size) = open_known(path, flags, mode)?;
        Ok(File {
            path: path.to_string(),
            opened: Opened {
                ino: known.file,
                mode,
                size,
            },
            known: Cell::new(known),
            is_closed: false,
        })
    }

    /// The attributes as they were when the file was opened.
    #[must_use]
    pub const fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The path by which it was opened.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The number.
    #[must_use]
    pub const fn ino(&self) -> Ino {
        self.known.get().file
    }

    /// Makes a request with the number with which the file is open. In a loop, since the program may be restored again
    /// between opening the file again and the request.
    fn ask<T>(
        &self,
        mut request: impl FnMut(&mut Files, Ino) -> Result<T, Error>,
    ) -> Result<T, Error> {
        for _ in 0..RESTORES {
            let known = self.known.get();
            if let Some(result) = ask(known.file, |files| files.with(known, &mut request)) {
                return result;
            }
            self.known
                .set(open_known(&self.path, Flags::default(), 0)?.0);
        }
        Err(Error::NotFound)
    }

    /// Reads at most `to.len()` bytes (and at most [`MAX_BULK`]); 0 at the end.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize, Error> {
        self.ask(|files, ino| read_in(files, ino, offset, to))
    }

    /// Fills `to` from `offset` on, as far as the file goes.
    pub fn read_full(&self, offset: u64, to: &mut [u8]) -> Result<usize, Error> {
        let mut length = 0;
        while length < to.len() {
            let at = offset + length as u64;
            let end = match self.ino() & ON_DISK {
                0 => to.len().min(length + (PIECE - at % PIECE) as usize),
                _ => to.len(),
            };
            match self.read(at, &mut to[length..end])? {
                0 => break,
                n => length += n,
            }
        }
        Ok(length)
    }

    /// The whole content, as long as it was when the file was opened, if there is memory for it. Changes of the file by
    /// others meanwhile do not make this take more memory. Memory can seem available and be missing when it is touched,
    /// which ends the program: use this only for files whose size is known to be small, or that nobody else can write.
    pub fn read_whole(&self) -> Result<Vec<u8>, Error> {
        let size = usize::try_from(self.opened().size).map_err(|_| Error::NoMemory)?;
        let mut content = Vec::new();
        content
            .try_reserve_exact(size)
            .map_err(|_| Error::NoMemory)?;
        content.resize(size, 0);
        let length = self.read_full(0, &mut content)?;
        content.truncate(length);
        Ok(content)
    }

    /// Writes at most [`MAX_BULK`] bytes, and returns how many.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<usize, Error> {
        self.ask(|files, ino| write_in(files, ino, offset, from))
    }

    /// Writes at most [`MAX_BULK`] bytes at the end, and returns how many, and the offset.
    pub fn append(&self, from: &[u8]) -> Result<(usize, u64), Error> {
        self.ask(|files, ino| append_in(files, ino, from))
    }

    /// Writes all of `from` at `offset`.
    pub fn write_all(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let mut length = 0;
        while length < from.len() {
            match self.write(offset + length as u64, &from[length..])? {
                0 => return Err(Error::NoMemory),
                n => length += n,
            }
        }
        Ok(())
    }

    /// As [`sync`].
    pub fn sync(&self) -> Result<(), Error> {
        self.ask(Files::sync)
    }

    /// As [`File::write_all`], from a window, whose pages have to be present.
    pub fn write_window(
        &self,
        offset: u64,
        window: &Window,
        (at, length): (u64, u64),
    ) -> Result<(), Error> {
        self.write_all(offset, window.bytes(at, length)?)
    }

    /// Closes the file. If it is on the disk, its data is durable then.
    ///
    /// # Errors
    /// Written data is lost, or may be.
    pub fn close(mut self) -> Result<(), Error> {
        self.is_closed = true;
        self.ask(Files::close)
    }

    /// Some entries of a directory, and the cookie of the next call; no entries at the end.
    pub fn read_dir(&self, cookie: u64) -> Result<(Vec<Entry>, u64), Error> {
        self.ask(|files, ino| read_dir_in(files, ino, cookie))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.is_closed {
            // If the program was restored the file is closed already, and its number may be another file's.
            let known = self.known.get();
            let _ = ask(known.file, |files| files.with(known, Files::close));
        }
    }
}

/// The whole content of a file, as long as it was when this opened it.
pub fn read_all(path: &str) -> Result<Vec<u8>, Error> {
    let file = File::open(path, Flags::default(), 0)?;
    if file.opened().mode & mode::TYPE == mode::DIRECTORY {
        return Err(Error::IsDirectory);
    }
    file.read_whole()
}

/// Makes or replaces a file.
pub fn write_all(path: &str, content: &[u8], mode: u32) -> Result<(), Error> {
    let flags = Flags {
        create: true,
        truncate: true,
        ..Flags::default()
    };
    let file = File::open(path, flags, mode)?;
    file.write_all(0, content)?;
    file.close()
}
