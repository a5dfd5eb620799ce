//! Finds the sites of a program's kernel calls, for a loader that redirects them.
//!
//! The form of a site and of the list is described in [`abi::gate`].
use crate::executable::{native_notes, program_headers_of, Reason};
use crate::image::Plan;
use abi::gate::{self, SITE, SITE_SIZE};
use alloc::vec::Vec;

/// The addresses of the sites of `file`, placed as `plan` says, in the order of the list. The file
/// is hostile: a list that does not name sites of its code is refused.
pub fn sites(file: &[u8], plan: &Plan) -> Result<Vec<u64>, Reason> {
    const NONE: Reason = "it does not say where its kernel calls are";
    const WRONG: Reason = "its list of kernel calls makes no sense";
    let (_, segments) = program_headers_of(file)?;
    let (start, end) = segments
        .iter()
        .find_map(|segment| {
            let base = plan.base.wrapping_add(segment.p_vaddr);
            native_notes(file, segment)
                .filter(|note| note.kind == u64::from(gate::NOTE))
                .find_map(|note| gate::list(base.wrapping_add(note.offset), note.content))
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
