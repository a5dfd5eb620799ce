// SPDX-License-Identifier: GPL-2.0-or-later
//! Linux's driver of a network card as a server: README.md of the room. What is below is C, in `glue/`.
//!
//! The server's thread is the process-level thread of the driver set. Frames come in when a client takes them: only then is
//! the driver polled (NAPI), so that what comes faster stays in the card, which drops it, and interrupts stay off meanwhile.
#![no_std]

extern crate alloc;

use alloc::vec::Vec;
use core::convert::Infallible;
use core::ffi::{c_int, c_uint, c_void};
use interface::server::{Event, Visitor};
use interface::Error;
use services::link::{frames, Link, LinkClient, LinkStub, BATCH, FRAME, MOST};

rt::entry!(main);

/// Memory that the card and the driver share.
const ARENA: u64 = 0x14_0000;
/// The door that leads to the frames. Door 0, which everybody finds by name, leads nowhere.
const CONTROL: u64 = 1;

// `glue/lx.h`. All are called in the driver, by the process-level thread.
extern "C" {
    /// Starts Linux's driver and its card: 0, or the number of the error.
    fn lx_net_start() -> c_int;
    fn lx_net_address() -> u64;
    fn lx_net_send(frame: *const c_void, size: c_uint) -> c_int;
    fn lx_net_has_room() -> c_int;
    fn lx_net_is_pending() -> c_int;
    fn lx_net_receive(batch: *mut c_void, most: c_uint) -> usize;
}

/// Frames have come, or there is work to do.
static CAME: Event = Event::new();
/// There is room to send.
static ROOM: Event = Event::new();

/// The driver is to be polled. From handlers, and from in the driver.
#[no_mangle]
extern "C" fn lx_came() {
    kit::later(|| CAME.happened());
}

/// There is room again.
#[no_mangle]
extern "C" fn lx_room() {
    kit::later(|| ROOM.happened());
}

/// A client's session.
struct Client;

impl Link for Client {
    fn address(&self) -> Result<u64, Error> {
        // SAFETY: as `lx.h` says; the driver has started.
        Ok(kit::inside(|| unsafe { lx_net_address() }))
    }

    fn send(&self, batch: &[u8]) -> Result<u64, Error> {
        let mut taken = 0;
        for frame in frames(batch) {
            if frame.is_empty() || frame.len() > FRAME {
                return Err(Error::Invalid);
            }
            // SAFETY: as above; so many bytes are there.
            let sent = kit::inside(|| unsafe {
                lx_net_send(frame.as_ptr().cast(), frame.len() as c_uint)
            });
            if sent == 0 {
                break;
            }
            taken += 1;
        }
        Ok(taken)
    }

    async fn room(&self) -> Result<(), Error> {
        // SAFETY: as above.
        let room = || kit::inside(|| unsafe { lx_net_has_room() } != 0);
        ROOM.until(|| room().then_some(Ok(()))).await
    }

    async fn receive(&self, room: usize) -> Result<Vec<u8>, Error> {
        let most = (room / (2 + FRAME)).min(MOST);
        if most == 0 {
            return Err(Error::Invalid);
        }
        let came = || {
            // SAFETY: as above.
            if kit::inside(|| unsafe { lx_net_is_pending() }) == 0 {
                return None;
            }
            let mut batch: Vec<u8> = Vec::with_capacity(BATCH);
            // SAFETY: as above; so many frames of the greatest size fit.
            let length = kit::inside(|| unsafe {
                lx_net_receive(batch.as_mut_ptr().cast(), most as c_uint)
            });
            // SAFETY: they were written, and are no more than fit.
            unsafe { batch.set_len(length) };
            (!batch.is_empty()).then_some(Ok(batch))
        };
        CAME.until(came).await
    }
}

fn serve() -> Result<Infallible, Error> {
    // SAFETY: called once, first.
    let started = kit::inside(|| unsafe { lx_net_start() });
    if started != 0 {
        rt::log!("{}: error {started}", name());
        return Err(Error::Unsupported);
    }
    rt::names::serve("link", |visitor: &Visitor| {
        if visitor.door != CONTROL || visitor.interface != LinkClient::ID {
            return Err(Error::Denied);
        }
        Ok(LinkStub(Client))
    })
}

fn name() -> &'static str {
    rt::start()
        .args
        .first()
        .map_or("driver", |name| name.as_str())
}

/// On the process-level thread.
fn drive() -> u8 {
    let Err(error) = serve();
    rt::log!("{}: {}", name(), error.text());
    1
}

fn main() -> u8 {
    let Err(error) = kit::run(ARENA, drive);
    rt::log!("{}: {}", name(), error.text());
    1
}
