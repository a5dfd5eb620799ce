//! Real programs of Debian packages, saved at seeded instants, killed and restored.
//!
//! The command lines are those of `tests/packages/list`. The guest's program `cutter` runs each: once undisturbed,
//! and again with cuts, after each of which only the image is left of it. Its output, its status and the files that
//! it leaves must be the same. Then each is saved once more, on a disk: another machine with that disk continues it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{json, Value};

use crate::journal::{checkout, keep, kept};
use crate::packages::{list, named, Section};
use xtask_build::archive::Archive;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::{self, Images};
use xtask_build::packages::Packages;
use xtask_build::project::{temp_dir, Project};
use xtask_machine::control::Event;
use xtask_machine::signals;
use xtask_machine::{self as machine, End, Operator};

/// How often each command line is cut in one machine.
const CUTS: u64 = 8;
/// How often in the test suite.
const CUTS_IN_SUITE: u64 = 4;
/// Bytes of the disk that is passed from one machine to the other.
const DISK: u64 = 1 << 30;
/// Host time for a machine, in seconds: far more than it needs.
const LONG: u64 = 3600;
/// What the console shows before a command line.
const MARK: &str = "command line ";
/// Runs command line `$1` in a directory of `$2`, where the lines before it have left their files. The files that it
/// leaves become part of its output. Git repositories have names and times that differ in each run.
const RUNNER: &str = "\
export PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/ TERM=vt100
work=$2/work.$1
rm -rf $work; cp -a $2/base.$1 $work; cd $work || exit 1
sh /lines/$1 < /dev/null
status=$?
cd $work
find . -name .git -prune -o -type f -print | sort | xargs -r sha256sum
test -e $2/next.$1 || cp -a $work $2/next.$1
echo status $status
";

/// The results of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Came {
    /// How many checkpoints were made.
    cuts: u64,
    /// How many of them were continued in another machine.
    carried: u64,
    /// What its threads were doing at those instants, without numbers.
    states: BTreeSet<String>,
    /// What went wrong.
    failure: Option<String>,
}

/// The script of a machine that cuts these command lines.
fn cutting(lines: usize, seed: u64, cuts: u64) -> String {
    let mut script = String::from("mkdir /tmp/base.0\n");
    for number in 0..lines {
        let _ = writeln!(
            script,
            "echo {MARK}{number}\n/test/cutter seed={seed} cuts={cuts} any=1 verbose=1 linux /bin/sh /lines/run {number} /tmp\n\
             busybox tail -n 1 /tmp/cutter.plain\nbusybox rm -rf /tmp/work.{number} /tmp/base.{number}\nbusybox mv /tmp/next.{number} /tmp/base.{}",
            number + 1
        );
    }
    script
}

/// The script of a machine that leaves an image of each on its disk, with the output of the undisturbed command line.
fn leaving(lines: usize, seed: u64) -> String {
    let mut script = String::from("mkdir /disk/base.0\n");
    for number in 0..lines {
        let _ = writeln!(
            script,
            "echo {MARK}{number}\n/test/cutter seed={} any=1 leave=/disk/image.{number} out=/disk/out.{number} linux /bin/sh /lines/run {number} /disk\n\
             busybox mv /disk/next.{number} /disk/base.{}",
            // Each has an instant of its own, and files that no later line touches.
            seed * 1000 + number as u64,
            number + 1
        );
    }
    script.push_str("busybox sync\n");
    script
}

/// The script of the machine that continues them.
fn going_on(lines: &[bool]) -> String {
    let mut script = String::new();
    for (number, _) in lines.iter().enumerate().filter(|(_, is_left)| **is_left) {
        let _ = writeln!(
            script,
            "echo {MARK}{number}\nrestore /disk/image.{number}\nwait\n\
             busybox cmp /disk/out.{number} /disk/out.{number}.cut && echo as undisturbed || busybox diff /disk/out.{number} /disk/out.{number}.cut"
        );
    }
    script
}

/// The console's output for each command line.
fn parts(text: &str, lines: usize) -> Vec<Option<&str>> {
    let mut parts: Vec<Option<&str>> = vec![None; lines];
    for part in text.split(MARK).skip(1) {
        let (number, said) = part.split_once('\n').unwrap_or((part, ""));
        let number = number.trim().parse().ok();
        if let Some(slot) = number.and_then(|number: usize| parts.get_mut(number)) {
            *slot = Some(said);
        }
    }
    parts
}

/// The last lines of a text.
fn last(said: &str) -> String {
    let lines = said.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// Reads the console's output about cuts.
fn read(text: &str, lines: usize) -> Vec<Came> {
    let mut all = vec![Came::default(); lines];
    for (came, said) in all.iter_mut().zip(parts(text, lines)) {
        let Some(said) = said else {
            came.failure = Some("the machine ended before".into());
            continue;
        };
        for line in said.lines() {
            let line = line.trim_end();
            let kinds = ["user", "fault", "call"];
            if let Some(rest) = line.strip_prefix("note ") {
                let cuts = rest.split_once(" cuts within ");
                came.cuts += cuts.and_then(|(n, _)| n.parse::<u64>().ok()).unwrap_or(0);
            } else if kinds.iter().any(|kind| line.starts_with(kind)) {
                came.states.insert(state(line));
            }
        }
        // A missing program always does the same.
        let is_run = !["\nstatus 126\n", "\nstatus 127\n"]
            .iter()
            .any(|absent| said.contains(absent));
        if !said.contains(" bytes of output equal") || !said.contains("\nstatus ") || !is_run {
            came.failure = Some(last(said));
        }
    }
    all
}

/// What a thread was doing, without the numbers that differ from thread to thread; for a Linux call, its name.
fn state(words: &str) -> String {
    let mut plain: Vec<&str> = Vec::new();
    for word in words.split_whitespace() {
        let is_number = word.chars().any(|c| c.is_ascii_digit());
        let is_name = plain.last() == Some(&"Linux");
        plain.push(if is_number && !is_name { "N" } else { word });
    }
    plain.join(" ")
}

/// Keeps the console's output.
struct Shown(Vec<u8>);

impl Operator for Shown {
    fn console(&mut self, bytes: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        true
    }

    fn event(&mut self, _event: &Event) {}
}

/// Runs a machine with the packages and command lines of a section, and a script. Returns the console's output.
fn run_machine(
    (images, config): (&Images, Config),
    section: &Section,
    files: &Archive,
    script: String,
    disk: Option<&Path>,
) -> Result<String, Error> {
    let mut options = section.machine(config, files, RUNNER.into());
    options.memory = 1024 + u32::try_from(files.bytes() >> 19).unwrap_or(0);
    options.script = Some(script.into_bytes());
    options.disk = disk.map(Path::to_path_buf);
    options.disk_of_a_test = true;
    // So that a failure is repeatable. A disk works in its own time, for which a machine that counts instructions
    // would wait long.
    options.deterministic = disk.is_none();
    options.words.push("program-ceiling=31".into());
    options.timeout = Some(Duration::from_secs(LONG));
    let mut shown = Shown(Vec::new());
    let end = machine::run(images, &options, &mut shown)?;
    signals::check()?;
    let text = String::from_utf8_lossy(&shown.0).replace('\r', "");
    match end {
        End::Exit(_) => Ok(text),
        end => {
            let from = text.floor_char_boundary(text.len().saturating_sub(2000));
            Err(Error::new(format!(
                "the machine with {} ended as {end:?}:\n{}",
                section.packages.join(", "),
                &text[from..]
            )))
        }
    }
}

/// Cuts all command lines of a section in one machine, and has another machine continue each.
fn cut(
    project: &Project,
    machine: (&Images, Config),
    section: &Section,
    (seed, cuts): (u64, u64),
) -> Result<Vec<Came>, Error> {
    let files = Packages::get(project, &section.packages)?.unpacked()?;
    let count = section.lines.len();
    let text = run_machine(machine, section, &files, cutting(count, seed, cuts), None)?;
    let mut all = read(&text, count);

    let scratch = temp_dir()?;
    let disk = scratch.path().join("disk");
    machine::disk::make(&disk, DISK, None)?;
    let text = run_machine(machine, section, &files, leaving(count, seed), Some(&disk))?;
    let left = parts(&text, count);
    let is_left = |said: &Option<&str>| said.is_some_and(|said| said.contains("left in an image"));
    let lines: Vec<bool> = left.iter().map(is_left).collect();
    let then = run_machine(machine, section, &files, going_on(&lines), Some(&disk))?;
    let then = parts(&then, count);
    for (number, came) in all.iter_mut().enumerate() {
        let said = match (left[number], then[number]) {
            // The command line had ended before it could be saved.
            (Some(said), None) if said.trim().is_empty() => continue,
            (said, None) => said,
            (_, Some(said)) if said.contains("as undisturbed") => {
                came.cuts += 1;
                came.carried += 1;
                continue;
            }
            (_, said) => said,
        };
        let said = last(said.unwrap_or("the machine ended before"));
        let why = format!("on a disk for another machine: {said}");
        came.failure.get_or_insert(why);
    }
    Ok(all)
}

/// The sum of the results.
#[derive(Debug, Default)]
struct Found {
    cuts: u64,
    carried: u64,
    lines: BTreeSet<String>,
    states: BTreeMap<String, u64>,
    failures: Vec<String>,
}

impl Found {
    /// Adds the results of a section with this seed.
    fn add(&mut self, section: &Section, seed: u64, all: &[Came]) {
        for (line, came) in section.lines.iter().zip(all) {
            self.cuts += came.cuts;
            self.carried += came.carried;
            if came.cuts > 0 {
                self.lines.insert(line.command.clone());
            }
            for state in &came.states {
                *self.states.entry(state.clone()).or_default() += 1;
            }
            if let Some(why) = &came.failure {
                let command = &line.command;
                self.failures.push(format!(
                    "seed {seed}: {command}\n    {}",
                    why.replace('\n', "\n    ")
                ));
            }
        }
    }
}

/// The short sections, as a test. Returns how many checkpoints there were, how many of these were continued in
/// another machine, and how many command lines. An error says what went wrong.
pub(crate) fn short(
    project: &Project,
    machine: (&Images, Config),
) -> Result<(u64, u64, usize), String> {
    let mut found = Found::default();
    let sections = list(project).map_err(|error| error.message)?;
    for section in sections.iter().filter(|section| section.short) {
        let all = cut(project, machine, section, (1, CUTS_IN_SUITE));
        found.add(section, 1, &all.map_err(|error| error.message)?);
    }
    match found.failures.is_empty() {
        true => Ok((found.cuts, found.carried, found.lines.len())),
        false => Err(found.failures.join("\n")),
    }
}

/// The work of earlier calls, by seed and section. It is valid for the sources with which it was done.
struct Journal {
    file: PathBuf,
    sources: String,
    done: BTreeMap<String, Vec<Came>>,
}

impl Journal {
    fn open(project: &Project, fresh: bool) -> Result<Self, Error> {
        let file = project.target.join("checkpoints.json");
        let sources = format!("{:016x}", checkout(&project.root)?);
        let whole = kept(&file, &sources, fresh);
        let parts = whole["done"].as_object().into_iter().flatten();
        let done = parts
            .filter_map(|(name, all)| {
                let all = all.as_array()?.iter().map(came_of);
                Some((name.clone(), all.collect::<Option<Vec<_>>>()?))
            })
            .collect();
        Ok(Self {
            file,
            sources,
            done,
        })
    }

    fn add(&mut self, name: String, all: Vec<Came>) -> Result<(), Error> {
        self.done.insert(name, all);
        let done = self.done.iter().map(|(name, all)| {
            let all: Vec<Value> = all.iter().map(value_of).collect();
            (name.clone(), Value::from(all))
        });
        let done: serde_json::Map<String, Value> = done.collect();
        let whole = json!({ "sources": self.sources, "done": done });
        keep(&self.file, &whole)
    }
}

fn value_of(came: &Came) -> Value {
    json!({ "cuts": came.cuts, "carried": came.carried, "states": came.states, "failure": came.failure })
}

fn came_of(value: &Value) -> Option<Came> {
    let states = value["states"].as_array()?.iter();
    Some(Came {
        cuts: value["cuts"].as_u64()?,
        carried: value["carried"].as_u64()?,
        states: states
            .map(|state| Some(state.as_str()?.to_string()))
            .collect::<Option<_>>()?,
        failure: value["failure"].as_str().map(ToString::to_string),
    })
}

/// `./fermata prove --checkpoints`: makes at least `wanted` checkpoints, of the sections whose packages contain the
/// filter, with one seed after the other.
pub fn run(project: &Project, wanted: u64, filter: Option<&str>, fresh: bool) -> Result<u8, Error> {
    signals::catch();
    let images = image::build(project, &[Config::DEFAULT])?;
    let name = |section: &Section| section.packages.join(", ");
    let sections = named(list(project)?, filter)?;
    let mut journal = Journal::open(project, fresh)?;
    let mut found = Found::default();
    'all: for seed in 1.. {
        let before = found.cuts;
        for section in &sections {
            if found.cuts >= wanted || signals::caught().is_some() {
                break 'all;
            }
            let key = format!("{seed}/{}", name(section));
            let all = match journal.done.get(&key) {
                Some(all) if all.len() == section.lines.len() => all.clone(),
                _ => {
                    eprintln!(
                        "fermata: {} of {wanted} checkpoints; seed {seed}, {} command lines with {}",
                        found.cuts,
                        section.lines.len(),
                        name(section)
                    );
                    let machine = (&images, Config::DEFAULT);
                    let all = cut(project, machine, section, (seed, CUTS))?;
                    journal.add(key, all.clone())?;
                    all
                }
            };
            let failures = found.failures.len();
            found.add(section, seed, &all);
            for failure in &found.failures[failures..] {
                println!("{failure}");
            }
        }
        if found.cuts == before {
            return Err(Error::new("no checkpoint could be made"));
        }
    }
    for (state, times) in &found.states {
        println!("{times:6}  {state}");
    }
    println!(
        "{} checkpoints of {} command lines, {} of them restored in another machine, threads in {} states, {} failures",
        found.cuts,
        found.lines.len(),
        found.carried,
        found.states.len(),
        found.failures.len()
    );
    Ok(u8::from(!found.failures.is_empty() || found.cuts < wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_console_shows_is_read() {
        let text = "command line 0\ncall: Linux 3 on 3\nuser code at 0x10\ncall: Linux 3 on 4\n\
            note 2 cuts within 7 us, seed 1: threads 1 in user code, 0 in faults, 2 in calls\nnote 5 bytes of output equal\nstatus 3\n\
            command line 1\nnote 1 cuts within 9 us, seed 1: x\nthe output differs: 1 and 2 bytes\n\
            command line 2\nnote 2 bytes of output equal\nstatus 127\n";
        let all = read(text, 4);
        assert_eq!((all[0].cuts, all[0].failure.as_ref()), (2, None));
        let states: Vec<&str> = all[0].states.iter().map(String::as_str).collect();
        assert_eq!(states, ["call: Linux 3 on N", "user code at N"]);
        let why = all[1].failure.as_ref().expect("it failed");
        assert!(all[1].cuts == 1 && why.ends_with("the output differs: 1 and 2 bytes"));
        assert!(all[2].failure.is_some() && all[3].failure.is_some());
        for came in &all {
            assert_eq!(came_of(&value_of(came)).as_ref(), Some(came));
        }
    }
}
