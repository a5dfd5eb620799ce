//! `./fermata test`: tests on the host, tests in the guest, and scenarios, counted together.
//!
//! Tests have names of several kinds: `host/PACKAGE/NAME`, `machine/IRQ/NAME`, `guest/CONFIG/NAME`,
//! `forgetful/CONFIG/NAME` (the guest's tests on a forgetful kernel), `scenario/CONFIG/NAME` and, for counts that
//! must not get worse, `bench/CONFIG/NAME`; `placed/CONFIG/NAME` are scenarios, and `placed/CONFIG/guest/NAME` the
//! guest's tests, with all servers and drivers in the kernel. A [`Filter`] selects the tests whose name contains a
//! text, or those that the page of promises names.
//!
//! They are grouped in [`Part`]s: one for everything that does not depend on the kernel's configuration, and some per
//! configuration. With `--all` a [`Journal`] records which parts are finished.

//! * `cut` cuts every call at every site of the kernel, which `sites` finds in the source.
//! * [`fuzz`] is `./fermata fuzz`; [`interrupts`] and [`mutants`] are `./fermata prove`.
//! * [`scenario`] has the vocabulary of the scenarios in `tests/scenarios`.
//! * [`security`] reads which tests support the promises of `docs/security.md`.
//! * `conformance` (a test only) checks that every call has a test.

pub mod checkpoints;
#[cfg(test)]
mod conformance;
mod cut;
mod filter;
pub mod fuzz;
pub mod interrupts;
mod journal;
pub mod model;
pub mod mutants;
pub mod packages;
pub mod scenario;
#[path = "../../../tests/scenarios/mod.rs"]
mod scenarios;
pub mod security;
mod sites;
mod times;

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::scenario::{Ctx, Finished, Scenario, When};
use fuzz::FuzzOptions;
use xtask_bench::Thresholds;
use xtask_build::config::{Choice, Config, Irq};
use xtask_build::debian;
use xtask_build::error::{Error, USAGE};
use xtask_build::image::{self, Images};
use xtask_build::project::{BuildTarget, Package, Project};
use xtask_docs::test_names;
use xtask_machine::control::Event;
use xtask_machine::place::Place;
use xtask_machine::signals;
use xtask_machine::{self as machine, End, Operator, Options};

use clap::{Args, ValueEnum};
use filter::{behind, Filter};
use journal::Journal;

/// One of the two threads that are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    Client,
    Server,
}

impl Side {
    /// Its name in the program that cuts.
    const fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
        }
    }
}

/// Options of `test`.
#[derive(Args, Clone, Debug)]
pub struct TestOptions {
    #[command(flatten)]
    choice: Choice,
    /// With --all: start over, and do not continue where an earlier call with the same sources stopped
    #[arg(long, requires = "all")]
    fresh: bool,
    /// Show the log of every machine
    #[arg(long)]
    verbose: bool,
    /// Where the services of the guest's tests and of scenarios run, as for `run`
    #[arg(
        long = "place",
        value_name = "SERVICE=process|kernel,...",
        value_delimiter = ','
    )]
    places: Vec<Place>,
    /// With cuts: run these of the two threads that are cut in ring 1, in collocated spaces
    #[arg(
        long,
        value_name = "client|server,...",
        value_delimiter = ',',
        conflicts_with = "all"
    )]
    collocated: Vec<Side>,
    /// With a single cut: the machine waits for a debugger on port 1234
    #[arg(long, requires = "filter")]
    debug: bool,
    /// Only tests whose name contains FILTER
    #[arg(
        value_parser = clap::builder::NonEmptyStringValueParser::new(),
        long_help = "Only tests whose name contains FILTER: `host/`, `machine/`, `guest/`, `scenario/`, `bench/`, \
                     `placed/` (with all servers in the kernel) and `forgetful/` (the guest's tests on a kernel \
                     that drops at random what it keeps for waiting threads) name the kinds; `cut` is every call cut at every site of the kernel in \
                     every way, in process-np and interrupt-np unless another CONFIG is named: under pp at \
                     preemption points as well, under fp the main calls at every instruction; `attack` is every \
                     test that docs/security.md names, and the scenarios whose names begin so"
    )]
    filter: Option<String>,
}

impl TestOptions {
    /// An error if the options contradict each other.
    pub fn check(&self) -> Result<(), &'static str> {
        let cut = |filter: &String| filter.starts_with("cut/");
        if self.debug && !self.filter.as_ref().is_some_and(cut) {
            return Err("--debug: which cut? (FILTER must begin with cut/)");
        }
        Ok(())
    }

    fn configs(&self) -> Vec<Config> {
        self.choice.among(Config::tested())
    }
}

/// How many programs with tests, or machines that compute, run at a time.
const PARALLEL: usize = 2;

/// How many machines of guest tests and scenarios run at a time: a quarter of the time they wait for something.
const MACHINES: usize = 3;

/// The host time for all guest tests of one boot.
const GUEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    Ignored(String),
}

/// A unit of work that is run and recorded as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The host, and the machine under the kernel.
    Common,
    /// Guest tests, benchmarks and scenarios of a configuration.
    Config(Config),
    /// Scenarios of a configuration with all servers and drivers in the kernel; with `--all`, or if the filter asks
    /// for them, the guest's tests as well.
    Placed(Config),
    /// The cuts at every site of a configuration.
    Cuts(Config),
}

impl Part {
    fn name(self) -> String {
        match self {
            Part::Common => "host and machine".into(),
            Part::Config(config) => config.name().into(),
            Part::Placed(config) => format!("placed, {}", config.name()),
            Part::Cuts(config) => format!("cuts, {}", config.name()),
        }
    }
}

/// Counts results, and prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Report {
    passed: usize,
    failed: Vec<String>,
    ignored: Vec<String>,
}

impl Report {
    fn add(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Outcome::Passed => {
                self.passed += 1;
                println!("ok       {name}");
            }
            Outcome::Failed(why) => {
                println!("FAILED   {name}");
                for line in why.lines() {
                    println!("         | {line}");
                }
                self.failed.push(name.into());
            }
            Outcome::Ignored(why) => {
                println!("ignored  {name}: {why}");
                self.ignored.push(format!("{name}: {why}"));
            }
        }
    }
}

/// A part, and its results.
struct Run {
    part: Part,
    report: Mutex<Report>,
    /// Whether an earlier call has finished it.
    earlier: bool,
    /// Jobs that are not finished.
    left: AtomicUsize,
}

impl Run {
    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the tests. The last line printed is the sum.
pub fn run(project: &Project, options: &TestOptions) -> Result<u8, Error> {
    signals::catch();
    let start = Instant::now();
    let text = options.filter.as_deref();
    let filter = &Filter::new(project, text)?;
    let journal = if options.choice.is_all() {
        Some(Journal::open(
            project,
            (text, &options.places),
            options.fresh,
        )?)
    } else {
        None
    };
    let chosen = options.configs();
    let configs = || chosen.iter().copied();
    let placed = configs().filter(|config| placed_are_wanted(options, *config));
    let cut = configs().filter(|config| cuts_are_wanted(options, *config));
    let runs: Vec<Run> = std::iter::once(Part::Common)
        .chain(configs().map(Part::Config))
        .chain(placed.map(Part::Placed))
        .chain(cut.map(Part::Cuts))
        .map(|part| {
            let earlier = journal.as_ref().and_then(|journal| journal.find(part));
            if earlier.is_some() {
                println!("{}: done by an earlier call (--fresh: again)", part.name());
            }
            Run {
                part,
                earlier: earlier.is_some(),
                report: Mutex::new(earlier.unwrap_or_default()),
                left: AtomicUsize::new(0),
            }
        })
        .collect();

    std::thread::scope(|scope| -> Result<(), Error> {
        let common = runs
            .iter()
            .find(|run| run.part == Part::Common && !run.earlier);
        let Some(run) = common else {
            return Ok(());
        };
        // What machines need is built during the tests of the host, which leave a processor idle at times.
        if text.is_none() {
            scope.spawn(|| build_ahead(project, options, &runs));
        }
        host_tests(project, filter, &run.report)?;
        machine_own_tests(project, options, filter, &run.report)?;
        finished(run, journal.as_ref());
        Ok(())
    })?;
    machine_tests(project, options, filter, &runs, journal.as_ref())?;
    let cuts = cuts(project, options, &runs, journal.as_ref())?;
    times::print(start.elapsed());
    if let Some(signal) = signals::caught() {
        if journal.is_some() {
            eprintln!("fermata: the same command goes on where this one was interrupted");
        }
        return Err(Error {
            message: "interrupted".into(),
            status: 128 + signal,
        });
    }
    let unreached = match cuts.is_empty() {
        true => Vec::new(),
        false => cut::summary(project, &cuts)?,
    };
    // Failures are printed at the end, where users look for them.
    let (passed, failed) = summary(&runs, start.elapsed(), text, unreached)?;
    println!("{passed} passed, {failed} failed");
    Ok(u8::from(failed != 0 || passed == 0))
}

/// Builds what the unfinished runs need, so that it is ready when they start. Build errors are reported then.
fn build_ahead(project: &Project, options: &TestOptions, runs: &[Run]) {
    let left = || runs.iter().filter(|run| !run.earlier);
    let tested: Vec<Config> = left()
        .filter_map(|run| match run.part {
            Part::Config(config) => Some(config),
            _ => None,
        })
        .collect();
    let cut: Vec<Config> = left()
        .filter_map(|run| match run.part {
            Part::Cuts(config) => Some(config),
            _ => None,
        })
        .collect();
    let all = options.choice.is_all();
    let forgetful = tested
        .iter()
        .filter(|config| config.is_tested_forgetful(all));
    let forgetful: Vec<Config> = forgetful.copied().collect();
    for (build, configs) in [
        (BuildTarget::Kernel, tested),
        (BuildTarget::Forgetful, forgetful),
        (BuildTarget::Probe, cut),
    ] {
        if !configs.is_empty() && signals::caught().is_none() {
            let _ = image::build_what_builds(project, build, &configs);
        }
    }
}

/// Whether the tests with servers in the kernel run in this configuration: with `--all` in some configurations, and
/// not if the user places servers.
fn placed_are_wanted(options: &TestOptions, config: Config) -> bool {
    let is_one = !options.choice.is_all() || config.is_placed();
    is_one && options.places.is_empty()
}

/// Whether the cuts of this configuration are wanted. With `--all` they run for every model, with one way to mask
/// interrupts.
fn cuts_are_wanted(options: &TestOptions, config: Config) -> bool {
    let prefix = format!("cut/{}/", config.name());
    let named = |filter: &str| prefix.starts_with(filter) || filter.starts_with(&prefix);
    let in_all = options.choice.is_all() && config.irq == Irq::Hardware;
    let usual = options.configs().len() == 1 || config.is_cut() || in_all;
    usual && options.filter.as_deref().is_none_or(named)
}

/// The cuts at every site, which need special kernels; some machines per configuration.
fn cuts(
    project: &Project,
    options: &TestOptions,
    runs: &[Run],
    journal: Option<&Journal>,
) -> Result<Vec<(Config, cut::Found)>, Error> {
    let filter = options.filter.as_deref();
    let runs: Vec<(Config, &Run)> = runs
        .iter()
        .filter(|run| !run.earlier)
        .filter_map(|run| match run.part {
            Part::Cuts(config) => Some((config, run)),
            _ => None,
        })
        .collect();
    if runs.is_empty() || signals::caught().is_some() {
        return Ok(Vec::new());
    }
    let configs: Vec<Config> = runs.iter().map(|(config, _)| *config).collect();
    let (images, failed) = image::build_what_builds(project, BuildTarget::Probe, &configs)?;
    for (config, error) in &failed {
        if let Some((_, run)) = runs.iter().find(|(other, _)| other == config) {
            let name = format!("build/{}/probe", config.name());
            add(&run.report, &name, Outcome::Failed(error.message.clone()));
        }
    }
    // Hostile callers come first: they take a fixed time.
    let jobs: Vec<_> = runs
        .into_iter()
        .filter(|(config, _)| !failed.iter().any(|(other, _)| other == config))
        .flat_map(|(config, run)| {
            let shards = (0..cut::shards(options, config)).map(Some);
            std::iter::once(None)
                .chain(shards)
                .map(move |shard| (config, run, shard))
        })
        .collect();
    for (_, run, _) in &jobs {
        run.left.fetch_add(1, Ordering::Relaxed);
    }
    let found = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some((config, run, shard)) =
                    jobs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    if signals::caught().is_some() {
                        break;
                    }
                    let hostile = format!("cut/{}/hostile", config.name());
                    match *shard {
                        None if filter.is_none_or(|filter| hostile.starts_with(filter)) => {
                            times::measured(&hostile, || {
                                cut::hostile(
                                    &images,
                                    *config,
                                    1,
                                    None,
                                    options.verbose,
                                    &run.report,
                                )
                            });
                        }
                        Some(shard) if !filter.is_some_and(|f| f.starts_with(&hostile)) => {
                            let name = format!("cut/{}/{shard}", config.name());
                            let one = times::measured(&name, || {
                                cut::run(project, &images, *config, shard, options, &run.report)
                            });
                            found
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push((*config, one));
                        }
                        _ => {}
                    }
                    if run.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        finished(run, journal);
                    }
                }
            });
        }
    });
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// `./fermata fuzz --guest`: hostile callers, for as long as the user likes.
pub fn fuzz_guest(project: &Project, options: &FuzzOptions) -> Result<u8, Error> {
    signals::catch();
    let config = Config::DEFAULT;
    let (images, failed) = image::build_what_builds(project, BuildTarget::Probe, &[config])?;
    if let Some((_, error)) = failed.into_iter().next() {
        return Err(error);
    }
    let report = Mutex::new(Report::default());
    let seed = options.seed.unwrap_or(1);
    println!(
        "fuzz: rounds of hostile callers from seed {seed} on, for {} s",
        options.time
    );
    let rounds = cut::hostile(
        &images,
        config,
        seed,
        Some(Duration::from_secs(options.time)),
        true,
        &report,
    );
    let failed = report
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .failed;
    for name in &failed {
        let seed = name.rsplit('/').next().unwrap_or_default();
        println!("again: ./fermata fuzz --guest --seed {seed}");
    }
    println!("fuzz: {rounds} rounds, {} failed", failed.len());
    if signals::caught().is_none() && rounds == 0 {
        println!("fuzz: no round was through in this time");
    }
    Ok(u8::from(!failed.is_empty() || rounds == 0))
}

/// `./fermata fuzz --services`: machines with hostile clients of every service, one after the other, each with the
/// next seed.
pub fn fuzz_services(project: &Project, options: &FuzzOptions) -> Result<u8, Error> {
    signals::catch();
    let config = Config::DEFAULT;
    let images = image::build(project, &[config])?;
    let end = Instant::now() + Duration::from_secs(options.time);
    let first = options.first_seed();
    let mut failed = 0;
    let mut seed = first;
    println!(
        "fuzz: hostile clients of every service from seed {first} on, for {} s",
        options.time
    );
    let limits = match options.limits {
        true => scenarios::Limits::All,
        false => scenarios::Limits::Faults,
    };
    // At least one machine, however short the time.
    while (seed == first || Instant::now() < end) && signals::caught().is_none() {
        let play = |ctx: &mut Ctx| scenarios::services_from(ctx, seed, limits);
        let outcome = run_scenario(&images, config, &format!("services/{seed}"), play);
        if signals::caught().is_some() {
            break;
        }
        if let Outcome::Failed(why) = outcome {
            failed += 1;
            let and = if options.limits { " --limits" } else { "" };
            println!("{why}\nagain: ./fermata fuzz --services{and} --time 1 --seed {seed}");
        }
        seed += 1;
    }
    println!("fuzz: {} machines, {failed} failed", seed - first);
    Ok(u8::from(failed != 0 || seed == first))
}

/// Kills in one machine of `prove --drivers`.
const KILLS: u64 = 200;

/// `./fermata prove --drivers`: kills each driver whose name contains the filter so many times, in one machine after
/// the other, each with the next seed.
pub fn prove_drivers(project: &Project, kills: u64, filter: Option<&str>) -> Result<u8, Error> {
    signals::catch();
    let mut drivers = scenarios::kills();
    drivers.retain(|(name, _)| filter.is_none_or(|filter| name.contains(filter)));
    if drivers.is_empty() {
        return Err(Error::usage("no driver that is killed is called so"));
    }
    let config = Config::DEFAULT;
    let images = image::build(project, &[config])?;
    let (mut done, mut failed) = (0, 0);
    let all = kills * drivers.len() as u64;
    for (name, kill) in drivers {
        let mut left = kills;
        for seed in 1.. {
            let count = left.min(KILLS);
            if count == 0 || signals::caught().is_some() {
                break;
            }
            left -= count;
            let play = |ctx: &mut Ctx| kill(ctx, seed, count);
            let outcome = run_scenario(&images, config, &format!("{name}/{seed}"), play);
            if signals::caught().is_some() {
                break;
            }
            match outcome {
                Outcome::Failed(why) => {
                    failed += 1;
                    println!("{why}");
                }
                Outcome::Passed => done += count,
                Outcome::Ignored(why) => println!("{name}: {why}"),
            }
        }
    }
    println!("{done} kills without a loss, {failed} machines failed");
    signals::check()?;
    Ok(u8::from(failed != 0 || done != all))
}

/// The picture of the page of `inspect` in README.md.
const PICTURE: &str = "docs/inspect.png";

/// `./fermata prove --browser`: installs a browser if there is none, and tests the page of `inspect` with it.
pub fn prove_browser(project: &Project) -> Result<u8, Error> {
    signals::catch();
    // Without a font the page would show no text.
    let tools = [
        (scenarios::BROWSER, scenarios::BROWSER),
        (scenarios::BROWSER, "fonts-dejavu-core"),
    ];
    debian::install(&tools).map_err(Error::new)?;
    let config = Config::DEFAULT;
    let images = image::build(project, &[config])?;
    let mut picture = Vec::new();
    let outcome = run_scenario(&images, config, "browser", |ctx| {
        picture = scenarios::shown_in_browser(ctx)?;
        Ok(())
    });
    if let Outcome::Failed(why) = outcome {
        println!("{why}");
        return Ok(1);
    }
    let path = project.root.join(PICTURE);
    let written = std::fs::write(&path, &picture);
    written.map_err(|error| Error::new(format!("{}: {error}", path.display())))?;
    println!(
        "the page is as it should be; {PICTURE} shows it ({} KB)",
        picture.len() / 1024
    );
    Ok(0)
}

/// Records that a part is finished.
fn finished(run: &Run, journal: Option<&Journal>) {
    if let (Some(journal), None) = (journal, signals::caught()) {
        if let Err(error) = journal.add(run.part, &run.report()) {
            eprintln!("fermata: {}", error.message);
        }
    }
}

/// Prints how many tests of each part passed and failed, and which failed, including the kernel's sites that no cut
/// reached.
fn summary(
    runs: &[Run],
    time: Duration,
    filter: Option<&str>,
    unreached: Vec<String>,
) -> Result<(usize, usize), Error> {
    println!("\n{} s", time.as_secs());
    let mut sum = Report {
        failed: unreached,
        ..Report::default()
    };
    if runs.len() > 2 {
        println!("{:34} {:>7} {:>7} {:>8}", "", "passed", "failed", "ignored");
    }
    for run in runs {
        let report = run.report();
        if runs.len() > 2 {
            println!(
                "{:34} {:>7} {:>7} {:>8}{}",
                run.part.name(),
                report.passed,
                report.failed.len(),
                report.ignored.len(),
                if run.earlier { "  (earlier)" } else { "" }
            );
        }
        sum.passed += report.passed;
        sum.failed.extend(report.failed.iter().cloned());
        sum.ignored.extend(report.ignored.iter().cloned());
    }
    if !sum.ignored.is_empty() {
        println!("ignored:");
        for line in &sum.ignored {
            println!("    {line}");
        }
    }
    if !sum.failed.is_empty() {
        println!("failed:");
        for name in &sum.failed {
            println!("    {name}    (again: {})", again(name));
        }
    }
    let (passed, failed) = (sum.passed, sum.failed.len());
    if passed + failed + sum.ignored.len() == 0 {
        let filter = filter.unwrap_or_default();
        return Err(Error {
            message: format!("no test has '{filter}' in its name"),
            status: USAGE,
        });
    }
    Ok((passed, failed))
}

/// The command that runs the test of this name again.
fn again(name: &str) -> String {
    let parts: Vec<&str> = name.splitn(3, '/').collect();
    match parts[..] {
        ["cut", site, ..] if site.starts_with("site:") => "./fermata test cut/".into(),
        ["guest" | "build", config, "run" | "kernel"] => {
            format!("./fermata test --config {config}")
        }
        [kind @ ("bench" | "forgetful"), config, rest] => {
            format!("./fermata test --config {config} {kind}/{config}/{rest}")
        }
        ["guest" | "scenario", config, rest] => {
            format!("./fermata test --config {config} {rest}")
        }
        ["placed", config, rest] => {
            format!("./fermata test --config {config} placed/{config}/{rest}")
        }
        ["cut", config, rest] => {
            format!("./fermata test --config {config} cut/{config}/{rest} --debug")
        }
        ["machine", irq, ..] => format!("./fermata test machine/{irq}"),
        ["host", _, rest] => format!("./fermata test {rest}"),
        _ => "./fermata test".into(),
    }
}

fn add(report: &Mutex<Report>, name: &str, outcome: Outcome) {
    report
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .add(name, outcome);
}

// ---- host

/// A program with tests of a package.
struct TestProgram<'a> {
    package: &'a Package,
    path: PathBuf,
}

/// Packages whose tests take longest, in the order in which they are started.
const LONG: &[&str] = &[
    "fermata-kernel",
    "fermata-ext4",
    "fermata-linux",
    "fermata-model",
    "fermata-checkpoint",
];

/// The tests of every package that builds on the host. All are built at once, so that shared crates are built once;
/// then a few programs run at a time.
fn host_tests(project: &Project, filter: &Filter, report: &Mutex<Report>) -> Result<(), Error> {
    let mut packages: Vec<Package> = project.packages()?;
    // Nothing is compiled for a filter that cannot match.
    packages.retain(|package| package.on_host() && may_match(project, package, filter));
    if packages.is_empty() {
        return Ok(());
    }
    let built = times::measured("host", || build_host_tests(project, &packages))?;
    let mut programs = match built {
        Ok(programs) => programs,
        Err(why) => {
            add(report, "host/build", Outcome::Failed(why));
            return Ok(());
        }
    };
    let place = |name: &str| LONG.iter().position(|long| *long == name);
    programs.sort_by_key(|program| place(&program.package.name).unwrap_or(LONG.len()));
    let next = AtomicUsize::new(0);
    let result = Mutex::new(Ok(()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if signals::caught().is_some() {
                        break;
                    }
                    let name = program.package.test_prefix();
                    let done = times::measured(name.trim_end_matches('/'), || {
                        host_program(project, program, filter, report)
                    });
                    if done.is_err() {
                        *result.lock().unwrap_or_else(PoisonError::into_inner) = done;
                        break;
                    }
                }
            });
        }
    });
    result.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the tests of some packages; returns the compiler's messages if that fails.
fn build_host_tests<'a>(
    project: &Project,
    packages: &'a [Package],
) -> Result<Result<Vec<TestProgram<'a>>, String>, Error> {
    println!("fermata: building the tests of the host");
    let mut command = project.cargo(BuildTarget::Host, Config::DEFAULT, "test");
    command.args(["--quiet", "--no-run", "--color", "never"]);
    command.arg("--message-format=json-render-diagnostics");
    for package in packages {
        command.args(["--package", &package.name]);
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::new(format!("cannot run cargo: {error}")))?;
    if !output.status.success() {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs = Vec::new();
    for message in text.lines() {
        let message: serde_json::Value = serde_json::from_str(message)
            .map_err(|error| Error::new(format!("what cargo says cannot be read: {error}")))?;
        let word = |value: &serde_json::Value| value.as_str().map(PathBuf::from);
        let (Some(path), Some(manifest)) = (
            word(&message["executable"]),
            word(&message["manifest_path"]),
        ) else {
            continue;
        };
        if message["profile"]["test"].as_bool() != Some(true) {
            continue;
        }
        let its = |package: &&Package| {
            let directory = project.root.join(&package.dir);
            manifest.parent() == Some(directory.as_path())
        };
        if let Some(package) = packages.iter().find(its) {
            programs.push(TestProgram { package, path });
        }
    }
    Ok(Ok(programs))
}

/// Whether the filter can name a test of the package.
fn may_match(project: &Project, package: &Package, filter: &Filter) -> bool {
    let prefix = package.test_prefix();
    filter.within(&prefix).is_some_and(|wanted| {
        wanted.is_empty() || wanted.iter().any(|word| is_in(project, package, word))
    })
}

/// Whether each word of a text is in one of the package's sources, or is the name of one.
fn is_in(project: &Project, package: &Package, wanted: &str) -> bool {
    if wanted.contains('/') {
        // The filter is for another package, or none.
        return false;
    }
    let mut missing: Vec<&str> = wanted
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let mut directories = vec![project.root.join(&package.dir)];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(directory) else {
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = std::fs::read_to_string(&path).unwrap_or_default();
                let name = path.to_string_lossy();
                missing.retain(|word| !source.contains(word) && !name.contains(word));
            }
        }
    }
    missing.is_empty()
}

/// Runs the tests of one program, as `cargo test` does.
fn host_program(
    project: &Project,
    program: &TestProgram,
    filter: &Filter,
    report: &Mutex<Report>,
) -> Result<(), Error> {
    let prefix = program.package.test_prefix();
    let directory = project.root.join(&program.package.dir);
    let mut command = Command::new(&program.path);
    command
        .current_dir(&directory)
        .env("CARGO_MANIFEST_DIR", &directory)
        .args(["--format", "pretty", "--color", "never"])
        .arg("--show-output")
        .args(filter.within(&prefix).unwrap_or_default());
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::new(format!("cannot run {}: {error}", program.path.display())))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut failed = false;
    for (name, outcome) in libtest_results(&text) {
        failed |= matches!(outcome, Outcome::Failed(_));
        let notes = output_of(&text, &name);
        add(report, &format!("{prefix}{name}"), outcome);
        for note in notes.lines().filter_map(|line| line.strip_prefix("note ")) {
            println!("note     {prefix}{name}: {note}");
        }
    }
    // A test aborted the whole process.
    if !output.status.success() && !failed {
        let words = String::from_utf8_lossy(&output.stderr);
        add(
            report,
            &format!("{prefix}all"),
            Outcome::Failed(format!("{text}{words}")),
        );
    }
    Ok(())
}

/// The results of Rust's test harness, with the output of tests that failed.
fn libtest_results(text: &str) -> Vec<(String, Outcome)> {
    let mut results = Vec::new();
    for line in text.lines() {
        let Some((name, word)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "))
        else {
            continue;
        };
        let name = name.trim_end_matches(" - should panic").to_string();
        let outcome = match word.split_once(',').map_or(word, |(word, _)| word).trim() {
            "ok" => Outcome::Passed,
            "FAILED" => Outcome::Failed(output_of(text, &name)),
            "ignored" => {
                let why = word
                    .split_once(',')
                    .map_or("no reason given", |(_, why)| why.trim());
                Outcome::Ignored(why.into())
            }
            _ => continue,
        };
        results.push((name, outcome));
    }
    results
}

/// What the test `name` printed.
fn output_of(text: &str, name: &str) -> String {
    let header = format!("---- {name} stdout ----");
    let Some((_, rest)) = text.split_once(&header) else {
        return String::new();
    };
    let end = ["\n---- ", "\nfailures:", "\nsuccesses:"]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min();
    rest[..end.unwrap_or(rest.len())].trim().to_string()
}

// ---- machines

/// The promises of `hal` about the machine, tested by a special kernel, once for each way to mask interrupts.
fn machine_own_tests(
    project: &Project,
    options: &TestOptions,
    filter: &Filter,
    report: &Mutex<Report>,
) -> Result<(), Error> {
    let all = test_names::of_machine(project)?.len();
    for irq in Config::maskings(&options.configs()) {
        let prefix = format!("machine/{}/", irq.name());
        let Some(wanted) = filter.within(&prefix) else {
            continue;
        };
        let config = Config::machine(irq);
        match image::build_example(project, config, "machine") {
            Ok(images) => {
                let mut machine = Options::new(config);
                // So that interrupts come after any instruction, and after the same ones in each run.
                machine.deterministic = true;
                times::measured(&prefix, || {
                    let wanted = (&wanted[..], all);
                    boot_tests(&images, machine, &prefix, wanted, options.verbose, report);
                });
            }
            Err(error) => add(
                report,
                &format!("{prefix}build"),
                Outcome::Failed(error.message),
            ),
        }
    }
    Ok(())
}

/// Whether a scenario that is `once` runs in this configuration: in one of the tested configurations and, if there
/// are several with the same way to be preempted (`--all`), in one for each way. `number` is the scenario's.
fn is_its(config: Config, number: usize, tested: &[Config]) -> bool {
    let way = |config: &Config| config.model.name().rsplit('-').next().map(str::to_owned);
    let all = tested.len() > Config::tested().len();
    let among: Vec<&Config> = tested
        .iter()
        .filter(|other| !all || way(other) == way(&config))
        .collect();
    among.get(number % among.len().max(1)) == Some(&&config)
}

/// Guest tests, benchmarks and scenarios of all unfinished configurations, a few machines at a time, one
/// configuration after the other.
fn machine_tests(
    project: &Project,
    options: &TestOptions,
    filter: &Filter,
    runs: &[Run],
    journal: Option<&Journal>,
) -> Result<(), Error> {
    type Job<'a> = (&'a Run, Box<dyn Fn() + Send + Sync + 'a>);
    let left = || runs.iter().filter(|run| !run.earlier);
    let mut configs: Vec<(Config, &Run)> = left()
        .filter_map(|run| match run.part {
            Part::Config(config) => Some((config, run)),
            Part::Common | Part::Placed(_) | Part::Cuts(_) => None,
        })
        .collect();
    let mut placed: Vec<(Config, &Run)> = left()
        .filter_map(|run| match run.part {
            Part::Placed(config) => Some((config, run)),
            Part::Common | Part::Config(_) | Part::Cuts(_) => None,
        })
        .collect();
    // Nothing is built and booted for a filter that cannot match.
    let kinds = ["guest/", "forgetful/", "scenario/", "bench/"];
    let thresholds = &Thresholds::read(project)?;
    let may_run = |kind: &str, config: Config| {
        let prefix = format!("{kind}{}/", config.name());
        let takes = |name: &str| filter.takes(&format!("{prefix}{name}"));
        match kind {
            // These names are known in advance.
            "scenario/" => scenarios::ALL.iter().any(|scenario| takes(scenario.name)),
            "bench/" => thresholds.names(config).iter().any(|name| takes(name)),
            _ => filter.within(&prefix).is_some(),
        }
    };
    configs.retain(|(config, _)| kinds.iter().any(|kind| may_run(kind, *config)));
    let tested = options.configs();
    let which = Placed::of(options);
    placed.retain(|(config, _)| {
        which.guest(*config, filter).is_some()
            || which.scenarios(*config, filter, &tested).next().is_some()
    });
    let kernels = configs.iter().chain(&placed);
    let mut kernels: Vec<Config> = kernels.map(|(config, _)| *config).collect();
    let mut seen = Vec::new();
    kernels.retain(|config| {
        let is_new = !seen.contains(config);
        seen.push(*config);
        is_new
    });
    if kernels.is_empty() {
        return Ok(());
    }
    let wanted: Vec<Config> = configs.iter().map(|(config, _)| *config).collect();
    let (images, failed) = match image::build_what_builds(project, BuildTarget::Kernel, &kernels) {
        Ok(built) => built,
        // This call waited for another build, and the user has ended it.
        Err(_) if signals::caught().is_some() => return Ok(()),
        Err(error) => {
            for (config, run) in configs.into_iter().chain(placed) {
                let name = format!("build/{}/programs", config.name());
                add(&run.report, &name, Outcome::Failed(error.message.clone()));
            }
            return Ok(());
        }
    };
    // All forgetful kernels are tested if the filter asks for them.
    let asked = options.filter.as_deref();
    let asked = asked.is_some_and(|filter| filter.starts_with("forgetful"));
    let forgets = |config: &Config| {
        config.is_tested_forgetful(options.choice.is_all() || asked)
            && may_run("forgetful/", *config)
    };
    let mut forgetful: Vec<Config> = wanted.into_iter().filter(forgets).collect();
    let mut forgetful_images = None;
    if !forgetful.is_empty() {
        match image::build_what_builds(project, BuildTarget::Forgetful, &forgetful) {
            Ok((images, failed)) => {
                forgetful.retain(|config| !failed.iter().any(|(other, _)| other == config));
                forgetful_images = Some(images);
                for (config, error) in failed {
                    if let Some((_, run)) = configs.iter().find(|(other, _)| *other == config) {
                        let name = format!("build/{}/forgetful", config.name());
                        add(&run.report, &name, Outcome::Failed(error.message));
                    }
                }
            }
            Err(_) if signals::caught().is_some() => return Ok(()),
            Err(error) => add(
                &configs[0].1.report,
                "build/forgetful/programs",
                Outcome::Failed(error.message),
            ),
        }
    }
    let (images, forgetful_images) = (&images, &forgetful_images);
    let all = test_names::of_guest(project)?.len();
    let in_kernel = &[Place::all_in_kernel()];
    let mut jobs: Vec<Job> = Vec::new();
    for (config, run) in configs {
        if let Some((_, error)) = failed.iter().find(|(other, _)| *other == config) {
            let name = format!("build/{}/kernel", config.name());
            add(&run.report, &name, Outcome::Failed(error.message.clone()));
            continue;
        }
        let report = &run.report;
        if may_run("guest/", config) {
            let job = move || guest_tests((images, config), options, filter, all, report);
            let job = named("guest", config, job);
            jobs.push((run, Box::new(job)));
        }
        let forgetful_images = forgetful_images.as_ref();
        if let Some(images) = forgetful_images.filter(|_| forgetful.contains(&config)) {
            let job = move || forgetful_tests((images, config), options, filter, all, report);
            let job = named("forgetful", config, job);
            jobs.push((run, Box::new(job)));
        }
        let name = move |bench: &str| format!("bench/{}/{bench}", config.name());
        let wanted = move |bench: &String| filter.takes(&name(bench));
        if thresholds.names(config).iter().any(wanted) {
            let job = move || benchmarks(project, (images, config), thresholds, &wanted, report);
            let job = named("bench", config, job);
            jobs.push((run, Box::new(job)));
        }
        for (number, scenario) in scenarios::ALL.iter().enumerate() {
            if scenario.once && !is_its(config, number, &tested) {
                continue;
            }
            let name = format!("scenario/{}/{}", config.name(), scenario.name);
            if filter.takes(&name) {
                let places = &options.places;
                let job = move || scenario_test((images, config), scenario, &name, places, report);
                jobs.push((run, Box::new(job)));
            }
        }
    }
    for (config, run) in placed {
        // A kernel that does not build was reported above, or is reported here.
        if let Some((_, error)) = failed.iter().find(|(other, _)| *other == config) {
            let name = format!("build/{}/kernel", config.name());
            add(&run.report, &name, Outcome::Failed(error.message.clone()));
            continue;
        }
        let report = &run.report;
        if let Some(wanted) = which.guest(config, filter) {
            let job = move || {
                let prefix = format!("{}guest/", Placed::prefix(config));
                let mut machine = Options::new(config);
                machine.places = in_kernel.to_vec();
                machine.deterministic = true;
                let wanted = (&wanted[..], all);
                boot_tests(images, machine, &prefix, wanted, options.verbose, report);
            };
            let job = named("placed", config, job);
            jobs.push((run, Box::new(job)));
        }
        for (scenario, name) in which.scenarios(config, filter, &tested) {
            let job = move || scenario_test((images, config), scenario, &name, in_kernel, report);
            jobs.push((run, Box::new(job)));
        }
    }
    for (run, _) in &jobs {
        run.left.fetch_add(1, Ordering::Relaxed);
    }

    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| PANIC.set(Some(info.to_string()))));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..MACHINES {
            scope.spawn(|| {
                while let Some((run, job)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if signals::caught().is_some() {
                        break;
                    }
                    job();
                    if run.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        finished(run, journal);
                    }
                }
            });
        }
    });
    std::panic::set_hook(before);
    Ok(())
}

/// Which tests run with all servers and drivers in the kernel.
#[derive(Clone, Copy)]
struct Placed {
    /// All of them, not only the daily ones.
    all: bool,
}

impl Placed {
    /// All of them with `--all` or if the filter asks for them.
    fn of(options: &TestOptions) -> Self {
        let asked = options.filter.as_deref();
        let asked = asked.is_some_and(|filter| filter.starts_with("placed"));
        Self {
            all: options.choice.is_all() || asked,
        }
    }

    /// The prefix of their names.
    fn prefix(config: Config) -> String {
        format!("placed/{}/", config.name())
    }

    /// The words that select tests of the guest, if any are to run. Daily it is only the test that programs do not
    /// reach the memory of placed servers, which needs placed servers.
    fn guest(self, config: Config, filter: &Filter) -> Option<Vec<&str>> {
        const DAILY: &str = "EXCEPTION0002";
        let prefix = format!("{}guest/", Placed::prefix(config));
        if self.all {
            return filter.within(&prefix);
        }
        let wanted = config == Config::DEFAULT && filter.takes(&format!("{prefix}{DAILY}"));
        wanted.then(|| vec![DAILY])
    }

    /// The scenarios of this configuration, with their names here: each daily one in one of the configurations; of
    /// the others, those about the kernel's model in all configurations, and the rest in the default one.
    fn scenarios<'a>(
        self,
        config: Config,
        filter: &'a Filter,
        tested: &'a [Config],
    ) -> impl Iterator<Item = (&'static Scenario, String)> + 'a {
        let others = scenarios::ALL
            .iter()
            .filter(|one| one.placed != When::Itself);
        let is_one = move |(number, one): &(usize, &'static Scenario)| match self.all {
            true => !one.once || tested.len() == 1 || config == Config::DEFAULT,
            false => one.placed == When::Daily && tested[number % tested.len()] == config,
        };
        let wanted = others.enumerate().filter(is_one);
        let named = wanted.map(move |(_, one)| (one, Placed::prefix(config) + one.name));
        named.filter(move |(_, name)| filter.takes(name))
    }
}

/// Runs a scenario with servers in these places.
fn scenario_test(
    (images, config): (&Images, Config),
    scenario: &Scenario,
    name: &str,
    places: &[Place],
    report: &Mutex<Report>,
) {
    let outcome = match scenario.ignored {
        Some(why) => Outcome::Ignored(why.into()),
        None => {
            let ctx = Ctx::new(images, config).placed(places);
            times::measured(name, || run_scenario_in(ctx, name, scenario.run))
        }
    };
    add(report, name, outcome);
}

/// A job whose duration is recorded.
fn named<'a>(
    kind: &'static str,
    config: Config,
    job: impl Fn() + Send + Sync + 'a,
) -> impl Fn() + Send + Sync + 'a {
    move || times::measured(&format!("{kind}/{}", config.name()), &job)
}

thread_local! {
    /// The message of the last panic of this thread.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn run_scenario(
    images: &Images,
    config: Config,
    name: &str,
    run: impl FnOnce(&mut Ctx) -> Result<(), String>,
) -> Outcome {
    let ctx = Ctx::new(images, config);
    run_scenario_in(ctx, name, run)
}

/// Runs a scenario in this context.
fn run_scenario_in(
    mut ctx: Ctx,
    name: &str,
    run: impl FnOnce(&mut Ctx) -> Result<(), String>,
) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(|| run(&mut ctx)))
        .unwrap_or_else(|_| Err(PANIC.take().unwrap_or_else(|| "panicked".into())));
    let Finished {
        notes,
        left_out,
        transcript,
    } = ctx.finish();
    for note in notes {
        println!("note     {name}: {note}");
    }
    match result {
        Ok(()) if left_out.is_empty() => Outcome::Passed,
        Ok(()) => Outcome::Ignored(format!("left out: {}", left_out.join("; "))),
        Err(why) => Outcome::Failed(format!(
            "{why}\nits machines printed:\n{}",
            last_lines(&transcript, 40)
        )),
    }
}

/// Counts instructions in one boot, and compares the wanted counts with their thresholds.
fn benchmarks(
    project: &Project,
    (images, config): (&Images, Config),
    thresholds: &Thresholds,
    wanted: &dyn Fn(&String) -> bool,
    report: &Mutex<Report>,
) {
    let prefix = format!("bench/{}/", config.name());
    match thresholds.check(project, images, config) {
        Ok(verdicts) => {
            for (name, verdict) in verdicts.into_iter().filter(|(name, _)| wanted(name)) {
                let outcome = verdict.map_or_else(Outcome::Failed, |()| Outcome::Passed);
                add(report, &format!("{prefix}{name}"), outcome);
            }
        }
        Err(error) => add(
            report,
            &format!("{prefix}run"),
            Outcome::Failed(error.message),
        ),
    }
}

/// Boots a machine with the word `test` and counts the results that its runner reports; the runner has `all` tests.
fn guest_tests(
    (images, config): (&Images, Config),
    test: &TestOptions,
    filter: &Filter,
    all: usize,
    report: &Mutex<Report>,
) {
    let prefix = format!("guest/{}/", config.name());
    let wanted = filter.within(&prefix).unwrap_or_default();
    let mut machine = Options::new(config);
    // By the host's clock, a busy host would decide where the tests of cuts cut, and whether they cut at all.
    machine.places.clone_from(&test.places);
    machine.deterministic = true;
    let wanted = (&wanted[..], all);
    boot_tests(images, machine, &prefix, wanted, test.verbose, report);
}

/// The same on a forgetful kernel, which must have dropped something often. It decides by a random number generator
/// and not by time, so that a deterministic machine does the same in each run.
fn forgetful_tests(
    (images, config): (&Images, Config),
    test: &TestOptions,
    filter: &Filter,
    all: usize,
    report: &Mutex<Report>,
) {
    /// With fewer drops the test would show little.
    const LEAST: u64 = 1024;
    let prefix = format!("forgetful/{}/", config.name());
    let wanted = filter.within(&prefix).unwrap_or_default();
    let mut machine = Options::new(config);
    machine.places.clone_from(&test.places);
    machine.deterministic = true;
    let words = (&wanted[..], all);
    let forgotten = boot_tests(images, machine, &prefix, words, test.verbose, report);
    // A few selected tests need not block often.
    if wanted.is_empty() && signals::caught().is_none() {
        let outcome = match forgotten {
            LEAST.. => Outcome::Passed,
            _ => Outcome::Failed(format!(
                "what threads keep was dropped {forgotten} times, and not {LEAST} at least"
            )),
        };
        add(report, &format!("{prefix}forgets"), outcome);
    }
}

/// Boots a machine with the word `test`, for all tests, or those whose names contain one of the wanted words; there
/// must be at least `least`. Returns how often the kernel reported a drop.
fn boot_tests(
    images: &Images,
    mut options: Options,
    prefix: &str,
    (wanted, all): (&[&str], usize),
    verbose: bool,
    report: &Mutex<Report>,
) -> u64 {
    options.timeout = Some(GUEST_TIMEOUT);
    options.words.push("test".into());
    if !wanted.is_empty() {
        let words = wanted.join(",");
        if words.contains(char::is_whitespace) {
            return 0;
        }
        options.words.push(format!("filter={words}"));
    }
    let mut listener = Listener::new(prefix, report, verbose);
    let end = machine::run(images, &options, &mut listener);
    let least = if wanted.is_empty() { all } else { 0 };
    if let Some(why) = listener.wrong(end, least) {
        let current = listener.current.take();
        let current = current.map(|name| format!("while {name} ran, "));
        let why = format!(
            "{}{why}\nit printed:\n{}",
            current.unwrap_or_default(),
            last_lines(&listener.recent, 40)
        );
        add(report, &format!("{prefix}run"), Outcome::Failed(why));
    }
    listener.forgotten
}

/// Collects the results of the test runner of a guest.
struct Listener<'a> {
    prefix: &'a str,
    report: &'a Mutex<Report>,
    verbose: bool,
    done: bool,
    /// Console and log since the last result.
    recent: String,
    /// The test that is running, if the runner has named it.
    current: Option<String>,
    /// How many tests have had a result, and how many of these have failed.
    results: usize,
    failed: usize,
    /// How often the kernel has reported that it dropped something.
    forgotten: u64,
}

impl<'a> Listener<'a> {
    fn new(prefix: &'a str, report: &'a Mutex<Report>, verbose: bool) -> Self {
        Self {
            prefix,
            report,
            verbose,
            done: false,
            recent: String::new(),
            current: None,
            results: 0,
            failed: 0,
            forgotten: 0,
        }
    }

    /// What is wrong with the end of the machine, which had to run at least `least` tests. Tests without a result
    /// have not passed.
    fn wrong(&self, end: Result<End, Error>, least: usize) -> Option<String> {
        match end {
            Ok(End::Exit(status)) if !self.done => Some(format!(
                "the machine stopped with status {status} before its tests were done"
            )),
            Ok(End::Exit(_)) if self.current.is_some() => {
                Some("the runner said that all is done".into())
            }
            Ok(End::Exit(status)) if status != 0 && self.failed == 0 => Some(format!(
                "the machine stopped with status {status}, and no test has failed"
            )),
            Ok(End::Exit(_)) if self.results < least => Some(format!(
                "only {} tests have run, and the sources have {least}",
                self.results
            )),
            // By a signal the user has ended the whole call.
            Ok(End::Exit(_) | End::Stopped(_)) => None,
            Ok(End::TimedOut) => Some(format!(
                "the machine was not done after {} s",
                GUEST_TIMEOUT.as_secs()
            )),
            Ok(End::Broken(lines)) => Some(lines.join("\n")),
            Err(error) => Some(error.message),
        }
    }
}

impl Operator for Listener<'_> {
    fn console(&mut self, bytes: &[u8]) -> bool {
        self.recent.push_str(&String::from_utf8_lossy(bytes));
        true
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Log(text) | Event::Unknown(text) => {
                if self.verbose {
                    eprintln!("{}log: {text}", self.prefix);
                }
                let forgotten = text.strip_prefix("forgotten: ");
                if let Some(times) = forgotten.and_then(|times| times.parse().ok()) {
                    self.forgotten = times;
                }
                self.recent.push_str(text);
                self.recent.push('\n');
            }
            Event::Test(line) => match guest_result(line) {
                GuestLine::Done => self.done = true,
                GuestLine::Start(name) => self.current = Some(name),
                GuestLine::Result(name, mut outcome) => {
                    if let Outcome::Failed(why) = &mut outcome {
                        why.push('\n');
                        why.push_str(&last_lines(&self.recent, 40));
                    }
                    self.recent.clear();
                    self.current = None;
                    self.results += 1;
                    self.failed += usize::from(matches!(outcome, Outcome::Failed(_)));
                    add(self.report, &format!("{}{name}", self.prefix), outcome);
                }
                GuestLine::Other => {
                    self.recent.push_str(line);
                    self.recent.push('\n');
                }
            },
            _ => {}
        }
    }
}

/// A line of the guest's test runner.
#[derive(Debug, PartialEq, Eq)]
enum GuestLine {
    Start(String),
    Result(String, Outcome),
    Done,
    Other,
}

fn guest_result(line: &str) -> GuestLine {
    if line.trim() == "tests done" {
        return GuestLine::Done;
    }
    let Some(rest) = line.strip_prefix("test ") else {
        return GuestLine::Other;
    };
    let Some((name, result)) = rest.split_once(" ...") else {
        return GuestLine::Other;
    };
    let result = result.trim();
    let (word, why) = result.split_once(' ').unwrap_or((result, ""));
    let outcome = match word {
        "" => return GuestLine::Start(name.into()),
        "ok" => Outcome::Passed,
        "ignored" => Outcome::Ignored(
            if why.is_empty() {
                "no reason given"
            } else {
                why
            }
            .into(),
        ),
        _ => Outcome::Failed(
            result
                .strip_prefix("FAILED")
                .unwrap_or(result)
                .trim()
                .into(),
        ),
    };
    GuestLine::Result(name.into(), outcome)
}

/// The last `count` lines of `text`.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harness_output_is_counted() {
        let text = "\nrunning 4 tests\ntest a::b ... ok\ntest c - should panic ... ok\n\
            test d ... ignored, too slow\ntest e ... FAILED\n\nfailures:\n\n---- e stdout ----\n\
            thread 'e' panicked: no\n\n\nfailures:\n    e\n\ntest result: FAILED. 2 passed\n";
        assert_eq!(
            libtest_results(text),
            [
                ("a::b".into(), Outcome::Passed),
                ("c".into(), Outcome::Passed),
                ("d".into(), Outcome::Ignored("too slow".into())),
                (
                    "e".into(),
                    Outcome::Failed("thread 'e' panicked: no".into())
                ),
            ]
        );
    }

    #[test]
    fn what_the_host_lacks_is_ignored() {
        let images = Images::of_kernel(Config::DEFAULT, Vec::new());
        for scenario in [
            |ctx: &mut Ctx| ctx.packages_unless(Some("there is nothing")),
            |ctx: &mut Ctx| ctx.checkpoints_of_packages_unless(Some("there is nothing")),
        ] {
            let outcome = run_scenario(&images, Config::DEFAULT, "lacking", scenario);
            let wanted = Outcome::Ignored("left out: there is nothing".into());
            assert_eq!(outcome, wanted);
        }
    }

    /// What is wrong with a machine that had to run at least `least` tests, printed these lines and ended with this
    /// status.
    fn wrong(lines: &[&str], status: u8, least: usize) -> Option<String> {
        let report = Mutex::default();
        let mut listener = Listener::new("guest/any/", &report, false);
        for line in lines {
            listener.event(&Event::Test((*line).into()));
        }
        listener.wrong(Ok(End::Exit(status)), least)
    }

    #[test]
    fn tests_that_nobody_has_heard_of_have_not_passed() {
        assert!(wrong(&["tests done"], 0, 1).is_some());
        assert!(wrong(&["test a ...", "tests done"], 0, 0).is_some());
        assert!(wrong(&["test a ...", "test a ... ok"], 0, 1).is_some());
        assert!(wrong(&["test a ... ok", "tests done"], 1, 1).is_some());
        assert!(wrong(&["test a ... ok", "tests done"], 0, 2).is_some());
        assert_eq!(wrong(&["test a ... ok", "tests done"], 0, 1), None);
        // That failure is counted already.
        assert_eq!(wrong(&["test a ... FAILED x", "tests done"], 1, 1), None);
        // A filter may match no test of the guest.
        assert_eq!(wrong(&["tests done"], 0, 0), None);
    }

    #[test]
    fn a_scenario_that_is_once_runs_in_one_configuration_or_one_of_each_way_to_be_preempted() {
        let runs = |configs: &[Config], number: usize| -> Vec<&'static str> {
            let its = configs
                .iter()
                .filter(|config| is_its(**config, number, configs));
            its.map(|config| config.model.name()).collect()
        };
        let tested = Config::tested();
        let all = Config::all(xtask_build::config::Which::Both);
        for number in 0..tested.len() * all.len() {
            assert_eq!(runs(&tested, number).len(), 1, "{number}");
            let ways = runs(&all, number);
            let of = |way: &str| ways.iter().filter(|name| name.ends_with(way)).count();
            assert_eq!((of("-np"), of("-pp"), of("-fp")), (1, 1, 1), "{ways:?}");
        }
    }

    #[test]
    fn what_is_placed_is_one_of_each_kind_every_day_and_all_at_last() {
        let tested = Config::tested();
        let names = |all: bool, text: Option<&str>, configs: &[Config]| {
            let filter = text.map_or(Filter::All, |text| Filter::Containing(text.into()));
            let placed = configs.iter().flat_map(|config| {
                let placed = Placed { all }.scenarios(*config, &filter, configs);
                placed.map(|(_, name)| name).collect::<Vec<_>>()
            });
            placed.collect::<Vec<_>>()
        };
        let daily = names(false, None, &tested);
        for wanted in [
            "net_",
            "disk_",
            "legacy_",
            "attack_held",
            "attack_churn",
            "attack_keepers",
        ] {
            let found = daily
                .iter()
                .filter(|name| name.contains(&format!("/{wanted}")));
            assert_eq!(found.count(), 1, "{wanted} in {daily:?}");
        }
        // In a run of one configuration all daily scenarios run in it.
        assert_eq!(names(false, None, &[Config::DEFAULT]).len(), daily.len());
        let all = names(true, None, &[Config::DEFAULT]);
        let itself = scenarios::ALL
            .iter()
            .filter(|one| one.placed == When::Itself);
        assert_eq!(all.len() + itself.count(), scenarios::ALL.len());
        assert!(names(true, None, &tested).len() < 2 * all.len());
        assert_eq!(
            names(true, Some("placed/interrupt-np/net_pair"), &tested).len(),
            1
        );
        let guest = |all, text: &str| {
            let filter = Filter::Containing(text.into());
            Placed { all }.guest(Config::DEFAULT, &filter).is_some()
        };
        assert!(guest(true, "placed/interrupt-np/guest/IPC0001"));
        assert!(!guest(false, "IPC0001"));
        assert!(guest(false, "EXCEPTION0002"));
        assert!(!guest(true, "placed/interrupt-np/net_pair"));
    }

    #[test]
    fn guest_lines_are_understood() {
        assert_eq!(
            guest_result("test a ... ok"),
            GuestLine::Result("a".into(), Outcome::Passed)
        );
        assert_eq!(
            guest_result("test a ... FAILED 1 is not 2"),
            GuestLine::Result("a".into(), Outcome::Failed("1 is not 2".into()))
        );
        assert_eq!(
            guest_result("test a ... ignored no clock"),
            GuestLine::Result("a".into(), Outcome::Ignored("no clock".into()))
        );
        assert_eq!(guest_result("test a ..."), GuestLine::Start("a".into()));
        assert_eq!(guest_result("tests done"), GuestLine::Done);
        assert_eq!(guest_result("testing"), GuestLine::Other);
    }
}
