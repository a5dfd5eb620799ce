//! A program to be checkpointed with files of a directory open. It sleeps once, to be saved and killed, while others
//! change these files, and once more after its first requests since the restore, so that the server of the disk can die.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::String;
use rt::fs::{File, Flags};
use rt::{println, Error};

rt::entry!(main);

/// In nanoseconds.
const PAUSE: u64 = 3_000_000_000;

fn main() -> u8 {
    let directory = rt::start().args.get(1).map_or("/tmp", String::as_str);
    match run(directory) {
        Ok(()) => 0,
        Err(error) => {
            println!("{directory}: {}", error.text());
            1
        }
    }
}

fn run(directory: &str) -> Result<(), Error> {
    let create = Flags {
        create: true,
        ..Flags::default()
    };
    let open = |name| File::open(&format!("{directory}/{name}"), create, 0o644);
    let (input, output, shared) = (open("in")?, open("out")?, open("shared")?);
    output.write_all(0, b"put out\n")?;
    shared.write_all(0, b"AAAA\n")?;
    rt::time::sleep(PAUSE);
    let read = text(&input)?;
    let put = match output.write_all(8, b"more\n") {
        Ok(()) => "written",
        Err(error) => error.text(),
    };
    shared.write_all(5, b"CCCC\n")?;
    rt::time::sleep(PAUSE);
    let both = text(&shared)?;
    println!("{directory}: in {read:?}, out: {put}, shared {both:?}");
    Ok(())
}

fn text(file: &File) -> Result<String, Error> {
    let mut bytes = [0; 100];
    let length = file.read(0, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}
