//! `region_search`: the next object or page in a range of a region.

use super::Args;
use crate::handle;
use crate::memory;
use crate::object::region::Region;
use crate::object::{self};
use crate::{probe, Handled, Stop};
use abi::{Code, PAGE_SIZE};

/// Most pages that one call searches before other threads get a chance; its frame says how to go on.
const PAGES_PER_TURN: u32 = 512;

pub(super) fn region_search(a: Args) -> Handled {
    let region = handle::find_target::<Region>(a.k, a.space, a.a())?;
    let (end, kinds) = (a.c().min(region.size.get()), a.d());
    if kinds & !0x3ff != 0 {
        return Err(Stop::Code(Code::Invalid));
    }
    let mut at = a.b();
    for _ in 0..PAGES_PER_TURN {
        let found = if at < end {
            memory::next_mapped(region, at)
        } else {
            None
        };
        let Some(next) = found.filter(|&next| next < end) else {
            a.t.ctx.parameter(1).set(end.max(a.b()));
            return Err(Stop::Code(Code::NotFound));
        };
        at = next;
        let page = at & !(PAGE_SIZE - 1);
        if let Some(pfn) = memory::region_frame(region, page)? {
            if kinds & 1 != 0 && at == page {
                return hit(a, at, 0);
            }
            let mut best = None;
            object::objects_in(a.k, pfn, |offset, id| {
                let ty = id.ty().map_or(0, |ty| ty as u64);
                if page + offset >= at && kinds & 1 << ty != 0 {
                    best = Some((page + offset, ty));
                    return false;
                }
                true
            });
            if let Some((offset, ty)) = best.filter(|&(offset, _)| offset < end) {
                return hit(a, offset, ty);
            }
        }
        at = page + PAGE_SIZE;
        // The progress is saved: no page is searched twice.
        a.t.ctx.parameter(1).set(at);
        probe::progress();
        if a.k.preempts(a.t) {
            break;
        }
    }
    Err(Stop::Again)
}

fn hit(a: Args, offset: u64, ty: u64) -> Handled {
    a.t.ctx.parameter(1).set(offset);
    a.t.ctx.parameter(4).set(ty);
    a.done()
}
