//! What both machines share: a thread's registers, and how the machine calls the kernel.

use crate::{machine, Stack};
use abi::state::FPU_BYTES;
use abi::Registers;
use core::cell::Cell;

/// The user-visible registers of a thread, and what the machine keeps for it.
///
/// The kernel's thread begins with one. Whenever the kernel runs, the registers here are the
/// thread's registers; what it writes here is what the thread sees next. The entry code knows the
/// layout.
#[repr(C)]
#[allow(missing_docs)]
pub struct Context {
    /// First, as it wants the alignment of a [`Kernel::Thread`].
    pub(crate) fpu: FpuArea,
    pub rax: Cell<u64>,
    pub rbx: Cell<u64>,
    pub rcx: Cell<u64>,
    pub rdx: Cell<u64>,
    pub rsi: Cell<u64>,
    pub rdi: Cell<u64>,
    pub rbp: Cell<u64>,
    pub rsp: Cell<u64>,
    pub r8: Cell<u64>,
    pub r9: Cell<u64>,
    pub r10: Cell<u64>,
    pub r11: Cell<u64>,
    pub r12: Cell<u64>,
    pub r13: Cell<u64>,
    pub r14: Cell<u64>,
    pub r15: Cell<u64>,
    pub rip: Cell<u64>,
    pub fs_base: Cell<u64>,
    pub gs_base: Cell<u64>,
    /// Not for the kernel to write: see [`Context::set_registers`]. All that are defined are in this half.
    pub(crate) rflags: Cell<u32>,
    pub(crate) needs: Needs,
    /// What others call the thread. The machine does nothing with it.
    pub tag: Cell<u64>,
    pub(crate) stack: [OnStack; machine::OWN_STACKS as usize],
}

/// Which stack is a context's.
#[repr(C)]
pub(crate) struct OnStack {
    /// Where the thread's traps begin to push.
    pub(crate) top: Cell<u64>,
    /// Stack pointer of the suspended activation on the thread's own stack; 0: none.
    pub(crate) activation: Cell<u64>,
}

/// What the way out must do for a context. The exit code reads it as one word; the parts are set by
/// different parties, which may interrupt one another.
#[repr(C, align(4))]
pub(crate) struct Needs {
    /// 1: every register must be restored, which makes it 0 again. 0: the thread is in user mode or in a
    /// system call, and `rcx` and `r11` are dead.
    pub(crate) full: Cell<u8>,
    /// 1: the context's FPU registers are in the processor.
    pub(crate) has_fpu: Cell<u8>,
    /// The number of its I/O ports.
    pub(crate) ports: Cell<u16>,
}

/// The parts of [`Needs`] in the word that they are.
#[cfg(target_os = "none")]
pub(crate) mod needs {
    pub(crate) const FULL: u32 = 1;
    pub(crate) const HAS_FPU: u32 = 1 << 8;
    pub(crate) const PORTS_SHIFT: u32 = 16;
}

/// What a thread is aligned to.
pub(crate) const THREAD_ALIGN: usize = 16;

/// The flags that a program can change by itself: CF PF AF ZF SF TF DF OF NT RF AC ID.
const USER_FLAGS: u64 = 0x25_4dd5;
const _: () = assert!((USER_FLAGS | FIXED_FLAGS) >> 32 == 0);
/// The flags that are always set in user mode: IF, and bit 1.
const FIXED_FLAGS: u64 = 0x202;

impl Context {
    /// Zero registers, interrupts on, traps on the processor's stack.
    pub fn new() -> Context {
        let zero = || Cell::new(0);
        Context {
            fpu: FpuArea::new(),
            rax: zero(),
            rbx: zero(),
            rcx: zero(),
            rdx: zero(),
            rsi: zero(),
            rdi: zero(),
            rbp: zero(),
            rsp: zero(),
            r8: zero(),
            r9: zero(),
            r10: zero(),
            r11: zero(),
            r12: zero(),
            r13: zero(),
            r14: zero(),
            r15: zero(),
            rip: zero(),
            fs_base: zero(),
            gs_base: zero(),
            rflags: Cell::new(FIXED_FLAGS as u32),
            needs: Needs {
                full: Cell::new(1),
                has_fpu: Cell::new(0),
                ports: Cell::new(0),
            },
            tag: zero(),
            stack: core::array::from_fn(|_| OnStack {
                top: Cell::new(machine::cpu_stack_top()),
                activation: zero(),
            }),
        }
    }

    /// The registers as a message or a state carries them. In a system call `rcx` and `r11` read
    /// as what the `syscall` instruction leaves in them.
    pub fn registers(&self) -> Registers {
        let full = self.is_full();
        Registers {
            rax: self.rax.get(),
            rbx: self.rbx.get(),
            rcx: if full {
                self.rcx.get()
            } else {
                self.rip.get().wrapping_add(2)
            },
            rdx: self.rdx.get(),
            rsi: self.rsi.get(),
            rdi: self.rdi.get(),
            rbp: self.rbp.get(),
            rsp: self.rsp.get(),
            r8: self.r8.get(),
            r9: self.r9.get(),
            r10: self.r10.get(),
            r11: if full { self.r11.get() } else { self.rflags() },
            r12: self.r12.get(),
            r13: self.r13.get(),
            r14: self.r14.get(),
            r15: self.r15.get(),
            rip: self.rip.get(),
            rflags: self.rflags(),
            fs_base: self.fs_base.get(),
            gs_base: self.gs_base.get(),
        }
    }

    /// Sets every register. Of the flags only those that a program can change are taken. The
    /// caller has refused what [`user_address_ok`] refuses.
    pub fn set_registers(&self, r: &Registers) {
        assert!(user_address_ok(r), "registers that were not checked");
        self.rax.set(r.rax);
        self.rbx.set(r.rbx);
        self.rcx.set(r.rcx);
        self.rdx.set(r.rdx);
        self.rsi.set(r.rsi);
        self.rdi.set(r.rdi);
        self.rbp.set(r.rbp);
        self.rsp.set(r.rsp);
        self.r8.set(r.r8);
        self.r9.set(r.r9);
        self.r10.set(r.r10);
        self.r11.set(r.r11);
        self.r12.set(r.r12);
        self.r13.set(r.r13);
        self.r14.set(r.r14);
        self.r15.set(r.r15);
        self.rip.set(r.rip);
        self.set_rflags(r.rflags);
        self.fs_base.set(r.fs_base);
        self.gs_base.set(r.gs_base);
        self.set_full(true);
    }

    /// Of the flags only those that a program can change.
    fn set_rflags(&self, rflags: u64) {
        self.rflags.set((rflags & USER_FLAGS | FIXED_FLAGS) as u32);
    }

    /// Whether every register must be restored on the way out, which ends that. Otherwise the thread is in
    /// user mode or in a system call, and `rcx` and `r11` are dead.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.needs.full.get() != 0
    }

    /// Says whether it [is](Context::is_full).
    #[inline(always)]
    pub fn set_full(&self, full: bool) {
        self.needs.full.set(full.into());
    }

    /// Sets the registers that control the thread, and keeps the others. Of the flags only those that a
    /// program can change are taken. The caller has refused a `rip` that [`user_rip_ok`] refuses.
    #[inline]
    pub fn set_control(&self, rip: u64, rsp: u64, rflags: u64) {
        assert!(user_rip_ok(rip), "an address that was not checked");
        if !self.is_full() {
            // As `registers` shows them.
            self.rcx.set(self.rip.get().wrapping_add(2));
            self.r11.set(self.rflags());
            self.set_full(true);
        }
        self.rip.set(rip);
        self.rsp.set(rsp);
        self.set_rflags(rflags);
    }

    /// The thread's flags.
    pub fn rflags(&self) -> u64 {
        self.rflags.get().into()
    }

    /// The thread's x87 and SSE state, in the form in which [`Context::set_fpu`] would keep it.
    pub fn fpu(&self) -> [u8; FPU_BYTES] {
        machine::fpu_flush(self);
        let mut bytes = self.fpu.get();
        clean_fpu(&mut bytes);
        bytes
    }

    /// Sets the thread's x87 and SSE state. Reserved bits are cleared: whatever stands in `bytes`
    /// can be loaded into the processor.
    pub fn set_fpu(&self, bytes: &[u8; FPU_BYTES]) {
        machine::fpu_drop(self);
        let mut bytes = *bytes;
        clean_fpu(&mut bytes);
        self.fpu.set(&bytes);
    }

    /// Under which number [`crate::load_ports`] loads the I/O ports that the thread may
    /// use; 0: none.
    pub fn set_ports(&self, number: u16) {
        self.needs.ports.set(number);
    }

    /// The number of [`Context::set_ports`].
    pub fn ports(&self) -> u16 {
        self.needs.ports.get()
    }

    /// The stack that it has, where contexts can have some.
    #[inline(always)]
    pub(crate) fn on_stack(&self) -> &OnStack {
        let stack = self.stack.first();
        stack.expect("no context of this model has a stack of its own")
    }

    /// From now on, this thread's traps run on its own stack. Whoever had the stack before loses
    /// it, with any activation on it. Panics when the stack is in use at this moment.
    pub fn set_stack(&'static self, stack: &'static Stack) {
        machine::set_stack(self, stack);
    }

    /// Whether the thread has a stack of its own.
    #[inline(always)]
    pub fn has_stack(&self) -> bool {
        let own = |stack: &OnStack| stack.top.get() != machine::cpu_stack_top();
        self.stack.first().is_some_and(own)
    }
}

fn canonical(address: u64) -> bool {
    ((address << 16) as i64 >> 16) as u64 == address
}

/// Whether [`Context::set_registers`] takes these: `rip` is an address of the user half and the
/// segment bases are canonical. `rsp` may be anything, as the program could have made it so.
pub fn user_address_ok(registers: &Registers) -> bool {
    user_rip_ok(registers.rip) && canonical(registers.fs_base) && canonical(registers.gs_base)
}

/// Whether [`Context::set_control`] takes this `rip`: an address of the user half.
#[inline(always)]
pub fn user_rip_ok(rip: u64) -> bool {
    rip < 1 << 47
}

/// The thread's context, which is where the thread is. Panics if it is elsewhere.
#[inline(always)]
pub(crate) fn context_of<K: Kernel>(thread: &'static K::Thread) -> &'static Context {
    const { assert!(align_of::<K::Thread>().is_multiple_of(THREAD_ALIGN)) };
    let context = K::context(thread);
    let here = core::ptr::from_ref(thread).cast();
    assert!(
        core::ptr::eq(core::ptr::from_ref(context), here),
        "a thread that does not begin with its context"
    );
    context
}

/// Clears what the layout of `fxsave64` reserves and what the processor would not load.
fn clean_fpu(bytes: &mut [u8; FPU_BYTES]) {
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let mask = machine::mxcsr_mask();
    let mxcsr = word(bytes, 24) & mask;
    bytes[5] = 0;
    bytes[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    bytes[28..32].copy_from_slice(&mask.to_le_bytes());
    for st in 0..8 {
        bytes[32 + 16 * st + 10..32 + 16 * st + 16].fill(0);
    }
    bytes[416..].fill(0);
}

impl Default for Context {
    fn default() -> Self {
        Context::new()
    }
}

/// The memory behind a thread's FPU registers, in the layout of `fxsave64`.
#[repr(C, align(8))]
pub(crate) struct FpuArea {
    bytes: Cell<[u8; FPU_BYTES]>,
}

impl FpuArea {
    /// The state of a thread that has never used the FPU.
    fn new() -> FpuArea {
        FpuArea {
            bytes: Cell::new(abi::state::initial_fpu()),
        }
    }

    pub(crate) fn get(&self) -> [u8; FPU_BYTES] {
        self.bytes.get()
    }

    pub(crate) fn set(&self, bytes: &[u8; FPU_BYTES]) {
        self.bytes.set(*bytes);
    }

    #[cfg(target_os = "none")]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.bytes.as_ptr().cast()
    }
}

/// Why the kernel is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The `syscall` instruction. The context's `rip` is at the instruction and it is not full.
    Syscall,
    /// A memory access that the translations do not allow.
    PageFault {
        /// The address of the access.
        address: u64,
        /// It was a store.
        write: bool,
        /// It was an instruction fetch.
        execute: bool,
        /// There is a translation, but it does not allow this.
        present: bool,
    },
    /// Any other exception of the processor. For vector 3, `rip` is at the `int3` instruction.
    Exception {
        /// The processor's vector.
        vector: u8,
        /// The processor's error code; 0 where the vector has none.
        error: u64,
    },
    /// The deadline of [`crate::set_timer`] has passed.
    Timer,
    /// A device interrupt. The line is acknowledged and masked.
    Irq(u8),
}

/// What the machine calls.
///
/// The methods take `&'static self` although they change the kernel's state: that state is made of
/// cells. They are never called in parallel. [`Kernel::interrupt`] is called only from within
/// [`crate::wait_for_interrupt`] or [`crate::let_interrupts_in`].
pub trait Kernel: 'static {
    /// What the machine runs. It begins with its context, so that the machine knows it by that, and is
    /// aligned to 16 bytes.
    type Thread: 'static;

    /// The context with which the thread begins.
    fn context(thread: &'static Self::Thread) -> &'static Context;

    /// A trap of the thread in user mode; all registers are in its context. Returns whom to resume.
    fn trap(&'static self, thread: &'static Self::Thread, trap: Trap) -> &'static Self::Thread;

    /// [`Kernel::trap`] for [`Trap::Syscall`], which is worth a call of its own.
    fn syscall(&'static self, thread: &'static Self::Thread) -> &'static Self::Thread {
        self.trap(thread, Trap::Syscall)
    }

    /// [`Kernel::trap`] for [`Trap::PageFault`], which is, too.
    fn page_fault(
        &'static self,
        thread: &'static Self::Thread,
        address: u64,
        [write, execute, present]: [bool; 3],
    ) -> &'static Self::Thread {
        let fault = Trap::PageFault {
            address,
            write,
            execute,
            present,
        };
        self.trap(thread, fault)
    }

    /// What [`crate::call_continuation`] was asked to call. Returns whom to resume.
    fn resume(&'static self, thread: &'static Self::Thread) -> &'static Self::Thread {
        thread
    }

    /// The processor is about to go on with a thread whose I/O ports are others than those that are
    /// loaded. Loads them.
    fn change_ports(&'static self, thread: &'static Self::Thread) {
        crate::load_ports(Self::context(thread).ports(), &[]);
    }

    /// A [`Trap::Timer`] or [`Trap::Irq`] that arrived inside one of these two. Does not switch
    /// threads.
    fn interrupt(&'static self, trap: Trap);
}
