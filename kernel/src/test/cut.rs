//! Cuts: an object is taken apart at an instant and made again, and no program can notice (A6, A8).
//!
//! A [`Scenario`] is a few threads that produce a result in memory, whatever the order in which they run. It
//! runs once undisturbed; then, for every thread and object of it and for every step, once with a cut at that
//! step: the manager takes the object's state, destroys the object and keeps the identity, makes it again (there, or
//! elsewhere and moves it back), and sets the state. In the *slow* cut the other threads run on while the identity is
//! vacant. Every run must give the same result.

use super::world::*;
use crate::check;
use abi::ipc::plan;
use abi::message::{EXCEPTION_WORDS, FAULT_WORDS};
use abi::state::{space_flags, REGISTER_WORDS, THREAD_WORDS};
use abi::{boot, ref_list, Call, Code, Type, PAGE_SIZE, ROLES};
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// A scenario: its threads and objects, and where its result is.
#[derive(Default)]
pub(super) struct Scenario {
    pub(super) objects: Vec<(Type, u64)>,
    /// The result: address and words.
    pub(super) results: Vec<(u64, u64)>,
}

impl Scenario {
    fn thread(mut self, handle: u64) -> Self {
        self.objects.push((Type::Thread, handle));
        self
    }
    fn object(mut self, ty: Type, handle: u64) -> Self {
        self.objects.push((ty, handle));
        self
    }
    fn result(mut self, address: u64, words: u64) -> Self {
        self.results.push((address, words));
        self
    }
}

type Build = fn(&World) -> Scenario;

/// The kind of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutKind {
    /// Made again at the same address, before any other thread runs.
    Here,
    /// Made again elsewhere, and moved back.
    Elsewhere,
    /// Vacant for that many steps of the other threads.
    Slow(u64),
    /// Only stopped for that many steps (threads).
    Stopped(u64),
    /// Stopped, and the state set that was read (threads).
    Set,
}

#[path = "../../../tests/cuts/object.rs"]
mod object;

use object::{Manager, Object};

impl Manager for World {
    type Error = core::convert::Infallible;

    fn call(&self, call: Call, parameters: [u64; 5]) -> Result<(), Self::Error> {
        self.ok(call, &parameters);
        Ok(())
    }
}

/// The objects that the manager needs for a cut.
struct Knife {
    kept: u64,
    references: [u64; 3],
    state: u64,
    /// A state that was read again after it had been set, and its references.
    again: (u64, [u64; 3]),
    elsewhere: u64,
}

impl Knife {
    fn new(w: &World) -> Knife {
        let reference = || w.create(Call::ReferenceCreate);
        let references = || [reference(), reference(), reference()];
        Knife {
            kept: reference(),
            references: references(),
            state: w.page(),
            again: (w.page(), references()),
            elsewhere: w.object(),
        }
    }

    fn cut(&self, w: &World, ty: Type, handle: u64, way: CutKind) {
        let object = Object {
            ty,
            handle,
            state: self.state,
            references: self.references,
            identity: self.kept,
        };
        let Ok(()) = self.cut_object(w, &object, way);
    }

    fn cut_object(
        &self,
        w: &World,
        object: &Object,
        way: CutKind,
    ) -> Result<(), core::convert::Infallible> {
        object.stop(w)?;
        if let CutKind::Stopped(steps) = way {
            self.others(w, steps);
            return object.resume(w);
        }
        object.get(w)?;
        if way != CutKind::Set {
            object.destroy(w)?;
            if let CutKind::Slow(steps) = way {
                self.others(w, steps);
            }
            object.create(w, (way == CutKind::Elsewhere).then_some(self.elsewhere))?;
        }
        object.set(w)?;
        if !matches!(way, CutKind::Slow(_)) {
            self.compare(w, object)?;
        }
        object.resume(w)
    }

    /// Checks that the state reads back as it was set.
    fn compare(&self, w: &World, object: &Object) -> Result<(), core::convert::Infallible> {
        let (state, references) = self.again;
        let again = Object {
            state,
            references,
            ..*object
        };
        again.get(w)?;
        let (count, ignored) = object::words(object.ty);
        for n in (0..count).filter(|n| !ignored.contains(n)) {
            let [was, is] = [object, &again].map(|of| w.peek(of.state + n as u64 * 8));
            assert_eq!(was, is, "word {n} of the state of a {:?}", object.ty);
        }
        Ok(())
    }

    fn others(&self, w: &World, steps: u64) {
        w.release();
        for _ in 0..steps {
            if w.step() == Met::Idle {
                break;
            }
        }
        w.call_manager();
    }
}

fn results(w: &World, s: &Scenario) -> Vec<u64> {
    let mut all = Vec::new();
    for &(address, words) in &s.results {
        all.extend((0..words).map(|i| w.peek(address + i * 8)));
    }
    all
}

struct Where(String);

impl Drop for Where {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("cut: {}", self.0);
        }
    }
}

/// Runs until no thread can go on. Returns the steps at which the kernel was called.
fn finish(w: &World) -> Vec<u64> {
    let (mut steps, mut traps) = (0, vec![0]);
    loop {
        let met = w.step();
        if met == Met::Idle {
            break;
        }
        steps += 1;
        if met == Met::Step(true) {
            traps.push(steps);
        }
        assert!(steps < 20_000, "it never ends");
    }
    traps
}

fn prepare(build: Build) -> (World, Knife, Scenario) {
    let w = World::with_frames(96);
    w.checked.set(false);
    let knife = Knife::new(&w);
    let scenario = build(&w);
    w.checked.set(true);
    (w, knife, scenario)
}

/// Runs a scenario undisturbed, then cut in every way, in every object, at every step.
fn cut_everywhere(name: &str, build: Build) {
    let (w, _, scenario) = prepare(build);
    w.release();
    let steps = finish(&w);
    let expected = results(&w, &scenario);
    let objects: Vec<Type> = scenario.objects.iter().map(|o| o.0).collect();
    let mut runs = 0;
    for (n, &ty) in objects.iter().enumerate() {
        let mut ways = vec![
            CutKind::Here,
            CutKind::Elsewhere,
            CutKind::Slow(3),
            CutKind::Slow(200),
        ];
        if ty == Type::Thread {
            ways.extend([CutKind::Stopped(5), CutKind::Stopped(300), CutKind::Set]);
        }
        for way in ways {
            for &at in &steps {
                let _where = Where(format!(
                    "{name}: {ty:?} {n}, {way:?}, step {at} of {steps:?}"
                ));
                let (w, knife, s) = prepare(build);
                w.checked.set(false);
                w.release();
                for _ in 0..at {
                    w.step();
                }
                w.checked.set(true);
                w.call_manager();
                knife.cut(&w, ty, s.objects[n].1, way);
                w.release();
                w.checked.set(false);
                finish(&w);
                check::invariants(w.k);
                assert!(results(&w, &s) == expected, "A6: the cut shows");
                runs += 1;
            }
        }
    }
    assert!(runs > 0 && steps.len() > 4, "nothing was cut");
    std::println!("{name}: {runs} cuts at {} instants", steps.len());
}

macro_rules! cuts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            cut_everywhere(stringify!($name), scenarios::$name);
        })*

        const ALL: &[(&str, Build)] = &[$((stringify!($name), scenarios::$name)),*];
    };
}

cuts! {
    mutex_hand_over
    condition
    sleep
    interrupts
    long_messages
    short_messages
    narrow_calls
    finished_in_order
    finished_by_steps
    disconnected
    idempotent
    idempotent_short
    two_clients
    references_travel
    fault_of_an_instruction
    faults_in_a_message
    exceptions
    foreign_calls
    search
}

mod scenarios {
    use super::*;

    /// Adds one to the word at an address, and goes on at `to` while it is less than `n`.
    fn count(p: Program, at: u64, n: u64, to: usize) -> Program {
        p.load(at, A11)
            .op(|c| c.parameter(11).set(c.parameter(11).get() + 1))
            .keep(at, A11)
            .jump_if(move |c| c.parameter(11).get() < n, to)
    }

    pub(super) fn mutex_hand_over(w: &World) -> Scenario {
        let m = w.create(Call::MutexCreate);
        let sum = w.page();
        let mut s = Scenario::default().object(Type::Mutex, m).result(sum, 1);
        for n in 0..3 {
            let mine = sum + 64 + n * 8;
            let p = Program::new()
                .call(Call::MutexLock, &[(A0, m)])
                .load(sum, A10)
                .op(|c| c.parameter(10).set(c.parameter(10).get() + 1))
                .call(Call::ThreadYield, &[])
                .keep(sum, A10)
                .call(Call::MutexUnlock, &[(A0, m)]);
            let p = count(p, mine, 2, 0).end();
            s = s.thread(w.thread(0, p, 10)).result(mine, 1);
        }
        s
    }

    /// One thread puts numbers into a slot, the other takes them out.
    pub(super) fn condition(w: &World) -> Scenario {
        let m = w.create(Call::MutexCreate);
        let c = w.create(Call::CondCreate);
        let at = w.page();
        let (full, sum) = (at, at + 8);
        let lock = |p: Program| p.call(Call::MutexLock, &[(A0, m)]);
        let unlock = |p: Program| p.call(Call::MutexUnlock, &[(A0, m)]);
        let wait =
            |p: Program, again: usize| p.call(Call::CondWait, &[(A0, c), (A1, m)]).jump(again);
        let put = lock(Program::new());
        let again = put.len();
        let put = put
            .load(full, A10)
            .jump_if(|c| c.parameter(10).get() == 0, again + 5);
        let put = wait(put, again)
            .load(at + 16, A10)
            .op(|c| c.parameter(10).set(c.parameter(10).get() + 7));
        let put = put.keep(full, A10);
        let put = unlock(put).call(Call::CondBroadcast, &[(A0, c)]);
        let put = count(put, at + 16, 3, 0).end();
        let take = lock(Program::new());
        let again = take.len();
        let take = take
            .load(full, A10)
            .jump_if(|c| c.parameter(10).get() != 0, again + 5);
        let take = wait(take, again)
            .load(sum, A4)
            .op(|c| {
                c.parameter(11)
                    .set(c.parameter(4).get() * 10 + c.parameter(10).get())
            })
            .keep(sum, A11)
            .op(|c| c.parameter(10).set(0))
            .keep(full, A10);
        let take = unlock(take).call(Call::CondBroadcast, &[(A0, c)]);
        let take = count(take, at + 24, 3, 0).end();
        let (one, two) = (w.thread(0, put, 10), w.thread(0, take, 11));
        Scenario::default()
            .object(Type::Mutex, m)
            .object(Type::Cond, c)
            .thread(one)
            .thread(two)
            .result(sum, 3)
    }

    /// Every call that waits for a time. The result is whether the call returned too early.
    pub(super) fn sleep(w: &World) -> Scenario {
        let m = w.create(Call::MutexCreate);
        let c = w.create(Call::CondCreate);
        let set = w.create(Call::PortsetCreate);
        let out = w.page();
        let early = |p: Program, time: u64, at: u64| {
            p.keep(at + 8, RESULT)
                .call(Call::ClockGet, &[])
                .store(move |c| (at, u64::from(c.parameter(0).get() < time)))
        };
        let p = Program::new().call(Call::ThreadSleepUntil, &[(A0, 20_000)]);
        let p = early(p, 20_000, out);
        let p = early(
            p.call(Call::ThreadWaitInterruptUntil, &[(A0, 30_000)]),
            30_000,
            out + 16,
        );
        let p = p.call(Call::ServerWaitReceiveUntil, &[(A0, set), (A11, 35_000)]);
        let one = early(p, 35_000, out + 32).end();
        let p = Program::new().call(Call::MutexLock, &[(A0, m)]);
        let again = p.len();
        let p = p
            .call(Call::CondWaitUntil, &[(A0, c), (A1, m), (A2, 25_000)])
            .keep(out + 56, RESULT)
            .call(Call::ClockGet, &[])
            .jump_if(|c| c.parameter(0).get() < 25_000, again);
        let two = p
            .call(Call::MutexUnlock, &[(A0, m)])
            .keep(out + 48, RESULT)
            .end();
        let (one, two) = (w.thread(0, one, 10), w.thread(0, two, 10));
        Scenario::default()
            .thread(one)
            .thread(two)
            .object(Type::Portset, set)
            .object(Type::Cond, c)
            .object(Type::Mutex, m)
            .result(out, 8)
    }

    /// Two threads interrupt each other in turn.
    pub(super) fn interrupts(w: &World) -> Scenario {
        let out = w.page();
        let refs = [
            w.create(Call::ReferenceCreate),
            w.create(Call::ReferenceCreate),
        ];
        let mut s = Scenario::default().result(out, 4);
        let mut threads = Vec::new();
        for n in 0..2 {
            let wait = |p: Program| p.call(Call::ThreadWaitInterrupt, &[]);
            let poke = |p: Program| p.call(Call::ThreadInterrupt, &[(A0, refs[1 - n])]);
            let p = Program::new();
            let p = if n == 0 { poke(p) } else { wait(p) };
            let p = if n == 0 { wait(p) } else { poke(p) };
            let at = out + n as u64 * 16;
            let p = count(p.keep(at + 8, RESULT), at, 4, 0).end();
            threads.push(w.thread(0, p, 10 + n as u64));
        }
        for n in 0..2 {
            w.ok(Call::ThreadReference, &[threads[n], refs[n]]);
            s = s.thread(threads[n]).object(Type::Reference, refs[n]);
        }
        s
    }

    /// A server's portset and port, and a reference to the port.
    struct Service {
        set: u64,
        port: u64,
        reference: u64,
    }

    fn service(w: &World) -> Service {
        let set = w.create(Call::PortsetCreate);
        let (port, reference) = w.port(set, 77);
        Service {
            set,
            port,
            reference,
        }
    }

    fn all(s: Scenario, v: &Service, client: u64, server: u64) -> Scenario {
        s.thread(client)
            .thread(server)
            .object(Type::Portset, v.set)
            .object(Type::Port, v.port)
            .object(Type::Reference, v.reference)
    }

    fn fill(w: &World, at: u64, words: u64, seed: u64) {
        for i in 0..words {
            w.poke(at + i * 8, seed + i * 3);
        }
    }

    /// A request in two segments, received in three; an answer the other way round.
    pub(super) fn long_messages(w: &World) -> Scenario {
        let v = service(w);
        let (a, b, list, out) = (w.pages(2), w.pages(2), w.page(), w.page());
        fill(w, a, 80, 1000);
        w.words(list, &[a + 320, 100, 0, 0, a + 700, 60]);
        // The server's segments.
        w.words(list + 64, &[b + 100, 0, b + 200, 400]);
        let client = Program::new()
            .call(
                Call::ClientConnectSendOverReceive,
                &[
                    (A0, v.reference),
                    (A1, a),
                    (A2, 300),
                    (A3, list),
                    (A4, 3),
                    (A5, 0),
                    (A6, a + 2000),
                    (A7, 10),
                    (A8, list + 80),
                    (A9, 0),
                    (A10, 0),
                ],
            )
            .keep(out, RESULT)
            .call(
                Call::ClientReceive,
                &[(A6, a + 3000), (A7, 500), (A8, 0), (A9, 0), (A10, 0)],
            )
            .keep(out + 8, RESULT)
            .keep(out + 16, A6)
            .keep(out + 24, A7)
            .call(Call::ClientDisconnect, &[])
            .keep(out + 32, RESULT)
            .end();
        let server = Program::new()
            .call(
                Call::ServerWaitReceive,
                &[
                    (A0, v.set),
                    (A6, b),
                    (A7, 50),
                    (A8, list + 64),
                    (A9, 2),
                    (A10, 0),
                ],
            )
            .keep(out + 40, RESULT)
            .keep(out + 48, A0)
            .keep(out + 56, A7)
            .call(
                Call::ServerAckSendWaitReceive,
                &[
                    (A0, v.set),
                    (A1, b + 200),
                    (A2, 333),
                    (A3, 0),
                    (A4, 0),
                    (A5, 0),
                    (A6, b),
                    (A7, 50),
                    (A8, 0),
                    (A9, 0),
                    (A10, 0),
                ],
            )
            .keep(out + 64, RESULT)
            .end();
        let (c, s) = (w.thread(0, client, 10), w.thread(0, server, 10));
        let s = all(Scenario::default(), &v, c, s);
        s.result(out, 9).result(a + 2000, 250).result(b, 100)
    }

    /// Two requests and answers in registers, on one connection each.
    pub(super) fn short_messages(w: &World) -> Scenario {
        let v = service(w);
        let out = w.page();
        let words = [(A1, 11), (A2, 22), (A3, 33), (A4, 44), (A5, 55)];
        let mut registers = words.to_vec();
        registers.extend([(A0, v.reference), (A10, 0), (A9, 0)]);
        let client = Program::new()
            .call_short(Call::ClientConnectSendOverReceiveShort, 37, &registers)
            .keep(out, RESULT)
            .keep(out + 8, A1)
            .keep(out + 16, A2)
            .call(Call::ClientDisconnect, &[])
            .keep(out + 24, RESULT);
        let client = count(client, out + 32, 2, 0).end();
        let server = Program::new()
            .call(
                Call::ServerWaitReceiveShort,
                &[(A0, v.set), (A10, 0), (A9, 0)],
            )
            .keep(out + 40, RESULT);
        let again = server.len();
        let server = server
            .op(move |c| {
                c.parameter(0).set(v.set);
                c.parameter(1)
                    .set(c.parameter(1).get() + c.parameter(2).get());
                c.parameter(10).set(0);
                c.parameter(9).set(0);
                c.call()
                    .set(Call::ServerAckSendWaitReceiveShort as u64 | 16 << 8);
            })
            .push(Instr::Syscall)
            .keep(out + 48, RESULT)
            .jump_if(|c| c.call().get() as u8 == 0, again)
            .end();
        let (c, s) = (w.thread(0, client, 10), w.thread(0, server, 12));
        all(Scenario::default(), &v, c, s).result(out, 7)
    }

    /// One stage per call, each direction twice.
    pub(super) fn narrow_calls(w: &World) -> Scenario {
        let v = service(w);
        let (a, b, out) = (w.page(), w.page(), w.page());
        fill(w, a, 16, 5);
        fill(w, b, 16, 900);
        let mut at = out;
        let mut step = |p: Program, call: Call, registers: &[(R, u64)]| {
            let mut all = vec![(A3, 0), (A4, 0), (A5, 0), (A8, 0), (A9, 0), (A10, 0)];
            all.extend_from_slice(registers);
            at += 8;
            p.call(call, &all).keep(at - 8, RESULT)
        };
        let p = step(Program::new(), Call::ClientConnect, &[(A0, v.reference)]);
        let p = step(p, Call::ClientSend, &[(A1, a), (A2, 24)]);
        let p = step(p, Call::ClientSend, &[(A1, a + 24), (A2, 9)]);
        let p = step(p, Call::ClientOver, &[]);
        let p = step(p, Call::ClientReceive, &[(A6, a + 512), (A7, 5)]);
        let p = step(p, Call::ClientReceive, &[(A6, a + 520), (A7, 50)]);
        let p = step(p, Call::ClientAck, &[]);
        let p = step(p, Call::ClientSendOver, &[(A1, a + 40), (A2, 16)]);
        let p = step(p, Call::ClientReceive, &[(A6, a + 600), (A7, 50)]);
        let p = step(p, Call::ClientAckSendOver, &[(A1, a + 8), (A2, 0)]);
        let p = step(p, Call::ClientDisconnect, &[]);
        let client = p.end();
        let p = step(Program::new(), Call::ServerWait, &[(A0, v.set)]);
        let p = step(p, Call::ServerReceive, &[(A6, b + 512), (A7, 30)]);
        let p = step(p, Call::ServerReceive, &[(A6, b + 542), (A7, 30)]);
        let p = step(p, Call::ServerAck, &[]);
        let p = step(p, Call::ServerSend, &[(A1, b), (A2, 7)]);
        let p = step(p, Call::ServerOverReceive, &[(A6, b + 600), (A7, 30)]);
        let p = step(
            p,
            Call::ServerAckSendOverReceive,
            &[(A1, b + 16), (A2, 12), (A6, b + 700), (A7, 30)],
        );
        let server = p.end();
        let (c, s) = (w.thread(0, client, 10), w.thread(0, server, 10));
        let s = all(Scenario::default(), &v, c, s);
        s.result(out, 18).result(a + 512, 20).result(b + 512, 40)
    }

    /// The server sends an empty reply and waits for the next client: the client's receive says `Ok`.
    pub(super) fn finished_in_order(w: &World) -> Scenario {
        let v = service(w);
        let (a, b, out) = (w.page(), w.page(), w.page());
        fill(w, a, 8, 5);
        let client = Program::new()
            .call(
                Call::ClientConnectSendOver,
                &[(A0, v.reference), (A1, a), (A2, 20), (A4, 0), (A5, 0)],
            )
            .keep(out, RESULT)
            .call(
                Call::ClientReceive,
                &[(A6, a + 64), (A7, 50), (A9, 0), (A10, 0)],
            )
            .keep(out + 8, RESULT)
            .call(Call::ClientReceive, &[])
            .keep(out + 16, RESULT)
            .end();
        let server = Program::new()
            .call(
                Call::ServerWaitReceive,
                &[(A0, v.set), (A6, b), (A7, 50), (A9, 0), (A10, 0)],
            )
            .keep(out + 24, RESULT)
            .call(
                Call::ServerAckSendWaitReceive,
                &[
                    (A0, v.set),
                    (A2, 0),
                    (A4, 0),
                    (A5, 0),
                    (A6, b),
                    (A9, 0),
                    (A10, 0),
                ],
            )
            .end();
        let (c, s) = (w.thread(0, client, 9), w.thread(0, server, 10));
        all(Scenario::default(), &v, c, s)
            .result(out, 4)
            .result(b, 4)
    }

    /// As [`finished_in_order`], but the server makes its stages one by one, with a yield in between.
    pub(super) fn finished_by_steps(w: &World) -> Scenario {
        let v = service(w);
        let (a, b, out) = (w.page(), w.page(), w.page());
        fill(w, a, 8, 5);
        let receive = [(A6, a + 64), (A7, 50), (A9, 0), (A10, 0)];
        let client = Program::new()
            .call(
                Call::ClientConnectSendOver,
                &[(A0, v.reference), (A1, a), (A2, 20), (A4, 0), (A5, 0)],
            )
            .keep(out, RESULT)
            .call(Call::ClientReceive, &receive)
            .keep(out + 8, RESULT)
            .call(Call::ClientDisconnect, &[])
            .keep(out + 32, RESULT)
            .end();
        let wait = [(A0, v.set), (A6, b), (A7, 50), (A9, 0), (A10, 0)];
        let server = Program::new()
            .call(Call::ServerWaitReceive, &wait)
            .keep(out + 24, RESULT)
            .call(Call::ServerAck, &[])
            .call(Call::ThreadYield, &[])
            .call(Call::ServerWaitReceive, &wait)
            .end();
        let (c, s) = (w.thread(0, client, 9), w.thread(0, server, 10));
        all(Scenario::default(), &v, c, s)
            .result(out, 5)
            .result(b, 4)
    }

    /// Either end leaves while the other one waits.
    pub(super) fn disconnected(w: &World) -> Scenario {
        let v = service(w);
        let (a, b, out) = (w.page(), w.page(), w.page());
        let connect = |p: Program| p.call(Call::ClientConnect, &[(A0, v.reference)]);
        let client = connect(Program::new())
            .call(Call::ClientSend, &[(A1, a), (A2, 30), (A4, 0), (A5, 0)])
            .keep(out, RESULT);
        let client = connect(client)
            .call(Call::ThreadSleepUntil, &[(A0, 30_000)])
            .call(Call::ClientDisconnect, &[])
            .keep(out + 8, RESULT)
            .end();
        let server = Program::new()
            .call(Call::ServerWait, &[(A0, v.set)])
            .call(Call::ThreadSleepUntil, &[(A0, 15_000)])
            .call(Call::ServerDisconnect, &[])
            .keep(out + 16, RESULT)
            .call(
                Call::ServerWaitReceive,
                &[(A0, v.set), (A6, b), (A7, 8), (A9, 0), (A10, 0)],
            )
            .keep(out + 24, RESULT)
            .end();
        let (c, s) = (w.thread(0, client, 10), w.thread(0, server, 11));
        all(Scenario::default(), &v, c, s).result(out, 4)
    }

    /// Requests in the idempotent form; the server may see one twice.
    pub(super) fn idempotent(w: &World) -> Scenario {
        let v = service(w);
        let (a, b, list, out) = (w.page(), w.page(), w.page(), w.page());
        fill(w, a, 20, 5);
        w.words(list, &[a + 80, 40]);
        let client = Program::new()
            .call(
                Call::Call,
                &[
                    (A0, v.reference),
                    (A1, a),
                    (A2, 60),
                    (A3, list),
                    (A4, 1),
                    (A5, 0),
                    (A6, a + 512),
                    (A7, 30),
                    (A9, 0),
                    (A10, 0),
                ],
            )
            .keep(out, RESULT)
            .keep(out + 8, A6)
            .keep(out + 16, A7);
        let client = count(client, out + 24, 3, 0).end();
        let receive = [(A0, v.set), (A6, b), (A7, 200), (A9, 0), (A10, 0)];
        let server = Program::new().call(Call::ServerWaitReceive, &receive);
        let again = server.len();
        let server = server
            .load(b + 64, A11)
            .op(|c| c.parameter(11).set(c.parameter(11).get() + 1));
        let server = server.keep(b + 400, A11);
        let mut both = receive.to_vec();
        both.extend([(A1, b + 390), (A2, 24), (A4, 0), (A5, 0)]);
        let server = server.call(Call::ReplyWaitReceive, &both).jump(again);
        let (c, s) = (w.thread(0, client, 10), w.thread(0, server, 9));
        all(Scenario::default(), &v, c, s)
            .result(out, 4)
            .result(a + 512, 6)
    }

    pub(super) fn idempotent_short(w: &World) -> Scenario {
        let v = service(w);
        let out = w.page();
        let client = Program::new()
            .load(out + 32, A11)
            .op(move |c| {
                c.parameter(0).set(v.reference);
                c.parameter(1).set(c.parameter(11).get() * 100 + 1);
                c.parameter(2).set(5);
                c.parameter(10).set(0);
                c.parameter(9).set(0);
                c.call().set(Call::CallShort as u64 | 12 << 8);
            })
            .push(Instr::Syscall)
            .keep(out, RESULT)
            .load(out + 8, A11)
            .op(|c| {
                c.parameter(11)
                    .set(c.parameter(11).get() * 7 + c.parameter(1).get())
            })
            .keep(out + 8, A11)
            .keep(out + 16, A2);
        let client = count(client, out + 32, 3, 0).end();
        let server = Program::new()
            .call(
                Call::ServerWaitReceiveShort,
                &[(A0, v.set), (A10, 0), (A9, 0)],
            )
            .op(move |c| {
                c.parameter(0).set(v.set);
                c.parameter(1)
                    .set(c.parameter(1).get() + c.parameter(2).get());
                c.parameter(10).set(0);
                c.parameter(9).set(0);
                c.call().set(Call::ReplyWaitReceiveShort as u64 | 8 << 8);
            })
            .push(Instr::Syscall)
            .jump(2);
        let (c, s) = (w.thread(0, client, 10), w.thread(0, server, 10));
        all(Scenario::default(), &v, c, s).result(out, 4)
    }

    /// Two clients, one server: each client that waits is served in the end.
    pub(super) fn two_clients(w: &World) -> Scenario {
        let v = service(w);
        let (out, b) = (w.page(), w.page());
        let mut s = Scenario::default();
        for n in 0..2 {
            let a = w.page();
            fill(w, a, 8, 100 * n);
            let p = Program::new()
                .call(
                    Call::ClientConnectSendOverReceive,
                    &[
                        (A0, v.reference),
                        (A1, a),
                        (A2, 24),
                        (A4, 0),
                        (A5, 0),
                        (A6, a + 512),
                        (A7, 24),
                        (A9, 0),
                        (A10, 0),
                    ],
                )
                .keep(out + n * 8, RESULT)
                .call(Call::ClientDisconnect, &[])
                .end();
            s = s.thread(w.thread(0, p, 10 + n)).result(a + 512, 3);
        }
        let receive = [(A0, v.set), (A6, b), (A7, 100), (A9, 0), (A10, 0)];
        let server = Program::new().call(Call::ServerWaitReceive, &receive);
        let mut both = receive.to_vec();
        both.extend([(A1, b), (A2, 24), (A4, 0), (A5, 0)]);
        let again = server.len();
        let server = server
            .call(Call::ServerAckSendWaitReceive, &both)
            .jump(again);
        let server = w.thread(0, server, 10);
        s.thread(server).object(Type::Portset, v.set).result(out, 2)
    }

    /// References in a message, more than one list has room for.
    pub(super) fn references_travel(w: &World) -> Scenario {
        let v = service(w);
        let (out, b) = (w.page(), w.page());
        let m = w.create(Call::MutexCreate);
        let r: Vec<u64> = (0..3)
            .map(|_| w.reference(Call::MutexReference, m))
            .collect();
        let into: Vec<u64> = (0..3).map(|_| w.create(Call::ReferenceCreate)).collect();
        let client = Program::new()
            .call(
                Call::ClientConnectSendOver,
                &[
                    (A0, v.reference),
                    (A1, b),
                    (A2, 8),
                    (A4, 0),
                    (A5, ref_list(r[0], 3)),
                ],
            )
            .keep(out, RESULT)
            .keep(out + 8, A5)
            .end();
        let server = Program::new()
            .call(
                Call::ServerWaitReceive,
                &[
                    (A0, v.set),
                    (A6, b + 64),
                    (A7, 8),
                    (A9, 0),
                    (A10, ref_list(into[0], 2)),
                ],
            )
            .keep(out + 16, RESULT)
            .keep(out + 24, A10)
            .call(
                Call::ServerReceive,
                &[(A6, b + 64), (A7, 8), (A9, 0), (A10, ref_list(into[2], 1))],
            )
            .keep(out + 32, RESULT);
        let mut server = server;
        for (n, &i) in into.iter().enumerate() {
            let at = out + 40 + n as u64 * 8;
            server = server
                .call(Call::ReferenceEqual, &[(A0, i), (A1, r[2])])
                .keep(at, RESULT);
        }
        let (c, s) = (w.thread(0, client, 10), w.thread(0, server.end(), 10));
        all(Scenario::default(), &v, c, s)
            .object(Type::Reference, r[1])
            .object(Type::Reference, into[1])
            .object(Type::Mutex, m)
            .result(out, 8)
    }

    /// A range in the first space that a keeper fills page by page.
    struct Kept {
        /// The address at which the manager sees the pages.
        pages: u64,
        region: u64,
        reference: u64,
        keeper: u64,
        portset: u64,
        port: u64,
    }

    /// The address in the first space at which the keeper maps pages.
    const EXPORT: u64 = 0x9000_0000;

    fn kept(w: &World, pages: u64, missing: &[u64]) -> Kept {
        let v = service(w);
        let ram = w.pages(pages);
        let physical = w.physical(ram);
        let states = w.page();
        for page in 0..pages {
            let at = states + page * 64;
            let offset = page * PAGE_SIZE;
            let words = [
                EXPORT + offset,
                PAGE_SIZE,
                physical + offset,
                abi::access::ALL,
            ];
            w.words(at, &words);
            let mapping = w.create(Call::MappingCreate);
            w.poke(at + 32, mapping);
            if !missing.contains(&page) {
                w.ok(Call::MappingSetState, &[mapping, at, boot::ROOT_REGION, 0]);
            }
        }
        let (region, reference) = w.region(0, EXPORT, pages * PAGE_SIZE, v.reference);
        let p = Program::new()
            .call(
                Call::ServerWaitReceiveShort,
                &[(A0, v.set), (A10, 0), (A9, 0)],
            )
            .op(move |c| {
                assert_eq!(
                    c.call().get(),
                    Code::Fault as u64 | (FAULT_WORDS as u64 * 8) << 8
                );
                c.parameter(11)
                    .set(states + c.parameter(1).get() / PAGE_SIZE * 64);
            })
            .push(Instr::Load(
                std::boxed::Box::new(|c| c.parameter(11).get() + 32),
                A0,
            ))
            .op(|c| {
                c.parameter(1).set(c.parameter(11).get());
                c.parameter(2).set(boot::ROOT_REGION);
                c.parameter(3).set(0);
                c.call().set(Call::MappingSetState as u64);
            })
            .push(Instr::Syscall)
            .op(move |c| {
                assert_eq!(c.call().get(), 0);
                c.parameter(0).set(v.set);
                c.call().set(Call::ReplyWaitReceiveShort as u64);
                c.parameter(10).set(0);
                c.parameter(9).set(0);
            })
            .push(Instr::Syscall)
            .jump(2);
        let keeper = w.thread(0, p, 12);
        Kept {
            pages: ram,
            region,
            reference,
            keeper,
            portset: v.set,
            port: v.port,
        }
    }

    pub(super) fn fault_of_an_instruction(w: &World) -> Scenario {
        let kept = kept(w, 3, &[0, 2]);
        let (space, s) = w.space(0, 0, 0);
        let start = 0x800_0000;
        let window = w.map(s, start, 3 * PAGE_SIZE, kept.reference, 0);
        let p = Program::new()
            .op(|c| c.parameter(10).set(42))
            .keep(start + 8, A10)
            .load(start + 8, A4)
            .op(|c| c.parameter(4).set(c.parameter(4).get() + 1))
            .keep(start + 2 * PAGE_SIZE, A4)
            .keep(start + PAGE_SIZE, A4)
            .end();
        let t = w.thread(s, p, 10);
        let pages = kept.pages;
        Scenario::default()
            .thread(t)
            .thread(kept.keeper)
            .object(Type::Region, kept.region)
            .object(Type::Space, space)
            .object(Type::Mapping, window)
            .object(Type::Port, kept.port)
            .object(Type::Portset, kept.portset)
            .result(pages, 2)
            .result(pages + PAGE_SIZE, 1)
            .result(pages + 2 * PAGE_SIZE, 1)
    }

    /// Both ends of a message meet absent pages; references and lists lie there too.
    pub(super) fn faults_in_a_message(w: &World) -> Scenario {
        let kept = kept(w, 8, &[1, 2, 5, 6]);
        let (space, s) = w.space(0, 0, 0);
        let start = 0x800_0000;
        let window = w.map(s, start, 8 * PAGE_SIZE, kept.reference, 0);
        let objects = w.page();
        w.map(
            s,
            0x500_0000,
            PAGE_SIZE,
            boot::ROOT_REGION,
            w.physical(objects),
        );
        let v = service(w);
        let set = objects;
        w.ok(Call::PortsetCreate, &[set, 0]);
        let r = objects + 16;
        w.ok(Call::ReferenceCreate, &[r, 0]);
        let set_ref = w.reference(Call::PortsetReference, set);
        let state = w.page();
        w.poke(state, 5);
        w.ok(Call::PortSetState, &[v.port, state, set_ref]);
        w.ok(Call::PortReference, &[v.port, r]);
        let out = objects + 512;
        let user = |address: u64| address - objects + 0x500_0000;
        let pages = kept.pages;
        fill(w, pages, 512 * 3, 7);
        let client = Program::new()
            .call(
                Call::ClientConnectSendOverReceive,
                &[
                    (A0, user(r)),
                    (A1, start + 2048),
                    (A2, 8192),
                    (A4, 0),
                    (A5, 0),
                    (A6, start + 3 * PAGE_SIZE),
                    (A7, 100),
                    (A9, 0),
                    (A10, 0),
                ],
            )
            .keep(user(out), RESULT)
            .end();
        let server = Program::new()
            .call(
                Call::ServerWaitReceive,
                &[
                    (A0, user(set)),
                    (A6, start + 4 * PAGE_SIZE + 1000),
                    (A7, 9000),
                    (A9, 0),
                    (A10, 0),
                ],
            )
            .keep(user(out + 8), RESULT)
            .keep(user(out + 16), A7)
            .call(
                Call::ServerAckSendWaitReceive,
                &[
                    (A0, user(set)),
                    (A1, start + 6 * PAGE_SIZE),
                    (A2, 64),
                    (A4, 0),
                    (A5, 0),
                    (A9, 0),
                    (A10, 0),
                ],
            )
            .end();
        let (c, sv) = (w.thread(s, client, 10), w.thread(s, server, 10));
        Scenario::default()
            .thread(c)
            .thread(sv)
            .thread(kept.keeper)
            .object(Type::Region, kept.region)
            .object(Type::Space, space)
            .object(Type::Mapping, window)
            .result(out, 3)
            .result(pages + 3 * PAGE_SIZE, 8)
            .result(pages + 4 * PAGE_SIZE, 512 * 3)
    }

    /// A keeper that replies to exceptions: it counts them, and makes the thread go on behind the
    /// instruction with the count in parameter 10.
    fn exception_keeper(w: &World, v: &Service, counter: u64) -> u64 {
        let (set, buffer) = (v.set, w.page());
        let words = EXCEPTION_WORDS as u64;
        let receive = [(A0, set), (A6, buffer), (A7, words * 8), (A9, 0), (A10, 0)];
        let registers = buffer + (words - REGISTER_WORDS as u64) * 8;
        let p = Program::new().call(Call::ServerWaitReceive, &receive);
        let again = p.len();
        let p = p
            .op(|c| assert_eq!(c.call().get(), Code::Exception as u64))
            .load(counter, A11)
            .op(|c| c.parameter(11).set(c.parameter(11).get() + 1))
            .keep(counter, A11)
            .keep(registers + 8 * ROLES.parameters[10] as u64, A11)
            .load(registers + 8 * PC_WORD as u64, A11)
            .op(|c| {
                c.parameter(11)
                    .set(c.parameter(11).get() + ROLES.call_bytes)
            })
            .keep(registers + 8 * PC_WORD as u64, A11);
        let mut both = receive.to_vec();
        both.extend([
            (A1, registers),
            (A2, REGISTER_WORDS as u64 * 8),
            (A4, 0),
            (A5, 0),
        ]);
        w.thread(0, p.call(Call::ReplyWaitReceive, &both).jump(again), 9)
    }

    fn excepted(w: &World, flags: u64, instr: fn() -> Instr) -> Scenario {
        let v = service(w);
        let counter = w.page();
        let (space, s) = w.space(0, flags, v.reference);
        let page = w.page();
        let window = w.map(
            s,
            0x500_0000,
            PAGE_SIZE,
            boot::ROOT_REGION,
            w.physical(page),
        );
        let mut p = Program::new();
        for n in 0..3 {
            p = p.push(instr()).keep(0x500_0000 + n * 8, A10);
        }
        // The program ends by stopping: a native call would be an exception in the foreign space.
        let p = p.push(Instr::Park);
        let t = w.thread(s, p, 10);
        let keeper = exception_keeper(w, &v, counter);
        Scenario::default()
            .thread(t)
            .thread(keeper)
            .object(Type::Space, space)
            .object(Type::Mapping, window)
            .object(Type::Port, v.port)
            .object(Type::Portset, v.set)
            .result(page, 3)
    }

    pub(super) fn exceptions(w: &World) -> Scenario {
        excepted(w, 0, || Instr::Bad(6))
    }

    pub(super) fn foreign_calls(w: &World) -> Scenario {
        excepted(w, space_flags::FOREIGN, || Instr::Syscall)
    }

    /// A search over a region with two objects in it.
    pub(super) fn search(w: &World) -> Scenario {
        let pages = w.pages(3);
        let (m, c) = (pages + 16, pages + 2 * PAGE_SIZE + 64);
        w.ok(Call::MutexCreate, &[m, 0]);
        w.ok(Call::CondCreate, &[c, 0]);
        let (region, reference) = w.region(0, pages, 3 * PAGE_SIZE, 0);
        let out = w.page();
        let p = Program::new()
            .call(
                Call::RegionSearch,
                &[(A0, reference), (A1, 0), (A2, 3 * PAGE_SIZE), (A3, 0x3fe)],
            )
            .keep(out, A1)
            .keep(out + 8, A4)
            .op(|c| {
                c.parameter(1).set(c.parameter(1).get() + 16);
                c.call().set(Call::RegionSearch as u64);
            })
            .push(Instr::Syscall)
            .keep(out + 16, A1)
            .op(|c| {
                c.parameter(1).set(c.parameter(1).get() + 16);
                c.call().set(Call::RegionSearch as u64);
            })
            .push(Instr::Syscall)
            .keep(out + 24, A1)
            .keep(out + 32, RESULT)
            .end();
        let t = w.thread(0, p, 10);
        Scenario::default()
            .thread(t)
            .object(Type::Region, region)
            .object(Type::Reference, reference)
            .result(out, 5)
    }
}

/// Page tables are a cache: with room for very few the results are the same.
#[test]
fn table_pages_run_out() {
    for &(name, build) in ALL {
        let (w, _, s) = prepare(build);
        w.release();
        finish(&w);
        let expected = results(&w, &s);
        for limit in 4..14 {
            let _where = Where(format!("{name}: {limit} table pages"));
            let (w, _, s) = prepare(build);
            hal::host::set_table_limit(limit);
            w.release();
            finish(&w);
            assert_eq!(results(&w, &s), expected);
        }
    }
}

/// Every stage of a call in which a cut may take its state has an entrypoint with which the call goes on.
#[test]
fn every_wait_has_a_restart() {
    for row in abi::SYSCALLS.iter().filter(|r| plan(r.call).is_ipc()) {
        let mut call = row.call;
        let mut stages = 1;
        while let Some(rest) = abi::ipc::next(call) {
            assert_ne!(plan(rest).first(), plan(call).first(), "{}", row.name);
            call = rest;
            stages += 1;
        }
        assert!(stages <= 5 && THREAD_WORDS == REGISTER_WORDS + 12);
    }
}
