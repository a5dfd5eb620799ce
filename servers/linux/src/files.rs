//! The requests of the emulation to the file system, as values. A host passes them on to [`services::fs::Files`].

use alloc::string::String;
use services::fs::{Attr, Flags, Ino, Opened};

/// A request to the file system. The inode that a request names must be open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Request {
    /// Opens a file or directory, which stays open until it has been closed as often as it was opened. Reply: `Opened`.
    Open {
        path: String,
        flags: Flags,
        mode: u32,
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
    /// Writes the bulk, at the end of the file if `append`, else at `offset`. Reply: `Written`.
    Write {
        ino: Ino,
        offset: u64,
        append: bool,
    },
    Truncate {
        ino: Ino,
        size: u64,
    },
    /// Lists entries from the cookie on (0 at first), `.` and `..` included. Reply: `Done` with bulk, which
    /// [`services::fs::listing`] parses. The buffer needs [`services::fs::ENTRIES_ROOM`] bytes.
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
    /// The present absolute path of the inode. Reply: `Path`, or `NotFound` when it has no name any more.
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
    /// Used and available space of the memory or disk file system. Reply: `Usage`.
    Usage {
        on_disk: bool,
    },
    Sync {
        ino: Ino,
    },
}

impl Request {
    /// Whether repeating the request would have another effect or another answer.
    #[must_use]
    pub fn is_once(&self) -> bool {
        match self {
            Request::Mkdir { .. }
            | Request::Unlink { .. }
            | Request::Rmdir { .. }
            | Request::Rename { .. }
            | Request::Link { .. }
            | Request::Symlink { .. } => true,
            // Creating a file makes the caller its owner; opening an existing one does not.
            Request::Open { flags, .. } => flags.create,
            Request::Write { append, .. } => *append,
            Request::Close { .. }
            | Request::Stat { .. }
            | Request::StatIno { .. }
            | Request::Read { .. }
            | Request::Truncate { .. }
            | Request::ReadDir { .. }
            | Request::Readlink { .. }
            | Request::PathOf { .. }
            | Request::Chmod { .. }
            | Request::Chown { .. }
            | Request::Utimens { .. }
            | Request::Usage { .. }
            | Request::Sync { .. } => false,
        }
    }

    /// Whether the request goes to the file system on the disk, if the machine has one. `None`: it names two files, one
    /// of them on the disk and the other not.
    #[must_use]
    pub fn is_on_disk(&self) -> Option<bool> {
        use services::fs::{is_on_disk, ON_DISK};
        match self {
            Request::Open { path, .. }
            | Request::Stat { path, .. }
            | Request::Mkdir { path, .. }
            | Request::Unlink { path }
            | Request::Rmdir { path }
            | Request::Symlink { path, .. }
            | Request::Readlink { path } => Some(is_on_disk(path)),
            Request::Rename { from, to } | Request::Link { from, to } => {
                let disk = is_on_disk(from);
                (disk == is_on_disk(to)).then_some(disk)
            }
            Request::Close { ino }
            | Request::StatIno { ino }
            | Request::Read { ino, .. }
            | Request::Write { ino, .. }
            | Request::Truncate { ino, .. }
            | Request::ReadDir { ino, .. }
            | Request::PathOf { ino }
            | Request::Chmod { ino, .. }
            | Request::Chown { ino, .. }
            | Request::Utimens { ino, .. }
            | Request::Sync { ino } => Some(ino & ON_DISK != 0),
            Request::Usage { on_disk } => Some(*on_disk),
        }
    }
}

/// The reply to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reply {
    Done,
    Attr(Attr),
    Opened(Opened),
    /// `offset` is where the bytes were written.
    Written {
        length: u32,
        offset: u64,
    },
    Path(String),
    /// Bytes and files in use, and the most there can be; 0 if that depends on the memory that is free.
    Usage {
        bytes: u64,
        files: u64,
        most_bytes: u64,
        most_files: u64,
    },
}
