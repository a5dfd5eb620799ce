//! What is asked for is done by threads of their own, at the priority of whoever it is done for.
//!
//! The server's thread takes requests and gives answers. A request that may begin ([`Turns`]) is a thread of the
//! priority of programs, or for job 0 of the shell; the future of the request waits for it. What the
//! threads share with the server they hold above its priority (`rt::thread::spawn_below`), so the server waits
//! for no program. If the client ends meanwhile the future is dropped, and the thread ends at the next place where it looks ([`Wanted`]).

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

/// What a thread takes of memory, with its stack and the buffers of both directions.
const THREAD: u64 = rt::thread::STACK as u64 + 8 * MAX_RUN_BYTES as u64;

/// How long a thread works before it gives others their turn, in nanoseconds: as the kernel would have it.
const TURN: u64 = 10_000_000;

static TURNS: Mutex<Turns> = Mutex::new(Turns::new());
/// How far those are that have begun: one of each job.
static PROGRESS: Mutex<BTreeMap<Job, Arc<Progress>>> = Mutex::new(BTreeMap::new());
/// Something was done, or given up.
static CHANGED: Event = Event::new();

/// How far a request is, in bytes of pages: those that are done, and all, if that is known.
#[derive(Default)]
struct Progress {
    done: AtomicU64,
    all: AtomicU64,
}

/// How far the request of this job is.
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

/// Whether somebody still waits for what is being done, and the memory that is held for it.
pub(crate) struct Wanted {
    wanted: Arc<AtomicBool>,
    memory: RefCell<Hold>,
    /// While nobody else is to run.
    raised: Cell<Option<Raised>>,
    /// When it last gave others of its priority their turn, or took one for itself.
    turn: Cell<u64>,
    progress: Arc<Progress>,
}

impl Wanted {
    /// A refusal if nobody does. Gives others their turn when this thread has had its own: a thread that asks servers again and again
    /// would keep it.
    pub(crate) fn check(&self) -> Result<(), Sentence> {
        if rt::time::now() - self.turn.get() > TURN {
            self.give_way();
        }
        match self.wanted.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(ended()),
        }
    }

    /// What comes next has so many bytes in all, or it is not known how many (0).
    pub(crate) fn begins(&self, all: u64) {
        self.progress.done.store(0, Ordering::Relaxed);
        self.progress.all.store(all, Ordering::Relaxed);
    }

    /// So many more of them are done.
    pub(crate) fn has_done(&self, bytes: u64) {
        self.progress.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives others of its priority their turn.
    pub(crate) fn give_way(&self) {
        rt::sys::thread_yield();
        self.turn.set(rt::time::now());
    }

    /// While it is raised: lets others run that wait.
    pub(crate) fn breathe(&self) {
        self.lower();
        self.raised.set(Some(Raised::now()));
        self.rest();
    }

    /// If it is raised: as [`Wanted::breathe`].
    pub(crate) fn pause(&self) {
        if let Some(raised) = self.raised.take() {
            drop(raised);
            self.breathe();
        }
    }

    /// [`Wanted::pause`], when it has been raised for as long as turns of programs are.
    pub(crate) fn pause_in_time(&self) {
        if rt::time::now() - self.turn.get() > TURN {
            self.pause();
        }
    }

    /// While it is raised: lets programs run, too, when it has been raised for as long as their turns are.
    pub(crate) fn rest(&self) {
        if rt::time::now() - self.turn.get() > TURN {
            self.lower();
            self.give_way();
            self.raised.set(Some(Raised::now()));
        }
    }

    /// Holds so many bytes of memory more, or refuses: what is begun must not end for want of memory, and the server with it.
    pub(crate) fn hold(&self, bytes: u64) -> Result<(), Sentence> {
        self.memory.borrow_mut().add(bytes).map_err(sentence)
    }

    /// How many bytes of memory it holds.
    pub(crate) fn held(&self) -> u64 {
        self.memory.borrow().bytes()
    }

    /// Holds so many bytes and no more: what was held since they were is not needed.
    pub(crate) fn hold_only(&self, bytes: u64) -> Result<(), Sentence> {
        self.memory.borrow_mut().set(bytes).map_err(sentence)
    }

    /// From here on nobody else runs, as at the beginning: processes are stopped now, and not when it is this thread's
    /// turn, and stand still no longer than it takes.
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

/// Makes it unwanted when the request is given up.
struct Asked(Arc<AtomicBool>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Does it for this job, whose client this is, when its turn has come: what came of it.
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
        // Then whoever waits looks.
        drop(turn);
        drop(wanted);
    })
    .map_err(|code| alloc::format!("no thread for it: {}", rt::error_of(code).text()))?;
    CHANGED.until(|| came.lock().take()).await
}
