//! The common calls of every type: create, destroy, move, reference.

use super::Args;
use crate::handle;
use crate::object::reference::Reference;
use crate::object::space::Space;
use crate::object::thread::Thread;
use crate::object::{self, NonNullLink, Object, Phase, Target};
use crate::{Handled, Stop};
use abi::{Code, Type};

/// A reference that keeps a vacant identity, and that identity.
type Kept<T> = (&'static Reference, &'static T);

/// The vacant identity that a reference keeps, for a create call.
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

/// `*_create`: a new object, or a new body for an identity that a reference keeps.
pub(super) fn create<T: Object>(a: Args) -> Handled {
    make::<T>(a)?;
    a.done()
}

fn make<T: Object>(a: Args) -> Result<&'static T, Stop> {
    let kept = kept::<T>(a, a.b())?;
    let place = handle::find_place(a.k, a.space, a.a(), kept.map(|(_, o)| o.head()))?;
    let payer = a.space.account.get().ok_or(Stop::Code(Code::NoMemory))?;
    let object = object::create(a.k, payer, &place, kept.map(|(_, o)| o))?;
    if let Some((reference, _)) = kept {
        reference.hand_over();
    }
    Ok(object)
}

/// A space also opens an account under its creator's, and has its ceiling.
pub(super) fn create_space(a: Args) -> Handled {
    let space = make::<Space>(a)?;
    space.max_priority.set(a.space.max_priority.get());
    if space.account.get().is_none() {
        let Some(account) = a.k.accounts.open(a.space.account.get()) else {
            object::destroy(a.k, space, false);
            return Err(Stop::Code(Code::NoMemory));
        };
        space.account.set(Some(account));
    }
    a.done()
}

/// `*_destroy`: the body goes; the identity too, unless a reference is given to keep it. One without a
/// body ends, whoever keeps it.
pub(super) fn destroy<T: Object>(a: Args) -> Handled {
    let object = handle::find_identity::<T>(a.k, a.space, a.a())?;
    if a.b() == 0 {
        object::disperse(a.k, a.t, object, true)?;
        a.t.finish(Code::Ok);
        object::destroy(a.k, object, false);
        return Ok(crate::Outcome::Done);
    }
    let keeper = handle::find::<Reference>(a.k, a.space, a.b())?;
    if T::TYPE == Type::Reference && a.a() == a.b() {
        return Err(Stop::Code(Code::Invalid));
    }
    // It is kept already, and by whom is not for the caller to change.
    if object.head().phase() == Phase::Vacant {
        return Err(Stop::Code(Code::Vacant));
    }
    object::disperse(a.k, a.t, object, false)?;
    a.t.finish(Code::Ok);
    keeper.keep(a.k, Target::to(object));
    object::destroy(a.k, object, true);
    Ok(crate::Outcome::Done)
}

/// `*_move`: another address; nobody notices.
pub(super) fn relocate<T: Object>(a: Args) -> Handled {
    let object = handle::find_body::<T>(a.k, a.space, a.a())?;
    let place = handle::find_place(a.k, a.space, a.b(), Some(object.head()))?;
    object::relocate(a.k, object, &place);
    a.done()
}

/// `*_reference`: points a reference at the object.
pub(super) fn reference<T: Object>(a: Args) -> Handled {
    point(a, Target::to::<T>)
}

/// Points a reference at one end of a thread's connection.
pub(super) fn reference_end(a: Args, role: fn(NonNullLink<Thread>) -> Target) -> Handled {
    point(a, |thread: &'static Thread| role(NonNullLink::to(thread)))
}

fn point<T: Object>(a: Args, role: impl FnOnce(&'static T) -> Target) -> Handled {
    let object = handle::find_body::<T>(a.k, a.space, a.a())?;
    let reference = handle::find::<Reference>(a.k, a.space, a.b())?;
    reference.point(a.k, role(object));
    a.done()
}
