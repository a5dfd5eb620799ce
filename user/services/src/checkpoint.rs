//! The checkpointer: saves processes in an image, and makes processes from one.
//!
//! The server works on requests at the priority of programs, on those of job 0 (the shell) at the shell's. It works on
//! one request of a job at a time, and on a few of all jobs; the others wait.
use crate::process::Pid;
use alloc::string::String;
use alloc::vec::Vec;
use interface::{interface, Error};
use serde::{de::DeserializeOwned, Deserialize, Serialize};

/// Room that an answer needs: the outcome of a request, encoded by `postcard`.
pub const ROOM: usize = 32 * 1024;
/// Most processes that are saved together.
pub const MAX_PROCESSES: usize = interface::wire::MAX_REFS;
/// Most requests of a job that wait while one of its requests is done; further ones are refused.
pub const MAX_WAITING: usize = 4;

/// How processes are saved: any of these together.
pub mod how {
    /// With the contents of the files that they read, too.
    pub const FILES: u32 = 1;
    /// They are stopped when they have been saved, as by [`crate::process::Process::stop`].
    pub const STOP: u32 = 2;
    /// The pages are compressed in the image, which takes longer and gives a smaller file.
    pub const COMPRESS: u32 = 4;
    /// As if all other processes had just closed what they share with them: [`crate::process::keep::CUT`].
    pub const CUT: u32 = 8;
    /// All of them.
    pub const ALL: u32 = FILES | STOP | COMPRESS | CUT;
}

/// Why something was refused: a sentence that names the cause.
pub type Sentence = String;

/// What was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Bytes of the image.
    pub bytes: u64,
    /// How long the processes were stopped for it, in nanoseconds.
    pub still: u64,
    /// For each thread saved, what it was doing, in words; as many as there is room for.
    pub doing: Vec<String>,
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Managers and numbers, in the order of the image.
    pub processes: Vec<(String, Pid)>,
    /// Their names.
    pub names: Vec<String>,
    /// Which processes have all of their memory already, although it was to be read on demand, and why; else empty.
    pub at_once: Sentence,
    /// Files that the image names and that have changed since it was saved: a sentence for each of the first few.
    pub differs: Vec<Sentence>,
}

/// Open to every client. The bytes that `save` and `restore` return are a `Result<_, Sentence>`, encoded; both answer
/// `Invalid` if there is less room for it than [`ROOM`].
#[interface]
pub trait Checkpoint {
    /// Saves the processes with these control ports, as they are at one instant, together in an image, in the ways of
    /// [`mod@how`]. The first `first` bytes of `paths` are the absolute path of the image. The rest is the absolute
    /// path of another image, its parent, or empty: pages that are the same in the parent are not written again. The
    /// processes continue while the image is written, unless they are to be stopped. The image is complete when the
    /// answer, a [`Saved`], comes. If the client ends before that, the processes continue all the same. Errors:
    /// `Invalid` if there is less room than [`ROOM`], for an unknown way, or if `paths` cannot be split at `first`;
    /// `NoMemory`; other failures are a sentence in the answer. May be repeated: the image is written anew.
    async fn save(
        &self,
        how: u32,
        first: u32,
        processes: &[RefAt],
        paths: &str,
    ) -> Result<Bytes, Error>;
    /// Makes processes from the image at an absolute path and its parents; they count for the client's job. The answer,
    /// a [`Restored`], comes with their control ports when they run. If the client ends before that, they are ended.
    /// With `lazy` they run before all of their memory has been read: the rest is read when they touch it, or later,
    /// and if it cannot be read they are ended. Errors: as of `save`. Must not be repeated.
    async fn restore(&self, lazy: bool, path: &str) -> Result<(Bytes, Refs), Error>;
    /// The progress of the request that is being done for the client's job, from whichever of its sessions: bytes of
    /// pages that have been written or read, and bytes in all, which is 0 while that is not known. Both are 0 if none
    /// is being done. Errors: none of its own. May be repeated.
    fn progress(&self) -> Result<(u64, u64), Error>;
}

/// A text of an image, or a name that a program has given itself, made safe to show: nothing in it moves a cursor or
/// ends a line. Plain text stays as it is.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    out
}

/// Decodes the outcome of a request.
///
/// # Errors
/// [`Error::Broken`] if the bytes are not such an outcome.
pub fn outcome<T: DeserializeOwned>(bytes: &[u8]) -> Result<Result<T, Sentence>, Error> {
    postcard::from_bytes(bytes).map_err(|_| Error::Broken)
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn texts_of_images_neither_end_lines_nor_move_cursors() {
        let name = "a\n[2] 7  \u{1b}[31m'x' \\ \"y\"\u{202e}\u{7f}";
        let shown = plain(name);
        assert_eq!(shown, "a\\n[2] 7  \\u{1b}[31m'x' \\ \"y\"\\u{202e}\\u{7f}");
        assert_eq!(plain(&shown), shown, "what is plain stays as it is");
    }
}
