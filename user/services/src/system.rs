//! Power over the machine. Its door is the system port of init, which init gives to the shell and to the test runner,
//! in [`PASSED`]; they may pass it on.
//!
//! It is also asked for what people want to see of the machine: drivers, kernel objects, and who waits for whom. What is told of objects is
//! what their states say; nobody is stopped for it, and no power over anything comes back.
use crate::process::{Pid, Status};
use alloc::string::String;
use alloc::vec::Vec;
use interface::{interface, Error};
use serde::{Deserialize, Serialize};

/// Where the system port stands among the references that a program is started with.
pub const PASSED: usize = 0;

/// What the holder of the system port can ask.
#[interface]
pub trait System {
    /// Powers the machine off with this exit status, after the files that `/etc/gets` of the boot archive lists
    /// have gone out over the control channel. Errors: none of its own. May be repeated.
    fn power_off(&self, status: u8) -> Result<(), Error>;
    /// Writes one line to the control channel, over which tests report. Errors: none of its own. Must not be
    /// repeated.
    #[once]
    fn report(&self, line: &[u8]) -> Result<(), Error>;
    /// The port by which a server is controlled: the supervisor port of a manager of processes, `native` or `linux`;
    /// the control of the `console`. Errors: `NotFound`. May be repeated.
    fn control(&self, server: &str) -> Result<Ref, Error>;
    /// Makes the port known by that name, even if it is reserved, instead of what was known by it. Nobody who has the
    /// old port is told. Errors: `NameTooLong`, `Invalid` if it is no port, `Limit` if there are
    /// as many names as there may be. May be repeated.
    fn register(&self, port: &RefAt, name: &str) -> Result<(), Error>;
    /// The [`Driver`] with this number in the boot manifest, encoded. Errors: `NotFound` behind the last. May be repeated.
    fn driver(&self, number: u32) -> Result<Bytes, Error>;
    /// Kernel objects of a native process, the first of them at this spot or behind it: a list of [`Object`], encoded,
    /// of at most [`MOST_OBJECTS`]. And the spot from which there may be more, [`NOWHERE`] behind the last: a list can
    /// be empty and not be the last one. Errors: `NotFound`, `Ended`. May be repeated.
    fn objects(&self, pid: u32, from: u64) -> Result<(u64, Bytes), Error>;
    /// Whom the threads of a native process wait for that wait in a call: a list of [`Wait`], encoded, as far as it was
    /// found out among the native processes from `other` on, of that the objects from spot `at` on. And where the
    /// search is to go on, a process and a spot; process [`NOBODY`] when it is over. It takes at most [`MOST_COMPARED`]
    /// comparisons at a time. Errors: `NotFound`, `Ended`. May be repeated.
    fn waits(&self, pid: u32, other: u32, at: u64) -> Result<(u32, u64, Bytes), Error>;
    /// What the objects of a native process that [`System::objects`] lists for `from` have to do with objects of native
    /// processes: a list of [`Link`], encoded. How the search goes on, and how far it goes at a time, is as for
    /// `waits`. Errors: `NotFound`, `Ended`. May be repeated.
    fn links(&self, pid: u32, from: u64, other: u32, at: u64) -> Result<(u32, u64, Bytes), Error>;
}

/// Stands for no spot where a list is over.
pub const NOWHERE: u64 = u64::MAX;
/// Most objects that are listed at a time.
pub const MOST_OBJECTS: usize = 32;
/// Most threads of a process whose waits are looked at.
pub const MOST_WAITS: usize = 32;
/// Most comparisons of references at a time: everybody else who asks init waits for them.
pub const MOST_COMPARED: usize = 1024;
/// Stands for no process where a search is over.
pub const NOBODY: Pid = Pid::MAX;

/// A driver of the boot manifest, or a server that is kept alive like one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// The name of its service.
    pub name: String,
    /// The program.
    pub program: String,
    /// The driver that it uses.
    pub uses: Option<String>,
    /// How it is.
    pub state: DriverState,
    /// The number of its process at `native`; 0 if there is none.
    pub pid: Pid,
    /// How often it has ended.
    pub deaths: u32,
    /// In how many of these somebody had killed it.
    pub wanted: u32,
    /// The last time.
    pub last: Option<Death>,
}

/// How a driver is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriverState {
    /// The machine has no device for it, or nothing that it uses.
    Absent,
    /// There is a process.
    Running,
    /// It has ended and is being started anew.
    Starting,
    /// It is not started any more: why.
    GivenUp(String),
}

/// The end of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// When, in nanoseconds since the machine began.
    pub at_ns: u64,
    /// How.
    pub status: Status,
    /// The exception that it met, in words; empty if it met none.
    pub why: String,
}

/// A kernel object of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Where it is: its offset in the control segment, or, with [`crate::process::IN_MEMORY`] added, in the memory segment.
    pub spot: u64,
    /// Its type, by name.
    pub kind: String,
    /// What its state says, in words.
    pub what: String,
}

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Its place among the threads of its process, as [`crate::process::Info`] has them.
    pub thread: u32,
    /// An address of its own, or 0: the object that it waits at.
    pub at: u64,
    /// Who is at the other end.
    pub on: On,
}

/// Who is at the other end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum On {
    /// This native process: it has the port, or the thread with which it is connected.
    Process(Pid),
    /// Whoever unlocks the mutex, or signals the condition. Neither has an owner.
    Anybody,
    /// The memory server: a page is to come.
    Memory,
    /// Its manager, which has its exception.
    Manager,
    /// Init: the port is one of those that every process has there.
    Init,
    /// Nobody: what it waited at is dead.
    Dead,
    /// It was not found among what the search has looked at so far.
    Unknown,
}

/// An object has a reference to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The spot of the object that was asked about.
    pub spot: u64,
    /// The process of the other one.
    pub other: Pid,
    /// Its spot there.
    pub at: u64,
    /// Whether it is the other one that is a reference and names the one at `spot`. Else the one at `spot` is, and names the other.
    pub named: bool,
}

/// Encoded, if there is room for it.
///
/// # Errors
/// [`Error::Limit`] if there is none.
pub fn encoded<T: Serialize + ?Sized>(it: &T, room: usize) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_allocvec(it).map_err(|_| Error::NoMemory)?;
    (bytes.len() <= room).then_some(bytes).ok_or(Error::Limit)
}

/// As it came.
///
/// # Errors
/// [`Error::Broken`] if it is nothing of the kind.
pub fn decoded<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes).map_err(|_| Error::Broken)
}
