//! The table of all processes: parents and children, groups and sessions, and how each has ended.
//!
//! A [`Process`] is what its tasks have in common and what others ask of it. The [`System`] is the table of them. It
//! also collects what one call does to other processes (signals sent, calls woken, processes gone) for whoever runs the
//! processes to take and carry out ([`System::take_sent`], [`System::take_woken`], [`System::take_gone`]). A call that
//! waits names what it waits for by [`Key`]s.
//!
//! A process has two numbers: its identity in the table, a [`Pid`], and its number as programs see it. They differ only
//! in a process that was restored where its number was taken: then it and its descendants are a namespace of their own.
//!
//! No operation takes longer the more processes there are, except those on several processes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::mem::take;
use linux_raw_sys::general as linux;
use proto::MAX_BULK;
use serde::{Deserialize, Serialize};
use services::process::{Pid, Status, MAX_JOB, MAX_SAID};
use smallvec::SmallVec;

use crate::busy::Busy;
use crate::calls::memfd::Memfd;
use crate::epoll::{Epolls, ALL};
use crate::errno::{Errno, EACCES, EAGAIN, ECHILD, ENFILE, ENOMEM, ENOSPC, EPERM, ESRCH};
use crate::futex::Futexes;
use crate::inotify::Inotifies;
use crate::ipc::Ipcs;
use crate::job::News;
use crate::lock::{Locks, MAX_LOCKS};
use crate::memory::STACK_SIZE;
use crate::node::Nodes;
use crate::object::Objects;
use crate::outside::Outside;
use crate::proc::Seen;
use crate::process::{Description, End, Ids, Kind, Pipe, Shared, Shown, Task, MAX_FDS};
use crate::pty::Ptys;
use crate::signal::{sig, Actions, Origin, Pending};
use crate::socket::Sockets;
use crate::timer::Timers;
use crate::trace::Traces;
use crate::work::{Common, Work};

/// The identity of a task in the table. That of a process's first task is the identity of the process.
pub type Tid = Pid;

/// Most processes, including those that have ended and were not waited for.
pub const MAX_PROCESSES: usize = 256;
/// Most processes of a tree that is not charged to a job.
pub const MAX_TREE: usize = 128;
/// Most threads of a process, its first one included.
pub const MAX_THREADS: usize = 128;
/// Most threads of a payer, first threads of processes included.
pub(crate) const MAX_THREADS_EACH: usize = 256;
/// Most memory objects of a payer: as many segments as a tree may have beside those of its processes.
const MAX_OBJECTS: usize = services::process::MAX_OBJECTS;
/// Most watches of all `inotify` instances of a payer.
pub const MAX_MARKS: usize = 1024;
/// How many pipes of a payer are large. Further ones hold only [`crate::process::PIPE_BUF`] bytes.
const LARGE_PIPES: usize = 32;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// The session of processes that the shell starts. Its controlling terminal is the console.
pub(crate) const CONSOLE_SESSION: u32 = 1;
/// The first process number. 1 is what `getppid` returns to a process without a parent.
const FIRST_PID: Pid = 2;
/// The last process number.
const LAST_PID: Pid = 30_000;

/// What a call can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The console has input, or room for output.
    Console,
    /// Something has changed in this pipe.
    Pipe(u64),
    /// This `eventfd` or `timerfd` may be readable or writable.
    Counter(u64),
    /// The mask of this `signalfd` has changed. (For its signals see [`Task::awaits`].)
    Signals(u64),
    /// Something that this instance of `epoll` watches may be ready.
    Epoll(u64),
    /// Something has happened to a file that this instance of `inotify` watches.
    Inotify(u64),
    /// Somebody has opened this FIFO.
    Node(u64),
    /// Something has come to this socket, or it can take something.
    Socket(u64),
    /// There is room in this socket again.
    Room(u64),
    /// A child of this process has ended.
    Children(Pid),
    /// Something has changed in this pseudo-terminal.
    Pty(u64),
    /// A lock on this file has been released.
    Lock(u64),
    /// This memory object has been written back.
    Object(u64),
    /// The System V IPC operation that this task waits for has been decided ([`crate::ipc`]).
    Ipc(Tid),
    /// This process has left the memory that it was started in, by `execve` or at its end.
    Left(Pid),
    /// The network server has answered a question about its card.
    Card,
}

/// The party that processes and other things are charged to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payer {
    /// Nobody: nothing is counted.
    #[default]
    Nobody,
    /// A job.
    Job(Pid),
    /// The tree of this process.
    Tree(Pid),
}

impl Payer {
    fn most(self) -> usize {
        match self {
            Payer::Job(_) => MAX_JOB,
            Payer::Tree(_) | Payer::Nobody => MAX_TREE,
        }
    }
}

/// A kind of thing that is charged to a payer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// A pipe.
    Pipe,
    /// A descriptor that an instance of `epoll` watches.
    Watch,
    /// A socket.
    Socket,
    /// A descriptor on its way in a message.
    Right,
    /// A FIFO or the name of a socket in the file system.
    Node,
    /// A memory object.
    Object,
    /// A lock on a file.
    Lock,
    /// A pseudo-terminal.
    Pty,
    /// A socket of the network server that a Linux socket uses.
    Outside,
    /// An instance of `inotify`.
    Inotify,
    /// A watch of an `inotify` instance.
    Mark,
    /// The directory and name of an open file, kept for `inotify` instances that watch the directory.
    Place,
    /// A set of semaphores.
    Set,
    /// A queue of messages.
    Queue,
    /// What the end of a process does to a semaphore (`SEM_UNDO`).
    Undo,
}

impl Thing {
    /// Most for one payer, and most for all together.
    const fn most(self) -> (usize, usize) {
        match self {
            Thing::Pipe => (256, 1024),
            Thing::Watch | Thing::Place => (2048, 8192),
            Thing::Inotify => (128, 512),
            Thing::Mark => (MAX_MARKS, 4 * MAX_MARKS),
            Thing::Socket | Thing::Right | Thing::Node => (256, 1024),
            Thing::Lock => (MAX_LOCKS, 4 * MAX_LOCKS),
            Thing::Pty | Thing::Set => (64, 256),
            // The network server has 384 sockets in all: the others are for native programs.
            Thing::Outside => (96, 256),
            Thing::Queue => (32, 128),
            Thing::Undo => (1024, 4096),
            Thing::Object => (MAX_OBJECTS, 4 * MAX_OBJECTS),
        }
    }

    /// Most for one payer.
    pub(crate) const fn most_of_one(self) -> usize {
        self.most().0
    }

    /// Most for all payers together.
    pub(crate) const fn most_of_all(self) -> usize {
        self.most().1
    }
}

/// Whether a payer may have `own` of something while all payers together have `all`, if one may have `each` and all
/// `most`. A payer may have at most one more than it leaves to others: if one takes all that it can, the next still
/// finds half of what that one found.
const fn is_share((own, all): (usize, usize), (each, most): (usize, usize)) -> bool {
    own <= each && all <= most && own <= most - all + 1
}

/// A process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its number, as programs see it.
    pub number: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// Users and groups.
    pub ids: Ids,
    /// When it started, on its own clock.
    pub started: u64,
    /// The limits that it has set with `setrlimit`: soft and hard.
    pub limits: BTreeMap<u32, (u64, u64)>,
    /// For the root of a tree: the settings of the tree's console ([`System::console_settings`]).
    pub termios: Option<Vec<u8>>,
    /// What other processes can see of it.
    #[serde(skip)]
    pub seen: Seen,
    /// What other processes can see of its tasks. The first task stays here after it has ended.
    #[serde(skip)]
    pub shown: SmallVec<[(Tid, Rc<Shown>); 1]>,
    /// Its controlling terminal, if that is a pseudo-terminal: number and identity.
    #[serde(skip)]
    pub terminal: Option<(u32, u64)>,
    /// The value that it has set with `personality`.
    pub persona: u32,
    /// Settings of `prctl` and `setpriority`.
    pub chosen: Chosen,
    /// Capabilities dropped from its bounding set. They are only reported, for no program gets any by `execve`.
    pub dropped: u64,
    /// Its timers.
    pub timers: Timers,
    /// Processor time of its tasks.
    pub spent: Common,
    /// Processor time, in nanoseconds, of children that it has waited for, and of theirs.
    pub spent_by_children: u64,
    /// Numbers of calls that were refused and reported.
    pub reported: BTreeSet<u64>,
    /// Whether it has called `execve`.
    pub executed: bool,
    /// What the process has told the starter of its tree. It is in no image: whoever restores a process has not started it.
    #[serde(skip)]
    pub said: Said,
    /// The namespace of its number; 0 nearly always.
    #[serde(skip)]
    pub namespace: u32,
    /// The root of its tree: the process that no other Linux process has started.
    #[serde(skip)]
    pub root: Pid,
    /// The payer that it is charged to.
    #[serde(skip)]
    pub payer: Payer,
    /// Its parent, if that still lives.
    #[serde(skip)]
    pub parent: Option<Pid>,
    /// The signal that the parent gets at its end.
    #[serde(skip)]
    pub exit_signal: u32,
    /// Its living children.
    #[serde(skip)]
    pub children: BTreeSet<Pid>,
    /// Its children that have ended and were not waited for.
    #[serde(skip)]
    pub ended: BTreeSet<Pid>,
    /// How it has ended, if it has.
    #[serde(skip)]
    pub status: Option<Status>,
    /// Whether its parent waits until it has left the memory that they share (`vfork`).
    #[serde(skip)]
    pub borrows: bool,
    /// Its actions of signals.
    #[serde(skip)]
    pub actions: Shared<Actions>,
    /// Signals that were sent to the process, for any of its tasks.
    pub pending: Pending,
    /// The signal that has stopped it.
    #[serde(skip)]
    pub stopped: Option<u32>,
    /// A stop or continuation that its parent has not been told of yet.
    #[serde(skip)]
    pub news: Option<News>,
    /// Its living tasks.
    #[serde(skip)]
    pub tasks: BTreeSet<Tid>,
}

/// What the first program of a tree tells the native program that started it, which alone can read it. Children of that
/// program cannot write it, nor can a program that it executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    bytes: Vec<u8>,
    /// Whether the process may say something.
    is_open: bool,
}

impl Said {
    /// Lets the process write.
    pub fn begin(&mut self) {
        self.is_open = true;
    }

    /// Ends that for good.
    pub fn end(&mut self) {
        self.is_open = false;
    }

    /// Everything that was written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Checks that the process may write so many bytes more. If they are too many it can write nothing more at all,
    /// because the reader would take a part for the whole. Errors: `EACCES`, `ENOSPC`.
    pub fn makes_room(&mut self, length: u64) -> Result<(), Errno> {
        if !self.is_open {
            return Err(EACCES);
        }
        let left = MAX_SAID.saturating_sub(self.bytes.len());
        if length > left as u64 {
            self.end();
            return Err(ENOSPC);
        }
        Ok(())
    }

    /// Adds these bytes, for which there is room ([`Said::makes_room`]).
    pub fn say(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.bytes
            .try_reserve_exact(bytes.len())
            .map_err(|_| ENOMEM)?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// What a process chooses for itself, by `prctl` and `setpriority`. An image has it as one number. That number was once
/// the death signal alone: the bits above are 0 in such images, which are still read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub struct Chosen {
    /// The signal that it gets when its parent ends (`PR_SET_PDEATHSIG`); 0 for none.
    pub death_signal: u32,
    /// Its nice value. It has no effect: all programs have one priority.
    pub nice: i8,
    /// Whether orphaned descendants become its children (`PR_SET_CHILD_SUBREAPER`).
    pub adopts: bool,
    /// Whether `execve` gives it and its descendants no more rights (`PR_SET_NO_NEW_PRIVS`). Only reported, for it
    /// never does.
    pub gains_nothing: bool,
    /// How much sooner than others it would be killed for lack of memory (`oom_score_adj`), from -1000 to 1000. Only
    /// reported, for no process ever is.
    pub kill_score: i16,
}

impl Chosen {
    const NICE: u32 = 8;
    const ADOPTS: u32 = 1 << 16;
    const GAINS_NOTHING: u32 = 1 << 17;
    /// Lowest of eleven bits, the highest of which is the sign.
    const KILL_SCORE: u32 = 18;
    const END: u32 = 1 << 29;

    /// Whether settings from an image are possible.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.death_signal <= crate::signal::SIGNALS
            && (-20..=19).contains(&self.nice)
            && Self::KILL_SCORES.contains(&self.kill_score)
    }

    /// The values that `kill_score` can have.
    pub const KILL_SCORES: core::ops::RangeInclusive<i16> = -1000..=1000;
}

impl From<u32> for Chosen {
    fn from(word: u32) -> Self {
        match word < Self::END {
            true => Chosen {
                death_signal: word & 0xff,
                nice: (word >> Self::NICE) as u8 as i8,
                adopts: word & Self::ADOPTS != 0,
                gains_nothing: word & Self::GAINS_NOTHING != 0,
                kill_score: ((word << 3) as i32 >> 21) as i16,
            },
            // An impossible number is kept where `is_sound` finds it.
            false => Chosen {
                death_signal: word,
                ..Chosen::default()
            },
        }
    }
}

impl From<Chosen> for u32 {
    fn from(chosen: Chosen) -> u32 {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        chosen.death_signal
            | u32::from(chosen.nice as u8) << Chosen::NICE
            | flag(chosen.adopts, Chosen::ADOPTS)
            | flag(chosen.gains_nothing, Chosen::GAINS_NOTHING)
            | (chosen.kill_score as u32 & 0x7ff) << Chosen::KILL_SCORE
    }
}

impl Process {
    /// What other processes can see of one of its tasks.
    #[must_use]
    pub fn shown(&self, tid: Tid) -> Option<&Shown> {
        let found = self.shown.iter().find(|(of, _)| *of == tid);
        found.map(|(_, shown)| &**shown)
    }

    /// A resource limit, soft and hard.
    #[must_use]
    pub fn limit(&self, which: u32) -> (u64, u64) {
        let preset = match which {
            linux::RLIMIT_NICE => (0, 0),
            linux::RLIMIT_STACK => (STACK_SIZE, u64::MAX),
            linux::RLIMIT_CORE => (0, u64::MAX),
            linux::RLIMIT_NOFILE => (u64::from(MAX_FDS), u64::from(MAX_FDS)),
            _ => (u64::MAX, u64::MAX),
        };
        self.limits.get(&which).copied().unwrap_or(preset)
    }

    /// Whether limits from an image are possible.
    #[must_use]
    pub fn has_sound_limits(&self) -> bool {
        let is_sound = |(which, (soft, hard)): (&u32, &(u64, u64))| {
            *which < linux::RLIM_NLIMITS && soft <= hard
        };
        self.limits.iter().all(is_sound)
    }

    /// Whether a process with these IDs may send this one signals.
    fn may_be_signalled_by(&self, ids: &Ids) -> bool {
        let target = [self.ids.uid[0], self.ids.uid[2]];
        ids.uid[1] == 0 || target.contains(&ids.uid[0]) || target.contains(&ids.uid[1])
    }
}

/// A process of a tree that is being restored.
#[derive(Debug)]
pub struct Again {
    /// What an image has of it.
    pub process: Process,
    /// The index of its parent in the list.
    pub parent: Option<u32>,
    /// The numbers of its further tasks as programs see them.
    pub threads: Vec<u32>,
    /// Whether its first task still lives.
    pub has_first: bool,
}

/// The receiver of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Any task of this process.
    Process(Pid),
    /// This task.
    Task(Tid),
}

/// The processes that a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All that the call can be about.
    All,
    /// The process with this number.
    Number(u32),
    /// The processes of this group.
    Group(u32),
}

impl Which {
    /// Whether this process is meant.
    #[must_use]
    pub const fn is(self, process: &Process) -> bool {
        match self {
            Which::All => true,
            Which::Number(number) => process.number == number,
            Which::Group(group) => process.group == group,
        }
    }
}

/// The table of processes.
#[derive(Debug, Default)]
pub struct System {
    processes: BTreeMap<Pid, Process>,
    /// What [`System::process`] returns for a process that does not exist.
    nobody: Process,
    /// Tasks by namespace and number.
    numbers: BTreeMap<(u32, u32), Tid>,
    /// The tasks that are not the first of their process: the process, and the number as programs see it.
    threads: BTreeMap<Tid, (Pid, u32)>,
    /// The tasks in `threads`, counted by payer.
    threads_counted: BTreeMap<Payer, usize>,
    /// Accounting of the processor time of running tasks.
    pub work: Work,
    /// Tasks that wait at futexes.
    pub futexes: Futexes,
    /// Namespace, group and identity of every process.
    groups: BTreeSet<(u32, u32, Pid)>,
    /// Root and identity of every process.
    trees: BTreeSet<(Pid, Pid)>,
    counted: BTreeMap<Payer, usize>,
    last: Pid,
    /// The last identity that was given to a thing.
    last_identity: u64,
    /// Number of things by payer.
    things: BTreeMap<(Thing, Payer), usize>,
    /// Number of things of all payers.
    all_things: BTreeMap<Thing, usize>,
    /// All instances of `epoll`.
    pub epolls: Epolls,
    /// All instances of `inotify`.
    pub inotify: Inotifies,
    /// FIFOs and names of sockets in the file system.
    pub nodes: Nodes,
    /// The random bytes that identify this boot, once a program has asked for them.
    pub boot: Option<[u8; 16]>,
    /// All sockets.
    pub sockets: Sockets,
    /// Sockets that reach other machines.
    pub outside: Outside,
    /// All pseudo-terminals.
    pub ptys: Ptys,
    /// Tasks that are traced.
    pub traces: Traces,
    /// All locks on files.
    pub locks: Locks,
    /// All memory objects.
    pub objects: Objects,
    /// Files that are executed or open.
    pub busy: Busy,
    /// System V IPC.
    pub ipcs: Ipcs,
    /// Open files of `memfd_create`, by inode.
    pub memfds: BTreeMap<u64, Memfd>,
    /// Descriptions of descriptors that were closed, or were on their way to closed sockets, and that are still to be
    /// released.
    pub(crate) dropped: Vec<Shared<Description>>,
    woken: Vec<(Key, u32)>,
    sent: Vec<(To, u32, Origin)>,
    gone: Vec<Pid>,
    timers: Vec<Pid>,
    /// Whether any process has ever set a limit.
    pub(crate) has_limits: bool,
    /// Processes that a signal has stopped, to be taken.
    pub(crate) halts: Vec<Pid>,
    /// The foreground groups of the console, by the roots of their trees.
    pub(crate) foregrounds: BTreeMap<Pid, u32>,
    /// The buffer of [`System::take_chunk`], while no call has it.
    chunk: Vec<u8>,
}

/// Capacity, in entries, up to which the memory of [`System::take_woken`] is kept.
const KEPT_WOKEN: usize = 64;

impl System {
    /// A buffer of [`MAX_BULK`] bytes. It still holds bytes of earlier calls of any program, so a call may hand out
    /// only what it has put there itself. Give it back with [`System::give_chunk`]; otherwise the next call allocates a
    /// new one.
    pub(crate) fn take_chunk(&mut self) -> Vec<u8> {
        match take(&mut self.chunk) {
            chunk if chunk.is_empty() => alloc::vec![0; MAX_BULK],
            chunk => chunk,
        }
    }

    /// Keeps the buffer of [`System::take_chunk`] for the next call.
    pub(crate) fn give_chunk(&mut self, chunk: Vec<u8>) {
        self.chunk = chunk;
    }

    /// A table without processes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The process with this identity. If there is none, an empty one whose changes are lost.
    pub fn process(&mut self, pid: Pid) -> &mut Process {
        match self.processes.get_mut(&pid) {
            Some(process) => process,
            None => {
                self.nobody = Process::default();
                &mut self.nobody
            }
        }
    }

    /// The process with this identity, if there is one.
    #[must_use]
    pub fn find(&self, pid: Pid) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// How many processes there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.processes.len()
    }

    /// How many processes are charged to this payer.
    #[must_use]
    pub fn counted(&self, payer: Payer) -> usize {
        self.counted.get(&payer).copied().unwrap_or(0)
    }

    /// How many more processes may be charged to this payer.
    #[must_use]
    pub fn left(&self, payer: Payer) -> usize {
        let (own, all) = (self.counted(payer), self.processes.len());
        let is_left = |n: &usize| is_share((own + n, all + n), (payer.most(), MAX_PROCESSES));
        (1..=MAX_PROCESSES).take_while(is_left).count()
    }

    /// Makes a process without a parent, charged to this job or as a tree of its own. Errors: `EAGAIN` if there are too
    /// many.
    pub fn create(&mut self, payer: Option<Pid>) -> Result<Pid, Errno> {
        let pid = self.free_pid(payer.map(Payer::Job), 0)?;
        self.insert(
            pid,
            Process {
                root: pid,
                payer: payer.map_or(Payer::Tree(pid), Payer::Job),
                group: pid,
                session: CONSOLE_SESSION,
                ..Process::default()
            },
        );
        Ok(pid)
    }

    /// Makes a child: a copy of its parent, except for what each process has for itself. Errors: `EAGAIN` if there are
    /// too many.
    pub fn fork(&mut self, parent: Pid, exit_signal: u32) -> Result<Pid, Errno> {
        let of = self.process(parent);
        let (payer, namespace) = (of.payer, of.namespace);
        let pid = self.free_pid(Some(payer), namespace)?;
        let of = self.process(parent);
        let chosen = Chosen {
            nice: of.chosen.nice,
            gains_nothing: of.chosen.gains_nothing,
            kill_score: of.chosen.kill_score,
            ..Chosen::default()
        };
        let child = Process {
            parent: Some(parent),
            exit_signal,
            executed: false,
            said: Said::default(),
            timers: Timers::default(),
            spent: Common::default(),
            spent_by_children: 0,
            chosen,
            reported: BTreeSet::new(),
            children: BTreeSet::new(),
            ended: BTreeSet::new(),
            status: None,
            borrows: false,
            pending: Pending::default(),
            stopped: None,
            news: None,
            tasks: BTreeSet::new(),
            shown: SmallVec::new(),
            ..of.clone()
        };
        of.children.insert(pid);
        if child.limits.contains_key(&linux::RLIMIT_CPU) {
            self.timers.push(pid);
        }
        self.insert(pid, child);
        Ok(pid)
    }

    fn free_pid(&mut self, payer: Option<Payer>, namespace: u32) -> Result<Pid, Errno> {
        let is_full = match payer {
            Some(payer) => self.left(payer) == 0,
            None => self.processes.len() >= MAX_PROCESSES,
        };
        if is_full {
            return Err(EAGAIN);
        }
        Ok(self.free_number(namespace))
    }

    /// An unused identity whose number is free in this namespace. The loop ends because there are more numbers than
    /// tasks.
    fn free_number(&mut self, namespace: u32) -> Tid {
        loop {
            self.last = match self.last {
                FIRST_PID..LAST_PID => self.last + 1,
                _ => FIRST_PID,
            };
            let pid = self.last;
            let is_number = |namespace| {
                self.numbers.contains_key(&(namespace, pid)) || self.is_group(namespace, pid)
            };
            let is_root = self
                .trees
                .range((pid, 0)..=(pid, Pid::MAX))
                .next()
                .is_some();
            let is_used = is_root || is_number(0) || is_number(namespace);
            let is_task = self.processes.contains_key(&pid) || self.threads.contains_key(&pid);
            if !is_task && !is_used {
                return pid;
            }
        }
    }

    fn is_group(&self, namespace: u32, group: u32) -> bool {
        let all = (namespace, group, 0)..=(namespace, group, Pid::MAX);
        self.groups.range(all).next().is_some()
    }

    fn insert(&mut self, pid: Pid, mut process: Process) {
        process.number = pid;
        process.tasks.insert(pid);
        *self.counted.entry(process.payer).or_default() += 1;
        self.numbers.insert((process.namespace, pid), pid);
        self.groups.insert((process.namespace, process.group, pid));
        self.trees.insert((process.root, pid));
        self.processes.insert(pid, process);
    }

    /// Puts a restored tree in the place of process `root`; each process of `tree` follows its parent. They get their
    /// old numbers if all of these are free, and otherwise a namespace of their own. Returns the identities of the
    /// processes, each with those of its further tasks. Errors: `EAGAIN` if there are too many; nothing has changed
    /// then.
    pub fn restore(
        &mut self,
        root: Pid,
        tree: Vec<Again>,
        foreground: Option<u32>,
    ) -> Result<Vec<(Pid, Vec<Tid>)>, Errno> {
        let payer = self.find(root).ok_or(ESRCH)?.payer;
        let threads = tree.iter().map(|one| one.threads.len()).sum::<usize>();
        let further = tree.len().saturating_sub(1);
        let each = self.threads_counted.get(&payer).copied().unwrap_or(0);
        let processes = self.counted(payer) + further;
        let all = self.processes.len() + further;
        if !is_share((processes, all), (payer.most(), MAX_PROCESSES))
            || each + threads + processes > MAX_THREADS_EACH
        {
            return Err(EAGAIN);
        }
        self.has_limits |= tree.iter().any(|one| !one.process.limits.is_empty());
        self.forget(root);
        let is_taken = |number: u32| {
            number == root
                || self.numbers.contains_key(&(0, number))
                || self.processes.contains_key(&number)
                || self.threads.contains_key(&number)
        };
        let taken = tree.iter().enumerate().any(|(n, one)| {
            // The root is in the table already, perhaps under its old number.
            let own = one.process.number;
            (n > 0 || own != root) && is_taken(own)
                || one.threads.iter().any(|number| is_taken(*number))
                || self.is_group(0, one.process.group)
        });
        let namespace = if taken { root } else { 0 };
        let mut made: Vec<(Pid, Vec<Tid>)> = Vec::new();
        let mut further = Vec::new();
        for (n, one) in tree.into_iter().enumerate() {
            let number = one.process.number;
            let pid = match n {
                0 => root,
                _ if namespace == 0 => number,
                _ => self.free_number(namespace),
            };
            let parent = one.parent.and_then(|n| made.get(n as usize));
            let parent = parent.map(|(pid, _)| *pid);
            let (has_ended, group) = (one.process.status.is_some(), one.process.group);
            self.insert(
                pid,
                Process {
                    namespace,
                    root,
                    payer,
                    parent,
                    children: BTreeSet::new(),
                    ended: BTreeSet::new(),
                    tasks: BTreeSet::new(),
                    ..one.process
                },
            );
            self.numbers.remove(&(namespace, pid));
            self.numbers.insert((namespace, number), pid);
            self.groups.insert((namespace, group, pid));
            self.process(pid).number = number;
            if has_ended || !one.has_first {
                self.process(pid).tasks.clear();
            }
            if let Some(parent) = parent.map(|parent| self.process(parent)) {
                match has_ended {
                    true => parent.ended.insert(pid),
                    false => parent.children.insert(pid),
                };
            }
            made.push((pid, Vec::new()));
            further.push(one.threads);
        }
        // All processes must have their numbers before threads get some.
        for ((pid, tids), numbers) in made.iter_mut().zip(further) {
            for number in numbers {
                tids.push(self.add_thread(*pid, Some(number)));
            }
        }
        if let Some(group) = foreground {
            self.foregrounds.insert(root, group);
        }
        Ok(made)
    }

    /// Removes a process from the table.
    pub fn forget(&mut self, pid: Pid) -> Option<Process> {
        let process = self.processes.remove(&pid)?;
        for tid in process.tasks.iter().chain([&pid]) {
            self.forget_trace(*tid);
        }
        self.end_tracer(pid);
        self.numbers.remove(&(process.namespace, process.number));
        for tid in &process.tasks {
            if let Some((_, number)) = self.threads.remove(tid) {
                self.numbers.remove(&(process.namespace, number));
                self.uncount_thread(process.payer);
            }
        }
        self.groups.remove(&(process.namespace, process.group, pid));
        self.trees.remove(&(process.root, pid));
        if self.tree(process.root).is_empty() {
            self.foregrounds.remove(&process.root);
            self.end_ipc(process.root);
        }
        if let Some(count) = self.counted.get_mut(&process.payer) {
            *count -= 1;
            if *count == 0 {
                self.counted.remove(&process.payer);
            }
        }
        if let Some(parent) = process.parent.and_then(|p| self.processes.get_mut(&p)) {
            parent.children.remove(&pid);
            parent.ended.remove(&pid);
        }
        Some(process)
    }

    // --- Threads ---

    /// Adds a task to a process, and returns its identity. Errors: `EAGAIN` if there are too many.
    pub fn new_thread(&mut self, pid: Pid) -> Result<Tid, Errno> {
        let of = self.find(pid).ok_or(ESRCH)?;
        let payer = of.payer;
        let each = self.threads_counted.get(&payer).copied().unwrap_or(0);
        if of.tasks.len() >= MAX_THREADS || each + self.counted(payer) >= MAX_THREADS_EACH {
            return Err(EAGAIN);
        }
        Ok(self.add_thread(pid, None))
    }

    fn add_thread(&mut self, pid: Pid, number: Option<u32>) -> Tid {
        let of = self.process(pid);
        let (payer, namespace) = (of.payer, of.namespace);
        let is_free = |number: &u32| {
            namespace == 0
                && !self.processes.contains_key(number)
                && !self.threads.contains_key(number)
        };
        // If possible the identity is the number that programs see.
        let tid = match number.filter(is_free) {
            Some(number) => number,
            None => self.free_number(namespace),
        };
        let number = number.unwrap_or(tid);
        *self.threads_counted.entry(payer).or_default() += 1;
        self.numbers.insert((namespace, number), tid);
        self.threads.insert(tid, (pid, number));
        self.process(pid).tasks.insert(tid);
        tid
    }

    fn uncount_thread(&mut self, payer: Payer) {
        if let Some(count) = self.threads_counted.get_mut(&payer) {
            *count -= 1;
            if *count == 0 {
                self.threads_counted.remove(&payer);
            }
        }
    }

    /// Removes a task that has ended. The number of a first task stays in use for its process.
    pub fn forget_thread(&mut self, pid: Pid, tid: Tid) {
        self.leave_queues(tid);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.tasks.remove(&tid);
        if tid != pid {
            process.shown.retain(|(of, _)| *of != tid);
        }
        let (namespace, payer) = (process.namespace, process.payer);
        let status = process.status.unwrap_or(Status::Exited(0));
        self.end_trace(tid, status, None);
        if let Some((_, number)) = self.threads.remove(&tid) {
            self.numbers.remove(&(namespace, number));
            self.uncount_thread(payer);
        }
    }

    /// Lets a task take the place of the first task of its process, as the only one.
    pub fn becomes_first(&mut self, pid: Pid, tid: Tid) {
        self.forget_thread(pid, tid);
        self.process(pid).tasks = BTreeSet::from([pid]);
    }

    /// Takes a task out of all queues: of futexes, locks, System V IPC and opened FIFOs.
    pub fn leave_queues(&mut self, tid: Tid) {
        self.futexes.leave(tid);
        self.locks.leave(tid);
        self.leave_ipc(tid);
        if let Some((id, end, pipe)) = self.nodes.leave(tid) {
            self.close_end(id, end, &pipe);
        }
    }

    // --- Numbers as programs see them ---

    /// The process with this number, as `of` sees it.
    #[must_use]
    pub fn by_number(&self, of: Pid, number: u32) -> Option<Pid> {
        self.by_number_in(self.find(of)?.namespace, number)
    }

    /// The process with this number in a namespace.
    #[must_use]
    pub fn by_number_in(&self, namespace: u32, number: u32) -> Option<Pid> {
        let pid = self.numbers.get(&(namespace, number)).copied()?;
        self.processes.contains_key(&pid).then_some(pid)
    }

    /// Sends a signal to all processes of a group in this tree. Another tree may have a group with the same number.
    pub fn signal_group(&mut self, root: Pid, namespace: u32, group: u32, signal: u32) {
        let all = (namespace, group, 0)..=(namespace, group, Pid::MAX);
        let members: Vec<Pid> = self.groups.range(all).map(|(.., pid)| *pid).collect();
        for pid in members {
            if self.find(pid).is_some_and(|process| process.root == root) {
                self.send(To::Process(pid), signal, Origin::kernel());
            }
        }
    }

    /// The task with this number, as `of` sees it, with its process.
    #[must_use]
    pub fn thread_by_number(&self, of: Pid, number: u32) -> Option<(Tid, Pid)> {
        let namespace = self.find(of)?.namespace;
        let tid = self.numbers.get(&(namespace, number)).copied()?;
        let pid = self.threads.get(&tid).map_or(tid, |(pid, _)| *pid);
        self.find(pid)?.tasks.contains(&tid).then_some((tid, pid))
    }

    /// The process of a task.
    #[must_use]
    pub fn task_process(&self, tid: Tid) -> Pid {
        self.threads.get(&tid).map_or(tid, |(pid, _)| *pid)
    }

    /// The number of a process's parent; 1 if it has none.
    #[must_use]
    pub fn parent_number(&self, pid: Pid) -> u32 {
        let parent = self.find(pid).and_then(|p| p.parent);
        parent.and_then(|p| self.find(p)).map_or(1, |p| p.number)
    }

    /// The number of a task as programs see it.
    #[must_use]
    pub fn thread_number(&self, tid: Tid) -> Option<u32> {
        let further = self.threads.get(&tid).map(|(_, number)| *number);
        further.or_else(|| Some(self.find(tid)?.number))
    }

    /// The processes that `of` means by `which`. Members of a group are of its own tree: groups of two trees can have
    /// one number, since restored processes keep their numbers.
    pub fn those(&self, of: Pid, which: Which) -> SmallVec<[Pid; 1]> {
        let Some(own) = self.find(of) else {
            return SmallVec::new();
        };
        match which {
            Which::Number(number) => {
                let pid = self.thread_by_number(of, number).map(|(_, pid)| pid);
                pid.or_else(|| self.by_number(of, number))
                    .into_iter()
                    .collect()
            }
            Which::Group(group) => {
                let all = (own.namespace, group, 0)..=(own.namespace, group, Pid::MAX);
                let members = self.groups.range(all).map(|(.., pid)| *pid);
                let is_of_tree = |pid: &Pid| self.find(*pid).is_some_and(|p| p.root == own.root);
                members.filter(is_of_tree).collect()
            }
            Which::All => self.tree(own.root).into(),
        }
    }

    /// The processes of a tree.
    #[must_use]
    pub fn tree(&self, root: Pid) -> Vec<Pid> {
        let all = self.trees.range((root, 0)..=(root, Pid::MAX));
        all.map(|(_, pid)| *pid).collect()
    }

    /// `setpgid`: puts `pid`, which is `of` or a child of it, into a group of its session or into a new one.
    pub fn set_group(&mut self, of: Pid, pid: Pid, group: u32) -> Result<(), Errno> {
        let (namespace, session) = match self.find(of) {
            Some(own) => (own.namespace, own.session),
            None => return Err(ESRCH),
        };
        // All trees share the console's session, so a group of another tree must not count as existing.
        let target = self.find(pid).ok_or(ESRCH)?;
        if pid != of && target.parent != Some(of) {
            return Err(ESRCH);
        }
        if pid != of && target.executed {
            return Err(crate::errno::EACCES);
        }
        if target.session == target.number || target.session != session {
            return Err(EPERM);
        }
        let members = (namespace, group, 0)..=(namespace, group, Pid::MAX);
        let exists = self.groups.range(members).any(|(.., member)| {
            self.find(*member)
                .is_some_and(|member| member.session == session && member.root == target.root)
        });
        if group != target.number && !exists {
            return Err(EPERM);
        }
        self.move_to_group(pid, group);
        Ok(())
    }

    fn move_to_group(&mut self, pid: Pid, group: u32) {
        let process = self.process(pid);
        let (namespace, old) = (
            process.namespace,
            core::mem::replace(&mut process.group, group),
        );
        self.groups.remove(&(namespace, old, pid));
        self.groups.insert((namespace, group, pid));
    }

    /// `setsid`: makes a new session with one group. Returns its number.
    pub fn new_session(&mut self, pid: Pid) -> Result<u32, Errno> {
        let (namespace, number) = match self.find(pid) {
            Some(process) => (process.namespace, process.number),
            None => return Err(ESRCH),
        };
        if self.is_group(namespace, number) {
            return Err(EPERM);
        }
        self.move_to_group(pid, number);
        self.process(pid).session = number;
        self.process(pid).terminal = None;
        Ok(number)
    }

    // --- Signals, and waiting ---

    /// Whether a process may send another one signals: only within its tree, and as its IDs allow.
    pub fn may_signal(&self, from: Pid, to: Pid) -> Result<(), Errno> {
        let (from, to) = (self.find(from).ok_or(ESRCH)?, self.find(to).ok_or(ESRCH)?);
        let allowed = from.root == to.root && to.may_be_signalled_by(&from.ids);
        allowed.then_some(()).ok_or(EPERM)
    }

    /// Whether a process may trace another one: only within its tree, and if it is root or has the same IDs.
    pub fn may_trace(&self, from: Pid, to: Pid) -> Result<(), Errno> {
        let (from, to) = (self.find(from).ok_or(ESRCH)?, self.find(to).ok_or(ESRCH)?);
        let (ids, target) = (&from.ids, &to.ids);
        let same = target.uid.iter().all(|uid| *uid == ids.uid[0])
            && target.gid.iter().all(|gid| *gid == ids.gid[0]);
        let allowed = from.root == to.root && (ids.uid[1] == 0 || same);
        allowed.then_some(()).ok_or(EPERM)
    }

    /// Sends a signal to be taken by [`System::take_sent`]; 0 does nothing.
    pub fn send(&mut self, to: To, signal: u32, origin: Origin) {
        let lives = match to {
            To::Process(pid) => self.find(pid).is_some_and(|p| p.status.is_none()),
            To::Task(_) => true,
        };
        if signal != 0 && lives {
            self.sent.push((to, signal, origin));
        }
    }

    /// Takes the signals that were sent.
    pub fn take_sent(&mut self) -> Vec<(To, u32, Origin)> {
        take(&mut self.sent)
    }

    /// Wakes the calls that wait for this key.
    pub fn wake(&mut self, key: Key) {
        self.wake_for(key, ALL);
    }

    /// Wakes the calls that wait for this key because it may be ready for these events. Watchers of other events are
    /// not woken.
    pub fn wake_for(&mut self, key: Key, events: u32) {
        match self.woken.last_mut() {
            Some((last, its)) if *last == key => *its |= events,
            _ => self.woken.push((key, events)),
        }
        self.epolls.happened(key, events, &mut self.woken);
    }

    /// Takes the keys that were woken, with their events. Give the memory back with [`System::give_woken`].
    pub fn take_woken(&mut self) -> Vec<(Key, u32)> {
        take(&mut self.woken)
    }

    /// Keeps the memory of a list from [`System::take_woken`], if it is small and no key was woken since.
    pub fn give_woken(&mut self, mut woken: Vec<(Key, u32)>) {
        if self.woken.is_empty() && woken.capacity() <= KEPT_WOKEN {
            woken.clear();
            self.woken = woken;
        }
    }

    /// Takes the processes that have ended and that nobody will wait for.
    pub fn take_gone(&mut self) -> Vec<Pid> {
        take(&mut self.gone)
    }

    /// Notes that a task runs, or that it waits (not `runs`). `now` is called only if that is a change.
    pub fn task_runs(&mut self, task: &mut Task, runs: bool, now: impl FnOnce() -> u64) {
        let (processes, pid) = (&self.processes, task.pid);
        let common = || {
            let process = processes.get(&pid);
            process.map_or_else(Common::default, |process| process.spent.clone())
        };
        let alone = &task.shown.spent;
        task.own.change(alone, &mut self.work, runs, now, common);
    }

    /// Processor time, in nanoseconds, of a process that has ended and of the children that it has waited for.
    #[must_use]
    pub fn spent_with_children(&self, pid: Pid) -> u64 {
        // None of its tasks runs any more, so the time of a running one does not matter.
        let of = |process: &Process| {
            process
                .spent
                .get()
                .total(0)
                .saturating_add(process.spent_by_children)
        };
        self.find(pid).map_or(0, of)
    }

    /// The timers of a process, to be changed.
    pub fn set_timers(&mut self, pid: Pid) -> &mut Timers {
        self.timers.push(pid);
        &mut self.process(pid).timers
    }

    /// Sets a limit of a process, soft and hard.
    pub fn set_limit(&mut self, pid: Pid, which: u32, limit: (u64, u64)) {
        if which == linux::RLIMIT_CPU {
            self.timers.push(pid);
        }
        self.process(pid).limits.insert(which, limit);
        self.has_limits = true;
    }

    /// Nanoseconds of processor time until a process reaches its next limit; 0 if it has, `None` if it has no limit.
    /// `each` is the processor time of a task that has never waited.
    #[must_use]
    pub fn work_left(&self, pid: Pid, each: u64) -> Option<u64> {
        let process = self.find(pid)?;
        let (soft, hard) = *process.limits.get(&linux::RLIMIT_CPU)?;
        let seconds = soft.min(hard);
        let spent = process.spent.get().total(each);
        (seconds != u64::MAX).then(|| seconds.saturating_mul(SECOND).saturating_sub(spent))
    }

    /// The signal for a process that has reached a limit of processor time, if it has. As on Linux its soft limit is
    /// then one second later.
    pub fn pass_work_limit(&mut self, pid: Pid, each: u64) -> Option<u32> {
        if self.work_left(pid, each) != Some(0) {
            return None;
        }
        let process = self.process(pid);
        let (soft, hard) = process.limits.get_mut(&linux::RLIMIT_CPU)?;
        if process.spent.get().total(each) >= hard.saturating_mul(SECOND) {
            return Some(sig::KILL);
        }
        *soft += 1;
        Some(sig::XCPU)
    }

    /// Takes the processes whose timers were changed.
    pub fn take_timers(&mut self) -> Vec<Pid> {
        take(&mut self.timers)
    }

    /// Whether nothing is to be carried out for other tasks.
    #[must_use]
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.woken.is_empty() && self.is_quiet()
    }

    /// As [`System::is_settled`], but keys may have been woken.
    #[must_use]
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.sent.is_empty()
            && self.gone.is_empty()
            && self.timers.is_empty()
            && self.halts.is_empty()
            && self.outside.is_settled()
            && self.are_traces_settled()
            && !self.futexes.has_granted()
    }

    /// Counts a new thing, and returns how many its payer has. Errors: `ENFILE`.
    pub fn count_thing(&mut self, thing: Thing, payer: Payer) -> Result<usize, Errno> {
        let own = self.things.get(&(thing, payer)).copied().unwrap_or(0) + 1;
        let all = self.all_things.get(&thing).copied().unwrap_or(0) + 1;
        if !is_share((own, all), thing.most()) {
            return Err(ENFILE);
        }
        self.things.insert((thing, payer), own);
        self.all_things.insert(thing, all);
        Ok(own)
    }

    /// How many more of these things a payer may have, given what others have.
    #[must_use]
    pub fn left_things(&self, thing: Thing, payer: Payer) -> usize {
        let own = self.things.get(&(thing, payer)).copied().unwrap_or(0);
        let all = self.all_things.get(&thing).copied().unwrap_or(0);
        let most = thing.most();
        let may = |more: &usize| is_share((own + more, all + more), most);
        (1..=most.0).take_while(may).count()
    }

    /// Whether a payer has as many things as it may have at the most.
    #[must_use]
    pub fn is_full(&self, thing: Thing, payer: Payer) -> bool {
        self.things.get(&(thing, payer)).copied().unwrap_or(0) >= thing.most().0
    }

    /// Charges a thing to another payer. Errors: `ENFILE`; nothing has changed then.
    pub fn move_thing(&mut self, thing: Thing, from: Payer, to: Payer) -> Result<(), Errno> {
        if from == to {
            return Ok(());
        }
        self.uncount_thing(thing, from);
        self.count_thing(thing, to).map(|_| ()).inspect_err(|_| {
            *self.things.entry((thing, from)).or_default() += 1;
            *self.all_things.entry(thing).or_default() += 1;
        })
    }

    /// Uncounts one thing.
    pub fn uncount_thing(&mut self, thing: Thing, payer: Payer) {
        self.uncount_things(thing, 1, payer);
    }

    /// Uncounts this many things.
    pub(crate) fn uncount_things(&mut self, thing: Thing, gone: usize, payer: Payer) {
        if let Some(count) = self.things.get_mut(&(thing, payer)) {
            *count -= gone;
            if *count == 0 {
                self.things.remove(&(thing, payer));
            }
            *self.all_things.entry(thing).or_default() -= gone;
        }
    }

    /// How many of these things all payers have.
    #[cfg(test)]
    pub(crate) fn counted_things(&self, thing: Thing) -> usize {
        let all = self.all_things.get(&thing).copied().unwrap_or(0);
        let each = self.things.iter().filter(|((is, _), _)| *is == thing);
        assert_eq!(all, each.map(|(_, count)| count).sum());
        all
    }

    /// Counts one more description on what another description is open on already.
    pub fn opened_again(&mut self, description: &Description) {
        if let Some(ino) = description.ino() {
            self.busy.shared(ino);
        }
        if let Kind::Pipe { id, end, pipe, .. } = &description.kind {
            pipe.borrow_mut().open(*end);
            self.wake(Key::Pipe(*id));
            if let Some(ino) = description.ino() {
                self.nodes.grant(ino, *end, *id, pipe);
                self.wake(Key::Node(ino));
            }
        }
    }

    /// Uncounts an end of a pipe that was closed.
    pub fn close_end(&mut self, id: u64, end: End, pipe: &Shared<Pipe>) {
        let mut pipe = pipe.borrow_mut();
        pipe.readers -= usize::from(end.reads());
        pipe.writers -= usize::from(end.writes());
        match (pipe.readers, pipe.writers) {
            (0, 0) => self.uncount_thing(Thing::Pipe, pipe.payer),
            (0, _) | (_, 0) => self.wake(Key::Pipe(id)),
            _ => {}
        }
    }

    /// Counts a new pipe. Returns its identity, and whether it may be large. Errors: `ENFILE`.
    pub fn new_pipe(&mut self, payer: Payer) -> Result<(u64, bool), Errno> {
        let count = self.count_thing(Thing::Pipe, payer)?;
        Ok((self.new_identity(), count <= LARGE_PIPES))
    }

    /// An identity that no other thing has had.
    pub fn new_identity(&mut self) -> u64 {
        self.last_identity += 1;
        self.last_identity
    }

    /// Notes that a process has left the memory in which it was started, and wakes its parent.
    pub fn leave_memory(&mut self, pid: Pid) {
        if take(&mut self.process(pid).borrows) {
            self.wake(Key::Left(pid));
        }
    }

    /// The new parent of processes orphaned by a child of this process: the nearest process from `parent` upwards that
    /// adopts.
    fn adopter(&self, parent: Option<Pid>) -> Option<Pid> {
        let above = |pid: &Pid| self.find(*pid)?.parent;
        let adopts = |pid: &Pid| self.find(*pid).is_some_and(|p| p.chosen.adopts);
        core::iter::successors(parent, above).find(adopts)
    }

    /// Makes a process that has ended a zombie of this parent, and tells the parent. If the parent ignores its
    /// children's ends the process is forgotten at once.
    fn tell_parent(&mut self, pid: Pid, parent: Pid, told_by: u32, status: Status) {
        let of = self.process(parent);
        of.children.remove(&pid);
        let forgets = told_by == sig::CHLD && of.actions.borrow().forgets_children();
        if forgets {
            self.process(pid).parent = None;
            self.gone.push(pid);
        } else {
            of.ended.insert(pid);
            self.process(pid).parent = Some(parent);
        }
        let process = self.process(pid);
        let (code, status) = code_and_status(status);
        let origin = Origin {
            code,
            pid: process.number,
            uid: process.ids.uid[0],
            status,
            ..Origin::default()
        };
        self.send(To::Process(parent), told_by, origin);
        self.wake(Key::Children(parent));
    }

    /// Ends a process: its children get another parent or none, and its own parent is told.
    pub fn end(&mut self, pid: Pid, status: Status) {
        self.leave_memory(pid);
        self.leave_terminal(pid);
        let process = self.process(pid);
        process.status = Some(status);
        process.timers = Timers::default();
        process.termios = None;
        (process.stopped, process.news) = (None, None);
        self.leave_tree(pid);
        let process = self.process(pid);
        let (parent, number, uid, signal) = (
            process.parent,
            process.number,
            process.ids.uid[0],
            process.exit_signal,
        );
        self.end_trace(pid, status, parent);
        self.end_tracer(pid);
        let process = self.process(pid);
        let children: Vec<Pid> = take(&mut process.children).into_iter().collect();
        let adopter = self.adopter(parent);
        for child in &children {
            let process = self.process(*child);
            process.parent = adopter;
            if adopter.is_some() {
                process.exit_signal = sig::CHLD;
            }
            if process.chosen.death_signal != 0 {
                let signal = process.chosen.death_signal;
                let origin = Origin {
                    pid: number,
                    uid,
                    ..Origin::default()
                };
                self.send(To::Process(*child), signal, origin);
            }
        }
        if let Some(adopter) = adopter {
            self.process(adopter).children.extend(&children);
        }
        self.leave_stopped(pid, parent, &children);
        for child in take(&mut self.process(pid).ended) {
            let process = self.process(child);
            match (adopter, process.status) {
                (Some(adopter), Some(status)) => {
                    process.exit_signal = sig::CHLD;
                    self.tell_parent(child, adopter, sig::CHLD, status);
                }
                _ => {
                    process.parent = None;
                    self.gone.push(child);
                }
            }
        }
        let Some(parent) = parent else {
            if self.find(pid).is_some_and(|p| p.root != pid) {
                self.gone.push(pid);
            }
            return;
        };
        self.tell_parent(pid, parent, signal, status);
    }

    /// A child of `of` that has ended, of those that `which` means; `None` if none has yet. Errors: `ECHILD` if there
    /// is no such child.
    pub fn ended_child(&self, of: Pid, which: Which) -> Result<Option<Pid>, Errno> {
        let own = self.find(of).ok_or(ECHILD)?;
        let is = |pid: &&Pid| self.find(**pid).is_some_and(|process| which.is(process));
        match own.ended.iter().find(is) {
            Some(child) => Ok(Some(*child)),
            None if own.children.iter().any(|pid| is(&pid)) => Ok(None),
            None => Err(ECHILD),
        }
    }

    /// Forgets a process that its parent has waited for, and adds its processor time to the parent's.
    pub fn reap(&mut self, pid: Pid) {
        let parent = self.process(pid).parent.take();
        if let Some(parent) = parent {
            let spent = self.spent_with_children(pid);
            let of = self.process(parent);
            of.ended.remove(&pid);
            of.spent_by_children = of.spent_by_children.saturating_add(spent);
        }
        self.gone.push(pid);
    }
}

/// Code and status for `siginfo` of a process that has ended.
#[must_use]
pub fn code_and_status(status: Status) -> (i32, u32) {
    use linux_raw_sys::general::{CLD_EXITED, CLD_KILLED};
    match status {
        Status::Killed(signal) => (CLD_KILLED as i32, u32::from(signal)),
        Status::Exited(code) => (CLD_EXITED as i32, u32::from(code)),
        Status::Running | Status::Stopped => (0, 0),
    }
}
