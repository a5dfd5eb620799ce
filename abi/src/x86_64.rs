//! The registers of x86-64 and their roles; and the bytes of a call's site ([`crate::gate`]).
//!
//! | role ([`crate::registers`]) | register |
//! |---|---|
//! | word of the call | `rax` |
//! | parameters 0 to 5: arguments | `rdi rsi rdx r10 r8 r9` |
//! | parameters 6 to 11 | `r12 r13 r14 r15 rbx rbp` |
//! | send area: address, bytes, list, entries, references | `rsi rdx r10 r8 r9` |
//! | receive area | `r12 r13 r14 r15 rbx` |
//! | words of a register message | `rsi rdx r10 r8 r9 r12 r13 r14` |
//! | references of a register message: sent, received | `r15`, `rbx` |
//! | deadline | `rbp` |
//! | lost to the `syscall` instruction | `rcx` (the address behind it), `r11` (the flags) |

use crate::registers::{register_file, Lost, Roles};

register_file! {
    /// The registers that a program sees, in the order in which messages carry them.
    rax Rax, rbx Rbx, rcx Rcx, rdx Rdx, rsi Rsi, rdi Rdi, rbp Rbp, rsp Rsp,
    r8 R8, r9 R9, r10 R10, r11 R11, r12 R12, r13 R13, r14 R14, r15 R15,
    rip Rip, rflags Rflags, fs_base FsBase, gs_base GsBase,
}

impl Registers {
    /// The registers as Linux shows them to debuggers and in core files (`struct user_regs_struct`). `call` is the
    /// value of `orig_rax`: the number of the thread's call. The selectors `cs` and `ss` are those of Linux, by which
    /// debuggers recognise a process of 64 bits; the others are zero.
    #[must_use]
    pub const fn linux_words(&self, call: u64) -> [u64; 27] {
        let r = self;
        [
            r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx,
            r.rdx, r.rsi, r.rdi, call, r.rip, 0x33, r.rflags, r.rsp, 0x2b, r.fs_base, r.gs_base, 0,
            0, 0, 0,
        ]
    }
}

/// Bytes of the FPU area: the layout of `fxsave64`, with x87 and SSE.
pub const FPU_BYTES: usize = 512;

/// The FPU area of a thread that has never used the FPU: masked exceptions, round to nearest.
#[must_use]
pub const fn initial_fpu() -> [u8; FPU_BYTES] {
    let mut fpu = [0; FPU_BYTES];
    fpu[0] = 0x7f; // FCW = 0x037f
    fpu[1] = 0x03;
    fpu[24] = 0x80; // MXCSR = 0x1f80
    fpu[25] = 0x1f;
    fpu
}

/// Clears the bytes that the layout reserves and the bits that the processor would refuse to load. `mask` has the bits
/// of MXCSR that the processor has; it is written into the field where `fxsave64` writes it.
pub fn clean_fpu(bytes: &mut [u8; FPU_BYTES], mask: u32) {
    for (i, part) in mask.to_le_bytes().into_iter().enumerate() {
        bytes[24 + i] &= part;
        bytes[28 + i] = part;
    }
    bytes[5] = 0;
    for register in 0..8 {
        bytes[32 + 16 * register + 10..32 + 16 * register + 16].fill(0);
    }
    bytes[416..].fill(0);
}

/// The roles of the registers.
pub const ROLES: Roles<Register> = Roles {
    architecture: "x86-64",
    machine: 62,
    call: Register::Rax,
    parameters: [
        Register::Rdi,
        Register::Rsi,
        Register::Rdx,
        Register::R10,
        Register::R8,
        Register::R9,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
        Register::Rbx,
        Register::Rbp,
    ],
    pc: Register::Rip,
    sp: Register::Rsp,
    flags: Register::Rflags,
    // CF PF AF ZF SF TF DF OF NT RF AC ID
    user_flags: 0x25_4dd5,
    // IF, and bit 1
    fixed_flags: 0x202,
    // `syscall`
    call_bytes: 2,
    lost: &[(Register::Rcx, Lost::Next), (Register::R11, Lost::Flags)],
    bases: &[Register::FsBase, Register::GsBase],
};

/// The instruction that enters the kernel.
pub const ENTER: [u8; 2] = [0x0f, 0x05];

/// Prefixes of a site. A thread in a call has its `rip` behind them, at [`ENTER`].
pub const PREFIXES: usize = 3;

/// Size of a site, in bytes: that of a `call` to a relative address.
pub const SITE_SIZE: usize = PREFIXES + ENTER.len();

/// A site: three CS prefixes and `syscall`. The processor ignores the prefixes.
pub const SITE: [u8; SITE_SIZE] = [0x2e, 0x2e, 0x2e, ENTER[0], ENTER[1]];

/// The bytes that a loader writes in place of the site at the address `site`, so that its calls go to
/// the address `entry`; `None` if `entry` is too far away. The code at `entry` finds the registers as
/// the kernel would, and a return address on the stack. It must return with the registers as the
/// kernel leaves them: all unchanged but the results, `rcx` and `r11`.
#[must_use]
pub fn redirection(site: u64, entry: u64) -> Option<[u8; SITE_SIZE]> {
    let distance = entry.wrapping_sub(site.wrapping_add(SITE_SIZE as u64)) as i64;
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe8, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::{clean_fpu, FPU_BYTES};

    #[test]
    fn what_the_layout_of_the_fpu_reserves_is_cleared() {
        let mut fpu = [0xff; FPU_BYTES];
        clean_fpu(&mut fpu, 0xffff);
        assert_eq!(fpu[24..32], [0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0]);
        let seen = (fpu[32], fpu[42], fpu[160], fpu[415], fpu[416], fpu[5]);
        assert_eq!(seen, (255, 0, 255, 255, 0, 0));
        let again = fpu;
        clean_fpu(&mut fpu, 0xffff);
        assert_eq!(fpu, again);
    }
}
