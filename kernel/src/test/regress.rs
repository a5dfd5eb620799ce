//! Tests of mistakes that have been corrected.

use super::calls::{self, plain_page};
use super::conformance::Outcome;
use super::world::*;
use crate::object::cond::Cond;
use crate::object::thread::{Hint, Run};
use crate::object::{NonNullLink, Object, Phase};
use crate::stop::Access;
use abi::message::EXCEPTION_WORDS;
use abi::state::{space_flags, Stage, Waiting, REGISTER_WORDS, THREAD_WORDS};
use abi::{access, boot, ref_list, Call, Code, Exception, OBJECT_SIZE, PAGE_SIZE, ROLES};
use hal::Pfn;

/// A portset with a port: (portset, reference to the port).
fn service(w: &World) -> (u64, u64) {
    let set = w.create(Call::PortsetCreate);
    (set, w.port(set, 1).1)
}

/// A thread that makes an idempotent request with this memory and this list of segments, and no room for a reply; it
/// stores the result at `result`.
fn request(w: &World, port: u64, memory: (u64, u64), list: (u64, u64), result: u64) {
    let send = [
        (A0, port),
        (A1, memory.0),
        (A2, memory.1),
        (A3, list.0),
        (A4, list.1),
        (A5, 0),
        (A7, 0),
        (A9, 0),
        (A10, 0),
    ];
    let p = Program::new().call(Call::Call, &send);
    w.thread(0, p.keep(result, RESULT).end(), 8);
}

/// A message never changes memory that its receiver may only read, in however many pieces it comes, also when the page is
/// in the receiver's page table already.
#[test]
fn what_is_read_only_receives_nothing() {
    const SEEN: u64 = 0x9000_0000;
    for (call, wait) in [
        (Call::Call, Call::ServerWaitReceive),
        (Call::ClientConnectSendOver, Call::ServerWaitReceive),
    ] {
        for listed in [false, true] {
            let w = World::with_frames(64);
            let (set, port) = service(&w);
            let (page, from, room, lists) = (w.page(), w.page(), w.page(), w.page());
            let at = w.physical(page);
            let mapping = w.map(0, SEEN, PAGE_SIZE, boot::ROOT_REGION, at);
            w.ok(Call::MappingProtect, &[mapping, access::READ]);
            w.words(page, &[77, 78]);
            w.words(from, &[1, 2]);
            w.words(lists, &[SEEN, 8, from + 8, 8]);
            let (memory, count) = if listed { (room, 1) } else { (SEEN, 0) };
            let receive = [
                (A0, set),
                (A6, memory),
                (A7, 8),
                (A8, lists),
                (A9, count),
                (A10, 0),
            ];
            let p = Program::new().load(SEEN, A11).call(wait, &receive).end();
            w.thread(0, p, 9);
            w.run();
            let send = [
                (A0, port),
                (A1, from),
                (A2, 8),
                (A3, lists + 16),
                (A4, count),
                (A5, 0),
                (A7, 0),
                (A9, 0),
                (A10, 0),
            ];
            w.thread(0, Program::new().call(call, &send).end(), 8);
            w.run();
            let seen = [w.peek(page), w.peek(page + 8)];
            let case = std::format!("{}, listed: {listed}", call.name());
            assert_eq!(
                seen,
                [77, 78],
                "S2: what may only be read is written: {case}"
            );
        }
    }
}

/// A server that has replied owes no reply any more, whichever call it made and whichever way the reply went.
#[test]
fn a_reply_ends_the_duty_to_reply() {
    for (wait, reply, call) in [
        (Call::ServerWaitReceive, Call::Reply, Call::Call),
        (
            Call::ServerWaitReceiveShort,
            Call::ReplyShort,
            Call::CallShort,
        ),
    ] {
        let w = World::with_frames(64);
        let (set, port) = service(&w);
        let (from, room, out, state) = (w.page(), w.page(), w.page(), w.pages(2));
        let receive = [(A0, set), (A6, room), (A7, 8), (A9, 0), (A10, 0)];
        let send = [(A1, from), (A2, 8), (A4, 0), (A5, 0)];
        let p = Program::new()
            .call(wait, &receive)
            .call(reply, &send)
            .keep(out, RESULT)
            .call(Call::ThreadWaitInterrupt, &[]);
        let server = w.thread(0, p.end(), 9);
        w.run();
        let receive = [(A6, room + 8), (A7, 8), (A9, 0), (A10, 0)];
        let p = Program::new()
            .call(call, &[&[(A0, port)], &send[..], &receive[..]].concat())
            .keep(out + 8, RESULT);
        w.thread(0, p.end(), 8);
        w.run();
        let ends = [out, out + 8].map(|at| Code::from_word(w.peek(at)));
        assert_eq!(ends, [Code::Ok; 2], "{}", call.name());
        w.ok(Call::ThreadStop, &[server]);
        w.ok(Call::ThreadGetState, &[server, state, 0, 0, 0]);
        let owed = w.peek(state + 8 * SERVER_WORD as u64);
        assert_eq!(owed, 0, "A3: a reply is owed after {}", reply.name());
    }
}

/// A server that waits for a register message is told the length of a request that comes from memory.
#[test]
fn a_request_from_memory_has_its_length() {
    for length in [0, 8, 16, 24, 32, 40, 48] {
        let w = World::with_frames(48);
        let (set, port) = service(&w);
        let (from, out) = (w.page(), w.page());
        let receive = [(A0, set), (A9, 0), (A10, 0)];
        let p = Program::new().call(Call::ServerWaitReceiveShort, &receive);
        w.thread(0, p.keep(out, RESULT).end(), 9);
        w.run();
        request(&w, port, (from, length), (0, 0), out + 8);
        w.run();
        let seen = w.peek(out);
        let said = Code::Call as u64 | length << 8;
        assert_eq!(seen, said, "as much arrives as was sent: {length}");
    }
}

/// No part of a request that does not fit is written.
#[test]
fn a_request_that_does_not_fit_changes_nothing() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let (from, room, out) = (w.page(), w.page(), w.page());
    let receive = [(A0, set), (A6, room), (A7, 8), (A9, 0), (A10, 0)];
    let p = Program::new().call(Call::ServerWaitReceive, &receive).end();
    w.thread(0, p, 9);
    w.run();
    w.words(from, &[1, 2]);
    w.words(room, &[77, 78]);
    request(&w, port, (from, 16), (0, 0), out);
    w.run();
    assert_eq!(Code::from_word(w.peek(out)), Code::TooLarge);
    assert_eq!(
        (w.peek(room), w.peek(room + 8)),
        (77, 78),
        "A2: a part is written"
    );
}

/// The kernel's hint about a wait is void when a manager has set another state.
#[test]
fn a_state_that_is_set_has_no_notes_of_the_old_one() {
    let w = World::with_frames(64);
    let (_, port) = service(&w);
    let state = w.page();
    let p = Program::new().call_short(Call::CallShort, 8, &[(A0, port), (A9, 0)]);
    let client = w.thread(0, p.end(), 5);
    w.run();
    let t = w.thread_at(client);
    assert_eq!(t.run.get(), Run::Waiting(Waiting::Port));
    assert!(!matches!(t.hint.get(), Hint::None), "it waits at the port");
    let refs = [(); 3].map(|()| w.create(Call::ReferenceCreate));
    w.ok(Call::ThreadStop, &[client]);
    let arguments = [client, state, refs[0], refs[1], refs[2]];
    w.ok(Call::ThreadGetState, &arguments);
    w.ok(Call::ThreadSetState, &arguments);
    assert!(
        matches!(t.hint.get(), Hint::None),
        "A1: a note of the old state"
    );
}

/// A thread that is stopped twice goes on when it is resumed twice.
#[test]
fn stops_count() {
    let w = World::with_frames(64);
    let out = w.page();
    w.poke(out, 99);
    let p = Program::new().call(Call::ThreadYield, &[]);
    let t = w.thread(0, p.keep(out, RESULT).end(), 5);
    for _ in 0..2 {
        w.ok(Call::ThreadStop, &[t]);
    }
    w.ok(Call::ThreadResume, &[t]);
    w.run();
    assert_eq!(w.peek(out), 99, "one resume undoes two stops");
    w.ok(Call::ThreadResume, &[t]);
    w.run();
    assert_eq!(w.peek(out), 0, "it goes on");
}

/// A running thread, with no other ready thread of its priority, had the end of its slice in the past, and the
/// timer rang for ever.
#[test]
fn the_timer_does_not_ring_in_the_past() {
    let w = World::with_frames(64);
    w.thread(0, Program::new().end(), 5);
    hal::host::set_now(hal::now() + 100_000_000);
    w.ok(Call::ThreadYield, &[]);
    w.step();
    w.step();
    assert!(
        hal::host::deadline() > hal::now(),
        "the timer is set to the past"
    );
}

/// Taking a member out of the middle of a list cut the list behind it.
#[test]
fn lists_survive_removal_in_the_middle() {
    for order in [[1, 2, 0], [1, 0, 2], [0, 1, 2], [2, 1, 0]] {
        let w = World::with_frames(64);
        let (_, s) = w.space(0, 0, 0);
        let (_, region) = w.region(0, RAM, 8 * PAGE_SIZE, 0);
        let maps: std::vec::Vec<u64> = (0..3)
            .map(|n| w.map(s, 0x10_0000 * (n + 1), PAGE_SIZE, region, 0))
            .collect();
        let regions: std::vec::Vec<u64> = (0..3)
            .map(|_| w.region(s, 0x10_0000, PAGE_SIZE, 0).0)
            .collect();
        let threads: std::vec::Vec<u64> = (0..3)
            .map(|_| w.thread(s, Program::new().end(), 5))
            .collect();
        for n in order {
            w.ok(Call::MappingDestroy, &[maps[n], 0]);
            w.ok(Call::RegionDestroy, &[regions[n], 0]);
            w.ok(Call::ThreadDestroy, &[threads[n], 0]);
        }
    }
}

/// A deadline that saturates was linked but never unlinked.
#[test]
fn a_deadline_of_never() {
    let w = World::with_frames(64);
    let (space, s) = w.space(0, 0, 0);
    let state = w.page();
    w.words(state, &[0, 0, 0, u64::MAX - 1000, TOP]);
    w.ok(Call::SpaceSetState, &[space, state, 0]);
    let p = || {
        Program::new()
            .call(Call::ThreadSleepUntil, &[(A0, u64::MAX)])
            .end()
    };
    let threads = [
        w.thread(s, p(), 5),
        w.thread(s, p(), 5),
        w.thread(0, p(), 5),
    ];
    w.run();
    for t in threads {
        w.ok(Call::ThreadStop, &[t]);
        w.ok(Call::ThreadResume, &[t]);
        w.run();
        w.ok(Call::ThreadDestroy, &[t, 0]);
    }
}

/// A thread of high priority in a vacant space, the first in the queue for a vacancy, made the kernel wake it
/// for ever.
#[test]
fn waiters_in_vacant_spaces() {
    let w = World::with_frames(64);
    let kept = [
        w.create(Call::ReferenceCreate),
        w.create(Call::ReferenceCreate),
    ];
    let (space, s) = w.space(0, 0, 0);
    let m = w.create(Call::MutexCreate);
    let p = Program::new()
        .call(Call::ThreadSleepUntil, &[(A0, 0)])
        .jump(0);
    w.thread(s, p, 20);
    w.ok(Call::SpaceDestroy, &[space, kept[0]]);
    w.ok(Call::MutexDestroy, &[m, kept[1]]);
    let t = w.thread(0, Program::new().call(Call::MutexLock, &[(A0, m)]).end(), 5);
    w.run();
    assert_eq!(w.thread_at(t).run.get(), Run::Waiting(Waiting::Vacant));
    w.ok(Call::ReferenceDestroy, &[kept[1], 0]);
    w.run();
    assert_eq!(w.thread_at(t).run.get(), Run::Stopped);
}

/// A thread that waits when its space ends no longer waits: it halts with an exception.
#[test]
fn who_waits_stops_when_its_space_ends() {
    let w = World::with_frames(64);
    let (space, s) = w.space(0, 0, 0);
    let p = Program::new().call(Call::ThreadWaitInterrupt, &[]).end();
    let t = w.thread_at(w.thread(s, p, 5));
    w.run();
    let waits = t.run.get();
    assert!(matches!(waits, Run::Waiting(_)), "{waits:?}");
    w.ok(Call::SpaceDestroy, &[space, 0]);
    w.run();
    assert_eq!(t.run.get(), Run::Stopped, "A6: it has no space to go on in");
}

/// A server thread whose state was set so that it owed a reply to a call, when it owed one to a fault, could
/// write into the frame and memory of the thread that faulted.
#[test]
fn a_fault_is_not_answered_as_a_call() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let (_, region) = w.region(0, 0x9000_0000, PAGE_SIZE, port);
    let (_, s) = w.space(0, 0, 0);
    w.map(s, 0x50_0000, PAGE_SIZE, region, 0);
    let victim = Program::new()
        .op(|c| {
            c.call().set(Call::CallShort as u64);
            c.parameter(1).set(0x1234);
        })
        .load(0x50_0000, A10)
        .end();
    let victim = w.thread_at(w.thread(s, victim, 5));
    let state = w.page();
    let p = Program::new()
        .call(
            Call::ServerWaitReceiveShort,
            &[(A0, set), (A10, 0), (A9, 0)],
        )
        .call(Call::ThreadWaitInterrupt, &[])
        .call_short(Call::ReplyShort, 8, &[(A1, 0x6666), (A9, 0)])
        .keep(state + 2048, RESULT)
        .end();
    let server = w.thread(0, p, 6);
    w.run();
    assert_eq!(victim.run.get(), Run::Waiting(Waiting::Reply));
    let (space, end) = (
        w.create(Call::ReferenceCreate),
        w.create(Call::ReferenceCreate),
    );
    w.ok(Call::ThreadStop, &[server]);
    w.ok(Call::ThreadGetState, &[server, state, space, 0, end]);
    w.poke(state + (REGISTER_WORDS as u64 + 5) * 8, Stage::Call as u64);
    // An interrupt is pending, so that the server goes on to reply.
    w.poke(state + (REGISTER_WORDS as u64 + 3) * 8, 1);
    w.ok(Call::ThreadSetState, &[server, state, space, 0, end]);
    w.ok(Call::ThreadResume, &[server]);
    w.run();
    assert_eq!(
        (w.peek(state + 2048), victim.ctx.parameter(1).get()),
        (0, 0x1234)
    );
    assert_eq!(victim.ctx.call().get(), Call::CallShort as u64);
}

/// A server whose state is set so that it owes a reply to a call that another server has taken cannot reply to
/// it.
#[test]
fn a_stranger_does_not_answer() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let p = Program::new().call_short(Call::CallShort, 8, &[(A0, port), (A1, 0x1234), (A9, 0)]);
    let client = w.thread(0, p.end(), 5);
    let p = Program::new().call(
        Call::ServerWaitReceiveShort,
        &[(A0, set), (A10, 0), (A9, 0)],
    );
    w.thread(0, p.end(), 6);
    let state = w.page();
    let p = Program::new()
        .call_short(Call::ReplyShort, 8, &[(A1, 0x6666), (A9, 0)])
        .keep(state + 2048, RESULT);
    let stranger = w.thread(0, p.end(), 6);
    w.ok(Call::ThreadStop, &[stranger]);
    w.run();
    let caller = w.thread_at(client);
    assert_eq!(caller.run.get(), Run::Waiting(Waiting::Reply));
    let space = w.create(Call::ReferenceCreate);
    w.ok(Call::ThreadGetState, &[stranger, state, space, 0, 0]);
    let end = w.reference(Call::ThreadReferenceClientEnd, client);
    w.poke(state + (REGISTER_WORDS as u64 + 5) * 8, Stage::Call as u64);
    w.poke(state + 2048, 99);
    w.ok(Call::ThreadSetState, &[stranger, state, space, 0, end]);
    w.ok(Call::ThreadResume, &[stranger]);
    w.run();
    // The reply is dropped, like a reply to a thread that has ended.
    assert_eq!(w.peek(state + 2048), 0);
    let waits = (caller.run.get(), caller.ctx.parameter(1).get());
    let rule = "A8: only who owes a reply completes the call";
    assert_eq!(waits, (Run::Waiting(Waiting::Reply), 0x1234), "{rule}");
}

/// The former keeper could reply to an exception that had been delivered again.
#[test]
fn a_late_answer_to_an_exception() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let (_, s) = w.space(0, 0, port);
    let victim = w.thread(s, Program::new().push(Instr::Bad(6)).end(), 5);
    let keeper = |buffer: u64| {
        let words = EXCEPTION_WORDS as u64 * 8;
        let registers = buffer + words - REGISTER_WORDS as u64 * 8;
        let p = Program::new()
            .call(
                Call::ServerWaitReceive,
                &[(A0, set), (A6, buffer), (A7, words), (A9, 0), (A10, 0)],
            )
            .call(Call::ThreadWaitInterrupt, &[])
            .op(|c| c.parameter(11).set(0xbad))
            .keep(registers + 8 * ROLES.parameters[10] as u64, A11)
            .call(
                Call::Reply,
                &[
                    (A1, registers),
                    (A2, REGISTER_WORDS as u64 * 8),
                    (A4, 0),
                    (A5, 0),
                ],
            )
            .keep(buffer + 2048, RESULT);
        w.thread(0, p.end(), 6)
    };
    let buffer = w.page();
    let first = keeper(buffer);
    w.run();
    // The manager sets the thread's state back, so that the thread meets its exception again: another keeper gets it.
    let (state, space) = (w.page(), w.create(Call::ReferenceCreate));
    keeper(w.page());
    w.run();
    w.ok(Call::ThreadStop, &[victim]);
    w.ok(Call::ThreadGetState, &[victim, state, space, 0, 0]);
    w.poke(state + (REGISTER_WORDS as u64 + 6) * 8, 0);
    w.ok(Call::ThreadSetState, &[victim, state, space, 0, 0]);
    w.ok(Call::ThreadResume, &[victim]);
    w.run();
    let to = w.reference(Call::ThreadReference, first);
    w.ok(Call::ThreadInterrupt, &[to]);
    w.poke(buffer + 2048, 99);
    w.run();
    let t = w.thread_at(victim);
    assert_eq!(
        w.peek(buffer + 2048),
        0,
        "a late answer is dropped, not refused"
    );
    assert_eq!(
        (t.run.get(), t.ctx.parameter(10).get()),
        (Run::Waiting(Waiting::Exception), 0),
        "A8: only who has the exception answers it"
    );
}

/// A scatter list was not counted against the limit of an idempotent message.
#[test]
fn the_limit_of_an_idempotent_message() {
    let w = World::with_frames(96);
    let (set, port) = service(&w);
    let (list, big, out) = (w.page(), w.pages(16), w.page());
    let half = abi::MAX_IDEMPOTENT / 2;
    for n in 0..3 {
        w.words(list + n * 16, &[big, half]);
        w.words(list + 512 + n * 16, &[big, half]);
    }
    let receive = [
        (A0, set),
        (A6, big),
        (A7, 0),
        (A8, list + 512),
        (A9, 3),
        (A10, 0),
    ];
    w.thread(
        0,
        Program::new()
            .call(Call::ServerWaitReceive, &receive)
            .keep(out, RESULT)
            .end(),
        9,
    );
    w.poke(out, 99);
    for (segments, code) in [(3, Code::TooLarge), (2, Code::Call)] {
        request(&w, port, (0, 0), (list, segments), out + 8);
        w.run();
        let at = if code == Code::Call { out } else { out + 8 };
        assert_eq!(Code::from_word(w.peek(at)), code);
    }
}

/// A place in the client's list of references that was not a reference made the client send its request again
/// for ever.
#[test]
fn a_wrong_place_for_a_reply() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let (buffer, m) = (w.page(), w.create(Call::MutexCreate));
    let r = w.reference(Call::MutexReference, m);
    let call = [
        (A0, port),
        (A2, 0),
        (A4, 0),
        (A5, 0),
        (A7, 0),
        (A9, 0),
        (A10, ref_list(m, 1)),
    ];
    let client = w.thread(0, Program::new().call(Call::Call, &call).end(), 8);
    let receive = [(A0, set), (A6, buffer), (A7, 8), (A9, 0), (A10, 0)];
    let mut both = receive.to_vec();
    both.extend([(A2, 0), (A4, 0), (A5, ref_list(r, 1))]);
    let p = Program::new().call(Call::ServerWaitReceive, &receive);
    w.thread(0, p.call(Call::ReplyWaitReceive, &both).jump(2), 9);
    w.run();
    let t = w.thread_at(client);
    assert_eq!(u64::from(t.exception.get()), Exception::WrongType as u64);
}

/// Empty segments with a wild address faulted instead of being full.
#[test]
fn an_empty_segment_anywhere() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let out = w.page();
    let receive = [(A0, set), (A6, u64::MAX), (A7, 0), (A9, 0), (A10, 0)];
    w.thread(
        0,
        Program::new()
            .call(Call::ServerWaitReceive, &receive)
            .keep(out, RESULT)
            .end(),
        9,
    );
    let send = [(A0, port), (A1, out), (A2, 8), (A4, 0), (A5, 0)];
    w.thread(
        0,
        Program::new().call(Call::ClientConnectSend, &send).end(),
        8,
    );
    w.poke(out, 99);
    w.run();
    assert_eq!(Code::from_word(w.peek(out)), Code::More);
}

/// A state that names no space moved the thread into the space of the caller.
#[test]
fn a_null_reference_is_no_space() {
    let w = World::with_frames(64);
    let (t, null, state) = (
        w.create(Call::ThreadCreate),
        w.create(Call::ReferenceCreate),
        w.page(),
    );
    w.ok(Call::ThreadGetState, &[t, state, null, 0, 0]);
    w.ok(Call::ThreadSetState, &[t, state, null, 0, 0]);
    assert!(w.thread_at(t).space().is_none());
    w.ok(Call::ThreadResume, &[t]);
    w.run();
    assert_eq!(
        u64::from(w.thread_at(t).exception.get()),
        Exception::NoSpace as u64
    );
    let m = w.create(Call::MappingCreate);
    w.words(
        state,
        &[0x7000_0000, PAGE_SIZE, w.physical(RAM), access::ALL],
    );
    w.ok(Call::MappingSetState, &[m, state, boot::ROOT_REGION, null]);
    let s = w.create(Call::RegionCreate);
    w.ok(Call::RegionSetState, &[s, state + 512, null, 0]);
    assert_eq!(THREAD_WORDS, REGISTER_WORDS + 12);
}

/// Setting a clock moves the deadlines of the threads that wait on it.
#[test]
fn a_clock_that_is_set() {
    let w = World::with_frames(64);
    let (space, s) = w.space(0, 0, 0);
    let (page, state) = (w.page(), w.page());
    w.map(s, 0x50_0000, PAGE_SIZE, boot::ROOT_REGION, w.physical(page));
    // One thread keeps the processor from sleeping.
    w.thread(0, Program::new().op(|_| ()).jump(0), 1);
    let p = Program::new()
        .call(Call::ThreadSleepUntil, &[(A0, 1 << 50)])
        .keep(0x50_0000, RESULT);
    w.thread(s, p.end(), 9);
    w.poke(page, 99);
    let turn = || {
        w.release();
        (0..200).for_each(|_| assert_ne!(w.step(), Met::Idle));
        w.call_manager();
    };
    turn();
    assert_eq!(w.peek(page), 99);
    w.words(state, &[0, 0, 0, 1 << 50, TOP]);
    w.ok(Call::SpaceSetState, &[space, state, 0]);
    turn();
    assert_eq!(w.peek(page), 0);
}

/// A caller waited although a second server waited, too.
#[test]
fn a_second_server() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let (out, quiet) = (w.page(), service(&w).1);
    // The first server's buffer is absent, and its keeper does not reply.
    let (_, region) = w.region(0, 0x9000_0000, PAGE_SIZE, quiet);
    w.map(0, 0x50_0000, PAGE_SIZE, region, 0);
    for (buffer, priority) in [(0x50_0000, 10), (out + 512, 9)] {
        let receive = [(A0, set), (A6, buffer), (A7, 64), (A9, 0), (A10, 0)];
        let p = Program::new().call(Call::ServerWaitReceive, &receive);
        w.thread(
            0,
            p.keep(out, RESULT)
                .call(Call::Reply, &[(A2, 0), (A4, 0), (A5, 0)])
                .end(),
            priority,
        );
    }
    w.run();
    request(&w, port, (out, 8), (0, 0), out + 8);
    w.poke(out + 8, 99);
    w.run();
    assert_eq!((w.peek(out), w.peek(out + 8)), (Code::Call as u64, 0));
}

/// A manager of objects in another program's memory had an exception when that program took them away at the same
/// moment, so it could only manage them while no other thread ran.
#[test]
fn what_is_managed_and_gone_is_a_code() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let (got, out) = (w.page(), w.page());
    // A page that its keeper does not supply.
    let (_, region) = w.region(0, 0x9000_0000, PAGE_SIZE, port);
    w.map(0, 0x50_0000, PAGE_SIZE, region, 0);
    let receive = [(A0, set), (A6, got + 512), (A7, 64), (A9, 0), (A10, 0)];
    let reply = [(A2, 0), (A4, 0), (A5, 0)];
    let keeper = Program::new().call(Call::ServerWaitReceive, &receive);
    w.thread(
        0,
        keeper.keep(got, RESULT).call(Call::Reply, &reply).end(),
        9,
    );
    w.run();
    let manages = |call, handle, word| {
        w.poke(out, u64::MAX);
        let p = Program::new().call(call, &[(A0, handle), (A1, word)]);
        let t = w.thread(0, p.keep(out, RESULT).end(), 10);
        w.run();
        calls::outcome(&w, t, out)
    };
    let gone = Outcome::Returned(Code::NoObject);
    assert_eq!(
        (manages(Call::ThreadStop, 0x50_0000, 0), w.peek(got) & 0xff),
        (gone, Code::Fault as u64),
        "S4: what is managed is asked for, and if it is gone that is a code"
    );
    // Handles of another type, without a page, and on pages that cannot hold objects.
    let mutex = w.create(Call::MutexCreate);
    for handle in [mutex, 0, 0x5555_5000, plain_page(&w), abi::USER_END] {
        assert_eq!(
            manages(Call::ThreadSetPriority, handle, 1),
            gone,
            "S4: what is managed and not there is a code: {handle:#x}"
        );
    }
    // A call that uses an object which is not there is wrong use.
    let wrong = manages(Call::MutexLock, out, 0);
    assert!(
        matches!(wrong, Outcome::Raised(..)),
        "S4: what is used and not there is wrong use: {wrong:?}"
    );
}

/// Programs that the kernel and its specification disagreed about (see `fuzz`), and why.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "who was found waiting by an RPC in registers and then stopped, still named its portset",
        "d client_connect_send_over a0=r_p1 a5=n2+0x2
         a server_wait_receive a0=q1
         b server_wait_receive_short/64 a0=q1
         a server_disconnect
         d client_connect_send_over_receive_short/48
         a thread_stop a0=tb
         a thread_get_state a1=data+0x1800",
    ),
    (
        "a thread that an exception stopped was said to wait for what it had waited for before",
        "store data 0x0 0x4000 0x0 0x0
         a space_set_state a0=s1 a1=data a2=n0
         a mutex_lock a0=m0
         c mutex_lock a0=m0
         a mutex_unlock a0=m0
         c bad 6
         a thread_get_state a0=tc a1=data+0x400",
    ),
    (
        "a broadcast that woke somebody made its caller forget which page it had been refused",
        "d server_wait_receive a0=q0 a6=data+0x3210 a7=0x128
         a mutex_lock a0=m1
         a touch kept+0x1f 1
         d reply
         b cond_wait_until a0=c0 a1=m1 a2=now+16717228
         a cond_broadcast a0=c0",
    ),
    (
        "A6: a page that a keeper had not supplied was an exception at once when it was missing again, much later",
        "b server_wait_receive a0=q0 a6=data+0x3200 a7=0x100
         d touch kept+0x118c 4
         b reply_wait_receive
         d mutex_trylock a0=m0
         d mutex_unlock a0=m0
         d touch kept+0x118c 4",
    ),
    (
        "A6: a page that a keeper had not supplied was an exception at once when a later call missed it",
        "b server_wait_receive a0=q0 a6=data+0x3200 a7=0x100
         d touch kept+0x118c 4
         b reply_wait_receive
         d mutex_trylock a0=m0
         d mutex_unlock a0=m0
         d mutex_get_state a0=m0 a1=kept+0x1180",
    ),
    (
        "A2: a call whose reply went to a page that its keeper refused was delivered again for ever, and was no exception",
        "d server_wait_receive_short a0=q0 a9=0 a10=0
         c server_wait_receive a0=q1 a6=data+0x1000 a7=0x100 a8=0 a9=0 a10=0
         store data+0x800 0x400000 0x100
         a call a0=r_p1 a1=0 a2=0 a3=0 a4=0 a5=0 a6=data+0x3000 a7=8 a8=data+0x800 a9=1 a10=0
         c reply_wait_receive a0=q1 a1=data+0x2000 a2=0x40 a3=0 a4=0 a5=0 a6=data+0x1000 a7=0x100 a8=0 a9=0 a10=0
         d reply_wait_receive_short a0=q0 a9=0 a10=0",
    ),
    (
        "A6: who had an exception, for which there was no keeper yet, had still to meet the page that it had been refused before",
        "d server_wait_receive_short/255 a0=q0
         b touch kept+0x1e2c 4
         d reply_wait_receive_short
         a port_destroy a0=p0 a1=n3
         b bad 6",
    ),
    (
        "S2: who had answered an exception had it again when its thread was set to an older state",
        "store data+0x2000 0x1010 0x9364 0x52d51 0x0 0x400000 0x43bdf43dc 0x6beb6 0x0 0x628da 0x2 0x94ee4 0x7004 0xbea15 0x1001a2 0x7000 0x0 0x78771 0x0
         a server_wait_receive a0=q1 a6=data+0x2200 a7=0x128
         c bad 6
         b thread_stop a0=tc
         b thread_get_state a0=tc a1=data+0x1800 a2=n0 a3=n1 a4=n2
         a reply a1=data+0x2000 a2=0x90
         b thread_set_state a0=tc a1=data+0x1800 a2=n0 a3=n1 a4=n2",
    ),
    (
        "A1: a fault that a server had still to meet was met by its next exchange, although it made another call first",
        "c thread_stop a0=td
         c server_wait_receive_short/61 a0=q0
         b touch 0x0 1
         c region_destroy a0=h0 a1=n3
         store data+0x2000 0x7000 0x0 0x1010 0x0
         c reply_wait_receive a0=q0 a1=data+0x2000 a2=0x20 a4=0x0 a5=0x0
         b server_wait
         a server_wait_receive_until a0=q1 a6=kept+0x12df a7=0x1000 a11=now+56668613
         c reference_reference",
    ),
    (
        "who was stopped in a wait at a cond waited for nothing there once a keeper was said to have its exception",
        "a mutex_lock a0=m0
         a cond_wait a0=c0 a1=m0
         b thread_stop a0=ta
         b thread_stop a0=td
         store data+0x1000 0x202 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x7000 0x0 0x0 0x0 0x0 0x5 0x1 0x0 0x0 0x7 0x0 0x0 0x0 0x0 0x0 0x0
         b thread_set_state a0=td a1=data+0x1000 a2=r_s1 a3=0x0 a4=r_client
         b thread_get_state a0=ta a1=data+0x2000 a2=0x0 a3=0x0 a4=0x0",
    ),
    (
        "a pause in the second message of a call, when the first has come to its end with the same frames",
        "points 2\n\
         b server_wait_receive a0=q1 a6=data+0x3094 a7=0x20400\n\
         c client_connect_send a0=r_p0 a1=data+0x23be a2=0x1d85\n\
         d client_connect_send_over_receive a0=r_p1 a1=data+0x22c3 a2=0x128 a6=data+0x320e a7=0x118\n\
         b server_ack_send_wait_receive a0=q0 a1=data+0x217c a2=0x4",
    ),
    (
        "a pause after two clients were sent away, of which one waits again",
        "d bad 3\n\
         a call a7=0x14b2\n\
         b server_wait_receive_short a0=q0\n\
         c call a0=r_p1 a2=0x30\n\
         b mapping_set_state a0=k1 a1=data a3=r_s2\n\
         points 1\n\
         b reply_wait_receive a0=q1 a2=0x20",
    ),
];

#[test]
fn programs_of_the_fuzzer() {
    for (why, program) in PROGRAMS {
        let program = super::sequence::read(program).expect("a program");
        assert_eq!(super::fuzz::replay(&program), None, "again: {why}");
    }
}

/// A keeper that receives in registers gets the exception and its address, and replies with the control
/// registers; the other registers are as they were.
#[test]
fn an_exception_in_registers() {
    for answer in [Call::ReplyShort, Call::ReplyWaitReceiveShort] {
        let w = World::with_frames(64);
        let (set, port) = service(&w);
        let (_, s) = w.space(0, 0, port);
        let p = Program::new()
            .op(|c| c.call().set(0x5a))
            .op(|c| c.parameter(10).set(0xb0b))
            .op(|c| c.sp().set(0x8000))
            .push(Instr::Bad(6));
        // The thread goes on two instructions further.
        let p = p
            .op(|c| c.parameter(10).set(0))
            .op(|c| c.parameter(11).set(c.call().get()));
        let victim = w.thread(s, p.end(), 5);
        let wait = [(A0, set), (A10, 0), (A9, 0)];
        let p = Program::new()
            .call(Call::ServerWaitReceiveShort, &wait)
            .op(|c| {
                assert_eq!(c.call().get(), Code::Exception as u64 | 64 << 8);
                assert_eq!(
                    (c.parameter(1).get(), c.parameter(8).get()),
                    (6, 0x5a),
                    "what it is"
                );
                assert_eq!(c.parameter(6).get(), 0x8000, "with which stack");
                c.parameter(1)
                    .set(c.parameter(5).get() + 2 * ROLES.call_bytes);
                c.parameter(2).set(0x9000);
                // Flags that a program may not set.
                c.parameter(3).set(c.parameter(7).get() | !ROLES.user_flags);
                c.parameter(4).set(0x77);
            })
            .op(move |c| c.call().set(answer as u64 | 32 << 8))
            .op(move |c| c.parameter(0).set(set))
            .push(Instr::Syscall);
        w.thread(0, p.end(), 6);
        w.run();
        let (state, space) = (w.page(), w.create(Call::ReferenceCreate));
        w.ok(Call::ThreadStop, &[victim]);
        w.ok(Call::ThreadGetState, &[victim, state, space, 0, 0]);
        let seen = [ROLES.parameters[10], ROLES.parameters[11], ROLES.sp]
            .map(|register| w.peek(state + 8 * register as u64));
        assert_eq!(seen, [0xb0b, 0x77, 0x9000], "{}", answer.name());
    }
}

/// A keeper that receives in memory may reply with the control registers alone, in one segment of their size at any
/// address; the other registers stay as they were. Other lengths, and lists of segments, are no such reply.
#[test]
fn an_exception_answered_by_its_control_registers() {
    // The reply's length, the length of one more segment in a list, the reply's offset on its page, and the program
    // counter in it.
    let answers = [
        (32, 0, 0, 0x7000),
        (32, 0, 4, 0x7000),
        (32, 0, PAGE_SIZE - 16, 0x7000),
        (32, 0, 0, 1 << 47),
        (24, 0, 0, 0x7000),
        (40, 0, 0, 0x7000),
        (24, 8, 0, 0x7000),
        (32, 8, 0, 0x7000),
        (0, 32, 0, 0x7000),
    ];
    for (length, listed, offset, pc) in answers {
        for answer in [Call::Reply, Call::ReplyWaitReceive] {
            let w = World::with_frames(64);
            let (set, port) = service(&w);
            let (_, s) = w.space(0, 0, port);
            let p = Program::new()
                .op(|c| c.call().set(0x5a))
                .op(|c| c.parameter(10).set(0xb0b))
                .push(Instr::Bad(6));
            let victim = w.thread(s, p.end(), 5);
            let (buffer, out, list) = (w.page(), w.page(), w.page());
            let words = w.pages(2) + offset;
            let content = [pc, 0x9000, !ROLES.user_flags, 0x77, 0].map(u64::to_le_bytes);
            w.write(words, content.as_flattened());
            w.words(list, &[words + length, listed]);
            let wait = [(A0, set), (A6, buffer), (A7, PAGE_SIZE), (A9, 0), (A10, 0)];
            let send = [
                (A1, words),
                (A2, length),
                (A3, list),
                (A4, (listed > 0).into()),
            ];
            let p = Program::new()
                .call(Call::ServerWaitReceive, &wait)
                .call(answer, &[&wait[..], &send[..], &[(A5, 0)]].concat())
                .keep(out, RESULT);
            w.thread(0, p.end(), 6);
            w.run();
            let case = std::format!(
                "{}: {length} and {listed} bytes at {offset}, {pc:#x}",
                answer.name()
            );
            let t = w.thread_at(victim);
            let is_answer = length == 32 && listed == 0 && pc == 0x7000;
            if !is_answer {
                assert_eq!(w.peek(out) as u8, Code::Invalid as u8, "{case}");
                assert!(t.exception_delivered(), "{case}");
                continue;
            }
            let seen = [
                t.ctx.sp().get(),
                t.ctx.call().get(),
                t.ctx.parameter(10).get(),
            ];
            let rule = "a short answer sets the control registers and no others";
            assert_eq!(seen, [0x9000, 0x77, 0xb0b], "{rule}: {case}");
            assert_eq!(
                t.ctx.flags() & !ROLES.user_flags,
                ROLES.fixed_flags,
                "{case}"
            );
        }
    }
}

/// A reply in registers must have the right length, and an address of user mode.
#[test]
fn a_wrong_answer_in_registers() {
    for (count, pc) in [(24, 0x1000), (40, 0x1000), (32, 1 << 47)] {
        let w = World::with_frames(64);
        let (set, port) = service(&w);
        let (_, s) = w.space(0, 0, port);
        let victim = w.thread(s, Program::new().push(Instr::Bad(6)).end(), 5);
        let out = w.page();
        let wait = [(A0, set), (A10, 0), (A9, 0)];
        let p = Program::new()
            .call(Call::ServerWaitReceiveShort, &wait)
            .call_short(
                Call::ReplyWaitReceiveShort,
                count,
                &[(A0, set), (A1, pc), (A9, 0)],
            )
            .keep(out, RESULT);
        w.thread(0, p.end(), 6);
        w.run();
        assert_eq!(w.peek(out) as u8, Code::Invalid as u8, "{count} {pc:#x}");
        let (state, space) = (w.page(), w.create(Call::ReferenceCreate));
        w.ok(Call::ThreadStop, &[victim]);
        w.ok(Call::ThreadGetState, &[victim, state, space, 0, 0]);
        let delivered = w.peek(state + (REGISTER_WORDS as u64 + 6) * 8);
        assert_eq!(delivered, 1, "it is still to be answered");
    }
}

#[test]
fn a_page_is_near_for_its_rights_only() {
    let w = World::with_frames(64);
    let space = w.manager.space().expect("a space");
    let all = [Access::READ, Access::WRITE, Access::OBJECT];
    let page = 0x7654_3000;
    for rights in 0..=access::ALL {
        space.note_near(page, Pfn(77), rights);
        for need in all {
            let near = space.near(page + 8, need);
            let given = rights & need.0 == need.0;
            assert_eq!(near, given.then_some(Pfn(77)), "{rights} {need:?}");
        }
        // Other addresses are refused, the top of the address space included.
        for other in [
            0,
            page ^ PAGE_SIZE,
            page ^ (4 * PAGE_SIZE),
            u64::MAX,
            u64::MAX ^ PAGE_SIZE,
        ] {
            for need in all {
                assert_eq!(
                    space.near(other, need),
                    None,
                    "{other:#x} {rights} {need:?}"
                );
            }
        }
    }
    space.empty_table(w.k);
    assert_eq!(space.near(page, Access::READ), None);
}

/// An object that moves to the place right behind its own was the last object before that place when the place was
/// looked up, and is no longer in the list when it is put there.
#[test]
fn an_object_moves_behind_itself() {
    let w = World::with_frames(64);
    let at = [0; 4].map(|_| w.object());
    for handle in [at[0], at[1]] {
        w.ok(Call::MutexCreate, &[handle, 0]);
    }
    w.ok(Call::MutexMove, &[at[1], at[2]]);
    w.ok(Call::MutexMove, &[at[0], at[1]]);
    // The same when a new body is made there.
    let keeper = w.create(Call::ReferenceCreate);
    w.ok(Call::MutexDestroy, &[at[2], keeper]);
    w.ok(Call::MutexCreate, &[at[3], keeper]);
    w.ok(Call::MutexSetState, &[at[3], w.page()]);
    for handle in [at[1], at[3]] {
        w.ok(Call::MutexTrylock, &[handle]);
    }
}

/// A reference that was to keep its own identity, named by another address of it, ended, and the call returned `Ok`.
#[test]
fn a_reference_does_not_keep_itself() {
    let w = World::with_frames(64);
    let page = w.page();
    let (_, region) = w.region(0, page, PAGE_SIZE, 0);
    w.map(0, 0x50_0000, PAGE_SIZE, region, 0);
    w.ok(Call::ReferenceCreate, &[page, 0]);
    for keeper in [page, 0x50_0000] {
        let code = w.sys(Call::ReferenceDestroy, &[page, keeper]);
        assert_eq!(code, Code::Invalid, "it is kept by itself: {keeper:#x}");
    }
    w.ok(Call::ReferenceDestroy, &[0x50_0000, 0]);
}

/// A server that once had a call of the victim kept a reference to the victim's client end. When the victim's keeper
/// died with an exception delivered, another thread of that server could have its own state set so that it had the
/// exception, and write the victim's registers.
#[test]
fn a_former_server_is_no_keeper() {
    for full in [false, true] {
        let w = World::with_frames(96);
        let (kset, aset) = (w.create(Call::PortsetCreate), w.create(Call::PortsetCreate));
        let ((_, kport), (_, aport)) = (w.port(kset, 1), w.port(aset, 2));
        let (_, space) = w.space(100_000, 0, kport);
        let (_, all) = w.region(0, RAM, 96 * PAGE_SIZE, 0);
        w.map(space, RAM, 96 * PAGE_SIZE, all, 0);
        let buffer = w.page();
        let receive = |set, at| [(A0, set), (A6, at), (A7, 1024)];
        let p = Program::new().call(Call::ServerWaitReceive, &receive(kset, buffer));
        let keeper = w.thread(0, p.end(), 9);
        let p = Program::new()
            .call(Call::ServerWaitReceive, &receive(aset, buffer + 1024))
            .call(Call::ThreadWaitInterrupt, &[])
            .call(
                Call::Reply,
                &[(A1, buffer + 1024), (A2, 0), (A4, 0), (A5, 0)],
            );
        let server = w.thread(0, p.end(), 8);
        let at = buffer + 2048;
        let p = Program::new()
            .call(
                Call::Call,
                &[(A0, aport), (A1, at), (A2, 8), (A6, at), (A7, 64)],
            )
            .push(Instr::Bad(3));
        let victim = w.thread(space, p.end(), 5);
        w.run();
        // The reference to the client that the server's own state shows, or the reference that a manager gets by the
        // client's handle.
        let end = w.create(Call::ReferenceCreate);
        let state = w.page();
        w.ok(Call::ThreadStop, &[server]);
        w.ok(Call::ThreadGetState, &[server, state, 0, 0, end]);
        w.ok(Call::ThreadResume, &[server]);
        if full {
            w.ok(Call::ThreadReferenceClientEnd, &[victim, end]);
        }
        // The server replies; the victim meets its exception, and its keeper dies after the exception is delivered.
        let s = w.reference(Call::ThreadReference, server);
        w.ok(Call::ThreadInterrupt, &[s]);
        w.run();
        let v = w.thread_at(victim);
        assert!(v.exception_delivered());
        w.ok(Call::ThreadDestroy, &[keeper, 0]);
        // The state of another thread says that it has the exception.
        let answer = w.load(
            Program::new()
                .call_short(Call::ReplyShort, 32, &[(A1, 0x1234_5678), (A9, 0)])
                .end(),
        );
        let other = w.create(Call::ThreadCreate);
        let mut words = [0; THREAD_WORDS];
        words[PC_WORD] = CODE + answer * CODE_STEP;
        words[REGISTER_WORDS + 1] = 6;
        words[REGISTER_WORDS + 2] = 1;
        words[REGISTER_WORDS + 5] = Stage::Exception as u64;
        w.words(state, &words);
        let fpu = state + THREAD_WORDS as u64 * 8;
        w.write(fpu, &abi::state::initial_fpu());
        w.ok(Call::ThreadSetState, &[other, state, 0, 0, end]);
        w.ok(Call::ThreadResume, &[other]);
        w.release();
        let mut answered = false;
        for _ in 0..6 {
            w.step();
            answered |= v.ctx.pc().get() == 0x1234_5678;
        }
        assert_eq!(
            answered, full,
            "A8: who answers an exception (manager: {full})"
        );
    }
}

/// A reply for which a client's list had too many entries was not copied, but the client's registers said that the part
/// which had been walked had arrived.
#[test]
fn a_reply_that_meets_too_many_entries_has_not_come() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let (list, data, out) = (w.page(), w.page(), w.page());
    for n in 0..256 {
        w.words(list + n * 16, &[data + n, 1]);
    }
    let server = Program::new()
        .call(
            Call::ServerWaitReceive,
            &[(A0, set), (A6, out), (A7, 8), (A8, 0), (A9, 0)],
        )
        .call(Call::Reply, &[(A1, out), (A2, 200), (A4, 0)]);
    w.thread(0, server.end(), 6);
    let client = Program::new()
        .call(
            Call::Call,
            &[
                (A0, port),
                (A1, out),
                (A2, 8),
                (A4, 0),
                (A7, 0),
                (A8, list),
                (A9, 200),
            ],
        )
        .keep(out + 64, RESULT)
        .keep(out + 72, A9);
    w.poke(data, 77);
    w.thread(0, client.end(), 5);
    w.run();
    assert_eq!(
        w.peek(out + 64) & 0xff,
        Code::Truncated as u64,
        "A8: a long list"
    );
    assert_eq!(
        (w.peek(out + 72), w.peek(data)),
        (200, 77),
        "A1: nothing has come"
    );
}

/// One idempotent call whose list had a thousand empty entries between any two bytes kept the kernel for
/// seconds: only empty entries in a row were counted. Now all entries that are read count.
#[test]
fn lists_of_messages_are_bounded() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let (list, data) = (w.page(), w.page());
    // A page of entries, every other one empty, mapped many times in a row.
    for n in 0..256 {
        w.words(list + n * 16, &[data, n & 1]);
    }
    let (_, all) = w.region(0, RAM, 64 * PAGE_SIZE, 0);
    let alias = 0x7000_0000;
    for n in 0..32 {
        w.map(0, alias + n * PAGE_SIZE, PAGE_SIZE, all, list - RAM);
    }
    let receive = [(A0, set), (A6, data + 1024), (A7, 2048), (A8, 0), (A9, 0)];
    for (entries, code) in [
        (abi::MAX_ENTRIES, Code::Ok),
        (abi::MAX_ENTRIES + 1, Code::TooLarge),
        (8192, Code::TooLarge),
    ] {
        let p = Program::new()
            .call(Call::ServerWaitReceive, &receive)
            .call(Call::Reply, &[(A1, data), (A2, 0), (A4, 0)]);
        let server = w.thread(0, p.end(), 6);
        w.run();
        let send = [
            (A0, port),
            (A1, 0),
            (A2, 0),
            (A3, alias),
            (A4, entries),
            (A7, 0),
        ];
        let p = Program::new().call(Call::Call, &send);
        let client = w.thread(0, p.keep(data + 3072, RESULT).end(), 5);
        w.run();
        assert_eq!(w.peek(data + 3072) & 0xff, code as u64, "{entries} entries");
        w.ok(Call::ThreadDestroy, &[client, 0]);
        w.ok(Call::ThreadDestroy, &[server, 0]);
    }
    // A reliable message goes on, in turns.
    let entries = 2 * abi::ENTRIES_PER_TURN;
    let p = Program::new().call(
        Call::ServerWaitReceive,
        &[(A0, set), (A6, data), (A7, PAGE_SIZE), (A8, 0), (A9, 0)],
    );
    w.thread(0, p.end(), 6);
    w.run();
    let send = [(A0, port), (A1, 0), (A2, 0), (A3, alias), (A4, entries)];
    let p = Program::new().call(Call::ClientConnectSend, &send);
    let client = w.thread_at(w.thread(0, p.end(), 5));
    w.release();
    let mut left = std::vec::Vec::new();
    for _ in 0..12 {
        w.step();
        left.push(client.ctx.send().entries.get());
    }
    left.dedup();
    let turns = left.windows(2).filter(|two| two[0] - two[1] > 0).count();
    assert!(
        turns >= 2,
        "A9: {entries} entries in {turns} turns: {left:?}"
    );
    assert_eq!(left.last(), Some(&0), "A3: what is left");
}

/// A message with many empty entries in a row never went on: the call that had skipped a thousand of them began at the
/// first one again.
#[test]
fn a_message_goes_on_behind_empty_entries() {
    const ENTRIES: u64 = 3000;
    for receives in [false, true] {
        let w = World::with_frames(64);
        let (set, port) = service(&w);
        let (list, data) = (w.page(), w.page());
        let (_, all) = w.region(0, RAM, 64 * PAGE_SIZE, 0);
        let alias = 0x7000_0000;
        for n in 0..=ENTRIES * 16 / PAGE_SIZE {
            w.map(0, alias + n * PAGE_SIZE, PAGE_SIZE, all, list - RAM);
        }
        let receive = [(A0, set), (A6, data), (A7, PAGE_SIZE), (A8, 0), (A9, 0)];
        let p = match receives {
            true => Program::new().call(Call::ServerWaitReceive, &receive),
            false => Program::new().call(Call::ServerWaitReceiveShort, &[(A0, set), (A10, 0)]),
        };
        w.thread(0, p.end(), 6);
        w.run();
        let send = [(A0, port), (A1, 0), (A2, 0), (A3, alias), (A4, ENTRIES)];
        let p = Program::new().call(Call::ClientConnectSend, &send);
        let client = w.thread_at(w.thread(0, p.end(), 5));
        w.release();
        let mut left = std::vec::Vec::new();
        for _ in 0..40 {
            w.step();
            left.push(client.ctx.send().entries.get());
        }
        left.dedup();
        assert_eq!(left.last(), Some(&0), "A3: it goes on: {left:?}");
        assert!(left.len() > 4, "A9: in turns: {left:?}");
    }
}

/// The reply to the exception of a thread that has lost its body is kept for its next body; the keeper does not
/// wait. Before, the owner of the thread's handle could hold a keeper for ever.
#[test]
fn an_answer_waits_for_a_body() {
    for fresh in [false, true] {
        let w = World::with_frames(96);
        let kset = w.create(Call::PortsetCreate);
        let (_, kport) = w.port(kset, 1);
        let (_, space) = w.space(100_000, 0, kport);
        let (_, all) = w.region(0, RAM, 96 * PAGE_SIZE, 0);
        w.map(space, RAM, 96 * PAGE_SIZE, all, 0);
        let (answer, out, state) = (w.page(), w.page(), w.page());
        w.poke(out, u64::MAX);
        let p = Program::new()
            .call_short(Call::ServerWaitReceiveShort, 0, &[(A0, kset), (A10, 0)])
            .call(Call::ThreadWaitInterrupt, &[])
            .load(answer, A1)
            .load(answer + 8, A2)
            .load(answer + 16, A3)
            .load(answer + 24, A4)
            .call_short(Call::ReplyShort, 32, &[(A9, 0)])
            .keep(out, RESULT);
        let keeper = w.thread(0, p.end(), 9);
        let p = Program::new()
            .push(Instr::Bad(3))
            .store(move |_| (out + 8, 0x600d));
        let victim = w.thread(space, p.end(), 5);
        w.run();
        assert!(w.thread_at(victim).exception_delivered());

        // The victim's manager takes it apart while the keeper has its exception.
        let kept = w.create(Call::ReferenceCreate);
        let end = w.reference(Call::ThreadReferenceClientEnd, victim);
        w.ok(Call::ThreadStop, &[victim]);
        w.ok(Call::ThreadGetState, &[victim, state, 0, 0, 0]);
        let pc = w.peek(state + 8 * PC_WORD as u64);
        w.words(answer, &[pc + ROLES.call_bytes, 0x9000, 0x202, 0]);
        w.ok(Call::ThreadDestroy, &[victim, kept]);
        if fresh {
            w.ok(Call::ThreadCreate, &[victim, kept]);
        }
        let k = w.reference(Call::ThreadReference, keeper);
        w.ok(Call::ThreadInterrupt, &[k]);
        w.run();
        assert_eq!(w.peek(out) & 0xff, Code::Ok as u64, "the keeper waits");
        // A thread whose state says now that it has the exception comes too late.
        let (late, other) = (w.thread(space, Program::new().end(), 5), w.page());
        w.ok(Call::ThreadStop, &[late]);
        w.ok(Call::ThreadGetState, &[late, other, 0, 0, 0]);
        w.poke(other + 8 * SERVER_WORD as u64, Stage::Exception as u64);
        w.ok(Call::ThreadSetState, &[late, other, space, 0, end]);
        if !fresh {
            w.ok(Call::ThreadCreate, &[victim, kept]);
        }
        w.ok(Call::ThreadSetState, &[victim, state, space, 0, 0]);
        w.ok(Call::ThreadGetState, &[victim, state, 0, 0, 0]);
        let delivered = w.peek(state + 8 * (REGISTER_WORDS as u64 + 6));
        assert_eq!(delivered, 0, "an answer that nobody heard");
        w.ok(Call::ThreadResume, &[victim]);
        w.run();
        assert_eq!(w.peek(out + 8), 0x600d, "the answer is lost");
    }
}

/// A broadcast that has paused goes on only if it is the thread's next call: after another call it begins anew, for all
/// threads that wait then.
#[test]
fn a_broadcast_goes_on_at_once_or_not_at_all() {
    let w = World::with_frames(64);
    let (c, m) = (w.create(Call::CondCreate), w.create(Call::MutexCreate));
    let (other, out) = (w.create(Call::MutexCreate), w.page());
    let p = Program::new()
        .call(Call::MutexTrylock, &[(A0, other)])
        .call(Call::ThreadWaitInterrupt, &[])
        .call(Call::CondBroadcast, &[(A0, c)])
        .end();
    let caller = w.thread(0, p, 5);
    // As if the broadcast had paused in its first turn, and the thread's instructions had changed since.
    let paused = w.thread_at(caller);
    let cond = Cond::table(w.k).iter();
    let cond = cond.into_iter().find(|c| c.head().phase() == Phase::Active);
    let hint = Hint::Broadcast(NonNullLink::to(cond.expect("a cond")));
    paused.hint.set(hint);
    paused.note_space(w.k);
    w.run();
    let p = Program::new()
        .call(Call::MutexLock, &[(A0, m)])
        .call(Call::CondWait, &[(A0, c), (A1, m)])
        .keep(out, RESULT)
        .end();
    w.poke(out, u64::MAX);
    w.thread(0, p, 5);
    w.run();
    let reference = w.reference(Call::ThreadReference, caller);
    w.ok(Call::ThreadInterrupt, &[reference]);
    w.run();
    assert_eq!(
        w.peek(out) & 0xff,
        Code::Ok as u64,
        "A4: who waited is not woken"
    );
}

/// A signal during a pause of a broadcast wakes a thread that the broadcast does not wake: one that has begun to wait
/// since.
#[test]
fn a_signal_in_a_pause_of_a_broadcast() {
    let w = World::with_frames(64);
    let (c, m) = (w.create(Call::CondCreate), w.create(Call::MutexCreate));
    let out = w.page();
    w.words(out, &[u64::MAX, u64::MAX]);
    let waits = |n: u64| {
        let p = Program::new()
            .call(Call::MutexLock, &[(A0, m)])
            .call(Call::CondWait, &[(A0, c), (A1, m)])
            .keep(out + 8 * n, RESULT)
            .call(Call::MutexUnlock, &[(A0, m)])
            .end();
        w.thread(0, p, 5);
        w.run();
    };
    waits(0);
    // As if a broadcast had begun and paused.
    let cond = Cond::table(w.k).iter();
    let cond = cond.into_iter().find(|c| c.head().phase() == Phase::Active);
    cond.expect("a cond").turn_round();
    waits(1);
    w.ok(Call::CondSignal, &[c]);
    w.run();
    assert_eq!(
        w.peek(out + 8) & 0xff,
        Code::Ok as u64,
        "A8: who waits since the broadcast is not woken"
    );
}

/// A call has caused a notice before an absent page stops it: the server that gets the notice is more important than
/// the page's keeper, so it runs first.
#[test]
fn a_notice_comes_before_a_keeper() {
    const HOLE: u64 = 0x50_0000;
    const ABSENT: u64 = 0x60_0000;
    let w = World::with_frames(64);
    let sets = [(); 3].map(|()| w.create(Call::PortsetCreate));
    let [noticed, keeping, receiving] = sets;
    let (port, name) = w.port(noticed, 1);
    let state = w.page();
    w.words(state, &[1, abi::state::port_flags::NOTIFY_UNREFERENCED]);
    let to_set = w.reference(Call::PortsetReference, noticed);
    w.ok(Call::PortSetState, &[port, state, to_set]);
    let (_, keeper) = w.port(keeping, 2);
    let (_, receiver) = w.port(receiving, 3);
    let (_, region) = w.region(0, HOLE, PAGE_SIZE, keeper);
    w.map(0, ABSENT, PAGE_SIZE, region, 0);
    let (heard, seen, into) = (w.page(), w.page(), w.page());
    w.poke(heard, u64::MAX);
    let waits = |set| Program::new().call(Call::ServerWaitReceiveShort, &[(A0, set), (A10, 0)]);
    w.thread(0, waits(noticed).keep(heard, RESULT).end(), 9);
    w.thread(0, waits(keeping).load(heard, A5).keep(seen, A5).end(), 8);
    // The reference that this thread receives replaces the last reference to the port.
    let receive = [
        (A0, receiving),
        (A6, into),
        (A7, PAGE_SIZE),
        (A10, abi::ref_list(name, 1)),
    ];
    let p = Program::new().call(Call::ServerWaitReceive, &receive).end();
    w.thread(0, p, 7);
    w.run();
    let send = [
        (A0, receiver),
        (A1, ABSENT),
        (A2, 8),
        (A5, abi::ref_list(keeper, 1)),
    ];
    let p = Program::new().call(Call::ClientConnectSend, &send).end();
    w.thread(0, p, 7);
    w.run();
    assert_eq!(Code::from_word(w.peek(heard)), Code::Unreferenced);
    assert_eq!(
        Code::from_word(w.peek(seen)),
        Code::Unreferenced,
        "the keeper ran before a more important server"
    );
}

/// A keeper that waits for a message in memory gets an exception and all registers wherever its buffer lies: aligned
/// to words or not, on one page or across two.
#[test]
fn exceptions_arrive_in_any_buffer() {
    let length = 8 * EXCEPTION_WORDS as u64;
    let last = PAGE_SIZE - length;
    for offset in [
        0,
        1,
        4,
        8,
        last - 1,
        last,
        last + 1,
        last + 8,
        PAGE_SIZE - 4,
    ] {
        let w = World::with_frames(96);
        let set = w.create(Call::PortsetCreate);
        let (_, port) = w.port(set, 1);
        let (_, space) = w.space(100_000, space_flags::FOREIGN, port);
        let (_, all) = w.region(0, RAM, 96 * PAGE_SIZE, 0);
        w.map(space, RAM, 96 * PAGE_SIZE, all, 0);
        let buffer = w.pages(2) + offset;
        let wait = [(A0, set), (A6, buffer), (A7, length)];
        w.thread(
            0,
            Program::new().call(Call::ServerWaitReceive, &wait).end(),
            9,
        );
        let victim = w.thread(space, Program::new().push(Instr::Syscall).end(), 5);
        w.run();
        let message = w.read(buffer, length as usize);
        let word = |n: usize| u64::from_le_bytes(message[8 * n..8 * n + 8].try_into().unwrap());
        assert_eq!(word(0), Exception::ForeignCall as u64, "offset {offset}");
        let pc = w.thread_at(victim).ctx.pc().get();
        assert_eq!((word(1), word(4 + PC_WORD)), (pc, pc), "offset {offset}");
    }
}

/// The server kept references of a request that did not arrive, as there were more references than places, or the bytes
/// met an obstacle.
#[test]
fn references_of_a_request_that_does_not_arrive() {
    // References and bytes that are sent, the number of further segments, which have no memory, and the references that
    // arrive.
    for (sent, bytes, nowhere, came) in [(2, 8, 0, 2), (4, 8, 0, 0), (2, 16, 0, 0), (2, 8, 1, 0)] {
        let w = World::with_frames(64);
        let (set, port) = service(&w);
        let (message, buffer, from, to) = (w.page(), w.page(), w.page(), w.page());
        let m = w.create(Call::MutexCreate);
        for n in 0..4 {
            let at = n * OBJECT_SIZE;
            w.ok(Call::ReferenceCreate, &[from + at, 0]);
            w.ok(Call::ReferenceCreate, &[to + at, 0]);
            w.ok(Call::MutexReference, &[m, from + at]);
        }
        let room = [(A6, buffer), (A7, 8), (A9, 0), (A10, ref_list(to, 3))];
        let p = Program::new().call(Call::ServerWaitReceive, &[&[(A0, set)], &room[..]].concat());
        w.thread(0, p.end(), 9);
        w.run();
        let segment = message + 64;
        w.poke(segment, 1 << 40);
        w.poke(segment + 8, 8);
        let send = [(A0, port), (A1, message), (A2, bytes), (A3, segment)];
        let send = [&send[..], &[(A4, nowhere), (A5, ref_list(from, sent))]].concat();
        let p = Program::new().call(
            Call::Call,
            &[&send[..], &[(A7, 0), (A9, 0), (A10, 0)]].concat(),
        );
        w.thread(0, p.end(), 8);
        w.run();
        let kind = |n: &u64| w.sys(Call::ReferenceCheck, &[to + n * OBJECT_SIZE]);
        let there = (0..4).filter(|n| kind(n) == Code::Ok).count();
        let rule = "a request leaves no reference with a server to which it does not come";
        assert_eq!(
            there, came,
            "{rule}: {sent}, {bytes} bytes, {nowhere} nowhere"
        );
    }
}

/// A message that overwrote the receiver's list of segments was refused when half of it, and its reference, had
/// arrived; and there was no bound on the reading of a list that the message's own bytes had made longer.
#[test]
fn a_request_that_writes_over_its_lists() {
    // The number of empty entries behind the entry that the message makes empty; whether there is room behind them; the
    // number of references (without any, the fast path finds room, and leaves the message to the general path); and the
    // length of the first part: if it is less than 32, the message has two parts, which are found before either is
    // moved.
    for (empty, room, refs, first) in [
        (0, false, 1, 32),
        (100, true, 1, 32),
        (0, false, 0, 32),
        (100, true, 0, 32),
        (0, false, 1, 16),
        (0, false, 0, 8),
    ] {
        let w = World::with_frames(64);
        let (set, port) = service(&w);
        let (message, lists, buffer, result) = (w.page(), w.page(), w.page(), w.page());
        let (from, to) = (
            w.create(Call::ReferenceCreate),
            w.create(Call::ReferenceCreate),
        );
        let m = w.create(Call::MutexCreate);
        w.ok(Call::MutexReference, &[m, from]);
        for (word, value) in [
            (0, buffer),
            (1, 64),
            (2 * empty + 2, buffer),
            (2 * empty + 3, 64),
        ] {
            w.poke(lists + 8 * word, value);
        }
        let parts = w.page();
        w.poke(parts, message + first);
        w.poke(parts + 8, 32 - first);
        let entries = if room { empty + 2 } else { 1 };
        let receive = [(A0, set), (A6, lists), (A7, 16), (A8, lists), (A9, entries)];
        let p = Program::new().call(
            Call::ServerWaitReceive,
            &[&receive[..], &[(A10, ref_list(to, 1))]].concat(),
        );
        let server = w.thread(0, p.end(), 9);
        w.run();
        // Sixteen zeros, which make the first entry empty, and sixteen more bytes.
        let send = [
            (A0, port),
            (A1, message),
            (A2, first),
            (A3, parts),
            (A4, u64::from(first < 32)),
            (A5, ref_list(from, refs)),
        ];
        let p = Program::new().call(
            Call::Call,
            &[&send[..], &[(A7, 0), (A9, 0), (A10, 0)]].concat(),
        );
        w.thread(0, p.keep(result, RESULT).end(), 8);
        w.run();
        let rule = "a request leaves no reference with a server to which it does not come";
        assert_eq!(
            w.peek(result) & 0xff,
            Code::TooLarge as u64,
            "at most so many entries"
        );
        assert_ne!(w.sys(Call::ReferenceCheck, &[to]), Code::Ok, "{rule}");
        w.ok(Call::ThreadDestroy, &[server, 0]);
    }
}

/// A thread with an exception, in a space of its own whose keeper has this port.
fn victim(w: &World, port: u64, priority: u64) -> u64 {
    let (_, s) = w.space(0, 0, port);
    w.thread(s, Program::new().push(Instr::Bad(6)).end(), priority)
}

/// The reply to an exception had more empty entries in front than a call skips in one go, and began again for ever.
#[test]
fn an_answer_behind_empty_entries_is_refused() {
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let excepted = victim(&w, port, 5);
    let (buffer, out, list) = (w.page(), w.page(), w.pages(2));
    let wait = [(A0, set), (A6, buffer), (A7, PAGE_SIZE), (A9, 0), (A10, 0)];
    let send = [(A1, 0), (A2, 0), (A3, list), (A4, 400), (A5, 0)];
    let p = Program::new()
        .call(Call::ServerWaitReceive, &wait)
        .call(Call::Reply, &send)
        .keep(out, RESULT);
    w.thread(0, p.end(), 6);
    w.run();
    assert_eq!(Code::from_word(w.peek(out)), Code::Invalid);
    assert!(w.thread_at(excepted).exception_delivered());
}

/// A keeper whose buffer lay in a vacant mapping was woken for the kernel's message, waited again without access to the
/// buffer, and so woke the thread with the exception: the two went on for ever, at their priorities.
#[test]
fn a_keeper_waits_for_its_buffers_mapping() {
    const BUFFER: u64 = 0x50_0000;
    let w = World::with_frames(64);
    let (set, port) = service(&w);
    let (into, out) = (w.page(), w.page());
    let (_, region) = w.region(0, into, PAGE_SIZE, 0);
    let mapping = w.map(0, BUFFER, PAGE_SIZE, region, 0);
    let receive = [(A0, set), (A6, BUFFER), (A7, PAGE_SIZE), (A9, 0), (A10, 0)];
    let p = Program::new().call(Call::ServerWaitReceive, &receive);
    let keeper = w.thread(0, p.keep(out, RESULT).end(), 6);
    w.run();
    let identity = w.create(Call::ReferenceCreate);
    w.ok(Call::MappingDestroy, &[mapping, identity]);
    let excepted = victim(&w, port, 5);
    w.run();
    assert_eq!(w.thread_at(keeper).waiting(), Waiting::Vacant);
    assert!(!w.thread_at(excepted).exception_delivered());
    let state = w.page();
    w.words(state, &[BUFFER, PAGE_SIZE, 0, access::ALL]);
    w.ok(Call::MappingCreate, &[mapping, identity]);
    w.ok(Call::MappingSetState, &[mapping, state, region, 0]);
    w.run();
    assert_eq!(Code::from_word(w.peek(out)), Code::Exception);
    assert!(w.thread_at(excepted).exception_delivered());
}

/// A thread met an exception where very many keepers waited that could not take it: all of them were refused in one
/// trap.
#[test]
fn keepers_are_sent_away_in_turns() {
    const KEEPERS: u64 = 80;
    let w = World::with_frames(512);
    let (set, port) = service(&w);
    let buffer = w.page();
    let receive = [(A0, set), (A6, buffer), (A7, 8), (A9, 0), (A10, 0)];
    let keepers: std::vec::Vec<_> = (0..KEEPERS)
        .map(|_| {
            let p = Program::new().call(Call::ServerWaitReceive, &receive);
            w.thread_at(w.thread(0, p.end(), 3))
        })
        .collect();
    w.run();
    let excepted = victim(&w, port, 9);
    w.release();
    let waiting = || {
        keepers
            .iter()
            .filter(|t| t.waits_for(Waiting::Portset))
            .count()
    };
    let mut left = std::vec![waiting()];
    while w.step() != Met::Idle {
        left.push(waiting());
    }
    w.call_manager();
    let most = left
        .windows(2)
        .map(|two| two[0].saturating_sub(two[1]))
        .max();
    assert_eq!((left[0], left.last()), (KEEPERS as usize, Some(&0)));
    assert_eq!(most, Some(64), "A9: {left:?}");
    assert_eq!(w.thread_at(excepted).waiting(), Waiting::Port);
}
