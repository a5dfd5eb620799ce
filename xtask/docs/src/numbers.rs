//! `./fermata numbers`: `docs/numbers.md`, the one page with counts that change with the sources.
//!
//! What can be counted at once (lines, calls, mutants, the committed counts of instructions) is made
//! anew by each call. Tests and cuts take long: `./fermata test` leaves what it counted in
//! `target/counted.json` ([`remember`]), with the commit, if nothing failed; where it has not run, the page keeps what it has.
//! [`stale`] says what `./fermata check` can see to be wrong.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use abi::SYSCALLS;
use serde_json::{json, Map, Value};

use crate::syscalls::breakdown;
use xtask_build::error::Error;
use xtask_build::project::{rust_files, Project};

/// The page.
pub const PAGE: &str = "docs/numbers.md";
/// What tests have counted.
const COUNTED: &str = "counted.json";
/// Where the counts of instructions are committed.
const THRESHOLDS: &str = "benches/thresholds.json";

/// The rooms, in the order of the map.
const ROOMS: &[&str] = &[
    "abi", "hal", "kernel", "spec", "boot", "user", "servers", "drivers", "examples", "tests",
    "benches", "tools", "xtask",
];

/// Counts of instructions that stand on the page, and what they are.
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

/// The configurations whose counts stand on the page.
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
Made by `./fermata numbers`; other pages link here. `./fermata check` says when it is stale. Lines, calls,
mutants and costs are counted by each call of that command; tests and cuts are what the last
`./fermata test` without a filter counted before it, at the commit that stands beside them.
";

/// Lines of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    tests: usize,
}

/// Code and tests in a text: neither comments nor empty lines.
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
            let text = std::fs::read_to_string(&path)
                .map_err(|error| Error::new(format!("cannot read {}: {error}", path.display())))?;
            let of_file = lines(&text, is_test(path.strip_prefix(root).unwrap_or(&path)));
            sum.code += of_file.code;
            sum.tests += of_file.tests;
        }
        found.push((room, sum));
    }
    Ok(found)
}

/// Rounded to ten lines.
fn rounded(lines: usize) -> usize {
    (lines + 5) / 10 * 10
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

fn section_of_mutants(root: &Path) -> Result<String, Error> {
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
    Ok(format!(
        "{count} mutants ([tests/mutants](../tests/mutants/README.md)); `./fermata prove --mutants` \
         shows that a test notices each.\n"
    ))
}

/// What a long test counted, in words; none if it has not run.
fn measured(counted: &Map<String, Value>, key: &str) -> Option<String> {
    let of = counted.get(key)?;
    let number = |name: &str| of[name].as_u64();
    let words = match key {
        "Tests" => format!(
            "{} passed, {} failed, {} left out",
            number("passed")?,
            number("failed")?,
            number("ignored")?
        ),
        _ => format!(
            "{} cuts at {} distinct states, {} mismatches, {} sites not reached",
            number("cuts")?,
            number("distinct")?,
            number("mismatches")?,
            number("unreached")?
        ),
    };
    Some(format!(
        "{words}, in {}; at commit {}.\n",
        of["configs"].as_str()?,
        of["commit"].as_str()?
    ))
}

/// The sections of a page, by their titles.
fn sections(page: &str) -> BTreeMap<&str, &str> {
    page.split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .map(|(title, body)| (title, body.trim_start_matches('\n')))
        .collect()
}

/// The page: new counts, and what an earlier page says where there is none.
fn page(project: &Project, before: &str) -> Result<String, Error> {
    let before = sections(before);
    let counted = counted(project);
    let mut text = HEAD.to_string();
    let mut add = |title: &str, body: &str| {
        let _ = write!(text, "\n## {title}\n{}\n", body.trim_end());
    };
    add("Lines", &section_of_rooms(&rooms(&project.root)?));
    add("Calls", &section_of_calls());
    add("Costs", &section_of_costs(&project.root)?);
    add("Mutants", &section_of_mutants(&project.root)?);
    for title in ["Tests", "Cuts"] {
        let kept = before.get(title).map(|body| (*body).to_string());
        let body = measured(&counted, title).or(kept);
        add(title, &body.unwrap_or_else(|| "Not counted yet.\n".into()));
    }
    Ok(text)
}

/// Writes the page.
pub fn write(project: &Project) -> Result<u8, Error> {
    let path = project.root.join(PAGE);
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let text = page(project, &before)?;
    std::fs::write(&path, text)
        .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))?;
    println!("{}", path.display());
    Ok(0)
}

/// The statements of the page that are no longer true, of those that can be checked at once.
pub fn stale(project: &Project) -> Result<Vec<String>, Error> {
    let before = std::fs::read_to_string(project.root.join(PAGE)).unwrap_or_default();
    let now = page(project, &before)?;
    let (before, now) = (sections(&before), sections(&now));
    let mut found = Vec::new();
    for title in ["Calls", "Costs", "Mutants"] {
        if before.get(title) != now.get(title) {
            found.push(title.to_string());
        }
    }
    let said = before.get("Lines").copied().unwrap_or_default();
    for (room, lines) in rooms(&project.root)? {
        if !is_near(said, room, lines) {
            found.push(format!("Lines of {room}"));
        }
    }
    Ok(found)
}

/// Whether a page says about as many lines as there are: a tenth more or less is no reason to touch it.
fn is_near(page: &str, room: &str, lines: Lines) -> bool {
    let near = |said: usize, is: usize| said.abs_diff(is) <= (is / 10).max(100);
    let head = format!("| `{room}` | ");
    let row = page.lines().find_map(|line| line.strip_prefix(&head));
    let numbers: Vec<usize> = row
        .into_iter()
        .flat_map(|row| row.split('|'))
        .filter_map(|cell| cell.trim().parse().ok())
        .collect();
    match numbers[..] {
        [code, tests] => near(code, lines.code) && near(tests, lines.tests),
        _ => false,
    }
}

/// What tests have counted, by the titles of the sections.
fn counted(project: &Project) -> Map<String, Value> {
    let text = std::fs::read_to_string(project.target.join(COUNTED)).unwrap_or_default();
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Keeps what tests have counted (numbers, by their names) for the section of this title.
pub fn remember(
    project: &Project,
    title: &str,
    configs: &str,
    numbers: &[(&str, u64)],
) -> Result<(), Error> {
    let mut all = counted(project);
    let mut of: Map<String, Value> = numbers
        .iter()
        .map(|(name, number)| ((*name).to_string(), json!(number)))
        .collect();
    of.insert("configs".into(), json!(configs));
    of.insert("commit".into(), json!(commit(project)));
    all.insert(title.into(), Value::Object(of));
    let path = project.target.join(COUNTED);
    std::fs::write(&path, format!("{:#}\n", Value::Object(all)))
        .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))
}

/// The commit that the sources are at, and whether they were changed since.
fn commit(project: &Project) -> String {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        let output = command
            .current_dir(&project.root)
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
        output.status.success().then_some(text)
    };
    let Some(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return "unknown".into();
    };
    match git(&["status", "--porcelain"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}, with changes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_tests_are_told_apart() {
        let text = "//! What.\n\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        assert_eq!(lines(text, false), Lines { code: 1, tests: 4 });
        assert_eq!(lines(text, true), Lines { code: 0, tests: 5 });
        // `mod tests;` with its tests in another file: the code goes on behind it.
        let text = "#[cfg(test)]\nmod tests;\nfn f() {}\n";
        assert_eq!(lines(text, false), Lines { code: 3, tests: 0 });
        assert!(is_test(Path::new("kernel/src/test/ipc.rs")));
        assert!(!is_test(Path::new("xtask/test/src/cut.rs")));
    }

    #[test]
    fn a_page_is_stale_when_it_is_far_off() {
        let page = section_of_rooms(&[(
            "kernel",
            Lines {
                code: 7004,
                tests: 2996,
            },
        )]);
        assert!(page.contains("| `kernel` | 7000 | 3000 |"), "{page}");
        assert!(is_near(
            &page,
            "kernel",
            Lines {
                code: 7500,
                tests: 3000
            }
        ));
        assert!(!is_near(
            &page,
            "kernel",
            Lines {
                code: 9000,
                tests: 3000
            }
        ));
        assert!(!is_near(
            &page,
            "kernel",
            Lines {
                code: 7000,
                tests: 2000
            }
        ));
        assert!(!is_near(&page, "hal", Lines::default()));
    }

    #[test]
    fn what_was_not_counted_again_is_kept() {
        let project = Project::find().expect("the checkout");
        let empty = Project {
            root: project.root,
            target: "/nonexistent".into(),
        };
        let kept = page(
            &empty,
            "# Numbers\n\n## Cuts\n5 cuts.\n\n## Tests\n7 passed.\n",
        )
        .expect("a page");
        assert!(kept.contains("\n## Cuts\n5 cuts.\n"), "{kept}");
        assert!(kept.contains("\n## Tests\n7 passed.\n"), "{kept}");
        assert_eq!(page(&empty, &kept).expect("a page"), kept);
    }
}
