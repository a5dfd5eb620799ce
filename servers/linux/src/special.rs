//! Names that are not files of the file system: devices and a few texts under `/proc`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use crate::host::Host;
use crate::memory;
use crate::path;
use crate::process::{Current, Device};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    if !absolute.contains("/dev/") && !absolute.contains("/proc/") && !absolute.contains("..") {
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

/// The text, as it reads now.
#[must_use]
pub fn text(current: &Current, host: &mut dyn Host, which: Text) -> Vec<u8> {
    let mut out = String::new();
    let written = match which {
        Text::Memory => {
            let usage = host.memory_usage();
            writeln!(
                out,
                "MemTotal:       {:8} kB\nMemFree:        {:8} kB\nMemAvailable:   {:8} kB\n\
                 Buffers:               0 kB\nCached:                0 kB\n\
                 SwapCached:            0 kB\nSwapTotal:             0 kB\n\
                 SwapFree:              0 kB\nShmem:                 0 kB\n\
                 SReclaimable:          0 kB",
                usage.total / 1024,
                usage.free / 1024,
                usage.free / 1024
            )
        }
        Text::Mounts => writeln!(out, "memory / tmpfs rw,relatime 0 0"),
        Text::Uptime => {
            let centiseconds = current.task.now(host) / 10_000_000;
            let seconds = centiseconds / 100;
            writeln!(out, "{seconds}.{:02} 0.00", centiseconds % 100)
        }
        Text::Version => writeln!(out, "Linux version {}", crate::calls::system::RELEASE),
        Text::Arguments => {
            let mut bytes = Vec::new();
            for argument in &current.memory.args {
                bytes.extend_from_slice(argument);
                bytes.push(0);
            }
            return bytes;
        }
        Text::Name => {
            let mut bytes = current.task.comm.clone();
            bytes.push(b'\n');
            return bytes;
        }
        Text::Maps => current.memory.areas.list().iter().try_for_each(|area| {
            let bit = |bit, letter| if area.prot & bit != 0 { letter } else { '-' };
            let name = match area.kind {
                memory::Kind::Heap => "[heap]",
                memory::Kind::Stack => "[stack]",
                memory::Kind::Program => current.memory.exe.as_str(),
                memory::Kind::Anonymous | memory::Kind::File => "",
            };
            writeln!(
                out,
                "{:08x}-{:08x} {}{}{}p 00000000 00:00 0 {name}",
                area.start,
                area.end,
                bit(memory::READ, 'r'),
                bit(memory::WRITE, 'w'),
                bit(memory::EXECUTE, 'x'),
            )
        }),
    };
    // Writing to a string cannot fail.
    let _ = written;
    out.into_bytes()
}
