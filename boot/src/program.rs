//! Loads the first program: a static position-independent executable, whose frames, stack and boot
//! page are cut from the end of the largest range of free memory. It relocates itself.

use crate::files::File;
use abi::boot::{
    PhysRange, BOOT_INFO, BOOT_MAPPINGS, BOOT_PAGE, MAGIC, MAX_RANGES, PROGRAM_BASE, STACK_SIZE,
    STACK_TOP,
};
use abi::{access, PAGE_SIZE};
use elf::abi::{EI_NIDENT, EM_X86_64, ET_DYN, PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use elf::file::{parse_ident, Class, FileHeader};
use elf::parse::ParseAt;
use elf::segment::ProgramHeader;
use kernel::{FirstMapping, FirstSpace};

/// The first program in memory.
pub(crate) struct Loaded {
    mappings: [FirstMapping; BOOT_MAPPINGS as usize],
    count: usize,
    entry: u64,
}

impl Loaded {
    /// The program in the form that the kernel takes.
    pub(crate) fn space(&self) -> FirstSpace<'_> {
        FirstSpace {
            mappings: &self.mappings[..self.count],
            entry: self.entry,
            // As after a call: the stack is misaligned by a word at the entry of a function.
            stack: STACK_TOP - 16,
        }
    }
}

/// Memory cut from the end of a free range.
struct Frames {
    range: PhysRange,
    left: u64,
}

impl Frames {
    fn take(&mut self, size: u64) -> Result<u64, &'static str> {
        self.left = self.left.checked_sub(size).ok_or("memory is out")?;
        let start = self.range.start + self.left;
        for page in (start..start + size).step_by(PAGE_SIZE as usize) {
            write(page, &[0; PAGE_SIZE as usize]);
        }
        Ok(start)
    }
}

/// Writes bytes that do not cross a page.
fn write(physical: u64, bytes: &[u8]) {
    hal::write_bytes(
        hal::Pfn((physical / PAGE_SIZE) as u32),
        physical % PAGE_SIZE,
        bytes,
    );
}

/// Bytes of the file header.
const HEADER: usize = 64;
/// Bytes of a program header.
const SEGMENT: usize = 56;

/// Reads the file header.
fn header(file: &File) -> Option<FileHeader<LittleEndian>> {
    let mut bytes = [0; HEADER];
    file.read(0, &mut bytes);
    let ident = parse_ident::<LittleEndian>(&bytes).ok()?;
    let header = FileHeader::parse_tail(ident, &bytes[EI_NIDENT..]).ok()?;
    let right = header.class == Class::ELF64
        && header.e_machine == EM_X86_64
        && header.e_type == ET_DYN
        && usize::from(header.e_phentsize) == SEGMENT;
    right.then_some(header)
}

/// Loads the file.
pub(crate) fn load(file: &File) -> Result<Loaded, &'static str> {
    let header = header(file).ok_or("it is no position-independent ELF executable for x86-64")?;
    let mut largest = PhysRange::default();
    hal::free_ranges(&mut |start, size| {
        if size > largest.size {
            largest = PhysRange { start, size };
        }
    });
    let mut frames = Frames {
        range: largest,
        left: largest.size,
    };
    let nothing = FirstMapping {
        start: 0,
        size: 0,
        physical: 0,
        rights: 0,
    };
    let mut loaded = Loaded {
        mappings: [nothing; BOOT_MAPPINGS as usize],
        count: 0,
        entry: PROGRAM_BASE.wrapping_add(header.e_entry),
    };
    let mut add = |start, size, physical, rights| {
        let place = loaded
            .mappings
            .get_mut(loaded.count)
            .ok_or("it has too many segments")?;
        *place = FirstMapping {
            start,
            size,
            physical,
            rights,
        };
        loaded.count += 1;
        Ok::<(), &'static str>(())
    };

    let data = access::READ | access::WRITE | access::OBJECTS;
    let boot_page = frames.take(PAGE_SIZE)?;
    add(BOOT_PAGE, PAGE_SIZE, boot_page, data)?;
    let stack = frames.take(STACK_SIZE)?;
    add(STACK_TOP - STACK_SIZE, STACK_SIZE, stack, data)?;

    let mut end = 0;
    for i in 0..u64::from(header.e_phnum) {
        let mut bytes = [0; SEGMENT];
        file.read(header.e_phoff.wrapping_add(i * SEGMENT as u64), &mut bytes);
        let segment = ProgramHeader::parse_at(LittleEndian, Class::ELF64, &mut 0, &bytes)
            .map_err(|_| "its program headers make no sense")?;
        if segment.p_type != PT_LOAD {
            continue;
        }
        let (offset, address) = (segment.p_offset, segment.p_vaddr);
        let (in_file, in_memory) = (segment.p_filesz, segment.p_memsz);
        let first = address & !(PAGE_SIZE - 1);
        let last = address
            .checked_add(in_memory)
            .and_then(|e| e.checked_next_multiple_of(PAGE_SIZE));
        let last = last.filter(|&e| e <= STACK_TOP - STACK_SIZE - PROGRAM_BASE);
        let Some(last) = last.filter(|_| first >= end && in_file <= in_memory) else {
            return Err("its segments overlap or lie outside");
        };
        end = last;
        let physical = frames.take(last - first)?;
        let mut done = 0;
        while done < in_file {
            let mut page = [0; PAGE_SIZE as usize];
            let into = physical + (address - first) + done;
            let n = (PAGE_SIZE - into % PAGE_SIZE).min(in_file - done) as usize;
            file.read(offset.wrapping_add(done), &mut page[..n]);
            write(into, &page[..n]);
            done += n as u64;
        }
        let flags = segment.p_flags;
        let rights = match (flags & PF_W != 0, flags & PF_X != 0) {
            (true, _) => data,
            (false, true) => access::READ | access::EXECUTE,
            (false, false) => access::READ,
        };
        add(PROGRAM_BASE + first, last - first, physical, rights)?;
    }
    if end == 0 {
        return Err("it has no segments");
    }
    describe(boot_page, &frames);
    Ok(loaded)
}

/// Writes the `BootInfo` into the boot page.
fn describe(boot_page: u64, frames: &Frames) {
    let mut at = boot_page + (BOOT_INFO - BOOT_PAGE);
    let mut put = |bytes: &[u8]| {
        write(at, bytes);
        at += bytes.len() as u64;
    };
    let mut ranges = [PhysRange::default(); MAX_RANGES];
    let mut count = 0;
    hal::free_ranges(&mut |start, size| {
        let used = start == frames.range.start;
        let size = if used { frames.left } else { size };
        if let Some(place) = ranges.get_mut(count).filter(|_| size > 0) {
            *place = PhysRange { start, size };
            count += 1;
        }
    });
    put(&MAGIC.to_le_bytes());
    put(&(count as u64).to_le_bytes());
    for range in ranges {
        put(&range.start.to_le_bytes());
        put(&range.size.to_le_bytes());
    }
    let (start, size) = hal::archive();
    put(&start.to_le_bytes());
    put(&size.to_le_bytes());
    let (start, rate) = hal::clock();
    put(&start.to_le_bytes());
    put(&rate.to_le_bytes());
    let line = hal::command_line().as_bytes();
    let line = &line[..line.len().min(1024)];
    put(&(line.len() as u64).to_le_bytes());
    put(line);
}
