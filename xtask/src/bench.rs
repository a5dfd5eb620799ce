//! `./fermata bench`: what the kernel's operations cost, in every configuration.
//!
//! Every machine runs the programs of `benches/`, which report over the control channel. One boot of
//! each model counts instructions: the guest's clock is the number of retired instructions, so that
//! every number is exactly repeatable; a plugin of the emulator (`tools/count`) counts loads and
//! stores. Some further boots, of all models in turn, take the host's time, which no two runs agree
//! on.
//!
//! * [`profile`] shows where the instructions are.
//! * [`references`] has what others measured.
//! * [`report`] prints tables, and writes one page with plots.

mod profile;
mod references;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{json, Map, Value};

use crate::cli::BenchOptions;
use crate::config::Config;
use crate::control::Event;
use crate::error::{Error, BROKEN, USAGE};
use crate::image::{self, Images};
use crate::machine::{self, Add, End, Operator, Options, Plugin};
use crate::project::{finish, Project, Room};
use crate::signals;
use crate::temp::TempDir;

/// The programs, in the order in which they run.
const PROGRAMS: [&str; 3] = ["flukeperf", "memtest", "linux_program"];
/// The sum of all that `flukeperf` does, which is a row of its own.
const FLUKEPERF: &str = "flukeperf";
/// Host time that a machine has.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The file that the Linux program works on.
const INPUT: &str = "/bench/input";
/// The committed thresholds.
const THRESHOLDS: &str = "benches/thresholds.json";
/// How much worse a count may get, in percent, where the file does not say.
const TOLERANCE: u64 = 2;

/// What a program of the guest said about one benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    /// So many operations took so long.
    Sample {
        name: String,
        unit: String,
        operations: u64,
        ticks: u64,
        nanoseconds: u64,
    },
    /// Something that has no duration.
    Value {
        name: String,
        unit: String,
        value: u64,
        count: u64,
    },
    /// It did not do its work.
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

    fn name(&self) -> &str {
        match self {
            Line::Sample { name, .. } | Line::Value { name, .. } | Line::Failed { name, .. } => {
                name
            }
        }
    }
}

/// What a machine measured: each line, and the number of its stretch in the order of the boot.
type Session = Vec<(Line, Option<usize>)>;

/// Listens to a machine that measures.
struct Listener<'a> {
    session: Session,
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
                // The last of several passes counts.
                let stretch = (marks > 0).then(|| self.stretches - 1);
                self.session.push((line, stretch));
            }
        }
    }
}

/// A machine to measure with.
struct Measure<'a> {
    model: Config,
    programs: &'a [&'a str],
    filter: &'a str,
    /// Instructions are the clock.
    counted: bool,
    plugin: Option<Plugin>,
}

impl Measure<'_> {
    /// Runs the machine to its end.
    fn run(&self, images: &Images, progress: &mut dyn FnMut(&Line)) -> Result<Session, Error> {
        let mut script = String::new();
        for program in self.programs {
            script.push_str(&format!("/bench/{program} {}\n", self.filter));
        }
        script.push_str("exit 0\n");
        let mut options = Options::new(self.model);
        options.script = Some(script.into_bytes());
        options.timeout = Some(TIMEOUT);
        options.deterministic = self.counted;
        options.plugin = self.plugin.clone();
        // To create many objects.
        options.words.push("program-quota=10".into());
        if self.programs.contains(&"linux_program") {
            options.adds.push(Add::bytes(lines(), false, INPUT));
        }
        let mut listener = Listener {
            session: Vec::new(),
            stretches: 0,
            recent: String::new(),
            progress,
        };
        let end = machine::run(images, &options, &mut listener)?;
        let (session, recent) = (listener.session, listener.recent);
        let model = self.model.name();
        // The programs print nothing: that is the shell or a fault.
        let mut said = recent
            .lines()
            .filter(|line| !line.starts_with("instructions: "));
        match end {
            End::Exit(0) => match said.next() {
                None => Ok(session),
                Some(_) => Err(Error::new(format!("the machine of {model} says\n{recent}"))),
            },
            End::Exit(_) | End::TimedOut | End::Broken(_) => {
                let why = match &end {
                    End::TimedOut => format!("was not done after {} s", TIMEOUT.as_secs()),
                    End::Broken(lines) => lines.join("\n"),
                    other => format!("ended with status {}", other.status()),
                };
                Err(Error::new(format!(
                    "the machine of {model} {why}\n{recent}"
                )))
            }
            End::Stopped(status) => Err(Error {
                message: "interrupted".into(),
                status,
            }),
        }
    }
}

/// The file that the Linux program works on: 1 MB of lines in no order, always the same.
fn lines() -> Vec<u8> {
    const SIZE: usize = 1 << 20;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut text = Vec::with_capacity(SIZE);
    while text.len() < SIZE {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        text.extend_from_slice(format!("{random:016x} line\n").as_bytes());
    }
    text.truncate(SIZE - 1);
    text.push(b'\n');
    text
}

/// A benchmark in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    name: String,
    unit: String,
    /// Per operation; or the value of something that has no duration.
    instructions: Option<u64>,
    loads: Option<u64>,
    stores: Option<u64>,
    /// Median of the runs, the least and the most.
    host: Option<[u64; 3]>,
    /// Operations of a run.
    repetitions: u64,
}

/// All that was measured, in the order of the models.
struct Results {
    models: Vec<Config>,
    rounds: usize,
    rows: Vec<Vec<Row>>,
    /// What people should know about the numbers.
    notes: Vec<String>,
    failures: Vec<String>,
}

/// `total` for so many operations, rounded.
fn per(total: u64, operations: u64) -> u64 {
    (total + operations / 2) / operations.max(1)
}

/// Measures, prints, writes.
pub(crate) fn run(project: &Project, options: &BenchOptions) -> Result<u8, Error> {
    signals::catch();
    if let Some(path) = &options.json {
        // Not after all has been measured.
        let mut file = std::fs::OpenOptions::new();
        file.append(true)
            .create(true)
            .open(path)
            .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))?;
    }
    let images = image::build(project, &options.configs)?;
    let plugin = build_plugin(project)?;
    let mut results = Results {
        models: options.configs.clone(),
        rounds: options.rounds,
        rows: Vec::new(),
        notes: Vec::new(),
        failures: Vec::new(),
    };
    let filter = options.filter.as_deref().unwrap_or_default();
    if options.profile {
        for &model in &options.configs {
            profile::print(&images, model, filter, &plugin)?;
        }
        return Ok(0);
    }
    for &model in &options.configs {
        let rows = count(&images, model, filter, &plugin, &mut results)?;
        results.rows.push(rows);
    }
    if results.rows.iter().all(Vec::is_empty) && results.failures.is_empty() {
        return Err(Error {
            message: format!("no benchmark has '{filter}' in its name"),
            status: USAGE,
        });
    }
    host_times(&images, filter, &mut results)?;

    report::print(&results);
    let directory = project.target.join("bench");
    let page = directory.join("report.html");
    let failed = |what: &std::path::Path, error| {
        Error::new(format!("cannot write {}: {error}", what.display()))
    };
    std::fs::create_dir_all(&directory).map_err(|e| failed(&directory, e))?;
    std::fs::write(&page, report::page(&results)).map_err(|e| failed(&page, e))?;
    println!("report: {}", page.display());
    if let Some(path) = &options.json {
        let text = format!("{:#}\n", as_json(&results));
        std::fs::write(path, text).map_err(|e| failed(path, e))?;
    }
    if options.update_thresholds {
        Thresholds::update(project, &results)?;
        println!("updated: {THRESHOLDS}");
    }
    for failure in &results.failures {
        eprintln!("fermata: {failure}");
    }
    Ok(if results.failures.is_empty() {
        0
    } else {
        BROKEN
    })
}

/// Builds the plugin that counts loads and stores.
fn build_plugin(project: &Project) -> Result<PathBuf, Error> {
    let _lock = project.lock()?;
    let package = project
        .package_at(&project.packages()?, "tools/count")?
        .name
        .clone();
    let mut command: Command = project.cargo(Room::Host, Config::DEFAULT, "build");
    command.args(["--quiet", "--package", &package]);
    finish(command, "building the counting plugin")?;
    Ok(project
        .binaries(Room::Host, Config::DEFAULT)
        .join("libfermata_count.so"))
}

/// The boot that counts.
fn count(
    images: &Images,
    model: Config,
    filter: &str,
    plugin: &std::path::Path,
    results: &mut Results,
) -> Result<Vec<Row>, Error> {
    let directory = TempDir::new()?;
    let out = directory.path().join("counts");
    let config = model.name();
    let mut progress = |line: &Line| match line {
        Line::Sample {
            name,
            operations,
            ticks,
            ..
        } => eprintln!(
            "{config}: {name}: {} instructions",
            per(*ticks, *operations)
        ),
        Line::Value {
            name, unit, value, ..
        } => eprintln!("{config}: {name}: {value} {unit}"),
        Line::Failed { name, why } => eprintln!("{config}: {name}: FAILED: {why}"),
    };
    let session = Measure {
        model,
        programs: &PROGRAMS,
        filter,
        counted: true,
        plugin: Some(Plugin {
            library: plugin.to_path_buf(),
            output: out.clone(),
            profile: None,
        }),
    }
    .run(images, &mut progress)?;
    let counts: Vec<[u64; 3]> = std::fs::read_to_string(&out)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| {
            let mut numbers = line.split(' ').map(str::parse);
            let mut next = || numbers.next()?.ok();
            Some([next()?, next()?, next()?])
        })
        .collect();
    let mut rows = Vec::new();
    let mut sum = Row {
        name: FLUKEPERF.into(),
        unit: "run".into(),
        repetitions: 1,
        ..Row::default()
    };
    for (line, stretch) in session {
        match line {
            Line::Failed { name, why } => results.failures.push(format!("{config}: {name}: {why}")),
            Line::Value {
                name,
                unit,
                value,
                count,
            } => rows.push(Row {
                name,
                unit,
                instructions: Some(value),
                repetitions: count,
                ..Row::default()
            }),
            Line::Sample {
                name,
                unit,
                operations,
                ticks,
                ..
            } => {
                let counted = stretch.and_then(|stretch| counts.get(stretch).copied());
                let mut instructions = ticks;
                match counted {
                    // Where the machine idled its clock jumped: what was executed counts.
                    Some([executed, ..]) if ticks.abs_diff(executed) > executed / 100 => {
                        results.notes.push(format!(
                            "{config}: {name}: the machine idled, so that its clock went on by \
                             {ticks} while {executed} instructions were executed"
                        ));
                        instructions = executed;
                    }
                    Some(_) => {}
                    None => results.notes.push(format!(
                        "{config}: {name}: loads and stores were not counted"
                    )),
                }
                if !PROGRAMS[1..].contains(&name.as_str()) && name != "sort" {
                    *sum.instructions.get_or_insert(0) += instructions;
                    if let Some([_, loads, stores]) = counted {
                        *sum.loads.get_or_insert(0) += loads;
                        *sum.stores.get_or_insert(0) += stores;
                    }
                }
                rows.push(Row {
                    name,
                    unit,
                    instructions: Some(per(instructions, operations)),
                    loads: counted.map(|c| per(c[1], operations)),
                    stores: counted.map(|c| per(c[2], operations)),
                    host: None,
                    repetitions: operations,
                });
            }
        }
    }
    if sum.instructions.is_some() && filter.is_empty() {
        rows.push(sum);
    }
    Ok(rows)
}

/// The boots that take the host's time: all models in turn, several rounds.
fn host_times(images: &Images, filter: &str, results: &mut Results) -> Result<(), Error> {
    let mut times: Vec<BTreeMap<String, Vec<u64>>> = vec![BTreeMap::new(); results.models.len()];
    for round in 1..=results.rounds {
        for (model, times) in results.models.iter().zip(&mut times) {
            eprintln!(
                "{}: host time, round {round} of {}",
                model.name(),
                results.rounds
            );
            let session = Measure {
                model: *model,
                programs: &PROGRAMS,
                filter,
                counted: false,
                plugin: None,
            }
            .run(images, &mut |_| {})?;
            let mut sum = 0;
            for (line, _) in session {
                match line {
                    Line::Sample {
                        name,
                        operations,
                        nanoseconds,
                        ..
                    } => {
                        if !PROGRAMS[1..].contains(&name.as_str()) && name != "sort" {
                            sum += nanoseconds;
                        }
                        times
                            .entry(name)
                            .or_default()
                            .push(per(nanoseconds, operations));
                    }
                    Line::Failed { name, why } => results
                        .failures
                        .push(format!("{}: {name}, in host time: {why}", model.name())),
                    Line::Value { .. } => {}
                }
            }
            times.entry(FLUKEPERF.into()).or_default().push(sum);
        }
    }
    for (rows, times) in results.rows.iter_mut().zip(&mut times) {
        for row in rows {
            if let Some(times) = times.get_mut(&row.name) {
                times.sort_unstable();
                let middle = times.len() / 2;
                let median = if times.len() % 2 == 1 {
                    times[middle]
                } else {
                    (times[middle - 1] + times[middle]) / 2
                };
                row.host = Some([median, times[0], times[times.len() - 1]]);
            }
        }
    }
    Ok(())
}

/// The results as the world outside reads them: per operation, every row with every field.
fn as_json(results: &Results) -> Value {
    let mut rows = Vec::new();
    for (model, of_model) in results.models.iter().zip(&results.rows) {
        for row in of_model {
            rows.push(json!({
                "name": row.name,
                "config": model.model.name(),
                "irq": model.irq.name(),
                "unit": row.unit,
                "instructions": row.instructions,
                "loads": row.loads,
                "stores": row.stores,
                "host_ns": row.host.map(|host| host[0]),
                "repetitions": row.repetitions,
            }));
        }
    }
    json!({ "results": rows })
}

// ---- thresholds

/// A benchmark that was held against its threshold, and why it failed if it did.
pub(crate) type Verdict = (String, Result<(), String>);

/// Counts that must not get worse: those of the program `flukeperf`, per model and name.
pub(crate) struct Thresholds {
    tolerance: u64,
    counts: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Thresholds {
    /// Reads the committed file; none if there is no such file.
    pub(crate) fn read(project: &Project) -> Result<Self, Error> {
        let path = project.root.join(THRESHOLDS);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "{}".into(),
            Err(error) => return Err(Error::new(format!("{THRESHOLDS}: {error}"))),
        };
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Error::new(format!("{THRESHOLDS}: {error}")))?;
        let mut counts = BTreeMap::new();
        for (model, of_model) in value["counts"].as_object().into_iter().flatten() {
            let of_model = of_model.as_object().into_iter().flatten();
            let of_model =
                of_model.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)));
            counts.insert(model.clone(), of_model.collect());
        }
        Ok(Self {
            tolerance: value["tolerance_percent"].as_u64().unwrap_or(TOLERANCE),
            counts,
        })
    }

    /// The names of the benchmarks of a model.
    pub(crate) fn names(&self, model: Config) -> Vec<String> {
        let of_model = self.counts.get(model.name());
        of_model
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The most that a count may be.
    fn limit(&self, model: Config, name: &str) -> Option<u64> {
        let count = *self.counts.get(model.name())?.get(name)?;
        // What is rounded may come out one higher.
        Some(count + (count * self.tolerance / 100).max(1))
    }

    /// Puts what was measured into the file; what was not stays.
    fn update(project: &Project, results: &Results) -> Result<(), Error> {
        let mut all = Self::read(project)?;
        for (model, rows) in results.models.iter().zip(&results.rows) {
            let of_model = all.counts.entry(model.name().into()).or_default();
            for row in rows {
                let elsewhere = row.name == FLUKEPERF
                    || row.name == "sort"
                    || PROGRAMS[1..].contains(&row.name.as_str());
                if let (Some(count), false) = (row.instructions, elsewhere) {
                    of_model.insert(row.name.clone(), count);
                }
            }
        }
        let counts: Map<String, Value> = all
            .counts
            .into_iter()
            .map(|(model, counts)| (model, json!(counts)))
            .collect();
        let value = json!({ "tolerance_percent": all.tolerance, "counts": counts });
        std::fs::write(project.root.join(THRESHOLDS), format!("{value:#}\n"))
            .map_err(|error| Error::new(format!("{THRESHOLDS}: {error}")))
    }

    /// Measures the counts of a model, in one boot, and compares: the name of each benchmark, and
    /// why it fails if it does.
    pub(crate) fn check(&self, images: &Images, model: Config) -> Result<Vec<Verdict>, Error> {
        let session = Measure {
            model,
            programs: &PROGRAMS[..1],
            filter: "",
            counted: true,
            plugin: None,
        }
        .run(images, &mut |_| {})?;
        let mut found = BTreeMap::new();
        for (line, _) in &session {
            let count = match line {
                Line::Sample {
                    operations, ticks, ..
                } => Ok(per(*ticks, *operations)),
                Line::Value { value, .. } => Ok(*value),
                Line::Failed { why, .. } => Err(why.clone()),
            };
            found.insert(line.name().to_string(), count);
        }
        let verdict = |name: &String| -> Result<(), String> {
            let count = found.get(name).ok_or("it was not measured")?.clone()?;
            match self.limit(model, name) {
                Some(limit) if count > limit => Err(format!(
                    "{count}, which is more than {limit}; if that is meant to be: \
                     ./fermata bench --config {} --update-thresholds",
                    model.name()
                )),
                _ => Ok(()),
            }
        };
        let names = self.names(model);
        Ok(names
            .into_iter()
            .map(|name| {
                let v = verdict(&name);
                (name, v)
            })
            .collect())
    }
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
    fn thresholds_tolerate_little() {
        let of_model = BTreeMap::from([("rpc_0".to_string(), 500), ("null_call".to_string(), 60)]);
        let thresholds = Thresholds {
            tolerance: 1,
            counts: BTreeMap::from([(Config::DEFAULT.name().to_string(), of_model)]),
        };
        assert_eq!(thresholds.limit(Config::DEFAULT, "rpc_0"), Some(505));
        assert_eq!(thresholds.limit(Config::DEFAULT, "null_call"), Some(61));
        assert_eq!(thresholds.limit(Config::DEFAULT, "other"), None);
    }

    #[test]
    fn every_row_has_every_field() {
        let results = Results {
            models: vec![Config::DEFAULT],
            rounds: 0,
            rows: vec![vec![Row {
                name: "thread_bytes".into(),
                unit: "bytes".into(),
                instructions: Some(300),
                repetitions: 256,
                ..Row::default()
            }]],
            notes: Vec::new(),
            failures: Vec::new(),
        };
        let value = as_json(&results);
        let row = value["results"][0].as_object().unwrap();
        let mut names: Vec<&str> = row.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "config",
                "host_ns",
                "instructions",
                "irq",
                "loads",
                "name",
                "repetitions",
                "stores",
                "unit"
            ]
        );
        assert!(row["loads"].is_null());
    }

    #[test]
    fn the_input_is_always_the_same() {
        let text = lines();
        assert_eq!(text.len(), 1 << 20);
        assert_eq!(text.last(), Some(&b'\n'));
        assert_eq!(text, lines());
    }
}
