//! Processes. Two servers speak this protocol: `native` (in init) and `linux` (the personality).
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
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
    #[serde(deserialize_with = "few")]
    pub args: Vec<String>,
    /// Environment, `NAME=value`.
    #[serde(deserialize_with = "few")]
    pub env: Vec<String>,
    /// Standard input, output and error; empty means console.
    #[serde(deserialize_with = "few")]
    pub stdio: Vec<Stdio>,
    /// Path of the working directory.
    pub cwd: String,
}

/// Most arguments, strings of the environment, and streams.
pub const MAX_STRINGS: usize = 4096;

/// A list of at most [`MAX_STRINGS`]. An empty string is one byte of a message and 24 of a reader's memory.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<Vec<T>, D::Error> {
    struct Few<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX_STRINGS}")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                if all.len() == MAX_STRINGS {
                    return Err(A::Error::custom("too many"));
                }
                all.push(one);
            }
            Ok(all)
        }
    }
    reader.deserialize_seq(Few(PhantomData))
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

/// What everybody can ask of a manager, by its name. What one may do with a process is the *control
/// port* that comes back; whoever holds it may pass it on, and thereby the power.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Starts a program. Reply: `Pid`, and one reference, the control port of the process.
    /// References: the port of the caller at init (`START_NAMES`), for whom the process counts; for
    /// `native` up to `MAX_PASSED` more, which are passed on to the program.
    Spawn {
        /// Absolute path of the executable.
        path: String,
        /// How it starts.
        start: Start,
    },
    /// For a checkpointer: a process that is to be rebuilt, with empty segments and without any
    /// object. It counts for the process whose port at init is in the first reference. Reply: `Pid`, and
    /// references: the control port, the port to set as the keeper of the space, the memory
    /// region, the control region, and if the process itself will know it its memory account. It is filled through these, and by [`Control::Populate`] and
    /// [`Control::Rebuild`]; the process is frozen until `Thaw`.
    Adopt,
    /// Whether the first reference is the control port of a process of this manager. Reply: `Pid`.
    /// For a server that was given one: it must not call a port of which it does not know whose it is.
    Verify,
    /// To `native`, from a manager: for which job the process counts whose port at init is in the first
    /// reference. Reply: `Pid`, that of the first process of the job.
    Job,
}

/// What one can ask of the control port of a process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Control {
    /// Reply: `Status`.
    Status,
    /// Forgets the process, which has ended: its number is free, this port dies. Reply: its `Status`.
    Reap,
    /// Ends it; when the reply comes it is gone (all of it but its status).
    Kill,
    /// Stops all its threads.
    Stop,
    /// Undoes one `Stop`.
    Continue,
    /// Reply: `Info`.
    Info,
    /// The thread in the first reference is interrupted whenever the process changes its status. At
    /// most [`MAX_WATCHERS`] for each process.
    Watch,
    /// For a checkpointer: stops the threads, completes nothing for the process until `Thaw`, and
    /// gives the manager's part of its state. Reply: `Frozen` with the part as bulk (it may be cut
    /// at `MAX_BULK`: ask on with `Part`) and references: memory and control region, and if the process
    /// itself knows it its memory account.
    Freeze,
    /// The manager's part from this offset on, while frozen. Reply: `Done` with bulk.
    Part(u64),
    /// Undoes one `Freeze`.
    Thaw,
    /// While it is being rebuilt: makes pages present, so that touching them cannot fail. More than
    /// [`MAX_POPULATE`] bytes are `Invalid`: nobody else is answered meanwhile.
    Populate {
        /// In the control segment, not in memory.
        control: bool,
        /// First byte, a multiple of the page size.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// While it is being rebuilt: a piece of the manager's part, the bulk. When all is there it is
    /// checked; a part that makes no sense is refused with `BadFormat`, and the process ends.
    Rebuild {
        /// Where the piece belongs: behind those before.
        offset: u64,
        /// Length of the whole part.
        length: u64,
        /// What the checkpointer adds to the machine's clock for this process.
        clock_offset: u64,
    },
}

/// What one can ask of a manager's supervisor port, which it hands to init when it registers its name,
/// and which init gives to whoever has the system port ([`crate::system`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Supervise {
    /// Reply: `Info`, of the first process that has this number or a higher one; `NotFound` if there is none.
    Next(Pid),
    /// Reply: `Pid`, and one reference, the control port of the process with this number.
    Control(Pid),
}

/// Most bytes of one [`Control::Populate`].
pub const MAX_POPULATE: u64 = 64 << 10;
/// Most watchers of one process.
pub const MAX_WATCHERS: usize = 16;
/// Most processes of one job at each manager: of what a server or the shell has started, and of
/// all that was started by it in turn.
pub const MAX_JOB: usize = 32;

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// A process.
    Pid(Pid),
    /// The status asked for.
    Status(Status),
    /// The process.
    Info(Info),
    /// See [`Control::Freeze`].
    Frozen {
        /// Length of the whole part.
        length: u64,
        /// The process's name.
        name: String,
    },
}
