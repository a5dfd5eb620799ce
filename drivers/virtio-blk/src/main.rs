//! The driver of virtio disks; see README.md.
#![no_std]
#![no_main]

extern crate alloc;

use abi::PAGE_SIZE;
use alloc::rc::Rc;
use core::cell::Cell;
use core::convert::Infallible;
use core::ops::Deref;
use fermata_virtio_blk::{fits, Kind, Requests, Session, Slot};
use interface::server::{Event, Visitor};
use interface::Error;
use rt::sync::Mutex;
use services::block::{Block, BlockClient, BlockStub, MOST, OUTSTANDING, SECTOR};
use virtio::{Arena, Device, Glue, Registers, VERSION_1};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;

rt::entry!(main);

/// Descriptors of the queue; a request takes three.
const QUEUE: usize = 128;
/// Most requests that the device has at a time.
const SLOTS: usize = 40;
const _: () = assert!(3 * SLOTS <= QUEUE && SLOTS >= OUTSTANDING);
/// Priority of the thread that waits for the device.
const PRIORITY: u64 = proto::layout::PRIORITY_SERVER + 1;
/// The door that leads to the disk. Door 0, which every program finds by name, leads nowhere.
const CONTROL: u64 = 1;

/// Feature bits of the device.
mod feature {
    pub(crate) const READ_ONLY: u64 = 1 << 5;
    pub(crate) const FLUSH: u64 = 1 << 9;
}

/// Types of requests (virtio 1.2, section 5.2.6).
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
/// The status of a request before the device has set it.
const NO_STATUS: u8 = 0xff;

/// The layout of the memory that the device reaches: pages of the queue, then a header for each slot, then the data
/// of each slot.
const HEADERS: usize = 8 * PAGE_SIZE as usize;
const DATA: usize = HEADERS + PAGE_SIZE as usize;
/// The distance between headers, and the offset of a request's status behind its header.
const HEADER: usize = 32;
const STATUS: usize = 16;
const _: () = assert!(SLOTS * HEADER <= PAGE_SIZE as usize);

struct Disk {
    transport: Registers,
    queue: VirtQueue<Glue, QUEUE>,
    arena: &'static Arena,
    requests: Requests,
    /// The slot of each descriptor chain.
    slots: [Option<Slot>; QUEUE],
    /// Bytes of data of each slot that the device has, and the type of its request.
    lengths: [(usize, u32); SLOTS],
    sectors: u64,
    features: u64,
    /// The device has reported something impossible.
    broken: bool,
}

static DISK: Mutex<Option<Disk>> = Mutex::new(None);
/// Wakes tasks that wait until a request is done.
static DONE: Event = Event::new();

/// Does something with the disk. If the device reports something impossible the driver ends, and answers no client
/// meanwhile: the next driver resets the device, which is the only remedy, and gets the requests again.
fn with<T>(f: impl FnOnce(&mut Disk) -> Result<T, Error>) -> Result<T, Error> {
    let mut disk = DISK.lock();
    let disk = disk.as_mut().ok_or(Error::Broken)?;
    let result = f(disk);
    if disk.broken {
        rt::log!("virtio-blk: the device makes no sense");
        rt::process::exit(1);
    }
    result
}

/// The buffers that the device reads and those that it writes for the request in a slot, as slices of the arena.
macro_rules! with_buffers {
    ($disk:expr, $slot:expr, |$inputs:ident, $outputs:ident| $body:expr) => {{
        let (bytes, kind) = $disk.lengths[$slot];
        let (header, data) = (HEADERS + $slot * HEADER, DATA + $slot * MOST as usize);
        let head = $disk.arena.slice(header, STATUS);
        let status = $disk.arena.slice_mut(header + STATUS, 1);
        match kind {
            IN => {
                let data = $disk.arena.slice_mut(data, bytes);
                let ($inputs, $outputs): (&[&[u8]], &mut [&mut [u8]]) =
                    (&[head], &mut [data, status]);
                $body
            }
            OUT => {
                let data = $disk.arena.slice(data, bytes);
                let ($inputs, $outputs): (&[&[u8]], &mut [&mut [u8]]) =
                    (&[head, data], &mut [status]);
                $body
            }
            _ => {
                let ($inputs, $outputs): (&[&[u8]], &mut [&mut [u8]]) = (&[head], &mut [status]);
                $body
            }
        }
    }};
}

impl Disk {
    /// Gives the device the request in a slot, whose data is there.
    fn issue(&mut self, slot: Slot, kind: u32, sector: u64, bytes: usize) -> Result<(), Error> {
        let header = HEADERS + slot * HEADER;
        self.arena.write(header, &kind.to_le_bytes());
        self.arena.write(header + 4, &[0; 4]);
        self.arena.write(header + 8, &sector.to_le_bytes());
        self.arena.write(header + STATUS, &[NO_STATUS]);
        self.lengths[slot] = (bytes, kind);
        // SAFETY: they are in the arena, which stays; no thread accesses those of a slot that the device has.
        let added = with_buffers!(self, slot, |inputs, outputs| unsafe {
            self.queue.add(inputs, outputs)
        });
        match added {
            Ok(token) => {
                self.slots[usize::from(token)] = Some(slot);
                if virtio::must_notify(&self.queue) {
                    self.transport.notify(0);
                }
                Ok(())
            }
            Err(_) => {
                self.requests.withdraw(slot);
                Err(Error::WouldBlock)
            }
        }
    }

    /// Takes what the device has done. Returns whether there was anything.
    fn drain(&mut self) -> bool {
        let mut some = false;
        while let Some(token) = self.queue.peek_used() {
            let slot = self
                .slots
                .get_mut(usize::from(token))
                .and_then(Option::take);
            let Some(slot) = slot else {
                // The device returns a token that it was not given.
                self.broken = true;
                return true;
            };
            // SAFETY: the buffers that were added for this slot, which no other request has.
            let popped = with_buffers!(self, slot, |inputs, outputs| unsafe {
                self.queue.pop_used(token, inputs, outputs)
            });
            let Ok(written) = popped else {
                // The device has changed its report in between: it may still be using the buffers.
                self.broken = true;
                return true;
            };
            let status = self.arena.slice(HEADERS + slot * HEADER + STATUS, 1)[0];
            let failed = status != 0 || !self.requests.is_whole(slot, written);
            self.broken |= !self.requests.complete(slot, failed);
            some = true;
        }
        some
    }
}

/// Serves an interrupt of the device: takes what is done. Returns whether there was anything.
fn serve_interrupt() -> bool {
    let some = with(|disk| {
        // The line stays up until this has been read.
        disk.transport.ack_interrupt();
        Ok(disk.drain())
    });
    if some == Ok(true) {
        DONE.happened();
    }
    some == Ok(true)
}

/// A client's session.
struct Client {
    session: Session,
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = with(|disk| {
            disk.requests.end(self.session);
            Ok(())
        });
        DONE.happened();
    }
}

impl Block for Client {
    fn geometry(&self) -> Result<(u64, bool), Error> {
        with(|disk| Ok((disk.sectors, disk.features & feature::READ_ONLY == 0)))
    }

    fn read(&self, tag: u64, sector: u64, sectors: u64) -> Result<(), Error> {
        with(|disk| {
            let bytes = sectors.checked_mul(SECTOR).ok_or(Error::Invalid)?;
            if !fits(sector, bytes, disk.sectors) {
                return Err(Error::Invalid);
            }
            let kind = Kind::Read(bytes as usize);
            let slot = disk.requests.submit(self.session, tag, kind)?;
            disk.issue(slot, IN, sector, bytes as usize)
        })
    }

    fn write(&self, tag: u64, sector: u64, data: &[u8]) -> Result<(), Error> {
        with(|disk| {
            if disk.features & feature::READ_ONLY != 0 {
                return Err(Error::Denied);
            }
            if !fits(sector, data.len() as u64, disk.sectors) {
                return Err(Error::Invalid);
            }
            let slot = disk.requests.submit(self.session, tag, Kind::Write)?;
            disk.arena.write(DATA + slot * MOST as usize, data);
            disk.issue(slot, OUT, sector, data.len())
        })
    }

    fn flush(&self, tag: u64) -> Result<(), Error> {
        with(|disk| {
            let slot = disk.requests.submit(self.session, tag, Kind::Flush)?;
            if disk.features & feature::FLUSH == 0 {
                // A device without a cache: a write that is done is permanent.
                disk.requests.complete(slot, false);
                return Ok(());
            }
            disk.issue(slot, FLUSH, 0, 0)
        })
    }

    async fn done(&self) -> Result<(u64, u64), Error> {
        let done = || with(|disk| disk.requests.tell(self.session));
        let told = DONE.until(|| done().transpose()).await?;
        // A slot may be free that others wait for.
        DONE.happened();
        Ok(told)
    }

    fn data(&self, tag: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        with(|disk| {
            let (slot, bytes) = disk.requests.data(self.session, tag)?;
            if bytes > room {
                return Err(Error::Invalid);
            }
            Ok(disk.arena.slice(DATA + slot * MOST as usize, bytes))
        })
    }

    fn release(&self, tag: u64) -> Result<(), Error> {
        with(|disk| disk.requests.release(self.session, tag))?;
        DONE.happened();
        Ok(())
    }

    async fn room(&self) -> Result<(), Error> {
        let room = || with(|disk| Ok(disk.requests.has_room(self.session).then_some(())));
        DONE.until(|| room().transpose()).await
    }
}

/// Starts the device.
fn start(device: &Device) -> Result<Disk, Error> {
    let mut transport = device.transport()?;
    // A small machine, or one with many drivers, has memory for few slots.
    let (arena, slots) = device.arena_of_slots(DATA, MOST as usize, SLOTS)?;
    let wanted = feature::READ_ONLY | feature::FLUSH | VERSION_1;
    let features = virtio::negotiate(&mut transport, wanted, 0)?;
    let word = |offset| transport.read_config_space::<u32>(offset).map(u64::from);
    let (low, high) = (word(0), word(4));
    let (Ok(low), Ok(high)) = (low, high) else {
        return Err(Error::Unsupported);
    };
    let queue = VirtQueue::new(&mut *transport, 0, false, false).map_err(|_| Error::Unsupported)?;
    virtio::begin(&mut transport);
    Ok(Disk {
        transport,
        queue,
        arena,
        requests: Requests::new(slots),
        slots: [None; QUEUE],
        lengths: [(0, FLUSH); SLOTS],
        sectors: high << 32 | low,
        features,
        broken: false,
    })
}

fn serve() -> Result<Infallible, Error> {
    let door = rt::start::passed(0).ok_or(Error::Invalid)?;
    // Until the driver ends.
    let device = Device::find(door)?;
    let disk = start(&device)?;
    *DISK.lock() = Some(disk);
    device.interrupts(PRIORITY, serve_interrupt)?;
    let sessions = Rc::new(Cell::new(0));
    let open = move |visitor: &Visitor| {
        if visitor.door != CONTROL || visitor.interface != BlockClient::ID {
            return Err(Error::Denied);
        }
        sessions.set(sessions.get() + 1);
        Ok(BlockStub(Client {
            session: sessions.get(),
        }))
    };
    rt::names::serve("disk", open)
}

fn main() -> u8 {
    let Err(error) = serve();
    rt::log!("virtio-blk: {}", error.text());
    1
}
