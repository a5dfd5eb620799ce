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

/// What a special name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Special {
    /// A device.
    Device(Device),
    /// A text.
    Text(Text),
    /// A symbolic link to this path.
    Link(String),
    /// A symbolic link of another process.
    LinkOf(u32, Link),
    /// A directory.
    Folder(Folder),
    /// A symbolic link to the directory of the process itself (`/proc/self`).
    Own,
    /// A symbolic link to the descriptors of the process itself (`/dev/fd`).
    OwnDescriptors,
    /// An open description of another process: its number, and the descriptor.
    DescriptorOf(u32, u32),
    /// The terminal of the process (`/dev/tty`).
    Terminal,
    /// What makes pseudo-terminals (`/dev/ptmx`).
    Multiplexor,
    /// The slave of a pseudo-terminal (`/dev/pts/0`), if there is one of that number.
    Slave(u32),
    /// An open description of the process itself (`/dev/stdin`, `/proc/self/fd/0`).
    Descriptor(u32),
}

/// What the absolute path means to the task, if it is special. Whether it is there is not looked at.
#[must_use]
pub fn find(current: &Current, absolute: &str) -> Option<Special> {
    // Nearly every path ends here.
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

/// Most bytes of a text that a description keeps. A longer one is made again for each read.
const SHORT: usize = 512;
/// Most bytes of `maps` that are read at once, as in Linux: about sixty lines.
const MAPS_AT_ONCE: usize = 4096;

/// Most lines of `maps` that are made at once, also of those that are only skipped.
const LINES_AT_ONCE: usize = 500;

/// An open text: which, and how far it has been read. What a description keeps of it is small, whatever its length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    which: Text,
    /// A short text, as it was when its beginning was read, until all of it has been.
    made: Vec<u8>,
    /// An image does not have it: it is found again from the offset.
    #[serde(skip)]
    place: Place,
}

/// A place in `maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// How many bytes are before it.
    offset: u64,
    /// The area whose line was begun, as it was then, and how many bytes of the line are before the place.
    line: Option<(Area, u32)>,
    /// The next line is of the first area from this address on.
    next: u64,
}

impl Reading {
    /// A text of which nothing has been read.
    #[must_use]
    pub fn new(which: Text) -> Self {
        Reading {
            which,
            made: Vec::new(),
            place: Place::default(),
        }
    }

    /// The same text, of which nothing has been read.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.which)
    }

    /// Which it is.
    #[must_use]
    pub const fn which(&self) -> Text {
        self.which
    }

    /// Whether one from an image makes sense.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.made.len() <= SHORT && self.which.is_sound()
    }
}

/// Reads the text behind a descriptor from `offset` on, of the process that reads it: how many bytes.
pub fn read(c: &mut Caller, fd: u32, offset: u64, into: &mut [u8]) -> Result<usize> {
    let description = Rc::clone(&c.p.files.fds.get(fd).ok_or(EBADF)?.description);
    // Nothing of it stays borrowed: a text can be about the very descriptor by which it is read.
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
        // As in Linux they are where the program has them.
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
            // Who has to wait for a file system begins again where it was.
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
            // One of which nothing was read yet has no end.
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

/// Reads strings that the program has at this place, of so many bytes.
fn strings(c: &mut Caller, place: (u64, u64), offset: u64, into: &mut [u8]) -> Result<usize> {
    let (start, length) = place;
    let at = start.saturating_add(offset.min(length));
    let most = (length - offset.min(length)).min(into.len() as u64);
    let length = c.p.memory.areas.reach(at, most, memory::READ) as usize;
    c.h.read_memory(at, &mut into[..length])?;
    Ok(length)
}

/// What is said of where an area comes from.
#[derive(Clone, Debug, Default)]
struct Shown {
    /// The device that the file is on, and its number there.
    place: (u64, u64),
    /// Its name, as a line has it.
    name: String,
}

impl Shown {
    /// Nothing but a name.
    fn named(name: &str) -> Self {
        Shown {
            place: (0, 0),
            name: String::from(name),
        }
    }

    /// A file with this inode.
    fn file(ino: u64, name: &str) -> Self {
        Shown {
            place: stat::place(ino),
            // A name is of one line, whatever is in it.
            name: name.replace('\n', "\\012"),
        }
    }
}

/// Where an area comes from, as far as its memory knows.
#[derive(Debug)]
enum Whence {
    /// Nothing more is to be found out.
    Known(Shown),
    /// From this file, which an [`OfFile`] calls so.
    File(u16, MappedFile),
    /// From this memory object.
    Object(u64),
}

/// The first area of a memory from an address on, or the one that was begun, and where it comes from.
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
        // The part of it where the program began, as in Linux.
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

/// Looks for a file that was mapped, by its name then.
fn find_file(c: &mut Caller, file: &MappedFile) -> Result<Shown> {
    let lost = |name: &str| Shown::file(file.ino.unwrap_or(0), name);
    // The disk is not asked: who reads would wait for it.
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

/// What a memory object is called: a file, shared memory of System V, or nobody's.
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

/// Most files and objects of which it is kept what they are called, for the lines that are made at once.
const KEPT: usize = 64;
/// For so many lines it counts to find out what one is called.
const LINES_OF_NAME: usize = 8;

/// Reads lines about areas of a process from `offset` on. Reading on goes on with the next area, as long as each line
/// takes; an offset before that is looked for from the beginning. [`Stop::Turn`]: it is not found yet, and is looked
/// for in the next turn.
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
    // Files by what an `OfFile` calls them, objects by their identities: whether it is one, and which.
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
            // It has ended meanwhile.
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
                    // What waits is made again from where it was, with all that it has read.
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

/// At which byte of a line the name begins.
const NAME: usize = 73;

/// The line of `maps` about an area that comes from there.
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
