//! The costs of calls, in accesses to memory and page tables ([`hal::host::accesses`]), so that a test fails if
//! a fast path is never taken or work is done in vain. Instructions are counted in the guest (`docs/bench.md`).

use super::world::*;
use crate::object::thread::Run;
use abi::{access, Call, PAGE_SIZE};

/// The number of accesses in a call of the manager.
fn cost(w: &World, call: Call, args: &[u64]) -> u64 {
    let before = hal::host::accesses();
    w.begin(call, args);
    let after = hal::host::accesses();
    w.result(call);
    after - before
}

fn world() -> World {
    let w = World::with_frames(256);
    w.checked.set(false);
    w
}

/// A handle that was looked up is found again without an access to memory.
#[test]
fn a_handle_is_found_at_once() {
    let w = world();
    let (m, c) = (w.create(Call::MutexCreate), w.create(Call::CondCreate));
    let r = w.reference(Call::MutexReference, m);
    for (call, at) in [
        (Call::MutexTrylock, m),
        (Call::CondSignal, c),
        (Call::ReferenceCheck, r),
    ] {
        cost(&w, call, &[at]);
        assert_eq!(cost(&w, call, &[at]), 0, "cost: {}", call.name());
    }
}

/// A page that was found is found again without a walk, and a word in it costs one access.
#[test]
fn a_page_is_found_at_once() {
    let w = world();
    let (m, state) = (w.create(Call::MutexCreate), w.page());
    cost(&w, Call::MutexGetState, &[m, state]);
    let again = cost(&w, Call::MutexGetState, &[m, state]);
    assert!(again <= 1, "cost: mutex_get_state looks {again} times");
}

/// Rounds of RPC in registers touch no memory.
#[test]
fn an_rpc_in_registers_touches_no_memory() {
    const CALLS: u64 = 50;
    let w = world();
    let set = w.create(Call::PortsetCreate);
    let (_, port) = w.port(set, 1);
    let registers = |name| [(A0, name), (A10, 0), (A9, 0)];
    let wait = Program::new().call(Call::ServerWaitReceiveShort, &registers(set));
    let again = wait.len();
    let server = wait
        .call(Call::ServerAckSendWaitReceiveShort, &registers(set))
        .jump(again);
    w.thread(0, server, 5);
    w.run();
    let client = |calls: u64| {
        let p = (0..calls).fold(Program::new(), |p, _| {
            p.call(Call::ClientConnectSendOverReceiveShort, &registers(port))
        });
        let t = w.thread(0, p.end(), 5);
        let before = hal::host::accesses();
        w.run();
        let cost = hal::host::accesses() - before;
        w.ok(Call::ThreadDestroy, &[t, 0]);
        cost
    };
    let (one, many) = (client(1), client(CALLS));
    let each = (many - one) / (CALLS - 1);
    assert_eq!(each, 0, "cost: accesses of an RPC ({many} in {CALLS})");
}

/// A switch between threads of one space loads no page table; a switch to another space loads one.
#[test]
fn only_other_spaces_are_loaded() {
    for (spaces, cost) in [(1, 0), (2, 1)] {
        let w = world();
        let (_, s) = w.space(1 << 16, 0, 0);
        let yields = || Program::new().call(Call::ThreadYield, &[]).jump(0);
        w.thread(s, yields(), 5);
        w.thread(if spaces == 1 { s } else { 0 }, yields(), 5);
        w.release();
        let mut switches = 0u64;
        for _ in 0..20 {
            w.step();
        }
        let before = hal::host::accesses();
        for _ in 0..100 {
            let current = w.current.get();
            w.step();
            switches += u64::from(!core::ptr::eq(current, w.current.get()));
        }
        let loads = hal::host::accesses() - before;
        assert!(switches > 20);
        assert_eq!(loads, cost * switches, "cost: loads in {spaces} spaces");
    }
}

/// Translations that are removed in one place are dropped there and nowhere else.
#[test]
fn only_what_is_taken_away_is_forgotten() {
    let w = world();
    let (_, ram) = w.region(0, RAM, 64 * PAGE_SIZE, 0);
    let (_, space) = w.space(1 << 16, 0, 0);
    let at = |n: u64| 0x50_0000 + n * 2 * PAGE_SIZE;
    let mappings = [0, 1, 2].map(|n| w.map(space, at(n), PAGE_SIZE, ram, n * PAGE_SIZE));
    let p = (0..3).fold(Program::new(), |p, n| p.load(at(n), A10));
    let t = w.thread_at(w.thread(space, p.end(), 5));
    w.run();
    let there = || [0, 1, 2].map(|n| t.space().is_some_and(|s| s.table.lookup(at(n)).is_some()));
    assert_eq!(there(), [true; 3]);
    w.ok(Call::MappingProtect, &[mappings[1], access::READ]);
    assert_eq!(
        there(),
        [true, false, true],
        "cost: more is forgotten than went"
    );
    // A mapping that grows keeps its translations.
    let state = w.page();
    w.words(state, &[at(2), 2 * PAGE_SIZE, 2 * PAGE_SIZE, access::ALL]);
    w.ok(Call::MappingSetState, &[mappings[2], state, ram, space]);
    assert_eq!(
        there(),
        [true, false, true],
        "cost: a mapping that grows forgets"
    );
}

/// A thread that reads sixteen pages of one chunk faults once. The other pages are entered as walks to them would find
/// them: no page of another mapping or region, and no right that one of the levels does not give.
#[test]
fn the_pages_of_a_chunk_come_at_once() {
    const CHUNK: u64 = 16 * PAGE_SIZE;
    const SEEN: u64 = 0x50_0000;
    let w = world();
    let (_, ram) = w.region(0, RAM, 256 * PAGE_SIZE, 0);
    let (_, below) = w.space(1 << 20, 0, 0);
    // The region begins within the first chunk, and the second one is shown without the right to write.
    let (_, shown) = w.region(below, 0x100_3000, 2 * CHUNK - 0x3000, 0);
    w.map(below, 0x100_0000, CHUNK, ram, 0);
    let second = w.map(below, 0x101_0000, CHUNK, ram, 3 * CHUNK);
    w.ok(Call::MappingProtect, &[second, access::READ]);
    let (_, space) = w.space(1 << 20, 0, 0);
    w.map(space, SEEN, 2 * CHUNK, shown, 0);
    let read = |n: u64| {
        let p = Program::new().load(SEEN + n * PAGE_SIZE, A10);
        let t = w.thread_at(w.thread(space, p.end(), 5));
        w.run();
        let table = &t.space().expect("a space").table;
        let there = (0..32).map(|n| table.lookup(SEEN + n * PAGE_SIZE));
        there.collect::<std::vec::Vec<_>>()
    };
    // The frame of each page, counted from the first frame, and the page's rights.
    let chunk = |n: u64| match n {
        0..13 => (n + 3, access::ALL),
        _ => (n - 13 + 3 * 16, access::READ),
    };
    let first = u64::from(hal::host::FIRST_FRAME);
    let check = |found: &[Option<(hal::Pfn, u64)>], there: &dyn Fn(u64) -> bool| {
        for n in 0..32 {
            let expected = there(n).then(|| chunk(n));
            let is = found[n as usize].map(|(pfn, rights)| (u64::from(pfn.0) - first, rights));
            assert_eq!(is, expected, "cost: what comes as page {n}");
        }
    };
    check(&read(14), &|n| (13..16).contains(&n));
    check(&read(2), &|n| n < 16);
    // An aligned group of sixteen pages; the second chunk ends within it.
    check(&read(20), &|n| n < 29);
}

/// Mappings that are added in order are found in some twenty steps, and not one by one.
#[test]
fn a_tree_of_mappings_is_flat() {
    const MAPPINGS: u64 = 512;
    let w = world();
    let (_, ram) = w.region(0, RAM, 64 * PAGE_SIZE, 0);
    let (_, space) = w.space(1 << 20, 0, 0);
    let state = w.page();
    for n in 0..MAPPINGS {
        let m = w.create(Call::MappingCreate);
        w.words(
            state,
            &[0x50_0000 + n * PAGE_SIZE, PAGE_SIZE, 0, access::ALL],
        );
        w.ok(Call::MappingSetState, &[m, state, ram, space]);
    }
    let t = w.thread_at(w.thread(space, Program::new().end(), 5));
    // In ascending order as here, 512 mappings are ten levels; in no order more than 12.
    let depth = t.space().expect("a space").mappings.each(&|_| {});
    assert!(
        (9..=12).contains(&depth),
        "cost: a tree of {MAPPINGS} is {depth} deep"
    );
}

/// Pages that a keeper has supplied with one reply are not asked for again.
#[test]
fn a_fault_is_one_message() {
    let w = world();
    let set = w.create(Call::PortsetCreate);
    let (_, port) = w.port(set, 1);
    let (_, ram) = w.region(0, RAM, 256 * PAGE_SIZE, 0);
    let (_, below) = w.space(1 << 20, 0, 0);
    let (_, kept) = w.region(below, 0x100_0000, 8 * PAGE_SIZE, port);
    let (_, space) = w.space(1 << 20, 0, 0);
    w.map(space, 0x50_0000, 8 * PAGE_SIZE, kept, 0);
    let (count, mapping) = (w.page(), w.create(Call::MappingCreate));
    let state = w.page();
    w.words(state, &[0x100_0000, 8 * PAGE_SIZE, 0, access::ALL]);
    let receive = [(A0, set), (A10, 0), (A9, 0)];
    let keeper = Program::new()
        .call(Call::ServerWaitReceiveShort, &receive)
        .load(count, A11)
        .op(|c| c.parameter(11).set(c.parameter(11).get() + 1))
        .keep(count, A11)
        .call(
            Call::MappingSetState,
            &[(A0, mapping), (A1, state), (A2, ram), (A3, below)],
        )
        .call_short(Call::ReplyWaitReceiveShort, 0, &receive)
        .jump(1);
    w.thread(0, keeper, 6);
    w.run();
    let reads = (0..8).fold(Program::new(), |p, n| {
        p.load(0x50_0000 + n * PAGE_SIZE, A10)
    });
    let t = w.thread_at(w.thread(space, reads.end(), 5));
    w.run();
    assert_eq!(t.run.get(), Run::Waiting(abi::state::Waiting::Interrupt));
    assert_eq!(
        w.peek(count),
        1,
        "cost: messages for pages that came at once"
    );
}
