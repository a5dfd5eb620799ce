//! The services that the emulation needs of the system below it.
//!
//! A [`Host`] acts for one process at a time. [`crate::emulate`] calls it only while it completes a
//! call (or finds that it cannot be completed yet), so everything that a host does is part of one
//! atomic step.

use alloc::boxed::Box;

use crate::errno::{Errno, ESRCH};
use crate::memory::Area;
use crate::process::Task;
use crate::system::Tid;
use crate::templates::Loaded;
use abi::state::{FpuState, FPU_BYTES};
use abi::Registers;
use services::console::Mode;

/// The memory account has no physical memory left for a page that the process needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// FPU state in the layout of `fxsave64`.
pub type Fpu = Box<FpuState>;

/// A task to be started.
pub struct Start {
    /// The task.
    pub task: Task,
    /// Its registers.
    pub registers: Registers,
    /// Its FPU state.
    pub fpu: Fpu,
    /// Whether it shares the memory of its creator; otherwise it gets a copy.
    pub in_memory: bool,
    /// Address in its memory at which its number is to be stored.
    pub tid_at: Option<u64>,
}

/// Physical memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// All memory of the machine.
    pub total: u64,
    /// Memory that is free for programs.
    pub free: u64,
}

/// The system as one process uses it.
pub trait Host {
    /// Reads memory of the process. The range has been checked against its areas.
    fn read_memory(&mut self, address: u64, into: &mut [u8]) -> Result<(), OutOfMemory>;
    /// Writes memory of the process. The range has been checked against its areas, or the process
    /// is being loaded; the protection of the mapping does not matter.
    fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory>;
    /// Stores `new` in the word at an address that is a multiple of four if the word is `old`, atomically. Returns the
    /// word's old value.
    fn exchange(&mut self, address: u64, old: u32, new: u32) -> Result<u32, OutOfMemory>;
    /// Whether all pages of the range are present, so that reading them takes no new memory.
    fn is_present(&mut self, address: u64, length: u64) -> bool;
    /// Frees the pages of the range, which reads as zero afterwards.
    fn discard(&mut self, start: u64, size: u64);
    /// Removes a debugger's breakpoints from the memory while bytes are moved within it, or puts them back.
    fn hide_breakpoints(&mut self, hidden: bool) {
        let _ = hidden;
    }
    /// Makes the mapping of an area in the area's slot, which must be free.
    fn map(&mut self, area: &Area) -> Result<(), Errno>;
    /// Changes an existing mapping to this area.
    fn remap(&mut self, area: &Area) -> Result<(), Errno>;
    /// Ends a mapping.
    fn unmap(&mut self, slot: u32);
    /// Makes a memory object of zeros, as large as an address space. It is charged to the calling process.
    fn new_object(&mut self, id: u64) -> Result<(), Errno>;
    /// Gives the identity `id` to memory object `number` of those that were made for the tree that is being restored.
    /// Errors: `EIO` if there is none.
    fn adopt_object(&mut self, id: u64, number: usize) -> Result<(), Errno>;
    /// Ends a memory object that has no mapping left.
    fn end_object(&mut self, id: u64);
    /// Reads from a memory object. Absent pages read as zeros and stay absent.
    fn read_object(&mut self, id: u64, offset: u64, into: &mut [u8]) -> Result<(), OutOfMemory>;
    /// Makes pages of a memory object present, so that writing to them takes no new memory.
    fn hold_object(&mut self, id: u64, offset: u64, length: u64) -> Result<(), OutOfMemory> {
        let _ = (id, offset, length);
        Ok(())
    }
    /// Writes to a memory object.
    fn write_object(&mut self, id: u64, offset: u64, bytes: &[u8]) -> Result<(), OutOfMemory>;
    /// Frees pages of a memory object, which read as zero afterwards.
    fn discard_object(&mut self, id: u64, offset: u64, size: u64);
    /// Fails unless the server can take `bytes` more bytes of memory before it next waits. Call it before the server
    /// allocates on behalf of a program: programs may have used up all memory, and a failed allocation ends the server.
    fn room(&mut self, bytes: u64) -> Result<(), Errno>;
    /// The machine's total and free memory.
    fn memory_usage(&mut self) -> MemoryUsage;

    /// Sends a request to the file system. `bulk` goes with the request, the reply's bulk comes into `into`; its length
    /// is returned beside the reply. If the file system has not answered yet the result is an error, and
    /// [`Host::waits`] is true from then on: the call then changes nothing and is made again ([`crate::late`]). `Close`
    /// never waits, and is done when the call is.
    fn fs(
        &mut self,
        request: &crate::files::Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(crate::files::Reply, usize), proto::Error>;

    /// As [`Host::fs`], for a call that cannot be begun again: the whole server waits for the answer.
    fn fs_now(
        &mut self,
        request: &crate::files::Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(crate::files::Reply, usize), proto::Error> {
        self.fs(request, bulk, into)
    }

    /// Whether the current call waits for a file system.
    fn waits(&self) -> bool {
        false
    }

    /// The request that the current call made at this point of its last attempt, if that attempt came this far.
    fn asked(&self) -> Option<&crate::files::Request> {
        None
    }

    /// The call of this task begins. Requests to the file system belong to it until [`Host::end_call`].
    fn begin_call(&mut self, tid: Tid) {
        let _ = tid;
    }

    /// The current call ends; returns whether it waits. Unless it does, the files that it closed are closed. Later
    /// requests to the file system do not belong to it.
    fn end_call(&mut self) -> bool {
        false
    }

    /// Whether this file has writes that may not be durable yet, and that closing it makes durable.
    fn is_unsynced(&self, ino: u64) -> bool {
        let _ = ino;
        false
    }

    /// Whether the machine has a network, so that a [`crate::outside::Request`] can be carried out.
    fn has_network(&mut self) -> bool {
        false
    }

    /// Writes as many bytes to the console as it takes without waiting, at least one. Errors: `WouldBlock`.
    fn console_write(&mut self, bytes: &[u8]) -> Result<usize, proto::Error>;
    /// Reads console input, a line at a time or ([`Mode::Raw`]) as it arrives; 0 bytes at the end of the input. Errors:
    /// `WouldBlock` if there is none yet.
    fn console_read(&mut self, into: &mut [u8], mode: Mode) -> Result<usize, proto::Error>;
    /// Whether [`Host::console_read`] would return without `WouldBlock`.
    fn console_readable(&mut self, mode: Mode) -> bool;
    /// Changes how the console treats input.
    fn console_mode(&mut self, mode: Mode);

    /// The machine's clock in nanoseconds.
    fn now(&mut self) -> u64;
    /// What the vDSO needs to compute [`Host::now`] from the processor's counter; `None` if the counter cannot be used.
    fn clock(&mut self) -> Option<vdso::Clock> {
        None
    }
    /// The date: nanoseconds since the beginning of 1970, UTC.
    fn date(&mut self) -> u64;
    /// Random bytes, good for secrets if [`Host::gives_secrets`].
    fn random(&mut self, into: &mut [u8]) -> Result<(), Errno>;
    /// Whether the machine has a source of random numbers, in its processor or a device.
    fn gives_secrets(&mut self) -> Result<bool, Errno>;
    /// The processor's feature word (`cpuid` leaf 1, `edx`).
    fn hardware_capabilities(&mut self) -> u64;
    /// The FPU state of the thread whose call is being emulated.
    fn fpu(&mut self, into: &mut [u8; FPU_BYTES]);
    /// Writes a sentence about the process to the console.
    fn log(&mut self, sentence: &str);
    /// Writes a sentence about something that a program has merely tried to the console, if such messages are wanted.
    fn note(&mut self, sentence: &str) {
        let _ = sentence;
    }
    /// Starts a task. Its process is in the table already. Errors: `ENOMEM`; then nothing has changed.
    fn start(&mut self, start: Start) -> Result<(), Errno>;
    /// Reads memory of a task that is stopped for its tracer. The range has been checked against its areas. Errors:
    /// `ESRCH`, `EIO`.
    fn read_peer(&mut self, tid: Tid, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let _ = (tid, address, into);
        Err(ESRCH)
    }
    /// Writes memory of such a task, whatever the protection of the mapping.
    fn write_peer(&mut self, tid: Tid, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let _ = (tid, address, bytes);
        Err(ESRCH)
    }
    /// The registers and FPU state of a task that is stopped for its tracer. Errors: `ESRCH`.
    fn peer_state(&mut self, tid: Tid) -> Result<(Registers, Fpu), Errno> {
        let _ = tid;
        Err(ESRCH)
    }
    /// Sets registers and FPU state of such a task. Errors: `ESRCH`; `EIO` if no program could have them.
    fn set_peer_state(&mut self, tid: Tid, registers: &Registers, fpu: &Fpu) -> Result<(), Errno> {
        let _ = (tid, registers, fpu);
        Err(ESRCH)
    }
    /// Makes the staged memory, which [`Host::leave_memory`] makes the process's, unless there is one. Returns whether
    /// it is a copy of the template of `loaded`; otherwise it is empty.
    fn stage(&mut self, loaded: Option<&Loaded>) -> Result<bool, Errno>;
    /// Lets the host make a template of the staged memory, which has what was loaded from `loaded` and nothing else.
    fn keep_staged(&mut self, loaded: &Loaded) {
        let _ = loaded;
    }
    /// Gives up templates ([`Host::keep_staged`]) because memory is short; returns whether there were any.
    fn give_up_templates(&mut self) -> bool {
        false
    }
    /// Writes to the staged memory.
    fn write_staged(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory>;
    /// Ends the staged memory.
    fn unstage(&mut self);
    /// Replaces the memory of the process by one that it shares with nobody: the staged one, or an empty one.
    fn leave_memory(&mut self) -> Result<(), Errno>;
}
