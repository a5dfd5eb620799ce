//! Names that are not files of the file system: devices and a few texts under `/proc`.

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use serde::{Deserialize, Serialize};
use services::fs::is_plain;

use crate::emulate::{Caller, Result};
use crate::errno::EBADF;
use crate::host::Host;
use crate::memory::{self, Area};
use crate::path;
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
    /// An open description of the process itself (`/dev/stdin`, `/proc/self/fd/0`).
    Descriptor(u32),
}

/// The texts under `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Text {
    Memory,
    Mounts,
    Uptime,
    Version,
    Arguments,
    Name,
    Maps,
}

/// What the absolute path means to the task, if it is special.
#[must_use]
pub fn find(current: &Current, absolute: &str) -> Option<Special> {
    // Nearly every path ends here.
    let begins = |with| absolute.starts_with(with);
    if is_plain(absolute) && !begins("/dev/") && !begins("/proc/") {
        if absolute != "/etc/mtab" {
            return None;
        }
        return Some(Special::Text(Text::Mounts));
    }
    let name = path::lexical(absolute);
    if let Some(device) = name.strip_prefix("/dev/") {
        return Some(match device {
            "null" => Special::Device(Device::Null),
            "zero" => Special::Device(Device::Zero),
            "full" => Special::Device(Device::Full),
            "random" | "urandom" => Special::Device(Device::Random),
            "console" | "tty" => Special::Device(Device::Console),
            "stdin" => Special::Descriptor(0),
            "stdout" => Special::Descriptor(1),
            "stderr" => Special::Descriptor(2),
            _ => Special::Descriptor(device.strip_prefix("fd/")?.parse().ok()?),
        });
    }
    let proc = name.strip_prefix("/proc/")?;
    let own = format!("{}/", current.task.number);
    let of_self = proc
        .strip_prefix("self/")
        .or_else(|| proc.strip_prefix("thread-self/"))
        .or_else(|| proc.strip_prefix(own.as_str()));
    Some(Special::Text(match (of_self, proc) {
        (Some("exe"), _) => return Some(Special::Link(current.memory.exe.clone())),
        (Some("cwd"), _) => return Some(Special::Link(current.context.cwd.clone())),
        (Some("root"), _) => return Some(Special::Link(String::from("/"))),
        (Some("cmdline"), _) => Text::Arguments,
        (Some("comm"), _) => Text::Name,
        (Some("maps"), _) => Text::Maps,
        (Some("mounts"), _) | (None, "mounts") => Text::Mounts,
        (None, "meminfo") => Text::Memory,
        (None, "uptime") => Text::Uptime,
        (None, "version") => Text::Version,
        (Some(other), _) => {
            return Some(Special::Descriptor(
                other.strip_prefix("fd/")?.parse().ok()?,
            ))
        }
        _ => return None,
    }))
}

/// Most bytes of a text that a description keeps.
const SHORT: usize = 512;
/// Most bytes of `maps` that are read at once, as in Linux: about sixty lines.
const MAPS_AT_ONCE: usize = 4096;

/// An open text: which, and how far it has been read. What a description keeps of it is small, whatever its length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    which: Text,
    /// A short text, as it was when its beginning was read.
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

    /// Whether one from an image makes sense.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.made.len() <= SHORT
    }
}

/// Reads the text behind a descriptor from `offset` on, of the process that reads it: how many bytes.
pub fn read(c: &mut Caller, fd: u32, offset: u64, into: &mut [u8]) -> Result<usize> {
    let description = Rc::clone(&c.p.files.fds.get(&fd).ok_or(EBADF)?.description);
    let mut description = description.borrow_mut();
    let Kind::Text(reading) = &mut description.kind else {
        return Err(EBADF.into());
    };
    match reading.which {
        Text::Arguments => {
            // As in Linux they are where the program has them.
            let (start, length) = c.p.memory.args;
            let at = start.saturating_add(offset.min(length));
            let most = (length - offset.min(length)).min(into.len() as u64);
            let length = c.p.memory.areas.reach(at, most, memory::READ) as usize;
            c.h.read_memory(at, &mut into[..length])?;
            Ok(length)
        }
        Text::Maps => Ok(maps(&c.p.memory, &mut reading.place, offset, into)),
        which => {
            if offset == 0 {
                c.h.room(4 << 10)?;
                reading.made = short(&c.p, c.h, which);
            }
            let rest = reading.made.get(offset as usize..).unwrap_or_default();
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }
    }
}

/// Reads lines about areas from `offset` on. Reading on goes on with the next area, as long as each line takes; another
/// offset is looked for from the beginning.
fn maps(memory: &Memory, place: &mut Place, offset: u64, into: &mut [u8]) -> usize {
    if place.offset != offset {
        *place = Place::default();
    }
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
        line.clear();
        write_line(&mut line, &area, &memory.exe);
        let rest = line.as_bytes().get(before as usize..).unwrap_or_default();
        // Nothing is left to skip once something is read.
        let skipped = (offset.saturating_sub(place.offset)).min(rest.len() as u64) as usize;
        let taken = (rest.len() - skipped).min(most - done);
        into[done..done + taken].copy_from_slice(&rest[skipped..skipped + taken]);
        done += taken;
        place.offset += (skipped + taken) as u64;
        if skipped + taken < rest.len() {
            place.line = Some((area, before + (skipped + taken) as u32));
        } else {
            (place.line, place.next) = (None, area.end);
        }
    }
    done
}

/// The line of `maps` about an area.
fn write_line(line: &mut String, area: &Area, exe: &str) {
    let bit = |bit, letter| if area.prot & bit != 0 { letter } else { '-' };
    let name = match area.kind {
        memory::Kind::Heap => "[heap]",
        memory::Kind::Stack => "[stack]",
        memory::Kind::Program => exe,
        memory::Kind::Anonymous | memory::Kind::File => "",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        line,
        "{:08x}-{:08x} {}{}{}p 00000000 00:00 0 {name}",
        area.start,
        area.end,
        bit(memory::READ, 'r'),
        bit(memory::WRITE, 'w'),
        bit(memory::EXECUTE, 'x'),
    );
}

/// A short text, as it reads now.
fn short(current: &Current, host: &mut dyn Host, which: Text) -> Vec<u8> {
    match which {
        Text::Memory => {
            let usage = host.memory_usage();
            format!(
                "MemTotal:       {:8} kB\nMemFree:        {:8} kB\nMemAvailable:   {:8} kB\n\
                 Buffers:               0 kB\nCached:                0 kB\n\
                 SwapCached:            0 kB\nSwapTotal:             0 kB\n\
                 SwapFree:              0 kB\nShmem:                 0 kB\n\
                 SReclaimable:          0 kB\n",
                usage.total / 1024,
                usage.free / 1024,
                usage.free / 1024
            )
            .into_bytes()
        }
        Text::Mounts => b"memory / tmpfs rw,relatime 0 0\n".to_vec(),
        Text::Uptime => {
            let centiseconds = current.task.now(host) / 10_000_000;
            let seconds = centiseconds / 100;
            format!("{seconds}.{:02} 0.00\n", centiseconds % 100).into_bytes()
        }
        Text::Version => format!("Linux version {}\n", crate::calls::system::RELEASE).into_bytes(),
        Text::Name => {
            let mut bytes = current.task.comm.clone();
            bytes.push(b'\n');
            bytes
        }
        Text::Arguments | Text::Maps => Vec::new(),
    }
}
