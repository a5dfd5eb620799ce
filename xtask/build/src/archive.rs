//! The boot archive: a ustar archive with the whole file system of the guest.

use std::collections::BTreeMap;
use std::path::Path;

use tar::{Builder, EntryType, Header};

use crate::error::Error;

/// 2020-01-01, so that the archive depends on nothing but its content.
const TIME: u64 = 1_577_836_800;

enum Entry {
    Directory,
    File { content: Vec<u8>, executable: bool },
    Symlink { target: String },
}

/// Collects the files of the guest. Paths are absolute in the guest; a later entry replaces an
/// earlier one of the same path.
#[derive(Default)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

impl Archive {
    /// Adds a directory and those above it.
    pub fn directory(&mut self, path: &str) -> Result<(), Error> {
        let path = normal(path)?;
        if path.is_empty() {
            return Ok(());
        }
        self.parents(&path)?;
        match self.entries.insert(path.clone(), Entry::Directory) {
            None | Some(Entry::Directory) => Ok(()),
            Some(_) => Err(Error::new(format!(
                "/{path} in the guest is a file, not a directory"
            ))),
        }
    }

    /// Adds a file and the directories above it.
    pub fn file(&mut self, path: &str, content: Vec<u8>, executable: bool) -> Result<(), Error> {
        self.insert(
            path,
            Entry::File {
                content,
                executable,
            },
        )
    }

    /// Adds a symbolic link and the directories above it.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<(), Error> {
        self.insert(
            path,
            Entry::Symlink {
                target: target.into(),
            },
        )
    }

    /// Adds what is at `host`: a file, which keeps its execute bit, or a directory with all in it.
    pub fn host_path(&mut self, host: &Path, guest: &str) -> Result<(), Error> {
        use std::os::unix::fs::PermissionsExt;
        let unreadable = |error| Error::new(format!("cannot add {}: {error}", host.display()));
        let metadata = std::fs::metadata(host).map_err(unreadable)?;
        if metadata.is_dir() {
            self.directory(guest)?;
            for entry in std::fs::read_dir(host).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                let name = entry.file_name();
                let name = name.to_str().ok_or_else(|| {
                    Error::new(format!(
                        "cannot add {}: its name is not UTF-8",
                        entry.path().display()
                    ))
                })?;
                self.host_path(&entry.path(), &format!("{guest}/{name}"))?;
            }
            Ok(())
        } else if metadata.is_file() {
            let guest = if guest.ends_with('/') {
                let name = host
                    .file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                format!("{guest}{name}")
            } else {
                guest.to_string()
            };
            let content = std::fs::read(host).map_err(unreadable)?;
            self.file(&guest, content, metadata.permissions().mode() & 0o111 != 0)
        } else {
            Err(Error::new(format!(
                "cannot add {}: neither file nor directory",
                host.display()
            )))
        }
    }

    fn insert(&mut self, path: &str, entry: Entry) -> Result<(), Error> {
        let path = normal(path)?;
        if path.is_empty() || matches!(self.entries.get(&path), Some(Entry::Directory)) {
            return Err(Error::new(format!(
                "/{path} in the guest is a directory, not a file"
            )));
        }
        self.parents(&path)?;
        self.entries.insert(path, entry);
        Ok(())
    }

    fn parents(&mut self, path: &str) -> Result<(), Error> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.directory(parent),
            None => Ok(()),
        }
    }

    /// The archive as bytes. Directories come before what they contain.
    pub fn finish(&self) -> Result<Vec<u8>, Error> {
        let mut builder = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let failed =
                |error| Error::new(format!("cannot put /{path} into the archive: {error}"));
            let mut header = Header::new_ustar();
            header.set_mtime(TIME);
            header.set_uid(0);
            header.set_gid(0);
            let content: &[u8] = match entry {
                Entry::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(0o755);
                    header.set_path(format!("{path}/")).map_err(failed)?;
                    &[]
                }
                Entry::File {
                    content,
                    executable,
                } => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_mode(if *executable { 0o755 } else { 0o644 });
                    header.set_path(path).map_err(failed)?;
                    content
                }
                Entry::Symlink { target } => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_mode(0o777);
                    header.set_path(path).map_err(failed)?;
                    header.set_link_name(target).map_err(failed)?;
                    &[]
                }
            };
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, content).map_err(failed)?;
        }
        builder
            .into_inner()
            .map_err(|error| Error::new(format!("cannot end the archive: {error}")))
    }
}

/// `path` without leading, double and trailing slashes.
fn normal(path: &str) -> Result<String, Error> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") || path.contains(['\n', '\0']) {
        return Err(Error::new(format!(
            "'{path}' is not a path that the guest can have"
        )));
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn list(archive: &Archive) -> Vec<String> {
        let bytes = archive.finish().unwrap();
        tar::Archive::new(&bytes[..])
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = String::new();
                entry.read_to_string(&mut content).unwrap();
                let mode = entry.header().mode().unwrap();
                format!("{:o} {} {content}", mode, entry.path().unwrap().display())
            })
            .collect()
    }

    #[test]
    fn directories_come_first() {
        let mut archive = Archive::default();
        archive.file("/a/b/c", b"text".to_vec(), true).unwrap();
        archive.file("a//d", b"".to_vec(), false).unwrap();
        archive.symlink("/bin/x", "y").unwrap();
        assert_eq!(
            list(&archive),
            [
                "755 a/ ",
                "755 a/b/ ",
                "755 a/b/c text",
                "644 a/d ",
                "755 bin/ ",
                "777 bin/x "
            ]
        );
    }

    #[test]
    fn later_entries_replace_earlier_ones() {
        let mut archive = Archive::default();
        archive.file("/x", b"1".to_vec(), false).unwrap();
        archive.file("/x", b"2".to_vec(), false).unwrap();
        assert_eq!(list(&archive), ["644 x 2"]);
    }

    #[test]
    fn files_and_directories_do_not_mix() {
        let mut archive = Archive::default();
        archive.file("/x", Vec::new(), false).unwrap();
        assert!(archive.file("/x/y", Vec::new(), false).is_err());
        archive.directory("/d").unwrap();
        assert!(archive.file("/d", Vec::new(), false).is_err());
        assert!(archive.file("/../e", Vec::new(), false).is_err());
    }

    #[test]
    fn long_paths_are_split_or_refused() {
        let mut archive = Archive::default();
        let name = "n".repeat(90);
        archive
            .file(&format!("/{name}/{name}"), Vec::new(), false)
            .unwrap();
        assert!(archive.finish().is_ok());
        archive.file(&"n".repeat(300), Vec::new(), false).unwrap();
        assert!(archive.finish().is_err());
    }
}
