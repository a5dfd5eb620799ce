//! Which request stands where: the driver's bookkeeping, without a device, tested on the host.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;
use proto::Error;
use services::block::{OUTSTANDING, TAGS};

/// Names a client's session; the driver numbers them.
pub type Session = u64;
/// The number of a place for a request, with its header, its status and its data.
pub type Slot = usize;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads so many bytes.
    Read(usize),
    /// Writes.
    Write,
    /// Makes what was written survive a loss of power.
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The device has it.
    Submitted,
    /// It is done, and the client was not told.
    Done { failed: bool },
    /// The client knows. A read keeps its data until it is released.
    Told,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    /// Whose; `None` if the session has ended. The device has it all the same.
    session: Option<Session>,
    tag: u64,
    kind: Kind,
    state: State,
}

/// The requests that the driver has taken, each in a slot of the memory that the device reaches.
#[derive(Debug)]
pub struct Requests {
    slots: Vec<Option<Request>>,
}

impl Requests {
    /// No requests, and room for so many.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Requests {
            slots: (0..slots).map(|_| None).collect(),
        }
    }

    fn of(&self, session: Session) -> impl Iterator<Item = (Slot, &Request)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(move |(slot, request)| {
            let request = request.as_ref()?;
            (request.session == Some(session)).then_some((slot, request))
        })
    }

    /// Whether a session may submit one more request now.
    #[must_use]
    pub fn has_room(&self, session: Session) -> bool {
        self.of(session).count() < OUTSTANDING && self.slots.iter().any(Option::is_none)
    }

    /// Takes a request of a session, under a tag that the session chose: the slot for it. Errors: `Invalid` if the tag is too large or
    /// in use, `WouldBlock` if there is no room.
    pub fn submit(&mut self, session: Session, tag: u64, kind: Kind) -> Result<Slot, Error> {
        if tag >= TAGS || self.of(session).any(|(_, request)| request.tag == tag) {
            return Err(Error::Invalid);
        }
        if !self.has_room(session) {
            return Err(Error::WouldBlock);
        }
        let slot = self.slots.iter().position(Option::is_none);
        let slot = slot.ok_or(Error::WouldBlock)?;
        self.slots[slot] = Some(Request {
            session: Some(session),
            tag,
            kind,
            state: State::Submitted,
        });
        Ok(slot)
    }

    /// Frees the slot of a request that the device did not take.
    pub fn withdraw(&mut self, slot: Slot) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = None;
        }
    }

    /// Notes that the device has done the request in this slot. Returns false if it does not have one there: then the device
    /// is broken.
    pub fn complete(&mut self, slot: Slot, failed: bool) -> bool {
        let Some(place) = self.slots.get_mut(slot) else {
            return false;
        };
        match place {
            Some(request) if request.state == State::Submitted => {
                request.state = State::Done { failed };
                if request.session.is_none() {
                    *place = None;
                }
                true
            }
            _ => false,
        }
    }

    /// What is done that the session was not told: a bit for each tag, and for each that failed. `None`: nothing yet. Writes,
    /// flushes and what failed are over with this.
    pub fn tell(&mut self, session: Session) -> Result<Option<(u64, u64)>, Error> {
        let (mut done, mut failures, mut submitted) = (0, 0, false);
        for place in &mut self.slots {
            let Some(request) = place.as_mut().filter(|r| r.session == Some(session)) else {
                continue;
            };
            match request.state {
                State::Submitted => submitted = true,
                State::Done { failed } => {
                    done |= 1 << request.tag;
                    failures |= u64::from(failed) << request.tag;
                    request.state = State::Told;
                    if failed || !matches!(request.kind, Kind::Read(_)) {
                        *place = None;
                    }
                }
                State::Told => {}
            }
        }
        match (done, submitted) {
            (0, true) => Ok(None),
            (0, false) => Err(Error::Invalid),
            _ => Ok(Some((done, failures))),
        }
    }

    /// Where the data of a read that is done stands, and how many bytes.
    pub fn data(&self, session: Session, tag: u64) -> Result<(Slot, usize), Error> {
        let mut own = self.of(session).filter(|(_, request)| request.tag == tag);
        match own.next() {
            Some((
                slot,
                Request {
                    kind: Kind::Read(size),
                    state: State::Told,
                    ..
                },
            )) => Ok((slot, *size)),
            _ => Err(Error::Invalid),
        }
    }

    /// A read's place is free again.
    pub fn release(&mut self, session: Session, tag: u64) -> Result<(), Error> {
        let (slot, _) = self.data(session, tag)?;
        self.slots[slot] = None;
        Ok(())
    }

    /// A session ends. What the device has of it keeps its place until it is done.
    pub fn end(&mut self, session: Session) {
        for place in &mut self.slots {
            match place {
                Some(r) if r.session == Some(session) => match r.state {
                    State::Submitted => r.session = None,
                    _ => *place = None,
                },
                _ => {}
            }
        }
    }
}

/// Whether so many bytes from a sector on are sectors that the disk has.
#[must_use]
pub fn fits(sector: u64, bytes: u64, sectors: u64) -> bool {
    use services::block::{MOST, SECTOR};
    let count = bytes / SECTOR;
    bytes != 0
        && bytes.is_multiple_of(SECTOR)
        && bytes <= MOST
        && sector.checked_add(count).is_some_and(|end| end <= sectors)
}

#[cfg(test)]
mod tests {
    use super::{fits, Kind, Requests};
    use proto::Error;
    use services::block::OUTSTANDING;

    #[test]
    fn requests_are_done_in_any_order_and_told_once() {
        let mut requests = Requests::new(40);
        let read = requests.submit(1, 3, Kind::Read(512)).unwrap();
        let write = requests.submit(1, 63, Kind::Write).unwrap();
        assert_eq!(
            requests.submit(1, 3, Kind::Flush),
            Err(Error::Invalid),
            "a tag in use"
        );
        assert_eq!(requests.submit(1, 64, Kind::Flush), Err(Error::Invalid));
        assert_eq!(requests.tell(1), Ok(None));
        assert_eq!(requests.tell(2), Err(Error::Invalid), "nothing to wait for");
        assert!(requests.complete(write, true));
        assert!(!requests.complete(write, false), "done twice");
        assert!(!requests.complete(39, false) && !requests.complete(40, false));
        assert_eq!(requests.data(1, 3), Err(Error::Invalid), "not done yet");
        assert_eq!(requests.tell(1), Ok(Some((1 << 63, 1 << 63))));
        assert_eq!(requests.tell(1), Ok(None));
        assert!(requests.complete(read, false));
        assert_eq!(requests.data(1, 3), Err(Error::Invalid), "not told yet");
        assert_eq!(requests.tell(1), Ok(Some((1 << 3, 0))));
        assert_eq!(
            requests.data(2, 3),
            Err(Error::Invalid),
            "another session's"
        );
        assert_eq!(requests.data(1, 3), Ok((read, 512)));
        assert_eq!(requests.release(1, 3), Ok(()));
        assert_eq!(requests.release(1, 3), Err(Error::Invalid));
        assert_eq!(requests.tell(1), Err(Error::Invalid));
        assert_eq!(requests.submit(1, 3, Kind::Flush), Ok(read));
    }

    #[test]
    fn a_session_that_ends_leaves_what_the_device_has() {
        let mut requests = Requests::new(40);
        let slots: alloc::vec::Vec<_> = (0..OUTSTANDING as u64)
            .map(|tag| requests.submit(1, tag, Kind::Write).unwrap())
            .collect();
        assert!(!requests.has_room(1) && requests.has_room(2));
        assert_eq!(requests.submit(1, 40, Kind::Flush), Err(Error::WouldBlock));
        requests.complete(slots[0], false);
        requests.end(1);
        // The one that is done is free; the others are the device's.
        let more = (0..32).filter(|tag| requests.submit(2, *tag, Kind::Flush).is_ok());
        let free = 40 - OUTSTANDING + 1;
        assert_eq!(
            more.count(),
            free,
            "S2: a place that the device still has is another's"
        );
        assert!(slots[1..]
            .iter()
            .all(|slot| requests.complete(*slot, false)));
        assert_eq!(requests.submit(2, 50, Kind::Flush), Ok(slots[1]));
    }

    #[test]
    fn only_sectors_of_the_disk_fit() {
        assert!(fits(0, 512, 1) && fits(7, 65536, 135));
        for (sector, bytes, sectors) in [
            (0, 0, 9),
            (0, 511, 9),
            (1, 512, 1),
            (u64::MAX, 512, 9),
            (0, 65536 + 512, 1 << 20),
            (0, u64::MAX - 511, u64::MAX),
        ] {
            assert!(!fits(sector, bytes, sectors), "{sector} {bytes} {sectors}");
        }
    }
}
