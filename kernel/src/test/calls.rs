//! Every entrypoint: each result code that its row in the table lists, wrong use, vacant and dead
//! identities.
//!
//! One test per object of the table; its test fails if a row of that object, or a code of a row,
//! has not been met. A test's id is the name of the call and the code: `mutex_lock/Ok`.

use super::cut::Calls;
use super::world::*;
use crate::object::thread::Run;
use abi::state::{Waiting, THREAD_WORDS};
use abi::{access, boot, Call, Code, Exception, RefKind, Type, PAGE_SIZE, SYSCALLS, TYPES};
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

/// What has been met.
#[derive(Default)]
pub(super) struct Met {
    results: BTreeSet<(u8, u8)>,
}

impl Met {
    /// The manager's call has this result.
    fn is(&mut self, w: &World, call: Call, args: &[u64], code: Code) {
        assert_eq!(w.sys(call, args), code, "{}/{code:?}", call.name());
        self.note(call, code);
    }

    pub(super) fn note(&mut self, call: Call, code: Code) {
        self.results.insert((call as u8, code as u8));
    }

    /// Everything that the rows of this object list has been met.
    pub(super) fn complete(&self, object: &str) {
        let rows: Vec<_> = SYSCALLS.iter().filter(|r| r.object == object).collect();
        assert!(!rows.is_empty(), "no rows of {object}");
        let mut missing = Vec::new();
        for row in rows {
            for &code in row.codes {
                if !self.results.contains(&(row.number, code as u8)) {
                    missing.push(std::format!("{}/{code:?}", row.name));
                }
            }
        }
        assert!(missing.is_empty(), "no test: {missing:?}");
    }
}

/// A page in the first space on which objects cannot be made.
fn plain_page(w: &World) -> u64 {
    let (mapping, state) = (w.create(Call::MappingCreate), w.page());
    let at = 0x6000_0000;
    w.words(
        state,
        &[
            at,
            PAGE_SIZE,
            w.physical(w.page()),
            access::READ | access::WRITE,
        ],
    );
    w.ok(
        Call::MappingSetState,
        &[mapping, state, boot::ROOT_REGION, 0],
    );
    at
}

/// A thread makes a call that is wrong: the exception that it meets.
fn wrong(w: &World, call: Call, registers: &[(R, u64)]) -> (u64, u64) {
    let t = w.thread(0, Program::new().call(call, registers).end(), 5);
    w.run();
    let t = w.thread_at(t);
    assert_eq!(t.run.get(), Run::Stopped, "{} is not wrong", call.name());
    (u64::from(t.exception.get()), t.exception_address.get())
}

/// The six common calls of a type.
fn common(ty: Type) -> Met {
    let mut met = Met::default();
    let calls = Calls::of(ty);
    let w = World::with_frames(64);
    let (a, b, c) = (w.object(), w.object(), w.object());
    let plain = plain_page(&w);
    let state = w.page();
    let r: Vec<u64> = (0..3).map(|_| w.create(Call::ReferenceCreate)).collect();

    met.is(&w, calls.create, &[a, 0], Code::Ok);
    met.is(&w, calls.create, &[a, 0], Code::InUse);
    met.is(&w, calls.create, &[plain, 0], Code::Denied);
    met.is(&w, calls.create, &[b, r[0]], Code::Dead);
    met.is(&w, calls.point, &[a, r[0]], Code::Ok);
    met.is(&w, calls.create, &[b, r[0]], Code::Invalid);
    met.is(&w, calls.relocate, &[a, a], Code::Ok);
    met.is(&w, calls.relocate, &[a, plain], Code::Denied);
    met.is(&w, calls.create, &[b, 0], Code::Ok);
    met.is(&w, calls.relocate, &[a, b], Code::InUse);
    met.is(&w, calls.relocate, &[a, c], Code::Ok);
    assert_eq!(
        wrong(&w, calls.point, &[(RDI, a), (RSI, r[0])]),
        no_object(a)
    );
    met.is(&w, calls.relocate, &[c, a], Code::Ok);

    // Taken apart and made again, there and elsewhere; the reference still names it.
    met.is(&w, calls.get, &[a, state, 0, 0, 0], Code::Ok);
    met.is(&w, calls.destroy, &[a, r[1]], Code::Ok);
    assert_eq!(w.sys(Call::ReferenceEqual, &[r[0], r[1]]), Code::Ok);
    assert_eq!(w.sys(Call::ReferenceCheck, &[r[0]]), Code::Ok);
    assert_eq!(w.manager.ctx.rdi.get(), ty as u64);
    met.is(&w, calls.create, &[c, r[1]], Code::Ok);
    met.is(&w, calls.set, &[c, state, 0, 0, 0], Code::Ok);
    met.is(&w, calls.point, &[c, r[2]], Code::Ok);
    assert_eq!(w.sys(Call::ReferenceEqual, &[r[0], r[2]]), Code::Ok);
    // The old address is free again.
    met.is(&w, calls.relocate, &[c, a], Code::Ok);

    // Who uses a vacant handle waits, and goes on when there is a body, or none ever.
    for gone in [false, true] {
        met.is(&w, calls.get, &[a, state, 0, 0, 0], Code::Ok);
        met.is(&w, calls.destroy, &[a, r[1]], Code::Ok);
        let p = Program::new()
            .call(calls.point, &[(RDI, a), (RSI, r[2])])
            .keep(state + 2048, RAX);
        w.poke(state + 2048, 99);
        let t = w.thread(0, p.end(), 5);
        w.run();
        let thread = w.thread_at(t);
        assert_eq!(thread.run.get(), Run::Waiting(Waiting::Vacant));
        if gone {
            w.ok(Call::ReferenceDestroy, &[r[1], 0]);
            w.run();
            assert_eq!(
                u64::from(thread.exception.get()),
                Exception::NoObject as u64
            );
            let code = w.sys(Call::ReferenceCheck, &[r[0]]);
            assert_eq!(code, Code::Dead, "a reference to what has ended");
        } else {
            met.is(&w, calls.create, &[a, r[1]], Code::Ok);
            w.run();
            // A mapping, a region, ... is not open before its state is set; for its manager it is.
            met.is(&w, calls.set, &[a, state, 0, 0, 0], Code::Ok);
            w.run();
            assert_eq!(
                w.peek(state + 2048),
                0,
                "{} after a vacancy",
                calls.point.name()
            );
        }
    }

    // Wrong use.
    let other = w.create(if ty == Type::Mutex {
        Call::CondCreate
    } else {
        Call::MutexCreate
    });
    for call in [
        calls.destroy,
        calls.relocate,
        calls.point,
        calls.get,
        calls.set,
    ] {
        let free = w.object();
        let rest = [(RSI, if call == calls.point { r[0] } else { state })];
        let with = |handle| [(RDI, handle), rest[0], (RDX, 0), (R10, 0), (R8, 0)];
        assert_eq!(
            wrong(&w, call, &with(free)),
            no_object(free),
            "{}",
            call.name()
        );
        let misaligned = (Exception::Misaligned as u64, b + 8);
        assert_eq!(wrong(&w, call, &with(b + 8)), misaligned, "{}", call.name());
        let mistaken = (Exception::WrongType as u64, other);
        assert_eq!(wrong(&w, call, &with(other)), mistaken, "{}", call.name());
        let memory = (Exception::Memory as u64, 0x5555_5000);
        assert_eq!(
            wrong(&w, call, &with(0x5555_5000)),
            memory,
            "{}",
            call.name()
        );
    }
    met.is(&w, calls.destroy, &[b, 0], Code::Ok);

    // Without memory nothing is made, and nothing leaks.
    let (space, s) = w.space(0, 0, 0);
    let page = w.page();
    w.map(
        s,
        0x5000_0000,
        PAGE_SIZE,
        boot::ROOT_REGION,
        w.physical(page),
    );
    let p = Program::new().call(calls.create, &[(RDI, 0x5000_0000), (RSI, 0)]);
    w.thread(s, p.keep(0x5000_0800, RAX).end(), 5);
    w.run();
    assert_eq!(Code::from_rax(w.peek(page + 0x800)), Code::NoMemory);
    met.note(calls.create, Code::NoMemory);
    w.ok(Call::SpaceDestroy, &[space, 0]);
    let used = w
        .manager
        .space()
        .and_then(|s| s.account.get())
        .map(|a| a.used());
    hal::host::fail_allocations_after(0);
    let mut made = Vec::new();
    loop {
        let at = w.object();
        match w.sys(calls.create, &[at, 0]) {
            Code::Ok => made.push(at),
            code => break assert_eq!(code, Code::NoMemory),
        }
    }
    hal::host::fail_allocations_after(u64::MAX);
    for at in made {
        w.ok(calls.destroy, &[at, 0]);
    }
    assert_eq!(
        used,
        w.manager
            .space()
            .and_then(|s| s.account.get())
            .map(|a| a.used())
    );
    met
}

fn no_object(at: u64) -> (u64, u64) {
    (Exception::NoObject as u64, at)
}

#[test]
fn mutex() {
    let mut met = common(Type::Mutex);
    let w = World::with_frames(64);
    let (m, state) = (w.create(Call::MutexCreate), w.page());
    met.is(&w, Call::MutexUnlock, &[m], Code::Invalid);
    met.is(&w, Call::MutexLock, &[m], Code::Ok);
    met.is(&w, Call::MutexTrylock, &[m], Code::WouldBlock);
    met.is(&w, Call::MutexGetState, &[m, state], Code::Ok);
    assert_eq!(w.peek(state), 1);
    // Unlocking by a state lets who waits try again.
    let p = Program::new()
        .call(Call::MutexLock, &[(RDI, m)])
        .keep(state + 8, RAX)
        .end();
    w.poke(state + 8, 9);
    w.thread(0, p, 5);
    w.run();
    // Somebody more important comes before who waits already; the invariants say so.
    let p = Program::new().call(Call::MutexLock, &[(RDI, m)]);
    let other = w.thread(0, p.end(), 9);
    w.run();
    w.ok(Call::ThreadStop, &[other]);
    w.poke(state, 2);
    met.is(&w, Call::MutexSetState, &[m, state], Code::Invalid);
    w.poke(state, 0);
    met.is(&w, Call::MutexSetState, &[m, state], Code::Ok);
    w.run();
    assert_eq!(w.peek(state + 8), 0, "A8: a lost wake-up");
    met.is(&w, Call::MutexUnlock, &[m], Code::Ok);
    met.is(&w, Call::MutexTrylock, &[m], Code::Ok);
    met.complete("Mutex");
}

#[test]
fn cond() {
    let mut met = common(Type::Cond);
    let w = World::with_frames(64);
    let (c, m, out) = (
        w.create(Call::CondCreate),
        w.create(Call::MutexCreate),
        w.page(),
    );
    met.is(&w, Call::CondWait, &[c, m], Code::Invalid);
    met.is(&w, Call::CondWaitUntil, &[c, m, 0], Code::Invalid);
    met.is(&w, Call::MutexTrylock, &[m], Code::Ok);
    met.is(&w, Call::MutexUnlock, &[m], Code::Ok);
    let waiter = |n: u64, call: Call, until: u64| {
        let p = Program::new()
            .call(Call::MutexLock, &[(RDI, m)])
            .call(call, &[(RDI, c), (RSI, m), (RDX, until)])
            .keep(out + n * 8, RAX)
            .call(Call::MutexUnlock, &[(RDI, m)]);
        w.poke(out + n * 8, 9);
        w.thread_at(w.thread(0, p.end(), 5))
    };
    for wake in [Call::CondSignal, Call::CondBroadcast] {
        let t = waiter(0, Call::CondWait, 0);
        w.run();
        assert_eq!(t.run.get(), Run::Waiting(Waiting::Cond));
        // The mutex is free meanwhile, and the frame says what is left.
        let call = t.ctx.rax.get();
        assert_eq!(call, Call::MutexLock as u64, "A3: what is left of it");
        met.is(&w, Call::MutexTrylock, &[m], Code::Ok);
        met.is(&w, wake, &[c], Code::Ok);
        w.run();
        assert_eq!(w.peek(out), 9, "A8: it returns without the mutex");
        met.is(&w, Call::MutexUnlock, &[m], Code::Ok);
        w.run();
        assert_eq!(w.peek(out), 0);
        met.note(Call::CondWait, Code::Ok);
    }
    waiter(2, Call::CondWait, 0);
    waiter(3, Call::CondWait, 0);
    w.run();
    w.ok(Call::CondBroadcast, &[c]);
    w.run();
    let heard = [w.peek(out + 16), w.peek(out + 24)];
    assert_eq!(heard, [0, 0], "A8: a lost wake-up");
    let until = hal::now() + 1_000_000;
    waiter(1, Call::CondWaitUntil, until);
    w.run();
    assert!(w.peek(out + 8) == 0 && hal::now() >= until);
    met.note(Call::CondWaitUntil, Code::Ok);
    met.is(&w, Call::CondSignal, &[c], Code::Ok);
    met.complete("Cond");
}

#[test]
fn mapping() {
    let mut met = common(Type::Mapping);
    let w = World::with_frames(64);
    let (m, state, dead) = (w.create(Call::MappingCreate), w.page(), dead_reference(&w));
    let set = |met: &mut Met, words: [u64; 4], region, space, code| {
        w.words(state, &words);
        met.is(&w, Call::MappingSetState, &[m, state, region, space], code);
    };
    let root = boot::ROOT_REGION;
    let page = PAGE_SIZE;
    for words in [
        [1, page, 0, 1],
        [page, 1, 0, 1],
        [page, page, 1, 1],
        [page, page, 0, 16],
        [abi::USER_END, page, 0, 1],
        [page, u64::MAX - page + 1, 0, 1],
        [page, page, 0u64.wrapping_sub(page), 1],
    ] {
        set(&mut met, words, root, 0, Code::Invalid);
    }
    set(&mut met, [0x7000_0000, page, 0, 1], dead, 0, Code::Dead);
    set(&mut met, [0x7000_0000, page, 0, 1], root, dead, Code::Dead);
    set(&mut met, [RAM, page, 0, 1], root, 0, Code::InUse);
    let first = w.physical(RAM);
    set(&mut met, [0x7000_0000, page, first, 3], root, 0, Code::Ok);
    met.is(&w, Call::MappingProtect, &[m, 16], Code::Invalid);
    // What it has shown, it shows no more when its rights are taken.
    let mutex = w.create(Call::MutexCreate);
    w.ok(Call::MutexGetState, &[mutex, 0x7000_0000]);
    met.is(&w, Call::MappingProtect, &[m, access::READ], Code::Ok);
    // It moves over its own range, and grows.
    set(
        &mut met,
        [0x7000_0000, 2 * page, first, 3],
        root,
        0,
        Code::Ok,
    );
    set(
        &mut met,
        [0x7000_1000, 2 * page, first, 3],
        root,
        0,
        Code::Ok,
    );
    met.is(&w, Call::MappingGetState, &[m, state + 64, 0, 0], Code::Ok);
    assert_eq!(w.peek(state + 64), 0x7000_1000);
    met.complete("Mapping");
}

fn dead_reference(w: &World) -> u64 {
    let m = w.create(Call::MutexCreate);
    let r = w.reference(Call::MutexReference, m);
    w.ok(Call::MutexDestroy, &[m, 0]);
    r
}

#[test]
fn region() {
    let mut met = common(Type::Region);
    let w = World::with_frames(64);
    let (r, state, dead) = (w.create(Call::RegionCreate), w.page(), dead_reference(&w));
    for words in [[1, PAGE_SIZE, 1], [0, 1, 1], [0, 1 << 63, 1], [0, 0, 99]] {
        w.words(state, &words);
        met.is(&w, Call::RegionSetState, &[r, state, 0, 0], Code::Invalid);
    }
    w.words(state, &[RAM, 4 * PAGE_SIZE, 15]);
    met.is(&w, Call::RegionSetState, &[r, state, dead, 0], Code::Dead);
    met.is(&w, Call::RegionSetState, &[r, state, 0, dead], Code::Dead);
    met.is(&w, Call::RegionSetState, &[r, state, 0, 0], Code::Ok);
    met.is(&w, Call::RegionProtect, &[r, 16], Code::Invalid);
    met.is(&w, Call::RegionProtect, &[r, 15], Code::Ok);
    let to = w.reference(Call::RegionReference, r);
    let all = 4 * PAGE_SIZE;
    met.is(
        &w,
        Call::RegionSearch,
        &[to, 0, all, 1 << 20],
        Code::Invalid,
    );
    met.is(&w, Call::RegionSearch, &[dead, 0, all, 1], Code::Dead);
    // It gives no right that it does not have itself.
    w.map(0, 0x7000_0000, PAGE_SIZE, to, 0);
    w.ok(Call::RegionProtect, &[r, access::READ]);
    let mutex = w.create(Call::MutexCreate);
    let write = [(RDI, mutex), (RSI, 0x7000_0000)];
    let met_with = wrong(&w, Call::MutexGetState, &write).0;
    assert_eq!(met_with, Exception::Memory as u64, "a right is gained");
    w.ok(Call::RegionProtect, &[r, access::ALL]);
    met.is(&w, Call::RegionSearch, &[to, 0, all, 1], Code::Ok);
    for from in [0, PAGE_SIZE, all, u64::MAX, u64::MAX - PAGE_SIZE] {
        met.is(
            &w,
            Call::RegionSearch,
            &[to, from, u64::MAX, 1 << 2],
            Code::NotFound,
        );
    }
    // The objects of the boot page, in order.
    let mut found = Vec::new();
    let mut at = 0;
    while w.sys(Call::RegionSearch, &[to, at, PAGE_SIZE, 0x3fe]) == Code::Ok {
        at = w.manager.ctx.rsi.get();
        found.push((at, w.manager.ctx.r8.get()));
        at += abi::OBJECT_SIZE;
    }
    let (space, thread) = (Type::Space as u64, Type::Thread as u64);
    assert_eq!(found[1..3], [(0x10, space), (0x20, thread)]);
    assert_eq!(found.last(), Some(&(0x1f0, Type::Region as u64)));
    met.complete("Region");
}

#[test]
fn port_and_portset() {
    let mut met = common(Type::Port);
    let w = World::with_frames(64);
    let (port, state, dead) = (w.create(Call::PortCreate), w.page(), dead_reference(&w));
    w.poke(state, 0x77);
    met.is(&w, Call::PortSetState, &[port, state, dead], Code::Dead);
    w.ok(Call::PortGetState, &[port, state + 8, 0]);
    assert_eq!(w.peek(state + 8), 0, "A2: changed by a call that failed");
    w.poke(state, 0xabcd);
    met.is(&w, Call::PortSetState, &[port, state, 0], Code::Ok);
    met.is(&w, Call::PortGetState, &[port, state + 8, 0], Code::Ok);
    assert_eq!(w.peek(state + 8), 0xabcd);
    met.complete("Port");
    common(Type::Portset).complete("Portset");
}

#[test]
fn space() {
    let mut met = common(Type::Space);
    let w = World::with_frames(64);
    let (s, state, dead) = (w.create(Call::SpaceCreate), w.page(), dead_reference(&w));
    let set = |met: &mut Met, words: [u64; 4], keeper, code| {
        w.words(state, &words);
        met.is(&w, Call::SpaceSetState, &[s, state, keeper], code);
    };
    set(&mut met, [2, 0, 0, 0], 0, Code::Invalid);
    set(&mut met, [0, 0, 0, 0], dead, Code::Dead);
    set(&mut met, [0, u64::MAX, 0, 0], 0, Code::NoMemory);
    set(&mut met, [0, 1 << 20, 5, 7], 0, Code::Ok);
    met.is(&w, Call::SpaceGetState, &[s, state + 64, 0], Code::Ok);
    assert_eq!(
        [w.peek(state + 72), w.peek(state + 80), w.peek(state + 88)],
        [1 << 20, 0, 7]
    );
    met.complete("Space");
}

#[test]
fn thread() {
    let mut met = common(Type::Thread);
    let w = World::with_frames(64);
    let (t, state, dead) = (w.create(Call::ThreadCreate), w.page(), dead_reference(&w));
    let set = |met: &mut Met, change: &[(usize, u64)], refs: [u64; 3], code| {
        let mut words = [0; THREAD_WORDS];
        (words[16], words[21], words[22]) = (CODE, 3, 1);
        change.iter().for_each(|&(at, word)| words[at] = word);
        w.words(state, &words);
        let args = [t, state, refs[0], refs[1], refs[2]];
        met.is(&w, Call::ThreadSetState, &args, code);
    };
    // One test per field: each can be something that no thread has.
    let bad: [&[(usize, u64)]; 17] = [
        &[(16, 1 << 47)],
        &[(16, u64::MAX)],
        &[(18, 1 << 47)],
        &[(19, 1 << 63)],
        &[(21, 32)],
        &[(22, 0)],
        &[(22, 1 << 32)],
        &[(23, 2)],
        &[(24, 9)],
        &[(24, 5)],
        &[(24, 6)],
        &[(24, 7)],
        &[(25, 9)],
        &[(25, 8)],
        &[(25, u64::MAX)],
        &[(26, 2)],
        &[(27, 256)],
    ];
    for change in bad {
        set(&mut met, change, [0; 3], Code::Invalid);
    }
    for n in 0..3 {
        let mut refs = [0; 3];
        refs[n] = dead;
        set(&mut met, &[(24, 1), (25, 2)], refs, Code::Dead);
    }
    set(&mut met, &[(17, u64::MAX), (20, 0x1234)], [0; 3], Code::Ok);
    met.is(&w, Call::ThreadGetState, &[t, state, 0, 0, 0], Code::Ok);
    // Interrupts on, no privilege, nothing reserved.
    assert_eq!(w.peek(state + 17 * 8) & 0x3202, 0x202);
    met.is(&w, Call::ThreadResume, &[t], Code::Ok);
    met.is(&w, Call::ThreadResume, &[t], Code::Invalid);
    set(&mut met, &[], [0; 3], Code::NotStopped);
    met.is(&w, Call::ThreadStop, &[t], Code::Ok);
    met.is(&w, Call::ThreadSetPriority, &[t, 32], Code::Invalid);
    met.is(&w, Call::ThreadSetPriority, &[t, 31], Code::Ok);
    let r = w.reference(Call::ThreadReference, t);
    met.is(&w, Call::ThreadInterrupt, &[dead], Code::Dead);
    met.is(&w, Call::ThreadInterrupt, &[r], Code::Ok);
    for (call, kind) in [
        (Call::ThreadReferenceClientEnd, RefKind::ClientEnd),
        (Call::ThreadReferenceServerEnd, RefKind::ServerEnd),
    ] {
        met.is(&w, call, &[t, r], Code::Ok);
        assert_eq!(w.sys(Call::ReferenceCheck, &[r]), Code::Ok);
        assert_eq!(w.manager.ctx.rdi.get(), kind as u64);
    }
    met.is(&w, Call::ThreadSelf, &[], Code::Ok);
    met.is(&w, Call::ThreadYield, &[], Code::Ok);
    met.is(&w, Call::ThreadSleepUntil, &[0], Code::Ok);
    let until = hal::now() + 5000;
    met.is(&w, Call::ThreadSleepUntil, &[until], Code::Ok);
    let woken = hal::now();
    assert!(
        (until..until + 1000).contains(&woken),
        "A7: a deadline is absolute, {until} not {woken}"
    );
    met.is(&w, Call::ThreadWaitInterruptUntil, &[0], Code::TimedOut);
    met.is(
        &w,
        Call::ThreadWaitInterruptUntil,
        &[hal::now() + 5000],
        Code::TimedOut,
    );
    w.ok(Call::ThreadReference, &[boot::ROOT_THREAD, r]);
    for call in [Call::ThreadWaitInterrupt, Call::ThreadWaitInterruptUntil] {
        w.ok(Call::ThreadInterrupt, &[r]);
        met.is(&w, call, &[0], Code::Ok);
    }
    // It stops and destroys itself.
    let n = w.object();
    let p = Program::new().call(Call::ThreadStop, &[(RDI, n)]);
    let p = p.call(Call::ThreadDestroy, &[(RDI, n), (RSI, 0)]).end();
    let made = w.thread(0, p, 4);
    w.ok(Call::ThreadMove, &[made, n]);
    w.run();
    assert_eq!(w.thread_at(n).stop_count.get(), 1);
    assert_eq!(w.thread_at(n).ctx.rax.get(), 0);
    met.is(&w, Call::ThreadResume, &[n], Code::Ok);
    w.run();
    assert_eq!(wrong(&w, Call::ThreadStop, &[(RDI, n)]), no_object(n));
    met.complete("Thread");
}

#[test]
fn reference() {
    let mut met = common(Type::Reference);
    let w = World::with_frames(64);
    let (r, state, dead) = (
        w.create(Call::ReferenceCreate),
        w.page(),
        dead_reference(&w),
    );
    let m = w.create(Call::MutexCreate);
    let to = w.reference(Call::MutexReference, m);
    met.is(&w, Call::ReferenceDestroy, &[to, to], Code::Invalid);
    met.is(&w, Call::ReferenceCheck, &[r], Code::Dead);
    met.is(&w, Call::ReferenceCheck, &[dead], Code::Dead);
    met.is(&w, Call::ReferenceCheck, &[to], Code::Ok);
    w.poke(state, RefKind::Cond as u64);
    met.is(&w, Call::ReferenceSetState, &[r, state, to], Code::Invalid);
    met.is(&w, Call::ReferenceEqual, &[r, to], Code::NotFound);
    w.poke(state, RefKind::Mutex as u64);
    met.is(&w, Call::ReferenceSetState, &[r, state, to], Code::Ok);
    met.is(&w, Call::ReferenceEqual, &[r, to], Code::Ok);
    met.is(&w, Call::ReferenceEqual, &[dead, dead], Code::Dead);
    met.is(&w, Call::ReferenceGetState, &[r, state, 0], Code::Ok);
    met.complete("Reference");
}

#[test]
fn clock_and_devices() {
    let mut met = Met::default();
    let w = World::with_frames(64);
    met.is(&w, Call::ClockGet, &[], Code::Ok);
    met.complete("Clock");

    let (none, dead) = (w.create(Call::ReferenceCreate), dead_reference(&w));
    let me = w.reference(Call::ThreadReference, boot::ROOT_THREAD);
    let t = w.create(Call::ThreadCreate);
    let other = w.reference(Call::ThreadReference, t);
    let space = w.reference(Call::SpaceReference, boot::ROOT_SPACE);
    let (region, _) = w.region(0, RAM, PAGE_SIZE, 0);
    let key = boot::AUTHORITY;
    let attach = Call::DeviceAttachInterrupt;
    met.is(&w, attach, &[none, me, 1], Code::Denied);
    met.is(&w, attach, &[key, dead, 1], Code::Dead);
    met.is(&w, attach, &[key, me, 99], Code::Invalid);
    met.is(&w, attach, &[key, me, u64::MAX], Code::Invalid);
    met.is(&w, attach, &[key, other, 3], Code::Ok);
    met.is(&w, attach, &[key, me, 3], Code::InUse);
    w.ok(Call::ThreadDestroy, &[t, 0]);
    assert!(!hal::host::irq_unmasked(3));
    met.is(&w, attach, &[key, me, 3], Code::Ok);
    let grant = Call::DeviceGrantPorts;
    met.is(&w, grant, &[none, space, 0x3f8, 8], Code::Denied);
    met.is(&w, grant, &[key, dead, 0x3f8, 8], Code::Dead);
    for (first, count) in [
        (0, 0),
        (0x1_0000, 1),
        (u64::MAX, 1),
        (1, 0x1_0000),
        (0, u64::MAX),
    ] {
        met.is(&w, grant, &[key, space, first, count], Code::Invalid);
    }
    met.is(&w, grant, &[key, space, 0x3f8, 8], Code::Ok);
    met.is(&w, grant, &[key, space, 0x3ff, 1], Code::InUse);
    assert!(hal::host::ports().contains(&(0x3f8, 8)));
    let physical = Call::DeviceMapPhysical;
    met.is(
        &w,
        physical,
        &[none, region, 1 << 30, PAGE_SIZE],
        Code::Denied,
    );
    for (start, size) in [
        (1 << 30, 0),
        (1, PAGE_SIZE),
        (1 << 30, 0u64.wrapping_sub(PAGE_SIZE)),
        (0u64.wrapping_sub(PAGE_SIZE), PAGE_SIZE),
        (w.physical(RAM), PAGE_SIZE),
    ] {
        met.is(&w, physical, &[key, region, start, size], Code::Invalid);
    }
    met.is(&w, physical, &[key, region, 1 << 30, PAGE_SIZE], Code::Ok);
    met.complete("Device");
}

/// No row of the table is without a test here or in `ipc`.
#[test]
fn every_row_has_a_test() {
    let here: Vec<&str> = TYPES
        .iter()
        .map(|ty| ty.name())
        .chain(vec!["clock", "device", "client", "server", "idempotent"])
        .collect();
    for row in SYSCALLS {
        let object = row.object.to_lowercase();
        assert!(
            here.contains(&object.as_str()),
            "{} belongs to {object}",
            row.name
        );
    }
}
