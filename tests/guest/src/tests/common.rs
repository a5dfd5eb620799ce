//! The six calls that all nine types of objects have.

use abi::{Code, Common, RefKind, Type, TYPES};
use alloc::format;
use guest_tests::harness::{ok, Failure, Must, Outcome};
use guest_tests::{check, check_eq, guest_test};
use rt::obj::Ref;
use rt::sys;

fn make(kind: Type, which: Common, p: [u64; 6]) -> Code {
    // SAFETY: handles are slots of the slab, states are words of a local array that is large
    // enough for every state.
    unsafe { sys::syscall(which.of(kind), p) }.code
}

fn create(kind: Type, slot: u64) -> Outcome {
    ok(make(kind, Common::Create, [slot, 0, 0, 0, 0, 0])).must(&format!("create a {}", kind.name()))
}

fn slots(count: usize) -> Result<u64, Failure> {
    rt::slots::allocate(count).ok_or_else(|| "no slots".into())
}

fn each(test: impl Fn(Type, u64) -> Outcome) -> Outcome {
    let slot = slots(2)?;
    for kind in TYPES {
        test(kind, slot).map_err(|why| why.during(kind.name()))?;
    }
    rt::slots::free(slot, 2);
    Ok(())
}

/// Makes a call that must succeed.
macro_rules! done {
    ($kind:expr, $operation:expr, $arguments:expr) => {
        check_eq!(make($kind, $operation, $arguments), Code::Ok)
    };
}

guest_test!(OBJECT0001, create_once_per_place);
fn create_once_per_place() -> Outcome {
    each(|kind, slot| {
        create(kind, slot)?;
        for other in TYPES {
            check_eq!(
                make(other, Common::Create, [slot, 0, 0, 0, 0, 0]),
                Code::InUse
            );
        }
        done!(kind, Common::Destroy, [slot, 0, 0, 0, 0, 0]);
        create(kind, slot)?;
        done!(kind, Common::Destroy, [slot, 0, 0, 0, 0, 0]);
        Ok(())
    })
}

guest_test!(OBJECT0002, destroyed_means_dead);
fn destroyed_means_dead() -> Outcome {
    each(|kind, slot| {
        create(kind, slot)?;
        let reference = Ref::new().must("a reference")?;
        done!(
            kind,
            Common::Reference,
            [slot, reference.handle(), 0, 0, 0, 0]
        );
        check_eq!(
            sys::reference_check(reference.handle()).map(|k| k as u8),
            Ok(kind as u8)
        );
        done!(kind, Common::Destroy, [slot, 0, 0, 0, 0, 0]);
        check_eq!(sys::reference_check(reference.handle()).is_err(), true);
        // A new object at the same address is not the old one.
        create(kind, slot)?;
        check_eq!(sys::reference_check(reference.handle()).is_err(), true);
        done!(kind, Common::Destroy, [slot, 0, 0, 0, 0, 0]);
        Ok(())
    })
}

guest_test!(OBJECT0003, move_keeps_references);
fn move_keeps_references() -> Outcome {
    each(|kind, slot| {
        create(kind, slot)?;
        let (before, after) = (Ref::new().must("new")?, Ref::new().must("new")?);
        done!(kind, Common::Reference, [slot, before.handle(), 0, 0, 0, 0]);
        done!(kind, Common::Move, [slot, slot + 16, 0, 0, 0, 0]);
        done!(
            kind,
            Common::Reference,
            [slot + 16, after.handle(), 0, 0, 0, 0]
        );
        check_eq!(
            sys::reference_equal(before.handle(), after.handle()),
            Code::Ok
        );
        // The old place is free again.
        create(kind, slot)?;
        done!(kind, Common::Destroy, [slot, 0, 0, 0, 0, 0]);
        done!(kind, Common::Destroy, [slot + 16, 0, 0, 0, 0, 0]);
        Ok(())
    })
}

#[repr(align(16))]
struct Room([u64; 128]);

guest_test!(OBJECT0004, state_goes_round);
fn state_goes_round() -> Outcome {
    each(|kind, slot| {
        create(kind, slot)?;
        let mut before = Room([0; 128]);
        let mut after = Room([0; 128]);
        let state = core::ptr::from_mut(&mut before) as u64;
        done!(kind, Common::GetState, [slot, state, 0, 0, 0, 0]);
        // A mapping without a region has no range; every other state can be set again.
        let set = make(kind, Common::SetState, [slot, state, 0, 0, 0, 0]);
        check!(
            set == Code::Ok,
            "set_state of a new {} says {set:?}",
            kind.name()
        );
        let state = core::ptr::from_mut(&mut after) as u64;
        done!(kind, Common::GetState, [slot, state, 0, 0, 0, 0]);
        check!(
            before.0 == after.0,
            "the state of a {} changed",
            kind.name()
        );
        done!(kind, Common::Destroy, [slot, 0, 0, 0, 0, 0]);
        Ok(())
    })
}

guest_test!(OBJECT0005, identity_survives_destruction);
fn identity_survives_destruction() -> Outcome {
    each(|kind, slot| {
        create(kind, slot)?;
        let (other, identity) = (Ref::new().must("new")?, Ref::new().must("new")?);
        done!(kind, Common::Reference, [slot, other.handle(), 0, 0, 0, 0]);
        done!(kind, Common::Destroy, [slot, identity.handle(), 0, 0, 0, 0]);
        // The identity is vacant, not dead.
        check_eq!(
            sys::reference_check(other.handle()).map(|k| k as u8),
            Ok(kind as u8)
        );
        done!(
            kind,
            Common::Create,
            [slot + 16, identity.handle(), 0, 0, 0, 0]
        );
        let mut room = Room([0; 128]);
        if kind == Type::Thread {
            room.0[abi::state::REGISTER_WORDS + 2] = 1; // stop_count
        }
        let state = core::ptr::from_mut(&mut room) as u64;
        let set = make(kind, Common::SetState, [slot + 16, state, 0, 0, 0, 0]);
        check!(
            set == Code::Ok,
            "opening a vacant {} says {set:?}",
            kind.name()
        );
        let again = Ref::new().must("new")?;
        done!(
            kind,
            Common::Reference,
            [slot + 16, again.handle(), 0, 0, 0, 0]
        );
        check_eq!(
            sys::reference_equal(again.handle(), other.handle()),
            Code::Ok
        );
        done!(kind, Common::Destroy, [slot + 16, 0, 0, 0, 0, 0]);
        check_eq!(sys::reference_check(other.handle()).is_err(), true);
        Ok(())
    })
}

guest_test!(OBJECT0006, identity_dies_with_its_reference);
fn identity_dies_with_its_reference() -> Outcome {
    each(|kind, slot| {
        create(kind, slot)?;
        let (other, identity) = (Ref::new().must("new")?, Ref::new().must("new")?);
        done!(kind, Common::Reference, [slot, other.handle(), 0, 0, 0, 0]);
        done!(kind, Common::Destroy, [slot, identity.handle(), 0, 0, 0, 0]);
        drop(identity);
        check_eq!(sys::reference_check(other.handle()).is_err(), true);
        // A reference that names nothing has no identity to give.
        check_eq!(
            make(kind, Common::Create, [slot, other.handle(), 0, 0, 0, 0]),
            Code::Dead
        );
        Ok(())
    })
}

guest_test!(OBJECT0007, move_onto_another_is_refused);
fn move_onto_another_is_refused() -> Outcome {
    each(|kind, slot| {
        create(kind, slot)?;
        create(Type::Mutex, slot + 16)?;
        check_eq!(
            make(kind, Common::Move, [slot, slot + 16, 0, 0, 0, 0]),
            Code::InUse
        );
        done!(kind, Common::Destroy, [slot, 0, 0, 0, 0, 0]);
        check_eq!(sys::mutex_destroy(slot + 16, 0), Code::Ok);
        Ok(())
    })
}

guest_test!(OBJECT0008, search_finds_every_type);
fn search_finds_every_type() -> Outcome {
    let segment = rt::memory::create(1 << 30).must("a segment")?;
    let window =
        rt::window::Window::map(&segment.region, 0, 1 << 30, abi::access::ALL).must("a window")?;
    // Far apart, on pages that are absent at first.
    let place = |kind: Type| (kind as u64 - 1) * 0x0123_4000 + ((kind as u64 * 0x110) & 0xff0);
    for kind in TYPES {
        create(kind, window.address() + place(kind))?;
    }
    let mut offset = 0;
    for kind in TYPES {
        let found = segment
            .region
            .search(offset, 1 << 30, 0x3fe)
            .must("search")?;
        check_eq!(found, (place(kind), kind as u64));
        offset = found.0 + 16;
        // One type only.
        let found = segment
            .region
            .search(0, 1 << 30, 1 << kind as u64)
            .must("search")?;
        check_eq!(found, (place(kind), kind as u64));
    }
    check_eq!(
        segment.region.search(offset, 1 << 30, 0x3fe),
        Err(Code::NotFound)
    );
    // Pages: those with the objects, and others that the memory server chose to supply.
    let mut pages = alloc::vec::Vec::new();
    let mut offset = 0;
    while let Ok((at, found)) = segment.region.search(offset, 1 << 30, 1) {
        check_eq!(found, 0);
        check!(at >= offset && at % 4096 == 0, "page at {at:#x}");
        offset = at + 4096;
        pages.push(at);
    }
    for kind in TYPES {
        check!(
            pages.contains(&(place(kind) & !4095)),
            "the page of the {}",
            kind.name()
        );
    }
    check!(pages.len() < 1000, "{} pages", pages.len());
    for kind in TYPES {
        let handle = window.address() + place(kind);
        done!(kind, Common::Destroy, [handle, 0, 0, 0, 0, 0]);
    }
    check_eq!(
        segment.region.search(0, 1 << 30, 0x3fe),
        Err(Code::NotFound)
    );
    drop(window);
    segment.destroy().must("destroy the segment")
}

guest_test!(OBJECT0009, many_objects);
fn many_objects() -> Outcome {
    let mut all = alloc::vec::Vec::new();
    for _ in 0..500 {
        all.push(rt::obj::Mutex::new().must("a mutex")?);
    }
    for mutex in &all {
        check!(mutex.try_lock());
    }
    for mutex in &all {
        check!(!mutex.try_lock());
    }
    Ok(())
}

guest_test!(REFERENCES0001, null_is_dead);
fn null_is_dead() -> Outcome {
    let reference = Ref::new().must("new")?;
    check_eq!(sys::reference_check(reference.handle()), Err(Code::Dead));
    check_eq!(sys::thread_interrupt(reference.handle()), Code::Dead);
    check_eq!(reference.search(0, 4096, 1), Err(Code::Dead));
    Ok(())
}

guest_test!(REFERENCES0002, copies_are_equal);
fn copies_are_equal() -> Outcome {
    let (a, b) = (
        rt::obj::Port::new().must("new")?,
        rt::obj::Port::new().must("new")?,
    );
    let (ra, rb) = (
        a.reference().must("reference")?,
        b.reference().must("reference")?,
    );
    let copy = ra.copy().must("copy")?;
    check_eq!(sys::reference_equal(ra.handle(), copy.handle()), Code::Ok);
    check_eq!(
        sys::reference_equal(ra.handle(), rb.handle()),
        Code::NotFound
    );
    check_eq!(sys::reference_equal(ra.handle(), ra.handle()), Code::Ok);
    drop(a);
    check_eq!(sys::reference_equal(ra.handle(), copy.handle()), Code::Dead);
    check_eq!(rb.kind(), RefKind::Port);
    rb.clear().must("clear")?;
    check_eq!(rb.kind(), RefKind::Null);
    Ok(())
}

guest_test!(REFERENCES0003, roles_differ);
fn roles_differ() -> Outcome {
    let thread = rt::obj::Thread::new().must("new")?;
    let (all, client, server) = guest_tests::harness::refs3()?;
    thread.reference_into(all.at()).must("reference")?;
    thread.client_end_into(client.at()).must("client end")?;
    thread.server_end_into(server.at()).must("server end")?;
    check_eq!(all.kind(), RefKind::Thread);
    check_eq!(client.kind(), RefKind::ClientEnd);
    check_eq!(server.kind(), RefKind::ServerEnd);
    check_eq!(
        sys::reference_equal(all.handle(), client.handle()),
        Code::NotFound
    );
    check_eq!(
        sys::reference_equal(server.handle(), client.handle()),
        Code::NotFound
    );
    Ok(())
}
