//! The console: the serial line as a terminal.
use serde::{Deserialize, Serialize};

/// How input is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Byte by byte, no echo; control characters are data. For a line editor, which reads with
    /// [`Request::ReadRaw`]; meanwhile whoever reads lines finds nothing yet.
    Raw,
    /// Line by line with echo, erase, and Ctrl-D as end of input; Ctrl-C and Ctrl-Z are events.
    Cooked,
}

/// Something that the user wants of the foreground job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// What one can ask.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Writes the bulk; the server may take less than all. Reply: `Written`.
    Write,
    /// Reads at most `length` bytes of a line. Reply: `Done` with bulk (empty: end of input), or the
    /// error `WouldBlock`, always in raw mode.
    Read {
        /// Bytes.
        length: u32,
    },
    /// Reads at most `length` bytes as they arrived in raw mode. Reply: `Done` with bulk, or the
    /// error `WouldBlock`.
    ReadRaw {
        /// Bytes.
        length: u32,
    },
    /// The thread in the first reference is interrupted whenever input or an event arrives, or
    /// output has room again. There can be several watchers.
    Watch,
    /// Sets the mode.
    SetMode(Mode),
    /// Takes the oldest event. Reply: `Event`.
    TakeEvent,
    /// Reply: `Done` when all output has left the machine, else the error `WouldBlock`.
    Drained,
}

/// What comes back.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// Bytes taken.
    Written(u32),
    /// The event, if there was one.
    Event(Option<Event>),
}
