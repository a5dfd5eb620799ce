//! Forged parts: each claims one thing that no tree could have.

use crate::memory::{Areas, PAGE};
use crate::trace::{Stop, Trace};

use super::{Bytes, Part, Saved, SavedFile, SavedLock, SavedOwner, SavedSocket};
use crate::process::{Entry, Mapped};
use crate::socket::{Family, State, Style};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use services::process::Status;

/// What is forged, in a tree of four processes with five tasks and two memories; the second process has ended.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub(crate) enum Forged {
    Nothing,
    ParentBehind,
    ParentOfItself,
    ParentNowhere,
    ParentThatHasEnded,
    RootWithParent,
    RootThatHasEnded,
    EndedWithoutParent,
    EndedThatRuns,
    EndedWithTask,
    LivingWithoutTask,
    NumberTwice,
    NumberOfThread,
    NumberZero,
    GroupZero,
    ExitSignal,
    StopSignal,
    FirstThatLives,
    FirstTwice,
    TaskOfNobody,
    MemoryNowhere,
    MemoryOfNobody,
    RootElsewhere,
    ArgumentsEndless,
    EnvironmentEndless,
    MappedWithoutEnd,
    MappedNowhere,
    ThreadInOtherMemory,
    ThreadWithOtherActions,
    PlaceTwice,
    PlaceOfMapping,
    TableNowhere,
    ContextNowhere,
    ActionsNowhere,
    DescriptionNowhere,
    DescriptionOfNobody,
    DescriptorTwice,
    PipeNowhere,
    PipeOfNobody,
    SocketNowhere,
    SocketTwice,
    PeerNowhere,
    SocketInItself,
    SocketsInARing,
    ConnectionWithConnections,
    ListenerOfDatagrams,
    ConnectionOfOtherFamily,
    RightNowhere,
    RightInNoMessage,
    FileNowhere,
    FileOfNobody,
    FileUp,
    FileMode,
    DirectoryWithContents,
    DirectoryWithMuchPending,
    LockNowhere,
    LockOfNobody,
    LockOfOther,
    LockTwice,
    LocksCollide,
    LockBackwards,
    LockBehind,
    LockOfPart,
    LockNumber,
    LocksTooMany,
    MemfdNowhere,
    MemfdWithName,
    MemfdSeals,
    MemfdName,
    ObjectNowhere,
    ObjectOfNobody,
    ObjectTwice,
    ObjectsOfOneFile,
    ObjectOfPipe,
    ObjectInPieces,
    ObjectPartBehind,
    ObjectPartsTouch,
    ObjectBehindUnwritten,
    ObjectOfSealed,
    WordNowhere,
    TraceBySelf,
    TraceNowhere,
    TraceByEnded,
    TraceSignal,
    TraceOptions,
    TraceEvents,
    TraceEndsRunning,
    PtyNowhere,
    PtyOfNobody,
    PtyTwice,
    PtyShown,
    PtyLines,
    PtyInput,
    PtyOutput,
    PtyTermios,
    PtySession,
    ProgramNowhere,
    ProgramOfNobody,
    ProgramTwice,
    ProgramPath,
    ProgramsOfFew,
    DirectoriesOfFew,
    SharedNowhere,
    SharedOfNobody,
    SharedTwice,
    SharedKeys,
    SharedSize,
    SharedMode,
    SetEmpty,
    SetValue,
    QueueBytes,
    QueueType,
    UndoNowhere,
    UndoTwice,
    UndoOfEnded,
    WaitNowhere,
    WaitWithoutCall,
    WaitBehindTheLast,
    TicketsEnd,
    TreeWithMore,
    PartWithMore,
}

impl Forged {
    pub(crate) const ALL: [Forged; 120] = [
        Forged::ParentBehind,
        Forged::ParentOfItself,
        Forged::ParentNowhere,
        Forged::ParentThatHasEnded,
        Forged::RootWithParent,
        Forged::RootThatHasEnded,
        Forged::EndedWithoutParent,
        Forged::EndedThatRuns,
        Forged::EndedWithTask,
        Forged::LivingWithoutTask,
        Forged::NumberTwice,
        Forged::NumberOfThread,
        Forged::NumberZero,
        Forged::GroupZero,
        Forged::ExitSignal,
        Forged::StopSignal,
        Forged::FirstThatLives,
        Forged::FirstTwice,
        Forged::TaskOfNobody,
        Forged::MemoryNowhere,
        Forged::MemoryOfNobody,
        Forged::RootElsewhere,
        Forged::ArgumentsEndless,
        Forged::EnvironmentEndless,
        Forged::MappedWithoutEnd,
        Forged::MappedNowhere,
        Forged::ThreadInOtherMemory,
        Forged::ThreadWithOtherActions,
        Forged::PlaceTwice,
        Forged::PlaceOfMapping,
        Forged::TableNowhere,
        Forged::ContextNowhere,
        Forged::ActionsNowhere,
        Forged::DescriptionNowhere,
        Forged::DescriptionOfNobody,
        Forged::DescriptorTwice,
        Forged::PipeNowhere,
        Forged::PipeOfNobody,
        Forged::SocketNowhere,
        Forged::SocketTwice,
        Forged::PeerNowhere,
        Forged::SocketInItself,
        Forged::SocketsInARing,
        Forged::ConnectionWithConnections,
        Forged::ListenerOfDatagrams,
        Forged::ConnectionOfOtherFamily,
        Forged::RightNowhere,
        Forged::RightInNoMessage,
        Forged::FileNowhere,
        Forged::FileOfNobody,
        Forged::FileUp,
        Forged::FileMode,
        Forged::DirectoryWithContents,
        Forged::DirectoryWithMuchPending,
        Forged::LockNowhere,
        Forged::LockOfNobody,
        Forged::LockOfOther,
        Forged::LockTwice,
        Forged::LocksCollide,
        Forged::LockBackwards,
        Forged::LockBehind,
        Forged::LockOfPart,
        Forged::LockNumber,
        Forged::LocksTooMany,
        Forged::MemfdNowhere,
        Forged::MemfdWithName,
        Forged::MemfdSeals,
        Forged::MemfdName,
        Forged::ObjectNowhere,
        Forged::ObjectOfNobody,
        Forged::ObjectTwice,
        Forged::ObjectsOfOneFile,
        Forged::ObjectOfPipe,
        Forged::ObjectInPieces,
        Forged::ObjectPartBehind,
        Forged::ObjectPartsTouch,
        Forged::ObjectBehindUnwritten,
        Forged::ObjectOfSealed,
        Forged::WordNowhere,
        Forged::TraceBySelf,
        Forged::TraceNowhere,
        Forged::TraceByEnded,
        Forged::TraceSignal,
        Forged::TraceOptions,
        Forged::TraceEvents,
        Forged::TraceEndsRunning,
        Forged::PtyNowhere,
        Forged::PtyOfNobody,
        Forged::PtyTwice,
        Forged::PtyShown,
        Forged::PtyLines,
        Forged::PtyInput,
        Forged::PtyOutput,
        Forged::PtyTermios,
        Forged::PtySession,
        Forged::ProgramNowhere,
        Forged::ProgramOfNobody,
        Forged::ProgramTwice,
        Forged::ProgramPath,
        Forged::ProgramsOfFew,
        Forged::DirectoriesOfFew,
        Forged::SharedNowhere,
        Forged::SharedOfNobody,
        Forged::SharedTwice,
        Forged::SharedKeys,
        Forged::SharedSize,
        Forged::SharedMode,
        Forged::SetEmpty,
        Forged::SetValue,
        Forged::QueueBytes,
        Forged::QueueType,
        Forged::UndoNowhere,
        Forged::UndoTwice,
        Forged::UndoOfEnded,
        Forged::WaitNowhere,
        Forged::WaitWithoutCall,
        Forged::WaitBehindTheLast,
        Forged::TicketsEnd,
        Forged::TreeWithMore,
        Forged::PartWithMore,
    ];
}

/// A valid part with this change.
pub(crate) fn forge(part: &[u8], forged: Forged) -> Vec<u8> {
    let (version, tree, mut files): (u32, Vec<u8>, Vec<(u64, SavedFile)>) =
        postcard::from_bytes(part).unwrap();
    let mut saved: Saved = postcard::from_bytes(&tree).unwrap();
    change(&mut saved, &mut files, forged);
    let mut tree = postcard::to_allocvec(&saved).unwrap();
    if matches!(forged, Forged::TreeWithMore) {
        tree.push(0);
    }
    let mut part = postcard::to_allocvec(&Part {
        version,
        tree: Bytes(&tree),
        files,
    })
    .unwrap();
    if matches!(forged, Forged::PartWithMore) {
        part.push(0);
    }
    part
}

/// The part with its tree changed, and the tree's length right. `None` if the changed tree cannot be decoded, unless it
/// `may` be undecodable.
pub(crate) fn with_tree(
    part: &[u8],
    may: bool,
    change: impl FnOnce(&[u8]) -> Vec<u8>,
) -> Option<Vec<u8>> {
    type Read<'a> = (u32, &'a [u8], Vec<(u64, SavedFile)>);
    let (version, tree, files): Read = postcard::from_bytes(part).ok()?;
    let tree = change(tree);
    if !may && postcard::from_bytes::<Saved>(&tree).is_err() {
        return None;
    }
    let tree = Bytes(&tree);
    let part = Part {
        version,
        tree,
        files,
    };
    Some(postcard::to_allocvec(&part).unwrap())
}

fn of_ipc(saved: &mut Saved) -> &mut crate::ipc::Ipc {
    saved.ipc.as_mut().unwrap()
}

fn change(saved: &mut Saved, files: &mut Vec<(u64, SavedFile)>, forged: Forged) {
    use crate::process::Kind;
    let ended = saved
        .processes
        .iter()
        .position(|p| p.ended.is_some())
        .unwrap();
    let living = (1..4).find(|n| *n != ended).unwrap();
    let root_number = saved.processes[0].process.number;
    let thread = |saved: &Saved| {
        let mut tasks = saved.tasks.iter();
        tasks
            .position(|t| t.process == 0 && t.number != root_number)
            .unwrap()
    };
    let other = saved.tasks.iter().position(|t| t.memory == 1).unwrap();
    let socket = |saved: &Saved| {
        let mut all = saved.descriptions.iter();
        all.position(|d| matches!(d.kind, Kind::Socket { .. }))
            .unwrap()
    };
    let file = |saved: &Saved| {
        let mut all = saved.descriptions.iter();
        all.position(|d| matches!(d.kind, Kind::File { .. }))
            .unwrap()
    };
    match forged {
        // The latter two are made in `forge`, from the encoding.
        Forged::Nothing | Forged::TreeWithMore | Forged::PartWithMore => {}
        Forged::SharedNowhere => of_ipc(saved).memories.values_mut().next().unwrap().object = 0,
        Forged::SharedOfNobody => of_ipc(saved).memories = Default::default(),
        Forged::SharedTwice => {
            let one = of_ipc(saved).memories.values().next().unwrap().clone();
            of_ipc(saved).memories.forge(1, one);
        }
        Forged::SharedKeys => {
            let mut one = of_ipc(saved).queues.values().next().unwrap().clone();
            (one.bytes, one.messages) = (0, Default::default());
            of_ipc(saved).queues.forge(1, one);
        }
        Forged::SharedSize => of_ipc(saved).memories.values_mut().next().unwrap().size = 0,
        Forged::SharedMode => {
            of_ipc(saved)
                .memories
                .values_mut()
                .next()
                .unwrap()
                .owner
                .mode = 1 << 20;
        }
        Forged::SetEmpty => of_ipc(saved)
            .sets
            .values_mut()
            .next()
            .unwrap()
            .semaphores
            .clear(),
        Forged::SetValue => {
            of_ipc(saved).sets.values_mut().next().unwrap().semaphores[0].value = 40_000;
        }
        Forged::QueueBytes => of_ipc(saved).queues.values_mut().next().unwrap().bytes = 4,
        Forged::QueueType => {
            of_ipc(saved).queues.values_mut().next().unwrap().messages[0].kind = 0;
        }
        Forged::UndoNowhere => saved.processes[0].undo[0].1 = 2,
        Forged::UndoTwice => {
            let one = saved.processes[0].undo[0];
            saved.processes[0].undo.push(one);
        }
        Forged::UndoOfEnded => saved.processes[ended].undo = saved.processes[0].undo.clone(),
        Forged::WaitNowhere => {
            let key = [0; 9];
            let (deadline, progress) = (None, 0);
            saved.tasks[0].wait = Some(crate::process::Wait {
                deadline,
                progress,
                ..crate::process::Wait::new(key)
            });
            let (id, is_gone) = (77, false);
            saved.tasks[0].awaits = Some(crate::ipc::Wait::Send { id, is_gone });
        }
        Forged::TicketsEnd => of_ipc(saved).end_tickets(),
        Forged::WaitBehindTheLast => {
            saved.tasks[0].wait = Some(crate::process::Wait::new([0; 9]));
            saved.tasks[0].awaits = Some(crate::ipc::Wait::Receive {
                id: 0,
                ticket: 1,
                wanted: crate::ipc::Wanted {
                    kind: 9,
                    except: false,
                    most: 8,
                    cuts: false,
                },
                done: None,
            });
        }
        Forged::WaitWithoutCall => {
            let (id, is_gone) = (0, true);
            saved.tasks[0].awaits = Some(crate::ipc::Wait::Send { id, is_gone });
        }
        Forged::ProgramNowhere => saved.executed[1] = Some(0),
        Forged::ProgramOfNobody => saved.programs.push("/bin/thing".to_string()),
        Forged::ProgramTwice => {
            saved.programs = Vec::from(["/bin/thing".to_string(), "/bin/thing".to_string()]);
            saved.executed = Vec::from([Some(0), Some(1)]);
        }
        Forged::ProgramPath => {
            saved.programs.push("thing".to_string());
            saved.executed[0] = Some(0);
        }
        Forged::ProgramsOfFew => {
            saved.executed.pop();
        }
        Forged::DirectoriesOfFew => {
            saved.directories.pop();
        }
        Forged::ParentBehind => saved.processes[1].parent = Some(3),
        Forged::ParentOfItself => saved.processes[1].parent = Some(1),
        Forged::ParentNowhere => saved.processes[1].parent = Some(99),
        Forged::ParentThatHasEnded => {
            saved.processes.swap(1, ended);
            for task in &mut saved.tasks {
                let (one, two) = (1, ended as u32);
                task.process = match task.process {
                    n if n == one => two,
                    n if n == two => one,
                    n => n,
                };
            }
            saved.processes[3].parent = Some(1);
        }
        Forged::RootWithParent => saved.processes[0].parent = Some(0),
        Forged::RootThatHasEnded => {
            saved.processes[0].ended = Some((Status::Exited(0), "root".to_string()));
        }
        Forged::EndedWithoutParent => saved.processes[ended].parent = None,
        Forged::EndedThatRuns => {
            saved.processes[ended].ended = Some((Status::Running, "one".to_string()));
        }
        Forged::EndedWithTask => saved.tasks[other].process = ended as u32,
        Forged::LivingWithoutTask => {
            saved.processes[ended].ended = None;
        }
        Forged::NumberTwice => saved.processes[living].process.number = root_number,
        Forged::NumberOfThread => {
            let thread = thread(saved);
            saved.processes[ended].process.number = saved.tasks[thread].number;
        }
        Forged::NumberZero => saved.processes[ended].process.number = 0,
        Forged::GroupZero => saved.processes[living].process.group = 0,
        Forged::ExitSignal => saved.processes[living].exit_signal = 65,
        Forged::StopSignal => saved.processes[living].stopped = Some(9),
        Forged::FirstThatLives => saved.processes[0].first = Some(0x300),
        Forged::FirstTwice => {
            let thread = thread(saved);
            saved.tasks[thread].number = root_number;
        }
        Forged::TaskOfNobody => saved.tasks[other].process = 4,
        Forged::MemoryNowhere => saved.tasks[other].memory = 2,
        Forged::MemoryOfNobody => {
            saved.tasks[other].memory = 0;
            saved.tasks[other].place = 0x300;
        }
        Forged::ArgumentsEndless => saved.memories[0].args = (PAGE, u64::MAX),
        Forged::EnvironmentEndless => saved.memories[1].environment = (crate::memory::END, 1),
        Forged::MappedWithoutEnd => {
            let paths = (0..=Mapped::MOST).map(|n| format!("/{n}"));
            saved.memories[1].mapped = Mapped::forged(paths.collect());
        }
        Forged::MappedNowhere => {
            saved.memories[1].mapped = Mapped::forged(Vec::from(["library".to_string()]));
        }
        Forged::RootElsewhere => saved.tasks.iter_mut().for_each(|t| t.memory ^= 1),
        Forged::ThreadInOtherMemory => {
            let thread = thread(saved);
            saved.tasks[thread].memory = 1;
        }
        Forged::ThreadWithOtherActions => {
            let (thread, actions) = (thread(saved), saved.tasks[other].actions);
            saved.tasks[thread].actions = actions;
        }
        Forged::PlaceTwice => {
            let thread = thread(saved);
            saved.tasks[thread].place = saved.tasks[0].place;
        }
        Forged::PlaceOfMapping => saved.tasks[other].place = proto::layout::CONTROL_MAPPINGS,
        Forged::TableNowhere => saved.tasks[other].files = 99,
        Forged::ContextNowhere => saved.tasks[other].context = 99,
        Forged::ActionsNowhere => saved.tasks[other].actions = 99,
        Forged::DescriptionNowhere => saved.tables[1][0].2 = 99,
        Forged::DescriptionOfNobody => {
            let one = saved.descriptions[0].clone();
            saved.descriptions.push(one);
        }
        Forged::DescriptorTwice => {
            let one = saved.tables[0][0];
            saved.tables[0].insert(0, one);
        }
        Forged::PipeNowhere => saved.pipes.clear(),
        Forged::PipeOfNobody => saved.pipes.push((u64::MAX, 4096, true, Vec::new())),
        Forged::SocketNowhere => {
            saved.sockets.pop();
        }
        Forged::SocketTwice => {
            let at = socket(saved);
            let one = saved.descriptions[at].clone();
            saved.descriptions.push(one);
            let number = saved.descriptions.len() as u32 - 1;
            saved.tables[0].push((1000, false, number));
        }
        Forged::PeerNowhere => saved.sockets[0].socket.peer = Some(u64::MAX),
        Forged::SocketInItself => {
            let mut one = listener(saved, u64::MAX);
            one.socket.ready.push_back(u64::MAX);
            saved.sockets.push(one);
        }
        Forged::SocketsInARing => {
            for (id, next) in [(u64::MAX - 1, u64::MAX), (u64::MAX, u64::MAX - 1)] {
                let mut one = listener(saved, id);
                one.socket.ready.push_back(next);
                saved.sockets.push(one);
            }
        }
        Forged::ConnectionWithConnections => {
            let other = saved.sockets[1].id;
            saved.sockets[0].socket.ready.push_back(other);
        }
        Forged::ListenerOfDatagrams | Forged::ConnectionOfOtherFamily => {
            // A new open socket, and a connection that waits at it.
            let (mut one, mut end) = (listener(saved, u64::MAX - 1), listener(saved, u64::MAX));
            end.socket.state = State::Connected;
            match forged {
                Forged::ListenerOfDatagrams => {
                    (one.socket.style, end.socket.style) = (Style::Datagram, Style::Datagram);
                }
                _ => end.socket.family = Family::V4,
            }
            one.socket.ready.push_back(end.id);
            let mut description = saved.descriptions[socket(saved)].clone();
            description.kind = Kind::Socket { id: one.id };
            saved.descriptions.push(description);
            let number = saved.descriptions.len() as u32 - 1;
            saved.tables[0].push((1000, false, number));
            saved.sockets.extend([one, end]);
        }
        Forged::RightNowhere => saved.sockets[0].rights.push((0, Vec::from([99]))),
        Forged::RightInNoMessage => saved.sockets[0].rights.push((0, Vec::from([0]))),
        Forged::FileNowhere => files.clear(),
        Forged::FileOfNobody => files.push((u64::MAX, SavedFile::Named("/tmp/file".to_string()))),
        Forged::FileUp => rename(files, "/tmp/../etc/file"),
        Forged::FileMode => {
            if let SavedFile::Carried { mode, .. } = &mut files[0].1 {
                *mode = 0o100_644;
            }
        }
        Forged::DirectoryWithContents => {
            let at = file(saved);
            let ino = saved.descriptions[at].ino().unwrap();
            saved.descriptions[at].kind = Kind::Directory {
                ino,
                pending: Vec::new(),
                cookie: 0,
            };
        }
        Forged::DirectoryWithMuchPending => {
            let ino = saved.descriptions[file(saved)].ino().unwrap();
            let entry = Entry {
                ino: 1,
                mode: 0o100_644,
                name: "name".to_string(),
            };
            let all = saved.descriptions.iter_mut();
            for description in all.filter(|d| d.ino() == Some(ino)) {
                description.kind = Kind::Directory {
                    ino,
                    pending: vec![entry.clone(); 1000],
                    cookie: 0,
                };
            }
            let named = files.iter_mut().filter(|file| file.0 == ino);
            named.for_each(|file| file.1 = SavedFile::Named("/tmp".to_string()));
        }
        Forged::LockNowhere => saved.locks[0].ino = u64::MAX,
        Forged::LockOfNobody => saved.locks[0].owner = SavedOwner::Files(99),
        Forged::LockOfOther => {
            let at = socket(saved) as u32;
            saved.locks[0].owner = SavedOwner::Description(at);
        }
        Forged::LockTwice => {
            let one = saved.locks[1];
            saved.locks.insert(1, one);
        }
        Forged::LocksCollide => {
            // A lock of another owner, from the first byte on.
            let one = saved.locks[0];
            let at = saved
                .descriptions
                .iter()
                .position(|d| d.ino() == Some(one.ino));
            let owner = SavedOwner::Description(at.unwrap() as u32);
            saved.locks.insert(2, SavedLock { owner, ..one });
        }
        Forged::LockBackwards => saved.locks[1].last = 0,
        Forged::LockBehind => saved.locks[1].last = u64::MAX,
        Forged::LockOfPart => saved.locks[2].start = 1,
        Forged::LockNumber => saved.locks[0].number = 0,
        Forged::LocksTooMany => {
            let one = saved.locks[1];
            for start in 100..1200 {
                let last = start;
                let more = SavedLock { start, last, ..one };
                saved.locks.insert(saved.locks.len() - 1, more);
            }
        }
        Forged::MemfdNowhere => saved.memfds[0].0 = u64::MAX,
        Forged::MemfdWithName => {
            // Others who open the named file would find it sealed.
            let own = saved.memfds[0].0;
            let mut all = saved.descriptions.iter();
            let other = all.find(|d| matches!(d.kind, Kind::File { .. }) && d.ino() != Some(own));
            saved.memfds[0].0 = other.unwrap().ino().unwrap();
        }
        Forged::MemfdSeals => saved.memfds[0].1.seals = u32::MAX,
        Forged::MemfdName => saved.memfds[0].1.name = Vec::from([b'x'; 250]),
        Forged::ObjectNowhere => saved.objects[1].id = u64::MAX,
        Forged::ObjectOfNobody => {
            let gone = saved.objects[0].id;
            for memory in &mut saved.memories {
                let list = memory.areas.list().iter();
                let left = list.filter(|area| area.object() != Some(gone)).copied();
                memory.areas = Areas::from_list(left.collect());
            }
        }
        Forged::ObjectTwice => saved.objects[1] = saved.objects[0].clone(),
        Forged::ObjectsOfOneFile => saved.objects[0].description = saved.objects[1].description,
        Forged::ObjectOfPipe => {
            let mut all = saved.descriptions.iter();
            let at = all.position(|d| d.kind.pipe().is_some());
            saved.objects[0].description = at.map(|at| at as u32);
        }
        Forged::ObjectInPieces => saved.objects[1].loaded = Vec::from([(0, 100)]),
        Forged::ObjectPartBehind => {
            saved.objects[1].loaded = Vec::from([(0, crate::memory::END + PAGE)]);
        }
        Forged::ObjectPartsTouch => {
            saved.objects[1].loaded = Vec::from([(0, PAGE), (PAGE, 2 * PAGE)]);
        }
        Forged::ObjectBehindUnwritten => saved.objects[1] = saved.objects[1].behind_unwritten(),
        Forged::ObjectOfSealed => {
            // A program that is told of the seal relies on it.
            let (ino, memfd) = &mut saved.memfds[0];
            memfd.seals |= linux_raw_sys::general::F_SEAL_WRITE;
            let mut all = saved.descriptions.iter();
            let at = all.position(|description| description.ino() == Some(*ino));
            saved.objects[1].description = at.map(|at| at as u32);
        }
        Forged::WordNowhere => {
            let bits = u32::MAX;
            let waiter = crate::futex::Waiter { bits, locks: None };
            saved.tasks[other].wait = Some(crate::process::Wait::new([0; 9]));
            saved.tasks[other].waits_at = Some((8, 1, waiter));
            saved.tasks[other].waits_in = Some(u64::MAX);
        }
        Forged::TraceBySelf => {
            let own = saved.tasks[other].process;
            saved.tasks[other].trace = Some((own, Trace::default()));
        }
        Forged::TraceNowhere => saved.tasks[other].trace = Some((u32::MAX, Trace::default())),
        Forged::TraceByEnded => {
            let mut all = saved.processes.iter();
            let ended = all.position(|p| p.ended.is_some()).unwrap();
            saved.tasks[other].trace = Some((ended as u32, Trace::default()));
        }
        Forged::TraceSignal => {
            let stop = Some(Stop::Signal(65, crate::signal::Origin::default()));
            let trace = Trace {
                stop,
                ..Trace::default()
            };
            saved.tasks[other].trace = Some((0, trace));
        }
        Forged::TraceOptions => {
            let options = 1 << 30;
            let trace = Trace {
                options,
                ..Trace::default()
            };
            saved.tasks[other].trace = Some((0, trace));
        }
        Forged::TraceEvents => {
            let events = Vec::from([1; 100]);
            let trace = Trace {
                events,
                ..Trace::default()
            };
            saved.tasks[other].trace = Some((0, trace));
        }
        Forged::TraceEndsRunning => {
            saved.processes[0].trace_ends = Vec::from([(7, Status::Running)]);
        }
        Forged::PtyNowhere => saved.ptys.clear(),
        Forged::PtyOfNobody => {
            let mut one = saved.ptys[0].clone();
            (one.id, one.shown) = (u64::MAX, 1);
            saved.ptys.push(one);
        }
        Forged::PtyTwice => {
            // Two pairs that programs see under one number.
            let mut one = saved.ptys[0].clone();
            one.id = u64::MAX;
            saved.ptys.push(one);
            let mut ends = saved.descriptions.iter_mut();
            let end = ends.find_map(|d| match &mut d.kind {
                Kind::Pty { id, .. } => Some(id),
                _ => None,
            });
            *end.unwrap() = u64::MAX;
        }
        Forged::PtyShown => saved.ptys[0].shown = u32::MAX,
        Forged::PtyLines => saved.ptys[0].lines.push(1),
        Forged::PtyInput => {
            saved.ptys[0].ready = Vec::from([b'x'; 5000]);
            saved.ptys[0].lines = Vec::from([5000]);
        }
        Forged::PtyOutput => saved.ptys[0].output = Vec::from([b'x'; 5000]),
        Forged::PtyTermios => saved.ptys[0].termios.truncate(20),
        Forged::PtySession => saved.ptys[0].session = Some(0),
    }
}

/// A listening socket to which nothing else refers yet.
fn listener(saved: &Saved, id: u64) -> SavedSocket {
    let mut socket = saved.sockets[0].socket.clone();
    (socket.state, socket.peer) = (State::Listening, None);
    let (path, is_found, rights) = (None, false, Vec::new());
    SavedSocket {
        id,
        socket,
        path,
        is_found,
        rights,
    }
}

/// A valid part of a tree whose lists of memory objects and `memfd_create` files have `count` elements each: every file
/// is sealed and has an object.
pub(crate) fn forge_many(part: &[u8], count: u32) -> Vec<u8> {
    let (version, tree, mut files): (u32, Vec<u8>, Vec<(u64, SavedFile)>) =
        postcard::from_bytes(part).unwrap();
    let mut saved: Saved = postcard::from_bytes(&tree).unwrap();
    let (_, memfd) = &saved.memfds[0];
    let mut memfd = memfd.clone();
    memfd.seals |= linux_raw_sys::general::F_SEAL_WRITE;
    let mut all = saved.descriptions.iter();
    let description = all.find(|d| matches!(d.kind, crate::process::Kind::File { .. }));
    let mut description = description.unwrap().clone();
    let object = saved.objects[1].clone();
    (saved.memfds, saved.objects) = Default::default();
    for number in 0..count {
        let ino = (1 << 40) + u64::from(number);
        description.kind = crate::process::Kind::File { ino };
        saved.descriptions.push(description.clone());
        saved.memfds.push((ino, memfd.clone()));
        let mut object = object.clone();
        object.id = u64::from(number);
        object.description = Some(saved.descriptions.len() as u32 - 1);
        saved.objects.push(object);
        let contents = Vec::new();
        files.push((ino, SavedFile::Unlinked { mode: 0, contents }));
    }
    files.truncate(1000);
    let tree = postcard::to_allocvec(&saved).unwrap();
    let tree = Bytes(&tree);
    postcard::to_allocvec(&Part {
        version,
        tree,
        files,
    })
    .unwrap()
}

/// A valid part whose pipes all have the largest capacity, with this many bytes in each.
pub(crate) fn forge_pipes(part: &[u8], bytes: usize) -> Vec<u8> {
    let forged = with_tree(part, true, |tree| {
        let mut saved: Saved = postcard::from_bytes(tree).unwrap();
        for (_, capacity, _, within) in &mut saved.pipes {
            *capacity = crate::process::PIPE_CAPACITY as u32;
            *within = vec![b'x'; bytes];
        }
        postcard::to_allocvec(&saved).unwrap()
    });
    forged.unwrap()
}

fn rename(files: &mut [(u64, SavedFile)], to: &str) {
    if let SavedFile::Carried { path, .. } = &mut files[0].1 {
        *path = to.to_string();
    }
}
