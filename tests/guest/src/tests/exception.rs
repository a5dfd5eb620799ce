//! Exceptions, redirected system calls, and their keepers.

use abi::message::EXCEPTION_WORDS;
use abi::state::{space_flags, Registers, Waiting};
use abi::{Code, Exception};
use core::arch::global_asm;
use guest_tests::harness::{
    call_site, cut, eventually, reply_registers, Actor, Failure, Must, Outcome, Receiver, Twin,
};
use guest_tests::{check, check_eq, guest_test};
use rt::sys;

const SOON: u64 = guest_tests::harness::PATIENCE;

global_asm!(
    ".globl fermata_test_ud2",
    "fermata_test_ud2:",
    "ud2",
    ".globl fermata_test_int3",
    "fermata_test_int3:",
    "int3",
    ".globl fermata_test_int_3",
    "fermata_test_int_3:",
    ".byte 0xcd, 0x03",
    ".globl fermata_test_divide",
    "fermata_test_divide:",
    "xor edx, edx",
    "xor ecx, ecx",
    ".globl fermata_test_divide_at",
    "fermata_test_divide_at:",
    "div ecx",
    ".globl fermata_test_cli",
    "fermata_test_cli:",
    "cli",
    ".globl fermata_test_in",
    "fermata_test_in:",
    "in al, 0x60",
    ".globl fermata_test_rdmsr",
    "fermata_test_rdmsr:",
    "rdmsr",
    ".globl fermata_test_hlt",
    "fermata_test_hlt:",
    "hlt",
    ".globl fermata_test_wild",
    "fermata_test_wild:",
    "mov rax, 0x0100000000000000",
    ".globl fermata_test_wild_at",
    "fermata_test_wild_at:",
    "mov rax, [rax]",
    // A foreign program: call, then an endless loop that shows the result.
    ".globl fermata_test_foreign",
    "fermata_test_foreign:",
    "syscall",
    ".globl fermata_test_foreign_after",
    "fermata_test_foreign_after:",
    "jmp fermata_test_foreign_after",
);

extern "C" {
    fn fermata_test_ud2();
    fn fermata_test_int3();
    fn fermata_test_int_3();
    fn fermata_test_divide();
    fn fermata_test_divide_at();
    fn fermata_test_cli();
    fn fermata_test_in();
    fn fermata_test_rdmsr();
    fn fermata_test_hlt();
    fn fermata_test_wild();
    fn fermata_test_wild_at();
    fn fermata_test_foreign();
    fn fermata_test_foreign_after();
}

type Site = unsafe extern "C" fn();

fn at(site: Site) -> u64 {
    site as *const () as u64
}

fn registers(rip: u64) -> Registers {
    Registers {
        rip,
        rsp: 0x7777_0000,
        rflags: 0x202,
        rbx: 0xb0b,
        ..Registers::default()
    }
}

/// The registers in an exception message.
fn message_registers(server: &Receiver) -> Registers {
    Registers::from_words(&core::array::from_fn(|n| server.word(4 + n)))
}

guest_test!(EXCEPTION0001, processor_exceptions);
fn processor_exceptions() -> Outcome {
    let mut keeper = Receiver::new(4)?;
    let twin = Twin::new(0, keeper.port_ref.handle())?;
    let cases: [(Site, Site, Exception); 9] = [
        (fermata_test_ud2, fermata_test_ud2, Exception::InvalidOpcode),
        (fermata_test_int3, fermata_test_int3, Exception::Breakpoint),
        (
            fermata_test_int_3,
            fermata_test_int_3,
            Exception::Breakpoint,
        ),
        (
            fermata_test_divide,
            fermata_test_divide_at,
            Exception::Divide,
        ),
        (fermata_test_cli, fermata_test_cli, Exception::Protection),
        (fermata_test_in, fermata_test_in, Exception::Protection),
        (
            fermata_test_rdmsr,
            fermata_test_rdmsr,
            Exception::Protection,
        ),
        (fermata_test_hlt, fermata_test_hlt, Exception::Protection),
        (
            fermata_test_wild,
            fermata_test_wild_at,
            Exception::Protection,
        ),
    ];
    for (start, site, exception) in cases {
        let actor = Actor::within(&twin.space_ref)?;
        let mut begin = registers(at(start));
        begin.rax = 0;
        actor.start(&begin)?;
        let got = keeper.receive(SOON);
        check_eq!((got.code, got.alias), (Code::Exception, 4));
        check_eq!(got.length, EXCEPTION_WORDS * 8);
        check_eq!(Exception::from_raw(keeper.word(0)), Some(exception));
        let r = message_registers(&keeper);
        check_eq!((r.rip, r.rsp, r.rbx), (at(site), 0x7777_0000, 0xb0b));
        let state = actor.state();
        check_eq!(state.exception_delivered, 1);
        check_eq!(state.exception, exception as u64);
        check_eq!(state.waiting, Waiting::Exception as u64);
    }
    Ok(())
}

extern "C" fn read_word(address: u64) {
    // SAFETY: nothing is mapped at the address; that is what the test is about.
    unsafe { (address as *const u64).read_volatile() };
}

extern "C" fn write_word(address: u64) {
    // SAFETY: as above.
    unsafe { (address as *mut u64).write_volatile(1) };
}

guest_test!(EXCEPTION0002, bad_access);
fn bad_access() -> Outcome {
    let mut keeper = Receiver::new(4)?;
    let twin = Twin::new(0, keeper.port_ref.handle())?;
    // Addresses of servers that run in the kernel, if they do.
    let inside = |place| abi::collocated::range(place).0;
    let cases: [(extern "C" fn(u64), u64, u64); 7] = [
        (
            read_word,
            inside(0) + proto::layout::PROGRAM_BASE,
            abi::access::READ,
        ),
        (
            write_word,
            inside(1) + proto::layout::START_PAGE,
            abi::access::WRITE,
        ),
        (
            write_word,
            inside(1) + proto::layout::HEAP_START,
            abi::access::WRITE,
        ),
        (read_word, inside(15), abi::access::READ),
        (read_word, 0x1008, abi::access::READ),
        (write_word, 0x2010, abi::access::WRITE),
        (read_word, proto::layout::WINDOWS, abi::access::READ),
    ];
    for (function, address, access) in cases {
        let actor = Actor::within(&twin.space_ref)?;
        actor.function(function, address)?;
        let got = keeper.receive(SOON);
        check_eq!(got.code, Code::Exception);
        check_eq!(Exception::from_raw(keeper.word(0)), Some(Exception::Memory));
        check_eq!(keeper.word(1), address);
        check!(
            keeper.word(2) & access != 0,
            "the access is {:#x}",
            keeper.word(2)
        );
        // The keeper continues the thread behind the access, with registers of its choice.
        let mut r = message_registers(&keeper);
        check_eq!(actor.state().exception_address, address);
        // The thread returns from the function instead, to the address on its stack.
        // SAFETY: the stack of the actor, which does not run.
        r.rip = call_site() + 2;
        check_eq!(reply_registers(&r), Code::Ok);
        actor.finish()?;
    }
    // Memory that is only readable cannot be written: the program's code.
    let actor = Actor::within(&twin.space_ref)?;
    actor.function(read_word, at(fermata_test_ud2))?;
    actor.finish()?;
    Ok(())
}

guest_test!(EXCEPTION0003, no_keeper_stops_the_thread);
fn no_keeper_stops_the_thread() -> Outcome {
    let twin = Twin::new(0, 0)?;
    let actor = Actor::within(&twin.space_ref)?;
    actor.start(&registers(at(fermata_test_ud2)))?;
    eventually("the stop", || actor.state().stop_count == 1)?;
    let state = actor.state();
    check_eq!(state.exception, Exception::InvalidOpcode as u64);
    check_eq!(state.registers.rip, at(fermata_test_ud2));
    let actor = Actor::within(&twin.space_ref)?;
    actor.function(read_word, 0x3000)?;
    eventually("the stop", || actor.state().stop_count == 1)?;
    check_eq!(actor.state().exception, Exception::Memory as u64);
    check_eq!(actor.state().exception_address, 0x3000);
    Ok(())
}

fn foreign(keeper: &Receiver) -> Result<(Twin, Actor), Failure> {
    let twin = Twin::new(space_flags::FOREIGN, keeper.port_ref.handle())?;
    let actor = Actor::within(&twin.space_ref)?;
    Ok((twin, actor))
}

/// An actor in a foreign space parks by a redirected call, which the keeper receives too.
fn parked(keeper: &mut Receiver) -> Outcome {
    let got = keeper.receive(SOON);
    check_eq!(got.code, Code::Exception);
    check_eq!(keeper.word(0), Exception::ForeignCall as u64);
    Ok(())
}

guest_test!(EXCEPTION0004, foreign_calls);
fn foreign_calls() -> Outcome {
    let mut keeper = Receiver::new(4)?;
    let (_twin, actor) = foreign(&keeper)?;
    parked(&mut keeper)?;
    let mut r = registers(at(fermata_test_foreign));
    r.rax = 39;
    r.rdi = 1;
    r.rcx = 0xc;
    r.r11 = 0xb;
    check_eq!(reply_registers(&r), Code::Ok);
    for round in 0..5u64 {
        let got = keeper.receive(SOON);
        check_eq!(got.code, Code::Exception);
        check_eq!(
            Exception::from_raw(keeper.word(0)),
            Some(Exception::ForeignCall)
        );
        let mut seen = message_registers(&keeper);
        check_eq!(
            (seen.rip, seen.rax, seen.rdi),
            (at(fermata_test_foreign), 39 + round, 1)
        );
        check_eq!(seen.rbx, 0xb0b);
        // The keeper answers, and the actor calls again.
        seen.rax = 40 + round;
        check_eq!(reply_registers(&seen), Code::Ok);
    }
    check_eq!(keeper.receive(SOON).code, Code::Exception);
    let mut seen = message_registers(&keeper);
    seen.rip += 2;
    seen.rax = 12345;
    check_eq!(reply_registers(&seen), Code::Ok);
    eventually("the program goes on", || {
        actor.state().registers.rip == at(fermata_test_foreign_after)
    })?;
    check_eq!(actor.state().registers.rax, 12345);
    check_eq!(actor.state().exception_delivered, 0);
    Ok(())
}

guest_test!(EXCEPTION0005, reply_is_the_commit);
fn reply_is_the_commit() -> Outcome {
    let mut keeper = Receiver::new(4)?;
    let (_twin, actor) = foreign(&keeper)?;
    parked(&mut keeper)?;
    let r = registers(at(fermata_test_foreign));
    check_eq!(reply_registers(&r), Code::Ok);
    check_eq!(keeper.receive(SOON).code, Code::Exception);
    // The thread is stopped with the exception delivered: it is not delivered again.
    actor.thread.stop().must("stop")?;
    check_eq!(actor.state().exception_delivered, 1);
    actor.thread.resume().must("resume")?;
    rt::time::sleep(1_000_000);
    check_eq!(actor.state().exception_delivered, 1);
    // The reply takes effect although the thread is stopped.
    actor.thread.stop().must("stop")?;
    let mut seen = message_registers(&keeper);
    seen.rip += 2;
    seen.rax = 1;
    check_eq!(reply_registers(&seen), Code::Ok);
    let state = actor.state();
    check_eq!((state.exception_delivered, state.registers.rax), (0, 1));
    check_eq!(state.registers.rip, at(fermata_test_foreign_after));
    actor.thread.resume().must("resume")?;
    check_eq!(keeper.receive(3_000_000).code, Code::TimedOut);
    Ok(())
}

guest_test!(EXCEPTION0006, released_and_resolved_later);
fn released_and_resolved_later() -> Outcome {
    let mut keeper = Receiver::new(4)?;
    let (_twin, actor) = foreign(&keeper)?;
    parked(&mut keeper)?;
    check_eq!(sys::server_release(), Code::Ok);
    check_eq!(sys::server_release(), Code::WrongStage);
    check_eq!(keeper.receive(3_000_000).code, Code::TimedOut);
    check_eq!(actor.state().exception_delivered, 1);
    // The exception is resolved later through the thread's handle.
    let mut next = registers(at(fermata_test_foreign));
    next.rax = 100;
    actor.thread.stop().must("stop")?;
    let (space, client, server) = guest_tests::harness::refs3()?;
    let mut state = actor
        .thread
        .get_state(space.handle(), client.handle(), server.handle())
        .must("get_state")?;
    state.registers = next;
    state.exception_delivered = 0;
    actor
        .thread
        .set_state(&state, space.handle(), client.handle(), server.handle())
        .must("set_state")?;
    actor.thread.resume().must("resume")?;
    check_eq!(keeper.receive(SOON).code, Code::Exception);
    check_eq!(message_registers(&keeper).rax, 100);
    // Or it is answered in one call, which is refused for registers that no program can have, and if no thread waits
    // for an answer.
    check_eq!(sys::server_release(), Code::Ok);
    next.rax = 101;
    let bad = Registers {
        rip: 0xffff_8000_0000_0000,
        ..next
    };
    check_eq!(actor.thread.answer(&bad, None), Err(Code::Invalid));
    check_eq!(actor.thread.answer(&next, None), Ok(()));
    check_eq!(keeper.receive(SOON).code, Code::Exception);
    check_eq!(message_registers(&keeper).rax, 101);
    // The server that has the exception then answers too late; a stopped thread continues when it is resumed.
    actor.thread.stop().must("stop")?;
    next.rax = 102;
    check_eq!(actor.thread.answer(&next, None), Ok(()));
    check_eq!(actor.thread.answer(&next, None), Err(Code::WrongStage));
    next.rax = 103;
    check_eq!(reply_registers(&next), Code::Ok);
    check_eq!(keeper.receive(3_000_000).code, Code::TimedOut);
    check_eq!(actor.state().registers.rax, 102);
    actor.thread.resume().must("resume")?;
    check_eq!(keeper.receive(SOON).code, Code::Exception);
    check_eq!(message_registers(&keeper).rax, 102);
    Ok(())
}

guest_test!(EXCEPTION0007, delivered_again_after_set_state);
/// What a restore does to a thread that was in a redirected call.
fn delivered_again_after_set_state() -> Outcome {
    let mut keeper = Receiver::new(4)?;
    let (_twin, actor) = foreign(&keeper)?;
    parked(&mut keeper)?;
    let mut r = registers(at(fermata_test_foreign));
    r.rax = 7;
    check_eq!(reply_registers(&r), Code::Ok);
    check_eq!(keeper.receive(SOON).code, Code::Exception);
    check_eq!(message_registers(&keeper).rax, 7);
    for _ in 0..3 {
        // A cut: the new thread's state says that the exception is delivered, and it is not delivered again.
        cut(actor.thread.at(), true)?;
        check_eq!(actor.state().exception_delivered, 1);
    }
    check_eq!(sys::server_release(), Code::Ok);
    actor.thread.stop().must("stop")?;
    let (space, client, server) = guest_tests::harness::refs3()?;
    let mut state = actor
        .thread
        .get_state(space.handle(), client.handle(), server.handle())
        .must("get_state")?;
    check_eq!(state.registers.rip, at(fermata_test_foreign));
    state.exception_delivered = 0;
    actor
        .thread
        .set_state(&state, space.handle(), 0, 0)
        .must("set_state")?;
    actor.thread.resume().must("resume")?;
    check_eq!(keeper.receive(SOON).code, Code::Exception);
    check_eq!(message_registers(&keeper).rax, 7);
    Ok(())
}

guest_test!(EXCEPTION0008, hostile_reply);
fn hostile_reply() -> Outcome {
    let mut keeper = Receiver::new(4)?;
    let (_twin, actor) = foreign(&keeper)?;
    parked(&mut keeper)?;
    let good = message_registers(&keeper);
    let bad = Registers {
        rip: 0xffff_8000_0000_0000,
        ..good
    };
    check_eq!(reply_registers(&bad), Code::Invalid);
    check_eq!(guest_tests::harness::reply(&[1, 2, 3]), Code::Invalid);
    // The keeper can still reply.
    let mut next = registers(at(fermata_test_foreign_after));
    next.rflags = 0x3_3202; // IOPL, VM: not for programs
    let code = reply_registers(&next);
    if code == Code::Invalid {
        next.rflags = 0x202;
        check_eq!(reply_registers(&next), Code::Ok);
    }
    eventually("the program goes on", || {
        actor.state().registers.rip == at(fermata_test_foreign_after)
    })?;
    check_eq!(actor.state().registers.rflags & 0x2_3000, 0);
    Ok(())
}

guest_test!(EXCEPTION0009, keeper_that_resolves_nothing);
/// A region's keeper answers and supplies nothing: the fault becomes an exception.
fn keeper_that_resolves_nothing() -> Outcome {
    let mut pager = Receiver::new(1)?;
    let mut keeper = Receiver::new(2)?;
    let absent = guest_tests::harness::Absent::new(4096, pager.port_ref.handle())?;
    let twin = Twin::new(0, keeper.port_ref.handle())?;
    let mapping = rt::obj::Mapping::new().must("new")?;
    let state = abi::state::MappingState {
        start: proto::layout::WINDOWS,
        size: 4096,
        offset: 0,
        protection: abi::access::ALL,
    };
    mapping
        .set_state(&state, absent.region_ref.handle(), twin.space_ref.handle())
        .must("set_state")?;
    let actor = Actor::within(&twin.space_ref)?;
    actor.function(read_word, proto::layout::WINDOWS + 8)?;
    check_eq!(pager.receive(SOON).code, Code::Fault);
    check_eq!(guest_tests::harness::reply(&[]), Code::Ok);
    let got = keeper.receive(SOON);
    check_eq!((got.code, got.alias), (Code::Exception, 2));
    check_eq!(keeper.word(0), Exception::Memory as u64);
    check_eq!(keeper.word(1), proto::layout::WINDOWS + 8);
    Ok(())
}
