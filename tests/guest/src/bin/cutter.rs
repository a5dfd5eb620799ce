//! Cuts programs: runs them once undisturbed, then again, and at random instants saves them in an
//! image, kills them, and restores them from the image alone. Both runs must end and print alike.
//!
//! ```text
//! cutter [seed=N] [cuts=N] [hunt=N] [in=FILE] [out=FILE] [image=FILE] MANAGER PROGRAM ARGUMENT...
//!        [+ MANAGER PROGRAM ARGUMENT...]...
//! ```
//!
//! Several programs are saved together; they are started from the last to the first, and the end
//! of the first ends the run. `hunt` says how many of the cuts must find the first program inside a
//! call or a fault: for those the cutter looks again and again, with the program stopped, until it
//! does. `out` is where the undisturbed output stays.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_tests::harness::Random;
use proto::checkpoint::{Reply, Request};
use proto::process::Pid;
use rt::process::{Client, Start, Status, Stdio};

rt::entry!(main);

/// Above everything that runs for the programs, so that their instants are any.
const PRIORITY: u64 = 20;
/// Time that a run has, in nanoseconds of the guest.
const PATIENCE: u64 = 100_000_000_000;
/// How often one hunt looks.
const LOOKS: u32 = 4000;

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
            "in" => {
                plan.input = Stdio::File {
                    path: value.into(),
                    append: false,
                }
            }
            "out" => plan.out = value.into(),
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
    clients: Vec<Client>,
    pids: Vec<Pid>,
}

impl<'a> Running<'a> {
    fn start(plan: &'a Plan, out: &str) -> Result<Self, String> {
        let mut running = Running {
            plan,
            clients: Vec::new(),
            pids: vec![0; plan.programs.len()],
        };
        for program in &plan.programs {
            running.clients.push(
                Client::new(&program.manager)
                    .map_err(|error| format!("{}: {}", program.manager, error.text()))?,
            );
        }
        let _ = rt::fs::unlink(out);
        for (n, program) in plan.programs.iter().enumerate().rev() {
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
            running.pids[n] = running.clients[n]
                .spawn(&program.args[0], &start, &[])
                .map_err(|error| format!("cannot start {}: {}", program.args[0], error.text()))?;
        }
        Ok(running)
    }

    fn status(&self) -> Result<Status, String> {
        self.clients[0]
            .status(self.pids[0])
            .map_err(|error| format!("status: {}", error.text()))
    }

    /// Waits for the first to end, and ends the others.
    fn finish(self) -> Result<Status, String> {
        let end = rt::time::now() + PATIENCE;
        while matches!(self.status()?, Status::Running | Status::Stopped) {
            if rt::time::now() > end {
                let doing = self.clients[0].list().map_or_else(
                    |error| error.text().to_string(),
                    |list| {
                        let of = |pid| list.iter().filter(move |info| info.pid == pid);
                        of(self.pids[0])
                            .flat_map(|info| info.doing.clone())
                            .collect::<Vec<_>>()
                            .join("; ")
                    },
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
        for (client, pid) in self.clients.iter().zip(&self.pids) {
            let _ = client.kill(*pid);
            let _ = client.reap(*pid);
        }
    }

    /// Stops the first program within a call or a fault.
    fn hunt(&self, random: &mut Random) -> Result<bool, String> {
        for _ in 0..LOOKS {
            rt::time::sleep(2_000 + random.below(30_000));
            if self.status()? != Status::Running {
                return Ok(false);
            }
            let (client, pid) = (&self.clients[0], self.pids[0]);
            client
                .stop(pid)
                .map_err(|error| format!("stop: {}", error.text()))?;
            let list = client
                .list()
                .map_err(|error| format!("list: {}", error.text()))?;
            let found = list.iter().filter(|info| info.pid == pid).any(|info| {
                info.threads
                    .iter()
                    .any(|thread| thread.waiting != 0 || thread.exception != 0)
            });
            if found {
                return Ok(true);
            }
            client
                .resume(pid)
                .map_err(|error| format!("continue: {}", error.text()))?;
        }
        Ok(false)
    }

    /// Saves, kills, restores: what the threads were doing.
    fn cut(&mut self) -> Result<Vec<String>, String> {
        let managers = self
            .plan
            .programs
            .iter()
            .map(|program| program.manager.clone());
        let processes = managers.zip(self.pids.iter().copied()).collect();
        let path = self.plan.image.clone();
        let doing = match ask(&Request::Save {
            processes,
            path: path.clone(),
        })? {
            Reply::Saved { doing, .. } => doing,
            Reply::Refused(why) => return Err(format!("save: {why}")),
            Reply::Restored { .. } => return Err("save: what?".into()),
        };
        self.kill();
        for (client, pid) in self.clients.iter().zip(&self.pids) {
            if client.status(*pid).is_ok() {
                return Err("it is still there after it was killed".into());
            }
        }
        match ask(&Request::Restore { path })? {
            Reply::Restored { processes, .. } => {
                self.pids = processes.into_iter().map(|(_, pid)| pid).collect();
            }
            Reply::Refused(why) => return Err(format!("restore: {why} ({})", doing.join("; "))),
            Reply::Saved { .. } => return Err("restore: what?".into()),
        }
        Ok(doing)
    }
}

fn ask(request: &Request) -> Result<Reply, String> {
    let port = rt::names::lookup("checkpoint").map_err(|error| error.text().to_string())?;
    rt::rpc::ask(&port, request).map_err(|error| format!("the checkpointer: {}", error.text()))
}

fn run(plan: &Plan) -> Result<(), String> {
    let begin = rt::time::now();
    let plain = Running::start(plan, &plan.out)?.finish()?;
    let span = rt::time::now() - begin;

    let cut_out = format!("{}.cut", plan.out);
    let mut random = Random(plan.seed);
    // When to cut, in nanoseconds that the programs have run; the last ones not too late.
    let mut instants: Vec<u64> = (0..plan.cuts)
        .map(|_| random.below(span * 8 / 10))
        .collect();
    instants.sort_unstable();
    let mut running = Running::start(plan, &cut_out)?;
    let mut counts = [0u64; 3];
    let (mut ran, mut made, mut hunted) = (0, 0u64, 0);
    for instant in instants {
        let wait = instant.saturating_sub(ran).max(1_000);
        rt::time::sleep(wait);
        ran += wait;
        if running.status()? != Status::Running {
            break;
        }
        let before = rt::time::now();
        let stopped = hunted < plan.hunt && running.hunt(&mut random)?;
        ran += rt::time::now() - before;
        hunted += u64::from(stopped);
        let doing = match running.cut() {
            Ok(doing) => doing,
            Err(why) => {
                running.kill();
                return Err(format!("cut {made} of seed {}: {why}", plan.seed));
            }
        };
        if stopped {
            running.clients[0]
                .resume(running.pids[0])
                .map_err(|error| format!("continue: {}", error.text()))?;
        }
        made += 1;
        for words in doing {
            let kind = ["user", "fault", "call"]
                .iter()
                .position(|kind| words.starts_with(kind));
            counts[kind.unwrap_or(0)] += 1;
        }
    }
    let status = running.finish()?;
    let [user, fault, call] = counts;
    rt::println!(
        "note {} cuts in {} us, seed {}: threads {user} in user code, {fault} in faults, {call} in calls",
        made,
        span / 1000,
        plan.seed
    );
    if status != plain {
        return Err(format!("it ended with {status:?} and not with {plain:?}"));
    }
    let read = |path: &str| rt::fs::read_all(path).map_err(|e| format!("{path}: {}", e.text()));
    let (whole, cut) = (read(&plan.out)?, read(&cut_out)?);
    if whole != cut {
        let at = whole.iter().zip(&cut).position(|(a, b)| a != b);
        return Err(format!(
            "the output differs: {} and {} bytes, first at {at:?}",
            whole.len(),
            cut.len()
        ));
    }
    if made < plan.cuts {
        return Err(format!("only {made} of {} cuts before the end", plan.cuts));
    }
    if hunted < plan.hunt {
        return Err(format!(
            "only {hunted} of {} hunts found a call or fault",
            plan.hunt
        ));
    }
    if plain != Status::Exited(0) {
        return Err(format!("it ended with {plain:?}"));
    }
    rt::println!("note {} bytes of output equal", whole.len());
    let _ = rt::fs::unlink(&cut_out);
    Ok(())
}
