//! The page, and its plot.

use std::fmt::Write as _;

use super::super::beside::said::Said;
use super::super::beside::{millions, ratio, table};
use super::super::chart::{Bar, Chart};
use super::super::table::number;
use super::{Aim, CALLS, USER, USER_TOLERANCE, WHOLE};

/// How many of the rows furthest from Linux are named.
const FURTHEST: usize = 8;

/// The results of both systems.
pub(super) struct Found {
    pub(super) linux: Said,
    pub(super) fermata: Said,
}

/// A row of the page.
struct Row {
    name: &'static str,
    what: &'static str,
    ours: Option<u64>,
    theirs: Option<u64>,
    aim: Option<u64>,
}

impl Row {
    /// The quotient of our count and Linux's.
    fn times(&self) -> Option<f64> {
        Some(self.ours? as f64 / self.theirs? as f64)
    }
}

/// Names of rows with their quotients to Linux, the largest first.
fn named(rows: &[&Row]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| f64::total_cmp(&b.times().unwrap_or(0.0), &a.times().unwrap_or(0.0)));
    let names: Vec<String> = rows
        .iter()
        .map(|row| format!("`{}` {}", row.name, ratio(row.ours, row.theirs)))
        .collect();
    match names.is_empty() {
        true => "none".into(),
        false => names.join(", "),
    }
}

impl Found {
    fn rows(&self, of: &[(&'static str, &'static str, Aim)]) -> Vec<Row> {
        let rows = of.iter().map(|&(name, what, aim)| {
            let theirs = self.linux.counted.get(name).copied();
            Row {
                name,
                what,
                ours: self.fermata.counted.get(name).copied(),
                theirs,
                aim: match aim {
                    Aim::Count(count) => Some(count),
                    Aim::OfLinux(hundredths) => theirs.map(|theirs| theirs * hundredths / 100),
                    Aim::None => None,
                },
            }
        });
        rows.collect()
    }

    /// What has failed, or differs between both systems, in words.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for (system, said) in [("Fermata", &self.fermata), ("Linux", &self.linux)] {
            let told = said.failures.iter();
            failures.extend(told.map(|failure| format!("{system}: {failure}")));
            let all = CALLS.iter().chain(&WHOLE);
            let absent = all.filter(|(name, ..)| !said.counted.contains_key(*name));
            failures.extend(absent.map(|(name, ..)| format!("{system}: {name} was not measured")));
        }
        let user = [&self.fermata, &self.linux].map(|said| said.counted.get(USER));
        let are_alike = matches!(user, [Some(ours), Some(theirs)] if ours.abs_diff(*theirs) <= ours * USER_TOLERANCE / 100);
        if !are_alike {
            failures.push(format!(
                "a loop without calls is counted as {user:?} in Fermata and in Linux"
            ));
        }
        for (name, ..) in WHOLE {
            let came = [&self.fermata, &self.linux].map(|said| said.came.get(name));
            if came[0] != came[1] || came[0].is_none() {
                failures.push(format!(
                    "{name} has not written the same: {came:?} in Fermata and in Linux"
                ));
            }
        }
        failures
    }

    pub(super) fn page(&self) -> String {
        let (calls, whole) = (self.rows(&CALLS), self.rows(&WHOLE));
        let user = |said: &Said| number(said.counted.get(USER).copied());
        let mut page = format!(
            "# Linux programs beside Linux\n\n\
             Made by `./fermata bench --beside-linux`, which fetches Debian's packages of a kernel ({}), of gcc and of Python, boots the kernel in the emulator in which Fermata runs, and has the same programs \
             run in both. What the figures are not: time on a machine. They are instructions, as in [bench.md](bench.md).\n\n\
             ![Instructions of calls and of whole programs in Fermata, in times of Linux's](linux-costs.svg)\n\n\
             ## How it is measured\n\
             * *Calls* are made by [benches/linux/program.c](../benches/linux/program.c), a static program with glibc: each row in a process of its own, as often as its table there says to warm up, and as often again while the \
             plugin `tools/count` counts. A number is one of so many, of all instructions that were executed, of the kernel, servers and programs; a call that fails ends the measurement. A loop of 1,000 turns without calls is {} \
             instructions in Fermata and {} in Linux.\n\
             * *Programs* are counted from `vfork` to the end of `waitpid`, each is run twice, and the second time counts. tar, find, dd, sort and sh are one file on both systems, Debian's static busybox. What each has written has the \
             same checksum on both.\n\
             * All files are in memory: `tmpfs` in Linux, the server `fs` in Fermata.\n\
             * The emulated processor has no XSAVE in Linux's machine, with which that kernel hangs in the emulator. Otherwise Linux is as Debian configures it: its kernel zeroes what it allocates (`INIT_ON_ALLOC_DEFAULT_ON`), checks copies to and from programs \
             (`HARDENED_USERCOPY`), has {} against Spectre, and ticks 250 times in a second, which is 4,000,000 instructions. It reads its clock from `{}`. Both machines have one processor and {} MB.\n\
             * *Aims* are what Fermata is to take at most; of whole programs, beside Linux.\n\n",
            self.linux.kernel,
            user(&self.fermata),
            user(&self.linux),
            self.linux.mitigations,
            self.linux.clock,
            super::beside::MEMORY,
        );
        in_short(&mut page, &calls, &whole);
        page.push_str("## Calls\n");
        let head = [
            "row",
            "once is",
            "Fermata",
            "Linux",
            "of Linux",
            "aim",
            "of the aim",
        ];
        let cells = |row: &Row, shown: fn(Option<u64>) -> String, aim: String| {
            vec![
                format!("`{}`", row.name),
                row.what.into(),
                shown(row.ours),
                shown(row.theirs),
                ratio(row.ours, row.theirs),
                aim,
                ratio(row.ours, row.aim),
            ]
        };
        let rows = calls.iter().map(|row| cells(row, number, number(row.aim)));
        table(&mut page, &head, rows);
        page.push_str("## Programs\n");
        let aims = |row: &Row| ratio(row.aim, row.theirs);
        let rows = whole
            .iter()
            .map(|row| cells(row, millions, format!("{} of Linux", aims(row))));
        let rows = rows.map(|mut row| {
            if row[5].starts_with('-') {
                row[5] = "-".into();
            }
            row
        });
        table(&mut page, &head, rows);
        page.truncate(page.trim_end().len());
        page.push('\n');
        page
    }

    /// The plot shows quotients: counts from a hundred to thousands of millions would hide every difference.
    pub(super) fn plot(&self) -> Option<String> {
        let series = [
            "Fermata, in times of Linux's instructions: the line is Linux",
            "aim",
        ]
        .map(String::from);
        let rows = [self.rows(&CALLS), self.rows(&WHOLE)];
        let groups = rows.into_iter().flatten().map(|row| {
            let values = [row.ours, row.aim].into_iter().enumerate();
            let bars = values.filter_map(|(series, value)| times(series, value?, row.theirs?));
            (row.name.to_string(), bars.collect())
        });
        Chart {
            series: &series,
            groups: groups.collect(),
            line: Some(1.0),
            log: false,
        }
        .svg()
    }
}

/// A bar of the plot.
fn times(series: usize, count: u64, theirs: u64) -> Option<Bar> {
    (theirs > 0).then(|| Bar {
        series,
        value: count as f64 / theirs as f64,
        label: ratio(Some(count), Some(theirs)),
        spread: None,
    })
}

/// The summary of the tables.
fn in_short(page: &mut String, calls: &[Row], whole: &[Row]) {
    page.push_str("## In short\n");
    let fewer: Vec<&Row> = calls
        .iter()
        .filter(|row| row.times().is_some_and(|times| times <= 1.0))
        .collect();
    let mut furthest: Vec<&Row> = calls
        .iter()
        .filter(|row| row.times().is_some_and(|times| times > 1.0))
        .collect();
    furthest.sort_by(|a, b| f64::total_cmp(&b.times().unwrap_or(0.0), &a.times().unwrap_or(0.0)));
    let more = furthest.len();
    furthest.truncate(FURTHEST);
    let _ = writeln!(
        page,
        "* Of {} **calls**, {} take no more instructions than in Linux: {}.\n\
         * {more} take more. **Furthest from Linux** are, in times of its instructions: {}.",
        calls.len(),
        fewer.len(),
        named(&fewer),
        named(&furthest),
    );
    let all: Vec<&Row> = whole.iter().collect();
    let _ = writeln!(
        page,
        "* **Programs**, in times of Linux's instructions: {}.",
        named(&all)
    );
    let aimed: Vec<&Row> = calls
        .iter()
        .chain(whole)
        .filter(|row| row.aim.is_some())
        .collect();
    let reached: Vec<String> = aimed
        .iter()
        .filter(|row| row.ours.is_some_and(|ours| Some(ours) <= row.aim))
        .map(|row| format!("`{}`", row.name))
        .collect();
    let _ = writeln!(
        page,
        "* Of {} **aims**, {} are reached: {}.\n",
        aimed.len(),
        reached.len(),
        match reached.is_empty() {
            true => "none".into(),
            false => reached.join(", "),
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both systems as if every row cost so much in Linux and twice that in Fermata.
    fn found_with(each: u64) -> Found {
        let said = |count: u64| {
            let all = CALLS.iter().chain(&WHOLE);
            let counted = all.map(|(name, ..)| (name.to_string(), count));
            Said {
                counted: counted.chain([(USER.to_string(), 2_000)]).collect(),
                came: WHOLE
                    .iter()
                    .map(|(name, ..)| (name.to_string(), "1 2".to_string()))
                    .collect(),
                ..Said::default()
            }
        };
        Found {
            linux: said(each),
            fermata: said(2 * each),
        }
    }

    fn found() -> Found {
        found_with(100)
    }

    #[test]
    fn the_plot_is_in_times_of_linux() {
        let mut found = found_with(1_000_000);
        found.fermata.counted.insert("getdents".into(), 8_000_000);
        let plot = found.plot().unwrap();
        assert!(plot.contains(">8.00</text>") && plot.contains(">python</text>"));
        // The longest bar is as wide as the plot, a bar for twice Linux's count is a quarter of that, and the line is
        // at an eighth.
        assert!(plot.contains("width='560.0'") && plot.contains("width='140.0'"));
        assert!(plot.contains("<path d='M240.0 "), "{plot}");
    }

    #[test]
    fn a_page_has_what_was_counted() {
        let mut found = found();
        found.fermata.counted.insert("getppid".into(), 2_100);
        found.fermata.counted.insert("clock".into(), 50);
        found.fermata.counted.insert("tar".into(), 119);
        let page = found.page();
        for line in [
            "| `getppid` | `getppid` | 2,100 | 100 | 21.00 | 700 | 3.00 |",
            "| `clock` | `clock_gettime` by the C library | 50 | 100 | 0.50 | 78 | 0.64 |",
            "| `lseek` | `lseek` | 200 | 100 | 2.00 | - | - |",
            "| `sort` | `sort` of 10,000 lines | 0.0 M | 0.0 M | 2.00 | - | - |",
            "* Of 21 **calls**, 1 take no more instructions than in Linux: `clock` 0.50.",
        ] {
            assert!(page.contains(&format!("{line}\n")), "{line}\n{page}");
        }
        assert!(page.contains("| 0.0 M | 1.19 | 1.20 of Linux | 0.99 |"));
        assert!(page.contains("* 20 take more. **Furthest from Linux** are, in times of its instructions: `getppid` 21.00, "));
        assert!(page.contains("are reached: `clock`, "));
    }

    #[test]
    fn what_is_not_the_same_on_both_systems_is_told() {
        assert!(found().failures().is_empty());
        let mut other = found();
        other.linux.came.insert("tar".into(), "3 4".into());
        other.fermata.counted.remove("futex");
        other.linux.failures.push("gcc: status 127".into());
        let failures = other.failures();
        assert_eq!(failures.len(), 3, "{failures:?}");
        assert!(failures[0].starts_with("Fermata: futex"));
        assert!(failures[1].starts_with("Linux: gcc"));
        assert!(failures[2].starts_with("tar has not written the same"));
        let mut silent = found();
        for said in [&mut silent.linux, &mut silent.fermata] {
            said.came.remove("dd");
        }
        assert_eq!(silent.failures().len(), 1);
        let mut unlike = found();
        unlike.linux.counted.insert(USER.into(), 2_021);
        assert!(unlike.failures()[0].starts_with("a loop without calls"));
        unlike.linux.counted.insert(USER.into(), 2_020);
        assert!(unlike.failures().is_empty());
    }

    /// The page's numbers for Fermata must be near the thresholds that `test` checks: within a tenth, and what a C
    /// library adds. Otherwise the page has to be made anew.
    #[test]
    fn the_page_is_not_stale() {
        const HELD: [&str; 9] = [
            "getppid",
            "lseek",
            "write_null",
            "stat",
            "open_close",
            "pread_1",
            "pread_4096",
            "signal",
            "pipe",
        ];
        const LIBRARY: u64 = 150;
        let page = include_str!("../../../../docs/linux-costs.md");
        let thresholds = include_str!("../../../../benches/thresholds.json");
        let thresholds: serde_json::Value = serde_json::from_str(thresholds).unwrap();
        let counts = &thresholds["counts"]["interrupt-np"];
        for name in HELD {
            let begin = format!("| `{name}` |");
            let row = page.lines().find(|line| line.starts_with(&begin)).unwrap();
            let said = row.split(" | ").nth(2).unwrap().replace(',', "");
            let said: u64 = said.parse().unwrap();
            let held = counts[format!("linux_{name}")].as_u64().unwrap();
            assert!(
                said.abs_diff(held) <= held / 10 + LIBRARY,
                "docs/linux-costs.md: {name}: {said}, and {held} are held"
            );
        }
    }
}
