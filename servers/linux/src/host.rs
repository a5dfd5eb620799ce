//! What the emulation needs of the system that it runs on.
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

/// There is no physical memory left for what the process wants to touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// FPU state in the layout of `fxsave64`.
pub type Fpu = Box<FpuState>;

/// A task that is to be started.
pub struct Start {
    /// The task.
    pub task: Task,
    /// Its registers.
    pub registers: Registers,
    /// Its FPU state.
    pub fpu: Fpu,
    /// Whether it is in the memory of who starts it; else it gets a copy.
    pub in_memory: bool,
    /// Where its number is to stand in its memory.
    pub tid_at: Option<u64>,
}

/// How much physical memory there is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// All memory of the machine.
    pub total: u64,
    /// What is free for programs.
    pub free: u64,
}

/// The system, as one process uses it.
pub trait Host {
    /// Reads memory of the process. The range has been checked against its areas.
    fn read_memory(&mut self, address: u64, into: &mut [u8]) -> Result<(), OutOfMemory>;
    /// Writes memory of the process. The range has been checked against its areas, or the process
    /// is being loaded; the protection of the mapping does not matter.
    fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory>;
    /// Replaces the word at a multiple of four by `new` if it is `old`, in one step: what stood there.
    fn exchange(&mut self, address: u64, old: u32, new: u32) -> Result<u32, OutOfMemory>;
    /// Whether all pages of the range are there: whether they can be read without memory being taken for them.
    fn is_present(&mut self, address: u64, length: u64) -> bool;
    /// Gives the pages of the range back: they read as zero afterwards.
    fn discard(&mut self, start: u64, size: u64);
    /// Takes a debugger's breakpoints out of the memory while bytes are moved within it, or puts them back.
    fn hide_breakpoints(&mut self, hidden: bool) {
        let _ = hidden;
    }
    /// Makes the mapping of an area, in its slot, which is not in use.
    fn map(&mut self, area: &Area) -> Result<(), Errno>;
    /// Has a mapping that is in use show this area.
    fn remap(&mut self, area: &Area) -> Result<(), Errno>;
    /// Ends a mapping.
    fn unmap(&mut self, slot: u32);
    /// Makes a memory object, of as many zeros as an address space has bytes, which counts for who calls.
    fn new_object(&mut self, id: u64) -> Result<(), Errno>;
    /// A memory object of an image: the one with this number of those that were made for the tree that is being
    /// restored. Errors: `EIO` if there is none.
    fn adopt_object(&mut self, id: u64, number: usize) -> Result<(), Errno>;
    /// Ends a memory object, of which no mapping is left.
    fn end_object(&mut self, id: u64);
    /// Reads from a memory object.
    fn read_object(&mut self, id: u64, offset: u64, into: &mut [u8]) -> Result<(), OutOfMemory>;
    /// Writes to a memory object.
    fn write_object(&mut self, id: u64, offset: u64, bytes: &[u8]) -> Result<(), OutOfMemory>;
    /// Gives pages of a memory object back: they read as zero afterwards.
    fn discard_object(&mut self, id: u64, offset: u64, size: u64);
    /// Fails unless the server may take so many bytes of memory more until it waits again, for what it keeps or takes
    /// meanwhile: others may have taken all, and it would end if it needed more.
    fn room(&mut self, bytes: u64) -> Result<(), Errno>;
    /// How much memory there is.
    fn memory_usage(&mut self) -> MemoryUsage;

    /// Asks the file system. `bulk` goes with the request, the reply's bulk comes into `into`; its
    /// length is returned beside the reply. What the file system has not answered yet is an error, and [`Host::waits`] from then on:
    /// the call then changes nothing and is made again ([`crate::late`]). `Close` never waits, and is done when the call is.
    fn fs(
        &mut self,
        request: &crate::files::Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(crate::files::Reply, usize), proto::Error>;

    /// As [`Host::fs`], in the middle of something that cannot be begun again: all others wait with it.
    fn fs_now(
        &mut self,
        request: &crate::files::Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(crate::files::Reply, usize), proto::Error> {
        self.fs(request, bulk, into)
    }

    /// Whether the call that is being made waits for a file system.
    fn waits(&self) -> bool {
        false
    }

    /// What the call that is being made has asked the file system for at this place in its last attempt, if that had come so far.
    fn asked(&self) -> Option<&crate::files::Request> {
        None
    }

    /// The call of this task is made: what it asks for from now on is for the call, until [`Host::end_call`].
    fn begin_call(&mut self, tid: Tid) {
        let _ = tid;
    }

    /// The call has been made, and what it closed is closed unless it waits: whether it does. What its task asks for
    /// from now on is not for the call.
    fn end_call(&mut self) -> bool {
        false
    }

    /// Whether something was written to this file that may not be durable, and will be when it is closed.
    fn is_unsynced(&self, ino: u64) -> bool {
        let _ = ino;
        false
    }

    /// Whether the machine has a network: whether what is asked of it ([`crate::outside::Request`]) is done.
    fn has_network(&mut self) -> bool {
        false
    }

    /// Writes to the console what it takes now, at least one byte, else `WouldBlock`.
    fn console_write(&mut self, bytes: &[u8]) -> Result<usize, proto::Error>;
    /// Reads a piece of console input, a line at a time or ([`Mode::Raw`]) as it arrives; 0 at its end,
    /// `WouldBlock` when there is none yet.
    fn console_read(&mut self, into: &mut [u8], mode: Mode) -> Result<usize, proto::Error>;
    /// Whether [`Host::console_read`] would return something.
    fn console_readable(&mut self, mode: Mode) -> bool;
    /// Changes how the console treats input.
    fn console_mode(&mut self, mode: Mode);

    /// The machine's clock in nanoseconds.
    fn now(&mut self) -> u64;
    /// What makes the time of a process whose clock is [`Host::now`]; `None` if the processor's counter does not.
    fn clock(&mut self) -> Option<vdso::Clock> {
        None
    }
    /// The date: nanoseconds since the beginning of 1970, UTC.
    fn date(&mut self) -> u64;
    /// Random bytes, good for secrets if [`Host::gives_secrets`].
    fn random(&mut self, into: &mut [u8]) -> Result<(), Errno>;
    /// Whether the machine has random numbers of its processor's or a device's.
    fn gives_secrets(&mut self) -> Result<bool, Errno>;
    /// The processor's feature word (`cpuid` leaf 1, `edx`).
    fn hardware_capabilities(&mut self) -> u64;
    /// The FPU state of the thread whose call is being emulated.
    fn fpu(&mut self, into: &mut [u8; FPU_BYTES]);
    /// Writes a sentence about the process to the console.
    fn log(&mut self, sentence: &str);
    /// The same, if somebody wants to know what programs only try.
    fn note(&mut self, sentence: &str) {
        let _ = sentence;
    }
    /// Starts a task beside this one. Its process is known already. Errors: `ENOMEM`; then nothing has changed.
    fn start(&mut self, start: Start) -> Result<(), Errno>;
    /// Reads memory of a task that has stopped for its tracer. The range has been checked against its areas. Errors: `ESRCH`, `EIO`.
    fn read_peer(&mut self, tid: Tid, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let _ = (tid, address, into);
        Err(ESRCH)
    }
    /// Writes it, whatever the program itself may do there.
    fn write_peer(&mut self, tid: Tid, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let _ = (tid, address, bytes);
        Err(ESRCH)
    }
    /// The registers of such a task, and its FPU state.
    fn peer_state(&mut self, tid: Tid) -> Result<(Registers, Fpu), Errno> {
        let _ = tid;
        Err(ESRCH)
    }
    /// Sets them. Errors: `EIO` if no program could have them.
    fn set_peer_state(&mut self, tid: Tid, registers: &Registers, fpu: &Fpu) -> Result<(), Errno> {
        let _ = (tid, registers, fpu);
        Err(ESRCH)
    }
    /// Makes a memory that is going to be the process's ([`Host::leave_memory`]), unless there is one already: whether
    /// all that is loaded from `loaded` is there already; if not it is empty.
    fn stage(&mut self, loaded: Option<&Loaded>) -> Result<bool, Errno>;
    /// What was loaded from this is there, and nothing else yet: others may be made of it.
    fn keep_staged(&mut self, loaded: &Loaded) {
        let _ = loaded;
    }
    /// Gives up what was kept ([`Host::keep_staged`]), since memory is short: whether there was something.
    fn give_up_templates(&mut self) -> bool {
        false
    }
    /// Writes to that memory.
    fn write_staged(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory>;
    /// Ends that memory.
    fn unstage(&mut self);
    /// From now on the memory of the process is another one, that nobody shares with it: the one that was made for
    /// that, or one that is empty.
    fn leave_memory(&mut self) -> Result<(), Errno>;
}
