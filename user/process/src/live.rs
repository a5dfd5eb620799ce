//! A process as its manager holds it.
use crate::account::Supply;
use crate::image::Plan;
use abi::access::{OBJECTS, READ, WRITE};
use abi::state::{MappingState, Registers, SpaceState, ThreadState};
use abi::{Code, RefKind, Type, PAGE_SIZE};

use alloc::sync::{Arc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::iter;
use core::ops::Range;
use proto::layout::{
    CHUNK, CONTROL_MAPPINGS, CONTROL_SIZE, CONTROL_SPACE, CONTROL_THREAD, CONTROL_THREADS,
    MEMORY_SIZE,
};
use proto::Error;
use rt::error_of;
use rt::memory::{Account, Segment};
use rt::obj::{MappingAt, Ref, RefAt, SpaceAt, ThreadAt};
use rt::slots::Map;
use rt::window::Window;
use services::process::{IN_MEMORY, MAX_POPULATE};

/// Most kernel objects of a process that are counted for `ps`: each is a search in its memory, and a client that lists
/// processes must not delay other clients of the same server for longer.
pub const MOST_COUNTED: u32 = 1000;
/// Most threads of a process that `ps` describes, for the same reason.
pub const MOST_TOLD: usize = 64;

/// Most steps of the memory server in which a frozen copy is made: some 100 chunks that are full and have objects, some
/// 250 that have a page and an object each. The manager serves nobody else meanwhile. A process that needs more steps
/// is stopped until its image is written.
const MOST_STEPS: u32 = 32;

/// Slots for mappings in a control segment.
const MAPPING_SLOTS: usize = ((CONTROL_SIZE - CONTROL_MAPPINGS) / abi::OBJECT_SIZE) as usize;

/// Most mappings that a process may have: each costs kernel memory. The slots behind these are for pieces
/// ([`crate::watch`]).
pub(crate) const MAX_MAPPINGS: usize = 16 * 1024;

/// A process: two segments, mapped here, and the objects in them. Its memory ends when this is dropped;
/// [`Process::destroy`] ends it in good order.
#[derive(Debug)]
pub struct Process {
    /// The account of its memory, which ends with the last process that has it.
    account: Arc<Account>,
    memory: Segment,
    control: Segment,
    memory_window: Window,
    control_window: Window,
    /// Slots for mappings in use.
    slots: Map<Vec<u64>>,
    /// Bytes of the control segment that are known to be present.
    control_present: u64,
    /// Where the search for a free place for a thread begins.
    next_thread: Cell<u64>,
    /// A reference to the space, in the manager's memory.
    space_ref: Ref,
    /// The address of its memory's first byte: 0 unless it is collocated.
    base: u64,
    /// The account of its last frozen copy.
    copy: RefCell<Option<Ref>>,
}

/// A segment that several processes may map, in the account of the process for which it was made. The segment ends when
/// this is dropped.
#[derive(Debug)]
pub struct Common {
    /// Keeps the account as long as something is in it.
    _account: Arc<Account>,
    segment: Segment,
    window: Window,
    /// The account of its last frozen copy.
    copy: RefCell<Option<Ref>>,
}

impl Common {
    /// The segment.
    #[must_use]
    pub const fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The segment, mapped here.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// A frozen copy of the segment, as [`Process::freeze_memory`] makes one.
    pub fn freeze(
        &self,
        supply: &Supply,
        copies: &mut Copies,
        job: u32,
    ) -> Result<Vec<Ref>, Error> {
        frozen_copy(&self.segment, &self.copy, supply, (copies, job))
    }

    /// Makes pages of the segment present, as [`Process::populate`] does.
    pub fn populate(&self, offset: u64, size: u64) -> Result<(), Error> {
        match size > MAX_POPULATE {
            true => Err(Error::Invalid),
            false => self.segment.populate(offset, size),
        }
    }
}

/// The frozen copies that a manager has made and that are still held. A copy can outlive its process, and keeps two
/// accounts of the memory server, of which there are few.
#[derive(Debug)]
pub struct Copies {
    /// Accounts, and the job of the process.
    known: Vec<(u32, Ref)>,
    of_job: usize,
    of_all: usize,
}

impl Copies {
    /// At most `of_job` copies for one job other than 0, and `of_all` in all.
    #[must_use]
    pub const fn new(of_job: usize, of_all: usize) -> Self {
        Copies {
            known: Vec::new(),
            of_job,
            of_all,
        }
    }

    /// Checks that this job may have one more: [`Error::Limit`] if not.
    fn make_room(&mut self, job: u32) -> Result<(), Error> {
        self.known
            .retain(|(_, account)| account.kind() != RefKind::Null);
        let of_job = self.known.iter().filter(|(other, _)| *other == job).count();
        match self.known.len() >= self.of_all || job != 0 && of_job >= self.of_job {
            true => Err(Error::Limit),
            false => Ok(()),
        }
    }
}

/// Makes a frozen copy of a segment, which has one at a time; `known` has the account of the last one.
fn frozen_copy(
    segment: &Segment,
    last: &RefCell<Option<Ref>>,
    supply: &Supply,
    (copies, job): (&mut Copies, u32),
) -> Result<Vec<Ref>, Error> {
    let mut copy = last.borrow_mut();
    if copy.as_ref().is_some_and(|a| a.kind() != RefKind::Null) {
        return Err(Error::Limit);
    }
    copies.make_room(job)?;
    let account = Account::new(&supply.supervisor, supply.limits)?;
    let port = account.port()?;
    let known = account.account.copy().map_err(error_of)?;
    let Segment { region, control } = account.freeze(segment, MOST_STEPS)?;
    copies.known.push((job, known));
    *copy = Some(account.account);
    Ok(vec![region, control, port])
}

impl Drop for Common {
    /// Ends the segment; its account ends with the last process or segment in it.
    fn drop(&mut self) {
        let _ = rt::memory::destroy(&self.segment.control);
    }
}

/// Whether there is such an object at this offset of a region now. Does not cause a fault if the memory is absent.
fn has(region: &Ref, offset: u64, kind: Type) -> bool {
    let found = offset.checked_add(abi::OBJECT_SIZE);
    let found = found.map(|end| region.search(offset, end, 1 << kind as u64));
    matches!(found, Some(Ok((at, _))) if at == offset)
}

fn slot_map() -> Map<Vec<u64>> {
    let slots = MAX_MAPPINGS.min(MAPPING_SLOTS);
    Map::new(vec![0; slots.div_ceil(64)], slots)
}

/// Ends the parts of a process that could not be made.
fn give_up<T>(account: Arc<Account>, segments: Vec<Segment>, error: Error) -> Result<T, Error> {
    end(account, segments);
    Err(error)
}

/// Ends segments, and their account with the last process that has it.
fn end(account: Arc<Account>, segments: Vec<Segment>) {
    match Arc::into_inner(account) {
        Some(account) => {
            let _ = account.end();
        }
        None => {
            for segment in segments {
                let _ = segment.destroy();
            }
        }
    }
}

/// A snapshot of the memory of a process, of which the memories of others are copy-on-write copies. It is in the
/// account of that process, and ends with the account, or when this is dropped.
#[derive(Debug)]
pub struct Template {
    account: Weak<Account>,
    /// `None` only while this is dropped.
    segment: Option<Segment>,
}

impl Template {
    /// Whether it is in the account of this process.
    #[must_use]
    pub fn is_of(&self, process: &Process) -> bool {
        core::ptr::eq(self.account.as_ptr(), Arc::as_ptr(&process.account))
    }

    /// Whether its account still exists.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.account.strong_count() > 0
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        if let Some(segment) = self.segment.take().filter(|_| self.lives()) {
            let _ = segment.destroy();
        }
    }
}

/// A search for kernel objects that can be interrupted and continued, since each step takes a bounded time: `None` is
/// the end.
#[derive(Debug)]
pub struct Walk<'a> {
    process: &'a Process,
    /// Where it continues.
    spot: u64,
    /// The end of the current chunk, which may have objects.
    end: u64,
    kinds: u64,
}

/// An object of a process.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its spot.
    pub spot: u64,
    /// Where it is mapped in its manager's memory.
    pub address: u64,
    /// Its type.
    pub kind: Type,
}

impl Walk<'_> {
    /// Where the next step begins.
    #[must_use]
    pub const fn spot(&self) -> u64 {
        self.spot
    }
}

impl Iterator for Walk<'_> {
    /// A step finds one object, or none in the rest of a chunk.
    type Item = Option<Found>;

    fn next(&mut self) -> Option<Self::Item> {
        let process = self.process;
        let (segment, window, part) = match self.spot & IN_MEMORY {
            0 => (&process.control, &process.control_window, 0),
            part => (&process.memory, &process.memory_window, part),
        };
        let mut offset = self.spot & !IN_MEMORY;
        if offset >= self.end {
            let chunk = offset - offset % CHUNK;
            match segment.objects_from(chunk) {
                Ok(Some(start)) => {
                    offset = offset.max(start);
                    self.end = start + CHUNK;
                }
                _ if part == 0 => {
                    (self.spot, self.end) = (IN_MEMORY, 0);
                    return Some(None);
                }
                _ => return None,
            }
        }
        // A client may have given a spot that is no multiple of an object's size.
        match segment.region.search(offset, self.end, self.kinds) {
            Ok((found, kind)) => {
                self.spot = (found + abi::OBJECT_SIZE) | part;
                Some(Type::from_raw(kind).map(|kind| Found {
                    spot: found | part,
                    address: window.address() + found,
                    kind,
                }))
            }
            Err(_) => {
                self.spot = self.end | part;
                Some(None)
            }
        }
    }
}

impl Process {
    /// A new process, with an account of its own: an empty space with this state and keeper (or none), and a
    /// stopped first thread in it that has never run.
    pub fn create(
        supply: &Supply,
        space: &SpaceState,
        keeper: Option<&RefAt>,
    ) -> Result<Self, Error> {
        Process::empty(supply)?.with_objects(space, keeper, supply.payer)
    }

    fn with_objects(
        mut self,
        space: &SpaceState,
        keeper: Option<&RefAt>,
        payer: Option<RefAt>,
    ) -> Result<Self, Error> {
        match self.create_objects(space, keeper, payer) {
            Ok(()) => Ok(self),
            Err(error) => {
                self.destroy();
                Err(error)
            }
        }
    }

    fn create_objects(
        &mut self,
        space: &SpaceState,
        keeper: Option<&RefAt>,
        payer: Option<RefAt>,
    ) -> Result<(), Error> {
        self.ensure_control(CONTROL_MAPPINGS + PAGE_SIZE)?;
        let place = |offset| self.control_window.address() + offset;
        let made = || {
            let at = SpaceAt(place(CONTROL_SPACE));
            at.create()?;
            if let Some(payer) = payer {
                at.set_payer(payer)?;
            }
            at.set_state(space, keeper.map_or(0, |k| k.0))?;
            at.reference_into(*self.space_ref)?;
            ThreadAt(place(CONTROL_THREAD)).create()
        };
        made().map_err(error_of)
    }

    /// An account, and in it two segments and their windows, without any object.
    fn empty(supply: &Supply) -> Result<Self, Error> {
        let account = Account::new(&supply.supervisor, supply.limits)?;
        Process::empty_in(Arc::new(account))
    }

    /// Two segments of an account and their windows, without any object.
    fn empty_in(account: Arc<Account>) -> Result<Self, Error> {
        let memory = match account.create(MEMORY_SIZE) {
            Ok(memory) => memory,
            Err(error) => return give_up(account, Vec::new(), error),
        };
        Process::with_memory(account, memory)
    }

    /// A control segment for this memory.
    fn with_memory(account: Arc<Account>, memory: Segment) -> Result<Self, Error> {
        match account.create(CONTROL_SIZE) {
            Ok(control) => Process::around(account, memory, control),
            Err(error) => give_up(account, vec![memory], error),
        }
    }

    /// A further process, in the same account, with no memory yet.
    pub fn beside(&self, space: &SpaceState, keeper: &RefAt) -> Result<Self, Error> {
        let process = Process::empty_in(Arc::clone(&self.account))?;
        process.with_objects(space, Some(keeper), None)
    }

    /// A process whose memory is a copy-on-write copy of this one's, in the same account. It has no mappings. Writes to
    /// this one's memory meanwhile may be in the copy or not.
    pub fn copy(&self, space: &SpaceState, keeper: &RefAt) -> Result<Self, Error> {
        self.copy_of(&self.memory, space, keeper)
    }

    fn copy_of(
        &self,
        segment: &Segment,
        space: &SpaceState,
        keeper: &RefAt,
    ) -> Result<Self, Error> {
        let memory = self.account.copy(segment)?;
        let process = Process::with_memory(Arc::clone(&self.account), memory)?;
        process.with_objects(space, Some(keeper), None)
    }

    /// A template with the present contents of this process's memory. Writes to the memory meanwhile may be in it or
    /// not.
    pub fn template(&self) -> Result<Template, Error> {
        Ok(Template {
            segment: Some(self.account.copy(&self.memory)?),
            account: Arc::downgrade(&self.account),
        })
    }

    /// A process whose memory is a copy-on-write copy of a template of the same account. It has no mappings.
    pub fn made_of(
        &self,
        template: &Template,
        space: &SpaceState,
        keeper: &RefAt,
    ) -> Result<Self, Error> {
        let segment = template.segment.as_ref().ok_or(Error::Ended)?;
        self.copy_of(segment, space, keeper)
    }

    /// A further segment in the account of the process, of the size of its memory.
    pub fn common(&self) -> Result<Common, Error> {
        let segment = self.account.create(MEMORY_SIZE)?;
        match Window::map(&segment.region, 0, MEMORY_SIZE, READ | WRITE) {
            Ok(window) => Ok(Common {
                _account: Arc::clone(&self.account),
                segment,
                window,
                copy: RefCell::new(None),
            }),
            Err(error) => {
                let _ = segment.destroy();
                Err(error)
            }
        }
    }

    /// Maps the segments. If that fails, ends them.
    fn around(account: Arc<Account>, memory: Segment, control: Segment) -> Result<Self, Error> {
        let rights = READ | WRITE | OBJECTS;
        let made = Window::map(&memory.region, 0, MEMORY_SIZE, rights).and_then(|memory| {
            let control = Window::map(&control.region, 0, CONTROL_SIZE, rights)?;
            Ok((memory, control, Ref::new().map_err(error_of)?))
        });
        let (memory_window, control_window, space_ref) = match made {
            Ok(made) => made,
            Err(error) => return give_up(account, vec![memory, control], error),
        };
        let slots = slot_map();
        Ok(Process {
            account,
            memory,
            control,
            memory_window,
            control_window,
            slots,
            control_present: 0,
            next_thread: Cell::new(CONTROL_THREADS),
            space_ref,
            base: 0,
            copy: RefCell::new(None),
        })
    }

    /// Collocates the process, which has no mapping and has never run, at the first free one of these places: it runs
    /// in ring 1, and its memory begins at the place's first address. This needs the device authority.
    pub fn collocate(&mut self, authority: &RefAt, places: Range<u64>) -> Result<(), Error> {
        for place in places {
            match rt::sys::device_collocate(authority.handle(), self.space_ref.handle(), place) {
                Code::Ok => {
                    self.base = abi::collocated::range(place).0;
                    return Ok(());
                }
                Code::InUse => {}
                code => return Err(error_of(code)),
            }
        }
        Err(Error::Limit)
    }

    /// The address of its memory's first byte.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Makes the control segment present up to this offset, as [`Process::ensure`] does for memory.
    fn ensure_control(&mut self, end: u64) -> Result<(), Error> {
        if end > self.control_present {
            let end = end.next_multiple_of(PAGE_SIZE);
            self.control
                .populate(self.control_present, end - self.control_present)?;
            self.control_present = end;
        }
        Ok(())
    }

    /// Whether there is such an object at this offset of the control segment now.
    #[must_use]
    pub fn has(&self, offset: u64, kind: Type) -> bool {
        has(&self.control.region, offset, kind)
    }

    /// Whether space and first thread exist at their places.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        self.has(CONTROL_SPACE, Type::Space) && self.has(CONTROL_THREAD, Type::Thread)
    }

    /// The place of the mapping in this slot, counted in objects from [`CONTROL_MAPPINGS`].
    #[must_use]
    pub fn mapping(&self, slot: u64) -> MappingAt {
        MappingAt(self.control_window.address() + CONTROL_MAPPINGS + slot * abi::OBJECT_SIZE)
    }

    /// The offset in the control segment of the mapping that shows this page, if a manager has made one. A mapping that
    /// is cut ([`crate::watch`]) shows less than its range when whole.
    #[must_use]
    pub fn mapping_of(&self, page: u64) -> Option<u64> {
        let limit = CONTROL_MAPPINGS + MAX_MAPPINGS as u64 * abi::OBJECT_SIZE;
        let mut offset = CONTROL_MAPPINGS;
        let kinds = 1 << Type::Mapping as u64;
        while let Ok((found, _)) = self.control.region.search(offset, limit, kinds) {
            let mapping = MappingAt(self.control_window.address() + found);
            let shows = |state: MappingState| page.wrapping_sub(state.start) < state.size;
            if mapping.get_state(0, 0).is_ok_and(shows) {
                return Some(found);
            }
            offset = found + abi::OBJECT_SIZE;
        }
        None
    }

    /// Searches the control segment for objects. To be called after others have made objects there.
    pub fn learn(&mut self) -> Result<(), Error> {
        let space = self.space();
        space.reference_into(*self.space_ref).map_err(error_of)?;
        self.slots = slot_map();
        let mut offset = CONTROL_MAPPINGS;
        let limit = CONTROL_MAPPINGS + (MAX_MAPPINGS.min(MAPPING_SLOTS) as u64) * abi::OBJECT_SIZE;
        let kinds = 1 << Type::Mapping as u64;
        let mut used = Vec::new();
        while let Ok((found, _)) = self.control.region.search(offset, limit, kinds) {
            used.push(((found - CONTROL_MAPPINGS) / abi::OBJECT_SIZE) as usize);
            offset = found + abi::OBJECT_SIZE;
        }
        for slot in used {
            self.slots.take(slot);
        }
        Ok(())
    }

    /// The account.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// A number for its account, unique as long as the account exists.
    #[must_use]
    pub fn account_number(&self) -> usize {
        Arc::as_ptr(&self.account) as usize
    }

    /// The memory segment.
    #[must_use]
    pub const fn memory(&self) -> &Segment {
        &self.memory
    }

    /// The control segment.
    #[must_use]
    pub const fn control(&self) -> &Segment {
        &self.control
    }

    /// Makes pages present, at most as many as one request may ask for.
    pub fn populate(&self, control: bool, offset: u64, size: u64) -> Result<(), Error> {
        if size > MAX_POPULATE {
            return Err(Error::Invalid);
        }
        let segment = match control {
            true => &self.control,
            false => &self.memory,
        };
        segment.populate(offset, size)
    }

    /// The port of the supplier of the memory segment.
    pub fn supplier(&self) -> Result<Ref, Error> {
        self.account.supplier(&self.memory)
    }

    /// Whether its memory still owes chunks, which are to come from its supplier.
    #[must_use]
    pub fn owes(&self) -> bool {
        // Asked about the end, behind which there are no pages.
        let rest = rt::memory::present_from(&self.memory.control, MEMORY_SIZE);
        rest == Err(Error::WouldBlock)
    }

    /// The memory segment, mapped here: offsets are addresses of the process.
    #[must_use]
    pub const fn memory_window(&self) -> &Window {
        &self.memory_window
    }

    /// The control segment, mapped here.
    #[must_use]
    pub const fn control_window(&self) -> &Window {
        &self.control_window
    }

    /// The place of the space. The holder of the process may map its segments and remove objects: a call that manages a
    /// missing object returns [`Code::NoObject`].
    #[must_use]
    pub const fn space(&self) -> SpaceAt {
        SpaceAt(self.control_window.address() + CONTROL_SPACE)
    }

    /// A reference to the space.
    #[must_use]
    pub const fn space_ref(&self) -> &Ref {
        &self.space_ref
    }

    /// The place of the first thread.
    #[must_use]
    pub const fn thread(&self) -> ThreadAt {
        self.thread_at(CONTROL_THREAD)
    }

    /// The place of the thread at this offset of the control segment.
    #[must_use]
    pub const fn thread_at(&self, offset: u64) -> ThreadAt {
        ThreadAt(self.control_window.address() + offset)
    }

    /// Makes a further thread, stopped, that has never run. Returns its offset in the control segment.
    pub fn add_thread(&self) -> Result<u64, Error> {
        let first = self.next_thread.get();
        let places = (first..CONTROL_MAPPINGS).step_by(abi::OBJECT_SIZE as usize);
        let before = (CONTROL_THREADS..first).step_by(abi::OBJECT_SIZE as usize);
        for offset in places.chain(before) {
            match self.thread_at(offset).create() {
                Ok(()) => {
                    self.next_thread.set(offset + abi::OBJECT_SIZE);
                    return Ok(offset);
                }
                Err(Code::InUse) => {}
                Err(code) => return Err(error_of(code)),
            }
        }
        Err(Error::Limit)
    }

    /// All threads: those in the control segment, and those that the program has made in its memory.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadAt> {
        self.first_threads(usize::MAX)
    }

    /// The threads that are found first, at most `most`.
    #[must_use]
    pub fn first_threads(&self, most: usize) -> Vec<ThreadAt> {
        let threads = self.objects(1 << Type::Thread as u64).take(most);
        threads.map(ThreadAt).collect()
    }

    /// All threads with their spots: see [`services::process::Debug`].
    #[must_use]
    pub fn spots(&self) -> Vec<(u64, ThreadAt)> {
        let threads = self.threads().into_iter();
        let spot = |thread| match self.place(thread) {
            (offset, true) => offset,
            (offset, false) => offset | IN_MEMORY,
        };
        threads.map(|thread| (spot(thread), thread)).collect()
    }

    /// The offset of a thread in the segment in which it was found, and whether that is the control segment.
    const fn place(&self, thread: ThreadAt) -> (u64, bool) {
        let control = &self.control_window;
        match thread.0.wrapping_sub(control.address()) {
            offset if offset < control.size() => (offset, true),
            _ => (thread.0.wrapping_sub(self.memory_window.address()), false),
        }
    }

    /// Resumes stopped threads, as far as they still exist. Checks that before: at the place of a thread that the
    /// program has destroyed, a supplier can owe the memory, and a call that manages the thread would wait for the
    /// supplier.
    pub fn resume_all(&self, threads: &[ThreadAt]) {
        for thread in threads {
            let (offset, in_control) = self.place(*thread);
            let region = match in_control {
                true => &self.control.region,
                false => &self.memory.region,
            };
            if has(region, offset, Type::Thread) {
                let _ = thread.resume();
            }
        }
    }

    /// How many kernel objects there are in the process's segments, counted up to [`MOST_COUNTED`].
    #[must_use]
    pub fn object_count(&self) -> u32 {
        let kinds = abi::TYPES
            .iter()
            .fold(0, |kinds, kind| kinds | 1 << *kind as u64);
        self.objects(kinds).take(MOST_COUNTED as usize).count() as u32
    }

    /// The addresses of the kernel objects of these kinds in the process's segments, each found by a search at the
    /// request for it, in chunks that may have some.
    fn objects(&self, kinds: u64) -> impl Iterator<Item = u64> + '_ {
        let segments = [
            (&self.control, &self.control_window),
            (&self.memory, &self.memory_window),
        ];
        segments.into_iter().flat_map(move |(segment, window)| {
            let (mut offset, mut end) = (0, 0);
            iter::from_fn(move || loop {
                if offset >= end {
                    offset = segment.objects_from(end).ok()??;
                    end = offset + CHUNK;
                }
                match segment.region.search(offset, end, kinds) {
                    Ok((found, _)) => {
                        offset = found + abi::OBJECT_SIZE;
                        return Some(window.address() + found);
                    }
                    Err(_) => offset = end,
                }
            })
        })
    }

    /// A search for the kernel objects of these kinds, from a spot on (see [`services::process::Debug`]), first in the
    /// control segment.
    #[must_use]
    pub const fn walk(&self, from: u64, kinds: u64) -> Walk<'_> {
        Walk {
            process: self,
            spot: from,
            end: 0,
            kinds,
        }
    }

    /// For a checkpointer, while the process is stopped: makes a frozen copy of its memory, in an account of its own
    /// with these limits. Returns region and control port of the copy, and the port that keeps the account.
    /// [`Error::Limit`] while there is a copy, or if the job has as many as it may have.
    pub fn freeze_memory(
        &self,
        supply: &Supply,
        copies: &mut Copies,
        job: u32,
    ) -> Result<Vec<Ref>, Error> {
        frozen_copy(&self.memory, &self.copy, supply, (copies, job))
    }

    /// Stops all threads, also those that are made meanwhile, and returns them.
    #[must_use]
    pub fn stop_all(&self) -> Vec<ThreadAt> {
        let mut stopped: Vec<ThreadAt> = Vec::new();
        loop {
            let before = stopped.len();
            for thread in self.threads() {
                if !stopped.contains(&thread) && thread.stop().is_ok() {
                    stopped.push(thread);
                }
            }
            if stopped.len() == before {
                return stopped;
            }
        }
    }

    /// Maps `size` bytes of the memory segment from `offset` on at `start`.
    pub fn map(
        &mut self,
        start: u64,
        size: u64,
        offset: u64,
        rights: u64,
    ) -> Result<MappingAt, Error> {
        let slot = self.slots.allocate(1).ok_or(Error::NoMemory)?;
        let place = CONTROL_MAPPINGS + slot as u64 * abi::OBJECT_SIZE;
        if let Err(error) = self.ensure_control(place + abi::OBJECT_SIZE) {
            self.slots.free(slot, 1);
            return Err(error);
        }
        let mapping = MappingAt(self.control_window.address() + place);
        let state = MappingState {
            start,
            size,
            offset,
            protection: rights,
        };
        let made = mapping.create().and_then(|()| {
            mapping
                .set_state(&state, self.memory.region.handle(), self.space_ref.handle())
                .inspect_err(|_| {
                    let _ = mapping.destroy();
                })
        });
        match made {
            Ok(()) => Ok(mapping),
            Err(code) => {
                self.slots.free(slot, 1);
                Err(error_of(code))
            }
        }
    }

    /// Changes what a mapping shows.
    pub fn remap(
        &self,
        mapping: MappingAt,
        start: u64,
        size: u64,
        offset: u64,
        rights: u64,
    ) -> Result<(), Error> {
        let state = MappingState {
            start,
            size,
            offset,
            protection: rights,
        };
        mapping
            .set_state(&state, self.memory.region.handle(), self.space_ref.handle())
            .map_err(error_of)
    }

    /// Removes a mapping. The segment's pages stay (see [`Segment::discard`]).
    pub fn unmap(&mut self, mapping: MappingAt) -> Result<(), Error> {
        let offset = mapping.0 - self.control_window.address() - CONTROL_MAPPINGS;
        let slot = offset / abi::OBJECT_SIZE;
        match self.mapping(slot).destroy() {
            // A holder of the process has removed it.
            Ok(()) | Err(Code::NoObject) => {}
            Err(code) => return Err(error_of(code)),
        }
        self.slots.free(slot as usize, 1);
        Ok(())
    }

    /// Changes the rights of a mapping.
    pub fn protect(&self, mapping: MappingAt, rights: u64) -> Result<(), Error> {
        mapping.protect(rights).map_err(error_of)
    }

    /// Sets the offset of the space's clock to the machine's, in nanoseconds.
    pub fn set_clock(&self, offset: u64) -> Result<(), Error> {
        let set = || {
            let space = self.space();
            let keeper = Ref::new()?;
            let mut state = space.get_state(keeper.handle())?;
            state.clock_offset = offset;
            space.set_state(&state, keeper.handle())
        };
        set().map_err(error_of)
    }

    /// Maps the pages of an executable whose bytes are in place. Writable pages also get `extra` rights.
    pub fn map_all(&mut self, plan: &Plan, extra: u64) -> Result<(), Error> {
        for pages in &plan.pages {
            let rights = if pages.rights & WRITE != 0 {
                pages.rights | extra
            } else {
                pages.rights
            };
            self.map(self.base + pages.start, pages.size, pages.start, rights)?;
        }
        Ok(())
    }

    /// Gives the first thread its registers and lets it run.
    pub fn start(&self, registers: &Registers, tag: u64, priority: u64) -> Result<(), Error> {
        let state = ThreadState {
            registers: *registers,
            tag,
            priority,
            ..ThreadState::default()
        };
        self.start_thread(CONTROL_THREAD, state)
    }

    /// Gives the thread at this offset of the control segment, which has never run, its state, and lets it run.
    pub fn start_thread(&self, offset: u64, state: ThreadState) -> Result<(), Error> {
        let state = ThreadState {
            stop_count: 1,
            ..state
        };
        let thread = self.thread_at(offset);
        thread
            .set_state(&state, self.space_ref.handle(), 0, 0)
            .map_err(error_of)?;
        thread.resume().map_err(error_of)
    }

    /// Makes the pages of these addresses present, without waiting for a supplier: [`Error::NoMemory`] if there is no
    /// memory. (Touching an absent page would wait for a supplier, and fail with a less precise error.)
    pub fn ensure(&self, address: u64, length: u64) -> Result<(), Error> {
        let end = address
            .checked_add(length)
            .filter(|end| *end <= MEMORY_SIZE);
        let end = end.ok_or(Error::Invalid)?.next_multiple_of(PAGE_SIZE);
        let mut page = address & !(PAGE_SIZE - 1);
        while page < end {
            match self.memory.region.search(page, page + PAGE_SIZE, 1) {
                Ok(_) => page += PAGE_SIZE,
                Err(_) => return self.memory.populate(page, end - page),
            }
        }
        Ok(())
    }

    /// Writes into the memory of the process.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), Error> {
        self.ensure(address, from.len() as u64)?;
        self.memory_window.write(address, from)
    }

    /// Reads from the memory of the process.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Error> {
        self.ensure(address, to.len() as u64)?;
        self.memory_window.read(address, to)
    }

    /// Whether the page at this offset of its memory is present, unless another holder takes it away.
    #[must_use]
    pub fn is_present(&self, offset: u64) -> bool {
        let page = offset & !(PAGE_SIZE - 1);
        page < MEMORY_SIZE && self.memory.region.search(page, page + PAGE_SIZE, 1).is_ok()
    }

    /// Whether there is a `syscall` instruction at this address of the process. Reads only present pages.
    #[must_use]
    pub fn is_call(&self, rip: u64) -> bool {
        let Some(rip) = rip.checked_sub(self.base) else {
            return false;
        };
        let page = rip & !(PAGE_SIZE - 1);
        let last = rip.wrapping_add(1) & !(PAGE_SIZE - 1);
        if ![page, last].iter().all(|page| self.is_present(*page)) {
            return false;
        }
        let mut code = [0; 2];
        self.memory_window.read(rip, &mut code).is_ok() && code == [0x0f, 0x05]
    }

    /// Ends the process: its threads, its space, its memory. Nothing of it remains.
    pub fn destroy(self) {
        // Without a space no thread of it can run, whatever other objects remain.
        let _ = self.thread().destroy();
        let _ = self.space().destroy();
        let Process {
            account,
            memory,
            control,
            memory_window,
            control_window,
            ..
        } = self;
        drop(memory_window);
        drop(control_window);
        end(account, vec![memory, control]);
    }
}
