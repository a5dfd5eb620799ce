//! All processes: who is whose child, in which group and session, and how each has ended.
//!
//! A [`Process`] is what its tasks have in common and what others ask of it. The [`System`] is the table of them, and
//! carries what one call does to other processes: it sends signals and wakes those that wait, and whoever runs the
//! processes takes that from it ([`System::take_sent`], [`System::take_woken`], [`System::take_gone`]) and does it. A call that waits names
//! what it waits for by [`Key`]s.
//!
//! Numbers: a process has one number in the table, a [`Pid`], and one as programs see it. They differ only in a process
//! that was restored where its number was taken: it and its descendants are a namespace of their own then.
//!
//! No operation takes longer the more processes there are, but for those that are about several.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::mem::take;
use linux_raw_sys::general as linux;
use proto::MAX_BULK;
use serde::{Deserialize, Serialize};
use services::process::{Pid, Status, MAX_JOB};
use smallvec::SmallVec;

use crate::busy::Busy;
use crate::calls::memfd::Memfd;
use crate::epoll::{Epolls, ALL};
use crate::errno::{Errno, EAGAIN, ECHILD, ENFILE, EPERM, ESRCH};
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

/// The number of a task in the table of all. The first task of a process has the number of the process.
pub type Tid = Pid;

/// Most processes, those that have ended and were not waited for included.
pub const MAX_PROCESSES: usize = 256;
/// Most processes of a tree that counts for no job.
pub const MAX_TREE: usize = 128;
/// Most threads of a process, and most of all that count for one payer, the first ones of processes included.
pub const MAX_THREADS: usize = 128;
/// The latter.
pub(crate) const MAX_THREADS_EACH: usize = 256;
/// Most memory objects of a payer: as many segments a tree may have beside those of its processes.
const MAX_OBJECTS: usize = services::process::MAX_OBJECTS;
/// Most files that a payer's instances of `inotify` watch, each as often as one does.
pub const MAX_MARKS: usize = 1024;
/// A payer's pipes beyond so many hold [`crate::process::PIPE_BUF`] bytes only.
const LARGE_PIPES: usize = 32;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// The session of those that the shell starts: the one that has the console.
pub(crate) const CONSOLE_SESSION: u32 = 1;
/// The first process number. 1 is what `getppid` returns to those without a parent.
const FIRST_PID: Pid = 2;
/// The last one.
const LAST_PID: Pid = 30_000;

/// What a call can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The console has input, or room for output.
    Console,
    /// Something has changed in this pipe.
    Pipe(u64),
    /// Something has been counted, or can be.
    Counter(u64),
    /// These signals are taken as others ([`crate::process::Kind::Signals`]).
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
    /// A lock on this file has gone.
    Lock(u64),
    /// This memory object has been written back.
    Object(u64),
    /// Something has become of what this task waits for ([`crate::ipc`]).
    Ipc(Tid),
    /// This process has left the memory that it was started in, by `execve` or at its end.
    Left(Pid),
    /// The network's server has said what its card is.
    Card,
}

/// For whom processes are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payer {
    /// Nobody: it is not counted.
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

/// What is counted for a payer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// A pipe.
    Pipe,
    /// A descriptor that an instance of `epoll` watches.
    Watch,
    /// A socket.
    Socket,
    /// A descriptor that is on its way.
    Right,
    /// A file that is more than a file.
    Node,
    /// A memory object.
    Object,
    /// A lock on a file.
    Lock,
    /// A pseudo-terminal.
    Pty,
    /// What a socket takes of those of the network's server.
    Outside,
    /// An instance of `inotify`.
    Inotify,
    /// A file that such an instance watches.
    Mark,
    /// The place of an open file, which is kept for those who watch directories.
    Place,
    /// A set of semaphores.
    Set,
    /// A queue of messages.
    Queue,
    /// Something that the end of a process does to a semaphore.
    Undo,
}

impl Thing {
    /// Most for one payer, and most of all.
    const fn most(self) -> (usize, usize) {
        match self {
            Thing::Pipe => (256, 1024),
            Thing::Watch | Thing::Place => (2048, 8192),
            Thing::Inotify => (128, 512),
            Thing::Mark => (MAX_MARKS, 4 * MAX_MARKS),
            Thing::Socket | Thing::Right | Thing::Node => (256, 1024),
            Thing::Lock => (MAX_LOCKS, 4 * MAX_LOCKS),
            Thing::Pty | Thing::Set => (64, 256),
            // It has 384 for all: the others are for native programs.
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

    /// Most of all.
    pub(crate) const fn most_of_all(self) -> usize {
        self.most().1
    }
}

/// Whether a payer may have so many of something, all payers so many, if there may be so many of each and in all. What it has is
/// at most what it leaves to others, and one more: whoever takes all that it can, the next one finds half of what it found.
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
    /// What it set with `setrlimit`: soft and hard.
    pub limits: BTreeMap<u32, (u64, u64)>,
    /// Of the root of a tree: how that has set its console ([`System::console_settings`]).
    pub termios: Option<Vec<u8>>,
    /// What others see of it.
    #[serde(skip)]
    pub seen: Seen,
    /// What others see of its tasks. The first one stays when it has ended.
    #[serde(skip)]
    pub shown: SmallVec<[(Tid, Rc<Shown>); 1]>,
    /// Its terminal, if that is a pseudo-terminal: number and identity.
    #[serde(skip)]
    pub terminal: Option<(u32, u64)>,
    /// What it has set with `personality`.
    pub persona: u32,
    /// What it has chosen for itself.
    pub chosen: Chosen,
    /// Capabilities that no program that it executes is to get: told again, for none gets any.
    pub dropped: u64,
    /// What it has set to happen later.
    pub timers: Timers,
    /// What its tasks have had of the processor.
    pub spent: Common,
    /// What children that it has waited for, and theirs, have had.
    pub spent_by_children: u64,
    /// Calls that were refused and reported.
    pub reported: BTreeSet<u64>,
    /// Whether it has called `execve`.
    pub executed: bool,
    /// Where its number means something; 0 nearly always.
    #[serde(skip)]
    pub namespace: u32,
    /// The process that was not started by another one: the root of the tree that it is in.
    #[serde(skip)]
    pub root: Pid,
    /// For whom it is counted.
    #[serde(skip)]
    pub payer: Payer,
    /// Who started it, if that still lives.
    #[serde(skip)]
    pub parent: Option<Pid>,
    /// The signal that tells its parent of its end.
    #[serde(skip)]
    pub exit_signal: u32,
    /// Its children that live.
    #[serde(skip)]
    pub children: BTreeSet<Pid>,
    /// Its children that have ended and that it has not waited for.
    #[serde(skip)]
    pub ended: BTreeSet<Pid>,
    /// How it has ended.
    #[serde(skip)]
    pub status: Option<Status>,
    /// Its parent waits until it has left the memory that both are in.
    #[serde(skip)]
    pub borrows: bool,
    /// What is done with its signals.
    #[serde(skip)]
    pub actions: Shared<Actions>,
    /// Signals that were sent to it, for any of its tasks.
    pub pending: Pending,
    /// The signal that has stopped it.
    #[serde(skip)]
    pub stopped: Option<u32>,
    /// What its parent has not been told yet.
    #[serde(skip)]
    pub news: Option<News>,
    /// Its tasks that live.
    #[serde(skip)]
    pub tasks: BTreeSet<Tid>,
}

/// What a process chooses for itself, by `prctl` and `setpriority`. An image has it as one number: the signal once had
/// that for itself, so what stands above it is 0 in images of that time, and they are read as ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub struct Chosen {
    /// The signal that it gets when who started it ends (`PR_SET_PDEATHSIG`); 0 for none.
    pub death_signal: u32,
    /// How nice it is. Nothing depends on it: all programs have one priority.
    pub nice: i8,
    /// It is the parent of what its descendants leave behind (`PR_SET_CHILD_SUBREAPER`).
    pub adopts: bool,
    /// Neither it nor its descendants get more rights by `execve` (`PR_SET_NO_NEW_PRIVS`): told again, for nobody does.
    pub gains_nothing: bool,
    /// How much sooner than others it would be ended for want of memory (`oom_score_adj`), from -1000 to 1000: told again,
    /// for nobody is.
    pub kill_score: i16,
}

impl Chosen {
    const NICE: u32 = 8;
    const ADOPTS: u32 = 1 << 16;
    const GAINS_NOTHING: u32 = 1 << 17;
    /// Eleven bits, the highest of which is the sign.
    const KILL_SCORE: u32 = 18;
    const END: u32 = 1 << 29;

    /// Whether one from an image makes sense.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.death_signal <= crate::signal::SIGNALS
            && (-20..=19).contains(&self.nice)
            && Self::KILL_SCORES.contains(&self.kill_score)
    }

    /// What `kill_score` can be.
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
            // It makes no sense, and is to be found out.
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
    /// What others see of one of its tasks.
    #[must_use]
    pub fn shown(&self, tid: Tid) -> Option<&Shown> {
        let found = self.shown.iter().find(|(of, _)| *of == tid);
        found.map(|(_, shown)| &**shown)
    }

    /// A limit of what it may use, soft and hard.
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

    /// Whether limits from a checkpoint make sense.
    #[must_use]
    pub fn has_sound_limits(&self) -> bool {
        let is_sound = |(which, (soft, hard)): (&u32, &(u64, u64))| {
            *which < linux::RLIM_NLIMITS && soft <= hard
        };
        self.limits.iter().all(is_sound)
    }

    /// Whether a process with these users may send this one signals.
    fn may_be_signalled_by(&self, ids: &Ids) -> bool {
        let target = [self.ids.uid[0], self.ids.uid[2]];
        ids.uid[1] == 0 || target.contains(&ids.uid[0]) || target.contains(&ids.uid[1])
    }
}

/// A process of a tree that was restored.
#[derive(Debug)]
pub struct Again {
    /// What an image has of it.
    pub process: Process,
    /// Which of those before it is its parent.
    pub parent: Option<u32>,
    /// The numbers of its further tasks, as programs see them.
    pub threads: Vec<u32>,
    /// Its first task has not ended.
    pub has_first: bool,
}

/// To whom a signal is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To any task of this process.
    Process(Pid),
    /// To this task.
    Task(Tid),
}

/// Which processes a call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All that there can be.
    All,
    /// The one with this number.
    Number(u32),
    /// Those of this group.
    Group(u32),
}

impl Which {
    /// Whether it means this process.
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
    /// What stands for one that is not there.
    nobody: Process,
    /// Tasks by namespace and number.
    numbers: BTreeMap<(u32, u32), Tid>,
    /// The processes of tasks that are not the first ones, and their numbers as programs see them.
    threads: BTreeMap<Tid, (Pid, u32)>,
    /// Threads by who pays for them: those of `threads`.
    threads_counted: BTreeMap<Payer, usize>,
    /// What tasks that do not wait have of the processor.
    pub work: Work,
    /// Who waits at words of memory.
    pub futexes: Futexes,
    /// Namespace, group and process of all.
    groups: BTreeSet<(u32, u32, Pid)>,
    /// Root and process of all.
    trees: BTreeSet<(Pid, Pid)>,
    counted: BTreeMap<Payer, usize>,
    last: Pid,
    /// The last number that tells a thing from others.
    last_identity: u64,
    /// Things that there are, by who pays for them.
    things: BTreeMap<(Thing, Payer), usize>,
    /// All of them.
    all_things: BTreeMap<Thing, usize>,
    /// All instances of `epoll`.
    pub epolls: Epolls,
    /// All instances of `inotify`.
    pub inotify: Inotifies,
    /// Files that are more than files.
    pub nodes: Nodes,
    /// The random bytes that identify this boot, once somebody has asked for them.
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
    /// Files that are executed or written.
    pub busy: Busy,
    /// System V IPC.
    pub ipcs: Ipcs,
    /// Files that `memfd_create` has made, by inode, as long as they are open.
    pub memfds: BTreeMap<u64, Memfd>,
    /// Descriptions that were on their way to sockets that are gone.
    pub(crate) dropped: Vec<Shared<Description>>,
    woken: Vec<(Key, u32)>,
    sent: Vec<(To, u32, Origin)>,
    gone: Vec<Pid>,
    timers: Vec<Pid>,
    /// Some process has had a limit that it has set.
    pub(crate) has_limits: bool,
    /// Processes that were stopped since.
    pub(crate) halts: Vec<Pid>,
    /// The groups that have the console, by the roots of their trees.
    pub(crate) foregrounds: BTreeMap<Pid, u32>,
    /// What calls move bytes through, while none does.
    chunk: Vec<u8>,
}

/// Room for so many things that have happened is kept.
const KEPT_WOKEN: usize = 64;

impl System {
    /// [`MAX_BULK`] bytes to move others through. They are those of earlier calls, of anybody: what a call has put
    /// there is all that it may give to anybody. For the next one, [`System::give_chunk`]; nothing is lost without
    /// that.
    pub(crate) fn take_chunk(&mut self) -> Vec<u8> {
        match take(&mut self.chunk) {
            chunk if chunk.is_empty() => alloc::vec![0; MAX_BULK],
            chunk => chunk,
        }
    }

    /// Keeps the bytes of [`System::take_chunk`].
    pub(crate) fn give_chunk(&mut self, chunk: Vec<u8>) {
        self.chunk = chunk;
    }

    /// No processes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A process. Of one that is not there nothing is known and nothing kept.
    pub fn process(&mut self, pid: Pid) -> &mut Process {
        match self.processes.get_mut(&pid) {
            Some(process) => process,
            None => {
                self.nobody = Process::default();
                &mut self.nobody
            }
        }
    }

    /// A process, if it is there.
    #[must_use]
    pub fn find(&self, pid: Pid) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// How many processes there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.processes.len()
    }

    /// How many of them count for this payer.
    #[must_use]
    pub fn counted(&self, payer: Payer) -> usize {
        self.counted.get(&payer).copied().unwrap_or(0)
    }

    /// How many more may count for this payer.
    #[must_use]
    pub fn left(&self, payer: Payer) -> usize {
        let (own, all) = (self.counted(payer), self.processes.len());
        let is_left = |n: &usize| is_share((own + n, all + n), (payer.most(), MAX_PROCESSES));
        (1..=MAX_PROCESSES).take_while(is_left).count()
    }

    /// A new process that has no parent, and its number. Errors: `EAGAIN` if there are too many.
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

    /// A new child, which is as its parent in everything that is not its own. Errors: `EAGAIN` if there are too many.
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

    /// A number that no task has. There are more numbers than tasks.
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

    /// A tree that was restored, whose root is this process: each of it behind its parent. They have the numbers that they had
    /// if these are free, and else they are alone in a namespace of their own. The numbers of the processes in the table, and of
    /// their further tasks. Errors: `EAGAIN` if there are too many; nothing has changed then.
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
            // The root has a number in the table already, which may be the one that it had.
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
        // All processes have their numbers before threads get some.
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

    /// Takes a process out of the table.
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

    /// A further task of a process: its number. Errors: `EAGAIN` if there are too many.
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
        // In the table it has the number that it has for programs, if that is possible.
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

    /// A task of a process has ended. The number of the first one stays the process's.
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

    /// The first task of a process is this one from now on, and the only one.
    pub fn becomes_first(&mut self, pid: Pid, tid: Tid) {
        self.forget_thread(pid, tid);
        self.process(pid).tasks = BTreeSet::from([pid]);
    }

    /// A task waits at no word, for no lock, and for nobody who opens a FIFO.
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

    /// Sends a signal to all processes of a group that are of this tree: the number may be another one's meanwhile.
    pub fn signal_group(&mut self, root: Pid, namespace: u32, group: u32, signal: u32) {
        let all = (namespace, group, 0)..=(namespace, group, Pid::MAX);
        let members: Vec<Pid> = self.groups.range(all).map(|(.., pid)| *pid).collect();
        for pid in members {
            if self.find(pid).is_some_and(|process| process.root == root) {
                self.send(To::Process(pid), signal, Origin::kernel());
            }
        }
    }

    /// The task with this number, as `of` sees it, and its process.
    #[must_use]
    pub fn thread_by_number(&self, of: Pid, number: u32) -> Option<(Tid, Pid)> {
        let namespace = self.find(of)?.namespace;
        let tid = self.numbers.get(&(namespace, number)).copied()?;
        let pid = self.threads.get(&tid).map_or(tid, |(pid, _)| *pid);
        self.find(pid)?.tasks.contains(&tid).then_some((tid, pid))
    }

    /// The number in the table of the process of a task.
    #[must_use]
    pub fn task_process(&self, tid: Tid) -> Pid {
        self.threads.get(&tid).map_or(tid, |(pid, _)| *pid)
    }

    /// The number of a process's parent; 1 for those who have none.
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

    /// The processes that another one means. Those of a group are of its own tree: groups of two trees can have one
    /// number, since an image has the numbers that its processes had.
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

    /// `setpgid`: puts itself or a child into a group of its session, or a new one.
    pub fn set_group(&mut self, of: Pid, pid: Pid, group: u32) -> Result<(), Errno> {
        let (namespace, session) = match self.find(of) {
            Some(own) => (own.namespace, own.session),
            None => return Err(ESRCH),
        };
        // All trees are in one session, that of the console: a group of another one is none that there is.
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

    /// `setsid`: a new session, with one group.
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

    /// Whether a process may send another one signals: one of its own tree.
    pub fn may_signal(&self, from: Pid, to: Pid) -> Result<(), Errno> {
        let (from, to) = (self.find(from).ok_or(ESRCH)?, self.find(to).ok_or(ESRCH)?);
        let allowed = from.root == to.root && to.may_be_signalled_by(&from.ids);
        allowed.then_some(()).ok_or(EPERM)
    }

    /// Whether a process may trace another one: it could do all that this one may.
    pub fn may_trace(&self, from: Pid, to: Pid) -> Result<(), Errno> {
        let (from, to) = (self.find(from).ok_or(ESRCH)?, self.find(to).ok_or(ESRCH)?);
        let (ids, target) = (&from.ids, &to.ids);
        let same = target.uid.iter().all(|uid| *uid == ids.uid[0])
            && target.gid.iter().all(|gid| *gid == ids.gid[0]);
        let allowed = from.root == to.root && (ids.uid[1] == 0 || same);
        allowed.then_some(()).ok_or(EPERM)
    }

    /// Sends a signal; 0 does nothing.
    pub fn send(&mut self, to: To, signal: u32, origin: Origin) {
        let lives = match to {
            To::Process(pid) => self.find(pid).is_some_and(|p| p.status.is_none()),
            To::Task(_) => true,
        };
        if signal != 0 && lives {
            self.sent.push((to, signal, origin));
        }
    }

    /// What has been sent since.
    pub fn take_sent(&mut self) -> Vec<(To, u32, Origin)> {
        take(&mut self.sent)
    }

    /// Something has happened that calls may wait for.
    pub fn wake(&mut self, key: Key) {
        self.wake_for(key, ALL);
    }

    /// Something has happened upon which what has this key may be ready for these events: those who watch it for
    /// others are not told.
    pub fn wake_for(&mut self, key: Key, events: u32) {
        match self.woken.last_mut() {
            Some((last, its)) if *last == key => *its |= events,
            _ => self.woken.push((key, events)),
        }
        self.epolls.happened(key, events, &mut self.woken);
    }

    /// What has happened since, and for which events that may be ready. For the memory of it, [`System::give_woken`].
    pub fn take_woken(&mut self) -> Vec<(Key, u32)> {
        take(&mut self.woken)
    }

    /// Keeps the memory of what [`System::take_woken`] gave, if that is little and nothing has happened since.
    pub fn give_woken(&mut self, mut woken: Vec<(Key, u32)>) {
        if self.woken.is_empty() && woken.capacity() <= KEPT_WOKEN {
            woken.clear();
            self.woken = woken;
        }
    }

    /// Processes that have ended and that nobody waits for.
    pub fn take_gone(&mut self) -> Vec<Pid> {
        take(&mut self.gone)
    }

    /// A task does not wait any longer (`runs`), or waits from now on; `now` is asked if that is news.
    pub fn task_runs(&mut self, task: &mut Task, runs: bool, now: impl FnOnce() -> u64) {
        let (processes, pid) = (&self.processes, task.pid);
        let common = || {
            let process = processes.get(&pid);
            process.map_or_else(Common::default, |process| process.spent.clone())
        };
        let alone = &task.shown.spent;
        task.own.change(alone, &mut self.work, runs, now, common);
    }

    /// What a process that has ended, and the children that it has waited for, have had of the processor.
    #[must_use]
    pub fn spent_with_children(&self, pid: Pid) -> u64 {
        // Nobody of it runs any more.
        let of = |process: &Process| {
            process
                .spent
                .get()
                .total(0)
                .saturating_add(process.spent_by_children)
        };
        self.find(pid).map_or(0, of)
    }

    /// The timers of a process, to be set.
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

    /// How much of the processor a process may have until a limit has passed, where a task that has never waited would
    /// have had `each`; `None` if none does. It is behind a limit that has passed when there is nothing left.
    #[must_use]
    pub fn work_left(&self, pid: Pid, each: u64) -> Option<u64> {
        let process = self.find(pid)?;
        let (soft, hard) = *process.limits.get(&linux::RLIMIT_CPU)?;
        let seconds = soft.min(hard);
        let spent = process.spent.get().total(each);
        (seconds != u64::MAX).then(|| seconds.saturating_mul(SECOND).saturating_sub(spent))
    }

    /// The signal that a process gets because a limit of processor time has passed; as in Linux the lower one is a
    /// second later then.
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

    /// Processes whose timers were set.
    pub fn take_timers(&mut self) -> Vec<Pid> {
        take(&mut self.timers)
    }

    /// Whether nothing is to be done for others.
    #[must_use]
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.woken.is_empty() && self.is_quiet()
    }

    /// Whether nothing is to be done for others but that calls may be made again.
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

    /// Counts a new thing: how many there are for its payer. Errors: `ENFILE`.
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

    /// How many more of these things a payer may have, as far as others leave it.
    #[must_use]
    pub fn left_things(&self, thing: Thing, payer: Payer) -> usize {
        let own = self.things.get(&(thing, payer)).copied().unwrap_or(0);
        let all = self.all_things.get(&thing).copied().unwrap_or(0);
        let most = thing.most();
        let may = |more: &usize| is_share((own + more, all + more), most);
        (1..=most.0).take_while(may).count()
    }

    /// Whether a payer has as many things as it may have, whatever others have.
    #[must_use]
    pub fn is_full(&self, thing: Thing, payer: Payer) -> bool {
        self.things.get(&(thing, payer)).copied().unwrap_or(0) >= thing.most().0
    }

    /// A thing counts for another one. Errors: `ENFILE`; nothing has changed then.
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

    /// A thing is gone.
    pub fn uncount_thing(&mut self, thing: Thing, payer: Payer) {
        self.uncount_things(thing, 1, payer);
    }

    /// So many things are gone.
    pub(crate) fn uncount_things(&mut self, thing: Thing, gone: usize, payer: Payer) {
        if let Some(count) = self.things.get_mut(&(thing, payer)) {
            *count -= gone;
            if *count == 0 {
                self.things.remove(&(thing, payer));
            }
            *self.all_things.entry(thing).or_default() -= gone;
        }
    }

    /// How many of these things there are.
    #[cfg(test)]
    pub(crate) fn counted_things(&self, thing: Thing) -> usize {
        let all = self.all_things.get(&thing).copied().unwrap_or(0);
        let each = self.things.iter().filter(|((is, _), _)| *is == thing);
        assert_eq!(all, each.map(|(_, count)| count).sum());
        all
    }

    /// There is one more description of what one is open on already.
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

    /// An end of a pipe is closed.
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

    /// Counts a new pipe: a number that tells it from all others, and whether it may be a large one. Errors: `ENFILE`.
    pub fn new_pipe(&mut self, payer: Payer) -> Result<(u64, bool), Errno> {
        let count = self.count_thing(Thing::Pipe, payer)?;
        Ok((self.new_identity(), count <= LARGE_PIPES))
    }

    /// A number that tells a thing from all others.
    pub fn new_identity(&mut self) -> u64 {
        self.last_identity += 1;
        self.last_identity
    }

    /// A process has left the memory in which it was started.
    pub fn leave_memory(&mut self, pid: Pid) {
        if take(&mut self.process(pid).borrows) {
            self.wake(Key::Left(pid));
        }
    }

    /// Who becomes the parent of what a child of this process leaves behind: the process or the nearest one above it
    /// that has chosen that.
    fn adopter(&self, parent: Option<Pid>) -> Option<Pid> {
        let above = |pid: &Pid| self.find(*pid)?.parent;
        let adopts = |pid: &Pid| self.find(*pid).is_some_and(|p| p.chosen.adopts);
        core::iter::successors(parent, above).find(adopts)
    }

    /// A process that has ended has this parent, which is told. It is forgotten at once if the parent wants to know
    /// nothing of children.
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

    /// A process has ended. Its children have another parent, or none any more; its own parent is told.
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
        self.leave_stopped(&children);
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

    /// A child of `of` that has ended, if one of `which` has; `None` if none has yet. Errors: `ECHILD` if it has no such
    /// child.
    pub fn ended_child(&self, of: Pid, which: Which) -> Result<Option<Pid>, Errno> {
        let own = self.find(of).ok_or(ECHILD)?;
        let is = |pid: &&Pid| self.find(**pid).is_some_and(|process| which.is(process));
        match own.ended.iter().find(is) {
            Some(child) => Ok(Some(*child)),
            None if own.children.iter().any(|pid| is(&pid)) => Ok(None),
            None => Err(ECHILD),
        }
    }

    /// Nobody will ask for this process any more: its parent has waited for it.
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

/// What `siginfo` says of a process that has ended: code and status.
#[must_use]
pub fn code_and_status(status: Status) -> (i32, u32) {
    use linux_raw_sys::general::{CLD_EXITED, CLD_KILLED};
    match status {
        Status::Killed(signal) => (CLD_KILLED as i32, u32::from(signal)),
        Status::Exited(code) => (CLD_EXITED as i32, u32::from(code)),
        Status::Running | Status::Stopped => (0, 0),
    }
}
