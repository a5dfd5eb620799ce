//! Page tables of users: a cache of the kernel's mapping hierarchy, within a fixed budget of pages.
//!
//! Table pages are the highest quarter of the pool. Each is zero while it is free, so that a table whose last entry was
//! removed can be freed as it is. Beside the tables there are two counts per table: the entries in use, and the tables
//! below. Accessed and dirty bits are set from the beginning, so that the processor never writes to a table.
//!
//! The work of a removal is bounded, however many translations it removes ([`MOST_LOOKED`]): beyond that, whole tables
//! are cut off with all tables below them, and the code that takes such a table for a new use empties it.
//!
//! The processor may walk the tables in use at any instant, also for addresses that no program used, and cache what it
//! reads: translations of pages (in its TLB), and the way to a table (in its paging-structure caches). Hence a removal
//! has three steps, in this order: it clears the entries of all levels; it makes the processor forget them; only then
//! may a freed table page get new entries. The tests in `paging_model.rs` run this file on a model of a processor that
//! caches all that it may.
//!
//! The place of a collocated space (`abi::collocated`) consists of tables of the third level, to which every root leads
//! by entries without the bit for user mode: ring 3 faults there, whatever the tables below allow. They are made when
//! the place is first taken, and stay. A collocated space has no root.

use super::instructions::{cr3, invlpg, reload_cr3, set_cr3};
use super::memory::{
    self, table_word, zero_page, ACCESSED, ADDRESS, DIRTY, NO_EXECUTE, PRESENT, UNCACHED, USER,
    WRITABLE,
};
use super::Global;
use crate::{device_frame, user_frame, NarrowRef, Pfn};
use abi::{access, collocated, PAGE_SIZE, USER_END};
use core::cell::Cell;

/// The position of a page's rights ([`abi::access`]) in its entry, in bits that the processor ignores.
const RIGHTS_SHIFT: u32 = 52;
/// An entry that leads to a table.
const LINK: u64 = PRESENT | WRITABLE | USER | ACCESSED;
/// The most pages that are flushed from the TLB one by one; more are flushed by loading CR3.
const FLUSH_SINGLY: u32 = 16;
/// Number of entries that a removal checks one by one. After that it cuts off all further tables whose whole range is
/// removed, without looking into them. Clearing a table of the lowest level counts as [`CLEARED`] entries.
const MOST_LOOKED: u32 = 1024;
/// Number of entries that can be checked with as many instructions as it takes to clear a table of the lowest level.
const CLEARED: u32 = 128;

struct Budget {
    /// Physical address of the first table page.
    base: Cell<u64>,
    /// For each table page the number of entries in use; for a free page the index of the next free page, plus 1.
    notes: Cell<&'static [Cell<u32>]>,
    /// For each table page in use the number of tables below it; for a table that was cut off its level, shifted by
    /// [`LEVEL_SHIFT`], and the index of the next table that was cut off, plus 1.
    below: Cell<&'static [Cell<u32>]>,
    /// Index of the first free table page, plus 1.
    free: Cell<u32>,
    /// Index of the first table page that was cut off and still has its entries, plus 1.
    cut: Cell<u32>,
    /// Table pages from here on have never been used, and may not be zero.
    untouched: Cell<u32>,
}

/// The position of the level of a table that was cut off, in its word of [`Budget::below`].
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
        // SAFETY: a word of a table page of the budget, which contains only such words: a `Table` is made
        // only by `take` and from entries that lead to a table.
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

    /// The number of tables below this one.
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
        // SAFETY: a page of the pool that only this budget uses, and in which it has made no cell yet.
        unsafe { zero_page(table.physical()) };
        Some(table)
    }

    /// Takes a table that was cut off and empties it. The tables below it then count as cut off themselves.
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

    /// Frees a table of `level` with its entries and all tables below it; [`Table::take`] empties them. Returns the
    /// number of tables.
    #[inline(always)]
    fn cut_off(self, level: u32) -> u32 {
        let below = self.tables_below();
        let next = BUDGET.0.cut.replace(self.index() + 1);
        below.replace(level << LEVEL_SHIFT | next) + 1
    }

    /// Frees the table page. All its entries must be zero.
    fn give_back(self) {
        self.count().set(BUDGET.0.free.get());
        BUDGET.0.free.set(self.index() + 1);
    }
}

/// The page table of one space: a cache of the mapping hierarchy.
pub struct PageTable {
    /// The root table's physical address; that of the kernel's own root while the page table has no root.
    root: Cell<u64>,
    /// Number of its place, plus 1, if the page table is collocated; it then never has a root of its own. Otherwise 0.
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

/// The bits of an entry for each combination of rights of [`abi::access`]. A page without access rights is not present:
/// at a collocated place a missing bit for user mode would not keep ring 1 out.
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

/// The entries that are the same in all roots: the places of collocated spaces, and the kernel's half.
const KERNEL_ENTRIES: core::ops::Range<usize> = 128..512;
const _: () = assert!(index(collocated::START, 4) == KERNEL_ENTRIES.start);
/// Number of bytes of addresses that one entry of a root covers.
const REACH: u64 = 1 << 39;

/// The place of a page table's root, whose value may change.
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

    /// Whether the processor may have cached its translations: those of a place are part of every root.
    fn loaded(&self) -> bool {
        self.root.get() == cr3() || self.is_collocated()
    }

    /// The place of its root, for the exit code. The exit code loads no root for threads of a collocated table, whose
    /// translations are part of whichever root is loaded.
    pub(crate) fn root_of(&'static self) -> Root {
        NarrowRef::of(&self.root)
    }

    /// Whether a context with this root means this page table.
    pub(crate) fn is_root(&'static self, root: Root) -> bool {
        self.root_of() == root
    }

    /// Makes this the page table of a place ([`abi::collocated`]): its addresses are those of the place, and ring 1 has
    /// its translations whichever root is loaded. That holds for every page table that has no root yet; the caller must
    /// clear the others unless [`PageTable::leads_to`] the place already. `None` if there is no such place or no memory
    /// for its tables, if the table has translations, or if the processor cannot keep ring 1 away from pages of user
    /// mode (SMEP and SMAP). The caller makes sure that no other table has the place.
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

    /// Whether every page table already leads to the place, because some table had the place before. False if there is
    /// no such place.
    #[must_use]
    pub fn leads_to(place: u64) -> bool {
        place < collocated::COUNT && {
            let (start, end) = collocated::range(place);
            let mut entries = index(start, 4)..=index(end - 1, 4);
            entries.all(|i| memory::kernel_root_entry(i) != 0)
        }
    }

    /// Whether this is the page table of a place.
    #[inline(always)]
    pub fn is_collocated(&self) -> bool {
        self.place.get() != 0
    }

    /// Clears the page table, and makes it an ordinary one.
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

    /// The highest of its tables on the way to an address within its reach, with the table's level.
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

    /// Notes that it has freed so many tables. Clears the cache of leaves, since these may be among them.
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
        // Loops of constant length, for speed: each message to a page that was not used lately comes here.
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

    /// The entry of the cache for the leaf of the address.
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

    /// Maps the page around `address`, and replaces any translation that it had. Rights are of
    /// [`abi::access`]. `None`, with no translation changed, if there is no memory for a table page.
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

    /// Maps `pages` pages from `address` on to consecutive frames from `first` on, except pages that are mapped already
    /// and frames that do not belong to users. One table of the lowest level must translate them all; if that table
    /// does not exist, nothing happens.
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

    /// Adds the missing tables above a page, and returns that of the lowest level.
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
                // If there is no memory for a deeper table, this one stays behind empty: the next
                // insertion, removal or `clear` finds it.
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

    /// Removes the translations of a range of whole pages. Returns the number of translations removed; or, if some were
    /// cut off with their tables, which are not counted, some number above [`FLUSH_SINGLY`].
    #[inline]
    pub fn remove(&self, from: u64, to: u64) -> u32 {
        if to.wrapping_sub(from) == PAGE_SIZE {
            return self.remove_page(from);
        }
        self.remove_pages(from, to, u32::MAX)
    }

    /// Frees about `most` table pages with all translations in them; all of them if it has no more. So the work is
    /// bounded, however many table pages there are.
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

    /// Removes the translations of a range, until `most` tables have been freed.
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
            // Under full preemption a thread that preempted this may have loaded the table meanwhile, so that the
            // processor may have cached entries that were still there.
            if removal.removed > FLUSH_SINGLY || !loaded {
                reload_cr3();
            } else if removal.freed > 0 {
                // The pages were flushed one by one, but since then the processor may have cached the way to their
                // tables again. Invalidating any address makes it forget all such ways.
                invlpg(start);
            }
        }
        removal.removed
    }

    /// Removes all translations and frees every table page.
    pub fn clear(&self) {
        if self.is_collocated() {
            let (start, end) = self.reach();
            self.remove_pages(start, end, u32::MAX);
            return;
        }
        let Some(root) = self.root() else { return };
        // From here on no thread that preempts this (full preemption) can load the root; a thread of this space that
        // runs faults, and waits until this is done. Only then is it safe to check whether the root is loaded.
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

    /// The number of table pages that this page table has.
    pub fn pages(&self) -> u32 {
        self.pages.get()
    }

    /// Loads its root as the exit code does; the kernel's own root while it has none.
    #[cfg(test)]
    pub fn activate(&self) {
        load(self.root.get());
    }
}

/// The byte at an address of users' memory, through the root that is loaded.
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
    // the kernel's; `clear` unloads a root before it frees it.
    unsafe { set_cr3(root) };
}

/// A removal under way.
struct Removal {
    /// Whether to flush the first [`FLUSH_SINGLY`] pages one by one.
    flush_singly: bool,
    /// Translations removed so far.
    removed: u32,
    /// Tables freed so far.
    freed: u32,
    /// Entries checked so far.
    looked: u32,
    /// The removal ends when so many tables have been freed.
    most: u32,
}

impl Removal {
    /// Removes the translations of the range, which begins at a page, from `table`, which is not of the lowest level,
    /// and from the tables below. Frees tables that become empty and, after [`MOST_LOOKED`] entries, all tables whose
    /// whole range is removed. The processor may still have cached the way to them: the caller must make it forget that
    /// before any table page is taken.
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
            // A caller that wants a limited number of tables must not get more.
            let enough = self.looked > MOST_LOOKED && self.most == u32::MAX;
            if enough && to - from == reach {
                // And all following tables whose whole range is removed.
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
            // SAFETY: a page of the budget, to which no code holds an entry here. The processor only reads it,
            // a word at a time.
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
