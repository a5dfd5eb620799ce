//! `inspect`: a page that shows the machine, on the network.
//!
//! One thread handles all connections. It reads, answers and closes each of them without waiting for a single one; an
//! action that takes long gets a thread of its own. The servers that know the state have a higher priority than
//! programs, so they are asked at most a few times a second, however many clients look at the page.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fermata_inspect::answer::{answer, Act, Done, Machine, Subject, MANAGERS, SHORTEST};
use fermata_inspect::crowd::makes_room;
use fermata_inspect::http::{self, Parsed, Status};
use fermata_inspect::state::{Driver, Function, Objects, Process, State, MOST_LINKS};
use fermata_inspect::work::Works;
use rt::net::{Network, Socket};
use rt::process::Supervisor;
use rt::sync::Mutex;
use rt::{fs, system, thread, time, Error};
use services::net::BACKLOG;

rt::entry!(main);

const USAGE: &str = "\
usage: trust inspect PORT [FILE]
Shows the machine on a page at this TCP port (run --net user --forward HOSTPORT:PORT). Whoever has the token can stop, save and end processes there:
it is the first line of FILE, or a random one that is written to standard output.";

/// How long a connection may last, in nanoseconds.
const PATIENCE: u64 = 10_000_000_000;
/// How old the shown state may be, in nanoseconds.
const FRESH: u64 = 250_000_000;
/// The pause after a request for objects of a process before the next is answered, in nanoseconds: finding the
/// references to objects takes long.
const REST: u64 = 250_000_000;
/// How long a network that has ended is waited for, and the pause between two looks for it, in nanoseconds.
const RETURN: u64 = 30_000_000_000;
const PAUSE: u64 = 100_000_000;

/// The long actions and their progress.
static WORKS: Mutex<Works> = Mutex::new(Works::new());

/// Begins a long action on a thread of its own. `what`: its description, for the sentence that is returned.
fn begin(
    what: String,
    work: impl FnOnce() -> Result<String, String> + Send + 'static,
) -> Result<Done, String> {
    let number = WORKS.lock().begin(&what)?;
    let begun = thread::spawn(move || {
        let result = work();
        WORKS.lock().over(number, result);
    });
    match begun {
        Ok(_) => Ok(Done::Begun(format!("{what}: it has begun."))),
        Err(code) => {
            WORKS.lock().forget(number);
            Err(format!("{what}: {code:?}."))
        }
    }
}

/// The machine, for a holder of the system port.
struct System {
    managers: Vec<(&'static str, Supervisor)>,
    /// The device server; opened again if it could not be reached.
    devices: Option<system::Devices>,
    /// When objects may be asked for again.
    rested: u64,
    state: State,
    /// When the state is to be asked for again.
    stale: u64,
}

impl System {
    fn new() -> Result<Self, String> {
        let mut managers = Vec::new();
        for name in MANAGERS {
            let supervisor = system::supervisor(name).map_err(|error| match error {
                Error::Denied => "it needs the system port: start it with 'trust inspect'".into(),
                error => format!("the manager '{name}': {}", error.text()),
            })?;
            managers.push((name, supervisor));
        }
        Ok(System {
            managers,
            devices: None,
            rested: 0,
            state: State::default(),
            stale: 0,
        })
    }

    /// Asks for the drivers, and for what the device server knows of them.
    fn ask_drivers(&mut self, state: &mut State) -> Result<(), Error> {
        let drivers = system::drivers()?;
        let devices = match &mut self.devices {
            Some(devices) => devices,
            none => none.insert(system::Devices::open()?),
        };
        for (number, driver) in drivers.into_iter().enumerate() {
            // Only drivers hold something of the machine's; servers that use them have empty lists.
            let has = devices.holdings(number as u64)?;
            state.drivers.push(Driver::new(driver, has));
        }
        state.add_lines(devices.lines()?);
        let functions = devices.functions()?;
        state.functions = functions.into_iter().map(Function::new).collect();
        Ok(())
    }

    /// Finds out whom the threads wait for.
    fn ask_waits(state: &mut State) -> Result<(), Error> {
        let native = state.processes.iter().filter(|p| p.manager == "native");
        let waiting = native.filter(|process| process.may_wait());
        let pids: Vec<_> = waiting.map(|process| process.pid).collect();
        // Each search is bounded, but there may be many processes whose searches find nobody.
        let end = time::now().saturating_add(FRESH);
        for pid in pids {
            if time::now() > end {
                let why = "Of not all processes is known whom they wait for.";
                state.missing.push(why.to_string());
                break;
            }
            match system::waits(pid) {
                Ok(waits) => state.add_waits(pid, &waits),
                // The process has ended meanwhile.
                Err(Error::NotFound | Error::Ended) => {}
                Err(error) => return Err(error),
            }
        }
        state.add_linux_waits();
        Ok(())
    }

    fn ask(&mut self) -> State {
        let mut state = State {
            now_ns: time::now(),
            ..State::default()
        };
        let missing = |what: &str, error: Error| format!("{what}: {}.", error.text());
        match rt::memory::usage() {
            Ok(usage) => (state.memory_total, state.memory_free) = (usage.total, usage.free),
            Err(error) => state.missing.push(missing("memory", error)),
        }
        match fs::usage() {
            Ok((bytes, files)) => (state.file_bytes, state.files) = (bytes, files),
            Err(error) => state.missing.push(missing("files", error)),
        }
        for (name, supervisor) in &self.managers {
            match supervisor.list() {
                Ok(list) => {
                    let all = list.into_iter().map(|info| Process::new(name, info));
                    state.processes.extend(all);
                }
                Err(error) => state.missing.push(missing(name, error)),
            }
        }
        if let Err(error) = System::ask_waits(&mut state) {
            state.missing.push(missing("who waits for whom", error));
        }
        if let Err(error) = self.ask_drivers(&mut state) {
            self.devices = None;
            state.missing.push(missing("drivers", error));
        }
        state
    }

    fn process(&self, subject: &Subject) -> Result<rt::process::Process, String> {
        let mut managers = self.managers.iter();
        let found = managers.find(|(name, _)| *name == subject.manager);
        let (name, supervisor) = found.ok_or("there is no such manager")?;
        supervisor
            .process(subject.pid)
            .map_err(|error| format!("{name} {}: {}", subject.pid, error.text()))
    }
}

impl Machine for System {
    fn state(&mut self) -> &State {
        let now = time::now();
        if now >= self.stale {
            self.state = self.ask();
            // However long asking took, others get their turn before it is done again.
            self.stale = time::now().saturating_add(FRESH);
        }
        self.state.work = WORKS.lock().list().to_vec();
        &self.state
    }

    fn objects(&mut self, subject: &Subject, from: u64) -> Result<Objects, (Status, String)> {
        if subject.manager != "native" {
            let why = "Of Linux programs it is only told how many objects they have.";
            return Err((Status::NotFound, why.to_string()));
        }
        let now = time::now();
        if now < self.rested {
            let why = "Somebody has just asked for objects: ask again in a moment.";
            return Err((Status::Busy, why.to_string()));
        }
        self.rested = now.saturating_add(REST);
        let pid = subject.pid;
        // The answer contains the names of processes.
        let _ = self.state();
        let told = system::objects(pid, from)
            .and_then(|objects| Ok((objects, system::links(pid, from, MOST_LINKS)?)));
        // After a long search the others get as long a pause as after a short one.
        self.rested = time::now().saturating_add(REST);
        match told {
            Ok((objects, (links, all))) => {
                let name = |pid| {
                    let mut processes = self.state.processes.iter();
                    let is = |p: &&Process| p.manager == "native" && p.pid == pid;
                    let found = processes.find(is);
                    found.map_or_else(String::new, |process| process.name.clone())
                };
                Ok(Objects::new(pid, objects, (&links, all), name))
            }
            Err(error) => Err((Status::NotFound, format!("native {pid}: {}.", error.text()))),
        }
    }

    fn act(&mut self, act: &Act) -> Result<Done, String> {
        // The next state that is shown must contain the effect.
        self.stale = 0;
        let done = |subject: &Subject, result: Result<(), Error>, what: &str| {
            let name = format!("{} {}", subject.manager, subject.pid);
            match result {
                Ok(()) => Ok(Done::Now(format!("{name} {what}."))),
                Err(error) => Err(format!("{name}: {}.", error.text())),
            }
        };
        match act {
            Act::Stop(subject) => done(subject, self.process(subject)?.stop(), "is stopped"),
            Act::GoOn(subject) => done(subject, self.process(subject)?.resume(), "goes on"),
            Act::Kill(subject) => done(subject, self.process(subject)?.kill(), "has ended"),
            Act::Save(subject, path) => {
                let process = self.process(subject)?;
                let name = format!("{} {}", subject.manager, subject.pid);
                let (what, path) = (format!("Saving {name} in {path}"), path.clone());
                begin(what, move || {
                    rt::checkpoint::save(&[**process.port()], &path)?;
                    Ok(format!("{name} is saved in {path}."))
                })
            }
            Act::Restore(path) => {
                let (what, path) = (format!("Restoring {path}"), path.clone());
                begin(what, move || {
                    let made = rt::checkpoint::restore(&path)?;
                    let names = made.iter().map(|(manager, name, process)| {
                        format!("{manager} {} ({name})", process.pid())
                    });
                    let names = names.collect::<Vec<_>>().join(", ");
                    Ok(format!("Restored: {names}."))
                })
            }
        }
    }
}

/// What a connection is doing.
enum Stage {
    Reads(Vec<u8>),
    /// The answer, and how many of its bytes have been sent.
    Writes(Vec<u8>, usize),
    /// The answer has been sent. What the client still sends is read and dropped, since closing a connection with
    /// unread bytes resets it, and the client could lose the answer.
    Drains,
}

struct Connection {
    socket: Socket,
    stage: Stage,
    deadline: u64,
}

impl Connection {
    /// Does what is possible without waiting. Returns whether the connection is still needed.
    fn go_on(&mut self, net: &mut Network, token: &str, system: &mut System) -> bool {
        match &mut self.stage {
            Stage::Reads(bytes) => {
                let mut piece = vec![0; http::MOST + 1 - bytes.len().min(http::MOST)];
                match net.read(self.socket, &mut piece) {
                    Ok(length) if length > 0 => bytes.extend_from_slice(&piece[..length]),
                    _ => return false,
                }
                let said = match http::parse(bytes) {
                    Parsed::Partial => return true,
                    Parsed::Whole(request) => answer(&request, token, system),
                    Parsed::Bad(status) => http::sentence(status, "This is no request."),
                };
                self.stage = Stage::Writes(said, 0);
                true
            }
            Stage::Writes(bytes, done) => {
                match net.write(self.socket, &bytes[*done..]) {
                    Ok(taken) => *done += taken,
                    Err(_) => return false,
                }
                if *done >= bytes.len() {
                    self.stage = Stage::Drains;
                    return net.shut(self.socket).is_ok();
                }
                true
            }
            Stage::Drains => {
                let mut piece = vec![0; http::MOST];
                matches!(net.read(self.socket, &mut piece), Ok(length) if length > 0)
            }
        }
    }
}

/// Serves until the network ends.
fn serve(
    net: &mut Network,
    listening: Socket,
    token: &str,
    system: &mut System,
) -> Result<(), Error> {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let (mut readable, mut writable) = (1 << listening, 0);
        for connection in &connections {
            match connection.stage {
                Stage::Writes(..) => writable |= 1 << connection.socket,
                _ => readable |= 1 << connection.socket,
            }
        }
        let now = time::now();
        let first = connections.iter().map(|c| c.deadline.saturating_sub(now));
        let most = first.min().unwrap_or(rt::net::ALWAYS);
        let (readable, writable) = net.wait(readable, writable, most)?;
        if readable & 1 << listening != 0 {
            match net.try_accept(listening) {
                Ok((socket, _)) => {
                    if let Some(n) = makes_room(connections.iter().map(|c| c.deadline)) {
                        net.close(connections.swap_remove(n).socket)?;
                    }
                    connections.push(Connection {
                        socket,
                        stage: Stage::Reads(Vec::new()),
                        deadline: time::now().saturating_add(PATIENCE),
                    });
                }
                // The client that wanted to connect has gone.
                Err(Error::WouldBlock) => {}
                // Other programs use all sockets or memory. What this program has suffices for one connection at a
                // time.
                Err(Error::Limit | Error::NoMemory) => {
                    let all = connections.iter().enumerate();
                    match all.min_by_key(|(_, c)| c.deadline).map(|(n, _)| n) {
                        Some(n) => net.close(connections.swap_remove(n).socket)?,
                        None => time::sleep(PAUSE),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let now = time::now();
        let ready = readable | writable;
        for n in (0..connections.len()).rev() {
            let connection = &mut connections[n];
            let is_ready = ready & 1 << connection.socket != 0;
            let goes_on =
                connection.deadline > now && (!is_ready || connection.go_on(net, token, system));
            if !goes_on {
                net.close(connection.socket)?;
                connections.swap_remove(n);
            }
        }
    }
}

/// Opens the network, and waits for it if it is being started again.
fn network() -> Result<Network, Error> {
    let deadline = time::now().saturating_add(RETURN);
    loop {
        match Network::open() {
            Err(Error::Broken | Error::Reset) if time::now() < deadline => time::sleep(PAUSE),
            result => return result,
        }
    }
}

/// The token. It is no argument of the program, since everybody who sees a process sees its arguments.
fn token(file: Option<&str>) -> Result<String, String> {
    match file {
        Some(path) => {
            let why = |error: Error| format!("{path}: {}", error.text());
            let opened = fs::open(path, fs::Flags::default(), 0).map_err(why)?;
            let mut bytes = [0; 128];
            let read = fs::read(opened.ino, 0, &mut bytes);
            let _ = fs::close(opened.ino);
            let line = bytes[..read.map_err(why)?]
                .split(|byte| *byte == b'\n')
                .next();
            let token = core::str::from_utf8(line.unwrap_or_default()).unwrap_or_default();
            if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return Err(format!(
                    "{path}: a token has at least {SHORTEST} letters and digits"
                ));
            }
            Ok(token.to_string())
        }
        None => {
            let mut bytes = [0; 16];
            rt::random::fill(&mut bytes).map_err(|error| error.text().to_string())?;
            Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
        }
    }
}

fn run(port: u16, file: Option<&str>) -> Result<(), String> {
    let token = token(file)?;
    let mut system = System::new()?;
    let mut told = false;
    loop {
        let mut net = network().map_err(|error| match error {
            Error::NotFound => "there is no network: run --net user".to_string(),
            error => error.text().to_string(),
        })?;
        let listens = net.listen(port, BACKLOG);
        let (listening, _) = listens.map_err(|error| net.why(error))?;
        if !told {
            let which = file.map_or_else(|| token.clone(), |file| format!("in {file}"));
            rt::println!("inspect: the page is at port {port}; the token is {which}");
            told = true;
        }
        let Err(error) = serve(&mut net, listening, &token, &mut system) else {
            return Ok(());
        };
        if !matches!(error, Error::Reset | Error::Broken) {
            return Err(net.why(error));
        }
        // The network has ended and will be started again; clients will connect again.
        time::sleep(PAUSE);
    }
}

fn main() -> u8 {
    let args = &rt::start().args;
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    let (port, file) = match words[..] {
        [port] => (port, None),
        [port, file] => (port, Some(file)),
        _ => ("", None),
    };
    let Some(port) = port.parse().ok().filter(|port| *port != 0) else {
        rt::eprintln!("{USAGE}");
        return 2;
    };
    match run(port, file) {
        Ok(()) => 0,
        Err(why) => {
            rt::eprintln!("inspect: {why}");
            1
        }
    }
}
