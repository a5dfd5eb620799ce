//! The costs of masking interrupts in each of the ways that the machine has (Stodolsky et al., 1993).
//!
//! A kernel of its own, `hal/examples/masks.rs`, measures pairs of masking and unmasking where they are
//! used: in kernel mode, with interrupts on. It does not depend on the execution model. All ways take
//! turns within one boot, so that their host times can be compared.
//!
//! It also measures a null RPC with each way: a kernel that is preemptible everywhere masks in the core of its
//! scheduler. Two of the ways are configurations of the kernel; for each of the others a special kernel is built
//! (`--cfg fermata_mask`, `hal/src/mask.rs`). Their boots take turns.

use std::collections::BTreeMap;
use std::path::Path;

use super::boots::{self, Line, Look, Stretch};
use super::references::{FAST_INTERRUPT_TABLES_1_AND_2, FAST_INTERRUPT_TABLE_3};
use super::table::{grouped, number, Table};
use super::{median, per, wanted, Group, Results, Row};
use xtask_build::config::{Config, Irq, Model};
use xtask_build::error::Error;
use xtask_build::image::{self, Images};
use xtask_build::project::{self, BuildTarget, Project};
use xtask_machine::Options;

/// The kernel that measures the ways: the one that can also mask optimistically.
const CONFIG: Config = Config {
    model: Model::InterruptNp,
    irq: Irq::Optimistic,
};

/// The model of the kernels that mask in their core.
const MODEL: Model = Model::ProcessFp;

/// A way to mask interrupts, and its rows.
struct Way {
    /// Its name in tables.
    name: &'static str,
    /// The row of a pair.
    pair: &'static str,
    /// The row of a null RPC, and the kernel that does it.
    rpc: &'static str,
    build: BuildTarget,
    irq: Irq,
}

/// All of them.
const WAYS: &[Way] = &[
    Way {
        name: "flag of the processor (pushfq, cli, sti)",
        pair: "mask_cli_sti",
        rpc: "mask_rpc_0_cli_sti",
        build: BuildTarget::Kernel,
        irq: Irq::Hardware,
    },
    Way {
        name: "task priority, CR8",
        pair: "mask_cr8",
        rpc: "mask_rpc_0_cr8",
        build: BuildTarget::Masking(project::MaskMethod::Cr8),
        irq: Irq::Hardware,
    },
    Way {
        name: "task priority, in the local APIC",
        pair: "mask_lapic_tpr",
        rpc: "mask_rpc_0_lapic_tpr",
        build: BuildTarget::Masking(project::MaskMethod::LapicTpr),
        irq: Irq::Hardware,
    },
    Way {
        name: "masks of the 8259s",
        pair: "mask_pic",
        rpc: "mask_rpc_0_pic",
        build: BuildTarget::Masking(project::MaskMethod::Pic),
        irq: Irq::Hardware,
    },
    Way {
        name: "optimistic",
        pair: "mask_optimistic",
        rpc: "mask_rpc_0_optimistic",
        build: BuildTarget::Kernel,
        irq: Irq::Optimistic,
    },
];

/// The benchmark that every kernel runs.
const RPC: &str = "rpc_0";
/// Pairs in a turn, where host time is measured.
const PAIRS: u64 = 64_000;
/// Turns for each round of the other benchmarks; the turns are short.
const TURNS: usize = 3;

/// The name of the configuration in which the row was measured, for the JSON file.
pub(super) fn config_of(row: &Row) -> Config {
    let is_rpc = WAYS.iter().any(|way| way.rpc == row.name);
    let way = WAYS
        .iter()
        .find(|way| [way.pair, way.rpc].contains(&&*row.name));
    Config {
        model: if is_rpc { MODEL } else { CONFIG.model },
        irq: way.map_or(Irq::Hardware, |way| way.irq),
    }
}

/// Measures the rows that are wanted: pairs, and RPCs.
pub(super) fn rows(
    project: &Project,
    filter: &str,
    plugin: &Path,
    rounds: usize,
) -> Result<Vec<Row>, Error> {
    let mut rows = pairs(project, filter, plugin, rounds)?;
    rows.extend(rpcs(project, filter, plugin, rounds)?);
    Ok(rows)
}

/// A null RPC with each way.
fn rpcs(project: &Project, filter: &str, plugin: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let mut kernels = Vec::new();
    for way in WAYS.iter().filter(|way| wanted(filter, way.rpc)) {
        let config = Config {
            model: MODEL,
            irq: way.irq,
        };
        let (images, failed) = image::build_what_builds(project, way.build, &[config])?;
        if let Some((_, error)) = failed.into_iter().next() {
            return Err(error);
        }
        kernels.push((way, config, images));
    }
    let take = |images: &Images, config: Config, boot: &boots::Boot| {
        let session = boot.run(images, config, RPC, plugin, &mut |_| {})?;
        let mut found = session.into_iter();
        found
            .find(|(line, _)| line.name() == RPC)
            .ok_or_else(|| Error::new(format!("{}: {RPC} was not measured", config.name())))
    };
    let mut rows = Vec::new();
    for (way, config, images) in &kernels {
        let (line, stretch) = take(images, *config, &boots::COUNTS)?;
        let row = row_of(line, stretch, way.rpc)
            .ok_or_else(|| Error::new(format!("{}: {RPC} did not work", way.rpc)))?;
        rows.push(row);
    }
    let mut times = vec![Vec::new(); kernels.len()];
    for round in 1..=rounds {
        for ((way, config, images), times) in kernels.iter().zip(&mut times) {
            eprintln!("{}: host time, round {round} of {rounds}", way.rpc);
            if let (
                Line::Sample {
                    operations,
                    nanoseconds,
                    ..
                },
                _,
            ) = take(images, *config, &boots::HOST_TIME)?
            {
                times.push(per(nanoseconds, operations));
            }
        }
    }
    for (row, times) in rows.iter_mut().zip(&mut times) {
        row.host = (!times.is_empty()).then(|| median(times));
    }
    Ok(rows)
}

/// The row of a counted line, under this name. Prints it.
fn row_of(line: Line, stretch: Option<Stretch>, name: &str) -> Option<Row> {
    let Line::Sample {
        unit, operations, ..
    } = line
    else {
        return None;
    };
    let counts = stretch.map(|stretch| stretch.counts.map(|count| per(count, operations)));
    let row = Row {
        name: name.into(),
        unit,
        group: Group::Masks,
        instructions: counts.map(|counts| counts[0]),
        loads: counts.map(|counts| counts[1]),
        stores: counts.map(|counts| counts[2]),
        repetitions: operations,
        ..Row::default()
    };
    let count = row.instructions.unwrap_or_default();
    eprintln!("{name}: {count} instructions");
    Some(row)
}

/// Pairs, each way.
fn pairs(project: &Project, filter: &str, plugin: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    if !WAYS.iter().any(|way| wanted(filter, way.pair)) {
        return Ok(Vec::new());
    }
    let images = image::build_example(project, CONFIG, "masks")?;
    let session = |look: Look, words: Vec<String>| {
        let mut options = Options::new(CONFIG);
        options.words = words;
        boots::session(&images, options, look, plugin, "masks", &mut |_| {})
    };
    let mut rows = Vec::new();
    for (line, stretch) in session(Look::Counts, Vec::new())? {
        let name = line.name().to_string();
        if wanted(filter, &name) {
            rows.extend(row_of(line, stretch, &name));
        }
    }
    if rows.is_empty() {
        return Err(Error::new("the kernel that masks measured nothing"));
    }
    if rounds == 0 {
        return Ok(rows);
    }
    let turns = rounds * TURNS;
    eprintln!("masks: host time, {turns} turns of {PAIRS} pairs");
    let words = vec![format!("rounds={turns}"), format!("pairs={PAIRS}")];
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (line, _) in session(Look::HostTime, words)? {
        if let Line::Sample {
            name,
            operations,
            nanoseconds,
            ..
        } = line
        {
            let times = times.entry(name).or_default();
            times.push(per(nanoseconds, operations));
        }
    }
    for row in &mut rows {
        row.host = times.get_mut(&row.name).map(|times| median(times));
        row.repetitions = PAIRS;
    }
    Ok(rows)
}

impl Results {
    /// Stodolsky et al., Tables 1 and 2, theirs and ours.
    pub(super) fn stodolsky_1(&self) -> Option<Table> {
        let mut table = self.ways("", |way| way.pair)?;
        for (machine, conventional, optimistic) in FAST_INTERRUPT_TABLES_1_AND_2 {
            let mut theirs = |what: &str, [instructions, cycles]: [u64; 2]| {
                let mut cells = vec![format!("{machine}: {what}"), grouped(instructions)];
                cells.extend(["-", "-"].map(String::from));
                cells.push(format!("{cycles} cycles"));
                cells.extend(["-", "-"].map(String::from));
                table.rows.push(cells);
            };
            theirs("conventional", *conventional);
            if let Some(optimistic) = optimistic {
                theirs("optimistic", *optimistic);
            }
        }
        Some(table)
    }

    /// The table of the ways for which the row with this name was measured, if any was.
    fn ways(&self, what: &str, name: fn(&Way) -> &'static str) -> Option<Table> {
        let head = [
            what,
            "instructions",
            "loads",
            "stores",
            "host ns",
            "least",
            "most",
        ];
        let mut table = Table::new(&head, &[0]);
        for way in WAYS {
            let Some(row) = self.masks.iter().find(|row| row.name == name(way)) else {
                continue;
            };
            let host = |i: usize| number(row.host.map(|host| host[i]));
            table.rows.push(vec![
                way.name.into(),
                number(row.instructions),
                number(row.loads),
                number(row.stores),
                host(0),
                host(1),
                host(2),
            ]);
        }
        (!table.rows.is_empty()).then_some(table)
    }

    /// A null RPC of a kernel that is preemptible everywhere, with each way to mask in its core.
    pub(super) fn rpc_by_way(&self) -> Option<Table> {
        self.ways(MODEL.name(), |way| way.rpc)
    }

    /// Stodolsky et al., Table 3: a null RPC with each way to mask.
    pub(super) fn stodolsky_3(&self) -> Option<Table> {
        let head = [
            "",
            "hardware",
            "optimistic",
            "gain",
            "host ns, hardware",
            "host ns, optimistic",
        ];
        let mut table = Table::new(&head, &[0]);
        for optimistic in self.configs.iter().filter(|c| c.irq == Irq::Optimistic) {
            let hardware = Config::hardware(optimistic.model);
            let find = |config: Config| self.find(config.name(), "rpc_0");
            let (Some(one), Some(other)) = (find(hardware), find(*optimistic)) else {
                continue;
            };
            let gain = match (one.instructions, other.instructions) {
                (Some(one), Some(other)) => percent(one, other),
                _ => "-".into(),
            };
            let host = |row: &Row| number(row.host.map(|host| host[0]));
            table.rows.push(vec![
                hardware.name().into(),
                number(one.instructions),
                number(other.instructions),
                gain,
                host(one),
                host(other),
            ]);
        }
        if table.rows.is_empty() {
            return None;
        }
        for (machine, [optimistic, conventional]) in FAST_INTERRUPT_TABLE_3 {
            table.rows.push(vec![
                format!("{machine}, cycles"),
                grouped(*conventional),
                grouped(*optimistic),
                percent(*conventional, *optimistic),
                "-".into(),
                "-".into(),
            ]);
        }
        Some(table)
    }
}

/// How much less `after` is than `before`.
fn percent(before: u64, after: u64) -> String {
    let gain = (before as f64 - after as f64) / (before as f64).max(1.0) * 100.0;
    format!("{gain:.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, instructions: u64) -> Row {
        Row {
            name: name.into(),
            unit: "pair".into(),
            group: Group::Masks,
            instructions: Some(instructions),
            ..Row::default()
        }
    }

    #[test]
    fn only_the_optimistic_way_is_optimistic() {
        for way in WAYS {
            for name in [way.pair, way.rpc] {
                let optimistic = config_of(&row(name, 1)).irq == Irq::Optimistic;
                assert_eq!(optimistic, name.ends_with("optimistic"));
            }
        }
    }

    #[test]
    fn gains_have_a_sign() {
        assert_eq!(percent(4400, 4225), "4.0 %");
        assert_eq!(percent(100, 104), "-4.0 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }
}
