//! Threads: stopping, state, interrupts, clocks.

use abi::state::{ThreadState, Waiting};
use abi::{Call, Code};
use core::sync::atomic::{AtomicU64, Ordering};
use guest_tests::harness::{cut, eventually, Actor, Must, Outcome};
use guest_tests::{check, check_eq, fail, guest_test};
use rt::sys;

static COUNT: AtomicU64 = AtomicU64::new(0);

extern "C" fn spin(_: u64) {
    loop {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

extern "C" fn count_at(counter: u64) {
    // SAFETY: the tests pass the address of an atomic that outlives the actor.
    let counter = unsafe { &*(counter as *const AtomicU64) };
    loop {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

guest_test!(THREADS0001, stops_count);
fn stops_count() -> Outcome {
    let actor = Actor::new()?;
    check_eq!(actor.thread.resume(), Err(Code::Invalid));
    actor.function(spin, 0)?;
    let before = COUNT.load(Ordering::Relaxed);
    eventually("counting", || COUNT.load(Ordering::Relaxed) > before)?;
    for _ in 0..3 {
        actor.thread.stop().must("stop")?;
    }
    check_eq!(actor.state().stop_count, 3);
    let still = COUNT.load(Ordering::Relaxed);
    for left in [2, 1] {
        actor.thread.resume().must("resume")?;
        check_eq!(actor.state().stop_count, left);
        rt::time::sleep(1_000_000);
        check_eq!(COUNT.load(Ordering::Relaxed), still);
    }
    actor.thread.resume().must("resume")?;
    eventually("counting again", || COUNT.load(Ordering::Relaxed) > still)
}

guest_test!(THREADS0002, all_registers);
/// Loads every register with a value of the test's and stops there.
fn all_registers() -> Outcome {
    let actor = Actor::new()?;
    actor.thread.stop().must("stop")?;
    let mut state = actor.state();
    let mut words = [0u64; abi::state::REGISTER_WORDS];
    for (n, word) in words.iter_mut().enumerate() {
        *word = 0x1111_1111_1111_1111u64.wrapping_mul(n as u64 + 1);
    }
    let mut registers = abi::Registers::from_words(&words);
    registers.rip = 0x40_0000;
    registers.rflags = 0x202;
    registers.fs_base = 0x1234_5000;
    registers.gs_base = 0x1234_6000;
    state.registers = registers;
    state.tag = 77;
    state.priority = 5;
    actor.thread.set_state(&state, 0, 0, 0).must("set_state")?;
    let read = actor.state();
    check_eq!(read.registers, registers);
    check_eq!(
        (read.tag, read.priority, read.stop_count),
        (77, 5, state.stop_count)
    );
    // The same after a cut of the stopped thread.
    let seen = cut(actor.thread.at(), true)?;
    check_eq!(seen.registers, registers);
    Ok(())
}

extern "C" fn fpu_work(result: u64) {
    let mut sum = 0.0f64;
    let mut n = 0u32;
    while n < 200_000 {
        n += 1;
        sum += 1.0 / f64::from(n);
        core::hint::black_box(&mut sum);
    }
    // SAFETY: the test passes the address of an atomic that outlives the actor.
    unsafe { &*(result as *const AtomicU64) }.store(sum.to_bits(), Ordering::SeqCst);
}

guest_test!(THREADS0003, fpu);
fn fpu() -> Outcome {
    static RESULTS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    let address = |n: usize| core::ptr::from_ref(&RESULTS[n]) as u64;
    let (plain, other) = (Actor::new()?, Actor::new()?);
    plain.function(fpu_work, address(0))?;
    plain.finish()?;
    // Two threads at once, one of which is cut all the time.
    plain.function(fpu_work, address(0))?;
    other.function(fpu_work, address(1))?;
    let mut cuts = 0;
    while !other.is_finished() && cuts < 2000 {
        rt::time::sleep(30_000);
        cut(other.thread.at(), cuts % 2 == 0)?;
        cuts += 1;
    }
    plain.finish()?;
    other.finish()?;
    let expected = (1..=200_000u32).fold(0.0f64, |sum, n| sum + 1.0 / f64::from(n));
    for result in &RESULTS {
        check_eq!(f64::from_bits(result.load(Ordering::SeqCst)), expected);
    }
    check!(cuts > 3, "only {cuts} cuts");
    // The FPU area is read back as it was set.
    let actor = Actor::new()?;
    actor.thread.stop().must("stop")?;
    let mut state = actor.state();
    for (n, byte) in state.fpu[160..416].iter_mut().enumerate() {
        *byte = n as u8;
    }
    actor.thread.set_state(&state, 0, 0, 0).must("set_state")?;
    check!(
        actor.state().fpu[160..416] == state.fpu[160..416],
        "the xmm registers changed"
    );
    Ok(())
}

guest_test!(THREADS0004, hostile_states);
fn hostile_states() -> Outcome {
    let actor = Actor::new()?;
    actor.thread.stop().must("stop")?;
    let good = actor.state();
    let refused = |what: &str, change: fn(&mut ThreadState)| -> Outcome {
        let mut state = good;
        change(&mut state);
        match actor.thread.set_state(&state, 0, 0, 0) {
            Err(Code::Invalid) => Ok(()),
            other => fail!("{what}: {other:?}"),
        }
    };
    refused("a priority that does not exist", |s| s.priority = 32)?;
    refused("no stop", |s| s.stop_count = 0)?;
    refused("a stage that does not exist", |s| s.client_stage = 9)?;
    refused("a stage that does not exist", |s| s.server_stage = u64::MAX)?;
    refused("rip that is not canonical", |s| {
        s.registers.rip = 0x0008_0000_0000_0000
    })?;
    refused("rip in the kernel", |s| {
        s.registers.rip = 0xffff_8000_0000_0000
    })?;
    refused("fs that is not canonical", |s| {
        s.registers.fs_base = 0x0008_0000_0000_0000
    })?;
    refused("an interrupt count", |s| s.interrupt = 2)?;
    refused("an exception count", |s| s.exception_delivered = 2)?;
    // Flags that a program cannot have are not set.
    let mut state = good;
    state.registers.rflags = 0x3202;
    match actor.thread.set_state(&state, 0, 0, 0) {
        Ok(()) => check_eq!(actor.state().registers.rflags & 0x3000, 0),
        Err(code) => check_eq!(code, Code::Invalid),
    }
    // Nor are reserved bits of the FPU: loading them would be a fault of the kernel.
    let mut state = good;
    state.fpu[26..28].fill(0xff);
    match actor.thread.set_state(&state, 0, 0, 0) {
        Ok(()) => check_eq!(actor.state().fpu[26..28], [0, 0]),
        Err(code) => check_eq!(code, Code::Invalid),
    }
    // A state that cannot be set is not set in part.
    actor
        .thread
        .set_state(&good, 0, 0, 0)
        .must("the good state")?;
    check_eq!(actor.state().registers, good.registers);
    Ok(())
}

guest_test!(THREADS0005, set_state_needs_a_stop);
fn set_state_needs_a_stop() -> Outcome {
    let actor = Actor::new()?;
    let state = actor.state();
    check_eq!(actor.thread.set_state(&state, 0, 0, 0).is_err(), true);
    Ok(())
}

guest_test!(THREADS0006, interrupts_are_sticky);
fn interrupts_are_sticky() -> Outcome {
    let actor = Actor::new()?;
    let reference = actor.thread.reference().must("reference")?;
    // Stopped, so that it cannot take the interrupt.
    actor.thread.stop().must("stop")?;
    check_eq!(sys::thread_interrupt(reference.handle()), Code::Ok);
    check_eq!(sys::thread_interrupt(reference.handle()), Code::Ok);
    check_eq!(actor.state().interrupt, 1);
    actor.thread.resume().must("resume")?;
    eventually("taking the interrupt", || actor.state().interrupt == 0)?;
    actor.ordinary(Call::ThreadWaitInterrupt, [0; 6])?;
    actor.settle(Waiting::Interrupt)?;
    check_eq!(
        actor.state().registers.rip,
        guest_tests::harness::call_site()
    );
    check_eq!(sys::thread_interrupt(reference.handle()), Code::Ok);
    check_eq!(actor.finish_code()?, Code::Ok);
    Ok(())
}

guest_test!(THREADS0007, interrupt_deadline);
fn interrupt_deadline() -> Outcome {
    let start = rt::time::now();
    let code = sys::thread_wait_interrupt_until(start + 1_000_000);
    check_eq!(code, Code::TimedOut);
    check!(rt::time::now() >= start + 1_000_000, "it came back early");
    let actor = Actor::new()?;
    let reference = actor.thread.reference().must("reference")?;
    actor.ordinary(
        Call::ThreadWaitInterruptUntil,
        [
            rt::time::now() + guest_tests::harness::PATIENCE,
            0,
            0,
            0,
            0,
            0,
        ],
    )?;
    actor.settle(Waiting::Interrupt)?;
    sys::thread_interrupt(reference.handle());
    check_eq!(actor.finish_code()?, Code::Ok);
    Ok(())
}

guest_test!(THREADS0008, sleep_until);
fn sleep_until() -> Outcome {
    let start = rt::time::now();
    check_eq!(sys::thread_sleep_until(start + 3_000_000), Code::Ok);
    let late = rt::time::now() - start;
    check!(
        (3_000_000..guest_tests::harness::PATIENCE).contains(&late),
        "slept {late} ns"
    );
    check_eq!(sys::thread_sleep_until(0), Code::Ok);
    Ok(())
}

guest_test!(THREADS0009, tag_and_yield);
fn tag_and_yield() -> Outcome {
    let actor = Actor::new()?;
    actor.thread.stop().must("stop")?;
    let mut state = actor.state();
    state.tag = 0xfeed;
    actor.thread.set_state(&state, 0, 0, 0).must("set_state")?;
    actor.thread.resume().must("resume")?;
    actor.ordinary(Call::ThreadSelf, [0; 6])?;
    let regs = actor.finish()?;
    check_eq!((regs.code(), regs.value()), (Code::Ok, 0xfeed));
    check_eq!(sys::thread_yield(), Code::Ok);
    Ok(())
}

guest_test!(THREADS0010, priorities);
fn priorities() -> Outcome {
    let (high, low) = (AtomicU64::new(0), AtomicU64::new(0));
    let (a, b) = (Actor::new()?, Actor::new()?);
    a.thread.set_priority(3).must("set_priority")?;
    b.thread.set_priority(2).must("set_priority")?;
    check_eq!(a.thread.set_priority(32), Err(Code::Invalid));
    b.function(count_at, core::ptr::from_ref(&low) as u64)?;
    eventually("the low one", || low.load(Ordering::Relaxed) > 0)?;
    a.function(count_at, core::ptr::from_ref(&high) as u64)?;
    eventually("the high one", || high.load(Ordering::Relaxed) > 0)?;
    let before = low.load(Ordering::Relaxed);
    rt::time::sleep(5_000_000);
    check_eq!(low.load(Ordering::Relaxed), before);
    // Changes of priority take effect at once.
    b.thread.set_priority(4).must("set_priority")?;
    eventually("the low one again", || low.load(Ordering::Relaxed) > before)
}

guest_test!(THREADS0011, round_robin);
fn round_robin() -> Outcome {
    let counters = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
    let mut actors = alloc::vec::Vec::new();
    for counter in &counters {
        let actor = Actor::new()?;
        actor.function(count_at, core::ptr::from_ref(counter) as u64)?;
        actors.push(actor);
    }
    for _ in 0..3 {
        let before: alloc::vec::Vec<u64> =
            counters.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        eventually("everybody's turn", || {
            counters
                .iter()
                .zip(&before)
                .all(|(c, b)| c.load(Ordering::Relaxed) > *b)
        })?;
    }
    Ok(())
}

/// A region that is searched, and the number of searches.
struct Searched {
    region: rt::obj::RefAt,
    count: AtomicU64,
}

extern "C" fn search_and_count(searched: u64) {
    // SAFETY: the test passes the address of what outlives the actor.
    let searched = unsafe { &*(searched as *const Searched) };
    loop {
        let mutexes = 1 << abi::Type::Mutex as u64;
        let _ = searched.region.search(0, SEARCHED, mutexes);
        searched.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bytes of the region that is searched.
const SEARCHED: u64 = 256 * abi::PAGE_SIZE;

guest_test!(THREADS0014, slices_go_on_in_calls);
/// A thread that is nearly always in the middle of a call, and is preempted there again and again, gets no more than
/// its slices: a thread of the same priority gets its turns.
fn slices_go_on_in_calls() -> Outcome {
    let segment = rt::memory::create(SEARCHED).must("a segment")?;
    let window =
        rt::window::Window::map(&segment.region, 0, SEARCHED, abi::access::ALL).must("a window")?;
    for page in 0..SEARCHED / abi::PAGE_SIZE {
        let at = (window.address() + page * abi::PAGE_SIZE) as *mut u64;
        // SAFETY: the window maps it, and no other code has it.
        unsafe { at.write_volatile(page) };
    }
    let searched = Searched {
        region: segment.region.at(),
        count: AtomicU64::new(0),
    };
    let counted = AtomicU64::new(0);
    let (searches, counts) = (Actor::new()?, Actor::new()?);
    searches.function(search_and_count, core::ptr::from_ref(&searched) as u64)?;
    counts.function(count_at, core::ptr::from_ref(&counted) as u64)?;
    let seen = || [&searched.count, &counted].map(|c| c.load(Ordering::Relaxed));
    for _ in 0..3 {
        let before = seen();
        // This thread is more important, and preempts the running one each time that it looks.
        eventually("everybody's turn", || {
            let now = seen();
            now[0] > before[0] && now[1] > before[1]
        })?;
    }
    Ok(())
}

guest_test!(THREADS0012, sleeper_keeps_its_deadline);
fn sleeper_keeps_its_deadline() -> Outcome {
    let actor = Actor::new()?;
    let deadline = rt::time::now() + 20_000_000;
    actor.ordinary(Call::ThreadSleepUntil, [deadline, 0, 0, 0, 0, 0])?;
    for n in 0..10 {
        rt::time::sleep(500_000);
        let state = cut(actor.thread.at(), n % 2 == 0)?;
        check_eq!(state.registers.parameter(0), deadline);
    }
    check_eq!(actor.finish_code()?, Code::Ok);
    check!(rt::time::now() >= deadline, "it woke early");
    check!(
        rt::time::now() < deadline + guest_tests::harness::PATIENCE,
        "it woke late"
    );
    Ok(())
}

guest_test!(THREADS0013, a_stop_is_prompt_in_user_code);
fn a_stop_is_prompt_in_user_code() -> Outcome {
    let actor = Actor::new()?;
    actor.function(spin, 0)?;
    for _ in 0..50 {
        rt::time::sleep(50_000);
        actor.thread.stop().must("stop")?;
        let before = COUNT.load(Ordering::Relaxed);
        let state = actor.state();
        check!(state.stop_count == 1 && state.registers.rip >= 0x40_0000);
        rt::time::sleep(20_000);
        check_eq!(COUNT.load(Ordering::Relaxed), before);
        actor.thread.resume().must("resume")?;
    }
    Ok(())
}
