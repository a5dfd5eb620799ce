// SPDX-License-Identifier: GPL-2.0-or-later
//! A network card, as `services::link`. Frames are received when a client takes them: only then is the driver polled
//! (NAPI). So frames that come faster stay in the card, which drops them, and interrupts stay off meanwhile.

use crate::{failed, CONTROL, WATCHERS};
use alloc::vec::Vec;
use core::cell::Cell;
use core::convert::Infallible;
use core::ffi::{c_int, c_uint, c_void};
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use interface::server::Visitor;
use interface::Error;
use rt::obj::RefAt;
use services::link::{frames, Link, LinkClient, LinkStub, BATCH, FRAME, MOST};

// `glue/net.c`. All are called in the driver, by the process-level thread.
extern "C" {
    /// Starts Linux's driver and its card: 0, or the number of the error.
    fn lx_net_start() -> c_int;
    fn lx_net_address() -> u64;
    fn lx_net_send(frame: *const c_void, size: c_uint) -> c_int;
    fn lx_net_has_room() -> c_int;
    fn lx_net_is_pending() -> c_int;
    fn lx_net_receive(batch: *mut c_void, most: c_uint) -> usize;
}

/// The card has room to send again.
#[no_mangle]
extern "C" fn lx_room() {
    kit::later(|| WATCHERS.happened());
}

/// A client's session.
struct Client {
    /// The number of its thread, if it has told us of one.
    number: Cell<Option<u64>>,
}

/// Whether frames may have come.
fn are_pending() -> bool {
    // SAFETY: as said above; the driver has started.
    kit::inside(|| unsafe { lx_net_is_pending() }) != 0
}

impl Link for Client {
    fn address(&self) -> Result<u64, Error> {
        // SAFETY: as above.
        Ok(kit::inside(|| unsafe { lx_net_address() }))
    }

    fn tell(&self, thread: &RefAt) -> Result<(), Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = self.number.get();
        let number = number.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        self.number.set(Some(number));
        WATCHERS.tell(number, thread)
    }

    fn send(&self, batch: &[u8]) -> Result<(u64, bool), Error> {
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
                // SAFETY: as above.
                if kit::inside(|| unsafe { lx_net_has_room() }) != 0 {
                    // Memory was short, or there is room by now: no later event will say so.
                    WATCHERS.happened();
                }
                break;
            }
            taken += 1;
        }
        Ok((taken, are_pending()))
    }

    fn receive(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let most = (room / (2 + FRAME)).min(MOST);
        if most == 0 {
            return Err(Error::Invalid);
        }
        let mut batch: Vec<u8> = Vec::with_capacity(BATCH);
        // SAFETY: as above; so many frames of the greatest size fit.
        let length =
            kit::inside(|| unsafe { lx_net_receive(batch.as_mut_ptr().cast(), most as c_uint) });
        // SAFETY: the function has written `length` bytes, no more than fit.
        unsafe { batch.set_len(length) };
        if are_pending() {
            // There are more frames, which no interrupt announces.
            WATCHERS.happened();
        }
        Ok(batch)
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

fn serve() -> Result<Infallible, Error> {
    // SAFETY: called once, first.
    let started = kit::inside(|| unsafe { lx_net_start() });
    if started != 0 {
        return Err(failed(started));
    }
    rt::names::serve("link", |visitor: &Visitor| {
        if visitor.door != CONTROL || visitor.interface != LinkClient::ID {
            return Err(Error::Denied);
        }
        Ok(LinkStub(Client {
            number: Cell::new(None),
        }))
    })
}

/// Offers the card, and ends the program when it cannot any more.
#[no_mangle]
extern "C" fn lx_serve_link() {
    crate::ended(serve());
}
