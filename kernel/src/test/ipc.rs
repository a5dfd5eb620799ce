//! IPC: every entrypoint with every result, the paper's example, and progress to the byte.
//!
//! The companions make narrow calls only, one stage each, so that a combined call is compared with its stages. A test
//! brings a thread into the stage in which its entrypoint begins, and the thread makes the call; then the test checks
//! the results and the bytes that arrived.

use super::calls::{outcome, wrong_handles, Vacancy};
use super::conformance::{Met, Outcome};
use super::world::*;
use crate::object::thread::Run;
use abi::ipc::{plan, Plan};
use abi::registers::SEND;
use abi::state::{Stage, Waiting, REGISTER_WORDS};
use abi::syscalls::{Param, Party};
use abi::{boot, Call, Code, Common, Exception, Type, PAGE_SIZE, ROLES};
use std::vec::Vec;

/// Bytes that the entrypoint under test sends.
const SENT: u64 = 24;
/// Size of its receive buffer.
const ROOM: u64 = 100;

/// A world with a service, buffers and memory for results.
struct Stand {
    w: World,
    set: u64,
    /// A reference to the port.
    reference: u64,
    buffer: u64,
    out: u64,
    /// References that the companions send and receive.
    lists: [u64; 2],
    /// The values that the call under test has in registers instead of the right ones.
    instead: Vec<(R, u64)>,
}

impl Stand {
    fn new() -> Stand {
        let w = World::with_frames(48);
        let set = w.create(Call::PortsetCreate);
        let (_, reference) = w.port(set, 7);
        let (buffer, out) = (w.page(), w.page());
        for i in 0..256 {
            w.poke(buffer + i * 8, 0x0101_0101_0101_0101 * (i % 251));
        }
        w.poke(out, u64::MAX);
        Stand {
            w,
            set,
            reference,
            buffer,
            out,
            lists: [0; 2],
            instead: Vec::new(),
        }
    }

    /// One stage of either side, with `length` bytes to send.
    fn stage(&self, p: Program, client: bool, stage: Plan, length: u64) -> Program {
        let call = match (client, stage) {
            (true, Plan::CONNECT) => Call::ClientConnect,
            (true, Plan::ACK) => Call::ClientAck,
            (true, Plan::SEND) => Call::ClientSend,
            (true, Plan::OVER) => Call::ClientOver,
            (true, Plan::RECEIVE) => Call::ClientReceive,
            (true, _) => Call::ClientDisconnect,
            (false, Plan::WAIT) => Call::ServerWait,
            (false, Plan::ACK) => Call::ServerAck,
            (false, Plan::SEND) => Call::ServerSend,
            (false, Plan::OVER) => Call::ServerOver,
            (false, Plan::RECEIVE) => Call::ServerReceive,
            (false, _) => Call::ServerDisconnect,
        };
        let name = if client { self.reference } else { self.set };
        p.call(
            call,
            &[
                (A0, name),
                (A1, self.buffer),
                (A2, length),
                (A4, 0),
                (A5, self.lists[0]),
                (A6, self.buffer + 2048),
                (A7, 1024),
                (A9, 0),
                (A10, self.lists[1]),
            ],
        )
    }

    fn stages(&self, client: bool, stages: &[Plan], length: u64) -> Program {
        stages
            .iter()
            .fold(Program::new(), |p, &s| self.stage(p, client, s, length))
    }

    /// The calls that bring a side into the stage in which the call begins.
    fn before(&self, call: Call) -> Program {
        let stages: &[Plan] = match (plan(call).has(Plan::CLIENT), plan(call).first()) {
            (true, Some(Plan::SEND | Plan::OVER)) => &[Plan::CONNECT],
            (true, Some(Plan::RECEIVE)) => &[Plan::CONNECT, Plan::OVER],
            (true, Some(Plan::ACK)) => &[Plan::CONNECT, Plan::OVER, Plan::RECEIVE],
            (false, Some(Plan::RECEIVE)) => &[Plan::WAIT],
            (false, Some(Plan::ACK)) => &[Plan::WAIT, Plan::RECEIVE],
            (false, Some(Plan::SEND | Plan::OVER)) => &[Plan::WAIT, Plan::RECEIVE, Plan::ACK],
            _ => &[],
        };
        self.stages(plan(call).has(Plan::CLIENT), stages, 0)
    }

    /// Appends the call under test, with `room` bytes to receive into, and instructions that store its result.
    fn test(&self, p: Program, call: Call, room: u64) -> Program {
        let client = plan(call).has(Plan::CLIENT);
        let name = if client { self.reference } else { self.set };
        let mut registers = std::vec![
            (A0, name),
            (A10, 0),
            (A9, 0),
            (A11, 1 << 63),
            (A1, self.buffer)
        ];
        let mut count = 0;
        if plan(call).has(Plan::SHORT) {
            let sends = [Plan::SEND, Plan::CALL, Plan::REPLY]
                .iter()
                .any(|&s| plan(call).has(s));
            count = if sends { SENT } else { 0 };
        } else {
            registers.extend([(A2, SENT), (A3, 0), (A4, 0), (A5, 0)]);
            registers.extend([(A6, self.buffer + 1024), (A7, room), (A8, 0)]);
        }
        registers.extend(&self.instead);
        p.call_short(call, count, &registers)
            .keep(self.out, RESULT)
            .keep(self.out + 8, A7)
            .keep(self.out + 16, A0)
    }

    fn code(&self) -> Code {
        Code::from_word(self.w.peek(self.out))
    }

    /// Bytes that the call under test received.
    fn received(&self, call: Call) -> u64 {
        match plan(call).has(Plan::SHORT) {
            true => self.w.peek(self.out) >> 8,
            false => ROOM - self.w.peek(self.out + 8),
        }
    }

    /// A server that receives everything and sends `length` bytes each time. It counts all bytes that it
    /// received.
    fn echo(&self, length: u64) -> Program {
        self.echo_after(length, self.stages(false, &[Plan::WAIT], 0))
    }

    fn echo_after(&self, length: u64, p: Program) -> Program {
        let count = self.out + 24;
        let again = p.len();
        let p = self.stage(p, false, Plan::RECEIVE, 0);
        let p = self.add_received(p, count);
        let p = p.jump_if(|c| c.call().get() as u8 != 0, 0);
        let p = self.stage(p, false, Plan::ACK, 0);
        let p = self.stage(p, false, Plan::SEND, length);
        self.stage(p, false, Plan::OVER, 0).jump(again)
    }

    fn add_received(&self, p: Program, count: u64) -> Program {
        p.load(count, A11)
            .op(|c| {
                c.parameter(11)
                    .set(c.parameter(11).get() + 1024 - c.parameter(7).get())
            })
            .keep(count, A11)
    }

    /// A client that sends `length` bytes each time; makes up to `times` connections.
    fn talker(&self, length: u64, times: u64) -> Program {
        self.talker_with(length, times, |p| p)
    }

    /// As [`Stand::talker`], with the instructions of `f` between connecting and sending.
    fn talker_with(&self, length: u64, times: u64, f: fn(Program) -> Program) -> Program {
        let (count, left) = (self.out + 24, self.out + 32);
        self.w.poke(left, times);
        let p = Program::new()
            .load(left, A11)
            .op(|c| c.parameter(11).set(c.parameter(11).get().wrapping_sub(1)))
            .keep(left, A11)
            .jump_if(|c| c.parameter(11).get() > 1000, 1000);
        let p = f(self.stage(p, true, Plan::CONNECT, 0));
        let again = p.len();
        let p = self.stage(p, true, Plan::SEND, length);
        let p = self.stage(p, true, Plan::OVER, 0);
        let p = self.stage(p, true, Plan::RECEIVE, 0);
        let p = self.add_received(p, count);
        let p = self
            .stage(p, true, Plan::ACK, 0)
            .jump_if(|c| c.call().get() as u8 == 0, again);
        self.stage(p, true, Plan::DISCONNECT, 0).jump(0)
    }

    fn start(&self, p: Program, priority: u64) -> u64 {
        self.w.thread(0, p, priority)
    }

    /// Makes a thread that sends the server a request without a connection: a call, a fault or an exception.
    fn event(&self, kind: Code) {
        let w = &self.w;
        match kind {
            Code::Call => {
                let p = Program::new().call_short(
                    Call::CallShort,
                    16,
                    &[
                        (A0, self.reference),
                        (A10, self.lists[1]),
                        (A9, self.lists[0]),
                    ],
                );
                self.start(p.keep(self.out + 40, RESULT).end(), 5);
            }
            Code::Fault => {
                let (_, region) = w.region(0, 0x9000_0000, PAGE_SIZE, self.reference);
                let (_, space) = w.space(0, 0, 0);
                w.map(space, 0x50_0000, PAGE_SIZE, region, 0);
                w.thread(space, Program::new().load(0x50_0008, A10).end(), 5);
            }
            _ => {
                let (_, space) = w.space(0, 0, self.reference);
                w.thread(space, Program::new().push(Instr::Bad(6)).end(), 5);
            }
        }
    }
}

/// A call of the client's end.
pub(super) fn client(met: &mut Met, call: Call) {
    let p = plan(call);
    let finish = |s: &Stand, p: Program| s.stage(p, true, Plan::DISCONNECT, 0).end();

    // Undisturbed, with the server waiting first, or the client.
    for server in [4, 12] {
        let s = Stand::new();
        s.start(finish(&s, s.test(s.before(call), call, ROOM)), 10);
        s.start(s.echo(40), server);
        s.w.run();
        met.returned(call, s.code(), Code::Ok);
        if p.has(Plan::SEND) {
            assert_eq!(s.w.peek(s.out + 24), SENT, "{}", call.name());
        }
        if p.has(Plan::RECEIVE) {
            assert_eq!(s.received(call), 40, "{}", call.name());
            if !p.has(Plan::SHORT) {
                let (a, b) = (s.w.read(s.buffer, 40), s.w.read(s.buffer + 1024, 40));
                assert_eq!(a, b, "{}", call.name());
            }
        }
    }

    if p.has(Plan::RECEIVE) {
        let s = Stand::new();
        s.start(finish(&s, s.test(s.before(call), call, 8)), 10);
        s.start(s.echo(80), 9);
        s.w.run();
        met.returned(call, s.code(), Code::More);
    }

    let s = Stand::new();
    let before = if p.has(Plan::CONNECT) {
        [Plan::CONNECT].as_slice()
    } else {
        &[]
    };
    s.start(
        finish(&s, s.test(s.stages(true, before, 0), call, ROOM)),
        10,
    );
    s.start(s.echo(40), 12);
    s.w.run();
    if call == Call::ClientDisconnect {
        met.returned(call, s.code(), Code::Ok);
        return;
    }
    met.returned(call, s.code(), Code::WrongStage);

    if p.has(Plan::CONNECT) {
        let mut s = Stand::new();
        s.reference = s.w.create(Call::ReferenceCreate);
        s.start(s.test(Program::new(), call, ROOM).end(), 10);
        s.w.run();
        met.returned(call, s.code(), Code::Dead);

        // The port is for calls only before the client comes, or becomes so while the client waits.
        for early in [true, false] {
            let mut s = Stand::new();
            let set = s.w.create(Call::PortsetCreate);
            let (port, reference) = s.w.port(set, 1);
            s.reference = reference;
            let state = s.w.page();
            let set = s.w.reference(Call::PortsetReference, set);
            let close = |s: &Stand| {
                s.w.words(state, &[1, abi::state::port_flags::CALLS_ONLY]);
                s.w.ok(Call::PortSetState, &[port, state, set]);
            };
            if early {
                close(&s);
            }
            s.start(s.test(Program::new(), call, ROOM).end(), 10);
            s.w.run();
            if !early {
                close(&s);
                s.w.run();
            }
            met.returned(call, s.code(), Code::Denied);
        }
    }

    // The server leaves when the call could begin.
    if call != Call::ClientConnect {
        let s = Stand::new();
        let until: &[Plan] = match p.first() {
            Some(Plan::RECEIVE) => &[Plan::WAIT, Plan::RECEIVE, Plan::DISCONNECT],
            Some(Plan::ACK) => &[
                Plan::WAIT,
                Plan::RECEIVE,
                Plan::ACK,
                Plan::OVER,
                Plan::DISCONNECT,
            ],
            _ => &[Plan::WAIT, Plan::DISCONNECT],
        };
        s.start(s.stages(false, until, 0).end(), 12);
        s.start(finish(&s, s.test(s.before(call), call, ROOM)), 10);
        s.w.run();
        met.returned(call, s.code(), Code::Disconnected);
    }
}

/// A call of the server's end.
pub(super) fn server(met: &mut Met, call: Call) {
    if call == Call::ServerRelease {
        return release(met);
    }
    let p = plan(call);
    let finish = |s: &Stand, p: Program| s.stage(p, false, Plan::DISCONNECT, 0).end();

    for client in [4, 12] {
        let s = Stand::new();
        s.start(finish(&s, s.test(s.before(call), call, ROOM)), 10);
        s.start(s.talker(40, 2), client);
        s.w.run();
        met.returned(call, s.code(), Code::Ok);
        if p.has(Plan::SEND) {
            assert_eq!(s.w.peek(s.out + 24), SENT, "{}", call.name());
        }
        if p.has(Plan::RECEIVE) {
            assert_eq!(s.received(call), 40, "{}", call.name());
        }
        if p.has(Plan::WAIT) {
            assert_eq!(s.w.peek(s.out + 16), 7, "{} tells no alias", call.name());
        }
    }

    if !p.has(Plan::WAIT) || p.first() != Some(Plan::WAIT) {
        let s = Stand::new();
        s.start(s.test(Program::new(), call, ROOM).end(), 10);
        s.w.run();
        if call == Call::ServerDisconnect {
            met.returned(call, s.code(), Code::Ok);
            return;
        }
        met.returned(call, s.code(), Code::WrongStage);
    }

    if p.has(Plan::RECEIVE) {
        let s = Stand::new();
        s.start(finish(&s, s.test(s.before(call), call, 8)), 10);
        s.start(s.talker(80, 2), 9);
        s.w.run();
        met.returned(call, s.code(), Code::More);
    }

    // The client leaves when the call could begin, or has begun to receive.
    if !matches!(call, Call::ServerWait) {
        let s = Stand::new();
        let until: &[Plan] = match p.first() {
            Some(Plan::WAIT | Plan::RECEIVE) => &[Plan::CONNECT, Plan::DISCONNECT],
            _ => &[Plan::CONNECT, Plan::OVER, Plan::DISCONNECT],
        };
        // A server that sends has taken the direction already.
        let sends = matches!(p.first(), Some(Plan::SEND | Plan::OVER));
        s.start(s.stages(true, until, 0).end(), if sends { 4 } else { 12 });
        s.start(finish(&s, s.test(s.before(call), call, ROOM)), 10);
        s.w.run();
        met.returned(call, s.code(), Code::Disconnected);
    }
    waits(met, call, &|s| {
        s.start(finish(s, s.test(s.before(call), call, ROOM)), 10);
        if p.first() != Some(Plan::WAIT) {
            s.start(s.talker(40, 1), 9);
        }
    });
    if p.has(Plan::UNTIL) {
        times_out(met, call, |_| Program::new());
    }
}

/// Tests a call that waits until its deadline without a client, after the calls of `before`.
fn times_out(met: &mut Met, call: Call, before: impl Fn(&Stand) -> Program) {
    let s = Stand::new();
    let wait = [
        (A0, s.set),
        (A2, 0),
        (A4, 0),
        (A5, 0),
        (A7, 0),
        (A9, 0),
        (A10, 0),
        (A11, 1 << 40),
    ];
    let p = before(&s).call(call, &wait).keep(s.out, RESULT);
    s.start(p.end(), 10);
    s.w.run();
    met.returned(call, s.code(), Code::TimedOut);
    assert!(hal::now() >= 1 << 40, "A7: too early");
}

fn release(met: &mut Met) {
    for held in [true, false] {
        let s = Stand::new();
        let p = if held {
            exception_held(&s)
        } else {
            Program::new()
        };
        s.start(
            p.call(Call::ServerRelease, &[]).keep(s.out, RESULT).end(),
            10,
        );
        s.w.run();
        let code = if held { Code::Ok } else { Code::WrongStage };
        met.returned(Call::ServerRelease, s.code(), code);
    }
}

/// Tests what a call with a wait returns for requests without a connection. `start` starts its thread.
fn waits(met: &mut Met, call: Call, start: &dyn Fn(&Stand)) {
    let p = plan(call);
    if p.has(Plan::WAIT) {
        // The port becomes unreferenced before the server comes, or while it waits. A call of several stages
        // has another wait before this one, in which it would get the notice.
        for early in [p.first() == Some(Plan::WAIT), false] {
            let s = Stand::new();
            let (port, reference) = s.w.port(s.set, 99);
            let state = s.w.page();
            let set = s.w.reference(Call::PortsetReference, s.set);
            s.w.words(state, &[99, abi::state::port_flags::NOTIFY_UNREFERENCED]);
            s.w.ok(Call::PortSetState, &[port, state, set]);
            if early {
                s.w.ok(Call::ReferenceDestroy, &[reference, 0]);
            }
            start(&s);
            s.w.run();
            if !early {
                assert_ne!(s.code(), Code::Unreferenced, "{}: too early", call.name());
                s.w.ok(Call::ReferenceDestroy, &[reference, 0]);
                s.w.run();
            }
            met.returned(call, s.code(), Code::Unreferenced);
            s.w.ok(Call::PortGetState, &[port, state, 0]);
            assert_eq!(s.w.peek(state + 8), 0, "{}: once", call.name());
        }
    }
    if p.has(Plan::WAIT) && p.has(Plan::RECEIVE) {
        for code in [Code::Call, Code::Fault, Code::Exception] {
            let s = Stand::new();
            start(&s);
            s.w.run();
            s.event(code);
            s.w.run();
            // A register message has room for the short form of an exception.
            let fits = code != Code::Exception || p.has(Plan::SHORT);
            let expected = if fits { code } else { Code::TooLarge };
            met.returned(call, s.code(), expected);
            if fits {
                let length = match code {
                    Code::Call => 16,
                    Code::Fault => 32,
                    _ => 64,
                };
                assert_eq!(s.received(call), length, "{} {code:?}", call.name());
            }
        }
    } else if p.has(Plan::WAIT) {
        let s = Stand::new();
        start(&s);
        s.w.run();
        s.event(Code::Exception);
        s.w.run();
        met.returned(call, s.code(), Code::TooLarge);
    }
    if p.has(Plan::WAIT) && p.has(Plan::RECEIVE) && !p.has(Plan::SHORT) {
        // With room for an exception.
        met.returned(call, exception_taken(call), Code::Exception);
    }
}

/// An exception is received by a call with room for it.
fn exception_taken(call: Call) -> Code {
    let s = Stand::new();
    let reply = plan(call).has(Plan::REPLY);
    let p = if reply { call_held(&s) } else { s.before(call) };
    s.start(s.test(p, call, 200).end(), 10);
    if plan(call).first() != Some(Plan::WAIT) && !reply {
        s.start(s.talker(40, 1), 9);
    }
    s.w.run();
    s.event(Code::Exception);
    s.w.run();
    assert_eq!(s.code(), Code::Exception, "{}", call.name());
    s.code()
}

/// A program that receives a request that is waiting already.
fn call_held(s: &Stand) -> Program {
    s.event(Code::Call);
    receive_any(s)
}

fn receive_any(s: &Stand) -> Program {
    Program::new().call(
        Call::ServerWaitReceive,
        &[
            (A0, s.set),
            (A6, s.buffer + 2048),
            (A7, 1024),
            (A9, 0),
            (A10, s.lists[1]),
        ],
    )
}

fn exception_held(s: &Stand) -> Program {
    s.event(Code::Exception);
    receive_any(s)
}

/// A call of the idempotent form.
pub(super) fn idempotent(met: &mut Met, call: Call) {
    if plan(call).has(Plan::CALL) {
        for (length, room, code) in [
            (40, ROOM, Code::Ok),
            (80, 8, Code::Truncated),
            (0, ROOM, Code::Ok),
        ] {
            let s = Stand::new();
            s.start(s.test(Program::new(), call, room).end(), 10);
            let p = receive_any(&s)
                .call(
                    Call::Reply,
                    &[(A1, s.buffer), (A2, length), (A4, 0), (A5, 0)],
                )
                .keep(s.out + 24, RESULT);
            s.start(p.end(), 9);
            s.w.run();
            assert_eq!(s.w.peek(s.out + 24), 0, "{}: the reply", call.name());
            met.returned(call, s.code(), code);
        }
        let mut s = Stand::new();
        s.start(s.stages(false, &[Plan::WAIT], 0).end(), 10);
        s.start(s.test(Program::new(), call, ROOM).end(), 5);
        s.w.run();
        met.returned(call, s.code(), Code::TooLarge);
        s.reference = s.w.create(Call::ReferenceCreate);
        s.start(s.test(Program::new(), call, ROOM).end(), 5);
        s.w.run();
        met.returned(call, s.code(), Code::Dead);
    }
    if plan(call).has(Plan::REPLY) {
        let p = plan(call);
        let s = Stand::new();
        s.start(s.test(Program::new(), call, ROOM).end(), 10);
        s.w.run();
        met.returned(call, s.code(), Code::WrongStage);

        // A reply to an exception with the wrong length, or with registers that no thread can have.
        let s = Stand::new();
        s.start(s.test(exception_held(&s), call, ROOM).end(), 10);
        s.w.run();
        met.returned(call, s.code(), Code::Invalid);

        if !p.has(Plan::SHORT) {
            let s = Stand::new();
            let length = abi::MAX_IDEMPOTENT + 1;
            let p = call_held(&s)
                .call(
                    call,
                    &[(A0, s.set), (A1, s.buffer), (A2, length), (A4, 0), (A5, 0)],
                )
                .keep(s.out, RESULT);
            s.start(p.end(), 10);
            s.w.run();
            met.returned(call, s.code(), Code::TooLarge);
        }
        let s = Stand::new();
        s.start(s.test(call_held(&s), call, ROOM).end(), 10);
        s.w.run();
        assert_eq!(s.w.peek(s.out + 40), SENT << 8, "{}", call.name());
        if !p.has(Plan::WAIT) {
            met.returned(call, s.code(), Code::Ok);
            return;
        }
        for (stages, room, code) in [
            (&[Plan::CONNECT, Plan::SEND, Plan::OVER][..], ROOM, Code::Ok),
            (&[Plan::CONNECT, Plan::SEND, Plan::OVER][..], 8, Code::More),
            (
                &[Plan::CONNECT, Plan::DISCONNECT][..],
                ROOM,
                Code::Disconnected,
            ),
        ] {
            let s = Stand::new();
            s.start(s.test(call_held(&s), call, room).end(), 10);
            s.w.run();
            let length = if code == Code::More { 80 } else { 40 };
            s.start(s.stages(true, stages, length).end(), 9);
            s.w.run();
            met.returned(call, s.code(), code);
        }
        waits(met, call, &|s| {
            s.start(s.test(call_held(s), call, ROOM).end(), 10);
        });
        if p.has(Plan::UNTIL) {
            times_out(met, call, call_held);
        }
    }
}

// ---- parties that are wrong, vacant or dead --------------------------------------------------------

/// A stop of the program, until the manager interrupts it.
fn gate(p: Program) -> Program {
    p.call(Call::ThreadWaitInterrupt, &[])
}

/// A thread that makes the call, and its partner.
struct Pair {
    tested: u64,
    partner: u64,
    /// The thread to let through its gate, if the call has not begun or is in its first stage.
    gated: u64,
}

impl Stand {
    /// Starts both threads. A call that begins without a connection gets no further than that it has one, since its
    /// partner stops at a gate. Any other call waits at a gate, with the calls before it complete.
    fn pair(&self, call: Call) -> Pair {
        let p = plan(call);
        let early = matches!(p.first(), Some(Plan::CONNECT | Plan::WAIT | Plan::REPLY));
        let before = if p.has(Plan::REPLY) {
            call_held(self)
        } else {
            self.before(call)
        };
        let before = if early { before } else { gate(before) };
        let tested = self.start(self.test(before, call, ROOM).end(), 10);
        // The call without a connection comes first.
        self.w.run();
        let maybe = |p| if early { gate(p) } else { p };
        let p = if p.has(Plan::CALL) {
            let send = [(A1, self.buffer), (A2, 40), (A4, 0), (A5, self.lists[0])];
            receive_any(self).call(Call::Reply, &send).end()
        } else if p.has(Plan::CLIENT) {
            self.echo_after(40, maybe(self.stages(false, &[Plan::WAIT], 0)))
        } else {
            self.talker_with(40, 2, if early { gate } else { |p| p })
        };
        let partner = self.start(p, 9);
        self.w.run();
        Pair {
            tested,
            partner,
            gated: if early { partner } else { tested },
        }
    }

    fn let_through(&self, thread: u64) {
        let w = &self.w;
        let reference = w.reference(Call::ThreadReference, thread);
        w.ok(Call::ThreadInterrupt, &[reference]);
        w.run();
    }

    fn outcome(&self, t: u64) -> Outcome {
        outcome(&self.w, t, self.out)
    }

    /// Makes the call use another handle.
    fn rename(&mut self, handle: u64) {
        self.instead.push((A0, handle));
    }
}

/// Wrong handles and lists, and parties whose identity is vacant or dead.
pub(super) fn parties(met: &mut Met, call: Call) {
    for party in call.row().parties() {
        match party {
            Party::Handle(index) => name(met, call, index),
            Party::Named(_) => port(met, call, party),
            Party::Peer => peer(met, call),
        }
    }
    lists(met, call);
}

/// The handle of a reference to a port, or of a portset.
fn name(met: &mut Met, call: Call, index: usize) {
    let Param::Object(ty) = call.row().params[index].1 else {
        panic!("{}: a handle of what?", call.name());
    };
    let party = Party::Handle(index);
    for n in 0..4 {
        let mut s = Stand::new();
        let (what, wrong) = wrong_handles(&s.w, ty)[n];
        s.rename(wrong);
        let pair = s.pair(call);
        s.let_through(pair.gated);
        met.raised(call, s.outcome(pair.tested), what, wrong);
    }
    for kept in [true, false] {
        let mut s = Stand::new();
        let handle = if ty == Type::Portset {
            s.w.create(Call::PortsetCreate)
        } else {
            let port = s.w.port(s.set, 8).0;
            s.w.reference(Call::PortReference, port)
        };
        s.rename(handle);
        let vacancy = kept.then(|| Vacancy::begin(&s.w, ty, handle));
        if !kept {
            s.w.ok(Common::Destroy.of(ty), &[handle, 0]);
        }
        let pair = s.pair(call);
        s.let_through(pair.gated);
        let first = s.outcome(pair.tested);
        let Some(vacancy) = vacancy else {
            met.dead(call, party, first);
            continue;
        };
        vacancy.end(&s.w);
        s.w.run();
        met.vacant(call, party, first, s.outcome(pair.tested));
    }
}

/// The port that a client's reference names.
fn port(met: &mut Met, call: Call, party: Party) {
    for kept in [true, false] {
        let mut s = Stand::new();
        let (port, reference) = s.w.port(s.set, 8);
        s.reference = reference;
        let vacancy = kept.then(|| Vacancy::begin(&s.w, Type::Port, port));
        if !kept {
            s.w.ok(Call::PortDestroy, &[port, 0]);
        }
        let t = s.start(s.test(Program::new(), call, ROOM).end(), 10);
        s.w.run();
        let first = s.outcome(t);
        let Some(vacancy) = vacancy else {
            met.dead(call, party, first);
            continue;
        };
        vacancy.end(&s.w);
        s.w.run();
        met.vacant(call, party, first, s.outcome(t));
    }
}

/// The thread at the other end.
fn peer(met: &mut Met, call: Call) {
    for kept in [true, false] {
        let s = Stand::new();
        let pair = s.pair(call);
        let vacancy = kept.then(|| Vacancy::begin(&s.w, Type::Thread, pair.partner));
        if !kept {
            s.w.ok(Call::ThreadDestroy, &[pair.partner, 0]);
        }
        if pair.gated == pair.tested {
            s.let_through(pair.gated);
        }
        s.w.run();
        let first = s.outcome(pair.tested);
        let Some(vacancy) = vacancy else {
            met.dead(call, Party::Peer, first);
            continue;
        };
        vacancy.end(&s.w);
        if pair.gated == pair.partner {
            s.let_through(pair.gated);
        }
        s.w.run();
        met.vacant(call, Party::Peer, first, s.outcome(pair.tested));
    }
}

/// Lists of references and of segments.
fn lists(met: &mut Met, call: Call) {
    let p = plan(call);
    let short = p.has(Plan::SHORT);
    let sends = [Plan::SEND, Plan::CALL, Plan::REPLY]
        .iter()
        .any(|&s| p.has(s));
    let receives = [Plan::RECEIVE, Plan::CALL].iter().any(|&s| p.has(s));
    for (side, used) in [(0, sends), (1, receives)] {
        if !used {
            continue;
        }
        for n in 0..4 {
            let mut s = Stand::new();
            let place = || s.w.reference(Call::PortReference, s.w.port(s.set, 3).0);
            s.lists = [place(), place()].map(|at| abi::ref_list(at, 1));
            if n == 2 {
                // Errors in the lists of references would come before those in the lists of segments.
                s.lists = [0; 2];
            }
            let (what, wrong) = wrong_handles(&s.w, Type::Reference)[n];
            let list = match (side, short) {
                (0, true) => (A9, 1),
                (0, false) => (A5, 1),
                _ => (A10, 1),
            };
            if what != Exception::Misaligned {
                s.instead.push((list.0, abi::ref_list(wrong, list.1)));
            } else if short {
                continue;
            } else if side == 0 {
                s.instead.extend([(A2, 0), (A3, wrong + 4), (A4, 1)]);
            } else {
                s.instead.extend([(A7, 0), (A8, wrong + 4), (A9, 1)]);
            }
            let at = if what == Exception::Misaligned {
                wrong + 4
            } else {
                wrong
            };
            let pair = s.pair(call);
            s.let_through(pair.gated);
            met.raised(call, s.outcome(pair.tested), what, at);
        }
    }
}

/// 8,192 bytes from 0x8001800, a fault after 6,144: the frame says 2,048 from 0x8003000.
#[test]
fn the_papers_example() {
    let w = World::with_frames(64);
    let (set, quiet) = (w.create(Call::PortsetCreate), w.create(Call::PortsetCreate));
    let ((_, to), (_, keeper)) = (w.port(set, 1), w.port(quiet, 2));
    let (_, region) = w.region(0, 0x9000_0000, 4 * PAGE_SIZE, keeper);
    let pages = w.pages(4);
    let map = |page: u64| {
        let at = w.physical(pages + page * PAGE_SIZE);
        w.map(
            0,
            0x9000_0000 + page * PAGE_SIZE,
            PAGE_SIZE,
            boot::ROOT_REGION,
            at,
        );
    };
    [0, 1, 2].into_iter().for_each(map);
    let (_, space) = w.space(0, 0, 0);
    w.map(space, 0x800_0000, 4 * PAGE_SIZE, region, 0);
    let objects = w.page();
    w.map(
        space,
        0x10_0000,
        PAGE_SIZE,
        boot::ROOT_REGION,
        w.physical(objects),
    );
    w.ok(Call::ReferenceCreate, &[objects, 0]);
    let state = w.page();
    w.poke(state, abi::RefKind::Port as u64);
    w.ok(Call::ReferenceSetState, &[objects, state, to]);
    let bytes: Vec<u8> = (0..16384u32).map(|i| ((i * 7) >> 3) as u8).collect();
    w.write(pages, &bytes);
    let into = w.pages(2);
    let receive = [(A0, set), (A6, into), (A7, 8192), (A9, 0), (A10, 0)];
    let server = Program::new()
        .call(Call::ServerWaitReceive, &receive)
        .keep(state, RESULT)
        .end();
    w.poke(state, 99);
    let server = w.thread(0, server, 10);
    let send = [
        (A0, 0x10_0000),
        (A1, 0x800_1800),
        (A2, 8192),
        (A4, 0),
        (A5, 0),
    ];
    let p = Program::new()
        .call(Call::ClientConnectSendOver, &send)
        .end();
    let client = w.thread(space, p, 9);
    w.run();

    let t = w.thread_at(client);
    assert_eq!(t.run.get(), Run::Waiting(Waiting::Port));
    w.ok(Call::ThreadGetState, &[client, state + 1024, 0, 0, 0]);
    let word = |n: u64| w.peek(state + 1024 + n * 8);
    assert_eq!(word(ROLES.call as u64) & 0xff, Call::ClientSendOver as u64);
    let [address, left, ..] = SEND.map(|n| word(ROLES.parameters[n] as u64));
    let left = (address, left);
    assert_eq!(left, (0x800_3000, 2048), "A3: progress in the frame");
    let wait = REGISTER_WORDS as u64 + 4;
    assert_eq!(
        (word(wait), word(wait + 5)),
        (Stage::Sending as u64, Waiting::Port as u64)
    );
    // The receiver has exactly what was sent.
    let s = w.thread_at(server);
    assert_eq!(
        (s.ctx.parameter(6).get(), s.ctx.parameter(7).get()),
        (into + 6144, 2048)
    );
    assert_eq!(w.read(into, 6144), bytes[0x1800..0x3000]);

    // The keeper gets the message, the page is mapped, and the keeper replies.
    let receive = [(A0, quiet), (A10, 0), (A9, 0)];
    let p = Program::new()
        .call(Call::ServerWaitReceiveShort, &receive)
        .keep(state + 8, RESULT)
        .keep(state + 16, A1)
        .call(Call::ThreadWaitInterrupt, &[])
        .call(Call::ReplyShort, &[(A9, 0)])
        .end();
    let keeper = w.thread(0, p, 12);
    w.run();
    map(3);
    let keeper = w.reference(Call::ThreadReference, keeper);
    w.ok(Call::ThreadInterrupt, &[keeper]);
    w.run();
    assert_eq!(
        (w.peek(state + 8), w.peek(state + 16)),
        (Code::Fault as u64 | 32 << 8, 0x3000)
    );
    assert_eq!(w.peek(state), 0);
    assert_eq!(w.read(into, 8192), bytes[0x1800..0x3800]);
}

/// A port that holds its clients makes all of them wait, those that waited already and new ones, whatever servers wait;
/// its notice is delivered all the same. When the port no longer holds them they are served.
#[test]
fn a_port_that_holds_its_clients() {
    use abi::state::port_flags::{HOLD_CLIENTS, NOTIFY_UNREFERENCED};
    for (early, connects) in [(true, false), (false, false), (true, true), (false, true)] {
        let w = World::with_frames(48);
        let set = w.create(Call::PortsetCreate);
        let (port, reference) = w.port(set, 7);
        let (state, result, came) = (w.page(), w.page(), w.page());
        let to_set = w.reference(Call::PortsetReference, set);
        let hold = |flags| {
            w.words(state, &[7, flags]);
            w.ok(Call::PortSetState, &[port, state, to_set]);
        };
        w.poke(result, u64::MAX);
        let client = match connects {
            true => Program::new().call(Call::ClientConnect, &[(A0, reference)]),
            false => Program::new().call_short(Call::CallShort, 1, &[(A0, reference)]),
        };
        let client = client.keep(result, RESULT).end();
        if early {
            w.thread(0, client, 9);
            w.run();
            hold(HOLD_CLIENTS | NOTIFY_UNREFERENCED);
        } else {
            hold(HOLD_CLIENTS | NOTIFY_UNREFERENCED);
            w.thread(0, client, 9);
        }
        let server = || {
            Program::new()
                .call(Call::ServerWaitReceiveShort, &[(A0, set), (A10, 0)])
                .keep(came, RESULT)
                .keep(came + 8, A0)
                .end()
        };
        let received = w.thread(0, server(), 10);
        w.run();
        let waits = w.thread_at(received).waits_for(Waiting::Portset);
        assert!(waits, "a server takes no client that is held");
        w.ok(Call::PortGetState, &[port, state, 0]);
        assert_eq!(w.peek(state + 8), HOLD_CLIENTS | NOTIFY_UNREFERENCED);
        hold(NOTIFY_UNREFERENCED);
        w.run();
        assert!(
            !w.thread_at(received).waits_for(Waiting::Portset),
            "who was held is served"
        );
        if connects {
            assert_eq!(Code::from_word(w.peek(result)), Code::Ok, "connected");
            continue;
        }
        assert_eq!(Code::from_word(w.peek(came)), Code::Call);
        // Nothing names the port any more, and a server gets the notice.
        hold(HOLD_CLIENTS | NOTIFY_UNREFERENCED);
        w.thread(0, server(), 10);
        w.run();
        w.ok(Call::ReferenceDestroy, &[reference, 0]);
        w.run();
        let heard = (Code::from_word(w.peek(came)), w.peek(came + 8));
        assert_eq!(
            heard,
            (Code::Unreferenced, 7),
            "notices of a port that holds its clients come"
        );
    }
}
