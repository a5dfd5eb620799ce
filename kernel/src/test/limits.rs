//! The ends of ranges, lists and hierarchies: items right before the end are there, items right behind it are
//! not.

use super::world::*;
use crate::memory;
use crate::stop::Access;
use abi::{boot, ref_list, Call, Code, Type, OBJECT_SIZE, PAGE_SIZE};
use std::vec::Vec;

/// The kinds of `region_search`: pages, and objects of a type.
const PAGES: u64 = 1;
fn objects(ty: Type) -> u64 {
    1 << ty as u64
}

/// The offset of what a search finds in a range of a region.
fn search(w: &World, region: u64, range: [u64; 2], kinds: u64) -> Option<u64> {
    let code = w.sys(Call::RegionSearch, &[region, range[0], range[1], kinds]);
    let at = w.manager.ctx.parameter(1).get();
    match code {
        Code::Ok => Some(at),
        Code::NotFound => None,
        code => panic!("region_search: {code:?}"),
    }
}

/// A search finds the objects that begin in its range and in its region, and nothing else.
#[test]
fn a_search_ends_where_it_should() {
    let w = World::with_frames(64);
    let at = w.pages(4);
    let place = PAGE_SIZE + 0x100;
    w.ok(Call::MutexCreate, &[at + place, 0]);
    w.ok(Call::MutexCreate, &[at + 2 * PAGE_SIZE, 0]);
    let (_, region) = w.region(0, at, 2 * PAGE_SIZE, 0);
    let mutexes = objects(Type::Mutex);
    let rule = "what lies in the range, and nothing behind it";
    for (range, found) in [
        ([0, u64::MAX], Some(place)),
        ([0, place + 1], Some(place)),
        ([0, place], None),
        ([PAGE_SIZE, place], None),
        ([place, place + 1], Some(place)),
        // Everything behind it lies outside of the region.
        ([place + OBJECT_SIZE, u64::MAX], None),
        ([2 * PAGE_SIZE, u64::MAX], None),
        ([3 * PAGE_SIZE, 0], None),
    ] {
        assert_eq!(
            search(&w, region, range, mutexes),
            found,
            "{rule}: {range:x?}"
        );
    }
    for (range, found) in [
        ([0, PAGE_SIZE], Some(0)),
        ([1, PAGE_SIZE], None),
        ([1, PAGE_SIZE + 1], Some(PAGE_SIZE)),
        ([PAGE_SIZE + 1, u64::MAX], None),
        ([2 * PAGE_SIZE, 3 * PAGE_SIZE], None),
    ] {
        assert_eq!(
            search(&w, region, range, PAGES),
            found,
            "{rule}: {range:x?}"
        );
    }
    // Both kinds at once: the page comes before the object in it.
    let both = PAGES | mutexes;
    assert_eq!(
        search(&w, region, [PAGE_SIZE, u64::MAX], both),
        Some(PAGE_SIZE)
    );
    assert_eq!(
        search(&w, region, [PAGE_SIZE + 1, u64::MAX], both),
        Some(place)
    );
}

/// A search that has looked at some hundred pages lets others run; its frame says how it goes on.
#[test]
fn a_search_goes_on_in_turns() {
    let pages = 1200;
    let w = World::with_frames(pages as u32 + 64);
    let (_, region) = w.region(0, RAM, pages * PAGE_SIZE, 0);
    let (_, space) = w.space(1 << 20, 0, 0);
    w.map(space, 0x100_0000, pages * PAGE_SIZE, region, 0);
    let (_, all) = w.region(space, 0x100_0000, pages * PAGE_SIZE, 0);
    let args = [all, 0, u64::MAX, objects(Type::Cond)];
    w.begin(Call::RegionSearch, &args);
    let mut progress = Vec::new();
    while w.manager.ctx.pc().get() == CODE {
        progress.push(w.manager.ctx.parameter(1).get() / PAGE_SIZE);
        assert!(
            progress.len() < 10,
            "A3: progress of a search: {progress:?}"
        );
        w.trap(hal::Trap::Syscall);
    }
    let turns: Vec<u64> = progress.windows(2).map(|two| two[1] - two[0]).collect();
    let bounded = progress.first() <= Some(&512) && turns.iter().all(|&n| n <= 512);
    assert!(
        bounded && progress.len() >= 2,
        "A9: pages of a turn: {progress:?}"
    );
    assert_eq!(w.result(Call::RegionSearch), Code::NotFound);
}

/// Eight levels of regions and mappings have pages, nine have none.
#[test]
fn a_hierarchy_has_eight_levels() {
    let w = World::with_frames(96);
    let at = 0x100_0000;
    // The first level is the mapping of all memory that the first space has.
    let mut below = w.region(0, RAM, PAGE_SIZE, 0).1;
    for levels in 2..=10 {
        let (_, space) = w.space(1 << 16, 0, 0);
        w.map(space, at, PAGE_SIZE, below, 0);
        below = w.region(space, at, PAGE_SIZE, 0).1;
        let t = w.thread(space, Program::new().load(at, A10).end(), 5);
        w.run();
        let there = w.thread_at(t).exception.get() == 0
            && w.thread_at(t)
                .space()
                .is_some_and(|s| s.table.lookup(at).is_some());
        assert_eq!(there, levels <= 8, "a page below {levels} levels");
        // A search of the region goes one level less far down.
        let found = search(&w, below, [0, PAGE_SIZE], PAGES).is_some();
        assert_eq!(found, levels <= 8, "a search of {levels} levels");
    }
}

/// A mapping shows no page behind its own last one, nor behind the last one of its region.
#[test]
fn a_mapping_ends_with_its_region() {
    let w = World::with_frames(64);
    let (_, region) = w.region(0, RAM, 2 * PAGE_SIZE, 0);
    let (_, space) = w.space(1 << 16, 0, 0);
    let at = 0x100_0000;
    w.map(space, at, 4 * PAGE_SIZE, region, PAGE_SIZE);
    for (n, there) in [(0, true), (1, false), (3, false), (4, false)] {
        let p = Program::new().load(at + n * PAGE_SIZE, A10).end();
        let t = w.thread_at(w.thread(space, p, 5));
        w.run();
        assert_eq!(t.exception.get() == 0, there, "page {n} of the mapping");
    }
}

/// So many references go in a message as both sides have in their lists, in order; one more is `More`.
#[test]
fn references_of_a_message_are_counted() {
    for (sent, room) in [(3, 3), (3, 5), (4, 3), (1, 0), (15, 15)] {
        let w = World::with_frames(64);
        let set = w.create(Call::PortsetCreate);
        let (_, port) = w.port(set, 1);
        let m = w.create(Call::MutexCreate);
        let (from, to) = (w.page(), w.page());
        for n in 0..16 {
            w.ok(Call::ReferenceCreate, &[from + n * OBJECT_SIZE, 0]);
            w.ok(Call::ReferenceCreate, &[to + n * OBJECT_SIZE, 0]);
            w.ok(Call::MutexReference, &[m, from + n * OBJECT_SIZE]);
        }
        let receive = [(A0, set), (A10, ref_list(to, room)), (A9, 0)];
        let p = Program::new().call(Call::ServerWaitReceiveShort, &receive);
        w.thread(0, p.end(), 6);
        w.run();
        let send = [(A0, port), (A9, ref_list(from, sent)), (A10, 0)];
        let p = Program::new().call_short(Call::ClientConnectSendOverReceiveShort, 0, &send);
        w.thread(0, p.end(), 5);
        w.run();
        let kind = |n: u64| w.sys(Call::ReferenceCheck, &[to + n * OBJECT_SIZE]);
        let came = (0..16).take_while(|n| kind(*n) == Code::Ok).count() as u64;
        assert_eq!(
            came,
            sent.min(room),
            "references of {sent} for {room} places"
        );
    }
}

/// Ranges of I/O ports end before the next.
#[test]
fn ranges_of_ports_end_before_the_next() {
    let w = World::with_frames(64);
    let space = w.reference(Call::SpaceReference, boot::ROOT_SPACE);
    let grant = |first: u64, count: u64| {
        w.sys(
            Call::DeviceGrantPorts,
            &[boot::AUTHORITY, space, first, count],
        )
    };
    assert_eq!(grant(0x100, 0x10), Code::Ok);
    for (first, count, code) in [
        (0xf0, 0x11, Code::InUse),
        (0x10f, 1, Code::InUse),
        (0x100, 1, Code::InUse),
        (0x80, 0x200, Code::InUse),
        (0xf0, 0x10, Code::Ok),
        (0x110, 1, Code::Ok),
        (0xffff, 2, Code::Invalid),
        (0xffff, 1, Code::Ok),
    ] {
        let rule = "ports are one space's";
        assert_eq!(grant(first, count), code, "{rule}: {first:#x} {count}");
    }
    let rule = "a space has the ports that it was granted";
    let mut ports = hal::host::ports();
    ports.retain(|range| range.1 > 0);
    ports.sort_unstable();
    let granted = [(0xf0, 0x10), (0x100, 0x10), (0x110, 1), (0xffff, 1)];
    assert_eq!(ports, granted, "{rule}");
}

/// A space has 32 ranges of ports, and what does not fit is refused.
#[test]
fn a_space_has_32_ranges_of_ports() {
    let w = World::with_frames(64);
    let space = w.reference(Call::SpaceReference, boot::ROOT_SPACE);
    let call = |call, first: u64, count: u64| w.sys(call, &[boot::AUTHORITY, space, first, count]);
    let mut granted: Vec<(u16, u16)> = (0..32).map(|n| (n * 0x10, 8)).collect();
    for &(first, count) in &granted {
        let code = call(Call::DeviceGrantPorts, first.into(), count.into());
        assert_eq!(code, Code::Ok, "a range that fits: {first:#x}");
    }
    let more = call(Call::DeviceGrantPorts, 0x1000, 1);
    assert_eq!(more, Code::InUse, "a range more than a space can have");
    let has = || {
        let mut ports = hal::host::ports();
        ports.sort_unstable();
        ports
    };
    assert_eq!(has(), granted);
    // In any order: from the middle, the last one, the first one.
    for index in [7, 30, 0] {
        let (first, count) = granted.remove(index);
        let code = call(Call::DeviceRevokePorts, first.into(), count.into());
        assert_eq!(code, Code::Ok);
        assert_eq!(has(), granted, "the others stay");
    }
    for n in 0..3u16 {
        let code = call(Call::DeviceGrantPorts, u64::from(n) + 0x1000, 1);
        assert_eq!(code, Code::Ok, "there is room again");
        granted.push((n + 0x1000, 1));
    }
    assert_eq!(has(), granted);
    let more = call(Call::DeviceGrantPorts, 0x2000, 1);
    assert_eq!(more, Code::InUse, "a range more than a space can have");
    for &(first, count) in &granted {
        let code = call(Call::DeviceRevokePorts, first.into(), count.into());
        assert_eq!(code, Code::Ok);
    }
    assert_eq!(has(), [], "a space without ports");
}

/// Who needs table pages when there are none takes them from a space that has as many, or has its own cleared.
#[test]
fn few_table_pages_are_not_taken_by_who_has_many() {
    /// Bytes below one table page.
    const TABLE: u64 = 512 * PAGE_SIZE;
    let w = World::with_frames(256);
    let (_, region) = w.region(0, w.page(), PAGE_SIZE, 0);
    let space = |tables: u64| {
        let (_, space) = w.space(1 << 20, 0, 0);
        for n in 0..tables {
            w.map(space, n * TABLE, PAGE_SIZE, region, 0);
        }
        let thread = w.thread(space, Program::new().end(), 1);
        w.thread_at(thread).space().expect("it has a space")
    };
    let touch = |space, n| {
        let page = memory::translate(w.k, space, n * TABLE, Access::READ);
        assert!(page.is_ok(), "a table page is found");
    };
    let (small, large, other) = (space(1), space(80), space(80));
    for n in 0..60 {
        touch(other, n);
    }
    touch(small, 0);
    let few = small.table.pages();
    hal::host::set_table_limit(hal::host::tables_used() + 45);
    for n in 0..200 {
        let had = other.table.pages();
        touch(large, n % 80);
        let lost = had.saturating_sub(other.table.pages());
        assert!(
            lost <= 8,
            "A9: an access takes {lost} table pages from another space"
        );
        assert_eq!(
            small.table.pages(),
            few,
            "A9: nobody is slowed by what others do: {n}"
        );
    }
    assert!(other.table.pages() < 60, "as many are taken");
    // Who has few takes them from anybody.
    other.empty_table(w.k);
    let before = large.table.pages();
    hal::host::set_table_limit(hal::host::tables_used());
    for n in 0..8 {
        touch(other, n);
    }
    assert!(large.table.pages() < before);
}
