//! The words that drivers of the tests write to memory, by which a test outside the machine recognizes that memory.

/// Words of a transfer: a page without one word, because QEMU's device stops the machine when a transfer fills its
/// buffer to the end.
pub const WORDS: u64 = 511;

/// A word of the page that belongs to a seed. Only drivers' pages contain it: a search through all memory from
/// outside finds just those.
#[must_use]
pub fn word(seed: u64, index: u64) -> u64 {
    let mut word = (seed << 9 | index)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 29
}
