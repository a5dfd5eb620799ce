//! Which test notices a mutant that has been planted: tests of packages on the host, tests of the machine, benchmarks.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};
use xtask_bench::Thresholds;
use xtask_build::config::{Config, Irq};
use xtask_build::error::Error;
use xtask_build::image;
use xtask_build::project::BuildTarget;
use xtask_machine::control::Event;
use xtask_machine::signals;
use xtask_machine::{self as machine, End as Stop, Operator, Options};

use super::{End, Room, BENCH, KERNEL, MACHINE, NOBODY, SOURCES};
use crate::{guest_result, GuestLine, Outcome};

/// Host time after which a suite is stopped; includes the build before it, while another room builds.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Sequences in which the kernel is compared with its specification. `test` does five times as many.
const SEQUENCES: &str = "20000";
/// The files of the kernel whose assertions count. An arithmetic panic elsewhere does not name a rule.
pub(super) const JUDGES: &[&str] = &[
    "kernel/src/test/",
    "kernel/src/avl.rs",
    "kernel/src/check.rs",
    "kernel/src/queue.rs",
    "kernel/src/object/mod.rs",
    "kernel/src/object/region.rs",
];
/// Messages of Rust's own panics, which do not count as noticing a mutant.
const CRASHES: &[&str] = &[
    "attempt to ",
    "index out of bounds",
    "range end index",
    "called `",
    "already borrowed",
];

/// The tests of the kernel, cheapest first. A suite without words runs the test that the mutant names.
const SUITES: &[(&str, &[&str])] = &[
    ("the test that should notice", &[]),
    (
        "the quick tests",
        &[
            "--skip=fuzz::",
            "--skip=every_allocation_fails_once",
            "--skip=hostile_callers",
        ],
    ),
    (
        "the slow tests",
        &["fuzz::", "every_allocation_fails_once", "hostile_callers"],
    ),
];

/// Interrupts that the tests of the machine take at random masks: a thousandth of the number in `test` suffices to
/// see that they come.
const INTERRUPTS: &str = "interrupts=20000";

/// Builds the tests of the machine from the copy's `hal`, and boots them: the test of this name must fail and say
/// why.
pub(super) fn on_machine(room: &Room, test: &str) -> Result<End, Error> {
    let config = Config::machine(Irq::Hardware);
    let images = match image::build_example(room, config, "machine") {
        Ok(images) => images,
        Err(error) => return Ok(End::Survived(error.message)),
    };
    let mut options = Options::new(config);
    options.deterministic = true;
    options.timeout = Some(TIMEOUT);
    options.words.push("test".into());
    options.words.push(INTERRUPTS.into());
    let mut listener = Listener::default();
    let stop = machine::run(&images, &options, &mut listener)?;
    if let Some(signal) = signals::caught() {
        return Err(interrupted(signal));
    }
    Ok(match (listener.failed, stop) {
        (Some((name, why)), _) if test.is_empty() || name == test => {
            End::Killed(format!("{MACHINE}{name}: {why}"))
        }
        (Some((name, why)), _) => {
            End::Survived(format!("not {test} but {name} noticed first: {why}"))
        }
        (None, Stop::Broken(lines)) => {
            End::Survived(format!("the machine broke down: {}", lines.join(" ")))
        }
        (None, Stop::TimedOut) => End::Survived(format!("not done after {} s", TIMEOUT.as_secs())),
        (None, _) if !listener.done => {
            End::Survived("it stopped before its tests were done".into())
        }
        (None, _) => End::Survived(NOBODY.into()),
    })
}

/// Builds the copy's kernel and programs, and counts instructions: the benchmark of this name must exceed its
/// threshold. Without a name, any benchmark may.
pub(super) fn by_counting(room: &Room, bench: &str) -> Result<End, Error> {
    let config = Config::DEFAULT;
    let images = match image::build(room, &[config]) {
        Ok(images) => images,
        Err(error) => return Ok(End::Survived(error.message)),
    };
    let verdicts = Thresholds::read(room)?.check(room, &images, config)?;
    if let Some(signal) = signals::caught() {
        return Err(interrupted(signal));
    }
    let of = verdicts.into_iter().find(|(name, verdict)| match bench {
        "" => verdict.is_err(),
        bench => name == bench,
    });
    Ok(match of {
        Some((_, Err(why))) if why.contains("which is more than") => {
            End::Killed(format!("{BENCH}{}/{bench}: {why}", config.name()))
        }
        Some((_, Err(why))) => End::Survived(format!("it breaks {bench}: {why}")),
        Some((_, Ok(()))) => End::Survived(format!("{bench} takes no more than it may")),
        None if bench.is_empty() => End::Survived(NOBODY.into()),
        None => End::Survived(format!("there is no threshold for {bench}")),
    })
}

/// Collects the results of the tests of the machine until one fails.
#[derive(Default)]
struct Listener {
    failed: Option<(String, String)>,
    done: bool,
}

impl Operator for Listener {
    fn console(&mut self, _: &[u8]) -> bool {
        true
    }

    fn event(&mut self, event: &Event) {
        let Event::Test(line) = event else { return };
        match guest_result(line) {
            GuestLine::Result(name, Outcome::Failed(why)) => {
                self.failed.get_or_insert((name, why));
            }
            GuestLine::Done => self.done = true,
            _ => {}
        }
    }

    fn tick(&mut self) -> bool {
        self.failed.is_none() && signals::caught().is_none()
    }
}

/// How the tests of a package are started: a command that takes words of theirs.
pub(super) type Start<'a> = &'a dyn Fn() -> Command;

/// Cargo, which builds the tests of a package in a room and runs them.
pub(super) fn by_cargo(room: &Room, package: &str) -> Command {
    let mut command = room.cargo(BuildTarget::Host, Config::DEFAULT, "test");
    command.args(["--quiet", "--package", package, "--lib"]);
    build_quickly(&mut command, package);
    command.arg("--");
    command
}

/// Building a package takes most of the time, and its tests run for seconds.
pub(super) fn build_quickly(cargo: &mut Command, package: &str) {
    let profile = format!("profile.dev.package.{package}");
    for setting in ["opt-level=1", "debug=0", "codegen-units=256"] {
        cargo.args(["--config", &format!("{profile}.{setting}")]);
    }
}

/// Runs one suite of a package after the other until an assertion fails. Packages other than the kernel have no slow
/// tests: their second suite is all of their tests. An empty name of the killer leaves out the first suite.
pub(super) fn try_suites(
    package: &str,
    killer: &str,
    start: Start,
    log: &Path,
) -> Result<End, Error> {
    let all = [SUITES[0], ("all tests of the package", &[""])];
    let suites = if package == KERNEL { SUITES } else { &all };
    for (suite, words) in &suites[usize::from(killer.is_empty())..] {
        let words = if words.is_empty() { &[killer] } else { *words };
        let mut command = start();
        command.args(["--color", "never"]).args(words);
        command
            .env("RUST_BACKTRACE", "0")
            .env("FERMATA_SEQUENCES", SEQUENCES);
        let end = finish(command, TIMEOUT, log, log)?;
        let output = fs::read_to_string(log).unwrap_or_default();
        match end {
            Some(true) => {
                if !output.contains("test result: ok. ") || output.contains("running 0 tests") {
                    return Ok(End::Survived(format!("{suite}: there is none")));
                }
            }
            Some(false) => return Ok(verdict(package, &output)),
            None => {
                let seconds = TIMEOUT.as_secs();
                return Ok(End::Survived(format!("{suite} did not end in {seconds} s")));
            }
        }
    }
    Ok(End::Survived(NOBODY.into()))
}

/// Runs a command with its output in files, which may be one. Returns whether it succeeds, or `None` if it does not
/// end.
pub(super) fn finish(
    mut command: Command,
    timeout: Duration,
    out: &Path,
    err: &Path,
) -> Result<Option<bool>, Error> {
    let create = |path: &Path| {
        let failed = |error| Error::new(format!("cannot write {}: {error}", path.display()));
        fs::File::create(path).map_err(failed)
    };
    let output = create(out)?;
    let errors = match out == err {
        true => output
            .try_clone()
            .map_err(|error| Error::new(format!("cannot write: {error}")))?,
        false => create(err)?,
    };
    let program = command.get_program().to_string_lossy().into_owned();
    let cannot = |error| Error::new(format!("cannot run {program}: {error}"));
    command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0);
    let mut child = command.spawn().map_err(cannot)?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            return Ok(Some(status.success()));
        }
        let signal = signals::caught();
        if signal.is_some() || start.elapsed() > timeout {
            // The group is the child's own; it may have ended already.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait().map_err(cannot)?;
            return signal.map_or(Ok(None), |signal| Err(interrupted(signal)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The error of a call that a signal ended.
fn interrupted(signal: u8) -> Error {
    Error {
        message: "interrupted: the same command goes on from here".into(),
        status: 128 + signal,
    }
}

/// Judges the output of failed tests: the mutant is killed only if an assertion that counts has failed.
pub(super) fn verdict(package: &str, output: &str) -> End {
    let mut lines = output.lines();
    let mut other = None;
    while let Some(line) = lines.next() {
        let Some((thread, place)) = line.split_once(" panicked at ") else {
            continue;
        };
        let said = lines.next().unwrap_or_default();
        let name = thread.split('\'').nth(1).unwrap_or(thread);
        let place = place.trim_end_matches(':');
        let found = format!(
            "{name} at {place}: {}",
            said.chars().take(160).collect::<String>()
        );
        let crash = CRASHES.iter().any(|crash| said.contains(crash));
        // A comparison without a message does not name a rule.
        let bare = said.starts_with("assertion `") && !said.contains("` failed: ");
        let judges = if package == KERNEL { JUDGES } else { SOURCES };
        if judges.iter().any(|judge| place.starts_with(judge)) && !crash && !bare {
            return End::Killed(found);
        }
        other.get_or_insert(format!("no assertion that names a rule: {found}"));
    }
    let build = || output.lines().find(|line| line.starts_with("error"));
    End::Survived(other.unwrap_or_else(|| match build() {
        Some(error) => format!("it does not build: {error}"),
        None => "the tests failed without a word".into(),
    }))
}
