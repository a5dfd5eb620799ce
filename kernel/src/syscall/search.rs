//! `region_search`: the next object or page in a range of a region.

use super::Args;
use crate::handle;
use crate::memory;
use crate::object::region::Region;
use crate::object::{self};
use crate::{probe, Handled, Stop};
use abi::{Code, PAGE_SIZE};

/// The most pages that one call searches in one go before other threads can run; its frame says how to go on.
const PAGES_PER_TURN: u64 = 512;

pub(super) fn region_search(a: Args) -> Handled {
    let region = handle::find_target::<Region>(a.k, a.space, a.a())?;
    let (end, kinds) = (a.c().min(region.size.get()), a.d());
    if kinds & !0x3ff != 0 {
        return Err(Stop::Code(Code::Invalid));
    }
    let mut at = a.b();
    let mut left = PAGES_PER_TURN;
    while left > 0 {
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
        // One walk finds a run of pages. With one walk per page, walks would be nearly all of the work where a program
        // has much memory.
        let first = at & !(PAGE_SIZE - 1);
        let run = memory::region_run(region, first)?;
        let run_end = end.min(first.saturating_add(run.bytes));
        while left > 0 && at < run_end {
            let page = at & !(PAGE_SIZE - 1);
            let mut pages = 1;
            if let Some(pfn) = run.frame((page - first) / PAGE_SIZE) {
                if kinds & 1 != 0 {
                    if at == page && hal::user_frame(pfn) {
                        return hit(a, at, 0);
                    }
                } else {
                    let most = left.min((run_end - page).div_ceil(PAGE_SIZE));
                    pages = object::frames_without(a.k, pfn, most).max(1);
                }
                let next = object::first_in(a.k, pfn, at - page, kinds);
                if let Some((offset, ty)) = next.filter(|&(offset, _)| page + offset < end) {
                    return hit(a, page + offset, ty as u64);
                }
            }
            at = page + pages * PAGE_SIZE;
            left -= pages;
            // The progress is saved: no page is searched twice.
            a.t.ctx.parameter(1).set(at);
            probe::progress();
            if a.k.preempts(a.t) {
                return Err(Stop::Again);
            }
        }
    }
    Err(Stop::Again)
}

fn hit(a: Args, offset: u64, ty: u64) -> Handled {
    a.t.ctx.parameter(1).set(offset);
    a.t.ctx.parameter(4).set(ty);
    a.done()
}
