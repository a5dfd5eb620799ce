//! The invariants of the kernel: everything that must hold between two traps.
//!
//! [`invariants`] panics with the rule that is broken. It reads every object, queue, list, tree and account,
//! and compares page tables with a fresh walk of the mapping hierarchy. It needs no memory of its own, so that
//! a kernel for cut tests can call it at its exits as the tests on the host do after every step.

use crate::object::account::{self, Account};
use crate::object::cond::Cond;
use crate::object::mapping::Mapping;
use crate::object::mutex::Mutex;
use crate::object::port::{Port, Portset};
use crate::object::reference::Reference;
use crate::object::region::Region;
use crate::object::space::Space;
use crate::object::thread::{Hint, Run, Thread};
use crate::object::{self, Link, Object, Phase, Table, Target};
use crate::queue::{is_in, same, WaitQueue};
use crate::{memory, K};
use abi::state::{Stage, Waiting};
use abi::PAGE_SIZE;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of pages of each mapping whose translations are checked, beginning at another page each time.
const PAGES: u64 = if cfg!(test) { 4 } else { 1 };
/// Number of frames without objects whose lists are checked, beginning at another frame each time.
const FRAMES: u64 = 256;
/// Most accounts whose sums can be checked.
const ACCOUNTS: usize = 64;

/// Number of checks made.
static TURN: AtomicU64 = AtomicU64::new(0);

/// Checks everything.
pub(crate) fn invariants(k: K) {
    let turn = TURN.fetch_add(1, Relaxed);
    tables(k);
    threads(k);
    queues(k);
    frames(k, turn);
    hierarchy(k, turn);
    handles(k);
    accounts(k);
    kept(k);
    ports(k);
    io_ports(k);
    places(k);
}

/// Checks that every place belongs to one living space, which has no mapping outside its place.
fn places(k: K) {
    for space in k.spaces.iter() {
        let place = k.places.of(space);
        assert_eq!(
            place.is_some(),
            space.table.is_collocated(),
            "a space and its place"
        );
        let lives = space.head().phase() != Phase::Free;
        assert!(
            place.is_none() || lives,
            "a place of a space that has ended"
        );
        space.mappings.each(&|m| {
            let (start, size) = (m.start.get(), m.size.get());
            assert!(space.holds(start, size), "a mapping outside its place");
        });
    }
}

/// Checks that every granted range of I/O ports belongs to exactly one living space.
fn io_ports(k: K) {
    let mut count = 0;
    for space in k.spaces.iter() {
        let own = k.io_ports.of(space).count();
        let lives = space.head().phase() != Phase::Free;
        assert!(own == 0 || lives, "I/O ports of a space that has ended");
        count += own;
    }
    assert_eq!(
        count,
        k.io_ports.count(),
        "ranges of I/O ports of nobody, or of two"
    );
}

/// Checks that a port's count is the number of references, regions and spaces that name it. A port with a notice
/// due is in the list of its portset and in no other list, and no server waits at that portset.
fn ports(k: K) {
    let named = |port: &'static Port, target: Target| {
        target
            .get::<Port>()
            .is_some_and(|named| core::ptr::eq(named, port))
    };
    for port in live(&k.ports) {
        let references = live(&k.references).filter(|r| named(port, r.target.get()));
        let regions = live(&k.regions).filter(|r| named(port, r.keeper.get()));
        let spaces = live(&k.spaces).filter(|s| named(port, s.keeper.get()));
        let count = references.count() + regions.count() + spaces.count();
        port.check(count as u32);
    }
    for set in k.portsets.iter() {
        assert!(
            set.unreferenced().is_none() || set.servers.is_empty(),
            "a server waits that should have heard of a port"
        );
    }
}

fn live<T: Object>(table: &Table<T>) -> impl Iterator<Item = &'static T> + '_ {
    table.iter().filter(|o| o.head().phase() != Phase::Free)
}

/// Calls `f` with every object's header and cost.
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

/// Checks that every slot is in use or in the free list.
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

/// Checks that every thread is in the queue that its state implies.
fn threads(k: K) {
    let (ready, _) = k.cpu().sched.state();
    let mut runs = false;
    k.cpu().deadlines.each(|_, t| {
        let may = matches!(
            t.run.get(),
            Run::Waiting(Waiting::Deadline | Waiting::Interrupt | Waiting::Cond | Waiting::Portset)
        );
        assert!(may, "a deadline without a wait: {:?}", t.head().id());
    });
    for t in k.threads.iter() {
        let phase = t.head().phase();
        let run = t.run.get();
        let id = t.head().id();
        // Panics with the rule and the thread that breaks it.
        let must = |holds: bool, rule: &str| assert!(holds, "{rule}: {id:?} {phase:?} {run:?}");
        let may_run = phase == Phase::Active && t.stop_count.get() == 0;
        must(
            may_run || run == Run::Stopped,
            "goes on without a body or in a stop",
        );
        must(!may_run || run != Run::Stopped, "stopped without a stop");
        let own = |space: &'static object::space::Space| t.ctx.has_table(&space.table);
        must(t.space().is_none_or(own), "sees another space's memory");
        let queue = match run {
            Run::Stopped => None,
            Run::Running => {
                must(!runs, "two run");
                runs = true;
                None
            }
            Run::Ready => Some(&ready[usize::from(t.priority.get())]),
            Run::Waiting(Waiting::Mutex) => {
                let of = live(&k.mutexes).find(|m| is_in(t, Some(&m.waiters)));
                let sound = of.is_some_and(|m| m.locked.get() && m.head().open().is_ok());
                must(sound, "waits for no locked mutex");
                of.map(|m| &m.waiters)
            }
            Run::Waiting(Waiting::Cond) => {
                let open = live(&k.conds).filter(|c| c.head().open().is_ok());
                let of = open.flat_map(Cond::queues).find(|q| is_in(t, Some(q)));
                must(of.is_some(), "waits for no cond");
                of
            }
            Run::Waiting(Waiting::Port) => {
                let of = match t.hint.get() {
                    Hint::PortWait(port, _) => Some(port.get()),
                    _ => None,
                };
                let sound = of.is_some_and(|port| port.head().open().is_ok());
                must(sound, "waits at no port");
                of.map(|port| port.client_queue())
            }
            Run::Waiting(Waiting::Portset) => {
                let of = live(&k.portsets).find(|s| is_in(t, Some(&s.servers)));
                let sound = of.is_some_and(|s| s.head().open().is_ok());
                must(sound, "waits at no portset");
                must(t.server().stage.get() == Stage::None, "waits with a client");
                of.map(|s| &s.servers)
            }
            Run::Waiting(Waiting::Vacant) => k.vacancies.each().find(|queue| is_in(t, Some(queue))),
            Run::Waiting(Waiting::Exception) => {
                must(t.exception_delivered(), "waits for no exception");
                None
            }
            Run::Waiting(Waiting::Reply) => {
                let (server, stage) = t.served_by();
                let owes = server.get().is_some_and(|s| {
                    s.server().peer() == Link::to(t) && s.server().stage.get() == stage
                });
                must(owes, "nobody owes a reply");
                None
            }
            Run::Waiting(Waiting::Peer) => {
                must(has_peer(t), "waits for a peer that does not know it");
                None
            }
            Run::Waiting(Waiting::Deadline | Waiting::Interrupt) => None,
            // Between two traps no thread is in the kernel.
            Run::Waiting(Waiting::Kernel) => {
                must(false, "waits to be let in");
                None
            }
            Run::Waiting(Waiting::Nothing) => {
                must(false, "waits for nothing");
                None
            }
        };
        must(is_in(t, queue), "in the wrong queue");
        if run != Run::Stopped {
            let open = t.space().map(|s| s.head().open().is_ok());
            must(open.is_some(), "goes on without a space");
            let may = open == Some(true) || run == Run::Waiting(Waiting::Vacant);
            must(may, "goes on in a vacant space");
        }
        let runs = matches!(run, Run::Ready | Run::Running);
        must(!runs || !t.exception_delivered(), "runs in an exception");
    }
    for s in k.spaces.iter() {
        let mut at = s.threads.get();
        let mut prev: Option<&'static Thread> = None;
        let mut count = 0;
        while let Some(t) = at {
            count += 1;
            let here = t.space().map(Link::to) == Some(Link::to(s));
            assert!(here, "in the list of another space");
            assert!(
                same(t.prev_in_space.get(), prev),
                "a space's list of threads"
            );
            prev = at;
            at = t.next_in_space.get();
        }
        let counted = s.population.get() == count && count <= abi::MAX_THREADS;
        assert!(counted, "the number of a space's threads");
    }
}

/// Whether a thread that waits for its peer has a peer, and the peer's end names the thread.
fn has_peer(t: &'static Thread) -> bool {
    let Some(plan) = t.call().map(abi::ipc::plan) else {
        return false;
    };
    let client = plan.has(abi::ipc::Plan::CLIENT);
    let mine = if client { t.client() } else { t.server() };
    let Some(p) = mine.peer().get() else {
        return false;
    };
    let theirs = if client { p.server() } else { p.client() };
    theirs.peer() == Link::to(t)
        && [mine, theirs].iter().all(|end| {
            matches!(
                end.stage.get(),
                Stage::Sending | Stage::Receiving | Stage::Over | Stage::Ack
            )
        })
}

/// Checks that each queue holds only threads whose state says so, in order of priority, and that the bitmap tells which
/// ready queues are empty.
fn queues(k: K) {
    let (ready, bits) = k.cpu().sched.state();
    for (p, queue) in ready.iter().enumerate() {
        let empty = queue.is_empty();
        assert!((bits & 1 << p == 0) == empty, "the bitmap lies");
        queue.each(|t| {
            let here = t.run.get() == Run::Ready && usize::from(t.priority.get()) == p;
            assert!(here, "in another's ready queue: {:?}", t.head().id());
        });
    }
    let check = |queue: &'static WaitQueue, why: Waiting| {
        let mut above = u8::MAX;
        queue.each(|t| {
            let here = t.run.get() == Run::Waiting(why);
            assert!(here, "in a queue for {why:?}: {:?}", t.head().id());
            let sorted = why == Waiting::Vacant || t.priority.get() <= above;
            assert!(sorted, "a queue for {why:?} not in order of priority");
            above = t.priority.get();
        });
    };
    k.vacancies
        .each()
        .for_each(|queue| check(queue, Waiting::Vacant));
    k.mutexes
        .iter()
        .for_each(|m| check(&m.waiters, Waiting::Mutex));
    k.conds
        .iter()
        .flat_map(Cond::queues)
        .for_each(|queue| check(queue, Waiting::Cond));
    for s in k.portsets.iter() {
        check(&s.servers, Waiting::Portset);
        check(&s.clients, Waiting::Port);
        let idle = s.servers.first().is_some() && s.clients.first().is_some();
        assert!(!idle, "clients and servers wait for each other");
    }
    for p in k.ports.iter() {
        if p.meets_at().is_none() {
            check(p.client_queue(), Waiting::Port);
        }
    }
}

/// Checks that the list of a physical frame has every object in that frame, once, in order, and nothing else.
fn frames(k: K, turn: u64) {
    let (mut listed, mut count) = (0, 0);
    each(k, |h, _| {
        count += 1;
        let bound = h.bound();
        assert!(bound.is_some(), "an object in no frame: {:?}", h.id());
        let Some((pfn, _)) = bound else { return };
        // Each frame is checked once, when `h` is the first object in it.
        let mut first = None;
        object::objects_in(k, pfn, |_, id| {
            first = Some(id);
            false
        });
        assert!(first.is_some(), "not in its frame's list: {:?}", h.id());
        if first == Some(h.id()) {
            let mut last = None;
            object::objects_in(k, pfn, |offset, _| {
                assert!(last < Some(offset), "a frame's list out of order");
                last = Some(offset);
                listed += 1;
                true
            });
        }
    });
    assert_eq!(listed, count, "the lists of frames");
    let all = k.frames.len() as u64;
    for i in 0..FRAMES.min(all) {
        let pfn = hal::Pfn(((turn * FRAMES + i) % all) as u32);
        object::objects_in(k, pfn, |_, id| {
            let here = object::place_of(k, id).is_some_and(|place| place.0 == pfn);
            assert!(here, "in another frame's list: {id:?}");
            true
        });
    }
}

/// Checks that trees are ordered, lists are complete, and page tables agree with fresh walks.
fn hierarchy(k: K, turn: u64) {
    // A mapping names one space and one region, so it is in one tree and one list at most. If the counts agree,
    // each mapping is where it should be.
    let (planted, mut exported, mut imported) = (Cell::new(0), 0, 0);
    for s in live(&k.spaces) {
        let found = s.mappings.found();
        let (sought, seen) = (found.is_some(), Cell::new(false));
        s.mappings.each(&|m| {
            seen.set(seen.get() || same(found, Some(m)));
            planted.set(planted.get() + 1);
            assert!(m.space.get() == Link::to(s), "a mapping in the wrong tree");
            let pages = m.size.get() / PAGE_SIZE;
            for i in 0..PAGES.min(pages) {
                let page = m.start.get() + (turn.wrapping_add(i) % pages) * PAGE_SIZE;
                if let Some((pfn, rights)) = s.table.lookup(page) {
                    let found = memory::look(s, page);
                    let fresh = found == Some((pfn, rights));
                    assert!(fresh, "a stale translation of {page:#x}");
                }
            }
        });
        assert_eq!(seen.get(), sought, "a tree found what is not in it");
        s.each_near(|page, pfn, rights| {
            let fresh = memory::look(s, page) == Some((pfn, rights));
            assert!(fresh, "a stale translation of {page:#x} is near");
        });
        let (mut at, mut count) = (s.regions.get(), 0);
        while let Some(r) = at {
            assert!(r.space.get() == Link::to(s), "a region in the wrong list");
            count += 1;
            let ends = count <= k.regions.slots();
            assert!(ends, "a space's list of regions has no end");
            at = r.next.get();
        }
        exported += count;
    }
    for r in k.regions.iter() {
        if r.head().phase() == Phase::Free {
            let none = r.importers.get().is_none();
            assert!(none, "a dead region keeps its list of importers");
            continue;
        }
        let mut prev: Option<&'static Mapping> = None;
        let mut at = r.importers.get();
        while let Some(m) = at {
            assert!(m.region.get().is(r), "an importer of something else");
            assert!(
                same(m.previous_importer(), prev),
                "a region's list of importers"
            );
            prev = at;
            at = m.next_importer();
            imported += 1;
        }
    }
    let count =
        |links: &dyn Fn(&'static Mapping) -> bool| live(&k.mappings).filter(|m| links(m)).count();
    let all = count(&|m| m.space.get().get().is_some());
    assert_eq!(planted.get(), all, "a space's tree of mappings");
    let all = count(&|m| m.region.get().get().is_some());
    assert_eq!(imported, all, "a region's list of importers");
    let all = live(&k.regions).filter(|r| r.space.get().get().is_some());
    assert_eq!(exported, all.count(), "a space's list of regions");
}

/// Accounts, each with the bytes that it must have in use.
struct Books {
    all: [Option<(&'static Account, u64)>; ACCOUNTS],
    count: usize,
}

impl Books {
    /// Adds `used` bytes to what the account must have in use. Returns false if there are too many accounts.
    fn add(&mut self, account: &'static Account, used: u64) -> bool {
        let known = self.all[..self.count].iter_mut().flatten();
        for (other, u) in known {
            if core::ptr::eq(*other, account) {
                *u += used;
                return true;
            }
        }
        if self.count == ACCOUNTS {
            return false;
        }
        self.all[self.count] = Some((account, used));
        self.count += 1;
        true
    }
}

/// Checks that the cache of handle lookups agrees with fresh walks.
fn handles(k: K) {
    fn all<T: Object>(k: K, s: &'static Space) {
        T::handles(k).each(s.epoch.get(), |handle, object| {
            let h = object.head();
            let page = memory::look(s, handle).map(|(pfn, _)| pfn);
            let found = page.map(|pfn| (pfn, handle % PAGE_SIZE)) == h.bound();
            let fresh = found && h.phase() == Phase::Active;
            assert!(fresh, "a stale handle: {handle:#x}, {:?}", h.id());
        });
    }
    for s in live(&k.spaces) {
        all::<Mutex>(k, s);
        all::<Cond>(k, s);
        all::<Mapping>(k, s);
        all::<Region>(k, s);
        all::<Port>(k, s);
        all::<Portset>(k, s);
        all::<Space>(k, s);
        all::<Thread>(k, s);
        all::<Reference>(k, s);
    }
}

/// Checks that the bytes that an account has in use are the sum of the costs of the objects charged to it, and of the
/// accounts below it with their quotas.
fn accounts(k: K) {
    let mut books = Books {
        all: [None; ACCOUNTS],
        count: 0,
    };
    let mut room = true;
    each(k, |h, cost| {
        assert!(
            h.payer().is_some(),
            "an object that nobody pays: {:?}",
            h.id()
        );
        if let Some(payer) = h.payer() {
            room &= books.add(payer, cost);
        }
    });
    for s in live(&k.spaces) {
        if let Some(account) = s.account.get() {
            assert!(!account.books().1, "a living space with a closed account");
            room &= books.add(account, 0);
        }
    }
    // This loop also appends parent accounts, and then visits them.
    let mut at = 0;
    while at < books.count {
        if let Some((account, _)) = books.all[at] {
            if let Some(above) = account.books().0 {
                room &= books.add(above, account.quota() + account::COST);
            }
        }
        at += 1;
    }
    if !room {
        return;
    }
    for (account, used) in books.all.into_iter().flatten() {
        assert_eq!(account.used(), used, "an account's use");
        assert!(
            account.used() <= account.quota(),
            "more in use than the quota"
        );
        let closed = account.books().1;
        assert!(
            !closed || (account.used() == account.quota() && used > 0),
            "a closed account's quota"
        );
    }
}

/// Checks that every vacant identity is kept by exactly one reference, and that no other object is kept.
fn kept(k: K) {
    let keepers = |h: &object::Header| {
        live(&k.references)
            .filter(|r| r.keeps())
            .filter(|r| {
                r.target
                    .get()
                    .header()
                    .is_some_and(|kept| core::ptr::eq(kept, h))
            })
            .count()
    };
    for r in live(&k.references).filter(|r| r.keeps()) {
        let phase = r.target.get().header().map(|h| h.phase());
        // `destroy` may have ended the identity that the reference kept.
        let vacant = phase.is_none_or(|phase| phase == Phase::Vacant);
        assert!(vacant, "a reference that keeps what needs no keeping");
    }
    each(k, |h, _| {
        if h.phase() == Phase::Vacant {
            assert_eq!(keepers(h), 1, "keepers of a vacant identity: {:?}", h.id());
        }
    });
}
