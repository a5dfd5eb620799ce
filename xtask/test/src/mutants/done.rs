//! The mutants that were killed by earlier calls.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use serde_json::{json, Value};
use xtask_build::error::Error;
use xtask_build::project::Project;

use super::SOURCES;
use crate::journal::{keep, kept, sources};

/// The file with the mutants that were killed, and the sources for which that is valid.
const FILE: &str = "prove-mutants.json";

/// Which mutants were killed by which tests, for these sources.
pub(super) struct Done {
    root: PathBuf,
    file: PathBuf,
    /// A hash of the sources when this call began.
    sources: String,
    /// By name: the mutant's hash, and the test that killed it.
    killed: BTreeMap<String, (String, String)>,
}

impl Done {
    pub(super) fn read(project: &Project, fresh: bool) -> Result<Self, Error> {
        let file = project.target.join(FILE);
        let sources = hash_sources(&project.root)?;
        let whole = kept(&file, &sources, fresh);
        let killed = whole["killed"].as_object().into_iter().flatten();
        let killed = killed.filter_map(|(name, entry)| {
            let text = |key: &str| Some(entry[key].as_str()?.to_string());
            Some((name.clone(), (text("mutant")?, text("by")?)))
        });
        Ok(Self {
            root: project.root.clone(),
            file,
            killed: killed.collect(),
            sources,
        })
    }

    /// The test that killed this mutant.
    pub(super) fn find(&self, name: &str, text: &str) -> Option<String> {
        let (of, by) = self.killed.get(name)?;
        (*of == hash(text)).then(|| by.clone())
    }

    pub(super) fn add(&mut self, name: &str, text: &str, by: &str) -> Result<(), Error> {
        // The sources have changed during the tests, which so tested neither the old nor the new ones.
        if hash_sources(&self.root)? != self.sources {
            return Err(Error::new(
                "the sources have changed since the first mutant: the same command begins anew",
            ));
        }
        self.killed.insert(name.into(), (hash(text), by.into()));
        let killed: serde_json::Map<String, Value> = self
            .killed
            .iter()
            .map(|(name, (text, by))| (name.clone(), json!({ "mutant": text, "by": by })))
            .collect();
        let whole = json!({ "sources": self.sources, "killed": killed });
        keep(&self.file, &whole)
    }
}

/// A hash that changes when any file changes that the tests are built from.
fn hash_sources(root: &Path) -> Result<String, Error> {
    let mut hasher = DefaultHasher::new();
    for directory in SOURCES {
        sources(&root.join(directory))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn hash(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
