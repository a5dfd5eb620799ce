//! Takes a tree apart for an image.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use serde::Serialize;
use services::fs::ON_DISK;
use services::process::{Named, Pid};

use super::adopt::can_be_read;
use super::bounds::{self, excess, Counts};
use super::file::{self, SavedFile, MAX_CARRIED};
use super::inotify;
use super::{
    room, Bytes, Part, Refusal, SavedLock, SavedOwner, SavedProcess, SavedSocket, SavedTask,
    SavedWatch, DECODED, ENCODED, FILE, LOOK_UP, MAX_FILES, OUT, STEP, VERSION,
};
use crate::calls::memfd::MAX_NAME;
use crate::epoll::EDGE;
use crate::files::{Reply, Request};
use crate::host::Host;
use crate::ipc::{self, Ipc};
use crate::lock::Owner;
use crate::object::SavedObject;
use crate::outside;
use crate::process::{Context, Description, Fd, Files, Kind, Memory, Shared, Task};
use crate::pty::SavedPty;
use crate::signal::Actions;
use crate::socket::Name;
use crate::system::{Process, System, Tid, Which};

/// A pipe: identity, capacity, whether it has had a writer, and the bytes in it.
type SavedPipe = (u64, u32, bool, Vec<u8>);

/// Approximate encoded length of a watch, in bytes.
const WATCH: u64 = 40;
/// Approximate encoded length of one loaded range of a memory object, in bytes.
const OBJECT_PART: u64 = 20;
/// Approximate encoded length of a lock, in bytes.
const LOCK: u64 = 40;
/// Approximate encoded length of a file of `memfd_create`, in bytes.
const MEMFD: u64 = MAX_NAME as u64 + 20;
/// Approximate encoded length of a task, in bytes.
const TASK: u64 = 1 << 10;
/// Approximate encoded length of a process, in bytes.
const PROCESS: u64 = 8 << 10;

/// Most descriptors of a part of a tree that is saved. The rest of the tree keeps running, so all of them must be
/// looked at in one step.
const MOST_CUT: usize = 4 * STEP;
/// A tree whose encoding is at most this long (in bytes) is read back before it is saved. That takes as long as a step;
/// for a larger one other programs would have to wait.
const LOOKED_AT: usize = 64 << 10;
/// Approximate memory that a descriptor takes while its tree is saved, in bytes.
const DESCRIPTOR: u64 = 400;

/// What is to be saved.
#[derive(Clone, Copy, Debug)]
pub struct What {
    /// The process to save, with those that [`What::set`] finds.
    pub root: Pid,
    /// Whether the image also carries the contents of files that are open for reading only.
    pub files: bool,
    /// Whether the processes are cut out of what they share with others, as if all others had just closed it: the root
    /// may then have a parent, and is restored without one.
    pub cut: bool,
}

/// A saved tree.
#[derive(Debug)]
pub struct Made {
    /// The encoded part.
    pub part: Vec<u8>,
    /// One task of each memory, in the order of the part; the first is a task of the root.
    pub memories: Vec<Tid>,
    /// The identities of the memory objects, in the order of the part.
    pub objects: Vec<u64>,
    /// Files that the tree has open, executes or maps and that the part only names.
    pub files: Vec<Named>,
}

/// What has been found of a tree that is being saved. The tree stands still meanwhile. Gathering takes several calls of
/// [`save`] if there is much to look at, or if the file server of a disk has to answer.
#[derive(Default)]
pub struct Gathered {
    files: BTreeMap<u64, SavedFile>,
    /// Attributes of the files that the part only names, of programs, and of mapped files.
    known: file::Known,
    /// Bytes of named files that the image carries so far.
    carried: u64,
    /// The path of each executed file, by inode; `None` if it has no name.
    programs: BTreeMap<u64, Option<String>>,
    /// For how many memories the program and the mapped files have been looked up.
    looked: usize,
    /// Working directories, and whether each exists.
    directories: BTreeMap<String, bool>,
    /// Paths of watched files.
    watched: inotify::Paths,
    /// The files still to be gathered, taken from the end: inode, what is open on the file, and whether it may be
    /// written.
    order: Vec<(u64, (Kind, bool))>,
    /// What the tasks refer to, as far as it has been looked at.
    things: Option<Things>,
}

impl core::fmt::Debug for Gathered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gathered").finish_non_exhaustive()
    }
}

impl Gathered {
    /// Approximate memory that this takes, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        let files: u64 = self.files.values().map(|f| 64 + f.length() as u64).sum();
        let things = self.things.as_ref().map_or(0, Things::memory);
        let known = self.known.memory();
        files + things + known + 100 * self.order.len() as u64 + self.size_of_programs()
    }

    /// The share of the paths in [`Gathered::size`], in bytes.
    fn size_of_programs(&self) -> u64 {
        let paths = self.programs.values().chain(self.watched.values());
        let paths = paths.flatten().chain(self.directories.keys());
        let count = self.programs.len() + self.watched.len() + self.directories.len();
        (64 * count + paths.map(String::len).sum::<usize>()) as u64
    }

    /// Drops what was found at the tasks. Call this before a task of the tree ends or goes on, because whoever closes a
    /// descriptor must hold the last reference to its description.
    pub fn forget_tasks(&mut self) {
        self.things = None;
        self.looked = 0;
    }

    /// As [`Gathered::forget_tasks`], but only if one of these tasks is of this tree: others need not begin again.
    pub fn forget_if_of(&mut self, tids: &[Tid]) {
        let of = |things: &Things| things.tids.iter().any(|tid| tids.contains(tid));
        if self.things.as_ref().is_some_and(of) {
            self.forget_tasks();
        }
    }

    /// Gathers the files that are left in `order`. With `all`, carries the contents of every file, not only of written
    /// ones.
    fn go_on(
        &mut self,
        all: bool,
        system: &System,
        host: &mut dyn Host,
        left: &mut usize,
    ) -> Result<(), Refusal> {
        while let Some((ino, (kind, written))) = self.order.pop() {
            if self.files.contains_key(&ino) {
                continue;
            }
            let before = MAX_CARRIED.saturating_sub(self.carried);
            let mut room = before;
            let carried = (written || all).then_some(&mut room);
            let file = match *left {
                0 => None,
                _ => {
                    let kept = (carried, &mut self.known);
                    Some(SavedFile::of(host, system, (ino, written), &kind, kept))
                }
            };
            let Some(file) = file.filter(|_| !host.waits()) else {
                self.order.push((ino, (kind, written)));
                return Err(if *left == 0 {
                    Refusal::Turn
                } else {
                    Refusal::Later
                });
            };
            let file = file?;
            *left = left.saturating_sub(FILE + file.length() / 256);
            self.files.insert(ino, file);
            self.carried += before - room;
            if ino & ON_DISK != 0 {
                // Ends this call, so that the host drops the answers about this file before the next is asked for.
                return Err(Refusal::Later);
            }
        }
        Ok(())
    }
}

impl Gathered {
    /// Finds the paths of the files that these memories execute.
    fn find_programs(
        &mut self,
        memories: &List<Memory>,
        host: &mut dyn Host,
        left: &mut usize,
    ) -> Result<(), Refusal> {
        for ino in memories.all.iter().filter_map(executed) {
            if self.programs.contains_key(&ino) {
                continue;
            }
            take_turn(left)?;
            let path = match host.fs(&Request::PathOf { ino }, &[], &mut []) {
                Ok((Reply::Path(path), _)) => Some(path),
                _ => None,
            };
            if host.waits() {
                return Err(Refusal::Later);
            }
            self.programs.insert(ino, path);
            if ino & ON_DISK != 0 {
                return Err(Refusal::Later);
            }
        }
        Ok(())
    }

    /// Looks up the attributes of the programs and of the files that the memories map.
    fn look_at_programs(
        &mut self,
        memories: &List<Memory>,
        host: &mut dyn Host,
        left: &mut usize,
    ) -> Result<(), Refusal> {
        while let Some(memory) = memories.all.get(self.looked) {
            let executed = executed(memory).and_then(|ino| self.programs.get(&ino)?.as_ref());
            let of = memory.borrow();
            for path in executed
                .map(|path| &**path)
                .into_iter()
                .chain(of.mapped.paths())
            {
                if self.known.has(path) {
                    continue;
                }
                take_turn(left)?;
                self.known.look_for(host, path);
                if host.waits() || services::fs::is_on_disk(path) {
                    return Err(Refusal::Later);
                }
            }
            self.looked += 1;
        }
        Ok(())
    }

    /// Finds out which working directories exist. One that does not (removed, or of another server) is not looked for
    /// at the restore.
    fn find_directories(
        &mut self,
        contexts: &List<Context>,
        host: &mut dyn Host,
        left: &mut usize,
    ) -> Result<(), Refusal> {
        for context in &contexts.all {
            let path = context.borrow().cwd.clone();
            if self.directories.contains_key(&path) {
                continue;
            }
            take_turn(left)?;
            let is_there = file::is_directory(host, &path).is_ok();
            if host.waits() {
                return Err(Refusal::Later);
            }
            let is_on_disk = services::fs::is_on_disk(&path);
            self.directories.insert(path, is_there);
            if is_on_disk {
                return Err(Refusal::Later);
            }
        }
        Ok(())
    }

    /// Whether the working directory of each of these contexts exists.
    fn directories(&self, contexts: &List<Context>) -> Vec<bool> {
        let is_there = |context: &Shared<Context>| {
            let known = self.directories.get(&context.borrow().cwd);
            known == Some(&true)
        };
        contexts.all.iter().map(is_there).collect()
    }

    /// The paths of the programs, each once, and for each memory the index of the path that it executes.
    fn programs(&self, memories: &List<Memory>) -> (Vec<&str>, Vec<Option<u32>>) {
        let path = |memory| self.programs.get(&executed(memory)?)?.as_deref();
        let paths: BTreeSet<&str> = memories.all.iter().filter_map(path).collect();
        let paths: Vec<&str> = paths.into_iter().collect();
        let number = |memory| Some(paths.binary_search(&path(memory)?).ok()? as u32);
        let numbers = memories.all.iter().map(number).collect();
        (paths, numbers)
    }
}

/// Takes the price of one look-up from this turn, or ends the turn if nothing is left of it.
fn take_turn(left: &mut usize) -> Result<(), Refusal> {
    if *left == 0 {
        return Err(Refusal::Turn);
    }
    *left = left.saturating_sub(LOOK_UP);
    Ok(())
}

/// The inode of the file that a memory executes.
fn executed(memory: &Shared<Memory>) -> Option<u64> {
    Some(memory.borrow().executed.as_ref()?.ino())
}

/// Things of one kind that tasks can share, in the order in which they were found.
struct List<T> {
    all: Vec<Shared<T>>,
    /// How many tasks, descriptors, ... of the tree refer to each.
    users: Vec<usize>,
    numbers: BTreeMap<*const RefCell<T>, u32>,
}

impl<T> List<T> {
    const fn new() -> Self {
        List {
            all: Vec::new(),
            users: Vec::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Counts one more user of this thing, and returns its number.
    fn add(&mut self, one: &Shared<T>) -> u32 {
        let number = *self.numbers.entry(Rc::as_ptr(one)).or_insert_with(|| {
            self.all.push(Rc::clone(one));
            self.users.push(0);
            self.all.len() as u32 - 1
        });
        self.users[number as usize] += 1;
        number
    }

    fn number(&self, one: *const RefCell<T>) -> Option<u32> {
        self.numbers.get(&one).copied()
    }

    /// The first thing that somebody outside the tree refers to.
    fn shared(&self) -> Option<usize> {
        self.shared_but(&BTreeSet::new())
    }

    /// The same, where the things with the numbers in `more` have one more user that does not count as an outsider.
    fn shared_but(&self, more: &BTreeSet<u32>) -> Option<usize> {
        let counts = self.all.iter().map(Rc::strong_count);
        let own = (0u32..).map(|number| usize::from(more.contains(&number)));
        // The list itself holds one reference.
        counts
            .zip(self.users.iter().zip(own))
            .position(|(count, (users, own))| count > users + own + 1)
    }
}

/// Everything that the tasks of a tree refer to.
struct Things {
    /// The tasks.
    tids: Vec<Tid>,
    /// How many tasks have been looked at, and the next descriptor of the one that is being looked at.
    next: (usize, Option<u32>),
    memories: List<Memory>,
    tables: List<Files>,
    contexts: List<Context>,
    actions: List<Actions>,
    descriptions: List<Description>,
    /// Where each description was found first.
    fds: Vec<Place>,
    /// The sockets that are open or wait to be accepted, and where each was found first.
    sockets: BTreeMap<u64, Place>,
    /// The numbers of the descriptions of pipes, and of instances of `epoll`.
    pipes: Vec<usize>,
    epolls: Vec<usize>,
    /// The numbers of the descriptions of pseudo-terminals.
    ptys: Vec<usize>,
    /// The instances of `inotify`.
    inotifies: Vec<u64>,
    /// The open files by inode: what is open on each, and whether it may be written.
    files: BTreeMap<u64, (Kind, bool)>,
    /// The memory objects that memories of the tree map, and how many of the memories map each.
    objects: BTreeMap<u64, usize>,
    /// How many users each memory object has that are no memories: tasks that are loading it, and System V shared
    /// memory.
    loading: BTreeMap<u64, usize>,
    /// The descriptor tables, encoded: descriptor, whether `execve` closes it, number of its description.
    encoded_tables: Vec<u8>,
    /// How many of the descriptions are encoded, and their encoding.
    encoded: (usize, Vec<u8>),
}

/// Where something was found, for messages: a descriptor of a process, or (without one) something that it maps.
#[derive(Clone, Copy, Debug)]
struct Place {
    fd: Option<u32>,
    process: u32,
}

impl core::fmt::Display for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.fd {
            Some(fd) => write!(f, "descriptor {fd} of process {}", self.process),
            None => write!(f, "a mapping of process {}", self.process),
        }
    }
}

impl What {
    /// The processes to save, parents before their children, with those that have ended: the whole tree if the process
    /// is its root, else the process and its descendants. With `cut`, and if the process is in another group than its
    /// parent, also the other members of its group and their descendants: a job of a shell.
    #[must_use]
    pub fn set(&self, system: &System) -> Vec<Pid> {
        let root = self.root;
        let mut list = Vec::from([root]);
        let mut next = 0;
        let mut further = match system.find(root) {
            Some(process) if process.root == root => system.tree(root),
            Some(process) if self.cut && is_of_job(process, system) => {
                system.those(root, Which::Group(process.group)).to_vec()
            }
            _ => Vec::new(),
        };
        let known: BTreeSet<Pid> = further.iter().copied().collect();
        further.retain(|pid| *pid != root && is_first(*pid, (root, &known), system));
        list.extend(further);
        while let Some(process) = list.get(next).map(|pid| system.find(*pid)) {
            if let Some(process) = process {
                list.extend(process.children.iter().chain(&process.ended));
            }
            next += 1;
        }
        list
    }

    /// Whether the root of what is saved is the root of its tree.
    fn is_whole(&self, system: &System) -> bool {
        system.find(self.root).is_some_and(|p| p.root == self.root)
    }
}

/// Whether a process is in a job of its parent: in another process group (without a parent: it leads its own).
fn is_of_job(process: &Process, system: &System) -> bool {
    match process.parent.and_then(|parent| system.find(parent)) {
        Some(parent) => parent.group != process.group,
        None => process.group == process.number,
    }
}

/// Whether a process lives in the tree of `root`, and is neither a descendant of `root` or of one of `these` nor an
/// ancestor of `root`.
fn is_first(pid: Pid, (root, these): (Pid, &BTreeSet<Pid>), system: &System) -> bool {
    let above = |pid: Pid| {
        let parent = move |pid: &Pid| system.find(*pid)?.parent;
        core::iter::successors(parent(&pid), parent)
    };
    let tree = system.find(root).map(|p| p.root);
    let lives = |p: &&Process| p.status.is_none() && Some(p.root) == tree;
    system.find(pid).filter(lives).is_some()
        && !above(pid).any(|parent| parent == root || these.contains(&parent))
        && !above(root).any(|parent| parent == pid)
}

/// What tasks share with others, to find who shares something with a tree: memory, open file descriptions, pipes,
/// connections.
#[derive(Debug, Default)]
pub struct Common {
    memories: BTreeSet<*const RefCell<Memory>>,
    descriptions: BTreeSet<*const RefCell<Description>>,
    pipes: BTreeSet<u64>,
    /// The sockets, and their peers.
    sockets: BTreeSet<u64>,
    /// Memory objects.
    objects: BTreeSet<u64>,
    /// Pseudo-terminals.
    ptys: BTreeSet<u64>,
}

impl Common {
    /// What these tasks refer to. Takes time in proportion to their descriptors, once for each table.
    pub fn of<'a>(tasks: impl Iterator<Item = &'a Task>, system: &System) -> Self {
        let mut common = Common::default();
        let mut tables = BTreeSet::new();
        for task in tasks {
            let memory = &task.shares.memory;
            common.memories.insert(Rc::as_ptr(memory));
            common.objects.extend(memory.borrow().objects.ids());
            if !tables.insert(Rc::as_ptr(&task.shares.files)) {
                continue;
            }
            for fd in task.shares.files.borrow().fds.values() {
                common.descriptions.insert(Rc::as_ptr(&fd.description));
                match fd.description.borrow().kind {
                    Kind::Pipe { id, .. } => common.pipes.extend([id]),
                    Kind::Pty { id, .. } => common.ptys.extend([id]),
                    Kind::Socket { id } => common.sockets.extend(ends(id, system)),
                    _ => {}
                }
            }
        }
        common
    }

    /// Whether this task shares something with these tasks.
    #[must_use]
    pub fn has(&self, task: &Task, system: &System) -> bool {
        let meets = |fd: &Fd| match fd.description.borrow().kind {
            _ if self.descriptions.contains(&Rc::as_ptr(&fd.description)) => true,
            Kind::Pipe { id, .. } => self.pipes.contains(&id),
            Kind::Pty { id, .. } => self.ptys.contains(&id),
            Kind::Socket { id } => ends(id, system).any(|end| self.sockets.contains(&end)),
            _ => false,
        };
        let memory = &task.shares.memory;
        self.memories.contains(&Rc::as_ptr(memory))
            || memory
                .borrow()
                .objects
                .ids()
                .any(|id| self.objects.contains(&id))
            || task.shares.files.borrow().fds.values().any(meets)
    }
}

/// A socket, the connections that wait there to be accepted, and the peers of all these.
fn ends(id: u64, system: &System) -> impl Iterator<Item = u64> + '_ {
    let ready = system.sockets.find(id).into_iter().flat_map(|s| &s.ready);
    let own = core::iter::once(id).chain(ready.copied());
    own.flat_map(|id| {
        let peer = system.sockets.find(id).and_then(|socket| socket.peer);
        core::iter::once(id).chain(peer)
    })
}

impl Things {
    fn of(tasks: &[(u64, &Task)], ipc: Option<&Ipc>) -> Self {
        let memories = ipc.into_iter().flat_map(|ipc| ipc.memories.values());
        let used = memories.filter(|memory| memory.used.is_some());
        let kept: BTreeMap<u64, usize> = used.map(|memory| (memory.object, 1)).collect();
        Things {
            tids: tasks.iter().map(|(_, task)| task.tid).collect(),
            next: (0, None),
            memories: List::new(),
            tables: List::new(),
            contexts: List::new(),
            actions: List::new(),
            descriptions: List::new(),
            fds: Vec::new(),
            sockets: BTreeMap::new(),
            pipes: Vec::new(),
            epolls: Vec::new(),
            ptys: Vec::new(),
            inotifies: Vec::new(),
            files: BTreeMap::new(),
            objects: kept.keys().map(|id| (*id, 0)).collect(),
            loading: kept,
            encoded_tables: Vec::new(),
            encoded: (0, Vec::new()),
        }
    }

    /// Whether these are the things of exactly these tasks.
    fn are_of(&self, tasks: &[(u64, &Task)]) -> bool {
        self.tids.iter().eq(tasks.iter().map(|(_, task)| &task.tid))
    }

    /// Approximate memory that this takes, in bytes.
    fn memory(&self) -> u64 {
        let bytes = self.encoded_tables.capacity() + self.encoded.1.capacity();
        DESCRIPTOR * self.fds.len() as u64 + 2 * bytes as u64 + (64 << 10)
    }

    /// Looks at the next descriptors, and encodes the descriptions. [`Refusal::Turn`]: there is more to do.
    fn go_on(
        &mut self,
        tasks: &[(u64, &Task)],
        system: &System,
        left: &mut usize,
    ) -> Result<(), Refusal> {
        while let Some((_, task)) = tasks.get(self.next.0) {
            let files = task.shares.files.borrow();
            if self.next.1.is_none() && !self.begin(task, system)? {
                self.next.0 += 1;
                continue;
            }
            let from = self.next.1.unwrap_or(0);
            for (fd, of) in files.fds.from(from) {
                if *left == 0 {
                    self.next.1 = Some(fd);
                    return Err(Refusal::Turn);
                }
                *left -= 1;
                let process = task.number;
                let place = Place {
                    fd: Some(fd),
                    process,
                };
                let number = self.add_description(&of.description, place, system)?;
                put(&mut self.encoded_tables, &(fd, of.cloexec, number))?;
            }
            self.next = (self.next.0 + 1, None);
        }
        while let Some(description) = self.descriptions.all.get(self.encoded.0) {
            if *left == 0 {
                return Err(Refusal::Turn);
            }
            *left -= 1;
            put(&mut self.encoded.1, &*description.borrow())?;
            self.encoded.0 += 1;
        }
        Ok(())
    }

    /// Looks at everything in one step. Fails if there are more than [`MOST_CUT`] descriptors.
    fn at_once(&mut self, tasks: &[(u64, &Task)], system: &System) -> Result<(), Refusal> {
        match self.go_on(tasks, system, &mut { MOST_CUT }) {
            Err(Refusal::Turn) => Err(format!(
                "it has more than {MOST_CUT} descriptors, and is only a part of its tree"
            )
            .into()),
            looked => looked,
        }
    }

    /// Begins with a task: adds what it shares. Returns whether its descriptor table is new, so that its descriptors
    /// are still to be looked at.
    fn begin(&mut self, task: &Task, system: &System) -> Result<bool, Refusal> {
        let shares = &task.shares;
        let known = self.memories.all.len();
        if self.memories.add(&shares.memory) as usize == known {
            for id in shares.memory.borrow().objects.ids() {
                self.add_object(id, task.number, system)?;
            }
        }
        if let Some(id) = task.loading.as_ref().and_then(|loading| loading.object()) {
            *self.loading.entry(id).or_default() += 1;
        }
        self.contexts.add(&shares.context);
        self.actions.add(&shares.actions);
        let known = self.tables.all.len();
        let is_new = self.tables.add(&shares.files) as usize == known;
        if is_new {
            let count = shares.files.borrow().fds.len() as u32;
            put(&mut self.encoded_tables, &count)?;
        }
        Ok(is_new)
    }

    /// Notes that a memory of this process maps this object.
    fn add_object(&mut self, id: u64, process: u32, system: &System) -> Result<(), Refusal> {
        let uses = self.objects.entry(id).or_default();
        *uses += 1;
        // An object of shared memory has no file.
        let is_new = *uses == 1;
        if let Some(description) = system.objects.description(id).filter(|_| is_new) {
            // The object holds the description of its file as a descriptor would.
            let place = Place { fd: None, process };
            self.add_description(description, place, system)?;
        }
        Ok(())
    }

    /// Adds a description, with those in messages on their way to it, and returns its number. Fails if there are too
    /// many files.
    fn add_description(
        &mut self,
        description: &Shared<Description>,
        place: Place,
        system: &System,
    ) -> Result<u32, Refusal> {
        let mut waiting = Vec::from([Rc::clone(description)]);
        while let Some(description) = waiting.pop() {
            let known = self.descriptions.all.len();
            if (self.descriptions.add(&description) as usize) < known {
                continue;
            }
            self.fds.push(place);
            self.look_at(&description, known)?;
            let Kind::Socket { id } = description.borrow().kind else {
                continue;
            };
            let ready = system.sockets.find(id).into_iter().flat_map(|s| &s.ready);
            for id in core::iter::once(&id).chain(ready) {
                self.sockets.entry(*id).or_insert(place);
                let queue = system.sockets.find(*id).into_iter().flat_map(|s| &s.queue);
                // Descriptors on their way in a message (`SCM_RIGHTS`) refer to descriptions, too.
                waiting.extend(queue.flat_map(|message| &message.rights).cloned());
            }
        }
        let number = self.descriptions.number(Rc::as_ptr(description));
        number.ok_or_else(|| OUT.into())
    }

    /// Notes what a description is open on. Fails if there are too many files.
    fn look_at(&mut self, description: &Shared<Description>, number: usize) -> Result<(), Refusal> {
        let open = description.borrow();
        match &open.kind {
            Kind::Pty { .. } => self.ptys.push(number),
            Kind::Pipe { .. } => self.pipes.push(number),
            Kind::Epoll { .. } => self.epolls.push(number),
            Kind::Inotify { id } => self.inotifies.push(*id),
            _ => {}
        }
        let Some(ino) = open.ino() else { return Ok(()) };
        let file = self.files.entry(ino);
        let (_, written) = file.or_insert_with(|| (open.kind.clone(), false));
        *written |= open.writable();
        if self.files.len() > MAX_FILES as usize {
            return Err(format!("more than {MAX_FILES} files are open").into());
        }
        Ok(())
    }

    /// Whether all users of a memory object are of the tree.
    fn has_whole(&self, id: u64, system: &System) -> bool {
        let count = |of: &BTreeMap<u64, usize>| of.get(&id).copied().unwrap_or(0);
        system.objects.uses(id) <= count(&self.objects) + count(&self.loading)
    }

    /// The numbers of the descriptions that are held by memory objects of the tree which the image does not have:
    /// objects that are just being loaded or about to go.
    fn of_other_objects(&self, system: &System) -> BTreeSet<u32> {
        let others = system.objects.of_files();
        let others = others.filter(|id| !self.objects.contains_key(id));
        let own = others.filter(|id| self.has_whole(*id, system));
        let descriptions = own.filter_map(|id| system.objects.description(id));
        let numbers = descriptions.filter_map(|d| self.descriptions.number(Rc::as_ptr(d)));
        numbers.collect()
    }

    /// The memory objects of the tree, as an image has them.
    fn objects(&self, system: &System) -> Option<Vec<SavedObject>> {
        let number = |d: &Shared<_>| self.descriptions.number(Rc::as_ptr(d));
        let ids = self.objects.keys();
        ids.map(|id| system.objects.saved(*id, number)).collect()
    }

    /// The locks that the tree has on its files.
    fn locks(&self, system: &System) -> Vec<SavedLock> {
        if system.locks.is_empty() {
            return Vec::new();
        }
        let owners = self.tables.all.iter().map(|files| files.borrow().owner);
        let tables: BTreeMap<u64, u32> = owners.zip(0..).filter(|(owner, _)| *owner != 0).collect();
        let number = |at: usize| self.descriptions.number(core::ptr::without_provenance(at));
        let mut locks = Vec::new();
        for ino in self.files.keys() {
            for lock in system.locks.of_file(*ino) {
                let owner = match lock.owner {
                    Owner::Files(owner) => tables.get(&owner).copied().map(SavedOwner::Files),
                    Owner::Description(at) => number(at).map(SavedOwner::Description),
                    Owner::Whole(at) => number(at).map(SavedOwner::Whole),
                };
                // Locks of others stay with them.
                locks.extend(owner.map(|owner| SavedLock {
                    ino: *ino,
                    owner,
                    start: lock.start,
                    last: lock.last,
                    exclusive: lock.exclusive,
                    number: lock.number,
                }));
            }
        }
        locks.sort_unstable_by_key(|lock| (lock.ino, lock.owner, lock.start));
        locks
    }

    /// Fails if the tree shares something with others that must not be shared; with `cut`, only for what cannot be cut.
    fn are_its_own(&self, cut: bool, system: &System) -> Result<(), Refusal> {
        let shared = |what: &str| Err(Refusal::Shared(what.to_string()));
        if self.memories.shared().is_some() {
            return shared("memory");
        }
        if !self.objects.keys().all(|id| self.has_whole(*id, system)) {
            return shared("mapped memory (MAP_SHARED)");
        }
        if self.tables.shared().is_some() {
            return shared("descriptors");
        }
        if self.contexts.shared().is_some() {
            return shared("a working directory");
        }
        self.are_open_to_nobody(system)?;
        if cut {
            return Ok(());
        }
        let others = self.of_other_objects(system);
        if let Some(number) = self.descriptions.shared_but(&others) {
            return shared(&format!("what is open as {}", self.fds[number]));
        }
        let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
        for number in &self.pipes {
            if let Kind::Pipe { id, end, .. } = &self.descriptions.all[*number].borrow().kind {
                let count = usize::from(end.reads()) + usize::from(end.writes());
                *ends.entry(*id).or_default() += count;
            }
        }
        for number in &self.pipes {
            if let Kind::Pipe { id, pipe, .. } = &self.descriptions.all[*number].borrow().kind {
                let pipe = pipe.borrow();
                if pipe.readers + pipe.writers > ends.get(id).copied().unwrap_or(0) {
                    return shared(&format!("the pipe at {}", self.fds[*number]));
                }
            }
        }
        let mut ends: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for number in &self.ptys {
            if let Some(pty) = self.pty(*number) {
                ends.entry(pty).or_insert((*number, 0)).1 += 1;
            }
        }
        for (pty, (number, count)) in ends {
            if system.ptys.ends(pty) > count {
                return shared(&format!("the terminal at {}", self.fds[number]));
            }
        }
        Ok(())
    }

    /// Fails if somebody outside the tree has one of its `memfd_create` files open.
    fn are_open_to_nobody(&self, system: &System) -> Result<(), Refusal> {
        let mut own: BTreeMap<u64, usize> = BTreeMap::new();
        let all = self.descriptions.all.iter();
        for ino in all.filter_map(|open| open.borrow().ino()) {
            if system.memfds.contains_key(&ino) {
                *own.entry(ino).or_default() += 1;
            }
        }
        let is_shared = |(ino, count): (&u64, &usize)| system.busy.descriptions(*ino) > *count;
        if own.iter().any(is_shared) {
            let what = "a file of memory (memfd_create)";
            return Err(Refusal::Shared(what.to_string()));
        }
        Ok(())
    }

    /// The number of the pseudo-terminal of which this description is an end.
    fn pty(&self, description: usize) -> Option<u32> {
        match self.descriptions.all[description].borrow().kind {
            Kind::Pty { number, .. } => Some(number),
            _ => None,
        }
    }

    /// The pseudo-terminals, as the tree with this root has them.
    fn ptys(&self, root: Pid, system: &System) -> Vec<SavedPty> {
        let numbers: BTreeSet<u32> = self.ptys.iter().filter_map(|n| self.pty(*n)).collect();
        let saved = numbers.into_iter();
        let mut saved: Vec<_> = saved.filter_map(|n| system.ptys.saved(n, root)).collect();
        saved.sort_unstable_by_key(|pty| pty.id);
        for pty in &mut saved {
            // A terminal whose master is not in the image has hung up, so it belongs to no session.
            pty.session = pty.session.filter(|_| self.has_master(pty.id));
        }
        saved
    }

    /// Whether the master of this pseudo-terminal is open in the tree.
    fn has_master(&self, pty: u64) -> bool {
        self.ptys.iter().any(|number| {
            let kind = &self.descriptions.all[*number].borrow().kind;
            matches!(kind, Kind::Pty { id, master: true, .. } if *id == pty)
        })
    }

    /// Gathers the files, with the contents of those that may be written (of every file if `all`), as far as there is
    /// room.
    fn gather(
        &mut self,
        all: bool,
        gathered: &mut Gathered,
        system: &System,
        host: &mut dyn Host,
        left: &mut usize,
    ) -> Result<(), Refusal> {
        if gathered.order.is_empty() {
            let known = &gathered.files;
            let new = self
                .files
                .iter()
                .filter(|(ino, _)| !known.contains_key(ino));
            gathered.order = new.map(|(ino, what)| (*ino, what.clone())).collect();
            // `order` is taken from the end: files that may be written come first.
            let order = &mut gathered.order;
            order.sort_by_key(|(ino, (_, written))| (*written, core::cmp::Reverse(*ino)));
        }
        gathered.go_on(all, system, host, left)
    }

    fn pipes(&self) -> Vec<SavedPipe> {
        let mut pipes = BTreeMap::new();
        for number in &self.pipes {
            if let Kind::Pipe { id, pipe, .. } = &self.descriptions.all[*number].borrow().kind {
                let pipe = pipe.borrow();
                pipes.entry(*id).or_insert_with(|| {
                    let bytes: Vec<u8> = pipe.bytes.iter().copied().collect();
                    (*id, pipe.capacity as u32, pipe.had_writer, bytes)
                });
            }
        }
        pipes.into_values().collect()
    }

    /// What the instances of `epoll` watch; with `cut`, without descriptions that only others have open.
    fn watches(&self, cut: bool, system: &System) -> Result<Vec<(u64, Vec<SavedWatch>)>, Refusal> {
        let mut all = BTreeMap::new();
        for number in &self.epolls {
            let fd = self.fds[*number];
            let Kind::Epoll { id } = self.descriptions.all[*number].borrow().kind else {
                continue;
            };
            let mut saved = Vec::new();
            let watches = system.epolls.watches(id);
            let mut behind = watches.len() as u32;
            for (watch, place) in watches {
                let Some(number) = self.descriptions.number(watch.description.as_ptr()) else {
                    if cut {
                        continue;
                    }
                    return Err(Refusal::Shared(format!("what {fd} watches")));
                };
                // A watch that is not in the ready list is put there if the restored program may have missed its event:
                // after a cut any watch, since the cut closes the other ends; otherwise a level-triggered one, since
                // the console of the new place may already have input.
                let place = place.or_else(|| {
                    behind += 1;
                    (cut || watch.events & EDGE == 0).then_some(behind)
                });
                saved.push(SavedWatch {
                    fd: watch.fd,
                    description: number,
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

    /// The sockets; with `cut`, without connections to others.
    fn sockets(
        &self,
        cut: bool,
        system: &System,
        host: &mut dyn Host,
    ) -> Result<Vec<SavedSocket>, Refusal> {
        let mut saved = Vec::new();
        for (id, fd) in &self.sockets {
            let Some(socket) = system.sockets.find(*id) else {
                continue;
            };
            room(host, 2 * socket.size() as u64)?;
            let number = |right: &Shared<_>| self.descriptions.number(Rc::as_ptr(right));
            if let Some(place) = system.other_machine(*id) {
                let to = outside::text(place);
                let sentence =
                    format!("the socket at {fd} has a connection to another machine, {to}");
                return Err(Refusal::Because(sentence));
            }
            // Connections and messages of others that came after the tree was looked at belong to these others.
            let mut ready = socket.ready.iter();
            if ready.any(|end| !self.sockets.contains_key(end)) {
                let sentence = format!("the connection of the socket at {fd}");
                return Err(Refusal::Shared(sentence));
            }
            let mut rights = socket.queue.iter().flat_map(|m| &m.rights);
            if rights.any(|right| number(right).is_none()) {
                let sentence = format!("descriptors on their way to the socket at {fd}");
                return Err(Refusal::Shared(sentence));
            }
            let messages = (0u32..).zip(&socket.queue);
            let rights = messages
                .filter(|(_, message)| !message.rights.is_empty())
                .map(|(n, message)| (n, message.rights.iter().filter_map(number).collect()))
                .collect();
            let mut socket = socket.clone();
            if cut {
                socket.leave_others(|id| self.sockets.contains_key(id));
            }
            // The peer of a datagram socket may have been closed: its next send reports that.
            socket.peer = socket
                .peer
                .filter(|peer| system.sockets.find(*peer).is_some());
            if socket
                .peer
                .is_some_and(|peer| !self.sockets.contains_key(&peer))
            {
                let sentence = format!("the connection of the socket at {fd}");
                return Err(Refusal::Shared(sentence));
            }
            let path = match socket.name {
                Some(Name::File(_, ino)) if system.nodes.mode(ino).is_some() => {
                    match host.fs(&Request::PathOf { ino }, &[], &mut []) {
                        Ok((Reply::Path(path), _)) => Some(path),
                        _ if host.waits() => return Err(Refusal::Later),
                        _ => None,
                    }
                }
                _ => None,
            };
            // This check is made for trees of every size; reading the whole tree back is only for small ones.
            if !socket.can_be_saved() {
                let sentence = format!("the socket at {fd} is as no image can have one");
                return Err(Refusal::Because(sentence));
            }
            saved.push(SavedSocket {
                id: *id,
                socket,
                path,
                is_found: system.sockets.is_found(*id),
                rights,
            });
        }
        Ok(saved)
    }

    /// How many things of each kind there are, to be compared with the bounds.
    fn counts(
        &self,
        pipes: &[SavedPipe],
        epolls: &[(u64, Vec<SavedWatch>)],
        sockets: &[SavedSocket],
    ) -> Counts {
        let tables = self.tables.all.iter();
        let rights = sockets.iter().flat_map(|socket| &socket.rights);
        Counts {
            memories: self.memories.all.len(),
            contexts: self.contexts.all.len(),
            actions: self.actions.all.len(),
            tables: self.tables.all.len(),
            descriptors: tables
                .map(|table| table.borrow().fds.len())
                .max()
                .unwrap_or(0),
            descriptions: self.descriptions.all.len(),
            pipes: pipes.len(),
            epolls: epolls.len(),
            watches: epolls.iter().map(|(_, watches)| watches.len()).sum(),
            sockets: sockets.len(),
            left: bounds::left_behind(sockets).len(),
            rights: rights.map(|(_, descriptions)| descriptions.len()).sum(),
            inotifies: self.inotifies.len(),
            ..Counts::default()
        }
    }

    /// Approximate encoded length in bytes; may be a little too small.
    fn size(&self) -> u64 {
        let memories = self.memories.all.iter().map(|memory| {
            let memory = memory.borrow();
            let mapped = memory.mapped.list().iter().map(|file| file.name.len() + 8);
            40 * memory.areas.list().len() + memory.name.len() + mapped.sum::<usize>() + 200
        });
        let pipes = self.pipes.iter().map(|number| {
            let description = self.descriptions.all[*number].borrow();
            match &description.kind {
                Kind::Pipe { pipe, .. } => pipe.borrow().bytes.len(),
                _ => 0,
            }
        });
        let encoded = self.encoded_tables.len() + self.encoded.1.len() + (32 << 10);
        (encoded + memories.sum::<usize>() + pipes.sum::<usize>()) as u64
    }
}

/// Appends the encoding of a value.
fn put<T: Serialize>(encoded: &mut Vec<u8>, what: &T) -> Result<(), Refusal> {
    *encoded = postcard::to_extend(what, core::mem::take(encoded)).map_err(|_| OUT)?;
    Ok(())
}

/// Makes the part of the processes `all`, or says why they cannot be saved. `tasks` has all tasks that may be among
/// them, each with the place of its thread in the control segment. `known` tells, of a process, the place of its first
/// thread if that thread's task has ended, and the name of a process that has ended.
///
/// After [`Refusal::Later`] (a disk was asked, or one more file is gathered) and [`Refusal::Turn`] (there is more to
/// do, and others get a turn first) the caller calls again with the same `gathered`. After `Later` that is a new call
/// of the host, unless the host waits for an answer.
pub fn save(
    (what, all): (What, &[Pid]),
    gathered: &mut Gathered,
    tasks: &[(u64, &Task)],
    known: impl Fn(Pid) -> (Option<u64>, String),
    system: &System,
    host: &mut dyn Host,
) -> Result<Made, Refusal> {
    let left = &mut { STEP };
    let What { root, files, cut } = what;
    gathered.go_on(files, system, host, left)?;
    let parent = system.find(root).and_then(|process| process.parent);
    if let Some(parent) = parent.filter(|_| !cut) {
        return Err(Refusal::Parent(parent));
    }
    if !what.is_whole(system) {
        uses_no_ipc(all, tasks, system)?;
    }
    if let Some((_, task)) = tasks
        .iter()
        .find(|(_, task)| system.nodes.is_granted(task.tid))
    {
        let sentence = format!("process {} is just opening a FIFO", task.number);
        return Err(Refusal::Because(sentence));
    }
    // Sorting puts the root's task first, and with it the root's memory.
    let mut tasks: Vec<(u64, &Task)> = tasks.to_vec();
    let numbers: BTreeMap<Pid, u32> = all.iter().copied().zip(0..).collect();
    tasks.retain(|(_, task)| numbers.contains_key(&task.pid));
    tasks.sort_by_key(|(_, task)| (numbers.get(&task.pid), task.tid));
    if tasks.first().is_none_or(|(_, task)| task.pid != root) {
        return Err("it has ended".into());
    }
    let open = tasks
        .iter()
        .map(|(_, task)| task.shares.files.borrow().fds.len());
    room(host, DESCRIPTOR * open.sum::<usize>().min(STEP) as u64)?;
    let things = gathered.things.take().filter(|of| of.are_of(&tasks));
    let mut things = things.unwrap_or_else(|| Things::of(&tasks, of_whole_tree(system, root)));
    let looked = match cut {
        true => things.at_once(&tasks, system),
        false => things.go_on(&tasks, system, left),
    };
    let found = looked
        .and_then(|()| things.gather(files, gathered, system, host, left))
        .and_then(|()| gathered.find_programs(&things.memories, host, left))
        .and_then(|()| gathered.look_at_programs(&things.memories, host, left))
        .and_then(|()| gathered.find_directories(&things.contexts, host, left))
        .and_then(|()| {
            let ids = &things.inotifies;
            inotify::find_paths(ids, &mut gathered.watched, system, host, left)
        })
        .and_then(|()| things.are_its_own(cut, system))
        .and_then(|()| things.sockets(cut, system, host));
    let sockets = match found {
        Err(later @ (Refusal::Turn | Refusal::Later)) => {
            gathered.things = Some(things).filter(|_| !cut);
            return Err(later);
        }
        found => found?,
    };
    let epolls = things.watches(cut, system)?;
    let ipc = of_whole_tree(system, root);
    let locks = things.locks(system);
    let objects = things.objects(system).ok_or(OUT)?;
    let of = system.find(root).map_or(root, |process| process.root);
    let ptys = things.ptys(of, system);
    let terminals: usize = ptys.iter().map(SavedPty::length).sum();
    let ids: Vec<u64> = objects.iter().map(|object| object.id).collect();
    let parts = objects.iter().map(|object| 1 + object.loaded.len() as u64);
    let parts: u64 = parts.sum();
    let inos = things.files.keys();
    let memfds: Vec<_> = inos
        .filter_map(|ino| Some((*ino, system.memfds.get(ino)?)))
        .collect();
    let messages = sockets.iter().map(|saved| saved.socket.size() as u64);
    let watches = epolls.iter().map(|(_, all)| WATCH * all.len() as u64);
    let waits = tasks
        .iter()
        .filter_map(|(_, task)| system.ipcs.wait(task.tid));
    let length = messages.sum::<u64>()
        + watches.sum::<u64>()
        + LOCK * locks.len() as u64
        + OBJECT_PART * parts
        + terminals as u64
        + MEMFD * memfds.len() as u64
        + gathered.size_of_programs()
        + inotify::length(
            &things.inotifies,
            &things.descriptions.all,
            &gathered.watched,
            system,
        )
        + ipc.map_or(0, Ipc::size)
        + waits.map(ipc::Wait::size).sum::<u64>()
        + things.size()
        + TASK * tasks.len() as u64
        + PROCESS * all.len() as u64;
    room(host, 2 * ENCODED * length)?;
    let mut processes: Vec<_> = all
        .iter()
        .filter_map(|pid| SavedProcess::of(*pid, &numbers, known(*pid), system))
        .collect();
    for process in &mut processes {
        process.terminal = process.terminal.filter(|id| things.has_master(*id));
    }
    let saved_tasks: Option<Vec<_>> = tasks
        .iter()
        .map(|(place, task)| SavedTask::of(*place, task, (&numbers, &things), system))
        .collect();
    let count = |list: usize| list as u32;
    let mut tree = Vec::new();
    put(&mut tree, &processes)?;
    put(&mut tree, &saved_tasks.ok_or(OUT)?)?;
    put(&mut tree, &copies(&things.memories))?;
    put(&mut tree, &copies(&things.contexts))?;
    put(&mut tree, &copies(&things.actions))?;
    put(&mut tree, &count(things.tables.all.len()))?;
    tree.append(&mut things.encoded_tables);
    put(&mut tree, &count(things.descriptions.all.len()))?;
    tree.append(&mut things.encoded.1);
    let pipes = things.pipes();
    let mut counts = things.counts(&pipes, &epolls, &sockets);
    (counts.processes, counts.tasks) = (processes.len(), tasks.len());
    (counts.locks, counts.memfds) = (locks.len(), memfds.len());
    (counts.objects, counts.ptys) = (objects.len(), ptys.len());
    counts.ipc = ipc.map_or([0; 3], bounds::of_ipc);
    counts.undo = processes.iter().map(|process| process.undo.len()).sum();
    // More than the bounds allow can be here, because what others have sent to the tree is charged to them while it
    // waits.
    if let Some(sentence) = excess(&counts) {
        return Err(Refusal::Because(sentence));
    }
    put(&mut tree, &pipes)?;
    put(&mut tree, &(epolls, sockets))?;
    put(&mut tree, &system.foregrounds.get(&root))?;
    put(&mut tree, &(locks, memfds, objects, ptys))?;
    put(&mut tree, &gathered.programs(&things.memories))?;
    let files = &gathered.files;
    let is_nameless = |ino| matches!(files.get(&ino), Some(SavedFile::Unlinked { .. }));
    let inotifies = inotify::saved(&things.inotifies, &gathered.watched, is_nameless, system);
    let places = inotify::saved_places(&things.inotifies, &things.descriptions.all, system);
    put(&mut tree, &(inotifies, places))?;
    put(&mut tree, &ipc.map(|ipc| ipc.kept(&system.objects)))?;
    put(&mut tree, &gathered.directories(&things.contexts))?;
    // The root's task is the first one, and all tasks have one clock.
    let now = tasks.first().map_or(0, |(_, task)| task.now(host));
    put(&mut tree, &host.date().wrapping_sub(now))?;
    let files = core::mem::take(&mut gathered.files).into_iter();
    let files: Vec<_> = files
        .filter(|(ino, _)| things.files.contains_key(ino))
        .collect();
    let contents = files.iter().map(|(_, file)| file.length());
    let length = tree.len() + contents.sum::<usize>();
    room(host, ENCODED * length as u64)?;
    let part = Part {
        version: VERSION,
        tree: Bytes(&tree),
        files,
    };
    let encoded = postcard::to_allocvec(&part).map_err(|_| OUT.to_string())?;
    // An image that cannot be restored must be found out while the tree still exists. If memory is too short to read it
    // back it is kept all the same: another machine may be able to restore it.
    if tree.len() <= LOOKED_AT
        && room(host, DECODED * tree.len() as u64).is_ok()
        && !can_be_read(&tree, &part.files)
    {
        return Err("it has something that no image can be restored with".into());
    }
    let mut memories: Vec<Tid> = Vec::new();
    let mut known = BTreeSet::new();
    for (_, task) in &tasks {
        if known.insert(Rc::as_ptr(&task.shares.memory)) {
            memories.push(task.tid);
        }
    }
    Ok(Made {
        part: encoded,
        memories,
        objects: ids,
        files: gathered.known.take(),
    })
}

/// Fails if a part of a tree uses System V IPC of the tree, which stays with the rest of the tree.
fn uses_no_ipc(all: &[Pid], tasks: &[(u64, &Task)], system: &System) -> Result<(), Refusal> {
    let changes = |pid: &Pid| {
        let ipc = system.find(*pid).and_then(|p| system.ipcs.of(p.root));
        ipc.is_some_and(|ipc| ipc.undo_of(*pid).next().is_some())
    };
    let uses = |task: &Task| {
        let ipc = system.find(task.pid).and_then(|p| system.ipcs.of(p.root));
        let is_shared = |id| ipc.is_some_and(|ipc| ipc.memories.values().any(|m| m.object == id));
        let memory = task.shares.memory.borrow();
        system.ipcs.wait(task.tid).is_some() || memory.objects.ids().any(is_shared)
    };
    let own = tasks.iter().map(|(_, task)| *task);
    let mut own = own.filter(|task| all.contains(&task.pid));
    if all.iter().any(changes) || own.any(uses) {
        return Err("it uses System V IPC of its tree, which is not saved with it".into());
    }
    Ok(())
}

/// The System V IPC of a tree with this root, unless it is empty.
fn of_whole_tree(system: &System, root: Pid) -> Option<&Ipc> {
    let ipc = system.ipcs.of(root)?;
    (!ipc.is_empty()).then_some(ipc)
}

fn copies<T: Clone>(list: &List<T>) -> Vec<T> {
    list.all.iter().map(|one| one.borrow().clone()).collect()
}

impl SavedProcess {
    fn of(
        pid: Pid,
        numbers: &BTreeMap<Pid, u32>,
        (first, name): (Option<u64>, String),
        system: &System,
    ) -> Option<Self> {
        let process = system.find(pid)?;
        let mut saved = process.clone();
        // A process that is cut out of a tree takes along the console settings of the tree.
        let settings = system.console_settings(pid);
        saved.termios = settings
            .filter(|_| numbers.get(&pid) == Some(&0))
            .map(Vec::from);
        Some(SavedProcess {
            process: saved,
            parent: process.parent.and_then(|pid| numbers.get(&pid).copied()),
            ended: process.status.map(|status| (status, name)),
            exit_signal: process.exit_signal,
            borrows: process.borrows,
            stopped: process.stopped,
            news: process.news,
            first,
            terminal: process.terminal.map(|(_, id)| id),
            trace_ends: system.untold_ends(pid),
            undo: system
                .ipcs
                .of(process.root)
                .map_or_else(Vec::new, |ipc| ipc.undo_of(pid).collect()),
        })
    }
}

/// The number of a tracer in the list; 0 if it is not there and the task is being released from it.
fn numbers_of(processes: &BTreeMap<Pid, u32>, tracer: Pid, leaves: bool) -> Option<u32> {
    let number = processes.get(&tracer).copied();
    number.or_else(|| leaves.then_some(0))
}

impl SavedTask {
    fn of(
        place: u64,
        task: &Task,
        (processes, things): (&BTreeMap<Pid, u32>, &Things),
        system: &System,
    ) -> Option<Self> {
        let shares = &task.shares;
        // A futex in a memory object that the tree does not map cannot be woken, so it is not saved that the task waits
        // there.
        let waits = system.futexes.place(task.tid).filter(|(word, ..)| {
            let object = word.object();
            object.is_none_or(|id| things.objects.contains_key(&id))
        });
        let owner = waits.and_then(|(word, ..)| system.futexes.owner(word));
        let owner = owner.and_then(|owner| system.thread_number(owner));
        Some(SavedTask {
            process: *processes.get(&task.pid)?,
            number: task.thread,
            memory: things.memories.number(Rc::as_ptr(&shares.memory))?,
            files: things.tables.number(Rc::as_ptr(&shares.files))?,
            context: things.contexts.number(Rc::as_ptr(&shares.context))?,
            actions: things.actions.number(Rc::as_ptr(&shares.actions))?,
            place,
            comm: task.shown.comm().to_vec(),
            signals: task.signals.clone(),
            wait: task.wait,
            robust: task.robust,
            clear_at: task.clear_at,
            spent: task.shown.spent.get(),
            waits_at: waits.map(|(word, order, waiter)| (word.address, order, waiter)),
            waits_in: waits.and_then(|(word, ..)| word.object()),
            owner,
            trace: system.trace(task.tid).and_then(|trace| {
                // A task whose tracer has ended is being released, whoever is named as the tracer.
                let tracer = numbers_of(processes, trace.tracer, trace.leaves)?;
                Some((tracer, trace.clone()))
            }),
            awaits: system.ipcs.wait(task.tid).cloned(),
        })
    }
}
