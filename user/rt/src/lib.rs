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
//! All state of a program is in its own memory, so that a checkpoint of the memory and of its kernel objects is
//! complete.
#![no_std]

extern crate alloc;

pub mod checkpoint;
pub mod console;
pub mod fs;
pub mod heap;
pub mod io;
pub mod large;
pub mod log;
pub mod memory;
pub mod names;
pub mod net;
pub mod panic;
pub mod process;
pub mod random;
mod room;
mod session;
mod spare;
pub mod start;
pub mod system;
pub mod thread;
pub mod time;
pub mod window;
mod x86_64;

pub use abi;
pub use abi::{access, Code};
pub use base::{error_of, gate, guard, obj, slots, sync, sys};
pub use proto;
pub use proto::Error;
pub use start::start;
pub use x86_64::sum;

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

/// The symbols that every program needs: `_start` (which relocates the program and calls `fermata_main`), the memory
/// functions, the panic handler, the allocator. For programs that do not start in the usual way; others use [`entry!`].
#[macro_export]
macro_rules! program {
    () => {
        $crate::start_of_program!();

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

        /// Distinguishes a native program from one for Linux.
        #[used]
        #[link_section = ".note.fermata"]
        static FERMATA_NOTE: $crate::start::Note = $crate::start::NOTE;

        #[global_allocator]
        static FERMATA_HEAP: $crate::heap::Heap = $crate::heap::Heap;
    };
}
