//! Saves a process in a file in memory, ends it, and restores it from the file: `save_restore [FILTER]`. Its memory
//! holds pseudo-random data.
//!
//! The process is this program too: `save_restore hold BYTES` fills so much memory, writes a word to its output, and
//! sleeps. `save_restore look BYTES` measures when it continues after a restore. `save_restore watch BYTES` keeps
//! writing to its memory and reading the clock, and prints how long it stood still.
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
/// The word that the process writes when it has filled its memory.
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

/// The same, for a process whose memory is read while it runs: until the answer, and until it has executed its first
/// instruction.
const LAZY: &[(&str, &str, usize)] = &[
    ("checkpoint_lazy_2", "checkpoint_lazy_first_2", 2),
    ("checkpoint_lazy_16", "checkpoint_lazy_first_16", 16),
    ("checkpoint_lazy_64", "checkpoint_lazy_first_64", 64),
];
/// The time between the image and the restore, and the least gap in the counter by which the process knows that it
/// was restored, in instructions: more than a turn of other programs.
const BETWEEN: u64 = 50_000_000;
const MISSED: u64 = 25_000_000;

/// How long a process stands still while it is saved, if it writes and reads the clock all the time.
const STOPPED: &[(&str, usize)] = &[
    ("checkpoint_stopped_2", 2),
    ("checkpoint_stopped_16", 16),
    ("checkpoint_stopped_64", 64),
];
/// The same with more memory, for machines that have it: only if these megabytes are requested.
const LARGE: usize = 256;

/// The time up to which a gap does not count, in nanoseconds: an interrupt, a page that is copied on write, the first
/// part of the checkpointer's work before it stops anything.
const STILL: u64 = 100_000;
/// How many bytes the process writes to.
const WRITTEN: usize = 1 << 20;
/// How long the process measures on, in nanoseconds, while its image is written.
const LATER: u64 = 200_000_000;
/// The longest gap allowed then: a turn of the program that writes, one of the thread that destroys what others have
/// left, which runs at a program's priority, and the work of servers for both.
const TURN: u64 = 25_000_000;

fn main() -> u8 {
    let mut arguments = rt::start().args.iter().skip(1);
    let (mode, bytes) = (arguments.next(), arguments.next());
    if let Some(then) = mode.and_then(|mode| doing(mode)) {
        return hold(bytes.map_or("", String::as_str), then);
    }
    let report = Report::from_arguments();
    let mut good = true;
    for (save_row, restore_row, megabytes) in ROWS {
        // Each row is measured alone, so that it can be requested without the other.
        good &= report.bench(save_row, "run", || save(*megabytes));
        good &= report.bench(restore_row, "run", || restore(*megabytes));
    }
    for (row, first, megabytes) in LAZY {
        good &= report.bench(row, "run", || lazily(*megabytes).map(|(sample, _)| sample));
        good &= report.value(first, "instructions", || {
            lazily(*megabytes).map(|(_, first)| (first, 1))
        });
    }
    for (row, megabytes) in STOPPED {
        good &= report.value(row, "instructions", || stopped(*megabytes));
    }
    if rt::start()
        .args
        .iter()
        .any(|words| words.contains(&LARGE.to_string()))
    {
        good &= report.bench(&format!("checkpoint_save_{LARGE}"), "run", || save(LARGE));
        good &= report.bench(&format!("checkpoint_restore_{LARGE}"), "run", || {
            restore(LARGE)
        });
        good &= report.value(
            &format!("checkpoint_stopped_{LARGE}"),
            "instructions",
            || stopped(LARGE),
        );
    }
    u8::from(!good)
}

/// What a process that holds memory does afterwards.
type Then = fn(&mut [u64]) -> u8;

/// The function for a word of the command line.
fn doing(word: &str) -> Option<Then> {
    match word {
        "hold" => Some(sleep),
        "look" => Some(look),
        "watch" => Some(watch),
        _ => None,
    }
}

fn sleep(held: &mut [u64]) -> u8 {
    loop {
        time::sleep(1_000_000_000);
        core::hint::black_box(&held);
    }
}

/// The processor's counter, which is not adjusted for a restored process as its clock is: it counts instructions
/// where the machine's clock does.
fn counter() -> u64 {
    // SAFETY: it reads a register that programs may read.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads the counter until it has a gap, and prints the first value after the gap.
fn look(held: &mut [u64]) -> u8 {
    let (mut last, mut first) = (counter(), 0);
    while first == 0 {
        let now = counter();
        if now - last > MISSED {
            first = now;
        }
        last = now;
    }
    core::hint::black_box(held);
    let found = format!(" {first}");
    rt::print!("{found}");
    loop {
        time::sleep(1_000_000_000);
    }
}

/// Writes to its memory and reads its clock until it has stood still, and for `LATER` after that. Prints how long it
/// stood still, and the longest gap after that, both in nanoseconds.
fn watch(held: &mut [u64]) -> u8 {
    let most = held.len().clamp(1, WRITTEN / 8);
    let (mut first, mut longest, mut end) = (0, 0, u64::MAX);
    let (mut last, mut at) = (time::now(), 0);
    while last < end {
        if let Some(word) = held.get_mut(at) {
            *word = last;
        }
        at = (at + 4096 / 8) % most;
        let now = time::now();
        let gap = now - last;
        last = now;
        if first == 0 && gap > STILL {
            (first, end) = (gap, now + LATER);
        } else if first > 0 {
            longest = gap.max(longest);
        }
    }
    // In one piece.
    let found = format!(" {first} {longest}");
    rt::print!("{found}");
    loop {
        time::sleep(1_000_000_000);
    }
}

/// Holds so many bytes.
fn hold(bytes: &str, then: Then) -> u8 {
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
    then(&mut held)
}

/// A process that holds so much, and then does this.
fn started(megabytes: usize, then: &str) -> Result<Process, String> {
    let native = Client::new("native").must("the manager")?;
    let output = Stdio::File {
        path: OUTPUT.to_string(),
        append: false,
    };
    let start = Start {
        args: Vec::from([
            PROGRAM.to_string(),
            then.to_string(),
            (megabytes << 20).to_string(),
        ]),
        env: Vec::new(),
        stdio: Vec::from([Stdio::Null, output, Stdio::Console]),
        cwd: "/".to_string(),
    };
    let _ = rt::fs::unlink(OUTPUT);
    let process = native.spawn(PROGRAM, &start, &[]).must("spawn")?;
    said(READY.len())?;
    Ok(process)
}

/// The output of the process, once it has at least so many bytes.
fn said(least: usize) -> Result<String, String> {
    let end = time::now() + PATIENCE;
    loop {
        let said = rt::fs::read_all(OUTPUT).unwrap_or_default();
        if said.len() >= least {
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
        if time::now() > end {
            return Err(format!("it said no more than {said:?}"));
        }
        time::sleep(1_000_000);
    }
}

fn ended(process: &Process) -> Result<(), String> {
    process.kill().must("kill")?;
    process.reap().must("reap").map(drop)
}

fn save(megabytes: usize) -> Outcome {
    let process = started(megabytes, "hold")?;
    let saved = loops::stretch(|| rt::checkpoint::save(&[**process.port()], IMAGE));
    ended(&process)?;
    let least = (megabytes << 20) as u64;
    match saved? {
        saved if saved.bytes < least => Err(format!("the image has {} bytes", saved.bytes)),
        _ => Ok(Sample::of_block(1)),
    }
}

/// How long the process stood still by its own measurement, and that it did so once.
fn stopped(megabytes: usize) -> Result<(u64, u64), String> {
    let process = started(megabytes, "watch")?;
    let saved = rt::checkpoint::save(&[**process.port()], IMAGE);
    let said = saved.and_then(|_| said(READY.len() + 4));
    ended(&process)?;
    let said = said?;
    let mut numbers = said.split(' ').skip(1).map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(later))) if later < TURN => Ok((first, 1)),
        _ => Err(format!("it said {said}")),
    }
}

fn restore(megabytes: usize) -> Outcome {
    let process = started(megabytes, "hold")?;
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

/// Measures until the answer, and until the process has executed its first instruction.
fn lazily(megabytes: usize) -> Result<(Sample, u64), String> {
    let process = started(megabytes, "look")?;
    let saved = rt::checkpoint::save_and_stop(&[**process.port()], IMAGE);
    ended(&process)?;
    saved?;
    time::sleep(BETWEEN);
    let begin = counter();
    let restored = loops::stretch(|| rt::checkpoint::restore_lazily(IMAGE))?;
    let [(.., process)] = &restored.processes[..] else {
        return Err(format!(
            "{} processes were restored",
            restored.processes.len()
        ));
    };
    let said = said(READY.len() + 4);
    ended(process)?;
    let said = said?;
    let first = said.split(' ').nth(1).map(str::parse::<u64>);
    match first {
        Some(Ok(first)) if restored.at_once.is_empty() => Ok((Sample::of_block(1), first - begin)),
        _ => Err(format!(
            "it said {said}, and the checkpointer {}",
            restored.at_once
        )),
    }
}
