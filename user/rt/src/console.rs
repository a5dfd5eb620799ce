//! Client of the console.
//!
//! A program has one session for what it writes and one for what it reads, since a session has one request at a time
//! and reading waits.
use crate::obj::{Ref, RefAt};
use crate::sync::{Lazy, Mutex};
use proto::layout::START_NAMES;
use proto::{Error, MAX_BULK};
use services::console::{ConsoleClient, ConsoleControlClient};
pub use services::console::{Event, Job, Mode, LINUX};

static DOOR: Lazy<(Ref, RefAt)> = Lazy::new();
static WRITING: Mutex<Option<ConsoleClient>> = Mutex::new(None);
static READING: Mutex<Option<ConsoleClient>> = Mutex::new(None);

/// How long to wait for the console to be there, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;

/// Tells the console's door to a program that has no name service (it is the name service), and the port that
/// it presents as its own.
pub fn set_door(door: Ref, own: RefAt) {
    DOOR.set((door, own));
}

/// Asks in a session, which is opened if there is none, or if its port is dead: the program was restored where
/// there was no console.
fn ask<T>(
    session: &Mutex<Option<ConsoleClient>>,
    mut request: impl FnMut(&mut ConsoleClient) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut session = session.lock();
    if let Some(known) = session.as_mut() {
        match request(known) {
            Err(Error::Broken) if known.session().is_gone() => *session = None,
            result => return result,
        }
    }
    let (door, own) = DOOR.get(|| {
        let door = crate::names::wait_for("console", crate::time::now() + PATIENCE)?;
        Ok((door, RefAt(START_NAMES)))
    })?;
    request(session.insert(ConsoleClient::open_as(door, *own)?))
}

/// Writes what the console takes at once, perhaps nothing.
pub fn write(from: &[u8]) -> Result<usize, Error> {
    let from = &from[..from.len().min(MAX_BULK)];
    let length = ask(&WRITING, |console| console.write(from))? as usize;
    (length <= from.len())
        .then_some(length)
        .ok_or(Error::Broken)
}

/// Writes everything, waiting when the console is busy.
pub fn write_all(from: &[u8]) -> Result<(), Error> {
    let mut rest = from;
    while !rest.is_empty() {
        match write(rest)? {
            0 => ask(&WRITING, ConsoleClient::room)?,
            length => rest = &rest[length..],
        }
    }
    Ok(())
}

/// Waits until the program is in the foreground and input is there, and reads at most `to.len()` bytes of a line; 0
/// at the end of input.
pub fn read(to: &mut [u8]) -> Result<usize, Error> {
    let length = to.len().min(MAX_BULK);
    ask(&READING, |console| console.read(&mut to[..length]))
}

/// Waits until all output has left the machine, at most until the deadline.
pub fn drain(deadline: u64) -> Result<(), Error> {
    loop {
        match ask(&WRITING, ConsoleClient::drained)? {
            true => return Ok(()),
            false if crate::time::now() < deadline => crate::time::sleep(1_000_000),
            false => return Err(Error::WouldBlock),
        }
    }
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
