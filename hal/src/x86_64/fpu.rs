//! FPU registers. While a thread runs they hold its own values or the initial ones, never another thread's.
//!
//! A thread that has not used the FPU since its state was made or set runs with CR0.TS set, and with initial
//! values in the registers. Its first use traps, and [`use_fpu`] loads its state. From then on it is a *user*
//! of the FPU: its registers are stored whenever the processor switches away from it, and loaded whenever the
//! processor switches back. So even a processor that speculates past CR0.TS finds no values of another thread.
//! The exit code switches the registers if the next thread or the one before it is a user, and otherwise does
//! not touch the FPU. The kernel itself never uses it.
//!
//! While CR0.TS is clear, and only then, there is an *owner*: the context whose registers are in the processor and
//! whose copy in memory is stale. The owner is the context that ran last (`Cpu::current`). Meanwhile
//! [`Cpu::plain`](super::cpu::Cpu) has the bit [`LOADED`], so that it differs from the needs of any context and the
//! exit code cannot take the fast path to another context.

use super::cpu::{cpu, CPU};
use super::instructions::{clts, stts};
use super::Global;
use crate::context::needs::HAS_FPU;
use crate::Context;
use abi::state::{initial_fpu, FPU_BYTES};
use core::arch::{asm, naked_asm};
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;

/// The bits of MXCSR that can be set. All processors of a machine have the same bits.
static MXCSR_MASK: Global<Cell<u32>> = Global(Cell::new(0));

#[repr(align(16))]
struct Image(UnsafeCell<[u8; FPU_BYTES]>);
/// The registers of a thread that has not used the FPU.
static INITIAL: Global<Image> = Global(Image(UnsafeCell::new(initial_fpu())));

/// The bit that `Cpu::plain` has while there is an owner. The exit code relies on it being twice [`HAS_FPU`].
pub(super) const LOADED: u32 = 2 * HAS_FPU;

/// Asks the processor which bits of MXCSR it has, and loads initial registers.
pub(super) fn init() {
    clts();
    let scratch = Image(UnsafeCell::new([0; FPU_BYTES]));
    let scratch = scratch.0.get();
    // SAFETY: 512 bytes, aligned, used by no other code; the FPU does not trap.
    let mask = unsafe {
        asm!("fninit", "fxsave64 [{}]", in(reg) scratch, options(nostack));
        scratch.cast::<u32>().add(28 / 4).read()
    };
    MXCSR_MASK.0.set(if mask == 0 { 0xffbf } else { mask });
    load_initial();
}

/// The bits of MXCSR that can be set.
pub(crate) fn fpu_mask() -> u32 {
    MXCSR_MASK.0.get()
}

/// Loads the FPU's registers from the 512 bytes at this register. The FPU must not trap. Destroys no other
/// register.
///
/// On AMD processors `fxrstor` does not load the addresses of the last instruction and its operand, nor its
/// opcode, unless an exception is pending in what it loads; those of the previous owner would stay visible.
/// So the kernel first loads a constant, on all processors: the addresses are then the kernel's own. Pending
/// exceptions are cleared before that, so that this load raises none.
macro_rules! load_fpu {
    ($from:literal) => {
        concat!(
            "fnclex
            emms
            fild dword ptr [rip + {initial} + 28]
            fxrstor64 [",
            $from,
            "]"
        )
    };
}

/// Switches the FPU registers. The exit code calls it, with everything masked. `rax`: the next context, `ecx`: the
/// new value of `Cpu::plain`, `edx`: the bits in which it differs from the old value. Destroys only `rbx` and `rdi`.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn switch_fpu() {
    naked_asm!(
        "mov rbx, [rip + {cpu} + {owner}]",
        "test rbx, rbx",
        "jz 2f",
        "fxsave64 [rbx + {fpu}]",
        "test ecx, {loaded}",
        "jz 3f",
        "4:",
        "mov [rip + {cpu} + {owner}], rax",
        load_fpu!("rax + {fpu}"),
        "ret",
        // There was no owner.
        "2:",
        "clts",
        "jmp 4b",
        // The next context is no user of the FPU: initial registers, and no owner.
        "3:",
        "mov qword ptr [rip + {cpu} + {owner}], 0",
        "lea rbx, [rip + {initial}]",
        load_fpu!("rbx"),
        "mov rbx, cr0",
        "or rbx, 8",
        "mov cr0, rbx",
        "ret",
        cpu = sym CPU,
        owner = const offset_of!(super::cpu::Cpu, fpu_owner),
        fpu = const offset_of!(Context, fpu),
        loaded = const LOADED,
        initial = sym INITIAL,
    )
}

fn owns(context: &Context) -> bool {
    let owner = cpu().fpu_owner.get();
    owner.is_some_and(|owner| core::ptr::eq(owner, context))
}

/// Loads initial registers, and makes the next use of the FPU trap. The FPU must not trap when this is called.
fn load_initial() {
    // SAFETY: the image is 512 bytes, aligned, and one that `fxsave64` could have made.
    unsafe {
        asm!(load_fpu!("{from}"), initial = sym INITIAL, from = in(reg) INITIAL.0 .0.get(),
            options(nostack));
    }
    stts();
}

/// Makes the current context a user of the FPU: its first use has trapped.
pub(super) fn use_fpu(context: &'static Context) {
    clts();
    let plain = &cpu().plain;
    plain.set(plain.get() | LOADED);
    cpu().fpu_owner.set(Some(context));
    context.needs.has_fpu.set(1);
    // SAFETY: the area is 512 bytes, made of cells, and aligned as its thread is (`context_of`). Its
    // contents were stored by `fxsave64` or cleaned by `Context::set_fpu`, so that the processor takes
    // them.
    unsafe {
        asm!(load_fpu!("{from}"), initial = sym INITIAL, from = in(reg) context.fpu.as_ptr(),
            options(nostack));
    }
}

/// Stores the registers into the context's memory, if it is the owner.
pub(crate) fn fpu_flush(context: &Context) {
    if owns(context) {
        // SAFETY: as in `use_fpu`; while there is an owner the FPU does not trap.
        unsafe { asm!("fxsave64 [{}]", in(reg) context.fpu.as_ptr(), options(nostack)) };
    }
}

/// Makes the context no longer a user of the FPU and drops its loaded registers. Its next use of the FPU loads its
/// state from memory again.
pub(crate) fn fpu_drop(context: &Context) {
    context.needs.has_fpu.set(0);
    if owns(context) {
        cpu().fpu_owner.set(None);
        let plain = &cpu().plain;
        plain.set(plain.get() & !LOADED);
        load_initial();
    }
}
