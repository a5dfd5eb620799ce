//! Reads files for the manager of processes, which must not wait for a file system that is slow or dead.
//!
//! For each file system a thread reads what the manager's futures want, one piece for each in turn. So files in memory
//! do not wait for the disk, no file waits until all of another is read, and init's memory holds no more of a file than
//! one reply has. Init has a higher priority than the shell and all programs, so a future that reads much asks a third
//! thread, of low priority, for [turns](Reading::turn) of the programs now and then.
use crate::PRIORITY;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use fermata_init::wanted::{State, Wanted};
use interface::server::Event;
use proto::layout::PRIORITY_PROGRAM;
use proto::Error;
use rt::fs::{self, File, Opened};
use rt::obj::Ref;
use rt::sync::Mutex;
use rt::{error_of, sys, thread};
use services::fs::is_on_disk;

/// The threads: one for files in memory, one for files on the disk, and one for turns of programs.
static MEMORY: Reader = Reader::new(PRIORITY);
static DISK: Reader = Reader::new(PRIORITY);
static TURNS: Reader = Reader::new(PRIORITY_PROGRAM);

struct Reader {
    /// The priority of its thread.
    priority: u64,
    work: Mutex<Work>,
}

struct Work {
    /// Files that are waiting for the thread, in the order in which they were queued.
    asked: VecDeque<Arc<Source>>,
    /// The thread, which is started with the first request.
    thread: Option<Ref>,
}

/// A file that is read for a future of the manager.
struct Source {
    state: Mutex<State<File>>,
    /// Happens when a request is done.
    event: Arc<Event>,
}

impl Reader {
    const fn new(priority: u64) -> Self {
        Reader {
            priority,
            work: Mutex::new(Work {
                asked: VecDeque::new(),
                thread: None,
            }),
        }
    }

    /// Queues a file, in whose state the request is, for the thread.
    fn ask(&'static self, source: &Arc<Source>) -> Result<(), Error> {
        let mut work = self.work.lock();
        if work.thread.is_none() {
            let thread = match self.priority {
                PRIORITY => thread::spawn_at(PRIORITY, move || self.run()),
                // The thread shares locks with other threads of init, so it holds them at the priority of those.
                below => thread::spawn_below(below, PRIORITY, move |raised| {
                    drop(raised);
                    self.run();
                }),
            };
            let thread = thread.map_err(error_of)?;
            work.thread = Some(thread.reference().map_err(error_of)?);
        }
        work.asked.push_back(Arc::clone(source));
        if let Some(thread) = &work.thread {
            let _ = thread.interrupt();
        }
        Ok(())
    }

    fn run(&self) {
        loop {
            let asked = core::mem::take(&mut self.work.lock().asked);
            if asked.is_empty() {
                sys::thread_wait_interrupt();
            } else if self.priority == PRIORITY {
                asked.iter().for_each(|source| source.serve());
            } else {
                // All futures that wait for a turn share one, so none waits longer because many load programs.
                sys::thread_yield();
                asked.iter().for_each(|source| source.turn());
            }
        }
    }
}

impl Source {
    /// Carries out the request in the file's state, on the thread that reads files.
    fn serve(&self) {
        let Some((wanted, mut file)) = self.state.lock().take() else {
            return;
        };
        let came = match wanted {
            Wanted::Open(path) => File::open(&path, fs::Flags::default(), 0).map(|opened| {
                file = Some(opened);
                Vec::new()
            }),
            Wanted::Bytes(offset, length) => match &file {
                Some(file) => read(file, offset, length),
                None => Err(Error::Broken),
            },
            Wanted::Nothing | Wanted::Turn | Wanted::Close => return,
        };
        {
            let mut state = self.state.lock();
            if matches!(state.wanted, Wanted::Close) {
                // The reader is gone. The file is dropped after the lock, since closing waits, too.
                drop(state);
                return;
            }
            state.file = file;
            state.came = Some(came);
        }
        self.event.happened();
    }

    /// Ends the wait for a turn: this thread has run, so the programs that were ready before it have run.
    fn turn(&self) {
        let is_wanted = self.state.lock().turn();
        if is_wanted {
            self.event.happened();
        }
    }
}

fn read(file: &File, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(length)
        .map_err(|_| Error::NoMemory)?;
    bytes.resize(length, 0);
    let came = file.read_full(offset, &mut bytes)?;
    bytes.truncate(came);
    Ok(bytes)
}

/// An open file, which is closed when this is dropped.
pub(crate) struct Reading {
    reader: &'static Reader,
    source: Arc<Source>,
}

impl Reading {
    /// Opens a file. `event` happens when a request is done, and when `is_wanted` may have become an error, which ends
    /// the wait.
    pub(crate) async fn open(
        path: &str,
        event: Arc<Event>,
        is_wanted: &impl Fn() -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let reading = Reading {
            reader: if is_on_disk(path) { &DISK } else { &MEMORY },
            source: Arc::new(Source {
                state: Mutex::new(State::new()),
                event,
            }),
        };
        reading
            .ask(reading.reader, Wanted::Open(path.to_string()), is_wanted)
            .await?;
        Ok(reading)
    }

    /// The file's attributes as of its opening.
    pub(crate) fn opened(&self) -> Result<Opened, Error> {
        let state = self.source.state.lock();
        let file = state.file.as_ref().ok_or(Error::Broken)?;
        Ok(*file.opened())
    }

    /// Reads `length` bytes from this offset on; fewer if the file ends before.
    pub(crate) async fn read(
        &self,
        offset: u64,
        length: usize,
        is_wanted: &impl Fn() -> Result<(), Error>,
    ) -> Result<Vec<u8>, Error> {
        self.ask(self.reader, Wanted::Bytes(offset, length), is_wanted)
            .await
    }

    /// Waits until every program that can run has had a time slice, and the requests queued before have had their
    /// turns.
    pub(crate) async fn turn(
        &self,
        is_wanted: &impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.ask(&TURNS, Wanted::Turn, is_wanted).await.map(|_| ())
    }

    async fn ask(
        &self,
        of: &'static Reader,
        wanted: Wanted,
        is_wanted: &impl Fn() -> Result<(), Error>,
    ) -> Result<Vec<u8>, Error> {
        self.source.state.lock().wanted = wanted;
        of.ask(&self.source)?;
        let came = || match is_wanted() {
            Ok(()) => self.source.state.lock().came.take(),
            Err(error) => Some(Err(error)),
        };
        self.source.event.until(came).await
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let source = &self.source;
        for reader in [self.reader, &TURNS] {
            let mut work = reader.work.lock();
            work.asked.retain(|asked| !Arc::ptr_eq(asked, source));
        }
        let open = {
            let mut state = source.state.lock();
            state.wanted = Wanted::Close;
            state.file.is_some()
        };
        if open {
            // The thread closes the file, since that waits for the file system.
            let _ = self.reader.ask(source);
        }
    }
}
