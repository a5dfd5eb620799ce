//! The files that a tree has open.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;
use serde::{Deserialize, Serialize};
use services::fs::{is_on_disk, mode, Attr, Flags};
use services::process::Named;

use super::{room, NONSENSE, OUT};
use crate::files::{Reply, Request};
use crate::host::Host;
use crate::path;
use crate::process::Description;
use crate::process::Kind;
use crate::system::System;

/// Most bytes of an unlinked file that are saved.
pub const MAX_UNLINKED: u64 = 4 << 20;

/// Most bytes of files with names that are saved of a tree.
pub const MAX_CARRIED: u64 = 3 << 20;

/// When a file was read and when it was written, in nanoseconds.
type Times = (u64, u64);

/// An open file.
#[derive(Serialize, Deserialize)]
pub(super) enum SavedFile {
    /// It has this path.
    Named(String),
    /// It has this path, and it is in the image, too. It was open to be written: then it is again what it was.
    Carried {
        path: String,
        written: bool,
        mode: u32,
        /// When it was read and written.
        times: Times,
        contents: Vec<u8>,
    },
    /// It has no name any more.
    Unlinked { mode: u32, contents: Vec<u8> },
}

/// Files that an image names and does not have, by path: as they are while the tree stands still.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<String, Option<(u64, u64)>>);

/// Most of them that are told.
const MAX_KNOWN: usize = 1024;

impl Known {
    /// A file that is only named has these attributes.
    fn learn(&mut self, path: &str, attr: &Attr) {
        let is_file = attr.mode & mode::TYPE == mode::FILE;
        if self.0.len() < MAX_KNOWN && (!self.0.contains_key(path) || is_file) {
            let facts = is_file.then_some((attr.size, attr.mtime_ns));
            self.0.insert(path.to_string(), facts);
        }
    }

    /// Whether it has been looked for the file with this path, or need not be.
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.len() >= MAX_KNOWN || self.0.contains_key(path)
    }

    /// Looks for the file with this path. If that has to be waited for nothing is known yet.
    pub(super) fn look_for(&mut self, host: &mut dyn Host, path: &str) {
        let request = Request::Stat {
            path: path.to_string(),
            follow: true,
        };
        let attr = match host.fs(&request, &[], &mut []) {
            Ok((Reply::Attr(attr), _)) => attr,
            _ if host.waits() => return,
            _ => Attr::default(),
        };
        self.learn(path, &attr);
    }

    /// About how many bytes of memory they take.
    pub(super) fn memory(&self) -> u64 {
        self.0.keys().map(|path| 96 + path.len() as u64).sum()
    }

    /// All of them, by rising path. Nothing is known any more then: there is memory for one copy of the paths.
    pub(super) fn take(&mut self) -> Vec<Named> {
        let files = core::mem::take(&mut self.0).into_iter();
        let files = files.filter_map(|(path, facts)| {
            let (size, written) = facts?;
            Some(Named {
                path,
                size,
                written,
            })
        });
        files.collect()
    }
}

impl SavedFile {
    /// What is saved of the file with this inode number, which may be written, and on which something of this kind is open.
    /// `carried` is for a file that is to be in the image: so many bytes may still be. What is known of one that is not
    /// gets `known`.
    pub(super) fn of(
        host: &mut dyn Host,
        system: &System,
        (ino, written): (u64, bool),
        kind: &Kind,
        (carried, known): (Option<&mut u64>, &mut Known),
    ) -> Result<Self, String> {
        let path = match host.fs(&Request::PathOf { ino }, &[], &mut []) {
            Ok((Reply::Path(path), _)) => path,
            Err(proto::Error::NotFound) => return unlinked(host, system, ino, kind),
            Err(error) => return Err(format!("an open file: {}", error.text())),
            Ok(_) => return Err("the file system does not answer sensibly".to_string()),
        };
        let Kind::File { .. } = kind else {
            return Ok(SavedFile::Named(path));
        };
        let attr = attributes(host, ino);
        let Some(left) = carried else {
            if let Ok(attr) = &attr {
                known.learn(&path, attr);
            }
            return Ok(SavedFile::Named(path));
        };
        let attr = attr?;
        let size = attr.size;
        if attr.mode & mode::TYPE == mode::SYMLINK {
            // By `O_PATH`.
            return Ok(SavedFile::Named(path));
        }
        if size > *left {
            host.log(&format!(
                "{path}: has {size} bytes, of which an image can hold {left}, so it is not in it"
            ));
            known.learn(&path, &attr);
            return Ok(SavedFile::Named(path));
        }
        *left -= size;
        let contents = seen(host, system, &attr)?;
        Ok(SavedFile::Carried {
            path,
            written,
            mode: attr.mode & 0o7777,
            times: (attr.atime_ns, attr.mtime_ns),
            contents,
        })
    }

    /// About how long it is, encoded.
    pub(super) fn length(&self) -> usize {
        match self {
            SavedFile::Named(path) => path.len(),
            SavedFile::Carried { path, contents, .. } => path.len() + contents.len(),
            SavedFile::Unlinked { contents, .. } => contents.len(),
        }
    }

    /// Whether it can be a file on which something of this kind is open.
    pub(super) fn fits(&self, kind: &Kind) -> bool {
        match self {
            SavedFile::Named(path) => is_path(path),
            SavedFile::Carried { path, mode, .. } => {
                matches!(kind, Kind::File { .. }) && is_path(path) && mode & !0o7777 == 0
            }
            SavedFile::Unlinked { mode, contents } => {
                !matches!(kind, Kind::Directory { .. })
                    && contents.len() as u64 <= MAX_UNLINKED
                    && mode & !0o7777 == 0
            }
        }
    }
}

/// Whether it is a path as file systems give them: the one way from the root.
pub(super) fn is_path(path: &str) -> bool {
    let mut names = path.split('/');
    path::is_sound(path) && names.all(|name| name != "." && name != "..")
}

/// Attributes of an open file.
fn attributes(host: &mut dyn Host, ino: u64) -> Result<Attr, String> {
    match host.fs(&Request::StatIno { ino }, &[], &mut []) {
        Ok((Reply::Attr(attr), _)) => Ok(attr),
        _ => Err("an open file cannot be found".to_string()),
    }
}

/// Has an open file say that it was read and written at these times.
fn set_times(host: &mut dyn Host, ino: u64, (atime_ns, mtime_ns): Times) {
    let request = Request::Utimens {
        ino,
        atime_ns,
        mtime_ns,
    };
    // It is as good without.
    let _ = host.fs(&request, &[], &mut []);
}

/// What is in an open file with these attributes, which does not say afterwards that it was read: programs see that.
fn read(host: &mut dyn Host, attr: &Attr) -> Result<Vec<u8>, String> {
    room(host, attr.size)?;
    let ino = attr.ino;
    let mut contents = alloc::vec![0; attr.size as usize];
    let mut done = 0;
    while done < contents.len() {
        let length = (contents.len() - done).min(proto::MAX_BULK);
        let request = Request::Read {
            ino,
            offset: done as u64,
            length: length as u32,
        };
        match host.fs(&request, &[], &mut contents[done..done + length]) {
            Ok((_, got)) if got > 0 => done += got.min(length),
            _ => return Err("an open file cannot be read".to_string()),
        }
    }
    // Somebody else may have written meanwhile: that is not to be hidden.
    let same = attributes(host, ino).is_ok_and(|now| now.mtime_ns == attr.mtime_ns);
    if same {
        set_times(host, ino, (attr.atime_ns, attr.mtime_ns));
    }
    Ok(contents)
}

/// What programs see in an open file: what they have changed where it is mapped is not in the file system yet.
fn seen(host: &mut dyn Host, system: &System, attr: &Attr) -> Result<Vec<u8>, String> {
    let mut contents = read(host, attr)?;
    let read = system.read_object(host, attr.ino, 0, &mut contents);
    read.map_err(|_| OUT.to_string())?;
    Ok(contents)
}

fn unlinked(
    host: &mut dyn Host,
    system: &System,
    ino: u64,
    kind: &Kind,
) -> Result<SavedFile, String> {
    if let Kind::Directory { .. } = kind {
        return Err("an open directory has been removed, so it cannot be saved".to_string());
    }
    let attr = attributes(host, ino)?;
    if attr.size > MAX_UNLINKED {
        return Err(format!(
            "an open file without a name has {} bytes; at most {MAX_UNLINKED} can be saved",
            attr.size
        ));
    }
    let contents = seen(host, system, &attr)?;
    Ok(SavedFile::Unlinked {
        mode: attr.mode & 0o7777,
        contents,
    })
}

/// Files that are more than files, FIFOs and the names of sockets: an image has only their paths. Where there is nothing
/// of that name, as in another machine or after the next boot of this one, a new one is made, which goes again if nothing
/// comes of it.
#[derive(Default)]
pub(super) struct New {
    /// What their permissions lack.
    pub(super) umask: u32,
    /// Those that were made.
    made: Vec<(String, u64)>,
    /// The inodes of empty files that were there and are more than files now.
    pub(super) became: Vec<u64>,
}

impl New {
    /// Opens one, with these permissions if it has to be made: its inode number, and its mode.
    pub(super) fn open(
        &mut self,
        host: &mut dyn Host,
        path: &str,
        permissions: u32,
    ) -> Result<(u64, u32), String> {
        if !is_path(path) {
            return Err(NONSENSE.to_string());
        }
        let found = host.fs(&opening(path, Flags::default(), 0), &[], &mut []);
        let is_missing = matches!(found, Err(proto::Error::NotFound));
        // None is on a disk, where it would be a mere file in the next boot.
        if !is_missing || is_on_disk(path) {
            return opened(found, path);
        }
        let flags = Flags {
            create: true,
            exclusive: true,
            ..Flags::default()
        };
        let request = opening(path, flags, permissions & !self.umask);
        let made = match host.fs(&request, &[], &mut []) {
            Err(proto::Error::NotFound) => {
                make_directories(host, path.rsplit_once('/').map_or("", |(to, _)| to));
                host.fs(&request, &[], &mut [])
            }
            made => made,
        };
        let (ino, mode) = opened(made, path)?;
        self.made.push((path.to_string(), ino));
        Ok((ino, mode))
    }

    /// Removes those that were made; what was a mere file is one again.
    pub(super) fn give_up(self, system: &mut System, host: &mut dyn Host) {
        for (path, ino) in self.made {
            let _ = host.fs(&Request::Unlink { path }, &[], &mut []);
            system.forget_removed(host, ino);
        }
        for ino in self.became {
            system.leave_node(ino);
        }
    }
}

/// Files of an image that are open again.
#[derive(Default)]
pub(super) struct Opened {
    /// What an inode number of the image is here.
    files: BTreeMap<u64, u64>,
    /// Each as often as it is open.
    open: Vec<u64>,
    /// A name that is not to stay: that of a file without one until it is open often enough, or of one that is put back
    /// until it is complete and has its own.
    name: Option<String>,
    /// Those that had to be made.
    pub(super) new: New,
}

impl Opened {
    /// Opens a file of the image once for each of those that are open on it and have these numbers among them: at first from 0
    /// on, and then from where it ended.
    pub(super) fn open(
        &mut self,
        host: &mut dyn Host,
        (old, file): &(u64, SavedFile),
        (on_it, now): (&[&Description], Range<usize>),
        hint: u32,
    ) -> Result<(), String> {
        let (is_first, is_last) = (now.start == 0, now.end == on_it.len());
        // It can be a link that is open itself.
        let names_only = on_it.iter().all(|open| open.is_path());
        let kinds: Vec<_> = on_it[now].iter().map(|open| &open.kind).collect();
        let known = self.number(*old);
        let ino = match file {
            SavedFile::Named(path) => {
                let is_fifo = on_it.iter().any(|open| open.kind.pipe().is_some());
                let how = (names_only, is_fifo, known);
                self.open_named(host, path, &kinds, how)?
            }
            SavedFile::Carried {
                path,
                written,
                mode,
                times,
                contents,
            } => {
                let hint = format!("{hint}-{}", self.files.len());
                let about = (&*hint, *mode, *times);
                let file = (&**path, *written);
                let is_another = is_first && put_back(host, file, about, contents, &mut self.name)?;
                let ino = self.open_named(host, path, &kinds, (false, false, known))?;
                if is_another && !host.waits() {
                    host.log(&format!(
                        "{path}: is another file than when the process was saved"
                    ));
                }
                ino
            }
            SavedFile::Unlinked { mode, contents } => {
                let failed =
                    |error: proto::Error| format!("a file without a name: {}", error.text());
                let hint = format!("{hint}-{}", self.files.len());
                let ino = match known {
                    Some(ino) => ino,
                    None => self
                        .make_unlinked(host, (&hint, *mode), contents, is_last && kinds.len() == 1)
                        .map_err(failed)?,
                };
                // When it was made it was opened once.
                let more = kinds.len() - usize::from(is_first);
                let opened = self.open_unlinked(host, ino, more);
                // The name is removed then, whatever comes of it.
                let removed = match is_last || opened.is_err() {
                    true => self.remove_name(host),
                    false => Ok(()),
                };
                opened.and(removed).map_err(failed)?;
                ino
            }
        };
        self.files.insert(*old, ino);
        Ok(())
    }

    fn open_named(
        &mut self,
        host: &mut dyn Host,
        path: &str,
        kinds: &[&Kind],
        (names_only, is_fifo, mut ino): (bool, bool, Option<u64>),
    ) -> Result<u64, String> {
        let flags = Flags {
            nofollow: names_only,
            symlink: names_only,
            ..Flags::default()
        };
        for kind in kinds {
            let (found, found_mode) = match is_fifo {
                true => self.new.open(host, path, 0o666)?,
                false => open_as(host, path, flags)?,
            };
            self.open.push(found);
            let found_type = found_mode & mode::TYPE;
            let is_expected = match kind {
                Kind::Directory { .. } => found_type == mode::DIRECTORY,
                _ => found_type == mode::FILE || names_only && found_type == mode::SYMLINK,
            };
            if !is_expected || *ino.get_or_insert(found) != found {
                return Err(format!(
                    "{path}: is not what it was when the process was saved"
                ));
            }
        }
        ino.ok_or_else(|| NONSENSE.to_string())
    }

    /// Makes a file with these contents, and opens it: without a name if it is open once, else with one for a while.
    fn make_unlinked(
        &mut self,
        host: &mut dyn Host,
        (hint, mode): (&str, u32),
        contents: &[u8],
        once: bool,
    ) -> Result<u64, proto::Error> {
        let ino = if once {
            let flags = Flags {
                nameless: true,
                ..Flags::default()
            };
            match host.fs(&opening("/", flags, mode), &[], &mut [])? {
                (Reply::Opened(attr), _) => attr.ino,
                _ => return Err(proto::Error::Broken),
            }
        } else {
            let (path, ino) = make(host, "/tmp", hint, mode)?;
            self.name = Some(path);
            ino
        };
        self.open.push(ino);
        write(host, ino, contents).map(|()| ino)
    }

    /// Opens a file that is to have no name, and still has one, so often.
    fn open_unlinked(
        &mut self,
        host: &mut dyn Host,
        ino: u64,
        times: usize,
    ) -> Result<(), proto::Error> {
        for _ in 0..times {
            let path = self.name.as_deref().ok_or(proto::Error::Broken)?;
            match host.fs(&opening(path, Flags::default(), 0), &[], &mut [])? {
                (Reply::Opened(attr), _) if attr.ino == ino => self.open.push(ino),
                _ => return Err(proto::Error::Broken),
            }
        }
        Ok(())
    }

    /// Removes the name of a file that is to have none.
    fn remove_name(&mut self, host: &mut dyn Host) -> Result<(), proto::Error> {
        match self.name.take() {
            Some(path) => host.fs(&Request::Unlink { path }, &[], &mut []).map(|_| ()),
            None => Ok(()),
        }
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// Only so many are, after all.
    pub(super) fn forget_from(&mut self, count: usize) {
        self.open.truncate(count);
    }

    /// What an inode number of the image is here.
    pub(super) fn number(&self, ino: u64) -> Option<u64> {
        self.files.get(&ino).copied()
    }

    /// Closes all of them.
    pub(super) fn close(mut self, system: &mut System, host: &mut dyn Host) {
        let _ = self.remove_name(host);
        for ino in self.open {
            let _ = host.fs(&Request::Close { ino }, &[], &mut []);
        }
        self.new.give_up(system, host);
    }
}

pub(super) fn opening(path: &str, flags: Flags, mode: u32) -> Request {
    Request::Open {
        path: path.to_string(),
        flags,
        mode,
    }
}

/// Opens a path: its inode number, and its mode.
pub(super) fn open(host: &mut dyn Host, path: &str) -> Result<(u64, u32), String> {
    open_as(host, path, Flags::default())
}

/// Fails if there is no directory of this name, in which a process is to be.
pub(super) fn is_directory(host: &mut dyn Host, path: &str) -> Result<(), String> {
    let request = Request::Stat {
        path: path.to_string(),
        follow: true,
    };
    match host.fs(&request, &[], &mut []) {
        Ok((Reply::Attr(attr), _)) if attr.mode & mode::TYPE == mode::DIRECTORY => Ok(()),
        Ok(_) => Err(format!(
            "{path}: is not what it was when the process was saved"
        )),
        Err(error) => Err(format!("{path}: {}", error.text())),
    }
}

fn open_as(host: &mut dyn Host, path: &str, flags: Flags) -> Result<(u64, u32), String> {
    if !is_path(path) {
        return Err(NONSENSE.to_string());
    }
    opened(host.fs(&opening(path, flags, 0), &[], &mut []), path)
}

/// What a file system has answered to who opens this path.
fn opened(answer: Result<(Reply, usize), proto::Error>, path: &str) -> Result<(u64, u32), String> {
    match answer {
        Ok((Reply::Opened(attr), _)) => Ok((attr.ino, attr.mode)),
        Ok(_) => Err("the file system does not answer sensibly".to_string()),
        Err(error) => Err(format!("{path}: {}", error.text())),
    }
}

/// Sees to it that a file is what it was. One that was only read and is there is left as it is; any other takes the place of
/// what is there when it is complete, so that there never is half of one. Until then `name` is how it is called, for
/// who gives up meanwhile. Whether what is there is another one, and stays.
fn put_back(
    host: &mut dyn Host,
    (path, written): (&str, bool),
    (hint, mode, times): (&str, u32, Times),
    contents: &[u8],
    name: &mut Option<String>,
) -> Result<bool, String> {
    if let Ok((ino, found)) = open(host, path) {
        let is_file = found & mode::TYPE == mode::FILE;
        let same = !is_file || is_in(host, ino, contents);
        if is_file && same && written {
            set_times(host, ino, times);
        }
        let _ = host.fs(&Request::Close { ino }, &[], &mut []);
        if same || !written {
            return Ok(!same);
        }
    }
    let failed = |error: proto::Error| format!("{path}: {}", error.text());
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let made = match make(host, directory, hint, mode) {
        Err(proto::Error::NotFound) => {
            make_directories(host, directory);
            make(host, directory, hint, mode)
        }
        made => made,
    };
    let (from, ino) = made.map_err(failed)?;
    *name = Some(from.clone());
    let written = write(host, ino, contents);
    set_times(host, ino, times);
    // What is on a disk may not be durable yet, and never become so. Then what had the name keeps it. Nobody is told
    // what becomes of closing.
    let synced = written.and_then(|()| host.fs(&Request::Sync { ino }, &[], &mut []));
    let _ = host.fs(&Request::Close { ino }, &[], &mut []);
    let to = path.to_string();
    let renaming = Request::Rename {
        from: from.clone(),
        to,
    };
    let moved = synced.and_then(|_| host.fs(&renaming, &[], &mut []).map(|_| ()));
    if moved.is_err() {
        let _ = host.fs(&Request::Unlink { path: from }, &[], &mut []);
    }
    if !host.waits() {
        *name = None;
    }
    moved.map(|()| false).map_err(failed)
}

/// Makes a directory, and those in which it is, as far as they are not there.
fn make_directories(host: &mut dyn Host, directory: &str) {
    let ends = directory.match_indices('/').map(|(at, _)| at).skip(1);
    for end in ends.chain([directory.len()]) {
        let path = directory[..end].to_string();
        let _ = host.fs(&Request::Mkdir { path, mode: 0o755 }, &[], &mut []);
    }
}

/// Whether this and nothing else is in a file.
fn is_in(host: &mut dyn Host, ino: u64, contents: &[u8]) -> bool {
    let attr = attributes(host, ino);
    let alike = attr.ok().filter(|attr| attr.size == contents.len() as u64);
    alike.is_some_and(|attr| read(host, &attr).is_ok_and(|found| found == contents))
}

/// Makes a new file in a directory: its path, and its inode number. A name that is taken belongs to another file, so the next one
/// is tried.
fn make(
    host: &mut dyn Host,
    directory: &str,
    hint: &str,
    mode: u32,
) -> Result<(String, u64), proto::Error> {
    let flags = Flags {
        create: true,
        exclusive: true,
        ..Flags::default()
    };
    for attempt in 0..100 {
        let path = format!("{directory}/.restored-{hint}-{attempt}");
        match host.fs(&opening(&path, flags, mode), &[], &mut []) {
            Ok((Reply::Opened(attr), _)) => return Ok((path, attr.ino)),
            Err(proto::Error::Exists) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(proto::Error::Broken),
        }
    }
    Err(proto::Error::Exists)
}

fn write(host: &mut dyn Host, ino: u64, contents: &[u8]) -> Result<(), proto::Error> {
    let mut written = 0;
    while written < contents.len() {
        let piece = &contents[written..contents.len().min(written + proto::MAX_BULK)];
        let request = Request::Write {
            ino,
            offset: written as u64,
            append: false,
        };
        match host.fs(&request, piece, &mut [])? {
            (Reply::Written { length, .. }, _) if length > 0 => written += length as usize,
            _ => return Err(proto::Error::Broken),
        }
    }
    Ok(())
}
