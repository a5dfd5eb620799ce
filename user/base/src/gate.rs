//! The call gate: the one way from a program into the kernel.
//!
//! Every kernel call of a program is a site made by [`gate!`](crate::gate!), of the form that
//! [`abi::gate`] describes. The section of sites has an entry for each; the linker drops the entry
//! together with the function that the site stands in, and `rt::program!` adds the note that
//! says where the section is.
//!
//! Since the `call` of a redirected site pushes an address, a function with a site must not keep
//! anything in the red zone below its stack pointer. Inline assembly in Rust guarantees that unless
//! it is marked `nostack`.
use abi::Code;

/// The assembly text of one site: use it in `asm!` or `global_asm!` where `syscall` would stand.
///
/// The entry in the section of sites has to name a symbol in the section of its site, so that the
/// linker drops both together. A counter yields a fresh symbol for each copy of the text that the
/// compiler emits.
#[macro_export]
macro_rules! gate {
    () => {
        concat!(
            ".altmacro\n",
            ".ifndef .Lfermata_sites\n.set .Lfermata_sites, 0\n.endif\n",
            ".set .Lfermata_sites, .Lfermata_sites + 1\n",
            ".macro fermata_site number\n",
            ".Lfermata_site\\number:\n",
            // `abi::gate::SITE`.
            ".byte 0x2e, 0x2e, 0x2e\n",
            "syscall\n",
            ".pushsection fermata_sites, \"ao\", @progbits, .Lfermata_site\\number\n",
            ".long .Lfermata_site\\number - .\n",
            ".popsection\n",
            ".endm\n",
            "fermata_site %.Lfermata_sites\n",
            ".purgem fermata_site\n",
            ".noaltmacro\n",
        )
    };
}

/// What an ordinary call returns.
#[derive(Clone, Copy, Debug)]
pub struct Returned {
    /// The result.
    pub code: Code,
    /// The registers of the parameters after the call.
    pub p: [u64; 6],
}
