//! The common calls of every type: create, destroy, move, reference.

use super::Args;
use crate::handle;
use crate::object::reference::Reference;
use crate::object::space::Space;
use crate::object::thread::Thread;
use crate::object::{self, NonNullLink, Object, Phase, Target};
use crate::{Handled, Stop};
use abi::{Code, Type};

/// A reference that keeps a vacant identity, and the object of that identity.
type Kept<T> = (&'static Reference, &'static T);

/// The vacant identity, for a create call, that the reference at a handle keeps; `None` for 0.
#[cfg_attr(fermata_probe, track_caller)]
fn kept<T: Object>(a: Args, handle: u64) -> Result<Option<Kept<T>>, Stop> {
    if handle == 0 {
        return Ok(None);
    }
    let reference = handle::find::<Reference>(a.k, a.space, handle)?;
    let dead = Stop::Code(Code::Dead);
    let object = reference.target.get().get::<T>().ok_or(dead)?;
    if reference.keeps() && object.head().phase() == Phase::Vacant {
        Ok(Some((reference, object)))
    } else {
        Err(Stop::Code(Code::Invalid))
    }
}

/// `*_create`: makes a new object, or a new body for an identity that a reference keeps.
pub(super) fn create<T: Object>(a: Args) -> Handled {
    make::<T>(a)?;
    a.done()
}

fn make<T: Object>(a: Args) -> Result<&'static T, Stop> {
    let kept = kept::<T>(a, a.b())?;
    let place = handle::find_place(a.k, a.space, a.a(), kept.map(|(_, o)| o.head()))?;
    let payer = a.space.account.get().ok_or(Stop::Code(Code::NoMemory))?;
    if let Some((_, object)) = kept {
        object::take_over(a.k, payer, object)?;
    }
    let object = object::create(a.k, payer, &place, kept.map(|(_, o)| o))?;
    if let Some((reference, _)) = kept {
        reference.hand_over();
    }
    Ok(object)
}

/// `space_create`: also inherits the ceiling of priority of the creator's space.
pub(super) fn create_space(a: Args) -> Handled {
    let space = make::<Space>(a)?;
    space.max_priority.set(a.space.max_priority.get());
    a.done()
}

/// `*_destroy`: takes the body away, and ends the identity unless a reference is given to keep it. A vacant
/// identity ends although a reference keeps it.
pub(super) fn destroy<T: Object>(a: Args) -> Handled {
    let object = handle::find_identity::<T>(a.k, a.space, a.a())?;
    if a.b() == 0 {
        object::disperse(a.k, a.t, object)?;
        a.t.finish(Code::Ok);
        object::destroy(a.k, object, false);
        return Ok(crate::Outcome::Done);
    }
    let keeper = handle::find::<Reference>(a.k, a.space, a.b())?;
    // Two addresses may lead to the same object.
    if T::TYPE == Type::Reference && core::ptr::eq(object.head(), keeper.head()) {
        return Err(Stop::Code(Code::Invalid));
    }
    // Another reference keeps the identity already, and the caller has no power over that reference.
    if object.head().phase() == Phase::Vacant {
        return Err(Stop::Code(Code::Vacant));
    }
    object::disperse(a.k, a.t, object)?;
    a.t.finish(Code::Ok);
    keeper.keep(a.k, Target::to(object));
    object::destroy(a.k, object, true);
    Ok(crate::Outcome::Done)
}

/// `*_move`: moves the object to another address; references, peers and waiters are not affected.
pub(super) fn relocate<T: Object>(a: Args) -> Handled {
    let object = handle::find_body::<T>(a.k, a.space, a.a())?;
    let place = handle::find_place(a.k, a.space, a.b(), Some(object.head()))?;
    let by = a.space.account.get().ok_or(Stop::Code(Code::Denied))?;
    object::take_over(a.k, by, object)?;
    object::relocate(a.k, object, &place);
    a.done()
}

/// `*_reference`: points a reference at the object.
pub(super) fn reference<T: Object>(a: Args) -> Handled {
    point(a, Target::to::<T>)
}

/// Points a reference at an end of a thread's connection.
pub(super) fn reference_end(a: Args, role: fn(NonNullLink<Thread>) -> Target) -> Handled {
    point(a, |thread: &'static Thread| role(NonNullLink::to(thread)))
}

fn point<T: Object>(a: Args, role: impl FnOnce(&'static T) -> Target) -> Handled {
    let object = handle::find_body::<T>(a.k, a.space, a.a())?;
    let reference = handle::find::<Reference>(a.k, a.space, a.b())?;
    reference.point(a.k, role(object));
    a.done()
}
