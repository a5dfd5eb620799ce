//! `inotify`: its calls, and the functions by which other calls report what they have done to files.
//!
//! Each kind of change has one function here: the use of a file descriptor ([`did`], [`opened`]; the last close is in
//! [`System::closed_watched`]), changes of a file named by a path ([`changed`]), and changes of names ([`made`],
//! [`linked`], [`removed`], [`renamed`]). Each begins with one look at whether there is any watch at all.
//!
//! The use of a file descriptor is reported at once: the place (directory and name) of an open file is known since it
//! was opened ([`find_opened`]) or, for files in memory, asked for without waiting. Other facts are asked of the file
//! system after the call's own request, or before it where the call changes something in this server first ([`look`],
//! [`find_before`]). A call that waits for the disk and is made again asks for the same facts again ([`crate::late`]),
//! whatever watches were added or removed meanwhile.
//!
//! [`System::closed_watched`]: crate::system::System::closed_watched

use alloc::rc::Rc;
use alloc::string::String;
use linux_raw_sys::general as linux;
use services::fs::{is_on_disk, mode, Attr, Flags, ON_DISK};

use super::name::follow;
use crate::emulate::{Caller, Result, Stop, Target, Wake, AT_FDCWD};
use crate::errno::{EACCES, EAGAIN, EINVAL, ENOENT, ENOTDIR};
use crate::files::Request;
use crate::inotify::{find_place, find_place_now, split, Place, EVENTS, OF_CHILDREN};
use crate::memory::WRITE;
use crate::process::{open_flags, Description, Kind, Shared};
use crate::system::Key;

/// All valid bits of a mask.
const ALL: u32 = EVENTS
    | linux::IN_UNMOUNT
    | linux::IN_Q_OVERFLOW
    | linux::IN_IGNORED
    | linux::IN_ONLYDIR
    | linux::IN_DONT_FOLLOW
    | linux::IN_EXCL_UNLINK
    | linux::IN_MASK_ADD
    | linux::IN_MASK_CREATE
    | linux::IN_ISDIR
    | linux::IN_ONESHOT;

/// Events for which the place of a file must be known when it is opened.
pub const OF_OPENED: u32 = OF_CHILDREN | linux::IN_CREATE;

/// `inotify_init` and `inotify_init1`.
pub fn init(c: &mut Caller, flags: u32) -> Result {
    if flags & !(linux::IN_CLOEXEC | linux::IN_NONBLOCK) != 0 {
        return Err(EINVAL.into());
    }
    let fd = super::file::free_fd(c)?;
    let payer = c.process().payer;
    let id = c.s.new_inotify(payer)?;
    let description = Description {
        kind: Kind::Inotify { id },
        flags: flags & open_flags::NONBLOCK,
        offset: 0,
        owner: None,
    };
    let cloexec = flags & open_flags::CLOEXEC != 0;
    c.p.files.install(fd, description, cloexec);
    Ok(u64::from(fd))
}

/// The `inotify` instance behind a file descriptor.
fn instance(c: &Caller, fd: u32) -> Result<u64> {
    match c.p.files.get(fd)?.kind {
        Kind::Inotify { id } => Ok(id),
        _ => Err(EINVAL.into()),
    }
}

/// `inotify_add_watch`.
pub fn add_watch(c: &mut Caller, fd: u32, path: u64, mask: u32) -> Result {
    if mask & ALL == 0 || mask & !ALL != 0 {
        return Err(EINVAL.into());
    }
    c.p.files.get(fd)?;
    if mask & linux::IN_MASK_ADD != 0 && mask & linux::IN_MASK_CREATE != 0 {
        return Err(EINVAL.into());
    }
    let id = instance(c, fd)?;
    let path = c.path(path)?;
    if path.is_empty() {
        return Err(ENOENT.into());
    }
    let follows = mask & linux::IN_DONT_FOLLOW == 0;
    let mut target = c.target(AT_FDCWD, &path)?;
    if follows {
        target = follow(c, target);
    }
    // Special names (`/proc` and the like) are in no file system, so no event could ever be reported.
    let Target::Path(path) = target else {
        return Err(EACCES.into());
    };
    let how = Flags {
        nofollow: !follows,
        symlink: !follows,
        ..Flags::default()
    };
    let opened = c.open(path, how, 0)?;
    let is_directory = opened.mode & mode::TYPE == mode::DIRECTORY;
    let made = match opened.mode & mode::TYPE {
        _ if mask & linux::IN_ONLYDIR != 0 && !is_directory => Err(ENOTDIR),
        mode::CHARACTER => Err(EACCES),
        _ => c.s.watch_file(id, (opened.ino, is_directory), mask),
    };
    if !matches!(made, Ok((_, true))) {
        c.fs(&Request::Close { ino: opened.ino })?;
    }
    Ok(made?.0 as u64)
}

/// `inotify_rm_watch`.
pub fn remove_watch(c: &mut Caller, fd: u32, wd: i32) -> Result {
    let id = instance(c, fd)?;
    c.s.remove_watch_of_file(c.h, id, wd)?;
    Ok(0)
}

/// `read`: takes as many event records as fit into `length` bytes.
pub fn read(c: &mut Caller, id: u64, flags: u32, address: u64, length: u64) -> Result {
    let queue = c.s.inotify.queue(id).ok_or(EINVAL)?;
    if queue.is_empty() {
        if flags & open_flags::NONBLOCK != 0 {
            return Err(EAGAIN.into());
        }
        return Err(Stop::Park(Wake::on(Key::Inotify(id))));
    }
    let fitting = queue.fitting(length).ok_or(EINVAL)?;
    c.check(address, fitting as u64, WRITE)?;
    c.h.room(2 * fitting as u64)?;
    let queue = c.s.inotify.queue_mut(id).ok_or(EINVAL)?;
    let records = queue.take(fitting);
    c.write(address, &records)?;
    Ok(fitting as u64)
}

// --- What calls have done ---

/// The place of an open file, if it has one. May wait for the disk.
fn place_of(c: &mut Caller, ino: u64) -> Result<Option<Place>> {
    let place = find_place(ino, |request| Ok(c.h.fs(request, &[], &mut [])?.0));
    match c.h.waits() {
        true => Err(Stop::Park(Wake::firm())),
        false => Ok(place),
    }
}

/// The place of the open file, if any watch of a directory asks for these events; it is kept from then on. For a file
/// on the disk, only a place that is known already: if the call waited, what it has done would be done again.
fn place(c: &mut Caller, description: &Shared<Description>, events: u32) -> Option<Place> {
    let ino = description.borrow().ino()?;
    if c.s.inotify.of_children(ino & ON_DISK != 0, events) == 0 {
        return None;
    }
    let address = Rc::as_ptr(description).addr();
    if let Some(known) = c.s.inotify.place(address) {
        return Some(known.clone());
    }
    if ino & ON_DISK != 0 {
        return None;
    }
    let found = find_place_now(c.h, ino)?;
    let payer = c.process().payer;
    c.s.keep_place(c.h, (address, ino), &found, payer);
    Some(found)
}

/// Reports the event for the file that the descriptor is open on.
#[inline(always)]
pub fn did(c: &mut Caller, fd: u32, event: u32) {
    if !c.s.inotify.is_unwatched() {
        did_watched(c, fd, event);
    }
}

#[cold]
fn did_watched(c: &mut Caller, fd: u32, event: u32) {
    if let Some(fd) = c.p.files.fds.get(fd) {
        let description = Rc::clone(&fd.description);
        let place = place(c, &description, event);
        tell(c, &description, event, place.as_ref());
    }
}

fn tell(c: &mut Caller, description: &Shared<Description>, event: u32, place: Option<&Place>) {
    let (ino, is_directory) = {
        let kind = &description.borrow().kind;
        (kind.ino(), matches!(kind, Kind::Directory { .. }))
    };
    if let Some(ino) = ino {
        let mask = event | if is_directory { linux::IN_ISDIR } else { 0 };
        c.s.tell_both(c.h, ino, mask, place);
    }
}

/// Whether the call is going to create the file, found out before it is opened; `false` without asking if it matters to
/// nobody (no watch asks for that, and the caller is root).
pub fn is_made(c: &mut Caller, path: &str, how: Flags) -> Result<bool> {
    let is_owned = c.process().ids.owner().is_some();
    if c.s.inotify.is_unwatched() && !is_owned || !how.create {
        return Ok(false);
    }
    if how.exclusive {
        return Ok(true);
    }
    if c.s.inotify.of_children(is_on_disk(path), linux::IN_CREATE) == 0 && !is_owned {
        return Ok(false);
    }
    let stat = Request::Stat {
        path: path.into(),
        follow: !how.nofollow,
    };
    Ok(attr(c, &stat)?.is_none())
}

/// The place of a file that has just been opened, if any watch needs it. To be called before the file description is
/// installed.
pub fn find_opened(c: &mut Caller, description: &Description) -> Result<Option<Place>> {
    let Some(ino) = description.ino().filter(|_| !description.is_path()) else {
        return Ok(None);
    };
    match c.s.inotify.of_children(ino & ON_DISK != 0, OF_OPENED) {
        0 => Ok(None),
        _ => place_of(c, ino),
    }
}

/// Reports that the descriptor has been opened, and by that the file created (`made`) or truncated (`cut`).
pub fn opened(c: &mut Caller, fd: u32, place: Option<&Place>, (made, cut): (bool, bool)) {
    let Some(description) = c.p.files.fds.get(fd).map(|fd| Rc::clone(&fd.description)) else {
        return;
    };
    let ino = description.borrow().ino();
    let Some(ino) = ino.filter(|_| !description.borrow().is_path()) else {
        return;
    };
    if let Some(place) = place {
        let payer = c.process().payer;
        let address = Rc::as_ptr(&description).addr();
        c.s.keep_place(c.h, (address, ino), place, payer);
        if made {
            c.s.tell_directory(c.h, (place.directory, &place.name), linux::IN_CREATE, 0);
        }
    }
    tell(c, &description, linux::IN_OPEN, place);
    if cut && !made {
        tell(c, &description, linux::IN_MODIFY, place);
    }
}

/// The place of an open file, if any watch asks for these events. For calls that wait for the disk here before they
/// change something in this server, which must not be changed twice. A call that is made again asks exactly if its
/// first attempt has asked, whatever is watched by then.
pub fn find_before(c: &mut Caller, ino: u64, events: u32) -> Result<Option<Place>> {
    let asks = match c.h.asked() {
        Some(request) => matches!(request, Request::PathOf { ino: its } if *its == ino),
        None => c.s.inotify.of_children(ino & ON_DISK != 0, events) != 0,
    };
    match asks {
        true => place_of(c, ino),
        false => Ok(None),
    }
}

/// Reports a change of the file or directory that a path leads to; the caller has it open meanwhile.
pub fn changed(c: &mut Caller, file: (u64, u32), event: u32) -> Result<()> {
    if c.s.inotify.is_unwatched() || event == 0 {
        return Ok(());
    }
    let (ino, _) = file;
    let place = match c.s.inotify.of_children(ino & ON_DISK != 0, event) {
        0 => None,
        _ => place_of(c, ino)?,
    };
    changed_at(c, file, event, place.as_ref());
    Ok(())
}

/// As [`changed`], with the place of the file, if any watch needs it.
pub fn changed_at(c: &mut Caller, (ino, file_mode): (u64, u32), event: u32, place: Option<&Place>) {
    let is_directory = file_mode & mode::TYPE == mode::DIRECTORY;
    let mask = event | if is_directory { linux::IN_ISDIR } else { 0 };
    c.s.tell_both(c.h, ino, mask, place);
}

/// The attributes of the file that is about to lose this name, if any file of that file system is watched or, with
/// `had`, in use.
pub fn look(c: &mut Caller, path: &str, had: bool) -> Result<Option<Attr>> {
    // A call that is made again looks exactly if its first attempt has looked, whatever is watched by then: so nothing
    // is done twice.
    let looks = match c.h.asked() {
        Some(request) => matches!(request, Request::Stat { path: its, .. } if its == path),
        None => {
            let on_disk = is_on_disk(path);
            c.s.inotify.has_marks(on_disk) || had && c.s.busy.has_any(on_disk)
        }
    };
    if !looks {
        return Ok(None);
    }
    let stat = Request::Stat {
        path: path.into(),
        follow: false,
    };
    attr(c, &stat)
}

/// The attributes, or `None` if there is no such file. May wait for the disk.
fn attr(c: &mut Caller, stat: &Request) -> Result<Option<Attr>> {
    let found = c.attr(stat).ok();
    match c.h.waits() {
        true => Err(Stop::Park(Wake::firm())),
        false => Ok(found),
    }
}

/// The inode of the parent directory and the last component of a path, if any file of that file system is watched.
fn entry(c: &mut Caller, path: &str) -> Result<Option<(u64, String)>> {
    if !c.s.inotify.has_marks(is_on_disk(path)) {
        return Ok(None);
    }
    let Some((parent, name)) = split(path) else {
        return Ok(None);
    };
    let stat = Request::Stat {
        path: parent.into(),
        follow: true,
    };
    Ok(attr(c, &stat)?.map(|attr| (attr.ino, name.into())))
}

/// Reports that a file or directory was created with this path.
pub fn made(c: &mut Caller, path: &str, is_directory: bool) -> Result<()> {
    if c.s.inotify.is_unwatched() {
        return Ok(());
    }
    if let Some((directory, name)) = entry(c, path)? {
        let mask = linux::IN_CREATE | if is_directory { linux::IN_ISDIR } else { 0 };
        c.s.tell_directory(c.h, (directory, &name), mask, 0);
    }
    Ok(())
}

/// Reports that a file has got one more name.
pub fn linked(c: &mut Caller, ino: u64, path: &str) -> Result<()> {
    if c.s.inotify.is_unwatched() {
        return Ok(());
    }
    if let Some((directory, name)) = entry(c, path)? {
        c.s.tell_file(c.h, ino, linux::IN_ATTRIB);
        c.s.tell_directory(c.h, (directory, &name), linux::IN_CREATE, 0);
    }
    Ok(())
}

/// Notes the loss of the last name, if this was it: watches of the file end when nobody has it open either.
fn lost(c: &mut Caller, attr: &Attr) {
    let is_directory = attr.mode & mode::TYPE == mode::DIRECTORY;
    if is_directory || attr.links <= 1 {
        c.s.lost_last_name(c.h, attr.ino);
    }
}

/// Reports that a name was removed. `looked`: the attributes of what it led to ([`look`]).
pub fn removed(c: &mut Caller, path: &str, looked: Option<Attr>, is_directory: bool) -> Result<()> {
    if c.s.inotify.is_unwatched() {
        return Ok(());
    }
    let entry = entry(c, path)?;
    if let Some(attr) = looked {
        if !is_directory {
            c.s.tell_file(c.h, attr.ino, linux::IN_ATTRIB);
        }
        if let Some((directory, name)) = &entry {
            c.s.inotify.lost_name(attr.ino, *directory, name);
        }
        lost(c, &attr);
    }
    if let Some((directory, name)) = entry {
        let mask = linux::IN_DELETE | if is_directory { linux::IN_ISDIR } else { 0 };
        c.s.tell_directory(c.h, (directory, &name), mask, 0);
    }
    Ok(())
}

/// Reports a rename. `replaced`: the attributes of what `to` led to before ([`look`]).
pub fn renamed(c: &mut Caller, from: &str, to: &str, replaced: Option<Attr>) -> Result<()> {
    if c.s.inotify.is_unwatched() {
        return Ok(());
    }
    let Some(old) = entry(c, from)? else {
        return Ok(());
    };
    let Some(new) = entry(c, to)? else {
        return Ok(());
    };
    let stat = Request::Stat {
        path: to.into(),
        follow: false,
    };
    let Some(moved) = attr(c, &stat)? else {
        return Ok(());
    };
    if replaced.is_some_and(|replaced| replaced.ino == moved.ino) {
        // Both were names of one file, and still are.
        return Ok(());
    }
    let is_directory = moved.mode & mode::TYPE == mode::DIRECTORY;
    let kind = if is_directory { linux::IN_ISDIR } else { 0 };
    let cookie = c.s.inotify.new_cookie();
    let (from, to) = ((old.0, old.1.as_str()), (new.0, new.1.as_str()));
    if let Some(replaced) = &replaced {
        c.s.inotify.lost_name(replaced.ino, to.0, to.1);
    }
    c.s.inotify.renamed(moved.ino, from, to);
    c.s.tell_directory(c.h, from, linux::IN_MOVED_FROM | kind, cookie);
    c.s.tell_directory(c.h, to, linux::IN_MOVED_TO | kind, cookie);
    if let Some(replaced) = &replaced {
        c.s.tell_file(c.h, replaced.ino, linux::IN_ATTRIB);
    }
    c.s.tell_file(c.h, moved.ino, linux::IN_MOVE_SELF);
    if let Some(replaced) = &replaced {
        lost(c, replaced);
    }
    Ok(())
}
