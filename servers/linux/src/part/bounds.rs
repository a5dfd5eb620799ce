//! How many there can be of each thing in the part of an image: as many as a tree could have made.
//!
//! That is looked at as soon as a part is decoded, before anything in it is compared with anything else: what is done with these
//! lists from then on takes as long as a tree may be large, and not as long as an image is.

use alloc::format;
use alloc::string::String;

use super::{Saved, MAX_FILES};
use crate::lock::MAX_LOCKS;
use crate::system::{Thing, MAX_MARKS, MAX_THREADS_EACH, MAX_TREE};

/// What there is too much of, in a sentence.
pub(super) fn excess(saved: &Saved) -> Option<String> {
    let tasks = saved.tasks.len();
    let things = |thing: Thing| thing.most_of_one();
    let rights = saved.sockets.iter().flat_map(|socket| &socket.rights);
    let rights = rights.map(|(_, descriptions)| descriptions.len());
    let watches = saved.epolls.iter().map(|(_, watches)| watches.len());
    let marks = saved.inotifies.iter().map(|one| one.watches.len());
    let undo = saved.processes.iter().map(|process| process.undo.len());
    let ipc = saved.ipc.as_ref();
    let of_ipc = ipc.map_or([0; 3], |ipc| {
        let (memories, sets) = (ipc.memories.values(), ipc.sets.values());
        [memories.count(), sets.count(), ipc.queues.values().count()]
    });
    let tables = saved.tables.iter().map(|table| table.len());
    let bounds = [
        ("processes", saved.processes.len(), MAX_TREE),
        ("threads", tasks, MAX_THREADS_EACH),
        // Each of these is some task's.
        ("memories", saved.memories.len(), tasks),
        ("places in the file system", saved.contexts.len(), tasks),
        ("sets of actions", saved.actions.len(), tasks),
        ("tables of descriptors", saved.tables.len(), tasks),
        (
            "descriptors of a process",
            tables.max().unwrap_or(0),
            MAX_FILES as usize,
        ),
        ("programs", saved.programs.len(), tasks),
        ("pipes", saved.pipes.len(), things(Thing::Pipe)),
        // Each has a description.
        (
            "instances of epoll",
            saved.epolls.len(),
            saved.descriptions.len(),
        ),
        (
            "descriptors that are watched",
            watches.sum(),
            things(Thing::Watch),
        ),
        ("sockets", saved.sockets.len(), things(Thing::Socket)),
        (
            "descriptors on their way",
            rights.sum(),
            things(Thing::Right),
        ),
        ("locks on files", saved.locks.len(), MAX_LOCKS),
        ("files of memory", saved.memfds.len(), MAX_FILES as usize),
        ("memory objects", saved.objects.len(), things(Thing::Object)),
        ("pseudo-terminals", saved.ptys.len(), things(Thing::Pty)),
        (
            "instances of inotify",
            saved.inotifies.len(),
            things(Thing::Inotify),
        ),
        ("files that are watched", marks.sum(), MAX_MARKS),
        (
            "places that are watched",
            saved.places.len(),
            things(Thing::Place),
        ),
        ("shared memories", of_ipc[0], things(Thing::Object)),
        ("sets of semaphores", of_ipc[1], things(Thing::Set)),
        ("queues of messages", of_ipc[2], things(Thing::Queue)),
        (
            "semaphores that ends change",
            undo.sum(),
            things(Thing::Undo),
        ),
    ];
    let over = bounds.iter().find(|(_, count, most)| count > most);
    over.map(|(what, count, most)| {
        format!("it has {count} {what}, of which a tree can have {most}")
    })
}
