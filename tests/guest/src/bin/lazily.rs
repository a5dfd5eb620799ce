//! Processes that are restored before their memory has been read: `lazily PLAY`.
//!
//! The saved process is this program too, `lazily hold MEGABYTES`. It fills memory with words that follow from their
//! positions, waits for a file as a signal, and then checks all words from the last one on, so that what is read
//! first from the image is needed last.
#![no_std]
#![no_main]

extern crate alloc;

use abi::state::ThreadState;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::hint::black_box;
use proto::layout::CHUNK;
use rt::checkpoint::How;
use rt::fs::{File, Flags};
use rt::memory::{Supplier, Supplies};
use rt::obj::ThreadAt;
use rt::process::{Client, Process, Start, Status, Stdio};
use rt::window::Window;
use rt::{println, time, Error};

rt::entry!(main);

const IMAGE: &str = "/tmp/lazy-image";
/// The file that tells the process to check its memory.
const GO: &str = "/tmp/lazy-go";
/// The process's exit status if all words are right.
const WELL: u8 = 7;
const MEGABYTES: u64 = 32;

fn main() -> u8 {
    let arguments = &rt::start().args;
    let word = |n: usize| arguments.get(n).map_or("", String::as_str);
    let done = match word(1) {
        "hold" => return hold(word(2).parse().unwrap_or(1)),
        "bytes" => bytes(),
        "killed" => killed(),
        "damaged" => damaged(),
        "truncated" => truncated(),
        "saved" => saved(),
        "two" => two(),
        "based" => based(),
        "maker" => maker(),
        _ => Err("which play?".to_string()),
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

fn words(error: Error) -> String {
    error.text().to_string()
}

fn check(what: &str, is: bool) -> Result<(), String> {
    match is {
        true => Ok(()),
        false => Err(what.to_string()),
    }
}

/// The word at this position. No two pages are alike.
const fn word_at(place: u64) -> u64 {
    let word = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ word >> 29
}

fn hold(megabytes: u64) -> u8 {
    let count = (megabytes << 20) / 8;
    let mut memory: Vec<u64> = (0..count).map(word_at).collect();
    black_box(&mut memory);
    while rt::fs::stat(GO, true).is_err() {
        time::sleep(1_000_000);
    }
    let mut places = (0..count).rev().zip(memory.iter().rev());
    match places.all(|(place, word)| *word == word_at(place)) {
        true => WELL,
        false => 1,
    }
}

/// A process whose memory is full.
fn started(megabytes: u64) -> Result<Process, String> {
    let _ = rt::fs::unlink(GO);
    let start = Start {
        args: Vec::from([
            "lazily".to_string(),
            "hold".to_string(),
            megabytes.to_string(),
        ]),
        stdio: Vec::from([Stdio::Null, Stdio::Null, Stdio::Console]),
        ..Start::default()
    };
    let native = Client::new("native").map_err(words)?;
    let process = native.spawn("/test/lazily", &start, &[]).map_err(words)?;
    let most = time::now() + 60_000_000_000;
    while resident(&process)? < megabytes << 20 {
        check("it does not fill its memory", time::now() < most)?;
        time::sleep(1_000_000);
    }
    // The process has written its last word.
    time::sleep(20_000_000);
    Ok(process)
}

fn resident(process: &Process) -> Result<u64, String> {
    process.info().map(|info| info.resident).map_err(words)
}

/// An image of such a process, which is then killed.
fn image(how: How<'_>) -> Result<(), String> {
    let process = started(MEGABYTES)?;
    rt::checkpoint::save_with(&[**process.port()], IMAGE, how)?;
    killed_now(&process)
}

fn killed_now(process: &Process) -> Result<(), String> {
    process.kill().map_err(words)?;
    process.reap().map(drop).map_err(words)
}

/// Restores the process from an image; not all of its memory is there when it runs.
fn made(image: &str) -> Result<Process, String> {
    let lazily = rt::checkpoint::restore_lazily(image)?;
    check(&lazily.at_once, lazily.at_once.is_empty())?;
    let mut processes = lazily.processes.into_iter();
    match (processes.next(), processes.next()) {
        (Some((_, _, process)), None) => Ok(process),
        _ => Err("not one process".to_string()),
    }
}

fn lazily(image: &str) -> Result<Process, String> {
    let process = made(image)?;
    let there = resident(&process)?;
    check(
        &format!("{there} bytes of its memory were there at once"),
        there < MEGABYTES << 19,
    )?;
    Ok(process)
}

/// Lets the process check its memory, and waits until it has ended.
fn looks(process: &Process) -> Result<(), String> {
    rt::fs::write_all(GO, b"go", 0o644).map_err(words)?;
    ends(process, Status::Exited(WELL))
}

fn ends(process: &Process, as_it_should: Status) -> Result<(), String> {
    let most = time::now() + 60_000_000_000;
    loop {
        let status = process.status().map_err(words)?;
        if status.has_ended() {
            check(&format!("it has ended: {status:?}"), status == as_it_should)?;
            return process.reap().map(drop).map_err(words);
        }
        check("it never ends", time::now() < most)?;
        time::sleep(1_000_000);
    }
}

/// The process continues at once, and all of its memory is right: also with a compressed image, and with an image
/// that has lost its name meanwhile.
fn bytes() -> Result<(), String> {
    for compress in [false, true] {
        let how = How {
            compress,
            ..How::default()
        };
        image(how)?;
        let process = lazily(IMAGE)?;
        rt::fs::unlink(IMAGE).map_err(words)?;
        looks(&process)?;
        let _ = rt::fs::unlink(GO);
    }
    // All memory arrives, even if the process touches none of it.
    image(How::default())?;
    let process = lazily(IMAGE)?;
    let most = time::now() + 60_000_000_000;
    while resident(&process)? < MEGABYTES << 20 {
        check("it does not come by itself", time::now() < most)?;
        time::sleep(1_000_000);
    }
    looks(&process)
}

fn free() -> Result<u64, String> {
    rt::memory::usage().map(|usage| usage.free).map_err(words)
}

/// The process is killed while most of its memory is still to come: nothing of it remains.
fn killed() -> Result<(), String> {
    image(How::default())?;
    killed_now(&lazily(IMAGE)?)?;
    let settled = || {
        time::sleep(200_000_000);
        free()
    };
    let before = settled()?;
    for _ in 0..5 {
        let process = lazily(IMAGE)?;
        let meanwhile = free()?;
        check(
            "what is still to come is nobody's",
            before - meanwhile >= MEGABYTES << 20,
        )?;
        killed_now(&process)?;
    }
    let then = settled()?;
    check(
        &format!("{before} bytes were free, and then {then}"),
        then + 2 * CHUNK >= before,
    )
}

/// A page of the image that is read late has changed: the process is killed, and never gets other bytes.
fn damaged() -> Result<(), String> {
    image(How::default())?;
    let process = lazily(IMAGE)?;
    let file = File::open(IMAGE, Flags::default(), 0).map_err(words)?;
    let at = file.opened().size - (1 << 20);
    let mut byte = [0];
    file.read_full(at, &mut byte).map_err(words)?;
    file.write_all(at, &[byte[0] ^ 1]).map_err(words)?;
    ends(&process, Status::Killed(9))
}

/// The image is cut.
fn truncated() -> Result<(), String> {
    image(How::default())?;
    let process = lazily(IMAGE)?;
    rt::fs::write_all(IMAGE, b"another file", 0o644).map_err(words)?;
    ends(&process, Status::Killed(9))
}

/// The process is saved while most of its memory is still to come: the new image has all of it.
fn saved() -> Result<(), String> {
    image(How::default())?;
    let process = lazily(IMAGE)?;
    // By another client than the checkpointer, which waits until all has arrived.
    let frozen = process.freeze(0).err();
    check(
        "A1: its memory is read before it has come",
        frozen == Some(Error::Unsupported),
    )?;
    rt::checkpoint::save(&[**process.port()], "/tmp/lazy-again")?;
    killed_now(&process)?;
    looks(&made("/tmp/lazy-again")?)
}

/// Two processes from one image, and then more than are allowed at a time.
fn two() -> Result<(), String> {
    image(How::default())?;
    let both = [lazily(IMAGE)?, lazily(IMAGE)?];
    rt::fs::write_all(GO, b"go", 0o644).map_err(words)?;
    for process in &both {
        ends(process, Status::Exited(WELL))?;
    }
    rt::fs::unlink(GO).map_err(words)
}

/// An image that is based on another one.
fn based() -> Result<(), String> {
    let parent = "/tmp/lazy-parent";
    let process = started(MEGABYTES)?;
    rt::checkpoint::save(&[**process.port()], parent)?;
    let how = How {
        parent: Some(parent),
        ..How::default()
    };
    rt::checkpoint::save_with(&[**process.port()], IMAGE, how)?;
    killed_now(&process)?;
    let size = rt::fs::stat(IMAGE, true).map_err(words)?.size;
    check("it is not based on its parent", size < 1 << 20)?;
    looks(&lazily(IMAGE)?)
}

/// A client that makes a process itself, and never supplies what it owes, holds up only threads that touch that
/// memory. When the client drops the segment, these accesses fail.
fn maker() -> Result<(), String> {
    let native = Client::new("native").map_err(words)?;
    let own = rt::start::names();
    let adopted = native.adopt(&own).map_err(words)?;
    let process = adopted.process;
    let supplier = Supplier::new(process.supplier(0).map_err(words)?);
    // A thread that its manager stops, and that is not there any more when it is to go on: where it was, memory is owed.
    process
        .populate(0, false, 40 * CHUNK, 4096)
        .map_err(words)?;
    let place = Window::map(
        &adopted.memory,
        40 * CHUNK,
        CHUNK,
        rt::access::READ | rt::access::WRITE | rt::access::OBJECTS,
    );
    let place = place.map_err(words)?;
    let stopped = ThreadAt(place.address());
    let code = |code| words(rt::error_of(code));
    stopped.create().map_err(code)?;
    let state = ThreadState::default();
    stopped.set_state(&state, 0, 0, 0).map_err(code)?;
    supplier.owe(16 * CHUNK, 4 * CHUNK).map_err(words)?;
    let of_owed = process.populate(0, false, 17 * CHUNK, 4096);
    check(
        "S1: what is owed is waited for",
        of_owed == Err(Error::WouldBlock),
    )?;
    let left = supplier.left().map_err(words)?;
    check("it is not wanted", left.wanted == Some(17 * CHUNK))?;
    // A part without a name, which says that the process runs.
    process.rebuild(&[3, 0, 0, 0], 0).map_err(words)?;
    process.stop().map_err(words)?;
    stopped.destroy().map_err(code)?;
    // What has no objects has no right to any from now on.
    check("S1: the manager waits", process.info().is_ok())?;
    let memory = adopted.memory;
    let window = Window::map(&memory, 0, 64 * CHUNK, rt::access::READ).map_err(words)?;
    let touch = move || {
        let mut bytes = vec![0; 8];
        for (chunk, is) in [(18, 5), (19, 6)] {
            let _ = window.read(chunk * CHUNK + 4096, &mut bytes);
            if bytes[0] != is {
                println!("maker: chunk {chunk} has {}", bytes[0]);
            }
        }
    };
    let thread = rt::thread::spawn(touch).map_err(|code| words(rt::error_of(code)))?;
    time::sleep(20_000_000);
    check("S1: nobody waits", !thread.is_finished())?;
    // The process goes on, and so do the threads that are there.
    process.resume().map_err(words)?;
    // Others get memory meanwhile, and the manager answers.
    check("S1: the manager waits", process.info().is_ok())?;
    let segment = rt::memory::create(CHUNK).map_err(words)?;
    segment.populate(0, CHUNK).map_err(words)?;
    segment.destroy().map_err(words)?;
    let supplies = Supplies::new().map_err(words)?;
    let from = Window::map(
        supplies.region(),
        0,
        CHUNK,
        rt::access::READ | rt::access::WRITE,
    );
    let from = from.map_err(words)?;
    from.write(4096, &[5]).map_err(words)?;
    let left = supplier
        .supply(18 * CHUNK + 4096, 4096, &supplies)
        .map_err(words)?;
    check("it was not supplied", left.chunks == 3)?;
    time::sleep(20_000_000);
    let left = supplier.left().map_err(words)?;
    check(
        "the next one is not wanted",
        left.wanted == Some(19 * CHUNK),
    )?;
    check("S1: nobody waits", !thread.is_finished())?;
    from.write(4096, &[6]).map_err(words)?;
    supplier
        .supply(19 * CHUNK + 4096, 4096, &supplies)
        .map_err(words)?;
    time::sleep(20_000_000);
    check("who has waited waits still", thread.is_finished())?;
    drop(supplier);
    time::sleep(20_000_000);
    let is_there = memory.kind() == rt::abi::RefKind::Region;
    check("A1: what will never come is waited for", !is_there)?;
    killed_now(&process)
}
