//! A client of disks that outlives their drivers.
//!
//! [`Disk`] keeps every request until it is done. When the driver dies, its session ends; the client opens a session
//! with the next driver and submits the unfinished requests again, in their order. The caller only sees a slow call.
//!
//! No request is lost and no stale data overwrites newer data, because
//! * requests whose sectors overlap, one of them a write, are never with the driver at the same time: the later one is submitted when
//!   the earlier one is done;
//! * a flush is submitted when all writes before it are done;
//! * a new driver resets the device before it takes a request, so nothing of its predecessor is done later;
//! * a read, a write or a flush that is done twice is the same as one.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod system;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use proto::Error;
use services::block::{MOST, OUTSTANDING, SECTOR};
pub use system::SystemDisk;

/// A session with a driver: the methods of [`services::block::Block`].
pub trait Session {
    /// The number of sectors, and whether they can be written.
    fn geometry(&mut self) -> Result<(u64, bool), Error>;
    /// Submits a read.
    fn read(&mut self, tag: u64, sector: u64, sectors: u64) -> Result<(), Error>;
    /// Submits a write.
    fn write(&mut self, tag: u64, sector: u64, data: &[u8]) -> Result<(), Error>;
    /// Submits a flush.
    fn flush(&mut self, tag: u64) -> Result<(), Error>;
    /// Waits until requests are done. Returns a bit for each tag that is done, and a bit for each that failed.
    fn done(&mut self) -> Result<(u64, u64), Error>;
    /// Copies the data of a finished read. Returns how many bytes.
    fn data(&mut self, tag: u64, into: &mut [u8]) -> Result<usize, Error>;
    /// Releases the tag of a read.
    fn release(&mut self, tag: u64) -> Result<(), Error>;
    /// Waits until there is room for a request.
    fn room(&mut self) -> Result<(), Error>;
}

/// Opens sessions, with one driver after the other.
pub trait Drivers {
    /// A session.
    type Session: Session;
    /// Opens a session with the present driver; waits for a driver for as long as it makes sense.
    fn open(&mut self) -> Result<Self::Session, Error>;
}

/// A request to a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reads so many sectors from this one on.
    Read {
        /// The first one.
        sector: u64,
        /// How many.
        sectors: u64,
    },
    /// Writes whole sectors from this one on.
    Write {
        /// The first one.
        sector: u64,
        /// What is written.
        data: Vec<u8>,
    },
    /// Makes the writes before it survive a loss of power.
    Flush,
}

impl Request {
    /// First sector and count.
    fn range(&self) -> (u64, u64) {
        match self {
            Request::Read { sector, sectors } => (*sector, *sectors),
            Request::Write { sector, data } => (*sector, data.len() as u64 / SECTOR),
            Request::Flush => (0, 0),
        }
    }

    /// Whether some disk could do it.
    fn is_sound(&self) -> bool {
        match self {
            Request::Read { sectors, .. } => (1..=MOST / SECTOR).contains(sectors),
            Request::Write { data, .. } => {
                let length = data.len() as u64;
                (SECTOR..=MOST).contains(&length) && length.is_multiple_of(SECTOR)
            }
            Request::Flush => true,
        }
    }

    /// Whether this request must wait until the earlier one is done.
    fn waits_for(&self, earlier: &Request) -> bool {
        match (earlier, self) {
            (Request::Write { .. }, Request::Flush) => true,
            (Request::Read { .. }, Request::Read { .. }) => false,
            (earlier, later) => {
                let ((a, n), (b, m)) = (earlier.range(), later.range());
                a < b.saturating_add(m) && b < a.saturating_add(n)
            }
        }
    }
}

/// Tells a request from the others of its disk.
pub type Ticket = u64;

/// The result of a request: the data of a read, nothing for others. Errors: `Invalid` for sectors that the disk does
/// not have, `Denied` for a write to a read-only disk, `Broken` for a failure of the device.
pub type Outcome = Result<Vec<u8>, Error>;

#[derive(Debug)]
enum State {
    /// No driver has it.
    Waiting,
    /// The driver has it, with this tag.
    Submitted(u64),
    /// It is done.
    Done(Outcome),
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    request: Request,
    state: State,
}

/// The disk is given up after so many losses of a session, or announcements of room where there was none, without any
/// request being done in between.
const LOSSES: u32 = 1000;

/// A disk, independent of which driver serves it.
#[derive(Debug)]
pub struct Disk<D: Drivers> {
    drivers: D,
    session: Option<D::Session>,
    /// In the order in which they were submitted.
    requests: VecDeque<Pending>,
    next: Ticket,
    losses: u32,
}

impl<D: Drivers> Disk<D> {
    /// The disk behind these drivers.
    pub fn new(drivers: D) -> Self {
        Disk {
            drivers,
            session: None,
            requests: VecDeque::new(),
            next: 0,
            losses: 0,
        }
    }

    /// Calls `ask` with the session, and with another session if that one is lost. Errors: those of the driver;
    /// `Broken` when the disk is given up.
    fn ask<T>(
        &mut self,
        mut ask: impl FnMut(&mut D::Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let session = self.session()?;
            match ask(session) {
                Err(Error::Broken) => self.lose()?,
                result => return result,
            }
        }
    }

    fn session(&mut self) -> Result<&mut D::Session, Error> {
        if self.session.is_none() {
            self.session = Some(self.drivers.open()?);
        }
        self.session.as_mut().ok_or(Error::Broken)
    }

    /// The session is lost: the requests that were submitted in it have to be submitted again.
    fn lose(&mut self) -> Result<(), Error> {
        self.session = None;
        for pending in &mut self.requests {
            if let State::Submitted(_) = pending.state {
                pending.state = State::Waiting;
            }
        }
        self.count_loss()
    }

    /// Counts a loss of a session, or a vain announcement of room.
    fn count_loss(&mut self) -> Result<(), Error> {
        self.losses += 1;
        match self.losses > LOSSES {
            true => Err(Error::Broken),
            false => Ok(()),
        }
    }

    /// The number of sectors, and whether they can be written.
    ///
    /// # Errors
    /// `Broken` or `NotFound` if there is no driver.
    pub fn geometry(&mut self) -> Result<(u64, bool), Error> {
        self.ask(D::Session::geometry)
    }

    /// Submits a request. The driver gets it at once, if it has room and no earlier request stands in the way.
    ///
    /// # Errors
    /// `Broken` or `NotFound` if there is no driver: the request is kept all the same, and [`Disk::wait`] tries
    /// again.
    pub fn submit(&mut self, request: Request) -> Result<Ticket, Error> {
        let ticket = self.next;
        self.next += 1;
        self.requests.push_back(Pending {
            ticket,
            state: match request.is_sound() {
                true => State::Waiting,
                false => State::Done(Err(Error::Invalid)),
            },
            request,
        });
        self.pass_on().map(|()| ticket)
    }

    /// Passes on to the driver the requests that can be passed on.
    fn pass_on(&mut self) -> Result<(), Error> {
        let mut index = 0;
        while index < self.requests.len() {
            if !self.is_ready(index) {
                index += 1;
                continue;
            }
            let Some(tag) = self.free_tag() else {
                return Ok(());
            };
            self.session()?;
            let Some(session) = self.session.as_mut() else {
                return Err(Error::Broken);
            };
            let pending = &mut self.requests[index];
            let passed = match &pending.request {
                Request::Read { sector, sectors } => session.read(tag, *sector, *sectors),
                Request::Write { sector, data } => session.write(tag, *sector, data),
                Request::Flush => session.flush(tag),
            };
            match passed {
                Ok(()) => pending.state = State::Submitted(tag),
                Err(Error::WouldBlock) => return Ok(()),
                Err(Error::Broken) => {
                    self.lose()?;
                    // Requests are passed on in the order in which they were submitted.
                    index = 0;
                    continue;
                }
                Err(error) => pending.state = State::Done(Err(error)),
            }
            index += 1;
        }
        Ok(())
    }

    /// Whether a request can be passed on: no driver has it, and no request before it stands in its way.
    fn is_ready(&self, index: usize) -> bool {
        let pending = &self.requests[index];
        let is_open = |earlier: &&Pending| !matches!(earlier.state, State::Done(_));
        let mut earlier = self.requests.iter().take(index).filter(is_open);
        matches!(pending.state, State::Waiting)
            && !earlier.any(|earlier| pending.request.waits_for(&earlier.request))
    }

    /// A tag that is not in use, if the driver takes one more request.
    fn free_tag(&self) -> Option<u64> {
        let tag = self.submitted().trailing_ones();
        (tag < OUTSTANDING as u32).then_some(u64::from(tag))
    }

    /// The tags of the requests that the driver has, as bits.
    fn submitted(&self) -> u64 {
        let tags = self
            .requests
            .iter()
            .filter_map(|pending| match pending.state {
                State::Submitted(tag) => Some(tag),
                _ => None,
            });
        tags.fold(0, |tags, tag| tags | 1 << tag)
    }

    /// Waits until one of the requests is done.
    ///
    /// # Errors
    /// `Invalid` if no request is open; `Broken` or `NotFound` if there is no driver.
    pub fn wait(&mut self) -> Result<(Ticket, Outcome), Error> {
        loop {
            let is_done = |pending: &Pending| matches!(pending.state, State::Done(_));
            if let Some(index) = self.requests.iter().position(is_done) {
                if let Some(Pending {
                    ticket,
                    state: State::Done(outcome),
                    ..
                }) = self.requests.remove(index)
                {
                    return Ok((ticket, outcome));
                }
            }
            if self.requests.is_empty() {
                return Err(Error::Invalid);
            }
            self.pass_on()?;
            if !self.requests.iter().any(is_done) {
                self.progress()?;
            }
        }
    }

    /// Waits until something may have changed.
    fn progress(&mut self) -> Result<(), Error> {
        let submitted = self.submitted();
        let session = self.session()?;
        if submitted == 0 {
            // Other clients have all the room.
            return match session.room() {
                // A driver that announces room again and again, and takes nothing, is no better than one that ends.
                Ok(()) => self.count_loss(),
                Err(_) => self.lose(),
            };
        }
        match session.done() {
            Ok((done, failures)) if done & submitted != 0 => self.take(done, failures),
            // A driver that does not know a request that it was given has lost it.
            _ => self.lose(),
        }
    }

    /// Takes the requests that the driver says are done.
    fn take(&mut self, done: u64, failures: u64) -> Result<(), Error> {
        for pending in &mut self.requests {
            let State::Submitted(tag) = pending.state else {
                continue;
            };
            if done & 1 << tag == 0 {
                continue;
            }
            let Some(session) = self.session.as_mut() else {
                return Err(Error::Broken);
            };
            let outcome = match pending.request {
                _ if failures & 1 << tag != 0 => Err(Error::Broken),
                Request::Read { sectors, .. } => {
                    let mut data = vec![0; (sectors * SECTOR) as usize];
                    let read = session.data(tag, &mut data);
                    if read != Ok(data.len()) || session.release(tag).is_err() {
                        return self.lose();
                    }
                    Ok(data)
                }
                _ => Ok(Vec::new()),
            };
            self.losses = 0;
            pending.state = State::Done(outcome);
        }
        Ok(())
    }

    /// Reads whole sectors; no other request may be open.
    ///
    /// # Errors
    /// Those of [`Outcome`] and of [`Disk::wait`].
    pub fn read(&mut self, sector: u64, into: &mut [u8]) -> Result<(), Error> {
        check(sector, into.len())?;
        self.whole(|disk| disk.read_pieces(sector, into))
    }

    fn read_pieces(&mut self, sector: u64, into: &mut [u8]) -> Result<(), Error> {
        let pieces = into.len().div_ceil(MOST as usize);
        let first = self.next;
        for piece in 0..pieces as u64 {
            let at = piece * MOST;
            let bytes = (into.len() as u64 - at).min(MOST);
            self.submit(Request::Read {
                sector: sector + at / SECTOR,
                sectors: bytes / SECTOR,
            })?;
        }
        self.finish(pieces, |ticket, data| {
            let at = (ticket - first) as usize * MOST as usize;
            if let Some(place) = into.get_mut(at..at + data.len()) {
                place.copy_from_slice(&data);
            }
        })
    }

    /// Writes whole sectors; no other request may be open.
    ///
    /// # Errors
    /// As [`Disk::read`].
    pub fn write(&mut self, sector: u64, from: &[u8]) -> Result<(), Error> {
        check(sector, from.len())?;
        self.whole(|disk| {
            let pieces = from.chunks(MOST as usize);
            let count = pieces.len();
            for (piece, data) in (0..).zip(pieces) {
                disk.submit(Request::Write {
                    sector: sector + piece * (MOST / SECTOR),
                    data: data.to_vec(),
                })?;
            }
            disk.finish(count, |_, _| {})
        })
    }

    /// Makes what was written survive a loss of power; no other request may be open.
    ///
    /// # Errors
    /// As [`Disk::read`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.whole(|disk| {
            disk.submit(Request::Flush)?;
            disk.finish(1, |_, _| {})
        })
    }

    /// Does an operation that consists of several requests. If it fails for want of a driver, its other requests are
    /// dropped, so that the next answer belongs to the next request.
    fn whole(&mut self, f: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let result = f(self);
        if !self.requests.is_empty() {
            self.requests.clear();
            self.session = None;
        }
        result
    }

    /// Waits for so many requests. Returns the first error among them.
    fn finish(&mut self, count: usize, mut done: impl FnMut(Ticket, Vec<u8>)) -> Result<(), Error> {
        let mut result = Ok(());
        for _ in 0..count {
            match self.wait()? {
                (ticket, Ok(data)) => done(ticket, data),
                (_, Err(error)) => result = result.and(Err(error)),
            }
        }
        result
    }
}

/// Checks that so many bytes are whole sectors of some disk.
fn check(sector: u64, bytes: usize) -> Result<(), Error> {
    let sectors = bytes as u64 / SECTOR;
    let sound = (bytes as u64).is_multiple_of(SECTOR) && sector.checked_add(sectors).is_some();
    sound.then_some(()).ok_or(Error::Invalid)
}

#[cfg(test)]
mod tests;
