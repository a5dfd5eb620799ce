//! The parts of the runtime for x86-64: program start, the memory functions of compiled code, and checksums by the
//! processor's instructions.
mod mem;
pub mod sum;

/// Emits `_start`, which relocates the program and calls `fermata_main`, and the notes of a native program. Part of
/// [`crate::program!`].
#[macro_export]
#[doc(hidden)]
macro_rules! start_of_program {
    () => {
        core::arch::global_asm!(
            ".hidden _DYNAMIC",
            ".hidden __ehdr_start",
            ".globl _start",
            ".type _start,@function",
            "_start:",
            "xor ebp, ebp",
            "and rsp, -16",
            "lea rdi, [rip + __ehdr_start]",
            "lea rsi, [rip + _DYNAMIC]",
            // Relocate: walk the dynamic section for RELA (7) and RELASZ (8). The words there are relative to the load
            // address, which is the address of the ELF header. There are only R_X86_64_RELATIVE (8) entries in a static
            // program; others are ignored.
            "xor ecx, ecx",
            "xor edx, edx",
            "2:",
            "mov rax, [rsi]",
            "test rax, rax",
            "jz 5f",
            "cmp rax, 7",
            "jne 3f",
            "mov rdx, [rsi + 8]",
            "add rdx, rdi",
            "3:",
            "cmp rax, 8",
            "jne 4f",
            "mov rcx, [rsi + 8]",
            "4:",
            "add rsi, 16",
            "jmp 2b",
            "5:",
            "test rdx, rdx",
            "jz 8f",
            "add rcx, rdx",
            "6:",
            "cmp rdx, rcx",
            "jae 8f",
            "cmp dword ptr [rdx + 8], 8",
            "jne 7f",
            "mov rax, [rdx + 16]",
            "add rax, rdi",
            "mov r8, [rdx]",
            "mov [rdi + r8], rax",
            "7:",
            "add rdx, 24",
            "jmp 6b",
            "8:",
            "call fermata_main",
            "ud2",
            ".size _start, . - _start",
            // The note that distinguishes a native program from a Linux program.
            ".pushsection .note.fermata, \"a\", @note",
            ".p2align 2",
            ".long 8",
            ".long 0",
            ".long 1",
            ".asciz \"Fermata\"",
            // The note that says where the list of sites is (`abi::gate`).
            ".long 8",
            ".long 8",
            ".long 2",
            ".asciz \"Fermata\"",
            ".long __start_fermata_sites - .",
            ".long __stop_fermata_sites - .",
            ".popsection",
            ".hidden __start_fermata_sites",
            ".hidden __stop_fermata_sites",
        );
    };
}
