//! A process is saved in a file in memory, ended, and restored from it: `save_restore [FILTER]`. What its memory holds cannot be guessed.
//!
//! The process is this program too: `save_restore hold BYTES` fills so much memory, writes a word to its output, and sleeps.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use benches::loops;
use benches::report::{Outcome, Report, Sample};
use benches::run::Must;
use rt::process::{Client, Process, Start, Stdio};
use rt::time;

rt::entry!(main);

/// Where this program is.
const PROGRAM: &str = "/bench/save_restore";
/// The image.
const IMAGE: &str = "/tmp/bench-image";
/// What the process says when it has filled its memory.
const OUTPUT: &str = "/tmp/bench-image-ready";
const READY: &str = "ready";
/// How long to wait for that, in nanoseconds.
const PATIENCE: u64 = 60_000_000_000;

/// The rows, and the megabytes that the process holds.
const ROWS: &[(&str, &str, usize)] = &[
    ("checkpoint_save_0", "checkpoint_restore_0", 0),
    ("checkpoint_save_2", "checkpoint_restore_2", 2),
    ("checkpoint_save_16", "checkpoint_restore_16", 16),
    ("checkpoint_save_64", "checkpoint_restore_64", 64),
];

fn main() -> u8 {
    let mut arguments = rt::start().args.iter().skip(1);
    if arguments.next().is_some_and(|word| word == "hold") {
        return hold(arguments.next().map_or("", String::as_str));
    }
    let report = Report::from_arguments();
    let mut good = true;
    for (save_row, restore_row, megabytes) in ROWS {
        // Each row is made alone, so that one can be asked for without the other.
        good &= report.bench(save_row, "run", || save(*megabytes));
        good &= report.bench(restore_row, "run", || restore(*megabytes));
    }
    u8::from(!good)
}

/// Holds so many bytes.
fn hold(bytes: &str) -> u8 {
    let Ok(bytes) = bytes.parse::<usize>() else {
        return 2;
    };
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut held = vec![0u64; bytes / 8];
    for place in &mut held {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        *place = word;
    }
    rt::print!("{READY}");
    loop {
        time::sleep(1_000_000_000);
        core::hint::black_box(&held);
    }
}

/// A process that holds so much.
fn started(megabytes: usize) -> Result<Process, String> {
    let native = Client::new("native").must("the manager")?;
    let output = Stdio::File {
        path: OUTPUT.to_string(),
        append: false,
    };
    let start = Start {
        args: Vec::from([
            PROGRAM.to_string(),
            "hold".to_string(),
            (megabytes << 20).to_string(),
        ]),
        env: Vec::new(),
        stdio: Vec::from([Stdio::Null, output, Stdio::Console]),
        cwd: "/".to_string(),
    };
    let _ = rt::fs::unlink(OUTPUT);
    let process = native.spawn(PROGRAM, &start, &[]).must("spawn")?;
    let end = time::now() + PATIENCE;
    while !rt::fs::read_all(OUTPUT).is_ok_and(|said| said == READY.as_bytes()) {
        if time::now() > end {
            return Err("it did not fill its memory".to_string());
        }
        time::sleep(1_000_000);
    }
    Ok(process)
}

fn ended(process: &Process) -> Result<(), String> {
    process.kill().must("kill")?;
    process.reap().must("reap").map(drop)
}

fn save(megabytes: usize) -> Outcome {
    let process = started(megabytes)?;
    let saved = loops::stretch(|| rt::checkpoint::save(&[**process.port()], IMAGE));
    ended(&process)?;
    let least = (megabytes << 20) as u64;
    match saved? {
        saved if saved.bytes < least => Err(format!("the image has {} bytes", saved.bytes)),
        _ => Ok(Sample::of_block(1)),
    }
}

fn restore(megabytes: usize) -> Outcome {
    let process = started(megabytes)?;
    let saved = rt::checkpoint::save(&[**process.port()], IMAGE);
    ended(&process)?;
    saved?;
    let restored = loops::stretch(|| rt::checkpoint::restore(IMAGE))?;
    let [(.., process)] = &restored[..] else {
        return Err(format!("{} processes were restored", restored.len()));
    };
    ended(process)?;
    Ok(Sample::of_block(1))
}
