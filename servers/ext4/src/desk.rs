//! The queue between two threads. One serves clients and never waits for the disk: it opens sessions, refuses invalid
//! requests, ends sessions of clients that have ended, and answers. The other one has the volume, does one request
//! after the other, and waits for the disk.
//!
//! * [`Desk`]: the queue, which both share;
//! * [`Remote`]: a session in the first thread; its request waits in the queue as a future;
//! * [`Worker`]: the second thread, with the [sessions](Session) proper.
//!
//! **Order.** Requests are done in the order in which they came. A session has one request at a time, so a client whose
//! write was answered finds the data, and any later `sync` makes it durable. One `sync` answers all such requests that
//! came while the worker was busy.
//!
//! **Time.** The worker syncs data that no client has synced some seconds later.
//!
//! **Death.** A request whose client has ended or has given it up is not done, unless the worker has begun it. The
//! session of a client that has ended is removed here at once, whatever the worker waits for; its open files are closed
//! before the next request.

use crate::session::{Session, Shared};
use crate::volume::Volume;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use interface::server::{Event, Reply, Request};
use interface::wire::numbered;
use interface::{Answer, Service};
use proto::Error;
use rsext4::BlockIo;
use rt::heap::Hold;
use rt::obj::Ref;
use rt::sync::Mutex;
use services::fs::server::two;
use services::fs::{Files, FilesClient, FilesLater, FilesLaterStub, Flags, Ino};

/// Bytes of memory that a request takes while it waits, besides its data.
const ROOM: u64 = 16 << 10;
/// Methods that free something, and so are not refused for lack of memory.
const CLOSE: u16 = numbered(FilesClient::METHODS, "close");
const CLOSE_ALL: u16 = numbered(FilesClient::METHODS, "close_all");
/// Bytes of memory to write data back.
const ROOM_BACK: u64 = 1 << 20;
/// The time after which data reaches the disk at the latest, even if its writer does not ask for that, in nanoseconds.
const LATEST: u64 = 5_000_000_000;
/// The first pause before a disk that could not be read is mounted again, in nanoseconds.
const PAUSE: u64 = 1_000_000_000;
/// The longest pause between attempts that fail, in nanoseconds: each pause is twice as long as the one before it. A
/// malicious disk can make a mount take long, and all clients wait for a disk without a driver.
const RARELY: u64 = 128_000_000_000;

/// The work of a request on a session.
type Act<D> = Box<dyn FnOnce(&Session<D>) + Send>;

/// A request in the queue.
struct Asked<D: BlockIo> {
    /// Its place in the order of all.
    number: u64,
    session: u64,
    /// How many files the session may have open.
    most: u64,
    /// It is a `sync`.
    syncs: bool,
    act: Act<D>,
}

struct Work<D: BlockIo> {
    asked: VecDeque<Asked<D>>,
    /// Sessions that have ended.
    ended: Vec<u64>,
    /// How many sessions there are: `ended` has room for all of them.
    sessions: usize,
    /// The last number that was given to a session or request.
    numbers: u64,
}

impl<D: BlockIo> Work<D> {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// The queue.
pub struct Desk<D: BlockIo> {
    work: Mutex<Work<D>>,
    /// The thread of the worker.
    thread: Mutex<Option<Ref>>,
}

impl<D: BlockIo> Default for Desk<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: BlockIo> Desk<D> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Desk {
            work: Mutex::new(Work {
                asked: VecDeque::new(),
                ended: Vec::new(),
                sessions: 0,
                numbers: 0,
            }),
            thread: Mutex::new(None),
        }
    }

    /// Sets the worker's thread, which is interrupted for requests.
    pub fn tell(&self, thread: Ref) {
        let _ = thread.interrupt();
        *self.thread.lock() = Some(thread);
    }

    fn wake(&self) {
        if let Some(thread) = &*self.thread.lock() {
            let _ = thread.interrupt();
        }
    }

    /// Requests that wait for the worker.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.work.lock().asked.len()
    }
}

/// A session, in the thread that serves clients.
pub struct Remote<D: BlockIo> {
    desk: Arc<Desk<D>>,
    number: u64,
    most: u64,
    /// How often each file is open, as far as its client knows: requests about other files can be refused at once.
    open: RefCell<BTreeMap<Ino, u64>>,
}

impl<D: BlockIo + 'static> Remote<D> {
    /// A session that can have at most `most` files open.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(desk: &Arc<Desk<D>>, most: u64) -> Result<Self, Error> {
        let mut work = desk.work.lock();
        let sessions = work.sessions + 1;
        // The end of a session and a close must not be refused: so there is room for the end of each, and for one
        // request of each.
        let room = work.ended.try_reserve(sessions);
        let more = sessions.saturating_sub(work.asked.len());
        let room = room.and_then(|()| work.asked.try_reserve(more));
        room.map_err(|_| Error::NoMemory)?;
        work.sessions = sessions;
        let number = work.number();
        drop(work);
        Ok(Remote {
            desk: Arc::clone(desk),
            number,
            most,
            open: RefCell::default(),
        })
    }

    /// Lets the worker do something with the session, and waits for the result.
    async fn ask<T: Send + 'static>(
        &self,
        syncs: bool,
        act: impl FnOnce(&Session<D>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let result = Arc::new(Outcome {
            value: Mutex::new(None),
            event: Event::new(),
        });
        let told = Arc::clone(&result);
        let act = Box::new(move |session: &Session<D>| {
            let value = act(session);
            *told.value.lock() = Some(value);
            told.event.happened();
        });
        let number = {
            let mut work = self.desk.work.lock();
            work.asked.try_reserve(1).map_err(|_| Error::NoMemory)?;
            let number = work.number();
            work.asked.push_back(Asked {
                number,
                session: self.number,
                most: self.most,
                syncs,
                act,
            });
            number
        };
        self.desk.wake();
        let _wanted = Wanted {
            desk: &self.desk,
            number,
        };
        result.event.until(|| result.value.lock().take()).await
    }

    /// The same about a file that the session has open.
    async fn ask_about<T: Send + 'static>(
        &self,
        file: Ino,
        act: impl FnOnce(&Session<D>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.has(file)?;
        self.ask(false, act).await
    }

    fn has(&self, file: Ino) -> Result<(), Error> {
        let has = self.open.borrow().contains_key(&file);
        has.then_some(()).ok_or(Error::NotFound)
    }
}

impl<D: BlockIo> Drop for Remote<D> {
    fn drop(&mut self) {
        {
            let mut work = self.desk.work.lock();
            work.sessions -= 1;
            // There is room: see `new`.
            work.ended.push(self.number);
        }
        self.desk.wake();
    }
}

/// The result of a request.
struct Outcome<T> {
    value: Mutex<Option<Result<T, Error>>>,
    event: Event,
}

/// A request that is wanted until this is dropped.
struct Wanted<'a, D: BlockIo> {
    desk: &'a Desk<D>,
    number: u64,
}

impl<D: BlockIo> Drop for Wanted<'_, D> {
    fn drop(&mut self) {
        let given_up = {
            let asked = &mut self.desk.work.lock().asked;
            let place = asked.binary_search_by_key(&self.number, |asked| asked.number);
            place.ok().and_then(|place| asked.remove(place))
        };
        drop(given_up);
    }
}

impl<D: BlockIo + 'static> FilesLater for Remote<D> {
    async fn open_file(
        &self,
        flags: u32,
        mode: u32,
        path: String,
    ) -> Result<(u64, u32, u64), Error> {
        Flags::from_bits(flags).ok_or(Error::Invalid)?;
        let opened = self.ask(false, move |s| s.open_file(flags, mode, &path));
        let opened = opened.await?;
        *self.open.borrow_mut().entry(opened.0).or_default() += 1;
        Ok(opened)
    }

    async fn close(&self, file: u64) -> Result<(), Error> {
        let closed = self.ask_about(file, move |s| s.close(file)).await;
        let mut open = self.open.borrow_mut();
        if let Some(times) = open.get_mut(&file) {
            *times -= 1;
            if *times == 0 {
                open.remove(&file);
            }
        }
        closed
    }

    async fn close_all(&self, files: Vec<u8>) -> Result<(), Error> {
        let mut result = Ok(());
        for file in services::fs::numbers(&files)? {
            result = result.and(self.close(file).await);
        }
        result
    }

    async fn stat(&self, follow: bool, path: String, room: usize) -> Result<Vec<u8>, Error> {
        self.ask(false, move |s| Ok(s.stat(follow, &path, room)?.to_vec()))
            .await
    }

    async fn attributes(&self, file: u64, room: usize) -> Result<Vec<u8>, Error> {
        self.ask_about(file, move |s| Ok(s.attributes(file, room)?.to_vec()))
            .await
    }

    async fn read(&self, file: u64, offset: u64, room: usize) -> Result<Vec<u8>, Error> {
        // The worker's buffer is no larger than a message.
        let room = room.min(interface::MAX_BULK);
        self.ask_about(file, move |s| s.read_owned(file, offset, room))
            .await
    }

    async fn write(&self, file: u64, offset: u64, bytes: Vec<u8>) -> Result<u32, Error> {
        self.ask_about(file, move |s| s.write(file, offset, &bytes))
            .await
    }

    async fn append(&self, file: u64, bytes: Vec<u8>) -> Result<(u32, u64), Error> {
        self.ask_about(file, move |s| s.append(file, &bytes)).await
    }

    async fn truncate(&self, file: u64, size: u64) -> Result<(), Error> {
        self.ask_about(file, move |s| s.truncate(file, size)).await
    }

    async fn read_dir(&self, file: u64, cookie: u64, room: usize) -> Result<Vec<u8>, Error> {
        self.ask_about(file, move |s| Ok(s.read_dir(file, cookie, room)?.to_vec()))
            .await
    }

    async fn mkdir(&self, mode: u32, path: String) -> Result<(), Error> {
        self.ask(false, move |s| s.mkdir(mode, &path)).await
    }

    async fn unlink(&self, path: String) -> Result<(), Error> {
        self.ask(false, move |s| s.unlink(&path)).await
    }

    async fn rmdir(&self, path: String) -> Result<(), Error> {
        self.ask(false, move |s| s.rmdir(&path)).await
    }

    async fn rename(&self, first: u32, paths: String) -> Result<(), Error> {
        two(first, &paths)?;
        self.ask(false, move |s| s.rename(first, &paths)).await
    }

    async fn link(&self, first: u32, paths: String) -> Result<(), Error> {
        two(first, &paths)?;
        self.ask(false, move |s| s.link(first, &paths)).await
    }

    async fn symlink(&self, first: u32, paths: String) -> Result<(), Error> {
        two(first, &paths)?;
        self.ask(false, move |s| s.symlink(first, &paths)).await
    }

    async fn readlink(&self, path: String, room: usize) -> Result<Vec<u8>, Error> {
        self.ask(false, move |s| Ok(s.readlink(&path, room)?.to_vec()))
            .await
    }

    async fn path_of(&self, file: u64, room: usize) -> Result<Vec<u8>, Error> {
        self.ask_about(file, move |s| Ok(s.path_of(file, room)?.to_vec()))
            .await
    }

    async fn chmod(&self, file: u64, mode: u32) -> Result<(), Error> {
        self.ask_about(file, move |s| s.chmod(file, mode)).await
    }

    async fn chown(&self, file: u64, uid: u32, gid: u32) -> Result<(), Error> {
        self.ask_about(file, move |s| s.chown(file, uid, gid)).await
    }

    async fn utimens(&self, file: u64, atime_ns: u64, mtime_ns: u64) -> Result<(), Error> {
        self.ask_about(file, move |s| s.utimens(file, atime_ns, mtime_ns))
            .await
    }

    async fn usage(&self) -> Result<(u64, u64, u64, u64), Error> {
        self.ask(false, Session::usage).await
    }

    async fn sync(&self, file: u64) -> Result<(), Error> {
        self.has(file)?;
        self.ask(true, move |s| s.sync(file)).await
    }

    async fn memory(&self, _part: u32) -> Result<(u64, rt::obj::Ref), Error> {
        Err(Error::Unsupported)
    }

    async fn place(&self, _file: u64, _offset: u64) -> Result<(u64, u32, u64), Error> {
        Err(Error::Unsupported)
    }
}

/// Checks each request of a session: it is accepted if there is memory for it.
pub struct Gate<D: BlockIo + 'static>(Rc<FilesLaterStub<Remote<D>>>);

impl<D: BlockIo> Gate<D> {
    /// As [`Remote::new`].
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(desk: &Arc<Desk<D>>, most: u64) -> Result<Self, Error> {
        Remote::new(desk, most).map(|remote| Gate(Rc::new(FilesLaterStub(remote))))
    }
}

impl<D: BlockIo> Service for Gate<D> {
    const BYTES: bool = FilesLaterStub::<Remote<D>>::BYTES;
    const KEEPS_BYTES: bool = FilesLaterStub::<Remote<D>>::KEEPS_BYTES;
    const REFS: usize = FilesLaterStub::<Remote<D>>::REFS;

    fn has(id: u64) -> bool {
        FilesLaterStub::<Remote<D>>::has(id)
    }

    fn answer(self: &Rc<Self>, request: &Request<'_>, reply: &mut Reply) -> Answer {
        // A repeated request that is done takes no more memory.
        if !request.is_done() {
            let wanted = wanted(request.method, request.bytes.len());
            if let Err(error) = wanted.map_or(Ok(()), rt::heap::want) {
                reply.set::<()>(Err(error));
                return Answer::Now;
            }
        }
        self.0.answer(request, reply)
    }

    fn query(self: &Rc<Self>, id: u64) -> Option<Rc<Self>> {
        Self::has(id).then(|| Rc::clone(self))
    }
}

/// How much memory must be free for a request with so many bytes; `None`: it is accepted in any case.
fn wanted(method: u16, bytes: usize) -> Option<u64> {
    let frees = matches!(method, CLOSE | CLOSE_ALL);
    (!frees).then_some(ROOM + bytes as u64)
}

/// The thread that waits for the disk.
pub struct Worker<D: BlockIo> {
    desk: Arc<Desk<D>>,
    volume: Shared<D>,
    /// Mounts the disk, if there was no memory for it, or the disk could not be read.
    mount: Option<Mount<D>>,
    /// The time before which a disk that could not be read is not mounted again.
    mount_from: u64,
    /// The pause after the next mount that fails.
    mount_pause: u64,
    /// When data is to be written back; `None` while everything is on the disk.
    due: Option<u64>,
    /// The pause before the next attempt to write back after one that failed.
    late: u64,
    clock: Clock,
    sessions: BTreeMap<u64, Session<D>>,
}

/// The clock, in nanoseconds.
pub type Clock = fn() -> u64;

/// How the file system is mounted.
type Mount<D> = Box<dyn FnMut() -> Result<Volume<D>, Error>>;

impl<D: BlockIo + 'static> Worker<D> {
    /// A worker with the mounted volume, or the reason why there is none.
    pub fn new(desk: Arc<Desk<D>>, volume: Result<Volume<D>, Error>, clock: Clock) -> Self {
        Worker {
            desk,
            volume: Rc::new(RefCell::new(volume)),
            mount: None,
            mount_from: 0,
            mount_pause: PAUSE,
            due: None,
            late: LATEST,
            clock,
            sessions: BTreeMap::new(),
        }
    }

    /// If there was no memory for the mount, the worker tries it again before each request; if the disk could not be
    /// read, before a request after a pause, which doubles each time. A disk without a valid file system is not tried
    /// again.
    #[must_use]
    pub fn or_later(mut self, mount: impl FnMut() -> Result<Volume<D>, Error> + 'static) -> Self {
        self.mount_from = (self.clock)().saturating_add(PAUSE);
        self.mount = Some(Box::new(mount));
        self
    }

    /// Serves requests for ever.
    pub fn run(mut self) -> ! {
        loop {
            if !self.turn() {
                let _ = rt::sys::thread_wait_interrupt_until(self.due.unwrap_or(u64::MAX));
            }
        }
    }

    /// Ends sessions, does the next request and those that can be done with it, and a step of the work left by earlier
    /// ones. Returns whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        let (ended, group) = {
            let mut work = self.desk.work.lock();
            let ended: Vec<u64> = work.ended.drain(..).collect();
            (ended, next(&mut work.asked))
        };
        for session in &ended {
            self.sessions.remove(session);
        }
        if !group.is_empty() {
            self.mount_again();
        }
        let several = group.len() > 1;
        if several {
            self.group(true);
        }
        let worked = !ended.is_empty() || !group.is_empty();
        for asked in group {
            let volume = &self.volume;
            let session = self.sessions.entry(asked.session);
            let session = session.or_insert_with(|| Session::new(volume, asked.most));
            (asked.act)(session);
        }
        if several {
            self.group(false);
        }
        // If there is no memory for a step, the worker waits for a request, after which there may be some.
        let stepped = match &mut *self.volume.borrow_mut() {
            Ok(volume) => volume.tend(),
            Err(_) => false,
        };
        self.write_back();
        worked || stepped
    }

    fn mount_again(&mut self) {
        let passes = match &*self.volume.borrow() {
            Err(Error::NoMemory) => true,
            Err(Error::Broken) => (self.clock)() >= self.mount_from,
            _ => false,
        };
        if let (true, Some(mount)) = (passes, &mut self.mount) {
            let volume = mount();
            // The clock is read again, since the mount may have taken long.
            self.mount_from = (self.clock)().saturating_add(self.mount_pause);
            self.mount_pause = (2 * self.mount_pause).min(RARELY);
            *self.volume.borrow_mut() = volume;
        }
    }

    /// Writes data back in time: a client that keeps a file open and never syncs it loses no more than the last seconds
    /// at a loss of power. Does not read the clock while there is nothing to write.
    fn write_back(&mut self) {
        let mut volume = self.volume.borrow_mut();
        let volume = volume.as_mut().ok().filter(|volume| volume.is_dirty());
        let Some(volume) = volume else {
            self.due = None;
            return;
        };
        let now = (self.clock)();
        let due = *self.due.get_or_insert(now.saturating_add(LATEST));
        if now >= due {
            // A failure is tried again, and reported to clients that sync.
            let written = Hold::new(ROOM_BACK).and_then(|_room| volume.sync());
            self.late = match written {
                Ok(()) => LATEST,
                Err(_) => (2 * self.late).min(RARELY),
            };
            // The clock is read again, since the sync may have taken long.
            let next = || (self.clock)().saturating_add(self.late);
            self.due = volume.is_dirty().then(next);
        }
    }

    fn group(&self, begins: bool) {
        if let Ok(volume) = &mut *self.volume.borrow_mut() {
            volume.group(begins);
        }
    }
}

/// Takes the next request, and with a `sync` all others of the queue: they only need what was done before they came.
fn next<D: BlockIo>(asked: &mut VecDeque<Asked<D>>) -> Vec<Asked<D>> {
    let Some(first) = asked.pop_front() else {
        return Vec::new();
    };
    let mut group = Vec::from([first]);
    if group[0].syncs {
        let mut place = 0;
        while let Some(other) = asked.get(place) {
            if !other.syncs {
                place += 1;
            } else if let Some(other) = asked.remove(place) {
                group.push(other);
            }
        }
    }
    group
}

#[cfg(test)]
mod tests;
