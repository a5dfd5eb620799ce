//! What both machines share: a thread's registers, and how the machine calls the kernel.

use crate::{machine, Stack};
use abi::registers::{Lost, DEADLINE, RECEIVE, SEND, WORDS, WORDS_REFS};
use abi::state::FPU_BYTES;
use abi::{Registers, ROLES};
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
    /// The registers, but for the flags.
    pub frame: machine::Frame,
    /// Not for the kernel to write: see [`Context::set_registers`]. All that are defined are in this half.
    pub(crate) flags: Cell<u32>,
    pub(crate) needs: Needs,
    /// The thread's tag ([`abi::state::ThreadState`]). The machine does nothing with it.
    pub tag: Cell<u64>,
    pub(crate) stack: [OnStack; machine::OWN_STACKS as usize],
}

/// The registers of a machine, but for the flags, in the order in which they lie in a [`Context`].
macro_rules! frame {
    ($flags:ident $Flags:ident; $($register:ident $Register:ident),+ $(,)?) => {
        /// A thread's registers, but for the flags. The kernel asks [`Context`] for them by their roles.
        #[repr(C)]
        #[derive(Default)]
        #[allow(missing_docs)] // Their names are the processor's.
        pub struct Frame {
            $(pub $register: core::cell::Cell<u64>,)+
        }

        impl Frame {
            /// A register, other than the flags.
            #[inline(always)]
            pub(crate) fn cell(&self, register: abi::Register) -> &core::cell::Cell<u64> {
                match register {
                    $(abi::Register::$Register => &self.$register,)+
                    abi::Register::$Flags => panic!("the flags are kept elsewhere"),
                }
            }

            /// All of them, with these flags.
            #[inline(always)]
            pub(crate) fn load(&self, flags: u64) -> abi::Registers {
                abi::Registers {
                    $($register: self.$register.get(),)+
                    $flags: flags,
                }
            }

            #[inline(always)]
            pub(crate) fn store(&self, registers: &abi::Registers) {
                $(self.$register.set(registers.$register);)+
            }
        }
    };
}
pub(crate) use frame;

/// Which stack is a context's.
#[repr(C)]
pub(crate) struct OnStack {
    /// Where the thread's traps begin to push.
    pub(crate) top: Cell<u64>,
    /// Stack pointer of the suspended activation on the thread's own stack; 0: none.
    pub(crate) activation: Cell<u64>,
}

/// What the exit code must do for a context. It reads all of it as one word; the parts are set in different
/// places, which may interrupt one another.
#[repr(C, align(4))]
pub(crate) struct Needs {
    /// 1: every register must be restored, which makes it 0 again. 0: the thread is in user mode or in a
    /// system call, and the registers that this loses are dead.
    pub(crate) full: Cell<u8>,
    /// 1: it has used the FPU since its state was made or set, and needs its registers loaded.
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

const _: () = assert!((ROLES.user_flags | ROLES.fixed_flags) >> 32 == 0);

/// A part of scattered memory that a message is sent from or received into, as the registers have it:
/// see [`abi::registers::Area`].
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Area<'a> {
    pub address: &'a Cell<u64>,
    pub length: &'a Cell<u64>,
    pub list: &'a Cell<u64>,
    pub entries: &'a Cell<u64>,
    pub refs: &'a Cell<u64>,
}

/// The registers by what they are for ([`abi::registers`]).
impl Context {
    /// The word of the call: its number, the count of a register message, later the result.
    #[inline(always)]
    pub fn call(&self) -> &Cell<u64> {
        self.frame.cell(ROLES.call)
    }

    /// Parameter `n` of a call. Panics if there is no such parameter.
    #[inline(always)]
    pub fn parameter(&self, n: usize) -> &Cell<u64> {
        self.frame.cell(ROLES.parameters[n])
    }

    #[inline(always)]
    fn area(&self, [address, length, list, entries, refs]: [usize; 5]) -> Area<'_> {
        Area {
            address: self.parameter(address),
            length: self.parameter(length),
            list: self.parameter(list),
            entries: self.parameter(entries),
            refs: self.parameter(refs),
        }
    }

    /// What an IPC call sends.
    #[inline(always)]
    pub fn send(&self) -> Area<'_> {
        self.area(SEND)
    }

    /// What an IPC call receives into.
    #[inline(always)]
    pub fn receive(&self) -> Area<'_> {
        self.area(RECEIVE)
    }

    /// The words of a register message.
    #[inline(always)]
    pub fn words(&self) -> [&Cell<u64>; WORDS.len()] {
        let [a, b, c, d, e, f, g, h] = WORDS;
        let word = |n| self.parameter(n);
        [
            word(a),
            word(b),
            word(c),
            word(d),
            word(e),
            word(f),
            word(g),
            word(h),
        ]
    }

    /// The list of references that a register message sends.
    #[inline(always)]
    pub fn words_refs(&self) -> &Cell<u64> {
        self.parameter(WORDS_REFS)
    }

    /// The deadline of an IPC call.
    #[inline(always)]
    pub fn deadline(&self) -> &Cell<u64> {
        self.parameter(DEADLINE)
    }

    /// The program counter.
    #[inline(always)]
    pub fn pc(&self) -> &Cell<u64> {
        self.frame.cell(ROLES.pc)
    }

    /// The stack pointer.
    #[inline(always)]
    pub fn sp(&self) -> &Cell<u64> {
        self.frame.cell(ROLES.sp)
    }

    /// The address behind the instruction that makes a call, if the program counter is at one.
    #[inline(always)]
    pub fn behind_call(&self) -> u64 {
        self.pc().get().wrapping_add(ROLES.call_bytes)
    }
}

impl Context {
    /// Zero registers, interrupts on, traps on the processor's stack.
    pub fn new() -> Context {
        let zero = || Cell::new(0);
        Context {
            fpu: FpuArea::new(),
            frame: machine::Frame::default(),
            flags: Cell::new(ROLES.fixed_flags as u32),
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

    /// The registers as a message or a state carries them. In a system call those that it loses read
    /// as what it leaves in them.
    #[inline(always)] // Whoever wants words needs no copy in between.
    pub fn registers(&self) -> Registers {
        let mut registers = self.frame.load(self.flags());
        if !self.is_full() {
            for &(register, lost) in ROLES.lost {
                registers.set(register, self.shown(lost));
            }
        }
        registers
    }

    /// What a register shows that the call has lost.
    #[inline(always)]
    fn shown(&self, lost: Lost) -> u64 {
        match lost {
            Lost::Next => self.behind_call(),
            Lost::Flags => self.flags(),
        }
    }

    /// Sets every register. Of the flags only those that a program can change are taken. The
    /// caller has refused what [`user_registers_ok`] refuses.
    pub fn set_registers(&self, registers: &Registers) {
        assert!(
            user_registers_ok(registers),
            "registers that were not checked"
        );
        self.frame.store(registers);
        self.set_flags(registers.flags());
        self.set_full(true);
    }

    /// Of the flags only those that a program can change.
    fn set_flags(&self, flags: u64) {
        self.flags
            .set((flags & ROLES.user_flags | ROLES.fixed_flags) as u32);
    }

    /// Whether every register must be restored on the way out, which ends that. Otherwise the thread is in
    /// user mode or in a system call, and the registers that this loses are dead.
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
    /// program can change are taken. The caller has refused a `pc` that [`user_pc_ok`] refuses.
    #[inline]
    pub fn set_control(&self, pc: u64, sp: u64, flags: u64) {
        assert!(user_pc_ok(pc), "an address that was not checked");
        if !self.is_full() {
            // As `registers` shows them.
            for &(register, lost) in ROLES.lost {
                self.frame.cell(register).set(self.shown(lost));
            }
            self.set_full(true);
        }
        self.pc().set(pc);
        self.sp().set(sp);
        self.set_flags(flags);
    }

    /// The thread's flags.
    pub fn flags(&self) -> u64 {
        self.flags.get().into()
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

/// Whether [`Context::set_registers`] takes these: the program counter is an address of the user half and
/// the bases are canonical. The stack pointer may be anything, as the program could have made it so.
pub fn user_registers_ok(registers: &Registers) -> bool {
    let based = |&base| canonical(registers.get(base));
    user_pc_ok(registers.pc()) && ROLES.bases.iter().all(based)
}

/// Whether [`Context::set_control`] takes this program counter: an address of the user half.
#[inline(always)]
pub fn user_pc_ok(pc: u64) -> bool {
    pc < 1 << 47
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
    /// A call. The context's program counter is at the instruction that makes it, and it is not full.
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
    /// Any other exception of the processor. For a breakpoint the program counter is at the instruction, in
    /// either of its forms; for a single step, behind it.
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
