//! A tree is taken apart.

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

/// A pipe: identity, capacity, whether there has been a writer, and bytes.
type SavedPipe = (u64, u32, bool, Vec<u8>);

/// About how long a watch is, encoded.
const WATCH: u64 = 40;
/// About how long a part of a file that a memory object has is, encoded.
const OBJECT_PART: u64 = 20;
/// About how long a lock is, encoded.
const LOCK: u64 = 40;
/// About how long what is kept of a file of `memfd_create` is, encoded.
const MEMFD: u64 = MAX_NAME as u64 + 20;
/// About how long a task is, encoded.
const TASK: u64 = 1 << 10;
/// About how long a process is, encoded.
const PROCESS: u64 = 8 << 10;

/// Most descriptors of a part of a tree: those that are not saved with it go on, so that it has to be looked at at once.
const MOST_CUT: usize = 4 * STEP;
/// A tree of at most so many bytes, encoded, is read again before it is saved. That takes as long as a step; for a
/// larger one others would have to wait.
const LOOKED_AT: usize = 64 << 10;
/// About how many bytes of memory a descriptor takes while its tree is saved.
const DESCRIPTOR: u64 = 400;

/// What is to be saved.
#[derive(Clone, Copy, Debug)]
pub struct What {
    /// A process, with those that [`What::set`] finds.
    pub root: Pid,
    /// With what is in the files that are only read.
    pub files: bool,
    /// As if everybody else had just closed what he has in common with them: the process may have a parent, and is restored without one.
    pub cut: bool,
}

/// What is to be kept of a tree.
#[derive(Debug)]
pub struct Made {
    /// The part.
    pub part: Vec<u8>,
    /// A task in each memory, in the order of the part; the first one is that of the root.
    pub memories: Vec<Tid>,
    /// The memory objects, in the order of the part.
    pub objects: Vec<u64>,
    /// Files that it has open, executes or maps and of which the part has the name only.
    pub files: Vec<Named>,
}

/// What has been found of a tree that is being saved, which stands still. It takes several calls of [`save`] if there
/// is much, or if files on a disk are waited for.
#[derive(Default)]
pub struct Gathered {
    files: BTreeMap<u64, SavedFile>,
    /// What is known of those that are only named, of programs, and of what is mapped.
    known: file::Known,
    /// Bytes of those that have names.
    carried: u64,
    /// The paths of files that are executed, if they have one.
    programs: BTreeMap<u64, Option<String>>,
    /// Of how many memories it is known what they execute and map.
    looked: usize,
    /// Working directories, and whether they are there.
    directories: BTreeMap<String, bool>,
    /// Paths of files that are watched.
    watched: inotify::Paths,
    /// What is still to be gathered: what is open as which file, and whether it is written. The last one comes first.
    order: Vec<(u64, (Kind, bool))>,
    /// What the tasks have, as far as it has been looked at.
    things: Option<Things>,
}

impl core::fmt::Debug for Gathered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gathered").finish_non_exhaustive()
    }
}

impl Gathered {
    /// About how many bytes there are.
    #[must_use]
    pub fn size(&self) -> u64 {
        let files: u64 = self.files.values().map(|f| 64 + f.length() as u64).sum();
        let things = self.things.as_ref().map_or(0, Things::memory);
        let known = self.known.memory();
        files + things + known + 100 * self.order.len() as u64 + self.size_of_programs()
    }

    /// That of the paths.
    fn size_of_programs(&self) -> u64 {
        let paths = self.programs.values().chain(self.watched.values());
        let paths = paths.flatten().chain(self.directories.keys());
        let count = self.programs.len() + self.watched.len() + self.directories.len();
        (64 * count + paths.map(String::len).sum::<usize>()) as u64
    }

    /// Forgets what the tasks have. To be called before one of them ends or goes on: who closes a descriptor is to be
    /// the last one who has it.
    pub fn forget_tasks(&mut self) {
        self.things = None;
        self.looked = 0;
    }

    /// As [`Gathered::forget_tasks`], if one of these is among them: what others have is not begun anew for who is not.
    pub fn forget_if_of(&mut self, tids: &[Tid]) {
        let of = |things: &Things| things.tids.iter().any(|tid| tids.contains(tid));
        if self.things.as_ref().is_some_and(of) {
            self.forget_tasks();
        }
    }

    /// Gathers what is still to be.
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
                // What it was asked for need not be kept for the next one.
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

    /// Finds out what there is to know of these programs, and of what the memories map.
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

    /// Finds out which working directories are there: one that was removed, or is another server's, is not looked for
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

    /// Of each of these whether its directory is there.
    fn directories(&self, contexts: &List<Context>) -> Vec<bool> {
        let is_there = |context: &Shared<Context>| {
            let known = self.directories.get(&context.borrow().cwd);
            known == Some(&true)
        };
        contexts.all.iter().map(is_there).collect()
    }

    /// The paths, each once, and which one each of these memories executes.
    fn programs(&self, memories: &List<Memory>) -> (Vec<&str>, Vec<Option<u32>>) {
        let path = |memory| self.programs.get(&executed(memory)?)?.as_deref();
        let paths: BTreeSet<&str> = memories.all.iter().filter_map(path).collect();
        let paths: Vec<&str> = paths.into_iter().collect();
        let number = |memory| Some(paths.binary_search(&path(memory)?).ok()? as u32);
        let numbers = memories.all.iter().map(number).collect();
        (paths, numbers)
    }
}

/// Something more is looked for in this turn, or others are to have theirs first.
fn take_turn(left: &mut usize) -> Result<(), Refusal> {
    if *left == 0 {
        return Err(Refusal::Turn);
    }
    *left = left.saturating_sub(LOOK_UP);
    Ok(())
}

/// The file that a memory executes.
fn executed(memory: &Shared<Memory>) -> Option<u64> {
    Some(memory.borrow().executed.as_ref()?.ino())
}

/// What tasks may have in common with others, in the order in which it was found.
struct List<T> {
    all: Vec<Shared<T>>,
    /// How many tasks, descriptors, ... have each.
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

    /// The number of one that somebody has.
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

    /// The first one that somebody else has, too.
    fn shared(&self) -> Option<usize> {
        self.shared_but(&BTreeSet::new())
    }

    /// The same, where those with these numbers are had by one more who is nobody else.
    fn shared_but(&self, more: &BTreeSet<u32>) -> Option<usize> {
        let counts = self.all.iter().map(Rc::strong_count);
        let own = (0u32..).map(|number| usize::from(more.contains(&number)));
        // One is in the list.
        counts
            .zip(self.users.iter().zip(own))
            .position(|(count, (users, own))| count > users + own + 1)
    }
}

/// Everything that the tasks of a tree have.
struct Things {
    /// The tasks.
    tids: Vec<Tid>,
    /// How many of them have been looked at, and the next descriptor of the one that is being looked at.
    next: (usize, Option<u32>),
    memories: List<Memory>,
    tables: List<Files>,
    contexts: List<Context>,
    actions: List<Actions>,
    descriptions: List<Description>,
    /// The first descriptor of each description.
    fds: Vec<Place>,
    /// The sockets that are open or wait to be accepted, and where.
    sockets: BTreeMap<u64, Place>,
    /// The numbers of the descriptions of pipes, and of instances of `epoll`.
    pipes: Vec<usize>,
    epolls: Vec<usize>,
    /// As well, of pseudo-terminals.
    ptys: Vec<usize>,
    /// The instances of `inotify`.
    inotifies: Vec<u64>,
    /// What is open as which file, and whether it is written.
    files: BTreeMap<u64, (Kind, bool)>,
    /// The memory objects that its memories show, and how many of these show each.
    objects: BTreeMap<u64, usize>,
    /// How many tasks are loading each memory object, and System V IPC that has it.
    loading: BTreeMap<u64, usize>,
    /// The tables, encoded: descriptor, whether `execve` closes it, number of its description.
    encoded_tables: Vec<u8>,
    /// How many of the descriptions are encoded, and those.
    encoded: (usize, Vec<u8>),
}

/// A descriptor of a process, or something that it maps, for people.
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
    /// The processes that are saved: the tree, of its root, and else those that have come of the process. If what
    /// leaves the set is cut, and the process is of another group than its parent, they are also the others of that
    /// group and what has come of them: a job of a shell. Each stands behind its parent, and those that have ended are
    /// among them.
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

    /// Whether the process is the first one of its tree.
    fn is_whole(&self, system: &System) -> bool {
        system.find(self.root).is_some_and(|p| p.root == self.root)
    }
}

/// Whether a process is of a job of its parent's, as its group says.
fn is_of_job(process: &Process, system: &System) -> bool {
    match process.parent.and_then(|parent| system.find(parent)) {
        Some(parent) => parent.group != process.group,
        None => process.group == process.number,
    }
}

/// Whether a process lives, and neither has come of one of these or of the root nor is what the root has come of.
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

/// By what one tells that others share something with a tree: memory, an open file description, a pipe or a connection.
#[derive(Debug, Default)]
pub struct Common {
    memories: BTreeSet<*const RefCell<Memory>>,
    descriptions: BTreeSet<*const RefCell<Description>>,
    pipes: BTreeSet<u64>,
    /// The sockets, and their other ends.
    sockets: BTreeSet<u64>,
    /// Memory objects.
    objects: BTreeSet<u64>,
    /// Pseudo-terminals.
    ptys: BTreeSet<u64>,
}

impl Common {
    /// That of these tasks. It takes as long as they have descriptors, once for each table.
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

    /// Whether this task shares something with the tree.
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

/// A socket, the connections that wait there to be accepted, and the other ends of these.
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

    /// Whether they are those of these tasks.
    fn are_of(&self, tasks: &[(u64, &Task)]) -> bool {
        self.tids.iter().eq(tasks.iter().map(|(_, task)| &task.tid))
    }

    /// About how many bytes of memory it takes.
    fn memory(&self) -> u64 {
        let bytes = self.encoded_tables.capacity() + self.encoded.1.capacity();
        DESCRIPTOR * self.fds.len() as u64 + 2 * bytes as u64 + (64 << 10)
    }

    /// Looks at what comes next. [`Refusal::Turn`]: that is not all.
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

    /// Looks at all of it.
    fn at_once(&mut self, tasks: &[(u64, &Task)], system: &System) -> Result<(), Refusal> {
        match self.go_on(tasks, system, &mut { MOST_CUT }) {
            Err(Refusal::Turn) => Err(format!(
                "it has more than {MOST_CUT} descriptors, and is only a part of its tree"
            )
            .into()),
            looked => looked,
        }
    }

    /// Begins with a task: whether nobody before it has its table of descriptors.
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

    /// A memory shows this object.
    fn add_object(&mut self, id: u64, process: u32, system: &System) -> Result<(), Refusal> {
        let uses = self.objects.entry(id).or_default();
        *uses += 1;
        // That of shared memory has no file.
        let is_new = *uses == 1;
        if let Some(description) = system.objects.description(id).filter(|_| is_new) {
            // It has that as a descriptor has it.
            let place = Place { fd: None, process };
            self.add_description(description, place, system)?;
        }
        Ok(())
    }

    /// A descriptor has this description: the number of that. Fails if it cannot be saved yet.
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
                // Those on their way have their descriptions, too.
                waiting.extend(queue.flat_map(|message| &message.rights).cloned());
            }
        }
        let number = self.descriptions.number(Rc::as_ptr(description));
        number.ok_or_else(|| OUT.into())
    }

    /// Notes what a description is of. Fails if it cannot be saved yet.
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

    /// Whether all who use a memory object are of the tree.
    fn has_whole(&self, id: u64, system: &System) -> bool {
        let count = |of: &BTreeMap<u64, usize>| of.get(&id).copied().unwrap_or(0);
        system.objects.uses(id) <= count(&self.objects) + count(&self.loading)
    }

    /// The descriptions that are had by memory objects of the tree of which the image has nothing: one that is just loaded, or about to go.
    fn of_other_objects(&self, system: &System) -> BTreeSet<u32> {
        let others = system.objects.of_files();
        let others = others.filter(|id| !self.objects.contains_key(id));
        let own = others.filter(|id| self.has_whole(*id, system));
        let descriptions = own.filter_map(|id| system.objects.description(id));
        let numbers = descriptions.filter_map(|d| self.descriptions.number(Rc::as_ptr(d)));
        numbers.collect()
    }

    /// Its memory objects.
    fn objects(&self, system: &System) -> Option<Vec<SavedObject>> {
        let number = |d: &Shared<_>| self.descriptions.number(Rc::as_ptr(d));
        let ids = self.objects.keys();
        ids.map(|id| system.objects.saved(*id, number)).collect()
    }

    /// The locks that it has on its files.
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
                // Others have theirs.
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

    /// Fails if the tree shares something with others that cannot be cut, or is not to be.
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

    /// Fails if somebody else has a file of memory open, too.
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

    /// Its pseudo-terminals, of the tree with this root.
    fn ptys(&self, root: Pid, system: &System) -> Vec<SavedPty> {
        let numbers: BTreeSet<u32> = self.ptys.iter().filter_map(|n| self.pty(*n)).collect();
        let saved = numbers.into_iter();
        let mut saved: Vec<_> = saved.filter_map(|n| system.ptys.saved(n, root)).collect();
        saved.sort_unstable_by_key(|pty| pty.id);
        for pty in &mut saved {
            // One that has hung up is nobody's.
            pty.session = pty.session.filter(|_| self.has_master(pty.id));
        }
        saved
    }

    /// Whether it has the master of this pseudo-terminal.
    fn has_master(&self, pty: u64) -> bool {
        self.ptys.iter().any(|number| {
            let kind = &self.descriptions.all[*number].borrow().kind;
            matches!(kind, Kind::Pty { id, master: true, .. } if *id == pty)
        })
    }

    /// Gathers the files: with what is in them if they are written, or if `all`, as far as there is room.
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
            // Those that are written come first.
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

    /// What the instances of `epoll` watch; if it is cut, without what only others have open.
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
                // What was closed for it by the cut it is told of, as of any end; and of the console of where it goes on,
                // which may have got something before it listens.
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

    /// The sockets; if it is cut, without connections to others.
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
            // What has come from others since the tree was looked at is theirs.
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
            // Who sent datagrams to one that is gone is told so at the next.
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
            // That can be said of any tree, however large.
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

    /// How many there are of what is counted.
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

    /// About how long they are, encoded, or a little less than that.
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

/// Puts something behind what is encoded.
fn put<T: Serialize>(encoded: &mut Vec<u8>, what: &T) -> Result<(), Refusal> {
    *encoded = postcard::to_extend(what, core::mem::take(encoded)).map_err(|_| OUT)?;
    Ok(())
}

/// The part of the tree of this process: all the tasks of its processes, each with the place of its thread in the control
/// segment; or why it cannot be saved. `known` says where the first thread of a process stands whose task has ended, and
/// the name of a process that has ended. The same is to be called again with what has been
/// gathered after [`Refusal::Later`] (what is asked of a disk takes time, or one more file is there; as a new call unless that waits) and
/// [`Refusal::Turn`] (there is more, and others are to have a turn first).
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
    // The memory of the root is the first one.
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
    // What others have sent to it counts for them as long as it waits.
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
    // The root's task is the first one, and all have one clock.
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
    // Who finds out at the restore has nothing left to save. Where there is no memory to look, the image may yet be restored elsewhere.
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

/// Fails if a part of a tree uses the System V IPC of that, which stays there.
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

/// The System V IPC of a tree of which this is the root.
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
        // What is cut from a tree has its console as that has.
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

/// The number of a tracer in the list.
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
        // At a word of memory that nobody has any more nobody wakes it.
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
                // Who is left by a tracer that has ended is so by anybody.
                let tracer = numbers_of(processes, trace.tracer, trace.leaves)?;
                Some((tracer, trace.clone()))
            }),
            awaits: system.ipcs.wait(task.tid).cloned(),
        })
    }
}
