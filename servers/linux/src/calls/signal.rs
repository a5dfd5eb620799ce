//! Calls on signals.

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EFAULT, EINVAL, ENOMEM, EPERM, ESRCH};
use crate::memory::WRITE;
use crate::signal::{bit, sig, Action, Stack, SIGNALS, UNBLOCKABLE};
use crate::wire::{u32_at, u64_at, Writer};
use linux_raw_sys::general as linux;

fn check_size(size: u64) -> Result<()> {
    if size == 8 {
        Ok(())
    } else {
        Err(EINVAL.into())
    }
}

/// `rt_sigaction`.
pub fn rt_sigaction(c: &mut Caller, signal: u32, new: u64, old: u64, size: u64) -> Result {
    check_size(size)?;
    if !(1..=SIGNALS).contains(&signal) || (new != 0 && UNBLOCKABLE & bit(signal) != 0) {
        return Err(EINVAL.into());
    }
    let before = c.p.signals.action(signal);
    let mut action = None;
    if new != 0 {
        let raw = c.read(new, 32)?;
        action = Some(Action {
            handler: u64_at(&raw, 0),
            flags: u64_at(&raw, 8),
            restorer: u64_at(&raw, 16),
            mask: u64_at(&raw, 24),
        });
    }
    let before = Writer::new()
        .u64(before.handler)
        .u64(before.flags)
        .u64(before.restorer)
        .u64(before.mask)
        .done();
    c.write_optional(old, &before)?;
    if let Some(action) = action {
        c.p.signals.set_action(signal, action);
    }
    Ok(0)
}

/// `rt_sigprocmask`.
pub fn rt_sigprocmask(c: &mut Caller, how: u32, new: u64, old: u64, size: u64) -> Result {
    check_size(size)?;
    let before = c.p.signals.mask;
    let mut mask = before;
    if new != 0 {
        let set = c.word(new)?;
        mask = match how {
            linux::SIG_BLOCK => before | set,
            linux::SIG_UNBLOCK => before & !set,
            linux::SIG_SETMASK => set,
            _ => return Err(EINVAL.into()),
        };
    }
    c.write_optional(old, &before.to_le_bytes())?;
    c.p.signals.mask = mask & !UNBLOCKABLE;
    Ok(0)
}

/// `rt_sigpending`.
pub fn rt_sigpending(c: &mut Caller, into: u64, size: u64) -> Result {
    check_size(size)?;
    let pending = c.p.signals.pending & c.p.signals.mask;
    c.write(into, &pending.to_le_bytes())?;
    Ok(0)
}

/// `rt_sigreturn`.
pub fn rt_sigreturn(c: &mut Caller) -> Result {
    let registers = c.entry;
    let crate::process::Process { signals, areas, .. } = &mut *c.p;
    match signals.leave(areas, c.h, &registers)? {
        Some((registers, fpu)) => {
            c.out = registers;
            c.fpu = fpu;
            Err(Stop::Replaced)
        }
        None => {
            c.h.log("a signal handler returned to a frame that is not there");
            Err(Stop::End(services::process::Status::Killed(
                sig::SEGV as u8,
            )))
        }
    }
}

/// Puts another mask in place while the call waits. It is replaced when the call is over.
pub fn suspend_mask(c: &mut Caller, address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let mask = c.word(address)? & !UNBLOCKABLE;
    // The call may come several times before it is over.
    if c.p.signals.saved_mask.is_none() {
        c.p.signals.saved_mask = Some(c.p.signals.mask);
    }
    c.p.signals.mask = mask;
    Ok(())
}

/// `rt_sigsuspend`.
pub fn rt_sigsuspend(c: &mut Caller, address: u64, size: u64) -> Result {
    check_size(size)?;
    if address == 0 {
        return Err(EFAULT.into());
    }
    suspend_mask(c, address)?;
    Err(Stop::Park(Wake::default()))
}

/// `sigaltstack`.
pub fn sigaltstack(c: &mut Caller, new: u64, old: u64) -> Result {
    use linux::{SS_DISABLE as DISABLE, SS_ONSTACK as ONSTACK};
    let stack = c.p.signals.stack;
    let on = stack.holds(c.entry.rsp);
    let mut set = None;
    if new != 0 {
        if on {
            return Err(EPERM.into());
        }
        let raw = c.read(new, 24)?;
        let (base, flags, size) = (u64_at(&raw, 0), u32_at(&raw, 8), u64_at(&raw, 16));
        set = Some(match flags & 0x7fff_ffff {
            DISABLE => Stack::default(),
            0 | ONSTACK if size >= 2048 => Stack { base, size },
            0 | ONSTACK => return Err(ENOMEM.into()),
            _ => return Err(EINVAL.into()),
        });
    }
    if old != 0 {
        let flags = if stack.size == 0 {
            DISABLE
        } else {
            u32::from(on)
        };
        c.check(old, 24, WRITE)?;
        let raw = Writer::new()
            .u64(stack.base)
            .u32(flags)
            .u32(0)
            .u64(stack.size)
            .done();
        c.write(old, &raw)?;
    }
    if let Some(set) = set {
        c.p.signals.stack = set;
    }
    Ok(0)
}

/// `kill`.
pub fn kill(c: &mut Caller, pid: i32, signal: u32) -> Result {
    if signal > SIGNALS {
        return Err(EINVAL.into());
    }
    let own = pid == c.p.pid as i32 || pid == 0 || pid == -(c.p.group as i32);
    if own {
        if signal != 0 {
            c.p.signals.post(signal);
        }
        return Ok(0);
    }
    if pid <= 0 {
        return Err(if pid == -1 { EPERM } else { ESRCH }.into());
    }
    c.h.kill(pid as u32, signal)?;
    Ok(0)
}

/// `tkill` and `tgkill`: a process has one thread.
pub fn tkill(c: &mut Caller, thread: i32, signal: u32) -> Result {
    if thread <= 0 {
        return Err(EINVAL.into());
    }
    kill(c, thread, signal)
}
