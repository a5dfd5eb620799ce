//! The console: the serial line as a terminal.
//!
//! Everybody may write. Input is read by job: a process that a server or the shell has started, and all that it has
//! started in turn. While there is a **foreground** job it alone reads, and others wait until they are in the
//! foreground. [`ConsoleControl`] sets the input mode and the foreground job and reports Ctrl-C and Ctrl-Z; init gives
//! its door to the shell and to the personality of Linux programs ([`crate::system::System::control`]).
use interface::{interface, plain, Error};

plain! {
    /// How input is treated.
    pub enum Mode {
        /// Byte by byte, no echo; control characters are data. For a line editor; clients that read lines wait
        /// meanwhile.
        Raw = 0,
        /// Line by line with echo, erase, and Ctrl-D as end of input; Ctrl-C and Ctrl-Z are events.
        Cooked = 1,
        /// As `Cooked`, but without echo, as for passwords.
        Quiet = 2,
    }
}

plain! {
    /// A key by which the user interrupts or suspends the foreground job.
    pub enum Event {
        /// Nothing.
        None = 0,
        /// Ctrl-C.
        Interrupt = 1,
        /// Ctrl-Z.
        Suspend = 2,
    }
}

/// A job: the number of a native job's first process, or that of a Linux process with [`LINUX`] added. The servers
/// and the shell itself are job 0.
pub type Job = u64;

/// Added to the number of a Linux process, so that it differs from the numbers of native jobs.
pub const LINUX: Job = 1 << 32;

/// Open to every client.
#[interface]
pub trait Console {
    /// Writes as many bytes as there is room for, perhaps none, and returns how many. Errors: none of its own. Must not
    /// be repeated.
    #[once]
    fn write(&self, bytes: &[u8]) -> Result<u32, Error>;
    /// Waits until there is room to write. Errors: none of its own. May be repeated.
    async fn room(&self) -> Result<(), Error>;
    /// Waits until the caller's job may read and there is a line, and reads as much of it as there is room for; nothing
    /// at the end of input. Errors: none of its own. Must not be repeated.
    async fn read(&self) -> Result<Bytes, Error>;
    /// Waits until all output has left the machine, at most `patience` nanoseconds. Returns whether it has. Errors:
    /// none of its own. May be repeated.
    async fn drain(&self, patience: u64) -> Result<bool, Error>;
}

/// Power over the console.
#[interface]
pub trait ConsoleControl {
    /// Sets how input is treated. Errors: none of its own. May be repeated.
    fn set_mode(&self, mode: Mode) -> Result<(), Error>;
    /// Sets which job reads; 0 for none. Before the first call every job may read. Errors: none of its own. May be
    /// repeated.
    fn set_foreground(&self, job: Job) -> Result<(), Error>;
    /// Takes the oldest event. Errors: none of its own; [`Event::None`] if there is none. Must not be repeated.
    #[once]
    fn take_event(&self) -> Result<Event, Error>;
    /// Reads input that arrived in raw mode for the shell, whichever job is in the foreground. Errors: `WouldBlock` if
    /// there is nothing. Must not be repeated.
    #[once]
    fn read_keys(&self) -> Result<Bytes, Error>;
    /// Reads for a job, from input that arrived in raw mode or from a line; nothing at the end of input. Errors:
    /// `WouldBlock` if there is nothing in that mode, or the job may not read. Must not be repeated.
    #[once]
    fn read_for(&self, job: Job, mode: Mode) -> Result<Bytes, Error>;
    /// Whether [`ConsoleControlClient::read_for`] would not be refused. Errors: none of its own. May be repeated.
    fn readable_for(&self, job: Job, mode: Mode) -> Result<bool, Error>;
    /// Sets how input is treated, for a job. Errors: `Denied` if it may not read. May be repeated.
    fn set_mode_for(&self, job: Job, mode: Mode) -> Result<(), Error>;
    /// Waits until more than `seen` news (input, events, room, another foreground job) have been counted, and returns
    /// the count. Errors: none of its own. May be repeated.
    async fn news(&self, seen: u64) -> Result<u64, Error>;
}
