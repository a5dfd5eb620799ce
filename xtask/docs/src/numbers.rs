//! `./fermata numbers`: `docs/numbers.md`, the one page with counts that change with the sources.
//!
//! All of it is made of the sources alone. Counts of a run of tests are only in the output of that run, since a page
//! with them would be wrong with the next commit. [`stale`] returns the statements of the page that are no longer
//! true. Counts of lines, mutants and tests are rounded, and may be off by a tenth, so that small changes, and two
//! that are merged, need no change of the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use abi::SYSCALLS;
use serde_json::Value;

use crate::syscalls::breakdown;
use crate::test_names;
use xtask_build::error::Error;
use xtask_build::project::{read_text, rust_files, Project};

/// The page.
pub const PAGE: &str = "docs/numbers.md";
/// Where the counts of instructions are committed.
const THRESHOLDS: &str = "benches/thresholds.json";

/// The rooms, in the order of the map.
const ROOMS: &[&str] = &[
    "abi", "hal", "kernel", "spec", "boot", "user", "servers", "drivers", "examples", "tests",
    "benches", "tools", "xtask",
];

/// Counts of instructions on the page, and their descriptions.
const COSTS: &[(&str, &str)] = &[
    ("null_call", "a call that does nothing"),
    ("null_handle_call", "a call upon an object"),
    (
        "search_1024",
        "a search for objects in 1,024 pages without any",
    ),
    (
        "rpc_0",
        "an RPC between two processes, both ways, no content",
    ),
    ("rpc_32", "with 32 bytes each way"),
    ("rpc_64", "with 64 bytes each way"),
    ("rpc_512", "with 512 bytes each way, from and to memory"),
    ("rpc_4096", "with 4,096 bytes each way"),
    (
        "rpc_0_fpu",
        "an RPC where both sides use the registers of the FPU",
    ),
    ("exception_rt", "an exception that another process answers"),
    ("fault_rt", "an absent page that its keeper supplies"),
    (
        "notify_rt",
        "an interrupt of a thread and its wait, both ways",
    ),
    ("yield_2", "two switches between processes"),
    ("lock_unlock", "a mutex locked and unlocked"),
    (
        "lock_unlock_contested",
        "the same where every lock waits and every unlock hands the mutex over",
    ),
    (
        "interface_rpc_0",
        "a method of a service, through proxy and stub, no arguments",
    ),
    ("interface_rpc_32", "with three words each way"),
    (
        "interface_async_0",
        "a method that could wait, and does not",
    ),
    (
        "interface_read_4096",
        "a method that replies with 4,096 bytes",
    ),
    (
        "collocated_rpc_0",
        "an RPC from a process to a program in the kernel, both ways, no content",
    ),
    ("collocated_null_call", "a call of a program in the kernel"),
    ("thread_bytes", "bytes of kernel memory per thread"),
    ("thread_bytes_fpu", "the same with its FPU registers"),
    ("linux_getppid", "a Linux program's `getppid`"),
    ("linux_fstat", "its `fstat`"),
    ("linux_pread_4096", "its `pread` of 4,096 bytes"),
    ("linux_open_close", "its `open` and `close`"),
    (
        "linux_pipe",
        "a byte through a pipe to a child, and one back",
    ),
    (
        "linux_fork",
        "a child that exits at once, and the wait for it",
    ),
    (
        "promptness_worst",
        "the longest answer to a stop and a question for the state",
    ),
];

/// The configurations whose counts are on the page.
const CONFIGS: &[&str] = &[
    "interrupt-np",
    "interrupt-pp",
    "process-np",
    "process-pp",
    "process-fp",
    "continuation-np",
    "continuation-pp",
    "continuation-fp",
];

const HEAD: &str = "\
# Numbers
Made by `./fermata numbers` of the sources; other pages link here. `./fermata check` says when it is stale: calls and costs are
exact, and the counts of lines, mutants and tests, to the nearest ten, may be off by a tenth. What a run counts is not here: the
last lines of `./fermata test` say how many tests have passed and failed and which were left out, and before them how many cuts there were,
at how many states; it fails at any mismatch, and at a site that no cut reaches.
";

/// Lines of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    tests: usize,
}

/// The lines of code and of tests in a text, without comments and empty lines.
fn lines(text: &str, is_test: bool) -> Lines {
    let mut lines = Lines::default();
    let mut in_tests = is_test;
    for line in text.lines().map(str::trim) {
        in_tests |= line == "#[cfg(test)]" && text.contains("\nmod tests {");
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        if in_tests {
            lines.tests += 1;
        } else {
            lines.code += 1;
        }
    }
    lines
}

/// Whether a file has nothing but tests in it.
fn is_test(path: &Path) -> bool {
    let is = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs" || part == "test";
    // `xtask/test` is the program that runs them.
    !path.starts_with("xtask/test") && path.iter().any(is)
}

/// The lines of every room.
fn rooms(root: &Path) -> Result<Vec<(&'static str, Lines)>, Error> {
    let mut found = Vec::new();
    for &room in ROOMS.iter().filter(|room| root.join(room).is_dir()) {
        let mut sum = Lines::default();
        for path in rust_files(&root.join(room))? {
            let text = read_text(&path)?;
            let of_file = lines(&text, is_test(path.strip_prefix(root).unwrap_or(&path)));
            sum.code += of_file.code;
            sum.tests += of_file.tests;
        }
        found.push((room, sum));
    }
    Ok(found)
}

/// Rounded to ten.
fn rounded(count: usize) -> usize {
    (count + 5) / 10 * 10
}

fn section_of_rooms(rooms: &[(&str, Lines)]) -> String {
    let mut text = String::from(
        "Lines of Rust, to the nearest ten, without comments and empty lines.\n\n\
         | room | code | tests |\n|---|---|---|\n",
    );
    for (room, lines) in rooms {
        let (code, tests) = (rounded(lines.code), rounded(lines.tests));
        let _ = writeln!(text, "| `{room}` | {code} | {tests} |");
    }
    text
}

fn section_of_calls() -> String {
    let mut text = format!("{} calls:", SYSCALLS.len());
    for (index, row) in breakdown(SYSCALLS).iter().enumerate() {
        let gap = if index > 0 { "," } else { "" };
        let _ = write!(text, "{gap} {} {}", row.count, row.class.name());
    }
    let results: usize = SYSCALLS.iter().map(|row| row.codes.len()).sum();
    let _ = writeln!(
        text,
        ". `./fermata syscalls` lists them. Their rows list {results} results."
    );
    text
}

fn section_of_costs(root: &Path) -> Result<String, Error> {
    let path = root.join(THRESHOLDS);
    let failed = |why: String| Error::new(format!("cannot read {}: {why}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let mut text = format!(
        "Instructions, user code of both sides included, as `{THRESHOLDS}` has them, which `./fermata test \
         bench/` holds the kernel to. [bench.md](bench.md) says how they are counted.\n\n| | |"
    );
    for config in CONFIGS {
        let _ = write!(text, " `{config}` |");
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(CONFIGS.len()));
    text.push('\n');
    for (name, what) in COSTS {
        let _ = write!(text, "| `{name}` | {what} |");
        for config in CONFIGS {
            let count = value["counts"][config][name].as_u64();
            let _ = write!(
                text,
                " {} |",
                count.map_or("-".into(), |count| count.to_string())
            );
        }
        text.push('\n');
    }
    Ok(text)
}

/// How many mutants there are.
fn mutants(root: &Path) -> Result<usize, Error> {
    let path = root.join("tests/mutants");
    let failed = |error| Error::new(format!("cannot read {}: {error}", path.display()));
    let mut count = 0;
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        count += usize::from(
            path.extension()
                .is_some_and(|extension| extension == "mutant"),
        );
    }
    Ok(count)
}

/// The kinds of tests, and the page's text for each.
const TESTS: &[(&str, &str)] = &[
    ("host", "on the host, of one crate"),
    ("machine", "of `hal`, on a machine of their own"),
    ("guest", "in the guest, in each configuration"),
    (
        "scenario",
        "whole machines, in each configuration or in one",
    ),
];

/// How much is checked by each kind of test: the name of the row, its count, and its description.
fn checks(project: &Project) -> Result<Vec<(&'static str, usize, &'static str)>, Error> {
    let names = test_names::all(project)?;
    let count = |kind: &str| {
        let of = |name: &&String| name.split('/').next() == Some(kind);
        names.iter().filter(of).count()
    };
    let mut found: Vec<_> = TESTS
        .iter()
        .map(|&(kind, what)| (kind, count(kind), what))
        .collect();
    let what = "([tests/mutants](../tests/mutants/README.md)): `./fermata prove --mutants` shows that a test notices each";
    found.push(("mutants", mutants(&project.root)?, what));
    Ok(found)
}

fn section_of_checks(checks: &[(&str, usize, &str)]) -> String {
    let mut text = String::from(
        "As the sources have them, to the nearest ten; those that a macro makes of a table are one.\n\n\
         | | written | |\n|---|---|---|\n",
    );
    for (kind, count, what) in checks {
        let _ = writeln!(text, "| `{kind}` | {} | {what} |", rounded(*count));
    }
    text
}

/// The sections of a page, by their titles.
fn sections(page: &str) -> BTreeMap<&str, &str> {
    page.split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .map(|(title, body)| (title, body.trim_start_matches('\n')))
        .collect()
}

/// The page.
fn page(project: &Project) -> Result<String, Error> {
    let mut text = HEAD.to_string();
    let mut add = |title: &str, body: &str| {
        let _ = write!(text, "\n## {title}\n{}\n", body.trim_end());
    };
    add("Lines", &section_of_rooms(&rooms(&project.root)?));
    add("Calls", &section_of_calls());
    add("Costs", &section_of_costs(&project.root)?);
    add("Tests", &section_of_checks(&checks(project)?));
    Ok(text)
}

/// Writes the page.
pub fn write(project: &Project) -> Result<u8, Error> {
    let path = project.root.join(PAGE);
    std::fs::write(&path, page(project)?)
        .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))?;
    println!("{}", path.display());
    Ok(0)
}

/// The statements of the page that are no longer true.
pub fn stale(project: &Project) -> Result<Vec<String>, Error> {
    let before = std::fs::read_to_string(project.root.join(PAGE)).unwrap_or_default();
    let now = page(project)?;
    let (said, now_said) = (sections(&before), sections(&now));
    let mut found = Vec::new();
    if said.keys().ne(now_said.keys()) || before.split("\n## ").next() != now.split("\n## ").next()
    {
        found.push("the sections, or what stands before them".to_string());
    }
    for title in ["Calls", "Costs"] {
        if said.get(title) != now_said.get(title) {
            found.push(title.to_string());
        }
    }
    let of = |title: &str| said.get(title).copied().unwrap_or_default();
    for (room, lines) in rooms(&project.root)? {
        if !is_near(of("Lines"), room, &[lines.code, lines.tests], 100) {
            found.push(format!("Lines of {room}"));
        }
    }
    for (kind, count, _) in checks(project)? {
        if !is_near(of("Tests"), kind, &[count], 10) {
            found.push(format!("Tests: {kind}"));
        }
    }
    Ok(found)
}

/// Whether the numbers of a row in a section are near these counts: differences of up to a tenth, or of `least`, need
/// no change of the page.
fn is_near(section: &str, row: &str, counts: &[usize], least: usize) -> bool {
    let near = |(said, is): (&usize, &usize)| said.abs_diff(*is) <= (is / 10).max(least);
    let head = format!("| `{row}` | ");
    let row = section.lines().find_map(|line| line.strip_prefix(&head));
    let numbers: Vec<usize> = row
        .into_iter()
        .flat_map(|row| row.split('|'))
        .filter_map(|cell| cell.trim().parse().ok())
        .collect();
    numbers.len() == counts.len() && numbers.iter().zip(counts).all(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_tests_are_told_apart() {
        let text = "//! What.\n\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        assert_eq!(lines(text, false), Lines { code: 1, tests: 4 });
        assert_eq!(lines(text, true), Lines { code: 0, tests: 5 });
        // `mod tests;` with its tests in another file: the file's code continues after it.
        let text = "#[cfg(test)]\nmod tests;\nfn f() {}\n";
        assert_eq!(lines(text, false), Lines { code: 3, tests: 0 });
        assert!(is_test(Path::new("kernel/src/test/ipc.rs")));
        assert!(!is_test(Path::new("xtask/test/src/cut.rs")));
    }

    #[test]
    fn a_page_is_stale_when_it_is_far_off() {
        let of_kernel = Lines {
            code: 7004,
            tests: 2996,
        };
        let page = section_of_rooms(&[("kernel", of_kernel)]);
        assert!(page.contains("| `kernel` | 7000 | 3000 |"), "{page}");
        let near = |room: &str, code, tests| is_near(&page, room, &[code, tests], 100);
        assert!(near("kernel", 7500, 3000));
        assert!(!near("kernel", 9000, 3000));
        assert!(!near("kernel", 7000, 2000));
        assert!(!near("hal", 0, 0), "a room that the page does not have");
        let page = section_of_checks(&[("guest", 204, "in the guest, 3 times")]);
        assert!(page.contains("| `guest` | 200 |"), "{page}");
        assert!(is_near(&page, "guest", &[219], 10));
        assert!(!is_near(&page, "guest", &[240], 10));
        assert!(!is_near(&page, "host", &[0], 10));
    }

    #[test]
    fn every_kind_of_test_is_counted() {
        let project = Project::find().expect("the checkout");
        for (kind, count, _) in checks(&project).expect("counts") {
            assert!(count >= 10, "{kind}: {count}");
        }
        let names = test_names::all(&project).expect("names");
        let kinds = |name: &&String| {
            TESTS
                .iter()
                .any(|(kind, _)| name.split('/').next() == Some(*kind))
        };
        assert_eq!(names.iter().filter(kinds).count(), names.len());
    }
}
