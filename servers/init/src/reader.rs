//! Files that are waited for: a file system may be slow, or dead, and the manager of processes must not be.
//!
//! A thread for each file system reads what the futures of the manager want, one piece for each in turn. So files in memory
//! are there whatever the disk does, nobody's file waits for all of somebody else's, and as much of a file is in init's
//! memory as one reply has. Init is above all programs and the shell: who reads much asks a third thread, which is not, for a
//! [turn](Reading::turn) of theirs now and then.
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

/// The threads: one for each file system, and one for turns.
static MEMORY: Reader = Reader::new(PRIORITY);
static DISK: Reader = Reader::new(PRIORITY);
static TURNS: Reader = Reader::new(PRIORITY_PROGRAM);

struct Reader {
    /// That of its thread.
    priority: u64,
    work: Mutex<Work>,
}

struct Work {
    /// Files of which, or for which, something is wanted, in the order in which it was asked for.
    asked: VecDeque<Arc<Source>>,
    /// The thread, which begins when there is first something to do.
    thread: Option<Ref>,
}

/// A file that is read for somebody.
struct Source {
    state: Mutex<State<File>>,
    /// Happens when something has come.
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

    /// Has the thread do what is wanted.
    fn ask(&'static self, source: &Arc<Source>) -> Result<(), Error> {
        let mut work = self.work.lock();
        if work.thread.is_none() {
            let thread = match self.priority {
                PRIORITY => thread::spawn_at(PRIORITY, move || self.run()),
                // It holds locks that others of init's wait for.
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
                // One turn of programs is one for all who wait for one: however many load programs, none waits for more.
                sys::thread_yield();
                asked.iter().for_each(|source| source.turn());
            }
        }
    }
}

impl Source {
    /// Does what is wanted, on the thread that reads files.
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
                // Given up meanwhile. Closing waits too, and so is done without the lock.
                drop(state);
                return;
            }
            state.file = file;
            state.came = Some(came);
        }
        self.event.happened();
    }

    /// The programs have had a turn since it was asked for: the thread for that came behind those that can run.
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

/// A file that is being read, until this is dropped.
pub(crate) struct Reading {
    reader: &'static Reader,
    source: Arc<Source>,
}

impl Reading {
    /// Opens a file. What comes is told by the event, and so is that this may not be wanted any more, as `is_wanted` says.
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

    /// The attributes as they were when the file was opened.
    pub(crate) fn opened(&self) -> Result<Opened, Error> {
        let state = self.source.state.lock();
        let file = state.file.as_ref().ok_or(Error::Broken)?;
        Ok(*file.opened())
    }

    /// So many bytes from this offset on; fewer if the file ends before.
    pub(crate) async fn read(
        &self,
        offset: u64,
        length: usize,
        is_wanted: &impl Fn() -> Result<(), Error>,
    ) -> Result<Vec<u8>, Error> {
        self.ask(self.reader, Wanted::Bytes(offset, length), is_wanted)
            .await
    }

    /// Waits until each program that can run has had a slice, and those before it in the order of turns their turns.
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
            // The thread closes it: that waits for the file system.
            let _ = self.reader.ask(source);
        }
    }
}
