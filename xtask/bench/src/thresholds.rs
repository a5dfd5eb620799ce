//! Counts that `./fermata test` does not let get worse.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{json, Map, Value};

use super::boots::{self, Line};
use super::{build_plugin, devices, is_of_flukeperf, is_of_services, per, Group, Results};
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::Images;
use xtask_build::project::Project;

/// The committed thresholds.
pub(super) const THRESHOLDS: &str = "benches/thresholds.json";
/// By how many percent a count may grow, if the file does not say.
const TOLERANCE: u64 = 2;
/// By how many percent a count may be below its threshold before the threshold has to be lowered: a threshold far
/// above the measured count would let the count get worse again unnoticed. This does not apply to requests to
/// devices, which the host influences.
const SLACK: u64 = 10;
/// The tolerance for what servers do for a program, which depends on where their memory lies, and for devices, whose
/// answers come when the emulator's other threads run.
const TOLERANCE_OF_SERVICES: u64 = 5;
/// The tolerance for requests to disks: while the machine waits for one, its clock jumps to the next timed action of
/// a server. On a busy host these counts are a third higher.
const TOLERANCE_OF_DISKS: u64 = 100;
/// The tolerance, up and down, for a byte through a pipe and back: a call that waits is made again, and every change
/// of a program can make that happen once more or once less.
const TOLERANCE_OF_TURNS: u64 = 15;
/// The tolerance for a connection between two machines: how many segments are sent at a time depends on which machine
/// the host lets run.
const TOLERANCE_OF_STREAMS: u64 = 15;

/// The most instructions by which a thread of the highest priority runs late while a program's calls handle a
/// thousand threads, or the longest lists and messages (interrupts may be handled meanwhile): without preemption in
/// the kernel, with preemption points, and with full preemption, where this is also how long a thread waits for the
/// kernel's lock. This is a published promise, which is in `docs/proof.md` too (a test compares them), not a count
/// that follows the measurements.
pub(super) const BUDGETS: [(&str, [u64; 3]); 16] = [
    ("stretch_broadcast", [100_000, 10_000, 10_000]),
    ("stretch_port_end", [100_000, 10_000, 10_000]),
    ("stretch_space_end", [550_000, 550_000, 650_000]),
    ("stretch_space_body", [480_000, 480_000, 480_000]),
    ("stretch_clock", [470_000, 25_000, 25_000]),
    ("stretch_body", [100_000, 10_000, 10_000]),
    ("stretch_importers", [70_000, 70_000, 70_000]),
    ("stretch_regions", [80_000, 80_000, 80_000]),
    ("stretch_tables", [70_000, 70_000, 70_000]),
    ("stretch_clients", [150_000, 10_000, 10_000]),
    ("stretch_sleepers", [6_000, 6_000, 6_000]),
    ("stretch_timed_waits", [11_000, 11_000, 11_000]),
    ("stretch_sleep", [3_000, 3_000, 3_000]),
    ("stretch_ready", [2_000, 2_000, 2_000]),
    ("stretch_entries", [5_000, 5_000, 5_000]),
    ("stretch_call_longest", [20_000, 20_000, 20_000]),
];

/// The most instructions that proxy and stub add to the RPC of which a call of an interface consists: the name of the
/// threshold, the call, the RPC, and the most. A promise like [`BUDGETS`]; `docs/services.md` has it, and says why
/// bulk data is not included.
const ADDED: [(&str, &str, &str, u64); 3] = [
    ("added_interface_rpc_0", "interface_rpc_0", "rpc_0", 40),
    ("added_interface_rpc_32", "interface_rpc_32", "rpc_32", 40),
    ("added_interface_async_0", "interface_async_0", "rpc_0", 80),
];

/// The budget of a model, from an entry of [`BUDGETS`].
fn budget(model: Config, budgets: [u64; 3]) -> u64 {
    let [none, points, full] = budgets;
    match model.name() {
        name if name.contains("-pp") => points,
        name if name.contains("-fp") => full,
        _ => none,
    }
}

/// A benchmark that was compared with its threshold, and why it failed if it did.
type Verdict = (String, Result<(), String>);

/// The measurements by name, or why there is none.
pub(super) type Found = BTreeMap<String, Result<u64, String>>;

/// Counts that must not get worse: those of the program `flukeperf`, and of what servers do for a program, per model and name.
pub struct Thresholds {
    tolerance: u64,
    counts: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Thresholds {
    /// Reads the committed file; empty if there is no such file.
    pub fn read(project: &Project) -> Result<Self, Error> {
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
    pub fn names(&self, model: Config) -> Vec<String> {
        let of_model = self.counts.get(model.name());
        let counts = of_model.into_iter().flatten().map(|(name, _)| name.clone());
        let budgets = BUDGETS.iter().map(|(name, _)| name.to_string());
        let added = ADDED.iter().map(|(name, ..)| name.to_string());
        counts.chain(budgets).chain(added).collect()
    }

    /// The least and the most that a count may be.
    fn limits(&self, model: Config, name: &str) -> Option<(u64, u64)> {
        if let Some((_, budgets)) = BUDGETS.iter().find(|(budgeted, _)| *budgeted == name) {
            return Some((0, budget(model, *budgets)));
        }
        let count = *self.counts.get(model.name())?.get(name)?;
        let percent = match is_of_services(name) || devices::is_key(name) {
            _ if name == "linux_pipe" => TOLERANCE_OF_TURNS,
            _ if name.starts_with("tcp_") => TOLERANCE_OF_STREAMS,
            _ if name.starts_with("blk_") => TOLERANCE_OF_DISKS,
            true => TOLERANCE_OF_SERVICES,
            false => self.tolerance,
        };
        // At least one instruction more, because counts per operation are rounded.
        let most = count + (count * percent / 100).max(1);
        let least = match devices::is_key(name) {
            true => 0,
            false => count.saturating_sub((count * SLACK.max(percent) / 100).max(1)),
        };
        Some((least, most))
    }

    /// Puts the measurements into the file; counts that were not measured stay.
    pub(super) fn update(project: &Project, results: &Results) -> Result<(), Error> {
        let mut all = Self::read(project)?;
        for (model, rows) in results.configs.iter().zip(&results.rows) {
            let of_model = all.counts.entry(model.name().into()).or_default();
            for row in rows {
                let here = row.group == Group::Operation
                    && (is_of_flukeperf(&row.name) || is_of_services(&row.name));
                if let (Some(count), true) = (row.instructions, here || devices::is_held(row)) {
                    of_model.insert(devices::key(row), count);
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

    /// Measures the counts of a model, and compares them: the name of each benchmark, and why it fails if it does.
    /// The images must be of this project.
    pub fn check(
        &self,
        project: &Project,
        images: &Images,
        model: Config,
    ) -> Result<Vec<Verdict>, Error> {
        let mut session = Vec::new();
        let mut boots = vec![
            &boots::SMALL,
            &boots::COLLOCATED,
            &boots::THREADS,
            &boots::PROMPTNESS,
            &boots::STRETCHES,
        ];
        // Services hardly depend on the model.
        if self.names(model).iter().any(|name| is_of_services(name)) {
            boots.push(&boots::SERVICES);
        }
        for boot in boots {
            session.extend(boot.run(images, model, "", Path::new(""), &mut |_| {})?);
        }
        let mut found = Found::new();
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
        if self.names(model).iter().any(|name| devices::is_key(name)) {
            let plugin = build_plugin(project)?;
            let bench = devices::Bench {
                images,
                config: model,
                plugin: &plugin,
                label: model.name(),
                placements: &devices::PLACEMENTS[..1],
                look: boots::Look::Counts,
            };
            found.extend(bench.held(project)?);
        }
        let names = self.names(model).into_iter();
        Ok(names
            .map(|name| {
                let verdict = self.verdict(model, &name, &found);
                (name, verdict)
            })
            .collect())
    }

    /// Compares one of the names with what was measured.
    fn verdict(&self, model: Config, name: &str, found: &Found) -> Result<(), String> {
        let count = |name: &str| found.get(name).ok_or("it was not measured")?.clone();
        if let Some((_, call, rpc, most)) = ADDED.iter().find(|(added, ..)| *added == name) {
            let (call_takes, rpc_takes) = (count(call)?, count(rpc)?);
            return match call_takes.saturating_sub(rpc_takes) {
                added if added > *most => Err(format!(
                    "`{call}` takes {call_takes} instructions and `{rpc}` {rpc_takes}: proxy and stub add {added}, \
                     more than {most}"
                )),
                _ => Ok(()),
            };
        }
        let count = count(name)?;
        let update = format!(
            "./fermata bench --config {} --update-thresholds",
            model.name()
        );
        match self.limits(model, name) {
            Some((_, most)) if count > most && name.starts_with("stretch_") => {
                Err(format!("{count}, which is more than its budget, {most}"))
            }
            Some((_, most)) if count > most => Err(format!(
                "{count}, which is more than {most}; if that is meant to be: {update}"
            )),
            Some((least, _)) if count < least => Err(format!(
                "{count}, which is less than {least}: its threshold is far above it and holds nothing; {update}"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::grouped;
    use super::*;

    #[test]
    fn thresholds_tolerate_little() {
        let of_model = BTreeMap::from([("rpc_0".to_string(), 500), ("null_call".to_string(), 60)]);
        let thresholds = Thresholds {
            tolerance: 1,
            counts: BTreeMap::from([(Config::DEFAULT.name().to_string(), of_model)]),
        };
        let limits = |name| thresholds.limits(Config::DEFAULT, name);
        assert_eq!(limits("rpc_0"), Some((450, 505)));
        assert_eq!(limits("null_call"), Some((54, 61)));
        assert_eq!(limits("other"), None);
        let verdict = |count| {
            let found = Found::from([("rpc_0".to_string(), Ok(count))]);
            thresholds.verdict(Config::DEFAULT, "rpc_0", &found)
        };
        assert_eq!(verdict(505).and(verdict(450)), Ok(()));
        assert!(verdict(506).unwrap_err().contains("more than 505"));
        // A count that has become much better must get a lower threshold.
        assert!(verdict(449).unwrap_err().contains("less than 450"));
    }

    #[test]
    fn proxy_and_stub_add_at_most_what_is_promised() {
        let none = Thresholds {
            tolerance: 1,
            counts: BTreeMap::new(),
        };
        let verdict = |counts: &[(&str, u64)], name| {
            let counts = counts
                .iter()
                .map(|(name, count)| (name.to_string(), Ok(*count)));
            none.verdict(Config::DEFAULT, name, &counts.collect())
        };
        for (name, call, rpc, most) in ADDED {
            assert!(none.names(Config::DEFAULT).contains(&name.to_string()));
            assert_eq!(verdict(&[(call, 300 + most), (rpc, 300)], name), Ok(()));
            assert_eq!(verdict(&[(call, 290), (rpc, 300)], name), Ok(()));
            let slower = verdict(&[(call, 301 + most), (rpc, 300)], name).unwrap_err();
            assert!(slower.contains(&format!("more than {most}")), "{slower}");
            let unknown = verdict(&[(rpc, 300)], name).unwrap_err();
            assert_eq!(unknown, "it was not measured");
        }
    }

    /// The rows of the page are `| what it is (`name`) | `rpc` | most |`.
    #[test]
    fn the_page_has_what_proxy_and_stub_may_add() {
        let page = include_str!("../../../docs/services.md");
        for (_, call, rpc, most) in ADDED {
            let end = format!(" (`{call}`) | `{rpc}` | {most} |");
            let found = page.lines().any(|row| row.ends_with(&end));
            assert!(found, "docs/services.md has no row that ends with '{end}'");
        }
    }

    /// The rows of the page are `| what it is (`name`) | np | pp | fp |`.
    #[test]
    fn the_page_has_the_budgets() {
        let page = include_str!("../../../docs/proof.md");
        let rows: Vec<&str> = page
            .lines()
            .filter(|row| row.contains("(`stretch_"))
            .collect();
        assert_eq!(rows.len(), BUDGETS.len());
        for (name, budgets) in BUDGETS {
            let [np, pp, fp] = budgets.map(grouped);
            let end = format!(" (`{name}`) | {np} | {pp} | {fp} |");
            let found = rows.iter().any(|row| row.ends_with(&end));
            assert!(found, "docs/proof.md has no row that ends with '{end}'");
        }
    }
}
