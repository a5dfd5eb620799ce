//! Kernel objects: identity, body, and where they live.
//!
//! An object is an *identity* (a slot with a generation, named by references, links and wait queues) and a
//! *body* (its state). The slot's memory never changes its type; freeing an identity raises its generation, so
//! that links to the old identity read *dead*. A slot with an identity but no opened body is *vacant*: calls
//! that use it wait; calls that manage it return the code `Vacant` or end it.
//!
//! An object belongs to a place in user memory: physical frame and offset. The word at its handle is
//! only a hint that names the slot; the frame's list of objects decides, so a program that overwrites
//! the word does no harm, not even to itself.
//!
//! Key types: [`Header`], [`Link`], [`Target`], [`Table`], [`Object`]. One module per type says
//! what its state is and what must happen when it ends.

pub(crate) mod account;
pub(crate) mod cond;
pub(crate) mod connection;
pub(crate) mod io_ports;
pub(crate) mod lines;
mod link;
pub(crate) mod mapping;
pub(crate) mod mutex;
pub(crate) mod places;
pub(crate) mod port;
pub(crate) mod reference;
pub(crate) mod region;
pub(crate) mod space;
pub(crate) mod thread;
pub(crate) mod tree;
mod wait;

use crate::queue::WaitQueue;
use crate::{Kernel, Stop, K};
use abi::{Code, Type, OBJECT_ALIGN, PAGE_SIZE};
use account::Account;
use core::cell::Cell;
use hal::{NarrowCell, Pfn};
pub(crate) use link::{Link, NonNullLink, Target};
use space::Space;
use thread::Thread;

/// The number of a slot: type and index, in 24 bits. 0 stands for no slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjId(u32);

impl ObjId {
    const TYPE_SHIFT: u32 = 20;
    const BITS: u32 = 24;
    const ALL: u32 = (1 << Self::BITS) - 1;

    fn new(ty: Type, index: usize) -> Self {
        ObjId((ty as u32) << Self::TYPE_SHIFT | index as u32)
    }

    pub(crate) fn ty(self) -> Option<Type> {
        Type::from_raw(u64::from(self.0 >> Self::TYPE_SHIFT))
    }

    pub(crate) fn index(self) -> usize {
        (self.0 & ((1 << Self::TYPE_SHIFT) - 1)) as usize
    }
}

/// The phase of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Identity and body.
    Active,
    /// No identity.
    Free,
    /// An identity without a body.
    Vacant,
    /// An identity whose new body has not been opened by `set_state` yet: vacant to all calls but
    /// those that manage it by its handle and accept such a body.
    Fresh,
}

/// The generation of a slot's identity, its phase, and whether threads wait for its body, in one word. A link
/// that holds the word of an active object needs one comparison to find that the object is the same and still
/// active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life(u32);

impl Life {
    const PHASE: u32 = 3;
    /// Threads wait until the identity has a body again or ends. Never set while it is active.
    const AWAITED: u32 = 4;
    /// Number of bits below the generation.
    const LOW: u32 = 3;
    const NONE: Life = Life(0);

    fn first() -> Self {
        Life(1 << Self::LOW | Phase::Free as u32)
    }

    pub(crate) fn phase(self) -> Phase {
        match self.0 & Self::PHASE {
            0 => Phase::Active,
            1 => Phase::Free,
            2 => Phase::Vacant,
            _ => Phase::Fresh,
        }
    }

    /// The same identity in another phase, with no waiting threads.
    #[inline(always)]
    fn with(self, phase: Phase) -> Self {
        Life(self.0 & !(Self::PHASE | Self::AWAITED) | phase as u32)
    }

    /// The life of the slot after its identity ended: free, with the next generation. Never [`Life::NONE`].
    fn next(self) -> Self {
        let generation = (self.0 >> Self::LOW) + 1;
        Life((generation << Self::LOW).max(1 << Self::LOW)).with(Phase::Free)
    }
}

/// The header that every object has.
pub(crate) struct Header {
    /// The slot's number, and in the upper bits the object's offset in its physical frame, divided by
    /// [`OBJECT_ALIGN`].
    id_and_offset: Cell<u32>,
    life: Cell<Life>,
    pfn: Cell<Pfn>,
    /// The next object in the same physical frame, or the next free slot.
    next: Next,
    /// The account that pays for the slot.
    payer: NarrowCell<Account>,
}

/// A link in a list of objects of any type.
pub(crate) type Next = NarrowCell<Header>;

const NO_FRAME: Pfn = Pfn(u32::MAX);

impl Header {
    fn new(id: ObjId) -> Self {
        Header {
            id_and_offset: Cell::new(id.0),
            life: Cell::new(Life::first()),
            pfn: Cell::new(NO_FRAME),
            next: NarrowCell::none(),
            payer: NarrowCell::none(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.life.get().phase()
    }

    /// Sets the phase. Threads that wait for a body go on waiting.
    fn set_phase(&self, phase: Phase) {
        let awaited = self.life.get().0 & Life::AWAITED;
        self.life.set(Life(self.life.get().with(phase).0 | awaited));
    }

    /// Notes that a thread begins to wait for the object's body.
    pub(crate) fn await_body(&self) {
        self.life.set(Life(self.life.get().0 | Life::AWAITED));
    }

    /// Whether the object has a body that is not open yet, and threads wait until it is.
    #[inline(always)]
    fn is_fresh_and_awaited(&self) -> bool {
        let fresh = Phase::Fresh as u32 | Life::AWAITED;
        self.life.get().0 & (Life::PHASE | Life::AWAITED) == fresh
    }

    /// Clears the note that threads wait for the object's body. Returns whether it was set.
    #[inline(always)]
    fn take_awaited(&self) -> bool {
        let life = self.life.get().0;
        self.life.set(Life(life & !Life::AWAITED));
        life & Life::AWAITED != 0
    }

    /// Whether calls may use the object.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.phase() == Phase::Active
    }

    /// Checks that calls may use the object; otherwise the call waits.
    #[inline]
    pub(crate) fn open(&'static self) -> Result<(), Stop> {
        if self.is_open() {
            Ok(())
        } else {
            Err(Stop::Vacant(self))
        }
    }

    /// The identity in the slot, as numbers that can be compared later.
    pub(crate) fn name(&self) -> (ObjId, Life) {
        (self.id(), self.life.get().with(Phase::Active))
    }

    /// The slot's number.
    pub(crate) fn id(&self) -> ObjId {
        ObjId(self.id_and_offset.get() & ObjId::ALL)
    }

    /// The place where the object lives: physical frame, and offset in bytes.
    pub(crate) fn place(&self) -> (Pfn, u64) {
        (self.pfn.get(), u64::from(self.unit()) * OBJECT_ALIGN)
    }

    /// The offset in the frame, divided by [`OBJECT_ALIGN`].
    #[inline(always)]
    fn unit(&self) -> u32 {
        self.id_and_offset.get() >> ObjId::BITS
    }

    fn set_place(&self, pfn: Pfn, offset: u64) {
        self.pfn.set(pfn);
        let offset = unit_of(offset) << ObjId::BITS;
        self.id_and_offset.set(self.id().0 | offset);
    }

    /// The hint word that stands at the object's place.
    fn word(&self) -> u64 {
        u64::from(self.id().0)
    }
}

/// An offset in a frame, divided by [`OBJECT_ALIGN`].
#[inline(always)]
fn unit_of(offset: u64) -> u32 {
    (offset / OBJECT_ALIGN) as u32
}

/// The queues of threads that wait for vacant identities. There are several, chosen by slot, so that an identity that
/// opens or ends wakes few threads that wait for other identities.
pub(crate) struct Vacancies {
    queues: [WaitQueue; 64],
}

impl Vacancies {
    pub(crate) const fn new() -> Self {
        Vacancies {
            queues: [const { WaitQueue::new() }; 64],
        }
    }

    /// The queue for this identity.
    pub(crate) fn of(&'static self, h: &Header) -> &'static WaitQueue {
        &self.queues[h.id().index() % self.queues.len()]
    }

    #[cfg(any(test, fermata_probe))]
    pub(crate) fn each(&'static self) -> impl Iterator<Item = &'static WaitQueue> {
        self.queues.iter()
    }
}

/// The interface of the nine types of objects.
pub(crate) trait Object: Sized + 'static {
    const TYPE: Type;
    /// The target of a reference that names the object in its plain role.
    fn target(link: NonNullLink<Self>) -> Target;
    /// The link in a target, if that names an object of this type in its plain role.
    fn named(target: Target) -> Option<NonNullLink<Self>>;
    /// A value from which free slots are made: the object that stands for none in their fields.
    type Seed: Copy;
    /// A free slot.
    fn blank(head: Header, seed: Self::Seed) -> Self;
    fn head(&self) -> &Header;
    fn table(k: K) -> &'static Table<Self>;
    fn handles(k: K) -> &'static Handles<Self>;
    /// The object's cost, charged to its payer, in bytes.
    fn cost() -> u64 {
        core::mem::size_of::<Self>() as u64
    }
    /// Allocates what a slot in use needs besides its memory, at the payer's cost. Called before anything is
    /// changed. `None`: no memory.
    fn provide(&'static self, _: K, _payer: &'static Account) -> Option<()> {
        Some(())
    }
    /// The account that ends with the object, if it has one. It may have another payer.
    fn account(&self) -> Option<&'static Account> {
        None
    }
    /// Called before thread `t` destroys the object: wakes the threads that wait at the object, with preemption points
    /// in between. The threads, regions and mappings of a space, and the importers of a region, may be many as well,
    /// but `close` and `end` detach them, where no other thread runs.
    #[inline(always)]
    fn disperse(&'static self, _: K, _: &'static Thread) -> Result<(), Stop> {
        Ok(())
    }
    /// Gives the slot, which has no body, a body in its initial state.
    fn open(&'static self, k: K);
    /// Takes the body away. The identity stays: threads that wait on it are woken, try again and find it
    /// vacant.
    fn close(&'static self, k: K);
    /// Ends the identity, whose body is gone: detaches the objects that name it.
    fn end(&'static self, k: K);
}

/// Objects per chunk of a table.
pub(crate) const CHUNK: usize = 64;
/// Chunks per table.
const CHUNKS: usize = 4096;
const _: () = assert!(CHUNKS * CHUNK <= 1 << ObjId::TYPE_SHIFT);
const _: () = assert!(PAGE_SIZE / OBJECT_ALIGN <= 1 << (32 - ObjId::BITS));

/// The table of all slots of one type. It grows by chunks and never shrinks: memory never changes its type.
pub(crate) struct Table<T: Object> {
    seed: T::Seed,
    chunks: &'static [Cell<Option<&'static [T]>>],
    count: Cell<usize>,
    free: Next,
    used: Cell<usize>,
}

impl<T: Object> Table<T> {
    /// A table with its first slots, none of them in use.
    pub(crate) fn new(seed: T::Seed) -> Option<Self> {
        let table = Table {
            seed,
            chunks: hal::alloc_slice(CHUNKS, |_| Cell::new(None))?,
            count: Cell::new(0),
            free: NarrowCell::none(),
            used: Cell::new(0),
        };
        table.grow()?;
        Some(table)
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&'static T> {
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// Number of slots, in use or not.
    pub(crate) fn slots(&self) -> usize {
        self.count.get()
    }

    /// Number of slots in use.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Every slot, in use or not.
    #[cfg(any(test, fermata_probe))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> + '_ {
        (0..self.slots()).filter_map(|i| self.get(i))
    }

    /// The first slot, in use or not.
    pub(crate) fn first_slot(&self) -> Option<&'static T> {
        self.get(0)
    }

    /// The first free slot; grows the table if it has none.
    fn free_slot(&self) -> Option<&'static T> {
        if self.free.get().is_none() {
            self.grow()?;
        }
        self.get(self.free.get()?.id().index())
    }

    fn grow(&self) -> Option<()> {
        let chunk = self.count.get() / CHUNK;
        let place = self.chunks.get(chunk)?;
        // Index 0 of the first chunk is a slot like any other: the type bits keep its number
        // from being 0.
        let first = self.count.get();
        let slots = hal::alloc_slice(CHUNK, |i| {
            T::blank(Header::new(ObjId::new(T::TYPE, first + i)), self.seed)
        })?;
        place.set(Some(slots));
        self.count.set(first + CHUNK);
        for slot in slots.iter().rev() {
            slot.head().next.set(self.free.get());
            self.free.set(Some(slot.head()));
        }
        Some(())
    }
}

impl Kernel {
    /// The number of objects of each type, in the order of [`abi::Type`].
    pub(crate) fn census(&self) -> [usize; 9] {
        [
            self.mutexes.used(),
            self.conds.used(),
            self.mappings.used(),
            self.regions.used(),
            self.ports.used(),
            self.portsets.used(),
            self.spaces.used(),
            self.threads.used(),
            self.references.used(),
        ]
    }
}

/// Makes a slot that is in no table and stays free for ever. It stands for "no object" in links that always lead to
/// a slot.
pub(crate) fn no_object<T: Object>(seed: T::Seed) -> Option<&'static T> {
    hal::alloc_slice(1, |_| T::blank(Header::new(ObjId::default()), seed))?.first()
}

/// The header of the slot with this number.
fn header_of(k: K, id: ObjId) -> Option<&'static Header> {
    fn head<T: Object>(k: K, id: ObjId) -> Option<&'static Header> {
        T::table(k).get(id.index()).map(|o| o.head())
    }
    match id.ty()? {
        Type::Mutex => head::<mutex::Mutex>(k, id),
        Type::Cond => head::<cond::Cond>(k, id),
        Type::Mapping => head::<mapping::Mapping>(k, id),
        Type::Region => head::<region::Region>(k, id),
        Type::Port => head::<port::Port>(k, id),
        Type::Portset => head::<port::Portset>(k, id),
        Type::Space => head::<Space>(k, id),
        Type::Thread => head::<thread::Thread>(k, id),
        Type::Reference => head::<reference::Reference>(k, id),
    }
}

/// The list of objects in a physical frame. `None` for frames that cannot have any (device memory).
fn frame_list(k: K, pfn: Pfn) -> Option<&'static Next> {
    k.frames.get(pfn.0 as usize)
}

/// Calls `f` with offset and number of each object in a physical frame, in order of the offsets, until `f` returns
/// false.
pub(crate) fn objects_in(k: K, pfn: Pfn, mut f: impl FnMut(u64, ObjId) -> bool) {
    let mut at = frame_list(k, pfn).and_then(NarrowCell::get);
    while let Some(h) = at {
        if !f(h.place().1, h.id()) {
            return;
        }
        at = h.next.get();
    }
}

/// The number of consecutive frames from `pfn` on, at most `most`, that have no objects. Frames that programs cannot
/// have never have objects.
pub(crate) fn frames_without(k: K, pfn: Pfn, most: u64) -> u64 {
    let has_none = |&n: &u64| {
        let list = frame_list(k, Pfn(pfn.0.wrapping_add(n as u32)));
        list.is_none_or(|list| list.get().is_none())
    };
    (0..most).take_while(has_none).count() as u64
}

/// The first object in a physical frame from `from` on whose type is in `kinds` (bit n for type n): its offset and
/// type.
pub(crate) fn first_in(k: K, pfn: Pfn, from: u64, kinds: u64) -> Option<(u64, Type)> {
    let mut first = None;
    objects_in(k, pfn, |offset, id| {
        let ty = id
            .ty()
            .filter(|&ty| offset >= from && kinds & 1 << ty as u64 != 0);
        first = ty.map(|ty| (offset, ty));
        first.is_none()
    });
    first
}

/// The object at an offset in a physical frame. The word there is a hint that may be wrong.
#[inline(always)]
pub(crate) fn object_at(k: K, pfn: Pfn, offset: u64) -> Option<&'static Header> {
    let hint = ObjId(hal::read_word(pfn, offset) as u32);
    match header_of(k, hint) {
        Some(h) if h.place() == (pfn, offset) => Some(h),
        _ => position(k, pfn, offset)[1],
    }
}

/// Searches the list of a physical frame for an offset. Returns the last object before the offset, and the
/// object there.
pub(crate) fn position(k: K, pfn: Pfn, offset: u64) -> [Option<&'static Header>; 2] {
    let mut before = None;
    let mut at = frame_list(k, pfn).and_then(NarrowCell::get);
    while let Some(h) = at {
        if h.unit() >= unit_of(offset) {
            return [before, at.filter(|h| h.unit() == unit_of(offset))];
        }
        before = at;
        at = h.next.get();
    }
    [before, None]
}

/// Puts the object at a place that is free. The frame's list is in order of the offsets, so that a search finds
/// objects in address order.
fn bind(k: K, h: &'static Header, place: &Place) {
    let &Place { pfn, offset, .. } = place;
    // The object before the place may have been this one, which has left its old place.
    let before = place.before.filter(|before| before.pfn.get() == pfn);
    h.set_place(pfn, offset);
    if let Some(list) = frame_list(k, pfn) {
        let mut link = before.map_or(list, |before| &before.next);
        while let Some(next) = link.get() {
            if next.unit() > unit_of(offset) {
                break;
            }
            link = &next.next;
        }
        h.next.set(link.get());
        link.set(Some(h));
    }
    hal::write_word(pfn, offset, h.word());
}

/// Takes the object out of its frame's list.
fn unbind(k: K, h: &'static Header) {
    let (pfn, offset) = h.place();
    let Some(list) = frame_list(k, pfn) else {
        return;
    };
    let mut link = list;
    while let Some(at) = link.get() {
        if core::ptr::eq(at, h) {
            link.set(h.next.get());
            hal::write_word(pfn, offset, 0);
            break;
        }
        link = &at.next;
    }
    h.pfn.set(NO_FRAME);
    h.next.set(None);
}

/// A cache of handle lookups for one type, indexed by a hash that is the same for all addresses of an object.
/// An entry is valid while its object is active and stays in its place, and the space's epoch does not change.
pub(crate) struct Handles<T: 'static> {
    handles: [Cell<u64>; HANDLES],
    /// The epochs of the spaces in which the handles were found; 0: the entry is empty.
    epochs: [Cell<u64>; HANDLES],
    objects: [Cell<&'static T>; HANDLES],
}

const HANDLES: usize = 64;

const _: () = assert!(PAGE_SIZE.is_multiple_of(HANDLES as u64 * OBJECT_ALIGN));

impl<T: Object> Handles<T> {
    /// An empty cache. `any` fills the entries, and may be any object.
    pub(crate) fn new(any: &'static T) -> Self {
        Handles {
            handles: [const { Cell::new(0) }; HANDLES],
            epochs: [const { Cell::new(0) }; HANDLES],
            objects: core::array::from_fn(|_| Cell::new(any)),
        }
    }

    #[inline(always)]
    fn entry(handle: u64) -> usize {
        (handle / OBJECT_ALIGN) as usize % HANDLES
    }

    /// The active object at this handle, if the cache has it and nothing has been unmapped in the space since, so that
    /// a walk would find the object again.
    #[inline(always)]
    pub(crate) fn probe(&self, space: &Space, handle: u64) -> Option<&'static T> {
        let entry = Self::entry(handle);
        let here =
            self.handles[entry].get() == handle && self.epochs[entry].get() == space.epoch.get();
        here.then(|| self.objects[entry].get())
    }

    /// Enters an active object that a lookup of the handle found.
    pub(crate) fn note(&self, space: &Space, handle: u64, object: &'static T) {
        let entry = Self::entry(handle);
        self.handles[entry].set(handle);
        self.epochs[entry].set(space.epoch.get());
        self.objects[entry].set(object);
    }

    /// Removes an object that is about to become inactive or to move.
    fn forget(&self, object: &'static T) {
        let entry = Self::entry(object.head().place().1);
        if core::ptr::eq(self.objects[entry].get(), object) {
            self.epochs[entry].set(0);
        }
    }
}

/// A place in user memory at which an object can be made.
pub(crate) struct Place {
    pub(crate) pfn: Pfn,
    pub(crate) offset: u64,
    /// The last object before this place in its physical frame, if known.
    pub(crate) before: Option<&'static Header>,
}

/// A place at an offset in the frame of a physical address, for boot.
pub(crate) fn place_at(physical: u64, offset: u64) -> Place {
    Place {
        pfn: Pfn((physical / PAGE_SIZE) as u32),
        offset,
        before: None,
    }
}

/// Makes an object: with a new identity, or as the new body of a vacant one.
pub(crate) fn create<T: Object>(
    k: K,
    payer: &'static Account,
    place: &Place,
    vacant: Option<&'static T>,
) -> Result<&'static T, Stop> {
    if let Some(object) = vacant {
        unbind(k, object.head());
        bind(k, object.head(), place);
        object.head().set_phase(Phase::Fresh);
        object.open(k);
        return Ok(object);
    }
    payer.charge(T::cost())?;
    let table = T::table(k);
    let Some(object) = table
        .free_slot()
        .filter(|object| object.provide(k, payer).is_some())
    else {
        payer.discharge(k, T::cost());
        return Err(Stop::Code(Code::NoMemory));
    };
    let h = object.head();
    table.free.set(h.next.get());
    table.used.set(table.used.get() + 1);
    h.next.set(None);
    h.payer.set(Some(payer));
    h.set_phase(Phase::Active);
    bind(k, h, place);
    object.open(k);
    Ok(object)
}

/// Destroys an object: its body, and also its identity unless `keep` is set.
pub(crate) fn destroy<T: Object>(k: K, object: &'static T, keep: bool) {
    let h = object.head();
    match h.phase() {
        Phase::Active | Phase::Fresh => {
            // The object becomes vacant first, so that threads which are woken to try again do not find it open.
            h.set_phase(Phase::Vacant);
            T::handles(k).forget(object);
            object.close(k);
        }
        Phase::Vacant => {}
        Phase::Free => return,
    }
    if !keep {
        finish(k, object);
    }
}

/// Ends the identity of a vacant object and frees its slot.
fn finish<T: Object>(k: K, object: &'static T) {
    let h = object.head();
    let awaited = h.take_awaited();
    object.end(k);
    unbind(k, h);
    h.life.set(h.life.get().next());
    if let Some(payer) = h.payer.take() {
        payer.discharge(k, T::cost());
    }
    let table = T::table(k);
    table.used.set(table.used.get() - 1);
    h.next.set(table.free.get());
    table.free.set(Some(h));
    if awaited {
        k.vacancies.of(h).wake_all_in_turns(k);
    }
}

/// Ends the identity that a reference kept, when the reference no longer names it. An identity that has a body lives
/// on.
pub(crate) fn release_kept(k: K, target: Target) {
    fn release<T: Object>(k: K, link: NonNullLink<T>) {
        if let Some(object) = link.get() {
            if object.head().phase() == Phase::Vacant {
                finish(k, object);
            }
        }
    }
    match target {
        Target::Null | Target::Authority => {}
        Target::Mutex(link) => release(k, link),
        Target::Cond(link) => release(k, link),
        Target::Mapping(link) => release(k, link),
        Target::Region(link) => release(k, link),
        Target::Port(link) => release(k, link),
        Target::Portset(link) => release(k, link),
        Target::Space(link) => release(k, link),
        Target::Thread(link)
        | Target::ClientEnd(link)
        | Target::Client(link)
        | Target::ServerEnd(link) => {
            release(k, link);
        }
        Target::Reference(link) => release(k, link),
    }
}

/// Makes the account `by`, whose space moves the object to another place, pay for the object from then on: the old
/// payer would no longer find the object in its old place. Changes no payer that is `by` or a descendant of it.
pub(crate) fn take_over<T: Object>(
    k: K,
    by: &'static Account,
    object: &'static T,
) -> Result<(), Stop> {
    let h = object.head();
    let of_others = |payer: &&'static Account| !core::ptr::eq(*payer, by) && !by.is_above(payer);
    let payer = h.payer.get().filter(of_others);
    // The payer of a space's account need not be the payer of the space.
    let account = object.account();
    let account = account.filter(|account| account.payer().as_ref().is_some_and(of_others));
    let cost = payer.map_or(0, |_| T::cost());
    let all = cost + account.map_or(0, Account::lent);
    by.charge(all).map_err(|_| Stop::Code(Code::Denied))?;
    if let Some(payer) = payer {
        payer.discharge(k, cost);
        h.payer.set(Some(by));
    }
    if let Some(account) = account {
        account.pass(k, by);
    }
    Ok(())
}

/// Moves an object to another place.
pub(crate) fn relocate<T: Object>(k: K, object: &'static T, place: &Place) {
    T::handles(k).forget(object);
    unbind(k, object.head());
    bind(k, object.head(), place);
}

/// Wakes the threads that wait for a vacant identity, before `t` sets the state of its new body: they find it open when
/// they try again. Not called for spaces, whose own threads would come back to the queue: [`opened`] wakes all waiters.
#[inline(always)]
pub(crate) fn opening(k: K, t: &Thread, h: &Header) -> Result<(), Stop> {
    if h.is_fresh_and_awaited() {
        return k.vacancies.of(h).wake_all_or_again(k, t);
    }
    Ok(())
}

/// Marks a vacant identity's new body as open, once its state is set, and wakes the threads that wait for it.
#[inline(always)]
pub(crate) fn opened(k: K, h: &Header) {
    if h.phase() == Phase::Fresh {
        let awaited = h.take_awaited();
        h.set_phase(Phase::Active);
        if awaited {
            k.vacancies.of(h).wake_all_in_turns(k);
        }
    }
}

/// Wakes the threads that wait at the object, or for its body, before `t` destroys it. They try again and find it gone.
#[inline(always)]
pub(crate) fn disperse<T: Object>(
    k: K,
    t: &'static Thread,
    object: &'static T,
) -> Result<(), Stop> {
    object.disperse(k, t)?;
    if object.head().phase() != Phase::Active {
        k.vacancies.of(object.head()).wake_all_or_again(k, t)?;
    }
    Ok(())
}

/// The place of the object with this number, if it has one.
#[cfg(any(test, fermata_probe))]
pub(crate) fn place_of(k: K, id: ObjId) -> Option<(Pfn, u64)> {
    header_of(k, id)?.bound()
}

#[cfg(any(test, fermata_probe))]
impl Header {
    pub(crate) fn payer(&self) -> Option<&'static Account> {
        self.payer.get()
    }
    /// Its place, if it has one.
    pub(crate) fn bound(&self) -> Option<(Pfn, u64)> {
        (self.pfn.get() != NO_FRAME).then(|| self.place())
    }
}

#[cfg(any(test, fermata_probe))]
impl<T: Object> Table<T> {
    /// Slots in use, and slots in the free list.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let (mut free, mut at) = (0, self.free.get());
        while let Some(slot) = at {
            free += 1;
            assert_eq!(slot.phase(), Phase::Free);
            at = slot.next.get();
        }
        (self.used.get(), free)
    }
}

#[cfg(any(test, fermata_probe))]
impl<T: Object> Handles<T> {
    /// Calls `f` with handle and object of each entry that is valid for that epoch.
    pub(crate) fn each(&self, epoch: u64, mut f: impl FnMut(u64, &'static T)) {
        for entry in (0..HANDLES).filter(|&entry| self.epochs[entry].get() == epoch) {
            f(self.handles[entry].get(), self.objects[entry].get());
        }
    }
}
