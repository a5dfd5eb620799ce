//! The table of processes: starts and ends them, and wakes those that wait.
//!
//! What one call does to other processes the emulation leaves in its [`System`]; [`Table::settle`] carries it out before
//! the server waits again. A call that waits stands in `waiters` under each of its keys and in `timers` with its
//! deadline, so that what happens costs those whom it concerns, and nothing grows with the number of processes.

use abi::message::ExceptionMessage;
use abi::state::ThreadState;
use abi::{Exception, RefKind, Registers, Type};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use interface::server::{park, Event};
use personality::emulate::{self, Outcome, Wake};
use personality::errno::{Errno, EACCES, EAGAIN, ELOOP, ENOENT, ENOEXEC, ENOMEM};
use personality::exec;
use personality::host::Fpu;
use personality::memory::NO_SLOT;
use personality::part::{self, Refusal};
use personality::process::{open_flags, Current, Description, Device, Kind, Task};
use personality::signal::{sig, Origin};
use personality::system::{Key, System};
use process::{words, Process};
use proto::layout::{CONTROL_MAPPINGS, CONTROL_THREAD, PRIORITY_PROGRAM};
use proto::Error;
use rt::obj::{Port, Ref, RefAt, ThreadAt};
use services::fs::{mode, Flags};
use services::process::{Info, Pid, Start, Status, Stdio};

use crate::control::{control_port, Known};
use crate::world::{short, Born, Seat, View, World};

/// Most `Freeze`s, and most `Stop`s, of one process at a time.
const MAX_HOLDS: u32 = 64;

/// A call (or exception) that waits.
struct Parked {
    message: ExceptionMessage,
    wake: Wake,
}

/// A process that lives.
struct Living {
    task: Task,
    seat: Seat,
    parked: Option<Parked>,
    /// When something is to be done for it, as it stands in the table's `timers`.
    timer: Option<u64>,
    /// How often it is frozen.
    frozen: u32,
    /// How often it is stopped.
    stops: u32,
    /// The part that `Freeze` made.
    part: Vec<u8>,
    /// It was adopted, and its objects have not been looked at yet.
    unproven: bool,
}

/// A process that is being rebuilt, and of which not all of the part is there.
struct Adopting {
    bytes: Vec<u8>,
    /// The number of its keeper.
    keeper: u32,
    body: Process,
    port: Port,
}

enum Entry {
    Living(Box<Living>),
    Adopting(Box<Adopting>),
    Ended { status: Status, name: String },
}

/// What others than Linux programs hold of a process, also after its end.
struct Hold {
    /// The control port and a reference to it, as soon as somebody has asked for it.
    door: Option<(Port, Ref)>,
    /// The port at init of the process that started it; `None` if that was a Linux program. When it is dead the status is
    /// not kept any longer.
    owner: Option<Ref>,
    /// The job that it is counted for; `None` if a server has started it.
    job: Option<Pid>,
    /// Tells it from others that have its number at other times.
    serial: u64,
    /// Happens when its status changes.
    event: Rc<Event>,
}

/// All processes.
pub(crate) struct Table {
    entries: BTreeMap<Pid, Entry>,
    /// One for each entry.
    holds: BTreeMap<Pid, Hold>,
    /// What Linux knows of them.
    system: System,
    world: World,
    last_serial: u64,
    /// Who waits for what.
    waiters: BTreeSet<(Key, Pid)>,
    /// When something is to be done for whom, on the machine's clock.
    timers: BTreeSet<(u64, Pid)>,
    /// Whose calls are to be made again now.
    due: BTreeSet<Pid>,
    /// Who gets signals that came while the thread was about to get an answer.
    signalled: Vec<Pid>,
}

impl Living {
    fn new(task: Task, seat: Seat) -> Self {
        Living {
            task,
            seat,
            parked: None,
            timer: None,
            frozen: 0,
            stops: 0,
            part: Vec::new(),
            unproven: false,
        }
    }

    fn thread(&self) -> Result<ThreadAt, abi::Code> {
        self.seat.thread()
    }

    fn stop(&self) -> Result<(), abi::Code> {
        self.thread()?.stop()
    }

    fn resume(&self) -> Result<(), abi::Code> {
        self.thread()?.resume()
    }

    fn state(&self) -> Result<ThreadState, abi::Code> {
        self.thread()?.get_state(0, 0, 0)
    }

    fn holds_still(&self) -> bool {
        self.frozen > 0 || self.stops > 0
    }

    /// The task, and the host that acts for it.
    fn parts<'a>(&'a mut self, system: &System, world: &'a mut World) -> (&'a mut Task, View<'a>) {
        let root = system.find(self.task.pid).map_or(0, |p| p.root);
        let view = View {
            root,
            seat: Some(&mut self.seat),
            world,
        };
        (&mut self.task, view)
    }

    /// Emulates the call or exception of a message.
    fn emulate(
        &mut self,
        system: &mut System,
        world: &mut World,
        message: &ExceptionMessage,
    ) -> Outcome {
        let (task, mut view) = self.parts(system, world);
        if message.code == Exception::ForeignCall as u64 {
            emulate::call(task, system, &mut view, &message.registers)
        } else {
            emulate::exception(task, system, &mut view, message)
        }
    }

    /// Lets the thread, which waits for an answer to its exception or is a new one, go on with these registers.
    fn set_registers(&mut self, registers: &Registers, fpu: Option<Fpu>) -> Result<(), abi::Code> {
        if core::mem::take(&mut self.seat.fresh) {
            if let Some(old) = self.seat.old.take() {
                old.leave();
            }
            let state = ThreadState {
                registers: *registers,
                fpu: fpu.map_or_else(abi::state::initial_fpu, |fpu| *fpu),
                tag: u64::from(self.task.pid),
                priority: PRIORITY_PROGRAM,
                ..ThreadState::default()
            };
            let memory = self.seat.memory.borrow();
            let started = memory.body.start_thread(self.seat.thread, state);
            return started.map_err(|_| abi::Code::Invalid);
        }
        let thread = self.thread()?;
        thread.stop()?;
        let result = thread.get_state(0, 0, 0).and_then(|mut state| {
            state.registers = *registers;
            state.exception_delivered = 0;
            if let Some(fpu) = fpu {
                state.fpu = *fpu;
            }
            let memory = self.seat.memory.borrow();
            thread.set_state(&state, memory.body.space_ref().handle(), 0, 0)
        });
        thread.resume()?;
        result
    }

    /// When something is to be done for it, on the machine's clock.
    fn deadline(&self, system: &System, now: u64) -> Option<u64> {
        if self.holds_still() {
            return None;
        }
        let call = self.parked.as_ref().and_then(|p| p.wake.deadline);
        let alarm = system.find(self.task.pid).and_then(|p| p.alarm);
        let own_now = now.wrapping_add(self.task.clock_offset);
        let first = call.into_iter().chain(alarm.map(|a| a.deadline)).min()?;
        Some(now.saturating_add(first.saturating_sub(own_now)))
    }

    /// Whether all mappings of its areas exist.
    fn has_mappings(&self) -> bool {
        let memory = self.seat.memory.borrow();
        let region = &memory.body.control().region;
        let shared = self.task.shares.memory.borrow();
        let mut areas = shared.areas.list().iter().filter(|a| a.slot != NO_SLOT);
        areas.all(|area| {
            let at = CONTROL_MAPPINGS + u64::from(area.slot) * abi::OBJECT_SIZE;
            let kinds = 1 << Type::Mapping as u64;
            matches!(region.search(at, at + abi::OBJECT_SIZE, kinds), Ok((found, _)) if found == at)
        })
    }

    /// Whether space, thread and mappings are there. From now on it is one like all others.
    fn prove(&mut self) -> Result<(), abi::Code> {
        {
            let mut memory = self.seat.memory.borrow_mut();
            if !memory.body.has_objects() {
                return Err(abi::Code::Dead);
            }
            memory.body.learn().map_err(|_| abi::Code::Dead)?;
        }
        if !self.has_mappings() {
            return Err(abi::Code::Dead);
        }
        // Its exceptions say whose they are.
        let thread = self.thread()?;
        let mut state = thread.get_state(0, 0, 0)?;
        if state.tag != u64::from(self.task.pid) {
            state.tag = u64::from(self.task.pid);
            let memory = self.seat.memory.borrow();
            thread.set_state(&state, memory.body.space_ref().handle(), 0, 0)?;
        }
        self.unproven = false;
        // What it was stopped for besides the checkpoint goes on being so.
        self.stops = state.stop_count.saturating_sub(1).min(1 << 16) as u32;
        Ok(())
    }
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

impl Table {
    /// No processes.
    pub(crate) fn new(portset: Ref) -> Self {
        Table {
            entries: BTreeMap::new(),
            holds: BTreeMap::new(),
            system: System::new(),
            world: World::new(portset),
            last_serial: 0,
            waiters: BTreeSet::new(),
            timers: BTreeSet::new(),
            due: BTreeSet::new(),
            signalled: Vec::new(),
        }
    }

    fn living(&mut self, pid: Pid) -> Result<&mut Living, Error> {
        match self.entries.get_mut(&pid) {
            Some(Entry::Living(living)) => Ok(living),
            Some(Entry::Adopting(_)) => Err(Error::Invalid),
            Some(Entry::Ended { .. }) => Err(Error::Ended),
            None => Err(Error::NotFound),
        }
    }

    /// The time at which the event loop has to run at the latest.
    pub(crate) fn deadline(&self) -> Option<u64> {
        if !self.signalled.is_empty() {
            return Some(0);
        }
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// A number for a process that counts for this job, and has no parent.
    fn new_pid(&mut self, job: Option<Pid>) -> Result<Pid, Error> {
        // The status of a process is not kept when its owner has ended too.
        let orphans: Vec<Pid> = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry, Entry::Ended { .. }))
            .map(|(pid, _)| *pid)
            .filter(|pid| {
                let owner = self.holds.get(pid).and_then(|hold| hold.owner.as_ref());
                owner.is_some_and(|owner| owner.kind() != RefKind::Port)
            })
            .collect();
        for pid in orphans {
            self.forget(pid);
        }
        // What is kept of it, and what is taken while its program is looked at.
        self.world.room.add(256 << 10)?;
        self.system.create(job).map_err(error_of)
    }

    /// A copy of the owner's port at init, and the job that its processes are counted for.
    pub(crate) fn owner(&self, owner: &RefAt) -> Result<(Ref, Option<Pid>), Error> {
        let owner = owner.copy().map_err(rt::error_of)?;
        let job = rt::names::job_of(&owner)?;
        Ok((owner, (job != 0).then_some(job)))
    }

    /// What others may hold of a new process.
    fn hold(&mut self, pid: Pid, owner: Option<Ref>, job: Option<Pid>) {
        self.last_serial += 1;
        let hold = Hold {
            door: None,
            owner,
            job,
            serial: self.last_serial,
            event: Rc::new(Event::new()),
        };
        self.holds.insert(pid, hold);
    }

    /// A reference to the control port of a process.
    pub(crate) fn control(&mut self, pid: Pid) -> Result<Ref, Error> {
        let hold = self.holds.get_mut(&pid).ok_or(Error::NotFound)?;
        if hold.door.is_none() {
            let port = control_port(*self.world.portset, pid).map_err(rt::error_of)?;
            let reference = port.reference().map_err(rt::error_of)?;
            hold.door = Some((port, reference));
        }
        let (_, reference) = hold.door.as_ref().ok_or(Error::Broken)?;
        reference.copy().map_err(rt::error_of)
    }

    /// The process whose control port this is.
    pub(crate) fn by_control_port(&self, port: &RefAt) -> Result<Pid, Error> {
        let is = |hold: &Hold| hold.door.as_ref().is_some_and(|door| door.1.same_as(*port));
        let found = self.holds.iter().find(|(_, hold)| is(hold));
        found.map(|(pid, _)| *pid).ok_or(Error::Denied)
    }

    /// What tells a process from others that have its number at other times, and what happens when its status changes.
    pub(crate) fn identity(&self, pid: Pid) -> Result<(u64, Rc<Event>), Error> {
        let hold = self.holds.get(&pid).ok_or(Error::NotFound)?;
        Ok((hold.serial, Rc::clone(&hold.event)))
    }

    /// Whether the process of this number is still the same one.
    pub(crate) fn known(&self, (pid, serial): Known) -> Result<(), Error> {
        let hold = self.holds.get(&pid);
        hold.filter(|hold| hold.serial == serial)
            .map(|_| ())
            .ok_or(Error::NotFound)
    }

    /// Forgets a process. Its number is free again.
    fn forget(&mut self, pid: Pid) {
        self.announce(pid);
        self.entries.remove(&pid);
        self.holds.remove(&pid);
        self.system.forget(pid);
    }

    /// The status of a process has changed, or it is about to be forgotten.
    fn announce(&self, pid: Pid) {
        if let Some(hold) = self.holds.get(&pid) {
            // This is the server's thread, which looks when it is done here.
            hold.event.happened();
        }
    }

    /// Ends a process whose files are closed already, and of whose end the others know.
    fn finish(&mut self, pid: Pid, status: Status) {
        self.unpark(pid);
        if let Some(Entry::Living(living)) = self.entries.remove(&pid) {
            if let Some(timer) = living.timer {
                self.timers.remove(&(timer, pid));
            }
            let Living { task, seat, .. } = *living;
            seat.leave();
            let name = task.name();
            self.entries.insert(pid, Entry::Ended { status, name });
            self.announce(pid);
        }
    }

    /// The call of a process waits.
    fn park(&mut self, pid: Pid, message: ExceptionMessage, wake: Wake) {
        for key in &wake.keys {
            self.waiters.insert((*key, pid));
        }
        if let Ok(living) = self.living(pid) {
            living.parked = Some(Parked { message, wake });
        }
        self.schedule(pid);
    }

    /// The call of a process does not wait any longer: its message.
    fn unpark(&mut self, pid: Pid) -> Option<ExceptionMessage> {
        self.due.remove(&pid);
        let Parked { message, wake } = self.living(pid).ok()?.parked.take()?;
        for key in wake.keys {
            self.waiters.remove(&(key, pid));
        }
        if wake.deadline.is_some() {
            self.schedule(pid);
        }
        Some(message)
    }

    /// Notes when something is to be done for a process.
    fn schedule(&mut self, pid: Pid) {
        let Some(Entry::Living(living)) = self.entries.get_mut(&pid) else {
            return;
        };
        let alarm = self.system.find(pid).is_some_and(|p| p.alarm.is_some());
        let waits = living
            .parked
            .as_ref()
            .is_some_and(|p| p.wake.deadline.is_some());
        let timer = match alarm || waits {
            true => living.deadline(&self.system, rt::time::now()),
            false => None,
        };
        if living.timer != timer {
            if let Some(old) = core::mem::replace(&mut living.timer, timer) {
                self.timers.remove(&(old, pid));
            }
            self.timers.extend(timer.map(|timer| (timer, pid)));
        }
    }

    /// Applies the outcome of a call to a thread whose exception is not the event loop's current one.
    fn carry_out(&mut self, pid: Pid, message: ExceptionMessage, outcome: Outcome) {
        let Ok(living) = self.living(pid) else { return };
        match outcome {
            Outcome::Go { registers, fpu } => {
                if living.set_registers(&registers, fpu).is_err() {
                    // The registers came from a signal frame that the program made up.
                    rt::log!("{}: has impossible registers", short(&living.task.name()));
                    self.end_by(pid, sig::SEGV as u8);
                }
            }
            Outcome::Park(wake) => self.park(pid, message, wake),
            Outcome::End(status) => self.finish(pid, status),
        }
    }

    /// A process that lives, beside the system and the world, which its calls need at the same time.
    fn split(&mut self, pid: Pid) -> Option<(&mut Living, &mut System, &mut World)> {
        match self.entries.get_mut(&pid) {
            Some(Entry::Living(living)) => Some((living, &mut self.system, &mut self.world)),
            _ => None,
        }
    }

    /// Closes a process's files and ends it.
    fn end_by(&mut self, pid: Pid, signal: u8) {
        let status = Status::Killed(signal);
        if let Some((living, system, world)) = self.split(pid) {
            let (task, mut view) = living.parts(system, world);
            emulate::end(task, system, &mut view, status);
        }
        self.finish(pid, status);
    }

    /// An exception of the process with this tag came to the keeper with this number.
    pub(crate) fn exception(
        &mut self,
        keeper: u32,
        message: &ExceptionMessage,
    ) -> Option<Registers> {
        let pid = Pid::try_from(message.tag).ok()?;
        let (living, system, world) = self.split(pid)?;
        // The tag is the thread's own, and the keeper the memory's: both must say the same.
        if living.seat.memory.borrow().id != keeper {
            return None;
        }
        if living.holds_still() {
            // The exception arrived just before the process was stopped. It is delivered again when it goes on.
            park();
            self.park(pid, *message, Wake::default());
            return None;
        }
        match living.emulate(system, world, message) {
            Outcome::Go {
                registers,
                fpu: None,
            } => Some(registers),
            outcome => {
                park();
                self.carry_out(pid, *message, outcome);
                None
            }
        }
    }

    /// The console has input, or room for output.
    pub(crate) fn console_news(&mut self) {
        self.system.wake(Key::Console);
    }

    /// Does everything that is due: what calls did to other processes, parked calls, timers.
    pub(crate) fn settle(&mut self) {
        // These threads have received their replies by now.
        let mut signalled = core::mem::take(&mut self.signalled);
        loop {
            for Born { task, seat } in core::mem::take(&mut self.world.born) {
                self.born(task, seat);
            }
            for pid in self.system.take_timers() {
                self.schedule(pid);
            }
            for (pid, signal, origin) in self.system.take_sent() {
                self.post(pid, signal, origin, &mut signalled);
            }
            for key in self.system.take_woken() {
                let waiters = self.waiters.range((key, 0)..=(key, Pid::MAX));
                self.due.extend(waiters.map(|(_, pid)| *pid));
            }
            if !self.timers.is_empty() {
                self.ring(rt::time::now(), &mut signalled);
            }
            for pid in core::mem::take(&mut signalled) {
                self.deliver_signals(pid);
            }
            while let Some(pid) = self.due.pop_first() {
                self.retry(pid);
            }
            for pid in self.system.take_gone() {
                self.forget(pid);
            }
            if self.system.is_settled() && self.world.born.is_empty() && signalled.is_empty() {
                break;
            }
        }
        self.world.room.clear();
    }

    /// A task that was started is a process like all others from now on.
    fn born(&mut self, task: Task, seat: Seat) {
        let pid = task.pid;
        let root = self.system.find(pid).map_or(pid, |p| p.root);
        let job = self.holds.get(&root).and_then(|hold| hold.job);
        self.hold(pid, None, job);
        let living = Box::new(Living::new(task, seat));
        self.entries.insert(pid, Entry::Living(living));
    }

    /// Sends a signal to a process.
    fn post(&mut self, pid: Pid, signal: u32, origin: Origin, signalled: &mut Vec<Pid>) {
        if let Ok(living) = self.living(pid) {
            let Task {
                signals, shares, ..
            } = &mut living.task;
            signals.post(&shares.actions.borrow(), signal, origin);
            signalled.push(pid);
        }
    }

    /// Does what the clock says.
    fn ring(&mut self, now: u64, signalled: &mut Vec<Pid>) {
        while let Some((deadline, pid)) = self.timers.first().copied() {
            if deadline > now {
                break;
            }
            self.timers.pop_first();
            let Some(Entry::Living(living)) = self.entries.get_mut(&pid) else {
                continue;
            };
            living.timer = None;
            let own_now = now.wrapping_add(living.task.clock_offset);
            let over = |deadline: Option<u64>| deadline.is_some_and(|d| d <= own_now);
            let waited = over(living.parked.as_ref().and_then(|p| p.wake.deadline));
            if waited {
                self.due.insert(pid);
            }
            let alarm = self.system.process(pid).alarm;
            if let Some(alarm) = alarm.filter(|a| over(Some(a.deadline))) {
                self.system.process(pid).alarm = (alarm.interval != 0).then(|| {
                    let deadline = own_now.saturating_add(alarm.interval);
                    personality::process::Alarm { deadline, ..alarm }
                });
                self.post(pid, sig::ALRM, Origin::default(), signalled);
            }
            // A call that is made again is noted anew then.
            if !waited {
                self.schedule(pid);
            }
        }
    }

    /// Makes a parked call again.
    fn retry(&mut self, pid: Pid) {
        let Ok(living) = self.living(pid) else { return };
        if living.holds_still() {
            // It is made again when the process goes on.
            return;
        }
        let Some(mut message) = self.unpark(pid) else {
            return;
        };
        let Some((living, system, world)) = self.split(pid) else {
            return;
        };
        match living.state() {
            // Somebody may have changed the registers meanwhile, or let the thread go on.
            Ok(state) if state.exception_delivered == 1 => message.registers = state.registers,
            _ => return,
        }
        let outcome = living.emulate(system, world, &message);
        self.carry_out(pid, message, outcome);
    }

    /// Delivers signals that were just sent.
    fn deliver_signals(&mut self, pid: Pid) {
        let Table {
            entries,
            system,
            world,
            due,
            signalled,
            ..
        } = self;
        let Some(Entry::Living(living)) = entries.get_mut(&pid) else {
            return;
        };
        if living.task.signals.deliverable().is_none() {
            return;
        }
        if living.parked.is_some() {
            due.insert(pid);
            return;
        }
        if living.holds_still() {
            return;
        }
        // It runs, or is about to deliver a call: that comes again behind the handler.
        let Ok(thread) = living.thread() else {
            return;
        };
        if thread.stop().is_err() {
            return;
        }
        let mut outcome = None;
        if let Ok(mut state) = thread.get_state(0, 0, 0) {
            if state.exception_delivered == 0 {
                let (task, mut view) = living.parts(system, world);
                let result = emulate::interrupt(task, system, &mut view, &state.registers);
                if let Outcome::Go { registers, .. } = &result {
                    state.registers = *registers;
                    let memory = living.seat.memory.borrow();
                    let _ = thread.set_state(&state, memory.body.space_ref().handle(), 0, 0);
                }
                outcome = Some(result);
            } else {
                signalled.push(pid);
            }
        }
        let _ = thread.resume();
        if let Some(Outcome::End(status)) = outcome {
            self.finish(pid, status);
        }
    }

    /// Forgets a process that has ended: its status.
    pub(crate) fn reap(&mut self, pid: Pid) -> Result<Status, Error> {
        match self.entries.get(&pid) {
            Some(Entry::Ended { status, .. }) => {
                let status = *status;
                self.forget(pid);
                Ok(status)
            }
            Some(_) => Err(Error::Invalid),
            None => Err(Error::NotFound),
        }
    }

    /// The process, and if others have no power over it but through the root of its tree, all that are in that.
    fn together(&self, pid: Pid) -> Vec<Pid> {
        match self.system.find(pid) {
            Some(process) if process.root == pid => self.system.tree(pid),
            _ => Vec::from([pid]),
        }
    }

    /// Stops a process once more; the root of a tree with all that are in that.
    pub(crate) fn stop(&mut self, pid: Pid) -> Result<(), Error> {
        if self.proven(pid)?.stops >= MAX_HOLDS {
            return Err(Error::Limit);
        }
        for pid in self.together(pid) {
            let Ok(living) = self.proven(pid) else {
                continue;
            };
            if living.stop().is_ok() {
                living.stops += 1;
                self.schedule(pid);
                self.announce(pid);
            }
        }
        Ok(())
    }

    /// Undoes one `stop`.
    pub(crate) fn resume(&mut self, pid: Pid) -> Result<(), Error> {
        if self.proven(pid)?.stops == 0 {
            return Err(Error::Invalid);
        }
        for pid in self.together(pid) {
            let stopped = self.proven(pid).ok().filter(|living| living.stops > 0);
            let Some(living) = stopped else { continue };
            living.stops -= 1;
            let _ = living.resume();
            self.go_on(pid);
            self.announce(pid);
        }
        Ok(())
    }

    /// What `freeze` made, from the offset on.
    pub(crate) fn part(&mut self, pid: Pid, offset: u64, room: usize) -> Result<Vec<u8>, Error> {
        let living = self.living(pid)?;
        let start = usize::try_from(offset).map_err(|_| Error::Invalid)?;
        let rest = living.part.get(start..).ok_or(Error::Invalid)?;
        Ok(rest[..rest.len().min(room)].to_vec())
    }

    /// Makes pages of a process present that is being rebuilt.
    pub(crate) fn populate(
        &mut self,
        pid: Pid,
        control: bool,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        match self.entries.get(&pid) {
            Some(Entry::Adopting(adopting)) => adopting.body.populate(control, offset, size),
            Some(Entry::Living(living)) if living.unproven => {
                let memory = living.seat.memory.borrow();
                memory.body.populate(control, offset, size)
            }
            _ => Err(Error::Invalid),
        }
    }

    /// A living process whose objects are known to be there.
    fn proven(&mut self, pid: Pid) -> Result<&mut Living, Error> {
        let living = self.living(pid)?;
        if living.unproven {
            return Err(Error::Invalid);
        }
        Ok(living)
    }

    /// Does what was held back while the process was stopped or frozen.
    fn go_on(&mut self, pid: Pid) {
        if self.living(pid).is_ok_and(|living| living.parked.is_some()) {
            self.due.insert(pid);
        }
        self.schedule(pid);
        self.deliver_signals(pid);
    }

    pub(crate) fn status(&self, pid: Pid) -> Result<Status, Error> {
        match self.entries.get(&pid) {
            Some(Entry::Living(living)) if living.stops > 0 => Ok(Status::Stopped),
            Some(Entry::Living(_) | Entry::Adopting(_)) => Ok(Status::Running),
            Some(Entry::Ended { status, .. }) => Ok(*status),
            None => Err(Error::NotFound),
        }
    }

    pub(crate) fn kill(&mut self, pid: Pid) -> Result<(), Error> {
        if let Some(Entry::Adopting(_)) = self.entries.get(&pid) {
            self.abandon(pid);
            return Ok(());
        }
        self.living(pid)?;
        // The root comes first: nobody starts others meanwhile, and it does not see its children end.
        for pid in self.together(pid) {
            self.end_by(pid, sig::KILL as u8);
        }
        Ok(())
    }

    /// Ends a process that was never complete.
    fn abandon(&mut self, pid: Pid) {
        if let Some(Entry::Adopting(adopting)) = self.entries.remove(&pid) {
            adopting.body.destroy();
            let status = Status::Killed(sig::KILL as u8);
            let name = String::new();
            self.entries.insert(pid, Entry::Ended { status, name });
            self.system.end(pid, status);
            self.announce(pid);
        }
    }

    /// What is known of a process, for people.
    pub(crate) fn info(&self, pid: Pid) -> Result<Info, Error> {
        let entry = self.entries.get(&pid).ok_or(Error::NotFound)?;
        Ok(self.info_of(pid, entry))
    }

    fn info_of(&self, pid: Pid, entry: &Entry) -> Info {
        let name = match entry {
            Entry::Ended { name, .. } => name.clone(),
            Entry::Adopting(_) => String::from("(being restored)"),
            Entry::Living(living) => living.task.name(),
        };
        let mut info = Info {
            pid,
            name: short(&name),
            status: self.status(pid).unwrap_or(Status::Running),
            threads: Vec::new(),
            doing: Vec::new(),
            resident: 0,
            objects: 0,
        };
        if let Entry::Living(living) = entry {
            if !living.unproven {
                if let Ok(state) = living.state() {
                    info.threads.push(words::summary(&state));
                    info.doing.push(doing(living, &state));
                }
                let memory = living.seat.memory.borrow();
                info.objects = memory.body.object_count();
                info.resident = memory.body.memory().usage().map_or(0, |u| u.resident);
            }
        }
        info
    }

    /// The first process with this number or a higher one.
    pub(crate) fn next(&self, pid: Pid) -> Result<Info, Error> {
        let (pid, entry) = self.entries.range(pid..).next().ok_or(Error::NotFound)?;
        Ok(self.info_of(*pid, entry))
    }

    /// Starts a program.
    pub(crate) fn spawn(
        &mut self,
        path: &str,
        start: &Start,
        (owner, job): (Ref, Option<Pid>),
    ) -> Result<Pid, Error> {
        let pid = self.new_pid(job)?;
        let started = self.spawn_as(pid, path, start);
        let Ok(living) = started else {
            self.system.forget(pid);
            return started.map(|_| pid);
        };
        self.entries.insert(pid, Entry::Living(Box::new(living)));
        self.hold(pid, Some(owner), job);
        Ok(pid)
    }

    fn spawn_as(&mut self, pid: Pid, path: &str, start: &Start) -> Result<Living, Error> {
        let cwd = if start.cwd.starts_with('/') {
            start.cwd.as_str()
        } else {
            "/"
        };
        let mut task = Task::new(pid, String::from(cwd));
        self.system.process(pid).actions = Rc::clone(&task.shares.actions);
        let bytes = |list: &[String]| list.iter().map(|s| s.as_bytes().to_vec()).collect();
        let mut args: Vec<Vec<u8>> = bytes(&start.args);
        if args.is_empty() {
            args.push(path.as_bytes().to_vec());
        }
        let prepared = {
            let shares = task.shares.clone();
            let current = Current::new(&mut task, &shares);
            let mut view = View {
                root: pid,
                seat: None,
                world: &mut self.world,
            };
            let env = bytes(&start.env);
            exec::prepare(&current, &mut view, path, args, env).map_err(|failure| {
                let error = error_of(failure.errno);
                if error != Error::NotFound || failure.names_another {
                    rt::log!("{}", failure.sentence);
                }
                error
            })?
        };
        let made = self.open_stdio(&mut task, &start.stdio).and_then(|()| {
            let (id, port, space) = self.world.new_keeper(0)?;
            let keeper = port.reference().map_err(rt::error_of)?;
            let body = Process::create(&self.world.supply()?, &space, Some(&keeper))?;
            Ok(Seat::first(id, body, port))
        });
        let Table { system, world, .. } = self;
        let mut view = View {
            root: pid,
            seat: None,
            world,
        };
        let mut seat = match made {
            Ok(made) => made,
            Err(error) => {
                exec::cancel(&mut view, prepared);
                task.close_files(system, &mut view);
                return Err(error);
            }
        };
        view.seat = Some(&mut seat);
        system.process(pid).started = rt::time::now();
        let registers = exec::commit(&mut task, system, &mut view, prepared);
        let started = registers
            .map_err(|_| Error::NoMemory)
            .and_then(|registers| {
                let memory = seat.memory.borrow();
                memory
                    .body
                    .start(&registers, u64::from(pid), PRIORITY_PROGRAM)
            });
        if let Err(error) = started {
            let mut view = View {
                root: pid,
                seat: None,
                world,
            };
            task.close_files(system, &mut view);
            seat.leave();
            rt::log!("{path}: could not be started: {}", error.text());
            return Err(error);
        }
        Ok(Living::new(task, seat))
    }

    /// Opens descriptors 0, 1 and 2. On failure those that are open stay with the process.
    fn open_stdio(&mut self, task: &mut Task, stdio: &[Stdio]) -> Result<(), Error> {
        for fd in 0..3u32 {
            let output = fd > 0;
            let mut flags = open_flags::RDWR;
            let kind = match stdio.get(fd as usize) {
                None | Some(Stdio::Console) => Kind::Device(Device::Console),
                Some(Stdio::Null) => Kind::Device(Device::Null),
                Some(Stdio::File { path, append }) => {
                    flags = match (output, append) {
                        (false, _) => 0,
                        (true, false) => open_flags::WRONLY,
                        (true, true) => open_flags::WRONLY | open_flags::APPEND,
                    };
                    self.open_file(path, output, *append)?
                }
            };
            let flags = flags | open_flags::LARGEFILE;
            task.shares.files.borrow_mut().install(
                fd,
                Description {
                    kind,
                    flags,
                    offset: 0,
                },
                false,
            );
        }
        Ok(())
    }

    fn open_file(&mut self, path: &str, output: bool, append: bool) -> Result<Kind, Error> {
        let request = personality::files::Request::Open {
            path: String::from(path),
            flags: Flags {
                create: output,
                truncate: output && !append,
                ..Flags::default()
            },
            mode: 0o644,
        };
        let personality::files::Reply::Opened(attr) = self.world.ask_fs(&request, &[], &mut [])?.0
        else {
            return Err(Error::Broken);
        };
        let ino = attr.ino;
        let (kind, error) = match attr.mode & mode::TYPE {
            mode::FILE => return Ok(Kind::File { ino }),
            mode::CHARACTER if ino == services::fs::NULL_INO => (Kind::Device(Device::Null), None),
            mode::CHARACTER => (Kind::Device(Device::Console), None),
            _ => (Kind::Device(Device::Null), Some(Error::IsDirectory)),
        };
        let _ = self
            .world
            .ask_fs(&personality::files::Request::Close { ino }, &[], &mut []);
        error.map_or(Ok(kind), Err)
    }

    /// Freezes a process and makes its part: the length of that, the name, and references.
    pub(crate) fn freeze(&mut self, pid: Pid) -> Result<(u64, Vec<u8>, Vec<Ref>), Error> {
        self.proven(pid)?;
        let (living, system, world) = self.split(pid).ok_or(Error::NotFound)?;
        if living.frozen >= MAX_HOLDS {
            return Err(Error::Limit);
        }
        if living.seat.thread != CONTROL_THREAD && Rc::strong_count(&living.seat.memory) == 1 {
            let name = short(&living.task.name());
            rt::log!(
                "{name} ({pid}): cannot be saved: it is in the memory of a process that has ended"
            );
            return Err(Error::Unsupported);
        }
        let regions = {
            let memory = living.seat.memory.borrow();
            let region = memory.body.memory().region.copy().map_err(rt::error_of)?;
            let control = memory.body.control().region.copy().map_err(rt::error_of)?;
            Vec::from([region, control])
        };
        living.stop().map_err(rt::error_of)?;
        let (task, mut view) = living.parts(system, world);
        match part::save(task, system, &mut view) {
            Ok(part) => living.part = part,
            Err(refusal) => {
                let _ = living.resume();
                let name = short(&living.task.name());
                let other = self.other(pid, &refusal);
                rt::log!(
                    "{name} ({pid}): cannot be saved: {}",
                    refusal.sentence(&other)
                );
                return Err(Error::Unsupported);
            }
        }
        living.frozen += 1;
        let name = short(&living.task.name()).into_bytes();
        let length = living.part.len() as u64;
        self.schedule(pid);
        Ok((length, name, regions))
    }

    /// The process because of which another one cannot be saved, for people.
    fn other(&self, pid: Pid, refusal: &Refusal) -> String {
        let other = match refusal {
            Refusal::Child(other) | Refusal::Parent(other) => Some(*other),
            Refusal::Because(_) => None,
            Refusal::Shared(_) => match self.entries.get(&pid) {
                Some(Entry::Living(one)) => self.entries.iter().find_map(|(other, entry)| {
                    let Entry::Living(living) = entry else {
                        return None;
                    };
                    (*other != pid && part::share(&one.task, &living.task)).then_some(*other)
                }),
                _ => None,
            },
        };
        match other.and_then(|pid| Some((pid, self.entries.get(&pid)?))) {
            Some((pid, Entry::Living(living))) => {
                format!("{} ({pid})", short(&living.task.name()))
            }
            Some((pid, Entry::Ended { name, .. })) => {
                format!("{} ({pid}), which has ended", short(name))
            }
            _ => String::from("another process"),
        }
    }

    /// Lets a process go that was rebuilt.
    pub(crate) fn let_go(&mut self, pid: Pid) -> Result<(), Error> {
        match self.living(pid)?.unproven {
            true => self.thaw(pid),
            false => Err(Error::Invalid),
        }
    }

    /// Undoes one `freeze`.
    pub(crate) fn thaw(&mut self, pid: Pid) -> Result<(), Error> {
        let living = self.living(pid)?;
        if living.frozen == 0 {
            return Err(Error::Invalid);
        }
        if living.unproven && living.prove().is_err() {
            rt::log!("a restored process has not all of its objects");
            self.end_by(pid, sig::KILL as u8);
            return Err(Error::BadFormat);
        }
        living.frozen -= 1;
        if living.frozen == 0 {
            living.part = Vec::new();
        }
        living.resume().map_err(rt::error_of)?;
        self.go_on(pid);
        self.announce(pid);
        Ok(())
    }

    /// A process to be rebuilt: with a space and a thread, and nothing else.
    pub(crate) fn adopt(
        &mut self,
        (owner, job): (Ref, Option<Pid>),
    ) -> Result<(Pid, Vec<Ref>), Error> {
        let pid = self.new_pid(job)?;
        self.hold(pid, Some(owner), job);
        let adopted = self.adopt_as(pid);
        if adopted.is_err() {
            self.forget(pid);
        }
        adopted.map(|references| (pid, references))
    }

    fn adopt_as(&mut self, pid: Pid) -> Result<Vec<Ref>, Error> {
        let (id, port, space) = self.world.new_keeper(0)?;
        let keeper = port.reference().map_err(rt::error_of)?;
        let control = self.control(pid)?;
        let body = Process::create(&self.world.supply()?, &space, Some(&keeper))?;
        let regions = (body.memory().region.copy(), body.control().region.copy());
        let (Ok(memory), Ok(segment)) = regions else {
            body.destroy();
            return Err(Error::NoMemory);
        };
        let adopting = Adopting {
            bytes: Vec::new(),
            keeper: id,
            body,
            port,
        };
        self.entries
            .insert(pid, Entry::Adopting(Box::new(adopting)));
        Ok(Vec::from([control, keeper, memory, segment]))
    }

    /// A piece of the part of a process that is being rebuilt. When all is there it is checked, and the process
    /// is one of ours, frozen.
    pub(crate) fn rebuild(
        &mut self,
        pid: Pid,
        offset: u64,
        length: u64,
        clock_offset: u64,
        bulk: &[u8],
    ) -> Result<(), Error> {
        // One part at a time, for each job.
        let job = self.holds.get(&pid).and_then(|hold| hold.job);
        let other = |(other, entry): (&Pid, &Entry)| {
            matches!(entry, Entry::Adopting(a) if !a.bytes.is_empty())
                && *other != pid
                && self.holds.get(other).and_then(|hold| hold.job) == job
        };
        if self.entries.iter().any(other) {
            return Err(Error::Limit);
        }
        let Some(Entry::Adopting(adopting)) = self.entries.get_mut(&pid) else {
            return Err(Error::Invalid);
        };
        let end = adopting.bytes.len() as u64 + bulk.len() as u64;
        // It grows while both lengths are there, and so does what is decoded of it in the end.
        self.world.room.add(6 * end.min(part::MAX_PART))?;
        if offset != adopting.bytes.len() as u64 || end > length || length > part::MAX_PART {
            self.abandon(pid);
            return Err(Error::BadFormat);
        }
        adopting.bytes.extend_from_slice(bulk);
        if end < length {
            return Ok(());
        }
        let mut view = View {
            root: pid,
            seat: None,
            world: &mut self.world,
        };
        let system = &mut self.system;
        let adopted = adopting
            .body
            .set_clock(clock_offset)
            .map_err(|error| String::from(error.text()))
            .and_then(|()| part::adopt(&adopting.bytes, clock_offset, pid, system, &mut view));
        let task = match adopted {
            Ok(task) => task,
            Err(sentence) => {
                rt::log!("a process cannot be restored: {sentence}");
                self.abandon(pid);
                return Err(Error::BadFormat);
            }
        };
        let Some(Entry::Adopting(adopting)) = self.entries.remove(&pid) else {
            return Err(Error::Invalid);
        };
        let Adopting {
            body, port, keeper, ..
        } = *adopting;
        let living = Living {
            frozen: 1,
            unproven: true,
            ..Living::new(task, Seat::first(keeper, body, port))
        };
        self.entries.insert(pid, Entry::Living(Box::new(living)));
        Ok(())
    }
}

/// What the thread of a process is about to do, in words.
fn doing(living: &Living, state: &ThreadState) -> String {
    let in_call = state.exception_delivered == 1
        && state.exception == Exception::ForeignCall as u64
        || living
            .seat
            .memory
            .borrow()
            .body
            .is_call(state.registers.rip);
    if !in_call {
        return words::doing(state, false);
    }
    let mut text = emulate::describe(&state.registers, true);
    if let Some(parked) = &living.parked {
        text.push_str(match (parked.wake.keys.first(), parked.wake.deadline) {
            (Some(Key::Console), _) => ", waiting for the console",
            (Some(Key::Pipe(_)), _) => ", waiting for a pipe",
            (Some(Key::Children(_) | Key::Left(_)), _) => ", waiting for a child",
            (None, Some(_)) => ", waiting for its time",
            (None, None) => ", waiting",
        });
    }
    if state.stop_count > 0 {
        text.push_str(", stopped");
    }
    text
}
