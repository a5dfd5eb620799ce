//! The console: the serial line as a terminal.
//!
//! Everybody may write. Who reads is a job: what a server or the shell has started, and all that was started by it in
//! turn. While there is a **foreground** it alone reads, and others wait until they are it. How input is treated, who
//! is in the foreground, and what Ctrl-C and Ctrl-Z mean is [`ConsoleControl`]'s, whose door init gives to the shell
//! and to the personality of Linux programs ([`crate::system::System::control`]).
use interface::{interface, plain, Error};

plain! {
    /// How input is treated.
    pub enum Mode {
        /// Byte by byte, no echo; control characters are data. For a line editor; meanwhile whoever reads
        /// lines waits.
        Raw = 0,
        /// Line by line with echo, erase, and Ctrl-D as end of input; Ctrl-C and Ctrl-Z are events.
        Cooked = 1,
        /// As `Cooked`, and nothing that is typed is shown: for what nobody is to see.
        Quiet = 2,
    }
}

plain! {
    /// Something that the user wants of the foreground job.
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

/// Tells Linux processes from native jobs.
pub const LINUX: Job = 1 << 32;

/// What everybody can ask.
#[interface]
pub trait Console {
    /// Writes, and returns how many bytes were taken: what there is room for, perhaps nothing. Errors: none of its
    /// own. Must not be repeated.
    #[once]
    fn write(&self, bytes: &[u8]) -> Result<u32, Error>;
    /// Waits until there is room to write. Errors: none of its own. May be repeated.
    async fn room(&self) -> Result<(), Error>;
    /// Waits until the caller's job may read and a line is there, and reads of it what there is room for; nothing
    /// at the end of input. Errors: none of its own. Must not be repeated.
    async fn read(&self) -> Result<Bytes, Error>;
    /// Waits until all output has left the machine, at most so many nanoseconds: whether it has. Errors: none of its
    /// own. May be repeated.
    async fn drain(&self, patience: u64) -> Result<bool, Error>;
}

/// Power over the console.
#[interface]
pub trait ConsoleControl {
    /// Sets how input is treated. Errors: none of its own. May be repeated.
    fn set_mode(&self, mode: Mode) -> Result<(), Error>;
    /// Says which job reads; 0 for nobody. As long as it was never said, everybody reads. Errors: none of its own.
    /// May be repeated.
    fn set_foreground(&self, job: Job) -> Result<(), Error>;
    /// The oldest event. Errors: none of its own; [`Event::None`] if there is none. Must not be repeated.
    #[once]
    fn take_event(&self) -> Result<Event, Error>;
    /// Reads for the shell, whoever is in the foreground, what arrived in raw mode. Errors: `WouldBlock` if there is
    /// nothing. Must not be repeated.
    #[once]
    fn read_keys(&self) -> Result<Bytes, Error>;
    /// Reads for a job what arrived in raw mode, or of a line; nothing at the end of input. Errors: `WouldBlock` if
    /// there is nothing in that mode, or the job may not read. Must not be repeated.
    #[once]
    fn read_for(&self, job: Job, mode: Mode) -> Result<Bytes, Error>;
    /// Whether [`ConsoleControlClient::read_for`] would read. Errors: none of its own. May be repeated.
    fn readable_for(&self, job: Job, mode: Mode) -> Result<bool, Error>;
    /// Sets how input is treated, for a job. Errors: `Denied` if it may not read. May be repeated.
    fn set_mode_for(&self, job: Job, mode: Mode) -> Result<(), Error>;
    /// Waits until there were more than `seen` news (input, events, room, another foreground), and returns how
    /// many there were. Errors: none of its own. May be repeated.
    async fn news(&self, seen: u64) -> Result<u64, Error>;
}
