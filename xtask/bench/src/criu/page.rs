//! The page, and its plot.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::beside::{millions, ratio, table};
use super::super::chart::{Bar, Chart};
use super::super::table::number;
use super::said::Said;
use super::{ALL_OPTIONS, CUT, SHARE, SIZES, STATES, WAYS};

/// The results of both systems.
pub(super) struct Found {
    pub(super) linux: Said,
    pub(super) fermata: Said,
    pub(super) native: BTreeMap<String, u64>,
}

/// A bar of the plot, whose scale begins at a million.
fn in_millions(series: usize, count: u64) -> Bar {
    Bar {
        series,
        value: count as f64 / 1e6,
        label: millions(Some(count)),
        spread: None,
    }
}

/// What a call returned, for readers; empty if it is right.
pub(super) fn returned(came: Option<&String>) -> String {
    match came.map(|came| came.split_once(", ")) {
        Some(Some(("right", _))) => "right".into(),
        Some(Some((_, value))) => {
            let value = value.strip_suffix(", early").unwrap_or(value);
            match value.strip_prefix("-1 ") {
                Some(error) => format!("**`{error}`**"),
                None => {
                    let value = value.split(' ').next().unwrap_or_default();
                    format!("**{value}, early**")
                }
            }
        }
        _ => "**never returned**".into(),
    }
}

impl Found {
    fn native(&self, what: &str, size: u64) -> Option<u64> {
        self.native
            .get(&format!("checkpoint_{what}_{size}"))
            .copied()
    }

    /// Instructions for each additional byte.
    fn share(&self, of: impl Fn(u64) -> Option<u64>) -> String {
        let [less, more] = SHARE;
        match (of(less), of(more)) {
            (Some(few), Some(many)) => {
                let bytes = ((more - less) << 20) as f64;
                format!("{:.2}", many.saturating_sub(few) as f64 / bytes)
            }
            _ => "-".into(),
        }
    }

    /// The table of an operation that commands do.
    fn of_commands(&self, page: &mut String, what: &str) {
        let ours = |size| self.fermata.count(what, size);
        let theirs = |size| self.linux.count(what, size);
        let native = |size| self.native(what, size);
        let rows = SIZES.map(|size| {
            vec![
                format!("{size} MB"),
                millions(ours(size)),
                millions(theirs(size)),
                ratio(ours(size), theirs(size)),
                millions(native(size)),
            ]
        });
        let shares = vec![
            "a byte more".into(),
            self.share(ours),
            self.share(theirs),
            String::new(),
            self.share(native),
        ];
        let head = [
            "holds",
            "Fermata",
            "CRIU",
            "of CRIU",
            "Fermata, a native program",
        ];
        table(page, &head, rows.into_iter().chain([shares]));
    }

    pub(super) fn page(&self) -> String {
        let mut page = format!(
            "# Checkpoints beside CRIU\n\n\
             Made by `./fermata bench --beside-criu`, which fetches Debian's packages of CRIU ({}) and of a kernel ({}), boots them in the emulator in which \
             Fermata runs, and has the same program saved in both: [benches/criu/program.c](../benches/criu/program.c), a static program of Linux. What the figures are not: time on a machine. \
             They are instructions, as in [bench.md](bench.md).\n\n\
             ![Instructions to save and to restore, by what the program holds](criu.svg)\n\n\
             ## How it is measured\n\
             * The program holds so many megabytes that cannot be guessed, and sleeps. A command saves it into a file system in memory while it goes on \
             (`checkpoint linux:N FILE` here, `criu dump --leave-running` there), the program is killed, and a command makes it from the image \
             (`restore FILE`, `criu restore --restore-detached`). Counted are all instructions from the command's start to its end, of the kernel, \
             servers and programs, by the plugin `tools/count`; each is done twice, and the second time counts. To start `criu` and do nothing \
             (`criu --version`) is {} of that.\n\
             * *A native program* is the row `checkpoint_save_N` or `checkpoint_restore_N` of [bench.md](bench.md): without a personality of Linux, and from a request to the answer, without a command.\n\
             * *A byte more* is the difference between {} and {} MB, by the bytes.\n\
             * The emulated processor has no XSAVE in Linux's machine, with which that kernel hangs in the emulator. Otherwise Linux is as Debian configures it.\n\n",
            self.linux.version,
            self.linux.kernel,
            millions(self.linux.count("start", 0)),
            SHARE[0],
            SHARE[1],
        );
        self.in_short(&mut page);
        page.push_str("## To save\n");
        self.of_commands(&mut page, "save");
        page.push_str("## To restore\n");
        self.of_commands(&mut page, "restore");
        page.push_str(
            "## For how long the program stands still\n\
             CRIU's is `frozen_time` of its own statistics, in microseconds of a clock that goes on by one nanosecond with each instruction. *After a pre-dump*: memory was saved before, \
             while the program went on, and it has written nothing since (`pre-dump --track-mem`, then `dump --prev-images-dir`). Fermata's is the row `checkpoint_stopped_N`: a native program \
             that writes to a megabyte of its memory and reads the clock all the time finds out by itself; it has most of what the checkpointer does before it stops anything in it.\n\n",
        );
        let still = |what: &str, size| self.linux.still.get(&(what.to_string(), size)).copied();
        let rows = SIZES.map(|size| {
            vec![
                format!("{size} MB"),
                number(self.native("stopped", size)),
                number(still("save", size)),
                number(still("after", size)),
            ]
        });
        table(
            &mut page,
            &["holds", "Fermata", "CRIU", "CRIU, after a pre-dump"],
            rows,
        );
        page.push_str("## Bytes of an image\n");
        let rows = SIZES.map(|size| {
            let (ours, theirs) = (self.fermata.bytes.get(&size), self.linux.bytes.get(&size));
            let held = size << 20;
            let beside =
                |bytes: Option<&u64>| number(bytes.map(|bytes| bytes.saturating_sub(held)));
            vec![
                format!("{size} MB"),
                number(ours.copied()),
                number(theirs.copied()),
                beside(ours),
                beside(theirs),
            ]
        });
        table(
            &mut page,
            &[
                "holds",
                "Fermata",
                "CRIU",
                "Fermata, beside what it holds",
                "CRIU, beside what it holds",
            ],
            rows,
        );
        page.push_str(
            "CRIU leaves out pages of files that have not changed, the program's own code among them, and wants the same files when it restores; an image of Fermata has them.\n\n",
        );
        self.refused(&mut page);
        self.calls(&mut page);
        page
    }

    /// The calls, in order.
    fn names(&self) -> Vec<String> {
        let mut names = self.linux.order.clone();
        names.sort();
        names
    }

    /// The summary of the tables.
    fn in_short(&self, page: &mut String) {
        page.push_str("## In short\n");
        for (what, verb) in [("save", "To save"), ("restore", "To restore")] {
            let pairs: Vec<(u64, u64, u64)> = SIZES
                .iter()
                .filter_map(|&size| {
                    let (ours, theirs) = (
                        self.fermata.count(what, size)?,
                        self.linux.count(what, size)?,
                    );
                    Some((size, ours, theirs))
                })
                .collect();
            let times = |wanted: &dyn Fn(u64, u64) -> bool| {
                let found = pairs
                    .iter()
                    .filter(|(_, ours, theirs)| wanted(*ours, *theirs));
                let all: Vec<String> = found
                    .map(|(size, ours, theirs)| {
                        format!(
                            "{} times CRIU's with {size} MB",
                            ratio(Some(*ours), Some(*theirs))
                        )
                    })
                    .collect();
                match all.is_empty() {
                    true => "none".into(),
                    false => all.join(", "),
                }
            };
            let _ = writeln!(
                page,
                "* **{verb}**, fewer instructions: {}. More: {}.",
                times(&|ours, theirs| ours <= theirs),
                times(&|ours, theirs| ours > theirs)
            );
        }
        let saved = |said: &Said, options: Option<&str>| {
            let came = |state: &str| said.states.get(state).is_some_and(|came| came == "saved");
            let states = STATES.iter().filter(|(state, _)| {
                came(state) || options.is_some_and(|options| came(&format!("{options} {state}")))
            });
            states.count()
        };
        let absent = self
            .fermata
            .states
            .values()
            .filter(|came| *came == "absent");
        let wrong = |said: &Said| {
            let came = |way: &str, name: &String| {
                let came = said.calls.get(&(way.to_string(), name.clone()));
                came.is_some_and(|came| came.starts_with("right"))
            };
            let names = self.names();
            let wrong = names
                .iter()
                .filter(|name| !WAYS[1..].iter().all(|way| came(way, name)));
            wrong.count()
        };
        let _ = writeln!(
            page,
            "* Of {} **states**, Fermata saves and restores {} by the plain command and {} with `--cut`, and {} do not exist there; CRIU {} by the plain command and {} with options.\n\
             * Of {} **calls**, {} do not return what they should when they are saved by Fermata, and {} when by CRIU.\n",
            STATES.len(),
            saved(&self.fermata, None),
            saved(&self.fermata, Some(CUT)),
            absent.count(),
            saved(&self.linux, None),
            saved(&self.linux, Some(ALL_OPTIONS)),
            self.names().len(),
            wrong(&self.fermata),
            wrong(&self.linux),
        );
    }

    fn refused(&self, page: &mut String) {
        page.push_str(
            "## What is refused\n\
             A process in each of these states is saved by each, killed and restored, by the plain command. What Fermata refused is tried again with `--cut`, which saves a part of a tree as if all others had closed what it shares with them, and what CRIU refused with `--shell-job --tcp-established \
             --ext-unix-sk --file-locks --link-remap --ghost-limit 1G --network-lock nftables` together, each of which is the user's to know. *Refused*: the first reason that was given. *Not restored*: it was saved, and the restore failed. \
             *Saved and restored* says that the process runs again, not \
             that it is connected with what is outside: `--cut` closes that, and CRIU makes a pipe anew, with nobody at its other end, and says nothing.\n\n",
        );
        let cell = |came: Option<&String>| -> String {
            let Some(came) = came else {
                return String::new();
            };
            match came.split_once(' ') {
                Some(("refused", why)) => format!("refused: {}", why.trim_end_matches('.')),
                Some(("lost", why)) => format!("not restored: {}", why.trim_end_matches('.')),
                _ => match came.as_str() {
                    "absent" => "not there".into(),
                    "refused" => "refused".into(),
                    "lost" => "not restored".into(),
                    _ => "saved and restored".into(),
                },
            }
        };
        let rows = STATES.iter().map(|(state, what)| {
            let plain = self.linux.states.get(*state);
            let again = |said: &Said, options: &str| -> String {
                let is_refused = said
                    .states
                    .get(*state)
                    .is_some_and(|came| came != "saved" && came != "absent");
                let came = said.states.get(&format!("{options} {state}"));
                cell(came.filter(|_| is_refused))
            };
            vec![
                what.to_string(),
                cell(self.fermata.states.get(*state)),
                again(&self.fermata, CUT),
                cell(plain),
                again(&self.linux, ALL_OPTIONS),
            ]
        });
        table(
            page,
            &[
                "state",
                "Fermata",
                "Fermata, `--cut`",
                "CRIU",
                "CRIU, with options",
            ],
            rows,
        );
        page.push_str(
            "Not tried: what CRIU's documentation names further ([What cannot be checkpointed](https://criu.org/What_cannot_be_checkpointed): devices that are not virtual, files of a file system that is \
             unmounted, programs of X), and what Fermata cannot save besides: a connection to another machine, also with `--cut`, drivers, and programs that run in the kernel's \
             rings ([CAVEATS.md](../CAVEATS.md#checkpoints)).\n\n",
        );
    }

    fn calls(&self, page: &mut String) {
        page.push_str(
            "## What an interrupted call returns\n\
             A process waits in each of these calls, in one tree of processes that is saved meanwhile: it goes on, or it is killed and restored at once. *Right* is what the call returns in a tree \
             that nobody saves, and not before its time; calls without a timeout are woken by another process of the tree later. Else there is what it returned instead. CRIU was told \
             `--file-locks`.\n\n",
        );
        let said = [&self.fermata, &self.linux];
        let rows = self.names().into_iter().map(|name| {
            let mut row = vec![name.clone()];
            for said in said {
                for way in &WAYS[1..] {
                    let came = said.calls.get(&(way.to_string(), name.clone()));
                    row.push(returned(came));
                }
            }
            row
        });
        table(
            page,
            &[
                "call",
                "Fermata, goes on",
                "Fermata, restored",
                "CRIU, goes on",
                "CRIU, restored",
            ],
            rows,
        );
    }

    pub(super) fn plot(&self) -> Option<String> {
        let series = ["Fermata", "CRIU", "Fermata, a native program"].map(String::from);
        let mut groups = Vec::new();
        for what in ["save", "restore"] {
            for size in SIZES {
                let values = [
                    self.fermata.count(what, size),
                    self.linux.count(what, size),
                    self.native(what, size),
                ];
                let bars = values.into_iter().enumerate();
                let bars = bars.filter_map(|(series, value)| Some(in_millions(series, value?)));
                groups.push((format!("{what}, {size} MB"), bars.collect()));
            }
        }
        Chart {
            series: &series,
            groups,
            line: None,
            log: true,
        }
        .svg()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    /// The page's numbers for native programs must be within a tenth of the thresholds that `test` checks. Otherwise
    /// the page has to be made anew.
    #[test]
    fn the_page_is_not_stale() {
        const HELD: [u64; 4] = [0, 2, 16, 64];
        let page = include_str!("../../../../docs/criu.md");
        let thresholds = include_str!("../../../../benches/thresholds.json");
        let thresholds: Value = serde_json::from_str(thresholds).unwrap();
        let counts = &thresholds["counts"]["interrupt-np"];
        for (what, title) in [("save", "## To save\n"), ("restore", "## To restore\n")] {
            let (_, section) = page.split_once(title).unwrap();
            for size in HELD {
                let begin = format!("| {size} MB |");
                let row = section
                    .lines()
                    .find(|line| line.starts_with(&begin))
                    .unwrap();
                let said = row.trim_end_matches(" M |").rsplit("| ").next().unwrap();
                let said: f64 = said.replace(',', "").parse().unwrap();
                let held = counts[format!("checkpoint_{what}_{size}")]
                    .as_f64()
                    .unwrap()
                    / 1e6;
                assert!(
                    (said - held).abs() <= held / 10.0 + 0.05,
                    "docs/criu.md: {what}, {size} MB: {said} M, and {held} M are held"
                );
            }
        }
    }
}
