//! The registers in which x86-64 passes parameters and results of calls; the map is in [`abi::syscalls`].
use crate::gate::Returned;
use crate::guard::MARK;
use crate::short::{with_count, Came, Words, WORDS};
use abi::registers::Area;
use abi::state::Registers;
use abi::{Call, Code};
use core::arch::{asm, global_asm};

/// Makes an ordinary call with these parameters.
///
/// # Safety
/// The call may write to memory that its parameters name, or change what is mapped where: the
/// caller answers for that.
#[inline(always)]
pub unsafe fn syscall(call: Call, mut p: [u64; 6]) -> Returned {
    let mut word = call as u64;
    // SAFETY: the kernel keeps all registers but those named here, and does not touch the stack.
    unsafe {
        asm!(
            crate::gate!(),
            inlateout("rax") word,
            inlateout("rdi") p[0],
            inlateout("rsi") p[1],
            inlateout("rdx") p[2],
            inlateout("r10") p[3],
            inlateout("r8") p[4],
            inlateout("r9") p[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    Returned {
        code: Code::from_word(word),
        p,
    }
}

// A guarded access has its mark in r14 and the address to continue at in r15, which no ordinary call uses. A thread
// that continues there after an exception still has the mark; one whose access succeeded has zero. The register is
// cleared before another access could fail.

/// The mark of a guarded access and the address to continue at, from a thread's registers.
pub(crate) const fn guard(registers: &Registers) -> (u64, u64) {
    (registers.r14, registers.r15)
}

/// The instruction that a thread with these registers is at.
pub(crate) const fn pc(registers: &Registers) -> u64 {
    registers.rip
}

/// These registers at another instruction.
pub(crate) const fn at(registers: &Registers, pc: u64) -> Registers {
    Registers {
        rip: pc,
        ..*registers
    }
}

/// Makes a guarded access of these instructions and operands, and returns whether it succeeded.
macro_rules! guarded {
    ($($line:expr),+; $($operand:tt)*) => {{
        let mark: u64;
        asm!(
            "lea r15, [rip + 3f]",
            $($line,)+
            "xor r14d, r14d",
            "3:",
            "mov r15, r14",
            "xor r14d, r14d",
            inlateout("r14") MARK => _,
            out("r15") mark,
            $($operand)*
        );
        mark == 0
    }};
}

/// Copies bytes with a guarded access, and returns whether it succeeded.
///
/// # Safety
/// As of [`crate::guard::copy`].
#[inline(always)]
pub(crate) unsafe fn guarded_copy(from: u64, to: u64, length: usize) -> bool {
    // SAFETY: by the caller. After a failed access the thread continues behind the copy.
    unsafe {
        guarded!(
            "rep movsq",
            "mov ecx, eax",
            "rep movsb";
            in("rax") length & 7,
            inlateout("rcx") length / 8 => _,
            inlateout("rsi") from => _,
            inlateout("rdi") to => _,
            options(nostack),
        )
    }
}

/// Whether so many words are zero, guarded; `None` if one is not there. Compares eight words at a time, since a
/// checkpoint checks every page that it saves.
#[inline(always)]
pub(crate) fn guarded_zero(at: u64, words: usize) -> Option<bool> {
    let found: u64;
    // SAFETY: it only reads, and after a failed access the thread continues behind it.
    let through = unsafe {
        guarded!(
            "xor eax, eax",
            "sub rcx, 8",
            "jb 6f",
            "5:",
            "or rax, [rdi]",
            "or rax, [rdi + 8]",
            "or rax, [rdi + 16]",
            "or rax, [rdi + 24]",
            "or rax, [rdi + 32]",
            "or rax, [rdi + 40]",
            "or rax, [rdi + 48]",
            "or rax, [rdi + 56]",
            "jnz 8f",
            "add rdi, 64",
            "sub rcx, 8",
            "jae 5b",
            "6:",
            "add rcx, 8",
            "jz 8f",
            "7:",
            "or rax, [rdi]",
            "jnz 8f",
            "add rdi, 8",
            "dec rcx",
            "jnz 7b",
            "8:";
            out("rax") found,
            inlateout("rcx") words => _,
            inlateout("rdi") at => _,
            options(nostack, readonly),
        )
    };
    through.then_some(found == 0)
}

/// A word, guarded; `None` if it is not there.
#[inline(always)]
pub(crate) fn guarded_word(at: u64) -> Option<u64> {
    let found: u64;
    // SAFETY: it only reads, and after a failed access the thread continues behind it.
    let through = unsafe {
        guarded!(
            "mov rax, [rdi]";
            out("rax") found,
            in("rdi") at,
            options(nostack, readonly),
        )
    };
    through.then_some(found)
}

/// Compares and exchanges a word, guarded. Returns the previous word; `None` if it is not there.
///
/// # Safety
/// As of [`crate::guard::exchange`].
#[inline(always)]
pub(crate) unsafe fn guarded_exchange(at: u64, old: u32, new: u32) -> Option<u32> {
    let found: u32;
    // SAFETY: by the caller. After a failed access the thread continues behind it.
    let through = unsafe {
        guarded!(
            "lock cmpxchg dword ptr [rdi], ecx";
            inlateout("eax") old => found,
            in("ecx") new,
            in("rdi") at,
            options(nostack),
        )
    };
    through.then_some(found)
}

/// Makes a create call, guarded; `None` if there is no place for an object.
pub(crate) fn guarded_create(call: Call, handle: u64) -> Option<Code> {
    let mut word = call as u64;
    // SAFETY: it makes an object in memory that is used for nothing else. After an exception the thread continues
    // behind it.
    let through = unsafe {
        guarded!(
            crate::gate!();
            inlateout("rax") word,
            inlateout("rdi") handle => _,
            inlateout("rsi") 0u64 => _,
            lateout("rdx") _,
            lateout("r10") _,
            lateout("r8") _,
            lateout("r9") _,
            lateout("rcx") _,
            lateout("r11") _,
        )
    };
    through.then_some(Code::from_word(word))
}

/// The processor's time-stamp counter.
#[inline(always)]
pub fn counter() -> u64 {
    // SAFETY: reads a counter, which user mode may.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The registers of an IPC call, which its methods name by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct IpcRegs {
    /// The number of the call; for register messages the number of bytes in bits 8 to 15. On
    /// return the code, and for register messages the number of bytes received.
    pub rax: u64,
    /// Port reference or portset; on return from a wait the alias of the port.
    pub rdi: u64,
    /// Send: address. Short: first word.
    pub rsi: u64,
    /// Send: bytes left. Short: second word.
    pub rdx: u64,
    /// Send: list of further segments. Short: third word.
    pub r10: u64,
    /// Send: entries left. Short: fourth word.
    pub r8: u64,
    /// Send: list of references. Short: fifth word.
    pub r9: u64,
    /// Receive: list of references.
    pub rbx: u64,
    /// Deadline.
    pub rbp: u64,
    /// Receive: address. Short: sixth word.
    pub r12: u64,
    /// Receive: bytes left. Short: seventh word.
    pub r13: u64,
    /// Receive: list of further segments. Short: eighth word.
    pub r14: u64,
    /// Receive: entries left. Short: list of references to send.
    pub r15: u64,
}

/// Access to the registers by purpose ([`abi::registers`]).
impl IpcRegs {
    /// For a call about the object at a handle.
    #[inline]
    #[must_use]
    pub fn to(handle: u64) -> IpcRegs {
        IpcRegs {
            rdi: handle,
            ..IpcRegs::default()
        }
    }

    /// Sends from this area.
    #[inline]
    #[must_use]
    pub const fn sending(mut self, area: Area) -> IpcRegs {
        (self.rsi, self.rdx) = (area.address, area.length);
        (self.r10, self.r8, self.r9) = (area.list, area.entries, area.refs);
        self
    }

    /// Receives into this area.
    #[inline]
    #[must_use]
    pub const fn receiving(mut self, area: Area) -> IpcRegs {
        (self.r12, self.r13) = (area.address, area.length);
        (self.r14, self.r15, self.rbx) = (area.list, area.entries, area.refs);
        self
    }

    /// Sends these bytes, which must stay where they are until the call has returned.
    #[inline]
    #[must_use]
    pub fn sending_bytes(self, bytes: &[u8]) -> IpcRegs {
        self.sending(Area::new(bytes.as_ptr() as u64, bytes.len() as u64))
    }

    /// Receives into these bytes, which the kernel writes until the call has returned.
    #[inline]
    #[must_use]
    pub fn receiving_bytes(self, bytes: &mut [u8]) -> IpcRegs {
        self.receiving(Area::new(bytes.as_mut_ptr() as u64, bytes.len() as u64))
    }

    /// Sends a register message of these words.
    ///
    /// # Panics
    /// If there are more than eight.
    #[inline]
    #[must_use]
    pub fn message(self, words: &[u64]) -> IpcRegs {
        let mut all = [0; 8];
        all[..words.len()].copy_from_slice(words);
        self.sending_words(all, words.len() * 8)
    }

    /// Sends the first `count` bytes of these words.
    #[inline]
    #[must_use]
    pub const fn sending_words(mut self, words: [u64; 8], count: usize) -> IpcRegs {
        [
            self.rsi, self.rdx, self.r10, self.r8, self.r9, self.r12, self.r13, self.r14,
        ] = words;
        self.rax = (count as u64) << 8;
        self
    }

    /// Receives references into this list, besides the message.
    #[inline]
    #[must_use]
    pub const fn taking_refs(mut self, list: u64) -> IpcRegs {
        self.rbx = list;
        self
    }

    /// What came back from a register message.
    #[inline]
    #[must_use]
    pub const fn came(&self) -> Came {
        Came {
            word: self.rax,
            alias: self.rdi,
            words: self.short_words(),
        }
    }

    /// Waits no longer than until the deadline.
    #[inline]
    #[must_use]
    pub const fn until(mut self, deadline: u64) -> IpcRegs {
        self.rbp = deadline;
        self
    }

    /// The result in the register of the handle: after a wait, the alias of the port.
    #[inline]
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.rdi
    }

    /// The part of the sending area that has not been sent.
    #[inline]
    #[must_use]
    pub const fn unsent(&self) -> Area {
        Area {
            address: self.rsi,
            length: self.rdx,
            list: self.r10,
            entries: self.r8,
            refs: self.r9,
        }
    }

    /// The part of the receiving area that is still free.
    #[inline]
    #[must_use]
    pub const fn left(&self) -> Area {
        Area {
            address: self.r12,
            length: self.r13,
            list: self.r14,
            entries: self.r15,
            refs: self.rbx,
        }
    }

    /// The result of the call.
    #[inline]
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::from_word(self.rax)
    }

    /// Bytes of a register message received.
    #[inline]
    #[must_use]
    pub const fn short_len(&self) -> usize {
        ((self.rax >> 8) & 0xff) as usize
    }

    /// A word of a register message.
    ///
    /// # Panics
    /// If `n` is not below eight.
    #[inline]
    #[must_use]
    pub const fn word(&self, n: usize) -> u64 {
        self.short_words()[n]
    }

    /// The eight words of a register message.
    #[inline]
    #[must_use]
    pub const fn short_words(&self) -> [u64; 8] {
        [
            self.rsi, self.rdx, self.r10, self.r8, self.r9, self.r12, self.r13, self.r14,
        ]
    }
}

global_asm!(
    ".globl fermata_ipc",
    ".type fermata_ipc,@function",
    "fermata_ipc:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rdi",
    "mov rax, [rdi]",
    "mov rsi, [rdi + 0x10]",
    "mov rdx, [rdi + 0x18]",
    "mov r10, [rdi + 0x20]",
    "mov r8, [rdi + 0x28]",
    "mov r9, [rdi + 0x30]",
    "mov rbx, [rdi + 0x38]",
    "mov rbp, [rdi + 0x40]",
    "mov r12, [rdi + 0x48]",
    "mov r13, [rdi + 0x50]",
    "mov r14, [rdi + 0x58]",
    "mov r15, [rdi + 0x60]",
    "mov rdi, [rdi + 0x08]",
    crate::gate!(),
    "pop rcx",
    "mov [rcx], rax",
    "mov [rcx + 0x08], rdi",
    "mov [rcx + 0x10], rsi",
    "mov [rcx + 0x18], rdx",
    "mov [rcx + 0x20], r10",
    "mov [rcx + 0x28], r8",
    "mov [rcx + 0x30], r9",
    "mov [rcx + 0x38], rbx",
    "mov [rcx + 0x40], rbp",
    "mov [rcx + 0x48], r12",
    "mov [rcx + 0x50], r13",
    "mov [rcx + 0x58], r14",
    "mov [rcx + 0x60], r15",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".size fermata_ipc, . - fermata_ipc",
);

extern "C" {
    fn fermata_ipc(regs: *mut IpcRegs);
}

/// Makes the IPC call `call` (and any other that wants these registers). Puts the number into the low byte of `rax` and
/// leaves its other bytes as they are.
///
/// # Safety
/// The registers name memory that the call reads and writes: it must be valid, and what is written
/// must not be borrowed elsewhere.
#[inline]
pub unsafe fn ipc(call: Call, regs: &mut IpcRegs) -> Code {
    regs.rax = (regs.rax & !0xff) | call as u64;
    // SAFETY: the stub keeps the registers that a function must keep; the rest is promised by the
    // caller.
    unsafe { fermata_ipc(regs) };
    regs.code()
}

macro_rules! in_registers {
    ($word:expr, $at:expr, $words:expr, $before:literal, $after:literal, $($list:tt)*) => {{
        let words: Words = $words;
        let mut word: u64 = $word;
        let mut alias: u64 = $at;
        let mut came = [0; WORDS];
        asm!(
            "push rbx",
            $before,
            crate::gate!(),
            $after,
            "pop rbx",
            inlateout("rax") word,
            inlateout("rdi") alias,
            inlateout("rsi") words[0] => came[0],
            inlateout("rdx") words[1] => came[1],
            inlateout("r10") words[2] => came[2],
            inlateout("r8") words[3] => came[3],
            inlateout("r9") words[4] => came[4],
            inlateout("r12") words[5] => came[5],
            inlateout("r13") words[6] => came[6],
            inlateout("r14") words[7] => came[7],
            inlateout("r15") 0u64 => _,
            $($list)*,
            lateout("r11") _,
        );
        Came { word, alias, words: came }
    }};
}

/// Makes a call of the kernel whose messages travel in registers: `count` words are sent.
///
/// # Safety
/// The call is one of register messages, which writes no memory, and `at` is a parameter that it takes.
#[inline(always)]
#[must_use]
pub unsafe fn in_registers(call: Call, at: u64, words: Words, count: usize) -> Came {
    let word = with_count(call as u64, count);
    // SAFETY: the registers are those of register messages; no reference is sent or received. The stack and the
    // register that the compiler reserves for itself are unchanged.
    unsafe { in_registers!(word, at, words, "xor ebx, ebx", "", lateout("rcx") _) }
}

/// As [`in_registers()`], of the call with this word ([`with_count`]), and with a list ([`abi::ref_list`]) for
/// references to receive. Also returns what is left of the list (`refs_came` of the crate `interface` counts those
/// received).
///
/// # Safety
/// As there.
#[inline(always)]
#[must_use]
pub unsafe fn in_registers_with(word: u64, at: u64, words: Words, list: u64) -> (Came, u64) {
    let left;
    // SAFETY: as in `in_registers`, but for the references.
    let came = unsafe {
        in_registers!(word, at, words, "mov rbx, rcx", "mov rcx, rbx", inlateout("rcx") list => left)
    };
    (came, left)
}

/// The registers of a thread at `pc` that has this mark and this address to continue at.
pub(crate) fn guarded(pc: u64, mark: u64, at: u64) -> Registers {
    Registers {
        rip: pc,
        r14: mark,
        r15: at,
        ..Registers::default()
    }
}
