//! The console server.
//!
//! Two threads share the [`Console`]: the server's own answers requests, the other waits for the device's interrupt and
//! moves bytes, and wakes requests that wait for them. Both leave the device in a state in which it interrupts again
//! when there is something to do, or interrupt the second thread themselves.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::ops::Deref;
use fermata_console::drains::Drains;
use fermata_console::Console as Terminal;
use interface::server::{Either, Event, Visitor};
use interface::Error;
use rt::obj::{Ref, RefAt};
use rt::sync::{Lazy, Mutex};
use rt::{sys, thread, time};
use services::console::{
    self, Console, ConsoleClient, ConsoleControl, ConsoleControlClient, ConsoleControlStub,
    ConsoleStub, Job, Mode,
};
use services::device::DevicesClient;
use uart::Granted;

rt::entry!(main);

/// First port of COM1.
const PORTS: u16 = 0x3f8;
/// Number of its ports.
const PORT_COUNT: u64 = 8;
/// Its interrupt line.
const LINE: u64 = 4;
/// Priority of the thread that moves bytes: the device must not overrun.
const PRIORITY: u64 = proto::layout::PRIORITY_FILES + 1;
/// How many full bursts in a row that thread moves before it pauses.
const ROUNDS: u32 = 16;
/// That pause, in nanoseconds.
const PAUSE: u64 = 1_000_000;
/// Number of the door that opens sessions with control. Door 0 is the one that programs find by name.
const CONTROL: u64 = 1;

struct Shared {
    console: Terminal<Granted>,
    /// The job that may read; 0 for none. `None` until the shell has set it; then every job may.
    foreground: Option<Job>,
    /// Counts the changes that requests may wait for.
    news: u64,
    drains: Drains,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);
/// Wakes requests that wait for [`Shared::news`] to change.
static NEWS: Event = Event::new();
/// Wakes requests that wait until all output has left, when it has or they have waited long enough.
static DRAINED: Event = Event::new();
/// The thread that moves bytes.
static MOVER: Lazy<Ref> = Lazy::new();

impl Shared {
    /// Whether the job may read now.
    fn may_read(&self, job: Job) -> bool {
        self.foreground.is_none_or(|foreground| foreground == job)
    }
}

/// Calls `f` with the console locked, moves bytes, and wakes waiting requests if something has changed.
fn with<T>(f: impl FnOnce(&mut Shared) -> T) -> Result<T, Error> {
    moving(f).map(|(result, _)| result)
}

/// Reads the console for a waiting request, without moving bytes: with a device that always has another byte, moving
/// would wake the request again, and the server would never finish.
fn look<T>(f: impl FnOnce(&Shared) -> T) -> Result<T, Error> {
    SHARED.lock().as_ref().map(f).ok_or(Error::Broken)
}

/// As [`with`]. Also returns whether there may be more bytes, for which the thread that moves them has been
/// interrupted.
fn moving<T>(f: impl FnOnce(&mut Shared) -> T) -> Result<(T, bool), Error> {
    let (result, news, more) = {
        let mut shared = SHARED.lock();
        let shared = shared.as_mut().ok_or(Error::Broken)?;
        let (before, was_full) = (shared.news, !shared.console.has_room());
        let result = f(shared);
        // There may be room for output again, also because a write moves bytes to the device.
        let news = shared.console.pump() || was_full && shared.console.has_room();
        shared.news += u64::from(news);
        (result, shared.news != before, shared.console.has_more())
    };
    if let (true, Ok(mover)) = (more, MOVER.get(|| Err(Error::NotFound))) {
        let _ = mover.interrupt();
    }
    // After the lock has been released, because the server's thread may wait for it.
    if news {
        NEWS.happened();
    }
    Ok((result, more))
}

/// Wakes the requests that wait until all output has left, if it has or a deadline has passed. Returns when to check
/// again.
fn look_after_drains() -> Option<u64> {
    let (over, next) = {
        let mut shared = SHARED.lock();
        let Shared {
            console, drains, ..
        } = shared.as_mut()?;
        // One time for both, so that no deadline falls between them.
        let now = time::now();
        let over = console.is_drained() || drains.is_late(now);
        (over, drains.next(now, console.has_sent()))
    };
    // After the lock has been released, as above.
    if over {
        DRAINED.happened();
    }
    next
}

/// Moves bytes whenever the device interrupts, or there are more than it moved in one go.
fn serve_interrupts() {
    let (mut rounds, mut look) = (0, None);
    loop {
        match look {
            Some(time) => drop(sys::thread_wait_interrupt_until(time)),
            None => drop(sys::thread_wait_interrupt()),
        }
        let moved = moving(|shared| shared.drains.is_waited());
        look = match moved {
            Ok((true, _)) => look_after_drains(),
            _ => None,
        };
        rounds = match moved {
            Ok((_, true)) => rounds + 1,
            _ => 0,
        };
        if rounds == ROUNDS {
            rounds = 0;
            time::sleep(PAUSE);
        }
    }
}

/// Gets the ports and the interrupt from the device server, at the door that init passed on. Returns the session that
/// holds them.
fn attach(door: RefAt) -> Result<DevicesClient, Error> {
    let mut devices = DevicesClient::open_known(&door)?;
    devices.grant_ports(u64::from(PORTS), PORT_COUNT, &rt::start::space())?;
    let interactive = !rt::start().args.iter().any(|argument| argument == "script");
    *SHARED.lock() = Some(Shared {
        console: Terminal::new(Granted(PORTS), interactive),
        foreground: None,
        news: 0,
        drains: Drains::new(),
    });
    let attach = || thread::spawn_at(PRIORITY, serve_interrupts)?.reference();
    let thread = MOVER.get(attach).map_err(rt::error_of)?;
    devices.attach_line(LINE, thread)?;
    // For bytes that arrived before the interrupt was attached.
    thread.interrupt().map_err(rt::error_of)?;
    Ok(devices)
}

/// A request that waits until all output has left, with its deadline.
struct Drain(u64);

impl Drain {
    fn begin(until: u64) -> Result<Self, Error> {
        with(|shared| shared.drains.begin(until))?;
        let drain = Drain(until);
        // Interrupts the thread that checks it.
        let mover = MOVER.get(|| Err(Error::NotFound))?;
        mover.interrupt().map_err(rt::error_of)?;
        Ok(drain)
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if let Some(shared) = SHARED.lock().as_mut() {
            shared.drains.end(self.0);
        }
    }
}

/// A session of a program.
struct User {
    job: Job,
}

impl Console for User {
    fn write(&self, bytes: &[u8]) -> Result<u32, Error> {
        with(|shared| shared.console.write(bytes) as u32)
    }

    async fn room(&self) -> Result<(), Error> {
        if with(|shared| shared.console.has_room())? {
            return Ok(());
        }
        let room = || look(|shared| shared.console.has_room()).map(|room| room.then_some(()));
        NEWS.until(|| room().transpose()).await
    }

    async fn read(&self, room: usize) -> Result<Vec<u8>, Error> {
        let read = || match read(self.job, Mode::Cooked, room) {
            Err(Error::WouldBlock) => None,
            result => Some(result),
        };
        if let Some(result) = read() {
            return result;
        }
        let may_read =
            |shared: &Shared| shared.may_read(self.job) && shared.console.is_readable(Mode::Cooked);
        NEWS.until(|| match look(may_read) {
            Ok(true) => read(),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        })
        .await
    }

    async fn drain(&self, patience: u64) -> Result<bool, Error> {
        let until = time::now().saturating_add(patience);
        let over = || match with(|shared| shared.console.is_drained()) {
            Ok(false) if time::now() < until => None,
            drained => Some(drained),
        };
        if let Some(drained) = over() {
            return drained;
        }
        let _drain = Drain::begin(until)?;
        DRAINED.until(over).await
    }
}

/// Reads for a job, if it may.
fn read(job: Job, mode: Mode, room: usize) -> Result<Vec<u8>, Error> {
    let room = room.min(proto::MAX_BULK);
    with(|shared| match mode {
        _ if !shared.may_read(job) => Err(Error::WouldBlock),
        Mode::Raw => shared.console.read_raw(room),
        Mode::Cooked | Mode::Quiet => shared.console.read(room),
    })?
}

/// A session of the shell or of the personality of Linux programs.
struct Control;

impl ConsoleControl for Control {
    fn set_mode(&self, mode: Mode) -> Result<(), Error> {
        with(|shared| shared.news += u64::from(shared.console.set_mode(mode)))
    }

    fn set_foreground(&self, job: Job) -> Result<(), Error> {
        with(|shared| {
            if shared.foreground != Some(job) {
                shared.foreground = Some(job);
                shared.news += 1;
            }
        })
    }

    fn take_event(&self) -> Result<console::Event, Error> {
        with(|shared| shared.console.take_event().unwrap_or(console::Event::None))
    }

    fn read_keys(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        with(|shared| shared.console.read_raw(room.min(proto::MAX_BULK)))?
    }

    fn read_for(
        &self,
        job: Job,
        mode: Mode,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        read(job, mode, room)
    }

    fn readable_for(&self, job: Job, mode: Mode) -> Result<bool, Error> {
        with(|shared| shared.may_read(job) && shared.console.is_readable(mode))
    }

    fn set_mode_for(&self, job: Job, mode: Mode) -> Result<(), Error> {
        with(|shared| {
            if !shared.may_read(job) {
                return Err(Error::Denied);
            }
            shared.news += u64::from(shared.console.set_mode(mode));
            Ok(())
        })?
    }

    async fn news(&self, seen: u64) -> Result<u64, Error> {
        let now = with(|shared| shared.news)?;
        if now != seen {
            return Ok(now);
        }
        let news = || look(|shared| shared.news).map(|news| (news != seen).then_some(news));
        NEWS.until(|| news().transpose()).await
    }
}

/// Opens a session for a client: at door 0 one for programs, at the other door one with control.
fn open(
    visitor: &Visitor,
) -> Result<Either<ConsoleStub<User>, ConsoleControlStub<Control>>, Error> {
    match (visitor.door, visitor.interface) {
        (0, ConsoleClient::ID) => Ok(Either::First(Rc::new(ConsoleStub(User {
            job: visitor.job.into(),
        })))),
        (CONTROL, ConsoleControlClient::ID) => {
            Ok(Either::Second(Rc::new(ConsoleControlStub(Control))))
        }
        _ => Err(Error::Denied),
    }
}

fn serve(door: RefAt) -> Result<Infallible, Error> {
    // Kept as long as the server runs.
    let _devices = attach(door)?;
    rt::names::serve("console", open)
}

fn main() -> u8 {
    if let Some(door) = rt::start::passed(0) {
        let Err(_) = serve(door);
    }
    1
}
