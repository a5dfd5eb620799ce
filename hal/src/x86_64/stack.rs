//! Kernel stacks: the processor's, in the process model one for each thread, and in the continuation model
//! those that are handed from thread to thread.
//!
//! The processor's stack serves the boot and the traps of threads that have no stack of their own. The processor also
//! pushes its words there when a trap comes from user mode; the entry code then moves them into the context. A thread's
//! own stack holds its [`Stack`] structure at the high end: `OnStack::top` points at that, or at the end of the
//! processor's stack. Below every stack is a page that is not mapped, so that an overflow ends in a double fault.
//!
//! A context's *activation* is the stack pointer of a thread that is suspended inside the kernel: callee-saved
//! registers and a return address are on its stack. An activation exists only while nothing runs on the stack:
//! [`switch_stack`] consumes the activation that it goes on with, [`set_stack`] drops that of a thread that loses its
//! stack, and the exit code drops that of a thread that it resumes although another thread ran last.

use super::cpu::stacks;
use super::descriptors::{IST_BYTES, IST_COUNT};
use super::instructions::stack_pointer;
use super::memory::{
    self, ACCESSED, DEVICE_BASE, DIRTY, NO_EXECUTE, PRESENT, STACK_BASE, WRITABLE,
};
use super::{trap, Global};
use crate::context::{context_of, OnStack};
use crate::{Context, Kernel};
use abi::PAGE_SIZE;
use core::arch::{asm, naked_asm};
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;

/// Offsets of the fields of [`OnStack`] in a context.
pub(super) const TOP: usize = offset_of!(Context, stack) + offset_of!(OnStack, top);
pub(super) const ACTIVATION: usize = offset_of!(Context, stack) + offset_of!(OnStack, activation);

/// Bytes of a thread's kernel stack.
pub const STACK_BYTES: usize = 16384;
const CPU_STACK_BYTES: usize = 64 * 1024;

/// The processor's stack, with the unmapped page below it.
#[repr(C, align(4096))]
pub(super) struct CpuStack {
    guard: [u8; PAGE_SIZE as usize],
    stack: UnsafeCell<[u8; CPU_STACK_BYTES]>,
}

/// The stacks of a processor: the one on which the kernel runs, and those of traps that may come at any
/// instant.
#[repr(C)]
pub(super) struct CpuStacks {
    stack: CpuStack,
    ist: [UnsafeCell<[u8; IST_BYTES]>; IST_COUNT],
}

impl CpuStacks {
    pub(super) const fn new() -> Self {
        CpuStacks {
            stack: CpuStack {
                guard: [0; PAGE_SIZE as usize],
                stack: UnsafeCell::new([0; CPU_STACK_BYTES]),
            },
            ist: [const { UnsafeCell::new([0; IST_BYTES]) }; IST_COUNT],
        }
    }
}

/// The offset of the end of the kernel's stack in [`CpuStacks`].
pub(super) const CPU_STACK_END: usize = size_of::<CpuStack>();

/// The high end of the processor's stack.
#[inline]
pub(crate) fn cpu_stack_top() -> u64 {
    (stacks().stack.stack.get() as u64).wrapping_add(CPU_STACK_BYTES as u64)
}

/// The high end of an interrupt stack of the processor.
pub(super) fn ist_stack_top(index: usize) -> u64 {
    stacks().ist[index].get() as u64 + IST_BYTES as u64
}

/// Whether the page at `address` must stay unmapped.
pub(super) fn is_guard_of_cpu_stack(address: u64) -> bool {
    address == &raw const stacks().stack.guard as u64
}

/// A kernel stack. This structure is at its high end; pushed words lie below the structure.
#[repr(C, align(16))]
pub struct Stack {
    /// The context that may run on it.
    owner: Cell<Option<&'static Context>>,
}

/// Bytes from one stack to the next: the stack and the unmapped page.
const STRIDE: u64 = STACK_BYTES as u64 + PAGE_SIZE;
/// Number of stack addresses that are used up.
static STACKS: Global<Cell<u64>> = Global(Cell::new(0));

/// Makes the tables that every address space shares.
pub(super) fn init() -> Option<()> {
    // The first stack is never used; mapping it makes the table of the second level.
    map_stack().map(|_| ())
}

/// Maps the next stack and returns its first address.
fn map_stack() -> Option<u64> {
    let start = STACK_BASE + STACKS.0.get() * STRIDE + PAGE_SIZE;
    if start + STRIDE > DEVICE_BASE {
        return None;
    }
    // The address is used up even if the mapping fails half way: the pages mapped so far stay.
    STACKS.0.set(STACKS.0.get() + 1);
    for page in (start..start + STACK_BYTES as u64).step_by(PAGE_SIZE as usize) {
        let physical = memory::take_page()?;
        let flags = PRESENT | WRITABLE | ACCESSED | DIRTY | NO_EXECUTE;
        memory::map(page, physical, flags, 1)?;
    }
    Some(start)
}

/// Allocates a kernel stack from the pool. `None` if the pool is used up.
pub fn alloc_stack() -> Option<&'static Stack> {
    let end = map_stack()? + STACK_BYTES as u64;
    let stack = (end - size_of::<Stack>() as u64) as *mut Stack;
    // SAFETY: the last bytes of a stack that has just been mapped and that no other code knows.
    unsafe {
        stack.write(Stack {
            owner: Cell::new(None),
        });
        Some(&*stack)
    }
}

impl Stack {
    fn top(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    #[inline(always)]
    fn contains(&self, address: u64) -> bool {
        let room = STACK_BYTES as u64 - size_of::<Stack>() as u64;
        self.top().wrapping_sub(address).wrapping_sub(1) < room
    }
}

/// The thread's own stack.
fn own_stack(context: &Context) -> Option<&'static Stack> {
    let top = context.on_stack().top.get();
    // SAFETY: only `Context::new` and the functions here set `top`: to the end of the processor's
    // stack or to the address of a `Stack`, which lives for ever.
    (top != cpu_stack_top()).then(|| unsafe { &*(top as *const Stack) })
}

pub(crate) fn set_stack(context: &'static Context, stack: &'static Stack) {
    assert!(
        !stack.contains(stack_pointer()),
        "somebody runs on this stack"
    );
    if let Some(old) = own_stack(context) {
        old.owner.set(None);
    }
    if let Some(owner) = stack.owner.replace(Some(context)) {
        owner.on_stack().top.set(cpu_stack_top());
        owner.on_stack().activation.set(0);
    }
    context.on_stack().top.set(stack.top());
    context.on_stack().activation.set(0);
}

/// The words that [`switch_stack`] pops from the stack of the context that it switches to.
#[repr(C)]
struct Activation {
    rip: u64,
    rbx: u64,
    rbp: u64,
    /// Aligns the end of the stack as a function expects it.
    unused: u64,
}

/// Arms the thread's own stack so that the next [`switch_stack`] to it goes straight to user mode with
/// the thread's context. Drops a suspended activation. Panics if the thread has no stack of its own, or
/// if the caller runs on that stack.
pub fn reset_stack<K: Kernel>(thread: &'static K::Thread) {
    trap::agree_on::<K>();
    let context = context_of::<K>(thread);
    let Some(stack) = own_stack(context) else {
        panic!("the thread has no stack of its own")
    };
    assert!(
        !stack.contains(stack_pointer()),
        "somebody runs on this stack"
    );
    let activation = (stack.top() - size_of::<Activation>() as u64) as *mut Activation;
    let first = Activation {
        rip: leave as *const () as u64,
        rbx: core::ptr::from_ref(context) as u64,
        rbp: 0,
        unused: 0,
    };
    // SAFETY: the high end of a stack on which nothing runs; what was suspended there is dropped.
    unsafe { activation.write(first) };
    context.on_stack().activation.set(activation as u64);
}

/// Saves the activation of `from` (callee-saved registers, stack pointer) on its own stack and goes on with the
/// activation of `to`, which an earlier call saved or [`reset_stack`] armed. Returns when another thread switches back
/// to `from`.
#[inline(always)]
pub fn switch_stack(from: &'static Context, to: &'static Context) {
    let on_own = own_stack(from).is_some_and(|stack| stack.contains(stack_pointer()));
    assert!(
        on_own,
        "a switch away from a stack that is not the running one"
    );
    assert!(
        to.on_stack().activation.get() != 0,
        "a switch to a thread that is not suspended in the kernel"
    );
    // SAFETY: the running stack is that of `from`, so its activation is saved there; the operands tell
    // the compiler which registers do not survive. `to` has an activation, on a stack of its own, on
    // which nothing runs (see the head of this file).
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rdi + {activation}], rsp",
            "mov rsp, [rsi + {activation}]",
            "mov qword ptr [rsi + {activation}], 0",
            "ret",
            "2:",
            "pop rbx",
            "pop rbp",
            activation = const ACTIVATION,
            in("rdi") from,
            in("rsi") to,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("C"),
        )
    };
}

/// Hands the running stack over from the context that has it to a context without a stack (Draves et al., Figure 4).
/// Nothing is copied: the running code may use the stack until `to` next traps, and the running code has left for user
/// mode by then.
#[inline(always)]
pub fn stack_handoff(from: &'static Context, to: &'static Context) {
    let stack = own_stack(from).expect("a handoff without a stack");
    assert!(!to.has_stack(), "a handoff to one that has a stack");
    stack.owner.set(Some(to));
    to.on_stack().top.set(stack.top());
    from.on_stack().top.set(cpu_stack_top());
}

/// Gives this stack to a thread without a stack, so that [`switch_stack`] and [`switch_context`] to the
/// thread lead to user mode (Draves et al., Figure 4).
pub fn stack_attach<K: Kernel>(thread: &'static K::Thread, stack: &'static Stack) {
    set_stack(K::context(thread), stack);
    reset_stack::<K>(thread);
}

/// Takes a context's stack and drops any activation on it (Draves et al., Figure 4). This may be the running stack: no
/// other context can use the stack before the running code has left it.
pub fn stack_detach(context: &'static Context) -> Option<&'static Stack> {
    let stack = own_stack(context)?;
    stack.owner.set(None);
    context.on_stack().top.set(cpu_stack_top());
    context.on_stack().activation.set(0);
    Some(stack)
}

/// Goes on with the activation of `to`, and drops the running one (Draves et al., Figure 4: `switch_context` of
/// a thread that has given up its stack).
pub fn switch_context(to: &'static Context) -> ! {
    assert!(
        to.on_stack().activation.get() != 0,
        "a switch to a thread that is not suspended in the kernel"
    );
    // SAFETY: as in `switch_stack`; the running code is never resumed, so it does not matter which
    // context has its stack.
    unsafe {
        asm!(
            "mov rsp, [rsi + {activation}]",
            "mov qword ptr [rsi + {activation}], 0",
            "ret",
            activation = const ACTIVATION,
            in("rsi") to,
            options(noreturn)
        )
    }
}

/// Calls the kernel's [`Kernel::resume`] for the thread, at the beginning of the thread's stack, which must be
/// the running one, and resumes the thread that it returns (Draves et al., Figure 4).
pub fn call_continuation<K: Kernel>(thread: &'static K::Thread) -> ! {
    let context = context_of::<K>(thread);
    let on_own = own_stack(context).is_some_and(|stack| stack.contains(stack_pointer()));
    assert!(
        on_own,
        "a continuation on a stack that is not the running one"
    );
    // SAFETY: nothing on the stack is used again. `hal_resume` expects the context in `rax`, where a
    // call returns it.
    unsafe {
        asm!(
            "mov rsp, {top}",
            "xor ebp, ebp",
            "call {resume}",
            "jmp {leave}",
            top = in(reg) context.on_stack().top.get(),
            resume = sym super::trap::resume,
            leave = sym super::trap::hal_resume,
            in("rdi") context,
            options(noreturn)
        )
    }
}

/// The code with which an armed stack begins: pops the context and resumes it.
#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!("pop rax", "pop rbp", "jmp {resume}", resume = sym super::trap::hal_resume)
}

/// The number of bytes from an address on a kernel stack to the stack's high end.
pub(super) fn rest_of_stack(address: u64) -> Option<u64> {
    let cpu_start = cpu_stack_top() - CPU_STACK_BYTES as u64;
    if (cpu_start..cpu_stack_top()).contains(&address) {
        return Some(cpu_stack_top() - address);
    }
    let at = address.checked_sub(STACK_BASE)?;
    (at / STRIDE < STACKS.0.get() && at % STRIDE >= PAGE_SIZE).then(|| STRIDE - at % STRIDE)
}
