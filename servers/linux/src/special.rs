//! Names that are not files of the file system: what is under `/dev`, `/proc` and `/sys` ([`proc`]).

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use serde::{Deserialize, Serialize};
use services::fs::{is_plain, ON_DISK};

use crate::calls::{name, stat};
use crate::emulate::{Caller, Result, Stop};
use crate::errno::EBADF;
use crate::files::Request;
use crate::memory::{self, Area, OfFile};
use crate::path;
use crate::proc::{self, About, Folder, Link, Text};
use crate::process::{Current, Device, Kind, Mapped, MappedFile, Memory};

/// What a special name refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Special {
    /// A device.
    Device(Device),
    /// A text.
    Text(Text),
    /// A symbolic link to this path.
    Link(String),
    /// A symbolic link of the process with this number.
    LinkOf(u32, Link),
    /// A directory.
    Folder(Folder),
    /// A symbolic link to the directory of the process itself (`/proc/self`).
    Own,
    /// A symbolic link to the descriptors of the process itself (`/dev/fd`).
    OwnDescriptors,
    /// A descriptor of another process: the process's number, and the descriptor.
    DescriptorOf(u32, u32),
    /// The controlling terminal of the process (`/dev/tty`).
    Terminal,
    /// The device that makes pseudo-terminals (`/dev/ptmx`).
    Multiplexor,
    /// The slave of the pseudo-terminal with this number (`/dev/pts/0`), if there is one.
    Slave(u32),
    /// A descriptor of the process itself (`/dev/stdin`, `/proc/self/fd/0`).
    Descriptor(u32),
}

/// What an absolute path refers to for the task, if it is special. Does not check that it exists.
#[must_use]
pub fn find(current: &Current, absolute: &str) -> Option<Special> {
    // Nearly all paths are not special, and need no more than this.
    let begins = |with| absolute.starts_with(with);
    if is_plain(absolute) && !["/dev", "/proc", "/sys"].into_iter().any(begins) {
        if absolute != "/etc/mtab" {
            return None;
        }
        let number = current.task.number;
        return Some(Special::Text(Text::Of(number, About::Mounts)));
    }
    let name = path::lexical(absolute);
    let is_below = |root| {
        name.strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if !["/dev", "/proc", "/sys"].into_iter().any(is_below) {
        return None;
    }
    let number = current.task.number;
    match proc::find(&name, number, current.task.thread)? {
        Special::LinkOf(of, link) if of == number => Some(Special::Link(match link {
            Link::Directory => current.context.cwd.clone(),
            Link::Program => current.memory.exe.clone(),
            Link::Root => String::from("/"),
        })),
        special => Some(special),
    }
}

/// Longest text, in bytes, that a description keeps. A longer one is made again for each read.
const SHORT: usize = 512;
/// Most bytes of `maps` in one read, as on Linux: about sixty lines.
const MAPS_AT_ONCE: usize = 4096;

/// Most lines of `maps` that are made in one read, skipped ones included.
const LINES_AT_ONCE: usize = 500;

/// An open text: which one, and how far it has been read. Small however long the text is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    which: Text,
    /// A short text as it was when its beginning was read, kept until its end has been read.
    made: Vec<u8>,
    /// An image does not have the position: it is found again from the offset.
    #[serde(skip)]
    place: Place,
}

/// A position in `maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// Bytes before the position; of any other text, its length when it was last made.
    offset: u64,
    /// The area whose line has been read in part, as it was then, and how many bytes of the line have been read.
    line: Option<(Area, u32)>,
    /// The next line is of the first area from this address on.
    next: u64,
}

impl Reading {
    /// A text that has not been read yet.
    #[must_use]
    pub fn new(which: Text) -> Self {
        Reading {
            which,
            made: Vec::new(),
            place: Place::default(),
        }
    }

    /// The same text, not read yet.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.which)
    }

    /// The text.
    #[must_use]
    pub const fn which(&self) -> Text {
        self.which
    }

    /// Whether one from an image is possible.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.made.len() <= SHORT && self.which.is_sound()
    }
}

/// Reads the text behind a descriptor of the calling process from `offset` on, and returns how many bytes were read.
pub fn read(c: &mut Caller, fd: u32, offset: u64, into: &mut [u8]) -> Result<usize> {
    let description = Rc::clone(&c.p.files.fds.get(fd).ok_or(EBADF)?.description);
    // The description is borrowed only in between: a text can be about the very descriptor by which it is read.
    let with = |act: &mut dyn FnMut(&mut Reading)| {
        if let Kind::Text(reading) = &mut description.borrow_mut().kind {
            act(reading);
        }
    };
    let (mut which, mut place) = (None, Place::default());
    with(&mut |reading| (which, place) = (Some(reading.which), reading.place.clone()));
    let which = which.ok_or(EBADF)?.in_common();
    if let Some(number) = which.memory() {
        return crate::calls::peer::read_memory(c, number, offset, into);
    }
    let own = c.p.task.number;
    match which {
        // As on Linux they are read from the program's memory.
        Text::Of(number, About::Arguments) if number == own => {
            let place = c.p.memory.args;
            strings(c, place, offset, into)
        }
        Text::Of(number, About::Environment) if number == own => {
            let place = c.p.memory.environment;
            strings(c, place, offset, into)
        }
        Text::Of(number, About::Maps) => {
            let result = maps(c, number, &mut place, offset, into);
            // A read that has to wait for a file system begins again at its old position.
            if let Ok(_) | Err(Stop::Turn) = result {
                with(&mut |reading| reading.place = place.clone());
            }
            result
        }
        which => {
            let end = place.offset;
            let mut made = Vec::new();
            with(&mut |reading| made = core::mem::take(&mut reading.made));
            let mut length = None;
            // Before the first read the end of the text is unknown, and 0.
            if offset == 0 || made.is_empty() && (offset < end || end == 0) {
                c.h.room(16 << 10)?;
                made = proc::text(c, which)?;
                length = Some(made.len() as u64);
            }
            let rest = made.get(offset as usize..).unwrap_or_default();
            let taken = rest.len().min(into.len());
            into[..taken].copy_from_slice(&rest[..taken]);
            let keeps = taken < rest.len() && made.len() <= SHORT;
            with(&mut |reading| {
                reading.place.offset = length.unwrap_or(reading.place.offset);
                if keeps {
                    reading.made = core::mem::take(&mut made);
                }
            });
            Ok(taken)
        }
    }
}

/// Reads strings in the program's memory; `place` is their address and length in bytes.
fn strings(c: &mut Caller, place: (u64, u64), offset: u64, into: &mut [u8]) -> Result<usize> {
    let (start, length) = place;
    let at = start.saturating_add(offset.min(length));
    let most = (length - offset.min(length)).min(into.len() as u64);
    let length = c.p.memory.areas.reach(at, most, memory::READ) as usize;
    c.h.read_memory(at, &mut into[..length])?;
    Ok(length)
}

/// The origin of an area as a line shows it.
#[derive(Clone, Debug, Default)]
struct Shown {
    /// The device of the file, and the file's inode.
    place: (u64, u64),
    /// The name as the line shows it.
    name: String,
}

impl Shown {
    /// An origin that is only a name.
    fn named(name: &str) -> Self {
        Shown {
            place: (0, 0),
            name: String::from(name),
        }
    }

    /// The file with this inode.
    fn file(ino: u64, name: &str) -> Self {
        Shown {
            place: stat::place(ino),
            // A line feed in the name must not end the line.
            name: name.replace('\n', "\\012"),
        }
    }
}

/// The origin of an area, as far as its memory knows it.
#[derive(Debug)]
enum Whence {
    /// Nothing has to be looked up.
    Known(Shown),
    /// This file, and its number in an [`OfFile`].
    File(u16, MappedFile),
    /// This memory object, by identity.
    Object(u64),
}

/// The area whose line has been begun, or else the next one; how many bytes of its line have been read; and its origin.
fn next_area(c: &Caller, memory: &Memory, place: &Place) -> Option<(Area, u32, Whence)> {
    let (area, before) = match place.line {
        Some(begun) => begun,
        None => {
            let next = memory.areas.first_from(place.next);
            (*memory.areas.list().get(next)?, 0)
        }
    };
    let of_program = || {
        let ino = memory.executed.as_ref().map(|executed| executed.ino());
        let lost = match proc::is_lost(c, memory) {
            true => Mapped::LOST,
            false => "",
        };
        let name = [&memory.exe, lost].concat();
        match ino {
            Some(ino) => Shown::file(ino, &name),
            None => Shown::named(&name),
        }
    };
    let is_used = area.start <= memory.brk && area.end >= memory.brk_start;
    let named = |name| Whence::Known(Shown::named(name));
    let whence = match area.kind {
        memory::Kind::Heap if is_used => named("[heap]"),
        // As on Linux only the area with the initial stack has the name.
        memory::Kind::Stack if (area.start..area.end).contains(&memory.args.0) => named("[stack]"),
        memory::Kind::Vdso => named("[vdso]"),
        memory::Kind::Program => Whence::Known(of_program()),
        memory::Kind::Mapped(from) if from.file == OfFile::PROGRAM => Whence::Known(of_program()),
        memory::Kind::Mapped(from) => match memory.mapped.get(from.file) {
            Some(file) => Whence::File(from.file, file.clone()),
            None => named(""),
        },
        memory::Kind::Shared { id, .. } => Whence::Object(id),
        memory::Kind::Heap
        | memory::Kind::Stack
        | memory::Kind::Anonymous
        | memory::Kind::File
        | memory::Kind::Loading { .. } => named(""),
    };
    Some((area, before, whence))
}

/// Looks up a mapped file by the name that it had when it was mapped.
fn find_file(c: &mut Caller, file: &MappedFile) -> Result<Shown> {
    let lost = |name: &str| Shown::file(file.ino.unwrap_or(0), name);
    // The file server of the disk is not asked, since the reader would have to wait for it.
    let is_on_disk = match file.ino {
        Some(ino) => ino & ON_DISK != 0,
        None => services::fs::is_on_disk(&file.name),
    };
    if !file.had_path() || is_on_disk {
        return Ok(lost(&file.name));
    }
    let request = Request::Stat {
        path: String::from(&*file.name),
        follow: false,
    };
    match c.attr(&request) {
        Ok(attr) if file.ino.is_none_or(|ino| ino == attr.ino) => {
            Ok(Shown::file(attr.ino, &file.name))
        }
        Err(stop) if c.h.waits() => Err(stop),
        _ => Ok(lost(&[&*file.name, Mapped::LOST].concat())),
    }
}

/// The origin of a memory object: a file, System V shared memory, or neither.
fn find_object(c: &mut Caller, id: u64) -> Result<Shown> {
    if let Some(ino) = c.s.objects.ino(id) {
        return match name::of_open(c, ino) {
            Ok(name) => Ok(Shown::file(ino, &name)),
            Err(stop) if c.h.waits() => Err(stop),
            Err(_) => Ok(Shown::file(ino, "")),
        };
    }
    let (on, number, name) = match crate::calls::ipc::memory_of(c, id) {
        Some((number, key)) => (1, u64::from(number), format!("/SYSV{key:08x}")),
        None => (1, id, String::from("/dev/zero")),
    };
    Ok(Shown {
        place: (on, number),
        name: name + Mapped::LOST,
    })
}

/// Most files and objects whose names are remembered during one read.
const KEPT: usize = 64;
/// Looking up a name counts as this many lines.
const LINES_OF_NAME: usize = 8;

/// Reads the lines about the areas of a process from `offset` on. A read where the last one ended continues with the
/// next area; for an earlier offset the lines are made again from the beginning. [`Stop::Turn`]: `offset` has not been
/// reached yet, and the search goes on in the next turn.
fn maps(
    c: &mut Caller,
    number: u32,
    place: &mut Place,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    if place.offset > offset {
        *place = Place::default();
    }
    let mut lines = 0;
    let most = into.len().min(MAPS_AT_ONCE);
    let mut line = String::new();
    let mut done = 0;
    // Names by whether they are of an object, and by the file's number in an [`OfFile`] or the object's identity.
    let mut kept: Vec<((bool, u64), Shown)> = Vec::new();
    while done < most {
        if lines >= LINES_AT_ONCE {
            return (done > 0).then_some(done).ok_or(Stop::Turn);
        }
        lines += 1;
        let next = proc::with_memory(c, number, |memory| next_area(c, memory, place));
        let (area, before, whence) = match next {
            Ok(Some(next)) => next,
            Ok(None) => break,
            // The process has ended meanwhile.
            Err(_) if done > 0 => break,
            Err(stop) => return Err(stop),
        };
        let key = match &whence {
            Whence::Known(_) => None,
            Whence::File(file, _) => Some((false, u64::from(*file))),
            Whence::Object(id) => Some((true, *id)),
        };
        let known = kept.iter().find(|(of, _)| Some(*of) == key);
        let shown = match (whence, known) {
            (Whence::Known(shown), _) => shown,
            (_, Some((_, shown))) => shown.clone(),
            (whence, None) => {
                lines += LINES_OF_NAME;
                let found = match whence {
                    Whence::File(_, file) => find_file(c, &file),
                    Whence::Object(id) => find_object(c, id),
                    Whence::Known(shown) => Ok(shown),
                };
                let shown = match found {
                    Ok(shown) => shown,
                    // If the host waits, the whole read is made again from its old position, so what was read must not
                    // be returned.
                    Err(_) if done > 0 && !c.h.waits() => break,
                    Err(stop) => return Err(stop),
                };
                if let Some(key) = key.filter(|_| kept.len() < KEPT) {
                    kept.push((key, shown.clone()));
                }
                shown
            }
        };
        line.clear();
        write_line(&mut line, &area, &shown);
        let rest = line.as_bytes().get(before as usize..).unwrap_or_default();
        // Nothing is left to skip once something is read.
        let skipped = (offset.saturating_sub(place.offset)).min(rest.len() as u64) as usize;
        let taken = (rest.len() - skipped).min(most - done);
        into[done..done + taken].copy_from_slice(&rest[skipped..skipped + taken]);
        done += taken;
        place.offset = place.offset.saturating_add((skipped + taken) as u64);
        if skipped + taken < rest.len() {
            place.line = Some((area, before + (skipped + taken) as u32));
        } else {
            (place.line, place.next) = (None, area.end);
        }
    }
    Ok(done)
}

/// The column of a line at which the name begins.
const NAME: usize = 73;

/// Writes the line of `maps` about an area with this origin.
fn write_line(line: &mut String, area: &Area, shown: &Shown) {
    let bit = |bit, letter| if area.prot & bit != 0 { letter } else { '-' };
    let is_shared = match area.kind {
        memory::Kind::Mapped(from) => from.shared,
        _ => area.object().is_some(),
    };
    let (on, number) = shown.place;
    // Writing to a string cannot fail.
    let _ = write!(
        line,
        "{:08x}-{:08x} {}{}{}{} {:08x} {:02x}:{:02x} {number} ",
        area.start,
        area.end,
        bit(memory::READ, 'r'),
        bit(memory::WRITE, 'w'),
        bit(memory::EXECUTE, 'x'),
        if is_shared { 's' } else { 'p' },
        area.offset(),
        on >> 8,
        on & 0xff,
    );
    if !shown.name.is_empty() {
        let gap = NAME.saturating_sub(line.len());
        let _ = write!(line, "{:gap$}{}", "", shown.name);
    }
    line.push('\n');
}
