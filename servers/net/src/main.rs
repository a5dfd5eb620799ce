//! The network server. Its first thread has the sockets and never waits for anybody but its clients; another one
//! carries frames to and from the driver, whoever that is at the moment, and a third one hears when that is gone.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::cell::RefCell;
use core::convert::Infallible;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;
use fermata_net::{Address, Batch, Leaving, Options, Session, Shared, Stack, ROOM};
use interface::server::{Host, Visitor};
use interface::Server;
use proto::Error;
use rt::obj::{Ref, RefAt};
use rt::sync::{Lazy, Mutex};
use rt::time::Pauses;
use rt::{thread, time};
use services::link::{frames, LinkClient, BATCH};
use services::net::NetworkStub;

rt::entry!(main);

/// Batches that there are: one that has come, one that is to leave, the two of the thread that carries them, a spare
/// one, and two of each network's queues.
const BATCHES: usize = 9;

/// How often is looked for a driver, in nanoseconds: at first, and in the end, if there is none.
const PAUSES: [u64; 2] = [1_000_000, 2_000_000_000];

/// A batch that has come, and that the first thread has not taken.
static CAME: Mutex<Batch> = Mutex::new(Batch::new());
/// Whether there is one.
static HAS_COME: AtomicBool = AtomicBool::new(false);
/// A batch that is to leave.
static LEAVES: Mutex<Leaving> = Mutex::new(Leaving::new());

/// A session with the driver that there is now. Waits for one.
fn driver() -> LinkClient {
    let mut pauses = Pauses::new(PAUSES);
    loop {
        let session = rt::names::control("link").and_then(|door| LinkClient::open_known(&door));
        match session {
            Ok(session) => return session,
            Err(_) => pauses.pause(),
        }
    }
}

/// There is another driver than before.
static NEW: AtomicBool = AtomicBool::new(false);

/// The thread that hears so when a driver is gone: the one that carries frames waits for interrupts only, and a driver
/// that is gone sends none.
fn watch() {
    loop {
        let mut session = driver();
        NEW.store(true, Ordering::Release);
        interrupt_carrier();
        let _ = session.ended();
        // Whatever a driver says that does not keep to it.
        time::sleep(PAUSES[0]);
    }
}

/// The thread that carries frames.
static CARRIER: Lazy<Ref> = Lazy::new();

fn interrupt_carrier() {
    if let Ok(carrier) = CARRIER.get(|| Err(Error::NotFound)) {
        let _ = carrier.interrupt();
    }
}

/// What the thread that carries frames has.
struct Carrier {
    link: LinkClient,
    came: Batch,
    leaves: Batch,
    /// How much of what leaves the card has.
    sent: usize,
}

impl Carrier {
    /// A session with the driver that there is now, which interrupts this thread.
    fn attach() -> LinkClient {
        let mut pauses = Pauses::new(PAUSES);
        loop {
            let mut link = driver();
            let told = CARRIER.get(|| Err(Error::NotFound));
            if told.and_then(|carrier| link.tell(carrier)).is_ok() {
                return link;
            }
            pauses.pause();
        }
    }

    /// Sends what leaves, and takes what has come: all of it, but for what there is no room for. Then there is nothing
    /// to do until this thread is interrupted.
    fn turn(&mut self, bell: &Ref) -> Result<(), Error> {
        if self.leaves.is_empty() {
            LEAVES.lock().take(&mut self.leaves);
            self.sent = 0;
        }
        let mut has_come = true;
        if !self.leaves.is_empty() {
            let rest = self.leaves.bytes().get(self.sent..).unwrap_or_default();
            self.sent += match self.link.send(rest) {
                Ok((count, came)) => {
                    has_come = came;
                    let taken = frames(rest).take(count as usize);
                    taken.map(|frame| 2 + frame.len()).sum()
                }
                // One that no driver takes.
                Err(Error::Invalid) => rest.len(),
                Err(error) => return Err(error),
            };
            if self.sent >= self.leaves.bytes().len() {
                self.leaves.clear();
                if LEAVES.lock().sent() {
                    // It has given more, if it could, when it lets go.
                    let _ = bell.poke();
                }
            }
        }
        if has_come {
            let length = self.link.receive(self.came.memory(BATCH))?;
            if length > 0 {
                self.came.set_length(length);
                // It gets this memory for what it has.
                core::mem::swap(&mut *CAME.lock(), &mut self.came);
                HAS_COME.store(true, Ordering::Release);
                // It has taken them when it lets go.
                let _ = bell.poke();
            }
        }
        Ok(())
    }
}

/// The thread that carries frames between the driver and the first thread.
fn carry(bell: &Ref) {
    // There is no driver before this thread is known.
    while !NEW.swap(false, Ordering::Acquire) {
        rt::sys::thread_wait_interrupt();
    }
    let mut carrier = Carrier {
        link: Carrier::attach(),
        came: Batch::new(),
        leaves: Batch::new(),
        sent: 0,
    };
    loop {
        let is_new = NEW.swap(false, Ordering::Acquire);
        if is_new || carrier.turn(bell).is_err() {
            if !is_new {
                // One that opens sessions and refuses everything else is asked at this pace.
                time::sleep(PAUSES[0]);
            }
            carrier.link = Carrier::attach();
            continue;
        }
        rt::sys::thread_wait_interrupt();
    }
}

/// The first thread.
struct Net {
    shared: Shared,
    /// Memory for batches.
    spare: Batch,
    deadline: Option<u64>,
}

impl Net {
    /// Gives the thread that carries frames what is to leave, if it has nothing to send. Whether it did.
    fn pass_on(&mut self) -> bool {
        let mut stack = self.shared.borrow_mut();
        if !stack.has_leaving() || !LEAVES.lock().give(&mut stack, &mut self.spare) {
            return false;
        }
        interrupt_carrier();
        true
    }
}

impl Host<NetworkStub<Session>> for Net {
    fn open(&mut self, visitor: &Visitor) -> Result<NetworkStub<Session>, Error> {
        rt::heap::want(4096)?;
        Ok(NetworkStub(Session::new(&self.shared, visitor.job)))
    }

    fn deadline(&mut self) -> Option<u64> {
        // What clients were given to do since, or what left in the middle of it, has changed something.
        match self.shared.borrow().is_due() {
            true => Some(0),
            false => self.deadline,
        }
    }

    fn settle(&mut self) {
        if HAS_COME.swap(false, Ordering::Acquire) {
            self.shared.borrow_mut().came(&mut CAME.lock());
        }
        let now = time::now();
        self.deadline = self.shared.borrow_mut().turn(now);
        if self.pass_on() {
            // What found no room does now.
            self.deadline = self.shared.borrow_mut().turn(now);
            self.pass_on();
        }
    }
}

/// A number that nobody can guess.
fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    rt::random::fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A thread of a client that is interrupted when it may go on.
struct Watcher(Ref);

impl Wake for Watcher {
    fn wake(self: Arc<Self>) {
        // One that is gone has nothing to go on with.
        let _ = self.0.interrupt();
    }
}

/// What interrupts the thread that this names.
fn watcher(thread: &RefAt) -> Result<Waker, Error> {
    rt::heap::want(4096)?;
    let thread = thread.copy().map_err(rt::error_of)?;
    Ok(Arc::new(Watcher(thread)).into())
}

fn serve() -> Result<Infallible, Error> {
    // From here on memory is reserved before it is touched.
    rt::heap::want((BATCHES * ROOM) as u64)?;
    let mut env = rt::start().env.iter();
    let address = match env.find_map(|word| word.strip_prefix("ADDRESS=")) {
        Some(text) => Some(Address::read(text).ok_or(Error::Invalid)?),
        None => None,
    };
    let now = time::now();
    let mut pauses = Pauses::new(PAUSES);
    let card = loop {
        if let Ok(card) = driver().address() {
            break card;
        }
        pauses.pause();
    };
    let options = Options {
        card,
        address,
        seeds: [random()?, random()?],
        random,
        clock: time::now,
        reserve: rt::heap::want,
        watcher,
    };
    let shared = Rc::new(RefCell::new(Stack::new(options, now)));
    let mut server = Server::new(Net {
        shared,
        spare: Batch::new(),
        deadline: None,
    })?;
    server.knows(rt::names::job_of, rt::heap::want);
    let bell = server.bell()?;
    let carrier = thread::spawn(move || carry(&bell)).map_err(rt::error_of)?;
    CARRIER.set(carrier.reference().map_err(rt::error_of)?);
    thread::spawn(watch).map_err(rt::error_of)?;
    rt::names::register("net", server.door())?;
    server.run()
}

fn main() -> u8 {
    let Err(error) = serve();
    rt::log!("net: {}", error.text());
    1
}
