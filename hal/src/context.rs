//! The part that both machines share: the registers of a thread, and the trait by which the machine calls the
//! kernel.

use crate::{machine, Stack};
use abi::registers::{Lost, DEADLINE, RECEIVE, SEND, WORDS, WORDS_REFS};
use abi::state::{clean_fpu, FPU_BYTES};
use abi::{Registers, ROLES};
use core::cell::Cell;

/// The user-visible registers of a thread, and what the machine keeps for it.
///
/// The kernel's thread begins with a context. Whenever the kernel runs, the registers here are the thread's registers;
/// the thread sees the values that the kernel writes here when it next runs. The entry code depends on the layout.
#[repr(C)]
#[allow(missing_docs)]
pub struct Context {
    /// The first field, because it needs the alignment of a [`Kernel::Thread`].
    pub(crate) fpu: FpuArea,
    /// The registers except the flags.
    pub frame: machine::Frame,
    /// The flags; all defined flags are in the lower 32 bits. The kernel writes them only by
    /// [`Context::set_registers`] and [`Context::set_control`].
    pub(crate) flags: Cell<u32>,
    pub(crate) needs: Needs,
    /// The thread's tag ([`abi::state::ThreadState`]). The machine does nothing with it.
    pub tag: Cell<u64>,
    /// The place of the root of the page table that must be loaded while the thread runs.
    pub(crate) table: Cell<machine::Root>,
    pub(crate) stack: [OnStack; machine::OWN_STACKS as usize],
}

/// Defines the registers of a machine except the flags, in the order in which they lie in a [`Context`].
macro_rules! frame {
    ($flags:ident $Flags:ident; $($register:ident $Register:ident),+ $(,)?) => {
        /// The registers of a thread except the flags. The kernel asks `Context` for them by their roles.
        #[repr(C)]
        #[derive(Default)]
        #[allow(missing_docs)] // Their names are the processor's.
        pub struct Frame {
            $(pub $register: core::cell::Cell<u64>,)+
        }

        impl Frame {
            /// The cell of a register, which must not be the flags.
            #[inline(always)]
            pub(crate) fn cell(&self, register: abi::Register) -> &core::cell::Cell<u64> {
                match register {
                    $(abi::Register::$Register => &self.$register,)+
                    abi::Register::$Flags => panic!("the flags are kept elsewhere"),
                }
            }

            /// All registers, with these flags.
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

/// The kernel stack of a context.
#[repr(C)]
pub(crate) struct OnStack {
    /// The stack pointer with which the thread's traps begin.
    pub(crate) top: Cell<u64>,
    /// Stack pointer of the suspended activation on the thread's own stack; 0: none.
    pub(crate) activation: Cell<u64>,
}

/// The work that the exit code must do for a context. The exit code reads all of it as one word. Different code sets
/// the parts, and one may interrupt another, so each part is a cell of its own.
#[repr(C, align(4))]
pub(crate) struct Needs {
    /// [`needs::FULL`] and [`needs::INNER`].
    pub(crate) way: Cell<u8>,
    /// 1: the thread has used the FPU since its FPU state was made or set, so its FPU registers must be loaded.
    pub(crate) has_fpu: Cell<u8>,
    /// The number of its set of I/O ports; 0: none.
    pub(crate) ports: Cell<u16>,
}

/// The parts of [`Needs`] as bits of the word.
pub(crate) mod needs {
    /// Every register must be restored; the exit code clears this bit when it has done so. If the bit is clear, the
    /// thread is in user mode or in a system call, and the registers that a call loses are dead.
    pub(crate) const FULL: u32 = 1;
    /// The thread is collocated: it goes on in ring 1.
    pub(crate) const INNER: u32 = 2;
    #[cfg(target_os = "none")]
    pub(crate) const HAS_FPU: u32 = 1 << 8;
    #[cfg(target_os = "none")]
    pub(crate) const PORTS_SHIFT: u32 = 16;
}

/// The alignment of a thread.
pub(crate) const THREAD_ALIGN: usize = 16;

const _: () = assert!((ROLES.user_flags | ROLES.fixed_flags) >> 32 == 0);

/// A range of scattered memory that a message is sent from or received into, as registers hold it: see
/// [`abi::registers::Area`].
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Area<'a> {
    pub address: &'a Cell<u64>,
    pub length: &'a Cell<u64>,
    pub list: &'a Cell<u64>,
    pub entries: &'a Cell<u64>,
    pub refs: &'a Cell<u64>,
}

/// The registers by their roles ([`abi::registers`]).
impl Context {
    /// The word of the call: its number and the byte count of a register message, later the result.
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

    /// The area that an IPC call sends from.
    #[inline(always)]
    pub fn send(&self) -> Area<'_> {
        self.area(SEND)
    }

    /// The area that an IPC call receives into.
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

    /// The address behind the call instruction, if the program counter is at a call instruction.
    #[inline(always)]
    pub fn behind_call(&self) -> u64 {
        self.pc().get().wrapping_add(ROLES.call_bytes)
    }
}

impl Context {
    /// A context with zero registers and interrupts on, whose traps run on the processor's stack.
    pub fn new() -> Context {
        let zero = || Cell::new(0);
        Context {
            fpu: FpuArea::new(),
            frame: machine::Frame::default(),
            flags: Cell::new(ROLES.fixed_flags as u32),
            needs: Needs {
                way: Cell::new(needs::FULL as u8),
                has_fpu: Cell::new(0),
                ports: Cell::new(0),
            },
            tag: zero(),
            table: Cell::new(machine::no_root()),
            stack: core::array::from_fn(|_| OnStack {
                top: Cell::new(machine::cpu_stack_top()),
                activation: zero(),
            }),
        }
    }

    /// The registers as a message or a state carries them. In a system call, registers that the call loses have the
    /// values that the call leaves in them.
    #[inline(always)] // Callers that need words make no copy in between.
    pub fn registers(&self) -> Registers {
        let mut registers = self.frame.load(self.flags());
        if !self.is_full() {
            for &(register, lost) in ROLES.lost {
                registers.set(register, self.shown(lost));
            }
        }
        registers
    }

    /// The value of a register that the call has lost.
    #[inline(always)]
    fn shown(&self, lost: Lost) -> u64 {
        match lost {
            Lost::Next => self.behind_call(),
            Lost::Flags => self.flags(),
        }
    }

    /// Sets every register; of the flags only those that a program can change. Panics if [`user_registers_ok`]
    /// refuses the registers, so the caller must check them first.
    pub fn set_registers(&self, registers: &Registers) {
        assert!(
            user_registers_ok(registers),
            "registers that were not checked"
        );
        self.frame.store(registers);
        self.set_flags(registers.flags());
        self.set_full(true);
    }

    /// Sets the flags that a program can change.
    fn set_flags(&self, flags: u64) {
        self.flags
            .set((flags & ROLES.user_flags | ROLES.fixed_flags) as u32);
    }

    /// Whether every register must be restored when the thread next runs; the exit code then clears this. Otherwise
    /// the thread is in user mode or in a system call, and the registers that a call loses are dead.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        u32::from(self.needs.way.get()) & needs::FULL != 0
    }

    /// Sets whether the context [is full](Context::is_full).
    #[inline(always)]
    pub fn set_full(&self, full: bool) {
        self.set_way(needs::FULL, full);
    }

    #[inline(always)]
    fn set_way(&self, bit: u32, on: bool) {
        let others = self.needs.way.get() & !(bit as u8);
        self.needs.way.set(others | if on { bit as u8 } else { 0 });
    }

    /// Gives the registers that the thread's call has lost the values that the call leaves in them, and makes the
    /// context full.
    fn fill(&self) {
        if !self.is_full() {
            // As `registers` shows them.
            for &(register, lost) in ROLES.lost {
                self.frame.cell(register).set(self.shown(lost));
            }
            self.set_full(true);
        }
    }

    /// Sets the page table that translates for the thread when it next runs. The translations of a collocated table
    /// are part of every other table: its thread runs with whichever table is loaded, and cannot reach the other
    /// translations in it.
    pub fn set_table(&self, table: &'static crate::PageTable) {
        // The exit code loads the table of the thread that ran last again only if its context is full.
        self.fill();
        self.table.set(table.root_of());
        self.set_way(needs::INNER, table.is_collocated());
    }

    /// Whether this is the table last given to [`Context::set_table`], and still collocated or not as it was then.
    pub fn has_table(&self, table: &'static crate::PageTable) -> bool {
        table.is_root(self.table.get())
            && (u32::from(self.needs.way.get()) & needs::INNER != 0) == table.is_collocated()
    }

    /// Sets the control registers of the thread (of the flags only those that a program can change) and keeps the
    /// other registers. Panics if [`user_pc_ok`] refuses `pc`, so the caller must check it first.
    #[inline]
    pub fn set_control(&self, pc: u64, sp: u64, flags: u64) {
        assert!(user_pc_ok(pc), "an address that was not checked");
        self.fill();
        self.pc().set(pc);
        self.sp().set(sp);
        self.set_flags(flags);
    }

    /// The thread's flags.
    pub fn flags(&self) -> u64 {
        self.flags.get().into()
    }

    /// The state of the thread's FPU, in the form in which [`Context::set_fpu`] would keep it.
    pub fn fpu(&self) -> [u8; FPU_BYTES] {
        machine::fpu_flush(self);
        let mut bytes = self.fpu.get();
        clean_fpu(&mut bytes, machine::fpu_mask());
        bytes
    }

    /// Sets the state of the thread's FPU. Reserved bits are cleared, so that the processor can load any
    /// `bytes`.
    pub fn set_fpu(&self, bytes: &[u8; FPU_BYTES]) {
        machine::fpu_drop(self);
        let mut bytes = *bytes;
        clean_fpu(&mut bytes, machine::fpu_mask());
        self.fpu.set(&bytes);
    }

    /// Sets the number under which [`crate::load_ports`] loads the I/O ports that the thread may use; 0: none.
    pub fn set_ports(&self, number: u16) {
        self.needs.ports.set(number);
    }

    /// The number that [`Context::set_ports`] has set.
    pub fn ports(&self) -> u16 {
        self.needs.ports.get()
    }

    /// The context's stack, in models where contexts can have one.
    #[inline(always)]
    pub(crate) fn on_stack(&self) -> &OnStack {
        let stack = self.stack.first();
        stack.expect("no context of this model has a stack of its own")
    }

    /// Gives the thread a kernel stack of its own for its traps. The context that had the stack before loses it and any
    /// activation on it. Panics if the caller runs on the stack.
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

/// Whether [`Context::set_registers`] takes these registers: the program counter is an address of the user half and the
/// bases are canonical. The stack pointer may have any value, since a program can set it to any value.
pub fn user_registers_ok(registers: &Registers) -> bool {
    let based = |&base| canonical(registers.get(base));
    user_pc_ok(registers.pc()) && ROLES.bases.iter().all(based)
}

/// Whether [`Context::set_control`] takes this program counter: an address of the user half.
#[inline(always)]
pub fn user_pc_ok(pc: u64) -> bool {
    pc < 1 << 47
}

/// The thread's context, which must lie at the thread's own address. Panics if it does not.
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

impl Default for Context {
    fn default() -> Self {
        Context::new()
    }
}

/// The memory behind a thread's FPU registers.
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

/// The reason why the kernel is called.
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
    /// Any other exception of the processor. For a breakpoint the program counter is at the instruction, in either
    /// of its forms; for a single step it is behind the instruction.
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

/// The functions of the kernel that the machine calls.
///
/// The methods take `&'static self` although they change the kernel's state: that state is made of cells. They
/// are never called in parallel. [`Kernel::interrupt`] is called only from within [`crate::wait_for_interrupt`]
/// or [`crate::let_interrupts_in`], or where the kernel lowers its mask ([`crate::mask::restore`]).
pub trait Kernel: 'static {
    /// The type of a thread. A thread begins with its context, by which the machine identifies it, and is aligned to
    /// 16 bytes.
    type Thread: 'static;

    /// The context with which the thread begins.
    fn context(thread: &'static Self::Thread) -> &'static Context;

    /// Handles a trap of the thread in user mode; all registers are in its context. Returns the thread to
    /// resume.
    fn trap(&'static self, thread: &'static Self::Thread, trap: Trap) -> &'static Self::Thread;

    /// [`Kernel::trap`] for [`Trap::Syscall`], a function of its own because the trap is so frequent.
    fn syscall(&'static self, thread: &'static Self::Thread) -> &'static Self::Thread {
        self.trap(thread, Trap::Syscall)
    }

    /// [`Kernel::trap`] for [`Trap::PageFault`], for the same reason.
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

    /// Calls the thread's continuation, for [`crate::call_continuation`]. Returns the thread to resume.
    fn resume(&'static self, thread: &'static Self::Thread) -> &'static Self::Thread {
        thread
    }

    /// Loads the I/O ports of a thread that is about to run. Called if another set of ports is loaded.
    fn change_ports(&'static self, thread: &'static Self::Thread) {
        crate::load_ports(Self::context(thread).ports(), &[]);
    }

    /// Handles a [`Trap::Timer`] or [`Trap::Irq`] that arrived in the kernel, where the kernel lets interrupts in.
    fn interrupt(&'static self, trap: Trap);
}
