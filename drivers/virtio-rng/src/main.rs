//! The driver of virtio devices of random numbers: README.md of the room.
//!
//! The device is asked when the client asks, for [`MOST`] bytes at a time. The bytes stay in the memory that the
//! device reaches until the client takes them, and are cleared then: if a device reports bytes that it has not
//! written, the client gets zeros and never earlier bytes.
#![no_std]
#![no_main]

extern crate alloc;

use abi::PAGE_SIZE;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::convert::Infallible;
use fermata_virtio_rng::{Nonsense, Place, MOST};
use interface::server::{Event, Visitor};
use interface::Error;
use rt::sync::Mutex;
use services::entropy::{Entropy, EntropyClient, EntropyStub};
use virtio::{Arena, Device, Glue, Registers, VERSION_1};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;

rt::entry!(main);

/// Descriptors of the queue, of which one is used.
const QUEUE: usize = 8;
/// The queue.
const REQUESTS: u16 = 0;
/// Priority of the thread that waits for the device: no client is in a hurry, and a device that interrupts all the
/// time takes its turn among programs.
const PRIORITY: u64 = proto::layout::PRIORITY_PROGRAM;
/// The door that leads to the bytes. Door 0, which every program finds by name, leads nowhere.
const CONTROL: u64 = 1;

/// The layout of the memory that the device reaches: pages of the queue, then the place for bytes.
const PLACE: usize = 4 * PAGE_SIZE as usize;

struct Source {
    transport: Registers,
    queue: VirtQueue<Glue, QUEUE>,
    arena: &'static Arena,
    place: Place,
}

static SOURCE: Mutex<Option<Source>> = Mutex::new(None);
/// Bytes may have arrived.
static CAME: Event = Event::new();

/// Does something with the device. If it reports something impossible the driver ends: the next driver resets it,
/// which is the only remedy.
fn ask<T>(f: impl FnOnce(&mut Source) -> Result<T, Nonsense>) -> Result<T, Error> {
    let mut source = SOURCE.lock();
    let source = source.as_mut().ok_or(Error::Broken)?;
    f(source).map_err(|Nonsense| {
        rt::log!("virtio-rng: the device makes no sense");
        rt::process::exit(1);
    })
}

impl Source {
    /// Takes the bytes that have come. `None`: the device has been asked for some, and interrupts when they are
    /// there.
    fn take(&mut self) -> Result<Option<Vec<u8>>, Nonsense> {
        self.drain()?;
        if let Some(length) = self.place.take() {
            let bytes = self.arena.slice(PLACE, length).to_vec();
            self.arena.write(PLACE, &[0; MOST]);
            return Ok(Some(bytes));
        }
        if self.place == Place::Free {
            let room = self.arena.slice_mut(PLACE, MOST);
            // SAFETY: it is in the arena, which stays; no thread accesses it while the device has it.
            let token = unsafe { self.queue.add(&[], &mut [room]) };
            self.place.give(token.map_err(|_| Nonsense)?);
            if virtio::must_notify(&self.queue) {
                self.transport.notify(REQUESTS);
            }
        }
        Ok(None)
    }

    /// Checks whether the device is done. Returns whether it has become done since the last check.
    fn drain(&mut self) -> Result<bool, Nonsense> {
        let mut some = false;
        // The device has one buffer at most, so it can be done with one at most.
        while let Some(token) = self.queue.peek_used() {
            self.place.expects(token)?;
            let room = self.arena.slice_mut(PLACE, MOST);
            // SAFETY: the buffer that was added with this token.
            let length = unsafe { self.queue.pop_used(token, &[], &mut [room]) };
            self.place.done(length.map_err(|_| Nonsense)?)?;
            some = true;
        }
        Ok(some)
    }
}

/// Serves an interrupt of the device: wakes the waiting task. Returns whether bytes have come.
fn serve_interrupt() -> bool {
    let some = ask(|source| {
        // The line stays up until this has been read.
        source.transport.ack_interrupt();
        source.drain()
    });
    CAME.happened();
    some == Ok(true)
}

/// The client's session: there is one.
struct Client(Rc<Cell<bool>>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Entropy for Client {
    async fn bytes(&self, room: usize) -> Result<Vec<u8>, Error> {
        if room < MOST {
            return Err(Error::Invalid);
        }
        let came = || ask(Source::take);
        CAME.until(|| came().transpose()).await
    }
}

/// Starts the device.
fn start(device: &Device) -> Result<Source, Error> {
    let mut transport = device.transport()?;
    let (arena, _) = device.arena_of_slots(PLACE, PAGE_SIZE as usize, 1)?;
    virtio::negotiate(&mut transport, 0, VERSION_1)?;
    let queue = VirtQueue::new(&mut *transport, REQUESTS, false, false);
    let queue = queue.map_err(|_| Error::Unsupported)?;
    virtio::begin(&mut transport);
    Ok(Source {
        transport,
        queue,
        arena,
        place: Place::default(),
    })
}

fn serve() -> Result<Infallible, Error> {
    let door = rt::start::passed(0).ok_or(Error::Invalid)?;
    // Until the driver ends.
    let device = Device::find(door)?;
    let source = start(&device)?;
    *SOURCE.lock() = Some(source);
    device.interrupts(PRIORITY, serve_interrupt)?;
    let taken = Rc::new(Cell::new(false));
    let open = move |visitor: &Visitor| {
        let leads_here = visitor.door == CONTROL && visitor.interface == EntropyClient::ID;
        if !leads_here || taken.replace(true) {
            return Err(Error::Denied);
        }
        Ok(EntropyStub(Client(Rc::clone(&taken))))
    };
    rt::names::serve("entropy", open)
}

fn main() -> u8 {
    let Err(error) = serve();
    rt::log!("virtio-rng: {}", error.text());
    1
}
