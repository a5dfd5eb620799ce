//! What it costs to mask interrupts, by each of the ways that there are (Stodolsky et al., 1993).
//!
//! A kernel of its own, `hal/examples/masks.rs`, measures pairs of masking and unmasking where they are
//! used: in kernel mode, with interrupts on. It does not depend on the execution model. All ways take
//! turns within one boot, so that their host times can be compared.

use std::collections::BTreeMap;
use std::path::Path;

use super::boots::{self, Line, Look};
use super::references::{STODOLSKY_TABLES_1_AND_2, STODOLSKY_TABLE_3};
use super::table::{grouped, number, Table};
use super::{could_want, median, per, wanted, Group, Results, Row};
use crate::config::{Config, Irq, Model};
use crate::error::Error;
use crate::image;
use crate::machine::Options;
use crate::project::Project;

/// The kernel in which the ways are measured: the one in which masking optimistically is one of them.
const CONFIG: Config = Config {
    model: Model::InterruptNp,
    irq: Irq::Optimistic,
};

/// The rows, and what they are for people.
const WAYS: &[(&str, &str)] = &[
    ("mask_cli_sti", "flag of the processor (pushfq, cli, sti)"),
    ("mask_cr8", "task priority, CR8"),
    ("mask_lapic_tpr", "task priority, in the local APIC"),
    ("mask_pic", "masks of the two 8259s"),
    ("mask_optimistic", "optimistic"),
];

/// The row of masking optimistically.
const OPTIMISTIC: &str = "mask_optimistic";
/// Pairs of a turn, where the host's time is taken.
const PAIRS: u64 = 64_000;
/// Turns for each round of the other benchmarks: they are short.
const TURNS: usize = 3;

/// How the way of this row masks, for the world outside.
pub(super) fn irq_of(row: &Row) -> Irq {
    match row.name.as_str() {
        OPTIMISTIC => Irq::Optimistic,
        _ => Irq::Hardware,
    }
}

/// Measures those that are wanted.
pub(super) fn rows(
    project: &Project,
    filter: &str,
    plugin: &Path,
    rounds: usize,
) -> Result<Vec<Row>, Error> {
    if !WAYS.iter().any(|(name, _)| could_want(filter, name)) {
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
        let Line::Sample {
            name,
            unit,
            operations,
            ..
        } = line
        else {
            continue;
        };
        if !wanted(filter, &name) {
            continue;
        }
        let counts = stretch.map(|stretch| stretch.counts.map(|count| per(count, operations)));
        let row = Row {
            group: Group::Masks,
            instructions: counts.map(|counts| counts[0]),
            loads: counts.map(|counts| counts[1]),
            stores: counts.map(|counts| counts[2]),
            host: None,
            repetitions: operations,
            name,
            unit,
        };
        let count = row.instructions.unwrap_or_default();
        eprintln!("{}: {count} instructions", row.name);
        rows.push(row);
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
        let head = [
            "",
            "instructions",
            "loads",
            "stores",
            "host ns",
            "least",
            "most",
        ];
        let mut table = Table::new(&head, &[0]);
        for row in &self.masks {
            let way = WAYS.iter().find(|(name, _)| *name == row.name);
            let host = |i: usize| number(row.host.map(|host| host[i]));
            table.rows.push(vec![
                way.map_or(&*row.name, |way| way.1).to_string(),
                number(row.instructions),
                number(row.loads),
                number(row.stores),
                host(0),
                host(1),
                host(2),
            ]);
        }
        if table.rows.is_empty() {
            return None;
        }
        for (machine, conventional, optimistic) in STODOLSKY_TABLES_1_AND_2 {
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
        for (machine, [optimistic, conventional]) in STODOLSKY_TABLE_3 {
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
        for (name, _) in WAYS {
            let optimistic = irq_of(&row(name, 1)) == Irq::Optimistic;
            assert_eq!(optimistic, *name == OPTIMISTIC);
        }
    }

    #[test]
    fn gains_have_a_sign() {
        assert_eq!(percent(4400, 4225), "4.0 %");
        assert_eq!(percent(100, 104), "-4.0 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }
}
