//! Signals: their actions, and their delivery.
//!
//! A signal with a handler is delivered as on Linux: a frame with the interrupted registers is written to the program's
//! stack, and `rt_sigreturn` restores them from it. Signals are delivered when this server has the thread's registers
//! anyway: at the end of a call, at an exception, or after stopping the thread.

use abi::state::{initial_fpu, FpuState, FPU_BYTES};
use abi::Registers;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use linux_raw_sys::general::{self as linux, SI_KERNEL};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::host::{Fpu, Host, OutOfMemory};
use crate::memory::{self, Areas};
use crate::trace::STEP_FLAG;
use crate::wire::{u32_at, u64_at};

/// Number of signals; they count from 1.
pub const SIGNALS: u32 = 64;

/// Signal numbers.
pub mod sig {
    pub use linux_raw_sys::general::{
        SIGABRT as ABRT, SIGALRM as ALRM, SIGBUS as BUS, SIGCHLD as CHLD, SIGCONT as CONT,
        SIGFPE as FPE, SIGHUP as HUP, SIGILL as ILL, SIGINT as INT, SIGKILL as KILL,
        SIGPIPE as PIPE, SIGPROF as PROF, SIGQUIT as QUIT, SIGSEGV as SEGV, SIGSTOP as STOP,
        SIGTERM as TERM, SIGTRAP as TRAP, SIGTSTP as TSTP, SIGTTIN as TTIN, SIGTTOU as TTOU,
        SIGURG as URG, SIGVTALRM as VTALRM, SIGWINCH as WINCH, SIGXCPU as XCPU, SIGXFSZ as XFSZ,
    };
}

/// Flags of [`Action`].
mod flag {
    use linux_raw_sys::general as linux;
    pub(super) const ONSTACK: u64 = linux::SA_ONSTACK as u64;
    pub(super) const RESTART: u64 = linux::SA_RESTART as u64;
    pub(super) const NODEFER: u64 = linux::SA_NODEFER as u64;
    pub(super) const RESETHAND: u64 = linux::SA_RESETHAND as u64;
    pub(super) const NOCLDSTOP: u64 = linux::SA_NOCLDSTOP as u64;
    pub(super) const NOCLDWAIT: u64 = linux::SA_NOCLDWAIT as u64;
    pub(super) const RESTORER: u64 = linux::SA_RESTORER as u64;
}

/// `SIG_DFL`.
pub const DEFAULT: u64 = 0;
/// `SIG_IGN`.
pub const IGNORE: u64 = 1;

/// The text that is shown about a process which this signal has ended; `None` for signals without a text.
#[must_use]
pub const fn describe(signal: u32) -> Option<&'static str> {
    Some(match signal {
        sig::HUP => "hangup",
        sig::INT => "interrupt",
        sig::QUIT => "quit",
        sig::ILL => "illegal instruction",
        sig::TRAP => "trace or breakpoint trap",
        sig::ABRT => "aborted",
        sig::BUS => "bus error",
        sig::FPE => "floating point exception",
        sig::KILL => "killed",
        sig::SEGV => "segmentation fault",
        sig::PIPE => "broken pipe",
        sig::ALRM => "alarm clock",
        sig::TERM => "terminated",
        sig::XCPU => "processor time limit exceeded",
        sig::XFSZ => "file size limit exceeded",
        _ => return None,
    })
}

/// What happens to a signal by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// The process ends.
    End,
    /// Nothing.
    Ignore,
    /// The process stops.
    Stop,
}

/// What happens to the signal by default.
#[must_use]
pub const fn default_action(signal: u32) -> DefaultAction {
    match signal {
        sig::CHLD | sig::CONT | sig::URG | sig::WINCH => DefaultAction::Ignore,
        sig::STOP | sig::TSTP | sig::TTIN | sig::TTOU => DefaultAction::Stop,
        _ => DefaultAction::End,
    }
}

/// The signals that stop a process by default.
pub const STOPS: u64 = bit(sig::STOP) | bit(sig::TSTP) | bit(sig::TTIN) | bit(sig::TTOU);

/// The action of a signal (`struct sigaction` of the kernel).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// [`DEFAULT`], [`IGNORE`] or the address of a handler.
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Return address of a handler.
    pub restorer: u64,
    /// Signals blocked while the handler runs.
    pub mask: u64,
}

/// An alternate signal stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Address of the first byte.
    pub base: u64,
    /// Length in bytes; 0 if there is none.
    pub size: u64,
}

impl Stack {
    /// Whether the stack pointer is on it.
    #[must_use]
    pub fn holds(&self, rsp: u64) -> bool {
        self.size != 0 && rsp > self.base && rsp - self.base <= self.size
    }
}

/// The actions of all signals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actions(BTreeMap<u32, Action>);

/// The first real-time signal (`SIGRTMIN` of the kernel); these are queued.
pub const REAL_TIME: u32 = 32;
/// Most pending signals of a task, or of a process, of which the origin is kept.
pub const MAX_PENDING: usize = 256;

/// Signals that were sent to a task or a process and not delivered yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The pending signals, bit `n - 1` for signal `n`.
    set: u64,
    /// The origins that are known, by rising signal number. A signal from [`REAL_TIME`] on is there as often as it was
    /// sent, in that order.
    origins: SmallVec<[(u32, Origin); 1]>,
    /// How many signals have ever been sent.
    sent: u64,
}

impl Pending {
    /// Whether pending signals from an image are possible.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_pending = |signal| (1..=SIGNALS).contains(signal) && self.set & bit(*signal) != 0;
        let may_follow = |a: &(u32, Origin), b: &(u32, Origin)| {
            a.0 < b.0 || a.0 == b.0 && (b.0 >= REAL_TIME || b.1.timer.is_some())
        };
        self.origins.iter().all(|(signal, _)| is_pending(signal))
            && self.origins.len() <= MAX_PENDING
            && self.origins.is_sorted_by(may_follow)
    }

    /// Whether sending this signal once more must fail (`EAGAIN`), because the queue of real-time signals is full.
    #[must_use]
    pub fn is_full(&self, signal: u32) -> bool {
        signal >= REAL_TIME && self.origins.len() >= MAX_PENDING
    }

    /// How many of these signals are pending.
    #[must_use]
    pub fn count(&self, which: u64) -> usize {
        let (mut known, mut count) = (0, 0);
        for (signal, _) in self
            .origins
            .iter()
            .filter(|(signal, _)| which & bit(*signal) != 0)
        {
            known |= bit(*signal);
            count += 1;
        }
        count + (self.set & which & !known).count_ones() as usize
    }

    /// The pending signals, bit `n - 1` for signal `n`.
    #[must_use]
    pub const fn set(&self) -> u64 {
        self.set
    }

    /// How many signals have ever been sent.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Adds a signal. One that is already pending stays as it is, but a real-time signal is queued again if there is
    /// room, and so is the signal of a timer, which is pending once for each timer.
    pub fn add(&mut self, signal: u32, origin: Origin) {
        self.sent = self.sent.wrapping_add(1);
        let is_timers = origin.timer.is_some_and(|timer| !self.has_of_timer(timer));
        let is_new = self.set & bit(signal) == 0 || is_timers;
        self.set |= bit(signal);
        if (is_new || signal >= REAL_TIME) && self.origins.len() < MAX_PENDING {
            let place = self.origins.partition_point(|(known, _)| *known <= signal);
            self.origins.insert(place, (signal, origin));
        }
    }

    /// Sets the overrun count of the pending signal of this timer. Returns whether one is pending.
    pub fn add_overrun(&mut self, timer: u32, overrun: i32) -> bool {
        let mut origins = self.origins.iter_mut();
        let found = origins.find(|(_, origin)| origin.timer == Some(timer));
        if let Some((_, origin)) = found {
            origin.uid = overrun as u32;
            return true;
        }
        false
    }

    /// Whether a signal of this timer is pending.
    #[must_use]
    pub fn has_of_timer(&self, timer: u32) -> bool {
        let mut origins = self.origins.iter();
        origins.any(|(_, origin)| origin.timer == Some(timer))
    }

    /// Removes the signals of timers.
    pub fn forget_timers(&mut self) {
        let mut of_timers = 0;
        self.origins.retain(|(signal, origin)| {
            of_timers |= origin.timer.map_or(0, |_| bit(*signal));
            origin.timer.is_none()
        });
        let rest = self.origins.iter();
        let rest = rest.fold(0, |rest, (signal, _)| rest | bit(*signal));
        self.set &= !of_timers | rest;
    }

    /// Removes all of these signals.
    pub fn take_all(&mut self, which: u64) {
        self.set &= !which;
        self.origins.retain(|(signal, _)| which & bit(*signal) == 0);
    }

    /// Removes one signal. Returns its origin if it was pending.
    pub fn take(&mut self, signal: u32) -> Option<Origin> {
        if self.set & bit(signal) == 0 {
            return None;
        }
        let place = self.origins.iter().position(|(known, _)| *known == signal);
        let origin = place.map_or_else(Origin::default, |place| self.origins.remove(place).1);
        if !self.origins.iter().any(|(known, _)| *known == signal) {
            self.set &= !bit(signal);
        }
        Some(origin)
    }
}

/// The signals of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// Blocked signals, bit `n - 1` for signal `n`.
    pub mask: u64,
    /// Signals that were sent to this task. Signals sent to its process can be delivered to it as well.
    pub pending: Pending,
    /// The mask to return to after `rt_sigsuspend`.
    pub saved_mask: Option<u64>,
    /// The alternate stack.
    pub stack: Stack,
    /// The last exception of the thread.
    pub fault: Fault,
    /// Whether a debugger single-steps the task: then the trap flag among its registers is not the program's. No image
    /// has this.
    #[serde(skip)]
    pub steps: bool,
}

/// Whether the control word, status, tags or MXCSR of an FPU state differ from the initial ones, so that a handler
/// would compute otherwise or find exceptions noted. (The contents of the registers do not matter.)
fn computes_otherwise(state: &[u8; FPU_BYTES]) -> bool {
    let told = |state: &[u8; FPU_BYTES]| (state.first_chunk::<5>().copied(), u32_at(state, 24));
    told(state) != told(&initial_fpu())
}

/// What signal frames report of the last processor exception; as on Linux it may be an earlier one than the signal's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The exception's number (`REG_TRAPNO`).
    pub number: u64,
    /// Its error code (`REG_ERR`).
    pub error: u64,
    /// The address of the last access that failed (`REG_CR2`).
    pub address: u64,
}

impl Fault {
    /// The page is there, and does not allow the access.
    pub const PRESENT: u64 = 1;
    /// The access was a store.
    pub const WRITE: u64 = 2;
    /// The access came from user mode.
    pub const USER: u64 = 4;
    /// The access was an instruction fetch.
    pub const FETCH: u64 = 16;
}

/// `si_code` for these unmasked floating-point exceptions, given as the bits of `MXCSR` or of the x87's status word.
#[must_use]
pub const fn floating_code(errors: u32) -> i32 {
    const INVALID: u32 = 1;
    const DIVISION: u32 = 4;
    const OVERFLOW: u32 = 8;
    const UNDERFLOW: u32 = 0x12;
    const INEXACT: u32 = 0x20;
    (match errors {
        _ if errors & INVALID != 0 => linux::FPE_FLTINV,
        _ if errors & DIVISION != 0 => linux::FPE_FLTDIV,
        _ if errors & OVERFLOW != 0 => linux::FPE_FLTOVF,
        _ if errors & UNDERFLOW != 0 => linux::FPE_FLTUND,
        _ if errors & INEXACT != 0 => linux::FPE_FLTRES,
        _ => linux::FPE_FLTINV,
    }) as i32
}

/// The bit of a signal in a mask.
#[must_use]
pub const fn bit(signal: u32) -> u64 {
    1 << ((signal.wrapping_sub(1)) & 63)
}

/// Signals that cannot be blocked, ignored or handled.
pub const UNBLOCKABLE: u64 = bit(sig::KILL) | bit(sig::STOP);

/// The origin of a signal, for `siginfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// `si_code`.
    pub code: i32,
    /// The address concerned, for a fault; else 0.
    pub address: u64,
    /// The process that sent it or, for `SIGCHLD`, the child.
    pub pid: u32,
    /// The user of that process.
    pub uid: u32,
    /// Exit status, for `SIGCHLD`.
    pub status: u32,
    /// The value given to `sigqueue`.
    pub value: u64,
    /// The timer that sent it. `siginfo` has its number and overrun count in place of process and user.
    pub timer: Option<u32>,
}

impl Origin {
    /// The origin of a signal that no process has sent.
    #[must_use]
    pub fn kernel() -> Self {
        Origin {
            code: SI_KERNEL as i32,
            ..Origin::default()
        }
    }

    /// `siginfo` of this signal.
    #[must_use]
    pub fn info(&self, signal: u32) -> [u8; INFO] {
        let halves = |word: u64| [word as u32, (word >> 32) as u32];
        let [low, high] = halves(self.value);
        let [a, b, c, d] = match (self.address, self.code) {
            (0, ..0) => [self.pid, self.uid, low, high],
            (0, _) => [self.pid, self.uid, self.status, 0],
            (address, _) => [halves(address)[0], halves(address)[1], 0, 0],
        };
        let mut info = [0; INFO];
        put(
            &mut info,
            0,
            &[signal, 0, self.code as u32, 0, a, b, c, d].map(u32::to_le_bytes),
        );
        info
    }

    /// The origin that a program states in the `siginfo` of a signal that it queues.
    #[must_use]
    pub fn of(info: &[u8; INFO]) -> Self {
        Origin {
            code: u32_at(info, 8) as i32,
            pid: u32_at(info, 16),
            uid: u32_at(info, 20),
            value: u64_at(info, 24),
            ..Origin::default()
        }
    }
}

/// Bytes of `siginfo`.
pub const INFO: usize = 128;

/// Writes these pieces into `into`, one after the other, from `at` on.
fn put<const N: usize>(into: &mut [u8], at: usize, pieces: &[[u8; N]]) {
    for (piece, room) in pieces.iter().zip(into[at..].chunks_exact_mut(N)) {
        room.copy_from_slice(piece);
    }
}

/// What happens to the process after signals were delivered.
#[derive(Debug)]
pub enum Delivery {
    /// It goes on: there was nothing to deliver, or the registers start a handler.
    Go,
    /// A signal stops the process. More may be pending when it continues.
    Stop(u32),
    /// A signal ends the process.
    End(u32),
}

impl Actions {
    /// Whether actions from an image are possible.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let known = |s: &u32| *s >= 1 && *s <= SIGNALS && UNBLOCKABLE & bit(*s) == 0;
        self.0.keys().all(known)
    }

    /// The action of the signal.
    #[must_use]
    pub fn get(&self, signal: u32) -> Action {
        self.0.get(&signal).copied().unwrap_or_default()
    }

    /// Sets the action of the signal.
    pub fn set(&mut self, signal: u32, action: Action) {
        self.0.insert(signal, action);
    }

    /// Resets handlers to the default, for `execve`.
    pub fn reset(&mut self) {
        self.0.retain(|_, a| a.handler == IGNORE);
    }

    /// Whether the signal has no effect.
    #[must_use]
    pub fn ignores(&self, signal: u32) -> bool {
        match self.get(signal).handler {
            DEFAULT => default_action(signal) == DefaultAction::Ignore,
            handler => handler == IGNORE,
        }
    }

    /// Whether the program has set the signal to be ignored.
    #[must_use]
    pub fn is_set_to_ignore(&self, signal: u32) -> bool {
        self.get(signal).handler == IGNORE
    }

    /// Whether the program has a handler for a signal.
    #[must_use]
    pub fn is_caught(&self, signal: u32) -> bool {
        ![DEFAULT, IGNORE].contains(&self.get(signal).handler)
    }

    /// Whether children that end leave no status to wait for.
    #[must_use]
    pub fn forgets_children(&self) -> bool {
        let action = self.get(sig::CHLD);
        action.handler == IGNORE || action.flags & flag::NOCLDWAIT != 0
    }

    /// Whether the signal stops the process.
    #[must_use]
    pub fn stops(&self, signal: u32) -> bool {
        let is_default = self.get(signal).handler == DEFAULT;
        is_default && default_action(signal) == DefaultAction::Stop
    }

    /// Whether the parent gets `SIGCHLD` when children stop or continue.
    #[must_use]
    pub fn wants_stops(&self) -> bool {
        self.get(sig::CHLD).flags & flag::NOCLDSTOP == 0
    }

    /// Whether calls that the handler of `signal` interrupts begin again.
    #[must_use]
    pub fn restarts(&self, signal: u32) -> bool {
        self.get(signal).flags & flag::RESTART != 0
    }
}

impl Signals {
    /// Whether signals from an image are possible.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.pending.is_sound() && (self.mask | self.saved_mask.unwrap_or(0)) & UNBLOCKABLE == 0
    }

    /// The trap flag in these registers, if a debugger has set it.
    const fn step_in(&self, registers: &Registers) -> u64 {
        match self.steps {
            true => registers.rflags & STEP_FLAG,
            false => 0,
        }
    }

    /// The signals of a new child.
    #[must_use]
    pub fn for_child(&self) -> Self {
        Signals {
            mask: self.mask,
            stack: self.stack,
            ..Signals::default()
        }
    }

    /// Whether the signal is dropped when sent to this task: it is ignored and not blocked. (A blocked one may be
    /// waited for.)
    #[must_use]
    pub fn drops(&self, actions: &Actions, signal: u32) -> bool {
        actions.ignores(signal) && self.mask & bit(signal) == 0
    }

    /// Sends a signal to this task.
    pub fn post(&mut self, actions: &Actions, signal: u32, origin: Origin) {
        if (1..=SIGNALS).contains(&signal) && !self.drops(actions, signal) {
            self.pending.add(signal, origin);
        }
    }

    /// Drops signals that came while they were blocked and are ignored when they are unblocked.
    pub fn drop_ignored(&mut self, of_process: &mut Pending, actions: &Actions) {
        let ignored = |s: &u32| actions.ignores(*s);
        while let Some(signal) = self.deliverable(of_process).filter(ignored) {
            self.take(of_process, signal);
        }
    }

    /// The next pending signal, of the task or the process, that is not blocked.
    #[must_use]
    pub fn deliverable(&self, of_process: &Pending) -> Option<u32> {
        let open = (self.pending.set | of_process.set) & (!self.mask | UNBLOCKABLE);
        (open != 0).then(|| open.trailing_zeros() + 1)
    }

    /// Whether `SIGKILL` is pending.
    #[must_use]
    pub fn is_killed(&self, of_process: &Pending) -> bool {
        (self.pending.set | of_process.set) & bit(sig::KILL) != 0
    }

    /// Removes a pending signal, the task's own first.
    pub fn take(&mut self, of_process: &mut Pending, signal: u32) -> Origin {
        let own = self.pending.take(signal);
        own.or_else(|| of_process.take(signal)).unwrap_or_default()
    }

    /// Delivers the pending signals into `registers`; `fpu` as for [`Signals::deliver`].
    pub fn deliver_pending(
        &mut self,
        of_process: &mut Pending,
        actions: &mut Actions,
        areas: &Areas,
        host: &mut dyn Host,
        (registers, fpu): (&mut Registers, &mut Option<Fpu>),
    ) -> Result<Delivery, OutOfMemory> {
        while let Some(signal) = self.deliverable(of_process) {
            let origin = self.take(of_process, signal);
            match self.deliver(actions, areas, host, (registers, fpu), signal, origin)? {
                Delivery::Go => {}
                other => return Ok(other),
            }
        }
        self.own_mask();
        Ok(Delivery::Go)
    }

    /// Puts back the mask that a call such as `rt_sigsuspend` replaced while it waited.
    #[inline(always)]
    pub fn own_mask(&mut self) {
        if let Some(mask) = self.saved_mask.take() {
            self.mask = mask;
        }
    }

    /// Delivers a signal that the thread caused itself, and that cannot be blocked or ignored: then it ends the
    /// process. `fpu` as for [`Signals::deliver`].
    pub fn deliver_fault(
        &mut self,
        actions: &mut Actions,
        areas: &Areas,
        host: &mut dyn Host,
        (registers, fpu): (&mut Registers, &mut Option<Fpu>),
        signal: u32,
        origin: Origin,
    ) -> Result<Delivery, OutOfMemory> {
        if self.mask & bit(signal) != 0 || actions.get(signal).handler == IGNORE {
            return Ok(Delivery::End(signal));
        }
        self.deliver(actions, areas, host, (registers, fpu), signal, origin)
    }

    /// Delivers this signal into `registers`. `fpu` is the FPU state that the thread is to continue with, if that is
    /// not loaded yet; it is set to the initial state if the handler needs that, as on Linux.
    pub(crate) fn deliver(
        &mut self,
        actions: &mut Actions,
        areas: &Areas,
        host: &mut dyn Host,
        (registers, fpu): (&mut Registers, &mut Option<Fpu>),
        signal: u32,
        origin: Origin,
    ) -> Result<Delivery, OutOfMemory> {
        let action = actions.get(signal);
        match action.handler {
            IGNORE => return Ok(Delivery::Go),
            DEFAULT => {
                return Ok(match default_action(signal) {
                    DefaultAction::End => Delivery::End(signal),
                    DefaultAction::Ignore => Delivery::Go,
                    DefaultAction::Stop => Delivery::Stop(signal),
                })
            }
            _ => {}
        }
        let on_stack = self.stack.holds(registers.rsp);
        let mut top = registers.rsp.wrapping_sub(128);
        if action.flags & flag::ONSTACK != 0 && self.stack.size != 0 && !on_stack {
            top = self.stack.base.wrapping_add(self.stack.size);
        }
        let fpu_at = top.wrapping_sub(FPU_BYTES as u64) & !63;
        let frame_at = (fpu_at.wrapping_sub(FRAME as u64) & !15).wrapping_sub(8);
        let whole = fpu_at.wrapping_add(FPU_BYTES as u64).wrapping_sub(frame_at);
        // As on Linux a frame does not go beyond the stack that was made for handlers: what is mapped below it is another's.
        let is_alternate = on_stack || top == self.stack.base.wrapping_add(self.stack.size);
        if action.flags & flag::RESTORER == 0
            || is_alternate && self.stack.size != 0 && frame_at < self.stack.base
            || action.handler >= abi::USER_END
            || frame_at > fpu_at
            || !areas.allows(frame_at, whole, memory::WRITE)
        {
            // As on Linux the program then gets `SIGSEGV`, whose handler may have a stack of its own.
            return match signal {
                sig::SEGV => Ok(Delivery::End(signal)),
                _ => self.deliver_fault(
                    actions,
                    areas,
                    host,
                    (registers, fpu),
                    sig::SEGV,
                    Origin::kernel(),
                ),
            };
        }
        let stack_flags = match self.stack.size {
            0 => 2,
            _ => u64::from(on_stack),
        };
        // The trap flag must not be in the frame: the program continues from it long after the step, and would trap
        // again.
        let step = self.step_in(registers);
        let mut r = *registers;
        r.rflags &= !step;
        let mask = self.saved_mask.take().unwrap_or(self.mask);
        let segments = 0x33 | 0x2b << 48;
        // Return address and `struct ucontext`.
        let context: [u64; 1 + UCONTEXT / 8 - 9] = [
            action.restorer,
            0,
            0,
            self.stack.base,
            stack_flags,
            self.stack.size,
            r.r8,
            r.r9,
            r.r10,
            r.r11,
            r.r12,
            r.r13,
            r.r14,
            r.r15,
            r.rdi,
            r.rsi,
            r.rbp,
            r.rbx,
            r.rdx,
            r.rax,
            r.rcx,
            r.rsp,
            r.rip,
            r.rflags,
            segments,
            self.fault.error,
            self.fault.number,
            mask,
            self.fault.address,
            fpu_at,
        ];
        let mut frame = [0; WHOLE];
        put(&mut frame, 0, &context.map(u64::to_le_bytes));
        put(&mut frame, UCONTEXT, &[mask.to_le_bytes()]);
        frame[8 + UCONTEXT..FRAME].copy_from_slice(&origin.info(signal));
        let frame = &mut frame[..whole as usize];
        if let Some(kept) = frame.last_chunk_mut() {
            match fpu.as_deref() {
                Some(own) => *kept = own.0,
                None => host.fpu(kept),
            }
            if computes_otherwise(kept) {
                *fpu = Some(Box::new(FpuState(initial_fpu())));
            }
        }
        host.write_memory(frame_at, frame)?;

        self.mask |= action.mask & !UNBLOCKABLE;
        if action.flags & flag::NODEFER == 0 {
            self.mask |= bit(signal);
        }
        if action.flags & flag::RESETHAND != 0 {
            actions.set(signal, Action::default());
        }
        registers.rip = action.handler;
        registers.rsp = frame_at;
        registers.rdi = u64::from(signal);
        registers.rsi = frame_at + 8 + UCONTEXT as u64;
        registers.rdx = frame_at + 8;
        registers.rax = 0;
        registers.rflags = (registers.rflags & !DIRECTION_AND_TRAP) | 0x202 | step;
        Ok(Delivery::Go)
    }

    /// The registers and FPU state in the frame of a handler, for `rt_sigreturn`; `None` if there is no such frame.
    pub fn leave(
        &mut self,
        areas: &Areas,
        host: &mut dyn Host,
        registers: &Registers,
    ) -> Result<Option<(Registers, Option<Fpu>)>, OutOfMemory> {
        let at = registers.rsp;
        if !areas.allows(at, UCONTEXT as u64, memory::READ) {
            return Ok(None);
        }
        let mut uc = [0; UCONTEXT];
        host.read_memory(at, &mut uc)?;
        let word = |n: usize| u64_at(&uc, CONTEXT_REGISTERS + 8 * n);
        let mut r = *registers;
        [r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15] = core::array::from_fn(word);
        [
            r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip,
        ] = core::array::from_fn(|n| word(8 + n));
        r.rflags = (registers.rflags & !USER_FLAGS) | (word(17) & USER_FLAGS);
        r.rflags |= self.step_in(registers);
        if r.rip >= abi::USER_END {
            return Ok(None);
        }
        let mut fpu = None;
        let fpu_at = word(23);
        if fpu_at != 0 {
            if !areas.allows(fpu_at, FPU_BYTES as u64, memory::READ) {
                return Ok(None);
            }
            let mut area = Box::new(FpuState([0; FPU_BYTES]));
            host.read_memory(fpu_at, &mut area.0)?;
            // The kernel leaves out bits of MXCSR that the processor does not have.
            fpu = Some(area);
        }
        self.mask = u64_at(&uc, UCONTEXT - 8) & !UNBLOCKABLE;
        Ok(Some((r, fpu)))
    }
}

/// Offset of the registers in `struct ucontext`.
const CONTEXT_REGISTERS: usize = 40;
/// Bytes of `struct ucontext` with the kernel's signal mask.
const UCONTEXT: usize = CONTEXT_REGISTERS + 256 + 8;
/// Bytes of the frame: return address, context, `siginfo`.
const FRAME: usize = 8 + UCONTEXT + INFO;
/// Most bytes of the frame, the alignment between it and the FPU state, and that state.
const WHOLE: usize = FRAME + 15 + 8 + FPU_BYTES;
/// Flags that are clear when a handler starts.
const DIRECTION_AND_TRAP: u64 = 0x500;
/// Flags that a program can set.
const USER_FLAGS: u64 = 0x0004_0dd5;
