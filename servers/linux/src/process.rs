//! What Linux keeps of a process beyond its memory and registers.
//!
//! A [`Process`] is plain data: it is what a checkpoint saves (see [`crate::part`]) and what the
//! calls work on. Descriptors name *descriptions*, which hold the offset, so that duplicates share
//! it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::errno::{Errno, EBADF, EMFILE};
use crate::host::Host;
use crate::memory::Areas;
use crate::signal::Signals;

/// Most descriptors of a process.
pub const MAX_FDS: u32 = 1024;
/// Most calls of a process that are reported: there are fewer that have names, and each takes memory.
pub const MAX_REPORTED: usize = 512;

/// Flags of `open` that stay with the description.
pub mod open_flags {
    pub use linux_raw_sys::general::{
        __O_TMPFILE as TMPFILE, O_ACCMODE as ACCESS, O_APPEND as APPEND, O_CLOEXEC as CLOEXEC,
        O_CREAT as CREAT, O_DIRECTORY as DIRECTORY, O_EXCL as EXCL, O_LARGEFILE as LARGEFILE,
        O_NOFOLLOW as NOFOLLOW, O_NONBLOCK as NONBLOCK, O_PATH as PATH, O_RDWR as RDWR,
        O_TRUNC as TRUNC, O_WRONLY as WRONLY,
    };
    use linux_raw_sys::general::{FASYNC, O_DIRECT, O_NOATIME};

    /// What `F_SETFL` can change.
    pub const SETTABLE: u32 = APPEND | NONBLOCK | FASYNC | O_DIRECT | O_NOATIME;
}

/// A device that the personality provides itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// `/dev/full`.
    Full,
    /// `/dev/random` and `/dev/urandom`.
    Random,
    /// `/dev/console` and `/dev/tty`.
    Console,
}

/// What a description is open on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File {
        /// Its inode.
        ino: u64,
    },
    /// A directory.
    Directory {
        /// Its inode.
        ino: u64,
        /// Entries that were read and not yet handed out: a program that removes what it finds
        /// must not miss others.
        pending: Vec<Entry>,
        /// Cookie from which to read more.
        cookie: u64,
    },
    /// A device.
    Device(Device),
    /// A text made when it was opened, under `/proc`.
    Text(Vec<u8>),
}

/// A directory entry that is yet to be handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Entry {
    pub ino: u64,
    pub mode: u32,
    pub name: String,
}

/// An open file description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// What it is open on.
    pub kind: Kind,
    /// Of [`open_flags`].
    pub flags: u32,
    /// Where the next read or write happens; for a directory, the number of entries handed out.
    pub offset: u64,
}

impl Description {
    /// Whether it may be read.
    #[must_use]
    pub fn readable(&self) -> bool {
        self.flags & open_flags::ACCESS != open_flags::WRONLY && self.flags & open_flags::PATH == 0
    }

    /// Whether it may be written.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.flags & open_flags::ACCESS != 0 && self.flags & open_flags::PATH == 0
    }

    /// The inode, for a file or directory.
    #[must_use]
    pub fn ino(&self) -> Option<u64> {
        match self.kind {
            Kind::File { ino } | Kind::Directory { ino, .. } => Some(ino),
            Kind::Device(_) | Kind::Text(_) => None,
        }
    }
}

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fd {
    /// The description's number.
    pub description: u32,
    /// Whether `execve` closes it.
    pub cloexec: bool,
}

/// Descriptors and descriptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// By descriptor.
    pub fds: BTreeMap<u32, Fd>,
    /// By number.
    pub descriptions: BTreeMap<u32, Description>,
}

impl Files {
    /// The lowest free descriptor from `from` on.
    pub fn lowest(&self, from: u32, limit: u32) -> Result<u32, Errno> {
        (from..limit.min(MAX_FDS))
            .find(|fd| !self.fds.contains_key(fd))
            .ok_or(EMFILE)
    }

    /// The description behind a descriptor.
    pub fn get(&self, fd: u32) -> Result<&Description, Errno> {
        self.fds
            .get(&fd)
            .and_then(|f| self.descriptions.get(&f.description))
            .ok_or(EBADF)
    }

    /// The description behind a descriptor.
    pub fn get_mut(&mut self, fd: u32) -> Result<&mut Description, Errno> {
        let number = self.fds.get(&fd).ok_or(EBADF)?.description;
        self.descriptions.get_mut(&number).ok_or(EBADF)
    }

    /// Puts a new description behind descriptor `fd`, which is free.
    pub fn install(&mut self, fd: u32, description: Description, cloexec: bool) {
        let number = (0..)
            .find(|n| !self.descriptions.contains_key(n))
            .unwrap_or(u32::MAX);
        self.descriptions.insert(number, description);
        self.fds.insert(
            fd,
            Fd {
                description: number,
                cloexec,
            },
        );
    }

    /// Closes a descriptor; with its last descriptor a description goes too.
    pub fn close(&mut self, host: &mut dyn Host, fd: u32) -> Result<(), Errno> {
        let gone = self.fds.remove(&fd).ok_or(EBADF)?.description;
        if self.fds.values().all(|f| f.description != gone) {
            if let Some(ino) = self.descriptions.remove(&gone).and_then(|d| d.ino()) {
                let _ = host.fs(&crate::files::Request::Close { ino }, &[], &mut []);
            }
        }
        Ok(())
    }

    /// Closes everything that `which` selects.
    pub fn close_all(&mut self, host: &mut dyn Host, which: impl Fn(&Fd) -> bool) {
        let fds: Vec<u32> = self
            .fds
            .iter()
            .filter(|(_, f)| which(f))
            .map(|(n, _)| *n)
            .collect();
        for fd in fds {
            let _ = self.close(host, fd);
        }
    }
}

/// What identifies a call that could not be completed yet: after a restore the very same call
/// comes again, from the same place with the same arguments.
pub type CallKey = [u64; 9];

/// What is kept of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Which call it belongs to. Any other call makes it void.
    pub key: CallKey,
    /// When it is over, on the process's clock. It was computed when the call first came.
    pub deadline: Option<u64>,
    /// How much of it is done (bytes that the console has taken).
    pub progress: u64,
}

/// User and group numbers: real, effective, saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Ids {
    pub uid: [u32; 3],
    pub gid: [u32; 3],
}

/// The timer of `alarm` and `setitimer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// When it goes off, on the process's clock.
    pub deadline: u64,
    /// After how many nanoseconds again; 0 for never.
    pub interval: u64,
}

/// A Linux process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, as it sees it itself.
    pub pid: u32,
    /// Its name in lists: its arguments.
    pub name: String,
    /// Absolute path of the executable.
    pub exe: String,
    /// Name of the thread (`prctl(PR_SET_NAME)`), at most 15 bytes.
    pub comm: Vec<u8>,
    /// Arguments.
    pub args: Vec<Vec<u8>>,
    /// Absolute path of the working directory.
    pub cwd: String,
    /// Permission bits that new files do not get.
    pub umask: u32,
    /// Users and groups.
    pub ids: Ids,
    /// Session and process group that it made itself, if it did.
    pub group: u32,
    /// Memory.
    pub areas: Areas,
    /// Where the heap begins.
    pub brk_start: u64,
    /// Where it ends now.
    pub brk: u64,
    /// Descriptors.
    pub files: Files,
    /// Signals.
    pub signals: Signals,
    /// The call that waits.
    pub wait: Option<Wait>,
    /// When it started, on its own clock.
    pub started: u64,
    /// What it set with `setrlimit`: soft and hard.
    pub limits: BTreeMap<u32, (u64, u64)>,
    /// The `struct termios` that it has set, if it has set one.
    pub termios: Option<Vec<u8>>,
    /// Timer.
    pub alarm: Option<Alarm>,
    /// Calls that were refused and reported.
    pub reported: BTreeSet<u64>,
    /// Its clock minus the machine's. An image has it in the state of the space, not in the part.
    #[serde(skip)]
    pub clock_offset: u64,
}

impl Process {
    /// A process without memory and descriptors.
    #[must_use]
    pub fn new(pid: u32, cwd: String) -> Self {
        Process {
            pid,
            name: String::new(),
            exe: String::new(),
            comm: Vec::new(),
            args: Vec::new(),
            cwd,
            umask: 0o022,
            ids: Ids::default(),
            group: pid,
            areas: Areas::default(),
            brk_start: 0,
            brk: 0,
            files: Files::default(),
            signals: Signals::default(),
            wait: None,
            started: 0,
            limits: BTreeMap::new(),
            termios: None,
            alarm: None,
            reported: BTreeSet::new(),
            clock_offset: 0,
        }
    }

    /// Whether it wants console input as it arrives, instead of line by line.
    #[must_use]
    pub fn reads_raw(&self) -> bool {
        use linux_raw_sys::general::ICANON;
        self.termios
            .as_ref()
            .is_some_and(|t| crate::wire::u32_at(t, 12) & ICANON == 0)
    }

    /// The process's clock.
    pub fn now(&self, host: &mut dyn Host) -> u64 {
        host.now().wrapping_add(self.clock_offset)
    }

    /// Ends everything outside its memory: files, and what it did to the console.
    pub fn end(&mut self, host: &mut dyn Host) {
        self.files.close_all(host, |_| true);
        if self.termios.take().is_some() {
            host.console_mode(false);
        }
    }
}
