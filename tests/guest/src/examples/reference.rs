//! What a reference names, and how an identity outlives its object.

use rt::abi::RefKind;
use rt::obj::{MutexAt, Ref};
use rt::{sys, Code};

pub fn example() -> Result<(), Code> {
    let slot = rt::slots::allocate(1).ok_or(Code::NoMemory)?;
    let mutex = MutexAt(slot);
    mutex.create()?;

    let reference = mutex.reference()?;
    assert_eq!(reference.kind(), RefKind::Mutex);
    let copy = reference.copy()?;
    assert!(copy.same_as(reference.at()));

    // The body is destroyed, and `identity` keeps the identity: for all others the object is still there, and they
    // wait.
    let identity = Ref::new()?;
    assert_eq!(sys::mutex_destroy(slot, identity.handle()), Code::Ok);
    assert_eq!(reference.kind(), RefKind::Mutex);

    // A new body for the same identity, here in the same place. `set_state` opens it.
    assert_eq!(sys::mutex_create(slot, identity.handle()), Code::Ok);
    mutex.set_state(&rt::abi::state::MutexState { locked: 1 })?;
    assert!(mutex.reference()?.same_as(copy.at()));

    // Now the identity ends, too.
    mutex.destroy()?;
    assert_eq!(sys::reference_check(reference.handle()), Err(Code::Dead));
    copy.clear()?;
    assert_eq!(copy.kind(), RefKind::Null);
    rt::slots::free(slot, 1);
    Ok(())
}
