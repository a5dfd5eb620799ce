//! Many mutants in one build.
//!
//! Building the tests of a package takes longer than running those that should notice a mutant. So all mutants that only
//! change what is inside functions are planted at once, as alternatives: a function of which there are mutants gets
//! a body that asks which mutant the tests were started with ([`CHOICE`]), and is that mutant's body or its own. Without
//! a choice the tests must pass.
//!
//! A mutant that changes something else (a constant, a signature, a macro), or which the compiler does not accept as an
//! alternative, is planted alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use syn::visit::{self, Visit};
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::project::BuildTarget;

use super::judge::{build_quickly, finish};
use super::plant::{changes, find};
use super::Room;

/// The variable of the environment with the number of the mutant that the tests are to have.
const CHOICE: &str = "FERMATA_MUTANT";
/// Host time after which the build is stopped.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// What each file with alternatives is given: whether the tests were started with a mutant.
const ASKS: &str = "
mod fermata_mutant {
    extern crate std;
    pub fn is(number: usize) -> bool {
        static CHOICE: self::std::sync::OnceLock<usize> = self::std::sync::OnceLock::new();
        let read = || {
            let text = self::std::env::var(\"FERMATA_MUTANT\").ok()?;
            text.parse().ok()
        };
        *CHOICE.get_or_init(|| read().unwrap_or(usize::MAX)) == number
    }
}
";

/// The bodies of functions in a source, as ranges of its bytes with the braces.
#[derive(Default)]
struct Bodies(Vec<Range<usize>>);

impl Bodies {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        // A constant function cannot ask, and alternatives of an opaque type would differ in it.
        let opaque = match &signature.output {
            syn::ReturnType::Type(_, of) => Opaque::is_in(of),
            syn::ReturnType::Default => false,
        };
        if signature.constness.is_none() && !opaque {
            let braces = block.brace_token.span;
            self.0
                .push(braces.open().byte_range().start..braces.close().byte_range().end);
        }
    }

    /// The innermost body with the whole range between its braces.
    fn around(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let holds = |body: &&Range<usize>| body.start < range.start && range.end < body.end;
        let bodies = self.0.iter().filter(holds);
        bodies.min_by_key(|body| body.len()).cloned()
    }
}

impl<'a> Visit<'a> for Bodies {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// Whether there is an `impl Trait` in a type.
struct Opaque(bool);

impl Opaque {
    fn is_in(of: &syn::Type) -> bool {
        let mut found = Opaque(false);
        found.visit_type(of);
        found.0
    }
}

impl<'a> Visit<'a> for Opaque {
    fn visit_type_impl_trait(&mut self, _: &'a syn::TypeImplTrait) {
        self.0 = true;
    }
}

/// What takes the place of one body.
struct Replaced<T> {
    body: Range<usize>,
    by: Vec<(T, String)>,
}

/// Bodies that are replaced, by where they begin.
type ReplacedBodies<T> = BTreeMap<usize, Replaced<T>>;

/// The alternatives of one file.
struct File {
    source: String,
    bodies: Bodies,
    /// The bodies of functions with mutants, by the mutants' numbers.
    alternatives: ReplacedBodies<usize>,
}

impl File {
    fn read(path: &Path) -> Result<Self, Error> {
        let failed = |why: String| Error::new(format!("{}: {why}", path.display()));
        let source = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let syntax = syn::parse_file(&source).map_err(|error| failed(error.to_string()))?;
        let mut bodies = Bodies::default();
        bodies.visit_file(&syntax);
        Ok(Self {
            source,
            bodies,
            alternatives: BTreeMap::new(),
        })
    }

    /// The bodies that a mutant's changes to this file replace, with its own; `None` if that is not all they do.
    fn mutated(&self, changes: &[&[&str]]) -> Option<Vec<(Range<usize>, String)>> {
        let lines: Vec<&str> = self.source.lines().collect();
        let mut starts = vec![0];
        starts.extend(self.source.match_indices('\n').map(|(at, _)| at + 1));
        let mut bodies: ReplacedBodies<Range<usize>> = BTreeMap::new();
        for change in changes {
            let change = find(&lines, change).ok()?;
            let bytes = starts[change.old.start]..starts[change.old.end];
            let body = self.bodies.around(&bytes)?;
            let text = change.new.iter().flat_map(|line| [line, "\n"]).collect();
            let of = bodies.entry(body.start);
            let by = Vec::new();
            of.or_insert(Replaced { body, by }).by.push((bytes, text));
        }
        let ranges: Vec<&Range<usize>> = bodies.values().map(|of| &of.body).collect();
        // One inside another would be lost in the other's text.
        if ranges.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return None;
        }
        let mutated = bodies.into_values().map(
            |Replaced {
                 body,
                 by: mut edits,
             }| {
                let mut text = self.source[body.clone()].to_string();
                edits.sort_by_key(|(bytes, _)| bytes.start);
                for (bytes, new) in edits.into_iter().rev() {
                    text.replace_range(bytes.start - body.start..bytes.end - body.start, &new);
                }
                syn::parse_str::<syn::Block>(&text).ok()?;
                Some((body, text))
            },
        );
        mutated.collect()
    }

    /// Whether a body lies in one that has alternatives, or around one: its own would be lost in the other's.
    fn is_nested(&self, body: &Range<usize>) -> bool {
        let mut others = self.alternatives.values().map(|of| &of.body);
        others.any(|other| other != body && other.start < body.end && body.start < other.end)
    }

    /// The source with its alternatives, and what the lines of each are, counted from 1.
    fn text(&self) -> (String, Vec<Part>) {
        let mut text = String::new();
        let mut parts = Vec::new();
        let line = |text: &str| text.matches('\n').count() + 1;
        let mut from = 0;
        for Replaced { body, by } in self.alternatives.values() {
            text.push_str(&self.source[from..body.start]);
            let first = line(&text);
            text.push_str("{\n");
            for (number, body) in by {
                let first = line(&text);
                text.push_str(&format!("if fermata_mutant::is({number}) {body}\nelse\n"));
                parts.push(Part {
                    lines: first..line(&text),
                    numbers: vec![*number],
                });
            }
            text.push_str(&self.source[body.clone()]);
            text.push_str("\n}");
            // Looked for after its alternatives: an error there says that they do not go together.
            parts.push(Part {
                lines: first..line(&text) + 1,
                numbers: by.iter().map(|(number, _)| *number).collect(),
            });
            from = body.end;
        }
        text.push_str(&self.source[from..]);
        text.push_str(ASKS);
        (text, parts)
    }
}

/// Lines of a file that are there because of these mutants.
struct Part {
    lines: Range<usize>,
    numbers: Vec<usize>,
}

/// Mutants that are planted together.
#[derive(Default)]
pub(super) struct Plan {
    files: BTreeMap<String, File>,
    numbers: BTreeSet<usize>,
}

impl Plan {
    /// Adds a mutant, whose number is its own. Returns whether it can be planted so.
    pub(super) fn add(&mut self, root: &Path, number: usize, text: &str) -> Result<bool, Error> {
        let Ok(changes) = changes(text) else {
            return Ok(false);
        };
        let mut by_file: BTreeMap<&str, Vec<&[&str]>> = BTreeMap::new();
        for (path, lines) in &changes {
            by_file.entry(path).or_default().push(lines);
        }
        let mut all = Vec::new();
        for (path, changes) in by_file {
            if !self.files.contains_key(path) {
                let file = File::read(&root.join(path))?;
                self.files.insert(path.into(), file);
            }
            let file = &self.files[path];
            let Some(mutated) = file.mutated(&changes) else {
                return Ok(false);
            };
            if mutated.iter().any(|(body, _)| file.is_nested(body)) {
                return Ok(false);
            }
            all.push((path.to_string(), mutated));
        }
        for (path, mutated) in all {
            let Some(file) = self.files.get_mut(&path) else {
                continue;
            };
            for (body, text) in mutated {
                let of = file.alternatives.entry(body.start);
                let by = Vec::new();
                of.or_insert(Replaced { body, by }).by.push((number, text));
            }
        }
        self.numbers.insert(number);
        Ok(true)
    }

    /// The mutants that are planted together.
    pub(super) fn numbers(&self) -> &BTreeSet<usize> {
        &self.numbers
    }

    fn remove(&mut self, numbers: &BTreeSet<usize>) {
        self.numbers.retain(|number| !numbers.contains(number));
        for file in self.files.values_mut() {
            file.alternatives.retain(|_, of| {
                of.by.retain(|(number, _)| !numbers.contains(number));
                !of.by.is_empty()
            });
        }
    }

    /// Writes the sources with the mutants. Returns what their lines are, by file.
    fn write(&self, root: &Path) -> Result<BTreeMap<&str, Vec<Part>>, Error> {
        let mut parts = BTreeMap::new();
        for (path, file) in &self.files {
            let text = match file.alternatives.is_empty() {
                true => file.source.clone(),
                false => {
                    let (text, of) = file.text();
                    parts.insert(path.as_str(), of);
                    text
                }
            };
            let path = root.join(path);
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                let failed =
                    |error| Error::new(format!("cannot write {}: {error}", path.display()));
                fs::write(&path, text).map_err(failed)?;
            }
        }
        Ok(parts)
    }

    /// Plants the mutants in a room and builds the tests of these packages there. Mutants that the compiler does not
    /// accept are taken out of the plan. Returns the tests of each package.
    pub(super) fn build(
        &mut self,
        room: &Room,
        packages: &BTreeSet<&str>,
    ) -> Result<BTreeMap<String, Tests>, Error> {
        let (out, err) = (room.target.join("messages"), room.target.join("log"));
        loop {
            let parts = self.write(&room.root)?;
            let mut cargo = room.cargo(BuildTarget::Host, Config::DEFAULT, "test");
            cargo.args([
                "--no-run",
                "--lib",
                "--no-fail-fast",
                "--message-format=json",
            ]);
            for package in packages {
                cargo.args(["--package", package]);
                build_quickly(&mut cargo, package);
            }
            let end = finish(cargo, TIMEOUT, &out, &err)?;
            let text = fs::read_to_string(&out).unwrap_or_default();
            let messages = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            let messages: Vec<Value> = messages.collect();
            if end == Some(true) {
                return tests(room, &messages);
            }
            let culprits: BTreeSet<usize> = messages
                .iter()
                .filter(|message| message["reason"] == "compiler-message")
                .filter(|message| message["message"]["level"] == "error")
                .flat_map(|message| culprits(&message["message"], &parts))
                .collect();
            if culprits.is_empty() {
                let log = fs::read_to_string(&err).unwrap_or_default();
                let why = log.lines().find(|line| line.starts_with("error"));
                let why = why.unwrap_or("no error is said");
                let log = err.display();
                return Err(Error::new(format!(
                    "the tests with all mutants do not build: {why} ({log})"
                )));
            }
            self.remove(&culprits);
        }
    }
}

/// The mutants because of which the compiler says something.
fn culprits(message: &Value, parts: &BTreeMap<&str, Vec<Part>>) -> Vec<usize> {
    let spans = message["spans"].as_array().into_iter().flatten();
    let of_span = |span: &Value| -> Option<&Part> {
        let parts = parts.get(span["file_name"].as_str()?)?;
        let line = usize::try_from(span["line_start"].as_u64()?).ok()?;
        parts.iter().find(|part| part.lines.contains(&line))
    };
    let found = spans.filter_map(of_span);
    // What is closest to one mutant.
    let part = found.min_by_key(|part| part.numbers.len());
    part.map(|part| part.numbers.clone()).unwrap_or_default()
}

/// The tests of a package, which have been built.
pub(super) struct Tests {
    binary: PathBuf,
    /// The package's directory, where they run.
    directory: PathBuf,
}

impl Tests {
    /// The command that runs them, with a mutant or without one.
    pub(super) fn start(&self, mutant: Option<usize>) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env_remove(CHOICE);
        if let Some(number) = mutant {
            command.env(CHOICE, number.to_string());
        }
        command
    }
}

/// The tests that cargo has built, by package.
fn tests(room: &Room, messages: &[Value]) -> Result<BTreeMap<String, Tests>, Error> {
    let packages = room.packages()?;
    let built = messages.iter().filter_map(|message| {
        let binary = PathBuf::from(message["executable"].as_str()?);
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
        let package = packages
            .iter()
            .find(|package| room.root.join(&package.dir) == directory)?;
        let directory = directory.to_path_buf();
        Some((package.name.clone(), Tests { binary, directory }))
    });
    Ok(built.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const SOURCE: &str = "\
const LIMIT: u32 = 3;
fn outer(n: u32) -> u32 {
    fn inner(n: u32) -> u32 {
        n + 1
    }
    inner(n)
}
const fn known() -> u32 {
    4
}
fn hidden() -> impl Fn() {
    || ()
}
struct S;
impl S {
    async fn method(&self) -> u32 {
        LIMIT
    }
}
";

    /// Adds mutants to a plan, and returns which of them can be planted together, and the source with them.
    fn planned(mutants: &[&str]) -> (Vec<bool>, String, Vec<Part>) {
        let dir = TempDir::new().expect("a directory");
        fs::write(dir.path().join("f.rs"), SOURCE).expect("a file");
        let mut plan = Plan::default();
        let add = |(number, text): (usize, &&str)| {
            let text = format!("In: f.rs\n{text}");
            plan.add(dir.path(), number, &text).expect("a source")
        };
        let added = mutants.iter().enumerate().map(add).collect();
        let mut parts = plan.write(dir.path()).expect("it is written");
        let text = fs::read_to_string(dir.path().join("f.rs")).expect("a file");
        let parts = parts.remove("f.rs").unwrap_or_default();
        (added, text, parts)
    }

    #[test]
    fn what_changes_inside_a_function_is_an_alternative() {
        let (added, text, parts) = planned(&[
            "-        LIMIT\n+        LIMIT + 1\n",
            "-const LIMIT: u32 = 3;\n+const LIMIT: u32 = 4;\n",
            "-    4\n+    5\n",
            "-    || ()\n+    || drop(1)\n",
            "-        LIMIT\n+        0\n",
            "-    async fn method(&self) -> u32 {\n+    async fn method(&self) -> u64 {\n",
            "-        LIMIT\n+        LIMIT }\n",
        ]);
        let together = [true, false, false, false, true, false, false];
        assert_eq!(added, together);
        syn::parse_file(&text).expect("it is a source");
        let at = |of: &str| {
            let line = text.lines().position(|line| line.trim() == of);
            line.expect("a line") + 1
        };
        let part_of = |line: usize| {
            let part = parts.iter().find(|part| part.lines.contains(&line));
            part.map(|part| part.numbers.as_slice())
        };
        assert_eq!(part_of(at("LIMIT + 1")), Some(&[0][..]));
        assert_eq!(part_of(at("0")), Some(&[4][..]));
        assert_eq!(
            part_of(at("LIMIT")),
            Some(&[0, 4][..]),
            "the function's own"
        );
        assert_eq!(part_of(at("|| ()")), None);
    }

    #[test]
    fn functions_inside_others_are_not_lost() {
        let inner = "-        n + 1\n+        n + 2\n";
        let outer = "-    inner(n)\n+    inner(n + 1)\n";
        assert_eq!(planned(&[inner, outer]).0, [true, false]);
        assert_eq!(planned(&[outer, inner]).0, [true, false]);
        let both = format!("{inner}\nIn: f.rs\n{outer}");
        assert_eq!(planned(&[&both]).0, [false]);
    }

    #[test]
    fn an_error_is_that_of_its_alternative() {
        let mutants = [
            "-        LIMIT\n+        LIMIT + 1\n",
            "-        LIMIT\n+        0\n",
        ];
        let (_, text, parts) = planned(&mutants);
        let lines = |of: &str| 1 + text.lines().position(|line| line.trim() == of).expect(of);
        let parts = BTreeMap::from([("f.rs", parts)]);
        let said = |line: usize| {
            let spans = serde_json::json!([{ "file_name": "f.rs", "line_start": line }]);
            culprits(&serde_json::json!({ "spans": spans }), &parts)
        };
        assert_eq!(said(lines("LIMIT + 1")), [0]);
        assert_eq!(said(lines("0")), [1]);
        assert_eq!(said(lines("LIMIT")), [0, 1]);
        assert_eq!(said(1), [0; 0]);
    }
}
