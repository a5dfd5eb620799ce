//! Locks on files: of ranges of bytes (`fcntl`), and of whole files (`flock`).
//!
//! A lock has an owner. The owner of a POSIX lock is a table of descriptors: its locks on a file are released when a
//! process with this table closes any descriptor of the file. The owner of a lock by `flock` or `F_OFD_SETLK` is an
//! open file description: its locks are released when it is closed. Locks by `flock` and locks on ranges do not
//! conflict with each other. A call that waits for a lock waits under the file's key and tries again when a lock of the
//! file is released.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::errno::{Errno, EDEADLK, ENOLCK};
use crate::system::{Key, Payer, System, Thing, Tid};

/// The highest offset of a byte in a file.
pub const LAST: u64 = i64::MAX as u64;
/// Most locks for one payer.
pub const MAX_LOCKS: usize = 1024;
/// Most owners that the search for a deadlock follows, as in Linux.
const MOST_FOLLOWED: usize = 10;

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A table of descriptors, by its number ([`crate::process::Files::owner`]).
    Files(u64),
    /// An open file description, by its address.
    Description(usize),
    /// An open file description, by its address, for locks by `flock`.
    Whole(usize),
}

impl Owner {
    /// Whether locks of these owners can conflict: both on ranges, or both by `flock`.
    const fn meets(self, other: Owner) -> bool {
        matches!(self, Owner::Whole(_)) == matches!(other, Owner::Whole(_))
    }
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Its owner.
    pub owner: Owner,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
    /// Whether it excludes all other locks (a write lock), not only exclusive ones.
    pub exclusive: bool,
    /// The process that asked for it, by its number as programs see it.
    pub number: u32,
}

impl Lock {
    const fn overlaps(&self, other: &Lock) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    fn conflicts(&self, other: &Lock) -> bool {
        self.owner != other.owner
            && self.owner.meets(other.owner)
            && self.overlaps(other)
            && (self.exclusive || other.exclusive)
    }
}

/// Whether two of these locks of one file conflict. Locks of one owner must not overlap.
#[must_use]
pub fn collide(locks: impl Iterator<Item = Lock>) -> bool {
    let is_whole = |lock: &Lock| matches!(lock.owner, Owner::Whole(_));
    let mut all: Vec<Lock> = locks.collect();
    all.sort_unstable_by_key(|lock| (is_whole(lock), lock.start));
    let (mut whole, mut free, mut shareable) = (false, 0, 0);
    all.iter().any(|lock| {
        if is_whole(lock) && !whole {
            (whole, free, shareable) = (true, 0, 0);
        }
        // `free` is behind all locks so far, `shareable` behind all exclusive ones.
        let meets = lock.start < if lock.exclusive { free } else { shareable };
        free = free.max(lock.last + 1);
        if lock.exclusive {
            shareable = shareable.max(lock.last + 1);
        }
        meets
    })
}

/// The locks of a file, each with its payer.
type OfFile = Vec<(Lock, Payer)>;

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    files: BTreeMap<u64, OfFile>,
    /// The files on which each owner has locks.
    owners: BTreeSet<(Owner, u64)>,
    /// For each waiting task, the owner as which it waits and the owner of the lock that it waits for.
    waiting: BTreeMap<Tid, (Owner, Owner)>,
    /// The waiting tasks by the owner as which they wait.
    waiting_as: BTreeSet<(Owner, Tid)>,
}

impl Locks {
    /// Whether there are no locks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The conflicting lock with the lowest start, if there is one.
    #[must_use]
    pub fn conflict(&self, ino: u64, lock: &Lock) -> Option<Lock> {
        let those = self.files.get(&ino)?.iter().map(|(other, _)| *other);
        let those = those.filter(|other| other.conflicts(lock));
        those.min_by_key(|other| other.start)
    }

    /// The locks of an owner on a file.
    #[must_use]
    pub fn of(&self, owner: Owner, ino: u64) -> Vec<Lock> {
        let all = self.files.get(&ino).into_iter().flatten();
        let own = all.map(|(lock, _)| *lock);
        own.filter(|lock| lock.owner == owner).collect()
    }

    /// All locks of a file.
    pub fn of_file(&self, ino: u64) -> impl Iterator<Item = Lock> + '_ {
        let all = self.files.get(&ino).into_iter().flatten();
        all.map(|(lock, _)| *lock)
    }

    /// Has a task wait for a lock of another owner. Errors: `EDEADLK` if that owner waits for `owner`, directly or
    /// through others.
    pub fn wait(&mut self, tid: Tid, owner: Owner, other: Owner) -> Result<(), Errno> {
        self.leave(tid);
        let mut next = other;
        for _ in 0..MOST_FOLLOWED {
            let mut those = self.waiting_as.range((next, 0)..=(next, Tid::MAX));
            let waits_for = those.next().and_then(|(_, tid)| self.waiting.get(tid));
            match waits_for {
                Some((_, for_whom)) if *for_whom == owner => return Err(EDEADLK),
                Some((_, for_whom)) => next = *for_whom,
                None => break,
            }
        }
        self.waiting.insert(tid, (owner, other));
        self.waiting_as.insert((owner, tid));
        Ok(())
    }

    /// Ends the wait of a task.
    pub fn leave(&mut self, tid: Tid) {
        if let Some((owner, _)) = self.waiting.remove(&tid) {
            self.waiting_as.remove(&(owner, tid));
        }
    }
}

impl System {
    /// Sets a lock that conflicts with none, replacing the owner's locks in its range. Errors: `ENOLCK` if there are
    /// too many locks.
    pub fn lock(&mut self, ino: u64, lock: Lock, payer: Payer) -> Result<(), Errno> {
        self.change(ino, &lock, payer, true)
    }

    /// Releases an owner's locks in a range. Errors: `ENOLCK` if splitting a lock would make too many locks.
    pub fn unlock(&mut self, ino: u64, range: &Lock, payer: Payer) -> Result<(), Errno> {
        if !self.locks.owners.contains(&(range.owner, ino)) {
            return Ok(());
        }
        self.change(ino, range, payer, false)
    }

    /// Sets the locks that an image has of a file, all or none; returns whether none of them conflicts with an existing
    /// lock or another one of them. Locks of one owner must not overlap. Errors: `ENOLCK` if there are too many locks.
    pub fn lock_again(&mut self, ino: u64, locks: &[Lock], payer: Payer) -> Result<bool, Errno> {
        if collide(self.locks.of_file(ino).chain(locks.iter().copied())) {
            return Ok(false);
        }
        for done in 0..locks.len() {
            if self.count_thing(Thing::Lock, payer).is_err() {
                self.uncount_things(Thing::Lock, done, payer);
                return Err(ENOLCK);
            }
        }
        if !locks.is_empty() {
            let all = self.locks.files.entry(ino).or_default();
            all.extend(locks.iter().map(|lock| (*lock, payer)));
            let owners = locks.iter().map(|lock| (lock.owner, ino));
            self.locks.owners.extend(owners);
        }
        Ok(true)
    }

    fn change(&mut self, ino: u64, lock: &Lock, payer: Payer, takes: bool) -> Result<(), Errno> {
        // The change adds at most the new lock and the second half of one that it splits.
        let all = self.locks.files.get(&ino).into_iter().flatten();
        let splits = |(own, _): &(Lock, Payer)| {
            own.owner == lock.owner && own.start < lock.start && lock.last < own.last
        };
        let extra = usize::from(takes) + usize::from(all.into_iter().any(splits));
        for done in 0..extra {
            if self.count_thing(Thing::Lock, payer).is_err() {
                self.uncount_things(Thing::Lock, done, payer);
                return Err(ENOLCK);
            }
        }
        let mut before = self.payers(ino, lock.owner);
        *before.entry(payer).or_default() += extra;
        let all = self.locks.files.entry(ino).or_default();
        cut(all, lock, payer);
        if takes {
            put(all, *lock, payer);
        }
        if all.is_empty() {
            self.locks.files.remove(&ino);
        }
        let after = self.payers(ino, lock.owner);
        for (payer, counted) in before {
            let now = after.get(&payer).copied().unwrap_or(0);
            self.uncount_things(Thing::Lock, counted.saturating_sub(now), payer);
        }
        match after.is_empty() {
            true => self.locks.owners.remove(&(lock.owner, ino)),
            false => self.locks.owners.insert((lock.owner, ino)),
        };
        self.wake(Key::Lock(ino));
        Ok(())
    }

    /// Releases the locks of an owner on a file that it has closed.
    pub fn release_locks(&mut self, owner: Owner, ino: u64) {
        if !self.locks.owners.remove(&(owner, ino)) {
            return;
        }
        let Some(all) = self.locks.files.get_mut(&ino) else {
            return;
        };
        let gone: Vec<Payer> = all
            .extract_if(.., |(lock, _)| lock.owner == owner)
            .map(|(_, payer)| payer)
            .collect();
        if all.is_empty() {
            self.locks.files.remove(&ino);
        }
        for payer in gone {
            self.uncount_thing(Thing::Lock, payer);
        }
        self.wake(Key::Lock(ino));
    }

    /// Releases the locks of a description that has been closed.
    pub fn release_description_locks(&mut self, at: usize) {
        for owner in [Owner::Description(at), Owner::Whole(at)] {
            let all = self.locks.owners.range((owner, 0)..=(owner, u64::MAX));
            let files: Vec<u64> = all.map(|(_, ino)| *ino).collect();
            for ino in files {
                self.release_locks(owner, ino);
            }
        }
    }

    /// How many of an owner's locks on a file each payer pays for.
    fn payers(&self, ino: u64, owner: Owner) -> BTreeMap<Payer, usize> {
        let mut payers = BTreeMap::new();
        let all = self.locks.files.get(&ino).into_iter().flatten();
        for (_, payer) in all.filter(|(lock, _)| lock.owner == owner) {
            *payers.entry(*payer).or_default() += 1;
        }
        payers
    }
}

/// Removes a range from an owner's locks. If a lock is split, `payer` pays for the second part.
fn cut(all: &mut OfFile, range: &Lock, payer: Payer) {
    let mut rest = Vec::new();
    all.retain(|(lock, of)| {
        if lock.owner != range.owner || !lock.overlaps(range) {
            return true;
        }
        let is_split = lock.start < range.start && lock.last > range.last;
        if lock.start < range.start {
            let last = range.start - 1;
            rest.push((Lock { last, ..*lock }, *of));
        }
        if lock.last > range.last {
            let start = range.last + 1;
            rest.push((Lock { start, ..*lock }, if is_split { payer } else { *of }));
        }
        false
    });
    all.append(&mut rest);
}

/// Adds a lock in a range where its owner has none, merging it with adjacent locks of the same kind and payer.
fn put(all: &mut OfFile, lock: Lock, payer: Payer) {
    let mut new = lock;
    all.retain(|(other, of)| {
        let is_neighbour = other.owner == new.owner
            && other.exclusive == new.exclusive
            && *of == payer
            && other.start <= new.last.saturating_add(1)
            && new.start <= other.last.saturating_add(1);
        if is_neighbour {
            new.start = new.start.min(other.start);
            new.last = new.last.max(other.last);
        }
        !is_neighbour
    });
    all.push((new, payer));
}

#[cfg(test)]
mod tests {
    use super::{Lock, Owner, LAST};
    use crate::errno::{EDEADLK, ENOLCK};
    use crate::system::{Payer, System, Thing};
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use fastrand::Rng;

    fn lock(owner: u64, start: u64, last: u64, exclusive: bool) -> Lock {
        Lock {
            owner: Owner::Files(owner),
            start,
            last,
            exclusive,
            number: 1,
        }
    }

    /// Compares the locks with a plain table of bytes.
    #[test]
    fn locks_are_what_a_table_of_bytes_says() {
        let (mut system, payer) = (System::new(), Payer::Tree(1));
        let mut rng = Rng::with_seed(3);
        let mut model: BTreeMap<(u64, u64), bool> = BTreeMap::new();
        for step in 0..20_000 {
            let (owner, ino) = (rng.u64(1..4), rng.u64(1..3));
            let start = rng.u64(0..20);
            let wanted = lock(owner, start, start + rng.u64(0..8), rng.bool());
            let bytes = wanted.start..=wanted.last;
            match rng.u32(0..5) {
                0 => {
                    system.unlock(ino, &wanted, payer).unwrap();
                    for at in bytes {
                        model.remove(&(owner * 2 + ino % 2, at));
                    }
                }
                1 if step % 5 == 0 => {
                    system.release_locks(wanted.owner, ino);
                    model.retain(|(who, _), _| *who != owner * 2 + ino % 2);
                }
                _ => {
                    let others = (1..4).filter(|other| *other != owner);
                    let mut theirs = others.flat_map(|other| {
                        let key = move |at| (other * 2 + ino % 2, at);
                        (wanted.start..=wanted.last).map(key)
                    });
                    let blocked = theirs.any(|key| {
                        model
                            .get(&key)
                            .is_some_and(|other| *other || wanted.exclusive)
                    });
                    let conflict = system.locks.conflict(ino, &wanted);
                    assert_eq!(conflict.is_some(), blocked, "{step}");
                    if !blocked {
                        system.lock(ino, wanted, payer).unwrap();
                        model.extend(bytes.map(|at| ((owner * 2 + ino % 2, at), wanted.exclusive)));
                    }
                }
            }
            // Adjacent ranges of one kind are merged, so there are as many locks as changes in the table.
            let mut ranges = 0;
            let mut last = None;
            for ((who, at), exclusive) in &model {
                ranges += usize::from(last != Some((*who, at.wrapping_sub(1), *exclusive)));
                last = Some((*who, *at, *exclusive));
            }
            assert_eq!(system.counted_things(Thing::Lock), ranges, "{step}");
        }
        for owner in 1..4 {
            (1..3).for_each(|ino| system.release_locks(Owner::Files(owner), ino));
        }
        assert!(system.locks.is_empty() && system.counted_things(Thing::Lock) == 0);
    }

    /// Locks of an image are set as if each had been asked for by itself, all or none.
    #[test]
    fn locks_are_taken_again_where_nobody_is_in_their_way() {
        let mut rng = Rng::with_seed(7);
        let mut taken = 0;
        for round in 0..3000 {
            let (mut system, payer) = (System::new(), Payer::Tree(1));
            let whole = |rng: &mut Rng, owner: usize| Lock {
                owner: Owner::Whole(owner),
                ..lock(0, 0, LAST, rng.u32(0..4) == 0)
            };
            for owner in 1..4 {
                let start = rng.u64(0..30);
                let other = lock(owner, start, start + rng.u64(0..4), rng.bool());
                if system.locks.conflict(7, &other).is_none() {
                    system.lock(7, other, Payer::Tree(2)).unwrap();
                }
            }
            let before = system.counted_things(Thing::Lock);
            let mut again = Vec::new();
            for owner in 4..7 {
                let mut start = rng.u64(0..20);
                for _ in 0..rng.u32(0..3) {
                    let last = start + rng.u64(0..3);
                    again.push(lock(owner, start, last, rng.u32(0..3) == 0));
                    start = last + 1 + rng.u64(0..5);
                }
                if rng.u32(0..3) == 0 {
                    again.push(whole(&mut rng, owner as usize));
                }
            }
            let meets = |one: &Lock, other: &Lock| one.conflicts(other);
            let free = again.iter().enumerate().all(|(n, one)| {
                system.locks.conflict(7, one).is_none()
                    && again[..n].iter().all(|other| !meets(one, other))
            });
            assert_eq!(system.lock_again(7, &again, payer), Ok(free), "S2: {round}");
            let more = if free { again.len() } else { 0 };
            assert_eq!(system.counted_things(Thing::Lock), before + more);
            taken += usize::from(free && more > 2);
            for owner in again.iter().map(|lock| lock.owner) {
                system.release_locks(owner, 7);
            }
            assert_eq!(system.counted_things(Thing::Lock), before);
        }
        assert!(taken > 100, "{taken}");
    }

    #[test]
    fn who_waits_in_a_circle_is_told() {
        let mut system = System::new();
        let [a, b, c] = [1, 2, 3].map(Owner::Files);
        system.locks.wait(1, a, b).unwrap();
        system.locks.wait(2, b, c).unwrap();
        assert_eq!(system.locks.wait(3, c, a), Err(EDEADLK));
        system.locks.leave(1);
        system.locks.wait(3, c, a).unwrap();
        // The search for a deadlock ends although the others wait in a circle.
        assert_eq!(system.locks.wait(1, a, b), Err(EDEADLK));
    }

    /// Two payers lock as one owner: a description that both have can be one.
    #[test]
    fn each_lock_is_counted_for_who_has_asked_for_it() {
        let mut system = System::new();
        let mut rng = Rng::with_seed(5);
        for _ in 0..3000 {
            let (start, payer) = (rng.u64(0..30), Payer::Tree(rng.u32(1..4)));
            let wanted = lock(1, start, start + rng.u64(0..9), rng.bool());
            match rng.bool() {
                true => system.lock(7, wanted, payer).unwrap(),
                false => system.unlock(7, &wanted, payer).unwrap(),
            }
            let all = system.locks.of(wanted.owner, 7).len();
            assert_eq!(system.counted_things(Thing::Lock), all);
        }
        system.release_locks(Owner::Files(1), 7);
        assert!(system.locks.is_empty() && system.counted_things(Thing::Lock) == 0);
    }

    #[test]
    fn there_is_an_end_of_locks() {
        let mut system = System::new();
        let payer = Payer::Tree(1);
        let mut made = 0;
        while system
            .lock(7, lock(1, 2 * made, 2 * made, true), payer)
            .is_ok()
        {
            made += 1;
        }
        assert!((500..10_000).contains(&made));
        let (one, all) = (lock(1, 1, 1, true), lock(1, 0, LAST, true));
        assert_eq!(system.lock(7, one, payer), Err(ENOLCK));
        assert_eq!(system.counted_things(Thing::Lock), made as usize);
        system.lock(8, lock(1, 0, 0, true), Payer::Tree(2)).unwrap();
        system.release_locks(all.owner, 7);
        assert_eq!(system.counted_things(Thing::Lock), 1);
    }
}
