//! The network server. Its first thread has the sockets and waits for nobody but its clients. A second one carries
//! frames to and from the present driver, and a third one notices when that driver is gone.
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

/// How many batches need memory: one that has come, one that is to leave, two of the thread that carries frames, a
/// spare one, and two in the queue of each network.
const BATCHES: usize = 9;

/// The pause between two attempts to reach a driver, in nanoseconds: the first one, and the longest.
const PAUSES: [u64; 2] = [1_000_000, 2_000_000_000];

/// A batch that has come and that the first thread has not taken yet.
static CAME: Mutex<Batch> = Mutex::new(Batch::new());
/// Whether there is such a batch.
static HAS_COME: AtomicBool = AtomicBool::new(false);
/// The batch that is to leave.
static LEAVES: Mutex<Leaving> = Mutex::new(Leaving::new());

/// Opens a session with the present driver, and waits until there is one.
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

/// Whether there is another driver than before.
static NEW: AtomicBool = AtomicBool::new(false);

/// The thread that notices when a driver is gone. The thread that carries frames cannot: it only waits for interrupts,
/// and a driver that is gone sends none.
fn watch() {
    loop {
        let mut session = driver();
        NEW.store(true, Ordering::Release);
        interrupt_carrier();
        let _ = session.ended();
        // A pause, in case the driver ends the request although it is not gone.
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

/// The state of the thread that carries frames.
struct Carrier {
    link: LinkClient,
    came: Batch,
    leaves: Batch,
    /// How many bytes of `leaves` the card has been given.
    sent: usize,
}

impl Carrier {
    /// Opens a session with the present driver and has it interrupt this thread.
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

    /// Sends what is to leave and takes what has come, as far as there is room. Afterwards there is nothing to do until
    /// this thread is interrupted.
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
                // No driver takes such frames: the rest of the batch is dropped.
                Err(Error::Invalid) => rest.len(),
                Err(error) => return Err(error),
            };
            if self.sent >= self.leaves.bytes().len() {
                self.leaves.clear();
                if LEAVES.lock().sent() {
                    // Has the first thread make a turn, in which it gives more.
                    let _ = bell.poke();
                }
            }
        }
        if has_come {
            let length = self.link.receive(self.came.memory(BATCH))?;
            if length > 0 {
                self.came.set_length(length);
                // The first thread gets this memory in exchange when it takes the batch.
                core::mem::swap(&mut *CAME.lock(), &mut self.came);
                HAS_COME.store(true, Ordering::Release);
                // Has the first thread make a turn, in which it takes the batch.
                let _ = bell.poke();
            }
        }
        Ok(())
    }
}

/// The thread that carries frames between the driver and the first thread.
fn carry(bell: &Ref) {
    // The thread that watches the driver interrupts this one when there is a driver.
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
                // A pause, for a driver that opens sessions and refuses everything else.
                time::sleep(PAUSES[0]);
            }
            carrier.link = Carrier::attach();
            continue;
        }
        rt::sys::thread_wait_interrupt();
    }
}

/// The server's host, on the first thread.
struct Net {
    shared: Shared,
    /// Memory to be exchanged for batches.
    spare: Batch,
    deadline: Option<u64>,
}

impl Net {
    /// Gives the leaving frames to the thread that carries frames, if it has nothing to send. Returns whether it did.
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
        // A request since the last turn, or frames taken in the middle of it, have left the stack something to do.
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
            // Frames for which there was no room before have room in a second turn.
            self.deadline = self.shared.borrow_mut().turn(now);
            self.pass_on();
        }
    }
}

/// A random number that nobody can guess.
fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    rt::random::fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Interrupts a client's thread when the client may continue.
struct Watcher(Ref);

impl Wake for Watcher {
    fn wake(self: Arc<Self>) {
        // The thread may be gone.
        let _ = self.0.interrupt();
    }
}

/// A waker that interrupts the named thread.
fn watcher(thread: &RefAt) -> Result<Waker, Error> {
    rt::heap::want(4096)?;
    let thread = thread.copy().map_err(rt::error_of)?;
    Ok(Arc::new(Watcher(thread)).into())
}

fn serve() -> Result<Infallible, Error> {
    // Memory is reserved before it is touched, from here on.
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
