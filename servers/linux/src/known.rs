//! A cache of attributes and paths of files in memory, valid as long as nothing may have changed.
//!
//! The file system counts the requests that may change something, in a page that this server reads
//! ([`services::fs::part::CHANGES`]). As long as the count is the same, an earlier answer about a path or an inode
//! still holds, and no request is made. This server knows its own changes: if the count grew by one over its request
//! about an inode, that request was the only change. The cache also has the places of the pieces of files in the file
//! system's memory ([`services::fs::Files::place`]), from where they are read.

use alloc::string::String;
use alloc::vec::Vec;
use proto::Error;
use services::fs::{Attr, Flags, Ino, Opened, Place, PIECE};

use crate::files::{Reply, Request};

/// Entries of each of the three tables (inodes, paths, pieces): a power of two. A key has one place in its table, which
/// it shares with others.
const PLACES: usize = 512;
/// Longest path in the cache, in bytes.
const LONGEST: usize = 256;

/// The cache.
#[derive(Debug)]
pub struct Known {
    /// The count of changes at which the entries are valid.
    seen: u64,
    /// How often the cache was emptied, plus 1. Entries of an older epoch are invalid.
    epoch: u64,
    inodes: Vec<Inode>,
    paths: Vec<Path>,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    /// The epoch of `attr`; 0 is never valid.
    epoch: u64,
    attr: Attr,
    /// The epoch of `opened`, which is the part of the attributes that an open returns and is valid more often.
    opened_epoch: u64,
    opened: Opened,
    /// How often an inode of this place was invalidated by a change of its own.
    forgotten: u64,
}

/// A piece of a file.
#[derive(Clone, Debug, Default)]
struct Piece {
    /// The epoch of this entry.
    epoch: u64,
    /// The value of [`Inode::forgotten`] when the piece was noted; the piece is valid while they are equal.
    forgotten: u64,
    ino: Ino,
    number: u64,
    place: Place,
}

#[derive(Clone, Debug, Default)]
struct Path {
    /// The epoch of this entry.
    epoch: u64,
    path: String,
    follow: bool,
    /// The inode that the path leads to; `None` if there is none.
    found: Option<Ino>,
}

/// What a request may change.
enum About {
    /// Nothing.
    Nothing,
    /// The inode.
    Inode(Ino),
    /// Names, or more than one inode.
    Anything,
}

fn about(request: &Request) -> About {
    match *request {
        Request::Read { ino, .. }
        | Request::Write { ino, .. }
        | Request::Truncate { ino, .. }
        | Request::ReadDir { ino, .. }
        | Request::Chmod { ino, .. }
        | Request::Chown { ino, .. }
        | Request::Utimens { ino, .. } => About::Inode(ino),
        Request::Open { flags, .. } if !flags.change() => About::Nothing,
        Request::Open { .. }
        | Request::Mkdir { .. }
        | Request::Unlink { .. }
        | Request::Rmdir { .. }
        | Request::Rename { .. }
        | Request::Link { .. }
        | Request::Symlink { .. } => About::Anything,
        Request::Close { .. }
        | Request::Stat { .. }
        | Request::StatIno { .. }
        | Request::Readlink { .. }
        | Request::PathOf { .. }
        | Request::Usage { .. }
        | Request::Sync { .. } => About::Nothing,
    }
}

const fn place_of(ino: Ino) -> usize {
    ino as usize % PLACES
}

const fn place_of_piece(ino: Ino, number: u64) -> usize {
    // Files have few pieces, and their inodes are often consecutive, so piece numbers are spread.
    (ino ^ number.wrapping_mul(167)) as usize % PLACES
}

fn place_of_path(path: &str, follow: bool) -> usize {
    let mut hash = path.len() as u64 ^ (follow as u64) << 32;
    let (words, rest) = path.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for word in words.iter().chain([&last]) {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    hash as usize % PLACES
}

impl Default for Known {
    fn default() -> Self {
        Known {
            seen: 0,
            epoch: 1,
            inodes: Vec::new(),
            paths: Vec::new(),
            pieces: Vec::new(),
        }
    }
}

impl Known {
    /// The answer to a request, if it is known; `count` is the present count of changes.
    #[inline]
    pub fn answer(&mut self, request: &Request, count: u64) -> Option<Result<Attr, Error>> {
        if count != self.seen {
            self.forget(count);
            return None;
        }
        match request {
            Request::StatIno { ino } => self.attr(*ino).map(Ok),
            Request::Stat { path, follow } => match self.find(path, *follow)? {
                Some(ino) => self.attr(ino).map(Ok),
                None => Some(Err(Error::NotFound)),
            },
            _ => None,
        }
    }

    fn attr(&self, ino: Ino) -> Option<Attr> {
        let known = self.inodes.get(place_of(ino))?;
        (known.epoch == self.epoch && known.attr.ino == ino).then_some(known.attr)
    }

    /// Empties the cache; new entries are valid at this count.
    fn forget(&mut self, count: u64) {
        self.seen = count;
        self.epoch += 1;
    }

    /// Learns from the answer to a request, with the counts of changes before and after it.
    #[inline]
    pub fn learn(
        &mut self,
        request: &Request,
        result: &Result<(Reply, usize), Error>,
        (before, after): (u64, u64),
    ) {
        if before != self.seen {
            return;
        }
        match (about(request), result) {
            (About::Inode(ino), Ok(_)) if after == before.wrapping_add(1) => {
                let is_read = matches!(request, Request::Read { .. } | Request::ReadDir { .. });
                match is_read {
                    true => self.was_read(ino, after),
                    false => self.changed(ino, after),
                }
            }
            (About::Nothing, Ok((Reply::Attr(attr), _))) => {
                self.make();
                let (epoch, ino) = (self.epoch, attr.ino);
                let inode = &mut self.inodes[place_of(ino)];
                (inode.epoch, inode.attr) = (epoch, *attr);
                // A file without a name cannot be opened by a path, and is to be closed at once.
                if attr.links > 0 {
                    let (mode, size) = (attr.mode, attr.size);
                    (inode.opened_epoch, inode.opened) = (epoch, Opened { ino, mode, size });
                }
                self.keep(request, Some(ino));
            }
            (About::Nothing, Ok((Reply::Opened(opened), _))) => {
                self.make();
                let inode = &mut self.inodes[place_of(opened.ino)];
                (inode.opened_epoch, inode.opened) = (self.epoch, *opened);
                self.keep(request, Some(opened.ino));
            }
            (About::Nothing, Err(Error::NotFound)) => self.keep(request, None),
            // Any other change shows in the count.
            _ => {}
        }
    }

    /// The inode was changed by this server's request, the only change up to this count.
    fn changed(&mut self, ino: Ino, count: u64) {
        self.seen = count;
        if let Some(known) = self.inodes.get_mut(place_of(ino)) {
            known.forgotten += 1;
            if known.attr.ino == ino {
                known.epoch = 0;
            }
            if known.opened.ino == ino {
                known.opened_epoch = 0;
            }
        }
    }

    /// The inode was read by this server's request, the only change up to this count: its access time has changed.
    fn was_read(&mut self, ino: Ino, count: u64) {
        self.seen = count;
        if let Some(known) = self.inodes.get_mut(place_of(ino)) {
            if known.attr.ino == ino {
                known.epoch = 0;
            }
        }
    }

    /// What opening this inode would return, if that is known; `count` is the present count of changes.
    #[must_use]
    pub fn opened(&self, ino: Ino, count: u64) -> Option<Opened> {
        let known = self.inodes.get(place_of(ino))?;
        let is_known =
            count == self.seen && known.opened_epoch == self.epoch && known.opened.ino == ino;
        is_known.then_some(known.opened)
    }

    /// The same for a path, if the path leads to a file and these flags open it without a change.
    #[must_use]
    pub fn opens(&self, path: &str, flags: Flags, count: u64) -> Option<Opened> {
        if flags.change() || flags.nofollow || count != self.seen {
            return None;
        }
        self.opened(self.find(path, true)??, count)
    }

    /// The inode that a path leads to, or `Some(None)` if there is none; `None` if that is not known.
    fn find(&self, path: &str, follow: bool) -> Option<Option<Ino>> {
        let known = self.paths.get(place_of_path(path, follow))?;
        let is_known = known.epoch == self.epoch && known.follow == follow && known.path == path;
        is_known.then_some(known.found)
    }

    /// The place of the piece of a file that has this offset, if it is known; `count` is the present count of changes.
    #[inline]
    pub fn place(&self, ino: Ino, offset: u64, count: u64) -> Option<Place> {
        let number = offset / PIECE;
        let piece = self.pieces.get(place_of_piece(ino, number))?;
        let inode = self.inodes.get(place_of(ino))?;
        let is_known = count == self.seen
            && piece.epoch == self.epoch
            && piece.forgotten == inode.forgotten
            && piece.ino == ino
            && piece.number == number;
        is_known.then_some(piece.place)
    }

    /// Learns the place of a piece from a request that counts as a read of the file, with the counts of changes before
    /// and after it.
    pub fn learn_place(
        &mut self,
        ino: Ino,
        offset: u64,
        place: Place,
        (before, after): (u64, u64),
    ) {
        if before != self.seen {
            self.forget(before);
        }
        if after != before.wrapping_add(1) {
            return;
        }
        self.make();
        self.was_read(ino, after);
        let number = offset / PIECE;
        self.pieces[place_of_piece(ino, number)] = Piece {
            epoch: self.epoch,
            forgotten: self.inodes[place_of(ino)].forgotten,
            ino,
            number,
            place,
        };
    }

    /// Whether the cache is up to date: there was no change that this server does not know.
    #[must_use]
    pub const fn is_true(&self, count: u64) -> bool {
        count == self.seen
    }

    fn make(&mut self) {
        if self.inodes.is_empty() {
            self.inodes.resize(PLACES, Inode::default());
            self.paths.resize(PLACES, Path::default());
            self.pieces.resize(PLACES, Piece::default());
        }
    }

    /// Notes what a path leads to. The entry is valid at the count that is seen, or at a higher one, which the next
    /// lookup notices.
    fn keep(&mut self, request: &Request, found: Option<Ino>) {
        let (path, follow) = match request {
            Request::Stat { path, follow } => (path, *follow),
            Request::Open { path, flags, .. } if !flags.nofollow => (path, true),
            _ => return,
        };
        if path.len() > LONGEST {
            return;
        }
        self.make();
        let place = &mut self.paths[place_of_path(path, follow)];
        place.path.clone_from(path);
        (place.epoch, place.follow, place.found) = (self.epoch, follow, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use services::fs::Flags;

    fn attr(ino: Ino, size: u64) -> Attr {
        Attr {
            ino,
            size,
            links: 1,
            ..Attr::default()
        }
    }

    fn stat(path: &str) -> Request {
        Request::Stat {
            path: path.to_string(),
            follow: true,
        }
    }

    /// A file system: names and sizes, which any client changes, and the count of changes.
    struct Files {
        names: alloc::collections::BTreeMap<String, Ino>,
        sizes: alloc::collections::BTreeMap<Ino, u64>,
        changes: u64,
    }

    impl Files {
        /// The place of the first piece of a file, which differs for each size.
        fn place(&mut self, ino: Ino) -> Option<Place> {
            let size = *self.sizes.get(&ino)?;
            let start = ino << 8 | size;
            Some(Place {
                start,
                size,
                ..Place::default()
            })
        }
    }

    impl Files {
        fn ask(&mut self, request: &Request) -> Result<(Reply, usize), Error> {
            if !matches!(about(request), About::Nothing) {
                self.changes += 1;
            }
            let attr_of = |ino: &Ino| self.sizes.get(ino).map(|size| attr(*ino, *size));
            match request {
                Request::Stat { path, .. } => {
                    let found = self.names.get(path).and_then(attr_of);
                    Ok((Reply::Attr(found.ok_or(Error::NotFound)?), 0))
                }
                Request::StatIno { ino } => {
                    Ok((Reply::Attr(attr_of(ino).ok_or(Error::NotFound)?), 0))
                }
                Request::Truncate { ino, size } => {
                    let known = self.sizes.get_mut(ino).ok_or(Error::NotFound)?;
                    *known = *size;
                    Ok((Reply::Done, 0))
                }
                Request::Unlink { path } => {
                    self.names.remove(path).ok_or(Error::NotFound)?;
                    Ok((Reply::Done, 0))
                }
                Request::Open { path, .. } => {
                    let ino = 16 + self.changes;
                    self.names.insert(path.clone(), ino);
                    self.sizes.insert(ino, 0);
                    Ok((Reply::Done, 0))
                }
                _ => Err(Error::Unsupported),
            }
        }
    }

    /// Whatever this server asks and other clients do, the cache agrees with the files.
    #[test]
    fn what_is_known_is_true() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut hits, mut places, mut opens) = (0, 0, 0);
        for _ in 0..300 {
            let mut known = Known::default();
            let mut files = Files {
                names: [].into(),
                sizes: [].into(),
                changes: 1,
            };
            for _ in 0..300 {
                let path = format!("/a/{}", random.u32(..4));
                let ino = 16 + random.u64(1..20);
                let (open, truncate) = (
                    Request::Open {
                        path: path.clone(),
                        flags: Flags {
                            create: true,
                            ..Flags::default()
                        },
                        mode: 0,
                    },
                    Request::Truncate {
                        ino,
                        size: random.u64(..9),
                    },
                );
                let request = match random.u32(..12) {
                    0 => open,
                    1 | 2 => truncate,
                    3 => Request::Unlink { path: path.clone() },
                    4..8 => Request::StatIno { ino },
                    _ => stat(&path),
                };
                if let Some(said) = known.opens(&path, Flags::default(), files.changes) {
                    opens += 1;
                    let size = files.names.get(&path).map(|ino| (*ino, files.sizes[ino]));
                    let rule = "A6: what would be opened is known truly";
                    assert_eq!(Some((said.ino, said.size)), size, "{rule}");
                }
                if random.u32(..8) == 0 {
                    // A request of another client.
                    let _ = files.ask(&request);
                    continue;
                }
                if random.u32(..3) == 0 {
                    let before = files.changes;
                    let ino = random.choice(files.sizes.keys().copied()).unwrap_or(ino);
                    if let Some(said) = known.place(ino, 0, before) {
                        places += 1;
                        let rule = "A6: what is known of a piece is true";
                        assert_eq!(Some(said), files.place(ino), "{rule}");
                    } else if let Some(place) = files.place(ino) {
                        files.changes += 1;
                        if random.u32(..8) == 0 {
                            let _ = files.ask(&request);
                        }
                        known.learn_place(ino, 0, place, (before, files.changes));
                    }
                    continue;
                }
                if let Some(said) = known.answer(&request, files.changes) {
                    hits += 1;
                    let true_one = files.ask(&request).map(|(reply, _)| match reply {
                        Reply::Attr(attr) => attr,
                        reply => panic!("{reply:?}"),
                    });
                    assert_eq!(said, true_one, "A6: what is known is true");
                    continue;
                }
                let before = files.changes;
                let result = files.ask(&request);
                if random.u32(..8) == 0 {
                    // A request of another client, before the count is read again.
                    let other = 16 + random.u64(1..20);
                    let _ = files.ask(&Request::Truncate {
                        ino: other,
                        size: 99,
                    });
                }
                known.learn(&request, &result, (before, files.changes));
            }
        }
        assert!(
            hits > 2_000 && places > 1_000 && opens > 1_000,
            "{hits} {places} {opens}"
        );
    }

    /// Several pieces of a file are known at a time, until it is written; reading it changes only its access time.
    #[test]
    fn pieces_of_a_file_are_known_together() {
        let mut known = Known::default();
        let place = |start| Place {
            start,
            size: 4 * PIECE,
            ..Place::default()
        };
        known.learn_place(20, 0, place(1), (5, 6));
        known.learn_place(20, PIECE, place(2), (6, 7));
        let read = Request::Read {
            ino: 20,
            offset: 0,
            length: 1,
        };
        known.learn(&read, &Ok((Reply::Done, 1)), (7, 8));
        let both = [0, PIECE + 7].map(|offset| known.place(20, offset, 8));
        let rule = "pieces are known together";
        assert_eq!(both, [Some(place(1)), Some(place(2))], "{rule}");
        let write = Request::Write {
            ino: 20,
            offset: 0,
            append: false,
        };
        let length = 1;
        known.learn(
            &write,
            &Ok((Reply::Written { length, offset: 0 }, 0)),
            (8, 9),
        );
        assert_eq!(
            known.place(20, 0, 9),
            None,
            "A6: what was written is asked for"
        );
    }

    /// A file without a name is not what a path opens, and is not kept open.
    #[test]
    fn what_has_no_name_is_not_opened() {
        let mut known = Known::default();
        for (links, expected) in [(1, true), (0, false)] {
            let gone = Attr {
                links,
                ..attr(30 + Ino::from(links), 1)
            };
            let request = Request::StatIno { ino: gone.ino };
            assert_eq!(known.answer(&request, 5), None);
            known.learn(&request, &Ok((Reply::Attr(gone), 0)), (5, 5));
            let opened = known.opened(gone.ino, 5).is_some();
            assert_eq!(opened, expected, "a file without a name is closed at once");
        }
    }

    /// A request that failed may not have been counted, so a higher count is another client's change.
    #[test]
    fn a_failure_is_no_change_of_ones_own() {
        let mut known = Known::default();
        let request = Request::StatIno { ino: 20 };
        assert_eq!(known.answer(&request, 5), None);
        known.learn(&request, &Ok((Reply::Attr(attr(20, 1)), 0)), (5, 5));
        assert_eq!(known.answer(&request, 5), Some(Ok(attr(20, 1))));
        let other = Request::Truncate { ino: 21, size: 0 };
        known.learn(&other, &Err(Error::NoMemory), (5, 6));
        let said = known.answer(&request, 6);
        assert_eq!(said, None, "A6: the one change was somebody else's");
    }
}
