//! How much memory a process gets.
//!
//! A process is promised a little memory, which is available to it whatever others do, and may take most of the memory
//! that is promised to nobody. The memory server keeps a part of the memory for the promises of future processes.
use rt::memory::Limits;
use rt::obj::RefAt;
use services::process::MAX_OBJECTS;

/// Least that a program is promised, in bytes: enough for a small one to run to its end.
const LEAST: u64 = 2 << 20;
/// Least that a Linux program is promised: its executable is copied.
const LINUX_LEAST: u64 = 4 << 20;
/// A program is promised one part in so many of all memory, if that is more.
const PROGRAM_PART: u64 = 256;
/// A server is promised one part in so many of all memory, but at most `SERVER_MOST` bytes.
const SERVER_PART: u64 = 32;
const SERVER_MOST: u64 = 4 << 20;
/// Bytes promised to a server that keeps nothing for its clients.
const DRIVER: u64 = 1 << 20;
/// Most segments of a program: its own two, and some that it makes.
const PROGRAM_SEGMENTS: u32 = 8;
/// Most segments of a server.
const SERVER_SEGMENTS: u32 = 16;

/// Where a process's memory comes from, and the kernel memory for it.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// The memory server's supervisor port.
    pub supervisor: RefAt,
    /// What the process's account may have.
    pub limits: Limits,
    /// The space that pays for the quota of the process's space; `None` is the space of the process's maker.
    pub payer: Option<RefAt>,
}

/// The limits of a program on a machine with `total` bytes of memory.
#[must_use]
pub const fn program(total: u64) -> Limits {
    let part = total / PROGRAM_PART;
    Limits {
        promised: if part > LEAST { part } else { LEAST },
        most: total / 4 * 3,
        segments: PROGRAM_SEGMENTS,
    }
}

/// The limits of a frozen copy of a program's memory, with `total` bytes of memory: it may take as much as a program,
/// but nothing is promised to it.
#[must_use]
pub const fn copy(total: u64) -> Limits {
    Limits {
        promised: 0,
        most: total / 4 * 3,
        segments: 1,
    }
}

/// Most segments of a Linux program and all that it starts: two for each process, one for each memory object, and four
/// templates.
const LINUX_SEGMENTS: u32 = 2 * 128 + 2 + MAX_OBJECTS as u32 + 4;

/// The limits of a Linux program and all that it starts, with `total` bytes of memory.
#[must_use]
pub const fn linux(total: u64) -> Limits {
    let limits = program(total);
    Limits {
        promised: if limits.promised > LINUX_LEAST {
            limits.promised
        } else {
            LINUX_LEAST
        },
        segments: LINUX_SEGMENTS,
        ..limits
    }
}

/// The limits of a server, with `total` bytes of memory.
#[must_use]
pub const fn server(total: u64) -> Limits {
    let part = total / SERVER_PART;
    Limits {
        promised: if part < SERVER_MOST {
            part
        } else {
            SERVER_MOST
        },
        most: total,
        segments: SERVER_SEGMENTS,
    }
}

/// The limits of a server that keeps nothing for its clients, with `total` bytes of memory: the device server and
/// drivers.
#[must_use]
pub const fn driver(total: u64) -> Limits {
    Limits {
        promised: DRIVER,
        ..server(total)
    }
}

#[cfg(test)]
mod tests {
    use super::{linux, program, server};

    #[test]
    fn what_a_program_may_have_leaves_something_to_others() {
        for megabytes in [64, 96, 128, 512, 4096] {
            let total = megabytes << 20;
            let (program, server) = (program(total), server(total));
            assert!(program.promised <= linux(total).promised && program.most < total);
            assert!(linux(total).promised + 5 * server.promised < total / 4);
        }
    }
}
