//! What comes from a device of random numbers, in pieces of any length: gathered into pieces that go into the key at once, and looked at.
//!
//! Many small pieces, one after the other, would each be guessed by who knows the key and sees what it gives; one of
//! [`PIECE`] bytes is not. A driver, and its device, may send whatever they like: all of it goes into the key, where it
//! does no harm, and the key is called secret only after a piece that looks like chance.

use crate::Seed;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// Bytes that go into the key at once: twice the key's.
pub const PIECE: usize = 64;
/// In so many different bytes a piece has at least, if it is chance. One of 64 random bytes has 57 on average, and
/// fewer than 32 never: less often than one in 10^20.
const DIFFERENT: usize = 32;

/// What came of the bytes that a device gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// There are not enough yet.
    Little,
    /// They complete a piece that looks like chance.
    Sound,
    /// They complete a piece that does not: it has few different bytes, or is the one before again.
    Unsound,
}

/// Bytes of a device that go into the key at once.
#[derive(Clone, Debug)]
pub struct Piece([u8; PIECE]);

/// What tells a piece from others, and does not tell what it was.
type Fingerprint = [u8; 16];

impl Piece {
    /// Of these bytes.
    #[must_use]
    pub fn new(bytes: [u8; PIECE]) -> Self {
        Piece(bytes)
    }

    /// Both halves.
    pub(crate) fn halves(&self) -> impl Iterator<Item = Seed> + '_ {
        self.0.chunks_exact(32).map(|half| {
            let mut seed = [0; 32];
            seed.copy_from_slice(half);
            seed
        })
    }

    /// How many different bytes it has.
    fn different(&self) -> usize {
        let mut seen = [false; 256];
        for byte in self.0 {
            seen[usize::from(byte)] = true;
        }
        seen.iter().filter(|seen| **seen).count()
    }

    /// Made as keys are, one half after the other.
    fn fingerprint(&self) -> Fingerprint {
        let mut key = [0; 32];
        for half in self.halves() {
            for (byte, fresh) in key.iter_mut().zip(half) {
                *byte ^= fresh;
            }
            ChaCha20Rng::from_seed(key).fill_bytes(&mut key);
        }
        let mut print = [0; 16];
        print.copy_from_slice(&key[..16]);
        print
    }
}

/// What has come and is no whole piece yet.
#[derive(Debug)]
pub struct Pool {
    bytes: [u8; PIECE],
    filled: usize,
    /// Of the last piece.
    last: Option<Fingerprint>,
}

impl Default for Pool {
    fn default() -> Self {
        Pool {
            bytes: [0; PIECE],
            filled: 0,
            last: None,
        }
    }
}

impl Pool {
    /// Takes bytes, of more than [`PIECE`] the first: the piece that they complete, if they do, and what came of it.
    pub fn add(&mut self, bytes: &[u8]) -> (Option<Piece>, Came) {
        let bytes = &bytes[..bytes.len().min(PIECE)];
        let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.filled));
        self.put(now);
        if self.filled < PIECE {
            return (None, Came::Little);
        }
        let piece = Piece(self.bytes);
        // What is in the key is nowhere else.
        self.bytes = [0; PIECE];
        self.filled = 0;
        self.put(later);
        let print = piece.fingerprint();
        let again = self.last.replace(print) == Some(print);
        let came = match again || piece.different() < DIFFERENT {
            true => Came::Unsound,
            false => Came::Sound,
        };
        (Some(piece), came)
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.filled + bytes.len();
        self.bytes[self.filled..end].copy_from_slice(bytes);
        self.filled = end;
    }
}

/// The shortest pause before a device is asked again that gave nothing of use, or whose driver is not there, and the
/// longest, in nanoseconds.
pub const PAUSES: [u64; 2] = [10_000_000, 60_000_000_000];

#[cfg(test)]
pub(crate) mod tests {
    use super::{Came, Piece, Pool, PIECE};
    use rand_chacha::rand_core::{RngCore, SeedableRng};
    use rand_chacha::ChaCha20Rng;

    /// A piece that looks like chance.
    pub(crate) fn chance(seed: u64) -> [u8; PIECE] {
        let mut bytes = [0; PIECE];
        ChaCha20Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
        bytes
    }

    #[test]
    fn short_answers_are_gathered() {
        for size in [1, 3, 16, 31, 33, 63, 64] {
            let mut pool = Pool::default();
            let stream: [u8; 4 * PIECE] = core::array::from_fn(|n| chance(n as u64 / 64)[n % 64]);
            let mut pieces = 0;
            for (number, answer) in stream.chunks(size).enumerate() {
                let (piece, came) = pool.add(answer);
                let Some(piece) = piece else {
                    assert_eq!(came, Came::Little);
                    continue;
                };
                let end = (pieces + 1) * PIECE;
                assert_eq!(piece.0, stream[pieces * PIECE..end], "size {size}");
                assert_eq!(came, Came::Sound);
                let so_far = (number + 1) * size;
                assert!(so_far >= end, "S2: a piece of bytes that have not come");
                pieces += 1;
                let left = &pool.bytes[pool.filled..];
                assert!(left.iter().all(|byte| *byte == 0), "what was given is left");
            }
            assert_eq!(pieces, 4, "size {size}");
        }
    }

    #[test]
    fn no_answer_is_too_long_or_too_short() {
        let mut pool = Pool::default();
        assert!(matches!(pool.add(&[]), (None, Came::Little)));
        let long = [chance(1), chance(2), chance(3)];
        let (piece, came) = pool.add(long.as_flattened());
        assert_eq!(
            (piece.map(|piece| piece.0), came),
            (Some(chance(1)), Came::Sound)
        );
        assert_eq!(pool.filled, 0, "of what is too long the rest is nothing");
    }

    #[test]
    fn what_is_no_chance_is_seen() {
        let counts = |most: usize| core::array::from_fn(|n| (n % most) as u8);
        let mut pool = Pool::default();
        for unsound in [
            [0; PIECE],
            [0xff; PIECE],
            [0x5a; PIECE],
            counts(2),
            counts(31),
        ] {
            let (piece, came) = pool.add(&unsound);
            assert_eq!(came, Came::Unsound, "{unsound:?}");
            assert!(piece.is_some(), "it is mixed in all the same");
        }
        let mut least = 256;
        for seed in 0..10_000 {
            assert_eq!(pool.add(&chance(seed)).1, Came::Sound, "seed {seed}");
            least = least.min(Piece(chance(seed)).different());
        }
        assert!((40..57).contains(&least), "{least}");
        let again = pool.add(&chance(9_999)).1;
        assert_eq!(again, Came::Unsound, "S2: a device says the same again");
    }

    #[test]
    fn the_print_does_not_show_the_piece() {
        let (one, mut other) = (chance(1), chance(1));
        other[PIECE - 1] ^= 1;
        let print = Piece(one).fingerprint();
        assert_ne!(print, Piece(other).fingerprint());
        assert!(!one
            .windows(4)
            .any(|part| print.windows(4).any(|p| p == part)));
    }
}
