//! The kernel as programs see it. This crate knows of no service: the crate `interface` uses it, the interfaces of the
//! services use `interface`, and the runtime (`rt`) uses those and re-exports all of this.
//!
//! * [`sys`]: one function per kernel call, through the one [`mod@gate`]; [`short`]: messages in registers;
//! * [`obj`]: kernel objects as owned types, in [`slots`];
//! * [`guard`]: accesses to memory that others can take away; [`place`]: where the program is; [`sync`], [`time`].
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

/// The error for a result code that the caller does not handle in a better way.
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
