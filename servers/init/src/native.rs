//! The manager of native programs: [`proto::process`], spoken as `native`.
use crate::{names, slow};
use abi::message::ExceptionMessage;
use abi::state::{PortState, SpaceState};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fermata_init::{Part, MAX_PART};
use process::native::{prepare, References};
use process::{words, Process};
use proto::layout::{MEMORY_SIZE, PRIORITY_PROGRAM};
use proto::process::{Info, Pid, Reply, Request, Start, Status};
use proto::{Error, MAX_BULK};
use rt::error_of;
use rt::fs;
use rt::memory::Segment;
use rt::obj::{Port, PortAt, Ref, RefAt, ThreadAt};
use rt::server::{decode, Event, Server};
use rt::sync::Mutex;

/// Most processes.
const MAX_PROCESSES: usize = 1024;
/// Most bytes of an executable.
const MAX_EXECUTABLE: u64 = 64 << 20;
/// Most characters of a command line that are kept as the name of its process.
const MAX_NAME: usize = 200;
/// Most watchers.
const MAX_WATCHERS: usize = 256;
/// Status of a machine whose shell was ended by an exception.
const BROKEN: u8 = 125;
/// Signal number of `Kill`.
const SIGKILL: u8 = 9;

/// A process while it lives.
struct Live {
    process: Process,
    /// Threads stopped by `Stop`.
    stopped: Vec<ThreadAt>,
    /// Threads stopped by each `Freeze`; for a process that is being rebuilt its maker has stopped
    /// them, and it is not known yet which there are.
    frozen: Vec<Option<Vec<ThreadAt>>>,
}

/// A process whose part is arriving.
struct Arriving {
    part: Vec<u8>,
    length: usize,
}

struct Entry {
    name: String,
    start: Start,
    status: Status,
    live: Option<Live>,
    arriving: Option<Arriving>,
    /// Names that its ports get when it has been rebuilt, and where these ports are.
    names: Vec<(String, u64)>,
    /// Keeper of its space, and where it says that it exits.
    port: Option<Port>,
    /// Started by init: it may use the reserve of memory, and is not stopped or killed.
    server: bool,
    /// A server that everything needs: its end is worth a line.
    essential: bool,
}

/// What all processes share.
pub(crate) struct Manager {
    entries: BTreeMap<Pid, Entry>,
    next: Pid,
    watchers: Vec<Ref>,
    /// Where the ports of processes are received.
    portset: RefAt,
    names: Ref,
    memory: Ref,
    reserve: Ref,
    /// Kernel memory for each program.
    quota: u64,
    /// The highest priority that a program can give itself.
    ceiling: u64,
}

/// How to start a program.
pub(crate) struct Launch<'a> {
    pub(crate) file: &'a [u8],
    pub(crate) start: Start,
    pub(crate) priority: u64,
    /// The highest priority that its threads can be given, unless `priority` is higher.
    pub(crate) ceiling: u64,
    /// Kernel memory; 0: as for every program.
    pub(crate) quota: u64,
    pub(crate) server: bool,
    pub(crate) essential: bool,
    pub(crate) refs: &'a [&'a RefAt],
}

/// A reply with what travels beside it.
struct Answer {
    reply: Reply,
    bulk: Vec<u8>,
    refs: Vec<Ref>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Answer {
            reply,
            bulk: Vec::new(),
            refs: Vec::new(),
        }
    }
}

impl Manager {
    pub(crate) fn new(
        portset: RefAt,
        names: Ref,
        memory: Ref,
        reserve: Ref,
        quota: u64,
        ceiling: u64,
    ) -> Self {
        Manager {
            entries: BTreeMap::new(),
            next: 1,
            watchers: Vec::new(),
            portset,
            names,
            memory,
            reserve,
            quota,
            ceiling,
        }
    }

    fn entry(&mut self, pid: Pid) -> Result<&mut Entry, Error> {
        self.entries.get_mut(&pid).ok_or(Error::NotFound)
    }

    fn live(&mut self, pid: Pid) -> Result<&mut Live, Error> {
        self.entry(pid)?.live.as_mut().ok_or(Error::Ended)
    }

    /// A free number, and a port for it.
    fn new_pid(&mut self) -> Result<(Pid, Port), Error> {
        if self.entries.len() >= MAX_PROCESSES {
            return Err(Error::NoMemory);
        }
        while self.next == 0 || self.entries.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let pid = self.next;
        let port = Port::new().map_err(error_of)?;
        port.set_state(
            &PortState {
                alias: u64::from(pid),
            },
            self.portset.0,
        )
        .map_err(error_of)?;
        self.next = self.next.wrapping_add(1);
        Ok((pid, port))
    }

    /// Starts a program. What is wrong with its file comes as a sentence fragment.
    pub(crate) fn launch(&mut self, launch: &Launch<'_>) -> Result<Pid, (Error, &'static str)> {
        let plain = |error: Error| (error, error.text());
        let (pid, port) = self.new_pid().map_err(plain)?;
        let manager = port.reference().map_err(error_of).map_err(plain)?;
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
        let server = if launch.server {
            &self.reserve
        } else {
            &self.memory
        };
        let mut process = Process::create_from(server, &space, Some(&manager)).map_err(plain)?;
        let references = References {
            names: &self.names,
            memory: &self.memory,
            manager: &manager,
            gives_back: launch.server,
            passed: launch.refs,
        };
        let started = prepare(
            &mut process,
            launch.file,
            &launch.start,
            launch.priority,
            &references,
        )
        .and_then(|registers| process.start(&registers, 0, launch.priority).map_err(plain));
        if let Err(why) = started {
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
        let name: String = words.join(" ").chars().take(MAX_NAME).collect();
        self.entries.insert(
            pid,
            Entry {
                name,
                start: launch.start.clone(),
                status: Status::Running,
                live: Some(Live {
                    process,
                    stopped: Vec::new(),
                    frozen: Vec::new(),
                }),
                arriving: None,
                names: Vec::new(),
                port: Some(port),
                server: launch.server,
                essential: launch.essential,
            },
        );
        Ok(pid)
    }

    /// The references by which everybody reaches the name service and the memory server.
    pub(crate) fn references(&self) -> Result<[Ref; 2], Error> {
        let copy = |reference: &Ref| reference.copy().map_err(error_of);
        Ok([copy(&self.names)?, copy(&self.memory)?])
    }

    /// A process's status has changed.
    fn announce(&mut self) {
        self.watchers.retain(|watcher| watcher.interrupt().is_ok());
    }

    /// Ends a process: nothing of it is left but its status.
    fn end(&mut self, pid: Pid, status: Status) {
        let Some(entry) = self.entries.get_mut(&pid) else {
            return;
        };
        if let Some(live) = entry.live.take() {
            live.process.destroy();
            entry.status = status;
            entry.arriving = None;
            entry.port = None;
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
            self.announce();
        }
    }

    /// A process says that it exits.
    pub(crate) fn exit(&mut self, pid: u64, status: u8) {
        let Ok(pid) = Pid::try_from(pid) else {
            return;
        };
        // A frozen process's threads are stopped: it says so again when they go on.
        if self.live(pid).is_ok_and(|live| live.frozen.is_empty()) {
            self.end(pid, Status::Exited(status));
        }
    }

    /// A thread of a process met an exception, which is parked: a line for people if that was the
    /// end of the process.
    pub(crate) fn exception(&mut self, pid: u64, message: &ExceptionMessage) -> Option<String> {
        let pid = Pid::try_from(pid).ok()?;
        let entry = self.entries.get(&pid)?;
        if !entry.live.as_ref()?.frozen.is_empty() {
            // It stays parked, and is looked at again at the thaw.
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
        let why = match rt::memory::usage_of(&self.memory) {
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

    fn list(&self) -> Reply {
        Reply::List(
            self.entries
                .iter()
                .map(|(pid, entry)| Manager::info(*pid, entry))
                .collect(),
        )
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
            self.announce();
        }
        Ok(())
    }

    fn resume(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        if entry.status == Status::Stopped {
            for thread in core::mem::take(&mut live.stopped) {
                let _ = thread.resume();
            }
            entry.status = Status::Running;
            self.announce();
        }
        Ok(())
    }

    fn kill(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.server {
            return Err(Error::Denied);
        }
        if entry.live.is_none() {
            return Err(Error::Ended);
        }
        self.end(pid, Status::Killed(SIGKILL));
        Ok(())
    }

    fn freeze(&mut self, pid: Pid) -> Result<Answer, Error> {
        let entry = self.entry(pid)?;
        if entry.server {
            return Err(Error::Denied);
        }
        let name = entry.name.clone();
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        let copy = |segment: &Segment| segment.region.copy().map_err(error_of);
        let refs = vec![copy(live.process.memory())?, copy(live.process.control())?];
        live.frozen.push(Some(live.process.stop_all()));
        match self.part(pid) {
            Ok(part) => {
                let reply = Reply::Frozen {
                    length: part.len() as u64,
                    name,
                };
                Ok(Answer {
                    reply,
                    bulk: piece(&part, 0),
                    refs,
                })
            }
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
            start: entry.start.clone(),
            stopped: entry.status == Status::Stopped,
            names: known_ports(&live.process),
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
                    if let Err(error) = restore_name(&live.process, &name, address) {
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
        for thread in threads {
            let _ = thread.resume();
        }
        if live.frozen.is_empty() {
            self.late_exception(pid);
        }
        Ok(())
    }

    fn adopt(&mut self, length: u64, bulk: &[u8], refs: Vec<Ref>) -> Result<Answer, Error> {
        if length > MAX_PART || bulk.len() as u64 > length {
            return Err(Error::BadFormat);
        }
        let refs: [Ref; 4] = refs.try_into().map_err(|_| Error::Invalid)?;
        let [region, control, region_2, control_2] = refs;
        let (pid, port) = self.new_pid()?;
        let keeper = port.reference().map_err(error_of)?;
        let process = Process::hold(
            Segment { region, control },
            Segment {
                region: region_2,
                control: control_2,
            },
        )?;
        self.entries.insert(
            pid,
            Entry {
                name: String::new(),
                start: Start::default(),
                status: Status::Running,
                live: Some(Live {
                    process,
                    stopped: Vec::new(),
                    frozen: vec![None],
                }),
                arriving: Some(Arriving {
                    part: Vec::new(),
                    length: length as usize,
                }),
                names: Vec::new(),
                port: Some(port),
                server: false,
                essential: false,
            },
        );
        self.arrive(pid, 0, bulk)?;
        Ok(Answer {
            reply: Reply::Pid(pid),
            bulk: Vec::new(),
            refs: vec![keeper],
        })
    }

    /// A piece of a part arrives. If it makes no sense the process is forgotten: its segments
    /// belong to whoever rebuilds it.
    fn arrive(&mut self, pid: Pid, offset: u64, bulk: &[u8]) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        let arriving = entry.arriving.as_mut().ok_or(Error::Invalid)?;
        let end = arriving.part.len() + bulk.len();
        let taken = if offset == arriving.part.len() as u64 && end <= arriving.length {
            arriving.part.extend_from_slice(bulk);
            if end < arriving.length {
                return Ok(());
            }
            Part::from_bytes(&arriving.part)
        } else {
            Err(Error::BadFormat)
        };
        match taken {
            Ok(part) => {
                entry.arriving = None;
                entry.name = part.name;
                entry.start = part.start;
                entry.names = part.names;
                entry.status = if part.stopped {
                    Status::Stopped
                } else {
                    Status::Running
                };
                Ok(())
            }
            Err(error) => {
                self.entries.remove(&pid);
                Err(error)
            }
        }
    }

    fn serve(&mut self, request: Request, bulk: &[u8], refs: Vec<Ref>) -> Result<Answer, Error> {
        let done = |()| Answer::from(Reply::Done);
        match request {
            Request::Spawn { .. } | Request::Exit(_) => Err(Error::Invalid),
            Request::Watch => {
                let watcher = refs.into_iter().next().ok_or(Error::Invalid)?;
                if !self.watchers.iter().any(|known| known.same_as(*watcher)) {
                    if self.watchers.len() >= MAX_WATCHERS {
                        self.announce();
                    }
                    if self.watchers.len() >= MAX_WATCHERS {
                        return Err(Error::NoMemory);
                    }
                    self.watchers.push(watcher);
                }
                Ok(Reply::Done.into())
            }
            Request::Status(pid) => Ok(Reply::Status(self.entry(pid)?.status).into()),
            Request::Reap(pid) => {
                let entry = self.entry(pid)?;
                if entry.live.is_some() {
                    return Err(Error::Invalid);
                }
                let status = entry.status;
                self.entries.remove(&pid);
                Ok(Reply::Status(status).into())
            }
            Request::Kill(pid) => self.kill(pid).map(done),
            Request::Stop(pid) => self.stop(pid).map(done),
            Request::Continue(pid) => self.resume(pid).map(done),
            Request::List => Ok(self.list().into()),
            Request::Freeze(pid) => self.freeze(pid),
            Request::Part(pid, offset) => {
                let part = self.part(pid)?;
                if self.live(pid)?.frozen.is_empty() || offset > part.len() as u64 {
                    return Err(Error::Invalid);
                }
                let bulk = piece(&part, offset as usize);
                Ok(Answer {
                    reply: Reply::Done,
                    bulk,
                    refs: Vec::new(),
                })
            }
            Request::Thaw(pid) => self.thaw(pid).map(done),
            Request::Adopt { length, .. } => self.adopt(length, bulk, refs),
            Request::AdoptPart(pid, offset) => self.arrive(pid, offset, bulk).map(done),
        }
    }
}

/// Names by which ports of a process are known, and where these ports are in its memory.
fn known_ports(process: &Process) -> Vec<(String, u64)> {
    let mut known = Vec::new();
    let mut offset = 0;
    let region = &process.memory().region;
    while let Ok((found, _)) = region.search(offset, MEMORY_SIZE, PORTS) {
        let port = PortAt(process.memory_window().address() + found).reference();
        if let Ok(port) = port {
            known.extend(names::names_of(*port).into_iter().map(|name| (name, found)));
        }
        offset = found + abi::OBJECT_SIZE;
    }
    known
}

/// Gives the port at this address of a process its name again. The address comes from an image.
fn restore_name(process: &Process, name: &str, address: u64) -> Result<(), Error> {
    let end = address
        .checked_add(abi::OBJECT_SIZE)
        .ok_or(Error::BadFormat)?;
    match process.memory().region.search(address, end, PORTS) {
        Ok((found, _)) if found == address => {
            let port = PortAt(process.memory_window().address() + found).reference();
            names::register(name.to_string(), port.map_err(error_of)?)
        }
        _ => Err(Error::BadFormat),
    }
}

/// For `region_search`: ports.
const PORTS: u64 = 1 << abi::Type::Port as u64;

fn piece(part: &[u8], offset: usize) -> Vec<u8> {
    part[offset..part.len().min(offset + MAX_BULK)].to_vec()
}

/// Reads an executable.
fn read_executable(path: &str) -> Result<Vec<u8>, Error> {
    let attr = fs::stat(path, true)?;
    match attr.mode & fs::mode::TYPE {
        fs::mode::FILE => {}
        fs::mode::DIRECTORY => return Err(Error::IsDirectory),
        _ => return Err(Error::Denied),
    }
    if attr.mode & 0o111 == 0 {
        return Err(Error::Denied);
    }
    if attr.size > MAX_EXECUTABLE {
        return Err(Error::NoMemory);
    }
    fs::read_all(path)
}

fn spawn(
    manager: &Mutex<Manager>,
    path: &str,
    start: Start,
    refs: &[Ref],
) -> Result<Answer, Error> {
    let file = read_executable(path)?;
    let refs: Vec<&RefAt> = refs.iter().map(|reference| &**reference).collect();
    let launch = Launch {
        file: &file,
        start,
        priority: PRIORITY_PROGRAM,
        ceiling: manager.lock().ceiling,
        quota: 0,
        server: false,
        essential: false,
        refs: &refs,
    };
    match manager.lock().launch(&launch) {
        Ok(pid) => Ok(Reply::Pid(pid).into()),
        Err((error, why)) => {
            slow::log(&[path, ": ", why].concat());
            Err(error)
        }
    }
}

/// The thread.
pub(crate) fn run(mut server: Server, manager: &'static Mutex<Manager>) -> ! {
    loop {
        let answer = match server.next(None) {
            Event::Request {
                header, bulk, refs, ..
            } => match decode(header) {
                Ok(Request::Spawn { path, start }) => spawn(manager, &path, start, &refs),
                Ok(request) => manager.lock().serve(request, bulk, refs),
                Err(error) => Err(error),
            },
            _ => {
                server.drop_client();
                continue;
            }
        };
        match answer {
            Ok(answer) => {
                let refs: Vec<&RefAt> = answer.refs.iter().map(|reference| &**reference).collect();
                server.reply(&Ok(answer.reply), &answer.bulk, &refs);
            }
            Err(error) => server.reply::<Reply>(&Err(error), &[], &[]),
        }
    }
}

/// A line about a server that cannot be started.
pub(crate) fn complaint(path: &str, why: &str) -> String {
    ["init: ", path, ": ", why].concat().to_string()
}
