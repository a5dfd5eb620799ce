//! Emulates one call, or one exception: from the registers of a thread to what happens to the thread next.
//!
//! [`call`] is the whole personality in one function. It takes the registers of a thread that stands at a `syscall`
//! instruction. It completes the call ([`Outcome::Go`]), or finds that the call cannot be completed yet and leaves
//! everything as it was ([`Outcome::Park`]), or ends the process. A parked call is given to [`call`] again when its
//! [`Wake`] says so, or after a restore. What must survive until then (a deadline, the number of bytes that the console
//! has taken) is in [`Wait`], which only this very call finds again.

use abi::message::{ExceptionMessage, ShortAnswer};
use abi::state::{initial_fpu, FpuState};
use abi::{Exception, Registers};
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::files::{Reply, Request};
use services::console::Mode;
use services::fs::{Attr, Flags, Opened};
use services::process::Status;

use crate::calls;
use crate::calls::futex::MAX_ROBUST;
use crate::errno::{
    Errno, EACCES, EFAULT, EILSEQ, EINTR, EIO, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR,
};
use crate::exec;
use crate::host::{Fpu, Host, OutOfMemory};
use crate::loading;
use crate::memory::{Area, Prot, EXECUTE, READ, WRITE};
use crate::native::Native;
use crate::number;
use crate::path;
use crate::proc;
use crate::process::{CallKey, Current, Kind, Task, Wait, MAX_REPORTED};
use crate::signal::{self, sig, Delivery, Fault, Origin};
use crate::special::{self, Special};
use crate::system::{Key, Process, System};
use crate::trace;

/// Most bytes that a call moves in one turn; this takes about a million instructions.
pub const STEP: u64 = 1 << 20;

/// The events that a parked call waits for, in most cases one.
pub type Keys = smallvec::SmallVec<[Key; 1]>;

/// When a parked call is to be made again: at the first of its keys, its deadline, or a signal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// The events that it waits for.
    pub keys: Keys,
    /// Only if the descriptors may be ready for one of these `poll` events then; `None` for any.
    pub events: Option<u32>,
    /// A time on the process's clock.
    pub deadline: Option<u64>,
    /// Whether no signal ends the wait but one that ends the process.
    pub firm: bool,
}

impl Wake {
    /// Waits for this event.
    #[must_use]
    pub fn on(key: Key) -> Self {
        Wake {
            keys: Keys::from_buf([key]),
            ..Wake::default()
        }
    }

    /// Waits until the host has the call made again; no signal but a fatal one ends the wait.
    #[must_use]
    pub fn firm() -> Self {
        Wake {
            firm: true,
            ..Wake::default()
        }
    }

    /// Waits until this time, or for ever.
    #[must_use]
    pub fn at(deadline: Option<u64>) -> Self {
        Wake {
            deadline,
            ..Wake::default()
        }
    }
}

/// What happens to the thread after a call or an exception.
#[derive(Debug)]
pub enum Outcome {
    /// The thread goes on with these registers, and with this FPU state if there is one.
    Go {
        /// The registers.
        registers: Registers,
        /// A new FPU state.
        fpu: Option<Fpu>,
    },
    /// The call waits. It has changed nothing and is made again later.
    Park(Wake),
    /// The call has done a part of its work ([`Wait::progress`]). The thread is to go on at its `syscall` instruction,
    /// with the registers as they are, behind all other threads; the call is made again then.
    Turn,
    /// The task has ended; other tasks of its process go on.
    Left,
    /// The process has ended.
    End(Status),
    /// The task is to execute another program ([`execute`]), as the only task of its process.
    Execute(Box<exec::Prepared>),
    /// The process is to stand for a native program ([`stand_in`]).
    Native(Box<Native>),
}

/// The result of a call.
#[derive(Debug)]
pub enum Answer {
    /// The thread goes on behind the call with this value in `rax`. Nothing else has changed; this is the frequent
    /// case.
    Value(u64),
    /// Anything else.
    Other(Outcome),
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Answer::Other(outcome)
    }
}

impl Answer {
    /// Whether the call is complete, so that it is not made again.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        !matches!(self, Answer::Other(Outcome::Park(_)))
    }

    /// What happens to the thread that made the call with these registers.
    #[must_use]
    pub fn outcome(self, entry: &Registers) -> Outcome {
        match self {
            Answer::Value(rax) => Outcome::Go {
                registers: returned(entry, rax),
                fpu: None,
            },
            Answer::Other(outcome) => outcome,
        }
    }
}

/// Why a call returns no value.
pub enum Stop {
    /// It fails with this error.
    Errno(Errno),
    /// It waits.
    Park(Wake),
    /// It takes another turn ([`Caller::turn`]).
    Turn,
    /// It ends the task and, if that is the last one, the process.
    Leave(Status),
    /// It ends the process.
    End(Status),
    /// The call has set all registers itself.
    Replaced,
    /// It executes another program.
    Execute(Box<exec::Prepared>),
    /// The process is to stand for a native program.
    Native(Box<Native>),
    /// There is no free memory for the pages that the call touches.
    OutOfMemory,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Stop::Errno(errno)
    }
}

impl From<proto::Error> for Stop {
    fn from(error: proto::Error) -> Self {
        Stop::Errno(error.into())
    }
}

impl From<OutOfMemory> for Stop {
    fn from(_: OutOfMemory) -> Self {
        Stop::OutOfMemory
    }
}

/// The result of a function that carries out a call.
pub type Result<T = u64> = core::result::Result<T, Stop>;

/// Most links of `/proc` and `/dev/fd` that a path is followed through.
pub const MAX_LINKS: usize = 8;
/// `AT_FDCWD`.
pub use linux_raw_sys::general::AT_FDCWD;

/// What a path leads to, found without asking the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An absolute path in the file system.
    Path(String),
    /// A special name, which this server provides.
    Special(Special),
}

/// A task that makes a call.
pub struct Caller<'a> {
    /// The task, and everything that it shares with others.
    pub p: Current<'a>,
    /// All processes.
    pub s: &'a mut System,
    /// Memory, files and clock of the process.
    pub h: &'a mut dyn Host,
    /// The registers at the `syscall` instruction.
    pub entry: &'a Registers,
    /// The registers after the call, if more of them change than the result, which goes into `rax` at the end.
    pub out: &'a mut Option<Registers>,
    /// The FPU state after the call, if it changes.
    pub fpu: &'a mut Option<Fpu>,
}

impl Caller<'_> {
    /// The registers after the call, for changes; the result goes into `rax` at the end.
    pub fn out(&mut self) -> &mut Registers {
        self.out.get_or_insert_with(|| behind(self.entry))
    }

    /// The key that identifies this call.
    #[must_use]
    pub const fn key(&self) -> CallKey {
        key_of(self.entry)
    }

    /// The time on the process's clock.
    pub fn now(&mut self) -> u64 {
        self.p.task.now(self.h)
    }

    /// The calling process.
    pub fn process(&mut self) -> &mut Process {
        self.s.process(self.p.task.pid)
    }

    /// Whether a signal is about to be delivered to the task.
    pub fn is_signalled(&mut self) -> bool {
        let of_process = &self.s.process(self.p.task.pid).pending;
        self.p.task.signals.deliverable(of_process).is_some()
    }

    /// The mode in which the process reads the console. If its tree has set one, the console is set to it again:
    /// another tree may have used the console since, or the tree was restored.
    pub fn console_mode(&mut self) -> Mode {
        let settings = self.s.console_settings(self.p.task.pid);
        let (mode, is_set) = (System::console_mode(settings), settings.is_some());
        if is_set {
            self.h.console_mode(mode);
        }
        mode
    }

    /// The date: nanoseconds since the beginning of 1970. It is the machine's date, also for a restored process.
    pub fn date(&mut self) -> u64 {
        self.h.date()
    }

    // --- Memory of the program ---

    /// Fails with `EFAULT` unless the whole range allows `need`. An empty range only has to be below the addresses of
    /// the kernel on Linux.
    pub fn check(&self, address: u64, length: u64, need: Prot) -> Result<()> {
        const TOP: u64 = 0x7fff_ffff_f000;
        let is_allowed = || length == 0 || self.p.memory.areas.allows(address, length, need);
        if address <= TOP && is_allowed() {
            Ok(())
        } else {
            Err(EFAULT.into())
        }
    }

    /// Reads a range.
    pub fn read(&mut self, address: u64, length: usize) -> Result<Vec<u8>> {
        self.check(address, length as u64, READ)?;
        let mut bytes = alloc::vec![0; length];
        self.h.read_memory(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a range.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        self.check(address, bytes.len() as u64, WRITE)?;
        self.h.write_memory(address, bytes)?;
        Ok(())
    }

    /// Writes a range unless the address is null.
    pub fn write_optional(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        self.write(address, bytes)
    }

    /// Reads a word of eight bytes.
    pub fn word(&mut self, address: u64) -> Result<u64> {
        let bytes = self.read(address, 8)?;
        Ok(crate::wire::u64_at(&bytes, 0))
    }

    /// Reads a string that ends with a zero byte within `limit` bytes; fails with `error` if it does not.
    pub fn string(&mut self, address: u64, limit: usize, error: Errno) -> Result<Vec<u8>> {
        let mut found = Vec::new();
        let mut piece = [0; 64];
        loop {
            let at = address.wrapping_add(found.len() as u64);
            let room = limit.saturating_sub(found.len()).min(piece.len());
            if room == 0 {
                return Err(error.into());
            }
            let got = self.p.memory.areas.reach(at, room as u64, READ) as usize;
            if got == 0 {
                return Err(EFAULT.into());
            }
            self.h.read_memory(at, &mut piece[..got])?;
            if let Some(end) = piece[..got].iter().position(|b| *b == 0) {
                found.extend_from_slice(&piece[..end]);
                return Ok(found);
            }
            found.extend_from_slice(&piece[..got]);
        }
    }

    /// Reads a path.
    pub fn path(&mut self, address: u64) -> Result<String> {
        let bytes = self.string(address, 4096, ENAMETOOLONG)?;
        String::from_utf8(bytes).map_err(|_| EILSEQ.into())
    }

    // --- The file system ---

    /// Makes a request to the file system.
    pub fn fs(&mut self, request: &Request) -> Result<Reply> {
        Ok(self.h.fs(request, &[], &mut [])?.0)
    }

    /// Asks the file system for attributes.
    pub fn attr(&mut self, request: &Request) -> Result<Attr> {
        match self.fs(request)? {
            Reply::Attr(attr) => Ok(attr),
            _ => Err(EIO.into()),
        }
    }

    /// Opens a file of the file system.
    pub fn open(&mut self, path: String, flags: Flags, mode: u32) -> Result<Opened> {
        match self.fs(&Request::Open { path, flags, mode })? {
            Reply::Opened(opened) => Ok(opened),
            _ => Err(EIO.into()),
        }
    }

    /// Calls `act` with the open file that a path leads to, and closes it afterwards.
    pub fn with_open<T>(
        &mut self,
        path: String,
        follow: bool,
        act: impl FnOnce(&mut Self, &Opened) -> Result<T>,
    ) -> Result<T> {
        let flags = Flags {
            nofollow: !follow,
            symlink: true,
            ..Flags::default()
        };
        let opened = self.open(path, flags, 0)?;
        let result = act(self, &opened);
        self.fs(&Request::Close { ino: opened.ino })?;
        result
    }

    /// Waits until everything that was written to a file is durable. To be called before its last description is
    /// closed.
    pub fn settle(&mut self, ino: u64) -> Result<()> {
        if self.h.is_unsynced(ino) {
            // A failure is not reported, as a failure to close the file is not.
            let _ = self.fs(&Request::Sync { ino });
            if self.h.waits() {
                return Err(Stop::Park(Wake::firm()));
            }
        }
        Ok(())
    }

    /// Asks the file system for a path.
    pub fn fs_path(&mut self, request: &Request) -> Result<String> {
        match self.fs(request)? {
            Reply::Path(path) => Ok(path),
            _ => Err(EIO.into()),
        }
    }

    /// What a path leads to; a relative path starts at the directory `dirfd`.
    pub fn target(&mut self, dirfd: i32, path: &str) -> Result<Target> {
        let absolute = if path.starts_with('/') {
            String::from(path)
        } else if dirfd == AT_FDCWD {
            path::join(&self.p.context.cwd, path)
        } else {
            let kind = self.p.files.get(dirfd as u32)?.kind.clone();
            let base = match kind {
                Kind::Directory { ino, .. } => self.fs_path(&Request::PathOf { ino })?,
                Kind::Folder(folder) => folder.path(),
                _ => return Err(ENOTDIR.into()),
            };
            path::join(&base, path)
        };
        let absolute = self.through_links(absolute)?;
        let Some(special) = special::find(&self.p, &absolute) else {
            return Ok(Target::Path(absolute));
        };
        proc::check(self, &special)?;
        proc::check_card(self, &special)?;
        Ok(Target::Special(match special {
            Special::LinkOf(number, link) => Special::Link(proc::target(self, number, link)?),
            special => special,
        }))
    }

    /// Follows the special links within a path (`/proc/self/cwd/file`, `/dev/fd/3/file`), which the file system does
    /// not know.
    fn through_links(&mut self, mut absolute: String) -> Result<String> {
        // A link of another process can lead to a special link again.
        for _ in 0..MAX_LINKS {
            let is_below = ["/proc/", "/dev/fd/"]
                .into_iter()
                .any(|with| absolute.starts_with(with));
            match is_below.then(|| self.through_link(&absolute)).transpose()? {
                Some(Some(on)) => absolute = on,
                _ => return Ok(absolute),
            }
        }
        Err(ELOOP.into())
    }

    /// Follows the first special link within a path; `None` if there is none.
    fn through_link(&mut self, absolute: &str) -> Result<Option<String>> {
        let name = path::lexical(absolute);
        for (at, _) in name.match_indices('/').skip(1) {
            let (link, rest) = (&name[..at], &name[at + 1..]);
            let to = match special::find(&self.p, link) {
                None => return Ok(None),
                Some(Special::Link(to)) => to,
                Some(Special::LinkOf(number, link)) => proc::target(self, number, link)?,
                Some(Special::Descriptor(fd)) => {
                    let kind = self.p.files.get(fd).map_err(|_| ENOENT)?.kind.clone();
                    match kind {
                        Kind::Directory { ino, .. } => self.fs_path(&Request::PathOf { ino })?,
                        Kind::Folder(folder) => folder.path(),
                        _ => return Err(ENOTDIR.into()),
                    }
                }
                // The open files of another process can be listed, not used.
                Some(Special::DescriptorOf(..)) => return Err(EACCES.into()),
                Some(_) => continue,
            };
            return Ok(Some(path::join(&to, rest)));
        }
        Ok(None)
    }

    // --- Waiting ---

    /// What is kept of this call between its attempts.
    pub fn wait(&mut self) -> &mut Wait {
        let key = self.key();
        self.p.task.wait.get_or_insert(Wait::new(key))
    }

    /// How much of this call its earlier attempts have done, mostly in bytes.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.p.task.wait.map_or(0, |wait| wait.progress)
    }

    /// Ends this turn of the call, of which `done` is done; more than nothing. The call goes on in another turn.
    pub fn turn(&mut self, done: u64) -> Stop {
        self.wait().progress = done;
        Stop::Turn
    }

    /// The deadline of this call, `nanoseconds` after its first attempt.
    pub fn deadline_after(&mut self, nanoseconds: u64) -> u64 {
        let now = self.now();
        *self
            .wait()
            .deadline
            .get_or_insert(now.saturating_add(nanoseconds))
    }

    /// Writes a sentence about the process to the console, once for each `topic`.
    pub fn report(&mut self, topic: u64, sentence: &str) {
        if self.is_new(topic) {
            let line = format!("{}: {sentence}", self.p.memory.name);
            self.h.log(&line);
        }
    }

    /// As [`Caller::report`], for what programs may only try: written only if somebody has asked for such sentences.
    pub fn note(&mut self, topic: u64, sentence: &str) {
        if self.is_new(topic) {
            let line = format!("{}: {sentence}", self.p.memory.name);
            self.h.note(&line);
        }
    }

    fn is_new(&mut self, topic: u64) -> bool {
        let reported = &mut self.process().reported;
        reported.len() < MAX_REPORTED && reported.insert(topic)
    }
}

/// The key that identifies a call: its position, stack pointer, number and arguments.
pub(crate) const fn key_of(r: &Registers) -> CallKey {
    [r.rip, r.rsp, r.rax, r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
}

/// Length of the `syscall` instruction.
const CALL_BYTES: u64 = 2;

/// The registers behind the `syscall` instruction, as the instruction leaves them.
pub(crate) fn behind(entry: &Registers) -> Registers {
    let mut out = *entry;
    out.rip = out.rip.wrapping_add(CALL_BYTES);
    out.rcx = out.rip;
    out.r11 = out.rflags;
    out
}

/// The registers behind a call that returns `rax`.
fn returned(entry: &Registers, rax: u64) -> Registers {
    Registers {
        rax,
        ..behind(entry)
    }
}

/// The answer with which a thread goes on behind a call that returns `value`. It leaves `rcx` and `r11` as they are,
/// although the instruction overwrites them: programs must not rely on them.
#[inline(always)]
#[must_use]
pub fn control(entry: &Registers, value: u64) -> ShortAnswer {
    ShortAnswer {
        pc: entry.rip.wrapping_add(CALL_BYTES),
        sp: entry.rsp,
        flags: entry.rflags,
        call: value,
    }
}

/// Emulates the call that the registers describe.
pub fn call(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    entry: &Registers,
) -> Outcome {
    answer(task, system, host, entry).outcome(entry)
}

/// As [`call`], in the form that is cheap for calls that only return a value.
pub fn answer(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    entry: &Registers,
) -> Answer {
    let is_another = |key: &CallKey| *key != key_of(entry);
    if task.wait.as_ref().is_some_and(|w| is_another(&w.key)) {
        task.wait = None;
        system.leave_queues(task.tid);
    }
    if task.loading.as_ref().is_some_and(|l| is_another(&l.key)) {
        loading::give_up(task, host);
    }
    let (mut out, mut fpu) = (None, None);
    let traced = system.is_traced(task.tid);
    if traced {
        if let Some(wake) = enter_traced(task, system, entry) {
            return Outcome::Park(wake).into();
        }
    }
    let traced = traced && system.is_traced(task.tid);
    task.awaits = 0;
    let shares = task.shares.clone();
    // Not before the stop for a tracer, where the call has not begun. `Close` requests made before this are carried out
    // whatever the call returns.
    host.begin_call(task.tid);
    let mut result = calls::dispatch(&mut Caller {
        p: Current::new(task, &shares),
        s: system,
        h: host,
        entry,
        out: &mut out,
        fpu: &mut fpu,
    });
    drop(shares);
    if host.end_call() {
        // The call waits for the disk, whatever it has returned.
        result = Err(Stop::Park(Wake::firm()));
    }
    if task.loading.is_some() && !matches!(result, Err(Stop::Park(_) | Stop::Turn)) {
        // The call has ended without loading everything.
        loading::give_up(task, host);
    }
    // The return value; `None` if the registers have it already.
    let value = match result {
        Ok(value) => {
            task.signals.own_mask();
            Some(value)
        }
        Err(Stop::Errno(errno)) => {
            // After an interrupted wait, the handler runs with the mask of the wait.
            if errno != EINTR {
                task.signals.own_mask();
            }
            Some(errno.rax())
        }
        Err(Stop::Replaced) => None,
        Err(Stop::Park(wake)) => match interruption(task, system, &wake) {
            None => {
                // A checkpoint taken while the call waits must contain that it does, because [`interrupt`] looks for
                // that after a restore.
                task.wait.get_or_insert(Wait::new(key_of(entry)));
                return Outcome::Park(wake).into();
            }
            Some(Interruption::Done(value)) => Some(value),
            Some(_) if traced => {
                // What is kept of the call must be there when it is restarted.
                let value = trace::restart_value(entry) as u64;
                if system.ipcs.wait(task.tid).is_some() {
                    // The task leaves its queue: a result given to it meanwhile would be lost if the call were not
                    // restarted.
                    task.wait = None;
                    system.leave_queues(task.tid);
                }
                let registers = with_value(out, entry, Some(value));
                return leave_traced(task, system, host, entry, registers, fpu).into();
            }
            Some(Interruption::Again) if calls::can_restart(entry, task.wait.as_ref()) => {
                out = Some(*entry);
                None
            }
            Some(_) if calls::always_restarts(entry) => {
                out = Some(*entry);
                None
            }
            Some(_) => {
                let shares = task.shares.clone();
                calls::interrupted(&mut Caller {
                    p: Current::new(task, &shares),
                    s: system,
                    h: host,
                    entry,
                    out: &mut out,
                    fpu: &mut fpu,
                });
                Some(EINTR.rax())
            }
        },
        Err(Stop::Turn) => match cut_short(task, system, entry) {
            None => return Outcome::Turn.into(),
            Some(value) => Some(value),
        },
        Err(Stop::Execute(prepared)) => return Outcome::Execute(prepared).into(),
        Err(Stop::Native(native)) => return Outcome::Native(native).into(),
        Err(Stop::Leave(status)) => return leave(task, system, host, status).into(),
        Err(Stop::End(status)) => return end(task, system, host, status).into(),
        Err(Stop::OutOfMemory) => return out_of_memory(task, system, host).into(),
    };
    if task.wait.take().is_some() {
        system.leave_queues(task.tid);
    }
    let is_plain = !traced && out.is_none() && fpu.is_none();
    if is_plain && !is_signalled(task, system) {
        if let Some(value) = value {
            return Answer::Value(value);
        }
    }
    let registers = with_value(out, entry, value);
    if traced {
        return leave_traced(task, system, host, entry, registers, fpu).into();
    }
    if is_signalled(task, system) {
        return go_signalled(task, system, host, registers, fpu).into();
    }
    Outcome::Go { registers, fpu }.into()
}

/// The registers behind a call: `out` if the call has changed them, with its return value.
fn with_value(out: Option<Registers>, entry: &Registers, value: Option<u64>) -> Registers {
    let mut registers = out.unwrap_or_else(|| behind(entry));
    if let Some(value) = value {
        registers.rax = value;
    }
    registers
}

/// Makes a task, which must be the only one of its process, go on with another program.
pub fn execute(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    prepared: exec::Prepared,
) -> Outcome {
    let path = prepared.path().to_string();
    match exec::commit(task, system, host, prepared) {
        Ok(_) if exec::is_too_large(task, system) => killed(task, system, host, sig::SEGV, ""),
        Ok(mut registers) => {
            let fpu = Some(Box::new(FpuState(initial_fpu())));
            if task.signals.steps {
                // A debugger's single step over the call ends at the first instruction of the new program.
                registers.rflags |= trace::STEP_FLAG;
            }
            if system.is_traced(task.tid) {
                return executed_traced(task, system, host, registers, fpu);
            }
            go(task, system, host, registers, fpu)
        }
        Err(exec::Lost) => {
            host.log(&format!("{path}: could not be loaded completely"));
            end(task, system, host, Status::Killed(sig::KILL as u8))
        }
    }
}

/// Makes a task, which must be the only one of its process, stand for a native program: only its file descriptors
/// remain.
pub fn stand_in(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    native: &Native,
) -> core::result::Result<(), exec::Lost> {
    exec::leave(task, system, host)?;
    let mut memory = task.shares.memory.borrow_mut();
    memory.exe.clone_from(&native.path);
    memory.name = exec::title(native.start.args.iter().map(String::as_bytes));
    Ok(())
}

/// Handles pending signals of a task that stands for a native program; returns how it ends, if one ends it.
pub fn stand_in_signalled(task: &mut Task, system: &mut System) -> Option<Status> {
    let actions = task.shares.actions.borrow();
    let of_process = &mut system.process(task.pid).pending;
    task.signals.drop_ignored(of_process, &actions);
    while let Some(signal) = task.signals.deliverable(&system.process(task.pid).pending) {
        task.signals
            .take(&mut system.process(task.pid).pending, signal);
        if !actions.stops(signal) {
            return Some(Status::Killed(signal as u8));
        }
        system.halt(task.pid, signal);
    }
    None
}

/// The registers with which a call fails whose outcome was not decided by [`call`].
#[must_use]
pub fn failed(entry: &Registers, errno: Errno) -> Registers {
    returned(entry, errno.rax())
}

/// Ends a task and, if it is the last one, its process.
fn leave(task: &mut Task, system: &mut System, host: &mut dyn Host, status: Status) -> Outcome {
    if system.process(task.pid).tasks.len() == 1 {
        return end(task, system, host, status);
    }
    calls::futex::leave(task, system, host, &mut { MAX_ROBUST });
    task.close_files(system, host);
    system.forget_thread(task.pid, task.tid);
    Outcome::Left
}

/// What becomes of a waiting call when a signal comes.
enum Interruption {
    /// It returns what it has done so far.
    Done(u64),
    /// It is restarted behind the handler.
    Again,
    /// It fails with `EINTR`.
    Fail,
}

fn interruption(task: &mut Task, system: &mut System, wake: &Wake) -> Option<Interruption> {
    let traced = system.is_traced(task.tid);
    let of_process = &mut system.process(task.pid).pending;
    let actions = task.shares.actions.borrow();
    if !traced {
        task.signals.drop_ignored(of_process, &actions);
    }
    let mut signal = task.signals.deliverable(of_process)?;
    if wake.firm && task.signals.is_killed(of_process) {
        // `EINTR` is never seen: delivering the signal ends the process.
        return Some(Interruption::Fail);
    }
    // If the task is traced, its tracer decides about each signal.
    while !traced && actions.stops(signal) {
        // The process is stopped, and the call goes on waiting.
        task.signals
            .take(&mut system.process(task.pid).pending, signal);
        system.halt(task.pid, signal);
        signal = task
            .signals
            .deliverable(&system.process(task.pid).pending)?;
    }
    if wake.firm {
        return None;
    }
    Some(match task.wait {
        Some(wait) if wait.progress > 0 => Interruption::Done(wait.progress),
        _ if actions.restarts(signal) => Interruption::Again,
        _ => Interruption::Fail,
    })
}

/// The return value of a call between two turns that a signal interrupts; `None` if the call goes on.
fn cut_short(task: &mut Task, system: &mut System, entry: &Registers) -> Option<u64> {
    let is_written = task.wait.is_some_and(|wait| wait.is_written);
    let wake = Wake {
        // Loading must be complete or not happen at all.
        firm: task.loading.is_some() || is_written || calls::is_firm(entry),
        ..Wake::default()
    };
    Some(match interruption(task, system, &wake)? {
        Interruption::Done(done) => done,
        _ => EINTR.rax(),
    })
}

/// Whether a signal is to be delivered before the thread goes on. If not, the thread's own signal mask is restored.
#[inline(always)]
fn is_signalled(task: &mut Task, system: &mut System) -> bool {
    let of_process = &system.process(task.pid).pending;
    if task.signals.deliverable(of_process).is_some() {
        return true;
    }
    task.signals.own_mask();
    false
}

/// Delivers pending signals and makes the thread go on.
fn go(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    registers: Registers,
    fpu: Option<Fpu>,
) -> Outcome {
    if system.is_traced(task.tid) {
        return go_traced(task, system, host, registers, fpu);
    }
    if is_signalled(task, system) {
        return go_signalled(task, system, host, registers, fpu);
    }
    Outcome::Go { registers, fpu }
}

/// Delivers pending signals, of which there is at least one, and makes the thread go on.
#[inline(never)]
fn go_signalled(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    mut registers: Registers,
    mut fpu: Option<Fpu>,
) -> Outcome {
    let delivered = {
        let memory = task.shares.memory.borrow();
        let mut actions = task.shares.actions.borrow_mut();
        task.signals.deliver_pending(
            &mut system.process(task.pid).pending,
            &mut actions,
            &memory.areas,
            host,
            (&mut registers, &mut fpu),
        )
    };
    match delivered {
        Ok(Delivery::Go) => {}
        Ok(Delivery::Stop(signal)) => system.halt(task.pid, signal),
        Ok(Delivery::End(signal)) => return killed(task, system, host, signal, ""),
        Err(OutOfMemory) => return out_of_memory(task, system, host),
    }
    Outcome::Go { registers, fpu }
}

/// A traced task is about to make a call: stops it for its tracer if that has asked for it, and returns its wait.
#[cold]
fn enter_traced(task: &mut Task, system: &mut System, entry: &Registers) -> Option<Wake> {
    let tid = task.tid;
    let key = key_of(entry);
    let trace = system.trace_mut(tid)?;
    trace.look = false;
    if trace.leaves {
        system.forget_trace(tid);
        return None;
    }
    if trace.entered != Some(key) {
        trace.entered = Some(key);
        trace.call = entry.rax as i64;
        (trace.exits, trace.events) = (false, Vec::new());
        if trace.mode == trace::Mode::Calls {
            system.stop_traced(tid, [trace::Stop::Enter]);
            return Some(Wake::firm());
        }
    }
    let ends = matches!(entry.rax, number::exit | number::exit_group);
    if ends && !trace.exits && trace.has(trace::option::of(trace::event::EXIT)) {
        trace.exits = true;
        trace.message = (entry.rdi & 0xff) << 8;
        system.stop_traced(tid, [trace::Stop::Event(trace::event::EXIT)]);
        return Some(Wake::firm());
    }
    None
}

/// A traced task has made a call: stops it for its tracer as asked, or makes it go on.
#[cold]
fn leave_traced(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    entry: &Registers,
    mut registers: Registers,
    fpu: Option<Fpu>,
) -> Outcome {
    let mut stops = Vec::new();
    if let Some(trace) = system.trace_mut(task.tid) {
        trace.entered = None;
        // The flag was among the registers of the call; `go_traced` sets it again for the next step.
        registers.rflags &= !trace::STEP_FLAG;
        if entry.rax == number::rt_sigreturn {
            trace.call = -1;
        }
        let events = core::mem::take(&mut trace.events);
        stops.extend(events.into_iter().map(trace::Stop::Event));
        match trace.mode {
            trace::Mode::Free if stops.is_empty() => {}
            trace::Mode::Free | trace::Mode::Calls => stops.push(trace::Stop::Exit),
            trace::Mode::Step => {
                let origin = Origin {
                    code: 1,
                    address: registers.rip,
                    ..Origin::default()
                };
                stops.push(trace::Stop::Signal(sig::TRAP, origin));
            }
        }
    }
    stop_or_go(task, system, host, stops, registers, fpu)
}

/// Stops a traced task at `stops`, one after the other; makes it go on if there are none.
fn stop_or_go(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    stops: Vec<trace::Stop>,
    registers: Registers,
    fpu: Option<Fpu>,
) -> Outcome {
    if stops.is_empty() {
        return go_traced(task, system, host, registers, fpu);
    }
    system.stop_traced(task.tid, stops);
    Outcome::Go { registers, fpu }
}

/// A traced task has executed another program: stops it for its tracer as asked, or makes it go on.
#[cold]
fn executed_traced(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    registers: Registers,
    fpu: Option<Fpu>,
) -> Outcome {
    let number = u64::from(task.number);
    let mut stops = Vec::new();
    if let Some(trace) = system.trace_mut(task.tid) {
        (trace.entered, trace.message) = (None, number);
        if trace.has(trace::option::of(trace::event::EXEC)) {
            stops.push(trace::Stop::Event(trace::event::EXEC));
        } else {
            let origin = Origin {
                pid: task.number,
                ..Origin::default()
            };
            task.signals.pending.add(sig::TRAP, origin);
        }
        if trace.mode == trace::Mode::Calls || !stops.is_empty() {
            stops.push(trace::Stop::Exit);
        }
    }
    stop_or_go(task, system, host, stops, registers, fpu)
}

/// Makes a traced task go on, or stops it before a signal is delivered.
#[cold]
fn go_traced(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    mut registers: Registers,
    mut fpu: Option<Fpu>,
) -> Outcome {
    let tid = task.tid;
    loop {
        let Some(trace) = system.trace_mut(tid) else {
            return go(task, system, host, registers, fpu);
        };
        if let Some((signal, origin)) = trace.signal.take() {
            let delivered = {
                let memory = task.shares.memory.borrow();
                let mut actions = task.shares.actions.borrow_mut();
                if actions.is_caught(signal) {
                    let restarts = actions.restarts(signal);
                    trace::settle_restart(trace, &mut registers, Some(restarts));
                    trace.call = -1;
                }
                task.signals.deliver(
                    &mut actions,
                    &memory.areas,
                    host,
                    (&mut registers, &mut fpu),
                    signal,
                    origin,
                )
            };
            match delivered {
                Ok(Delivery::Go) => {}
                Ok(Delivery::Stop(signal)) if system.trace(tid).is_some_and(|t| t.leaves) => {
                    system.halt(task.pid, signal);
                }
                Ok(Delivery::Stop(signal)) => {
                    system.stop_traced(tid, [trace::Stop::Group(signal)]);
                    return Outcome::Go { registers, fpu };
                }
                Ok(Delivery::End(signal)) => return killed(task, system, host, signal, ""),
                Err(OutOfMemory) => return out_of_memory(task, system, host),
            }
            continue;
        }
        if trace.leaves {
            trace::settle_restart(trace, &mut registers, None);
            system.forget_trace(tid);
            return go(task, system, host, registers, fpu);
        }
        let Some(signal) = task.signals.deliverable(&system.process(task.pid).pending) else {
            break;
        };
        let origin = task
            .signals
            .take(&mut system.process(task.pid).pending, signal);
        if signal == sig::KILL {
            return killed(task, system, host, signal, "");
        }
        system.stop_traced(tid, [trace::Stop::Signal(signal, origin)]);
        return Outcome::Go { registers, fpu };
    }
    task.signals.own_mask();
    if let Some(trace) = system.trace_mut(tid) {
        trace::settle_restart(trace, &mut registers, None);
        (trace.call, trace.look, trace.entered) = (-1, false, None);
        if trace.mode == trace::Mode::Step {
            registers.rflags |= trace::STEP_FLAG;
        }
    }
    Outcome::Go { registers, fpu }
}

/// Delivers pending signals to a thread that is stopped outside of any call, as far as the kernel knows.
pub fn interrupt(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    registers: &Registers,
) -> Outcome {
    let key = key_of(registers);
    let is_amid = |wait: &Wait| wait.key == key && wait.progress > 0;
    let mut registers = *registers;
    if system
        .trace(task.tid)
        .is_some_and(|trace| trace.entered == Some(key))
    {
        // It is about to make a call that its tracer knows of: signals are delivered behind the call.
        return Outcome::Go {
            registers,
            fpu: None,
        };
    }
    let of_process = &system.process(task.pid).pending;
    let is_killed = task.signals.is_killed(of_process);
    let makes_again = task.wait.as_ref().is_some_and(|wait| wait.key == key);
    let is_queued = makes_again && system.ipcs.wait(task.tid).is_some();
    if is_queued && system.has_outcome(task.tid) && !is_killed {
        // It is about to get the result of its wait in a queue, which would be lost: signals are delivered behind that.
        return Outcome::Go {
            registers,
            fpu: None,
        };
    }
    let loads = task.loading.as_ref().is_some_and(|l| l.key == key);
    if loads || is_queued || calls::goes_on(&registers) && task.wait.as_ref().is_some_and(is_amid) {
        // It is about to go on with a call that is partly done, or has a place in a queue.
        match cut_short(task, system, &registers) {
            None => {
                return Outcome::Go {
                    registers,
                    fpu: None,
                }
            }
            Some(value) => {
                registers = behind(&registers);
                registers.rax = value;
                task.wait = None;
                system.leave_queues(task.tid);
            }
        }
    } else if makes_again && !is_killed && !system.is_traced(task.tid) {
        // It was restored while a call was waiting, and is about to make that call again. The signal has to interrupt
        // the call, which then fails, restarts, returns its progress or goes on waiting ([`interruption`]). If the
        // handler ran first, its calls would void what is kept of this call, which would then begin anew.
        return Outcome::Go {
            registers,
            fpu: None,
        };
    }
    go(task, system, host, registers, None)
}

/// Ends the process: closes its files and tells other processes. The host ends its other tasks ([`abandon`]).
pub fn end(task: &mut Task, system: &mut System, host: &mut dyn Host, status: Status) -> Outcome {
    abandon(task, system, host, &mut { MAX_ROBUST });
    let process = system.process(task.pid);
    // The tree has ended, so the console gets its normal mode; the end of a child leaves the mode to the others.
    if process.termios.is_some() && process.root == task.pid {
        host.console_mode(Mode::Cooked);
    }
    system.end(task.pid, status);
    Outcome::End(status)
}

/// Ends a task because its process ends or executes another program. `entries`: how many entries of robust lists may
/// still be looked at in this step, in which other tasks may end, too.
pub fn abandon(task: &mut Task, system: &mut System, host: &mut dyn Host, entries: &mut usize) {
    loading::give_up(task, host);
    system.leave_queues(task.tid);
    let process = system.process(task.pid);
    let is_alone = Rc::strong_count(&task.shares.memory) <= process.tasks.len();
    let has_objects = !task.shares.memory.borrow().objects.is_empty();
    if !is_alone || has_objects {
        // Another process is in the same memory, or maps some of its memory objects: futexes there must be released.
        calls::futex::leave(task, system, host, entries);
    }
    task.close_files(system, host);
}

/// Ends the process by a signal. If it has no parent that could report this, a line on the console does.
fn killed(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    signal: u32,
    detail: &str,
) -> Outcome {
    let has_parent = system.find(task.pid).is_some_and(|p| p.parent.is_some());
    if !has_parent {
        let name = task.name();
        host.log(&match signal::describe(signal) {
            Some(what) => format!("{name}: {what}{detail}"),
            None => format!("{name}: ended by signal {signal}"),
        });
    }
    end(task, system, host, Status::Killed(signal as u8))
}

fn out_of_memory(task: &mut Task, system: &mut System, host: &mut dyn Host) -> Outcome {
    host.log(&format!("{}: ended, because memory is out", task.name()));
    end(task, system, host, Status::Killed(sig::KILL as u8))
}

/// The processor's number for a page fault.
const PAGE_FAULT: u64 = 14;
/// The processor's number for a stack fault.
const STACK_FAULT: u64 = 12;

/// `si_code` of a floating-point error of the thread.
fn floating_code(host: &mut dyn Host, kind: Exception) -> i32 {
    let mut state = initial_fpu();
    host.fpu(&mut state);
    let half = |at: usize| u32::from(u16::from_le_bytes([state[at], state[at + 1]]));
    signal::floating_code(match kind {
        // Status word without the exceptions that the control word masks.
        Exception::X87 => half(2) & !half(0),
        // `MXCSR` has both flags and masks.
        _ => half(24) & !(half(24) >> 7),
    })
}

/// The area of a memory access that failed, and the rights that the access needs.
fn access(task: &Task, message: &ExceptionMessage) -> (Option<Area>, Prot) {
    let memory = task.shares.memory.borrow();
    let area = memory.areas.find(message.address).copied();
    (area, (message.detail & 7) as Prot)
}

/// Whether the area allows the access, so that it failed because no memory was free for the page.
fn lacks_memory(area: Option<Area>, need: Prot) -> bool {
    area.is_some_and(|area| area.allows(need) && area.prot != 0)
}

/// Whether the exception was caused by a lack of memory only, and memory was found by giving up templates. The access
/// is to be repeated then, and nobody learns of the exception.
pub fn finds_memory(task: &Task, host: &mut dyn Host, message: &ExceptionMessage) -> bool {
    let (area, need) = access(task, message);
    message.code == Exception::Memory as u64 && lacks_memory(area, need) && host.give_up_templates()
}

/// Turns an exception into a signal, or hands it to the task's tracer.
pub fn exception(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    message: &ExceptionMessage,
) -> Outcome {
    let mut registers = message.registers;
    let at = registers.rip;
    let here = format!(" at {at:#x}");
    let mut fault = Fault {
        number: message.code,
        error: message.detail,
        ..task.signals.fault
    };
    // The signal, its `si_code` and address, and the text for the console.
    let (signal, code, address, detail) = match Exception::from_raw(message.code) {
        Some(Exception::Divide) => (sig::FPE, 1, at, here),
        Some(kind @ (Exception::X87 | Exception::Simd)) => {
            (sig::FPE, floating_code(host, kind), at, here)
        }
        Some(Exception::Debug) => (sig::TRAP, 2, at, here),
        Some(Exception::Breakpoint) => {
            registers.rip = at.wrapping_add(1);
            (sig::TRAP, 0x80, 0, here)
        }
        Some(Exception::InvalidOpcode) => (sig::ILL, 2, at, here),
        Some(Exception::Alignment) => (sig::BUS, 1, message.address, here),
        Some(Exception::Processor) => {
            // Of the exceptions without a code of their own, a program can only cause the stack fault.
            fault.number = STACK_FAULT;
            (sig::BUS, 0x80, 0, format!(": forbidden address at {at:#x}"))
        }
        Some(Exception::Memory) => {
            let address = message.address;
            let (area, need) = access(task, message);
            let mut lacks = false;
            if lacks_memory(area, need) {
                if host.give_up_templates() {
                    return Outcome::Go {
                        registers,
                        fpu: None,
                    };
                }
                // The pages of a memory object count for who has mapped it first, so the program may not be to blame.
                let is_shared = area.is_some_and(|area| area.object().is_some());
                if !is_shared {
                    return out_of_memory(task, system, host);
                }
                lacks = true;
            }
            let is_there = area.is_some_and(|area| area.prot != 0) && host.is_present(address, 1);
            let bits = [
                (is_there, Fault::PRESENT),
                (need & WRITE != 0, Fault::WRITE),
                (need & EXECUTE != 0, Fault::FETCH),
            ];
            let bits = bits.into_iter().filter(|(is, _)| *is).map(|(_, bit)| bit);
            fault = Fault {
                number: PAGE_FAULT,
                error: Fault::USER | bits.sum::<u64>(),
                address,
            };
            let code = if area.is_some() { 2 } else { 1 };
            match lacks {
                true => (
                    sig::BUS,
                    2,
                    address,
                    format!(": no memory for {address:#x} at {at:#x}"),
                ),
                false => (
                    sig::SEGV,
                    code,
                    address,
                    format!(": access to {address:#x} at {at:#x}"),
                ),
            }
        }
        _ => (
            sig::SEGV,
            0x80,
            0,
            format!(": forbidden instruction or address at {at:#x}"),
        ),
    };
    task.signals.fault = fault;
    let origin = Origin {
        code,
        address,
        ..Origin::default()
    };
    if system.is_traced(task.tid) {
        registers.rflags &= !trace::STEP_FLAG;
        if !system.trace(task.tid).is_some_and(|trace| trace.leaves) {
            system.stop_traced(task.tid, [trace::Stop::Signal(signal, origin)]);
            return Outcome::Go {
                registers,
                fpu: None,
            };
        }
        // The tracer has detached, so a single step that it asked for means nothing any more.
        if (signal, code) == (sig::TRAP, 2) {
            return go_traced(task, system, host, registers, None);
        }
        system.forget_trace(task.tid);
    }
    // The handler of a floating-point error would meet the error again if it began with the thread's FPU state.
    let mut fpu = None;
    let delivered = {
        let memory = task.shares.memory.borrow();
        let mut actions = task.shares.actions.borrow_mut();
        let signals = &mut task.signals;
        signals.deliver_fault(
            &mut actions,
            &memory.areas,
            host,
            (&mut registers, &mut fpu),
            signal,
            origin,
        )
    };
    match delivered {
        Ok(Delivery::Go | Delivery::Stop(_)) => Outcome::Go { registers, fpu },
        Ok(Delivery::End(signal)) => killed(task, system, host, signal, &detail),
        Err(OutOfMemory) => out_of_memory(task, system, host),
    }
}

/// What a thread is about to do, as text, from its exported state.
#[must_use]
pub fn describe(registers: &Registers, in_call: bool) -> String {
    if !in_call {
        return format!("runs at {:#x}", registers.rip);
    }
    match number::name(registers.rax) {
        Some(name) => format!(
            "Linux {name}({:#x}, {:#x}, {:#x})",
            registers.rdi, registers.rsi, registers.rdx
        ),
        None => format!("Linux call {}", registers.rax),
    }
}
