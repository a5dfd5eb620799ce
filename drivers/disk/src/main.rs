//! `disk`: reads and writes the machine's disk by sectors, for programs with the system port (`trust disk ...`).
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use alloc::vec;
use block::SystemDisk;
use rt::proto::Error;
use rt::{io, println};
use services::block::SECTOR;

rt::entry!(main);

/// Bytes that are moved at a time.
const PIECE: usize = 1 << 20;

const USAGE: &str = "\
usage: disk size
       disk read SECTOR COUNT      to standard output
       disk write SECTOR           from standard input; the last sector is filled up with zeros
       disk flush                  what was written survives a loss of power";

enum Failure {
    Usage,
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

fn number(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure::Usage)
}

fn size() -> Result<(), Failure> {
    let (sectors, writable) = SystemDisk::open()?.geometry()?;
    let how = if writable { "" } else { ", read only" };
    println!("{sectors} sectors of {SECTOR} bytes{how}");
    Ok(())
}

fn read(sector: u64, count: u64) -> Result<(), Failure> {
    let mut disk = SystemDisk::open()?;
    let mut buffer = vec![0; PIECE];
    let (mut sector, mut count) = (sector, count);
    while count > 0 {
        let sectors = count.min(PIECE as u64 / SECTOR);
        let piece = &mut buffer[..(sectors * SECTOR) as usize];
        disk.read(sector, piece)?;
        io::write(piece)?;
        // The sectors were read, so they are inside the disk.
        sector += sectors;
        count -= sectors;
    }
    Ok(())
}

fn write(sector: u64) -> Result<(), Failure> {
    let mut disk = SystemDisk::open()?;
    let mut buffer = vec![0; PIECE];
    let mut sector = sector;
    loop {
        let mut length = 0;
        while length < PIECE {
            match io::read(&mut buffer[length..])? {
                0 => break,
                more => length += more,
            }
        }
        let whole = length.next_multiple_of(SECTOR as usize);
        buffer[length..whole].fill(0);
        disk.write(sector, &buffer[..whole])?;
        sector += whole as u64 / SECTOR;
        if length < PIECE {
            break;
        }
    }
    disk.flush()?;
    Ok(())
}

fn main() -> u8 {
    let arguments = &rt::start().args;
    let words: vec::Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    let done = match words[..] {
        ["size"] => size(),
        ["read", sector, count] => number(sector).and_then(|sector| read(sector, number(count)?)),
        ["write", sector] => number(sector).and_then(write),
        ["flush"] => SystemDisk::open()
            .and_then(|mut disk| disk.flush())
            .map_err(Failure::from),
        _ => Err(Failure::Usage),
    };
    match done {
        Ok(()) => 0,
        Err(Failure::Usage) => {
            rt::eprintln!("{USAGE}");
            2
        }
        Err(Failure::Error(error)) => {
            let why = match error {
                Error::NotFound => "there is no disk: run --disk FILE",
                Error::Denied => "only who has the system port may: trust disk ...",
                error => error.text(),
            };
            rt::eprintln!("disk: {why}");
            1
        }
    }
}
