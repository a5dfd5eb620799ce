//! ELF executables, as far as loading them needs.

use alloc::vec::Vec;

use crate::memory::{Prot, EXECUTE, READ, WRITE};
use crate::wire::{u16_at, u32_at, u64_at};

/// Bytes of the file header.
pub const HEADER: usize = 64;
/// Bytes of a program header.
pub const PROGRAM_HEADER: usize = 56;
/// Most program headers.
const MAX_HEADERS: usize = 64;

/// A loadable part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Address, before the load address is added.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// Protection.
    pub prot: Prot,
}

/// The file header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether it can be loaded anywhere.
    pub position_independent: bool,
    /// Entry point, before the load address is added.
    pub entry: u64,
    /// Offset of the program headers in the file.
    pub headers_offset: u64,
    /// Number of program headers.
    pub headers: usize,
}

/// The program headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What to load, in the order of the file.
    pub loads: Vec<Load>,
    /// Where the interpreter's path is in the file.
    pub interpreter: Option<(u64, u64)>,
    /// Address of the program headers in memory, before the load address is added.
    pub headers_address: Option<u64>,
}

/// Why a file is no executable.
pub type Reason = &'static str;

/// Reads the file header.
pub fn header(bytes: &[u8]) -> Result<Header, Reason> {
    if bytes.len() < HEADER {
        return Err("it is too short");
    }
    if bytes[..4] != *b"\x7fELF" {
        return Err("it does not begin like an ELF file");
    }
    if bytes[4] != 2 || bytes[5] != 1 || u16_at(bytes, 18) != 62 {
        return Err("it is not for x86-64");
    }
    let position_independent = match u16_at(bytes, 16) {
        2 => false,
        3 => true,
        _ => return Err("it is not an executable"),
    };
    if u64_at(bytes, 24) >= abi::USER_END / 2 {
        return Err("its entry point is no address");
    }
    let headers = usize::from(u16_at(bytes, 56));
    if headers == 0 || headers > MAX_HEADERS || usize::from(u16_at(bytes, 54)) != PROGRAM_HEADER {
        return Err("it has no sensible program headers");
    }
    Ok(Header {
        position_independent,
        entry: u64_at(bytes, 24),
        headers_offset: u64_at(bytes, 32),
        headers,
    })
}

/// Reads the program headers.
pub fn layout(header: &Header, bytes: &[u8]) -> Result<Layout, Reason> {
    let mut found = Layout {
        loads: Vec::new(),
        interpreter: None,
        headers_address: None,
    };
    if bytes.len() < header.headers * PROGRAM_HEADER {
        return Err("it ends within its program headers");
    }
    for raw in bytes.chunks_exact(PROGRAM_HEADER).take(header.headers) {
        let (offset, address) = (u64_at(raw, 8), u64_at(raw, 16));
        let (file_size, memory_size) = (u64_at(raw, 32), u64_at(raw, 40));
        match u32_at(raw, 0) {
            1 if memory_size != 0 => {
                if file_size > memory_size
                    || address.checked_add(memory_size).is_none()
                    || offset.checked_add(file_size).is_none()
                {
                    return Err("a segment has impossible sizes");
                }
                let flags = u32_at(raw, 4);
                let mut prot = 0;
                for (bit, right) in [(4, READ), (2, WRITE), (1, EXECUTE)] {
                    if flags & bit != 0 {
                        prot |= right;
                    }
                }
                let within =
                    header.headers_offset >= offset && header.headers_offset - offset < file_size;
                if within {
                    found.headers_address = Some(address + (header.headers_offset - offset));
                }
                found.loads.push(Load {
                    address,
                    offset,
                    file_size,
                    memory_size,
                    prot,
                });
            }
            3 => found.interpreter = Some((offset, file_size)),
            _ => {}
        }
    }
    if found.loads.is_empty() {
        return Err("it has nothing to load");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{header, layout, Header, HEADER, PROGRAM_HEADER};
    use alloc::vec;
    use alloc::vec::Vec;

    /// A program header: what it is, offset, address, bytes in the file and in memory.
    fn segment(kind: u32, [offset, address, file, memory]: [u64; 4]) -> Vec<u8> {
        let mut raw = vec![0; PROGRAM_HEADER];
        raw[..4].copy_from_slice(&kind.to_le_bytes());
        for (at, word) in [(8, offset), (16, address), (32, file), (40, memory)] {
            raw[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        raw
    }

    fn with_headers(headers: usize) -> Header {
        Header {
            position_independent: false,
            entry: 0,
            headers_offset: 0,
            headers,
        }
    }

    /// A file says what it likes: no sum of its numbers is relied on before it has been looked at.
    #[test]
    fn impossible_segments_are_refused() {
        let good = segment(1, [0, 0x40_0000, 100, 200]);
        assert!(layout(&with_headers(1), &good).is_ok());
        for (what, numbers) in [
            ("more in the file than in memory", [0, 0x40_0000, 201, 200]),
            ("an address that wraps", [0, u64::MAX - 10, 10, 200]),
            ("an offset that wraps", [u64::MAX - 10, 0x40_0000, 100, 200]),
        ] {
            let taken = layout(&with_headers(1), &segment(1, numbers));
            assert!(taken.is_err(), "an image with {what} is taken");
        }
        let short = layout(&with_headers(2), &good);
        assert!(short.is_err(), "headers behind the end are taken");
        let nothing = layout(&with_headers(1), &segment(2, [0, 0, 1, 1]));
        assert!(nothing.is_err(), "an image with nothing to load is taken");
    }

    #[test]
    fn headers_that_no_program_has_are_refused() {
        let mut good = vec![0; HEADER];
        good[..4].copy_from_slice(b"\x7fELF");
        (good[4], good[5], good[16], good[18]) = (2, 1, 2, 62);
        (good[54], good[56]) = (PROGRAM_HEADER as u8, 1);
        assert!(header(&good).is_ok());
        for (what, at, value) in [
            ("no program headers", 56, 0),
            ("too many program headers", 56, 65),
            ("program headers of another size", 54, 55),
            ("an entry point in the kernel", 31, 0xff),
            ("another processor", 18, 3),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(header(&bad).is_err(), "a file with {what} is taken");
        }
    }
}
