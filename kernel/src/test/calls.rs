//! Every entrypoint: each result code that its row in the table lists, wrong use, vacant and dead
//! identities.
//!
//! One function per object of the table, which the tests of [`super::conformance`] call: they fail if a test
//! has not met everything that its row lists. [`parties`] tests what holds for every ordinary call: wrong
//! handles, and identities that are vacant or dead.

use super::conformance::{Met, Outcome};
use super::world::*;
use crate::object::thread::Run;
use abi::state::{port_flags, Waiting, REGISTER_WORDS, THREAD_WORDS};
use abi::syscalls::{Param, Party};
use abi::{
    access, boot, Call, Code, Common, Exception, RefKind, Type, MAX_THREADS, PAGE_SIZE, PRIORITIES,
    ROLES, TYPES,
};
use std::vec::Vec;

/// A page in the first space on which objects cannot be made.
pub(super) fn plain_page(w: &World) -> u64 {
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

/// Makes a thread make a wrong call. Returns the exception that the thread meets.
fn wrong(w: &World, call: Call, registers: &[(R, u64)]) -> u64 {
    let t = w.thread(0, Program::new().call(call, registers).end(), 5);
    w.run();
    let t = w.thread_at(t);
    assert_eq!(t.run.get(), Run::Stopped, "{} is not wrong", call.name());
    u64::from(t.exception.get())
}

/// The six common calls of a type.
fn common(met: &mut Met, ty: Type) {
    let w = World::with_frames(64);
    let (a, b, c) = (w.object(), w.object(), w.object());
    let plain = plain_page(&w);
    let state = w.page();
    let r: Vec<u64> = (0..3).map(|_| w.create(Call::ReferenceCreate)).collect();

    met.is(&w, Common::Create.of(ty), &[a, 0], Code::Ok);
    met.is(&w, Common::Create.of(ty), &[a, 0], Code::InUse);
    met.is(&w, Common::Create.of(ty), &[plain, 0], Code::Denied);
    met.is(&w, Common::Create.of(ty), &[b, r[0]], Code::Dead);
    met.is(&w, Common::Reference.of(ty), &[a, r[0]], Code::Ok);
    met.is(&w, Common::Create.of(ty), &[b, r[0]], Code::Invalid);
    met.is(&w, Common::Move.of(ty), &[a, a], Code::Ok);
    met.is(&w, Common::Move.of(ty), &[a, plain], Code::Denied);
    met.is(&w, Common::Create.of(ty), &[b, 0], Code::Ok);
    met.is(&w, Common::Move.of(ty), &[a, b], Code::InUse);
    met.is(&w, Common::Move.of(ty), &[a, c], Code::Ok);
    met.is(&w, Common::Reference.of(ty), &[a, r[0]], Code::NoObject);
    met.is(&w, Common::Move.of(ty), &[c, a], Code::Ok);

    // The object is taken apart and made again, there and elsewhere; the reference still names it.
    met.is(&w, Common::GetState.of(ty), &[a, state, 0, 0, 0], Code::Ok);
    met.is(&w, Common::Destroy.of(ty), &[a, r[1]], Code::Ok);
    assert_eq!(w.sys(Call::ReferenceEqual, &[r[0], r[1]]), Code::Ok);
    assert_eq!(w.sys(Call::ReferenceCheck, &[r[0]]), Code::Ok);
    assert_eq!(w.manager.ctx.parameter(0).get(), ty as u64);
    met.is(&w, Common::Create.of(ty), &[c, r[1]], Code::Ok);
    met.is(&w, Common::SetState.of(ty), &[c, state, 0, 0, 0], Code::Ok);
    met.is(&w, Common::Reference.of(ty), &[c, r[2]], Code::Ok);
    assert_eq!(w.sys(Call::ReferenceEqual, &[r[0], r[2]]), Code::Ok);
    // The old address is free again.
    met.is(&w, Common::Move.of(ty), &[c, a], Code::Ok);

    // Calls that manage the object return `Vacant` and never wait; `destroy` ends the identity, and so does the
    // end of the reference that keeps it.
    for end in [None, Some(a), Some(r[1])] {
        met.is(&w, Common::GetState.of(ty), &[a, state, 0, 0, 0], Code::Ok);
        met.is(&w, Common::Destroy.of(ty), &[a, r[1]], Code::Ok);
        met.is(
            &w,
            Common::GetState.of(ty),
            &[a, state, 0, 0, 0],
            Code::Vacant,
        );
        met.is(
            &w,
            Common::SetState.of(ty),
            &[a, state, 0, 0, 0],
            Code::Vacant,
        );
        met.is(&w, Common::Move.of(ty), &[a, c], Code::Vacant);
        met.is(&w, Common::Reference.of(ty), &[a, r[2]], Code::Vacant);
        met.is(&w, Common::Destroy.of(ty), &[a, r[2]], Code::Vacant);
        assert_eq!(w.sys(Call::ReferenceCheck, &[r[0]]), Code::Ok);
        match end {
            None => {
                met.is(&w, Common::Create.of(ty), &[a, r[1]], Code::Ok);
                // A new body is not open before its state is set, except for its manager.
                met.is(&w, Common::SetState.of(ty), &[a, state, 0, 0, 0], Code::Ok);
                met.is(&w, Common::Reference.of(ty), &[a, r[2]], Code::Ok);
            }
            Some(end) => {
                if end == a {
                    met.is(&w, Common::Destroy.of(ty), &[a, 0], Code::Ok);
                    let code = w.sys(Call::ReferenceCheck, &[r[1]]);
                    assert_eq!(code, Code::Dead, "a reference that kept what was destroyed");
                } else {
                    w.ok(Call::ReferenceDestroy, &[r[1], 0]);
                }
                let code = w.sys(Call::ReferenceCheck, &[r[0]]);
                assert_eq!(code, Code::Dead, "a reference to what has ended");
                met.is(&w, Common::Create.of(ty), &[a, 0], Code::Ok);
                met.is(&w, Common::Reference.of(ty), &[a, r[0]], Code::Ok);
            }
        }
    }
    met.is(&w, Common::Destroy.of(ty), &[a, 0], Code::Ok);

    met.is(&w, Common::Destroy.of(ty), &[b, 0], Code::Ok);

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
    let p = Program::new().call(Common::Create.of(ty), &[(A0, 0x5000_0000), (A1, 0)]);
    w.thread(s, p.keep(0x5000_0800, RESULT).end(), 5);
    w.run();
    let code = Code::from_word(w.peek(page + 0x800));
    met.returned(Common::Create.of(ty), code, Code::NoMemory);
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
        match w.sys(Common::Create.of(ty), &[at, 0]) {
            Code::Ok => made.push(at),
            code => break assert_eq!(code, Code::NoMemory),
        }
    }
    hal::host::fail_allocations_after(u64::MAX);
    for at in made {
        w.ok(Common::Destroy.of(ty), &[at, 0]);
    }
    assert_eq!(
        used,
        w.manager
            .space()
            .and_then(|s| s.account.get())
            .map(|a| a.used())
    );
}

pub(super) fn mutex(met: &mut Met) {
    common(met, Type::Mutex);
    let w = World::with_frames(64);
    let (m, state) = (w.create(Call::MutexCreate), w.page());
    met.is(&w, Call::MutexUnlock, &[m], Code::Invalid);
    met.is(&w, Call::MutexLock, &[m], Code::Ok);
    met.is(&w, Call::MutexTrylock, &[m], Code::WouldBlock);
    met.is(&w, Call::MutexGetState, &[m, state], Code::Ok);
    assert_eq!(w.peek(state), 1);
    // Setting the state to unlocked lets the waiters try again.
    let p = Program::new()
        .call(Call::MutexLock, &[(A0, m)])
        .keep(state + 8, RESULT)
        .end();
    w.poke(state + 8, 9);
    w.thread(0, p, 5);
    w.run();
    // A more important thread is queued before those that wait already; the invariants check it.
    let p = Program::new().call(Call::MutexLock, &[(A0, m)]);
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
}

pub(super) fn cond(met: &mut Met) {
    common(met, Type::Cond);
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
            .call(Call::MutexLock, &[(A0, m)])
            .call(call, &[(A0, c), (A1, m), (A2, until)])
            .keep(out + n * 8, RESULT)
            .call(Call::MutexUnlock, &[(A0, m)]);
        w.poke(out + n * 8, 9);
        w.thread_at(w.thread(0, p.end(), 5))
    };
    for wake in [Call::CondSignal, Call::CondBroadcast] {
        let t = waiter(0, Call::CondWait, 0);
        w.run();
        assert_eq!(t.run.get(), Run::Waiting(Waiting::Cond));
        // The mutex is free meanwhile, and the frame has the rest of the call.
        let call = t.ctx.call().get();
        assert_eq!(call, Call::MutexLock as u64, "A3: what is left of it");
        met.is(&w, Call::MutexTrylock, &[m], Code::Ok);
        met.is(&w, wake, &[c], Code::Ok);
        w.run();
        assert_eq!(w.peek(out), 9, "A8: it returns without the mutex");
        met.is(&w, Call::MutexUnlock, &[m], Code::Ok);
        w.run();
        met.returned(Call::CondWait, Code::from_word(w.peek(out)), Code::Ok);
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
    assert!(hal::now() >= until, "A7: it returns before its deadline");
    met.returned(
        Call::CondWaitUntil,
        Code::from_word(w.peek(out + 8)),
        Code::Ok,
    );
    met.is(&w, Call::CondSignal, &[c], Code::Ok);
}

pub(super) fn mapping(met: &mut Met) {
    common(met, Type::Mapping);
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
        set(met, words, root, 0, Code::Invalid);
    }
    set(met, [0x7000_0000, page, 0, 1], dead, 0, Code::Dead);
    set(met, [0x7000_0000, page, 0, 1], root, dead, Code::Dead);
    set(met, [RAM, page, 0, 1], root, 0, Code::InUse);
    let first = w.physical(RAM);
    set(met, [0x7000_0000, page, first, 3], root, 0, Code::Ok);
    met.is(&w, Call::MappingProtect, &[m, 16], Code::Invalid);
    // Pages that were mapped through it are no longer there when its rights are taken.
    let mutex = w.create(Call::MutexCreate);
    w.ok(Call::MutexGetState, &[mutex, 0x7000_0000]);
    met.is(&w, Call::MappingProtect, &[m, access::READ], Code::Ok);
    // It moves over its own range, and grows.
    set(met, [0x7000_0000, 2 * page, first, 3], root, 0, Code::Ok);
    set(met, [0x7000_1000, 2 * page, first, 3], root, 0, Code::Ok);
    met.is(&w, Call::MappingGetState, &[m, state + 64, 0, 0], Code::Ok);
    assert_eq!(w.peek(state + 64), 0x7000_1000);
}

fn dead_reference(w: &World) -> u64 {
    let m = w.create(Call::MutexCreate);
    let r = w.reference(Call::MutexReference, m);
    w.ok(Call::MutexDestroy, &[m, 0]);
    r
}

pub(super) fn region(met: &mut Met) {
    common(met, Type::Region);
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
    // A mapping cannot give a right that its region does not have.
    w.map(0, 0x7000_0000, PAGE_SIZE, to, 0);
    w.ok(Call::RegionProtect, &[r, access::READ]);
    let mutex = w.create(Call::MutexCreate);
    let write = [(A0, mutex), (A1, 0x7000_0000)];
    let met_with = wrong(&w, Call::MutexGetState, &write);
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
        at = w.manager.ctx.parameter(1).get();
        found.push((at, w.manager.ctx.parameter(4).get()));
        at += abi::OBJECT_SIZE;
    }
    let (space, thread) = (Type::Space as u64, Type::Thread as u64);
    assert_eq!(found[1..3], [(0x10, space), (0x20, thread)]);
    assert_eq!(found.last(), Some(&(0x1f0, Type::Region as u64)));
}

pub(super) fn portset(met: &mut Met) {
    common(met, Type::Portset);
}

pub(super) fn port(met: &mut Met) {
    common(met, Type::Port);
    let w = World::with_frames(64);
    let (port, state, dead) = (w.create(Call::PortCreate), w.page(), dead_reference(&w));
    w.poke(state, 0x77);
    met.is(&w, Call::PortSetState, &[port, state, dead], Code::Dead);
    w.ok(Call::PortGetState, &[port, state + 8, 0]);
    assert_eq!(w.peek(state + 8), 0, "A2: changed by a call that failed");
    w.words(state, &[0xabcd, port_flags::ALL + 1]);
    met.is(&w, Call::PortSetState, &[port, state, 0], Code::Invalid);
    w.words(state, &[0xabcd, port_flags::ALL]);
    met.is(&w, Call::PortSetState, &[port, state, 0], Code::Ok);
    met.is(&w, Call::PortGetState, &[port, state + 8, 0], Code::Ok);
    assert_eq!(
        [w.peek(state + 8), w.peek(state + 16)],
        [0xabcd, port_flags::ALL]
    );
}

pub(super) fn space(met: &mut Met) {
    common(met, Type::Space);
    let w = World::with_frames(64);
    let (s, state, dead) = (w.create(Call::SpaceCreate), w.page(), dead_reference(&w));
    let set = |met: &mut Met, words: [u64; 5], keeper, code| {
        w.words(state, &words);
        met.is(&w, Call::SpaceSetState, &[s, state, keeper], code);
    };
    let top = PRIORITIES - 1;
    w.ok(Call::SpaceGetState, &[s, state + 64, 0]);
    assert_eq!(w.peek(state + 96), top.into(), "the ceiling of its maker");
    set(met, [2, 0, 0, 0, 0], 0, Code::Invalid);
    set(met, [0, 0, 0, 0, PRIORITIES.into()], 0, Code::Invalid);
    set(met, [0, 0, 0, 0, 0], dead, Code::Dead);
    set(met, [0, u64::MAX, 0, 0, 0], 0, Code::NoMemory);
    set(met, [0, 1 << 20, 5, 7, 9], 0, Code::Ok);
    met.is(&w, Call::SpaceGetState, &[s, state + 64, 0], Code::Ok);
    assert_eq!(
        [72, 80, 88, 96].map(|at| w.peek(state + at)),
        [1 << 20, 0, 7, 9]
    );
    let (_, poor) = w.space(0, 0, 0);
    for (space, payer, code) in [
        (s, dead, Code::Dead),
        (s, poor, Code::NoMemory),
        // The first space has no payer.
        (boot::ROOT_SPACE, poor, Code::Denied),
        (s, 0, Code::Ok),
    ] {
        met.is(&w, Call::SpaceSetPayer, &[space, payer], code);
    }
    // A thread whose space has a ceiling cannot set a higher one.
    let root = w.page();
    w.ok(Call::SpaceGetState, &[boot::ROOT_SPACE, root, 0]);
    w.poke(root + 32, 8);
    w.ok(Call::SpaceSetState, &[boot::ROOT_SPACE, root, 0]);
    set(met, [0, 1 << 20, 0, 0, 9], 0, Code::Denied);
    set(met, [0, 1 << 20, 0, 0, 8], 0, Code::Ok);
    w.poke(root + 32, top.into());
    assert_eq!(
        w.sys(Call::SpaceSetState, &[boot::ROOT_SPACE, root, 0]),
        Code::Denied,
        "a ceiling that its own space raises"
    );
}

/// A thread in a space with a ceiling, and a thread that is being put into such a space.
fn ceilings(met: &mut Met, w: &World, t: u64, state: u64) {
    let (space, s) = w.space(0, 0, 0);
    let words = state + 2048;
    w.ok(Call::SpaceGetState, &[space, words, 0]);
    w.poke(words + 32, 8);
    w.ok(Call::SpaceSetState, &[space, words, 0]);
    w.ok(Call::ThreadGetState, &[t, state, 0, 0, 0]);
    for (priority, code) in [(9, Code::Denied), (8, Code::Ok)] {
        w.poke(state + (REGISTER_WORDS as u64 + 1) * 8, priority);
        met.is(w, Call::ThreadSetState, &[t, state, s, 0, 0], code);
    }
    met.is(w, Call::ThreadSetPriority, &[t, 9], Code::Denied);
    met.is(w, Call::ThreadSetPriority, &[t, 8], Code::Ok);
    w.poke(state + (REGISTER_WORDS as u64 + 1) * 8, 0);
    w.ok(Call::ThreadSetState, &[t, state, 0, 0, 0]);
}

/// A space takes [`MAX_THREADS`] threads and no more; the state of a thread in it may still be set.
fn crowds(met: &mut Met, w: &World, t: u64, state: u64) {
    let (_, s) = w.space(0, 0, 0);
    w.ok(Call::ThreadGetState, &[t, state, 0, 0, 0]);
    let put = |thread: u64| w.sys(Call::ThreadSetState, &[thread, state, s, 0, 0]);
    let crowd: Vec<u64> = (0..MAX_THREADS)
        .map(|_| {
            let thread = w.create(Call::ThreadCreate);
            assert_eq!(put(thread), Code::Ok, "a thread of many");
            thread
        })
        .collect();
    met.is(
        w,
        Call::ThreadSetState,
        &[t, state, s, 0, 0],
        Code::NoMemory,
    );
    assert_eq!(put(crowd[0]), Code::Ok, "who is in it already");
    w.ok(Call::ThreadDestroy, &[crowd[1], 0]);
    assert_eq!(put(t), Code::Ok, "in the place of one that is gone");
    for thread in crowd.iter().filter(|&&thread| thread != crowd[1]) {
        w.ok(Call::ThreadDestroy, &[*thread, 0]);
    }
    w.ok(Call::ThreadSetState, &[t, state, 0, 0, 0]);
}

/// `thread_answer`, of a stopped thread whose state says that an exception has been received from it.
fn answers(met: &mut Met, w: &World, t: u64, state: u64) {
    let answer = state + 2048;
    let mut words = [0; THREAD_WORDS];
    (words[PC_WORD], words[PRIORITY_WORD], words[STOPS_WORD]) = (CODE, 3, 1);
    w.ok(Call::ThreadStop, &[t]);
    w.words(state, &words);
    w.ok(Call::ThreadSetState, &[t, state, 0, 0, 0]);
    let mut registers = [0; REGISTER_WORDS];
    registers[PC_WORD] = CODE + 64;
    w.words(answer, &registers);
    assert_eq!(
        w.sys(Call::ThreadAnswer, &[t, answer, 0]),
        Code::WrongStage,
        "A3: who waits for no answer is not given one"
    );
    words[DELIVERED_WORD] = 1;
    w.words(state, &words);
    w.ok(Call::ThreadSetState, &[t, state, 0, 0, 0]);
    w.poke(answer + PC_WORD as u64 * 8, 1 << 47);
    met.is(w, Call::ThreadAnswer, &[t, answer, 0], Code::Invalid);
    w.poke(answer + PC_WORD as u64 * 8, CODE + 64);
    for (wrong, what) in [
        (0x5555_5000, Exception::Memory),
        (answer + 4, Exception::Misaligned),
    ] {
        let out = w.page();
        w.poke(out, u64::MAX);
        let registers = [(A0, t), (A1, wrong)];
        let p = Program::new()
            .call(Call::ThreadAnswer, &registers)
            .keep(out, RESULT);
        let caller = w.thread(0, p.end(), 10);
        w.run();
        met.raised(Call::ThreadAnswer, outcome(w, caller, out), what, wrong);
    }
    let fpu = answer + 512;
    let mut bytes = abi::state::initial_fpu();
    bytes[160..168].copy_from_slice(&77u64.to_le_bytes());
    w.write(fpu, &bytes);
    met.is(w, Call::ThreadAnswer, &[t, answer, fpu], Code::Ok);
    w.ok(Call::ThreadGetState, &[t, state, 0, 0, 0]);
    let word = |n: usize| w.peek(state + 8 * n as u64);
    assert_eq!(
        (
            word(PC_WORD),
            word(DELIVERED_WORD),
            word(STOPS_WORD),
            word(THREAD_WORDS + 20)
        ),
        (CODE + 64, 0, 1, 77),
        "A3: an answer sets registers and FPU, ends the exception, and nothing else"
    );
    met.is(w, Call::ThreadAnswer, &[t, answer, 0], Code::WrongStage);
}

pub(super) fn thread(met: &mut Met) {
    common(met, Type::Thread);
    let w = World::with_frames(64);
    let (t, state, dead) = (w.create(Call::ThreadCreate), w.page(), dead_reference(&w));
    let set = |met: &mut Met, change: &[(usize, u64)], refs: [u64; 3], code| {
        let mut words = [0; THREAD_WORDS];
        (words[PC_WORD], words[PRIORITY_WORD], words[STOPS_WORD]) = (CODE, 3, 1);
        change.iter().for_each(|&(at, word)| words[at] = word);
        w.words(state, &words);
        let args = [t, state, refs[0], refs[1], refs[2]];
        met.is(&w, Call::ThreadSetState, &args, code);
    };
    // One test for each field, with a value that no thread can have.
    let bad: [&[(usize, u64)]; 17] = [
        &[(PC_WORD, 1 << 47)],
        &[(PC_WORD, u64::MAX)],
        &[(BASE_WORD, 1 << 47)],
        &[(BASE_WORD, 1 << 63)],
        &[(PRIORITY_WORD, 32)],
        &[(STOPS_WORD, 0)],
        &[(STOPS_WORD, 1 << 32)],
        &[(INTERRUPT_WORD, 2)],
        &[(CLIENT_WORD, 9)],
        &[(CLIENT_WORD, 5)],
        &[(CLIENT_WORD, 6)],
        &[(CLIENT_WORD, 7)],
        &[(SERVER_WORD, 9)],
        &[(SERVER_WORD, 8)],
        &[(SERVER_WORD, u64::MAX)],
        &[(DELIVERED_WORD, 2)],
        &[(DELIVERED_WORD + 1, 256)],
    ];
    for change in bad {
        set(met, change, [0; 3], Code::Invalid);
    }
    for n in 0..3 {
        let mut refs = [0; 3];
        refs[n] = dead;
        set(met, &[(CLIENT_WORD, 1), (SERVER_WORD, 2)], refs, Code::Dead);
    }
    set(
        met,
        &[(FLAGS_WORD, u64::MAX), (TAG_WORD, 0x1234)],
        [0; 3],
        Code::Ok,
    );
    met.is(&w, Call::ThreadGetState, &[t, state, 0, 0, 0], Code::Ok);
    // Interrupts on, no privilege, nothing reserved.
    let flags = ROLES.user_flags | ROLES.fixed_flags;
    assert_eq!(w.peek(state + FLAGS_WORD as u64 * 8), flags);
    met.is(&w, Call::ThreadResume, &[t], Code::Ok);
    met.is(&w, Call::ThreadResume, &[t], Code::Invalid);
    set(met, &[], [0; 3], Code::NotStopped);
    met.is(&w, Call::ThreadStop, &[t], Code::Ok);
    met.is(&w, Call::ThreadSetPriority, &[t, 32], Code::Invalid);
    ceilings(met, &w, t, state);
    crowds(met, &w, t, state);
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
        assert_eq!(w.manager.ctx.parameter(0).get(), kind as u64);
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
    answers(met, &w, t, state);
    // It stops and destroys itself.
    let n = w.object();
    let p = Program::new().call(Call::ThreadStop, &[(A0, n)]);
    let p = p.call(Call::ThreadDestroy, &[(A0, n), (A1, 0)]).end();
    let made = w.thread(0, p, 4);
    w.ok(Call::ThreadMove, &[made, n]);
    w.run();
    assert_eq!(w.thread_at(n).stop_count.get(), 1);
    assert_eq!(w.thread_at(n).ctx.call().get(), 0);
    met.is(&w, Call::ThreadResume, &[n], Code::Ok);
    w.run();
    met.is(&w, Call::ThreadStop, &[n], Code::NoObject);
}

pub(super) fn reference(met: &mut Met) {
    common(met, Type::Reference);
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
}

pub(super) fn clock(met: &mut Met) {
    let w = World::with_frames(64);
    met.is(&w, Call::ClockGet, &[], Code::Ok);
}

pub(super) fn device(met: &mut Met) {
    let w = World::with_frames(64);
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
    let detach = Call::DeviceDetachInterrupt;
    met.is(&w, detach, &[none, 3], Code::Denied);
    met.is(&w, detach, &[key, 99], Code::Invalid);
    met.is(&w, detach, &[key, u64::MAX], Code::Invalid);
    met.is(&w, detach, &[key, 3], Code::Ok);
    assert!(!hal::host::irq_unmasked(3), "a line without a thread");
    met.is(&w, detach, &[key, 3], Code::NotFound);
    let grant = Call::DeviceGrantPorts;
    met.is(&w, grant, &[none, space, 0x3f8, 8], Code::Denied);
    met.is(&w, grant, &[key, dead, 0x3f8, 8], Code::Dead);
    for (first, count) in [
        (0, 0),
        (0x1_0000, 1),
        (u64::MAX, 1),
        (1, 0x1_0000),
        // More ports than a range can have: the count must not be truncated.
        (0, 0x1_0000),
        (0, u64::MAX),
    ] {
        met.is(&w, grant, &[key, space, first, count], Code::Invalid);
    }
    met.is(&w, grant, &[key, space, 0x3f8, 8], Code::Ok);
    met.is(&w, grant, &[key, space, 0x3ff, 1], Code::InUse);
    assert!(hal::host::ports().contains(&(0x3f8, 8)));
    let revoke = Call::DeviceRevokePorts;
    met.is(&w, revoke, &[none, space, 0x3f8, 8], Code::Denied);
    met.is(&w, revoke, &[key, dead, 0x3f8, 8], Code::Dead);
    for (first, count) in [
        (0x3f8, 7),
        (0x3f9, 8),
        (0x1_03f8, 8),
        (0x3f8, 0x1_0008),
        (0, 0),
    ] {
        met.is(&w, revoke, &[key, space, first, count], Code::NotFound);
    }
    assert!(hal::host::ports().contains(&(0x3f8, 8)));
    met.is(&w, revoke, &[key, space, 0x3f8, 8], Code::Ok);
    assert_eq!(hal::host::ports(), [], "ports that were taken away");
    let (collocate, (_, empty)) = (Call::DeviceCollocate, w.space(1 << 14, 0, 0));
    met.is(&w, collocate, &[none, empty, 0], Code::Denied);
    met.is(&w, collocate, &[key, dead, 0], Code::Dead);
    met.is(&w, collocate, &[key, space, 0], Code::InUse);
    met.is(&w, collocate, &[key, empty, u64::MAX], Code::Invalid);
    met.is(&w, collocate, &[key, empty, 0], Code::Ok);
    let physical = Call::DeviceMapPhysical;
    // The end of the addresses that the processor has.
    let end = u64::from(hal::host::END_FRAME) * PAGE_SIZE;
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
        (end - PAGE_SIZE, 2 * PAGE_SIZE),
        (end, PAGE_SIZE),
    ] {
        met.is(&w, physical, &[key, region, start, size], Code::Invalid);
    }
    met.is(&w, physical, &[key, region, 1 << 30, PAGE_SIZE], Code::Ok);
    let last = end - PAGE_SIZE;
    met.is(&w, physical, &[key, region, last, PAGE_SIZE], Code::Ok);
}

// ---- every ordinary call alike --------------------------------------------------------------------

/// An identity without a body.
pub(super) struct Vacancy {
    ty: Type,
    handle: u64,
    state: u64,
    kept: u64,
    references: [u64; 3],
}

impl Vacancy {
    /// Takes the body of an object away, and keeps its identity.
    pub(super) fn begin(w: &World, ty: Type, handle: u64) -> Vacancy {
        let reference = || w.create(Call::ReferenceCreate);
        let vacancy = Vacancy {
            ty,
            handle,
            state: w.page(),
            kept: reference(),
            references: [reference(), reference(), reference()],
        };
        if ty == Type::Thread {
            w.ok(Call::ThreadStop, &[handle]);
        }
        let [a, b, c] = vacancy.references;
        w.ok(Common::GetState.of(ty), &[handle, vacancy.state, a, b, c]);
        w.ok(Common::Destroy.of(ty), &[handle, vacancy.kept]);
        vacancy
    }

    /// Gives the identity a body again, with the old state.
    pub(super) fn end(self, w: &World) {
        let [a, b, c] = self.references;
        w.ok(Common::Create.of(self.ty), &[self.handle, self.kept]);
        w.ok(
            Common::SetState.of(self.ty),
            &[self.handle, self.state, a, b, c],
        );
        if self.ty == Type::Thread {
            w.ok(Call::ThreadResume, &[self.handle]);
        }
    }
}

/// A call with all objects that it needs to succeed.
struct Ready {
    w: World,
    call: Call,
    args: [u64; 6],
    /// The objects at the handles among the parameters, and the targets of the references among them.
    parties: Vec<(Party, Type, u64)>,
    out: u64,
}

impl Ready {
    fn new(call: Call) -> Ready {
        let w = World::with_frames(96);
        let out = w.page();
        w.poke(out, u64::MAX);
        let mut ready = Ready {
            w,
            call,
            args: [0; 6],
            parties: Vec::new(),
            out,
        };
        for (index, &(name, param)) in call.row().params.iter().enumerate() {
            ready.args[index] = ready.argument(index, name, param);
        }
        ready.prepare();
        ready
    }

    /// A usable object of a type.
    fn sample(&self, ty: Type) -> u64 {
        let w = &self.w;
        match ty {
            Type::Port => w.port(w.create(Call::PortsetCreate), 5).0,
            Type::Region => w.region(0, w.page(), PAGE_SIZE, 0).0,
            Type::Mapping => {
                let page = w.page();
                let (_, region) = w.region(0, page, PAGE_SIZE, 0);
                w.map(0, 0x6000_0000 + page, PAGE_SIZE, region, 0)
            }
            Type::Space => w.space(1 << 14, 0, 0).0,
            Type::Thread => {
                let thread = w.thread(0, Program::new().end(), 5);
                w.run();
                thread
            }
            Type::Reference => w.reference(Call::MutexReference, w.create(Call::MutexCreate)),
            ty => w.create(Common::Create.of(ty)),
        }
    }

    fn argument(&mut self, index: usize, name: &str, param: Param) -> u64 {
        let row = self.call.row();
        let own = TYPES
            .into_iter()
            .find(|ty| row.object.to_lowercase() == ty.name());
        let handle = match param {
            Param::Fresh => return self.w.object(),
            Param::State | Param::Registers | Param::OptFpu => return self.w.page(),
            Param::Object(Type::Reference) | Param::OptReference if row.names(index) => {
                // The type of the reference's target, from the name of the parameter; otherwise any type.
                let ty = match name {
                    "keeper" => Type::Port,
                    "payer" => Type::Space,
                    "client_end" | "server_end" => Type::Thread,
                    "identity" => own.expect("the type of a new object"),
                    _ => TYPES
                        .into_iter()
                        .find(|ty| ty.name() == name && *ty != Type::Reference)
                        .unwrap_or(Type::Mutex),
                };
                let before = self.parties.iter().find(|p| p.0 == Party::Named(0));
                let target = match before {
                    // Both parameters of a comparison name the same.
                    Some(&(_, _, target)) => target,
                    None => self.sample(ty),
                };
                self.parties.push((Party::Named(index), ty, target));
                let w = &self.w;
                match name {
                    "client_end" => w.reference(Call::ThreadReferenceServerEnd, target),
                    "server_end" => w.reference(Call::ThreadReferenceClientEnd, target),
                    "identity" => {
                        let reference = w.create(Call::ReferenceCreate);
                        w.ok(Common::Destroy.of(ty), &[target, reference]);
                        reference
                    }
                    _ => w.reference(Common::Reference.of(ty), target),
                }
            }
            Param::Object(Type::Reference) if name == "authority" => {
                let (copy, state) = (self.w.create(Call::ReferenceCreate), self.w.page());
                self.w.poke(state, RefKind::Authority as u64);
                let args = [copy, state, boot::AUTHORITY];
                self.w.ok(Call::ReferenceSetState, &args);
                copy
            }
            Param::Object(ty) if index == 0 || ty != Type::Reference => self.sample(ty),
            Param::Object(_) | Param::OptReference => self.w.create(Call::ReferenceCreate),
            _ => return 0,
        };
        let ty = match param {
            Param::Object(ty) => ty,
            _ => Type::Reference,
        };
        self.parties.push((Party::Handle(index), ty, handle));
        handle
    }

    /// Sets up the objects, the state and the other parameters that the call needs.
    fn prepare(&mut self) {
        let (w, a) = (&self.w, &mut self.args);
        match self.call {
            Call::MutexUnlock => w.ok(Call::MutexLock, &[a[0]]),
            Call::CondWait | Call::CondWaitUntil => {
                w.ok(Call::MutexLock, &[a[1]]);
                a[2] = 1 << 40;
            }
            Call::RegionSearch => (a[2], a[3]) = (PAGE_SIZE, 1),
            Call::DeviceAttachInterrupt => a[2] = 3,
            Call::DeviceGrantPorts => (a[2], a[3]) = (0x3f8, 8),
            Call::DeviceDetachInterrupt => {
                let me = w.reference(Call::ThreadReference, boot::ROOT_THREAD);
                w.ok(Call::DeviceAttachInterrupt, &[boot::AUTHORITY, me, 3]);
                a[1] = 3;
            }
            Call::DeviceRevokePorts => {
                (a[2], a[3]) = (0x3f8, 8);
                w.ok(Call::DeviceGrantPorts, &[boot::AUTHORITY, a[1], a[2], a[3]]);
            }
            Call::DeviceMapPhysical => (a[2], a[3]) = (1 << 30, PAGE_SIZE),
            Call::DeviceCollocate => a[2] = 3,
            Call::MappingSetState => w.words(a[1], &[0x7000_0000, PAGE_SIZE, 0, access::READ]),
            Call::RegionSetState => w.words(a[1], &[RAM, PAGE_SIZE, access::ALL]),
            Call::SpaceSetState => w.words(a[1], &[0, 1 << 14, 0, 0, 31]),
            Call::ReferenceSetState => w.poke(a[1], RefKind::Mutex as u64),
            Call::ThreadSetState => {
                w.ok(Call::ThreadStop, &[a[0]]);
                let mut words = [0; THREAD_WORDS];
                // In both directions of a connection.
                (
                    words[PC_WORD],
                    words[STOPS_WORD],
                    words[CLIENT_WORD],
                    words[SERVER_WORD],
                ) = (CODE, 1, 1, 2);
                w.words(a[1], &words);
            }
            _ => {}
        }
    }

    fn party(&self, party: Party) -> (Type, u64) {
        let found = self.parties.iter().find(|p| p.0 == party);
        let &(_, ty, handle) =
            found.unwrap_or_else(|| panic!("{}: no {party:?}", self.call.name()));
        (ty, handle)
    }

    /// Makes a thread that makes the call.
    fn start(&self) -> u64 {
        let registers: Vec<(R, u64)> = ARGS.into_iter().zip(self.args).collect();
        let p = Program::new()
            .call(self.call, &registers)
            .keep(self.out, RESULT);
        let t = self.w.thread(0, p.end(), 10);
        self.w.run();
        t
    }

    fn outcome(&self, t: u64) -> Outcome {
        outcome(&self.w, t, self.out)
    }
}

/// The outcome of the call of a thread that stores its result at `out`.
pub(super) fn outcome(w: &World, t: u64, out: u64) -> Outcome {
    let code = w.peek(out);
    let t = w.thread_at(t);
    match t.run.get() {
        _ if code != u64::MAX => Outcome::Returned(Code::from_word(code)),
        Run::Waiting(why) => Outcome::Waits(why),
        run => match Exception::from_raw(u64::from(t.exception.get())) {
            Some(exception) => Outcome::Raised(exception, t.exception_address.get()),
            None => panic!("it is {run:?} in its call"),
        },
    }
}

/// Handles that are wrong where the handle of an object of this type is expected.
pub(super) fn wrong_handles(w: &World, ty: Type) -> [(Exception, u64); 4] {
    let other = if ty == Type::Mutex {
        Call::CondCreate
    } else {
        Call::MutexCreate
    };
    [
        (Exception::NoObject, w.object()),
        (Exception::WrongType, w.create(other)),
        (Exception::Misaligned, w.object() + 8),
        (Exception::Memory, 0x5555_5000),
    ]
}

/// Wrong handles, and parties whose identity is vacant or dead.
pub(super) fn parties(met: &mut Met, call: Call) {
    for party in call.row().parties() {
        let mut ready = Ready::new(call);
        // Without a new keeper `destroy` ends the identity.
        let ends = call.row().name.ends_with("_destroy") && party == Party::Handle(0);
        if ends {
            ready.args[1] = 0;
        }
        let (w, (ty, handle)) = (&ready.w, ready.party(party));
        let created = call.row().params[0].1 == Param::Fresh && matches!(party, Party::Named(_));
        let vacancy = (!created).then(|| Vacancy::begin(w, ty, handle));
        let t = ready.start();
        let first = ready.outcome(t);
        if let Some(vacancy) = vacancy.filter(|_| !ends) {
            vacancy.end(w);
            w.run();
        }
        met.vacant(call, party, first, ready.outcome(t));

        let mut ready = Ready::new(call);
        let (w, (ty, handle)) = (&ready.w, ready.party(party));
        if let (true, Party::Named(index)) = (created, party) {
            let object = ready.sample(ty);
            let reference = w.reference(Common::Reference.of(ty), object);
            w.ok(Common::Destroy.of(ty), &[object, 0]);
            ready.args[index] = reference;
        } else {
            w.ok(Common::Destroy.of(ty), &[handle, 0]);
        }
        met.dead(call, party, ready.outcome(ready.start()));

        let Party::Handle(index) = party else {
            continue;
        };
        for n in 0..4 {
            let mut ready = Ready::new(call);
            let (what, wrong) = wrong_handles(&ready.w, ready.party(party).0)[n];
            ready.args[index] = wrong;
            let outcome = ready.outcome(ready.start());
            if call.row().manages(index) && what != Exception::Misaligned {
                let none = Outcome::Returned(Code::NoObject);
                assert_eq!(outcome, none, "{} manages nothing", call.name());
                met.returned(call, Code::NoObject, Code::NoObject);
            } else {
                met.raised(call, outcome, what, wrong);
            }
        }
    }
    for (index, (_, kind)) in call.row().params.iter().enumerate() {
        if matches!(kind, Param::Fresh | Param::State) {
            for what in [Exception::Memory, Exception::Misaligned] {
                let mut ready = Ready::new(call);
                let wrong = match what {
                    Exception::Memory => 0x5555_5000,
                    _ => ready.args[index] + 4,
                };
                ready.args[index] = wrong;
                met.raised(call, ready.outcome(ready.start()), what, wrong);
            }
        }
    }
}
