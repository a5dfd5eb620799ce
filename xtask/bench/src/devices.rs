//! `./fermata bench devices`: the cost of requests to devices, by driver and placement.
//!
//! A disk's requests are made in a machine whose disk takes no time. Datagrams and connections are between two
//! machines on one wire, and the instructions of both are added. Only executed instructions count, not the time in
//! which a machine idles.

use std::collections::BTreeSet;
use std::path::Path;

use super::boots::{self, Line, Look, Session};
use super::references;
use super::table::{number, Table};
use super::thresholds::Found;
use super::{failures, per, show, wanted, Group, Results, Row};
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::Images;
use xtask_build::linux::{self, Program, Ungranted};
use xtask_build::project::{temp_dir, Project};
use xtask_machine::net::{Net, Pair};
use xtask_machine::place::Place;
use xtask_machine::Options;

/// The filter for all of these rows but those of the thesis, and the filter for the thesis's rows.
const ALL: &str = "devices";
const THESIS: &str = "thesis";
/// The word for both of Fermata's own drivers, and the driver names in their rows and in rows without a driver.
pub(super) const VIRTIO: &str = "virtio";
const OWN: [&str; 3] = ["virtio-blk", "virtio-net", NO_DRIVER];
const NO_DRIVER: &str = "none";
/// Rows of a disk, and of files for comparison; and rows of a network.
const DISK: &[&str] = &[
    "blk_read_4k",
    "blk_write_4k",
    "blk_read_64k",
    "blk_write_64k",
    "blk_read_4k_x32",
    FILE,
];
const FILE: &str = "file_read_4k";
/// Van Maren, The Fluke Device Driver Framework, sections 5.2.1 and 5.2.4: reads of all sizes, and a trace.
const DISK_OF_THESIS: &[&str] = &[
    "disk_read_512",
    "disk_read_1k",
    "disk_read_2k",
    "disk_read_4k",
    "disk_read_8k",
    "disk_read_16k",
    "disk_read_32k",
    "disk_read_64k",
    "trace_request",
];
const NET: &[&str] = &["udp_1", "udp_64", "udp_512", "udp_1400", "tcp_kb"];
/// Bytes of the disk: too few for a file system, since one would be made on a larger disk and be overwritten at once.
const SIZE: u64 = 16 << 20;

/// Where drivers and servers run: the word for it, and the machine's option.
pub(super) const PLACEMENTS: [(&str, Option<&str>); 2] =
    [("process", None), ("kernel", Some("all=kernel"))];

/// Whether the row is one of these.
pub(super) fn is_row(name: &str) -> bool {
    [DISK, NET, DISK_OF_THESIS]
        .iter()
        .any(|rows| rows.contains(&name))
}

/// Whether the row is one of a disk, or of files.
pub(super) fn is_of_disk(name: &str) -> bool {
    !NET.contains(&name)
}

/// The rows that the programs of a service have to measure; none if no row is wanted. Without a filter these are all
/// rows but those of the thesis.
fn asked(filter: &str, service: &str) -> Option<String> {
    let (rows, of_thesis) = match service {
        "disk" => (DISK, DISK_OF_THESIS),
        _ => (NET, NET),
    };
    let names: Vec<&str> = match filter {
        "" | ALL => rows.to_vec(),
        THESIS => of_thesis.to_vec(),
        _ => {
            let all = rows.iter().chain(of_thesis).copied();
            // The network's rows are the thesis's, too.
            let once: BTreeSet<&str> = all.filter(|name| wanted(filter, name)).collect();
            once.into_iter().collect()
        }
    };
    (!names.is_empty()).then(|| names.join(","))
}

/// Whether some of these rows are wanted.
pub(super) fn are_wanted(filter: &str) -> bool {
    ["disk", "link"]
        .iter()
        .any(|service| asked(filter, service).is_some())
}

/// Whether only rows of devices are wanted.
pub(super) fn alone(filter: &str) -> bool {
    [ALL, THESIS].contains(&filter)
}

/// The name of a row in the thresholds.
pub(super) fn key(row: &Row) -> String {
    match (&row.driver, row.placement) {
        (Some(driver), Some(placement)) => format!("{}/{driver}/{placement}", row.name),
        _ => row.name.clone(),
    }
}

/// Whether the name is that of such a row in the thresholds.
pub(super) fn is_key(name: &str) -> bool {
    name.split_once('/').is_some_and(|(row, _)| is_row(row))
}

/// Whether `test` checks the row: Linux's drivers are not in every build, and the kernel's rings cost the same as a
/// process but for a hundred instructions.
pub(super) fn is_held(row: &Row) -> bool {
    row.group == Group::Devices
        && !DISK_OF_THESIS.contains(&&*row.name)
        && row.placement == Some(PLACEMENTS[0].0)
        && row
            .driver
            .as_ref()
            .is_some_and(|driver| OWN.contains(&&**driver))
}

/// A driver of a kind of device.
struct Driver {
    name: String,
    /// The service: `disk` or `link`.
    service: &'static str,
    /// The program of a Linux driver.
    program: Option<Program>,
}

/// The drivers with these names; `virtio` stands for both of Fermata's own.
fn drivers(project: &Project, names: &[String]) -> Result<Vec<Driver>, Error> {
    let mut found = Vec::new();
    for name in names {
        if name == VIRTIO {
            for (name, service) in [("virtio-blk", "disk"), ("virtio-net", "link")] {
                found.push(Driver {
                    name: name.into(),
                    service,
                    program: None,
                });
            }
            continue;
        }
        let driver = linux::find(name)?;
        if !matches!(driver.service, "disk" | "link") {
            return Err(Error::new(format!(
                "--driver: {name} drives neither a disk nor a network card, of which the rows are"
            )));
        }
        let (program, _) = linux::build(project, driver, Ungranted::Ends)?;
        found.push(Driver {
            name: name.clone(),
            service: program.service,
            program: Some(program),
        });
    }
    Ok(found)
}

/// The machine of a driver.
fn machine(
    config: Config,
    driver: &Driver,
    place: Option<&str>,
    script: String,
) -> Result<Options, Error> {
    let mut options = Options::new(config);
    options.script = Some(script.into_bytes());
    options.driver.clone_from(&driver.program);
    let place: Option<Place> = place.map(str::parse).transpose().map_err(Error::new)?;
    options.places.extend(place);
    Ok(options)
}

/// The rows of sessions that measured the same benchmarks: the sums over several machines.
fn rows(sessions: &[Session], driver: &Driver, placement: &'static str) -> Result<Vec<Row>, Error> {
    let mut rows: Vec<Row> = Vec::new();
    for (line, stretch) in sessions.iter().flatten() {
        let Line::Sample {
            name,
            unit,
            operations,
            ..
        } = line
        else {
            continue;
        };
        let Some(stretch) = stretch else {
            return Err(Error::new(format!("{name} was not counted")));
        };
        let counts = stretch.counts.map(|count| per(count, *operations));
        match rows.iter_mut().find(|row| row.name == *name) {
            Some(row) => {
                for (sum, more) in [&mut row.instructions, &mut row.loads, &mut row.stores]
                    .into_iter()
                    .zip(counts)
                {
                    *sum.get_or_insert(0) += more;
                }
            }
            None => rows.push(Row {
                name: name.clone(),
                unit: unit.clone(),
                group: Group::Devices,
                instructions: Some(counts[0]),
                loads: Some(counts[1]),
                stores: Some(counts[2]),
                repetitions: *operations,
                driver: Some(driver.name.clone()),
                placement: Some(placement),
                ..Row::default()
            }),
        }
    }
    Ok(rows)
}

/// What is needed to measure.
pub(super) struct Bench<'a> {
    pub(super) images: &'a Images,
    pub(super) config: Config,
    pub(super) plugin: &'a Path,
    /// For progress messages.
    pub(super) label: &'a str,
    /// Those of [`PLACEMENTS`] that are wanted.
    pub(super) placements: &'a [(&'static str, Option<&'static str>)],
    /// What is measured.
    pub(super) look: Look,
}

impl Bench<'_> {
    /// All wanted rows by these drivers, and what failed.
    pub(super) fn take(
        &self,
        project: &Project,
        filter: &str,
        names: &[String],
    ) -> Result<(Vec<Row>, Vec<String>), Error> {
        let (mut all, mut failed) = (Vec::new(), Vec::new());
        self.each(project, filter, names, |driver, placement, sessions| {
            failed.extend(sessions.iter().flat_map(failures));
            let mut rows = rows(&sessions, driver, placement)?;
            // A file in memory has no driver: it is measured once.
            rows.retain(|row| row.name != FILE || driver.program.is_none());
            for row in &mut rows {
                if row.name == FILE {
                    row.driver = Some(NO_DRIVER.into());
                }
                let count = number(row.instructions);
                eprintln!("{}: {}: {count} instructions", self.label, key(row));
            }
            all.extend(rows);
            Ok(())
        })?;
        Ok((all, failed))
    }

    /// What each machine measured, for all that is wanted.
    pub(super) fn sessions(
        &self,
        project: &Project,
        filter: &str,
        names: &[String],
    ) -> Result<Vec<Session>, Error> {
        let mut all = Vec::new();
        self.each(project, filter, names, |_, _, sessions| {
            all.extend(sessions);
            Ok(())
        })?;
        Ok(all)
    }

    /// Measures with each driver in each placement.
    fn each(
        &self,
        project: &Project,
        filter: &str,
        names: &[String],
        mut found: impl FnMut(&Driver, &'static str, Vec<Session>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for driver in drivers(project, names)? {
            for &(placement, place) in self.placements {
                let Some(asked) = asked(filter, driver.service) else {
                    continue;
                };
                eprintln!("{}: {}, {placement}", self.label, driver.name);
                let sessions = match driver.service {
                    "disk" => vec![self.disk(&driver, place, &asked)?],
                    _ => self.pair(&driver, place, &asked)?.into(),
                };
                found(&driver, placement, sessions)?;
            }
        }
        Ok(())
    }

    /// The counts that `test` checks, by name, or why they were not measured.
    pub(super) fn held(&self, project: &Project) -> Result<Found, Error> {
        let (rows, failed) = self.take(project, ALL, &[VIRTIO.to_string()])?;
        if let Some(why) = failed.first() {
            return Err(Error::new(why.clone()));
        }
        let held = rows.iter().filter(|row| is_held(row));
        Ok(held
            .map(|row| (key(row), Ok(row.instructions.unwrap_or_default())))
            .collect())
    }

    /// A machine with a disk.
    fn disk(&self, driver: &Driver, place: Option<&str>, asked: &str) -> Result<Session, Error> {
        let script = format!("trust /bench/disk_requests {asked}\nexit 0\n");
        let mut options = machine(self.config, driver, place, script)?;
        options.null_disk = Some(SIZE);
        self.session(options)
    }

    /// Two machines on one wire.
    fn pair(
        &self,
        driver: &Driver,
        place: Option<&str>,
        asked: &str,
    ) -> Result<[Session; 2], Error> {
        let directory = temp_dir()?;
        let of = |end: u8, words: &str| {
            let script = format!("trust /bench/net_requests {words} {asked}\nexit 0\n");
            let mut options = machine(self.config, driver, place, script)?;
            options.net = Net::Pair(Pair {
                directory: directory.path().into(),
                end,
            });
            options.waits = true;
            Ok::<_, Error>(options)
        };
        let (serves, asks) = (of(0, "serve")?, of(1, "ask 10.0.3.1")?);
        std::thread::scope(|scope| {
            let serves = scope.spawn(|| self.session(serves));
            let asks = self.session(asks);
            let serves = serves
                .join()
                .map_err(|_| Error::new("a machine panicked xtask"))?;
            Ok([serves?, asks?])
        })
    }

    fn session(&self, options: Options) -> Result<Session, Error> {
        let name = self.config.name();
        boots::session(
            self.images,
            options,
            self.look,
            self.plugin,
            name,
            &mut |line| {
                if let Line::Failed { .. } = line {
                    show(self.label, line);
                }
            },
        )
    }
}

impl Results {
    /// The rows of a configuration, beside Linux's counts and the goals.
    pub(super) fn devices(&self) -> Option<Table> {
        let head = [
            "row",
            "driver",
            "placement",
            "configuration",
            "instructions",
            "loads",
            "stores",
            "Linux",
            "of Linux",
            "aim",
        ];
        let mut table = Table::new(&head, &[0, 1, 2, 3]);
        for (config, rows) in self.configs.iter().zip(&self.rows) {
            for row in rows.iter().filter(|row| row.group == Group::Devices) {
                let (driver, placement) = (row.driver.as_deref()?, row.placement?);
                let known = references::of_device(&row.name, driver);
                let linux = known.and_then(|known| known.linux);
                let aim = known
                    .and_then(|known| known.aim)
                    .filter(|_| placement == "process");
                table.rows.push(vec![
                    row.name.clone(),
                    driver.into(),
                    placement.into(),
                    config.name().into(),
                    number(row.instructions),
                    number(row.loads),
                    number(row.stores),
                    number(linux),
                    super::table::ratio(row.instructions, linux),
                    number(aim),
                ]);
            }
        }
        (!table.rows.is_empty()).then_some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::grouped;
    use super::{asked, is_key, is_row, ALL, THESIS};
    use serde_json::Value;

    #[test]
    fn a_word_asks_for_what_belongs_together() {
        assert_eq!(asked("rpc_0", "disk"), None);
        assert_eq!(asked("udp_64", "disk"), None);
        assert_eq!(asked("udp_64", "link").as_deref(), Some("udp_64"));
        let devices = asked(ALL, "disk").unwrap_or_default();
        assert!(devices.split(',').all(is_row) && !devices.contains("trace"));
        assert!(asked(THESIS, "disk").is_some_and(|names| names.contains("trace_request")));
        assert!(is_key("tcp_kb/virtio-net/process") && !is_key("tcp_kb") && !is_key("a/b/c"));
    }

    /// The rows of the page are `| row | driver | placement | instructions | ...`; those with a threshold must agree
    /// with it.
    #[test]
    fn the_page_has_what_is_held() {
        let page = include_str!("../../../docs/devices.md");
        let thresholds = include_str!("../../../benches/thresholds.json");
        let thresholds: Value = serde_json::from_str(thresholds).expect("thresholds");
        let counts = thresholds["counts"]["interrupt-np"]
            .as_object()
            .expect("counts");
        let held = counts.iter().filter(|(name, _)| is_key(name));
        let mut rows = 0;
        for (name, count) in held {
            let parts: Vec<&str> = name.split('/').collect();
            let [row, driver, placement] = parts[..] else {
                panic!("{name} has not three parts");
            };
            let count = grouped(count.as_u64().unwrap_or_default());
            let begin = format!("| `{row}` | {driver} | {placement} | {count} |");
            assert!(
                page.lines().any(|line| line.starts_with(&begin)),
                "docs/devices.md has no row that begins with '{begin}'"
            );
            rows += 1;
        }
        assert!(rows > 0);
    }
}
