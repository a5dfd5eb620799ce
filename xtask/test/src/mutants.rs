//! `./fermata prove --mutants`: do the tests notice mistakes?
//!
//! `tests/mutants/` has one mutant per kind of mistake, each a file ([`Mutant`]). Its header describes the mistake,
//! the rule that it breaks and the test that should notice it; the rest has lines of sources and their replacements.
//! Each mutant is planted in a copy of the sources, and tests on the host run there: those of the kernel, cheapest
//! first ([`SUITES`]), or those of another package, until one of their assertions, or one of the kernel's invariants,
//! fails: the mutant is *killed*. Mistakes that the host cannot notice, in the code for the real machine, are left to
//! the tests of the machine ([`on_machine`]), which need only `hal` and a boot of some seconds; mistakes that only
//! cost instructions are left to the benchmarks and their thresholds ([`by_counting`]). A mutant that cannot be
//! planted or does not build, tests that do not end, and a crash all count as surviving.
//!
//! Results are recorded in `target/`, by the sources and the mutant. A copy ([`Room`]) keeps a target directory of
//! its own, so that each mutant costs an incremental build of one package only. There are two copies if the machine
//! has memory and processors for them ([`rooms_for`]).

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};
use serde_json::{json, Value};

use super::journal::{keep, kept, sources};
use super::{guest_result, GuestLine, Outcome};
use xtask_bench::Thresholds;
use xtask_build::busybox;
use xtask_build::config::{Config, Irq};
use xtask_build::error::Error;
use xtask_build::image;
use xtask_build::project::{BuildTarget, Project};
use xtask_machine::control::Event;
use xtask_machine::signals;
use xtask_machine::{self as machine, End as Stop, Operator, Options};

/// The file with the mutants that were killed, and the sources for which that is valid.
const FILE: &str = "prove-mutants.json";
/// The directories that the tests are built from.
const SOURCES: &[&str] = &["abi", "hal", "kernel", "spec", "user", "servers", "drivers"];
/// Fewest mutants that must be killed.
const ENOUGH: usize = 180;
/// Host time after which a suite is stopped; includes the build before it, while another room builds.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Sequences in which the kernel is compared with its specification. `test` does five times as many.
const SEQUENCES: &str = "20000";
/// The files of the kernel whose assertions count. An arithmetic panic elsewhere does not name a rule.
const JUDGES: &[&str] = &[
    "kernel/src/test/",
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

/// The package of a killer that names none.
const KERNEL: &str = "fermata-kernel";
/// The prefix of the names of packages.
const PACKAGE: &str = "fermata-";
/// The prefix of a killer that is a test of the machine.
const MACHINE: &str = "machine/";
/// The prefix of a killer that is a threshold of [`Config::DEFAULT`].
const BENCH: &str = "bench/";
/// Interrupts that the tests of the machine take at random masks: a thousandth of the number in `test` suffices to
/// see that they come.
const INTERRUPTS: &str = "interrupts=20000";

/// A mutant of the sources.
struct Mutant {
    /// Its file's name, without `.mutant`.
    name: String,
    /// The rule that it breaks.
    breaks: String,
    /// The test that should notice.
    killer: Killer,
    text: String,
}

/// The test that should notice a mutant.
enum Killer {
    /// Tests of a package on the host whose names contain the filter.
    Host { package: String, filter: String },
    /// A test of the machine.
    Machine(String),
    /// A threshold of instructions.
    Bench(String),
}

impl Killer {
    /// From `FILTER` (of the kernel's tests), `fermata-PACKAGE/FILTER`, `machine/NAME` or `bench/NAME`.
    fn parse(text: &str) -> Self {
        match text.split_once('/') {
            Some((package, filter)) if package.starts_with(PACKAGE) => Killer::Host {
                package: package.into(),
                filter: filter.into(),
            },
            _ => match (text.strip_prefix(MACHINE), text.strip_prefix(BENCH)) {
                (Some(test), _) => Killer::Machine(test.into()),
                (_, Some(bench)) => Killer::Bench(bench.into()),
                _ => Killer::Host {
                    package: KERNEL.into(),
                    filter: text.into(),
                },
            },
        }
    }
}

/// The result of a mutant that builds and passes all tests.
const NOBODY: &str = "no test noticed";

/// The result of a mutant.
enum End {
    /// An assertion failed: the test, and its message.
    Killed(String),
    /// No test noticed it, or the failure does not count; and why.
    Survived(String),
}

/// A tree of sources with a target directory of its own, where one mutant at a time is planted.
type Room = Project;

/// Memory that a room may need while the largest package is built and tested, in KB.
const ROOM_KB: u64 = 6 << 20;
/// Memory that is left to other programs, in KB.
const SPARE_KB: u64 = 2 << 20;
/// Fewest mutants that are worth a second room, which has to build everything once for itself.
const WORTH: usize = 4;
/// Most rooms: the processors of a usual machine are busy with two.
const MOST_ROOMS: usize = 2;

/// The number of rooms for so many mutants on a machine with so many processors and so much free memory.
fn rooms_for(left: usize, processors: usize, free_kb: u64) -> usize {
    let of_memory = usize::try_from(free_kb.saturating_sub(SPARE_KB) / ROOM_KB).unwrap_or(1);
    let of_work = if left < WORTH { 1 } else { MOST_ROOMS };
    of_memory.min(processors).min(of_work).max(1)
}

/// Memory that is available now, in KB, from `/proc/meminfo`; 0 if that does not say.
fn free_kb() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

/// The room with this number, counted from 0.
fn room(project: &Project, number: usize) -> Room {
    let name = match number {
        0 => "mutants".into(),
        n => format!("mutants-{}", n + 1),
    };
    let target = project.target.join(name);
    Room {
        root: target.join("tree"),
        target,
    }
}

/// Runs a function in each room on a thread of its own, and returns the first error.
fn in_each<'a>(
    rooms: &'a [Room],
    f: impl Fn(usize, &'a Room) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = rooms
            .iter()
            .enumerate()
            .map(|(number, room)| scope.spawn(move || f(number, room)))
            .collect();
        let ends = threads.into_iter().map(|thread| match thread.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // All of them have ended before the first error is returned.
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Runs all mutants that are left, in as many rooms as the machine has memory and processors for. The last line
/// printed is the sum.
pub fn run(project: &Project, filter: Option<&str>, fresh: bool) -> Result<u8, Error> {
    signals::catch();
    let _lock = project.lock_mutants()?;
    let mutants = mutants(&project.root.join("tests/mutants"), filter)?;
    if mutants.is_empty() {
        return Err(Error::new("no mutant in tests/mutants has such a name"));
    }
    let done = Done::read(project, fresh)?;
    let start = Instant::now();
    let is_left = |mutant: &&Mutant| !done.knows(&mutant.name, &mutant.text);
    let left = mutants.iter().filter(is_left).count();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let rooms: Vec<Room> = (0..rooms_for(left, processors, free_kb()))
        .map(|number| room(project, number))
        .collect();
    if left > 0 {
        println!("{left} mutants, {} at a time", rooms.len());
    }
    let counts = |mutant: &Mutant| matches!(mutant.killer, Killer::Bench(_));
    let counts = mutants.iter().any(counts);
    let sheet = Mutex::new(Sheet {
        mutants: &mutants,
        done,
        ends: BTreeMap::new(),
        printed: 0,
        killed: 0,
        survived: Vec::new(),
    });
    in_each(&rooms, |number, room| {
        prepare(project, room, number, counts, &sheet)
    })?;
    let next = AtomicUsize::new(0);
    in_each(&rooms, |_, room| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(mutant) = mutants.get(at) else {
                return Ok(());
            };
            let result = one(project, room, mutant, &sheet);
            let result = result.and_then(|(end, took)| lock(&sheet).take(at, end, took));
            if result.is_err() {
                // The other rooms finish what they have begun.
                next.store(mutants.len(), Ordering::Relaxed);
                return result;
            }
        }
    })?;
    let sheet = sheet.into_inner().unwrap_or_else(PoisonError::into_inner);
    for name in &sheet.survived {
        println!("again: ./fermata prove --mutants {name}");
    }
    println!("{} s", start.elapsed().as_secs());
    println!("{} killed, {} survived", sheet.killed, sheet.survived.len());
    let enough = sheet.killed >= if filter.is_some() { 1 } else { ENOUGH };
    Ok(u8::from(!sheet.survived.is_empty() || !enough))
}

fn lock<'a, 'b>(sheet: &'a Mutex<Sheet<'b>>) -> MutexGuard<'a, Sheet<'b>> {
    sheet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies the sources to a room, and builds and tests them there unchanged, unless that was done before.
fn prepare(
    project: &Project,
    room: &Room,
    number: usize,
    counts: bool,
    sheet: &Mutex<Sheet>,
) -> Result<(), Error> {
    copy(&project.root, &room.root)?;
    let in_room = |what: &str| match number {
        0 => what.to_string(),
        n => format!("{what}-{}", n + 1),
    };
    let unchanged = in_room("unchanged");
    if !lock(sheet).done.knows(&unchanged, "") {
        println!("building and testing the unchanged kernel");
        passes(try_suites(room, KERNEL, "the_papers_example")?)?;
        passes(on_machine(room, "")?)?;
        lock(sheet).done.add(&unchanged, "", "passes")?;
    }
    let counted = in_room("counted");
    if counts && !lock(sheet).done.knows(&counted, "") {
        println!("counting the unchanged kernel");
        let (from, to) = (busybox::find(project)?, room.target.join("downloads"));
        fs::create_dir_all(&to)
            .and_then(|()| fs::copy(&from, to.join("busybox")))
            .map_err(|error| Error::new(format!("cannot copy {}: {error}", from.display())))?;
        passes(by_counting(room, "")?)?;
        lock(sheet).done.add(&counted, "", "passes")?;
    }
    Ok(())
}

/// The result of one mutant, and the seconds that it took; `None` if an earlier call had it.
fn one(
    project: &Project,
    room: &Room,
    mutant: &Mutant,
    sheet: &Mutex<Sheet>,
) -> Result<(End, Option<u64>), Error> {
    let earlier = lock(sheet).done.find(&mutant.name, &mutant.text);
    if let Some(how) = earlier {
        return Ok((End::Killed(how), None));
    }
    let began = Instant::now();
    let end = plant(room, mutant);
    copy(&project.root, &room.root)?;
    Ok((end?, Some(began.elapsed().as_secs())))
}

/// The results of the mutants.
struct Sheet<'a> {
    mutants: &'a [Mutant],
    done: Done,
    /// Results that have not been printed, because a mutant before them has no result yet.
    ends: BTreeMap<usize, (End, Option<u64>)>,
    /// How many results have been printed.
    printed: usize,
    killed: usize,
    survived: Vec<&'a str>,
}

impl Sheet<'_> {
    /// Records the result of a mutant, and prints all results that are complete in the order of the mutants.
    fn take(&mut self, at: usize, end: End, took: Option<u64>) -> Result<(), Error> {
        let mutant = &self.mutants[at];
        if let (End::Killed(how), Some(_)) = (&end, took) {
            self.done.add(&mutant.name, &mutant.text, how)?;
        }
        self.ends.insert(at, (end, took));
        while let Some((end, took)) = self.ends.remove(&self.printed) {
            let mutant = &self.mutants[self.printed];
            self.printed += 1;
            let was = took.map_or("earlier".into(), |took| {
                format!("{}/{}, {took} s", self.printed, self.mutants.len())
            });
            let (word, why) = match end {
                End::Killed(how) => {
                    self.killed += 1;
                    ("killed  ", how)
                }
                End::Survived(why) => {
                    self.survived.push(&mutant.name);
                    ("SURVIVED", why)
                }
            };
            println!("{word} {} ({was}): {}", mutant.name, mutant.breaks);
            println!("         | {why}");
        }
        Ok(())
    }
}

/// An error unless the sources without a mutant build and pass.
fn passes(end: End) -> Result<(), Error> {
    match end {
        End::Survived(why) if why == NOBODY => Ok(()),
        End::Survived(why) | End::Killed(why) => {
            let message = format!("the tests fail without any mutant: {why}");
            Err(Error::new(message))
        }
    }
}

/// The mutants of a directory whose names contain the filter.
fn mutants(directory: &Path, filter: Option<&str>) -> Result<Vec<Mutant>, Error> {
    let failed = |error| Error::new(format!("cannot read {}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(failed)?;
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|end| end == "mutant"));
    let mut mutants = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if filter.is_some_and(|filter| !name.contains(filter)) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(failed)?;
        let field = |label: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(label));
            line.map(|line| line.trim().to_string())
                .ok_or_else(|| Error::new(format!("{}: has no line '{label} ...'", path.display())))
        };
        field("Mistake:")?;
        mutants.push(Mutant {
            name: name.into_owned(),
            breaks: field("Breaks:")?,
            killer: Killer::parse(&field("Killed by:")?),
            text,
        });
    }
    Ok(mutants)
}

/// Plants the mutant and runs the tests.
fn plant(room: &Room, mutant: &Mutant) -> Result<End, Error> {
    if let Err(why) = apply(&room.root, &mutant.text) {
        return Ok(End::Survived(format!("it cannot be planted: {why}")));
    }
    match &mutant.killer {
        Killer::Machine(test) => on_machine(room, test),
        Killer::Bench(bench) => by_counting(room, bench),
        Killer::Host { package, filter } => try_suites(room, package, filter),
    }
}

/// Builds the tests of the machine from the copy's `hal`, and boots them: the test of this name must fail and say
/// why.
fn on_machine(room: &Room, test: &str) -> Result<End, Error> {
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
        return Err(Error {
            message: "interrupted: the same command goes on from here".into(),
            status: 128 + signal,
        });
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
fn by_counting(room: &Room, bench: &str) -> Result<End, Error> {
    let config = Config::DEFAULT;
    let images = match image::build(room, &[config]) {
        Ok(images) => images,
        Err(error) => return Ok(End::Survived(error.message)),
    };
    let verdicts = Thresholds::read(room)?.check(room, &images, config)?;
    if let Some(signal) = signals::caught() {
        return Err(Error {
            message: "interrupted: the same command goes on from here".into(),
            status: 128 + signal,
        });
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

/// Runs one suite of a package after the other until an assertion fails. Packages other than the kernel have no slow
/// tests: their second suite is all of their tests.
fn try_suites(room: &Room, package: &str, killer: &str) -> Result<End, Error> {
    let all = [SUITES[0], ("all tests of the package", &[""])];
    let suites = if package == KERNEL { SUITES } else { &all };
    for (suite, words) in suites {
        let words = if words.is_empty() { &[killer] } else { *words };
        let log = room.target.join("log");
        let end = test(room, package, words, &log)?;
        let output = fs::read_to_string(&log).unwrap_or_default();
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

/// Runs tests of a package in the copy, with their output in a file. Returns whether they pass, or `None` if they do
/// not end.
fn test(room: &Room, package: &str, words: &[&str], log: &Path) -> Result<Option<bool>, Error> {
    let failed = |error| Error::new(format!("cannot write {}: {error}", log.display()));
    let file = fs::File::create(log).map_err(failed)?;
    let profile = format!("profile.dev.package.{package}");
    let mut command = room.cargo(BuildTarget::Host, Config::DEFAULT, "test");
    command
        .args(["--quiet", "--package", package, "--lib"])
        // Building takes most of the time, and the tests run for seconds.
        .args(["--config", &format!("{profile}.opt-level=1")])
        .args(["--config", &format!("{profile}.debug=0")])
        .args(["--config", &format!("{profile}.codegen-units=256")])
        .args(["--", "--color", "never"])
        .args(words)
        .env("RUST_BACKTRACE", "0")
        .env("FERMATA_SEQUENCES", SEQUENCES)
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(failed)?)
        .stderr(file)
        .process_group(0);
    let cannot = |error| Error::new(format!("cannot run cargo: {error}"));
    let mut child = command.spawn().map_err(cannot)?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            return Ok(Some(status.success()));
        }
        let signal = signals::caught();
        if signal.is_some() || start.elapsed() > TIMEOUT {
            // The group is the child's own; it may have ended already.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait().map_err(cannot)?;
            return signal.map_or(Ok(None), |signal| {
                Err(Error {
                    message: "interrupted: the same command goes on from here".into(),
                    status: 128 + signal,
                })
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Judges the output of failed tests: the mutant is killed only if an assertion that counts has failed.
fn verdict(package: &str, output: &str) -> End {
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

// ---- planting ------------------------------------------------------------------------------------

/// Changes the files of a tree by a mutant's text. Each change begins with a line `In: PATH`, followed by lines of
/// that file: marked by a space if they stay, by `-` if they are removed, by `+` if they are added. The present lines
/// must occur exactly once; indentation does not matter.
fn apply(root: &Path, text: &str) -> Result<(), String> {
    let mut changes: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("In:") {
            changes.push((path.trim(), Vec::new()));
        } else if let Some((_, lines)) = changes.last_mut() {
            lines.push(line);
        }
    }
    if changes.is_empty() {
        return Err("it changes nothing".into());
    }
    for (path, lines) in changes {
        let file = root.join(path);
        let failed = |error| format!("{path}: {error}");
        let source = fs::read_to_string(&file).map_err(failed)?;
        let source: Vec<&str> = source.lines().collect();
        let text = replace(&source, &lines).map_err(|why| format!("{path}: {why}"))?;
        fs::write(&file, text.join("\n") + "\n").map_err(failed)?;
    }
    Ok(())
}

/// The source after one change.
fn replace<'a>(source: &[&'a str], change: &[&'a str]) -> Result<Vec<&'a str>, String> {
    let end = change.iter().rposition(|line| !line.is_empty());
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for line in &change[..end.map_or(0, |end| end + 1)] {
        match line.split_at_checked(1).unwrap_or((" ", "")) {
            (" ", rest) => {
                old.push(rest);
                new.push(rest);
            }
            ("-", rest) => old.push(rest),
            ("+", rest) => new.push(rest),
            _ => return Err(format!("what is '{line}'?")),
        }
    }
    let Some(first) = old.first() else {
        return Err("a change without a place".into());
    };
    if old == new {
        return Err(format!("nothing changes at '{}'", first.trim()));
    }
    let same = |window: &[&str]| window.iter().zip(&old).all(|(a, b)| a.trim() == b.trim());
    let places = source.windows(old.len()).enumerate();
    let places: Vec<usize> = places.filter(|(_, w)| same(w)).map(|(at, _)| at).collect();
    match places[..] {
        [at] => {
            let mut text = source.to_vec();
            text.splice(at..at + old.len(), new);
            Ok(text)
        }
        _ => Err(format!(
            "the lines from '{}' on are there {} times",
            first.trim(),
            places.len()
        )),
    }
}

/// Makes the copy equal to the checkout. Equal files are not touched, so that they are not built again.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Error::new(format!("cannot copy {path}: {error}"))
    };
    let skipped = [from.join("target"), from.join(".git")];
    let mut directories = vec![(from.to_path_buf(), to.to_path_buf())];
    while let Some((from, to)) = directories.pop() {
        fs::create_dir_all(&to).map_err(failed(&to))?;
        let names = |path: &Path| -> Result<Vec<_>, Error> {
            let entries = fs::read_dir(path).map_err(failed(path))?;
            let names = entries.map(|entry| Ok(entry?.file_name()));
            names.collect::<std::io::Result<_>>().map_err(failed(path))
        };
        let here = names(&from)?;
        for name in names(&to)?.iter().filter(|name| !here.contains(name)) {
            let old = to.join(name);
            let removed = if old.is_dir() && !old.is_symlink() {
                fs::remove_dir_all(&old)
            } else {
                fs::remove_file(&old)
            };
            removed.map_err(failed(&old))?;
        }
        for name in here {
            let (old, new) = (from.join(&name), to.join(&name));
            if skipped.contains(&old) || old.is_symlink() {
                continue;
            }
            if old.is_dir() {
                directories.push((old, new));
                continue;
            }
            let text = fs::read(&old).map_err(failed(&old))?;
            if fs::read(&new).ok().as_ref() != Some(&text) {
                fs::write(&new, text).map_err(failed(&new))?;
            }
        }
    }
    Ok(())
}

// ---- finished work --------------------------------------------------------------------------------

/// Which mutants were killed by which tests, for these sources.
struct Done {
    root: PathBuf,
    file: PathBuf,
    /// A hash of the sources when this call began.
    sources: String,
    /// By name: the mutant's hash, and the test that killed it.
    killed: BTreeMap<String, (String, String)>,
}

impl Done {
    fn read(project: &Project, fresh: bool) -> Result<Self, Error> {
        let file = project.target.join(FILE);
        let sources = hash_sources(&project.root)?;
        let whole = kept(&file, &sources, fresh);
        let killed = whole["killed"].as_object().into_iter().flatten();
        let killed = killed.filter_map(|(name, entry)| {
            let text = |key: &str| Some(entry[key].as_str()?.to_string());
            Some((name.clone(), (text("mutant")?, text("by")?)))
        });
        Ok(Self {
            root: project.root.clone(),
            file,
            killed: killed.collect(),
            sources,
        })
    }

    fn find(&self, name: &str, text: &str) -> Option<String> {
        let (of, by) = self.killed.get(name)?;
        (*of == hash(text)).then(|| by.clone())
    }

    fn knows(&self, name: &str, text: &str) -> bool {
        self.find(name, text).is_some()
    }

    fn add(&mut self, name: &str, text: &str, by: &str) -> Result<(), Error> {
        // The sources have changed during the tests, which so tested neither the old nor the new ones.
        if hash_sources(&self.root)? != self.sources {
            return Err(Error::new(
                "the sources have changed since the first mutant: the same command begins anew",
            ));
        }
        self.killed.insert(name.into(), (hash(text), by.into()));
        let killed: serde_json::Map<String, Value> = self
            .killed
            .iter()
            .map(|(name, (text, by))| (name.clone(), json!({ "mutant": text, "by": by })))
            .collect();
        let whole = json!({ "sources": self.sources, "killed": killed });
        keep(&self.file, &whole)
    }
}

/// A hash that changes when any file changes that the tests are built from.
fn hash_sources(root: &Path) -> Result<String, Error> {
    let mut hasher = DefaultHasher::new();
    for directory in SOURCES {
        sources(&root.join(directory))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn hash(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn a_mutant_is_planted_where_its_lines_are() {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("f");
        fs::write(&file, "new\n  a\n  b\n\nc\nb\n").expect("a file");
        let plant = |text: &str| apply(dir.path(), text);
        let twice = "Mistake: x\n\nIn: f\n-b\n";
        assert!(plant(twice).is_err(), "it stands there twice");
        let text = "Mistake: x\n\nIn: f\n a\n-b\n+B\n\n c\n\nIn: f\n-new\n\n";
        plant(text).expect("it applies");
        let now = fs::read_to_string(&file).expect("a file");
        assert_eq!(now, "a\nB\n\nc\nb\n");
        assert!(plant(text).is_err(), "it is there already");
        assert!(plant("Mistake: none\n").is_err());
        assert!(plant("In: f\n c\n").is_err(), "nothing changes");
        assert!(plant("In: f\n+c\n").is_err(), "nowhere");
    }

    #[test]
    fn a_killer_names_its_package() {
        let said = |text: &str| match Killer::parse(text) {
            Killer::Host { package, filter } => format!("{package} {filter}"),
            Killer::Machine(name) => format!("machine {name}"),
            Killer::Bench(name) => format!("bench {name}"),
        };
        assert_eq!(said("cut::mutex"), "fermata-kernel cut::mutex");
        assert_eq!(said("fermata-hal/tables"), "fermata-hal tables");
        assert_eq!(said("machine/flags"), "machine flags");
        assert_eq!(said("bench/rpc_0"), "bench rpc_0");
    }

    #[test]
    fn a_second_room_needs_memory_processors_and_work() {
        let gb = |n: u64| n << 20;
        assert_eq!(rooms_for(240, 2, gb(16)), 2);
        assert_eq!(rooms_for(240, 8, gb(64)), MOST_ROOMS);
        assert_eq!(rooms_for(240, 2, gb(13)), 1, "both at their worst");
        assert_eq!(rooms_for(240, 1, gb(16)), 1, "one processor");
        assert_eq!(rooms_for(3, 2, gb(16)), 1, "a few mutants");
        assert_eq!(rooms_for(240, 2, 0), 1, "a host that does not say");
    }

    #[test]
    fn results_come_in_the_order_of_the_mutants() {
        let dir = TempDir::new().expect("a directory");
        for room in SOURCES {
            fs::create_dir(dir.path().join(room)).expect("a directory");
        }
        let project = Project {
            root: dir.path().into(),
            target: dir.path().into(),
        };
        let mutant = |name: &str| Mutant {
            name: name.into(),
            breaks: "a rule".into(),
            killer: Killer::parse("x"),
            text: name.into(),
        };
        let mutants = ["a", "b", "c"].map(mutant);
        let mut sheet = Sheet {
            mutants: &mutants,
            done: Done::read(&project, true).expect("nothing done"),
            ends: BTreeMap::new(),
            printed: 0,
            killed: 0,
            survived: Vec::new(),
        };
        let mut take = |at, end| {
            sheet.take(at, end, Some(1)).expect("taken");
            (sheet.printed, sheet.killed, sheet.survived.len())
        };
        let killed = |by: &str| End::Killed(by.into());
        assert_eq!(
            take(1, End::Survived("nobody".into())),
            (0, 0, 0),
            "not before the first"
        );
        assert_eq!(take(2, killed("t")), (0, 0, 0));
        assert_eq!(take(0, killed("t")), (3, 2, 1));
        // Killed mutants are recorded, in whatever order.
        let again = Done::read(&project, false).expect("what was done");
        let known = ["a", "b", "c"].map(|name| again.knows(name, name));
        assert_eq!(known, [true, false, true]);
    }

    /// Code that counts and boots in a room must not look for the checkout by itself: it would build the checkout's
    /// sources instead of the mutant's, and wait for ever for the lock that this command holds there.
    #[test]
    fn nothing_in_a_room_looks_for_the_checkout() {
        for works in ["bench", "machine"] {
            let works = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(works);
            for path in xtask_build::project::rust_files(&works).expect("sources") {
                let text = fs::read_to_string(&path).expect("a source");
                assert!(!text.contains("Project::find()"), "{}", path.display());
            }
        }
    }

    #[test]
    fn the_judges_are_there() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for judge in JUDGES {
            assert!(project.join(judge).exists(), "{judge}");
        }
    }

    #[test]
    fn only_assertions_kill() {
        let said = |place: &str, what: &str| {
            let text = format!("\nthread 't' (7) panicked at {place}:1:2:\n{what}\nnote: x\n");
            verdict(KERNEL, &text)
        };
        let killed = |end: End| matches!(end, End::Killed(_));
        assert!(killed(said("kernel/src/check.rs", "two run: 3")));
        assert!(killed(said("kernel/src/test/cut.rs", "A6: it differs")));
        let overflow = "attempt to subtract with overflow";
        let bare = "assertion `left == right` failed";
        assert!(!killed(said("kernel/src/queue.rs", overflow)));
        assert!(!killed(said("kernel/src/test/ipc.rs", bare)));
        assert!(killed(said(
            "kernel/src/test/ipc.rs",
            &format!("{bare}: A3")
        )));
        assert!(!killed(said("kernel/src/memory.rs", "something")));
        assert!(!killed(verdict(
            KERNEL,
            "error[E0425]: cannot find value\n"
        )));
        assert!(!killed(verdict(KERNEL, "")));
    }

    #[test]
    fn every_mutant_can_be_planted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let all = mutants(&root.join("tests/mutants"), None).expect("mutants");
        assert!(all.len() >= ENOUGH);
        for mutant in all {
            let dir = TempDir::new().expect("a directory");
            for line in mutant.text.lines() {
                if let Some(name) = line.strip_prefix("In:") {
                    let name = name.trim();
                    let copy = dir.path().join(name);
                    fs::create_dir_all(copy.parent().expect("a parent")).expect("a directory");
                    fs::copy(root.join(name), copy).expect("a copy");
                }
            }
            let applied = apply(dir.path(), &mutant.text);
            assert_eq!(applied, Ok(()), "{}", mutant.name);
        }
    }
}
