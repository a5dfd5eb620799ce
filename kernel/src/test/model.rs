//! Data structures against simple models: the tree of mappings, accounts, deadlines, priorities.

use super::hostile::Random;
use super::world::*;
use crate::avl;
use crate::check;
use crate::object::account;
use crate::object::mapping::Mapping;
use crate::object::thread::Run;
use crate::object::tree::Mappings;
use crate::object::{Object, Phase};
use abi::{boot, Call, Code, PAGE_SIZE};
use core::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

#[test]
fn mappings_are_found_as_in_an_ordered_map() {
    let w = World::with_frames(64);
    for _ in 0..128 {
        w.create(Call::MappingCreate);
    }
    let k = w.k;
    let fresh = |m: &&Mapping| m.head().phase() == Phase::Active && m.size.get() == 0;
    let pool: Vec<&'static Mapping> = k.mappings.iter().filter(fresh).collect();
    for seed in 1..20 {
        let mut random = Random::new(seed);
        let tree = Mappings::new(w.k.no_mapping);
        let mut model = BTreeMap::<u64, (u64, usize)>::new();
        let mut free: Vec<usize> = (0..pool.len()).collect();
        for _ in 0..2000 {
            let at = random.below(200) * PAGE_SIZE;
            let size = (1 + random.below(6)) * PAGE_SIZE;
            let taken = model
                .iter()
                .any(|(&s, &(n, _))| s < at + size && at < s + n);
            let except = random.below(pool.len() as u64) as usize;
            let others = model
                .iter()
                .any(|(&s, &(n, i))| i != except && s < at + size && at < s + n);
            assert_eq!(tree.overlaps(at, size, pool[except]), others);
            if random.below(2) == 0 {
                if let (false, Some(i)) = (taken, free.pop()) {
                    pool[i].plant(&tree, at, size);
                    model.insert(at, (size, i));
                }
            } else if let Some((&start, &(_, i))) = model.range(at..).next() {
                pool[i].uproot(w.k, &tree);
                pool[i].size.set(0);
                model.remove(&start);
                free.push(i);
            }
            let to = random.below(200) * PAGE_SIZE;
            if let Some((&start, &(n, i))) = model.range(at..).next() {
                let hull = start.min(to)..(start + n).max(to + size);
                let free = model
                    .iter()
                    .all(|(&s, &(n, j))| i == j || s + n <= hull.start || hull.end <= s);
                assert_eq!(pool[i].can_slide(to, size), free);
                if free {
                    pool[i].start.set(to);
                    pool[i].size.set(size);
                    model.remove(&start);
                    model.insert(to, (size, i));
                }
            }
            tree.each(&|_| {});
            let probe = random.below(220 * PAGE_SIZE);
            let before = model.range(..=probe).next_back();
            let inside = before
                .filter(|(&s, &(n, _))| probe < s + n)
                .map(|(_, &(_, i))| i);
            let next = inside.or_else(|| model.range(probe..).next().map(|(_, &(_, i))| i));
            let same = |a: Option<&'static Mapping>, b: Option<usize>| {
                a.map(core::ptr::from_ref) == b.map(|i| core::ptr::from_ref(pool[i]))
            };
            assert!(same(tree.covering(probe), inside), "seed {seed}");
            assert!(same(tree.at_or_after(probe), next), "seed {seed}");
            assert!(same(tree.next(probe), next), "seed {seed}");
        }
        for i in model.values().map(|m| m.1) {
            pool[i].uproot(w.k, &tree);
            pool[i].size.set(0);
        }
        tree.each(&|_| panic!("nothing is left"));
    }
}

/// Spaces below spaces, closed in any order, with objects that outlive them.
#[test]
fn quotas_come_back_in_any_order() {
    for seed in 0..24u64 {
        let w = World::with_frames(64);
        let root = || {
            w.manager
                .space()
                .and_then(|s| s.account.get())
                .map(|a| a.used())
        };
        let before = root();
        let mut random = Random::new(seed + 1);
        // A chain of three: each space makes the next, in a page that the manager has mapped as well.
        let (page, state) = (w.page(), w.page());
        let physical = w.physical(page);
        let mut spaces = Vec::new();
        let mut handles = Vec::new();
        let mut maker = None;
        for n in 0..3u64 {
            let (at, quota) = (n * 64, (3 - n) << 14);
            let (mine, theirs) = (page + at, 0x50_0000 + at);
            w.words(page + 1024, &[0, quota, 0, 0, 9]);
            match maker {
                None => {
                    w.ok(Call::SpaceCreate, &[mine, 0]);
                    w.ok(Call::SpaceSetState, &[mine, page + 1024, 0]);
                }
                Some(s) => {
                    let p = Program::new()
                        .call(Call::SpaceCreate, &[(A0, theirs), (A1, 0)])
                        .keep(0x50_0000 + 2048, RESULT)
                        .call(Call::MutexCreate, &[(A0, theirs + 16), (A1, 0)])
                        .keep(0x50_0000 + 2056, RESULT)
                        .call(
                            Call::SpaceSetState,
                            &[(A0, theirs), (A1, 0x50_0000 + 1024), (A2, 0)],
                        )
                        .keep(0x50_0000 + 2064, RESULT)
                        .end();
                    let t = w.thread(s, p, 5);
                    w.run();
                    assert_eq!([2048, 2056, 2064].map(|o| w.peek(page + o)), [0; 3]);
                    handles.push((Call::MutexDestroy, mine + 16));
                    handles.push((Call::ThreadDestroy, t));
                }
            }
            let s = w.reference(Call::SpaceReference, mine);
            let m = w.map(s, 0x50_0000, PAGE_SIZE, boot::ROOT_REGION, physical);
            handles.push((Call::SpaceDestroy, mine));
            handles.push((Call::ReferenceDestroy, s));
            handles.push((Call::MappingDestroy, m));
            spaces.push(mine);
            maker = Some(s);
        }
        // A quota larger than what there is, and one smaller than what is used.
        w.words(state, &[0, 1 << 20, 0, 0, 9]);
        assert_eq!(
            w.sys(Call::SpaceSetState, &[spaces[2], state, 0]),
            Code::NoMemory
        );
        w.words(state, &[0, 1, 0, 0, 9]);
        assert_eq!(
            w.sys(Call::SpaceSetState, &[spaces[1], state, 0]),
            Code::Invalid
        );
        while !handles.is_empty() {
            let n = random.below(handles.len() as u64) as usize;
            let (call, handle) = handles.swap_remove(n);
            w.ok(call, &[handle, 0]);
        }
        assert_eq!(root(), before, "seed {seed}");
    }
}

/// A program that repeatedly makes a space from within its last one, and ends the last one, has an account for each
/// and pays for all of them.
#[test]
fn accounts_that_outlive_their_spaces_are_paid_for() {
    let w = World::with_frames(512);
    const QUOTA: u64 = 64 << 10;
    let (outer, first) = w.space(QUOTA, 0, 0);
    let state = w.page();
    let books = |space| {
        w.ok(Call::SpaceGetState, &[space, state, 0]);
        let used = state + 16;
        (w.peek(state + 8), w.peek(used))
    };
    // The first space stays, and pays for all.
    let (mut last, mut inside) = (None, first);
    let mut depth = 0;
    while depth <= QUOTA / account::COST {
        let page = w.page();
        let m = w.map(
            inside,
            0x50_0000,
            PAGE_SIZE,
            boot::ROOT_REGION,
            w.physical(page),
        );
        let p = Program::new()
            .call(Call::SpaceCreate, &[(A0, 0x50_0000), (A1, 0)])
            .keep(0x50_0000 + 2048, RESULT)
            .end();
        let t = w.thread(inside, p, 5);
        w.run();
        let code = Code::from_word(w.peek(page + 2048));
        let (quota, used) = books(last.unwrap_or(outer));
        w.ok(Call::ThreadDestroy, &[t, 0]);
        w.ok(Call::MappingDestroy, &[m, 0]);
        if code != Code::Ok {
            break;
        }
        // The next space gets all the memory that is left.
        w.words(state, &[0, quota - used, 0, 0, 9]);
        w.ok(Call::SpaceSetState, &[page, state, 0]);
        w.ok(Call::ReferenceDestroy, &[inside, 0]);
        inside = w.reference(Call::SpaceReference, page);
        if let Some(ended) = last.replace(page) {
            w.ok(Call::SpaceDestroy, &[ended, 0]);
        }
        depth += 1;
    }
    // Each change may go through all of these accounts.
    assert!(
        (40..QUOTA / account::COST).contains(&depth),
        "{depth} spaces below spaces"
    );
    let innermost = last.expect("a space");
    let (quota, _) = books(innermost);
    let accounts = depth * account::COST;
    assert!(
        books(outer).1 >= accounts + quota,
        "A9: {depth} accounts that nobody pays for"
    );
    w.ok(Call::SpaceDestroy, &[innermost, 0]);
    assert_eq!(books(outer).1, 0, "all that was charged comes back");
}

/// An item of a tree.
struct Number {
    key: u64,
    balance: Cell<i8>,
    node: avl::Node<Number>,
}

impl avl::Item for Number {
    type Key = u64;
    fn key(&self) -> u64 {
        self.key
    }
    fn node(&self) -> &avl::Node<Self> {
        &self.node
    }
    fn balance(&self) -> &Cell<i8> {
        &self.balance
    }
}

fn numbers(count: usize) -> &'static [Number] {
    let blank = |n| Number {
        key: n as u64,
        balance: Cell::new(0),
        node: avl::Node::new(),
    };
    hal::alloc_slice(count, blank).expect("memory")
}

/// A tree of numbers, and the set that it should equal.
struct Both {
    tree: avl::Tree<Number>,
    set: BTreeSet<usize>,
}

impl Both {
    fn new() -> Self {
        Both {
            tree: avl::Tree::new(),
            set: BTreeSet::new(),
        }
    }

    /// Adds the item unless it is there, and checks the neighbours that the tree returns.
    fn add(&mut self, items: &'static [Number], n: usize) {
        if self.set.insert(n) {
            let (before, after) = self.tree.insert(&items[n]);
            let key = |item: Option<&'static Number>| item.map(|i| i.key as usize);
            assert_eq!(key(before), self.set.range(..n).next_back().copied());
            assert_eq!(key(after), self.set.range(n + 1..).next().copied());
        }
    }

    fn remove(&mut self, items: &'static [Number], n: usize) {
        if self.set.remove(&n) {
            self.tree.remove(&items[n]);
        }
    }

    /// Checks all items, and that the tree is balanced. Returns the depth.
    fn check(&self) -> usize {
        let found = std::cell::RefCell::new(Vec::new());
        let depth = self
            .tree
            .each(&|item| found.borrow_mut().push(item.key as usize));
        assert!(found.borrow().iter().eq(&self.set), "what is in the tree");
        depth as usize
    }
}

/// A tree is an ordered set, and no deeper than 1.44 times the binary logarithm of its size, whatever the order in
/// which items are inserted and removed.
#[test]
fn trees_are_ordered_and_shallow() {
    const COUNT: usize = 4096;
    let _w = World::with_frames(16);
    let items = numbers(COUNT);
    let mut random = Random::new(11);
    let orders: [fn(usize, &mut Random) -> usize; 4] = [
        |n, _| n,
        |n, _| COUNT - 1 - n,
        // From both ends to the middle.
        |n, _| if n % 2 == 0 { n / 2 } else { COUNT - 1 - n / 2 },
        |_, random| random.below(COUNT as u64) as usize,
    ];
    for order in orders {
        let mut both = Both::new();
        for n in 0..COUNT {
            both.add(items, order(n, &mut random));
        }
        let depth = both.check();
        assert!(depth <= 15, "{depth} levels");
        for n in 0..COUNT - COUNT / 16 {
            both.remove(items, order(n, &mut random));
            if n % 64 == 0 {
                both.check();
            }
        }
        let depth = both.check();
        let most = 1.44 * ((both.set.len() + 2) as f64).log2();
        assert!(depth as f64 <= most, "{depth} levels of at most {most}");
    }
}

/// Whatever the order in which seven items were inserted, each of them can be removed, and the tree is balanced
/// afterwards.
#[test]
fn each_item_of_each_small_tree_can_go() {
    const COUNT: usize = 7;
    let _w = World::with_frames(16);
    let items = numbers(COUNT);
    // All orders: the n-th item of those that are left, n being a digit of a number in mixed base.
    let orders: usize = (1..=COUNT).product();
    for order in 0..orders {
        let (mut left, mut rest): (Vec<usize>, usize) = ((0..COUNT).collect(), order);
        let order: Vec<usize> = (1..=COUNT)
            .rev()
            .map(|base| {
                let n = rest % base;
                rest /= base;
                left.remove(n)
            })
            .collect();
        for gone in 0..COUNT {
            let mut both = Both::new();
            for &n in &order {
                both.add(items, n);
            }
            both.check();
            both.remove(items, gone);
            both.check();
            // Then all others are removed, which covers small trees of all forms.
            for &n in &order {
                both.remove(items, n);
                both.check();
            }
        }
    }
}

/// Items are inserted and removed at random, in trees of all sizes: a removal that puts an item from far below into the
/// place keeps the balance.
#[test]
fn trees_stay_balanced_while_items_come_and_go() {
    let _w = World::with_frames(16);
    let items = numbers(512);
    let mut random = Random::new(12);
    for most in [4, 16, 64, 512] {
        let mut both = Both::new();
        for _ in 0..4_000 {
            let n = random.below(most) as usize;
            if both.set.contains(&n) {
                both.remove(items, n);
            } else {
                both.add(items, n);
            }
            both.check();
        }
    }
}

/// Sleepers wake in the order of their deadlines, none too early.
#[test]
fn deadlines_are_kept_in_order() {
    let w = World::with_frames(96);
    let (m, out) = (w.create(Call::MutexCreate), w.page());
    let mut random = Random::new(7);
    let mut times = Vec::new();
    for n in 0..24u64 {
        let at = hal::now() + 1_000_000 + random.below(40) * 100_000;
        times.push((at, n));
        let p = Program::new()
            .call(Call::ThreadSleepUntil, &[(A0, at)])
            .call(Call::ClockGet, &[])
            .op(move |c| c.parameter(10).set(u64::from(c.parameter(0).get() < at)))
            .call(Call::MutexLock, &[(A0, m)])
            .load(out, A11)
            .store(move |c| (out + 8 + c.parameter(11).get() * 16, n))
            .store(move |c| (out + 16 + c.parameter(11).get() * 16, c.parameter(10).get()))
            .op(|c| c.parameter(11).set(c.parameter(11).get() + 1))
            .keep(out, A11)
            .call(Call::MutexUnlock, &[(A0, m)])
            .end();
        w.thread(0, p, 10);
    }
    w.run();
    times.sort_by_key(|t| t.0);
    let woken: Vec<u64> = (0..24).map(|i| w.peek(out + 8 + i * 16)).collect();
    let of = |n: u64| times.iter().find(|t| t.1 == n).map(|t| t.0);
    assert!(woken.windows(2).all(|p| of(p[0]) <= of(p[1])), "{woken:?}");
    assert!((0..24).all(|i| w.peek(out + 16 + i * 16) == 0), "too early");
}

/// The thread of the highest priority runs; threads of the same priority take turns.
#[test]
fn priorities_and_turns() {
    let w = World::with_frames(64);
    let out = w.page();
    let spin = |n: u64| {
        Program::new()
            .load(out + n * 8, A11)
            .op(|c| c.parameter(11).set(c.parameter(11).get() + 1))
            .keep(out + n * 8, A11)
            .jump(0)
    };
    let threads: Vec<u64> = (0..4)
        .map(|n| w.thread(0, spin(n), if n < 3 { 7 } else { 3 }))
        .collect();
    let turn = |steps: u64| {
        w.release();
        for _ in 0..steps {
            assert_ne!(w.step(), Met::Idle);
        }
        w.call_manager();
    };
    // Three slices of 10 ms at 100 ns a step.
    turn(330_000);
    let counts: Vec<u64> = (0..4).map(|n| w.peek(out + n * 8)).collect();
    assert!(
        counts[..3].iter().all(|&c| c > 10_000),
        "not in turns: {counts:?}"
    );
    assert_eq!(counts[3], 0, "the lowest ran: {counts:?}");
    // A thread that is raised while it is queued has the processor to itself.
    w.ok(Call::ThreadSetPriority, &[threads[3], 9]);
    turn(1000);
    assert!(w.peek(out + 24) > 200);
    assert_eq!(counts[..3], [0, 1, 2].map(|n| w.peek(out + n * 8)));
    // A thread that is lowered while it runs gives way.
    w.ok(Call::ThreadSetPriority, &[threads[3], 2]);
    let before = w.peek(out + 24);
    turn(1000);
    assert_eq!(w.peek(out + 24), before);
    for t in &threads {
        w.ok(Call::ThreadStop, &[*t]);
        assert_eq!(w.thread_at(*t).run.get(), Run::Stopped);
    }
    w.run();
}

/// The nth allocation fails, for every n: at boot no kernel is made, later a call returns a code.
#[test]
fn every_allocation_fails_once() {
    // The allocations of a whole boot, counted by making each fail in turn.
    let mut needed = 0;
    loop {
        hal::host::reset(16);
        hal::host::fail_allocations_after(needed);
        let k = crate::Kernel::new();
        let physical = u64::from(hal::host::FIRST_FRAME) * PAGE_SIZE;
        let (start, rights) = (boot::BOOT_PAGE, abi::access::ALL);
        let mappings = [crate::FirstMapping {
            start,
            size: PAGE_SIZE,
            physical,
            rights,
        }];
        let first = crate::FirstSpace {
            mappings: &mappings,
            entry: 0,
            stack: 0,
        };
        if k.is_some_and(|k| k.first_space(&first).is_some()) {
            break;
        }
        needed += 1;
    }
    assert!(needed > 10);

    let calls = [
        Call::MutexCreate,
        Call::CondCreate,
        Call::MappingCreate,
        Call::RegionCreate,
        Call::PortCreate,
        Call::PortsetCreate,
        Call::SpaceCreate,
        Call::ThreadCreate,
        Call::ReferenceCreate,
    ];
    let mut n = 0;
    loop {
        let w = World::with_frames(64);
        w.checked.set(false);
        let mut failed = 0;
        hal::host::fail_allocations_after(n);
        // More than a chunk of each.
        for _ in 0..70 {
            for call in calls {
                let at = w.object();
                match w.sys(call, &[at, 0]) {
                    Code::Ok => {}
                    code => {
                        assert_eq!(code, Code::NoMemory);
                        hal::host::fail_allocations_after(u64::MAX);
                        failed += 1;
                        w.ok(call, &[at, 0]);
                    }
                }
            }
        }
        check::invariants(w.k);
        if failed == 0 {
            break;
        }
        n += 1;
    }
    assert!(n > 9, "only {n} allocations");
}
