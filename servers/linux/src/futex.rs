//! Who waits at which word of memory (`futex`).
//!
//! A futex call that waits stands in [`Futexes`] under its [`Word`], in the order in which they came. Others let it go by
//! taking it out of there: it is *granted*, which is noted in the call's own [`crate::process::Wait`], so it survives whatever
//! happens before the call is made again. A task waits at one word at most. No operation looks at those who wait elsewhere.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem::take;
use serde::{Deserialize, Serialize};

use crate::memory::Source;
use crate::process::Memory;
use crate::system::Tid;

/// What is kept of a futex call that has been granted (see [`crate::process::Wait::progress`]).
pub const GRANTED: u64 = 1;

/// A word of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word {
    /// Whose memory. It lives as long as somebody waits in it.
    memory: usize,
    /// The address there.
    pub address: u64,
}

impl Word {
    /// The word at this address, for all who have its page in their memory; `private`: for this memory only.
    #[must_use]
    pub fn at(memory: &Memory, address: u64, private: bool) -> Self {
        let area = memory.areas.find(address).filter(|_| !private);
        match area.map(|area| (area.start, area.source())) {
            // The address of a memory is an even number.
            Some((start, Source::Object { id, offset })) => {
                Word::in_object(id, offset + (address - start))
            }
            _ => Word::new(memory, address),
        }
    }

    /// The word at this address of this memory.
    #[must_use]
    pub fn new(memory: &Memory, address: u64) -> Self {
        Word {
            memory: core::ptr::from_ref(memory).addr(),
            address,
        }
    }

    /// The word at this place of a memory object.
    #[must_use]
    pub const fn in_object(id: u64, place: u64) -> Self {
        Word {
            memory: (id << 1 | 1) as usize,
            address: place,
        }
    }

    /// The memory object in which it is, if it is in one.
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
    /// Which wakers it waits for, one bit each.
    pub bits: u32,
    /// It waits for a lock that has an owner (`FUTEX_LOCK_PI`): its number as programs see it.
    pub locks: Option<u32>,
}

/// All that wait at words of memory.
#[derive(Debug, Default)]
pub struct Futexes {
    /// By word and order of arrival.
    queue: BTreeMap<(Word, u64), (Tid, Waiter)>,
    /// Where each stands in the queue.
    places: BTreeMap<Tid, (Word, u64)>,
    last: u64,
    /// Tasks whose waits are over.
    granted: Vec<Tid>,
    /// Owners of locks that somebody waits for, and these locks.
    owners: BTreeSet<(Tid, Word)>,
    /// The owner of each.
    owned: BTreeMap<Word, Tid>,
}

impl Futexes {
    /// A task waits, behind all others.
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

    /// Where and how a task waits, and the order of its arrival.
    #[must_use]
    pub fn place(&self, tid: Tid) -> Option<(Word, u64, Waiter)> {
        let place = self.places.get(&tid)?;
        let (_, waiter) = self.queue.get(place)?;
        Some((place.0, place.1, *waiter))
    }

    /// A task does not wait any longer.
    pub fn leave(&mut self, tid: Tid) {
        if let Some(place) = self.places.remove(&tid) {
            self.queue.remove(&place);
            if self.owned.contains_key(&place.0) && self.first_locker(place.0).is_none() {
                self.disown(place.0);
            }
        }
    }

    /// Lets up to `most` of those go that wait at the word for one of these bits: how many.
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

    /// Lets up to `most` of those who wait at one word wait at another one, behind those who wait there: how many.
    pub fn requeue(&mut self, from: Word, to: Word, most: usize) -> usize {
        let those = self.queue.range(from.range());
        let those = those.filter(|(_, (_, waiter))| waiter.locks.is_none());
        let moved: Vec<_> = those.take(most).map(|(_, (tid, w))| (*tid, *w)).collect();
        for (tid, waiter) in &moved {
            self.wait(*tid, to, *waiter);
        }
        moved.len()
    }

    /// The first who waits for the lock at the word, and its number as programs see it.
    #[must_use]
    pub fn first_locker(&self, word: Word) -> Option<(Tid, u32)> {
        let mut those = self.queue.range(word.range());
        those.find_map(|(_, (tid, waiter))| Some((*tid, waiter.locks?)))
    }

    /// The lock at the word, for which somebody waits, belongs to this task.
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

    /// The first who waits for the lock at the word has it.
    pub fn hand_over(&mut self, word: Word, to: Tid) {
        self.disown(word);
        self.leave(to);
        self.granted.push(to);
        if self.first_locker(word).is_some() {
            self.own(to, word);
        }
    }

    /// The locks of a task for which others wait.
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

    /// The owner of the lock at the word, if somebody waits for it.
    #[must_use]
    pub fn owner(&self, word: Word) -> Option<Tid> {
        self.owned.get(&word).copied()
    }

    /// Whether there are tasks whose waits are over.
    #[must_use]
    #[inline]
    pub fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// The tasks whose waits are over since.
    pub fn take_granted(&mut self) -> Vec<Tid> {
        take(&mut self.granted)
    }
}
