//! What a checkpoint holds of processes beyond memory, registers and kernel objects.
//!
//! The part is that of a *tree*: a process and all that came of it. It is a list of processes and of their tasks, and a
//! numbered list for each kind of thing that these share: memories, tables of descriptors, places in the file system,
//! actions of signals, open file descriptions, pipes, instances of `epoll`, sockets, files. Each thing stands in the image once;
//! whatever has it names it by its number. So what was shared is shared again. Processes that have ended and were not
//! waited for are among the processes.
//!
//! What the tree shares with processes outside of it cannot be saved, and [`save()`] says what that is ([`Refusal`]). What comes
//! back is hostile input: [`Rebuilding`] believes nothing.
//!
//! * [`mod@save`]: the tree is taken apart; [`mod@adopt`]: it is put together;
//! * [`bounds`]: how many there can be of each thing; [`check`]: what an image must obey;
//! * [`mod@show`]: what is in it, for people;
//! * [`mod@inotify`]: instances of `inotify`, and what they watch;
//! * [`mod@file`]: files, which are named by path, since inode numbers mean nothing in another boot.

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

/// The format's version.
const VERSION: u32 = 26;
/// Longest part that is read: as long as a checkpoint can hold.
pub const MAX_PART: u64 = 4 << 20;
/// Most files of a tree, and most descriptors of a table.
const MAX_FILES: u32 = crate::process::MAX_FDS;
/// A tree takes at most so many times its encoded length, lists that grow included: what takes most is a description,
/// a byte for each of its words. A list that claims more elements than there are bytes left is believed for so many, and
/// only one at a time can.
const DECODED: u64 = 80;
/// What it takes to encode something, in times of its length, and to read it in pieces.
const ENCODED: u64 = 4;
/// So much is done at once, in descriptors that are looked at, written, or opened.
const STEP: usize = 2000;
/// What a file takes, in descriptors.
const FILE: usize = 64;
/// What it takes to look for a name, in descriptors.
const LOOK_UP: usize = 32;
/// Why a tree cannot be saved for want of memory.
const OUT: &str = "memory is out";
/// Why an image cannot be restored that no tree could have made.
const NONSENSE: &str = "its Linux part makes no sense";

#[derive(Serialize)]
struct Part<'a> {
    version: u32,
    /// The [`Saved`] tree, encoded: its fields, one behind the other.
    tree: Bytes<'a>,
    /// By inode number, as descriptions name it.
    files: Vec<(u64, SavedFile)>,
}

/// Bytes that are written in one piece. They are read as a slice.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// A tree without what its open files are. What is written is a tuple of the same fields.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Serialize))]
struct Saved {
    /// The first one is the root; each stands behind its parent.
    processes: Vec<SavedProcess>,
    tasks: Vec<SavedTask>,
    /// In the order of the segments that are saved beside the part.
    memories: Vec<Memory>,
    contexts: Vec<Context>,
    actions: Vec<Actions>,
    /// Tables of descriptors: descriptor, whether `execve` closes it, number of its description.
    tables: Vec<Vec<(u32, bool, u32)>>,
    descriptions: Vec<Description>,
    /// Identity, capacity, whether there has been a writer, and bytes.
    pipes: Vec<(u64, u32, bool, Vec<u8>)>,
    /// Identity, and what is watched.
    epolls: Vec<(u64, Vec<SavedWatch>)>,
    sockets: Vec<SavedSocket>,
    /// The group that has the console, if one was named.
    foreground: Option<u32>,
    /// Locks on files, by rising file, owner and place.
    locks: Vec<SavedLock>,
    /// By inode number, what is kept of the files of `memfd_create`. Each has one description and no name.
    memfds: Vec<(u64, Memfd)>,
    /// Memory objects, by rising identity: in the order of the segments that are saved behind the memories.
    objects: Vec<SavedObject>,
    /// Pseudo-terminals, by rising identity.
    ptys: Vec<SavedPty>,
    /// Paths of the programs that are executed, rising, and of each memory which one it executes, if that has a name.
    programs: Vec<String>,
    executed: Vec<Option<u32>>,
    /// Instances of `inotify`, by rising identity.
    inotifies: Vec<inotify::SavedInotify>,
    /// Names of open files in directories that are watched.
    places: Vec<inotify::SavedPlace>,
    /// System V IPC, if there was some.
    ipc: Option<Ipc>,
    /// Of each place in the file system, whether its directory was there.
    directories: Vec<bool>,
    /// By how much the date was later than the processes' clock, which stands still until they are restored.
    date: u64,
}

/// A process: what the table of all does not find out by itself.
#[derive(Serialize, Deserialize)]
struct SavedProcess {
    process: Process,
    /// The number of its parent in the list.
    parent: Option<u32>,
    /// How it has ended, and its name.
    ended: Option<(Status, String)>,
    /// The signal that tells its parent of its end.
    exit_signal: u32,
    /// Its parent waits until it has left its memory.
    borrows: bool,
    /// The signal that has stopped it.
    stopped: Option<u32>,
    /// What its parent has not been told yet.
    news: Option<News>,
    /// Where its first thread stands, if the task of that has ended while others go on.
    first: Option<u64>,
    /// The identity of its terminal, if that is a pseudo-terminal.
    terminal: Option<u64>,
    /// Tasks that it traced and that have ended, of which it has not been told: number and status.
    trace_ends: Vec<(u32, Status)>,
    /// What its end adds to semaphores: set, number, and how much.
    undo: Vec<(i32, u16, i16)>,
}

/// A socket: one that is open, or one that has not been accepted.
#[derive(Serialize, Deserialize)]
struct SavedSocket {
    id: u64,
    socket: Socket,
    /// The path of the file that is its name.
    path: Option<String>,
    /// Whether it is found by its name.
    is_found: bool,
    /// Descriptors that are on their way to it: the number of the message in its queue, and their descriptions.
    rights: Vec<(u32, Vec<u32>)>,
}

/// A lock on a file.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct SavedLock {
    /// The file, as descriptions name it.
    ino: u64,
    owner: SavedOwner,
    /// First and last byte.
    start: u64,
    last: u64,
    exclusive: bool,
    /// The process that asked for it, as programs see it.
    number: u32,
}

impl SavedLock {
    /// The lock, of this owner.
    const fn of(&self, owner: Owner) -> Lock {
        Lock {
            owner,
            start: self.start,
            last: self.last,
            exclusive: self.exclusive,
            number: self.number,
        }
    }

    /// The lock, with the numbers of owners for the owners.
    const fn numbered(&self) -> Lock {
        self.of(match self.owner {
            SavedOwner::Files(number) => Owner::Files(number as u64),
            SavedOwner::Description(number) => Owner::Description(number as usize),
            SavedOwner::Whole(number) => Owner::Whole(number as usize),
        })
    }
}

/// Who has a lock: see [`crate::lock::Owner`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum SavedOwner {
    /// The table of descriptors with this number.
    Files(u32),
    /// The description with this number.
    Description(u32),
    /// The same, of a whole file.
    Whole(u32),
}

/// What an instance of `epoll` watches.
#[derive(Serialize, Deserialize)]
struct SavedWatch {
    fd: u32,
    /// The number of the description.
    description: u32,
    events: u32,
    data: u64,
    seen: u64,
    /// Its place among those that may be ready.
    place: Option<u32>,
}

/// A task.
#[derive(Serialize, Deserialize)]
struct SavedTask {
    /// The number of its process in the list.
    process: u32,
    /// Its own number as programs see it.
    number: u32,
    /// What it has, by number.
    memory: u32,
    files: u32,
    context: u32,
    actions: u32,
    /// Where its thread is in the control segment of its memory.
    place: u64,
    comm: Vec<u8>,
    signals: Signals,
    wait: Option<Wait>,
    robust: u64,
    clear_at: u64,
    spent: Spent,
    /// The address of the word at which it waits, how many came before it in all, and how it waits.
    waits_at: Option<(u64, u64, Waiter)>,
    /// The memory object in which that word is, if it is in one: then its address is the place there.
    waits_in: Option<u64>,
    /// Who has the lock there, for which it waits: its number as programs see it.
    owner: Option<u32>,
    /// Who traces it, by the number in the list, and what is kept of that.
    trace: Option<(u32, Trace)>,
    /// What it waits for of System V IPC.
    awaits: Option<ipc::Wait>,
}

/// Why a tree cannot be saved, or its files not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// For this reason.
    Because(String),
    /// It has this parent, and so is no tree.
    Parent(Pid),
    /// It shares this with another process: see [`Common`].
    Shared(String),
    /// Not yet: of its files one more is there now, or one is waited for ([`Gathered`]).
    Later,
    /// Not yet: there is more to look at, when others have had a turn.
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
    /// The sentence for people. `name` says name and number of the other process, if it is known, and `is_elsewhere`
    /// that it is in another tree: whoever names both has them in one image, each by itself.
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

/// Asks for memory for what is saved.
fn room(host: &mut dyn Host, bytes: u64) -> Result<(), String> {
    host.room(bytes).map_err(|_| OUT.to_string())
}
