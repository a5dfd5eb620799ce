//! Checks on the part of an image before anything is made of it: everything that the calls rely on, and every number by
//! which one thing names another.
//!
//! The counts have been bounded before ([`super::bounds`]). The checks take time in proportion to the lengths of the
//! lists, times a logarithm at most: programs have no turn meanwhile, so no list is searched for each element of
//! another one.

use alloc::collections::{BTreeMap, BTreeSet};
use linux_raw_sys::general as linux;
use proto::layout::{CONTROL_MAPPINGS, CONTROL_THREAD, CONTROL_THREADS};
use services::fs::{ENTRIES_ROOM, ENTRY_HEAD};

use super::{Saved, SavedLock, SavedOwner, SavedProcess, SavedSocket, SavedTask, MAX_FILES};
use crate::calls::file::MAX_OFFSET;
use crate::calls::system::CAPABILITIES;
use crate::ipc::MAX_UNDO;
use crate::lock::{self, MAX_LOCKS};
use crate::memory;
use crate::object::SavedObject;
use crate::path;
use crate::process::{Description, Kind, Memory, MAX_REPORTED, MAX_TITLE, PIPE_BUF, PIPE_CAPACITY};
use crate::pty::SavedPty;
use crate::signal::{bit, SIGNALS, STOPS, UNBLOCKABLE};
use crate::socket::{Family, Socket, State, Style, MAX_RIGHTS};
use crate::system::{MAX_THREADS, MAX_TREE};
use crate::trace::MAX_ENDS;

/// The elements of a list that some reference names.
struct Used(alloc::vec::Vec<bool>);

impl Used {
    fn none<T>(list: &[T]) -> Self {
        Used(alloc::vec![false; list.len()])
    }

    /// Marks the element with this number as named; `None` if there is none.
    fn name(&mut self, number: u32) -> Option<()> {
        *self.0.get_mut(number as usize)? = true;
        Some(())
    }

    fn are_all(&self) -> bool {
        self.0.iter().all(|used| *used)
    }
}

/// Makes all checks; `None` or a failed check means that the part is inconsistent.
pub(super) fn check(saved: &Saved) -> Option<()> {
    let processes = processes_are_sound(saved) && numbers_are_sound(saved);
    let memories = saved.memories.iter().all(memory_is_sound) && objects_are_sound(saved)?;
    let contexts = saved.contexts.iter();
    let mut contexts = contexts.map(|c| path::is_sound(&c.cwd) && c.umask <= 0o777);
    let things = memories
        && contexts.all(|sound| sound)
        && saved.directories.len() == saved.contexts.len()
        && saved.actions.iter().all(crate::signal::Actions::is_sound);
    let sound = processes
        && things
        && tasks_are_sound(saved)?
        && descriptors_are_sound(saved)?
        && pipes_are_sound(saved)
        && saved.descriptions.iter().all(|d| is_sound(saved, d))
        && epolls_are_sound(saved)
        && sockets_are_sound(saved)
        && locks_are_sound(saved)
        && memfds_are_sound(saved)
        && ptys_are_sound(saved)
        && super::inotify::are_sound(saved)
        && programs_are_sound(saved)?
        && ipc_is_sound(saved);
    sound.then_some(())
}

/// Whether this can be the number of a task, process group or session.
const fn is_number(number: u32) -> bool {
    number != 0 && number <= i32::MAX as u32
}

fn memory_is_sound(m: &Memory) -> bool {
    path::is_sound(&m.exe)
        && m.name.len() <= MAX_TITLE
        && m.mapped.is_sound()
        && m.areas.is_sound()
        && m.brk_start >= memory::LOWEST
        && m.brk_start.is_multiple_of(memory::PAGE)
        && m.brk >= m.brk_start
        && m.brk <= memory::MMAP_TOP
        && [m.args, m.environment].into_iter().all(strings_are_sound)
}

/// Whether the strings of a program can have this address and length.
fn strings_are_sound((start, length): (u64, u64)) -> bool {
    let end = start.checked_add(length);
    end.is_some_and(|end| end <= memory::END)
}

fn processes_are_sound(saved: &Saved) -> bool {
    let all = &saved.processes;
    let parents = all.iter().enumerate().all(|(n, process)| {
        // A process that has ended has no children, and one without a parent is waited for by no process, so it has not
        // ended.
        process.parent.is_none_or(|parent| {
            n > 0 && (parent as usize) < n && all[parent as usize].ended.is_none()
        }) && (process.ended.is_none() || n > 0 && process.parent.is_some())
    });
    (1..=MAX_TREE).contains(&all.len()) && parents && all.iter().all(process_is_sound)
}

fn process_is_sound(saved: &SavedProcess) -> bool {
    let p = &saved.process;
    let news = |(code, signal): &(u32, u32)| {
        [linux::CLD_STOPPED, linux::CLD_CONTINUED].contains(code) && *signal <= SIGNALS
    };
    let ended = saved.ended.as_ref();
    is_number(p.number)
        && is_number(p.group)
        && is_number(p.session)
        && p.chosen.is_sound()
        && p.dropped < 1 << CAPABILITIES
        && p.has_sound_limits()
        && p.reported.len() <= MAX_REPORTED
        && p.pending.is_sound()
        && p.timers.is_sound()
        && p.termios.as_ref().is_none_or(|t| t.len() == 36)
        && saved.exit_signal <= SIGNALS
        && saved.news.as_ref().is_none_or(news)
        && saved.trace_ends.len() <= MAX_ENDS
        && saved
            .trace_ends
            .iter()
            .all(|(number, status)| is_number(*number) && status.has_ended() && ended.is_none())
        && saved
            .stopped
            .is_none_or(|signal| (1..=SIGNALS).contains(&signal) && bit(signal) & STOPS != 0)
        && ended.is_none_or(|(status, name)| {
            let at_rest = p.timers.is_empty() && saved.stopped.is_none() && saved.news.is_none();
            status.has_ended() && name.len() <= MAX_TITLE && at_rest && saved.first.is_none()
        })
}

/// Whether the numbers of processes and tasks are distinct, except that the first task of a process has the process's
/// number. That a process has at most one such task is checked in [`tasks_are_sound`].
fn numbers_are_sound(saved: &Saved) -> bool {
    let mut numbers: BTreeSet<u32> = BTreeSet::new();
    let own = |task: &&SavedTask| {
        let process = saved.processes.get(task.process as usize);
        process.is_none_or(|process| process.process.number != task.number)
    };
    let threads = saved.tasks.iter().filter(own).map(|task| task.number);
    let mut all = saved
        .processes
        .iter()
        .map(|p| p.process.number)
        .chain(threads);
    all.all(|number| numbers.insert(number)) && saved.foreground.is_none_or(is_number)
}

/// Whether a thread can be at this address of the control segment.
const fn is_place(place: u64) -> bool {
    place == CONTROL_THREAD
        || CONTROL_THREADS <= place
            && place < CONTROL_MAPPINGS
            && place.is_multiple_of(abi::OBJECT_SIZE)
}

/// Whether all tasks belong to living processes, the tasks of a process share what they must share, and every memory,
/// table, context and set of actions belongs to a task.
fn tasks_are_sound(saved: &Saved) -> Option<bool> {
    let mut memories = Used::none(&saved.memories);
    let mut tables = Used::none(&saved.tables);
    let mut contexts = Used::none(&saved.contexts);
    let mut actions = Used::none(&saved.actions);
    let mut places = BTreeSet::new();
    // By process: its memory, its actions and the number of its tasks.
    let mut common: BTreeMap<u32, (u32, u32, usize)> = BTreeMap::new();
    let mut firsts = BTreeSet::new();
    for task in &saved.tasks {
        let process = saved.processes.get(task.process as usize)?;
        memories.name(task.memory)?;
        tables.name(task.files)?;
        contexts.name(task.context)?;
        actions.name(task.actions)?;
        let memory = saved.memories.get(task.memory as usize)?;
        let entry = common.entry(task.process);
        let (its_memory, its_actions, count) = entry.or_insert((task.memory, task.actions, 0));
        *count += 1;
        if task.number == process.process.number && !firsts.insert(task.process) {
            return Some(false);
        }
        let sound = process.ended.is_none()
            && *count <= MAX_THREADS
            && (*its_memory, *its_actions) == (task.memory, task.actions)
            && task_is_sound(task, memory)
            && trace_is_sound(saved, task)
            && places.insert((task.memory, task.place));
        if !sound {
            return Some(false);
        }
    }
    // The first task of a process has the process's number; if it has ended, the process has the place of its thread.
    for (n, process) in (0u32..).zip(&saved.processes) {
        let tasks = common.get(&n);
        if tasks.is_some() != process.ended.is_none() {
            return Some(false);
        }
        let Some((memory, ..)) = tasks else { continue };
        let has_first = firsts.contains(&n);
        let place = process
            .first
            .is_none_or(|place| is_place(place) && places.insert((*memory, place)));
        if has_first == process.first.is_some() || !place {
            return Some(false);
        }
    }
    let named = memories.are_all() && tables.are_all() && contexts.are_all() && actions.are_all();
    // The root process has the first memory.
    Some(named && common.get(&0).is_some_and(|(memory, ..)| *memory == 0))
}

/// Whether the tracer of a task is a living other process; if the task is about to leave its tracer, any process.
fn trace_is_sound(saved: &Saved, task: &SavedTask) -> bool {
    task.trace.as_ref().is_none_or(|(tracer, trace)| {
        let process = saved.processes.get(*tracer as usize);
        let other = *tracer != task.process && process.is_some_and(|p| p.ended.is_none());
        (other || trace.leaves && process.is_some()) && trace.is_sound()
    })
}

fn task_is_sound(task: &SavedTask, memory: &Memory) -> bool {
    let word = |(address, _, waiter): &(u64, u64, crate::futex::Waiter)| {
        let is_there = match waiter.locks {
            // Since it began to wait, tasks of the tree may have unmapped the word or made it unreadable. That is
            // harmless: the word is not read on the task's behalf.
            None => *address < memory::END,
            // A lock with an owner is in private memory, where the end of its owner changes it.
            Some(_) => task.waits_in.is_none() && memory.areas.allows(*address, 4, memory::READ),
        };
        address.is_multiple_of(4)
            && is_there
            && task.wait.is_some()
            && waiter.locks.is_none_or(|number| number == task.number)
    };
    task.comm.len() <= 15
        && is_number(task.number)
        && task.signals.is_sound()
        && task.waits_at.as_ref().is_none_or(word)
        && (task.waits_in.is_none() || task.waits_at.is_some())
        && is_place(task.place)
}

/// Whether all descriptors name an existing description, and every description has an owner: a descriptor, a message on
/// its way, or a memory object.
fn descriptors_are_sound(saved: &Saved) -> Option<bool> {
    let mut used = Used::none(&saved.descriptions);
    for table in &saved.tables {
        for (fd, _, number) in table {
            used.name(*number)?;
            if *fd >= MAX_FILES {
                return Some(false);
            }
        }
        if table.windows(2).any(|w| w[0].0 >= w[1].0) {
            return Some(false);
        }
    }
    for socket in &saved.sockets {
        for number in socket.rights.iter().flat_map(|(_, numbers)| numbers) {
            used.name(*number)?;
        }
    }
    for number in saved.objects.iter().filter_map(|object| object.description) {
        used.name(number)?;
    }
    Some(used.are_all())
}

/// Whether each memory object is used by an area or by System V shared memory, each file has one object at most, sealed
/// files are not mapped writably, and all references to objects name existing ones.
fn objects_are_sound(saved: &Saved) -> Option<bool> {
    let objects = &saved.objects;
    let number = |id: u64| {
        let at = objects.binary_search_by_key(&id, |object| object.id);
        at.ok().map(|at| at as u32)
    };
    if objects.windows(2).any(|w| w[0].id >= w[1].id) {
        return None;
    }
    let mut used = Used::none(objects);
    for area in saved.memories.iter().flat_map(|memory| memory.areas.list()) {
        if let Some(id) = area.object() {
            used.name(number(id)?)?;
        }
    }
    let shared = saved.ipc.iter().flat_map(|ipc| ipc.memories.values());
    for memory in shared.filter(|memory| !memory.goes()) {
        used.name(number(memory.object)?)?;
    }
    let sealed = saved.memfds.iter();
    let sealed = sealed.filter(|(_, memfd)| memfd.seals & linux::F_SEAL_WRITE != 0);
    let sealed: BTreeSet<u64> = sealed.map(|(ino, _)| *ino).collect();
    // A process that was passed a sealed file relies on its content. `F_SEAL_FUTURE_WRITE` leaves earlier mappings
    // writable, so those of an image may be.
    let areas = saved.memories.iter().flat_map(|memory| memory.areas.list());
    let written = areas.filter(|area| area.may_become_writable());
    let written: BTreeSet<u64> = written.filter_map(memory::Area::object).collect();
    let waits_in = saved.tasks.iter().filter_map(|task| task.waits_in);
    let mut files = BTreeSet::new();
    for object in objects {
        let Some(description) = object.description else {
            continue;
        };
        let description = saved.descriptions.get(description as usize)?;
        match &description.kind {
            Kind::File { ino } if files.insert(*ino) => {
                if sealed.contains(ino) && written.contains(&object.id) {
                    return Some(false);
                }
            }
            _ => return Some(false),
        }
    }
    let known = waits_in.map(number).all(|number| number.is_some());
    Some(known && used.are_all() && objects.iter().all(SavedObject::is_sound))
}

/// Whether the System V IPC of the tree is consistent, and all references to it name existing things.
fn ipc_is_sound(saved: &Saved) -> bool {
    let undo = || saved.processes.iter().flat_map(|process| &process.undo);
    let waits = || saved.tasks.iter().filter(|task| task.awaits.is_some());
    let Some(ipc) = &saved.ipc else {
        return undo().next().is_none() && waits().next().is_none();
    };
    let is_object = |id: u64| {
        let at = saved.objects.binary_search_by_key(&id, |object| object.id);
        at.is_ok_and(|at| saved.objects[at].description.is_none())
    };
    let mut tickets = BTreeSet::new();
    let mut wait_is_sound = |task: &SavedTask| {
        let Some(wait) = &task.awaits else {
            return true;
        };
        let is_own = wait.ticket().is_none_or(|ticket| tickets.insert(ticket));
        is_own && task.wait.is_some() && ipc.wait_is_sound(wait)
    };
    ipc.is_sound(is_object)
        && undo().all(|undo| ipc.undo_is_sound(undo))
        && undo().count() <= MAX_UNDO
        && saved.processes.iter().all(|process| {
            let undo = process.undo.windows(2);
            let rises = |w: &[(i32, u16, i16)]| (w[0].0, w[0].1) < (w[1].0, w[1].1);
            undo.into_iter().all(rises) && (process.undo.is_empty() || process.ended.is_none())
        })
        && saved.tasks.iter().all(&mut wait_is_sound)
}

/// Whether each program is executed by some memory and listed once.
fn programs_are_sound(saved: &Saved) -> Option<bool> {
    let mut used = Used::none(&saved.programs);
    for number in saved.executed.iter().flatten() {
        used.name(*number)?;
    }
    let sound = saved.programs.windows(2).all(|w| w[0] < w[1])
        && saved.programs.iter().all(|path| path::is_sound(path))
        && saved.executed.len() == saved.memories.len();
    Some(sound && used.are_all())
}

fn pipes_are_sound(saved: &Saved) -> bool {
    let all = || saved.descriptions.iter().filter_map(|d| d.kind.pipe());
    let ends: BTreeSet<u64> = all().collect();
    let known: BTreeSet<u64> = saved.pipes.iter().map(|(id, ..)| *id).collect();
    saved.pipes.windows(2).all(|w| w[0].0 < w[1].0)
        && ends == known
        && saved.pipes.iter().all(|(_, capacity, _, bytes)| {
            let capacity = *capacity as usize;
            // Capacities in between are those of pipes that were restored when the payer could have no more large ones.
            (PIPE_BUF..=PIPE_CAPACITY).contains(&capacity)
                && capacity.is_multiple_of(PIPE_BUF)
                && bytes.len() <= capacity
        })
}

fn is_sound(saved: &Saved, d: &Description) -> bool {
    let kind = match &d.kind {
        Kind::Text(reading) => reading.is_sound(),
        Kind::Directory { pending, .. } => {
            // The pending entries are the rest of one reply of the file system.
            let rooms = pending.iter().map(|entry| ENTRY_HEAD + entry.name.len());
            rooms.sum::<usize>() <= ENTRIES_ROOM
                && pending
                    .iter()
                    .all(|e| (1..=255).contains(&e.name.len()) && !e.name.contains(['/', '\0']))
        }
        Kind::Counter { counter, .. } => counter.is_sound(),
        Kind::Epoll { id } => saved
            .epolls
            .binary_search_by_key(id, |epoll| epoll.0)
            .is_ok(),
        // These are checked together with their lists.
        Kind::Socket { .. } | Kind::Pipe { .. } | Kind::Pty { .. } | Kind::Inotify { .. } => true,
        Kind::Folder(folder) => folder.is_sound(),
        // `SIGKILL` and `SIGSTOP` must not be taken by reading them.
        Kind::Signals { mask, .. } => mask & UNBLOCKABLE == 0,
        Kind::File { .. } | Kind::Device(_) => true,
    };
    kind && d.offset <= MAX_OFFSET && d.owner.as_ref().is_none_or(|owner| owner.is_sound())
}

/// Whether each instance of `epoll` has exactly one description.
fn epolls_are_sound(saved: &Saved) -> bool {
    let instances = saved.descriptions.iter().filter_map(|d| match d.kind {
        Kind::Epoll { id } => Some(id),
        _ => None,
    });
    let distinct: BTreeSet<u64> = instances.clone().collect();
    saved.epolls.windows(2).all(|w| w[0].0 < w[1].0)
        && instances.count() == saved.epolls.len()
        && distinct.len() == saved.epolls.len()
}

/// Whether each socket is open or waits once at an open listening socket, and the ends of connections name each other.
fn sockets_are_sound(saved: &Saved) -> bool {
    let all: BTreeMap<u64, &Socket> = saved.sockets.iter().map(|s| (s.id, &s.socket)).collect();
    let open = saved.descriptions.iter().filter_map(|d| match d.kind {
        Kind::Socket { id } => Some(id),
        _ => None,
    });
    let waiting = all.values().flat_map(|socket| &socket.ready).copied();
    let mut places: alloc::vec::Vec<u64> = open.chain(waiting).collect();
    places.sort_unstable();
    let once = places.iter().eq(all.keys());
    // A waiting connection has no connections waiting at it. So its listener has a description, and ends with that.
    let takes = |listener: &Socket, id: &u64| {
        all.get(id).is_some_and(|end| {
            end.state == State::Connected
                && (end.style, end.family) == (listener.style, listener.family)
                && end.ready.is_empty()
        })
    };
    let ready = all.values().all(|socket| {
        let mut ends = socket.ready.iter();
        let is_listening = socket.state == State::Listening && socket.style != Style::Datagram;
        ends.all(|id| is_listening && takes(socket, id))
    });
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
    all.len() == saved.sockets.len()
        && once
        && ready
        && paths
        && ends
        && all.values().all(|s| s.is_sound())
        && saved.sockets.iter().all(rights_are_sound)
}

/// Whether descriptors on their way belong to existing messages, in the order of these.
fn rights_are_sound(saved: &SavedSocket) -> bool {
    let rights = &saved.rights;
    let messages = saved.socket.queue.len();
    rights.windows(2).all(|w| w[0].0 < w[1].0)
        && (rights.is_empty() || saved.socket.family == Family::Unix)
        && rights.iter().all(|(message, numbers)| {
            (*message as usize) < messages && (1..=MAX_RIGHTS).contains(&numbers.len())
        })
}

/// Whether the owner of each lock has the file open, and no two locks conflict.
fn locks_are_sound(saved: &Saved) -> bool {
    let locks = &saved.locks;
    let apart =
        |w: &[SavedLock]| (w[0].ino, w[0].owner, w[0].last) < (w[1].ino, w[1].owner, w[1].start);
    locks.len() <= MAX_LOCKS
        && locks.windows(2).all(apart)
        && locks.iter().all(lock_is_sound)
        && owners_have_files(saved)
        && locks
            .chunk_by(|a, b| a.ino == b.ino)
            .all(|of_file| !lock::collide(of_file.iter().map(SavedLock::numbered)))
}

const fn lock_is_sound(lock: &SavedLock) -> bool {
    let is_place = match lock.owner {
        SavedOwner::Whole(_) => lock.start == 0 && lock.last == lock::LAST,
        _ => lock.start <= lock.last && lock.last <= lock::LAST,
    };
    is_place && is_number(lock.number)
}

/// Whether the owners of locks on a file have it open.
fn owners_have_files(saved: &Saved) -> bool {
    let ino = |number: u32| saved.descriptions.get(number as usize)?.ino();
    // Pairs of a table and a file that it must have open.
    let mut wanted: BTreeSet<(u32, u64)> = BTreeSet::new();
    let of_descriptions = saved.locks.iter().all(|lock| match lock.owner {
        SavedOwner::Files(table) => {
            wanted.insert((table, lock.ino));
            true
        }
        SavedOwner::Description(number) | SavedOwner::Whole(number) => {
            ino(number) == Some(lock.ino)
        }
    });
    for (table, fds) in (0u32..).zip(&saved.tables) {
        for ino in fds.iter().filter_map(|(.., number)| ino(*number)) {
            if wanted.is_empty() {
                return of_descriptions;
            }
            wanted.remove(&(table, ino));
        }
    }
    of_descriptions && wanted.is_empty()
}

/// Whether each file of `memfd_create` is open.
fn memfds_are_sound(saved: &Saved) -> bool {
    let open = saved.descriptions.iter().filter_map(Description::ino);
    let open: BTreeSet<u64> = open.collect();
    let memfds = &saved.memfds;
    memfds.windows(2).all(|w| w[0].0 < w[1].0)
        && memfds
            .iter()
            .all(|(ino, memfd)| open.contains(ino) && memfd.is_sound())
}

/// Whether each pseudo-terminal has an open end, and no two have the same visible number.
fn ptys_are_sound(saved: &Saved) -> bool {
    let ends = saved.descriptions.iter().filter_map(|d| match d.kind {
        Kind::Pty { id, .. } => Some(id),
        _ => None,
    });
    let ends: BTreeSet<u64> = ends.collect();
    let shown: BTreeSet<u32> = saved.ptys.iter().map(|pty| pty.shown).collect();
    saved.ptys.windows(2).all(|w| w[0].id < w[1].id)
        && ends.iter().eq(saved.ptys.iter().map(|pty| &pty.id))
        && shown.len() == saved.ptys.len()
        && saved.ptys.iter().all(SavedPty::is_sound)
}
