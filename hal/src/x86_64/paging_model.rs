//! Tests of `paging.rs` on the host, over a model of a processor that keeps every translation that it may.
//!
//! A processor may walk the tables that CR3 leads to at any instant, for any address, and cache what it
//! reads: translations of pages, and the way to a table ("paging-structure caches"). It may continue a walk
//! from any such way, although the entry above it is gone. The model caches all translations and ways, as
//! they are before each operation and after each invalidation, until an instruction invalidates them:
//!
//! * `invlpg` forgets the translations of one page, and every way (Intel SDM, volume 3A, 4.10.4.1; AMD APM,
//!   volume 2, 5.5, with `EFER.TCE` clear);
//! * loading CR3, without process-context identifiers, forgets everything that is not global.
//!
//! After each operation the model must have nothing cached that differs from the tables, and no root may lead ring 3 to
//! memory of a collocated space.

use crate::{host, Pfn};
use abi::{access, collocated, PAGE_SIZE, USER_END};
use core::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

#[path = "paging.rs"]
#[allow(dead_code, unreachable_pub)]
mod paging;
use paging::PageTable;

/// As on the machine: a static that one thread uses.
struct Global<T>(T);
// SAFETY: only a test that holds `TURN` uses these statics.
unsafe impl<T> Sync for Global<T> {}

/// The lock of the model, held by the test that uses it.
static TURN: Mutex<()> = Mutex::new(());

/// The number of table pages.
const TABLES: u32 = 64;
/// The physical address of the first table page.
const BASE: u64 = 0x1000_0000;
/// The kernel's own root, which translates nothing for users.
const KERNEL_ROOT: u64 = 0x7000;

/// The indices of the root's entries for places of collocated spaces.
const PLACES: core::ops::Range<usize> = 128..256;

/// The model's processor has SMEP and SMAP.
fn keeps_rings_apart() -> bool {
    true
}

/// A way to a table: its level, the number of the range that it translates, its address.
type Way = (u32, u64, u64);

/// The work of a thread that preempts an operation, and the number of accesses to a word or to CR3 after which it
/// preempts.
type Other = (u64, Box<dyn Fn()>);

struct Processor {
    words: RefCell<Vec<&'static [Cell<u64>]>>,
    cr3: Cell<u64>,
    /// The entries of the kernel's own root for places of collocated spaces, which every other root has too.
    places: [Cell<u64>; PLACES.end - PLACES.start],
    /// Page number and entry.
    translations: RefCell<BTreeSet<(u64, u64)>>,
    ways: RefCell<BTreeSet<Way>>,
    /// The number of words read, of pages invalidated one by one and of CR3 loads since the operation began.
    touched: Cell<u64>,
    singly: Cell<u32>,
    loads: Cell<u32>,
    /// The threads that preempt the operation; the last one preempts first.
    others: RefCell<Vec<Other>>,
}

static PROCESSOR: Global<Processor> = Global(Processor {
    words: RefCell::new(Vec::new()),
    cr3: Cell::new(KERNEL_ROOT),
    places: [const { Cell::new(0) }; PLACES.end - PLACES.start],
    translations: RefCell::new(BTreeSet::new()),
    ways: RefCell::new(BTreeSet::new()),
    touched: Cell::new(0),
    singly: Cell::new(0),
    loads: Cell::new(0),
    others: RefCell::new(Vec::new()),
});

fn word(physical: u64, index: usize) -> &'static Cell<u64> {
    let page = (physical - BASE) / PAGE_SIZE;
    &PROCESSOR.0.words.borrow()[page as usize][index & 511]
}

impl Processor {
    /// A point at which others may preempt the operation.
    fn preemption_point(&self) {
        let is_due = |other: &mut Other| {
            other.0 = other.0.saturating_sub(1);
            other.0 == 0
        };
        if self.others.borrow_mut().last_mut().is_some_and(is_due) {
            let other = self.others.borrow_mut().pop();
            other.into_iter().for_each(|(_, other)| other());
        }
    }

    /// Caches all translations and ways that a walk can find now, from CR3 and from every cached way.
    fn look(&self) {
        let mut ways = self.ways.borrow_mut();
        let mut left: Vec<Way> = ways.iter().copied().collect();
        if self.cr3.get() == KERNEL_ROOT {
            for (i, entry) in PLACES.zip(&self.places) {
                if entry.get() != 0 {
                    left.push((3, i as u64, entry.get() & memory::ADDRESS));
                }
            }
        } else {
            left.push((4, 0, self.cr3.get()));
        }
        while let Some((level, range, table)) = left.pop() {
            for i in 0..if level == 4 { 256 } else { 512 } {
                let entry = word(table, i).get();
                if entry & memory::PRESENT == 0 {
                    continue;
                }
                let below = range << 9 | i as u64;
                if level == 1 {
                    self.translations.borrow_mut().insert((below, entry));
                    continue;
                }
                let way = (level - 1, below, entry & memory::ADDRESS);
                if ways.insert(way) {
                    left.push(way);
                }
            }
        }
    }

    /// The entry for a range of `level` in the present tables.
    fn entry(&self, level: u32, range: u64) -> u64 {
        let mut table = self.cr3.get();
        let mut entry = 0;
        for l in (level..=4).rev() {
            let index = (range >> (9 * (l - level)) & 511) as usize;
            entry = if table != KERNEL_ROOT {
                word(table, index).get()
            } else {
                memory::kernel_root_entry(index)
            };
            if entry & memory::PRESENT == 0 {
                return 0;
            }
            table = entry & memory::ADDRESS;
        }
        entry
    }

    /// Checks that the processor keeps no translation that the tables do not have.
    fn check(&self) {
        for &(page, entry) in self.translations.borrow().iter() {
            let address = page * PAGE_SIZE;
            assert!(
                self.entry(1, page) == entry,
                "the processor keeps a translation that is gone: {address:#x}"
            );
        }
        for &(level, range, table) in self.ways.borrow().iter() {
            let entry = self.entry(level + 1, range);
            let address = range << (12 + 9 * level);
            assert!(
                entry != 0 && entry & memory::ADDRESS == table,
                "the processor keeps a way to a table of level {level} that is gone: {address:#x}"
            );
        }
        self.check_places();
    }

    /// All roots but the kernel's own: the tables that no entry leads to. Freed tables are among them; they are empty.
    fn roots(&self) -> Vec<u64> {
        let words = self.words.borrow();
        let mut led_to = vec![false; words.len()];
        for entry in words.iter().copied().flatten().chain(&self.places) {
            let table = (entry.get() & memory::ADDRESS).checked_sub(BASE);
            let page = table.map_or(usize::MAX, |offset| (offset / PAGE_SIZE) as usize);
            if let Some(led_to) = led_to.get_mut(page) {
                *led_to = true;
            }
        }
        let tables = (0..).zip(led_to).filter(|(_, led_to)| !led_to);
        tables.map(|(page, _)| BASE + page * PAGE_SIZE).collect()
    }

    /// Checks that ring 3 reaches no page of a place, whichever root is loaded: on the way to each page at least one
    /// entry lacks the bit for user mode.
    fn check_places(&self) {
        let of_kernel = PLACES.zip(self.places.iter().map(Cell::get));
        let of_others = self.roots().into_iter();
        let of_others = of_others.flat_map(|root| PLACES.map(move |i| (i, word(root, i).get())));
        for (i, entry) in of_kernel.chain(of_others) {
            let mut left = vec![(4, i as u64, entry, true)];
            while let Some((level, range, entry, user)) = left.pop() {
                if entry & memory::PRESENT == 0 {
                    continue;
                }
                let user = user && entry & memory::USER != 0;
                // All pages below an entry of the kernel are the kernel's.
                if level > 1 && user {
                    let table = entry & memory::ADDRESS;
                    let below = |i| (level - 1, range << 9 | i as u64, word(table, i).get(), user);
                    left.extend((0..512).map(below));
                }
                let address = range * PAGE_SIZE;
                assert!(
                    level > 1 || !user,
                    "ring 3 reaches a page of a collocated space: {address:#x}"
                );
            }
        }
    }
}

/// Runs one operation: the processor caches all that it can before it, and must have nothing stale after it.
fn step<R>(f: impl FnOnce() -> R) -> R {
    let processor = &PROCESSOR.0;
    processor.look();
    processor.touched.set(0);
    processor.singly.set(0);
    processor.loads.set(0);
    let result = f();
    processor.look();
    processor.check();
    result
}

/// The instructions that `paging.rs` uses.
mod instructions {
    use super::*;

    pub(super) fn cr3() -> u64 {
        PROCESSOR.0.preemption_point();
        let value = PROCESSOR.0.cr3.get();
        PROCESSOR.0.preemption_point();
        value
    }

    /// # Safety
    /// None here: as on the machine.
    pub(super) unsafe fn set_cr3(value: u64) {
        let processor = &PROCESSOR.0;
        processor.cr3.set(value);
        processor.loads.set(processor.loads.get() + 1);
        processor.translations.borrow_mut().clear();
        processor.ways.borrow_mut().clear();
        processor.look();
    }

    pub(super) fn reload_cr3() {
        PROCESSOR.0.preemption_point();
        // SAFETY: the model's function has no conditions.
        unsafe { set_cr3(PROCESSOR.0.cr3.get()) };
    }

    pub(super) fn invlpg(address: u64) {
        let processor = &PROCESSOR.0;
        processor.singly.set(processor.singly.get() + 1);
        let page = address / PAGE_SIZE;
        processor.translations.borrow_mut().retain(|t| t.0 != page);
        processor.ways.borrow_mut().clear();
        processor.look();
    }
}

/// The part of `memory.rs` that `paging.rs` uses.
mod memory {
    use super::*;
    pub(super) use crate::{alloc_slice, read_bytes};

    pub(super) const PRESENT: u64 = 1;
    pub(super) const WRITABLE: u64 = 1 << 1;
    pub(super) const USER: u64 = 1 << 2;
    pub(super) const UNCACHED: u64 = 1 << 4 | 1 << 3;
    pub(super) const ACCESSED: u64 = 1 << 5;
    pub(super) const DIRTY: u64 = 1 << 6;
    pub(super) const NO_EXECUTE: u64 = 1 << 63;
    pub(super) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

    pub(super) fn kernel_root() -> u64 {
        KERNEL_ROOT
    }

    pub(super) fn kernel_root_entry(index: usize) -> u64 {
        let place = index.checked_sub(PLACES.start);
        let place = place.and_then(|place| PROCESSOR.0.places.get(place));
        place.map_or(0, Cell::get)
    }

    pub(super) fn set_kernel_root_entry(index: usize, entry: u64) {
        PROCESSOR.0.places[index - PLACES.start].set(entry);
    }

    /// # Safety
    /// None here: as on the machine.
    pub(super) unsafe fn table_word(physical: u64, index: usize) -> &'static Cell<u64> {
        PROCESSOR.0.touched.set(PROCESSOR.0.touched.get() + 1);
        PROCESSOR.0.preemption_point();
        word(physical, index)
    }

    /// # Safety
    /// None here: as on the machine.
    pub(super) unsafe fn zero_page(physical: u64) {
        PROCESSOR.0.touched.set(PROCESSOR.0.touched.get() + 8);
        (0..512).for_each(|i| word(physical, i).set(0));
    }
}

const R: u64 = access::READ;
const W: u64 = access::WRITE;
/// The address at which tests begin: the last page that a table of the lowest level translates.
const AT: u64 = 0x4000_0000 - PAGE_SIZE;

/// A processor without cached translations, and frames for it.
fn fresh() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    host::reset(256);
    let processor = &PROCESSOR.0;
    let tables = (0..TABLES).map(|_| -> &[Cell<u64>] { vec![Cell::new(0); 512].leak() });
    *processor.words.borrow_mut() = tables.collect();
    processor.cr3.set(KERNEL_ROOT);
    processor.translations.borrow_mut().clear();
    processor.ways.borrow_mut().clear();
    processor.places.iter().for_each(|entry| entry.set(0));
    processor.others.borrow_mut().clear();
    paging::begin_anew(BASE, TABLES);
    turn
}

fn frame(i: u64) -> Pfn {
    Pfn(host::FIRST_FRAME + (i % 200) as u32)
}

/// Inserts translations of `pages` pages, from `at` on.
fn fill(table: &PageTable, at: u64, pages: u64) {
    for i in 0..pages {
        table
            .insert(at + i * PAGE_SIZE, frame(i), R | W, false)
            .expect("a table page");
    }
}

#[test]
fn a_removed_page_is_forgotten_with_the_way_to_it() {
    let _turn = fresh();
    for pages in (1..=20).chain([512, 513, 1000]) {
        let (table, other) = (PageTable::new(), PageTable::new());
        step(|| fill(&table, AT, pages));
        step(|| table.activate());
        // A range of one page keeps its table for the next one.
        let end = AT + (pages + u64::from(pages == 1)) * PAGE_SIZE;
        assert_eq!(
            step(|| table.remove(AT, end)),
            pages as u32,
            "all that were there"
        );
        assert_eq!(table.pages(), 1, "tables without entries go back");
        // The tables are reused for other addresses.
        fill(&other, 0x123_4567_8000, 3);
        step(|| other.clear());
        step(|| table.clear());
    }
}

#[test]
fn a_replaced_page_is_forgotten() {
    let _turn = fresh();
    let table = PageTable::new();
    fill(&table, AT, 4);
    step(|| table.activate());
    step(|| fill(&table, AT + PAGE_SIZE, 2));
    assert_eq!(step(|| table.remove(AT, AT + PAGE_SIZE)), 1, "one page");
    let gone = |table: &PageTable| table.lookup(AT).is_none();
    assert!(gone(&table) && table.lookup(AT + PAGE_SIZE) == Some((frame(0), R | W)));
    step(|| table.clear());
}

#[test]
fn any_order_of_changes_leaves_nothing_behind() {
    let _turn = fresh();
    let tables = [0; 4].map(|_| PageTable::new());
    let places = [1, 15];
    for (table, place) in tables[2..].iter().zip(places) {
        table.collocate(place).expect("a place");
    }
    let mut pages = [const { std::collections::BTreeMap::new() }; 4];
    let mut random = fastrand::Rng::with_seed(1);
    let mut dice = move |n: u64| random.u64(..n);
    // Few ranges, so that tables of every level come and go.
    let starts = [
        0,
        0x1f_8000,
        0x3fff_8000,
        0x7f_ffff_8000,
        collocated::START - 0x40_0000,
    ];
    for i in 0..3000 {
        let which = dice(4) as usize;
        let (table, known) = (&tables[which], &mut pages[which]);
        let start = match which {
            0 | 1 => starts[dice(5) as usize],
            // Not up to the last page of the user half, which no program can have.
            _ => collocated::range(places[which - 2]).0 + dice(2) * 0x3fff_8000,
        };
        let from = start + dice(24) * PAGE_SIZE;
        let count = [1, 1, 3, 17, 600][dice(5) as usize];
        match dice(40) {
            0..16 => step(|| {
                for page in (0..count.min(20)).map(|page| from + page * PAGE_SIZE) {
                    let rights = [R, R | W][(i % 2) as usize];
                    if table.insert(page, frame(i), rights, false).is_some() {
                        known.insert(page, (frame(i), rights));
                    }
                }
            }),
            16..28 => {
                let end = from + count * PAGE_SIZE;
                let gone: Vec<u64> = known.range(from..end).map(|(page, _)| *page).collect();
                let removed = step(|| table.remove(from, end));
                assert_eq!(removed as usize, gone.len(), "pages that were removed");
                for page in gone {
                    known.remove(&page);
                }
            }
            28..32 => step(|| tables[which % 2].activate()),
            // So many entries are checked that tables are cut off.
            32..34 => {
                let removed = step(|| table.remove(0, USER_END));
                assert!(
                    removed as usize >= known.len().min(17),
                    "pages that were removed"
                );
                known.clear();
            }
            _ => step(|| {
                if table.insert(from, frame(i), R, false).is_none() {
                    return;
                }
                known.insert(from, (frame(i), R));
                let left = 512 - from / PAGE_SIZE % 512;
                let pages = count.min(16).min(left);
                table.fill(from, pages, frame(i), R | W);
                for page in 1..pages {
                    let at = from + page * PAGE_SIZE;
                    let fresh = (Pfn(frame(i).0 + page as u32), R | W);
                    known.entry(at).or_insert(fresh);
                }
            }),
        }
        let found = |page: u64| known.get(&page).copied();
        for page in (0..30).map(|page| from + page * PAGE_SIZE) {
            assert_eq!(table.lookup(page), found(page), "what is at {page:#x}");
        }
    }
    tables.iter().for_each(|table| step(|| table.clear()));
    let left: u32 = tables.iter().map(PageTable::pages).sum();
    assert_eq!(left, 0, "clear leaves tables");
}

/// A way to remove translations, and its name.
type Operation<'a> = (&'a str, &'a dyn Fn(&PageTable));

/// A removal checks a bounded number of entries, however many tables there are; and the tables that it cuts off can be
/// taken again.
#[test]
fn the_work_of_a_removal_is_bounded() {
    const PAGES: u64 = 31;
    let _turn = fresh();
    let (table, other) = (PageTable::new(), PageTable::new());
    let gigabyte = 1 << 30;
    // The last page of each gigabyte, so that each table is searched to its end.
    let page = |i: u64| (i + 1) * gigabyte - PAGE_SIZE;
    let sparse = |table: &PageTable| {
        for i in 0..PAGES {
            let inserted = table.insert(page(i), frame(i), R, false);
            inserted.expect("all tables that there are");
        }
        assert_eq!(table.pages(), TABLES, "two for each, and two above");
    };
    let all: [Operation; 3] = [
        ("a range", &|table| {
            table.remove(PAGE_SIZE, page(PAGES) + PAGE_SIZE);
        }),
        ("everything", &|table| {
            table.remove(0, USER_END);
        }),
        ("a table that is cleared", &|table| table.clear()),
    ];
    for (what, operation) in all.iter().chain(&all) {
        for table in [&table, &other] {
            step(|| sparse(table));
            step(|| table.activate());
            step(|| operation(table));
            let touched = PROCESSOR.0.touched.get();
            // `MOST_LOOKED` entries and the table that was begun, two accesses for each (one to read, one to change),
            // and the ends of the range.
            assert!(touched < 3500, "{what}: {touched} words");
            assert!((0..PAGES).all(|i| table.lookup(page(i)).is_none()));
            assert!(table.pages() <= 2, "{what}: tables below are gone");
            step(|| table.clear());
            assert_eq!(table.pages(), 0, "{what}: counted tables");
        }
    }
}

/// Under full preemption a thread of the space may preempt a removal of its translations at any point, and load its
/// table: afterwards the processor has no removed translation cached, and no freed table loaded.
#[test]
fn who_preempts_a_removal_may_load_the_table() {
    let _turn = fresh();
    let table: &'static PageTable = Box::leak(Box::default());
    let other: &'static PageTable = Box::leak(Box::default());
    fill(other, AT, 2);
    step(|| other.activate());
    let others = PROCESSOR.0.cr3.get();
    let end = AT + 40 * PAGE_SIZE;
    let operations: [&dyn Fn(); 4] = [
        &|| table.clear(),
        &|| table.clear_some(1),
        &|| assert!(table.remove(AT, AT + 5 * PAGE_SIZE) <= 5),
        &|| assert!(table.remove(AT, end) <= 12),
    ];
    for (operation, loaded, more, after) in (0..operations.len())
        .flat_map(|operation| [(operation, false), (operation, true)])
        .flat_map(|(operation, loaded)| [0, 1, 3].map(|more| (operation, loaded, more)))
        .flat_map(|(operation, loaded, more)| (1..60).map(move |n| (operation, loaded, more, n)))
    {
        fill(table, AT, 12);
        step(|| [other, table][usize::from(loaded)].activate());
        step(|| {
            let mut all: Vec<Other> = vec![(after, Box::new(|| table.activate()))];
            if more > 0 {
                // Another thread preempts before.
                all[0].0 = more;
                all.push((after, Box::new(|| other.activate())));
            }
            *PROCESSOR.0.others.borrow_mut() = all;
            operations[operation]();
            PROCESSOR.0.others.borrow_mut().clear();
        });
        let root = PROCESSOR.0.cr3.get();
        let case = (operation, loaded, more, after);
        assert!(
            table.pages() > 0 || [KERNEL_ROOT, others].contains(&root),
            "a table is loaded that was given back: {case:?}"
        );
        step(|| table.clear());
    }
    step(|| other.clear());
}

/// The table that the preempting thread loaded may be freed meanwhile: the removal does not load it again.
#[test]
fn who_preempts_a_removal_may_end_who_preempted_it() {
    let _turn = fresh();
    let table: &'static PageTable = Box::leak(Box::default());
    let other: &'static PageTable = Box::leak(Box::default());
    let third: &'static PageTable = Box::leak(Box::default());
    fill(third, AT, 2);
    for (before, after) in (1..60).flat_map(|before| (1..20).map(move |after| (before, after))) {
        fill(table, AT, 40);
        fill(other, AT, 2);
        step(|| other.activate());
        let others = PROCESSOR.0.cr3.get();
        step(|| table.activate());
        step(|| {
            let end = move || {
                third.activate();
                other.clear();
            };
            *PROCESSOR.0.others.borrow_mut() = vec![
                (after, Box::new(end)),
                (before, Box::new(|| other.activate())),
            ];
            table.remove(AT, AT + 40 * PAGE_SIZE);
            PROCESSOR.0.others.borrow_mut().clear();
        });
        assert!(
            other.pages() > 0 || PROCESSOR.0.cr3.get() != others,
            "a table is loaded that was given back: {before} {after}"
        );
        step(|| third.activate());
        step(|| table.clear());
        step(|| other.clear());
    }
    step(|| third.clear());
}

/// [`PageTable::fill`] maps only frames of users, replaces no translation, and allocates no table.
#[test]
fn pages_around_another_one_are_users_and_replace_nothing() {
    let _turn = fresh();
    let table = PageTable::new();
    step(|| table.fill(AT, 1, frame(0), R));
    assert_eq!(table.pages(), 0, "a table for pages around nothing");
    fill(&table, AT - 4 * PAGE_SIZE, 1);
    let kernels = Pfn(host::FIRST_FRAME - 2);
    step(|| table.fill(AT - 5 * PAGE_SIZE, 6, kernels, R));
    let found = [5, 4, 3, 2, 1, 0].map(|n| table.lookup(AT - n * PAGE_SIZE));
    let fresh = |n| Some((frame(n), R));
    let old = Some((frame(0), R | W));
    assert_eq!(found, [None, old, fresh(0), fresh(1), fresh(2), fresh(3)]);
    step(|| table.clear());
    assert_eq!(table.pages(), 0, "counted entries");
}

/// The translations of a place are there whichever root is loaded, belong to no other page table, and go from all
/// roots.
#[test]
fn a_place_is_the_same_in_all_tables() {
    let _turn = fresh();
    let (inner, other) = (PageTable::new(), PageTable::new());
    let (at, end) = collocated::range(2);
    assert!(
        inner.collocate(collocated::COUNT).is_none(),
        "no such place"
    );
    let lead = || [1, 2, collocated::COUNT].map(PageTable::leads_to);
    assert_eq!(lead(), [false; 3], "nobody has had a place");
    inner.collocate(2).expect("a place");
    assert_eq!(lead(), [false, true, false], "what tables lead to");
    fill(&other, AT, 3);
    assert!(inner.collocate(3).is_none(), "a second place");
    assert!(other.collocate(3).is_none(), "a table in use");
    step(|| fill(&inner, at, 20));
    assert_eq!(inner.pages(), 2, "the upper tables are everybody's");
    let entry = || PROCESSOR.0.entry(1, at / PAGE_SIZE);
    let shown = entry();
    assert!(
        shown & memory::PRESENT != 0
            && shown & memory::ADDRESS == u64::from(frame(0).0) * PAGE_SIZE
    );
    for entry in &PROCESSOR.0.places {
        assert_eq!(entry.get() & memory::USER, 0, "ring 3 is kept out");
    }
    step(|| other.activate());
    assert_eq!(entry(), shown, "in another table");
    assert!(other.lookup(at).is_none() && inner.lookup(AT).is_none());
    assert_eq!(step(|| other.remove(0, USER_END)), 3, "its own only");
    assert_eq!(step(|| inner.remove(0, at)), 0, "nothing outside its place");
    assert_eq!(step(|| inner.remove(at, end)), 20, "all that it had");
    assert_eq!(entry(), 0, "gone from all");
    let last = collocated::range(2).1 - 3 * PAGE_SIZE;
    step(|| fill(&inner, at, 5));
    step(|| fill(&inner, last, 3));
    step(|| inner.leave_place());
    assert_eq!(PROCESSOR.0.entry(1, last / PAGE_SIZE), 0);
    assert_eq!(
        (entry(), inner.pages()),
        (0, 0),
        "a place that is left is empty"
    );
    assert!(PageTable::leads_to(2), "the upper tables stay");
    step(|| other.clear());
}

/// The costs of an operation: words touched, pages invalidated one by one, and CR3 loads.
#[test]
fn what_changes_cost() {
    let _turn = fresh();
    let cost = |what: &str, most: (u64, u32, u32), f: &dyn Fn()| {
        step(f);
        let processor = &PROCESSOR.0;
        let took = (
            processor.touched.get(),
            processor.singly.get(),
            processor.loads.get(),
        );
        assert!(
            took.0 <= most.0 && took.1 <= most.1 && took.2 <= most.2,
            "{what} costs (words, pages invalidated, loads of CR3) {took:?} instead of {most:?}"
        );
    };
    let table = PageTable::new();
    fill(&table, AT, 40);
    step(|| table.activate());
    let page = |i: u64| AT + i * PAGE_SIZE;
    let look = || {
        table.lookup(page(5));
    };
    look();
    cost("a page whose table was used lately", (1, 0, 0), &look);
    cost("a page that is supplied", (1, 0, 0), &|| {
        fill(&table, page(40), 1)
    });
    let remove = |i, n| {
        table.remove(page(i), page(i + n));
    };
    cost("one page that goes", (1, 1, 0), &|| remove(40, 1));
    cost("16 pages that go", (24, 16, 0), &|| remove(1, 16));
    cost("what is not there", (1100, 0, 0), &|| {
        table.remove(0, AT);
    });
    // The search ends with the last entry.
    let rest = &|| {
        table.remove(AT, USER_END);
    };
    cost("the rest, with its tables", (40, 1, 1), rest);
    cost("an empty space", (0, 0, 0), rest);
    step(|| table.clear());
}
