//! The file system in memory. Files are named by inode number; an inode lives while it has a name
//! or is open. All paths are absolute; `.` and `..` and symbolic links are resolved by the server.
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An inode number.
pub type Ino = u64;

/// The root directory.
pub const ROOT_INO: Ino = 1;
/// `/dev/console`: whoever opens it talks to the console server instead.
pub const CONSOLE_INO: Ino = 2;
/// `/dev/tty`: as [`CONSOLE_INO`].
pub const TTY_INO: Ino = 3;
/// `/dev/null`: the file system itself reads it as empty and takes whatever is written.
pub const NULL_INO: Ino = 4;
/// The first number of other files.
pub const FIRST_INO: Ino = 16;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// How to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// Make the file if it is not there.
    pub create: bool,
    /// With `create`: refuse if it is there.
    pub exclusive: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// Do not follow a symbolic link in the last place.
    pub nofollow: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Entry {
    pub ino: Ino,
    pub mode: u32,
    pub name: String,
}

/// What one can ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Request {
    /// Opens a file or directory: it lives until as many `Close`. Reply: `Attr`.
    Open {
        path: String,
        flags: Flags,
        mode: u32,
    },
    /// Opens once more by number. Reply: `Attr`.
    Reopen {
        ino: Ino,
    },
    Close {
        ino: Ino,
    },
    /// Reply: `Attr`.
    Stat {
        path: String,
        follow: bool,
    },
    /// Reply: `Attr`.
    StatIno {
        ino: Ino,
    },
    /// Reply: `Done` with bulk, empty at the end.
    Read {
        ino: Ino,
        offset: u64,
        length: u32,
    },
    /// Writes the bulk. `append`: at the end, whatever `offset`. Reply: `Written`.
    Write {
        ino: Ino,
        offset: u64,
        append: bool,
    },
    Truncate {
        ino: Ino,
        size: u64,
    },
    /// Entries from the cookie on (0 at first), `.` and `..` included. Reply: `Entries`.
    ReadDir {
        ino: Ino,
        cookie: u64,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    /// Reply: `Path`.
    Readlink {
        path: String,
    },
    /// The absolute path by which the inode can be found now. Reply: `Path`, or `NotFound` when it
    /// has no name any more.
    PathOf {
        ino: Ino,
    },
    Chmod {
        ino: Ino,
        mode: u32,
    },
    Chown {
        ino: Ino,
        uid: u32,
        gid: u32,
    },
    Utimens {
        ino: Ino,
        atime_ns: u64,
        mtime_ns: u64,
    },
    /// Bytes stored and files. Reply: `Usage`.
    Usage,
}

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Reply {
    Done,
    Attr(Attr),
    /// `offset` is where the bytes went.
    Written {
        length: u32,
        offset: u64,
    },
    /// With the cookie of the next call; empty at the end.
    Entries {
        entries: Vec<Entry>,
        next: u64,
    },
    Path(String),
    Usage {
        bytes: u64,
        files: u64,
    },
}
