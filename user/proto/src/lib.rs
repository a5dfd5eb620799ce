//! What Fermata's servers and programs have in common besides the interfaces: the errors, the most bytes of a message,
//! and how a process is laid out.
#![no_std]
#![forbid(unsafe_code)]

pub mod layout;

use serde::{Deserialize, Serialize};

/// Most bytes that go with a request or a reply.
pub const MAX_BULK: usize = 64 * 1024;

/// Why a service refused. The numbers of the Unix errors of the same meaning are in
/// [`Error::errno`], so that the Linux personality need not guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Error {
    /// No such file, process, name or segment.
    NotFound,
    /// It is there already.
    Exists,
    /// Not a directory.
    NotDirectory,
    /// Is a directory.
    IsDirectory,
    /// The directory is not empty.
    NotEmpty,
    /// An argument makes no sense.
    Invalid,
    /// Memory is out.
    NoMemory,
    /// Not allowed.
    Denied,
    /// Not now: there is nothing yet, no room for one more request, or the process is frozen. The method's
    /// documentation says which, and how to wait.
    WouldBlock,
    /// A name is too long.
    NameTooLong,
    /// Too many symbolic links.
    Loop,
    /// The file has no valid executable or image format.
    BadFormat,
    /// The process has ended; or a request was done before its client was saved, and the reference that it returned is
    /// lost.
    Ended,
    /// The operation is not supported.
    Unsupported,
    /// The server is gone or sent an invalid reply. It may be starting, for the first time or again.
    Broken,
    /// A limit on the number of such things has been reached.
    Limit,
    /// The other end does not want the connection.
    Refused,
    /// The other end has given up the connection.
    Reset,
    /// There is no way to that address.
    Unreachable,
    /// The request was not done, since the session is that of a restored program, and no image has what the program had
    /// opened in it. The program opens another session.
    Restored,
}

impl Error {
    /// All, in the order of their numbers.
    pub const ALL: [Error; 20] = [
        Error::NotFound,
        Error::Exists,
        Error::NotDirectory,
        Error::IsDirectory,
        Error::NotEmpty,
        Error::Invalid,
        Error::NoMemory,
        Error::Denied,
        Error::WouldBlock,
        Error::NameTooLong,
        Error::Loop,
        Error::BadFormat,
        Error::Ended,
        Error::Unsupported,
        Error::Broken,
        Error::Limit,
        Error::Refused,
        Error::Reset,
        Error::Unreachable,
        Error::Restored,
    ];

    /// The Linux error number (positive).
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Error::NotFound => 2,
            Error::Exists => 17,
            Error::NotDirectory => 20,
            Error::IsDirectory => 21,
            Error::NotEmpty => 39,
            Error::Invalid => 22,
            Error::NoMemory => 12,
            Error::Denied => 13,
            Error::WouldBlock => 11,
            Error::NameTooLong => 36,
            Error::Loop => 40,
            Error::BadFormat => 8,
            Error::Ended => 3,
            Error::Unsupported => 95,
            Error::Broken => 5,
            Error::Limit => 122,
            Error::Refused => 111,
            Error::Reset => 104,
            Error::Unreachable => 101,
            Error::Restored => 116,
        }
    }

    /// A sentence fragment for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Error::NotFound => "no such file or directory",
            Error::Exists => "exists already",
            Error::NotDirectory => "not a directory",
            Error::IsDirectory => "is a directory",
            Error::NotEmpty => "directory not empty",
            Error::Invalid => "invalid argument",
            Error::NoMemory => "out of memory",
            Error::Denied => "permission denied",
            Error::WouldBlock => "nothing there yet",
            Error::NameTooLong => "name too long",
            Error::Loop => "too many symbolic links",
            Error::BadFormat => "not in a valid format",
            Error::Ended => "has ended",
            Error::Unsupported => "not supported",
            Error::Broken => "the server does not answer sensibly",
            Error::Limit => "there are as many as there may be",
            Error::Refused => "connection refused",
            Error::Reset => "connection reset",
            Error::Unreachable => "network is unreachable",
            Error::Restored => "what was open is not open after a restore",
        }
    }
}
