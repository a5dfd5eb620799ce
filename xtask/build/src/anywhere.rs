//! Checks that a program can lie anywhere, in a process or at a place in the kernel: it has no absolute addresses but
//! those that it relocates itself at its start (`user/rt`, `_start`).

use elf::abi::{
    DT_JMPREL, DT_NEEDED, DT_REL, DT_RELA, DT_RELASZ, DT_TEXTREL, ET_DYN, PT_LOAD,
    R_X86_64_RELATIVE,
};
use elf::endian::LittleEndian;
use elf::ElfBytes;

/// Relocations without a table of their own; the crate has no name for them.
const DT_RELR: i64 = 36;
/// Bytes of a relocation.
const EACH: usize = 24;

/// Checks a program. Returns how many addresses it relocates, or what is wrong.
pub(crate) fn check(program: &[u8]) -> Result<usize, String> {
    let parsed = |error: elf::ParseError| error.to_string();
    let elf = ElfBytes::<LittleEndian>::minimal_parse(program).map_err(parsed)?;
    if elf.ehdr.e_type != ET_DYN {
        return Err("it is linked for one address: it must be position-independent".into());
    }
    let (mut table, mut size) = (0, 0);
    for entry in elf.dynamic().map_err(parsed)?.into_iter().flatten() {
        match entry.d_tag {
            DT_RELA => table = entry.d_ptr(),
            DT_RELASZ => size = entry.d_val(),
            DT_NEEDED | DT_REL | DT_JMPREL | DT_RELR => {
                return Err(format!(
                    "it wants a loader that relocates it (entry {} of its dynamic section)",
                    entry.d_tag
                ))
            }
            DT_TEXTREL => return Err("there are addresses in its code".into()),
            _ => {}
        }
    }
    let Some(bytes) = at(&elf, program, table, size) else {
        return Err("its relocations are not in the file".into());
    };
    for relocation in bytes.chunks(EACH) {
        let word = |at: usize| {
            let bytes = relocation.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let (Some(address), Some(info)) = (word(0), word(8)) else {
            return Err("half a relocation".into());
        };
        // The upper half is a symbol's number, and the symbol would be in another file.
        if info != u64::from(R_X86_64_RELATIVE) {
            return Err(format!(
                "the address at {address:#x} is not relative to where the program lies (relocation {info:#x})"
            ));
        }
    }
    Ok(bytes.len() / EACH)
}

/// The bytes of the file at the address at which they are loaded.
fn at<'a>(
    elf: &ElfBytes<'_, LittleEndian>,
    file: &'a [u8],
    address: u64,
    size: u64,
) -> Option<&'a [u8]> {
    if size == 0 {
        return Some(&[]);
    }
    let mut segments = elf.segments()?.iter().filter(|one| one.p_type == PT_LOAD);
    let (offset, segment) = segments.find_map(|segment| {
        let offset = address.checked_sub(segment.p_vaddr)?;
        let is_inside = offset.checked_add(size)? <= segment.p_filesz;
        is_inside.then_some((offset, segment))
    })?;
    let start = usize::try_from(segment.p_offset.checked_add(offset)?).ok()?;
    file.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offset of the dynamic section in the file, and the distance from a file offset to its address in memory.
    const DYNAMIC: u64 = 64 + 2 * 56;
    const MEMORY: u64 = 0x1000;

    /// A program of this type with these entries in its dynamic section, and these relocations behind it: address and kind.
    fn program(kind: u16, entries: &[(i64, u64)], relocations: &[(u64, u64)]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend(kind.to_le_bytes());
        file.extend([62, 0, 1, 0, 0, 0]);
        for word in [0, 64, 0u64] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 0, 0, 0, 0]);
        let dynamic = 16 * (entries.len() as u64 + 1);
        let rest = dynamic + EACH as u64 * relocations.len() as u64;
        for (kind, size) in [(PT_LOAD, rest), (elf::abi::PT_DYNAMIC, dynamic)] {
            file.extend([kind.to_le_bytes(), 6u32.to_le_bytes()].concat());
            for word in [DYNAMIC, DYNAMIC + MEMORY, 0, size, size, 8] {
                file.extend(word.to_le_bytes());
            }
        }
        for (tag, value) in entries.iter().chain(&[(0, 0)]) {
            file.extend([tag.to_le_bytes(), value.to_le_bytes()].concat());
        }
        for (address, kind) in relocations {
            for word in [*address, *kind, 0x1234] {
                file.extend(word.to_le_bytes());
            }
        }
        file
    }

    #[test]
    fn who_can_lie_anywhere_may() {
        let table = DYNAMIC + MEMORY + 3 * 16;
        let entries = |count: u64| [(DT_RELA, table), (DT_RELASZ, count * EACH as u64)];
        let refused = |program: &[u8], why: &str| {
            let error = check(program).expect_err(why);
            assert!(error.contains(why), "{error}");
        };
        assert_eq!(check(&program(ET_DYN, &[], &[])), Ok(0));
        let good = [(0x2000, 8), (0x2008, 8)];
        assert_eq!(check(&program(ET_DYN, &entries(2), &good)), Ok(2));

        refused(&program(elf::abi::ET_EXEC, &[], &[]), "for one address");
        // R_X86_64_64, R_X86_64_IRELATIVE, a symbol; the second relocation is checked, too.
        for kind in [1, 37, 1 << 32 | 8] {
            let bad = [(0x2000, 8), (0x2008, kind)];
            refused(
                &program(ET_DYN, &entries(2), &bad),
                "the address at 0x2008 is",
            );
        }
        for tag in [DT_NEEDED, DT_REL, DT_JMPREL, DT_RELR] {
            refused(&program(ET_DYN, &[(tag, 0)], &[]), "wants a loader");
        }
        refused(&program(ET_DYN, &[(DT_TEXTREL, 0)], &[]), "in its code");
        refused(&program(ET_DYN, &entries(3), &good), "not in the file");
        let half = [(DT_RELA, table), (DT_RELASZ, 30)];
        refused(&program(ET_DYN, &half, &good), "half a relocation");
        assert!(check(b"").is_err());
    }

    /// A program of the host, for which a loader has to load libraries.
    #[test]
    fn a_program_of_linux_is_refused() {
        let host = std::fs::read(std::env::current_exe().expect("a path")).expect("this program");
        assert!(check(&host).is_err());
    }
}
