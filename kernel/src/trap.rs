//! The entry: the functions that the machine calls, and the dispatch of traps.

use crate::config::FULL;
use crate::ipc::keeper;
use crate::object::thread::Thread;
use crate::{irq, probe, syscall, Kernel};
use abi::state::Waiting;
use hal::mask::{self, Level};
use hal::{Context, Trap};

impl Kernel {
    /// Handles an interrupt that came while the processor worked at this priority (of the thread, or lent to it).
    fn note(&'static self, trap: Trap, priority: u8) {
        match trap {
            Trap::Irq(line) => irq::device(self, line),
            _ => irq::timer(self, priority),
        }
    }

    /// Takes the lock for the running thread, which enters the kernel for more than an interrupt. If this
    /// returns false, the thread waits for the lock.
    #[inline(always)]
    #[must_use]
    pub(crate) fn enter(&'static self, t: &'static Thread) -> bool {
        !FULL || self.take_lock(t)
    }

    fn take_lock(&'static self, t: &'static Thread) -> bool {
        if !self.lock.take(t) {
            t.wait_on(self.lock.waiters(), Waiting::Kernel);
            return false;
        }
        mask::restore(Level::None);
        true
    }

    /// Preempts the holder of the lock if a thread more important than it is ready. Called after an interrupt in
    /// the kernel has been handled.
    #[inline(always)]
    fn preempt(&'static self) {
        if !FULL {
            return;
        }
        let Some(t) = self.lock.holder() else {
            // The processor was idle, or in the core.
            return;
        };
        self.cpu().sched.keep_time_in_kernel(self);
        if !self.cpu().sched.is_above(self.lock.lent_to(t)) {
            return;
        }
        let slice_left = self.cpu().sched.slice_left();
        let Some(next) = self.cpu().sched.take_first(self) else {
            return;
        };
        self.lock.note_preempted(slice_left);
        self.preempt_holder(t, next);
    }

    /// Calls the running thread's continuation, at the beginning of its stack. Without one the thread goes on
    /// from its frame.
    fn resume_continuation(&'static self, t: &'static Thread) -> &'static Thread {
        let Some(continuation) = t.kept.take() else {
            return t;
        };
        // A chain of threads that are woken and wait again can run here without ever leaving the kernel. So pending
        // interrupts and what they raise come first, as at the end of a trap; the frame says how the thread goes on.
        if !FULL {
            hal::let_interrupts_in();
            if self.cpu().sched.pending(t) {
                return self.exit_trap(t);
            }
        }
        probe::enter(t);
        if !self.enter(t) {
            return self.exit_trap(t);
        }
        self.counters.begin(t);
        (continuation.function)(self, t, continuation.words)
    }
}

impl hal::Kernel for Kernel {
    type Thread = Thread;

    #[inline(always)]
    fn context(t: &'static Thread) -> &'static Context {
        &t.ctx
    }

    fn trap(&'static self, t: &'static Thread, trap: Trap) -> &'static Thread {
        probe::enter(t);
        let calls = matches!(trap, Trap::Exception { .. });
        if calls && !self.enter(t) {
            return self.exit_trap(t);
        }
        match trap {
            Trap::Syscall => self.syscall(t),
            Trap::PageFault {
                address,
                write,
                execute,
                present,
            } => self.page_fault(t, address, [write, execute, present]),
            Trap::Exception { vector, error } => keeper::processor(self, t, vector, error),
            Trap::Timer | Trap::Irq(_) => {
                self.note(trap, t.priority.get());
                self.exit_trap(t)
            }
        }
    }

    #[inline(always)]
    fn syscall(&'static self, t: &'static Thread) -> &'static Thread {
        probe::enter(t);
        if !self.enter(t) {
            return self.exit_trap(t);
        }
        self.counters.begin(t);
        syscall::HANDLERS[t.ctx.call().get() as u8 as usize](self, t)
    }

    #[inline(always)]
    fn page_fault(
        &'static self,
        t: &'static Thread,
        address: u64,
        [write, execute, _]: [bool; 3],
    ) -> &'static Thread {
        probe::enter(t);
        if !self.enter(t) {
            return self.exit_trap(t);
        }
        keeper::page(self, t, address, write, execute)
    }

    fn resume(&'static self, t: &'static Thread) -> &'static Thread {
        self.resume_continuation(t)
    }

    fn change_ports(&'static self, t: &'static Thread) {
        match t.space() {
            Some(space) => space.load_ports(self),
            None => hal::load_ports(0, &[]),
        }
    }

    fn interrupt(&'static self, trap: Trap) {
        // The processor is idle, or between two calls, or in a call of a thread to which waiters for the lock may
        // have lent their priority.
        self.note(trap, self.lock.priority());
        self.preempt();
    }
}
