//! The network server. Its first thread has the sockets and never waits for anybody but its clients; two more carry frames to and from the driver, whoever
//! that is at the moment.
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
use fermata_net::{Address, Batch, Leaving, Options, Session, Shared, Stack};
use interface::server::{Host, Visitor};
use interface::Server;
use proto::Error;
use rt::obj::{Ref, RefAt};
use rt::sync::{Lazy, Mutex};
use rt::{thread, time};
use services::link::{frames, LinkClient, BATCH};
use services::net::NetworkStub;

rt::entry!(main);

/// How often is looked for a driver, in nanoseconds.
const PAUSE: u64 = 1_000_000;

/// A batch that has come, and that the first thread has not taken.
static CAME: Mutex<Batch> = Mutex::new(Batch::new());
/// Whether there is one.
static HAS_COME: AtomicBool = AtomicBool::new(false);
/// A batch that is to leave.
static LEAVES: Mutex<Leaving> = Mutex::new(Leaving::new());

/// A session with the driver that there is now. Waits for one.
fn driver() -> LinkClient {
    loop {
        let session = rt::names::control("link").and_then(|door| LinkClient::open_known(&door));
        match session {
            Ok(session) => return session,
            Err(_) => time::sleep(PAUSE),
        }
    }
}

/// The thread that receives.
fn receive(bell: &Ref) {
    let mut batch = Batch::new();
    loop {
        let mut session = driver();
        while let Ok(length) = session.receive(batch.memory(BATCH)) {
            batch.set_length(length);
            // It gets this memory for what it has.
            core::mem::swap(&mut *CAME.lock(), &mut batch);
            HAS_COME.store(true, Ordering::Release);
            // It has taken them when it lets go.
            let _ = bell.poke();
        }
    }
}

/// The thread that sends.
fn send(bell: &Ref) {
    let mut batch = Batch::new();
    let mut session = driver();
    loop {
        batch.clear();
        LEAVES.lock().take(&mut batch);
        if batch.is_empty() {
            rt::sys::thread_wait_interrupt();
            continue;
        }
        let mut rest = batch.bytes();
        while !rest.is_empty() {
            let sent = match session.send(rest) {
                Ok(0) => session.room().map(|()| 0),
                sent => sent,
            };
            match sent {
                Ok(count) => {
                    let taken = frames(rest).take(count as usize);
                    let bytes: usize = taken.map(|frame| 2 + frame.len()).sum();
                    rest = &rest[bytes..];
                }
                Err(Error::Broken) => session = driver(),
                // One that no driver takes.
                Err(_) => break,
            }
        }
        let more = LEAVES.lock().sent();
        if more {
            // It has given it, if it could, when it lets go.
            let _ = bell.poke();
        }
    }
}

/// The first thread.
struct Net {
    shared: Shared,
    /// Memory for batches.
    spare: Batch,
    deadline: Option<u64>,
}

/// The thread that sends.
static SENDER: Lazy<Ref> = Lazy::new();

impl Net {
    /// Gives the thread that sends what is to leave, if it has nothing. Whether it did.
    fn pass_on(&mut self) -> bool {
        let mut stack = self.shared.borrow_mut();
        if !stack.has_leaving() || !LEAVES.lock().give(&mut stack, &mut self.spare) {
            return false;
        }
        if let Ok(sender) = SENDER.get(|| Err(Error::NotFound)) {
            let _ = sender.interrupt();
        }
        true
    }
}

impl Host<NetworkStub<Session>> for Net {
    fn open(&mut self, visitor: &Visitor) -> Result<NetworkStub<Session>, Error> {
        rt::heap::want(4096)?;
        Ok(NetworkStub(Session::new(&self.shared, visitor.job)))
    }

    fn deadline(&mut self) -> Option<u64> {
        self.deadline
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
    rt::heap::want(8 * BATCH as u64)?;
    let mut env = rt::start().env.iter();
    let address = match env.find_map(|word| word.strip_prefix("ADDRESS=")) {
        Some(text) => Some(Address::read(text).ok_or(Error::Invalid)?),
        None => None,
    };
    let now = time::now();
    let card = loop {
        if let Ok(card) = driver().address() {
            break card;
        }
        time::sleep(PAUSE);
    };
    let options = Options {
        card,
        address,
        seeds: [random()?, random()?],
        random,
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
    let (receiver, sender) = (server.bell()?, server.bell()?);
    let sender = thread::spawn(move || send(&sender)).map_err(rt::error_of)?;
    SENDER.set(sender.reference().map_err(rt::error_of)?);
    thread::spawn(move || receive(&receiver)).map_err(rt::error_of)?;
    rt::names::register("net", server.door())?;
    server.run()
}

fn main() -> u8 {
    let Err(error) = serve();
    rt::println!("net: {}", error.text());
    1
}
