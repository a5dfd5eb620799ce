//! The system port of init: power over the machine. Init gives it to the shell and to the test runner, in
//! [`PASSED`]; they may pass it on.
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Where it stands among the references that a program is started with.
pub const PASSED: usize = 0;

/// What one can ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Powers the machine off with this exit status, after the files that `/etc/gets` listed when the machine
    /// started have gone out over the control channel.
    PowerOff {
        /// 0 to 255.
        status: u8,
    },
    /// Writes the bulk as one line to the control channel, over which tests report.
    Report,
    /// The port by which a server is controlled: the supervisor port of a manager of processes, the console's
    /// control. Reply: one reference.
    Supervisor {
        /// `native`, `linux` or `console`.
        manager: String,
    },
    /// Makes the port in the first reference known by that name, even if it is reserved, instead of
    /// what was known by it. Nobody who has the old port is told.
    Register {
        /// The name.
        name: String,
    },
}

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
}
