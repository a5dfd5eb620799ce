//! Reads the headers of an ELF executable for x86-64: the one place that parses programs of users. The file is hostile:
//! any defect is reported as a [`Reason`].
//!
//! The first bytes of the file are enough for [`header`]; the table of program headers is read from the place that it
//! names and given to [`program_headers`]. So a server need not have the whole file in memory.
use alloc::vec::Vec;
use elf::abi::{EI_NIDENT, EM_X86_64, ET_DYN, ET_EXEC, PT_LOAD};
use elf::endian::LittleEndian;
use elf::file::{parse_ident, Class, FileHeader};
use elf::note::{Note, NoteIterator};
use elf::segment::SegmentTable;
use services::process::NATIVE_NOTE;

pub use elf::abi::{PF_R, PF_W, PF_X, PT_GNU_STACK, PT_INTERP, PT_NOTE, PT_TLS};
pub use elf::segment::ProgramHeader;

/// Bytes of the file header.
pub const HEADER: usize = 64;
/// Bytes of a program header.
pub const PROGRAM_HEADER: usize = 56;
/// Most program headers that an executable may have.
pub const MAX_PROGRAM_HEADERS: usize = 64;

/// Why a file is refused: a sentence fragment for people.
pub type Reason = &'static str;

/// The file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether the program can be loaded anywhere.
    pub position_independent: bool,
    /// Where it starts, before the load address is added.
    pub entry: u64,
    /// Offset of the program headers in the file.
    pub table_offset: u64,
    /// Number of program headers: at least 1, at most [`MAX_PROGRAM_HEADERS`].
    pub count: usize,
}

impl Header {
    /// Bytes of the table of program headers.
    #[must_use]
    pub const fn table_size(&self) -> usize {
        self.count * PROGRAM_HEADER
    }
}

/// Reads the file header from the first bytes of a file, of which there should be at least [`HEADER`].
pub fn header(first: &[u8]) -> Result<Header, Reason> {
    if first.get(..4) != Some(b"\x7fELF") {
        return Err("it does not begin like an ELF file");
    }
    let first = first.get(..HEADER).ok_or("its header is cut off")?;
    let header = parse_ident::<LittleEndian>(first)
        .and_then(|ident| FileHeader::parse_tail(ident, &first[EI_NIDENT..]))
        .map_err(|_| "its header makes no sense")?;
    if header.class != Class::ELF64 || header.e_machine != EM_X86_64 {
        return Err("it is not for x86-64");
    }
    let position_independent = match header.e_type {
        ET_EXEC => false,
        ET_DYN => true,
        _ => return Err("it is not an executable"),
    };
    let count = usize::from(header.e_phnum);
    if count == 0
        || count > MAX_PROGRAM_HEADERS
        || usize::from(header.e_phentsize) != PROGRAM_HEADER
    {
        return Err("it has no sensible program headers");
    }
    Ok(Header {
        position_independent,
        entry: header.e_entry,
        table_offset: header.e_phoff,
        count,
    })
}

/// Reads the program headers from the bytes of the file that begin at [`Header::table_offset`], of which there must be
/// [`Header::table_size`]. For a segment to be loaded this checks that it has no more bytes in the file than in memory,
/// and neither `p_offset + p_filesz` nor `p_vaddr + p_memsz` overflows.
pub fn program_headers(header: &Header, table: &[u8]) -> Result<Vec<ProgramHeader>, Reason> {
    let table = table
        .get(..header.table_size())
        .ok_or("it ends within its program headers")?;
    let possible = |segment: &ProgramHeader| {
        segment.p_filesz <= segment.p_memsz
            && segment.p_vaddr.checked_add(segment.p_memsz).is_some()
            && segment.p_offset.checked_add(segment.p_filesz).is_some()
    };
    let found: Vec<ProgramHeader> = SegmentTable::new(LittleEndian, Class::ELF64, table)
        .iter()
        .collect();
    let mut to_load = found.iter().filter(|segment| is_load(segment));
    if !to_load.all(possible) {
        return Err("a segment has impossible sizes");
    }
    Ok(found)
}

/// Whether this is a segment that takes memory.
#[must_use]
pub const fn is_load(segment: &ProgramHeader) -> bool {
    segment.p_type == PT_LOAD && segment.p_memsz != 0
}

/// The program headers of a file, or of the part of it that is available.
pub fn program_headers_of(file: &[u8]) -> Result<(Header, Vec<ProgramHeader>), Reason> {
    let header = header(file)?;
    let table = usize::try_from(header.table_offset).ok();
    let table = table.and_then(|start| file.get(start..));
    Ok((header, program_headers(&header, table.unwrap_or_default())?))
}

/// A note that distinguishes a program for Fermata from one for Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeNote<'a> {
    /// Which of Fermata's notes it is.
    pub kind: u64,
    /// Its content.
    pub content: &'a [u8],
    /// Offset of the content in the segment.
    pub offset: u64,
}

/// Whether a file that begins with `head` is a program for Fermata: such programs have a note named [`NATIVE_NOTE`].
#[must_use]
pub fn is_native(head: &[u8]) -> bool {
    let has_note = |segment: &ProgramHeader| native_notes(head, segment).next().is_some();
    program_headers_of(head).is_ok_and(|(_, segments)| segments.iter().any(has_note))
}

/// The notes of a segment whose name is [`NATIVE_NOTE`]. None if `file` does not have all of the
/// segment.
pub fn native_notes<'a>(
    file: &'a [u8],
    segment: &ProgramHeader,
) -> impl Iterator<Item = NativeNote<'a>> {
    let bytes = (|| {
        let start = usize::try_from(segment.p_offset).ok()?;
        let end = start.checked_add(usize::try_from(segment.p_filesz).ok()?)?;
        file.get(start..end).filter(|_| segment.p_type == PT_NOTE)
    })()
    .unwrap_or_default();
    let alignment = usize::try_from(segment.p_align).unwrap_or_default();
    let notes = NoteIterator::new(LittleEndian, Class::ELF64, alignment, bytes);
    notes.filter_map(|note| match note {
        Note::Unknown(note) if note.name_str().is_ok_and(|name| name == NATIVE_NOTE) => {
            Some(NativeNote {
                kind: note.n_type,
                content: note.desc,
                offset: (note.desc.as_ptr() as usize - bytes.as_ptr() as usize) as u64,
            })
        }
        _ => None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// A program header: what it is, its rights, then offset, address, bytes in the file and in memory.
    pub(crate) type Segment = (u32, u32, [u64; 4]);

    /// An executable with these headers.
    pub(crate) fn make(kind: u16, entry: u64, segments: &[Segment]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&EM_X86_64.to_le_bytes());
        file.extend_from_slice(&1u32.to_le_bytes());
        for word in [entry, HEADER as u64, 0] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&0u32.to_le_bytes());
        for half in [64, PROGRAM_HEADER as u16, segments.len() as u16, 64, 0, 0] {
            file.extend_from_slice(&half.to_le_bytes());
        }
        for (kind, rights, [offset, address, in_file, in_memory]) in segments {
            file.extend_from_slice(&kind.to_le_bytes());
            file.extend_from_slice(&rights.to_le_bytes());
            for word in [offset, address, address, in_file, in_memory, &4] {
                file.extend_from_slice(&word.to_le_bytes());
            }
        }
        file
    }

    /// Sums of a file's numbers are checked for overflow before they are used.
    #[test]
    fn impossible_segments_are_refused() {
        let read = |numbers| program_headers_of(&make(ET_EXEC, 0, &[(PT_LOAD, PF_R, numbers)]));
        assert!(read([0, 0x40_0000, 100, 200]).is_ok());
        for (what, numbers) in [
            ("more in the file than in memory", [0, 0x40_0000, 201, 200]),
            ("an address that wraps", [0, u64::MAX - 10, 10, 200]),
            ("an offset that wraps", [u64::MAX - 10, 0x40_0000, 100, 200]),
        ] {
            assert!(read(numbers).is_err(), "a file with {what} is taken");
        }
    }

    #[test]
    fn headers_that_no_program_has_are_refused() {
        let good = make(ET_EXEC, 0, &[(PT_LOAD, PF_R, [0, 0x40_0000, 1, 1])]);
        assert!(program_headers_of(&good).is_ok());
        for (what, at, value) in [
            ("no program headers", 56, 0),
            ("too many program headers", 56, 65),
            ("program headers behind its end", 56, 2),
            ("program headers at another place", 33, 1),
            ("program headers of another size", 54, 55),
            ("another processor", 18, 3),
            ("32 bits", 4, 1),
            ("another order of bytes", 5, 2),
            ("another type", 16, 1),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(
                program_headers_of(&bad).is_err(),
                "a file with {what} is taken"
            );
        }
        for length in 0..good.len() {
            assert!(program_headers_of(&good[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn native_notes_are_found_among_others() {
        let gnu = b"\x04\0\0\0\x03\0\0\0\x05\0\0\0GNU\0abc\0";
        let ours = b"\x08\0\0\0\x04\0\0\0\x07\0\0\0Fermata\0\x01\0\0\0";
        let notes = [&gnu[..], ours].concat();
        let length = notes.len() as u64;
        let mut file = make(ET_EXEC, 0, &[(PT_NOTE, PF_R, [120, 0, length, length])]);
        file.extend_from_slice(&notes);
        let find = |file: &[u8]| -> Vec<(u64, u64, Vec<u8>)> {
            let Ok((_, segments)) = program_headers_of(file) else {
                return vec![];
            };
            let found = segments.iter().flat_map(|s| native_notes(file, s));
            found
                .map(|note| (note.kind, note.offset, note.content.to_vec()))
                .collect()
        };
        let here = gnu.len() as u64 + 20;
        assert_eq!(find(&file), [(7, here, vec![1, 0, 0, 0])]);
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = file.clone();
                damaged[at] = value;
                find(&damaged);
            }
            assert!(find(&file[..at]).is_empty(), "{at}");
        }
    }
}
