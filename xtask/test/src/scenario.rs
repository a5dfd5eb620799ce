//! The vocabulary of the scenarios in `tests/scenarios`: machines that run a script, with files put in and taken out,
//! and the results.
//!
//! A scenario is a function and a name in `tests/scenarios/mod.rs`. It fails by returning an error
//! or by panicking, so `assert!` may be used.

#![allow(
    dead_code,
    reason = "a vocabulary: scenarios use the words that they need"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::Images;
use xtask_build::linux::Program;
use xtask_build::project::Project;
use xtask_machine::control::Event;
use xtask_machine::net::Net;
use xtask_machine::place::Place;
use xtask_machine::rng::Rng;
use xtask_machine::{self as machine, Add, End, Operator, Options, Typed};

use crate::checkpoints;
use crate::packages;

/// Host time after which a machine of a scenario is stopped unless the scenario sets another limit. It is only for
/// machines that hang: no machine that makes progress takes as long, on any host, and slowness is found by counting
/// instructions.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3600);
/// The line of a program of the guest that asks for the console to be read, where it was not read before.
const READ: &str = "the console is to be read";

/// The line of a machine that stays, when its script has ended.
const THROUGH: &str = "the script is through\n";
/// What its script does then: it waits until it may end, and ends with its status.
const STAYS: &str = "\nstatus=$?\necho the script is through\ncat > /dev/null\n(exit $status)\n";
/// The end of the console's input.
const END_OF_INPUT: u8 = 4;

/// Why a scenario failed.
pub type Failure = String;

/// A test that runs whole machines.
pub struct Scenario {
    /// Its name, unique, in words with underscores.
    pub name: &'static str,
    /// Runs it in a configuration.
    pub run: fn(&mut Ctx) -> Result<(), Failure>,
    /// If it is not run at present: why.
    pub ignored: Option<&'static str>,
    /// Whether it runs in only one of the tested models, in turn with others, and with `--all` in one model for each
    /// way to be preempted: it is about programs and servers, whatever the kernel's model.
    pub once: bool,
    /// When it is run with all servers and drivers in the kernel.
    pub placed: When,
}

/// When a scenario runs with all servers and drivers in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// With `--all`, or if the filter asks for it.
    Rarely,
    /// Whenever it runs, in one of the configurations.
    Daily,
    /// Never: it places servers itself.
    Itself,
}

/// The context of a scenario: the images, the configuration, and where its output goes.
pub struct Ctx<'a> {
    images: &'a Images,
    config: Config,
    places: Vec<Place>,
    notes: Vec<String>,
    /// What was left out because this host lacks something.
    left_out: Vec<String>,
    /// The output of the machines so far, shown when the scenario fails.
    transcript: Vec<u8>,
}

/// The results of a machine.
#[derive(Debug)]
pub struct Output {
    /// The console.
    pub stdout: Vec<u8>,
    /// The kernel's log and, after a panic, its message.
    pub stderr: String,
    /// The exit status of `./fermata run`.
    pub status: u8,
    /// How many instructions a machine that counts them executed, from its last line. That line is not in `stdout`,
    /// so that tests expect the same console output from machines that count and others.
    pub instructions: Option<u64>,
    /// The files that were copied out, by path in the guest; files that did not exist are missing.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Output {
    /// The console as text, as a terminal shows it: a line that reports progress may have been there or not,
    /// depending on how long something took, and is replaced by what follows it.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.stdout);
        text.split_inclusive('\n').map(shown).collect()
    }

    /// A file that was copied out.
    pub fn file(&self, path: &str) -> Result<&[u8], Failure> {
        self.files
            .get(path)
            .map(|content| &content[..])
            .ok_or_else(|| format!("{path} was not there"))
    }

    /// Fails unless the machine ended with `status`.
    pub fn expect_status(&self, status: u8) -> Result<&Self, Failure> {
        if self.status == status {
            return Ok(self);
        }
        Err(format!(
            "status {} instead of {status}; console:\n{}\nlog:\n{}",
            self.status,
            self.text(),
            self.stderr
        ))
    }

    /// Fails unless the console holds exactly `text`.
    pub fn expect_stdout(&self, text: &str) -> Result<&Self, Failure> {
        if self.text() == text {
            return Ok(self);
        }
        Err(format!(
            "the console holds\n{}\ninstead of\n{text}\nlog:\n{}",
            self.text(),
            self.stderr
        ))
    }
}

/// A line as a terminal shows it in the end: text behind a carriage return overwrites the text before it.
fn shown(line: &str) -> String {
    if !line.contains('\r') {
        return line.to_string();
    }
    let (body, end) = line
        .strip_suffix('\n')
        .map_or((line, ""), |body| (body, "\n"));
    let mut stands: Vec<char> = Vec::new();
    for part in body.split('\r') {
        let len = part.chars().count().min(stands.len());
        stands.splice(..len, part.chars());
    }
    let stands: String = stands.into_iter().collect();
    format!("{}{end}", stands.trim_end_matches(' '))
}

/// A machine to be run.
#[must_use]
pub struct Run {
    options: Options,
    typed: Vec<(String, Vec<u8>)>,
    unread: bool,
    stays: bool,
}

/// Which of two machines have ended their scripts, or are off.
#[derive(Default)]
struct Through([AtomicBool; 2]);

impl Run {
    /// A machine whose shell runs `script`, one command per line.
    pub fn script(script: impl Into<String>) -> Self {
        let mut run = Self::interactive();
        run.options.script = Some(script.into().into_bytes());
        run
    }

    /// The same with another script.
    pub fn with_script(mut self, script: impl Into<String>) -> Self {
        self.options.script = Some(script.into().into_bytes());
        self
    }

    /// A machine whose shell reads the console.
    pub fn interactive() -> Self {
        let mut options = Options::new(Config::DEFAULT);
        options.timeout = Some(TIMEOUT);
        Self {
            options,
            typed: Vec::new(),
            unread: false,
            stays: false,
        }
    }

    /// For one of two machines: it stays on until the other machine's script has ended, too. A machine that is off
    /// cannot repeat what was lost on the wire, and the other machine would wait for its last answer.
    pub fn stays(mut self) -> Self {
        self.stays = true;
        self
    }

    /// With a file of this content at `guest`.
    pub fn add(mut self, guest: &str, content: impl Into<Vec<u8>>) -> Self {
        self.options
            .adds
            .push(Add::bytes(content.into(), false, guest));
        self
    }

    /// With a program at `guest`.
    pub fn add_program(mut self, guest: &str, elf: impl Into<Vec<u8>>) -> Self {
        self.options.adds.push(Add::bytes(elf.into(), true, guest));
        self
    }

    /// Copies `guest` out when the machine stops.
    pub fn get(mut self, guest: &str) -> Self {
        self.options.gets.push(guest.into());
        self
    }

    /// Types `keys` once the console shows `marker`, after the keys of earlier calls. An empty marker means at once.
    pub fn type_after(mut self, marker: &str, keys: &str) -> Self {
        self.typed.push((marker.into(), keys.as_bytes().to_vec()));
        self
    }

    /// Does not read its console, which soon is full, until a program asks for that (`trust /test/hostile tell`).
    pub fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// With this file of the host as its disk. What the machine has flushed is in the file, even if the machine is
    /// killed, but perhaps not on the host's disk.
    pub fn disk(mut self, file: &std::path::Path) -> Self {
        self.options.disk = Some(file.into());
        self.options.disk_of_a_test = true;
        self
    }

    /// Reads of one sector of its disk fail, and the first write of another.
    pub fn bad_sectors(mut self, read: u64, write: u64) -> Self {
        self.options.bad_sectors = Some((read, write));
        self
    }

    /// With this network.
    pub fn net(mut self, net: Net) -> Self {
        self.options.net = net;
        self
    }

    /// With a device of random numbers from this source.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.options.rng = rng;
        self
    }

    /// With that device at this place on the bus.
    pub fn rng_at(mut self, address: u8) -> Self {
        self.options.rng_address = Some(address);
        self
    }

    /// With a processor that has no random numbers.
    pub fn without_rdrand(mut self) -> Self {
        self.options.rdrand = false;
        self
    }

    /// With this driver of Linux, if any.
    pub fn driver(mut self, driver: Option<Program>) -> Self {
        self.options.driver = driver;
        self
    }

    /// Writes what its sound card plays to this file of the host.
    pub fn sound(mut self, file: &std::path::Path) -> Self {
        self.options.sound = Some(file.into());
        self
    }

    /// With a debugger's server at this port of the host's loopback.
    pub fn gdb(mut self, port: u16) -> Self {
        self.options.gdb = Some(port);
        self
    }

    /// Writes all frames of its network to this file of the host.
    pub fn pcap(mut self, file: &std::path::Path) -> Self {
        self.options.pcap = Some(file.into());
        self
    }

    /// With two of QEMU's `edu` devices.
    pub fn edu(mut self) -> Self {
        self.options.edu = true;
        self
    }

    /// With two of QEMU's `edu` devices that share a line.
    pub fn edu_shared(mut self) -> Self {
        self.options.edu_shared = true;
        self.edu()
    }

    /// With this file of the host as its memory.
    pub fn memory_file(mut self, file: &std::path::Path) -> Self {
        self.options.memory_file = Some(file.into());
        self
    }

    /// With this much memory.
    pub fn memory(mut self, megabytes: u32) -> Self {
        self.options.memory = megabytes;
        self
    }

    /// Stops after so many seconds of host time, with status 124. (The default is an hour.)
    pub fn timeout(mut self, seconds: u64) -> Self {
        self.options.timeout = Some(Duration::from_secs(seconds));
        self
    }

    /// Counts instructions instead of time. Nothing can be typed.
    pub fn deterministic(mut self) -> Self {
        self.options.deterministic = true;
        self
    }

    /// With servers in these places, in the form of `--place`.
    pub fn place(mut self, places: &str) -> Self {
        let places = places
            .split(',')
            .map(|place| place.parse().expect("a place"));
        self.options.places = places.collect();
        self
    }

    /// With one more word on the kernel's command line.
    pub fn word(mut self, word: &str) -> Self {
        self.options.words.push(word.into());
        self
    }
}

impl<'a> Ctx<'a> {
    /// The context of a scenario on `config`.
    pub fn new(images: &'a Images, config: Config) -> Self {
        Self {
            images,
            config,
            places: Vec::new(),
            notes: Vec::new(),
            left_out: Vec::new(),
            transcript: Vec::new(),
        }
    }

    /// With servers in these places, unless a machine places them itself.
    #[must_use]
    pub fn placed(mut self, places: &[Place]) -> Self {
        self.places = places.to_vec();
        self
    }

    /// The configuration of this run of the scenario.
    pub fn config(&self) -> &'static str {
        self.config.name()
    }

    /// Compares the command lines of the short sections of `tests/packages/list` with the host. Left out if the host
    /// lacks what the comparison needs.
    pub fn packages(&mut self) -> Result<(), Failure> {
        self.packages_unless(packages::without_reference())
    }

    /// The same, on a host that lacks `missing`.
    pub(crate) fn packages_unless(&mut self, missing: Option<&str>) -> Result<(), Failure> {
        let project = Project::find().map_err(|error| error.message)?;
        if let Some(why) = missing {
            self.leave_out(why);
            return Ok(());
        }
        let count = packages::short(&project, (self.images, self.config))?;
        self.note(format!(
            "{count} command lines of packages are as on the host"
        ));
        Ok(())
    }

    /// Saves, kills and restores the command lines of the short sections of `tests/packages/list`. Left out if
    /// packages cannot be fetched; everything runs in machines, so that no chroot is needed.
    pub fn checkpoints_of_packages(&mut self) -> Result<(), Failure> {
        self.checkpoints_of_packages_unless(packages::without_apt())
    }

    /// The same, on a host that lacks `missing`.
    pub(crate) fn checkpoints_of_packages_unless(
        &mut self,
        missing: Option<&str>,
    ) -> Result<(), Failure> {
        let project = Project::find().map_err(|error| error.message)?;
        if let Some(why) = missing {
            self.leave_out(why);
            return Ok(());
        }
        let (cuts, carried, lines) = checkpoints::short(&project, (self.images, self.config))?;
        if lines < 10 || cuts < 2 * lines as u64 || carried < lines as u64 / 2 {
            return Err(format!(
                "only {cuts} checkpoints of {lines} command lines, {carried} in another machine"
            ));
        }
        self.note(format!(
            "{cuts} checkpoints of {lines} command lines of packages, {carried} in another machine"
        ));
        Ok(())
    }

    /// Adds a line to the result of the test: counts, seeds.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Records that the test, or a part of it, was left out because the host lacks something: it counts as ignored,
    /// not as passed.
    pub fn leave_out(&mut self, why: impl Into<String>) {
        self.left_out.push(why.into());
    }

    /// Runs a machine to its end. Fails only if it could not be started.
    pub fn run(&mut self, run: Run) -> Result<Output, Failure> {
        let output = self.run_apart(run, None)?;
        self.show(&output);
        Ok(output)
    }

    /// Runs two machines at the same time.
    pub fn run_both(&mut self, first: Run, second: Run) -> Result<[Output; 2], Failure> {
        let through = &Through::default();
        let outputs = std::thread::scope(|scope| {
            let this = &*self;
            let second = scope.spawn(move || this.run_apart(second, Some((through, 1))));
            let first = this.run_apart(first, Some((through, 0)));
            let second = second.join().map_err(|_| "a machine panicked xtask")?;
            Ok::<_, Failure>([first?, second?])
        })?;
        for output in &outputs {
            self.show(output);
        }
        Ok(outputs)
    }

    /// Keeps the output of a machine, for a failure of the scenario.
    fn show(&mut self, output: &Output) {
        self.transcript.extend_from_slice(&output.stdout);
        self.transcript.extend_from_slice(output.stderr.as_bytes());
    }

    /// Runs a machine; `stays` says which of two machines it is.
    fn run_apart(
        &self,
        mut run: Run,
        of_two: Option<(&Through, usize)>,
    ) -> Result<Output, Failure> {
        run.options.config = self.config;
        let stays = of_two.filter(|_| run.stays);
        if let (Some(_), Some(script)) = (stays, &mut run.options.script) {
            script.extend_from_slice(STAYS.as_bytes());
        }
        if run.options.places.is_empty() {
            run.options.places.clone_from(&self.places);
        }
        let mut typist = Typist {
            shown: Vec::new(),
            seen: 0,
            typed: run.typed,
            unread: run.unread,
            stays,
            log: String::new(),
            files: BTreeMap::new(),
        };
        let end = machine::run(self.images, &run.options, &mut typist);
        let other = of_two.map(|(through, which)| {
            through.0[which].store(true, Ordering::Relaxed);
            through.0[1 - which].load(Ordering::Relaxed)
        });
        let end = end.map_err(|Error { message, .. }| message)?;
        if let Some(at) = stays.and_then(|_| find(&typist.shown, THROUGH)) {
            typist.shown.drain(at..at + THROUGH.len());
        }
        let counts = run.options.deterministic;
        let instructions = counts.then(|| take_count(&mut typist.shown)).flatten();
        let mut stderr = typist.log;
        match &end {
            End::Broken(lines) => stderr.push_str(&lines.join("\n")),
            End::TimedOut => stderr.push_str(match other {
                None => "the time is up",
                Some(false) => "the time is up; the other machine is not through either",
                Some(true) => "the time is up; the other machine is through",
            }),
            End::Exit(_) | End::Stopped(_) => {}
        }
        Ok(Output {
            stdout: typist.shown,
            stderr,
            status: end.status(),
            instructions,
            files: typist.files,
        })
    }

    /// The result of the scenario: notes, what was left out, and the output of all machines.
    pub fn finish(self) -> Finished {
        Finished {
            notes: self.notes,
            left_out: self.left_out,
            transcript: String::from_utf8_lossy(&self.transcript).into_owned(),
        }
    }
}

/// The result of a [`Ctx`].
pub struct Finished {
    /// Counts, seeds.
    pub notes: Vec<String>,
    /// What was left out because this host lacks something; a test with any of it has not passed.
    pub left_out: Vec<String>,
    /// The output of all machines.
    pub transcript: String,
}

/// The position of a text in the output.
fn find(shown: &[u8], text: &str) -> Option<usize> {
    if text.is_empty() {
        return Some(0);
    }
    let mut places = shown.windows(text.len());
    places.position(|window| window == text.as_bytes())
}

/// Removes the last line, with the number of executed instructions, from the output. Returns the number.
fn take_count(shown: &mut Vec<u8>) -> Option<u64> {
    const SAYS: &str = "instructions: ";
    let mut ends = shown.windows(SAYS.len()).enumerate().rev();
    let (at, _) = ends.find(|(_, window)| *window == SAYS.as_bytes())?;
    let rest = shown.get(at + SAYS.len()..)?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let count = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    if rest[digits] != b'\n' {
        return None;
    }
    shown.drain(at..at + SAYS.len() + digits + 1);
    Some(count)
}

/// Types the scenario's keys, and keeps the machine's output.
struct Typist<'a> {
    shown: Vec<u8>,
    /// How much of `shown` earlier markers have used up.
    seen: usize,
    typed: Vec<(String, Vec<u8>)>,
    unread: bool,
    /// Which of two machines this is; it stays until both scripts have ended.
    stays: Option<(&'a Through, usize)>,
    log: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl Operator for Typist<'_> {
    fn console(&mut self, bytes: &[u8]) -> bool {
        self.shown.extend_from_slice(bytes);
        true
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Log(text) | Event::Unknown(text) => {
                self.unread &= text != READ;
                self.log.push_str(text);
                self.log.push('\n');
            }
            Event::File { path, content } => {
                self.files.insert(path.clone(), content.clone());
            }
            _ => {}
        }
    }

    fn reads(&self) -> bool {
        !self.unread
    }

    fn typed(&mut self) -> Typed {
        if let Some((Through(through), which)) = self.stays {
            if find(&self.shown, THROUGH).is_some() {
                through[which].store(true, Ordering::Relaxed);
            }
            if through
                .iter()
                .all(|through| through.load(Ordering::Relaxed))
            {
                self.stays = None;
                return Typed::Bytes(vec![END_OF_INPUT]);
            }
        }
        let Some((marker, keys)) = self.typed.first() else {
            return Typed::Bytes(Vec::new());
        };
        let found = find(&self.shown[self.seen..], marker);
        let Some(at) = found else {
            return Typed::Bytes(Vec::new());
        };
        self.seen += at + marker.len();
        let keys = keys.clone();
        self.typed.remove(0);
        Typed::Bytes(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::{shown, take_count};

    #[test]
    fn a_count_of_instructions_is_taken_out() {
        let mut seen = b"instructions: 1\nno endinstructions: 4711\nbehind\n".to_vec();
        assert_eq!(take_count(&mut seen), Some(4711));
        assert_eq!(seen, b"instructions: 1\nno endbehind\n");
        for other in [
            "",
            "instructions: ",
            "instructions: 12",
            "instructions: many\n",
        ] {
            let mut seen = other.as_bytes().to_vec();
            assert_eq!(take_count(&mut seen), None);
            assert_eq!(seen, other.as_bytes());
        }
    }

    #[test]
    fn a_line_that_is_written_over_is_shown_as_it_stands_in_the_end() {
        let progress = "\rcheckpoint: 8 of 10 MB\r                      \r6000000\n";
        assert_eq!(shown(progress), "6000000\n");
        assert_eq!(
            shown("\rcheckpoint: 8 of 10 MB\r                      \r"),
            ""
        );
        assert_eq!(shown("one and two\rONE\r\n"), "ONE and two\n");
        assert_eq!(shown("as it was  \n"), "as it was  \n");
    }
}
