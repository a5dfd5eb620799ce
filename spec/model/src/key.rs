//! When two systems are the same: the words that a `State` is hashed and compared by.
//!
//! Serial numbers of identities say only in which order they were made. Every identity that lives has a place of its
//! own, and its rank among the places is its name here. What is dead is told apart from what lives, and no more. So
//! systems that differ in names alone are one state, however they came about: the first symmetry.
//!
//! The second symmetry is between the spare references of a party: it makes no difference which of two of them holds
//! what. They are sorted by what they hold, and the frames that name them are changed accordingly.

use abi::{Registers, Type};
use spec::object::{Answer, Body, End, Target, Thread};
use spec::wait::{Meets, Status};
use spec::{Id, Place, System};
use std::collections::BTreeMap;

/// Stands for an identity that has ended.
const DEAD: u64 = u64::MAX;
/// Stands for none.
const NONE: u64 = u64::MAX - 1;

/// The places of references that are exchangeable, with the address of each as programs name it.
pub type Shelf = [(Place, u64)];

struct Key<'a> {
    system: &'a System,
    rank: BTreeMap<Id, u64>,
    accounts: Vec<usize>,
    /// Old and new addresses of references whose shelf was sorted.
    renamed: Vec<(u64, u64)>,
    words: Vec<u64>,
}

/// The words of a system. `shelves` are sets of exchangeable references.
#[must_use]
pub fn key(system: &System, shelves: &[Vec<(Place, u64)>]) -> Vec<u64> {
    let mut renamed_places: BTreeMap<Place, Place> = BTreeMap::new();
    let mut renamed = Vec::new();
    for shelf in shelves {
        sort(system, shelf, &mut renamed_places, &mut renamed);
    }
    let mut order: Vec<(Place, Id)> = system
        .objects
        .iter()
        .map(|(&id, o)| (*renamed_places.get(&o.place).unwrap_or(&o.place), id))
        .collect();
    order.sort_unstable();
    let rank = order.iter().zip(0..).map(|(&(_, id), n)| (id, n)).collect();
    let words = Vec::with_capacity(order.len() * 16);
    let accounts = Vec::new();
    let mut key = Key { system, rank, accounts, renamed, words };
    key.words.push(system.now);
    for (place, id) in order {
        key.object(place, id);
    }
    key.rest();
    key.words
}

/// Sorts exchangeable references: notes the new places of those that change theirs, and their addresses.
fn sort(
    system: &System,
    shelf: &Shelf,
    places: &mut BTreeMap<Place, Place>,
    addresses: &mut Vec<(u64, u64)>,
) {
    let held = |place: Place| {
        let id = system.object_at(place)?;
        let object = &system.objects[&id];
        match &object.body {
            Body::Reference(r) => {
                let target = system.objects.get(&r.target.id).map(|o| o.place);
                Some((object.phase as u8, r.target.kind as u8, target, r.keeps, r.target.of_server))
            }
            _ => None,
        }
    };
    // Only references that name nothing of the shelf itself are sorted, so that sorting does not change what it sorts
    // by.
    let own = |place: Option<Place>| place.is_some_and(|p| shelf.iter().any(|s| s.0 == p));
    let mut all: Vec<_> =
        shelf.iter().map(|&(place, address)| (held(place), place, address)).collect();
    if all.iter().any(|(h, ..)| h.is_none_or(|h| own(h.2))) {
        return;
    }
    all.sort_unstable();
    for (&(_, from, old), &(to, new)) in all.iter().zip(shelf) {
        if from != to {
            places.insert(from, to);
            addresses.push((old, new));
        }
    }
}

impl Key<'_> {
    fn id(&self, id: Id) -> u64 {
        self.rank.get(&id).copied().unwrap_or(DEAD)
    }

    /// A link to something dead is the same as no link.
    fn link(&mut self, id: Option<Id>) {
        let word = id.and_then(|id| self.rank.get(&id).copied()).unwrap_or(NONE);
        self.words.push(word);
    }

    /// Accounts are numbered in the order in which they are met.
    fn account(&mut self, account: usize) {
        let known = self.accounts.iter().position(|&a| a == account);
        let n = known.unwrap_or_else(|| {
            self.accounts.push(account);
            self.accounts.len() - 1
        });
        self.words.push(n as u64);
    }

    /// An address in a frame, with the count that a list of references has in its low bits.
    fn address(&self, address: u64) -> u64 {
        let count = address & abi::MAX_LIST_REFS;
        let known = self.renamed.iter().find(|(old, _)| *old == address - count);
        known.map_or(address, |(_, new)| new + count)
    }

    fn registers(&mut self, r: &Registers, in_call: bool) {
        let mut r = *r;
        if in_call {
            // The registers that the call has lost follow from the others.
            abi::ROLES.lost.iter().for_each(|&(register, _)| r.set(register, 0));
        }
        let words = r.to_words().map(|word| self.address(word));
        self.words.extend(words);
        self.words.push(u64::from(in_call));
    }

    fn end(&mut self, end: End) {
        self.words.push(end.stage as u64);
        self.link(end.peer);
    }

    fn target(&mut self, target: Target) {
        let id = if target.id == 0 { NONE } else { self.id(target.id) };
        self.words.extend([target.kind as u64, id, u64::from(target.of_server)]);
    }

    fn object(&mut self, place: Place, id: Id) {
        let object = &self.system.objects[&id];
        self.words.extend([place.0, place.1, object.phase as u64, object.body.ty() as u64]);
        self.account(object.payer);
        match &object.body {
            Body::Mutex(m) => self.words.push(u64::from(m.locked)),
            Body::Cond | Body::Portset => {}
            Body::Mapping(m) => {
                self.words.extend([m.start, m.size, m.offset, m.protection]);
                self.link(m.region);
                self.link(m.space);
            }
            Body::Region(r) => {
                self.words.extend([r.source as u64, r.start, r.size, r.protection]);
                self.link(r.space);
                self.link(r.keeper);
            }
            Body::Port(p) => {
                self.words.extend([p.alias, u64::from(p.calls_only), u64::from(p.notify)]);
                self.link(p.portset);
            }
            Body::Space(s) => {
                self.words.extend([u64::from(s.foreign), s.clock_offset, s.max_priority]);
                self.words.push(s.ports.len() as u64);
                self.words.extend(s.ports.iter().flat_map(|p| [p.0, p.1]));
                self.link(s.keeper);
                self.account(s.account);
            }
            Body::Thread(t) => {
                self.registers(&t.registers, t.in_call);
                self.words.extend([
                    t.tag,
                    t.priority,
                    t.stops,
                    u64::from(t.interrupt),
                    u64::from(t.exception_delivered),
                    u64::from(t.exception.0),
                    t.exception.1,
                    t.waited.0 as u64,
                    t.waited.1,
                    t.deadline.unwrap_or(NONE),
                ]);
                if t.fpu != spec::object::Thread::default().fpu {
                    let words = t.fpu.chunks_exact(8);
                    let word = |w: &[u8]| u64::from_le_bytes(w.try_into().unwrap_or_default());
                    self.words.extend(words.map(word));
                }
                self.link(t.space);
                self.end(t.client);
                self.end(t.server);
                self.words.push(match t.status {
                    Status::Ready => 0,
                    Status::Stopped => 1,
                    Status::Waiting(why) => 2 + why as u64,
                });
                self.link(t.at);
                self.of_wait(t);
            }
            Body::Reference(r) => {
                self.target(r.target);
                self.words.push(u64::from(r.keeps));
            }
        }
    }

    /// What a thread's wait, and what it meets next, depend on.
    fn of_wait(&mut self, t: &Thread) {
        self.words.extend([u64::from(t.tells), t.cond]);
        self.link(t.asked.map(|asked| asked.server));
        match t.asked.and_then(|asked| asked.missing) {
            None => self.words.push(0),
            Some((page, need, region)) => {
                self.words.extend([1, page, need, self.id(region)]);
            }
        }
        self.link(t.keeper);
        self.words.push(match t.answer {
            None => 0,
            Some(Answer::Whole) => 1,
            Some(Answer::Control) => 2,
        });
        match t.meets {
            None => self.words.push(0),
            Some(Meets::Page(page, need)) => self.words.extend([1, page, need]),
            Some(Meets::Wrong(code, at)) => self.words.extend([2, code as u64, at]),
            Some(Meets::Refused(page, need)) => {
                self.words.extend([3, page, need.map_or(0, |need| need + 1)])
            }
        }
    }

    /// Accounts, lines, and those words of memory that are not zero.
    fn rest(&mut self) {
        for at in 0..self.accounts.len() {
            let account = &self.system.accounts[self.accounts[at]];
            self.words.extend([account.quota, account.used, u64::from(account.closed)]);
        }
        for line in self.system.lines {
            let thread = line.filter(|id| id >> 24 == Type::Thread as u32);
            self.link(thread);
        }
        for (&frame, page) in &self.system.memory {
            for (word, at) in page.chunks_exact(8).zip(0..) {
                let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
                if word != 0 {
                    self.words.extend([frame << 16 | at, word]);
                }
            }
        }
    }
}
