//! The parts of an RPC (Draves et al., Table 5), and of the way into the kernel and out of it (Ford
//! et al., section 5.5): instructions, loads and stores.
//!
//! The plugin counts by the address of the instruction. The debugging information of the kernel says which function
//! each instruction belongs to, even where that function is inlined; [`RULES`] says which part of an RPC a function
//! is.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use super::boots::{Line, Stretch};
use super::profile::{Symbols, KERNEL};
use super::{per, Row, Taken};
use xtask_build::error::Error;
use xtask_build::project::temp_dir;

/// A part of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Entry,
    Dispatch,
    Lookup,
    Path,
    Message,
    Queues,
    Switch,
    Fpu,
    Exit,
    Other,
    User,
}

/// Each part: its name in rows, and its description.
pub(super) const PARTS: &[(Part, &str, &str)] = &[
    (Part::Entry, "entry", "entry: registers saved"),
    (Part::Dispatch, "dispatch", "which call it is"),
    (Part::Lookup, "lookup", "handles and references looked up"),
    (
        Part::Path,
        "path",
        "sender and receiver: checks, stages, results",
    ),
    (Part::Message, "message", "the message copied"),
    (Part::Queues, "queues", "queues and scheduler"),
    (
        Part::Switch,
        "switch",
        "switch or handoff: thread, stack, address space",
    ),
    (Part::Fpu, "fpu", "FPU registers"),
    (Part::Exit, "exit", "exit: registers loaded"),
    (Part::Other, "other", "anything else in the kernel"),
    (Part::User, "user", "user code of both sides"),
];

/// The end of a file's path, functions in that file (none means all), and the part. The first rule that matches
/// applies.
type Rule = (&'static str, &'static [&'static str], Part);

const RULES: &[Rule] = &[
    ("x86_64/fpu.rs", &[], Part::Fpu),
    ("x86_64/trap.rs", &[], Part::Entry),
    ("x86_64/descriptors.rs", &[], Part::Switch),
    ("x86_64/stack.rs", &[], Part::Switch),
    ("x86_64/mask.rs", &[], Part::Entry),
    ("kernel/src/exec/", &[], Part::Switch),
    (
        "kernel/src/leave.rs",
        &["switch_to", "tail_switch_to", "exit_trap_to"],
        Part::Switch,
    ),
    ("kernel/src/leave.rs", &[], Part::Queues),
    ("kernel/src/trap.rs", &["change_ports"], Part::Switch),
    ("kernel/src/trap.rs", &[], Part::Dispatch),
    ("kernel/src/syscall/", &[], Part::Dispatch),
    ("kernel/src/sched.rs", &[], Part::Queues),
    ("kernel/src/queue.rs", &[], Part::Queues),
    ("kernel/src/object/wait.rs", &[], Part::Queues),
    ("kernel/src/object/thread.rs", &[], Part::Path),
    ("kernel/src/object/connection.rs", &[], Part::Path),
    ("kernel/src/deadlines.rs", &[], Part::Lookup),
    ("kernel/src/object/", &[], Part::Lookup),
    ("kernel/src/handle.rs", &[], Part::Lookup),
    (
        "kernel/src/ipc/fast.rs",
        &["copy", "route", "fill", "consume", "transfer"],
        Part::Message,
    ),
    (
        "kernel/src/ipc/fast.rs",
        &["hand_off", "switch_to"],
        Part::Switch,
    ),
    ("kernel/src/ipc/pump.rs", &[], Part::Message),
    ("kernel/src/memory.rs", &[], Part::Message),
    ("kernel/src/ipc/", &[], Part::Path),
];

/// The part that a function of a file is, if a rule knows it.
fn part_of(function: &str, file: &str) -> Option<Part> {
    let name = function.rsplit("::").next().unwrap_or_default();
    let name = name.split('<').next().unwrap_or_default();
    let inside = |end: &str| file.ends_with(end) || (end.ends_with('/') && file.contains(end));
    RULES
        .iter()
        .find(|(end, functions, _)| {
            inside(end) && (functions.is_empty() || functions.contains(&name))
        })
        .map(|rule| rule.2)
}

/// Instructions, loads and stores of each part.
type Sums = BTreeMap<Part, [u64; 3]>;

/// Rows of the parts of a null RPC, and of entry and exit.
pub(super) fn rows(taken: &Taken) -> Result<Vec<Row>, Error> {
    let find = |wanted: &str| -> Result<(&Stretch, u64), Error> {
        taken
            .session
            .iter()
            .find_map(|(line, stretch)| match line {
                Line::Sample {
                    name, operations, ..
                } if name == wanted => Some((stretch.as_ref()?, *operations)),
                _ => None,
            })
            .ok_or_else(|| Error::new(format!("{wanted} was not counted")))
    };
    let names = ["rpc_0", "null_call", "exception_rt"];
    let mut stretches = Vec::new();
    for name in names {
        stretches.push(find(name)?);
    }
    let mut addresses: Vec<u64> = stretches
        .iter()
        .flat_map(|(stretch, _)| stretch.profile.iter().map(|(address, _)| *address))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let parts = Map::new(taken.kernel, &addresses)?;
    let sums: Vec<Sums> = stretches
        .iter()
        .map(|(stretch, _)| parts.sum(&stretch.profile))
        .collect();
    let row = |name: String, unit: &str, counts: [u64; 3], operations| Row {
        name,
        unit: unit.into(),
        instructions: Some(per(counts[0], operations)),
        loads: Some(per(counts[1], operations)),
        stores: Some(per(counts[2], operations)),
        repetitions: operations,
        ..Row::default()
    };
    let of = |index: usize, part| sums[index].get(&part).copied().unwrap_or_default();
    let mut rows = Vec::new();
    for (part, name, _) in PARTS {
        rows.push(row(
            format!("rpc_0_in_{name}"),
            "rpc",
            of(0, *part),
            stretches[0].1,
        ));
    }
    for (part, name) in [(Part::Entry, "entry"), (Part::Exit, "exit")] {
        let call = of(1, part);
        rows.push(row(format!("syscall_{name}"), "call", call, stretches[1].1));
        // An exception and its reply are one trap and one call.
        let operations = stretches[2].1;
        let both = of(2, part);
        let trap = [0, 1, 2].map(|i| {
            let one = call[i] as f64 / stretches[1].1 as f64 * operations as f64;
            both[i].saturating_sub(one as u64)
        });
        rows.push(row(format!("trap_{name}"), "trap", trap, operations));
    }
    Ok(rows)
}

/// The part of each instruction, by address.
struct Map(BTreeMap<u64, Part>);

impl Map {
    /// Asks the debugging information of the kernel.
    fn new(kernel: &[u8], addresses: &[u64]) -> Result<Self, Error> {
        let directory = temp_dir()?;
        let path = directory.path().join("kernel");
        let failed =
            |what: &str, error: std::io::Error| Error::new(format!("cannot {what}: {error}"));
        std::fs::write(&path, kernel).map_err(|e| failed("write the kernel", e))?;
        let mut child = Command::new("addr2line")
            .args(["--addresses", "--functions", "--inlines", "--demangle"])
            .arg("--exe")
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| failed("run addr2line (Debian's package is binutils)", e))?;
        let text: String = addresses
            .iter()
            .filter(|address| **address >= KERNEL)
            .map(|address| format!("{address:#x}\n"))
            .collect();
        let Some(mut input) = child.stdin.take() else {
            return Err(Error::new("addr2line does not listen"));
        };
        // addr2line answers while it reads, so a thread of its own writes the questions.
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child
            .wait_with_output()
            .map_err(|e| failed("read from addr2line", e))?;
        let written = writer
            .join()
            .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
        written.map_err(|e| failed("ask addr2line", e))?;
        let symbols = Symbols::new(kernel);
        let mut parts = Map::read(&String::from_utf8_lossy(&output.stdout), &symbols);
        for address in addresses.iter().filter(|address| **address < KERNEL) {
            parts.0.insert(*address, Part::User);
        }
        Ok(parts)
    }

    /// Reads what addr2line prints: an address, and then a function and a place for each level of
    /// inlining, the innermost first.
    fn read(text: &str, symbols: &Symbols) -> Self {
        let mut parts = BTreeMap::new();
        let mut at: Option<u64> = None;
        let mut function = "";
        for line in text.lines() {
            if let Some(digits) = line.strip_prefix("0x") {
                at = u64::from_str_radix(digits, 16).ok();
                if let Some(address) = at {
                    // Assembly code has no line information: its symbols decide.
                    let part = match symbols.find(address) {
                        "hal_resume" => Part::Exit,
                        "syscall_entry" | "hal_stubs" => Part::Entry,
                        name if name.ends_with("trap::common") => Part::Entry,
                        name if name.ends_with("syscall_entry") => Part::Entry,
                        name if name.contains("::stack::") => Part::Switch,
                        _ => Part::Other,
                    };
                    parts.insert(address, part);
                }
                function = "";
            } else if function.is_empty() {
                function = line;
            } else {
                let file = line.split(':').next().unwrap_or_default();
                let entry = at.and_then(|address| parts.get_mut(&address));
                if let (Some(part @ Part::Other), Some(known)) = (entry, part_of(function, file)) {
                    *part = known;
                }
                function = "";
            }
        }
        Map(parts)
    }

    fn sum(&self, profile: &[(u64, [u64; 3])]) -> Sums {
        let mut sums = Sums::new();
        for (address, counts) in profile {
            let part = self.0.get(address).copied().unwrap_or(Part::Other);
            let sum = sums.entry(part).or_default();
            for (sum, count) in sum.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn functions_belong_to_parts() {
        for (function, file, part) in [
            ("copy", "/x/kernel/src/ipc/fast.rs", Some(Part::Message)),
            ("request<true>", "kernel/src/ipc/fast.rs", Some(Part::Path)),
            (
                "kernel::Kernel::switch_to",
                "kernel/src/leave.rs",
                Some(Part::Switch),
            ),
            ("syscall", "kernel/src/trap.rs", Some(Part::Dispatch)),
            ("find<T>", "kernel/src/handle.rs", Some(Part::Lookup)),
            ("get", "/rustc/library/core/src/cell.rs", None),
        ] {
            assert_eq!(part_of(function, file), part, "{function} of {file}");
        }
    }

    #[test]
    fn rules_are_about_what_there_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (end, functions, _) in RULES {
            let name = match end.split_once('/') {
                Some(("x86_64", _)) => format!("hal/src/{end}"),
                _ => end.to_string(),
            };
            let path = root.join(&name);
            assert!(path.exists(), "{name}");
            for function in *functions {
                let text = std::fs::read_to_string(&path).expect("a file");
                let there = ["(", "<"].map(|after| text.contains(&format!("fn {function}{after}")));
                assert!(there.contains(&true), "{name} has no function {function}");
            }
        }
    }

    #[test]
    fn the_innermost_known_function_counts() {
        let a = KERNEL + 0x10;
        let text = format!(
            "{a:#018x}\nget\n/rustc/library/core/src/cell.rs:500\ncopy\n\
             kernel/src/ipc/fast.rs:66\nrequest\nkernel/src/ipc/fast.rs:100\n\
             {:#018x}\n??\n??:0\n",
            a + 4
        );
        let map = Map::read(&text, &Symbols::new(&[]));
        assert_eq!(map.0[&a], Part::Message);
        assert_eq!(map.0[&(a + 4)], Part::Other);
        let sums = map.sum(&[(a, [2, 1, 0]), (a + 4, [1, 0, 1]), (a, [1, 0, 0])]);
        assert_eq!(sums[&Part::Message], [3, 1, 0]);
        assert_eq!(sums[&Part::Other], [1, 0, 1]);
    }
}
