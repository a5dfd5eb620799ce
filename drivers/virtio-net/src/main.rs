//! The driver of virtio network cards: README.md of the room.
//!
//! Frames stay in the memory that the device reaches until the client takes them, and only then does the device get
//! their slots back: it drops frames that come faster than the client takes them. Between its first frame and the
//! client's next request the device does not interrupt. The thread that its interrupts wake only interrupts the
//! client's thread: the client's request looks for frames, so each batch of frames wakes the driver once.
#![no_std]
#![no_main]

extern crate alloc;

use abi::PAGE_SIZE;
use alloc::vec::Vec;
use core::cell::Cell;
use core::convert::Infallible;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use fermata_virtio_net::{Slot, Slots};
use interface::server::{Visitor, Watchers};
use interface::Error;
use rt::obj::RefAt;
use rt::sync::{Guard, Mutex};
use services::link::{frames, push, Link, LinkClient, LinkStub, FRAME, MOST};
use virtio::{Arena, Device, Glue, Registers, VERSION_1};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;

rt::entry!(main);

/// Descriptors of each queue; a frame takes one.
const QUEUE: usize = 64;
/// The queues.
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
/// Priority of the thread that waits for the device.
const PRIORITY: u64 = proto::layout::PRIORITY_SERVER + 1;
/// The door that leads to the frames. Door 0, which every program finds by name, leads nowhere.
const CONTROL: u64 = 1;

/// The feature of cards that know their own address.
const ADDRESS: u64 = 1 << 5;

/// Bytes before each frame; they have no meaning without features that this driver does not request.
const HEADER: usize = 12;
/// The layout of the memory that the device reaches: pages of the queues, then the slots.
const SLOTS: usize = 8 * PAGE_SIZE as usize;
/// Bytes of a slot.
const SLOT: usize = 2048;
const _: () = assert!(HEADER + FRAME <= SLOT);

struct Card {
    transport: Registers,
    receive: VirtQueue<Glue, QUEUE>,
    transmit: VirtQueue<Glue, QUEUE>,
    arena: &'static Arena,
    /// Slots of the queues.
    into: Slots,
    out: Slots,
    /// Bytes of the frame that is being sent from each slot.
    lengths: Vec<usize>,
    address: u64,
    /// The client has asked since the device last interrupted, so that the device may interrupt again.
    is_to_interrupt: bool,
}

static CARD: Mutex<Option<Card>> = Mutex::new(None);
/// The watchers whose threads are interrupted when frames have come, or when there is room to send.
static WATCHERS: Watchers = Watchers::new();
/// The batch that is on its way to a client.
static BATCH: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Does something with the card. If the device reports something impossible the driver ends: the next driver resets
/// the device, which is the only remedy.
fn ask<T>(f: impl FnOnce(&mut Card) -> Result<T, Error>) -> Result<T, Error> {
    let mut card = CARD.lock();
    let card = card.as_mut().ok_or(Error::Broken)?;
    let result = f(card);
    if matches!(result, Err(Error::Broken)) {
        rt::log!("virtio-net: the device makes no sense");
        rt::process::exit(1);
    }
    result
}

impl Card {
    /// The bytes of a slot.
    fn slot(&self, slot: Slot, size: usize) -> &'static [u8] {
        self.arena.slice(SLOTS + slot * SLOT, size)
    }

    /// Gives the device all free slots to receive into.
    fn refill(&mut self) {
        while let Some(slot) = self.into.take() {
            let place = self.arena.slice_mut(SLOTS + slot * SLOT, SLOT);
            // SAFETY: it is in the arena, which stays; no thread accesses a slot that the device has.
            match unsafe { self.receive.add(&[], &mut [place]) } {
                Ok(token) => self.into.give(slot, token),
                Err(_) => {
                    self.into.put(slot);
                    break;
                }
            }
        }
        if virtio::must_notify(&self.receive) {
            self.transport.notify(RECEIVE);
        }
    }

    /// Takes frames that have come, at most so many. Returns whether there may be more.
    fn take(&mut self, most: usize, batch: &mut Vec<u8>) -> Result<bool, Error> {
        let mut left = most;
        while left > 0 {
            let Some(token) = self.receive.peek_used() else {
                break;
            };
            let Some(slot) = self.into.done(token) else {
                return Err(Error::Broken);
            };
            let place = self.arena.slice_mut(SLOTS + slot * SLOT, SLOT);
            // SAFETY: the slot that was added with this token.
            let came = unsafe { self.receive.pop_used(token, &[], &mut [place]) };
            let length = came.map_or(0, |came| came as usize);
            if !(HEADER..=SLOT).contains(&length) {
                return Err(Error::Broken);
            }
            // No client wants anything that is longer than a frame can be.
            if (HEADER + 1..=HEADER + FRAME).contains(&length) {
                push(batch, &self.slot(slot, length)[HEADER..]);
            }
            self.into.put(slot);
            left -= 1;
        }
        if self.into.any_free() {
            self.refill();
        }
        Ok(self.wait_for_more())
    }

    /// Makes the device interrupt when a frame comes. Returns whether one is there already.
    fn wait_for_more(&mut self) -> bool {
        self.is_to_interrupt = true;
        virtio::interrupts(&mut self.receive, true);
        self.receive.can_pop()
    }

    /// Takes back the slots whose frames were sent.
    fn reclaim(&mut self) -> Result<(), Error> {
        while let Some(token) = self.transmit.peek_used() {
            let Some(slot) = self.out.done(token) else {
                return Err(Error::Broken);
            };
            let place = self.slot(slot, self.lengths[slot]);
            // SAFETY: the slot that was added with this token.
            let sent = unsafe { self.transmit.pop_used(token, &[place], &mut []) };
            if sent.is_err() {
                return Err(Error::Broken);
            }
            self.out.put(slot);
        }
        Ok(())
    }

    /// Sends a batch. Returns how many of its frames there was room for, and whether frames have come. If there was
    /// too little room, the device interrupts when there is some.
    fn send(&mut self, batch: &[u8]) -> Result<(u64, bool), Error> {
        self.reclaim()?;
        let mut taken = 0;
        let mut result = Ok(());
        for frame in frames(batch) {
            if frame.is_empty() || frame.len() > FRAME {
                result = Err(Error::Invalid);
                break;
            }
            if !self.out.any_free() && !self.has_room()? {
                break;
            }
            let Some(slot) = self.out.take() else {
                break;
            };
            let at = SLOTS + slot * SLOT;
            self.arena.write(at, &[0; HEADER]);
            self.arena.write(at + HEADER, frame);
            self.lengths[slot] = HEADER + frame.len();
            let place = self.slot(slot, self.lengths[slot]);
            // SAFETY: it is in the arena, which stays; no thread accesses a slot that the device has.
            match unsafe { self.transmit.add(&[place], &mut []) } {
                Ok(token) => self.out.give(slot, token),
                Err(_) => {
                    self.out.put(slot);
                    break;
                }
            }
            taken += 1;
        }
        if virtio::must_notify(&self.transmit) {
            self.transport.notify(TRANSMIT);
        }
        result?;
        Ok((taken, self.wait_for_more()))
    }

    /// Whether there is room for a frame; if not, the device interrupts when it has sent one.
    fn has_room(&mut self) -> Result<bool, Error> {
        for interrupts in [false, true] {
            self.is_to_interrupt |= interrupts;
            virtio::interrupts(&mut self.transmit, interrupts);
            self.reclaim()?;
            if self.out.any_free() {
                self.transmit.set_dev_notify(false);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Serves an interrupt of the device: wakes the waiting clients. Returns whether the device was to interrupt again.
fn serve_interrupt() -> bool {
    let was_to = ask(|card| {
        // The line stays up until this has been read.
        card.transport.ack_interrupt();
        card.receive.set_dev_notify(false);
        card.transmit.set_dev_notify(false);
        Ok(core::mem::take(&mut card.is_to_interrupt))
    });
    WATCHERS.happened();
    was_to == Ok(true)
}

/// A client's session.
struct Client {
    /// The number of its thread, if it has told us of one.
    number: Cell<Option<u64>>,
}

/// A batch, held while the kernel copies it to the client.
struct Taken(Guard<'static, Vec<u8>>);

impl Deref for Taken {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Link for Client {
    fn address(&self) -> Result<u64, Error> {
        ask(|card| Ok(card.address))
    }

    fn tell(&self, thread: &RefAt) -> Result<(), Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = self.number.get();
        let number = number.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        self.number.set(Some(number));
        WATCHERS.tell(number, thread)
    }

    fn send(&self, batch: &[u8]) -> Result<(u64, bool), Error> {
        ask(|card| card.send(batch))
    }

    fn receive(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let most = (room / (2 + FRAME)).min(MOST);
        if most == 0 {
            return Err(Error::Invalid);
        }
        let mut batch = BATCH.lock();
        batch.clear();
        if ask(|card| card.take(most, &mut batch))? {
            // No interrupt announces them.
            WATCHERS.happened();
        }
        Ok(Taken(batch))
    }

    async fn ended(&self) -> Result<(), Error> {
        core::future::pending().await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            WATCHERS.forget(number);
        }
    }
}

/// Starts the device.
fn start(device: &Device) -> Result<Card, Error> {
    let mut transport = device.transport()?;
    // A small machine has memory for few slots.
    let (arena, slots) = device.arena_of_slots(SLOTS, SLOT, 2 * QUEUE)?;
    if slots < 2 {
        return Err(Error::NoMemory);
    }
    virtio::negotiate(&mut transport, 0, ADDRESS | VERSION_1)?;
    let mut address = 0;
    for offset in 0..6 {
        let byte = transport.read_config_space::<u8>(offset);
        address = address << 8 | u64::from(byte.map_err(|_| Error::Unsupported)?);
    }
    let mut queue = |which| {
        VirtQueue::new(&mut *transport, which, false, false).map_err(|_| Error::Unsupported)
    };
    let (receive, transmit) = (queue(RECEIVE)?, queue(TRANSMIT)?);
    virtio::begin(&mut transport);
    let mut card = Card {
        transport,
        receive,
        transmit,
        arena,
        into: Slots::new(0..slots / 2, QUEUE),
        out: Slots::new(slots / 2..slots, QUEUE),
        lengths: (0..slots).map(|_| 0).collect(),
        address,
        is_to_interrupt: true,
    };
    card.transmit.set_dev_notify(false);
    card.refill();
    Ok(card)
}

fn serve() -> Result<Infallible, Error> {
    let door = rt::start::passed(0).ok_or(Error::Invalid)?;
    // Until the driver ends.
    let device = Device::find(door)?;
    let card = start(&device)?;
    *CARD.lock() = Some(card);
    device.interrupts(PRIORITY, serve_interrupt)?;
    rt::names::serve("link", |visitor: &Visitor| {
        if visitor.door != CONTROL || visitor.interface != LinkClient::ID {
            return Err(Error::Denied);
        }
        Ok(LinkStub(Client {
            number: Cell::new(None),
        }))
    })
}

fn main() -> u8 {
    let Err(error) = serve();
    rt::log!("virtio-net: {}", error.text());
    1
}
