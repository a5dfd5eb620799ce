//! One function per kernel call.
//!
//! The documentation of each call stands in its row of [`abi::syscalls`]. Handles and addresses are
//! plain numbers here; [`crate::obj`] wraps them in owned types. Ordinary calls are inline; the IPC
//! calls use the register map of the widest call, [`IpcRegs`], and go through one assembly stub
//! ([`ipc`]).
use abi::state::{
    MappingState, MutexState, PortState, ReferenceState, RegionState, SpaceState, ThreadState,
};
use abi::{Call, Code, RefKind};
use core::arch::{asm, global_asm};

/// What an ordinary call returns.
#[derive(Clone, Copy, Debug)]
pub struct Returned {
    /// The result.
    pub code: Code,
    /// `rdi` on return.
    pub rdi: u64,
    /// `rsi` on return.
    pub rsi: u64,
    /// `r8` on return.
    pub r8: u64,
}

/// Makes an ordinary call with parameters in `rdi rsi rdx r10 r8 r9`.
///
/// # Safety
/// The call may write to memory that its parameters name, or change what is mapped where: the
/// caller answers for that.
#[inline(always)]
pub unsafe fn syscall(call: Call, p: [u64; 6]) -> Returned {
    let (rax, rdi, rsi, r8): (u64, u64, u64, u64);
    // SAFETY: the kernel keeps all registers but those named here, and does not touch the stack.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") call as u64 => rax,
            inlateout("rdi") p[0] => rdi,
            inlateout("rsi") p[1] => rsi,
            inlateout("rdx") p[2] => _,
            inlateout("r10") p[3] => _,
            inlateout("r8") p[4] => r8,
            inlateout("r9") p[5] => _,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    Returned {
        code: Code::from_word(rax),
        rdi,
        rsi,
        r8,
    }
}

fn to<T>(state: &mut T) -> u64 {
    core::ptr::from_mut(state) as u64
}

fn from<T>(state: &T) -> u64 {
    core::ptr::from_ref(state) as u64
}

/// The calls that every type has with the same parameters.
macro_rules! common {
    ($($object:ident: $create:ident $Create:ident, $destroy:ident $Destroy:ident,
        $relocate:ident $Relocate:ident, $reference:ident $Reference:ident;)*) => {$(
        #[doc = concat!("Creates a ", stringify!($object), " at the address.")]
        /// `identity` is a kept identity or 0.
        #[inline]
        pub fn $create(address: u64, identity: u64) -> Code {
            // SAFETY: the 16 bytes at the handle become the kernel's; no Rust object lives there,
            // since handles come from the object slab or from memory that the caller manages for
            // objects.
            unsafe { syscall(Call::$Create, [address, identity, 0, 0, 0, 0]) }.code
        }

        #[doc = concat!("Destroys the ", stringify!($object), ".")]
        /// `identity` is a reference that keeps its identity, or 0.
        #[inline]
        pub fn $destroy(handle: u64, identity: u64) -> Code {
            // SAFETY: changes nothing but the object.
            unsafe { syscall(Call::$Destroy, [handle, identity, 0, 0, 0, 0]) }.code
        }

        #[doc = concat!("Moves the ", stringify!($object), " to the address `to`.")]
        #[inline]
        pub fn $relocate(handle: u64, to: u64) -> Code {
            // SAFETY: as for its creation.
            unsafe { syscall(Call::$Relocate, [handle, to, 0, 0, 0, 0]) }.code
        }

        #[doc = concat!("Points the reference at the ", stringify!($object), ".")]
        #[inline]
        pub fn $reference(handle: u64, to_reference: u64) -> Code {
            // SAFETY: changes nothing but the reference.
            unsafe { syscall(Call::$Reference, [handle, to_reference, 0, 0, 0, 0]) }.code
        }
    )*};
}

common! {
    mutex: mutex_create MutexCreate, mutex_destroy MutexDestroy, mutex_move MutexMove, mutex_reference MutexReference;
    cond: cond_create CondCreate, cond_destroy CondDestroy, cond_move CondMove, cond_reference CondReference;
    mapping: mapping_create MappingCreate, mapping_destroy MappingDestroy, mapping_move MappingMove, mapping_reference MappingReference;
    region: region_create RegionCreate, region_destroy RegionDestroy, region_move RegionMove, region_reference RegionReference;
    port: port_create PortCreate, port_destroy PortDestroy, port_move PortMove, port_reference PortReference;
    portset: portset_create PortsetCreate, portset_destroy PortsetDestroy, portset_move PortsetMove, portset_reference PortsetReference;
    space: space_create SpaceCreate, space_destroy SpaceDestroy, space_move SpaceMove, space_reference SpaceReference;
    thread: thread_create ThreadCreate, thread_destroy ThreadDestroy, thread_move ThreadMove, thread_reference ThreadReference;
    reference: reference_create ReferenceCreate, reference_destroy ReferenceDestroy, reference_move ReferenceMove, reference_reference ReferenceReference;
}

/// Reads the state of the mutex.
#[inline]
pub fn mutex_get_state(mutex: u64, state: &mut MutexState) -> Code {
    // SAFETY: `state` is exclusively borrowed and every bit pattern is valid for it.
    unsafe { syscall(Call::MutexGetState, [mutex, to(state), 0, 0, 0, 0]) }.code
}

/// Sets the state of the mutex.
#[inline]
pub fn mutex_set_state(mutex: u64, state: &MutexState) -> Code {
    // SAFETY: `state` is only read. What the new state does to memory is the caller's affair.
    unsafe { syscall(Call::MutexSetState, [mutex, from(state), 0, 0, 0, 0]) }.code
}

/// Reads the state of the cond, which is empty.
#[inline]
pub fn cond_get_state(cond: u64) -> Code {
    // SAFETY: writes nothing.
    unsafe { syscall(Call::CondGetState, [cond, 0, 0, 0, 0, 0]) }.code
}

/// Opens a vacant identity that got a new body.
#[inline]
pub fn cond_set_state(cond: u64) -> Code {
    // SAFETY: reads nothing.
    unsafe { syscall(Call::CondSetState, [cond, 0, 0, 0, 0, 0]) }.code
}

/// Reads the state of the mapping. References that are not wanted are 0.
#[inline]
pub fn mapping_get_state(mapping: u64, state: &mut MappingState, region: u64, space: u64) -> Code {
    // SAFETY: `state` is exclusively borrowed and every bit pattern is valid for it.
    unsafe {
        syscall(
            Call::MappingGetState,
            [mapping, to(state), region, space, 0, 0],
        )
    }
    .code
}

/// Sets the state of the mapping. References that are not given are 0.
#[inline]
pub fn mapping_set_state(mapping: u64, state: &MappingState, region: u64, space: u64) -> Code {
    // SAFETY: `state` is only read. What the new state does to memory is the caller's affair.
    unsafe {
        syscall(
            Call::MappingSetState,
            [mapping, from(state), region, space, 0, 0],
        )
    }
    .code
}

/// Reads the state of the region. References that are not wanted are 0.
#[inline]
pub fn region_get_state(region: u64, state: &mut RegionState, space: u64, keeper: u64) -> Code {
    // SAFETY: `state` is exclusively borrowed and every bit pattern is valid for it.
    unsafe {
        syscall(
            Call::RegionGetState,
            [region, to(state), space, keeper, 0, 0],
        )
    }
    .code
}

/// Sets the state of the region. References that are not given are 0.
#[inline]
pub fn region_set_state(region: u64, state: &RegionState, space: u64, keeper: u64) -> Code {
    // SAFETY: `state` is only read. What the new state does to memory is the caller's affair.
    unsafe {
        syscall(
            Call::RegionSetState,
            [region, from(state), space, keeper, 0, 0],
        )
    }
    .code
}

/// Reads the state of the port. References that are not wanted are 0.
#[inline]
pub fn port_get_state(port: u64, state: &mut PortState, portset: u64) -> Code {
    // SAFETY: `state` is exclusively borrowed and every bit pattern is valid for it.
    unsafe { syscall(Call::PortGetState, [port, to(state), portset, 0, 0, 0]) }.code
}

/// Sets the state of the port. References that are not given are 0.
#[inline]
pub fn port_set_state(port: u64, state: &PortState, portset: u64) -> Code {
    // SAFETY: `state` is only read. What the new state does to memory is the caller's affair.
    unsafe { syscall(Call::PortSetState, [port, from(state), portset, 0, 0, 0]) }.code
}

/// Reads the state of the portset, which is empty.
#[inline]
pub fn portset_get_state(portset: u64) -> Code {
    // SAFETY: writes nothing.
    unsafe { syscall(Call::PortsetGetState, [portset, 0, 0, 0, 0, 0]) }.code
}

/// Opens a vacant identity that got a new body.
#[inline]
pub fn portset_set_state(portset: u64) -> Code {
    // SAFETY: reads nothing.
    unsafe { syscall(Call::PortsetSetState, [portset, 0, 0, 0, 0, 0]) }.code
}

/// Reads the state of the space. References that are not wanted are 0.
#[inline]
pub fn space_get_state(space: u64, state: &mut SpaceState, keeper: u64) -> Code {
    // SAFETY: `state` is exclusively borrowed and every bit pattern is valid for it.
    unsafe { syscall(Call::SpaceGetState, [space, to(state), keeper, 0, 0, 0]) }.code
}

/// Sets the state of the space. References that are not given are 0.
#[inline]
pub fn space_set_state(space: u64, state: &SpaceState, keeper: u64) -> Code {
    // SAFETY: `state` is only read. What the new state does to memory is the caller's affair.
    unsafe { syscall(Call::SpaceSetState, [space, from(state), keeper, 0, 0, 0]) }.code
}

/// Reads the state of the thread. References that are not wanted are 0.
#[inline]
pub fn thread_get_state(
    thread: u64,
    state: &mut ThreadState,
    space: u64,
    client_end: u64,
    server_end: u64,
) -> Code {
    // SAFETY: `state` is exclusively borrowed and every bit pattern is valid for it.
    unsafe {
        syscall(
            Call::ThreadGetState,
            [thread, to(state), space, client_end, server_end, 0],
        )
    }
    .code
}

/// Sets the state of the thread. References that are not given are 0.
#[inline]
pub fn thread_set_state(
    thread: u64,
    state: &ThreadState,
    space: u64,
    client_end: u64,
    server_end: u64,
) -> Code {
    // SAFETY: `state` is only read. What the new state does to memory is the caller's affair.
    unsafe {
        syscall(
            Call::ThreadSetState,
            [thread, from(state), space, client_end, server_end, 0],
        )
    }
    .code
}

/// Reads the state of the reference. References that are not wanted are 0.
#[inline]
pub fn reference_get_state(reference: u64, state: &mut ReferenceState, target: u64) -> Code {
    // SAFETY: `state` is exclusively borrowed and every bit pattern is valid for it.
    unsafe {
        syscall(
            Call::ReferenceGetState,
            [reference, to(state), target, 0, 0, 0],
        )
    }
    .code
}

/// Sets the state of the reference. References that are not given are 0.
#[inline]
pub fn reference_set_state(reference: u64, state: &ReferenceState, target: u64) -> Code {
    // SAFETY: `state` is only read. What the new state does to memory is the caller's affair.
    unsafe {
        syscall(
            Call::ReferenceSetState,
            [reference, from(state), target, 0, 0, 0],
        )
    }
    .code
}

/// Locks the mutex, waiting while it is locked.
#[inline]
pub fn mutex_lock(mutex: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::MutexLock, [mutex, 0, 0, 0, 0, 0]) }.code
}

/// Locks the mutex if it is free.
#[inline]
pub fn mutex_trylock(mutex: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::MutexTrylock, [mutex, 0, 0, 0, 0, 0]) }.code
}

/// Unlocks the mutex.
#[inline]
pub fn mutex_unlock(mutex: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::MutexUnlock, [mutex, 0, 0, 0, 0, 0]) }.code
}

/// Unlocks the mutex, waits for the condition, locks the mutex again.
#[inline]
pub fn cond_wait(cond: u64, mutex: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::CondWait, [cond, mutex, 0, 0, 0, 0]) }.code
}

/// As `cond_wait`, but no longer than the deadline.
#[inline]
pub fn cond_wait_until(cond: u64, mutex: u64, deadline: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::CondWaitUntil, [cond, mutex, deadline, 0, 0, 0]) }.code
}

/// Wakes one waiter.
#[inline]
pub fn cond_signal(cond: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::CondSignal, [cond, 0, 0, 0, 0, 0]) }.code
}

/// Wakes all waiters.
#[inline]
pub fn cond_broadcast(cond: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::CondBroadcast, [cond, 0, 0, 0, 0, 0]) }.code
}

/// Changes the rights of the mapping.
#[inline]
pub fn mapping_protect(mapping: u64, protection: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::MappingProtect, [mapping, protection, 0, 0, 0, 0]) }.code
}

/// Changes the most that mappings of the region can allow.
#[inline]
pub fn region_protect(region: u64, protection: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::RegionProtect, [region, protection, 0, 0, 0, 0]) }.code
}

/// Lets the next thread of the same priority run.
#[inline]
pub fn thread_yield() -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ThreadYield, [0, 0, 0, 0, 0, 0]) }.code
}

/// Waits for the deadline.
#[inline]
pub fn thread_sleep_until(deadline: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ThreadSleepUntil, [deadline, 0, 0, 0, 0, 0]) }.code
}

/// Adds one to the thread's stop count.
#[inline]
pub fn thread_stop(thread: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ThreadStop, [thread, 0, 0, 0, 0, 0]) }.code
}

/// Takes one from the thread's stop count.
#[inline]
pub fn thread_resume(thread: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ThreadResume, [thread, 0, 0, 0, 0, 0]) }.code
}

/// Makes an interrupt pending; `thread` is a reference.
#[inline]
pub fn thread_interrupt(thread: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ThreadInterrupt, [thread, 0, 0, 0, 0, 0]) }.code
}

/// Waits until an interrupt is pending and takes it.
#[inline]
pub fn thread_wait_interrupt() -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ThreadWaitInterrupt, [0, 0, 0, 0, 0, 0]) }.code
}

/// As `thread_wait_interrupt`, but no longer than the deadline.
#[inline]
pub fn thread_wait_interrupt_until(deadline: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ThreadWaitInterruptUntil, [deadline, 0, 0, 0, 0, 0]) }.code
}

/// Sets the scheduling priority.
#[inline]
pub fn thread_set_priority(thread: u64, priority: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ThreadSetPriority, [thread, priority, 0, 0, 0, 0]) }.code
}

/// Points the reference at the thread's client end.
#[inline]
pub fn thread_reference_client_end(thread: u64, reference: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe {
        syscall(
            Call::ThreadReferenceClientEnd,
            [thread, reference, 0, 0, 0, 0],
        )
    }
    .code
}

/// Points the reference at the thread's server end.
#[inline]
pub fn thread_reference_server_end(thread: u64, reference: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe {
        syscall(
            Call::ThreadReferenceServerEnd,
            [thread, reference, 0, 0, 0, 0],
        )
    }
    .code
}

/// Whether both references name the same object.
#[inline]
pub fn reference_equal(reference: u64, other: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ReferenceEqual, [reference, other, 0, 0, 0, 0]) }.code
}

/// Turns interrupts of the line into thread interrupts.
#[inline]
pub fn device_attach_interrupt(authority: u64, thread: u64, line: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe {
        syscall(
            Call::DeviceAttachInterrupt,
            [authority, thread, line, 0, 0, 0],
        )
    }
    .code
}

/// Lets the space use I/O ports.
#[inline]
pub fn device_grant_ports(authority: u64, space: u64, first: u64, count: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe {
        syscall(
            Call::DeviceGrantPorts,
            [authority, space, first, count, 0, 0],
        )
    }
    .code
}

/// Makes the region export device memory.
#[inline]
pub fn device_map_physical(authority: u64, region: u64, start: u64, size: u64) -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe {
        syscall(
            Call::DeviceMapPhysical,
            [authority, region, start, size, 0, 0],
        )
    }
    .code
}

/// Ends the client's connection.
#[inline]
pub fn client_disconnect() -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ClientDisconnect, [0, 0, 0, 0, 0, 0]) }.code
}

/// Ends the server's connection.
#[inline]
pub fn server_disconnect() -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ServerDisconnect, [0, 0, 0, 0, 0, 0]) }.code
}

/// Lets go of an exception without answering it.
#[inline]
pub fn server_release() -> Code {
    // SAFETY: the call writes to no memory of the caller's.
    unsafe { syscall(Call::ServerRelease, [0, 0, 0, 0, 0, 0]) }.code
}

/// Looks in `offset..end` of the region for the next object whose type is in `kinds` (bit n for
/// type n), or with bit 0 for the next present page: its offset and type (0 for a page).
#[inline]
pub fn region_search(region: u64, offset: u64, end: u64, kinds: u64) -> Result<(u64, u64), Code> {
    // SAFETY: the call writes to no memory of the caller's.
    let r = unsafe { syscall(Call::RegionSearch, [region, offset, end, kinds, 0, 0]) };
    match r.code {
        Code::Ok => Ok((r.rsi, r.r8)),
        code => Err(code),
    }
}

/// The calling thread's tag.
#[inline]
pub fn thread_self() -> u64 {
    // SAFETY: the call writes to no memory.
    unsafe { syscall(Call::ThreadSelf, [0; 6]) }.rdi
}

/// The space's clock, in nanoseconds.
#[inline]
pub fn clock_get() -> u64 {
    // SAFETY: the call writes to no memory.
    unsafe { syscall(Call::ClockGet, [0; 6]) }.rdi
}

/// The kind of what the reference names, if that is alive or vacant.
#[inline]
pub fn reference_check(reference: u64) -> Result<RefKind, Code> {
    // SAFETY: the call writes to no memory.
    let r = unsafe { syscall(Call::ReferenceCheck, [reference, 0, 0, 0, 0, 0]) };
    match r.code {
        Code::Ok => RefKind::from_raw(r.rdi).ok_or(Code::Dead),
        code => Err(code),
    }
}

/// The registers of an IPC call; the map is in [`abi::syscalls`].
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

impl IpcRegs {
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
    "syscall",
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

/// Makes the IPC call `call` (and any other that wants these registers). The number is put into
/// the low byte of `rax`; what else stands there stays.
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
