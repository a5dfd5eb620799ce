//! IPC: every entrypoint with every result, the paper's example, and progress to the byte.
//!
//! The companions speak the narrow calls only, one stage each, so that a combined call is compared
//! with its stages. An entrypoint is brought into the stage that it begins in, makes its call, and
//! what it returned and what arrived is looked at.

use super::calls::Met;
use super::world::*;
use crate::object::thread::Run;
use abi::ipc::{plan, Plan};
use abi::state::{Stage, Waiting, REGISTER_WORDS};
use abi::{boot, Call, Code, PAGE_SIZE, SYSCALLS};
use std::vec::Vec;

/// Bytes that the entrypoint under test sends.
const SENT: u64 = 24;
/// Size of its receive buffer.
const ROOM: u64 = 100;

/// A world with a service, buffers and a place for results.
struct Stand {
    w: World,
    set: u64,
    /// A reference to the port.
    reference: u64,
    buffer: u64,
    out: u64,
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
        w.poke(out, 99);
        Stand {
            w,
            set,
            reference,
            buffer,
            out,
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
                (RDI, name),
                (RSI, self.buffer),
                (RDX, length),
                (R8, 0),
                (R9, 0),
                (R12, self.buffer + 2048),
                (R13, 1024),
                (R15, 0),
                (RBX, 0),
            ],
        )
    }

    fn stages(&self, client: bool, stages: &[Plan], length: u64) -> Program {
        stages
            .iter()
            .fold(Program::new(), |p, &s| self.stage(p, client, s, length))
    }

    /// What brings a side into the stage in which the call begins.
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

    /// The call under test, with that much room to receive into, and what becomes of it.
    fn test(&self, p: Program, call: Call, room: u64) -> Program {
        let client = plan(call).has(Plan::CLIENT);
        let name = if client { self.reference } else { self.set };
        let mut registers = std::vec![
            (RDI, name),
            (RBX, 0),
            (R15, 0),
            (RBP, 1 << 63),
            (RSI, self.buffer)
        ];
        let mut count = 0;
        if plan(call).has(Plan::SHORT) {
            let sends = [Plan::SEND, Plan::CALL, Plan::REPLY]
                .iter()
                .any(|&s| plan(call).has(s));
            count = if sends { SENT } else { 0 };
        } else {
            registers.extend([(RDX, SENT), (R10, 0), (R8, 0), (R9, 0)]);
            registers.extend([(R12, self.buffer + 1024), (R13, room), (R14, 0)]);
        }
        p.call_short(call, count, &registers)
            .keep(self.out, RAX)
            .keep(self.out + 8, R13)
            .keep(self.out + 16, RDI)
    }

    fn code(&self) -> Code {
        Code::from_rax(self.w.peek(self.out))
    }

    /// Bytes that the call under test received.
    fn received(&self, call: Call) -> u64 {
        match plan(call).has(Plan::SHORT) {
            true => self.w.peek(self.out) >> 8,
            false => ROOM - self.w.peek(self.out + 8),
        }
    }

    /// A server that takes what comes and answers each turn with `length` bytes. What it received
    /// in all is counted.
    fn echo(&self, length: u64) -> Program {
        let count = self.out + 24;
        let p = self.stages(false, &[Plan::WAIT], 0);
        let again = p.len();
        let p = self.stage(p, false, Plan::RECEIVE, 0);
        let p = self.add_received(p, count);
        let p = p.jump_if(|c| c.rax.get() as u8 != 0, 0);
        let p = self.stage(p, false, Plan::ACK, 0);
        let p = self.stage(p, false, Plan::SEND, length);
        self.stage(p, false, Plan::OVER, 0).jump(again)
    }

    fn add_received(&self, p: Program, count: u64) -> Program {
        p.load(count, RBP)
            .op(|c| c.rbp.set(c.rbp.get() + 1024 - c.r13.get()))
            .keep(count, RBP)
    }

    /// A client that says `length` bytes each turn; up to `times` connections.
    fn talker(&self, length: u64, times: u64) -> Program {
        let (count, left) = (self.out + 24, self.out + 32);
        self.w.poke(left, times);
        let p = Program::new()
            .load(left, RBP)
            .op(|c| c.rbp.set(c.rbp.get().wrapping_sub(1)))
            .keep(left, RBP)
            .jump_if(|c| c.rbp.get() > 1000, 1000);
        let p = self.stage(p, true, Plan::CONNECT, 0);
        let again = p.len();
        let p = self.stage(p, true, Plan::SEND, length);
        let p = self.stage(p, true, Plan::OVER, 0);
        let p = self.stage(p, true, Plan::RECEIVE, 0);
        let p = self.add_received(p, count);
        let p = self
            .stage(p, true, Plan::ACK, 0)
            .jump_if(|c| c.rax.get() as u8 == 0, again);
        self.stage(p, true, Plan::DISCONNECT, 0).jump(0)
    }

    fn start(&self, p: Program, priority: u64) -> u64 {
        self.w.thread(0, p, priority)
    }

    /// A thread that asks the server for something without a connection.
    fn event(&self, kind: Code) {
        let w = &self.w;
        match kind {
            Code::Call => {
                let p = Program::new().call_short(
                    Call::CallShort,
                    16,
                    &[(RDI, self.reference), (RBX, 0), (R15, 0)],
                );
                self.start(p.keep(self.out + 40, RAX).end(), 5);
            }
            Code::Fault => {
                let (_, region) = w.region(0, 0x9000_0000, PAGE_SIZE, self.reference);
                let (_, space) = w.space(0, 0, 0);
                w.map(space, 0x50_0000, PAGE_SIZE, region, 0);
                w.thread(space, Program::new().load(0x50_0008, RBX).end(), 5);
            }
            _ => {
                let (_, space) = w.space(0, 0, self.reference);
                w.thread(space, Program::new().push(Instr::Bad(6)).end(), 5);
            }
        }
    }
}

fn ipc_calls(client: bool) -> impl Iterator<Item = Call> {
    let side = if client { Plan::CLIENT } else { Plan::SERVER };
    SYSCALLS.iter().map(|r| r.call).filter(move |&c| {
        plan(c).has(side) && !plan(c).has(Plan::CALL) && !plan(c).has(Plan::REPLY)
    })
}

#[test]
fn client() {
    let mut met = Met::default();
    for call in ipc_calls(true) {
        let p = plan(call);
        let finish = |s: &Stand, p: Program| s.stage(p, true, Plan::DISCONNECT, 0).end();

        // Undisturbed, with the server there before, and after.
        for server in [4, 12] {
            let s = Stand::new();
            s.start(finish(&s, s.test(s.before(call), call, ROOM)), 10);
            s.start(s.echo(40), server);
            s.w.run();
            assert_eq!(s.code(), Code::Ok, "{}", call.name());
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
        met.note(call, Code::Ok);

        if p.has(Plan::RECEIVE) {
            let s = Stand::new();
            s.start(finish(&s, s.test(s.before(call), call, 8)), 10);
            s.start(s.echo(80), 9);
            s.w.run();
            assert_eq!(s.code(), Code::More, "{}", call.name());
            met.note(call, Code::More);
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
            assert_eq!(s.code(), Code::Ok);
            continue;
        }
        assert_eq!(s.code(), Code::WrongStage, "{}", call.name());
        met.note(call, Code::WrongStage);

        if p.has(Plan::CONNECT) {
            let mut s = Stand::new();
            s.reference = s.w.create(Call::ReferenceCreate);
            s.start(s.test(Program::new(), call, ROOM).end(), 10);
            s.w.run();
            assert_eq!(s.code(), Code::Dead, "{}", call.name());
            met.note(call, Code::Dead);
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
            assert_eq!(s.code(), Code::Disconnected, "{}", call.name());
            met.note(call, Code::Disconnected);
        }
    }
    met.complete("Client");
}

#[test]
fn server() {
    let mut met = Met::default();
    for call in ipc_calls(false) {
        let p = plan(call);
        let finish = |s: &Stand, p: Program| s.stage(p, false, Plan::DISCONNECT, 0).end();

        for client in [4, 12] {
            let s = Stand::new();
            s.start(finish(&s, s.test(s.before(call), call, ROOM)), 10);
            s.start(s.talker(40, 2), client);
            s.w.run();
            assert_eq!(s.code(), Code::Ok, "{}", call.name());
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
        met.note(call, Code::Ok);

        if !p.has(Plan::WAIT) || p.first() != Some(Plan::WAIT) {
            let s = Stand::new();
            s.start(s.test(Program::new(), call, ROOM).end(), 10);
            s.w.run();
            if call == Call::ServerDisconnect {
                assert_eq!(s.code(), Code::Ok);
                continue;
            }
            assert_eq!(s.code(), Code::WrongStage, "{}", call.name());
            met.note(call, Code::WrongStage);
        }

        if p.has(Plan::RECEIVE) {
            let s = Stand::new();
            s.start(finish(&s, s.test(s.before(call), call, 8)), 10);
            s.start(s.talker(80, 2), 9);
            s.w.run();
            assert_eq!(s.code(), Code::More, "{}", call.name());
            met.note(call, Code::More);
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
            assert_eq!(s.code(), Code::Disconnected, "{}", call.name());
            met.note(call, Code::Disconnected);
        }
        waits(&mut met, call, &|s| {
            s.start(finish(s, s.test(s.before(call), call, ROOM)), 10);
            if p.first() != Some(Plan::WAIT) {
                s.start(s.talker(40, 1), 9);
            }
        });
    }
    let s = Stand::new();
    let wait = [(RDI, s.set), (R13, 0), (R15, 0), (RBX, 0), (RBP, 1 << 40)];
    let p = Program::new()
        .call(Call::ServerWaitReceiveUntil, &wait)
        .keep(s.out, RAX);
    s.start(p.end(), 10);
    s.w.run();
    assert_eq!((s.code(), hal::now() >= 1 << 40), (Code::TimedOut, true));
    met.note(Call::ServerWaitReceiveUntil, Code::TimedOut);

    for held in [true, false] {
        let s = Stand::new();
        let p = if held {
            exception_held(&s)
        } else {
            Program::new()
        };
        s.start(p.call(Call::ServerRelease, &[]).keep(s.out, RAX).end(), 10);
        s.w.run();
        let code = if held { Code::Ok } else { Code::WrongStage };
        assert_eq!(s.code(), code);
        met.note(Call::ServerRelease, code);
    }
    met.complete("Server");
}

/// What a call with a wait returns for requests that are no connections. `start` starts its thread.
fn waits(met: &mut Met, call: Call, start: &dyn Fn(&Stand)) {
    let p = plan(call);
    if p.has(Plan::WAIT) && p.has(Plan::RECEIVE) {
        for code in [Code::Call, Code::Fault, Code::Exception] {
            let s = Stand::new();
            start(&s);
            s.w.run();
            s.event(code);
            s.w.run();
            // In registers there is room for what matters of an exception.
            let fits = code != Code::Exception || p.has(Plan::SHORT);
            let expected = if fits { code } else { Code::TooLarge };
            assert_eq!(s.code(), expected, "{}", call.name());
            met.note(call, expected);
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
        assert_eq!(s.code(), Code::TooLarge, "{}", call.name());
        met.note(call, Code::TooLarge);
    }
    if p.has(Plan::WAIT) && p.has(Plan::RECEIVE) && !p.has(Plan::SHORT) {
        // With room for an exception.
        met.note(call, exception_taken(call));
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

/// The server receives a request that is there.
fn call_held(s: &Stand) -> Program {
    s.event(Code::Call);
    receive_any(s)
}

fn receive_any(s: &Stand) -> Program {
    Program::new().call(
        Call::ServerWaitReceive,
        &[
            (RDI, s.set),
            (R12, s.buffer + 2048),
            (R13, 1024),
            (R15, 0),
            (RBX, 0),
        ],
    )
}

fn exception_held(s: &Stand) -> Program {
    s.event(Code::Exception);
    receive_any(s)
}

#[test]
fn idempotent() {
    let mut met = Met::default();
    for call in [Call::Call, Call::CallShort] {
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
                    &[(RSI, s.buffer), (RDX, length), (R8, 0), (R9, 0)],
                )
                .keep(s.out + 24, RAX);
            s.start(p.end(), 9);
            s.w.run();
            assert_eq!(
                (s.code(), s.w.peek(s.out + 24)),
                (code, 0),
                "{}",
                call.name()
            );
            met.note(call, code);
            met.note(Call::Reply, Code::Ok);
        }
        let mut s = Stand::new();
        s.start(s.stages(false, &[Plan::WAIT], 0).end(), 10);
        s.start(s.test(Program::new(), call, ROOM).end(), 5);
        s.w.run();
        assert_eq!(s.code(), Code::TooLarge, "{}", call.name());
        met.note(call, Code::TooLarge);
        s.reference = s.w.create(Call::ReferenceCreate);
        s.start(s.test(Program::new(), call, ROOM).end(), 5);
        s.w.run();
        assert_eq!(s.code(), Code::Dead, "{}", call.name());
        met.note(call, Code::Dead);
    }
    for call in [
        Call::Reply,
        Call::ReplyShort,
        Call::ReplyWaitReceive,
        Call::ReplyWaitReceiveShort,
    ] {
        let p = plan(call);
        let s = Stand::new();
        s.start(s.test(Program::new(), call, ROOM).end(), 10);
        s.w.run();
        assert_eq!(s.code(), Code::WrongStage, "{}", call.name());
        met.note(call, Code::WrongStage);

        // Words of no registers, and registers that no thread has.
        let s = Stand::new();
        s.start(s.test(exception_held(&s), call, ROOM).end(), 10);
        s.w.run();
        assert_eq!(s.code(), Code::Invalid, "{}", call.name());
        met.note(call, Code::Invalid);

        if !p.has(Plan::SHORT) {
            let s = Stand::new();
            let length = abi::MAX_IDEMPOTENT + 1;
            let p = call_held(&s)
                .call(
                    call,
                    &[
                        (RDI, s.set),
                        (RSI, s.buffer),
                        (RDX, length),
                        (R8, 0),
                        (R9, 0),
                    ],
                )
                .keep(s.out, RAX);
            s.start(p.end(), 10);
            s.w.run();
            assert_eq!(s.code(), Code::TooLarge, "{}", call.name());
            met.note(call, Code::TooLarge);
        }
        let s = Stand::new();
        s.start(s.test(call_held(&s), call, ROOM).end(), 10);
        s.w.run();
        assert_eq!(s.w.peek(s.out + 40), SENT << 8, "{}", call.name());
        if !p.has(Plan::WAIT) {
            assert_eq!(s.code(), Code::Ok, "{}", call.name());
            met.note(call, Code::Ok);
            continue;
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
            assert_eq!(s.code(), code, "{}", call.name());
            met.note(call, code);
        }
        waits(&mut met, call, &|s| {
            s.start(s.test(call_held(s), call, ROOM).end(), 10);
        });
    }
    met.complete("Idempotent");
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
    let receive = [(RDI, set), (R12, into), (R13, 8192), (R15, 0), (RBX, 0)];
    let server = Program::new()
        .call(Call::ServerWaitReceive, &receive)
        .keep(state, RAX)
        .end();
    w.poke(state, 99);
    let server = w.thread(0, server, 10);
    let send = [
        (RDI, 0x10_0000),
        (RSI, 0x800_1800),
        (RDX, 8192),
        (R8, 0),
        (R9, 0),
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
    assert_eq!(word(0) & 0xff, Call::ClientSendOver as u64);
    let left = (word(4), word(3));
    assert_eq!(left, (0x800_3000, 2048), "A3: progress in the frame");
    let wait = REGISTER_WORDS as u64 + 4;
    assert_eq!(
        (word(wait), word(wait + 5)),
        (Stage::Sending as u64, Waiting::Port as u64)
    );
    // The receiver has exactly what was sent.
    let s = w.thread_at(server);
    assert_eq!((s.ctx.r12.get(), s.ctx.r13.get()), (into + 6144, 2048));
    assert_eq!(w.read(into, 6144), bytes[0x1800..0x3000]);

    // The keeper hears of it, the page comes, and the keeper answers.
    let receive = [(RDI, quiet), (RBX, 0), (R15, 0)];
    let p = Program::new()
        .call(Call::ServerWaitReceiveShort, &receive)
        .keep(state + 8, RAX)
        .keep(state + 16, RSI)
        .call(Call::ThreadWaitInterrupt, &[])
        .call(Call::ReplyShort, &[(R15, 0)])
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
