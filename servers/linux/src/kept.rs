//! Files that no program has open, and that this server keeps open at the file system for a while.
//!
//! Programs open the same files again and again. A file that was closed is kept if it is in memory, small and
//! unchanged: the next open of it needs no request, and files that were not opened again are closed together in one
//! request. All are closed at the next request after a change that this server cannot attribute, before this server
//! removes a file or gives its name to another one, and before it writes to one of them. So a file without a name, or
//! one that grows, does not take memory for long.

use alloc::vec::Vec;
use services::fs::{mode, Ino, Opened, MAX_CLOSED};

/// Most files that are kept: as many as one request can close.
const MOST: usize = MAX_CLOSED;
/// Largest file that is kept, in bytes. If another program removes the file, it takes this much memory until it is
/// closed.
const LARGEST: u64 = 64 << 10;

/// The kept files, each as often as it was closed.
#[derive(Debug, Default)]
pub struct Kept(Vec<Ino>);

impl Kept {
    /// Whether no file is kept.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a file that is to be closed if it is small and there is room; returns whether it is kept.
    pub fn keep(&mut self, file: &Opened) -> bool {
        let is_one = file.mode & mode::TYPE == mode::FILE && file.size <= LARGEST;
        let is_kept = is_one && self.0.len() < MOST;
        if is_kept {
            self.0.push(file.ino);
        }
        is_kept
    }

    /// Whether a file is kept.
    #[must_use]
    pub fn has(&self, ino: Ino) -> bool {
        self.0.contains(&ino)
    }

    /// Whether there is no room for another file.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }

    /// Takes a kept file back, which is open once more then; returns whether it was kept.
    pub fn take(&mut self, ino: Ino) -> bool {
        // A program most likely opens the file again that was closed last.
        let found = self.0.iter().rposition(|kept| *kept == ino);
        if let Some(place) = found {
            self.0.remove(place);
        }
        found.is_some()
    }

    /// Gives up all files: returns their inodes in the format of the close request.
    pub fn let_go(&mut self) -> Vec<u8> {
        let files = self.0.drain(..);
        files.flat_map(u64::to_le_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each file that was closed is let go once, or taken back once.
    #[test]
    fn what_was_kept_is_taken_back_or_let_go() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut kept = Kept::default();
        let mut times = [0; 6];
        for _ in 0..4000 {
            let ino = random.u64(..6);
            let place = ino as usize;
            match random.u32(..10) {
                0..5 => {
                    let (mode, size) = (mode::FILE, LARGEST);
                    let had_room = !kept.is_full();
                    let is_kept = kept.keep(&Opened { ino, mode, size });
                    assert_eq!(is_kept, had_room);
                    times[place] += i32::from(is_kept);
                }
                5..9 => {
                    let had = times[place] > 0;
                    assert_eq!(kept.take(ino), had, "a file is taken back that is kept");
                    times[place] -= i32::from(had);
                }
                _ => {
                    let gone = kept.let_go();
                    for ino in services::fs::numbers(&gone).expect("whole numbers") {
                        times[ino as usize] -= 1;
                    }
                    assert_eq!(times, [0; 6], "each is closed as often as it was");
                    assert!(kept.is_empty());
                }
            }
            assert!(times.iter().sum::<i32>() <= MOST as i32);
        }
    }

    /// Large files and other types of files are closed at once.
    #[test]
    fn only_small_files_are_kept() {
        let mut kept = Kept::default();
        let mut keeps = |mode, size| kept.keep(&Opened { ino: 9, mode, size });
        assert!(keeps(mode::FILE | 0o644, LARGEST));
        assert!(
            !keeps(mode::FILE, LARGEST + 1),
            "a large file is closed at once"
        );
        assert!(!keeps(mode::DIRECTORY, 0), "a directory is closed at once");
        assert!(!keeps(mode::CHARACTER, 0), "a device is closed at once");
    }
}
