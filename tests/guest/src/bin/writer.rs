//! Saves programs that write to their memory all the time, while they go on: `writer HOW MEGABYTES ROUNDS`.
//!
//! The saved program is this one too, `writer run MEGABYTES ROUNDS`. It counts, and writes the count to one page
//! after the other, which must contain the count of the previous round. So if a page is from another instant than the
//! others, in the image or in the copied program, the program exits with 1.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use rt::process::{Client, Process, Start, Status, Stdio};
use rt::{println, time, Error};

rt::entry!(main);

const IMAGE: &str = "/tmp/written";
const PAGE: usize = 4096 / 8;
/// Longer than a process stands still that goes on while its image is written, in nanoseconds.
const STILL: u64 = 2_500_000;

/// When the image was requested.
static BEGIN: AtomicU64 = AtomicU64::new(u64::MAX);
/// The process was killed before the image was complete.
static KILLED: AtomicBool = AtomicBool::new(false);

fn main() -> u8 {
    let arguments = &rt::start().args;
    let word = |n: usize| arguments.get(n).map_or("", String::as_str);
    let number = |n: usize| word(n).parse::<u64>().unwrap_or(1);
    let (megabytes, rounds) = (number(2), number(3));
    let done = match word(1) {
        "run" => return run(megabytes, rounds),
        // The process goes on, and so does the one that is restored from the image.
        "save" => save(megabytes, rounds, false),
        // The process is killed while the image is written.
        "kill" => save(megabytes, rounds, true),
        "stop" => stop(megabytes, rounds),
        // Writes a page whenever it is told to.
        "pages" => return pages(megabytes),
        // There is memory for the image or for what is written meanwhile, and not for both.
        "full" => full(megabytes, rounds),
        _ => Err("how?".to_string()),
    };
    match done {
        Ok(()) => {
            println!("{}: as it should be", word(1));
            0
        }
        Err(why) => {
            println!("{}: {why}", word(1));
            1
        }
    }
}

/// Counts so many rounds.
fn run(megabytes: u64, rounds: u64) -> u8 {
    let pages = (megabytes << 20) / 4096;
    let mut memory = vec![0u64; pages as usize * PAGE];
    // Twice in each page, so that a page that was copied in the middle of a write is detected.
    for count in 1..=rounds * pages {
        let at = (count % pages) as usize * PAGE;
        let before = count.saturating_sub(pages);
        for word in [at, at + PAGE - 1] {
            let is_first = before == 0 && memory[word] == 0;
            if memory[word] != before && !is_first {
                return 1;
            }
            memory[word] = count;
        }
        black_box(&mut memory);
    }
    0
}

/// Writes one page after the other of so many megabytes, each when its number is in `/tmp/page`, and reports it by a
/// file with that number. At `end` all pages must contain what was written.
fn pages(megabytes: u64) -> u8 {
    let pages = (megabytes << 20) as usize / 4096;
    let mut memory = vec![u64::MAX; pages * PAGE];
    let mut last = 0;
    let say = |number: u64| rt::fs::write_all(&alloc::format!("/tmp/page.{number}"), b"x", 0o600);
    if say(0).is_err() {
        return 1;
    }
    loop {
        time::sleep(5_000_000);
        let text = rt::fs::read_all("/tmp/page").unwrap_or_default();
        let text = core::str::from_utf8(&text).unwrap_or_default().trim_end();
        if text == "end" {
            break;
        }
        let Some(number) = text.parse().ok().filter(|number| *number == last + 1) else {
            continue;
        };
        last = number;
        memory[last as usize * PAGE] = last;
        black_box(&mut memory);
        if say(last).is_err() {
            return 1;
        }
    }
    for (number, page) in (0u64..).zip(memory.chunks_exact(PAGE)) {
        let is_written = (1..=last).contains(&number);
        let first = if is_written { number } else { u64::MAX };
        if page[0] != first || page[1..].iter().any(|word| *word != u64::MAX) {
            println!("page {number} is another one");
            return 1;
        }
    }
    println!("{last} pages: as it should be");
    0
}

fn words(error: Error) -> String {
    error.text().to_string()
}

fn started(megabytes: u64, rounds: u64) -> Result<Process, String> {
    let start = Start {
        args: Vec::from([
            "writer".to_string(),
            "run".to_string(),
            megabytes.to_string(),
            rounds.to_string(),
        ]),
        stdio: Vec::from([Stdio::Null, Stdio::Null, Stdio::Null]),
        ..Start::default()
    };
    let native = Client::new("native").map_err(words)?;
    let process = native.spawn("/test/writer", &start, &[]).map_err(words)?;
    // Waits until all of its memory is there.
    let most = time::now() + 20_000_000_000;
    while time::now() < most {
        let info = process.info().map_err(words)?;
        if info.resident >= megabytes << 20 {
            return Ok(process);
        }
        time::sleep(1_000_000);
    }
    Err("it does not fill its memory".to_string())
}

fn ended(what: &str, process: &Process, wanted: Status) -> Result<(), String> {
    match process.ended() {
        Ok(status) if status == wanted => process.reap().map(drop).map_err(words),
        other => Err(alloc::format!("{what}: {other:?}")),
    }
}

/// The process that is restored from the image counts to the end.
fn restored() -> Result<(), String> {
    let made = rt::checkpoint::restore(IMAGE)?;
    let [(_, _, process)] = &made[..] else {
        return Err("not one process".to_string());
    };
    ended("what was restored", process, Status::Exited(0))?;
    rt::fs::unlink(IMAGE).map_err(words)
}

fn save(megabytes: u64, rounds: u64, kill: bool) -> Result<(), String> {
    let process = started(megabytes, rounds)?;
    let killer = process.port().copy().map_err(rt::error_of).map_err(words)?;
    let pid = process.pid();
    if kill {
        // The process has gone on when this thread has a turn again, since no thread has one while it stands still.
        let wait = move || {
            while time::now() < BEGIN.load(Relaxed).saturating_add(2 * STILL) {
                rt::sys::thread_yield();
            }
            let is_written = rt::fs::stat(IMAGE, true).is_err();
            let killed = Process::at(pid, killer).kill();
            KILLED.store(is_written && killed.is_ok(), Relaxed);
        };
        rt::thread::spawn(wait).map_err(|code| words(rt::error_of(code)))?;
    }
    let begin = time::now();
    BEGIN.store(begin, Relaxed);
    let saved = rt::checkpoint::save(&[**process.port()], IMAGE)?;
    let took = time::now() - begin;
    if kill && !KILLED.load(Relaxed) {
        return Err("it was not killed while its image was written".to_string());
    }
    if saved.bytes < megabytes << 20 || saved.still > STILL || took < 2 * STILL {
        return Err(alloc::format!(
            "{} bytes, still {} of {took}",
            saved.bytes,
            saved.still
        ));
    }
    let wanted = if kill {
        Status::Killed(9)
    } else {
        Status::Exited(0)
    };
    if !kill && process.status() != Ok(Status::Running) {
        return Err("it does not go on".to_string());
    }
    restored()?;
    ended("what was saved", &process, wanted)
}

/// The process stays stopped until it is resumed.
fn stop(megabytes: u64, rounds: u64) -> Result<(), String> {
    let process = started(megabytes, rounds)?;
    rt::checkpoint::save_and_stop(&[**process.port()], IMAGE)?;
    if process.status() != Ok(Status::Stopped) {
        return Err("it is not stopped".to_string());
    }
    restored()?;
    process.resume().map_err(words)?;
    ended("what was saved", &process, Status::Exited(0))
}

/// Whatever happens, the process does not notice, and a file of that name is a complete image.
fn full(megabytes: u64, rounds: u64) -> Result<(), String> {
    let mut saved = 0;
    let mut refused = Vec::new();
    let mut still = 0;
    for left in [8, 20, 40] {
        let process = started(megabytes, rounds)?;
        let free = rt::memory::usage().map_err(words)?.free;
        let size = free.saturating_sub(left << 20) & !0xf_ffff;
        let takes = rt::memory::create(size.max(1 << 20)).map_err(words)?;
        takes.populate(0, size).map_err(words)?;
        let result = rt::checkpoint::save(&[**process.port()], IMAGE);
        let _ = takes.destroy();
        match result {
            Ok(image) => {
                // The process was saved again, and stood still until the image was written.
                still += u64::from(image.still > STILL);
                restored()?;
                saved += 1;
            }
            Err(why)
                if rt::fs::stat(IMAGE, true).is_ok()
                    || rt::fs::stat("/tmp/written.tmp", true).is_ok() =>
            {
                return Err(alloc::format!("a file is left: {why}"));
            }
            Err(why) => refused.push(why),
        }
        ended("what was saved", &process, Status::Exited(0))?;
    }
    println!("full: {saved} saved, {still} of them standing still");
    if saved < 2 || still == 0 || still == saved || refused.is_empty() {
        return Err(alloc::format!("others: {refused:?}"));
    }
    println!("full: refused: {}", refused.join("; "));
    Ok(())
}
