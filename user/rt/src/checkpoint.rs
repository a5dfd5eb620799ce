//! Client of the checkpointer.
use crate::obj::{Ref, RefAt};
use crate::process::Process;
use crate::sync::Mutex;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use proto::Error;
use services::checkpoint::{how, outcome, CheckpointClient, ROOM};
pub use services::checkpoint::{plain, Restored, Saved, Sentence, MAX_PROCESSES};

/// An error, in words.
fn words(error: Error) -> Sentence {
    error.text().to_string()
}

/// Opens a session for each request, since a request takes long and other threads may make one meanwhile.
fn session() -> Result<CheckpointClient, Sentence> {
    let door = crate::names::lookup("checkpoint")
        .map_err(|_| "the server 'checkpoint' is not there".to_string())?;
    CheckpointClient::open_known(&door).map_err(words)
}

/// Gives up a request that another thread makes, or is about to make.
#[derive(Debug, Default)]
pub struct GiveUp(Mutex<Given>);

/// The state of a request that may be given up.
#[derive(Debug, Default)]
enum Given {
    /// Not begun, or over.
    #[default]
    Not,
    /// Under way, in the session with this port.
    Asking(RefAt),
    /// Given up.
    Up,
}

impl GiveUp {
    /// Gives the request up, also if it has not begun. Unless it is done already it has no effect: processes to be
    /// saved continue, no file is left, and restored processes are ended. The thread that makes the request gets a
    /// sentence as its error.
    pub fn give_up(&self) {
        let mut given = self.0.lock();
        if let Given::Asking(port) = *given {
            // Nothing refers to the session's port any more: the session ends, and with it the request.
            let _ = port.clear();
        }
        *given = Given::Up;
    }

    /// Makes a request in a session of its own.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&mut CheckpointClient) -> Result<T, Error>,
    ) -> Result<T, Sentence> {
        let mut session = session()?;
        {
            let mut given = self.0.lock();
            if let Given::Up = *given {
                return Err("it was given up".to_string());
            }
            *given = Given::Asking(session.session().kept().0);
        }
        let answer = ask(&mut session);
        // Before the session's reference is dropped and its slot reused.
        let mut given = self.0.lock();
        if let Given::Asking(_) = *given {
            *given = Given::Not;
        }
        answer.map_err(words)
    }
}

/// Saves the processes with these control ports together in the image at an absolute path. They continue meanwhile.
///
/// # Errors
/// A sentence that names the cause.
pub fn save(processes: &[RefAt], path: &str) -> Result<Saved, Sentence> {
    save_with(processes, path, How::default())
}

/// The ways to save processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// Without the pages that are the same in the image at this absolute path, the parent. Restoring needs that image,
    /// too, beside this one or at its old path.
    pub parent: Option<&'a str>,
    /// With the contents of the files that they read, too.
    pub files: bool,
    /// They are stopped: they stay in the state that the image has, until they are resumed ([`Process::resume`]) or
    /// ended.
    pub stop: bool,
    /// As if all other processes had just closed what they share with them: so a process of a tree of Linux programs
    /// can be saved without the rest of that ([`services::process::keep::CUT`]).
    pub cut: bool,
    /// The pages are compressed in the image: the file is smaller, and writing it takes longer.
    pub compress: bool,
}

/// As [`save`], and stops them ([`How::stop`]).
///
/// # Errors
/// Those of [`save`]; the processes then continue.
pub fn save_and_stop(processes: &[RefAt], path: &str) -> Result<Saved, Sentence> {
    let how = How {
        stop: true,
        ..How::default()
    };
    save_with(processes, path, how)
}

/// As [`save`], in the given ways.
///
/// # Errors
/// A sentence that names the cause.
pub fn save_with(processes: &[RefAt], path: &str, how: How<'_>) -> Result<Saved, Sentence> {
    save_until(processes, path, how, &GiveUp::default())
}

/// As [`save_with`], unless the request is given up.
///
/// # Errors
/// A sentence that names the cause.
pub fn save_until(
    processes: &[RefAt],
    path: &str,
    how: How<'_>,
    given: &GiveUp,
) -> Result<Saved, Sentence> {
    let mut room = vec![0; ROOM];
    let mut ways = 0;
    for (way, wanted) in [
        (how::FILES, how.files),
        (how::STOP, how.stop),
        (how::COMPRESS, how.compress),
        (how::CUT, how.cut),
    ] {
        if wanted {
            ways |= way;
        }
    }
    let paths = [path, how.parent.unwrap_or("")].concat();
    let first = path.len() as u32;
    let length = given.ask(|session| session.save(ways, first, processes, &paths, &mut room))?;
    outcome(room.get(..length).unwrap_or(&[])).map_err(words)?
}

/// Makes processes from the image at an absolute path: for each its manager, its name and the process itself.
///
/// # Errors
/// A sentence that names the cause.
pub fn restore(path: &str) -> Result<Vec<(String, String, Process)>, Sentence> {
    restore_and_tell(path).map(|lazily| lazily.processes)
}

/// The result of [`restore_lazily`].
#[derive(Debug)]
pub struct Lazily {
    /// As of [`restore`].
    pub processes: Vec<(String, String, Process)>,
    /// Which processes have all of their memory already, and why; else empty.
    pub at_once: Sentence,
    /// Files that the processes have open, execute or map, that are not in the image and have changed since it was
    /// saved: a sentence for each of the first few.
    pub differs: Vec<Sentence>,
}

impl Lazily {
    /// All sentences of the result.
    pub fn sentences(&self) -> impl Iterator<Item = &str> {
        let at_once = Some(self.at_once.as_str()).filter(|why| !why.is_empty());
        at_once
            .into_iter()
            .chain(self.differs.iter().map(String::as_str))
    }
}

/// As [`restore`], but the processes run before all of their memory has been read: that is read when they touch it, or
/// later. If it cannot be read then, they are ended, and the log says why.
///
/// # Errors
/// A sentence that names the cause.
pub fn restore_lazily(path: &str) -> Result<Lazily, Sentence> {
    restore_until(path, true, &GiveUp::default())
}

/// As [`restore`], with the sentences about it.
///
/// # Errors
/// A sentence that names the cause.
pub fn restore_and_tell(path: &str) -> Result<Lazily, Sentence> {
    restore_until(path, false, &GiveUp::default())
}

/// As [`restore_and_tell`], or if it is `lazy` as [`restore_lazily`], unless it is given up.
///
/// # Errors
/// A sentence that names the cause.
pub fn restore_until(path: &str, lazy: bool, given: &GiveUp) -> Result<Lazily, Sentence> {
    let mut room = vec![0; ROOM];
    let made = given.ask(|session| session.restore(lazy, path, &mut room))?;
    let (length, ports): (usize, Vec<Ref>) = made;
    let restored: Restored = outcome(room.get(..length).unwrap_or(&[])).map_err(words)??;
    if ports.len() != restored.processes.len() {
        return Err(words(Error::Broken));
    }
    let mut names = restored.names.into_iter();
    let made = restored.processes.into_iter().zip(ports);
    let made = made.map(|((manager, pid), port)| {
        let name = names.next().unwrap_or_default();
        (manager, name, Process::at(pid, port))
    });
    Ok(Lazily {
        processes: made.collect(),
        at_once: restored.at_once,
        differs: restored.differs,
    })
}
