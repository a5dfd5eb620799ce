//! Threads that make one call each and may never come back from it.

use super::error;
use abi::state::{Registers, ThreadState};
use abi::Call;
use alloc::boxed::Box;
use alloc::vec::Vec;
use proto::Error;
use rt::obj::{Ref, Thread};
use rt::sys::{self, IpcRegs};

/// The parameters of such a thread.
struct ThreadCall {
    call: Call,
    regs: IpcRegs,
    /// Set when the call returns.
    code: core::sync::atomic::AtomicU64,
}

/// Bytes of its stack.
const STACK: usize = 4096;
/// The value while the call has not returned.
const AWAY: u64 = u64::MAX;

/// A thread that makes one call. Dropping it destroys it wherever it is.
pub struct PendingCall {
    thread: Thread,
    made: Box<ThreadCall>,
    _stack: Vec<u64>,
    /// References that the call uses.
    _held: Vec<Ref>,
}

/// Does something to a thread in the middle of its call.
pub type Way = fn(&PendingCall) -> Result<(), Error>;

/// Ways to hold a thread in the middle of its call.
pub const WAYS: [(&str, Way); 4] = [
    ("as it is", |_| Ok(())),
    ("stopped", |pending| pending.thread.stop().map_err(error)),
    ("vacant", PendingCall::vacate),
    ("gone", |pending| pending.thread.destroy().map_err(error)),
];

impl PendingCall {
    /// A thread that begins the call.
    ///
    /// # Safety
    /// What the registers name must exist as long as the thread, and must not be borrowed.
    pub unsafe fn new(call: Call, regs: IpcRegs, held: Vec<Ref>) -> Result<Self, Error> {
        let made = Box::new(ThreadCall {
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
                core::ptr::from_ref(&*made) as u64,
            ),
            priority: rt::start::priority(),
            ..ThreadState::default()
        };
        thread.set_state(&state, 0, 0, 0).map_err(error)?;
        thread.resume().map_err(error)?;
        Ok(PendingCall {
            thread,
            made,
            _stack: stack,
            _held: held,
        })
    }

    /// Whether the call has not returned.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.made.code.load(core::sync::atomic::Ordering::Relaxed) == AWAY
    }

    /// The result of the call, if it has returned.
    #[must_use]
    pub fn code(&self) -> Option<abi::Code> {
        let code = self.made.code.load(core::sync::atomic::Ordering::Relaxed);
        (code != AWAY).then(|| abi::Code::from_raw(code)).flatten()
    }

    /// Destroys the thread's body and keeps its identity; calls that use the thread wait.
    fn vacate(&self) -> Result<(), Error> {
        let keeper = Ref::new().map_err(error)?;
        rt::obj::done(sys::thread_destroy(self.thread.handle(), keeper.handle())).map_err(error)?;
        core::mem::forget(keeper);
        Ok(())
    }
}

extern "C" fn run(made: *const ThreadCall) -> ! {
    // SAFETY: it lives longer than the thread.
    let made = unsafe { &*made };
    let mut regs = made.regs;
    // SAFETY: as promised to `new`.
    let code = unsafe { sys::ipc(made.call, &mut regs) };
    made.code
        .store(code as u64, core::sync::atomic::Ordering::Relaxed);
    loop {
        sys::thread_wait_interrupt();
    }
}
