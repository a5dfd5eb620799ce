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

/// A session of its own for each request: another thread may have one too, and a request takes long.
fn session() -> Result<CheckpointClient, Sentence> {
    let door = crate::names::lookup("checkpoint")
        .map_err(|_| "the server 'checkpoint' is not there".to_string())?;
    CheckpointClient::open_known(&door).map_err(words)
}

/// Gives up a request that another thread makes, or is about to make.
#[derive(Debug, Default)]
pub struct GiveUp(Mutex<Given>);

/// How far the request is that may be given up.
#[derive(Debug, Default)]
enum Given {
    /// It is not made, or is over.
    #[default]
    Not,
    /// It is being made, in the session with this port.
    Asking(RefAt),
    /// It was given up.
    Up,
}

impl GiveUp {
    /// Gives it up, from now on. Unless it is done already, nothing comes of it: the processes go on, there is no file,
    /// and what was made is ended. Whoever makes it is told a sentence.
    pub fn give_up(&self) {
        let mut given = self.0.lock();
        if let Given::Asking(port) = *given {
            // Nobody names the session any more: it ends, and with it the request.
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
        // Before the place of the port is another's.
        let mut given = self.0.lock();
        if let Given::Asking(_) = *given {
            *given = Given::Not;
        }
        answer.map_err(words)
    }
}

/// Saves processes, whose control ports these are, together in the image at an absolute path. They go on meanwhile.
///
/// # Errors
/// A sentence that names the cause.
pub fn save(processes: &[RefAt], path: &str) -> Result<Saved, Sentence> {
    save_with(processes, path, How::default())
}

/// How processes are saved.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// Without the pages that are the same in the image at this absolute path, the parent. Restoring needs that image, too, beside
    /// this one or where it was.
    pub parent: Option<&'a str>,
    /// With what is in the files that they read, too.
    pub files: bool,
    /// They are stopped: they do nothing after what the image says, until they are let go on ([`Process::resume`]) or
    /// ended.
    pub stop: bool,
    /// As if everybody else had just closed what he has in common with them: so a process of a tree of Linux programs
    /// can be saved without the rest of that ([`services::process::keep::CUT`]).
    pub cut: bool,
    /// The pages are compressed in the image: the file is smaller, and writing it takes longer.
    pub compress: bool,
}

/// As [`save`], and stops them ([`How::stop`]).
///
/// # Errors
/// As those of [`save`]; then they go on.
pub fn save_and_stop(processes: &[RefAt], path: &str) -> Result<Saved, Sentence> {
    let how = How {
        stop: true,
        ..How::default()
    };
    save_with(processes, path, how)
}

/// As [`save`], in this way.
///
/// # Errors
/// A sentence that names the cause.
pub fn save_with(processes: &[RefAt], path: &str, how: How<'_>) -> Result<Saved, Sentence> {
    save_until(processes, path, how, &GiveUp::default())
}

/// As [`save_with`], unless it is given up.
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

/// Makes processes from the image at an absolute path: for each its manager, its name and the power over it.
///
/// # Errors
/// A sentence that names the cause.
pub fn restore(path: &str) -> Result<Vec<(String, String, Process)>, Sentence> {
    restore_and_tell(path).map(|lazily| lazily.processes)
}

/// What [`restore_lazily`] has made.
#[derive(Debug)]
pub struct Lazily {
    /// As of [`restore`].
    pub processes: Vec<(String, String, Process)>,
    /// What of it has all of its memory already, and why; else empty.
    pub at_once: Sentence,
    /// Files that it has open, executes or maps, that are not in the image and not what they were when it was saved: a
    /// sentence for each of the first few.
    pub differs: Vec<Sentence>,
}

impl Lazily {
    /// All that there is to say of it.
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

/// As [`restore`], with what is said of it.
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
