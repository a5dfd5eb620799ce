//! What is found under `/proc`, `/sys` and `/dev`: names, directories and texts.
//!
//! A process sees itself and the other processes of its tree. What is not known (resident memory, some times and
//! counts) is shown as zero, or as the most that it can be; see the README.

use alloc::format;
use alloc::rc::{Rc, Weak};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::Write as _;
use linux_raw_sys::general as linux;
use serde::{Deserialize, Serialize};
use services::fs::mode;
use services::process::Pid;

use crate::calls::interface::{self, List as Interfaces};
use crate::calls::ipc::List;
use crate::calls::socket::list::List as Sockets;
use crate::calls::system::CAPABILITIES;
use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EACCES, EBADF, EINVAL, ENOENT, ESRCH};
use crate::files::Request;
use crate::interfaces::{CARD, CARD_NAME};
use crate::memory::{self, Areas};
use crate::path;
use crate::process::{
    open_flags, Context, Counter, Device, Entry, Files, Kind, Memory, Shares, MAX_FDS,
};
use crate::signal::{Actions, SIGNALS};
use crate::special::Special;
use crate::system::{Chosen, Process, Tid, CONSOLE_SESSION};
use crate::work::Spent;

/// Nanoseconds of a clock tick of Linux.
const TICK: u64 = 10_000_000;

/// A file whose text is made by this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Text {
    Memory,
    Uptime,
    Load,
    Statistics,
    Processor,
    /// A text that never changes: its index in `FIXED`.
    Fixed(u16),
    /// A random UUID, another one for each read.
    Identifier,
    /// A list of System V IPC objects.
    Ipc(List),
    /// A list of sockets.
    Sockets(Sockets),
    /// About the process with this number.
    Of(u32, About),
    /// How many random bits there are: all, or none if they are not good for secrets.
    Entropy,
    /// About the thread with the second number, of the process with the first one.
    OfThread(u32, u32, About),
    /// About the descriptor with the second number, of the process with the first one.
    Descriptor(u32, u32),
    /// The random identifier of this boot.
    Boot,
    /// Statistics of virtual memory.
    VirtualMemory,
    /// The kinds of control groups: none.
    ControlGroups,
    /// A text without a line.
    Empty,
    /// A list of network interfaces.
    Interfaces(Interfaces),
    /// A property of the network interface with this number, by its index in the list of properties.
    Interface(u32, u8),
}

/// Which text about a process, by the file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum About {
    Arguments,
    Name,
    Maps,
    Environment,
    Io,
    Limits,
    Mounts,
    MountInfo,
    Stat,
    Statm,
    Status,
    // The following stand last, so that the encoding of the others in images does not change.
    AuxiliaryVector,
    Memory,
    ControlGroups,
    KillScore,
    KillScoreChange,
    Said,
}

/// The texts that each process has, by name.
const ABOUT: &[(&str, About)] = &[
    ("auxv", About::AuxiliaryVector),
    ("cgroup", About::ControlGroups),
    ("cmdline", About::Arguments),
    ("comm", About::Name),
    ("environ", About::Environment),
    ("io", About::Io),
    ("limits", About::Limits),
    ("maps", About::Maps),
    ("mem", About::Memory),
    ("mountinfo", About::MountInfo),
    ("mounts", About::Mounts),
    ("oom_score", About::KillScore),
    ("oom_score_adj", About::KillScoreChange),
    ("said", About::Said),
    ("stat", About::Stat),
    ("statm", About::Statm),
    ("status", About::Status),
];

/// A symbolic link that each process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Link {
    Directory,
    Program,
    Root,
}

const LINKS: &[(&str, Link)] = &[
    ("cwd", Link::Directory),
    ("exe", Link::Program),
    ("root", Link::Root),
];

/// Texts that change, directly under `/proc`.
const TEXTS: &[(&str, Text)] = &[
    ("cgroups", Text::ControlGroups),
    ("cpuinfo", Text::Processor),
    ("diskstats", Text::Empty),
    ("loadavg", Text::Load),
    ("meminfo", Text::Memory),
    ("modules", Text::Empty),
    ("stat", Text::Statistics),
    ("uptime", Text::Uptime),
    ("vmstat", Text::VirtualMemory),
];

/// Texts that never change, sorted by path.
const FIXED: &[(&str, &str)] = &[
    ("/proc/cmdline", "fermata\n"),
    ("/proc/devices", "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n  5 /dev/ptmx\n136 pts\n\nBlock devices:\n"),
    ("/proc/filesystems", "nodev\tproc\nnodev\ttmpfs\nnodev\tdevpts\n\text4\n"),
    ("/proc/partitions", "major minor  #blocks  name\n\n"),
    ("/proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
    ("/proc/sys/fs/file-max", "65536\n"),
    ("/proc/sys/fs/nr_open", "1024\n"),
    ("/proc/sys/fs/pipe-max-size", "65536\n"),
    ("/proc/sys/kernel/cap_last_cap", "40\n"),
    ("/proc/sys/kernel/hostname", "fermata\n"),
    ("/proc/sys/kernel/ngroups_max", "65536\n"),
    ("/proc/sys/kernel/osrelease", RELEASE_LINE),
    ("/proc/sys/kernel/ostype", "Linux\n"),
    ("/proc/sys/kernel/pid_max", "30001\n"),
    ("/proc/sys/kernel/random/poolsize", "256\n"),
    ("/proc/sys/kernel/threads-max", "256\n"),
    ("/proc/sys/kernel/version", "#1 Fermata\n"),
    ("/proc/sys/net/core/somaxconn", "128\n"),
    ("/proc/sys/vm/max_map_count", "16000\n"),
    ("/proc/sys/vm/mmap_min_addr", "65536\n"),
    ("/proc/sys/vm/overcommit_memory", "2\n"),
    ("/proc/version", VERSION),
    ("/sys/devices/system/cpu/online", "0\n"),
    ("/sys/devices/system/cpu/possible", "0\n"),
    ("/sys/devices/system/cpu/present", "0\n"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
];
const RELEASE_LINE: &str = "6.1.0-fermata\n";
const VERSION: &str = "Linux version 6.1.0-fermata (fermata@fermata) #1 Fermata\n";

/// Texts that are made at each read, by path.
const MADE: &[(&str, Text)] = &[
    ("/proc/net/dev", Text::Interfaces(Interfaces::Counters)),
    ("/proc/net/if_inet6", Text::Interfaces(Interfaces::Sixes)),
    (
        "/proc/net/ipv6_route",
        Text::Interfaces(Interfaces::SixRoutes),
    ),
    ("/proc/net/raw", Text::Sockets(Sockets::Raw)),
    ("/proc/net/raw6", Text::Sockets(Sockets::Raw6)),
    ("/proc/net/route", Text::Interfaces(Interfaces::Routes)),
    ("/proc/net/tcp", Text::Sockets(Sockets::Tcp)),
    ("/proc/net/tcp6", Text::Sockets(Sockets::Tcp6)),
    ("/proc/net/udp", Text::Sockets(Sockets::Udp)),
    ("/proc/net/udp6", Text::Sockets(Sockets::Udp6)),
    ("/proc/net/unix", Text::Sockets(Sockets::Unix)),
    ("/proc/sys/kernel/random/boot_id", Text::Boot),
    ("/proc/sys/kernel/random/entropy_avail", Text::Entropy),
    ("/proc/sys/kernel/random/uuid", Text::Identifier),
    ("/proc/sysvipc/msg", Text::Ipc(List::Queues)),
    ("/proc/sysvipc/sem", Text::Ipc(List::Sets)),
    ("/proc/sysvipc/shm", Text::Ipc(List::Memories)),
];

const MOUNTS: &str = "memory / tmpfs rw,relatime 0 0\n";
const MOUNT_INFO: &str = "1 1 0:20 / / rw,relatime - tmpfs memory rw\n";
/// The mount of the disk, if there is one.
const MOUNT_OF_DISK: &str = "disk /disk ext4 rw,relatime 0 0\n";
const MOUNT_INFO_OF_DISK: &str = "2 1 0:22 / /disk rw,relatime - ext4 disk rw\n";

/// A directory that this server makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Folder {
    /// `/dev`.
    Devices,
    /// `/dev/pts`.
    Terminals,
    /// `/proc`.
    Processes,
    /// `/proc/1`.
    Process(u32),
    /// `/proc/1/fd`.
    Descriptors(u32),
    /// `/proc/1/task`.
    Tasks(u32),
    /// `/proc/1/task/2`.
    Task(u32, u32),
    /// A directory of which only paths of fixed and made texts are known: the index of one of these paths, and how many
    /// bytes of it name the directory.
    Fixed(u16, u16),
    /// `/proc/1/fdinfo`.
    DescriptorTexts(u32),
}

/// Devices of `/dev` by name.
pub const DEVICES: &[(&str, Special)] = &[
    ("console", Special::Device(Device::Console)),
    ("full", Special::Device(Device::Full)),
    ("null", Special::Device(Device::Null)),
    ("ptmx", Special::Multiplexor),
    ("random", Special::Device(Device::Random)),
    ("tty", Special::Terminal),
    ("urandom", Special::Device(Device::Random)),
    ("zero", Special::Device(Device::Zero)),
];

impl Folder {
    /// The path of the directory.
    #[must_use]
    pub fn path(self) -> String {
        match self {
            Folder::Devices => "/dev".to_string(),
            Folder::Terminals => "/dev/pts".to_string(),
            Folder::Processes => "/proc".to_string(),
            Folder::Process(number) => format!("/proc/{number}"),
            Folder::Descriptors(number) => format!("/proc/{number}/fd"),
            Folder::DescriptorTexts(number) => format!("/proc/{number}/fdinfo"),
            Folder::Tasks(number) => format!("/proc/{number}/task"),
            Folder::Task(number, thread) => format!("/proc/{number}/task/{thread}"),
            Folder::Fixed(at, length) => {
                let path = paths().nth(usize::from(at));
                let path = path.and_then(|path| path.get(..usize::from(length)));
                path.unwrap_or("/proc").to_string()
            }
        }
    }

    /// Whether this is a directory of fixed texts that is `directory` or below it.
    #[must_use]
    pub fn is_below(self, directory: &str) -> bool {
        let path = match self {
            Folder::Fixed(..) => self.path(),
            _ => return false,
        };
        let rest = path.strip_prefix(directory);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether the directory is possible (one from an image may not be).
    #[must_use]
    pub fn is_sound(self) -> bool {
        match self {
            Folder::Fixed(..) => fixed(&self.path()) == Some(Special::Folder(self)),
            _ => true,
        }
    }
}

impl Text {
    /// Whether the text is possible (one from an image may not be).
    #[must_use]
    pub fn is_sound(self) -> bool {
        match self {
            Text::Fixed(at) => usize::from(at) < FIXED.len(),
            Text::Interface(which, at) => interface::is_sound(which, at),
            _ => true,
        }
    }

    /// The inode number: programs take two files with one number for the same file, without comparing contents.
    #[must_use]
    pub fn number(self) -> u64 {
        let name = postcard::to_allocvec(&self).unwrap_or_default();
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        1 << 40 | hash >> 24
    }

    /// The root of the file system that shows the text.
    #[must_use]
    pub fn root(self) -> &'static str {
        match self {
            Text::Fixed(at)
                if FIXED
                    .get(usize::from(at))
                    .is_some_and(|(path, _)| path.starts_with("/sys")) =>
            {
                "/sys"
            }
            Text::Interface(..) => "/sys",
            _ => "/proc",
        }
    }

    /// What the text is about, if it is about a process or a thread.
    const fn about(self) -> Option<About> {
        match self {
            Text::Of(_, about) | Text::OfThread(_, _, about) => Some(about),
            _ => None,
        }
    }

    /// Whether the text can be written: the name of a thread, the adjustment of a process's `oom_score`, and its
    /// memory.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(
            self.about(),
            Some(About::Name | About::KillScoreChange | About::Memory | About::Said)
        )
    }

    /// The number of the task, if this is no text but a task's memory.
    #[must_use]
    pub const fn memory(self) -> Option<u32> {
        match self {
            Text::Of(number, About::Memory) | Text::OfThread(_, number, About::Memory) => {
                Some(number)
            }
            _ => None,
        }
    }

    /// The number of the process whose message to the starter of its tree this is (`/proc/self/said`).
    #[must_use]
    pub const fn said(self) -> Option<u32> {
        match self {
            Text::Of(number, About::Said) => Some(number),
            _ => None,
        }
    }

    /// Permission bits of the file.
    #[must_use]
    pub const fn permissions(self) -> u32 {
        match self.about() {
            Some(About::Memory) => 0o600,
            Some(About::AuxiliaryVector) => 0o400,
            Some(About::Said) => 0o200,
            Some(About::Name | About::KillScoreChange) => 0o644,
            _ => 0o444,
        }
    }

    /// The text about the process instead of the thread, if all threads have it in common.
    #[must_use]
    pub const fn in_common(self) -> Self {
        match self {
            Text::OfThread(
                number,
                _,
                about @ (About::Arguments
                | About::AuxiliaryVector
                | About::Environment
                | About::Maps),
            ) => Text::Of(number, about),
            other => other,
        }
    }
}

/// The paths of [`FIXED`], then those of [`MADE`], then those about interfaces.
fn paths() -> impl Iterator<Item = &'static str> {
    let made = MADE.iter().map(|(path, _)| *path);
    let all = FIXED.iter().map(|(path, _)| *path).chain(made);
    all.chain(interface::paths())
}

/// What a path means that is one of [`paths`] or a directory above one.
fn fixed(name: &str) -> Option<Special> {
    if let Some((_, text)) = MADE.iter().find(|(path, _)| *path == name) {
        return Some(Special::Text(*text));
    }
    if let Some(text) = interface::find(name) {
        return Some(Special::Text(text));
    }
    let is_below = |path: &str| {
        path.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    for (at, path) in (0u16..).zip(paths()) {
        if path == name {
            return Some(Special::Text(Text::Fixed(at)));
        }
        if is_below(path) {
            return Some(Special::Folder(Folder::Fixed(at, name.len() as u16)));
        }
    }
    None
}

/// What an absolute path under `/dev`, `/proc` or `/sys` means to thread `thread` of process `own`. Does not check that
/// the process, thread or descriptor exists.
#[must_use]
pub fn find(name: &str, own: u32, thread: u32) -> Option<Special> {
    if let Some(device) = name.strip_prefix("/dev") {
        return find_device(device.strip_prefix('/').unwrap_or(device));
    }
    let Some(proc) = name.strip_prefix("/proc") else {
        return fixed(name);
    };
    let Some(proc) = proc.strip_prefix('/') else {
        return proc
            .is_empty()
            .then_some(Special::Folder(Folder::Processes));
    };
    match proc {
        "self" | "thread-self" => return Some(Special::Own),
        "mounts" => return Some(Special::Text(Text::Of(own, About::Mounts))),
        _ => {}
    }
    if let Some((_, text)) = TEXTS.iter().find(|(text, _)| *text == proc) {
        return Some(Special::Text(*text));
    }
    let (first, rest) = proc.split_once('/').unwrap_or((proc, ""));
    let number = match first {
        "self" | "thread-self" => own,
        _ => match decimal(first) {
            Some(number) => number,
            None => return fixed(name),
        },
    };
    let found = of_process(number, own, rest)?;
    Some(match found {
        Special::Text(Text::Of(_, about)) if first == "thread-self" => {
            Special::Text(Text::OfThread(own, thread, about))
        }
        found => found,
    })
}

/// A number in decimal, without sign or leading zeros.
fn decimal(text: &str) -> Option<u32> {
    let is_plain =
        text.bytes().all(|b| b.is_ascii_digit()) && (!text.starts_with('0') || text == "0");
    text.parse().ok().filter(|_| is_plain)
}

fn find_device(device: &str) -> Option<Special> {
    match device {
        "" => return Some(Special::Folder(Folder::Devices)),
        "pts" => return Some(Special::Folder(Folder::Terminals)),
        "pts/ptmx" => return Some(Special::Multiplexor),
        "fd" => return Some(Special::OwnDescriptors),
        "stdin" => return Some(Special::Descriptor(0)),
        "stdout" => return Some(Special::Descriptor(1)),
        "stderr" => return Some(Special::Descriptor(2)),
        _ => {}
    }
    if let Some((_, special)) = DEVICES.iter().find(|(name, _)| *name == device) {
        return Some(special.clone());
    }
    if let Some(number) = device.strip_prefix("pts/") {
        return Some(Special::Slave(decimal(number)?));
    }
    Some(Special::Descriptor(decimal(device.strip_prefix("fd/")?)?))
}

fn of_process(number: u32, own: u32, rest: &str) -> Option<Special> {
    if let Some((_, about)) = ABOUT.iter().find(|(name, _)| *name == rest) {
        return Some(Special::Text(Text::Of(number, *about)));
    }
    if let Some((_, link)) = LINKS.iter().find(|(name, _)| *name == rest) {
        return Some(Special::LinkOf(number, *link));
    }
    match rest {
        "" => return Some(Special::Folder(Folder::Process(number))),
        "fd" => return Some(Special::Folder(Folder::Descriptors(number))),
        "fdinfo" => return Some(Special::Folder(Folder::DescriptorTexts(number))),
        "task" => return Some(Special::Folder(Folder::Tasks(number))),
        _ => {}
    }
    if let Some(fd) = rest.strip_prefix("fd/") {
        let fd = decimal(fd)?;
        return Some(match number == own {
            true => Special::Descriptor(fd),
            false => Special::DescriptorOf(number, fd),
        });
    }
    if let Some(fd) = rest.strip_prefix("fdinfo/") {
        return Some(Special::Text(Text::Descriptor(number, decimal(fd)?)));
    }
    let task = rest.strip_prefix("task/")?;
    let (thread, rest) = task.split_once('/').unwrap_or((task, ""));
    let thread = decimal(thread)?;
    match rest {
        "" => Some(Special::Folder(Folder::Task(number, thread))),
        _ => match of_process(number, own, rest)? {
            Special::Text(Text::Of(number, about)) => {
                Some(Special::Text(Text::OfThread(number, thread, about)))
            }
            _ => None,
        },
    }
}

/// What a process shares with its tasks, for others to look at. Keeps none of it alive.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    memory: Weak<RefCell<Memory>>,
    files: Weak<RefCell<Files>>,
    context: Weak<RefCell<Context>>,
    actions: Weak<RefCell<Actions>>,
}

impl Seen {
    /// What this task shares.
    #[must_use]
    pub fn of(shares: &Shares) -> Self {
        Seen {
            memory: Rc::downgrade(&shares.memory),
            files: Rc::downgrade(&shares.files),
            context: Rc::downgrade(&shares.context),
            actions: Rc::downgrade(&shares.actions),
        }
    }

    /// Whether both have the same memory.
    pub(crate) fn shares_memory(&self, other: &Seen) -> bool {
        self.memory.ptr_eq(&other.memory)
    }

    /// Looks at the areas of the memory, if it still exists. `own` is the caller's memory.
    pub(crate) fn areas<R>(&self, own: &Memory, act: impl FnOnce(&Areas) -> R) -> Option<R> {
        look(&self.memory, own, |memory| act(&memory.areas))
    }
}

/// Passes something of a process to `look`. If it is borrowed it is the caller's own, so `own` is passed instead.
fn look<T, R>(seen: &Weak<RefCell<T>>, own: &T, look: impl FnOnce(&T) -> R) -> Option<R> {
    let shared = seen.upgrade()?;
    let result = match shared.try_borrow() {
        Ok(theirs) => look(&theirs),
        Err(_) => look(own),
    };
    Some(result)
}

/// The process with this number, if the caller may see it.
pub fn seen(c: &Caller, number: u32) -> Result<Pid> {
    let own = c.p.task.pid;
    let pid = c.s.by_number(own, number).ok_or(ENOENT)?;
    let root = |pid| c.s.find(pid).map(|process| process.root);
    (root(pid) == root(own)).then_some(pid).ok_or(ENOENT.into())
}

fn process<'a>(c: &'a Caller, number: u32) -> Result<(Pid, &'a Process)> {
    let pid = seen(c, number)?;
    Ok((pid, c.s.find(pid).ok_or(ENOENT)?))
}

/// The thread with this number, if it belongs to this process. The first thread is found even after it has ended.
fn task(c: &Caller, pid: Pid, thread: u32) -> Result<Tid> {
    let process = c.s.find(pid).ok_or(ENOENT)?;
    if thread == process.number {
        return Ok(pid);
    }
    let found = c.s.thread_by_number(c.p.task.pid, thread);
    let own = found.filter(|(_, of)| *of == pid).map(|(tid, _)| tid);
    Ok(own.ok_or(ENOENT)?)
}

/// Fails if the process, thread or descriptor that a name refers to does not exist.
pub fn check(c: &Caller, special: &Special) -> Result<()> {
    match special {
        Special::Text(Text::Of(number, _))
        | Special::Folder(
            Folder::Process(number)
            | Folder::Descriptors(number)
            | Folder::DescriptorTexts(number)
            | Folder::Tasks(number),
        ) => seen(c, *number).map(|_| ()),
        Special::Text(Text::Descriptor(number, fd)) => description(c, *number, *fd).map(|_| ()),
        Special::Folder(Folder::Task(number, thread))
        | Special::Text(Text::OfThread(number, thread, _)) => {
            let pid = seen(c, *number)?;
            task(c, pid, *thread)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Fails if a name is about the network card and there is none.
pub fn check_card(c: &mut Caller, special: &Special) -> Result<()> {
    let is_its = match special {
        Special::Text(Text::Interface(which, _)) => *which == CARD,
        Special::Folder(folder) => folder.is_below(interface::OF_CARD),
        _ => false,
    };
    match is_its {
        true => interface::check_card(c, ENOENT),
        false => Ok(()),
    }
}

/// The path to which a link of a process leads.
pub fn target(c: &Caller, number: u32, link: Link) -> Result<String> {
    let (_, process) = process(c, number)?;
    let path = match link {
        Link::Root => Some("/".to_string()),
        Link::Program => look(&process.seen.memory, &c.p.memory, |memory| {
            memory.exe.clone()
        }),
        Link::Directory => look(&process.seen.context, &c.p.context, |context| {
            context.cwd.clone()
        }),
    };
    Ok(path.ok_or(ENOENT)?)
}

/// Whether a path is the link to a program whose file has been removed.
pub fn lost_program(c: &Caller, path: &str) -> bool {
    if !path.ends_with("exe") {
        return false;
    }
    let name = path::lexical(&path::join(&c.p.context.cwd, path));
    let (own, thread) = (c.p.task.number, c.p.task.thread);
    let Some(Special::LinkOf(number, Link::Program)) = find(&name, own, thread) else {
        return false;
    };
    with_memory(c, number, |memory| is_lost(c, memory)).unwrap_or(false)
}

/// Whether the file of a program has been removed.
pub fn is_lost(c: &Caller, memory: &Memory) -> bool {
    let ino = memory.executed.as_ref().map(|executed| executed.ino());
    ino.is_some_and(|ino| c.s.busy.lost_name(ino).is_some())
}

/// The open file description behind a descriptor of a process.
pub fn description(
    c: &Caller,
    number: u32,
    fd: u32,
) -> Result<crate::process::Shared<crate::process::Description>> {
    let (_, process) = process(c, number)?;
    let found = look(&process.seen.files, &c.p.files, |files| {
        files.fds.get(fd).map(|fd| Rc::clone(&fd.description))
    });
    Ok(found.flatten().ok_or(ENOENT)?)
}

/// Passes the memory of a process to `with`. Errors: `ESRCH`.
pub fn with_memory<R>(c: &Caller, number: u32, with: impl FnOnce(&Memory) -> R) -> Result<R> {
    if number == c.p.task.number {
        return Ok(with(&c.p.memory));
    }
    let (_, process) = process(c, number).map_err(|_| ESRCH)?;
    Ok(look(&process.seen.memory, &c.p.memory, with).ok_or(ESRCH)?)
}

/// User and group that own a directory or text.
pub fn owner(c: &Caller, special: &Special) -> (u32, u32) {
    let number = match special {
        Special::Text(
            Text::Of(number, _) | Text::OfThread(number, ..) | Text::Descriptor(number, _),
        )
        | Special::LinkOf(number, _)
        | Special::DescriptorOf(number, _)
        | Special::Folder(
            Folder::Process(number)
            | Folder::Descriptors(number)
            | Folder::DescriptorTexts(number)
            | Folder::Tasks(number)
            | Folder::Task(number, _),
        ) => *number,
        _ => return (0, 0),
    };
    let ids = process(c, number).map(|(_, process)| process.ids);
    ids.map_or((0, 0), |ids| (ids.uid[1], ids.gid[1]))
}

/// The entries of a directory from position `from` on, each with its position.
pub fn entries(c: &Caller, folder: Folder, from: u64) -> Vec<(u64, Entry)> {
    const LISTED: u64 = 1 << 32;
    let mut all = Vec::new();
    let mut put = |at: u64, name: &str, mode: u32| {
        if at >= from {
            let entry = Entry {
                ino: at + 1000,
                mode,
                name: name.to_string(),
            };
            all.push((at, entry));
        }
    };
    put(0, ".", mode::DIRECTORY);
    put(1, "..", mode::DIRECTORY);
    match folder {
        Folder::Devices => {
            for (at, (name, _)) in (2..).zip(DEVICES) {
                put(at, name, mode::CHARACTER);
            }
            let links = ["fd", "stderr", "stdin", "stdout"];
            for (at, name) in (100..).zip(links) {
                put(at, name, mode::SYMLINK);
            }
            put(200, "pts", mode::DIRECTORY);
            put(201, "shm", mode::DIRECTORY);
        }
        Folder::Terminals => {
            let root = c.s.find(c.p.task.pid).map_or(0, |process| process.root);
            put(2, "ptmx", mode::CHARACTER);
            for number in c.s.ptys.numbers(root) {
                put(
                    LISTED + u64::from(number),
                    &number.to_string(),
                    mode::CHARACTER,
                );
            }
        }
        Folder::Processes => {
            for (at, name) in (2..).zip(["self", "thread-self", "mounts"]) {
                put(at, name, mode::SYMLINK);
            }
            for (at, (name, _)) in (10..).zip(TEXTS) {
                put(at, name, mode::FILE);
            }
            list_fixed("/proc", &mut put);
            let (own, root) = (c.p.task.pid, c.s.find(c.p.task.pid).map_or(0, |p| p.root));
            let mut numbers: Vec<u32> =
                c.s.tree(root)
                    .into_iter()
                    .filter_map(|pid| Some(c.s.find(pid)?.number))
                    .filter(|number| c.s.by_number(own, *number).is_some())
                    .collect();
            numbers.sort_unstable();
            for number in numbers {
                put(
                    LISTED + u64::from(number),
                    &number.to_string(),
                    mode::DIRECTORY,
                );
            }
        }
        Folder::Process(_) | Folder::Task(..) => {
            for (at, (name, _)) in (2..).zip(ABOUT) {
                put(at, name, mode::FILE);
            }
            if let Folder::Process(_) = folder {
                for (at, (name, _)) in (100..).zip(LINKS) {
                    put(at, name, mode::SYMLINK);
                }
                put(200, "fd", mode::DIRECTORY);
                put(201, "task", mode::DIRECTORY);
                put(202, "fdinfo", mode::DIRECTORY);
            }
        }
        Folder::Descriptors(number) | Folder::DescriptorTexts(number) => {
            let mode = match folder {
                Folder::Descriptors(_) => mode::SYMLINK,
                _ => mode::FILE,
            };
            let found = process(c, number).ok().and_then(|(_, process)| {
                look(&process.seen.files, &c.p.files, |files| {
                    files.fds.numbers().collect::<Vec<u32>>()
                })
            });
            for fd in found.unwrap_or_default() {
                put(LISTED + u64::from(fd), &fd.to_string(), mode);
            }
        }
        Folder::Tasks(number) => {
            let tasks = process(c, number).map(|(_, process)| process.tasks.clone());
            let mut threads: Vec<u32> = tasks
                .into_iter()
                .flatten()
                .filter_map(|tid| c.s.thread_number(tid))
                .collect();
            threads.sort_unstable();
            for thread in threads {
                put(
                    LISTED + u64::from(thread),
                    &thread.to_string(),
                    mode::DIRECTORY,
                );
            }
        }
        Folder::Fixed(..) => list_fixed(&folder.path(), &mut put),
    }
    if folder.is_below(interface::DIRECTORY) && c.s.outside.card().is_none() {
        all.retain(|(_, entry)| entry.name != CARD_NAME);
    }
    all
}

/// Lists the entries of a directory that come from [`paths`].
fn list_fixed(directory: &str, put: &mut impl FnMut(u64, &str, u32)) {
    let mut listed: Vec<&str> = Vec::new();
    for (at, path) in (300..).zip(paths()) {
        let Some(rest) = path
            .strip_prefix(directory)
            .and_then(|rest| rest.strip_prefix('/'))
        else {
            continue;
        };
        let (name, is_directory) = match rest.split_once('/') {
            Some((name, _)) => (name, true),
            None => (rest, false),
        };
        if !listed.contains(&name) {
            put(
                at,
                name,
                if is_directory {
                    mode::DIRECTORY
                } else {
                    mode::FILE
                },
            );
            listed.push(name);
        }
    }
}

/// The current content of a text. The caller's own arguments and environment, and any process's areas and memory, are
/// read by [`crate::special::read`].
pub fn text(c: &mut Caller, which: Text) -> Result<Vec<u8>> {
    Ok(match which {
        Text::Fixed(at) => FIXED
            .get(usize::from(at))
            .map_or("", |(_, text)| text)
            .into(),
        Text::Memory => meminfo(c).into_bytes(),
        Text::Uptime => {
            let centiseconds = c.now() / TICK;
            let idle = idle(c).1;
            let [up, idle] =
                [centiseconds, idle].map(|time| format!("{}.{:02}", time / 100, time % 100));
            format!("{up} {idle}\n").into_bytes()
        }
        Text::Load => {
            let root = c.process().root;
            let count = c.s.tree(root).len();
            format!("0.00 0.00 0.00 1/{count} {}\n", c.p.task.number).into_bytes()
        }
        Text::Statistics => {
            let started = (c.date().saturating_sub(c.now())) / 1_000_000_000;
            let (busy, idle) = idle(c);
            let times = format!("{busy} 0 0 {idle} 0 0 0 0 0 0");
            format!(
                "cpu  {times}\ncpu0 {times}\nintr 0\nctxt 0\nbtime {started}\n\
                 processes {}\nprocs_running 1\nprocs_blocked 0\n",
                c.s.count()
            )
            .into_bytes()
        }
        Text::Processor => {
            let names = [
                "fpu", "vme", "de", "pse", "tsc", "msr", "pae", "mce", "cx8", "apic",
            ];
            let more = [
                (15, "cmov"),
                (19, "clflush"),
                (23, "mmx"),
                (24, "fxsr"),
                (25, "sse"),
                (26, "sse2"),
            ];
            let features = c.h.hardware_capabilities();
            let all = (0..).zip(names).chain(more);
            let flags: Vec<&str> = all
                .filter(|(bit, _)| features >> bit & 1 != 0)
                .map(|(_, name)| name)
                .collect();
            format!(
                "processor\t: 0\nvendor_id\t: unknown\nmodel name\t: x86-64\ncpu MHz\t\t: 0.000\n\
                 physical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\nflags\t\t: {}\n\n",
                flags.join(" ")
            )
            .into_bytes()
        }
        Text::Sockets(which) => crate::calls::socket::list::list(c, which)?,
        Text::Interfaces(which) => interface::text(c, which)?,
        Text::Interface(which, at) => interface::property(c, which, at)?,
        Text::Ipc(which) => crate::calls::ipc::list(c, which)?.into_bytes(),
        Text::Identifier => identifier(random(c)?),
        Text::Boot => {
            let of_boot = match c.s.boot {
                Some(known) => known,
                None => random(c)?,
            };
            c.s.boot = Some(of_boot);
            identifier(of_boot)
        }
        Text::ControlGroups => "#subsys_name\thierarchy\tnum_cgroups\tenabled\n".into(),
        Text::Empty => Vec::new(),
        Text::VirtualMemory => {
            // Nothing is ever paged in or out.
            let free = c.h.memory_usage().free / 4096;
            format!("nr_free_pages {free}\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\npgfault 0\npgmajfault 0\n")
                .into_bytes()
        }
        Text::Entropy => match c.h.gives_secrets()? {
            true => b"256\n".to_vec(),
            false => b"0\n".to_vec(),
        },
        Text::Descriptor(number, fd) => about_descriptor(c, number, fd)?.into_bytes(),
        Text::Of(number, about) => about_process(c, number, None, about)?,
        Text::OfThread(number, thread, about) => about_process(c, number, Some(thread), about)?,
    })
}

fn random(c: &mut Caller) -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    c.h.random(&mut bytes)?;
    Ok(bytes)
}

/// The UUID of version 4 with these random bytes.
fn identifier(mut bytes: [u8; 16]) -> Vec<u8> {
    (bytes[6], bytes[8]) = (bytes[6] & 0x0f | 0x40, bytes[8] & 0x3f | 0x80);
    let mut out = String::new();
    for (n, byte) in bytes.iter().enumerate() {
        let dash = if [4, 6, 8, 10].contains(&n) { "-" } else { "" };
        let _ = write!(out, "{dash}{byte:02x}");
    }
    out.push('\n');
    out.into_bytes()
}

/// The text of a descriptor under `fdinfo`: offset, flags, mount, inode.
fn about_descriptor(c: &mut Caller, number: u32, fd: u32) -> Result<String> {
    let (_, process) = process(c, number)?;
    let found = look(&process.seen.files, &c.p.files, |files| {
        let fd = files.fds.get(fd)?;
        Some((Rc::clone(&fd.description), fd.cloexec))
    });
    let (description, cloexec) = found.flatten().ok_or(ENOENT)?;
    let (kind, offset, mut flags) = {
        let open = description.borrow();
        (open.kind.clone(), open.offset, open.flags)
    };
    if cloexec {
        flags |= open_flags::CLOEXEC;
    }
    let mut out = String::new();
    // The line that only eventfds and signalfds have.
    let more = match &kind {
        Kind::Counter {
            counter: Counter::Event { count, .. },
            ..
        } => format!("eventfd-count: {count:16x}\n"),
        Kind::Signals { mask, .. } => format!("sigmask:\t{mask:016x}\n"),
        _ => String::new(),
    };
    let (on, ino) = crate::calls::stat::place_of_open(c, kind)?;
    // The numbers of the mounts in `mountinfo`; what is on neither file system gets a third number.
    let mount = match on {
        crate::calls::stat::FILES => 1,
        crate::calls::stat::DISK => 2,
        _ => 3,
    };
    // Writing to a string cannot fail. An offset in memory can be larger than any offset in a file.
    let _ = write!(
        out,
        "pos:\t{}\nflags:\t0{flags:o}\nmnt_id:\t{mount}\nino:\t{ino}\n{more}",
        offset as i64
    );
    Ok(out)
}

fn meminfo(c: &mut Caller) -> String {
    let usage = c.h.memory_usage();
    let mut out = String::new();
    let (total, free) = (usage.total / 1024, usage.free / 1024);
    let lines = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", 0),
        ("Inactive", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", total - free.min(total)),
        ("Mapped", 0),
        ("Shmem", 0),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
        ("CommitLimit", total),
        ("Committed_AS", total - free.min(total)),
    ];
    for (name, kilobytes) in lines {
        let _ = writeln!(out, "{:<15} {kilobytes:>8} kB", format!("{name}:"));
    }
    out
}

/// Bytes of a process's areas: all; private and writable; of the stack; of the program's code.
struct Sizes {
    all: u64,
    data: u64,
    /// Private writable bytes without the stack.
    own: u64,
    stack: u64,
    program: u64,
    /// Executable bytes of other files than the program's.
    library: u64,
    shared: u64,
}

fn sizes(areas: &Areas) -> Sizes {
    let sum = |which: &dyn Fn(&memory::Area) -> bool| areas.bytes(which);
    Sizes {
        all: sum(&|_| true),
        data: areas.writable(),
        own: areas.counted().1,
        stack: sum(&|area| area.kind == memory::Kind::Stack),
        program: sum(&|area| area.is_of_program() && area.prot & memory::EXECUTE != 0),
        library: sum(&|area| {
            let is_other = area.is_of_file() && !area.is_of_program();
            is_other && area.prot & memory::EXECUTE != 0
        }),
        shared: sum(&|area| area.object().is_some()),
    }
}

/// What is known of a process or thread, for the texts about it.
struct Known {
    /// The number of the thread, and that of its process.
    number: u32,
    of: u32,
    /// Processor time; [`Spent::total`] turns it into nanoseconds.
    spent: Spent,
    name: String,
    state: char,
    parent: u32,
    /// The number of the tracer, or 0.
    tracer: u32,
    process: Process,
    sizes: Sizes,
    /// Of the memory: where the heap begins; address and length of the arguments.
    brk: u64,
    args: (u64, u64),
    /// Device number of the controlling terminal, and its foreground group.
    terminal: (u32, i32),
    threads: usize,
    /// Signals that are ignored, and signals that have a handler.
    ignored: u64,
    caught: u64,
    umask: u32,
    descriptors: usize,
}

fn tracer(c: &Caller, pid: Pid) -> u32 {
    let tracer = c.s.trace(pid).filter(|trace| !trace.leaves);
    tracer
        .and_then(|trace| c.s.find(trace.tracer))
        .map_or(0, |tracer| tracer.number)
}

/// What is known of a thread, or (`None`) of a process and its first thread.
fn known(c: &Caller, number: u32, thread: Option<u32>) -> Result<Known> {
    let (pid, process) = process(c, number)?;
    let tid = thread.map_or(Ok(pid), |thread| task(c, pid, thread))?;
    let shown = process.shown(tid);
    let runs = shown.is_some_and(|shown| shown.spent.get().runs());
    let (memory, sizes) = {
        let found = look(&process.seen.memory, &c.p.memory, |memory| {
            ((memory.brk_start, memory.args), sizes(&memory.areas))
        });
        match found.filter(|_| process.status.is_none()) {
            Some(found) => found,
            None => ((0, (0, 0)), sizes(&Areas::default())),
        }
    };
    let state = match (process.status, process.stopped) {
        (Some(_), _) => 'Z',
        _ if c.s.is_trace_stopped(tid) => 't',
        (None, Some(_)) => 'T',
        (None, None) if tid == c.p.task.tid => 'R',
        (None, None) if !process.tasks.contains(&tid) => 'Z',
        (None, None) => match runs {
            true => 'R',
            false => 'S',
        },
    };
    let terminal = match c.s.terminal(pid) {
        Some(pty) => {
            let foreground = c.s.ptys.foreground(pty).unwrap_or(0);
            (136 << 8 | c.s.ptys.shown(pty) & 0xff, foreground as i32)
        }
        None if process.session == CONSOLE_SESSION => (5 << 8 | 1, c.s.foreground(pid) as i32),
        None => (0, -1),
    };
    let handled = |actions: &Actions| {
        (1..=SIGNALS).fold((0, 0), |(ignored, caught), signal| {
            let bit = crate::signal::bit(signal);
            match (actions.is_set_to_ignore(signal), actions.is_caught(signal)) {
                (true, _) => (ignored | bit, caught),
                (_, true) => (ignored, caught | bit),
                _ => (ignored, caught),
            }
        })
    };
    let (ignored, caught) = look(&process.seen.actions, &c.p.actions, handled).unwrap_or_default();
    let name = shown.map(|shown| shown.comm()).unwrap_or_default();
    Ok(Known {
        number: thread.unwrap_or(number),
        of: number,
        spent: match (thread, shown) {
            (Some(_), Some(shown)) => shown.spent.get(),
            _ => process.spent.get(),
        },
        name: String::from_utf8_lossy(&name).into_owned(),
        state,
        parent: c.s.parent_number(pid),
        tracer: tracer(c, pid),
        sizes,
        brk: memory.0,
        args: memory.1,
        terminal,
        threads: process.tasks.len(),
        ignored,
        caught,
        umask: look(&process.seen.context, &c.p.context, |context| context.umask).unwrap_or(0),
        descriptors: look(&process.seen.files, &c.p.files, |files| files.fds.len()).unwrap_or(0),
        process: process.clone(),
    })
}

fn about_process(
    c: &mut Caller,
    number: u32,
    thread: Option<u32>,
    about: About,
) -> Result<Vec<u8>> {
    let pid = seen(c, number).map_err(|_| ESRCH)?;
    let tid = thread.map_or(Ok(pid), |thread| task(c, pid, thread));
    let tid = tid.map_err(|_| ESRCH)?;
    Ok(match about {
        About::Name => {
            let (_, process) = process(c, number)?;
            let shown = process.shown(tid);
            let mut name = shown.map(|shown| shown.comm()).unwrap_or_default();
            name.push(b'\n');
            name.to_vec()
        }
        // Of another process only the name is kept: its arguments with blanks between them.
        About::Arguments => {
            let (_, process) = process(c, number)?;
            let name = look(&process.seen.memory, &c.p.memory, |memory| memory.name.clone());
            let name = name.filter(|_| process.status.is_none()).unwrap_or_default();
            let mut bytes = name.replace(' ', "\0").into_bytes();
            if !bytes.is_empty() {
                bytes.push(0);
            }
            bytes
        }
        About::AuxiliaryVector => crate::calls::peer::auxiliary_vector(c, number)?,
        About::ControlGroups => "0::/\n".into(),
        // No process is ever killed for lack of memory.
        About::KillScore => "0\n".into(),
        About::KillScoreChange => {
            let (_, process) = process(c, number)?;
            format!("{}\n", process.chosen.kill_score).into()
        }
        About::Maps | About::Environment | About::Memory | About::Said => Vec::new(),
        About::Io => "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n".into(),
        About::Mounts => match has_disk(c)? {
            true => [MOUNTS, MOUNT_OF_DISK].concat().into(),
            false => MOUNTS.into(),
        },
        About::MountInfo => match has_disk(c)? {
            true => [MOUNT_INFO, MOUNT_INFO_OF_DISK].concat().into(),
            false => MOUNT_INFO.into(),
        },
        About::Limits => limits(c, pid).into_bytes(),
        About::Stat => {
            let each = crate::calls::time::each(c);
            stat(&known(c, number, thread)?, each).into_bytes()
        }
        About::Statm => {
            let sizes = known(c, number, thread)?.sizes;
            let pages = |bytes: u64| bytes / memory::PAGE;
            format!(
                "{} {} {} {} 0 {} 0\n",
                pages(sizes.all),
                pages(sizes.data + sizes.program + sizes.library),
                pages(sizes.shared),
                pages(sizes.program),
                pages(sizes.data)
            )
            .into_bytes()
        }
        About::Status => {
            let own = (tid == c.p.task.tid).then_some(&c.p.task.signals);
            let of_it = own.map_or((0, 0), |own| (own.mask, own.pending.set()));
            status(&known(c, number, thread)?, of_it).into_bytes()
        }
    })
}

/// Whether there is a disk that can be used.
fn has_disk(c: &mut Caller) -> Result<bool> {
    let found = c.fs(&Request::Usage { on_disk: true }).is_ok();
    match c.h.waits() {
        true => Err(Stop::Park(Wake::firm())),
        false => Ok(found),
    }
}

/// Writes to a text: the name of a thread of the calling process, or an `oom_score_adj`. Errors: those of Linux.
pub fn write(c: &mut Caller, text: Text, bytes: &[u8]) -> Result<()> {
    match text {
        Text::Of(number, About::KillScoreChange)
        | Text::OfThread(number, _, About::KillScoreChange) => set_kill_score(c, number, bytes),
        _ => set_name(c, text, bytes),
    }
}

/// Whether the process that calls is the one with this number, and may say so many bytes to who started it.
pub fn may_say(c: &mut Caller, number: u32, length: u64) -> Result<()> {
    // Others of its tree may not speak for it, also by a descriptor that they have from it.
    if seen(c, number).map_err(|_| EACCES)? != c.p.task.pid {
        return Err(EACCES.into());
    }
    Ok(c.process().said.makes_room(length)?)
}

fn set_kill_score(c: &mut Caller, number: u32, bytes: &[u8]) -> Result<()> {
    let written = core::str::from_utf8(bytes).ok();
    let score = written.and_then(|written| written.trim().parse().ok());
    let score = score.filter(|score| Chosen::KILL_SCORES.contains(score));
    let score = score.ok_or(EINVAL)?;
    let (own, pid) = (c.p.task.pid, seen(c, number).map_err(|_| ESRCH)?);
    c.s.may_signal(own, pid).map_err(|_| EACCES)?;
    let is_root = c.process().ids.is_root();
    let chosen = &mut c.s.process(pid).chosen;
    if score < chosen.kill_score && !is_root {
        return Err(EACCES.into());
    }
    chosen.kill_score = score;
    Ok(())
}

fn set_name(c: &mut Caller, text: Text, name: &[u8]) -> Result<()> {
    let (number, thread) = match text {
        Text::Of(number, About::Name) => (number, None),
        Text::OfThread(number, thread, About::Name) => (number, Some(thread)),
        _ => return Err(EBADF.into()),
    };
    let pid = seen(c, number).map_err(|_| ESRCH)?;
    let tid = thread.map_or(Ok(pid), |thread| task(c, pid, thread));
    let tid = tid.map_err(|_| ESRCH)?;
    if pid != c.p.task.pid {
        return Err(EINVAL.into());
    }
    if let Some(shown) = c.process().shown(tid) {
        shown.set_comm(name);
    }
    Ok(())
}

/// For how many ticks Linux programs have had the processor, and for how many not.
fn idle(c: &mut Caller) -> (u64, u64) {
    let now = c.h.now();
    let busy = c.s.work.all(now);
    (busy / TICK, now.saturating_sub(busy) / TICK)
}

/// The text `stat` of a process. `each` is the processor time of a task that has never waited.
fn stat(known: &Known, each: u64) -> String {
    let Known { process, sizes, .. } = known;
    let started = process.started / TICK;
    let [spent, by_children] =
        [known.spent.total(each), process.spent_by_children].map(|time| time / TICK);
    let resident = (sizes.data + sizes.program + sizes.library) / memory::PAGE;
    let exit_signal = process.exit_signal;
    let nice = i32::from(process.chosen.nice);
    let priority = 20 + nice;
    format!(
        "{} ({}) {} {} {} {} {} {} 4194304 0 0 0 0 {spent} 0 {by_children} 0 {priority} {nice} {} 0 {started} {} {resident} 18446744073709551615 \
         0 0 {} 0 0 {} 0 {} {} 0 0 0 {exit_signal} 0 0 0 0 0 0 0 0 {} {} {} 0 0 0\n",
        known.number,
        known.name,
        known.state,
        known.parent,
        process.group,
        process.session,
        known.terminal.0,
        known.terminal.1,
        known.threads,
        sizes.all,
        known.args.0,
        process.pending.set(),
        known.ignored,
        known.caught,
        known.brk,
        known.args.0,
        known.args.0.saturating_add(known.args.1),
    )
}

/// The text `status`. `blocked`, `pending`: signals of the thread itself.
fn status(known: &Known, (blocked, pending): (u64, u64)) -> String {
    let Known { process, sizes, .. } = known;
    let state = match known.state {
        'R' => "R (running)",
        'T' => "T (stopped)",
        't' => "t (tracing stop)",
        'Z' => "Z (zombie)",
        _ => "S (sleeping)",
    };
    let [uid, gid] = [process.ids.uid, process.ids.gid];
    let all = (1u64 << CAPABILITIES) - 1;
    let has = if process.ids.is_root() { all } else { 0 };
    let bound = all & !process.dropped;
    let kilobytes = |bytes: u64| bytes / 1024;
    let mut out = format!(
        "Name:\t{}\nUmask:\t{:04o}\nState:\t{state}\nTgid:\t{}\nNgid:\t0\nPid:\t{}\nPPid:\t{}\nTracerPid:\t{}\n\
         Uid:\t{}\t{}\t{}\t{}\nGid:\t{}\t{}\t{}\t{}\nFDSize:\t{}\nGroups:\t{}\n",
        known.name,
        known.umask,
        known.of,
        known.number,
        known.parent,
        known.tracer,
        uid[0],
        uid[1],
        uid[2],
        uid[1],
        gid[0],
        gid[1],
        gid[2],
        gid[1],
        known.descriptors.next_multiple_of(64).min(MAX_FDS as usize),
        gid[1],
    );
    if known.state != 'Z' {
        let lines = [
            ("VmPeak", sizes.all),
            ("VmSize", sizes.all),
            ("VmLck", 0),
            ("VmHWM", sizes.data + sizes.program + sizes.library),
            ("VmRSS", sizes.data + sizes.program + sizes.library),
            ("RssAnon", sizes.data),
            ("RssFile", sizes.program + sizes.library),
            ("RssShmem", sizes.shared),
            ("VmData", sizes.own),
            ("VmStk", sizes.stack),
            ("VmExe", sizes.program),
            ("VmLib", sizes.library),
            ("VmSwap", 0),
        ];
        for (name, bytes) in lines {
            let _ = writeln!(out, "{name}:\t{:>8} kB", kilobytes(bytes));
        }
    }
    let _ = write!(
        out,
        "Threads:\t{}\nSigQ:\t0/0\nSigPnd:\t{:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{:016x}\n\
         SigCgt:\t{:016x}\nCapInh:\t0000000000000000\nCapPrm:\t{has:016x}\nCapEff:\t{has:016x}\n\
         CapBnd:\t{bound:016x}\nCapAmb:\t0000000000000000\nNoNewPrivs:\t{}\nSeccomp:\t0\nCpus_allowed:\t1\n\
         Cpus_allowed_list:\t0\nvoluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n",
        known.threads,
        pending,
        process.pending.set(),
        known.ignored,
        known.caught,
        u32::from(process.chosen.gains_nothing),
    );
    out
}

fn limits(c: &mut Caller, pid: Pid) -> String {
    const NAMES: [(&str, &str); 16] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let mut out = format!(
        "{:<25} {:<20} {:<20} {:<10}\n",
        "Limit", "Soft Limit", "Hard Limit", "Units"
    );
    let shown = |limit: u64| match limit {
        u64::MAX => "unlimited".to_string(),
        limit => limit.to_string(),
    };
    let process = c.s.process(pid);
    for (which, (name, unit)) in (0..linux::RLIM_NLIMITS).zip(NAMES) {
        let (soft, hard) = process.limit(which);
        let _ = writeln!(
            out,
            "{name:<25} {:<20} {:<20} {unit:<10}",
            shown(soft),
            shown(hard)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{find, Folder, FIXED, LINKS, RELEASE_LINE, VERSION};
    use crate::calls::system::RELEASE;
    use crate::special::Special;

    #[test]
    fn the_release_is_one() {
        assert_eq!(RELEASE_LINE.trim(), RELEASE);
        assert!(VERSION.contains(RELEASE));
        assert!(
            FIXED.windows(2).all(|w| w[0].0 < w[1].0),
            "they are in order"
        );
        assert_eq!(LINKS.len(), 3);
    }

    #[test]
    fn directories_have_the_paths_by_which_they_are_found() {
        for path in [
            "/dev",
            "/dev/pts",
            "/proc",
            "/proc/5",
            "/proc/5/fd",
            "/proc/5/fdinfo",
            "/proc/5/task",
            "/proc/5/task/6",
            "/proc/sys",
            "/proc/sys/kernel",
            "/proc/sys/kernel/random",
            "/sys",
            "/sys/devices/system/cpu",
        ] {
            match find(path, 7, 7) {
                Some(Special::Folder(folder)) => {
                    assert!(folder.path() == path && folder.is_sound())
                }
                other => panic!("{path}: {other:?}"),
            }
        }
        for path in [
            "/proc/05",
            "/proc/x",
            "/proc/5/x",
            "/proc/sy",
            "/dev/shm",
            "/dev/shm/x",
            "/sy",
            "/process",
        ] {
            assert_eq!(find(path, 7, 7), None, "{path}");
        }
        assert!(!Folder::Fixed(3, 2).is_sound() && !Folder::Fixed(u16::MAX, 5).is_sound());
    }
}
