//! A disk whose server never answers, and programs that are started from it.
//!
//! * `silent_disk stay` registers such a server and stays. Needs the system port (`trust`).
//! * `silent_disk wait` starts a program from the disk, for which it waits, and prints the result.
//! * `silent_disk others` meanwhile starts programs from memory, and programs that wait for the disk, which it stops
//!   and kills.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use rt::obj::Port;
use rt::process::{Client, Process, Start, Status, Stdio};
use rt::proto::Error;
use rt::{println, time};

rt::entry!(main);

/// This program.
const PATH: &str = "/test/silent_disk";
/// How often a waiting program is killed: more often than a job may have processes, so that nothing may remain of
/// any.
const KILLS: u32 = 40;
/// How many wait at the same time.
const AT_ONCE: usize = 8;
/// How long a request takes to reach the server, and the most that a program from memory takes from start to end, in
/// nanoseconds, each an instruction.
const UNDER_WAY: u64 = 2_000_000;
const PROMPT: u64 = 200_000_000;

fn main() -> u8 {
    let done = match rt::start().args.get(1).map(String::as_str) {
        Some("stay") => stay(),
        Some("wait") => wait(),
        Some("others") => others(),
        _ => Err("silent_disk stay|wait|others".to_string()),
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            println!("{why}");
            1
        }
    }
}

fn failed(what: &str) -> impl Fn(Error) -> String + '_ {
    move |error| format!("{what}: {}", error.text())
}

fn stay() -> Result<(), String> {
    let port = Port::new().map_err(|code| format!("{code:?}"))?;
    rt::system::register("ext4", &port).map_err(failed("the name"))?;
    loop {
        time::sleep(1_000_000_000);
    }
}

fn start(native: &Client, path: &str, args: &[&str]) -> Result<Process, Error> {
    let start = Start {
        args: args.iter().map(ToString::to_string).collect(),
        stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
        cwd: "/".to_string(),
        ..Start::default()
    };
    native.spawn(path, &start, &[])
}

fn wait() -> Result<(), String> {
    let native = Client::new("native").map_err(failed("the manager"))?;
    match start(&native, "/disk/program", &["program"]) {
        Ok(_) => println!("a program of a disk that never answered was started"),
        Err(error) => println!("wait: {}", error.text()),
    }
    Ok(())
}

fn others() -> Result<(), String> {
    let native = Client::new("native").map_err(failed("the manager"))?;
    let waits = || start(&native, PATH, &[PATH, "wait"]).map_err(failed("one that waits"));
    let mut waiting = alloc::vec::Vec::new();
    for _ in 0..KILLS {
        waiting.push(waits()?);
        time::sleep(UNDER_WAY);
        let before = time::now();
        let other = start(&native, "/sbin/tools", &["sleep", "0"]).map_err(failed("another"))?;
        let status = other.ended().map_err(failed("its end"))?;
        let _ = other.reap();
        if status != Status::Exited(0) {
            return Err(format!("a program from memory: {status:?}"));
        }
        if time::now() - before > PROMPT {
            return Err("a program from memory had to wait".to_string());
        }
        if waiting.len() == AT_ONCE {
            let first = waiting.remove(0);
            if first.status() != Ok(Status::Running) {
                return Err(format!("one that waits: {:?}", first.status()));
            }
            first.stop().map_err(failed("to stop it"))?;
            first.resume().map_err(failed("to let it go on"))?;
            first.kill().map_err(failed("to kill it"))?;
            let _ = first.reap();
        }
    }
    for process in waiting {
        let _ = process.kill();
        let _ = process.reap();
    }
    println!("others were started");
    Ok(())
}
