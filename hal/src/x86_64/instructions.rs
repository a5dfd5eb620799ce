//! Single instructions of the processor, and the registers that they read and write.

use core::arch::asm;

pub(super) const MSR_APIC_BASE: u32 = 0x1b;
pub(super) const MSR_SYSENTER_CS: u32 = 0x174;
pub(super) const MSR_EFER: u32 = 0xc000_0080;
pub(super) const MSR_STAR: u32 = 0xc000_0081;
pub(super) const MSR_LSTAR: u32 = 0xc000_0082;
pub(super) const MSR_SFMASK: u32 = 0xc000_0084;

/// Reads a model-specific register.
pub(super) fn rdmsr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading the registers named above has no side effect; they exist on every x86-64
    // processor with a local APIC.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// The value must keep the processor in a state in which this program can run.
pub(super) unsafe fn wrmsr(register: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// Reads an I/O port.
pub(super) fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: reading the ports that this crate reads changes no memory.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

/// Writes an I/O port. Only ports of devices without DMA are written in this crate.
pub(super) fn outb(port: u16, value: u8) {
    // SAFETY: the interrupt controller, the timer, the serial port and the debug exit change no
    // memory.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags));
    }
}

/// The time-stamp counter.
#[inline]
pub(super) fn rdtsc() -> u64 {
    // SAFETY: has no side effect, exists on every x86-64 processor.
    unsafe { core::arch::x86_64::_rdtsc() }
}

pub(super) const CR0_MP: u64 = 1 << 1;
pub(super) const CR0_EM: u64 = 1 << 2;
pub(super) const CR0_TS: u64 = 1 << 3;
pub(super) const CR0_NE: u64 = 1 << 5;
pub(super) const CR0_WP: u64 = 1 << 16;
pub(super) const CR0_AM: u64 = 1 << 18;
pub(super) const CR0_NW: u64 = 1 << 29;
pub(super) const CR0_CD: u64 = 1 << 30;

pub(super) fn cr0() -> u64 {
    let value;
    // SAFETY: has no side effect.
    unsafe { asm!("mov {}, cr0", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// # Safety
/// The value must keep the processor in a state in which this program can run.
pub(super) unsafe fn set_cr0(value: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov cr0, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// The address of the last page fault.
pub(super) fn cr2() -> u64 {
    let value;
    // SAFETY: has no side effect.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// # Safety
/// The tables at that physical address must translate the kernel's half as the kernel's own do,
/// and stay as long as they are in use.
#[inline]
pub(super) unsafe fn set_cr3(value: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Loads CR3 with its own value, which flushes all translations of users. Interrupts are off meanwhile: a thread that
/// preempted this function could load another table and give this one back.
#[inline(never)]
pub(super) fn reload_cr3() {
    // SAFETY: the same tables are loaded as before; the flags, with the interrupt flag, are restored. The stack is the
    // kernel's own.
    unsafe {
        asm!(
            "pushfq",
            "cli",
            "mov {root}, cr3",
            "mov cr3, {root}",
            "popfq",
            root = out(reg) _,
        );
    }
}

pub(super) const CR4_PAE: u64 = 1 << 5;
pub(super) const CR4_MCE: u64 = 1 << 6;
pub(super) const CR4_PGE: u64 = 1 << 7;
pub(super) const CR4_OSFXSR: u64 = 1 << 9;
pub(super) const CR4_OSXMMEXCPT: u64 = 1 << 10;
pub(super) const CR4_UMIP: u64 = 1 << 11;
pub(super) const CR4_FSGSBASE: u64 = 1 << 16;
pub(super) const CR4_SMEP: u64 = 1 << 20;
pub(super) const CR4_SMAP: u64 = 1 << 21;

/// # Safety
/// The value must keep the processor in a state in which this program can run.
pub(super) unsafe fn set_cr4(value: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Flushes the translation of one page from the TLB.
pub(super) fn invlpg(address: u64) {
    // SAFETY: drops a cached copy of an entry in memory.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Clears CR0.TS: the FPU can be used.
pub(super) fn clts() {
    // SAFETY: the kernel itself is built without FPU code.
    unsafe { asm!("clts", options(nostack, preserves_flags)) };
}

/// Sets CR0.TS: the next use of the FPU traps.
pub(super) fn stts() {
    // SAFETY: the kernel itself is built without FPU code.
    unsafe { set_cr0(cr0() | CR0_TS) };
}

/// Halts for ever.
pub(super) fn halt() -> ! {
    loop {
        // SAFETY: nothing runs any more.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// The value of CR3: the physical address of the active root table.
#[inline]
pub(super) fn cr3() -> u64 {
    let value;
    // SAFETY: has no side effect.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The stack pointer of the running code, approximately.
#[inline(always)]
pub(super) fn stack_pointer() -> u64 {
    let value;
    // SAFETY: has no side effect.
    unsafe { asm!("mov {}, rsp", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}
