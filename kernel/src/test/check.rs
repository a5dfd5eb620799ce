//! The invariants of the kernel: everything that must hold between two traps.
//!
//! [`invariants`] panics with what is wrong. It reads every object, queue, list, tree and account,
//! and compares what page tables remember with a fresh walk of the mapping hierarchy.

use crate::ipc::Errand;
use crate::object::account::Account;
use crate::object::mapping::Mapping;
use crate::object::port::Port;
use crate::object::thread::{Hint, Run, Thread};
use crate::object::{self, Link, Object, Phase, Table};
use crate::wait::{self, WaitQueue};
use crate::{memory, K};
use abi::state::{Stage, Waiting};
use abi::PAGE_SIZE;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Pages of each mapping whose translations are looked at.
const PAGES: u64 = 4;

/// Checks everything.
pub(super) fn invariants(k: K) {
    tables(k);
    threads(k);
    queues(k);
    frames(k);
    hierarchy(k);
    accounts(k);
    kept(k);
}

/// How many objects of each type there are, in the order of the types.
pub(super) fn census(k: K) -> [usize; 9] {
    [
        k.mutexes.counts().0,
        k.conds.counts().0,
        k.mappings.counts().0,
        k.regions.counts().0,
        k.ports.counts().0,
        k.portsets.counts().0,
        k.spaces.counts().0,
        k.threads.counts().0,
        k.references.counts().0,
    ]
}

fn live<T: Object>(table: &Table<T>) -> impl Iterator<Item = &'static T> + '_ {
    table.iter().filter(|o| o.head().phase() != Phase::Free)
}

/// Calls `f` with every object's head, cost and type number.
fn each(k: K, mut f: impl FnMut(&'static object::Header, u64)) {
    fn all<T: Object>(table: &Table<T>, f: &mut impl FnMut(&'static object::Header, u64)) {
        for object in live(table) {
            f(object.head(), T::cost());
        }
    }
    all(&k.mutexes, &mut f);
    all(&k.conds, &mut f);
    all(&k.mappings, &mut f);
    all(&k.regions, &mut f);
    all(&k.ports, &mut f);
    all(&k.portsets, &mut f);
    all(&k.spaces, &mut f);
    all(&k.threads, &mut f);
    all(&k.references, &mut f);
}

/// Slots are in use or in the free list.
fn tables(k: K) {
    fn table<T: Object>(table: &Table<T>) {
        let (used, free) = table.counts();
        assert_eq!(used, live(table).count());
        assert_eq!(used + free, table.slots());
    }
    table(&k.mutexes);
    table(&k.conds);
    table(&k.mappings);
    table(&k.regions);
    table(&k.ports);
    table(&k.portsets);
    table(&k.spaces);
    table(&k.threads);
    table(&k.references);
}

/// What a thread that waits at a port wants there.
fn errand(t: &Thread) -> Option<(&'static Port, Errand)> {
    match t.hint.get() {
        Hint::Errand(port, errand) => Some((port, errand)),
        _ => None,
    }
}

fn is_in(queue: Option<&'static WaitQueue>, t: &'static Thread) -> bool {
    match (queue, wait::queue_of(t)) {
        (Some(a), Some(b)) => core::ptr::eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// Every thread is where its state says.
fn threads(k: K) {
    let (ready, _) = k.sched.state();
    let current = k.current.get().expect("somebody runs");
    let deadlines = k.deadlines.threads();
    assert!(
        deadlines.windows(2).all(|w| w[0].0 <= w[1].0),
        "deadlines out of order"
    );
    for t in k.threads.iter() {
        let phase = t.head().phase();
        let run = t.run.get();
        let name = || std::format!("{:?} {phase:?} {run:?}", t.head().id());
        if phase != Phase::Active || t.stop_count.get() > 0 {
            assert_eq!(run, Run::Stopped, "{}", name());
        }
        let queue = match run {
            Run::Stopped => {
                let stopped = phase != Phase::Active || t.stop_count.get() > 0;
                assert!(stopped, "stopped without a stop: {}", name());
                None
            }
            Run::Running => {
                assert!(core::ptr::eq(t, current), "two run: {}", name());
                None
            }
            Run::Ready => Some(&ready[usize::from(t.priority.get())]),
            Run::Waiting(Waiting::Mutex) => {
                let of = k.mutexes.iter().find(|m| is_in(Some(&m.waiters), t));
                let of = of.unwrap_or_else(|| panic!("waits for no mutex: {}", name()));
                assert!(of.locked.get() && of.head().open().is_ok(), "{}", name());
                Some(&of.waiters)
            }
            Run::Waiting(Waiting::Cond) => {
                let of = k.conds.iter().find(|c| is_in(Some(&c.waiters), t));
                let of = of.unwrap_or_else(|| panic!("waits for no cond: {}", name()));
                assert!(of.head().open().is_ok(), "{}", name());
                Some(&of.waiters)
            }
            Run::Waiting(Waiting::Port) => {
                let (port, _) = errand(t).expect("an errand at a port");
                assert!(port.head().open().is_ok(), "{}", name());
                Some(port.client_queue())
            }
            Run::Waiting(Waiting::Portset) => {
                let of = k.portsets.iter().find(|s| is_in(Some(&s.servers), t));
                let of = of.unwrap_or_else(|| panic!("waits at no portset: {}", name()));
                assert!(of.head().open().is_ok(), "{}", name());
                assert_eq!(t.server.stage.get(), Stage::None, "{}", name());
                Some(&of.servers)
            }
            Run::Waiting(Waiting::Vacant) => Some(&k.vacant),
            Run::Waiting(Waiting::Exception) => {
                assert!(t.exception_delivered.get(), "{}", name());
                None
            }
            Run::Waiting(Waiting::Reply) => {
                let s = t.served_by().0.get();
                let s = s.unwrap_or_else(|| panic!("nobody owes a reply: {}", name()));
                assert_eq!(s.server.peer(), Link::to(t), "{}", name());
                assert_eq!(s.server.stage.get(), t.served_by().1, "{}", name());
                None
            }
            Run::Waiting(Waiting::Peer) => {
                peer(t);
                None
            }
            Run::Waiting(Waiting::Deadline | Waiting::Interrupt) => None,
            // Between two traps nobody is in the kernel.
            Run::Waiting(Waiting::Kernel) => panic!("waits to be let in: {}", name()),
            Run::Waiting(Waiting::Nothing) => panic!("waits for nothing: {}", name()),
        };
        assert!(is_in(queue, t), "in the wrong queue: {}", name());
        let timed = deadlines.iter().filter(|d| core::ptr::eq(d.1, t)).count();
        assert!(timed <= 1, "two deadlines: {}", name());
        let may = matches!(
            run,
            Run::Waiting(Waiting::Deadline | Waiting::Interrupt | Waiting::Cond | Waiting::Portset)
        );
        assert!(timed == 0 || may, "a deadline without a wait: {}", name());
        if matches!(run, Run::Ready | Run::Running | Run::Waiting(_)) {
            if let (Some(space), false) = (t.space(), run == Run::Waiting(Waiting::Vacant)) {
                assert!(space.head().open().is_ok(), "in a vacant space: {}", name());
            }
            assert!(t.space().is_some(), "without a space: {}", name());
        }
        let may = !matches!(run, Run::Ready | Run::Running);
        assert!(
            may || !t.exception_delivered.get(),
            "runs in an exception: {}",
            name()
        );
    }
    for s in k.spaces.iter() {
        let mut at = s.threads.get();
        let mut prev: Option<&'static Thread> = None;
        while let Some(t) = at {
            assert_eq!(
                t.space().map(Link::to),
                Some(Link::to(s)),
                "in the list of another space"
            );
            assert!(same(t.prev_in_space.get(), prev));
            prev = at;
            at = t.next_in_space.get();
        }
    }
}

fn same<T>(a: Option<&'static T>, b: Option<&'static T>) -> bool {
    a.map(core::ptr::from_ref) == b.map(core::ptr::from_ref)
}

/// Who waits for a peer has one that knows of it.
fn peer(t: &'static Thread) {
    let plan = t.call().map(abi::ipc::plan).expect("an entrypoint");
    let client = plan.has(abi::ipc::Plan::CLIENT);
    let mine = if client { &t.client } else { &t.server };
    let p = mine.peer().get().expect("a living peer");
    let theirs = if client { &p.server } else { &p.client };
    assert_eq!(theirs.peer(), Link::to(t), "a peer that serves another");
    for end in [mine, theirs] {
        let stage = end.stage.get();
        let sound = matches!(
            stage,
            Stage::Sending | Stage::Receiving | Stage::Over | Stage::Ack
        );
        assert!(sound, "waits in a connection that is {stage:?}");
    }
}

/// Queues hold those who say so, by priority; the bitmap tells which are empty.
fn queues(k: K) {
    let (ready, bits) = k.sched.state();
    for (p, queue) in ready.iter().enumerate() {
        let members = queue.threads();
        assert_eq!(bits & 1 << p != 0, !members.is_empty(), "the bitmap lies");
        for t in members {
            assert_eq!(
                (t.run.get(), usize::from(t.priority.get())),
                (Run::Ready, p)
            );
        }
    }
    let check = |queue: &'static WaitQueue, why: Waiting| {
        let members = queue.threads();
        for t in &members {
            assert_eq!(t.run.get(), Run::Waiting(why), "in a queue for {why:?}");
        }
        let sorted = why == Waiting::Vacant
            || members
                .windows(2)
                .all(|w| w[0].priority.get() >= w[1].priority.get());
        assert!(sorted, "not in order of priority");
    };
    check(&k.vacant, Waiting::Vacant);
    k.mutexes
        .iter()
        .for_each(|m| check(&m.waiters, Waiting::Mutex));
    k.conds
        .iter()
        .for_each(|c| check(&c.waiters, Waiting::Cond));
    for s in k.portsets.iter() {
        check(&s.servers, Waiting::Portset);
        check(&s.clients, Waiting::Port);
        let idle = s.servers.first().is_some() && s.clients.first().is_some();
        assert!(!idle, "clients and servers wait for each other");
    }
    for p in k.ports.iter() {
        if p.portset().is_none() {
            check(p.client_queue(), Waiting::Port);
        }
    }
}

/// The list of a frame has every object that is there, once, in order.
fn frames(k: K) {
    let mut listed = BTreeMap::new();
    for pfn in 0..k.frames.len() as u32 {
        let mut last = None;
        object::objects_in(k, hal::Pfn(pfn), |offset, id| {
            assert!(last < Some(offset), "a frame's list out of order");
            last = Some(offset);
            listed.insert((pfn, offset), id);
            true
        });
    }
    let mut count = 0;
    each(k, |h, _| {
        let (pfn, offset) = h.bound().expect("an object in no frame");
        assert_eq!(
            listed.get(&(pfn.0, offset)),
            Some(&h.id()),
            "not in its frame's list"
        );
        count += 1;
    });
    assert_eq!(count, listed.len(), "a free slot in a frame's list");
}

/// Trees are ordered, lists complete, and tables remember what walks find.
fn hierarchy(k: K) {
    for s in live(&k.spaces) {
        let mut inside = Vec::new();
        tree(s.mappings.get(), u32::MAX, &mut inside);
        for pair in inside.windows(2) {
            assert!(
                pair[0].end_address() <= pair[1].start.get(),
                "mappings overlap"
            );
        }
        for m in &inside {
            assert_eq!(m.space.get(), Link::to(s), "a mapping in the wrong tree");
            let first = m.start.get();
            let pages = (m.size.get() / PAGE_SIZE).min(PAGES);
            for page in (0..pages).map(|i| first + i * PAGE_SIZE) {
                if let Some((pfn, rights)) = s.table.lookup(page) {
                    let found = memory::look(s, page);
                    assert_eq!(
                        found,
                        Some((pfn, rights)),
                        "a stale translation of {page:#x}"
                    );
                }
            }
        }
        for m in live(&k.mappings).filter(|m| m.space.get() == Link::to(s)) {
            let here = inside.iter().any(|other| core::ptr::eq(*other, m));
            assert!(here, "a mapping that is not in its space's tree");
        }
        let mut at = s.regions.get();
        let mut count = 0;
        while let Some(r) = at {
            assert_eq!(r.space.get(), Link::to(s), "a region in the wrong list");
            count += 1;
            at = r.next.get();
        }
        let all = live(&k.regions)
            .filter(|r| r.space.get() == Link::to(s))
            .count();
        assert_eq!(count, all, "a space's list of regions");
    }
    for r in live(&k.regions) {
        let mut prev: Option<&'static Mapping> = None;
        let mut at = r.importers.get();
        let mut count = 0;
        while let Some(m) = at {
            assert_eq!(m.region.get(), Link::to(r), "an importer of something else");
            assert!(same(m.previous_importer(), prev));
            prev = at;
            at = m.next_importer();
            count += 1;
        }
        let all = live(&k.mappings)
            .filter(|m| m.region.get() == Link::to(r))
            .count();
        assert_eq!(count, all, "a region's list of importers");
    }
}

fn tree(node: Option<&'static Mapping>, above: u32, inside: &mut Vec<&'static Mapping>) {
    let Some(m) = node else { return };
    let (weight, left, right) = m.node();
    assert!(weight <= above, "a heavy mapping below a light one");
    assert!(m.size.get() > 0, "an empty mapping in a tree");
    tree(left, weight, inside);
    inside.push(m);
    tree(right, weight, inside);
}

/// What is in use is what was charged, and nobody is forgotten.
fn accounts(k: K) {
    let mut books: BTreeMap<usize, (&'static Account, u64, u32)> = BTreeMap::new();
    let mut found: Vec<&'static Account> = Vec::new();
    each(k, |h, cost| {
        let payer = h.payer().expect("an object that nobody pays");
        found.push(payer);
        let at = core::ptr::from_ref(payer) as usize;
        let entry = books.entry(at).or_insert((payer, 0, 0));
        entry.1 += cost;
        entry.2 += 1;
    });
    for s in live(&k.spaces) {
        let account = s.account.get().expect("a space with an account");
        found.push(account);
        let at = core::ptr::from_ref(account) as usize;
        books.entry(at).or_insert((account, 0, 0)).2 += 1;
        assert!(!account.books().2, "a living space with a closed account");
    }
    let mut seen = std::collections::BTreeSet::new();
    while let Some(account) = found.pop() {
        if !seen.insert(core::ptr::from_ref(account) as usize) {
            continue;
        }
        let at = core::ptr::from_ref(account) as usize;
        books.entry(at).or_insert((account, 0, 0));
        if let Some(parent) = account.books().0 {
            let at = core::ptr::from_ref(parent) as usize;
            let entry = books.entry(at).or_insert((parent, 0, 0));
            entry.1 += account.quota();
            entry.2 += 1;
            found.push(parent);
        }
    }
    for (account, used, holders) in books.values() {
        assert_eq!(account.used(), *used, "an account's use");
        assert!(
            account.used() <= account.quota(),
            "more in use than the quota"
        );
        assert_eq!(account.books().1, *holders, "an account's holders");
        assert!(!account.books().2 || account.used() == account.quota());
    }
}

/// Every vacant identity is kept by exactly one reference, and nothing else is.
fn kept(k: K) {
    let mut keepers = BTreeMap::new();
    for r in live(&k.references).filter(|r| r.keeps()) {
        let target = r.target.get();
        let phase = target.header().map(|h| h.phase());
        assert_eq!(
            phase,
            Some(Phase::Vacant),
            "a reference that keeps what needs no keeping"
        );
        let id = std::format!("{:p}", target.header().expect("it lives"));
        assert!(
            keepers.insert(id, ()).is_none(),
            "an identity that is kept twice"
        );
    }
    each(k, |h, _| {
        if h.phase() == Phase::Vacant {
            let id = std::format!("{h:p}");
            assert!(
                keepers.contains_key(&id),
                "a vacant identity that nobody keeps: {id}"
            );
        }
    });
}
