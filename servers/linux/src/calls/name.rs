//! Calls on paths.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use linux_raw_sys::general as linux;

use crate::files::Request;
use crate::inotify::Place;
use services::fs::{mode, Attr, Flags};

use crate::emulate::{Caller, Result, Stop, Target, AT_FDCWD, MAX_LINKS};
use crate::errno::{
    EACCES, EBADF, EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTSUP, ENXIO,
    EPERM, ERANGE, ETXTBSY, EXDEV,
};
use crate::node;
use crate::proc::Folder;
use crate::process::{open_flags, Counter, Description, Device, End, Kind, Mapped};
use crate::special::{Reading, Special};

pub use linux::{AT_EMPTY_PATH, AT_REMOVEDIR};
/// Most bytes of a path component.
const MAX_NAME: usize = services::fs::MAX_NAME;

/// The absolute path of a file that is to be created, removed or renamed. Errors: `EACCES` for special names (`/proc`
/// and the like), where that is not possible.
fn plain(c: &mut Caller, dirfd: i32, address: u64) -> Result<String> {
    let path = c.path(address)?;
    if path.is_empty() {
        return Err(ENOENT.into());
    }
    if path.split('/').any(|part| part.len() > MAX_NAME) {
        return Err(ENAMETOOLONG.into());
    }
    match c.target(dirfd, &path)? {
        Target::Path(path) => Ok(path),
        Target::Special(_) => Err(EACCES.into()),
    }
}

/// `open`, `openat` and `creat`.
pub fn open(c: &mut Caller, dirfd: i32, address: u64, mut flags: u32, permissions: u32) -> Result {
    use open_flags::{CLOEXEC, DIRECTORY, NOFOLLOW, PATH};
    if flags & PATH != 0 {
        // As on Linux, `O_PATH` makes all other flags but these have no effect.
        flags &= PATH | DIRECTORY | NOFOLLOW | CLOEXEC;
    }
    let path = c.path(address)?;
    if path.is_empty() {
        return Err(ENOENT.into());
    }
    if flags & open_flags::TMPFILE == open_flags::TMPFILE {
        return Err(ENOTSUP.into());
    }
    let fd = super::file::free_fd(c)?;
    let mut target = c.target(dirfd, &path)?;
    if let Target::Special(
        Special::Link(_) | Special::Own | Special::OwnDescriptors | Special::Descriptor(_),
    ) = target
    {
        if flags & open_flags::NOFOLLOW != 0 {
            return Err(ELOOP.into());
        }
        target = follow(c, target);
    }
    let exclusive =
        flags & (open_flags::CREAT | open_flags::EXCL) == open_flags::CREAT | open_flags::EXCL;
    let mut found = FoundOut::default();
    // The file system follows its own links to the end: what is found behind them is not followed again.
    let mut is_followed = flags & open_flags::NOFOLLOW != 0 || exclusive;
    let kind = loop {
        let path = match target {
            Target::Path(path) => path,
            Target::Special(_) if exclusive => return Err(EEXIST.into()),
            Target::Special(special) => {
                break open_special(c, special, flags, permissions, &mut found)?
            }
        };
        if is_followed {
            break open_file(c, path, flags, permissions, &mut found)?;
        }
        is_followed = true;
        // With `O_CREAT`, the link is not followed in the first attempt: nothing may be created before its target is
        // known.
        let (first, is_link) = match flags & open_flags::CREAT {
            0 => (flags, ENOENT),
            _ => (flags | open_flags::NOFOLLOW, ELOOP),
        };
        match open_file(c, path.clone(), first, permissions, &mut found) {
            Err(Stop::Errno(errno)) if errno == is_link && !c.h.waits() => {}
            opened => break opened?,
        }
        target = match behind_link(c, &path)? {
            Some(target) => target,
            None if flags & open_flags::CREAT != 0 => Target::Path(path),
            None => return Err(ENOENT.into()),
        };
    };
    let kept = flags
        & !(open_flags::CREAT
            | open_flags::EXCL
            | open_flags::TRUNC
            | open_flags::CLOEXEC
            | open_flags::DIRECTORY
            | open_flags::NOFOLLOW);
    let description = Description {
        kind,
        flags: kept | open_flags::LARGEFILE,
        offset: 0,
        owner: None,
    };
    let is_watched = !c.s.inotify.is_unwatched();
    let is_cut = flags & open_flags::TRUNC != 0;
    let place = match is_watched {
        true if !is_cut => super::inotify::find_opened(c, &description)?,
        _ => found.place,
    };
    c.s.busy.opened(&description);
    if found.is_again {
        c.s.opened_again(&description);
    }
    c.p.files
        .install(fd, description, flags & open_flags::CLOEXEC != 0);
    if is_watched {
        super::inotify::opened(c, fd, place.as_ref(), (found.is_made, is_cut));
    }
    Ok(u64::from(fd))
}

/// Opens a special name, for which the file system is not asked.
fn open_special(
    c: &mut Caller,
    special: Special,
    flags: u32,
    permissions: u32,
    found: &mut FoundOut,
) -> Result<Kind> {
    Ok(match special {
        Special::Folder(_) if flags & open_flags::ACCESS != 0 => return Err(EISDIR.into()),
        Special::Folder(folder) => Kind::Folder(folder),
        Special::Descriptor(from) => {
            let kind = c.p.files.get(from).map_err(|_| ENOENT)?.kind.clone();
            open_again(c, kind, flags, permissions, found)?
        }
        _ if flags & open_flags::DIRECTORY != 0 => return Err(ENOTDIR.into()),
        Special::Device(device) => Kind::Device(device),
        Special::Multiplexor => super::pty::open_master(c)?,
        Special::Slave(number) => super::pty::open_shown(c, number, flags)?,
        Special::Terminal => super::pty::open_own(c)?.unwrap_or(Kind::Device(Device::Console)),
        Special::Text(which) if flags & open_flags::ACCESS != 0 && !which.is_writable() => {
            return Err(EACCES.into())
        }
        Special::Text(which) => {
            if let Some(number) = which.memory() {
                super::peer::may_open(c, number)?;
            }
            Kind::Text(Box::new(Reading::new(which)))
        }
        // The open files of another process can be listed, not opened.
        Special::DescriptorOf(..) => return Err(EACCES.into()),
        Special::Link(_) | Special::LinkOf(..) | Special::Own | Special::OwnDescriptors => {
            return Err(ELOOP.into())
        }
    })
}

/// Follows a symbolic link of the file system that leads to a special name (`/dev/stdout`, `/proc/self/fd/1`) or
/// through one (`/proc/self/cwd/file`), which the file system cannot do. `None` for all others. To be called when the
/// file system has found nothing behind the link.
/// was found behind the link.
pub fn behind_link(c: &mut Caller, path: &str) -> Result<Option<Target>> {
    let mut at = String::from(path);
    for _ in 0..MAX_LINKS {
        // In most cases the name does not exist at all, which is in the cache the next time.
        let stat = Request::Stat {
            path: at.clone(),
            follow: false,
        };
        match c.attr(&stat) {
            Err(stop) if c.h.waits() => return Err(stop),
            Ok(attr) if attr.mode & mode::TYPE == mode::SYMLINK => {}
            _ => return Ok(None),
        }
        let to = c.fs_path(&Request::Readlink { path: at.clone() })?;
        let directory = at.trim_end_matches('/').rsplit_once('/');
        let directory = directory.map_or("/", |(directory, _)| directory);
        let to = crate::path::join(directory, &to);
        match c.target(AT_FDCWD, &to)? {
            Target::Path(next) if next == to => at = next,
            target => return Ok(Some(follow(c, target))),
        }
    }
    Ok(None)
}

/// The target of a special link; other targets are returned unchanged.
pub fn follow(c: &Caller, target: Target) -> Target {
    let number = c.p.task.number;
    match target {
        Target::Special(Special::Link(to)) => Target::Path(to),
        Target::Special(Special::Own) => Target::Special(Special::Folder(Folder::Process(number))),
        Target::Special(Special::OwnDescriptors) => {
            Target::Special(Special::Folder(Folder::Descriptors(number)))
        }
        target => target,
    }
}

/// Facts about a file that are found while it is opened, as far as watches or owners need them.
#[derive(Default)]
struct FoundOut {
    /// The call has created it.
    is_made: bool,
    /// Its place, if it was truncated.
    place: Option<Place>,
    /// It was open already, and the file system was not asked to open it.
    is_again: bool,
}

/// Opens the file of an open description again, whatever its name is by now, as Linux does by `/proc/self/fd`: with an
/// offset and access rights of its own. `kind` is the kind of the open description.
fn open_again(
    c: &mut Caller,
    kind: Kind,
    flags: u32,
    permissions: u32,
    found: &mut FoundOut,
) -> Result<Kind> {
    let writes = flags & open_flags::ACCESS != 0;
    let names_only = flags & open_flags::PATH != 0;
    let truncates = flags & open_flags::TRUNC != 0 && !names_only;
    let is_directory = matches!(kind, Kind::Directory { .. } | Kind::Folder(_));
    if flags & open_flags::DIRECTORY != 0 && !is_directory {
        return Err(ENOTDIR.into());
    }
    found.is_again = true;
    match kind {
        Kind::File { ino } if !names_only && c.s.nodes.mode(ino).is_some() => {
            // A node that was opened with `O_PATH` is open by name only.
            found.is_again = false;
            let path = c.fs_path(&Request::PathOf { ino })?;
            open_file(c, path, flags, permissions, found)
        }
        Kind::File { ino } => {
            let attr = c.attr(&Request::StatIno { ino })?;
            if attr.mode & mode::TYPE == mode::SYMLINK && !names_only {
                return Err(ELOOP.into());
            }
            if (writes || truncates) && is_protected(c, ino, flags) {
                return Err(ETXTBSY.into());
            }
            if truncates {
                found.place = super::inotify::find_before(c, ino, super::inotify::OF_OPENED)?;
                super::file::set_size(c, ino, 0)?;
            }
            Ok(Kind::File { ino })
        }
        Kind::Directory { .. } | Kind::Folder(_)
            if writes || truncates || flags & open_flags::CREAT != 0 =>
        {
            Err(EISDIR.into())
        }
        Kind::Directory { ino, .. } => Ok(Kind::Directory {
            ino,
            pending: alloc::vec![],
            cookie: 0,
        }),
        Kind::Pipe { id, ino, pipe, .. } if !names_only => {
            let end = super::pipe::end_of(flags);
            let waits_not = flags & open_flags::NONBLOCK != 0;
            if end == End::Write && ino.is_some() && waits_not && pipe.borrow().readers == 0 {
                return Err(ENXIO.into());
            }
            Ok(Kind::Pipe { id, end, ino, pipe })
        }
        Kind::Text(reading) if !writes || reading.which().is_writable() => {
            Ok(Kind::Text(Box::new(reading.anew())))
        }
        Kind::Text(_) => Err(EACCES.into()),
        Kind::Pty { master: true, .. } if !names_only => super::pty::open_master(c),
        Kind::Pty { number, .. } if !names_only => super::pty::open_slave(c, number, flags),
        Kind::Device(device) => Ok(Kind::Device(device)),
        Kind::Folder(folder) => Ok(Kind::Folder(folder)),
        // These have no file that could be opened again.
        Kind::Pipe { .. }
        | Kind::Pty { .. }
        | Kind::Socket { .. }
        | Kind::Counter { .. }
        | Kind::Signals { .. }
        | Kind::Epoll { .. }
        | Kind::Inotify { .. } => Err(ENXIO.into()),
    }
}

/// Opens a file by its path in the file system.
fn open_file(
    c: &mut Caller,
    path: String,
    flags: u32,
    permissions: u32,
    found: &mut FoundOut,
) -> Result<Kind> {
    let writes = flags & open_flags::ACCESS != 0;
    let create = flags & open_flags::CREAT != 0;
    let truncate = flags & open_flags::TRUNC != 0 && flags & open_flags::PATH == 0;
    if create && path.split('/').any(|part| part.len() > MAX_NAME) {
        return Err(ENAMETOOLONG.into());
    }
    let how = Flags {
        create,
        exclusive: flags & open_flags::EXCL != 0,
        nofollow: flags & open_flags::NOFOLLOW != 0,
        symlink: flags & open_flags::PATH != 0,
        ..Flags::default()
    };
    found.is_made = super::inotify::is_made(c, &path, how)?;
    let attr = c.open(path, how, permissions & 0o7777 & !c.p.context.umask)?;
    let ino = attr.ino;
    if found.is_made {
        own(c, ino)?;
    }
    let is_more = c.s.nodes.mode(ino).is_some() && flags & open_flags::PATH == 0;
    let refused = match attr.mode & mode::TYPE {
        mode::FILE if is_more && c.s.nodes.mode(ino) == Some(node::FIFO) => {
            return super::pipe::open_fifo(c, ino, flags)
        }
        // A socket cannot be opened.
        mode::FILE if is_more => Some(ENXIO),
        mode::DIRECTORY if writes || create || truncate => Some(EISDIR),
        mode::DIRECTORY => {
            return Ok(Kind::Directory {
                ino,
                pending: alloc::vec![],
                cookie: 0,
            })
        }
        _ if flags & open_flags::DIRECTORY != 0 => Some(ENOTDIR),
        mode::FILE if (writes || truncate) && is_protected(c, ino, flags) => Some(ETXTBSY),
        mode::FILE if !truncate => return Ok(Kind::File { ino }),
        mode::FILE => {
            found.place = super::inotify::find_before(c, ino, super::inotify::OF_OPENED)?;
            match super::file::set_size(c, ino, 0) {
                Ok(_) => return Ok(Kind::File { ino }),
                Err(stop) => {
                    c.fs(&Request::Close { ino })?;
                    return Err(stop);
                }
            }
        }
        // `O_PATH | O_NOFOLLOW` opens the link itself.
        mode::SYMLINK if flags & open_flags::PATH != 0 => return Ok(Kind::File { ino }),
        mode::SYMLINK => Some(ELOOP),
        _ => None,
    };
    c.fs(&Request::Close { ino })?;
    match refused {
        Some(errno) => Err(errno.into()),
        // A device node under another name, for example by a hard link.
        None if ino == services::fs::NULL_INO => Ok(Kind::Device(Device::Null)),
        None if ino == services::fs::TTY_INO => {
            Ok(super::pty::open_own(c)?.unwrap_or(Kind::Device(Device::Console)))
        }
        None => Ok(Kind::Device(Device::Console)),
    }
}

/// Whether opening the file with these flags has to be refused because it is being executed (`ETXTBSY`).
fn is_protected(c: &Caller, ino: u64, flags: u32) -> bool {
    flags & open_flags::PATH == 0 && c.s.busy.is_executed(ino)
}

/// `unlink`, `rmdir` and `unlinkat`.
pub fn unlink(c: &mut Caller, dirfd: i32, address: u64, flags: u32) -> Result {
    if flags & !AT_REMOVEDIR != 0 {
        return Err(EINVAL.into());
    }
    let path = plain(c, dirfd, address)?;
    let node = node_at(c, &path);
    let is_directory = flags != 0;
    let looked = super::inotify::look(c, &path, !is_directory)?;
    let request = match is_directory {
        true => Request::Rmdir { path: path.clone() },
        false => Request::Unlink { path: path.clone() },
    };
    c.fs(&request)?;
    lose_name(c, &path, looked.as_ref());
    super::inotify::removed(c, &path, looked, is_directory)?;
    forget_node(c, node);
    Ok(0)
}

/// A file has lost this name. If it was the last one, it is kept for the descriptions that the file still has.
fn lose_name(c: &mut Caller, path: &str, looked: Option<&Attr>) {
    if let Some(attr) = looked.filter(|attr| attr.links <= 1) {
        c.s.busy.lose_name(attr.ino, path);
    }
}

/// How a removed file that had this name is shown.
pub fn deleted(name: &str) -> String {
    format!("{name}{}", Mapped::LOST)
}

/// How an open file is shown: its path, its last name if it has none any more, or the name given to `memfd_create`.
pub fn of_open(c: &mut Caller, ino: u64) -> Result<String> {
    match c.s.memfds.get(&ino) {
        Some(memfd) => Ok(memfd.shown()),
        None => path_or_last(c, ino),
    }
}

/// The path of an open file, or its last name if it has none any more.
fn path_or_last(c: &mut Caller, ino: u64) -> Result<String> {
    match c.fs_path(&Request::PathOf { ino }) {
        Err(Stop::Errno(ENOENT)) if !c.h.waits() => Ok(match c.s.busy.lost_name(ino) {
            Some(name) => deleted(name),
            None => deleted(&format!("/#{ino}")),
        }),
        path => path,
    }
}

/// The inode of the node (FIFO or socket) that a path leads to; `None` if it leads to anything else.
fn node_at(c: &mut Caller, path: &str) -> Option<u64> {
    // The disk has no nodes ([`make_node`]).
    if c.s.nodes.is_empty() || services::fs::is_on_disk(path) {
        return None;
    }
    let path = String::from(path);
    let follow = false;
    let ino = c.attr(&Request::Stat { path, follow }).ok()?.ino;
    c.s.nodes.mode(ino).map(|_| ino)
}

/// A name of a node is gone: forgets the node if it was the last one.
fn forget_node(c: &mut Caller, node: Option<u64>) {
    if let Some(ino) = node {
        c.s.forget_removed(c.h, ino);
    }
}

/// `mknod` and `mknodat`: creates a FIFO, a socket file, or an empty regular file.
pub fn mknod(c: &mut Caller, dirfd: i32, address: u64, mode: u32) -> Result {
    let path = c.path(address)?;
    if path.is_empty() {
        return Err(ENOENT.into());
    }
    match mode & mode::TYPE {
        node::FIFO | node::SOCKET => {
            make_node(c, dirfd, &path, mode)?;
        }
        0 | mode::FILE => {
            let path = plain(c, dirfd, address).map_err(exists_if_special)?;
            let how = Flags {
                create: true,
                exclusive: true,
                ..Flags::default()
            };
            let permissions = mode & 0o7777 & !c.p.context.umask;
            let ino = c.open(path.clone(), how, permissions)?.ino;
            own(c, ino)?;
            super::inotify::made(c, &path, false)?;
            c.fs(&Request::Close { ino })?;
        }
        mode::DIRECTORY => return Err(EPERM.into()),
        mode::CHARACTER | 0o060_000 => return Err(EPERM.into()),
        _ => return Err(EINVAL.into()),
    }
    Ok(0)
}

/// Creates a node: an empty file that stands for a FIFO or a socket. Returns its inode.
pub fn make_node(c: &mut Caller, dirfd: i32, path: &str, mode: u32) -> Result<u64> {
    let Target::Path(path) = c.target(dirfd, path)? else {
        return Err(EEXIST.into());
    };
    if path.split('/').any(|part| part.len() > MAX_NAME) {
        return Err(ENAMETOOLONG.into());
    }
    if services::fs::is_on_disk(&path) {
        // The kind of a node is known to this server only; in the next boot it would be a regular file.
        return Err(EPERM.into());
    }
    let how = Flags {
        create: true,
        exclusive: true,
        ..Flags::default()
    };
    let permissions = mode & 0o7777 & !c.p.context.umask;
    let ino = c.open(path.clone(), how, permissions)?.ino;
    own(c, ino)?;
    let payer = c.process().payer;
    let made = c.s.new_node(c.h, ino, mode & mode::TYPE, payer);
    c.fs(&Request::Close { ino })?;
    if let Err(error) = made {
        let _ = c.fs(&Request::Unlink { path });
        return Err(error.into());
    }
    super::inotify::made(c, &path, false)?;
    Ok(ino)
}

/// `mkdir` and `mkdirat`.
pub fn mkdir(c: &mut Caller, dirfd: i32, address: u64, permissions: u32) -> Result {
    let path = plain(c, dirfd, address).map_err(exists_if_special)?;
    let mode = permissions & 0o1777 & !c.p.context.umask;
    let request = Request::Mkdir {
        path: path.clone(),
        mode,
    };
    c.fs(&request)?;
    own_named(c, &path)?;
    super::inotify::made(c, &path, true)?;
    Ok(0)
}

/// Gives a file that was just created, and is open, to the user who created it: the file system does all requests as
/// root. On failure the file is closed.
fn own(c: &mut Caller, ino: u64) -> Result<()> {
    let Some((uid, gid)) = c.process().ids.owner() else {
        return Ok(());
    };
    let owned = c.fs(&Request::Chown { ino, uid, gid });
    if let Err(Stop::Errno(_)) = owned {
        c.fs(&Request::Close { ino })?;
    }
    owned.map(|_| ())
}

/// As [`own`], for something that was just created and is not open.
fn own_named(c: &mut Caller, path: &str) -> Result<()> {
    let Some((uid, gid)) = c.process().ids.owner() else {
        return Ok(());
    };
    c.with_open(path.into(), false, |c, opened| {
        c.fs(&Request::Chown {
            ino: opened.ino,
            uid,
            gid,
        })
    })?;
    Ok(())
}

/// Turns the error for special names into `EEXIST`, for calls that create something.
fn exists_if_special(stop: Stop) -> Stop {
    match stop {
        Stop::Errno(EACCES) => Stop::Errno(EEXIST),
        other => other,
    }
}

/// `rename`, `renameat` and `renameat2`.
pub fn rename(c: &mut Caller, from: (i32, u64), to: (i32, u64), flags: u32) -> Result {
    use linux::RENAME_NOREPLACE as NOREPLACE;
    if flags & !NOREPLACE != 0 {
        return Err(EINVAL.into());
    }
    let from = plain(c, from.0, from.1)?;
    let to = plain(c, to.0, to.1)?;
    if flags & NOREPLACE != 0
        && c.attr(&Request::Stat {
            path: to.clone(),
            follow: false,
        })
        .is_ok()
    {
        return Err(EEXIST.into());
    }
    let node = node_at(c, &to);
    let request = within_one(Request::Rename {
        from: from.clone(),
        to: to.clone(),
    })?;
    let replaced = super::inotify::look(c, &to, true)?;
    c.fs(&request)?;
    lose_name(c, &to, replaced.as_ref());
    super::inotify::renamed(c, &from, &to, replaced)?;
    forget_node(c, node);
    Ok(0)
}

/// `link` and `linkat`.
pub fn link(c: &mut Caller, from: (i32, u64), to: (i32, u64), flags: u32) -> Result {
    if flags & !(linux::AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(EINVAL.into());
    }
    let mut source = plain(c, from.0, from.1)?;
    let to = plain(c, to.0, to.1).map_err(exists_if_special)?;
    if flags & linux::AT_SYMLINK_FOLLOW != 0 {
        source = c.with_open(source, true, |c, opened| {
            c.fs_path(&Request::PathOf { ino: opened.ino })
        })?;
    }
    let attr = c.attr(&Request::Stat {
        path: source.clone(),
        follow: false,
    })?;
    if attr.mode & mode::TYPE == mode::DIRECTORY {
        return Err(EPERM.into());
    }
    let request = within_one(Request::Link {
        from: source,
        to: to.clone(),
    })?;
    c.fs(&request)?;
    super::inotify::linked(c, attr.ino, &to)?;
    Ok(0)
}

/// Checks that the two paths of a request are in one file system. Errors: `EXDEV`.
fn within_one(request: Request) -> Result<Request> {
    match request.is_on_disk() {
        Some(_) => Ok(request),
        None => Err(EXDEV.into()),
    }
}

/// `symlink` and `symlinkat`.
pub fn symlink(c: &mut Caller, target: u64, dirfd: i32, address: u64) -> Result {
    let target = c.path(target)?;
    if target.is_empty() {
        return Err(ENOENT.into());
    }
    let path = plain(c, dirfd, address).map_err(exists_if_special)?;
    let request = Request::Symlink {
        target,
        path: path.clone(),
    };
    c.fs(&request)?;
    own_named(c, &path)?;
    super::inotify::made(c, &path, false)?;
    Ok(0)
}

/// The path of the symbolic link that a file descriptor is open on. Errors: `ENOENT` if it is open on anything else.
fn link_behind(c: &mut Caller, fd: i32) -> Result<String> {
    let ino = match u32::try_from(fd) {
        Ok(fd) => c.p.files.get(fd)?.ino().ok_or(ENOENT)?,
        Err(_) if fd == AT_FDCWD => return Err(ENOENT.into()),
        Err(_) => return Err(EBADF.into()),
    };
    match c.attr(&Request::StatIno { ino })?.mode & mode::TYPE {
        mode::SYMLINK => c.fs_path(&Request::PathOf { ino }),
        _ => Err(ENOENT.into()),
    }
}

/// `readlink` and `readlinkat`.
pub fn readlink(c: &mut Caller, dirfd: i32, address: u64, into: u64, size: u64) -> Result {
    let path = c.path(address)?;
    if size as i64 <= 0 {
        return Err(EINVAL.into());
    }
    let to = match path.is_empty() {
        false => c.target(dirfd, &path)?,
        true => Target::Path(link_behind(c, dirfd)?),
    };
    let target = match to {
        Target::Special(Special::Link(target)) => match crate::proc::lost_program(c, &path) {
            true => deleted(&target),
            false => target,
        },
        Target::Special(Special::Own) if path.ends_with("thread-self") => {
            format!("{}/task/{}", c.p.task.number, c.p.task.thread)
        }
        Target::Special(Special::Own) => format!("{}", c.p.task.number),
        Target::Special(Special::OwnDescriptors) => String::from("/proc/self/fd"),
        Target::Special(special @ (Special::Descriptor(_) | Special::DescriptorOf(..))) => {
            let kind = match special {
                Special::DescriptorOf(number, fd) => crate::proc::description(c, number, fd)?
                    .borrow()
                    .kind
                    .clone(),
                Special::Descriptor(fd) => c.p.files.get(fd).map_err(|_| ENOENT)?.kind.clone(),
                _ => return Err(EINVAL.into()),
            };
            match kind {
                Kind::File { ino } => of_open(c, ino)?,
                Kind::Directory { ino, .. } => path_or_last(c, ino)?,
                Kind::Device(Device::Console) => String::from("/dev/console"),
                Kind::Pty { master: true, .. } => String::from("/dev/ptmx"),
                Kind::Pty { number, .. } => format!("/dev/pts/{}", c.s.ptys.shown(number)),
                Kind::Pipe { ino: Some(ino), .. } => path_or_last(c, ino)?,
                Kind::Pipe { id, .. } => format!("pipe:[{id}]"),
                Kind::Counter { counter, .. } => match counter {
                    Counter::Event { .. } => String::from("anon_inode:[eventfd]"),
                    Counter::Timer { .. } => String::from("anon_inode:[timerfd]"),
                },
                Kind::Socket { id } => format!("socket:[{id}]"),
                Kind::Signals { .. } => String::from("anon_inode:[signalfd]"),
                Kind::Epoll { .. } => String::from("anon_inode:[eventpoll]"),
                Kind::Inotify { .. } => String::from("anon_inode:inotify"),
                Kind::Device(Device::Null) => String::from("/dev/null"),
                Kind::Device(Device::Zero) => String::from("/dev/zero"),
                Kind::Device(Device::Full) => String::from("/dev/full"),
                Kind::Device(Device::Random) => String::from("/dev/random"),
                Kind::Folder(folder) => folder.path(),
                Kind::Text(_) => String::from("/proc"),
            }
        }
        Target::Special(_) => return Err(EINVAL.into()),
        Target::Path(path) => c.fs_path(&Request::Readlink { path })?,
    };
    let length = target.len().min(size as usize);
    c.write(into, &target.as_bytes()[..length])?;
    Ok(length as u64)
}

/// Makes the directory with this inode, which must be open, the working directory.
fn enter(c: &mut Caller, ino: u64, mode: u32) -> Result {
    if mode & mode::TYPE != mode::DIRECTORY {
        return Err(ENOTDIR.into());
    }
    c.p.context.cwd = c.fs_path(&Request::PathOf { ino })?;
    Ok(0)
}

/// `chdir`.
pub fn chdir(c: &mut Caller, address: u64) -> Result {
    let path = c.path(address)?;
    if path.is_empty() {
        return Err(ENOENT.into());
    }
    let target = c.target(AT_FDCWD, &path)?;
    let path = match follow(c, target) {
        Target::Path(path) => path,
        Target::Special(Special::Folder(folder)) => {
            c.p.context.cwd = folder.path();
            return Ok(0);
        }
        Target::Special(Special::Descriptor(fd)) => {
            c.p.files.get(fd).map_err(|_| ENOENT)?;
            return fchdir(c, fd);
        }
        Target::Special(_) => return Err(ENOTDIR.into()),
    };
    c.with_open(path, true, |c, opened| enter(c, opened.ino, opened.mode))
}

/// `fchdir`.
pub fn fchdir(c: &mut Caller, fd: u32) -> Result {
    let folder = match c.p.files.get(fd)?.kind {
        Kind::Folder(folder) => Some(folder),
        _ => None,
    };
    if let Some(folder) = folder {
        c.p.context.cwd = folder.path();
        return Ok(0);
    }
    let ino = c.p.files.get(fd)?.ino().ok_or(ENOTDIR)?;
    let attr = c.attr(&Request::StatIno { ino })?;
    enter(c, ino, attr.mode)
}

/// `getcwd`.
pub fn getcwd(c: &mut Caller, into: u64, size: u64) -> Result {
    let mut bytes = c.p.context.cwd.clone().into_bytes();
    bytes.push(0);
    if size < bytes.len() as u64 {
        return Err(ERANGE.into());
    }
    c.write(into, &bytes)?;
    Ok(bytes.len() as u64)
}

/// `truncate`.
pub fn truncate(c: &mut Caller, address: u64, size: u64) -> Result {
    if size > super::file::MAX_OFFSET {
        return Err(EINVAL.into());
    }
    let path = plain(c, AT_FDCWD, address)?;
    c.with_open(path, true, |c, opened| match opened.mode & mode::TYPE {
        mode::FILE if c.s.busy.is_executed(opened.ino) => Err(ETXTBSY.into()),
        mode::FILE if c.s.nodes.mode(opened.ino).is_some() => Err(EINVAL.into()),
        mode::FILE => {
            let place = super::inotify::find_before(c, opened.ino, linux::IN_MODIFY)?;
            super::file::set_size(c, opened.ino, size)?;
            let file = (opened.ino, opened.mode);
            super::inotify::changed_at(c, file, linux::IN_MODIFY, place.as_ref());
            Ok(0)
        }
        mode::DIRECTORY => Err(EISDIR.into()),
        _ => Err(EINVAL.into()),
    })
}

/// `access`, `faccessat` and `faccessat2`.
pub fn access(c: &mut Caller, dirfd: i32, address: u64, wanted: u32, flags: u32) -> Result {
    use linux::X_OK as EXECUTE;
    if wanted & !7 != 0 {
        return Err(EINVAL.into());
    }
    let attr = super::stat::look(c, dirfd, address, flags & !linux::AT_EACCESS)?;
    // Everybody is treated as root, who may do everything but execute a file that nobody may execute.
    let directory = attr.attr.mode & mode::TYPE == mode::DIRECTORY;
    if wanted & EXECUTE != 0 && !directory && attr.attr.mode & 0o111 == 0 {
        return Err(EACCES.into());
    }
    Ok(0)
}
