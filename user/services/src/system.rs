//! Power over the machine. Its door is the system port of init, which init gives to the shell and to the test runner,
//! in [`PASSED`]; they may pass it on.
//!
//! It also answers what people want to see of the machine: drivers, kernel objects, and which thread waits for which
//! process. Objects are described from their exported states; no thread is stopped for that, and no reference is
//! returned.
use crate::process::{Pid, Status};
use alloc::string::String;
use alloc::vec::Vec;
use interface::{interface, Error};
use serde::{Deserialize, Serialize};

/// The index of the system port among the references that a program is started with.
pub const PASSED: usize = 0;

/// The requests of holders of the system port.
#[interface]
pub trait System {
    /// Powers the machine off with this exit status, after the files that `/etc/gets` of the boot archive lists
    /// have gone out over the control channel. Errors: none of its own. May be repeated.
    fn power_off(&self, status: u8) -> Result<(), Error>;
    /// Writes one line to the control channel, over which tests report. Errors: none of its own. Must not be
    /// repeated.
    #[once]
    fn report(&self, line: &[u8]) -> Result<(), Error>;
    /// The control port of a server: the supervisor port of a manager of processes, `native` or `linux`; the control of
    /// the `console`. Errors: `NotFound`. May be repeated.
    fn control(&self, server: &str) -> Result<Ref, Error>;
    /// Makes the port known by that name, even if the name is reserved, in place of an earlier port. Holders of the old
    /// port are not notified. Errors: `NameTooLong`, `Invalid` if it is no port, `Limit` if there are as many names as
    /// there may be. May be repeated.
    fn register(&self, port: &RefAt, name: &str) -> Result<(), Error>;
    /// The [`Driver`] with this number in the boot manifest, encoded. Errors: `NotFound` behind the last. May be
    /// repeated.
    fn driver(&self, number: u32) -> Result<Bytes, Error>;
    /// Kernel objects of a native process, from this spot on. Returns the spot from which there may be more,
    /// [`NOWHERE`] behind the last, and a list of at most [`MOST_OBJECTS`] [`Object`], encoded: a list can be empty and
    /// not be the last one. Errors: `NotFound`, `Ended`. May be repeated.
    fn objects(&self, pid: u32, from: u64) -> Result<(u64, Bytes), Error>;
    /// What the waiting threads of a native process wait for: a list of [`Wait`], encoded, as far as a step of the
    /// search found it. The step searches the native processes from `other` on, of `other` the objects from spot `at`
    /// on, with at most [`MOST_COMPARED`] comparisons. Also returns where the next step begins, a process and a spot;
    /// process [`NOBODY`] when the search is complete. Errors: `NotFound`, `Ended`. May be repeated.
    fn waits(&self, pid: u32, other: u32, at: u64) -> Result<(u32, u64, Bytes), Error>;
    /// The links between the objects of a native process that [`System::objects`] lists for `from` and objects of
    /// native processes: a list of [`Link`], encoded. The search is done in steps, as for `waits`. Errors: `NotFound`,
    /// `Ended`. May be repeated.
    fn links(&self, pid: u32, from: u64, other: u32, at: u64) -> Result<(u32, u64, Bytes), Error>;
}

/// Stands for no spot: the list is complete.
pub const NOWHERE: u64 = u64::MAX;
/// Most objects that are listed at a time.
pub const MOST_OBJECTS: usize = 32;
/// Most threads of a process whose waits are searched for.
pub const MOST_WAITS: usize = 32;
/// Most comparisons of references at a time: all other clients of init wait for them.
pub const MOST_COMPARED: usize = 1024;
/// Stands for no process: the search is complete.
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
    /// Its state.
    pub state: DriverState,
    /// The number of its process at `native`; 0 if there is none.
    pub pid: Pid,
    /// How often it has ended.
    pub deaths: u32,
    /// How many of these were kills by request.
    pub wanted: u32,
    /// Its last end.
    pub last: Option<Death>,
}

/// The state of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriverState {
    /// The machine has no device for it, or lacks the driver that it uses.
    Absent,
    /// It has a process.
    Running,
    /// It has ended and is being started again.
    Starting,
    /// It is not started any more, for this reason.
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
    /// Its place: the offset in the control segment, or, with [`crate::process::IN_MEMORY`] added, in the memory
    /// segment.
    pub spot: u64,
    /// Its type, by name.
    pub kind: String,
    /// Its state in words.
    pub what: String,
}

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Its place among the threads of its process, as [`crate::process::Info`] has them.
    pub thread: u32,
    /// The address in its space of the object that it waits at, or 0.
    pub at: u64,
    /// What is at the other end.
    pub on: On,
}

/// What is at the other end of a wait: what can end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum On {
    /// This native process: it has the port, or the thread with which it is connected.
    Process(Pid),
    /// Any thread that unlocks the mutex, or signals the condition. Neither has an owner.
    Anybody,
    /// The memory server, which is to supply a page.
    Memory,
    /// The manager of its process, which handles its exception.
    Manager,
    /// Init: the port is one of those that every process has there.
    Init,
    /// Nothing: the object that it waited at is dead.
    Dead,
    /// Not found in the part that the search has covered so far.
    Unknown,
}

/// A relation between two objects, of which one is a reference that names the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The spot of the listed object.
    pub spot: u64,
    /// The process of the other object.
    pub other: Pid,
    /// Its spot there.
    pub at: u64,
    /// Whether the other object is the reference, and names the one at `spot`; else the one at `spot` is, and names the
    /// other.
    pub named: bool,
}

/// Encodes it, if there is room.
///
/// # Errors
/// [`Error::Limit`] if there is none.
pub fn encoded<T: Serialize + ?Sized>(it: &T, room: usize) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_allocvec(it).map_err(|_| Error::NoMemory)?;
    (bytes.len() <= room).then_some(bytes).ok_or(Error::Limit)
}

/// Decodes a value of this type.
///
/// # Errors
/// [`Error::Broken`] if the bytes are no such value.
pub fn decoded<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes).map_err(|_| Error::Broken)
}
