//! `tone`: plays a tone on two channels.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use rt::eprintln;
use sound::{tone, Kind, Player};

rt::entry!(main);

const USAGE: &str = "usage: tone HZ MS";
/// The best quality that every card has.
const KIND: Kind = Kind {
    rate: 44_100,
    channels: 2,
    format: services::sound::Format::S16,
};
/// How many frames are computed at a time.
const PIECE: u64 = 4096;

fn play(hz: u64, milliseconds: u64) -> Result<(), rt::Error> {
    let mut player = Player::system(KIND)?;
    let frames = KIND.rate * milliseconds / 1000;
    let frame = |number| {
        let sample = tone::sample(hz, KIND.rate, number).to_le_bytes();
        [sample, sample].concat()
    };
    let mut at = 0;
    while at < frames {
        let end = frames.min(at + PIECE);
        let samples: Vec<u8> = (at..end).flat_map(frame).collect();
        player.write(&samples)?;
        at = end;
    }
    player.drain()
}

fn main() -> u8 {
    let args = &rt::start().args;
    let number = |index: usize, most: u64| {
        let number = args.get(index)?.parse().ok();
        number.filter(|number| (1..=most).contains(number))
    };
    let (Some(hz), Some(milliseconds), 3) = (number(1, 20_000), number(2, 600_000), args.len())
    else {
        eprintln!("{USAGE}");
        return 2;
    };
    match play(hz, milliseconds) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("tone: {}", sound::why(error));
            1
        }
    }
}
