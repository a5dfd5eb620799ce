//! The memory functions that compiled code calls: `memcpy`, `memmove`, `memset`, `memcmp`, `bcmp`,
//! `strlen`.
//!
//! They are assembly, since a loop in Rust would be recognised and compiled into a call of itself. They use no FPU
//! register: once a thread uses one, the kernel switches FPU registers at each of its calls of a server and back. Long
//! ranges use a string instruction of eight bytes, each repetition of which counts as an instruction in deterministic
//! runs. The symbols are made by [`crate::program!`], so that programs which have a C library (host tests) do not get
//! them.

/// Emits the memory functions, their names beginning with the prefix. Part of [`crate::program!`].
#[macro_export]
#[doc(hidden)]
macro_rules! mem_functions {
    ($prefix:literal) => {
        core::arch::global_asm!(
            // Forward copy; returns the destination in rax.
            concat!(".globl ", $prefix, "memcpy"),
            concat!(".type ", $prefix, "memcpy,@function"),
            concat!($prefix, "memcpy:"),
            "mov rax, rdi",
            "cmp rdx, 16",
            "jb 20f",
            // The last 16 bytes are read first, since source and destination may overlap.
            "mov r10, [rsi + rdx - 16]",
            "mov r11, [rsi + rdx - 8]",
            "lea r9, [rdi + rdx - 16]",
            "cmp rdx, 256",
            "jae 14f",
            "12:",
            "mov rcx, [rsi]",
            "mov r8, [rsi + 8]",
            "mov [rdi], rcx",
            "mov [rdi + 8], r8",
            "add rsi, 16",
            "add rdi, 16",
            "cmp rdi, r9",
            "jb 12b",
            "mov [r9], r10",
            "mov [r9 + 8], r11",
            "ret",
            "14:",
            "mov rcx, rdx",
            "shr rcx, 3",
            "rep movsq",
            "mov [r9], r10",
            "mov [r9 + 8], r11",
            "ret",
            // Fewer than 16 bytes.
            "20:",
            "cmp rdx, 8",
            "jb 22f",
            "mov rcx, [rsi]",
            "mov r8, [rsi + rdx - 8]",
            "mov [rdi], rcx",
            "mov [rdi + rdx - 8], r8",
            "ret",
            "22:",
            "cmp rdx, 4",
            "jb 24f",
            "mov ecx, [rsi]",
            "mov r8d, [rsi + rdx - 4]",
            "mov [rdi], ecx",
            "mov [rdi + rdx - 4], r8d",
            "ret",
            "24:",
            "test rdx, rdx",
            "jz 26f",
            "movzx ecx, byte ptr [rsi]",
            "mov [rdi], cl",
            "inc rsi",
            "inc rdi",
            "dec rdx",
            "jmp 24b",
            "26:",
            "ret",
            concat!(".size ", $prefix, "memcpy, . - ", $prefix, "memcpy"),
            // A destination below the source, or not overlapping, is copied forward: memcpy reads the end of the
            // source before it writes, and does all loads of a step before its stores.
            concat!(".globl ", $prefix, "memmove"),
            concat!(".type ", $prefix, "memmove,@function"),
            concat!($prefix, "memmove:"),
            "mov rax, rdi",
            "mov rcx, rdi",
            "sub rcx, rsi",
            "cmp rcx, rdx",
            concat!("jae ", $prefix, "memcpy"),
            "test rcx, rcx",
            "jz 39f",
            // Backward, 32 bytes at a time.
            "31:",
            "cmp rdx, 32",
            "jb 32f",
            "mov rcx, [rsi + rdx - 8]",
            "mov r8, [rsi + rdx - 16]",
            "mov r9, [rsi + rdx - 24]",
            "mov r10, [rsi + rdx - 32]",
            "mov [rdi + rdx - 8], rcx",
            "mov [rdi + rdx - 16], r8",
            "mov [rdi + rdx - 24], r9",
            "mov [rdi + rdx - 32], r10",
            "sub rdx, 32",
            "jmp 31b",
            "32:",
            "cmp rdx, 8",
            "jb 34f",
            "mov rcx, [rsi + rdx - 8]",
            "mov [rdi + rdx - 8], rcx",
            "sub rdx, 8",
            "jmp 32b",
            "34:",
            "test rdx, rdx",
            "jz 39f",
            "movzx ecx, byte ptr [rsi + rdx - 1]",
            "mov [rdi + rdx - 1], cl",
            "dec rdx",
            "jmp 34b",
            "39:",
            "ret",
            concat!(".size ", $prefix, "memmove, . - ", $prefix, "memmove"),
            concat!(".globl ", $prefix, "memset"),
            concat!(".type ", $prefix, "memset,@function"),
            concat!($prefix, "memset:"),
            "mov rax, rdi",
            "movzx ecx, sil",
            "mov r8, 0x0101010101010101",
            "imul rcx, r8",
            "cmp rdx, 16",
            "jb 46f",
            // The last 16 bytes, then the others.
            "lea r9, [rdi + rdx - 16]",
            "mov [r9], rcx",
            "mov [r9 + 8], rcx",
            "cmp rdx, 256",
            "jae 44f",
            "42:",
            "mov [rdi], rcx",
            "mov [rdi + 8], rcx",
            "add rdi, 16",
            "cmp rdi, r9",
            "jb 42b",
            "ret",
            "44:",
            "mov r8, rax",
            "mov rax, rcx",
            "mov rcx, rdx",
            "shr rcx, 3",
            "rep stosq",
            "mov rax, r8",
            "ret",
            // Fewer than 16 bytes.
            "46:",
            "cmp rdx, 8",
            "jb 47f",
            "mov [rdi], rcx",
            "add rdi, 8",
            "sub rdx, 8",
            "47:",
            "test rdx, rdx",
            "jz 49f",
            "mov [rdi], cl",
            "inc rdi",
            "dec rdx",
            "jmp 47b",
            "49:",
            "ret",
            concat!(".size ", $prefix, "memset, . - ", $prefix, "memset"),
            concat!(".globl ", $prefix, "memcmp"),
            concat!(".type ", $prefix, "memcmp,@function"),
            concat!(".globl ", $prefix, "bcmp"),
            concat!(".type ", $prefix, "bcmp,@function"),
            concat!($prefix, "memcmp:"),
            concat!($prefix, "bcmp:"),
            "52:",
            "cmp rdx, 8",
            "jb 54f",
            "mov rax, [rdi]",
            "mov rcx, [rsi]",
            "cmp rax, rcx",
            "jne 56f",
            "add rdi, 8",
            "add rsi, 8",
            "sub rdx, 8",
            "jmp 52b",
            "54:",
            "test rdx, rdx",
            "jz 58f",
            "movzx eax, byte ptr [rdi]",
            "movzx ecx, byte ptr [rsi]",
            "sub eax, ecx",
            "jne 59f",
            "inc rdi",
            "inc rsi",
            "dec rdx",
            "jmp 54b",
            // The first byte that differs decides: compare as big-endian numbers.
            "56:",
            "bswap rax",
            "bswap rcx",
            "cmp rax, rcx",
            "mov eax, 1",
            "mov ecx, -1",
            "cmovb eax, ecx",
            "ret",
            "58:",
            "xor eax, eax",
            "59:",
            "ret",
            concat!(".size ", $prefix, "memcmp, . - ", $prefix, "memcmp"),
            concat!(".globl ", $prefix, "strlen"),
            concat!(".type ", $prefix, "strlen,@function"),
            concat!($prefix, "strlen:"),
            "xor eax, eax",
            "62:",
            "cmp byte ptr [rdi + rax], 0",
            "je 64f",
            "inc rax",
            "jmp 62b",
            "64:",
            "ret",
            concat!(".size ", $prefix, "strlen, . - ", $prefix, "strlen"),
        );
    };
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    crate::mem_functions!("fermata_test_");

    extern "C" {
        fn fermata_test_memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8;
        fn fermata_test_memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8;
        fn fermata_test_memset(to: *mut u8, byte: i32, n: usize) -> *mut u8;
        fn fermata_test_memcmp(a: *const u8, b: *const u8, n: usize) -> i32;
        fn fermata_test_bcmp(a: *const u8, b: *const u8, n: usize) -> i32;
        fn fermata_test_strlen(text: *const u8) -> usize;
    }

    fn bytes() -> Vec<u8> {
        (0..1300u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect()
    }

    #[test]
    fn copies_of_every_length() {
        for n in 0..600 {
            for (to, from) in [(600, 1), (601, 0), (0, 600), (3, 599)] {
                let mut ours = bytes();
                let mut theirs = bytes();
                theirs.copy_within(from..from + n, to);
                // SAFETY: both ranges lie in the vector and do not overlap.
                let at = unsafe {
                    let base = ours.as_mut_ptr();
                    fermata_test_memcpy(base.add(to), base.add(from), n).offset_from(base)
                };
                assert_eq!(at as usize, to);
                assert_eq!(ours, theirs, "{n} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn moves_with_every_overlap() {
        for n in [
            0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 100, 127, 128, 129, 300, 500,
        ] {
            for distance in [0, 1, 2, 7, 8, 15, 16, 17, 40, 127, 128, 130, 499] {
                for (to, from) in [(300, 300 + distance), (300 + distance, 300)] {
                    let mut ours = bytes();
                    let mut theirs = bytes();
                    theirs.copy_within(from..from + n, to);
                    // SAFETY: both ranges lie in the vector.
                    unsafe {
                        let base = ours.as_mut_ptr();
                        fermata_test_memmove(base.add(to), base.add(from), n);
                    }
                    assert_eq!(ours, theirs, "{n} bytes from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn fills_of_every_length() {
        for n in 0..600 {
            let mut ours = bytes();
            let mut theirs = bytes();
            theirs[5..5 + n].fill(0xa7);
            // SAFETY: the range lies in the vector.
            unsafe { fermata_test_memset(ours.as_mut_ptr().add(5), 0x1a7, n) };
            assert_eq!(ours, theirs, "{n} bytes");
        }
    }

    #[test]
    fn comparisons() {
        let a = bytes();
        for n in 0..70 {
            for differs in 0..n {
                for change in [1, 0x80, 0xff] {
                    let mut b = a.clone();
                    b[differs] ^= change;
                    // SAFETY: both ranges lie in their vectors.
                    let (order, equal) = unsafe {
                        (
                            fermata_test_memcmp(a.as_ptr(), b.as_ptr(), n),
                            fermata_test_bcmp(a.as_ptr(), b.as_ptr(), n),
                        )
                    };
                    assert_eq!(order.cmp(&0), a[..n].cmp(&b[..n]));
                    assert_ne!(equal, 0);
                }
            }
            // SAFETY: as above.
            let same = unsafe { fermata_test_memcmp(a.as_ptr(), a.clone().as_ptr(), n) };
            assert_eq!(same, 0);
        }
        // SAFETY: the text ends with a zero byte.
        let length = unsafe { fermata_test_strlen(c"fermata".as_ptr().cast()) };
        assert_eq!(length, 7);
    }
}
