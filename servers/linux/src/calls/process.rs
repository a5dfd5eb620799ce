//! Starting processes and waiting for them; process groups and sessions.

use abi::state::{FpuState, FPU_BYTES};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use services::process::Pid;

use crate::emulate::{behind, Caller, Result, Stop, Wake};
use crate::errno::{EAGAIN, EFAULT, EINVAL, ESRCH};
use crate::host::Start;
use crate::memory::WRITE;
use crate::proc::Seen;
use crate::process::{shared, Context, Files, Memory, Shares, Shown, Task};
use crate::signal::{sig, Actions, Origin, Stack, INFO, SIGNALS};
use crate::system::{code_and_status, Key, Tid, Which};
use crate::trace::{event, option, Stop as TraceStop, TraceNews, TRAPPED};
use crate::wire::u64_at;
use crate::work::{Own, Spent};

/// Flags of `clone` that are supported. Namespaces are not.
const KNOWN: u64 = (linux::CLONE_VM
    | linux::CLONE_FS
    | linux::CLONE_FILES
    | linux::CLONE_SIGHAND
    | linux::CLONE_VFORK
    | linux::CLONE_THREAD
    | linux::CLONE_SYSVSEM
    | linux::CLONE_SETTLS
    | linux::CLONE_PARENT_SETTID
    | linux::CLONE_CHILD_CLEARTID
    | linux::CLONE_CHILD_SETTID
    | linux::CLONE_DETACHED
    | linux::CLONE_UNTRACED
    | linux::CLONE_IO) as u64;

/// The arguments of `clone` and the like.
#[derive(Default)]
struct Request {
    flags: u64,
    exit_signal: u32,
    /// The child's stack pointer; 0 for the parent's.
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
}

impl Request {
    const fn has(&self, flag: u32) -> bool {
        self.flags & flag as u64 != 0
    }
}

/// `fork`.
pub fn fork(c: &mut Caller) -> Result {
    let exit_signal = sig::CHLD;
    start(
        c,
        &Request {
            exit_signal,
            ..Request::default()
        },
    )
}

/// `vfork`: the child runs in the parent's memory until it calls `execve` or ends, and the parent waits for that.
pub fn vfork(c: &mut Caller) -> Result {
    start(
        c,
        &Request {
            flags: u64::from(linux::CLONE_VM | linux::CLONE_VFORK),
            exit_signal: sig::CHLD,
            ..Request::default()
        },
    )
}

/// `clone`.
pub fn clone(
    c: &mut Caller,
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
) -> Result {
    start(
        c,
        &Request {
            flags: flags & 0xffff_ff00,
            exit_signal: flags as u32 & 0xff,
            stack,
            parent_tid,
            child_tid,
            tls,
        },
    )
}

/// `clone3`.
pub fn clone3(c: &mut Caller, at: u64, size: u64) -> Result {
    const LEAST: u64 = 64;
    if !(LEAST..=4096).contains(&size) {
        return Err(EINVAL.into());
    }
    let raw = c.read(at, size as usize)?;
    let word = |n: usize| u64_at(&raw, 8 * n);
    let [flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls] =
        core::array::from_fn(word);
    let _ = pidfd;
    // Fields behind the known ones must be zero: they would ask for something that is not supported.
    if raw[LEAST as usize..].iter().any(|byte| *byte != 0)
        || flags & 0xff != 0
        || (stack == 0) != (stack_size == 0)
    {
        return Err(EINVAL.into());
    }
    start(
        c,
        &Request {
            flags,
            exit_signal: u32::try_from(exit_signal).map_err(|_| EINVAL)?,
            stack: stack.wrapping_add(stack_size),
            parent_tid,
            child_tid,
            tls,
        },
    )
}

/// Starts a child; returns its number.
fn start(c: &mut Caller, request: &Request) -> Result {
    // The call has started a child with `vfork` already, and waits until that has left the memory. Its progress is the
    // number of the child.
    if let Some(number) = c.p.task.wait.map(|w| w.progress).filter(|p| *p != 0) {
        let own = c.p.task.pid;
        let child = c.s.by_number(own, number as u32);
        let borrows = |child: &Pid| {
            let child = c.s.find(*child);
            child.is_some_and(|child| child.borrows && child.parent == Some(own))
        };
        if let Some(child) = child.filter(borrows) {
            return wait_until_left(child);
        }
        return Ok(number);
    }
    if request.flags & !KNOWN != 0
        || request.exit_signal > SIGNALS
        || request.has(linux::CLONE_SIGHAND) && !request.has(linux::CLONE_VM)
        || request.has(linux::CLONE_THREAD) && !request.has(linux::CLONE_SIGHAND)
        || request.stack >= abi::USER_END
        || request.has(linux::CLONE_SETTLS) && request.tls >= abi::USER_END
    {
        return Err(EINVAL.into());
    }
    if request.has(linux::CLONE_PARENT_SETTID) {
        c.check(request.parent_tid, 4, WRITE)?;
    }
    let own = c.p.task.pid;
    if request.has(linux::CLONE_THREAD) {
        let tid = c.s.new_thread(own)?;
        if let Err(stop) = start_as(c, request, (own, tid), tid) {
            c.s.forget_thread(own, tid);
            return Err(stop);
        }
        trace_child(c, request, tid, tid);
        return Ok(u64::from(tid));
    }
    let pid = c.s.fork(own, request.exit_signal)?;
    let now = c.now();
    let child = c.s.process(pid);
    child.started = now;
    let number = child.number;
    let started = start_as(c, request, (pid, pid), number);
    if let Err(stop) = started {
        c.s.forget(pid);
        return Err(stop);
    }
    if request.has(linux::CLONE_VFORK) {
        c.s.process(pid).borrows = true;
        c.wait().progress = u64::from(number);
        trace_child(c, request, pid, number);
        return wait_until_left(pid);
    }
    trace_child(c, request, pid, number);
    Ok(u64::from(number))
}

/// If the caller's tracer has asked for events of this kind: reports the child to it, and traces the child, too.
fn trace_child(c: &mut Caller, request: &Request, child: Tid, number: u32) {
    let tid = c.p.task.tid;
    let Some(trace) = c.s.trace_mut(tid) else {
        return;
    };
    let vfork = request.has(linux::CLONE_VFORK);
    let event = match request.exit_signal {
        _ if vfork => event::VFORK,
        sig::CHLD => event::FORK,
        _ => event::CLONE,
    };
    if vfork && trace.has(option::of(event::VFORK_DONE)) {
        trace.events.push(event::VFORK_DONE);
    }
    if request.has(linux::CLONE_UNTRACED) || !trace.has(option::of(event)) {
        return;
    }
    trace.message = u64::from(number);
    let (tracer, options) = (trace.tracer, trace.options);
    if !vfork {
        trace.events.push(event);
    }
    c.s.begin_trace(tracer, child, number, options);
    c.s.stop_traced(child, [TraceStop::Signal(sig::STOP, Origin::default())]);
    if vfork {
        // The caller stops for its tracer first, and waits for its child when it is resumed.
        c.s.stop_traced(tid, [TraceStop::Event(event)]);
    }
}

/// Parks the parent until its child has left the memory. Signals are delivered afterwards.
fn wait_until_left(child: Pid) -> Result {
    Err(Stop::Park(Wake {
        firm: true,
        ..Wake::on(Key::Left(child))
    }))
}

/// Starts a task with the thread number `thread`, as programs see it.
fn start_as(c: &mut Caller, request: &Request, (pid, tid): (Pid, Tid), thread: u32) -> Result<()> {
    let own = &c.p.task.shares;
    let shares = Shares {
        memory: if request.has(linux::CLONE_VM) {
            Rc::clone(&own.memory)
        } else {
            shared(Memory::clone(&c.p.memory))
        },
        files: if request.has(linux::CLONE_FILES) {
            Rc::clone(&own.files)
        } else {
            shared(Files::clone(&c.p.files))
        },
        context: if request.has(linux::CLONE_FS) {
            Rc::clone(&own.context)
        } else {
            shared(Context::clone(&c.p.context))
        },
        actions: if request.has(linux::CLONE_SIGHAND) {
            Rc::clone(&own.actions)
        } else {
            shared(Actions::clone(&c.p.actions))
        },
    };
    let process = c.s.process(pid);
    let number = process.number;
    if tid == pid {
        process.actions = Rc::clone(&shares.actions);
        process.seen = Seen::of(&shares);
    }
    let mut signals = c.p.task.signals.for_child();
    if request.has(linux::CLONE_VM) && !request.has(linux::CLONE_VFORK) {
        signals.stack = Stack::default();
    }
    let mut registers = behind(c.entry);
    registers.rax = 0;
    if request.stack != 0 {
        registers.rsp = request.stack;
    }
    if request.has(linux::CLONE_SETTLS) {
        registers.fs_base = request.tls;
    }
    let tid_at = request.has(linux::CLONE_CHILD_SETTID)
        && c.p.memory.areas.allows(request.child_tid, 4, WRITE);
    let mut fpu = Box::new(FpuState([0; FPU_BYTES]));
    c.h.fpu(&mut fpu.0);
    let shown = Shown::new(&c.p.task.shown.comm(), Spent::default());
    c.s.process(pid).shown.push((tid, Rc::clone(&shown)));
    let child = Start {
        task: Task {
            tid,
            pid,
            number,
            thread,
            shown,
            signals,
            wait: None,
            loading: None,
            awaits: 0,
            robust: 0,
            clear_at: if request.has(linux::CLONE_CHILD_CLEARTID) {
                request.child_tid
            } else {
                0
            },
            own: Own::default(),
            clock_offset: c.p.task.clock_offset,
            shares,
        },
        registers,
        fpu,
        in_memory: request.has(linux::CLONE_VM),
        tid_at: tid_at.then_some(request.child_tid),
    };
    // The parent's memory gets the number before it is copied, so the child sees it, too.
    if request.has(linux::CLONE_PARENT_SETTID) {
        c.write(request.parent_tid, &thread.to_le_bytes())?;
    }
    c.h.start(child).map_err(|_| EAGAIN)?;
    Ok(())
}

/// The process with this number; 0 stands for the caller's.
pub fn target(c: &Caller, number: u32) -> Result<Pid> {
    match number {
        0 => Ok(c.p.task.pid),
        number => Ok(c.s.by_number(c.p.task.pid, number).ok_or(ESRCH)?),
    }
}

/// `getpgid`.
pub fn getpgid(c: &mut Caller, number: u32) -> Result {
    let target = target(c, number)?;
    Ok(u64::from(c.s.process(target).group))
}

/// `getsid`.
pub fn getsid(c: &mut Caller, number: u32) -> Result {
    let target = target(c, number)?;
    Ok(u64::from(c.s.process(target).session))
}

/// `setpgid`.
pub fn setpgid(c: &mut Caller, number: u32, group: u32) -> Result {
    if group as i32 <= -1 {
        return Err(EINVAL.into());
    }
    let target = target(c, number)?;
    let group = match group {
        0 => c.s.process(target).number,
        group => group,
    };
    c.s.set_group(c.p.task.pid, target, group)?;
    Ok(0)
}

/// A change of a child, or of a traced task, that `wait4` or `waitid` reports.
struct Told {
    child: Pid,
    info: Origin,
    /// The child has ended, and is reaped when that has been reported.
    ended: bool,
    /// It is reported to the caller as the tracer of the task.
    traced: Option<TraceNews>,
}

/// The next change that `wait4` or `waitid` reports: of a traced task, a child that has ended (if `exits`), or a child
/// that has stopped or continued (one of `codes`). `None` if there is none and the call does not `wait`.
fn told(
    c: &mut Caller,
    which: Which,
    exits: bool,
    codes: &[u32],
    wait: bool,
) -> Result<Option<Told>> {
    let own = c.p.task.pid;
    let (news, any) = c.s.trace_news(own, which);
    if let Some(news) = news {
        let info = match news {
            TraceNews::Stopped(_, pid, status) => Origin {
                code: TRAPPED as i32,
                pid,
                status,
                ..Origin::default()
            },
            TraceNews::Ended(_, pid, status) => {
                let (code, status) = code_and_status(status);
                Origin {
                    code,
                    pid,
                    status,
                    ..Origin::default()
                }
            }
        };
        return Ok(Some(Told {
            child: own,
            info,
            ended: false,
            traced: Some(news),
        }));
    }
    let ended = match c.s.ended_child(own, which) {
        Err(_) if any => None,
        ended => ended?,
    };
    if let Some(child) = ended.filter(|_| exits) {
        let info = result_of(c, child);
        return Ok(Some(Told {
            child,
            info,
            ended: true,
            traced: None,
        }));
    }
    if let Some((child, (code, status))) = c.s.child_with_news(own, which, codes) {
        let info = Origin {
            code: code as i32,
            status,
            ..result_of(c, child)
        };
        return Ok(Some(Told {
            child,
            info,
            ended: false,
            traced: None,
        }));
    }
    match wait {
        true => Err(Stop::Park(Wake::on(Key::Children(own)))),
        false => Ok(None),
    }
}

/// The change has been reported: it is not reported again, and a child that has ended is reaped.
fn tell(c: &mut Caller, told: &Told) {
    if let Some(news) = &told.traced {
        return c.s.trace_told(news);
    }
    match told.ended {
        true => c.s.reap(told.child),
        false => c.s.process(told.child).news = None,
    }
}

/// The `si_code`s of changes of living children that the options ask for.
fn codes(options: u32, stopped: u32, continued: u32) -> Vec<u32> {
    let asked = [
        (stopped, linux::CLD_STOPPED),
        (continued, linux::CLD_CONTINUED),
    ];
    let asked = asked
        .into_iter()
        .filter(|(option, _)| options & option != 0);
    asked.map(|(_, code)| code).collect()
}

/// `siginfo` of a child that has ended.
fn result_of(c: &mut Caller, child: Pid) -> Origin {
    let process = c.s.process(child);
    let (code, status) = process.status.map_or((0, 0), code_and_status);
    Origin {
        code,
        pid: process.number,
        uid: process.ids.uid[0],
        status,
        ..Origin::default()
    }
}

/// Writes the `struct rusage` of a child that has ended, unless `at` is null.
fn tell_usage(c: &mut Caller, at: u64, told: &Told) -> Result<()> {
    if at == 0 {
        return Ok(());
    }
    let spent = match told.ended {
        true => c.s.spent_with_children(told.child),
        false => 0,
    };
    c.write(at, &super::time::usage(spent, 0))
}

/// `wait4`.
pub fn wait4(c: &mut Caller, pid: i32, status_at: u64, options: u32, usage_at: u64) -> Result {
    const OPTIONS: u32 = linux::WNOHANG
        | linux::WUNTRACED
        | linux::WCONTINUED
        | linux::__WNOTHREAD
        | linux::__WALL
        | linux::__WCLONE;
    if options & !OPTIONS != 0 {
        return Err(EINVAL.into());
    }
    let which = match pid {
        i32::MIN => return Err(ESRCH.into()),
        -1 => Which::All,
        0 => Which::Group(c.process().group),
        1.. => Which::Number(pid as u32),
        _ => Which::Group(pid.unsigned_abs()),
    };
    let codes = codes(options, linux::WUNTRACED, linux::WCONTINUED);
    let wait = options & linux::WNOHANG == 0;
    let Some(told) = told(c, which, true, &codes, wait)? else {
        return Ok(0);
    };
    let result = &told.info;
    let word = match result.code as u32 {
        linux::CLD_EXITED => result.status << 8,
        linux::CLD_STOPPED | TRAPPED => result.status << 8 | 0x7f,
        linux::CLD_CONTINUED => 0xffff,
        _ => result.status,
    };
    c.write_optional(status_at, &word.to_le_bytes())?;
    tell_usage(c, usage_at, &told)?;
    tell(c, &told);
    Ok(u64::from(told.info.pid))
}

/// `waitid`.
pub fn waitid(
    c: &mut Caller,
    kind: u32,
    id: u32,
    info_at: u64,
    options: u32,
    usage_at: u64,
) -> Result {
    const EVENTS: u32 = linux::WEXITED | linux::WSTOPPED | linux::WCONTINUED;
    const OPTIONS: u32 = EVENTS
        | linux::WNOHANG
        | linux::WNOWAIT
        | linux::__WNOTHREAD
        | linux::__WALL
        | linux::__WCLONE;
    if options & !OPTIONS != 0 || options & EVENTS == 0 {
        return Err(EINVAL.into());
    }
    let which = match kind {
        linux::P_ALL => Which::All,
        linux::P_PID if id as i32 > 0 => Which::Number(id),
        linux::P_PGID if id as i32 > 0 => Which::Group(id),
        linux::P_PGID if id == 0 => Which::Group(c.process().group),
        _ => return Err(EINVAL.into()),
    };
    let codes = codes(options, linux::WSTOPPED, linux::WCONTINUED);
    let (exits, wait) = (options & linux::WEXITED != 0, options & linux::WNOHANG == 0);
    let told = told(c, which, exits, &codes, wait)?;
    let result = told.as_ref().map(|told| told.info);
    let info = result.map_or([0; INFO], |result| result.info(sig::CHLD));
    if info_at != 0 {
        // As on Linux, only the fields that are in use are written.
        c.write(info_at, &info[..28])
            .map_err(|_| Stop::Errno(EFAULT))?;
    }
    if let Some(told) = &told {
        tell_usage(c, usage_at, told)?;
    }
    if let Some(told) = told.filter(|_| options & linux::WNOWAIT == 0) {
        tell(c, &told);
    }
    Ok(0)
}
