//! `disks SEED KILLS`, `disks kill SEED KILLS`: a disk under load whose driver is killed again and again, at instants that follow from the seed. Needs the
//! system port (`trust`).
//!
//! Every read must have what was written before it, no request may end with an error, and in the end the disk must have what was
//! written last: all of it is in `/tmp/model` then, for who looks at the disk from outside.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use block::{Outcome, Request, SystemDisk};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::fs::{File, Flags};
use rt::proto::Error;
use rt::{println, thread, time};
use services::block::{MOST, OUTSTANDING, SECTOR};

rt::entry!(main);

/// Sectors that are written to.
const SECTORS: u64 = 4096;
/// Longest time between two kills, in nanoseconds.
const PAUSE: u64 = 8_000_000;
/// Requests that are open at a time.
const OPEN: usize = OUTSTANDING + 8;

static KILLED: AtomicU64 = AtomicU64::new(0);
static ENOUGH: AtomicBool = AtomicBool::new(false);

/// Kills the driver, if there is one now.
fn kill() -> Result<(), Error> {
    let native = rt::system::supervisor("native")?;
    let processes = native.list()?;
    let driver = processes
        .iter()
        .find(|process| process.name == "virtio-blk");
    native.process(driver.ok_or(Error::NotFound)?.pid)?.kill()
}

/// The thread that kills.
fn killer(seed: u64, kills: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while KILLED.load(Ordering::Relaxed) < kills {
        time::sleep(random.u64(..PAUSE));
        if kill().is_ok() {
            KILLED.fetch_add(1, Ordering::Relaxed);
        }
    }
    ENOUGH.store(true, Ordering::Release);
}

struct Load {
    disk: SystemDisk,
    random: fastrand::Rng,
    /// What the disk has when all is done.
    model: Vec<u8>,
    /// What becomes of open requests.
    expected: BTreeMap<u64, Outcome>,
    done: u64,
}

impl Load {
    /// Asks for something.
    fn submit(&mut self) -> Result<(), String> {
        let most = if self.random.u8(..8) == 0 {
            MOST / SECTOR
        } else {
            8
        };
        let sectors = self.random.u64(1..=most);
        let sector = self.random.u64(..=SECTORS - sectors);
        let place = (sector * SECTOR) as usize..((sector + sectors) * SECTOR) as usize;
        let (request, outcome) = match self.random.u8(..16) {
            0 => (Request::Flush, Vec::new()),
            1..9 => {
                let first = self.random.u32(..);
                let words = (first..).take(place.len() / 4);
                let data: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
                self.model[place].copy_from_slice(&data);
                (Request::Write { sector, data }, Vec::new())
            }
            _ => (
                Request::Read { sector, sectors },
                self.model[place].to_vec(),
            ),
        };
        let ticket = self.disk.submit(request).map_err(|error| error.text())?;
        self.expected.insert(ticket, Ok(outcome));
        Ok(())
    }

    /// Waits for one.
    fn finish(&mut self) -> Result<(), String> {
        let (ticket, outcome) = self.disk.wait().map_err(|error| error.text())?;
        match (self.expected.remove(&ticket), outcome) {
            (Some(expected), outcome) if expected == outcome => {
                self.done += 1;
                Ok(())
            }
            (_, Err(error)) => Err(alloc::format!("request {ticket}: {}", error.text())),
            _ => Err(alloc::format!("request {ticket} has read something else")),
        }
    }

    fn run(&mut self, seed: u64, kills: u64) -> Result<(), String> {
        let size = (SECTORS * SECTOR) as usize;
        self.disk
            .write(0, &vec![0; size])
            .map_err(|error| error.text())?;
        // What is submitted from here on is told apart by its ticket.
        thread::spawn(move || killer(seed, kills)).map_err(|_| "no thread")?;
        while !ENOUGH.load(Ordering::Acquire) {
            while self.expected.len() < OPEN {
                self.submit()?;
            }
            self.finish()?;
        }
        while !self.expected.is_empty() {
            self.finish()?;
        }
        let mut all = vec![0; size];
        let read = self.disk.read(0, &mut all).and_then(|()| self.disk.flush());
        read.map_err(|error| error.text())?;
        if all != self.model {
            return Err("the disk has something else than was written last".into());
        }
        Ok(())
    }
}

/// `disks kill SEED KILLS`: kills the driver, and leaves the load to others.
fn only_kill() -> u8 {
    let number = |index: usize| {
        rt::start()
            .args
            .get(index)
            .and_then(|text| text.parse().ok())
    };
    let (Some(seed), Some(kills)) = (number(2), number(3)) else {
        return 2;
    };
    killer(seed, kills);
    println!("done: {} kills", KILLED.load(Ordering::Relaxed));
    0
}

fn keep(model: &[u8]) -> Result<(), Error> {
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    let file = File::open("/tmp/model", flags, 0o644)?;
    let mut at = 0;
    while at < model.len() {
        at += file.write(at as u64, &model[at..])?;
    }
    Ok(())
}

fn main() -> u8 {
    if rt::start().args.get(1).is_some_and(|word| word == "kill") {
        return only_kill();
    }
    let number = |index: usize| {
        rt::start()
            .args
            .get(index)
            .and_then(|text| text.parse::<u64>().ok())
    };
    let (Some(seed), Some(kills)) = (number(1), number(2)) else {
        rt::eprintln!("usage: disks SEED KILLS");
        return 2;
    };
    let disk = match SystemDisk::open() {
        Ok(disk) => disk,
        Err(error) => {
            println!("disks: {}", error.text());
            return 1;
        }
    };
    let mut load = Load {
        disk,
        random: fastrand::Rng::with_seed(!seed),
        model: vec![0; (SECTORS * SECTOR) as usize],
        expected: BTreeMap::new(),
        done: 0,
    };
    let ran = load.run(seed, kills);
    let killed = KILLED.load(Ordering::Relaxed);
    if let Err(why) = ran.and_then(|()| keep(&load.model).map_err(|error| error.text().into())) {
        println!("disks: seed {seed}, {killed} kills: {why}");
        return 1;
    }
    println!("disks: {killed} kills, {} requests", load.done);
    0
}
