//! The boot archive: a ustar archive with the whole file system of the guest.
//!
//! Programs and libraries are where Debian has them since it merged `/bin` into `/usr/bin`: [`MERGED`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;

use tar::{Builder, EntryType, Header};

use crate::error::Error;
use crate::signals;

/// 2020-01-01, so that the archive depends on nothing but its content.
const TIME: u64 = 1_577_836_800;

/// Names of directories at the root, and the targets of their symbolic links: a path that begins with a name is the
/// path with the target. Only `/sbin`, where init finds the servers, is a directory itself.
const MERGED: [(&str, &str); 4] = [
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("usr/sbin", "sbin"),
];

/// Permission bits, owner, group, and time of the last change in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub time: u64,
}

impl Attributes {
    /// The attributes of entries that are made here.
    pub const fn of_root(mode: u32) -> Self {
        Self {
            mode,
            uid: 0,
            gid: 0,
            time: TIME,
        }
    }

    /// The attributes of a file of the host.
    fn of(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid().into(),
            gid: metadata.gid().into(),
            time: u64::try_from(metadata.mtime()).unwrap_or(0),
        }
    }
}

/// The entry at a path.
#[derive(Clone, Debug)]
pub enum Content {
    Directory,
    File(Vec<u8>),
    /// A symbolic link to this target.
    Symlink(String),
    /// Another name of the file at this path.
    Link(String),
}

#[derive(Clone, Debug)]
struct Entry {
    content: Content,
    attributes: Attributes,
}

/// Collects the files of the guest. Paths are absolute in the guest; a later entry replaces an
/// earlier one of the same path.
#[derive(Clone, Default)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

impl Archive {
    /// An archive with the directories that every system has, and the links of [`MERGED`].
    pub fn with_directories() -> Result<Self, Error> {
        let mut archive = Self::default();
        for directory in [
            "etc",
            "run",
            "sbin",
            "test",
            "tmp",
            "usr/bin",
            "usr/lib",
            "usr/lib64",
        ] {
            archive.directory(directory)?;
        }
        for (from, to) in MERGED {
            let target = match from.contains('/') {
                true => format!("../{to}"),
                false => to.into(),
            };
            let entry = Entry {
                content: Content::Symlink(target),
                attributes: Attributes::of_root(0o777),
            };
            archive.entries.insert(from.into(), entry);
        }
        Ok(archive)
    }

    /// Adds a directory and those above it.
    pub fn directory(&mut self, path: &str) -> Result<(), Error> {
        self.put(path, Content::Directory, Attributes::of_root(0o755))
    }

    /// Adds a file and the directories above it.
    pub fn file(&mut self, path: &str, content: Vec<u8>, executable: bool) -> Result<(), Error> {
        let mode = if executable { 0o755 } else { 0o644 };
        self.put(path, Content::File(content), Attributes::of_root(mode))
    }

    /// Adds a symbolic link and the directories above it.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<(), Error> {
        let attributes = Attributes::of_root(0o777);
        self.put(path, Content::Symlink(target.into()), attributes)
    }

    /// Adds the file at `host`, or the directory with everything in it, with modes, owners and times. If `host` is a
    /// link its target is added, if it has one. A symbolic link in the directory stays a link, unless it leads to a
    /// file outside, which the guest would not have.
    pub fn host_path(&mut self, host: &Path, guest: &str) -> Result<(), Error> {
        match host.canonicalize() {
            Ok(real) => self.host_below(&real, host.file_name(), guest, &real),
            Err(_) => self.host_below(host, host.file_name(), guest, host),
        }
    }

    /// The same for a path below `root`, which becomes `name`.
    fn host_below(
        &mut self,
        host: &Path,
        name: Option<&OsStr>,
        guest: &str,
        root: &Path,
    ) -> Result<(), Error> {
        let unreadable = |error| Error::new(format!("cannot add {}: {error}", host.display()));
        let text = |what: &OsStr| match what.to_str() {
            Some(text) => Ok(text.to_string()),
            None => Err(Error::new(format!(
                "cannot add {}: it is not UTF-8",
                Path::new(what).display()
            ))),
        };
        let mut metadata = std::fs::symlink_metadata(host).map_err(unreadable)?;
        if metadata.is_dir() {
            self.put(guest, Content::Directory, Attributes::of(&metadata))?;
            for entry in std::fs::read_dir(host).map_err(unreadable)? {
                let path = entry.map_err(unreadable)?.path();
                let name = text(path.file_name().unwrap_or_default())?;
                self.host_below(&path, path.file_name(), &format!("{guest}/{name}"), root)?;
            }
            return Ok(());
        }
        let guest = match name {
            Some(name) if guest.ends_with('/') => format!("{guest}{}", text(name)?),
            _ => guest.to_string(),
        };
        if metadata.is_symlink() {
            let leads_to = host
                .canonicalize()
                .ok()
                .filter(|real| !real.starts_with(root));
            match leads_to.and_then(|real| std::fs::metadata(real).ok()) {
                Some(found) if found.is_file() => metadata = found,
                _ => {
                    let target = std::fs::read_link(host).map_err(unreadable)?;
                    let target = Content::Symlink(text(target.as_os_str())?);
                    return self.put(&guest, target, Attributes::of(&metadata));
                }
            }
        }
        if !metadata.is_file() {
            return Err(Error::new(format!(
                "cannot add {}: neither file, directory nor symbolic link",
                host.display()
            )));
        }
        let content = Content::File(std::fs::read(host).map_err(unreadable)?);
        self.put(&guest, content, Attributes::of(&metadata))
    }

    /// The entry at a path, if there is one.
    pub fn find(&self, path: &str) -> Option<&Content> {
        let path = normal(path).ok()?;
        self.entries.get(&path).map(|entry| &entry.content)
    }

    /// Adds an entry and the directories above it.
    pub fn put(
        &mut self,
        path: &str,
        content: Content,
        attributes: Attributes,
    ) -> Result<(), Error> {
        let path = normal(path)?;
        let is_directory = matches!(content, Content::Directory);
        if path.is_empty() && is_directory {
            return Ok(());
        }
        let found = self.entries.get(&path).map(|entry| &entry.content);
        let was_directory = path.is_empty() || matches!(found, Some(Content::Directory));
        if was_directory && !is_directory {
            return Err(Error::new(format!(
                "/{path} in the guest is a directory, not a file"
            )));
        }
        if found.is_some() && is_directory && !was_directory {
            return Err(Error::new(format!(
                "/{path} in the guest is a file, not a directory"
            )));
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            if !matches!(self.find(parent), Some(Content::Directory)) {
                self.directory(parent)?;
            }
        }
        let content = match content {
            Content::Link(target) => Content::Link(normal(&target)?),
            content => content,
        };
        self.entries.insert(
            path,
            Entry {
                content,
                attributes,
            },
        );
        Ok(())
    }

    /// Reads an archive that [`Archive::finish`] made.
    ///
    /// # Errors
    /// The file is something else.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::new(format!(
                "{} is no archive of `./fermata root`: {why}",
                file.display()
            ))
        };
        let opened = std::fs::File::open(file)
            .map_err(|error| Error::new(format!("cannot read {}: {error}", file.display())))?;
        let mut archive = Self::default();
        let mut reader = tar::Archive::new(std::io::BufReader::new(opened));
        for entry in reader.entries().map_err(|error| wrong(&error))? {
            let mut entry = entry.map_err(|error| wrong(&error))?;
            let (path, content, attributes) = member(&mut entry).map_err(|why| wrong(&why))?;
            match content {
                // Every machine has the links of the root.
                Some(Content::Symlink(_)) if MERGED.iter().any(|(from, _)| *from == path) => {}
                Some(content) => archive.put(&path, content, attributes)?,
                None => {}
            }
        }
        Ok(archive)
    }

    /// Adds all entries of another archive, except where a file of this one is: that is a program of ours.
    pub fn merge(&mut self, other: Archive) -> Result<(), Error> {
        for (path, entry) in other.entries {
            let found = self.entries.get(&path).map(|entry| &entry.content);
            match (found, &entry.content) {
                (Some(Content::File(_)), _) | (Some(_), Content::Directory) => {}
                _ => self.put(&path, entry.content, entry.attributes)?,
            }
        }
        Ok(())
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let entries = self.entries.values();
        let sizes = entries.map(|entry| match &entry.content {
            Content::File(bytes) => bytes.len() as u64,
            _ => 0,
        });
        sizes.sum()
    }

    /// The entries by path without a leading slash, sorted; hard links come last, since they need their targets.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Content, &Attributes)> {
        let is_link = |entry: &Entry| matches!(entry.content, Content::Link(_));
        let first = self.entries.iter().filter(move |(_, e)| !is_link(e));
        let links = self.entries.iter().filter(move |(_, e)| is_link(e));
        let entries = first.chain(links);
        entries.map(|(path, entry)| (path.as_str(), &entry.content, &entry.attributes))
    }

    /// The path of the file to which a chain of hard links leads.
    fn linked<'a>(&'a self, mut target: &'a str) -> Option<&'a str> {
        /// Most links in a chain: a damaged archive may have a circle.
        const CHAIN: usize = 40;
        for _ in 0..CHAIN {
            match &self.entries.get(target)?.content {
                Content::File(_) => return Some(target),
                Content::Link(next) => target = next,
                Content::Directory | Content::Symlink(_) => return None,
            }
        }
        None
    }

    /// Makes a directory of the host with everything in the archive, but without owners, and without times of
    /// anything but files. The files are readable and writable.
    ///
    /// # Errors
    /// The directory is there already, something cannot be made, or a hard link names no file of the archive.
    pub fn unpack(&self, directory: &Path) -> Result<(), Error> {
        use std::os::unix::fs::{symlink, PermissionsExt};
        std::fs::create_dir(directory)
            .map_err(|error| Error::new(format!("{}: {error}", directory.display())))?;
        for (path, content, attributes) in self.entries() {
            signals::check()?;
            let host = directory.join(path);
            let allow =
                |mode: u32| std::fs::set_permissions(&host, std::fs::Permissions::from_mode(mode));
            let made = match content {
                Content::Directory => std::fs::create_dir(&host).and_then(|()| allow(0o755)),
                Content::File(bytes) => {
                    let time = std::time::Duration::from_secs(attributes.time);
                    std::fs::write(&host, bytes)
                        .and_then(|()| allow(attributes.mode | 0o600))
                        .and_then(|()| std::fs::File::options().append(true).open(&host))
                        .and_then(|file| file.set_modified(std::time::UNIX_EPOCH + time))
                }
                Content::Symlink(target) => symlink(target, &host),
                Content::Link(target) => {
                    // Links only to what was made here: through a symbolic link the host would find a file of its
                    // own, which the next change of modes would change.
                    let file = self.linked(target).ok_or_else(|| {
                        Error::new(format!(
                            "/{path} is a hard link to /{target}, which is no file of the archive"
                        ))
                    })?;
                    std::fs::hard_link(directory.join(file), &host)
                }
            };
            made.map_err(|error| Error::new(format!("{}: {error}", host.display())))?;
        }
        Ok(())
    }

    /// The archive in the form of Linux's initial root file system: cpio's `newc` format, with a console.
    ///
    /// # Errors
    /// A file has 4 GB or more.
    pub fn initrd(&self) -> Result<Vec<u8>, Error> {
        const DIRECTORY: u32 = 0o040_000;
        const FILE: u32 = 0o100_000;
        const SYMLINK: u32 = 0o120_000;
        const CHARACTERS: u32 = 0o020_000;
        let mut cpio = Vec::new();
        let mut number = 0;
        let mut add = |path: &str, mode: u32, bytes: &[u8], device: [u32; 2]| {
            let size = u32::try_from(bytes.len())
                .map_err(|_| Error::new(format!("/{path} is too large for an archive")))?;
            let name = path.len() as u32 + 1;
            number += 1;
            let time = u32::try_from(TIME).unwrap_or(0);
            cpio.extend_from_slice(b"070701");
            for field in [
                number, mode, 0, 0, 1, time, size, 0, 0, device[0], device[1], name, 0,
            ] {
                cpio.extend_from_slice(format!("{field:08X}").as_bytes());
            }
            for part in [[path.as_bytes(), b"\0"].concat().as_slice(), bytes] {
                cpio.extend_from_slice(part);
                cpio.resize(cpio.len().next_multiple_of(4), 0);
            }
            Ok::<_, Error>(())
        };
        for (path, content, attributes) in self.entries() {
            let mode = attributes.mode;
            match content {
                Content::Directory => add(path, DIRECTORY | mode, &[], [0; 2])?,
                Content::File(content) => add(path, FILE | mode, content, [0; 2])?,
                Content::Symlink(target) => {
                    add(path, SYMLINK | 0o777, target.as_bytes(), [0; 2])?;
                }
                // A hard link becomes a second file: no program writes to it.
                Content::Link(target) => {
                    if let Some(Content::File(content)) = self.find(target) {
                        add(path, FILE | mode, content, [0; 2])?;
                    }
                }
            }
        }
        add("dev", DIRECTORY | 0o755, &[], [0; 2])?;
        // The output of the first process goes here before it has mounted anything.
        add("dev/console", CHARACTERS | 0o600, &[], [5, 1])?;
        add("TRAILER!!!", 0, &[], [0; 2])?;
        Ok(cpio)
    }

    /// The archive as bytes. Directories come before what they contain.
    pub fn finish(&self) -> Result<Vec<u8>, Error> {
        let mut builder = Builder::new(Vec::new());
        for (path, content, attributes) in self.entries() {
            let failed =
                |error| Error::new(format!("cannot put /{path} into the archive: {error}"));
            let mut header = Header::new_ustar();
            header.set_mtime(attributes.time);
            header.set_uid(attributes.uid);
            header.set_gid(attributes.gid);
            header.set_mode(attributes.mode);
            let mut bytes: &[u8] = &[];
            match content {
                Content::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_path(format!("{path}/")).map_err(failed)?;
                }
                Content::File(content) => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_path(path).map_err(failed)?;
                    bytes = content;
                }
                Content::Symlink(target) => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_path(path).map_err(failed)?;
                    header.set_link_name(target).map_err(failed)?;
                }
                Content::Link(target) => {
                    header.set_entry_type(EntryType::Link);
                    header.set_path(path).map_err(failed)?;
                    header.set_link_name(target).map_err(failed)?;
                }
            }
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            builder.append(&header, bytes).map_err(failed)?;
        }
        builder
            .into_inner()
            .map_err(|error| Error::new(format!("cannot end the archive: {error}")))
    }
}

/// A member of an archive: its path, its content (none if the guest has no such thing), and its attributes.
///
/// # Errors
/// The archive is damaged, or has names that are not text.
pub(crate) fn member<R: Read>(
    entry: &mut tar::Entry<'_, R>,
) -> Result<(String, Option<Content>, Attributes), String> {
    let damaged = |error: std::io::Error| error.to_string();
    let text = |path: &Path| match path.to_str() {
        Some(text) => Ok(text.trim_start_matches("./").to_string()),
        None => Err(format!("{} is not UTF-8", path.display())),
    };
    let path = text(&entry.path().map_err(damaged)?)?;
    let header = entry.header();
    let attributes = Attributes {
        mode: header.mode().map_err(damaged)? & 0o7777,
        uid: header.uid().map_err(damaged)?,
        gid: header.gid().map_err(damaged)?,
        time: header.mtime().map_err(damaged)?,
    };
    let link = || -> Result<String, String> {
        let target = entry.link_name().map_err(damaged)?;
        let target = target.as_deref().and_then(Path::to_str);
        Ok(target
            .ok_or_else(|| format!("{path} links to what is no text"))?
            .into())
    };
    let content = match header.entry_type() {
        EntryType::Directory => Some(Content::Directory),
        EntryType::Symlink => Some(Content::Symlink(link()?)),
        EntryType::Link => Some(Content::Link(link()?)),
        EntryType::Regular => {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(damaged)?;
            Some(Content::File(content))
        }
        _ => None,
    };
    Ok((path, content, attributes))
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
    let path = parts.join("/");
    let merged = MERGED.iter().find_map(|(from, to)| {
        let rest = path.strip_prefix(from)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
    });
    Ok(merged.unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

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
                "755 usr/ ",
                "755 usr/bin/ ",
                "777 usr/bin/x "
            ]
        );
    }

    #[test]
    fn directories_that_are_links_have_nothing_of_their_own() {
        let mut archive = Archive::with_directories().unwrap();
        archive.file("/bin/a", b"1".to_vec(), true).unwrap();
        archive.file("/usr/bin/a", b"2".to_vec(), true).unwrap();
        archive.file("/usr/sbin/b", b"3".to_vec(), true).unwrap();
        archive.directory("/lib/x").unwrap();
        archive.file("/library", b"4".to_vec(), true).unwrap();
        let listed = list(&archive);
        for line in [
            "777 bin ",
            "755 usr/bin/a 2",
            "777 usr/sbin ",
            "755 sbin/b 3",
            "755 usr/lib/x/ ",
            "755 library 4",
        ] {
            assert!(
                listed.iter().any(|listed| listed == line),
                "{line}: {listed:?}"
            );
        }
        assert!(
            !listed.iter().any(|line| line.contains(" bin/")),
            "{listed:?}"
        );
        assert!(archive.file("/bin", Vec::new(), false).is_err());
    }

    #[test]
    fn what_is_added_keeps_links_times_owners_and_modes() {
        use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        std::fs::create_dir_all(at("tree/sub")).unwrap();
        std::fs::write(at("tree/sub/file"), "text").unwrap();
        std::fs::write(at("outside"), "elsewhere").unwrap();
        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(at("tree/sub/file"), mode).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let file = std::fs::File::options()
            .append(true)
            .open(at("tree/sub/file"))
            .unwrap();
        file.set_modified(time).unwrap();
        for (name, target) in [
            ("tree/dangling", "nothing/here"),
            ("tree/loop", "loop"),
            ("tree/up", ".."),
            ("tree/inside", "sub/file"),
            ("tree/outside", "../outside"),
            ("dangling", "none"),
            ("link", "tree/sub/file"),
        ] {
            symlink(target, at(name)).unwrap();
        }
        let mut archive = Archive::default();
        archive.host_path(&at("tree"), "/t").unwrap();
        archive.host_path(&at("dangling"), "/d").unwrap();
        archive.host_path(&at("link"), "/into/").unwrap();
        let link = |path: &str| match archive.find(path) {
            Some(Content::Symlink(target)) => target.clone(),
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(link("/t/dangling"), "nothing/here");
        assert_eq!(link("/t/loop"), "loop");
        assert_eq!(link("/t/up"), "..");
        assert_eq!(link("/t/inside"), "sub/file");
        assert_eq!(link("/d"), "none");
        assert!(
            matches!(archive.find("/t/outside"), Some(Content::File(bytes)) if bytes == b"elsewhere")
        );
        assert!(
            matches!(archive.find("/into/link"), Some(Content::File(bytes)) if bytes == b"text")
        );
        let owner = std::fs::metadata(at("tree")).unwrap();
        let (_, _, found) = archive
            .entries()
            .find(|(path, ..)| *path == "t/sub/file")
            .unwrap();
        let expected = Attributes {
            mode: 0o640,
            uid: owner.uid().into(),
            gid: owner.gid().into(),
            time: 1_000_000_000,
        };
        assert_eq!(*found, expected);
        assert!(archive.host_path(&at("none"), "/x").is_err());
    }

    #[test]
    fn hard_links_come_behind_what_they_name() {
        let mut archive = Archive::default();
        let link = Content::Link("./z".into());
        archive.put("a", link, Attributes::of_root(0o644)).unwrap();
        archive.file("z", b"z".to_vec(), false).unwrap();
        let paths: Vec<&str> = archive.entries().map(|(path, ..)| path).collect();
        assert_eq!(paths, ["z", "a"]);
    }

    #[test]
    fn a_hard_link_leads_to_no_file_of_the_host() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        std::fs::write(at("host"), "of the host").unwrap();
        let link = |target: &str| Content::Link(target.into());
        let attributes = || Attributes::of_root(0o644);
        let mut archive = Archive::default();
        archive.file("z", b"z".to_vec(), false).unwrap();
        archive.put("a", link("b"), attributes()).unwrap();
        archive.put("b", link("z"), attributes()).unwrap();
        archive.unpack(&at("sound")).unwrap();
        assert_eq!(std::fs::read(at("sound/a")).unwrap(), b"z");
        let outside = at("host").display().to_string();
        for (target, name) in [("outside", "x"), ("none", "y"), ("circle", "circle")] {
            let mut archive = archive.clone();
            archive.symlink("outside", &outside).unwrap();
            archive.put(name, link(target), attributes()).unwrap();
            let error = archive.unpack(&at(name)).unwrap_err().message;
            assert!(
                error.contains(&format!("/{name} is a hard link to /{target}")),
                "{error}"
            );
            assert!(!at(name).join(name).exists());
        }
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

    #[test]
    fn an_initrd_is_a_cpio_archive() {
        let mut archive = Archive::default();
        archive.file("init", b"hello".to_vec(), true).unwrap();
        archive.symlink("a/b", "../init").unwrap();
        let cpio = archive.initrd().unwrap();
        assert_eq!(cpio.len() % 4, 0);
        let (mut at, mut found) = (0, Vec::new());
        while at < cpio.len() {
            let field = |n: usize| {
                let from = at + 6 + 8 * n;
                let digits = std::str::from_utf8(&cpio[from..from + 8]).unwrap();
                usize::from_str_radix(digits, 16).unwrap()
            };
            assert_eq!(&cpio[at..at + 6], b"070701");
            let (mode, size, name) = (field(1), field(6), field(11));
            let path = String::from_utf8_lossy(&cpio[at + 110..at + 110 + name - 1]).into_owned();
            let begin = (at + 110 + name).next_multiple_of(4);
            let content = String::from_utf8_lossy(&cpio[begin..begin + size]).into_owned();
            found.push((path, mode, content));
            at = (begin + size).next_multiple_of(4);
        }
        let is = |path: &str, mode, content: &str| {
            found.contains(&(path.to_string(), mode, content.to_string()))
        };
        assert!(is("init", 0o100_755, "hello"));
        assert!(is("a/b", 0o120_777, "../init"));
        assert!(is("a", 0o040_755, "") && is("dev/console", 0o020_600, ""));
        assert_eq!(found.last().map(|last| &*last.0), Some("TRAILER!!!"));
    }
}
