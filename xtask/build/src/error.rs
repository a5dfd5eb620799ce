//! The error of every part of xtask: a sentence for the user, and an exit status.

/// Status of a machine that panicked or could not be built or started.
pub const BROKEN: u8 = 125;
/// Status of a machine that was stopped at its time limit.
pub const TIMED_OUT: u8 = 124;
/// Status of a command line that was not understood.
pub const USAGE: u8 = 2;

/// Why a command ended early.
#[derive(Debug)]
pub struct Error {
    /// The cause, and what to do about it.
    pub message: String,
    /// The exit status of `./fermata`.
    pub status: u8,
}

impl Error {
    /// Something that should work did not.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            status: BROKEN,
        }
    }

    /// The arguments are wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        let message = format!("{}; `./fermata help` explains all commands", message.into());
        Self {
            message,
            status: USAGE,
        }
    }
}
