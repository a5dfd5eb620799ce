//! A program to be checkpointed together with `tally_server`: makes requests that must be done exactly once, and
//! checks that they were.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use guest_tests::tally::{line, TallyClient, NAME, ROUNDS};
use rt::sync::Mutex;
use rt::{time, Error};

rt::entry!(main);

/// How long the server may take to start, in nanoseconds.
const PATIENCE: u64 = 1_000_000_000;

fn main() -> u8 {
    match ask() {
        Ok(()) => {
            rt::println!("{ROUNDS} rounds, each request done once");
            0
        }
        Err(why) => {
            rt::println!("tally_client: {why}");
            1
        }
    }
}

fn words(error: Error) -> String {
    error.text().into()
}

/// A session with the server, once there is one: the name may still be that of a server that is gone.
fn session() -> Result<TallyClient, Error> {
    let end = time::now() + PATIENCE;
    loop {
        let opened = rt::names::wait_for(NAME, end).and_then(|door| TallyClient::open(&door));
        if opened.is_ok() || time::now() > end {
            return opened;
        }
        time::sleep(1_000_000);
    }
}

/// Checks an answer.
fn check(what: &str, round: u64, answer: Result<u64, Error>, wanted: u64) -> Result<(), String> {
    match answer {
        Ok(found) if found == wanted => Ok(()),
        Ok(found) => Err(format!("{what} {round}: {found}, not {wanted}")),
        Err(error) => Err(format!("{what} {round}: {}", error.text())),
    }
}

fn ask() -> Result<(), String> {
    let mut tally = session().map_err(words)?;
    let mut other = session().map_err(words)?;
    // The other thread brings twice what this one brings.
    let swapped = Arc::new(Mutex::new(None));
    let told = Arc::clone(&swapped);
    rt::thread::spawn(move || {
        let mut rounds = 0..ROUNDS;
        let all = rounds
            .try_for_each(|round| check("the other's swap", round, other.swap(2 * round), round));
        *told.lock() = Some(all);
    })
    .map_err(|code| words(rt::error_of(code)))?;
    let (mut sum, mut length) = (0, 0);
    for round in 0..ROUNDS {
        sum += round;
        check("add", round, tally.add(round), sum)?;
        let text = line(round);
        length += text.len() as u64;
        check("append", round, tally.append(&text), length)?;
        check("swap", round, tally.swap(round), 2 * round)?;
    }
    loop {
        if let Some(all) = swapped.lock().take() {
            return all;
        }
        time::sleep(1_000_000);
    }
}
