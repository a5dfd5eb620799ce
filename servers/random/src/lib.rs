//! A generator of random bytes whose state reveals nothing about earlier output; [`device`] handles the bytes of a
//! device.
#![no_std]
#![forbid(unsafe_code)]

pub mod device;

use device::{Came, Piece, Pool};
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// A key of the generator, or a contribution to one.
pub type Seed = [u8; 32];

/// The generator.
#[derive(Debug)]
pub struct Generator(ChaCha20Rng);

impl Generator {
    /// A generator with this seed. Without the seed its output cannot be distinguished from random bytes.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Generator(ChaCha20Rng::from_seed(seed))
    }

    /// Fills `into`. The key of this output is erased then; `fresh` goes into the next key, and does no harm if an
    /// attacker knows it.
    pub fn fill(&mut self, fresh: Seed, into: &mut [u8]) {
        self.renew(fresh);
        self.0.fill_bytes(into);
        self.renew([0; 32]);
    }

    /// Puts a piece of a device's random numbers into the key. The new key depends on the old one, too: an attacker who
    /// knows or has chosen the piece does not learn the key, and one who knew the old key does not know the new one
    /// without the piece.
    pub fn mix(&mut self, piece: &Piece) {
        for half in piece.halves() {
            self.renew(half);
        }
    }

    /// The next key: the generator's next output, which is random to anyone without the key, combined with `fresh`.
    fn renew(&mut self, fresh: Seed) {
        let mut key = [0; 32];
        self.0.fill_bytes(&mut key);
        for (byte, fresh) in key.iter_mut().zip(fresh) {
            *byte ^= fresh;
        }
        self.0 = ChaCha20Rng::from_seed(key);
    }
}

/// Whether the processor's numbers can be random: some processors return the same one for ever, mostly all ones, and
/// report success.
#[must_use]
pub fn look_like_chance(words: &[u64; 4]) -> bool {
    let mut earlier = words.iter().enumerate();
    earlier.all(|(n, word)| ![0, u64::MAX].contains(word) && !words[..n].contains(word))
}

/// The generator, and the state of its key.
#[derive(Debug)]
pub struct Store {
    generator: Generator,
    pool: Pool,
    /// The key contains random numbers of the processor or a device, and so stays secret.
    is_secret: bool,
    /// Pieces of the device that went into the key, of whatever quality.
    pieces: u64,
    /// When the last one that looked random did, if any.
    sound_at: Option<u64>,
    /// Bytes that were given out since.
    given: u64,
}

/// The device is asked again when so many bytes were given out since the last piece.
pub const BYTES: u64 = 1 << 20;
/// Or after so many nanoseconds, when a client asks for bytes.
pub const OFTEN: u64 = 60_000_000_000;
/// But not before so many nanoseconds.
pub const SELDOM: u64 = 100_000_000;

impl Store {
    /// A store with this first key, which is secret or not.
    #[must_use]
    pub fn new(seed: Seed, is_secret: bool) -> Self {
        Store {
            generator: Generator::new(seed),
            pool: Pool::default(),
            is_secret,
            pieces: 0,
            sound_at: None,
            given: 0,
        }
    }

    /// [`Generator::fill`].
    pub fn fill(&mut self, fresh: Seed, into: &mut [u8]) {
        self.generator.fill(fresh, into);
        self.given = self.given.saturating_add(into.len() as u64);
    }

    /// Whether the output is good for secrets, and how many pieces of a device are in the key.
    #[must_use]
    pub fn state(&self) -> (bool, u64) {
        (self.is_secret, self.pieces)
    }

    /// Whether the device, if there is one, is to be asked for more at this time.
    #[must_use]
    pub fn wants(&self, now: u64) -> bool {
        let Some(sound_at) = self.sound_at else {
            return true;
        };
        let since = now.saturating_sub(sound_at);
        since >= OFTEN || self.given >= BYTES && since >= SELDOM
    }

    /// Takes bytes from the device, which is not trusted: a complete piece goes into the key, whatever its quality. One
    /// that looks random makes the key secret.
    pub fn came(&mut self, bytes: &[u8], now: u64) -> Came {
        let (piece, came) = self.pool.add(bytes);
        if let Some(piece) = piece {
            self.generator.mix(&piece);
            self.pieces += 1;
        }
        if came == Came::Sound {
            self.is_secret = true;
            self.sound_at = Some(now);
            self.given = 0;
        }
        came
    }
}

#[cfg(test)]
mod tests {
    use super::device::{tests::chance, Piece, PIECE};
    use super::{Came, ChaCha20Rng, Generator, RngCore, SeedableRng, Store, BYTES, OFTEN, SELDOM};

    fn filled(generator: &mut Generator, fresh: u8) -> [u8; 64] {
        let mut bytes = [0; 64];
        generator.fill([fresh; 32], &mut bytes);
        bytes
    }

    #[test]
    fn a_processor_that_says_the_same_is_not_believed() {
        use super::look_like_chance;
        assert!(look_like_chance(&[1, 2, 3, 4]));
        for words in [
            [u64::MAX; 4],
            [0; 4],
            [1, 2, 3, 1],
            [1, 0, 3, 4],
            [5, 5, 6, 7],
        ] {
            assert!(
                !look_like_chance(&words),
                "numbers that do not look like chance are said to be secret: {words:?}"
            );
        }
    }

    #[test]
    fn all_that_goes_in_matters() {
        let first = |seed: u8, fresh: u8| filled(&mut Generator::new([seed; 32]), fresh);
        assert_eq!(first(1, 2), first(1, 2), "nothing else does");
        assert_ne!(first(1, 2), first(2, 2), "the key");
        assert_ne!(first(1, 2), first(1, 3), "what is fresh");
    }

    /// The generator's memory reveals nothing about earlier output.
    #[test]
    fn the_key_of_what_was_given_is_gone() {
        let mut generator = Generator::new([7; 32]);
        let given = filled(&mut generator, 1);
        let mut again = [0; 64];
        ChaCha20Rng::from_seed(generator.0.get_seed()).fill_bytes(&mut again);
        assert_ne!(
            again, given,
            "S2: the key that is left gives the same again"
        );
    }

    #[test]
    fn nothing_comes_twice() {
        let mut generator = Generator::new([7; 32]);
        let mut pieces = [[0; 64]; 200];
        for piece in &mut pieces {
            *piece = filled(&mut generator, 0);
        }
        pieces.sort_unstable();
        assert!(pieces.windows(2).all(|pair| pair[0] != pair[1]));
        let ones: u32 = pieces.iter().flatten().map(|byte| byte.count_ones()).sum();
        // 51,200 are expected of 102,400 bits; ten standard deviations are 1,600.
        assert!((49_600..52_800).contains(&ones), "{ones}");
    }

    /// The output of a generator with this seed after these pieces.
    fn after(seed: u8, pieces: &[[u8; PIECE]]) -> [u8; 64] {
        let mut generator = Generator::new([seed; 32]);
        for piece in pieces {
            generator.mix(&Piece::new(*piece));
        }
        filled(&mut generator, 0)
    }

    /// Each byte of a piece matters, and so do the key from before and the order: a piece is mixed in, and replaces
    /// nothing.
    #[test]
    fn a_piece_is_mixed_with_the_key_from_before() {
        let piece = chance(1);
        let with = after(7, &[piece]);
        let other_key = after(8, &[piece]);
        assert_ne!(other_key, with, "S2: a device chooses the key");
        for at in 0..PIECE {
            let mut other = piece;
            other[at] ^= 1;
            assert_ne!(after(7, &[other]), with, "byte {at} does not matter");
        }
        assert_ne!(after(7, &[]), with, "nothing was mixed in");
        let (one, two) = (after(7, &[piece, chance(2)]), after(7, &[chance(2), piece]));
        assert_ne!(one, two);
        // Otherwise a device that knew the next output could cancel it out of the key.
        assert_ne!(after(7, &[[0; PIECE]]), after(7, &[]), "zeros");
    }

    #[test]
    fn what_is_no_chance_makes_no_secret() {
        let mut store = Store::new([7; 32], false);
        let before = store.generator.0.get_seed();
        assert_eq!(store.came(&[0; PIECE], 5), Came::Unsound);
        assert_eq!(store.state(), (false, 1), "S2: zeros are taken for secrets");
        assert_ne!(store.generator.0.get_seed(), before, "they do no harm");
        assert_eq!(store.came(&chance(3), 6), Came::Sound);
        assert_eq!(store.state(), (true, 2));
        assert_eq!(store.came(&chance(3), 7), Came::Unsound, "the same again");
        assert_eq!(store.state(), (true, 3), "a secret stays one");
        assert_eq!(Store::new([7; 32], true).state(), (true, 0));
    }

    #[test]
    fn the_device_is_asked_from_time_to_time() {
        let mut store = Store::new([7; 32], true);
        assert!(store.wants(0), "at once");
        assert_eq!(store.came(&[0; PIECE], 1), Came::Unsound);
        assert!(store.wants(2), "there was nothing yet");
        let then = 5;
        assert_eq!(store.came(&chance(1), then), Came::Sound);
        assert!(!store.wants(then) && !store.wants(then + OFTEN - 1));
        assert!(store.wants(then + OFTEN), "after some time");
        let mut bytes = [0; 4096];
        for _ in 1..BYTES / 4096 {
            store.fill([0; 32], &mut bytes);
        }
        assert!(!store.wants(then + OFTEN - 1));
        store.fill([0; 32], &mut bytes);
        assert!(store.wants(then + SELDOM), "when much was given");
        let at_once = store.wants(then + SELDOM - 1);
        assert!(!at_once, "S1: who asks for much keeps the device busy");
        assert!(!store.wants(0), "a clock that goes back");
    }
}
