//! The kernel as programs see it. Knows of no service: the crate `interface` stands on this, and on
//! that the interfaces of the services, and on those the runtime (`rt`), which offers all of this again.
//!
//! * [`sys`]: one function per kernel call, through the one [`mod@gate`]; [`short`]: messages in registers;
//! * [`obj`]: kernel objects as owned types, in [`slots`];
//! * [`guard`]: accesses to what others can take away; [`place`]: where the program is; [`sync`], [`time`].
#![no_std]

extern crate alloc;

pub mod gate;
pub mod guard;
pub mod obj;
pub mod place;
pub mod short;
pub mod slots;
pub mod sync;
pub mod sys;
pub mod time;
mod x86_64;

use abi::Code;
use proto::Error;

/// The error that stands for a result code which the caller cannot do better about.
#[must_use]
pub const fn error_of(code: Code) -> Error {
    match code {
        Code::NoMemory => Error::NoMemory,
        Code::InUse => Error::Exists,
        Code::Denied => Error::Denied,
        Code::Invalid | Code::TooLarge | Code::Truncated => Error::Invalid,
        Code::NotFound => Error::NotFound,
        Code::NoObject => Error::Ended,
        Code::WouldBlock | Code::TimedOut => Error::WouldBlock,
        _ => Error::Broken,
    }
}
