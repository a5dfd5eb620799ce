//! Describes the kernel objects of native processes, and who waits for whom, for people.
//!
//! All of it is found by calls that change nothing: they export the states of objects, and compare references. They are
//! calls that manage objects, which never wait and fail if there is no object; a process can change what it has at an
//! address at any time. All other clients of init wait meanwhile, so each answer takes a bounded number of such calls
//! and says where to continue.
use super::Manager;
use crate::names;
use abi::access;
use abi::state::{port_flags, ThreadState, Waiting};
use abi::{RefKind, Type, OBJECT_SIZE, TYPES};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use process::{words, Found, Process};
use proto::layout::MEMORY_SIZE;
use proto::Error;
use rt::obj::{
    CondAt, MappingAt, MutexAt, PortAt, PortsetAt, Ref, RefAt, RegionAt, SpaceAt, ThreadAt,
};
use services::process::Pid;
use services::system::{
    Link, Object, On, Wait, MOST_COMPARED, MOST_OBJECTS, MOST_WAITS, NOBODY, NOWHERE,
};

/// Where a search continues: a process, and a spot in it.
type Place = (Pid, u64);

/// What a search has found, and where it is to continue.
pub(crate) struct Search<T> {
    pub(crate) next: Place,
    pub(crate) list: Vec<T>,
}

/// The other end of a wait, as far as the state of the waiting thread tells it.
enum End {
    /// Known without a search.
    Known(On),
    /// The process that has the port which this names.
    Port(Ref),
    /// The thread that has the server end which this names.
    Server(Ref),
    /// The thread that has the client end which this names.
    Client(Ref),
}

/// A mask of all types of objects, for a walk.
fn all_kinds() -> u64 {
    TYPES
        .iter()
        .fold(0, |kinds, kind| kinds | 1 << *kind as u64)
}

/// Points a reference at an object or, if the object is a reference, at what that names.
fn point(found: &Found, reference: RefAt) -> Result<(), abi::Code> {
    let at = found.address;
    match found.kind {
        Type::Mutex => MutexAt(at).reference_into(reference),
        Type::Cond => CondAt(at).reference_into(reference),
        Type::Mapping => MappingAt(at).reference_into(reference),
        Type::Region => RegionAt(at).reference_into(reference),
        Type::Port => PortAt(at).reference_into(reference),
        Type::Portset => PortsetAt(at).reference_into(reference),
        Type::Space => SpaceAt(at).reference_into(reference),
        Type::Thread => ThreadAt(at).reference_into(reference),
        Type::Reference => reference.point_to(RefAt(at)),
    }
}

/// A copy of the reference at this address of a process, if there is one.
fn named_at(process: &Process, address: u64) -> Option<Ref> {
    let offset = address.checked_sub(process.base())?;
    let end = offset.checked_add(OBJECT_SIZE)?;
    if end > MEMORY_SIZE {
        return None;
    }
    // Only pages that are present may be touched; init would have to wait for any other.
    let region = &process.memory().region;
    let (found, _) = region
        .search(offset, end, 1 << Type::Reference as u64)
        .ok()?;
    let handle = process.memory_window().address() + found;
    (found == offset).then(|| RefAt(handle).copy().ok())?
}

/// What a thread waits for: the address of the object at which it waits, or 0, and the other end. `None` if it waits
/// for nobody.
fn end_of(process: &Process, thread: ThreadAt) -> Option<(u64, End)> {
    let (client, server) = (Ref::new().ok()?, Ref::new().ok()?);
    let state = thread.get_state(0, client.handle(), server.handle()).ok()?;
    let at = state.waiting_for;
    let waiting = Waiting::from_raw(state.waiting).unwrap_or_default();
    Some(match waiting {
        _ if state.exception_delivered != 0 => (0, End::Known(On::Manager)),
        Waiting::Exception => (0, End::Known(On::Manager)),
        Waiting::Mutex | Waiting::Cond => (at, End::Known(On::Anybody)),
        // The instruction is not a call: the thread waits for a page of its memory.
        Waiting::Port | Waiting::Reply if !process.is_call(state.registers.rip) => {
            (0, End::Known(On::Memory))
        }
        Waiting::Port | Waiting::Reply => match named_at(process, at) {
            Some(port) if port.kind() == RefKind::Port => (at, End::Port(port)),
            Some(_) => (at, End::Known(On::Dead)),
            None => (at, End::Known(On::Unknown)),
        },
        Waiting::Peer => match (client.kind(), server.kind()) {
            (RefKind::ServerEnd, _) => (0, End::Server(client)),
            (_, RefKind::ClientEnd) => (0, End::Client(server)),
            _ => (0, End::Known(On::Dead)),
        },
        _ => return None,
    })
}

fn rights(of: u64) -> String {
    let all = [
        (access::READ, 'r'),
        (access::WRITE, 'w'),
        (access::EXECUTE, 'x'),
        (access::OBJECTS, 'o'),
    ];
    let letter = |(right, letter)| if of & right != 0 { letter } else { '-' };
    all.into_iter().map(letter).collect()
}

/// What a reference of this kind names, in words.
const fn kind_in_words(kind: RefKind) -> &'static str {
    match kind {
        RefKind::Null => "names nothing",
        RefKind::Mutex => "names a mutex",
        RefKind::Cond => "names a cond",
        RefKind::Mapping => "names a mapping",
        RefKind::Region => "names a region",
        RefKind::Port => "names a port",
        RefKind::Portset => "names a portset",
        RefKind::Space => "names a space",
        RefKind::Thread => "names a thread",
        RefKind::Reference => "names a reference",
        RefKind::ClientEnd => "names the client end of a connection",
        RefKind::ServerEnd => "names the server end of a connection",
        RefKind::Authority => "is the device authority",
    }
}

/// The state of an object in words. `None` if the object is gone.
fn in_words(process: &Process, found: &Found) -> Option<String> {
    let at = found.address;
    Some(match found.kind {
        Type::Mutex => match MutexAt(at).get_state().ok()?.locked {
            0 => "free".to_string(),
            _ => "locked; by whom is not kept".to_string(),
        },
        Type::Cond | Type::Portset => String::new(),
        Type::Mapping => {
            let state = MappingAt(at).get_state(0, 0).ok()?;
            format!(
                "{:#x}+{:#x} {}",
                state.start,
                state.size,
                rights(state.protection)
            )
        }
        Type::Region => {
            let state = RegionAt(at).get_state(0, 0).ok()?;
            format!(
                "{:#x}+{:#x} {}",
                state.start,
                state.size,
                rights(state.protection)
            )
        }
        Type::Port => {
            let flags = PortAt(at).get_state(0).ok()?.flags;
            match flags & port_flags::HOLD_CLIENTS {
                0 => String::new(),
                _ => "its client waits until its request can be answered".to_string(),
            }
        }
        Type::Space => {
            let state = SpaceAt(at).get_state(0).ok()?;
            format!("{} of {} bytes of kernel memory", state.used, state.quota)
        }
        Type::Thread => {
            let mut state = ThreadState::default();
            ThreadAt(at).read_state(&mut state, 0, 0, 0).ok()?;
            words::doing(&state, process.is_call(state.registers.rip))
        }
        Type::Reference => {
            let named = RefAt(at).copy().ok()?;
            kind_in_words(named.kind()).to_string()
        }
    })
}

impl Manager {
    /// The process of the driver with this number in the manifest, or of the server of the same name.
    pub(crate) fn driver(&self, number: usize) -> Option<Pid> {
        let name = super::manifest().get(number)?.name();
        let mut all = self.entries.iter();
        let is = |entry: &super::Entry| {
            entry.live.is_some() && (entry.driver == Some(number) || entry.service == Some(name))
        };
        all.find(|(_, entry)| is(entry)).map(|(pid, _)| *pid)
    }

    fn process(&self, pid: Pid) -> Result<&Process, Error> {
        let entry = self.entries.get(&pid).ok_or(Error::NotFound)?;
        let live = entry.live.as_ref().ok_or(Error::Ended)?;
        Ok(&live.process)
    }

    /// The first objects of a process from a spot on, and where to continue. A step of the walk that finds no object,
    /// in a chunk that has had some, counts as one that finds one.
    fn first_objects(process: &Process, from: u64) -> (Vec<Found>, u64) {
        let mut walk = process.walk(from, all_kinds());
        let mut all = Vec::new();
        for _ in 0..MOST_COMPARED {
            if all.len() == MOST_OBJECTS {
                break;
            }
            match walk.next() {
                Some(found) => all.extend(found),
                None => return (all, NOWHERE),
            }
        }
        (all, walk.spot())
    }

    /// Implements [`services::system::System::objects`].
    pub(crate) fn objects(&self, pid: Pid, from: u64) -> Result<(u64, Vec<Object>), Error> {
        let process = self.process(pid)?;
        let mut known = names::names_of(pid);
        let (found, next) = Manager::first_objects(process, from);
        let told = found.into_iter().filter_map(|found| {
            let mut what = in_words(process, &found)?;
            if found.kind == Type::Port {
                if let Ok(port) = PortAt(found.address).reference() {
                    known.retain(|(name, named)| {
                        let other = !named.same_as(*port);
                        if !other {
                            what = format!("known as '{name}' {what}").trim_end().to_string();
                        }
                        other
                    });
                }
            }
            Some(Object {
                spot: found.spot,
                kind: found.kind.name().to_string(),
                what,
            })
        });
        Ok((next, told.collect()))
    }

    /// Walks over the objects of these kinds of all processes, from a place on. Calls `each` with a reference to the
    /// object or, if it is a reference, to what it names. `each` returns how many comparisons it made, or `None` if
    /// there is nothing left to look for. Returns where to continue.
    fn search(
        &self,
        kinds: u64,
        (first, at): Place,
        mut each: impl FnMut(Pid, &Found, RefAt) -> Option<usize>,
    ) -> Result<Place, Error> {
        let reference = Ref::new().map_err(rt::error_of)?;
        let mut spent = 0;
        for (pid, entry) in self.entries.range(first..) {
            let Some(live) = &entry.live else { continue };
            let from = if *pid == first { at } else { 0 };
            let mut walk = live.process.walk(from, kinds);
            loop {
                let spot = walk.spot();
                if spent >= MOST_COMPARED {
                    return Ok((*pid, spot));
                }
                let Some(step) = walk.next() else { break };
                spent += 1;
                let Some(found) = step else { continue };
                // The object may be gone.
                if point(&found, *reference).is_ok() {
                    match each(*pid, &found, *reference) {
                        Some(compared) => spent += compared,
                        None => return Ok((NOBODY, 0)),
                    }
                }
            }
        }
        Ok((NOBODY, 0))
    }

    /// Implements [`services::system::System::waits`].
    pub(crate) fn waits(&self, pid: Pid, from: Place) -> Result<Search<Wait>, Error> {
        let process = self.process(pid)?;
        let own = &self.entries.get(&pid).and_then(|entry| entry.live.as_ref());
        let own = own.ok_or(Error::Ended)?;
        let system = names::own()?;
        let (mut list, mut open) = (Vec::new(), Vec::new());
        let steps = process.walk(0, 1 << Type::Thread as u64);
        let threads = steps.take(MOST_COMPARED).flatten().take(MOST_WAITS);
        let threads = threads.map(|found| ThreadAt(found.address));
        for (thread, at) in threads.enumerate() {
            let Some((at, end)) = end_of(process, at) else {
                continue;
            };
            let thread = thread as u32;
            let known = match &end {
                End::Known(on) => Some(*on),
                End::Port(port) if port.same_as(*own.own.reference) || port.same_as(system) => {
                    Some(On::Init)
                }
                _ => None,
            };
            match known {
                Some(on) => list.push(Wait { thread, at, on }),
                None => open.push((thread, at, end)),
            }
        }
        let ends = Ref::new().map_err(rt::error_of)?;
        let kinds = 1 << Type::Port as u64 | 1 << Type::Thread as u64;
        let next = match open.is_empty() {
            true => (NOBODY, 0),
            false => self.search(kinds, from, |other, found, reference| {
                let compared = open.len();
                open.retain(|(thread, at, end)| {
                    let thread_end = |into: fn(ThreadAt, RefAt) -> Result<(), abi::Code>| {
                        into(ThreadAt(found.address), *ends)
                            .is_ok()
                            .then_some(*ends)
                    };
                    let same = match (end, found.kind) {
                        (End::Port(port), Type::Port) => port.same_as(reference),
                        (End::Server(server), Type::Thread) => {
                            thread_end(ThreadAt::server_end_into).is_some_and(|e| server.same_as(e))
                        }
                        (End::Client(client), Type::Thread) => {
                            thread_end(ThreadAt::client_end_into).is_some_and(|e| client.same_as(e))
                        }
                        _ => false,
                    };
                    if same {
                        list.push(Wait {
                            thread: *thread,
                            at: *at,
                            on: On::Process(other),
                        });
                    }
                    !same
                });
                (!open.is_empty()).then_some(compared)
            })?,
        };
        list.extend(open.into_iter().map(|(thread, at, _)| Wait {
            thread,
            at,
            on: On::Unknown,
        }));
        Ok(Search { next, list })
    }

    /// Implements [`services::system::System::links`].
    pub(crate) fn links(&self, pid: Pid, of: u64, from: Place) -> Result<Search<Link>, Error> {
        let process = self.process(pid)?;
        let mut targets = Vec::new();
        for found in Manager::first_objects(process, of).0 {
            let reference = Ref::new().map_err(rt::error_of)?;
            if point(&found, *reference).is_ok() && reference.kind() != RefKind::Null {
                targets.push((found.spot, found.kind == Type::Reference, reference));
            }
        }
        let mut list = Vec::new();
        let next = self.search(all_kinds(), from, |other, found, reference| {
            if targets.is_empty() {
                return None;
            }
            let named = found.kind == Type::Reference;
            let all = targets.iter();
            // Two references that name the same object are not linked to each other, so only an object is compared with
            // a reference.
            let compared = all.filter(|(_, is_reference, _)| *is_reference != named);
            let mut count = 0;
            for (spot, _, target) in compared {
                count += 1;
                if target.same_as(reference) {
                    list.push(Link {
                        spot: *spot,
                        other,
                        at: found.spot,
                        named,
                    });
                }
            }
            Some(count)
        })?;
        Ok(Search { next, list })
    }
}
