//! Shows results: tables on the terminal, and a page with plots that needs nothing else.

use std::fmt::Write;

use super::references::{self, FLUKE_TABLE_5, FLUKE_TABLE_7, MACH_TABLE_5};
use super::{Results, Row, FLUKEPERF};
use crate::config::Config;

/// The configuration that others are compared with.
const BASE: &str = "process-np";
/// The configuration that the goals are for.
const AIMED: &str = "interrupt-np";

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "-".into(), grouped)
}

/// With a comma after every three digits.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A table: columns aligned, the first to the left.
struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns that are text.
    left: &'static [usize],
}

impl Table {
    fn new(head: &[&str], left: &'static [usize]) -> Self {
        Self {
            head: head.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
            left,
        }
    }

    fn text(&self) -> String {
        let columns = self.head.len();
        let widths: Vec<usize> = (0..columns)
            .map(|c| {
                let cells = self.rows.iter().chain([&self.head]);
                cells.map(|row| row[c].chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in [&self.head].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c] - cell.chars().count());
                let gap = if c > 0 { "  " } else { "" };
                if self.left.contains(&c) {
                    let _ = write!(line, "{gap}{cell}{pad}");
                } else {
                    let _ = write!(line, "{gap}{pad}{cell}");
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn html(&self) -> String {
        let mut html = String::from("<table><thead><tr>");
        let class = |c: usize| {
            if self.left.contains(&c) {
                " class=l"
            } else {
                ""
            }
        };
        for (c, cell) in self.head.iter().enumerate() {
            let _ = write!(html, "<th{}>{}</th>", class(c), escaped(cell));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (c, cell) in row.iter().enumerate() {
                let _ = write!(html, "<td{}>{}</td>", class(c), escaped(cell));
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table>");
        html
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl Results {
    fn find(&self, model: &str, name: &str) -> Option<&Row> {
        let index = self.models.iter().position(|m| m.name() == model)?;
        self.rows[index].iter().find(|row| row.name == name)
    }

    /// What the columns of host time are.
    fn about_host_time(&self) -> String {
        match self.rounds {
            0 => "host time was not taken".into(),
            1 => "host time of one run".into(),
            rounds => format!("host time is the median of {rounds} runs"),
        }
    }

    /// All names, in the order in which they were measured.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in self.rows.iter().flatten() {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        names
    }

    /// All that was measured in a configuration.
    fn table(&self, model: Config) -> Table {
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
        let index = self.models.iter().position(|m| *m == model).unwrap_or(0);
        for row in &self.rows[index] {
            let known = references::of(&row.name);
            let goal = known.and_then(|k| k.goal).filter(|_| model.name() == AIMED);
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

    /// All configurations beside each other: instructions, and their ratio to the first.
    fn comparison(&self) -> Option<Table> {
        if self.models.len() < 2 {
            return None;
        }
        let base = self.base();
        let mut head = vec!["name"];
        let titles: Vec<String> = self
            .models
            .iter()
            .map(|model| format!("{} / {base}", model.name()))
            .collect();
        for (model, title) in self.models.iter().zip(&titles) {
            head.push(model.name());
            if model.name() != base {
                head.push(title);
            }
        }
        let mut table = Table::new(&head, &[0]);
        for name in self.names() {
            let first = self.find(base, name).and_then(|row| row.instructions);
            let mut cells = vec![name.to_string()];
            for model in &self.models {
                let count = self
                    .find(model.name(), name)
                    .and_then(|row| row.instructions);
                cells.push(number(count));
                if model.name() != base {
                    cells.push(ratio(count, first));
                }
            }
            table.rows.push(cells);
        }
        Some(table)
    }

    /// What the others are compared with: the process model if it was measured.
    fn base(&self) -> &'static str {
        let has_base = self.models.iter().any(|model| model.name() == BASE);
        match self.models.first() {
            Some(first) if !has_base => first.name(),
            _ => BASE,
        }
    }

    /// Fluke's Table 5, theirs and ours.
    fn table_5(&self) -> Option<Table> {
        let mut table = Table::new(
            &[
                "configuration",
                "memtest, Fluke",
                "memtest",
                "flukeperf, Fluke",
                "flukeperf",
                "gcc, Fluke",
                "busybox sort",
            ],
            &[0],
        );
        let base = self.base();
        let mut names: Vec<&str> = FLUKE_TABLE_5.iter().map(|row| row.0).collect();
        names.extend(
            self.models
                .iter()
                .map(|m| m.name())
                .filter(|m| !FLUKE_TABLE_5.iter().any(|r| r.0 == *m)),
        );
        let mut any = false;
        for config in names {
            let theirs = FLUKE_TABLE_5.iter().find(|row| row.0 == config);
            let mut cells = vec![config.to_string()];
            for (i, name) in ["memtest", FLUKEPERF, "sort"].into_iter().enumerate() {
                cells.push(theirs.map_or_else(|| "-".into(), |t| format!("{:.2}", t.1[i])));
                let count = |config| self.find(config, name).and_then(|row| row.instructions);
                any |= count(config).is_some();
                cells.push(ratio(count(config), count(base)));
            }
            table.rows.push(cells);
        }
        any.then_some(table)
    }

    /// Fluke's Table 7, theirs and ours.
    fn table_7(&self) -> Option<Table> {
        let mut table = Table::new(
            &["system", "model", "control block", "stack", "total"],
            &[0, 1],
        );
        for (system, model, sizes) in FLUKE_TABLE_7 {
            let mut cells = vec![system.to_string(), model.to_string()];
            cells.extend(sizes.iter().map(|size| number(*size)));
            table.rows.push(cells);
        }
        let before = table.rows.len();
        for model in &self.models {
            for (name, words) in [
                ("thread_bytes", "Fermata"),
                ("thread_bytes_fpu", "Fermata, with 512 for FPU and SSE"),
            ] {
                let bytes = self
                    .find(model.name(), name)
                    .and_then(|row| row.instructions);
                if let Some(bytes) = bytes {
                    table.rows.push(vec![
                        words.into(),
                        model.name().into(),
                        "-".into(),
                        "-".into(),
                        grouped(bytes),
                    ]);
                }
            }
        }
        (table.rows.len() > before).then_some(table)
    }

    /// Mach's Table 5, its last row, and ours.
    fn mach_table_5(&self) -> Option<Table> {
        let mut table = Table::new(&["null RPC", "instructions", "loads", "stores"], &[0]);
        for (system, counts) in MACH_TABLE_5 {
            let mut cells = vec![system.to_string()];
            cells.extend(counts.iter().map(|count| grouped(*count)));
            table.rows.push(cells);
        }
        let before = table.rows.len();
        for model in &self.models {
            if let Some(row) = self.find(model.name(), "rpc_0") {
                table.rows.push(vec![
                    format!("Fermata {}", model.name()),
                    number(row.instructions),
                    number(row.loads),
                    number(row.stores),
                ]);
            }
        }
        (table.rows.len() > before).then_some(table)
    }
}

fn ratio(count: Option<u64>, base: Option<u64>) -> String {
    match (count, base) {
        (Some(count), Some(base)) if base > 0 => format!("{:.3}", count as f64 / base as f64),
        _ => "-".into(),
    }
}

const TABLE_5: &str = "Ford et al., Table 5: execution normalized to process-np. Fluke: time on a \
    200 MHz Pentium Pro; Fermata: retired instructions.";
const TABLE_7: &str = "Ford et al., Table 7: bytes of kernel memory per thread.";
const MACH_5: &str =
    "Draves et al., Table 5: a null RPC between address spaces, user code included. \
    Mach on a DECstation 3100 (MIPS), Fermata on x86-64.";

/// Prints all tables.
pub(super) fn print(results: &Results) {
    for &model in &results.models {
        println!(
            "\n{}, interrupts masked in hardware; {}\n",
            model.name(),
            results.about_host_time()
        );
        print!("{}", results.table(model).text());
    }
    let tables = [
        ("Instructions, compared", results.comparison()),
        (TABLE_5, results.table_5()),
        (TABLE_7, results.table_7()),
        (MACH_5, results.mach_table_5()),
    ];
    for (title, table) in tables {
        if let Some(table) = table {
            print!("\n{title}\n\n{}", table.text());
        }
    }
    for note in &results.notes {
        println!("note: {note}");
    }
    println!();
}

// ---- the page

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:62em;margin:2em auto;\
padding:0 1em;color:#222;background:#fff}h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2.2em}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9em}\
th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid #e4e4e4}\
th{border-bottom:1px solid #888;vertical-align:bottom}.l{text-align:left}\
p.note{color:#555;font-size:.9em;max-width:48em}.wide{overflow-x:auto}svg{max-width:100%}\
svg text{font:12px system-ui,sans-serif;fill:#222}";

/// Distinguishable with any colour vision.
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999",
];

/// A bar of a chart.
struct Bar {
    series: usize,
    value: f64,
    label: String,
    /// The least and the most.
    spread: Option<(f64, f64)>,
}

/// A chart of horizontal bars in groups.
struct Chart<'a> {
    series: &'a [String],
    groups: Vec<(String, Vec<Bar>)>,
    /// A line across all bars.
    line: Option<f64>,
}

impl Chart<'_> {
    fn svg(&self) -> String {
        const LEFT: f64 = 170.0;
        const WIDTH: f64 = 560.0;
        const RIGHT: f64 = 130.0;
        const BAR: f64 = 14.0;
        let most = self
            .groups
            .iter()
            .flat_map(|group| &group.1)
            .map(|bar| bar.spread.map_or(bar.value, |s| s.1.max(bar.value)))
            .fold(self.line.unwrap_or(0.0), f64::max)
            .max(1e-9);
        let x = |value: f64| LEFT + WIDTH * value / most;
        let mut body = String::new();
        let mut y = 8.0;
        for (index, name) in self.series.iter().enumerate() {
            let _ = write!(
                body,
                "<rect x='{LEFT}' y='{y}' width='10' height='10' fill='{}'/>\
                 <text x='{}' y='{}'>{}</text>",
                COLOURS[index % COLOURS.len()],
                LEFT + 15.0,
                y + 10.0,
                escaped(name)
            );
            y += 16.0;
        }
        y += 6.0;
        let top = y;
        for (name, bars) in &self.groups {
            let middle = y + BAR * bars.len() as f64 / 2.0 + 4.0;
            let _ = write!(
                body,
                "<text x='{}' y='{middle}' text-anchor='end'>{}</text>",
                LEFT - 8.0,
                escaped(name)
            );
            for bar in bars {
                let _ = write!(
                    body,
                    "<rect x='{LEFT}' y='{y:.1}' width='{:.1}' height='{}' fill='{}'/>",
                    (x(bar.value) - LEFT).max(0.5),
                    BAR - 2.0,
                    COLOURS[bar.series % COLOURS.len()]
                );
                let mut end = x(bar.value);
                if let Some((least, most)) = bar.spread {
                    let at = y + BAR / 2.0 - 1.0;
                    let _ = write!(
                        body,
                        "<path d='M{:.1} {at:.1}H{:.1}M{:.1} {:.1}v6M{:.1} {:.1}v6' \
                         stroke='#222' fill='none'/>",
                        x(least),
                        x(most),
                        x(least),
                        at - 3.0,
                        x(most),
                        at - 3.0
                    );
                    end = end.max(x(most));
                }
                let _ = write!(
                    body,
                    "<text x='{:.1}' y='{:.1}'>{}</text>",
                    end + 5.0,
                    y + BAR - 3.5,
                    escaped(&bar.label)
                );
                y += BAR;
            }
            y += 8.0;
        }
        if let Some(line) = self.line {
            let _ = write!(
                body,
                "<path d='M{0:.1} {top}V{y}' stroke='#888' stroke-dasharray='4 3'/>",
                x(line)
            );
        }
        let width = LEFT + WIDTH + RIGHT;
        format!(
            "<svg viewBox='0 0 {width} {y}' width='{width}' height='{y}' role='img' \
             xmlns='http://www.w3.org/2000/svg'>{body}</svg>"
        )
    }
}

/// Instructions beside what others need and what is wanted.
fn chart_of_references(results: &Results) -> Option<String> {
    let mut series: Vec<String> = results
        .models
        .iter()
        .map(|model| format!("Fermata {}", model.name()))
        .collect();
    let others = series.len();
    series.push(format!("goal, for {AIMED}"));
    series.push("seL4".into());
    let mut groups = Vec::new();
    for known in references::REFERENCES {
        let mut bars: Vec<Bar> = Vec::new();
        for (index, model) in results.models.iter().enumerate() {
            let count = results
                .find(model.name(), known.name)
                .and_then(|row| row.instructions);
            bars.extend(count.map(|count| bar(index, count)));
        }
        if bars.is_empty() || known.name == "thread_bytes" {
            continue;
        }
        bars.extend(known.goal.map(|goal| bar(others, goal)));
        bars.extend(known.sel4.map(|sel4| bar(others + 1, sel4)));
        groups.push((known.name.to_string(), bars));
    }
    (!groups.is_empty()).then(|| {
        Chart {
            series: &series,
            groups,
            line: None,
        }
        .svg()
    })
}

fn bar(series: usize, value: u64) -> Bar {
    Bar {
        series,
        value: value as f64,
        label: grouped(value),
        spread: None,
    }
}

/// Every benchmark in every configuration, as a ratio to the first.
fn chart_of_models(results: &Results) -> Option<String> {
    if results.models.len() < 2 {
        return None;
    }
    let series: Vec<String> = results
        .models
        .iter()
        .map(|m| m.name().to_string())
        .collect();
    let base = results.base();
    let mut groups = Vec::new();
    for name in results.names() {
        let count = |model: &str| results.find(model, name).and_then(|row| row.instructions);
        let Some(first) = count(base).filter(|first| *first > 0) else {
            continue;
        };
        let bars = results
            .models
            .iter()
            .enumerate()
            .filter_map(|(index, model)| {
                let value = count(model.name())? as f64 / first as f64;
                Some(Bar {
                    series: index,
                    value,
                    label: format!("{value:.3}"),
                    spread: None,
                })
            });
        groups.push((name.to_string(), bars.collect()));
    }
    (!groups.is_empty()).then(|| {
        Chart {
            series: &series,
            groups,
            line: Some(1.0),
        }
        .svg()
    })
}

/// The host's time of what takes less than 20 µs, with its spread.
fn chart_of_host_times(results: &Results) -> Option<String> {
    let series: Vec<String> = results
        .models
        .iter()
        .map(|m| m.name().to_string())
        .collect();
    let mut groups = Vec::new();
    for name in results.names() {
        let mut bars = Vec::new();
        for (index, model) in results.models.iter().enumerate() {
            let host = results.find(model.name(), name).and_then(|row| row.host);
            if let Some([median, least, most]) = host.filter(|host| host[2] < 20_000) {
                bars.push(Bar {
                    series: index,
                    value: median as f64,
                    label: format!("{} ns", grouped(median)),
                    spread: Some((least as f64, most as f64)),
                });
            }
        }
        if !bars.is_empty() {
            groups.push((name.to_string(), bars));
        }
    }
    (!groups.is_empty()).then(|| {
        Chart {
            series: &series,
            groups,
            line: None,
        }
        .svg()
    })
}

/// The whole page.
pub(super) fn page(results: &Results) -> String {
    let mut body = String::from(
        "<h1>Fermata: what the kernel's operations cost</h1>\
         <p>Instructions are retired instructions of the guest, user code of both sides included, \
         exactly repeatable; loads and stores are those of the same run. Host time is taken in other \
         runs, without counting, and says what the emulator needs: an instruction count hides what a \
         change of the address space or of the privilege costs. All numbers are per operation.</p>",
    );
    let section = |body: &mut String, title: &str, note: &str, content: Option<String>| {
        if let Some(content) = content {
            let _ = write!(
                body,
                "<h2>{}</h2><p class=note>{}</p><div class=wide>{content}</div>",
                escaped(title),
                escaped(note)
            );
        }
    };
    section(
        &mut body,
        "Instructions, and what others need",
        "seL4 16 with its fast path and without mitigations, on the same emulator. Shorter is better.",
        chart_of_references(results),
    );
    section(
        &mut body,
        "Configurations compared",
        &format!(
            "Instructions, and bytes of kernel memory, divided by those of {}.",
            results.base()
        ),
        chart_of_models(results),
    );
    section(
        &mut body,
        "Host time",
        &format!(
            "Median of {} runs, with the least and the most.",
            results.rounds
        ),
        chart_of_host_times(results),
    );
    section(
        &mut body,
        "Fluke, Table 5",
        TABLE_5,
        results.table_5().map(|t| t.html()),
    );
    section(
        &mut body,
        "Fluke, Table 7",
        TABLE_7,
        results.table_7().map(|t| t.html()),
    );
    section(
        &mut body,
        "Mach, Table 5",
        MACH_5,
        results.mach_table_5().map(|t| t.html()),
    );
    section(
        &mut body,
        "Instructions",
        "All configurations.",
        results.comparison().map(|t| t.html()),
    );
    for &model in &results.models {
        section(
            &mut body,
            model.name(),
            "Interrupts masked in hardware.",
            Some(results.table(model).html()),
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
    use crate::config::Model;

    #[test]
    fn numbers_are_grouped() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(value), text);
        }
    }

    #[test]
    fn a_page_is_made_of_what_there_is() {
        let row = |name: &str, count| Row {
            name: name.into(),
            unit: "rpc".into(),
            instructions: Some(count),
            loads: Some(10),
            stores: Some(5),
            host: Some([100, 90, 120]),
            repetitions: 2000,
        };
        let mut results = Results {
            models: vec![
                Config::hardware(Model::ProcessNp),
                Config::hardware(Model::InterruptNp),
            ],
            rounds: 5,
            rows: vec![vec![row("rpc_0", 520)], vec![row("rpc_0", 500)]],
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
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("Fluke, Table 5"));
        results.rows = vec![Vec::new(), Vec::new()];
        assert!(!super::page(&results).contains("<svg"));
    }
}
