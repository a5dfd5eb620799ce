//! Ports by name, and the end of one's own process.
//!
//! Every native process has a port of its own at init, its `START_NAMES`: what comes from there, comes from that
//! process.
use interface::{interface, Error};

/// Names that only the servers of the boot manifest have: nobody else can register them, even while
/// the server is not there. So are those of drivers that the boot archive adds.
pub const RESERVED: [&str; 15] = [
    "names",
    "memory",
    "native",
    "fs",
    "device",
    "disk",
    "ext4",
    "link",
    "entropy",
    "net",
    "sound",
    "console",
    "linux",
    "random",
    "checkpoint",
];
/// Most names that one job may register (see [`crate::process::MAX_JOB`]).
pub const MAX_JOB_NAMES: usize = 32;

/// What a process can ask init.
#[interface(shared)]
pub trait Names {
    /// Ends the process with this status. The reply, if there is one, says that it is not the time: the process is
    /// frozen. Errors: `WouldBlock`, for that. May be repeated.
    fn exit(&self, status: u8) -> Result<(), Error>;
    /// The port of that name, for example `fs`, `console`, `linux`, `native`, `checkpoint`. Errors: `NotFound`; `Broken` if
    /// its server is being started, for the first time or anew. May be repeated.
    fn lookup(&self, name: &str) -> Result<Ref, Error>;
    /// Makes the port known by that name. The name is free again when the process ends. Errors: `Exists` if it is
    /// taken by another port, `Denied` if it is reserved, `Limit` if the job has [`MAX_JOB_NAMES`], `NameTooLong`,
    /// `Invalid` if it is no port. May be repeated.
    fn register(&self, port: &RefAt, name: &str) -> Result<(), Error>;
    /// As `register`, for a server that has a port by which it is controlled (the supervisor port of a manager of
    /// processes, the control of the console), which goes to whoever has the system port. Errors: those of
    /// `register`. May be repeated.
    fn register_with(&self, port: &RefAt, control: &RefAt, name: &str) -> Result<(), Error>;
    /// For a server: whose port this is, which a client of it has presented as its own port at init. The number of the
    /// first process of the client's job; 0 for servers, the shell and init. Errors: `Denied` if it is no such port.
    /// May be repeated.
    fn job(&self, client: &RefAt) -> Result<u32, Error>;
    /// The date: nanoseconds since the beginning of 1970, UTC. It goes on with the machine's clock from what the real-time clock said at
    /// boot, and jumps for a program that is restored. Errors: `NotFound` if the machine does not know it. May be repeated.
    fn date(&self) -> Result<u64, Error>;
    /// The port by which another server is controlled, for a server of which the boot manifest says that it uses that
    /// one, and for the server of random bytes that of the device of random numbers. Errors: `Denied` to all others,
    /// `NotFound`. May be repeated.
    fn control(&self, server: &str) -> Result<Ref, Error>;
}
