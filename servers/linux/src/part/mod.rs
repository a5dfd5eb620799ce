//! What a checkpoint holds of processes beyond memory, registers and kernel objects.
//!
//! The part describes a *tree*: a process and all its descendants. It has a list of processes and of their tasks, and a
//! numbered list for each kind of thing that these share: memories, descriptor tables, working directories, signal
//! actions, open file descriptions, pipes, instances of `epoll`, sockets, files. Each thing is in the image once;
//! references name it by its number. So what was shared is shared again after a restore. Processes that have ended and
//! were not waited for are among the processes.
//!
//! What the tree shares with processes outside of it cannot be saved; [`save()`] names it ([`Refusal`]). An image that
//! is restored is hostile input: [`Rebuilding`] trusts nothing in it.
//!
//! * [`mod@save`] encodes a tree; [`mod@adopt`] restores it;
//! * [`bounds`] limits the counts of things; [`check`] has the other checks;
//! * [`mod@show`] describes the content for people;
//! * [`mod@inotify`] has instances of `inotify` and their watches;
//! * [`mod@file`] has files, which are named by path, since inode numbers mean nothing in another boot.

mod adopt;
mod bounds;
mod check;
mod file;
mod inotify;
mod save;
mod show;
#[cfg(test)]
pub(crate) mod tests;

pub use adopt::{adopt, Adopted, Member, Rebuilding, Seated};
pub use file::{MAX_CARRIED, MAX_UNLINKED};
pub use save::{save, Common, Gathered, Made, What};
pub use show::Shown;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use services::process::{Pid, Status};

use crate::calls::memfd::Memfd;
use crate::futex::Waiter;
use crate::host::Host;
use crate::ipc::{self, Ipc};
use crate::job::News;
use crate::lock::{Lock, Owner};
use crate::object::SavedObject;
use crate::process::{Context, Description, Memory, Wait};
use crate::pty::SavedPty;
use crate::signal::{Actions, Signals};
use crate::socket::Socket;
use crate::system::Process;
use crate::trace::Trace;
use crate::work::Spent;
use file::SavedFile;

/// Version of the format.
const VERSION: u32 = 26;
/// Most bytes of a part that is read: as many as a checkpoint can hold.
pub const MAX_PART: u64 = 4 << 20;
/// Most files of a tree, and most descriptors of a table.
const MAX_FILES: u32 = crate::process::MAX_FDS;
/// Most bytes of memory per encoded byte of a tree, growing lists included. The worst case is a description, each of
/// whose words can be encoded in one byte. A list that claims more elements than there are bytes left gets room for as
/// many elements as bytes are left; only one list at a time can claim that.
const DECODED: u64 = 80;
/// Bytes of memory per encoded byte for encoding a tree and reading it in pieces.
const ENCODED: u64 = 4;
/// Work of one turn, in descriptors that are looked at, written or opened.
const STEP: usize = 2000;
/// Cost of a file, in descriptors.
const FILE: usize = 64;
/// Cost of looking up a name, in descriptors.
const LOOK_UP: usize = 32;
/// The sentence for a tree that cannot be saved for lack of memory.
const OUT: &str = "memory is out";
/// The sentence for an image that no tree could have made.
const NONSENSE: &str = "its Linux part makes no sense";

#[derive(Serialize)]
struct Part<'a> {
    version: u32,
    /// The encoded [`Saved`] tree: its fields, one behind the other.
    tree: Bytes<'a>,
    /// The open files, by inode number as descriptions name them.
    files: Vec<(u64, SavedFile)>,
}

/// Bytes that are encoded in one piece and decoded as a slice.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// A tree without its open files. It is encoded as a tuple of the same fields.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Serialize))]
struct Saved {
    /// The first process is the root; each one comes behind its parent.
    processes: Vec<SavedProcess>,
    tasks: Vec<SavedTask>,
    /// In the order of the memory segments that are saved beside the part.
    memories: Vec<Memory>,
    contexts: Vec<Context>,
    actions: Vec<Actions>,
    /// Descriptor tables: descriptor, whether `execve` closes it, number of its description.
    tables: Vec<Vec<(u32, bool, u32)>>,
    descriptions: Vec<Description>,
    /// Identity, capacity, whether it ever had a writer, and content.
    pipes: Vec<(u64, u32, bool, Vec<u8>)>,
    /// Identity, and watches.
    epolls: Vec<(u64, Vec<SavedWatch>)>,
    sockets: Vec<SavedSocket>,
    /// The foreground group of the console, if one was named.
    foreground: Option<u32>,
    /// Locks on files, by rising file, owner and start.
    locks: Vec<SavedLock>,
    /// Seals and other data of the files of `memfd_create`, by inode number. Each file has one description and no name.
    memfds: Vec<(u64, Memfd)>,
    /// Memory objects by rising identity, in the order of the segments that are saved behind the memories.
    objects: Vec<SavedObject>,
    /// Pseudo-terminals by rising identity.
    ptys: Vec<SavedPty>,
    /// Paths of the executed programs, rising; and for each memory the index of its program, if that has a path.
    programs: Vec<String>,
    executed: Vec<Option<u32>>,
    /// Instances of `inotify` by rising identity.
    inotifies: Vec<inotify::SavedInotify>,
    /// Names of open files in watched directories.
    places: Vec<inotify::SavedPlace>,
    /// The tree's System V IPC, if it has any.
    ipc: Option<Ipc>,
    /// For each context, whether its working directory existed.
    directories: Vec<bool>,
    /// Date minus the processes' clock in nanoseconds when the tree was saved. The clock stands still until the
    /// restore.
    date: u64,
}

/// A process: its entry in the table of processes, and what is not encoded with that entry.
#[derive(Serialize, Deserialize)]
struct SavedProcess {
    process: Process,
    /// The index of its parent in the list.
    parent: Option<u32>,
    /// Its status and name, if it has ended.
    ended: Option<(Status, String)>,
    /// The signal that notifies its parent of its end.
    exit_signal: u32,
    /// Whether its parent waits until it has left the memory that both share (`vfork`).
    borrows: bool,
    /// The signal that has stopped it.
    stopped: Option<u32>,
    /// A stop or continuation that has not been reported to its parent yet.
    news: Option<News>,
    /// The place of its first thread in the control segment, if the first task has ended and others live.
    first: Option<u64>,
    /// The identity of its controlling terminal, if that is a pseudo-terminal.
    terminal: Option<u64>,
    /// Tasks that it traced and whose ends have not been reported to it yet: number and status.
    trace_ends: Vec<(u32, Status)>,
    /// What its end adds to semaphores: set, number of the semaphore, addend.
    undo: Vec<(i32, u16, i16)>,
}

/// A socket that is open, or that waits to be accepted.
#[derive(Serialize, Deserialize)]
struct SavedSocket {
    id: u64,
    socket: Socket,
    /// The path of the file that is its name.
    path: Option<String>,
    /// Whether other sockets can find it by its name.
    is_found: bool,
    /// Descriptors on their way to it: the index of the message in its queue, and the descriptions.
    rights: Vec<(u32, Vec<u32>)>,
}

/// A lock on a file.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct SavedLock {
    /// The file's inode number, as descriptions name it.
    ino: u64,
    owner: SavedOwner,
    /// First and last byte.
    start: u64,
    last: u64,
    exclusive: bool,
    /// Number of the process that asked for it, as programs see it.
    number: u32,
}

impl SavedLock {
    /// The lock with this owner.
    const fn of(&self, owner: Owner) -> Lock {
        Lock {
            owner,
            start: self.start,
            last: self.last,
            exclusive: self.exclusive,
            number: self.number,
        }
    }

    /// The lock with the numbers of its owner in the image instead of its owner.
    const fn numbered(&self) -> Lock {
        self.of(match self.owner {
            SavedOwner::Files(number) => Owner::Files(number as u64),
            SavedOwner::Description(number) => Owner::Description(number as usize),
            SavedOwner::Whole(number) => Owner::Whole(number as usize),
        })
    }
}

/// The owner of a lock: see [`crate::lock::Owner`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum SavedOwner {
    /// The table of descriptors with this number.
    Files(u32),
    /// The description with this number.
    Description(u32),
    /// The description with this number, for a lock by `flock`.
    Whole(u32),
}

/// A watch of an instance of `epoll`.
#[derive(Serialize, Deserialize)]
struct SavedWatch {
    fd: u32,
    /// The number of the description.
    description: u32,
    events: u32,
    data: u64,
    seen: u64,
    /// Its position in the ready list.
    place: Option<u32>,
}

/// A task.
#[derive(Serialize, Deserialize)]
struct SavedTask {
    /// The index of its process in the list.
    process: u32,
    /// Its own number as programs see it.
    number: u32,
    /// The numbers of its memory, descriptor table, context and actions.
    memory: u32,
    files: u32,
    context: u32,
    actions: u32,
    /// The place of its thread in the control segment of its memory.
    place: u64,
    comm: Vec<u8>,
    signals: Signals,
    wait: Option<Wait>,
    robust: u64,
    clear_at: u64,
    spent: Spent,
    /// The futex wait: address of the word, order of arrival, and how the task waits.
    waits_at: Option<(u64, u64, Waiter)>,
    /// The memory object that has the word, if one has; the address is then the offset in it.
    waits_in: Option<u64>,
    /// The owner of the lock that it waits for, by its number as programs see it.
    owner: Option<u32>,
    /// The index of its tracer in the list, and the state of the trace.
    trace: Option<(u32, Trace)>,
    /// The System V IPC for which it waits.
    awaits: Option<ipc::Wait>,
}

/// Why a tree cannot be saved or restored, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This sentence says why.
    Because(String),
    /// Its parent, which is this process, is not saved with it.
    Parent(Pid),
    /// It shares this with another process: see [`Common`].
    Shared(String),
    /// Not yet: a file on a disk is waited for, or one has been read or opened ([`Gathered`]).
    Later,
    /// Not yet: there is more to do when other programs have had a turn.
    Turn,
}

impl From<String> for Refusal {
    fn from(sentence: String) -> Self {
        Refusal::Because(sentence)
    }
}

impl From<&str> for Refusal {
    fn from(sentence: &str) -> Self {
        Refusal::Because(sentence.to_string())
    }
}

impl Refusal {
    /// The sentence for people. `name` is the name and number of the other process, if it is known; `is_elsewhere` says
    /// that this process is in another tree, so that naming both for one image does not help.
    #[must_use]
    pub fn sentence(&self, name: &str, is_elsewhere: bool) -> String {
        match self {
            Refusal::Because(sentence) => sentence.clone(),
            Refusal::Parent(_) => format!("its parent, {name}, is not saved with it"),
            Refusal::Shared(what) if is_elsewhere => format!(
                "it shares {what} with {name}, in another tree, which cannot be saved together with it"
            ),
            Refusal::Shared(what) => {
                format!("it shares {what} with {name}, which is not saved with it")
            }
            Refusal::Later | Refusal::Turn => "it is being saved".to_string(),
        }
    }
}

/// Reserves memory for saving.
fn room(host: &mut dyn Host, bytes: u64) -> Result<(), String> {
    host.room(bytes).map_err(|_| OUT.to_string())
}
