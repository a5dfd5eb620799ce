//! Starts native programs: first a process without a program, which counts from then on, and then the program, whose
//! file may have to be waited for.
use super::{Entry, Live, Manager, Own, Processes, MAX_NAME};
use crate::reader::Reading;
use abi::state::SpaceState;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use interface::server::Event;
use process::image::Loading;
use process::native::{self, furnish, References};
use process::Process;
use proto::Error;
use rt::fs;
use rt::memory::Limits;
use rt::obj::{Ref, RefAt};
use services::process::{Pid, Start, Status};

/// How to start a program.
pub(crate) struct Launch<'a> {
    pub(crate) start: &'a Start,
    pub(crate) priority: u64,
    /// The highest priority that its threads can be given, unless `priority` is higher.
    pub(crate) ceiling: u64,
    /// Kernel memory in bytes; 0 for that of every program.
    pub(crate) quota: u64,
    pub(crate) server: bool,
    /// The limits of its memory on a machine with this many bytes.
    pub(crate) limits: fn(u64) -> Limits,
    pub(crate) essential: bool,
    /// See [`Entry::driver`].
    pub(crate) driver: Option<usize>,
    /// The reserved name that it may register.
    pub(crate) service: Option<&'static str>,
    /// Whether it runs in the kernel's rings, whatever its service.
    pub(crate) collocated: bool,
    /// The process that starts it; 0 for init.
    pub(crate) owner: Pid,
    /// The job for which it counts if its owner has none, as long as that job has processes.
    pub(crate) job: Option<Pid>,
    pub(crate) refs: &'a [&'a RefAt],
}

/// Why a program cannot be started: the error, and a fragment of a sentence about it.
pub(super) type Why = (Error, &'static str);

/// An error that needs no further explanation.
pub(super) fn plain(error: Error) -> Why {
    (error, error.text())
}

/// A process whose program is being loaded.
pub(super) struct New {
    pub(super) pid: Pid,
    process: Process,
    own: Own,
    /// The process's entry, for when it runs.
    entry: Entry,
    priority: u64,
}

impl New {
    /// The job for which the process counts.
    pub(super) fn job(&self) -> Pid {
        self.entry.job
    }

    /// Takes the next bytes of the program's file.
    pub(super) fn take(&self, loading: &mut Loading, bytes: &[u8]) -> Result<(), Why> {
        loading.take(bytes, |address, bytes| self.process.write(address, bytes))
    }

    /// Takes the whole program's file.
    fn load(&self, file: &[u8]) -> Result<Loading, Why> {
        let mut loading = native::loading(file.len() as u64);
        while let Some((offset, length)) = loading.wants() {
            let rest = usize::try_from(offset).ok().and_then(|at| file.get(at..));
            let rest = rest.unwrap_or_default();
            self.take(&mut loading, &rest[..length.min(rest.len())])?;
        }
        Ok(loading)
    }

    /// The event that happens when the process may not be wanted any more.
    pub(super) fn event(&self) -> Arc<Event> {
        Arc::clone(&self.entry.event)
    }
}

/// What the manager knows of a process whose program is being loaded.
pub(super) struct Coming {
    pub(super) owner: Pid,
    pub(super) job: Pid,
    pub(super) event: Arc<Event>,
    /// Whether its owner has ended.
    pub(super) unwanted: bool,
}

impl Manager {
    /// Starts a program whose file is in memory. Returns the number of its process.
    pub(crate) fn launch(&mut self, launch: &Launch<'_>, file: &[u8]) -> Result<Pid, Why> {
        let new = self.begin(launch)?;
        match new.load(file) {
            Ok(loading) => Ok(self.finish(new, loading)?.0),
            Err(why) => {
                self.give_up(new);
                Err(why)
            }
        }
    }

    /// Makes a process with everything but its program, to be given to [`Manager::finish`] or [`Manager::give_up`]. It
    /// counts as a process from here on, and nobody can name it.
    pub(super) fn begin(&mut self, launch: &Launch<'_>) -> Result<New, Why> {
        let (pid, job) = self.new_pid(launch.owner, launch.job).map_err(plain)?;
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
        let made = self.process_of(job, launch.limits, &space, &own.reference);
        let mut process = made.map_err(plain)?;
        let collocated = launch.collocated || self.collocated.has(launch.service);
        if collocated {
            let places = self.collocated.places(launch.service);
            if let Err(error) = process.collocate(&self.collocated.authority, places) {
                process.destroy();
                return Err(self.nothing_of(job, (error, "there is no place for it in the kernel")));
            }
        }
        let references = References {
            init: &own.reference,
            gives_back: launch.server,
            passed: launch.refs,
        };
        if let Err(why) = furnish(&mut process, launch.start, launch.priority, &references) {
            process.destroy();
            return Err(self.nothing_of(job, why));
        }
        // A server is named by its first argument, a program by its command line.
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
            end: Arc::default(),
            service: launch.service,
            server: launch.server,
            essential: launch.essential,
            collocated,
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

    /// Runs a new process whose program is loaded. Returns its number, and a reference to its control port.
    pub(super) fn finish(&mut self, new: New, loading: Loading) -> Result<(Pid, Ref), Why> {
        let pid = new.pid;
        let wanted = self.is_wanted(pid).map_err(plain);
        let plan = loading.done().ok_or_else(|| plain(Error::BadFormat));
        let mut new = new;
        let control = new.entry.control.reference.copy();
        // The program must not run if its control port cannot be returned.
        let started = wanted.and(plan).and_then(|plan| {
            let control = control.map_err(|code| plain(rt::error_of(code)))?;
            native::start(&mut new.process, &plan, new.priority).map_err(plain)?;
            Ok(control)
        });
        let control = match started {
            Ok(control) => control,
            Err(why) => {
                self.give_up(new);
                return Err(why);
            }
        };
        let New {
            process,
            own,
            mut entry,
            ..
        } = new;
        entry.live = Some(Live {
            process,
            stopped: Vec::new(),
            frozen: None,
            part: Vec::new(),
            debugged: None,
            own,
        });
        self.coming.remove(&pid);
        self.entries.insert(pid, entry);
        Ok((pid, control))
    }

    /// [`Error::Ended`] if a new process is not wanted any more, because its owner has ended.
    pub(super) fn is_wanted(&self, pid: Pid) -> Result<(), Error> {
        match self.coming.get(&pid) {
            Some(coming) if !coming.unwanted => Ok(()),
            _ => Err(Error::Ended),
        }
    }

    /// Destroys a new process, which has never run.
    pub(super) fn give_up(&mut self, new: New) {
        self.coming.remove(&new.pid);
        new.process.destroy();
        self.jobs.settle(new.entry.job);
    }

    /// Shrinks the quota of a job for which a process could not be made, and returns `why`.
    pub(super) fn nothing_of<E>(&self, job: Pid, why: E) -> E {
        self.jobs.settle(job);
        why
    }
}

/// A new process whose file is waited for. Dropping this before the process runs destroys the process.
pub(super) struct Starting {
    processes: &'static Processes,
    new: Option<New>,
}

impl Starting {
    pub(super) const fn new(processes: &'static Processes, new: New) -> Self {
        Starting {
            processes,
            new: Some(new),
        }
    }

    fn process(&self) -> Result<&New, Why> {
        self.new.as_ref().ok_or_else(|| plain(Error::Ended))
    }

    pub(super) fn finish(&mut self, loading: Loading) -> Result<(Pid, Ref), Why> {
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

/// Loads a file of the boot archive into a new process.
pub(super) fn load_file(file: &[u8], wanted: &Starting) -> Result<Loading, Why> {
    wanted.process()?.load(file)
}

/// Bytes of a file that are loaded between two turns of programs: about 0.7 M instructions. Most programs are not
/// larger.
const TURN: usize = 256 * 1024;

/// Loads the executable at this path into a new process, as long as the process is wanted. While a large file is
/// loaded, programs get turns: init has a higher priority than the shell and all programs, and the files of the 31
/// programs that can be loading at once may be gigabytes.
pub(super) async fn load(path: &str, wanted: &mut Starting) -> Result<Loading, Why> {
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
    let mut since = 0;
    while let Some((offset, length)) = loading.wants() {
        if since >= TURN {
            reading.turn(&is_wanted).await.map_err(plain)?;
            since = 0;
        }
        since += length;
        let bytes = reading
            .read(offset, length, &is_wanted)
            .await
            .map_err(plain)?;
        wanted.process()?.take(&mut loading, &bytes)?;
    }
    Ok(loading)
}
