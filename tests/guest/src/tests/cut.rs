//! Cut tests: threads are stopped at random instants, their state is taken, they are destroyed, made anew from the
//! state and resumed. The results of their computations must not show it (rules A6 to A8).
//!
//! Instants come from fixed seeds. Each test reports how many cuts it made, and fails if there were too few to be
//! meaningful.

use abi::registers::Area;
use abi::{Call, Code};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use guest_tests::harness::{cut, Absent, Actor, Failure, Must, Outcome, Random, Receiver};
use guest_tests::{check, check_eq, guest_test};
use rt::obj::{Cond, Mutex};
use rt::sys::{self, IpcRegs};

/// What the threads were doing when a test cut them.
#[derive(Default)]
struct Met {
    cuts: u32,
    in_calls: u32,
    elsewhere: u32,
}

/// Cuts the actors in turn at random instants until `done`, at most `limit` times.
fn cut_until(
    seed: u64,
    actors: &[&Actor],
    keep: bool,
    pause: u64,
    limit: u32,
    mut done: impl FnMut() -> bool,
) -> Result<Met, Failure> {
    let mut random = Random(seed);
    let mut met = Met::default();
    let end = rt::time::now() + guest_tests::harness::PATIENCE;
    while !done() {
        if rt::time::now() > end {
            let states: Vec<String> = actors
                .iter()
                .map(|a| {
                    let s = a.state();
                    format!(
                        "at {:#x} call {:#x} waiting {} stages {} {} exception {} at {:#x}",
                        s.registers.pc(),
                        s.registers.call(),
                        s.waiting,
                        s.client_stage,
                        s.server_stage,
                        s.exception,
                        s.exception_address
                    )
                })
                .collect();
            guest_tests::fail!("never done after {} cuts: {}", met.cuts, states.join("; "));
        }
        rt::time::sleep(1_000 + random.below(pause));
        if met.cuts < limit {
            let actor = actors[random.below(actors.len() as u64) as usize];
            let state = cut(actor.thread.at(), keep)
                .map_err(|why| why.during(format_args!("seed {seed}")))?;
            met.cuts += 1;
            // SAFETY: the program counter of an actor points into this program's code.
            let code = unsafe { (state.registers.pc() as *const [u8; 2]).read_unaligned() };
            if code == [0x0f, 0x05] {
                met.in_calls += 1;
            } else {
                met.elsewhere += 1;
            }
        }
    }
    check!(met.cuts >= 20, "only {} cuts", met.cuts);
    Ok(met)
}

/// Four threads, two mutexes, one condition, and a sum that both mutexes together protect.
struct Bank {
    first: Mutex,
    second: Mutex,
    changed: Cond,
    from: AtomicU64,
    to: AtomicU64,
    broken: AtomicBool,
}

const TRANSFERS: u64 = 3000;

extern "C" fn transfer(bank: u64) {
    // SAFETY: the test passes the address of a bank that outlives the actor.
    let bank = unsafe { &*(bank as *const Bank) };
    loop {
        bank.first.lock();
        let from = bank.from.load(Ordering::Relaxed);
        if from == 0 {
            sys::cond_broadcast(bank.changed.handle());
            bank.first.unlock();
            return;
        }
        bank.second.lock();
        let to = bank.to.load(Ordering::Relaxed);
        if from + to != TRANSFERS {
            bank.broken.store(true, Ordering::Relaxed);
        }
        bank.from.store(from - 1, Ordering::Relaxed);
        // A while in which the invariant does not hold.
        for _ in 0..50 {
            core::hint::spin_loop();
        }
        bank.to.store(to + 1, Ordering::Relaxed);
        bank.second.unlock();
        if from % 16 == 0 {
            sys::cond_broadcast(bank.changed.handle());
        }
        if from % 5 == 0 {
            sys::cond_wait_until(
                bank.changed.handle(),
                bank.first.handle(),
                sys::clock_get() + 40_000,
            );
        }
        bank.first.unlock();
    }
}

guest_test!(CUT0001, mutexes_and_condition);
fn mutexes_and_condition() -> Outcome {
    for (seed, keep) in [(1, true), (2, false)] {
        let bank = Bank {
            first: Mutex::new().must("new")?,
            second: Mutex::new().must("new")?,
            changed: Cond::new().must("new")?,
            from: AtomicU64::new(TRANSFERS),
            to: AtomicU64::new(0),
            broken: AtomicBool::new(false),
        };
        let mut actors = Vec::new();
        for _ in 0..4 {
            let actor = Actor::new()?;
            actor.function(transfer, core::ptr::from_ref(&bank) as u64)?;
            actors.push(actor);
        }
        let all: Vec<&Actor> = actors.iter().collect();
        let met = cut_until(seed, &all, keep, 40_000, 1500, || {
            actors.iter().all(Actor::is_finished)
        })?;
        check!(
            !bank.broken.load(Ordering::Relaxed),
            "two threads were inside at once"
        );
        check_eq!(bank.to.load(Ordering::Relaxed), TRANSFERS);
        check!(
            met.in_calls > 0 && met.elsewhere > 0,
            "{} / {}",
            met.in_calls,
            met.elsewhere
        );
        check!(
            bank.first.try_lock() && bank.second.try_lock(),
            "a mutex was left locked"
        );
    }
    Ok(())
}

const LARGE: u64 = 4 << 20;

fn pattern(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xabcd
}

guest_test!(CUT0002, large_transfer);
fn large_transfer() -> Outcome {
    for seed in [3, 4] {
        let server = Receiver::new(0)?;
        let (from, to) = (
            rt::memory::create(LARGE).must("a segment")?,
            rt::memory::create(LARGE).must("a segment")?,
        );
        let map = |s: &rt::memory::Segment| {
            rt::window::Window::map(&s.region, 0, LARGE, abi::access::READ | abi::access::WRITE)
        };
        let (source, target) = (map(&from).must("a window")?, map(&to).must("a window")?);
        for word in 0..LARGE / 8 {
            // SAFETY: within the window, which is this test's.
            unsafe { ((source.address() + word * 8) as *mut u64).write_volatile(pattern(word)) };
        }
        let (client, other) = (Actor::new()?, Actor::new()?);
        client.call(
            Call::ClientConnectSendOver,
            IpcRegs::to(server.port_ref.handle()).sending(Area::new(source.address(), LARGE)),
        )?;
        // The message is received into pages that are absent, with one fault each.
        other.call(
            Call::ServerWaitReceive,
            IpcRegs::to(server.portset.handle()).receiving(Area::new(target.address(), LARGE)),
        )?;
        cut_until(seed, &[&client, &other], true, 60_000, 1000, || {
            client.is_finished() && other.is_finished()
        })?;
        check_eq!(client.finish_code()?, Code::Ok);
        let regs = other.finish()?;
        check_eq!((regs.code(), regs.left().length), (Code::Ok, 0));
        for word in 0..LARGE / 8 {
            // SAFETY: as above.
            let got = unsafe { ((target.address() + word * 8) as *const u64).read_volatile() };
            check!(got == pattern(word), "word {word} is {got:#x}");
        }
        drop((source, target));
        from.destroy().must("destroy")?;
        to.destroy().must("destroy")?;
    }
    Ok(())
}

const KEPT: u64 = 64;

/// A keeper that sleeps before it supplies each page.
struct Pager {
    receiver: Receiver,
    absent: Absent,
    supplied: [bool; KEPT as usize],
    answered: u64,
}

extern "C" fn page_slowly(pager: u64) {
    // SAFETY: the test passes the address of a pager that no other code uses while the actor runs.
    let pager = unsafe { &mut *(pager as *mut Pager) };
    loop {
        let got = pager.receiver.receive(u64::MAX / 4);
        if got.code != Code::Fault {
            continue;
        }
        rt::time::sleep(60_000);
        let page = (pager.receiver.word(0) / abi::PAGE_SIZE).min(KEPT - 1);
        // A fault message may be delivered twice (rule A8).
        if !pager.supplied[page as usize] {
            pager.supplied[page as usize] = pager.absent.supply(page * abi::PAGE_SIZE).is_ok();
        }
        pager.answered += 1;
        guest_tests::harness::reply(&[]);
    }
}

struct Reader {
    base: u64,
    sum: u64,
}

extern "C" fn read_all(reader: u64) {
    // SAFETY: the test passes the address of a reader that outlives the actor; its pages are supplied when they are
    // touched.
    unsafe {
        let reader = &mut *(reader as *mut Reader);
        for page in 0..KEPT {
            let at = (reader.base + page * abi::PAGE_SIZE) as *mut u64;
            at.write_volatile(at.read_volatile() + page);
            reader.sum += at.read_volatile();
        }
    }
}

guest_test!(CUT0003, slow_keeper);
fn slow_keeper() -> Outcome {
    let receiver = Receiver::new(0)?;
    let absent = Absent::new(KEPT * abi::PAGE_SIZE, receiver.port_ref.handle())?;
    let window = rt::window::Window::map(
        &absent.region_ref,
        0,
        KEPT * abi::PAGE_SIZE,
        abi::access::ALL,
    )
    .must("a window")?;
    let mut pager = Pager {
        receiver,
        absent,
        supplied: [false; KEPT as usize],
        answered: 0,
    };
    let mut reader = Reader {
        base: window.address(),
        sum: 0,
    };
    let (keeper, program) = (Actor::new()?, Actor::new()?);
    keeper.function(page_slowly, core::ptr::from_mut(&mut pager) as u64)?;
    program.function(read_all, core::ptr::from_mut(&mut reader) as u64)?;
    cut_until(5, &[&keeper, &program], true, 80_000, 600, || {
        program.is_finished()
    })?;
    keeper.thread.stop().must("stop")?;
    // SAFETY: both actors are done with it.
    let sum = unsafe { core::ptr::from_ref(&reader.sum).read_volatile() };
    check_eq!(sum, (0..KEPT).sum::<u64>());
    drop(window);
    Ok(())
}

struct Adder {
    portset: u64,
    port: u64,
    /// Requests that the server has seen, each worth one.
    seen: AtomicU64,
    /// The last reply that the client received.
    heard: AtomicU64,
    wrong: AtomicU64,
}

const CALLS: u64 = 3000;

extern "C" fn add_for_ever(adder: u64) {
    // SAFETY: the test passes the address of an adder that outlives the actor.
    let adder = unsafe { &*(adder as *const Adder) };
    let mut regs = IpcRegs::to(adder.portset);
    // SAFETY: register messages touch no memory.
    let mut code = unsafe { sys::ipc(Call::ServerWaitReceiveShort, &mut regs) };
    loop {
        let mut answer = 0;
        if code == Code::Ok && regs.short_len() == 8 {
            let seen = adder.seen.load(Ordering::Relaxed);
            // The client sends the number of the request.
            if regs.word(0) != seen {
                adder.wrong.fetch_add(1, Ordering::Relaxed);
            }
            adder.seen.store(seen + 1, Ordering::Relaxed);
            answer = seen + 1;
        }
        regs = IpcRegs::to(adder.portset).message(&[answer]);
        // SAFETY: as above.
        code = unsafe {
            if code == Code::Ok {
                sys::ipc(Call::ServerAckSendWaitReceiveShort, &mut regs)
            } else {
                sys::ipc(Call::ServerWaitReceiveShort, &mut regs)
            }
        };
    }
}

extern "C" fn ask_often(adder: u64) {
    // SAFETY: as above.
    let adder = unsafe { &*(adder as *const Adder) };
    for n in 0..CALLS {
        let mut regs = IpcRegs::to(adder.port).message(&[n]);
        // SAFETY: register messages touch no memory.
        let code = unsafe { sys::ipc(Call::ClientConnectSendOverReceiveShort, &mut regs) };
        // The server ends the connection with its reply.
        let fine = matches!(code, Code::Ok | Code::Disconnected);
        if !fine || regs.short_len() != 8 || regs.word(0) != n + 1 {
            adder.wrong.fetch_add(1, Ordering::Relaxed);
        }
        adder.heard.store(regs.word(0), Ordering::Relaxed);
        sys::client_disconnect();
    }
}

guest_test!(CUT0004, short_calls_happen_once);
fn short_calls_happen_once() -> Outcome {
    let receiver = Receiver::new(0)?;
    let adder = Adder {
        portset: receiver.portset.handle(),
        port: receiver.port_ref.handle(),
        seen: AtomicU64::new(0),
        heard: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
    };
    let (server, client) = (Actor::new()?, Actor::new()?);
    let address = core::ptr::from_ref(&adder) as u64;
    server.function(add_for_ever, address)?;
    client.function(ask_often, address)?;
    let met = cut_until(6, &[&server, &client], true, 25_000, 2000, || {
        client.is_finished()
    })?;
    server.thread.stop().must("stop")?;
    check_eq!(adder.wrong.load(Ordering::Relaxed), 0);
    check_eq!(adder.seen.load(Ordering::Relaxed), CALLS);
    check_eq!(adder.heard.load(Ordering::Relaxed), CALLS);
    check!(met.in_calls > 0, "no cut within a call");
    Ok(())
}

static TAKEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn take_interrupts(count: u64) {
    for _ in 0..count {
        sys::thread_wait_interrupt();
        TAKEN.fetch_add(1, Ordering::Relaxed);
    }
}

guest_test!(CUT0005, interrupts_are_not_lost);
fn interrupts_are_not_lost() -> Outcome {
    let actor = Actor::new()?;
    let reference = actor.thread.reference().must("reference")?;
    TAKEN.store(0, Ordering::Relaxed);
    actor.function(take_interrupts, 300)?;
    let mut random = Random(7);
    for n in 0..300 {
        if random.below(2) == 0 {
            cut(actor.thread.at(), true)?;
        }
        check_eq!(sys::thread_interrupt(reference.handle()), Code::Ok);
        if random.below(2) == 0 {
            cut(actor.thread.at(), true)?;
        }
        guest_tests::harness::eventually("the interrupt", || {
            TAKEN.load(Ordering::Relaxed) == n + 1
        })?;
    }
    actor.finish()?;
    Ok(())
}

extern "C" fn hash(result: u64) {
    let mut x = 1u64;
    for n in 0..2_000_000u64 {
        x = (x ^ n).wrapping_mul(0x100_0000_01b3).rotate_left(7);
    }
    // SAFETY: the test passes the address of an atomic that outlives the actor.
    unsafe { &*(result as *const AtomicU64) }.store(x, Ordering::Relaxed);
}

guest_test!(CUT0006, user_code);
fn user_code() -> Outcome {
    let (plain, other) = (AtomicU64::new(0), AtomicU64::new(0));
    hash(core::ptr::from_ref(&plain) as u64);
    let actor = Actor::new()?;
    actor.function(hash, core::ptr::from_ref(&other) as u64)?;
    let met = cut_until(8, &[&actor], false, 30_000, 2000, || actor.is_finished())?;
    check!(met.elsewhere > 0, "no cut in user code");
    check_eq!(other.load(Ordering::Relaxed), plain.load(Ordering::Relaxed));
    Ok(())
}

guest_test!(CUT0007, references_in_messages);
/// References in messages, while both sides are cut, arrive once and in order, and none is lost.
fn references_in_messages() -> Outcome {
    let mut server = Receiver::new(0)?;
    let mutexes = [Mutex::new().must("new")?, Mutex::new().must("new")?];
    let refs = rt::obj::RefBlock::new(2).must("references")?;
    mutexes[0].reference_into(refs.get(0)).must("reference")?;
    mutexes[1].reference_into(refs.get(1)).must("reference")?;
    let data = alloc::vec![3u8; 6000];
    let mut random = Random(9);
    for round in 0..60 {
        let (client, other) = (Actor::new()?, Actor::new()?);
        server.refs.clear();
        let regs = IpcRegs::to(server.port_ref.handle()).sending(Area {
            refs: refs.list(2),
            ..Area::new(data.as_ptr() as u64, data.len() as u64)
        });
        let (first, second) = if round % 2 == 0 {
            (&client, &other)
        } else {
            (&other, &client)
        };
        for actor in [first, second] {
            if core::ptr::eq(actor, &client) {
                actor.call(Call::ClientConnectSendOver, regs)?;
            } else {
                actor.call(Call::ServerWaitReceive, server.receive_regs())?;
            }
            rt::time::sleep(random.below(8_000));
            cut(first.thread.at(), true)?;
        }
        rt::time::sleep(random.below(8_000));
        cut(second.thread.at(), true)?;
        check_eq!(client.finish_code()?, Code::Ok);
        let regs = other.finish()?;
        check_eq!((regs.code(), 8192 - regs.left().length), (Code::Ok, 6000));
        check_eq!(regs.left().refs & abi::MAX_LIST_REFS, 2);
        check!(
            server.refs.get(0).same_as(refs.get(0)),
            "round {round}: the first reference"
        );
        check!(
            server.refs.get(1).same_as(refs.get(1)),
            "round {round}: the second reference"
        );
    }
    Ok(())
}
