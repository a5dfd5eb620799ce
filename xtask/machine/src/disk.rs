//! Disks of machines: files of the host with an ext4 file system, which are made, read and checked without root and
//! without mounting.
//!
//! e2fsprogs makes and checks them, and the crate `ext4-view` reads them. A machine is switched off without notice,
//! and leaves a journal that has to be replayed, which is done on a copy. The content of a disk is not trusted.

use ext4_view::{Ext4, Ext4Error, FileType, Metadata};
use rustix::fs::{seek, SeekFrom as Place};
use rustix::io::Errno;
use std::fmt::{Display, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::{NamedTempFile, TempDir};

use xtask_build::archive::{Archive, Content};
use xtask_build::error::Error;
use xtask_build::project::{file_beside, temp_dir};
use xtask_build::signals;

/// Most directories below each other: a damaged disk may have a circle.
const MAX_DEPTH: usize = 256;

/// An error about a file of the host.
fn about(path: &Path, why: impl Display) -> Error {
    Error::new(format!("{}: {why}", path.display()))
}

/// A program of e2fsprogs, whose directory is not in every user's `PATH`.
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

/// The output of a program of e2fsprogs, without its name and version.
fn said(output: &Output) -> String {
    let text = [&*output.stdout, &*output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("mke2fs 1") && !line.starts_with("e2fsck 1")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Makes a disk of so many bytes, with the content of a directory of the host.
///
/// # Errors
/// The file exists already, the directory does not exist or does not fit, or there is no room. Nothing is left then.
pub fn make(file: &Path, bytes: u64, from: Option<&Path>) -> Result<(), Error> {
    name(filled(file, bytes, from)?, file)
}

/// Gives a finished disk its name.
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

/// A disk as [`make`] makes it, before it has its name.
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
    // The root directory belongs to the machine's root, whichever user makes the disk.
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

/// Makes a disk of so many bytes, with the content of an archive. Modes, owners and times are those of the archive,
/// whichever user runs this.
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

/// How much is copied at a time.
const PIECE: usize = 1 << 20;

/// Copies a file of the host. Holes and blocks of zeros become holes. A signal ends it.
fn copy_with_holes(from: &Path, to: &Path) -> Result<(), Error> {
    let read = |error: std::io::Error| about(from, error);
    let write = |error: std::io::Error| {
        let why = "a disk whose journal is to be replayed is copied first, and there is no room for that \
                   (TMPDIR names another directory)";
        about(to, format!("{error}: {why}"))
    };
    let mut source = File::open(from).map_err(read)?;
    let mut copy = File::create_new(to).map_err(write)?;
    // The metadata of a device have no length.
    let length = source.seek(SeekFrom::End(0)).map_err(read)?;
    copy.set_len(length).map_err(write)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        let end = match seek(&source, Place::Data(at)) {
            Ok(data) => {
                at = data;
                // The last hole is at the end of the file.
                seek(&source, Place::Hole(at)).map_err(|error| read(error.into()))?
            }
            // The rest is a hole.
            Err(Errno::NXIO) => break,
            // This file system does not report holes.
            Err(_) => length,
        };
        source.seek(SeekFrom::Start(at)).map_err(read)?;
        while at < end {
            signals::check()?;
            let size = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
            let piece = &mut piece[..size];
            source.read_exact(piece).map_err(read)?;
            if piece.iter().any(|byte| *byte != 0) {
                copy.seek(SeekFrom::Start(at))
                    .and_then(|_| copy.write_all(piece))
                    .map_err(write)?;
            }
            at += size as u64;
        }
    }
    Ok(())
}

/// A disk whose journal was replayed: the file itself if there was nothing to replay, or a copy, for as long as this
/// lives.
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
        copy_with_holes(file, &copy)?;
        let e2fsck = Command::new(program("e2fsck")?)
            .arg("-p")
            .arg(&copy)
            .output();
        let replayed = e2fsck.map_err(|error| about(file, error))?;
        signals::check()?;
        // Status 1 means that something was replayed.
        match replayed.status.code() {
            Some(0 | 1) => Ok(Replayed {
                file: copy,
                _copy: Some(scratch),
            }),
            _ => Err(unsound(file, &replayed)),
        }
    }
}

/// Checks whether the file system on a disk is sound. A journal that has to be replayed is no fault.
///
/// # Errors
/// It is not sound, or there is none.
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

/// Whether the machine that had this disk was switched off without unmounting it.
fn has_journal_to_replay(file: &Path) -> Result<bool, Error> {
    /// The offset of the incompatible features, and the feature of a journal to be replayed.
    const INCOMPATIBLE: u64 = 0x60;
    const RECOVER: u32 = 4;
    Ok(word_of_superblock(file, INCOMPATIBLE)? & RECOVER != 0)
}

/// A word at this offset of the superblock.
fn word_of_superblock(file: &Path, place: u64) -> Result<u32, Error> {
    const SUPERBLOCK: u64 = 1024;
    let mut word = [0; 4];
    let mut disk = File::open(file).map_err(|error| about(file, error))?;
    let read = disk
        .seek(SeekFrom::Start(SUPERBLOCK + place))
        .and_then(|_| disk.read_exact(&mut word));
    read.map_err(|_| about(file, "it has no ext4 file system"))?;
    Ok(u32::from_le_bytes(word))
}

/// The most that a sound disk has, and how much of that is left while the disk is traversed. A malicious disk may
/// have few directories that contain each other in many ways, and names for all of them.
struct Bounds {
    /// Each is an inode, and has one name.
    directories: u64,
    /// Each name takes some bytes of the disk.
    names: u64,
    /// Each byte of a file outside its holes has a place of its own on the disk; the file may have other names.
    bytes: u64,
}

impl Bounds {
    fn of(file: &Path) -> Result<Self, Error> {
        /// The offset of the number of inodes, and the least bytes of an inode.
        const INODES: u64 = 0;
        const INODE: u64 = 128;
        /// The least bytes of an entry of a directory.
        const ENTRY: u64 = 12;
        let end = File::open(file).and_then(|mut disk| disk.seek(SeekFrom::End(0)));
        let bytes = end.map_err(|error| about(file, error))?;
        let inodes = u64::from(word_of_superblock(file, INODES)?);
        Ok(Self {
            directories: inodes.min(bytes / INODE),
            names: bytes / ENTRY,
            bytes,
        })
    }

    /// Takes `count` of what is left of a bound; false if there is less.
    fn take(left: &mut u64, count: u64) -> bool {
        let rest = left.checked_sub(count);
        *left = rest.unwrap_or(0);
        rest.is_some()
    }
}

/// What [`Disk::get`] has made so far.
struct Gotten {
    bounds: Bounds,
    /// Whether there is anything.
    any: bool,
    /// Entries that are neither files, directories nor symbolic links.
    left_out: usize,
    /// The modes that directories get at the end: they may forbid writing or removing.
    modes: Vec<(PathBuf, u32)>,
}

/// A disk that is being read.
pub struct Disk {
    file: PathBuf,
    ext4: Ext4,
    replayed: Replayed,
}

/// A path inside a disk, for display: it may contain any bytes.
fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(plain).collect()
}

/// The path from the root.
fn absolute(path: &str) -> Vec<u8> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{slash}{path}").into_bytes()
}

impl Disk {
    /// Opens a disk for reading.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn open(file: &Path) -> Result<Self, Error> {
        let replayed = Replayed::new(file)?;
        let opened = File::open(&replayed.file).map_err(|error| about(file, error))?;
        let ext4 = Ext4::load(Box::new(opened))
            .map_err(|error| about(file, format!("it has no ext4 file system: {error}")))?;
        Ok(Disk {
            file: file.to_path_buf(),
            ext4,
            replayed,
        })
    }

    fn about(&self, path: &[u8], error: &Ext4Error) -> Error {
        about(&self.file, format!("{}: {error}", shown(path)))
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, Error> {
        let found = self.ext4.symlink_metadata(path);
        found.map_err(|error| self.about(path, &error))
    }

    /// An error if a bound is exceeded.
    fn within(&self, holds: bool) -> Result<(), Error> {
        match holds {
            true => Ok(()),
            false => Err(about(
                &self.file,
                "it is damaged: there is more than a disk of its size can have",
            )),
        }
    }

    /// The paths of the entries of a directory.
    fn children(&self, path: &[u8], bounds: &mut Bounds) -> Result<Vec<Vec<u8>>, Error> {
        signals::check()?;
        self.within(Bounds::take(&mut bounds.directories, 1))?;
        let entries = self.ext4.read_dir(path);
        let mut children = Vec::new();
        for entry in entries.map_err(|error| self.about(path, &error))? {
            let entry = entry.map_err(|error| self.about(path, &error))?;
            self.within(Bounds::take(&mut bounds.names, 1))?;
            if !matches!(entry.file_name().as_ref(), b"." | b"..") {
                children.push(entry.path().as_ref().to_vec());
            }
        }
        children.sort();
        Ok(children)
    }

    /// A line for the entry at a path, and for everything below: type and mode, owner, group, size, path.
    ///
    /// # Errors
    /// There is no such entry, or it cannot be read.
    pub fn list(&self, path: &str) -> Result<String, Error> {
        let mut lines = String::new();
        let mut bounds = Bounds::of(&self.replayed.file)?;
        self.list_below(&absolute(path), MAX_DEPTH, &mut bounds, &mut lines)?;
        Ok(lines)
    }

    fn list_below(
        &self,
        path: &[u8],
        depth: usize,
        bounds: &mut Bounds,
        lines: &mut String,
    ) -> Result<(), Error> {
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
            for path in self.children(path, bounds)? {
                self.list_below(&path, depth, bounds, lines)?;
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

    /// Copies a file, or a directory with everything below, to a path of the host that does not exist yet. Entries
    /// that are neither files, directories nor symbolic links are left out. Returns how many.
    ///
    /// # Errors
    /// There is no such entry, it cannot be read, or the path exists already. Nothing that was copied is left then.
    pub fn get(&self, path: &str, to: &Path) -> Result<usize, Error> {
        let mut gotten = Gotten {
            bounds: Bounds::of(&self.replayed.file)?,
            any: false,
            left_out: 0,
            modes: Vec::new(),
        };
        let got = self.get_below(&absolute(path), to, MAX_DEPTH, &mut gotten);
        let got = got.and_then(|()| {
            // Inner directories first.
            for (directory, mode) in gotten.modes.iter().rev() {
                let permissions = fs::Permissions::from_mode(*mode);
                let set = fs::set_permissions(directory, permissions);
                set.map_err(|error| about(directory, error))?;
            }
            Ok(gotten.left_out)
        });
        if got.is_err() && gotten.any {
            // A partial copy would look complete. The first error is the one to report.
            let _ = match to.symlink_metadata() {
                Ok(found) if found.is_dir() => fs::remove_dir_all(to),
                _ => fs::remove_file(to),
            };
        }
        got
    }

    fn get_below(
        &self,
        path: &[u8],
        to: &Path,
        depth: usize,
        gotten: &mut Gotten,
    ) -> Result<(), Error> {
        let found = self.metadata(path)?;
        let mode = u32::from(found.mode()) & 0o777;
        let host = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => about(to, "it is there already"),
            _ => about(to, error),
        };
        match found.file_type() {
            FileType::Regular => {
                // No existing file is written to, nor the target of a symbolic link on the disk.
                let made = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(mode)
                    .open(to);
                let mut made = made.map_err(host)?;
                gotten.any = true;
                let opened = self.ext4.open(path);
                let mut opened = opened.map_err(|error| self.about(path, &error))?;
                let length = found.len();
                made.set_len(length).map_err(host)?;
                let (mut piece, mut at) = (vec![0; PIECE], 0);
                let mut bytes = gotten.bounds.bytes;
                loop {
                    signals::check()?;
                    let read = opened.read(&mut piece);
                    let count = read
                        .map_err(|error| about(&self.file, format!("{}: {error}", shown(path))))?;
                    if count == 0 {
                        return Ok(());
                    }
                    let piece = &piece[..count];
                    // Zeros may be a hole, and holes can be larger than the disk.
                    if piece.iter().any(|byte| *byte != 0) {
                        self.within(Bounds::take(&mut bytes, count as u64))?;
                        let written = made.seek(SeekFrom::Start(at));
                        let written = written.and_then(|_| made.write_all(piece));
                        written.map_err(host)?;
                    }
                    at += count as u64;
                }
            }
            FileType::Directory => {
                let depth = self.deeper(path, depth)?;
                fs::create_dir(to).map_err(host)?;
                gotten.any = true;
                gotten.modes.push((to.to_path_buf(), mode));
                for path in self.children(path, &mut gotten.bounds)? {
                    let name = path.rsplit(|byte| *byte == b'/').next();
                    let to = to.join(std::ffi::OsStr::from_bytes(name.unwrap_or_default()));
                    self.get_below(&path, &to, depth, gotten)?;
                }
                Ok(())
            }
            FileType::Symlink => {
                let target = self.ext4.read_link(path);
                let target = target.map_err(|error| self.about(path, &error))?;
                let target = std::ffi::OsStr::from_bytes(target.as_ref());
                symlink(target, to).map_err(host)?;
                gotten.any = true;
                Ok(())
            }
            _ => {
                gotten.left_out += 1;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

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

    /// Changes a disk by debugfs.
    fn change(disk: &Path, commands: &str) {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("commands");
        fs::write(&file, commands).unwrap();
        let mut command = Command::new(program("debugfs").unwrap());
        let changed = command.arg("-wf").args([&file, disk]).output().unwrap();
        assert!(changed.status.success(), "{}", said(&changed));
    }

    #[test]
    fn directories_in_each_other_in_many_ways_have_an_end() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        // With few inodes, so that their number is soon too large.
        let made = Command::new(program("mke2fs").unwrap())
            .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-N", "64"])
            .arg(at("disk"))
            .arg("20M")
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", said(&made));
        let mut commands = String::new();
        for n in 0..=14 {
            let _ = writeln!(commands, "mkdir /d{n}");
        }
        for n in 0..14 {
            let _ = writeln!(commands, "ln /d{} /d{n}/a\nln /d{0} /d{n}/b", n + 1);
        }
        change(&at("disk"), &commands);
        let opened = Disk::open(&at("disk")).unwrap();
        let one = opened.list("/d12").unwrap();
        assert_eq!(one.lines().count(), 7, "{one}");
        let more = "there is more than a disk of its size can have";
        let error = opened.list("/d0").unwrap_err().message;
        assert!(error.contains(more), "{error}");
        let error = opened.get("/d0", &at("got")).unwrap_err().message;
        assert!(error.contains(more), "{error}");
        assert!(!at("got").exists(), "a part is left");
    }

    #[test]
    fn holes_stay_holes() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let blocks = |name: &str| fs::metadata(at(name)).unwrap().blocks() * 512;
        // Larger than the disk.
        let length = 100 * MEGABYTE;
        let data = vec![b'x'; 5000];
        fs::create_dir(at("tree")).unwrap();
        let file = fs::File::create_new(at("tree/file")).unwrap();
        file.set_len(length).unwrap();
        file.write_all_at(&data, 3 * MEGABYTE + 7).unwrap();
        file.write_all_at(&data, length - 5000).unwrap();
        let is_same = |name: &str| {
            let found = fs::File::open(at(name)).unwrap();
            let mut piece = vec![0; 5000];
            let mut is_there = |place| {
                found.read_exact_at(&mut piece, place).unwrap();
                piece == data
            };
            found.metadata().unwrap().len() == length
                && is_there(3 * MEGABYTE + 7)
                && is_there(length - 5000)
                && blocks(name) < 8 * MEGABYTE
        };
        assert!(is_same("tree/file"));
        copy_with_holes(&at("tree/file"), &at("copy")).unwrap();
        assert!(is_same("copy"));
        make(&at("disk"), 32 * MEGABYTE, Some(&at("tree"))).unwrap();
        let opened = Disk::open(&at("disk")).unwrap();
        opened.get("/file", &at("got")).unwrap();
        assert!(is_same("got"));

        // A file that has more data than the disk has bytes.
        let mut gotten = Gotten {
            bounds: Bounds {
                bytes: 9000,
                ..Bounds::of(&at("disk")).unwrap()
            },
            any: false,
            left_out: 0,
            modes: Vec::new(),
        };
        let part = opened.get_below(b"/file", &at("part"), 9, &mut gotten);
        let error = part.unwrap_err().message;
        assert!(error.contains("there is more than"), "{error}");
    }

    #[test]
    fn a_copy_for_which_there_is_no_room_names_itself() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("disk"), "x").unwrap();
        let error = copy_with_holes(&at("disk"), &at("none/copy")).unwrap_err();
        let message = error.message;
        assert!(
            message.contains("none/copy") && message.contains("TMPDIR"),
            "{message}"
        );
    }

    #[test]
    fn a_disk_whose_journal_is_to_be_replayed_is_read() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir(at("tree")).unwrap();
        fs::write(at("tree/file"), "text").unwrap();
        make(&at("disk"), 32 * MEGABYTE, Some(&at("tree"))).unwrap();
        change(&at("disk"), "feature needs_recovery\n");
        assert!(has_journal_to_replay(&at("disk")).unwrap());
        check(&at("disk")).unwrap();
        let opened = Disk::open(&at("disk")).unwrap();
        assert!(opened.list("/file").unwrap().ends_with(" /file\n"));
        assert!(
            has_journal_to_replay(&at("disk")).unwrap(),
            "it stays as it is"
        );
    }

    #[test]
    fn what_is_shown_controls_no_terminal() {
        assert_eq!(shown(b"a\x1b[2J\n\xff"), "a\u{fffd}[2J\u{fffd}\u{fffd}");
    }
}
