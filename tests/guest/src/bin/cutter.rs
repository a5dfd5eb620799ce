//! Cuts programs: runs them once undisturbed, then again, and at random instants saves them in an
//! image, kills them, and restores them from the image alone. Both runs must end and print alike.
//!
//! ```text
//! cutter [seed=N] [cuts=N] [hunt=N] [in=FILE] [out=FILE] [image=FILE] [verbose=1] [any=1] [leave=FILE]
//!        MANAGER PROGRAM ARGUMENT... [+ MANAGER PROGRAM ARGUMENT...]...
//! ```
//!
//! Several programs are saved together; they are started from the last to the first, and the end of the first ends
//! the run. `hunt` is how many of the cuts must find the first program inside a call or a fault: for those the cutter
//! stops it again and again, every few microseconds, until it does. `out` is the file that keeps the undisturbed
//! output. With `any` the programs may end with any status that is the same in both runs, and before they have been
//! cut so often. With `leave` there is one cut, at an instant from the seed; afterwards the image is in this file and
//! the programs are gone.
//!
//! The programs stand still from the instant of the image until they are killed (`stop`). By default they would go on
//! while the image is written, and do work that the image does not contain. The output of a native program would
//! appear twice, since its files are not in the image. So would a Linux program's changes to names (a repeated
//! `mkdir` fails), to files that it opens later, and to programs that are not saved with it. A difference between the
//! runs would then be no fault. `writer` and `savers` save programs that go on.
#![no_std]
#![no_main]

extern crate alloc;

use abi::RefKind;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_tests::harness::Random;
use proto::layout::{CONTROL_SIZE, CONTROL_THREAD};
use rt::access::{OBJECTS, READ, WRITE};
use rt::checkpoint::How;
use rt::obj::{RefAt, ThreadAt};
use rt::process::{Client, Process, Start, Status, Stdio};
use rt::window::Window;

rt::entry!(main);

/// A priority above that of the programs and of the servers that work for them, so that they can be stopped at any
/// instant.
const PRIORITY: u64 = 20;
/// How long a run may take, in nanoseconds of the guest.
const PATIENCE: u64 = 900_000_000_000;
/// Most bytes that are reported of a program's output if it ended in another way.
const SAID: usize = 200;
/// How often [`Running::hunt`] examines the program before it gives up.
const LOOKS: u32 = 20_000;

struct Program {
    manager: String,
    args: Vec<String>,
}

struct Plan {
    seed: u64,
    cuts: u64,
    hunt: u64,
    input: Stdio,
    out: String,
    image: String,
    verbose: bool,
    any: bool,
    leave: Option<String>,
    programs: Vec<Program>,
}

fn plan() -> Result<Plan, String> {
    let mut plan = Plan {
        seed: 1,
        cuts: 20,
        hunt: 0,
        input: Stdio::Null,
        out: "/tmp/cutter.plain".into(),
        image: "/tmp/cutter.image".into(),
        verbose: false,
        any: false,
        leave: None,
        programs: Vec::new(),
    };
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("{text} is no number"))
    };
    let mut args = rt::start().args.iter().skip(1).peekable();
    while let Some((key, value)) = args.peek().and_then(|arg| arg.split_once('=')) {
        match key {
            "seed" => plan.seed = number(value)?,
            "cuts" => plan.cuts = number(value)?,
            "hunt" => plan.hunt = number(value)?,
            "verbose" => plan.verbose = number(value)? != 0,
            "any" => plan.any = number(value)? != 0,
            "in" => {
                plan.input = Stdio::File {
                    path: value.into(),
                    append: false,
                }
            }
            "out" => plan.out = value.into(),
            "leave" => plan.leave = Some(value.into()),
            "image" => plan.image = value.into(),
            other => return Err(format!("what is {other}?")),
        }
        args.next();
    }
    let rest: Vec<String> = args.cloned().collect();
    for program in rest.split(|arg| arg == "+") {
        match program {
            [manager, args @ ..] if !args.is_empty() => plan.programs.push(Program {
                manager: manager.clone(),
                args: args.to_vec(),
            }),
            _ => {
                return Err(
                    "usage: cutter [KEY=VALUE]... MANAGER PROGRAM ARGUMENT... [+ ...]".into(),
                )
            }
        }
    }
    Ok(plan)
}

static RESULT: AtomicU64 = AtomicU64::new(u64::MAX);

fn main() -> u8 {
    // The work is done by a thread of higher priority than the first one.
    let started = rt::thread::spawn_at(PRIORITY, || {
        let status = match plan().and_then(|plan| run(&plan)) {
            Ok(()) => 0,
            Err(why) => {
                rt::println!("{why}");
                1
            }
        };
        RESULT.store(status, Ordering::Release);
    });
    if let Err(code) = started {
        rt::println!("no thread: {code:?}");
        return 2;
    }
    while RESULT.load(Ordering::Acquire) == u64::MAX {
        rt::time::sleep(1_000_000);
    }
    RESULT.load(Ordering::Acquire) as u8
}

/// Running processes: manager and number, in the order of the plan.
struct Running<'a> {
    plan: &'a Plan,
    processes: Vec<Process>,
}

impl<'a> Running<'a> {
    fn start(plan: &'a Plan, out: &str) -> Result<Self, String> {
        let mut running = Running {
            plan,
            processes: Vec::new(),
        };
        let _ = rt::fs::unlink(out);
        for program in plan.programs.iter().rev() {
            let output = Stdio::File {
                path: out.into(),
                append: true,
            };
            let start = Start {
                args: program.args.clone(),
                env: Vec::new(),
                stdio: vec![plan.input.clone(), output.clone(), output],
                cwd: "/".into(),
            };
            let process = Client::new(&program.manager)
                .and_then(|client| client.spawn(&program.args[0], &start, &[]))
                .map_err(|error| format!("cannot start {}: {}", program.args[0], error.text()))?;
            running.processes.insert(0, process);
        }
        Ok(running)
    }

    fn status(&self) -> Result<Status, String> {
        self.processes[0]
            .status()
            .map_err(|error| format!("status: {}", error.text()))
    }

    /// Whether the first program has ended by itself. It may do so between this check and a save, above all while the
    /// clock jumps because the machine waits for a disk.
    fn has_ended(&self) -> bool {
        let status = self.status();
        status.is_ok_and(|status| !matches!(status, Status::Running | Status::Stopped))
    }

    /// Waits for the first program to end, and ends the others.
    fn finish(self) -> Result<Status, String> {
        let end = rt::time::now() + PATIENCE;
        while matches!(self.status()?, Status::Running | Status::Stopped) {
            if rt::time::now() > end {
                let doing = self.processes[0].info().map_or_else(
                    |error| error.text().to_string(),
                    |info| info.doing.join("; "),
                );
                self.kill();
                return Err(format!("it did not end; it is doing: {doing}"));
            }
            rt::time::sleep(1_000_000);
        }
        let status = self.status()?;
        self.kill();
        Ok(status)
    }

    fn kill(&self) {
        for process in &self.processes {
            let _ = process.kill();
            let _ = process.reap();
        }
    }

    /// Maps the manager's objects of the first program, which include the thread's handle.
    ///
    /// If the manager were asked to stop it, everything of higher priority would finish first, above all the memory
    /// server; by the handle the thread is stopped at once.
    fn hold(&self) -> Result<(ThreadAt, Window), String> {
        let process = &self.processes[0];
        let failed = |what: &str, error: proto::Error| format!("{what}: {}", error.text());
        let frozen = process.freeze(0).map_err(|error| failed("freeze", error))?;
        let window = Window::map(&frozen.control, 0, CONTROL_SIZE, READ | WRITE | OBJECTS);
        process.thaw().map_err(|error| failed("thaw", error))?;
        let window = window.map_err(|error| failed("a window", error))?;
        Ok((ThreadAt(window.address() + CONTROL_THREAD), window))
    }

    /// Stops the first program while it waits for a page or for the personality. This stop is counted separately from
    /// the managers' stops.
    fn hunt(&self, random: &mut Random) -> Result<bool, String> {
        let (thread, _window) = self.hold()?;
        let named = thread
            .reference()
            .map_err(|code| format!("a reference: {code:?}"))?;
        for look in 0..LOOKS {
            rt::time::sleep(300 + random.below(1_000));
            // The program has ended: its thread no longer exists.
            if named.kind() != RefKind::Thread {
                return Ok(false);
            }
            thread.stop().map_err(|code| format!("stop: {code:?}"))?;
            let state = thread
                .get_state(0, 0, 0)
                .map_err(|code| format!("get_state: {code:?}"))?;
            // The personality has received this call as an exception and completes it before it takes another request.
            if state.waiting != 0 && state.exception_delivered == 0 {
                return Ok(true);
            }
            thread
                .resume()
                .map_err(|code| format!("resume: {code:?}"))?;
            if look % 64 == 0 && self.status()? != Status::Running {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Undoes the stop of a hunt. A manager may have counted it as one of its own after a restore.
    fn release(&self) -> Result<(), String> {
        if self.status()? == Status::Stopped {
            let continued = self.processes[0].resume();
            return continued.map_err(|error| format!("continue: {}", error.text()));
        }
        let (thread, _window) = self.hold()?;
        thread.resume().map_err(|code| format!("resume: {code:?}"))
    }

    /// Saves the programs, which then stand still. Returns what the threads were doing.
    fn save(&self, path: &str, compress: bool) -> Result<Vec<String>, String> {
        let ports: Vec<RefAt> = self.processes.iter().map(|p| **p.port()).collect();
        let how = How {
            stop: true,
            compress,
            ..How::default()
        };
        let saved = rt::checkpoint::save_with(&ports, path, how);
        Ok(saved.map_err(|why| format!("save: {why}"))?.doing)
    }

    /// Saves, kills and restores the programs. Returns what the threads were doing.
    fn cut(&mut self) -> Result<Vec<String>, String> {
        let path = self.plan.image.as_str();
        let doing = self.save(path, false)?;
        self.kill();
        if self
            .processes
            .iter()
            .any(|process| process.status().is_ok())
        {
            return Err("it is still there after it was killed".into());
        }
        let restored = rt::checkpoint::restore(path)
            .map_err(|why| format!("restore: {why} ({})", doing.join("; ")))?;
        self.processes = restored.into_iter().map(|(.., made)| made).collect();
        Ok(doing)
    }
}

/// The result of a run with cuts.
struct Cut {
    status: Status,
    made: u64,
    hunted: u64,
    /// Threads in user code, in faults, in calls.
    counts: [u64; 3],
}

/// Runs the programs once with cuts at instants spread over `span` nanoseconds.
fn run_with_cuts(plan: &Plan, out: &str, span: u64) -> Result<Cut, String> {
    let mut random = Random(plan.seed);
    let mut instants: Vec<u64> = (0..plan.cuts).map(|_| random.below(span)).collect();
    instants.sort_unstable();
    let mut running = Running::start(plan, out)?;
    let (mut counts, mut made, mut hunted) = ([0; 3], 0, 0);
    // Nanoseconds that the programs have run.
    let mut ran = 0;
    for instant in instants {
        let before = rt::time::now();
        // Hunts come first, because most faults are taken when a program begins.
        let stopped = hunted < plan.hunt && running.hunt(&mut random)?;
        if stopped {
            hunted += 1;
        } else {
            rt::time::sleep(instant.saturating_sub(ran).max(1_000));
        }
        ran += rt::time::now() - before;
        if !stopped && running.status()? != Status::Running {
            break;
        }
        let doing = match running.cut() {
            Ok(doing) => doing,
            Err(_) if running.has_ended() => break,
            Err(why) => {
                running.kill();
                return Err(format!("cut {made} of seed {}: {why}", plan.seed));
            }
        };
        if stopped {
            running.release()?;
        }
        made += 1;
        for words in doing {
            if plan.verbose {
                rt::println!("{words}");
            }
            let kind = ["user", "fault", "call"]
                .iter()
                .position(|kind| words.starts_with(kind));
            counts[kind.unwrap_or(0)] += 1;
        }
    }
    let status = running.finish()?;
    Ok(Cut {
        status,
        made,
        hunted,
        counts,
    })
}

/// Runs the programs until an instant within `span` nanoseconds, and leaves an image of them.
fn leave(plan: &Plan, image: &str, out: &str, mut span: u64) -> Result<(), String> {
    let mut random = Random(plan.seed);
    for _ in 0..8 {
        let running = Running::start(plan, out)?;
        rt::time::sleep(random.below(span * 3 / 4).max(1_000));
        let mut ended = running.status()? != Status::Running;
        if !ended {
            let saved = running.save(image, plan.seed.is_multiple_of(2));
            ended = saved.is_err() && running.has_ended();
            if !ended {
                running.kill();
                saved?;
            }
        }
        if ended {
            running.kill();
            span = span * 3 / 4;
            continue;
        }
        rt::println!("note left in an image");
        return Ok(());
    }
    match plan.any {
        true => Ok(()),
        false => Err("it ends before it can be saved".into()),
    }
}

/// Runs the programs without a cut. Returns the status, and the duration in nanoseconds.
fn undisturbed(plan: &Plan) -> Result<(Status, u64), String> {
    let running = Running::start(plan, &plan.out)?;
    let begin = rt::time::now();
    let status = running.finish()?;
    Ok((status, rt::time::now() - begin))
}

fn run(plan: &Plan) -> Result<(), String> {
    let (plain, mut span) = undisturbed(plan)?;
    if plain != Status::Exited(0) && !plan.any {
        return Err(format!("it ended with {plain:?}"));
    }

    let cut_out = format!("{}.cut", plan.out);
    if let Some(image) = &plan.leave {
        return leave(plan, image, &cut_out, span);
    }
    // The programs wait for each other differently in each run: if the program ended before its last cut, the
    // instants were too far apart, and the run is repeated with closer ones. Its duration is measured again, too: if
    // the host stopped the machine during the first run, that measured many times as long.
    let mut attempts = 0;
    let cut = loop {
        attempts += 1;
        let cut = run_with_cuts(plan, &cut_out, span * 3 / 4)?;
        if cut.made == plan.cuts || attempts == 6 || cut.status != plain {
            break cut;
        }
        let (again, took) = undisturbed(plan)?;
        if again != plain {
            return Err(format!(
                "it ended with {again:?}, and with {plain:?} before"
            ));
        }
        span = took.min(span * 3 / 4);
    };
    let [user, fault, call] = cut.counts;
    rt::println!(
        "note {} cuts within {} us, seed {}: threads {user} in user code, {fault} in faults, \
         {call} in calls",
        cut.made,
        span * 3 / 4 / 1000,
        plan.seed
    );
    let read = |path: &str| rt::fs::read_all(path).map_err(|e| format!("{path}: {}", e.text()));
    if cut.status != plain {
        let said = read(&cut_out)?;
        let end = &said[said.len().saturating_sub(SAID)..];
        return Err(format!(
            "it ended with {:?} and not with {plain:?}, after {}",
            cut.status,
            end.escape_ascii()
        ));
    }
    let (whole, other) = (read(&plan.out)?, read(&cut_out)?);
    if whole != other {
        let at = whole.iter().zip(&other).position(|(a, b)| a != b);
        return Err(format!(
            "the output differs: {} and {} bytes, first at {at:?}",
            whole.len(),
            other.len()
        ));
    }
    if cut.made < plan.cuts && !plan.any {
        return Err(format!(
            "only {} of {} cuts before the end",
            cut.made, plan.cuts
        ));
    }
    if cut.hunted < plan.hunt {
        return Err(format!(
            "only {} of {} hunts found a call or fault",
            cut.hunted, plan.hunt
        ));
    }
    rt::println!("note {} bytes of output equal", whole.len());
    let _ = rt::fs::unlink(&cut_out);
    Ok(())
}
