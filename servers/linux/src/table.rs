//! The table of processes: starts and ends them.

use abi::message::ExceptionMessage;
use abi::state::{space_flags, SpaceState};
use abi::{Exception, RefKind, Registers, Type};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use interface::server::{park, Event};
use personality::emulate::{self, Outcome, Wake};
use personality::errno::{Errno, EACCES, ELOOP, ENOENT, ENOEXEC, ENOMEM};
use personality::exec;
use personality::host::Fpu;
use personality::memory::NO_SLOT;
use personality::part;
use personality::process::{open_flags, Description, Device, Kind};
use personality::signal::sig;
use process::{words, Process};
use proto::layout::{CONTROL_MAPPINGS, PRIORITY_PROGRAM};
use proto::Error;
use rt::obj::{Port, Ref, RefAt};
use services::fs::{mode, Flags};
use services::process::{Info, Pid, Start, Status, Stdio, MAX_JOB};

use crate::control::{control_port, keeper, Known};
use crate::world::{short, Present, View, World};

/// Most processes, ended ones included.
const MAX_PROCESSES: usize = 256;
/// The first process number. 1 is what `getppid` returns to all.
const FIRST_PID: Pid = 2;
/// Most `Freeze`s, and most `Stop`s, of one process at a time.
const MAX_HOLDS: u32 = 64;

/// A call (or exception) that waits.
struct Parked {
    message: ExceptionMessage,
    wake: Wake,
    /// Whether to try the call again at once.
    due: bool,
}

/// A process that lives.
struct Living {
    linux: personality::process::Process,
    body: Process,
    present: Present,
    /// The keeper of its space. It goes when this is dropped.
    _port: Port,
    parked: Option<Parked>,
    /// How often it is frozen.
    frozen: u32,
    /// How often it is stopped.
    stops: u32,
    /// The part that `Freeze` made.
    part: Vec<u8>,
    /// A signal came while its thread was about to get an answer; it is delivered behind that.
    signal_later: bool,
    /// It was adopted, and its objects have not been looked at yet.
    unproven: bool,
}

/// A process that is being rebuilt, and of which not all of the part is there.
struct Adopting {
    bytes: Vec<u8>,
    body: Process,
    port: Port,
}

enum Entry {
    Living(Box<Living>),
    Adopting(Box<Adopting>),
    Ended { status: Status, name: String },
}

/// The ports of a process that its owner uses, also after its end.
struct Hold {
    _port: Port,
    /// A reference to the control port.
    control: Ref,
    /// The port at init of the process that started it. When that is dead the status is not kept any longer.
    owner: Ref,
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
    world: World,
    /// The portset of all ports.
    portset: Ref,
    last: Pid,
    last_serial: u64,
}

impl Living {
    fn stop(&self) -> Result<(), abi::Code> {
        self.body.thread()?.stop()
    }

    fn resume(&self) -> Result<(), abi::Code> {
        self.body.thread()?.resume()
    }

    fn state(&self) -> Result<abi::state::ThreadState, abi::Code> {
        self.body.thread()?.get_state(0, 0, 0)
    }

    fn holds_still(&self) -> bool {
        self.frozen > 0 || self.stops > 0
    }

    /// Emulates the call or exception of a message.
    fn emulate(&mut self, pid: Pid, world: &mut World, message: &ExceptionMessage) -> Outcome {
        let Living {
            linux,
            body,
            present,
            ..
        } = self;
        let mut view = View {
            pid,
            body: Some(body),
            present,
            world,
        };
        if message.code == Exception::ForeignCall as u64 {
            emulate::call(linux, &mut view, &message.registers)
        } else {
            emulate::exception(linux, &mut view, message)
        }
    }

    /// Lets the thread, which waits for an answer to its exception, go on with these registers.
    fn set_registers(&self, registers: &Registers, fpu: Option<Fpu>) -> Result<(), abi::Code> {
        let thread = self.body.thread()?;
        thread.stop()?;
        let result = thread.get_state(0, 0, 0).and_then(|mut state| {
            state.registers = *registers;
            state.exception_delivered = 0;
            if let Some(fpu) = fpu {
                state.fpu = *fpu;
            }
            thread.set_state(&state, self.body.space_ref().handle(), 0, 0)
        });
        thread.resume()?;
        result
    }

    /// Whether a parked call is worth trying now.
    fn is_due(&self, now: u64) -> bool {
        let now = now.wrapping_add(self.linux.clock_offset);
        !self.holds_still()
            && self
                .parked
                .as_ref()
                .is_some_and(|p| p.due || p.wake.deadline.is_some_and(|d| d <= now))
    }

    /// When something is to be done for it, on the machine's clock.
    fn deadline(&self, now: u64) -> Option<u64> {
        if self.holds_still() {
            return None;
        }
        if self.signal_later {
            return Some(now);
        }
        let call = self.parked.as_ref().and_then(|p| p.wake.deadline);
        let alarm = self.linux.alarm.map(|a| a.deadline);
        let own_now = now.wrapping_add(self.linux.clock_offset);
        let first = call.into_iter().chain(alarm).min()?;
        Some(now.saturating_add(first.saturating_sub(own_now)))
    }

    /// Whether all mappings of its areas exist.
    fn has_mappings(&self) -> bool {
        let region = &self.body.control().region;
        self.linux.areas.list().iter().filter(|a| a.slot != NO_SLOT).all(|area| {
            let at = CONTROL_MAPPINGS + u64::from(area.slot) * abi::OBJECT_SIZE;
            let kinds = 1 << Type::Mapping as u64;
            matches!(region.search(at, at + abi::OBJECT_SIZE, kinds), Ok((found, _)) if found == at)
        })
    }
}

fn error_of(errno: Errno) -> Error {
    match errno {
        ENOENT => Error::NotFound,
        EACCES => Error::Denied,
        ENOEXEC => Error::BadFormat,
        ENOMEM => Error::NoMemory,
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
            world: World::new(),
            portset,
            last: FIRST_PID - 1,
            last_serial: 0,
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
        let now = rt::time::now();
        self.entries
            .values()
            .filter_map(|entry| match entry {
                Entry::Living(living) => living.deadline(now),
                _ => None,
            })
            .min()
    }

    /// A free number for a process that counts for this job.
    fn new_pid(&mut self, job: Option<Pid>) -> Result<Pid, Error> {
        // The status of a process is not kept when its owner has ended too.
        let orphans: Vec<Pid> = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry, Entry::Ended { .. }))
            .map(|(pid, _)| *pid)
            .filter(|pid| {
                let owner = self.holds.get(pid).map(|hold| hold.owner.kind());
                owner != Some(RefKind::Port)
            })
            .collect();
        for pid in orphans {
            self.forget(pid);
        }
        let of_job = || self.holds.values().filter(|hold| hold.job == job).count();
        if self.entries.len() >= MAX_PROCESSES || job.is_some() && of_job() >= MAX_JOB {
            return Err(Error::Limit);
        }
        // What is kept of it, and what is taken while its program is looked at.
        self.world.room.add(256 << 10)?;
        loop {
            self.last = if self.last >= 30_000 {
                FIRST_PID
            } else {
                self.last + 1
            };
            if !self.entries.contains_key(&self.last) {
                return Ok(self.last);
            }
        }
    }

    /// A copy of the owner's port at init, and the job that its processes are counted for.
    pub(crate) fn owner(&self, owner: &RefAt) -> Result<(Ref, Option<Pid>), Error> {
        let owner = owner.copy().map_err(rt::error_of)?;
        let job = rt::names::job_of(&owner)?;
        Ok((owner, (job != 0).then_some(job)))
    }

    /// A new control port.
    fn hold(&mut self, pid: Pid, owner: Ref, job: Option<Pid>) -> Result<Hold, Error> {
        let port = control_port(*self.portset, pid).map_err(rt::error_of)?;
        let control = port.reference().map_err(rt::error_of)?;
        self.last_serial += 1;
        Ok(Hold {
            _port: port,
            control,
            owner,
            job,
            serial: self.last_serial,
            event: Rc::new(Event::new()),
        })
    }

    /// A reference to the control port of a process.
    pub(crate) fn control(&self, pid: Pid) -> Result<Ref, Error> {
        let hold = self.holds.get(&pid).ok_or(Error::NotFound)?;
        hold.control.copy().map_err(rt::error_of)
    }

    /// The process whose control port this is.
    pub(crate) fn by_control_port(&self, port: &RefAt) -> Result<Pid, Error> {
        let mut holds = self.holds.iter();
        let found = holds.find(|(_, hold)| hold.control.same_as(*port));
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
    }

    /// The status of a process has changed, or it is about to be forgotten.
    fn announce(&self, pid: Pid) {
        if let Some(hold) = self.holds.get(&pid) {
            // This is the server's thread, which looks when it is done here.
            hold.event.happened();
        }
    }

    /// Ends a process whose files are closed already.
    fn finish(&mut self, pid: Pid, status: Status) {
        if let Some(Entry::Living(living)) = self.entries.remove(&pid) {
            let Living { linux, body, .. } = *living;
            body.destroy();
            self.world.alive.remove(&pid);
            self.entries.insert(
                pid,
                Entry::Ended {
                    status,
                    name: linux.name,
                },
            );
            self.announce(pid);
        }
    }

    /// Applies the outcome of a call to a thread whose exception is not the event loop's current one.
    fn carry_out(&mut self, pid: Pid, message: ExceptionMessage, outcome: Outcome) {
        let Ok(living) = self.living(pid) else { return };
        match outcome {
            Outcome::Go { registers, fpu } => {
                if living.set_registers(&registers, fpu).is_err() {
                    // The registers came from a signal frame that the program made up.
                    rt::log!("{}: has impossible registers", short(&living.linux.name));
                    self.end_by(pid, sig::SEGV as u8);
                }
            }
            Outcome::Park(wake) => {
                living.parked = Some(Parked {
                    message,
                    wake,
                    due: false,
                })
            }
            Outcome::End(status) => self.finish(pid, status),
        }
    }

    /// Closes a process's files and ends it.
    fn end_by(&mut self, pid: Pid, signal: u8) {
        if let Some(Entry::Living(living)) = self.entries.get_mut(&pid) {
            let Living {
                linux,
                body,
                present,
                ..
            } = &mut **living;
            linux.end(&mut View {
                pid,
                body: Some(body),
                present,
                world: &mut self.world,
            });
        }
        self.finish(pid, Status::Killed(signal));
    }

    /// An exception of the process with this number came to its port.
    pub(crate) fn exception(&mut self, pid: Pid, message: &ExceptionMessage) -> Option<Registers> {
        let Some(Entry::Living(living)) = self.entries.get_mut(&pid) else {
            return None;
        };
        if living.holds_still() {
            // The exception arrived just before the process was stopped. It is delivered again when it goes on.
            park();
            let wake = Wake::default();
            living.parked = Some(Parked {
                message: *message,
                wake,
                due: true,
            });
            return None;
        }
        match living.emulate(pid, &mut self.world, message) {
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
        for entry in self.entries.values_mut() {
            if let Entry::Living(living) = entry {
                if let Some(parked) = &mut living.parked {
                    parked.due |= parked.wake.console;
                }
            }
        }
    }

    /// Does everything that is due: parked calls, timers, signals between processes.
    pub(crate) fn settle(&mut self) {
        // These threads have received their replies by now.
        let mut signalled = Vec::new();
        for (pid, entry) in &mut self.entries {
            if let Entry::Living(living) = entry {
                if core::mem::take(&mut living.signal_later) {
                    signalled.push(*pid);
                }
            }
        }
        loop {
            let now = rt::time::now();
            for (pid, signal) in core::mem::take(&mut self.world.sent) {
                if let Ok(living) = self.living(pid) {
                    living.linux.signals.post(signal);
                    signalled.push(pid);
                }
            }
            for (pid, entry) in &mut self.entries {
                let Entry::Living(living) = entry else {
                    continue;
                };
                let own_now = now.wrapping_add(living.linux.clock_offset);
                let Some(alarm) = living.linux.alarm.filter(|a| a.deadline <= own_now) else {
                    continue;
                };
                if living.holds_still() {
                    continue;
                }
                living.linux.alarm = (alarm.interval != 0).then(|| {
                    let deadline = own_now.saturating_add(alarm.interval);
                    personality::process::Alarm { deadline, ..alarm }
                });
                living.linux.signals.post(sig::ALRM);
                signalled.push(*pid);
            }
            for pid in signalled.drain(..) {
                self.deliver_signals(pid);
            }
            let due: Vec<Pid> = self
                .entries
                .iter()
                .filter(|(_, e)| matches!(e, Entry::Living(living) if living.is_due(now)))
                .map(|(pid, _)| *pid)
                .collect();
            if due.is_empty() && self.world.sent.is_empty() {
                break;
            }
            for pid in due {
                self.retry(pid);
            }
        }
        self.world.room.clear();
    }

    /// Makes a parked call again.
    fn retry(&mut self, pid: Pid) {
        let Some(Entry::Living(living)) = self.entries.get_mut(&pid) else {
            return;
        };
        let Some(Parked { mut message, .. }) = living.parked.take() else {
            return;
        };
        match living.state() {
            // Somebody may have changed the registers meanwhile, or let the thread go on.
            Ok(state) if state.exception_delivered == 1 => message.registers = state.registers,
            _ => return,
        }
        let outcome = living.emulate(pid, &mut self.world, &message);
        self.carry_out(pid, message, outcome);
    }

    /// Delivers signals that were just sent.
    fn deliver_signals(&mut self, pid: Pid) {
        let Some(Entry::Living(living)) = self.entries.get_mut(&pid) else {
            return;
        };
        if living.linux.signals.deliverable().is_none() {
            return;
        }
        if let Some(parked) = &mut living.parked {
            parked.due = true;
            return;
        }
        if living.holds_still() {
            return;
        }
        // It runs, or is about to deliver a call: that comes again behind the handler.
        let Ok(thread) = living.body.thread() else {
            return;
        };
        if thread.stop().is_err() {
            return;
        }
        let mut outcome = None;
        if let Ok(mut state) = thread.get_state(0, 0, 0) {
            if state.exception_delivered == 0 {
                let Living {
                    linux,
                    body,
                    present,
                    ..
                } = &mut **living;
                let mut view = View {
                    pid,
                    body: Some(body),
                    present,
                    world: &mut self.world,
                };
                let result = emulate::interrupt(linux, &mut view, &state.registers);
                if let Outcome::Go { registers, .. } = &result {
                    state.registers = *registers;
                    let _ = thread.set_state(&state, living.body.space_ref().handle(), 0, 0);
                }
                outcome = Some(result);
            } else {
                living.signal_later = true;
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

    /// Stops a process once more.
    pub(crate) fn stop(&mut self, pid: Pid) -> Result<(), Error> {
        let living = self.proven(pid)?;
        if living.stops >= MAX_HOLDS {
            return Err(Error::Limit);
        }
        living.stop().map_err(rt::error_of)?;
        living.stops += 1;
        self.announce(pid);
        Ok(())
    }

    /// Undoes one `stop`.
    pub(crate) fn resume(&mut self, pid: Pid) -> Result<(), Error> {
        let living = self.proven(pid)?;
        if living.stops == 0 {
            return Err(Error::Invalid);
        }
        living.stops -= 1;
        let done = living.resume().map_err(rt::error_of);
        self.go_on(pid);
        self.announce(pid);
        done
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
        let body = match self.entries.get(&pid) {
            Some(Entry::Adopting(adopting)) => &adopting.body,
            Some(Entry::Living(living)) if living.unproven => &living.body,
            _ => return Err(Error::Invalid),
        };
        body.populate(control, offset, size)
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
        if let Ok(living) = self.living(pid) {
            if let Some(parked) = &mut living.parked {
                parked.due = true;
            }
        }
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
        self.end_by(pid, sig::KILL as u8);
        Ok(())
    }

    /// Ends a process that was never complete.
    fn abandon(&mut self, pid: Pid) {
        if let Some(Entry::Adopting(adopting)) = self.entries.remove(&pid) {
            adopting.body.destroy();
            let entry = Entry::Ended {
                status: Status::Killed(sig::KILL as u8),
                name: String::new(),
            };
            self.entries.insert(pid, entry);
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
            Entry::Ended { name, .. } => name,
            Entry::Adopting(_) => "(being restored)",
            Entry::Living(living) => &living.linux.name,
        };
        let mut info = Info {
            pid,
            name: short(name),
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
                info.objects = living.body.object_count();
                info.resident = living.body.memory().usage().map_or(0, |u| u.resident);
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
        let hold = self.hold(pid, owner, job)?;
        let cwd = if start.cwd.starts_with('/') {
            start.cwd.as_str()
        } else {
            "/"
        };
        let mut linux = personality::process::Process::new(pid, String::from(cwd));
        let mut present = Present::default();
        let bytes = |list: &[String]| list.iter().map(|s| s.as_bytes().to_vec()).collect();
        let mut args: Vec<Vec<u8>> = bytes(&start.args);
        if args.is_empty() {
            args.push(path.as_bytes().to_vec());
        }
        let prepared = {
            let mut view = View {
                pid,
                body: None,
                present: &mut present,
                world: &mut self.world,
            };
            exec::prepare(&linux, &mut view, path, args, bytes(&start.env)).map_err(|failure| {
                let error = error_of(failure.errno);
                if error != Error::NotFound {
                    rt::log!("{}", failure.sentence);
                }
                error
            })?
        };
        let made = self.open_stdio(&mut linux, &start.stdio).and_then(|()| {
            let port = keeper(*self.portset, pid).map_err(rt::error_of)?;
            let keeper = port.reference().map_err(rt::error_of)?;
            let space = SpaceState {
                flags: space_flags::FOREIGN,
                max_priority: PRIORITY_PROGRAM,
                ..SpaceState::default()
            };
            let body = Process::create(&self.world.supply()?, &space, Some(&keeper))?;
            Ok((port, body))
        });
        let mut view = View {
            pid,
            body: None,
            present: &mut present,
            world: &mut self.world,
        };
        let (port, mut body) = match made {
            Ok(made) => made,
            Err(error) => {
                exec::cancel(&mut view, prepared);
                linux.end(&mut view);
                return Err(error);
            }
        };
        view.body = Some(&mut body);
        linux.started = rt::time::now();
        let registers = exec::commit(&mut linux, &mut view, prepared);
        let started = registers
            .map_err(|_| Error::NoMemory)
            .and_then(|registers| body.start(&registers, u64::from(pid), PRIORITY_PROGRAM));
        if let Err(error) = started {
            linux.end(&mut View {
                pid,
                body: None,
                present: &mut present,
                world: &mut self.world,
            });
            body.destroy();
            rt::log!("{path}: could not be started: {}", error.text());
            return Err(error);
        }
        let living = Living {
            linux,
            body,
            present,
            _port: port,
            parked: None,
            frozen: 0,
            stops: 0,
            part: Vec::new(),
            signal_later: false,
            unproven: false,
        };
        self.world.alive.insert(pid);
        self.entries.insert(pid, Entry::Living(Box::new(living)));
        self.holds.insert(pid, hold);
        Ok(pid)
    }

    /// Opens descriptors 0, 1 and 2. On failure those that are open stay with the process.
    fn open_stdio(
        &mut self,
        linux: &mut personality::process::Process,
        stdio: &[Stdio],
    ) -> Result<(), Error> {
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
            linux.files.install(
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
        let Some(Entry::Living(living)) = self.entries.get_mut(&pid) else {
            return Err(Error::NotFound);
        };
        if living.frozen >= MAX_HOLDS {
            return Err(Error::Limit);
        }
        let region = living.body.memory().region.copy().map_err(rt::error_of)?;
        let control = living.body.control().region.copy().map_err(rt::error_of)?;
        living.stop().map_err(rt::error_of)?;
        let Living {
            linux,
            body,
            present,
            ..
        } = &mut **living;
        let mut view = View {
            pid,
            body: Some(body),
            present,
            world: &mut self.world,
        };
        match part::save(linux, &mut view) {
            Ok(part) => living.part = part,
            Err(sentence) => {
                rt::log!("{}: cannot be saved: {sentence}", short(&living.linux.name));
                let _ = living.resume();
                return Err(Error::Unsupported);
            }
        }
        living.frozen += 1;
        let name = short(&living.linux.name).into_bytes();
        Ok((living.part.len() as u64, name, alloc::vec![region, control]))
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
        if living.unproven {
            if !living.body.has_objects() || !living.has_mappings() || living.body.learn().is_err()
            {
                rt::log!("a restored process has not all of its objects");
                self.end_by(pid, sig::KILL as u8);
                return Err(Error::BadFormat);
            }
            living.unproven = false;
            // What it was stopped for besides the checkpoint goes on being so.
            let stops = living.state().map_or(1, |s| s.stop_count);
            living.stops = stops.saturating_sub(1).min(1 << 16) as u32;
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
        let hold = self.hold(pid, owner, job)?;
        let port = keeper(*self.portset, pid).map_err(rt::error_of)?;
        let keeper = port.reference().map_err(rt::error_of)?;
        let control = hold.control.copy().map_err(rt::error_of)?;
        let space = SpaceState {
            flags: space_flags::FOREIGN,
            max_priority: PRIORITY_PROGRAM,
            ..SpaceState::default()
        };
        let body = Process::create(&self.world.supply()?, &space, Some(&keeper))?;
        let regions = (body.memory().region.copy(), body.control().region.copy());
        let (Ok(memory), Ok(segment)) = regions else {
            body.destroy();
            return Err(Error::NoMemory);
        };
        let adopting = Adopting {
            bytes: Vec::new(),
            body,
            port,
        };
        self.entries
            .insert(pid, Entry::Adopting(Box::new(adopting)));
        self.holds.insert(pid, hold);
        Ok((pid, alloc::vec![control, keeper, memory, segment]))
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
        let mut present = Present::default();
        let mut view = View {
            pid,
            body: None,
            present: &mut present,
            world: &mut self.world,
        };
        let adopted = adopting
            .body
            .set_clock(clock_offset)
            .map_err(|error| String::from(error.text()))
            .and_then(|()| part::adopt(&adopting.bytes, clock_offset, &mut view));
        let linux = match adopted {
            Ok(linux) => linux,
            Err(sentence) => {
                rt::log!("a process cannot be restored: {sentence}");
                self.abandon(pid);
                return Err(Error::BadFormat);
            }
        };
        let Some(Entry::Adopting(adopting)) = self.entries.remove(&pid) else {
            return Err(Error::Invalid);
        };
        let Adopting { body, port, .. } = *adopting;
        let living = Living {
            linux,
            body,
            present,
            _port: port,
            parked: None,
            frozen: 1,
            stops: 0,
            part: Vec::new(),
            signal_later: false,
            unproven: true,
        };
        self.world.alive.insert(pid);
        self.entries.insert(pid, Entry::Living(Box::new(living)));
        Ok(())
    }
}

/// What the thread of a process is about to do, in words.
fn doing(living: &Living, state: &abi::state::ThreadState) -> String {
    let in_call = state.exception_delivered == 1
        && state.exception == Exception::ForeignCall as u64
        || living.body.is_call(state.registers.rip);
    if !in_call {
        return words::doing(state, false);
    }
    let mut text = emulate::describe(&state.registers, true);
    if let Some(parked) = &living.parked {
        text.push_str(match parked.wake {
            Wake { console: true, .. } => ", waiting for the console",
            Wake {
                deadline: Some(_), ..
            } => ", waiting for its time",
            _ => ", waiting",
        });
    }
    if state.stop_count > 0 {
        text.push_str(", stopped");
    }
    text
}
