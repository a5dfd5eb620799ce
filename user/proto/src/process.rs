//! Processes. Two servers speak this protocol: `native` (in init) and `linux` (the personality).
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Name of the ELF note that every native program carries, which tells it from a Linux program.
pub const NATIVE_NOTE: &str = "Fermata";

/// A process number, unique within its manager while the process or its status is kept.
pub type Pid = u32;

/// Where a standard stream goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// The console.
    Console,
    /// Nowhere; reads end at once.
    Null,
    /// A file.
    File {
        /// Absolute path.
        path: String,
        /// For output: make it if needed and write at its end; otherwise it is cut to nothing
        /// (and made) when opened for output.
        append: bool,
    },
}

/// What a native program finds at [`crate::layout::START_INFO`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Arguments; the first is the program's name.
    pub args: Vec<String>,
    /// Environment, `NAME=value`.
    pub env: Vec<String>,
    /// Standard input, output and error; empty means console.
    pub stdio: Vec<Stdio>,
    /// Path of the working directory.
    pub cwd: String,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Runs or waits.
    Running,
    /// Stopped by `Stop`.
    Stopped,
    /// Ended by itself with this exit status.
    Exited(u8),
    /// Ended by this Linux signal number (9 for `Kill`, 11 for a bad access, ...).
    Killed(u8),
}

/// A thread, as its exported state shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its `rip`.
    pub rip: u64,
    /// Its `rax`: the entrypoint that it is about to call, while it waits.
    pub rax: u64,
    /// [`abi::state::Waiting`] by number.
    pub waiting: u8,
    /// Stop count.
    pub stops: u32,
    /// 1 while an exception is delivered and not answered (for Linux: a Linux call, in `rax`).
    pub exception: u8,
}

/// A process, for `ps`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Info {
    /// Its number.
    pub pid: Pid,
    /// Command.
    pub name: String,
    /// Status.
    pub status: Status,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// What each thread is about to do, in words, for people (same order as `threads`).
    pub doing: Vec<String>,
    /// Resident bytes.
    pub resident: u64,
    /// Kernel objects in its segments.
    pub objects: u32,
}

/// What one can ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Starts a program. Reply: `Pid`. `native` also takes up to `MAX_PASSED` references.
    Spawn {
        /// Absolute path of the executable.
        path: String,
        /// How it starts.
        start: Start,
    },
    /// To the manager's port of the process itself: it ends with this status. There is no reply.
    Exit(u8),
    /// The thread in the first reference is interrupted whenever a process of this manager changes
    /// its status.
    Watch,
    /// Reply: `Status`.
    Status(Pid),
    /// Forgets an ended process, so that its number is free. Reply: its `Status`.
    Reap(Pid),
    /// Ends it; when the reply comes it is gone (all of it but its status).
    Kill(Pid),
    /// Stops all its threads.
    Stop(Pid),
    /// Undoes one `Stop`.
    Continue(Pid),
    /// Reply: `List`.
    List,
    /// For a checkpointer: stops the threads, completes nothing for the process until `Thaw`, and
    /// gives the manager's part of its state. Reply: `Frozen` with the part as bulk (it may be cut
    /// at `MAX_BULK`: ask on with `Part`) and two references: memory and control region.
    Freeze(Pid),
    /// The manager's part from this offset on, while frozen. Reply: `Done` with bulk.
    Part(Pid, u64),
    /// Undoes one `Freeze`.
    Thaw(Pid),
    /// For a checkpointer: takes over a process that it is rebuilding. The part is the bulk (first
    /// piece; `AdoptPart` brings the rest). References: memory region, memory control port, control
    /// region, control control port. Reply: `Pid`, and one reference: the port to set as the
    /// keeper of the space. The process is frozen until `Thaw`.
    Adopt {
        /// Length of the whole part.
        length: u64,
        /// What the checkpointer adds to the machine's clock for this process.
        clock_offset: u64,
    },
    /// More of the part: the bulk, at this offset. When all is there it is checked; a part that
    /// makes no sense is refused with `BadFormat` and the process is forgotten.
    AdoptPart(Pid, u64),
}

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// A new process.
    Pid(Pid),
    /// The status asked for.
    Status(Status),
    /// All processes.
    List(Vec<Info>),
    /// See [`Request::Freeze`].
    Frozen {
        /// Length of the whole part.
        length: u64,
        /// The process's name.
        name: String,
    },
}
