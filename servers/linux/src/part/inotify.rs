//! Instances of `inotify` in an image: their watches and unread records.
//!
//! Watched files are named by their paths; files without a name, if a description of the tree has them open, by the
//! description's inode number. A file that does not exist when the tree is restored has been removed meanwhile: its
//! watches are told so, as if that had happened during the watch.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use services::fs::{mode, Flags, ON_DISK};

use super::file::{is_path, opening};
use super::{Refusal, Saved};
use crate::files::{Reply, Request};
use crate::host::Host;
use crate::inotify::{Place, Queue, Watch, EVENTS, HOW};
use crate::process::{Description, Files, Kind, Shared};
use crate::system::{Payer, System, MAX_MARKS};

/// Cost of looking up a watched file while its tree is saved, in descriptors (see [`super::STEP`]).
const MARK: usize = 32;

/// An instance in an image.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedInotify {
    pub(super) id: u64,
    /// The last watch number.
    last: i32,
    /// The last cookie of a renaming; the restored system continues behind it.
    cookie: u32,
    /// The unread records.
    pub(super) queue: Vec<u8>,
    /// The watches by rising number.
    pub(super) watches: Vec<SavedMark>,
}

/// A watch in an image.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedMark {
    wd: i32,
    asks: u32,
    file: Found,
}

/// How the watched file is found again.
#[derive(Serialize, Deserialize)]
enum Found {
    Path(String),
    /// By its inode number in the descriptions: an open file without a name.
    Open(u64),
    /// The file does not exist any more.
    Gone,
}

/// The present or last name of an open file in a watched directory. It is saved so that the directory's watches still
/// get the file's events after it has lost that name.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedPlace {
    /// The number of the description; entries have rising numbers.
    description: u32,
    /// Instance and watch number of a watch of the directory.
    directory: (u64, i32),
    name: String,
    /// Whether the name has been removed.
    is_gone: bool,
}

impl SavedInotify {
    /// The watched files without a name.
    pub(super) fn nameless(&self) -> impl Iterator<Item = u64> + '_ {
        self.watches.iter().filter_map(|mark| match mark.file {
            Found::Open(ino) => Some(ino),
            Found::Path(_) | Found::Gone => None,
        })
    }
}

impl SavedMark {
    const fn watch(&self) -> Watch {
        Watch {
            wd: self.wd,
            asks: self.asks,
        }
    }
}

/// Paths of watched files by inode number, as far as they were looked up; `None` for files without a path.
pub(super) type Paths = BTreeMap<u64, Option<String>>;

/// Looks up the paths of the files that these instances watch, at most `left` of work (see [`super::STEP`]).
pub(super) fn find_paths(
    ids: &[u64],
    paths: &mut Paths,
    system: &System,
    host: &mut dyn Host,
    left: &mut usize,
) -> Result<(), Refusal> {
    for id in ids {
        for (ino, _, has_no_name) in system.inotify.watches(*id).0 {
            if has_no_name || paths.contains_key(&ino) {
                continue;
            }
            if *left == 0 {
                return Err(Refusal::Turn);
            }
            *left = left.saturating_sub(MARK);
            let path = match host.fs(&Request::PathOf { ino }, &[], &mut []) {
                Ok((Reply::Path(path), _)) => Some(path),
                _ => None,
            };
            if host.waits() {
                return Err(Refusal::Later);
            }
            paths.insert(ino, path);
            if ino & ON_DISK != 0 {
                // The answers for this file need not be kept while the next one is looked up.
                return Err(Refusal::Later);
            }
        }
    }
    Ok(())
}

/// The instances of a tree. `is_nameless` tells whether the image has the content of a file without a name.
pub(super) fn saved(
    ids: &[u64],
    paths: &Paths,
    is_nameless: impl Fn(u64) -> bool,
    system: &System,
) -> Vec<SavedInotify> {
    let ids: BTreeSet<u64> = ids.iter().copied().collect();
    let saved = ids.into_iter().map(|id| {
        let (watches, last) = system.inotify.watches(id);
        let watches = watches.into_iter().map(|(ino, watch, _)| SavedMark {
            wd: watch.wd,
            asks: watch.asks,
            file: match paths.get(&ino) {
                Some(Some(path)) => Found::Path(path.clone()),
                _ if is_nameless(ino) => Found::Open(ino),
                _ => Found::Gone,
            },
        });
        SavedInotify {
            id,
            last,
            cookie: system.inotify.cookie(),
            queue: system
                .inotify
                .queue(id)
                .map_or_else(Vec::new, Queue::to_bytes),
            watches: watches.collect(),
        }
    });
    saved.collect()
}

/// The names of the tree's open files in directories that these instances watch.
pub(super) fn saved_places(
    ids: &[u64],
    descriptions: &[Shared<Description>],
    system: &System,
) -> Vec<SavedPlace> {
    let mut directories = BTreeMap::new();
    for id in ids {
        for (ino, watch, _) in system.inotify.watches(*id).0 {
            directories.insert(ino, (*id, watch.wd));
        }
    }
    let saved = (0u32..).zip(descriptions).filter_map(|(number, one)| {
        let place = place_of(one, system)?;
        Some(SavedPlace {
            description: number,
            directory: *directories.get(&place.directory)?,
            name: place.name.to_string(),
            is_gone: place.is_gone,
        })
    });
    saved.collect()
}

/// The place of a description, if it is known.
fn place_of<'a>(description: &Shared<Description>, system: &'a System) -> Option<&'a Place> {
    system.inotify.place(Rc::as_ptr(description).addr())
}

/// Their approximate length in bytes when encoded.
pub(super) fn length(
    ids: &[u64],
    descriptions: &[Shared<Description>],
    paths: &Paths,
    system: &System,
) -> u64 {
    if ids.is_empty() {
        return 0;
    }
    let path = |ino: u64| {
        let path = paths.get(&ino).and_then(Option::as_ref);
        path.map_or(0, String::len)
    };
    let lengths = ids.iter().map(|id| {
        let (watches, _) = system.inotify.watches(*id);
        let watches = watches.iter().map(|(ino, ..)| 24 + path(*ino));
        system.inotify.queue(*id).map_or(0, Queue::len) + 24 + watches.sum::<usize>()
    });
    let places = descriptions.iter().filter_map(|one| place_of(one, system));
    let names = places.map(|place| 24 + place.name.len());
    (lengths.sum::<usize>() + names.sum::<usize>()) as u64
}

/// Whether each instance has exactly one description and is consistent.
pub(super) fn are_sound(saved: &Saved) -> bool {
    let ids = saved.descriptions.iter().filter_map(|d| match d.kind {
        Kind::Inotify { id } => Some(id),
        _ => None,
    });
    let mut ids: Vec<u64> = ids.collect();
    ids.sort_unstable();
    let all = &saved.inotifies;
    let marks: usize = all.iter().map(|one| one.watches.len()).sum();
    ids.windows(2).all(|w| w[0] < w[1])
        && ids.iter().eq(all.iter().map(|one| &one.id))
        && marks <= MAX_MARKS
        && all.iter().all(is_sound)
        && places_are_sound(saved)
}

/// Whether the places are consistent. The instances have been checked.
fn places_are_sound(saved: &Saved) -> bool {
    let (places, all) = (&saved.places, &saved.inotifies);
    let is_watched = |(id, wd): (u64, i32)| {
        let one = all.binary_search_by_key(&id, |one| one.id);
        let mark = one.map(|one| all[one].watches.binary_search_by_key(&wd, |mark| mark.wd));
        matches!(mark, Ok(Ok(_)))
    };
    places
        .windows(2)
        .all(|w| w[0].description < w[1].description)
        && places.iter().all(|place| {
            let description = saved.descriptions.get(place.description as usize);
            let name = &place.name;
            description.is_some_and(|description| description.ino().is_some())
                && is_watched(place.directory)
                && (1..=255).contains(&name.len())
                && !name.contains(['/', '\0'])
        })
}

/// Whether an instance is consistent by itself.
fn is_sound(one: &SavedInotify) -> bool {
    let mut inos = BTreeSet::new();
    let mut is_found = |file: &Found| match file {
        Found::Path(path) => is_path(path),
        Found::Open(ino) => inos.insert(*ino),
        Found::Gone => true,
    };
    Queue::from_bytes(&one.queue).is_some()
        && one.watches.windows(2).all(|w| w[0].wd < w[1].wd)
        && one.watches.first().is_none_or(|first| first.wd > 0)
        && one.watches.last().map_or(0, |last| last.wd) <= one.last
        && one
            .watches
            .iter()
            .all(|mark| mark.asks & !(EVENTS | HOW) == 0 && is_found(&mark.file))
}

/// The watched files that are open again, once for their watch, in the order of the watches looked up so far: inode
/// number and whether it is a directory; `None` if the file was not opened.
#[derive(Default)]
pub(super) struct Watched {
    files: Vec<Option<(u64, bool)>>,
}

impl Watched {
    /// Opens the watched files until the host has to wait or has opened one on a disk; returns whether all are done.
    pub(super) fn open(&mut self, all: &[SavedInotify], host: &mut dyn Host) -> bool {
        let marks = all.iter().flat_map(|one| &one.watches);
        for mark in marks.skip(self.files.len()) {
            let found = match &mark.file {
                Found::Path(path) => open_itself(host, path),
                Found::Open(..) | Found::Gone => None,
            };
            if host.waits() {
                return false;
            }
            self.files.push(found);
            if found.is_some_and(|(ino, _)| ino & ON_DISK != 0) {
                return false;
            }
        }
        true
    }

    /// Closes the files.
    pub(super) fn close(self, host: &mut dyn Host) {
        for (ino, _) in self.files.into_iter().flatten() {
            let _ = host.fs(&Request::Close { ino }, &[], &mut []);
        }
    }

    /// Restores queues and watches of the instances. `new` has their new identities by the old ones, `number` gives the
    /// inode number here for one of the image.
    pub(super) fn watch_again(
        mut self,
        (all, new): (Vec<SavedInotify>, &BTreeMap<u64, u64>),
        number: impl Fn(u64) -> Option<u64>,
        system: &mut System,
        host: &mut dyn Host,
    ) -> Result<(), String> {
        let mut files = core::mem::take(&mut self.files).into_iter();
        for one in all {
            let Some(id) = new.get(&one.id).copied() else {
                continue;
            };
            // The part has been checked, so the queue is valid.
            let queue = Queue::from_bytes(&one.queue).unwrap_or_default();
            system.restore_inotify(id, queue, (one.last, one.cookie));
            for mark in one.watches {
                let found = files.next().flatten();
                let file = match (found, &mark.file) {
                    (Some((ino, is_directory)), _) => Some((ino, is_directory, false)),
                    (None, Found::Open(old)) => number(*old).map(|ino| (ino, false, true)),
                    (None, _) => None,
                };
                // If two saved paths lead to one file it is watched once.
                let Some(file) = file.filter(|file| !system.watches_file(id, file.0)) else {
                    if let Some((ino, _)) = found {
                        let _ = host.fs(&Request::Close { ino }, &[], &mut []);
                    }
                    system.lost_meanwhile(host, id, mark.watch());
                    continue;
                };
                let made = system.add_watch(id, file, mark.watch());
                if let (Some((ino, _)), Err(_) | Ok(false)) = (found, &made) {
                    let _ = host.fs(&Request::Close { ino }, &[], &mut []);
                }
                if made.is_err() {
                    self.files = files.collect();
                    self.close(host);
                    return Err("there are too many files that are watched".to_string());
                }
            }
        }
        Ok(())
    }
}

/// Restores the places of descriptions. `of` are the tables of the image, `tables` those made from them.
pub(super) fn place_again(
    (places, new): (Vec<SavedPlace>, &BTreeMap<u64, u64>),
    of: &[Vec<(u32, bool, u32)>],
    tables: &[Shared<Files>],
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) {
    if places.is_empty() {
        return;
    }
    let mut descriptions = BTreeMap::new();
    for (entries, table) in of.iter().zip(tables) {
        for (fd, _, number) in entries {
            if let Some(fd) = table.borrow().fds.get(*fd) {
                descriptions.insert(*number, fd.description.clone());
            }
        }
    }
    for SavedPlace {
        description,
        directory: (id, wd),
        name,
        is_gone,
    } in places
    {
        let directory = new.get(&id).and_then(|id| system.inotify.watched(*id, wd));
        let description = descriptions.get(&description);
        let ino = description.and_then(|description| description.borrow().ino());
        if let (Some(directory), Some(description), Some(ino)) = (directory, description, ino) {
            let place = Place {
                directory,
                name: name.into(),
                is_gone,
            };
            let address = Rc::as_ptr(description).addr();
            system.keep_place(host, (address, ino), &place, payer);
        }
    }
}

/// Opens the file that a path names, not following a symbolic link; returns inode number and whether it is a directory.
fn open_itself(host: &mut dyn Host, path: &str) -> Option<(u64, bool)> {
    let flags = Flags {
        nofollow: true,
        symlink: true,
        ..Flags::default()
    };
    match host.fs(&opening(path, flags, 0), &[], &mut []) {
        Ok((Reply::Opened(opened), _)) => {
            Some((opened.ino, opened.mode & mode::TYPE == mode::DIRECTORY))
        }
        _ => None,
    }
}

/// Makes the instances, without watches; returns the new identities by the old ones. On failure none are left.
pub(super) fn make(
    saved: &mut Saved,
    payer: Payer,
    system: &mut System,
    host: &mut dyn Host,
) -> Result<BTreeMap<u64, u64>, String> {
    let mut made = BTreeMap::new();
    for one in &saved.inotifies {
        let Ok(new) = system.new_inotify(payer) else {
            give_up(&made, system, host);
            return Err("there are too many instances of inotify".to_string());
        };
        made.insert(one.id, new);
    }
    for description in &mut saved.descriptions {
        if let Kind::Inotify { id } = &mut description.kind {
            *id = made.get(id).copied().unwrap_or(0);
        }
    }
    Ok(made)
}

/// Removes the instances again.
pub(super) fn give_up(made: &BTreeMap<u64, u64>, system: &mut System, host: &mut dyn Host) {
    for id in made.values() {
        system.forget_inotify(host, *id);
    }
}
