//! The ends of ranges, lists and hierarchies: items right before the end belong to them, items right behind it do
//! not.

use super::world::*;
use crate::memory;
use crate::object::account;
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

/// A search that has searched some hundred pages lets other threads run; its frame says how it goes on.
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

/// A mapping has no page behind its own last page, nor behind the last page of its region.
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

/// A message transfers as many references as both sides have in their lists, in order; with one more the result is
/// `More`.
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

/// A space can have 32 ranges of I/O ports; a further one is refused.
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

/// A space that needs table pages when there are none takes them from a space that has as many, or loses its own.
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
    // A space that has few takes them from any other.
    other.empty_table(w.k);
    let before = large.table.pages();
    hal::host::set_table_limit(hal::host::tables_used());
    for n in 0..8 {
        touch(other, n);
    }
    assert!(large.table.pages() < before);
}

/// A program that holds the handle of another program's space cannot raise its quota at the cost of the creator, who
/// could lose all its memory so.
#[test]
fn a_quota_is_given_by_who_has_it() {
    let w = World::with_frames(64);
    let (made, _) = w.space(4096, 0, 0);
    let (_, holder) = w.space(1 << 16, 0, 0);
    let state = w.page();
    for (at, page) in [(0x10_0000, made & !(PAGE_SIZE - 1)), (0x20_0000, state)] {
        let (_, region) = w.region(0, page, PAGE_SIZE, 0);
        w.map(holder, at, PAGE_SIZE, region, 0);
    }
    let handle = 0x10_0000 + made % PAGE_SIZE;
    let set = |quota: u64| {
        w.words(state, &[0, quota, 0, 0, 3]);
        let program = Program::new()
            .call(
                Call::SpaceSetState,
                &[(A0, handle), (A1, 0x20_0000), (A2, 0)],
            )
            .store(|c| (0x20_0800, c.call().get()))
            .end();
        let thread = w.thread(holder, program, 3);
        w.run();
        w.ok(Call::ThreadDestroy, &[thread, 0]);
        Code::from_word(w.peek(state + 0x800))
    };
    let rule = "S2: a higher quota is given by whose it is";
    for (quota, code) in [
        (4097, Code::Denied),
        (1 << 40, Code::Denied),
        (4096, Code::Ok),
        (2048, Code::Ok),
        (4096, Code::Denied),
    ] {
        assert_eq!(set(quota), code, "{rule}: {quota}");
    }
    w.words(state, &[0, 8192, 0, 0, TOP]);
    let given = w.sys(Call::SpaceSetState, &[made, state, 0]);
    assert_eq!(given, Code::Ok, "{rule}: the creator");
}

/// A program that moves an object of another one, or gives its identity a body elsewhere, pays for it: the maker no
/// longer finds the object in its old place, so it could not end it.
#[test]
fn who_moves_an_object_pays_for_it() {
    let rule = "S2: what was moved is paid for by who moved it";
    for quota in [1 << 14, 0] {
        let w = World::with_frames(64);
        let (holder_at, holder) = w.space(quota, 0, 0);
        let (made, _) = w.space(512, 0, 0);
        let mutex = w.create(Call::MutexCreate);
        let kept = w.create(Call::CondCreate);
        let keeper = w.create(Call::ReferenceCreate);
        let page = |handle: u64| handle & !(PAGE_SIZE - 1);
        let (there, own, out) = (0x10_0000, 0x20_0000, 0x30_0000);
        assert!(
            [mutex, kept, keeper].map(page) == [page(made); 3],
            "all in one page"
        );
        w.ok(Call::CondDestroy, &[kept, keeper]);
        let (target, results) = (w.page(), w.page());
        for (at, page) in [(there, page(made)), (own, target), (out, results)] {
            let (_, region) = w.region(0, page, PAGE_SIZE, 0);
            w.map(holder, at, PAGE_SIZE, region, 0);
        }
        let used = |space: u64| w.used(space);
        let root = || {
            let space = w.manager.space().expect("the first space");
            space.account.get().expect("its account").used()
        };
        let at = |handle: u64| there + handle % PAGE_SIZE;
        let program = Program::new()
            .call(Call::MutexMove, &[(A0, at(mutex)), (A1, own)])
            .store(move |c| (out, c.call().get()))
            .call(Call::CondCreate, &[(A0, own + 64), (A1, at(keeper))])
            .store(move |c| (out + 8, c.call().get()))
            .call(Call::SpaceMove, &[(A0, at(made)), (A1, own + 128)])
            .store(move |c| (out + 16, c.call().get()))
            .end();
        w.thread(holder, program, 3);
        let before = (used(holder_at), root());
        w.run();
        let codes = [0, 8, 16].map(|at| Code::from_word(w.peek(results + at)));
        let after = (used(holder_at), root());
        if quota == 0 {
            assert_eq!(codes, [Code::Denied; 3], "{rule}: who cannot pay");
            continue;
        }
        assert_eq!(codes, [Code::Ok; 3], "{rule}: who can");
        let all = account::COST + 512 + 3 * 16;
        assert!(
            after.0 - before.0 >= all && before.1 - after.1 == after.0 - before.0,
            "{rule}: {before:?} {after:?}"
        );
        // When the objects end, the holder pays for them no more.
        w.ok(Call::SpaceDestroy, &[target + 128, 0]);
        w.ok(Call::MutexDestroy, &[target, 0]);
        w.ok(Call::CondDestroy, &[target + 64, 0]);
        assert_eq!((used(holder_at), root()), (before.0, after.1), "{rule}");
    }
}

/// A program cannot pay for its own space.
#[test]
fn nobody_takes_over_what_he_lives_of() {
    let w = World::with_frames(64);
    let (own, holder) = w.space(1 << 14, 0, 0);
    let (target, results) = (w.page(), w.page());
    for (at, page) in [
        (0x10_0000, own & !(PAGE_SIZE - 1)),
        (0x20_0000, target),
        (0x30_0000, results),
    ] {
        let (_, region) = w.region(0, page, PAGE_SIZE, 0);
        w.map(holder, at, PAGE_SIZE, region, 0);
    }
    let program = Program::new()
        .call(
            Call::SpaceMove,
            &[(A0, 0x10_0000 + own % PAGE_SIZE), (A1, 0x20_0000)],
        )
        .store(|c| (0x30_0000, c.call().get()))
        .end();
    w.thread(holder, program, 3);
    w.run();
    let code = Code::from_word(w.peek(results));
    assert_eq!(code, Code::Denied, "S2: a circle of accounts");
}

/// The payer that was set pays for objects that outlive the space, and gets the memory back when they end; and a
/// program can only set a payer that gets its quota from the program's account.
#[test]
fn who_is_to_pay_pays_for_what_outlives_a_space() {
    let rule = "S2: who is to pay pays for what a space leaves";
    let w = World::with_frames(64);
    let (job_at, job) = w.space(1 << 15, 0, 0);
    let (other_at, other) = w.space(1 << 14, 0, 0);
    let (made, holder) = w.space(4096, 0, 0);
    let used = |space: u64| w.used(space);
    let pay = |payer: u64| w.sys(Call::SpaceSetPayer, &[made, payer]);
    assert_eq!(pay(job), Code::Ok, "{rule}");
    assert_eq!(used(job_at), 4096 + account::COST, "{rule}: with its quota");
    assert_eq!(pay(job), Code::Ok, "{rule}: again");
    assert_eq!(used(job_at), 4096 + account::COST, "{rule}: once");
    // The space may not set another payer; and it cannot pay for itself, as it has less than that costs.
    let (out, target) = (w.page(), w.page());
    let page = |handle: u64| handle & !(PAGE_SIZE - 1);
    for (at, page) in [
        (0x10_0000, page(made)),
        (0x20_0000, page(job)),
        (0x30_0000, out),
        (0x40_0000, target),
    ] {
        let (_, region) = w.region(0, page, PAGE_SIZE, 0);
        w.map(holder, at, PAGE_SIZE, region, 0);
    }
    assert_eq!(page(job), page(other), "both in one page");
    let own = 0x10_0000 + made % PAGE_SIZE;
    let mut program = Program::new();
    for (n, payer) in [0x20_0000 + other % PAGE_SIZE, 0].into_iter().enumerate() {
        program = program
            .call(Call::SpaceSetPayer, &[(A0, own), (A1, payer)])
            .store(move |c| (0x30_0000 + 8 * n as u64, c.call().get()));
    }
    // The space leaves a mutex in memory that stays.
    program = program.call(Call::MutexCreate, &[(A0, 0x40_0000), (A1, 0)]);
    let thread = w.thread(holder, program.end(), 3);
    w.run();
    let codes = [0, 8].map(|at| Code::from_word(w.peek(out + at)));
    assert_eq!(codes, [Code::Denied, Code::NoMemory], "{rule}: others");
    let root = || {
        let space = w.manager.space().expect("the first space");
        space.account.get().expect("its account").used()
    };
    w.ok(Call::ThreadDestroy, &[thread, 0]);
    w.ok(Call::SpaceDestroy, &[made, 0]);
    let left = used(job_at);
    assert!(
        left > account::COST && left < 4096,
        "{rule}: what is left, {left}"
    );
    let before = root();
    w.ok(Call::MutexDestroy, &[target, 0]);
    assert_eq!((used(job_at), root()), (0, before), "{rule}: and no more");
    // A payer that does not have enough.
    let (large, _) = w.space((1 << 14) + 1, 0, 0);
    let code = w.sys(Call::SpaceSetPayer, &[large, other]);
    assert_eq!(
        (code, used(other_at)),
        (Code::NoMemory, 0),
        "{rule}: too much"
    );
    let code = w.sys(Call::SpaceSetPayer, &[large, job]);
    assert_eq!(code, Code::Ok, "{rule}: enough");
    let code = w.sys(Call::SpaceSetPayer, &[large, 0]);
    assert_eq!((code, used(job_at)), (Code::Ok, 0), "{rule}: back again");
}

/// A program that moves a space takes over the space from its maker, and the quota from the payer of the quota.
#[test]
fn who_moves_a_space_pays_for_both() {
    let rule = "S2: a space and its quota may have two payers";
    let w = World::with_frames(64);
    let (job_at, job) = w.space(1 << 15, 0, 0);
    let (holder_at, holder) = w.space(1 << 15, 0, 0);
    let (made, _) = w.space(4096, 0, 0);
    w.ok(Call::SpaceSetPayer, &[made, job]);
    let used = |space: u64| w.used(space);
    let target = w.page();
    for (at, page) in [(0x10_0000, made & !(PAGE_SIZE - 1)), (0x20_0000, target)] {
        let (_, region) = w.region(0, page, PAGE_SIZE, 0);
        w.map(holder, at, PAGE_SIZE, region, 0);
    }
    let from = 0x10_0000 + made % PAGE_SIZE;
    let program = Program::new().call(Call::SpaceMove, &[(A0, from), (A1, 0x20_0000)]);
    w.thread(holder, program.end(), 3);
    w.run();
    assert_eq!(used(job_at), 0, "{rule}");
    let all = used(holder_at);
    assert!(all > 4096 + account::COST, "{rule}: {all}");
    w.ok(Call::SpaceDestroy, &[target, 0]);
    assert_eq!(
        (used(job_at), used(holder_at)),
        (0, 0),
        "{rule}: at the end"
    );
}
