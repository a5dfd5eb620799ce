//! The registers of the simulated machine, on which the kernel is tested on the host.
//!
//! They have other names, another number and another order than those of any processor that the
//! kernel runs on: code that works on both cannot depend on particular registers.

use crate::registers::{register_file, Lost, Roles};

register_file! {
    /// The registers that a simulated program sees, in the order in which messages carry them.
    status Status, g0 G0, g1 G1, g2 G2, g3 G3, g4 G4, g5 G5, local Local, g6 G6, g7 G7, g8 G8,
    link Link, g9 G9, g10 G10, counter Counter, g11 G11, g12 G12, top Top,
}

/// Bytes of the FPU area: a word of control, and 31 registers.
pub const FPU_BYTES: usize = 8 * 32;

/// The FPU area of a thread that has never used the FPU.
#[must_use]
pub const fn initial_fpu() -> [u8; FPU_BYTES] {
    let mut fpu = [0; FPU_BYTES];
    fpu[0] = 0x1f;
    fpu
}

/// Clears the upper half of the control word, which the layout reserves, and the bits of the lower half that are not in
/// `mask`.
pub fn clean_fpu(bytes: &mut [u8; FPU_BYTES], mask: u32) {
    for (i, part) in mask.to_le_bytes().into_iter().enumerate() {
        bytes[i] &= part;
    }
    bytes[4..8].fill(0);
}

/// The roles of the registers.
pub const ROLES: Roles<Register> = Roles {
    architecture: "simulated",
    // A number that ELF assigns to no machine.
    machine: 0xff17,
    call: Register::G7,
    parameters: [
        Register::G3,
        Register::G11,
        Register::G0,
        Register::G8,
        Register::G5,
        Register::G12,
        Register::G1,
        Register::G9,
        Register::G6,
        Register::G2,
        Register::G10,
        Register::G4,
    ],
    pc: Register::Counter,
    sp: Register::Top,
    flags: Register::Status,
    user_flags: 0x00ff_0f0f,
    fixed_flags: 0x1010,
    call_bytes: 4,
    lost: &[(Register::Link, Lost::Next)],
    bases: &[Register::Local],
};
