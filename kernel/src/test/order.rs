//! Which thread runs next, and for how long: the promises of `spec/README.md` about threads of one priority.

use super::world::*;
use abi::Call;
use std::vec::Vec;

/// Steps in a time slice, of 10 ms.
const SLICE: u64 = 100_000;
/// The number of steps by which a turn may differ from a slice: calls and interrupts take some.
const SLACK: u64 = 100;

/// A program that does `first`, then computes for ever.
fn spins(first: Program) -> Program {
    let begin = first.len();
    first.op(|_| ()).jump(begin)
}

fn spin() -> Program {
    spins(Program::new())
}

/// A program that sleeps until each of these times.
fn sleeps(times: impl IntoIterator<Item = u64>) -> Program {
    times.into_iter().fold(Program::new(), |p, at| {
        p.call(Call::ThreadSleepUntil, &[(A0, at)])
    })
}

/// The time `steps` steps from now.
fn after(steps: u64) -> u64 {
    hal::now() + steps * 100
}

/// A world that is not checked after every trap, because there are many steps, and in which the processor never
/// sleeps.
fn world() -> World {
    world_of(96)
}

fn world_of(frames: u32) -> World {
    let w = world_without(frames);
    w.thread(0, spin(), 1);
    w
}

/// As [`world_of`], but the processor sleeps when no thread is ready.
fn world_without(frames: u32) -> World {
    let w = World::with_frames(frames);
    w.checked.set(false);
    w
}

/// Lets the threads run for a moment.
fn begin(w: &World) {
    w.release();
    for _ in 0..20 {
        w.step();
    }
    w.call_manager();
}

/// Lets the threads run for `steps` steps. Returns which thread ran, by its place in the list, and for how many
/// steps each time; steps of other threads are left out.
fn turns(w: &World, threads: &[u64], steps: u64) -> Vec<(usize, u64)> {
    let threads: Vec<_> = threads.iter().map(|t| w.thread_at(*t)).collect();
    let mut turns: Vec<(usize, u64)> = Vec::new();
    w.release();
    for _ in 0..steps {
        let current = w.current.get();
        let of = threads.iter().position(|t| core::ptr::eq(*t, current));
        assert_ne!(w.step(), Met::Idle, "nobody runs");
        match (of, turns.last_mut()) {
            (Some(of), Some((last, count))) if of == *last => *count += 1,
            (Some(of), _) => turns.push((of, 1)),
            (None, _) => {}
        }
    }
    w.call_manager();
    turns
}

fn who(turns: &[(usize, u64)]) -> Vec<usize> {
    turns.iter().map(|turn| turn.0).collect()
}

/// Whether each of these turns is a slice, except the first and the last, which were cut short.
fn fair(turns: &[(usize, u64)]) -> bool {
    let whole = turns.get(1..turns.len().saturating_sub(1));
    whole.is_some_and(|whole| whole.iter().all(|turn| turn.1.abs_diff(SLICE) < SLACK))
}

#[test]
fn equals_take_turns_of_one_slice_each() {
    let w = world();
    let t: Vec<u64> = (0..3).map(|_| w.thread(0, spin(), 7)).collect();
    let turns = turns(&w, &t, 8 * SLICE);
    assert!(
        who(&turns).starts_with(&[0, 1, 2, 0, 1, 2, 0]),
        "order among equals: {turns:?}"
    );
    assert!(fair(&turns), "a slice is fair: {turns:?}");
}

#[test]
fn who_yields_goes_behind_its_equals() {
    let w = world();
    let yields = || Program::new().call(Call::ThreadYield, &[]).jump(0);
    let t: Vec<u64> = (0..3).map(|_| w.thread(0, yields(), 7)).collect();
    let order = who(&turns(&w, &t, 60));
    let round = order.iter().zip(order.iter().skip(1));
    let in_turn = order.len() > 12 && round.into_iter().all(|(a, b)| (a + 1) % 3 == *b);
    assert!(in_turn, "who yields goes behind its equals: {order:?}");
}

/// A thread that gets the processor by a yield has a slice of its own, not the rest of another's.
#[test]
fn a_turn_that_was_given_is_a_whole_slice() {
    let w = world();
    let work = (0..30_000).fold(Program::new(), |p, _| p.op(|_| ()));
    let t = [
        w.thread(0, spins(work.call(Call::ThreadYield, &[])), 7),
        w.thread(0, spin(), 7),
    ];
    let turns = turns(&w, &t, 3 * SLICE);
    assert!(who(&turns).starts_with(&[0, 1, 0]), "in turn: {turns:?}");
    assert!(fair(&turns), "a slice is fair: {turns:?}");
}

/// The same with the fast path of a yield, which only a kernel without counters takes.
#[test]
fn a_turn_that_was_passed_on_is_a_whole_slice() {
    let w = world();
    let t = [w.thread(0, spin(), 7), w.thread(0, spin(), 7)];
    turns(&w, &t, SLICE / 3);
    w.release();
    let first = w.thread_at(t[0]);
    while !core::ptr::eq(w.current.get(), first) {
        w.step();
    }
    let next = w.k.cpu().sched.pass_turn(w.k, first);
    let next = next.expect("the turn goes to who is ready");
    assert!(core::ptr::eq(next, w.thread_at(t[1])), "in turn");
    w.current.set(next);
    let mut steps = 0u64;
    while core::ptr::eq(w.current.get(), next) {
        w.step();
        steps += 1;
    }
    crate::check::invariants(w.k);
    assert!(
        steps.abs_diff(SLICE) < SLACK,
        "a slice is fair: {steps} steps"
    );
}

/// A thread that is preempted by one of a higher priority gets the rest of its turn, before others of its
/// priority; not less, and not a whole slice again.
#[test]
fn who_is_preempted_has_the_rest_of_its_turn() {
    let w = world();
    let t = [w.thread(0, spin(), 7), w.thread(0, spin(), 7)];
    let often = (1..12).map(|n| after(n * SLICE / 5 + SLICE / 10));
    w.thread(0, sleeps(often).end(), 9);
    let turns = turns(&w, &t, 4 * SLICE);
    assert!(
        who(&turns).starts_with(&[0, 1, 0]),
        "who is preempted goes on first: {turns:?}"
    );
    let whole = fair(&turns);
    assert!(whole, "a slice is fair, in however many pieces: {turns:?}");
}

/// The rest of the turn of a thread that was preempted and then stopped goes to no other thread.
#[test]
fn who_follows_a_stopped_thread_has_a_whole_slice() {
    let w = world();
    let t = [0; 3].map(|_| w.thread(0, spin(), 7));
    turns(&w, &t, SLICE * 9 / 10);
    w.ok(Call::ThreadStop, &[t[0]]);
    let turns = turns(&w, &t, 3 * SLICE);
    assert!(who(&turns).starts_with(&[1, 2, 1]), "in turn: {turns:?}");
    let first = turns[0].1;
    assert!(first.abs_diff(SLICE) < SLACK, "a slice is fair: {first}");
}

/// A thread that wakes goes behind the others of its priority, and ends no thread's turn.
#[test]
fn who_wakes_goes_behind_its_equals() {
    let w = world();
    let third = w.thread(0, spins(sleeps([after(SLICE * 3 / 2)])), 7);
    // The thread sleeps before the others exist.
    begin(&w);
    let t = [w.thread(0, spin(), 7), w.thread(0, spin(), 7), third];
    let turns = turns(&w, &t, 7 * SLICE);
    // The thread wakes in the turn of the second one, when the first is queued already.
    assert!(
        who(&turns).starts_with(&[0, 1, 0, 2, 1, 0]),
        "who wakes goes behind: {turns:?}"
    );
    assert!(fair(&turns), "no turn ends because others wake: {turns:?}");
}

/// The deadline of a less important thread ends no thread's turn either.
#[test]
fn the_timer_of_another_ends_no_turn() {
    let w = world();
    let low = w.thread(0, sleeps([after(SLICE * 3 / 2)]).end(), 12);
    begin(&w);
    w.ok(Call::ThreadSetPriority, &[low, 3]);
    let t = [w.thread(0, spin(), 7), w.thread(0, spin(), 7)];
    let turns = turns(&w, &t, 5 * SLICE);
    assert!(who(&turns).starts_with(&[0, 1, 0, 1]), "in turn: {turns:?}");
    assert!(
        fair(&turns),
        "no turn ends because the timer rings: {turns:?}"
    );
}

/// However many deadlines of less important threads come, a thread's own deadline wakes it at once, and theirs
/// interrupt it only now and then; when it waits, they are handled.
#[test]
fn deadlines_of_less_important_threads_are_put_off() {
    let w = world_of(256);
    let (at, out) = (after(20_000), w.page());
    let crowd: Vec<u64> = (0..100u64)
        .map(|n| {
            let p = Program::new().call(Call::ThreadSleepUntil, &[(A0, at + n)]);
            w.thread(0, p.store(move |_| (out + 8 + n * 8, 1)).end(), 12)
        })
        .collect();
    // Its deadline is later than all of theirs.
    let p = Program::new()
        .call(Call::ThreadSleepUntil, &[(A0, at + 200)])
        .store(move |_| (out, 1));
    let begin_again = p.len();
    let p = p
        .op(|_| ())
        .jump_if(move |c| c.parameter(11).get() == 0, begin_again);
    let important = w.thread(0, p.end(), 9);
    w.release();
    for _ in 0..2000 {
        w.step();
    }
    w.call_manager();
    for t in &crowd {
        w.ok(Call::ThreadSetPriority, &[*t, 3]);
    }
    hal::host::set_now(at + 300);
    w.release();
    let mut steps = 0;
    while w.peek(out) == 0 && steps < 100 {
        w.step();
        steps += 1;
    }
    assert!(steps <= 4, "it is told at once: after {steps} steps");
    let (mut rings, until) = (0, hal::now() + 3_000_000);
    while hal::now() < until {
        rings += u64::from(hal::host::deadline() <= hal::now());
        w.step();
    }
    assert!(
        rings <= 2 * 30,
        "now and then: the timer rang {rings} times in 3 ms"
    );
    let told = |n: u64| w.peek(out + 8 + n * 8) == 1;
    assert!(!(0..100).any(told), "they could not run");
    // At the first ring one of the less important threads may have been running.
    let ended = crowd.iter().filter(|t| !w.thread_at(**t).deadline.is_set());
    let ended = ended.count();
    assert!(
        ended <= 2,
        "A9: the deadlines of {ended} less important threads were worked off"
    );
    let t = w.thread_at(important);
    t.ctx.parameter(11).set(1);
    for _ in 0..2000 {
        w.step();
    }
    w.call_manager();
    assert!((0..100).all(told), "each is told when nobody is above it");
}

/// A thread whose deadline comes while a server works for a client of a lower priority wakes when the server has
/// replied, although the client calls the server again at once and the timer only ever rings in the server.
#[test]
fn who_calls_a_server_holds_up_no_deadline_above_it() {
    // With five bytes the caller is an heir, if no other thread is ready.
    for (bytes, w) in [(8, world()), (5, world()), (5, world_without(96))] {
        let (calls, server) = caller_and_server(&w, bytes, 1000);
        let out = w.page();
        let at = after(20_000);
        let sleeps = sleeps([at]).store(move |_| (out, 1));
        w.thread(0, sleeps.end(), 8);
        turns(&w, &[calls, server], 10_000);
        assert!(hal::now() < at, "its time has not come");
        turns(&w, &[calls, server], 14_000);
        assert_eq!(w.peek(out), 1, "with messages of {bytes} bytes");
    }
}

/// A thread that gets another priority goes behind those that have it already.
#[test]
fn who_is_raised_goes_behind_its_new_equals() {
    let w = world();
    let low = w.thread(0, spin(), 3);
    let t = [w.thread(0, spin(), 7), w.thread(0, spin(), 7), low];
    w.ok(Call::ThreadSetPriority, &[low, 7]);
    let turns = turns(&w, &t, 4 * SLICE);
    assert!(
        who(&turns).starts_with(&[0, 1, 2, 0]),
        "who is raised goes behind: {turns:?}"
    );
}

/// Waiters of one priority are served in the order in which they came, between those above and below.
#[test]
fn waiters_of_one_priority_are_served_in_turn() {
    let w = World::with_frames(96);
    let (m, out) = (w.create(Call::MutexCreate), w.page());
    w.ok(Call::MutexTrylock, &[m]);
    // Each thread stores its number behind those of the threads before it, and unlocks.
    let p = |n: u64| {
        Program::new()
            .call(Call::MutexLock, &[(A0, m)])
            .load(out, A11)
            .store(move |c| (out + 8 + c.parameter(11).get() * 8, n))
            .op(|c| c.parameter(11).set(c.parameter(11).get() + 1))
            .keep(out, A11)
            .call(Call::MutexUnlock, &[(A0, m)])
            .end()
    };
    for (n, priority) in [(1, 5), (2, 3), (3, 5), (4, 5), (5, 9), (6, 3)] {
        w.thread(0, p(n), priority);
        w.run();
    }
    w.ok(Call::MutexUnlock, &[m]);
    w.run();
    let order: Vec<u64> = (0..6).map(|i| w.peek(out + 8 + i * 8)).collect();
    assert_eq!(order, [5, 1, 3, 4, 2, 6], "waiters of one priority in turn");
}

/// A thread that calls a more important server has no longer turns than other threads, although each of its slices ends
/// while the server is at work, and whether or not its requests take the fast path.
#[test]
fn who_calls_a_server_passes_its_turn_on() {
    for bytes in [8, 5] {
        callers_have_equal_parts(bytes);
    }
}

/// One thread calls a server again and again, with a message of `bytes` bytes, beside a thread of the same priority
/// that only computes.
fn callers_have_equal_parts(bytes: u8) {
    let w = world();
    let (calls, server) = caller_and_server(&w, bytes, SLICE / 10);
    let t = [calls, w.thread(0, spin(), 7), server];
    let turns = turns(&w, &t, 8 * SLICE);
    let of = |n| -> u64 {
        let of = turns.iter().filter(|turn| turn.0 == n);
        of.map(|turn| turn.1).sum()
    };
    let (calls, other) = (of(0) + of(2), of(1));
    assert!(
        calls >= 3 * SLICE && other >= 3 * SLICE,
        "equal parts with messages of {bytes} bytes: {calls} and {other} steps"
    );
}

/// A thread of priority 7 that calls a server of priority 9 again and again, with a message of `bytes` bytes; and the
/// server, which works for `work` steps each time.
fn caller_and_server(w: &World, bytes: u8, work: u64) -> (u64, u64) {
    let set = w.create(Call::PortsetCreate);
    let (_, port) = w.port(set, 7);
    let serve = Program::new().call(
        Call::ServerWaitReceiveShort,
        &[(A0, set), (A10, 0), (A9, 0)],
    );
    let again = serve.len();
    let serve = (0..work).fold(serve, |p, _| p.op(|_| ()));
    let serve = serve
        .call_short(
            Call::ReplyWaitReceiveShort,
            0,
            &[(A0, set), (A10, 0), (A9, 0)],
        )
        .jump(again);
    let server = w.thread(0, serve, 9);
    let calls = Program::new()
        .call_short(Call::CallShort, bytes.into(), &[(A0, port), (A9, 0)])
        .jump(0);
    let calls = w.thread(0, calls, 7);
    begin(w);
    (calls, server)
}
