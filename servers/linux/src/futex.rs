//! The wait queues of `futex`.
//!
//! A futex call that waits stands in [`Futexes`] under its [`Word`], in the order of arrival. A waker removes it from
//! there: the call is *granted*. That is recorded in the call's own [`crate::process::Wait`], so it survives whatever
//! happens before the call is made again. A task waits at one word at most. No operation looks at the waiters of other
//! words.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem::take;
use serde::{Deserialize, Serialize};

use crate::memory::Source;
use crate::process::Memory;
use crate::system::Tid;

/// The progress of a futex call that has been granted (see [`crate::process::Wait::progress`]).
pub const GRANTED: u64 = 1;

/// The identity of a futex word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word {
    /// Address of the [`Memory`], which lives as long as a task waits in it; or twice the identity of a memory object,
    /// plus 1.
    memory: usize,
    /// The address in that memory, or the offset in the memory object.
    pub address: u64,
}

impl Word {
    /// The word at this address: of its memory object if it is in one, so that all memories that map it share the word;
    /// with `private` always of this memory.
    #[must_use]
    pub fn at(memory: &Memory, address: u64, private: bool) -> Self {
        let area = memory.areas.find(address).filter(|_| !private);
        match area.map(|area| (area.start, area.source())) {
            // Memories have even addresses, so they cannot be taken for objects.
            Some((start, Source::Object { id, offset })) => {
                Word::in_object(id, offset + (address - start))
            }
            _ => Word::new(memory, address),
        }
    }

    /// The word at this address of this memory only.
    #[must_use]
    pub fn new(memory: &Memory, address: u64) -> Self {
        Word {
            memory: core::ptr::from_ref(memory).addr(),
            address,
        }
    }

    /// The word at this offset of a memory object.
    #[must_use]
    pub const fn in_object(id: u64, place: u64) -> Self {
        Word {
            memory: (id << 1 | 1) as usize,
            address: place,
        }
    }

    /// The memory object that has the word, if one has.
    #[must_use]
    pub const fn object(self) -> Option<u64> {
        match self.memory & 1 {
            0 => None,
            _ => Some(self.memory as u64 >> 1),
        }
    }

    const fn range(self) -> core::ops::RangeInclusive<(Word, u64)> {
        (self, 0)..=(self, u64::MAX)
    }
}

/// How a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// The wakers that it waits for: `FUTEX_WAIT_BITSET`'s mask.
    pub bits: u32,
    /// Set if it waits for a lock with an owner (`FUTEX_LOCK_PI`): the task's number as programs see it.
    pub locks: Option<u32>,
}

/// All tasks that wait at words of memory.
#[derive(Debug, Default)]
pub struct Futexes {
    /// By word and order of arrival.
    queue: BTreeMap<(Word, u64), (Tid, Waiter)>,
    /// The place of each task in the queue.
    places: BTreeMap<Tid, (Word, u64)>,
    last: u64,
    /// Tasks whose waits have ended, for [`Futexes::take_granted`].
    granted: Vec<Tid>,
    /// The owners of contended locks, with these locks.
    owners: BTreeSet<(Tid, Word)>,
    /// The owner of each contended lock.
    owned: BTreeMap<Word, Tid>,
}

impl Futexes {
    /// Puts a task at the end of a word's queue.
    pub fn wait(&mut self, tid: Tid, word: Word, waiter: Waiter) {
        self.leave(tid);
        self.last += 1;
        self.queue.insert((word, self.last), (tid, waiter));
        self.places.insert(tid, (word, self.last));
    }

    /// Whether a task waits.
    #[must_use]
    pub fn waits(&self, tid: Tid) -> bool {
        self.places.contains_key(&tid)
    }

    /// The word at which a task waits, its order of arrival, and how it waits.
    #[must_use]
    pub fn place(&self, tid: Tid) -> Option<(Word, u64, Waiter)> {
        let place = self.places.get(&tid)?;
        let (_, waiter) = self.queue.get(place)?;
        Some((place.0, place.1, *waiter))
    }

    /// Removes a task from its queue.
    pub fn leave(&mut self, tid: Tid) {
        if let Some(place) = self.places.remove(&tid) {
            self.queue.remove(&place);
            if self.owned.contains_key(&place.0) && self.first_locker(place.0).is_none() {
                self.disown(place.0);
            }
        }
    }

    /// Grants up to `most` waiters of a word that wait for one of these bits; returns how many. Lock waiters are left
    /// alone.
    pub fn wake(&mut self, word: Word, most: usize, bits: u32) -> usize {
        let waits = |waiter: &Waiter| waiter.locks.is_none() && waiter.bits & bits != 0;
        let those = self.queue.range(word.range());
        let those = those.filter(|(_, (_, waiter))| waits(waiter)).take(most);
        let places: Vec<_> = those.map(|(place, (tid, _))| (*place, *tid)).collect();
        for (place, tid) in &places {
            self.queue.remove(place);
            self.places.remove(tid);
            self.granted.push(*tid);
        }
        places.len()
    }

    /// Moves up to `most` waiters of one word to the end of another word's queue; returns how many. Lock waiters are
    /// left alone.
    pub fn requeue(&mut self, from: Word, to: Word, most: usize) -> usize {
        let those = self.queue.range(from.range());
        let those = those.filter(|(_, (_, waiter))| waiter.locks.is_none());
        let moved: Vec<_> = those.take(most).map(|(_, (tid, w))| (*tid, *w)).collect();
        for (tid, waiter) in &moved {
            self.wait(*tid, to, *waiter);
        }
        moved.len()
    }

    /// The first waiter for the lock at the word, and its number as programs see it.
    #[must_use]
    pub fn first_locker(&self, word: Word) -> Option<(Tid, u32)> {
        let mut those = self.queue.range(word.range());
        those.find_map(|(_, (tid, waiter))| Some((*tid, waiter.locks?)))
    }

    /// Records the owner of the contended lock at the word.
    pub fn own(&mut self, owner: Tid, word: Word) {
        self.disown(word);
        self.owners.insert((owner, word));
        self.owned.insert(word, owner);
    }

    fn disown(&mut self, word: Word) {
        if let Some(owner) = self.owned.remove(&word) {
            self.owners.remove(&(owner, word));
        }
    }

    /// Gives the lock at the word to `to`, its first waiter, and ends that task's wait.
    pub fn hand_over(&mut self, word: Word, to: Tid) {
        self.disown(word);
        self.leave(to);
        self.granted.push(to);
        if self.first_locker(word).is_some() {
            self.own(to, word);
        }
    }

    /// The contended locks that a task owns.
    #[must_use]
    pub fn locks_of(&self, owner: Tid) -> Vec<Word> {
        let first = Word {
            memory: 0,
            address: 0,
        };
        let last = Word {
            memory: usize::MAX,
            address: u64::MAX,
        };
        let all = self.owners.range((owner, first)..=(owner, last));
        all.map(|(_, word)| *word).collect()
    }

    /// The owner of the lock at the word, if the lock is contended.
    #[must_use]
    pub fn owner(&self, word: Word) -> Option<Tid> {
        self.owned.get(&word).copied()
    }

    /// Whether the waits of some tasks have ended.
    #[must_use]
    #[inline]
    pub fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Takes the tasks whose waits have ended since the last call.
    pub fn take_granted(&mut self) -> Vec<Tid> {
        take(&mut self.granted)
    }
}
