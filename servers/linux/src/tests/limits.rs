//! Limits of what a process may use.

use super::*;
use crate::memory::{stack_start, MOST_STACK, STACK_SIZE, STACK_TOP};
use crate::signal::{bit, sig};
use crate::work::{Common, Spent};

const LIMIT: u64 = 0x10_0800;
const PATH: u64 = 0x10_0400;

fn set(process: &mut One, host: &mut Fake, which: u32, (soft, hard): (u64, u64)) -> i64 {
    words(host, LIMIT, &[soft, hard]);
    process.result(host, nr::setrlimit, &[u64::from(which), LIMIT])
}

/// The lowest address of the stack's area; [`STACK_TOP`] if there is none.
fn bottom(process: &One) -> u64 {
    let memory = process.memory();
    let areas = memory.areas.list().iter();
    let stack = areas.rev().find(|area| area.kind == Kind::Stack);
    stack.map_or(STACK_TOP, |area| area.start)
}

#[test]
fn a_stack_reaches_as_far_down_as_it_may() {
    const MB: u64 = 1 << 20;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let start = STACK_TOP - STACK_SIZE;
    let with = Some((READ | WRITE, Kind::Stack));
    let new = process.memory().areas.replaced(start, STACK_TOP, with);
    process.memory().areas.apply(&mut host, new).unwrap();
    let mut fit = |soft: u64, rsp: u64| {
        words(&mut host, LIMIT, &[soft, u64::MAX]);
        let mut registers = registers(nr::setrlimit, &[3, LIMIT]);
        registers.rsp = rsp;
        match process.call(&mut host, &registers) {
            Outcome::Go { registers, .. } => assert_eq!(registers.rax, 0),
            outcome => panic!("{outcome:?}"),
        }
        assert!(process.memory().areas.is_sound());
        STACK_TOP - bottom(&process)
    };
    let top = STACK_TOP - 100;
    assert_eq!(fit(4 * MB, top), 4 * MB);
    assert_eq!(fit(MB + 1, top), MB);
    assert_eq!(fit(16 * MB, top), 16 * MB);
    // The part in use stays; all of it does if the stack pointer is elsewhere, as on another thread's stack.
    assert_eq!(fit(MB, STACK_TOP - 3 * MB + 128), 3 * MB);
    assert_eq!(fit(MB, 0x10_3000), 3 * MB);
    for rsp in [0, 1, 127, u64::MAX, STACK_TOP + 128] {
        assert_eq!(fit(MB, rsp), 3 * MB, "{rsp:#x}");
    }
    assert_eq!(fit(0, top), 4096);
    assert_eq!(fit(u64::MAX, top), MOST_STACK);
    assert_eq!(stack_start(u64::MAX, STACK_TOP), STACK_TOP - MOST_STACK);
    // Another mapping is in the way.
    assert_eq!(fit(MB, top), MB);
    let (from, to) = (STACK_TOP - 2 * MB, STACK_TOP - 2 * MB + PAGE);
    let with = Some((READ, Kind::Anonymous));
    let new = process.memory().areas.replaced(from, to, with);
    process.memory().areas.apply(&mut host, new).unwrap();
    let mut fit = |soft: u64| {
        assert_eq!(set(&mut process, &mut host, 3, (soft, u64::MAX)), 0);
        STACK_TOP - bottom(&process)
    };
    assert_eq!(fit(8 * MB), 2 * MB - PAGE);
}

/// A process that has used its processor time gets `SIGXCPU` each second, and `SIGKILL` at the hard limit.
#[test]
fn processor_time_has_an_end() {
    const SECOND: u64 = 1_000_000_000;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let pid = process.task.pid;
    assert_eq!(process.system.work_left(pid, 0), None);
    assert_eq!(set(&mut process, &mut host, 0, (u64::MAX, u64::MAX)), 0);
    assert_eq!(process.system.work_left(pid, 0), None);
    assert_eq!(set(&mut process, &mut host, 0, (1, 3)), 0);
    let system = &mut process.system;
    assert_eq!(system.take_timers(), [pid, pid]);
    let mut after = |time: u64| {
        system.process(pid).spent = Common::new(Spent::new(time));
        (system.work_left(pid, 0), system.pass_work_limit(pid, 0))
    };
    assert_eq!(after(0), (Some(SECOND), None));
    assert_eq!(after(SECOND - 1), (Some(1), None));
    assert_eq!(after(SECOND), (Some(0), Some(sig::XCPU)));
    assert_eq!(after(SECOND + 1), (Some(SECOND - 1), None));
    assert_eq!(after(2 * SECOND), (Some(0), Some(sig::XCPU)));
    assert_eq!(after(3 * SECOND), (Some(0), Some(sig::KILL)));
    assert_eq!(after(u64::MAX), (Some(0), Some(sig::KILL)));
    // A child has the limit, and begins with no time used.
    let child = system.fork(pid, sig::CHLD).unwrap();
    assert_eq!(system.take_timers(), [child]);
    assert_eq!(system.work_left(child, 0), Some(3 * SECOND));
    system.set_limit(pid, 0, (u64::MAX - 1, u64::MAX - 1));
    assert_eq!(
        system.pass_work_limit(pid, 0),
        Some(sig::KILL),
        "u64::MAX nanoseconds are the most"
    );
}

#[test]
fn limits_of_an_image_make_sense() {
    let mut process = crate::system::Process::default();
    process.limits.insert(15, (4, 5));
    assert!(process.has_sound_limits());
    process.limits.insert(1, (5, 4));
    assert!(!process.has_sound_limits());
    process.limits.clear();
    process.limits.insert(16, (4, 5));
    assert!(!process.has_sound_limits());
}

/// A file that is as long as the limit allows is not written to, and the writer gets `SIGXFSZ`.
#[test]
fn a_file_has_an_end() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    process.task.signals.mask = bit(sig::XFSZ);
    host.write_memory(PATH, b"/tmp/f\0").unwrap();
    let fd = process.result(&mut host, nr::open, &[PATH, 0o102, 0o600]) as u64;
    assert_eq!(set(&mut process, &mut host, 1, (100, 1 << 40)), 0);
    let is_told = |process: &mut One| process.task.signals.pending.take(sig::XFSZ).is_some();
    assert_eq!(
        process.result(&mut host, nr::write, &[fd, 0x10_0000, 64]),
        64
    );
    assert_eq!(
        process.result(&mut host, nr::write, &[fd, 0x10_0000, 64]),
        36
    );
    assert!(!is_told(&mut process));
    assert_eq!(
        process.result(&mut host, nr::write, &[fd, 0x10_0000, 1]),
        -27
    );
    assert!(is_told(&mut process));
    for (call, arguments) in [
        (nr::ftruncate, [fd, 101, 0, 0]),
        (nr::fallocate, [fd, 0, 100, 1]),
        (nr::pwrite64, [fd, 0x10_0000, 5, 1 << 50]),
    ] {
        assert_eq!(process.result(&mut host, call, &arguments), -27);
        assert!(is_told(&mut process), "{call}");
    }
    assert_eq!(process.result(&mut host, nr::ftruncate, &[fd, 100]), 0);
    assert!(!is_told(&mut process));
}

/// The record of the names that open files have lost is bounded, and ends when the files are closed.
#[test]
fn lost_names_have_an_end() {
    let mut busy = crate::busy::Busy::default();
    let description = |ino: u64| crate::process::Description {
        kind: FileKind::File { ino },
        flags: 0,
        offset: 0,
        owner: None,
    };
    busy.lose_name(5, "nobody has it");
    assert_eq!(busy.lost_name(5), None);
    for round in 0..2 {
        for ino in 1..=3000 {
            busy.opened(&description(ino));
            busy.lose_name(ino, "/tmp/a");
            busy.lose_name(ino, "/tmp/b");
        }
        let kept = (1..=3000).filter(|ino| busy.lost_name(*ino) == Some("/tmp/a"));
        assert_eq!(kept.count(), 1024, "round {round}");
        for ino in 1..=3000 {
            busy.closed(&description(ino));
            assert_eq!(busy.lost_name(ino), None);
        }
    }
    busy.opened(&description(7));
    busy.lose_name(7, &"a".repeat(256));
    assert_eq!(busy.lost_name(7), None);
}

#[test]
fn errors_in_floating_point_have_their_codes() {
    let codes = [0, 1, 2, 4, 8, 16, 32, 5, 40].map(crate::signal::floating_code);
    assert_eq!(codes, [7, 7, 5, 3, 4, 5, 6, 7, 4]);
}
