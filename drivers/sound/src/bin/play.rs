//! `play`: plays a file.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use rt::eprintln;
use rt::fs::{File, Flags};
use services::sound::Format;
use sound::{wav, Kind, Player, System};

rt::entry!(main);

const USAGE: &str = "usage: play FILE.wav";
/// Bytes that are read at a time.
const PIECE: usize = 16 * 1024;

/// Takes the card, with the samples as they are or, if the card cannot play those, widened. Returns whether they are
/// to be widened.
fn begin(kind: Kind) -> Result<(Player<System>, bool), rt::Error> {
    match Player::system(kind) {
        Err(rt::Error::Unsupported) if kind.format == Format::U8 => {
            let format = Format::S16;
            Ok((Player::system(Kind { format, ..kind })?, true))
        }
        player => Ok((player?, false)),
    }
}

fn play(path: &str) -> Result<(), String> {
    let text = |error: rt::Error| error.text().to_string();
    let file = File::open(path, Flags::default(), 0).map_err(text)?;
    let mut buffer = vec![0; PIECE];
    let length = file.read_full(0, &mut buffer[..wav::HEAD]).map_err(text)?;
    let (kind, start, size) = wav::head(&buffer[..length])?;
    let why = |error: rt::Error| sound::why(error).to_string();
    let (mut player, widens) = begin(kind).map_err(why)?;
    let (mut at, end) = (start as u64, (start as u64).saturating_add(size));
    while at < end {
        let most = (end - at).min(PIECE as u64) as usize;
        // A file may be shorter than its header says.
        let length = match file.read(at, &mut buffer[..most]).map_err(text)? {
            0 => break,
            length => length,
        };
        at += length as u64;
        let piece = &buffer[..length];
        let wide: Vec<u8>;
        let samples = if widens {
            wide = wav::widen(piece).collect();
            &wide
        } else {
            piece
        };
        player.write(samples).map_err(why)?;
    }
    player.drain().map_err(why)
}

fn main() -> u8 {
    let args = &rt::start().args;
    let (Some(path), 2) = (args.get(1), args.len()) else {
        eprintln!("{USAGE}");
        return 2;
    };
    match play(path) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("play: {path}: {why}");
            1
        }
    }
}
