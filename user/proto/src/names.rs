//! The name service (`init`): ports by name.
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What one can ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The port of that name. Reply: one reference, a port.
    Lookup {
        /// For example `fs`, `console`, `linux`, `native`, `checkpoint`.
        name: String,
    },
    /// Makes the port in the first reference known by that name, unless it is taken.
    Register {
        /// The name.
        name: String,
    },
    /// Powers the machine off with this exit status, after the files that `/etc/gets` lists have
    /// gone out over the control channel.
    PowerOff {
        /// 0 to 255.
        status: u8,
    },
    /// Writes the bulk as one line to the control channel, over which tests report.
    Control,
}

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
}
