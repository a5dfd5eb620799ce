//! Mappings, regions, soft and hard faults, keepers, and the paper's example.

use abi::access::{ALL, EXECUTE, READ, WRITE};
use abi::registers::Area;
use abi::state::{MappingState, RegionState, Waiting};
use abi::{Call, Code};
use alloc::vec::Vec;
use guest_tests::harness::{eventually, reply, Absent, Actor, Must, Outcome, Receiver};
use guest_tests::{check, check_eq, guest_test};
use rt::obj::{Mapping, Ref, Region};
use rt::sys::IpcRegs;

const PAGE: u64 = abi::PAGE_SIZE;
const SOON: u64 = guest_tests::harness::PATIENCE;

fn peek(address: u64) -> u64 {
    // SAFETY: the tests pass addresses in windows that are mapped.
    unsafe { (address as *const u64).read_volatile() }
}

fn poke(address: u64, value: u64) {
    // SAFETY: as for `peek`; no other code uses that memory.
    unsafe { (address as *mut u64).write_volatile(value) }
}

guest_test!(MAPPINGS0001, two_windows_one_memory);
fn two_windows_one_memory() -> Outcome {
    let segment = rt::memory::create(16 * PAGE).must("a segment")?;
    let map = |offset| rt::window::Window::map(&segment.region, offset, 4 * PAGE, READ | WRITE);
    let (a, b) = (map(0).must("a window")?, map(2 * PAGE).must("a window")?);
    check_eq!(peek(a.address() + 3 * PAGE), 0);
    poke(a.address() + 2 * PAGE + 8, 17);
    check_eq!(peek(b.address() + 8), 17);
    poke(b.address() + PAGE, 18);
    check_eq!(peek(a.address() + 3 * PAGE), 18);
    drop((a, b));
    segment.destroy().must("destroy")
}

guest_test!(MAPPINGS0002, ranges_and_states);
fn ranges_and_states() -> Outcome {
    let segment = rt::memory::create(16 * PAGE).must("a segment")?;
    let base = rt::window::take_addresses(16 * PAGE, PAGE).ok_or("no addresses")?;
    let mapping = Mapping::new().must("new")?;
    let good = MappingState {
        start: base,
        size: 4 * PAGE,
        offset: PAGE,
        protection: READ | WRITE,
    };
    let region = segment.region.handle();
    mapping.set_state(&good, region, 0).must("a good state")?;
    let (region_ref, space_ref) = (Ref::new().must("new")?, Ref::new().must("new")?);
    check_eq!(
        mapping.get_state(region_ref.handle(), space_ref.handle()),
        Ok(good)
    );
    check!(region_ref.same_as(segment.region.at()));
    poke(base, 5);
    for bad in [
        MappingState {
            start: base + 8,
            ..good
        },
        MappingState { size: 100, ..good },
        MappingState { offset: 7, ..good },
        MappingState {
            protection: 16,
            ..good
        },
        MappingState {
            start: abi::USER_END,
            ..good
        },
        MappingState {
            size: !(PAGE - 1),
            ..good
        },
        MappingState {
            start: 0xffff_8000_0000_0000,
            ..good
        },
    ] {
        check_eq!(mapping.set_state(&bad, region, 0), Err(Code::Invalid));
    }
    // The refused call has changed nothing.
    check_eq!(peek(base), 5);
    // At another address, with another part of the region.
    let moved = MappingState {
        start: base + 8 * PAGE,
        size: PAGE,
        ..good
    };
    mapping.set_state(&moved, region, 0).must("move")?;
    check_eq!(peek(base + 8 * PAGE), 5);
    // An empty mapping is inert.
    mapping
        .set_state(&MappingState { size: 0, ..good }, region, 0)
        .must("empty")?;
    check_eq!(mapping.protect(READ), Ok(()));
    check_eq!(mapping.protect(99), Err(Code::Invalid));
    drop(mapping);
    rt::window::give_addresses(base, 16 * PAGE);
    segment.destroy().must("destroy")
}

guest_test!(MAPPINGS0003, overlap_is_refused);
fn overlap_is_refused() -> Outcome {
    let segment = rt::memory::create(16 * PAGE).must("a segment")?;
    let base = rt::window::take_addresses(16 * PAGE, PAGE).ok_or("no addresses")?;
    let (a, b) = (Mapping::new().must("new")?, Mapping::new().must("new")?);
    let state = |start, size| MappingState {
        start,
        size,
        offset: 0,
        protection: READ,
    };
    let region = segment.region.handle();
    a.set_state(&state(base + 2 * PAGE, 4 * PAGE), region, 0)
        .must("set")?;
    for (start, size) in [(0, 16), (0, 3), (5, 2), (3, 1), (2, 4)] {
        check_eq!(
            b.set_state(&state(base + start * PAGE, size * PAGE), region, 0),
            Err(Code::InUse)
        );
    }
    b.set_state(&state(base, 2 * PAGE), region, 0)
        .must("before")?;
    b.set_state(&state(base + 6 * PAGE, 2 * PAGE), region, 0)
        .must("after")?;
    // A mapping may be set over its own old range.
    a.set_state(&state(base + PAGE, 4 * PAGE), region, 0)
        .must("over itself")?;
    drop((a, b));
    rt::window::give_addresses(base, 16 * PAGE);
    segment.destroy().must("destroy")
}

guest_test!(MAPPINGS0004, objects_are_where_frames_are);
fn objects_are_where_frames_are() -> Outcome {
    let segment = rt::memory::create(4 * PAGE).must("a segment")?;
    let map = || rt::window::Window::map(&segment.region, 0, 4 * PAGE, ALL);
    let (a, b) = (map().must("a window")?, map().must("a window")?);
    let (here, there) = (a.address() + PAGE, b.address() + PAGE);
    check_eq!(rt::sys::mutex_create(here, 0), Code::Ok);
    check_eq!(rt::sys::mutex_lock(here), Code::Ok);
    check_eq!(rt::sys::mutex_trylock(there), Code::WouldBlock);
    check_eq!(rt::sys::mutex_unlock(there), Code::Ok);
    check_eq!(rt::sys::mutex_create(there, 0), Code::InUse);
    // Unmapping only makes the handle fault.
    drop(a);
    check_eq!(rt::sys::mutex_trylock(there), Code::Ok);
    check_eq!(rt::sys::mutex_destroy(there, 0), Code::Ok);
    // Without the right for objects, no object can be made.
    let plain =
        rt::window::Window::map(&segment.region, 0, 4 * PAGE, READ | WRITE).must("a window")?;
    check_eq!(
        rt::sys::mutex_create(plain.address() + PAGE, 0),
        Code::Denied
    );
    // Discarding the page ends its objects.
    check_eq!(rt::sys::mutex_create(there, 0), Code::Ok);
    let reference = Ref::new().must("new")?;
    check_eq!(
        rt::sys::mutex_reference(there, reference.handle()),
        Code::Ok
    );
    segment.discard(PAGE, PAGE).must("discard")?;
    check_eq!(reference.kind(), abi::RefKind::Null);
    check_eq!(rt::sys::mutex_create(there, 0), Code::Ok);
    check_eq!(rt::sys::mutex_destroy(there, 0), Code::Ok);
    drop((b, plain));
    segment.destroy().must("destroy")
}

guest_test!(REGIONS0001, regions_of_regions);
/// A region over the caller's own addresses, which are themselves mapped from elsewhere.
fn regions_of_regions() -> Outcome {
    let segment = rt::memory::create(8 * PAGE).must("a segment")?;
    let mut window =
        rt::window::Window::map(&segment.region, 0, 8 * PAGE, READ | WRITE).must("a window")?;
    let mut levels = Vec::new();
    for level in 0..4u64 {
        let region = Region::new().must("new")?;
        let state = RegionState {
            start: window.address(),
            size: window.size(),
            protection: ALL,
        };
        region.set_state(&state, 0, 0).must("set_state")?;
        let reference = region.reference().must("reference")?;
        let next =
            rt::window::Window::map(&reference, 0, 8 * PAGE, READ | WRITE).must("a window")?;
        poke(next.address() + level * PAGE, level + 1);
        levels.push((core::mem::replace(&mut window, next), region));
    }
    for (lower, _) in &levels {
        for level in 0..4u64 {
            check_eq!(peek(lower.address() + level * PAGE), level + 1);
        }
    }
    // The rights of the most restricted level apply: the memory can be read, not executed or written.
    let (_, region) = &levels[1];
    region.protect(READ).must("protect")?;
    check_eq!(region.protect(32), Err(Code::Invalid));
    check_eq!(peek(window.address()), 1);
    region.protect(READ | WRITE | EXECUTE).must("protect")?;
    poke(window.address(), 9);
    check_eq!(peek(levels[0].0.address()), 9);
    drop(window);
    while levels.pop().is_some() {}
    segment.destroy().must("destroy")
}

guest_test!(REGIONS0003, a_loop_is_only_a_bad_access);
/// A region over the addresses at which it is mapped itself: the search for a page never ends at memory.
fn a_loop_is_only_a_bad_access() -> Outcome {
    let mut keeper = Receiver::new(3)?;
    let twin = guest_tests::harness::Twin::new(0, keeper.port_ref.handle())?;
    let start = proto::layout::WINDOWS;
    let region = Region::new().must("new")?;
    let state = RegionState {
        start,
        size: 4 * PAGE,
        protection: ALL,
    };
    region
        .set_state(&state, twin.space_ref.handle(), 0)
        .must("set_state")?;
    let reference = region.reference().must("reference")?;
    let mapping = Mapping::new().must("new")?;
    let state = MappingState {
        start,
        size: 4 * PAGE,
        offset: 0,
        protection: ALL,
    };
    let set = mapping.set_state(&state, reference.handle(), twin.space_ref.handle());
    if set.is_err() {
        // Refusing the mapping is right too.
        return Ok(());
    }
    let actor = Actor::within(&twin.space_ref)?;
    let mut range = [start, 1, 0];
    actor.function(read_pages, range.as_mut_ptr() as u64)?;
    let got = keeper.receive(SOON);
    check_eq!(got.code, Code::Exception);
    check_eq!(keeper.word(0), abi::Exception::Memory as u64);
    // Searching it ends, too.
    check!(reference.search(0, 4 * PAGE, 1).is_err());
    Ok(())
}

guest_test!(REGIONS0002, state_and_keeper);
fn state_and_keeper() -> Outcome {
    let keeper = Receiver::new(0)?;
    let region = Region::new().must("new")?;
    let good = RegionState {
        start: 0x1000,
        size: 0x4000,
        protection: READ,
    };
    region
        .set_state(&good, 0, keeper.port_ref.handle())
        .must("set_state")?;
    let (space, port) = (Ref::new().must("new")?, Ref::new().must("new")?);
    check_eq!(region.get_state(space.handle(), port.handle()), Ok(good));
    check!(port.same_as(keeper.port_ref.at()));
    for bad in [
        RegionState { start: 1, ..good },
        RegionState { size: 1, ..good },
        RegionState {
            protection: 77,
            ..good
        },
        RegionState {
            start: !(PAGE - 1),
            ..good
        },
    ] {
        check_eq!(region.set_state(&bad, 0, 0), Err(Code::Invalid));
    }
    check_eq!(region.get_state(0, port.handle()), Ok(good));
    check!(port.same_as(keeper.port_ref.at()));
    Ok(())
}

extern "C" fn read_pages(range: u64) {
    // SAFETY: the test passes the address of two words and a result that outlive the actor; the
    // pages are supplied as they are touched.
    unsafe {
        let range = range as *mut u64;
        let (start, count) = (*range, *range.add(1));
        let mut sum = 0u64;
        for page in 0..count {
            let at = (start + page * PAGE) as *mut u64;
            let value = at.read_volatile();
            at.write_volatile(value + page + 1);
            sum += at.read_volatile();
        }
        range.add(2).write_volatile(sum);
    }
}

guest_test!(FAULT0001, keeper_supplies_a_page);
fn keeper_supplies_a_page() -> Outcome {
    let mut keeper = Receiver::new(6)?;
    let mut absent = Absent::new(8 * PAGE, keeper.port_ref.handle())?;
    let window = rt::window::Window::map(&absent.region_ref, 0, 8 * PAGE, ALL).must("a window")?;
    let actor = Actor::new()?;
    let mut range = [window.address(), 8, 0];
    actor.function(read_pages, range.as_mut_ptr() as u64)?;
    for page in 0..8 {
        let got = keeper.receive(SOON);
        check_eq!((got.code, got.alias), (Code::Fault, 6));
        check_eq!(keeper.word(0) & !(PAGE - 1), page * PAGE);
        check_eq!(keeper.word(1) & !(PAGE - 1), absent.base + page * PAGE);
        check!(
            keeper.word(2) & (READ | WRITE) != 0,
            "access {}",
            keeper.word(2)
        );
        check_eq!(actor.state().waiting, Waiting::Reply as u64);
        absent.supply(page * PAGE)?;
        check_eq!(reply(&[]), Code::Ok);
    }
    actor.finish()?;
    // SAFETY: the range has more than three words, and the actor has finished with it.
    let sum = unsafe { range.as_ptr().add(2).read_volatile() };
    check_eq!(sum, (1..=8).sum::<u64>());
    drop(window);
    Ok(())
}

guest_test!(FAULT0002, a_fault_is_delivered_again);
fn a_fault_is_delivered_again() -> Outcome {
    let mut keeper = Receiver::new(6)?;
    let mut absent = Absent::new(PAGE, keeper.port_ref.handle())?;
    let window = rt::window::Window::map(&absent.region_ref, 0, PAGE, ALL).must("a window")?;
    let actor = Actor::new()?;
    let mut range = [window.address(), 1, 0];
    actor.function(read_pages, range.as_mut_ptr() as u64)?;
    check_eq!(keeper.receive(SOON).code, Code::Fault);
    // The fault was received but not answered; it is sent again when the thread goes on.
    actor.thread.stop().must("stop")?;
    actor.thread.resume().must("resume")?;
    check_eq!(keeper.receive(SOON).code, Code::Fault);
    absent.supply(0)?;
    check_eq!(reply(&[]), Code::Ok);
    actor.finish()?;
    drop(window);
    Ok(())
}

guest_test!(FAULT0003, faulting_thread_can_be_stopped);
fn faulting_thread_can_be_stopped() -> Outcome {
    let mut keeper = Receiver::new(6)?;
    let mut absent = Absent::new(PAGE, keeper.port_ref.handle())?;
    let window = rt::window::Window::map(&absent.region_ref, 0, PAGE, ALL).must("a window")?;
    let actor = Actor::new()?;
    let mut range = [window.address(), 1, 0];
    actor.function(read_pages, range.as_mut_ptr() as u64)?;
    check_eq!(keeper.receive(SOON).code, Code::Fault);
    actor.thread.stop().must("stop")?;
    let before = actor.state().registers;
    absent.supply(0)?;
    // The reply to a stopped thread changes nothing in its frame.
    let code = reply(&[]);
    check!(matches!(code, Code::Ok | Code::WrongStage), "{code:?}");
    check_eq!(actor.state().registers, before);
    actor.thread.resume().must("resume")?;
    actor.finish()?;
    drop(window);
    Ok(())
}

guest_test!(FAULT0004, two_threads_one_page);
fn two_threads_one_page() -> Outcome {
    let mut keeper = Receiver::new(6)?;
    let mut absent = Absent::new(PAGE, keeper.port_ref.handle())?;
    let window = rt::window::Window::map(&absent.region_ref, 0, PAGE, ALL).must("a window")?;
    let (a, b) = (Actor::new()?, Actor::new()?);
    let mut ranges = [[window.address(), 1, 0], [window.address(), 1, 0]];
    a.function(read_pages, ranges[0].as_mut_ptr() as u64)?;
    b.function(read_pages, ranges[1].as_mut_ptr() as u64)?;
    check_eq!(keeper.receive(SOON).code, Code::Fault);
    absent.supply(0)?;
    check_eq!(reply(&[]), Code::Ok);
    // The second thread asks for the page too, or finds it.
    let got = keeper.receive(20_000_000);
    check!(
        matches!(got.code, Code::Fault | Code::TimedOut),
        "{:?}",
        got.code
    );
    if got.code == Code::Fault {
        check_eq!(reply(&[]), Code::Ok);
    }
    a.finish()?;
    b.finish()?;
    drop(window);
    Ok(())
}

/// The address of the paper's example.
const EXAMPLE: u64 = 0x800_1800;

guest_test!(PAPER0001, progress_of_a_send_is_in_the_registers);
/// Ford et al., section 4.3: "if an IPC tries to send 8,192 bytes starting from address 0x08001800
/// and successfully transfers the first 6,144 bytes and then causes a page fault, the registers
/// will be updated to reflect a 2,048 byte transfer starting at address 0x08003000".
fn progress_of_a_send_is_in_the_registers() -> Outcome {
    let mut keeper = Receiver::new(6)?;
    let mut server = Receiver::new(1)?;
    let start = EXAMPLE & !(PAGE - 1);
    let mut absent = Absent::new(3 * PAGE, keeper.port_ref.handle())?;
    absent.supply(0)?;
    absent.supply(PAGE)?;
    let mapping = absent.map_at(start, 0, 3 * PAGE)?;
    for at in (EXAMPLE..start + 2 * PAGE).step_by(8) {
        poke(at, at ^ 0x5a5a);
    }
    let (client, other) = (Actor::new()?, Actor::new()?);
    let regs = IpcRegs::to(server.port_ref.handle()).sending(Area::new(EXAMPLE, 8192));
    client.call(Call::ClientConnectSendOver, regs)?;
    other.call(Call::ServerWaitReceive, server.receive_regs())?;
    check_eq!(keeper.receive(SOON).code, Code::Fault);
    check_eq!(keeper.word(0) & !(PAGE - 1), 2 * PAGE);

    let sender = client.state().registers;
    check_eq!(sender.send(), Area::new(0x800_3000, 2048));
    check_eq!(sender.pc(), guest_tests::harness::call_site());
    check_eq!(sender.call() as u8, Call::ClientSendOver as u8);
    let receiver = other.state().registers;
    check_eq!(receiver.receive().length, 8192 - 6144);
    check_eq!(receiver.call() as u8, Call::ServerReceive as u8);

    // Both threads are taken apart at this point and made anew.
    guest_tests::harness::cut(client.thread.at(), true)?;
    guest_tests::harness::cut(other.thread.at(), true)?;
    check_eq!(client.state().registers.send(), Area::new(0x800_3000, 2048));
    let got = keeper.receive(SOON);
    check_eq!(got.code, Code::Fault);
    absent.supply(2 * PAGE)?;
    for at in (start + 2 * PAGE..EXAMPLE + 8192).step_by(8) {
        poke(absent.base + at - start, at ^ 0x5a5a);
    }
    check_eq!(reply(&[]), Code::Ok);
    check_eq!(other.finish_code()?, Code::Ok);
    check_eq!(client.finish_code()?, Code::Ok);
    for (n, at) in (EXAMPLE..EXAMPLE + 8192).step_by(8).enumerate() {
        check_eq!(server.word(n), at ^ 0x5a5a);
    }
    drop(mapping);
    Ok(())
}

guest_test!(PAPER0002, fault_of_the_receiver);
fn fault_of_the_receiver() -> Outcome {
    let mut keeper = Receiver::new(6)?;
    let server = Receiver::new(1)?;
    let mut absent = Absent::new(3 * PAGE, keeper.port_ref.handle())?;
    let window = rt::window::Window::map(&absent.region_ref, 0, 3 * PAGE, ALL).must("a window")?;
    let (client, other) = (Actor::new()?, Actor::new()?);
    let data: Vec<u8> = (0..8192u32).map(|n| (n % 253) as u8).collect();
    let regs = IpcRegs::to(server.port_ref.handle()).sending(Area::new(data.as_ptr() as u64, 8192));
    client.call(Call::ClientConnectSendOver, regs)?;
    let to = window.address() + 0x800;
    other.call(
        Call::ServerWaitReceive,
        IpcRegs::to(server.portset.handle()).receiving(Area::new(to, 8192)),
    )?;
    for page in 0..3u64 {
        check_eq!(keeper.receive(SOON).code, Code::Fault);
        check_eq!(keeper.word(0) & !(PAGE - 1), page * PAGE);
        // The fault belongs to the receiver; both frames show the progress.
        let done = (page * PAGE).saturating_sub(0x800);
        eventually("the fault of the receiver", || {
            other.state().waiting == Waiting::Reply as u64
        })?;
        let (s, r) = (client.state().registers, other.state().registers);
        let left = 8192 - done;
        check_eq!(s.send(), Area::new(data.as_ptr() as u64 + done, left));
        check_eq!(r.receive(), Area::new(to + done, left));
        absent.supply(page * PAGE)?;
        check_eq!(reply(&[]), Code::Ok);
    }
    check_eq!(other.finish_code()?, Code::Ok);
    check_eq!(client.finish_code()?, Code::Ok);
    let mut got = alloc::vec![0; 8192];
    window.read(0x800, &mut got).must("read")?;
    check!(got == data, "what arrived is not what was sent");
    drop(window);
    Ok(())
}
