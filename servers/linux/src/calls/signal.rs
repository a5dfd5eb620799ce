//! Calls on signals.

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EAGAIN, EFAULT, EINVAL, ENOMEM, EPERM, ESRCH};
use crate::memory::WRITE;
use crate::signal::{
    bit, sig, Action, Origin, Stack, INFO, MAX_PENDING, REAL_TIME, SIGNALS, STOPS, UNBLOCKABLE,
};
use crate::system::{To, Which};
use crate::wire::{u32_at, u64_at, Writer};
use linux_raw_sys::general as linux;
use services::process::Pid;

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
    let before = c.p.actions.get(signal);
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
        c.p.actions.set(signal, action);
        if c.p.actions.ignores(signal) {
            c.p.task.signals.pending.take_all(bit(signal));
            c.process().pending.take_all(bit(signal));
        }
    }
    Ok(0)
}

/// `rt_sigprocmask`.
pub fn rt_sigprocmask(c: &mut Caller, how: u32, new: u64, old: u64, size: u64) -> Result {
    check_size(size)?;
    let before = c.p.task.signals.mask;
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
    c.p.task.signals.mask = mask & !UNBLOCKABLE;
    Ok(0)
}

/// `rt_sigpending`.
pub fn rt_sigpending(c: &mut Caller, into: u64, size: u64) -> Result {
    check_size(size)?;
    let of_process = c.process().pending.set();
    let signals = &c.p.task.signals;
    let pending = (signals.pending.set() | of_process) & signals.mask;
    c.write(into, &pending.to_le_bytes())?;
    Ok(0)
}

/// `rt_sigreturn`.
pub fn rt_sigreturn(c: &mut Caller) -> Result {
    let registers = c.entry;
    let crate::process::Current { task, memory, .. } = &mut c.p;
    match task.signals.leave(&memory.areas, c.h, registers)? {
        Some((registers, fpu)) => {
            *c.out = Some(registers);
            *c.fpu = fpu;
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

/// Replaces the signal mask while the call waits, unless `address` is null. The old mask is restored at the end of the
/// call.
pub fn suspend_mask(c: &mut Caller, address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let mask = c.word(address)? & !UNBLOCKABLE;
    // The call may be made several times before it ends; only the first time the mask is the task's own.
    if c.p.task.signals.saved_mask.is_none() {
        c.p.task.signals.saved_mask = Some(c.p.task.signals.mask);
    }
    c.p.task.signals.mask = mask;
    Ok(())
}

/// As [`suspend_mask`], for calls that also pass the size of the mask.
pub fn wait_mask(c: &mut Caller, address: u64, size: u64) -> Result<()> {
    if address != 0 {
        check_size(size)?;
    }
    suspend_mask(c, address)
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

/// `rt_sigtimedwait`: takes a pending signal of the set, of the task or its process; waits if there is none.
pub fn rt_sigtimedwait(c: &mut Caller, set: u64, info: u64, timeout: u64, size: u64) -> Result {
    check_size(size)?;
    let set = c.word(set)? & !UNBLOCKABLE;
    let time = match timeout {
        0 => None,
        at => Some(super::time::read_timespec(c, at)?),
    };
    let own = c.p.task.signals.pending.set();
    let found = (own | c.process().pending.set()) & set;
    if found != 0 {
        let signal = found.trailing_zeros() + 1;
        if info != 0 {
            c.check(info, 128, WRITE)?;
        }
        let of_process = &mut c.s.process(c.p.task.pid).pending;
        let origin = c.p.task.signals.take(of_process, signal);
        c.write_optional(info, &origin.info(signal))?;
        return Ok(u64::from(signal));
    }
    let deadline = match time {
        None => None,
        Some(time) => {
            let deadline = c.deadline_after(time);
            if c.now() >= deadline {
                return Err(EAGAIN.into());
            }
            Some(deadline)
        }
    };
    c.p.task.awaits = set;
    Err(Stop::Park(Wake::at(deadline)))
}

/// `sigaltstack`.
pub fn sigaltstack(c: &mut Caller, new: u64, old: u64) -> Result {
    use linux::{SS_DISABLE as DISABLE, SS_ONSTACK as ONSTACK};
    let stack = c.p.task.signals.stack;
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
        c.p.task.signals.stack = set;
    }
    Ok(0)
}

/// The caller as the sender of a signal, for `siginfo`.
fn sender(c: &mut Caller, code: i32) -> Origin {
    let process = c.process();
    Origin {
        code,
        pid: process.number,
        uid: process.ids.uid[0],
        ..Origin::default()
    }
}

/// Sends `SIGPIPE` to the calling thread, which has written to something without a reader.
pub fn broken_pipe(c: &mut Caller) {
    post_to_itself(c, sig::PIPE);
}

/// Sends the calling thread a signal that its own call has caused, with its process as the sender.
pub fn post_to_itself(c: &mut Caller, signal: u32) {
    let origin = sender(c, 0);
    c.p.task.signals.post(&c.p.actions, signal, origin);
}

/// `kill`: sends a signal to a process, to a process group, or to all processes of the caller's tree but its own.
pub fn kill(c: &mut Caller, pid: i32, signal: u32) -> Result {
    if signal > SIGNALS {
        return Err(EINVAL.into());
    }
    let which = match pid {
        0 => Which::Group(c.process().group),
        -1 => Which::All,
        1.. => Which::Number(pid as u32),
        _ => Which::Group(pid.unsigned_abs()),
    };
    let own = c.p.task.pid;
    let mut targets = c.s.those(own, which);
    if which == Which::All {
        targets.retain(|target| *target != own);
    }
    queue_room(c, signal, targets.len())?;
    let origin = sender(c, 0);
    let mut result = Err(ESRCH);
    for target in targets {
        match c.s.may_signal(own, target) {
            Ok(()) => {
                result = Ok(0);
                send(c, target, signal, origin);
            }
            Err(error) => result = result.or(Err(error)),
        }
    }
    Ok(result?)
}

/// Whether the signal stops or continues processes, which affects all of their threads.
const fn is_job_control(signal: u32) -> bool {
    signal != 0 && (STOPS | bit(sig::CONT)) & bit(signal) != 0
}

/// Sends a signal to a process. If that is the caller's own, the signal is pending before the call returns.
fn send(c: &mut Caller, target: Pid, signal: u32, origin: Origin) {
    let is_own = target == c.p.task.pid && c.process().tasks.len() == 1;
    if signal != 0 && is_own && !is_job_control(signal) {
        if !c.p.task.signals.drops(&c.p.actions, signal) {
            c.process().pending.add(signal, origin);
        }
    } else {
        c.s.send(To::Process(target), signal, origin);
    }
}

/// `tkill`; `tgkill` if `process` is given.
pub fn tkill(c: &mut Caller, process: Option<i32>, thread: i32, signal: u32) -> Result {
    let origin = sender(c, linux::SI_TKILL);
    send_to_thread(c, (process, thread), signal, origin)
}

/// Sends a signal to the thread with this number, which must be of the process with that number if one is given.
fn send_to_thread(
    c: &mut Caller,
    (process, thread): (Option<i32>, i32),
    signal: u32,
    origin: Origin,
) -> Result {
    if thread <= 0 || process.is_some_and(|number| number <= 0) || signal > SIGNALS {
        return Err(EINVAL.into());
    }
    queue_room(c, signal, 1)?;
    let own = c.p.task.pid;
    let (target, pid) = c.s.thread_by_number(own, thread as u32).ok_or(ESRCH)?;
    let number = c.s.find(pid).map(|p| p.number as i32);
    if process.is_some_and(|process| number != Some(process)) {
        return Err(ESRCH.into());
    }
    c.s.may_signal(own, pid)?;
    if target == c.p.task.tid && !is_job_control(signal) {
        c.p.task.signals.post(&c.p.actions, signal, origin);
    } else {
        c.s.send(To::Task(target), signal, origin);
    }
    Ok(0)
}

/// Asks for the memory that a signal to `targets` processes can take until all of them have it.
pub(super) fn queue_room(c: &mut Caller, signal: u32, targets: usize) -> Result<()> {
    // A standard signal is pending once at most.
    let most = match signal {
        0 => return Ok(()),
        REAL_TIME.. => MAX_PENDING,
        _ => REAL_TIME as usize,
    };
    // Signals are in a list until they are delivered. While the list grows, the old and the new one exist.
    let sent = size_of::<(To, u32, Origin)>();
    let each = 2 * (most * size_of::<(u32, Origin)>() + sent);
    c.h.room((targets.max(1) * each) as u64)?;
    Ok(())
}

/// Reads the `siginfo` of a signal that the caller sends to the process with this number. Only for a signal to its own
/// process may it name another sender. Errors: `EPERM`.
fn queued(c: &mut Caller, process: i32, address: u64) -> Result<Origin> {
    let mut info = [0; INFO];
    info.copy_from_slice(&c.read(address, INFO)?);
    let origin = Origin::of(&info);
    let is_others = i64::from(c.p.task.number) != i64::from(process);
    if is_others && (origin.code >= 0 || origin.code == linux::SI_TKILL) {
        return Err(EPERM.into());
    }
    Ok(origin)
}

/// `rt_sigqueueinfo`: sends a process a signal with a `siginfo`.
pub fn rt_sigqueueinfo(c: &mut Caller, process: i32, signal: u32, info: u64) -> Result {
    let origin = queued(c, process, info)?;
    if signal > SIGNALS {
        return Err(EINVAL.into());
    }
    queue_room(c, signal, 1)?;
    let own = c.p.task.pid;
    let number = u32::try_from(process)
        .ok()
        .filter(|number| *number > 0)
        .ok_or(ESRCH)?;
    let target =
        c.s.those(own, Which::Number(number))
            .first()
            .copied()
            .ok_or(ESRCH)?;
    c.s.may_signal(own, target)?;
    if c.s.process(target).pending.is_full(signal) {
        return Err(EAGAIN.into());
    }
    send(c, target, signal, origin);
    Ok(0)
}

/// `rt_tgsigqueueinfo`: the same for a thread.
pub fn rt_tgsigqueueinfo(
    c: &mut Caller,
    (process, thread): (i32, i32),
    signal: u32,
    info: u64,
) -> Result {
    let origin = queued(c, process, info)?;
    send_to_thread(c, (Some(process), thread), signal, origin)
}
