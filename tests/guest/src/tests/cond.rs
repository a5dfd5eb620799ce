//! Conditions.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use abi::state::{MutexState, Waiting};
use abi::{Call, Code};
use guest_tests::harness::{eventually, Actor, Failure, Must, Outcome};
use guest_tests::{check, check_eq, guest_test};
use rt::obj::{Cond, Mutex};
use rt::sys;

fn waiting(count: usize, cond: &Cond, mutex: &Mutex) -> Result<alloc::vec::Vec<Actor>, Failure> {
    let mut actors = alloc::vec::Vec::new();
    for _ in 0..count {
        let actor = Actor::new()?;
        mutex.lock();
        // The wait unlocks the mutex: the actor is a thread like any other, and mutexes have no owner.
        actor.ordinary(Call::CondWait, [cond.handle(), mutex.handle(), 0, 0, 0, 0])?;
        actor.settle(Waiting::Cond)?;
        check!(mutex.try_lock(), "cond_wait did not unlock the mutex");
        mutex.unlock();
        actors.push(actor);
    }
    Ok(actors)
}

fn finished(actors: &[Actor]) -> usize {
    actors.iter().filter(|a| a.is_finished()).count()
}

guest_test!(CONDS0001, signal_wakes_one);
fn signal_wakes_one() -> Outcome {
    let (cond, mutex) = (Cond::new().must("new")?, Mutex::new().must("new")?);
    let actors = waiting(3, &cond, &mutex)?;
    for n in 1..=3 {
        check_eq!(sys::cond_signal(cond.handle()), Code::Ok);
        eventually("the next one", || finished(&actors) >= n)?;
        rt::time::sleep(500_000);
        check_eq!(finished(&actors), n);
        check_eq!(mutex.get_state(), Ok(MutexState { locked: 1 }));
        mutex.unlock();
    }
    // A signal without a waiter is not remembered.
    sys::cond_signal(cond.handle());
    let more = waiting(1, &cond, &mutex)?;
    rt::time::sleep(500_000);
    check_eq!(finished(&more), 0);
    Ok(())
}

guest_test!(CONDS0002, broadcast_wakes_all);
fn broadcast_wakes_all() -> Outcome {
    let (cond, mutex) = (Cond::new().must("new")?, Mutex::new().must("new")?);
    let actors = waiting(3, &cond, &mutex)?;
    check_eq!(sys::cond_broadcast(cond.handle()), Code::Ok);
    for n in 1..=3 {
        eventually("the next one", || finished(&actors) >= n)?;
        rt::time::sleep(500_000);
        check_eq!(finished(&actors), n);
        mutex.unlock();
    }
    Ok(())
}

/// Threads that wait again as soon as they are woken, more than a kernel with preemption points wakes at once.
const CROWD: u64 = 150;

guest_test!(CONDS0006, broadcast_ends);
fn broadcast_ends() -> Outcome {
    let objects = Arc::new((
        Cond::new().must("new")?,
        Mutex::new().must("new")?,
        AtomicU64::new(0),
        AtomicBool::new(false),
    ));
    let mut crowd = 0;
    for _ in 0..CROWD {
        let objects = Arc::clone(&objects);
        // Above this thread's priority, so that each thread runs as soon as the kernel lets it.
        let wait = move || {
            let (cond, mutex, woken, done) = &*objects;
            while !done.load(Relaxed) {
                mutex.lock();
                cond.wait(mutex.at());
                woken.fetch_add(1, Relaxed);
                mutex.unlock();
            }
        };
        // As many threads as there is memory for: in the process model each has a stack in the kernel.
        if rt::thread::spawn_at(rt::start::priority() + 1, wait).is_err() {
            break;
        }
        crowd += 1;
    }
    check!(crowd >= 5, "a crowd");
    let (cond, _, woken, done) = &*objects;
    for n in 1..=3 {
        cond.broadcast();
        check_eq!(woken.load(Relaxed), n * crowd);
    }
    done.store(true, Relaxed);
    cond.broadcast();
    eventually("all have ended", || Arc::strong_count(&objects) == 1)
}

guest_test!(CONDS0003, waiter_is_about_to_lock);
fn waiter_is_about_to_lock() -> Outcome {
    let (cond, mutex) = (Cond::new().must("new")?, Mutex::new().must("new")?);
    let actors = waiting(1, &cond, &mutex)?;
    let r = actors[0].state().registers;
    check_eq!(r.pc(), guest_tests::harness::call_site());
    check_eq!(r.call() as u8, Call::MutexLock as u8);
    check_eq!(r.parameter(0), mutex.handle());
    Ok(())
}

guest_test!(CONDS0004, deadline);
fn deadline() -> Outcome {
    let (cond, mutex) = (Cond::new().must("new")?, Mutex::new().must("new")?);
    mutex.lock();
    let start = rt::time::now();
    check_eq!(
        sys::cond_wait_until(cond.handle(), mutex.handle(), start + 2_000_000),
        Code::Ok
    );
    check!(rt::time::now() >= start + 2_000_000, "it came back early");
    check_eq!(mutex.get_state(), Ok(MutexState { locked: 1 }));
    // A deadline in the past.
    check_eq!(
        sys::cond_wait_until(cond.handle(), mutex.handle(), start),
        Code::Ok
    );
    check_eq!(mutex.get_state(), Ok(MutexState { locked: 1 }));
    Ok(())
}

guest_test!(CONDS0005, stop_makes_a_lock);
fn stop_makes_a_lock() -> Outcome {
    let (cond, mutex) = (Cond::new().must("new")?, Mutex::new().must("new")?);
    let actors = waiting(1, &cond, &mutex)?;
    mutex.lock();
    actors[0].thread.stop().must("stop")?;
    actors[0].thread.resume().must("resume")?;
    // A restart makes the wait return, spuriously, but never without the mutex.
    actors[0].settle(Waiting::Mutex)?;
    mutex.unlock();
    check_eq!(actors[0].finish_code()?, Code::Ok);
    check_eq!(mutex.get_state(), Ok(MutexState { locked: 1 }));
    Ok(())
}
