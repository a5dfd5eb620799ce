//! Segments on a model of physical memory, which counts the work that it is given.
use super::{Id, Machine, Progress, Refusal, Segments, Shown, MOST_WORK};
use crate::accounts::{self, Limits};
use crate::chunks::{Chunks, CHUNK, PAGES};
use abi::access::{OBJECTS, READ, WRITE};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use fastrand::Rng;
use proto::Error;

const NO_MEMORY: Refusal = Refusal::Error(Error::NoMemory);
const INVALID: Refusal = Refusal::Error(Error::Invalid);

/// Physical memory with one byte and a number of objects per page.
#[derive(Default)]
struct Model {
    bytes: BTreeMap<u64, u8>,
    objects: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Shown>,
    /// Mappings that show the region below a segment.
    through: BTreeMap<u64, Id>,
    /// The regions below segments, and where segments are exported since they were frozen.
    below: BTreeMap<Id, u64>,
    exported: BTreeMap<Id, u64>,
    /// Windows of copies that nobody may read any more.
    withdrawn: BTreeMap<Id, u64>,
    next: u64,
    fail_map: bool,
    fail_change: bool,
    /// At this many mappings there is no more kernel memory.
    most_mappings: Option<usize>,
    /// A page that gets an object right after the next search for some.
    appears: Option<u64>,
    /// Units of work since this was last reset.
    work: u64,
}

impl Model {
    fn find(&self, address: u64) -> Option<(u64, u64)> {
        self.mappings.iter().find_map(|(mapping, m)| {
            if !(m.address..m.address + m.size).contains(&address) {
                return None;
            }
            let at = m.physical + (address - m.address);
            match self.through.get(mapping) {
                None => Some((at, m.rights)),
                Some(id) => {
                    let (physical, rights) = self.find(self.below[id] + at)?;
                    Some((physical, rights & m.rights))
                }
            }
        })
    }

    fn objects(&self) -> u64 {
        self.objects.values().sum()
    }

    fn is_full(&self) -> bool {
        let most = self.most_mappings;
        most.is_some_and(|most| self.mappings.len() >= most)
    }
}

impl Machine for Model {
    fn map(&mut self, shown: Shown) -> Option<u64> {
        self.work += 1;
        if self.fail_map || self.is_full() {
            return None;
        }
        for m in self.mappings.values() {
            assert!(shown.address + shown.size <= m.address || m.address + m.size <= shown.address);
        }
        self.next += 1;
        self.mappings.insert(self.next, shown);
        Some(self.next)
    }
    fn change(&mut self, mapping: u64, shown: Shown) -> bool {
        self.work += 1;
        assert!(shown.size > 0);
        for (other, m) in &self.mappings {
            let apart =
                shown.address + shown.size <= m.address || m.address + m.size <= shown.address;
            assert!(apart || *other == mapping, "mappings overlap");
        }
        if self.fail_change {
            return false;
        }
        self.mappings.insert(mapping, shown).is_some()
    }
    fn unmap(&mut self, mapping: u64) {
        self.work += 1;
        self.mappings.remove(&mapping).unwrap();
        self.through.remove(&mapping);
    }
    fn export(&mut self, id: Id, window: u64, _: u64) -> bool {
        self.work += 1;
        self.exported.insert(id, window);
        true
    }
    fn withdraw(&mut self, id: Id, window: u64, _: u64) {
        self.work += 1;
        self.withdrawn.insert(id, window);
    }
    fn begin_below(&mut self, id: Id, window: u64, _: u64) -> bool {
        self.work += 1;
        assert!(self.below.insert(id, window).is_none());
        true
    }
    fn map_below(&mut self, id: Id, shown: Shown) -> Option<u64> {
        let mapping = self.map(shown)?;
        self.through.insert(mapping, id);
        Some(mapping)
    }
    fn change_below(&mut self, id: Id, mapping: u64, shown: Shown) -> bool {
        assert_eq!(self.through[&mapping], id);
        if self.is_full() {
            self.work += 1;
            return false;
        }
        self.change(mapping, shown)
    }
    fn end_below(&mut self, id: Id) {
        self.below.remove(&id).unwrap();
    }
    fn zero(&mut self, physical: u64, size: u64) {
        for page in (physical..physical + size).step_by(4096) {
            self.work += 1;
            assert!(!self.objects.contains_key(&page), "zeroed over an object");
            self.bytes.insert(page, 0);
        }
    }
    fn copy(&mut self, from: u64, to: u64, size: u64) {
        for page in (0..size).step_by(4096) {
            self.work += 1;
            assert!(
                !self.objects.contains_key(&(to + page)),
                "copied over an object"
            );
            self.bytes.insert(to + page, self.bytes[&(from + page)]);
        }
    }
    fn has_objects(&mut self, physical: u64, size: u64) -> bool {
        self.work += 1;
        let has = self
            .objects
            .range(physical..physical + size)
            .next()
            .is_some();
        if let Some(page) = self.appears.take() {
            self.objects.insert(page, 1);
        }
        has
    }
    fn destroy_objects(&mut self, physical: u64, size: u64, most: u64) -> u64 {
        self.work += 1;
        let mut gone = 0;
        for (_, count) in self.objects.range_mut(physical..physical + size) {
            let now = (*count).min(most - gone);
            *count -= now;
            gone += now;
        }
        self.objects.retain(|_, count| *count > 0);
        self.work += gone;
        gone
    }
}

struct World {
    segments: Segments,
    account: accounts::Id,
    model: Model,
    windows: Vec<(usize, u64)>,
    created: u64,
    /// The most work that a step has done so far.
    worst: u64,
    total: u64,
}

const SIZE: u64 = 8 * CHUNK;

impl World {
    /// With one account, which may have everything.
    fn new(chunks: u64) -> Self {
        World::with_spare(chunks, 0)
    }

    fn with_spare(chunks: u64, spare: usize) -> Self {
        let mut memory = Chunks::new();
        memory.add(0x10_0000, chunks * CHUNK);
        memory.finish();
        let mut model = Model::default();
        // Old contents.
        for page in 0..chunks * PAGES {
            model.bytes.insert(0x10_0000 + page * 4096, 0xee);
        }
        let mut segments = Segments::new(memory, spare);
        let account = segments.create_account(limits(0, usize::MAX)).unwrap();
        World {
            segments,
            account,
            model,
            windows: Vec::new(),
            created: 0,
            worst: 0,
            total: chunks * CHUNK,
        }
    }

    fn create(&mut self) -> usize {
        self.create_in(self.account, SIZE).unwrap()
    }

    fn create_in(&mut self, account: accounts::Id, size: u64) -> Result<usize, Refusal> {
        self.created += 1;
        let window = self.created << 40;
        let id = self.segments.create(account, window, size)?;
        self.shown_at(id, window);
        Ok(id)
    }

    fn shown_at(&mut self, id: usize, window: u64) {
        self.windows.retain(|(other, _)| *other != id);
        self.windows.push((id, window));
        self.model.exported.remove(&id);
        self.model.withdrawn.remove(&id);
        self.model.below.remove(&id);
    }

    /// Freezes a segment in all steps, and returns the copy.
    fn freeze(&mut self, id: usize, account: accounts::Id) -> Result<usize, Refusal> {
        self.created += 1;
        let window = self.created << 40;
        let old = self.window(id);
        let copy = self.step(|s, m| s.freeze(m, id, account, window))?;
        self.shown_at(copy, old);
        loop {
            match self.step(|s, m| s.copy_on(m, copy)) {
                Ok(Progress::Done) => return Ok(copy),
                Ok(Progress::More(_)) => {}
                Err(error) => {
                    self.segments.destroy(copy).unwrap();
                    return Err(error);
                }
            }
        }
    }

    /// Releases a frozen copy, and returns how many steps it took to give its segment back the shared chunks.
    fn release(&mut self, copy: usize) -> u64 {
        let mut steps = 1;
        let known = self.segments.get(copy).unwrap();
        let (of, shown) = (known.copy.as_ref().and_then(|c| c.of()), known.window);
        while self.step(|s, m| Ok(s.release(m, copy)?)) != Ok(Progress::Done) {
            steps += 1;
        }
        let own = self.segments.get(copy).unwrap().window;
        let readable = !self.model.withdrawn.contains_key(&copy);
        let others = of
            .and_then(|of| self.segments.get(of).ok())
            .is_some_and(|of| of.window == shown);
        assert!(
            !(readable && others) && self.model.withdrawn.get(&copy).is_none_or(|at| *at == own),
            "S2: a copy that was given up shows nobody's window"
        );
        self.model.withdrawn.remove(&copy);
        self.segments.destroy(copy).unwrap();
        steps
    }

    fn window(&self, id: usize) -> u64 {
        if let Some(window) = self.model.exported.get(&id) {
            return *window;
        }
        self.windows
            .iter()
            .find(|(other, _)| *other == id)
            .unwrap()
            .1
    }

    /// Makes one request or fault, and counts its work. Repeats it if it is to be made again.
    fn step<T>(
        &mut self,
        mut f: impl FnMut(&mut Segments, &mut Model) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        loop {
            self.model.work = 0;
            let result = f(&mut self.segments, &mut self.model);
            self.worst = self.worst.max(self.model.work);
            let left = self.segments.has_room_for(0, 0);
            assert!(
                left,
                "S2: a run is left for every chunk that is free or frozen"
            );
            match result {
                Err(Refusal::Again) => {
                    assert!(self.reap(), "again for ever");
                }
                result => return result,
            }
        }
    }

    /// Does a step of taking segments apart. Returns whether it changed anything.
    fn reap(&mut self) -> bool {
        let ended = self.segments.has_ended();
        let leaving = self.segments.leaving.len();
        self.model.work = 0;
        let mut gone = 0;
        self.segments.reap(&mut self.model, &mut |_, _| gone += 1);
        self.worst = self.worst.max(self.model.work);
        let left = self.segments.leaving.len() < leaving;
        assert!(!ended || gone > 0 || self.model.work > 0 || left);
        ended
    }

    fn reap_all(&mut self) {
        while self.reap() {}
    }

    /// Makes a request about a range in all its steps, and returns how many.
    fn whole(
        &mut self,
        (offset, size): (u64, u64),
        mut f: impl FnMut(&mut Segments, &mut Model, u64, u64) -> Result<Progress, Refusal>,
    ) -> Result<u64, Refusal> {
        let mut done = 0;
        for steps in 1.. {
            match self.step(|s, m| f(s, m, offset + done, size - done))? {
                Progress::Done => return Ok(steps),
                Progress::More(more) => done += more,
            }
            assert!(steps < 100_000, "no end");
        }
        unreachable!()
    }

    fn discard(&mut self, id: usize, offset: u64, size: u64) -> Result<u64, Refusal> {
        self.whole((offset, size), |s, m, o, z| s.discard(m, id, o, z))
    }

    fn populate(&mut self, id: usize, offset: u64, size: u64) -> Result<u64, Refusal> {
        self.whole((offset, size), |s, m, o, z| s.populate(m, id, o, z))
    }

    fn copy(&mut self, from: usize, to: usize) -> Result<u64, Refusal> {
        let mut progress = self.step(|s, m| s.copy(m, from, to))?;
        let mut steps = 1;
        while progress != Progress::Done {
            progress = self.step(|s, m| s.copy_on(m, to))?;
            steps += 1;
        }
        Ok(steps)
    }

    fn destroy(&mut self, id: usize) {
        self.segments.destroy(id).unwrap();
        self.reap_all();
    }

    /// An access of a program: faults until it succeeds.
    fn access(&mut self, id: usize, page: u64, write: Option<u8>) -> Result<u8, Refusal> {
        let need = if write.is_some() { WRITE } else { READ };
        for _ in 0..2 {
            if let Some((physical, rights)) = self.model.find(self.window(id) + page * 4096) {
                if rights & need != 0 {
                    if let Some(value) = write {
                        self.model.bytes.insert(physical, value);
                    }
                    return Ok(self.model.bytes[&physical]);
                }
            }
            self.step(|s, m| s.fault(m, id, page * 4096, need))?;
        }
        panic!("a served fault did not help");
    }

    /// Where objects may be.
    fn objects_from(&mut self, id: usize, offset: u64) -> Result<u64, Error> {
        let found = self.step(|s, m| Ok(s.objects_from(m, id, offset)?));
        found.map_err(|refusal| match refusal {
            Refusal::Error(error) => error,
            Refusal::Again => panic!("again"),
        })
    }

    /// Puts objects into a present page.
    fn objects(&mut self, id: usize, page: u64, count: u64) {
        let address = self.window(id) + page * 4096;
        let (_, rights) = self.model.find(address).unwrap();
        if rights & OBJECTS == 0 {
            self.step(|s, m| s.fault(m, id, page * 4096, OBJECTS))
                .unwrap();
        }
        let (physical, rights) = self.model.find(self.window(id) + page * 4096).unwrap();
        assert!(rights & OBJECTS != 0, "a served fault did not help");
        self.model.objects.insert(physical, count);
    }

    fn free(&self) -> u64 {
        self.segments.machine_usage().1
    }
}

const fn limits(promised: usize, most: usize) -> Limits {
    Limits {
        promised,
        most,
        segments: 8,
    }
}

#[test]
fn zero_pages_appear_and_go() {
    let mut w = World::new(16);
    let id = w.create();
    assert_eq!(w.access(id, 5, None), Ok(0));
    assert_eq!(w.access(id, 5, Some(7)), Ok(7));
    assert_eq!(w.access(id, 0, Some(1)), Ok(1));
    assert_eq!(w.access(id, 5, None), Ok(7));
    assert_eq!(w.model.mappings.len(), 1);
    assert_eq!(w.segments.usage(w.account), (16 * CHUNK, 15 * CHUNK));
    assert_eq!(w.segments.resident(id), 8 * 4096);
    assert_eq!(w.segments.taken(w.account), CHUNK);
    w.discard(id, 5 * 4096, 4096).unwrap();
    assert_eq!(w.access(id, 5, None), Ok(0));
    assert_eq!(w.access(id, 0, None), Ok(1));
    assert_eq!(w.step(|s, m| s.fault(m, id, SIZE, READ)), Err(INVALID));
    assert_eq!(
        w.step(|s, m| s.fault(m, id + 1, 0, READ)),
        Err(Refusal::Error(Error::NotFound))
    );
    w.destroy(id);
    assert!(w.model.mappings.is_empty());
    assert_eq!(w.free(), w.total);
}

/// Memory of an ended segment is zeroed before another client can see it, in whichever way that gets it.
#[test]
fn nobody_sees_what_another_left() {
    let mut w = World::new(16);
    let id = w.create();
    let zero = Ok(0);
    assert_eq!(w.access(id, 5, None), zero, "S2: what was there before");
    assert_eq!(w.access(id, 0, None), zero, "S2: beside what is there");
    assert_eq!(w.access(id, 15, None), zero, "S2: behind what is there");
    w.populate(id, 4 * CHUNK, CHUNK).unwrap();
    for page in 4 * PAGES..5 * PAGES {
        w.access(id, page, Some(7)).unwrap();
    }
    w.discard(id, 4 * CHUNK + 4096, 4096).unwrap();
    let page = 4 * PAGES + 1;
    assert_eq!(w.access(id, page, None), zero, "S2: what was given back");
    w.destroy(id);
    let next = w.create();
    assert_eq!(w.access(next, 0, None), zero, "S2: what has ended");
}

/// A request beyond the client's segment, or about a missing one, is an error and changes nothing.
#[test]
fn a_request_stays_within_its_segment() {
    let mut w = World::new(32);
    let id = w.create();
    let end = w.step(|s, m| s.fault(m, id, SIZE, READ));
    assert_eq!(end, Err(INVALID), "S2: a fault behind the end");
    for (offset, size) in [(0, SIZE + 4096), (SIZE, 4096), (4096, u64::MAX - 4095)] {
        let what = "S2: a range behind the end";
        assert_eq!(w.populate(id, offset, size), Err(INVALID), "{what}");
        assert_eq!(w.discard(id, offset, size), Err(INVALID), "{what}");
    }
    let middle = w.step(|s, m| s.discard(m, id, 2048, 4096));
    assert_eq!(middle, Err(INVALID), "S2: a part of a page");
    assert_eq!(w.free(), w.total, "S2: a refused request costs nothing");
    let other = w.segments.create_account(limits(0, 10)).unwrap();
    let victim = w.create_in(other, SIZE).unwrap();
    w.access(victim, 0, Some(9)).unwrap();
    let copied = w.step(|s, m| s.copy(m, victim, id));
    assert_eq!(
        copied,
        Err(INVALID),
        "S2: a copy of another account's memory"
    );
}

/// A write to a copy changes only that copy.
#[test]
fn a_copy_is_nobody_elses() {
    let mut w = World::new(16);
    let (a, b) = (w.create(), w.create());
    w.access(a, 3, Some(1)).unwrap();
    w.copy(a, b).unwrap();
    w.access(b, 3, Some(2)).unwrap();
    assert_eq!(w.access(a, 3, None), Ok(1), "S2: written through a copy");
    w.access(a, 3, Some(3)).unwrap();
    assert_eq!(w.access(b, 3, None), Ok(2), "S2: written to the original");
}

#[test]
fn a_fault_brings_its_neighbours_as_far_as_the_segment_goes() {
    let mut w = World::new(4);
    let id = w.create_in(w.account, 7 * 4096).unwrap();
    w.access(id, 6, None).unwrap();
    assert_eq!(w.segments.resident(id), 3 * 4096);
}

#[test]
fn copies_share_until_they_are_written_to() {
    let mut w = World::new(16);
    let a = w.create();
    for page in 0..40 {
        w.access(a, page, Some(page as u8)).unwrap();
    }
    let before = w.free();
    let b = w.create();
    w.copy(a, b).unwrap();
    let c = w.create();
    w.copy(b, c).unwrap();
    assert_eq!(w.free(), before);
    for id in [a, b, c] {
        assert_eq!(w.access(id, 33, None), Ok(33));
    }
    w.access(b, 33, Some(99)).unwrap();
    assert_eq!(w.access(a, 33, None), Ok(33));
    assert_eq!(w.access(b, 33, None), Ok(99));
    assert_eq!(w.access(c, 33, None), Ok(33));
    w.destroy(a);
    assert_eq!(w.access(c, 33, Some(1)), Ok(1));
    assert_eq!(w.access(b, 5, None), Ok(5));
    w.destroy(b);
    w.destroy(c);
    assert_eq!(w.free(), w.total);
    assert!(w.model.mappings.is_empty());
}

#[test]
fn objects_are_never_shared_and_die_with_their_page() {
    let mut w = World::new(16);
    let a = w.create();
    w.access(a, 1, Some(3)).unwrap();
    w.objects(a, 1, 1);
    let b = w.create();
    w.copy(a, b).unwrap();
    // The page with the object was copied at once, without the object.
    assert_eq!(w.model.objects(), 1);
    assert_eq!(w.access(b, 1, None), Ok(3));
    assert_eq!(w.access(a, 1, Some(4)), Ok(4));
    assert_eq!(w.access(b, 1, None), Ok(3));
    w.destroy(a);
    assert_eq!(w.model.objects(), 0);
}

#[test]
fn a_failed_mapping_costs_nothing() {
    let mut w = World::new(4);
    let id = w.create();
    w.model.fail_map = true;
    assert_eq!(w.access(id, 0, None), Err(NO_MEMORY));
    assert_eq!(w.free(), w.total);
    assert_eq!(w.segments.taken(w.account), 0);
    w.model.fail_map = false;
    w.access(id, 0, None).unwrap();
}

/// A page that two segments share is written to, and its mapping cannot be changed: both still share it, and nobody
/// else gets the chunk while it is shown.
#[test]
fn a_failed_change_leaves_what_is_shared() {
    let mut w = World::new(8);
    let a = w.create();
    w.access(a, 0, Some(3)).unwrap();
    let b = w.create();
    w.copy(a, b).unwrap();
    assert_eq!(w.access(b, 0, None), Ok(3));
    let (free, taken) = (w.free(), w.segments.taken(w.account));
    w.model.fail_change = true;
    assert_eq!(w.access(b, 0, Some(4)), Err(NO_MEMORY));
    w.model.fail_change = false;
    let now = (w.free(), w.segments.taken(w.account));
    assert_eq!(
        now,
        (free, taken),
        "S2: the copy that nobody sees is given back"
    );
    w.destroy(a);
    let other = w.create();
    w.access(other, 0, Some(5)).unwrap();
    assert_eq!(
        w.access(b, 0, None),
        Ok(3),
        "S2: what a segment shows is nobody else's"
    );
    assert_eq!(w.access(b, 0, Some(4)), Ok(4));
}

/// Whatever a segment holds, a step does no more than its bound, and the next step is another request.
#[test]
fn no_step_does_more_than_its_bound() {
    let mut w = World::new(300);
    let a = w.create_in(w.account, 200 * CHUNK).unwrap();
    let steps = w.populate(a, 0, 100 * CHUNK).unwrap();
    assert!(steps > 20, "{steps} steps of populating 100 chunks");
    // As many objects as fit, in the middle of the range.
    for page in 0..64 {
        w.objects(a, 160 + page, 256);
    }
    let b = w.create_in(w.account, 200 * CHUNK).unwrap();
    let steps = w.copy(a, b).unwrap();
    assert!(steps > 4, "{steps} steps of copying 100 chunks");
    assert_eq!(w.model.objects(), 64 * 256);
    let steps = w.discard(a, 0, 80 * CHUNK + 4096).unwrap();
    assert!(steps > 200, "{steps} steps of discarding 16,384 objects");
    assert_eq!(w.model.objects(), 0);
    for page in 0..32 {
        let page = 90 * PAGES + page;
        w.access(a, page, Some(1)).unwrap();
        w.objects(a, page, 256);
    }
    w.segments.end_account(w.account);
    let mut steps = 0;
    while w.reap() {
        steps += 1;
    }
    assert!(steps > 100, "{steps} steps of taking 8,192 objects apart");
    assert_eq!((w.model.objects(), w.free()), (0, w.total));
    assert!(w.model.mappings.is_empty());
    assert!(w.worst <= MOST_WORK, "{} of {MOST_WORK}", w.worst);
}

/// While segments with a million objects are taken apart, faults of other clients are served.
#[test]
fn others_are_served_while_what_has_ended_goes() {
    let mut w = World::new(300);
    let (hostile, other) = (
        w.account,
        w.segments.create_account(limits(20, 40)).unwrap(),
    );
    let victim = w.create_in(other, SIZE).unwrap();
    let a = w.create_in(hostile, 256 * CHUNK).unwrap();
    w.populate(a, 0, 256 * CHUNK).unwrap();
    for page in 0..256 * PAGES {
        w.objects(a, page, 250);
    }
    w.segments.end_account(hostile);
    w.worst = 0;
    for page in 0..128 {
        w.reap();
        assert_eq!(w.access(victim, page, Some(1)), Ok(1));
    }
    assert!(w.segments.has_ended());
    assert!(w.worst <= MOST_WORK);
    w.reap_all();
    assert_eq!(w.free(), w.total - 8 * CHUNK);
}

/// Memory promised to one account is available, whatever others have taken, and whatever they share.
#[test]
fn promises_are_kept() {
    let mut w = World::with_spare(100, 10);
    let promised = w.segments.create_account(limits(20, 50)).unwrap();
    let victim = w.create_in(promised, 100 * CHUNK).unwrap();
    let hostile = w.create_in(w.account, 200 * CHUNK).unwrap();
    assert_eq!(w.populate(hostile, 0, 200 * CHUNK), Err(NO_MEMORY));
    assert_eq!(w.segments.taken(w.account), 70 * CHUNK);
    // A copy takes nothing, but writing to it would.
    let copy = w.create_in(w.account, 200 * CHUNK).unwrap();
    w.copy(hostile, copy).unwrap();
    assert_eq!(w.access(copy, 0, Some(1)), Err(NO_MEMORY));
    // A new account is promised chunks of the spare.
    let new = w.segments.create_account(limits(10, 100)).unwrap();
    assert_eq!(w.segments.create_account(limits(1, 100)), Err(NO_MEMORY));
    let third = w.create_in(new, 100 * CHUNK).unwrap();
    w.populate(third, 0, 10 * CHUNK).unwrap();
    w.populate(victim, 0, 20 * CHUNK).unwrap();
    assert_eq!(w.access(victim, 20 * PAGES, None), Err(NO_MEMORY));
    assert_eq!(w.segments.usage(promised).1, 0);
    assert_eq!(w.free(), 0);
    // Memory of ended segments becomes free: a request that finds no memory is repeated, and there is some.
    w.segments.end_account(w.account);
    w.populate(victim, 0, 50 * CHUNK).unwrap();
    assert_eq!(w.access(victim, 50 * PAGES, None), Err(NO_MEMORY));
    w.reap_all();
    assert_eq!(w.segments.taken(promised), 50 * CHUNK);
}

/// However many copies others make: a copy takes no memory, but a place in the server's bookkeeping for each chunk.
#[test]
fn promises_are_kept_whatever_is_shared() {
    let mut w = World::new(400);
    let promised = w.segments.create_account(limits(20, 50)).unwrap();
    let victim = w.create_in(promised, 100 * CHUNK).unwrap();
    let mut refused = false;
    for _ in 0..3 {
        let hostile = w.segments.create_account(limits(0, 300)).unwrap();
        let first = w.create_in(hostile, 50 * CHUNK).unwrap();
        w.populate(first, 0, 50 * CHUNK).unwrap();
        for _ in 0..5 {
            let copy = w.create_in(hostile, 50 * CHUNK).unwrap();
            refused |= w.copy(first, copy).is_err();
        }
    }
    assert!(refused, "copies without an end");
    assert!(w.free() > w.total / 2);
    w.populate(victim, 0, 20 * CHUNK)
        .expect("S2: what is promised is there");
    // All memory can be taken, though as much is shared as possible.
    let rest = w.create_in(w.account, 400 * CHUNK).unwrap();
    assert_eq!(w.populate(rest, 0, 400 * CHUNK), Err(NO_MEMORY));
    assert_eq!(w.free(), 0, "memory that cannot be had");
}

/// The same when a segment was frozen before all others shared as much as possible: writes to it then take nobody's
/// place.
#[test]
fn promises_are_kept_whatever_is_frozen() {
    let mut w = World::new(400);
    let promised = w.segments.create_account(limits(20, 50)).unwrap();
    let victim = w.create_in(promised, 100 * CHUNK).unwrap();
    let hostile = w.segments.create_account(limits(0, 300)).unwrap();
    let first = w.create_in(hostile, 100 * CHUNK).unwrap();
    w.populate(first, 0, 100 * CHUNK).unwrap();
    // The copy gets no memory of its own: it shows the segment's memory.
    let copies = w.segments.create_account(limits(0, 1)).unwrap();
    let copy = w.freeze(first, copies).unwrap();
    let mut refused = false;
    for _ in 0..4 {
        let other = w.segments.create_account(limits(0, 300)).unwrap();
        let original = w.create_in(other, 40 * CHUNK).unwrap();
        w.populate(original, 0, 40 * CHUNK).unwrap();
        for _ in 0..5 {
            let more = w.create_in(other, 40 * CHUNK).unwrap();
            refused |= w.copy(original, more).is_err();
        }
    }
    assert!(refused, "copies without an end");
    let numbers = (0..100).step_by(2).chain((1..100).step_by(2));
    for number in numbers {
        w.access(first, number * PAGES, Some(1)).unwrap();
    }
    w.populate(victim, 0, 20 * CHUNK)
        .expect("S2: what is promised is there");
    let rest = w.create_in(w.account, 400 * CHUNK).unwrap();
    assert_eq!(w.populate(rest, 0, 400 * CHUNK), Err(NO_MEMORY));
    assert_eq!(w.free(), 0, "memory that cannot be had");
    w.release(copy);
    assert_eq!(w.segments.set_aside, 0);
}

#[test]
fn limits_are_of_the_account() {
    let mut w = World::new(100);
    let account = w.segments.create_account(limits(0, 10)).unwrap();
    let mut made = Vec::new();
    for _ in 0..8 {
        made.push(w.create_in(account, SIZE).unwrap());
    }
    assert_eq!(w.create_in(account, SIZE), Err(NO_MEMORY));
    // Chunks that two segments share count twice.
    w.populate(made[0], 0, 6 * CHUNK).unwrap();
    assert_eq!(w.copy(made[0], made[1]), Err(NO_MEMORY));
    w.segments.destroy(made[1]).unwrap();
    // A segment counts until it has been taken apart.
    assert_eq!(w.create_in(account, SIZE), Err(Refusal::Again));
    w.reap_all();
    made[1] = w.create_in(account, SIZE).unwrap();
    w.populate(made[2], 0, 4 * CHUNK).unwrap();
    assert_eq!(w.populate(made[2], 0, 5 * CHUNK), Err(NO_MEMORY));
    let other = w.create();
    w.populate(other, 0, SIZE).unwrap();
    assert_eq!(w.step(|s, m| s.copy(m, other, made[1])), Err(INVALID));
    w.segments.end_account(account);
    assert_eq!(w.create_in(account, SIZE), Err(Refusal::Again));
    w.reap_all();
    assert_eq!(w.create_in(account, SIZE), Err(NO_MEMORY));
    assert_eq!(w.free(), w.total - SIZE);
}

/// The original of an unfinished copy ends, and another segment gets its number.
#[test]
fn a_copy_knows_its_original() {
    let mut w = World::new(300);
    let a = w.create_in(w.account, 200 * CHUNK).unwrap();
    w.populate(a, 0, 100 * CHUNK).unwrap();
    let b = w.create_in(w.account, 200 * CHUNK).unwrap();
    assert!(matches!(
        w.step(|s, m| s.copy(m, a, b)),
        Ok(Progress::More(_))
    ));
    w.destroy(a);
    assert_eq!(w.create_in(w.account, 200 * CHUNK), Ok(a));
    assert_eq!(
        w.step(|s, m| s.copy_on(m, b)),
        Err(Refusal::Error(Error::NotFound))
    );
    w.destroy(b);
    assert_eq!(w.free(), w.total);
}

/// A copy keeps the contents at the freeze, whatever becomes of the segment, and the segment behaves like any other.
#[test]
fn a_frozen_copy_is_of_one_instant() {
    let mut w = World::new(64);
    let a = w.create();
    for page in [0, 3, 17, 40, 41, 100] {
        w.access(a, page, Some(page as u8 + 1)).unwrap();
    }
    let copies = w.segments.create_account(limits(0, 64)).unwrap();
    let before = (w.free(), w.segments.taken(w.account));
    let copy = w.freeze(a, copies).unwrap();
    assert_eq!(w.free(), before.0, "freezing takes memory");
    assert_eq!(w.freeze(a, copies), Err(Refusal::Error(Error::Limit)));
    assert_eq!(w.freeze(copy, copies), Err(Refusal::Error(Error::Limit)));
    // A copy cannot be changed, by any request.
    let other = w.create_in(copies, SIZE).unwrap();
    assert_eq!(w.populate(copy, 0, SIZE), Err(INVALID));
    assert_eq!(w.discard(copy, 0, SIZE), Err(INVALID));
    assert_eq!(w.copy(copy, other), Err(INVALID));
    let fault = w.step(|s, m| s.fault(m, copy, 5 * 4096, WRITE));
    assert_eq!(fault, Err(INVALID));
    // Pages are written, made present beside others, given back, and made present elsewhere.
    assert_eq!(w.access(a, 40, None), Ok(41));
    assert_eq!(w.access(a, 40, Some(7)), Ok(7));
    assert_eq!(w.access(a, 41, None), Ok(42));
    assert_eq!(w.access(a, 10, Some(8)), Ok(8));
    w.discard(a, 17 * 4096, 4096).unwrap();
    assert_eq!(w.access(a, 17, None), Ok(0));
    assert_eq!(w.access(a, 70, Some(9)), Ok(9));
    for page in [0, 3, 17, 40, 41, 100] {
        let (physical, rights) = w.model.find(w.window(copy) + page * 4096).unwrap();
        assert_eq!(
            w.model.bytes[&physical],
            page as u8 + 1,
            "page {page} of the copy"
        );
        assert!(w.segments.is_intact(copy), "{rights}");
    }
    assert!(w.model.find(w.window(copy) + 70 * 4096).is_none());
    // Compare with the model.
    for id in [a, copy] {
        let (mut at, mut pages) = (0, Vec::new());
        while let Ok((offset, size)) = w.segments.present_from(id, at) {
            assert!(offset >= at && size > 0);
            pages.extend((offset / 4096..(offset + size) / 4096).step_by(1));
            at = offset + size;
        }
        let there = |page: &u64| w.model.find(w.window(id) + page * 4096).is_some();
        assert_eq!(pages, (0..SIZE / 4096).filter(there).collect::<Vec<_>>());
    }
    let kept = w.segments.taken(copies);
    assert_eq!(
        kept,
        3 * CHUNK,
        "what was parted is charged to who asked for the copy"
    );
    w.release(copy);
    w.reap_all();
    for (page, value) in [
        (0, 1),
        (3, 4),
        (17, 0),
        (40, 7),
        (41, 42),
        (10, 8),
        (70, 9),
        (100, 101),
    ] {
        assert_eq!(
            w.access(a, page, None),
            Ok(value),
            "page {page} after the copy"
        );
        assert_eq!(w.access(a, page, Some(value)), Ok(value));
    }
    assert_eq!(w.segments.taken(copies), 0);
    w.segments.end_account(copies);
    w.destroy(a);
    assert_eq!(w.free(), w.total);
    assert!(w.model.mappings.is_empty() && w.model.below.is_empty());
    assert!(w.worst <= MOST_WORK);
}

/// Freezing is one step however large a segment is, and so is the release if little was written meanwhile.
#[test]
fn freezing_takes_as_long_for_a_large_segment() {
    let mut w = World::new(400);
    let a = w.create_in(w.account, 200 * CHUNK).unwrap();
    w.populate(a, 0, 150 * CHUNK).unwrap();
    w.populate(a, 160 * CHUNK, 10 * CHUNK).unwrap();
    let copies = w.segments.create_account(limits(0, 400)).unwrap();
    for written in [0, 12, 100] {
        w.model.work = 0;
        let copy = w.freeze(a, copies).unwrap();
        assert!(w.model.work <= 4, "{} units of work", w.model.work);
        for number in 0..written {
            w.access(a, number * PAGES, Some(5)).unwrap();
        }
        let steps = w.release(copy);
        assert_eq!(
            steps == 1,
            written <= 12,
            "{steps} steps after {written} writes"
        );
        w.reap_all();
        assert_eq!(w.segments.taken(copies), 0);
    }
    // A scattered segment.
    w.discard(a, 0, 200 * CHUNK).unwrap();
    for number in 0..33 {
        w.access(a, number * 2 * PAGES, Some(1)).unwrap();
    }
    assert_eq!(w.freeze(a, copies), Err(Refusal::Error(Error::Limit)));
    assert!(w.worst <= MOST_WORK);
}

/// A copy that waits for its removal, and whose segment and account end meanwhile, is removed only once: its number may
/// be another segment's by then.
#[test]
fn a_copy_that_waits_to_go_ends_nobody_else() {
    let mut w = World::new(256);
    let size = 64 * CHUNK;
    let [a, b] = [0; 2].map(|_| {
        let id = w.create_in(w.account, size).unwrap();
        w.populate(id, 0, size).unwrap();
        id
    });
    let copies = w.segments.create_account(limits(0, 64)).unwrap();
    let [first, second] =
        [(a, w.account), (b, copies)].map(|(id, account)| w.freeze(id, account).unwrap());
    // Releasing the first copy takes several steps.
    for number in (1..20).map(|n| 2 * n) {
        w.access(a, number * PAGES, Some(9)).unwrap();
    }
    for gone in [first, second, b] {
        w.segments.destroy(gone).unwrap();
    }
    w.segments.end_account(copies);
    let new = w.create();
    assert_eq!(new, second, "its number is free");
    w.access(new, 3, Some(77)).unwrap();
    w.reap_all();
    assert_eq!(
        w.segments.describe(new),
        Ok((w.account, SIZE)),
        "S2: a stranger's segment ended"
    );
    assert_eq!(w.access(new, 3, None), Ok(77));
    w.destroy(new);
    w.destroy(a);
    assert_eq!(w.free(), w.total);
}

/// An account that may not have more gets no intact copy; the segment keeps all of its contents.
#[test]
fn a_copy_without_memory_is_not_intact() {
    let mut w = World::new(64);
    let a = w.create();
    for number in 0..8 {
        w.access(a, number * PAGES, Some(number as u8 + 1)).unwrap();
    }
    let copies = w.segments.create_account(limits(0, 2)).unwrap();
    let copy = w.freeze(a, copies).unwrap();
    for number in 0..2 {
        w.access(a, number * PAGES, Some(99)).unwrap();
    }
    assert!(w.segments.is_intact(copy));
    assert_eq!(w.access(a, 2 * PAGES, Some(99)), Ok(99));
    assert!(
        !w.segments.is_intact(copy),
        "a copy that lacks something is called whole"
    );
    // A reader of the copy finds every page present.
    for number in 0..8 {
        assert!(w.model.find(w.window(copy) + number * CHUNK).is_some());
    }
    w.release(copy);
    w.reap_all();
    for number in 0..8 {
        let value = if number < 3 { 99 } else { number as u8 + 1 };
        assert_eq!(w.access(a, number * PAGES, None), Ok(value));
    }
    // Chunks with objects need memory of the copy's account at once: no copy.
    w.objects(a, 0, 1);
    w.objects(a, PAGES, 1);
    w.objects(a, 2 * PAGES, 1);
    let refused = w.freeze(a, copies);
    assert_eq!(
        refused,
        Err(NO_MEMORY),
        "a copy that would have to lack what has objects"
    );
    w.segments.end_account(copies);
    w.reap_all();
    assert_eq!(w.access(a, 3 * PAGES, Some(1)), Ok(1));
    assert_eq!(w.model.objects(), 3);
    w.destroy(a);
    assert_eq!((w.free(), w.model.objects()), (w.total, 0));
    assert!(w.model.mappings.is_empty() && w.model.below.is_empty());
}

/// Copies that wait for their removal, in an account that has ended: its promise is another account's, and writes to
/// their segments take nothing for them.
#[test]
fn nothing_is_kept_for_a_copy_that_has_ended() {
    let mut w = World::new(64);
    let [a, b] = [0; 2].map(|_| {
        let id = w.create();
        w.populate(id, 0, SIZE).unwrap();
        id
    });
    let copies = w.segments.create_account(limits(20, 80)).unwrap();
    let [_, second] = [a, b].map(|id| w.freeze(id, copies).unwrap());
    w.access(b, 0, Some(1)).unwrap();
    assert_eq!(w.free(), w.total - 17 * CHUNK, "a copy that is wanted");
    w.segments.end_account(copies);
    let before = (w.free(), w.segments.taken(copies));
    let all = (w.free() / CHUNK) as usize;
    let mut other = None;
    for number in 1..8 {
        if number == 4 {
            other = Some(w.segments.create_account(limits(all, all)).unwrap());
        }
        w.access(b, number * PAGES, Some(1)).unwrap();
        assert_eq!(
            (w.free(), w.segments.taken(copies)),
            before,
            "S2: a chunk is taken for a copy that nobody reaches"
        );
    }
    assert!(
        !w.segments.is_intact(second),
        "it lacks what was written to"
    );
    let other = other.unwrap();
    // The account that was promised everything gets everything.
    for from in (0..all).step_by(8) {
        let count = (all - from).min(8) as u64;
        let id = w.create_in(other, SIZE).unwrap();
        w.populate(id, 0, count * CHUNK)
            .expect("S2: what is promised is there");
    }
    w.reap_all();
    for number in 0..8 {
        assert_eq!(w.access(a, number * PAGES, None), Ok(0));
        assert_eq!(w.access(b, number * PAGES, None), Ok(1));
    }
    for account in [other, w.account] {
        w.segments.end_account(account);
    }
    w.reap_all();
    assert_eq!(w.free(), w.total);
    assert!(w.model.mappings.is_empty());
}

/// Chunks that hold no objects any more are not searched again, and a page without one cannot get one unnoticed.
#[test]
fn where_objects_were_nobody_looks() {
    let mut w = World::new(128);
    let a = w.create_in(w.account, 100 * CHUNK).unwrap();
    for number in 0..100 {
        w.access(a, number * PAGES, Some(1)).unwrap();
        w.objects(a, number * PAGES, 1);
    }
    let rights = |w: &World, number: u64| w.model.find(w.window(a) + number * CHUNK).unwrap().1;
    let kept = w.model.find(w.window(a) + 90 * CHUNK).unwrap().0;
    w.model.objects.retain(|page, _| *page == kept);
    let mut looks = 0;
    let mut at = 0;
    while at < 90 * CHUNK {
        at = w.objects_from(a, at).unwrap();
        looks += 1;
        assert!(looks < 50, "it gets nowhere");
    }
    assert!(looks > 1, "A9: a step that looks at all");
    assert_eq!(
        w.objects_from(a, 0),
        Ok(90 * CHUNK),
        "what was empty is passed by"
    );
    assert_eq!(
        rights(&w, 90) & OBJECTS,
        OBJECTS,
        "what has some keeps the right"
    );
    assert_eq!(rights(&w, 5) & OBJECTS, 0, "what has none has no right");
    // A program makes an object between the search and the removal of the right.
    w.objects(a, 7 * PAGES, 1);
    let made = w.model.find(w.window(a) + 7 * CHUNK).unwrap().0;
    w.model.objects.remove(&made);
    w.model.appears = Some(made);
    let rule = "S4: an object that is made meanwhile is known";
    assert_eq!(w.objects_from(a, 0), Ok(7 * CHUNK), "{rule}");
    assert_eq!(rights(&w, 7) & OBJECTS, OBJECTS, "{rule}");
    assert_eq!(w.objects_from(a, 8 * CHUNK), Ok(90 * CHUNK));
    assert_eq!(w.objects_from(a, 91 * CHUNK), Err(Error::NotFound));
}

/// Pages with objects stay where they are, and are found.
#[test]
fn objects_stay_with_the_segment() {
    let mut w = World::new(64);
    let a = w.create();
    for number in 0..8 {
        w.access(a, number * PAGES, Some(number as u8 + 1)).unwrap();
    }
    w.objects(a, 5 * PAGES, 3);
    let physical = w.model.find(w.window(a) + 5 * CHUNK).unwrap().0;
    let copies = w.segments.create_account(limits(0, 64)).unwrap();
    let copy = w.freeze(a, copies).unwrap();
    for id in [a, copy] {
        assert_eq!(w.objects_from(id, 0), Ok(5 * CHUNK));
        assert_eq!(w.objects_from(id, 6 * CHUNK), Err(Error::NotFound));
    }
    assert_eq!(w.model.find(w.window(a) + 5 * CHUNK).unwrap().0, physical);
    assert_eq!(w.access(a, 5 * PAGES, Some(77)), Ok(77));
    let kept = w.model.find(w.window(copy) + 5 * CHUNK).unwrap().0;
    assert_eq!(w.model.bytes[&kept], 6);
    // An object in a chunk without one: the chunk is parted first.
    w.objects(a, 7 * PAGES, 1);
    let kept = w.model.find(w.window(copy) + 7 * CHUNK).unwrap().0;
    assert!(!w.model.objects.contains_key(&kept), "an object in a copy");
    w.release(copy);
    w.reap_all();
    assert_eq!(w.model.find(w.window(a) + 5 * CHUNK).unwrap().0, physical);
    assert_eq!(w.model.objects(), 4);
    w.destroy(a);
    assert_eq!(w.model.objects(), 0);
}

/// The segment ends, or its whole account: the copy keeps everything, until it ends.
#[test]
fn a_frozen_copy_outlives_its_segment() {
    let mut w = World::new(64);
    let copies = w.segments.create_account(limits(0, 64)).unwrap();
    let process = w.segments.create_account(limits(4, 32)).unwrap();
    let a = w.create_in(process, SIZE).unwrap();
    for number in 0..8 {
        w.access(a, number * PAGES, Some(number as u8 + 1)).unwrap();
    }
    let copy = w.freeze(a, copies).unwrap();
    w.access(a, 3 * PAGES, Some(99)).unwrap();
    w.segments.end_account(process);
    w.model.below.remove(&a);
    w.reap_all();
    for number in 0..8 {
        let page = w.window(copy) + number * CHUNK;
        let (physical, _) = w
            .model
            .mappings
            .values()
            .find_map(|m| {
                (m.address..m.address + m.size)
                    .contains(&page)
                    .then_some((m.physical, 0))
            })
            .unwrap();
        assert_eq!(w.model.bytes[&physical], number as u8 + 1, "chunk {number}");
    }
    assert!(w.segments.is_intact(copy));
    assert_eq!(w.free(), w.total - 8 * CHUNK);
    w.segments.end_account(copies);
    w.reap_all();
    assert_eq!(w.free(), w.total);
    assert!(w.model.mappings.is_empty());
    for _ in 0..accounts::MAX_ACCOUNTS - 1 {
        w.segments
            .create_account(limits(0, 1))
            .expect("an account is kept for ever");
    }
}

/// Segments against plain arrays, a few thousand random steps.
#[test]
fn segments_behave_like_arrays() {
    for seed in 1..40u64 {
        let mut w = World::new(40);
        let promised = w.segments.create_account(limits(5, 10)).unwrap();
        let copies = w.segments.create_account(limits(0, 12)).unwrap();
        // A frozen copy, its segment, and the contents of that at the freeze.
        let mut frozen: Option<(usize, usize, Vec<u8>)> = None;
        let mut generator = Rng::with_seed(seed);
        let mut random = |n: u64| generator.u64(..n);
        let mut plain: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for _ in 0..1500 {
            let ids: Vec<usize> = plain.keys().copied().collect();
            let id = ids.get(random(ids.len().max(1) as u64) as usize).copied();
            let page = random(128);
            match (random(40), id) {
                (0..=1, _) | (_, None) if plain.len() < 5 => {
                    w.reap_all();
                    let id = w.create();
                    plain.insert(id, vec![0; 128]);
                }
                (2, Some(id)) if plain.len() < 5 => {
                    w.reap_all();
                    let new = w.create();
                    match w.copy(id, new) {
                        Ok(_) => {
                            let content = plain[&id].clone();
                            plain.insert(new, content);
                        }
                        Err(error) => {
                            assert_eq!(error, NO_MEMORY);
                            w.destroy(new);
                        }
                    }
                }
                (3, Some(id)) => {
                    w.segments.destroy(id).unwrap();
                    w.model.below.remove(&id);
                    plain.remove(&id);
                }
                (37..=39, Some(id)) => match frozen.take() {
                    None => {
                        w.reap_all();
                        match w.freeze(id, copies) {
                            Ok(copy) => frozen = Some((copy, id, plain[&id].clone())),
                            // The chunks that may hold objects need memory.
                            Err(error) => assert_eq!(error, NO_MEMORY),
                        }
                    }
                    Some((copy, _, content)) if w.segments.is_intact(copy) && random(3) > 0 => {
                        for (page, value) in content.iter().enumerate() {
                            let found = w.model.find(w.window(copy) + page as u64 * 4096);
                            let found = found.map_or(0, |(physical, _)| w.model.bytes[&physical]);
                            assert_eq!(found, *value, "seed {seed}: page {page} of the copy");
                        }
                        frozen = Some((copy, id, content));
                    }
                    Some((copy, ..)) if random(2) == 0 => {
                        w.release(copy);
                    }
                    // The server does the steps of the release itself.
                    Some((copy, ..)) => w.segments.destroy(copy).unwrap(),
                },
                (36, Some(id)) => {
                    // Objects come and go.
                    if w.access(id, page, None).is_ok()
                        && w.step(|s, m| s.fault(m, id, page * 4096, OBJECTS)).is_ok()
                    {
                        w.objects(id, page, 1);
                        let (physical, _) = w.model.find(w.window(id) + page * 4096).unwrap();
                        w.model.objects.remove(&physical);
                    }
                }
                (4..=6, Some(id)) => {
                    let size = random(128 - page + 1);
                    let done = w.discard(id, page * 4096, size * 4096);
                    if done.is_ok() {
                        plain.get_mut(&id).unwrap()[page as usize..(page + size) as usize].fill(0);
                    } else {
                        // Out of memory in the middle: earlier pages are gone, later ones are not.
                        for p in page..page + size {
                            if let Ok(value) = w.access(id, p, None) {
                                plain.get_mut(&id).unwrap()[p as usize] = value;
                            }
                        }
                    }
                }
                (7..=20, Some(id)) => {
                    let value = random(255) as u8 + 1;
                    if w.access(id, page, Some(value)).is_ok() {
                        plain.get_mut(&id).unwrap()[page as usize] = value;
                    }
                }
                (_, Some(id)) => {
                    if let Ok(value) = w.access(id, page, None) {
                        assert_eq!(value, plain[&id][page as usize], "seed {seed}");
                    }
                }
                (_, None) => {}
            }
            assert!(w.segments.usage(promised).1 >= 5 * CHUNK, "seed {seed}");
        }
        for id in plain.keys() {
            w.segments.destroy(*id).unwrap();
            w.model.below.remove(id);
            w.reap_all();
        }
        if let Some((copy, ..)) = frozen {
            w.segments.destroy(copy).unwrap();
        }
        w.reap_all();
        assert!(w.model.mappings.is_empty());
        assert_eq!(w.free(), w.total);
        assert!(w.worst <= MOST_WORK);
    }
}

/// A process that ends after its copy got no memory: its objects are destroyed, although the copy shows its memory, and
/// the next user of that memory finds none.
#[test]
fn objects_of_what_a_copy_shows_end_with_the_segment() {
    for first in [true, false] {
        let mut w = World::new(64);
        let (a, copies) = (w.create(), w.segments.create_account(limits(0, 1)).unwrap());
        for number in 0..3 {
            w.access(a, number * PAGES, Some(7)).unwrap();
            w.objects(a, number * PAGES, 2);
        }
        let refused = w.freeze(a, copies);
        assert_eq!(refused, Err(NO_MEMORY), "there is room for one of three");
        assert_eq!(w.model.objects(), 6);
        if first {
            w.reap_all();
        }
        w.segments.destroy(a).unwrap();
        w.segments.end_account(copies);
        w.reap_all();
        assert_eq!(
            w.model.objects(),
            0,
            "objects in memory that is nobody's, {first}"
        );
    }
}

/// The chunks of a frozen copy cannot be given back while there is no kernel memory. Segments that have ended after it
/// free some, and no request waits for ever.
#[test]
fn a_copy_that_cannot_go_holds_up_nobody() {
    for behind in [true, false] {
        let mut w = World::new(256);
        let size = 64 * CHUNK;
        let a = w.create_in(w.account, size).unwrap();
        w.populate(a, 0, size).unwrap();
        let other = w.create();
        w.populate(other, 0, SIZE).unwrap();
        let copy = w.freeze(a, w.account).unwrap();
        // So many parted chunks that the segment does not get its old window back.
        for number in (1..20).map(|n| 2 * n) {
            w.access(a, number * PAGES, Some(9)).unwrap();
        }
        // There is room when the other segment is gone completely.
        w.model.most_mappings = Some(w.model.mappings.len() - 7);
        w.segments.destroy(copy).unwrap();
        if behind {
            w.segments.destroy(other).unwrap();
        }
        for step in 0.. {
            if !w.reap() {
                break;
            }
            assert!(step < 1000, "S3: the reaper has no rest, {behind}");
        }
        assert_eq!(w.segments.leaving.len(), usize::from(!behind));
        if !behind {
            assert_eq!(w.access(other, 1, Some(1)), Ok(1));
            let new = w.create();
            assert_eq!(w.access(new, 0, Some(1)), Err(NO_MEMORY), "not again");
            w.destroy(new);
            w.destroy(other);
        }
        assert!(w.segments.leaving.is_empty(), "it is forgotten");
        w.model.most_mappings = None;
        w.destroy(a);
        assert!(w.model.mappings.is_empty());
        assert_eq!(w.free(), w.total);
        assert!(w.worst <= MOST_WORK);
    }
}

/// Managers do at most 32 steps for a frozen copy (`MOST_STEPS` of `process::live`): a process that is saved while it
/// runs may have this many chunks with objects.
#[test]
fn a_copy_of_chunks_with_objects_is_made_in_few_steps() {
    for (chunks, pages) in [(100, PAGES), (250, 1)] {
        let mut w = World::new(4 * chunks);
        let a = w.create_in(w.account, chunks * CHUNK).unwrap();
        for number in 0..chunks {
            for page in 0..pages {
                w.access(a, number * PAGES + page, Some(7)).unwrap();
            }
            w.objects(a, number * PAGES, 1);
        }
        let (window, old) = (1 << 60, w.window(a));
        let account = w.account;
        let copy = w.step(|s, m| s.freeze(m, a, account, window)).unwrap();
        w.shown_at(copy, old);
        let mut steps = 1;
        while w.step(|s, m| s.copy_on(m, copy)) != Ok(Progress::Done) {
            steps += 1;
        }
        assert!(steps <= 33, "{chunks} of {pages}: {steps} steps");
        assert!(w.segments.is_intact(copy));
        w.release(copy);
        w.destroy(a);
        assert_eq!(w.free(), w.total);
    }
}

const WAITS: Refusal = Refusal::Error(Error::WouldBlock);

/// Fills the first pages of the first chunk of segment `from` with these values, for a supplier to supply.
fn supplies(w: &mut World, from: usize, pages: &[u8]) {
    for (page, value) in pages.iter().enumerate() {
        w.access(from, page as u64, Some(*value)).unwrap();
    }
}

#[test]
fn what_is_owed_comes_from_the_supplier_and_from_nobody_else() {
    let mut w = World::new(32);
    let (id, source) = (w.create(), w.create());
    w.step(|s, _| s.owe(id, CHUNK, 3 * CHUNK)).unwrap();
    supplies(&mut w, source, &[1, 2, 3]);
    let first = PAGES;
    // A thread that touches an owed chunk waits, and the chunk is reported as wanted.
    for access in [READ, WRITE, OBJECTS] {
        let fault = w.step(|s, m| s.fault(m, id, (2 * PAGES + 1) * 4096, access));
        assert_eq!(fault, Err(WAITS), "A1: zeros instead of what is owed");
    }
    let left = |w: &World| w.segments.left(id).unwrap();
    assert_eq!(left(&w).wanted, Some(2 * CHUNK), "what is wanted next");
    assert_eq!(w.populate(id, 0, 2 * CHUNK), Err(WAITS));
    assert_eq!(left(&w).wanted, Some(CHUNK));
    // Other chunks behave as ever.
    assert_eq!(w.access(id, 0, Some(9)), Ok(9));
    assert_eq!(w.access(id, 4 * PAGES, None), Ok(0));
    // Requests that need all chunks are refused.
    let other = w.create();
    assert_eq!(
        w.step(|s, m| s.copy(m, id, other)).err(),
        Some(WAITS),
        "A1: a copy without what is owed"
    );
    assert_eq!(
        w.freeze(id, w.account).err(),
        Some(WAITS),
        "A1: a frozen copy without what is owed"
    );
    assert_eq!(
        w.segments.present_from(id, 0),
        Err(Error::WouldBlock),
        "A1: a list of pages without what is owed"
    );
    // Pages 1 and 2 of the first chunk.
    let offset = CHUNK + 4096;
    let now = w.step(|s, m| s.supply(m, id, (offset, 2 * 4096), source));
    assert_eq!((now.unwrap().chunks, now.unwrap().wanted), (2, None));
    for (page, value) in [(0, 0), (1, 2), (2, 3), (3, 0), (15, 0)] {
        assert_eq!(
            w.access(id, first + page, None),
            Ok(value),
            "A1: page {page} of what has come"
        );
    }
    // The chunk is the segment's own, and a second supply changes nothing.
    w.access(id, first + 1, Some(77)).unwrap();
    let again = w.step(|s, m| s.supply(m, id, (offset, 2 * 4096), source));
    assert_eq!(again.unwrap().chunks, 2);
    assert_eq!(
        w.access(id, first + 1, None),
        Ok(77),
        "S3: what comes twice is done twice"
    );
    assert_eq!(w.access(source, 1, None), Ok(2));
    // Only zeros, and the last owed chunk: then the segment is like any other.
    w.step(|s, m| s.supply(m, id, (2 * CHUNK, 0), source))
        .unwrap();
    assert_eq!(w.access(id, 2 * PAGES, None), Ok(0));
    let last = w.step(|s, m| s.supply(m, id, (3 * CHUNK, 4096), source));
    assert_eq!(last.unwrap().chunks, 0);
    assert_eq!(w.access(id, 3 * PAGES, None), Ok(1));
    let copy = w.freeze(id, w.account).unwrap();
    assert_eq!(w.access(id, 3 * PAGES, Some(8)), Ok(8));
    w.release(copy);
    assert!(w.worst <= MOST_WORK);
    for id in [id, source, other] {
        w.destroy(id);
    }
    assert_eq!(w.free(), w.total);
}

#[test]
fn only_what_can_be_owed_is_and_only_from_what_is_there_it_comes() {
    let mut w = World::new(32);
    let (id, source) = (w.create(), w.create());
    w.access(id, 4 * PAGES, Some(1)).unwrap();
    for (offset, size) in [
        (0, 0),
        (0, 4096),
        (4096, CHUNK),
        (0, SIZE + CHUNK),
        (CHUNK, u64::MAX - CHUNK + 1),
        (3 * CHUNK, 2 * CHUNK),
    ] {
        let owed = w.step(|s, _| s.owe(id, offset, size));
        assert_eq!(owed, Err(INVALID), "S2: {size:#x} at {offset:#x}");
    }
    w.step(|s, _| s.owe(id, CHUNK, CHUNK)).unwrap();
    let twice = w.step(|s, _| s.owe(id, 0, 2 * CHUNK));
    assert_eq!(twice, Err(INVALID), "S2: a chunk is owed twice");
    // Absent pages of the source cannot be supplied.
    supplies(&mut w, source, &[1]);
    for range in [
        (CHUNK + 4 * 4096, 4096),
        (CHUNK + 3 * 4096, 2 * 4096),
        (CHUNK, 2 * CHUNK),
        (CHUNK + 8, 4096),
        (SIZE, 4096),
        (u64::MAX - 4095, 4096),
        (0u64.wrapping_sub(CHUNK), 0),
    ] {
        let came = w.step(|s, m| s.supply(m, id, range, source));
        assert_eq!(came, Err(INVALID), "S2: {range:?} came");
    }
    let copy = w.freeze(source, w.account).unwrap();
    for from in [source, copy] {
        let came = w.step(|s, m| s.supply(m, id, (CHUNK, 4096), from));
        assert_eq!(came, Err(INVALID));
    }
    let owed = w.step(|s, _| s.owe(source, CHUNK, CHUNK));
    assert_eq!(owed, Err(INVALID), "what is frozen owes nothing");
    w.release(copy);
    w.model.fail_map = true;
    let came = w.step(|s, m| s.supply(m, id, (CHUNK, 4096), source));
    assert_eq!(came, Err(NO_MEMORY));
    w.model.fail_map = false;
    w.step(|s, m| s.supply(m, id, (CHUNK, 4096), source))
        .unwrap();
    assert_eq!(w.access(id, PAGES, None), Ok(1));
    for id in [id, source] {
        w.destroy(id);
    }
    assert_eq!(w.free(), w.total);
}

#[test]
fn what_is_owed_is_promised() {
    let mut w = World::new(24);
    let account = w.segments.create_account(limits(2, 16)).unwrap();
    let id = w.create_in(account, SIZE).unwrap();
    let (other, source) = (w.create_in(w.account, 4 * SIZE).unwrap(), w.create());
    supplies(&mut w, source, &[5]);
    let too_many = limits(0, 4);
    let small = w.segments.create_account(too_many).unwrap();
    let in_it = w.create_in(small, SIZE).unwrap();
    assert_eq!(
        w.step(|s, _| s.owe(in_it, 0, 5 * CHUNK)),
        Err(NO_MEMORY),
        "S2: it owes more than its account may have"
    );
    w.step(|s, _| s.owe(id, 0, 6 * CHUNK)).unwrap();
    assert_eq!(w.segments.taken(account), 6 * CHUNK);
    // The other account takes all that it can.
    let mut taken = 0;
    while w.access(other, taken * PAGES, Some(1)).is_ok() {
        taken += 1;
    }
    assert_eq!(
        taken,
        24 - 1 - 6,
        "S2: what is owed is left, and what it was promised before is in that"
    );
    for number in 0..6 {
        let came = w.step(|s, m| s.supply(m, id, (number * CHUNK, 4096), source));
        assert!(
            came.is_ok(),
            "S2: others have taken the memory for what is owed"
        );
    }
    assert_eq!(w.segments.usage(account).1, 0);
    // A segment that ends owes nothing.
    w.destroy(other);
    let ends = w.create_in(account, SIZE).unwrap();
    w.step(|s, _| s.owe(ends, 0, 8 * CHUNK)).unwrap();
    let room = w.segments.usage(w.account).1;
    w.destroy(ends);
    assert_eq!(
        w.segments.usage(w.account).1,
        room + 8 * CHUNK,
        "S2: a segment that has ended owes something still"
    );
    w.segments.end_account(account);
    w.reap_all();
    w.destroy(source);
    w.destroy(in_it);
    assert_eq!(w.free(), w.total);
}

#[test]
fn what_is_given_back_is_not_owed() {
    let mut w = World::new(32);
    let (id, source) = (
        w.create_in(w.account, 8 * CHUNK - 4096).unwrap(),
        w.create(),
    );
    supplies(&mut w, source, &[4]);
    w.step(|s, _| s.owe(id, 0, 8 * CHUNK)).unwrap();
    let left = |w: &World| w.segments.left(id).unwrap().chunks;
    // Only whole owed chunks can be given back.
    for (offset, size) in [(0, 4096), (CHUNK - 4096, 2 * CHUNK), (CHUNK, CHUNK + 4096)] {
        assert_eq!(
            w.discard(id, offset, size),
            Err(WAITS),
            "A1: {size:#x} at {offset:#x}"
        );
        assert_eq!(left(&w), 8, "A1: something is given back with the rest");
    }
    w.discard(id, 2 * CHUNK, 2 * CHUNK).unwrap();
    assert_eq!(left(&w), 6);
    assert_eq!(w.access(id, 2 * PAGES, None), Ok(0));
    // The last chunk is not whole.
    w.discard(id, 7 * CHUNK, CHUNK - 4096).unwrap();
    assert_eq!(left(&w), 5);
    assert_eq!(w.segments.taken(w.account), (5 + 2) * CHUNK);
    for number in [0, 1, 4, 5, 6] {
        w.step(|s, m| s.supply(m, id, (number * CHUNK, 4096), source))
            .unwrap();
    }
    assert_eq!(left(&w), 0);
    assert!(w.worst <= MOST_WORK);
    for id in [id, source] {
        w.destroy(id);
    }
    assert_eq!(w.free(), w.total);
}
