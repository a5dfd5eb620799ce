//! How much memory a process gets.
//!
//! A process is promised a little, which is there for it whatever others do, and may take most of what is promised
//! to nobody. The memory server keeps a part of the memory for the promises of processes to come.
use rt::memory::Limits;
use rt::obj::RefAt;
use services::process::MAX_OBJECTS;

/// Least that a program is promised, in bytes: enough for a small one to run to its end.
const LEAST: u64 = 2 << 20;
/// Least that a Linux program is promised: its executable is copied.
const LINUX_LEAST: u64 = 4 << 20;
/// What a program is promised of all memory, if that is more.
const PROGRAM_PART: u64 = 256;
/// What a server is promised of all memory, and at most how many bytes.
const SERVER_PART: u64 = 32;
const SERVER_MOST: u64 = 4 << 20;
/// What a server that keeps nothing for its clients is promised.
const DRIVER: u64 = 1 << 20;
/// Most segments of a program: its own two, and some that it makes.
const PROGRAM_SEGMENTS: u32 = 8;
/// Most segments of a server.
const SERVER_SEGMENTS: u32 = 16;

/// Where a process's memory comes from, and the kernel's for it.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// The memory server's supervisor port.
    pub supervisor: RefAt,
    /// What the process's account may have.
    pub limits: Limits,
    /// The space that pays for the quota of the process's space; none: that of whoever makes the process.
    pub payer: Option<RefAt>,
}

/// What a program may have of `total` bytes of memory.
#[must_use]
pub const fn program(total: u64) -> Limits {
    let part = total / PROGRAM_PART;
    Limits {
        promised: if part > LEAST { part } else { LEAST },
        most: total / 4 * 3,
        segments: PROGRAM_SEGMENTS,
    }
}

/// What a frozen copy of a program's memory may have of `total` bytes: as if whoever saves it had started one
/// program more.
#[must_use]
pub const fn copy(total: u64) -> Limits {
    Limits {
        promised: 0,
        most: total / 4 * 3,
        segments: 1,
    }
}

/// Most segments of a Linux program and all that it starts: two for each process, one for each memory object, and four templates.
const LINUX_SEGMENTS: u32 = 2 * 128 + 2 + MAX_OBJECTS as u32 + 4;

/// What a Linux program, and all that it starts, may have of `total` bytes of memory.
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

/// What a server may have of `total` bytes of memory.
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

/// What a server that keeps nothing for its clients may have of `total` bytes of memory: the device server and drivers.
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
