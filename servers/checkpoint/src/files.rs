//! Files that an image names and does not contain: their state when the processes were saved, and how a restore finds
//! out whether they are still the same.
//!
//! For each file the image has its size and when it was written, as its manager saw them while the process was stopped,
//! and a checksum, which is computed while the process runs. That takes a bounded time, however large a file is: for
//! more than [`MAX_SUMMED`] bytes the checksum is of [`PIECES`] pieces, the first and the last of the file among them.

use crate::file::checksum;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Most such files in one image. The others are not recorded.
pub const MAX_FILES: usize = 1024;
/// The checksum of a file of at most so many bytes is of all of them.
pub const MAX_SUMMED: u64 = 64 << 10;
/// The checksum of a larger file is of so many pieces, which are as far apart as possible.
pub const PIECES: u64 = 8;
/// Bytes of such a piece.
pub const PIECE: u64 = MAX_SUMMED / PIECES;
/// Most sentences about files that a restore returns; the others are counted.
pub const MAX_SAID: usize = 8;
/// Most bytes of a path in such a sentence.
const MAX_SAID_PATH: usize = 200;

/// A file that an image names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// The number of the process that has it open, executes or maps it: in a tree that of the first process.
    pub process: u32,
    /// Its absolute path.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// When it was written, in nanoseconds.
    pub written: u64,
    /// The checksum, as of [`sum`]. There is none if it could not be read, or was written to meanwhile.
    pub sum: Option<u32>,
}

/// The present state of a file.
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

/// Offset and length of the pieces that the checksum of a file of this size covers.
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

/// The checksum of a file of this size: of all its bytes, or of its pieces. `read` fills a buffer from an offset on, or
/// fails.
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

    /// How it differs from its saved state, in a sentence; `None` if it does not.
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
            // The checksums are the same. Another time of writing alone says little: files with the same content are
            // made again on each machine.
            (Some(_), Some(_)) => None,
            _ if written != self.written => Some(self.sentence(
                "was written at another time than the one that the process had, and may be another one",
            )),
            _ => None,
        }
    }

    /// A description of it, for people.
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

/// The report of a restore on files that differ: a sentence for each of the first, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    said: Vec<String>,
    more: usize,
}

impl Differences {
    /// Adds a file, whose present state is `now`.
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

    /// For every size the pieces are within the file, in order without overlap, and include its beginning and end.
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

    /// A changed byte changes the checksum: any byte of a small file, and those at the ends of a large one.
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
        // The file was written again, with the same content.
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
        // Without a checksum the time of writing decides.
        let unknown = file(100, None);
        assert_eq!(unknown.differs(now(100, 7, Some(1))), None);
        assert!(said(&unknown, now(100, 8, Some(1))).contains("another time"));
        assert!(said(&small, now(100, 8, None)).contains("another time"));
    }

    /// However many files differ, and however long their names are.
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
