//! Which request has which slot: the driver's bookkeeping, without a device and tested on the host.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;
use proto::Error;
use services::block::{OUTSTANDING, TAGS};

/// A client's session, by the number that the driver gave it.
pub type Session = u64;
/// The number of a slot for a request: its header, its status and its data.
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
    /// It is done, and the client has not been told.
    Done { failed: bool },
    /// The client has been told. A read keeps its data until it is released.
    Told,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    /// Its session; `None` if that has ended, while the device still has the request.
    session: Option<Session>,
    tag: u64,
    kind: Kind,
    state: State,
}

/// The requests of a session, as a bit for each tag, so that no search through all slots is needed.
#[derive(Debug)]
struct Client {
    session: Session,
    /// Tags in use, and the slot of each.
    tags: u64,
    slots: [u8; TAGS as usize],
    /// Of these, the requests that the device has, and those that are done and not yet told.
    submitted: u64,
    fresh: u64,
}

/// The requests that the driver has taken, each in a slot of the memory that the device reaches.
#[derive(Debug)]
pub struct Requests {
    slots: Vec<Option<Request>>,
    /// A bit for each slot that is free.
    free: u64,
    /// The sessions that have submitted something.
    clients: Vec<Client>,
    /// Requests of sessions that have ended which the device still has.
    orphans: usize,
}

impl Requests {
    /// Most slots.
    const MOST: usize = 64;

    /// No requests, and room for at most `slots`, up to 64.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let slots = slots.min(Self::MOST);
        Requests {
            slots: (0..slots).map(|_| None).collect(),
            free: u64::MAX
                .checked_shr((Self::MOST - slots) as u32)
                .unwrap_or(0),
            clients: Vec::new(),
            orphans: 0,
        }
    }

    fn client(&self, session: Session) -> Option<&Client> {
        self.clients.iter().find(|client| client.session == session)
    }

    fn client_mut(&mut self, session: Session) -> Option<&mut Client> {
        let mut clients = self.clients.iter_mut();
        clients.find(|client| client.session == session)
    }

    /// Frees the slot.
    fn free(&mut self, slot: Slot) {
        let request = self.slots.get_mut(slot).and_then(Option::take);
        let Some(Request { session, tag, .. }) = request else {
            return;
        };
        self.free |= 1 << slot;
        if let Some(client) = session.and_then(|session| self.client_mut(session)) {
            for tags in [&mut client.tags, &mut client.submitted, &mut client.fresh] {
                *tags &= !(1 << tag);
            }
        }
    }

    /// Whether a session may submit one more request now. It may not while the device has requests of a session that
    /// has ended: a file server that takes another's place would write, and the device could do a write of the
    /// earlier server after that.
    #[must_use]
    pub fn has_room(&self, session: Session) -> bool {
        let own = self
            .client(session)
            .map_or(0, |client| client.tags.count_ones());
        own < OUTSTANDING as u32 && self.free != 0 && self.orphans == 0
    }

    /// Takes a request of a session, under a tag that the session chose. Returns the slot for it. Errors: `Invalid`
    /// if the tag is too large or in use, `WouldBlock` if there is no room.
    pub fn submit(&mut self, session: Session, tag: u64, kind: Kind) -> Result<Slot, Error> {
        let in_use = |client: &Client| client.tags & 1 << tag != 0;
        if tag >= TAGS || self.client(session).is_some_and(in_use) {
            return Err(Error::Invalid);
        }
        if !self.has_room(session) {
            return Err(Error::WouldBlock);
        }
        if self.client(session).is_none() {
            self.clients.push(Client {
                session,
                tags: 0,
                slots: [0; TAGS as usize],
                submitted: 0,
                fresh: 0,
            });
        }
        let slot = self.free.trailing_zeros() as Slot;
        self.free &= !(1 << slot);
        self.slots[slot] = Some(Request {
            session: Some(session),
            tag,
            kind,
            state: State::Submitted,
        });
        if let Some(client) = self.client_mut(session) {
            client.tags |= 1 << tag;
            client.submitted |= 1 << tag;
            client.slots[tag as usize] = slot as u8;
        }
        Ok(slot)
    }

    /// Frees the slot of a request that the device did not take.
    pub fn withdraw(&mut self, slot: Slot) {
        self.free(slot);
    }

    /// Whether a device that reports the request in this slot as done, with so many bytes written, has written all of
    /// them: the data that was read, and the status byte. If not, a read would return what was in the slot before,
    /// which may be another session's data.
    #[must_use]
    pub fn is_whole(&self, slot: Slot, written: u32) -> bool {
        let read = match self.slots.get(slot) {
            Some(Some(Request {
                kind: Kind::Read(size),
                ..
            })) => *size,
            _ => 0,
        };
        written as usize == read + 1
    }

    /// Notes that the device has done the request in this slot. Returns false if the device does not have one there:
    /// then the device is broken.
    pub fn complete(&mut self, slot: Slot, failed: bool) -> bool {
        let Some(Some(request)) = self.slots.get_mut(slot) else {
            return false;
        };
        if request.state != State::Submitted {
            return false;
        }
        request.state = State::Done { failed };
        let (session, tag) = (request.session, request.tag);
        match session.and_then(|session| self.client_mut(session)) {
            Some(client) => {
                client.submitted &= !(1 << tag);
                client.fresh |= 1 << tag;
            }
            None => {
                self.orphans -= 1;
                self.free(slot);
            }
        }
        true
    }

    /// The requests that are done and that the session was not told of: a bit for each tag, and for each that failed.
    /// `None`: none yet. Writes, flushes and failed requests are over with this.
    pub fn tell(&mut self, session: Session) -> Result<Option<(u64, u64)>, Error> {
        let Some(client) = self.client_mut(session) else {
            return Err(Error::Invalid);
        };
        let (done, submitted) = (client.fresh, client.submitted != 0);
        client.fresh = 0;
        let slots = client.slots;
        let (mut left, mut failures) = (done, 0);
        while left != 0 {
            let tag = left.trailing_zeros();
            left &= left - 1;
            let slot = Slot::from(slots[tag as usize]);
            let Some(Some(request)) = self.slots.get_mut(slot) else {
                continue;
            };
            let failed = request.state == State::Done { failed: true };
            failures |= u64::from(failed) << tag;
            request.state = State::Told;
            if failed || !matches!(request.kind, Kind::Read(_)) {
                self.free(slot);
            }
        }
        match (done, submitted) {
            (0, true) => Ok(None),
            (0, false) => Err(Error::Invalid),
            _ => Ok(Some((done, failures))),
        }
    }

    /// The slot of the data of a finished read, and how many bytes.
    pub fn data(&self, session: Session, tag: u64) -> Result<(Slot, usize), Error> {
        let client = self.client(session).ok_or(Error::Invalid)?;
        if tag >= TAGS || client.tags & 1 << tag == 0 {
            return Err(Error::Invalid);
        }
        let slot = Slot::from(client.slots[tag as usize]);
        match self.slots.get(slot) {
            Some(Some(Request {
                kind: Kind::Read(size),
                state: State::Told,
                ..
            })) => Ok((slot, *size)),
            _ => Err(Error::Invalid),
        }
    }

    /// Frees the slot of a read.
    pub fn release(&mut self, session: Session, tag: u64) -> Result<(), Error> {
        let (slot, _) = self.data(session, tag)?;
        self.free(slot);
        Ok(())
    }

    /// Ends a session. Requests that the device has keep their slots until they are done.
    pub fn end(&mut self, session: Session) {
        self.clients.retain(|client| client.session != session);
        for (slot, place) in self.slots.iter_mut().enumerate() {
            match place {
                Some(r) if r.session == Some(session) => match r.state {
                    State::Submitted => {
                        r.session = None;
                        self.orphans += 1;
                    }
                    _ => {
                        *place = None;
                        self.free |= 1 << slot;
                    }
                },
                _ => {}
            }
        }
    }
}

/// Whether so many bytes from a sector on are whole sectors that the disk has.
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
        assert!(requests.is_whole(write, 1) && !requests.is_whole(write, 0));
        assert!(requests.is_whole(read, 513) && !requests.is_whole(read, 1));
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
        let (last, others) = slots[1..].split_last().unwrap();
        for slot in others {
            assert!(requests.complete(*slot, false));
        }
        let rule = "a write of a session that has ended is done before its successor's";
        assert!(!requests.has_room(2), "{rule}");
        assert_eq!(
            requests.submit(2, 0, Kind::Write),
            Err(Error::WouldBlock),
            "{rule}"
        );
        assert!(requests.complete(*last, false));
        let more =
            (0..OUTSTANDING as u64).filter(|tag| requests.submit(2, *tag, Kind::Flush).is_ok());
        assert_eq!(more.count(), OUTSTANDING, "all places are free again");
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
