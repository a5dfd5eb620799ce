//! `./fermata prove --mutants`: do the tests notice mistakes?
//!
//! `tests/mutants/` has one mutant per kind of mistake, each a file ([`Mutant`]). Its header describes the mistake,
//! the rule that it breaks and the test that should notice it; the rest has lines of sources and their replacements.
//! Each mutant is planted in a copy of the sources, and tests on the host run there: those of the kernel, cheapest
//! first, or those of another package, until one of their assertions, or one of the kernel's invariants, fails: the
//! mutant is *killed* ([`judge`]). Mistakes that the host cannot notice, in the code for the real machine, are left to
//! the tests of the machine, which need only `hal` and a boot of some seconds; mistakes that only cost instructions are
//! left to the benchmarks and their thresholds. A mutant that cannot be planted or does not build, tests that do not
//! end, and a crash all count as surviving.
//!
//! Nearly all mutants change what functions do. They are built together, and the tests are told which one of them to
//! have ([`together`]). The others are planted alone, one after the other; a copy ([`Room`]) keeps a target directory
//! of its own, so that each of these costs an incremental build of one package only. There are two copies if the
//! machine has memory and processors for them ([`rooms_for`]).
//!
//! Results are recorded in `target/`, by the sources and the mutant ([`done`]).

mod done;
mod judge;
mod plant;
mod together;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use done::Done;
use judge::{by_cargo, by_counting, on_machine, try_suites};
use plant::{apply, copy};
use together::{Plan, Tests};
use xtask_build::busybox;
use xtask_build::error::Error;
use xtask_build::project::Project;
use xtask_machine::signals;

/// The directories that the tests are built from.
const SOURCES: &[&str] = &["abi", "hal", "kernel", "spec", "user", "servers", "drivers"];
/// Fewest mutants that must be killed.
const ENOUGH: usize = 180;

/// The package of a killer that names none.
const KERNEL: &str = "fermata-kernel";
/// The prefix of the names of packages.
const PACKAGE: &str = "fermata-";
/// The prefix of a killer that is a test of the machine.
const MACHINE: &str = "machine/";
/// The prefix of a killer that is a threshold of the default configuration.
const BENCH: &str = "bench/";
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

/// Runs all mutants that are left, in as many rooms as the machine has memory and processors for. The last line
/// printed is the sum.
pub fn run(project: &Project, filter: Option<&str>, fresh: bool) -> Result<u8, Error> {
    signals::catch();
    let _lock = project.lock_mutants()?;
    let mutants = mutants(&project.root.join("tests/mutants"), filter)?;
    if mutants.is_empty() {
        return Err(Error::new("no mutant in tests/mutants has such a name"));
    }
    let sheet = Mutex::new(Sheet {
        mutants: &mutants,
        done: Done::read(project, fresh)?,
        finished: 0,
        killed: 0,
        survived: Vec::new(),
    });
    let start = Instant::now();
    let mut left: BTreeSet<usize> = BTreeSet::new();
    for (at, mutant) in mutants.iter().enumerate() {
        let mut sheet = lock(&sheet);
        match sheet.done.find(&mutant.name, &mutant.text) {
            Some(how) => sheet.take(at, End::Killed(how), None)?,
            None => _ = left.insert(at),
        }
    }
    if left.len() >= WORTH {
        for at in those_together(project, &sheet, &left)? {
            left.remove(&at);
        }
    }
    those_alone(project, &sheet, &left)?;
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

/// Does the work of each item, on as many threads as there are processors, and returns the first error. The other
/// threads then finish what they have begun.
fn each<T: Sync>(
    items: &[T],
    workers: usize,
    work: impl Fn(usize, &T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let worker = |number| loop {
        let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) else {
            return Ok(());
        };
        if let Err(error) = work(number, item) {
            next.store(items.len(), Ordering::Relaxed);
            return Err(error);
        }
    };
    std::thread::scope(|scope| {
        let worker = &worker;
        let threads: Vec<_> = (0..workers)
            .map(|number| scope.spawn(move || worker(number)))
            .collect();
        let ends = threads.into_iter().map(|thread| match thread.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // All of them have ended before the first error is returned.
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Builds the tests with all mutants that can be planted together, and runs them with one after the other. Returns
/// these mutants.
fn those_together(
    project: &Project,
    sheet: &Mutex<Sheet>,
    left: &BTreeSet<usize>,
) -> Result<BTreeSet<usize>, Error> {
    let mutants = lock(sheet).mutants;
    let room = room(project, 0);
    copy(&project.root, &room.root)?;
    let mut plan = Plan::default();
    let mut packages = BTreeSet::new();
    for &at in left {
        if let Killer::Host { package, .. } = &mutants[at].killer {
            if plan.add(&room.root, at, &mutants[at].text)? {
                packages.insert(package.as_str());
            }
        }
    }
    println!(
        "building the tests of {} packages with {} mutants",
        packages.len(),
        plan.numbers().len()
    );
    let built = plan.build(&room, &packages);
    // The sources are as they were, whatever comes: a test may read them.
    copy(&project.root, &room.root)?;
    let built = built?;
    let tests = |package: &str| -> Result<&Tests, Error> {
        let why = || Error::new(format!("cargo has built no tests of {package}"));
        built.get(package).ok_or_else(why)
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let log = |number: usize| room.target.join(format!("log-{number}"));
    println!("running the tests without a mutant");
    let packages: Vec<&str> = packages.into_iter().collect();
    each(&packages, workers, |number, package| {
        let tests = tests(package)?;
        let end = try_suites(package, "", &|| tests.start(None), &log(number))?;
        passes(end).map_err(|error| Error::new(format!("{package}: {}", error.message)))
    })?;
    let numbers: Vec<usize> = plan.numbers().iter().copied().collect();
    each(&numbers, workers, |number, &at| {
        let Killer::Host { package, filter } = &mutants[at].killer else {
            return Ok(());
        };
        let began = Instant::now();
        let tests = tests(package)?;
        let end = try_suites(package, filter, &|| tests.start(Some(at)), &log(number))?;
        lock(sheet).take(at, end, Some(began.elapsed().as_secs()))
    })?;
    Ok(numbers.into_iter().collect())
}

/// Plants one mutant after the other, and builds and runs the tests that should notice it.
fn those_alone(
    project: &Project,
    sheet: &Mutex<Sheet>,
    left: &BTreeSet<usize>,
) -> Result<(), Error> {
    if left.is_empty() {
        return Ok(());
    }
    let mutants = lock(sheet).mutants;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let count = rooms_for(left.len(), processors, free_kb());
    let rooms: Vec<Room> = (0..count).map(|number| room(project, number)).collect();
    println!("{} mutants alone, {} at a time", left.len(), rooms.len());
    each(&rooms, rooms.len(), |_, room| {
        prepare(project, room, left.iter().map(|&at| &mutants[at].killer))
    })?;
    let left: Vec<usize> = left.iter().copied().collect();
    each(&left, rooms.len(), |number, &at| {
        let room = &rooms[number];
        let began = Instant::now();
        let end = plant(room, &mutants[at]);
        copy(&project.root, &room.root)?;
        lock(sheet).take(at, end?, Some(began.elapsed().as_secs()))
    })
}

/// Copies the sources to a room, and builds and tests there unchanged what these killers test.
fn prepare<'a>(
    project: &Project,
    room: &Room,
    killers: impl Iterator<Item = &'a Killer>,
) -> Result<(), Error> {
    copy(&project.root, &room.root)?;
    let mut tested = BTreeSet::new();
    for killer in killers {
        let (what, end) = match killer {
            Killer::Host { package, filter } if tested.insert(package.as_str()) => {
                let start = || by_cargo(room, package);
                let end = try_suites(package, filter, &start, &room.target.join("log"))?;
                (package.as_str(), end)
            }
            Killer::Machine(_) if tested.insert(MACHINE) => (MACHINE, on_machine(room, "")?),
            Killer::Bench(_) if tested.insert(BENCH) => {
                let (from, to) = (busybox::find(project)?, room.target.join("downloads"));
                fs::create_dir_all(&to)
                    .and_then(|()| fs::copy(&from, to.join("busybox")))
                    .map_err(|error| {
                        Error::new(format!("cannot copy {}: {error}", from.display()))
                    })?;
                (BENCH, by_counting(room, "")?)
            }
            _ => continue,
        };
        passes(end).map_err(|error| Error::new(format!("{what}: {}", error.message)))?;
    }
    Ok(())
}

/// Plants the mutant and runs the tests.
fn plant(room: &Room, mutant: &Mutant) -> Result<End, Error> {
    if let Err(why) = apply(&room.root, &mutant.text) {
        return Ok(End::Survived(format!("it cannot be planted: {why}")));
    }
    match &mutant.killer {
        Killer::Machine(test) => on_machine(room, test),
        Killer::Bench(bench) => by_counting(room, bench),
        Killer::Host { package, filter } => {
            let log = room.target.join("log");
            try_suites(package, filter, &|| by_cargo(room, package), &log)
        }
    }
}

/// The results of the mutants.
struct Sheet<'a> {
    mutants: &'a [Mutant],
    done: Done,
    /// How many mutants have a result.
    finished: usize,
    killed: usize,
    survived: Vec<&'a str>,
}

impl Sheet<'_> {
    /// Records and prints the result of a mutant, and the seconds that it took; none if an earlier call had it.
    fn take(&mut self, at: usize, end: End, took: Option<u64>) -> Result<(), Error> {
        let mutant = &self.mutants[at];
        if let (End::Killed(how), Some(_)) = (&end, took) {
            self.done.add(&mutant.name, &mutant.text, how)?;
        }
        self.finished += 1;
        let was = took.map_or("earlier".into(), |took| {
            format!("{}/{}, {took} s", self.finished, self.mutants.len())
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

#[cfg(test)]
mod tests {
    use super::judge::{verdict, JUDGES};
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
        assert_eq!(now, "  a\nB\n\nc\nb\n");
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
    fn killed_mutants_are_recorded() {
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
            finished: 0,
            killed: 0,
            survived: Vec::new(),
        };
        let mut take = |at, end| {
            sheet.take(at, end, Some(1)).expect("taken");
            (sheet.finished, sheet.killed, sheet.survived.len())
        };
        let killed = |by: &str| End::Killed(by.into());
        assert_eq!(take(1, End::Survived("nobody".into())), (1, 0, 1));
        assert_eq!(take(2, killed("t")), (2, 1, 1));
        assert_eq!(take(0, killed("t")), (3, 2, 1));
        let again = Done::read(&project, false).expect("what was done");
        let known = ["a", "b", "c"].map(|name| again.find(name, name).is_some());
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
