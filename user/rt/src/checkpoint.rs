//! Client of the checkpointer.
use crate::obj::{Ref, RefAt};
use crate::process::Process;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use proto::Error;
use services::checkpoint::{how, outcome, CheckpointClient, ROOM};
pub use services::checkpoint::{Restored, Saved, Sentence, MAX_PROCESSES};

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
    let mut room = vec![0; ROOM];
    let mut session = session()?;
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
    let length = session.save(ways, path.len() as u32, processes, &paths, &mut room);
    let length = length.map_err(words)?;
    outcome(room.get(..length).unwrap_or(&[])).map_err(words)?
}

/// Makes processes from the image at an absolute path: for each its manager, its name and the power over it.
///
/// # Errors
/// A sentence that names the cause.
pub fn restore(path: &str) -> Result<Vec<(String, String, Process)>, Sentence> {
    restored(path, false).map(|lazily| lazily.processes)
}

/// What [`restore_lazily`] has made.
#[derive(Debug)]
pub struct Lazily {
    /// As of [`restore`].
    pub processes: Vec<(String, String, Process)>,
    /// What of it has all of its memory already, and why; else empty.
    pub at_once: Sentence,
}

/// As [`restore`], but the processes run before all of their memory has been read: that is read when they touch it, or
/// later. If it cannot be read then, they are ended, and the log says why.
///
/// # Errors
/// A sentence that names the cause.
pub fn restore_lazily(path: &str) -> Result<Lazily, Sentence> {
    restored(path, true)
}

fn restored(path: &str, lazy: bool) -> Result<Lazily, Sentence> {
    let mut room = vec![0; ROOM];
    let made = session()?.restore(lazy, path, &mut room);
    let (length, ports): (usize, Vec<Ref>) = made.map_err(words)?;
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
    })
}
