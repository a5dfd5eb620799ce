//! Mutexes.

use abi::state::{MutexState, Waiting};
use abi::{Call, Code};
use alloc::sync::Arc;
use guest_tests::harness::{Actor, Must, Outcome};
use guest_tests::{check, check_eq, guest_test};
use rt::obj::{Mutex, ThreadAt};
use rt::{slots, sys};

guest_test!(MUTEXES0001, lock_trylock_unlock);
fn lock_trylock_unlock() -> Outcome {
    let mutex = Mutex::new().must("new")?;
    check_eq!(sys::mutex_lock(mutex.handle()), Code::Ok);
    check_eq!(mutex.get_state(), Ok(MutexState { locked: 1 }));
    check_eq!(sys::mutex_trylock(mutex.handle()), Code::WouldBlock);
    check_eq!(sys::mutex_unlock(mutex.handle()), Code::Ok);
    check_eq!(sys::mutex_unlock(mutex.handle()), Code::Invalid);
    check_eq!(sys::mutex_trylock(mutex.handle()), Code::Ok);
    check_eq!(
        mutex.set_state(&MutexState { locked: 2 }),
        Err(Code::Invalid)
    );
    Ok(())
}

guest_test!(MUTEXES0002, waiter_gets_it);
fn waiter_gets_it() -> Outcome {
    let mutex = Mutex::new().must("new")?;
    mutex.lock();
    let actor = Actor::new()?;
    actor.ordinary(Call::MutexLock, [mutex.handle(), 0, 0, 0, 0, 0])?;
    actor.settle(Waiting::Mutex)?;
    mutex.unlock();
    check_eq!(actor.finish_code()?, Code::Ok);
    // The waiter has the lock now.
    check_eq!(sys::mutex_trylock(mutex.handle()), Code::WouldBlock);
    Ok(())
}

guest_test!(MUTEXES0003, frame_of_a_waiter);
fn frame_of_a_waiter() -> Outcome {
    let mutex = Mutex::new().must("new")?;
    mutex.lock();
    let actor = Actor::new()?;
    actor.ordinary(Call::MutexLock, [mutex.handle(), 7, 8, 9, 10, 11])?;
    actor.settle(Waiting::Mutex)?;
    let r = actor.state().registers;
    check_eq!(r.pc(), guest_tests::harness::call_site());
    check_eq!(r.call() as u8, Call::MutexLock as u8);
    check_eq!(
        core::array::from_fn(|n| r.parameter(n)),
        [mutex.handle(), 7, 8, 9, 10, 11]
    );
    mutex.unlock();
    actor.finish()?;
    Ok(())
}

guest_test!(MUTEXES0004, stopped_waiter_gets_nothing);
fn stopped_waiter_gets_nothing() -> Outcome {
    let mutex = Mutex::new().must("new")?;
    mutex.lock();
    let actor = Actor::new()?;
    actor.ordinary(Call::MutexLock, [mutex.handle(), 0, 0, 0, 0, 0])?;
    actor.settle(Waiting::Mutex)?;
    actor.thread.stop().must("stop")?;
    mutex.unlock();
    // No call was completed in the thread's frame, so the mutex is free for others.
    check_eq!(mutex.get_state(), Ok(MutexState { locked: 0 }));
    check_eq!(
        actor.state().registers.pc(),
        guest_tests::harness::call_site()
    );
    check!(mutex.try_lock());
    actor.thread.resume().must("resume")?;
    actor.settle(Waiting::Mutex)?;
    mutex.unlock();
    check_eq!(actor.finish_code()?, Code::Ok);
    Ok(())
}

guest_test!(MUTEXES0005, set_state_unlocks_waiters);
fn set_state_unlocks_waiters() -> Outcome {
    let mutex = Mutex::new().must("new")?;
    mutex
        .set_state(&MutexState { locked: 1 })
        .must("set_state")?;
    let actor = Actor::new()?;
    actor.ordinary(Call::MutexLock, [mutex.handle(), 0, 0, 0, 0, 0])?;
    actor.settle(Waiting::Mutex)?;
    mutex
        .set_state(&MutexState { locked: 0 })
        .must("set_state")?;
    check_eq!(actor.finish_code()?, Code::Ok);
    check_eq!(mutex.get_state(), Ok(MutexState { locked: 1 }));
    Ok(())
}

guest_test!(MUTEXES0006, vacant_mutex_waits);
fn vacant_mutex_waits() -> Outcome {
    let mutex = Mutex::new().must("new")?;
    let identity = rt::obj::Ref::new().must("new")?;
    mutex.lock();
    let actor = Actor::new()?;
    actor.ordinary(Call::MutexLock, [mutex.handle(), 0, 0, 0, 0, 0])?;
    actor.settle(Waiting::Mutex)?;
    check_eq!(
        sys::mutex_destroy(mutex.handle(), identity.handle()),
        Code::Ok
    );
    check_eq!(
        sys::mutex_create(mutex.handle(), identity.handle()),
        Code::Ok
    );
    rt::time::sleep(1_000_000);
    check!(!actor.is_finished());
    mutex
        .set_state(&MutexState { locked: 1 })
        .must("set_state")?;
    actor.settle(Waiting::Mutex)?;
    mutex.unlock();
    check_eq!(actor.finish_code()?, Code::Ok);
    Ok(())
}

/// The first free slot for an object.
fn first_place() -> Result<u64, &'static str> {
    let place = slots::allocate(1).ok_or("there is no place")?;
    slots::free(place, 1);
    Ok(place)
}

guest_test!(MUTEXES0007, what_a_lock_waits_with_ends_with_it);
fn what_a_lock_waits_with_ends_with_it() -> Outcome {
    const ROUNDS: u64 = 32;
    let before = first_place()?;
    for _ in 0..ROUNDS {
        let lock = Arc::new(rt::sync::Mutex::new(()));
        let held = lock.lock();
        let same = lock.clone();
        let other = rt::thread::spawn(move || drop(same.lock())).must("spawn")?;
        let waits = |at: ThreadAt| Ok(at.get_state(0, 0, 0)?.waiting == Waiting::Mutex as u64);
        while !other.with(waits).must("get_state")? {
            rt::time::sleep(100_000);
        }
        drop(held);
        while !other.is_finished() {
            rt::time::sleep(100_000);
        }
    }
    let more = first_place()?.saturating_sub(before) / abi::OBJECT_SIZE;
    check!(more < ROUNDS / 2);
    Ok(())
}
