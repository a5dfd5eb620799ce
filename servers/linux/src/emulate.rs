//! One call, or one exception, from the registers of a thread to what becomes of it.
//!
//! [`call`] is the whole personality in one function: it takes the registers of a thread that
//! stands at a `syscall` instruction and either completes the call ([`Outcome::Go`]), finds that
//! it cannot be completed yet and leaves everything as it was ([`Outcome::Park`]), or ends the
//! process. A parked call is simply given to [`call`] again when its [`Wake`] says so, or after a
//! restore. What must survive that (a deadline, bytes already written to the console) is in
//! [`Wait`], which only the very same call finds again.

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

/// Most bytes that a call moves before all others have their turn: that takes about a million instructions.
pub const STEP: u64 = 1 << 20;

/// What a call waits for: mostly one thing.
pub type Keys = smallvec::SmallVec<[Key; 1]>;

/// When a call that waits is worth trying again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// When one of these has happened.
    pub keys: Keys,
    /// Only if they may be ready for one of these events then; `None`: whatever happened.
    pub events: Option<u32>,
    /// At this time on the process's clock.
    pub deadline: Option<u64>,
    /// Only a signal that ends the process ends the wait.
    pub firm: bool,
}

impl Wake {
    /// When this happens.
    #[must_use]
    pub fn on(key: Key) -> Self {
        Wake {
            keys: Keys::from_buf([key]),
            ..Wake::default()
        }
    }

    /// When the host says so.
    #[must_use]
    pub fn firm() -> Self {
        Wake {
            firm: true,
            ..Wake::default()
        }
    }

    /// At this time.
    #[must_use]
    pub fn at(deadline: Option<u64>) -> Self {
        Wake {
            deadline,
            ..Wake::default()
        }
    }
}

/// What happens to the thread next.
#[derive(Debug)]
pub enum Outcome {
    /// It goes on with these registers, and with this FPU state if one is given.
    Go {
        /// The registers.
        registers: Registers,
        /// A new FPU state.
        fpu: Option<Fpu>,
    },
    /// It waits. The call has changed nothing and is made again later.
    Park(Wake),
    /// The call has done a part of what it is to do ([`Wait::progress`]). It is made again, with the registers as they
    /// are, when others have had their turn: the thread is to go on at its `syscall` instruction, behind them.
    Turn,
    /// The task has ended, and others of its process go on.
    Left,
    /// The process has ended.
    End(Status),
    /// It is to go on with another program ([`execute`]), as the only task of its process.
    Execute(Box<exec::Prepared>),
    /// Its process is to stand for a native program ([`stand_in`]).
    Native(Box<Native>),
}

/// What a call has come to.
#[derive(Debug)]
pub enum Answer {
    /// The thread goes on behind it with this value, and with all else as it was: most calls do.
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
    /// Whether the call has ended, and is not to be made again.
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

/// Why a call does not simply return a value.
pub enum Stop {
    /// It fails.
    Errno(Errno),
    /// It waits.
    Park(Wake),
    /// It goes on when others have had their turn ([`Caller::turn`]).
    Turn,
    /// It ends the task, and with the last one the process.
    Leave(Status),
    /// It ends the process.
    End(Status),
    /// The registers are set already.
    Replaced,
    /// It goes on with another program.
    Execute(Box<exec::Prepared>),
    /// Its process stands for a native program from now on.
    Native(Box<Native>),
    /// No memory is free for the pages that the call touches.
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

/// What a call returns.
pub type Result<T = u64> = core::result::Result<T, Stop>;

/// Most links in the way of a path that only this server knows.
pub const MAX_LINKS: usize = 8;
/// `AT_FDCWD`.
pub use linux_raw_sys::general::AT_FDCWD;

/// What a path leads to before the file system is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An absolute path in the file system.
    Path(String),
    /// A name that is special.
    Special(Special),
}

/// A task in the middle of a call.
pub struct Caller<'a> {
    /// The task, and all that it shares.
    pub p: Current<'a>,
    /// All processes.
    pub s: &'a mut System,
    /// Memory, files and clock of the process.
    pub h: &'a mut dyn Host,
    /// The registers at the `syscall` instruction.
    pub entry: &'a Registers,
    /// The registers after it, if they differ by more than the result, which goes into `rax` at the end.
    pub out: &'a mut Option<Registers>,
    /// A new FPU state.
    pub fpu: &'a mut Option<Fpu>,
}

impl Caller<'_> {
    /// The registers after the call, to be changed; the result goes into `rax` at the end.
    pub fn out(&mut self) -> &mut Registers {
        self.out.get_or_insert_with(|| behind(self.entry))
    }

    /// What tells this call from others.
    #[must_use]
    pub const fn key(&self) -> CallKey {
        key_of(self.entry)
    }

    /// The process's clock.
    pub fn now(&mut self) -> u64 {
        self.p.task.now(self.h)
    }

    /// What is known of the process.
    pub fn process(&mut self) -> &mut Process {
        self.s.process(self.p.task.pid)
    }

    /// Whether a signal is about to be delivered to the task.
    pub fn is_signalled(&mut self) -> bool {
        let of_process = &self.s.process(self.p.task.pid).pending;
        self.p.task.signals.deliverable(of_process).is_some()
    }

    /// How it reads the console, which is had to treat input so if its tree has set that: others may have had it since, or
    /// the tree was restored.
    pub fn console_mode(&mut self) -> Mode {
        let settings = self.s.console_settings(self.p.task.pid);
        let (mode, is_set) = (System::console_mode(settings), settings.is_some());
        if is_set {
            self.h.console_mode(mode);
        }
        mode
    }

    /// The date: nanoseconds since the beginning of 1970. It is the machine's, also for a process that was restored.
    pub fn date(&mut self) -> u64 {
        self.h.date()
    }

    // --- Memory of the program ---

    /// Fails unless the whole range allows `need`. Nothing can be anywhere but where the kernel is on Linux.
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

    /// Reads a string that ends with a zero byte before `limit`.
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

    /// Asks the file system.
    pub fn fs(&mut self, request: &Request) -> Result<Reply> {
        Ok(self.h.fs(request, &[], &mut [])?.0)
    }

    /// Asks for attributes.
    pub fn attr(&mut self, request: &Request) -> Result<Attr> {
        match self.fs(request)? {
            Reply::Attr(attr) => Ok(attr),
            _ => Err(EIO.into()),
        }
    }

    /// Opens.
    pub fn open(&mut self, path: String, flags: Flags, mode: u32) -> Result<Opened> {
        match self.fs(&Request::Open { path, flags, mode })? {
            Reply::Opened(opened) => Ok(opened),
            _ => Err(EIO.into()),
        }
    }

    /// Does something with what a path leads to, which is open meanwhile.
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

    /// Waits until what was written to a file is durable, before the last one who has it open gives it up.
    pub fn settle(&mut self, ino: u64) -> Result<()> {
        if self.h.is_unsynced(ino) {
            // What cannot be done is told to nobody, as it is not when the file is closed.
            let _ = self.fs(&Request::Sync { ino });
            if self.h.waits() {
                return Err(Stop::Park(Wake::firm()));
            }
        }
        Ok(())
    }

    /// Asks for a path.
    pub fn fs_path(&mut self, request: &Request) -> Result<String> {
        match self.fs(request)? {
            Reply::Path(path) => Ok(path),
            _ => Err(EIO.into()),
        }
    }

    /// What a path leads to, seen from the directory `dirfd`.
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

    /// A path that goes through links which only this server knows (`/proc/self/cwd/file`, `/dev/fd/3/file`) without these.
    fn through_links(&mut self, mut absolute: String) -> Result<String> {
        // One of another process can lead to one again.
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

    /// The same without the first one of them.
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
                // What another process has open is that one's.
                Some(Special::DescriptorOf(..)) => return Err(EACCES.into()),
                Some(_) => continue,
            };
            return Ok(Some(path::join(&to, rest)));
        }
        Ok(None)
    }

    // --- Waiting ---

    /// What is kept of this call from its earlier attempts.
    pub fn wait(&mut self) -> &mut Wait {
        let key = self.key();
        self.p.task.wait.get_or_insert(Wait::new(key))
    }

    /// How much of this call its earlier attempts have done.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.p.task.wait.map_or(0, |wait| wait.progress)
    }

    /// So much of the call is done, which is more than nothing; it goes on when others have had their turn.
    pub fn turn(&mut self, done: u64) -> Stop {
        self.wait().progress = done;
        Stop::Turn
    }

    /// The deadline of this call, which begins `nanoseconds` after its first attempt.
    pub fn deadline_after(&mut self, nanoseconds: u64) -> u64 {
        let now = self.now();
        *self
            .wait()
            .deadline
            .get_or_insert(now.saturating_add(nanoseconds))
    }

    /// Says something about the process, once for each `topic`.
    pub fn report(&mut self, topic: u64, sentence: &str) {
        if self.is_new(topic) {
            let line = format!("{}: {sentence}", self.p.memory.name);
            self.h.log(&line);
        }
    }

    /// The same of what a program may only have tried: for who asks for it.
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

/// What tells a call from others.
pub(crate) const fn key_of(r: &Registers) -> CallKey {
    [r.rip, r.rsp, r.rax, r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
}

/// Length of the `syscall` instruction.
const CALL_BYTES: u64 = 2;

/// The registers behind the `syscall` instruction.
pub(crate) fn behind(entry: &Registers) -> Registers {
    let mut out = *entry;
    out.rip = out.rip.wrapping_add(CALL_BYTES);
    out.rcx = out.rip;
    out.r11 = out.rflags;
    out
}

/// The same of a call that returns this.
fn returned(entry: &Registers, rax: u64) -> Registers {
    Registers {
        rax,
        ..behind(entry)
    }
}

/// What controls a thread behind its call, which returns this. `rcx` and `r11`, which the instruction overwrites, are not
/// touched: programs must not rely on them.
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

/// Emulates the call that the registers say.
pub fn call(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    entry: &Registers,
) -> Outcome {
    answer(task, system, host, entry).outcome(entry)
}

/// As [`call`], where most calls only return a value.
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
    // Not before: one that stops first has not begun, and what was closed above is closed whatever it comes to.
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
        // Whatever it made of that.
        result = Err(Stop::Park(Wake::firm()));
    }
    if task.loading.is_some() && !matches!(result, Err(Stop::Park(_) | Stop::Turn)) {
        // It has failed.
        loading::give_up(task, host);
    }
    // What it returns, unless the registers say so already.
    let value = match result {
        Ok(value) => {
            task.signals.own_mask();
            Some(value)
        }
        Err(Stop::Errno(errno)) => {
            // Who was interrupted has the handler run with the mask of the wait.
            if errno != EINTR {
                task.signals.own_mask();
            }
            Some(errno.rax())
        }
        Err(Stop::Replaced) => None,
        Err(Stop::Park(wake)) => match interruption(task, system, &wake) {
            None => {
                // Whoever saves it now saves that it waits: `interrupt` asks for that in the restored one.
                task.wait.get_or_insert(Wait::new(key_of(entry)));
                return Outcome::Park(wake).into();
            }
            Some(Interruption::Done(value)) => Some(value),
            Some(_) if traced => {
                // What is kept of it is there when it begins again.
                let value = trace::restart_value(entry) as u64;
                if system.ipcs.wait(task.tid).is_some() {
                    // It queues anew: what was given to it meanwhile would be lost if it does not begin again.
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

/// The registers behind a call that has changed these, if any, with the value that it returns.
fn with_value(out: Option<Registers>, entry: &Registers, value: Option<u64>) -> Registers {
    let mut registers = out.unwrap_or_else(|| behind(entry));
    if let Some(value) = value {
        registers.rax = value;
    }
    registers
}

/// Lets a task, which is the only one of its process, go on with another program.
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
                // A debugger's step over the call ends in the new program.
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

/// Has a task, which is the only one of its process, stand for a native program: of what it was only its descriptors remain.
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

/// What becomes of a task that stands for a native program when a signal has come: how it ends, if it does.
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

/// The registers with which a call fails that was not made by [`call`].
#[must_use]
pub fn failed(entry: &Registers, errno: Errno) -> Registers {
    returned(entry, errno.rax())
}

/// The task ends, and with the last one its process.
fn leave(task: &mut Task, system: &mut System, host: &mut dyn Host, status: Status) -> Outcome {
    if system.process(task.pid).tasks.len() == 1 {
        return end(task, system, host, status);
    }
    calls::futex::leave(task, system, host, &mut { MAX_ROBUST });
    task.close_files(system, host);
    system.forget_thread(task.pid, task.tid);
    Outcome::Left
}

/// How a call that waits goes on when a signal comes.
enum Interruption {
    /// With what it has done so far.
    Done(u64),
    /// It begins again behind the handler.
    Again,
    /// It fails.
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
        // `go` ends the process.
        return Some(Interruption::Fail);
    }
    // Who traces it is asked about each.
    while !traced && actions.stops(signal) {
        // The call waits on while the process is stopped, and afterwards.
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

/// What a call returns that has done a part and gets a signal now; `None` if it goes on.
fn cut_short(task: &mut Task, system: &mut System, entry: &Registers) -> Option<u64> {
    let is_written = task.wait.is_some_and(|wait| wait.is_written);
    let wake = Wake {
        // What is loaded is there as a whole or not at all.
        firm: task.loading.is_some() || is_written || calls::is_firm(entry),
        ..Wake::default()
    };
    Some(match interruption(task, system, &wake)? {
        Interruption::Done(done) => done,
        _ => EINTR.rax(),
    })
}

/// Whether a thread that is to go on has a signal first. If not it has its own mask again.
#[inline(always)]
fn is_signalled(task: &mut Task, system: &mut System) -> bool {
    let of_process = &system.process(task.pid).pending;
    if task.signals.deliverable(of_process).is_some() {
        return true;
    }
    task.signals.own_mask();
    false
}

/// Delivers pending signals and lets the thread go on.
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

/// The same if there is a signal to be delivered.
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

/// A task that is traced is about to make a call: where it stops first.
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

/// A task that is traced has made a call.
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
        // It came with the registers of the call; `go_traced` sets it for the next step.
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

/// A task that is traced stops at these, one after the other, or goes on.
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

/// A task that is traced has another program.
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

/// Lets a task that is traced go on, or stop before a signal is delivered.
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

/// Delivers pending signals to a thread that runs. It has been stopped outside of any call, as far as the kernel knows.
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
        // It is about to make a call, of which its tracer knows: signals come behind it.
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
        // It is about to be told what has been done for it, which would be lost: signals come behind that.
        return Outcome::Go {
            registers,
            fpu: None,
        };
    }
    let loads = task.loading.as_ref().is_some_and(|l| l.key == key);
    if loads || is_queued || calls::goes_on(&registers) && task.wait.as_ref().is_some_and(is_amid) {
        // It is about to go on with a call of which a part is done, or that has a place in a queue.
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
        // It was restored amid a call that waits, and is about to make that again. The call is what the signal meets: it
        // fails, begins again, says what it has done, or goes on ([`interruption`]). Were the handler first, the calls of
        // that would make void what is kept of this one, which would begin afresh behind it.
        return Outcome::Go {
            registers,
            fpu: None,
        };
    }
    go(task, system, host, registers, None)
}

/// Ends the process: its files are closed, and others know. Whoever has its other tasks ends those ([`abandon`]).
pub fn end(task: &mut Task, system: &mut System, host: &mut dyn Host, status: Status) -> Outcome {
    abandon(task, system, host, &mut { MAX_ROBUST });
    let process = system.process(task.pid);
    // The tree has given the console back; a child leaves it to the others as it is.
    if process.termios.is_some() && process.root == task.pid {
        host.console_mode(Mode::Cooked);
    }
    system.end(task.pid, status);
    Outcome::End(status)
}

/// A task ends because its process does, or goes on with another program. `entries`: how many more of its list of locks
/// may be looked at in this step, in which others may end, too.
pub fn abandon(task: &mut Task, system: &mut System, host: &mut dyn Host, entries: &mut usize) {
    loading::give_up(task, host);
    system.leave_queues(task.tid);
    let process = system.process(task.pid);
    let is_alone = Rc::strong_count(&task.shares.memory) <= process.tasks.len();
    let has_objects = !task.shares.memory.borrow().objects.is_empty();
    if !is_alone || has_objects {
        // Another process is in the same memory, or has a part of it in its own.
        calls::futex::leave(task, system, host, entries);
    }
    task.close_files(system, host);
}

/// Ends the process by a signal, with a line on the console if nobody waits for it who could say so.
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

/// The processor's number for an access that is forbidden.
const PAGE_FAULT: u64 = 14;
/// The same for an address that none of a stack can be.
const STACK_FAULT: u64 = 12;

/// `si_code` of an error in floating point that the thread has met.
fn floating_code(host: &mut dyn Host, kind: Exception) -> i32 {
    let mut state = initial_fpu();
    host.fpu(&mut state);
    let half = |at: usize| u32::from(u16::from_le_bytes([state[at], state[at + 1]]));
    signal::floating_code(match kind {
        // Control word and status word.
        Exception::X87 => half(2) & !half(0),
        // `MXCSR` has both.
        _ => half(24) & !(half(24) >> 7),
    })
}

/// The area of a bad access, and the rights that it needs.
fn access(task: &Task, message: &ExceptionMessage) -> (Option<Area>, Prot) {
    let memory = task.shares.memory.borrow();
    let area = memory.areas.find(message.address).copied();
    (area, (message.detail & 7) as Prot)
}

/// Whether the area allows the access, so that no memory was free for the page.
fn lacks_memory(area: Option<Area>, need: Prot) -> bool {
    area.is_some_and(|area| area.prot & need == need && area.prot != 0)
}

/// Whether the exception comes of nothing that a program has done but of memory that was short, and there is some now: so
/// it is to be told to nobody.
pub fn finds_memory(task: &Task, host: &mut dyn Host, message: &ExceptionMessage) -> bool {
    let (area, need) = access(task, message);
    message.code == Exception::Memory as u64 && lacks_memory(area, need) && host.give_up_templates()
}

/// Turns an exception into a signal.
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
    // The signal, its code and address, and what to tell people.
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
            // Of those that have no code of their own a program meets that of the stack.
            fault.number = STACK_FAULT;
            (sig::BUS, 0x80, 0, format!(": forbidden address at {at:#x}"))
        }
        Some(Exception::Memory) => {
            let address = message.address;
            let (area, need) = access(task, message);
            if lacks_memory(area, need) {
                if host.give_up_templates() {
                    return Outcome::Go {
                        registers,
                        fpu: None,
                    };
                }
                return out_of_memory(task, system, host);
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
            (
                sig::SEGV,
                code,
                address,
                format!(": access to {address:#x} at {at:#x}"),
            )
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
        // Its tracer has left, and the step that he wanted means nothing any more.
        if (signal, code) == (sig::TRAP, 2) {
            return go_traced(task, system, host, registers, None);
        }
        system.forget_trace(task.tid);
    }
    // The handler of an error in floating point would meet it again, if it began with the thread's state.
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

/// What a thread is about to do, in words, from its exported state.
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
