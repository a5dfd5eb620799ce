//! Spaces: quotas, clocks, creation and destruction.

use abi::state::SpaceState;
use abi::{Call, Code, Exception};
use guest_tests::harness::{eventually, ok, Actor, Must, Outcome, Receiver, Twin};
use guest_tests::{check, check_eq, fail, guest_test};
use rt::obj::{Ref, Space};
use rt::sys;

guest_test!(SPACES0001, state_and_keeper);
fn state_and_keeper() -> Outcome {
    let keeper = Receiver::new(0)?;
    let space = Space::new().must("new")?;
    let port = Ref::new().must("new")?;
    let new = space.get_state(port.handle()).must("get_state")?;
    check_eq!((new.flags, new.quota, new.clock_offset), (0, 0, 0));
    check_eq!(port.kind(), abi::RefKind::Null);
    let state = SpaceState {
        flags: 1,
        quota: 4096,
        used: 99,
        clock_offset: 5,
        max_priority: 3,
    };
    space
        .set_state(&state, keeper.port_ref.handle())
        .must("set_state")?;
    let read = space.get_state(port.handle()).must("get_state")?;
    check_eq!(
        read,
        SpaceState {
            used: read.used,
            ..state
        }
    );
    check!(read.used != 99, "what is used was set");
    check!(port.same_as(keeper.port_ref.at()));
    check_eq!(
        space.set_state(&SpaceState { flags: 2, ..state }, 0),
        Err(Code::Invalid)
    );
    // More than the caller has.
    let much = SpaceState {
        quota: 1 << 50,
        ..state
    };
    check_eq!(space.set_state(&much, 0), Err(Code::NoMemory));
    Ok(())
}

guest_test!(SPACES0002, quota_limits_creation);
fn quota_limits_creation() -> Outcome {
    let twin = Twin::new(0, 0)?;
    let first = rt::slots::allocate(32).ok_or("no slots")?;
    let actor = Actor::within(&twin.space_ref)?;
    actor.ordinary(Call::MutexCreate, [first, 0, 0, 0, 0, 0])?;
    check_eq!(actor.finish_code()?, Code::NoMemory);
    twin.space
        .set_state(
            &SpaceState {
                quota: 512,
                ..twin.space.get_state(0).must("get_state")?
            },
            0,
        )
        .must("set_state")?;
    let mut made = 0;
    for n in 0..32 {
        actor.ordinary(Call::MutexCreate, [first + n * 16, 0, 0, 0, 0, 0])?;
        match actor.finish_code()? {
            Code::Ok => made += 1,
            Code::NoMemory => break,
            other => fail!("mutex_create says {other:?}"),
        }
    }
    check!((1..32).contains(&made), "{made} mutexes in 512 bytes");
    let used = twin.space.get_state(0).must("get_state")?.used;
    check!(used > 0 && used <= 512, "{used} bytes in use");
    for n in 0..made {
        actor.ordinary(Call::MutexDestroy, [first + n * 16, 0, 0, 0, 0, 0])?;
        check_eq!(actor.finish_code()?, Code::Ok);
    }
    check_eq!(twin.space.get_state(0).map(|s| s.used), Ok(0));
    rt::slots::free(first, 32);
    Ok(())
}

guest_test!(SPACES0003, quota_comes_back);
fn quota_comes_back() -> Outcome {
    let space = Space::new().must("new")?;
    // So often that the quota would be used up if it were not returned.
    for _ in 0..64 {
        space
            .set_state(
                &SpaceState {
                    quota: 128 << 10,
                    ..SpaceState::default()
                },
                0,
            )
            .must("give")?;
        space
            .set_state(&SpaceState::default(), 0)
            .must("take back")?;
    }
    for _ in 0..64 {
        let space = Space::new().must("new")?;
        space
            .set_state(
                &SpaceState {
                    quota: 128 << 10,
                    ..SpaceState::default()
                },
                0,
            )
            .must("give")?;
    }
    Ok(())
}

guest_test!(SPACES0004, clock_offset);
fn clock_offset() -> Outcome {
    let twin = Twin::new(0, 0)?;
    let hour = 3_600_000_000_000u64;
    let new = twin.space.get_state(0).must("get_state")?;
    let set = |offset: u64| {
        twin.space.set_state(
            &SpaceState {
                clock_offset: offset,
                ..new
            },
            0,
        )
    };
    set(hour).must("set_state")?;
    let actor = Actor::within(&twin.space_ref)?;
    actor.ordinary(Call::ClockGet, [0; 6])?;
    let regs = actor.finish()?;
    let now = rt::time::now();
    check!(
        (now + hour).abs_diff(regs.value()) < guest_tests::harness::PATIENCE,
        "{} and {now}",
        regs.value()
    );
    // Deadlines refer to that clock.
    actor.ordinary(
        Call::ThreadSleepUntil,
        [now + hour + 5_000_000, 0, 0, 0, 0, 0],
    )?;
    check_eq!(actor.finish_code()?, Code::Ok);
    let late = rt::time::now() - now;
    check!(
        (5_000_000..guest_tests::harness::PATIENCE).contains(&late),
        "it slept {late} ns"
    );
    // A clock that goes backwards.
    set(0u64.wrapping_sub(now / 2)).must("set_state")?;
    actor.ordinary(Call::ClockGet, [0; 6])?;
    let regs = actor.finish()?;
    check!(regs.value() < now, "{} and {now}", regs.value());
    Ok(())
}

guest_test!(SPACES0005, threads_of_a_dead_space_stop);
fn threads_of_a_dead_space_stop() -> Outcome {
    let twin = Twin::new(0, 0)?;
    let actor = Actor::within(&twin.space_ref)?;
    actor.ordinary(Call::ThreadSleepUntil, [u64::MAX, 0, 0, 0, 0, 0])?;
    drop(twin);
    eventually("the stop", || actor.state().stop_count == 1)?;
    check_eq!(actor.state().exception, Exception::NoSpace as u64);
    Ok(())
}

// In kernels where a thread keeps a continuation, a completed call was done again, because the number of the result
// in the frame was taken for a call.
guest_test!(SPACES0006, a_completed_call_is_not_done_again);
fn a_completed_call_is_not_done_again() -> Outcome {
    let twin = Twin::new(0, 0)?;
    let actor = Actor::within(&twin.space_ref)?;
    let mutex = rt::obj::Mutex::new().must("a mutex")?;
    let identity = Ref::new().must("a reference")?;
    let (space, name) = (twin.space.handle(), identity.handle());
    mutex.lock();
    for round in 0..2 {
        actor.ordinary(Call::MutexLock, [mutex.handle(), 0, 0, 0, 0, 0])?;
        actor.settle(abi::state::Waiting::Mutex)?;
        // The thread is less important than this one, and so does not run yet.
        mutex.unlock();
        let state = twin.space.get_state(0).must("get_state")?;
        ok(sys::space_destroy(space, name)).must("destroy")?;
        if round == 1 {
            // Its state, too, is that behind the call.
            check_eq!(actor.state().registers.call(), Code::Ok as u64);
        }
        ok(sys::space_create(space, name)).must("create")?;
        twin.space.set_state(&state, 0).must("set_state")?;
        check_eq!(actor.finish_code()?, Code::Ok);
        actor.ordinary(Call::MutexUnlock, [mutex.handle(), 0, 0, 0, 0, 0])?;
        check_eq!(actor.finish_code()?, Code::Ok);
        mutex.lock();
    }
    Ok(())
}
