//! The work that `./fermata test --all` has done already, so that an interrupted call can be continued.
//!
//! It is one file under `target/`, valid for the sources that were tested: when they or the filter change, it starts
//! over.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{json, Value};

use super::{Part, Report};
use xtask_build::error::Error;
use xtask_build::project::{file_beside, Project};
use xtask_docs::{book, numbers};
use xtask_machine::place::Place;

/// The parts that are finished, with their results.
pub(super) struct Journal {
    root: PathBuf,
    file: PathBuf,
    /// A hash of the sources when this call began.
    sources: u64,
    filter: Option<String>,
    /// Where services ran, if it was said.
    places: String,
    /// By the name of the part.
    parts: Mutex<BTreeMap<String, Report>>,
}

impl Journal {
    /// The work of earlier calls, if it is about the same sources and the same filter; none if `fresh`.
    pub(super) fn open(
        project: &Project,
        (filter, places): (Option<&str>, &[Place]),
        fresh: bool,
    ) -> Result<Self, Error> {
        let file = project.target.join("test-all.json");
        let journal = Self {
            root: project.root.clone(),
            sources: checkout(&project.root)?,
            filter: filter.map(ToString::to_string),
            places: format!("{places:?}"),
            parts: Mutex::default(),
            file,
        };
        if !fresh {
            let text = std::fs::read_to_string(&journal.file).unwrap_or_default();
            *journal.parts.lock().unwrap_or_else(PoisonError::into_inner) = journal.parts_in(&text);
        }
        Ok(journal)
    }

    /// The result of a part, if it is finished.
    pub(super) fn find(&self, part: Part) -> Option<Report> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.get(&part.name()).cloned()
    }

    /// Records that a part is finished.
    pub(super) fn add(&self, part: Part, report: &Report) -> Result<(), Error> {
        // The sources have changed during the tests, which so tested neither the old nor the new ones.
        if checkout(&self.root)? != self.sources {
            return Err(Error::new(format!(
                "the sources have changed since the tests began: {} will be run again",
                part.name()
            )));
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert(part.name(), report.clone());
        replace(&self.file, &self.text(&parts))
    }

    fn text(&self, parts: &BTreeMap<String, Report>) -> String {
        let parts: serde_json::Map<String, Value> = parts
            .iter()
            .map(|(name, report)| {
                let value = json!({
                    "passed": report.passed,
                    "failed": report.failed,
                    "ignored": report.ignored,
                });
                (name.clone(), value)
            })
            .collect();
        let whole = json!({
            "sources": format!("{:016x}", self.sources),
            "filter": self.filter,
            "places": self.places,
            "parts": parts,
        });
        format!("{whole:#}\n")
    }

    /// The parts in the text of a file, if it has the sources and the filter of this call.
    fn parts_in(&self, text: &str) -> BTreeMap<String, Report> {
        let Ok(whole) = serde_json::from_str::<Value>(text) else {
            return BTreeMap::new();
        };
        let same = whole["sources"].as_str() == Some(&format!("{:016x}", self.sources))
            && whole["filter"].as_str() == self.filter.as_deref()
            && whole["places"].as_str() == Some(&self.places);
        let strings = |value: &Value| -> Option<Vec<String>> {
            let all = value.as_array()?.iter();
            all.map(|v| v.as_str().map(ToString::to_string)).collect()
        };
        let parts = whole["parts"].as_object().into_iter().flatten();
        parts
            .filter(|_| same)
            .filter_map(|(name, part)| {
                let report = Report {
                    passed: usize::try_from(part["passed"].as_u64()?).ok()?,
                    failed: strings(&part["failed"])?,
                    ignored: strings(&part["ignored"])?,
                };
                Some((name.clone(), report))
            })
            .collect()
    }
}

/// The content that an earlier call has left in a file, if it is about the same sources; null if it is not, or if
/// `fresh`.
pub(super) fn kept(file: &Path, sources: &str, fresh: bool) -> Value {
    let text = match fresh {
        true => String::new(),
        false => std::fs::read_to_string(file).unwrap_or_default(),
    };
    let whole: Value = serde_json::from_str(&text).unwrap_or_default();
    match whole["sources"].as_str() == Some(sources) {
        true => whole,
        false => Value::Null,
    }
}

/// Writes a file for a later call; `whole` contains `sources`.
pub(super) fn keep(file: &Path, whole: &Value) -> Result<(), Error> {
    replace(file, &format!("{whole:#}\n"))
}

/// Writes a file anew, so that the results of hours are in it whatever happens meanwhile.
fn replace(file: &Path, text: &str) -> Result<(), Error> {
    let failed = |error| Error::new(format!("cannot write {}: {error}", file.display()));
    let mut new = file_beside(file).map_err(failed)?;
    new.write_all(text.as_bytes()).map_err(failed)?;
    new.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}

/// The files in the root of the checkout that tests depend on. Others there are a user's: a log, a script, a disk.
const FILES: &[&str] = &[
    "CAVEATS.md",
    "CHANGES.md",
    "Cargo.lock",
    "Cargo.toml",
    "README.md",
    "fermata",
    "rust-toolchain.toml",
    "rustfmt.toml",
];
/// What is generated, and no test reads.
const GENERATED: &[&str] = &["target", ".git", numbers::PAGE, book::MADE];

/// A hash that changes when a file of the checkout changes that tests depend on.
pub(super) fn checkout(root: &Path) -> Result<u64, Error> {
    hash(root, |name, is_directory| {
        let at_top = name.components().count() == 1;
        let is_ours = is_directory || !at_top || FILES.iter().any(|file| name == Path::new(file));
        is_ours && GENERATED.iter().all(|made| name != Path::new(made))
    })
}

/// A hash that changes when a file in the directory changes.
pub(super) fn sources(directory: &Path) -> Result<u64, Error> {
    hash(directory, |_, _| true)
}

/// A hash of the files below a directory that are wanted, by their paths in it and whether they are directories.
fn hash(root: &Path, is_wanted: impl Fn(&Path, bool) -> bool) -> Result<u64, Error> {
    let mut hasher = DefaultHasher::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let failed = |error: std::io::Error| {
            Error::new(format!("cannot read {}: {error}", directory.display()))
        };
        let mut paths: Vec<PathBuf> = std::fs::read_dir(&directory)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
            .map_err(failed)?;
        paths.sort();
        for path in paths {
            let name = path.strip_prefix(root).unwrap_or(&path);
            let is_directory = path.is_dir() && !path.is_symlink();
            if !is_wanted(name, is_directory) {
                continue;
            }
            if is_directory {
                directories.push(path);
            } else if path.is_file() {
                name.hash(&mut hasher);
                std::fs::read(&path).unwrap_or_default().hash(&mut hasher);
            }
        }
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn what_is_through_is_remembered_for_the_same_sources_only() {
        let dir = TempDir::new().expect("a directory");
        let project = Project {
            root: dir.path().to_path_buf(),
            target: dir.path().join("target"),
        };
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text);
        std::fs::create_dir(&project.target).expect("a directory");
        std::fs::create_dir(dir.path().join("kernel")).expect("a directory");
        write("kernel/source", "one").expect("a file");
        let report = Report {
            passed: 3,
            failed: vec!["guest/a/b".into()],
            ignored: vec!["c: why".into()],
        };
        let journal = Journal::open(&project, (None, &[]), false).expect("a journal");
        assert_eq!(journal.find(Part::Common), None);
        journal.add(Part::Common, &report).expect("kept");

        let found = |asked, fresh| {
            let journal = Journal::open(&project, asked, fresh).expect("a journal");
            journal.find(Part::Common)
        };
        let find = |filter, fresh| found((filter, &[]), fresh);
        let placed = ["all=kernel".parse().expect("a place")];
        assert_eq!(
            found((None, &placed), false),
            None,
            "services were elsewhere"
        );
        write("log", "of this call").expect("a file");
        assert_eq!(find(None, false), Some(report.clone()));
        assert_eq!(find(None, true), None);
        assert_eq!(find(Some("ipc"), false), None);
        write("kernel/source", "two").expect("a file");
        assert_eq!(find(None, false), None);
        // Results from before the change do not count after it.
        assert!(journal.add(Part::Common, &report).is_err());
        write("target/test-all.json", "nonsense").expect("a file");
        assert_eq!(find(None, false), None);
    }
}
