//! What both directions need of the machine.

use abi::{RefKind, Type, TYPES};
use alloc::vec::Vec;
use checkpoint_image::meta::{Segment, MANAGERS, OUTSIDE};
use checkpoint_image::resolve::Compare;
use proto::Error;
use rt::access::{OBJECTS, READ, WRITE};
use rt::obj::{Ref, RefAt};
use rt::process::Client;
use rt::window::Window;

use crate::Sentence;

/// What the processor can do, as images record it.
pub(crate) fn features() -> [u64; 2] {
    let one = core::arch::x86_64::__cpuid(1);
    let seven = core::arch::x86_64::__cpuid_count(7, 0);
    [
        u64::from(one.edx) | u64::from(one.ecx) << 32,
        u64::from(seven.ebx),
    ]
}

/// Comparing references is a call of the kernel.
pub(crate) struct Kernel;

impl Compare for Kernel {
    type Ref = Ref;
    fn kind(&self, reference: &Ref) -> RefKind {
        reference.kind()
    }
    fn equal(&self, a: &Ref, b: &Ref) -> bool {
        a.same_as(b.at())
    }
}

/// The ports outside that an image may name, as far as they exist. Neither `names` nor `memory` is among
/// them: these are the process's own port at init and its own account.
pub(crate) fn outside() -> Vec<(&'static str, Ref)> {
    OUTSIDE
        .iter()
        .filter_map(|name| Some((*name, port(name).ok()?)))
        .collect()
}

/// One of them.
pub(crate) fn port(name: &str) -> Result<Ref, Error> {
    rt::names::lookup(name)
}

/// A manager that an image may name.
pub(crate) fn manager(name: &str) -> Result<Client, Sentence> {
    if !MANAGERS.contains(&name) {
        return Err(alloc::format!("there is no manager {name}"));
    }
    Client::new(name).map_err(|error| alloc::format!("manager {name}: {}", error.text()))
}

/// A window on a whole segment in which handles can be used.
pub(crate) fn window(region: &RefAt, segment: Segment) -> Result<Window, Error> {
    Window::map(region, 0, segment.size(), READ | WRITE | OBJECTS)
}

/// The type with this number, as `region_search` says it.
pub(crate) fn type_of(raw: u64) -> Option<Type> {
    TYPES.into_iter().find(|kind| *kind as u64 == raw)
}
