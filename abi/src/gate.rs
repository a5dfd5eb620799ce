//! The call gate: the only form of calls in a program's code, so that a loader can redirect them
//! without relinking the program.
//!
//! Each call is a *site* of [`SITE_SIZE`] bytes: the instruction that enters the kernel, behind
//! prefixes that the processor ignores. A process executes a site as it is, at the cost of that
//! instruction. A loader that places the program elsewhere replaces the site by a `call` to
//! an entry of its own ([`redirection`]), which finds and leaves the registers as the kernel does.
//! The bytes of a site are in the file of the architecture ([`crate::x86_64`]).
//!
//! A program carries a list of its sites in a section named [`SECTION`]: for each a signed 32-bit
//! number, the distance from the number to the site, so that the list is valid wherever the program
//! is placed. An ELF note of type [`NOTE`] says where the list is ([`list`]).

pub use crate::x86_64::{redirection, ENTER, PREFIXES, SITE, SITE_SIZE};

/// Name of the section with the list of sites.
pub const SECTION: &str = "fermata_sites";

/// Type of the note that says where the list is; its name is that of all notes of native programs.
pub const NOTE: u32 = 2;

/// Size of the note's content: two signed 32-bit numbers, the distances from each number to the
/// start and to the end of the list.
pub const NOTE_SIZE: usize = 8;

/// Start and end of the list of sites, from the content of a note at `address`. `None` if the
/// content is invalid.
#[must_use]
pub fn list(address: u64, content: &[u8]) -> Option<(u64, u64)> {
    let content: &[u8; NOTE_SIZE] = content.try_into().ok()?;
    let (start, end) = content.split_at(4);
    let start = relative(address, start)?;
    let end = relative(address.checked_add(4)?, end)?;
    (start <= end && (end - start).is_multiple_of(4)).then_some((start, end))
}

/// The addresses of the sites, from the list at `address`; `None` for a site that would lie outside
/// the address space.
pub fn sites(address: u64, list: &[u8]) -> impl Iterator<Item = Option<u64>> + '_ {
    let numbers = list.chunks_exact(4).zip(0..);
    numbers.map(move |(number, i)| relative(address.checked_add(i * 4)?, number))
}

fn relative(address: u64, distance: &[u8]) -> Option<u64> {
    let distance = i32::from_le_bytes(distance.try_into().ok()?);
    address.checked_add_signed(distance.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_relative_to_where_they_lie() {
        let note: [u8; 8] = [0xf0, 0xff, 0xff, 0xff, 0xf4, 0xff, 0xff, 0xff];
        assert_eq!(list(0x1000, &note), Some((0xff0, 0xff8)));
        assert_eq!(list(0x5000, &note), Some((0x4ff0, 0x4ff8)));
        let numbers: [u8; 8] = [16, 0, 0, 0, 0xfc, 0xff, 0xff, 0xff];
        assert!(sites(0xff0, &numbers).eq([Some(0x1000), Some(0xff0)]));
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        assert_eq!(list(0, &[0; 8]).map(|(start, end)| end - start), Some(4));
        assert_eq!(list(0, &[0xff; 8]), None);
        assert_eq!(list(u64::MAX, &[0; 8]), None);
        assert_eq!(list(0x1000, &[0; 7]), None);
        // The end before the start, and a length that is no multiple of four.
        assert_eq!(list(0x1000, &[8, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(list(0x1000, &[0, 0, 0, 0, 1, 0, 0, 0]), None);
        assert_eq!(sites(0, &[0xff; 4]).next(), Some(None));
    }

    #[test]
    fn a_redirection_is_a_call_that_reaches() {
        assert_eq!(redirection(0x1000, 0x1005), Some([0xe8, 0, 0, 0, 0]));
        assert_eq!(
            redirection(0x1000, 0x1000),
            Some([0xe8, 0xfb, 0xff, 0xff, 0xff])
        );
        assert_eq!(redirection(0x1000, 0x1_0000_0000), None);
        assert_eq!(redirection(0x1_0000_0000, 0x1000), None);
    }
}
