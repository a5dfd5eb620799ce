//! Threads that make one call each and may never come back from it.

use super::error;
use abi::state::{Registers, ThreadState};
use abi::Call;
use alloc::boxed::Box;
use alloc::vec::Vec;
use proto::Error;
use rt::obj::{Ref, Thread};
use rt::sys::{self, IpcRegs};

/// What such a thread is given.
struct Errand {
    call: Call,
    regs: IpcRegs,
    /// Set when it comes back.
    code: core::sync::atomic::AtomicU64,
}

/// Bytes of its stack.
const STACK: usize = 4096;
/// While the call has not come back.
const AWAY: u64 = u64::MAX;

/// A thread that makes one call. Dropping it destroys it wherever it is.
pub struct Stuck {
    thread: Thread,
    errand: Box<Errand>,
    _stack: Vec<u64>,
    /// What the call uses.
    _held: Vec<Ref>,
}

/// What is done to a thread in the middle of its call.
pub type Way = fn(&Stuck) -> Result<(), Error>;

/// Ways to hold a thread in the middle of its call.
pub const WAYS: [(&str, Way); 4] = [
    ("as it is", |_| Ok(())),
    ("stopped", |stuck| stuck.thread.stop().map_err(error)),
    ("vacant", Stuck::vacate),
    ("gone", |stuck| stuck.thread.destroy().map_err(error)),
];

impl Stuck {
    /// A thread that begins the call.
    ///
    /// # Safety
    /// What the registers name must be there for as long as the thread, and must not be borrowed.
    pub unsafe fn new(call: Call, regs: IpcRegs, held: Vec<Ref>) -> Result<Self, Error> {
        let errand = Box::new(Errand {
            call,
            regs,
            code: core::sync::atomic::AtomicU64::new(AWAY),
        });
        let stack = alloc::vec![0u64; STACK / 8];
        let thread = Thread::new().map_err(error)?;
        let top = (stack.as_ptr() as u64 + STACK as u64) & !15;
        let state = ThreadState {
            registers: Registers::starting(
                run as *const () as u64,
                // As after a call.
                top - 8,
                core::ptr::from_ref(&*errand) as u64,
            ),
            priority: rt::start::priority(),
            ..ThreadState::default()
        };
        thread.set_state(&state, 0, 0, 0).map_err(error)?;
        thread.resume().map_err(error)?;
        Ok(Stuck {
            thread,
            errand,
            _stack: stack,
            _held: held,
        })
    }

    /// Whether the call has not come back.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.errand.code.load(core::sync::atomic::Ordering::Relaxed) == AWAY
    }

    /// Takes the thread's body; its identity stays, and whatever names it waits for it.
    fn vacate(&self) -> Result<(), Error> {
        let keeper = Ref::new().map_err(error)?;
        rt::obj::done(sys::thread_destroy(self.thread.handle(), keeper.handle())).map_err(error)?;
        core::mem::forget(keeper);
        Ok(())
    }
}

extern "C" fn run(errand: *const Errand) -> ! {
    // SAFETY: it lives longer than the thread.
    let errand = unsafe { &*errand };
    let mut regs = errand.regs;
    // SAFETY: as promised to `new`.
    let code = unsafe { sys::ipc(errand.call, &mut regs) };
    errand
        .code
        .store(code as u64, core::sync::atomic::Ordering::Relaxed);
    loop {
        sys::thread_wait_interrupt();
    }
}
