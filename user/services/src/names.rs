//! Ports by name, and the end of one's own process.
//!
//! Every native process has a port of its own at init, its `START_NAMES`: a request there comes from that process or in
//! its name.
use interface::{interface, Error};

/// Names that only the servers of the boot manifest have: nobody else can register them, even while the server does not
/// run. The names of drivers that the boot archive adds are reserved, too.
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

/// The requests of a process to init.
#[interface(shared)]
pub trait Names {
    /// Ends the process with this status. There is a reply only if the process cannot end now, because it is frozen.
    /// Errors: `WouldBlock` in that case. May be repeated.
    fn exit(&self, status: u8) -> Result<(), Error>;
    /// The port of that name, for example `fs`, `console`, `linux`, `native`, `checkpoint`. Errors: `NotFound`;
    /// `Broken` while its server is being started, for the first time or again. May be repeated.
    fn lookup(&self, name: &str) -> Result<Ref, Error>;
    /// Makes the port known by that name. The name is free again when the process ends. Errors: `Exists` if it is
    /// taken by another port, `Denied` if it is reserved, `Limit` if the job has [`MAX_JOB_NAMES`], `NameTooLong`,
    /// `Invalid` if it is no port. May be repeated.
    fn register(&self, port: &RefAt, name: &str) -> Result<(), Error>;
    /// As `register`, for a server with a control port (the supervisor port of a manager of processes, the control of
    /// the console), which holders of the system port can get. Errors: those of `register`. May be repeated.
    fn register_with(&self, port: &RefAt, control: &RefAt, name: &str) -> Result<(), Error>;
    /// For a server: identifies a client by the port that it has presented as its own at init. Returns the number of
    /// the first process of the client's job; 0 for servers, the shell and init. Errors: `Denied` if the port is no
    /// such port. May be repeated.
    fn job(&self, client: &RefAt) -> Result<u32, Error>;
    /// The date: nanoseconds since the beginning of 1970, UTC. It is the date of the real-time clock at boot plus the
    /// time since then on the machine's clock, so it jumps for a program that is restored. Errors: `NotFound` if the
    /// machine does not know it. May be repeated.
    fn date(&self) -> Result<u64, Error>;
    /// The control port of another server, for a server that uses it according to the boot manifest; for the server of
    /// random bytes, that of the driver of random numbers. Errors: `Denied` to all others, `NotFound`. May be repeated.
    fn control(&self, server: &str) -> Result<Ref, Error>;
}
