//! The cuts at every site: boots a kernel with the probe and the program that cuts, collects what it
//! says, and compares the sites that were reached with those that the kernel's source has.
//!
//! The program is `tests/guest/src/cuts`; what it says on the control channel besides results of tests
//! is lines `log cut ...`, which [`Found::take`] reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cli::TestOptions;
use crate::config::Config;
use crate::control::Event;
use crate::error::Error;
use crate::image::Images;
use crate::machine::{self, End, Operator, Options};
use crate::project::{Project, Room};

use super::sites::Registry;
use super::{add, behind, guest_result, last_lines, GuestLine, Outcome, Report};

fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Host time that a machine has.
const TIMEOUT: Duration = Duration::from_secs(900);

/// What a machine has found out.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Per call: sites, distinct states, cuts, mismatches.
    calls: Vec<(String, [u64; 4])>,
    /// How often a site was passed, and the longest stretch before it.
    sites: BTreeMap<u64, (u64, u64)>,
    /// Most instructions until a stopped thread's state was complete.
    answer: u64,
    /// The command line made it leave something out.
    part: bool,
}

impl Found {
    /// Reads a line; false if it is none of these.
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
                if let (Some(id), Some(times), Some(longest)) = (number(16), number(10), number(10))
                {
                    self.sites.insert(id, (times, longest));
                }
            }
            "answer" => self.answer = number(10).unwrap_or_default(),
            "call" => {
                let name = words.next().unwrap_or_default().to_string();
                let mut counts = [0; 4];
                for count in &mut counts {
                    *count = words
                        .next()
                        .and_then(|w| w.parse().ok())
                        .unwrap_or_default();
                }
                self.calls.push((name, counts));
            }
            _ => return false,
        }
        true
    }
}

/// Boots the machine, counts its tests, and returns what it has found out.
pub(super) fn run(
    project: &Project,
    images: &Images,
    config: Config,
    test: &TestOptions,
    report: &Mutex<Report>,
) -> Found {
    let prefix = format!("cut/{}/", config.name());
    let filter = behind(test.filter.as_deref(), &prefix);
    let filter = filter.strip_prefix("cut/").unwrap_or(filter);
    let mut arguments: Vec<String> = Vec::new();
    if !filter.is_empty() && filter != "cut" {
        if filter.contains(|c: char| c.is_whitespace() || c == ';') {
            return Found::default();
        }
        // `NAME@WAY:N` is the cut that a failure named.
        let (name, cut) = filter.split_once('@').unwrap_or((filter, ""));
        let (way, site) = cut.split_once(':').unwrap_or((cut, ""));
        arguments.push(format!("filter={name}"));
        for (key, value) in [("ways", way), ("site", site)] {
            if !value.is_empty() {
                arguments.push(format!("{key}={value}"));
            }
        }
    }
    if test.filter.is_none() {
        arguments.push(QUICK.into());
    }
    let mut options = Options::new(config);
    options.timeout = Some(TIMEOUT).filter(|_| !test.debug);
    options.debug = test.debug;
    options.deterministic = true;
    options.memory = 64;
    options.words.push(format!("cut={}", arguments.join(";")));
    if test.debug {
        let kernel = project.binaries(Room::Probe, config).join("fermata-kernel");
        eprintln!(
            "fermata: the machine waits for a debugger:\n    gdb -ex 'target remote {}' {}",
            machine::DEBUGGER.trim_start_matches("tcp:"),
            kernel.display()
        );
    }
    let mut listener = Listener {
        prefix: &prefix,
        report,
        verbose: test.verbose,
        found: Found {
            part: !arguments.is_empty(),
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
/// Host time without a round that is through after which a machine is thought to hang.
const HANGS: Duration = Duration::from_secs(120);
/// Host time between two words about how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// Rounds of hostile callers from this seed on, a fixed number or for so long: how many there were.
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

/// Listens to rounds of hostile callers.
struct Rounds<'a> {
    prefix: &'a str,
    report: &'a Mutex<Report>,
    verbose: bool,
    start: Instant,
    /// When it has been long enough.
    end: Option<Instant>,
    /// When the last round was through.
    last: Instant,
    /// When it was last said how far it is.
    said: Instant,
    through: u64,
    failed: u64,
    /// The round that has begun.
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

/// What `./fermata test` does when nothing else is asked for: the plainest way, and pages that are
/// absent only all together.
const QUICK: &str = "ways=here;quick=1";

/// Listens to the program that cuts.
struct Listener<'a> {
    prefix: &'a str,
    report: &'a Mutex<Report>,
    verbose: bool,
    found: Found,
    done: bool,
    recent: String,
    /// The last test that was through.
    last: String,
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
                if !self.found.take(text) {
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
                        // There are a great many.
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

/// Prints the table of all calls, the sites that nobody has reached, and the sum.
pub(super) fn summary(root: &Path, all: &[(Config, Found)]) -> Result<(), Error> {
    let registry = Registry::read(root)?;
    let mut calls: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
    let mut order = Vec::new();
    let mut sites: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (_, found) in all {
        for (name, counts) in &found.calls {
            let sum = calls.entry(name).or_insert_with(|| {
                order.push(name.as_str());
                [0; 4]
            });
            sum[0] = sum[0].max(counts[0]);
            sum[1] = sum[1].max(counts[1]);
            sum[2] += counts[2];
            sum[3] += counts[3];
        }
        for (id, (times, longest)) in &found.sites {
            let site = sites.entry(*id).or_default();
            site.0 += times;
            site.1 = site.1.max(*longest);
        }
    }
    let part = all.iter().any(|(_, found)| found.part);
    let unreached = registry.without(sites.keys().copied());
    if !part {
        println!("\nsites that no play reaches:");
        for site in &unreached {
            println!("    {site}");
        }
    }
    for id in sites.keys().filter(|id| registry.find(**id).is_none()) {
        println!("    a site that the source does not have: {id:#x}");
    }
    println!("\nlongest stretches between progress and a site, in instructions:");
    let mut longest: Vec<(u64, u64)> = sites.iter().map(|(id, s)| (s.1, *id)).collect();
    longest.sort_unstable();
    for (stretch, id) in longest.iter().rev().take(12) {
        println!("    {stretch:6}  {}", registry.name(*id));
    }
    for (config, found) in all {
        println!(
            "stop and state of a thread, most instructions, {}: {}",
            config.name(),
            found.answer
        );
    }
    println!(
        "\n{:44} {:>6} {:>9} {:>8} {:>10}",
        "call", "sites", "distinct", "cuts", "mismatches"
    );
    let mut sum = [0; 4];
    for name in order {
        let counts = calls[name];
        println!(
            "{name:44} {:>6} {:>9} {:>8} {:>10}",
            counts[0], counts[1], counts[2], counts[3]
        );
        for (total, count) in sum.iter_mut().zip(counts) {
            *total += count;
        }
    }
    println!(
        "cuts {}, distinct {}, unreached {}",
        sum[2],
        sum[1],
        if part { 0 } else { unreached.len() }
    );

    Ok(())
}
