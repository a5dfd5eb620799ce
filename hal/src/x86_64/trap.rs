//! The entry and exit code of the kernel.
//!
//! The entry code stores the registers of the thread into its context, which the processor's state (`CPU`)
//! names, switches to the context's stack, and calls Rust. Rust returns the context to resume, and `hal_resume`
//! loads its registers. There are two entries, `syscall` and the descriptor table, and two exits: `sysretq` for
//! a context in a system call (not `FULL`) and `iretq` for any other.
//!
//! A trap in the kernel itself is an interrupt that the kernel has let in, or a bug. With optimistic masking (`mask`)
//! interrupts may come anywhere in the kernel, on a stack of their own. In the entry and exit code everything is masked
//! without any instruction for it: the processor clears the interrupt flag on entry, and the byte of optimistic masking
//! already has that value while user mode runs.

use super::cpu::{cpu, Cpu, CPU, CPU_STACKS};
use super::descriptors::{INNER_CODE, INNER_DATA, KERNEL_CODE, KERNEL_DATA, USER_CODE, USER_DATA};
use super::fpu::{switch_fpu, use_fpu, LOADED};
use super::instructions::{cr2, wrmsr, MSR_EFER, MSR_LSTAR, MSR_SFMASK, MSR_SYSENTER_CS};
use super::mask::{self, FLAG};
use super::paging::byte_in_use;
use super::serial::{die, die_at};
use super::stack::CPU_STACK_END;
use super::{interrupts, stack, time, Global};
use crate::context::context_of;
use crate::context::needs::{FULL, HAS_FPU, INNER, PORTS_SHIFT};
use crate::mask::{Irq, IRQ};
use crate::{Context, Kernel, Trap};
use core::any::TypeId;
use core::arch::{asm, global_asm, naked_asm};
use core::cell::Cell;
use core::mem::offset_of;

/// Vectors of the processor's own exceptions.
const NMI: u64 = 2;
const BREAKPOINT: u64 = 3;
const NO_FPU: u64 = 7;
const DOUBLE_FAULT: u64 = 8;
const PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;
const MACHINE_CHECK: u64 = 18;

/// Flags that are clear when the kernel begins to run: TF, IF, DF, IOPL, NT, AC.
const CLEAR_FLAGS: u64 = 0x4_7700;

/// The flag AC: it checks alignment, and lets the kernel's rings access pages of user mode.
const ALIGNMENT: u32 = 1 << 18;

/// 1 if interrupts are masked by the byte in [`Cpu`] and the flag stays on, 0 otherwise.
const OPTIMISTIC: u8 = (matches!(IRQ, Irq::Optimistic)) as u8;

/// Whether contexts can be suspended on stacks of their own. In the interrupt model none can.
pub(crate) const OWN_STACKS: bool = !cfg!(any(
    fermata_model = "interrupt-np",
    fermata_model = "interrupt-pp"
));

/// The value of the EFER register: long mode, `syscall`, no-execute pages.
const EFER: u64 = 1 << 0 | 1 << 8 | 1 << 10 | 1 << 11;

/// Bytes of code for each vector.
const STUB_BYTES: u64 = 16;
/// The vectors for which the processor pushes an error code.
const WITH_ERROR: u32 = 0x6022_7d00;

extern "C" {
    /// The code for vector 0; the others follow.
    fn hal_stubs();
    /// The exit code, in the middle of [`syscall_entry`].
    pub(super) fn hal_resume();
}

/// The address of the entry code for a vector.
pub(super) fn stub(vector: u8) -> u64 {
    hal_stubs as *const () as u64 + STUB_BYTES * u64::from(vector)
}

global_asm!(
    r#"
    .balign {bytes}
hal_stubs:
    .set hal_vector, 0
    .rept 256
    .balign {bytes}
    .if (hal_vector >= 32) || ((({with_error} >> (hal_vector & 31)) & 1) == 0)
    push 0
    .endif
    .byte 0x68
    .long hal_vector
    jmp {common}
    .set hal_vector, hal_vector + 1
    .endr
    "#,
    bytes = const STUB_BYTES,
    with_error = const WITH_ERROR,
    common = sym common,
);

/// A kernel of any type, whose threads are named by their contexts ([`context_of`]).
trait AnyKernel {
    fn trap_in(&'static self, context: &'static Context, trap: Trap) -> &'static Context;
    /// Handles a page fault, from its address and the processor's error code.
    fn page_fault_in(
        &'static self,
        context: &'static Context,
        address: u64,
        error: u64,
    ) -> &'static Context;
    fn resume_in(&'static self, context: &'static Context) -> &'static Context;
    fn change_ports_for(&'static self, context: &'static Context);
    fn interrupt_by(&'static self, trap: Trap);
}

impl<K: Kernel> AnyKernel for K {
    fn trap_in(&'static self, context: &'static Context, trap: Trap) -> &'static Context {
        context_of::<K>(self.trap(thread_of::<K>(context), trap))
    }

    fn page_fault_in(
        &'static self,
        context: &'static Context,
        address: u64,
        error: u64,
    ) -> &'static Context {
        let how = [2, 16, 1].map(|bit| error & bit != 0);
        context_of::<K>(self.page_fault(thread_of::<K>(context), address, how))
    }

    fn resume_in(&'static self, context: &'static Context) -> &'static Context {
        context_of::<K>(self.resume(thread_of::<K>(context)))
    }

    fn change_ports_for(&'static self, context: &'static Context) {
        self.change_ports(thread_of::<K>(context));
    }

    fn interrupt_by(&'static self, trap: Trap) {
        self.interrupt(trap);
    }
}

/// The thread that begins with this context. The context is one that the kernel returned.
fn thread_of<K: Kernel>(context: &'static Context) -> &'static K::Thread {
    // SAFETY: there is one type of kernel (`agree_on`), and only contexts from `context_of` of its threads
    // ever come to `hal_resume`: from `start`, from the kernel's return values, and from `stack::reset_stack`.
    unsafe { &*core::ptr::from_ref(context).cast() }
}

/// The kernel that is called.
static KERNEL: Global<Cell<&'static dyn AnyKernel>> = Global(Cell::new(&NoKernel));

/// The kernel until [`start`] is called.
struct NoKernel;

#[repr(C, align(16))]
struct NoThread(Context);

impl Kernel for NoKernel {
    type Thread = NoThread;

    fn context(thread: &'static NoThread) -> &'static Context {
        &thread.0
    }

    fn trap(&'static self, _: &'static NoThread, _: Trap) -> &'static NoThread {
        unreachable!()
    }

    fn interrupt(&'static self, _: Trap) {}
}

/// Sets up `syscall`.
pub(super) fn init() {
    // SAFETY: as the entry code expects it.
    unsafe {
        wrmsr(MSR_EFER, EFER);
        wrmsr(MSR_LSTAR, syscall_entry as *const () as u64);
        wrmsr(
            MSR_SFMASK,
            match IRQ {
                Irq::Hardware => CLEAR_FLAGS,
                Irq::Optimistic => CLEAR_FLAGS & !FLAG,
            },
        );
        // `sysenter` faults.
        wrmsr(MSR_SYSENTER_CS, 0);
    }
}

/// Enters user mode with `first`; from now on traps call `kernel`. Must be called once only.
pub fn start<K: Kernel>(kernel: &'static K, first: &'static K::Thread) -> ! {
    assert!(
        cpu().current.get().is_none(),
        "a kernel has been started already"
    );
    agree_on::<K>();
    KERNEL.0.set(kernel);
    cpu().kernel.set(core::ptr::from_ref(kernel) as u64);
    cpu().syscall.set(syscall::<K> as *const () as u64);
    // SAFETY: `hal_resume` expects a context, and a stack whose contents are not used again: nothing
    // returns from here.
    unsafe {
        asm!(
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "jmp {resume}",
            stack = in(reg) stack::cpu_stack_top(),
            resume = sym hal_resume,
            in("rax") context_of::<K>(first),
            options(noreturn)
        )
    }
}

/// The type of the kernel.
static TYPE: Global<Cell<Option<TypeId>>> = Global(Cell::new(None));

/// Notes the type of the kernel. Panics if another type was noted before.
pub(super) fn agree_on<K: Kernel>() {
    let this = Some(TypeId::of::<K>());
    let before = TYPE.0.replace(this);
    assert!(before.is_none() || before == this, "two kernels");
}

/// Calls the kernel's `syscall` without a table of methods: the entry code has the address of this function for
/// the kernel's type.
extern "C" fn syscall<K: Kernel>(
    kernel: &'static K,
    thread: &'static K::Thread,
) -> &'static Context {
    context_of::<K>(kernel.syscall(thread))
}

/// Calls the kernel for a context that goes on from its continuation.
pub(super) extern "C" fn resume(context: &'static Context) -> &'static Context {
    KERNEL.0.get().resume_in(context)
}

/// Switches to the stack of the context that is in this register.
macro_rules! to_stack {
    ($context:literal) => {
        concat!(
            ".if {own_stacks}
            mov rsp, [",
            $context,
            " + {stack_top}]
            .else
            lea rsp, [rip + {cpu_stack} + {cpu_stack_end}]
            .endif"
        )
    };
}

/// Loads the root table of the context in `rax`, if another one is loaded, or its root has just been made.
macro_rules! to_table {
    () => {
        "movsxd rcx, dword ptr [rax + {table}]
        mov rcx, [rcx]
        mov rdx, cr3
        cmp rcx, rdx
        je 22f
        mov cr3, rcx
        22:"
    };
}

/// The end of the exit code with `sysretq`, with the context in `rax`.
macro_rules! to_user {
    () => {
        "mov rcx, [rax + {rip}]
        mov r11d, [rax + {rflags}]
        mov rbx, [rax + {rbx}]
        mov rdx, [rax + {rdx}]
        mov rsi, [rax + {rsi}]
        mov rdi, [rax + {rdi}]
        mov rbp, [rax + {rbp}]
        mov r8, [rax + {r8}]
        mov r9, [rax + {r9}]
        mov r10, [rax + {r10}]
        mov r12, [rax + {r12}]
        mov r13, [rax + {r13}]
        mov r14, [rax + {r14}]
        mov r15, [rax + {r15}]
        mov rsp, [rax + {rsp}]
        mov rax, [rax + {rax}]
        sysretq"
    };
}

/// `naked_asm!` with the operands that both entries use: the offsets of registers in a context, the current
/// context, and the stacks.
macro_rules! entry_asm {
    ($($code_and_operands:tt)*) => {
        naked_asm!(
            $($code_and_operands)*
            cpu = sym CPU,
            current = const offset_of!(Cpu, current),
            rax = const offset_of!(Context, frame.rax),
            rbx = const offset_of!(Context, frame.rbx),
            rcx = const offset_of!(Context, frame.rcx),
            rdx = const offset_of!(Context, frame.rdx),
            rsi = const offset_of!(Context, frame.rsi),
            rdi = const offset_of!(Context, frame.rdi),
            rbp = const offset_of!(Context, frame.rbp),
            rsp = const offset_of!(Context, frame.rsp),
            r8 = const offset_of!(Context, frame.r8),
            r9 = const offset_of!(Context, frame.r9),
            r10 = const offset_of!(Context, frame.r10),
            r11 = const offset_of!(Context, frame.r11),
            r12 = const offset_of!(Context, frame.r12),
            r13 = const offset_of!(Context, frame.r13),
            r14 = const offset_of!(Context, frame.r14),
            r15 = const offset_of!(Context, frame.r15),
            rip = const offset_of!(Context, frame.rip),
            rflags = const offset_of!(Context, flags),
            fs_base = const offset_of!(Context, frame.fs_base),
            gs_base = const offset_of!(Context, frame.gs_base),
            needs = const offset_of!(Context, needs),
            stack_top = const stack::TOP,
            cpu_stack = sym CPU_STACKS,
            cpu_stack_end = const CPU_STACK_END,
            own_stacks = const OWN_STACKS as u8,
            from_user = sym from_user,
        )
    };
}

/// The entry by `syscall`, which has left the return address in `rcx` and the flags in `r11`; and the exit code
/// for all traps.
#[unsafe(naked)]
unsafe extern "C" fn syscall_entry() {
    entry_asm!(
        "mov [rip + {cpu} + {user_rsp}], rsp",
        "mov rsp, [rip + {cpu} + {current}]",
        "mov [rsp + {rax}], rax",
        "mov [rsp + {rbx}], rbx",
        "mov [rsp + {rdx}], rdx",
        "mov [rsp + {rsi}], rsi",
        "mov [rsp + {rdi}], rdi",
        "mov [rsp + {rbp}], rbp",
        "mov [rsp + {r8}], r8",
        "mov [rsp + {r9}], r9",
        "mov [rsp + {r10}], r10",
        "mov [rsp + {r12}], r12",
        "mov [rsp + {r13}], r13",
        "mov [rsp + {r14}], r14",
        "mov [rsp + {r15}], r15",
        // Rule A1: `rip` stays at the instruction until the call is complete.
        "sub rcx, 2",
        "mov [rsp + {rip}], rcx",
        "mov [rsp + {rflags}], r11d",
        "mov rax, [rip + {cpu} + {user_rsp}]",
        "mov [rsp + {rsp}], rax",
        "rdfsbase rcx",
        "mov [rsp + {fs_base}], rcx",
        "rdgsbase rdx",
        "mov [rsp + {gs_base}], rdx",
        // The part `FULL` of the needs is not set while the thread is in user mode.
        "mov rsi, rsp",
        "mov rdi, [rip + {cpu} + {kernel}]",
        to_stack!("rsp"),
        "call [rip + {cpu} + {syscall}]",

        // The exit to user mode, with the context in `rax`. The stack pointer is on a kernel stack whose
        // contents are not used again.
        ".global hal_resume",
        "hal_resume:",
        "cmp rax, [rip + {cpu} + {current}]",
        "jne 4f",
        // The same context that came in: its segment bases, I/O ports, FPU and page table are still loaded, unless
        // `needs` says otherwise.
        "cmp byte ptr [rax + {needs}], 0",
        "jne 15f",
        to_user!(),
        // Another context. From here on it has no activation in the kernel.
        "4:",
        "mov [rip + {cpu} + {current}], rax",
        ".if {own_stacks}",
        "mov qword ptr [rax + {activation}], 0",
        ".endif",
        // The context is not in a call, or needs other FPU registers or I/O ports than the last one.
        "mov ecx, [rax + {needs}]",
        "cmp ecx, [rip + {cpu} + {plain}]",
        "jne 5f",
        "2:",
        to_table!(),
        "mov rcx, [rax + {fs_base}]",
        "wrfsbase rcx",
        "mov rdx, [rax + {gs_base}]",
        "wrgsbase rdx",
        to_user!(),
        "5:",
        "mov edx, [rip + {cpu} + {plain}]",
        "xor edx, ecx",
        "test edx, ~{way}",
        "jz 3f",
        // `plain` becomes the context's needs, with `LOADED` if it uses the FPU.
        "and ecx, ~{way}",
        "mov ebx, ecx",
        "and ebx, {has_fpu}",
        "add ecx, ebx",
        "mov [rip + {cpu} + {plain}], ecx",
        "test edx, {has_fpu} + {loaded}",
        "jz 8f",
        "call {switch_fpu}",
        "8:",
        "shr edx, {ports}",
        "jz 5f",
        to_stack!("rax"),
        "mov rdi, rax",
        "call {change_ports}",
        "5:",
        "cmp byte ptr [rax + {needs}], 0",
        "je 2b",
        // All registers, by `iretq`.
        "3:",
        "test byte ptr [rax + {needs}], {inner}",
        "jnz 10f",
        to_table!(),
        // If the address is not canonical, `iretq` would fault in the kernel.
        "mov rcx, [rax + {rip}]",
        "mov rdx, rcx",
        "shr rdx, 47",
        "jnz 7f",
        "9:",
        "mov rdx, [rax + {fs_base}]",
        "wrfsbase rdx",
        "mov rdx, [rax + {gs_base}]",
        "wrgsbase rdx",
        "mov byte ptr [rax + {needs}], 0",
        "push {user_data}",
        "push qword ptr [rax + {rsp}]",
        "mov edx, [rax + {rflags}]",
        "push rdx",
        "push {user_code}",
        "11:",
        "push rcx",
        "mov rbx, [rax + {rbx}]",
        "mov rcx, [rax + {rcx}]",
        "mov rdx, [rax + {rdx}]",
        "mov rsi, [rax + {rsi}]",
        "mov rdi, [rax + {rdi}]",
        "mov rbp, [rax + {rbp}]",
        "mov r8, [rax + {r8}]",
        "mov r9, [rax + {r9}]",
        "mov r10, [rax + {r10}]",
        "mov r11, [rax + {r11}]",
        "mov r12, [rax + {r12}]",
        "mov r13, [rax + {r13}]",
        "mov r14, [rax + {r14}]",
        "mov r15, [rax + {r15}]",
        "mov rax, [rax + {rax}]",
        "iretq",
        "7:",
        "cmp rdx, 0x1ffff",
        "je 9b",
        // The thread gets the protection fault instead.
        "13:",
        to_stack!("rax"),
        "mov rdi, rax",
        "mov esi, {protection}",
        "xor edx, edx",
        "call {from_user}",
        "jmp hal_resume",
        // To ring 1. The thread needs no root table of its own: its translations are in all root tables.
        "10:",
        "mov rcx, [rax + {rip}]",
        "mov rdx, rcx",
        "shr rdx, 47",
        "jnz 13b",
        "mov rdx, [rax + {fs_base}]",
        "wrfsbase rdx",
        "mov rdx, [rax + {gs_base}]",
        "wrgsbase rdx",
        "mov edx, [rax + {rflags}]",
        "test byte ptr [rax + {needs}], {full}",
        "jz 16f",
        "mov byte ptr [rax + {needs}], {inner}",
        "jmp 17f",
        // The same context, to ring 1 after a call: its segment bases are still loaded.
        "15:",
        "cmp byte ptr [rax + {needs}], {inner}",
        "jne 3b",
        "mov rcx, [rax + {rip}]",
        "mov rdx, rcx",
        "shr rdx, 47",
        "jnz 13b",
        "mov edx, [rax + {rflags}]",
        // After a call, `rcx` and `r11` get the values that `sysretq` would leave in them.
        "16:",
        "mov [rax + {rcx}], rcx",
        "mov [rax + {r11}], rdx",
        "17:",
        // Without AC no access of the kernel's rings reaches a page of user mode.
        "and edx, ~{alignment}",
        "push {inner_data}",
        "push qword ptr [rax + {rsp}]",
        "push rdx",
        "push {inner_code}",
        "jmp 11b",
        user_rsp = const offset_of!(Cpu, user_rsp),
        kernel = const offset_of!(Cpu, kernel),
        syscall = const offset_of!(Cpu, syscall),
        plain = const offset_of!(Cpu, plain),
        has_fpu = const HAS_FPU,
        loaded = const LOADED,
        switch_fpu = sym switch_fpu,
        ports = const PORTS_SHIFT,
        full = const FULL,
        inner = const INNER,
        way = const FULL | INNER,
        table = const offset_of!(Context, table),
        alignment = const ALIGNMENT,
        inner_data = const INNER_DATA,
        inner_code = const INNER_CODE,
        activation = const stack::ACTIVATION,
        user_data = const USER_DATA,
        user_code = const USER_CODE,
        protection = const PROTECTION,
        change_ports = sym change_ports,
    )
}

/// Loads the I/O ports of the context, which needs other ports than the previous context. Returns the context.
extern "C" fn change_ports(context: &'static Context) -> &'static Context {
    KERNEL.0.get().change_ports_for(context);
    context
}

/// The entry of all vectors, with the vector and an error code pushed after what the processor pushes: `rip cs
/// rflags rsp ss`.
#[unsafe(naked)]
unsafe extern "C" fn common() {
    entry_asm!(
        "test byte ptr [rsp + 24], 3",
        "jz 2f",
        "push rax",
        "mov rax, [rip + {cpu} + {current}]",
        "mov [rax + {rbx}], rbx",
        "mov [rax + {rcx}], rcx",
        "mov [rax + {rdx}], rdx",
        "mov [rax + {rsi}], rsi",
        "mov [rax + {rdi}], rdi",
        "mov [rax + {rbp}], rbp",
        "mov [rax + {r8}], r8",
        "mov [rax + {r9}], r9",
        "mov [rax + {r10}], r10",
        "mov [rax + {r11}], r11",
        "mov [rax + {r12}], r12",
        "mov [rax + {r13}], r13",
        "mov [rax + {r14}], r14",
        "mov [rax + {r15}], r15",
        "pop qword ptr [rax + {rax}]",
        "pop rsi",
        "pop rdx",
        "pop qword ptr [rax + {rip}]",
        "pop rcx",
        "pop rcx",
        "mov [rax + {rflags}], ecx",
        "pop qword ptr [rax + {rsp}]",
        "rdfsbase rcx",
        "mov [rax + {fs_base}], rcx",
        "rdgsbase rcx",
        "mov [rax + {gs_base}], rcx",
        "or byte ptr [rax + {needs}], 1",
        to_stack!("rax"),
        // The processor has cleared TF, IF and NT, but not DF and AC.
        ".if {optimistic}",
        "push {open}",
        ".else",
        "push 2",
        ".endif",
        "popfq",
        "mov rdi, rax",
        "call {from_user}",
        "jmp {resume}",
        // From the kernel.
        "2:",
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "cld",
        "mov rdi, rsp",
        "call {from_kernel}",
        ".if {optimistic}",
        "cmp rax, rsp",
        "je 3f",
        "mov rsp, rax",
        "call {handle_now}",
        "3:",
        ".endif",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "add rsp, 16",
        "iretq",
        optimistic = const OPTIMISTIC,
        open = const FLAG | 2,
        handle_now = sym handle_now,
        from_kernel = sym from_kernel,
        resume = sym hal_resume,
    )
}

/// Handles a trap from user mode by a vector.
extern "C" fn from_user(context: &'static Context, vector: u64, error: u64) -> &'static Context {
    if vector == PAGE_FAULT {
        return KERNEL.0.get().page_fault_in(context, cr2(), error);
    }
    other_from_user(context, vector, error)
}

/// [`from_user`] for all vectors except page faults.
#[inline(never)]
fn other_from_user(context: &'static Context, vector: u64, error: u64) -> &'static Context {
    let trap = match vector {
        NO_FPU => {
            use_fpu(context);
            return context;
        }
        NMI | DOUBLE_FAULT | MACHINE_CHECK => die(format_args!(
            "vector {vector} in user mode, error {error:#x}"
        )),
        BREAKPOINT => {
            // The program counter is behind the instruction, which is `cc`, or `cd 03` if the last byte is 3.
            let after = context.pc().get();
            let long = byte_in_use(after.wrapping_sub(1)) == Some(3);
            let length = if long { 2 } else { 1 };
            context.pc().set(after.wrapping_sub(length));
            Trap::Exception {
                vector: BREAKPOINT as u8,
                error: 0,
            }
        }
        0..32 => Trap::Exception {
            vector: vector as u8,
            error,
        },
        _ => match arrived(vector) {
            Some(trap) => trap,
            None => return context,
        },
    };
    KERNEL.0.get().trap_in(context, trap)
}

/// The words on the stack after a trap in the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelFrame {
    /// r11 r10 r9 r8 rdi rsi rdx rcx rax
    scratch: [u64; 9],
    pub(super) vector: u64,
    error: u64,
    pub(super) rip: u64,
    cs: u64,
    pub(super) rflags: u64,
    rsp: u64,
    ss: u64,
}

impl KernelFrame {
    /// Makes a copy on the stack that was interrupted.
    ///
    /// # Safety
    /// The trap must have interrupted kernel code on a kernel stack.
    pub(super) unsafe fn moved(&self) -> &'static mut KernelFrame {
        let to = (self.rsp & !15) - size_of::<KernelFrame>() as u64;
        let to = to as *mut KernelFrame;
        // SAFETY: the kernel is built without a red zone: the memory below its stack pointer is free, and
        // there is room, as for an interrupt frame that the processor pushes there itself.
        unsafe {
            to.write(*self);
            &mut *to
        }
    }
}

/// Handles a trap in the kernel. Returns the frame that the entry code goes on with: see [`mask::interrupted`].
extern "C" fn from_kernel(frame: &mut KernelFrame) -> &mut KernelFrame {
    if frame.vector < 32 {
        let (
            address,
            KernelFrame {
                vector, error, rsp, ..
            },
        ) = (cr2(), *frame);
        die_at(
            format_args!(
                "vector {vector} in the kernel, error {error:#x}, cr2 {address:#x}, rsp {rsp:#x}"
            ),
            Some(frame.rip),
            rsp,
        );
    }
    match IRQ {
        Irq::Hardware => {
            interrupt(frame.vector as u8);
            frame
        }
        Irq::Optimistic => mask::interrupted(frame),
    }
}

/// Handles the kept interrupts before the interrupted code goes on.
extern "C" fn handle_now() {
    mask::handle_now();
}

/// Calls the kernel for an interrupt that came while the kernel ran.
pub(super) fn interrupt(vector: u8) {
    if let Some(trap) = arrived(vector.into()) {
        KERNEL.0.get().interrupt_by(trap);
    }
}

/// Acknowledges an interrupt. Returns the trap that the kernel has to handle, if any.
fn arrived(vector: u64) -> Option<Trap> {
    if vector == u64::from(time::VECTOR) {
        time::fired().then_some(Trap::Timer)
    } else if IRQ == Irq::Optimistic && vector == u64::from(interrupts::AGAIN) {
        time::end_of_interrupt();
        mask::take_kept().and_then(|vector| arrived(vector.into()))
    } else {
        interrupts::fired(vector as u8).map(Trap::Irq)
    }
}

// `syscall` loads these two segments.
const _: () = assert!(KERNEL_DATA == KERNEL_CODE + 8);
