//! `disks SEED KILLS [DRIVER]`, `disks kill SEED KILLS SERVER`, `disks hostile`: a disk under load whose driver, or
//! another server, is killed again and again, at instants that follow from the seed. Needs the system port (`trust`).
//!
//! Every read must return what was written before it, no request may end with an error, and in the end the disk must
//! have what was written last: `/tmp/model` then has all of it, for a comparison with the disk from outside.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use block::{Outcome, Request, SystemDisk};
use guest_tests::killer;
use interface::Session;
use rt::fs::{File, Flags};
use rt::proto::Error;
use rt::{println, thread, time};
use services::block::{BlockClient, MOST, OUTSTANDING, SECTOR};
use services::device::{DeviceControlClient, DevicesClient};

rt::entry!(main);

/// Sectors that are written to.
const SECTORS: u64 = 4096;
/// The driver of the disk, unless another one is given.
const DRIVER: &str = "virtio-blk";
/// The longest times between two kills, in nanoseconds: of that driver, and of other servers, which take longer to
/// start.
const PAUSE: u64 = 8_000_000;
const PAUSE_OTHERS: u64 = 60_000_000;
/// Requests that are open at a time.
const OPEN: usize = OUTSTANDING + 8;

/// The longest time between two kills of this server.
fn pause(server: &str) -> u64 {
    match server == DRIVER {
        true => PAUSE,
        false => PAUSE_OTHERS,
    }
}

struct Load {
    disk: SystemDisk,
    random: fastrand::Rng,
    /// The content that the disk must have in the end.
    model: Vec<u8>,
    /// The expected results of open requests.
    expected: BTreeMap<u64, Outcome>,
    done: u64,
}

impl Load {
    /// Submits a request.
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

    /// Waits for a request.
    fn finish(&mut self) -> Result<(), String> {
        let (ticket, outcome) = self.disk.wait().map_err(|error| error.text())?;
        match (self.expected.remove(&ticket), outcome) {
            (Some(expected), outcome) if expected == outcome => {
                self.done += 1;
                killer::served();
                Ok(())
            }
            (_, Err(error)) => Err(alloc::format!("request {ticket}: {}", error.text())),
            _ => Err(alloc::format!("request {ticket} has read something else")),
        }
    }

    fn run(&mut self, driver: &'static str, seed: u64, kills: u64) -> Result<(), String> {
        let size = (SECTORS * SECTOR) as usize;
        self.disk
            .write(0, &vec![0; size])
            .map_err(|error| error.text())?;
        // Requests that are submitted from here on are told apart by their tickets.
        let pause = pause(driver);
        thread::spawn(move || killer::run_at_work(driver, seed, kills, pause))
            .map_err(|_| "no thread")?;
        // The kills follow the clock: on a slow host there may be few requests between them.
        while !killer::is_done() || self.done <= kills {
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

/// Prints the result of a request that must be refused.
fn refused<T>(what: &str, result: Result<T, Error>) {
    let said = result.map_or_else(|error| error.text(), |_| "DONE");
    println!("hostile: {what}: {said}");
}

/// `disks hostile`: requests that make no sense, and doors that are not for every program.
fn hostile() -> u8 {
    for (service, name) in [("device", "device"), ("disk", "disk")] {
        let door = rt::names::lookup(name);
        let open = |id| {
            let door = door.as_ref().map_err(|error| *error)?;
            Session::open_known(door, id)
        };
        refused(
            &alloc::format!("{service}, as a driver"),
            open(DevicesClient::ID),
        );
        refused(
            &alloc::format!("{service}, as init"),
            open(DeviceControlClient::ID),
        );
        refused(
            &alloc::format!("{service}, its sectors"),
            open(BlockClient::ID),
        );
    }
    let disk = rt::system::control("disk").and_then(|door| BlockClient::open_known(&door));
    let Ok(mut disk) = disk else {
        return 1;
    };
    let sector = [7; SECTOR as usize];
    let sectors = disk.geometry().map_or(0, |(sectors, _)| sectors);
    refused("nothing to wait for", disk.done());
    refused("a tag that is none", disk.read(64, 0, 1));
    refused("another one", disk.flush(u64::MAX));
    refused("no sectors", disk.read(0, 0, 0));
    refused("too many", disk.read(0, 0, MOST / SECTOR + 1));
    refused("as many as there are numbers", disk.read(0, 0, u64::MAX));
    refused(
        "more bytes than there are numbers",
        disk.read(0, 0, 1 << 55),
    );
    refused("behind the last", disk.read(0, sectors, 1));
    refused(
        "across the last",
        disk.write(0, sectors - 1, &[sector, sector].concat()),
    );
    refused("far behind the last", disk.write(0, u64::MAX, &sector));
    refused("half a sector", disk.write(0, 0, &sector[..256]));
    refused("nothing", disk.write(0, 0, &[]));
    refused("what was not read", disk.data(5, &mut [0; 512]));
    refused("its release", disk.release(5));
    refused("a read", disk.read(5, 1, 1));
    refused("the same tag", disk.flush(5));
    refused("its end", disk.done());
    refused("with too little room", disk.data(5, &mut [0; 100]));
    refused("with room", disk.data(5, &mut [0; 512]));
    refused("the same tag, as it is not released", disk.read(5, 1, 1));
    refused("a release", disk.release(5));
    refused("another one", disk.release(5));
    let submitted = (0..64).take_while(|tag| disk.read(*tag, 0, 1).is_ok());
    println!("hostile: {} at a time", submitted.count());
    refused("one more", disk.read(40, 0, 1));
    // The client ends without closing anything; the next one finds everything free.
    drop(disk);
    refused(
        "after that",
        SystemDisk::open().and_then(|mut disk| disk.read(0, &mut [0; 4096])),
    );
    0
}

/// How often the killed server gets a request, in nanoseconds.
const OFTEN: u64 = 2_000_000;

/// Makes a request that the killed server has to do.
fn ask(server: &str, disk: &mut SystemDisk) -> Result<(), Error> {
    match server {
        "ext4" => rt::fs::stat("/disk", true).map(|_| ()),
        _ => disk.read(0, &mut [0; SECTOR as usize]),
    }
}

/// `disks kill SEED KILLS SERVER`: kills the server, and leaves the load to others, except for an occasional request
/// that shows whether the server works.
fn only_kill() -> u8 {
    let number = |index: usize| {
        rt::start()
            .args
            .get(index)
            .and_then(|text| text.parse().ok())
    };
    let (Some(seed), Some(kills), Some(server)) = (number(2), number(3), rt::start().args.get(4))
    else {
        return 2;
    };
    let begun = SystemDisk::open().and_then(|disk| {
        let kill = move || killer::run_at_work(server, seed, kills, pause(server));
        thread::spawn(kill).map_err(rt::error_of)?;
        Ok(disk)
    });
    let asked = begun.and_then(|mut disk| {
        while !killer::is_done() {
            ask(server, &mut disk)?;
            killer::served();
            time::sleep(OFTEN);
        }
        Ok(())
    });
    if let Err(error) = asked {
        println!("disks: {} kills: {}", killer::killed(), error.text());
        return 1;
    }
    println!(
        "done: {} kills, {} at work",
        killer::killed(),
        killer::at_work()
    );
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
    match rt::start().args.get(1).map(String::as_str) {
        Some("kill") => return only_kill(),
        Some("hostile") => return hostile(),
        _ => {}
    }
    let number = |index: usize| {
        rt::start()
            .args
            .get(index)
            .and_then(|text| text.parse::<u64>().ok())
    };
    let (Some(seed), Some(kills)) = (number(1), number(2)) else {
        rt::eprintln!("usage: disks SEED KILLS [DRIVER]");
        return 2;
    };
    let driver = rt::start().args.get(3).map_or(DRIVER, String::as_str);
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
    let ran = load.run(driver, seed, kills);
    let killed = killer::killed();
    if let Err(why) = ran.and_then(|()| keep(&load.model).map_err(|error| error.text().into())) {
        println!("disks: seed {seed}, {killed} kills: {why}");
        return 1;
    }
    let at_work = killer::at_work();
    println!(
        "disks: {killed} kills, {at_work} at work, {} requests",
        load.done
    );
    0
}
