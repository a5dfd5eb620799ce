//! The file system on the disk. A thread makes the requests to its server, and the calls that need the answers wait.
//!
//! The thread makes the requests one after the other, in order of arrival. A request that cannot wait
//! ([`Disk::ask_now`]) is made between two of them, and all processes wait with it.
//! between two of them, and all processes wait with it.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use personality::files::{Reply, Request};
use personality::late::{Answer, Late, Told};
use personality::system::Tid;
use proto::Error;
use rt::fs::Files;
use rt::heap::Hold;
use rt::obj::Ref;
use rt::sync::Mutex;
use rt::{sys, thread};

use crate::world;

/// A bit that marks a [`Tid`] as the saving or rebuilding of the tree with that root, which waits like a call.
const TREE: Tid = 1 << 31;

/// The number under which the saving or rebuilding of the tree with this root waits.
pub(crate) const fn of_tree(root: Tid) -> Tid {
    TREE | root
}

/// The root of the tree that is saved or rebuilt under this number; `None` if it is a task's.
pub(crate) const fn root_of(waits: Tid) -> Option<Tid> {
    match waits & TREE {
        0 => None,
        _ => Some(waits & !TREE),
    }
}

/// Memory of the server that a request takes besides its bytes.
const ROOM: u64 = 96 << 10;

static FILES: Mutex<Files> = Mutex::new(rt::fs::disk());
static WORK: Mutex<Work> = Mutex::new(Work {
    jobs: VecDeque::new(),
    thread: None,
});
/// The port at which the thread wakes the server for answers. The server answers there itself, so the thread must hold
/// no lock that the server may wait for.
static BELL: Mutex<Option<Ref>> = Mutex::new(None);
static ANSWERS: Mutex<Vec<Done>> = Mutex::new(Vec::new());
/// Whether there are answers.
static ANSWERED: AtomicBool = AtomicBool::new(false);

struct Work {
    jobs: VecDeque<Job>,
    /// The thread, which is started with the first request.
    thread: Option<Ref>,
}

/// A request for the thread.
struct Job {
    /// The number by which the answer is matched; `None` if nobody waits for it.
    number: Option<u64>,
    request: Request,
    bulk: Vec<u8>,
    /// Most bytes that come with the answer.
    room: usize,
}

/// A request with its answer.
struct Done {
    number: u64,
    request: Request,
    answer: Answer,
}

/// As [`world::ask`], for the file system on the disk.
#[inline(never)]
fn ask(request: &Request, bulk: &[u8], into: &mut [u8]) -> Result<(Reply, usize), Error> {
    world::ask(&mut FILES.lock(), request, bulk, into)
}

/// Sets the port at which the server is woken for answers.
pub(crate) fn set_bell(bell: Ref) {
    *BELL.lock() = Some(bell);
}

/// Gives a request to the thread.
fn put(job: Job) -> Result<(), Error> {
    let mut work = WORK.lock();
    if work.thread.is_none() {
        let thread = thread::spawn(run).and_then(|thread| thread.reference());
        work.thread = Some(thread.map_err(rt::error_of)?);
    }
    work.jobs.push_back(job);
    if let Some(thread) = &work.thread {
        let _ = thread.interrupt();
    }
    Ok(())
}

fn run() {
    loop {
        let job = WORK.lock().jobs.pop_front();
        match job {
            Some(job) => job.serve(),
            None => {
                sys::thread_wait_interrupt();
            }
        }
    }
}

impl Job {
    fn serve(self) {
        let answer = self.answer();
        let Some(number) = self.number else { return };
        ANSWERS.lock().push(Done {
            number,
            request: self.request,
            answer,
        });
        if !ANSWERED.swap(true, Ordering::AcqRel) {
            if let Some(bell) = &*BELL.lock() {
                let _ = bell.poke();
            }
        }
    }

    fn answer(&self) -> Answer {
        // Reserves the memory, so that others cannot take it meanwhile.
        let _hold = match self.number {
            Some(_) => Hold::new(ROOM + 2 * self.bulk.len() as u64 + self.room as u64)?,
            None => Hold::default(),
        };
        let mut bytes = Vec::new();
        let room = bytes.try_reserve_exact(self.room);
        room.map_err(|_| Error::NoMemory)?;
        bytes.resize(self.room, 0);
        let (reply, came) = ask(&self.request, &self.bulk, &mut bytes)?;
        bytes.truncate(came);
        Ok((reply, bytes))
    }
}

/// The disk, as calls use it.
pub(crate) struct Disk {
    is_there: bool,
    late: Late,
    /// The task whose call is being made.
    caller: Option<Tid>,
    /// Whether that call waits.
    waits: bool,
    /// Files with writes that are not durable yet.
    unsynced: BTreeSet<u64>,
    /// Tasks whose calls can go on.
    due: Vec<Tid>,
    /// Files that the call being made has closed; they are closed at its end unless it waits.
    closed: Vec<u64>,
}

impl Disk {
    pub(crate) const fn new() -> Self {
        Disk {
            is_there: false,
            late: Late::new(),
            caller: None,
            waits: false,
            unsynced: BTreeSet::new(),
            due: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// Whether there is a disk, or was one.
    pub(crate) fn is_there(&mut self) -> bool {
        // Until there is one, no call waits for it.
        self.is_there = self.is_there || FILES.lock().servers().is_there();
        self.is_there
    }

    /// Begins a call of a task. [`Disk::end`] ends it before the next one begins.
    pub(crate) fn begin(&mut self, tid: Tid) {
        self.finish();
        self.caller = Some(tid);
        if !self.late.is_empty() {
            self.late.begin(tid);
        }
    }

    /// Ends the call; returns whether it waits.
    pub(crate) fn end(&mut self) -> bool {
        let tid = self.caller.take();
        let waits = core::mem::take(&mut self.waits);
        if !self.closed.is_empty() {
            let closed = core::mem::take(&mut self.closed);
            // A call that waits closes its files again when it is made again.
            if !waits {
                closed.into_iter().for_each(|ino| self.close(ino));
            }
        }
        if let Some(tid) = tid.filter(|_| !self.late.is_empty()) {
            let mut close = Vec::new();
            self.due.extend(self.late.end(tid, &mut close));
            close.into_iter().for_each(|ino| self.close(ino));
        }
        waits
    }

    /// Ends a call that has had no end, so that further requests do not belong to it.
    pub(crate) fn finish(&mut self) {
        if self.caller.take().is_some() {
            rt::log!("linux: a call has had no end");
            self.waits = false;
            // The call is not made again, so its files are closed here.
            let closed = core::mem::take(&mut self.closed);
            closed.into_iter().for_each(|ino| self.close(ino));
        }
    }

    /// Whether the call of a task has made a request that must not be made twice.
    pub(crate) fn has_begun(&self, tid: Tid) -> bool {
        self.late.has_begun(tid)
    }

    /// A task is stopped: other calls may use the files that its call holds.
    pub(crate) fn stands_still(&mut self, tid: Tid) {
        if !self.late.is_empty() {
            self.due.extend(self.late.release(tid));
        }
    }

    /// A task has ended: forgets its call, and closes what the call has opened.
    pub(crate) fn forget(&mut self, tid: Tid) {
        if !self.late.is_empty() {
            let mut close = Vec::new();
            self.due.extend(self.late.forget(tid, &mut close));
            close.into_iter().for_each(|ino| self.close(ino));
        }
    }

    /// Whether the call that is being made waits.
    pub(crate) const fn waits(&self) -> bool {
        self.waits
    }

    /// See [`personality::host::Host::asked`].
    pub(crate) fn asked(&self) -> Option<&Request> {
        self.late.asked(self.caller?)
    }

    pub(crate) fn is_unsynced(&self, ino: u64) -> bool {
        self.unsynced.contains(&ino)
    }

    /// The tasks whose calls are to be made again.
    pub(crate) fn take_due(&mut self) -> Vec<Tid> {
        if ANSWERED.swap(false, Ordering::AcqRel) {
            let answers = core::mem::take(&mut *ANSWERS.lock());
            for done in answers {
                self.done(&done.request, done.answer.is_ok());
                match self.late.answered(done.number, done.answer) {
                    Ok(tid) => self.due.push(tid),
                    Err(opened) => opened.into_iter().for_each(|ino| self.close(ino)),
                }
            }
        }
        core::mem::take(&mut self.due)
    }

    /// Whether [`Disk::take_due`] would return nothing.
    pub(crate) fn is_settled(&self) -> bool {
        self.due.is_empty() && !ANSWERED.load(Ordering::Acquire)
    }

    /// Notes what a request that was made, successfully or not (`well`), means for `unsynced`.
    fn done(&mut self, request: &Request, well: bool) {
        match request {
            Request::Write { ino, .. }
            | Request::Truncate { ino, .. }
            | Request::Chmod { ino, .. }
            | Request::Chown { ino, .. }
            | Request::Utimens { ino, .. }
                if well =>
            {
                self.unsynced.insert(*ino);
            }
            Request::Sync { .. } if well => self.unsynced.clear(),
            _ => {}
        }
    }

    /// Closes a file, without waiting for that.
    fn close(&mut self, ino: u64) {
        self.unsynced.remove(&ino);
        let _ = put(Job {
            number: None,
            request: Request::Close { ino },
            bulk: Vec::new(),
            room: 0,
        });
    }

    /// Makes a request at once. The whole server waits for the answer.
    pub(crate) fn ask_now(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), Error> {
        if let Request::Close { ino } = request {
            self.close(*ino);
            return Ok((Reply::Done, 0));
        }
        let answer = ask(request, bulk, into);
        self.done(request, answer.is_ok());
        answer
    }

    /// Makes a request for the call that is being made, which waits for the answer; at once if there is no such call.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), Error> {
        let tid = match (self.caller, request) {
            _ if self.waits => return Err(Error::WouldBlock),
            (None, _) => return self.ask_now(request, bulk, into),
            (Some(_), Request::Close { ino }) => {
                self.closed.push(*ino);
                return Ok((Reply::Done, 0));
            }
            (Some(tid), _) => tid,
        };
        rt::heap::want(ROOM + (bulk.len() + into.len()) as u64)?;
        let mut close = Vec::new();
        let number = match self.late.ask(tid, request, &mut close) {
            Told::Answer(Ok((reply, bytes))) => {
                let came = bytes.len().min(into.len());
                into[..came].copy_from_slice(&bytes[..came]);
                return Ok((reply.clone(), came));
            }
            Told::Answer(Err(error)) => return Err(*error),
            Told::Ask(number) => Some(number),
            Told::Wait => None,
        };
        self.waits = true;
        close.into_iter().for_each(|ino| self.close(ino));
        if let Some(number) = number {
            let put = put(Job {
                number: Some(number),
                request: request.clone(),
                bulk: bulk.to_vec(),
                room: into.len(),
            });
            if let Err(error) = put {
                // The thread could not be started: the error is the answer.
                let answered = self.late.answered(number, Err(error));
                self.due.extend(answered);
            }
        }
        Err(Error::WouldBlock)
    }
}
