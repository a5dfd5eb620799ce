//! Disks of machines: files of the host with an ext4 file system, made, looked at and checked without root and without mounting.
//!
//! They are made and checked by e2fsprogs, and read by the crate `ext4-view`. A machine is switched off without a word,
//! and leaves a journal that is to be replayed: that is done on a copy. What a disk says is hostile.

use ext4_view::{Ext4, Ext4Error, FileType, Metadata};
use std::fmt::{Display, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::{NamedTempFile, TempDir};

use xtask_build::archive::{Archive, Content};
use xtask_build::error::Error;
use xtask_build::project::{file_beside, temp_dir};
use xtask_build::signals;

/// Most directories below each other: those of a broken disk may go in circles.
const MAX_DEPTH: usize = 256;

/// An error about a file of the host.
fn about(path: &Path, why: impl Display) -> Error {
    Error::new(format!("{}: {why}", path.display()))
}

/// A program of e2fsprogs, which is not in everybody's `PATH`.
fn program(name: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path);
    let mut files = directories
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(name));
    files.find(|file| file.is_file()).ok_or_else(|| {
        Error::new(format!(
            "{name} is not there: install the package e2fsprogs"
        ))
    })
}

fn output(command: &mut Command) -> Result<Output, Error> {
    let output = command.output();
    output.map_err(|error| about(Path::new(command.get_program()), error))
}

/// What a program of e2fsprogs has to say, without its name and version.
fn said(output: &Output) -> String {
    let text = [&*output.stdout, &*output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("mke2fs 1") && !line.starts_with("e2fsck 1")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Makes a disk of so many bytes, with what is in a directory of the host.
///
/// # Errors
/// The file is there already, the directory is none or does not fit, there is no room. Nothing is left then.
pub fn make(file: &Path, bytes: u64, from: Option<&Path>) -> Result<(), Error> {
    name(filled(file, bytes, from)?, file)
}

/// Gives a disk that is complete its name.
fn name(made: NamedTempFile, file: &Path) -> Result<(), Error> {
    signals::check()?;
    match made.persist_noclobber(file) {
        Err(failed) if failed.error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(is_there(file))
        }
        named => named.map(drop).map_err(|failed| about(file, failed.error)),
    }
}

fn is_there(file: &Path) -> Error {
    about(file, "it is there already, and stays as it is")
}

/// What [`make`] makes, before it has its name.
fn filled(file: &Path, bytes: u64, from: Option<&Path>) -> Result<NamedTempFile, Error> {
    let mkfs = program("mke2fs")?;
    if let Some(from) = from {
        let found = fs::metadata(from).map_err(|error| about(from, error))?;
        if !found.is_dir() {
            return Err(about(from, "it is not a directory"));
        }
    }
    if file.symlink_metadata().is_ok() {
        return Err(is_there(file));
    }
    let made = file_beside(file).map_err(|error| about(file, error))?;
    let sized = made.as_file().set_len(bytes);
    sized.map_err(|error| about(file, error))?;
    let mut command = Command::new(mkfs);
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096"]);
    // The root directory is the machine's root's, whoever makes the disk.
    command.args(["-E", "root_owner=0:0"]);
    if let Some(from) = from {
        command.arg("-d").arg(from);
    }
    let output = output(command.arg(made.path()))?;
    match output.status.success() {
        true => Ok(made),
        false => Err(about(
            file,
            format!(
                "it cannot be made; mke2fs says\n{}\n(is it large enough for what is to be on it?)",
                said(&output)
            ),
        )),
    }
}

/// Makes a disk of so many bytes, with what is in an archive on it: modes, owners and times are those of the archive, whoever calls.
///
/// # Errors
/// As [`make`].
pub fn make_of(file: &Path, bytes: u64, archive: &Archive) -> Result<(), Error> {
    let scratch = temp_dir()?;
    let tree = scratch.path().join("tree");
    archive.unpack(&tree)?;
    // Owners, modes and times are set on the disk itself, which needs no root.
    let mut inodes = String::new();
    for (path, content, attributes) in archive.entries() {
        if path.contains(['"', '\n']) {
            return Err(Error::new(format!(
                "/{path}: a disk cannot be made with such a name"
            )));
        }
        let kind = match content {
            Content::Directory => 0o40_000,
            Content::Symlink(_) => 0o120_000,
            Content::File(_) | Content::Link(_) => 0o100_000,
        };
        let fields = [
            ("mode", format!("0{:o}", kind | attributes.mode)),
            ("uid", attributes.uid.to_string()),
            ("gid", attributes.gid.to_string()),
            ("mtime", format!("@{}", attributes.time)),
        ];
        for (field, value) in fields {
            let _ = writeln!(inodes, "set_inode_field \"/{path}\" {field} {value}");
        }
    }
    let made = filled(file, bytes, Some(&tree))?;
    let commands = scratch.path().join("commands");
    fs::write(&commands, inodes).map_err(|error| about(&commands, error))?;
    let debugfs = Command::new(program("debugfs")?)
        .args(["-w", "-f"])
        .args([&commands, made.path()])
        .output();
    let set = debugfs.map_err(|error| about(file, error))?;
    match set.status.success() {
        true => name(made, file),
        false => Err(about(file, format!("debugfs says {}", said(&set)))),
    }
}

/// A disk whose journal was replayed: the file itself if there was nothing to do, or a copy, for as long as this lives.
struct Replayed {
    file: PathBuf,
    _copy: Option<TempDir>,
}

impl Replayed {
    fn new(file: &Path) -> Result<Self, Error> {
        if !has_journal_to_replay(file)? {
            return Ok(Replayed {
                file: file.to_path_buf(),
                _copy: None,
            });
        }
        let scratch = temp_dir()?;
        let copy = scratch.path().join("disk");
        fs::copy(file, &copy).map_err(|error| about(file, error))?;
        let e2fsck = Command::new(program("e2fsck")?)
            .arg("-p")
            .arg(&copy)
            .output();
        let replayed = e2fsck.map_err(|error| about(file, error))?;
        // 1 says that something was done.
        match replayed.status.code() {
            Some(0 | 1) => Ok(Replayed {
                file: copy,
                _copy: Some(scratch),
            }),
            _ => Err(unsound(file, &replayed)),
        }
    }
}

/// Whether the file system on a disk is sound. A journal that is to be replayed is no fault.
///
/// # Errors
/// It is not, or there is none.
pub fn check(file: &Path) -> Result<(), Error> {
    let replayed = Replayed::new(file)?;
    let e2fsck = program("e2fsck")?;
    let found = output(Command::new(e2fsck).arg("-fn").arg(&replayed.file))?;
    match found.status.success() {
        true => Ok(()),
        false => Err(unsound(file, &found)),
    }
}

fn unsound(file: &Path, output: &Output) -> Error {
    about(
        file,
        format!("the file system is damaged; e2fsck says\n{}", said(output)),
    )
}

/// Whether the machine that had this disk was switched off without a word.
fn has_journal_to_replay(file: &Path) -> Result<bool, Error> {
    /// Where the features stand that a system must know, and the one that says so.
    const INCOMPATIBLE: u64 = 1024 + 0x60;
    const RECOVER: u32 = 4;
    let mut word = [0; 4];
    let mut disk = File::open(file).map_err(|error| about(file, error))?;
    let read = disk
        .seek(SeekFrom::Start(INCOMPATIBLE))
        .and_then(|_| disk.read_exact(&mut word));
    read.map_err(|_| about(file, "it has no ext4 file system"))?;
    Ok(u32::from_le_bytes(word) & RECOVER != 0)
}

/// A disk that is read.
pub struct Disk {
    file: PathBuf,
    ext4: Ext4,
    _replayed: Replayed,
}

/// A path inside a disk, as people see it: it may hold anything.
fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(plain).collect()
}

/// A path from the root on.
fn absolute(path: &str) -> Vec<u8> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{slash}{path}").into_bytes()
}

impl Disk {
    /// Looks at a disk.
    ///
    /// # Errors
    /// There is none, or nothing that can be read.
    pub fn open(file: &Path) -> Result<Self, Error> {
        let replayed = Replayed::new(file)?;
        let opened = File::open(&replayed.file).map_err(|error| about(file, error))?;
        let ext4 = Ext4::load(Box::new(opened))
            .map_err(|error| about(file, format!("it has no ext4 file system: {error}")))?;
        Ok(Disk {
            file: file.to_path_buf(),
            ext4,
            _replayed: replayed,
        })
    }

    fn about(&self, path: &[u8], error: &Ext4Error) -> Error {
        about(&self.file, format!("{}: {error}", shown(path)))
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, Error> {
        let found = self.ext4.symlink_metadata(path);
        found.map_err(|error| self.about(path, &error))
    }

    /// The paths of what is in a directory.
    fn children(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let entries = self.ext4.read_dir(path);
        let mut children = Vec::new();
        for entry in entries.map_err(|error| self.about(path, &error))? {
            let entry = entry.map_err(|error| self.about(path, &error))?;
            if !matches!(entry.file_name().as_ref(), b"." | b"..") {
                children.push(entry.path().as_ref().to_vec());
            }
        }
        children.sort();
        Ok(children)
    }

    /// A line for what is at a path, and for everything below: type and mode, owner, group, size, path.
    ///
    /// # Errors
    /// There is nothing, or it cannot be read.
    pub fn list(&self, path: &str) -> Result<String, Error> {
        let mut lines = String::new();
        self.list_below(&absolute(path), MAX_DEPTH, &mut lines)?;
        Ok(lines)
    }

    fn list_below(&self, path: &[u8], depth: usize, lines: &mut String) -> Result<(), Error> {
        let found = self.metadata(path)?;
        let kind = match found.file_type() {
            FileType::Regular => '-',
            FileType::Directory => 'd',
            FileType::Symlink => 'l',
            _ => '?',
        };
        let mut name = shown(path);
        if found.is_symlink() {
            let target = self.ext4.read_link(path);
            let target = target.map_err(|error| self.about(path, &error))?;
            name = format!("{name} -> {}", shown(target.as_ref()));
        }
        let _ = writeln!(
            lines,
            "{kind}{:04o} {:5} {:5} {:10} {name}",
            found.mode() & 0o7777,
            found.uid(),
            found.gid(),
            found.len(),
        );
        if found.is_dir() {
            let depth = self.deeper(path, depth)?;
            for path in self.children(path)? {
                self.list_below(&path, depth, lines)?;
            }
        }
        Ok(())
    }

    fn deeper(&self, path: &[u8], depth: usize) -> Result<usize, Error> {
        let why = || {
            let path = shown(path);
            about(&self.file, format!("{path}: too deep, or in circles"))
        };
        depth.checked_sub(1).ok_or_else(why)
    }

    /// Copies a file, or a directory with everything below, to a path of the host where nothing is yet. What is neither file, directory nor
    /// symbolic link is left out: how many.
    ///
    /// # Errors
    /// There is nothing, it cannot be read, or something is there already.
    pub fn get(&self, path: &str, to: &Path) -> Result<usize, Error> {
        self.get_below(&absolute(path), to, MAX_DEPTH)
    }

    fn get_below(&self, path: &[u8], to: &Path, depth: usize) -> Result<usize, Error> {
        let found = self.metadata(path)?;
        let mode = u32::from(found.mode()) & 0o777;
        let host = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => about(to, "it is there already"),
            _ => about(to, error),
        };
        match found.file_type() {
            FileType::Regular => {
                // Nothing that is there is written to, nor what a symbolic link of the disk leads to.
                let made = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(mode)
                    .open(to);
                let mut made = made.map_err(host)?;
                let opened = self.ext4.open(path);
                let mut opened = opened.map_err(|error| self.about(path, &error))?;
                std::io::copy(&mut opened, &mut made)
                    .map_err(|error| about(&self.file, format!("{}: {error}", shown(path))))?;
                Ok(0)
            }
            FileType::Directory => {
                let depth = self.deeper(path, depth)?;
                fs::create_dir(to).map_err(host)?;
                let mut left_out = 0;
                for path in self.children(path)? {
                    let name = path.rsplit(|byte| *byte == b'/').next();
                    let to = to.join(std::ffi::OsStr::from_bytes(name.unwrap_or_default()));
                    left_out += self.get_below(&path, &to, depth)?;
                }
                // Last: it may forbid to write.
                let permissions = fs::Permissions::from_mode(mode);
                fs::set_permissions(to, permissions).map_err(host)?;
                Ok(left_out)
            }
            FileType::Symlink => {
                let target = self.ext4.read_link(path);
                let target = target.map_err(|error| self.about(path, &error))?;
                let target = std::ffi::OsStr::from_bytes(target.as_ref());
                symlink(target, to).map_err(host)?;
                Ok(0)
            }
            _ => Ok(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{check, make, make_of, shown, Disk};
    use std::fs;
    use std::os::unix::fs::{symlink, FileExt};
    use std::path::Path;

    const MEGABYTE: u64 = 1 << 20;

    #[test]
    fn what_is_put_on_a_disk_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir_all(at("tree/sub")).unwrap();
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 / 3) as u8).collect();
        fs::write(at("tree/sub/file"), &content).unwrap();
        fs::write(at("tree/empty"), "").unwrap();
        symlink("sub/file", at("tree/link")).unwrap();
        let disk = at("disk");
        make(&disk, 32 * MEGABYTE, Some(&at("tree"))).unwrap();
        check(&disk).unwrap();
        let opened = Disk::open(&disk).unwrap();
        let listed = opened.list("/").unwrap();
        let ends = [
            "/",
            "/empty",
            "/link -> sub/file",
            "/lost+found",
            "/sub",
            "/sub/file",
        ];
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(lines.len(), ends.len(), "{listed}");
        for (line, end) in lines.iter().zip(ends) {
            assert!(line.ends_with(&format!(" {end}")), "{line}");
        }
        assert!(lines[5].contains(" 3000000 "), "{}", lines[5]);
        assert!(opened.list("sub/file").unwrap().ends_with("/sub/file\n"));
        assert_eq!(opened.get("/", &at("back")).unwrap(), 0);
        assert!(fs::read(at("back/sub/file")).unwrap() == content);
        assert_eq!(fs::read(at("back/empty")).unwrap(), b"");
        assert_eq!(
            fs::read_link(at("back/link")).unwrap(),
            Path::new("sub/file")
        );
        opened.get("sub/file", &at("one")).unwrap();
        assert!(fs::read(at("one")).unwrap() == content);
    }

    #[test]
    fn nothing_is_overwritten_and_errors_say_what_is_wrong() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let disk = at("disk");
        make(&disk, 32 * MEGABYTE, None).unwrap();
        let failed = |result: Result<(), xtask_build::error::Error>, with: &str| {
            let message = result.unwrap_err().message;
            assert!(message.contains(with), "{message}");
        };
        failed(make(&disk, MEGABYTE, None), "it is there already");
        failed(make(&at("x"), 1 << 25, Some(&at("none"))), "No such file");
        failed(make(&at("x"), 1 << 25, Some(&disk)), "not a directory");
        fs::create_dir(at("large")).unwrap();
        fs::write(at("large/file"), vec![1; 40 << 20]).unwrap();
        failed(make(&at("x"), 1 << 25, Some(&at("large"))), "large enough");
        let mut names = fs::read_dir(scratch.path()).unwrap();
        let is_known = |name: &str| ["disk", "large"].contains(&name);
        let is_known = |name: &std::ffi::OsStr| name.to_str().is_some_and(is_known);
        assert!(
            names.all(|name| is_known(&name.unwrap().file_name())),
            "what could not be made is left"
        );
        let opened = Disk::open(&disk).unwrap();
        failed(opened.list("/none").map(drop), "/none");
        failed(opened.get("/", &at("large")).map(drop), "there already");
        failed(opened.get("/none", &at("y")).map(drop), "/none");
        fs::write(at("text"), vec![b'x'; 5000]).unwrap();
        failed(Disk::open(&at("text")).map(drop), "no ext4 file system");
        failed(Disk::open(&at("none")).map(drop), "No such file");
        failed(check(&at("text")), "damaged");
        fs::write(at("text"), "short").unwrap();
        failed(check(&at("text")), "no ext4 file system");
        // The number of free blocks in the superblock.
        let file = fs::OpenOptions::new().write(true).open(&disk).unwrap();
        file.write_all_at(&[0x77], 1024 + 12).unwrap();
        failed(check(&disk), "damaged");
    }

    #[test]
    fn a_disk_of_an_archive_has_its_owners_and_modes() {
        use xtask_build::archive::{Archive, Attributes, Content};
        let scratch = tempfile::tempdir().unwrap();
        let disk = scratch.path().join("disk");
        let mut archive = Archive::with_directories().unwrap();
        let attributes = |mode, uid, gid| Attributes {
            mode,
            uid,
            gid,
            time: 1_000_000_000,
        };
        let file = Content::File(b"text".to_vec());
        archive
            .put("/usr/lib/a b", file, attributes(0o4751, 7, 8))
            .unwrap();
        archive
            .put("/var/x", Content::Directory, attributes(0o700, 9, 10))
            .unwrap();
        let link = Content::Link("/usr/lib/a b".into());
        archive
            .put("/bin/hard", link, attributes(0o4751, 7, 8))
            .unwrap();
        make_of(&disk, 32 * MEGABYTE, &archive).unwrap();
        check(&disk).unwrap();
        let opened = Disk::open(&disk).unwrap();
        let listed = opened.list("/").unwrap();
        for line in [
            "-4751     7     8          4 /usr/lib/a b",
            "-4751     7     8          4 /usr/bin/hard",
            "d0700     9    10       4096 /var/x",
            "l0777     0     0          7 /bin -> usr/bin",
        ] {
            assert!(
                listed.lines().any(|listed| listed == line),
                "{line}:\n{listed}"
            );
        }
        let metadata = opened.ext4.symlink_metadata("/usr/lib/a b").unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o4751);
    }

    #[test]
    fn what_is_shown_controls_no_terminal() {
        assert_eq!(shown(b"a\x1b[2J\n\xff"), "a\u{fffd}[2J\u{fffd}\u{fffd}");
    }
}
