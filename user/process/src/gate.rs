//! Finds the sites of a program's kernel calls, for a loader that redirects them.
//!
//! The form of a site and of the list is described in [`abi::gate`].
use crate::image::{Plan, Reason};
use abi::gate::{self, SITE, SITE_SIZE};
use alloc::vec::Vec;
use elf::abi::PT_NOTE;
use elf::endian::LittleEndian;
use elf::note::Note;
use elf::ElfBytes;
use proto::process::NATIVE_NOTE;

/// The addresses of the sites of `file`, placed as `plan` says, in the order of the list. The file
/// is hostile: a list that does not name sites of its code is refused.
pub fn sites(file: &[u8], plan: &Plan) -> Result<Vec<u64>, Reason> {
    const NONE: Reason = "it does not say where its kernel calls are";
    const WRONG: Reason = "its list of kernel calls makes no sense";
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|_| WRONG)?;
    let segments = elf.segments().ok_or(WRONG)?;
    let (start, end) = segments
        .iter()
        .filter(|segment| segment.p_type == PT_NOTE)
        .find_map(|segment| {
            let notes = elf.segment_data_as_notes(&segment).ok()?;
            let base = plan.base.wrapping_add(segment.p_vaddr);
            let first = elf.segment_data(&segment).ok()?.as_ptr() as usize;
            notes.into_iter().find_map(|note| match note {
                Note::Unknown(note) if is_ours(&note) => {
                    let offset = (note.desc.as_ptr() as usize - first) as u64;
                    gate::list(base.wrapping_add(offset), note.desc)
                }
                _ => None,
            })
        })
        .ok_or(NONE)?;
    let list = plan.bytes(file, start, end - start).ok_or(WRONG)?;
    let sites: Option<Vec<u64>> = gate::sites(start, list).collect();
    let sites = sites.ok_or(WRONG)?;
    let good = |&site: &u64| plan.bytes(file, site, SITE_SIZE as u64) == Some(&SITE);
    if !sites.iter().all(good) {
        return Err(WRONG);
    }
    Ok(sites)
}

fn is_ours(note: &elf::note::NoteAny<'_>) -> bool {
    note.n_type == u64::from(gate::NOTE) && note.name_str().is_ok_and(|name| name == NATIVE_NOTE)
}
