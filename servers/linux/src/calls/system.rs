//! `execve`, calls on attributes of the process, and all that is in no other module.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use linux_raw_sys::prctl;

use crate::calls::memory;
use crate::calls::name::AT_EMPTY_PATH;
use crate::calls::stat::AT_SYMLINK_NOFOLLOW;
use crate::emulate::{Caller, Keys, Result, Stop, Target, Wake, AT_FDCWD};
use crate::errno::{EACCES, EINVAL, ELOOP, ENOENT, EPERM, ESRCH};
use crate::exec::{self, Staged};
use crate::files::Request;
use crate::loading::{self, Strings};
use crate::native;
use crate::process::Kind;
use crate::signal::SIGNALS;
use crate::special::{self, Special};
use crate::system::{Key, Which};
use crate::wire::{u32_at, Writer};
use services::fs::mode;
use services::process::Pid;

/// The release of Linux that `uname` reports: programs check the version number.
pub const RELEASE: &str = "6.1.0-fermata";

/// The path of the program that a call names, absolute or relative to the working directory.
fn program(c: &mut Caller, dirfd: i32, path: u64, flags: u32) -> Result<String> {
    let path = c.path(path)?;
    if path.is_empty() && flags & AT_EMPTY_PATH == 0 {
        return Err(ENOENT.into());
    }
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(EINVAL.into());
    }
    if path.is_empty() && flags & AT_EMPTY_PATH != 0 && dirfd != AT_FDCWD {
        return path_of(c, dirfd as u32);
    }
    // Nearly all paths can be used as they are: the file is looked up when it is opened.
    let is_seen_from_here = dirfd == AT_FDCWD || path.starts_with('/');
    let may_be_special = ["/dev/", "/proc/"]
        .iter()
        .any(|with| path.starts_with(with));
    let path = match is_seen_from_here && !may_be_special {
        true => path,
        false => match c.target(dirfd, &path)? {
            Target::Special(Special::Descriptor(fd)) => {
                c.p.files.get(fd).map_err(|_| ENOENT)?;
                path_of(c, fd)?
            }
            Target::Path(found) => found,
            // A special link is followed when the file is opened; no other special name is a program.
            Target::Special(_) if is_seen_from_here => path,
            Target::Special(_) => return Err(EACCES.into()),
        },
    };
    if flags & AT_SYMLINK_NOFOLLOW != 0 {
        let link = c.attr(&Request::Stat {
            path: crate::path::join(&c.p.context.cwd, &path),
            follow: false,
        })?;
        if link.mode & mode::TYPE == mode::SYMLINK {
            return Err(ELOOP.into());
        }
    }
    Ok(path)
}

/// The path of the file that a file descriptor is open on. Errors: `EACCES` if that is no file, `ELOOP` if it is a
/// symbolic link, `ENOENT` if it has no name any more.
fn path_of(c: &mut Caller, fd: u32) -> Result<String> {
    let ino = match c.p.files.get(fd)?.kind {
        Kind::File { ino } => ino,
        _ => return Err(EACCES.into()),
    };
    if c.attr(&Request::StatIno { ino })?.mode & mode::TYPE == mode::SYMLINK {
        return Err(ELOOP.into());
    }
    c.fs_path(&Request::PathOf { ino })
}

/// `execve` and `execveat`.
pub fn execveat(
    c: &mut Caller,
    (dirfd, path): (i32, u64),
    args: u64,
    env: u64,
    flags: u32,
) -> Result {
    if let Some(staged) = loading::begun_program(c) {
        return loading::execute(c, staged);
    }
    let (mut strings, found) = match loading::begun_strings(c) {
        Some(begun) => (begun, None),
        None => (Box::default(), Some(program(c, dirfd, path, flags)?)),
    };
    if !strings.read(c, [args, env])? {
        // Reading the strings takes several turns, so a missing file is reported first.
        if let Some(path) = found {
            let path = crate::path::join(&c.p.context.cwd, &path);
            if special::find(&c.p, &path).is_none() {
                c.attr(&Request::Stat { path, follow: true })?;
            }
        }
        loading::keep_strings(c, strings);
        return Err(Stop::Turn);
    }
    let result = match found {
        Some(path) => execute(c, &path, &strings),
        None => program(c, dirfd, path, flags).and_then(|path| execute(c, &path, &strings)),
    };
    if c.h.waits() || matches!(result, Err(Stop::Park(_))) {
        loading::keep_strings(c, strings);
    }
    result
}

/// Replaces the program of the process.
fn execute(c: &mut Caller, path: &str, strings: &Strings) -> Result {
    let [args, env] = strings.lists();
    let prepared = exec::prepare(&c.p, c.s, c.h, path, args, env);
    let looked_at = match &prepared {
        Ok(prepared) => prepared.inos(),
        Err(failure) => &failure.inos,
    };
    // The program is read from the file system, so a memory object of its file has to be written back first.
    if let Some(object) = c.s.objects.behind(looked_at) {
        if let Ok(prepared) = prepared {
            exec::cancel(c.h, prepared);
        }
        return Err(Stop::Park(Wake {
            keys: Keys::from_buf([Key::Object(object)]),
            firm: true,
            ..Wake::default()
        }));
    }
    if let Err(stop) = prepared.is_ok().then(|| memory::settle_all(c)).transpose() {
        if let Ok(prepared) = prepared {
            exec::cancel(c.h, prepared);
        }
        return Err(stop);
    }
    match prepared {
        // Loading begins in the next turn, in which the call does not repeat its requests so far.
        Ok(mut prepared) if prepared.is_long() => {
            prepared.execute(c.s);
            let staged = Staged::new(c.h, prepared, &c.s.process(c.p.task.pid).ids)?;
            match staged.is_read() {
                true => loading::execute(c, Box::new(staged)),
                false => Err(loading::turn(c, Box::new(staged))),
            }
        }
        Ok(mut prepared) => {
            prepared.execute(c.s);
            Err(Stop::Execute(Box::new(prepared)))
        }
        Err(failure) => {
            if let Some(native) = failure.native {
                return native::execve(c, *native);
            }
            if failure.names_another && !c.h.waits() {
                c.report(1 << 33 | c.entry.rax, &failure.sentence);
            }
            Err(failure.errno.into())
        }
    }
}

/// `arch_prctl`.
pub fn arch_prctl(c: &mut Caller, code: u64, address: u64) -> Result {
    match code {
        0x1001 | 0x1002 => {
            if address >= abi::USER_END {
                return Err(EPERM.into());
            }
            if code == 0x1001 {
                c.out().gs_base = address;
            } else {
                c.out().fs_base = address;
            }
        }
        0x1003 => c.write(address, &c.entry.fs_base.to_le_bytes())?,
        0x1004 => c.write(address, &c.entry.gs_base.to_le_bytes())?,
        _ => return Err(EINVAL.into()),
    }
    Ok(0)
}

/// `prctl`.
pub fn prctl(c: &mut Caller, option: u32, argument: u64, more: [u64; 3]) -> Result {
    match option {
        prctl::PR_SET_NAME => {
            let room = c.p.memory.areas.reach(argument, 16, crate::memory::READ) as usize;
            let raw = c.read(argument, room.max(1))?;
            c.p.task.shown.set_comm(&raw);
        }
        prctl::PR_GET_NAME => {
            let name = Writer::new()
                .bytes(&c.p.task.shown.comm())
                .pad_to(16)
                .done();
            c.write(argument, &name)?;
        }
        prctl::PR_GET_DUMPABLE => return Ok(1),
        prctl::PR_SET_PDEATHSIG if argument > u64::from(SIGNALS) => return Err(EINVAL.into()),
        prctl::PR_SET_PDEATHSIG => c.process().chosen.death_signal = argument as u32,
        prctl::PR_GET_PDEATHSIG => {
            let signal = c.process().chosen.death_signal;
            c.write(argument, &signal.to_le_bytes())?;
        }
        prctl::PR_SET_CHILD_SUBREAPER => c.process().chosen.adopts = argument != 0,
        prctl::PR_GET_CHILD_SUBREAPER => {
            let adopts = u32::from(c.process().chosen.adopts);
            c.write(argument, &adopts.to_le_bytes())?;
        }
        prctl::PR_GET_KEEPCAPS => {}
        prctl::PR_SET_NO_NEW_PRIVS if argument != 1 => return Err(EINVAL.into()),
        prctl::PR_SET_NO_NEW_PRIVS => c.process().chosen.gains_nothing = true,
        prctl::PR_GET_NO_NEW_PRIVS => return Ok(u64::from(c.process().chosen.gains_nothing)),
        prctl::PR_GET_TIMERSLACK => return Ok(50_000),
        prctl::PR_CAPBSET_READ if argument < CAPABILITIES => {
            return Ok(u64::from(c.process().dropped & 1 << argument == 0));
        }
        prctl::PR_CAPBSET_DROP if !c.process().ids.is_root() => return Err(EPERM.into()),
        prctl::PR_CAPBSET_DROP if argument < CAPABILITIES => c.process().dropped |= 1 << argument,
        prctl::PR_CAP_AMBIENT => return ambient(argument, more),
        // Privileges depend on the user number only.
        prctl::PR_GET_SECUREBITS | prctl::PR_GET_SECCOMP => {}
        prctl::PR_SET_SECUREBITS if argument != 0 || !c.process().ids.is_root() => {
            return Err(EPERM.into())
        }
        prctl::PR_SET_SECUREBITS => {}
        // These settings have no effect here.
        prctl::PR_SET_DUMPABLE | prctl::PR_SET_KEEPCAPS | prctl::PR_SET_TIMERSLACK => {}
        _ => return Err(EINVAL.into()),
    }
    Ok(0)
}

/// Number of capabilities that Linux 6.1 has.
pub const CAPABILITIES: u64 = 41;

/// `PR_CAP_AMBIENT`: no process has ambient capabilities.
fn ambient(operation: u64, [capability, rest @ ..]: [u64; 3]) -> Result {
    let clears = operation == u64::from(prctl::PR_CAP_AMBIENT_CLEAR_ALL);
    let is_known = match clears {
        true => capability == 0,
        false => capability < CAPABILITIES,
    };
    if !is_known || rest != [0, 0] {
        return Err(EINVAL.into());
    }
    match operation as u32 {
        prctl::PR_CAP_AMBIENT_RAISE => Err(EPERM.into()),
        prctl::PR_CAP_AMBIENT_IS_SET | prctl::PR_CAP_AMBIENT_LOWER => Ok(0),
        prctl::PR_CAP_AMBIENT_CLEAR_ALL => Ok(0),
        _ => Err(EINVAL.into()),
    }
}

/// For `capget` and `capset` in their third version: the capabilities of the task that the header names.
fn capabilities(c: &mut Caller, header: u64) -> Result<u64> {
    const VERSION: u32 = 0x2008_0522;
    let version = u32_at(&c.read(header, 4)?, 0);
    if version != VERSION {
        c.write(header, &VERSION.to_le_bytes())?;
        return Err(EINVAL.into());
    }
    let number = u32_at(&c.read(header, 8)?, 4);
    let is_own = number == 0 || number == c.p.task.thread;
    let pid = match is_own {
        true => c.p.task.pid,
        false => c.s.by_number(c.p.task.pid, number).ok_or(ESRCH)?,
    };
    let is_root = c.s.process(pid).ids.is_root();
    Ok(if is_root { (1 << CAPABILITIES) - 1 } else { 0 })
}

/// `capget`: root has all capabilities, other users none.
pub fn capget(c: &mut Caller, header: u64, into: u64) -> Result {
    let had = match capabilities(c, header) {
        // With a null pointer, the call only asks for the supported version.
        Err(Stop::Errno(EINVAL)) if into == 0 => return Ok(0),
        had => had?,
    };
    let mut out = Writer::new();
    for half in [had as u32, (had >> 32) as u32] {
        out = out.u32(half).u32(half).u32(0);
    }
    c.write(into, &out.done())?;
    Ok(0)
}

/// `capset`: fails with `EPERM` if it asks for capabilities that the caller does not have. Capabilities that it drops
/// are not stored: nothing here depends on them.
pub fn capset(c: &mut Caller, header: u64, from: u64) -> Result {
    let had = capabilities(c, header)?;
    let raw = c.read(from, 24)?;
    let set = |at: usize| u64::from(u32_at(&raw, at)) | u64::from(u32_at(&raw, at + 12)) << 32;
    let (effective, permitted) = (set(0), set(4));
    match permitted & !had == 0 && effective & !permitted == 0 {
        true => Ok(0),
        false => Err(EPERM.into()),
    }
}

/// The lowest and the highest priority of a scheduling policy.
pub fn priority_range(policy: u32) -> Result<(u64, u64)> {
    match policy {
        linux::SCHED_FIFO | linux::SCHED_RR => Ok((1, 99)),
        linux::SCHED_NORMAL | linux::SCHED_BATCH | linux::SCHED_IDLE | linux::SCHED_DEADLINE => {
            Ok((0, 0))
        }
        _ => Err(EINVAL.into()),
    }
}

/// `sched_setscheduler`: all tasks are scheduled alike, so real-time policies fail with `EPERM`.
pub fn set_scheduler(c: &mut Caller, policy: u32, parameter: u64) -> Result {
    // SCHED_RESET_ON_FORK.
    let policy = policy & !0x4000_0000;
    let (least, most) = priority_range(policy)?;
    let priority = u64::from(u32_at(&c.read(parameter, 4)?, 0));
    if !(least..=most).contains(&priority) || policy == linux::SCHED_DEADLINE {
        return Err(EINVAL.into());
    }
    match most {
        0 => Ok(0),
        _ => Err(EPERM.into()),
    }
}

/// `sched_rr_get_interval`: the time slice of a task.
pub fn slice(c: &mut Caller, into: u64) -> Result {
    const NANOSECONDS: u64 = 10_000_000;
    c.write(into, &Writer::new().u64(0).u64(NANOSECONDS).done())?;
    Ok(0)
}

/// `setuid`: as root sets all three user numbers, otherwise only the effective one.
pub fn setuid(c: &mut Caller, uid: u32) -> Result {
    let others = if c.process().ids.is_root() {
        uid
    } else {
        u32::MAX
    };
    set_ids(c, true, [others, uid, others])
}

/// `setgid`.
pub fn setgid(c: &mut Caller, gid: u32) -> Result {
    let others = if c.process().ids.is_root() {
        gid
    } else {
        u32::MAX
    };
    set_ids(c, false, [others, gid, others])
}

/// `setresuid` and `setresgid`, and with them `setreuid` and `setregid`.
pub fn set_ids(c: &mut Caller, users: bool, new: [u32; 3]) -> Result {
    let privileged = c.process().ids.is_root();
    let ids = if users {
        &mut c.process().ids.uid
    } else {
        &mut c.process().ids.gid
    };
    change_some(ids, new, privileged)
}

/// Sets the numbers of `new` that are not -1. Without privilege each must be one that the process has already.
fn change_some(ids: &mut [u32; 3], new: [u32; 3], privileged: bool) -> Result {
    let before = *ids;
    if !privileged && new.iter().any(|n| *n != u32::MAX && !before.contains(n)) {
        return Err(EPERM.into());
    }
    for (id, new) in ids.iter_mut().zip(new) {
        if new != u32::MAX {
            *id = new;
        }
    }
    Ok(0)
}

/// `getresuid` and `getresgid`.
pub fn get_ids(c: &mut Caller, users: bool, into: [u64; 3]) -> Result {
    let ids = if users {
        c.process().ids.uid
    } else {
        c.process().ids.gid
    };
    for (id, address) in ids.into_iter().zip(into) {
        c.write(address, &id.to_le_bytes())?;
    }
    Ok(0)
}

/// `getgroups`: the only group is the effective one.
pub fn getgroups(c: &mut Caller, size: i32, into: u64) -> Result {
    if size < 0 {
        return Err(EINVAL.into());
    }
    if size > 0 {
        let gid = c.process().ids.gid[1];
        c.write(into, &gid.to_le_bytes())?;
    }
    Ok(1)
}

/// `uname`.
pub fn uname(c: &mut Caller, into: u64) -> Result {
    let mut out = Writer::new();
    let fields = [
        "Linux",
        "fermata",
        RELEASE,
        "#1 Fermata",
        "x86_64",
        "(none)",
    ];
    for (i, field) in fields.into_iter().enumerate() {
        out = out.bytes(field.as_bytes()).pad_to(65 * (i + 1));
    }
    c.write(into, &out.done())?;
    Ok(0)
}

/// `sysinfo`.
pub fn sysinfo(c: &mut Caller, into: u64) -> Result {
    let usage = c.h.memory_usage();
    let uptime = c.now() / 1_000_000_000;
    let out = Writer::new()
        .u64(uptime)
        .pad_to(32)
        .u64(usage.total)
        .u64(usage.free)
        .pad_to(80)
        .u16(1)
        .pad_to(104)
        .u32(1)
        .pad_to(112)
        .done();
    c.write(into, &out)?;
    Ok(0)
}

/// The processes that `getpriority` or `setpriority` names. Errors: `EINVAL`; `ESRCH` if there are none.
fn those_with_priority(c: &mut Caller, which: u32, who: u32) -> Result<Vec<Pid>> {
    let own = c.p.task.pid;
    let (root, group, uid) = {
        let process = c.process();
        (process.root, process.group, process.ids.uid[0])
    };
    let means = match (which, who) {
        (linux::PRIO_PROCESS, 0) => return Ok(alloc::vec![own]),
        (linux::PRIO_PROCESS, number) => Which::Number(number),
        (linux::PRIO_PGRP, 0) => Which::Group(group),
        (linux::PRIO_PGRP, group) => Which::Group(group),
        (linux::PRIO_USER, _) => Which::All,
        _ => return Err(EINVAL.into()),
    };
    let user = match who {
        0 => uid,
        user => user,
    };
    let is_meant = |pid: &Pid| {
        let process = c.s.find(*pid);
        process.is_some_and(|process| {
            process.root == root && (means != Which::All || process.ids.uid[0] == user)
        })
    };
    let those: Vec<Pid> = c.s.those(own, means).into_iter().filter(is_meant).collect();
    match those.is_empty() {
        true => Err(ESRCH.into()),
        false => Ok(those),
    }
}

/// `getpriority`: the highest priority among the processes, as 20 minus the nice value.
pub fn getpriority(c: &mut Caller, which: u32, who: u32) -> Result {
    let those = those_with_priority(c, which, who)?;
    let priorities = those.iter().filter_map(|pid| c.s.find(*pid));
    let priorities = priorities.map(|process| 20 - i64::from(process.chosen.nice));
    Ok(priorities.max().unwrap_or(20) as u64)
}

/// `setpriority`. As on Linux, it takes effect for the processes for which it is permitted, even if the call fails for
/// others.
pub fn setpriority(c: &mut Caller, which: u32, who: u32, nice: i32) -> Result {
    let nice = nice.clamp(-20, 19) as i8;
    let euid = c.process().ids.uid[1];
    let mut result = Ok(0);
    for pid in those_with_priority(c, which, who)? {
        let process = c.s.process(pid);
        let most = process.limit(linux::RLIMIT_NICE).0;
        let is_own = process.ids.uid[..2].contains(&euid);
        let may_raise = euid == 0 || (20 - i64::from(nice)) as u64 <= most;
        if euid != 0 && !is_own {
            result = Err(EPERM.into());
        } else if nice < process.chosen.nice && !may_raise {
            result = Err(EACCES.into());
        } else {
            process.chosen.nice = nice;
        }
    }
    result
}

/// `sched_getaffinity`: there is one processor.
pub fn sched_getaffinity(c: &mut Caller, size: u64, into: u64) -> Result {
    if size < 8 || !size.is_multiple_of(8) {
        return Err(EINVAL.into());
    }
    c.write(into, &1u64.to_le_bytes())?;
    Ok(8)
}

/// `sched_setaffinity`: the only processor must be in the set.
pub fn sched_setaffinity(c: &mut Caller, size: u64, from: u64) -> Result {
    let mask = c.read(from, size.min(8) as usize)?;
    match mask.first() {
        Some(first) if first & 1 != 0 => Ok(0),
        _ => Err(EINVAL.into()),
    }
}

/// `getcpu`.
pub fn getcpu(c: &mut Caller, cpu: u64, node: u64) -> Result {
    c.write_optional(cpu, &[0; 4])?;
    c.write_optional(node, &[0; 4])?;
    Ok(0)
}

/// `personality`: only `ADDR_NO_RANDOMIZE` can be set; addresses are never randomized.
pub fn personality(c: &mut Caller, persona: u32) -> Result {
    const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;
    let old = c.process().persona;
    if persona != u32::MAX {
        if persona & !ADDR_NO_RANDOMIZE != 0 {
            return Err(EINVAL.into());
        }
        c.process().persona = persona;
    }
    Ok(u64::from(old))
}
