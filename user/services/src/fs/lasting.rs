//! A client of files that outlives their server.
//!
//! [`Lasting`] opens a session, and when its server has died another one with the next server. It then opens the files
//! that were open again by path, if the path still leads to the same file, and repeats in order the writes that may not
//! be durable: it keeps these until they are durable, at most [`MOST`] bytes. The caller sees a slow call.
//!
//! **If the program was restored** the session says so: it is one in which nothing is open, and which answers
//! [`Error::Restored`] to every request that was not done before the program was saved. Then all numbers of open files
//! are void, since a number that is opened again in the next session may be that of another file of this program. And
//! nothing is repeated, since what the program wrote before it was saved is in the files. A program that may be
//! restored opens files as [`Known`].
//!
//! **A request that was lost** with the server may have been done, and a change of names is durable then. So the
//! request is made again, and an error that says it was done before (the directory exists, the file does not) is
//! ignored if the state was different before: with a durable service this client checks that before each change of
//! names. It cannot tell its own change from the same change that somebody else made between that check and the
//! server's death.
use super::server::two;
use super::{mode, Attr, FilesClient, Flags, Ino, Renamed, ATTR_ROOM, PATH_ROOM};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use interface::Error;

/// Most bytes of kept writes, which may not be durable. A caller that writes more waits until they are.
pub const MOST: usize = 256 << 10;
/// Bytes of memory that a kept change takes besides its data.
const CHANGE: usize = 64;
/// Losses of a session one after the other, without any answer in between, after which a request fails.
const LOSSES: u32 = 1000;

/// The requests, once as the trait of a session and once as those that [`Lasting`] passes on unchanged.
macro_rules! requests {
    (changes { $($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)* }
        words { $($word:ident($($of:ident: $kind:ty),*) -> $came:ty;)* }
        bytes { $($bytes:ident($($by:ident: $sort:ty),*);)* }) => {
        /// A session with a server: the methods of [`super::Files`].
        #[allow(missing_docs)]
        pub trait Session {
            /// Whether the server has ended the session, or is gone.
            fn is_gone(&self) -> bool;
            $(fn $name(&mut self, $($argument: $type),*) -> Result<$result, Error>;)*
            $(fn $word(&mut self, $($of: $kind),*) -> Result<$came, Error>;)*
            $(fn $bytes(&mut self, $($by: $sort,)* into: &mut [u8]) -> Result<usize, Error>;)*
        }

        impl Session for FilesClient {
            fn is_gone(&self) -> bool {
                self.session().is_gone()
            }
            $(fn $name(&mut self, $($argument: $type),*) -> Result<$result, Error> {
                FilesClient::$name(self, $($argument),*)
            })*
            $(fn $word(&mut self, $($of: $kind),*) -> Result<$came, Error> {
                FilesClient::$word(self, $($of),*)
            })*
            $(fn $bytes(&mut self, $($by: $sort,)* into: &mut [u8]) -> Result<usize, Error> {
                FilesClient::$bytes(self, $($by,)* into)
            })*
        }

        /// Requests that change nothing but times.
        #[allow(clippy::missing_errors_doc, missing_docs)]
        impl<S: Servers> Lasting<S> {
            $(pub fn $word(&mut self, $($of: $kind),*) -> Result<$came, Error> {
                self.ask(|session, _| session.$word($($of),*))
            })*
            $(pub fn $bytes(&mut self, $($by: $sort,)* into: &mut [u8]) -> Result<usize, Error> {
                self.ask(|session, _| session.$bytes($($by,)* into))
            })*
        }
    };
}

/// Hands all requests to a macro: those that change something, those with words that change nothing but times, and
/// those whose answer is bytes.
#[macro_export]
macro_rules! file_requests {
    ($with:ident) => {
        $with! {
            changes {
                open_file(flags: u32, mode: u32, path: &str) -> (u64, u32, u64);
                close(file: u64) -> ();
                close_all(files: &[u8]) -> ();
                write(file: u64, offset: u64, bytes: &[u8]) -> u32;
                append(file: u64, bytes: &[u8]) -> (u32, u64);
                truncate(file: u64, size: u64) -> ();
                mkdir(mode: u32, path: &str) -> ();
                unlink(path: &str) -> ();
                rmdir(path: &str) -> ();
                rename(first: u32, paths: &str) -> ();
                link(first: u32, paths: &str) -> ();
                symlink(first: u32, paths: &str) -> ();
                chmod(file: u64, mode: u32) -> ();
                chown(file: u64, uid: u32, gid: u32) -> ();
                utimens(file: u64, atime_ns: u64, mtime_ns: u64) -> ();
                sync(file: u64) -> ();
            }
            words {
                usage() -> (u64, u64, u64, u64);
                place(file: u64, offset: u64) -> (u64, u32, u64);
            }
            bytes {
                stat(follow: bool, path: &str);
                attributes(file: u64);
                read(file: u64, offset: u64);
                read_dir(file: u64, cookie: u64);
                readlink(path: &str);
                path_of(file: u64);
            }
        }
    };
}

file_requests!(requests);

/// Opens sessions with a server, and with its successors.
pub trait Servers {
    /// A session.
    type Session: Session;
    /// A reservation of memory.
    type Room;

    /// Whether written data survives the server, so that keeping changes which are not durable yet makes sense.
    fn is_durable(&self) -> bool;

    /// Opens a session with the current server; waits for one for as long as it makes sense. Sets `died` if the
    /// previous server has died, even if no session can be opened: the next call finds the next server, and cannot see
    /// that. If it has not died, a session that is gone was lost because this program was restored.
    fn open(&mut self, died: &mut bool) -> Result<Self::Session, Error>;

    /// Reserves this many bytes of memory, for an operation that cannot fail half-way.
    fn hold(&self, bytes: u64) -> Result<Self::Room, Error>;
}

/// A change of an open file that may not be durable.
#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Mode(u32),
    Owner(u32, u32),
    Times(u64, u64),
}

impl Change {
    /// Bytes of memory that keeping it takes.
    fn cost(&self) -> usize {
        CHANGE
            + match self {
                Change::Write(_, bytes) => bytes.len(),
                _ => 0,
            }
    }

    /// Repeats the change.
    fn redo(&self, session: &mut impl Session, file: Ino) -> Result<(), Error> {
        match self {
            Change::Write(offset, bytes) => session.write(file, *offset, bytes).map(drop),
            Change::Mode(mode) => session.chmod(file, *mode),
            Change::Owner(uid, gid) => session.chown(file, *uid, *gid),
            Change::Times(atime, mtime) => session.utimens(file, *atime, *mtime),
        }
    }
}

/// An open file.
#[derive(Debug)]
struct Held {
    path: String,
    flags: Flags,
    /// How often it is open.
    times: u64,
    /// Where the file ends, as far as this client knows.
    end: u64,
    changes: Vec<Change>,
    /// The error with which a write from before the server's death could not be repeated. The next sync or close of the
    /// file reports it, once.
    lost: Option<Error>,
}

/// The number of an open file, in a program that may be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The number.
    pub file: Ino,
    /// How often the program had been restored when the file was opened.
    restores: u64,
}

/// Files of a service whose server may die.
#[derive(Debug)]
pub struct Lasting<S: Servers> {
    servers: S,
    session: Option<S::Session>,
    open: BTreeMap<Ino, Held>,
    /// Bytes of all changes.
    kept: usize,
    /// A server has died, and the changes that may be lost with it have not been repeated.
    died: bool,
    /// How often this program has been restored, as far as it has noticed.
    restores: u64,
    /// The paths of the last rename ([`two`]), if it is under way or was given up: the server may have done it before
    /// it died, so that open files are at other paths than the kept ones.
    renaming: Option<(u32, String)>,
    /// That a change of a file was lost which a restore has closed: the next sync or close of any file reports it.
    lost: Option<Error>,
}

impl<S: Servers> Lasting<S> {
    /// Files of these servers.
    pub const fn new(servers: S) -> Self {
        Lasting {
            servers,
            session: None,
            open: BTreeMap::new(),
            kept: 0,
            died: false,
            restores: 0,
            renaming: None,
            lost: None,
        }
    }

    /// As `open_file`, for a file whose number is used with [`Lasting::with`] only. Returns it, the mode and the size.
    pub fn open_known(
        &mut self,
        flags: u32,
        mode: u32,
        path: &str,
    ) -> Result<(Known, u32, u64), Error> {
        let (file, mode, size) = self.open_file(flags, mode, path)?;
        let restores = self.restores;
        Ok((Known { file, restores }, mode, size))
    }

    /// Makes a request about an open file. `None` if the file is not open, since the program was restored or the file was
    /// lost with its server: it can be opened again by its path.
    pub fn with<T>(
        &mut self,
        known: Known,
        request: impl FnOnce(&mut Self, Ino) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        if known.restores != self.restores {
            return None;
        }
        let result = request(self, known.file);
        // The request itself may have found that the program was restored.
        let is_void = known.restores != self.restores && result.is_err();
        let is_lost = matches!(result, Err(Error::NotFound))
            && self.servers.is_durable()
            && !self.open.contains_key(&known.file);
        (!is_void && !is_lost).then_some(result)
    }

    /// Where the sessions come from.
    pub fn servers(&mut self) -> &mut S {
        &mut self.servers
    }

    /// As `ask`, for a request that must not be done twice unnoticed. A session that is gone already has not taken the
    /// request.
    fn ask_once<T>(
        &mut self,
        request: impl FnMut(&mut S::Session, bool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.session.take_if(|session| session.is_gone());
        self.ask(request)
    }

    /// As `ask_once`, for changes of names. The disk alone does not show whether a lost request was done: a lock file
    /// that somebody made long ago would be taken for the one that was to be made. So this checks first what is at the
    /// path, and passes that to a repeated request, whose predecessor may have been done.
    fn ask_of<T>(
        &mut self,
        (follow, path): (bool, &str),
        mut request: impl FnMut(&mut S::Session, Option<Before>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let before = match self.servers.is_durable() {
            true => self.ask(|session, _| match attr(session, follow, path) {
                Ok(attr) => Ok(Before::There(attr.ino)),
                Err(Error::NotFound) => Ok(Before::Absent),
                // The request would fail in the same way, and the earlier state would stay unknown.
                Err(error @ (Error::Broken | Error::Restored | Error::NoMemory)) => Err(error),
                // The request itself will report the error.
                Err(_) => Ok(Before::Unknown),
            })?,
            // Such a server runs as long as the machine, which does not justify a second request for each change.
            false => Before::Either,
        };
        self.ask_once(|session, again| request(session, again.then_some(before)))
    }

    /// Makes a request, and repeats it if the session is lost. The request gets whether an earlier attempt may have
    /// been done: not if it met a session from before a restore, which says that it has not done it.
    fn ask<T>(
        &mut self,
        mut request: impl FnMut(&mut S::Session, bool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut again = false;
        for _ in 0..LOSSES {
            if self.session.is_none() && !self.begin()? {
                continue;
            }
            let Some(session) = self.session.as_mut() else {
                continue;
            };
            match request(session, again) {
                Err(Error::Broken) if session.is_gone() => {
                    (self.session, again) = (None, true);
                }
                Err(Error::Restored) => self.restored(),
                result => return result,
            }
        }
        Err(Error::Broken)
    }

    /// Opens a session and in it all files that were open. Returns false if the session was lost again meanwhile.
    fn begin(&mut self) -> Result<bool, Error> {
        let mut session = self.servers.open(&mut self.died)?;
        if !self.died {
            self.restored();
        }
        let renaming = self.renaming.as_ref();
        let renamed = renaming.and_then(|(first, paths)| two(*first, paths).ok());
        let renamed = renamed.map(|(from, to)| Renamed { from, to });
        let (mut gone, mut lost) = (Vec::new(), Vec::new());
        for (file, held) in &mut self.open {
            match reopen(&mut session, *file, held, renamed.as_ref()) {
                Ok(Reopened::Whole) => {}
                Ok(Reopened::Undone(Error::Restored)) | Err(Error::Restored) => {
                    self.restored();
                    return Ok(false);
                }
                _ if session.is_gone() => return Ok(false),
                Ok(Reopened::Undone(error)) => lost.push((*file, error)),
                // The error is temporary, and nothing is lost yet: the next request tries again.
                Err(error @ (Error::NoMemory | Error::Limit | Error::Broken)) => return Err(error),
                // The path leads to another file by now, or to none: later requests about this file are answered that
                // it is not open.
                Ok(Reopened::Another) | Err(_) => gone.push(*file),
            }
        }
        for (file, error) in lost {
            self.forget(file);
            if let Some(held) = self.open.get_mut(&file) {
                held.lost = Some(error);
            }
        }
        for file in gone {
            self.forget(file);
            self.open.remove(&file);
        }
        self.died = false;
        self.session = Some(session);
        Ok(true)
    }

    /// This program was restored: nothing is open, and what it has written before it was saved is in the files, unless it
    /// was saved after a death of the server and before all of that was repeated.
    fn restored(&mut self) {
        self.session = None;
        let lost = self.open.values_mut().find_map(|held| held.lost.take());
        let undone = (self.died && self.kept > 0).then_some(Error::Broken);
        self.lost = self.lost.or(lost).or(undone);
        self.open.clear();
        (self.kept, self.died) = (0, false);
        self.restores += 1;
    }

    /// Drops the kept changes of a file, which are durable, or for a file that is lost.
    fn forget(&mut self, file: Ino) {
        if let Some(held) = self.open.get_mut(&file) {
            let changes = core::mem::take(&mut held.changes);
            self.kept -= changes.iter().map(Change::cost).sum::<usize>();
        }
    }

    fn forget_all(&mut self) {
        self.open.values_mut().for_each(|held| held.changes.clear());
        self.kept = 0;
    }

    /// Makes room to keep one more change of a file with these bytes, before the request is made. Returns a copy of
    /// them.
    fn make_room(&mut self, file: Ino, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let mut copy = Vec::new();
        if !self.open.contains_key(&file) {
            return Ok(copy);
        }
        if self.kept + CHANGE + bytes.len() > MOST {
            self.sync(file)?;
        }
        // The file may have been lost with the server.
        if let Some(held) = self.open.get_mut(&file) {
            let room = held.changes.try_reserve(1);
            let room = room.and_then(|()| copy.try_reserve_exact(bytes.len()));
            room.map_err(|_| Error::NoMemory)?;
            copy.extend_from_slice(bytes);
        }
        Ok(copy)
    }

    /// Keeps a change, for which there is room, until it is durable.
    fn keep(&mut self, file: Ino, change: Change) {
        let Some(held) = self.open.get_mut(&file) else {
            return;
        };
        if let Change::Write(offset, bytes) = &change {
            held.end = held.end.max(offset + bytes.len() as u64);
        }
        self.kept += change.cost();
        held.changes.push(change);
    }
}

/// The outcome of opening a file again.
enum Reopened {
    /// It is open and unchanged.
    Whole,
    /// It is open, but a change of it could not be repeated.
    Undone(Error),
    /// Its path leads to another one.
    Another,
}

/// Opens a file again as often as it was open, if its path leads to the same one, and repeats the changes that may be
/// lost. If the path does not lead there, and the rename `renamed` concerns it, the file may be at its new path, which
/// is kept then.
fn reopen(
    session: &mut impl Session,
    file: Ino,
    held: &mut Held,
    renamed: Option<&Renamed<'_>>,
) -> Result<Reopened, Error> {
    let mut opened = reopen_at(session, file, held, &held.path);
    let is_there = matches!(opened, Ok(true));
    // The rename changes nothing at all, or what this path leads to.
    let is_temporary = matches!(
        opened,
        Err(Error::Broken | Error::Restored | Error::NoMemory | Error::Limit)
    );
    if let (false, false, Some(renamed)) = (is_there, is_temporary, renamed) {
        if let Some(path) = renamed.followed(&held.path)? {
            opened = reopen_at(session, file, held, &path);
            if opened == Ok(true) {
                held.path = path;
            }
        }
    }
    if !opened? {
        return Ok(Reopened::Another);
    }
    for change in &held.changes {
        if let Err(error) = change.redo(session, file) {
            return Ok(Reopened::Undone(error));
        }
    }
    Ok(Reopened::Whole)
}

/// Opens a file again by this path as often as it was open. Returns whether the path leads to it.
fn reopen_at(
    session: &mut impl Session,
    file: Ino,
    held: &Held,
    path: &str,
) -> Result<bool, Error> {
    for _ in 0..held.times {
        let (number, ..) = session.open_file(held.flags.bits(), 0, path)?;
        if number != file {
            session.close(number)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// What was at a path before the first attempt of a request.
#[derive(Clone, Copy, Debug)]
enum Before {
    There(Ino),
    Absent,
    /// The check failed: what is there now says nothing about the request.
    Unknown,
    /// There was no check: what is there now is taken for the request's effect.
    Either,
}

impl Before {
    /// Whether a thing that exists now may have been made since.
    fn was_absent(&self) -> bool {
        matches!(self, Before::Absent | Before::Either)
    }

    /// Whether a thing that does not exist now may have been removed since.
    fn was_there(&self) -> bool {
        matches!(self, Before::There(_) | Before::Either)
    }
}

/// The result of a repeated request: success if the error `done` says that the first attempt was done, and the state
/// before agrees with that.
fn settle(
    result: Result<(), Error>,
    before: Option<Before>,
    done: Error,
    agrees: impl FnOnce(&Before) -> bool,
) -> Result<(), Error> {
    match (result, before) {
        (Err(error), Some(before)) if error == done && agrees(&before) => Ok(()),
        (result, _) => result,
    }
}

/// As `settle`, if the state now agrees, too. `Broken` or `Restored` if the session is lost while that is checked.
fn settle_by(
    result: Result<(), Error>,
    before: Option<Before>,
    done: Error,
    agrees: impl FnOnce(&Before) -> Result<bool, Error>,
) -> Result<(), Error> {
    let Some(before) = before.filter(|_| result == Err(done)) else {
        return result;
    };
    match agrees(&before) {
        Ok(true) => Ok(()),
        Err(error @ (Error::Broken | Error::Restored)) => Err(error),
        _ => result,
    }
}

fn attr(session: &mut impl Session, follow: bool, path: &str) -> Result<Attr, Error> {
    let mut bytes = [0; ATTR_ROOM];
    let length = session.stat(follow, path, &mut bytes)?;
    super::attr(bytes.get(..length).ok_or(Error::Invalid)?)
}

/// Requests that change something.
#[allow(clippy::missing_errors_doc, missing_docs)]
impl<S: Servers> Lasting<S> {
    pub fn open_file(
        &mut self,
        flags: u32,
        mode: u32,
        path: &str,
    ) -> Result<(Ino, u32, u64), Error> {
        let wanted = Flags::from_bits(flags).ok_or(Error::Invalid)?;
        let made = Flags {
            exclusive: false,
            ..wanted
        };
        let follow = wanted.follows();
        let may_exist = !(wanted.create && wanted.exclusive);
        let open = |session: &mut S::Session, before: Option<Before>| {
            match session.open_file(flags, mode, path) {
                // If the lost request made the file, it is empty.
                Err(Error::Exists) if before.is_some_and(|before| before.was_absent()) => {
                    let opened = session.open_file(made.bits(), mode, path)?;
                    if opened.2 > 0 {
                        session.close(opened.0)?;
                        return Err(Error::Exists);
                    }
                    Ok(opened)
                }
                result => result,
            }
        };
        let opened = match may_exist {
            true => self.ask_once(|session, _| open(session, None)),
            false => self.ask_of((follow, path), open),
        }?;
        let (file, kind, end) = opened;
        if !self.servers.is_durable() {
            return Ok(opened);
        }
        if wanted.truncate {
            // The file was cut, or there was nothing to cut: both are durable.
            self.forget(file);
        }
        let held = self.open.entry(file).or_insert_with(|| Held {
            path: path.to_string(),
            flags: Flags {
                nofollow: wanted.nofollow,
                symlink: wanted.symlink,
                ..Flags::default()
            },
            times: 0,
            end: 0,
            changes: Vec::new(),
            lost: None,
        });
        held.times += 1;
        if kind & mode::TYPE == mode::FILE {
            held.end = end;
        }
        Ok(opened)
    }

    pub fn close(&mut self, file: Ino) -> Result<(), Error> {
        let closed = self.ask(|session, _| session.close(file));
        // Closing has made all writes to the file durable.
        self.forget(file);
        let lost = self.told(file);
        if let Some(held) = self.open.get_mut(&file) {
            held.times -= 1;
            if held.times == 0 {
                self.open.remove(&file);
            }
        }
        closed.and(lost)
    }

    /// Closes several files, in one request if the service is not durable.
    pub fn close_all(&mut self, files: &[u8]) -> Result<(), Error> {
        if !self.servers.is_durable() {
            return self.ask(|session, _| session.close_all(files));
        }
        let mut result = Ok(());
        for file in super::numbers(files)? {
            result = result.and(self.close(file));
        }
        result
    }

    /// Reports once that a change of a file was lost.
    fn told(&mut self, file: Ino) -> Result<(), Error> {
        let held = self.open.get_mut(&file);
        let lost = held.and_then(|held| held.lost.take());
        match lost.or_else(|| self.lost.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    pub fn write(&mut self, file: Ino, offset: u64, bytes: &[u8]) -> Result<u32, Error> {
        let mut copy = self.make_room(file, bytes)?;
        let length = self.ask(|session, _| session.write(file, offset, bytes))?;
        copy.truncate(length as usize);
        self.keep(file, Change::Write(offset, copy));
        Ok(length)
    }

    pub fn append(&mut self, file: Ino, bytes: &[u8]) -> Result<(u32, u64), Error> {
        let mut copy = self.make_room(file, bytes)?;
        let end = self.open.get(&file).map(|held| held.end);
        let (length, offset) = self.ask_once(|session, again| {
            if let (true, Some(end)) = (again, end) {
                // If the lost append was done and is durable, its bytes are where the file ended.
                let mut there = vec![0; bytes.len()];
                let read = session.read(file, end, &mut there)?;
                if read == bytes.len() && there == bytes {
                    return Ok((bytes.len() as u32, end));
                }
            }
            session.append(file, bytes)
        })?;
        copy.truncate(length as usize);
        self.keep(file, Change::Write(offset, copy));
        Ok((length, offset))
    }

    pub fn truncate(&mut self, file: Ino, size: u64) -> Result<(), Error> {
        self.ask(|session, _| session.truncate(file, size))?;
        // The cut is durable, and so are all earlier writes.
        if let Some(held) = self.open.get_mut(&file) {
            held.end = size;
        }
        self.forget_all();
        Ok(())
    }

    pub fn mkdir(&mut self, mode: u32, path: &str) -> Result<(), Error> {
        self.ask_of((false, path), |session, before| {
            let made = session.mkdir(mode, path);
            settle(made, before, Error::Exists, Before::was_absent)
        })
    }

    pub fn unlink(&mut self, path: &str) -> Result<(), Error> {
        self.ask_of((false, path), |session, before| {
            let removed = session.unlink(path);
            settle(removed, before, Error::NotFound, Before::was_there)
        })
    }

    pub fn rmdir(&mut self, path: &str) -> Result<(), Error> {
        self.ask_of((false, path), |session, before| {
            let removed = session.rmdir(path);
            settle(removed, before, Error::NotFound, Before::was_there)
        })
    }

    pub fn rename(&mut self, first: u32, paths: &str) -> Result<(), Error> {
        let (from, to) = two(first, paths)?;
        if self.renaming.is_some() {
            // The next session finds out what has become of an earlier rename.
            self.ask_once(|_, _| Ok(()))?;
        }
        let follows = Renamed { from, to };
        let open = self.open.values().map(|held| &held.path);
        let _room = self.servers.hold(follows.room(open))?;
        let mut both = String::new();
        both.try_reserve_exact(paths.len())
            .map_err(|_| Error::NoMemory)?;
        both.push_str(paths);
        // Without a server that may die nothing is opened again.
        self.renaming = self.servers.is_durable().then_some((first, both));
        let result = self.ask_of((false, from), |session, before| {
            let renamed = session.rename(first, paths);
            let agrees = |before: &Before| {
                let there = attr(session, false, to)?;
                Ok(match before {
                    Before::There(ino) => there.ino == *ino,
                    before => before.was_there(),
                })
            };
            settle_by(renamed, before, Error::NotFound, agrees)
        });
        let is_open = match result {
            Ok(()) => false,
            Err(error) => {
                self.session.is_none()
                    || matches!(error, Error::Broken | Error::NoMemory | Error::Limit)
            }
        };
        if !is_open {
            self.renaming = None;
        }
        result?;
        let open = self.open.values_mut();
        open.for_each(|held| follows.follow(&mut held.path));
        Ok(())
    }

    pub fn link(&mut self, first: u32, paths: &str) -> Result<(), Error> {
        let (from, to) = two(first, paths)?;
        self.ask_of((false, to), |session, before| {
            let linked = session.link(first, paths);
            let agrees = |before: &Before| {
                let (one, other) = (attr(session, false, from)?, attr(session, false, to)?);
                Ok(before.was_absent() && one.ino == other.ino)
            };
            settle_by(linked, before, Error::Exists, agrees)
        })
    }

    pub fn symlink(&mut self, first: u32, paths: &str) -> Result<(), Error> {
        let (target, path) = two(first, paths)?;
        self.ask_of((false, path), |session, before| {
            let made = session.symlink(first, paths);
            let agrees = |before: &Before| {
                let mut there = vec![0; PATH_ROOM];
                let length = session.readlink(path, &mut there)?;
                Ok(before.was_absent() && there.get(..length) == Some(target.as_bytes()))
            };
            settle_by(made, before, Error::Exists, agrees)
        })
    }

    pub fn chmod(&mut self, file: Ino, mode: u32) -> Result<(), Error> {
        self.make_room(file, &[])?;
        self.ask(|session, _| session.chmod(file, mode))?;
        self.keep(file, Change::Mode(mode));
        Ok(())
    }

    pub fn chown(&mut self, file: Ino, uid: u32, gid: u32) -> Result<(), Error> {
        self.make_room(file, &[])?;
        self.ask(|session, _| session.chown(file, uid, gid))?;
        self.keep(file, Change::Owner(uid, gid));
        Ok(())
    }

    pub fn utimens(&mut self, file: Ino, atime_ns: u64, mtime_ns: u64) -> Result<(), Error> {
        self.make_room(file, &[])?;
        self.ask(|session, _| session.utimens(file, atime_ns, mtime_ns))?;
        self.keep(file, Change::Times(atime_ns, mtime_ns));
        Ok(())
    }

    /// Makes all that was written, to any file, durable.
    pub fn sync(&mut self, file: Ino) -> Result<(), Error> {
        self.ask(|session, _| session.sync(file))?;
        self.forget_all();
        self.told(file)
    }
}
