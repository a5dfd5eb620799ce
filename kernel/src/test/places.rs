//! Collocated spaces: which addresses a space has, and when a place is free.

use super::world::*;
use abi::{access, boot, collocated, Call, Code, PAGE_SIZE};

fn collocate(w: &World, space: u64, place: u64) -> Code {
    w.sys(Call::DeviceCollocate, &[boot::AUTHORITY, space, place])
}

/// Tries to map a page of the region at an address of a space.
fn map(w: &World, space: u64, start: u64, region: u64) -> Code {
    let mapping = w.create(Call::MappingCreate);
    let state = w.page();
    w.words(state, &[start, PAGE_SIZE, 0, access::ALL]);
    w.sys(Call::MappingSetState, &[mapping, state, region, space])
}

/// A collocated space has the addresses of its place and no others, and no other space has any of them. Its threads run
/// like all threads, beside threads of other spaces, and a switch to them loads no page table.
#[test]
fn a_place_is_one_space_s() {
    let w = World::with_frames(64);
    let (_, ram) = w.region(0, RAM, 64 * PAGE_SIZE, 0);
    let [(inner, i), (_, other), (_, third)] = [0; 3].map(|_| w.space(1 << 16, 0, 0));
    assert_eq!(collocate(&w, i, 3), Code::Ok);
    assert_eq!(collocate(&w, i, 4), Code::InUse, "one place is enough");
    assert_eq!(collocate(&w, other, 3), Code::InUse, "another's place");
    assert_eq!(collocate(&w, other, collocated::COUNT), Code::Invalid);
    let (start, end) = collocated::range(3);
    for (space, at, code) in [
        (i, start, Code::Ok),
        (i, end - PAGE_SIZE, Code::Ok),
        (i, start - PAGE_SIZE, Code::Invalid),
        (i, end, Code::Invalid),
        (i, RAM, Code::Invalid),
        (other, start + PAGE_SIZE, Code::Invalid),
        (other, collocated::START, Code::Invalid),
        (other, collocated::START - PAGE_SIZE, Code::Ok),
    ] {
        assert_eq!(map(&w, space, at, ram), code, "{at:#x}");
    }
    assert_eq!(collocate(&w, other, 4), Code::InUse, "it has addresses");
    let at = start + PAGE_SIZE;
    assert_eq!(map(&w, i, at, ram), Code::Ok);
    let program = Program::new().store(move |_| (at, 77)).load(at, A3).end();
    let t = w.thread(i, program, 5);
    let outer = Program::new().load(at, A3).end();
    let o = w.thread(third, outer, 5);
    let loads = hal::host::loads();
    w.run();
    assert_eq!(w.thread_at(t).ctx.parameter(3).get(), 77, "its own memory");
    assert_eq!(w.peek(RAM), 77, "the same memory");
    let (stopped, seen) = (
        w.thread_at(o).stop_count.get(),
        w.thread_at(o).ctx.parameter(3).get(),
    );
    assert_eq!((stopped, seen), (1, 0), "another space sees nothing there");
    // The other space's table, and the manager's again.
    assert!(hal::host::loads() - loads <= 2, "loads of a page table");
    assert_eq!(collocate(&w, third, 5), Code::InUse, "it has a thread");
    let kept = w.create(Call::ReferenceCreate);
    w.ok(Call::SpaceDestroy, &[inner, kept]);
    assert_eq!(collocate(&w, kept, 6), Code::Vacant);
    let (_, next) = w.space(1 << 16, 0, 0);
    assert_eq!(
        collocate(&w, next, 3),
        Code::InUse,
        "a vacant space keeps it"
    );
    w.ok(Call::ReferenceDestroy, &[kept, 0]);
    assert_eq!(
        collocate(&w, next, 3),
        Code::Ok,
        "a place that is free again"
    );
}
