//! The files of images, and those that are made.

use checkpoint_image::chain::Bytes;
use checkpoint_image::file::Bad;
use checkpoint_image::tool::Whole;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

use crate::MOST;

/// The file of an image.
pub(crate) struct File {
    file: std::fs::File,
    path: PathBuf,
    size: u64,
}

impl File {
    fn open(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
        let file = std::fs::File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(format!("{} is no file", path.display()));
        }
        Ok(File {
            file,
            path: path.to_path_buf(),
            size: about.len(),
        })
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Bytes for File {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Bad::Short.to_string(),
            _ => format!("cannot read it: {error}"),
        })
    }
}

/// Opens an image with those that it is based on. Their paths are those of a machine: here they lie beside it.
pub(crate) fn open(path: &Path) -> Result<Whole<File>, String> {
    let directory = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let named = |why: String| format!("{}: {why}", path.display());
    let mut taken = 0u64;
    let room = |bytes: u64| {
        taken = taken.saturating_add(bytes);
        taken <= MOST
    };
    let find = |parent: &checkpoint_image::meta::Parent| {
        let name = parent.path.rsplit('/').next().unwrap_or_default();
        let beside = directory.join(name);
        File::open(&beside)
    };
    Whole::open(File::open(path)?, find, room).map_err(named)
}

/// A file that is made: it gets its name when it is complete.
pub(crate) struct New<'a> {
    file: NamedTempFile,
    path: &'a Path,
}

impl<'a> New<'a> {
    /// One that is to be at a path where nothing is yet.
    pub(crate) fn at(path: &'a Path) -> Result<Self, String> {
        if path.symlink_metadata().is_ok() {
            return Err(format!("{} is there already", path.display()));
        }
        let directory = path.parent().filter(|path| *path != Path::new(""));
        let made = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")));
        let file = made.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(New { file, path })
    }

    /// Puts bytes somewhere in it.
    pub(crate) fn put(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let written = self.file.as_file().write_all_at(bytes, at);
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }

    /// It is complete.
    pub(crate) fn keep(self) -> Result<(), String> {
        let path = self.path;
        let kept = self.file.persist_noclobber(path);
        kept.map(|_| ())
            .map_err(|error| format!("cannot write {}: {}", path.display(), error.error))
    }
}

/// Says on a terminal how far something is that takes long.
pub(crate) struct Progress {
    what: &'static str,
    all: u64,
    done: u64,
    /// The percentage that was said last.
    said: u64,
}

impl Progress {
    /// Of so many bytes.
    pub(crate) fn new(what: &'static str, all: u64) -> Self {
        Progress {
            what,
            all,
            done: 0,
            said: 0,
        }
    }

    /// So many more are done.
    pub(crate) fn add(&mut self, bytes: u64) {
        const LONG: u64 = 64 << 20;
        self.done += bytes;
        let part = (100 * self.done / self.all.max(1)).min(100);
        if self.all < LONG || part == self.said || !std::io::stderr().is_terminal() {
            return;
        }
        self.said = part;
        let end = if part == 100 { "\n" } else { "" };
        let _ = write!(std::io::stderr(), "\rimage: {part} % {}{end}", self.what);
    }
}
