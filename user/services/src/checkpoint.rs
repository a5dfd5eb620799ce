//! The checkpointer: saves processes in an image, and makes processes from one.
//!
//! What a session asks for is done at the priority of programs, for job 0 (the shell) at the shell's; one request
//! of a job at a time, and a few of all jobs. Others wait meanwhile.
use crate::process::Pid;
use alloc::string::String;
use alloc::vec::Vec;
use interface::{interface, Error};
use serde::{de::DeserializeOwned, Deserialize, Serialize};

/// Room that an answer needs: what came of a request, encoded by `postcard`.
pub const ROOM: usize = 32 * 1024;
/// Most processes that are saved together.
pub const MAX_PROCESSES: usize = interface::wire::MAX_REFS;
/// Most requests of a job that wait until its first one is done; others are refused.
pub const MAX_WAITING: usize = 4;

/// How processes are saved: any of these together.
pub mod how {
    /// With what is in the files that they read, too.
    pub const FILES: u32 = 1;
    /// They are stopped when they have been saved, as by [`crate::process::Process::stop`].
    pub const STOP: u32 = 2;
    /// The pages are compressed in the image, which takes longer and gives a smaller file.
    pub const COMPRESS: u32 = 4;
    /// As if everybody else had just closed what he has in common with them: [`crate::process::keep::CUT`].
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
    /// How long the processes stood still for it, in nanoseconds.
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
    /// What of it has all of its memory already, though it was to be read when it is needed, and why; else empty.
    pub at_once: Sentence,
    /// Files that it names and that are not what they were when it was saved, a sentence for each of the first few.
    pub differs: Vec<Sentence>,
}

/// What everybody can ask. What comes back in bytes is a `Result<_, Sentence>`, encoded. Both answer `Invalid` if there
/// is less room for it than [`ROOM`].
#[interface]
pub trait Checkpoint {
    /// Saves processes, whose control ports these are, together in the image at an absolute path, which is the first
    /// bytes of `paths`, `first` of them, as they are at one instant, in the ways of [`mod@how`]. The rest is the
    /// absolute path of an image, its parent, or empty: pages that are the same there are left to that image. They go
    /// on while it is written, unless they are to be stopped. When the answer, a [`Saved`], comes the image is
    /// complete. If the client ends before, they go on all the same. Errors: `Invalid` if there is less room than
    /// [`ROOM`], for an unknown way, or if `first` is no place in `paths`; `NoMemory`; what else goes wrong is the
    /// sentence in the answer. May be repeated: the image is written anew.
    async fn save(
        &self,
        how: u32,
        first: u32,
        processes: &[RefAt],
        paths: &str,
    ) -> Result<Bytes, Error>;
    /// Makes processes from the image at an absolute path, and what it is based on; they count for the client's job.
    /// The answer, a [`Restored`], comes with their control ports when they run. If the client ends before, they are
    /// ended. If it is `lazy` they run before all of their memory has been read: that comes when they touch it, or
    /// later, and if it cannot be read they are ended. Errors: as of `save`. Must not be repeated.
    async fn restore(&self, lazy: bool, path: &str) -> Result<(Bytes, Refs), Error>;
    /// How far the request is that is being done for the client's job, by whichever session it was made: bytes of pages
    /// that have been written or read, and how many there are, which is 0 while that is not known. Both are 0 if none is
    /// being done. Errors: none of its own. May be repeated.
    fn progress(&self) -> Result<(u64, u64), Error>;
}

/// A text of an image, or a name that a program has given itself, as people may see it: nothing in it moves a cursor or
/// ends a line. What is plain already stays as it is.
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

/// What came of a request, as it came.
///
/// # Errors
/// [`Error::Broken`] if it is nothing of the kind.
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
