//! Names that are not files of the file system: what is under `/dev`, `/proc` and `/sys` ([`proc`]).

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use serde::{Deserialize, Serialize};
use services::fs::is_plain;

use crate::emulate::{Caller, Result, Stop};
use crate::errno::EBADF;
use crate::memory::{self, Area};
use crate::path;
use crate::proc::{self, About, Folder, Link, Text};
use crate::process::{Current, Device, Kind, Memory};

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
    match proc::find(&name, number)? {
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
    place: Place,
}

/// A place in `maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Whether one from an image makes sense.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.made.len() <= SHORT && self.which.is_sound()
    }
}

/// Reads the text behind a descriptor from `offset` on, of the process that reads it: how many bytes.
pub fn read(c: &mut Caller, fd: u32, offset: u64, into: &mut [u8]) -> Result<usize> {
    let description = Rc::clone(&c.p.files.fds.get(fd).ok_or(EBADF)?.description);
    let mut description = description.borrow_mut();
    let Kind::Text(reading) = &mut description.kind else {
        return Err(EBADF.into());
    };
    let own = c.p.task.number;
    match reading.which {
        // As in Linux they are where the program has them.
        Text::Of(number, About::Arguments) if number == own => {
            let place = c.p.memory.args;
            strings(c, place, offset, into)
        }
        Text::Of(number, About::Environment) if number == own => {
            let place = c.p.memory.environment;
            strings(c, place, offset, into)
        }
        Text::Of(number, About::Maps) if number == own => {
            maps(&c.p.memory, &mut reading.place, offset, into).ok_or(Stop::Turn)
        }
        Text::Of(number, About::Maps) => {
            let place = &mut reading.place;
            let read = |memory: &Memory| maps(memory, place, offset, into);
            proc::with_memory(c, number, read)?.ok_or(Stop::Turn)
        }
        which => {
            let end = reading.place.offset;
            let mut made = core::mem::take(&mut reading.made);
            if offset == 0 || made.is_empty() && offset < end {
                c.h.room(16 << 10)?;
                made = proc::text(c, which)?;
                reading.place.offset = made.len() as u64;
            }
            let rest = made.get(offset as usize..).unwrap_or_default();
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            if length < rest.len() && made.len() <= SHORT {
                reading.made = made;
            }
            Ok(length)
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

/// Reads lines about areas from `offset` on. Reading on goes on with the next area, as long as each line takes; an
/// offset before that is looked for from the beginning. `None`: it is not found yet, and is looked for in the next turn.
fn maps(memory: &Memory, place: &mut Place, offset: u64, into: &mut [u8]) -> Option<usize> {
    if place.offset > offset {
        *place = Place::default();
    }
    let mut lines = 0;
    let most = into.len().min(MAPS_AT_ONCE);
    let mut line = String::new();
    let mut done = 0;
    while done < most {
        let (area, before) = match place.line {
            Some(begun) => begun,
            None => match memory.areas.list().get(memory.areas.first_from(place.next)) {
                Some(area) => (*area, 0),
                None => break,
            },
        };
        if lines == LINES_AT_ONCE {
            return (done > 0).then_some(done);
        }
        lines += 1;
        line.clear();
        write_line(&mut line, &area, &memory.exe);
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
    Some(done)
}

/// The line of `maps` about an area.
fn write_line(line: &mut String, area: &Area, exe: &str) {
    let bit = |bit, letter| if area.prot & bit != 0 { letter } else { '-' };
    let name = match area.kind {
        memory::Kind::Heap => "[heap]",
        memory::Kind::Stack => "[stack]",
        memory::Kind::Vdso => "[vdso]",
        memory::Kind::Program => exe,
        memory::Kind::Anonymous | memory::Kind::File | memory::Kind::Shared { .. } => "",
        memory::Kind::Loading { .. } => "",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        line,
        "{:08x}-{:08x} {}{}{}{} {:08x} 00:00 0 {name}",
        area.start,
        area.end,
        bit(memory::READ, 'r'),
        bit(memory::WRITE, 'w'),
        bit(memory::EXECUTE, 'x'),
        if area.object().is_some() { 's' } else { 'p' },
        match area.source() {
            memory::Source::Object { offset, .. } => offset,
            memory::Source::Own => 0,
        },
    );
}
