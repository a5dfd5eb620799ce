//! Attributes of files and file systems.

use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

use crate::files::{Reply, Request};
use services::fs::{mode, Attr};

use super::name::AT_EMPTY_PATH;
use crate::emulate::{Caller, Result, Stop, Target, AT_FDCWD};
use crate::errno::{EBADF, EINVAL, EIO, ENOENT};
use crate::proc::{Folder, Text};
use crate::process::{Device, Kind};
use crate::special::Special;
use crate::wire::{u64_at, Writer};

pub use linux::AT_SYMLINK_NOFOLLOW;
/// Flags that are accepted and have no effect.
const AT_HARMLESS: u32 = linux::AT_NO_AUTOMOUNT | linux::AT_STATX_SYNC_TYPE;

/// The device number of the file system in memory.
pub const FILES: u64 = 0x14;
/// The device number of the file system on the disk.
pub const DISK: u64 = 0x16;
/// The device number of everything that this server provides itself.
const SPECIALS: u64 = 0x15;

/// The attributes of a file, including those that the file system does not keep.
pub struct Look {
    /// The attributes.
    pub attr: Attr,
    /// Major and minor number, for a device.
    device: (u32, u32),
    /// The device number of its file system: [`FILES`] for the disk, too ([`Look::identity`]).
    on: u64,
    /// For a file that is not open: its path, and whether a symbolic link at the end was followed.
    path: Option<(String, bool)>,
    /// For an open file: its file descriptor.
    fd: Option<u32>,
}

impl Look {
    /// The device number and inode number of the file, by which programs tell whether two files are the same. They are
    /// the same in the next boot, for programs that have kept them.
    fn identity(&self) -> (u64, u64) {
        let on = match self.attr.ino & services::fs::ON_DISK {
            0 => self.on,
            _ => DISK,
        };
        (on, services::fs::shown(self.attr.ino))
    }

    /// Changes an attribute of the file by the `request` for its inode. `event`: what `inotify` is to report.
    fn change(&self, c: &mut Caller, event: u32, request: impl Fn(u64) -> Request) -> Result {
        // The attributes of devices and other special files cannot be changed.
        if self.on != FILES {
            return Ok(0);
        }
        match &self.path {
            Some((path, follow)) => c.with_open(path.clone(), *follow, |c, opened| {
                c.fs(&request(opened.ino))?;
                super::inotify::changed(c, (opened.ino, opened.mode), event)
            })?,
            None => {
                c.fs(&request(self.attr.ino))?;
                if let Some(fd) = self.fd.filter(|_| event != 0) {
                    super::inotify::did(c, fd, event);
                }
            }
        }
        Ok(0)
    }
}

/// Shows what a file is that the personality has made a FIFO or the name of a socket.
fn show_node(c: &Caller, attr: &mut Attr) {
    if let Some(mode) = c.s.nodes.mode(attr.ino) {
        attr.mode = attr.mode & !mode::TYPE | mode;
    }
}

/// The attributes of the file at a path of the file system.
fn of_path(c: &mut Caller, path: String, follow: bool) -> Result<Look> {
    let mut attr = c.attr(&Request::Stat {
        path: path.clone(),
        follow,
    })?;
    show_node(c, &mut attr);
    Ok(Look {
        path: Some((path, follow)),
        ..of_file(attr)
    })
}

fn of_file(attr: Attr) -> Look {
    if attr.mode & mode::TYPE == mode::CHARACTER {
        let null = attr.ino == services::fs::NULL_INO;
        return of_device(if null { Device::Null } else { Device::Console });
    }
    Look {
        attr,
        device: (0, 0),
        on: FILES,
        path: None,
        fd: None,
    }
}

fn of_device(device: Device) -> Look {
    let (major, minor) = match device {
        Device::Null => (1, 3),
        Device::Zero => (1, 5),
        Device::Full => (1, 7),
        Device::Random => (1, 9),
        Device::Console => (5, 1),
    };
    let mode = if device == Device::Console {
        0o620
    } else {
        0o666
    };
    Look {
        attr: Attr {
            ino: u64::from(minor) + 1,
            mode: mode::CHARACTER | mode,
            links: 1,
            ..Attr::default()
        },
        device: (major, minor),
        on: SPECIALS,
        path: None,
        fd: None,
    }
}

/// The slave of a pseudo-terminal, or `/dev/ptmx`.
fn of_terminal(slave: Option<u32>) -> Look {
    let mut look = of_device(Device::Console);
    (look.device, look.attr.ino) = match slave {
        Some(number) => ((136, number), u64::from(number) + 203),
        None => ((5, 2), 202),
    };
    look
}

fn of_text(which: Text) -> Look {
    let mut look = of_nothing();
    look.attr.ino = which.number();
    look.attr.mode = mode::FILE | which.permissions();
    look
}

/// A special file whose type is still to be set.
fn of_nothing() -> Look {
    let attr = Attr {
        ino: 100,
        links: 1,
        ..Attr::default()
    };
    Look {
        attr,
        device: (0, 0),
        on: SPECIALS,
        path: None,
        fd: None,
    }
}

fn of_link() -> Look {
    let mut look = of_nothing();
    look.attr.mode = mode::SYMLINK | 0o777;
    look
}

fn of_folder(folder: Folder) -> Look {
    let mut look = of_nothing();
    look.attr.mode = mode::DIRECTORY | 0o555;
    look.attr.links = 2;
    // Programs tell directories apart by their inode numbers, so they are made from the paths.
    let path = folder.path();
    look.attr.ino = 1 << 20
        | path
            .bytes()
            .fold(0, |sum: u64, b| (sum * 31 + u64::from(b)) & 0xf_ffff);
    look
}

/// A descriptor of a counter, of signals, or of `epoll` or `inotify`: as on Linux, it has no file type.
fn of_counter() -> Look {
    let mut look = of_nothing();
    look.attr.mode = 0o600;
    look
}

fn of_pipe(id: u64) -> Look {
    let attr = Attr {
        ino: id,
        mode: crate::node::FIFO | 0o600,
        links: 1,
        ..Attr::default()
    };
    Look {
        attr,
        ..of_nothing()
    }
}

fn of_socket(id: u64) -> Look {
    let mut look = of_pipe(id);
    look.attr.mode = crate::node::SOCKET | 0o777;
    look
}

fn of_descriptor(c: &mut Caller, fd: u32) -> Result<Look> {
    let kind = c.p.files.get(fd)?.kind.clone();
    Ok(Look {
        fd: Some(fd),
        ..of_open(c, kind)?
    })
}

/// Device and inode number of an open description, as `fstat` reports them, without its other attributes.
pub fn place_of_open(c: &mut Caller, kind: Kind) -> Result<(u64, u64)> {
    match kind.ino() {
        Some(ino) => Ok(place(ino)),
        None => Ok(of_open(c, kind)?.identity()),
    }
}

/// Device and inode number of a file of a file system.
#[must_use]
pub fn place(ino: u64) -> (u64, u64) {
    let on = match ino & services::fs::ON_DISK {
        0 => FILES,
        _ => DISK,
    };
    (on, services::fs::shown(ino))
}

fn of_open(c: &mut Caller, kind: Kind) -> Result<Look> {
    Ok(match kind {
        Kind::File { ino } | Kind::Directory { ino, .. } => {
            let mut attr = c.attr(&Request::StatIno { ino })?;
            show_node(c, &mut attr);
            of_file(attr)
        }
        Kind::Device(device) => of_device(device),
        Kind::Text(reading) => of_text(reading.which()),
        Kind::Folder(folder) => of_folder(folder),
        Kind::Pipe { ino: Some(ino), .. } => {
            let mut attr = c.attr(&Request::StatIno { ino })?;
            attr.mode = attr.mode & !mode::TYPE | crate::node::FIFO;
            of_file(attr)
        }
        Kind::Pipe { id, .. } => of_pipe(id),
        Kind::Socket { id } => of_socket(id),
        Kind::Pty { number, master, .. } => {
            let shown = c.s.ptys.shown(number);
            of_terminal((!master).then_some(shown))
        }
        Kind::Counter { .. } | Kind::Signals { .. } | Kind::Epoll { .. } | Kind::Inotify { .. } => {
            of_counter()
        }
    })
}

/// The attributes of the file that a path leads to.
pub fn look(c: &mut Caller, dirfd: i32, address: u64, flags: u32) -> Result<Look> {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_HARMLESS) != 0 {
        return Err(EINVAL.into());
    }
    let path = if address == 0 && flags & AT_EMPTY_PATH != 0 {
        Default::default()
    } else {
        c.path(address)?
    };
    if path.is_empty() {
        if flags & AT_EMPTY_PATH == 0 {
            return Err(ENOENT.into());
        }
        if dirfd != AT_FDCWD {
            return of_descriptor(c, dirfd as u32);
        }
        let path = c.p.context.cwd.clone();
        return of_path(c, path, true);
    }
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    let mut target = c.target(dirfd, &path)?;
    if follow {
        target = super::name::follow(c, target);
    }
    let owner = match &target {
        Target::Special(special) => crate::proc::owner(c, special),
        Target::Path(_) => (0, 0),
    };
    let mut look = match of_target(c, target, follow) {
        Err(Stop::Errno(ENOENT)) if follow && !c.h.waits() => of_link_to(c, dirfd, &path)?,
        look => look?,
    };
    if look.on == SPECIALS {
        (look.attr.uid, look.attr.gid) = owner;
    }
    Ok(look)
}

/// The attributes of what is behind a symbolic link of the file system that leads to a special name.
fn of_link_to(c: &mut Caller, dirfd: i32, path: &str) -> Result<Look> {
    let Target::Path(path) = c.target(dirfd, path)? else {
        return Err(ENOENT.into());
    };
    let target = super::name::behind_link(c, &path)?.ok_or(ENOENT)?;
    of_target(c, target, true)
}

/// The attributes of a target. The caller has followed special links already, if `follow`.
fn of_target(c: &mut Caller, target: Target, follow: bool) -> Result<Look> {
    match target {
        Target::Path(path) => of_path(c, path, follow),
        Target::Special(Special::Folder(folder)) => Ok(of_folder(folder)),
        // Unlike opening them, looking at other processes' open files is allowed: tools do that.
        Target::Special(Special::DescriptorOf(number, fd)) => {
            let description = crate::proc::description(c, number, fd)?;
            let kind = description.borrow().kind.clone();
            match follow {
                true => of_open(c, kind),
                false => Ok(of_link()),
            }
        }
        Target::Special(Special::Device(device)) => Ok(of_device(device)),
        Target::Special(Special::Text(which)) => Ok(of_text(which)),
        Target::Special(Special::Multiplexor) => Ok(of_terminal(None)),
        Target::Special(Special::Slave(number)) => {
            let root = c.process().root;
            c.s.ptys.of_tree(number, root).ok_or(ENOENT)?;
            Ok(of_terminal(Some(number)))
        }
        Target::Special(Special::Terminal) => {
            let mut look = of_device(Device::Console);
            (look.device, look.attr.ino) = ((5, 0), 201);
            Ok(look)
        }
        Target::Special(Special::Descriptor(fd)) if !follow => {
            c.p.files.get(fd).map_err(|_| ENOENT)?;
            Ok(of_link())
        }
        Target::Special(Special::Descriptor(fd)) => of_descriptor(c, fd).map_err(|_| ENOENT.into()),
        Target::Special(
            Special::Link(_) | Special::LinkOf(..) | Special::Own | Special::OwnDescriptors,
        ) => Ok(of_link()),
    }
}

fn split(nanoseconds: u64) -> (u64, u64) {
    (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

fn struct_stat(look: &Look) -> Vec<u8> {
    let a = &look.attr;
    let (on, number) = look.identity();
    let mut out = Writer::new()
        .u64(on)
        .u64(number)
        .u64(u64::from(a.links))
        .u32(a.mode)
        .u32(a.uid)
        .u32(a.gid)
        .u32(0)
        .u64(u64::from(look.device.0) << 8 | u64::from(look.device.1))
        .u64(a.size)
        .u64(4096)
        .u64(a.size.div_ceil(512));
    for time in [a.atime_ns, a.mtime_ns, a.ctime_ns] {
        let (seconds, rest) = split(time);
        out = out.u64(seconds).u64(rest);
    }
    out.pad_to(144).done()
}

/// `stat`, `lstat` and `newfstatat`.
pub fn stat(c: &mut Caller, dirfd: i32, address: u64, into: u64, flags: u32) -> Result {
    let look = look(c, dirfd, address, flags)?;
    c.write(into, &struct_stat(&look))?;
    Ok(0)
}

/// `fstat`.
pub fn fstat(c: &mut Caller, fd: u32, into: u64) -> Result {
    let look = of_descriptor(c, fd)?;
    c.write(into, &struct_stat(&look))?;
    Ok(0)
}

/// `statx`.
pub fn statx(c: &mut Caller, dirfd: i32, address: u64, flags: u32, into: u64) -> Result {
    use linux::STATX_BASIC_STATS as BASIC;
    let look = look(c, dirfd, address, flags)?;
    let a = &look.attr;
    let (on, number) = look.identity();
    let mut out = Writer::new()
        .u32(BASIC)
        .u32(4096)
        .u64(0)
        .u32(a.links)
        .u32(a.uid)
        .u32(a.gid)
        .u16(a.mode as u16)
        .u16(0)
        .u64(number)
        .u64(a.size)
        .u64(a.size.div_ceil(512))
        .u64(0);
    // Access, birth (unknown), change, modification.
    for time in [a.atime_ns, 0, a.ctime_ns, a.mtime_ns] {
        let (seconds, rest) = split(time);
        out = out.u64(seconds).u32(rest as u32).u32(0);
    }
    let out = out
        .u32(look.device.0)
        .u32(look.device.1)
        .u32((on >> 8) as u32)
        .u32(on as u32 & 0xff)
        .pad_to(256)
        .done();
    c.write(into, &out)?;
    Ok(0)
}

/// `f_type` of the file system on the disk, and of that in memory.
const EXT4_MAGIC: u64 = 0xef53;
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// `f_type` of the special file system that the path is in; `None` in `/dev`, which counts as part of the file system
/// in memory.
fn special_magic(path: &str) -> Option<u64> {
    match path {
        _ if path.starts_with("/dev/pts") => Some(linux::DEVPTS_SUPER_MAGIC.into()),
        _ if path.starts_with("/proc") => Some(linux::PROC_SUPER_MAGIC.into()),
        _ if path.starts_with("/sys") => Some(linux::SYSFS_MAGIC.into()),
        _ => None,
    }
}

/// `struct statfs` of a special file system, which has no blocks.
fn without_blocks(kind: u64) -> Vec<u8> {
    let names = Writer::new().u64(kind).u64(4096).pad_to(64);
    names.u64(255).u64(4096).u64(0x1020).pad_to(120).done()
}

fn struct_statfs(c: &mut Caller, on_disk: bool) -> Result<Vec<u8>> {
    let Reply::Usage {
        bytes,
        files,
        most_bytes,
        most_files,
    } = c.fs(&Request::Usage { on_disk })?
    else {
        return Err(EIO.into());
    };
    let used = bytes.div_ceil(4096);
    // The file system in memory can take all free memory.
    let (kind, free, free_files) = match on_disk {
        true => (
            EXT4_MAGIC,
            most_bytes.saturating_sub(bytes) / 4096,
            most_files.saturating_sub(files),
        ),
        false => {
            let free = c.h.memory_usage().free / 4096;
            (TMPFS_MAGIC, free, free)
        }
    };
    Ok(Writer::new()
        .u64(kind)
        .u64(4096)
        .u64(used + free)
        .u64(free)
        .u64(free)
        .u64(files + free_files)
        .u64(free_files)
        .u64(0)
        .u64(255)
        .u64(4096)
        .u64(0x1020)
        .pad_to(120)
        .done())
}

/// `statfs`.
pub fn statfs(c: &mut Caller, address: u64, into: u64) -> Result {
    let look = look(c, AT_FDCWD, address, 0)?;
    let special = match look.on == SPECIALS {
        true => {
            let path = c.path(address)?;
            special_magic(&crate::path::join(&c.p.context.cwd, &path))
        }
        false => None,
    };
    let out = match special {
        Some(kind) => without_blocks(kind),
        None => struct_statfs(c, look.identity().0 == DISK)?,
    };
    c.write(into, &out)?;
    Ok(0)
}

/// `fstatfs`.
pub fn fstatfs(c: &mut Caller, fd: u32, into: u64) -> Result {
    let (special, ino) = {
        let description = c.p.files.get(fd)?;
        let special = match &description.kind {
            Kind::Folder(folder) => special_magic(&folder.path()),
            Kind::Text(text) => special_magic(text.which().root()),
            Kind::Pty { .. } => special_magic("/dev/pts"),
            Kind::Pipe { ino: None, .. } => Some(linux::PIPEFS_MAGIC.into()),
            Kind::Socket { .. } => Some(linux::SOCKFS_MAGIC.into()),
            _ => None,
        };
        (special, description.ino())
    };
    let on_disk = ino.is_some_and(|ino| ino & services::fs::ON_DISK != 0);
    let out = match special {
        Some(kind) => without_blocks(kind),
        None => struct_statfs(c, on_disk)?,
    };
    c.write(into, &out)?;
    Ok(0)
}

/// Sets the permissions of a file.
fn set_mode(c: &mut Caller, look: &Look, permissions: u32) -> Result {
    look.change(c, linux::IN_ATTRIB, |ino| Request::Chmod {
        ino,
        mode: permissions & 0o7777,
    })
}

/// `chmod` and `fchmodat`.
pub fn chmod(c: &mut Caller, dirfd: i32, address: u64, permissions: u32, flags: u32) -> Result {
    let look = look(c, dirfd, address, flags)?;
    set_mode(c, &look, permissions)
}

/// `fchmod`.
pub fn fchmod(c: &mut Caller, fd: u32, permissions: u32) -> Result {
    let look = of_descriptor(c, fd)?;
    set_mode(c, &look, permissions)
}

fn set_owner(c: &mut Caller, look: &Look, owner: (u32, u32)) -> Result {
    let (uid, gid) = owner;
    let event = match (uid, gid) {
        (u32::MAX, u32::MAX) => 0,
        _ => linux::IN_ATTRIB,
    };
    look.change(c, event, |ino| Request::Chown { ino, uid, gid })
}

/// `chown`, `lchown` and `fchownat`.
pub fn chown(c: &mut Caller, dirfd: i32, address: u64, owner: (u32, u32), flags: u32) -> Result {
    let look = look(c, dirfd, address, flags)?;
    set_owner(c, &look, owner)
}

/// `fchown`.
pub fn fchown(c: &mut Caller, fd: u32, uid: u32, gid: u32) -> Result {
    let look = of_descriptor(c, fd)?;
    set_owner(c, &look, (uid, gid))
}

fn set_times(c: &mut Caller, look: &Look, times: [Option<u64>; 2]) -> Result {
    let atime_ns = times[0].unwrap_or(look.attr.atime_ns);
    let mtime_ns = times[1].unwrap_or(look.attr.mtime_ns);
    // As on Linux, setting one of the times counts as an access or a modification.
    let event = match times {
        [Some(_), Some(_)] => linux::IN_ATTRIB,
        [Some(_), None] => linux::IN_ACCESS,
        [None, Some(_)] => linux::IN_MODIFY,
        [None, None] => 0,
    };
    look.change(c, event, |ino| Request::Utimens {
        ino,
        atime_ns,
        mtime_ns,
    })
}

/// Seconds and a rest in nanoseconds, as nanoseconds.
fn join(seconds: u64, rest: u64) -> Result<u64> {
    // The file systems keep no times before 1970.
    let seconds = if (seconds as i64) < 0 { 0 } else { seconds };
    seconds
        .checked_mul(1_000_000_000)
        .and_then(|s| s.checked_add(rest))
        .ok_or(EINVAL.into())
}

/// `utimensat`.
pub fn utimensat(c: &mut Caller, dirfd: i32, address: u64, times: u64, flags: u32) -> Result {
    const NOW: u64 = linux::UTIME_NOW as u64;
    const OMIT: u64 = linux::UTIME_OMIT as u64;
    let now = c.date();
    let mut set = [Some(now); 2];
    if times != 0 {
        let raw = c.read(times, 32)?;
        for (i, time) in set.iter_mut().enumerate() {
            let (seconds, rest) = (u64_at(&raw, 16 * i), u64_at(&raw, 16 * i + 8));
            *time = match rest {
                NOW => Some(now),
                OMIT => None,
                0..=999_999_999 => Some(join(seconds, rest)?),
                _ => return Err(EINVAL.into()),
            };
        }
    }
    let look = if address == 0 {
        if dirfd == AT_FDCWD {
            return Err(crate::errno::EFAULT.into());
        }
        of_descriptor(c, dirfd as u32)?
    } else {
        look(c, dirfd, address, flags)?
    };
    set_times(c, &look, set)
}

/// `utimes` and `futimesat`.
pub fn utimes(c: &mut Caller, dirfd: i32, address: u64, times: u64) -> Result {
    let now = c.date();
    let mut set = [Some(now); 2];
    if times != 0 {
        let raw = c.read(times, 32)?;
        for (i, time) in set.iter_mut().enumerate() {
            let (seconds, micros) = (u64_at(&raw, 16 * i), u64_at(&raw, 16 * i + 8));
            if micros > 999_999 {
                return Err(EINVAL.into());
            }
            *time = Some(join(seconds, micros * 1000)?);
        }
    }
    let look = if address == 0 {
        of_descriptor(c, u32::try_from(dirfd).map_err(|_| EBADF)?)?
    } else {
        look(c, dirfd, address, 0)?
    };
    set_times(c, &look, set)
}

/// `utime`.
pub fn utime(c: &mut Caller, address: u64, times: u64) -> Result {
    let now = c.date();
    let mut set = [Some(now); 2];
    if times != 0 {
        let raw = c.read(times, 16)?;
        set = [
            Some(join(u64_at(&raw, 0), 0)?),
            Some(join(u64_at(&raw, 8), 0)?),
        ];
    }
    let look = look(c, AT_FDCWD, address, 0)?;
    set_times(c, &look, set)
}
