// SPDX-License-Identifier: GPL-2.0-or-later
//! A sound card, as `services::sound`. One session has it at a time. Samples are copied once, from the client into the
//! ring that the card plays.

use crate::{failed, CAME};
use alloc::rc::Rc;
use core::cell::Cell;
use core::convert::Infallible;
use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use interface::server::Visitor;
use interface::Error;
use services::sound::{Format, Sound, SoundClient, SoundStub, MOST};

// `glue/sound.c`. All are called in the driver, by the process-level thread.
extern "C" {
    /// Starts Linux's driver and its card: 0, or the number of the error.
    fn lx_sound_start() -> c_int;
    fn lx_sound_begin(rate: c_uint, channels: c_uint, bits: c_uint) -> c_int;
    fn lx_sound_end();
    fn lx_sound_write(samples: *const c_void, size: c_uint) -> c_long;
    fn lx_sound_room() -> c_ulong;
    fn lx_sound_play() -> c_int;
    fn lx_sound_played() -> c_ulong;
}

const NO_MEMORY: c_int = -12;

/// The session that has the card, and the bytes of a frame.
type Owner = Rc<Cell<Option<(u64, usize)>>>;

/// A client's session.
struct Client {
    owner: Owner,
    session: u64,
}

impl Client {
    /// Bytes of a frame, if the session has the card.
    fn frame(&self) -> Result<usize, Error> {
        match self.owner.get() {
            Some((session, frame)) if session == self.session => Ok(frame),
            _ => Err(Error::Invalid),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.frame().is_ok() {
            // SAFETY: as said above; the driver has started.
            kit::inside(|| unsafe { lx_sound_end() });
            self.owner.set(None);
        }
    }
}

impl Sound for Client {
    fn begin(&self, rate: u64, channels: u64, format: Format) -> Result<(), Error> {
        if self.owner.get().is_some() && self.frame().is_err() {
            return Err(Error::Exists);
        }
        // A number that does not fit becomes 0, which no card supports.
        let number = |value: u64| u16::try_from(value).map_or(0, c_uint::from);
        let (rate, channels) = (number(rate), number(channels));
        let bits = 8 * format.bytes() as c_uint;
        self.owner.set(None);
        // SAFETY: as above; the driver reports what the card cannot do.
        match kit::inside(|| unsafe { lx_sound_begin(rate, channels, bits) }) {
            0 => {
                let frame = channels as usize * format.bytes() as usize;
                self.owner.set(Some((self.session, frame)));
                Ok(())
            }
            error => {
                // SAFETY: as above.
                kit::inside(|| unsafe { lx_sound_end() });
                match error {
                    NO_MEMORY => Err(Error::NoMemory),
                    _ => Err(Error::Unsupported),
                }
            }
        }
    }

    fn write(&self, samples: &[u8]) -> Result<u64, Error> {
        let frame = self.frame()?;
        if samples.len() > MOST || !samples.len().is_multiple_of(frame) {
            return Err(Error::Invalid);
        }
        let size = samples.len() as c_uint;
        // SAFETY: as above; so many bytes are there.
        let taken = kit::inside(|| unsafe { lx_sound_write(samples.as_ptr().cast(), size) });
        u64::try_from(taken).map_err(|_| Error::Broken)
    }

    fn played(&self) -> Result<u64, Error> {
        self.frame()?;
        // SAFETY: as above.
        Ok(kit::inside(|| unsafe { lx_sound_played() }))
    }

    async fn room(&self) -> Result<(), Error> {
        self.frame()?;
        // SAFETY: as above.
        let room = || kit::inside(|| unsafe { lx_sound_room() } != 0);
        CAME.until(|| room().then_some(Ok(()))).await
    }

    async fn drain(&self) -> Result<(), Error> {
        self.frame()?;
        let over = || {
            // SAFETY: as above.
            match kit::inside(|| unsafe { lx_sound_play() }) {
                0 => Some(Ok(())),
                1.. => None,
                _ => Some(Err(Error::Broken)),
            }
        };
        CAME.until(over).await
    }
}

fn serve() -> Result<Infallible, Error> {
    // SAFETY: called once, first.
    let started = kit::inside(|| unsafe { lx_sound_start() });
    if started != 0 {
        return Err(failed(started));
    }
    let owner = Owner::default();
    let sessions = Cell::new(0);
    rt::names::serve("sound", move |visitor: &Visitor| {
        if visitor.interface != SoundClient::ID {
            return Err(Error::Denied);
        }
        sessions.set(sessions.get() + 1);
        Ok(SoundStub(Client {
            owner: Rc::clone(&owner),
            session: sessions.get(),
        }))
    })
}

/// Offers the card, and ends the program when it cannot any more.
#[no_mangle]
extern "C" fn lx_serve_sound() {
    crate::ended(serve());
}
