//! The memory server: makes the kernel calls that `memory::segments` decides on, and answers requests.
//!
//! Init starts it with a reference to the root region, maps its own memory beforehand, and names the
//! free physical memory in its arguments (`START+SIZE`, hexadecimal). It maps all of that into its
//! own space, for zeroing and copying, and exports windows of its space as segments.
//!
//! One thread receives everything as register messages: faults from the kernel, and requests of the interfaces in
//! `services::memory` as idempotent calls, each at a port whose alias identifies the segment or account. Nothing that
//! the server does can fault or wait, so no client can delay it.
#![no_std]
#![no_main]

extern crate alloc;

use abi::access::{ALL, EXECUTE, READ, WRITE};
use abi::message::FaultMessage;
use abi::state::{port_flags, MappingState, PortState, RegionState};
use abi::{Code, PAGE_SIZE};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use interface::server::{
    own_port, Done, Host, NoSessions, Reply, Request, Service, SharedService, Visitor,
};
use interface::{interface, Answer, Error, Server};
use memory::accounts;
use memory::alias;
use memory::chunks::{Chunks, CHUNK};
use memory::segments::owed::Left;
use memory::segments::{Id, Machine, Progress, Refusal, Segments, Shown};
use proto::layout::{MEMORY_SIZE, PRIORITY_PROGRAM};
use rt::obj::{Mapping, MappingAt, Port, Portset, Ref, RefAt, Region, RegionAt};
use rt::{error_of, slots, start, sys, window};
use services::memory::{
    Account, AccountControl, AccountControlStub, AccountStub, MemorySupervisor,
    MemorySupervisorStub, Segment, SegmentStub, Supplier, SupplierStub, NOTHING,
};

rt::entry!(main);

/// Where physical memory is mapped: this plus the physical address.
const PHYSICAL: u64 = 0x0800_0000_0000;

/// References that init puts into the start page.
mod passed {
    /// The root region.
    pub(crate) const ROOT: usize = 0;
    /// A reference that the server points at its supervisor port.
    pub(crate) const SUPERVISOR: usize = 1;
    /// The thread to interrupt when that port exists.
    pub(crate) const STARTER: usize = 2;
}

/// The part of the memory that is kept for the promises of new accounts.
const SPARE_PART: usize = 4;

/// The kernel calls that the bookkeeping makes, and the objects of segments, by their numbers.
struct Calls {
    root: RefAt,
    objects: Vec<Option<Objects>>,
}

impl Calls {
    fn state(shown: Shown) -> MappingState {
        MappingState {
            start: shown.address,
            size: shown.size,
            offset: shown.physical,
            protection: shown.rights,
        }
    }
}

impl Calls {
    fn map_of(&mut self, region: u64, shown: Shown) -> Option<u64> {
        let slot = slots::allocate(1)?;
        let mapping = MappingAt(slot);
        if mapping.create().is_err() {
            slots::free(slot, 1);
            return None;
        }
        if mapping.set_state(&Calls::state(shown), region, 0).is_err() {
            self.unmap(slot);
            return None;
        }
        Some(slot)
    }

    /// A reference to the region below a segment.
    fn below(&self, id: Id) -> Option<Ref> {
        let objects = self.objects.get(id)?.as_ref()?;
        objects.below.as_ref()?.reference().ok()
    }

    /// Makes a region export a window, with a segment's keeper.
    fn export_as(&self, region: RegionAt, id: Id, state: &RegionState) -> Result<(), Code> {
        let objects = self.objects.get(id).and_then(Option::as_ref);
        let keeper = objects.ok_or(Code::Dead)?.keeper.reference()?;
        region.set_state(state, 0, keeper.handle())
    }
}

impl Machine for Calls {
    fn map(&mut self, shown: Shown) -> Option<u64> {
        self.map_of(self.root.0, shown)
    }

    fn change(&mut self, mapping: u64, shown: Shown) -> bool {
        MappingAt(mapping)
            .set_state(&Calls::state(shown), self.root.0, 0)
            .is_ok()
    }

    fn unmap(&mut self, mapping: u64) {
        let _ = MappingAt(mapping).destroy();
        slots::free(mapping, 1);
    }

    fn zero(&mut self, physical: u64, size: u64) {
        // SAFETY: physical memory that this server manages, mapped here, and no Rust object.
        unsafe { core::ptr::write_bytes((PHYSICAL + physical) as *mut u8, 0, size as usize) };
    }

    fn copy(&mut self, from: u64, to: u64, size: u64) {
        // SAFETY: as for `zero`; the two are different chunks.
        unsafe {
            core::ptr::copy_nonoverlapping(
                (PHYSICAL + from) as *const u8,
                (PHYSICAL + to) as *mut u8,
                size as usize,
            );
        }
    }

    fn has_objects(&mut self, physical: u64, size: u64) -> bool {
        self.root
            .search(physical, physical + size, ALL_TYPES)
            .is_ok()
    }

    fn destroy_objects(&mut self, physical: u64, size: u64, most: u64) -> u64 {
        let end = physical + size;
        let mut at = physical;
        for gone in 0..most {
            let Ok((found, kind)) = self.root.search(at, end, ALL_TYPES) else {
                return gone;
            };
            destroy_object(PHYSICAL + found, kind);
            at = found + abi::OBJECT_SIZE;
        }
        most
    }

    fn export(&mut self, id: Id, window: u64, size: u64) -> bool {
        let objects = self.objects.get(id).and_then(Option::as_ref);
        let Some(region) = objects.map(|objects| *objects.region) else {
            return false;
        };
        self.export_as(region, id, &whole(window, size, ALL))
            .is_ok()
    }

    fn withdraw(&mut self, id: Id, window: u64, size: u64) {
        let objects = self.objects.get(id).and_then(Option::as_ref);
        if let Some(region) = objects.map(|objects| *objects.region) {
            let _ = region.set_state(&whole(window, size, 0), 0, 0);
        }
    }

    fn begin_below(&mut self, id: Id, window: u64, size: u64) -> bool {
        let Ok(region) = Region::new() else {
            return false;
        };
        let made = self.export_as(*region, id, &whole(window, size, READ | EXECUTE));
        match at(&mut self.objects, id) {
            Some(objects) if made.is_ok() => {
                objects.below = Some(region);
                true
            }
            _ => false,
        }
    }

    fn map_below(&mut self, id: Id, shown: Shown) -> Option<u64> {
        let below = self.below(id)?;
        self.map_of(below.handle(), shown)
    }

    fn change_below(&mut self, id: Id, mapping: u64, shown: Shown) -> bool {
        let Some(below) = self.below(id) else {
            return false;
        };
        MappingAt(mapping)
            .set_state(&Calls::state(shown), below.handle(), 0)
            .is_ok()
    }

    fn end_below(&mut self, id: Id) {
        if let Some(objects) = at(&mut self.objects, id) {
            objects.below = None;
        }
    }
}

/// A region over a whole window.
const fn whole(window: u64, size: u64, protection: u64) -> RegionState {
    RegionState {
        start: window,
        size,
        protection,
    }
}

/// For `region_search`: objects of every type, but no pages.
const ALL_TYPES: u64 = 0x3fe;

fn destroy_object(handle: u64, kind: u64) {
    use abi::Type;
    match Type::from_raw(kind) {
        Some(Type::Mutex) => sys::mutex_destroy(handle, 0),
        Some(Type::Cond) => sys::cond_destroy(handle, 0),
        Some(Type::Mapping) => sys::mapping_destroy(handle, 0),
        Some(Type::Region) => sys::region_destroy(handle, 0),
        Some(Type::Port) => sys::port_destroy(handle, 0),
        Some(Type::Portset) => sys::portset_destroy(handle, 0),
        Some(Type::Space) => sys::space_destroy(handle, 0),
        Some(Type::Thread) => sys::thread_destroy(handle, 0),
        Some(Type::Reference) => sys::reference_destroy(handle, 0),
        None => Code::Ok,
    };
}

/// The requests of the server's second thread.
#[interface(shared)]
trait Reaper {
    /// Does a step of taking ended segments apart. Returns whether there is more to do. Errors: none of its own. May be
    /// repeated.
    fn step(&self) -> Result<bool, Error>;
}

/// The objects of a segment.
struct Objects {
    region: Region,
    /// The region; the ports end with it.
    control: Port,
    keeper: Port,
    /// The region below it, while the segment is frozen.
    below: Option<Region>,
    /// The port of its supplier, if it has one.
    supplier: Option<Port>,
    /// Threads that have touched owed chunks wait at the keeper's port, which holds its clients.
    waited_for: bool,
}

/// One of the two ports of an account: a session.
struct AccountSession<S> {
    _port: Port,
    stub: Rc<S>,
    done: Rc<RefCell<Done>>,
}

/// The ports of an account.
struct AccountPorts {
    process: AccountSession<AccountStub<OfAccount>>,
    manager: AccountSession<AccountControlStub<OfAccount>>,
}

/// The state of the server.
struct Memory {
    segments: Segments,
    calls: Calls,
    accounts: Vec<Option<AccountPorts>>,
    portset: RefAt,
    /// For finding out which port a reference names.
    compared: Ref,
    /// The thread that requests steps of taking segments apart ([`reaper`]).
    reaper: Option<Ref>,
    /// The current request is to be delivered again.
    again: bool,
}

/// Puts a value into the list at its number. Numbers count from 0.
fn put<T>(list: &mut Vec<Option<T>>, id: usize, value: T) {
    if list.len() <= id {
        list.resize_with(id + 1, || None);
    }
    list[id] = Some(value);
}

/// The entry with this number of a list.
fn at<T>(list: &mut [Option<T>], id: usize) -> Option<&mut T> {
    list.get_mut(id).and_then(Option::as_mut)
}

/// How many bytes of a range of this size are done.
const fn bytes_done(progress: Progress, size: u64) -> u64 {
    match progress {
        Progress::Done => size,
        Progress::More(bytes) => bytes,
    }
}

/// Region and control port of a segment, for a client.
type Pair = (Ref, Ref);

/// Size and alignment of the window of a segment of this size.
const fn room(size: u64) -> (u64, u64) {
    let room = size.next_multiple_of(CHUNK);
    (room, if room >= 1 << 30 { 1 << 30 } else { CHUNK })
}

impl Memory {
    fn port(&self, kind: u64, id: usize) -> Result<Port, Code> {
        own_port(self.portset, alias::of(kind, id))
    }

    fn new_objects(&self, state: &RegionState, id: Id) -> Result<(Objects, Pair), Code> {
        let keeper = self.port(alias::KEEPER, id)?;
        let control = self.port(alias::CONTROL, id)?;
        let region = Region::new()?;
        let keeper_ref = keeper.reference()?;
        region.set_state(state, 0, keeper_ref.handle())?;
        let pair = (region.reference()?, control.reference()?);
        let objects = Objects {
            region,
            control,
            keeper,
            below: None,
            supplier: None,
            waited_for: false,
        };
        Ok((objects, pair))
    }

    /// Makes the objects of a new segment, which ends if that is impossible.
    fn with_objects(&mut self, id: Id, state: &RegionState) -> Result<(Id, Pair), Refusal> {
        match self.new_objects(state, id) {
            Ok((objects, pair)) => {
                put(&mut self.calls.objects, id, objects);
                Ok((id, pair))
            }
            Err(code) => {
                // No client has seen the segment: it ends at once.
                self.destroy(id)?;
                self.ended();
                Err(error_of(code).into())
            }
        }
    }

    /// Makes a segment.
    fn create(&mut self, account: accounts::Id, size: u64) -> Result<(Id, Pair), Refusal> {
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) || size > MEMORY_SIZE {
            return Err(Error::Invalid.into());
        }
        let (room, align) = room(size);
        let window = window::take_addresses(room, align).ok_or(Error::NoMemory)?;
        let id = match self.segments.create(account, window, size) {
            Ok(id) => id,
            Err(refusal) => {
                window::give_addresses(window, room);
                return Err(refusal);
            }
        };
        self.with_objects(id, &whole(window, size, ALL))
    }

    /// Begins a frozen copy of a segment, in this account.
    fn freeze(
        &mut self,
        account: accounts::Id,
        segment: Id,
        control: &RefAt,
    ) -> Result<(bool, Ref, Ref), Refusal> {
        if !self.is_control(segment, control) {
            return Err(Error::NotFound.into());
        }
        let (_, size) = self.segments.describe(segment)?;
        let (room, align) = room(size);
        let window = window::take_addresses(room, align).ok_or(Error::NoMemory)?;
        let frozen = self
            .segments
            .freeze(&mut self.calls, segment, account, window);
        let id = frozen.inspect_err(|_| window::give_addresses(window, room))?;
        let old = self.segments.window(id)?;
        let (_, (region, control)) = self.with_objects(id, &whole(old, size, READ))?;
        match self.segments.copy_on(&mut self.calls, id) {
            Ok(progress) => Ok((progress == Progress::Done, region, control)),
            Err(refusal) => {
                self.destroy(id)?;
                self.ended();
                Err(refusal)
            }
        }
    }

    /// Ends a segment. Clients cannot reach it any more; its memory is freed step by step.
    fn destroy(&mut self, id: Id) -> Result<(), Error> {
        self.segments.destroy(id)?;
        if let Some(place) = self.calls.objects.get_mut(id) {
            *place = None;
        }
        Ok(())
    }

    /// Ends an account and all its segments.
    fn end_account(&mut self, id: accounts::Id) {
        for segment in self.segments.of_account(id) {
            if let Some(place) = self.calls.objects.get_mut(segment) {
                *place = None;
            }
        }
        self.segments.end_account(id);
        if let Some(place) = self.accounts.get_mut(id) {
            *place = None;
        }
    }

    /// Does one step of freeing ended segments.
    fn reap(&mut self) {
        self.segments.reap(&mut self.calls, &mut |window, size| {
            window::give_addresses(window, size.next_multiple_of(CHUNK));
        });
    }

    /// To be called after a segment has ended: does a step at once, which is often all, and leaves the rest to the
    /// second thread.
    fn ended(&mut self) {
        self.reap();
        if let Some(reaper) = self.reaper.as_ref().filter(|_| self.segments.has_ended()) {
            let _ = reaper.interrupt();
        }
    }

    /// The segment of this account whose control port this is. Searches them all, since an account has few.
    fn by_control(&self, account: accounts::Id, control: &RefAt) -> Result<Id, Error> {
        let found = self
            .segments
            .of_account(account)
            .find(|id| self.is_control(*id, control));
        found.ok_or(Error::NotFound)
    }

    /// Whether this is the control port of a segment.
    fn is_control(&self, id: Id, control: &RefAt) -> bool {
        let objects = self.calls.objects.get(id).and_then(Option::as_ref);
        objects.is_some_and(|objects| {
            objects.control.reference_into(*self.compared).is_ok()
                && self.compared.same_as(*control)
        })
    }

    /// The port of the supplier of a segment of this account.
    fn supplier(&mut self, account: accounts::Id, id: Id) -> Result<Ref, Error> {
        let (owner, _) = self.segments.describe(id)?;
        if owner != account {
            return Err(Error::NotFound);
        }
        let portset = self.portset;
        let objects = at(&mut self.calls.objects, id).ok_or(Error::NotFound)?;
        let make = || {
            let port = Port::new()?;
            let reference = port.reference()?;
            let state = PortState {
                alias: alias::of(alias::SUPPLIER, id),
                flags: port_flags::CALLS_ONLY | port_flags::NOTIFY_UNREFERENCED,
            };
            port.set_state(&state, portset.handle())?;
            Ok((port, reference))
        };
        if let Some(port) = &objects.supplier {
            return port.reference().map_err(error_of);
        }
        let (port, reference) = make().map_err(error_of)?;
        objects.supplier = Some(port);
        Ok(reference)
    }

    /// Makes threads that touch owed chunks of this segment wait from now on, or lets the waiting ones be served again.
    fn wait_for(&mut self, id: Id, waits: bool) {
        let portset = self.portset;
        let Some(objects) = at(&mut self.calls.objects, id).filter(|o| o.waited_for != waits)
        else {
            return;
        };
        let holds = if waits { port_flags::HOLD_CLIENTS } else { 0 };
        let state = PortState {
            alias: alias::of(alias::KEEPER, id),
            flags: port_flags::CALLS_ONLY | holds,
        };
        if objects.keeper.set_state(&state, portset.handle()).is_ok() {
            objects.waited_for = waits;
        }
    }

    /// Begins a copy of a segment of this account.
    fn copy(&mut self, account: accounts::Id, from: Id) -> Result<(bool, Ref, Ref), Refusal> {
        let (owner, size) = self.segments.describe(from)?;
        if owner != account {
            return Err(Error::NotFound.into());
        }
        let (to, (region, control)) = self.create(account, size)?;
        match self.segments.copy(&mut self.calls, from, to) {
            Ok(progress) => Ok((progress == Progress::Done, region, control)),
            Err(refusal) => {
                self.destroy(to)?;
                self.ended();
                Err(refusal)
            }
        }
    }

    /// Total, free and taken bytes, as an account sees them.
    fn usage(&self, account: accounts::Id) -> (u64, u64, u64) {
        let (total, free) = self.segments.usage(account);
        (total, free, self.segments.taken(account))
    }
}

/// The state, which all sessions share.
type Shared = Rc<RefCell<Memory>>;

/// Makes a request that may have to be repeated later.
fn ask<T>(
    memory: &RefCell<Memory>,
    what: impl FnOnce(&mut Memory) -> Result<T, Refusal>,
) -> Result<T, Error> {
    let memory = &mut *memory.borrow_mut();
    what(memory).map_err(|refusal| match refusal {
        Refusal::Error(error) => error,
        Refusal::Again => {
            memory.again = true;
            Error::NoMemory
        }
    })
}

/// An account, for both of its ports. The state has the sessions, and these refer to the state, which is never dropped.
struct OfAccount {
    memory: Shared,
    id: accounts::Id,
}

impl OfAccount {
    fn create(&self, size: u64) -> Result<Pair, Error> {
        let made = ask(&self.memory, |memory| memory.create(self.id, size));
        made.map(|(_, pair)| pair)
    }

    fn reserve(&self, size: u64) -> Result<(), Error> {
        self.memory.borrow_mut().segments.reserve(self.id, size)
    }

    fn usage(&self) -> (u64, u64, u64) {
        self.memory.borrow().usage(self.id)
    }
}

impl Account for OfAccount {
    fn create(&self, size: u64) -> Result<(Ref, Ref), Error> {
        OfAccount::create(self, size)
    }

    fn copy(&self, segment: &RefAt) -> Result<(bool, Ref, Ref), Error> {
        ask(&self.memory, |memory| {
            let from = memory.by_control(self.id, segment)?;
            memory.copy(self.id, from)
        })
    }

    fn reserve(&self, size: u64) -> Result<(), Error> {
        OfAccount::reserve(self, size)
    }

    fn usage(&self) -> Result<(u64, u64, u64), Error> {
        Ok(OfAccount::usage(self))
    }
}

impl AccountControl for OfAccount {
    fn create(&self, size: u64) -> Result<(Ref, Ref), Error> {
        OfAccount::create(self, size)
    }

    fn copy(&self, segment: u32) -> Result<(bool, Ref, Ref), Error> {
        ask(&self.memory, |memory| {
            memory.copy(self.id, segment as usize)
        })
    }

    fn freeze(&self, segment: u32, control: &RefAt) -> Result<(bool, Ref, Ref), Error> {
        ask(&self.memory, |memory| {
            memory.freeze(self.id, segment as usize, control)
        })
    }

    fn reserve(&self, size: u64) -> Result<(), Error> {
        OfAccount::reserve(self, size)
    }

    fn usage(&self) -> Result<(u64, u64, u64), Error> {
        Ok(OfAccount::usage(self))
    }

    fn supplier(&self, segment: u32) -> Result<Ref, Error> {
        let memory = &mut *self.memory.borrow_mut();
        memory.supplier(self.id, segment as usize)
    }

    fn end(&self) -> Result<(), Error> {
        let memory = &mut *self.memory.borrow_mut();
        memory.end_account(self.id);
        memory.ended();
        Ok(())
    }
}

/// The supervisor port.
struct Supervisor<'a>(&'a Shared);

impl Supervisor<'_> {
    /// The ports of a new account, and references to them.
    fn ports(&self, id: accounts::Id) -> Result<(AccountPorts, Pair), Code> {
        let memory = self.0.borrow();
        let process = memory.port(alias::ACCOUNT, id)?;
        let process_ref = process.reference()?;
        let manager = Port::new()?;
        let manager_ref = manager.reference()?;
        let state = PortState {
            alias: alias::of(alias::ACCOUNT_CONTROL, id),
            flags: port_flags::CALLS_ONLY | port_flags::NOTIFY_UNREFERENCED,
        };
        manager.set_state(&state, memory.portset.handle())?;
        let of = || OfAccount {
            memory: Rc::clone(self.0),
            id,
        };
        let ports = AccountPorts {
            process: AccountSession {
                _port: process,
                stub: Rc::new(AccountStub(of())),
                done: Rc::default(),
            },
            manager: AccountSession {
                _port: manager,
                stub: Rc::new(AccountControlStub(of())),
                done: Rc::default(),
            },
        };
        Ok((ports, (process_ref, manager_ref)))
    }
}

impl MemorySupervisor for Supervisor<'_> {
    fn create_account(&self, promised: u64, most: u64, segments: u32) -> Result<(Ref, Ref), Error> {
        let chunks = |bytes: u64| bytes.div_ceil(CHUNK) as usize;
        let id = ask(self.0, |memory| {
            memory.segments.create_account(accounts::Limits {
                promised: chunks(promised),
                most: chunks(most),
                segments: segments as usize,
            })
        })?;
        match self.ports(id) {
            Ok((ports, pair)) => {
                put(&mut self.0.borrow_mut().accounts, id, ports);
                Ok(pair)
            }
            Err(code) => {
                self.0.borrow_mut().segments.end_account(id);
                Err(error_of(code))
            }
        }
    }

    fn usage(&self) -> Result<(u64, u64), Error> {
        Ok(self.0.borrow().segments.machine_usage())
    }
}

/// A segment, for its control port.
struct OfSegment<'a> {
    memory: &'a RefCell<Memory>,
    id: Id,
}

impl Segment for OfSegment<'_> {
    fn number(&self) -> Result<u32, Error> {
        u32::try_from(self.id).map_err(|_| Error::Broken)
    }

    fn copy_on(&self) -> Result<bool, Error> {
        ask(self.memory, |memory| {
            let progress = memory.segments.copy_on(&mut memory.calls, self.id)?;
            Ok(progress == Progress::Done)
        })
    }

    fn release(&self) -> Result<bool, Error> {
        let memory = &mut *self.memory.borrow_mut();
        let progress = memory.segments.release(&mut memory.calls, self.id)?;
        Ok(progress == Progress::Done)
    }

    fn is_intact(&self) -> Result<bool, Error> {
        Ok(self.memory.borrow().segments.is_intact(self.id))
    }

    fn present_from(&self, offset: u64) -> Result<(u64, u64), Error> {
        let segments = &self.memory.borrow().segments;
        segments.present_from(self.id, offset)
    }

    fn objects_from(&self, offset: u64) -> Result<u64, Error> {
        let Memory {
            segments, calls, ..
        } = &mut *self.memory.borrow_mut();
        segments.objects_from(calls, self.id, offset)
    }

    fn discard(&self, offset: u64, size: u64) -> Result<u64, Error> {
        ask(self.memory, |memory| {
            let Memory {
                segments, calls, ..
            } = memory;
            let progress = segments.discard(calls, self.id, offset, size);
            // The discarded chunks may have been the last owed ones, also if the request fails behind them: threads
            // that wait are served again.
            memory.wait_for(self.id, false);
            Ok(bytes_done(progress?, size))
        })
    }

    fn populate(&self, offset: u64, size: u64) -> Result<u64, Error> {
        ask(self.memory, |memory| {
            let Memory {
                segments, calls, ..
            } = memory;
            let progress = segments.populate(calls, self.id, offset, size)?;
            Ok(bytes_done(progress, size))
        })
    }

    fn usage(&self) -> Result<(u64, u64, u64), Error> {
        let memory = self.memory.borrow();
        let (account, _) = memory.segments.describe(self.id)?;
        let (total, free) = memory.segments.usage(account);
        Ok((total, free, memory.segments.resident(self.id)))
    }

    fn destroy(&self) -> Result<(), Error> {
        let memory = &mut *self.memory.borrow_mut();
        memory.destroy(self.id)?;
        memory.ended();
        Ok(())
    }
}

/// A segment, for the port of its supplier.
struct OfSupplier<'a> {
    memory: &'a RefCell<Memory>,
    id: Id,
}

/// The answer to a supplier, in words.
fn told(left: Left) -> (u64, u64) {
    (left.chunks, left.wanted.unwrap_or(NOTHING))
}

impl Supplier for OfSupplier<'_> {
    fn owe(&self, offset: u64, size: u64) -> Result<(), Error> {
        ask(self.memory, |memory| {
            memory.segments.owe(self.id, offset, size)
        })
    }

    fn supply(
        &self,
        offset: u64,
        size: u64,
        segment: u32,
        control: &RefAt,
    ) -> Result<(u64, u64), Error> {
        ask(self.memory, |memory| {
            let source = segment as usize;
            if !memory.is_control(source, control) {
                return Err(Error::NotFound.into());
            }
            let Memory {
                segments, calls, ..
            } = memory;
            let left = segments.supply(calls, self.id, (offset, size), source)?;
            // All waiting threads fault again, and those whose chunk is still owed wait again.
            memory.wait_for(self.id, false);
            Ok(told(left))
        })
    }

    fn left(&self) -> Result<(u64, u64), Error> {
        let left = self.memory.borrow().segments.left(self.id)?;
        Ok(told(left))
    }
}

/// The port of the server's second thread.
struct Steps<'a>(&'a RefCell<Memory>);

impl Reaper for Steps<'_> {
    fn step(&self) -> Result<bool, Error> {
        let mut memory = self.0.borrow_mut();
        memory.reap();
        Ok(memory.segments.has_ended())
    }
}

/// The ports of the server, which are all of its own making.
struct Ports(Shared);

impl Host<NoSessions> for Ports {
    const REFS: usize = AccountStub::<OfAccount>::REFS;

    fn open(&mut self, _: &Visitor) -> Result<NoSessions, Error> {
        Err(Error::Unsupported)
    }

    fn shared(&mut self, alias: u64, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let Ports(memory) = self;
        let (kind, id) = alias::parts(alias);
        match kind {
            alias::CONTROL => SegmentStub(OfSegment { memory, id }).answer(request, reply),
            alias::ACCOUNT | alias::ACCOUNT_CONTROL => {
                let stubs = at(&mut memory.borrow_mut().accounts, id).map(|ports| {
                    (
                        Rc::clone(&ports.process.stub),
                        Rc::clone(&ports.manager.stub),
                    )
                });
                match stubs {
                    Some((process, _)) if kind == alias::ACCOUNT => process.answer(request, reply),
                    Some((_, manager)) => manager.answer(request, reply),
                    None => Answer::Sent,
                }
            }
            alias::REAPER => ReaperStub(Steps(memory)).answer(request, reply),
            alias::SUPPLIER => SupplierStub(OfSupplier { memory, id }).answer(request, reply),
            alias::SUPERVISOR => MemorySupervisorStub(Supervisor(memory)).answer(request, reply),
            // A keeper's port receives only faults.
            _ => {
                reply.set::<()>(Err(Error::Unsupported));
                Answer::Now
            }
        }
    }

    fn session(&mut self, alias: u64) -> Option<Rc<RefCell<Done>>> {
        let (kind, id) = alias::parts(alias);
        let accounts = &mut self.0.borrow_mut().accounts;
        let ports = at(accounts, id);
        match kind {
            alias::ACCOUNT => ports.map(|ports| Rc::clone(&ports.process.done)),
            alias::ACCOUNT_CONTROL => ports.map(|ports| Rc::clone(&ports.manager.done)),
            _ => None,
        }
    }

    #[inline]
    fn fault(&mut self, alias: u64, message: &FaultMessage) -> bool {
        let memory = &mut *self.0.borrow_mut();
        let Memory {
            segments, calls, ..
        } = memory;
        let Some(id) = alias::kept(alias) else {
            return true;
        };
        match segments.fault(calls, id, message.offset, message.access) {
            Err(Refusal::Again) => {
                memory.reap();
                false
            }
            Err(Refusal::Error(Error::WouldBlock)) => {
                memory.wait_for(id, true);
                false
            }
            // The thread retries. If there is still no page, the kernel sends an exception to its space's keeper.
            _ => true,
        }
    }

    fn unreferenced(&mut self, alias: u64) {
        let (kind, id) = alias::parts(alias);
        let memory = &mut *self.0.borrow_mut();
        if kind == alias::ACCOUNT_CONTROL && at(&mut memory.accounts, id).is_some() {
            memory.end_account(id);
            memory.ended();
        }
        let objects = at(&mut memory.calls.objects, id).filter(|_| kind == alias::SUPPLIER);
        if objects
            .and_then(|objects| objects.supplier.take())
            .is_some()
        {
            // The supplier is gone, so owed chunks will never come. To end the segment is better than zeros, or threads
            // that wait for ever.
            let owes = memory.segments.left(id).is_ok_and(|left| left.chunks > 0);
            if owes && memory.destroy(id).is_ok() {
                memory.ended();
            }
        }
    }

    fn again(&mut self) -> bool {
        let memory = &mut *self.0.borrow_mut();
        let again = core::mem::take(&mut memory.again);
        if again {
            // There may be room when the request comes again, behind the other waiting clients.
            memory.reap();
        }
        again
    }
}

/// The second thread: it requests one step at a time, at the priority of programs. If the server did this work by
/// itself, at the highest priority, all others would wait.
fn reaper(port: RefAt) {
    let server = ReaperClient::at(port);
    loop {
        sys::thread_wait_interrupt();
        while server.step() == Ok(true) {}
    }
}

/// A range from an argument, `START+SIZE`.
fn range(argument: &str) -> Option<(u64, u64)> {
    let (first, size) = argument.split_once('+')?;
    Some((
        u64::from_str_radix(first, 16).ok()?,
        u64::from_str_radix(size, 16).ok()?,
    ))
}

/// Maps the free memory.
fn map_memory(root: RefAt) -> Result<Chunks, Code> {
    let mut chunks = Chunks::new();
    for (physical, size) in start::start().args.iter().filter_map(|a| range(a)) {
        let mapping = Mapping::new()?;
        let state = MappingState {
            start: PHYSICAL + physical,
            size,
            offset: physical,
            // Through this mapping the server also names objects in managed memory, to destroy them.
            protection: READ | WRITE | abi::access::OBJECTS,
        };
        mapping.set_state(&state, root.0, 0)?;
        // The mapping stays for as long as the server runs.
        core::mem::forget(mapping);
        chunks.add(physical, size);
    }
    chunks.finish();
    Ok(chunks)
}

fn serve() -> Result<(), Code> {
    let reference = |index| start::passed(index).ok_or(Code::Invalid);
    let root = reference(passed::ROOT)?;
    let chunks = map_memory(root)?;
    let spare = chunks.total() / SPARE_PART;
    let portset = Portset::new()?;
    let portset_ref = portset.reference()?;
    let mut memory = Memory {
        segments: Segments::new(chunks, spare),
        calls: Calls {
            root,
            objects: Vec::new(),
        },
        accounts: Vec::new(),
        portset: *portset_ref,
        compared: Ref::new()?,
        reaper: None,
        again: false,
    };
    let supervisor = memory.port(alias::SUPERVISOR, 0)?;
    let steps = memory.port(alias::REAPER, 0)?;
    let steps_ref = steps.reference()?;
    let thread = rt::thread::spawn_at(PRIORITY_PROGRAM, move || reaper(steps_ref.at()))?;
    memory.reaper = Some(thread.reference()?);
    let host = Ports(Rc::new(RefCell::new(memory)));
    let server = Server::on(portset, host).map_err(|_| Code::NoMemory)?;
    supervisor.reference_into(reference(passed::SUPERVISOR)?)?;
    reference(passed::STARTER)?.interrupt()?;
    server.run()
}

fn main() -> u8 {
    match serve() {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
