//! The runtime of Fermata's user programs.
//!
//! A program is a `no_std` static position-independent executable that says `rt::entry!(main);`
//! with `fn main() -> u8`. It then has a heap, its start information ([`start()`]), the console or
//! files as standard streams ([`println!`]), and:
//!
//! * [`sys`]: one function per kernel call, through the one [`mod@gate`] (these and the next are the crate `base`);
//! * [`obj`]: kernel objects as owned types, [`obj::Ref`] above all;
//! * [`names`], [`memory`], [`fs`], [`console`], [`process`], [`net`], [`random`]: thin clients of the services;
//! * [`thread`], [`sync`], [`time`], [`window`].
//!
//! Everything that a program keeps is in its own memory, so that a checkpoint of the memory and of
//! its kernel objects is all of it.
#![no_std]

extern crate alloc;

pub mod checkpoint;
pub mod console;
pub mod fs;
pub mod heap;
pub mod io;
pub mod large;
pub mod mem;
pub mod memory;
pub mod names;
pub mod net;
pub mod panic;
pub mod process;
pub mod random;
mod room;
mod session;
pub mod start;
pub mod system;
pub mod thread;
pub mod time;
pub mod window;

pub use abi;
pub use abi::{access, Code};
pub use base::{error_of, gate, obj, slots, sync, sys};
pub use proto;
pub use proto::Error;
pub use start::start;

/// Makes the program's start code, panic handler and allocator; `$main` is a `fn() -> u8` whose
/// result is the exit status.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        $crate::program!();

        #[no_mangle]
        extern "C" fn fermata_main() -> ! {
            $crate::start::begin();
            let main: fn() -> u8 = $main;
            $crate::process::exit(main())
        }
    };
}

/// What every program needs of symbols: `_start` (which relocates the program and calls
/// `fermata_main`), the memory functions, the panic handler, the allocator. For programs that do
/// not start in the usual way; others use [`entry!`].
#[macro_export]
macro_rules! program {
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
            // Relocate: walk the dynamic section for RELA (7) and RELASZ (8). The words there are
            // relative to the load address, which is the address of the ELF header. There are only
            // R_X86_64_RELATIVE (8) entries in a static program; others are left alone.
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
            // The note that tells a native program from a Linux program.
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

        $crate::mem_functions!("");

        #[panic_handler]
        fn fermata_panic(info: &core::panic::PanicInfo<'_>) -> ! {
            $crate::panic::panic(info)
        }

        // The compiled `alloc` refers to it, and nothing ever unwinds.
        #[no_mangle]
        extern "C" fn rust_eh_personality() {}

        // Likewise.
        #[no_mangle]
        extern "C" fn _Unwind_Resume() -> ! {
            $crate::process::exit(101)
        }

        /// Tells a native program from one for Linux.
        #[used]
        #[link_section = ".note.fermata"]
        static FERMATA_NOTE: $crate::start::Note = $crate::start::NOTE;

        #[global_allocator]
        static FERMATA_HEAP: $crate::heap::Heap = $crate::heap::Heap;
    };
}
