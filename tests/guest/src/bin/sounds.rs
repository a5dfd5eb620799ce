//! `sounds SEED KILLS`: plays numbered frames while the driver of the sound card is killed again and again, at
//! instants that follow from the seed, and then some more frames. Needs the system port (`trust`) for that, and a
//! machine with a card.
//!
//! `sounds hostile`: makes requests that make no sense, or for another client's card, while that client plays.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use guest_tests::killer;
use rt::proto::Error;
use rt::{println, thread, time};
use services::sound::{Format, SoundClient, MOST};
use sound::{Kind, Player};

rt::entry!(main);

/// The program of the driver.
const DRIVER: &str = "sb16";
/// The least and the longest time between two kills, in nanoseconds: longer than QEMU plays its buffer, so that no
/// more than two drivers are heard at a time.
const LEAST: u64 = 20_000_000;
const PAUSE: u64 = 300_000_000;
/// How many frames are written at a time, and how many after the last kill.
const PIECE: u64 = 2000;
const MORE: u64 = 30_000;
/// The numbers in samples. None is 0, which is silence, and the sum of two is still a sample.
const NUMBERS: u64 = 8192;
const KIND: Kind = Kind {
    rate: 44_100,
    channels: 2,
    format: Format::S16,
};

fn frame(number: u64) -> [u8; 4] {
    let [low, high] = [number % NUMBERS, number / NUMBERS].map(|part| part as u16 + 1);
    (u32::from(low) | u32::from(high) << 16).to_le_bytes()
}

/// All kills are done.
static ENOUGH: AtomicBool = AtomicBool::new(false);

fn kill(seed: u64, kills: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut killed = 0;
    while killed < kills {
        time::sleep(random.u64(LEAST..PAUSE));
        killed += u64::from(killer::kill_but(DRIVER, 0).is_ok());
    }
    ENOUGH.store(true, Ordering::Release);
}

fn play(seed: u64, kills: u64) -> Result<u64, Error> {
    let mut player = Player::system(KIND)?;
    thread::spawn(move || kill(seed, kills)).map_err(rt::error_of)?;
    let (mut next, mut end) = (0, u64::MAX);
    while next < end {
        let samples: Vec<u8> = (next..next + PIECE).flat_map(frame).collect();
        player.write(&samples)?;
        next += PIECE;
        if ENOUGH.load(Ordering::Acquire) {
            end = end.min(next + MORE);
        }
    }
    player.drain()?;
    Ok(next)
}

/// How many frames the other client plays meanwhile: fifteen parts of the ring, so that the card interrupts when the
/// last one has left the ring.
const LONG: u64 = 15 * 2048;

fn hostile() -> Result<(), Error> {
    let door = rt::names::lookup("sound")?;
    let mut other = SoundClient::open_known(&door)?;
    other.begin(KIND.rate, KIND.channels, KIND.format)?;
    let samples: Vec<u8> = (0..LONG).flat_map(frame).collect();
    let (first, rest) = samples.split_at(MOST);
    other.write(first)?;
    let mut sound = SoundClient::open_known(&door)?;
    let say = |what: &str, result: Result<u64, Error>| {
        let text = result.map_or_else(|error| error.text(), |_| "DONE");
        println!("{what}: {text}");
    };
    let none = |result: Result<(), Error>| result.map(|()| 0);
    say(
        "begin while another one plays",
        none(sound.begin(8000, 1, Format::S16)),
    );
    say("write to its ring", sound.write(&[0; 4]));
    say("ask how far it is", sound.played());
    say("wait for its room", none(sound.room()));
    say("wait for its end", none(sound.drain()));
    // The other client has not noticed.
    let mut rest = rest;
    while !rest.is_empty() {
        let most = rest.len().min(MOST);
        match other.write(&rest[..most])? {
            0 => other.room()?,
            taken => rest = &rest[taken as usize..],
        }
    }
    other.drain()?;
    println!("{} of {} bytes were played", other.played()?, samples.len());
    say("half a frame", other.write(&[0; 6]));
    say("more than there may be", other.write(&samples[..MOST + 4]));
    say("nothing", other.write(&[]));
    drop(other);
    for (rate, channels, format) in [
        (0, 1, Format::S16),
        (3999, 1, Format::S16),
        (44_101, 1, Format::S16),
        (u64::MAX, 1, Format::S16),
        (1 << 32 | 44_100, 1, Format::S16),
        (44_100, 0, Format::S16),
        (44_100, 3, Format::S16),
        (44_100, u64::MAX, Format::S16),
        (44_100, 2, Format::U8),
    ] {
        let begun = sound.begin(rate, channels, format);
        say("what the card cannot", none(begun));
    }
    say("write without it", sound.write(&[0; 4]));
    // Repeatedly, and each time what was written is lost.
    for _ in 0..200 {
        sound.begin(4000, 1, Format::S16)?;
        sound.write(&samples[..4096])?;
    }
    sound.drain()?;
    println!("{} bytes were played", sound.played()?);
    Ok(())
}

fn main() -> u8 {
    let words: Vec<&str> = rt::start().args.iter().map(String::as_str).collect();
    if words.get(1) == Some(&"hostile") {
        return match hostile() {
            Ok(()) => 0,
            Err(error) => {
                println!("sounds: {}", error.text());
                1
            }
        };
    }
    let number = |index: usize| words.get(index).and_then(|word| word.parse().ok());
    let (Some(seed), Some(kills)) = (number(1), number(2)) else {
        return 2;
    };
    match play(seed, kills) {
        Ok(frames) => {
            println!("sounds: {kills} kills, {frames} frames");
            0
        }
        Err(error) => {
            println!("sounds: {}", error.text());
            1
        }
    }
}
