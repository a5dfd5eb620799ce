//! The references that a hostile client can send.

use super::error;
use crate::harness::Random;
use abi::state::{port_flags, PortState, RegionState};
use abi::{access, Code, PAGE_SIZE};
use alloc::vec::Vec;
use proto::Error;
use rt::obj::{Port, Portset, Ref, RefAt, Region, Thread};
use rt::{slots, sys};

/// Makes an object at an address; destroys it, and keeps its identity by a reference if one is given; points a
/// reference at it.
type Call = fn(u64, u64) -> Code;

/// All types of objects.
const KINDS: [(Call, Call, Call); 9] = [
    (sys::mutex_create, sys::mutex_destroy, sys::mutex_reference),
    (sys::cond_create, sys::cond_destroy, sys::cond_reference),
    (
        sys::mapping_create,
        sys::mapping_destroy,
        sys::mapping_reference,
    ),
    (
        sys::region_create,
        sys::region_destroy,
        sys::region_reference,
    ),
    (sys::port_create, sys::port_destroy, sys::port_reference),
    (
        sys::portset_create,
        sys::portset_destroy,
        sys::portset_reference,
    ),
    (sys::space_create, sys::space_destroy, sys::space_reference),
    (
        sys::thread_create,
        sys::thread_destroy,
        sys::thread_reference,
    ),
    (
        sys::reference_create,
        sys::reference_destroy,
        sys::reference_reference,
    ),
];

/// A port that takes calls and never answers, and memory whose keeper it is.
pub struct SilentKeeper {
    /// The port.
    pub port: Ref,
    /// Addresses whose pages never come.
    pub memory: u64,
    /// A region over them.
    pub region: Ref,
    _objects: (Port, Portset, Region),
    mapping: rt::obj::Mapping,
}

/// Bytes of [`SilentKeeper::memory`].
pub const SILENT_BYTES: u64 = 4 * PAGE_SIZE;

impl SilentKeeper {
    /// A new one.
    pub fn new() -> Result<Self, Error> {
        let make = || {
            let set = Portset::new()?;
            let port = Port::new()?;
            let state = PortState {
                alias: 0,
                flags: port_flags::CALLS_ONLY,
            };
            port.set_state(&state, set.reference()?.handle())?;
            let port_ref = port.reference()?;
            // One range exports addresses where nothing is mapped, and is mapped at another range.
            let addresses =
                || rt::window::take_addresses(SILENT_BYTES, PAGE_SIZE).ok_or(Code::NoMemory);
            let (nothing, memory) = (addresses()?, addresses()?);
            let region = Region::new()?;
            let state = RegionState {
                start: nothing,
                size: SILENT_BYTES,
                protection: access::ALL,
            };
            region.set_state(&state, 0, port_ref.handle())?;
            let region_ref = region.reference()?;
            let mapping = rt::obj::Mapping::new()?;
            let state = abi::state::MappingState {
                start: memory,
                size: SILENT_BYTES,
                offset: 0,
                protection: access::ALL,
            };
            mapping.set_state(&state, region_ref.handle(), 0)?;
            Ok(SilentKeeper {
                port: port_ref,
                memory,
                region: region_ref,
                _objects: (port, set, region),
                mapping,
            })
        };
        make().map_err(error)
    }

    /// A reference to the mapping.
    pub fn mapping(&self) -> Result<Ref, Error> {
        self.mapping.reference().map_err(error)
    }
}

/// A pool of references.
pub struct ReferencePool {
    pool: Vec<Ref>,
    _thread: Thread,
}

/// Most references.
const MOST: usize = 64;

impl ReferencePool {
    /// Live, dead and vacant references of each type, ends of connections, and the references that every program has.
    pub fn new(silent: &SilentKeeper) -> Result<Self, Error> {
        let mut pool = Vec::new();
        for kind in KINDS {
            pool.extend(three(kind).map_err(error)?);
        }
        let thread = Thread::new().map_err(error)?;
        for end in [
            sys::thread_reference_client_end,
            sys::thread_reference_server_end,
        ] {
            let reference = Ref::new().map_err(error)?;
            rt::obj::done(end(thread.handle(), reference.handle())).map_err(error)?;
            pool.push(reference);
        }
        pool.push(Ref::new().map_err(error)?);
        pool.push(silent.mapping()?);
        for known in [
            *silent.port,
            *silent.region,
            rt::start::names(),
            rt::start::memory(),
            rt::start::space(),
            rt::start::thread(),
        ] {
            pool.push(known.copy().map_err(error)?);
        }
        Ok(ReferencePool {
            pool,
            _thread: thread,
        })
    }

    /// A random reference of the pool.
    pub fn any(&self, random: &mut Random) -> RefAt {
        *self.pool[random.below(self.pool.len() as u64) as usize]
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Ref] {
        &self.pool
    }

    /// Adds a reference; if there are many, it replaces another one.
    pub fn keep(&mut self, random: &mut Random, reference: Ref) {
        if self.pool.len() < MOST {
            self.pool.push(reference);
        } else {
            let at = random.below(self.pool.len() as u64) as usize;
            self.pool[at] = reference;
        }
    }
}

/// A live, a dead and a vacant reference.
fn three((create, destroy, point): (Call, Call, Call)) -> Result<[Ref; 3], Code> {
    let make = |how: u8| {
        let at = slots::allocate(1).ok_or(Code::NoMemory)?;
        rt::obj::done(create(at, 0))?;
        let reference = Ref::new()?;
        rt::obj::done(point(at, reference.handle()))?;
        // The slots stay taken: no other object may be made where an identity is.
        let keeper = Ref::new()?;
        match how {
            0 => {}
            1 => rt::obj::done(destroy(at, 0))?,
            _ => rt::obj::done(destroy(at, keeper.handle()))?,
        }
        core::mem::forget(keeper);
        Ok(reference)
    };
    Ok([make(0)?, make(1)?, make(2)?])
}
