//! Loading programs: `execve`, and the first program of a process.
//!
//! [`prepare`] makes every check and changes nothing; [`commit`] replaces the image. Between the two, segments that are
//! large or on a disk are read piece by piece into a new memory ([`Staged`]). Static executables load at their own
//! addresses, position-independent ones at [`memory::PIE_BASE`]; a dynamic one brings its interpreter, which goes where
//! `mmap` would put it. Scripts name their interpreter after `#!`.

use abi::Registers;
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use linux_raw_sys::auxvec::{
    AT_BASE, AT_CLKTCK, AT_EGID, AT_ENTRY, AT_EUID, AT_EXECFN, AT_FLAGS, AT_GID, AT_HWCAP, AT_NULL,
    AT_PAGESZ, AT_PHDR, AT_PHENT, AT_PHNUM, AT_PLATFORM, AT_RANDOM, AT_SECURE, AT_SYSINFO_EHDR,
    AT_UID,
};
use linux_raw_sys::general::{RLIMIT_AS, RLIMIT_STACK};
use process::executable::{
    self, Header, ProgramHeader, Reason, PF_R, PF_W, PF_X, PT_GNU_STACK, PT_INTERP, PT_NOTE,
};

use crate::files::{Reply, Request};
use services::fs::{mode, Attr, Flags, Opened, ON_DISK};
use smallvec::SmallVec;

use crate::busy::Executed;
use crate::calls::file::step_of;
use crate::calls::futex::MAX_ROBUST;
use crate::emulate::STEP;
use crate::errno::{Errno, E2BIG, EACCES, EIO, ELOOP, ENOEXEC, ENOMEM, ETXTBSY};
use crate::host::{Host, OutOfMemory};
use crate::memory::{self, page_up, Areas, Kind, OfFile, Prot, EXECUTE, PAGE, READ, WRITE};
use crate::object::Uses;
use crate::proc::Seen;
use crate::process::{copied, Current, Ids, Mapped, Shared, Task, MAX_TITLE};
use crate::signal::Stack;
use crate::special::{self, Special};
use crate::system::System;
use crate::templates::Loaded;
use crate::wire::Writer;

/// Most bytes of arguments and environment together, with nine more for each string.
const MAX_STRINGS: usize = 1 << 20;
/// Bytes of arguments and environment that are always allowed, however low the stack limit is.
const LEAST_STRINGS: u64 = 128 << 10;
/// Most scripts in a row of which each is the interpreter of the one before.
const MAX_SCRIPTS: usize = 4;
/// Bytes read at a time.
const CHUNK: usize = proto::MAX_BULK;
/// Bytes that a program's explicit requests for memory leave in its account for the pages that it only touches, above
/// all its stack.
pub const RESERVE: u64 = 256 << 10;

/// Why a program cannot be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What `execve` returns.
    pub errno: Errno,
    /// The cause, as a sentence for people, without a full stop.
    pub sentence: String,
    /// Whether the interpreter is at fault and not the program itself.
    pub names_another: bool,
    /// Set if the program, or the interpreter of a script, is a native program.
    pub native: Option<Box<IsNative>>,
    /// The inodes that were opened on the way.
    pub inos: Vec<u64>,
}

/// A native program that was to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsNative {
    /// Its path.
    pub path: String,
    /// Its arguments.
    pub args: Vec<Vec<u8>>,
    /// Its environment.
    pub env: Vec<Vec<u8>>,
}

impl Failure {
    fn new(errno: Errno, path: &str, cause: &str) -> Self {
        Failure {
            errno,
            sentence: format!("{path}: {cause}"),
            names_another: false,
            native: None,
            inos: Vec::new(),
        }
    }

    /// The program is native, not a Linux program.
    fn native(path: &str) -> Self {
        Failure::new(ENOEXEC, path, "is a native program")
    }

    /// The failure of loading the interpreter, as a failure of the program.
    fn of_interpreter(self, program: &str) -> Self {
        Failure {
            sentence: format!(
                "{program}: its interpreter cannot be used: {}",
                self.sentence
            ),
            names_another: true,
            ..self
        }
    }

    fn from_fs(error: proto::Error, path: &str) -> Self {
        Failure::new(error.into(), path, error.text())
    }
}

/// An open executable file: a program or an interpreter.
struct Image {
    ino: u64,
    /// The file's attributes before anything was read of it, if a template may be made of it.
    before: Option<Attr>,
    path: String,
    header: Header,
    layout: Layout,
    size: u64,
}

/// A program that can be loaded. It must be given to [`commit`] or to [`cancel`].
pub struct Prepared {
    image: Image,
    interpreter: Option<Image>,
    args: Vec<Vec<u8>>,
    env: Vec<Vec<u8>>,
    /// The path as the caller gave it.
    name: String,
    /// The inodes that were opened on the way.
    inos: Vec<u64>,
    /// The entry state, if the segments are read into a new memory ([`Host::stage`]). `args` and `env` are empty then:
    /// the initial stack, which has them, has been made.
    staged: Option<First>,
    /// Marks the program's file as executed ([`Prepared::execute`]), and whether the last owner of that mark closes the
    /// file.
    executed: Option<(Rc<Executed>, bool)>,
}

/// Where a program begins, and the strings on its initial stack.
#[derive(Clone, Debug)]
struct First {
    rip: u64,
    rsp: u64,
    /// Address and length in bytes of the argument strings.
    args: (u64, u64),
    /// Address and length in bytes of the environment strings.
    environment: (u64, u64),
    /// The command line that process lists show.
    title: String,
}

/// A program whose segments are being read.
#[derive(Debug)]
pub struct Staged {
    /// The program. Its files are open.
    pub prepared: Prepared,
    /// The load addresses of program and interpreter.
    bases: Vec<u64>,
    /// Segments that are complete, and bytes of the next one. `usize::MAX` segments: nothing has to be read.
    done: (usize, u64),
    /// Identifies the template to be made of the loaded memory, if one is to be made.
    loaded: Option<Loaded>,
    /// Address and bytes of the initial stack while it is not written yet: it must not become part of the template.
    stack: (u64, Vec<u8>),
}

impl Staged {
    /// Starts staging a program: makes its new memory. Closes the program's files on failure.
    pub fn new(host: &mut dyn Host, mut prepared: Prepared, ids: &Ids) -> Result<Self, Errno> {
        match Self::begin(host, &prepared, ids) {
            Ok(begun) => {
                (prepared.args, prepared.env) = (Vec::new(), Vec::new());
                let Begun {
                    bases,
                    first,
                    stack,
                    loaded,
                    is_there,
                } = begun;
                let stack = (first.rsp, stack);
                prepared.staged = Some(first);
                Ok(Staged {
                    prepared,
                    bases,
                    done: (if is_there { usize::MAX } else { 0 }, 0),
                    loaded,
                    stack,
                })
            }
            Err(error) => {
                host.unstage();
                cancel(host, prepared);
                Err(error)
            }
        }
    }

    fn begin(host: &mut dyn Host, prepared: &Prepared, ids: &Ids) -> Result<Begun, Errno> {
        let bases = bases(prepared).ok_or(ENOMEM)?;
        let loaded = loaded(prepared);
        let is_there = host.stage(loaded.as_ref())?;
        let (first, mut stack) = first(host, prepared, &bases, ids)?;
        // The initial stack waits here until the template has been made. The server pays for these bytes, so they are
        // few.
        let loaded = loaded.filter(|_| !is_there && stack.len() <= MOST_KEPT);
        if loaded.is_none() {
            host.write_staged(first.rsp, &stack).map_err(|_| ENOMEM)?;
            stack = Vec::new();
        }
        Ok(Begun {
            bases,
            first,
            stack,
            loaded,
            is_there,
        })
    }

    /// Whether all segments are there without reading: the memory is a copy of a template.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.done.0 == usize::MAX
    }

    /// Reads the next piece; returns whether all is loaded. An attempt that fails or waits for the disk leaves the
    /// progress as it was.
    pub fn load(&mut self, host: &mut dyn Host) -> Result<bool, Errno> {
        let begun = self.done;
        let result = self.load_piece(host);
        if result.is_err() {
            self.done = begun;
        }
        result
    }

    fn load_piece(&mut self, host: &mut dyn Host) -> Result<bool, Errno> {
        let mut left = STEP;
        let images = self.prepared.images().zip(&self.bases);
        let segments = images.flat_map(|(image, base)| {
            let segments = image.layout.loads.iter();
            segments.map(move |segment| (image, segment, segment.p_vaddr.wrapping_add(*base)))
        });
        for (image, segment, address) in segments.skip(self.done.0) {
            // Reads at most one step of a file on the disk per call.
            left = left.min(step_of(image.ino));
            while self.done.1 < segment.p_filesz {
                if left == 0 {
                    return Ok(false);
                }
                let length = (segment.p_filesz - self.done.1).min(CHUNK as u64).min(left);
                let mut chunk = alloc::vec![0; length as usize];
                let from = segment.p_offset + self.done.1;
                if read_at(host, image.ino, from, &mut chunk, false)? != chunk.len() {
                    return Err(EIO);
                }
                let to = address.wrapping_add(self.done.1);
                host.write_staged(to, &chunk).map_err(|_| ENOMEM)?;
                self.done.1 += length;
                left -= length;
            }
            self.done = (self.done.0 + 1, 0);
        }
        if let Some(loaded) = self.loaded.take() {
            host.keep_staged(&loaded);
        }
        let (at, stack) = core::mem::take(&mut self.stack);
        if !stack.is_empty() {
            host.write_staged(at, &stack).map_err(|_| ENOMEM)?;
        }
        Ok(true)
    }
}

/// Most bytes of an initial stack that are held back until a template has been made.
const MOST_KEPT: usize = 16 << 10;

/// The parts of a [`Staged`] at its beginning.
struct Begun {
    bases: Vec<u64>,
    first: First,
    /// The initial stack, if it is not written yet.
    stack: Vec<u8>,
    loaded: Option<Loaded>,
    /// Whether the new memory has the segments already.
    is_there: bool,
}

/// Bytes of the chunks in which the memory server counts.
const PIECE: u64 = proto::layout::CHUNK;

/// The key of the template of a program: its files, and the most bytes that their segments take. `None` if there are to
/// be no templates of it.
fn loaded(prepared: &Prepared) -> Option<Loaded> {
    let files: Option<Vec<Attr>> = prepared.images().map(|image| image.before).collect();
    let segments = prepared.images().flat_map(|image| &image.layout.loads);
    // The account counts whole chunks, and a segment need not begin at one.
    let taken = |segment: &ProgramHeader| segment.p_filesz.next_multiple_of(PIECE) + PIECE;
    Loaded::new(&files?, segments.map(taken).sum())
}

/// The attributes of a file that is about to be read, if a template may be made of it: it must be in memory.
fn before_of(host: &mut dyn Host, opened: &Opened) -> Option<Attr> {
    if opened.ino & ON_DISK != 0 {
        return None;
    }
    let request = Request::StatIno { ino: opened.ino };
    match host.fs(&request, &[], &mut []) {
        Ok((Reply::Attr(attr), _)) => Some(attr),
        _ => None,
    }
}

/// Gives up a program that was being read.
pub fn unstage(host: &mut dyn Host, staged: Staged) {
    host.unstage();
    cancel(host, staged.prepared);
}

/// Reads from a file until `into` is full or the file ends; returns the bytes read. `now`: the call cannot be made
/// again, so the read may not be deferred ([`Host::fs_now`]).
fn read_at(
    host: &mut dyn Host,
    ino: u64,
    offset: u64,
    into: &mut [u8],
    now: bool,
) -> Result<usize, proto::Error> {
    let mut done = 0;
    while done < into.len() {
        let length = (into.len() - done).min(CHUNK);
        let request = Request::Read {
            ino,
            offset: offset + done as u64,
            length: length as u32,
        };
        let (_, got) = match now {
            true => host.fs_now(&request, &[], &mut into[done..done + length])?,
            false => host.fs(&request, &[], &mut into[done..done + length])?,
        };
        if got == 0 {
            break;
        }
        done += got.min(length);
    }
    Ok(done)
}

fn close(host: &mut dyn Host, ino: u64) {
    let _ = host.fs(&Request::Close { ino }, &[], &mut []);
}

/// Closes a file that the current call has not opened, so the close does not depend on what becomes of that call.
fn close_now(host: &mut dyn Host, ino: u64) {
    let _ = host.fs_now(&Request::Close { ino }, &[], &mut []);
}

/// Opens an executable file. Returns it and its canonical path.
fn open(host: &mut dyn Host, system: &System, path: &str) -> Result<(Opened, String), Failure> {
    let request = Request::Open {
        path: path.to_string(),
        flags: Flags::default(),
        mode: 0,
    };
    let attr = match host.fs(&request, &[], &mut []) {
        Ok((Reply::Opened(attr), _)) => attr,
        Ok(_) => return Err(Failure::from_fs(proto::Error::Broken, path)),
        Err(error) => return Err(Failure::from_fs(error, path)),
    };
    let refused = if attr.mode & mode::TYPE != mode::FILE {
        Some((EACCES, "is not a regular file"))
    } else if attr.mode & 0o111 == 0 {
        Some((EACCES, "is not executable (permission denied)"))
    } else if system.is_written(attr.ino) {
        Some((ETXTBSY, "is open for writing"))
    } else {
        None
    };
    if let Some((errno, cause)) = refused {
        close(host, attr.ino);
        return Err(Failure::new(errno, path, cause));
    }
    let canonical = match host.fs(&Request::PathOf { ino: attr.ino }, &[], &mut []) {
        Ok((Reply::Path(canonical), _)) => canonical,
        _ => path.to_string(),
    };
    Ok((attr, canonical))
}

/// The program headers of a file, as far as they matter for loading.
struct Layout {
    /// The segments to load, in the order of the file.
    loads: Vec<ProgramHeader>,
    /// Offset and length of the interpreter's path in the file.
    interpreter: Option<(u64, u64)>,
    /// Address of the program headers in memory, before the load address is added.
    headers_address: Option<u64>,
    /// The first note segments.
    notes: [Option<ProgramHeader>; 4],
    /// The protection of the stack.
    stack: Prot,
}

impl Layout {
    /// Parses `table`, the bytes at the offset of the program headers.
    fn new(header: &Header, table: &[u8]) -> Result<Self, Reason> {
        let mut found = Layout {
            loads: Vec::new(),
            interpreter: None,
            headers_address: None,
            notes: [None; 4],
            stack: READ | WRITE,
        };
        for segment in executable::program_headers(header, table)? {
            if segment.p_type == PT_INTERP {
                found.interpreter = Some((segment.p_offset, segment.p_filesz));
            } else if segment.p_type == PT_GNU_STACK {
                found.stack |= prot(&segment) & EXECUTE;
            } else if segment.p_type == PT_NOTE {
                if let Some(place) = found.notes.iter_mut().find(|place| place.is_none()) {
                    *place = Some(segment);
                }
            } else if executable::is_load(&segment) {
                let within = header.table_offset.checked_sub(segment.p_offset);
                if let Some(within) = within.filter(|within| *within < segment.p_filesz) {
                    found.headers_address = Some(segment.p_vaddr + within);
                }
                found.loads.push(segment);
            }
        }
        if found.loads.is_empty() {
            return Err("it has nothing to load");
        }
        Ok(found)
    }
}

/// The rights that a segment asks for.
fn prot(segment: &ProgramHeader) -> Prot {
    let asked = |flag, right| {
        if segment.p_flags & flag != 0 {
            right
        } else {
            0
        }
    };
    asked(PF_R, READ) | asked(PF_W, WRITE) | asked(PF_X, EXECUTE)
}

/// Reads and checks the headers of an open file.
fn examine(
    host: &mut dyn Host,
    (attr, before): (&Opened, Option<Attr>),
    path: &str,
    first: &[u8],
) -> Result<Image, Failure> {
    let bad = |reason: &str| Failure::new(ENOEXEC, path, &format!("not an executable: {reason}"));
    let header = executable::header(first).map_err(bad)?;
    if header.entry >= abi::USER_END / 2 {
        return Err(bad("its entry point is no address"));
    }
    if header.table_offset > attr.size {
        return Err(bad("it ends before its program headers"));
    }
    let mut table = alloc::vec![0; header.table_size()];
    let got = read_at(host, attr.ino, header.table_offset, &mut table, false)
        .map_err(|e| Failure::from_fs(e, path))?;
    let layout = Layout::new(&header, &table[..got]).map_err(bad)?;
    if layout
        .loads
        .iter()
        .any(|l| l.p_offset + l.p_filesz > attr.size)
    {
        return Err(bad("it ends within a segment"));
    }
    Ok(Image {
        ino: attr.ino,
        before,
        path: path.to_string(),
        header,
        layout,
        size: attr.size,
    })
}

/// The range of addresses that the segments span, page aligned, before the load address is added.
fn span(layout: &Layout) -> Option<(u64, u64)> {
    let start = layout.loads.iter().map(|l| l.p_vaddr).min()? & !(PAGE - 1);
    let end = layout.loads.iter().map(|l| l.p_vaddr + l.p_memsz).max()?;
    Some((start, page_up(end)?))
}

/// Makes every check that loading `path` needs and opens its files. `path` is as the caller named it.
pub fn prepare(
    current: &Current,
    system: &System,
    host: &mut dyn Host,
    path: &str,
    args: Vec<Vec<u8>>,
    env: Vec<Vec<u8>>,
) -> Result<Prepared, Failure> {
    let mut inos = Vec::new();
    match find(current, (system, host), path, (args, env), &mut inos) {
        Ok(prepared) => Ok(Prepared { inos, ..prepared }),
        Err(failure) => Err(Failure { inos, ..failure }),
    }
}

fn find(
    current: &Current,
    (system, host): (&System, &mut dyn Host),
    path: &str,
    (mut args, env): (Vec<Vec<u8>>, Vec<Vec<u8>>),
    inos: &mut Vec<u64>,
) -> Result<Prepared, Failure> {
    if path.is_empty() {
        return Err(Failure::from_fs(proto::Error::NotFound, path));
    }
    // `file` is the path to open. `name` is what a script's interpreter gets as the script's name.
    let mut file = crate::path::join(&current.context.cwd, path);
    let mut name = path.to_string();
    if args.is_empty() {
        // Programs read past an empty argument list, so Linux passes one empty string (since 5.18).
        args.push(Vec::new());
    }
    for _ in 0..MAX_SCRIPTS {
        if let Some(Special::Link(target)) = special::find(current, &file) {
            file = target;
        }
        let (attr, canonical) =
            open(host, system, &file).map_err(|failure| match name == path {
                true => failure,
                false => failure.of_interpreter(path),
            })?;
        let ino = attr.ino;
        inos.push(ino);
        let result = prepare_open((system, host), &attr, &canonical, &mut args, &name);
        match result {
            Ok(Step::Script(interpreter)) => {
                close(host, ino);
                file = crate::path::join(&current.context.cwd, &interpreter);
                name = interpreter;
            }
            Ok(Step::Program(images)) => {
                let (image, interpreter) = *images;
                let prepared = Prepared {
                    image,
                    interpreter,
                    args,
                    env,
                    // The process of a script is named after the script, not after its interpreter.
                    name: path.to_string(),
                    inos: Vec::new(),
                    staged: None,
                    executed: None,
                };
                inos.extend(prepared.interpreter.as_ref().map(|image| image.ino));
                let pid = current.task.pid;
                let stack = system.find(pid).map_or(0, |own| own.limit(RLIMIT_STACK).0);
                return match check_sizes(host, &prepared, stack) {
                    Ok(()) => Ok(prepared),
                    Err(failure) => {
                        cancel(host, prepared);
                        Err(failure)
                    }
                };
            }
            Ok(Step::Native) => {
                close(host, ino);
                return Err(Failure {
                    native: Some(Box::new(IsNative {
                        path: file,
                        args,
                        env,
                    })),
                    ..Failure::native(path)
                });
            }
            Err(failure) => {
                close(host, ino);
                return Err(failure);
            }
        }
    }
    Err(Failure::new(
        ELOOP,
        path,
        "too many scripts name each other as interpreter",
    ))
}

enum Step {
    /// A script: this interpreter is to be loaded instead, with the arguments changed.
    Script(String),
    Native,
    Program(Box<(Image, Option<Image>)>),
}

fn prepare_open(
    (system, host): (&System, &mut dyn Host),
    attr: &Opened,
    canonical: &str,
    args: &mut Vec<Vec<u8>>,
    named: &str,
) -> Result<Step, Failure> {
    // Templates are made of large programs only.
    let before = (attr.size > STEP).then(|| before_of(host, attr)).flatten();
    let mut first = [0; 256];
    let got =
        read_at(host, attr.ino, 0, &mut first, false).map_err(|e| Failure::from_fs(e, named))?;
    let first = &first[..got];
    if first.starts_with(b"#!") {
        let line = first[2..].split(|b| *b == b'\n').next().unwrap_or_default();
        let line = core::str::from_utf8(line)
            .map_err(|_| Failure::new(ENOEXEC, named, "its first line is no text"))?
            .trim_matches([' ', '\t']);
        let (interpreter, argument) = match line.split_once([' ', '\t']) {
            Some((interpreter, rest)) => (interpreter, Some(rest.trim_start())),
            None => (line, None),
        };
        if interpreter.is_empty() {
            return Err(Failure::new(
                ENOEXEC,
                named,
                "its first line names no interpreter",
            ));
        }
        let mut new = alloc::vec![interpreter.as_bytes().to_vec()];
        new.extend(argument.map(|a| a.as_bytes().to_vec()));
        new.push(named.as_bytes().to_vec());
        new.extend(args.drain(..).skip(1));
        *args = new;
        return Ok(Step::Script(interpreter.to_string()));
    }
    let image = examine(host, (attr, before), canonical, first)?;
    let Some((offset, length)) = image.layout.interpreter else {
        let native = is_native(host, &image).map_err(|e| Failure::from_fs(e, named))?;
        return Ok(match native {
            true => Step::Native,
            false => Step::Program(Box::new((image, None))),
        });
    };
    let mut raw = alloc::vec![0; length.min(4096) as usize];
    let got =
        read_at(host, attr.ino, offset, &mut raw, false).map_err(|e| Failure::from_fs(e, named))?;
    let path = raw[..got].split(|b| *b == 0).next().unwrap_or_default();
    let path = core::str::from_utf8(path)
        .map_err(|_| Failure::new(ENOEXEC, named, "the name of its interpreter is no text"))?;
    let (attr, canonical) = open(host, system, path).map_err(|f| f.of_interpreter(named))?;
    let of_it = image.before.and_then(|_| before_of(host, &attr));
    let mut first = [0; executable::HEADER];
    let interpreter = read_at(host, attr.ino, 0, &mut first, false)
        .map_err(|e| Failure::from_fs(e, path))
        .and_then(|got| examine(host, (&attr, of_it), &canonical, &first[..got]));
    match interpreter {
        Ok(interpreter) if interpreter.header.position_independent => {
            Ok(Step::Program(Box::new((image, Some(interpreter)))))
        }
        other => {
            close(host, attr.ino);
            Err(match other {
                Err(failure) => failure,
                Ok(_) => Failure::new(ENOEXEC, path, "an interpreter must be position-independent"),
            })
        }
    }
}

/// Whether a program without an interpreter has the note of native programs.
fn is_native(host: &mut dyn Host, image: &Image) -> Result<bool, proto::Error> {
    /// Bytes of a note segment that are read. The note of native programs is short.
    const MOST: u64 = 1024;
    for segment in image.layout.notes.iter().flatten() {
        let mut bytes = alloc::vec![0; segment.p_filesz.min(MOST) as usize];
        let came = read_at(host, image.ino, segment.p_offset, &mut bytes, false)?;
        let segment = ProgramHeader {
            p_offset: 0,
            p_filesz: came as u64,
            ..*segment
        };
        if executable::native_notes(&bytes[..came], &segment)
            .next()
            .is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn check_sizes(host: &mut dyn Host, prepared: &Prepared, stack: u64) -> Result<(), Failure> {
    let path = &prepared.image.path;
    let bad = |cause| Failure::new(ENOEXEC, path, cause);
    let base = base_of(&prepared.image);
    let (start, end) =
        span(&prepared.image.layout).ok_or_else(|| bad("its addresses are too high"))?;
    let end = end.checked_add(base).filter(|end| *end <= memory::MMAP_TOP);
    if start + base < memory::LOWEST || end.is_none() {
        return Err(bad("its addresses are outside of a program's memory"));
    }
    let mut resident = 0;
    for image in core::iter::once(&prepared.image).chain(&prepared.interpreter) {
        resident += image.layout.loads.iter().map(|l| l.p_filesz).sum::<u64>();
        let (start, end) = span(&image.layout).ok_or_else(|| bad("its addresses are too high"))?;
        if end - start > 1 << 32 {
            return Err(bad("it is too large"));
        }
        // Two neighbouring segments may share a page. Many segments at one place would have the file read over and
        // over.
        let loads = &image.layout.loads;
        let bytes = loads.iter().map(|load| load.p_filesz).sum::<u64>();
        if bytes > end - start + loads.len() as u64 * PAGE {
            return Err(bad("its segments lie upon each other"));
        }
    }
    if let Some(interpreter) = &prepared.interpreter {
        let is_inside = |(start, end)| (start..end).contains(&interpreter.header.entry);
        if !span(&interpreter.layout).is_some_and(is_inside) {
            return Err(bad("its interpreter begins outside of itself"));
        }
    }
    let strings: usize = prepared
        .args
        .iter()
        .chain(&prepared.env)
        .map(|s| s.len() + 9)
        .sum();
    if strings > MAX_STRINGS || strings as u64 > (stack / 4).max(LEAST_STRINGS) {
        return Err(Failure::new(
            E2BIG,
            path,
            "arguments and environment are too long",
        ));
    }
    let is_short =
        |host: &mut dyn Host| host.memory_usage().free < resident.saturating_add(RESERVE);
    if is_short(host) && (!host.give_up_templates() || is_short(host)) {
        return Err(Failure::new(ENOMEM, path, "memory is out"));
    }
    Ok(())
}

fn base_of(image: &Image) -> u64 {
    if image.header.position_independent {
        memory::PIE_BASE
    } else {
        0
    }
}

/// Gives up a prepared program.
pub fn cancel(host: &mut dyn Host, prepared: Prepared) {
    let close = match prepared.staged {
        Some(_) => close_now,
        None => close,
    };
    if !matches!(prepared.executed, Some((_, true))) {
        close(host, prepared.image.ino);
    }
    if let Some(interpreter) = prepared.interpreter {
        close(host, interpreter.ino);
    }
}

impl core::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Prepared {
    /// The inodes that were opened on the way.
    #[must_use]
    pub fn inos(&self) -> &[u64] {
        &self.inos
    }

    /// Marks the program's file as executed, so that no task opens it for writing while it is loaded. The requests of
    /// the current call must not have to wait after this.
    pub fn execute(&mut self, system: &mut System) {
        if self.executed.is_none() {
            self.executed = Some(system.busy.execute(self.image.ino));
        }
    }

    /// The program and its interpreter.
    fn images(&self) -> impl Iterator<Item = &Image> {
        core::iter::once(&self.image).chain(&self.interpreter)
    }

    /// Whether reading the segments takes more than one step, or may have to wait for a disk.
    #[must_use]
    pub fn is_long(&self) -> bool {
        let segments = self.images().flat_map(|image| &image.layout.loads);
        let size: u64 = segments.map(|segment| segment.p_filesz).sum();
        size > STEP || self.images().any(|i| step_of(i.ino) < STEP)
    }

    /// The path of the program.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.image.path
    }
}

/// A prepared program could not be loaded, and the process's old image is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// Whether the address space of a process exceeds its `RLIMIT_AS` with its new program.
#[must_use]
pub fn is_too_large(task: &Task, system: &mut System) -> bool {
    let most = system.process(task.pid).limit(RLIMIT_AS).0;
    most != u64::MAX && task.shares.memory.borrow().areas.counted().0 > most
}

impl From<OutOfMemory> for Lost {
    fn from(_: OutOfMemory) -> Self {
        Lost
    }
}

impl From<Errno> for Lost {
    fn from(_: Errno) -> Self {
        Lost
    }
}

impl From<proto::Error> for Lost {
    fn from(_: proto::Error) -> Self {
        Lost
    }
}

/// Replaces the process's image; returns the initial registers. Memory, descriptors and actions that were shared with
/// other processes stay as they are for these.
pub fn commit(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    mut prepared: Prepared,
) -> Result<Registers, Lost> {
    prepared.execute(system);
    let result = unshare(task, system, host, prepared.staged.is_some()).and_then(|()| {
        let shares = task.shares.clone();
        system.process(task.pid).seen = Seen::of(&shares);
        replace(Current::new(task, &shares), system, host, &prepared)
    });
    cancel(host, prepared);
    result
}

/// Takes from the only task of a process all that `execve` takes. What was shared with other processes stays as it is
/// for these.
pub fn leave(task: &mut Task, system: &mut System, host: &mut dyn Host) -> Result<(), Lost> {
    unshare(task, system, host, false)?;
    let shares = task.shares.clone();
    forget(&mut Current::new(task, &shares), system, host);
    Ok(())
}

/// Drops the state that a program does not inherit through `execve`: close-on-exec descriptors, handlers, alternate
/// stack, timers.
fn forget(current: &mut Current, system: &mut System, host: &mut dyn Host) {
    current.files.close_all(system, host, |fd| fd.cloexec);
    current.actions.reset();
    current.task.signals.stack = Stack::default();
    current.task.wait = None;
    (current.task.robust, current.task.clear_at) = (0, 0);
    let process = system.process(current.task.pid);
    process.executed = true;
    process.said.end();
    process.timers.forget();
    process.pending.forget_timers();
    current.task.signals.pending.forget_timers();
}

/// Gives the task its own descriptors and actions, and its own memory without areas. With `staged` that is the memory
/// made for the program.
fn unshare(
    task: &mut Task,
    system: &mut System,
    host: &mut dyn Host,
    staged: bool,
) -> Result<(), Lost> {
    let has_objects = !task.shares.memory.borrow().objects.is_empty();
    if has_objects {
        // Other processes may wait for locks that the task holds in shared memory.
        crate::calls::futex::leave(task, system, host, &mut { MAX_ROBUST });
    }
    let shares = &mut task.shares;
    if staged || Rc::strong_count(&shares.memory) > 1 {
        host.leave_memory()?;
        shares.memory = Shared::default();
    } else {
        let mut memory = shares.memory.borrow_mut();
        memory.executed = None;
        if !memory.areas.list().is_empty() {
            memory.areas.apply(host, Vec::new())?;
            memory.objects = Uses::default();
            host.discard(0, memory::END);
        }
    }
    system.leave_memory(task.pid);
    if Rc::strong_count(&shares.files) > 1 {
        shares.files = copied(&shares.files);
    }
    // The table of processes holds a second reference.
    if Rc::strong_count(&shares.actions) > 2 {
        shares.actions = copied(&shares.actions);
        system.process(task.pid).actions = Rc::clone(&shares.actions);
    }
    Ok(())
}

fn replace(
    mut current: Current,
    system: &mut System,
    host: &mut dyn Host,
    prepared: &Prepared,
) -> Result<Registers, Lost> {
    forget(&mut current, system, host);
    let ids = system.process(current.task.pid).ids;
    let areas = &mut current.memory.areas;

    let image = &prepared.image;
    let bases = bases(prepared).ok_or(Lost)?;
    let mut mapped = Mapped::default();
    let of_interpreter = match &prepared.interpreter {
        Some(interpreter) => mapped.add(areas, interpreter.ino, &interpreter.path),
        None => OfFile::UNKNOWN,
    };
    let files = [OfFile::PROGRAM, of_interpreter];
    for ((image, base), file) in prepared.images().zip(&bases).zip(files) {
        load(areas, host, (image, file), *base, prepared.staged.is_some())?;
    }
    let (_, end) = span(&image.layout).ok_or(Lost)?;
    let brk = end + base_of(image);
    let staged = prepared.staged.clone().map(|first| (first, Vec::new()));
    let (first, words) = match staged {
        Some(first) => first,
        None => first(host, prepared, &bases, &ids)?,
    };
    let limit = system.process(current.task.pid).limit(RLIMIT_STACK).0;
    let stack = (memory::stack_start(limit, first.rsp), memory::STACK_TOP);
    let with_stack = areas.replaced(stack.0, stack.1, Some((image.layout.stack, Kind::Stack)));
    areas.apply(host, with_stack)?;
    if let Some(clock) = host.clock() {
        let (start, end) = (memory::VDSO, memory::VDSO + vdso::SIZE);
        let kind = Some((READ | EXECUTE, Kind::Vdso));
        areas.apply(host, areas.replaced(start, end, kind))?;
        host.write_memory(start, vdso::image())?;
        let clock = vdso::Clock {
            offset: current.task.clock_offset,
            ..clock
        };
        host.write_memory(start + vdso::CLOCK, &clock.to_bytes(1))?;
    }
    if !words.is_empty() {
        host.write_memory(first.rsp, &words)?;
    }

    let Current { task, memory, .. } = &mut current;
    (memory.brk_start, memory.brk) = (brk, brk);
    memory.exe.clone_from(&image.path);
    memory.mapped = mapped;
    let executed = prepared.executed.as_ref();
    memory.executed = executed.map(|(executed, _)| Rc::clone(executed));
    let last = prepared
        .name
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .as_bytes();
    task.shown.set_comm(last);
    let shown = Rc::clone(&task.shown);
    system.process(task.pid).shown = SmallVec::from_buf([(task.pid, shown)]);
    (memory.args, memory.environment) = (first.args, first.environment);
    memory.name = first.title;
    Ok(Registers {
        rip: first.rip,
        rsp: first.rsp,
        rflags: 0x202,
        ..Registers::default()
    })
}

/// A copy of the areas with the segments of an image added. `file` is the number by which [`OfFile`] names the image.
fn with_segments(areas: &Areas, (image, file): (&Image, u16), base: u64) -> Option<Areas> {
    let mut areas = areas.clone();
    for part in &image.layout.loads {
        let address = part.p_vaddr.wrapping_add(base);
        let start = address & !(PAGE - 1);
        let end = page_up(address.checked_add(part.p_memsz)?)?;
        // Two segments can share a page, which then needs the rights of both.
        let shared = areas.find(start).map_or(0, |a| a.prot);
        let place = part.p_offset.wrapping_sub(address - start);
        let kind = Kind::Mapped(OfFile {
            file,
            shift: place.wrapping_sub(start),
            shared: false,
        });
        // Pages behind the bytes of the file are anonymous.
        let behind = match part.p_filesz {
            0 => start,
            bytes => page_up(address.checked_add(bytes)?)?,
        };
        for (from, to, kind) in [(start, behind, kind), (behind, end, Kind::Anonymous)] {
            if from < to {
                areas = Areas::from_list(areas.replaced(from, to, Some((prot(part), kind))));
            }
        }
        if shared & !prot(part) != 0 {
            let kind = areas.find(start).map_or(kind, |area| area.kind);
            let both = Some((prot(part) | shared, kind));
            areas = Areas::from_list(areas.replaced(start, start + PAGE, both));
        }
    }
    Some(areas)
}

/// The load addresses of program and interpreter; `None` if there is no room.
fn bases(prepared: &Prepared) -> Option<Vec<u64>> {
    let base = base_of(&prepared.image);
    let mut bases = alloc::vec![base];
    if let Some(interpreter) = &prepared.interpreter {
        let image = (&prepared.image, OfFile::PROGRAM);
        let areas = with_segments(&Areas::default(), image, base)?;
        bases.push(base_beside(&areas, interpreter)?);
    }
    Some(bases)
}

/// The load address of the interpreter beside a program with these areas.
fn base_beside(areas: &Areas, interpreter: &Image) -> Option<u64> {
    let (start, end) = span(&interpreter.layout)?;
    // As in Linux the sum wraps: an image can have higher addresses than there is room at.
    Some(areas.find_free(end - start, 0)?.wrapping_sub(start))
}

/// Makes the areas of an image and, unless `is_there`, reads its segments. `file` is the number by which [`OfFile`]
/// names the image.
fn load(
    areas: &mut Areas,
    host: &mut dyn Host,
    (image, file): (&Image, u16),
    base: u64,
    is_there: bool,
) -> Result<(), Lost> {
    let with = with_segments(areas, (image, file), base).ok_or(Lost)?;
    areas.apply(host, with.list().to_vec())?;
    if is_there {
        return Ok(());
    }
    for part in &image.layout.loads {
        let address = part.p_vaddr.wrapping_add(base);
        let mut chunk = alloc::vec![0; CHUNK.min(part.p_filesz as usize)];
        let mut done = 0;
        while done < part.p_filesz {
            let length = (part.p_filesz - done).min(CHUNK as u64) as usize;
            let got = read_at(
                host,
                image.ino,
                part.p_offset + done,
                &mut chunk[..length],
                true,
            )?;
            if got != length || part.p_offset + done + length as u64 > image.size {
                return Err(Lost);
            }
            host.write_memory(address + done, &chunk[..length])?;
            done += length as u64;
        }
    }
    Ok(())
}

/// The command line that process lists show: the arguments, cut to [`MAX_TITLE`] bytes.
pub(crate) fn title<'a>(args: impl Iterator<Item = &'a [u8]>) -> String {
    let mut name = String::new();
    for (n, arg) in args.enumerate() {
        if name.len() >= MAX_TITLE {
            break;
        }
        if n > 0 {
            name.push(' ');
        }
        let arg = String::from_utf8_lossy(&arg[..arg.len().min(MAX_TITLE)]);
        let room = MAX_TITLE.saturating_sub(name.len());
        if arg.len() > room {
            name.extend(
                arg.char_indices()
                    .take_while(|(at, c)| at + c.len_utf8() <= room)
                    .map(|(_, c)| c),
            );
            break;
        }
        name.push_str(&arg);
    }
    name
}

/// The entry state of a program that is loaded at `bases`, and the bytes of its initial stack.
fn first(
    host: &mut dyn Host,
    prepared: &Prepared,
    bases: &[u64],
    ids: &Ids,
) -> Result<(First, Vec<u8>), Errno> {
    let mut random = [0; 16];
    host.random(&mut random)?;
    let image = &prepared.image;
    let base = base_of(image);
    let own_entry = image.header.entry.wrapping_add(base);
    let interpreter = prepared.interpreter.as_ref().zip(bases.get(1));
    let rip = interpreter.map_or(own_entry, |(interpreter, base)| {
        interpreter.header.entry.wrapping_add(*base)
    });
    let headers = image
        .layout
        .headers_address
        .map_or(0, |a| a.wrapping_add(base));
    let vector = [
        (AT_PHDR, headers),
        (AT_PHENT, executable::PROGRAM_HEADER as u64),
        (AT_PHNUM, image.header.count as u64),
        (AT_PAGESZ, PAGE),
        (AT_BASE, interpreter.map_or(0, |(_, base)| *base)),
        (AT_FLAGS, 0),
        (AT_ENTRY, own_entry),
        (AT_UID, u64::from(ids.uid[0])),
        (AT_EUID, u64::from(ids.uid[1])),
        (AT_GID, u64::from(ids.gid[0])),
        (AT_EGID, u64::from(ids.gid[1])),
        (AT_HWCAP, host.hardware_capabilities()),
        (AT_CLKTCK, 100),
        (AT_SECURE, 0),
    ];
    // [`vector`] recognizes the auxiliary vector by its number of entries ([`ENTRIES`]): change both together.
    let vdso = host.clock().map(|_| (AT_SYSINFO_EHDR, memory::VDSO));
    let vector: Vec<_> = vector.into_iter().chain(vdso).collect();
    let (rsp, stack, args, environment) = first_stack(prepared, &random, &vector);
    let first = First {
        rip,
        rsp,
        args,
        environment,
        title: title(prepared.args.iter().map(Vec::as_slice)),
    };
    Ok((first, stack))
}

/// Entries of the auxiliary vector with and without the address of the vDSO.
const ENTRIES: [u64; 2] = [19, 18];
/// Bytes of an entry.
const ENTRY: u64 = 16;
/// Most bytes from the beginning of the auxiliary vector to the first argument string above it.
pub const MOST_OF_VECTOR: usize = (ENTRIES[0] * ENTRY) as usize + 8;

/// Finds the auxiliary vector in the bytes below a program's first argument string ([`MOST_OF_VECTOR`] of them, or
/// fewer), if it is still there as [`first_stack`] has put it.
#[must_use]
pub fn vector(before: &[u8]) -> Option<&[u8]> {
    let word = |bytes: &[u8], at: usize| crate::wire::u64_at(bytes, at);
    // The stack begins at a multiple of 16, so there may be one word of padding.
    let ends = [before.len(), before.len().checked_sub(8)?];
    let candidates = ENTRIES.iter().flat_map(|entries| {
        let length = (entries * ENTRY) as usize;
        ends.map(|end| before.get(end.checked_sub(length)?..end))
    });
    let is_one = |bytes: &&[u8]| {
        let last = bytes.len() - ENTRY as usize;
        word(bytes, 0) == u64::from(AT_PHDR)
            && word(bytes, ENTRY as usize) == u64::from(AT_PHENT)
            && word(bytes, last) == u64::from(AT_NULL)
    };
    candidates.flatten().find(is_one)
}

/// The initial stack from the stack pointer up: argument count, pointers to arguments and environment, auxiliary
/// vector, and the strings. Returns the stack pointer, the bytes, and address and length of the argument strings and of
/// the environment strings.
fn first_stack(
    prepared: &Prepared,
    random: &[u8; 16],
    vector: &[(u32, u64)],
) -> (u64, Vec<u8>, (u64, u64), (u64, u64)) {
    let mut strings: Vec<u8> = Vec::new();
    let length = |list: &[Vec<u8>]| list.iter().map(|s| s.len() as u64 + 1).sum();
    let (of_args, of_env): (u64, u64) = (length(&prepared.args), length(&prepared.env));
    let mut add = |bytes: &[u8]| {
        let offset = strings.len() as u64;
        strings.extend_from_slice(bytes);
        strings.push(0);
        offset
    };
    let args: Vec<u64> = prepared.args.iter().map(|s| add(s)).collect();
    let env: Vec<u64> = prepared.env.iter().map(|s| add(s)).collect();
    let platform = add(b"x86_64");
    let file_name = add(prepared.name.as_bytes());
    let random = add(random);

    let words = 1 + args.len() + 1 + env.len() + 1 + 2 * (vector.len() + 4);
    // Eight zero bytes end the stack.
    let strings_at = (memory::STACK_TOP - 8 - strings.len() as u64) & !15;
    let rsp = (strings_at - 8 * words as u64) & !15;
    let mut out = Writer::new().u64(args.len() as u64);
    for list in [args, env] {
        for offset in list {
            out = out.u64(strings_at + offset);
        }
        out = out.u64(0);
    }
    let own = [
        (AT_PLATFORM, strings_at + platform),
        (AT_RANDOM, strings_at + random),
        (AT_EXECFN, strings_at + file_name),
    ];
    for (key, value) in vector.iter().copied().chain(own).chain([(AT_NULL, 0)]) {
        out = out.u64(u64::from(key)).u64(value);
    }
    let out = out.pad_to((strings_at - rsp) as usize).bytes(&strings);
    let stack = out.pad_to((memory::STACK_TOP - rsp) as usize).done();
    let environment = (strings_at + of_args, of_env);
    (rsp, stack, (strings_at, of_args), environment)
}
