//! Native programs that Linux programs have started ([`personality::native`]).
//!
//! The manager of native programs answers when a program's file has been read, and when the program has ended. For each
//! program a thread of this server waits for that, stores the result, and rings the bell that makes the server look.
//! The program gets what the tree of its caller was given, and nothing else.

use abi::message::ExceptionMessage;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use personality::emulate::{self, Wake};
use personality::errno::{Errno, EAGAIN, EPERM};
use personality::native::Native;
use personality::system::Tid;
use proto::Error;
use rt::obj::{Ref, RefAt};
use rt::process::{Client, Process};
use rt::sync::Mutex;
use rt::thread;
use services::process::{Pid, Status};

use super::{Starter, Table};

/// Most native programs of all Linux programs, and of one tree.
const MOST: usize = 64;
const MOST_OF_TREE: usize = 16;
/// Exit status of the stand-in of a program that could not be started.
const NOT_STARTED: u8 = 126;

/// Makes the server call [`take_ended`].
static BELL: Mutex<Option<Ref>> = Mutex::new(None);
/// Results of programs: stand-in, number of the program, status.
static ENDED: Mutex<Vec<(Pid, u64, Status)>> = Mutex::new(Vec::new());
static NEWS: AtomicBool = AtomicBool::new(false);
/// How many threads wait for programs.
static THREADS: AtomicUsize = AtomicUsize::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

/// Sets the reference by which waiting threads wake the server.
pub(crate) fn set_bell(bell: Ref) {
    *BELL.lock() = Some(bell);
}

/// Whether no result waits to be taken.
pub(super) fn is_settled() -> bool {
    !NEWS.load(Ordering::Acquire)
}

/// Takes the results of programs that have ended.
pub(super) fn take_ended() -> Vec<(Pid, u64, Status)> {
    match NEWS.swap(false, Ordering::AcqRel) {
        true => core::mem::take(&mut *ENDED.lock()),
        false => Vec::new(),
    }
}

/// What the server and the waiting thread share about a program.
#[derive(Default)]
struct State {
    process: Option<Process>,
    /// Whether the stand-in has ended.
    unwanted: bool,
    /// Whether the stand-in is stopped.
    stopped: bool,
}

/// A native program that runs or is being started. Dropping this ends it.
pub(super) struct Running {
    /// Distinguishes programs for which one process stands at different times.
    number: u64,
    state: Arc<Mutex<State>>,
}

impl Running {
    /// The name of the program for people.
    pub(super) fn number(&self) -> String {
        match &self.state.lock().process {
            Some(process) => alloc::format!("native:{}", process.pid()),
            None => "that is being started".to_string(),
        }
    }

    /// Stops the program, or continues it.
    pub(super) fn hold_still(&mut self, still: bool) {
        let mut state = self.state.lock();
        if state.stopped != still {
            state.stopped = still;
            if let Some(process) = &state.process {
                // The program may have ended meanwhile.
                let _ = if still {
                    process.stop()
                } else {
                    process.resume()
                };
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.unwanted = true;
        if let Some(process) = &state.process {
            let _ = process.kill();
        }
    }
}

/// Counts a waiting thread until it is dropped.
struct Counted;

impl Counted {
    fn new() -> Option<Self> {
        let count = THREADS.fetch_add(1, Ordering::AcqRel);
        let counted = Counted;
        (count < MOST).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Starts the program and waits for its end. Runs on a thread of its own.
fn run(native: &Native, starter: &Starter, state: &Mutex<State>) -> Result<Status, Error> {
    let owner = starter.owner.as_ref().ok_or(Error::Denied)?;
    let passed: Vec<RefAt> = starter.passed.iter().map(|passed| **passed).collect();
    let passed: Vec<&RefAt> = passed.iter().collect();
    let process = {
        let mut client = starter.natives.lock();
        let client = match &mut *client {
            Some(client) => client,
            none => none.insert(Client::of_one_job("native")?),
        };
        client.spawn_for(owner, &native.path, &native.start, &passed)?
    };
    let mut session = match process.open() {
        Ok(session) => session,
        Err(error) => {
            // Without a session nobody would learn of its end.
            let _ = process.kill();
            let _ = process.reap();
            return Err(error);
        }
    };
    {
        let mut state = state.lock();
        if state.unwanted {
            let _ = process.kill();
        } else if state.stopped {
            let _ = process.stop();
        }
        state.process = Some(process);
    }
    let status = session.ended();
    let process = state.lock().process.take();
    if let Some(process) = process {
        let _ = process.reap();
    }
    status
}

impl Table {
    /// How many native programs a tree runs.
    fn natives_of(&self, root: Pid) -> usize {
        let is_of = |tid: &&Tid| self.system.find(**tid).is_some_and(|p| p.root == root);
        let natives = self
            .tasks
            .iter()
            .filter(|(_, living)| living.native.is_some());
        natives.map(|(tid, _)| tid).filter(is_of).count()
    }

    /// Copies of the references that the tree of a process was given.
    fn given(&self, pid: Pid) -> Result<Starter, Errno> {
        let root = self.system.find(pid).map_or(pid, |process| process.root);
        let starter = &self.holds.get(&root).ok_or(EPERM)?.starter;
        let owner = starter.owner.as_ref().ok_or(EPERM)?;
        let copy = |reference: &Ref| reference.copy().map_err(|_| EAGAIN);
        Ok(Starter {
            owner: Some(copy(owner)?),
            natives: Arc::clone(&starter.natives),
            passed: starter.passed.iter().map(copy).collect::<Result<_, _>>()?,
        })
    }

    /// Turns a process into the stand-in of a native program, and starts the program.
    pub(super) fn stand_in(&mut self, tid: Tid, message: &ExceptionMessage, native: Native) {
        let Some(pid) = self.tasks.get(&tid).map(|living| living.task.pid) else {
            return;
        };
        let root = self.system.find(pid).map_or(pid, |process| process.root);
        let begun = match self.natives_of(root) < MOST_OF_TREE {
            true => self.given(pid),
            false => Err(EAGAIN),
        };
        let (starter, counted) = match (begun, Counted::new()) {
            (Ok(starter), Some(counted)) => (starter, counted),
            (begun, _) => {
                let errno = begun.err().unwrap_or(EAGAIN);
                if let Some(living) = self.tasks.get_mut(&tid) {
                    let registers = emulate::failed(&message.registers, errno);
                    let _ = living.set_registers(&registers, None);
                }
                return;
            }
        };
        self.end_others(tid);
        // `end_others` has made the task the first of its process, so its identity is `pid`.
        let lost = match self.split(pid) {
            Some((living, system, world)) => {
                let (task, mut view) = living.parts(system, world);
                emulate::stand_in(task, system, &mut view, &native).is_err()
            }
            None => return,
        };
        self.debug_moved(pid);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let wait = move || {
            let status = run(&native, &starter, &shared).unwrap_or_else(|error| {
                rt::log!("{}: {}", native.path, error.text());
                Status::Exited(NOT_STARTED)
            });
            drop(counted);
            ENDED.lock().push((pid, number, status));
            if !NEWS.swap(true, Ordering::AcqRel) {
                if let Some(bell) = &*BELL.lock() {
                    let _ = bell.poke();
                }
            }
        };
        if lost || thread::spawn(wait).is_err() {
            self.end_by(pid, personality::signal::sig::KILL as u8);
            return;
        }
        if let Some(living) = self.tasks.get_mut(&pid) {
            living.native = Some(Running { number, state });
        }
        self.park(pid, message, Wake::firm());
    }

    /// Ends the stand-in of a program that has ended, with the program's status.
    pub(super) fn program_ended(&mut self, pid: Pid, number: u64, status: Status) {
        let stands = |living: &&mut super::Living| {
            let native = living.native.as_ref();
            native.is_some_and(|native| native.number == number)
        };
        let Some(living) = self.tasks.get_mut(&pid).map(|b| &mut **b).filter(stands) else {
            return;
        };
        living.native = None;
        if let Some((living, system, world)) = self.split(pid) {
            let (task, mut view) = living.parts(system, world);
            emulate::end(task, system, &mut view, status);
        }
        self.finish(pid, status);
    }

    /// Handles the signals of a stand-in.
    pub(super) fn stand_in_signalled(&mut self, tid: Tid) {
        let Some((living, system, _)) = self.split(tid) else {
            return;
        };
        let pid = living.task.pid;
        if let Some(Status::Killed(signal)) = emulate::stand_in_signalled(&mut living.task, system)
        {
            self.end_by(pid, signal);
        }
    }
}
