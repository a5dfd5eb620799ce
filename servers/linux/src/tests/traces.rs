//! Traced tasks: where they stop, what their tracers are told, and what is saved of a trace.

use super::*;
use crate::signal::{sig, Origin};
use crate::trace::{event, option, Mode, Stop};

/// Requests of `ptrace`.
const TRACEME: u64 = 0;
const CONT: u64 = 7;
const DETACH: u64 = 17;
const SYSCALL: u64 = 24;
const SETOPTIONS: u64 = 0x4200;

/// A tracer and its traced child, which has stopped at a signal.
fn traced(host: &mut Fake) -> (One, Task) {
    let mut root = example(host);
    root.result(host, nr::fork, &[]);
    let mut child = child_of(&mut root, host);
    let me = registers(nr::ptrace, &[TRACEME]);
    assert_eq!(returns(&mut child, &mut root.system, host, &me), 0);
    assert_eq!(returns(&mut child, &mut root.system, host, &me), -1);
    child.signals.pending.add(sig::STOP, Origin::default());
    let outcome = emulate::interrupt(&mut child, &mut root.system, host, &registers(0, &[]));
    assert!(matches!(outcome, Outcome::Go { .. }));
    (root, child)
}

fn stop(root: &One, child: &Task) -> Option<Stop> {
    root.system.trace(child.tid).and_then(|trace| trace.stop)
}

/// The status that `wait4` stores for the child; 0 if there is no news.
fn waits(root: &mut One, host: &mut Fake) -> u32 {
    host.write_memory(0x10_0000, &[0; 4]).unwrap();
    root.result(host, nr::wait4, &[u64::MAX, 0x10_0000, 1, 0]);
    let mut status = [0; 4];
    host.read_memory(0x10_0000, &mut status).unwrap();
    u32::from_le_bytes(status)
}

fn asks(root: &mut One, host: &mut Fake, child: &Task, request: u64, data: u64) -> i64 {
    let number = u64::from(child.number);
    root.result(host, nr::ptrace, &[request, number, 0, data])
}

/// Stops the child's thread in the program and lets it go on: its registers then.
fn runs(root: &mut One, child: &mut Task, host: &mut Fake) -> Registers {
    match emulate::interrupt(child, &mut root.system, host, &registers(0, &[])) {
        Outcome::Go { registers, .. } => registers,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_traced_call_stops_before_it_and_behind_it_each_time() {
    let mut host = Fake::new();
    let (mut root, mut child) = traced(&mut host);
    assert!(matches!(
        stop(&root, &child),
        Some(Stop::Signal(sig::STOP, _))
    ));
    assert_eq!(waits(&mut root, &mut host), 0x137f);
    assert_eq!(waits(&mut root, &mut host), 0, "a stop is told once");
    assert_eq!(asks(&mut root, &mut host, &child, SETOPTIONS, 1), 0);
    let get = registers(nr::getpid, &[]);
    for _ in 0..3 {
        assert_eq!(asks(&mut root, &mut host, &child, SYSCALL, 0), 0);
        assert_eq!(asks(&mut root, &mut host, &child, SYSCALL, 0), -3);
        runs(&mut root, &mut child, &mut host);
        let outcome = emulate::call(&mut child, &mut root.system, &mut host, &get);
        assert!(matches!(outcome, Outcome::Park(_)), "A1: it has begun");
        assert_eq!(stop(&root, &child), Some(Stop::Enter));
        assert_eq!(waits(&mut root, &mut host), 0x857f);
        assert_eq!(asks(&mut root, &mut host, &child, SYSCALL, 0), 0);
        let outcome = emulate::call(&mut child, &mut root.system, &mut host, &get);
        let Outcome::Go { registers, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(registers.rax, u64::from(child.number));
        assert_eq!(stop(&root, &child), Some(Stop::Exit));
        assert_eq!(waits(&mut root, &mut host), 0x857f);
    }
    assert_eq!(asks(&mut root, &mut host, &child, CONT, 0), 0);
    runs(&mut root, &mut child, &mut host);
    assert_eq!(
        returns(&mut child, &mut root.system, &mut host, &get),
        i64::from(child.number)
    );
    assert_eq!(stop(&root, &child), None);
}

/// A signal that the tracer does not pass on is not delivered, and the call that it has interrupted begins again.
#[test]
fn a_call_that_a_signal_interrupts_begins_again_if_the_tracer_says_so() {
    let mut host = Fake::new();
    let (mut root, mut child) = traced(&mut host);
    assert_eq!(asks(&mut root, &mut host, &child, CONT, 0), 0);
    runs(&mut root, &mut child, &mut host);
    assert_eq!(stop(&root, &child), None, "the signal is not given");
    let pause = registers(nr::pause, &[]);
    let outcome = emulate::call(&mut child, &mut root.system, &mut host, &pause);
    assert!(matches!(outcome, Outcome::Park(_)));
    child.signals.pending.add(sig::TERM, Origin::default());
    let outcome = emulate::call(&mut child, &mut root.system, &mut host, &pause);
    let Outcome::Go {
        registers: mut at, ..
    } = outcome
    else {
        panic!("{outcome:?}")
    };
    assert_eq!(at.rax as i64, -514);
    assert!(matches!(
        stop(&root, &child),
        Some(Stop::Signal(sig::TERM, _))
    ));
    assert_eq!(asks(&mut root, &mut host, &child, CONT, 0), 0);
    let outcome = emulate::interrupt(&mut child, &mut root.system, &mut host, &at);
    let Outcome::Go { registers, .. } = outcome else {
        panic!("{outcome:?}")
    };
    at = registers;
    assert_eq!(
        (at.rip, at.rax),
        (pause.rip, nr::pause),
        "A3: it begins again"
    );
}

/// A call that waits for a message leaves the queue when a signal interrupts it, and waits there again if it begins
/// again.
#[test]
fn what_is_sent_while_the_tracer_looks_is_not_lost() {
    const AT: u64 = 0x10_0000;
    let mut host = Fake::new();
    let (mut root, mut child) = traced(&mut host);
    assert_eq!(asks(&mut root, &mut host, &child, CONT, 0), 0);
    runs(&mut root, &mut child, &mut host);
    let queue = root.result(&mut host, nr::msgget, &[5, 0o1600]) as u64;
    let receive = registers(nr::msgrcv, &[queue, AT + 0x2000, 100, 0, 0]);
    let outcome = emulate::call(&mut child, &mut root.system, &mut host, &receive);
    assert!(matches!(outcome, Outcome::Park(_)));
    child.signals.pending.add(sig::TERM, Origin::default());
    let outcome = emulate::call(&mut child, &mut root.system, &mut host, &receive);
    let Outcome::Go { registers: at, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(at.rax as i64, -514);
    assert!(root.system.ipcs.wait(child.tid).is_none());
    host.write_memory(AT, b"\x07\0\0\0\0\0\0\0text").unwrap();
    assert_eq!(root.result(&mut host, nr::msgsnd, &[queue, AT, 4, 0]), 0);
    assert_eq!(asks(&mut root, &mut host, &child, CONT, 0), 0);
    let outcome = emulate::interrupt(&mut child, &mut root.system, &mut host, &at);
    let Outcome::Go { registers, .. } = outcome else {
        panic!("{outcome:?}")
    };
    let begins = (receive.rip, receive.rax);
    assert_eq!(
        (registers.rip, registers.rax),
        begins,
        "A3: it begins again"
    );
    let (system, host) = (&mut root.system, &mut host);
    assert_eq!(returns(&mut child, system, host, &receive), 4);
}

#[test]
fn who_ends_traces_nobody_and_ends_those_that_it_said() {
    for (options, kills) in [(0, false), (u64::from(option::EXITKILL), true)] {
        let mut host = Fake::new();
        let (mut root, mut child) = traced(&mut host);
        assert_eq!(asks(&mut root, &mut host, &child, SETOPTIONS, options), 0);
        let _ = root.system.take_sent();
        root.system.end(root.task.pid, Status::Exited(0));
        let sent = root.system.take_sent();
        let killed = sent.iter().any(|(_, signal, _)| *signal == sig::KILL);
        assert_eq!(killed, kills);
        let goes = root.system.take_trace_goes();
        assert_eq!(goes, [child.tid], "S2: it goes on");
        runs(&mut root, &mut child, &mut host);
        assert!(!root.system.is_traced(child.tid), "S2: nothing is left");
    }
}

#[test]
fn who_is_detached_goes_on_by_itself() {
    let mut host = Fake::new();
    let (mut root, mut child) = traced(&mut host);
    assert_eq!(asks(&mut root, &mut host, &child, DETACH, 0), 0);
    assert_eq!(asks(&mut root, &mut host, &child, CONT, 0), -3);
    runs(&mut root, &mut child, &mut host);
    assert!(!root.system.is_traced(child.tid));
    // Nobody traces processes of other trees, or itself.
    let other = root.system.create(None).unwrap();
    let attach = |root: &mut One, host: &mut Fake, number: u32| {
        root.result(host, nr::ptrace, &[16, u64::from(number)])
    };
    let number = root.task.number;
    assert_eq!(attach(&mut root, &mut host, other), -1, "S2: another tree");
    assert_eq!(attach(&mut root, &mut host, number), -1);
    assert_eq!(attach(&mut root, &mut host, child.number), 0);
}

/// A trace is restored as it was, with what its tracer has not been told.
#[test]
fn a_traced_task_comes_back_as_it_was() {
    let mut host = Fake::new();
    let (mut root, child) = traced(&mut host);
    let tid = child.tid;
    assert_eq!(waits(&mut root, &mut host), 0x137f);
    root.system.resume_traced(tid, Mode::Calls, sig::TERM);
    root.system
        .stop_traced(tid, [Stop::Event(event::FORK), Stop::Exit]);
    let trace = root.system.trace_mut(tid).unwrap();
    (trace.message, trace.call) = (77, 57);
    let tasks = [(FIRST, &root.task), (FIRST, &child)];
    let saved = save(&tasks, None, &root.system, &mut host).unwrap();
    let mut system = System::new();
    let new = system.create(None).unwrap();
    let adopted = part::adopt(&saved, (2, 0), 0, new, &mut system, &mut host).unwrap();
    let again = adopted
        .tasks
        .iter()
        .find(|one| one.task.pid != new)
        .unwrap();
    let trace = system.trace(again.task.tid).unwrap();
    assert_eq!(
        (trace.tracer, trace.number),
        (new, child.number),
        "A6: who traces it"
    );
    assert_eq!(
        (trace.stop, trace.mode),
        (Some(Stop::Event(event::FORK)), Mode::Calls)
    );
    assert_eq!((trace.message, trace.call), (77, 57));
    assert!(!trace.told && trace.signal.is_some_and(|(signal, _)| signal == sig::TERM));
    let tid = again.task.tid;
    system.resume_traced(tid, Mode::Calls, 0);
    assert_eq!(
        system.trace(tid).unwrap().stop,
        Some(Stop::Exit),
        "A6: the next stop"
    );
    assert_eq!(system.tracees(new), [tid], "A6: whom it traces");
}

/// What is asked of the host during a call belongs to that call. A call that stops for the tracer at its entry has not
/// begun: what others ask for meanwhile does not belong to it.
#[test]
fn a_call_that_stops_before_it_has_not_begun() {
    let mut host = Fake::new();
    let (mut root, mut child) = traced(&mut host);
    let mut begun = host.calls;
    let mut makes = |host: &Fake, more: u32, what: &str| {
        begun += more;
        let rule = "S1: whoever asks next is taken for the one that has stopped";
        assert_eq!((host.caller, host.calls), (None, begun), "{rule}: {what}");
    };
    assert_eq!(waits(&mut root, &mut host), 0x137f);
    assert_eq!(asks(&mut root, &mut host, &child, SYSCALL, 0), 0);
    makes(&host, 2, "the tracer's calls");
    runs(&mut root, &mut child, &mut host);
    let get = registers(nr::getpid, &[]);
    let outcome = emulate::call(&mut child, &mut root.system, &mut host, &get);
    assert!(matches!(outcome, Outcome::Park(_)));
    assert_eq!(stop(&root, &child), Some(Stop::Enter));
    makes(&host, 0, "a call that stops before it");
    assert_eq!(asks(&mut root, &mut host, &child, SYSCALL, 0), 0);
    makes(&host, 1, "the tracer's call");
    let outcome = emulate::call(&mut child, &mut root.system, &mut host, &get);
    assert!(matches!(outcome, Outcome::Go { .. }));
    makes(&host, 1, "the call that is made");
    // The same holds for the stop before the end.
    let exits = u64::from(option::of(event::EXIT));
    assert_eq!(waits(&mut root, &mut host), 0x57f);
    assert_eq!(asks(&mut root, &mut host, &child, SETOPTIONS, exits), 0);
    assert_eq!(asks(&mut root, &mut host, &child, CONT, 0), 0);
    makes(&host, 3, "the tracer's calls");
    runs(&mut root, &mut child, &mut host);
    let exit = registers(nr::exit, &[0]);
    let outcome = emulate::call(&mut child, &mut root.system, &mut host, &exit);
    assert!(matches!(outcome, Outcome::Park(_)));
    makes(&host, 0, "an end that stops before it");
}
