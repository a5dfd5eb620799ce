//! The call of a kernel with the probe; see [`abi::probe`].

use super::{authority, Args};
use crate::{probe, Handled, Stop};
use abi::probe::{ARM, CENSUS, FORGET, FRESH, GENERAL_WAY, RAISE, READ, SET, SITE};
use abi::Code;

pub(super) fn control(a: Args) -> Handled {
    authority(a)?;
    let (operation, argument, more) = (a.b(), a.c(), a.d());
    let c = &a.t.ctx;
    match operation {
        ARM => probe::arm(argument, more),
        READ => {
            let registers = [&c.rdi, &c.rsi, &c.rdx, &c.r10, &c.r8, &c.r9, &c.r12];
            for (register, word) in registers.into_iter().zip(probe::read()) {
                register.set(word);
            }
        }
        SITE => {
            for (register, word) in [&c.rdi, &c.rsi].into_iter().zip(probe::passed(argument)) {
                register.set(word);
            }
        }
        FRESH => probe::fresh(),
        SET => probe::set(argument, more & GENERAL_WAY != 0),
        FORGET => probe::forget(),
        RAISE => crate::irq::device(a.k, argument as u8),
        CENSUS => {
            let registers = [
                &c.rdi, &c.rsi, &c.rdx, &c.r10, &c.r8, &c.r9, &c.r12, &c.r13, &c.r14,
            ];
            for (register, count) in registers.into_iter().zip(a.k.census()) {
                register.set(count as u64);
            }
        }
        _ => return Err(Stop::Code(Code::Invalid)),
    }
    a.done()
}
