//! Locks on files: `flock`, and record locks by `fcntl`.

use alloc::rc::Rc;
use linux_raw_sys::general as linux;

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EAGAIN, EBADF, EINVAL, EOVERFLOW};
use crate::files::Request;
use crate::lock::{Lock, Owner, LAST};
use crate::memory::WRITE;
use crate::process::{Description, Shared};
use crate::system::Key;
use crate::wire::{u16_at, u64_at, Writer};

/// Bytes of `struct flock`.
const SIZE: usize = 32;

/// A lock as `struct flock` describes it.
struct Asked {
    kind: u32,
    start: u64,
    last: u64,
}

/// Reads a `struct flock`. `own`: the lock is to belong to the file description (`F_OFD_...`).
fn asked(c: &mut Caller, address: u64, description: &Description, own: bool) -> Result<Asked> {
    let raw = c.read(address, SIZE)?;
    let (kind, whence) = (u32::from(u16_at(&raw, 0)), u32::from(u16_at(&raw, 2)));
    let (start, length) = (u64_at(&raw, 8) as i64, u64_at(&raw, 16) as i64);
    if own && crate::wire::u32_at(&raw, 24) != 0 {
        return Err(EINVAL.into());
    }
    let base = match (whence, description.ino()) {
        (linux::SEEK_SET, _) => 0,
        (linux::SEEK_CUR, _) => description.offset,
        (linux::SEEK_END, Some(ino)) => c.attr(&Request::StatIno { ino })?.size,
        _ => return Err(EINVAL.into()),
    };
    let start = (base as i64).checked_add(start).ok_or(EOVERFLOW)?;
    if start < 0 {
        return Err(EINVAL.into());
    }
    let (start, last) = match length {
        0 => (start, LAST as i64),
        1.. => (start, start.checked_add(length - 1).ok_or(EOVERFLOW)?),
        // A negative length: the range ends before the start.
        _ => match start.checked_add(length) {
            Some(first) if first >= 0 => (first, start - 1),
            _ => return Err(EINVAL.into()),
        },
    };
    Ok(Asked {
        kind,
        start: start as u64,
        last: last as u64,
    })
}

fn description(c: &Caller, fd: u32) -> Result<Shared<Description>> {
    Ok(Rc::clone(&c.p.files.fds.get(fd).ok_or(EBADF)?.description))
}

/// The owner of the record locks of the caller's process.
fn files_owner(c: &mut Caller) -> Owner {
    if c.p.files.owner == 0 {
        c.p.files.owner = c.s.new_identity();
    }
    Owner::Files(c.p.files.owner)
}

/// `F_SETLK`, `F_SETLKW`, `F_GETLK`, and the same with `F_OFD_`.
pub fn record(c: &mut Caller, fd: u32, command: u32, address: u64) -> Result {
    let shared = description(c, fd)?;
    let own = matches!(
        command,
        linux::F_OFD_GETLK | linux::F_OFD_SETLK | linux::F_OFD_SETLKW
    );
    let asked = asked(c, address, &shared.borrow(), own)?;
    let owner = match own {
        true => Owner::Description(Rc::as_ptr(&shared).addr()),
        false => files_owner(c),
    };
    let lock = Lock {
        owner,
        start: asked.start,
        last: asked.last,
        exclusive: asked.kind == linux::F_WRLCK,
        number: c.p.task.number,
    };
    let ino = shared.borrow().ino();
    if matches!(command, linux::F_GETLK | linux::F_OFD_GETLK) {
        if !matches!(asked.kind, linux::F_RDLCK | linux::F_WRLCK) {
            return Err(EINVAL.into());
        }
        c.check(address, SIZE as u64, WRITE)?;
        let found = ino.and_then(|ino| c.s.locks.conflict(ino, &lock));
        return tell(c, address, found);
    }
    let description = shared.borrow();
    let allowed = match asked.kind {
        linux::F_RDLCK => description.readable(),
        linux::F_WRLCK => description.writable(),
        linux::F_UNLCK => true,
        _ => return Err(EINVAL.into()),
    };
    drop(description);
    if !allowed {
        return Err(EBADF.into());
    }
    let Some(ino) = ino else {
        // No other owner can lock a description that has no inode.
        return Ok(0);
    };
    let payer = c.process().payer;
    if asked.kind == linux::F_UNLCK {
        c.h.room(192 << 10)?;
        c.s.unlock(ino, &lock, payer)?;
        return Ok(0);
    }
    let waits = matches!(command, linux::F_SETLKW | linux::F_OFD_SETLKW);
    take(c, ino, lock, waits)
}

/// Takes a lock, or waits until no other owner has a conflicting one.
fn take(c: &mut Caller, ino: u64, lock: Lock, waits: bool) -> Result {
    // The list of locks of a file may grow.
    c.h.room(192 << 10)?;
    let payer = c.process().payer;
    let Some(other) = c.s.locks.conflict(ino, &lock) else {
        c.s.lock(ino, lock, payer)?;
        return Ok(0);
    };
    if !waits {
        return Err(EAGAIN.into());
    }
    if let Owner::Files(_) = lock.owner {
        c.s.locks.wait(c.p.task.tid, lock.owner, other.owner)?;
    }
    // Without a `process::Wait` the task would not leave the queue of the lock when the call is given up.
    c.wait();
    Err(Stop::Park(Wake::on(Key::Lock(ino))))
}

/// Writes the conflicting lock to the caller's `struct flock`, or `F_UNLCK` if there is none.
fn tell(c: &mut Caller, address: u64, found: Option<Lock>) -> Result {
    let Some(found) = found else {
        // As on Linux, the other fields stay as they are.
        c.write(address, &(linux::F_UNLCK as u16).to_le_bytes())?;
        return Ok(0);
    };
    let kind = match found.exclusive {
        true => linux::F_WRLCK,
        false => linux::F_RDLCK,
    };
    let length = match found.last {
        LAST => 0,
        last => last - found.start + 1,
    };
    let number = match found.owner {
        Owner::Files(_) => found.number,
        _ => u32::MAX,
    };
    let out = Writer::new()
        .u16(kind as u16)
        .u16(linux::SEEK_SET as u16)
        .pad_to(8)
        .u64(found.start)
        .u64(length)
        .u32(number)
        .pad_to(SIZE);
    c.write(address, &out.done())?;
    Ok(0)
}

/// `flock`.
pub fn flock(c: &mut Caller, fd: u32, operation: u32) -> Result {
    use linux::{LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN};
    let shared = description(c, fd)?;
    let exclusive = match operation & !LOCK_NB {
        LOCK_SH => Some(false),
        LOCK_EX => Some(true),
        LOCK_UN => None,
        _ => return Err(EINVAL.into()),
    };
    if shared.borrow().flags & crate::process::open_flags::PATH != 0 {
        return Err(EBADF.into());
    }
    let Some(ino) = shared.borrow().ino() else {
        return Ok(0);
    };
    let lock = Lock {
        owner: Owner::Whole(Rc::as_ptr(&shared).addr()),
        start: 0,
        last: LAST,
        exclusive: exclusive.unwrap_or(false),
        number: c.p.task.number,
    };
    let payer = c.process().payer;
    if exclusive.is_none() {
        c.s.unlock(ino, &lock, payer)?;
        return Ok(0);
    }
    let has = c.s.locks.of(lock.owner, ino);
    if has.iter().any(|has| has.exclusive == lock.exclusive) {
        return Ok(0);
    }
    // As on Linux, a lock of the other kind is released before the new one is taken.
    c.s.unlock(ino, &lock, payer)?;
    take(c, ino, lock, operation & LOCK_NB == 0)
}
