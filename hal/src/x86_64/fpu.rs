//! FPU registers, switched when they are used.
//!
//! The registers belong to their *owner*, the context that used them last; the owner's memory is
//! stale then. While another context is current, CR0.TS is set, so that its first use of the FPU
//! traps, and [`use_fpu`] makes it the owner. The kernel itself never uses the FPU.
//!
//! In user mode TS is set exactly when the current context is not the owner: the exit code sees to that,
//! with one comparison of [`Cpu::plain`](super::Cpu) with what the context says of itself.

use super::instructions::{clts, stts};
use super::{Global, CPU};
use crate::context::needs::HAS_FPU;
use crate::Context;
use core::arch::asm;
use core::cell::{Cell, UnsafeCell};

static MXCSR_MASK: Global<Cell<u32>> = Global(Cell::new(0));

#[repr(align(16))]
struct Image(UnsafeCell<[u8; 512]>);
static SCRATCH: Global<Image> = Global(Image(UnsafeCell::new([0; 512])));

/// Learns which bits of MXCSR the processor has.
pub(super) fn init() {
    clts();
    let scratch = SCRATCH.0 .0.get();
    // SAFETY: 512 bytes, aligned, nobody else's; the FPU does not trap.
    let mask = unsafe {
        asm!("fninit", "fxsave64 [{}]", in(reg) scratch, options(nostack));
        scratch.cast::<u32>().add(28 / 4).read()
    };
    MXCSR_MASK.0.set(if mask == 0 { 0xffbf } else { mask });
    stts();
}

/// The bits of MXCSR that can be set.
pub(crate) fn mxcsr_mask() -> u32 {
    MXCSR_MASK.0.get()
}

fn same(a: Option<&'static Context>, b: &Context) -> bool {
    a.is_some_and(|a| core::ptr::eq(a, b))
}

/// Stores the registers into the owner's memory. The FPU must not trap.
fn save(owner: &Context) {
    // SAFETY: the area is 512 bytes, made of cells, and aligned as its thread is (`context_of`).
    unsafe { asm!("fxsave64 [{}]", in(reg) owner.fpu.as_ptr(), options(nostack)) };
}

/// In `Cpu::plain` while the FPU does not trap.
const USABLE: u32 = HAS_FPU;

fn traps() -> bool {
    CPU.0.plain.get() & USABLE == 0
}

fn set_traps(traps: bool) {
    if traps != self::traps() {
        CPU.0.plain.set(CPU.0.plain.get() ^ USABLE);
        if traps {
            stts();
        } else {
            clts();
        }
    }
}

fn set_has(context: &Context, has: bool) {
    context.needs.has_fpu.set(has.into());
}

/// The current context has used the FPU without owning it.
pub(super) fn use_fpu(context: &'static Context) {
    set_traps(false);
    if same(CPU.0.fpu_owner.get(), context) {
        return;
    }
    if let Some(owner) = CPU.0.fpu_owner.replace(Some(context)) {
        save(owner);
        set_has(owner, false);
    }
    set_has(context, true);
    // SAFETY: as in `save`; its contents were stored by `fxsave64` or cleaned by `Context::set_fpu`, so
    // that the processor takes them.
    unsafe { asm!("fxrstor64 [{}]", in(reg) context.fpu.as_ptr(), options(nostack)) };
}

/// Brings the context's memory up to date.
pub(crate) fn fpu_flush(context: &Context) {
    if same(CPU.0.fpu_owner.get(), context) {
        let traps = traps();
        set_traps(false);
        save(context);
        set_traps(traps);
    }
}

/// Forgets registers that are in the processor: the context's memory is what counts.
pub(crate) fn fpu_drop(context: &Context) {
    if same(CPU.0.fpu_owner.get(), context) {
        CPU.0.fpu_owner.set(None);
        set_has(context, false);
        set_traps(true);
    }
}
