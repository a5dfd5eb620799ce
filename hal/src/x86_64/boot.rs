//! The path from the boot loader to the first line of the kernel.
//!
//! Two protocols lead here, both in 32-bit mode without paging: PVH (QEMU's `-kernel`, by an ELF note) and
//! multiboot2 (GRUB). The first instructions build translations that map the first 4 GiB three times: at their
//! own addresses, in the direct map, and (the first GiB) at the kernel's image. [`arrive`] copies the loader's
//! information, initializes the machine, and calls the function that [`crate::entry!`] names.

use super::{descriptors, instructions::*, interrupts, memory, serial, time, trap, Global};
use abi::boot::PhysRange;
use core::arch::global_asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::cell::{Cell, RefCell};

/// Names the function with which the kernel begins: `hal::entry!(main)`, with `fn main() -> !`.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        const _: () = {
            #[no_mangle]
            extern "C" fn hal_entry() -> ! {
                let main: fn() -> ! = $main;
                main()
            }
        };
    };
}

/// The loader's protocol, in `edi`.
const PVH: u32 = 1;
const MULTIBOOT2: u32 = 2;

global_asm!(
    r#"
    .section .boot.header, "a"
    .balign 8
boot_multiboot2:
    .long 0xe85250d6, 0, boot_multiboot2_end - boot_multiboot2
    .long -(0xe85250d6 + (boot_multiboot2_end - boot_multiboot2))
    // Modules aligned to pages.
    .short 6, 0
    .long 8
    .short 0, 0
    .long 8
boot_multiboot2_end:

    .section .note.Xen, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad boot_pvh

    .section .boot.text, "ax"
    .code32
    .global boot_pvh
boot_pvh:
    mov edi, {pvh}
    jmp boot_32

    .global boot_multiboot
boot_multiboot:
    mov edi, {multiboot2}
    cmp eax, 0x36d76289
    jne boot_stop

boot_32:
    cli
    cld
    mov esp, offset boot_stack
    // Long mode?
    mov ebp, ebx
    mov eax, 0x80000000
    cpuid
    cmp eax, 0x80000001
    jb boot_stop
    mov eax, 0x80000001
    cpuid
    // Long mode and no-execute.
    and edx, 0x20100000
    cmp edx, 0x20100000
    jne boot_stop

    // Four directories of 2 MiB pages.
    mov ecx, 0
2:  mov eax, ecx
    shl eax, 21
    or eax, 0x83
    mov [boot_directories + ecx * 8], eax
    mov dword ptr [boot_directories + ecx * 8 + 4], 0
    inc ecx
    cmp ecx, 2048
    jne 2b
    // Everything above them.
    mov eax, offset boot_directories + 3
    mov [boot_low], eax
    mov [boot_high + 510 * 8], eax
    add eax, 4096
    mov [boot_low + 8], eax
    add eax, 4096
    mov [boot_low + 16], eax
    add eax, 4096
    mov [boot_low + 24], eax
    mov eax, offset boot_low + 3
    mov [boot_root], eax
    mov [boot_root + 256 * 8], eax
    mov eax, offset boot_high + 3
    mov [boot_root + 511 * 8], eax

    mov eax, offset boot_root
    mov cr3, eax
    mov eax, 0x20
    mov cr4, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, 0x80010001
    mov cr0, eax
    lgdt [boot_gdt_pointer]
    push 8
    mov eax, offset boot_64
    push eax
    retf

boot_stop:
    hlt
    jmp boot_stop

    .code64
boot_64:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov esi, ebp
    movabs rsp, offset {stack} + {stack_end}
    xor ebp, ebp
    movabs rax, offset {arrive}
    call rax
    ud2

    .balign 8
boot_gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
boot_gdt_pointer:
    .short 23
    .long boot_gdt

    .section .boot.bss, "aw", @nobits
    .balign 4096
boot_root: .skip 4096
boot_low: .skip 4096
boot_high: .skip 4096
boot_directories: .skip 4 * 4096
    .skip 64
boot_stack:
    .text
    "#,
    pvh = const PVH,
    multiboot2 = const MULTIBOOT2,
    stack = sym super::cpu::CPU_STACKS,
    stack_end = const super::stack::CPU_STACK_END,
    arrive = sym arrive,
);

/// Most entries of a memory map that are kept.
const MAX_RAM: usize = 64;

/// The information from the boot loader.
pub(super) struct Found {
    /// RAM, as the loader's memory map lists it.
    pub(super) ram: [PhysRange; MAX_RAM],
    pub(super) ram_count: usize,
    pub(super) archive: PhysRange,
    command_line: [u8; 1024],
    command_line_len: usize,
}

impl Found {
    fn add_ram(&mut self, start: u64, size: u64) {
        if self.ram_count < MAX_RAM {
            self.ram[self.ram_count] = PhysRange { start, size };
            self.ram_count += 1;
        }
    }

    fn set_command_line(&mut self, text: PhysicalBytes) {
        let mut length = 0;
        while length < self.command_line.len() && text.u8(length) != 0 {
            self.command_line[length] = text.u8(length);
            length += 1;
        }
        self.command_line_len = length;
    }
}

/// An address in the low 4 GiB, from which the boot loader's structures are read.
#[derive(Clone, Copy)]
struct PhysicalBytes(u64);

impl PhysicalBytes {
    fn u8(self, offset: usize) -> u8 {
        let address = self.0 + offset as u64;
        assert!(
            address < 1 << 32,
            "a structure of the boot loader above 4 GiB"
        );
        // SAFETY: the first translations map all of the low 4 GiB in the direct map, and the loader's
        // structures there are plain bytes.
        unsafe { ((memory::DIRECT_BASE + address) as *const u8).read_volatile() }
    }

    fn u32(self, offset: usize) -> u32 {
        u32::from_le_bytes(core::array::from_fn(|i| self.u8(offset + i)))
    }

    fn u64(self, offset: usize) -> u64 {
        u64::from(self.u32(offset)) | u64::from(self.u32(offset + 4)) << 32
    }
}

/// The information that the boot loader has passed.
static FOUND: Global<RefCell<Found>> = Global(RefCell::new(Found {
    ram: [PhysRange { start: 0, size: 0 }; MAX_RAM],
    ram_count: 0,
    archive: PhysRange { start: 0, size: 0 },
    command_line: [0; 1024],
    command_line_len: 0,
}));
static COMMAND_LINE: Global<Cell<&'static str>> = Global(Cell::new(""));
static ARCHIVE: Global<Cell<PhysRange>> = Global(Cell::new(PhysRange { start: 0, size: 0 }));

/// `struct hvm_start_info` of the Xen project's PVH boot ABI.
fn read_pvh(info: PhysicalBytes, found: &mut Found) {
    assert!(info.u32(0) == 0x336e_c578, "not a PVH start info");
    assert!(info.u32(4) >= 1, "a PVH loader without a memory map");
    if info.u32(12) > 0 {
        let module = PhysicalBytes(info.u64(16));
        found.archive = PhysRange {
            start: module.u64(0),
            size: module.u64(8),
        };
    }
    if info.u64(24) != 0 {
        found.set_command_line(PhysicalBytes(info.u64(24)));
    }
    let map = PhysicalBytes(info.u64(40));
    for entry in 0..info.u32(48) as usize {
        if map.u32(24 * entry + 16) == 1 {
            found.add_ram(map.u64(24 * entry), map.u64(24 * entry + 8));
        }
    }
}

/// The tags of the multiboot2 specification, section 3.6.
fn read_multiboot2(info: PhysicalBytes, found: &mut Found) {
    let end = info.u32(0) as usize;
    let mut at = 8;
    while at + 8 <= end {
        let tag = PhysicalBytes(info.0 + at as u64);
        let size = tag.u32(4) as usize;
        match tag.u32(0) {
            0 => break,
            1 => found.set_command_line(PhysicalBytes(tag.0 + 8)),
            3 if found.archive.size == 0 => {
                let (start, end) = (u64::from(tag.u32(8)), u64::from(tag.u32(12)));
                found.archive = PhysRange {
                    start,
                    size: end.saturating_sub(start),
                };
            }
            6 => {
                let entry_size = tag.u32(8).max(24) as usize;
                let mut entry = 16;
                while entry + entry_size <= size {
                    if tag.u32(entry + 16) == 1 {
                        found.add_ram(tag.u64(entry), tag.u64(entry + 8));
                    }
                    entry += entry_size;
                }
            }
            _ => {}
        }
        at += size.max(8).next_multiple_of(8);
    }
}

extern "C" {
    fn hal_entry() -> !;
}

/// The first Rust code. It runs on the processor's stack, with the first translations.
extern "C" fn arrive(protocol: u32, info: u32) -> ! {
    serial::init();
    descriptors::init();
    trap::init();
    {
        let mut found = FOUND.0.borrow_mut();
        let info = PhysicalBytes(u64::from(info));
        match protocol {
            PVH => read_pvh(info, &mut found),
            _ => read_multiboot2(info, &mut found),
        }
        ARCHIVE.0.set(found.archive);
    }
    set_up_processor();
    memory::init(&FOUND.0.borrow());
    keep_command_line(&FOUND.0.borrow());
    interrupts::init();
    time::init();
    // SAFETY: `entry!` defines it with exactly this type.
    unsafe { hal_entry() }
}

fn keep_command_line(found: &Found) {
    let text =
        memory::alloc_slice(found.command_line_len, |i| found.command_line[i]).unwrap_or(&[]);
    COMMAND_LINE.0.set(match core::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or(""),
    });
}

/// Turns on the processor's features that protect the kernel.
fn set_up_processor() {
    let features = __cpuid_count(7, 0);
    assert!(
        __cpuid(0).eax >= 7 && features.ebx & 1 != 0,
        "this processor has no FSGSBASE"
    );
    assert!(
        __cpuid(1).edx & 1 << 9 != 0,
        "this processor has no local APIC"
    );
    let mut cr4 = CR4_PAE | CR4_MCE | CR4_PGE | CR4_OSFXSR | CR4_OSXMMEXCPT | CR4_FSGSBASE;
    for (register, bit, flag) in [
        (features.ebx, 7, CR4_SMEP),
        (features.ebx, 20, CR4_SMAP),
        (features.ecx, 2, CR4_UMIP),
    ] {
        if register & 1 << bit != 0 {
            cr4 |= flag;
        }
    }
    // SAFETY: the processor has each of these, the translations in use have no user pages, and the
    // caches stay on. The kernel does not use the FPU, which traps until a thread owns it.
    unsafe {
        set_cr4(cr4);
        let cr0 = cr0() & !(CR0_EM | CR0_NW | CR0_CD);
        set_cr0(cr0 | CR0_MP | CR0_TS | CR0_NE | CR0_WP | CR0_AM);
    }
    super::fpu::init();
}

/// Whether the processor has SMEP and SMAP: code in rings 0 to 2 cannot execute pages of user mode, and can access them
/// only while it sets the flag AC.
pub(crate) fn keeps_rings_apart() -> bool {
    let features = __cpuid_count(7, 0).ebx;
    features & 1 << 7 != 0 && features & 1 << 20 != 0
}

/// Physical start and size of the boot archive.
pub fn archive() -> (u64, u64) {
    let archive = ARCHIVE.0.get();
    (archive.start, archive.size)
}

/// The kernel's command line.
pub fn command_line() -> &'static str {
    COMMAND_LINE.0.get()
}
