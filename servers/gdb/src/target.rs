//! GDB's requests about the process that is debugged, as `gdbstub`'s traits.
use crate::held::{End, Held, News};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroUsize;
use fermata_gdb::numbers::{self, MANAGERS};
use fermata_gdb::registers::{description, All, X86};
use fermata_gdb::signal;
use fermata_gdb::watch::Points;
use gdbstub::common::{Pid, Signal, Tid};
use gdbstub::stub::{BaseStopReason, MultiThreadStopReason};
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps, MultiThreadSchedulerLocking,
    MultiThreadSchedulerLockingOps, MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwWatchpoint, HwWatchpointOps, SwBreakpoint, SwBreakpointOps,
    WatchKind,
};
use gdbstub::target::ext::extended_mode::{
    Args, AttachKind, CurrentActivePid, CurrentActivePidOps, ExtendedMode, ExtendedModeOps,
    ShouldTerminate,
};
use gdbstub::target::ext::monitor_cmd::{outputln, ConsoleOutput, MonitorCmd, MonitorCmdOps};
use gdbstub::target::ext::target_description_xml_override::{
    TargetDescriptionXmlOverride, TargetDescriptionXmlOverrideOps,
};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use proto::Error;
use rt::obj::Ref;
use rt::process::{Process, Supervisor};
use rt::thread;
use services::process::Status;

/// The instruction `int3`.
const INT3: u8 = 0xcc;

/// How GDB wants a thread to continue.
#[derive(Clone, Copy)]
struct Action {
    thread: usize,
    step: bool,
    signal: Option<Signal>,
}

impl Action {
    /// The signal to be delivered to the program, if any.
    fn passes(&self) -> Option<Signal> {
        self.signal.filter(|signal| signal.0 != 0)
    }
}

/// The process that is debugged, and the way to all others.
pub(crate) struct Machine {
    managers: Vec<Supervisor>,
    pub(crate) held: Option<Held>,
    /// The thread that is woken when something has happened to the process.
    waker: Ref,
    description: String,
    actions: Vec<Action>,
    /// Only the threads of `actions` continue, and not all.
    locked: bool,
    /// The last thread that has met an `int3`, and its address. [`Machine::go`] finds out whether the instruction is
    /// the program's own.
    own_breakpoint: Option<(usize, u64)>,
    /// Whether the process runs, with no stop reported to GDB since it was let run.
    runs: bool,
}

/// An error that GDB is told and that changes nothing. The numbers are Linux's, since GDB shows no words.
const fn told(error: Error) -> TargetError<&'static str> {
    TargetError::Errno(match error {
        Error::NotFound => 3,     // ESRCH
        Error::NoMemory => 12,    // ENOMEM
        Error::Denied => 13,      // EACCES
        Error::Exists => 16,      // EBUSY
        Error::Unsupported => 95, // EOPNOTSUPP
        Error::Limit => 28,       // ENOSPC
        _ => 14,                  // EFAULT
    })
}

/// The error of a request when no process is debugged.
const NOTHING: TargetError<&'static str> = TargetError::Errno(3);

fn tid(number: usize) -> Tid {
    NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN)
}

impl Machine {
    pub(crate) fn new(waker: Ref) -> Result<Self, Error> {
        let managers = MANAGERS.into_iter().map(rt::system::supervisor);
        Ok(Machine {
            managers: managers.collect::<Result<_, _>>()?,
            held: None,
            waker,
            description: description(),
            actions: Vec::new(),
            locked: false,
            own_breakpoint: None,
            runs: false,
        })
    }

    fn held(&mut self) -> TargetResult<&mut Held, Self> {
        self.held.as_mut().ok_or(NOTHING)
    }

    /// Ends the debugging; the process continues as if it had never been debugged.
    pub(crate) fn leave(&mut self) {
        self.forget();
        if let Some(held) = self.held.take() {
            if let Err(error) = held.leave() {
                rt::log!("gdb: {}", error.text());
            }
        }
    }

    /// Forgets what was noted about the process.
    fn forget(&mut self) {
        self.runs = false;
        self.own_breakpoint = None;
    }

    /// What is to be reported to GDB about the process, if anything.
    pub(crate) fn news(&mut self) -> Option<MultiThreadStopReason<u64>> {
        let news = self.happened();
        self.runs &= news.is_none();
        news
    }

    fn happened(&mut self) -> Option<MultiThreadStopReason<u64>> {
        let held = self.held.as_mut()?;
        match held.news() {
            Ok(None) => None,
            Ok(Some(News::Exception { thread, code })) => {
                let thread_id = tid(thread);
                let at = held.state(thread).map(|state| state.registers.rip);
                if code != abi::Exception::Breakpoint as u64 {
                    return Some(BaseStopReason::SignalWithThread {
                        tid: thread_id,
                        signal: signal::of_exception(code),
                    });
                }
                // GDB removes its own breakpoints before it lets a thread continue from one; `go` handles an `int3`
                // that is not GDB's.
                self.own_breakpoint = at.ok().map(|at| (thread, at));
                Some(BaseStopReason::SwBreak(thread_id))
            }
            Ok(Some(News::Watch {
                thread,
                kind,
                address,
            })) => Some(BaseStopReason::Watch {
                tid: tid(thread),
                kind,
                addr: address,
            }),
            Ok(Some(News::Ended(status))) => {
                self.held = None;
                Some(match status {
                    Status::Exited(status) => BaseStopReason::Exited(status),
                    Status::Killed(number) => BaseStopReason::Terminated(signal::of_linux(number)),
                    _ => BaseStopReason::Exited(0),
                })
            }
            Err(error) => {
                // The process can have been reaped with its end unknown; GDB gets the end of debugging as a kill.
                rt::log!("gdb: {}", error.text());
                self.held = None;
                Some(BaseStopReason::Terminated(Signal::SIGKILL))
            }
        }
    }

    /// Stops the process for a Ctrl-C, and returns the report. If the process has already stopped and the two messages
    /// have crossed, GDB takes the report of that stop as the answer. A second report would reach GDB when the process
    /// has continued, and it would not be stopped then.
    pub(crate) fn interrupt(&mut self) -> Option<MultiThreadStopReason<u64>> {
        if !self.runs {
            return None;
        }
        let held = self.held.as_mut()?;
        let news = match held.stop() {
            Ok(news) => news,
            Err(_) => return self.news(),
        };
        self.runs = false;
        if let Some(News::Watch {
            thread,
            kind,
            address,
        }) = news
        {
            return Some(BaseStopReason::Watch {
                tid: tid(thread),
                kind,
                addr: address,
            });
        }
        let thread = held.numbers().next().unwrap_or(1);
        Some(BaseStopReason::SignalWithThread {
            tid: tid(thread),
            signal: Signal::SIGINT,
        })
    }

    /// Starts a thread that waits for exceptions and the end of the process, and wakes the waker.
    fn watch(&self, held: &Held) -> Result<(), Error> {
        let (mut session, end) = held.watcher()?;
        let waker = self.waker.copy().map_err(rt::error_of)?;
        let watch = move || {
            let (mut seen, mut over) = (0, None);
            while over.is_none() {
                match session.more_taken(seen) {
                    Ok((_, status)) if status.has_ended() => over = Some(End::Told(status)),
                    Ok((count, _)) => seen = count,
                    // The process is not debugged any more, or its manager is gone.
                    Err(_) => over = Some(End::Unknown),
                }
                if let Some(over) = over {
                    *end.lock() = over;
                }
                let _ = waker.interrupt();
            }
        };
        thread::spawn(watch).map_err(rt::error_of)?;
        Ok(())
    }

    /// The process with this number of GDB's.
    fn process(&self, number: u64) -> Result<Process, Error> {
        let (manager, pid) = numbers::process(number).ok_or(Error::NotFound)?;
        self.managers[manager].process(pid)
    }

    fn begin(&mut self, number: u64) -> Result<(), Error> {
        let held = Held::new(number, self.process(number)?)?;
        self.watch(&held)?;
        self.held = Some(held);
        self.forget();
        Ok(())
    }

    /// Lets the process continue with the actions that GDB has set.
    fn go(&mut self) -> Result<(), Error> {
        let own = self.own_breakpoint.take();
        let held = self.held.as_mut().ok_or(Error::NotFound)?;
        // A breakpoint of GDB's stays in memory while only another thread continues.
        let own = own.filter(|(_, at)| !held.has_breakpoint(*at));
        // If the exception is passed to the process, the thread stays at the `int3`, where the process expects it.
        let is_passed = |thread| {
            let mut actions = self.actions.iter();
            actions.any(|action| action.thread == thread && action.passes().is_some())
        };
        let own = own.filter(|(thread, _)| !is_passed(*thread));
        if let Some((thread, at)) = own {
            // GDB has been told of the program's own `int3`, so the thread continues behind it.
            let mut byte = [0];
            let here = held.state(thread).is_ok_and(|s| s.registers.rip == at);
            if here && held.read(at, &mut byte).is_ok() && byte == [INT3] {
                held.change(thread, |state| state.registers.rip += 1)?;
            }
        }
        // Steps may be left over from a `go` that failed halfway.
        held.end_wanted();
        for action in &self.actions {
            if action.passes().is_some() {
                match held.pass(action.thread) {
                    // The thread has met no exception, and there is no other way to send it a signal.
                    Ok(()) | Err(Error::NotFound) => {}
                    // The delivered exception has ended the process.
                    Err(Error::Ended) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if action.step {
                match held.want_step(action.thread) {
                    Ok(()) | Err(Error::Ended | Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let those = self.actions.iter().map(|action| action.thread);
        held.go(self.locked.then(|| those.collect()))
    }
}

impl Target for Machine {
    type Arch = X86;
    type Error = &'static str;

    fn base_ops(&mut self) -> BaseOps<'_, X86, &'static str> {
        BaseOps::MultiThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_extended_mode(&mut self) -> Option<ExtendedModeOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }

    fn support_target_description_xml_override(
        &mut self,
    ) -> Option<TargetDescriptionXmlOverrideOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadBase for Machine {
    fn read_registers(&mut self, all: &mut All, thread: Tid) -> TargetResult<(), Self> {
        let state = self.held()?.state(thread.get()).map_err(told)?;
        *all = All::of(&state);
        Ok(())
    }

    fn write_registers(&mut self, all: &All, thread: Tid) -> TargetResult<(), Self> {
        let held = self.held()?;
        let same = held
            .state(thread.get())
            .is_ok_and(|state| All::of(&state) == *all);
        if same {
            return Ok(());
        }
        held.change(thread.get(), |state| all.put_into(state))
            .map_err(told)
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8], _: Tid) -> TargetResult<usize, Self> {
        let held = self.held()?;
        // GDB tries addresses to find out whether something is there.
        held.read(start, data).map_err(|_| TargetError::Errno(14))?;
        Ok(data.len())
    }

    fn write_addrs(&mut self, start: u64, data: &[u8], _: Tid) -> TargetResult<(), Self> {
        self.held()?.write(start, data).map_err(told)
    }

    fn list_active_threads(&mut self, each: &mut dyn FnMut(Tid)) -> Result<(), Self::Error> {
        if let Some(held) = &self.held {
            held.numbers().for_each(|number| each(tid(number)));
        }
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl ThreadExtraInfo for Machine {
    fn thread_extra_info(&self, thread: Tid, buf: &mut [u8]) -> Result<usize, Self::Error> {
        let doing = self
            .held
            .as_ref()
            .map_or("", |held| held.doing(thread.get()));
        let count = doing.len().min(buf.len());
        buf[..count].copy_from_slice(&doing.as_bytes()[..count]);
        Ok(count)
    }
}

impl MultiThreadResume for Machine {
    fn resume(&mut self) -> Result<(), Self::Error> {
        if let Err(error) = self.go() {
            rt::log!("gdb: {}", error.text());
            return Err(error.text());
        }
        self.runs = true;
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), Self::Error> {
        self.actions.clear();
        self.locked = false;
        Ok(())
    }

    fn set_resume_action_continue(
        &mut self,
        thread: Tid,
        signal: Option<Signal>,
    ) -> Result<(), Self::Error> {
        self.actions.push(Action {
            thread: thread.get(),
            step: false,
            signal,
        });
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadSingleStep for Machine {
    fn set_resume_action_step(
        &mut self,
        thread: Tid,
        signal: Option<Signal>,
    ) -> Result<(), Self::Error> {
        self.actions.push(Action {
            thread: thread.get(),
            step: true,
            signal,
        });
        Ok(())
    }
}

impl MultiThreadSchedulerLocking for Machine {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), Self::Error> {
        self.locked = true;
        Ok(())
    }
}

impl Breakpoints for Machine {
    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }

    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }
}

impl Machine {
    fn watch_for(
        &mut self,
        (address, size): (u64, u64),
        kind: WatchKind,
        set: bool,
    ) -> TargetResult<bool, Self> {
        let point = Points::point(address, size, kind);
        let point = point.ok_or(told(Error::Limit))?;
        self.held()?.watch(point, set).map_err(told)?;
        Ok(true)
    }
}

impl HwWatchpoint for Machine {
    fn add_hw_watchpoint(
        &mut self,
        address: u64,
        size: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        self.watch_for((address, size), kind, true)
    }

    fn remove_hw_watchpoint(
        &mut self,
        address: u64,
        size: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        self.watch_for((address, size), kind, false)
    }
}

impl SwBreakpoint for Machine {
    fn add_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        self.held()?.breakpoint(address, true).map_err(told)?;
        Ok(true)
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        self.held()?.breakpoint(address, false).map_err(told)?;
        Ok(true)
    }
}

impl ExtendedMode for Machine {
    fn run(&mut self, _: Option<&[u8]>, _: Args<'_, '_>) -> TargetResult<Pid, Self> {
        // Programs are started by the shell, and are counted in its job.
        Err(told(Error::Unsupported))
    }

    fn attach(&mut self, pid: Pid) -> TargetResult<(), Self> {
        self.leave();
        self.begin(pid.get() as u64).map_err(told)
    }

    fn query_if_attached(&mut self, _: Pid) -> TargetResult<AttachKind, Self> {
        Ok(AttachKind::Attach)
    }

    fn kill(&mut self, pid: Option<Pid>) -> TargetResult<ShouldTerminate, Self> {
        let held = self.held.as_ref().map(|held| held.number);
        let number = pid.map(|pid| pid.get() as u64).or(held).ok_or(NOTHING)?;
        let killed = self.process(number).and_then(|process| process.kill());
        killed.map_err(told)?;
        if held == Some(number) {
            self.held = None;
            self.forget();
        }
        Ok(ShouldTerminate::No)
    }

    fn restart(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    fn support_current_active_pid(&mut self) -> Option<CurrentActivePidOps<'_, Self>> {
        Some(self)
    }
}

impl CurrentActivePid for Machine {
    fn current_active_pid(&mut self) -> Result<Pid, Self::Error> {
        let number = self.held.as_ref().map_or(1, |held| held.number as usize);
        Ok(NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN))
    }
}

impl TargetDescriptionXmlOverride for Machine {
    fn target_description_xml(
        &self,
        annex: &[u8],
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        if annex != b"target.xml" {
            return Err(TargetError::Errno(2));
        }
        let rest = usize::try_from(offset).ok();
        let rest = rest.and_then(|offset| self.description.as_bytes().get(offset..));
        let rest = rest.unwrap_or_default();
        let count = rest.len().min(length).min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

const HELP: &str = "\
monitor ps     what can be attached to, by number; processes of Linux have 1000000 and their own
monitor help   this";

impl MonitorCmd for Machine {
    fn handle_monitor_cmd(
        &mut self,
        command: &[u8],
        mut out: ConsoleOutput<'_>,
    ) -> Result<(), Self::Error> {
        if command != b"ps" {
            outputln!(out, "{HELP}");
            return Ok(());
        }
        for (place, supervisor) in self.managers.iter().enumerate() {
            let manager = MANAGERS[place];
            match supervisor.list() {
                Ok(list) => {
                    for info in list.into_iter().filter(|info| !info.status.has_ended()) {
                        let Some(number) = numbers::number(place, info.pid) else {
                            continue;
                        };
                        let line = format!("{number:>8}  {manager:<6}  {}", info.name);
                        outputln!(out, "{line}");
                    }
                }
                Err(error) => outputln!(out, "{manager}: {}", error.text()),
            }
        }
        Ok(())
    }
}
