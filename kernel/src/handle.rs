//! The lookup of handles: from the address at which an object lives to the object.
//!
//! The word at the address is only a hint; the frame's list of objects decides ([`crate::object`]). Recent lookups
//! are cached ([`Handles`](crate::object::Handles)).

use crate::memory;
use crate::object::reference::Reference;
use crate::object::space::Space;
use crate::object::{self, Header, Object, Phase, Place, Target};
use crate::probe::{self, Kind};
use crate::stop::{Access, Stop};
use crate::K;
use abi::{Code, Exception, OBJECT_ALIGN, PAGE_SIZE};

fn aligned(address: u64) -> Result<(), Stop> {
    if address.is_multiple_of(OBJECT_ALIGN) {
        Ok(())
    } else {
        Err(Stop::Exception(Exception::Misaligned, address))
    }
}

/// The object at a handle, in any phase.
#[inline]
#[cfg_attr(fermata_probe, track_caller)]
fn look_up<T: Object>(k: K, space: &'static Space, handle: u64) -> Result<&'static T, Stop> {
    probe::site(Kind::Handle)?;
    match T::handles(k).probe(space, handle) {
        Some(object) => Ok(object),
        None => look_long(k, space, handle),
    }
}

/// [`look_up`] without the cache: by physical frame and offset.
#[inline(never)]
#[cfg_attr(fermata_probe, track_caller)]
fn look_long<T: Object>(k: K, space: &'static Space, handle: u64) -> Result<&'static T, Stop> {
    aligned(handle)?;
    // The right to have objects on that page gives all power over them.
    let pfn = memory::translate(k, space, handle, Access::OBJECT)?;
    let offset = handle % PAGE_SIZE;
    let h =
        object::object_at(k, pfn, offset).ok_or(Stop::Exception(Exception::NoObject, handle))?;
    if h.id().ty() != Some(T::TYPE) {
        return Err(Stop::Exception(Exception::WrongType, handle));
    }
    let object = T::table(k)
        .get(h.id().index())
        .ok_or(Stop::Exception(Exception::NoObject, handle))?;
    if h.phase() == Phase::Active {
        T::handles(k).note(space, handle, object);
    }
    Ok(object)
}

/// As [`look_up`], for a call that manages the object. The owner of the memory may take away the object or its page at
/// any time, so a missing object is the code `NoObject`, no exception. If only the page is absent, its keeper is asked
/// for it.
#[inline]
#[cfg_attr(fermata_probe, track_caller)]
fn look_up_managed<T: Object>(
    k: K,
    space: &'static Space,
    handle: u64,
) -> Result<&'static T, Stop> {
    look_up::<T>(k, space, handle).map_err(|stop| match stop {
        Stop::Exception(Exception::NoObject | Exception::WrongType, _) => {
            Stop::Code(Code::NoObject)
        }
        Stop::Fault(fault) => Stop::Absent(fault),
        stop => stop,
    })
}

/// The object at a handle, for a call that uses it. A vacant identity makes the caller wait.
#[inline]
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn find<T: Object>(
    k: K,
    space: &'static Space,
    handle: u64,
) -> Result<&'static T, Stop> {
    probe::site(Kind::Handle)?;
    match T::handles(k).probe(space, handle) {
        Some(object) => Ok(object),
        None => {
            let object = look_long::<T>(k, space, handle)?;
            object.head().open()?;
            Ok(object)
        }
    }
}

/// The object at a handle, for a call that manages it, in any phase.
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn find_identity<T: Object>(
    k: K,
    space: &'static Space,
    handle: u64,
) -> Result<&'static T, Stop> {
    look_up_managed::<T>(k, space, handle)
}

/// The object at a handle, for a call that manages it, also if its body has not been opened yet. A vacant
/// identity is the code `Vacant`.
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn find_body<T: Object>(
    k: K,
    space: &'static Space,
    handle: u64,
) -> Result<&'static T, Stop> {
    let object = look_up_managed::<T>(k, space, handle)?;
    match object.head().phase() {
        Phase::Active | Phase::Fresh => Ok(object),
        _ => Err(Stop::Code(Code::Vacant)),
    }
}

/// The object at a handle, for a call that manages it but needs it open. An object that is vacant or not opened
/// yet is the code `Vacant`.
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn find_open<T: Object>(
    k: K,
    space: &'static Space,
    handle: u64,
) -> Result<&'static T, Stop> {
    open_now(look_up_managed::<T>(k, space, handle)?)
}

fn open_now<T: Object>(object: &'static T) -> Result<&'static T, Stop> {
    match object.head().phase() {
        Phase::Active => Ok(object),
        _ => Err(Stop::Code(Code::Vacant)),
    }
}

/// The open object that the reference at a handle names, for a call that manages it. A reference that is null,
/// dead or of another kind is the code `Dead`; an object that is vacant or not opened yet is the code `Vacant`.
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn find_open_target<T: Object>(
    k: K,
    space: &'static Space,
    handle: u64,
) -> Result<&'static T, Stop> {
    let target = find::<Reference>(k, space, handle)?.target.get();
    open_now(target.get::<T>().ok_or(Stop::Code(Code::Dead))?)
}

/// The target of the reference at a handle, or null for the handle 0.
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn target_at(k: K, space: &'static Space, handle: u64) -> Result<Target, Stop> {
    if handle == 0 {
        return Ok(Target::Null);
    }
    Ok(find::<Reference>(k, space, handle)?.target.get())
}

/// The object that the reference at a handle names, for a call that uses it. A reference that is null, dead or
/// of another kind is the code `Dead`; a vacant identity makes the caller wait.
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn find_target<T: Object>(
    k: K,
    space: &'static Space,
    handle: u64,
) -> Result<&'static T, Stop> {
    let target = find::<Reference>(k, space, handle)?.target.get();
    let object = target.get::<T>().ok_or(Stop::Code(Code::Dead))?;
    object.head().open()?;
    Ok(object)
}

/// Checks that an object can be made at this address: nothing is there yet, or only the vacant identity `same`,
/// which is about to get a new body there.
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn find_place(
    k: K,
    space: &'static Space,
    address: u64,
    same: Option<&'static Header>,
) -> Result<Place, Stop> {
    aligned(address)?;
    if !memory::takes_objects(space, address) {
        return Err(Stop::Code(Code::Denied));
    }
    let pfn = memory::translate(k, space, address, Access::OBJECT)?;
    let offset = address % PAGE_SIZE;
    match object::position(k, pfn, offset) {
        [_, Some(h)] if !same.is_some_and(|s| core::ptr::eq(s, h)) => Err(Stop::Code(Code::InUse)),
        [before, _] => Ok(Place {
            pfn,
            offset,
            before,
        }),
    }
}
