//! Functions that both saving and restoring need of the machine.

use abi::state::SpaceState;
use abi::{Code, RefKind, Type, TYPES};
use alloc::string::ToString;
use alloc::vec::Vec;
use checkpoint_image::meta::{Segment, MANAGERS, OUTSIDE};
use checkpoint_image::resolve::Compare;
use proto::layout::PRIORITY_MEMORY;
use proto::Error;
use rt::access::{OBJECTS, READ, WRITE};
use rt::obj::{Cond, Mapping, Mutex, Port, Portset, Ref, RefAt, Region, Space, Thread};
use rt::process::{Client, Process};
use rt::window::Window;

use crate::Sentence;

/// The features of the processor, as images record them.
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

/// The ports outside that an image may name, as far as they exist. `memory` is not among
/// them: that is each process's own account.
pub(crate) fn outside() -> Vec<(&'static str, Ref)> {
    OUTSIDE
        .iter()
        .filter_map(|name| Some((*name, port(name).ok()?)))
        .collect()
}

/// The port outside that has this name.
pub(crate) fn port(name: &str) -> Result<Ref, Error> {
    rt::names::lookup(name)
}

/// The process behind a control port, and the name of its manager. Only a port that a manager knows as its own is
/// called: any other might never answer.
pub(crate) fn process(port: &RefAt) -> Result<(&'static str, Process), Sentence> {
    let found = MANAGERS.into_iter().find_map(|name| {
        let process = manager(name).ok()?.verify(port).ok()?;
        Some((name, process))
    });
    found.ok_or_else(|| "this is no process of any manager".to_string())
}

/// A manager that an image may name.
pub(crate) fn manager(name: &str) -> Result<Client, Sentence> {
    if !MANAGERS.contains(&name) {
        return Err(alloc::format!("there is no manager {name}"));
    }
    Client::new(name).map_err(|error| alloc::format!("manager {name}: {}", error.text()))
}

/// The priority at which a process's pages are touched: above all programs and managers, below the memory
/// server, which supplies pages.
pub(crate) const RAISED: u64 = PRIORITY_MEMORY - 1;

/// A window on a whole segment in which handles can be used.
pub(crate) fn window(region: &RefAt, segment: Segment) -> Result<Window, Error> {
    Window::map(region, 0, segment.size(), READ | WRITE | OBJECTS)
}

/// The kernel memory of this program.
pub(crate) struct KernelMemory {
    /// All of it that was left at the start, in bytes.
    pub(crate) total: u64,
    /// What an object of each type costs, in the order of their numbers.
    costs: [u64; TYPES.len()],
}

/// The part that this program's own objects may take. Objects that restored processes left are not noticed up to this
/// amount.
const OWN_PART: u64 = 16;

impl KernelMemory {
    /// What an object of this type costs.
    pub(crate) fn cost(&self, kind: Type) -> u64 {
        let number = TYPES.iter().position(|other| *other == kind);
        number.map_or(0, |number| self.costs[number])
    }

    /// Whether no more than so many bytes are in use since the start, besides this program's own part. For an instant
    /// this takes the memory that has to be free; the own part of other threads stays.
    pub(crate) fn is_in(&self, bytes: u64) -> bool {
        let quota = (self.total - self.total / OWN_PART).saturating_sub(bytes);
        let state = SpaceState {
            quota,
            ..SpaceState::default()
        };
        // The memory is given back when the space is dropped.
        Space::new().is_ok_and(|gauge| gauge.set_state(&state, 0).is_ok())
    }

    /// Measures how much is left, and how much less with one more object of each type. To be called before anything
    /// else runs here.
    pub(crate) fn measure() -> Result<Self, Code> {
        let gauge = Space::new()?;
        let left = || left(&gauge);
        let total = left();
        let costs = [
            total - with(Mutex::new()?, left),
            total - with(Cond::new()?, left),
            total - with(Mapping::new()?, left),
            total - with(Region::new()?, left),
            total - with(Port::new()?, left),
            total - with(Portset::new()?, left),
            total - with(Space::new()?, left),
            total - with(Thread::new()?, left),
            total - with(Ref::new()?, left),
        ];
        Ok(KernelMemory { total, costs })
    }
}

/// The result of `look` while an object exists.
fn with<T>(object: T, look: impl Fn() -> u64) -> u64 {
    let seen = look();
    drop(object);
    seen
}

/// How much kernel memory is left: the largest quota that another space could get.
fn left(gauge: &Space) -> u64 {
    let mut largest = 0;
    for bit in (0..48).rev() {
        let quota = largest | 1 << bit;
        let state = SpaceState {
            quota,
            ..SpaceState::default()
        };
        if gauge.set_state(&state, 0).is_ok() {
            largest = quota;
        }
    }
    // Gives the memory back before the next measurement.
    let _ = gauge.set_state(&SpaceState::default(), 0);
    largest
}

/// The type with this number, as `region_search` returns it.
pub(crate) fn type_of(raw: u64) -> Option<Type> {
    TYPES.into_iter().find(|kind| *kind as u64 == raw)
}
