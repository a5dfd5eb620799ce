//! A generator of random bytes that tells nothing of those that it gave before.
#![no_std]
#![forbid(unsafe_code)]

use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// A key of the generator, and what goes into one.
pub type Seed = [u8; 32];

/// The generator.
#[derive(Debug)]
pub struct Generator(ChaCha20Rng);

impl Generator {
    /// Whoever does not know the seed cannot tell what it gives from chance.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Generator(ChaCha20Rng::from_seed(seed))
    }

    /// Fills `into`. The key that this came from is gone then; `fresh` goes into the next one, and does no harm if somebody knows it.
    pub fn fill(&mut self, fresh: Seed, into: &mut [u8]) {
        self.renew(fresh);
        self.0.fill_bytes(into);
        self.renew([0; 32]);
    }

    fn renew(&mut self, fresh: Seed) {
        let mut key = [0; 32];
        self.0.fill_bytes(&mut key);
        for (byte, fresh) in key.iter_mut().zip(fresh) {
            *byte ^= fresh;
        }
        self.0 = ChaCha20Rng::from_seed(key);
    }
}

#[cfg(test)]
mod tests {
    use super::{ChaCha20Rng, Generator, RngCore, SeedableRng};

    fn filled(generator: &mut Generator, fresh: u8) -> [u8; 64] {
        let mut bytes = [0; 64];
        generator.fill([fresh; 32], &mut bytes);
        bytes
    }

    #[test]
    fn all_that_goes_in_matters() {
        let first = |seed: u8, fresh: u8| filled(&mut Generator::new([seed; 32]), fresh);
        assert_eq!(first(1, 2), first(1, 2), "nothing else does");
        assert_ne!(first(1, 2), first(2, 2), "the key");
        assert_ne!(first(1, 2), first(1, 3), "what is fresh");
    }

    /// Whoever reads the generator's memory learns nothing of what it has given.
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
}
