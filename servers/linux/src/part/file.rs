//! The open files of a tree in an image.

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

/// Access time and modification time of a file, in nanoseconds.
type Times = (u64, u64);

/// An open file in an image.
#[derive(Serialize, Deserialize)]
pub(super) enum SavedFile {
    /// Only its path is saved.
    Named(String),
    /// Its path and its content are saved. The restore makes it what it was if it was open for writing or does not
    /// exist.
    Carried {
        path: String,
        written: bool,
        mode: u32,
        /// Access and modification time.
        times: Times,
        contents: Vec<u8>,
    },
    /// It has no name any more; its content is saved.
    Unlinked { mode: u32, contents: Vec<u8> },
}

/// Size and modification time of files that an image names without their content, by path, as they are while the tree
/// is stopped; `None` for what is not a regular file or does not exist.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<String, Option<(u64, u64)>>);

/// Most files that are kept.
const MAX_KNOWN: usize = 1024;

impl Known {
    /// Notes the attributes of a file of which only the path is saved.
    fn learn(&mut self, path: &str, attr: &Attr) {
        let is_file = attr.mode & mode::TYPE == mode::FILE;
        if self.0.len() < MAX_KNOWN && (!self.0.contains_key(path) || is_file) {
            let facts = is_file.then_some((attr.size, attr.mtime_ns));
            self.0.insert(path.to_string(), facts);
        }
    }

    /// Whether the file with this path was looked up, or need not be.
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.len() >= MAX_KNOWN || self.0.contains_key(path)
    }

    /// Looks up the file with this path. If the host has to wait, nothing is noted.
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

    /// Approximate memory of these entries in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.0.keys().map(|path| 96 + path.len() as u64).sum()
    }

    /// Takes all files, by rising path. The entries are removed, so that there is memory for one copy of the paths.
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
    /// Saves the file with this inode number, on which a description of this kind is open; `written` says whether one
    /// may write it. `carried` is the number of bytes that may still be put into the image, if the file's content is to
    /// be there. The attributes of a file whose content is not saved go to `known`.
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
            // A symbolic link, opened with `O_PATH`.
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

    /// Its approximate length in bytes when encoded.
    pub(super) fn length(&self) -> usize {
        match self {
            SavedFile::Named(path) => path.len(),
            SavedFile::Carried { path, contents, .. } => path.len() + contents.len(),
            SavedFile::Unlinked { contents, .. } => contents.len(),
        }
    }

    /// Whether a description of this kind can be open on it.
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

/// Whether this is a path as file systems return it: absolute and without `.` and `..`.
pub(super) fn is_path(path: &str) -> bool {
    let mut names = path.split('/');
    path::is_sound(path) && names.all(|name| name != "." && name != "..")
}

/// The attributes of an open file.
fn attributes(host: &mut dyn Host, ino: u64) -> Result<Attr, String> {
    match host.fs(&Request::StatIno { ino }, &[], &mut []) {
        Ok((Reply::Attr(attr), _)) => Ok(attr),
        _ => Err("an open file cannot be found".to_string()),
    }
}

/// Sets the access and modification time of an open file.
fn set_times(host: &mut dyn Host, ino: u64, (atime_ns, mtime_ns): Times) {
    let request = Request::Utimens {
        ino,
        atime_ns,
        mtime_ns,
    };
    // A failure does no harm.
    let _ = host.fs(&request, &[], &mut []);
}

/// The content of an open file with these attributes. Its access time is set back, because programs can see it.
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
    // If another program has written meanwhile, setting the times back would hide that.
    let same = attributes(host, ino).is_ok_and(|now| now.mtime_ns == attr.mtime_ns);
    if same {
        set_times(host, ino, (attr.atime_ns, attr.mtime_ns));
    }
    Ok(contents)
}

/// The content of an open file as programs see it: changes in mapped parts may not be in the file system yet.
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

/// Special files (FIFOs and names of sockets), of which an image has only the paths. If a path does not exist, as on
/// another machine or after a reboot, a new file is made, which is removed again if the restore fails.
#[derive(Default)]
pub(super) struct New {
    /// The umask for new files.
    pub(super) umask: u32,
    /// Paths and inodes of the files that were made.
    made: Vec<(String, u64)>,
    /// Inodes of existing empty files that became special files.
    pub(super) became: Vec<u64>,
}

impl New {
    /// Opens a special file, or makes it with these permissions; returns its inode number and mode.
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
        // No special file is on a disk, where it would be an ordinary file after the next boot.
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

    /// Removes the files that were made, and makes the existing ones ordinary files again.
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

/// The files of an image that are open again.
#[derive(Default)]
pub(super) struct Opened {
    /// Inode numbers here by inode numbers of the image.
    files: BTreeMap<u64, u64>,
    /// The inode of each open file, as often as it is open.
    open: Vec<u64>,
    /// A temporary name: of a file without a name until it has been opened for all its descriptions, or of a file that
    /// is put back until it is complete.
    name: Option<String>,
    /// The special files that had to be made.
    pub(super) new: New,
}

impl Opened {
    /// Opens a file of the image once for each of its descriptions `on_it` with an index in `now`. The first range of a
    /// file begins at 0, each further one where the last one ended.
    pub(super) fn open(
        &mut self,
        host: &mut dyn Host,
        (old, file): &(u64, SavedFile),
        (on_it, now): (&[&Description], Range<usize>),
        hint: u32,
    ) -> Result<(), String> {
        let (is_first, is_last) = (now.start == 0, now.end == on_it.len());
        // With `O_PATH` descriptions only, the file can be a symbolic link.
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
                // Making the file opened it once.
                let more = kinds.len() - usize::from(is_first);
                let opened = self.open_unlinked(host, ino, more);
                // The temporary name is removed after the last open, and on failure.
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

    /// Makes and opens a file with these contents: without a name if it is opened only `once`, else with a temporary
    /// name.
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

    /// Opens a file by its temporary name this many times.
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

    /// Removes the temporary name.
    fn remove_name(&mut self, host: &mut dyn Host) -> Result<(), proto::Error> {
        match self.name.take() {
            Some(path) => host.fs(&Request::Unlink { path }, &[], &mut []).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The number of opens so far.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// Forgets all opens but the first `count`.
    pub(super) fn forget_from(&mut self, count: usize) {
        self.open.truncate(count);
    }

    /// The inode number here for one of the image.
    pub(super) fn number(&self, ino: u64) -> Option<u64> {
        self.files.get(&ino).copied()
    }

    /// Closes all files and removes those that were made.
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

/// Opens a path; returns inode number and mode.
pub(super) fn open(host: &mut dyn Host, path: &str) -> Result<(u64, u32), String> {
    open_as(host, path, Flags::default())
}

/// Fails unless this path is a directory.
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

/// Inode number and mode from the answer to an open of this path.
fn opened(answer: Result<(Reply, usize), proto::Error>, path: &str) -> Result<(u64, u32), String> {
    match answer {
        Ok((Reply::Opened(attr), _)) => Ok((attr.ino, attr.mode)),
        Ok(_) => Err("the file system does not answer sensibly".to_string()),
        Err(error) => Err(format!("{path}: {}", error.text())),
    }
}

/// Makes a file what it was when the tree was saved. An existing file stays if it has the same content or was only open
/// for reading; otherwise a new file takes its name when it is complete, so that there never is half of one. Until then
/// `name` has the temporary name, which the caller removes if it gives up. Returns whether the existing file differs
/// and stays.
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
    // On a disk the new content may not be durable yet, and closing reports no errors. So the old file keeps its name
    // unless the sync succeeds.
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

/// Makes a directory and its missing parents.
fn make_directories(host: &mut dyn Host, directory: &str) {
    let ends = directory.match_indices('/').map(|(at, _)| at).skip(1);
    for end in ends.chain([directory.len()]) {
        let path = directory[..end].to_string();
        let _ = host.fs(&Request::Mkdir { path, mode: 0o755 }, &[], &mut []);
    }
}

/// Whether a file has exactly this content.
fn is_in(host: &mut dyn Host, ino: u64, contents: &[u8]) -> bool {
    let attr = attributes(host, ino);
    let alike = attr.ok().filter(|attr| attr.size == contents.len() as u64);
    alike.is_some_and(|attr| read(host, &attr).is_ok_and(|found| found == contents))
}

/// Makes a new file in a directory; returns its path and inode number. If a name is taken by another file the next one
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
