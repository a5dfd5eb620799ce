//! The call of a kernel with the probe; see [`abi::probe`].

use super::{authority, Args};
use crate::{probe, Handled, Stop};
use abi::probe::{ARM, CENSUS, FORGET, FRESH, GENERAL_PATH, RAISE, READ, SET, SITE};
use abi::Code;

pub(super) fn control(a: Args) -> Handled {
    authority(a)?;
    let (operation, argument, more) = (a.b(), a.c(), a.d());
    match operation {
        ARM => probe::arm(argument, more),
        READ => {
            tell(a, probe::read());
        }
        SITE => {
            tell(a, probe::passed(argument));
        }
        FRESH => probe::fresh(),
        SET => probe::set(argument, more & GENERAL_PATH != 0),
        FORGET => probe::forget(),
        RAISE => crate::irq::device(a.k, argument as u8),
        CENSUS => {
            tell(a, a.k.census().map(|count| count as u64));
        }
        _ => return Err(Stop::Code(Code::Invalid)),
    }
    a.done()
}

/// Returns words in the parameters of the frame, from the first one on.
fn tell<const N: usize>(a: Args, words: [u64; N]) {
    for (n, word) in words.into_iter().enumerate() {
        a.t.ctx.parameter(n).set(word);
    }
}
