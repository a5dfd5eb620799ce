//! What a checkpoint holds of a process beyond memory, registers and kernel objects.
//!
//! The part is the [`Process`] and its tasks as they are, with its open files named by path: inode numbers mean
//! nothing in another boot. A file that has no name any more is saved with its contents, up to
//! [`MAX_UNLINKED`] bytes, and a pipe that only this process has with what is in it. What it shares with other processes
//! cannot be saved with it alone, and [`save`] says what that is ([`Refusal`]). What comes back is hostile input: [`adopt`]
//! believes nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::files::{Reply, Request};
use proto::layout::{CONTROL_MAPPINGS, CONTROL_THREAD, CONTROL_THREADS};
use services::fs::{mode, Flags};
use services::process::Pid;

use crate::calls::file::MAX_OFFSET;
use crate::errno::{ELOOP, ENOSPC};
use crate::futex::{Waiter, Word};
use crate::host::Host;
use crate::memory;
use crate::node;
use crate::path;
use crate::process::{
    shared, Context, Description, Fd, Files, Kind, Memory, Pipe, Shared, Shares, Task, Wait,
    MAX_FDS, MAX_REPORTED, MAX_TITLE, PIPE_BUF, PIPE_CAPACITY,
};
use crate::signal::{Actions, Signals};
use crate::socket::{Name, Socket, State, Style};
use crate::system::{Payer, Process, System, Thing, Tid, MAX_THREADS};

/// The format's version.
const VERSION: u32 = 9;
/// Most bytes of an unlinked file that are saved.
pub const MAX_UNLINKED: u64 = 4 << 20;
/// Longest part that is read: as long as a checkpoint can hold.
pub const MAX_PART: u64 = 4 << 20;
/// A process takes at most so many times its encoded length, lists that grow included: what takes most is a description,
/// a byte for each of its words.
const DECODED: u64 = 80;
/// What it takes to encode something, in times of its length, and to read it in pieces.
const ENCODED: u64 = 4;
/// Why a process cannot be saved for want of memory.
const OUT: &str = "memory is out";

/// An open file.
#[derive(Serialize, Deserialize)]
enum SavedFile {
    /// It has this path.
    Named(String),
    /// It has no name any more.
    Unlinked { mode: u32, contents: Vec<u8> },
}

#[derive(Serialize)]
struct Part {
    version: u32,
    /// The [`Saved`] process, encoded.
    process: Vec<u8>,
    /// By number of the description.
    files: Vec<(u32, SavedFile)>,
}

/// A process without what its open files are.
#[derive(Deserialize)]
struct Saved {
    process: Process,
    tasks: Vec<SavedTask>,
    memory: Memory,
    context: Context,
    actions: Actions,
    /// Descriptor, whether `execve` closes it, number of its description.
    fds: Vec<(u32, bool, u32)>,
    /// Counted from 0.
    descriptions: Vec<Description>,
    /// Identity, capacity, whether there has been a writer, and bytes.
    pipes: Vec<(u64, u32, bool, Vec<u8>)>,
    /// Identity, and what is watched.
    epolls: Vec<(u64, Vec<SavedWatch>)>,
    sockets: Vec<SavedSocket>,
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
    /// Where its thread is in the control segment.
    place: u64,
    /// Its number as programs see it.
    number: u32,
    comm: Vec<u8>,
    signals: Signals,
    wait: Option<Wait>,
    robust: u64,
    clear_at: u64,
    /// The address of the word at which it waits, how many came before it in all, and how it waits.
    waits_at: Option<(u64, u64, Waiter)>,
    /// Who has the lock there, for which it waits: its number as programs see it.
    owner: Option<u32>,
}

/// Why a process cannot be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// For this reason.
    Because(String),
    /// It has this child.
    Child(Pid),
    /// It has this parent.
    Parent(Pid),
    /// It shares this with another process: see [`share`].
    Shared(String),
}

impl From<String> for Refusal {
    fn from(sentence: String) -> Self {
        Refusal::Because(sentence)
    }
}

impl Refusal {
    /// The sentence for people. `name` says name and number of the other process, if it is known.
    #[must_use]
    pub fn sentence(&self, name: &str) -> String {
        match self {
            Refusal::Because(sentence) => sentence.clone(),
            Refusal::Child(_) => format!("it has a child, {name}, that is not saved with it"),
            Refusal::Parent(_) => format!("its parent, {name}, is not saved with it"),
            Refusal::Shared(what) => {
                format!("it shares {what} with {name}, which is not saved with it")
            }
        }
    }
}

/// Whether two tasks share memory, an open file description or a pipe.
#[must_use]
pub fn share(one: &Task, other: &Task) -> bool {
    let (files, others) = (one.shares.files.borrow(), other.shares.files.borrow());
    Rc::ptr_eq(&one.shares.memory, &other.shares.memory)
        || files.fds.values().any(|fd| {
            let pipe = fd.description.borrow().kind.pipe();
            others.fds.values().any(|other| {
                Rc::ptr_eq(&fd.description, &other.description)
                    || pipe.is_some() && pipe == other.description.borrow().kind.pipe()
            })
        })
}

/// The descriptions of a table of descriptors, each once, with the first descriptor of each; and for each descriptor the
/// number of its description.
type Listed = (Vec<(u32, Shared<Description>)>, Vec<(u32, bool, u32)>);

fn listed(files: &Files) -> Listed {
    let mut descriptions: Vec<(u32, Shared<Description>)> = Vec::new();
    let mut numbers = BTreeMap::new();
    let mut fds = Vec::new();
    for (number, fd) in &files.fds {
        let known = *numbers
            .entry(Rc::as_ptr(&fd.description))
            .or_insert_with(|| {
                descriptions.push((*number, Rc::clone(&fd.description)));
                descriptions.len() as u32 - 1
            });
        fds.push((*number, fd.cloexec, known));
    }
    (descriptions, fds)
}

/// Fails if the process shares something with others, or its tasks do not share all with each other.
fn alone(
    tasks: &[(u64, &Task)],
    task: &Task,
    system: &System,
    (descriptions, fds): &Listed,
) -> Result<(), Refusal> {
    if let Some(process) = system.find(task.pid) {
        let mut children = process.children.iter().chain(&process.ended);
        if let Some(child) = children.next() {
            return Err(Refusal::Child(*child));
        }
        if let Some(parent) = process.parent {
            return Err(Refusal::Parent(parent));
        }
    }
    let shares = &task.shares;
    let apart = |(_, other): &(u64, &Task)| {
        !Rc::ptr_eq(&other.shares.files, &shares.files)
            || !Rc::ptr_eq(&other.shares.context, &shares.context)
    };
    if tasks.iter().any(apart) {
        let sentence = "one of its threads has descriptors or a directory of its own";
        return Err(Refusal::Because(sentence.to_string()));
    }
    if Rc::strong_count(&shares.memory) > tasks.len() {
        return Err(Refusal::Shared("its memory".to_string()));
    }
    if Rc::strong_count(&shares.files) > tasks.len() {
        return Err(Refusal::Shared("its descriptors".to_string()));
    }
    let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
    for (number, (fd, description)) in (0u32..).zip(descriptions) {
        let own = fds.iter().filter(|(.., known)| *known == number).count();
        // One is in the list.
        if Rc::strong_count(description) > own + 1 {
            return Err(Refusal::Shared(format!("what is open as descriptor {fd}")));
        }
        if let Kind::Pipe { id, end, .. } = &description.borrow().kind {
            let count = usize::from(end.reads()) + usize::from(end.writes());
            *ends.entry(*id).or_default() += count;
        }
    }
    for (fd, description) in descriptions {
        if let Kind::Pipe { id, pipe, .. } = &description.borrow().kind {
            let pipe = pipe.borrow();
            if pipe.readers + pipe.writers > ends.get(id).copied().unwrap_or(0) {
                return Err(Refusal::Shared(format!("the pipe at descriptor {fd}")));
            }
        }
    }
    Ok(())
}

/// The part of a process of all these tasks, each with the place of its thread in the control segment; or why it cannot be
/// saved.
pub fn save(
    tasks: &[(u64, &Task)],
    system: &System,
    host: &mut dyn Host,
) -> Result<Vec<u8>, Refusal> {
    let (_, task) = tasks.first().ok_or_else(|| "it has ended".to_string())?;
    let shares = &task.shares;
    let list = listed(&shares.files.borrow());
    let sockets = sockets_of(&list.0, system)?;
    alone(tasks, task, system, &list)?;
    let (descriptions, fds) = list;
    let mut files = Vec::new();
    for (number, (_, description)) in (0u32..).zip(&descriptions) {
        let description = description.borrow();
        let Some(ino) = description.ino() else {
            continue;
        };
        let saved = match host.fs(&Request::PathOf { ino }, &[], &mut []) {
            Ok((Reply::Path(path), _)) => SavedFile::Named(path),
            Err(proto::Error::NotFound) => unlinked(host, ino, &description.kind)?,
            Err(error) => return Err(format!("an open file: {}", error.text()).into()),
            Ok(_) => {
                return Err("the file system does not answer sensibly"
                    .to_string()
                    .into())
            }
        };
        files.push((number, saved));
    }
    let epolls = saved_watches(&descriptions, system)?;
    let sockets = saved_sockets(&sockets, system, host)?;
    let messages = sockets.iter().map(|saved| saved.socket.size() as u64);
    let memory = shares.memory.borrow();
    let messages = messages.sum::<u64>();
    let watches = epolls
        .iter()
        .map(|(_, watches)| WATCH * watches.len() as u64);
    let length =
        messages + watches.sum::<u64>() + size(&memory, &descriptions) + TASK * tasks.len() as u64;
    room(host, 2 * ENCODED * length)?;
    let descriptions: Vec<Description> = descriptions
        .into_iter()
        .map(|(_, d)| d.borrow().clone())
        .collect();
    let mut pipes = BTreeMap::new();
    for description in &descriptions {
        if let Kind::Pipe { id, pipe, .. } = &description.kind {
            let pipe = pipe.borrow();
            let bytes: Vec<u8> = pipe.bytes.iter().copied().collect();
            pipes.insert(*id, (*id, pipe.capacity as u32, pipe.had_writer, bytes));
        }
    }
    let pipes: Vec<_> = pipes.into_values().collect();
    let process = system.find(task.pid).cloned().unwrap_or_default();
    let tasks: Vec<_> = tasks
        .iter()
        .map(|(place, task)| SavedTask::of(*place, task, system))
        .collect();
    let saved = (
        &process,
        tasks,
        &*memory,
        &*shares.context.borrow(),
        &*shares.actions.borrow(),
        fds,
        descriptions,
        pipes,
        epolls,
        sockets,
    );
    let process = postcard::to_allocvec(&saved).map_err(|_| OUT.to_string())?;
    let contents = |file: &(u32, SavedFile)| match &file.1 {
        SavedFile::Named(path) => path.len(),
        SavedFile::Unlinked { contents, .. } => contents.len(),
    };
    let length = process.len() + files.iter().map(contents).sum::<usize>();
    room(host, ENCODED * length as u64)?;
    let part = Part {
        version: VERSION,
        process,
        files,
    };
    Ok(postcard::to_allocvec(&part).map_err(|_| OUT.to_string())?)
}

/// The sockets among these descriptions and the connections that wait at them, with their descriptors; refused if
/// descriptors are on their way to one.
fn sockets_of(
    descriptions: &[(u32, Shared<Description>)],
    system: &System,
) -> Result<BTreeMap<u64, u32>, Refusal> {
    let mut all: BTreeMap<u64, u32> = BTreeMap::new();
    for (fd, description) in descriptions {
        if let Kind::Socket { id } = description.borrow().kind {
            all.insert(id, *fd);
            let waiting = system.sockets.find(id).into_iter().flat_map(|s| &s.ready);
            all.extend(waiting.map(|end| (*end, *fd)));
        }
    }
    for (id, fd) in &all {
        let queue = system.sockets.find(*id).into_iter().flat_map(|s| &s.queue);
        if queue.into_iter().any(|message| !message.rights.is_empty()) {
            let sentence = format!("descriptors are on their way to the socket at descriptor {fd}");
            return Err(Refusal::Because(sentence));
        }
    }
    Ok(all)
}

/// What is saved of these sockets.
fn saved_sockets(
    all: &BTreeMap<u64, u32>,
    system: &System,
    host: &mut dyn Host,
) -> Result<Vec<SavedSocket>, Refusal> {
    let mut saved = Vec::new();
    for (id, fd) in all {
        let Some(socket) = system.sockets.find(*id) else {
            continue;
        };
        let mut socket = socket.clone();
        // Who sent datagrams to one that is gone is told so at the next.
        socket.peer = socket
            .peer
            .filter(|peer| system.sockets.find(*peer).is_some());
        if socket.peer.is_some_and(|peer| !all.contains_key(&peer)) {
            let sentence = format!("the connection of the socket at descriptor {fd}");
            return Err(Refusal::Shared(sentence));
        }
        let path = match socket.name {
            Some(Name::File(_, ino)) if system.nodes.mode(ino).is_some() => {
                match host.fs(&Request::PathOf { ino }, &[], &mut []) {
                    Ok((Reply::Path(path), _)) => Some(path),
                    _ => None,
                }
            }
            _ => None,
        };
        room(host, 2 * socket.size() as u64)?;
        saved.push(SavedSocket {
            id: *id,
            socket,
            path,
            is_found: system.sockets.is_found(*id),
        });
    }
    Ok(saved)
}

/// What the instances of `epoll` among these descriptions watch.
fn saved_watches(
    descriptions: &[(u32, Shared<Description>)],
    system: &System,
) -> Result<Vec<(u64, Vec<SavedWatch>)>, Refusal> {
    let numbers: BTreeMap<_, u32> = descriptions
        .iter()
        .map(|(_, d)| Rc::as_ptr(d))
        .zip(0..)
        .collect();
    let mut all = BTreeMap::new();
    for (fd, description) in descriptions {
        let Kind::Epoll { id } = description.borrow().kind else {
            continue;
        };
        let mut saved = Vec::new();
        for (watch, place) in system.epolls.watches(id) {
            let Some(number) = numbers.get(&watch.description.as_ptr()) else {
                return Err(Refusal::Shared(format!("what descriptor {fd} watches")));
            };
            saved.push(SavedWatch {
                fd: watch.fd,
                description: *number,
                events: watch.events,
                data: watch.data,
                seen: watch.seen,
                place,
            });
        }
        all.insert(id, saved);
    }
    Ok(all.into_iter().collect())
}

/// About how long a watch is, encoded.
const WATCH: u64 = 40;
/// About how long a task is, encoded.
const TASK: u64 = 1 << 10;

impl SavedTask {
    fn of(place: u64, task: &Task, system: &System) -> Self {
        let waits_at = system.futexes.place(task.tid);
        let memory = task.shares.memory.borrow();
        let word = |(address, ..): (u64, u64, Waiter)| Word::new(&memory, address);
        let owner = waits_at.and_then(|place| system.futexes.owner(word(place)));
        let owner = owner.and_then(|owner| system.thread_number(owner));
        SavedTask {
            place,
            number: task.thread,
            comm: task.comm.clone(),
            signals: task.signals.clone(),
            wait: task.wait,
            robust: task.robust,
            clear_at: task.clear_at,
            waits_at,
            owner,
        }
    }

    fn is_sound(&self, memory: &Memory) -> bool {
        let word = |(address, _, waiter): &(u64, u64, Waiter)| {
            address.is_multiple_of(4)
                && memory.areas.allows(*address, 4, memory::READ)
                && self.wait.is_some()
                && waiter.locks.is_none_or(|number| number == self.number)
        };
        self.comm.len() <= 15
            && is_number(self.number)
            && self.signals.is_sound()
            && self.waits_at.as_ref().is_none_or(word)
            && (self.place == CONTROL_THREAD
                || (CONTROL_THREADS..CONTROL_MAPPINGS).contains(&self.place)
                    && self.place.is_multiple_of(abi::OBJECT_SIZE))
    }
}

/// Whether this can be the number of a task.
const fn is_number(number: u32) -> bool {
    number != 0 && number <= i32::MAX as u32
}

/// Asks for memory for what is saved.
fn room(host: &mut dyn Host, bytes: u64) -> Result<(), String> {
    host.room(bytes).map_err(|_| OUT.to_string())
}

/// About how long a process is, encoded, or a little less than that.
fn size(memory: &Memory, descriptions: &[(u32, Shared<Description>)]) -> u64 {
    let texts = descriptions.iter().map(|(_, d)| match &d.borrow().kind {
        Kind::Directory { pending, .. } => 300 * pending.len(),
        Kind::Pipe { pipe, .. } => pipe.borrow().bytes.len(),
        _ => 0,
    });
    let fixed = 40 * memory.areas.list().len() + 100 * descriptions.len() + (32 << 10);
    (fixed + texts.sum::<usize>() + memory.name.len()) as u64
}

fn unlinked(host: &mut dyn Host, ino: u64, kind: &Kind) -> Result<SavedFile, String> {
    if let Kind::Directory { .. } = kind {
        return Err("an open directory has been removed, so it cannot be saved".to_string());
    }
    let Ok((Reply::Attr(attr), _)) = host.fs(&Request::StatIno { ino }, &[], &mut []) else {
        return Err("an open file without a name cannot be found".to_string());
    };
    if attr.size > MAX_UNLINKED {
        return Err(format!(
            "an open file without a name has {} bytes; at most {MAX_UNLINKED} can be saved",
            attr.size
        ));
    }
    room(host, attr.size)?;
    let mut contents = alloc::vec![0; attr.size as usize];
    let mut done = 0;
    while done < contents.len() {
        let length = (contents.len() - done).min(proto::MAX_BULK);
        let request = Request::Read {
            ino,
            offset: done as u64,
            length: length as u32,
        };
        match host.fs(&request, &[], &mut contents[done..done + length]) {
            Ok((_, got)) if got > 0 => done += got.min(length),
            _ => return Err("an open file without a name cannot be read".to_string()),
        }
    }
    Ok(SavedFile::Unlinked {
        mode: attr.mode & 0o7777,
        contents,
    })
}

/// Reads a part, and refuses one of more files than a process can have open before it takes their memory: in memory
/// they may be thirty times as long as in the image.
fn decode(bytes: &[u8]) -> Option<Part> {
    let ((version, process), files) = postcard::take_from_bytes::<(u32, Vec<u8>)>(bytes).ok()?;
    let (count, _) = postcard::take_from_bytes::<u32>(files).ok()?;
    if count > MAX_FDS {
        return None;
    }
    Some(Part {
        version,
        process,
        files: postcard::from_bytes(files).ok()?,
    })
}

/// Makes process `pid` of a part, with its files open again: its tasks, each with the place of its thread; or says why that
/// cannot be. Its memory
/// and mappings are someone else's work.
pub fn adopt(
    bytes: &[u8],
    clock_offset: u64,
    pid: Pid,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<Vec<(u64, Task)>, String> {
    let nonsense = || "its Linux part makes no sense".to_string();
    let part = decode(bytes).ok_or_else(nonsense)?;
    if part.version != VERSION {
        return Err(format!(
            "its Linux part has version {}, not {VERSION}",
            part.version
        ));
    }
    let Part { process, files, .. } = part;
    host.room(DECODED * process.len() as u64)
        .map_err(|_| "there is no memory for what Linux keeps of it".to_string())?;
    let mut saved: Saved = postcard::from_bytes(&process).map_err(|_| nonsense())?;
    check(&saved).ok_or_else(nonsense)?;
    let wanted = saved
        .descriptions
        .iter()
        .filter(|d| d.ino().is_some())
        .count();
    if files.len() != wanted || files.windows(2).any(|w| w[0].0 >= w[1].0) {
        return Err(nonsense());
    }
    let pipes = make_pipes(&mut saved, pid, system)?;
    let mut open: Vec<u64> = Vec::new();
    let mut failure = None;
    for (index, (number, file)) in files.into_iter().enumerate() {
        let Some(description) = saved.descriptions.get_mut(number as usize) else {
            failure = Some(nonsense());
            break;
        };
        match reopen(
            host,
            &mut description.kind,
            file,
            saved.process.number,
            index,
        ) {
            Ok(ino) => open.push(ino),
            Err(sentence) => {
                failure = Some(sentence);
                break;
            }
        }
    }
    if let Some(sentence) = failure {
        for ino in open {
            let _ = host.fs(&Request::Close { ino }, &[], &mut []);
        }
        let payer = system.process(pid).payer;
        for _ in 0..pipes {
            system.uncount_thing(Thing::Pipe, payer);
        }
        return Err(sentence);
    }
    let (mut files, watched) = make_files(&mut saved, pid, system, host);
    // Its first task has the number of the process already.
    let further = saved
        .tasks
        .iter()
        .filter(|t| t.number != saved.process.number);
    let numbers: Vec<u32> = further.map(|t| t.number).collect();
    let process = core::mem::take(&mut saved.process);
    let has_first = numbers.len() < saved.tasks.len();
    let made = watched.and_then(|()| restore(system, pid, process, &numbers, has_first));
    match made {
        Ok(tids) => Ok(put_together(saved, files, &tids, clock_offset, pid, system)),
        Err(sentence) => {
            files.close_all(system, host, |_| true);
            Err(sentence)
        }
    }
}

/// Makes the sockets: the new identities by the old ones. Upon an error there are none.
fn make_sockets(
    all: Vec<SavedSocket>,
    pid: Pid,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<BTreeMap<u64, u64>, String> {
    let payer = system.process(pid).payer;
    let mut made = BTreeMap::new();
    let mut names = Vec::new();
    let mut result = Ok(());
    for saved in all {
        let SavedSocket {
            id, socket, path, ..
        } = saved;
        let ends = (socket.peer, socket.ready.clone());
        // Who accepted a connection has given it its name, and is found by that.
        let is_end = socket.state == State::Connected && socket.style == Style::Stream;
        let name = socket.name.clone().filter(|_| saved.is_found);
        match system.restore_socket(socket, payer) {
            Ok(new) => {
                made.insert(id, new);
                names.push((new, name.map(|name| (name, is_end)), path, ends));
            }
            Err(_) => {
                result = Err("there are too many sockets".to_string());
                break;
            }
        }
    }
    let named = names
        .into_iter()
        .try_for_each(|(new, name, path, (peer, ready))| {
            let known = |id: u64| made.get(&id).copied();
            system.join(
                new,
                peer.and_then(known),
                ready.into_iter().filter_map(known),
            );
            match (name, path) {
                (Some((name @ Name::Port(..), true)), _) => {
                    system.set_name(new, name);
                    Ok(())
                }
                (Some((Name::File(given, _), _)), Some(path)) => {
                    let ino = find_node(&path, pid, system, host)?;
                    name_again(system, new, Name::File(given, ino))
                }
                // The file has been removed: nobody finds it there.
                (Some((Name::File(given, _), _)), None) => {
                    system.set_name(new, Name::File(given, u64::MAX));
                    Ok(())
                }
                (Some((name, _)), _) => name_again(system, new, name),
                (None, _) => Ok(()),
            }
        });
    // Whoever had to wait for room is told of it, as before.
    let ends: Vec<_> = made
        .values()
        .filter_map(|id| Some((system.sockets.find(*id)?.peer?, *id)))
        .collect();
    for (peer, id) in ends {
        system.blocks(peer, id);
    }
    if let Err(sentence) = result.and(named) {
        made.into_values().for_each(|id| system.close_socket(id));
        return Err(sentence);
    }
    Ok(made)
}

fn name_again(system: &mut System, id: u64, name: Name) -> Result<(), String> {
    system
        .name_socket(id, name)
        .map_err(|_| "the name of one of its sockets is another one's now".to_string())
}

/// The inode of a file that is the name of a socket.
fn find_node(
    path: &str,
    pid: Pid,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<u64, String> {
    let mut ino = 0;
    let (_, _, found) = open(host, path, &mut ino)?;
    let payer = system.process(pid).payer;
    let made = match found & mode::TYPE {
        mode::FILE => make_node(ino, node::SOCKET, payer, system, host),
        _ => Err(format!("{path}: is no socket any more")),
    };
    let _ = host.fs(&Request::Close { ino }, &[], &mut []);
    made.map(|()| ino)
}

/// Makes the descriptors, and has the instances of `epoll` watch again what they did. Upon an error the descriptors are to be
/// closed.
fn make_files(
    saved: &mut Saved,
    pid: Pid,
    system: &mut System,
    host: &mut dyn Host,
) -> (Files, Result<(), String>) {
    let payer = system.process(pid).payer;
    let sockets = core::mem::take(&mut saved.sockets);
    let (sockets, failure) = match make_sockets(sockets, pid, system, host) {
        Ok(sockets) => (sockets, Ok(())),
        Err(sentence) => (BTreeMap::new(), Err(sentence)),
    };
    let mut instances = BTreeMap::new();
    for description in &mut saved.descriptions {
        match &mut description.kind {
            Kind::Counter { id, .. } | Kind::Signals { id, .. } => *id = system.new_identity(),
            Kind::Epoll { id } => {
                let new = system.new_epoll(payer);
                instances.insert(core::mem::replace(id, new), new);
            }
            Kind::Socket { id } => *id = sockets.get(id).copied().unwrap_or(0),
            _ => {}
        }
    }
    let mut fifos = Ok(());
    for description in &saved.descriptions {
        if let Kind::Pipe {
            id,
            ino: Some(ino),
            pipe,
            ..
        } = &description.kind
        {
            let fifo = open_again(*ino, *id, pipe, payer, system, host);
            fifos = fifos.and(fifo);
        }
    }
    let descriptions = core::mem::take(&mut saved.descriptions);
    let descriptions: Vec<_> = descriptions.into_iter().map(shared).collect();
    let fds = saved.fds.iter().filter_map(|(fd, cloexec, number)| {
        let description = Rc::clone(descriptions.get(*number as usize)?);
        let cloexec = *cloexec;
        Some((
            *fd,
            Fd {
                description,
                cloexec,
            },
        ))
    });
    let files = Files { fds: fds.collect() };
    let epolls = core::mem::take(&mut saved.epolls).into_iter();
    let mut epolls = epolls.filter_map(|(old, watches)| Some((*instances.get(&old)?, watches)));
    let watched = epolls.try_for_each(|(id, watches)| watch(system, id, watches, &descriptions));
    (files, failure.and(fifos).and(watched))
}

/// A FIFO of an image is open again, at the file with this inode.
fn open_again(
    ino: u64,
    id: u64,
    pipe: &Shared<Pipe>,
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<(), String> {
    if let Err(proto::Error::NotFound) = host.fs(&Request::PathOf { ino }, &[], &mut []) {
        // Nobody can open it any more.
        return Ok(());
    }
    make_node(ino, node::FIFO, payer, system, host)?;
    match system.nodes.fifo(ino) {
        Some((other, _)) if other != id => Err("one of its FIFOs is in use".to_string()),
        _ => {
            system.nodes.set_fifo(ino, id, pipe);
            Ok(())
        }
    }
}

/// A file that is open, and was more than a file when the process was saved, is so again.
fn make_node(
    ino: u64,
    kind: u32,
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<(), String> {
    let ask = |host: &mut dyn Host, request| host.fs(&request, &[], &mut []).map(|reply| reply.0);
    let Ok(Reply::Path(path)) = ask(host, Request::PathOf { ino }) else {
        return Err("a FIFO or socket without a name".to_string());
    };
    let nonsense = format!("{path}: is not what it was when the process was saved");
    match system.nodes.mode(ino) {
        Some(mode) if mode == kind => return Ok(()),
        Some(_) => return Err(nonsense),
        None => {}
    }
    let attr = ask(host, Request::StatIno { ino });
    if !matches!(attr, Ok(Reply::Attr(attr)) if attr.size == 0) {
        return Err(nonsense);
    }
    // It stays open as long as it is known.
    let mut own = 0;
    open(host, &path, &mut own)?;
    let made = if own == ino {
        system.new_node(host, own, kind, payer)
    } else {
        Err(ENOSPC)
    };
    made.map_err(|_| {
        let _ = host.fs(&Request::Close { ino: own }, &[], &mut []);
        nonsense
    })
}

/// Has an instance of `epoll` watch what it watched.
fn watch(
    system: &mut System,
    epoll: u64,
    watches: Vec<SavedWatch>,
    descriptions: &[Shared<Description>],
) -> Result<(), String> {
    let mut places = BTreeMap::new();
    for saved in watches {
        let description = descriptions.get(saved.description as usize);
        let data = (saved.events, saved.data);
        let made = description.ok_or(ELOOP);
        let made = made.and_then(|d| system.watch(epoll, saved.fd, d, data));
        let id = made.map_err(|error| match error {
            ENOSPC => "there is too much that is watched".to_string(),
            _ => "its Linux part makes no sense".to_string(),
        })?;
        system.set_watch(epoll, id, saved.events, saved.seen);
        if let Some(place) = saved.place {
            places.insert(place, id);
        }
    }
    for id in places.into_values() {
        system.epolls.put_back(epoll, id, false);
    }
    Ok(())
}

/// Puts the process into the table, with further tasks of these numbers: their numbers in the table.
fn restore(
    system: &mut System,
    pid: Pid,
    process: Process,
    numbers: &[u32],
    has_first: bool,
) -> Result<Vec<Tid>, String> {
    system.restore(pid, process, numbers);
    let made: Result<Vec<Tid>, _> = numbers
        .iter()
        .map(|number| system.new_thread(pid, Some(*number)))
        .collect();
    if !has_first {
        system.forget_thread(pid, pid);
    }
    made.map_err(|_| "there are too many threads".to_string())
}

/// Makes the pipes: how many.
fn make_pipes(saved: &mut Saved, pid: Pid, system: &mut System) -> Result<usize, String> {
    let payer = system.process(pid).payer;
    let mut made = BTreeMap::new();
    for (old, capacity, had_writer, bytes) in core::mem::take(&mut saved.pipes) {
        let Ok((id, _)) = system.new_pipe(payer) else {
            for _ in 0..made.len() {
                system.uncount_thing(Thing::Pipe, payer);
            }
            return Err("there are too many pipes".to_string());
        };
        let pipe = shared(Pipe {
            bytes: bytes.into(),
            capacity: capacity as usize,
            had_writer,
            payer,
            ..Pipe::default()
        });
        made.insert(old, (id, pipe));
    }
    for description in &mut saved.descriptions {
        if let Kind::Pipe { id, end, pipe, .. } = &mut description.kind {
            if let Some((new, made)) = made.get(id) {
                made.borrow_mut().open(*end);
                (*id, *pipe) = (*new, Rc::clone(made));
            }
        }
    }
    Ok(made.len())
}

/// The tasks of a process all of which is there. Those that are not its first one have these numbers in the table.
fn put_together(
    saved: Saved,
    files: Files,
    tids: &[Tid],
    clock_offset: u64,
    pid: Pid,
    system: &mut System,
) -> Vec<(u64, Task)> {
    let shares = Shares {
        memory: shared(saved.memory),
        files: shared(files),
        context: shared(saved.context),
        actions: shared(saved.actions),
    };
    let process = system.process(pid);
    process.actions = Rc::clone(&shares.actions);
    let number = process.number;
    let mut tids = tids.iter();
    let mut tasks = Vec::new();
    let mut waiting = Vec::new();
    for saved in saved.tasks {
        let tid = match saved.number == number {
            true => pid,
            false => tids.next().copied().unwrap_or(pid),
        };
        if let Some((address, order, waiter)) = saved.waits_at {
            waiting.push((order, tid, address, waiter, saved.owner));
        }
        let task = Task {
            tid,
            pid,
            number,
            thread: saved.number,
            comm: saved.comm,
            signals: saved.signals,
            wait: saved.wait,
            awaits: 0,
            robust: saved.robust,
            clear_at: saved.clear_at,
            clock_offset,
            shares: shares.clone(),
        };
        tasks.push((saved.place, task));
    }
    // They wait in the order in which they did.
    waiting.sort_unstable_by_key(|(order, tid, ..)| (*order, *tid));
    for (_, tid, address, waiter, owner) in waiting {
        let word = Word::new(&shares.memory.borrow(), address);
        system.futexes.wait(tid, word, waiter);
        let owner = owner.and_then(|number| system.thread_by_number(pid, number));
        if let Some((owner, _)) = owner.filter(|(_, of)| *of == pid && waiter.locks.is_some()) {
            system.futexes.own(owner, word);
        }
    }
    tasks
}

fn reopen(
    host: &mut dyn Host,
    kind: &mut Kind,
    saved: SavedFile,
    pid: u32,
    index: usize,
) -> Result<u64, String> {
    let nonsense = || "its Linux part makes no sense".to_string();
    let (found, expected) = match (kind, saved) {
        (Kind::File { ino }, SavedFile::Named(path)) => (open(host, &path, ino)?, mode::FILE),
        (Kind::Directory { ino, .. }, SavedFile::Named(path)) => {
            (open(host, &path, ino)?, mode::DIRECTORY)
        }
        (Kind::Pipe { ino: Some(ino), .. }, SavedFile::Named(path)) => {
            (open(host, &path, ino)?, mode::FILE)
        }
        (
            Kind::File { ino } | Kind::Pipe { ino: Some(ino), .. },
            SavedFile::Unlinked { mode, contents },
        ) => {
            if contents.len() as u64 > MAX_UNLINKED || mode & !0o7777 != 0 {
                return Err(nonsense());
            }
            return make_unlinked(host, mode, &contents, pid, index).inspect(|new| *ino = *new);
        }
        _ => return Err(nonsense()),
    };
    let (new, path, found) = found;
    if found & mode::TYPE != expected {
        let _ = host.fs(&Request::Close { ino: new }, &[], &mut []);
        return Err(format!(
            "{path}: is not what it was when the process was saved"
        ));
    }
    Ok(new)
}

/// Opens a path and stores its inode number.
fn open(host: &mut dyn Host, path: &str, ino: &mut u64) -> Result<(u64, String, u32), String> {
    if !path::is_sound(path) {
        return Err("its Linux part makes no sense".to_string());
    }
    let request = Request::Open {
        path: path.to_string(),
        flags: Flags::default(),
        mode: 0,
    };
    match host.fs(&request, &[], &mut []) {
        Ok((Reply::Opened(attr), _)) => {
            *ino = attr.ino;
            Ok((attr.ino, path.to_string(), attr.mode))
        }
        Ok(_) => Err("the file system does not answer sensibly".to_string()),
        Err(error) => Err(format!("{path}: {}", error.text())),
    }
}

/// Makes a file with these contents that has no name.
fn make_unlinked(
    host: &mut dyn Host,
    mode: u32,
    contents: &[u8],
    pid: u32,
    index: usize,
) -> Result<u64, String> {
    let failed = |error: proto::Error| format!("a file without a name: {}", error.text());
    // The name is removed at once. A name that is taken belongs to another file, so the next one is tried.
    let mut attempt = 0;
    let (path, ino) = loop {
        let path = format!("/tmp/.restored-{pid}-{index}-{attempt}");
        let flags = Flags {
            create: true,
            exclusive: true,
            ..Flags::default()
        };
        let request = Request::Open {
            path: path.clone(),
            flags,
            mode,
        };
        match host.fs(&request, &[], &mut []) {
            Ok((Reply::Opened(attr), _)) => break (path, attr.ino),
            Err(proto::Error::Exists) if attempt < 100 => attempt += 1,
            Err(error) => return Err(failed(error)),
            Ok(_) => return Err(failed(proto::Error::Broken)),
        }
    };
    let mut written = 0;
    let mut result = Ok(());
    while result.is_ok() && written < contents.len() {
        let piece = &contents[written..contents.len().min(written + proto::MAX_BULK)];
        let request = Request::Write {
            ino,
            offset: written as u64,
            append: false,
        };
        match host.fs(&request, piece, &mut []) {
            Ok((Reply::Written { length, .. }, _)) if length > 0 => written += length as usize,
            Ok(_) => result = Err(proto::Error::Broken),
            Err(error) => result = Err(error),
        }
    }
    let result = result.and(host.fs(&Request::Unlink { path }, &[], &mut []).map(|_| ()));
    match result {
        Ok(()) => Ok(ino),
        Err(error) => {
            let _ = host.fs(&Request::Close { ino }, &[], &mut []);
            Err(failed(error))
        }
    }
}

/// Checks all that the calls rely on.
fn check(saved: &Saved) -> Option<()> {
    let Saved {
        process: p,
        memory: m,
        ..
    } = saved;
    let paths = path::is_sound(&m.exe) && path::is_sound(&saved.context.cwd);
    let strings = m.name.len() <= MAX_TITLE && p.termios.as_ref().is_none_or(|t| t.len() == 36);
    let places: BTreeSet<u64> = saved.tasks.iter().map(|task| task.place).collect();
    let threads: BTreeSet<u32> = saved.tasks.iter().map(|task| task.number).collect();
    let tasks = (1..=MAX_THREADS).contains(&saved.tasks.len())
        && places.len() == saved.tasks.len()
        && threads.len() == saved.tasks.len()
        // The first thread of the control segment is that of the first task.
        && saved.tasks.iter().all(|task| {
            let is_first = task.number == p.number;
            is_first == (task.place == CONTROL_THREAD) && task.is_sound(m)
        });
    let numbers = is_number(p.number)
        && is_number(p.group)
        && is_number(p.session)
        && saved.context.umask <= 0o777
        && p.limits.keys().all(|k| *k < 16)
        && p.reported.len() <= MAX_REPORTED
        && p.pending.is_sound()
        && saved.actions.is_sound();
    let memory = m.areas.is_sound()
        && m.brk_start >= memory::LOWEST
        && m.brk_start.is_multiple_of(memory::PAGE)
        && m.brk >= m.brk_start
        && m.brk <= memory::MMAP_TOP;
    let mut used = alloc::vec![false; saved.descriptions.len()];
    for (fd, _, number) in &saved.fds {
        *used.get_mut(*number as usize)? = true;
        if *fd >= MAX_FDS {
            return None;
        }
    }
    let descriptors =
        saved.fds.windows(2).all(|w| w[0].0 < w[1].0) && used.iter().all(|used| *used);
    let pipes = saved.pipes.windows(2).all(|w| w[0].0 < w[1].0)
        && saved.pipes.iter().all(|(id, capacity, _, bytes)| {
            let capacity = *capacity as usize;
            let has_ends = saved
                .descriptions
                .iter()
                .any(|d| d.kind.pipe() == Some(*id));
            has_ends && [PIPE_BUF, PIPE_CAPACITY].contains(&capacity) && bytes.len() <= capacity
        });
    let descriptions = saved.descriptions.iter().all(|d| {
        let kind = match &d.kind {
            Kind::Text(reading) => reading.is_sound(),
            Kind::Directory { pending, .. } => pending.iter().all(|e| {
                !e.name.is_empty() && e.name.len() <= 255 && !e.name.contains(['/', '\0'])
            }),
            Kind::Pipe { id, .. } => saved.pipes.iter().any(|(pipe, ..)| pipe == id),
            Kind::Counter { counter, .. } => counter.is_sound(),
            Kind::Epoll { id } => saved.epolls.iter().any(|(epoll, _)| epoll == id),
            Kind::Socket { id } => saved.sockets.iter().any(|saved| saved.id == *id),
            Kind::Signals { .. } | Kind::File { .. } | Kind::Device(_) => true,
        };
        kind && d.offset <= MAX_OFFSET
    });
    // Each instance has one description.
    let instances = saved.descriptions.iter().filter_map(|d| match d.kind {
        Kind::Epoll { id } => Some(id),
        _ => None,
    });
    let epolls =
        saved.epolls.windows(2).all(|w| w[0].0 < w[1].0) && instances.count() == saved.epolls.len();
    let open = descriptors && pipes && epolls && descriptions && sockets_are_sound(saved);
    (paths && strings && tasks && numbers && memory && open).then_some(())
}

/// Whether each socket is open or waits to be accepted, once, and the ends of connections name each other.
fn sockets_are_sound(saved: &Saved) -> bool {
    let all: BTreeMap<u64, &Socket> = saved.sockets.iter().map(|s| (s.id, &s.socket)).collect();
    let open = saved.descriptions.iter().filter_map(|d| match d.kind {
        Kind::Socket { id } => Some(id),
        _ => None,
    });
    let waiting = all.values().flat_map(|socket| {
        let is_listening = socket.state == State::Listening;
        socket.ready.iter().copied().filter(move |_| is_listening)
    });
    let mut places: Vec<u64> = open.chain(waiting).collect();
    places.sort_unstable();
    let once = places.iter().eq(all.keys());
    let paths = saved
        .sockets
        .iter()
        .all(|s| s.path.as_deref().is_none_or(path::is_sound));
    let ends = all.iter().all(|(id, socket)| {
        let Some(peer) = socket.peer else { return true };
        let is_stream = socket.style != Style::Datagram;
        all.get(&peer).is_some_and(|end| {
            end.style == socket.style && (!is_stream || end.peer == Some(*id) && peer != *id)
        })
    });
    all.len() == saved.sockets.len() && once && paths && ends && all.values().all(|s| s.is_sound())
}
