//! Rules about which room of the kernel may know what, as `./fermata check` holds it to them.
//!
//! A rule names words and the files that they may stand in. Comments are not looked at.

use std::path::Path;

use xtask_build::error::Error;
use xtask_build::project::rust_files;

/// Words that only some files may use.
struct Rule {
    /// A word matches where it stands by itself: not as the end of a longer name.
    words: &'static [&'static str],
    /// Files, and directories with a `/` at the end, that may use them.
    rooms: &'static [&'static str],
    /// What to do instead.
    remedy: &'static str,
}

/// Where the rules hold.
const KERNEL: &[&str] = &["abi", "hal", "kernel", "boot"];

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
        remedy: "it is read once, into `hal::mask::WAY`, for kernels that are measured and not used",
    },
    Rule {
        words: &["CONFIG.model", "Model"],
        rooms: &["kernel/src/config.rs", "kernel/src/exec/"],
        remedy: "what depends on the execution model belongs to kernel/src/exec: give it a function there",
    },
    Rule {
        words: &["CONFIG.preemption", "Preemption"],
        rooms: &["kernel/src/config.rs", "kernel/src/exec/"],
        remedy: "what depends on preemption belongs to kernel/src/exec: ask `Kernel::preempts`, or give \
                 it a function there",
    },
];

/// Looks at the kernel's sources below `root` and returns what breaks a rule: one line each, with
/// file, line and remedy.
pub(super) fn broken(root: &Path) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for directory in KERNEL {
        for path in rust_files(&root.join(directory))? {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| Error::new(format!("cannot read {}: {error}", path.display())))?;
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
            found.extend(broken_in(&name, &text));
        }
    }
    Ok(found)
}

/// What in the file of this name breaks a rule.
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

/// Whether `word` stands in `code` by itself.
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
    }
}
