//! `./fermata image`: the program `image` of the guest (`servers/checkpoint/image`), on files of the host.

use checkpoint_image::chain::{places, Bytes};
use checkpoint_image::file::Bad;
use image_tool::{run, Files, New};
use std::cell::Cell;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::NamedTempFile;

/// Most memory that descriptions may take.
const MOST: u64 = 4 << 30;
/// From how many bytes on progress is reported.
const LONG: u64 = 64 << 20;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let arguments: Result<Vec<String>, _> = arguments.map(|a| a.into_string()).collect();
    let result = match &arguments {
        Ok(all) => {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            run(&all, &Host::default())
        }
        Err(other) => Err((format!("{}: is no text", other.display()), 2)),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err((sentence, status)) => {
            eprintln!("image: {sentence}");
            ExitCode::from(status)
        }
    }
}

/// The files of the host.
#[derive(Default)]
struct Host {
    /// How much memory was allocated.
    taken: Cell<u64>,
    /// The last percentage that was reported.
    said: Cell<u64>,
}

/// An image.
struct File {
    file: std::fs::File,
    size: u64,
}

/// A file that is being made: it gets its name when it is complete.
struct Made {
    file: NamedTempFile,
    path: PathBuf,
}

impl Files for Host {
    type File = File;
    type New = Made;

    fn open(&self, path: &str) -> Result<File, String> {
        let failed = |error: std::io::Error| format!("cannot read {path}: {error}");
        // A FIFO is not waited for.
        let about = std::fs::metadata(path).map_err(failed)?;
        if !about.is_file() {
            return Err(format!("{path} is no file"));
        }
        let file = std::fs::File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        match about.is_file() {
            true => Ok(File {
                file,
                size: about.len(),
            }),
            false => Err(format!("{path} is no file")),
        }
    }

    fn create(&self, path: &str) -> Result<Made, String> {
        let path = Path::new(path);
        if path.symlink_metadata().is_ok() {
            return Err(format!("{} is there already", path.display()));
        }
        let directory = path.parent().filter(|path| *path != Path::new(""));
        let made = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")));
        let file = made.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Made {
            file,
            path: path.to_path_buf(),
        })
    }

    fn places(&self, child: &str, parent: &str) -> Vec<String> {
        // The path in the image is one of the machine.
        let [beside, _] = places(child, parent);
        vec![beside]
    }

    fn room(&self, bytes: u64) -> bool {
        self.taken.set(self.taken.get().saturating_add(bytes));
        self.taken.get() <= MOST
    }

    fn print(&self, text: &str) -> Result<(), String> {
        match std::io::stdout().write_all(text.as_bytes()) {
            // A reader that has closed its end is no failure.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(format!("cannot print: {error}"))
            }
            _ => Ok(()),
        }
    }

    fn progress(&self, done: u64, all: u64) {
        let part = (100 * done / all.max(1)).min(100);
        if all < LONG || part == self.said.get() || !std::io::stderr().is_terminal() {
            return;
        }
        self.said.set(part);
        let end = if part == 100 { "\n" } else { "" };
        let _ = write!(std::io::stderr(), "\rimage: {part} %{end}");
    }
}

impl Bytes for File {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Bad::Cut.to_string(),
            _ => format!("cannot read it: {error}"),
        })
    }
}

impl New for Made {
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let written = self.file.as_file().write_all_at(bytes, at);
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }

    fn keep(self) -> Result<(), String> {
        let path = self.path;
        match self.file.persist_noclobber(&path) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("cannot write {}: {}", path.display(), error.error)),
        }
    }
}
