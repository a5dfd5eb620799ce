//! The table of processes and their tasks: takes their calls, and wakes those that wait.
//!
//! The emulation leaves what one call does to other tasks in its [`System`]; [`Table::settle`] carries it out before
//! the server waits again. A call that waits is in `waiters` under each of its keys, and in `timers` with its deadline.
//! So an event costs time only for the tasks that it concerns, however many processes there are.
//!
//! * [`living`]: a task that lives, and its thread; [`due`]: tasks whose calls are made again; [`signals`]: signals and
//!   timers;
//! * [`start`]: new processes; [`end`]: their end, and that of their threads;
//! * [`trace`]: tasks that are stopped for their tracer;
//! * [`native`]: native programs that Linux programs have started;
//! * [`mod@debug`]: requests of a debugger; [`image`]: freezing, saving and rebuilding; [`info`]: what others hold and
//!   see of processes.

mod debug;
mod due;
mod end;
mod image;
mod info;
mod living;
mod native;
mod signals;
mod start;
mod trace;

use abi::message::ExceptionMessage;
use abi::Registers;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use interface::server::{park, Event, Resumption};
use personality::emulate::{self, Answer, Outcome, Wake};
use personality::errno::{Errno, EACCES, EAGAIN, ELOOP, ENOENT, ENOEXEC, ENOMEM};
use personality::host::Fpu;
use personality::number as nr;
use personality::part::{Gathered, Rebuilding, What};
use personality::signal::sig;
use personality::system::{Key, System, Tid};
use process::debug::End;
use process::{Common, Process};
use proto::Error;
use rt::obj::{Port, Ref};
use rt::process::Client;
use rt::sync::Mutex;
use services::process::{Named, Pid, Status};

use crate::clock;
use crate::disk;
use crate::net;
use crate::pace::Pace;
use crate::world::{short, Born, Memory, Seat, View, World};

use debug::Debugged;
use due::Due;
use living::Living;

pub(crate) use native::set_bell;

/// Most stops of one process at a time.
const MAX_HOLDS: u32 = 64;

/// A call (or exception) that waits. Its message stays with the task ([`Living::message`]).
struct Parked {
    wake: Wake,
    /// Whether the thread was stopped for somebody who may have changed its registers or answered its exception.
    is_stale: bool,
}

/// What the tasks of a living process have in common here.
#[derive(Default)]
struct Group {
    /// When its next timer expires, as noted in the table's `timers`.
    alarm: Option<u64>,
    /// The process with which it is frozen for a checkpointer. It can be frozen only once at a time: an image has each
    /// thread with the stop of the `freeze` for which it was made, and would include the stops of all others.
    frozen: Option<Pid>,
    /// It is ended when it is thawed.
    dies: bool,
    /// How often it is stopped from outside.
    stops: u32,
    /// How many of these stops came while it was frozen, less those undone meanwhile. The image must have the threads
    /// as they were, so they get these stops at the thaw.
    owed: i32,
    /// The debugger's state, if it is debugged.
    debugged: Option<Debugged>,
    /// Whether a signal has stopped it.
    halted: bool,
    /// The signal by which it ends when its turn comes; until then it is stopped.
    ending: Option<u8>,
    /// What a `freeze` of its tree has gathered, while that waits for more.
    saving: Option<Box<Saving>>,
    /// The part that a `freeze` has made.
    part: Vec<u8>,
    /// For a tree that is frozen or being rebuilt: its memories in the order of the part, and their names.
    memories: Vec<(Weak<RefCell<Memory>>, String)>,
    /// For a frozen tree: files that are open, executed or mapped and that are not in the part.
    files: Vec<Named>,
    /// For a frozen tree: its memory objects in the order of the part.
    objects: Vec<u64>,
    /// Whether it was adopted and its kernel objects have not been checked yet.
    unproven: bool,
    /// Where its first task was, if that has ended while others go on. The thread stays stopped.
    first: Option<Seat>,
}

impl Group {
    const fn holds_still(&self) -> bool {
        !self.is_of_its_signals() || self.halted
    }

    /// Whether nothing but a signal can hold it.
    const fn is_of_its_signals(&self) -> bool {
        self.frozen.is_none() && self.stops == 0 && self.ending.is_none()
    }
}

/// A frozen tree whose saving waits for a file server or for a turn.
struct Saving {
    what: What,
    /// The processes that are saved, parents before their children.
    set: Vec<Pid>,
    gathered: Gathered,
    /// Whether what it waited for has come.
    is_due: bool,
    /// Reserves memory for `gathered`.
    hold: rt::heap::Hold,
}

/// A tree that is being rebuilt: pieces of its part are still to come, or files to be opened.
struct Adopting {
    bytes: Vec<u8>,
    /// The decoded part once all of it has come, with the memory reserved for it.
    rebuilding: Option<(Rebuilding, rt::heap::Hold)>,
    /// What its clock adds to the machine's, in nanoseconds.
    clock_offset: u64,
    /// Whether a file that it waited for has come.
    is_due: bool,
    /// Its memories.
    bodies: Vec<Body>,
    /// The segments of its memory objects.
    objects: Vec<Common>,
}

/// A memory of a tree: number of its keeper; segments and space; port of the keeper.
type Body = (u64, Process, Port);

enum Entry {
    Living(Box<Group>),
    Adopting(Box<Adopting>),
    Ended {
        status: Status,
        name: String,
        /// Whether its status has been taken. The entry stays while others of its tree live, so that they can be ended
        /// by its number.
        reaped: bool,
    },
}

impl Entry {
    fn ended(status: Status, name: String) -> Self {
        Entry::Ended {
            status,
            name,
            reaped: false,
        }
    }
}

/// Who started a process, and with what; empty if that was a Linux program.
#[derive(Default)]
struct Starter {
    /// The port at init of the process that started it. When that is dead the status is not kept any longer.
    owner: Option<Ref>,
    /// The session in which the tree's native programs are started, once there is one. They count as one job, even if a
    /// server has started the tree.
    natives: Arc<Mutex<Option<Client>>>,
    /// The references that are passed on to native programs of its tree.
    passed: Vec<Ref>,
}

/// What is kept of a process, also after its end, for others than Linux programs.
struct Hold {
    /// The control port and a reference to it, once somebody has asked for it.
    door: Option<(Port, Ref)>,
    /// Who started it, and with what.
    starter: Starter,
    /// The job that it is charged to; `None` if a server has started it.
    job: Option<Pid>,
    /// Distinguishes processes that have one number at different times.
    serial: u64,
    /// Happens when its status changes.
    event: Rc<Event>,
    end: Arc<End>,
}

/// Most calls that are made again before programs get a turn: many calls can wait for the same event.
const RETRIES: u32 = 16;
/// Most descriptors that are closed before programs get a turn, of processes that are ended by a signal or because
/// their tree is killed.
const CLOSES: usize = 1024;
/// What the end of a process costs in addition, counted in descriptors; below, the end of a thread.
const PROCESS_CLOSES: usize = 64;
const TASK_CLOSES: usize = 16;

/// What is to be done at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The call of this task is to be made again.
    Call(Tid),
    /// Timers of this process expire.
    Alarm(Pid),
}

/// All processes.
pub(crate) struct Table {
    entries: BTreeMap<Pid, Entry>,
    /// The living tasks.
    tasks: BTreeMap<Tid, Box<Living>>,
    /// One for each entry.
    holds: BTreeMap<Pid, Hold>,
    /// What the emulation knows of the processes.
    system: System,
    world: World,
    last_serial: u64,
    /// Which task waits for which key.
    waiters: BTreeSet<(Key, Tid)>,
    /// What is to be done when, on the machine's clock.
    timers: BTreeSet<(u64, Timer)>,
    /// The tasks whose calls are to be made again.
    due: Due,
    /// Tasks whose signals came while the thread was about to get an answer.
    signalled: Vec<Tid>,
    /// Processes to be stopped as soon as none of their threads is about to get an answer.
    halting: Vec<Pid>,
    /// Processes that are being ended, as many in each turn as there is time for.
    ending: VecDeque<Pid>,
    /// Trees whose saving or rebuilding waits for a turn.
    saving: Vec<Pid>,
    /// How many descriptors may still be closed in this turn for processes that end.
    closes: usize,
    pace: Option<Pace>,
    /// Why a tree was not saved or restored, until it is asked for ([`process::held::Manager::why`]).
    pub(crate) why: String,
}

fn error_of(errno: Errno) -> Error {
    match errno {
        ENOENT => Error::NotFound,
        EACCES => Error::Denied,
        ENOEXEC => Error::BadFormat,
        ENOMEM => Error::NoMemory,
        EAGAIN => Error::Limit,
        ELOOP => Error::Loop,
        _ => Error::Invalid,
    }
}

/// Moves a timer to another time, or removes it.
fn put_timer(
    timers: &mut BTreeSet<(u64, Timer)>,
    which: Timer,
    at: &mut Option<u64>,
    new: Option<u64>,
) {
    if *at != new {
        if let Some(old) = core::mem::replace(at, new) {
            timers.remove(&(old, which));
        }
        timers.extend(new.map(|new| (new, which)));
    }
}

impl Table {
    /// A table without processes.
    pub(crate) fn new(portset: Ref) -> Self {
        Table {
            entries: BTreeMap::new(),
            tasks: BTreeMap::new(),
            holds: BTreeMap::new(),
            system: System::new(),
            world: World::new(portset),
            last_serial: 0,
            waiters: BTreeSet::new(),
            timers: BTreeSet::new(),
            due: Due::default(),
            signalled: Vec::new(),
            halting: Vec::new(),
            ending: VecDeque::new(),
            saving: Vec::new(),
            closes: CLOSES,
            pace: None,
            why: String::new(),
        }
    }

    /// Sets what asks for turns.
    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.pace = Some(pace);
    }

    /// The group of a living process.
    fn group(&mut self, pid: Pid) -> Result<&mut Group, Error> {
        match self.entries.get_mut(&pid) {
            Some(Entry::Living(group)) => Ok(group),
            Some(Entry::Adopting(_)) => Err(Error::Invalid),
            Some(Entry::Ended { .. }) => Err(Error::Ended),
            None => Err(Error::NotFound),
        }
    }

    /// The living tasks of a process.
    fn tasks_of(&self, pid: Pid) -> Vec<Tid> {
        let process = self.system.find(pid);
        process.map_or_else(Vec::new, |p| p.tasks.iter().copied().collect())
    }

    /// A task of a process: the first one if it lives.
    fn one_of(&self, pid: Pid) -> Option<&Living> {
        let first = self.tasks.get(&pid).filter(|living| living.task.pid == pid);
        let other = || self.tasks.get(self.system.find(pid)?.tasks.first()?);
        first.or_else(other).map(|living| &**living)
    }

    /// The time at which the event loop must run again at the latest. Long work goes on after programs had a turn.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let is_long = self.system.objects.is_due() || !self.due.is_empty();
        let is_long = is_long || !self.ending.is_empty() || !self.saving.is_empty();
        let comes = is_long && self.pace.as_mut().is_some_and(Pace::ask);
        if is_long && !comes || !self.signalled.is_empty() || !self.halting.is_empty() {
            return Some(0);
        }
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Lets the call of a task wait.
    fn park(&mut self, tid: Tid, message: &ExceptionMessage, wake: Wake) {
        // Whoever has the control port of a process can give two of its threads one tag.
        let living = self.tasks.get(&tid);
        if living.is_some_and(|living| living.parked.is_some()) {
            self.unpark(tid);
        }
        for key in &wake.keys {
            self.waiters.insert((*key, tid));
        }
        if let Some(living) = self.tasks.get_mut(&tid) {
            living.message = *message;
            living.parked = Some(Parked {
                wake,
                is_stale: living.held || living.stays || living.traced,
            });
            living.note_work(&mut self.system);
        }
        self.schedule(tid);
    }

    /// Notes whether a task uses the processor.
    fn note_work(&mut self, tid: Tid) {
        if let Some(living) = self.tasks.get_mut(&tid) {
            living.note_work(&mut self.system);
        }
    }

    /// Ends the wait of a task's call, and returns its state.
    fn unpark(&mut self, tid: Tid) -> Option<Parked> {
        self.due.remove(tid);
        let parked = self.tasks.get_mut(&tid)?.parked.take()?;
        for key in &parked.wake.keys {
            self.waiters.remove(&(*key, tid));
        }
        if parked.wake.deadline.is_some() {
            self.schedule(tid);
        }
        Some(parked)
    }

    /// Sets the timer for the deadline of a task's call.
    fn schedule(&mut self, tid: Tid) {
        let Some(living) = self.tasks.get_mut(&tid) else {
            return;
        };
        let new = living.deadline();
        put_timer(&mut self.timers, Timer::Call(tid), &mut living.timer, new);
    }

    /// A living task, with the system and the world, which its calls need at the same time.
    fn split(&mut self, tid: Tid) -> Option<(&mut Living, &mut System, &mut World)> {
        let living = self.tasks.get_mut(&tid)?;
        Some((living, &mut self.system, &mut self.world))
    }

    /// Stops the thread of a task that is about to go on but is at a stop for its tracer.
    fn hold_for_tracer(&mut self, tid: Tid) {
        if self.system.is_trace_stopped(tid) {
            let runs = self.tasks.get(&tid).filter(|living| !living.seat.fresh);
            if runs.is_some() {
                self.hold_traced(tid);
            }
        }
    }

    /// Lets a thread go on whose exception is not the event loop's current one.
    fn complete(&mut self, tid: Tid, registers: &Registers, fpu: Option<Fpu>) {
        let Some(living) = self.tasks.get_mut(&tid) else {
            return;
        };
        if living.set_registers(registers, fpu).is_err() {
            // The registers came from a signal frame that the program made up.
            rt::log!("{}: has impossible registers", short(&living.task.name()));
            let pid = living.task.pid;
            self.end_by(pid, sig::SEGV as u8);
        }
    }

    /// Applies the outcome of a call to a thread whose exception is not the event loop's current one.
    fn carry_out(&mut self, tid: Tid, message: &ExceptionMessage, outcome: Outcome) {
        self.hold_for_tracer(tid);
        let Some(living) = self.tasks.get_mut(&tid) else {
            return;
        };
        let pid = living.task.pid;
        match outcome {
            Outcome::Go { registers, fpu } => self.complete(tid, &registers, fpu),
            Outcome::Park(wake) => self.park(tid, message, wake),
            // A thread that is let go here, and not by the reply, queues behind all others of its priority.
            Outcome::Turn => {
                let _ = living.set_registers(&message.registers, None);
            }
            Outcome::Left => self.leave(tid),
            Outcome::End(status) => self.finish(pid, status),
            Outcome::Native(native) => self.stand_in(tid, message, *native),
            Outcome::Execute(prepared) => {
                self.end_others(tid);
                if let Some((living, system, world)) = self.split(pid) {
                    let (task, mut view) = living.parts(system, world);
                    let outcome = emulate::execute(task, system, &mut view, *prepared);
                    self.debug_moved(pid);
                    self.carry_out(pid, message, outcome);
                }
            }
        }
    }

    /// Handles an exception that came to the keeper with this number; the tag of the message is the task.
    pub(crate) fn exception(
        &mut self,
        keeper: u64,
        message: &ExceptionMessage,
        resumption: &mut Resumption,
    ) {
        let Ok(tid) = Tid::try_from(message.tag) else {
            return;
        };
        let entry = &message.registers;
        if message.code != abi::Exception::ForeignCall as u64 {
            if let Some(goes_on) = self.take(keeper, tid, message) {
                if goes_on {
                    resumption.all(entry);
                }
                return;
            }
        }
        let Some((living, system, world)) = self.split(tid) else {
            return;
        };
        // The tag is the thread's, and the keeper the memory's: both must agree.
        if living.seat.memory.borrow().id != keeper {
            return;
        }
        if living.held {
            // The exception arrived just before the process was stopped. It is handled when the process goes on.
            park();
            self.park(tid, message, Wake::default());
            return;
        }
        let answer = living.answer(system, world, message);
        if self.world.trace {
            self.trace(tid, message, &answer);
        }
        if self.world.watches && self.note_touched(tid, answer.is_over()) {
            park();
            self.carry_out(tid, message, answer.outcome(entry));
            return;
        }
        // `sched_yield` must let others run first: a thread that is let go by `carry_out` queues behind them.
        let yields = entry.rax == nr::sched_yield;
        match &answer {
            Answer::Value(value) if !yields => {
                return resumption.control(emulate::control(entry, *value))
            }
            Answer::Other(Outcome::Go {
                registers,
                fpu: None,
            }) if !yields => return resumption.all(registers),
            _ => {}
        }
        park();
        self.carry_out(tid, message, answer.outcome(entry));
    }

    /// Wakes calls that wait for input from the console, or for room for output.
    pub(crate) fn console_news(&mut self) {
        self.system.wake(Key::Console);
    }

    /// Whether nothing at all is due, as after most calls.
    #[inline(always)]
    fn is_idle(&self) -> bool {
        self.timers.is_empty()
            && self.signalled.is_empty()
            && self.halting.is_empty()
            && self.ending.is_empty()
            && self.saving.is_empty()
            && !self.system.busy.is_due()
            && !self.system.objects.is_due()
            && self.is_settled()
    }

    /// Whether nothing is due, timers aside.
    #[inline(always)]
    fn is_settled(&self) -> bool {
        self.due.is_empty() && self.is_settled_but_for_retries()
    }

    /// As [`Table::is_settled`], but calls may be due that are made again.
    #[inline(always)]
    fn is_settled_but_for_retries(&self) -> bool {
        self.system.is_settled() && self.is_quiet()
    }

    /// Carries out everything that is due: what calls did to other tasks, calls to be made again, timers.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        self.closes = CLOSES;
        if !self.is_idle() {
            self.settle_all();
        }
        self.world.room.clear();
    }

    #[inline(never)]
    fn settle_all(&mut self) {
        // These threads have received their replies by now, so they can be interrupted.
        let mut signalled = core::mem::take(&mut self.signalled);
        for pid in core::mem::take(&mut self.halting) {
            self.halt(pid);
        }
        if self.system.busy.is_due() {
            let (root, seat, world) = (0, None, &mut self.world);
            self.system.settle_executed(&mut View { root, seat, world });
        }
        if self.pace.as_mut().is_none_or(Pace::take) {
            self.settle_objects();
            self.end_next();
            for root in core::mem::take(&mut self.saving) {
                self.tree_is_due(root);
            }
        }
        let mut retries = RETRIES;
        // Most calls leave nothing to do.
        let mut look = !self.timers.is_empty();
        while core::mem::take(&mut look) || !signalled.is_empty() || !self.is_settled() {
            if !self.is_quiet() {
                self.hear(&mut signalled);
            }
            self.wake();
            if !self.timers.is_empty() {
                self.ring(clock::now(), &mut signalled);
            }
            for tid in core::mem::take(&mut signalled) {
                self.deliver_signals_in_turn(tid);
            }
            while retries > 0 {
                let Some(tid) = self.due.next() else { break };
                if self.may_get_signals(tid) {
                    self.retry(tid);
                    retries -= 1;
                } else {
                    // It comes first in the next turn.
                    self.due.first_again(tid);
                    retries = 0;
                }
            }
            if !self.is_quiet() {
                self.carry_out_stops();
            }
            if retries == 0 && self.is_settled_but_for_retries() {
                // The rest comes after programs had a turn.
                self.signalled.append(&mut signalled);
                break;
            }
        }
    }

    /// Whether nothing but calls to be made again is due: most calls leave nothing else.
    fn is_quiet(&self) -> bool {
        self.world.born.is_empty()
            && self.system.is_quiet()
            && self.world.disk.is_settled()
            && native::is_settled()
            && net::is_settled()
    }

    /// Takes news: new tasks, changed timers, sent signals, ended native programs, answers of the disk and the network.
    fn hear(&mut self, signalled: &mut Vec<Tid>) {
        for Born { task, seat } in core::mem::take(&mut self.world.born) {
            self.born(task, seat);
        }
        for pid in self.system.take_timers() {
            self.schedule_alarm(pid);
        }
        for (to, signal, origin) in self.system.take_sent() {
            self.post(to, signal, origin, signalled);
        }
        for tid in self.system.futexes.take_granted() {
            self.grant(tid);
        }
        for (pid, number, status) in native::take_ended() {
            self.program_ended(pid, number, status);
        }
        for tid in self.world.disk.take_due() {
            match disk::root_of(tid) {
                Some(root) => self.tree_is_due(root),
                None => {
                    self.due.insert(tid);
                }
            }
        }
        for answer in net::take_answers() {
            self.system.answered(answer);
        }
        net::put(self.system.take_requests());
        for root in self.system.take_rebuilt() {
            self.tree_is_due(root);
        }
    }

    /// Makes the calls due that wait for keys which were woken.
    fn wake(&mut self) {
        let woken = self.system.take_woken();
        for (key, events) in &woken {
            let (key, events) = (*key, *events);
            let waiters = self.waiters.range((key, 0)..=(key, Tid::MAX));
            let wants = |tid: &Tid| {
                let parked = self
                    .tasks
                    .get(tid)
                    .and_then(|living| living.parked.as_ref());
                let wanted = parked.and_then(|parked| parked.wake.events);
                wanted.is_none_or(|wanted| wanted & events != 0)
            };
            for (_, tid) in waiters.filter(|(_, tid)| wants(tid)) {
                self.due.insert(*tid);
            }
        }
        self.system.give_woken(woken);
    }

    /// Stops and continues tasks as others have asked, and forgets processes that are gone.
    fn carry_out_stops(&mut self) {
        for tid in self.system.take_trace_halts() {
            self.hold_traced(tid);
        }
        for tid in self.system.take_trace_goes() {
            self.release_traced(tid);
        }
        for pid in self.system.take_halts() {
            self.halt(pid);
        }
        for pid in self.system.take_gone() {
            self.forget(pid);
        }
    }

    /// Writes back one step of what was changed in mapped files.
    fn settle_objects(&mut self) {
        if !self.system.objects.is_due() {
            return;
        }
        let mut view = View {
            root: 0,
            seat: None,
            world: &mut self.world,
        };
        self.system.settle_objects(&mut view);
    }

    /// Notes that the futex wait of a task was granted. The task keeps that, so it holds whatever happens before the
    /// call is made again.
    fn grant(&mut self, tid: Tid) {
        if let Some(living) = self.tasks.get_mut(&tid) {
            if let Some(wait) = &mut living.task.wait {
                wait.progress = personality::futex::GRANTED;
            }
            self.due.insert(tid);
        }
    }

    /// Makes a waiting call again.
    fn retry(&mut self, tid: Tid) {
        let living = self.tasks.get(&tid);
        let held = living.is_none_or(|living| living.held && !living.finishes);
        if held {
            // The call is made again when the process goes on. Before that only `SIGKILL` has an effect.
            self.deliver_signals(tid);
            return;
        }
        if self
            .tasks
            .get(&tid)
            .is_some_and(|living| living.native.is_some())
        {
            self.stand_in_signalled(tid);
            return;
        }
        let Some(Parked { is_stale, .. }) = self.unpark(tid) else {
            // The task runs: it was due only for its signals.
            self.deliver_signals(tid);
            return;
        };
        let Some((living, system, world)) = self.split(tid) else {
            return;
        };
        let mut message = living.message;
        if is_stale {
            match living.state() {
                Ok(state) if state.exception_delivered == 1 => message.registers = state.registers,
                _ => return self.note_work(tid),
            }
        }
        let answer = living.answer(system, world, &message);
        if self.world.trace {
            self.trace(tid, &message, &answer);
        }
        if self.world.watches {
            self.note_touched(tid, answer.is_over());
        }
        match answer.outcome(&message.registers) {
            Outcome::Go {
                registers,
                fpu: None,
            } => {
                self.hold_for_tracer(tid);
                self.complete(tid, &registers, None);
            }
            outcome => self.carry_out(tid, &message, outcome),
        }
        let Some(living) = self.tasks.get_mut(&tid) else {
            return;
        };
        living.note_work(&mut self.system);
        if living.finishes {
            self.finished(tid);
        }
    }

    /// Logs a call that was made, and its result.
    #[cold]
    fn trace(&self, tid: Tid, message: &ExceptionMessage, answer: &Answer) {
        let call = emulate::describe(&message.registers, true);
        let value = match answer {
            _ if message.code != abi::Exception::ForeignCall as u64 => return,
            Answer::Value(value) => *value,
            Answer::Other(Outcome::Go { registers, .. }) => registers.rax,
            // It is logged when it is done.
            Answer::Other(Outcome::Park(_) | Outcome::Turn) => return,
            Answer::Other(_) => return rt::log!("[{tid}] {call}"),
        };
        rt::log!("[{tid}] {call} = {}", value as i64);
    }
}
