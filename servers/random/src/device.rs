//! The bytes of a device of random numbers, which come in any length: they are gathered into pieces that go into the
//! key at once, and checked.
//!
//! An attacker who knows the key and sees the output could guess each of many small pieces; a piece of [`PIECE`] bytes
//! cannot be guessed. A driver, and its device, may send anything: all of it goes into the key, where it does no harm,
//! and the key counts as secret only after a piece that looks random.

use crate::Seed;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// Bytes that go into the key at once: twice the key's.
pub const PIECE: usize = 64;
/// The least number of different bytes of a random piece. 64 random bytes have 57 different ones on average, and fewer
/// than 32 practically never: less often than one in 10^20.
const DIFFERENT: usize = 32;

/// The result of adding a device's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// There are not enough yet.
    Little,
    /// They complete a piece that looks random.
    Sound,
    /// They complete a piece that does not: it has few different bytes, or repeats the one before.
    Unsound,
}

/// Bytes of a device that go into the key at once.
#[derive(Clone, Debug)]
pub struct Piece([u8; PIECE]);

/// Identifies a piece without revealing it.
type Fingerprint = [u8; 16];

impl Piece {
    /// A piece of these bytes.
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

    /// Derived as keys are, from one half after the other.
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

/// Bytes that have come and are no whole piece yet.
#[derive(Debug)]
pub struct Pool {
    bytes: [u8; PIECE],
    filled: usize,
    /// The fingerprint of the last piece.
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
    /// Takes bytes, at most the first [`PIECE`]. Returns the piece that they complete, if any, and the result.
    pub fn add(&mut self, bytes: &[u8]) -> (Option<Piece>, Came) {
        let bytes = &bytes[..bytes.len().min(PIECE)];
        let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.filled));
        self.put(now);
        if self.filled < PIECE {
            return (None, Came::Little);
        }
        let piece = Piece(self.bytes);
        // Bytes in the key must be nowhere else.
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

/// The shortest and the longest pause, in nanoseconds, before the next request to a device that gave nothing useful or
/// whose driver does not run.
pub const PAUSES: [u64; 2] = [10_000_000, 60_000_000_000];

#[cfg(test)]
pub(crate) mod tests {
    use super::{Came, Piece, Pool, PIECE};
    use rand_chacha::rand_core::{RngCore, SeedableRng};
    use rand_chacha::ChaCha20Rng;

    /// A piece that looks random.
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
