//! Page tables of users: a cache of the kernel's mapping hierarchy, within a fixed budget of pages.
//!
//! Table pages are the highest quarter of the pool. Each is zero while it is free, so that a table whose last
//! entry was removed goes back as it is. Beside the tables there are two counts per table: the entries in use, and the
//! tables below. Accessed and dirty bits are set from the beginning, so that the processor never writes to a table.
//!
//! The work of a removal is bounded, however many translations go ([`MOST_LOOKED`]): beyond that whole tables are cut
//! off with all that is below them, and whoever takes one empties it.
//!
//! The processor may look at the tables in use at any instant, also for addresses that no program used, and
//! keep what it saw: translations of pages (in its TLB), and the way to a table (in its paging-structure
//! caches). Hence a removal has three steps, in this order: the entries of all levels are cleared; the
//! processor is told to forget them; only then may a table page that was given back get new entries. The tests
//! in `paging_model.rs` run this file on a model of a processor that keeps all that it may.
//!
//! The place of a collocated space (`abi::collocated`) is some tables of the third level, to which every root leads by
//! entries without the bit for user mode: ring 3 faults there, whatever stands below. They are made when the place is
//! first taken, and stay. A collocated space has no root.

use super::instructions::{cr3, invlpg, reload_cr3, set_cr3};
use super::memory::{
    self, table_word, zero_page, ACCESSED, ADDRESS, DIRTY, NO_EXECUTE, PRESENT, UNCACHED, USER,
    WRITABLE,
};
use super::Global;
use crate::{device_frame, user_frame, NarrowRef, Pfn};
use abi::{access, collocated, PAGE_SIZE, USER_END};
use core::cell::Cell;

/// The position of an entry's rights, as in [`abi::access`], in bits that the processor ignores.
const RIGHTS_SHIFT: u32 = 52;
/// An entry that leads to a table.
const LINK: u64 = PRESENT | WRITABLE | USER | ACCESSED;
/// Most pages that are flushed from the TLB one by one; more are flushed by loading CR3.
const FLUSH_SINGLY: u32 = 16;
/// The entries that a removal looks at before it cuts tables off as they are, those at the ends of the range aside. To
/// clear a table of the lowest level counts as [`CLEARED`].
const MOST_LOOKED: u32 = 1024;
/// The entries that are looked at with as many instructions as a table of the lowest level is cleared with.
const CLEARED: u32 = 128;

struct Budget {
    /// Physical address of the first table page.
    base: Cell<u64>,
    /// For each table page the number of entries in use; for a free one the index of the next free one, plus 1.
    notes: Cell<&'static [Cell<u32>]>,
    /// For each table page in use the number of tables below it; for one that was cut off its level, shifted by
    /// [`LEVEL_SHIFT`], and the index of the next one that was cut off, plus 1.
    below: Cell<&'static [Cell<u32>]>,
    /// First free table page, plus 1.
    free: Cell<u32>,
    /// First table page that was cut off with what is in it, plus 1.
    cut: Cell<u32>,
    /// Table pages from here on have never been used, and may not be zero.
    untouched: Cell<u32>,
}

/// Where the level of a table stands that was cut off.
const LEVEL_SHIFT: u32 = 30;

static BUDGET: Global<Budget> = Global(Budget {
    base: Cell::new(0),
    notes: Cell::new(&[]),
    below: Cell::new(&[]),
    free: Cell::new(0),
    cut: Cell::new(0),
    untouched: Cell::new(0),
});

/// Takes over pages of the pool, from the physical address `base` on.
pub(super) fn init(base: u64, pages: u32) {
    let budget = &BUDGET.0;
    budget.base.set(base);
    for notes in [&budget.notes, &budget.below] {
        let none = memory::alloc_slice(pages as usize, |_| Cell::new(0));
        notes.set(none.expect("no memory for the notes on table pages"));
    }
}

/// As [`init`], for a test that begins with an empty budget.
#[cfg(test)]
pub(super) fn begin_anew(base: u64, pages: u32) {
    BUDGET.0.free.set(0);
    BUDGET.0.cut.set(0);
    BUDGET.0.untouched.set(0);
    init(base, pages);
}

/// A table page of the budget, by its physical address.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Table(u64);

impl Table {
    /// The table page with that index in the budget.
    fn at(index: u32) -> Table {
        Table(BUDGET.0.base.get() + u64::from(index) * PAGE_SIZE)
    }

    /// Its index in the budget.
    #[inline]
    fn index(self) -> u32 {
        (self.0.wrapping_sub(BUDGET.0.base.get()) / PAGE_SIZE) as u32
    }

    fn physical(self) -> u64 {
        self.0
    }

    /// The table that an entry leads to.
    #[inline(always)]
    fn of(entry: u64) -> Table {
        Table(entry & ADDRESS)
    }

    #[inline(always)]
    fn entry(self, index: usize) -> &'static Cell<u64> {
        // SAFETY: a word of a table page of the budget, in which nothing else than such words is:
        // a `Table` is made only by `take` and from entries that lead to one.
        unsafe { table_word(self.0, index) }
    }

    /// The table below this one of `level` on the way to an address, if there is one.
    #[inline(always)]
    fn below(self, address: u64, level: u32) -> Option<Table> {
        let entry = self.entry(index(address, level)).get();
        (entry != 0).then(|| Table::of(entry))
    }

    /// The number of entries in use. In a root, only users' entries count.
    fn count(self) -> &'static Cell<u32> {
        &BUDGET.0.notes.get()[self.index() as usize]
    }

    /// The number of tables below it.
    fn tables_below(self) -> &'static Cell<u32> {
        &BUDGET.0.below.get()[self.index() as usize]
    }

    /// Takes a table page without entries. `None` if the budget is used up.
    fn take() -> Option<Table> {
        let table = Table::take_free()
            .or_else(Table::take_untouched)
            .or_else(Table::take_cut_off)?;
        table.count().set(0);
        table.tables_below().set(0);
        Some(table)
    }

    fn take_free() -> Option<Table> {
        let table = Table::at(BUDGET.0.free.get().checked_sub(1)?);
        BUDGET.0.free.set(table.count().get());
        Some(table)
    }

    fn take_untouched() -> Option<Table> {
        let index = BUDGET.0.untouched.get();
        if index as usize == BUDGET.0.notes.get().len() {
            return None;
        }
        let table = Table::at(index);
        BUDGET.0.untouched.set(index + 1);
        // SAFETY: a page of the pool that only this budget uses, which made no cell there.
        unsafe { zero_page(table.physical()) };
        Some(table)
    }

    /// Takes a table that was cut off and empties it: the tables below it are cut off then.
    #[inline(never)]
    fn take_cut_off() -> Option<Table> {
        let table = Table::at(BUDGET.0.cut.get().checked_sub(1)?);
        let link = table.tables_below().get();
        BUDGET.0.cut.set(link & ((1 << LEVEL_SHIFT) - 1));
        let level = link >> LEVEL_SHIFT;
        if level > 1 {
            let mut left = table.count().get();
            for i in 0..512 {
                if left == 0 {
                    break;
                }
                let entry = table.entry(i).get();
                if entry != 0 {
                    Table::of(entry).cut_off(level - 1);
                    left -= 1;
                }
            }
        }
        // SAFETY: a page of the budget, to which no entry leads. The processor has forgotten the way to it.
        unsafe { zero_page(table.physical()) };
        Some(table)
    }

    /// Gives a table of `level` back with all that is in it and below it, for [`Table::take`] to empty. Returns the number of
    /// tables.
    #[inline(always)]
    fn cut_off(self, level: u32) -> u32 {
        let below = self.tables_below();
        let next = BUDGET.0.cut.replace(self.index() + 1);
        below.replace(level << LEVEL_SHIFT | next) + 1
    }

    /// Gives it back. All its entries are zero.
    fn give_back(self) {
        self.count().set(BUDGET.0.free.get());
        BUDGET.0.free.set(self.index() + 1);
    }
}

/// The page table of one space: a cache of the mapping hierarchy.
pub struct PageTable {
    /// The root table's physical address; that of the kernel's own root while there is none.
    root: Cell<u64>,
    /// Number of its place, plus 1, if it is collocated; it then never has a root of its own.
    place: Cell<u32>,
    pages: Cell<u32>,
    /// A cache of tables of the lowest level that were used lately.
    leaves: [Leaf; LEAVES],
}

/// A table of the lowest level, and the number of the range that it translates.
struct Leaf {
    table: Cell<Table>,
    range: Cell<u64>,
}

/// The number of cached tables; a power of two.
const LEAVES: usize = 4;

/// No range has this number.
const NO_RANGE: u64 = u64::MAX;

/// The number of the range of addresses that a table of the lowest level translates.
#[inline(always)]
fn range_of(address: u64) -> u64 {
    address >> 21
}

/// The bits of an entry for each combination of rights of [`abi::access`]. What cannot be accessed is not present: at a
/// collocated place the bit for user mode keeps nobody out.
static RIGHTS: [u64; access::ALL as usize + 1] = {
    let mut all = [0; access::ALL as usize + 1];
    let mut rights = 0;
    while rights <= access::ALL {
        let mut bits = rights << RIGHTS_SHIFT;
        if rights & (access::READ | access::WRITE | access::EXECUTE) != 0 {
            bits |= PRESENT | USER;
        }
        if rights & access::WRITE != 0 {
            bits |= WRITABLE;
        }
        if rights & access::EXECUTE == 0 {
            bits |= NO_EXECUTE;
        }
        all[rights as usize] = bits;
        rights += 1;
    }
    all
};

impl Default for PageTable {
    fn default() -> Self {
        PageTable::new()
    }
}

/// The entries of a root that are the same in all: the places of collocated spaces, and the kernel's half.
const KERNEL_ENTRIES: core::ops::Range<usize> = 128..512;
const _: () = assert!(index(collocated::START, 4) == KERNEL_ENTRIES.start);
/// The addresses to which an entry of a root leads.
const REACH: u64 = 1 << 39;

/// Where the root of a page table stands, which changes with it.
pub(crate) type Root = NarrowRef<Cell<u64>>;

/// The index of the entry for `address` in a table of `level`.
#[inline]
const fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * (level - 1)) & 511) as usize
}

impl PageTable {
    /// An empty page table, which needs no table pages.
    pub fn new() -> PageTable {
        PageTable {
            root: Cell::new(memory::kernel_root()),
            place: Cell::new(0),
            pages: Cell::new(0),
            leaves: [const {
                Leaf {
                    table: Cell::new(Table(0)),
                    range: Cell::new(NO_RANGE),
                }
            }; LEAVES],
        }
    }

    #[inline]
    fn root(&self) -> Option<Table> {
        let root = self.root.get();
        (root != memory::kernel_root()).then(|| Table::of(root))
    }

    /// Whether the processor may know its translations: those of a place stand in every root.
    fn loaded(&self) -> bool {
        self.root.get() == cr3() || self.is_collocated()
    }

    /// Where its root stands, for the exit code. For threads of a collocated table it loads none: the table goes along with
    /// whatever is loaded.
    pub(crate) fn root_of(&'static self) -> Root {
        NarrowRef::of(&self.root)
    }

    /// Whether a context names it so.
    pub(crate) fn is_root(&'static self, root: Root) -> bool {
        self.root_of() == root
    }

    /// Makes it the page table of a place ([`abi::collocated`]): its addresses are those of the place, and what it
    /// translates is there for ring 1 whichever table is loaded, in every table that had no page until now; the caller
    /// clears the others. `None`: there is no such place, no memory for its tables, the table has translations, or the processor
    /// does not keep ring 1 away from pages of user mode (SMEP and SMAP). The caller sees to it that no other table has the place.
    pub fn collocate(&self, place: u64) -> Option<()> {
        let apart = super::keeps_rings_apart();
        if place >= collocated::COUNT || !apart || self.pages.get() > 0 || self.is_collocated() {
            return None;
        }
        let (start, end) = collocated::range(place);
        for i in index(start, 4)..=index(end - 1, 4) {
            if memory::kernel_root_entry(i) == 0 {
                let way = PRESENT | WRITABLE | ACCESSED;
                memory::set_kernel_root_entry(i, Table::take()?.physical() | way);
            }
        }
        self.place.set(place as u32 + 1);
        Some(())
    }

    /// Whether what a place translates is there in every table already: another table was the place's before. What is no
    /// place nothing leads to.
    #[must_use]
    pub fn leads_to(place: u64) -> bool {
        place < collocated::COUNT && {
            let (start, end) = collocated::range(place);
            let mut entries = index(start, 4)..=index(end - 1, 4);
            entries.all(|i| memory::kernel_root_entry(i) != 0)
        }
    }

    /// Whether it is that of a place.
    #[inline(always)]
    pub fn is_collocated(&self) -> bool {
        self.place.get() != 0
    }

    /// Clears it, and makes it an ordinary table.
    pub fn leave_place(&self) {
        self.clear();
        self.place.set(0);
    }

    /// Its addresses: the first, and the end.
    pub fn reach(&self) -> (u64, u64) {
        match self.place.get().checked_sub(1) {
            Some(place) => collocated::range(place.into()),
            None => (0, collocated::START),
        }
    }

    fn reaches(&self, address: u64) -> bool {
        let (start, end) = self.reach();
        (start..end).contains(&address)
    }

    /// The highest of its tables on the way to an address that it reaches, with its level.
    fn top(&self, address: u64) -> Option<(Table, u32)> {
        if self.is_collocated() {
            let entry = memory::kernel_root_entry(index(address, 4));
            return Some((Table::of(entry), 3));
        }
        Some((self.root()?, 4))
    }

    fn take(&self) -> Option<Table> {
        let table = Table::take()?;
        self.pages.set(self.pages.get() + 1);
        Some(table)
    }

    /// It has so many tables less: those that it remembers may be among them.
    fn has_given(&self, tables: u32) {
        if tables > 0 {
            for leaf in &self.leaves {
                leaf.range.set(NO_RANGE);
            }
            self.pages.set(self.pages.get() - tables);
        }
    }

    /// The table of the lowest level for the address, if there is one.
    #[inline(always)]
    fn leaf(&self, address: u64) -> Option<Table> {
        let (range, leaf) = (range_of(address), self.place_of(address));
        if range == leaf.range.get() {
            return Some(leaf.table.get());
        }
        self.find_leaf(address)
    }

    #[inline(never)]
    fn find_leaf(&self, address: u64) -> Option<Table> {
        // Loops of constant length: this is on the way of each message to a page that was not used lately.
        let table = if self.is_collocated() {
            let (top, _) = self.top(address).filter(|_| self.reaches(address))?;
            [3, 2]
                .into_iter()
                .try_fold(top, |table, level| table.below(address, level))?
        } else if address < collocated::START {
            let mut levels = [4, 3, 2].into_iter();
            levels.try_fold(self.root()?, |table, level| table.below(address, level))?
        } else {
            return None;
        };
        self.note_leaf(address, table);
        Some(table)
    }

    /// The place in the cache for the leaf of the address.
    #[inline(always)]
    fn place_of(&self, address: u64) -> &Leaf {
        &self.leaves[range_of(address) as usize % LEAVES]
    }

    fn note_leaf(&self, address: u64, table: Table) {
        let leaf = self.place_of(address);
        leaf.table.set(table);
        leaf.range.set(range_of(address));
    }

    /// The frame at `address` and the rights that it is mapped with.
    #[inline]
    pub fn lookup(&self, address: u64) -> Option<(Pfn, u64)> {
        let entry = self.leaf(address)?.entry(index(address, 1)).get();
        if entry == 0 {
            return None;
        }
        Some((
            Pfn(((entry & ADDRESS) / PAGE_SIZE) as u32),
            entry >> RIGHTS_SHIFT & access::ALL,
        ))
    }

    /// Maps the page around `address`, in place of what was there. Rights are of
    /// [`abi::access`]. `None`: no memory for a table page, no translation changed.
    #[inline(always)]
    pub fn insert(&self, address: u64, pfn: Pfn, rights: u64, device: bool) -> Option<()> {
        assert!(
            user_frame(pfn) || device && device_frame(pfn),
            "not for users: {pfn:?}"
        );
        let table = match self.leaf(address) {
            Some(table) => table,
            None => self.make_leaf(address)?,
        };
        let mut new = (u64::from(pfn.0) * PAGE_SIZE) | ACCESSED | DIRTY;
        new |= RIGHTS[(rights & access::ALL) as usize];
        if device {
            new |= UNCACHED;
        }
        let old = table.entry(index(address, 1)).replace(new);
        if old == 0 {
            table.count().set(table.count().get().wrapping_add(1));
        } else if self.loaded() {
            invlpg(address);
        }
        Some(())
    }

    /// Maps some pages from `address` on, whose frames follow one another, where nothing is mapped and the frame is
    /// users'. One table of the lowest level translates them all; without it nothing happens.
    pub fn fill(&self, address: u64, pages: u64, first: Pfn, rights: u64) {
        let Some(table) = self.leaf(address) else {
            return;
        };
        let at = index(address, 1);
        assert!(at as u64 + pages <= 512, "pages of two tables");
        let bits = ACCESSED | DIRTY | RIGHTS[(rights & access::ALL) as usize];
        let mut new = 0;
        for i in 0..pages {
            let entry = table.entry(at + i as usize);
            let pfn = Pfn(first.0.wrapping_add(i as u32));
            if entry.get() == 0 && user_frame(pfn) {
                entry.set((u64::from(pfn.0) * PAGE_SIZE) | bits);
                new += 1;
            }
        }
        table.count().set(table.count().get().wrapping_add(new));
    }

    /// Adds the tables that are missing above a page.
    #[inline(never)]
    fn make_leaf(&self, address: u64) -> Option<Table> {
        assert!(
            self.reaches(address),
            "not an address of this space: {address:#x}"
        );
        let (mut table, top) = match self.top(address) {
            Some(top) => top,
            None => (self.make_root()?, 4),
        };
        let mut way = [None; 4];
        for level in (2..=top).rev() {
            way[level as usize - 1] = Some(table);
            let entry = table.entry(index(address, level));
            if entry.get() == 0 {
                // When a deeper table is missing too, this one may stay behind empty: it is
                // found by the next insertion, removal or `clear`.
                entry.set(self.take()?.physical() | LINK);
                table.count().set(table.count().get() + 1);
                for above in way.iter().flatten() {
                    above.tables_below().set(above.tables_below().get() + 1);
                }
            }
            table = Table::of(entry.get());
        }
        self.note_leaf(address, table);
        Some(table)
    }

    fn make_root(&self) -> Option<Table> {
        let root = self.take()?;
        for i in KERNEL_ENTRIES {
            root.entry(i).set(memory::kernel_root_entry(i));
        }
        self.root.set(root.physical());
        Some(root)
    }

    /// Removes the translations of a range of whole pages. Returns the number of translations removed, or a larger one
    /// than [`FLUSH_SINGLY`] if some were cut off with their tables, which nobody counts.
    #[inline]
    pub fn remove(&self, from: u64, to: u64) -> u32 {
        if to.wrapping_sub(from) == PAGE_SIZE {
            return self.remove_page(from);
        }
        self.remove_pages(from, to, u32::MAX)
    }

    /// Gives back some table pages, at most about so many, with all translations in them; all if it has no more. So the work is bounded,
    /// however many there are.
    pub fn clear_some(&self, most: u32) {
        if self.pages() <= most {
            self.clear();
            return;
        }
        let (start, end) = self.reach();
        self.remove_pages(start, end, most);
    }

    /// Removes the translation of one page. Its table stays, even if it is empty: callers that remove single
    /// pages usually insert others soon. A later removal or `clear` finds it.
    #[inline(always)]
    fn remove_page(&self, page: u64) -> u32 {
        let Some(table) = self.leaf(page) else {
            return 0;
        };
        if table.entry(index(page, 1)).replace(0) == 0 {
            return 0;
        }
        table.count().set(table.count().get() - 1);
        if self.loaded() {
            invlpg(page);
        }
        1
    }

    /// Removes the translations of a range, until so many tables have been given back.
    #[inline(never)]
    fn remove_pages(&self, from: u64, to: u64, most: u32) -> u32 {
        assert!(
            from.is_multiple_of(PAGE_SIZE) && to.is_multiple_of(PAGE_SIZE),
            "parts of pages"
        );
        let (start, end) = self.reach();
        let (start, end) = (from.max(start), to.min(end));
        if start >= end || self.top(start).is_none() {
            return 0;
        }
        let loaded = self.loaded();
        let mut removal = Removal {
            flush_singly: loaded,
            removed: 0,
            freed: 0,
            looked: 0,
            most,
        };
        let mut at = start;
        while at < end && removal.freed < most {
            let Some((top, level)) = self.top(at) else {
                break;
            };
            let next = (at & !(REACH - 1)) + if level == 4 { collocated::START } else { REACH };
            removal.remove(top, level, at, end.min(next));
            at = next;
        }
        self.has_given(removal.freed);
        let loads = self.loaded();
        if loaded || loads {
            // Who has preempted this (full preemption) may have loaded the table meanwhile, and seen what was still there.
            if removal.removed > FLUSH_SINGLY || !loaded {
                reload_cr3();
            } else if removal.freed > 0 {
                // The pages are flushed one by one, but the processor may have seen the way to their tables
                // again since. Invalidating any one address makes it forget all such ways.
                invlpg(start);
            }
        }
        removal.removed
    }

    /// Removes everything and gives back every table page.
    pub fn clear(&self) {
        if self.is_collocated() {
            let (start, end) = self.reach();
            self.remove_pages(start, end, u32::MAX);
            return;
        }
        let Some(root) = self.root() else { return };
        // From here on nobody can load it, whoever preempts this (full preemption). Who is in this space and runs faults, and waits
        // until this is done. Hence the order: where it is loaded is asked when nobody can load it any more.
        self.root.set(memory::kernel_root());
        if cr3() == root.physical() {
            activate_none();
        }
        let mut removal = Removal {
            flush_singly: false,
            removed: 0,
            freed: 0,
            looked: 0,
            most: u32::MAX,
        };
        removal.remove(root, 4, 0, collocated::START);
        for i in KERNEL_ENTRIES {
            root.entry(i).set(0);
        }
        root.give_back();
        self.has_given(removal.freed + 1);
    }

    /// The number of table pages that it holds.
    pub fn pages(&self) -> u32 {
        self.pages.get()
    }

    /// Loads it, as the exit code does; the kernel's own root while it has none.
    #[cfg(test)]
    pub fn activate(&self) {
        load(self.root.get());
    }
}

/// The byte at an address of users' memory, by the active page table.
pub(super) fn byte_in_use(address: u64) -> Option<u8> {
    let root = cr3();
    if address >= USER_END {
        return None;
    }
    // The kernel's own root has entries of the same form.
    let mut table = Table::of(root);
    for level in [4, 3, 2] {
        let entry = table.entry(index(address, level)).get();
        if entry == 0 {
            return None;
        }
        table = Table::of(entry);
    }
    let entry = table.entry(index(address, 1)).get();
    let pfn = Pfn(((entry & ADDRESS) / PAGE_SIZE) as u32);
    let mut byte = [0];
    (entry != 0 && user_frame(pfn))
        .then(|| memory::read_bytes(pfn, address % PAGE_SIZE, &mut byte))?;
    Some(byte[0])
}

/// Loads the kernel's own root: no user memory is translated until the exit code loads a root.
fn activate_none() {
    load(memory::kernel_root());
}

/// Loads a root table, which flushes all users' translations from the TLB.
#[inline(always)]
fn load(root: u64) {
    // SAFETY: either the kernel's own root or that of a `PageTable`, whose upper half is a copy of
    // it; `clear` unloads a root before it gives it back.
    unsafe { set_cr3(root) };
}

/// A removal under way.
struct Removal {
    /// Whether to flush the first [`FLUSH_SINGLY`] pages one by one.
    flush_singly: bool,
    /// Translations removed so far.
    removed: u32,
    /// Tables given back so far.
    freed: u32,
    /// Entries looked at so far.
    looked: u32,
    /// It ends when so many have been given back.
    most: u32,
}

impl Removal {
    /// Removes the translations of the range, which begins at a page, from `table`, which is not of the lowest
    /// level, and from the tables below. Tables that become empty are given back, and when enough was looked at all
    /// whose range goes; the processor may still know the way to them, and the caller must make it forget that before any
    /// table page is taken.
    fn remove(&mut self, table: Table, level: u32, start: u64, end: u64) {
        let reach = PAGE_SIZE << (9 * (level - 1));
        let first = start & !((reach << 9) - 1);
        let freed_before = self.freed;
        let count = table.count();
        if count.get() == 0 || self.freed >= self.most {
            return;
        }
        let (mut next, last) = (index(start, level), index(end - 1, level));
        while next <= last && count.get() > 0 && self.freed < self.most {
            let i = next;
            next += 1;
            self.looked += 1;
            let entry = table.entry(i);
            if entry.get() == 0 {
                continue;
            }
            let below = Table::of(entry.get());
            let its = first + i as u64 * reach;
            let (from, to) = (start.max(its), end.min(its + reach));
            // Who wants a certain number of tables wants no more.
            let enough = self.looked > MOST_LOOKED && self.most == u32::MAX;
            if enough && to - from == reach {
                // And all behind it whose range goes.
                next = i + ((end - its) / reach) as usize;
                self.cut_off(table, level, i..next);
                continue;
            }
            if level == 2 {
                self.remove_entries(below, from, to);
            } else {
                self.remove(below, level - 1, from, to);
            }
            if below.count().get() == 0 {
                entry.set(0);
                count.set(count.get() - 1);
                below.give_back();
                self.freed += 1;
            }
        }
        let below = table.tables_below();
        below.set(below.get() - (self.freed - freed_before));
    }

    /// Cuts off the tables below these entries of a table of `level`.
    fn cut_off(&mut self, table: Table, level: u32, entries: core::ops::Range<usize>) {
        let mut left = table.count().get();
        for i in entries {
            let entry = table.entry(i).replace(0);
            if entry != 0 {
                self.freed += Table::of(entry).cut_off(level - 1);
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        table.count().set(left);
        self.removed = self.removed.max(FLUSH_SINGLY + 1);
    }

    /// Removes the translations of the range from a table of the lowest level.
    fn remove_entries(&mut self, table: Table, from: u64, to: u64) {
        let count = table.count().get();
        let few = self.removed + count <= FLUSH_SINGLY;
        if !(self.flush_singly && few) && to - from == PAGE_SIZE << 9 {
            // SAFETY: a page of the budget, of which nobody holds an entry here. The processor only reads
            // it, a word at a time.
            unsafe { zero_page(table.physical()) };
            table.count().set(0);
            self.removed += count;
            self.looked += CLEARED;
            return;
        }
        let first = index(from, 1);
        let mut left = count;
        for i in first..first + ((to - from) / PAGE_SIZE) as usize {
            if left == 0 {
                break;
            }
            if table.entry(i).replace(0) != 0 {
                left -= 1;
                if self.flush_singly && self.removed + count - left <= FLUSH_SINGLY {
                    invlpg(from + (i - first) as u64 * PAGE_SIZE);
                }
            }
        }
        self.looked += CLEARED;
        table.count().set(left);
        self.removed += count - left;
    }
}
