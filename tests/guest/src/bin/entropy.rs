//! Random bytes of a machine with a device of random numbers:
//!
//! * `entropy state` prints whether they are good for secrets, and whether any bytes of the device have been mixed
//!   in;
//! * `entropy wait N` waits until N pieces of the device have been mixed in;
//! * `entropy doors` tries all ways to open a session with its driver;
//! * `entropy load SEED KILLS` asks for random bytes, for which the device is asked again and again, while the driver
//!   is killed; needs the system port.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use guest_tests::killer;
use rt::proto::Error;
use rt::{println, thread, time};
use services::entropy::EntropyClient;

rt::entry!(main);

/// The driver.
const DRIVER: &str = "virtio-rng";
/// The longest time between two kills, in nanoseconds; every second kill waits until a piece of the device has
/// arrived.
const PAUSE: u64 = 60_000_000;
/// The pause between two checks, in nanoseconds.
const LOOK: u64 = 1_000_000;
/// Bytes of one request.
const REQUEST: usize = 4096;
/// How many pieces of the device have to arrive after the last kill.
const AFTERWARDS: u64 = 3;

fn state() -> Result<(), Error> {
    let (is_secret, pieces) = rt::random::state()?;
    let quality = if is_secret { "secret" } else { "no secret" };
    let device = if pieces > 0 { "something" } else { "nothing" };
    println!("{quality}, {device} of a device");
    Ok(())
}

fn wait(wanted: u64) -> Result<(), Error> {
    let mut bytes = [0; REQUEST];
    while rt::random::state()?.1 < wanted {
        // After many bytes for one client the device is asked again.
        rt::random::fill(&mut bytes)?;
        time::sleep(LOOK);
    }
    Ok(())
}

fn doors() -> Result<(), Error> {
    let say = |what: &str, opened: Result<EntropyClient, Error>| match opened {
        Ok(_) => println!("{what}: a session"),
        Err(error) => println!("{what}: {}", error.text()),
    };
    let by_name = rt::names::lookup("entropy");
    say(
        "by its name",
        by_name.and_then(|door| EntropyClient::open_known(&door)),
    );
    let by_init = rt::names::control("entropy");
    say(
        "by init",
        by_init.and_then(|door| EntropyClient::open_known(&door)),
    );
    let by_power = rt::system::control("entropy");
    say(
        "by the system port",
        by_power.and_then(|door| EntropyClient::open_known(&door)),
    );
    Ok(())
}

/// Asks for so many bytes; each eight of them must be new. Adds them to the known ones, up to a limit.
fn fill(bytes: &mut [u8], seen: &mut BTreeSet<u64>) -> Result<(), Error> {
    rt::random::fill(bytes)?;
    // By chance, one of 2^34 machines sees one of 2^15 such words twice.
    for word in bytes.chunks_exact(8).step_by(64) {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        if seen.len() < 1 << 15 && !seen.insert(word) {
            return Err(Error::Broken);
        }
    }
    Ok(())
}

fn load(seed: u64, kills: u64) -> Result<(), Error> {
    wait(1)?;
    thread::spawn(move || killer::run_at_work(DRIVER, seed, kills, PAUSE)).map_err(rt::error_of)?;
    let mut bytes = vec![0; REQUEST];
    let mut seen = BTreeSet::new();
    let (mut requests, mut first) = (0u64, None);
    let begin = rt::random::state()?.1;
    let mut before = begin;
    loop {
        fill(&mut bytes, &mut seen)?;
        requests += 1;
        let (is_secret, pieces) = rt::random::state()?;
        if !is_secret {
            return Err(Error::Denied);
        }
        if pieces > before {
            before = pieces;
            killer::served();
        }
        if killer::is_done() && pieces >= *first.get_or_insert(pieces) + AFTERWARDS {
            break;
        }
    }
    let (_, pieces) = rt::random::state()?;
    println!(
        "entropy: {} kills, {} at work",
        killer::killed(),
        killer::at_work()
    );
    rt::eprintln!(
        "entropy: {requests} requests, {} pieces of the device's",
        pieces - begin
    );
    Ok(())
}

fn main() -> u8 {
    let args = &rt::start().args;
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().unwrap_or(0);
    let done = match words[..] {
        ["state"] => state(),
        ["wait", pieces] => wait(number(pieces)),
        ["doors"] => doors(),
        ["load", seed, kills] => load(number(seed), number(kills)),
        _ => Err(Error::Invalid),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            println!("entropy: {}", error.text());
            1
        }
    }
}
