//! A tree is taken apart.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use services::fs::ON_DISK;
use services::process::Pid;

use super::file::{SavedFile, MAX_CARRIED};
use super::{
    room, Part, Refusal, SavedProcess, SavedSocket, SavedTask, SavedWatch, CANNOT, ENCODED,
    MAX_FILES, OUT, VERSION,
};
use crate::files::{Reply, Request};
use crate::futex::{Waiter, Word};
use crate::host::Host;
use crate::lock::Owner;
use crate::process::{Context, Description, Fd, Files, Kind, Memory, Shared, Task};
use crate::signal::Actions;
use crate::socket::Name;
use crate::system::{System, Tid};

/// About how long a watch is, encoded.
const WATCH: u64 = 40;
/// About how long a task is, encoded.
const TASK: u64 = 1 << 10;
/// About how long a process is, encoded.
const PROCESS: u64 = 8 << 10;

/// What is to be kept of a tree.
#[derive(Debug)]
pub struct Made {
    /// The part.
    pub part: Vec<u8>,
    /// A task in each memory, in the order of the part; the first one is that of the root.
    pub memories: Vec<Tid>,
}

/// What is to be kept of the files of a tree, as far as it is there. Files on a disk are waited for, one after the other, and all else of the tree
/// is looked at again then.
#[derive(Default)]
pub struct Gathered {
    files: BTreeMap<u64, SavedFile>,
    /// Bytes of those that have names.
    carried: u64,
}

impl Gathered {
    /// About how many bytes there are.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.files.values().map(|f| 64 + f.length() as u64).sum()
    }
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
        let counts = self.all.iter().map(Rc::strong_count);
        // One is in the list.
        counts
            .zip(&self.users)
            .position(|(count, users)| count > users + 1)
    }
}

/// Everything that the tasks of a tree have.
struct Things {
    memories: List<Memory>,
    tables: List<Files>,
    contexts: List<Context>,
    actions: List<Actions>,
    descriptions: List<Description>,
    /// The first descriptor of each description, and whose: for people.
    fds: Vec<String>,
    /// The sockets that are open or wait to be accepted, and where: for people.
    sockets: BTreeMap<u64, String>,
}

/// The processes that are saved with this one: the tree, of its root, and else those that have come of it. Each stands behind
/// its parent, and those that have ended are among them.
#[must_use]
pub fn of_tree(system: &System, root: Pid) -> Vec<Pid> {
    let mut list = Vec::from([root]);
    let mut next = 0;
    let mut orphans = match system.find(root) {
        Some(process) if process.root == root => system.tree(root),
        _ => Vec::new(),
    };
    orphans.retain(|pid| *pid != root && system.find(*pid).is_some_and(|p| p.parent.is_none()));
    list.extend(orphans);
    while let Some(process) = list.get(next).map(|pid| system.find(*pid)) {
        if let Some(process) = process {
            list.extend(process.children.iter().chain(&process.ended));
        }
        next += 1;
    }
    list
}

/// By what one tells that others share something with a tree: memory, an open file description, a pipe or a connection.
#[derive(Debug, Default)]
pub struct Common {
    memories: BTreeSet<*const RefCell<Memory>>,
    descriptions: BTreeSet<*const RefCell<Description>>,
    pipes: BTreeSet<u64>,
    /// The sockets, and their other ends.
    sockets: BTreeSet<u64>,
}

impl Common {
    /// That of these tasks. It takes as long as they have descriptors, once for each table.
    pub fn of<'a>(tasks: impl Iterator<Item = &'a Task>, system: &System) -> Self {
        let mut common = Common::default();
        let mut tables = BTreeSet::new();
        for task in tasks {
            common.memories.insert(Rc::as_ptr(&task.shares.memory));
            if !tables.insert(Rc::as_ptr(&task.shares.files)) {
                continue;
            }
            for fd in task.shares.files.borrow().fds.values() {
                common.descriptions.insert(Rc::as_ptr(&fd.description));
                match fd.description.borrow().kind {
                    Kind::Pipe { id, .. } => common.pipes.extend([id]),
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
            Kind::Socket { id } => ends(id, system).any(|end| self.sockets.contains(&end)),
            _ => false,
        };
        self.memories.contains(&Rc::as_ptr(&task.shares.memory))
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
    fn of(tasks: &[(u64, &Task)], system: &System) -> Self {
        let mut things = Things {
            memories: List::new(),
            tables: List::new(),
            contexts: List::new(),
            actions: List::new(),
            descriptions: List::new(),
            fds: Vec::new(),
            sockets: BTreeMap::new(),
        };
        for (_, task) in tasks {
            let shares = &task.shares;
            things.memories.add(&shares.memory);
            things.contexts.add(&shares.context);
            things.actions.add(&shares.actions);
            let known = things.tables.all.len();
            if (things.tables.add(&shares.files) as usize) < known {
                continue;
            }
            for (fd, Fd { description, .. }) in &shares.files.borrow().fds {
                let place = || format!("descriptor {fd} of process {}", task.number);
                things.add_description(description, place, system);
            }
        }
        things
    }

    /// A descriptor, also one on its way, has this description.
    fn add_description(
        &mut self,
        description: &Shared<Description>,
        place: impl Fn() -> String,
        system: &System,
    ) {
        let mut waiting = Vec::from([Rc::clone(description)]);
        while let Some(description) = waiting.pop() {
            let known = self.descriptions.all.len();
            if (self.descriptions.add(&description) as usize) < known {
                continue;
            }
            self.fds.push(place());
            let Kind::Socket { id } = description.borrow().kind else {
                continue;
            };
            let ready = system.sockets.find(id).into_iter().flat_map(|s| &s.ready);
            for id in core::iter::once(&id).chain(ready) {
                self.sockets.entry(*id).or_insert_with(&place);
                let queue = system.sockets.find(*id).into_iter().flat_map(|s| &s.queue);
                waiting.extend(queue.flat_map(|message| &message.rights).cloned());
            }
        }
    }

    /// Fails if there is something that cannot be saved yet.
    fn can_be_saved(&self, system: &System) -> Result<(), Refusal> {
        let [objects, terminal, memfd, lock] = CANNOT;
        let because = |sentence: String| {
            let sentence = format!("it has {sentence}, which cannot be saved yet");
            Err(Refusal::Because(sentence))
        };
        let mut memories = self.memories.all.iter();
        if memories.any(|memory| !memory.borrow().objects.is_empty()) {
            return because(objects.to_string());
        }
        for (description, fd) in self.descriptions.all.iter().zip(&self.fds) {
            if let Kind::Pty { number, .. } = description.borrow().kind {
                return because(format!("{terminal}{number} at {fd}"));
            }
            let Some(ino) = description.borrow().ino() else {
                continue;
            };
            if system.memfds.contains_key(&ino) {
                return because(format!("{memfd} at {fd}"));
            }
            let at = Rc::as_ptr(description).addr();
            let owners = [Owner::Description(at), Owner::Whole(at)];
            let files = self.tables.all.iter().map(|files| files.borrow().owner);
            let mut owners = owners.into_iter().chain(files.map(Owner::Files));
            if owners.any(|owner| !system.locks.of(owner, ino).is_empty()) {
                return because(format!("{lock} at {fd}"));
            }
        }
        Ok(())
    }

    /// Fails if the tree shares something with others.
    fn are_its_own(&self) -> Result<(), Refusal> {
        let shared = |what: &str| Err(Refusal::Shared(what.to_string()));
        if self.memories.shared().is_some() {
            return shared("memory");
        }
        if self.tables.shared().is_some() {
            return shared("descriptors");
        }
        if self.contexts.shared().is_some() {
            return shared("a working directory");
        }
        if let Some(number) = self.descriptions.shared() {
            return shared(&format!("what is open as {}", self.fds[number]));
        }
        let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
        let all = || self.descriptions.all.iter().zip(&self.fds);
        for (description, _) in all() {
            if let Kind::Pipe { id, end, .. } = &description.borrow().kind {
                let count = usize::from(end.reads()) + usize::from(end.writes());
                *ends.entry(*id).or_default() += count;
            }
        }
        for (description, fd) in all() {
            if let Kind::Pipe { id, pipe, .. } = &description.borrow().kind {
                let pipe = pipe.borrow();
                if pipe.readers + pipe.writers > ends.get(id).copied().unwrap_or(0) {
                    return shared(&format!("the pipe at {fd}"));
                }
            }
        }
        Ok(())
    }

    /// The inode numbers of the files, which are gathered: with what is in them if they are written, or if `all`, as far as there is room.
    fn gather(
        &self,
        all: bool,
        gathered: &mut Gathered,
        host: &mut dyn Host,
    ) -> Result<BTreeSet<u64>, Refusal> {
        // What is open on each, and whether it is written.
        let mut open: BTreeMap<u64, (Kind, bool)> = BTreeMap::new();
        for description in &self.descriptions.all {
            let description = description.borrow();
            if let Some(ino) = description.ino() {
                let entry = open.entry(ino);
                let (_, written) = entry.or_insert_with(|| (description.kind.clone(), false));
                *written |= description.writable();
            }
        }
        if open.len() > MAX_FILES as usize {
            return Err(format!("more than {MAX_FILES} files are open").into());
        }
        let inos = open.keys().copied().collect();
        // Those that are written come first.
        let mut order: Vec<_> = open.into_iter().collect();
        order.sort_by_key(|(_, (_, written))| !written);
        for (ino, (kind, written)) in order {
            if gathered.files.contains_key(&ino) {
                continue;
            }
            let before = MAX_CARRIED.saturating_sub(gathered.carried);
            let mut left = before;
            let carried = (written || all).then_some(&mut left);
            let file = SavedFile::of(host, (ino, written), &kind, carried);
            if host.waits() {
                return Err(Refusal::Later);
            }
            gathered.files.insert(ino, file?);
            gathered.carried += before - left;
            if ino & ON_DISK != 0 {
                // What it was asked for need not be kept for the next one.
                return Err(Refusal::Later);
            }
        }
        Ok(inos)
    }

    /// The tables of descriptors, with the numbers of their descriptions.
    fn tables(&self) -> Vec<Vec<(u32, bool, u32)>> {
        let number = |fd: &Fd| self.descriptions.number(Rc::as_ptr(&fd.description));
        let tables = self.tables.all.iter().map(|files| {
            let files = files.borrow();
            let fds = files.fds.iter();
            fds.filter_map(|(n, fd)| Some((*n, fd.cloexec, number(fd)?)))
                .collect()
        });
        tables.collect()
    }

    fn pipes(&self) -> Vec<(u64, u32, bool, Vec<u8>)> {
        let mut pipes = BTreeMap::new();
        for description in &self.descriptions.all {
            if let Kind::Pipe { id, pipe, .. } = &description.borrow().kind {
                let pipe = pipe.borrow();
                pipes.entry(*id).or_insert_with(|| {
                    let bytes: Vec<u8> = pipe.bytes.iter().copied().collect();
                    (*id, pipe.capacity as u32, pipe.had_writer, bytes)
                });
            }
        }
        pipes.into_values().collect()
    }

    /// What the instances of `epoll` watch.
    fn watches(&self, system: &System) -> Result<Vec<(u64, Vec<SavedWatch>)>, Refusal> {
        let mut all = BTreeMap::new();
        for (description, fd) in self.descriptions.all.iter().zip(&self.fds) {
            let Kind::Epoll { id } = description.borrow().kind else {
                continue;
            };
            let mut saved = Vec::new();
            for (watch, place) in system.epolls.watches(id) {
                let Some(number) = self.descriptions.number(watch.description.as_ptr()) else {
                    return Err(Refusal::Shared(format!("what {fd} watches")));
                };
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

    /// The sockets.
    fn sockets(&self, system: &System, host: &mut dyn Host) -> Result<Vec<SavedSocket>, Refusal> {
        let mut saved = Vec::new();
        for (id, fd) in &self.sockets {
            let Some(socket) = system.sockets.find(*id) else {
                continue;
            };
            room(host, 2 * socket.size() as u64)?;
            let number = |right: &Shared<_>| self.descriptions.number(Rc::as_ptr(right));
            let messages = (0u32..).zip(&socket.queue);
            let rights = messages
                .filter(|(_, message)| !message.rights.is_empty())
                .map(|(n, message)| (n, message.rights.iter().filter_map(number).collect()))
                .collect();
            let mut socket = socket.clone();
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

    /// About how long they are, encoded, or a little less than that.
    fn size(&self) -> u64 {
        let memories = self.memories.all.iter().map(|memory| {
            let memory = memory.borrow();
            40 * memory.areas.list().len() + memory.name.len() + 200
        });
        let texts = self
            .descriptions
            .all
            .iter()
            .map(|d| match &d.borrow().kind {
                Kind::Directory { pending, .. } => 300 * pending.len(),
                Kind::Pipe { pipe, .. } => pipe.borrow().bytes.len(),
                _ => 0,
            });
        let fds = self
            .tables
            .all
            .iter()
            .map(|files| 12 * files.borrow().fds.len());
        let fixed = 100 * self.descriptions.all.len() + (32 << 10);
        (fixed + memories.sum::<usize>() + texts.sum::<usize>() + fds.sum::<usize>()) as u64
    }
}

/// The part of the tree of this process: all the tasks of its processes, each with the place of its thread in the control
/// segment; or why it cannot be saved. `known` says where the first thread of a process stands whose task has ended, and
/// the name of a process that has ended. With `all_files` the files that are only read are in the part, too. [`Refusal::Later`]: what is asked of a disk
/// takes time, or one more file is there, and the same is to be called again with what has been gathered, as a new call unless that waits.
pub fn save(
    (root, all_files): (Pid, bool),
    gathered: &mut Gathered,
    tasks: &[(u64, &Task)],
    known: impl Fn(Pid) -> (Option<u64>, String),
    system: &System,
    host: &mut dyn Host,
) -> Result<Made, Refusal> {
    let all = of_tree(system, root);
    if let Some(parent) = system.find(root).and_then(|process| process.parent) {
        return Err(Refusal::Parent(parent));
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
    let things = Things::of(&tasks, system);
    things.can_be_saved(system)?;
    things.are_its_own()?;
    let inos = things.gather(all_files, gathered, host)?;
    let epolls = things.watches(system)?;
    let sockets = things.sockets(system, host)?;
    let messages = sockets.iter().map(|saved| saved.socket.size() as u64);
    let watches = epolls.iter().map(|(_, all)| WATCH * all.len() as u64);
    let length = messages.sum::<u64>()
        + watches.sum::<u64>()
        + things.size()
        + TASK * tasks.len() as u64
        + PROCESS * all.len() as u64;
    room(host, 2 * ENCODED * length)?;
    let processes: Vec<_> = all
        .iter()
        .filter_map(|pid| SavedProcess::of(*pid, &numbers, known(*pid), system))
        .collect();
    let saved_tasks: Option<Vec<_>> = tasks
        .iter()
        .map(|(place, task)| SavedTask::of(*place, task, (&numbers, &things), system))
        .collect();
    let copies = (
        copies(&things.memories),
        copies(&things.contexts),
        copies(&things.actions),
        copies(&things.descriptions),
    );
    let saved = (
        processes,
        saved_tasks.ok_or_else(|| OUT.to_string())?,
        copies.0,
        copies.1,
        copies.2,
        things.tables(),
        copies.3,
        things.pipes(),
        epolls,
        sockets,
        system.foregrounds.get(&root),
    );
    let tree = postcard::to_allocvec(&saved).map_err(|_| OUT.to_string())?;
    let files = core::mem::take(&mut gathered.files).into_iter();
    let files: Vec<_> = files.filter(|(ino, _)| inos.contains(ino)).collect();
    let contents = files.iter().map(|(_, file)| file.length());
    let length = tree.len() + contents.sum::<usize>();
    room(host, ENCODED * length as u64)?;
    let part = Part {
        version: VERSION,
        tree,
        files,
    };
    let part = postcard::to_allocvec(&part).map_err(|_| OUT.to_string())?;
    let mut memories: Vec<Tid> = Vec::new();
    let mut known = BTreeSet::new();
    for (_, task) in &tasks {
        if known.insert(Rc::as_ptr(&task.shares.memory)) {
            memories.push(task.tid);
        }
    }
    Ok(Made { part, memories })
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
        Some(SavedProcess {
            process: process.clone(),
            parent: process.parent.and_then(|pid| numbers.get(&pid).copied()),
            ended: process.status.map(|status| (status, name)),
            exit_signal: process.exit_signal,
            borrows: process.borrows,
            stopped: process.stopped,
            news: process.news,
            first,
        })
    }
}

impl SavedTask {
    fn of(
        place: u64,
        task: &Task,
        (processes, things): (&BTreeMap<Pid, u32>, &Things),
        system: &System,
    ) -> Option<Self> {
        let shares = &task.shares;
        let waits_at = system.futexes.place(task.tid);
        let memory = shares.memory.borrow();
        let word = |(address, ..): (u64, u64, Waiter)| Word::new(&memory, address);
        let owner = waits_at.and_then(|place| system.futexes.owner(word(place)));
        let owner = owner.and_then(|owner| system.thread_number(owner));
        Some(SavedTask {
            process: *processes.get(&task.pid)?,
            number: task.thread,
            memory: things.memories.number(Rc::as_ptr(&shares.memory))?,
            files: things.tables.number(Rc::as_ptr(&shares.files))?,
            context: things.contexts.number(Rc::as_ptr(&shares.context))?,
            actions: things.actions.number(Rc::as_ptr(&shares.actions))?,
            place,
            comm: task.comm.clone(),
            signals: task.signals.clone(),
            wait: task.wait,
            robust: task.robust,
            clear_at: task.clear_at,
            waits_at,
            owner,
        })
    }
}
