//! Restoring a tree from its part of an image.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::Deserialize;
use services::fs::{mode, ON_DISK};
use services::process::{Pid, Status};

use super::bounds::{excess, left_behind, Counts};
use super::check::check;
use super::file::{self, New, Opened, SavedFile};
use super::inotify;
use super::{
    Bytes, Part, Refusal, Saved, SavedLock, SavedOwner, SavedProcess, SavedSocket, SavedTask,
    SavedWatch, DECODED, FILE, LOOK_UP, MAX_FILES, NONSENSE, STEP, VERSION,
};
use crate::busy::writes_file;
use crate::errno::{EADDRINUSE, EBUSY, ELOOP, ENFILE, ENOSPC};
use crate::files::{Reply, Request};
use crate::futex::Word;
use crate::host::Host;
use crate::lock::Owner;
use crate::node;
use crate::object::{SavedObject, Use};
use crate::outside::{Link, Stage};
use crate::proc::Seen;
use crate::process::{
    release_dropped, shared, Description, Fd, Files, Kind, Pipe, Shared, Shares, Shown, Task,
    PIPE_BUF,
};
use crate::socket::{is_loopback, Name, State, Style};
use crate::system::{Again, Payer, System, Thing};
use crate::work::Own;

/// A restored tree. Its memories and mappings are restored by the caller.
#[derive(Debug)]
pub struct Adopted {
    /// Its processes. The first one is the root.
    pub members: Vec<Member>,
    /// Its tasks.
    pub tasks: Vec<Seated>,
}

/// A process of a restored tree.
#[derive(Debug)]
pub struct Member {
    /// Its number in the table of processes.
    pub pid: Pid,
    /// Its status and name, if it has ended.
    pub ended: Option<(Status, String)>,
    /// Whether a signal has stopped it.
    pub is_stopped: bool,
    /// The place of its first thread, if the first task has ended: number of the memory, and address in the control
    /// segment.
    pub first: Option<(usize, u64)>,
}

/// A task of a restored tree.
#[derive(Debug)]
pub struct Seated {
    /// The number of its memory.
    pub memory: usize,
    /// The address of its thread in the control segment of that memory.
    pub place: u64,
    /// The task.
    pub task: Task,
}

/// Decodes a value that takes all the bytes.
fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (read, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(read)
}

/// Decodes a part. Refuses one with more files than a tree can have open before memory is taken for them: decoded they
/// may be thirty times as long as in the image.
fn decode(bytes: &[u8]) -> Option<Part<'_>> {
    let ((version, tree), files) = postcard::take_from_bytes::<(u32, &[u8])>(bytes).ok()?;
    let (count, _) = postcard::take_from_bytes::<u32>(files).ok()?;
    if count > MAX_FILES {
        return None;
    }
    Some(Part {
        version,
        tree: Bytes(tree),
        files: whole(files)?,
    })
}

/// Decodes a part and makes every check that needs no host. `counts`, if known, are the numbers of memories and memory
/// objects that the part must have. `room` gets the bytes of memory that decoding takes and returns whether these are
/// available.
pub(super) fn read(
    bytes: &[u8],
    counts: Option<(usize, usize)>,
    room: impl FnOnce(u64) -> bool,
) -> Result<(Saved, Vec<(u64, SavedFile)>), String> {
    let nonsense = || NONSENSE.to_string();
    let part = decode(bytes).ok_or_else(nonsense)?;
    if part.version != VERSION {
        return Err(format!(
            "its Linux part has version {}, not {VERSION}",
            part.version
        ));
    }
    let Part { tree, files, .. } = part;
    let tree = tree.0;
    if !room(DECODED * tree.len() as u64) {
        return Err("there is no memory for what Linux keeps of it".to_string());
    }
    let saved: Saved = whole(tree).ok_or_else(nonsense)?;
    if counts.is_some_and(|counts| counts != (saved.memories.len(), saved.objects.len())) {
        return Err(nonsense());
    }
    excess(&Counts::of(&saved)).map_or(Ok(()), Err)?;
    check(&saved).ok_or_else(nonsense)?;
    match are_sound(&saved, &files) {
        true => Ok((saved, files)),
        false => Err(nonsense()),
    }
}

/// Whether a tree that was just encoded, with these files, could be decoded again.
pub(super) fn can_be_read(tree: &[u8], files: &[(u64, SavedFile)]) -> bool {
    let saved: Option<Saved> = whole(tree);
    let is_sound = |saved: &Saved| excess(&Counts::of(saved)).is_none() && check(saved).is_some();
    saved.is_some_and(|saved| is_sound(&saved) && are_sound(&saved, files))
}

/// A tree that is being restored: its decoded part, and the files that are open again. Files on a disk are opened one
/// by one, and each is waited for.
pub struct Rebuilding {
    saved: Saved,
    files: Vec<(u64, SavedFile)>,
    /// Inode numbers of the image and the descriptions open on them, rising.
    on_files: Vec<(u64, u32)>,
    /// The number of files that are opened completely, and the next description of the file after them.
    done: usize,
    next: usize,
    opened: Opened,
    /// The ports towards other machines that sockets had, once they have been requested.
    ports: Option<Vec<Port>>,
    /// The inodes of the executed programs looked up so far; `None` for those that were not found.
    programs: Vec<Option<u64>>,
    /// The number of working directories looked up so far.
    entered: usize,
    /// The working directories that exist.
    directories: BTreeSet<String>,
    /// The watched files that are open again.
    watched: inotify::Watched,
}

/// A port towards other machines: the socket's identity in the image, the port, and the link that reserves it.
type Port = (u64, u16, Link);

/// The ports towards other machines that the sockets of an image had, or may have had: socket, style and port.
fn ports(saved: &Saved) -> Vec<(u64, Style, u16)> {
    let mut found: Vec<(u64, Style, u16)> = Vec::new();
    for one in saved.sockets.iter().filter(|one| one.is_found) {
        let socket = &one.socket;
        let is_end = socket.state == State::Connected && socket.style == Style::Stream;
        if let Some(Name::Port(address, port)) = socket.name {
            let is_shared = found
                .iter()
                .any(|(_, style, its)| (*style, *its) == (socket.style, port));
            if !is_end && !is_shared && !is_loopback(address) {
                found.push((one.id, socket.style, port));
            }
        }
    }
    found
}

impl Rebuilding {
    /// Decodes a part, for which the image has these numbers of memories and memory objects. Errors: a sentence that
    /// says why there is no such tree.
    pub fn new(bytes: &[u8], counts: (usize, usize), host: &mut dyn Host) -> Result<Self, String> {
        let (saved, files) = read(bytes, Some(counts), |bytes| host.room(bytes).is_ok())?;
        let numbered = (0u32..).zip(&saved.descriptions);
        let on_files = numbered.filter_map(|(number, open)| Some((open.ino()?, number)));
        let mut on_files: Vec<(u64, u32)> = on_files.collect();
        on_files.sort_unstable();
        let mut opened = Opened::default();
        opened.new.umask = saved.contexts.first().map_or(0o22, |context| context.umask);
        Ok(Rebuilding {
            saved,
            files,
            on_files,
            done: 0,
            next: 0,
            opened,
            ports: None,
            programs: Vec::new(),
            entered: 0,
            directories: BTreeSet::new(),
            watched: inotify::Watched::default(),
        })
    }

    /// Reserves the ports towards other machines for the tree of process `root`; returns whether that is done. If not,
    /// call it again when [`System::take_rebuilt`] names the root.
    pub fn bind(
        &mut self,
        root: Pid,
        system: &mut System,
        host: &mut dyn Host,
    ) -> Result<bool, String> {
        let Some(ports) = &mut self.ports else {
            let mut taken = Vec::new();
            let wanted = match host.has_network() {
                true => ports(&self.saved),
                false => Vec::new(),
            };
            for (id, style, port) in wanted {
                match system.reserve(root, style, port) {
                    Ok(link) => taken.push((id, port, link)),
                    Err(_) => {
                        taken
                            .into_iter()
                            .for_each(|(.., link)| system.give_back(link));
                        return Err("it has more sockets outside than it may have".to_string());
                    }
                }
            }
            let is_done = taken.is_empty();
            self.ports = Some(taken);
            return Ok(is_done);
        };
        for (_, port, link) in ports {
            match system.stage(*link) {
                Some(Stage::Asked) => return Ok(false),
                Some(Stage::Failed(EADDRINUSE)) => {
                    return Err(format!(
                        "port {port}, which one of its sockets has, is another one's now"
                    ))
                }
                Some(Stage::Failed(_)) => {
                    return Err(format!(
                        "the network does not give port {port} to its socket"
                    ))
                }
                _ => {}
            }
        }
        Ok(true)
    }

    /// Opens files until all are open. Call it again after [`Refusal::Later`] (the host waits for a file on a disk, or
    /// has opened one; if it does not wait, as a new call of the host) and after [`Refusal::Turn`] (other programs are
    /// to have a turn first).
    pub fn open(&mut self, host: &mut dyn Host) -> Result<(), Refusal> {
        let hint = self.saved.processes[0].process.number;
        let mut left = STEP;
        while let Some(file) = self.files.get(self.done) {
            if left == 0 {
                return Err(Refusal::Turn);
            }
            let from = self.on_files.partition_point(|(ino, _)| *ino < file.0);
            let on_it = self.on_files[from..]
                .iter()
                .take_while(|(ino, _)| *ino == file.0);
            let descriptions = &self.saved.descriptions;
            let on_it: Vec<_> = on_it
                .filter_map(|(_, number)| descriptions.get(*number as usize))
                .collect();
            let end = on_it.len().min(self.next.saturating_add(left));
            let before = self.opened.count();
            let result = self.opened.open(host, file, (&on_it, self.next..end), hint);
            if host.waits() {
                // All descriptions of this file are opened again.
                self.opened.forget_from(before);
                return Err(Refusal::Later);
            }
            result?;
            left = left.saturating_sub(FILE + file.1.length() / 256 + end - self.next);
            self.next = end;
            if end < on_it.len() {
                continue;
            }
            let (old, contents) = &mut self.files[self.done];
            let is_on_disk = self.opened.number(*old).is_some_and(|n| n & ON_DISK != 0);
            *contents = SavedFile::Named(String::new());
            (self.done, self.next) = (self.done + 1, 0);
            if is_on_disk {
                return Err(Refusal::Later);
            }
        }
        while let Some(path) = self.saved.programs.get(self.programs.len()) {
            if left == 0 {
                return Err(Refusal::Turn);
            }
            left = left.saturating_sub(LOOK_UP);
            // A program runs without its file, too: its memory has what it needs.
            let found = file::open(host, path).ok();
            if host.waits() {
                return Err(Refusal::Later);
            }
            let ino = found.map(|(ino, _)| ino);
            self.programs.push(ino);
            if ino.is_some_and(|ino| ino & ON_DISK != 0) {
                return Err(Refusal::Later);
            }
        }
        while let Some(context) = self.saved.contexts.get(self.entered) {
            let path = &context.cwd;
            // A directory that was removed before the tree was saved is not looked up.
            let was_there = self.saved.directories.get(self.entered) == Some(&true);
            let mut is_on_disk = false;
            if was_there && !self.directories.contains(path) {
                if left == 0 {
                    return Err(Refusal::Turn);
                }
                left = left.saturating_sub(LOOK_UP);
                let found = file::is_directory(host, path);
                if host.waits() {
                    return Err(Refusal::Later);
                }
                found?;
                is_on_disk = services::fs::is_on_disk(path);
                self.directories.insert(path.clone());
            }
            self.entered += 1;
            if is_on_disk {
                return Err(Refusal::Later);
            }
        }
        match self.watched.open(&self.saved.inotifies, host) {
            true => Ok(()),
            false => Err(Refusal::Later),
        }
    }

    /// Closes all files and gives the ports back.
    pub fn give_up(self, system: &mut System, host: &mut dyn Host) {
        for (.., link) in self.ports.into_iter().flatten() {
            system.give_back(link);
        }
        self.opened.close(system, host);
        for ino in self.programs.into_iter().flatten() {
            let _ = host.fs(&Request::Close { ino }, &[], &mut []);
        }
        self.watched.close(host);
    }

    /// Makes the tree of process `root` when all files are open.
    pub fn finish(
        mut self,
        clock_offset: u64,
        root: Pid,
        system: &mut System,
        host: &mut dyn Host,
    ) -> Result<Adopted, String> {
        let payer = system.process(root).payer;
        let ptys = make_ptys(&mut self.saved, root, payer, system);
        let made = ptys.and_then(|ptys| {
            let made = inotify::make(&mut self.saved, payer, system, host);
            let made = made.and_then(|inotifies| {
                let pipes = make_pipes(&mut self.saved, payer, system);
                if pipes.is_err() {
                    inotify::give_up(&inotifies, system, host);
                }
                pipes.map(|()| inotifies)
            });
            if made.is_err() {
                give_up_ptys(&ptys, system);
            }
            made.map(|inotifies| (ptys, inotifies))
        });
        let (ptys, inotifies) = match made {
            Ok(made) => made,
            Err(sentence) => {
                self.give_up(system, host);
                return Err(sentence);
            }
        };
        let Rebuilding {
            mut saved,
            mut opened,
            ports,
            programs,
            watched,
            ..
        } = self;
        let ports = ports.unwrap_or_default();
        let now = host.now().wrapping_add(clock_offset);
        keep_dates(&mut saved, now, host.date().wrapping_sub(now));
        for description in &mut saved.descriptions {
            if let Some(ino) = description.kind.ino_mut() {
                // All files that descriptions name have been opened.
                *ino = opened.number(*ino).unwrap_or(u64::MAX);
            }
        }
        execute_again(&mut saved, programs, system, host);
        for lock in &mut saved.locks {
            lock.ino = opened.number(lock.ino).unwrap_or(u64::MAX);
        }
        for (ino, memfd) in core::mem::take(&mut saved.memfds) {
            // The memfd ends with its description.
            let ino = opened.number(ino).unwrap_or(u64::MAX);
            system.memfds.insert(ino, memfd);
        }
        let mut objects = BTreeMap::new();
        let mut new = core::mem::take(&mut opened.new);
        let things = (&mut objects, &ports[..], &mut new);
        let (tables, made) = make_files(&mut saved, things, payer, system, host);
        let made = match made {
            Ok(()) => {
                let all = core::mem::take(&mut saved.inotifies);
                let places = core::mem::take(&mut saved.places);
                let number = |ino| opened.number(ino);
                let made = watched.watch_again((all, &inotifies), number, system, host);
                let places = (places, &inotifies);
                inotify::place_again(places, &saved.tables, &tables, payer, system, host);
                made
            }
            Err(sentence) => {
                watched.close(host);
                Err(sentence)
            }
        };
        let made = made.and_then(|()| {
            put_together(
                saved,
                (&tables, &objects, &ptys),
                clock_offset,
                root,
                system,
            )
        });
        if made.is_err() {
            for table in &tables {
                table.borrow_mut().close_all(system, host, |_| true);
            }
            for used in objects.values() {
                system.give_up_object(host, used.id());
            }
        }
        drop((tables, objects));
        // Drops sockets that can be reached only through descriptors in their own queues.
        system.clear_circles();
        release_dropped(system, host);
        if made.is_err() {
            new.give_up(system, host);
        }
        made
    }
}

/// Adjusts timers that are set to a date, because the date minus the clock of the processes has changed since the tree
/// was saved.
fn keep_dates(saved: &mut Saved, now: u64, date: u64) {
    let later = date.wrapping_sub(saved.date).cast_signed();
    for process in &mut saved.processes {
        process.process.timers.keep_dates(later);
    }
    for description in &mut saved.descriptions {
        if let Kind::Counter { counter, .. } = &mut description.kind {
            counter.keep_date(now, later);
        }
    }
}

/// Marks the programs of the memories as executed; their files are open. A file that some description may write, so not
/// the one that was executed when the tree was saved, is left out: marked, it could neither be written nor executed.
fn execute_again(
    saved: &mut Saved,
    programs: Vec<Option<u64>>,
    system: &mut System,
    host: &mut dyn Host,
) {
    let written = saved.descriptions.iter().filter(|open| writes_file(open));
    let written: BTreeSet<u64> = written.filter_map(Description::ino).collect();
    let programs: Vec<_> = programs
        .into_iter()
        .map(|ino| {
            let ino = ino?;
            if written.contains(&ino) || system.is_written(ino) {
                let _ = host.fs(&Request::Close { ino }, &[], &mut []);
                return None;
            }
            let (executed, is_new) = system.busy.execute(ino);
            if !is_new {
                let _ = host.fs(&Request::Close { ino }, &[], &mut []);
            }
            Some(executed)
        })
        .collect();
    for (memory, number) in saved.memories.iter_mut().zip(&saved.executed) {
        let program = number.and_then(|number| programs.get(number as usize));
        memory.executed = program.cloned().flatten();
    }
}

/// Restores the tree of a part with a host that never waits: all steps of [`Rebuilding`].
pub fn adopt(
    bytes: &[u8],
    counts: (usize, usize),
    clock_offset: u64,
    root: Pid,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<Adopted, String> {
    let mut rebuilding = Rebuilding::new(bytes, counts, host)?;
    loop {
        match rebuilding.open(host) {
            Ok(()) => return rebuilding.finish(clock_offset, root, system, host),
            Err(Refusal::Later | Refusal::Turn) => {}
            Err(refusal) => {
                rebuilding.give_up(system, host);
                return Err(refusal.sentence("", false));
            }
        }
    }
}

/// Whether these are exactly the files that the descriptions name, each once and of a fitting kind. A file of which the
/// image says that it is nameless must have no path.
fn are_sound(saved: &Saved, files: &[(u64, SavedFile)]) -> bool {
    let mut kinds: BTreeMap<u64, Vec<&Kind>> = BTreeMap::new();
    for description in &saved.descriptions {
        if let Some(ino) = description.ino() {
            kinds.entry(ino).or_default().push(&description.kind);
        }
    }
    files.windows(2).all(|w| w[0].0 < w[1].0)
        && files.iter().map(|(ino, _)| ino).eq(kinds.keys())
        && files
            .iter()
            .all(|(ino, file)| kinds[ino].iter().all(|kind| file.fits(kind)))
        && nameless(saved).all(|ino| {
            let at = files.binary_search_by_key(&ino, |file| file.0);
            at.is_ok_and(|at| matches!(files[at].1, SavedFile::Unlinked { .. }))
        })
}

/// The files that an image declares nameless: those of `memfd_create`, and open files without a name that are watched.
fn nameless(saved: &Saved) -> impl Iterator<Item = u64> + '_ {
    let memfds = saved.memfds.iter().map(|(ino, _)| *ino);
    memfds.chain(saved.inotifies.iter().flat_map(|one| one.nameless()))
}

/// Makes the sockets; returns the new identities by the old ones. On failure none are left.
fn make_sockets(
    mut all: Vec<SavedSocket>,
    new: &mut New,
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<BTreeMap<u64, u64>, String> {
    let mut made = BTreeMap::new();
    let mut names = Vec::new();
    let mut result = Ok(());
    // Sockets that wait to be accepted and whose other end has been closed come last and are made as far as there is
    // room; the others are dropped as if the other end had reset the connection.
    let left = left_behind(&all);
    all.sort_by_key(|one| (left.get(&one.id), one.id));
    let mut large = system.large_sockets_left(payer);
    for saved in all {
        let SavedSocket {
            id, socket, path, ..
        } = saved;
        let ends = (socket.peer, socket.ready.clone());
        // The end of an accepted connection has its listener's name, but is not found by it.
        let is_end = socket.state == State::Connected && socket.style == Style::Stream;
        let name = socket.name.clone().filter(|_| saved.is_found);
        match system.restore_socket(socket, payer, &mut large) {
            Ok(new) => {
                made.insert(id, new);
                names.push((new, name.map(|name| (name, is_end)), path, ends));
            }
            Err(_) if left.contains_key(&id) => {
                host.log(
                    "connections that nobody has any more are left out: there are too many sockets",
                );
                break;
            }
            Err(_) => {
                result = Err("there are too many sockets".to_string());
                break;
            }
        }
    }
    let named = names
        .into_iter()
        .try_for_each(|(id, name, path, (peer, ready))| {
            let known = |id: u64| made.get(&id).copied();
            system.join(
                id,
                peer.and_then(known),
                ready.into_iter().filter_map(known),
            );
            match (name, path) {
                (Some((name @ Name::Port(..), true)), _) => {
                    system.set_name(id, name);
                    Ok(())
                }
                (Some((Name::File(given, _), _)), Some(path)) => {
                    let ino = find_node(&path, new, payer, system, host)?;
                    name_again(system, id, Name::File(given, ino))
                }
                // The file of the name has been removed, so the socket cannot be found.
                (Some((Name::File(given, _), _)), None) => {
                    system.set_name(id, Name::File(given, u64::MAX));
                    Ok(())
                }
                (Some((name, _)), _) => name_again(system, id, name),
                (None, _) => Ok(()),
            }
        });
    // Restores the notices for senders that wait for room.
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

/// Opens or makes the file that is the name of a socket; returns its inode.
fn find_node(
    path: &str,
    new: &mut New,
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<u64, String> {
    let (ino, found) = new.open(host, path, 0o777)?;
    let made = match found & mode::TYPE {
        mode::FILE => make_node((ino, node::SOCKET), new, payer, system, host),
        _ => Err(format!("{path}: is no socket any more")),
    };
    let _ = host.fs(&Request::Close { ino }, &[], &mut []);
    made.map(|()| ino)
}

/// What exists before the descriptor tables are made: the memory objects by their old identities, the reserved ports,
/// and the files made for sockets and FIFOs.
type Things<'a> = (&'a mut BTreeMap<u64, Rc<Use>>, &'a [Port], &'a mut New);

/// Makes the descriptor tables and everything that descriptors refer to. On failure the caller closes the descriptors
/// of the returned tables.
fn make_files(
    saved: &mut Saved,
    (objects, ports, new): Things<'_>,
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) -> (Vec<Shared<Files>>, Result<(), String>) {
    let mut sockets = core::mem::take(&mut saved.sockets);
    let rights: Vec<_> = sockets
        .iter_mut()
        .map(|socket| (socket.id, core::mem::take(&mut socket.rights)))
        .collect();
    let (sockets, failure) = match make_sockets(sockets, new, payer, system, host) {
        Ok(sockets) => (sockets, Ok(())),
        Err(sentence) => (BTreeMap::new(), Err(sentence)),
    };
    let mut failure = failure;
    for (old, _, link) in ports {
        match sockets.get(old) {
            Some(new) => {
                let given = system.give_link(*link, *new);
                let given = given.map_err(|_| "there are too many sockets".to_string());
                failure = failure.and(given);
            }
            None => system.give_back(*link),
        }
    }
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
            let fifo = open_again((*ino, *id, pipe), new, payer, system, host);
            fifos = fifos.and(fifo);
        }
    }
    let descriptions = core::mem::take(&mut saved.descriptions);
    for description in &descriptions {
        // The tree itself executes none of the files that it may write.
        let executed = |ino: u64| writes_file(description) && system.busy.is_executed(ino);
        if description.ino().is_some_and(executed) && failure.is_ok() {
            let sentence = "somebody else executes one of the files that it has open to be written";
            failure = Err(sentence.to_string());
        }
        system.busy.opened(description);
    }
    let descriptions: Vec<_> = descriptions.into_iter().map(shared).collect();
    let tables = saved.tables.iter().map(|table| {
        let fds = table.iter().filter_map(|(fd, cloexec, number)| {
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
        shared(Files {
            fds: fds.collect(),
            owner: 0,
        })
    });
    let tables: Vec<_> = tables.collect();
    let under_way = rights.into_iter().try_for_each(|(id, messages)| {
        let Some(id) = sockets.get(&id) else {
            return Ok(());
        };
        messages.into_iter().try_for_each(|(message, numbers)| {
            let all = numbers.iter().filter_map(|n| descriptions.get(*n as usize));
            let made = system.put_rights(*id, message as usize, all.cloned().collect());
            made.map_err(|_| "too many descriptors are on their way".to_string())
        })
    });
    let epolls = core::mem::take(&mut saved.epolls).into_iter();
    let mut epolls = epolls.filter_map(|(old, watches)| Some((*instances.get(&old)?, watches)));
    let watched = epolls.try_for_each(|(id, watches)| watch(system, id, watches, &descriptions));
    let made = failure.and(fifos).and(under_way).and(watched);
    let made =
        made.and_then(|()| lock_again(&saved.locks, &tables, &descriptions, payer, system, host));
    let made = made.and_then(|()| {
        let all = saved.objects.iter().enumerate();
        all.into_iter().try_for_each(|one| {
            let used = map_again(one, &descriptions, payer, system, host)?;
            objects.insert(one.1.id, used);
            Ok(())
        })
    });
    // Descriptions that no table or socket has got are closed.
    system.dropped.extend(descriptions);
    (tables, made)
}

/// Restores a memory object.
fn map_again(
    (number, saved): (usize, &SavedObject),
    descriptions: &[Shared<Description>],
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<Rc<Use>, String> {
    let description = saved.description.map(|number| number as usize);
    let description = description.and_then(|number| descriptions.get(number));
    let made = system.restore_object(host, (saved, number), description, payer);
    made.map_err(|error| match error {
        EBUSY => "somebody else has mapped one of its files now".to_string(),
        ENFILE => "there is too much memory that several have".to_string(),
        _ => NONSENSE.to_string(),
    })
}

/// Restores the locks on files. On failure, those that were set are released with the descriptors.
fn lock_again(
    locks: &[SavedLock],
    tables: &[Shared<Files>],
    descriptions: &[Shared<Description>],
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<(), String> {
    for of_file in locks.chunk_by(|a, b| a.ino == b.ino) {
        let Some(SavedLock { ino, .. }) = of_file.first().copied() else {
            continue;
        };
        let at = |number: u32| {
            descriptions
                .get(number as usize)
                .map(|d| Rc::as_ptr(d).addr())
        };
        let again = of_file.iter().filter_map(|lock| {
            let owner = match lock.owner {
                SavedOwner::Files(table) => {
                    let mut files = tables.get(table as usize)?.borrow_mut();
                    if files.owner == 0 {
                        files.owner = system.new_identity();
                    }
                    Owner::Files(files.owner)
                }
                SavedOwner::Description(number) => Owner::Description(at(number)?),
                SavedOwner::Whole(number) => Owner::Whole(at(number)?),
            };
            Some(lock.of(owner))
        });
        let again: Vec<_> = again.collect();
        match system.lock_again(ino, &again, payer) {
            Ok(true) => {}
            Ok(false) => {
                let path = match ino & ON_DISK {
                    0 => host.fs(&Request::PathOf { ino }, &[], &mut []),
                    // The restore does not wait for a disk only to name the file in the message.
                    _ => Err(proto::Error::WouldBlock),
                };
                let of = match path {
                    Ok((Reply::Path(path), _)) => path,
                    _ => "one of its files".to_string(),
                };
                return Err(format!("{of}: somebody else has locked it now"));
            }
            Err(_) => return Err("there are too many locks on files".to_string()),
        }
    }
    Ok(())
}

/// Restores an open FIFO of an image, at the file with this inode.
fn open_again(
    (ino, id, pipe): (u64, u64, &Shared<Pipe>),
    new: &mut New,
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<(), String> {
    if let Err(proto::Error::NotFound) = host.fs(&Request::PathOf { ino }, &[], &mut []) {
        // The FIFO has no name any more, so no other task can open it.
        return Ok(());
    }
    make_node((ino, node::FIFO), new, payer, system, host)?;
    match system.nodes.fifo(ino) {
        Some((other, _)) if other != id => Err("one of its FIFOs is in use".to_string()),
        _ => {
            system.nodes.set_fifo(ino, id, pipe);
            Ok(())
        }
    }
}

/// Makes an open file the special file (FIFO or socket name) that it was when the tree was saved.
fn make_node(
    (ino, kind): (u64, u32),
    new: &mut New,
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
    let made = system.new_node(host, ino, kind, payer);
    made.map_err(|_| format!("{path}: there are too many FIFOs and names of sockets"))?;
    new.became.push(ino);
    Ok(())
}

/// Restores the watches of an instance of `epoll`.
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

/// By the old identity of each pseudo-terminal: its new number and identity, and the session whose terminal it is.
type Terminals = BTreeMap<u64, ((u32, u64), Option<u32>)>;

/// Makes the pseudo-terminals. On failure none are left.
fn make_ptys(
    saved: &mut Saved,
    root: Pid,
    payer: Payer,
    system: &mut System,
) -> Result<Terminals, String> {
    let mut ends: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for description in &saved.descriptions {
        if let Kind::Pty { id, master, .. } = description.kind {
            let (masters, slaves) = ends.entry(id).or_default();
            *masters += usize::from(master);
            *slaves += usize::from(!master);
        }
    }
    let mut made = Terminals::new();
    for pty in core::mem::take(&mut saved.ptys) {
        let (old, session) = (pty.id, pty.session);
        let ends = ends.get(&old).copied().unwrap_or_default();
        let Ok(new) = system.restore_pty(pty, ends, root, payer) else {
            give_up_ptys(&made, system);
            return Err("there are too many pseudo-terminals".to_string());
        };
        made.insert(old, (new, session));
    }
    for description in &mut saved.descriptions {
        if let Kind::Pty { number, id, .. } = &mut description.kind {
            if let Some((new, _)) = made.get(id) {
                (*number, *id) = *new;
            }
        }
    }
    Ok(made)
}

fn give_up_ptys(made: &Terminals, system: &mut System) {
    for ((number, _), _) in made.values() {
        system.give_up_pty(*number);
    }
}

/// Makes the pipes. Each has its old capacity if the payer may have another large pipe; otherwise just enough for its
/// content. On failure none are left.
fn make_pipes(saved: &mut Saved, payer: Payer, system: &mut System) -> Result<(), String> {
    let mut made = BTreeMap::new();
    let mut all = core::mem::take(&mut saved.pipes);
    // Only a payer's first pipes may be large, so those that were large are made first.
    all.sort_by_key(|(id, capacity, ..)| (*capacity as usize == PIPE_BUF, *id));
    for (old, capacity, had_writer, bytes) in all {
        let Ok((id, large)) = system.new_pipe(payer) else {
            for _ in 0..made.len() {
                system.uncount_thing(Thing::Pipe, payer);
            }
            return Err("there are too many pipes".to_string());
        };
        let pipe = shared(Pipe {
            capacity: match large {
                true => capacity as usize,
                false => bytes.len().max(1).next_multiple_of(PIPE_BUF),
            },
            bytes: bytes.into(),
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
    Ok(())
}

/// Puts the processes into the table and makes their tasks.
fn put_together(
    mut saved: Saved,
    (tables, objects, ptys): (&[Shared<Files>], &BTreeMap<u64, Rc<Use>>, &Terminals),
    clock_offset: u64,
    root: Pid,
    system: &mut System,
) -> Result<Adopted, String> {
    let nonsense = || NONSENSE.to_string();
    for memory in &mut saved.memories {
        let areas = memory.areas.list().iter();
        let uses = areas
            .filter_map(|area| objects.get(&area.object()?))
            .cloned();
        uses.for_each(|used| memory.objects.insert(used));
        // The part has been checked: all objects exist.
        let new = |id| objects.get(&id).map_or(id, |used| used.id());
        memory.areas.rename_objects(new);
    }
    let memories: Vec<_> = saved.memories.into_iter().map(shared).collect();
    let contexts: Vec<_> = saved.contexts.into_iter().map(shared).collect();
    let actions: Vec<_> = saved.actions.into_iter().map(shared).collect();
    let mut again: Vec<Again> = Vec::new();
    let mut members = Vec::new();
    let mut ends = Vec::new();
    let mut firsts: BTreeMap<u32, &SavedTask> = BTreeMap::new();
    for task in &saved.tasks {
        firsts.entry(task.process).or_insert(task);
    }
    for (n, process) in (0u32..).zip(saved.processes) {
        let SavedProcess {
            mut process,
            parent,
            ended,
            exit_signal,
            borrows,
            stopped,
            news,
            first,
            terminal,
            trace_ends,
            undo,
        } = process;
        ends.push((trace_ends, undo));
        let tasks = saved.tasks.iter().filter(|task| task.process == n);
        let numbers = tasks.map(|task| task.number);
        let threads: Vec<u32> = numbers.filter(|number| *number != process.number).collect();
        let one = firsts.get(&n);
        if let Some(actions) = one.and_then(|task| actions.get(task.actions as usize)) {
            process.actions = Rc::clone(actions);
        }
        process.exit_signal = exit_signal;
        process.terminal = terminal.and_then(|id| ptys.get(&id)).map(|(new, _)| *new);
        process.status = ended.as_ref().map(|(status, _)| *status);
        (process.borrows, process.stopped, process.news) = (borrows, stopped, news);
        members.push(Member {
            pid: 0,
            ended,
            is_stopped: stopped.is_some(),
            first: one.and_then(|task| Some((task.memory as usize, first?))),
        });
        again.push(Again {
            process,
            parent,
            threads,
            has_first: first.is_none(),
        });
    }
    let payer = system.process(root).payer;
    let undo = ends.iter().map(|(_, undo)| undo.len()).sum();
    if let Some(ipc) = &mut saved.ipc {
        let counted = system.count_ipc(payer, ipc, undo, objects);
        counted.map_err(|_| "there are too many semaphores or queues of messages".to_string())?;
    }
    let made = system.restore(root, again, saved.foreground);
    let made = made.map_err(|_| {
        if let Some(ipc) = &saved.ipc {
            system.uncount_ipc(ipc, undo);
        }
        "there are too many processes or threads".to_string()
    })?;
    let namespace = system.process(root).namespace;
    for ((number, _), session) in ptys.values() {
        if let Some(pty) = system.ptys.get(*number) {
            pty.session = session.map(|session| (namespace, session));
        }
    }
    if let Some(ipc) = saved.ipc {
        system.restore_ipc(root, ipc);
    }
    for ((pid, _), (ends, undo)) in made.iter().zip(ends) {
        system.adopt_ends(*pid, ends);
        system.restore_undo(*pid, undo);
    }
    let pids: Vec<Pid> = made.iter().map(|(pid, _)| *pid).collect();
    for (member, (pid, _)) in members.iter_mut().zip(&made) {
        member.pid = *pid;
    }
    let mut tids: Vec<_> = made
        .into_iter()
        .map(|(pid, tids)| (pid, tids.into_iter()))
        .collect();
    let mut tasks = Vec::new();
    let mut waiting = Vec::new();
    for saved in saved.tasks {
        let (pid, further) = tids.get_mut(saved.process as usize).ok_or_else(nonsense)?;
        let pid = *pid;
        let number = system.process(pid).number;
        let tid = match saved.number == number {
            true => pid,
            false => further.next().unwrap_or(pid),
        };
        let one = |n: u32| n as usize;
        let shares = Shares {
            memory: Rc::clone(memories.get(one(saved.memory)).ok_or_else(nonsense)?),
            files: Rc::clone(tables.get(one(saved.files)).ok_or_else(nonsense)?),
            context: Rc::clone(contexts.get(one(saved.context)).ok_or_else(nonsense)?),
            actions: Rc::clone(actions.get(one(saved.actions)).ok_or_else(nonsense)?),
        };
        let process = system.process(pid);
        process.seen = Seen::of(&shares);
        let shown = Shown::new(&saved.comm, saved.spent);
        process.shown.push((tid, Rc::clone(&shown)));
        if let Some((address, order, waiter)) = saved.waits_at {
            let object = saved.waits_in.and_then(|id| objects.get(&id));
            let word = match object {
                Some(used) => Word::in_object(used.id(), address),
                None => Word::new(&shares.memory.borrow(), address),
            };
            waiting.push((order, tid, word, waiter, saved.owner));
        }
        if let Some(wait) = saved.awaits {
            system.restore_wait(pid, tid, wait);
        }
        if let Some((tracer, trace)) = saved.trace {
            let tracer = *pids.get(tracer as usize).ok_or_else(nonsense)?;
            system.adopt_trace(tracer, tid, saved.number, trace);
        }
        let task = Task {
            tid,
            pid,
            number,
            thread: saved.number,
            shown,
            signals: saved.signals,
            wait: saved.wait,
            loading: None,
            awaits: 0,
            robust: saved.robust,
            clear_at: saved.clear_at,
            own: Own::default(),
            clock_offset,
            shares,
        };
        tasks.push(Seated {
            memory: saved.memory as usize,
            place: saved.place,
            task,
        });
    }
    // Tasks wait in their old order.
    waiting.sort_unstable_by_key(|(order, tid, ..)| (*order, *tid));
    for (_, tid, word, waiter, owner) in waiting {
        system.futexes.wait(tid, word, waiter);
        let owner = owner.and_then(|number| system.thread_by_number(root, number));
        if let Some((owner, _)) = owner.filter(|_| waiter.locks.is_some()) {
            system.futexes.own(owner, word);
        }
    }
    Ok(Adopted { members, tasks })
}
