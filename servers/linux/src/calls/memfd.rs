//! `memfd_create`, and seals. A memfd is a file of the file system in memory that has no name.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use serde::{Deserialize, Serialize};

use crate::emulate::{Caller, Result};
use crate::errno::{EBUSY, EINVAL, EIO, EPERM};
use crate::files::{Reply, Request};
use crate::process::{open_flags, Description, Kind};
use services::fs::Flags;

/// Most bytes of a name.
pub const MAX_NAME: usize = 249;
/// All seals that exist.
pub const SEALS: u32 = linux::F_SEAL_SEAL
    | linux::F_SEAL_SHRINK
    | linux::F_SEAL_GROW
    | linux::F_SEAL_WRITE
    | linux::F_SEAL_FUTURE_WRITE;

/// What is kept of a memfd beside its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memfd {
    /// Its name, which only `/proc` shows.
    pub name: Vec<u8>,
    /// Its seals: the operations that are forbidden for ever.
    pub seals: u32,
}

impl Memfd {
    /// The target of its link in `/proc/self/fd`.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("/memfd:{} (deleted)", String::from_utf8_lossy(&self.name))
    }

    /// Whether a memfd from a checkpoint image is valid.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.name.len() <= MAX_NAME && self.seals & !SEALS == 0
    }
}

/// The seals of a file.
pub fn seals(c: &Caller, ino: u64) -> u32 {
    c.s.memfds.get(&ino).map_or(0, |memfd| memfd.seals)
}

/// `memfd_create`.
pub fn memfd_create(c: &mut Caller, name: u64, flags: u32) -> Result {
    use linux::{MFD_ALLOW_SEALING as SEALING, MFD_CLOEXEC as CLOEXEC};
    const NO_EXECUTE: u32 = linux::MFD_NOEXEC_SEAL;
    if flags & !(CLOEXEC | SEALING | NO_EXECUTE | linux::MFD_EXEC) != 0 {
        return Err(EINVAL.into());
    }
    let name = c.string(name, MAX_NAME + 1, EINVAL)?;
    let fd = super::file::free_fd(c)?;
    let ino = nameless(c)?;
    let sealed = flags & (SEALING | NO_EXECUTE) == 0;
    let seals = if sealed { linux::F_SEAL_SEAL } else { 0 };
    c.s.memfds.insert(ino, Memfd { name, seals });
    let description = Description {
        kind: Kind::File { ino },
        flags: open_flags::RDWR | open_flags::LARGEFILE,
        offset: 0,
        owner: None,
    };
    c.s.busy.opened(&description);
    c.p.files.install(fd, description, flags & CLOEXEC != 0);
    Ok(u64::from(fd))
}

/// Creates a file in memory without a name; returns its inode. The file system in memory answers without waiting.
fn nameless(c: &mut Caller) -> Result<u64> {
    let open = Request::Open {
        path: "/".into(),
        flags: Flags {
            nameless: true,
            ..Flags::default()
        },
        mode: 0o777,
    };
    match c.h.fs_now(&open, &[], &mut [])? {
        (Reply::Opened(opened), _) => Ok(opened.ino),
        _ => Err(EIO.into()),
    }
}

/// `F_ADD_SEALS` if there are `new` ones, else `F_GET_SEALS`.
pub fn seal(c: &mut Caller, fd: u32, new: Option<u32>) -> Result {
    let description = c.p.files.get(fd)?;
    let Kind::File { ino } = description.kind else {
        return Err(EINVAL.into());
    };
    let is_writable = description.writable();
    drop(description);
    let mapped = c.s.objects.is_writable(ino);
    let memfd = c.s.memfds.get_mut(&ino).ok_or(EINVAL)?;
    let Some(new) = new else {
        return Ok(u64::from(memfd.seals));
    };
    if !is_writable || memfd.seals & linux::F_SEAL_SEAL != 0 {
        return Err(EPERM.into());
    }
    if new & !SEALS != 0 {
        return Err(EINVAL.into());
    }
    if new & !memfd.seals & linux::F_SEAL_WRITE != 0 && mapped {
        return Err(EBUSY.into());
    }
    memfd.seals |= new;
    Ok(0)
}

/// Fails with `EPERM` if a seal forbids to write to the file, or to grow it to `end` bytes.
pub fn check_write(c: &mut Caller, ino: u64, end: u64) -> Result<()> {
    let seals = seals(c, ino);
    if seals & (linux::F_SEAL_WRITE | linux::F_SEAL_FUTURE_WRITE) != 0 {
        return Err(EPERM.into());
    }
    if seals & linux::F_SEAL_GROW != 0 && end > c.attr(&Request::StatIno { ino })?.size {
        return Err(EPERM.into());
    }
    Ok(())
}

/// Fails with `EPERM` if a seal forbids the new size.
pub fn check_size(c: &mut Caller, ino: u64, size: u64) -> Result<()> {
    let seals = seals(c, ino);
    let now = match seals {
        0 => return Ok(()),
        _ => c.attr(&Request::StatIno { ino })?.size,
    };
    let forbidden = match size.cmp(&now) {
        core::cmp::Ordering::Less => linux::F_SEAL_SHRINK,
        core::cmp::Ordering::Equal => 0,
        core::cmp::Ordering::Greater => linux::F_SEAL_GROW,
    };
    if seals & forbidden != 0 {
        return Err(EPERM.into());
    }
    Ok(())
}
