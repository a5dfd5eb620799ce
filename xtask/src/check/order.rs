//! The order of the kernel's rooms, which `./fermata check` enforces.
//!
//! A room is a module of the kernel's crate. It calls functions and methods, and uses constants, only of itself and
//! of rooms below it. A method belongs to the room that contains its `impl`, whatever its type: `k.exit_trap(t)` is a
//! call of `leave`. Types are not ordered, because the objects of the kernel name each other (a thread names its
//! space, a space its threads): the types of objects may be named everywhere, and the rooms of [`STATE`] may name the
//! types of which the state consists.
//!
//! The check works on the text. It finds the room of a method by the receiver where that is `k`, `self` or a field of
//! a structure of the kernel, and otherwise by the method's name: a name stands for the lowest room that has such a
//! method. Names of methods that types of `core` have as well ([`OF_CORE`]) are checked only where the receiver is
//! known.

use std::collections::BTreeMap;

/// The rooms from the ground up.
const ORDER: &[&str] = &[
    "config",
    "stop",
    "kernel",
    "avl",
    "counters",
    "probe",
    "kept",
    "queue",
    "deadlines",
    "lock",
    "sched",
    "preempt",
    "object",
    "memory",
    "exec",
    "check",
    "irq",
    "leave",
    "handle",
    "ipc",
    "syscall",
    "trap",
    "first",
];

/// Rooms that consist of types, and name types of any room as parts of theirs.
const STATE: &[&str] = &["stop", "kernel"];

/// The room whose types every room may name.
const NAMED_BY_ALL: &str = "object";

/// The directory in which the order holds.
const ORDERED: &str = "kernel/src/";

/// Names of methods of the kernel that types of `core` have, too.
const OF_CORE: &[&str] = &[
    "all", "each_ref", "fill", "filter", "find", "first", "get", "is_empty", "is_none", "is_some",
    "iter", "last", "len", "map", "new", "next", "or_else", "push", "replace", "set", "swap",
    "take",
];

/// A function or constant in an `impl` or a trait.
struct Member<'a> {
    room: &'a str,
    of: &'a str,
    name: &'a str,
}

/// What is known of the kernel: its members, the rooms that define each type, and for each field the types in its
/// declarations.
#[derive(Default)]
struct Known<'a> {
    members: Vec<Member<'a>>,
    types: BTreeMap<&'a str, Vec<&'a str>>,
    fields: BTreeMap<&'a str, Vec<&'a str>>,
}

/// The places in files of the kernel, given by path and text, where a room uses one above it, and the files that are
/// in no room.
pub(super) fn upward(files: &[(String, String)]) -> Vec<String> {
    let files: Vec<(&str, String)> = files
        .iter()
        .filter(|(file, _)| file.starts_with(ORDERED))
        .map(|(file, text)| (file.as_str(), without_comments(text)))
        .collect();
    let mut known = Known::default();
    for (file, text) in &files {
        let room = room_of(file);
        if place(room).is_some() {
            known.read(room, text);
        }
    }
    files
        .iter()
        .flat_map(|(file, text)| upward_in(file, text, &known))
        .collect()
}

fn upward_in(file: &str, text: &str, known: &Known<'_>) -> Vec<String> {
    let room = room_of(file);
    if room == "lib" || room == "test" {
        return Vec::new();
    }
    let Some(own) = place(room) else {
        return vec![format!(
            "{file}: the room `{room}` has no place in the order of xtask/src/check/order.rs: give it one"
        )];
    };
    let above = |name: &str| place(name).is_none_or(|theirs| theirs > own);
    let mut found = Vec::new();
    for (line, path) in paths(text) {
        let theirs = path.split("::").next().unwrap_or_default();
        let named = is_type(last(&path));
        let may = named && (theirs == NAMED_BY_ALL || STATE.contains(&room));
        if above(theirs) && !may {
            found.push((line, format!("crate::{path}"), theirs.to_string()));
        }
    }
    for (line, use_) in uses(text) {
        let rooms = known.rooms(&use_);
        let lowest = rooms.iter().min_by_key(|room| place(room));
        if let Some(theirs) = lowest.filter(|theirs| above(theirs)) {
            found.push((line, use_.to_string(), theirs.to_string()));
        }
    }
    found.sort();
    found
        .into_iter()
        .map(|(line, what, theirs)| {
            format!(
                "{file}:{line}: `{what}`: `{theirs}` is above `{room}`; a room calls only those below it ({}): move \
                 what both need down, or the caller up",
                ORDER.join(", ")
            )
        })
        .collect()
}

/// The room of a file.
fn room_of(file: &str) -> &str {
    let inside = file.strip_prefix(ORDERED).unwrap_or(file);
    inside.split(['/', '.']).next().unwrap_or_default()
}

fn place(room: &str) -> Option<usize> {
    ORDER.iter().position(|known| *known == room)
}

/// The text without comments and without the content of strings.
fn without_comments(text: &str) -> String {
    let code = |line: &str| {
        let line = line.split("//").next().unwrap_or_default();
        let parts = line.split('"').enumerate();
        let outside = parts.map(|(n, part)| if n % 2 == 0 { part } else { "" });
        outside.collect::<Vec<_>>().join("\"")
    };
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The name at the beginning of a text.
fn name_at(text: &str) -> &str {
    &text[..text.find(|c| !is_part(c)).unwrap_or(text.len())]
}

/// The name at the end of a text.
fn name_before(text: &str) -> &str {
    let start = text.rfind(|c| !is_part(c));
    &text[start.map_or(0, |at| {
        at + text[at..].chars().next().map_or(0, char::len_utf8)
    })..]
}

/// Whether a name is that of a type: it begins with a capital and is not all capitals. `K` is a type.
fn is_type(name: &str) -> bool {
    name.starts_with(|c: char| c.is_uppercase())
        && (name.len() == 1 || name.contains(|c: char| c.is_lowercase()))
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or_default()
}

/// A use of a member: `receiver.name(` or `receiver::name`.
struct Use<'a> {
    receiver: &'a str,
    is_path: bool,
    name: &'a str,
    /// The type whose `impl` contains the use.
    within: &'a str,
}

impl core::fmt::Display for Use<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let dot = if self.is_path { "::" } else { "." };
        write!(f, "{}{dot}{}", self.receiver, self.name)
    }
}

impl<'a> Known<'a> {
    /// Records what a text declares.
    fn read(&mut self, room: &'a str, text: &'a str) {
        let (mut within, mut in_struct) = ("", false);
        for line in text.lines() {
            if line.starts_with(|c: char| !c.is_whitespace() && c != '#') {
                within = block_of(line).unwrap_or_default();
                in_struct = false;
            }
            let words = line.trim_start().trim_start_matches("pub ");
            let words = match words.strip_prefix("pub(") {
                Some(rest) => rest.split_once(") ").map_or(words, |(_, rest)| rest),
                None => words,
            };
            if line.starts_with(char::is_whitespace) {
                if in_struct {
                    if let Some((name, of)) = words.split_once(": ") {
                        let named = of.split(|c| !is_part(c)).filter(|name| is_type(name));
                        self.fields.entry(name).or_default().extend(named);
                    }
                } else if !within.is_empty()
                    && line.starts_with("    ")
                    && !line.starts_with("     ")
                {
                    let words = words
                        .trim_start_matches("const fn ")
                        .trim_start_matches("const ");
                    let name = name_at(
                        words
                            .trim_start_matches("unsafe ")
                            .trim_start_matches("fn "),
                    );
                    let declares = line.contains("fn ") || line.contains("const ");
                    if declares && !name.is_empty() {
                        self.members.push(Member {
                            room,
                            of: within,
                            name,
                        });
                    }
                }
                continue;
            }
            for kind in ["struct ", "enum ", "trait ", "type "] {
                if let Some(rest) = words.strip_prefix(kind) {
                    self.types.entry(name_at(rest)).or_default().push(room);
                    in_struct = kind == "struct ";
                }
            }
        }
    }

    /// The rooms of the member that is used, as far as the text shows them. Empty if it is not a member of the
    /// kernel.
    fn rooms(&self, use_: &Use<'_>) -> Vec<&'a str> {
        let of = |owns: &dyn Fn(&str) -> bool| -> Vec<&'a str> {
            let members = self.members.iter();
            let members = members.filter(|m| m.name == use_.name && owns(m.of));
            members.map(|m| m.room).collect()
        };
        if use_.is_path {
            let owner = if use_.receiver == "Self" {
                use_.within
            } else {
                use_.receiver
            };
            return of(&|of| of == owner);
        }
        let known = match use_.receiver {
            "k" => of(&|of| of == "Kernel"),
            "self" => of(&|of| of == use_.within),
            field => match self.fields.get(field) {
                Some(types) => of(&|of| types.contains(&of)),
                None => Vec::new(),
            },
        };
        if !known.is_empty() {
            return known;
        }
        if OF_CORE.contains(&use_.name) {
            return Vec::new();
        }
        of(&|_| true)
    }
}

/// The type of the `impl`, or the trait, whose block begins in this line.
fn block_of(line: &str) -> Option<&str> {
    let rest = match line.split_once("trait ") {
        Some((before, rest)) if !before.contains("impl") => return Some(name_at(rest)),
        _ => line.strip_prefix("impl")?,
    };
    let rest = match rest.strip_prefix('<') {
        Some(generic) => {
            let mut depth = 1;
            let end = generic.find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            })?;
            &generic[end + 1..]
        }
        None => rest,
    };
    let of = rest
        .split_once(" for ")
        .map_or(rest, |(_, of)| of)
        .trim_start();
    let path = of.split(['<', ' ', '{']).next()?;
    Some(last(path))
}

/// Every use of a member in a text, with its line.
fn uses(text: &str) -> Vec<(usize, Use<'_>)> {
    let mut found = Vec::new();
    let mut within = "";
    let mut start = 0;
    for (number, line) in text.split('\n').enumerate() {
        if line.starts_with(|c: char| !c.is_whitespace() && c != '#') {
            within = block_of(line).unwrap_or_default();
        }
        for (at, _) in line.match_indices('.') {
            let name = name_at(&line[at + 1..]);
            let behind = &line[at + 1 + name.len()..];
            if name.is_empty() || !(behind.starts_with('(') || behind.starts_with("::<")) {
                continue;
            }
            // The receiver may be at the end of an earlier line.
            let receiver = name_before(text[..start + at].trim_end());
            let use_ = Use {
                receiver,
                is_path: false,
                name,
                within,
            };
            found.push((number + 1, use_));
        }
        for (at, _) in line.match_indices("::") {
            let receiver = name_before(&line[..at]);
            let name = name_at(&line[at + 2..]);
            if is_type(receiver) && !name.is_empty() && !is_type(name) {
                let use_ = Use {
                    receiver,
                    is_path: true,
                    name,
                    within,
                };
                found.push((number + 1, use_));
            }
        }
        start += line.len() + 1;
    }
    found
}

/// The paths below the crate's own root that a text names, without `crate::`, with their lines. Items of the root
/// itself, types and constants with a capital letter, are in no room.
fn paths(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, root) in text.match_indices("crate::") {
        if text[..at].ends_with(is_part) {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        let mut all = Vec::new();
        leaves("", &text[at + root.len()..], &mut all);
        let all = all
            .into_iter()
            .filter(|path| path.starts_with(|c: char| c.is_lowercase()));
        found.extend(all.map(|path| (line, path)));
    }
    found
}

/// The single paths that a path or group of paths at the beginning of a text stands for, with `before` in front.
fn leaves(before: &str, text: &str, all: &mut Vec<String>) {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        for path in top_level(group) {
            if !path.trim().is_empty() {
                leaves(before, path, all);
            }
        }
        return;
    }
    let name = name_at(text);
    let path = match (before, name) {
        ("", name) => name.to_string(),
        (before, "self") => before.to_string(),
        (before, name) => format!("{before}::{name}"),
    };
    match text[name.len()..].strip_prefix("::") {
        // What follows a type is a member or variant of it.
        Some(rest) if !is_type(name) && !rest.starts_with('<') => leaves(&path, rest, all),
        _ => all.push(path),
    }
}

/// The paths of a group of imports, from behind its opening brace.
fn top_level(group: &str) -> Vec<&str> {
    let (mut paths, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                paths.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                paths.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use xtask_build::project::rust_files;

    /// The files of the kernel.
    fn sources() -> Vec<(String, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let files = rust_files(&root.join(ORDERED)).expect("the kernel");
        let read = |path: std::path::PathBuf| {
            let name = path.strip_prefix(&root).expect("a file below the root");
            let text = std::fs::read_to_string(&path).expect("a file");
            (name.to_string_lossy().into_owned(), text)
        };
        files.into_iter().map(read).collect()
    }

    /// The violations after a text is added to the end of a file of the kernel, without the list of all rooms.
    fn with(file: &str, text: &str) -> Vec<String> {
        let mut sources = sources();
        let file = format!("{ORDERED}{file}");
        match sources.iter_mut().find(|(name, _)| *name == file) {
            Some((_, old)) => old.push_str(text),
            None => sources.push((file, text.to_string())),
        }
        let short = |line: String| {
            line.split("; a room")
                .next()
                .unwrap_or_default()
                .to_string()
        };
        upward(&sources).into_iter().map(short).collect()
    }

    #[test]
    fn no_room_of_the_kernel_uses_one_above_it() {
        let found = with("sched.rs", "");
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn imports_that_go_up_are_found_with_their_lines() {
        let text = "use crate::object::thread::Thread;\nuse crate::{\n    ipc::{self, fast},\n    probe, K,\n};\n\
                    // crate::trap\nfn f() { crate::syscall::g(); crate::leave::C; }\n";
        let file = "kernel/src/object/port.rs".to_string();
        let found = upward(&[(file, text.to_string())]);
        let expected = [
            "2: `crate::ipc`: `ipc` is above `object`",
            "2: `crate::ipc::fast`: `ipc` is above `object`",
            "7: `crate::leave::C`: `leave` is above `object`",
            "7: `crate::syscall::g`: `syscall` is above `object`",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            let expected = format!("kernel/src/object/port.rs:{expected}");
            assert!(found.starts_with(&expected), "{found}");
        }
        for file in [
            "kernel/src/first.rs",
            "kernel/src/test/ipc.rs",
            "hal/src/lib.rs",
        ] {
            let found = upward(&[(file.to_string(), text.to_string())]);
            assert!(found.is_empty(), "{file}: {found:#?}");
        }
        assert_eq!(
            upward(&[("kernel/src/new.rs".into(), String::new())]).len(),
            1
        );
    }

    #[test]
    fn types_of_objects_may_be_named_below_them_and_nothing_else_of_theirs() {
        let up = |text: &str| with("queue.rs", text).len();
        assert_eq!(up("use crate::object::thread::{Hint, Run};\n"), 0);
        assert_eq!(up("use crate::object::CHUNK;\n"), 1);
        assert_eq!(up("use crate::object::place_at;\n"), 1);
        assert_eq!(up("use crate::object;\n"), 1);
        // Only the state may name types of rooms above it.
        assert_eq!(up("use crate::sched::Scheduler;\n"), 1);
        assert_eq!(with("kernel.rs", "use crate::sched::Scheduler;\n").len(), 0);
        assert_eq!(with("kernel.rs", "use crate::memory::probe;\n").len(), 1);
    }

    #[test]
    fn methods_that_go_up_are_found() {
        for (file, text, expected) in [
            // A method of the state: the room is that of its `impl`.
            (
                "sched.rs",
                "k.exit_trap(t)",
                "`k.exit_trap`: `leave` is above `sched`",
            ),
            (
                "memory.rs",
                "k.stopped(t, stop)",
                "`k.stopped`: `ipc` is above `memory`",
            ),
            (
                "object/port.rs",
                "k\n        .tell_notices()",
                "`k.tell_notices`: `leave` is above `object`",
            ),
            // A part of the state: the room is that of its type.
            (
                "queue.rs",
                "k.cpu().sched.add(t)",
                "`sched.add`: `sched` is above `queue`",
            ),
            (
                "lock.rs",
                "k.vacancies.of(head)",
                "`vacancies.of`: `object` is above `lock`",
            ),
            // A field of an object.
            (
                "avl.rs",
                "t.kept.take()",
                "`kept.take`: `kept` is above `avl`",
            ),
            // By the method's name.
            (
                "sched.rs",
                "t.wake(k)",
                "`t.wake`: `object` is above `sched`",
            ),
            (
                "preempt.rs",
                "Thread::wake(t, k)",
                "`Thread::wake`: `object` is above `preempt`",
            ),
            (
                "lock.rs",
                "Link::NONE",
                "`Link::NONE`: `object` is above `lock`",
            ),
            (
                "kernel.rs",
                "Scheduler::new()",
                "`Scheduler::new`: `sched` is above `kernel`",
            ),
        ] {
            let found = with(file, &format!("fn f(k: K) {{\n    {text};\n}}\n"));
            assert_eq!(found.len(), 1, "{text}: {found:#?}");
            assert!(found[0].ends_with(expected), "{text}: {found:#?}");
        }
    }

    #[test]
    fn methods_that_go_down_are_let_be() {
        for (file, text) in [
            ("trap.rs", "k.exit_trap(t)"),
            ("object/port.rs", "k.cpu().sched.add(t)"),
            ("avl.rs", "self.place.get()"),
            ("sched.rs", "Run::Waiting(why)"),
            ("sched.rs", "let text = \"k.exit_trap(t)\""),
            ("sched.rs", "// k.exit_trap(t)"),
        ] {
            let found = with(file, &format!("fn f(k: K) {{\n    {text};\n}}\n"));
            assert!(found.is_empty(), "{text}: {found:#?}");
        }
    }

    #[test]
    fn every_room_of_the_order_is_there() {
        let kernel = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(ORDERED);
        for room in ORDER {
            let files = [format!("{room}.rs"), format!("{room}/mod.rs")];
            assert!(
                files.iter().any(|file| kernel.join(file).exists()),
                "{room}"
            );
        }
    }
}
