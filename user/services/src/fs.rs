//! The file system in memory. An inode lives while it has a name or is open. All paths are absolute; `.` and `..` and
//! symbolic links are resolved by the server.
//!
//! **What is open belongs to the session that opened it**: only that session can name it, by its inode number, and it
//! is closed when the session ends, for whatever reason. The numbers of other sessions' files are [`Error::NotFound`].
//! A number is never reused, not even in another boot. A restored program has a session in which nothing is open: it
//! gives the reply that the program had not received yet, and otherwise answers [`Error::Restored`], upon which the
//! program opens another session, and its files by path.
use alloc::string::String;
use alloc::vec::Vec;
use interface::{interface, Error};
use serde::{Deserialize, Serialize};

pub mod lasting;
pub mod server;

/// An inode number.
pub type Ino = u64;

/// The root directory.
pub const ROOT_INO: Ino = 1;
/// `/dev/console`: a program that opens it talks to the console server instead.
pub const CONSOLE_INO: Ino = 2;
/// `/dev/tty`: as [`CONSOLE_INO`].
pub const TTY_INO: Ino = 3;
/// `/dev/null`: the file system itself treats it as empty and discards what is written.
pub const NULL_INO: Ino = 4;
/// Files in memory are stored in pieces of this many bytes. A read across the border of two needs an extra copy, so a
/// client that reads much should read piece by piece.
pub const PIECE: u64 = 64 * 1024;
/// The first number of other files.
pub const FIRST_INO: Ino = 16;

/// Where the file system on the disk is, if the machine has one: the service `ext4`, with the same interface. Requests
/// for a path there ([`is_on_disk`]), or about a number with the bit [`ON_DISK`], go to that service.
pub const MOUNT: &str = "/disk";
/// The bit of inode numbers of files on the disk; see [`MOUNT`].
pub const ON_DISK: Ino = 1 << 63;

/// The inode number that programs see: for a file on the disk the one that it has there, which is the same in the next
/// boot. The service's own number is never reused, neither for another file nor in another boot.
#[must_use]
pub const fn shown(ino: Ino) -> u64 {
    match ino & ON_DISK {
        0 => ino,
        _ => ino & 0xffff_ffff,
    }
}

/// The components of an absolute path that leads to the disk, behind [`MOUNT`], with `..` among them. Symbolic links
/// elsewhere do not lead there.
#[must_use]
pub fn on_disk(path: &str) -> Option<Vec<&str>> {
    let mut words: Vec<&str> = Vec::new();
    // How many directories below the root the path is, without following links.
    let mut depth = 0usize;
    let mut inside = false;
    for word in path.split('/').filter(|word| !matches!(*word, "" | ".")) {
        match (word, depth) {
            // The parent of the root is the root.
            ("..", 0) => continue,
            ("..", 1) => {
                words.clear();
                (depth, inside) = (0, false);
                continue;
            }
            ("..", _) => depth -= 1,
            (first, 0) => {
                inside = first == &MOUNT[1..];
                depth = 1;
                continue;
            }
            _ => depth += 1,
        }
        words.push(word);
    }
    inside.then_some(words)
}

/// Whether an absolute path leads to the disk ([`on_disk`]).
#[must_use]
pub fn is_on_disk(path: &str) -> bool {
    if is_plain(path) {
        let below = path.strip_prefix(MOUNT);
        return below.is_some_and(|below| below.is_empty() || below.starts_with('/'));
    }
    on_disk(path).is_some()
}

/// Whether an absolute path has no empty component, and none that begins with a dot. Nearly every path is so, and then
/// its beginning alone says whether it leads to the disk.
#[must_use]
pub fn is_plain(path: &str) -> bool {
    // Eight pairs of neighbours at once: each request about a path checks this, some more than once. `.` and `/` differ
    // in the last bit only.
    const EACH: u64 = u64::MAX / 0xff;
    const SLASHES: u64 = EACH * b'/' as u64;
    const HIGHS: u64 = EACH << 7;
    let mut rest = path.as_bytes();
    while let Some(&[a, b, c, d, e, f, g, h, next]) = rest.first_chunk::<9>() {
        let these = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let next = (these >> 8) | (u64::from(next) << 56);
        let odd = (these ^ SLASHES) | ((next | EACH) ^ SLASHES);
        // Whether a byte of `odd` is zero.
        if odd.wrapping_sub(EACH) & !odd & HIGHS != 0 {
            return false;
        }
        rest = &rest[8..];
    }
    let mut pairs = rest.windows(2);
    !pairs.any(|pair| pair[0] == b'/' && matches!(pair[1], b'/' | b'.'))
}

/// Type bits of [`Attr::mode`], as Linux has them.
pub mod mode {
    /// Regular file.
    pub const FILE: u32 = 0o100_000;
    /// Directory.
    pub const DIRECTORY: u32 = 0o040_000;
    /// Symbolic link.
    pub const SYMLINK: u32 = 0o120_000;
    /// A device: `/dev/console`, `/dev/tty`, `/dev/null` (see [`super::CONSOLE_INO`]).
    pub const CHARACTER: u32 = 0o020_000;
    /// Mask of the type.
    pub const TYPE: u32 = 0o170_000;
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Attr {
    pub ino: Ino,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub atime_ns: u64,
    pub mtime_ns: u64,
    pub ctime_ns: u64,
}

impl Attr {
    /// The encoding in messages: the fields one after the other, little-endian. Attributes are requested more often
    /// than anything else.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ATTR_ROOM] {
        let [mode, links, uid, gid] = [self.mode, self.links, self.uid, self.gid].map(u64::from);
        let words = [
            self.ino,
            mode | links << 32,
            uid | gid << 32,
            self.size,
            self.atime_ns,
            self.mtime_ns,
            self.ctime_ns,
        ];
        let mut bytes = [0; ATTR_ROOM];
        let (places, _) = bytes.as_chunks_mut();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }
}

/// The ways to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// Make the file if it does not exist.
    pub create: bool,
    /// With `create`: refuse if it exists.
    pub exclusive: bool,
    /// Cut it to length 0.
    pub truncate: bool,
    /// Do not follow a symbolic link in the last place.
    pub nofollow: bool,
    /// A symbolic link in the last place that is not followed can be opened itself, for its attributes.
    pub symlink: bool,
    /// Make a file without a name, where the path leads to a directory; the file is deleted when no session has it
    /// open. The file system on the disk does not support this: `Unsupported`.
    pub nameless: bool,
}

impl Flags {
    /// Whether a symbolic link in the last place is followed: it is not where a new file must be made.
    #[must_use]
    pub const fn follows(&self) -> bool {
        !(self.nofollow || self.create && self.exclusive)
    }

    /// As a number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.create as u32
            | (self.exclusive as u32) << 1
            | (self.truncate as u32) << 2
            | (self.nofollow as u32) << 3
            | (self.symlink as u32) << 4
            | (self.nameless as u32) << 5
    }

    /// Whether opening with these flags may change the file system.
    #[must_use]
    pub const fn change(self) -> bool {
        self.create || self.truncate || self.nameless
    }

    /// From a number, if it stands for flags.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits >= 1 << 6 {
            return None;
        }
        Some(Flags {
            create: bits & 1 != 0,
            exclusive: bits & 2 != 0,
            truncate: bits & 4 != 0,
            nofollow: bits & 8 != 0,
            symlink: bits & 16 != 0,
            nameless: bits & 32 != 0,
        })
    }
}

/// The parts of its memory that a server shows ([`Files::memory`]).
pub mod part {
    /// The number of changes.
    pub const CHANGES: u32 = 0;
    /// Files that were written.
    pub const WRITTEN: u32 = 1;
    /// Files that came with the boot archive, and were not written since.
    pub const ARCHIVE: u32 = 2;
    /// The number of parts.
    pub const COUNT: u32 = 3;
}

/// Where a piece of a file lies in the memory of its server ([`Files::place`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The part of the memory ([`part`]).
    pub part: u32,
    /// Where its first byte is in that part.
    pub start: u64,
    /// How many bytes of the piece are stored there. Its other bytes, up to the file's end, are zero.
    pub length: u32,
    /// The size of the file in bytes.
    pub size: u64,
}

impl Place {
    /// Bits of the first word for where the piece begins.
    const START: u32 = 56;

    /// The answer of [`Files::place`] for this place.
    #[must_use]
    pub const fn to_words(self) -> (u64, u32, u64) {
        let first = (self.part as u64) << Self::START | self.start;
        (first, self.length, self.size)
    }

    /// From an answer of [`Files::place`].
    #[must_use]
    pub const fn from_words((first, length, size): (u64, u32, u64)) -> Self {
        Place {
            part: (first >> Self::START) as u32,
            start: first & ((1 << Self::START) - 1),
            length,
            size,
        }
    }

    /// What can be read of the file from `offset` on within the piece: how many bytes, how many of them are stored, and
    /// where these are in the part.
    #[must_use]
    pub const fn from(&self, offset: u64) -> (usize, usize, u64) {
        let within = offset % PIECE;
        let there = PIECE - within;
        let left = self.size.saturating_sub(offset);
        let count = if left < there { left } else { there };
        let stored = (self.length as u64).saturating_sub(within);
        let stored = if stored < count { stored } else { count };
        (count as usize, stored as usize, self.start + within)
    }
}

/// An opened file, as it was when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Opened {
    pub ino: Ino,
    pub mode: u32,
    pub size: u64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Entry {
    pub ino: Ino,
    pub mode: u32,
    pub name: String,
}

/// Most entries in one answer to `read_dir`: that many fit, however long their names.
pub const MAX_ENTRIES: usize = 60;
/// Room that an answer to `stat` or `attributes` needs: [`Attr::to_bytes`].
pub const ATTR_ROOM: usize = 56;
/// Longest name of an entry, in bytes.
pub const MAX_NAME: usize = 255;
/// Room that an answer to `read_dir` needs: a [`Listing`].
pub const ENTRIES_ROOM: usize = 16 * 1024;
/// Bytes of an entry of a list before its name.
pub const ENTRY_HEAD: usize = 14;
const _: () = assert!(8 + MAX_ENTRIES * (ENTRY_HEAD + MAX_NAME) <= ENTRIES_ROOM);
/// Room that an answer to `readlink` or `path_of` needs: a longer path cannot be opened.
pub const PATH_ROOM: usize = 4096;

/// A rename, and its effect on the paths that are kept of open files. A path that becomes longer than [`PATH_ROOM`] is
/// replaced by an empty one.
#[derive(Clone, Copy, Debug)]
pub struct Renamed<'a> {
    /// The old path.
    pub from: &'a str,
    /// The new path.
    pub to: &'a str,
}

impl Renamed<'_> {
    /// Overhead of an allocation in bytes.
    const PIECE: usize = 32;

    /// The length of a path after the rename; `None` if the rename does not concern it.
    fn length(&self, path: &str) -> Option<usize> {
        let rest = path.strip_prefix(self.from)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| self.to.len() + rest.len())
    }

    /// Memory needed to update these paths. It is reserved before the rename, after which the update must not fail.
    #[must_use]
    pub fn room<'p>(&self, paths: impl Iterator<Item = &'p String>) -> u64 {
        let more = |path: &String| {
            let length = self.length(path).filter(|length| *length <= PATH_ROOM);
            length.filter(|length| *length > path.capacity())
        };
        paths
            .filter_map(more)
            .map(|length| (length + Self::PIECE) as u64)
            .sum()
    }

    /// A path after the rename; `None` if the rename does not concern it, or it is too long.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn followed(&self, path: &str) -> Result<Option<String>, Error> {
        let Some(length) = self.length(path).filter(|length| *length <= PATH_ROOM) else {
            return Ok(None);
        };
        let mut followed = String::new();
        followed
            .try_reserve_exact(length)
            .map_err(|_| Error::NoMemory)?;
        followed.push_str(self.to);
        followed.push_str(&path[self.from.len()..]);
        Ok(Some(followed))
    }

    /// Updates a path.
    pub fn follow(&self, path: &mut String) {
        match self.length(path) {
            None => {}
            Some(length) if length > PATH_ROOM => *path = String::new(),
            Some(length) => {
                path.reserve_exact(length.saturating_sub(path.len()));
                path.replace_range(..self.from.len(), self.to);
            }
        }
    }
}

/// Most files that are closed by one request.
pub const MAX_CLOSED: usize = 64;

/// Decodes the inode numbers of a request [`Files::close_all`]: little-endian.
///
/// # Errors
/// [`Error::Invalid`] if the bytes are not whole numbers.
pub fn numbers(bytes: &[u8]) -> Result<impl Iterator<Item = Ino> + '_, Error> {
    match bytes.as_chunks() {
        (numbers, []) => Ok(numbers.iter().map(|number| u64::from_le_bytes(*number))),
        _ => Err(Error::Invalid),
    }
}

/// Two paths as one text, and the length of the first in bytes, as [`Files::rename`] and the like take them.
#[must_use]
pub fn pair(first: &str, second: &str) -> (u32, String) {
    let mut both = String::from(first);
    both.push_str(second);
    (first.len() as u32, both)
}

/// Open to every client. `file` is the inode number of a file that the session has open; other numbers are `NotFound`.
/// Methods that make something or write answer `NoMemory` when there is no more memory.
///
/// *Errors of paths*: `NotFound`; `NotDirectory` if a component before the last is no directory; `NameTooLong`; `Loop`
/// after too many symbolic links; `Invalid` for a path that is not absolute or has a zero byte; `Denied` for a name in
/// memory that the mount of the disk would hide. Any request about files on a disk can also answer `Broken` if the disk
/// does, `BadFormat` or `Unsupported` for a file system that is corrupt or that the server does not know, `Denied` for
/// one that is read only, and `NoMemory`.
/// A session that a restore has opened also answers `Restored`.
///
/// A server that has to wait for a disk implements [`FilesLater`].
#[interface(may_wait)]
pub trait Files {
    /// Opens a file or directory, and returns its inode number, mode and size. It is open until the session has closed
    /// it as often as it has opened it. Errors: those of paths; `Exists` if it is to be made and exists, `IsDirectory`
    /// if a directory is to be made or cut, `Loop` for a symbolic link that is not to be followed, `Invalid` for
    /// unknown flags, `Unsupported` for something on a disk that is neither file, directory nor symbolic link; `Limit`
    /// if the session has as many open as it may have. Must not be repeated.
    #[once]
    fn open_file(&self, flags: u32, mode: u32, path: &str) -> Result<(u64, u32, u64), Error>;
    /// Closes a file. Errors: `NotFound`. Must not be repeated.
    #[once]
    fn close(&self, file: u64) -> Result<(), Error>;
    /// Closes several files, each as often as its number occurs ([`numbers`]). Errors: `Invalid` if the bytes are not
    /// whole numbers; `NotFound` if one is not open; all others are closed then. Must not be repeated.
    #[once]
    #[bytes(8 * MAX_CLOSED)]
    fn close_all(&self, files: &[u8]) -> Result<(), Error>;
    /// Attributes by path ([`Attr::to_bytes`]). Errors: those of paths; `Invalid` if there is no room for them. May be
    /// repeated.
    fn stat(&self, follow: bool, path: &str) -> Result<Bytes, Error>;
    /// Attributes of an open file ([`Attr::to_bytes`]); the file system in memory also gives a server those of files
    /// that it has not open. Errors: `NotFound`; `Invalid` if there is no room for them. May be repeated.
    fn attributes(&self, file: u64) -> Result<Bytes, Error>;
    /// Reads at the offset as much as there is room for; nothing at the end. Errors: `NotFound`; `IsDirectory`,
    /// `Invalid` for a symbolic link, `Unsupported` for the console. May be repeated.
    fn read(&self, file: u64, offset: u64) -> Result<Bytes, Error>;
    /// Writes at the offset, and returns how many bytes: fewer if memory runs out meanwhile. Errors: those of `read`;
    /// `Invalid` also beyond the largest file; `NoMemory`. May be repeated: the same bytes are written again, over what
    /// another client wrote there in between. Clients that share a place in a file have to take turns; if the server
    /// kept each write in order to do it once, all others would pay for that.
    #[bytes(interface::MAX_BULK)]
    fn write(&self, file: u64, offset: u64, bytes: &[u8]) -> Result<u32, Error>;
    /// Writes at the end, and returns how many bytes, and where. Errors: those of `write`. Must not be repeated.
    #[once]
    #[bytes(interface::MAX_BULK)]
    fn append(&self, file: u64, bytes: &[u8]) -> Result<(u32, u64), Error>;
    /// Cuts or lengthens a file. Errors: `NotFound`; `IsDirectory`, `Invalid` for something that is no file or a size
    /// beyond the largest; `NoMemory`. Must not be repeated: others may have written behind the end by then.
    #[once]
    fn truncate(&self, file: u64, size: u64) -> Result<(), Error>;
    /// Entries of a directory from the cookie on (0 at first), `.` and `..` included, and the cookie of the next
    /// call, encoded; no entries at the end. Errors: `NotFound`, `NotDirectory`; `Invalid` if there is no room for
    /// them. May be repeated.
    fn read_dir(&self, file: u64, cookie: u64) -> Result<Bytes, Error>;
    /// Makes a directory. Errors: those of paths; `Exists`, `NoMemory`. Must not be repeated.
    #[once]
    fn mkdir(&self, mode: u32, path: &str) -> Result<(), Error>;
    /// Removes a name of something that is not a directory. Errors: those of paths; `IsDirectory`. Must not be
    /// repeated.
    #[once]
    fn unlink(&self, path: &str) -> Result<(), Error>;
    /// Removes an empty directory. Errors: those of paths; `NotDirectory`, `NotEmpty`; `Invalid` or `Denied` for a
    /// root or a path that ends in `.` or `..`. Must not be repeated.
    #[once]
    fn rmdir(&self, path: &str) -> Result<(), Error>;
    /// Renames the first of two paths (see [`pair`]) to the second. Errors: those of paths; `IsDirectory`,
    /// `NotDirectory`, `NotEmpty` if the first cannot replace what is at the second, `Invalid` for a directory into
    /// itself or if `first` is longer than `paths`, `Invalid` or `Denied` for a root, `NoMemory`. Must not be repeated.
    #[once]
    #[bytes(2 * PATH_ROOM)]
    fn rename(&self, first: u32, paths: &str) -> Result<(), Error>;
    /// Makes the second path another name of the file at the first. Errors: those of paths; `Denied` for a directory,
    /// `Exists`, `Limit` if the file has as many names as it may have, `Invalid` as of `rename`, `NoMemory`. Must not
    /// be repeated.
    #[once]
    #[bytes(2 * PATH_ROOM)]
    fn link(&self, first: u32, paths: &str) -> Result<(), Error>;
    /// Makes a symbolic link at the second path whose target is the first text. Errors: those of paths; `Exists`,
    /// `NotFound` for an empty text, `NameTooLong` for a long one, `Invalid` as of `rename`, `NoMemory`. Must not be
    /// repeated.
    #[once]
    #[bytes(2 * PATH_ROOM)]
    fn symlink(&self, first: u32, paths: &str) -> Result<(), Error>;
    /// The target of a symbolic link. Errors: those of paths; `Invalid` if the path leads to something else;
    /// `NameTooLong` if there is no room for it. May be repeated.
    fn readlink(&self, path: &str) -> Result<Bytes, Error>;
    /// The absolute path at which an open file is now; for servers as with `attributes`. Errors: `NotFound` also if the
    /// file has no name any more; `NameTooLong` if there is no room for it. May be repeated.
    fn path_of(&self, file: u64) -> Result<Bytes, Error>;
    /// Changes the permission bits. Errors: `NotFound`. Must not be repeated: others may have changed them by then.
    #[once]
    fn chmod(&self, file: u64, mode: u32) -> Result<(), Error>;
    /// Changes the owner. `u32::MAX` leaves it as it is. Errors: `NotFound`. Must not be repeated, as `chmod`.
    #[once]
    fn chown(&self, file: u64, uid: u32, gid: u32) -> Result<(), Error>;
    /// Changes the times. Errors: `NotFound`. Must not be repeated, as `chmod`.
    #[once]
    fn utimens(&self, file: u64, atime_ns: u64, mtime_ns: u64) -> Result<(), Error>;
    /// Bytes stored and files, and how many of both there can be: 0 if that depends on the memory that is left. Errors:
    /// none of its own. May be repeated.
    fn usage(&self) -> Result<(u64, u64, u64, u64), Error>;
    /// Returns when everything that was written, to any file, survives a loss of power, if files of this service do.
    /// Closing a file and changing names have the same effect. Errors: `NotFound`. May be repeated.
    fn sync(&self, file: u64) -> Result<(), Error>;
    /// The size in bytes of a part of the server's memory, one of [`part`], and its region, to be read. For servers and
    /// the shell only: reading the memory does not check that its owner still exists, and all files are in it. Errors:
    /// `Denied` for others, `Invalid` for an unknown part, `Unsupported` by a service that shows none, as that of the
    /// disk. May be repeated.
    ///
    /// [`part::CHANGES`] is one page: its first word counts requests, of any session, that may change what others see.
    /// It is incremented before such a request is answered, by one for each that is done, and for most that are
    /// refused. So a client that got an answer, and finds the count as it was before its request, would get the same
    /// answer now. Those requests are `open_file` with flags that [change something](Flags::change), `read`, `place`
    /// and `read_dir`, which change times, and all that make, write, cut, remove, rename or set.
    fn memory(&self, part: u32) -> Result<(u64, Ref), Error>;
    /// Where the piece of [`PIECE`] bytes with this offset is in that memory ([`Place::from_words`]), valid until
    /// something changes: a client that has read there, and finds the count of changes as before, has read the file's
    /// bytes. The file counts as read. Errors: those of `read`, and of `memory`. May be repeated.
    fn place(&self, file: u64, offset: u64) -> Result<(u64, u32, u64), Error>;
}

/// Decodes attributes.
///
/// # Errors
/// [`Error::Broken`] if the bytes are no attributes.
pub fn attr(bytes: &[u8]) -> Result<Attr, Error> {
    let (words, rest) = bytes.as_chunks();
    let &[ino, modes, owners, size, atime, mtime, ctime] = words else {
        return Err(Error::Broken);
    };
    if !rest.is_empty() {
        return Err(Error::Broken);
    }
    let [ino, modes, owners, size] = [ino, modes, owners, size].map(u64::from_le_bytes);
    let [atime_ns, mtime_ns, ctime_ns] = [atime, mtime, ctime].map(u64::from_le_bytes);
    Ok(Attr {
        ino,
        mode: modes as u32,
        links: (modes >> 32) as u32,
        uid: owners as u32,
        gid: (owners >> 32) as u32,
        size,
        atime_ns,
        mtime_ns,
        ctime_ns,
    })
}

/// Entries of a directory in their encoding: the next cookie, then of each entry its inode number, its mode and the
/// length of its name in eight, four and two bytes, little-endian, and its name.
#[derive(Debug)]
pub struct Listing {
    bytes: Vec<u8>,
    count: usize,
}

impl Listing {
    /// No entries.
    #[must_use]
    pub fn new() -> Self {
        let mut bytes = Vec::with_capacity(2048);
        bytes.resize(8, 0);
        Listing { bytes, count: 0 }
    }

    /// Whether there is no room for another entry.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.count >= MAX_ENTRIES
    }

    /// Adds an entry, whose name has at most [`MAX_NAME`] bytes.
    pub fn add(&mut self, ino: Ino, mode: u32, name: &str) {
        let mut head = [0; ENTRY_HEAD];
        head[..8].copy_from_slice(&ino.to_le_bytes());
        head[8..12].copy_from_slice(&mode.to_le_bytes());
        head[12..].copy_from_slice(&(name.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(name.as_bytes());
        self.count += 1;
    }

    /// The encoded list; `next` is the cookie of the next request.
    #[must_use]
    pub fn done(mut self, next: u64) -> Vec<u8> {
        if let Some(first) = self.bytes.first_chunk_mut() {
            *first = next.to_le_bytes();
        }
        self.bytes
    }
}

impl Default for Listing {
    fn default() -> Self {
        Listing::new()
    }
}

/// An entry in the bytes of an answer: inode number, mode and name.
pub type Listed<'a> = (Ino, u32, &'a str);

/// Decodes a listing: the next cookie, and the entries.
///
/// # Errors
/// As [`attr`], here and for each of them.
pub fn listing(
    bytes: &[u8],
) -> Result<(u64, impl Iterator<Item = Result<Listed<'_>, Error>>), Error> {
    let (next, mut rest) = bytes.split_first_chunk().ok_or(Error::Broken)?;
    let entries = core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let entry = listed(rest);
        rest = entry.map_or(&[], |(_, behind)| behind);
        Some(entry.map(|(entry, _)| entry).ok_or(Error::Broken))
    });
    Ok((u64::from_le_bytes(*next), entries))
}

/// The first entry, and the bytes behind it.
fn listed(bytes: &[u8]) -> Option<(Listed<'_>, &[u8])> {
    let (head, behind) = bytes.split_first_chunk::<ENTRY_HEAD>()?;
    let (ino, head) = head.split_first_chunk()?;
    let (mode, length) = head.split_first_chunk()?;
    let length = u16::from_le_bytes(*length.first_chunk()?);
    let (name, behind) = behind.split_at_checked(usize::from(length))?;
    let name = core::str::from_utf8(name).ok()?;
    let entry = (u64::from_le_bytes(*ino), u32::from_le_bytes(*mode), name);
    Some((entry, behind))
}

/// Decodes the entries and the next cookie of a listing.
///
/// # Errors
/// As [`attr`].
pub fn entries(bytes: &[u8]) -> Result<(Vec<Entry>, u64), Error> {
    let (next, listed) = listing(bytes)?;
    let own = |(ino, mode, name): Listed<'_>| Entry {
        ino,
        mode,
        name: name.into(),
    };
    let entries: Result<_, Error> = listed.map(|entry| entry.map(own)).collect();
    Ok((entries?, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_lead_where_they_say() {
        let words = [
            "disk", "disks", "dis", "a", "", ".", "..", "..disk", ".d", "disk.",
        ];
        let mut plain = 0;
        for one in words {
            for two in words {
                for three in words {
                    let path = alloc::format!("/{one}/{two}/{three}");
                    assert_eq!(is_on_disk(&path), on_disk(&path).is_some(), "{path}");
                    plain += usize::from(is_plain(&path));
                }
            }
        }
        // Four words and `disk.` in each place; the last one can be empty.
        assert_eq!(plain, 5 * 5 * 6);
        assert!(is_on_disk("/disk") && is_on_disk("/disk/") && !is_on_disk("/"));
    }

    #[test]
    fn odd_pairs_are_found_wherever_they_are() {
        for length in 1..30 {
            let path = alloc::format!("/a{}", "b".repeat(length));
            assert!(is_plain(&path), "{path}");
            for at in 1..path.len() - 1 {
                for odd in ["//", "/."] {
                    let mut path = path.clone();
                    path.replace_range(at..at + 2, odd);
                    assert!(!is_plain(&path), "{path}");
                }
                for well in ["/a", "a/", "..", ".-", "/0", "/-"] {
                    let mut path = path.clone();
                    path.replace_range(at..at + 2, well);
                    let is_odd = at == 1 && well.starts_with(['/', '.']);
                    assert_eq!(is_plain(&path), !is_odd, "{path}");
                }
            }
        }
    }

    #[test]
    fn entries_arrive_as_they_were() {
        let name = "n\u{e4}me".repeat(50);
        let sent: Vec<Entry> = (0..MAX_ENTRIES)
            .map(|n| Entry {
                ino: u64::MAX - n as u64,
                mode: u32::MAX - 7 * n as u32,
                name: name[..5 * (n % 50)].into(),
            })
            .collect();
        let to_bytes = |entries: &[Entry], next| {
            let mut listing = Listing::new();
            for Entry { ino, mode, name } in entries {
                assert!(!listing.is_full());
                listing.add(*ino, *mode, name);
            }
            assert_eq!(listing.is_full(), entries.len() == MAX_ENTRIES);
            listing.done(next)
        };
        for count in [0, 1, 2, MAX_ENTRIES] {
            let bytes = to_bytes(&sent[..count], 77 + count as u64);
            let came = entries(&bytes);
            assert_eq!(came, Ok((sent[..count].to_vec(), 77 + count as u64)));
            // An answer that is cut is invalid, unless it ends behind a whole entry.
            let wholes = (0..bytes.len()).filter(|end| entries(&bytes[..*end]).is_ok());
            assert_eq!(wholes.count(), count);
        }
        let mut wrong = to_bytes(&sent[1..2], 0);
        *wrong.last_mut().unwrap() = 0xff;
        assert!(entries(&wrong).is_err(), "a name that is no text");
    }

    #[test]
    fn attributes_arrive_as_they_were() {
        let sent = Attr {
            ino: u64::MAX - 1,
            mode: u32::MAX - 2,
            links: 3,
            uid: u32::MAX - 4,
            gid: 5,
            size: 6 << 40,
            atime_ns: 7,
            mtime_ns: u64::MAX,
            ctime_ns: 9,
        };
        let bytes = sent.to_bytes();
        assert_eq!(attr(&bytes), Ok(sent));
        for length in 0..ATTR_ROOM {
            assert!(attr(&bytes[..length]).is_err());
        }
        assert!(attr(&[&bytes[..], &[0; 8]].concat()).is_err());
    }
}
