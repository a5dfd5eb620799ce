//! A disk that does not answer for a while, and programs that wait for it.
//!
//! * `slow_disk hold` takes all requests that the disk's driver has room for, prints a line, and stays: until it is
//!   killed the disk does nothing for others. Needs the system port (`trust`).
//! * `slow_disk read PATH` reads a file and prints its length.
//! * `slow_disk others` meanwhile asks the disk's server for what it can answer at once, and kills programs that wait
//!   for the disk: more than a job may have sessions, so that nothing may remain of any.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rt::fs::{File, Flags};
use rt::process::{Client, Start, Status, Stdio};
use rt::proto::Error;
use rt::{println, time};
use services::block::{BlockClient, OUTSTANDING};
use services::fs::{FilesClient, ATTR_ROOM, ON_DISK};

rt::entry!(main);

/// This program, and a file on the disk.
const PATH: &str = "/test/slow_disk";
const FILE: &str = "/disk/held";
/// How many waiting programs are killed.
const KILLS: u32 = 140;
/// How long a request takes to reach the server, in nanoseconds.
const UNDER_WAY: u64 = 3_000_000;

fn main() -> u8 {
    let args = &rt::start().args;
    let done = match args.get(1).map(String::as_str) {
        Some("hold") => hold(),
        Some("read") => args.get(2).map_or(Err(Error::Invalid), |path| read(path)),
        Some("others") => others(),
        _ => Err(Error::Invalid),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            println!("slow_disk: {}", error.text());
            1
        }
    }
}

/// Reads, and does not release the requests.
fn hold() -> Result<(), Error> {
    let door = rt::system::control("disk")?;
    let mut sessions = Vec::new();
    loop {
        let mut session = BlockClient::open_known(&door)?;
        let mut taken = 0;
        while taken < OUTSTANDING as u64 && session.read(taken, 0, 1).is_ok() {
            taken += 1;
        }
        sessions.push(session);
        if taken == 0 {
            break;
        }
    }
    println!("held");
    loop {
        time::sleep(1_000_000_000);
    }
}

fn read(path: &str) -> Result<(), Error> {
    let bytes = File::open(path, Flags::default(), 0)?.read_whole()?;
    println!("{path}: {} bytes", bytes.len());
    Ok(())
}

fn others() -> Result<(), Error> {
    let door = rt::names::lookup("ext4")?;
    let session = || FilesClient::open_as(&door, rt::start::names());
    let mut asked = 0;
    for file in 0..200 {
        let mut session = session()?;
        let mut bytes = [0; ATTR_ROOM];
        let refused = [
            session.attributes(ON_DISK | file, &mut bytes).map(drop),
            session.write(ON_DISK | file, 0, b"text").map(drop),
            session.close(ON_DISK | file),
            session.sync(ON_DISK | file),
        ];
        if refused != [Err(Error::NotFound); 4] || session.rename(9, "/") != Err(Error::Invalid) {
            return Err(Error::Broken);
        }
        asked += refused.len() + 1;
    }
    let native = Client::new("native")?;
    let start = Start {
        args: [PATH, "read", FILE]
            .iter()
            .map(ToString::to_string)
            .collect(),
        stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
        cwd: "/".to_string(),
        ..Start::default()
    };
    for _ in 0..KILLS {
        let one = native.spawn(PATH, &start, &[])?;
        time::sleep(UNDER_WAY);
        if one.status()? != Status::Running {
            return Err(Error::Ended);
        }
        one.kill()?;
        let _ = one.reap();
    }
    println!("{asked} were refused, {KILLS} were killed");
    Ok(())
}
