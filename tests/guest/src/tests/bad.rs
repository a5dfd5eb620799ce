//! Wrong use of a call is an exception to the keeper of the space and changes nothing; if an object that a call
//! manages is absent, the call returns a code.

use abi::registers::Area;
use abi::syscalls::Param;
use abi::{Call, Code, Exception, Type, SYSCALLS};
use guest_tests::harness::{call_site, Actor, Must, Outcome, Receiver, Twin};
use guest_tests::{check_eq, guest_test};
use rt::sys::IpcRegs;

const SOON: u64 = guest_tests::harness::PATIENCE;

/// Makes a call with the handle `handle` as its first parameter, which must result in the exception `what`, or in
/// `NoObject` if the call manages objects.
fn provoke(
    keeper: &mut Receiver,
    twin: &Twin,
    call: Call,
    handle: u64,
    what: Exception,
) -> Outcome {
    let actor = Actor::within(&twin.space_ref)?;
    let regs = IpcRegs::to(handle).until(1);
    actor.call(call, regs)?;
    if call.row().manages(0) && what != Exception::Misaligned {
        check_eq!(actor.finish_code()?, Code::NoObject);
        return Ok(());
    }
    let got = keeper.receive(SOON);
    check_eq!(got.code, Code::Exception);
    check_eq!(Exception::from_raw(keeper.word(0)), Some(what));
    if what != Exception::NoCall {
        check_eq!(keeper.word(1), handle);
    }
    let state = actor.state();
    check_eq!(state.registers.pc(), call_site());
    check_eq!(state.registers.parameter(0), handle);
    Ok(())
}

/// Every call that begins with the handle of an object, with that object's type. IPC calls use their handle only when
/// their stage needs it, which for these is at once.
fn handle_calls() -> impl Iterator<Item = (Call, Type)> {
    SYSCALLS.iter().filter_map(|row| match row.params.first() {
        Some((_, Param::Object(kind))) if !row.name.contains("ack_send") => {
            // Sends that need a connection fail for lack of one before they use the handle.
            (!row.name.contains("_send_wait")).then_some((row.call, *kind))
        }
        _ => None,
    })
}

fn each(what: Exception, handle: impl Fn(Type) -> u64) -> Outcome {
    let mut keeper = Receiver::new(0)?;
    let twin = Twin::new(0, keeper.port_ref.handle())?;
    for (call, kind) in handle_calls() {
        // These check first whether there is a request to reply to.
        if call.name().starts_with("reply_wait") {
            continue;
        }
        provoke(&mut keeper, &twin, call, handle(kind), what)
            .map_err(|why| why.during(call.name()))?;
    }
    Ok(())
}

guest_test!(BAD0001, no_object);
fn no_object() -> Outcome {
    let slot = rt::slots::allocate(1).ok_or("no slot")?;
    each(Exception::NoObject, |_| slot)?;
    rt::slots::free(slot, 1);
    Ok(())
}

guest_test!(BAD0002, wrong_type);
fn wrong_type() -> Outcome {
    let mutex = rt::obj::Mutex::new().must("new")?;
    let cond = rt::obj::Cond::new().must("new")?;
    each(Exception::WrongType, |kind| match kind {
        Type::Mutex => cond.handle(),
        _ => mutex.handle(),
    })
}

guest_test!(BAD0003, misaligned);
fn misaligned() -> Outcome {
    let mutex = rt::obj::Mutex::new().must("new")?;
    each(Exception::Misaligned, |_| mutex.handle() + 4)
}

guest_test!(BAD0004, unmapped_handles_and_buffers);
fn unmapped_handles_and_buffers() -> Outcome {
    let mut keeper = Receiver::new(0)?;
    let twin = Twin::new(0, keeper.port_ref.handle())?;
    let nowhere = proto::layout::WINDOWS + 0x1230;
    for (call, _) in handle_calls() {
        if call.name().starts_with("reply_wait") {
            continue;
        }
        for handle in [nowhere, 0x10, 0xffff_8000_0000_1000, abi::USER_END] {
            provoke(&mut keeper, &twin, call, handle, Exception::Memory)
                .map_err(|why| why.during(format_args!("{} at {handle:#x}", call.name())))?;
        }
    }
    // States and buffers.
    let mutex = rt::obj::Mutex::new().must("new")?;
    for call in [Call::MutexGetState, Call::MutexSetState] {
        let actor = Actor::within(&twin.space_ref)?;
        actor.ordinary(call, [mutex.handle(), nowhere, 0, 0, 0, 0])?;
        check_eq!(keeper.receive(SOON).code, Code::Exception);
        check_eq!(
            (keeper.word(0), keeper.word(1)),
            (Exception::Memory as u64, nowhere)
        );
        check_eq!(actor.state().registers.pc(), call_site());
    }
    let mut server = Receiver::new(1)?;
    let actor = Actor::within(&twin.space_ref)?;
    actor.call(
        Call::ClientConnectSendOver,
        IpcRegs::to(server.port_ref.handle()).sending(Area::new(nowhere, 100)),
    )?;
    let other = Actor::new()?;
    other.call(Call::ServerWaitReceive, server.receive_regs())?;
    check_eq!(keeper.receive(SOON).code, Code::Exception);
    check_eq!(
        (keeper.word(0), keeper.word(1)),
        (Exception::Memory as u64, nowhere)
    );
    check_eq!(actor.state().registers.send().length, 100);
    Ok(())
}

guest_test!(BAD0005, no_such_call);
fn no_such_call() -> Outcome {
    let mut keeper = Receiver::new(0)?;
    let twin = Twin::new(0, keeper.port_ref.handle())?;
    for number in [0u64, SYSCALLS.len() as u64 + 1, 200, 255] {
        let actor = Actor::within(&twin.space_ref)?;
        let mut registers = abi::Registers::starting(call_site(), 0x7777_0000, 0);
        registers.set_call(number);
        actor.start(&registers)?;
        check_eq!(keeper.receive(SOON).code, Code::Exception);
        check_eq!(Exception::from_raw(keeper.word(0)), Some(Exception::NoCall));
        check_eq!(actor.state().registers.pc(), call_site());
    }
    Ok(())
}

guest_test!(BAD0006, scribbled_handle_hurts_nobody);
/// A program that overwrites the memory of an object harms only itself.
fn scribbled_handle_hurts_nobody() -> Outcome {
    let mut keeper = Receiver::new(0)?;
    let twin = Twin::new(0, keeper.port_ref.handle())?;
    let (victim, other) = (
        rt::obj::Mutex::new().must("new")?,
        rt::obj::Mutex::new().must("new")?,
    );
    other.lock();
    let original = {
        // SAFETY: the bytes of an object may be read; they are the kernel's.
        unsafe { (victim.handle() as *const [u64; 2]).read_volatile() }
    };
    // SAFETY: as above, for the other object.
    let others = unsafe { (other.handle() as *const [u64; 2]).read_volatile() };
    for scribble in [
        [0u64; 2],
        [u64::MAX; 2],
        [7, 7],
        others,
        [others[0] + 1, others[1]],
    ] {
        // SAFETY: only this object is affected.
        unsafe { (victim.handle() as *mut [u64; 2]).write_volatile(scribble) };
        let actor = Actor::within(&twin.space_ref)?;
        actor.ordinary(Call::MutexUnlock, [victim.handle(), 0, 0, 0, 0, 0])?;
        // An exception, or the caller's own object; never another program's object.
        let got = keeper.receive(3_000_000);
        if got.code != Code::Exception {
            check_eq!(actor.finish_code()?, Code::Invalid);
        }
        check_eq!(other.get_state().map(|s| s.locked), Ok(1));
    }
    // SAFETY: as above.
    unsafe { (victim.handle() as *mut [u64; 2]).write_volatile(original) };
    check_eq!(victim.try_lock(), true);
    Ok(())
}
