//! All sites of the kernel at which the probe can stop a call, found in its source.
//!
//! The functions that a site passes through are marked `#[cfg_attr(fermata_probe, track_caller)]`; a site is a call
//! of one of them from an unmarked function. Every site that a machine reports must be among these: a missing one
//! shows that this search has overlooked something.

use std::collections::BTreeMap;
use std::path::Path;

use abi::probe::{file_hash, Kind};

use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::project::{read_text, rust_files};

const MARK: &str = "#[cfg_attr(fermata_probe, track_caller)]";

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    file: String,
    line: u32,
    column: u32,
    function: String,
    /// The marked function that it calls.
    calls: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}, {}:{} ({})",
            self.function, self.file, self.line, self.calls
        )
    }
}

/// All sites.
pub(super) struct Registry {
    places: BTreeMap<u64, Place>,
}

/// The bits of a site's number without its kind.
const PLACE: u64 = !(0xf << 32);

impl Registry {
    /// Reads the kernel's source below the root of the checkout.
    pub(super) fn read(root: &Path) -> Result<Self, Error> {
        let mut files = Vec::new();
        for path in rust_files(&root.join("kernel/src"))? {
            let name = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                .to_string();
            // Not sites: the probe's own call, the code that builds the first program (no thread can be cut yet), and
            // tests.
            let other = ["/test/", "syscall/probe.rs", "/check.rs", "/first.rs"];
            if other.iter().any(|part| name.contains(part)) {
                continue;
            }
            let text = read_text(&path)?;
            files.push((name, text));
        }
        Ok(Self::of(&files))
    }

    /// The sites in these files.
    fn of(files: &[(String, String)]) -> Self {
        let marked: Vec<Marked> = files
            .iter()
            .flat_map(|(file, text)| {
                let found = functions(text).into_iter().filter(|f| f.marked);
                found.map(|function| Marked {
                    file: file.clone(),
                    function,
                })
            })
            .collect();
        let mut places = BTreeMap::new();
        // All sites lead to the probe, which has none of its own.
        for (file, text) in files
            .iter()
            .filter(|(file, _)| !file.ends_with("src/probe.rs"))
        {
            for function in functions(text).iter().filter(|f| !f.marked) {
                for (line, column, calls) in calls((file, text), function, &marked) {
                    let id = abi::probe::site(file, Kind::Access, line, column) & PLACE;
                    let place = Place {
                        file: file.clone(),
                        line,
                        column,
                        function: function.name.clone(),
                        calls,
                    };
                    places.insert(id, place);
                }
            }
        }
        Registry { places }
    }

    /// The place of a site that the machine has reported.
    pub(super) fn find(&self, id: u64) -> Option<&Place> {
        self.places.get(&(id & PLACE))
    }

    /// The name of a site, for display.
    pub(super) fn name(&self, id: u64) -> String {
        let kind = match id >> 32 & 0xf {
            1 => "access",
            2 => "handle",
            3 => "wait",
            _ => "preemption point",
        };
        match self.find(id) {
            Some(place) => format!("{place}, {kind}"),
            None => format!("{id:#x}, {kind}"),
        }
    }

    /// The sites that are not among the reported ones. Preemption points and the kernel's lock count only in
    /// configurations that have them.
    pub(super) fn without(
        &self,
        reached: impl Iterator<Item = u64>,
        configs: &[Config],
    ) -> Vec<&Place> {
        let reached: Vec<u64> = reached.map(|id| id & PLACE).collect();
        let some = |preemption: &str| configs.iter().any(|c| c.name().contains(preemption));
        let exists = |place: &Place| match place.calls.as_str() {
            "preempts" => some("-pp"),
            "wait_on" if place.file.ends_with("src/trap.rs") => some("-fp"),
            _ => true,
        };
        self.places
            .iter()
            .filter(|(id, place)| !reached.contains(id) && exists(place))
            .map(|(_, place)| place)
            .collect()
    }
}

/// A function that sites pass through.
struct Marked {
    file: String,
    function: Function,
}

impl Marked {
    /// Whether a call of this name, in this form and file, can be a call of the function.
    fn is_called(&self, (file, text): (&str, &str), before: &str) -> bool {
        let f = &self.function;
        let here = self.file == file;
        if f.method {
            // A private function of a room can be called in all files of the room.
            let room = self.file.strip_suffix("mod.rs");
            let inside = room.is_some_and(|room| file.starts_with(room));
            return before.ends_with('.') && (here || inside || f.public);
        }
        // The module that the path names, if there is one.
        let path: &str = &before[before
            .rfind(|c: char| !is_word(c) && c != ':')
            .map_or(0, |i| i + 1)..];
        let module = path
            .trim_end_matches("::")
            .rsplit("::")
            .next()
            .unwrap_or_default();
        let stem = self.file.trim_end_matches(".rs").trim_end_matches("/mod");
        match module {
            "" => {
                let name = f.name.as_str();
                let imports = |line: &str| line.starts_with("use ") && line.contains(name);
                !before.ends_with('.') && (here || text.lines().any(imports))
            }
            // A type: a function of that type, by whatever path the type is named there.
            name if name.starts_with(char::is_uppercase) => f.public,
            module => f.public && stem.ends_with(&format!("/{module}")),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A function: its lines, from the one with its name on.
struct Function {
    name: String,
    marked: bool,
    /// Whether other files can call it.
    public: bool,
    method: bool,
    first: usize,
    last: usize,
}

/// The functions of a file, without tests. In formatted source a function ends with a brace at the indentation of the
/// line with its name.
fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all: Vec<Function> = Vec::new();
    let mut test = false;
    for (number, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        // A table from which a macro makes functions.
        let table = line.split_once("! {").map(|(name, _)| name);
        if let Some(name) = table.filter(|name| name.chars().all(is_word)) {
            let end = lines[number..].iter().position(|l| *l == "}");
            all.push(Function {
                name: name.into(),
                marked: false,
                public: false,
                method: false,
                first: number,
                last: number + end.unwrap_or(0),
            });
            continue;
        }
        if line.starts_with("#[cfg(") && line.contains("test") {
            test = true;
        }
        if *line == "}" {
            test = false;
        }
        let Some(rest) = trimmed
            .split_once("fn ")
            .filter(|(before, _)| {
                before.is_empty() || before.ends_with(' ') && !before.contains(['/', '"', '='])
            })
            .map(|(_, rest)| rest)
        else {
            continue;
        };
        if test {
            continue;
        }
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let indent = line.len() - trimmed.len();
        // A trait only declares it.
        if line.ends_with(';') {
            continue;
        }
        let end = lines[number..].iter().position(|l| {
            l.len() - l.trim_start().len() == indent
                && (l.trim_start().starts_with('}')
                    || l.trim_end().ends_with(';') && !l.contains("fn "))
        });
        let marked = lines[..number]
            .iter()
            .rev()
            .take_while(|l| l.trim_start().starts_with("#[") || l.trim_start().starts_with("///"))
            .any(|l| l.trim() == MARK);
        // A long parameter list is on lines of its own.
        let first = rest.split_once('(').map_or("", |(_, list)| list);
        let first = if first.is_empty() {
            lines.get(number + 1).map_or("", |line| line.trim())
        } else {
            first
        };
        let first = first.split([',', ')', ':']).next().unwrap_or_default();
        all.push(Function {
            name,
            marked,
            public: trimmed.starts_with("pub"),
            method: first.ends_with("self"),
            first: number,
            last: number + end.unwrap_or(0),
        });
    }
    all
}

/// Calls of marked functions in a function of a file: line, column and name of each.
fn calls(
    (file, text): (&str, &str),
    function: &Function,
    marked: &[Marked],
) -> Vec<(u32, u32, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if number <= function.first || number > function.last {
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        for called in marked {
            let name = called.function.name.as_str();
            for (at, _) in code.match_indices(name) {
                let before = &code[..at];
                let after = &code[at + name.len()..];
                let generic = after
                    .strip_prefix("::<")
                    .and_then(|rest| rest.find('>').map(|end| &rest[end + 1..]));
                if before.ends_with(is_word)
                    || !generic.unwrap_or(after).starts_with('(')
                    || !called.is_called((file, text), before)
                {
                    continue;
                }
                // A path begins with its first segment.
                let start = before
                    .rfind(|c: char| !is_word(c) && c != ':')
                    .map_or(0, |i| i + 1);
                let method = before.ends_with('.');
                let column = if method { at } else { start };
                found.push((number as u32 + 1, column as u32 + 1, name.to_string()));
            }
        }
    }
    found
}

const _: fn(&str) -> u64 = file_hash;

#[cfg(test)]
mod tests {
    use super::Registry;

    #[test]
    fn a_private_function_is_called_in_its_room_only() {
        let marked = format!(
            "impl Args {{\n    {}\n    fn object(self) {{\n        probe();\n    }}\n}}\n",
            super::MARK
        );
        let calls = "fn call(a: Args) {\n    a.object();\n}\n";
        let files = [
            ("kernel/src/syscall/mod.rs", &*marked),
            ("kernel/src/syscall/state.rs", calls),
            ("kernel/src/ipc/mod.rs", calls),
        ];
        let files = files.map(|(name, text)| (name.to_string(), text.to_string()));
        let found = Registry::of(&files);
        let places: Vec<&str> = found.places.values().map(|p| &*p.file).collect();
        assert_eq!(places, ["kernel/src/syscall/state.rs"]);
    }
}
