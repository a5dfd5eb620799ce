//! Programs: finding, starting, and waiting for them.

use alloc::collections::btree_map::Entry;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fermata_shell::jobs::{Manager, State};
use fermata_shell::parse::{Command, Redirection};
use fermata_shell::text::{absolute_path, executable, join, Executable, HEAD};
use fermata_shell::turn::Ended;
use proto::Error;
use rt::console::{Event, Job, Mode, LINUX};
use rt::fs::{self, mode, File, Flags};
use rt::obj::{Ref, RefAt};
use rt::process::{Client, Process};
use rt::sys;
use services::process::{Info, Pid, Start, Status, Stdio};

use crate::{say, Failure, Shell, INTERRUPTED, NOBODY, NOT_EXECUTABLE, SUSPENDED, UNKNOWN_COMMAND};

/// The directories of programs that are called by name alone.
const DIRECTORIES: [&str; 3] = ["/bin", "/sbin", "/usr/local/bin"];
/// The program behind [`TOOLS`].
const TOOLS_PATH: &str = "/sbin/tools";
/// Small programs of the shell's own, and the letters of their options. They take precedence over those in
/// [`DIRECTORIES`], which run if other options are given.
const TOOLS: [(&str, &str); 15] = [
    ("cat", "u"),
    ("cmp", ""),
    ("cp", ""),
    ("date", ""),
    ("echo", "n"),
    ("false", ""),
    ("ln", "s"),
    ("ls", "al1d"),
    ("mkdir", "p"),
    ("mv", ""),
    ("rm", "rRf"),
    ("rmdir", ""),
    ("sleep", ""),
    ("touch", ""),
    ("true", ""),
];

/// Whether a command calls one of the shell's own small programs.
fn is_tool(words: &[String]) -> bool {
    let Some((name, arguments)) = words.split_first() else {
        return false;
    };
    let Some((_, known)) = TOOLS.iter().find(|(tool, _)| tool == name) else {
        return false;
    };
    let mut options = arguments.iter().take_while(|word| *word != "--");
    options.all(|word| match word.strip_prefix('-') {
        Some(letters) => letters.chars().all(|letter| known.contains(letter)),
        // With a `+` the date has a format.
        None => name != "date" || !word.starts_with('+'),
    })
}

/// The environment of programs.
const ENVIRONMENT: [&str; 3] = [
    "PATH=/usr/local/bin:/usr/bin:/usr/sbin",
    "HOME=/",
    "TERM=vt100",
];
/// How often a process is asked what it has said, while memory is short, and how long the shell waits in between, in
/// nanoseconds.
const TRIES: u32 = 20;
const PAUSE: u64 = 50_000_000;
/// How long to wait until a server is registered, in nanoseconds: the machine may just have started.
const PATIENCE: u64 = 5_000_000_000;

/// The managers of processes, and the processes that the shell holds.
pub(crate) struct Managers {
    clients: BTreeMap<Manager, Client>,
    /// The processes that the shell has started or restored, with their control ports, until the shell has noted that
    /// they have ended.
    processes: BTreeMap<(Manager, Pid), Process>,
    /// Processes that have ended and whose trees still run: they keep their numbers until the trees have ended, too.
    ended: BTreeMap<(Manager, Pid), Process>,
    /// The shell's thread.
    thread: Ref,
}

impl Managers {
    pub(crate) fn new(thread: Ref) -> Self {
        Managers {
            clients: BTreeMap::new(),
            processes: BTreeMap::new(),
            ended: BTreeMap::new(),
            thread,
        }
    }

    /// The manager, which is looked up at its first use.
    fn get(&mut self, manager: Manager) -> Result<&Client, Error> {
        match self.clients.entry(manager) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let deadline = rt::time::now().saturating_add(PATIENCE);
                let door = rt::names::wait_for(manager.name(), deadline)?;
                Ok(place.insert(Client::at(door)?))
            }
        }
    }

    /// All processes of a manager.
    pub(crate) fn list(&mut self, manager: Manager) -> Result<Vec<Info>, Error> {
        rt::system::supervisor(manager.name())?.list()
    }

    /// Adds a process that the shell holds.
    pub(crate) fn hold(&mut self, manager: Manager, process: Process) -> Pid {
        let pid = process.pid();
        self.ended.retain(|_, process| process.status().is_ok());
        self.processes.insert((manager, pid), process);
        pid
    }

    /// A reference by which others interrupt the shell's thread.
    pub(crate) fn waker(&self) -> Result<Ref, Error> {
        self.thread.copy().map_err(rt::error_of)
    }

    /// Interrupts the shell's thread when a process no longer runs, from a thread that waits for that.
    fn watch(&self, manager: Manager, pid: Pid) -> Result<(), Error> {
        let mut session = self.process(manager, pid)?.open()?;
        let shell = self.waker()?;
        let wait = move || {
            let _ = session.changed(Status::Running);
            let _ = shell.interrupt();
        };
        rt::thread::spawn(wait).map(|_| ()).map_err(rt::error_of)
    }

    /// A process that the shell holds.
    pub(crate) fn process(&self, manager: Manager, pid: Pid) -> Result<&Process, Error> {
        self.processes.get(&(manager, pid)).ok_or(Error::Ended)
    }

    /// The state of a process; reaps one that has ended. `None` if the manager does not answer.
    pub(crate) fn state(&mut self, manager: Manager, pid: Pid) -> Option<State> {
        let status = self.process(manager, pid).and_then(Process::status);
        let state = match status {
            Ok(status) => State::from_status(status),
            // Only the shell reaps its processes; an unknown one has ended with its manager.
            Err(Error::NotFound | Error::Ended) => State::Ended(137),
            Err(_) => return None,
        };
        if let State::Ended(_) = state {
            self.reap(manager, pid);
        }
        Some(state)
    }

    /// How a process has ended by itself, and what it has said. Reaps it.
    fn end(&mut self, manager: Manager, pid: Pid) -> Option<End> {
        let process = self.process(manager, pid).ok()?;
        let Ok(Status::Exited(status)) = process.status() else {
            return None;
        };
        let said = match manager {
            Manager::Native => None,
            Manager::Linux => {
                let said = (0..TRIES).find_map(|_| {
                    let said = process.said();
                    if said.is_err() {
                        rt::time::sleep(PAUSE);
                    }
                    said.ok()
                });
                if said.is_none() {
                    say("shell: it is not known whether the command has ended the script\n");
                }
                said
            }
        };
        self.reap(manager, pid);
        let ended = Ended {
            status,
            by_itself: true,
        };
        Some(End { ended, said })
    }

    /// Ends a process.
    pub(crate) fn kill(&mut self, manager: Manager, pid: Pid) -> Result<(), Error> {
        self.process(manager, pid)?.kill()
    }

    /// Reaps a process that has ended, and returns its status.
    pub(crate) fn reap(&mut self, manager: Manager, pid: Pid) -> Option<State> {
        let process = self.processes.remove(&(manager, pid))?;
        let state = process.reap().ok().map(State::from_status);
        // The control port lives as long as the processes that it has started, and names only those, while its number
        // can be reused.
        if process.status().is_ok() {
            self.ended.insert((manager, pid), process);
        }
        state
    }

    /// Ends the processes that an ended process had started. Returns whether there were any.
    pub(crate) fn kill_left(&mut self, manager: Manager, pid: Pid) -> bool {
        let process = self.ended.remove(&(manager, pid));
        process.is_some_and(|process| process.kill().is_ok())
    }
}

/// How a program that was waited for has ended.
pub(crate) struct End {
    pub(crate) ended: Ended,
    /// What it has said; `None` if that is not known.
    pub(crate) said: Option<Vec<u8>>,
}

impl End {
    /// It was ended or stopped by somebody else.
    fn by_others(status: u8) -> Self {
        let ended = Ended {
            status,
            by_itself: false,
        };
        End { ended, said: None }
    }
}

/// How waiting for a process ended.
pub(crate) enum Wait {
    /// It ended so.
    Ended(End),
    /// It was stopped.
    Stopped,
    /// The user pressed Ctrl-C.
    Interrupt,
    /// The user pressed Ctrl-Z.
    Suspend,
}

/// A request to start a program.
pub(crate) struct Request<'a> {
    /// The name by which the user called it.
    pub(crate) name: &'a str,
    pub(crate) path: &'a str,
    pub(crate) manager: Manager,
    pub(crate) args: Vec<String>,
    /// What its environment has beside the usual, or instead of it.
    pub(crate) env: Vec<String>,
    pub(crate) stdio: Vec<Stdio>,
    /// The text that the user has typed.
    pub(crate) source: &'a str,
    pub(crate) background: bool,
    /// Whether it gets the system port.
    pub(crate) trusted: bool,
}

/// Where a program is.
struct Program {
    path: String,
    manager: Manager,
}

impl Shell {
    /// Finds the program that a command calls.
    fn find_program(&self, words: &[String]) -> Result<Program, Failure> {
        let name = words[0].as_str();
        let other = || {
            DIRECTORIES
                .iter()
                .any(|directory| fs::stat(&join(directory, name), true).is_ok())
        };
        let is_named = TOOLS.iter().any(|(tool, _)| *tool == name);
        if is_tool(words) || is_named && !other() {
            return Ok(Program {
                path: TOOLS_PATH.into(),
                manager: Manager::Native,
            });
        }
        let by_path = name.contains('/');
        let is_there = |path: &String| fs::stat(path, true).is_ok();
        let path = if by_path {
            absolute_path(&self.cwd, name)
        } else {
            let mut paths = DIRECTORIES.iter().map(|directory| join(directory, name));
            paths
                .find(is_there)
                .unwrap_or_else(|| join(DIRECTORIES[0], name))
        };
        let refused = |text: &str| {
            Err(Failure {
                status: NOT_EXECUTABLE,
                sentence: format!("{name}: {text}"),
            })
        };
        let attr = match fs::stat(&path, true) {
            Ok(attr) => attr,
            Err(Error::NotFound) => {
                let text = if by_path {
                    Error::NotFound.text()
                } else {
                    "not found"
                };
                return Err(Failure {
                    status: UNKNOWN_COMMAND,
                    sentence: format!("{name}: {text}"),
                });
            }
            Err(error) => return refused(error.text()),
        };
        if attr.mode & mode::TYPE == mode::DIRECTORY {
            return refused(Error::IsDirectory.text());
        }
        if attr.mode & 0o111 == 0 || attr.mode & mode::TYPE != mode::FILE {
            return refused(Error::Denied.text());
        }
        let mut head = vec![0; HEAD as usize];
        let length = match File::open(&path, Flags::default(), 0)
            .and_then(|file| file.read_full(0, &mut head))
        {
            Ok(length) => length,
            Err(error) => return refused(error.text()),
        };
        match executable(&head[..length]) {
            Executable::Native => Ok(Program {
                path,
                manager: Manager::Native,
            }),
            Executable::Linux => Ok(Program {
                path,
                manager: Manager::Linux,
            }),
            Executable::Unknown => refused("not a program for this machine"),
        }
    }

    /// Opens or makes the file of a redirection, so that errors are reported before anything runs; returns the target
    /// of the stream.
    pub(crate) fn redirect(&self, redirection: &Redirection) -> Result<Stdio, Failure> {
        let path = absolute_path(&self.cwd, &redirection.path);
        let open = || -> Result<fs::Opened, Error> {
            let output = redirection.stream != 0;
            let flags = Flags {
                create: output,
                truncate: output && !redirection.append,
                ..Flags::default()
            };
            let attr = *File::open(&path, flags, 0o644)?.opened();
            if attr.mode & mode::TYPE == mode::DIRECTORY {
                return Err(Error::IsDirectory);
            }
            Ok(attr)
        };
        match open() {
            Ok(attr) if attr.ino == rt::fs::NULL_INO => Ok(Stdio::Null),
            Ok(attr) if matches!(attr.ino, rt::fs::CONSOLE_INO | rt::fs::TTY_INO) => {
                Ok(Stdio::Console)
            }
            Ok(_) => Ok(Stdio::File {
                path,
                append: redirection.append,
            }),
            Err(error) => Err(format!("{}: {}", redirection.path, error.text()).into()),
        }
    }

    /// The standard streams of a command.
    fn streams(&self, command: &Command) -> Result<Vec<Stdio>, Failure> {
        let mut streams = vec![Stdio::Console; 3];
        for redirection in &command.redirections {
            streams[redirection.stream] = self.redirect(redirection)?;
        }
        Ok(streams)
    }

    /// Starts a program; waits for it unless it runs in the background. A trusted one gets the system port.
    pub(crate) fn program(&mut self, command: &Command, trusted: bool) -> Result<u8, Failure> {
        let name = command.words[0].as_str();
        let program = self.find_program(&command.words)?;
        // As for a command that a POSIX shell runs: a trusted one gets nothing that others have set.
        let env = match program.manager {
            Manager::Linux if !trusted => self.exported(),
            _ => Vec::new(),
        };
        let end = self.start(&Request {
            name,
            path: &program.path,
            manager: program.manager,
            args: command.words.clone(),
            env,
            stdio: self.streams(command)?,
            source: &command.source,
            background: command.background,
            trusted,
        })?;
        Ok(end.map_or(0, |end| end.ended.status))
    }

    /// Starts a program; waits for it unless it runs in the background, and returns how it has ended.
    pub(crate) fn start(&mut self, request: &Request) -> Result<Option<End>, Failure> {
        let Request { name, manager, .. } = *request;
        let is_set = |usual: &&&str| {
            let name = usual.split('=').next();
            request.env.iter().any(|set| set.split('=').next() == name)
        };
        let usual = ENVIRONMENT.iter().filter(|usual| !is_set(usual));
        let start = Start {
            args: request.args.clone(),
            env: usual
                .map(ToString::to_string)
                .chain(request.env.clone())
                .collect(),
            stdio: request.stdio.clone(),
            cwd: self.cwd.clone(),
        };
        let system = rt::system::port().ok().filter(|_| request.trusted);
        let passed: Vec<&RefAt> = system.iter().collect();
        let spawned = match self.managers.get(manager) {
            Ok(client) => client
                .spawn(request.path, &start, &passed)
                .map(|process| self.managers.hold(manager, process)),
            Err(_) => {
                let sentence = format!("{name}: the server '{}' is not there", manager.name());
                return Err(Failure {
                    status: NOT_EXECUTABLE,
                    sentence,
                });
            }
        };
        let pid = spawned.map_err(|error| {
            // The personality has printed the reason already.
            let told = manager == Manager::Linux && error == Error::BadFormat;
            let sentence = if told {
                String::new()
            } else {
                format!("{name}: {}", error.text())
            };
            Failure::new(NOT_EXECUTABLE, sentence)
        })?;
        if request.background {
            self.add_job(manager, pid, request.source, State::Running);
            return Ok(None);
        }
        Ok(Some(self.foreground(manager, pid, request.source, None)))
    }

    /// Waits for a process in the foreground, which may be the job `number` already. Returns how it has ended.
    pub(crate) fn foreground(
        &mut self,
        manager: Manager,
        pid: Pid,
        source: &str,
        number: Option<u32>,
    ) -> End {
        match self.wait_for(manager, pid) {
            Wait::Ended(end) => {
                self.forget(number, end.ended.status);
                end
            }
            Wait::Interrupt => {
                let _ = self.managers.kill(manager, pid);
                let _ = self.managers.reap(manager, pid);
                self.forget(number, INTERRUPTED);
                End::by_others(INTERRUPTED)
            }
            wait => {
                if let (Wait::Suspend, Ok(process)) = (wait, self.managers.process(manager, pid)) {
                    let _ = process.stop();
                }
                let number = match number {
                    Some(number) => number,
                    None => self
                        .jobs
                        .add(manager, pid, source.to_string(), State::Stopped),
                };
                self.jobs.set_state(number, State::Stopped);
                self.jobs.touch(number);
                say(&format!("[{number}] stopped  {source}\n"));
                End::by_others(SUSPENDED)
            }
        }
    }

    /// Notes that the job has ended, and that the user knows.
    fn forget(&mut self, number: Option<u32>, status: u8) {
        if let Some(number) = number {
            self.jobs.set_state(number, State::Ended(status));
            self.jobs.know(number);
        }
    }

    /// Waits until a process ends or is stopped, or the user types Ctrl-C or Ctrl-Z. Meanwhile the process is in the
    /// foreground of the console.
    pub(crate) fn wait_for(&mut self, manager: Manager, pid: Pid) -> Wait {
        let job = match manager {
            Manager::Native => Job::from(pid),
            Manager::Linux => LINUX + Job::from(pid),
        };
        let _ = self.console.set_foreground(job);
        let wait = self.wait_until(manager, pid);
        // The program may have changed the mode of the console.
        let _ = self.console.set_mode(Mode::Cooked);
        let _ = self.console.set_foreground(NOBODY);
        wait
    }

    /// Tells the manager of a process which key was typed. Returns whether the process gets a signal.
    fn tell(&self, manager: Manager, pid: Pid, suspend: bool) -> bool {
        let process = self.managers.process(manager, pid);
        process
            .and_then(|process| process.typed(suspend))
            .unwrap_or(false)
    }

    fn wait_until(&mut self, manager: Manager, pid: Pid) -> Wait {
        let watched = self.managers.watch(manager, pid).is_ok();
        loop {
            if let Some(end) = self.managers.end(manager, pid) {
                return Wait::Ended(end);
            }
            match self.managers.state(manager, pid) {
                Some(State::Ended(status)) => return Wait::Ended(End::by_others(status)),
                Some(State::Stopped) => return Wait::Stopped,
                Some(State::Running) => {}
                // The manager is gone, and its processes with it.
                None => return Wait::Ended(End::by_others(137)),
            }
            match self.console.take_event() {
                // There may be another event, without a further interrupt. The process may have ended by this one.
                Ok(Event::Interrupt) if self.tell(manager, pid, false) => continue,
                Ok(Event::Interrupt) => return Wait::Interrupt,
                Ok(Event::Suspend) if self.tell(manager, pid, true) => continue,
                Ok(Event::Suspend) => return Wait::Suspend,
                _ => {}
            }
            match watched {
                true => {
                    sys::thread_wait_interrupt();
                }
                // There is no memory for a thread: the user has to wait.
                false => {
                    let process = self.managers.process(manager, pid);
                    let _ = process.and_then(|process| process.changed(Status::Running));
                }
            }
        }
    }
}
