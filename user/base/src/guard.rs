//! Accesses that may fail, to memory that others can take away at any time. A guarded access names the address at which
//! its thread continues if the access fails, and the keeper of the space makes the thread continue there
//! ([ADR 0055](../../../docs/adr/0055-guarded-accesses.md)).
//!
//! A thread in a guarded access has [`MARK`] in one register, and the address to continue at in another. So a keeper
//! needs to know nothing of the program: it finds both in the registers of the exception, even if the thread was saved,
//! moved and restored meanwhile. A program with the mark outside of a guarded access, or with a wrong address, harms
//! only itself.
use crate::x86_64 as machine;
use abi::state::Registers;
use abi::{Call, Code, Exception, Type};

/// The memory to be accessed was not there; an access to several words or bytes was done up to the missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The register value that marks a thread in a guarded access: a number that occurs nowhere else.
pub const MARK: u64 = 0x9b1f_63c8_52e7_a40d;

/// The address to continue at is less than this many bytes behind the faulting instruction; a greater distance belongs
/// to a later exception. So a thread that cannot continue there, since that page is gone too, does not retry for ever.
const REACH: u64 = 128;

/// For the keeper of a space: the registers with which a thread continues after the exception `code` at `registers`.
/// `None` if the exception is not one of a guarded access.
#[must_use]
pub fn goes_on(code: u64, registers: &Registers) -> Option<Registers> {
    let of_access = [Exception::Memory, Exception::NoObject, Exception::WrongType];
    let is_access = of_access.iter().any(|one| code == *one as u64);
    let (mark, at) = machine::guard(registers);
    let is_guarded = mark == MARK && (1..REACH).contains(&at.wrapping_sub(machine::pc(registers)));
    (is_access && is_guarded).then(|| machine::at(registers, at))
}

/// The registers of a thread in a guarded access at `pc` that continues at `goes_on` if the access fails, as a keeper
/// receives them; for tests.
#[must_use]
pub fn in_access(pc: u64, goes_on: u64) -> Registers {
    machine::guarded(pc, MARK, goes_on)
}

/// Copies bytes. If a byte is missing, those before it stay copied.
///
/// # Errors
/// If a byte of the source or the destination is not there.
///
/// # Safety
/// The destination is `length` bytes that the caller owns, or holds no Rust object; so is the source, which may be
/// unmapped.
#[inline]
pub unsafe fn copy(from: u64, to: u64, length: usize) -> Result<(), Gone> {
    // SAFETY: by the caller.
    unsafe { machine::guarded_copy(from, to, length) }
        .then_some(())
        .ok_or(Gone)
}

/// Whether `words` words are zero, from the address `at` on, a multiple of eight.
///
/// # Errors
/// If a word is not there and all words before it are zero.
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

/// Replaces the word at an address, a multiple of four, by `new` if it is `old`, in one step. Returns the previous
/// word.
///
/// # Errors
/// If it is not there.
///
/// # Safety
/// The only Rust object that may lie there is one that the caller owns.
#[inline]
pub unsafe fn exchange(at: u64, old: u32, new: u32) -> Result<u32, Gone> {
    // SAFETY: by the caller.
    unsafe { machine::guarded_exchange(at, old, new) }.ok_or(Gone)
}

/// Creates an object of this type at an address, and returns the call's result.
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

    /// Memory that is there is copied, read and replaced as without a guard.
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

    /// A keeper makes only threads in a guarded access continue.
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
