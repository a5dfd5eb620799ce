//! Shows results: tables on the terminal, and a self-contained page with plots. [`sections`] is the content of both.

use std::fmt::Write;

use super::chart::{bar, Bar, Chart};
use super::devices;
use super::papers::AIMED;
use super::parts::PARTS;
use super::references;
use super::table::{escaped, grouped, joined, number, Table};
use super::{Group, Results, Row, FLUKEPERF};
use xtask_build::config::Config;

/// A part of the report.
struct Section {
    title: String,
    note: String,
    content: Content,
}

/// What a section shows.
enum Content {
    Table(Table),
    /// Only on the page: the name of the chart's file, and the chart.
    Chart(&'static str, String),
    /// Only on the page: too wide or too long for a terminal.
    Wide(Table),
}

impl Results {
    /// The meaning of the columns of host time.
    fn about_host_time(&self) -> String {
        match self.rounds {
            0 => "host time was not taken".into(),
            1 => "host time of one run".into(),
            rounds => format!("host time is the median of {rounds} runs, taken in turns"),
        }
    }

    /// Names of rows in the order in which they were measured, without those that have tables of their own.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in self.rows.iter().flatten() {
            if plain(row) && !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        names
    }

    /// All measurements of a configuration.
    fn table(&self, config: Config) -> Table {
        let mut table = Table::new(
            &[
                "name",
                "unit",
                "instructions",
                "loads",
                "stores",
                "host ns",
                "least",
                "most",
                "operations",
                "goal",
                "seL4",
                "Linux",
            ],
            &[0, 1],
        );
        let index = self.configs.iter().position(|c| *c == config).unwrap_or(0);
        for row in self.rows[index].iter().filter(|row| plain(row)) {
            let known = references::of(&row.name);
            let goal = known
                .and_then(|k| k.goal)
                .filter(|_| config.name() == AIMED);
            let host = |i: usize| number(row.host.map(|host| host[i]));
            table.rows.push(vec![
                row.name.clone(),
                row.unit.clone(),
                number(row.instructions),
                number(row.loads),
                number(row.stores),
                host(0),
                host(1),
                host(2),
                grouped(row.repetitions),
                number(goal),
                number(known.and_then(|k| k.sel4)),
                number(known.and_then(|k| k.linux).map(|l| l.0)),
            ]);
        }
        table
    }

    fn series(&self) -> Vec<String> {
        let names = self.configs.iter().map(|config| config.name().to_string());
        names.collect()
    }

    /// Instructions beside those of other systems and the goals.
    fn chart_of_references(&self) -> Option<String> {
        let mut series: Vec<String> = self.series();
        let others = series.len();
        series.push(format!("goal, for {AIMED}"));
        series.push("seL4".into());
        let mut groups = Vec::new();
        for known in references::REFERENCES {
            let mut bars: Vec<Bar> = Vec::new();
            for (index, config) in self.configs.iter().enumerate() {
                let count = self.count(config.name(), known.name);
                bars.extend(count.map(|count| bar(index, count)));
            }
            if bars.is_empty() || known.name == "thread_bytes" {
                continue;
            }
            bars.extend(known.goal.map(|goal| bar(others, goal)));
            bars.extend(known.sel4.map(|sel4| bar(others + 1, sel4)));
            groups.push((known.name.to_string(), bars));
        }
        chart(&series, groups, None, false)
    }

    /// These benchmarks in every configuration, as a ratio to the base.
    fn chart_of_configs(&self, names: &[&str]) -> Option<String> {
        if self.configs.len() < 2 {
            return None;
        }
        let base = self.base();
        let mut groups = Vec::new();
        for &name in names {
            let Some(first) = self.count(base, name).filter(|first| *first > 0) else {
                continue;
            };
            let bars = self.configs.iter().enumerate();
            let bars = bars.filter_map(|(series, config)| {
                let value = self.count(config.name(), name)? as f64 / first as f64;
                Some(Bar {
                    series,
                    value,
                    label: format!("{value:.3}"),
                    spread: None,
                })
            });
            groups.push((name.to_string(), bars.collect()));
        }
        chart(&self.series(), groups, Some(1.0), false)
    }

    /// The host's time of what takes less than 20 µs, with its spread. Configurations that execute the same
    /// number of instructions differ by chance only: they have one bar.
    fn chart_of_host_times(&self) -> Option<String> {
        let mut groups = Vec::new();
        for name in self.names() {
            let rows = self.configs.iter().enumerate();
            let rows: Vec<(usize, Option<u64>, [u64; 3])> = rows
                .filter_map(|(series, config)| {
                    let row = self.find(config.name(), name)?;
                    let host = row.host.filter(|host| host[2] < 20_000)?;
                    Some((series, row.instructions, host))
                })
                .collect();
            let bars = rows.iter().map(|&(series, count, host)| {
                let alike = |row: &&(usize, Option<u64>, [u64; 3])| match count {
                    Some(_) => row.1 == count,
                    None => row.0 == series,
                };
                let mut medians = Vec::new();
                let (mut least, mut most) = (host[1], host[2]);
                for (_, _, other) in rows.iter().filter(alike) {
                    medians.push(other[0]);
                    (least, most) = (least.min(other[1]), most.max(other[2]));
                }
                let [value, ..] = crate::median(&mut medians);
                Bar {
                    series,
                    value: value as f64,
                    label: format!("{} ns", grouped(value)),
                    spread: Some((least as f64, most as f64)),
                }
            });
            let bars: Vec<Bar> = bars.collect();
            if !bars.is_empty() {
                groups.push((name.to_string(), bars));
            }
        }
        chart(&self.series(), groups, None, false)
    }

    /// Requests to devices, of disks or of networks, of the first configuration that has them.
    fn chart_of_devices(&self, of_disk: bool) -> Option<String> {
        let mut series: Vec<String> = devices::PLACEMENTS.map(|(name, _)| name.into()).into();
        series.push("Linux".into());
        let of_devices =
            |row: &&Row| row.group == Group::Devices && devices::is_of_disk(&row.name) == of_disk;
        let rows = self
            .rows
            .iter()
            .find(|rows| rows.iter().any(|row| of_devices(&row)))?;
        let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
        for row in rows.iter().filter(of_devices) {
            let (Some(driver), Some(placement)) = (&row.driver, row.placement) else {
                continue;
            };
            let title = format!("{}, {driver}", row.name);
            let at = series.iter().position(|name| name == placement);
            let Some(bar_of_row) = at.zip(row.instructions).map(|(at, count)| bar(at, count))
            else {
                continue;
            };
            match groups.iter_mut().find(|(name, _)| *name == title) {
                Some((_, bars)) => bars.push(bar_of_row),
                None => groups.push((title, vec![bar_of_row])),
            }
        }
        for (title, bars) in &mut groups {
            let (name, driver) = title.split_once(", ").unwrap_or((title, ""));
            let linux = references::of_device(name, driver).and_then(|known| known.linux);
            bars.extend(linux.map(|linux| bar(2, linux)));
        }
        chart(&series, groups, None, false)
    }

    /// A group of bars for each of these rows.
    fn chart_of_rows(&self, names: &[(&str, &str)], log: bool) -> Option<String> {
        let groups = names
            .iter()
            .map(|(name, title)| {
                let bars = self.configs.iter().enumerate();
                let bars = bars.filter_map(|(series, config)| {
                    Some(bar(series, self.count(config.name(), name)?))
                });
                (title.to_string(), bars.collect())
            })
            .filter(|(_, bars): &(String, Vec<Bar>)| !bars.is_empty())
            .collect();
        chart(&self.series(), groups, None, log)
    }
}

fn chart(
    series: &[String],
    groups: Vec<(String, Vec<Bar>)>,
    line: Option<f64>,
    log: bool,
) -> Option<String> {
    Chart {
        series,
        groups,
        line,
        log,
    }
    .svg()
}

/// Whether the row is in the table of its configuration; the others have tables of their own.
fn plain(row: &Row) -> bool {
    matches!(row.group, Group::Operation | Group::Latency)
}

/// All sections of the report, in order.
fn sections(results: &Results) -> Vec<Section> {
    let mut sections = Vec::new();
    let mut add = |title: &str, note: &str, content: Option<Content>| {
        sections.extend(content.map(|content| Section {
            title: title.into(),
            note: note.into(),
            content,
        }));
    };
    let (table, wide) = (
        |t: Option<Table>| t.map(Content::Table),
        |t: Option<Table>| t.map(Content::Wide),
    );
    let picture = |name, svg: Option<String>| svg.map(|svg| Content::Chart(name, svg));
    let base = results.base();
    for &config in &results.configs {
        let note = format!(
            "Interrupts are masked {}; {}.",
            match config.irq.name() {
                "hardware" => "in hardware",
                _ => "optimistically",
            },
            results.about_host_time()
        );
        add(config.name(), &note, table(Some(results.table(config))));
    }
    add(
        "Devices",
        "Instructions of a request to a device, from the program that asks until it has its answer, of all that runs meanwhile; time in \
         which the machine idles is none. Of a network both ends.",
        table(results.devices()),
    );
    for (title, name, of_disk) in [
        ("Devices: disks", "devices-disk.svg", true),
        ("Devices: networks", "devices-net.svg", false),
    ] {
        add(
            title,
            "Instructions of a request, beside those of Linux's driver of the same device in Linux. Shorter is better.",
            picture(name, results.chart_of_devices(of_disk)),
        );
    }
    add(
        "Goals",
        "Instructions per operation, or bytes, unless the name says otherwise.",
        table(results.goals()),
    );
    add(
        "Instructions, and what others need",
        "seL4 16 with its fast path and without mitigations, on the same emulator. Shorter is better. A bar \
         with several samples beside it stands for all of them.",
        picture("references.svg", results.chart_of_references()),
    );
    add(
        "Configurations compared",
        &format!("Instructions, and bytes of kernel memory, divided by those of {base}."),
        picture(
            "configurations.svg",
            results.chart_of_configs(&results.names()),
        ),
    );
    add(
        "All configurations",
        &format!("Instructions, and their ratio to {base}."),
        wide(results.comparison()),
    );
    add(
        "Host time",
        &format!(
            "{}; the line goes from the least to the most. Configurations that execute the same number of \
             instructions share a bar: the median of their medians.",
            results.about_host_time()
        ),
        picture("host-time.svg", results.chart_of_host_times()),
    );
    add(
        "Fluke, Table 3: restarts",
        "What a fault in the middle of client_connect_send_over_receive costs: the remedy, and what \
         is done twice because of it. Fluke in microseconds, Fermata in instructions. A soft fault is \
         found in the middle of the call, which goes on: there is nothing to roll back.",
        table(results.fluke_3()),
    );
    add(
        "Fluke, Table 5: programs",
        &format!(
            "Normalized to {base}. Fluke: time on a 200 MHz Pentium Pro; Fermata: instructions, and \
             host time beside it."
        ),
        table(results.fluke_5()),
    );
    add(
        "Programs",
        &format!("Instructions, divided by those of {base}."),
        picture(
            "programs.svg",
            results.chart_of_configs(&["memtest", FLUKEPERF, "sort"]),
        ),
    );
    add(
        "Fluke, Table 6: latency",
        "A thread of the highest priority that sleeps until a deadline, every millisecond (Fluke) or \
         every million instructions (Fermata), while flukeperf runs: how late it is, on average and \
         at most, how often it ran, and how often it missed its turn.",
        table(results.fluke_6()),
    );
    add(
        "Latency",
        "Instructions from the deadline to the thread's first instruction; every tenfold is equally \
         long.",
        picture("latency.svg", results.chart_of_rows(
            &[("latency_avg", "average"), ("latency_worst", "worst")],
            true,
        )),
    );
    add(
        "Fluke, Table 7: memory",
        "Bytes of kernel memory per thread, of 10,000 that are blocked in thirteen ways; stacks are \
         counted. The area for FPU and SSE registers is apart, as it is in the paper.",
        table(results.fluke_7()),
    );
    add(
        "Memory",
        "Bytes of kernel memory per thread; every tenfold is equally long.",
        picture(
            "memory.svg",
            results.chart_of_rows(
                &[
                    ("thread_bytes", "without FPU"),
                    ("thread_bytes_fpu", "with FPU"),
                ],
                true,
            ),
        ),
    );
    add(
        "Fluke, section 5.5: entry and exit",
        "Instructions from the user's last one to the first of the kernel's Rust code, and from its \
         last to the user's next. (Fluke: the interrupt model costs 6 cycles more than the 70 that \
         the hardware needs.)",
        table(results.entry_and_exit()),
    );
    add(
        "Lines that depend on the execution model",
        "Lines of code of the files in which alone something may depend on the model, without comments \
         and tests: most of them are the same for all. (Fluke: two hundred of assembly language and fifty \
         of C.)",
        table(results.lines_of_models()),
    );
    add(
        "Mach, Table 1, as it was: compression",
        "Blocks that used compression, by reason, in percent of all blocks.",
        table(results.mach_1_then()),
    );
    let few = results.one_of_each();
    // Configurations whose tables do not differ share one.
    let mut tables: Vec<(String, Table, Vec<Config>)> = Vec::new();
    for &config in &results.configs {
        if let Some(found) = results.mach_1(config) {
            let text = found.text();
            match tables.iter_mut().find(|(other, ..)| *other == text) {
                Some((.., same)) => same.push(config),
                None => tables.push((text, found, vec![config])),
            }
        }
    }
    for (_, found, same) in tables {
        let names: Vec<&str> = same.iter().map(|config| config.name()).collect();
        let content = if same.iter().any(|config| few.contains(config)) {
            table(Some(found))
        } else {
            wide(Some(found))
        };
        add(
            &format!("Mach, Table 1: compression, {}", joined(&names)),
            "How often threads block, for what, and how many of these blocks left no kernel stack \
             behind, in percent.",
            content,
        );
    }
    add(
        "Mach, Table 2: recognition and handoff",
        "Shares of all blocks. Recognition: the call of the thread was completed in its frame by \
         who woke it. Handoff: the next thread went on on the same stack.",
        table(results.mach_2()),
    );
    add(
        "Mach, Table 4: RPC and exception",
        "In Mach's exception test client and server share an address space; in Fermata's they do \
         not.",
        table(results.mach_4()),
    );
    add(
        "Mach, Table 5: RPC by component",
        "Instructions, loads and stores, request and reply together. Mach on a DECstation 3100 \
         (MIPS), Fermata on x86-64.",
        table(results.mach_5()),
    );
    add(
        "Stodolsky, Tables 1 and 2: masking interrupts",
        "What a pair costs, masking and unmasking, so that it can be nested: ours, and theirs in \
         instructions and cycles. Host time is the emulator's; all ways took turns in one machine.",
        table(results.stodolsky_1()),
    );
    add(
        "Stodolsky, Table 3: a null RPC with each way to mask",
        "Instructions of rpc_0, or cycles. Without full preemption the kernel has no sections in which \
         it masks: there the ways do not differ.",
        table(results.stodolsky_3()),
    );
    add(
        "A null RPC with each way to mask",
        "rpc_0 in a kernel that runs with interrupts on and masks them in the core of its scheduler. \
         Kernels that mask there by a controller are built for this table only, and have no other \
         interrupts than those that it masks. Host time is the emulator's, of boots in turn.",
        table(results.rpc_by_way()),
    );
    let parts: Vec<(String, &str)> = PARTS
        .iter()
        .map(|(_, name, _)| (format!("rpc_0_in_{name}"), *name))
        .collect();
    let parts: Vec<(&str, &str)> = parts.iter().map(|(row, name)| (&row[..], *name)).collect();
    add(
        "RPC by component",
        "Instructions.",
        picture("rpc.svg", results.chart_of_rows(&parts, false)),
    );
    sections
}

/// Prints all tables.
pub(super) fn print(results: &Results) {
    for section in sections(results) {
        if let Content::Table(table) = section.content {
            println!("\n{}\n{}\n\n{}", section.title, section.note, table.text());
        }
    }
    for note in &results.notes {
        println!("note: {note}");
    }
    println!();
}

/// A plot as a file of its own, with the style and the background that the page would give it.
pub(super) fn alone(svg: String, title: &str, description: &str) -> String {
    let begin = format!(
        "><title>{}</title><desc>{}</desc><style>text{{font:12px system-ui,sans-serif;fill:#222}}</style>\
         <rect width='100%' height='100%' fill='#fff'/>",
        escaped(title),
        escaped(description)
    );
    svg.replacen('>', &begin, 1)
}

/// The plots, and the names of their files.
pub(super) fn plots(results: &Results) -> Vec<(&'static str, String)> {
    sections(results)
        .into_iter()
        .filter_map(|section| match section.content {
            Content::Chart(name, svg) => Some((name, alone(svg, &section.title, &section.note))),
            _ => None,
        })
        .collect()
}

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:62em;margin:2em auto;\
padding:0 1em;color:#222;background:#fff}h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2.2em}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9em}\
th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid #e4e4e4}\
th{border-bottom:1px solid #888;vertical-align:bottom}.l{text-align:left}\
p.note{color:#555;font-size:.9em;max-width:48em}.wide{overflow-x:auto}svg{max-width:100%}\
svg text{font:12px system-ui,sans-serif;fill:#222}";

/// The whole page.
pub(super) fn page(results: &Results) -> String {
    let mut body = String::from(
        "<h1>Fermata: what the kernel's operations cost</h1>\
         <p>Instructions are retired instructions of the guest, user code of both sides included, \
         exactly repeatable; loads and stores are those of the same run. Host time is taken in other \
         runs, without counting, and says what the emulator needs: an instruction count hides what a \
         change of the address space or of the privilege costs. All numbers are per operation.</p>",
    );
    // The charts come first; the table of each configuration is for reference.
    let (tables, rest): (Vec<_>, Vec<_>) = sections(results)
        .into_iter()
        .partition(|section| results.configs.iter().any(|c| c.name() == section.title));
    for section in rest.into_iter().chain(tables) {
        let content = match section.content {
            Content::Table(table) | Content::Wide(table) => table.html(),
            Content::Chart(_, svg) => svg,
        };
        let _ = write!(
            body,
            "<h2>{}</h2><p class=note>{}</p><div class=wide>{content}</div>",
            escaped(&section.title),
            escaped(&section.note)
        );
    }
    for note in &results.notes {
        let _ = write!(body, "<p class=note>{}</p>", escaped(note));
    }
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'>\
         <title>Fermata: benchmarks</title><style>{STYLE}</style><body>{body}</body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask_build::config::Model;

    fn row(name: &str, group: Group, count: u64) -> Row {
        Row {
            name: name.into(),
            unit: "rpc".into(),
            group,
            instructions: Some(count),
            loads: Some(10),
            stores: Some(5),
            host: Some([100, 90, 120]),
            repetitions: 2000,
            ..Row::default()
        }
    }

    #[test]
    fn configurations_that_do_the_same_share_a_bar_of_host_time() {
        let timed = |count, host| Row {
            host: Some(host),
            ..row("rpc_0", Group::Operation, count)
        };
        let results = Results {
            configs: vec![
                Config::hardware(Model::ProcessNp),
                Config::hardware(Model::InterruptNp),
                Config::hardware(Model::InterruptPp),
            ],
            rounds: 5,
            rows: vec![
                vec![timed(520, [140, 130, 150])],
                vec![timed(500, [100, 90, 120])],
                vec![timed(500, [110, 95, 125])],
            ],
            masks: Vec::new(),
            lines: Vec::new(),
            notes: Vec::new(),
            failures: Vec::new(),
        };
        let chart = results.chart_of_host_times().expect("a chart");
        assert_eq!(chart.matches(" ns<").count(), 2, "{chart}");
        assert!(
            chart.contains("140 ns<") && chart.contains("105 ns<"),
            "{chart}"
        );
    }

    #[test]
    fn a_page_is_made_of_what_there_is() {
        let mut results = Results {
            configs: vec![
                Config::hardware(Model::ProcessNp),
                Config::hardware(Model::InterruptNp),
            ],
            rounds: 5,
            rows: vec![
                vec![row("rpc_0", Group::Operation, 520)],
                vec![
                    row("rpc_0", Group::Operation, 500),
                    row("latency_worst", Group::Latency, 1999),
                    row("rpc_0_in_entry", Group::Parts, 66),
                    row("remedy_client_hard", Group::Restarts, 4000),
                    row("rollback_client_hard", Group::Restarts, 100),
                    row("blocks_flukeperf", Group::Blocks, 200),
                    row("recognition_flukeperf", Group::Blocks, 150),
                ],
            ],
            masks: Vec::new(),
            lines: Vec::new(),
            notes: vec!["a < b".into()],
            failures: Vec::new(),
        };
        let page = page(&results);
        for part in [
            "<svg",
            "Mach, Table 5",
            "0.962",
            "1,167",
            "a &lt; b",
            "100 ns",
            "missed",
            "0.025",
            "75.0",
            "1,999",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("Fluke, Table 5"));
        // Every element that is opened is closed.
        for tag in ["table", "svg", "div", "p", "h2", "tr", "td", "th", "text"] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        results.rows = vec![Vec::new(), Vec::new()];
        assert!(!super::page(&results).contains("<svg"));
    }
}
