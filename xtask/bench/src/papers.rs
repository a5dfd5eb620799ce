//! The papers' tables beside ours, and the goals.
//!
//! Ford et al., *Interface and Execution Models in the Fluke Kernel* (OSDI 1999), and Draves et al.,
//! *Continuations: Unifying Thread Management and Communication in Operating Systems* (1991).

use super::parts::PARTS;
use super::references::{
    self, FLUKE_TABLE_3, FLUKE_TABLE_5, FLUKE_TABLE_6, FLUKE_TABLE_7, MACH_TABLE_1, MACH_TABLE_2,
    MACH_TABLE_4, MACH_TABLE_5,
};
use super::table::{grouped, joined, number, ratio, Table};
use super::{Results, Row, FLUKEPERF, REASONS};
use xtask_build::config::{Config, Irq};

/// The configuration to which others are compared.
const BASE: &str = "process-np";
/// The configuration that the goals are for.
pub(super) const AIMED: &str = "interrupt-np";
/// The most instructions of a null RPC in a configuration without full preemption: those of seL4.
const MOST_FOR_RPC: u64 = 406;
/// The greatest lateness of a thread under full preemption, in instructions.
const MOST_LATE: u64 = 2000;
/// Instructions that a restart may execute twice.
const MOST_TWICE: u64 = 150;

impl Results {
    pub(super) fn find(&self, config: &str, name: &str) -> Option<&Row> {
        let index = self.configs.iter().position(|c| c.name() == config)?;
        self.rows[index].iter().find(|row| row.name == name)
    }

    /// Instructions of a row.
    pub(super) fn count(&self, config: &str, name: &str) -> Option<u64> {
        self.find(config, name).and_then(|row| row.instructions)
    }

    /// The configuration to which others are compared: the process model if it was measured.
    pub(super) fn base(&self) -> &'static str {
        let has_base = self.configs.iter().any(|config| config.name() == BASE);
        match self.configs.first() {
            Some(first) if !has_base => first.name(),
            _ => BASE,
        }
    }

    /// One configuration of each model, where a table has no room for all.
    pub(super) fn one_of_each(&self) -> Vec<Config> {
        let plain =
            |config: &&Config| config.irq == Irq::Hardware && config.name().ends_with("-np");
        let some: Vec<Config> = self.configs.iter().filter(plain).copied().collect();
        if some.is_empty() {
            self.configs.iter().take(3).copied().collect()
        } else {
            some
        }
    }

    /// The goals, and what was measured.
    pub(super) fn goals(&self) -> Option<Table> {
        let mut table = Table::new(
            &["goal", "configuration", "at most", "measured", ""],
            &[0, 1, 4],
        );
        let mut goal = |what: &str, config: &str, most: u64, value: Option<u64>| {
            if let Some(value) = value {
                let verdict = if value <= most { "met" } else { "missed" };
                table.rows.push(vec![
                    what.into(),
                    config.into(),
                    grouped(most),
                    grouped(value),
                    verdict.into(),
                ]);
            }
        };
        for known in references::REFERENCES {
            if let Some(most) = known.goal {
                goal(known.name, AIMED, most, self.count(AIMED, known.name));
            }
        }
        for config in &self.configs {
            let name = config.name();
            if config.model.name().ends_with("-fp") {
                for (what, most) in [("latency_worst", MOST_LATE), ("latency_missed", 0)] {
                    goal(what, name, most, self.count(name, what));
                }
            } else {
                let what = "rpc_0, as seL4";
                goal(what, name, MOST_FOR_RPC, self.count(name, "rpc_0"));
            }
        }
        for (side, kind, _) in FLUKE_TABLE_3 {
            let what = format!("rollback_{side}_{kind}");
            goal(&what, AIMED, MOST_TWICE, self.count(AIMED, &what));
        }
        // Optimistic masking is never slower than the masks of a controller, in host time.
        let host = |name: &str| {
            let row = self.masks.iter().find(|row| row.name == name);
            Some(row?.host?[0])
        };
        for controller in ["mask_cr8", "mask_lapic_tpr", "mask_pic"] {
            if let Some(most) = host(controller) {
                let what = format!("mask_optimistic, host ns, as {controller}");
                goal(&what, "any", most, host("mask_optimistic"));
            }
        }
        some(table)
    }

    /// All configurations beside each other: instructions, and their ratio to the base.
    pub(super) fn comparison(&self) -> Option<Table> {
        if self.configs.len() < 2 {
            return None;
        }
        let base = self.base();
        let mut head = vec!["name".to_string(), base.to_string()];
        // Configurations with the same count in every row share a column.
        let names = self.names();
        let counts = |config: &str| -> Vec<Option<u64>> {
            names.iter().map(|name| self.count(config, name)).collect()
        };
        let mut columns: Vec<(Vec<Option<u64>>, Vec<&str>)> = vec![(counts(base), vec![base])];
        for config in self.configs.iter().filter(|config| config.name() != base) {
            let found = counts(config.name());
            match columns.iter_mut().find(|(other, _)| *other == found) {
                Some((_, same)) => same.push(config.name()),
                None => columns.push((found, vec![config.name()])),
            }
        }
        head[1] = joined(&columns[0].1);
        for (_, same) in &columns[1..] {
            head.push(joined(same));
            head.push("ratio".into());
        }
        let mut table = Table::new(&head, &[0]);
        for (index, name) in names.iter().enumerate() {
            let first = columns[0].0[index];
            let mut cells = vec![name.to_string(), number(first)];
            for (found, _) in &columns[1..] {
                let count = found[index];
                cells.push(number(count));
                cells.push(ratio(count, first));
            }
            table.rows.push(cells);
        }
        some(table)
    }

    /// Fluke's Table 3.
    pub(super) fn fluke_3(&self) -> Option<Table> {
        let mut table = Table::new(
            &[
                "system",
                "configuration",
                "fault",
                "remedy",
                "rollback",
                "ratio",
            ],
            &[0, 1, 2],
        );
        for (side, kind, [remedy, rollback]) in FLUKE_TABLE_3 {
            table.rows.push(vec![
                "Fluke (µs)".into(),
                BASE.into(),
                format!("{side}, {kind}"),
                format!("{remedy}"),
                format!("{rollback}"),
                format!("{:.3}", rollback / remedy),
            ]);
        }
        let before = table.rows.len();
        for config in &self.configs {
            for (side, kind, _) in FLUKE_TABLE_3 {
                let of = |what: &str| self.count(config.name(), &format!("{what}_{side}_{kind}"));
                let (remedy, rollback) = (of("remedy"), of("rollback"));
                if remedy.is_some() {
                    table.rows.push(vec![
                        "Fermata".into(),
                        config.name().into(),
                        format!("{side}, {kind}"),
                        number(remedy),
                        number(rollback),
                        ratio(rollback, remedy),
                    ]);
                }
            }
        }
        (table.rows.len() > before).then(|| table.merge_rows(1))
    }

    /// Fluke's Table 5.
    pub(super) fn fluke_5(&self) -> Option<Table> {
        let mut table = Table::new(
            &[
                "configuration",
                "memtest, Fluke",
                "memtest",
                "host time",
                "flukeperf, Fluke",
                "flukeperf",
                "host time",
                "gcc, Fluke",
                "busybox sort",
                "host time",
            ],
            &[0],
        );
        let base = self.base();
        let mut names: Vec<&str> = FLUKE_TABLE_5.iter().map(|row| row.0).collect();
        for config in &self.configs {
            if !names.contains(&config.name()) {
                names.push(config.name());
            }
        }
        let mut any = false;
        for config in names {
            let theirs = FLUKE_TABLE_5.iter().find(|row| row.0 == config);
            let mut cells = vec![config.to_string()];
            for (i, name) in ["memtest", FLUKEPERF, "sort"].into_iter().enumerate() {
                cells.push(theirs.map_or_else(|| "-".into(), |t| format!("{:.2}", t.1[i])));
                let count = self.count(config, name);
                any |= count.is_some();
                cells.push(ratio(count, self.count(base, name)));
                let host = |config| self.find(config, name)?.host.map(|host| host[0]);
                cells.push(ratio(host(config), host(base)));
            }
            table.rows.push(cells);
        }
        any.then_some(table)
    }

    /// Fluke's Table 6.
    pub(super) fn fluke_6(&self) -> Option<Table> {
        let mut table = Table::new(
            &[
                "system",
                "configuration",
                "average",
                "worst",
                "runs",
                "missed",
            ],
            &[0, 1],
        );
        for (config, values) in FLUKE_TABLE_6 {
            let mut cells = vec!["Fluke (µs)".to_string(), config.to_string()];
            cells.extend(values.iter().map(ToString::to_string));
            table.rows.push(cells);
        }
        let before = table.rows.len();
        for config in &self.configs {
            let of = |what: &str| self.count(config.name(), &format!("latency_{what}"));
            let values = ["avg", "worst", "runs", "missed"].map(of);
            if values.iter().any(Option::is_some) {
                let mut cells = vec!["Fermata".to_string(), config.name().to_string()];
                cells.extend(values.map(number));
                table.rows.push(cells);
            }
        }
        (table.rows.len() > before).then(|| table.merge_rows(1))
    }

    /// Fluke's Table 7, which has Mach's Table 3 in it.
    pub(super) fn fluke_7(&self) -> Option<Table> {
        let mut table = Table::new(
            &[
                "system",
                "model",
                "control block",
                "stack",
                "total",
                "with FPU",
            ],
            &[0, 1],
        );
        for (system, model, sizes) in FLUKE_TABLE_7 {
            let mut cells = vec![system.to_string(), model.to_string()];
            cells.extend(sizes.iter().map(|size| number(*size)));
            cells.push("-".into());
            table.rows.push(cells);
        }
        let before = table.rows.len();
        for config in &self.configs {
            let bytes = self.count(config.name(), "thread_bytes");
            let with_fpu = self.count(config.name(), "thread_bytes_fpu");
            if bytes.is_some() || with_fpu.is_some() {
                table.rows.push(vec![
                    "Fermata".into(),
                    config.name().into(),
                    "-".into(),
                    "-".into(),
                    number(bytes),
                    number(with_fpu),
                ]);
            }
        }
        (table.rows.len() > before).then(|| table.merge_rows(1))
    }

    /// Fluke's section 5.5.
    pub(super) fn entry_and_exit(&self) -> Option<Table> {
        let rows = [
            ("syscall_entry", "system call: in"),
            ("syscall_exit", "system call: out"),
            ("trap_entry", "exception: in"),
            ("trap_exit", "exception: out"),
        ];
        let mut head = vec!["configuration".to_string()];
        head.extend(rows.iter().map(|row| row.1.to_string()));
        head.push("all of null_call".into());
        let mut table = Table::new(&head, &[0]);
        for config in &self.configs {
            let of = |name: &str| self.count(config.name(), name);
            if rows.iter().any(|row| of(row.0).is_some()) {
                let mut cells = vec![config.name().to_string()];
                cells.extend(rows.iter().map(|row| number(of(row.0))));
                cells.push(number(of("null_call")));
                table.rows.push(cells);
            }
        }
        some(table.merge_rows(0))
    }

    /// How many lines depend on the execution model.
    pub(super) fn lines_of_models(&self) -> Option<Table> {
        let mut table = Table::new(&["file", "for", "assembly", "Rust"], &[0, 1]);
        let mut sums = [0, 0];
        for room in &self.lines {
            sums[0] += room.lines.assembly;
            sums[1] += room.lines.rust;
            table.rows.push(vec![
                room.path.clone(),
                room.models.into(),
                grouped(room.lines.assembly),
                grouped(room.lines.rust),
            ]);
        }
        table.rows.push(vec![
            "all".into(),
            String::new(),
            grouped(sums[0]),
            grouped(sums[1]),
        ]);
        some(table)
    }

    /// Mach's Table 1, for one configuration.
    pub(super) fn mach_1(&self, config: Config) -> Option<Table> {
        let programs = [FLUKEPERF, "memtest", "sort"];
        let name = config.name();
        let mut head = vec!["blocked for".to_string()];
        for program in programs {
            head.extend([
                format!("{program}: blocks"),
                "%".into(),
                "without stack".into(),
            ]);
        }
        let mut table = Table::new(&head, &[0]);
        let of = |kind: &str, program: &str, word: &str| {
            self.count(name, &format!("{kind}_{program}{word}"))
        };
        let mut line = |title: &str, word: &str| {
            let mut cells = vec![title.to_string()];
            let mut any = false;
            for program in programs {
                let (blocks, all) = (of("blocks", program, word), of("blocks", program, ""));
                any |= blocks.is_some_and(|n| n > 0);
                cells.push(number(blocks));
                cells.push(percent(blocks, all));
                cells.push(percent(of("compression", program, word), blocks));
            }
            if any {
                table.rows.push(cells);
            }
        };
        for (word, title) in REASONS {
            line(title, &format!("_{word}"));
        }
        line("all", "");
        some(table)
    }

    /// Mach's Table 1, with the numbers of the paper.
    pub(super) fn mach_1_then(&self) -> Option<Table> {
        self.fluke_mach_blocks()?;
        let mut table = Table::new(
            &[
                "Mach MK40",
                "a compilation, %",
                "a build of the kernel, %",
                "DOS, %",
            ],
            &[0],
        );
        for (reason, percents) in MACH_TABLE_1 {
            let mut cells = vec![reason.to_string()];
            cells.extend(percents.iter().map(|p| format!("{p:.1}")));
            table.rows.push(cells);
        }
        some(table)
    }

    /// Whether blocks were counted.
    fn fluke_mach_blocks(&self) -> Option<()> {
        let counted = |config: &Config| {
            let name = format!("blocks_{FLUKEPERF}");
            self.count(config.name(), &name).is_some()
        };
        self.configs.iter().any(counted).then_some(())
    }

    /// Mach's Table 2.
    pub(super) fn mach_2(&self) -> Option<Table> {
        let mut table = Table::new(
            &[
                "system",
                "program",
                "blocks",
                "compression, %",
                "recognition, %",
                "handoff, %",
            ],
            &[0, 1],
        );
        for ((system, blocks, [recognition, handoff]), compression) in
            MACH_TABLE_2.iter().zip(MACH_TABLE_1[6].1)
        {
            let (system, program) = system.split_once(": ").unwrap_or((system, ""));
            table.rows.push(vec![
                system.into(),
                program.into(),
                grouped(*blocks),
                format!("{compression:.1}"),
                format!("{recognition:.1}"),
                format!("{handoff:.1}"),
            ]);
        }
        let before = table.rows.len();
        for config in &self.configs {
            for program in [FLUKEPERF, "memtest", "sort"] {
                let of = |kind: &str| self.count(config.name(), &format!("{kind}_{program}"));
                let blocks = of("blocks");
                if blocks.is_some() {
                    let share = |kind: &str| percent(of(kind), blocks);
                    table.rows.push(vec![
                        config.name().into(),
                        program.into(),
                        number(blocks),
                        share("compression"),
                        share("recognition"),
                        share("handoff"),
                    ]);
                }
            }
        }
        (table.rows.len() > before).then(|| table.merge_rows(0))
    }

    /// Mach's Table 4.
    pub(super) fn mach_4(&self) -> Option<Table> {
        let mut table = Table::new(
            &[
                "system",
                "null RPC",
                "exception",
                "null RPC, host ns",
                "exception, host ns",
            ],
            &[0],
        );
        for (machine, [rpc, exception]) in MACH_TABLE_4 {
            for (i, system) in ["Mach MK40", "Mach MK32", "Mach 2.5"].iter().enumerate() {
                table.rows.push(vec![
                    format!("{system} on a {machine} (µs)"),
                    grouped(rpc[i]),
                    grouped(exception[i]),
                    "-".into(),
                    "-".into(),
                ]);
            }
        }
        let before = table.rows.len();
        for config in &self.configs {
            let row = |name| self.find(config.name(), name);
            let (rpc, exception) = (row("rpc_0"), row("exception_rt"));
            if rpc.is_some() || exception.is_some() {
                let count = |row: Option<&Row>| number(row.and_then(|row| row.instructions));
                let host = |row: Option<&Row>| number(row.and_then(|row| row.host).map(|h| h[0]));
                table.rows.push(vec![
                    format!("Fermata {} (instructions)", config.name()),
                    count(rpc),
                    count(exception),
                    host(rpc),
                    host(exception),
                ]);
            }
        }
        (table.rows.len() > before).then_some(table)
    }

    /// Mach's Table 5.
    pub(super) fn mach_5(&self) -> Option<Table> {
        let configs: Vec<Config> = self
            .one_of_each()
            .into_iter()
            .filter(|config| self.find(config.name(), "rpc_0_in_entry").is_some())
            .collect();
        if configs.is_empty() {
            return None;
        }
        let mut head = vec!["part of a null RPC".to_string()];
        let names = ["Mach MK40", "Mach MK32"].into_iter();
        for name in names.chain(configs.iter().map(|config| config.name())) {
            head.extend([name.to_string(), "loads".into(), "stores".into()]);
        }
        let mut table = Table::new(&head, &[0]);
        let mut sums = vec![[0; 3]; 2 + configs.len()];
        for (_, part, title) in PARTS {
            let theirs = MACH_TABLE_5.iter().find(|row| row.0 == *part);
            let mut columns: Vec<Option<[u64; 3]>> = [0, 1]
                .map(|system| theirs.map(|row| row.1[system]))
                .to_vec();
            for config in &configs {
                let row = self.find(config.name(), &format!("rpc_0_in_{part}"));
                columns
                    .push(row.and_then(|row| Some([row.instructions?, row.loads?, row.stores?])));
            }
            let mut cells = vec![title.to_string()];
            for (sum, counts) in sums.iter_mut().zip(&columns) {
                for i in 0..3 {
                    cells.push(number(counts.map(|c| c[i])));
                    sum[i] += counts.map_or(0, |c| c[i]);
                }
            }
            table.rows.push(cells);
        }
        let mut cells = vec!["all".to_string()];
        cells.extend(sums.iter().flatten().map(|n| grouped(*n)));
        table.rows.push(cells);
        some(table)
    }
}

/// The table, if it has rows.
fn some(table: Table) -> Option<Table> {
    (!table.rows.is_empty()).then_some(table)
}

fn percent(part: Option<u64>, all: Option<u64>) -> String {
    match (part, all) {
        (Some(part), Some(all)) if all > 0 => {
            format!("{:.1}", 100.0 * part as f64 / all as f64)
        }
        _ => "-".into(),
    }
}
