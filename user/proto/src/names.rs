//! The name service (`init`): ports by name.
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Names that only the servers of the boot manifest have: nobody else can register them, even while
/// the server is not there.
pub const RESERVED: [&str; 7] = [
    "names",
    "memory",
    "native",
    "fs",
    "console",
    "linux",
    "checkpoint",
];
/// Most names that one job may register (see [`crate::process::MAX_JOB`]).
pub const MAX_JOB_NAMES: usize = 32;

/// What one can ask. Every native process has a port of its own at init, its `START_NAMES`: what comes
/// from there, comes from that process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The port of that name. Reply: one reference, a port.
    Lookup {
        /// For example `fs`, `console`, `linux`, `native`, `checkpoint`.
        name: String,
    },
    /// Makes the port in the first reference known by that name, unless it is taken or reserved. The
    /// name is free again when the process ends. A server that has a port by which it is controlled (the supervisor
    /// port of a manager of processes, the control of the console) passes it in a second reference.
    Register {
        /// The name.
        name: String,
    },
    /// The process ends with this status. There is no reply.
    Exit(u8),
    /// For a server: whose the first reference is, a port that a client of it has presented as its own port at
    /// init. Reply: `Job`, the number of the first process of the client's job; 0 for servers, the shell and init.
    /// Errors: `Denied` if it is no such port.
    Job,
}

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// A job.
    Job(crate::process::Pid),
}

#[cfg(test)]
mod tests {
    use super::Request;

    /// C programs end by these bytes, which stand in `user/c/start.h`.
    #[test]
    fn c_programs_know_how_to_end() {
        let bytes = postcard::to_allocvec(&Request::Exit(7)).expect("it fits");
        assert_eq!(bytes, [2, 7]);
    }
}
