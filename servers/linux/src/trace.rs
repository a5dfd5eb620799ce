//! Traced tasks: who traces them, where each has stopped, and how it goes on.
//!
//! A [`Trace`] is the record of a traced task. The emulation notes a stop ([`Stop`]) in it, and the code that runs the
//! tasks holds the thread ([`System::take_trace_halts`]); a request of the tracer lets the task go on
//! ([`System::resume_traced`]). The registers of a stopped task are those of its thread. A task that stops at the
//! beginning of a call is parked at its `syscall` instruction, and makes the call again when it goes on.
//!
//! A tracer is a process: any of its threads may make requests. The numbers are those of `linux/ptrace.h`.

use abi::Registers;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem::take;
use serde::{Deserialize, Serialize};
use services::process::{Pid, Status};

use crate::process::CallKey;
use crate::signal::{sig, Origin, SIGNALS};
use crate::system::{Key, Process, System, Tid, To, Which};

/// Most ends of tasks that a tracer has not been told of.
pub(crate) const MAX_ENDS: usize = 256;
/// Most stops that follow one another, and most events of one call.
const MAX_NEXT: usize = 4;
/// `CLD_TRAPPED`.
pub const TRAPPED: u32 = 4;
/// The trap flag of the processor, by which it stops after each instruction.
pub const STEP_FLAG: u64 = 0x100;
/// The values of `rax` with which a call begins again (`ERESTARTSYS`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`); Linux
/// shows them to tracers only.
const RESTARTS: [i64; 3] = [-512, -514, -516];

/// Options (`PTRACE_O_*`).
pub mod option {
    /// `PTRACE_O_TRACESYSGOOD`: stops at calls are told apart from other traps.
    pub const SYSGOOD: u32 = 1;
    /// The option by which a task stops at this event.
    #[must_use]
    pub const fn of(event: u32) -> u32 {
        1 << event
    }
    /// `PTRACE_O_EXITKILL`: the traced task is killed when its tracer ends.
    pub const EXITKILL: u32 = 1 << 20;
    /// All options that are supported.
    pub const ALL: u32 = 0x7f | EXITKILL;
}

/// Events (`PTRACE_EVENT_*`).
#[allow(missing_docs)]
pub mod event {
    pub const FORK: u32 = 1;
    pub const VFORK: u32 = 2;
    pub const CLONE: u32 = 3;
    pub const EXEC: u32 = 4;
    pub const VFORK_DONE: u32 = 5;
    pub const EXIT: u32 = 6;
}

/// How far a task runs when it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Until a signal or an event comes.
    #[default]
    Free,
    /// Until a call begins or ends, too.
    Calls,
    /// For one instruction.
    Step,
}

/// Where a task has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// Before a call.
    Enter,
    /// Behind a call.
    Exit,
    /// Before a signal is delivered.
    Signal(u32, Origin),
    /// An event.
    Event(u32),
    /// A group stop, by this signal.
    Group(u32),
}

/// The record of a traced task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    /// The tracer's process. An image has the process's place in its list of processes instead.
    #[serde(skip)]
    pub tracer: Pid,
    /// The number of the task as programs see it.
    pub number: u32,
    /// The options that are set ([`option`]).
    pub options: u32,
    /// How far the task runs when it goes on.
    pub mode: Mode,
    /// Where the task has stopped; `None` if it has not.
    pub stop: Option<Stop>,
    /// Further stops, at which the task stops before it runs.
    pub(crate) next: VecDeque<Stop>,
    /// Whether `wait4` has told the tracer of the stop.
    pub told: bool,
    /// The value that `PTRACE_GETEVENTMSG` returns.
    pub message: u64,
    /// The call that the task has begun: made again, it does not stop at its beginning.
    pub entered: Option<CallKey>,
    /// Whether the task has stopped before its end.
    pub exits: bool,
    /// The number of the task's last call (`orig_rax`), or -1.
    pub call: i64,
    /// The signal that is delivered when the task goes on.
    pub signal: Option<(u32, Origin)>,
    /// The task goes on after a stop, and has to be looked at before it runs.
    pub look: bool,
    /// The trace ends as soon as the task has gone on.
    pub leaves: bool,
    /// Events at which the task stops after the call that is being made.
    pub events: Vec<u32>,
}

impl Trace {
    /// Whether this option is set.
    #[must_use]
    pub const fn has(&self, option: u32) -> bool {
        self.options & option != 0
    }

    /// Whether a trace from an image makes sense.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let signal = |signal: u32| (1..=SIGNALS).contains(&signal);
        let stop = |stop: &Stop| match *stop {
            Stop::Enter | Stop::Exit => true,
            Stop::Signal(number, _) | Stop::Group(number) => signal(number),
            Stop::Event(event) => (event::FORK..=event::EXIT).contains(&event),
        };
        let events = self.events.iter().all(|event| stop(&Stop::Event(*event)));
        // A task whose trace is ending is at no stop.
        self.options & !option::ALL == 0
            && (!self.leaves || self.stop.is_none() && self.next.is_empty())
            && self.stop.iter().chain(&self.next).all(stop)
            && self.next.len() <= MAX_NEXT
            && self.events.len() <= MAX_NEXT
            && events
            && self.signal.is_none_or(|(number, _)| signal(number))
    }

    /// The stop as `wait4` reports it.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self.stop {
            Some(Stop::Enter | Stop::Exit) if self.has(option::SYSGOOD) => sig::TRAP | 0x80,
            Some(Stop::Enter | Stop::Exit) | None => sig::TRAP,
            Some(Stop::Event(event)) => sig::TRAP | event << 8,
            Some(Stop::Signal(signal, _) | Stop::Group(signal)) => signal,
        }
    }
}

/// All traces of the system.
#[derive(Debug, Default)]
pub struct Traces {
    all: BTreeMap<Tid, Trace>,
    /// Tracer and task of each trace that is not ending.
    by: BTreeSet<(Pid, Tid)>,
    /// The ends of tasks that tracers which are not their parents have not been told of: number and status.
    ends: BTreeMap<(Pid, u64), (u32, Status)>,
    last_end: u64,
    halts: Vec<Tid>,
    goes: Vec<Tid>,
}

/// What `wait4` tells a tracer.
#[derive(Clone, Copy, Debug)]
pub enum TraceNews {
    /// The task with this number has stopped, with this code.
    Stopped(Tid, u32, u32),
    /// The task with this number has ended. The first field is the key of the end.
    Ended((Pid, u64), u32, Status),
}

/// The value of `rax` that a tracer sees when a signal has interrupted this call: -512, -514 or -516 if the call begins
/// again, -4 (`EINTR`) if it fails.
#[must_use]
pub fn restart_value(entry: &Registers) -> i64 {
    use crate::number as nr;
    match entry.rax {
        nr::nanosleep | nr::clock_nanosleep | nr::poll => -516,
        nr::futex if entry.r10 != 0 => -516,
        nr::pause | nr::rt_sigsuspend | nr::select | nr::pselect6 | nr::ppoll => -514,
        nr::msgsnd | nr::msgrcv => -514,
        nr::rt_sigtimedwait | nr::epoll_wait | nr::epoll_pwait | nr::epoll_pwait2 => -4,
        nr::semop | nr::semtimedop => -4,
        _ => -512,
    }
}

/// Lets a call that a signal has interrupted begin again, or fail with `EINTR`. `handler`: whether the handler that
/// runs restarts calls (`SA_RESTART`); `None` if no handler runs. Behind a handler only a call with -512 begins again.
pub fn settle_restart(trace: &Trace, registers: &mut Registers, handler: Option<bool>) {
    let value = registers.rax as i64;
    if trace.call < 0 || !RESTARTS.contains(&value) {
        return;
    }
    if handler.is_some_and(|restarts| !restarts || value != RESTARTS[0]) {
        registers.rax = crate::errno::EINTR.rax();
    } else {
        registers.rax = trace.call as u64;
        registers.rip = registers.rip.wrapping_sub(2);
    }
}

impl System {
    /// The trace of a task, if it is traced.
    #[must_use]
    pub fn trace(&self, tid: Tid) -> Option<&Trace> {
        self.traces.all.get(&tid)
    }

    /// The trace of a task, to be changed.
    pub fn trace_mut(&mut self, tid: Tid) -> Option<&mut Trace> {
        if self.traces.all.is_empty() {
            return None;
        }
        self.traces.all.get_mut(&tid)
    }

    /// Whether a task is traced.
    #[must_use]
    #[inline(always)]
    pub fn is_traced(&self, tid: Tid) -> bool {
        !self.traces.all.is_empty() && self.traces.all.contains_key(&tid)
    }

    /// Whether a task has stopped for its tracer.
    #[must_use]
    pub fn is_trace_stopped(&self, tid: Tid) -> bool {
        self.trace(tid).is_some_and(|trace| trace.stop.is_some())
    }

    /// Whether a traced task goes on after a stop and has to be looked at before it runs.
    #[must_use]
    pub fn is_to_be_looked_at(&self, tid: Tid) -> bool {
        self.trace(tid)
            .is_some_and(|trace| trace.look && trace.stop.is_none())
    }

    /// Begins to trace a task.
    pub fn begin_trace(&mut self, tracer: Pid, tid: Tid, number: u32, options: u32) {
        let trace = Trace {
            tracer,
            number,
            options,
            call: -1,
            ..Trace::default()
        };
        self.traces.all.insert(tid, trace);
        self.traces.by.insert((tracer, tid));
    }

    /// Takes over the trace of a task from an image; `tracer` is the restored process that traces it.
    pub(crate) fn adopt_trace(&mut self, tracer: Pid, tid: Tid, number: u32, trace: Trace) {
        if !trace.leaves {
            self.traces.by.insert((tracer, tid));
        }
        let trace = Trace {
            tracer,
            number,
            ..trace
        };
        self.traces.all.insert(tid, trace);
    }

    /// The ends of tasks that a tracer has not been told of: number and status.
    pub(crate) fn untold_ends(&self, tracer: Pid) -> Vec<(u32, Status)> {
        let ends = self.traces.ends.range((tracer, 0)..=(tracer, u64::MAX));
        ends.map(|(_, end)| *end).collect()
    }

    /// Takes over such ends from an image.
    pub(crate) fn adopt_ends(&mut self, tracer: Pid, ends: Vec<(u32, Status)>) {
        for end in ends {
            self.traces.last_end += 1;
            self.traces.ends.insert((tracer, self.traces.last_end), end);
        }
    }

    /// Stops a task at the first of these stops; it comes to the others before it runs. It must not be stopped already.
    pub fn stop_traced(&mut self, tid: Tid, stops: impl IntoIterator<Item = Stop>) {
        let Some(trace) = self.traces.all.get_mut(&tid) else {
            return;
        };
        trace.next = stops.into_iter().collect();
        if trace.next.is_empty() {
            return;
        }
        trace.stop = trace.next.pop_front();
        self.traces.halts.push(tid);
        self.tell_tracer(tid);
    }

    fn tell_tracer(&mut self, tid: Tid) {
        let Some(trace) = self.traces.all.get_mut(&tid) else {
            return;
        };
        trace.told = false;
        let (tracer, number, status) = (trace.tracer, trace.number, trace.code());
        let origin = Origin {
            code: TRAPPED as i32,
            pid: number,
            status,
            ..Origin::default()
        };
        let wants = self.find(tracer).is_some_and(|p| {
            p.status.is_none() && p.actions.try_borrow().map_or(true, |a| a.wants_stops())
        });
        if wants {
            self.send(To::Process(tracer), sig::CHLD, origin);
        }
        self.wake(Key::Children(tracer));
    }

    /// Lets a stopped task go on with this signal (0 for none), or stop at its next stop.
    pub fn resume_traced(&mut self, tid: Tid, mode: Mode, signal: u32) {
        let Some(trace) = self.traces.all.get_mut(&tid) else {
            return;
        };
        trace.mode = mode;
        let stop = trace.stop.take();
        while let Some(next) = trace.next.pop_front() {
            if trace.leaves || next == Stop::Exit && mode != Mode::Calls {
                continue;
            }
            trace.stop = Some(next);
            return self.tell_tracer(tid);
        }
        trace.signal = match stop {
            Some(Stop::Signal(old, origin)) if signal == old => Some((old, origin)),
            Some(Stop::Signal(..) | Stop::Exit) if signal != 0 => Some((signal, Origin::default())),
            _ => None,
        };
        trace.look = true;
        self.traces.goes.push(tid);
    }

    /// Ends a trace. A task that has stopped goes on with this signal (0 for none).
    pub fn leave_trace(&mut self, tid: Tid, signal: u32) {
        let Some(trace) = self.traces.all.get_mut(&tid) else {
            return;
        };
        self.traces.by.remove(&(trace.tracer, tid));
        // A task that makes a single step still has the step flag, which is taken away at the trap of the step.
        let steps = core::mem::take(&mut trace.mode) == Mode::Step;
        if trace.stop.is_none() && !trace.look && !steps {
            self.traces.all.remove(&tid);
            return;
        }
        trace.leaves = true;
        if trace.stop.is_some() {
            self.resume_traced(tid, Mode::Free, signal);
        }
    }

    /// Removes a trace, and returns it.
    pub fn forget_trace(&mut self, tid: Tid) -> Option<Trace> {
        let trace = self.traces.all.remove(&tid)?;
        self.traces.by.remove(&(trace.tracer, tid));
        Some(trace)
    }

    /// A task has ended: removes its trace, and keeps the end for the tracer. A tracer that is the `parent` is told as
    /// that.
    pub(crate) fn end_trace(&mut self, tid: Tid, status: Status, parent: Option<Pid>) {
        if self.traces.all.is_empty() {
            return;
        }
        let Some(trace) = self.forget_trace(tid) else {
            return;
        };
        if trace.leaves || parent == Some(trace.tracer) {
            return;
        }
        let own = (trace.tracer, 0)..=(trace.tracer, u64::MAX);
        let lives = self
            .find(trace.tracer)
            .is_some_and(|tracer| tracer.status.is_none());
        if !lives || self.traces.ends.range(own).count() >= MAX_ENDS {
            return;
        }
        self.traces.last_end += 1;
        let key = (trace.tracer, self.traces.last_end);
        self.traces.ends.insert(key, (trace.number, status));
        self.wake(Key::Children(trace.tracer));
    }

    /// A tracer has ended: ends all of its traces, and kills the tasks that are to end with it.
    pub(crate) fn end_tracer(&mut self, tracer: Pid) {
        if self.traces.by.is_empty() && self.traces.ends.is_empty() {
            return;
        }
        let ends = self.traces.ends.range((tracer, 0)..=(tracer, u64::MAX));
        let ends: Vec<_> = ends.map(|(key, _)| *key).collect();
        for key in ends {
            self.traces.ends.remove(&key);
        }
        for tid in self.tracees(tracer) {
            if self.trace(tid).is_some_and(|t| t.has(option::EXITKILL)) {
                self.send(To::Task(tid), sig::KILL, Origin::default());
            }
            self.leave_trace(tid, 0);
        }
    }

    /// The tasks that a process traces.
    #[must_use]
    pub fn tracees(&self, tracer: Pid) -> Vec<Tid> {
        let all = self.traces.by.range((tracer, 0)..=(tracer, Tid::MAX));
        all.map(|(_, tid)| *tid).collect()
    }

    fn process_of(&self, tid: Tid) -> Option<&Process> {
        self.find(self.task_process(tid))
    }

    /// The next stop or end that a tracer has not been told of, and whether it traces any task that `which` means.
    #[must_use]
    pub fn trace_news(&self, tracer: Pid, which: Which) -> (Option<TraceNews>, bool) {
        if self.traces.by.is_empty() && self.traces.ends.is_empty() {
            return (None, false);
        }
        let is = |number: u32| match which {
            Which::All | Which::Group(_) => true,
            Which::Number(wanted) => wanted == number,
        };
        let ends = self.traces.ends.range((tracer, 0)..=(tracer, u64::MAX));
        let mut ends = ends.filter(|(_, (number, _))| is(*number));
        if let Some((key, (number, status))) = ends.next() {
            return (Some(TraceNews::Ended(*key, *number, *status)), true);
        }
        let mut any = false;
        for tid in self.tracees(tracer) {
            let Some(trace) = self.trace(tid).filter(|trace| is(trace.number)) else {
                continue;
            };
            if let Which::Group(group) = which {
                if self.process_of(tid).is_none_or(|p| p.group != group) {
                    continue;
                }
            }
            any = true;
            if trace.stop.is_some() && !trace.told {
                let news = TraceNews::Stopped(tid, trace.number, trace.code());
                return (Some(news), true);
            }
        }
        (None, any)
    }

    /// Notes that a tracer has been told.
    pub fn trace_told(&mut self, news: &TraceNews) {
        match news {
            TraceNews::Stopped(tid, ..) => {
                if let Some(trace) = self.traces.all.get_mut(tid) {
                    trace.told = true;
                }
            }
            TraceNews::Ended(key, ..) => {
                self.traces.ends.remove(key);
            }
        }
    }

    /// Takes the tasks that have stopped since the last call, whose threads are to be held.
    pub fn take_trace_halts(&mut self) -> Vec<Tid> {
        take(&mut self.traces.halts)
    }

    /// Takes the tasks that go on since the last call.
    pub fn take_trace_goes(&mut self) -> Vec<Tid> {
        take(&mut self.traces.goes)
    }

    #[inline]
    pub(crate) fn are_traces_settled(&self) -> bool {
        self.traces.halts.is_empty() && self.traces.goes.is_empty()
    }
}
