//! A client of several services that stands still, to be checkpointed: what it holds of them, and their answers, are
//! the same in each run, wherever the services run. So it makes no request that depends on time.
#![no_std]
#![no_main]

extern crate alloc;

use rt::fs::{self, File, Flags};
use rt::{println, sys, Error};

rt::entry!(main);

fn main() -> u8 {
    match run() {
        Ok(never) => match never {},
        Err(error) => {
            println!("still: {}", error.text());
            1
        }
    }
}

fn run() -> Result<core::convert::Infallible, Error> {
    // A file of the boot archive, so that its times are those of the host's file.
    let file = File::open("/etc/passwd", Flags::default(), 0)?;
    let content = file.read_whole()?;
    let directory = File::open("/etc", Flags::default(), 0)?;
    let (entries, cookie) = directory.read_dir(0)?;
    fs::mkdir("/tmp/still", 0o755)?;
    let again = fs::mkdir("/tmp/still", 0o755) == Err(Error::Exists);
    let ports = ["native", "linux", "checkpoint"].map(rt::names::lookup);
    let lacking = rt::names::lookup("nobody").is_err();
    println!(
        "still: {} bytes, {} entries, {}, {again}, {lacking}",
        content.len(),
        entries.len(),
        ports.iter().flatten().count()
    );
    // Keeps all of it open.
    let all = (file, content, directory, entries, cookie, ports);
    loop {
        core::hint::black_box(&all);
        sys::thread_wait_interrupt();
    }
}
