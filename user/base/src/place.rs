//! Where a program is: at 0, or collocated, at a place of its own. The same file runs at both.

/// Where the memory of this program begins: 0, or the first address of its place if it is collocated
/// ([`abi::collocated`]).
#[must_use]
#[inline(always)]
pub fn start() -> u64 {
    // The whole program is in the lowest 4 GiB of its memory, and a place is larger than that.
    static HERE: u8 = 0;
    match cfg!(target_os = "none") {
        true => &raw const HERE as u64 & !(abi::collocated::SIZE - 1),
        false => 0,
    }
}

/// The address in this program of an offset of [`proto::layout`].
#[must_use]
#[inline(always)]
pub fn at(offset: u64) -> u64 {
    start() + offset
}
