//! The manager of native programs, known as `native`.
//!
//! Every process has two ports: its *own*, at which it calls init and which is the keeper of its space, and its
//! *control* port, which goes to the process that started it. A request concerns the process of the port at which it
//! arrives; only the supervisor's port, which goes to the holder of the system port, takes process numbers.
//!
//! * [`start`]: starts processes; [`jobs`]: the accounts that pay for their kernel memory; [`held`]: requests at
//!   control ports; [`mod@debug`]: requests of debuggers; [`watch`]: descriptions of processes' objects and waits, for
//!   people; [`serve`]: the interfaces and their ports.
mod debug;
mod held;
mod jobs;
mod serve;
mod start;
mod watch;

use crate::drivers::{manifest, Drivers};
use crate::{control, names, slow};
use abi::message::ExceptionMessage;
use abi::Registers;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use debug::Debugged;
use fermata_init::{kernel_line, may_control, may_have, met_kernel};
use interface::server::{own_port, Event, OWN};
use jobs::Jobs;
use process::account::Supply;
use process::debug::End;
use process::{words, Copies, Process, MOST_TOLD};
use proto::Error;
use rt::error_of;
use rt::memory::Limits;
use rt::obj::{Port, Ref, RefAt, ThreadAt};
use rt::sync::{Lazy, Mutex};
use rt::sys;
use services::process::{Info, Pid, Status, MAX_JOB};
use start::Coming;

pub(crate) use serve::Serving;
pub(crate) use start::Launch;

/// What happens to a thread after an exception.
pub(crate) enum Met {
    /// The thread continues with these registers.
    GoesOn(Registers),
    /// The thread does not continue by itself. If its process has ended, a line for people.
    Parked(Option<String>),
}

/// Most processes.
const MAX_PROCESSES: usize = 1024;
/// Most characters of a command line that are kept as the name of its process.
const MAX_NAME: usize = 200;
/// The machine's exit status if an exception ended its shell.
const BROKEN: u8 = 125;
/// The signal in the status of a process that was ended by `kill`.
pub(crate) const SIGKILL: u8 = 9;

/// The control port of a process has this alias, plus the number of the process.
const CONTROL: u64 = OWN;
/// Alias of the supervisor's port.
const SUPERVISOR: u64 = OWN << 1;

/// The process whose control port has this alias.
fn pid_of(alias: u64) -> Option<Pid> {
    Pid::try_from(alias.checked_sub(CONTROL)?).ok()
}

/// A process while it lives.
struct Live {
    process: Process,
    /// Threads stopped by `stop`.
    stopped: Vec<ThreadAt>,
    /// Set while the process is stopped for a checkpointer. Only one at a time can have it: an image contains each
    /// thread with the stop of the `freeze` for which it is made, and would contain the stops of other checkpointers,
    /// too.
    frozen: Option<Frozen>,
    /// Init's part of its image, as of the last freeze.
    part: Vec<u8>,
    /// Set while the process is debugged.
    debugged: Option<Debugged>,
    /// The port at which the process calls init.
    own: Own,
}

impl Live {
    /// Whether the process is stopped to be saved.
    const fn is_saved(&self) -> bool {
        matches!(self.frozen, Some(Frozen::Saved { .. }))
    }
}

/// Why a process is stopped for a checkpointer.
enum Frozen {
    /// It is being rebuilt: the rebuilder has stopped its threads, which the manager does not know yet.
    Rebuilt,
    /// It is being saved.
    Saved {
        /// The threads that `freeze` has stopped.
        threads: Vec<ThreadAt>,
        /// Whether `stop` had stopped the process before. The image says so, and the threads in it must agree: `stop`
        /// and `go_on` requests that come meanwhile are carried out when the process is thawed.
        was_stopped: bool,
    },
}

/// A port, and a reference to it by which it is recognised.
struct Own {
    _port: Port,
    reference: Ref,
}

struct Entry {
    name: String,
    status: Status,
    live: Option<Live>,
    /// The manager's part of a process that is being rebuilt, as far as it has arrived.
    arriving: Option<Vec<u8>>,
    /// The names that its ports get when it has been rebuilt, and the addresses of these ports.
    names: Vec<(String, u64)>,
    /// The process that started it. The status is kept until the process and its owner have both ended.
    owner: Pid,
    /// The job for which it counts: the number of the job's first process.
    job: Pid,
    control: Own,
    /// A number that no other process ever has: process numbers are used again.
    serial: u64,
    /// Wakes requests that wait for the process's status to change.
    event: Arc<Event>,
    end: Arc<End>,
    /// The reserved name that the process may register.
    service: Option<&'static str>,
    /// Started by init. It has a larger promise of memory, and control ports can neither stop it nor, unless it is a
    /// driver, kill it.
    server: bool,
    /// A server that all programs need: if it ends, a line is printed.
    essential: bool,
    /// It runs in the kernel's rings. Whoever started it has no power over what it does.
    collocated: bool,
    /// The number in the boot manifest of a driver, or of a server that is kept alive like one. The process is started
    /// again when it has ended, and may be killed.
    driver: Option<usize>,
}

impl Entry {
    /// Whether holders of its control port have no power over what it does: power over its memory and the states of its
    /// threads would be the power of a server, or of the kernel.
    const fn is_trusted(&self) -> bool {
        self.server || self.collocated
    }
}

/// Most frozen copies of processes' memories, for one job and in all. A process that is saved beyond that stays stopped
/// until its image is written.
const MAX_JOB_COPIES: usize = 8;
const MAX_COPIES: usize = 16;

pub(crate) struct Manager {
    entries: BTreeMap<Pid, Entry>,
    /// Processes whose programs are being loaded, by number.
    coming: BTreeMap<Pid, Coming>,
    next: Pid,
    next_serial: u64,
    /// Events that are to happen after the manager's lock has been released, because the requests that they wake may
    /// want the lock.
    happened: Vec<Arc<Event>>,
    /// The portset of the processes' own ports.
    own_portset: RefAt,
    /// The portset of the processes' control ports.
    control_portset: RefAt,
    /// The memory server's supervisor port.
    supervisor: Ref,
    /// The machine's physical memory in bytes.
    total: u64,
    /// Kernel memory in bytes for each program.
    quota: u64,
    /// The highest priority that a program can give itself.
    ceiling: u64,
    /// The list by which the starter of drivers learns that one has ended.
    drivers: Drivers,
    collocated: Collocated,
    copies: Copies,
    jobs: Jobs,
}

/// What boot wants collocated, and what it takes to collocate it.
pub(crate) struct Collocated {
    /// The device authority.
    pub(crate) authority: RefAt,
    /// See [`fermata_init::Options::places`].
    pub(crate) places: Vec<(String, bool)>,
    /// The boot archive, from which collocated programs are loaded. A collocated program is trusted, and anybody may
    /// have written to the file with its name in the file system.
    pub(crate) archive: &'static [u8],
}

impl Collocated {
    /// Whether the server of this service is to run in the kernel's rings. Without a service, never.
    fn has(&self, service: Option<&str>) -> bool {
        let service = service.filter(|name| !name.starts_with('/'));
        service.is_some_and(|name| fermata_init::is_placed(&self.places, name))
    }

    /// The places that a process may have, which depend on whether it offers a service.
    fn places(&self, service: Option<&str>) -> Range<u64> {
        fermata_init::places_of(service.is_some(), &self.places, manifest())
    }

    /// The file of the program at this path, if the program is to run in the kernel's rings.
    pub(crate) fn program(&self, path: &str) -> Option<&'static [u8]> {
        let named = path.starts_with('/') && fermata_init::is_placed(&self.places, path);
        named
            .then(|| crate::find_program(self.archive, path))
            .flatten()
    }
}

/// The manager, shared by several threads.
pub(crate) struct Processes {
    manager: Mutex<Manager>,
    /// The thread that runs the manager's server.
    server: u64,
    /// Events from other threads, which the teller is to announce.
    told: Mutex<Vec<Arc<Event>>>,
    teller: Ref,
}

impl Processes {
    /// Starts the thread that announces events. The calling thread must be the one that runs the server.
    pub(crate) fn start(manager: Manager, priority: u64) -> Result<&'static Self, Error> {
        let teller = rt::thread::spawn_at(priority, Processes::tell).map_err(error_of)?;
        PROCESSES.set(Processes {
            manager: Mutex::new(manager),
            server: sys::thread_self(),
            told: Mutex::new(Vec::new()),
            teller: teller.reference().map_err(error_of)?,
        });
        processes()
    }

    /// Announces the events of other threads.
    fn tell() {
        loop {
            sys::thread_wait_interrupt();
            let told = processes().map(|processes| core::mem::take(&mut *processes.told.lock()));
            for event in told.into_iter().flatten() {
                event.happened();
            }
        }
    }

    /// Calls `f` with the manager locked, and then wakes the requests that wait for what `f` has changed.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Manager) -> R) -> R {
        let (result, happened) = {
            let mut manager = self.manager.lock();
            (f(&mut manager), core::mem::take(&mut manager.happened))
        };
        if sys::thread_self() == self.server {
            happened.iter().for_each(|event| event.happened());
        } else if !happened.is_empty() {
            // Waking the server waits for its thread, which may be waiting for the calling one.
            self.told.lock().extend(happened);
            let _ = self.teller.interrupt();
        }
        result
    }
}

static PROCESSES: Lazy<Processes> = Lazy::new();

fn processes() -> Result<&'static Processes, Error> {
    PROCESSES.get(|| Err(Error::Broken))
}

impl Own {
    fn new(port: Result<Port, abi::Code>) -> Result<Self, Error> {
        let port = port.map_err(error_of)?;
        let reference = port.reference().map_err(error_of)?;
        Ok(Own {
            _port: port,
            reference,
        })
    }
}

impl Manager {
    pub(crate) fn new(
        own_portset: RefAt,
        control_portset: RefAt,
        supervisor: Ref,
        quota: u64,
        ceiling: u64,
        drivers: Drivers,
        collocated: Collocated,
    ) -> Self {
        let total = rt::memory::machine_usage(&supervisor).map_or(0, |usage| usage.total);
        Manager {
            entries: BTreeMap::new(),
            coming: BTreeMap::new(),
            next: 1,
            next_serial: 0,
            happened: Vec::new(),
            own_portset,
            control_portset,
            supervisor,
            total,
            quota,
            ceiling,
            drivers,
            collocated,
            copies: Copies::new(MAX_JOB_COPIES, MAX_COPIES),
            jobs: Jobs::default(),
        }
    }

    /// The list by which the manager reports that drivers have ended.
    pub(crate) fn drivers(&self) -> &Drivers {
        &self.drivers
    }

    fn entry(&mut self, pid: Pid) -> Result<&mut Entry, Error> {
        self.entries.get_mut(&pid).ok_or(Error::NotFound)
    }

    fn live(&mut self, pid: Pid) -> Result<&mut Live, Error> {
        self.entry(pid)?.live.as_mut().ok_or(Error::Ended)
    }

    /// The process whose own port this is.
    fn by_own_port(&self, port: &RefAt) -> Result<Pid, Error> {
        let is = |live: &Live| live.own.reference.same_as(*port);
        let mut found = self.entries.iter();
        found
            .find(|(_, entry)| entry.live.as_ref().is_some_and(is))
            .map(|(pid, _)| *pid)
            .ok_or(Error::Denied)
    }

    /// The process whose control port this is.
    fn by_control_port(&self, port: &RefAt) -> Result<Pid, Error> {
        let mut found = self.entries.iter();
        found
            .find(|(_, entry)| entry.control.reference.same_as(*port))
            .map(|(pid, _)| *pid)
            .ok_or(Error::Denied)
    }

    /// The job of a process that starts another; `None` for a server or init, which begin a new job.
    fn job_of(&self, pid: Pid) -> Option<Pid> {
        let entry = self.entries.get(&pid)?;
        (!entry.server).then_some(entry.job)
    }

    /// The job of the process with this own port; 0 for a server.
    pub(crate) fn job_at(&self, own: &RefAt) -> Result<Pid, Error> {
        let pid = self.by_own_port(own)?;
        Ok(self.job_of(pid).unwrap_or(0))
    }

    /// The job for which a name counts when the process registers it. `Denied` if it may not have the name.
    pub(crate) fn may_register(&self, pid: Pid, name: &str) -> Result<Pid, Error> {
        let entry = self.entries.get(&pid).ok_or(Error::NotFound)?;
        if entry.live.is_none() {
            return Err(Error::Ended);
        }
        if !may_have(name, entry.service, manifest()) {
            return Err(Error::Denied);
        }
        Ok(entry.job)
    }

    /// Whether a process may control the server with this name.
    pub(crate) fn may_control(&self, pid: Pid, server: &str) -> bool {
        self.entries.get(&pid).is_some_and(|entry| {
            let driver = entry.driver.and_then(|number| manifest().get(number));
            may_control(entry.service, driver, server)
        })
    }

    /// A free number for a process that `owner` starts, and the job of the process: the owner's; else `job`, if that
    /// has processes; else a new one.
    fn new_pid(&mut self, owner: Pid, job: Option<Pid>) -> Result<(Pid, Pid), Error> {
        let jobs = self.jobs_in_use();
        let idle = self.jobs.forget(&jobs);
        if self.entries.len() + self.coming.len() + idle >= MAX_PROCESSES {
            return Err(Error::Limit);
        }
        let job = job.filter(|job| jobs.contains(job));
        let job = self.job_of(owner).or(job);
        if let Some(job) = job {
            if jobs.iter().filter(|other| **other == job).count() >= MAX_JOB {
                return Err(Error::Limit);
            }
        }
        // A number is not used again while processes or kernel memory count for the job of that number.
        let taken = |pid: Pid| {
            pid == 0
                || self.entries.contains_key(&pid)
                || self.coming.contains_key(&pid)
                || jobs.contains(&pid)
                || self.jobs.has(pid)
        };
        while taken(self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let pid = self.next;
        self.next = self.next.wrapping_add(1);
        Ok((pid, job.unwrap_or(pid)))
    }

    /// A number that no other process ever has.
    fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// The ports of a new process: its own, and its control port.
    fn ports(&self, pid: Pid) -> Result<(Own, Own), Error> {
        Ok((
            Own::new(names::process_port(self.own_portset, pid))?,
            Own::new(own_port(self.control_portset, CONTROL | u64::from(pid)))?,
        ))
    }

    /// A copy of the reference to the control port of a process.
    fn control(&mut self, pid: Pid) -> Result<Ref, Error> {
        self.entry(pid)?.control.reference.copy().map_err(error_of)
    }

    /// The source of a process's memory, with these limits.
    fn supply(&self, limits: fn(u64) -> Limits) -> Supply {
        Supply {
            supervisor: *self.supervisor,
            limits: limits(self.total),
            payer: None,
        }
    }

    /// Wakes the requests that wait for a process, whose status has changed or which is about to be forgotten.
    fn announce(&mut self, pid: Pid) {
        if let Some(entry) = self.entries.get(&pid) {
            self.happened.push(Arc::clone(&entry.event));
        }
    }

    /// Ends a process. Only its status stays.
    fn end(&mut self, pid: Pid, status: Status) {
        self.end_of(pid, status, String::new());
    }

    /// Ends a process. `why`: the exception that ended it, in words, or empty.
    fn end_of(&mut self, pid: Pid, status: Status, why: String) {
        let Some(entry) = self.entries.get_mut(&pid) else {
            return;
        };
        if let Some(live) = entry.live.take() {
            live.process.destroy();
            entry.status = status;
            entry.end.set(status);
            entry.arriving = None;
            self.jobs.settle(entry.job);
            names::forget(pid);
            for coming in self.coming.values_mut().filter(|new| new.owner == pid) {
                coming.unwanted = true;
                self.happened.push(Arc::clone(&coming.event));
            }
            if let Some(driver) = entry.driver {
                self.drivers.ended(driver, status, why);
                self.announce(pid);
                self.entries.remove(&pid);
                return;
            }
            if entry.server && !entry.essential {
                // The machine ends with the shell or the tests. (Usually the shell has already asked for that, with a
                // status of its own.)
                slow::power_off(match status {
                    Status::Exited(status) => status,
                    _ => BROKEN,
                });
            }
            if entry.essential {
                slow::say(format!("init: the server {} has ended", entry.name));
            }
            self.announce(pid);
            // The status of a process is forgotten when its owner has ended too. That concerns the processes that this
            // one has started, and this one itself.
            let entries = &self.entries;
            let ended = |pid| {
                entries
                    .get(&pid)
                    .is_none_or(|entry: &Entry| entry.live.is_none())
            };
            let gone: Vec<Pid> = entries
                .iter()
                .filter(|(_, e)| e.live.is_none() && e.owner != 0 && ended(e.owner))
                .map(|(pid, _)| *pid)
                .collect();
            for pid in gone {
                self.announce(pid);
                self.entries.remove(&pid);
            }
        }
    }

    /// Ends a process at its own request.
    pub(crate) fn exit(&mut self, pid: Pid, status: u8) -> Result<(), Error> {
        let live = self.live(pid)?;
        let held = |debugged: &Debugged| debugged.holds_all(&live.process);
        if live.frozen.is_some() || live.debugged.as_ref().is_some_and(held) {
            // The thread repeats the request when the process continues.
            return Err(Error::WouldBlock);
        }
        self.end(pid, Status::Exited(status));
        Ok(())
    }

    /// Handles an exception of a thread of a process.
    pub(crate) fn exception(&mut self, pid: Pid, message: &ExceptionMessage) -> Met {
        // This comes before guards, which are for memory of programs: a guarded access to the kernel's memory is as
        // stray as any other.
        self.look_for_kernels(pid, message);
        let live = self.entries.get(&pid).and_then(|entry| entry.live.as_ref());
        let is_watched = |live: &Live| live.debugged.as_ref().is_some_and(|d| d.may_deny(message));
        if live.is_some_and(|live| live.frozen.is_none() && !is_watched(live)) {
            if let Some(registers) = rt::guard::goes_on(message.code, &message.registers) {
                return Met::GoesOn(registers);
            }
        }
        Met::Parked(self.parked_exception(pid, message))
    }

    /// Ends the machine if a collocated program has accessed the kernel's memory. The servers that print lines for
    /// people may be what is broken, so the line goes to the control channel.
    fn look_for_kernels(&self, pid: Pid, message: &ExceptionMessage) {
        let collocated = self.entries.get(&pid).filter(|entry| entry.collocated);
        let Some(entry) = collocated.filter(|_| met_kernel(message.code, message.address)) else {
            return;
        };
        let line = kernel_line(&entry.name, message.address, message.registers.rip);
        control::write(&[b"panic ", line.as_bytes(), b"\n"]);
        control::end()
    }

    /// Handles an exception after which the thread does not continue by itself. Returns a line for people if the
    /// process has ended.
    fn parked_exception(&mut self, pid: Pid, message: &ExceptionMessage) -> Option<String> {
        if self.take_exceptions(pid) {
            return None;
        }
        let entry = self.entries.get(&pid)?;
        if entry.live.as_ref()?.frozen.is_some() {
            // The exception is handled when the process is thawed.
            return None;
        }
        let line = self.describe(pid, message.code, message.address, message.registers.rip);
        let why = words::exception(message.code, message.address, message.registers.rip);
        self.end_of(pid, Status::Killed(words::signal(message.code)), why);
        line
    }

    fn describe(&self, pid: Pid, code: u64, address: u64, rip: u64) -> Option<String> {
        let entry = self.entries.get(&pid)?;
        let what = words::exception(code, address, rip);
        // A valid access that the memory server had no memory for looks the same.
        let usage = entry.live.as_ref()?.process.account().usage();
        let why = match usage {
            Ok(usage) if code == abi::Exception::Memory as u64 && usage.free == 0 => {
                "memory is out: "
            }
            _ => "",
        };
        Some(format!("{} (process {pid}): {why}{what}", entry.name))
    }

    /// Handles exceptions that threads met while the process was frozen.
    fn late_exception(&mut self, pid: Pid) {
        if self.take_exceptions(pid) {
            return;
        }
        let Ok(live) = self.live(pid) else {
            return;
        };
        let met = live.process.threads().into_iter().find_map(|thread| {
            process::debug::let_guarded_go_on(thread);
            let state = thread.get_state(0, 0, 0).ok()?;
            (state.exception_delivered != 0).then_some(state)
        });
        if let Some(state) = met {
            let (code, address) = (state.exception, state.exception_address);
            if let Some(line) = self.describe(pid, code, address, state.registers.rip) {
                slow::say(line);
            }
            self.end(pid, Status::Killed(words::signal(code)));
        }
    }

    fn info_of(pid: Pid, entry: &Entry) -> Info {
        let mut info = Info {
            pid,
            name: entry.name.clone(),
            status: entry.status,
            threads: Vec::new(),
            doing: Vec::new(),
            resident: 0,
            objects: 0,
        };
        if let Some(live) = &entry.live {
            let process = &live.process;
            let states: Vec<_> = process
                .first_threads(MOST_TOLD)
                .into_iter()
                .filter_map(|thread| thread.get_state(0, 0, 0).ok())
                .collect();
            for state in states {
                info.doing
                    .push(words::doing(&state, process.is_call(state.registers.rip)));
                info.threads.push(words::summary(&state));
            }
            info.objects = process.object_count();
            for segment in [process.memory(), process.control()] {
                info.resident += segment.usage().map_or(0, |usage| usage.resident);
            }
        }
        info
    }

    /// Describes the process with this number, or else the one with the next higher number.
    fn next(&self, pid: Pid) -> Result<Info, Error> {
        let (pid, entry) = self.entries.range(pid..).next().ok_or(Error::NotFound)?;
        Ok(Manager::info_of(*pid, entry))
    }
}

/// A line that says why a server cannot be started.
pub(crate) fn complaint(path: &str, why: &str) -> String {
    ["init: ", path, ": ", why].concat().to_string()
}
