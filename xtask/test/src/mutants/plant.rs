//! Mutants as text: where in the sources their lines are, and copies of the sources to plant them in.

use std::fs;
use std::ops::Range;
use std::path::Path;

use xtask_build::error::Error;

/// One change of a mutant: the lines of a file that it replaces, and the lines that take their place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change<'a> {
    /// Indices of the lines that go; empty where lines are only added.
    pub(super) old: Range<usize>,
    /// The lines that come.
    pub(super) new: Vec<&'a str>,
}

/// The changes that a mutant's text describes, by file: each begins with a line `In: PATH`, followed by lines of that
/// file, marked by a space if they stay, by `-` if they are removed, by `+` if they are added.
pub(super) fn changes(text: &str) -> Result<Vec<(&str, Vec<&str>)>, String> {
    let mut changes: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("In:") {
            changes.push((path.trim(), Vec::new()));
        } else if let Some((_, lines)) = changes.last_mut() {
            lines.push(line);
        }
    }
    if changes.is_empty() {
        return Err("it changes nothing".into());
    }
    Ok(changes)
}

/// Finds the place of one change in a file. The present lines must occur exactly once; indentation does not matter.
pub(super) fn find<'a>(source: &[&str], change: &[&'a str]) -> Result<Change<'a>, String> {
    let end = change.iter().rposition(|line| !line.is_empty());
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for line in &change[..end.map_or(0, |end| end + 1)] {
        match line.split_at_checked(1).unwrap_or((" ", "")) {
            (" ", rest) => {
                old.push(rest);
                new.push(rest);
            }
            ("-", rest) => old.push(rest),
            ("+", rest) => new.push(rest),
            _ => return Err(format!("what is '{line}'?")),
        }
    }
    let Some(first) = old.first() else {
        return Err("a change without a place".into());
    };
    if old == new {
        return Err(format!("nothing changes at '{}'", first.trim()));
    }
    let same = |window: &[&str]| window.iter().zip(&old).all(|(a, b)| a.trim() == b.trim());
    let places = source.windows(old.len()).enumerate();
    let places: Vec<usize> = places.filter(|(_, w)| same(w)).map(|(at, _)| at).collect();
    let [at] = places[..] else {
        let first = first.trim();
        let count = places.len();
        return Err(format!(
            "the lines from '{first}' on are there {count} times"
        ));
    };
    // The lines that stay at both ends are no part of the change.
    let equal = |(a, b): &(&&str, &&str)| a == b;
    let before = old.iter().zip(&new).take_while(equal).count();
    let (old_rest, new_rest) = (&old[before..], &new[before..]);
    let behind = old_rest.iter().rev().zip(new_rest.iter().rev());
    let behind = behind.take_while(equal).count();
    Ok(Change {
        old: at + before..at + old.len() - behind,
        new: new_rest[..new_rest.len() - behind].to_vec(),
    })
}

/// Changes the files of a tree by a mutant's text.
pub(super) fn apply(root: &Path, text: &str) -> Result<(), String> {
    for (path, lines) in changes(text)? {
        let file = root.join(path);
        let failed = |error| format!("{path}: {error}");
        let source = fs::read_to_string(&file).map_err(failed)?;
        let mut source: Vec<&str> = source.lines().collect();
        let change = find(&source, &lines).map_err(|why| format!("{path}: {why}"))?;
        source.splice(change.old, change.new);
        fs::write(&file, source.join("\n") + "\n").map_err(failed)?;
    }
    Ok(())
}

/// Makes the copy equal to the checkout. Equal files are not touched, so that they are not built again.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Error::new(format!("cannot copy {path}: {error}"))
    };
    let skipped = [from.join("target"), from.join(".git")];
    let mut directories = vec![(from.to_path_buf(), to.to_path_buf())];
    while let Some((from, to)) = directories.pop() {
        fs::create_dir_all(&to).map_err(failed(&to))?;
        let names = |path: &Path| -> Result<Vec<_>, Error> {
            let entries = fs::read_dir(path).map_err(failed(path))?;
            let names = entries.map(|entry| Ok(entry?.file_name()));
            names.collect::<std::io::Result<_>>().map_err(failed(path))
        };
        let here = names(&from)?;
        for name in names(&to)?.iter().filter(|name| !here.contains(name)) {
            let old = to.join(name);
            let removed = if old.is_dir() && !old.is_symlink() {
                fs::remove_dir_all(&old)
            } else {
                fs::remove_file(&old)
            };
            removed.map_err(failed(&old))?;
        }
        for name in here {
            let (old, new) = (from.join(&name), to.join(&name));
            if skipped.contains(&old) || old.is_symlink() {
                continue;
            }
            if old.is_dir() {
                directories.push((old, new));
                continue;
            }
            let text = fs::read(&old).map_err(failed(&old))?;
            if fs::read(&new).ok().as_ref() != Some(&text) {
                fs::write(&new, text).map_err(failed(&new))?;
            }
        }
    }
    Ok(())
}
