//! What `transfer_client` and `transfer_server` both use.

/// Bytes of one transfer.
pub const TRANSFER: usize = 4 << 20;
/// Transfers that the client makes.
pub const ROUNDS: u64 = 12;
/// The server's name.
pub const NAME: &str = "test-transfer";

/// The word at this index in this round.
#[must_use]
pub const fn word(round: u64, index: u64) -> u64 {
    (index ^ round << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A checksum in which order counts.
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for chunk in bytes.chunks_exact(8) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word))
            .wrapping_mul(0x100_0000_01b3)
            .rotate_left(11);
    }
    sum
}
