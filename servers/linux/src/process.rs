//! What Linux keeps of a process beyond its memory and registers.
//!
//! A [`Task`] is one thread of execution. What `clone` can let tasks share stands beside it, in [`Shares`]: the
//! [`Memory`], the descriptors ([`Files`]), the [`Context`] in the file system, what is done with signals
//! ([`Actions`]). What belongs to the process as a whole and what others ask of it is in the table of all processes
//! ([`crate::system`]).
//!
//! A call works on the [`Current`] task: the task and all that it shares, borrowed for as long as the call takes.
//! Descriptors name open file descriptions, which hold the offset; duplicates and children have the same ones.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, Ref, RefCell, RefMut};
use serde::{Deserialize, Serialize};
use services::process::Pid;
use smallvec::SmallVec;

use crate::busy::Executed;
use crate::descriptors::Descriptors;
use crate::errno::{Errno, EBADF, EMFILE};
use crate::host::Host;
use crate::loading::Loading;
use crate::lock::Owner;
use crate::memory::{Areas, Kind as AreaKind, OfFile};
use crate::object::Uses;
use crate::proc::Folder;
use crate::signal::{Actions, Signals};
use crate::special::Reading;
use crate::system::{Key, Payer, System, Tid};
use crate::work::{Own, Spent};

/// Most descriptors of a process.
pub const MAX_FDS: u32 = 1024;
/// Longest name of a process in bytes: process lists have no room for more, and each process keeps its name.
pub const MAX_TITLE: usize = 1024;
/// Most refused calls of a process that are reported. There are fewer calls with names, and each one noted takes
/// memory.
pub const MAX_REPORTED: usize = 512;

/// Flags of `open` that stay with the file description.
pub mod open_flags {
    pub use linux_raw_sys::general::FASYNC;
    pub use linux_raw_sys::general::{
        __O_TMPFILE as TMPFILE, O_ACCMODE as ACCESS, O_APPEND as APPEND, O_CLOEXEC as CLOEXEC,
        O_CREAT as CREAT, O_DIRECTORY as DIRECTORY, O_DSYNC as DSYNC, O_EXCL as EXCL,
        O_LARGEFILE as LARGEFILE, O_NOFOLLOW as NOFOLLOW, O_NONBLOCK as NONBLOCK, O_PATH as PATH,
        O_RDWR as RDWR, O_TRUNC as TRUNC, O_WRONLY as WRONLY,
    };
    use linux_raw_sys::general::{O_DIRECT, O_NOATIME};

    /// Flags that `F_SETFL` can change.
    pub const SETTABLE: u32 = APPEND | NONBLOCK | FASYNC | O_DIRECT | O_NOATIME;
}

/// A device that this server provides itself.
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
    /// A text under `/proc` or `/sys`.
    Text(Box<Reading>),
    /// A directory under `/proc`, `/sys` or `/dev` that this server makes.
    Folder(Folder),
    /// An eventfd or timerfd.
    Counter {
        /// Its identity.
        id: u64,
        /// Its count or timer.
        counter: Counter,
    },
    /// Signals that are taken by reading (`signalfd`).
    Signals {
        /// Its identity.
        id: u64,
        /// The signals, as a mask.
        mask: u64,
    },
    /// An instance of `epoll`.
    Epoll {
        /// Its identity, under which it is in the table.
        id: u64,
    },
    /// A socket.
    Socket {
        /// Its identity, under which it is in the table.
        id: u64,
    },
    /// An instance of `inotify`.
    Inotify {
        /// Its identity, under which it is in the table.
        id: u64,
    },
    /// An end of a pseudo-terminal.
    Pty {
        /// Its number.
        number: u32,
        /// Its identity.
        id: u64,
        /// Whether it is the master's end.
        master: bool,
    },
    /// An end of a pipe.
    Pipe {
        /// The pipe's identity.
        id: u64,
        /// Which end, or both.
        end: End,
        /// For a FIFO, the inode of the file that is its name; that file is open.
        ino: Option<u64>,
        /// The pipe itself. An image has it once, by its identity.
        #[serde(skip)]
        pipe: Shared<Pipe>,
    },
}

impl Kind {
    /// Whether the description has an offset that can be set.
    #[must_use]
    pub const fn can_seek(&self) -> bool {
        self.key().is_none()
    }

    /// The key under which calls wait until this is ready; `None` if it is always ready.
    #[must_use]
    pub const fn key(&self) -> Option<Key> {
        match self {
            Kind::Device(Device::Console) => Some(Key::Console),
            Kind::Pipe { id, .. } => Some(Key::Pipe(*id)),
            Kind::Counter { id, .. } => Some(Key::Counter(*id)),
            Kind::Signals { id, .. } => Some(Key::Signals(*id)),
            Kind::Epoll { id } => Some(Key::Epoll(*id)),
            Kind::Socket { id } => Some(Key::Socket(*id)),
            Kind::Inotify { id } => Some(Key::Inotify(*id)),
            Kind::Pty { id, .. } => Some(Key::Pty(*id)),
            Kind::File { .. }
            | Kind::Directory { .. }
            | Kind::Device(_)
            | Kind::Text(_)
            | Kind::Folder(_) => None,
        }
    }

    /// The inode, for a file or directory.
    #[must_use]
    pub const fn ino(&self) -> Option<u64> {
        match self {
            Kind::File { ino } | Kind::Directory { ino, .. } => Some(*ino),
            Kind::Pipe { ino, .. } => *ino,
            _ => None,
        }
    }

    /// As [`Kind::ino`], to be changed.
    pub(crate) const fn ino_mut(&mut self) -> Option<&mut u64> {
        match self {
            Kind::File { ino } | Kind::Directory { ino, .. } => Some(ino),
            Kind::Pipe { ino, .. } => ino.as_mut(),
            _ => None,
        }
    }

    /// The pipe's identity, for an end of a pipe.
    #[must_use]
    pub const fn pipe(&self) -> Option<u64> {
        match self {
            Kind::Pipe { id, .. } => Some(*id),
            _ => None,
        }
    }
}

/// The state of an eventfd or timerfd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counter {
    /// An eventfd.
    Event {
        /// The sum of what was written and not read.
        count: u64,
        /// Whether each read takes 1 (`EFD_SEMAPHORE`).
        semaphore: bool,
    },
    /// A timerfd.
    Timer {
        /// Its clock (`CLOCK_*`).
        clock: u32,
        /// When it expires next, on the process's clock.
        next: Option<u64>,
        /// The interval in nanoseconds; 0 if it expires once.
        interval: u64,
        /// Whether it was set to a date: see [`Counter::keep_date`].
        by_date: bool,
    },
}

/// Which end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The read end.
    Read,
    /// The write end.
    Write,
    /// Both: a FIFO that is open for reading and writing.
    Both,
}

impl End {
    /// Whether it includes the read end.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, End::Write)
    }

    /// Whether it includes the write end.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, End::Read)
    }
}

/// Largest capacity of a pipe in bytes.
pub const PIPE_CAPACITY: usize = 64 << 10;
/// Most bytes that are written to a pipe atomically.
pub const PIPE_BUF: usize = 4096;

/// The contents of a pipe, and how many have its ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pipe {
    /// Bytes that were written and not yet read.
    pub bytes: VecDeque<u8>,
    /// Most bytes that it holds.
    pub capacity: usize,
    /// Open descriptions of the read end.
    pub readers: usize,
    /// Open descriptions of the write end.
    pub writers: usize,
    /// Whether the write end has ever been open.
    pub had_writer: bool,
    /// The payer that the pipe is charged to.
    pub payer: Payer,
}

impl Pipe {
    /// Counts one more open description of this end.
    pub fn open(&mut self, end: End) {
        self.readers += usize::from(end.reads());
        self.writers += usize::from(end.writes());
        self.had_writer |= end.writes();
    }

    /// How many bytes still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.bytes.len())
    }
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
    /// Flags, of [`open_flags`].
    pub flags: u32,
    /// Where the next read or write happens; for a directory, the number of entries handed out.
    pub offset: u64,
    /// The owner that signals are meant for (`F_SETOWN`).
    pub owner: Option<Box<AsyncOwner>>,
}

/// Who would get a signal when a description is ready (`O_ASYNC`). No such signal is sent; the setting is kept because
/// programs give up if they cannot make it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsyncOwner {
    /// Thread, process or group: [`AsyncOwner::PROCESS`] and the like.
    pub kind: u8,
    /// Its number as programs see it; 0 if there is none.
    pub number: u32,
    /// The signal to send; 0 for `SIGIO`.
    pub signal: u8,
}

impl AsyncOwner {
    /// `F_OWNER_TID`.
    pub const THREAD: u8 = 0;
    /// `F_OWNER_PID`.
    pub const PROCESS: u8 = 1;
    /// `F_OWNER_PGRP`.
    pub const GROUP: u8 = 2;

    /// Whether the setting is possible (one from an image may not be).
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.kind <= Self::GROUP
            && u32::from(self.signal) <= crate::signal::SIGNALS
            && self.number <= i32::MAX as u32
    }
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

    /// Whether it only names a file (`O_PATH`).
    #[must_use]
    pub const fn is_path(&self) -> bool {
        self.flags & open_flags::PATH != 0
    }

    /// The inode, for a file or directory.
    #[must_use]
    pub fn ino(&self) -> Option<u64> {
        self.kind.ino()
    }

    /// Closes what the description is open on. Call this once, after the last reference to the description at `address`
    /// is gone.
    fn release(self, address: usize, system: &mut System, host: &mut dyn Host) {
        let is_told = system.busy.closed(&self);
        if !system.inotify.is_unwatched() {
            system.closed_watched(host, address, &self);
        }
        match self.kind {
            Kind::Epoll { id } => system.forget_epoll(id),
            Kind::Socket { id } => system.close_socket(id),
            Kind::Inotify { id } => system.forget_inotify(host, id),
            Kind::Pty { number, master, .. } => system.close_pty(number, master),
            _ => {}
        }
        if let Some(ino) = self.ino() {
            if !system.memfds.is_empty() && system.busy.descriptions(ino) == 0 {
                // A file of `memfd_create` has no name, so nobody can open it again.
                system.memfds.remove(&ino);
            }
            if is_told {
                let _ = host.fs(&crate::files::Request::Close { ino }, &[], &mut []);
            }
        }
        if let Kind::Pipe { id, end, pipe, .. } = self.kind {
            system.close_end(id, end, &pipe);
        }
    }
}

/// Something that tasks share, each as long as it needs it.
pub type Shared<T> = Rc<RefCell<T>>;

/// Wraps a value so that tasks can share it.
pub fn shared<T>(value: T) -> Shared<T> {
    Rc::new(RefCell::new(value))
}

/// A descriptor.
#[derive(Clone, Debug)]
pub struct Fd {
    /// The description behind it.
    pub description: Shared<Description>,
    /// Whether `execve` closes it.
    pub cloexec: bool,
}

/// A table of descriptors.
#[derive(Debug, Default)]
pub struct Files {
    /// The descriptors by number.
    pub fds: Descriptors,
    /// The owner of its record locks ([`crate::lock::Owner`]); 0 until it has had one.
    pub owner: u64,
}

impl Clone for Files {
    /// A copy has none of the locks, as after `fork`.
    fn clone(&self) -> Self {
        Files {
            fds: self.fds.clone(),
            owner: 0,
        }
    }
}

impl Files {
    /// The lowest free descriptor from `from` on and below `limit`. Errors: `EMFILE`.
    pub fn lowest(&self, from: u32, limit: u32) -> Result<u32, Errno> {
        let free = self.fds.lowest(from);
        (free < limit.min(MAX_FDS)).then_some(free).ok_or(EMFILE)
    }

    /// The description behind a descriptor.
    pub fn get(&self, fd: u32) -> Result<Ref<'_, Description>, Errno> {
        Ok(self.fds.get(fd).ok_or(EBADF)?.description.borrow())
    }

    /// The description behind a descriptor.
    pub fn get_mut(&self, fd: u32) -> Result<RefMut<'_, Description>, Errno> {
        Ok(self.fds.get(fd).ok_or(EBADF)?.description.borrow_mut())
    }

    /// Puts a new description behind descriptor `fd`, which is free.
    pub fn install(&mut self, fd: u32, description: Description, cloexec: bool) {
        let description = shared(description);
        self.fds.insert(
            fd,
            Fd {
                description,
                cloexec,
            },
        );
    }

    /// Closes a descriptor. The description is closed with the last descriptor that refers to it, in any process.
    pub fn close(
        &mut self,
        system: &mut System,
        host: &mut dyn Host,
        fd: u32,
    ) -> Result<(), Errno> {
        if self.close_one(system, host, fd)? {
            system.clear_circles();
            release_dropped(system, host);
        }
        Ok(())
    }

    /// As [`Files::close`], but does not look for circles of sockets, which takes a pass over all sockets. Returns
    /// whether there may be one.
    fn close_one(
        &mut self,
        system: &mut System,
        host: &mut dyn Host,
        fd: u32,
    ) -> Result<bool, Errno> {
        let gone = self.fds.remove(fd).ok_or(EBADF)?.description;
        if self.owner != 0 {
            if let Some(ino) = gone.borrow().ino() {
                system.release_locks(Owner::Files(self.owner), ino);
            }
        }
        let is_socket = matches!(gone.borrow().kind, Kind::Socket { .. });
        system.dropped.push(gone);
        release_dropped(system, host);
        Ok(is_socket)
    }

    /// Closes everything that `which` selects.
    pub fn close_all(
        &mut self,
        system: &mut System,
        host: &mut dyn Host,
        which: impl Fn(&Fd) -> bool,
    ) {
        let fds: Vec<u32> = self
            .fds
            .iter()
            .filter(|(_, f)| which(f))
            .map(|(fd, _)| fd)
            .collect();
        self.close_these(system, host, fds);
    }

    /// Closes these descriptors, and then looks for circles of sockets once.
    pub fn close_these(
        &mut self,
        system: &mut System,
        host: &mut dyn Host,
        fds: impl IntoIterator<Item = u32>,
    ) {
        let mut sockets = false;
        for fd in fds {
            sockets |= self.close_one(system, host, fd) == Ok(true);
        }
        if sockets {
            system.clear_circles();
            release_dropped(system, host);
        }
    }
}

/// Closes the descriptions in `System::dropped` to which nobody else refers, and those that are dropped with them.
pub fn release_dropped(system: &mut System, host: &mut dyn Host) {
    while let Some(gone) = system.dropped.pop() {
        if !system.locks.is_empty() && Rc::strong_count(&gone) == 1 {
            system.release_description_locks(Rc::as_ptr(&gone).addr());
        }
        let address = Rc::as_ptr(&gone).addr();
        if let Some(description) = Rc::into_inner(gone) {
            system.forget_watches(address);
            description.into_inner().release(address, system, host);
        }
    }
}

/// What identifies a call that could not be completed yet: after a restore the very same call
/// comes again, from the same place with the same arguments.
pub type CallKey = [u64; 9];

/// The state of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The call. Any other call makes the state void.
    pub key: CallKey,
    /// The deadline on the process's clock, computed when the call first came.
    pub deadline: Option<u64>,
    /// How much of the call is done: bytes that the console has taken, or [`crate::futex::GRANTED`].
    pub progress: u64,
    /// Everything is written, and is still to be made durable.
    pub is_written: bool,
    /// How many answers about the network card there had been when the call asked for one.
    pub answers: Option<u64>,
}

impl Wait {
    /// The state of a call of which nothing is done yet.
    #[must_use]
    pub const fn new(key: CallKey) -> Self {
        Wait {
            key,
            deadline: None,
            progress: 0,
            is_written: false,
            answers: None,
        }
    }
}

/// User and group numbers: real, effective, saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Ids {
    pub uid: [u32; 3],
    pub gid: [u32; 3],
}

impl Ids {
    /// Whether the process has the powers of root.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.uid[1] == 0
    }

    /// User and group that own new files; `None` if both are root's.
    pub fn owner(&self) -> Option<(u32, u32)> {
        let (uid, gid) = (self.uid[1], self.gid[1]);
        ((uid, gid) != (0, 0)).then_some((uid, gid))
    }
}

/// The memory of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Its areas.
    pub areas: Areas,
    /// Where the heap begins.
    pub brk_start: u64,
    /// Where the heap ends.
    pub brk: u64,
    /// The program's name in process lists: its arguments, at most [`MAX_TITLE`] bytes.
    pub name: String,
    /// Absolute path of the executable.
    pub exe: String,
    /// References to the memory objects that it maps.
    #[serde(skip)]
    pub objects: Uses,
    /// The file of the program, which cannot be written meanwhile.
    #[serde(skip)]
    pub executed: Option<Rc<Executed>>,
    /// Where the arguments are, each with a zero byte behind it: address and length in bytes.
    pub args: (u64, u64),
    /// Where the environment is, likewise.
    pub environment: (u64, u64),
    /// Files, other than the program's, of which it has or had private mappings.
    pub mapped: Mapped,
}

/// Files of which a program has or had private mappings: its interpreter, its libraries, others. The mapped bytes
/// themselves are the program's own. The names are for `/proc/PID/maps`, and those of files with a path also for
/// whoever restores the program on another machine, where it may load more of these files. The list is bounded however
/// long a program maps files, since nobody is charged for it.
///
/// An image has the names only: an inode number means nothing in another boot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct Mapped(Vec<MappedFile>);

/// A file of which a program has or had private mappings.
#[derive(Clone, Debug)]
pub struct MappedFile {
    /// The path when it was mapped, followed by ` (deleted)` if the file had none any more. Shared by the processes
    /// that come of a `fork`.
    pub name: Rc<str>,
    /// The inode, if the file was mapped since the program was last restored.
    pub ino: Option<u64>,
}

impl MappedFile {
    /// Whether it had a path when it was mapped.
    #[must_use]
    pub fn had_path(&self) -> bool {
        !self.name.ends_with(Mapped::LOST)
    }
}

impl Mapped {
    /// Most files in the list. Further ones are unknown.
    pub const MOST: usize = 128;
    /// Most bytes of all names together.
    pub const BYTES: usize = 272 * Self::MOST;
    /// What follows the name of a file that was already removed.
    pub const LOST: &str = " (deleted)";

    /// Adds the file with this inode, of which a mapping beside `areas` is being made, and returns its number for
    /// [`OfFile`]. If there is no room it replaces a file that `areas` do not map.
    pub fn add(&mut self, areas: &Areas, ino: u64, name: &str) -> u16 {
        let is_it =
            |file: &MappedFile| *file.name == *name && file.ino.is_none_or(|its| its == ino);
        let known = self.0.iter().position(is_it);
        let kept: usize = self.0.iter().map(|file| file.name.len()).sum();
        let fits = |instead: usize| kept + name.len() <= Self::BYTES + instead;
        let next = self.0.len();
        let place = known.or_else(|| (next < Self::MOST && fits(0)).then_some(next));
        let unused = || {
            let place = self.unused(areas)?;
            fits(self.0.get(place)?.name.len()).then_some(place)
        };
        let Some(place) = place.or_else(unused) else {
            return OfFile::UNKNOWN;
        };
        match self.0.get_mut(place) {
            Some(file) if known.is_some() => file.ino = Some(ino),
            there => {
                let file = MappedFile {
                    name: name.into(),
                    ino: Some(ino),
                };
                match there {
                    Some(other) => *other = file,
                    None => self.0.push(file),
                }
            }
        }
        // The index is below `MOST`.
        place as u16 + 1
    }

    /// The index of a file that none of these areas maps.
    fn unused(&self, areas: &Areas) -> Option<usize> {
        let mut used = [false; Self::MOST];
        for area in areas.list() {
            if let AreaKind::Mapped(from) = area.kind {
                let place = usize::from(from.file).checked_sub(1);
                if let Some(used) = place.and_then(|place| used.get_mut(place)) {
                    *used = true;
                }
            }
        }
        used.iter().position(|used| !used)
    }

    /// The number for [`OfFile`] of the file with this inode, if it was mapped before.
    #[must_use]
    pub fn of_ino(&self, ino: u64) -> Option<u16> {
        let place = self.0.iter().position(|file| file.ino == Some(ino));
        place.map(|place| place as u16 + 1)
    }

    /// The file with this number of an [`OfFile`].
    #[must_use]
    pub fn get(&self, file: u16) -> Option<&MappedFile> {
        self.0.get(usize::from(file).checked_sub(1)?)
    }

    /// All files in the list.
    #[must_use]
    pub fn list(&self) -> &[MappedFile] {
        &self.0
    }

    /// The paths of the files that had one.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let with_path = self.0.iter().filter(|file| file.had_path());
        with_path.map(|file| &*file.name)
    }

    /// A list of any names.
    #[cfg(test)]
    pub(crate) fn forged(names: Vec<String>) -> Self {
        names.into()
    }

    /// Whether a program can have this list.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.0.len() <= Self::MOST && self.0.iter().all(|file| crate::path::is_sound(&file.name))
    }
}

impl From<Vec<String>> for Mapped {
    fn from(names: Vec<String>) -> Self {
        let files = names.into_iter().map(|name| MappedFile {
            name: name.into(),
            ino: None,
        });
        Mapped(files.collect())
    }
}

impl From<Mapped> for Vec<String> {
    fn from(mapped: Mapped) -> Self {
        mapped.0.iter().map(|file| (*file.name).into()).collect()
    }
}

/// Compares what an image has of the lists: the names.
impl PartialEq for Mapped {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&MappedFile, &MappedFile)| one.name == other.name;
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

impl Eq for Mapped {}

/// The place of a task in the file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Absolute path of the working directory.
    pub cwd: String,
    /// Permission bits that new files do not get.
    pub umask: u32,
}

/// What tasks can share.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Memory (`CLONE_VM`).
    pub memory: Shared<Memory>,
    /// Descriptor table (`CLONE_FILES`).
    pub files: Shared<Files>,
    /// Working directory and umask (`CLONE_FS`).
    pub context: Shared<Context>,
    /// Actions of signals (`CLONE_SIGHAND`).
    pub actions: Shared<Actions>,
}

impl Shares {
    /// Shares of a task that shares nothing with others, all empty.
    #[must_use]
    pub fn new(cwd: String) -> Self {
        Shares {
            memory: Shared::default(),
            files: Shared::default(),
            context: shared(Context { cwd, umask: 0o022 }),
            actions: Shared::default(),
        }
    }
}

/// A copy that nobody else refers to.
#[must_use]
pub fn copied<T: Clone>(original: &Shared<T>) -> Shared<T> {
    shared(original.borrow().clone())
}

/// What other processes can see of a task.
#[derive(Debug, Default)]
pub struct Shown {
    /// The name, padded with zeros.
    comm: Cell<[u8; Self::MAX_COMM]>,
    /// Processor time that the task has had.
    pub spent: Cell<Spent>,
}

impl Shown {
    /// Most bytes of the name of a thread.
    pub const MAX_COMM: usize = 15;

    /// Of a task with this name and processor time.
    #[must_use]
    pub fn new(comm: &[u8], spent: Spent) -> Rc<Self> {
        let shown = Shown {
            comm: Cell::default(),
            spent: Cell::new(spent),
        };
        shown.set_comm(comm);
        Rc::new(shown)
    }

    /// The name (`prctl(PR_SET_NAME)`).
    #[must_use]
    pub fn comm(&self) -> SmallVec<[u8; Self::MAX_COMM]> {
        let comm = self.comm.get();
        let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
        SmallVec::from_slice(name)
    }

    /// Sets the name: the bytes before the first zero byte, cut to [`Shown::MAX_COMM`].
    pub fn set_comm(&self, name: &[u8]) {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut comm = [0; Self::MAX_COMM];
        for (to, from) in comm.iter_mut().zip(name) {
            *to = *from;
        }
        self.comm.set(comm);
    }
}

/// A task: one thread of execution.
#[derive(Debug)]
pub struct Task {
    /// The identity in the table of all tasks ([`System`]).
    pub tid: Tid,
    /// The identity of its process in the table.
    pub pid: Pid,
    /// The number of its process as programs see it.
    pub number: u32,
    /// Its own number as programs see it; for the first task of a process, that of the process.
    pub thread: u32,
    /// What other processes can see of it.
    pub shown: Rc<Shown>,
    /// Its signals.
    pub signals: Signals,
    /// The state of its call, if that waits.
    pub wait: Option<Wait>,
    /// What its call has loaded so far. An image does not have it.
    pub loading: Option<Box<Loading>>,
    /// The signals that the call waits for (`rt_sigtimedwait`, `signalfd`) although they are blocked.
    pub awaits: u64,
    /// Address of its list of robust futexes (`set_robust_list`); 0 for none.
    pub robust: u64,
    /// Address of the word that is cleared, and as a futex woken, when the task ends (`set_tid_address`); 0 for none.
    pub clear_at: u64,
    /// Where its processor time is accounted.
    pub own: Own,
    /// Its clock minus the machine's, in nanoseconds. An image has this in the state of the space, not in the part.
    pub clock_offset: u64,
    /// What it can share with other tasks.
    pub shares: Shares,
}

impl Task {
    /// The task of a new process, with no memory and nothing open.
    #[must_use]
    pub fn new(pid: Pid, cwd: String) -> Self {
        Task {
            tid: pid,
            pid,
            number: pid,
            thread: pid,
            shown: Rc::default(),
            signals: Signals::default(),
            wait: None,
            loading: None,
            awaits: 0,
            robust: 0,
            clear_at: 0,
            own: Own::default(),
            clock_offset: 0,
            shares: Shares::new(cwd),
        }
    }

    /// The time on the task's clock.
    pub fn now(&self, host: &mut dyn Host) -> u64 {
        host.now().wrapping_add(self.clock_offset)
    }

    /// The name of its program, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.shares.memory.borrow().name.clone()
    }

    /// Closes its descriptors, unless other tasks share the table.
    pub fn close_files(&mut self, system: &mut System, host: &mut dyn Host) {
        let files = core::mem::take(&mut self.shares.files);
        if let Some(files) = Rc::into_inner(files) {
            files.into_inner().close_all(system, host, |_| true);
        }
    }
}

/// A task and all that it shares, for as long as a call takes.
pub struct Current<'a> {
    /// The task.
    pub task: &'a mut Task,
    /// Its memory.
    pub memory: RefMut<'a, Memory>,
    /// Its descriptors.
    pub files: RefMut<'a, Files>,
    /// Its place in the file system.
    pub context: RefMut<'a, Context>,
    /// What is done with its signals.
    pub actions: RefMut<'a, Actions>,
}

impl<'a> Current<'a> {
    /// Borrows everything in `shares`, which are those of `task`.
    pub fn new(task: &'a mut Task, shares: &'a Shares) -> Self {
        Current {
            task,
            memory: shares.memory.borrow_mut(),
            files: shares.files.borrow_mut(),
            context: shares.context.borrow_mut(),
            actions: shares.actions.borrow_mut(),
        }
    }
}
