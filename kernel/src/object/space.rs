//! Spaces: an address space, the threads in it, its account and its clock.

use super::account::Account;
use super::io_ports::MAX_PORTS;
use super::mapping::Mapping;
use super::port::Naming;
use super::region::Region;
use super::thread::Thread;
use super::tree::Mappings;
use super::{Handles, Header, NonNullLink, Object, Phase, Table, Target};
use crate::stop::{Access, Stop};
use crate::K;
use abi::{collocated, Type, PAGE_SIZE, USER_END};
use core::cell::Cell;
use hal::{NarrowCell, PageTable, Pfn};

/// Number of threads of a space that a call handles between two preemption points.
const THREADS_PER_TURN: u32 = 16;

/// A space.
pub(crate) struct Space {
    head: Header,
    /// The page table, a cache of the mapping hierarchy.
    pub(crate) table: PageTable,
    /// Changes whenever the page table loses a translation. Entries of other caches are valid while the epoch is the
    /// one that they were made in. No two spaces ever have the same epoch.
    pub(crate) epoch: Cell<u64>,
    pub(crate) mappings: Mappings,
    pub(crate) regions: NarrowCell<Region>,
    pub(crate) threads: NarrowCell<Thread>,
    /// Number of threads, [`abi::MAX_THREADS`] at most.
    pub(crate) population: Cell<u32>,
    pub(crate) foreign: Cell<bool>,
    pub(crate) clock_offset: Cell<u64>,
    /// The highest priority that threads in it can be given.
    pub(crate) max_priority: Cell<u8>,
    pub(crate) keeper: Naming,
    pub(crate) account: NarrowCell<Account>,
    /// Number of its first range in the table of I/O ports; 0 if it has none.
    pub(crate) io_ports: Cell<u16>,
    forgetting: Forgetting,
    /// Translations that the kernel itself has used lately, a small TLB in software.
    near: [Near; NEAR],
}

/// Number of entries in `near`, a power of two.
const NEAR: usize = 4;

/// A translation that was found in the space, valid while the space's epoch is the same.
struct Near {
    /// The page's address, if the page may be read, or written; otherwise an address that no lookup of this
    /// entry asks for.
    readable: Cell<u64>,
    writable: Cell<u64>,
    epoch: Cell<u64>,
    pfn: Cell<Pfn>,
    rights: Cell<u32>,
}

/// A page that belongs to another entry than this page, so that no lookup in this page's entry matches it.
const fn empty_tag(page: u64) -> u64 {
    page ^ PAGE_SIZE
}

/// The index of the entry for an address.
#[inline(always)]
const fn entry(address: u64) -> usize {
    (address / PAGE_SIZE) as usize % NEAR
}

impl Near {
    fn none(entry: usize) -> Self {
        let page = empty_tag(entry as u64 * PAGE_SIZE);
        Near {
            readable: Cell::new(page),
            writable: Cell::new(page),
            epoch: Cell::new(0),
            pfn: Cell::new(Pfn(0)),
            rights: Cell::new(0),
        }
    }
}

/// The most visits of a [`Forget`] pass to one space before its range becomes the whole space.
const MAX_LOOKS: u32 = 4;

/// The part of a [`Forget`] pass that belongs to one space.
struct Forgetting {
    /// The last pass that reached this space.
    pass: Cell<u64>,
    /// The range of addresses whose translations that pass must drop: [from, to).
    from: Cell<u64>,
    to: Cell<u64>,
    /// Number of times that the pass has visited the space.
    looks: Cell<u32>,
    /// Whether the space is in the pass's list, and the next space there.
    listed: Cell<bool>,
    next: NarrowCell<Space>,
}

/// One pass that drops translations in a space, and in all spaces to which the range was exported.
///
/// The hierarchy may have cycles, and a range may be imported in many places and ways. So a pass
/// keeps for each space one range that covers all ranges added for it, and visits the space again
/// when that range has grown; after [`MAX_LOOKS`] visits the range becomes the whole space. Dropping
/// too many translations costs only time, and the work is bounded by the number of regions and
/// mappings.
pub(crate) struct Forget {
    pass: u64,
    list: NarrowCell<Space>,
}

impl Forget {
    pub(crate) fn new(k: K) -> Self {
        Forget {
            pass: k.next_epoch(),
            list: NarrowCell::none(),
        }
    }

    /// Adds a range of a space whose translations must be dropped.
    pub(crate) fn add(&self, space: &'static Space, from: u64, to: u64) {
        let f = &space.forgetting;
        if f.pass.replace(self.pass) != self.pass {
            f.from.set(from);
            f.to.set(to);
            f.looks.set(0);
        } else if from < f.from.get() || to > f.to.get() {
            // The range has grown; the space is visited again.
            let all = !f.listed.get() && f.looks.get() == MAX_LOOKS;
            f.from.set(if all { 0 } else { from.min(f.from.get()) });
            f.to.set(if all { USER_END } else { to.max(f.to.get()) });
        } else {
            return;
        }
        if !f.listed.replace(true) {
            f.next.set(self.list.replace(Some(space)));
        }
    }

    /// Drops the translations of all ranges that were added, and of the ranges that import them.
    pub(crate) fn run(self, k: K) {
        while let Some(space) = self.list.get() {
            self.list.set(space.forgetting.next.take());
            space.forgetting.listed.set(false);
            space.forgetting.looks.set(space.forgetting.looks.get() + 1);
            let (from, to) = (space.forgetting.from.get(), space.forgetting.to.get());
            if space.table.remove(from, to) > 0 {
                space.epoch.set(k.next_epoch());
            }
            // Interrupts change neither lists nor ranges. This point is needed besides that in the loop below: many
            // spaces without regions may import the range.
            k.look_at_interrupts();
            let mut at = space.regions.get();
            while let Some(r) = at {
                let start = r.start.get();
                let (from, to) = (from.max(start), to.min(start + r.size.get()));
                if from < to {
                    r.forget(k, &self, from - start, to - from);
                }
                at = r.next.get();
                k.look_at_interrupts();
            }
        }
    }
}

impl Space {
    /// Whether this is the space that stands for no space. No other space that a thread names is ever free.
    #[inline(always)]
    pub(crate) fn is_nowhere(&self) -> bool {
        self.head.phase() == Phase::Free
    }

    /// The time on the space's clock, in nanoseconds.
    pub(crate) fn clock(&self) -> u64 {
        hal::now().wrapping_add(self.clock_offset.get())
    }

    /// Converts a time on the space's clock to the machine's clock. A time that has passed becomes the present.
    pub(crate) fn machine_time(&self, deadline: u64) -> u64 {
        let left = deadline.saturating_sub(self.clock());
        hal::now().saturating_add(left)
    }

    /// The physical frame of an address, if the translation was used lately and gives the right that is needed.
    #[inline(always)]
    pub(crate) fn near(&self, address: u64, need: Access) -> Option<Pfn> {
        let near = &self.near[entry(address)];
        let page = match need {
            Access::READ => near.readable.get(),
            Access::WRITE => near.writable.get(),
            _ if u64::from(near.rights.get()) & need.0 != need.0 => return None,
            // One of the two is the page; an empty tag differs from it in this bit only.
            _ => near.readable.get() & !PAGE_SIZE | address & PAGE_SIZE,
        };
        let here = page ^ address < PAGE_SIZE;
        (here && near.epoch.get() == self.epoch.get()).then_some(near.pfn.get())
    }

    /// Notes a translation that has been found: physical frame and rights.
    #[inline]
    pub(crate) fn note_near(&self, address: u64, pfn: Pfn, rights: u64) {
        let near = &self.near[entry(address)];
        let page = address & !(PAGE_SIZE - 1);
        let if_given = |right: Access| match rights & right.0 {
            0 => empty_tag(page),
            _ => page,
        };
        near.readable.set(if_given(Access::READ));
        near.writable.set(if_given(Access::WRITE));
        near.epoch.set(self.epoch.get());
        near.pfn.set(pfn);
        near.rights.set(rights as u32);
    }

    /// The number that identifies the space's set of I/O ports to the machine, if it is granted any. `None` if the
    /// number does not fit, as there are too many spaces.
    pub(crate) fn number_for_ports(&self) -> Option<u16> {
        (self.head.id().index() + 1).try_into().ok()
    }

    /// The number of its set of I/O ports; 0 if it has none.
    pub(crate) fn ports_number(&self) -> u16 {
        let granted = self.io_ports.get() != 0;
        self.number_for_ports().filter(|_| granted).unwrap_or(0)
    }

    /// Updates its threads after I/O ports were granted to the space or revoked.
    pub(crate) fn note_ports(&self) {
        let mut at = self.threads.get();
        while let Some(t) = at {
            t.ctx.set_ports(self.ports_number());
            at = t.next_in_space.get();
        }
    }

    /// Lets user mode use its I/O ports, and no others.
    pub(crate) fn load_ports(&self, k: K) {
        let mut ranges = [(0, 0); MAX_PORTS];
        let mut count = 0;
        for (place, range) in ranges.iter_mut().zip(k.io_ports.of(self)) {
            *place = range;
            count += 1;
        }
        hal::load_ports(self.ports_number(), &ranges[..count]);
    }

    /// Wakes its threads that wait with a deadline, before a call of `t` sets the space's clock: they wait again, with
    /// deadlines on the new clock.
    pub(crate) fn wake_timed(&self, k: K, t: &Thread) -> Result<(), Stop> {
        let mut woken = 0;
        let mut at = self.threads.get();
        while let Some(thread) = at {
            at = thread.next_in_space.get();
            if thread.deadline.is_set() {
                thread.wake(k);
                woken += 1;
                if woken % THREADS_PER_TURN == 0 && k.preempts(t) {
                    return Err(Stop::Again);
                }
            }
        }
        Ok(())
    }

    /// Sets whether the `syscall` instructions of its threads are exceptions for its keeper.
    pub(crate) fn set_foreign(&self, k: K, foreign: bool) {
        if self.foreign.replace(foreign) == foreign {
            return;
        }
        let mut at = self.threads.get();
        while let Some(t) = at {
            t.note_space(k);
            at = t.next_in_space.get();
        }
    }

    /// Whether a mapping of this space may cover the range.
    #[inline(always)]
    pub(crate) fn holds(&self, start: u64, size: u64) -> bool {
        // The range lies in user memory, so the sum does not overflow.
        if !self.table.is_collocated() {
            return start + size <= collocated::START;
        }
        let (from, to) = self.table.reach();
        from <= start && start + size <= to
    }

    /// Clears its page table and returns the table's pages. Walks fill it again.
    pub(crate) fn empty_table(&self, k: K) {
        self.table.clear();
        self.epoch.set(k.next_epoch());
    }

    /// Gives back some pages of its page table, with the translations in them.
    pub(crate) fn give_tables(&self, k: K, most: u32) {
        self.table.clear_some(most);
        self.epoch.set(k.next_epoch());
    }

    /// Drops every translation that was made through one of its regions, in one pass: a pass for each region would
    /// visit an importing space once per region.
    fn forget_exports(&self, k: K) {
        if self.regions.get().is_none() {
            return;
        }
        let pass = Forget::new(k);
        let mut at = self.regions.get();
        while let Some(r) = at {
            r.forget(k, &pass, 0, r.size.get());
            at = r.next.get();
            k.look_at_interrupts();
        }
        pass.run(k);
    }

    /// Drops the translations of a range, in this space and in all spaces that import it.
    pub(crate) fn forget(&'static self, k: K, start: u64, size: u64) {
        let pass = Forget::new(k);
        pass.add(self, start, start + size);
        pass.run(k);
    }
}

impl Object for Space {
    const TYPE: Type = Type::Space;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Space(link)
    }
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Space(link) => Some(link),
            _ => None,
        }
    }
    /// The mapping that stands for none.
    type Seed = &'static Mapping;
    fn blank(head: Header, no_mapping: &'static Mapping) -> Self {
        Space {
            head,
            table: PageTable::new(),
            epoch: Cell::new(0),
            mappings: Mappings::new(no_mapping),
            regions: NarrowCell::none(),
            threads: NarrowCell::none(),
            population: Cell::new(0),
            foreign: Cell::new(false),
            clock_offset: Cell::new(0),
            max_priority: Cell::new(0),
            keeper: Naming::new(),
            account: NarrowCell::none(),
            io_ports: Cell::new(0),
            near: core::array::from_fn(Near::none),
            forgetting: Forgetting {
                pass: Cell::new(0),
                from: Cell::new(0),
                to: Cell::new(0),
                looks: Cell::new(0),
                listed: Cell::new(false),
                next: NarrowCell::none(),
            },
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.spaces
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.spaces
    }
    fn provide(&'static self, k: K, payer: &'static Account) -> Option<()> {
        let account = k.accounts.open(Some(payer))?;
        self.account.set(Some(account));
        Some(())
    }
    fn account(&self) -> Option<&'static Account> {
        self.account.get()
    }
    fn open(&'static self, k: K) {
        self.epoch.set(k.next_epoch());
        self.set_foreign(k, false);
        self.clock_offset.set(0);
        self.keeper.set(k, Target::Null);
    }
    fn close(&'static self, k: K) {
        self.keeper.set(k, Target::Null);
        // Other spaces lose what they import from it; the space itself keeps its mappings for a new body.
        self.forget_exports(k);
        self.empty_table(k);
        // Its threads cannot go on until it has a body again: they begin to wait for that.
        let mut at = self.threads.get();
        let mut suspended = 0;
        while let Some(t) = at {
            at = t.next_in_space.get();
            t.suspend_for_space(k);
            suspended += 1;
            if suspended % THREADS_PER_TURN == 0 {
                k.look_at_interrupts();
            }
        }
    }
    fn end(&'static self, k: K) {
        // Threads that are not stopped wait for a body of this space. The caller of `end` wakes them afterwards, and
        // they halt with an exception until their manager puts them into another space.
        while let Some(t) = self.threads.get() {
            t.attach(k, None);
            k.look_at_interrupts();
        }
        self.forget_exports(k);
        while let Some(r) = self.regions.get() {
            r.unlink();
            k.look_at_interrupts();
        }
        self.mappings.clear(k);
        k.io_ports.revoke_all(self);
        k.places.take(self);
        if let Some(account) = self.account.take() {
            account.close(k);
        }
    }
}

#[cfg(any(test, fermata_probe))]
impl Space {
    /// Calls `f` with page, frame and rights of each valid entry of `near`.
    pub(crate) fn each_near(&self, mut f: impl FnMut(u64, Pfn, u64)) {
        for (i, near) in self.near.iter().enumerate() {
            let epoch = near.epoch.get();
            if epoch == self.epoch.get() && epoch != 0 {
                let bit = (i as u64 * PAGE_SIZE) & PAGE_SIZE;
                let page = near.readable.get() & !PAGE_SIZE | bit;
                let rights = u64::from(near.rights.get());
                for (place, right) in [
                    (&near.readable, Access::READ),
                    (&near.writable, Access::WRITE),
                ] {
                    let given = rights & right.0 != 0;
                    assert_eq!(place.get() == page, given, "a page that is near");
                }
                f(page, near.pfn.get(), rights);
            }
        }
    }
}
