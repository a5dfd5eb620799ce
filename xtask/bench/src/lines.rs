//! How many lines depend on the execution model (Ford et al., section 5: two hundred of assembly
//! language and fifty of C).
//!
//! Code that depends on the model is in `kernel/src/exec`, in `kept.rs` beside it and in the entry code of `hal`, and
//! nowhere else; `./fermata check` enforces that.

use std::path::Path;

use xtask_build::error::Error;

/// Lines of code, without those that are empty, comments, or tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    /// In an assembly template.
    pub(super) assembly: u64,
    /// All others.
    pub(super) rust: u64,
}

/// A file that depends on the model.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) path: String,
    pub(super) lines: Lines,
    /// The models that need it.
    pub(super) models: &'static str,
}

/// Files of the machine that differ between the models: entry and exit, and kernel stacks.
const MACHINE: [&str; 2] = ["hal/src/x86_64/trap.rs", "hal/src/x86_64/stack.rs"];
/// The directory of the models, and the file with what a thread keeps in each.
const EXEC: &str = "kernel/src/exec";
const KEPT: &str = "kernel/src/kept.rs";

/// Counts, in the order of the paths.
pub(super) fn count(root: &Path) -> Result<Vec<Room>, Error> {
    let failed = |what: &str, error| Error::new(format!("cannot read {what}: {error}"));
    let mut paths: Vec<String> = MACHINE.iter().map(ToString::to_string).collect();
    let directory = std::fs::read_dir(root.join(EXEC)).map_err(|e| failed(EXEC, e))?;
    for entry in directory {
        let name = entry.map_err(|e| failed(EXEC, e))?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".rs") {
            paths.push(format!("{EXEC}/{name}"));
        }
    }
    paths.push(KEPT.into());
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(root.join(&path)).map_err(|e| failed(&path, e))?;
            Ok(Room {
                lines: lines(&text),
                models: models(&path),
                path,
            })
        })
        .collect()
}

/// Which models a file is for.
fn models(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    match name {
        "stack.rs" => "process, continuation",
        "lock.rs" => "process-fp, continuation-fp",
        "stacks.rs" => "continuation",
        _ => "all",
    }
}

/// Counts the lines of a text.
fn lines(text: &str) -> Lines {
    let mut lines = Lines::default();
    // Inside the template of an assembly macro: from the macro's name to the first line that is an operand or the
    // end.
    let mut assembly = false;
    // Inside a macro whose quoted text is a piece of a template; and inside such a text.
    let (mut piece, mut quoted) = (false, false);
    for line in text.lines() {
        match line {
            _ if line.starts_with("macro_rules!") => piece = true,
            "}" => piece = false,
            _ => {}
        }
        let line = line.trim();
        if line == "#[cfg(test)]" {
            break;
        }
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        if piece && (quoted || line.starts_with('"')) {
            quoted ^= line.matches('"').count() % 2 == 1;
            lines.assembly += 1;
            continue;
        }
        let begins = ["global_asm!(", "naked_asm!(", "asm!("]
            .iter()
            .any(|word| line.contains(word));
        if begins {
            assembly = !line.contains(')');
            // A template on the same line.
            if line.contains('"') {
                lines.assembly += 1;
            } else {
                lines.rust += 1;
            }
            continue;
        }
        if assembly && (line.starts_with(')') || is_operand(line)) {
            assembly = false;
        }
        match (assembly, line) {
            // The quotation marks of a template of many lines, and its own comments.
            (true, "r#\"" | "\"#,") => {}
            (true, _) => lines.assembly += 1,
            (false, _) => lines.rust += 1,
        }
    }
    lines
}

/// `name = sym ...`, `name = const ...`, `in(...)`, `options(...)`.
fn is_operand(line: &str) -> bool {
    let kinds = ["sym ", "const ", "in(", "out(", "inout(", "lateout("];
    let rest = line.split_once(" = ").map_or(line, |(name, rest)| {
        if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            rest
        } else {
            ""
        }
    });
    rest.starts_with("options(") || kinds.iter().any(|kind| rest.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assembly_and_rust_are_told_apart() {
        let text = r##"//! What.
use core::arch::asm;

/// A function.
fn f() {
    // SAFETY: nothing.
    unsafe { asm!("nop", options(nostack)) };
    naked_asm!(
        "mov rax, rbx",
        // A comment.
        "ret",
        cpu = sym CPU,
        at = const offset_of!(A, b),
    )
}
macro_rules! end {
    () => {
        "pop rax
        ret"
    };
}
global_asm!(
    r#"
    .balign 8
name:
    // Nothing.
    ret
    "#,
    bytes = const 8,
);
#[cfg(test)]
mod tests {
    fn more() {}
}
"##;
        assert_eq!(
            lines(text),
            Lines {
                // nop; mov, ret; pop, ret; .balign, name:, ret.
                assembly: 8,
                // use, fn, naked_asm!(, two operands, ), }; macro_rules!, =>, two braces; global_asm!(,
                // operand, );
                rust: 14
            }
        );
    }
}
