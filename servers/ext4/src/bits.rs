//! Sets of numbers that are near each other, such as those of blocks and inodes: a bit for each.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use proto::Error;
use rt::heap::want;

const WORDS: u64 = 64;
/// Numbers that a piece covers.
const PIECE: u64 = WORDS * 64;
/// Bytes of memory of a piece and its entry in the map.
const ROOM: u64 = 600;

type Words = Box<[u64; WORDS as usize]>;

/// A set: pieces of 512 bytes, only where there are numbers.
#[derive(Default)]
pub(crate) struct Bits(BTreeMap<u64, Words>);

impl Bits {
    /// Whether it has this number.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.any(number, 1)
    }

    /// Whether it has one of these numbers.
    pub(crate) fn any(&self, first: u64, count: u64) -> bool {
        words(first, count).any(|(piece, word, bits)| {
            let words = self.0.get(&piece);
            words.is_some_and(|words| words[word] & bits != 0)
        })
    }

    /// Adds these numbers.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; then some of them have been added.
    pub(crate) fn insert(&mut self, first: u64, count: u64) -> Result<(), Error> {
        for (piece, word, bits) in words(first, count) {
            self.piece(piece)?[word] |= bits;
        }
        Ok(())
    }

    /// Adds another set.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; then nothing has changed.
    pub(crate) fn join(&mut self, other: Bits) -> Result<(), Error> {
        let new = other.0.keys().filter(|piece| !self.0.contains_key(piece));
        want(new.count() as u64 * ROOM)?;
        for (piece, words) in other.0 {
            let mine = self.0.entry(piece).or_insert_with(|| Box::new([0; 64]));
            mine.iter_mut().zip(words.iter()).for_each(|(a, b)| *a |= b);
        }
        Ok(())
    }

    /// Makes room for this number, so that adding it cannot fail.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn make_room(&mut self, number: u64) -> Result<(), Error> {
        self.piece(number / PIECE).map(drop)
    }

    fn piece(&mut self, piece: u64) -> Result<&mut Words, Error> {
        if !self.0.contains_key(&piece) {
            want(ROOM)?;
        }
        Ok(self.0.entry(piece).or_insert_with(|| Box::new([0; 64])))
    }

    /// How many pieces it has.
    #[cfg(test)]
    pub(crate) fn pieces(&self) -> usize {
        self.0.len()
    }
}

/// The words for these numbers: the piece, the index of the word in it, and the bits.
fn words(first: u64, count: u64) -> impl Iterator<Item = (u64, usize, u64)> {
    let (mut at, end) = (first, first.saturating_add(count));
    core::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let next = end.min((at | 63).saturating_add(1));
        let bits = u64::MAX >> (64 - (next - at)) << (at & 63);
        let word = (at / PIECE, (at / 64 % WORDS) as usize, bits);
        at = next;
        Some(word)
    })
}
