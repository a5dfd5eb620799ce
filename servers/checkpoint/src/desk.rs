//! Requests are done by threads of their own, at the priority of their client.
//!
//! The server's thread takes requests and gives answers. A request that may begin ([`Turns`]) gets a thread with the
//! priority of programs, or for job 0 that of the shell; the future of the request waits for the thread. The threads
//! hold locks that they share with the server above its priority (`rt::thread::spawn_below`), so the server waits for
//! no program. If the client ends meanwhile the future is dropped, and the thread ends at its next check ([`Wanted`]).

use crate::machine;
use crate::Sentence;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use checkpoint_image::file::MAX_RUN_BYTES;
use checkpoint_image::turns::{Job, Ticket, Turns};
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use interface::server::Event;
use proto::layout::{PRIORITY_PROGRAM, PRIORITY_SHELL};
use proto::Error;
use rt::heap::Hold;
use rt::obj::Ref;
use rt::sync::below::Raised;
use rt::sync::Mutex;
use services::checkpoint::MAX_WAITING;

/// Bytes of memory that a thread takes, with its stack and the buffers for saving and restoring.
const THREAD: u64 = rt::thread::STACK as u64 + 8 * MAX_RUN_BYTES as u64;

/// How long a thread works before it yields to others, in nanoseconds: the kernel's time slice.
const TURN: u64 = 10_000_000;

static TURNS: Mutex<Turns> = Mutex::new(Turns::new());
/// The progress of the requests that have begun: one of each job.
static PROGRESS: Mutex<BTreeMap<Job, Arc<Progress>>> = Mutex::new(BTreeMap::new());
/// A request was done, or given up.
static CHANGED: Event = Event::new();

/// The progress of a request, in bytes of pages: those done, and all, if that is known.
#[derive(Default)]
struct Progress {
    done: AtomicU64,
    all: AtomicU64,
}

/// The progress of this job's request.
pub(crate) fn progress(job: Job) -> (u64, u64) {
    let progress = PROGRESS.lock().get(&job).map(Arc::clone);
    progress.map_or((0, 0), |progress| {
        let [done, all] = [&progress.done, &progress.all].map(|n| n.load(Ordering::Relaxed));
        (done, all)
    })
}

/// A request's turn, until this is dropped.
struct Turn(Ticket, Job);

impl Turn {
    fn has_begun(&self) -> bool {
        TURNS.lock().has_begun(self.0)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.has_begun() {
            PROGRESS.lock().remove(&self.1);
        }
        TURNS.lock().end(self.0);
        CHANGED.happened();
    }
}

/// The state of a request's thread: whether its client still waits, and the memory that is held for it.
pub(crate) struct Wanted {
    wanted: Arc<AtomicBool>,
    memory: RefCell<Hold>,
    /// Set while no other program is to run.
    raised: Cell<Option<Raised>>,
    /// When it last yielded to others of its priority, or began to run raised.
    turn: Cell<u64>,
    progress: Arc<Progress>,
}

impl Wanted {
    /// Fails if the client no longer waits. Yields when this thread has used its turn: the kernel would not preempt a
    /// thread that calls servers again and again.
    pub(crate) fn check(&self) -> Result<(), Sentence> {
        if rt::time::now() - self.turn.get() > TURN {
            self.give_way();
        }
        match self.wanted.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(ended()),
        }
    }

    /// Begins a part of the work with so many bytes in all, or an unknown number (0).
    pub(crate) fn begins(&self, all: u64) {
        self.progress.done.store(0, Ordering::Relaxed);
        self.progress.all.store(all, Ordering::Relaxed);
    }

    /// Notes that so many more bytes are done.
    pub(crate) fn has_done(&self, bytes: u64) {
        self.progress.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Yields to others of its priority.
    pub(crate) fn give_way(&self) {
        rt::sys::thread_yield();
        self.turn.set(rt::time::now());
    }

    /// To be called while it is raised: lets waiting threads of higher priority than its own run.
    pub(crate) fn breathe(&self) {
        self.lower();
        self.raised.set(Some(Raised::now()));
        self.rest();
    }

    /// As [`Wanted::breathe`], if it is raised.
    pub(crate) fn pause(&self) {
        if let Some(raised) = self.raised.take() {
            drop(raised);
            self.breathe();
        }
    }

    /// [`Wanted::pause`], when it has been raised for a program's turn.
    pub(crate) fn pause_in_time(&self) {
        if rt::time::now() - self.turn.get() > TURN {
            self.pause();
        }
    }

    /// To be called while it is raised: lets programs run, too, when it has been raised for a program's turn.
    pub(crate) fn rest(&self) {
        if rt::time::now() - self.turn.get() > TURN {
            self.lower();
            self.give_way();
            self.raised.set(Some(Raised::now()));
        }
    }

    /// Reserves so many bytes of memory more, or refuses: an allocation that fails later would end the server.
    pub(crate) fn hold(&self, bytes: u64) -> Result<(), Sentence> {
        self.memory.borrow_mut().add(bytes).map_err(sentence)
    }

    /// How many bytes of memory it holds.
    pub(crate) fn held(&self) -> u64 {
        self.memory.borrow().bytes()
    }

    /// Reserves so many bytes and no more: memory that was reserved since then is not needed.
    pub(crate) fn hold_only(&self, bytes: u64) -> Result<(), Sentence> {
        self.memory.borrow_mut().set(bytes).map_err(sentence)
    }

    /// From here on no other program runs, as at the beginning: so processes are stopped at once, without waiting for a
    /// turn of this thread, and for no longer than necessary.
    pub(crate) fn raise(&self) {
        self.turn.set(rt::time::now());
        self.raised.set(Some(Raised::now()));
    }

    /// From here on others may run.
    pub(crate) fn lower(&self) {
        self.raised.set(None);
    }
}

fn sentence(error: Error) -> Sentence {
    error.text().to_string()
}

fn ended() -> Sentence {
    "whoever asked for it has ended".to_string()
}

/// Tells the thread when the request is given up.
struct Asked(Arc<AtomicBool>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Does `work` for this client of this job when its turn has come, and returns the result.
pub(crate) async fn work<T: Send + 'static>(
    job: Job,
    client: &Ref,
    work: impl FnOnce(&Wanted) -> Result<T, Sentence> + Send + 'static,
) -> Result<T, Sentence> {
    let ticket = TURNS.lock().come(job, MAX_WAITING);
    let turn = Turn(
        ticket.ok_or("as many requests of this job wait as may")?,
        job,
    );
    CHANGED.until(|| turn.has_begun().then_some(())).await;
    if client.kind() == abi::RefKind::Null {
        return Err(ended());
    }
    let memory = Hold::new(THREAD).map_err(sentence)?;
    let asked = Asked(Arc::new(AtomicBool::new(true)));
    let still = Arc::clone(&asked.0);
    let progress = Arc::new(Progress::default());
    PROGRESS.lock().insert(job, Arc::clone(&progress));
    let came = Arc::new(Mutex::new(None));
    let put = Arc::clone(&came);
    let priority = match job {
        0 => PRIORITY_SHELL,
        _ => PRIORITY_PROGRAM,
    };
    rt::thread::spawn_below(priority, machine::RAISED, move |raised| {
        let wanted = Wanted {
            wanted: still,
            memory: RefCell::new(memory),
            raised: Cell::new(Some(raised)),
            turn: Cell::new(rt::time::now()),
            progress,
        };
        let result = work(&wanted);
        *put.lock() = Some(result);
        drop(put);
        // Dropping the turn wakes the future, which then finds the result.
        drop(turn);
        drop(wanted);
    })
    .map_err(|code| alloc::format!("no thread for it: {}", rt::error_of(code).text()))?;
    CHANGED.until(|| came.lock().take()).await
}
