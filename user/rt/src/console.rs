//! Client of the console.
//!
//! A program has one session to write and one to read, since a session has one request at a time and reads wait.
use crate::obj::{Ref, RefAt};
use crate::session::{Door, Kept};
use proto::{Error, MAX_BULK};
use services::console::{ConsoleClient, ConsoleControlClient};
pub use services::console::{Event, Job, Mode, LINUX};

static DOOR: Door = Door::new("console");
static WRITING: Kept<ConsoleClient> = kept();
static READING: Kept<ConsoleClient> = kept();

const fn kept() -> Kept<ConsoleClient> {
    Kept::new(&DOOR, ConsoleClient::open_as, ConsoleClient::session)
}

/// Tells the console's door to a program that has no name service (it is the name service), and the port that
/// it presents as its own.
pub fn set_door(door: Ref, own: RefAt) {
    DOOR.set(door, own);
}

/// Writes as much as the console takes at once, perhaps nothing.
pub fn write(from: &[u8]) -> Result<usize, Error> {
    let from = &from[..from.len().min(MAX_BULK)];
    let length = WRITING.ask(|console| console.write(from))? as usize;
    (length <= from.len())
        .then_some(length)
        .ok_or(Error::Broken)
}

/// Writes everything, waiting when the console is busy.
pub fn write_all(from: &[u8]) -> Result<(), Error> {
    let mut rest = from;
    while !rest.is_empty() {
        match write(rest)? {
            0 => WRITING.ask(ConsoleClient::room)?,
            length => rest = &rest[length..],
        }
    }
    Ok(())
}

/// A session of its own for log lines: a thread that waits in the session for writing must not block one that logs,
/// which does not wait.
pub(crate) struct Logger(Kept<ConsoleClient>);

impl Logger {
    pub(crate) const fn new() -> Self {
        Logger(kept())
    }

    /// Writes as much as the console takes at once, perhaps nothing. If the console fails, all counts as taken.
    pub(crate) fn write(&self, from: &[u8]) -> usize {
        let from = &from[..from.len().min(MAX_BULK)];
        let written = self.0.ask(|console| console.write(from));
        written.map_or(from.len(), |length| (length as usize).min(from.len()))
    }

    /// Writes everything, waiting when the console is busy.
    pub(crate) fn write_all(&self, from: &[u8]) {
        let mut rest = from;
        while !rest.is_empty() {
            match self.write(rest) {
                0 if self.0.ask(ConsoleClient::room).is_err() => return,
                length => rest = &rest[length..],
            }
        }
    }
}

/// Waits until the program is in the foreground and input is there, and reads at most `to.len()` bytes of a line; 0
/// at the end of input.
pub fn read(to: &mut [u8]) -> Result<usize, Error> {
    let length = to.len().min(MAX_BULK);
    READING.ask(|console| console.read(&mut to[..length]))
}

/// Waits until all output has left the machine, at most until the deadline. Other threads of the program that want to
/// write wait meanwhile.
pub fn drain(deadline: u64) -> Result<(), Error> {
    let drained = WRITING.ask(|console| {
        let patience = deadline.saturating_sub(crate::time::now());
        console.drain(patience)
    })?;
    drained.then_some(()).ok_or(Error::WouldBlock)
}

/// A session of control, at the door that init gave.
pub fn control(door: &RefAt) -> Result<ConsoleControlClient, Error> {
    ConsoleControlClient::open_known(door)
}

/// Calls `tell` whenever the console has news, from a thread of its own, until that refuses.
pub fn watch(
    door: &RefAt,
    tell: impl Fn() -> Result<(), crate::Code> + Send + 'static,
) -> Result<(), Error> {
    let mut control = control(door)?;
    let watch = move || {
        let mut seen = 0;
        while let Ok(news) = control.news(seen) {
            seen = news;
            if tell().is_err() {
                return;
            }
        }
    };
    crate::thread::spawn(watch)
        .map(|_| ())
        .map_err(crate::error_of)
}
