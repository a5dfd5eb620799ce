//! `./fermata bench`: the costs of the kernel's operations, in every configuration.
//!
//! Every machine runs programs of `benches/`, which report over the control channel. Instructions are counted: the
//! guest's clock is the number of retired instructions, so that every number is exactly repeatable. A plugin of the
//! emulator (`tools/count`) counts loads and stores, and records the events of a counting kernel. Some further boots,
//! of all configurations in turn, measure host time, in which no two runs agree.
//!
//! * [`boots`] has the machines, and reads their reports.
//! * [`devices`] has the costs of requests to devices.
//! * [`criu`] has the costs of checkpoints, beside CRIU in Linux.
//! * [`costs`] has the costs of Linux programs, beside Linux, and [`placed`] those of loads with servers in the
//!   kernel; [`beside`] is what these three have in common.
//! * [`parts`] divides the instructions of an RPC among the parts of the kernel.
//! * [`profile`] shows the functions where the instructions are.
//! * [`masks`] measures the ways to mask interrupts.
//! * [`lines`] counts the lines that depend on the execution model.
//! * [`references`] has the measurements of others, and the goals.
//! * [`papers`] makes the papers' tables, theirs and ours.
//! * [`report`] prints tables, and writes one page with plots, of [`table`]s and [`chart`]s.
//! * [`thresholds`] has the counts that must not get worse.

mod beside;
mod boots;
mod chart;
mod costs;
mod criu;
mod devices;
mod lines;
mod masks;
mod papers;
mod parts;
mod placed;
mod profile;
mod references;
mod report;
mod table;
mod thresholds;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::{json, Value};

use xtask_build::config::{Choice, Config};
use xtask_build::error::{Error, BROKEN, USAGE};
use xtask_build::image::{self, Images};
use xtask_build::project::{finish, BuildTarget, Project};
use xtask_machine::place::Place;
use xtask_machine::signals;

use boots::{Boot, Line, Session, Stretch};
pub use thresholds::Thresholds;

/// Options of `bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchOptions {
    #[command(flatten)]
    choice: Choice,
    /// Write the results to FILE as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the plots to DIR as well, as files of their own
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Runs that measure host time; 0 for none
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(..=1000))]
    rounds: u16,
    /// Only count instructions, and show them by function of the kernel
    #[arg(long)]
    profile: bool,
    /// With --profile: also the functions of this program of Fermata, such as `linux` or `fs`
    #[arg(long, value_name = "NAME", requires = "profile")]
    program: Option<String>,
    /// Make these counts the thresholds that `test` checks later counts against, and write docs/numbers.md
    #[arg(long, conflicts_with = "places")]
    pub update_thresholds: bool,
    /// Where servers run, as for `run`: for the rows linux_... and checkpoint_...
    #[arg(
        long = "place",
        value_name = "SERVICE=process|kernel,...",
        value_delimiter = ','
    )]
    places: Vec<Place>,
    /// For the rows of devices: also measure with these Linux drivers (`e100`, `sym53c8xx`, ...), which are built
    #[arg(long = "driver", value_name = "NAME,...", value_delimiter = ',')]
    drivers: Vec<String>,
    /// Only checkpoints, beside CRIU (Debian's package) in Linux on the same emulator: writes docs/criu.md
    #[arg(long, conflicts_with_all = ["config", "all", "irq", "json", "plots", "rounds", "profile", "update_thresholds", "places", "drivers", "filter"])]
    beside_criu: bool,
    /// Only calls and programs of Linux, beside Debian's Linux on the same emulator: writes docs/linux-costs.md
    #[arg(long, conflicts_with_all = ["beside_criu", "config", "all", "irq", "json", "plots", "rounds", "profile", "update_thresholds", "places", "drivers", "filter"])]
    beside_linux: bool,
    /// Only loads with servers in processes and in the kernel, and the difference: writes docs/collocation.md
    #[arg(long, conflicts_with_all = ["beside_criu", "beside_linux", "config", "all", "irq", "json", "plots", "rounds", "profile", "update_thresholds", "places", "drivers", "filter"])]
    placed: bool,
    /// Only benchmarks whose name contains FILTER (or one of several, with commas); `devices`: those of devices
    #[arg(value_parser = part_of_name)]
    filter: Option<String>,
}

impl BenchOptions {
    /// The drivers by which rows of devices are measured.
    fn all_drivers(&self) -> Vec<String> {
        let own = [devices::VIRTIO.to_string()];
        own.into_iter()
            .chain(self.drivers.iter().cloned())
            .collect()
    }
}

/// Checks a filter. It goes onto the kernel's command line, and so must be one word.
fn part_of_name(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.contains(|c: char| !c.is_ascii_graphic()) {
        return Err("it is not a part of a benchmark's name");
    }
    Ok(text.into())
}

/// The row with the sum of everything that `flukeperf` does.
const FLUKEPERF: &str = "flukeperf";
/// Whether the row is a part of that sum.
fn is_of_flukeperf(name: &str) -> bool {
    ![FLUKEPERF, "memtest", "sort"].contains(&name) && !is_of_services(name)
}

/// Whether the row is an operation that servers do for a program: a call of Linux, or a checkpoint.
fn is_of_services(name: &str) -> bool {
    name.starts_with("linux_") || name.starts_with("checkpoint_")
}

/// The kind of a row, which decides the tables that show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Group {
    /// An operation, or a program.
    #[default]
    Operation,
    /// The lateness of a thread.
    Latency,
    /// What the kernel keeps for threads that block.
    Blocks,
    /// What restarts cost.
    Restarts,
    /// A part of an operation.
    Parts,
    /// A way to mask interrupts.
    Masks,
    /// A request to a device.
    Devices,
}

/// A benchmark in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    name: String,
    unit: String,
    group: Group,
    /// Per operation; or a value that is no duration.
    instructions: Option<u64>,
    loads: Option<u64>,
    stores: Option<u64>,
    /// The median, the least and the greatest of the runs.
    host: Option<[u64; 3]>,
    /// Operations of a run.
    repetitions: u64,
    /// The driver that was measured, and where drivers and servers ran.
    driver: Option<String>,
    placement: Option<&'static str>,
}

/// All measurements, in the order of the configurations.
struct Results {
    configs: Vec<Config>,
    rounds: usize,
    rows: Vec<Vec<Row>>,
    /// The ways to mask interrupts, which do not depend on the configuration.
    masks: Vec<Row>,
    lines: Vec<lines::Room>,
    /// Remarks about the numbers, printed with them.
    notes: Vec<String>,
    failures: Vec<String>,
}

/// `total` for so many operations, rounded.
fn per(total: u64, operations: u64) -> u64 {
    (total + operations / 2) / operations.max(1)
}

/// Whether this name is wanted: the filter has parts of names, separated by commas.
fn wanted(filter: &str, name: &str) -> bool {
    filter.split(',').any(|part| name.contains(part))
}

/// A set of rows that is measured by boots of its own.
struct Extra {
    boot: &'static Boot,
    group: Group,
    /// The filter for the programs; without one, the user's filter.
    filter: Option<&'static str>,
    /// The names of the rows that it makes, or their beginnings.
    names: &'static [&'static str],
    rows: fn(&Taken) -> Result<Vec<Row>, Error>,
}

/// The measurements from which an [`Extra`] makes its rows.
struct Taken<'a> {
    session: Session,
    kernel: &'a [u8],
}

/// All such sets, in the order in which they are measured.
const EXTRAS: &[Extra] = &[
    Extra {
        boot: &boots::THREADS,
        group: Group::Operation,
        filter: None,
        names: &["thread_bytes", "thread_bytes_fpu"],
        rows: values,
    },
    Extra {
        boot: &boots::PROMPTNESS,
        group: Group::Operation,
        filter: None,
        names: &["promptness_worst"],
        rows: values,
    },
    Extra {
        boot: &boots::COLLOCATED,
        group: Group::Operation,
        filter: None,
        names: &[
            "collocated_null_call",
            "collocated_rpc_0",
            "collocated_rpc_0_within",
            "collocated_rpc_4096",
        ],
        rows: values,
    },
    Extra {
        boot: &boots::STRETCHES,
        group: Group::Latency,
        filter: None,
        names: &[
            "stretch_broadcast",
            "stretch_sleepers",
            "stretch_sleep",
            "stretch_ready",
            "stretch_port_end",
            "stretch_timed_waits",
            "stretch_space_end",
            "stretch_space_body",
            "stretch_clock",
            "stretch_body",
            "stretch_importers",
            "stretch_regions",
            "stretch_tables",
            "stretch_clients",
            "stretch_entries",
            "stretch_call_longest",
        ],
        rows: values,
    },
    Extra {
        boot: &boots::LATENCY,
        group: Group::Latency,
        filter: None,
        names: &[
            "latency_avg",
            "latency_worst",
            "latency_runs",
            "latency_missed",
        ],
        rows: values,
    },
    Extra {
        boot: &boots::RESTARTS,
        group: Group::Restarts,
        filter: Some(""),
        names: &[
            "remedy_client_soft",
            "remedy_client_hard",
            "remedy_server_soft",
            "remedy_server_hard",
            "rollback_client_soft",
            "rollback_client_hard",
            "rollback_server_soft",
            "rollback_server_hard",
        ],
        rows: restarts,
    },
    Extra {
        boot: &boots::BLOCKS,
        group: Group::Blocks,
        filter: Some(""),
        names: &["blocks_", "compression_", "recognition_", "handoff_"],
        rows: blocks,
    },
    Extra {
        boot: &boots::PARTS,
        group: Group::Parts,
        filter: Some("rpc_0,null_call,exception_rt"),
        names: &[
            "rpc_0_in_",
            "syscall_entry",
            "syscall_exit",
            "trap_entry",
            "trap_exit",
        ],
        rows: parts::rows,
    },
];

/// Measures, prints, writes.
pub fn run(project: &Project, options: &BenchOptions) -> Result<u8, Error> {
    signals::catch();
    if options.beside_criu {
        return criu::run(project);
    }
    if options.beside_linux {
        return costs::run(project);
    }
    if options.placed {
        return placed::run(project);
    }
    if let Some(path) = &options.json {
        // The file is opened first, so that a wrong path is found before anything is measured.
        let mut file = std::fs::OpenOptions::new();
        file.append(true)
            .create(true)
            .open(path)
            .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))?;
    }
    if let Some(path) = &options.plots {
        std::fs::create_dir_all(path)
            .map_err(|error| Error::new(format!("cannot make {}: {error}", path.display())))?;
    }
    let configs = options.choice.among(vec![Config::DEFAULT]);
    let (mut images, failed) = image::build_what_builds(project, BuildTarget::Kernel, &configs)?;
    let plugin = build_plugin(project)?;
    let mut results = Results {
        configs,
        rounds: options.rounds.into(),
        rows: Vec::new(),
        masks: Vec::new(),
        lines: lines::count(&project.root)?,
        notes: Vec::new(),
        failures: Vec::new(),
    };
    results.drop_failed(failed)?;
    let filter = options.filter.as_deref().unwrap_or_default();
    if options.profile {
        let binaries = project.binaries(BuildTarget::User, Config::DEFAULT);
        let program = options.program.as_ref().map(|name| binaries.join(name));
        let program = program.as_deref();
        for &config in &results.configs {
            if !devices::alone(filter) {
                profile::print(&images, config, filter, &plugin, program)?;
            }
            if devices::are_wanted(filter) && !filter.is_empty() {
                let bench = devices::Bench {
                    images: &images,
                    config,
                    plugin: &plugin,
                    label: config.name(),
                    placements: &devices::PLACEMENTS[..1],
                    look: boots::Look::Profile,
                };
                for session in bench.sessions(project, filter, &options.all_drivers())? {
                    profile::print_session(&images, config, session, program)?;
                }
            }
        }
        return Ok(0);
    }
    let extras: Vec<&Extra> = EXTRAS
        .iter()
        .filter(|extra| extra.names.iter().any(|name| could_want(filter, name)))
        .collect();
    if extras
        .iter()
        .any(|extra| extra.boot.look == boots::Look::Events)
    {
        let failed = images.add_counting(project, &results.configs)?;
        results.drop_failed(failed)?;
    }
    let all = results.configs.len();
    for (index, config) in results.configs.clone().into_iter().enumerate() {
        let name = format!("[{}/{all}] {}", index + 1, config.name());
        let mut rows = Vec::new();
        if !devices::alone(filter) {
            results.attempt(
                &name,
                || {
                    let boot = boots::COUNTS.placed(&options.places);
                    count(&boot, &images, config, &name, filter, &plugin)
                },
                |found, results| {
                    rows = found.rows;
                    results.notes.extend(found.notes);
                },
            )?;
        }
        for extra in &extras {
            results.attempt(
                &name,
                || extra.take(&images, config, &name, filter, &plugin),
                |found, _| rows.extend(found),
            )?;
        }
        // Devices hardly depend on the model: if all rows are wanted, they are measured once.
        if devices::are_wanted(filter) && (!filter.is_empty() || config.name() == papers::AIMED) {
            let bench = devices::Bench {
                images: &images,
                config,
                plugin: &plugin,
                label: &name,
                placements: &devices::PLACEMENTS,
                look: boots::Look::Counts,
            };
            let drivers = options.all_drivers();
            results.attempt(
                &name,
                || bench.take(project, filter, &drivers),
                |found, _| rows.extend(found),
            )?;
        }
        for row in &rows {
            // The output of its programs has been shown already.
            if !matches!(
                row.group,
                Group::Operation | Group::Latency | Group::Devices
            ) {
                let value = row.instructions.unwrap_or_default();
                eprintln!("{name}: {}: {value} {}", row.name, row.unit);
            }
        }
        results.rows.push(rows);
    }
    let rounds = results.rounds;
    results.attempt(
        "masks",
        || Ok((masks::rows(project, filter, &plugin, rounds)?, Vec::new())),
        |found, results| results.masks = found,
    )?;
    let nothing = results.masks.is_empty() && results.rows.iter().all(Vec::is_empty);
    if nothing && results.failures.is_empty() {
        return Err(Error {
            message: format!("no benchmark has '{filter}' in its name"),
            status: USAGE,
        });
    }
    let boot = boots::HOST_TIME.placed(&options.places);
    host_times(&boot, &images, filter, &plugin, &mut results)?;

    report::print(&results);
    let directory = project.target.join("bench");
    let page = directory.join("report.html");
    let failed =
        |what: &Path, error| Error::new(format!("cannot write {}: {error}", what.display()));
    std::fs::create_dir_all(&directory).map_err(|e| failed(&directory, e))?;
    std::fs::write(&page, report::page(&results)).map_err(|e| failed(&page, e))?;
    println!("report: {}", page.display());
    if let Some(path) = &options.plots {
        for (name, svg) in report::plots(&results) {
            let path = path.join(name);
            std::fs::write(&path, svg).map_err(|e| failed(&path, e))?;
            println!("plot: {}", path.display());
        }
    }
    if let Some(path) = &options.json {
        let text = format!("{:#}\n", as_json(&results));
        std::fs::write(path, text).map_err(|e| failed(path, e))?;
    }
    if options.update_thresholds {
        Thresholds::update(project, &results)?;
        println!("updated: {}", thresholds::THRESHOLDS);
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

/// Whether rows whose names begin like this may be wanted. If the name ends in `_`, the filter may name the rest of
/// it.
fn could_want(filter: &str, name: &str) -> bool {
    let open = name.ends_with('_');
    filter
        .split(',')
        .any(|part| name.contains(part) || (open && part.starts_with(name)))
}

impl Results {
    /// Records the configurations whose kernel does not build, and continues without them.
    fn drop_failed(&mut self, failed: Vec<(Config, Error)>) -> Result<(), Error> {
        for (config, error) in failed {
            self.configs.retain(|other| *other != config);
            let failure = format!("{}: {}", config.name(), error.message);
            if self.configs.is_empty() {
                return Err(Error::new(failure));
            }
            self.failures.push(failure);
        }
        Ok(())
    }

    /// Does a measurement. If it fails the others go on, unless the user has asked to stop.
    fn attempt<T>(
        &mut self,
        name: &str,
        measure: impl FnOnce() -> Result<(T, Vec<String>), Error>,
        found: impl FnOnce(T, &mut Results),
    ) -> Result<(), Error> {
        match measure() {
            Ok((value, failures)) => {
                for failure in failures {
                    self.failures.push(format!("{name}: {failure}"));
                }
                found(value, self);
            }
            Err(error) if signals::caught().is_some() => return Err(error),
            Err(error) => {
                eprintln!("{name}: FAILED: {}", error.message);
                self.failures.push(error.message);
            }
        }
        Ok(())
    }
}

/// Builds the plugin that counts loads and stores.
fn build_plugin(project: &Project) -> Result<PathBuf, Error> {
    let _lock = project.lock()?;
    let package = project
        .package_at(&project.packages()?, "tools/count")?
        .name
        .clone();
    let mut command: Command = project.cargo(BuildTarget::Host, Config::DEFAULT, "build");
    command.args(["--quiet", "--package", &package]);
    finish(command, "building the counting plugin")?;
    Ok(project
        .binaries(BuildTarget::Host, Config::DEFAULT)
        .join("libfermata_count.so"))
}

/// Rows, and remarks about them.
struct Counted {
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Shows what a program has measured.
fn show(name: &str, line: &Line) {
    match line {
        Line::Sample {
            name: what,
            operations,
            ticks,
            ..
        } => eprintln!("{name}: {what}: {} instructions", per(*ticks, *operations)),
        Line::Value {
            name: what,
            unit,
            value,
            ..
        } => eprintln!("{name}: {what}: {value} {unit}"),
        Line::Failed { name: what, why } => eprintln!("{name}: {what}: FAILED: {why}"),
    }
}

/// The messages of benchmarks that failed.
fn failures(session: &Session) -> Vec<String> {
    let failure = |(line, _): &(Line, Option<Stretch>)| match line {
        Line::Failed { name, why } => Some(format!("{name}: {why}")),
        _ => None,
    };
    session.iter().filter_map(failure).collect()
}

/// The boot that counts.
fn count(
    boot: &Boot,
    images: &Images,
    config: Config,
    label: &str,
    filter: &str,
    plugin: &Path,
) -> Result<(Counted, Vec<String>), Error> {
    let session = boot.run(images, config, filter, plugin, &mut |line| {
        show(label, line);
    })?;
    let failures = failures(&session);
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let mut sum = Row {
        name: FLUKEPERF.into(),
        unit: "run".into(),
        repetitions: 1,
        ..Row::default()
    };
    for (line, stretch) in session {
        match line {
            Line::Failed { .. } => {}
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
                let counted = stretch.map(|stretch| stretch.counts);
                let mut instructions = ticks;
                match counted {
                    // The clock jumped where the machine idled: the executed instructions count.
                    Some([executed, ..]) if ticks.abs_diff(executed) > executed / 100 => {
                        notes.push(format!(
                            "{}: {name}: the machine idled, so that its clock went on by \
                             {ticks} while {executed} instructions were executed",
                            config.name()
                        ));
                        instructions = executed;
                    }
                    Some(_) => {}
                    None => notes.push(format!(
                        "{}: {name}: loads and stores were not counted",
                        config.name()
                    )),
                }
                if is_of_flukeperf(&name) {
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
                    repetitions: operations,
                    ..Row::default()
                });
            }
        }
    }
    if sum.instructions.is_some() && filter.is_empty() {
        rows.push(sum);
    }
    Ok((Counted { rows, notes }, failures))
}

impl Extra {
    /// Boots the machine and makes the rows that are wanted; records what failed.
    fn take(
        &self,
        images: &Images,
        config: Config,
        label: &str,
        filter: &str,
        plugin: &Path,
    ) -> Result<(Vec<Row>, Vec<String>), Error> {
        eprintln!("{label}: {}", self.boot.what);
        let asked = self.filter.unwrap_or(filter);
        let session = self
            .boot
            .run(images, config, asked, plugin, &mut |line| match line {
                // These rows are not part of this measurement.
                Line::Sample { .. } => {}
                line => show(label, line),
            })?;
        let failures = failures(&session);
        let taken = Taken {
            session,
            kernel: images.kernel_of(config, self.boot.look == boots::Look::Events),
        };
        // A benchmark that failed has been reported already.
        let mut rows = match (self.rows)(&taken) {
            Ok(rows) => rows,
            Err(_) if !failures.is_empty() => Vec::new(),
            Err(error) => {
                let message = format!("{}: {}", config.name(), error.message);
                return Err(Error { message, ..error });
            }
        };
        rows.retain(|row| wanted(filter, &row.name));
        for row in &mut rows {
            row.group = self.group;
        }
        Ok((rows, failures))
    }
}

/// The values that programs computed themselves.
fn values(taken: &Taken) -> Result<Vec<Row>, Error> {
    Ok(taken
        .session
        .iter()
        .filter_map(|(line, _)| match line {
            Line::Value {
                name,
                unit,
                value,
                count,
            } => Some(Row {
                name: name.clone(),
                unit: unit.clone(),
                instructions: Some(*value),
                repetitions: *count,
                ..Row::default()
            }),
            _ => None,
        })
        .collect())
}

// ---- events of the counting kernel ---------------------------------------------------------------

/// Events per kind, as in `kernel/src/counters.rs`.
const KIND: u8 = 16;
/// Blocked, and kept a stack.
const KEPT: u8 = 0;
/// Blocked without a stack.
const COMPRESSED: u8 = 1;
/// Blocked without a stack, and the next thread took the stack over.
const HANDED_OFF: u8 = 2;
/// The thread that woke it completed its call (recognition).
const RECOGNISED: u8 = 3;
/// A call that met an absent page was abandoned, and begun again; and before that, the kernel began to look for a
/// page, and ended the search.
const RESTART: [u8; 4] = [4 * KIND, 4 * KIND + 1, 4 * KIND + 2, 4 * KIND + 3];

/// Reasons to block: the names of `abi::state::Waiting`, in rows and for people.
const REASONS: [(&str, &str); 12] = [
    ("yield", "gave way: a yield, or preempted"),
    ("mutex", "a mutex"),
    ("cond", "a condition"),
    ("deadline", "a deadline"),
    ("interrupt", "a thread interrupt"),
    ("port", "a client: for a server"),
    ("portset", "a server: for a client"),
    ("peer", "the other end of a connection"),
    ("reply", "a reply, to a call or a memory fault"),
    ("exception", "a reply to an exception"),
    ("vacant", "a vacant identity"),
    ("kernel", "the lock of the kernel"),
];

/// Draves et al., Tables 1 and 2: how often threads block, for which reason, and what happens to their stacks and
/// their calls.
fn blocks(taken: &Taken) -> Result<Vec<Row>, Error> {
    let mut programs: Vec<(&str, BTreeMap<u8, u64>)> = [FLUKEPERF, "memtest", "sort"]
        .map(|name| (name, BTreeMap::new()))
        .to_vec();
    for (line, stretch) in &taken.session {
        let (Line::Sample { name, .. }, Some(stretch)) = (line, stretch) else {
            continue;
        };
        let index = programs[1..]
            .iter()
            .position(|(program, _)| program == name);
        let sums = &mut programs[index.map_or(0, |i| i + 1)].1;
        for (event, [count, _]) in &stretch.events {
            *sums.entry(*event).or_insert(0) += count;
        }
    }
    if programs.iter().all(|(_, sums)| sums.is_empty()) {
        return Err(Error::new("the kernel told of no blocked thread"));
    }
    let mut rows = Vec::new();
    for (program, sums) in programs {
        let of = |kinds: &[u8], reason: usize| -> u64 {
            let event = |kind: &u8| sums.get(&(kind * KIND + reason as u8));
            kinds.iter().filter_map(event).sum()
        };
        for (name, kinds) in [
            ("blocks", &[KEPT, COMPRESSED, HANDED_OFF][..]),
            ("compression", &[COMPRESSED, HANDED_OFF]),
            ("recognition", &[RECOGNISED]),
            ("handoff", &[HANDED_OFF]),
        ] {
            let row = |name: String, value: u64| Row {
                name,
                unit: "blocks".into(),
                instructions: Some(value),
                repetitions: 1,
                ..Row::default()
            };
            let all = (0..REASONS.len()).map(|reason| of(kinds, reason)).sum();
            rows.push(row(format!("{name}_{program}"), all));
            for (reason, (word, _)) in REASONS.iter().enumerate() {
                if of(&[KEPT, COMPRESSED, HANDED_OFF], reason) > 0 {
                    let name = format!("{name}_{program}_{word}");
                    rows.push(row(name, of(kinds, reason)));
                }
            }
        }
    }
    Ok(rows)
}

/// Ford et al., Table 3. The remedy is what happens from abandoning a call to beginning it again (the keeper's work,
/// and making the page table's entry), and before that the unsuccessful search for the page. The rollback is the
/// extra cost of the call over one that meets no fault, without the remedy. If no call was abandoned, the page was
/// found in the middle of the call.
fn restarts(taken: &Taken) -> Result<Vec<Row>, Error> {
    let find = |name: &str| -> Result<(u64, &Stretch), Error> {
        taken
            .session
            .iter()
            .find_map(|(line, stretch)| match line {
                Line::Sample {
                    name: found,
                    operations,
                    ..
                } if found == name => Some((*operations, stretch.as_ref()?)),
                _ => None,
            })
            .ok_or_else(|| Error::new(format!("{name} was not measured")))
    };
    let (mut remedies, mut rollbacks) = (Vec::new(), Vec::new());
    for side in ["client", "server"] {
        let (_, base) = find(&format!("restart_{side}_none"))?;
        for kind in ["soft", "hard"] {
            let (operations, stretch) = find(&format!("restart_{side}_{kind}"))?;
            let [abandoned, begun, looks, looked] =
                RESTART.map(|event| stretch.events.get(&event).copied().unwrap_or_default());
            if abandoned[0] != begun[0] {
                return Err(Error::new(format!(
                    "restart_{side}_{kind}: {} calls were abandoned, and {} begun again",
                    abandoned[0], begun[0]
                )));
            }
            if kind == "hard" && abandoned[0] == 0 {
                return Err(Error::new(format!(
                    "restart_{side}_hard: the kernel told of no restart"
                )));
            }
            let more = stretch.counts[0].saturating_sub(base.counts[0]);
            let remedy = match abandoned[0] {
                0 => more,
                _ => (looked[1] - looks[1]) + (begun[1] - abandoned[1]),
            };
            let row = |name: &str, value: u64| Row {
                name: format!("{name}_{side}_{kind}"),
                unit: "fault".into(),
                instructions: Some(per(value, operations)),
                repetitions: operations,
                ..Row::default()
            };
            remedies.push(row("remedy", remedy));
            rollbacks.push(row("rollback", more.saturating_sub(remedy)));
        }
    }
    remedies.extend(rollbacks);
    Ok(remedies)
}

// ---- host time ------------------------------------------------------------------------------------

/// The boots that measure host time: all configurations in turn, for several rounds.
fn host_times(
    boot: &Boot,
    images: &Images,
    filter: &str,
    plugin: &Path,
    results: &mut Results,
) -> Result<(), Error> {
    let configs = results.configs.clone();
    let mut times: Vec<BTreeMap<String, Vec<u64>>> = vec![BTreeMap::new(); configs.len()];
    // Perhaps no wanted row has a duration.
    let timed = |rows: &Vec<Row>| {
        let mut operations = rows.iter().filter(|row| row.group == Group::Operation);
        operations.any(|row| row.loads.is_some())
    };
    if !results.rows.iter().any(timed) {
        results.rounds = 0;
    }
    let mut troubles = Vec::new();
    for round in 1..=results.rounds {
        for (config, times) in configs.iter().zip(&mut times) {
            let name = config.name();
            eprintln!("{name}: host time, round {round} of {}", results.rounds);
            let of_round = |why: &str| format!("{name}: host time, round {round}: {why}");
            match boot.run(images, *config, filter, plugin, &mut |_| {}) {
                Ok(session) => {
                    let failures = failures(&session);
                    add_times(times, session, failures.is_empty());
                    troubles.extend(failures.iter().map(|why| of_round(why)));
                }
                Err(error) if signals::caught().is_some() => return Err(error),
                Err(error) => troubles.push(of_round(&error.message)),
            }
        }
    }
    let mut complete = true;
    for (rows, times) in results.rows.iter_mut().zip(&mut times) {
        for row in rows.iter_mut().filter(|row| row.group == Group::Operation) {
            match times.get_mut(&row.name) {
                Some(times) => row.host = Some(median(times)),
                None => complete &= row.loads.is_none(),
            }
        }
    }
    // On a busy host a round may fail in part. As long as another round succeeds, that is no failure.
    if complete {
        results.notes.extend(troubles);
    } else {
        results.failures.extend(troubles);
    }
    Ok(())
}

/// Adds the measurements of a round; `whole` if the round has measured everything that it should.
fn add_times(times: &mut BTreeMap<String, Vec<u64>>, session: Session, whole: bool) {
    let mut sum = 0;
    for (line, _) in session {
        if let Line::Sample {
            name,
            operations,
            nanoseconds,
            ..
        } = line
        {
            if is_of_flukeperf(&name) {
                sum += nanoseconds;
            }
            let time = per(nanoseconds, operations);
            times.entry(name).or_default().push(time);
        }
    }
    if whole {
        times.entry(FLUKEPERF.into()).or_default().push(sum);
    }
}

/// The median, the least and the greatest of some values.
fn median(values: &mut [u64]) -> [u64; 3] {
    values.sort_unstable();
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2
    };
    [median, values[0], values[values.len() - 1]]
}

/// The results as JSON: per operation, every row with every field.
fn as_json(results: &Results) -> Value {
    let of_configs = results.configs.iter().zip(&results.rows);
    let of_configs = of_configs.flat_map(|(config, rows)| rows.iter().map(|row| (*config, row)));
    let of_masks = results.masks.iter();
    let of_masks = of_masks.map(|row| (masks::config_of(row), row));
    let rows: Vec<Value> = of_configs
        .chain(of_masks)
        .map(|(config, row)| {
            json!({
                "name": row.name,
                "config": config.model.name(),
                "irq": config.irq.name(),
                "unit": row.unit,
                "instructions": row.instructions,
                "loads": row.loads,
                "stores": row.stores,
                "host_ns": row.host.map(|host| host[0]),
                "repetitions": row.repetitions,
                "driver": row.driver,
                "placement": row.placement,
            })
        })
        .collect();
    json!({ "results": rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_every_field() {
        let results = Results {
            configs: vec![Config::DEFAULT],
            rounds: 0,
            rows: vec![vec![Row {
                name: "thread_bytes".into(),
                unit: "bytes".into(),
                instructions: Some(300),
                repetitions: 256,
                ..Row::default()
            }]],
            masks: Vec::new(),
            lines: Vec::new(),
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
                "driver",
                "host_ns",
                "instructions",
                "irq",
                "loads",
                "name",
                "placement",
                "repetitions",
                "stores",
                "unit"
            ]
        );
        assert!(row["loads"].is_null());
        assert_eq!(row["config"], "interrupt-np");
        assert_eq!(row["irq"], "hardware");
    }

    #[test]
    fn filters_select_boots() {
        assert!(could_want("", "blocks_"));
        assert!(could_want("latency", "latency_worst"));
        assert!(could_want("recognition_sort_peer", "recognition_"));
        assert!(could_want("x,remedy", "remedy_client_soft"));
        assert!(!could_want("rpc_0", "thread_bytes"));
        assert!(!could_want("latency_worst_of_all", "latency_worst"));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&mut [3, 1, 2]), [2, 1, 3]);
        assert_eq!(median(&mut [4, 1, 2, 3]), [2, 1, 4]);
    }

    fn sample(name: &str, instructions: u64, events: &[(u8, [u64; 2])]) -> (Line, Option<Stretch>) {
        let line = Line::Sample {
            name: name.into(),
            unit: "rpc".into(),
            operations: 10,
            ticks: instructions,
            nanoseconds: 0,
        };
        let stretch = Stretch {
            counts: [instructions, 0, 0],
            events: events.iter().copied().collect(),
            ..Stretch::default()
        };
        (line, Some(stretch))
    }

    fn taken(session: Session) -> Taken<'static> {
        Taken {
            session,
            kernel: &[],
        }
    }

    #[test]
    fn a_restart_is_a_remedy_and_what_is_done_twice() {
        let all = taken(vec![
            sample("restart_client_none", 1000, &[]),
            sample("restart_client_soft", 1500, &[]),
            // Ten calls, each abandoned for 300 instructions.
            sample(
                "restart_client_hard",
                5000,
                &[
                    (RESTART[2], [10, 50]),
                    (RESTART[3], [10, 90]),
                    (RESTART[0], [10, 100]),
                    (RESTART[1], [10, 3100]),
                ],
            ),
            sample("restart_server_none", 1000, &[]),
            sample("restart_server_soft", 1000, &[]),
            sample(
                "restart_server_hard",
                1000,
                &[(RESTART[0], [10, 100]), (RESTART[1], [10, 100])],
            ),
        ]);
        let rows = restarts(&all).unwrap();
        let value = |name: &str| {
            let row = rows.iter().find(|row| row.name == name).unwrap();
            row.instructions.unwrap()
        };
        assert_eq!(value("remedy_client_soft"), 50);
        assert_eq!(value("rollback_client_soft"), 0);
        assert_eq!(value("remedy_client_hard"), 304);
        assert_eq!(value("rollback_client_hard"), 96);
        let broken = taken(vec![
            sample("restart_client_none", 1000, &[]),
            sample("restart_client_soft", 1500, &[(RESTART[0], [1, 1])]),
        ]);
        assert!(restarts(&broken).is_err());
        let silent = taken(vec![
            sample("restart_client_none", 1000, &[]),
            sample("restart_client_soft", 1500, &[]),
            sample("restart_client_hard", 5000, &[]),
        ]);
        assert!(restarts(&silent).is_err());
    }

    #[test]
    fn blocks_are_summed_up_by_reason() {
        let all = taken(vec![
            sample("rpc_0", 1, &[(KEPT * KIND + 7, [3, 0])]),
            sample(
                "rpc_8",
                1,
                &[
                    (HANDED_OFF * KIND + 7, [4, 0]),
                    (COMPRESSED * KIND + 6, [1, 0]),
                    (RECOGNISED * KIND + 7, [5, 0]),
                ],
            ),
            sample("memtest", 1, &[(HANDED_OFF * KIND + 8, [9, 0])]),
        ]);
        let rows = blocks(&all).unwrap();
        let value = |name: &str| {
            let row = rows.iter().find(|row| row.name == name);
            row.and_then(|row| row.instructions)
        };
        assert_eq!(value("blocks_flukeperf"), Some(8));
        assert_eq!(value("compression_flukeperf"), Some(5));
        assert_eq!(value("handoff_flukeperf"), Some(4));
        assert_eq!(value("recognition_flukeperf_peer"), Some(5));
        assert_eq!(value("blocks_flukeperf_portset"), Some(1));
        assert_eq!(value("blocks_memtest_reply"), Some(9));
        assert_eq!(value("blocks_sort"), Some(0));
        assert_eq!(value("blocks_sort_peer"), None);
    }
}
