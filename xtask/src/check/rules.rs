//! The rules about what each room of the project may use, which `./fermata check` enforces.
//!
//! A rule has words and the files that may contain them. Comments are ignored. In [`REGISTER_FREE`] no register of a
//! processor may be named, not even in comments. [`CRATES`] says which crate may depend on which. Every page must be
//! in the book and name only files that exist, and no two tests of the guest may have the same number. The glue of
//! Linux's drivers has rules of its own ([`glue`]).

use std::collections::btree_map::Entry;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{glue, order};
use xtask_build::error::Error;
use xtask_build::project::{read_text, rust_files};
use xtask_docs::book::pages;

/// Words that only some files may use.
struct Rule {
    /// A word matches unless it is the end of a longer name.
    words: &'static [&'static str],
    /// Files, and directories with a `/` at the end, that may use them.
    rooms: &'static [&'static str],
    /// What to do instead.
    remedy: &'static str,
}

/// The directories in which the rules hold, in addition to [`DRIVERS`].
const KERNEL: &[&str] = &["abi", "hal", "kernel", "boot"];

/// Drivers.
const DRIVERS: &str = "drivers";

const RULES: &[Rule] = &[
    Rule {
        words: &["fermata_model"],
        rooms: &["kernel/src/config.rs", "hal/src/x86_64/trap.rs"],
        remedy: "it is read into `kernel::CONFIG`; what depends on it belongs to kernel/src/exec and to the \
                 entry code",
    },
    Rule {
        words: &["fermata_irq"],
        rooms: &["hal/src/mask.rs"],
        remedy: "it is read once, into `hal::IRQ`; what depends on it belongs to hal",
    },
    Rule {
        words: &["fermata_mask"],
        rooms: &["hal/src/mask.rs"],
        remedy: "it is read once, into `hal::mask::METHOD`, for kernels that are measured and not used",
    },
    Rule {
        words: &["CONFIG.model", "Model"],
        rooms: &[
            "kernel/src/config.rs",
            "kernel/src/counters.rs",
            "kernel/src/exec/",
            "kernel/src/kept.rs",
        ],
        remedy: "what depends on the execution model belongs to kernel/src/exec: give it a function there",
    },
    Rule {
        words: &["CONFIG.preemption", "Preemption"],
        rooms: &["kernel/src/config.rs", "kernel/src/preempt.rs"],
        remedy: "what depends on preemption belongs to kernel/src/preempt.rs: ask `Kernel::preempts`, or \
                 give it a function there",
    },
    Rule {
        words: &["processors"],
        rooms: &["kernel/src/kernel.rs", "kernel/src/first.rs", "kernel/src/test/"],
        remedy: "`Kernel::cpu` and `Kernel::cpu_of` are the ways to what is one per processor",
    },
    Rule {
        words: &["PciTransport"],
        rooms: &["drivers/virtio/src/lib.rs", "drivers/virtio/src/bounded.rs"],
        remedy: "dropped, it asks the device without end whether that has been reset: `virtio::Registers` \
                 is not",
    },
];

/// A crate, or all crates below a directory, and what they may depend on.
struct Room {
    name: &'static str,
    /// Crates, and directories of crates.
    below: &'static [&'static str],
    /// What their tests may depend on as well.
    tests: &'static [&'static str],
}

const fn room(
    name: &'static str,
    below: &'static [&'static str],
    tests: &'static [&'static str],
) -> Room {
    Room { name, below, tests }
}

/// Which crate of the project may depend on which, from the ground up. A crate belongs to the room with the longest
/// name that contains it.
const CRATES: &[Room] = &[
    room("abi", &["abi"], &[]),
    room("hal", &["abi"], &[]),
    room("kernel", &["abi", "hal"], &["spec"]),
    room("boot/archive", &[], &[]),
    room("boot", &["abi", "hal", "kernel", "boot/archive"], &[]),
    room("spec", &["abi", "spec"], &[]),
    room("user/proto", &[], &[]),
    room("user/base", &["abi", "user/proto"], &[]),
    room(
        "user/interface",
        &["abi", "user/proto", "user/base", "user/interface"],
        &[],
    ),
    room("user/services", &["user/proto", "user/interface"], &[]),
    room(
        "user/rt",
        &[
            "abi",
            "user/proto",
            "user/base",
            "user/interface",
            "user/services",
        ],
        &[],
    ),
    room(
        "user/process",
        &[
            "abi",
            "user/proto",
            "user/interface",
            "user/services",
            "user/rt",
        ],
        &[],
    ),
    room("drivers", &["abi", "user", "drivers"], &[]),
    room(
        "servers",
        &["abi", "user", "boot/archive"],
        &["tests/allocated"],
    ),
    room(
        "servers/console",
        &["abi", "user", "drivers/uart"],
        &["tests/allocated"],
    ),
    room(
        "servers/checkpoint/image",
        &["user", "servers/checkpoint", "servers/linux"],
        &[],
    ),
    room("servers/ext4", &["user", "drivers/block"], &[]),
    room("servers/gdb", &["abi", "user", "drivers/uart"], &[]),
    room("servers/linux/vdso", &[], &[]),
    room(
        "servers/linux",
        &["abi", "user", "servers/linux/vdso"],
        &["tests/allocated", "servers/fs"],
    ),
    room("examples", &["user"], &[]),
    room("tests/allocated", &[], &[]),
    room(
        "tests/guest",
        &["abi", "user", "drivers", "servers/checkpoint"],
        &[],
    ),
    room(
        "benches",
        &["abi", "user", "drivers/block", "tests/guest"],
        &[],
    ),
    room("tools", &[], &[]),
    room("tools/image", &["servers/checkpoint"], &[]),
    room("xtask", &["abi", "user/services", "xtask"], &[]),
];

/// Files, and directories with a `/` at the end, that may not name a register.
const REGISTER_FREE: &[&str] = &[
    "abi/src/",
    "kernel/src/",
    "spec/model/src/",
    "spec/src/",
    "tests/guest/src/",
    "user/base/src/",
    "user/interface/",
    "user/rt/src/",
];

/// The exceptions in these: files for one architecture, and tests of registers or with machine code of their own.
const OF_AN_ARCHITECTURE: &[&str] = &[
    "abi/src/x86_64.rs",
    "tests/guest/src/bin/redirected.rs",
    "tests/guest/src/cuts/fixture.rs",
    "tests/guest/src/cuts/hostile.rs",
    "tests/guest/src/cuts/plays.rs",
    "tests/guest/src/cuts/probe.rs",
    "tests/guest/src/cuts/run.rs",
    "tests/guest/src/harness.rs",
    "tests/guest/src/holds.rs",
    "tests/guest/src/tests/exception.rs",
    "tests/guest/src/tests/gate.rs",
    "tests/guest/src/tests/thread.rs",
    "user/base/src/x86_64.rs",
    "user/rt/src/x86_64.rs",
    "user/rt/src/x86_64/mem.rs",
    "user/rt/src/x86_64/sum.rs",
];

/// The page that may name files that existed once.
const HISTORY: &str = "CHANGES.md";

/// Files that exist only after they have been generated.
const GENERATED: &[&str] = &["docs/api"];

/// The beginning of a paragraph that names files that do not exist any more.
const SINCE: &str = "Since then ";

/// The directory of the guest's tests, each of which has a number of its own.
const GUEST_TESTS: &str = "tests/guest/src";

/// The registers of all architectures.
const REGISTERS: &[&str] = &[
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip", "rflags", "fs_base", "gs_base", "fsbase", "gsbase", "eax", "ebx", "ecx",
    "edx", "esi", "edi", "ebp", "esp", "eip", "eflags", "mxcsr", "fcw", "cr0", "cr2", "cr3", "cr4",
];

/// Checks the kernel's sources below `root` and returns what breaks a rule: one line each, with file, line and
/// remedy.
pub(super) fn broken(root: &Path) -> Result<Vec<String>, Error> {
    let (mut found, mut sources) = (Vec::new(), Vec::new());
    let machine_page = read_text(&root.join(MACHINE_PAGE))?;
    for directory in KERNEL {
        for path in rust_files(&root.join(directory))? {
            let text = read_text(&path)?;
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
            found.extend(broken_in(&name, &text));
            found.extend(unlisted_in(&name, &text, &machine_page));
            sources.push((name.into_owned(), text));
        }
    }
    found.extend(order::upward(&sources));
    for room in REGISTER_FREE {
        let paths = match room.strip_suffix('/') {
            Some(directory) => rust_files(&root.join(directory))?,
            None => vec![root.join(room)],
        };
        for path in paths {
            let text = read_text(&path)?;
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
            found.extend(registers_in(&name, &text));
        }
    }
    for path in rust_files(&root.join(DRIVERS))? {
        let text = read_text(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
        found.extend(broken_in(&name, &text));
    }
    for path in rust_files(&root.join(RUNTIME))? {
        let text = read_text(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
        found.extend(services_in(&name, &text));
    }
    let mut crates = BTreeMap::new();
    for manifest in files(root, "Cargo.toml")? {
        let text = read_text(&root.join(&manifest))?;
        let name = manifest.to_string_lossy();
        found.extend(dependencies_in(&name, &text));
        if let Some(own) = name.strip_suffix("/Cargo.toml") {
            let others = path_dependencies(own, &text).into_iter();
            let others = others.filter(|other| !other.section.contains("dev-dependencies"));
            crates.insert(own.to_string(), others.map(|other| other.path).collect());
        }
    }
    let script = read_text(&root.join(SCRIPT))?;
    found.extend(unwatched(&script, &crates));
    let mut sources = Vec::new();
    for path in [files(root, ".c")?, files(root, ".h")?].concat() {
        if path.starts_with(glue::GLUE) {
            let text = read_text(&root.join(&path))?;
            sources.push((path.to_string_lossy().into_owned(), text));
        }
    }
    found.extend(glue::broken(&sources));
    let mut tests = Vec::new();
    for path in rust_files(&root.join(GUEST_TESTS))? {
        let text = read_text(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
        tests.extend(tests_in(&name, &text));
    }
    found.extend(doubled(&tests));
    let tops = top_directories(root)?;
    let book = pages(root)?;
    for page in files(root, ".md")? {
        if GENERATED
            .iter()
            .any(|directory| page.starts_with(directory))
        {
            continue;
        }
        let text = read_text(&root.join(&page))?;
        if page != Path::new(HISTORY) {
            let near = root.join(&page);
            let near = near.parent().unwrap_or(root);
            let exists = |path: &str| root.join(path).exists() || near.join(path).exists();
            found.extend(missing_in(&page, &text, &tops, &exists));
        }
        if !book.contains(&page) {
            found.push(format!(
                "{}: no page of the book: `PARTS` in xtask/docs/src/book.rs names them",
                page.display()
            ));
        }
    }
    found.extend(decisions_in(root)?);
    Ok(found)
}

/// The directory of the decisions, and the page that lists them.
const DECISIONS: &str = "docs/adr";
const DECISIONS_PAGE: &str = "docs/README.md";

/// The decisions that are missing in the list, or whose title there differs from the one in their first line.
fn decisions_in(root: &Path) -> Result<Vec<String>, Error> {
    let list = read_text(&root.join(DECISIONS_PAGE))?;
    let mut found = Vec::new();
    for page in files(&root.join(DECISIONS), ".md")? {
        let text = read_text(&root.join(DECISIONS).join(&page))?;
        found.extend(unlisted_decision(&page.to_string_lossy(), &text, &list));
    }
    Ok(found)
}

/// What is wrong with the row of a decision in the list.
fn unlisted_decision(file: &str, text: &str, list: &str) -> Option<String> {
    let first = text.lines().next().unwrap_or_default();
    let (number, title) = first.strip_prefix("# ")?.split_once(' ')?;
    let row = format!("| [{number}](adr/{file}) | {title} |");
    let is_there = list.lines().any(|line| line == row);
    (!is_there).then(|| format!("{DECISIONS}/{file}: {DECISIONS_PAGE} has no row `{row}`"))
}

/// The directories of the root that have sources or pages.
fn top_directories(root: &Path) -> Result<Vec<String>, Error> {
    let mut found: Vec<String> = files(root, "")?
        .iter()
        .filter(|path| path.components().count() > 1)
        .filter_map(|path| Some(path.iter().next()?.to_string_lossy().into_owned()))
        .collect();
    found.dedup();
    Ok(found)
}

/// The lines of a page that name a file or directory that does not exist, in backticks and with a directory of the
/// root in front. A page may name a file that is gone if a paragraph that begins with [`SINCE`] names it, too. A name
/// with `NAME` or `*` in it is a pattern.
fn missing_in(
    page: &Path,
    text: &str,
    tops: &[String],
    exists: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let gone: Vec<&str> = text
        .split("\n\n")
        .filter(|paragraph| paragraph.starts_with(SINCE))
        .flat_map(quoted)
        .collect();
    let mut found = Vec::new();
    for (line, text) in text.lines().enumerate() {
        for path in quoted(text) {
            let parts: Vec<&str> = path.split('/').collect();
            let is_pattern = path.contains("NAME") || path.contains(['*', ' ', '(', '<', ':']);
            let is_path = parts.len() > 1 && tops.iter().any(|top| top == parts[0]);
            let generated = GENERATED.iter().any(|prefix| path.starts_with(prefix));
            if is_path && !is_pattern && !generated && !gone.contains(&path) && !exists(path) {
                found.push(format!(
                    "{}:{}: `{path}` does not exist: name what is there now, or say `{SINCE}(DATE): ...` of it in a \
                     paragraph of its own",
                    page.display(),
                    line + 1
                ));
            }
        }
    }
    found
}

/// The texts between backticks in a line or a paragraph.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The tests that a file registers: their numbers, and their places.
fn tests_in(file: &str, text: &str) -> Vec<(String, String)> {
    let lines = text.lines().enumerate();
    let numbers = lines.filter_map(|(line, text)| {
        let (number, _) = text.strip_prefix("guest_test!(")?.split_once(',')?;
        Some((number.to_string(), format!("{file}:{}", line + 1)))
    });
    numbers.collect()
}

/// What is wrong with the tests of [`tests_in`]: numbers that are used twice.
fn doubled(tests: &[(String, String)]) -> Vec<String> {
    let mut first = BTreeMap::new();
    let mut found = Vec::new();
    for (number, place) in tests {
        match first.entry(number) {
            Entry::Vacant(entry) => drop(entry.insert(place)),
            Entry::Occupied(entry) => found.push(format!(
                "{place}: `{number}`: {} has it already; take a free number",
                entry.get()
            )),
        }
    }
    found
}

/// The files below `root` whose names end like this, with paths relative to it. Build output, and names that begin
/// with a dot, are left out.
fn files(root: &Path, end: &str) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let full = root.join(&directory);
        let failed = |error| Error::new(format!("cannot read {}: {error}", full.display()));
        for entry in std::fs::read_dir(&full).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = directory.join(&name);
            if entry.file_type().map_err(failed)?.is_dir() {
                if !name.starts_with('.') && path != Path::new("target") {
                    directories.push(path);
                }
            } else if name.ends_with(end) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The lines of a manifest, given with its path, that name a crate on which its own crate may not depend.
fn dependencies_in(manifest: &str, text: &str) -> Vec<String> {
    let own = manifest.strip_suffix("/Cargo.toml").unwrap_or_default();
    // The workspace's own manifest has no dependencies.
    if own.is_empty() {
        return Vec::new();
    }
    let is_in = |room: &str, name: &str| {
        let rest = name.strip_prefix(room);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let rooms = CRATES.iter().filter(|room| is_in(room.name, own));
    let Some(room) = rooms.max_by_key(|room| room.name.len()) else {
        return vec![format!(
            "{manifest}: in no room: `CRATES` in xtask/src/check/rules.rs has none for it"
        )];
    };
    let mut found = Vec::new();
    for Dependency {
        line,
        section,
        path: other,
    } in path_dependencies(own, text)
    {
        let tests = match section.contains("dev-dependencies") {
            true => room.tests,
            false => &[],
        };
        if !room.below.iter().chain(tests).any(|may| is_in(may, &other)) {
            found.push(format!(
                "{manifest}:{line}: `{other}`: {} may not depend on it; who may depend on whom is in `CRATES` of \
                 xtask/src/check/rules.rs",
                room.name
            ));
        }
    }
    found
}

/// A crate of the project that a manifest names.
struct Dependency<'a> {
    line: usize,
    /// The heading of its section.
    section: &'a str,
    /// Where the crate is, from the root.
    path: String,
}

/// The dependencies in the manifest of the crate in `own`.
fn path_dependencies<'a>(own: &str, text: &'a str) -> Vec<Dependency<'a>> {
    let mut found = Vec::new();
    let mut section = "";
    for (number, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let path = line.split_once("path = \"");
        let Some((path, _)) = path.and_then(|(_, rest)| rest.split_once('"')) else {
            continue;
        };
        if !section.contains("dependencies") {
            continue;
        }
        let mut at: Vec<&str> = own.split('/').collect();
        for part in path.split('/') {
            match part {
                ".." => drop(at.pop()),
                part => at.push(part),
            }
        }
        found.push(Dependency {
            line: number + 1,
            section,
            path: at.join("/"),
        });
    }
    found
}

/// The root script, which rebuilds xtask when a file has changed below one of the paths that the script passes to
/// `find`.
const SCRIPT: &str = "fermata";

/// The crates that xtask is made of and that the root script does not watch: after a change in one of them xtask
/// would not be rebuilt. `crates` has the dependencies of each crate.
fn unwatched(script: &str, crates: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let find = script
        .split_once("$(find ")
        .and_then(|(_, rest)| rest.split_once(" -newer"));
    let paths = find.map_or("", |(paths, _)| paths).split('"');
    let watched: Vec<&str> = paths
        .filter_map(|path| path.strip_prefix("$root/"))
        .collect();
    let is_below = |top: &str, path: &str| Path::new(path).starts_with(top);
    let own = crates.keys().filter(|path| is_below("xtask", path));
    let mut needed: Vec<&String> = own.collect();
    let mut next = 0;
    while let Some(one) = needed.get(next) {
        for other in crates.get(*one).into_iter().flatten() {
            if !needed.contains(&other) {
                needed.push(other);
            }
        }
        next += 1;
    }
    let missed = needed
        .into_iter()
        .filter(|path| !watched.iter().any(|top| is_below(top, path)));
    missed
        .map(|path| {
            format!(
                "{SCRIPT}: `{path}`: xtask is made of it, and `build_xtask` does not look at it"
            )
        })
        .collect()
}

/// The lines of a file that break a rule.
fn broken_in(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for rule in RULES {
            let may = |room: &&str| match room.strip_suffix('/') {
                Some(_) => file.starts_with(room),
                None => file == *room,
            };
            if rule.rooms.iter().any(may) {
                continue;
            }
            if let Some(word) = rule.words.iter().find(|word| has_word(code, word)) {
                found.push(format!("{file}:{}: `{word}`: {}", number + 1, rule.remedy));
            }
        }
    }
    found
}

/// The runtime, and its files that may name services; ADR 0024 gives the reason.
const RUNTIME: &str = "user/rt/src/";
const IN_RUNTIME: &[&str] = &[
    "checkpoint.rs",
    "console.rs",
    "fs.rs",
    "io.rs",
    "memory.rs",
    "names.rs",
    "net.rs",
    "process.rs",
    "random.rs",
    "start.rs",
    "system.rs",
];

/// The lines of a file of the runtime that name a service and must not.
fn services_in(file: &str, text: &str) -> Vec<String> {
    let Some(inside) = file.strip_prefix(RUNTIME) else {
        return Vec::new();
    };
    if IN_RUNTIME.contains(&inside) {
        return Vec::new();
    }
    let code = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        has_word(code, "services")
    };
    let lines = text.lines().enumerate().filter(|(_, line)| code(line));
    lines
        .map(|(number, _)| {
            format!(
                "{file}:{}: `services`: what the runtime knows of services is in docs/adr/0024-clients-are-known.md, \
                 and this is not: put it where programs can take it from, above `rt`",
                number + 1
            )
        })
        .collect()
}

/// The directory of the machine's statics, and the page that lists those that exist once per machine.
const MACHINE: &str = "hal/src/x86_64/";
const MACHINE_PAGE: &str = "hal/README.md";

/// The statics of a file of the machine that exist once per machine and are missing on the page. Statics per
/// processor have another type, which only one file can make.
fn unlisted_in(file: &str, text: &str, page: &str) -> Vec<String> {
    if !file.starts_with(MACHINE) || file.ends_with("paging_model.rs") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some((_, rest)) = line.split_once("static ") else {
            continue;
        };
        let Some((name, kind)) = rest.split_once(": ") else {
            continue;
        };
        if kind.starts_with("Global<") && !page.contains(&format!("`{name}`")) {
            found.push(format!(
                "{file}:{}: `{name}`: {MACHINE_PAGE} lists what is one per machine, and this is not there; what is \
                 one per processor belongs to {MACHINE}cpu.rs",
                number + 1
            ));
        }
    }
    found
}

/// The lines of a file that name a register where that is not allowed.
fn registers_in(file: &str, text: &str) -> Vec<String> {
    let free = REGISTER_FREE.iter().any(|room| file.starts_with(room));
    if !free || OF_AN_ARCHITECTURE.contains(&file) {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    let named = lines.filter_map(|(number, line)| Some((number + 1, register_in(line)?)));
    let remedy =
        "say what it is for (abi/src/registers.rs); which it is, the architecture's file says";
    named
        .map(|(number, register)| format!("{file}:{number}: `{register}`: {remedy}"))
        .collect()
}

/// The first register that a line names, also as a part of a longer name (`user_rip`).
fn register_in(line: &str) -> Option<&'static str> {
    let line = line.to_ascii_lowercase();
    let part = |c: char| c.is_alphanumeric();
    REGISTERS.iter().copied().find(|register| {
        line.match_indices(register).any(|(at, _)| {
            !line[..at].ends_with(part) && !line[at + register.len()..].starts_with(part)
        })
    })
}

/// Whether `word` is in `code`, and not as part of a longer name.
fn has_word(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(part) && !code[at + word.len()..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_in_the_wrong_room_is_found_with_its_line() {
        let text = "use crate::config::CONFIG;\nif CONFIG.model == Model::Process {}\n";
        let found = broken_in("kernel/src/ipc/mod.rs", text);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("kernel/src/ipc/mod.rs:2: `CONFIG.model`"),
            "{found:?}"
        );
        assert!(found[0].contains("kernel/src/exec"), "{found:?}");
        assert!(broken_in("kernel/src/exec/mod.rs", text).is_empty());
        assert!(broken_in("kernel/src/config.rs", text).is_empty());
    }

    #[test]
    fn crates_depend_on_those_below_and_what_goes_up_is_found_with_its_line() {
        let text = "[lib]\npath = \"../fs\"\n[dependencies]\nabi = { path = \"../../abi\" }\n\
                    fs = { path = \"../fs\" }\n[dev-dependencies]\n\
                    allocated = { path = \"../../tests/allocated\" }\n";
        let found = dependencies_in("servers/init/Cargo.toml", text);
        assert_eq!(found.len(), 1, "{found:?}");
        let place = "servers/init/Cargo.toml:5: `servers/fs`: servers may not";
        assert!(found[0].starts_with(place), "{found:?}");
        let tests = text.replace("[dev-dependencies]", "[dependencies]");
        assert_eq!(dependencies_in("servers/init/Cargo.toml", &tests).len(), 2);
        // The room with the longest name applies.
        let text = "[dependencies]\na = { path = \"../../drivers/block\" }\n";
        assert!(dependencies_in("servers/ext4/Cargo.toml", text).is_empty());
        assert_eq!(dependencies_in("servers/net/Cargo.toml", text).len(), 1);
        // A name that only begins like another is a different one.
        let text = "[dependencies]\na = { path = \"../abi2\" }\n";
        assert_eq!(dependencies_in("hal/Cargo.toml", text).len(), 1);
        assert_eq!(dependencies_in("elsewhere/Cargo.toml", "").len(), 1);
    }

    #[test]
    fn crates_that_the_root_script_does_not_look_at_are_found() {
        let crates = |pairs: &[(&str, &[&str])]| {
            let pairs = pairs.iter().map(|(own, others)| {
                let others = others.iter().map(ToString::to_string);
                (own.to_string(), others.collect())
            });
            pairs.collect::<BTreeMap<String, Vec<String>>>()
        };
        let crates = crates(&[
            ("xtask/build", &["user/services", "abi"]),
            ("user/services", &["user/base"]),
            ("user/base", &["abi"]),
            ("abi", &[]),
            ("user/rt", &["kernel"]),
        ]);
        let script = |paths: &str| format!("x \"$(find {paths} -newer \"$stamp\" -print)\" ]");
        let all = "\"$root/xtask\" \"$root/abi\" \\\n \"$root/user/services\" \"$root/user/base\"";
        assert!(unwatched(&script(all), &crates).is_empty());
        let found = unwatched(
            &script("\"$root/xtask\" \"$root/user/base2\" \"$root/abi\""),
            &crates,
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("`user/services`") && found[1].contains("`user/base`"));
        assert_eq!(unwatched("nothing", &crates).len(), 4);
    }

    #[test]
    fn every_room_of_the_crates_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifests = files(&root, "Cargo.toml").expect("manifests");
        assert!(manifests.len() > CRATES.len());
        for room in CRATES {
            for name in [&[room.name][..], room.below, room.tests].concat() {
                let is_there = manifests.iter().any(|path| path.starts_with(name));
                assert!(is_there, "{name}");
            }
        }
    }

    #[test]
    fn registers_are_named_where_they_belong_and_nowhere_else() {
        let found = registers_in("kernel/src/ipc/mod.rs", "a\nlet x = t.ctx.rdi.get();\n");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("kernel/src/ipc/mod.rs:2: `rdi`"),
            "{found:?}"
        );
        for register in REGISTERS {
            for text in [
                format!("/// In `{register}`."),
                format!("fn user_{register}_ok()"),
                format!("const X: R = {};", register.to_uppercase()),
            ] {
                assert_eq!(register_in(&text), Some(*register), "{text}");
                for file in [
                    "spec/src/ipc.rs",
                    "abi/src/syscalls.rs",
                    "user/rt/src/thread.rs",
                    "user/interface/src/wire.rs",
                ] {
                    assert_eq!(registers_in(file, &text).len(), 1, "{file}");
                }
                for file in [
                    "abi/src/x86_64.rs",
                    "hal/src/x86_64/trap.rs",
                    "user/base/src/x86_64.rs",
                ] {
                    assert!(registers_in(file, &text).is_empty(), "{file}");
                }
            }
        }
        for text in ["a tripod, grsp, r80, prdx", "let ripe = br10;"] {
            assert_eq!(register_in(text), None, "{text}");
        }
    }

    #[test]
    fn every_rule_bites_and_lets_its_rooms_be() {
        for rule in RULES {
            for word in rule.words {
                let text = format!("let x = {word};\n");
                assert_eq!(broken_in("kernel/src/sched.rs", &text).len(), 1, "{word}");
                for room in rule.rooms {
                    let file = room
                        .strip_suffix('/')
                        .map_or(room.to_string(), |d| format!("{d}/a.rs"));
                    assert!(broken_in(&file, &text).is_empty(), "{word} in {file}");
                }
            }
        }
    }

    #[test]
    fn the_runtime_knows_of_services_what_is_said() {
        let text = "// services\nuse services::fs::Attr;\nlet a = services_of(b);\n";
        let found = services_in("user/rt/src/heap.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("user/rt/src/heap.rs:2: `services`"),
            "{found:?}"
        );
        assert!(services_in("user/rt/src/fs.rs", text).is_empty());
        assert!(services_in("servers/fs/src/main.rs", text).is_empty());
        let page = include_str!("../../../docs/adr/0024-clients-are-known.md");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for file in IN_RUNTIME {
            assert!(page.contains(&format!("`{file}`")), "{file}");
            let text = std::fs::read_to_string(root.join(RUNTIME).join(file)).expect("a file");
            assert!(has_word(&text, "services"), "{file} names none");
        }
    }

    #[test]
    fn what_is_one_per_machine_is_listed() {
        let text = "/// A static.\nstatic CLOCK: Global<u8> = Global(0);\nstatic N: Global<u8> = Global(0);\n\
                    static CPU: PerCpu<Cpu> = PerCpu(Cpu::new());\n";
        let find = |file: &str| unlisted_in(file, text, "| `time.rs`: `CLOCK` |");
        let found = find("hal/src/x86_64/time.rs");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("hal/src/x86_64/time.rs:3: `N`: hal/README.md"),
            "{found:?}"
        );
        assert!(find("hal/src/host/mod.rs").is_empty());
    }

    #[test]
    fn two_tests_with_one_number_are_found() {
        let text = "//! guest_test!(A0001, a);\nguest_test!(A0001, a);\nguest_test!(A0002, b);\n";
        let mut tests = tests_in("a.rs", text);
        assert_eq!(tests.len(), 2, "{tests:?}");
        assert!(doubled(&tests).is_empty());
        tests.extend(tests_in("b.rs", "guest_test!(A0002, c);\n"));
        let found = doubled(&tests);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("b.rs:1: `A0002`: a.rs:3 has it"),
            "{found:?}"
        );
    }

    #[test]
    fn the_sources_keep_the_rules() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = broken(&root).expect("the sources");
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn what_pages_name_and_is_not_there_is_found() {
        let tops = ["hal".to_string(), "docs".to_string()];
        let exists = |path: &str| path == "hal/src/lib.rs" || path == "docs/adr/";
        let find = |text: &str| missing_in(Path::new("docs/a.md"), text, &tops, &exists);
        let text =
            "`hal/src/lib.rs`, `docs/adr/`\n`hal/src/b.rs`: `x/y`, `docs/api/a.md`, `hal/NAME/a`\n";
        let found = find(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("docs/a.md:2: `hal/src/b.rs` does not"),
            "{found:?}"
        );
        assert!(find(&format!(
            "{text}\nSince then (2026-01-02): `hal/src/b.rs` is gone.\n"
        ))
        .is_empty());
        assert_eq!(
            find(&format!(
                "{text}\nSince then (2026-01-02): `hal/src/c.rs` is gone.\n"
            ))
            .len(),
            1
        );
    }

    #[test]
    fn a_decision_has_one_title() {
        let list = "| | |\n| [0003](adr/0003-a.md) | A table |\n";
        let said =
            |first: &str| unlisted_decision("0003-a.md", &format!("# {first}\n\nText\n"), list);
        assert_eq!(said("0003 A table"), None);
        let found = said("0003 Another table").expect("another title");
        assert!(found.starts_with("docs/adr/0003-a.md: "), "{found}");
        assert!(said("0004 A table").is_some(), "another number");
    }

    #[test]
    fn comments_and_other_names_are_no_matter() {
        let text =
            "// a Model here\nlet a = RefModel::new(); // CONFIG.model\nPreemptions::count();\n";
        assert!(broken_in("kernel/src/sched.rs", text).is_empty());
    }

    #[test]
    fn the_rules_look_at_something() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for directory in KERNEL {
            assert!(!rust_files(&root.join(directory))
                .expect("sources")
                .is_empty());
        }
        let glue = |path: &PathBuf| path.starts_with(glue::GLUE);
        let glue = files(&root, ".c")
            .expect("sources")
            .into_iter()
            .filter(glue);
        assert!(glue.count() > 3);
        let mut tests = 0;
        for path in rust_files(&root.join(GUEST_TESTS)).expect("sources") {
            let text = std::fs::read_to_string(&path).expect("a source");
            tests += tests_in("", &text).len();
        }
        assert!(tests > 100, "{tests} tests");
    }
}
