//! The small systems that are explored.

use crate::scene::{Builder, Line, Scene, Task, OURS};
use abi::{Call, Code};
use spec::object::{Body, Mutex, Port};

/// A keeper of exceptions.
const KEEPER: &[Line] = &[
    Line::Call(Call::ServerWaitReceiveShort, &[(0, OUR_SET)]),
    Line::On(Code::Exception, 3),
    Line::Jump(0),
    Line::Answer,
    Line::Jump(0),
];

/// A program that calls a server once, causes an exception once, and ends.
const VICTIM: &[Line] = &[Line::Call(Call::CallShort, &[(0, SERVICE)]), Line::Bad, Line::End];

/// Handles that scripts name: the first objects of ours that a scene makes, after the manager's own.
const OUR_SET: u64 = OURS + 0x70;
const SERVICE: u64 = OURS + 0x80;

/// All scenes.
#[must_use]
pub fn all() -> Vec<Scene> {
    vec![manager(), held(), exception(), cut()]
}

/// A hostile thread with a few objects of its own, and their manager.
#[must_use]
pub fn manager() -> Scene {
    let mut b = Builder::new("manager", "a manager, and a hostile thread with objects of its own");
    let thread = b.hostile("th");
    let second = b.hostile("t2");
    let mutex = b.their("mutex", Body::Mutex(Mutex::default()));
    let set = b.their("set", Body::Portset);
    let port =
        b.their("port", Body::Port(Port { alias: 1, portset: Some(set), ..Port::default() }));
    let n0 = b.their_reference("n0", None);
    let n1 = b.their_reference("n1", None);
    b.their_room("room");
    b.shelf(&[n0, n1]);
    for id in [thread, second, mutex, set, port, n0] {
        b.task(id, Task::Everything);
    }
    b.build(|s| s.depth = 3)
}

/// A hostile thread that holds a space which the manager has made, as a holder of a process's control port does.
#[must_use]
pub fn held() -> Scene {
    let mut b = Builder::new("held", "a hostile thread that holds what a manager has made");
    b.hostile("th");
    let space = b.held("held");
    let n0 = b.their_reference("n0", Some(space));
    let n1 = b.their_reference("n1", None);
    b.their_room("room");
    b.task(space, Task::Everything);
    b.task(n0, Task::Everything);
    b.task(n1, Task::Everything);
    b.build(|s| s.depth = 3)
}

/// A victim that calls a hostile server, and then meets an exception that its keeper receives.
#[must_use]
pub fn exception() -> Scene {
    let mut b =
        Builder::new("exception", "a hostile server, a client of it, and the client's keeper");
    let keeper_set = b.our("keeper's set", Body::Portset);
    let service_set = b.their("set", Body::Portset);
    let service =
        b.inside(Body::Port(Port { alias: 1, portset: Some(service_set), ..Port::default() }));
    let service = b.our_reference("service", service);
    debug_assert_eq!((b.handle(keeper_set), service), (OUR_SET, SERVICE));
    let port =
        b.inside(Body::Port(Port { alias: 2, portset: Some(keeper_set), ..Port::default() }));
    b.keep_ours(port);
    let keeper = b.honest("keeper", KEEPER, false);
    let victim = b.honest("victim", VICTIM, true);
    let _ = victim;
    let server = b.hostile("t2");
    let _ = server;
    b.hostile_inside();
    b.their_reference("n0", None);
    b.task(keeper, Task::Destroy);
    b.task(victim, Task::Cut);
    b.build(|s| {
        s.depth = 11;
        s.calls = |call| {
            // The calls on connections and threads in their simplest forms, so that many moves can be explored.
            matches!(
                call,
                Call::ServerWaitReceiveShort
                    | Call::ReplyShort
                    | Call::ServerDisconnect
                    | Call::ServerRelease
                    | Call::ThreadGetState
                    | Call::ThreadSetState
                    | Call::ThreadStop
                    | Call::ThreadResume
                    | Call::ThreadDestroy
                    | Call::ThreadCreate
            )
        };
    })
}

/// Honest threads that share a lock and a connection, cut by their manager at any time.
#[must_use]
pub fn cut() -> Scene {
    const LOCKS: &[Line] = &[
        Line::Call(Call::MutexLock, &[(0, OUR_SET)]),
        Line::Call(Call::CondSignal, &[(0, SERVICE)]),
        Line::Call(Call::MutexUnlock, &[(0, OUR_SET)]),
        Line::End,
    ];
    const WAITS: &[Line] = &[
        Line::Call(Call::MutexLock, &[(0, OUR_SET)]),
        Line::Call(Call::CondWait, &[(0, SERVICE), (1, OUR_SET)]),
        Line::Call(Call::MutexUnlock, &[(0, OUR_SET)]),
        Line::End,
    ];
    let mut b = Builder::new("cut", "two threads with a lock and a condition, cut at any time");
    let mutex = b.our("mutex", Body::Mutex(Mutex::default()));
    let cond = b.our("cond", Body::Cond);
    debug_assert_eq!((b.handle(mutex), b.handle(cond)), (OUR_SET, SERVICE));
    let one = b.honest("one", LOCKS, true);
    let two = b.honest("two", WAITS, true);
    b.task(one, Task::Cut);
    b.task(two, Task::Cut);
    b.build(|s| {
        s.depth = 60;
        s.restarts = true;
    })
}
