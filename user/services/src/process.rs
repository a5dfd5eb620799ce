//! Processes. Two servers manage them: `native` (in init) and `linux` (the personality).
//!
//! A manager's name gives use of it: who asks can start programs ([`Processes`]). **Power over a process is its
//! *control port***, the door of sessions of [`Process`], which comes back from there: whoever has it may pass it on, and
//! thereby the power. What a session holds (a process that it has frozen) it gives back when it ends.
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use interface::wire::Plain;
use interface::{interface, Error};
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Name of the ELF note that every native program carries, which tells it from a Linux program.
pub const NATIVE_NOTE: &str = "Fermata";

/// A process number, unique within its manager while the process or its status is kept.
pub type Pid = u32;

/// Where a standard stream goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// The console.
    Console,
    /// Nowhere; reads end at once.
    Null,
    /// A file.
    File {
        /// Absolute path.
        path: String,
        /// For output: make it if needed and write at its end; otherwise it is cut to nothing
        /// (and made) when opened for output.
        append: bool,
    },
}

/// What a native program finds at [`proto::layout::START_INFO`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Arguments; the first is the program's name.
    #[serde(deserialize_with = "few")]
    pub args: Vec<String>,
    /// Environment, `NAME=value`.
    #[serde(deserialize_with = "few")]
    pub env: Vec<String>,
    /// Standard input, output and error; empty means console.
    #[serde(deserialize_with = "few")]
    pub stdio: Vec<Stdio>,
    /// Path of the working directory.
    pub cwd: String,
}

/// Most arguments, strings of the environment, and streams.
pub const MAX_STRINGS: usize = 4096;

/// A list of at most [`MAX_STRINGS`]. An empty string is one byte of a message and 24 of a reader's memory.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<Vec<T>, D::Error> {
    struct Few<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX_STRINGS}")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                if all.len() == MAX_STRINGS {
                    return Err(A::Error::custom("too many"));
                }
                all.push(one);
            }
            Ok(all)
        }
    }
    reader.deserialize_seq(Few(PhantomData))
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Runs or waits.
    Running,
    /// Stopped by `stop`.
    Stopped,
    /// Ended by itself with this exit status.
    Exited(u8),
    /// Ended by this Linux signal number (9 for `kill`, 11 for a bad access, ...).
    Killed(u8),
}

/// A thread, as its exported state shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its `rip`.
    pub rip: u64,
    /// Its `rax`: the entrypoint that it is about to call, while it waits.
    pub rax: u64,
    /// `abi::state::Waiting` by number.
    pub waiting: u8,
    /// Stop count.
    pub stops: u32,
    /// 1 while an exception is delivered and not answered (for Linux: a Linux call, in `rax`).
    pub exception: u8,
}

/// A process, for `ps`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Info {
    /// Its number.
    pub pid: Pid,
    /// Command.
    pub name: String,
    /// Status.
    pub status: Status,
    /// Its threads; of very many the first ones.
    pub threads: Vec<Thread>,
    /// What each thread is about to do, in words, for people (same order as `threads`).
    pub doing: Vec<String>,
    /// Resident bytes.
    pub resident: u64,
    /// Kernel objects in its segments; of very many not all are counted.
    pub objects: u32,
}

impl Plain for Status {
    fn to_word(self) -> u64 {
        match self {
            Status::Running => 0,
            Status::Stopped => 1,
            Status::Exited(status) => 2 | u64::from(status) << 8,
            Status::Killed(signal) => 3 | u64::from(signal) << 8,
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        let value = (word >> 8) as u8;
        let status = match word as u8 {
            0 => Status::Running,
            1 => Status::Stopped,
            2 => Status::Exited(value),
            3 => Status::Killed(value),
            _ => return None,
        };
        (status.to_word() == word).then_some(status)
    }
}

impl Status {
    /// Whether the process has ended.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Status::Exited(_) | Status::Killed(_))
    }
}

/// Most processes of one job at each manager: of what a server or the shell has started, and of
/// all that was started by it in turn.
pub const MAX_JOB: usize = 32;
/// How a process is saved: any of these together.
pub mod keep {
    /// With what is in the files that it reads, too.
    pub const FILES: u32 = 1;
    /// As if everybody else had just closed what he has in common with it: a process of a tree of Linux programs is
    /// saved, with all that have come of it, as a tree of its own. If it is of another group than its parent, and so of
    /// a job, the others of that group are saved with it. Of native programs nothing is cut.
    pub const CUT: u32 = 2;
    /// All of them.
    pub const ALL: u32 = FILES | CUT;
}

/// Most bytes of a list of [`Named`]: the longest path, and more.
const MAX_NAMED: usize = 8192;
/// Most bytes of the length that such a list begins with.
const MAX_COUNT: usize = 3;

/// A file as it was when a process was frozen that has it open, executes or maps it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Named {
    /// Absolute path.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// When it was written, in nanoseconds.
    pub written: u64,
}

impl Named {
    /// As many of these as there is room for, encoded as a list, of which at most [`MAX_NAMED`] bytes: it takes time and memory for
    /// those alone, however many there are.
    #[must_use]
    pub fn to_bytes(files: &[Named], room: usize) -> Vec<u8> {
        let room = room.min(MAX_NAMED);
        let (mut count, mut encoded) = (0usize, Vec::new());
        for file in files {
            let Ok(one) = postcard::to_allocvec(file) else {
                break;
            };
            if encoded.len() + one.len() + MAX_COUNT > room {
                break;
            }
            encoded.extend(one);
            count += 1;
        }
        // A list begins with its length.
        let mut list = postcard::to_allocvec(&count).unwrap_or_default();
        list.append(&mut encoded);
        list
    }

    /// Such a list.
    ///
    /// # Errors
    /// [`Error::Broken`] if it is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Named>, Error> {
        postcard::from_bytes(bytes).map_err(|_| Error::Broken)
    }
}

/// Most memory objects that a Linux program and all that it starts share: a segment each.
pub const MAX_OBJECTS: usize = 128;
// Four sessions for each.
const _: () = assert!(interface::server::MAX_JOB_SESSIONS == 4 * MAX_JOB);

/// A program to be started, as [`Processes::spawn`] takes it, encoded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Absolute path of the executable.
    pub path: String,
    /// How it starts.
    pub start: Start,
}

impl Program {
    /// Encoded.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is longer than a request.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let bytes = postcard::to_allocvec(self).map_err(|_| Error::Invalid)?;
        (bytes.len() <= proto::MAX_BULK)
            .then_some(bytes)
            .ok_or(Error::Invalid)
    }

    /// As it came.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        postcard::from_bytes(bytes).map_err(|_| Error::Invalid)
    }
}

/// What everybody can ask of a manager, by its name.
#[interface]
pub trait Processes {
    /// Starts a [`Program`], encoded. Its number, and its control port. `owner` is the port at init of the process for
    /// whose job it counts; `native` passes what is in `passed` on to the program, at most `MAX_PASSED`. Errors: those of
    /// opening the file; `BadFormat`, `Limit` if the job has [`MAX_JOB`], `Denied` if `owner` is no such port. The file is
    /// waited for, however long that takes; if the process of `owner` ends meanwhile, nothing was started. Must not be
    /// repeated.
    #[bytes(proto::MAX_BULK)]
    async fn spawn(
        &self,
        owner: &RefAt,
        passed: &[RefAt],
        program: &[u8],
    ) -> Result<(u32, Ref), Error>;
    /// For a checkpointer: a process that is to be rebuilt, with empty segments, a space and a thread. It counts for the
    /// job of `owner`. Its number, and references: the control port, the port that is the keeper of the space,
    /// the memory region, the control region and, if the process itself will know it, its memory account. It is filled
    /// through these and by [`Process::populate`] and [`Process::rebuild`]; it is frozen until it is thawed. Errors: as
    /// those of `spawn`. Must not be repeated.
    #[once]
    fn adopt(&self, owner: &RefAt) -> Result<(u32, Refs), Error>;
    /// The number of the process whose control port this is. For a server that was given one: it must not call a port
    /// of which it does not know whose it is. Errors: `Denied` if it is none of this manager's. May be repeated.
    fn verify(&self, control: &RefAt) -> Result<u32, Error>;
    /// From now on all that this session starts for processes without a job (servers) counts as one job. Else each is a job
    /// of its own. Errors: `Unsupported` by `linux`. May be repeated.
    fn count_as_one(&self) -> Result<(), Error>;
}

/// Power over a process; its control port is the door. When it has been reaped all is `NotFound`.
#[interface]
pub trait Process {
    /// What it is doing. Errors: `NotFound`. May be repeated.
    fn status(&self) -> Result<Status, Error>;
    /// Waits until it does something else than this: what. Errors: `NotFound` also if it is reaped meanwhile. May be
    /// repeated.
    async fn changed(&self, from: Status) -> Result<Status, Error>;
    /// Waits until it has ended: how. Errors: as `changed`. May be repeated.
    async fn ended(&self) -> Result<Status, Error>;
    /// Forgets the process, which has ended: its number is free, its control port dies. Its status. Errors: `Invalid` if
    /// it has not ended. Must not be repeated.
    #[once]
    fn reap(&self) -> Result<Status, Error>;
    /// Ends it; when the reply comes it is gone (all of it but its status). Errors: `Ended`, `Denied` for a server.
    /// Must not be repeated.
    async fn kill(&self) -> Result<(), Error>;
    /// Stops all its threads. Errors: as `kill`, and `Limit`. Must not be repeated.
    #[once]
    fn stop(&self) -> Result<(), Error>;
    /// Undoes one `stop`. Errors: `Ended`, `Invalid`. Must not be repeated.
    #[once]
    fn go_on(&self) -> Result<(), Error>;
    /// Somebody typed Ctrl-C, or Ctrl-Z (`suspend`), while it had the console. Whether it is told: one with job control
    /// of its own, and any Linux program of Ctrl-C, gets the signal that Linux would send; else who asks does what
    /// there is to do. Errors: `Ended`. Must not be repeated.
    #[once]
    fn typed(&self, suspend: bool) -> Result<bool, Error>;
    /// Its [`Info`], encoded. Errors: `Limit` if there is no room for it. May be repeated.
    fn info(&self) -> Result<Bytes, Error>;
    /// For a checkpointer: stops the threads, completes nothing for the process until it is thawed, and makes the
    /// manager's part of its state, in the ways of [`mod@keep`]; `linux` does so for the process and all that have come
    /// of it, together. The length of that, the name of the process, and references: memory and control region, and if
    /// the process itself knows it its memory account. What is stopped or goes on meanwhile does so when it is thawed.
    /// Thawed when the session ends at the latest. Errors: `Denied` for a server or a program that runs in the kernel,
    /// `Ended`, `Invalid` for an unknown way, `Limit` while it is frozen already, `Unsupported` if it cannot be saved.
    /// Files that are open on a disk are waited for while the process stands still. Must not be repeated.
    async fn freeze(&self, how: u32) -> Result<(u64, Bytes, Refs), Error>;
    /// The manager's part from this offset on, as much as there is room for, while it is frozen by this session. Errors:
    /// `Invalid`. May be repeated.
    fn part(&self, offset: u64) -> Result<Bytes, Error>;
    /// Of a process that this session has frozen, and that has several memories: the name, and memory and control
    /// region, of the one with this number, from 1 on (0 is what `freeze` gave); of memory that is nobody's own, which
    /// they share, only the memory region. Errors: `Invalid`, `NotFound` behind the last one. May be repeated.
    fn member(&self, number: u32) -> Result<(Bytes, Refs), Error>;
    /// For a checkpointer, while it is frozen by this session: a frozen copy of its memory with this number as it is
    /// now, which stays as it is when the process goes on ([`crate::memory::AccountControl::freeze`]). References:
    /// region and control port of the copy, and the port of its account; the copy ends when nobody has that. Errors:
    /// `Invalid` if it is not frozen, `NotFound` if there is no such memory; `Limit` if that has such a copy, is too
    /// scattered or has objects in too many of its chunks, `NoMemory`. Must not be repeated.
    #[once]
    fn copy(&self, number: u32) -> Result<Refs, Error>;
    /// While it is frozen by this session: files of which its part has the name only, those that it has open, executes
    /// or maps. [`Named`], encoded as a list, from this one on, as many as there is room for; none behind the last one.
    /// Errors: `Invalid`. May be repeated.
    fn files(&self, from: u32) -> Result<Bytes, Error>;
    /// Undoes one `freeze` of this session; or lets a process go that was rebuilt. Errors: `Invalid`; `BadFormat` if what was
    /// rebuilt is not whole. Must not be repeated.
    #[once]
    fn thaw(&self) -> Result<(), Error>;
    /// While it is being rebuilt: one memory more, with empty segments, a space and a thread; or, if `shared`, one that
    /// the others share, which is an empty segment. Its number, from 1 on, and references: the memory region and,
    /// unless it is shared, the control region and the port that is the keeper of the space. Those that are shared come
    /// last. Errors: `Invalid`, `Unsupported` by a manager whose processes have one, `Limit`, `NoMemory`. Must not be
    /// repeated.
    #[once]
    fn adopt_member(&self, shared: bool) -> Result<(u32, Refs), Error>;
    /// While it is being rebuilt: makes pages of the memory with this number present, of the control segment or of
    /// memory, so that touching them cannot fail. Offset and size are in bytes, multiples of the page size. Errors:
    /// `NoMemory`; `Invalid` also if it is more than [`MAX_POPULATE`]: nobody else is answered meanwhile. May be
    /// repeated.
    fn populate(&self, member: u32, control: bool, offset: u64, size: u64) -> Result<(), Error>;
    /// While it is being rebuilt: the port of the supplier of the memory with this number
    /// ([`crate::memory::Supplier`]), so that the process can go on before all of that is there. Errors: `Invalid`,
    /// `NotFound` if there is no such memory, `Unsupported` by a manager that touches the memory of its processes
    /// itself. May be repeated.
    fn supplier(&self, member: u32) -> Result<Ref, Error>;
    /// While it is being rebuilt: a piece of the manager's part, of `length` bytes in all, which belongs behind
    /// those before. When all is there it is checked; a part that makes no sense ends the process. `clock_offset`
    /// is added to the machine's clock for this process. With the last piece its files are opened, and a disk is
    /// waited for. Errors: `Invalid` if it is not being rebuilt, `BadFormat` for a part that makes no sense,
    /// `Ended`. Must not be repeated.
    #[bytes(proto::MAX_BULK)]
    async fn rebuild(
        &self,
        offset: u64,
        length: u64,
        clock_offset: u64,
        piece: &[u8],
    ) -> Result<(), Error>;
    /// Why the last `freeze`, `thaw`, `adopt_member` or `rebuild` of this session was refused, in a sentence for people of
    /// at most [`MAX_WHY`] bytes, or as much of it as there is room for; empty if it was not, or if the error says all.
    /// There may be names in it that programs have chosen. Told also when the process is not there any more. Errors: none
    /// of its own. May be repeated.
    fn why(&self) -> Result<Bytes, Error>;
}

/// Most bytes of a sentence of [`Process::why`].
pub const MAX_WHY: usize = 512;

/// Power over a process for a debugger: its control port is the door of these sessions, too, and there is one of them
/// at a time. What a session has done is undone when it ends, however it ends: threads go on, breakpoints are out, and
/// exceptions that were taken are met again. When the process has ended all is `Ended`, and `NotFound` when it has been
/// reaped.
///
/// A thread is known by its *spot*: its offset in the control region, or, with [`IN_MEMORY`] added, in the memory region.
#[interface]
pub trait Debug {
    /// Memory and control region. Registers and memory are read and written through these, while the threads stand
    /// still. Errors: none of its own. May be repeated.
    fn regions(&self) -> Result<Refs, Error>;
    /// All threads stand still for the debugger. Whoever else has stopped them does not notice. Errors: none of its own. May be repeated.
    fn hold(&self) -> Result<(), Error>;
    /// The thread at this spot goes on, or all for [`EVERY`], as far as they stand still for the debugger. Errors:
    /// `NotFound` if there is no such thread. Must not be repeated.
    #[once]
    fn let_run(&self, spot: u64) -> Result<(), Error>;
    /// The threads: [`Spotted`] for each, encoded as a list. Errors: `Limit` if there is no room for it. May be repeated.
    fn threads(&self) -> Result<Bytes, Error>;
    /// The next exception that was taken of one of the threads, which stands still: its spot, the `abi::Exception`, and
    /// the address that it is about. It is as if the exception had not been: a thread that goes on meets it again,
    /// unless it was a single step. Calls of Linux programs are not taken. Errors: `NotFound` if there is none. Must
    /// not be repeated.
    #[once]
    fn taken(&self) -> Result<(u64, u64, u64), Error>;
    /// Waits until more exceptions than this many were taken, or the process has ended: how many, and how it has ended
    /// or [`Status::Running`]. Who waits is told that also if it is reaped at once. For a further session, which debugs
    /// nothing and can be opened at any time. Errors: none of its own. May be repeated.
    async fn more_taken(&self, seen: u64) -> Result<(u64, Status), Error>;
    /// What was taken of the thread at this spot is met by the process after all, as if it was not debugged. Errors:
    /// `NotFound` if nothing was taken of that since it last went on. Must not be repeated.
    #[once]
    fn pass(&self, spot: u64) -> Result<(), Error>;
    /// Puts a breakpoint into memory at this offset of the memory region, or takes it out. Others who have the page do
    /// not see it, nor do images and children. Errors: `Invalid` if there is no such offset, `Limit` for one more than
    /// [`MAX_BREAKPOINTS`], `NoMemory`. May be repeated.
    fn breakpoint(&self, offset: u64, set: bool) -> Result<(), Error>;
    /// Makes pages of the memory region present and the process's own, so that touching them cannot fail: offset and size in bytes,
    /// multiples of the page size. Errors: `NoMemory`; `Invalid` also if it is more than [`MAX_POPULATE`]. May be repeated.
    fn make_present(&self, offset: u64, size: u64) -> Result<(), Error>;
    /// Undoes all, as the end of the session does. Errors: none of its own. May be repeated.
    fn leave(&self) -> Result<(), Error>;
    /// Watches so many bytes at an address of the process for an access, `WRITE`, `READ` or both of `abi::access`,
    /// or no longer. Their pages lack the right to that in the process's mappings, and nowhere else: who touches
    /// them meets an `abi::Exception::Memory`, which is taken, wherever in the page that is. What the manager itself
    /// has done for a thread to the bytes that are watched is taken as [`TOUCHED`]. To be called while all threads
    /// stand still. Errors: `NotFound` if nothing is mapped there, `Invalid` for no bytes, more than a page or
    /// another access, `Limit` for one more than [`MAX_WATCHES`], `NoMemory`: then others in the same mapping may
    /// be watched no longer, also after one has been taken away. May be repeated.
    fn watch(&self, address: u64, size: u64, access: u64, set: bool) -> Result<(), Error>;
    /// The watched page that has this address has its rights for the moment, or lacks them again. Errors: `NotFound`
    /// if nothing there is watched. May be repeated.
    fn give(&self, address: u64, given: bool) -> Result<(), Error>;
    /// The thread at this spot stops behind its next instruction, or behind the call that it is in; or no longer. No image
    /// has that. To be called while it stands still. Errors: `NotFound` if there is no such thread. May be repeated.
    fn step(&self, spot: u64, steps: bool) -> Result<(), Error>;
}

/// With the access (of `abi::access`) added, stands instead of an exception: the manager has done that to watched
/// bytes in a call of the thread. The address is that of the first of them, and the thread stands still behind the
/// call.
pub const TOUCHED: u64 = 1 << 32;
/// Most watches of a process.
pub const MAX_WATCHES: usize = 32;

/// Part of the spot of a thread: it is in the memory region.
pub const IN_MEMORY: u64 = 1 << 63;
/// Stands for the spots of all threads.
pub const EVERY: u64 = u64::MAX;
/// Most breakpoints of a process.
pub const MAX_BREAKPOINTS: usize = 256;

/// A thread of a process that is debugged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spotted {
    /// Its spot.
    pub spot: u64,
    /// What it is about to do, in words, for people.
    pub doing: String,
}

/// All processes of a manager: at its supervisor port, which it hands to init when it registers its name, and which
/// init gives to whoever has the system port ([`crate::system`]).
#[interface(shared)]
pub trait Supervisor {
    /// [`Info`], encoded, of the first process that has this number or a higher one. Errors: `NotFound` if there is none,
    /// `Limit` if there is no room. May be repeated.
    fn next(&self, from: u32) -> Result<Bytes, Error>;
    /// The control port of the process with this number. Errors: `NotFound`. May be repeated.
    fn control(&self, pid: u32) -> Result<Ref, Error>;
}

/// Most bytes of one [`Process::populate`].
pub const MAX_POPULATE: u64 = 64 << 10;

/// Room for what comes in bytes: an [`Info`], a part.
pub const ROOM: usize = proto::MAX_BULK;

/// Encoded, if there is room for it.
///
/// # Errors
/// [`Error::Limit`] if there is none.
pub fn encoded(info: &Info, room: usize) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_allocvec(info).map_err(|_| Error::NoMemory)?;
    (bytes.len() <= room).then_some(bytes).ok_or(Error::Limit)
}

/// As it came.
///
/// # Errors
/// [`Error::Broken`] if it is none.
pub fn info(bytes: &[u8]) -> Result<Info, Error> {
    postcard::from_bytes(bytes).map_err(|_| Error::Broken)
}

#[cfg(test)]
mod tests {
    use super::{Named, Status, MAX_NAMED};
    use alloc::format;
    use alloc::vec::Vec;
    use interface::wire::Plain;

    #[test]
    fn files_are_told_in_pieces() {
        let named = |n: u64| Named {
            path: format!("/{n}/{}", "x".repeat(n as usize * 4)),
            size: n,
            written: u64::MAX - n,
        };
        let files: Vec<Named> = (0..1000).map(named).collect();
        for room in [0, 2, 40, 300, MAX_NAMED, usize::MAX] {
            let (mut told, mut pieces) = (0, 0);
            loop {
                let piece = Named::to_bytes(&files[told..], room);
                assert!(
                    piece.len() <= room.clamp(1, MAX_NAMED),
                    "{room}: {}",
                    piece.len()
                );
                let more = Named::from_bytes(&piece).expect("a list");
                assert_eq!(more, files[told..told + more.len()], "{room}");
                told += more.len();
                pieces += 1;
                if more.is_empty() {
                    break;
                }
            }
            let all = told == files.len();
            assert_eq!(all, room >= MAX_NAMED, "{room}: {told} in {pieces}");
            assert!(!all || pieces < 350, "{room}: {pieces} pieces");
        }
    }

    #[test]
    fn a_status_is_a_word() {
        for status in [
            Status::Running,
            Status::Stopped,
            Status::Exited(0),
            Status::Exited(255),
            Status::Killed(9),
        ] {
            assert_eq!(Status::from_word(status.to_word()), Some(status));
        }
        for word in [4, 0x100, 0x101, 0x1_0002, u64::MAX] {
            assert_eq!(Status::from_word(word), None);
        }
    }
}
