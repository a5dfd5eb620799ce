//! The manager of native programs, known as `native`.
//!
//! Every process has two ports: its *own*, where it speaks to init and which is the keeper of its space, and
//! its *control* port, which goes to whoever started it. What a request is about follows from the port
//! that it comes to; only the supervisor's port, which goes to the holder of the system port, takes
//! numbers of processes.
use crate::drivers::Drivers;
use crate::reader::Reading;
use crate::{names, slow};
use abi::message::ExceptionMessage;
use abi::state::SpaceState;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Deref;
use fermata_init::{Part, DRIVERS, MAX_PART};
use interface::server::{
    own_port, Either, Event, Host, Reply, Request, SharedService, Visitor, OWN,
};
use interface::{Answer, Server};
use process::account::{self, Supply};
use process::image::Loading;
use process::native::{self, furnish, References};
use process::{words, Process};
use proto::layout::{MEMORY_SIZE, PRIORITY_PROGRAM};
use proto::Error;
use rt::error_of;
use rt::fs;
use rt::memory::{Limits, Segment};
use rt::obj::{Port, PortAt, Portset, Ref, RefAt, ThreadAt};
use rt::sync::{Lazy, Mutex};
use rt::sys;
use services::fs::PATH_ROOM;
use services::names::RESERVED;
use services::process::{
    self as interfaces, Info, Pid, ProcessStub, ProcessesStub, Program, Start, Status,
    SupervisorStub, MAX_JOB,
};

/// Most processes.
const MAX_PROCESSES: usize = 1024;
/// Most characters of a command line that are kept as the name of its process.
const MAX_NAME: usize = 200;
/// Most requests `freeze` of one process that are not undone.
const MAX_FREEZES: usize = 16;
/// The machine's status if an exception ended its shell.
const BROKEN: u8 = 125;
/// The signal in the status of a process that was ended by `kill`.
pub(crate) const SIGKILL: u8 = 9;

/// The control port of a process has this alias with the number of the process added.
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
    /// Threads stopped by each `freeze`; for a process that is being rebuilt its maker has stopped
    /// them, and it is not known yet which there are.
    frozen: Vec<Option<Vec<ThreadAt>>>,
    /// Its own port. What it asks init comes from there.
    own: Own,
}

/// A port and a reference to it, by which it is recognised.
struct Own {
    _port: Port,
    reference: Ref,
}

/// What is wrong with a program that cannot be started, and a sentence fragment that says so.
pub(crate) type Why = (Error, &'static str);

/// An error that says all.
pub(crate) fn plain(error: Error) -> Why {
    (error, error.text())
}

/// A process whose program is being loaded.
pub(crate) struct New {
    pub(crate) pid: Pid,
    process: Process,
    own: Own,
    /// What is known of it when it runs.
    entry: Entry,
    priority: u64,
}

impl New {
    /// Takes the next bytes of its file.
    pub(crate) fn take(&self, loading: &mut Loading, bytes: &[u8]) -> Result<(), Why> {
        loading.take(bytes, |address, bytes| self.process.write(address, bytes))
    }

    /// Happens when it may be wanted no longer.
    pub(crate) fn event(&self) -> Arc<Event> {
        Arc::clone(&self.entry.event)
    }
}

/// What the manager knows of a process whose program is being loaded.
struct Coming {
    owner: Pid,
    job: Pid,
    event: Arc<Event>,
    /// Its owner has ended.
    unwanted: bool,
}

struct Entry {
    name: String,
    status: Status,
    live: Option<Live>,
    /// The part of a process that is being rebuilt, as far as it has arrived.
    arriving: Option<Vec<u8>>,
    /// Names that its ports get when it has been rebuilt, and where these ports are.
    names: Vec<(String, u64)>,
    /// The process that started it. The status is kept until the process and its owner have both ended.
    owner: Pid,
    /// The first process of the job for which it counts.
    job: Pid,
    control: Own,
    /// A number that no other process ever has: process numbers are used again.
    serial: u64,
    /// Wakes requests that wait for its status to change.
    event: Arc<Event>,
    /// The reserved name that it may register.
    service: Option<&'static str>,
    /// Started by init: it has a larger promise of memory, and is not stopped or killed.
    server: bool,
    /// A server that all programs need: if it ends, a line is printed.
    essential: bool,
    /// A driver, or what is kept alive like one: its number in the boot manifest. It is started anew when it has ended, and may be killed.
    driver: Option<usize>,
}

/// What all processes share.
pub(crate) struct Manager {
    entries: BTreeMap<Pid, Entry>,
    /// Processes whose programs are being loaded.
    coming: BTreeMap<Pid, Coming>,
    next: Pid,
    next_serial: u64,
    /// Events that are to happen after the manager's lock has been released, because the requests that they wake may want
    /// the lock.
    happened: Vec<Arc<Event>>,
    /// The portset of the processes' own ports.
    own_portset: RefAt,
    /// The portset of their control ports.
    control_portset: RefAt,
    /// The memory server's supervisor port.
    supervisor: Ref,
    /// Bytes of physical memory.
    total: u64,
    /// Kernel memory for each program.
    quota: u64,
    /// The highest priority that a program can give itself.
    ceiling: u64,
    /// Starts drivers anew.
    drivers: Drivers,
}

/// How to start a program.
pub(crate) struct Launch<'a> {
    pub(crate) start: &'a Start,
    pub(crate) priority: u64,
    /// The highest priority that its threads can be given, unless `priority` is higher.
    pub(crate) ceiling: u64,
    /// Kernel memory; 0: as for every program.
    pub(crate) quota: u64,
    pub(crate) server: bool,
    /// What memory it may have, of so many bytes.
    pub(crate) limits: fn(u64) -> Limits,
    pub(crate) essential: bool,
    /// See [`Entry::driver`].
    pub(crate) driver: Option<usize>,
    /// The reserved name that it may register.
    pub(crate) service: Option<&'static str>,
    /// Who starts it; 0: init.
    pub(crate) owner: Pid,
    pub(crate) refs: &'a [&'a RefAt],
}

/// The manager, which several threads use.
pub(crate) struct Processes {
    manager: Mutex<Manager>,
    /// The thread of the manager's server.
    server: u64,
    /// Events of other threads.
    told: Mutex<Vec<Arc<Event>>>,
    teller: Ref,
}

impl Processes {
    /// With the thread that tells; the calling one is the server's.
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

    /// The thread that tells.
    fn tell() {
        loop {
            sys::thread_wait_interrupt();
            let told = processes().map(|processes| core::mem::take(&mut *processes.told.lock()));
            for event in told.into_iter().flatten() {
                event.happened();
            }
        }
    }

    /// Does something with the manager, and then tells who waits for what has changed.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Manager) -> R) -> R {
        let (result, happened) = {
            let mut manager = self.manager.lock();
            (f(&mut manager), core::mem::take(&mut manager.happened))
        };
        if sys::thread_self() == self.server {
            happened.iter().for_each(|event| event.happened());
        } else if !happened.is_empty() {
            // Waking the server waits for it, which may wait for this very thread.
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

/// References to a process that is being rebuilt: its control port, the keeper of its space, its regions and its account.
type Adopted = (Pid, Vec<Ref>);

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
        }
    }

    /// By which it says that drivers have ended.
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

    /// The job of a process; `None` for what a server or init starts, which begins one.
    fn job_of(&self, pid: Pid) -> Option<Pid> {
        let entry = self.entries.get(&pid)?;
        (!entry.server).then_some(entry.job)
    }

    /// The job of the process whose own port this is; 0 for a server.
    pub(crate) fn job_at(&self, own: &RefAt) -> Result<Pid, Error> {
        let pid = self.by_own_port(own)?;
        Ok(self.job_of(pid).unwrap_or(0))
    }

    /// Whether a process may register a name, and the job for which it counts.
    pub(crate) fn may_register(&self, pid: Pid, name: &str) -> Result<Pid, Error> {
        let entry = self.entries.get(&pid).ok_or(Error::NotFound)?;
        if entry.live.is_none() {
            return Err(Error::Ended);
        }
        if RESERVED.contains(&name) && entry.service != Some(name) {
            return Err(Error::Denied);
        }
        Ok(entry.job)
    }

    /// Whether a process may control this server: the boot manifest says so.
    pub(crate) fn may_control(&self, pid: Pid, server: &str) -> bool {
        let driver = self.entries.get(&pid).and_then(|entry| entry.driver);
        driver.is_some_and(|number| DRIVERS[number].uses == Some(server))
    }

    /// A free number for a process that `owner` starts, and its job.
    fn new_pid(&mut self, owner: Pid) -> Result<(Pid, Pid), Error> {
        if self.entries.len() + self.coming.len() >= MAX_PROCESSES {
            return Err(Error::Limit);
        }
        let coming = self.coming.values().map(|coming| coming.job);
        let jobs = self.entries.values().map(|entry| entry.job);
        let jobs: Vec<Pid> = jobs.chain(coming).collect();
        let job = self.job_of(owner);
        if let Some(job) = job {
            if jobs.iter().filter(|other| **other == job).count() >= MAX_JOB {
                return Err(Error::Limit);
            }
        }
        // A number is not used again while anything counts for it.
        let taken = |pid: Pid| {
            pid == 0
                || self.entries.contains_key(&pid)
                || self.coming.contains_key(&pid)
                || jobs.contains(&pid)
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

    /// A reference to the control port of a process.
    fn control(&mut self, pid: Pid) -> Result<Ref, Error> {
        self.entry(pid)?.control.reference.copy().map_err(error_of)
    }

    /// Starts a program whose file is there. What is wrong with it comes as a sentence fragment.
    pub(crate) fn launch(&mut self, launch: &Launch<'_>, file: &[u8]) -> Result<Pid, Why> {
        let new = self.begin(launch)?;
        let mut loading = native::loading(file.len() as u64);
        let mut load = || {
            while let Some((offset, length)) = loading.wants() {
                let rest = usize::try_from(offset).ok().and_then(|at| file.get(at..));
                let rest = rest.unwrap_or_default();
                new.take(&mut loading, &rest[..length.min(rest.len())])?;
            }
            Ok(())
        };
        match load() {
            Ok(()) => self.finish(new, loading),
            Err(why) => {
                self.give_up(new);
                Err(why)
            }
        }
    }

    /// A new process with everything but its program: to be given to [`Manager::finish`] or [`Manager::give_up`]. It counts as
    /// one from now on, and nobody can name it.
    pub(crate) fn begin(&mut self, launch: &Launch<'_>) -> Result<New, Why> {
        let (pid, job) = self.new_pid(launch.owner).map_err(plain)?;
        let (own, control) = self.ports(pid).map_err(plain)?;
        let quota = if launch.quota == 0 {
            self.quota
        } else {
            launch.quota
        };
        let space = SpaceState {
            quota,
            max_priority: launch.ceiling.max(launch.priority),
            ..SpaceState::default()
        };
        let supply = self.supply(launch.limits);
        let mut process = Process::create(&supply, &space, Some(&own.reference)).map_err(plain)?;
        let references = References {
            init: &own.reference,
            gives_back: launch.server,
            passed: launch.refs,
        };
        if let Err(why) = furnish(&mut process, launch.start, launch.priority, &references) {
            process.destroy();
            return Err(why);
        }
        // A server is known by its name, a program by its command line.
        let words = if launch.server { 1 } else { usize::MAX };
        let words: Vec<&str> = launch
            .start
            .args
            .iter()
            .take(words)
            .map(String::as_str)
            .collect();
        let entry = Entry {
            name: words.join(" ").chars().take(MAX_NAME).collect(),
            status: Status::Running,
            live: None,
            arriving: None,
            names: Vec::new(),
            owner: launch.owner,
            job,
            control,
            serial: self.serial(),
            event: Arc::new(Event::new()),
            service: launch.service,
            server: launch.server,
            essential: launch.essential,
            driver: launch.driver,
        };
        let coming = Coming {
            owner: launch.owner,
            job,
            event: Arc::clone(&entry.event),
            unwanted: false,
        };
        self.coming.insert(pid, coming);
        Ok(New {
            pid,
            process,
            own,
            entry,
            priority: launch.priority,
        })
    }

    /// Lets a new process run whose program is loaded.
    pub(crate) fn finish(&mut self, new: New, loading: Loading) -> Result<Pid, Why> {
        let pid = new.pid;
        let wanted = self.is_wanted(pid).map_err(plain);
        let plan = loading.done().ok_or_else(|| plain(Error::BadFormat));
        let mut new = new;
        let started = wanted
            .and(plan)
            .and_then(|plan| native::start(&mut new.process, &plan, new.priority).map_err(plain));
        if let Err(why) = started {
            self.give_up(new);
            return Err(why);
        }
        let New {
            process,
            own,
            mut entry,
            ..
        } = new;
        entry.live = Some(Live {
            process,
            stopped: Vec::new(),
            frozen: Vec::new(),
            own,
        });
        self.coming.remove(&pid);
        self.entries.insert(pid, entry);
        Ok(pid)
    }

    /// Whether a new process is still wanted: [`Error::Ended`] if its owner has ended.
    pub(crate) fn is_wanted(&self, pid: Pid) -> Result<(), Error> {
        match self.coming.get(&pid) {
            Some(coming) if !coming.unwanted => Ok(()),
            _ => Err(Error::Ended),
        }
    }

    /// Ends a new process, which has never run.
    pub(crate) fn give_up(&mut self, new: New) {
        self.coming.remove(&new.pid);
        new.process.destroy();
    }

    /// Where the memory of a process comes from.
    fn supply(&self, limits: fn(u64) -> Limits) -> Supply {
        Supply {
            supervisor: *self.supervisor,
            limits: limits(self.total),
        }
    }

    /// The status of a process has changed, or it is about to be forgotten.
    fn announce(&mut self, pid: Pid) {
        if let Some(entry) = self.entries.get(&pid) {
            self.happened.push(Arc::clone(&entry.event));
        }
    }

    /// Ends a process. Only its status is kept.
    fn end(&mut self, pid: Pid, status: Status) {
        let Some(entry) = self.entries.get_mut(&pid) else {
            return;
        };
        if let Some(live) = entry.live.take() {
            live.process.destroy();
            entry.status = status;
            entry.arriving = None;
            names::forget(pid);
            for coming in self.coming.values_mut().filter(|new| new.owner == pid) {
                coming.unwanted = true;
                self.happened.push(Arc::clone(&coming.event));
            }
            if let Some(driver) = entry.driver {
                self.drivers.ended(driver, status);
                self.announce(pid);
                self.entries.remove(&pid);
                return;
            }
            if entry.server && !entry.essential {
                // The shell, or the tests: the machine ends with them. (The shell has usually
                // asked for that itself, and with which status.)
                slow::power_off(match status {
                    Status::Exited(status) => status,
                    _ => BROKEN,
                });
            }
            if entry.essential {
                slow::say(format!("init: the server {} has ended", entry.name));
            }
            self.announce(pid);
            // The status of a process is forgotten when its owner has ended too: that of processes that this one
            // has started, and that of this one.
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

    /// A process says that it exits.
    pub(crate) fn exit(&mut self, pid: Pid, status: u8) -> Result<(), Error> {
        if !self.live(pid)?.frozen.is_empty() {
            // Its thread asks again when it goes on.
            return Err(Error::WouldBlock);
        }
        self.end(pid, Status::Exited(status));
        Ok(())
    }

    /// A thread of a process met an exception, which is parked: a line for people if that was the
    /// end of the process.
    pub(crate) fn exception(&mut self, pid: Pid, message: &ExceptionMessage) -> Option<String> {
        let entry = self.entries.get(&pid)?;
        if !entry.live.as_ref()?.frozen.is_empty() {
            // The exception is looked at again when the process is thawed.
            return None;
        }
        let line = self.describe(pid, message.code, message.address, message.registers.rip);
        self.end(pid, Status::Killed(words::signal(message.code)));
        line
    }

    fn describe(&self, pid: Pid, code: u64, address: u64, rip: u64) -> Option<String> {
        let entry = self.entries.get(&pid)?;
        let what = words::exception(code, address, rip);
        // A good access that the memory server could not serve looks the same.
        let usage = entry.live.as_ref()?.process.account().usage();
        let why = match usage {
            Ok(usage) if code == abi::Exception::Memory as u64 && usage.free == 0 => {
                "memory is out: "
            }
            _ => "",
        };
        Some(format!("{} (process {pid}): {why}{what}", entry.name))
    }

    /// Threads that met an exception while the process was frozen.
    fn late_exception(&mut self, pid: Pid) {
        let Ok(live) = self.live(pid) else {
            return;
        };
        let met = live.process.threads().into_iter().find_map(|thread| {
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

    fn info(pid: Pid, entry: &Entry) -> Info {
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
                .threads()
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

    /// The first process with this number or a higher one.
    fn next(&self, pid: Pid) -> Result<Info, Error> {
        let (pid, entry) = self.entries.range(pid..).next().ok_or(Error::NotFound)?;
        Ok(Manager::info(*pid, entry))
    }

    fn stop(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.server {
            return Err(Error::Denied);
        }
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        if entry.status == Status::Running {
            live.stopped = live.process.stop_all();
            entry.status = Status::Stopped;
            self.announce(pid);
        }
        Ok(())
    }

    fn resume(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        if entry.status == Status::Stopped {
            live.process.resume_all(&core::mem::take(&mut live.stopped));
            entry.status = Status::Running;
            self.announce(pid);
        }
        Ok(())
    }

    fn kill(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.server && entry.driver.is_none() {
            return Err(Error::Denied);
        }
        if entry.live.is_none() {
            return Err(Error::Ended);
        }
        self.end(pid, Status::Killed(SIGKILL));
        Ok(())
    }

    /// The length of the part, the name, and references.
    fn freeze(&mut self, pid: Pid) -> Result<(u64, Vec<u8>, Vec<Ref>), Error> {
        let entry = self.entry(pid)?;
        if entry.server {
            return Err(Error::Denied);
        }
        let name = entry.name.clone().into_bytes();
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        if live.frozen.len() >= MAX_FREEZES {
            return Err(Error::Limit);
        }
        let copy = |segment: &Segment| segment.region.copy().map_err(error_of);
        let refs = vec![
            copy(live.process.memory())?,
            copy(live.process.control())?,
            live.process.account().account.copy().map_err(error_of)?,
        ];
        live.frozen.push(Some(live.process.stop_all()));
        match self.part(pid) {
            Ok(part) => Ok((part.len() as u64, name, refs)),
            Err(error) => {
                self.thaw(pid)?;
                Err(error)
            }
        }
    }

    /// Init's part of a process.
    fn part(&mut self, pid: Pid) -> Result<Vec<u8>, Error> {
        let entry = self.entry(pid)?;
        let live = entry.live.as_ref().ok_or(Error::Ended)?;
        Part {
            name: entry.name.clone(),
            stopped: entry.status == Status::Stopped,
            names: known_ports(pid, &live.process),
        }
        .to_bytes()
    }

    fn thaw(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.arriving.is_some() {
            return Err(Error::Invalid);
        }
        let stopped = entry.status == Status::Stopped;
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        let threads = match live.frozen.last().ok_or(Error::Invalid)? {
            Some(threads) => threads.clone(),
            None => {
                // Rebuilt by someone else: only now all is there.
                if !live.process.has_objects() {
                    return Err(Error::Invalid);
                }
                live.process.learn()?;
                for (name, address) in core::mem::take(&mut entry.names) {
                    let reserved = RESERVED.contains(&name.as_str());
                    let again = match reserved {
                        true => Err(Error::Denied),
                        false => restore_name(pid, entry.job, &live.process, &name, address),
                    };
                    if let Err(error) = again {
                        slow::log(&[&name, ": ", error.text()].concat());
                    }
                }
                live.process.threads()
            }
        };
        live.frozen.pop();
        if stopped && live.stopped.is_empty() {
            live.stopped.clone_from(&threads);
        }
        live.process.resume_all(&threads);
        if live.frozen.is_empty() {
            self.late_exception(pid);
        }
        Ok(())
    }

    /// Lets a process go that was rebuilt.
    fn let_go(&mut self, pid: Pid) -> Result<(), Error> {
        match self.live(pid)?.frozen.as_slice() {
            [None] => self.thaw(pid),
            _ => Err(Error::Invalid),
        }
    }

    /// A process to be rebuilt: with a space and a thread, and nothing else.
    fn adopt(&mut self, owner: Pid) -> Result<Adopted, Error> {
        let (pid, job) = self.new_pid(owner)?;
        let (own, control) = self.ports(pid)?;
        let keeper = own.reference.copy().map_err(error_of)?;
        let handed = control.reference.copy().map_err(error_of)?;
        let space = SpaceState {
            quota: self.quota,
            max_priority: self.ceiling,
            ..SpaceState::default()
        };
        let process = Process::create(&self.supply(account::program), &space, Some(&keeper))?;
        let regions = (
            process.memory().region.copy(),
            process.control().region.copy(),
            process.account().account.copy(),
        );
        let (Ok(memory), Ok(segment), Ok(account)) = regions else {
            process.destroy();
            return Err(Error::NoMemory);
        };
        let serial = self.serial();
        self.entries.insert(
            pid,
            Entry {
                name: "(being restored)".to_string(),
                status: Status::Running,
                live: Some(Live {
                    process,
                    stopped: Vec::new(),
                    frozen: vec![None],
                    own,
                }),
                arriving: Some(Vec::new()),
                names: Vec::new(),
                owner,
                job,
                control,
                serial,
                event: Arc::new(Event::new()),
                service: None,
                server: false,
                essential: false,
                driver: None,
            },
        );
        Ok((pid, vec![handed, keeper, memory, segment, account]))
    }

    fn populate(&mut self, pid: Pid, control: bool, offset: u64, size: u64) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.arriving.is_none() {
            return Err(Error::Invalid);
        }
        let live = entry.live.as_ref().ok_or(Error::Ended)?;
        live.process.populate(control, offset, size)
    }

    /// A piece of the part of a process that is being rebuilt.
    fn rebuild(
        &mut self,
        pid: Pid,
        offset: u64,
        length: u64,
        clock_offset: u64,
        bulk: &[u8],
    ) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        let part = entry.arriving.as_mut().ok_or(Error::Invalid)?;
        let live = entry.live.as_ref().ok_or(Error::Ended)?;
        let end = part.len() as u64 + bulk.len() as u64;
        let taken = if offset == part.len() as u64 && end <= length && length <= MAX_PART {
            part.extend_from_slice(bulk);
            if end < length {
                return Ok(());
            }
            Part::from_bytes(part)
                .and_then(|part| live.process.set_clock(clock_offset).map(|()| part))
        } else {
            Err(Error::BadFormat)
        };
        match taken {
            Ok(part) => {
                entry.arriving = None;
                entry.name = part.name;
                entry.names = part.names;
                entry.status = if part.stopped {
                    Status::Stopped
                } else {
                    Status::Running
                };
                Ok(())
            }
            Err(error) => {
                self.end(pid, Status::Killed(SIGKILL));
                Err(error)
            }
        }
    }

    fn reap(&mut self, pid: Pid) -> Result<Status, Error> {
        let entry = self.entry(pid)?;
        if entry.live.is_some() {
            return Err(Error::Invalid);
        }
        let status = entry.status;
        self.announce(pid);
        self.entries.remove(&pid);
        Ok(status)
    }

    /// Whether the process of this number is the one with this serial number.
    fn known(&mut self, (pid, serial): Known) -> Result<&mut Entry, Error> {
        let entry = self.entry(pid)?;
        (entry.serial == serial)
            .then_some(entry)
            .ok_or(Error::NotFound)
    }
}

/// A process by its number and its serial number.
type Known = (Pid, u64);

/// Names by which ports of a process are known, and where these ports are in its memory.
fn known_ports(pid: Pid, process: &Process) -> Vec<(String, u64)> {
    let mut known = Vec::new();
    if !names::has_names(pid) {
        return known;
    }
    let mut offset = 0;
    let region = &process.memory().region;
    while let Ok((found, _)) = region.search(offset, MEMORY_SIZE, PORTS) {
        let port = PortAt(process.memory_window().address() + found).reference();
        if let Ok(port) = port {
            let names = names::names_of(pid, *port);
            known.extend(names.into_iter().map(|name| (name, found)));
        }
        offset = found + abi::OBJECT_SIZE;
    }
    known
}

/// Gives the port at this address of a process its name again. Name and address come from an image.
fn restore_name(
    pid: Pid,
    job: Pid,
    process: &Process,
    name: &str,
    address: u64,
) -> Result<(), Error> {
    let end = address
        .checked_add(abi::OBJECT_SIZE)
        .ok_or(Error::BadFormat)?;
    match process.memory().region.search(address, end, PORTS) {
        Ok((found, _)) if found == address => {
            let port = PortAt(process.memory_window().address() + found).reference();
            names::register(name, port.map_err(error_of)?, None, pid, job)
        }
        _ => Err(Error::BadFormat),
    }
}

/// For `region_search`: ports.
const PORTS: u64 = 1 << abi::Type::Port as u64;

/// A session at the door of the manager.
struct AnyOne(&'static Processes);

impl AnyOne {
    /// Begins to start a program: its path, and the new process.
    fn begin(
        &self,
        owner: &RefAt,
        passed: &[Ref],
        program: &[u8],
    ) -> Result<(String, Starting), Error> {
        let Program { path, start } = Program::from_bytes(program)?;
        if path.len() > PATH_ROOM {
            return Err(Error::NameTooLong);
        }
        let refs: Vec<&RefAt> = passed.iter().map(|reference| &**reference).collect();
        let new = self.0.with(|manager| {
            let launch = Launch {
                start: &start,
                priority: PRIORITY_PROGRAM,
                ceiling: manager.ceiling,
                quota: 0,
                server: false,
                limits: account::program,
                essential: false,
                driver: None,
                service: None,
                owner: manager.by_own_port(owner)?,
                refs: &refs,
            };
            manager.begin(&launch).map_err(|(error, why)| {
                slow::log(&[&path, ": ", why].concat());
                error
            })
        })?;
        let wanted = Starting {
            processes: self.0,
            new: Some(new),
        };
        Ok((path, wanted))
    }
}

/// A new process whose file is waited for. If this is dropped before it runs it has never been.
struct Starting {
    processes: &'static Processes,
    new: Option<New>,
}

impl Starting {
    fn process(&self) -> Result<&New, Why> {
        self.new.as_ref().ok_or_else(|| plain(Error::Ended))
    }

    fn finish(&mut self, loading: Loading) -> Result<Pid, Why> {
        let new = self.new.take().ok_or_else(|| plain(Error::Ended))?;
        self.processes.with(|manager| manager.finish(new, loading))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(new) = self.new.take() {
            self.processes.with(|manager| manager.give_up(new));
        }
    }
}

/// Loads the executable at this path into a new process, as long as that is wanted.
async fn load(path: &str, wanted: &mut Starting) -> Result<Loading, Why> {
    let new = wanted.process()?;
    let (processes, pid) = (wanted.processes, new.pid);
    let is_wanted = move || processes.with(|manager| manager.is_wanted(pid));
    let reading = Reading::open(path, new.event(), &is_wanted)
        .await
        .map_err(plain)?;
    let opened = reading.opened().map_err(plain)?;
    let refused = match opened.mode & fs::mode::TYPE {
        fs::mode::FILE if opened.mode & 0o111 != 0 => None,
        fs::mode::DIRECTORY => Some(Error::IsDirectory),
        _ => Some(Error::Denied),
    };
    if let Some(error) = refused {
        return Err(plain(error));
    }
    let mut loading = native::loading(opened.size);
    while let Some((offset, length)) = loading.wants() {
        let bytes = reading
            .read(offset, length, &is_wanted)
            .await
            .map_err(plain)?;
        wanted.process()?.take(&mut loading, &bytes)?;
    }
    Ok(loading)
}

impl interfaces::Processes for AnyOne {
    async fn spawn(
        &self,
        owner: Ref,
        passed: Vec<Ref>,
        program: Vec<u8>,
    ) -> Result<(u32, Ref), Error> {
        let (path, mut new) = self.begin(&owner, &passed, &program)?;
        // All that is kept while the file is waited for is the new process, which counts as one of its job.
        drop((owner, passed, program));
        let loaded = load(&path, &mut new).await;
        let started = loaded.and_then(|loading| new.finish(loading));
        let pid = started.map_err(|(error, why)| {
            slow::log(&[&path, ": ", why].concat());
            error
        })?;
        Ok((pid, self.0.with(|manager| manager.control(pid))?))
    }

    fn adopt(&self, owner: &RefAt) -> Result<(u32, Vec<Ref>), Error> {
        self.0.with(|manager| {
            let owner = manager.by_own_port(owner)?;
            manager.adopt(owner)
        })
    }

    fn verify(&self, control: &RefAt) -> Result<u32, Error> {
        self.0.with(|manager| manager.by_control_port(control))
    }
}

/// A session at the control port of a process.
struct Held {
    processes: &'static Processes,
    known: Known,
    event: Arc<Event>,
    /// How often this session has frozen it.
    freezes: Cell<u32>,
}

impl Held {
    /// Does something with the manager, if the process is still known to it.
    fn with<R>(&self, f: impl FnOnce(&mut Manager, Pid) -> Result<R, Error>) -> Result<R, Error> {
        self.processes.with(|manager| {
            manager.known(self.known)?;
            f(manager, self.known.0)
        })
    }

    /// Waits for a status.
    async fn wait_for(&self, wanted: impl Fn(Status) -> bool) -> Result<Status, Error> {
        let look = || match interfaces::Process::status(self) {
            Ok(status) if !wanted(status) => None,
            status => Some(status),
        };
        self.event.until(look).await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for _ in 0..self.freezes.get() {
            let _ = self.with(Manager::thaw);
        }
    }
}

impl interfaces::Process for Held {
    fn status(&self) -> Result<Status, Error> {
        self.with(|manager, pid| Ok(manager.entry(pid)?.status))
    }

    async fn changed(&self, from: Status) -> Result<Status, Error> {
        self.wait_for(|status| status != from).await
    }

    async fn ended(&self) -> Result<Status, Error> {
        self.wait_for(Status::has_ended).await
    }

    fn reap(&self) -> Result<Status, Error> {
        self.with(Manager::reap)
    }

    fn kill(&self) -> Result<(), Error> {
        self.with(Manager::kill)
    }

    fn stop(&self) -> Result<(), Error> {
        self.with(Manager::stop)
    }

    fn go_on(&self) -> Result<(), Error> {
        self.with(Manager::resume)
    }

    fn info(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let info = self.with(|manager, pid| Ok(Manager::info(pid, manager.entry(pid)?)))?;
        interfaces::encoded(&info, room)
    }

    fn freeze(&self, room: usize) -> Result<(u64, Vec<u8>, Vec<Ref>), Error> {
        let (length, mut name, refs) = self.with(Manager::freeze)?;
        self.freezes.set(self.freezes.get() + 1);
        name.truncate(room);
        Ok((length, name, refs))
    }

    fn part(&self, offset: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        if self.freezes.get() == 0 {
            return Err(Error::Invalid);
        }
        let mut part = self.with(Manager::part)?;
        if offset > part.len() as u64 {
            return Err(Error::Invalid);
        }
        part.drain(..offset as usize);
        part.truncate(room);
        Ok(part)
    }

    fn thaw(&self) -> Result<(), Error> {
        let freezes = self.freezes.get();
        self.with(|manager, pid| match freezes {
            0 => manager.let_go(pid),
            _ => manager.thaw(pid),
        })?;
        self.freezes.set(freezes.saturating_sub(1));
        Ok(())
    }

    fn populate(&self, control: bool, offset: u64, size: u64) -> Result<(), Error> {
        self.with(|manager, pid| manager.populate(pid, control, offset, size))
    }

    fn rebuild(
        &self,
        offset: u64,
        length: u64,
        clock_offset: u64,
        piece: &[u8],
    ) -> Result<(), Error> {
        self.with(|manager, pid| manager.rebuild(pid, offset, length, clock_offset, piece))
    }
}

/// What comes to the supervisor's port.
struct All(&'static Processes);

impl interfaces::Supervisor for All {
    fn next(&self, from: u32, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let info = self.0.with(|manager| manager.next(from))?;
        interfaces::encoded(&info, room)
    }

    fn control(&self, pid: u32) -> Result<Ref, Error> {
        self.0.with(|manager| manager.control(pid))
    }
}

type Sessions = Either<ProcessesStub<AnyOne>, ProcessStub<Held>>;

/// What comes to the thread of the manager.
struct Native(&'static Processes);

impl Host<Sessions> for Native {
    const BYTES: bool = true;

    fn open(&mut self, visitor: &Visitor) -> Result<Sessions, Error> {
        match visitor.door {
            0 if visitor.interface == interfaces::ProcessesClient::ID => {
                Ok(Either::First(ProcessesStub(AnyOne(self.0)).into()))
            }
            alias if visitor.interface == interfaces::ProcessClient::ID => {
                let pid = pid_of(alias).ok_or(Error::Unsupported)?;
                let held = self.0.with(|manager| {
                    let entry = manager.entry(pid)?;
                    Ok(Held {
                        processes: self.0,
                        known: (pid, entry.serial),
                        event: Arc::clone(&entry.event),
                        freezes: Cell::new(0),
                    })
                })?;
                Ok(Either::Second(ProcessStub(held).into()))
            }
            _ => Err(Error::Unsupported),
        }
    }

    fn shared(&mut self, alias: u64, request: &Request<'_>, reply: &mut Reply) -> Answer {
        if alias == SUPERVISOR {
            return SupervisorStub(All(self.0)).answer(request, reply);
        }
        reply.set::<()>(Err(Error::Unsupported));
        Answer::Now
    }
}

/// The manager's server.
pub(crate) struct Serving(Server<Sessions, Native>);

/// The job of a client that opens a session.
fn job_of(client: &RefAt) -> Result<u32, Error> {
    names::job_of(processes()?, client)
}

impl Serving {
    /// The server on the calling thread, and references to the two ports by which the manager is known: that of its
    /// name, and the supervisor's.
    pub(crate) fn new(
        portset: Portset,
        processes: &'static Processes,
    ) -> Result<(Self, [Ref; 2]), Error> {
        let own = portset.reference().map_err(error_of)?;
        let supervisor = own_port(*own, SUPERVISOR).map_err(error_of)?;
        let supervisor_ref = supervisor.reference().map_err(error_of)?;
        core::mem::forget(supervisor);
        let mut server = Server::on(portset, Native(processes))?;
        server.knows(job_of);
        let door = server.door().reference().map_err(error_of)?;
        Ok((Serving(server), [door, supervisor_ref]))
    }

    /// Serves requests, on the calling thread.
    pub(crate) fn run(self) -> ! {
        self.0.run()
    }
}

/// A line about a server that cannot be started.
pub(crate) fn complaint(path: &str, why: &str) -> String {
    ["init: ", path, ": ", why].concat().to_string()
}
