//! The boots that measure: which programs each runs, what is counted, and how their reports are read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::Images;
use xtask_build::project::temp_dir;
use xtask_machine::control::Event;
use xtask_machine::place::Place;
use xtask_machine::{self as machine, Add, End, Operator, Options, Plugin};

/// Host time after which a machine is stopped.
const TIMEOUT: Duration = Duration::from_secs(900);
/// The file that the Linux program works on.
const INPUT: &str = "/bench/input";

/// What is measured while a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Host time; the machine's clock is the host's.
    HostTime,
    /// The machine's clock, which is the number of its instructions.
    Instructions,
    /// Instructions, loads and stores, by the plugin.
    Counts,
    /// The same, and the events that the counting kernel reports.
    Events,
    /// The same as [`Look::Counts`], by the address of the instruction.
    Profile,
}

/// A boot that measures.
#[derive(Clone, Debug)]
pub(super) struct Boot {
    /// For progress: what is measured.
    pub(super) what: &'static str,
    /// Programs of `benches/`, in the order in which they run.
    pub(super) programs: &'static [&'static str],
    /// What is measured.
    pub(super) look: Look,
    /// In megabytes.
    memory: u32,
    /// Percent of the kernel's memory that a program may use.
    quota: u32,
    /// Where servers run.
    places: &'static [Place],
    /// The programs themselves run in the kernel.
    collocated: bool,
}

const fn boot(what: &'static str, programs: &'static [&'static str], look: Look) -> Boot {
    Boot {
        what,
        programs,
        look,
        memory: 512,
        // So much because the programs create many objects.
        quota: 10,
        places: &[],
        collocated: false,
    }
}

const FLUKEPERF: &[&str] = &["flukeperf"];
const ALL: &[&str] = &[
    "flukeperf",
    "memtest",
    "linux_program",
    "linux_calls",
    "save_restore",
];

/// Counts of all programs.
pub(super) const COUNTS: Boot = boot("counts", ALL, Look::Counts);
/// The same by function.
pub(super) const PROFILE: Boot = boot(
    "profile",
    &[
        "flukeperf",
        "memtest",
        "linux_program",
        "linux_calls",
        "save_restore",
        "restart",
    ],
    Look::Profile,
);
/// The same in host time.
pub(super) const HOST_TIME: Boot = boot("host time", ALL, Look::HostTime);
/// The small operations alone, without a plugin.
pub(super) const SMALL: Boot = boot("counts", FLUKEPERF, Look::Instructions);
/// What servers do for a program, without a plugin.
pub(super) const SERVICES: Boot = boot(
    "calls of Linux, checkpoints",
    &["linux_calls", "save_restore"],
    Look::Instructions,
);
/// The small operations of a program that is collocated.
pub(super) const COLLOCATED: Boot = Boot {
    collocated: true,
    ..boot("collocated", &["collocated"], Look::Instructions)
};
/// Instructions by part of some operations.
pub(super) const PARTS: Boot = boot("parts of an RPC", FLUKEPERF, Look::Profile);
/// What the kernel does with threads that block, by the events of a counting kernel.
pub(super) const BLOCKS: Boot = boot("blocked threads", ALL, Look::Events);
/// What restarts cost.
pub(super) const RESTARTS: Boot = boot("restarts", &["restart"], Look::Events);
/// How late a thread of the highest priority runs.
pub(super) const LATENCY: Boot = boot("latency", &["latency"], Look::Instructions);
/// How long it takes to stop a thread and to read its state.
pub(super) const PROMPTNESS: Boot = boot("promptness", &["promptness"], Look::Instructions);
/// The longest stretches without a look at interrupts.
pub(super) const STRETCHES: Boot = Boot {
    quota: 40,
    ..boot("longest stretches", &["stretch"], Look::Instructions)
};
/// Kernel memory of 10,000 threads, which may have stacks: the machine has the most kernel memory
/// that there can be.
pub(super) const THREADS: Boot = Boot {
    memory: 2048,
    quota: 92,
    ..boot("kernel memory of threads", &["threads"], Look::Instructions)
};

/// A line about one benchmark from a program of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// So many operations took so long.
    Sample {
        name: String,
        unit: String,
        operations: u64,
        ticks: u64,
        nanoseconds: u64,
    },
    /// A value that is no duration.
    Value {
        name: String,
        unit: String,
        value: u64,
        count: u64,
    },
    /// The benchmark failed, for this reason.
    Failed { name: String, why: String },
}

impl Line {
    /// Reads a line of the control channel: the line, and how many stretches were marked for it.
    fn parse(text: &str) -> Option<(Self, usize)> {
        let (word, rest) = text.split_once(' ')?;
        let words: Vec<&str> = rest.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let name = words.first()?.to_string();
        match word {
            "bench" => Some((
                Line::Sample {
                    name,
                    unit: words.get(1)?.to_string(),
                    operations: number(2).filter(|n| *n > 0)?,
                    ticks: number(3)?,
                    nanoseconds: number(4)?,
                },
                number(5)? as usize,
            )),
            "bench-value" => Some((
                Line::Value {
                    name,
                    unit: words.get(1)?.to_string(),
                    value: number(2)?,
                    count: number(3)?,
                },
                number(4)? as usize,
            )),
            "bench-failed" => Some((
                Line::Failed {
                    name,
                    why: words.get(2..)?.join(" "),
                },
                number(1)? as usize,
            )),
            _ => None,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Line::Sample { name, .. } | Line::Value { name, .. } | Line::Failed { name, .. } => {
                name
            }
        }
    }
}

/// What the plugin counted in a stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Instructions, loads and stores.
    pub(super) counts: [u64; 3],
    /// For each event how often it came, and the sum of its times.
    pub(super) events: BTreeMap<u8, [u64; 2]>,
    /// For each address instructions, loads and stores.
    pub(super) profile: Vec<(u64, [u64; 3])>,
}

/// What a machine measured: each line, and what the plugin counted in its stretch.
pub(super) type Session = Vec<(Line, Option<Stretch>)>;

/// Collects the lines of a machine that measures.
struct Listener<'a> {
    /// Each line, and the number of its stretch in the order of the boot.
    lines: Vec<(Line, Option<usize>)>,
    stretches: usize,
    recent: String,
    progress: &'a mut dyn FnMut(&Line),
}

impl Operator for Listener<'_> {
    fn console(&mut self, bytes: &[u8]) -> bool {
        self.recent.push_str(&String::from_utf8_lossy(bytes));
        true
    }

    fn event(&mut self, event: &Event) {
        if let Event::Unknown(text) = event {
            if let Some((line, marks)) = Line::parse(text) {
                (self.progress)(&line);
                self.stretches += marks;
                // Of several passes the last is used.
                let stretch = (marks > 0).then(|| self.stretches - 1);
                self.lines.push((line, stretch));
            }
        }
    }
}

/// The files that the plugin writes.
struct Outputs {
    counts: PathBuf,
    events: PathBuf,
    profile: PathBuf,
}

impl Boot {
    /// The same boot, with servers in these places. Called once or twice in the life of the tool.
    pub(super) fn placed(&self, places: &[Place]) -> Boot {
        Boot {
            places: places.to_vec().leak(),
            ..self.clone()
        }
    }

    /// The same boot, where something else is measured.
    pub(super) fn looked_at(&self, look: Look) -> Boot {
        Boot {
            look,
            ..self.clone()
        }
    }

    /// Runs the machine to its end. The filter goes to the programs: parts of names, separated by commas.
    pub(super) fn run(
        &self,
        images: &Images,
        config: Config,
        filter: &str,
        library: &Path,
        progress: &mut dyn FnMut(&Line),
    ) -> Result<Session, Error> {
        let mut script = String::new();
        for program in self.programs {
            script.push_str(&format!("trust /bench/{program} {filter}\n"));
        }
        script.push_str("exit 0\n");
        let mut options = Options::new(config);
        options.places = self.places.to_vec();
        for program in self.programs.iter().filter(|_| self.collocated) {
            let place = Place::program(&format!("/bench/{program}"), true).map_err(Error::new)?;
            options.places.push(place);
        }
        options.script = Some(script.into_bytes());
        options.memory = self.memory;
        options.words.push(format!("program-quota={}", self.quota));
        options.words.push("program-ceiling=31".into());
        if self.programs.contains(&"linux_program") {
            options.adds.push(Add::bytes(lines(), false, INPUT));
        }
        session(images, options, self.look, library, config.name(), progress)
    }
}

/// Runs a machine to its end, measured by the plugin in `library`. `name` is for messages.
pub(super) fn session(
    images: &Images,
    mut options: Options,
    look: Look,
    library: &Path,
    name: &str,
    progress: &mut dyn FnMut(&Line),
) -> Result<Session, Error> {
    let directory = temp_dir()?;
    let outputs = Outputs {
        counts: directory.path().join("counts"),
        events: directory.path().join("events"),
        profile: directory.path().join("profile"),
    };
    options.timeout = Some(TIMEOUT);
    options.deterministic = look != Look::HostTime;
    options.counting = look == Look::Events;
    if matches!(look, Look::Counts | Look::Events | Look::Profile) {
        let wanted = |which, path: &PathBuf| (look == which).then(|| path.clone());
        options.plugin = Some(Plugin {
            library: library.to_path_buf(),
            output: Some(outputs.counts.clone()),
            events: wanted(Look::Events, &outputs.events),
            profile: wanted(Look::Profile, &outputs.profile),
            switches: None,
            time: None,
        });
    }
    let mut listener = Listener {
        lines: Vec::new(),
        stretches: 0,
        recent: String::new(),
        progress,
    };
    let end = machine::run(images, &options, &mut listener)?;
    let (lines, recent) = (listener.lines, listener.recent);
    // The programs print nothing: any output is from the shell, or about a fault.
    let mut said = recent
        .lines()
        .filter(|line| !line.starts_with("instructions: "));
    match end {
        End::Exit(0) => match said.next() {
            None => {
                let stretches = outputs.stretches();
                let stretch = |n: Option<usize>| stretches.get(n?).cloned();
                Ok(lines
                    .into_iter()
                    .map(|(line, n)| (line, stretch(n)))
                    .collect())
            }
            Some(_) => Err(Error::new(format!("the machine of {name} says\n{recent}"))),
        },
        End::Exit(_) | End::TimedOut | End::Broken(_) => {
            let why = match &end {
                End::TimedOut => format!("was not done after {} s", TIMEOUT.as_secs()),
                End::Broken(lines) => lines.join("\n"),
                other => format!("ended with status {}", other.status()),
            };
            Err(Error::new(format!("the machine of {name} {why}\n{recent}")))
        }
        End::Stopped(status) => Err(Error {
            message: "interrupted".into(),
            status,
        }),
    }
}

impl Outputs {
    /// The contents of the files, in the order of the stretches.
    fn stretches(&self) -> Vec<Stretch> {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let (events, profile) = (read(&self.events), read(&self.profile));
        let mut events = events.split("stretch\n").skip(1);
        let mut profile = profile.split("stretch\n").skip(1);
        read(&self.counts)
            .lines()
            .filter_map(|line| {
                Some(Stretch {
                    counts: numbers(line)?,
                    events: events
                        .next()
                        .unwrap_or_default()
                        .lines()
                        .filter_map(|line| {
                            let (event, rest) = line.split_once(' ')?;
                            Some((event.parse().ok()?, numbers(rest)?))
                        })
                        .collect(),
                    profile: profile
                        .next()
                        .unwrap_or_default()
                        .lines()
                        .filter_map(|line| {
                            let (address, rest) = line.split_once(' ')?;
                            let address = u64::from_str_radix(address, 16).ok()?;
                            Some((address, numbers(rest)?))
                        })
                        .collect(),
                })
            })
            .collect()
    }
}

/// Reads `N` numbers with spaces between them.
pub(super) fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let mut all = [0; N];
    let mut words = text.split(' ');
    for number in &mut all {
        *number = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some(all)
}

/// The file that the Linux program works on: 1 MB of lines in no order, always the same.
fn lines() -> Vec<u8> {
    const SIZE: usize = 1 << 20;
    let mut random = fastrand::Rng::with_seed(1);
    let mut text = Vec::with_capacity(SIZE);
    while text.len() < SIZE {
        text.extend_from_slice(format!("{:016x} line\n", random.u64(..)).as_bytes());
    }
    text.truncate(SIZE - 1);
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_guest_are_understood() {
        assert_eq!(
            Line::parse("bench rpc_0 rpc 2000 481000 481100 2"),
            Some((
                Line::Sample {
                    name: "rpc_0".into(),
                    unit: "rpc".into(),
                    operations: 2000,
                    ticks: 481_000,
                    nanoseconds: 481_100
                },
                2
            ))
        );
        assert_eq!(
            Line::parse("bench-value a bytes 300 256 4"),
            Some((
                Line::Value {
                    name: "a".into(),
                    unit: "bytes".into(),
                    value: 300,
                    count: 256
                },
                4
            ))
        );
        assert_eq!(
            Line::parse("bench-failed a 1 not done"),
            Some((
                Line::Failed {
                    name: "a".into(),
                    why: "not done".into()
                },
                1
            ))
        );
        for nonsense in [
            "bench",
            "bench a",
            "bench a b 0 1 1 1",
            "note a b",
            "bench-value a b c d e",
        ] {
            assert_eq!(Line::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_input_is_always_the_same() {
        let text = lines();
        assert_eq!(text.len(), 1 << 20);
        assert_eq!(text.last(), Some(&b'\n'));
        assert_eq!(text, lines());
    }

    #[test]
    fn what_the_plugin_writes_is_understood() {
        let directory = temp_dir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let outputs = Outputs {
            counts: path("counts"),
            events: path("events"),
            profile: path("profile"),
        };
        std::fs::write(&outputs.counts, "10 2 1\n20 4 2\n").unwrap();
        std::fs::write(&outputs.events, "stretch\n3 2 15\nstretch\n").unwrap();
        let stretches = outputs.stretches();
        assert_eq!(stretches.len(), 2);
        assert_eq!(stretches[0].counts, [10, 2, 1]);
        assert_eq!(stretches[0].events, BTreeMap::from([(3, [2, 15])]));
        assert_eq!(stretches[1].counts, [20, 4, 2]);
        assert!(stretches[1].events.is_empty() && stretches[1].profile.is_empty());
        std::fs::write(&outputs.profile, "stretch\n1f 5 1 0\nstretch\nx\n").unwrap();
        let stretches = outputs.stretches();
        assert_eq!(stretches[0].profile, [(0x1f, [5, 1, 0])]);
        assert_eq!(numbers::<2>("1 2 3"), None);
        assert_eq!(numbers::<2>("1"), None);
    }
}
