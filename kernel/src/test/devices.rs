//! Lines of devices and I/O ports, as seen by the threads and spaces that have them.

use super::world::*;
use abi::{boot, Call, Code};

/// Attaches a thread to a line.
fn attach(w: &World, thread: u64, line: u64) -> Code {
    let r = w.reference(Call::ThreadReference, thread);
    w.sys(Call::DeviceAttachInterrupt, &[boot::AUTHORITY, r, line])
}

/// Lets the threads run for a moment.
fn moment(w: &World) {
    w.release();
    for _ in 0..20 {
        w.step();
    }
}

/// A thread that counts its interrupts in a word.
fn driver(w: &World, count: u64) -> u64 {
    let p = Program::new()
        .call(Call::ThreadWaitInterrupt, &[])
        .load(count, A11)
        .op(|c| c.parameter(11).set(c.parameter(11).get() + 1))
        .keep(count, A11)
        .jump(0);
    w.thread(0, p, 20)
}

/// A line is unmasked when its thread waits again, and not before; other lines are not changed.
#[test]
fn a_line_waits_for_its_thread() {
    let w = World::with_frames(64);
    let counts = [w.page(), w.page()];
    let drivers = counts.map(|count| driver(&w, count));
    assert_eq!(attach(&w, drivers[0], 3), Code::Ok);
    assert_eq!(attach(&w, drivers[1], 4), Code::Ok);
    w.run();
    let lines = || [3, 4].map(hal::host::irq_unmasked);
    assert_eq!(lines(), [true, true], "lines whose threads wait");
    for n in 1..4 {
        hal::host::raise(3);
        w.run();
        assert_eq!(w.peek(counts[0]), n, "interrupts of the device");
        assert_eq!(w.peek(counts[1]), 0, "interrupts of another's device");
        assert_eq!(lines(), [true, true], "a line is acknowledged by waiting");
    }
    // A thread that does not wait is not affected by the line, and another thread's wait does not unmask it.
    w.ok(Call::ThreadStop, &[drivers[0]]);
    hal::host::raise(3);
    moment(&w);
    w.call_manager();
    assert_eq!(lines(), [false, true], "a line that has rung is masked");
    hal::host::raise(4);
    w.run();
    assert_eq!(lines(), [false, true], "another thread acknowledges a line");
    w.ok(Call::ThreadResume, &[drivers[0]]);
    w.run();
    assert_eq!(
        (w.peek(counts[0]), lines()),
        (4, [true, true]),
        "no interrupt is lost"
    );
}

/// A thread has its line until it ends, and no other thread has it meanwhile.
#[test]
fn a_line_has_one_thread() {
    let w = World::with_frames(64);
    let counts = [w.page(), w.page()];
    let drivers = counts.map(|count| driver(&w, count));
    assert_eq!(attach(&w, drivers[0], 3), Code::Ok);
    assert_eq!(
        attach(&w, drivers[1], 3),
        Code::InUse,
        "a line has one thread"
    );
    assert_eq!(attach(&w, drivers[0], 3), Code::Ok);
    w.run();
    hal::host::raise(3);
    w.run();
    assert_eq!(counts.map(|c| w.peek(c)), [1, 0], "whose line it is");
    w.ok(Call::ThreadDestroy, &[drivers[0], 0]);
    assert!(!hal::host::irq_unmasked(3), "a line without a thread");
    assert_eq!(attach(&w, drivers[1], 3), Code::Ok);
    w.run();
    hal::host::raise(3);
    w.run();
    assert_eq!(counts.map(|c| w.peek(c)), [1, 1], "whose line it is now");
}

/// A program has the ports of its space, and none of the space that ran before.
#[test]
fn ports_are_those_of_the_space_that_runs() {
    let w = World::with_frames(64);
    let (space, s) = w.space(1 << 16, 0, 0);
    let spin = || Program::new().op(|_| ()).jump(0);
    let t = w.thread(s, spin(), 5);
    let run = || {
        moment(&w);
        let mut ports = hal::host::ports();
        w.call_manager();
        ports.retain(|range| range.1 > 0);
        ports
    };
    assert_eq!(run(), [], "a space has no ports by itself");
    w.ok(Call::DeviceGrantPorts, &[boot::AUTHORITY, s, 0x60, 5]);
    assert_eq!(run(), [(0x60, 5)], "a thread that was there already");
    let all = hal::host::ports();
    assert!(
        all.iter().all(|range| range.1 == 0),
        "ports of another: {all:x?}"
    );
    w.ok(Call::ThreadDestroy, &[t, 0]);
    w.thread(s, spin(), 5);
    assert_eq!(run(), [(0x60, 5)], "a thread that came later");
    // The space ends, and its ports are free.
    w.ok(Call::SpaceDestroy, &[space, 0]);
    let (_, other) = w.space(1 << 16, 0, 0);
    let code = w.sys(Call::DeviceGrantPorts, &[boot::AUTHORITY, other, 0x60, 5]);
    assert_eq!(code, Code::Ok, "ports go with their space");
}

/// A line that was taken away is masked and disturbs no thread, and another thread can have it while the first one
/// lives.
#[test]
fn a_line_can_be_taken_away() {
    let w = World::with_frames(64);
    let counts = [w.page(), w.page()];
    let drivers = counts.map(|count| driver(&w, count));
    assert_eq!(attach(&w, drivers[0], 3), Code::Ok);
    assert_eq!(attach(&w, drivers[0], 4), Code::Ok);
    w.run();
    w.ok(Call::DeviceDetachInterrupt, &[boot::AUTHORITY, 3]);
    let lines = || [3, 4].map(hal::host::irq_unmasked);
    assert_eq!(lines(), [false, true], "the other lines stay");
    // The line's old thread waits again, which unmasks the thread's own lines and no others.
    let waiter = w.reference(Call::ThreadReference, drivers[0]);
    w.ok(Call::ThreadInterrupt, &[waiter]);
    w.run();
    assert_eq!(lines(), [false, true], "a line that is nobody's");
    hal::host::raise(3);
    w.run();
    assert_eq!(w.peek(counts[0]), 1, "an interrupt of a line taken away");
    assert_eq!(attach(&w, drivers[1], 3), Code::Ok);
    w.run();
    assert_eq!(
        counts.map(|c| w.peek(c)),
        [1, 1],
        "what the device raised meanwhile is the new thread's"
    );
}

/// Threads of the space cannot use ports that were taken away, whether they run or the space has no body.
#[test]
fn ports_can_be_taken_away() {
    let w = World::with_frames(64);
    let (space, s) = w.space(1 << 16, 0, 0);
    w.thread(s, Program::new().op(|_| ()).jump(0), 5);
    let run = || {
        moment(&w);
        let mut ports = hal::host::ports();
        w.call_manager();
        ports.sort_unstable();
        ports
    };
    let call = |call, first: u64| w.sys(call, &[boot::AUTHORITY, s, first, 8]);
    assert_eq!(call(Call::DeviceGrantPorts, 0x60), Code::Ok);
    assert_eq!(call(Call::DeviceGrantPorts, 0x80), Code::Ok);
    assert_eq!(run(), [(0x60, 8), (0x80, 8)]);
    assert_eq!(call(Call::DeviceRevokePorts, 0x60), Code::Ok);
    assert_eq!(run(), [(0x80, 8)], "ports that were taken away");
    let (_, other) = w.space(1 << 16, 0, 0);
    let code = w.sys(Call::DeviceGrantPorts, &[boot::AUTHORITY, other, 0x60, 8]);
    assert_eq!(code, Code::Ok, "they are free");
    // A new range may cover the place where a range began that was taken away.
    assert_eq!(call(Call::DeviceGrantPorts, 0x2c4), Code::Ok);
    assert_eq!(call(Call::DeviceRevokePorts, 0x2c4), Code::Ok);
    let code = w.sys(Call::DeviceGrantPorts, &[boot::AUTHORITY, other, 0x2c0, 8]);
    assert_eq!(code, Code::Ok, "ports that were taken away are nobody's");
    let kept = w.create(Call::ReferenceCreate);
    w.ok(Call::SpaceDestroy, &[space, kept]);
    let vacant = |call| w.sys(call, &[boot::AUTHORITY, kept, 0x80, 8]);
    assert_eq!(
        vacant(Call::DeviceRevokePorts),
        Code::Ok,
        "a space without a body can hold nobody up"
    );
    assert_eq!(vacant(Call::DeviceRevokePorts), Code::NotFound);
    assert_eq!(vacant(Call::DeviceGrantPorts), Code::Vacant);
}
