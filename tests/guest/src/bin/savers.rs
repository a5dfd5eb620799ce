//! A process that several clients save at a time, or that is stopped while it is saved: `savers KIND` for a process
//! of this manager; `savers names`: images next to files with their temporary names; `savers clock FILE`: a process
//! whose clock runs on while another one is frozen that has this file open.
//!
//! The saved native process is this program too, `savers run`, and `savers watch` for the clock.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use proto::layout::{CONTROL_SIZE, CONTROL_THREAD};
use rt::access::{OBJECTS, READ, WRITE};
use rt::checkpoint::How;
use rt::fs::{File, Flags};
use rt::obj::{Ref, ThreadAt};
use rt::process::{Client, Process, Start, Status, Stdio};
use rt::window::Window;
use rt::{println, time, Error};
use services::process::ROOM;

rt::entry!(main);

const IMAGE: &str = "/tmp/saved";
/// The file with the times that `watch` has seen.
const SEEN: &str = "/tmp/seen";
/// The exit status of `run`.
const WELL: u8 = 7;
/// How long another client keeps a process frozen, in nanoseconds: less than the checkpointer waits for it.
const A_WHILE: u64 = 100_000_000;
/// The other client has thawed the process.
static LET_GO: AtomicBool = AtomicBool::new(false);

fn main() -> u8 {
    let arguments = &rt::start().args;
    let word = |n: usize| arguments.get(n).map_or("", String::as_str);
    let done = match word(1) {
        "run" => {
            for _ in 0..300 {
                time::sleep(1_000_000);
            }
            return WELL;
        }
        "watch" => watch().map_err(words),
        "names" => names(),
        "clock" => clock(word(2)),
        manager => both(manager),
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

fn started(manager: &str) -> Result<Process, String> {
    match manager {
        "linux" => spawn("linux", "/bin/busybox", &["busybox", "sleep", "4"]),
        _ => spawn("native", "/test/savers", &["savers", "run"]),
    }
}

fn spawn(manager: &str, path: &str, args: &[&str]) -> Result<Process, String> {
    let start = Start {
        args: args.iter().map(ToString::to_string).collect(),
        stdio: Vec::from([Stdio::Null, Stdio::Null, Stdio::Null]),
        ..Start::default()
    };
    let client = Client::new(manager).map_err(words)?;
    let process = client.spawn(path, &start, &[]).map_err(words)?;
    time::sleep(50_000_000);
    Ok(process)
}

/// Waits until the process has ended, and not for ever.
fn ended(what: &str, process: &Process) -> Result<(), String> {
    let most = time::now() + 20_000_000_000;
    while time::now() < most {
        let status = process.status().map_err(words)?;
        match status {
            Status::Exited(0 | WELL) => return process.reap().map(drop).map_err(words),
            _ if status.has_ended() => return Err(format!("{what} has ended: {status:?}")),
            _ => time::sleep(5_000_000),
        }
    }
    Err(format!("{what} never ends: {:?}", process.status()))
}

fn check(what: &str, is: bool) -> Result<(), String> {
    match is {
        true => Ok(()),
        false => Err(what.to_string()),
    }
}

fn both(manager: &str) -> Result<(), String> {
    two_savers(manager)?;
    stopped_meanwhile(manager)
}

/// Another client has the process frozen while it is to be saved: once for longer than the checkpointer waits, and
/// once for less.
fn two_savers(manager: &str) -> Result<(), String> {
    let process = started(manager)?;
    let mut name = alloc::vec![0; ROOM];
    let mut session = process.open().map_err(words)?;
    session.freeze(0, &mut name).map_err(words)?;
    let mut other = process.open().map_err(words)?;
    let again = other.freeze(0, &mut name).map(|_| ());
    check(
        "who freezes what is frozen is not refused",
        again == Err(Error::Limit),
    )?;
    match rt::checkpoint::save(&[**process.port()], IMAGE) {
        Ok(_) => {
            let _ = session.thaw();
            let made = rt::checkpoint::restore(IMAGE)?;
            let [(_, _, made)] = &made[..] else {
                return Err("not one process".to_string());
            };
            ended("what was saved while it was frozen", made)?;
            return Err("it was saved while somebody else had it frozen".to_string());
        }
        Err(why) => check(&why, why.contains("is being saved by somebody else"))?,
    }
    check(
        "an image is left of what was not saved",
        rt::fs::stat(IMAGE, true).is_err(),
    )?;
    // The other client thaws the process while the checkpointer waits.
    let waits = move || {
        time::sleep(A_WHILE);
        LET_GO.store(true, Relaxed);
        let _ = session.thaw();
    };
    LET_GO.store(false, Relaxed);
    rt::thread::spawn(waits).map_err(|code| words(rt::error_of(code)))?;
    rt::checkpoint::save(&[**process.port()], IMAGE)?;
    check(
        "it was saved while somebody else had it frozen",
        LET_GO.load(Relaxed),
    )?;
    let made = rt::checkpoint::restore(IMAGE)?;
    let [(_, _, made)] = &made[..] else {
        return Err("not one process".to_string());
    };
    ended("what was restored", made)?;
    ended("what was saved", &process)?;
    rt::fs::unlink(IMAGE).map_err(words)
}

/// The stop count of the first thread of a process.
fn stops(control: &Ref) -> Result<u64, String> {
    let window = Window::map(control, 0, CONTROL_SIZE, READ | WRITE | OBJECTS).map_err(words)?;
    let state = ThreadAt(window.address() + CONTROL_THREAD).get_state(0, 0, 0);
    Ok(state.map_err(|code| words(rt::error_of(code)))?.stop_count)
}

/// A process that is stopped, or resumed, while it is frozen is so when it is thawed; its image is from the instant
/// in which it was frozen.
fn stopped_meanwhile(manager: &str) -> Result<(), String> {
    let process = started(manager)?;
    for was_stopped in [false, true] {
        let before = u64::from(was_stopped);
        if was_stopped {
            process.stop().map_err(words)?;
        }
        let frozen = process.freeze(0).map_err(words)?;
        let now = || stops(&frozen.control);
        check("it is not stopped once more", now()? == 1 + before)?;
        let then = match was_stopped {
            false => process.stop(),
            true => process.resume(),
        };
        then.map_err(words)?;
        let status = match was_stopped {
            false => Status::Stopped,
            true => Status::Running,
        };
        check("its status is another one", process.status() == Ok(status))?;
        check(
            "its image would have what came after that instant",
            now()? == 1 + before,
        )?;
        process.thaw().map_err(words)?;
        check("what came is not done", now()? == 1 - before)?;
        if !was_stopped {
            process.resume().map_err(words)?;
        }
        check("it does not go on", now()? == 0)?;
        check("it is not running", process.status() == Ok(Status::Running))?;
    }
    ended("what was frozen", &process)
}

/// Images next to files that have the temporary names of images.
fn names() -> Result<(), String> {
    let process = spawn("native", "/test/savers", &["savers", "run"])?;
    let ports = [**process.port()];
    let (parent, child) = ("/tmp/named.tmp", "/tmp/named");
    rt::checkpoint::save(&ports, parent)?;
    let how = How {
        parent: Some(parent),
        ..How::default()
    };
    rt::checkpoint::save_with(&ports, child, how)?;
    let made = rt::checkpoint::restore(child)?;
    let [(_, _, made)] = &made[..] else {
        return Err("not one process".to_string());
    };
    // Nor may the checkpointer touch the target of a link.
    let (link, own) = ("/tmp/linked.tmp", "/tmp/own");
    rt::fs::write_all(own, b"own", 0o644).map_err(words)?;
    rt::fs::symlink(own, link).map_err(words)?;
    rt::checkpoint::save(&ports, "/tmp/linked")?;
    check(
        "what a link leads to was written",
        rt::fs::read_all(own).as_deref() == Ok(b"own"),
    )?;
    check("the link has gone", rt::fs::readlink(link).is_ok())?;
    for made in ["/tmp/named.tmp1", "/tmp/linked.tmp1"] {
        check("something is left", rt::fs::stat(made, false).is_err())?;
    }
    ended("what was restored", made)?;
    ended("what was saved", &process)
}

/// Writes the time for ten seconds.
fn watch() -> Result<(), Error> {
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    let file = File::open(SEEN, flags, 0o644)?;
    let end = time::now() + 10_000_000_000;
    while time::now() < end {
        file.write_all(0, &time::now().to_le_bytes())?;
    }
    Ok(())
}

/// While the first process is frozen, the checkpointer waits for its file on the disk; the second one sees time pass
/// meanwhile. The clock of the image is the clock with which the restored processes continue.
fn clock(file: &str) -> Result<(), String> {
    let opens = format!("exec 3<>{file}; exec sleep 100");
    let first = spawn("linux", "/bin/busybox", &["busybox", "sh", "-c", &opens])?;
    let second = spawn("native", "/test/savers", &["savers", "watch"])?;
    let begin = time::now();
    rt::checkpoint::save_and_stop(&[**first.port(), **second.port()], IMAGE)?;
    let word = |path: &str, at: usize| {
        let bytes = rt::fs::read_all(path).map_err(words)?;
        let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
        Ok::<_, String>(word.map_or(0, u64::from_le_bytes))
    };
    let (seen, clock) = (word(SEEN, 0)?, word(IMAGE, 48)?);
    check("it did not see the time go by", seen > begin)?;
    if clock < seen {
        return Err(format!(
            "its clock goes back by {} ns when it is restored",
            seen - clock
        ));
    }
    for process in [first, second] {
        process.kill().map_err(words)?;
        process.reap().map_err(words)?;
    }
    Ok(())
}
