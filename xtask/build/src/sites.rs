//! Checks that a program enters the kernel by its sites only, as [`abi::gate`] promises a loader.

use abi::gate::{self, PREFIXES, SECTION, SITE, SITE_SIZE};
use elf::endian::LittleEndian;
use elf::ElfBytes;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction};

/// The flag of a section with instructions.
const EXECUTABLE: u64 = elf::abi::SHF_EXECINSTR as u64;

/// Checks a program, which must still have its sections. Returns how many sites it has, or what is wrong.
pub(crate) fn check(program: &[u8]) -> Result<usize, String> {
    let parsed = |error: elf::ParseError| error.to_string();
    let elf = ElfBytes::<LittleEndian>::minimal_parse(program).map_err(parsed)?;
    let list = elf
        .section_header_by_name(SECTION)
        .map_err(parsed)?
        .ok_or_else(|| format!("there is no section {SECTION}"))?;
    let (bytes, _) = elf.section_data(&list).map_err(parsed)?;
    let mut listed: Vec<u64> = gate::sites(list.sh_addr, bytes)
        .collect::<Option<_>>()
        .ok_or("a site lies outside the address space")?;
    listed.sort_unstable();
    listed.dedup();
    if listed.len() != bytes.len() / 4 {
        return Err("a site is listed twice".into());
    }

    let mut found = Vec::new();
    for section in elf.section_headers().into_iter().flatten() {
        if section.sh_flags & EXECUTABLE != 0 {
            let (code, _) = elf.section_data(&section).map_err(parsed)?;
            enters(code, section.sh_addr, &mut found)?;
        }
    }
    found.sort_unstable();
    if let Some(site) = listed
        .iter()
        .find(|site| found.binary_search(site).is_err())
    {
        return Err(format!("{site:#x} is listed, but calls no kernel"));
    }
    if let Some(site) = found
        .iter()
        .find(|site| listed.binary_search(site).is_err())
    {
        return Err(format!("the site at {site:#x} is not listed"));
    }
    Ok(listed.len())
}

/// Finds the instructions that enter the kernel. All must be sites.
fn enters(code: &[u8], address: u64, found: &mut Vec<u64>) -> Result<(), String> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let at = decoder.position();
        decoder.decode_out(&mut instruction);
        match instruction.code() {
            Code::Syscall if code[at..].starts_with(&SITE) && instruction.len() == SITE_SIZE => {
                found.push(instruction.ip());
            }
            Code::Syscall | Code::Sysenter | Code::Int_imm8 => {
                return Err(format!(
                    "the call of the kernel at {:#x} is not {SITE_SIZE} bytes with {PREFIXES} prefixes: \
                     use rt::gate!",
                    instruction.ip()
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sites_enter_the_kernel() {
        let mut found = Vec::new();
        // mov eax, 0x050f (not a call); the site; ret
        let good = [&[0xb8, 0x0f, 0x05, 0, 0][..], &SITE, &[0xc3]].concat();
        assert_eq!(enters(&good, 0x1000, &mut found), Ok(()));
        assert_eq!(found, [0x1005]);
        for bad in [
            &[0x0f, 0x05][..],
            &[0x2e, 0x0f, 0x05],
            &[0xcd, 0x80],
            &[0x0f, 0x34],
        ] {
            let error = enters(bad, 0x1000, &mut found).unwrap_err();
            assert!(error.contains("0x1000"), "{error}");
        }
        assert_eq!(found, [0x1005]);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(check(b"").is_err());
        assert!(check(&[0x7f; 200]).is_err());
    }
}
