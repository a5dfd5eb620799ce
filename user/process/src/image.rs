//! The memory layout that an ELF executable asks for.
//!
//! [`Plan::new`] reads a static or static position-independent executable for x86-64. The file is hostile: any defect
//! is reported as a sentence, and a returned plan names only bytes of the file and only addresses of the given range.
//!
//! [`Loading`] does so with a file that is read piece by piece, so that the loader never has more than one piece of it
//! in memory.
use abi::access::{EXECUTE, READ, WRITE};
use abi::PAGE_SIZE;
use alloc::vec::Vec;
use proto::{Error, MAX_BULK};

use crate::executable::{
    self, is_load, program_headers_of, Header, ProgramHeader, Reason, HEADER, PF_R, PF_W, PF_X,
    PROGRAM_HEADER, PT_INTERP, PT_TLS,
};

/// Bytes of the file that are copied to an address. Further bytes of the segment are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Their address in memory.
    pub address: u64,
    /// Their offset in the file.
    pub offset: usize,
    /// How many.
    pub length: usize,
}

/// Pages with the same rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// First address.
    pub start: u64,
    /// Number of bytes.
    pub size: u64,
    /// Rights, of [`abi::access`].
    pub rights: u64,
}

/// The layout of an executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where it starts.
    pub entry: u64,
    /// The load address that was added to its addresses.
    pub base: u64,
    /// Address of its program headers in memory, or 0 if they are not loaded.
    pub headers: u64,
    /// Size of a program header.
    pub header_size: u64,
    /// Number of program headers.
    pub header_count: u64,
    /// First address of its first segment.
    pub start: u64,
    /// End of its last segment, not rounded: where a Linux program's `brk` begins.
    pub end: u64,
    /// Bytes to copy, in ascending order.
    pub pieces: Vec<Piece>,
    /// Pages to map, in ascending order, not overlapping.
    pub pages: Vec<Pages>,
}

impl Plan {
    /// Reads `file`. A position-independent executable is placed at `base` (a multiple of the page
    /// size); every address must lie in `low..high`.
    pub fn new(file: &[u8], base: u64, low: u64, high: u64) -> Result<Self, Reason> {
        let (header, segments) = program_headers_of(file)?;
        Plan::of(&header, &segments, file.len() as u64, (base, low, high))
    }

    /// As [`Plan::new`], of a file of this size by its headers.
    fn of(
        header: &Header,
        segments: &[ProgramHeader],
        size: u64,
        (base, low, high): (u64, u64, u64),
    ) -> Result<Self, Reason> {
        let base = if header.position_independent { base } else { 0 };
        let mut plan = Plan {
            entry: base.wrapping_add(header.entry),
            base,
            headers: 0,
            header_size: PROGRAM_HEADER as u64,
            header_count: header.count as u64,
            start: 0,
            end: 0,
            pieces: Vec::new(),
            pages: Vec::new(),
        };
        let mut executable_entry = false;
        for segment in segments {
            match segment.p_type {
                PT_INTERP => return Err("dynamically linked: its interpreter is not supported"),
                PT_TLS if segment.p_filesz > segment.p_memsz => {
                    return Err("its thread-local segment is larger in the file than in memory");
                }
                _ if is_load(segment) => {}
                _ => continue,
            }
            let file_end = segment.p_offset + segment.p_filesz;
            if file_end > size {
                return Err("a segment reaches beyond the end of the file");
            }
            let address = segment
                .p_vaddr
                .checked_add(base)
                .ok_or("an address is too high")?;
            let end = address
                .checked_add(segment.p_memsz)
                .ok_or("an address is too high")?;
            if address < low || end > high {
                return Err("a segment lies outside the memory of a process");
            }
            if address < plan.end {
                return Err("segments overlap or are not in order");
            }
            let mut rights = 0;
            for (flag, right) in [(PF_R, READ), (PF_W, WRITE), (PF_X, EXECUTE)] {
                if segment.p_flags & flag != 0 {
                    rights |= right;
                }
            }
            if rights & EXECUTE != 0 && (address..end).contains(&plan.entry) {
                executable_entry = true;
            }
            if plan.pages.is_empty() {
                plan.start = address;
            }
            plan.add_pages(address, end, rights);
            if segment.p_filesz > 0 {
                plan.pieces.push(Piece {
                    address,
                    offset: segment.p_offset as usize,
                    length: segment.p_filesz as usize,
                });
            }
            plan.end = end;
            // The program headers are loaded if a segment contains that part of the file. (They end within the file, or
            // they could not have been read.)
            let table = header.table_offset;
            if table >= segment.p_offset && table + header.table_size() as u64 <= file_end {
                plan.headers = address + (table - segment.p_offset);
            }
        }
        if plan.pages.is_empty() {
            return Err("there is nothing to load");
        }
        if !executable_entry {
            return Err("it starts outside its code");
        }
        Ok(plan)
    }

    /// The bytes of the file that go to these addresses, if one piece has them all.
    #[must_use]
    pub fn bytes<'a>(&self, file: &'a [u8], address: u64, length: u64) -> Option<&'a [u8]> {
        self.pieces.iter().find_map(|piece| {
            let start = usize::try_from(address.checked_sub(piece.address)?).ok()?;
            let end = start.checked_add(usize::try_from(length).ok()?)?;
            file.get(piece.offset..piece.offset + piece.length)?
                .get(start..end)
        })
    }

    /// Adds the pages of `address..end`. A page shared with the segment before gets both rights.
    fn add_pages(&mut self, address: u64, end: u64, rights: u64) {
        let mut start = address & !(PAGE_SIZE - 1);
        let end = end.next_multiple_of(PAGE_SIZE);
        if let Some(last) = self.pages.last_mut() {
            if last.start + last.size > start {
                let both = Pages {
                    start,
                    size: PAGE_SIZE,
                    rights: last.rights | rights,
                };
                last.size -= PAGE_SIZE;
                if last.size == 0 {
                    self.pages.pop();
                }
                self.push(both);
                start += PAGE_SIZE;
            }
        }
        if start < end {
            self.push(Pages {
                start,
                size: end - start,
                rights,
            });
        }
    }

    fn push(&mut self, pages: Pages) {
        if let Some(last) = self.pages.last_mut() {
            if last.start + last.size == pages.start && last.rights == pages.rights {
                last.size += pages.size;
                return;
            }
        }
        self.pages.push(pages);
    }
}

/// An executable that is being loaded, from a file of known size whose bytes it requests.
#[derive(Debug)]
pub struct Loading {
    size: u64,
    /// Base, lowest and highest address, as for [`Plan::new`].
    range: (u64, u64, u64),
    stage: Stage,
}

/// What is needed next.
#[derive(Debug)]
enum Stage {
    Header,
    Table(Header),
    /// The rest of the piece with this number, behind so many bytes.
    Piece(Plan, usize, usize),
}

impl Loading {
    /// Loads a file of this size, with `base`, `low` and `high` as for [`Plan::new`].
    #[must_use]
    pub const fn new(size: u64, base: u64, low: u64, high: u64) -> Self {
        Loading {
            size,
            range: (base, low, high),
            stage: Stage::Header,
        }
    }

    /// Which bytes of the file are needed next: offset and length, at most [`MAX_BULK`]. `None` when all have come.
    #[must_use]
    pub fn wants(&self) -> Option<(u64, usize)> {
        match &self.stage {
            Stage::Header => Some((0, HEADER)),
            Stage::Table(header) => Some((header.table_offset, header.table_size())),
            Stage::Piece(plan, number, done) => plan.pieces.get(*number).map(|piece| {
                let length = (piece.length - done).min(MAX_BULK);
                ((piece.offset + done) as u64, length)
            }),
        }
    }

    /// Takes the bytes that were [wanted](Loading::wants); fewer if the file has become shorter. `put` writes bytes
    /// that belong to memory to their address.
    ///
    /// # Errors
    /// A defect of the file, or an error of `put`.
    pub fn take(
        &mut self,
        bytes: &[u8],
        put: impl FnOnce(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), (Error, Reason)> {
        let bad = |reason| (Error::BadFormat, reason);
        match &mut self.stage {
            Stage::Header => self.stage = Stage::Table(executable::header(bytes).map_err(bad)?),
            Stage::Table(header) => {
                let segments = executable::program_headers(header, bytes).map_err(bad)?;
                let plan = Plan::of(header, &segments, self.size, self.range).map_err(bad)?;
                self.stage = Stage::Piece(plan, 0, 0);
            }
            Stage::Piece(plan, number, done) => {
                let Some(piece) = plan.pieces.get(*number) else {
                    return Ok(());
                };
                if bytes.len() < (piece.length - *done).min(MAX_BULK) {
                    return Err(bad("it ended while it was read"));
                }
                put(piece.address + *done as u64, bytes).map_err(|error| (error, error.text()))?;
                *done += bytes.len();
                if *done >= piece.length {
                    (*number, *done) = (*number + 1, 0);
                }
            }
        }
        Ok(())
    }

    /// The layout of the file, when all wanted bytes have been [taken](Loading::take).
    #[must_use]
    pub fn done(self) -> Option<Plan> {
        match self.stage {
            Stage::Piece(plan, number, _) if number == plan.pieces.len() => Some(plan),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Loading, Pages, Piece, Plan};
    use crate::executable::tests::Segment;
    use crate::executable::Reason;
    use abi::access::{EXECUTE, READ, WRITE};
    use alloc::vec::Vec;
    use proto::MAX_BULK;

    const LOW: u64 = 0x1_0000;
    const HIGH: u64 = 1 << 36;

    fn load(rights: u32, offset: u64, address: u64, file: u64, memory: u64) -> Segment {
        (1, rights, [offset, address, file, memory])
    }

    fn make(kind: u16, entry: u64, segments: &[Segment]) -> Vec<u8> {
        let mut file = crate::executable::tests::make(kind, entry, segments);
        file.resize(0x3000, 0);
        file
    }

    fn good() -> Vec<u8> {
        make(
            3,
            0x1100,
            &[
                load(4, 0, 0, 0x800, 0x800),
                load(5, 0x1000, 0x1000, 0x1000, 0x1000),
                load(6, 0x2000, 0x3000, 0x100, 0x5000),
            ],
        )
    }

    #[test]
    fn a_position_independent_program() {
        let plan = Plan::new(&good(), 0x40_0000, LOW, HIGH).unwrap();
        assert_eq!(plan.entry, 0x40_1100);
        assert_eq!(plan.headers, 0x40_0040);
        assert_eq!((plan.start, plan.end), (0x40_0000, 0x40_8000));
        assert_eq!(
            plan.pieces[2],
            Piece {
                address: 0x40_3000,
                offset: 0x2000,
                length: 0x100
            }
        );
        assert_eq!(
            plan.pages,
            [
                Pages {
                    start: 0x40_0000,
                    size: 0x1000,
                    rights: READ
                },
                Pages {
                    start: 0x40_1000,
                    size: 0x1000,
                    rights: READ | EXECUTE
                },
                Pages {
                    start: 0x40_3000,
                    size: 0x5000,
                    rights: READ | WRITE
                },
            ]
        );
    }

    #[test]
    fn a_shared_page_gets_both_rights() {
        let file = make(
            2,
            0x40_0200,
            &[
                load(5, 0, 0x40_0000, 0x1800, 0x1800),
                load(6, 0x1800, 0x40_1800, 0x100, 0x2000),
            ],
        );
        let plan = Plan::new(&file, 0x999_0000, LOW, HIGH).unwrap();
        assert_eq!(plan.base, 0);
        assert_eq!(
            plan.pages,
            [
                Pages {
                    start: 0x40_0000,
                    size: 0x1000,
                    rights: READ | EXECUTE
                },
                Pages {
                    start: 0x40_1000,
                    size: 0x1000,
                    rights: READ | WRITE | EXECUTE
                },
                Pages {
                    start: 0x40_2000,
                    size: 0x2000,
                    rights: READ | WRITE
                },
            ]
        );
    }

    #[test]
    fn hostile_files_are_refused() {
        let refuse = |file: &[u8]| Plan::new(file, 0x40_0000, LOW, HIGH).unwrap_err();
        assert_eq!(
            refuse(&make(3, 0, &[load(5, 0x2fff, 0, 2, 2)])),
            "a segment reaches beyond the end of the file"
        );
        assert_eq!(
            refuse(&make(3, 0, &[load(5, u64::MAX, 0, 2, 2)])),
            "a segment has impossible sizes"
        );
        assert_eq!(
            refuse(&make(2, 0, &[load(5, 0, 0x1000, 2, 2)])),
            "a segment lies outside the memory of a process"
        );
        assert_eq!(
            refuse(&make(2, 0, &[load(5, 0, 0x10_0000, 2, 1 << 37)])),
            "a segment lies outside the memory of a process"
        );
        assert_eq!(
            refuse(&make(3, 0, &[load(5, 0, u64::MAX - 5, 2, 2)])),
            "an address is too high"
        );
        assert_eq!(
            refuse(&make(
                3,
                0,
                &[load(5, 0, 0x2000, 2, 2), load(5, 0, 0x1000, 2, 2)]
            )),
            "segments overlap or are not in order"
        );
        assert_eq!(
            refuse(&make(3, 0x5000, &[load(5, 0, 0, 2, 2)])),
            "it starts outside its code"
        );
        assert_eq!(
            refuse(&make(3, 0, &[load(5, 0, 0, 0, 0)])),
            "there is nothing to load"
        );
        let interpreter = (3, 4, [0, 0, 2, 2]);
        assert!(refuse(&make(3, 0, &[interpreter])).starts_with("dynamically linked"));
    }

    /// What was written to memory: addresses and bytes.
    type Memory = Vec<(u64, Vec<u8>)>;

    /// Loads the first `there` bytes of a file piece by piece. Returns the plan, and what was written to memory.
    fn load_from(file: &[u8], there: usize) -> Result<(Plan, Memory), Reason> {
        let mut loading = Loading::new(file.len() as u64, 0x40_0000, LOW, HIGH);
        let mut memory = Memory::new();
        while let Some((offset, length)) = loading.wants() {
            let rest = file[..there].get(offset as usize..).unwrap_or_default();
            let bytes = &rest[..length.min(rest.len())];
            let put = |address, bytes: &[u8]| {
                memory.push((address, bytes.to_vec()));
                Ok(())
            };
            loading.take(bytes, put).map_err(|(_, reason)| reason)?;
        }
        Ok((loading.done().unwrap(), memory))
    }

    #[test]
    fn a_file_that_comes_piece_by_piece_is_loaded_as_one_that_is_there() {
        let mut file = make(
            3,
            0x1100,
            &[
                load(5, 0x1000, 0x1000, 0x2_8123, 0x3_0000),
                load(6, 0x10, 0x4_0000, 0x20, 0x1000),
            ],
        );
        file.resize(0x3_0000, 0);
        for (n, byte) in file.iter_mut().enumerate().skip(0x1000) {
            *byte = (n % 251) as u8;
        }
        let (plan, memory) = load_from(&file, file.len()).unwrap();
        assert_eq!(plan, Plan::new(&file, 0x40_0000, LOW, HIGH).unwrap());
        assert!(memory.iter().all(|(_, bytes)| bytes.len() <= MAX_BULK));
        for piece in &plan.pieces {
            let there = memory.iter().filter(|(at, _)| {
                (piece.address..piece.address + piece.length as u64).contains(at)
            });
            let bytes: Vec<u8> = there.flat_map(|(_, bytes)| bytes).copied().collect();
            assert_eq!(bytes, file[piece.offset..piece.offset + piece.length]);
        }
        // A file that is cut short while it is read.
        for there in [0, 63, 64, 100, 0x1000, 0x1_1000, 0x2_0000] {
            assert!(load_from(&file, there).is_err(), "{there:#x}");
        }
    }

    #[test]
    fn no_altered_file_panics() {
        let file = good();
        for position in 0..232 {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut altered = file.clone();
                altered[position] = value;
                if let Ok(plan) = Plan::new(&altered, 0x40_0000, LOW, HIGH) {
                    for piece in &plan.pieces {
                        assert!(piece.offset + piece.length <= altered.len());
                    }
                    for pages in &plan.pages {
                        assert!(pages.start >= LOW && pages.start + pages.size <= HIGH);
                    }
                }
            }
        }
    }
}
