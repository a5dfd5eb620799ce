//! Checksums.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use crc::{Crc, Table, CRC_32_ISCSI};

/// For processors without the instruction.
static BY_TABLE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// The bit of SSE4.2 in `ecx` of leaf 1 of `cpuid`.
const SSE4_2: u32 = 1 << 20;

/// CRC-32C (iSCSI, Castagnoli), by the processor's instruction if it has one: an eighth of an instruction per byte, and
/// four without.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if __cpuid(1).ecx & SSE4_2 == 0 {
        return BY_TABLE.checksum(bytes);
    }
    let mut sum = u64::from(u32::MAX);
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        // SAFETY: it reads the 64 bytes of the block, and the processor has the instruction.
        unsafe {
            asm!(
                "crc32 {sum}, qword ptr [{at}]",
                "crc32 {sum}, qword ptr [{at} + 8]",
                "crc32 {sum}, qword ptr [{at} + 16]",
                "crc32 {sum}, qword ptr [{at} + 24]",
                "crc32 {sum}, qword ptr [{at} + 32]",
                "crc32 {sum}, qword ptr [{at} + 40]",
                "crc32 {sum}, qword ptr [{at} + 48]",
                "crc32 {sum}, qword ptr [{at} + 56]",
                sum = inout(reg) sum,
                at = in(reg) block.as_ptr(),
                options(pure, readonly, nostack)
            );
        }
    }
    let mut sum = sum as u32;
    for byte in rest {
        // SAFETY: it touches no memory, and the processor has the instruction.
        unsafe {
            asm!(
                "crc32 {sum:e}, {byte}",
                sum = inout(reg) sum,
                byte = in(reg_byte) *byte,
                options(pure, nomem, nostack)
            );
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::{crc32c, BY_TABLE};
    use alloc::vec::Vec;

    #[test]
    fn the_instruction_and_the_table_agree() {
        // The check value of the catalogue of parametrised CRC algorithms.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(BY_TABLE.checksum(b"123456789"), 0xe306_9283);
        let bytes: Vec<u8> = (0..1000u32).map(|n| ((n * n) >> 3) as u8).collect();
        for length in 0..bytes.len() {
            for begin in [0, 1, 7] {
                let part = &bytes[begin.min(length)..length];
                assert_eq!(crc32c(part), BY_TABLE.checksum(part), "{begin}..{length}");
            }
        }
    }
}
