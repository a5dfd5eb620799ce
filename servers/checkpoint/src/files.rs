//! Files that an image names and does not have: what they were when the processes were saved, and how one tells whether
//! they are the same where these are restored.
//!
//! Of each there is its size and when it was written, as its manager saw them while the process stood still, and a
//! checksum, which is made while the process goes on. That takes a bounded time, however large a file is: of one of more
//! than [`MAX_SUMMED`] bytes it is of [`PIECES`] pieces, the first and the last ones of the file among them.

use crate::file::checksum;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Most of such files in one image. Of the others nothing is known.
pub const MAX_FILES: usize = 1024;
/// A file of at most so many bytes has a checksum of all of them.
pub const MAX_SUMMED: u64 = 64 << 10;
/// Of a larger one the checksum is of so many pieces, which lie as far from one another as they can.
pub const PIECES: u64 = 8;
/// Bytes of such a piece.
pub const PIECE: u64 = MAX_SUMMED / PIECES;
/// Most sentences about files that a restore says; the rest is counted.
pub const MAX_SAID: usize = 8;
/// Most bytes of a path in such a sentence.
const MAX_SAID_PATH: usize = 200;

/// A file that an image names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// The number of the process that has it open, executes or maps it: of the first one of a tree.
    pub process: u32,
    /// Its absolute path.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// When it was written, in nanoseconds.
    pub written: u64,
    /// The checksum of what [`sum`] takes of it. There is none if it could not be read, or was written to meanwhile.
    pub sum: Option<u32>,
}

/// What a file is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Now {
    Gone,
    /// Not a file: a directory, say.
    Other,
    /// It cannot be opened, for another reason.
    Closed(proto::Error),
    /// The checksum, unless it cannot be read or was not asked for.
    File {
        size: u64,
        written: u64,
        sum: Option<u32>,
    },
}

/// Where the pieces of a file of this size begin of which the checksum is, and how long each is.
fn pieces(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let (count, length) = match size {
        0..=MAX_SUMMED => (1, size),
        _ => (PIECES, PIECE),
    };
    let room = u128::from(size - length);
    (0..count).map(move |n| {
        let at = room * u128::from(n) / u128::from((count - 1).max(1));
        (at as u64, length)
    })
}

/// The checksum of a file of this size: of all its bytes, or of so many pieces. `read` fills with those from a place
/// on, or says that it cannot.
///
/// # Errors
/// Those of `read`.
pub fn sum<E>(size: u64, mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<u32, E> {
    let mut bytes = vec![0; size.min(MAX_SUMMED) as usize];
    let mut done = 0;
    for (at, length) in pieces(size) {
        let end = done + length as usize;
        read(at, &mut bytes[done..end])?;
        done = end;
    }
    Ok(checksum(&bytes))
}

impl File {
    /// Whether the path could be one.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let path = &self.path;
        path.starts_with('/') && !path.contains('\0') && path.len() <= crate::meta::MAX_PATH
    }

    /// In what it differs from what it was, in a sentence.
    #[must_use]
    pub fn differs(&self, now: Now) -> Option<String> {
        let (size, written, sum) = match now {
            Now::Gone => return Some(self.sentence("is gone")),
            Now::Other => return Some(self.sentence("is no file any more")),
            Now::Closed(error) => {
                return Some(self.sentence(&format!("cannot be read: {}", error.text())))
            }
            Now::File { size, written, sum } => (size, written, sum),
        };
        if size != self.size {
            let was = self.size;
            return Some(self.sentence(&format!(
                "has {size} bytes, and had {was} when the process was saved"
            )));
        }
        match (self.sum, sum) {
            (Some(was), Some(is)) if was != is => {
                Some(self.sentence("has another content than when the process was saved"))
            }
            // What was read of it is the same. That it was written at another time says little: files of the same content are
            // put into each machine anew.
            (Some(_), Some(_)) => None,
            _ if written != self.written => Some(self.sentence(
                "was written at another time than the one that the process had, and may be another one",
            )),
            _ => None,
        }
    }

    /// What is known of it, for people.
    #[must_use]
    pub fn about(&self) -> String {
        let sum = match self.sum {
            Some(sum) => format!("checksum {sum:#010x}"),
            None => "no checksum".to_string(),
        };
        let (path, size) = (crate::tool::plain(&self.path), self.size);
        format!("{path}: {}, {sum}", crate::tool::count(size, "byte"))
    }

    fn sentence(&self, what: &str) -> String {
        let mut path = crate::tool::plain(&self.path);
        if path.len() > MAX_SAID_PATH {
            path.truncate(path.floor_char_boundary(MAX_SAID_PATH));
            path += "...";
        }
        format!("{path} {what}")
    }
}

/// What a restore says of files that differ: a sentence for each, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    said: Vec<String>,
    more: usize,
}

impl Differences {
    /// One more file, which is this now.
    pub fn look(&mut self, file: &File, now: Now) {
        if let Some(sentence) = file.differs(now) {
            match self.said.len() < MAX_SAID {
                true => self.said.push(sentence),
                false => self.more += 1,
            }
        }
    }

    /// The sentences.
    #[must_use]
    pub fn sentences(mut self) -> Vec<String> {
        match self.more {
            0 => {}
            1 => self.said.push("one more file differs".to_string()),
            more => self.said.push(format!("{more} more files differ")),
        }
        self.said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64, sum: Option<u32>) -> File {
        File {
            process: 0,
            path: "/lib/one".into(),
            size,
            written: 7,
            sum,
        }
    }

    fn now(size: u64, written: u64, sum: Option<u32>) -> Now {
        Now::File { size, written, sum }
    }

    /// Of any size the pieces are in the file, one behind the other, and begin and end with it.
    #[test]
    fn pieces_are_in_the_file() {
        let around = |size: u64| [size - 1, size, size + 1];
        let sizes = [
            &[0, 1, u64::MAX][..],
            &around(MAX_SUMMED),
            &around(2 * MAX_SUMMED),
            &around(1 << 40),
        ];
        for size in sizes.concat() {
            let all: Vec<_> = pieces(size).collect();
            let mut end = 0;
            for (at, length) in &all {
                assert!(*at >= end && *length <= size - at, "{size}: {all:?}");
                end = at + length;
            }
            assert_eq!((all[0].0, end), (0, size), "{size}: {all:?}");
            let bytes: u64 = all.iter().map(|(_, length)| length).sum();
            assert_eq!(bytes, size.min(MAX_SUMMED), "it costs more or less");
        }
    }

    /// What is read of a file that changes is what its checksum is of: a byte of a small one, wherever it is, and the
    /// ends of a large one.
    #[test]
    fn a_byte_that_changes_is_seen() {
        let sum = |bytes: &[u8]| {
            let read = |at: u64, into: &mut [u8]| {
                into.copy_from_slice(&bytes[at as usize..][..into.len()]);
                Ok::<_, ()>(())
            };
            super::sum(bytes.len() as u64, read).unwrap()
        };
        let mut bytes = vec![5; MAX_SUMMED as usize];
        let before = sum(&bytes);
        assert_eq!(before, checksum(&bytes));
        for at in [0, 1, 4095, 40_000, bytes.len() - 1] {
            bytes[at] ^= 1;
            assert_ne!(sum(&bytes), before, "byte {at}");
            bytes[at] ^= 1;
        }
        let mut bytes = vec![5; 1 << 20];
        let before = sum(&bytes);
        for at in [0, PIECE as usize - 1, (1 << 20) - 1] {
            bytes[at] ^= 1;
            assert_ne!(sum(&bytes), before, "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(super::sum(3, |_, _| Err("no")), Err("no"));
    }

    #[test]
    fn each_difference_is_a_sentence() {
        let small = file(100, Some(1));
        assert_eq!(small.differs(now(100, 7, Some(1))), None);
        // It was written again, and is the same.
        assert_eq!(small.differs(now(100, 8, Some(1))), None);
        let said = |file: &File, now| file.differs(now).expect("it differs");
        assert_eq!(said(&small, Now::Gone), "/lib/one is gone");
        assert_eq!(said(&small, Now::Other), "/lib/one is no file any more");
        assert!(said(&small, Now::Closed(proto::Error::Broken)).contains("cannot be read: "));
        let size = said(&small, now(99, 7, Some(1)));
        assert_eq!(
            size,
            "/lib/one has 99 bytes, and had 100 when the process was saved"
        );
        assert!(said(&small, now(100, 7, Some(2))).contains("another content"));
        let large = file(MAX_SUMMED + 1, Some(1));
        assert_eq!(large.differs(now(large.size, 8, Some(1))), None);
        assert!(said(&large, now(large.size, 7, Some(2))).contains("another content"));
        // Where there is no checksum the time says something.
        let unknown = file(100, None);
        assert_eq!(unknown.differs(now(100, 7, Some(1))), None);
        assert!(said(&unknown, now(100, 8, Some(1))).contains("another time"));
        assert!(said(&small, now(100, 8, None)).contains("another time"));
    }

    /// Whatever there is of them, and however long their names are.
    #[test]
    fn a_few_sentences_are_said() {
        let mut all = Differences::default();
        let mut bad = file(1, None);
        bad.path = format!("/{}\u{1b}[2J", "\u{e4}".repeat(2000));
        for _ in 0..1000 {
            all.look(&bad, Now::Gone);
        }
        let said = all.sentences();
        assert_eq!(said.len(), MAX_SAID + 1);
        assert_eq!(said[MAX_SAID], "992 more files differ");
        assert!(said
            .iter()
            .all(|one| one.len() < 300 && !one.contains('\u{1b}')));
        let mut all = Differences::default();
        (0..9).for_each(|_| all.look(&bad, Now::Gone));
        assert_eq!(all.sentences()[MAX_SAID], "one more file differs");
        assert!(Differences::default().sentences().is_empty());
    }
}
