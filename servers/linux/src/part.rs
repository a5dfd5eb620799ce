//! What a checkpoint holds of a process beyond memory, registers and kernel objects.
//!
//! The part is a [`Process`] as it is, with its open files named by path: inode numbers mean
//! nothing in another boot. A file that has no name any more is saved with its contents, up to
//! [`MAX_UNLINKED`] bytes. What comes back is hostile input: [`adopt`] believes nothing.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::files::{Reply, Request};
use services::fs::{mode, Flags};

use crate::calls::file::MAX_OFFSET;
use crate::host::Host;
use crate::memory;
use crate::path;
use crate::process::{Kind, Process, MAX_FDS, MAX_REPORTED};

/// The format's version.
const VERSION: u32 = 2;
/// Most bytes of an unlinked file that are saved.
pub const MAX_UNLINKED: u64 = 4 << 20;
/// Longest part that is read: as long as a checkpoint can hold.
pub const MAX_PART: u64 = 4 << 20;
/// A process takes at most so many times its encoded length, lists that grow included: what takes most is an empty
/// argument, a byte for the three words of its vector.
const DECODED: u64 = 80;
/// What it takes to encode something, in times of its length, and to read it in pieces.
const ENCODED: u64 = 4;
/// Why a process cannot be saved for want of memory.
const OUT: &str = "memory is out";

/// An open file.
#[derive(Serialize, Deserialize)]
enum SavedFile {
    /// It has this path.
    Named(String),
    /// It has no name any more.
    Unlinked { mode: u32, contents: Vec<u8> },
}

#[derive(Serialize)]
struct Part {
    version: u32,
    /// The [`Process`], encoded.
    process: Vec<u8>,
    /// By number of the description.
    files: Vec<(u32, SavedFile)>,
}

/// The part of a process, or a sentence that says why it cannot be saved.
pub fn save(process: &Process, host: &mut dyn Host) -> Result<Vec<u8>, String> {
    let mut files = Vec::new();
    for (number, description) in &process.files.descriptions {
        let Some(ino) = description.ino() else {
            continue;
        };
        let saved = match host.fs(&Request::PathOf { ino }, &[], &mut []) {
            Ok((Reply::Path(path), _)) => SavedFile::Named(path),
            Err(proto::Error::NotFound) => unlinked(host, ino, &description.kind)?,
            Err(error) => return Err(format!("an open file: {}", error.text())),
            Ok(_) => return Err("the file system does not answer sensibly".to_string()),
        };
        files.push((*number, saved));
    }
    room(host, ENCODED * size(process))?;
    let process = postcard::to_allocvec(process).map_err(|_| OUT.to_string())?;
    let contents = |file: &(u32, SavedFile)| match &file.1 {
        SavedFile::Named(path) => path.len(),
        SavedFile::Unlinked { contents, .. } => contents.len(),
    };
    let length = process.len() + files.iter().map(contents).sum::<usize>();
    room(host, ENCODED * length as u64)?;
    let part = Part {
        version: VERSION,
        process,
        files,
    };
    postcard::to_allocvec(&part).map_err(|_| OUT.to_string())
}

/// Asks for memory for what is saved.
fn room(host: &mut dyn Host, bytes: u64) -> Result<(), String> {
    host.room(bytes).map_err(|_| OUT.to_string())
}

/// About how long a process is, encoded, or a little less than that.
fn size(process: &Process) -> u64 {
    let texts = process.files.descriptions.values().map(|d| match &d.kind {
        Kind::Text(text) => text.len(),
        Kind::Directory { pending, .. } => 300 * pending.len(),
        Kind::File { .. } | Kind::Device(_) => 0,
    });
    let args = process.args.iter().map(|arg| arg.len() + 5);
    let fixed = 40 * process.areas.list().len()
        + 50 * (process.files.fds.len() + process.files.descriptions.len())
        + (16 << 10);
    (fixed + texts.sum::<usize>() + args.sum::<usize>() + process.name.len()) as u64
}

fn unlinked(host: &mut dyn Host, ino: u64, kind: &Kind) -> Result<SavedFile, String> {
    if let Kind::Directory { .. } = kind {
        return Err("an open directory has been removed, so it cannot be saved".to_string());
    }
    let Ok((Reply::Attr(attr), _)) = host.fs(&Request::StatIno { ino }, &[], &mut []) else {
        return Err("an open file without a name cannot be found".to_string());
    };
    if attr.size > MAX_UNLINKED {
        return Err(format!(
            "an open file without a name has {} bytes; at most {MAX_UNLINKED} can be saved",
            attr.size
        ));
    }
    room(host, attr.size)?;
    let mut contents = alloc::vec![0; attr.size as usize];
    let mut done = 0;
    while done < contents.len() {
        let length = (contents.len() - done).min(proto::MAX_BULK);
        let request = Request::Read {
            ino,
            offset: done as u64,
            length: length as u32,
        };
        match host.fs(&request, &[], &mut contents[done..done + length]) {
            Ok((_, got)) if got > 0 => done += got.min(length),
            _ => return Err("an open file without a name cannot be read".to_string()),
        }
    }
    Ok(SavedFile::Unlinked {
        mode: attr.mode & 0o7777,
        contents,
    })
}

/// Reads a part, and refuses one of more files than a process can have open before it takes their memory: in memory
/// they may be thirty times as long as in the image.
fn decode(bytes: &[u8]) -> Option<Part> {
    let ((version, process), files) = postcard::take_from_bytes::<(u32, Vec<u8>)>(bytes).ok()?;
    let (count, _) = postcard::take_from_bytes::<u32>(files).ok()?;
    if count > MAX_FDS {
        return None;
    }
    Some(Part {
        version,
        process,
        files: postcard::from_bytes(files).ok()?,
    })
}

/// Makes a process of a part, with its files open again; or says why that cannot be. Its memory
/// and mappings are someone else's work.
pub fn adopt(bytes: &[u8], clock_offset: u64, host: &mut dyn Host) -> Result<Process, String> {
    let nonsense = || "its Linux part makes no sense".to_string();
    let part = decode(bytes).ok_or_else(nonsense)?;
    if part.version != VERSION {
        return Err(format!(
            "its Linux part has version {}, not {VERSION}",
            part.version
        ));
    }
    let Part { process, files, .. } = part;
    host.room(DECODED * process.len() as u64)
        .map_err(|_| "there is no memory for what Linux keeps of it".to_string())?;
    let mut process: Process = postcard::from_bytes(&process).map_err(|_| nonsense())?;
    check(&process).ok_or_else(nonsense)?;
    let wanted = process
        .files
        .descriptions
        .iter()
        .filter(|(_, d)| d.ino().is_some())
        .count();
    if files.len() != wanted || files.windows(2).any(|w| w[0].0 >= w[1].0) {
        return Err(nonsense());
    }
    process.clock_offset = clock_offset;
    let mut open: Vec<u64> = Vec::new();
    let mut failure = None;
    for (index, (number, saved)) in files.into_iter().enumerate() {
        let Some(description) = process.files.descriptions.get_mut(&number) else {
            failure = Some(nonsense());
            break;
        };
        match reopen(host, &mut description.kind, saved, process.pid, index) {
            Ok(ino) => open.push(ino),
            Err(sentence) => {
                failure = Some(sentence);
                break;
            }
        }
    }
    if let Some(sentence) = failure {
        for ino in open {
            let _ = host.fs(&Request::Close { ino }, &[], &mut []);
        }
        return Err(sentence);
    }
    Ok(process)
}

fn reopen(
    host: &mut dyn Host,
    kind: &mut Kind,
    saved: SavedFile,
    pid: u32,
    index: usize,
) -> Result<u64, String> {
    let nonsense = || "its Linux part makes no sense".to_string();
    let (found, expected) = match (kind, saved) {
        (Kind::File { ino }, SavedFile::Named(path)) => (open(host, &path, ino)?, mode::FILE),
        (Kind::Directory { ino, .. }, SavedFile::Named(path)) => {
            (open(host, &path, ino)?, mode::DIRECTORY)
        }
        (Kind::File { ino }, SavedFile::Unlinked { mode, contents }) => {
            if contents.len() as u64 > MAX_UNLINKED || mode & !0o7777 != 0 {
                return Err(nonsense());
            }
            return make_unlinked(host, mode, &contents, pid, index).inspect(|new| *ino = *new);
        }
        _ => return Err(nonsense()),
    };
    let (new, path, found) = found;
    if found & mode::TYPE != expected {
        let _ = host.fs(&Request::Close { ino: new }, &[], &mut []);
        return Err(format!(
            "{path}: is not what it was when the process was saved"
        ));
    }
    Ok(new)
}

/// Opens a path and stores its inode number.
fn open(host: &mut dyn Host, path: &str, ino: &mut u64) -> Result<(u64, String, u32), String> {
    if !path::is_sound(path) {
        return Err("its Linux part makes no sense".to_string());
    }
    let request = Request::Open {
        path: path.to_string(),
        flags: Flags::default(),
        mode: 0,
    };
    match host.fs(&request, &[], &mut []) {
        Ok((Reply::Opened(attr), _)) => {
            *ino = attr.ino;
            Ok((attr.ino, path.to_string(), attr.mode))
        }
        Ok(_) => Err("the file system does not answer sensibly".to_string()),
        Err(error) => Err(format!("{path}: {}", error.text())),
    }
}

/// Makes a file with these contents that has no name.
fn make_unlinked(
    host: &mut dyn Host,
    mode: u32,
    contents: &[u8],
    pid: u32,
    index: usize,
) -> Result<u64, String> {
    let failed = |error: proto::Error| format!("a file without a name: {}", error.text());
    // The name is removed at once. A name that is taken belongs to another file, so the next one is tried.
    let mut attempt = 0;
    let (path, ino) = loop {
        let path = format!("/tmp/.restored-{pid}-{index}-{attempt}");
        let flags = Flags {
            create: true,
            exclusive: true,
            ..Flags::default()
        };
        let request = Request::Open {
            path: path.clone(),
            flags,
            mode,
        };
        match host.fs(&request, &[], &mut []) {
            Ok((Reply::Opened(attr), _)) => break (path, attr.ino),
            Err(proto::Error::Exists) if attempt < 100 => attempt += 1,
            Err(error) => return Err(failed(error)),
            Ok(_) => return Err(failed(proto::Error::Broken)),
        }
    };
    let mut written = 0;
    let mut result = Ok(());
    while result.is_ok() && written < contents.len() {
        let piece = &contents[written..contents.len().min(written + proto::MAX_BULK)];
        let request = Request::Write {
            ino,
            offset: written as u64,
            append: false,
        };
        match host.fs(&request, piece, &mut []) {
            Ok((Reply::Written { length, .. }, _)) if length > 0 => written += length as usize,
            Ok(_) => result = Err(proto::Error::Broken),
            Err(error) => result = Err(error),
        }
    }
    let result = result.and(host.fs(&Request::Unlink { path }, &[], &mut []).map(|_| ()));
    match result {
        Ok(()) => Ok(ino),
        Err(error) => {
            let _ = host.fs(&Request::Close { ino }, &[], &mut []);
            Err(failed(error))
        }
    }
}

/// Checks all that the calls rely on.
fn check(process: &Process) -> Option<()> {
    let p = process;
    let paths = path::is_sound(&p.exe) && path::is_sound(&p.cwd);
    let strings = p.name.len() <= 1 << 20
        && p.comm.len() <= 15
        && p.args.iter().map(|a| a.len() + 9).sum::<usize>() <= 1 << 20
        && p.termios.as_ref().is_none_or(|t| t.len() == 36);
    let numbers = p.pid != 0
        && p.pid <= i32::MAX as u32
        && p.group <= i32::MAX as u32
        && p.umask <= 0o777
        && p.limits.keys().all(|k| *k < 16)
        && p.reported.len() <= MAX_REPORTED
        && p.signals.is_sound();
    let memory = p.areas.is_sound()
        && p.brk_start >= memory::LOWEST
        && p.brk_start.is_multiple_of(memory::PAGE)
        && p.brk >= p.brk_start
        && p.brk <= memory::MMAP_TOP;
    let files = &p.files;
    let descriptors = files
        .fds
        .iter()
        .all(|(n, f)| *n < MAX_FDS && files.descriptions.contains_key(&f.description));
    let descriptions = files.descriptions.iter().all(|(number, d)| {
        let used = files.fds.values().any(|f| f.description == *number);
        let kind = match &d.kind {
            Kind::Text(text) => text.len() <= 1 << 20,
            Kind::Directory { pending, .. } => pending.iter().all(|e| {
                !e.name.is_empty() && e.name.len() <= 255 && !e.name.contains(['/', '\0'])
            }),
            Kind::File { .. } | Kind::Device(_) => true,
        };
        used && kind && d.offset <= MAX_OFFSET
    });
    (paths && strings && numbers && memory && descriptors && descriptions).then_some(())
}
