//! Accesses that may fail, to memory that others can take away at any time: a guarded access says where its thread goes on
//! if it is bad, and the keeper of its space has it go on there ([ADR 0055](../../../docs/adr/0055-guarded-accesses.md)).
//!
//! A thread that is in a guarded access has [`MARK`] in one register, and the address to go on at in another. So a keeper
//! needs to know nothing of the program: the exception's registers say it, whatever was saved, moved and restored meanwhile.
//! A program that says it of an access that is not guarded, or with a wrong address, only goes wrong itself.
use crate::x86_64 as machine;
use abi::state::Registers;
use abi::{Call, Code, Exception, Type};

/// What was to be accessed is not there, as far as it was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// What stands in the register of a thread that is in a guarded access: a number that nothing else is.
pub const MARK: u64 = 0x9b1f_63c8_52e7_a40d;

/// Where it goes on is less than so many bytes behind the access: what comes later is another one. So who cannot go on there, since that is
/// gone as well, does not try for ever.
const REACH: u64 = 128;

/// For the keeper of a space: the registers with which a thread goes on that has met this exception with these, if its access was
/// guarded.
#[must_use]
pub fn goes_on(code: u64, registers: &Registers) -> Option<Registers> {
    let of_access = [Exception::Memory, Exception::NoObject, Exception::WrongType];
    let is_access = of_access.iter().any(|one| code == *one as u64);
    let (mark, at) = machine::guard(registers);
    let is_guarded = mark == MARK && (1..REACH).contains(&at.wrapping_sub(machine::pc(registers)));
    (is_access && is_guarded).then(|| machine::at(registers, at))
}

/// The registers of a thread that is at this instruction in a guarded access, and goes on there: what a keeper is told, for who tries one.
#[must_use]
pub fn in_access(pc: u64, goes_on: u64) -> Registers {
    machine::guarded(pc, MARK, goes_on)
}

/// Copies bytes. What was copied before one is gone stays copied.
///
/// # Errors
/// If one of the two is not there.
///
/// # Safety
/// No Rust object lies in what is written but `length` bytes that the caller owns, and what is read is such bytes, or in
/// nobody's hands: mapped, or not.
#[inline]
pub unsafe fn copy(from: u64, to: u64, length: usize) -> Result<(), Gone> {
    // SAFETY: by the caller.
    unsafe { machine::guarded_copy(from, to, length) }
        .then_some(())
        .ok_or(Gone)
}

/// Whether so many words from an address on, a multiple of eight, are zero.
///
/// # Errors
/// If one is not there, unless one before it is not zero.
#[inline]
pub fn are_zero(at: u64, words: usize) -> Result<bool, Gone> {
    machine::guarded_zero(at, words).ok_or(Gone)
}

/// The word at an address, a multiple of eight, in one step.
///
/// # Errors
/// If it is not there.
#[inline]
pub fn word(at: u64) -> Result<u64, Gone> {
    machine::guarded_word(at).ok_or(Gone)
}

/// Replaces the word at an address, a multiple of four, by `new` if it is `old`, in one step: what stood there.
///
/// # Errors
/// If it is not there.
///
/// # Safety
/// No Rust object lies there but one that the caller owns.
#[inline]
pub unsafe fn exchange(at: u64, old: u32, new: u32) -> Result<u32, Gone> {
    // SAFETY: by the caller.
    unsafe { machine::guarded_exchange(at, old, new) }.ok_or(Gone)
}

/// Creates an object of this type at an address: the call's result.
///
/// # Errors
/// If there is no memory for objects.
pub fn create(kind: Type, handle: u64) -> Result<Code, Gone> {
    let call = match kind {
        Type::Mutex => Call::MutexCreate,
        Type::Cond => Call::CondCreate,
        Type::Mapping => Call::MappingCreate,
        Type::Region => Call::RegionCreate,
        Type::Port => Call::PortCreate,
        Type::Portset => Call::PortsetCreate,
        Type::Space => Call::SpaceCreate,
        Type::Thread => Call::ThreadCreate,
        Type::Reference => Call::ReferenceCreate,
    };
    machine::guarded_create(call, handle).ok_or(Gone)
}

#[cfg(test)]
mod tests {
    use super::{are_zero, copy, exchange, goes_on, word, MARK};
    use crate::x86_64 as machine;
    use abi::state::Registers;
    use abi::Exception;

    /// What is there is copied, looked at and replaced as without a guard.
    #[test]
    fn what_is_there_is_reached() {
        let from: [u8; 300] = core::array::from_fn(|n| n as u8 ^ 0x5a);
        for length in [0, 1, 7, 8, 9, 16, 255, 300] {
            let mut to = [0u8; 301];
            // SAFETY: both are ours.
            let copied = unsafe { copy(from.as_ptr() as u64, to.as_mut_ptr() as u64, length) };
            assert_eq!(copied, Ok(()), "a guarded copy of {length} bytes");
            assert!(
                to[..length] == from[..length] && to[length..].iter().all(|byte| *byte == 0),
                "a guarded copy of {length} bytes is of these and no others"
            );
        }
        for (words, place) in [(0, 0), (1, 0), (24, 0), (24, 13), (24, 23)] {
            let mut zeros = [0u64; 24];
            assert_eq!(
                are_zero(zeros.as_ptr() as u64, words),
                Ok(true),
                "{words} words of zeros"
            );
            zeros[place] = 1 << 63;
            assert_eq!(
                are_zero(zeros.as_ptr() as u64, words),
                Ok(words <= place),
                "a bit in word {place} of {words}"
            );
        }
        assert_eq!(
            word(&raw const from as u64),
            Ok(u64::from_le_bytes([90, 91, 88, 89, 94, 95, 92, 93])),
            "a word"
        );
        let mut word = 5u32;
        let at = &raw mut word as u64;
        // SAFETY: it is ours.
        let found = unsafe { [exchange(at, 4, 6), exchange(at, 5, 7)] };
        assert_eq!(found, [Ok(5), Ok(5)], "what stood there");
        assert_eq!(word, 7, "a word is replaced if it is the old one");
    }

    /// A keeper has nobody go on but who asked for it.
    #[test]
    fn who_is_guarded_goes_on() {
        let guarded = machine::guarded(0x1200, MARK, 0x1234);
        let at =
            |code, registers: &Registers| goes_on(code, registers).map(|after| machine::pc(&after));
        for code in [Exception::Memory, Exception::NoObject, Exception::WrongType] {
            let code = code as u64;
            assert_eq!(at(code, &guarded), Some(0x1234), "of a bad access {code}");
            let other = machine::guarded(0x1200, MARK + 1, 0x1234);
            assert_eq!(at(code, &other), None, "of one that is not guarded");
            for pc in [0x1234, 0x1235, 0x1234 - 128, 0, u64::MAX] {
                let elsewhere = machine::guarded(pc, MARK, 0x1234);
                let rule = "where it goes on is just behind it";
                assert_eq!(at(code, &elsewhere), None, "{rule}: {pc:#x}");
            }
        }
        for code in [
            Exception::Divide,
            Exception::Breakpoint,
            Exception::ForeignCall,
        ] {
            assert_eq!(at(code as u64, &guarded), None, "of no access");
        }
    }
}
