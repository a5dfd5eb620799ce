//! The work that `./fermata test --all` has done already, so that an interrupted call can be continued.
//!
//! It is one file under `target/`, valid for the sources that were tested: when they or the filter change, it starts
//! over.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{json, Value};

use super::{Part, Report};
use xtask_build::error::Error;
use xtask_build::project::Project;
use xtask_docs::numbers;

/// The parts that are finished, with their results.
pub(super) struct Journal {
    root: PathBuf,
    file: PathBuf,
    /// A hash of the sources when this call began.
    sources: u64,
    filter: Option<String>,
    /// By the name of the part.
    parts: Mutex<BTreeMap<String, Report>>,
}

impl Journal {
    /// The work of earlier calls, if it is about the same sources and the same filter; none if `fresh`.
    pub(super) fn open(
        project: &Project,
        filter: Option<&str>,
        fresh: bool,
    ) -> Result<Self, Error> {
        let file = project.target.join("test-all.json");
        let journal = Self {
            root: project.root.clone(),
            sources: sources(&project.root)?,
            filter: filter.map(ToString::to_string),
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
        if sources(&self.root)? != self.sources {
            return Err(Error::new(format!(
                "the sources have changed since the tests began: {} will be run again",
                part.name()
            )));
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert(part.name(), report.clone());
        std::fs::write(&self.file, self.text(&parts))
            .map_err(|error| Error::new(format!("cannot write {}: {error}", self.file.display())))
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
            && whole["filter"].as_str() == self.filter.as_deref();
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
    std::fs::write(file, format!("{whole:#}\n"))
        .map_err(|error| Error::new(format!("cannot write {}: {error}", file.display())))
}

/// A hash that changes when a file of the checkout changes.
pub(super) fn sources(root: &Path) -> Result<u64, Error> {
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
            if name == Path::new("target")
                || name == Path::new(".git")
                // This page is generated from the others, and no test reads it.
                || name == Path::new(numbers::PAGE)
            {
                continue;
            }
            if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            } else {
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
        write("source", "one").expect("a file");
        let report = Report {
            passed: 3,
            failed: vec!["guest/a/b".into()],
            ignored: vec!["c: why".into()],
        };
        let journal = Journal::open(&project, None, false).expect("a journal");
        assert_eq!(journal.find(Part::Common), None);
        journal.add(Part::Common, &report).expect("kept");

        let find = |filter, fresh| {
            let journal = Journal::open(&project, filter, fresh).expect("a journal");
            journal.find(Part::Common)
        };
        assert_eq!(find(None, false), Some(report.clone()));
        assert_eq!(find(None, true), None);
        assert_eq!(find(Some("ipc"), false), None);
        write("source", "two").expect("a file");
        assert_eq!(find(None, false), None);
        // Results from before the change do not count after it.
        assert!(journal.add(Part::Common, &report).is_err());
        write("target/test-all.json", "nonsense").expect("a file");
        assert_eq!(find(None, false), None);
    }
}
