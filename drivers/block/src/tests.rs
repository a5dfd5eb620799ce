//! A disk whose drivers die at seeded instants, compared with what a disk must do.

use super::{Disk, Drivers, Error, Outcome, Request, Session, OUTSTANDING, SECTOR};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use std::collections::BTreeMap;

extern crate std;

const SECTORS: u64 = 24;

/// The device: its content, and how its drivers behave.
struct Device {
    content: Vec<u8>,
    random: fastrand::Rng,
    /// Of a thousand calls, so many end with the driver's death.
    deaths: u32,
    died: u32,
    /// Most requests at a time.
    most: usize,
}

/// A driver's session. Its requests are done in any order, some of them as the driver dies.
struct Fake {
    device: Rc<RefCell<Device>>,
    given: Vec<(u64, Request)>,
    read: BTreeMap<u64, Vec<u8>>,
    told: Vec<u64>,
}

struct Fakes(Rc<RefCell<Device>>);

impl Drivers for Fakes {
    type Session = Fake;
    fn open(&mut self) -> Result<Fake, Error> {
        Ok(Fake {
            device: Rc::clone(&self.0),
            given: Vec::new(),
            read: BTreeMap::new(),
            told: Vec::new(),
        })
    }
}

impl Device {
    fn bytes(&mut self, sector: u64, length: usize) -> &mut [u8] {
        let at = (sector * SECTOR) as usize;
        &mut self.content[at..at + length]
    }
}

impl Fake {
    /// Does one of the requests that it was given.
    fn do_one(&mut self) {
        let mut device = self.device.borrow_mut();
        let index = device.random.usize(..self.given.len());
        let (tag, request) = self.given.swap_remove(index);
        match request {
            Request::Read { sector, sectors } => {
                let data = device.bytes(sector, (sectors * SECTOR) as usize).to_vec();
                self.read.insert(tag, data);
            }
            Request::Write { sector, data } => {
                device.bytes(sector, data.len()).copy_from_slice(&data);
            }
            Request::Flush => {}
        }
        drop(device);
        self.told.push(tag);
    }

    /// Whether the driver dies now. If so, some of its requests are done first.
    fn dies(&mut self) -> Result<(), Error> {
        let dies = {
            let mut device = self.device.borrow_mut();
            device.deaths > 0 && device.random.u32(..1000) < device.deaths
        };
        if !dies {
            return Ok(());
        }
        self.device.borrow_mut().died += 1;
        while !self.given.is_empty() && self.device.borrow_mut().random.bool() {
            self.do_one();
        }
        Err(Error::Broken)
    }

    fn give(&mut self, tag: u64, request: Request) -> Result<(), Error> {
        let (sector, sectors) = request.range();
        if sector.checked_add(sectors).is_none_or(|end| end > SECTORS) {
            return Err(Error::Invalid);
        }
        let open = self.given.len() + self.told.len();
        assert!(open < OUTSTANDING, "more than a session has");
        for (other, earlier) in &self.given {
            assert_ne!(*other, tag, "a tag that is in use");
            // A later write may be with the driver at the same time as a flush.
            let clash = request != Request::Flush && request.waits_for(earlier);
            assert!(!clash, "{:?} beside {:?}", request.range(), earlier.range());
        }
        self.dies()?;
        self.given.push((tag, request));
        let mut device = self.device.borrow_mut();
        device.most = device.most.max(self.given.len());
        drop(device);
        // The driver has the request, but its reply may not arrive.
        self.dies()
    }
}

impl Session for Fake {
    fn geometry(&mut self) -> Result<(u64, bool), Error> {
        self.dies().map(|()| (SECTORS, true))
    }
    fn read(&mut self, tag: u64, sector: u64, sectors: u64) -> Result<(), Error> {
        self.give(tag, Request::Read { sector, sectors })
    }
    fn write(&mut self, tag: u64, sector: u64, data: &[u8]) -> Result<(), Error> {
        let data = data.to_vec();
        self.give(tag, Request::Write { sector, data })
    }
    fn flush(&mut self, tag: u64) -> Result<(), Error> {
        self.give(tag, Request::Flush)
    }
    fn done(&mut self) -> Result<(u64, u64), Error> {
        self.dies()?;
        while !self.given.is_empty()
            && (self.told.is_empty() || self.device.borrow_mut().random.bool())
        {
            self.do_one();
        }
        self.dies()?;
        let told = core::mem::take(&mut self.told);
        Ok((told.iter().fold(0, |bits, tag| bits | 1 << tag), 0))
    }
    fn data(&mut self, tag: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.dies()?;
        let data = self.read.get(&tag).ok_or(Error::Invalid)?;
        into.copy_from_slice(data);
        Ok(data.len())
    }
    fn release(&mut self, tag: u64) -> Result<(), Error> {
        self.dies()?;
        self.read.remove(&tag).map(drop).ok_or(Error::Invalid)
    }
    fn room(&mut self) -> Result<(), Error> {
        self.dies()
    }
}

fn device(seed: u64, deaths: u32) -> Rc<RefCell<Device>> {
    Rc::new(RefCell::new(Device {
        content: vec![0; (SECTORS * SECTOR) as usize],
        random: fastrand::Rng::with_seed(seed),
        deaths,
        died: 0,
        most: 0,
    }))
}

/// Random requests, up to 60 open at a time. Each read must return what was written before it, and in the end the
/// disk must have what was written last. Returns how many drivers died, and the most requests that one had at a time.
fn play(seed: u64, deaths: u32) -> (u32, usize) {
    let device = device(seed, deaths);
    let mut disk = Disk::new(Fakes(Rc::clone(&device)));
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut model = vec![0u8; (SECTORS * SECTOR) as usize];
    let mut expected: BTreeMap<u64, Outcome> = BTreeMap::new();
    for _ in 0..400 {
        while expected.len() > random.usize(..60) {
            let (ticket, outcome) = disk.wait().expect("an outcome");
            assert_eq!(expected.remove(&ticket), Some(outcome), "seed {seed}");
        }
        let sector = random.u64(..SECTORS);
        let sectors = random.u64(1..=4);
        let range = (sector * SECTOR) as usize..((sector + sectors) * SECTOR) as usize;
        let fits = sector + sectors <= SECTORS;
        let (request, outcome) = match random.u32(..8) {
            0..4 => {
                let data = vec![random.u8(..); range.len()];
                let outcome = match model.get_mut(range) {
                    Some(place) => {
                        place.copy_from_slice(&data);
                        Ok(Vec::new())
                    }
                    None => Err(Error::Invalid),
                };
                (Request::Write { sector, data }, outcome)
            }
            4..7 => {
                let outcome = model.get(range).map(<[u8]>::to_vec);
                assert_eq!(outcome.is_some(), fits);
                let outcome = outcome.ok_or(Error::Invalid);
                (Request::Read { sector, sectors }, outcome)
            }
            _ => (Request::Flush, Ok(Vec::new())),
        };
        let ticket = disk.submit(request).expect("a driver");
        expected.insert(ticket, outcome);
    }
    while !expected.is_empty() {
        let (ticket, outcome) = disk.wait().expect("an outcome");
        assert_eq!(expected.remove(&ticket), Some(outcome), "seed {seed}");
    }
    assert_eq!(disk.wait().err(), Some(Error::Invalid), "nothing is open");
    let device = device.borrow();
    assert_eq!(device.content, model, "seed {seed}");
    (device.died, device.most)
}

#[test]
fn a_disk_is_a_disk_whoever_dies() {
    let (mut died, mut most) = (0, 0);
    for seed in 0..200 {
        let (deaths, with_one) = play(seed, [0, 5, 20, 50][seed as usize % 4]);
        died += deaths;
        most = most.max(with_one);
    }
    assert!(died > 1_000, "{died} drivers died");
    assert!(most > 8, "{most} requests at a time");
}

/// No driver has a write any more when it gets the flush after that write.
#[test]
fn a_flush_waits_for_the_writes_before_it() {
    let device = device(3, 0);
    let mut disk = Disk::new(Fakes(Rc::clone(&device)));
    let write = |sector| Request::Write {
        sector,
        data: vec![1; SECTOR as usize],
    };
    for request in [write(0), write(1), Request::Flush, write(2)] {
        disk.submit(request).unwrap();
    }
    let given = |disk: &Disk<Fakes>| disk.session.as_ref().map_or(0, |s| s.given.len());
    assert_eq!(given(&disk), 3, "the writes, and not the flush");
    let (mut done, mut flushed) = (0, false);
    while done < 4 {
        let (ticket, _) = disk.wait().unwrap();
        done += 1;
        flushed |= ticket == 2;
        let content = &device.borrow().content;
        let both = content[0] == 1 && content[SECTOR as usize] == 1;
        assert!(both || !flushed);
    }
    assert!(flushed);
}

/// A driver that never answers ends the wait with an error.
#[test]
fn a_disk_whose_drivers_all_die_is_given_up() {
    let mut disk = Disk::new(Fakes(device(1, 1000)));
    assert_eq!(disk.submit(Request::Flush), Err(Error::Broken));
    assert_eq!(disk.geometry(), Err(Error::Broken));
    assert_eq!(disk.wait().err(), Some(Error::Broken));
}

/// A driver that reports everything as done, also what it was not given; or that announces room, and takes nothing.
struct Liar {
    takes: bool,
    asked: Rc<RefCell<u32>>,
}

impl Liar {
    fn answer(&self) -> Result<(), Error> {
        match self.takes {
            true => Ok(()),
            false => Err(Error::WouldBlock),
        }
    }

    fn count(&self) {
        *self.asked.borrow_mut() += 1;
        assert!(*self.asked.borrow() < 10_000, "S3: a driver is given up");
    }
}

impl Session for Liar {
    fn geometry(&mut self) -> Result<(u64, bool), Error> {
        Ok((SECTORS, true))
    }
    fn read(&mut self, _: u64, _: u64, _: u64) -> Result<(), Error> {
        self.answer()
    }
    fn write(&mut self, _: u64, _: u64, _: &[u8]) -> Result<(), Error> {
        self.answer()
    }
    fn flush(&mut self, _: u64) -> Result<(), Error> {
        self.answer()
    }
    fn done(&mut self) -> Result<(u64, u64), Error> {
        self.count();
        Ok((1 << 63, 0))
    }
    fn data(&mut self, _: u64, _: &mut [u8]) -> Result<usize, Error> {
        Err(Error::Invalid)
    }
    fn release(&mut self, _: u64) -> Result<(), Error> {
        Ok(())
    }
    fn room(&mut self) -> Result<(), Error> {
        self.count();
        Ok(())
    }
}

struct Liars(bool, Rc<RefCell<u32>>);

impl Drivers for Liars {
    type Session = Liar;
    fn open(&mut self) -> Result<Liar, Error> {
        Ok(Liar {
            takes: self.0,
            asked: Rc::clone(&self.1),
        })
    }
}

#[test]
fn a_disk_whose_driver_says_what_cannot_be_is_given_up() {
    for takes in [true, false] {
        let mut disk = Disk::new(Liars(takes, Rc::default()));
        let mut sector = [0; SECTOR as usize];
        assert_eq!(disk.read(0, &mut sector), Err(Error::Broken), "{takes}");
        assert_eq!(disk.write(0, &sector), Err(Error::Broken), "{takes}");
    }
}

#[test]
fn what_is_larger_than_a_request_goes_in_pieces() {
    let device = device(2, 100);
    device.borrow_mut().content = vec![0; 1 << 20];
    let mut disk = Disk::new(Fakes(Rc::clone(&device)));
    let data: Vec<u8> = (0..SECTORS * SECTOR).map(|n| (n % 251) as u8).collect();
    disk.write(0, &data).unwrap();
    disk.flush().unwrap();
    let mut read = vec![0; data.len()];
    disk.read(0, &mut read).unwrap();
    assert_eq!(read, data);
    assert_eq!(disk.read(SECTORS, &mut read), Err(Error::Invalid));
    assert_eq!(disk.read(u64::MAX, &mut read), Err(Error::Invalid));
}

/// A driver that is back after a while.
struct Late(Fakes, u32);

impl Drivers for Late {
    type Session = Fake;
    fn open(&mut self) -> Result<Fake, Error> {
        match self.1.checked_sub(1) {
            Some(left) => {
                self.1 = left;
                Err(Error::Broken)
            }
            None => self.0.open(),
        }
    }
}

/// An operation that failed for want of a driver left its requests behind, whose answers were taken for those of the
/// next one: a flush was confirmed that was not done, and then a read took the answer of another request.
#[test]
fn what_failed_leaves_no_request_behind() {
    let device = device(5, 0);
    let mut disk = Disk::new(Late(Fakes(Rc::clone(&device)), 3));
    let (data, mut read) = (vec![7; SECTOR as usize], vec![0; SECTOR as usize]);
    assert_eq!(disk.flush(), Err(Error::Broken));
    assert_eq!(disk.read(0, &mut read), Err(Error::Broken));
    assert_eq!(disk.write(1, &data), Err(Error::Broken));
    assert_eq!(disk.write(0, &data), Ok(()));
    assert_eq!(disk.flush(), Ok(()));
    assert_eq!(
        disk.wait().err(),
        Some(Error::Invalid),
        "what failed leaves no request behind"
    );
    assert_eq!(disk.read(0, &mut read), Ok(()));
    assert_eq!(read, data, "a read has the answer of another one");
}
