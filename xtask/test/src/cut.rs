//! The cuts at every site: boots a kernel with the probe and the program that cuts, collects that program's reports,
//! and compares the sites that were reached with those in the kernel's source.
//!
//! The program is `tests/guest/src/cuts`. On the control channel it sends, in addition to results of tests, lines
//! `log cut ...`, which [`Found::take`] reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::TestOptions;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::Images;
use xtask_build::project::{BuildTarget, Project};
use xtask_machine::control::Event;
use xtask_machine::{self as machine, End, Operator, Options};

use super::sites::Registry;
use super::{add, behind, guest_result, last_lines, GuestLine, Outcome, Report};

fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Host time after which a machine is stopped.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The counts of the plays of a call.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sites: u64,
    distinct: u64,
    cuts: u64,
    mismatches: u64,
    /// Cuts that were left out because the same state had been cut in the same way before.
    known: u64,
    /// The longest stretch of instructions that a cut makes the kernel repeat, and its site.
    redone: (u64, u64),
}

/// The results of a machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    calls: Vec<(String, Counts)>,
    /// Sites that were passed.
    sites: BTreeSet<u64>,
    /// Most instructions until the state of a stopped thread was complete.
    longest_stop: u64,
    /// Whether the command line excluded a part.
    part: bool,
}

impl Found {
    /// Reads a line; false if it is none of these lines.
    fn take(&mut self, line: &str) -> bool {
        let mut words = line.split(' ');
        let (Some("cut"), Some(kind)) = (words.next(), words.next()) else {
            return false;
        };
        let mut number = |radix| {
            words
                .next()
                .and_then(|w| u64::from_str_radix(w, radix).ok())
        };
        match kind {
            "site" => {
                self.sites.extend(number(16));
            }
            "stop" => self.longest_stop = number(10).unwrap_or_default(),
            "call" => {
                let name = words.next().unwrap_or_default().to_string();
                let mut number = |radix| {
                    let word = words.next().unwrap_or_default();
                    u64::from_str_radix(word, radix).unwrap_or_default()
                };
                let counts = Counts {
                    sites: number(10),
                    distinct: number(10),
                    cuts: number(10),
                    mismatches: number(10),
                    known: number(10),
                    redone: (number(10), number(16)),
                };
                self.calls.push((name, counts));
            }
            _ => return false,
        }
        true
    }
}

/// The part of a configuration's plays that is wanted: `None` for all.
fn wanted(test: &TestOptions, config: Config) -> Option<&str> {
    let prefix = format!("cut/{}/", config.name());
    let filter = behind(test.filter.as_deref(), &prefix);
    Some(filter.strip_prefix("cut/").unwrap_or(filter)).filter(|f| !f.is_empty() && *f != "cut")
}

/// How many machines share the calls of a configuration: somewhat more than processors, so that every processor is
/// busy to the end.
pub(super) fn shards(test: &TestOptions, config: Config) -> usize {
    if wanted(test, config).is_some() {
        1
    } else {
        SHARDS
    }
}

const SHARDS: usize = 12;

/// Boots the machine of one shard, counts its tests, and returns its findings.
pub(super) fn run(
    project: &Project,
    images: &Images,
    config: Config,
    shard: usize,
    test: &TestOptions,
    report: &Mutex<Report>,
) -> Found {
    let prefix = format!("cut/{}/", config.name());
    let mut arguments: Vec<String> = Vec::new();
    let filter = wanted(test, config);
    if let Some(filter) = filter {
        if filter.contains(|c: char| c.is_whitespace() || c == ';') {
            return Found::default();
        }
        // `NAME@KIND:N` is a cut that a failure has named.
        let (name, cut) = filter.split_once('@').unwrap_or((filter, ""));
        let (kind, site) = cut.split_once(':').unwrap_or((cut, ""));
        arguments.push(format!("filter={name}"));
        for (key, value) in [("kinds", kind), ("site", site)] {
            if !value.is_empty() {
                arguments.push(format!("{key}={value}"));
            }
        }
    }
    let part = !arguments.is_empty();
    if config.is_preemptible() {
        arguments.push("instants=1".into());
    }
    if !test.collocated.is_empty() {
        let sides: Vec<&str> = test.collocated.iter().map(|side| side.name()).collect();
        arguments.push(format!("collocated={}", sides.join(",")));
    }
    let shards = shards(test, config);
    if shards > 1 {
        arguments.push(format!("shard={shard}/{shards}"));
    }
    let mut options = Options::new(config);
    options.timeout = Some(TIMEOUT).filter(|_| !test.debug);
    options.debug = test.debug;
    options.deterministic = true;
    options.memory = 64;
    options.words.push(format!("cut={}", arguments.join(";")));
    if test.debug {
        let kernel = project
            .binaries(BuildTarget::Probe, config)
            .join("fermata-kernel");
        eprintln!(
            "fermata: the machine waits for a debugger, which stops it where the call is cut:\n    \
             gdb -ex 'target remote {}' -ex 'break probe.rs:fire' -ex continue {}",
            machine::DEBUGGER.trim_start_matches("tcp:"),
            kernel.display()
        );
    }
    let mut listener = Listener {
        prefix: &prefix,
        report,
        verbose: test.verbose,
        found: Found {
            part,
            ..Found::default()
        },
        done: false,
        recent: String::new(),
        last: String::new(),
    };
    let end = machine::run(images, &options, &mut listener);
    let why = match end {
        Ok(End::Exit(_)) if listener.done => None,
        Ok(End::Stopped(_)) => None,
        Ok(End::Exit(status)) => Some(format!("the machine stopped with status {status}")),
        Ok(End::TimedOut) => Some(format!("not done after {} s", TIMEOUT.as_secs())),
        Ok(End::Broken(lines)) => Some(lines.join("\n")),
        Err(error) => Some(error.message),
    };
    if let Some(why) = why {
        let why = format!(
            "{why}\nafter {}\nit printed:\n{}",
            listener.last,
            last_lines(&listener.recent, 40)
        );
        add(report, &format!("{prefix}run"), Outcome::Failed(why));
    }
    listener.found
}

/// Rounds of hostile callers in `./fermata test`: some fifteen seconds in each configuration.
const ROUNDS: u64 = 120;
/// Host time after which a machine that has finished no round counts as hanging.
const HANGS: Duration = Duration::from_secs(600);
/// Host time between two reports of progress.
const PROGRESS: Duration = Duration::from_secs(5);

/// Runs rounds of hostile callers from this seed on, a fixed number or for a fixed time. Returns how many.
pub(super) fn hostile(
    images: &Images,
    config: Config,
    seed: u64,
    time: Option<Duration>,
    verbose: bool,
    report: &Mutex<Report>,
) -> u64 {
    let prefix = format!("cut/{}/", config.name());
    let mut options = Options::new(config);
    options.deterministic = true;
    options.memory = 64;
    let count = time.map_or(ROUNDS, |_| u64::from(u32::MAX));
    options
        .words
        .push(format!("cut=hostile={count};seed={seed}"));
    let now = Instant::now();
    let mut rounds = Rounds {
        prefix: &prefix,
        report,
        verbose,
        end: time.map(|time| now + time),
        start: now,
        last: now,
        said: now,
        through: 0,
        failed: 0,
        current: None,
        recent: String::new(),
    };
    let end = machine::run(images, &options, &mut rounds);
    let why = match end {
        Ok(End::Stopped(_)) if rounds.hangs() => {
            Some(format!("nothing for {} s: it hangs", HANGS.as_secs()))
        }
        Ok(End::Exit(_)) if rounds.through == count => None,
        Ok(End::Stopped(_)) => None,
        Ok(End::Exit(status)) => Some(format!("the machine stopped with status {status}")),
        Ok(End::TimedOut) => Some("its time was up".into()),
        Ok(End::Broken(lines)) => Some(lines.join("\n")),
        Err(error) => Some(error.message),
    };
    let whole = format!("{prefix}hostile");
    match why {
        None if rounds.through > 0 && rounds.failed == 0 => add(report, &whole, Outcome::Passed),
        None => {}
        Some(why) => {
            let why = format!("{why}\nit printed:\n{}", last_lines(&rounds.recent, 40));
            let name = rounds.current.unwrap_or_else(|| "hostile".into());
            add(report, &format!("{prefix}{name}"), Outcome::Failed(why));
        }
    }
    rounds.through
}

/// Collects the results of rounds of hostile callers.
struct Rounds<'a> {
    prefix: &'a str,
    report: &'a Mutex<Report>,
    verbose: bool,
    start: Instant,
    /// When to stop.
    end: Option<Instant>,
    /// When the last round was finished.
    last: Instant,
    /// When progress was last reported.
    said: Instant,
    through: u64,
    failed: u64,
    /// The round that is running.
    current: Option<String>,
    recent: String,
}

impl Rounds<'_> {
    fn hangs(&self) -> bool {
        self.last.elapsed() > HANGS
    }
}

impl Operator for Rounds<'_> {
    fn console(&mut self, bytes: &[u8]) -> bool {
        self.recent.push_str(&String::from_utf8_lossy(bytes));
        true
    }

    fn event(&mut self, event: &Event) {
        if let (Event::Log(text), true) = (event, self.verbose) {
            println!("{}hostile: {text}", self.prefix);
        }
        let Event::Test(line) = event else { return };
        match guest_result(line) {
            GuestLine::Start(name) => self.current = Some(name),
            GuestLine::Result(name, outcome) => {
                self.through += 1;
                self.last = Instant::now();
                self.current = None;
                self.recent.clear();
                if outcome != Outcome::Passed {
                    self.failed += 1;
                    add(self.report, &format!("{}{name}", self.prefix), outcome);
                }
            }
            GuestLine::Done | GuestLine::Other => {}
        }
    }

    fn tick(&mut self) -> bool {
        if self.verbose && self.said.elapsed() >= PROGRESS {
            self.said = Instant::now();
            println!(
                "{}hostile: {} s, {} rounds, {} failed",
                self.prefix,
                self.start.elapsed().as_secs(),
                self.through,
                self.failed
            );
        }
        !self.hangs() && self.end.is_none_or(|end| Instant::now() < end)
    }
}

/// Collects the results of the program that cuts.
struct Listener<'a> {
    prefix: &'a str,
    report: &'a Mutex<Report>,
    verbose: bool,
    found: Found,
    done: bool,
    recent: String,
    /// The last test that was finished.
    last: String,
}

impl Listener<'_> {
    /// Reports that all plays of a call are finished.
    fn progress(&self, line: &str) {
        if let (Some(_), Some((name, c))) =
            (line.strip_prefix("cut call "), self.found.calls.last())
        {
            println!(
                "{}{name}: {} sites, {} states, {} cuts, {} mismatches",
                self.prefix, c.sites, c.distinct, c.cuts, c.mismatches
            );
        }
    }
}

impl Operator for Listener<'_> {
    fn console(&mut self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        if self.verbose {
            eprint!("{text}");
        }
        self.recent.push_str(&text);
        true
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Log(text) | Event::Unknown(text) => {
                if self.found.take(text) {
                    self.progress(text);
                } else {
                    self.recent.push_str(text);
                    self.recent.push('\n');
                    if self.verbose {
                        eprintln!("{}log: {text}", self.prefix);
                    }
                }
            }
            Event::Test(line) => match guest_result(line) {
                GuestLine::Done => self.done = true,
                GuestLine::Result(name, outcome) => {
                    self.recent.clear();
                    let name = format!("{}{name}", self.prefix);
                    if outcome == Outcome::Passed && !self.verbose {
                        // Cuts that passed are only counted, because there are so many.
                        lock(self.report).passed += 1;
                    } else {
                        add(self.report, &name, outcome);
                    }
                    self.last = name;
                }
                GuestLine::Start(_) | GuestLine::Other => {}
            },
            _ => {}
        }
    }
}

/// Prints the sites that no cut has reached, the table of all calls, and the sum. Returns the sites that should have
/// been reached: all of them after whole runs of the configurations that are cut at sites, since a run whose plays
/// end before they begin would otherwise pass.
pub(super) fn summary(project: &Project, all: &[(Config, Found)]) -> Result<Vec<String>, Error> {
    let registry = Registry::read(&project.root)?;
    let mut calls: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut sites = BTreeSet::new();
    for (_, found) in all {
        for (name, counts) in &found.calls {
            let sum = calls.entry(name).or_default();
            sum.sites = sum.sites.max(counts.sites);
            sum.distinct = sum.distinct.max(counts.distinct);
            sum.cuts += counts.cuts;
            sum.mismatches += counts.mismatches;
            sum.known += counts.known;
            sum.redone = sum.redone.max(counts.redone);
        }
        sites.extend(&found.sites);
    }
    let part = all.iter().any(|(_, found)| found.part);
    let mut configs: Vec<Config> = all.iter().map(|(config, _)| *config).collect();
    configs.dedup();
    let unreached = registry.without(sites.iter().copied(), &configs);
    if !part && !unreached.is_empty() {
        println!("\nsites that no play reaches:");
        for site in &unreached {
            println!("    {site}");
        }
    }
    for id in sites.iter().filter(|id| registry.find(**id).is_none()) {
        println!("    a site that the source does not have: {id:#x}");
    }
    configs.sort_by_key(|config| config.name());
    configs.dedup();
    println!();
    for &config in &configs {
        let results = all.iter().filter(|(of, _)| *of == config);
        println!(
            "stop and state of a thread, most instructions, {}: {}",
            config.name(),
            results
                .map(|(_, found)| found.longest_stop)
                .max()
                .unwrap_or(0)
        );
    }
    let known: u64 = calls.values().map(|counts| counts.known).sum();
    println!(
        "{known} cuts more were at states of both threads in which the same call had been cut in the \
         same way"
    );
    let mut longest: Vec<_> = calls.iter().map(|(name, c)| (c.redone, *name)).collect();
    // Cuts at instants have no site to measure to.
    longest.retain(|((stretch, _), _)| *stretch != 0);
    longest.sort_unstable();
    println!("longest stretches that a cut makes the kernel do again, in instructions:");
    for ((stretch, site), name) in longest.iter().rev().take(8) {
        println!("    {stretch:6}  {name}: {}", registry.name(*site));
    }
    println!(
        "\n{:44} {:>6} {:>9} {:>8} {:>10} {:>8}",
        "call", "sites", "distinct", "cuts", "mismatches", "redone"
    );
    let mut sum = Counts::default();
    // In the order of the table of calls; plays about instructions come last.
    let place = |name: &str| abi::SYSCALLS.iter().position(|row| row.name == name);
    let mut order: Vec<_> = calls.into_iter().collect();
    order.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
    for (name, c) in order {
        println!(
            "{name:44} {:>6} {:>9} {:>8} {:>10} {:>8}",
            c.sites, c.distinct, c.cuts, c.mismatches, c.redone.0
        );
        sum.distinct += c.distinct;
        sum.cuts += c.cuts;
        sum.mismatches += c.mismatches;
    }
    println!(
        "cuts {}, distinct {}, unreached {}",
        sum.cuts,
        sum.distinct,
        if part { 0 } else { unreached.len() }
    );
    configs.retain(Config::is_cut);
    let found = all.iter().filter(|(config, _)| config.is_cut());
    let sites = found.flat_map(|(_, found)| found.sites.iter().copied());
    Ok(match part || configs.is_empty() {
        true => Vec::new(),
        false => {
            let unreached = registry.without(sites, &configs);
            let named = unreached.iter();
            named.map(|site| format!("cut/site: {site}")).collect()
        }
    })
}
