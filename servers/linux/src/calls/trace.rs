//! `ptrace`: the requests of a tracer. Their numbers are those of `linux/ptrace.h` and `asm/ptrace-abi.h`.

use abi::Registers;
use alloc::vec::Vec;
use services::process::Pid;

use crate::emulate::{key_of, Caller, Result};
use crate::errno::{Errno, EFAULT, EINVAL, EIO, ENODEV, EPERM, ESRCH};
use crate::host::Fpu;
use crate::memory::{Areas, WRITE};
use crate::signal::{sig, Origin, SIGNALS};
use crate::system::{Tid, To};
use crate::trace::{event, option, Mode, Stop, Trace, STEP_FLAG};
use crate::wire::{u32_at, u64_at, Writer};

const TRACEME: u64 = 0;
const PEEKTEXT: u64 = 1;
const PEEKDATA: u64 = 2;
const PEEKUSER: u64 = 3;
const POKETEXT: u64 = 4;
const POKEDATA: u64 = 5;
const POKEUSER: u64 = 6;
const CONT: u64 = 7;
const KILL: u64 = 8;
const SINGLESTEP: u64 = 9;
const GETREGS: u64 = 12;
const SETREGS: u64 = 13;
const GETFPREGS: u64 = 14;
const SETFPREGS: u64 = 15;
const ATTACH: u64 = 16;
const DETACH: u64 = 17;
const SYSCALL: u64 = 24;
const SETOPTIONS: u64 = 0x4200;
const GETEVENTMSG: u64 = 0x4201;
const GETSIGINFO: u64 = 0x4202;
const GETREGSET: u64 = 0x4204;
const SETREGSET: u64 = 0x4205;
const GET_SYSCALL_INFO: u64 = 0x420e;

/// Register sets of `PTRACE_GETREGSET`.
const NT_PRSTATUS: u64 = 1;
const NT_PRFPREG: u64 = 2;

/// Words of `struct user_regs_struct`.
const WORDS: usize = 27;
/// Bytes of `struct user_regs_struct`.
const BYTES: usize = 8 * WORDS;
/// Bytes of `struct user_fpregs_struct`.
const FLOATS: usize = 512;
/// The word of `struct user_regs_struct` with the call number.
const ORIG_RAX: usize = 15;
/// Bytes of `struct user`.
const USER: u64 = 912;
/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;
/// The bits of `rflags` that a tracer can set.
const FLAGS: u64 = 0x0004_0dd5;

/// `ptrace`.
pub fn ptrace(c: &mut Caller, request: u64, number: i32, address: u64, data: u64) -> Result {
    match request {
        TRACEME => return traceme(c),
        ATTACH => return attach(c, number),
        _ => {}
    }
    let own = c.p.task.pid;
    let (tid, _) = c.s.thread_by_number(own, number as u32).ok_or(ESRCH)?;
    let trace = c.s.trace(tid).filter(|t| t.tracer == own && !t.leaves);
    let trace = trace.ok_or(ESRCH)?;
    if request == KILL {
        c.s.send(To::Task(tid), sig::KILL, Origin::default());
        return Ok(0);
    }
    let stop = trace.stop.ok_or(ESRCH)?;
    match request {
        PEEKTEXT | PEEKDATA => {
            let mut word = [0; 8];
            check(c, tid, address, false)?;
            c.h.read_peer(tid, address, &mut word)?;
            c.write(data, &word)?;
            Ok(0)
        }
        POKETEXT | POKEDATA => {
            check(c, tid, address, true)?;
            c.h.write_peer(tid, address, &data.to_le_bytes())?;
            Ok(0)
        }
        PEEKUSER => {
            let word = match place(address)? {
                Some(word) => words(c, tid)?[word],
                None => 0,
            };
            c.write(data, &word.to_le_bytes())?;
            Ok(0)
        }
        POKEUSER => {
            // Debug registers do not exist here; they read as zero, and only zero can be written.
            let Some(word) = place(address)? else {
                return if data == 0 { Ok(0) } else { Err(EIO.into()) };
            };
            let mut all = words(c, tid)?;
            all[word] = data;
            set_words(c, tid, &all)
        }
        CONT => resume(c, tid, Mode::Free, data),
        SYSCALL => resume(c, tid, Mode::Calls, data),
        SINGLESTEP => resume(c, tid, Mode::Step, data),
        DETACH => {
            let signal = signal(data)?;
            c.s.leave_trace(tid, signal);
            Ok(0)
        }
        GETREGS => {
            let bytes = bytes(&words(c, tid)?);
            c.write(data, &bytes)?;
            Ok(0)
        }
        SETREGS => {
            let raw = c.read(data, BYTES)?;
            set_words(c, tid, &from_bytes(&raw))
        }
        GETFPREGS => {
            let (_, fpu) = c.h.peer_state(tid)?;
            c.write(data, &fpu.0)?;
            Ok(0)
        }
        SETFPREGS => {
            let raw = c.read(data, FLOATS)?;
            set_floats(c, tid, &raw)
        }
        GETREGSET | SETREGSET => register_set(c, tid, request == SETREGSET, address, data),
        SETOPTIONS => {
            let options = u32::try_from(data).map_err(|_| EINVAL)?;
            if options & !option::ALL != 0 {
                return Err(EINVAL.into());
            }
            change(c, tid)?.options = options;
            Ok(0)
        }
        GETEVENTMSG => {
            let message = change(c, tid)?.message;
            c.write(data, &message.to_le_bytes())?;
            Ok(0)
        }
        GETSIGINFO => {
            let code = change(c, tid)?.code();
            let number = u64::from(c.p.task.number);
            let info = match stop {
                Stop::Signal(signal, origin) => origin.info(signal),
                Stop::Group(_) => return Err(EINVAL.into()),
                Stop::Enter | Stop::Exit | Stop::Event(_) => {
                    let origin = Origin {
                        code: code as i32,
                        pid: number as u32,
                        ..Origin::default()
                    };
                    origin.info(sig::TRAP)
                }
            };
            c.write(data, &info)?;
            Ok(0)
        }
        GET_SYSCALL_INFO => syscall_info(c, tid, stop, address, data),
        _ => Err(EIO.into()),
    }
}

/// `PTRACE_TRACEME`: the caller's parent becomes its tracer.
fn traceme(c: &mut Caller) -> Result {
    let (own, tid, number) = (c.p.task.pid, c.p.task.tid, c.p.task.thread);
    let parent = c.s.find(own).and_then(|process| process.parent);
    match parent {
        Some(parent) if !c.s.is_traced(tid) => {
            c.s.begin_trace(parent, tid, number, 0);
            Ok(0)
        }
        _ => Err(EPERM.into()),
    }
}

/// `PTRACE_ATTACH`: the caller traces another task of its tree.
fn attach(c: &mut Caller, number: i32) -> Result {
    let own = c.p.task.pid;
    let (tid, pid) = c.s.thread_by_number(own, number as u32).ok_or(ESRCH)?;
    if pid == own || c.s.is_traced(tid) {
        return Err(EPERM.into());
    }
    c.s.may_trace(own, pid)?;
    c.s.begin_trace(own, tid, number as u32, 0);
    c.s.send(To::Task(tid), sig::STOP, Origin::default());
    Ok(0)
}

fn change<'a>(c: &'a mut Caller, tid: Tid) -> Result<&'a mut Trace> {
    Ok(c.s.trace_mut(tid).ok_or(ESRCH)?)
}

fn signal(data: u64) -> core::result::Result<u32, Errno> {
    let signal = u32::try_from(data).map_err(|_| EIO)?;
    (signal <= SIGNALS).then_some(signal).ok_or(EIO)
}

fn resume(c: &mut Caller, tid: Tid, mode: Mode, data: u64) -> Result {
    let signal = signal(data)?;
    c.s.resume_traced(tid, mode, signal);
    Ok(0)
}

/// Fails with `EIO` unless a tracer may read, or `write`, the eight bytes at an address of the task
/// ([`Areas::reach_by_force`]).
fn check(c: &Caller, tid: Tid, address: u64, write: bool) -> Result<()> {
    let pid: Pid = c.s.task_process(tid);
    let allows = |areas: &Areas| areas.reach_by_force(address, 8, write) == 8;
    let process = c.s.find(pid).ok_or(ESRCH)?;
    match process.seen.areas(&c.p.memory, allows) {
        Some(true) => Ok(()),
        _ => Err(EIO.into()),
    }
}

/// The index of a register at an offset in `struct user`; `None` for the parts that read as zero.
fn place(address: u64) -> core::result::Result<Option<usize>, Errno> {
    if !address.is_multiple_of(8) || address >= USER {
        return Err(EIO);
    }
    let word = (address / 8) as usize;
    Ok((word < WORDS).then_some(word))
}

/// Whether the task is stopped before its `syscall` instruction, which has yet to be executed.
fn is_before_call(trace: &Trace) -> bool {
    match trace.stop {
        Some(Stop::Enter) => true,
        Some(Stop::Event(event)) => matches!(event, event::EXIT | event::VFORK),
        _ => false,
    }
}

/// The registers of a task as `struct user_regs_struct`.
fn words(c: &mut Caller, tid: Tid) -> Result<[u64; WORDS]> {
    let (mut r, _) = c.h.peer_state(tid)?;
    let trace = c.s.trace(tid).ok_or(ESRCH)?;
    let mut call = trace.call as u64;
    if is_before_call(trace) {
        call = r.rax;
        r.rax = crate::errno::ENOSYS.rax();
        r.rip = r.rip.wrapping_add(2);
        (r.rcx, r.r11) = (r.rip, r.rflags);
    }
    r.rflags &= !STEP_FLAG;
    Ok(r.linux_words(call))
}

fn set_words(c: &mut Caller, tid: Tid, w: &[u64; WORDS]) -> Result {
    let (mut r, fpu) = c.h.peer_state(tid)?;
    [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx,
        r.rsi, r.rdi,
    ] = core::array::from_fn(|n| w[n]);
    (r.rip, r.rsp, r.fs_base, r.gs_base) = (w[16], w[19], w[21], w[22]);
    r.rflags = r.rflags & !FLAGS | w[18] & FLAGS;
    if r.rip >= abi::USER_END || r.fs_base >= abi::USER_END || r.gs_base >= abi::USER_END {
        return Err(EIO.into());
    }
    let trace = c.s.trace(tid).ok_or(ESRCH)?;
    let before = is_before_call(trace);
    if before {
        r.rax = w[ORIG_RAX];
        r.rip = r.rip.wrapping_sub(2);
        if r.rip >= abi::USER_END {
            return Err(EIO.into());
        }
    }
    c.h.set_peer_state(tid, &r, &fpu)?;
    let trace = change(c, tid)?;
    trace.call = w[ORIG_RAX] as i64;
    if before {
        trace.entered = Some(key_of(&r));
    }
    Ok(0)
}

fn bytes(words: &[u64; WORDS]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn from_bytes(raw: &[u8]) -> [u64; WORDS] {
    core::array::from_fn(|n| u64_at(raw, 8 * n))
}

fn set_floats(c: &mut Caller, tid: Tid, raw: &[u8]) -> Result {
    let (registers, mut fpu): (Registers, Fpu) = c.h.peer_state(tid)?;
    fpu.0[..raw.len()].copy_from_slice(raw);
    // Loading reserved bits of `MXCSR` would fault. The kernel checks for bits that only this processor does not have.
    let mxcsr = u32_at(&fpu.0, 24);
    if mxcsr & !0xffff != 0 {
        return Err(EINVAL.into());
    }
    c.h.set_peer_state(tid, &registers, &fpu)?;
    Ok(0)
}

/// `PTRACE_GETREGSET` and `PTRACE_SETREGSET`.
fn register_set(c: &mut Caller, tid: Tid, set: bool, which: u64, vector: u64) -> Result {
    let raw = c.read(vector, 16)?;
    let (at, room) = (u64_at(&raw, 0), u64_at(&raw, 8));
    let whole = match which {
        NT_PRSTATUS => bytes(&words(c, tid)?),
        NT_PRFPREG => c.h.peer_state(tid)?.1 .0.to_vec(),
        0x202 => return Err(ENODEV.into()),
        _ => return Err(EINVAL.into()),
    };
    if !room.is_multiple_of(8) {
        return Err(EINVAL.into());
    }
    let length = room.min(whole.len() as u64) as usize;
    if set {
        let mut new = whole;
        let given = c.read(at, length)?;
        new[..length].copy_from_slice(&given);
        match which {
            NT_PRSTATUS => set_words(c, tid, &from_bytes(&new))?,
            _ => set_floats(c, tid, &new)?,
        };
    } else {
        c.check(vector, 16, WRITE)?;
        c.write(at, &whole[..length])?;
    }
    c.write(vector + 8, &(length as u64).to_le_bytes())?;
    Ok(0)
}

/// `PTRACE_GET_SYSCALL_INFO`: writes as many bytes as fit, and returns the full size.
fn syscall_info(c: &mut Caller, tid: Tid, stop: Stop, room: u64, at: u64) -> Result {
    let w = words(c, tid)?;
    let kind = match stop {
        Stop::Enter => 1,
        Stop::Exit => 2,
        _ => 0,
    };
    let head = Writer::new()
        .u32(kind)
        .u32(ARCHITECTURE)
        .u64(w[16])
        .u64(w[19]);
    let whole = match stop {
        Stop::Enter => [ORIG_RAX, 14, 13, 12, 7, 9, 8]
            .into_iter()
            .fold(head, |writer, n| writer.u64(w[n])),
        Stop::Exit => {
            let fails = (w[10] as i64) < 0 && w[10] as i64 >= -4095;
            head.u64(w[10]).bytes(&[u8::from(fails)])
        }
        _ => head,
    }
    .done();
    let length = room.min(whole.len() as u64) as usize;
    c.write(at, &whole[..length]).map_err(|_| EFAULT)?;
    Ok(whole.len() as u64)
}
