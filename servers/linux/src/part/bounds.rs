//! Upper bounds for the counts of all things in the part of an image: what a tree could have made.
//!
//! They are checked as soon as a part is decoded, before anything in it is compared with anything else. So the checks
//! that follow take time in proportion to the largest tree, not to the length of the image.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use super::{Saved, SavedSocket, MAX_FILES};
use crate::ipc::Ipc;
use crate::lock::MAX_LOCKS;
use crate::process::Mapped;
use crate::system::{Thing, MAX_MARKS, MAX_THREADS_EACH, MAX_TREE};

/// The number of things of each kind.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) processes: usize,
    pub(super) tasks: usize,
    pub(super) memories: usize,
    /// Files mapped by the memory that maps most files.
    pub(super) mapped: usize,
    pub(super) contexts: usize,
    pub(super) actions: usize,
    pub(super) tables: usize,
    /// Descriptors of the largest table.
    pub(super) descriptors: usize,
    pub(super) descriptions: usize,
    pub(super) programs: usize,
    pub(super) pipes: usize,
    pub(super) epolls: usize,
    pub(super) watches: usize,
    /// All sockets, and those that wait to be accepted and whose other end is closed.
    pub(super) sockets: usize,
    pub(super) left: usize,
    pub(super) rights: usize,
    pub(super) locks: usize,
    pub(super) memfds: usize,
    pub(super) objects: usize,
    pub(super) ptys: usize,
    pub(super) inotifies: usize,
    pub(super) marks: usize,
    pub(super) places: usize,
    /// Shared memories, semaphore sets and message queues.
    pub(super) ipc: [usize; 3],
    pub(super) undo: usize,
}

impl Counts {
    /// The counts of a part.
    pub(super) fn of(saved: &Saved) -> Self {
        let rights = saved.sockets.iter().flat_map(|socket| &socket.rights);
        let watches = saved.epolls.iter().map(|(_, watches)| watches.len());
        let marks = saved.inotifies.iter().map(|one| one.watches.len());
        let tables = saved.tables.iter().map(|table| table.len());
        let mapped = saved
            .memories
            .iter()
            .map(|memory| memory.mapped.list().len());
        Counts {
            processes: saved.processes.len(),
            tasks: saved.tasks.len(),
            memories: saved.memories.len(),
            mapped: mapped.max().unwrap_or(0),
            contexts: saved.contexts.len(),
            actions: saved.actions.len(),
            tables: saved.tables.len(),
            descriptors: tables.max().unwrap_or(0),
            descriptions: saved.descriptions.len(),
            programs: saved.programs.len(),
            pipes: saved.pipes.len(),
            epolls: saved.epolls.len(),
            watches: watches.sum(),
            sockets: saved.sockets.len(),
            left: left_behind(&saved.sockets).len(),
            rights: rights.map(|(_, descriptions)| descriptions.len()).sum(),
            locks: saved.locks.len(),
            memfds: saved.memfds.len(),
            objects: saved.objects.len(),
            ptys: saved.ptys.len(),
            inotifies: saved.inotifies.len(),
            marks: marks.sum(),
            places: saved.places.len(),
            ipc: saved.ipc.as_ref().map_or([0; 3], of_ipc),
            undo: saved
                .processes
                .iter()
                .map(|process| process.undo.len())
                .sum(),
        }
    }
}

/// The numbers of shared memories, semaphore sets and message queues.
pub(super) fn of_ipc(ipc: &Ipc) -> [usize; 3] {
    let (memories, sets) = (ipc.memories.values(), ipc.sets.values());
    [memories.count(), sets.count(), ipc.queues.values().count()]
}

/// The sockets that wait to be accepted and whose other end is closed, with their place in the order of arrival. A
/// connection counts for the connecting process until it is accepted, so there can be more of these than a tree may
/// have.
pub(super) fn left_behind(sockets: &[SavedSocket]) -> BTreeMap<u64, usize> {
    let waiting = sockets.iter().flat_map(|one| &one.socket.ready);
    // A hostile image may claim any number of them.
    let waiting = waiting.take(Thing::Socket.most_of_all());
    let mut places: BTreeMap<u64, usize> = waiting.copied().zip(0..).collect();
    for one in sockets.iter().filter(|one| one.socket.peer.is_some()) {
        places.remove(&one.id);
    }
    places
}

/// A sentence that names the first count above its bound.
pub(super) fn excess(counts: &Counts) -> Option<String> {
    let tasks = counts.tasks;
    let things = |thing: Thing| thing.most_of_one();
    let bounds = [
        ("processes", counts.processes, MAX_TREE),
        ("threads", tasks, MAX_THREADS_EACH),
        // Each of these belongs to at least one task.
        ("memories", counts.memories, tasks),
        ("files that a program maps", counts.mapped, Mapped::MOST),
        ("places in the file system", counts.contexts, tasks),
        ("sets of actions", counts.actions, tasks),
        ("tables of descriptors", counts.tables, tasks),
        (
            "descriptors of a process",
            counts.descriptors,
            MAX_FILES as usize,
        ),
        ("programs", counts.programs, tasks),
        ("pipes", counts.pipes, things(Thing::Pipe)),
        // Each has a description.
        ("instances of epoll", counts.epolls, counts.descriptions),
        (
            "descriptors that are watched",
            counts.watches,
            things(Thing::Watch),
        ),
        (
            "sockets",
            counts.sockets - counts.left.min(counts.sockets),
            things(Thing::Socket),
        ),
        // Sockets beyond the limit of a tree are left out at the restore.
        (
            "sockets and connections that wait",
            counts.sockets,
            Thing::Socket.most_of_all(),
        ),
        (
            "descriptors on their way",
            counts.rights,
            things(Thing::Right),
        ),
        ("locks on files", counts.locks, MAX_LOCKS),
        ("files of memory", counts.memfds, MAX_FILES as usize),
        ("memory objects", counts.objects, things(Thing::Object)),
        ("pseudo-terminals", counts.ptys, things(Thing::Pty)),
        (
            "instances of inotify",
            counts.inotifies,
            things(Thing::Inotify),
        ),
        ("files that are watched", counts.marks, MAX_MARKS),
        (
            "places that are watched",
            counts.places,
            things(Thing::Place),
        ),
        ("shared memories", counts.ipc[0], things(Thing::Object)),
        ("sets of semaphores", counts.ipc[1], things(Thing::Set)),
        ("queues of messages", counts.ipc[2], things(Thing::Queue)),
        (
            "semaphores that ends change",
            counts.undo,
            things(Thing::Undo),
        ),
    ];
    let over = bounds.iter().find(|(_, count, most)| count > most);
    over.map(|(what, count, most)| {
        format!("it has {count} {what}, of which a tree can have {most}")
    })
}
