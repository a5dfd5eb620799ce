//! Processes. Two servers manage them: `native` (in init) and `linux` (the personality).
//!
//! The name of a manager gives access to [`Processes`], by which programs are started. **Power over a process is its
//! *control port***, the door of sessions of [`Process`], which the manager returns: its holder may pass it on, and
//! with it the power. A session that ends gives back what it holds (a process that it has frozen).
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use interface::wire::Plain;
use interface::{interface, Error};
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Name of the ELF note that every native program carries, which distinguishes it from a Linux program.
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
        /// For output: make it if needed and write at its end; otherwise it is made or cut to length 0 when opened for
        /// output.
        append: bool,
    },
}

/// The start information of a native program, at [`proto::layout::START_INFO`].
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

/// A list of at most [`MAX_STRINGS`]. The limit is needed since an empty string is one byte of a message and 24 of the
/// reader's memory.
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
    /// Its `rax`: the number of the call that it is in, while it waits.
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
    /// Its threads, or the first ones of very many.
    pub threads: Vec<Thread>,
    /// What each thread is about to do, in words, for people (same order as `threads`).
    pub doing: Vec<String>,
    /// Resident bytes.
    pub resident: u64,
    /// Kernel objects in its segments; very many are not all counted.
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

/// Most processes of one job at each manager: a process that a server or the shell has started, and all that it has
/// started in turn.
pub const MAX_JOB: usize = 32;
/// How a process is saved: any of these together.
pub mod keep {
    /// With the contents of the files that it reads, too.
    pub const FILES: u32 = 1;
    /// As if all other processes had just closed what they share with it: a process of a tree of Linux programs is
    /// saved, with all its descendants, as a tree of its own. If its process group is not that of its parent, the
    /// others of that group (a shell's job) are saved with it. Has no effect on native programs.
    pub const CUT: u32 = 2;
    /// All of them.
    pub const ALL: u32 = FILES | CUT;
}

/// Most bytes of a list of [`Named`]: the longest path, and more.
const MAX_NAMED: usize = 8192;
/// Most bytes of the length that such a list begins with.
const MAX_COUNT: usize = 3;

/// A file that a frozen process has open, executes or maps, as it was at the freeze.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Named {
    /// Absolute path.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds.
    pub written: u64,
}

impl Named {
    /// Encodes as many of these as there is room for, as a list of at most [`MAX_NAMED`] bytes: so the time and memory
    /// that this takes are bounded, however many files there are.
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

    /// Decodes such a list.
    ///
    /// # Errors
    /// [`Error::Broken`] if the bytes are no such list.
    pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Named>, Error> {
        postcard::from_bytes(bytes).map_err(|_| Error::Broken)
    }
}

/// Most memory objects that a Linux program and all that it starts share: a segment each.
pub const MAX_OBJECTS: usize = 128;
// Four sessions for each process of a job.
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
    /// Encodes it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is longer than a request.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let bytes = postcard::to_allocvec(self).map_err(|_| Error::Invalid)?;
        (bytes.len() <= proto::MAX_BULK)
            .then_some(bytes)
            .ok_or(Error::Invalid)
    }

    /// Decodes it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the bytes are no program.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        postcard::from_bytes(bytes).map_err(|_| Error::Invalid)
    }
}

/// Open to every client, by the manager's name.
#[interface]
pub trait Processes {
    /// Starts a [`Program`], encoded. Returns the number of the process, and its control port. The process counts for
    /// the job of the process whose port at init is `owner`; `native` passes the references in `passed` on to the
    /// program, at most `MAX_PASSED`. Errors: those of opening the file; `BadFormat`, `Limit` if the job has
    /// [`MAX_JOB`], `Denied` if `owner` is no such port. The request waits for the file, however long that takes; if
    /// the process of `owner` ends meanwhile, nothing is started. Must not be repeated.
    #[bytes(proto::MAX_BULK)]
    async fn spawn(
        &self,
        owner: &RefAt,
        passed: &[RefAt],
        program: &[u8],
    ) -> Result<(u32, Ref), Error>;
    /// For a checkpointer: makes a process that is to be rebuilt, with empty segments, a space and a thread. It counts
    /// for the job of `owner`. Returns its number, and references: the control port, the port that is the keeper of the
    /// space, the memory region, the control region and, if the process itself will have a reference to it, its memory
    /// account. The caller fills the process through these and by [`Process::populate`] and [`Process::rebuild`]; it is
    /// frozen until it is thawed. Errors: as those of `spawn`. Must not be repeated.
    #[once]
    fn adopt(&self, owner: &RefAt) -> Result<(u32, Refs), Error>;
    /// The number of the process whose control port this is. For a server that got one from a client: it must not call
    /// a port before it knows whose it is. Errors: `Denied` if it is no control port of this manager. May be repeated.
    fn verify(&self, control: &RefAt) -> Result<u32, Error>;
    /// From now on all processes that this session starts for owners without a job (servers) count as one job.
    /// Otherwise each is a job of its own. Errors: `Unsupported` by `linux`. May be repeated.
    fn count_as_one(&self) -> Result<(), Error>;
}

/// Power over a process; its control port is the door. When the process has been reaped all requests are `NotFound`.
#[interface]
pub trait Process {
    /// The status of the process. Errors: `NotFound`. May be repeated.
    fn status(&self) -> Result<Status, Error>;
    /// Waits until the status is another one than `from`, and returns it. Errors: `NotFound` also if the process is
    /// reaped meanwhile. May be repeated.
    async fn changed(&self, from: Status) -> Result<Status, Error>;
    /// Waits until the process has ended, and returns its final status. Errors: as `changed`. May be repeated.
    async fn ended(&self) -> Result<Status, Error>;
    /// Reaps the process, which has ended: its number is free, its control port dies. Returns its status. Errors:
    /// `Invalid` if it has not ended. Must not be repeated.
    #[once]
    fn reap(&self) -> Result<Status, Error>;
    /// Ends the process; when the reply comes it is gone, except for its status. Errors: `Ended`, `Denied` for a
    /// server. Must not be repeated.
    async fn kill(&self) -> Result<(), Error>;
    /// Stops all threads of the process. Errors: as `kill`, and `Limit`. Must not be repeated.
    #[once]
    fn stop(&self) -> Result<(), Error>;
    /// Undoes one `stop`. Errors: `Ended`, `Invalid`. Must not be repeated.
    #[once]
    fn go_on(&self) -> Result<(), Error>;
    /// Tells the manager that the user typed Ctrl-C, or Ctrl-Z (`suspend`), while the process had the console. Returns
    /// whether the process gets the signal that Linux would send: a Linux process with job control of its own does, and
    /// any Linux program for Ctrl-C. Otherwise the caller has to end or stop the process. Errors: `Ended`. Must not be
    /// repeated.
    #[once]
    fn typed(&self, suspend: bool) -> Result<bool, Error>;
    /// The [`Info`] of the process, encoded. Errors: `Limit` if there is no room for it. May be repeated.
    fn info(&self) -> Result<Bytes, Error>;
    /// For a checkpointer: stops the threads, completes no request of the process until it is thawed, and makes the
    /// manager's part of its state, in the ways of [`mod@keep`]; `linux` does so for the process and all its
    /// descendants together. Returns the length of the part, the name of the process, and references: memory and
    /// control region and, if the process itself has a reference to it, its memory account. A `stop` or `go_on`
    /// meanwhile takes effect when the process is thawed. The process is thawed when the session ends at the latest.
    /// Errors: `Denied` for a server or a program that runs in the kernel, `Ended`, `Invalid` for an unknown way,
    /// `Limit` while it is frozen already, `Unsupported` if it cannot be saved. The request waits for the disk if the
    /// process has files open on it, while the process is stopped. Must not be repeated.
    async fn freeze(&self, how: u32) -> Result<(u64, Bytes, Refs), Error>;
    /// While this session has frozen the process: the manager's part from this offset on, as much as there is room for.
    /// Errors: `Invalid`. May be repeated.
    fn part(&self, offset: u64) -> Result<Bytes, Error>;
    /// While this session has frozen the process, which has several memories: the name, and memory and control region,
    /// of the memory with this number, from 1 on (`freeze` gave number 0); for memory that several of them share, only
    /// the memory region. Errors: `Invalid`, `NotFound` behind the last one. May be repeated.
    fn member(&self, number: u32) -> Result<(Bytes, Refs), Error>;
    /// For a checkpointer, while this session has frozen the process: makes a frozen copy of its memory with this
    /// number ([`crate::memory::AccountControl::freeze`]), which does not change when the process continues. Returns
    /// region and control port of the copy, and the port of its account; the copy ends when nothing refers to that
    /// port. Errors: `Invalid` if the process is not frozen, `NotFound` if there is no such memory; `Limit` if the
    /// memory has such a copy, is too scattered or has objects in too many of its chunks, `NoMemory`. Must not be
    /// repeated.
    #[once]
    fn copy(&self, number: u32) -> Result<Refs, Error>;
    /// While this session has frozen the process: files that it has open, executes or maps and of which its part has
    /// only the name. A list of [`Named`], encoded, from this index on, as many as there is room for; none behind the
    /// last one. Errors: `Invalid`. May be repeated.
    fn files(&self, from: u32) -> Result<Bytes, Error>;
    /// Undoes one `freeze` of this session, or starts a process that was rebuilt. Errors: `Invalid`; `BadFormat` if the
    /// rebuilt process is not complete. Must not be repeated.
    #[once]
    fn thaw(&self) -> Result<(), Error>;
    /// While the process is being rebuilt: adds a memory, with empty segments, a space and a thread; or, if `shared`,
    /// an empty segment that others share. Returns its number, from 1 on, and references: the memory region and, unless
    /// it is shared, the control region and the port that is the keeper of the space. Shared ones are added last.
    /// Errors: `Invalid`, `Unsupported` by a manager whose processes have one memory, `Limit`, `NoMemory`. Must not be
    /// repeated.
    #[once]
    fn adopt_member(&self, shared: bool) -> Result<(u32, Refs), Error>;
    /// While the process is being rebuilt: makes pages of the memory with this number present, in its control segment
    /// or its memory segment, so that touching them cannot fail. Offset and size are in bytes, multiples of the page
    /// size. Errors: `NoMemory`; `Invalid` also for more than [`MAX_POPULATE`] bytes, since the manager answers nobody
    /// else meanwhile. May be repeated.
    fn populate(&self, member: u32, control: bool, offset: u64, size: u64) -> Result<(), Error>;
    /// While the process is being rebuilt: the port of the supplier ([`crate::memory::Supplier`]) of the memory with
    /// this number, so that the process can run before all of the memory has been read. Errors: `Invalid`, `NotFound`
    /// if there is no such memory, `Unsupported` by a manager that touches the memory of its processes itself. May be
    /// repeated.
    fn supplier(&self, member: u32) -> Result<Ref, Error>;
    /// While the process is being rebuilt: the next piece of the manager's part, which has `length` bytes in all. The
    /// manager checks the complete part; an invalid one ends the process. `clock_offset` is added to the machine's
    /// clock for this process. With the last piece the manager opens the files, and waits for a disk. Errors: `Invalid`
    /// if the process is not being rebuilt, `BadFormat` for an invalid part, `Ended`. Must not be repeated.
    #[bytes(proto::MAX_BULK)]
    async fn rebuild(
        &self,
        offset: u64,
        length: u64,
        clock_offset: u64,
        piece: &[u8],
    ) -> Result<(), Error>;
    /// Why the last `freeze`, `thaw`, `adopt_member` or `rebuild` of this session was refused, in a sentence for people
    /// of at most [`MAX_WHY`] bytes, or as much of it as there is room for; empty if none was, or if the error says
    /// all. The sentence can have names in it that programs have chosen. Works also when the process is gone. Errors:
    /// none of its own. May be repeated.
    fn why(&self) -> Result<Bytes, Error>;
    /// What the process has said to who started it, from this offset on, as much as there is room for; [`MAX_SAID`]
    /// bytes at most in all. Only the program that was started says this, and nobody else reads it: a Linux program by
    /// writing to `/proc/self/said`, until it calls `execve`. Errors: `NotFound`, `NoMemory`. May be repeated.
    fn said(&self, offset: u32) -> Result<Bytes, Error>;
}

/// Most bytes of a sentence of [`Process::why`].
pub const MAX_WHY: usize = 512;
/// Most bytes of what a process says by [`Process::said`].
pub const MAX_SAID: usize = 36 << 10;

/// Power over a process for a debugger: its control port is the door of these sessions, too, and there is one of them
/// at a time. When a session ends, for whatever reason, its effects are undone: threads continue, breakpoints are
/// removed, and threads meet taken exceptions again. When the process has ended all requests are `Ended`, and
/// `NotFound` when it has been reaped.
///
/// A thread is named by its *spot*: its offset in the control region, or, with [`IN_MEMORY`] added, in the memory
/// region.
#[interface]
pub trait Debug {
    /// Memory and control region, through which the debugger reads and writes registers and memory while the threads
    /// are stopped. They are different ones when a Linux program has continued with another program (`execve`); its
    /// breakpoints and watchpoints are gone then. Errors: none of its own. May be repeated.
    fn regions(&self) -> Result<Refs, Error>;
    /// Stops all threads for the debugger. This is independent of other stops of the process. Errors: none of its own.
    /// May be repeated.
    fn hold(&self) -> Result<(), Error>;
    /// Lets the thread at this spot continue, or all for [`EVERY`], as far as they are stopped for the debugger.
    /// Errors: `NotFound` if there is no such thread. Must not be repeated.
    #[once]
    fn let_run(&self, spot: u64) -> Result<(), Error>;
    /// The threads: [`Spotted`] for each, encoded as a list. Errors: `Limit` if there is no room for it. May be
    /// repeated.
    fn threads(&self) -> Result<Bytes, Error>;
    /// The next exception that was taken from a thread, which is stopped: the thread's spot, the `abi::Exception`, and
    /// the address concerned. The exception has no other effect: a thread that continues meets it again, unless it was
    /// a single step. Calls of Linux programs are not taken. Errors: `NotFound` if there is none. Must not be repeated.
    #[once]
    fn taken(&self) -> Result<(u64, u64, u64), Error>;
    /// Waits until more than `seen` exceptions were taken, or the process has ended. Returns the count, and the final
    /// status or [`Status::Running`]; also if the process is reaped at once. For a further session, which does not
    /// debug and can be opened at any time. Errors: none of its own. May be repeated.
    async fn more_taken(&self, seen: u64) -> Result<(u64, Status), Error>;
    /// Delivers the exception taken from the thread at this spot to the process, as if it were not debugged. Errors:
    /// `NotFound` if none was taken from the thread since it last continued. Must not be repeated.
    #[once]
    fn pass(&self, spot: u64) -> Result<(), Error>;
    /// Puts a breakpoint into memory at this offset of the memory region, or removes it. Other processes with the page
    /// do not see it, nor do images and children. Errors: `Invalid` if there is no such offset, `Limit` for one more
    /// than [`MAX_BREAKPOINTS`], `NoMemory`. May be repeated.
    fn breakpoint(&self, offset: u64, set: bool) -> Result<(), Error>;
    /// Makes pages of the memory region present and private to the process, so that touching them cannot fail. Offset
    /// and size are in bytes, multiples of the page size. Errors: `NoMemory`; `Invalid` also for more than
    /// [`MAX_POPULATE`] bytes. May be repeated.
    fn make_present(&self, offset: u64, size: u64) -> Result<(), Error>;
    /// Undoes all effects of the session, as its end does. Errors: none of its own. May be repeated.
    fn leave(&self) -> Result<(), Error>;
    /// Watches `size` bytes at an address of the process for an access, `WRITE`, `READ` or both of `abi::access`, or
    /// ends that. The process's mappings, and no others, lack the right to the access for the pages of these bytes: a
    /// thread that so accesses any byte of the pages meets an `abi::Exception::Memory`, which is taken. An access to
    /// the watched bytes by the manager itself, in a call of a thread, is taken as [`TOUCHED`]. To be called while all
    /// threads are stopped. Errors: `NotFound` if nothing is mapped there, `Invalid` for no bytes, more than a page or
    /// another access, `Limit` for one more than [`MAX_WATCHES`], `NoMemory`; after that, other watches in the same
    /// mapping may have ended, also if the request removed one. May be repeated.
    fn watch(&self, address: u64, size: u64, access: u64, set: bool) -> Result<(), Error>;
    /// Gives the watched page with this address its rights for the moment, or takes them again. Errors: `NotFound` if
    /// nothing there is watched. May be repeated.
    fn give(&self, address: u64, given: bool) -> Result<(), Error>;
    /// Makes the thread at this spot stop behind its next instruction, or behind the call that it is in, or ends that.
    /// This is not saved in images. To be called while the thread is stopped. Errors: `NotFound` if there is no such
    /// thread. May be repeated.
    fn step(&self, spot: u64, steps: bool) -> Result<(), Error>;
}

/// With the access (of `abi::access`) added, takes the place of the exception: the manager has accessed watched bytes
/// in a call of the thread. The address is that of the first of them, and the thread is stopped behind the call.
pub const TOUCHED: u64 = 1 << 32;
/// Most watches of a process.
pub const MAX_WATCHES: usize = 32;

/// The bit of a spot that says that the thread is in the memory region.
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

/// All processes of a manager: at the manager's supervisor port, which it gives to init when it registers its name, and
/// which init gives to holders of the system port ([`crate::system`]).
#[interface(shared)]
pub trait Supervisor {
    /// [`Info`], encoded, of the first process with this number or a higher one. Errors: `NotFound` if there is none,
    /// `Limit` if there is no room. May be repeated.
    fn next(&self, from: u32) -> Result<Bytes, Error>;
    /// The control port of the process with this number. Errors: `NotFound`. May be repeated.
    fn control(&self, pid: u32) -> Result<Ref, Error>;
}

/// Most bytes of one [`Process::populate`].
pub const MAX_POPULATE: u64 = 64 << 10;

/// Room for bytes of replies: an [`Info`], a part.
pub const ROOM: usize = proto::MAX_BULK;

/// Encodes it, if there is room.
///
/// # Errors
/// [`Error::Limit`] if there is none.
pub fn encoded(info: &Info, room: usize) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_allocvec(info).map_err(|_| Error::NoMemory)?;
    (bytes.len() <= room).then_some(bytes).ok_or(Error::Limit)
}

/// Decodes it.
///
/// # Errors
/// [`Error::Broken`] if the bytes are no [`Info`].
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
