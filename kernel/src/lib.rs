//! The Fermata kernel: all of its logic, and none of its machine.
//!
//! This crate knows no register of a processor and contains no unsafe code; it asks `hal` for
//! what a machine does, and runs as well on the simulated machine of the host.
//!
//! A trap comes in at [`Kernel::trap`]. The frame of the thread is all that a handler gets and all
//! that it leaves behind (rule A1). Handlers check everything first, then change things and cannot
//! fail any more (A2); what stops them on the way is a [`Stop`], what steers the dispatcher
//! afterwards an [`Outcome`] (A4).
//!
//! The rooms: `syscall` decodes and doubts arguments, `object` holds the nine types, `ipc` moves
//! messages, `memory` walks the mapping hierarchy, `fault` talks to keepers, `wait` and `sched`
//! decide who runs, `exec` knows what becomes of the stack.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

#[cfg(any(test, fermata_probe))]
mod check;
mod config;
mod exec;
mod fault;
mod first;
mod ipc;
mod irq;
mod memory;
mod object;
mod probe;
mod sched;
mod syscall;
mod treap;
mod wait;

#[cfg(test)]
mod test;

pub use config::{Config, CONFIG};
pub use first::{FirstMapping, FirstSpace};
pub use object::thread::Thread;

use abi::{Code, Exception};
use core::cell::Cell;
use hal::{Context, NarrowCell, Trap};
use memory::{Access, Fault};
use object::account::Accounts;
use object::cond::Cond;
use object::mapping::Mapping;
use object::mutex::Mutex;
use object::port::{Notices, Port, Portset};
use object::reference::Reference;
use object::region::Region;
use object::space::Space;
use object::thread::Run;
use object::{Handles, Header, Next, Table, Vacancies};
use wait::Deadlines;

/// The kernel, as everything in it is reached.
pub(crate) type K = &'static Kernel;

/// All state of the kernel.
pub struct Kernel {
    mutexes: Table<Mutex>,
    conds: Table<Cond>,
    mappings: Table<Mapping>,
    regions: Table<Region>,
    ports: Table<Port>,
    portsets: Table<Portset>,
    spaces: Table<Space>,
    threads: Table<Thread>,
    references: Table<Reference>,
    /// What stands for no space. Nothing has its epoch.
    nowhere: &'static Space,
    no_mapping: &'static Mapping,
    handles: AllHandles,
    accounts: Accounts,
    /// For each frame the first object in it.
    frames: &'static [Next],
    sched: sched::Scheduler,
    deadlines: Deadlines,
    vacancies: Vacancies,
    notices: Notices,
    irqs: irq::Irqs,
    lock: exec::Lock,
    stacks: exec::Stacks,
    counters: exec::counters::Counters,
    forgotten: exec::Forgotten,
    /// Next space whose page table is given up when table pages are out.
    table_hand: Cell<usize>,
    seed: Cell<u32>,
    epochs: Cell<u64>,
}

/// Where handles were last found.
struct AllHandles {
    mutexes: Handles<Mutex>,
    conds: Handles<Cond>,
    mappings: Handles<Mapping>,
    regions: Handles<Region>,
    ports: Handles<Port>,
    portsets: Handles<Portset>,
    spaces: Handles<Space>,
    threads: Handles<Thread>,
    references: Handles<Reference>,
}

/// What stops a handler before it has changed anything.
pub(crate) enum Stop {
    /// A page is not there.
    Fault(Fault),
    /// The kernel would have to touch device memory for the program.
    Device(u64, Access),
    /// Wrong use: an exception for the thread's keeper.
    Exception(Exception, u64),
    /// This identity is vacant: wait until it has a body, or is dead.
    Vacant(&'static Header),
    /// A condition that a correct program can meet.
    Code(Code),
    /// Enough for once: the frame tells how to go on.
    Again,
    /// The probe of a kernel for cut tests wants the call to stop here.
    Cut,
}

/// What a handler tells the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The frame holds the result.
    Done,
    /// The thread has begun a wait.
    Wait,
}

/// What a handler returns.
pub(crate) type Handled = Result<Outcome, Stop>;

impl Kernel {
    /// A kernel without objects, or `None` if its memory does not suffice.
    #[must_use]
    pub fn new() -> Option<&'static Kernel> {
        let frames = hal::alloc_slice(hal::frame_limit() as usize, |_| NarrowCell::none())?;
        let no_region = object::no_object::<Region>(())?;
        let no_mapping = Mapping::none(no_region)?;
        let spaces = Table::<Space>::new(no_mapping)?;
        let nowhere = object::no_object::<Space>(no_mapping)?;
        nowhere.epoch.set(u64::MAX);
        let threads = Table::<Thread>::new(nowhere)?;
        let (mutexes, conds) = (Table::<Mutex>::new(())?, Table::<Cond>::new(())?);
        let (mappings, regions) = (Table::<Mapping>::new(no_region)?, Table::<Region>::new(())?);
        let (ports, portsets) = (Table::<Port>::new(())?, Table::<Portset>::new(())?);
        let references = Table::<Reference>::new(())?;
        let stacks = exec::Stacks::new()?;
        let mut parts = Some((
            (mutexes, conds, mappings, regions, ports, portsets),
            (spaces, threads, references, stacks),
        ));
        // It is too large to be made anywhere else than in its place.
        let kernel = |_| {
            let (
                (mutexes, conds, mappings, regions, ports, portsets),
                (spaces, threads, references, stacks),
            ) = parts.take()?;
            Some(Kernel {
                handles: AllHandles {
                    mutexes: Handles::new(mutexes.first_slot()?),
                    conds: Handles::new(conds.first_slot()?),
                    mappings: Handles::new(mappings.first_slot()?),
                    regions: Handles::new(regions.first_slot()?),
                    ports: Handles::new(ports.first_slot()?),
                    portsets: Handles::new(portsets.first_slot()?),
                    spaces: Handles::new(spaces.first_slot()?),
                    threads: Handles::new(threads.first_slot()?),
                    references: Handles::new(references.first_slot()?),
                },
                mutexes,
                conds,
                mappings,
                regions,
                ports,
                portsets,
                spaces,
                threads,
                references,
                nowhere,
                no_mapping,
                accounts: Accounts::new(),
                frames,
                sched: sched::Scheduler::new(),
                deadlines: Deadlines::new(),
                vacancies: Vacancies::new(),
                notices: Notices::new(),
                irqs: irq::Irqs::new(),
                lock: exec::Lock::new(),
                stacks,
                counters: exec::counters::Counters::new(),
                forgotten: exec::Forgotten::new(),
                table_hand: Cell::new(0),
                seed: Cell::new(0x9e37_79b9),
                epochs: Cell::new(0),
            })
        };
        hal::alloc_slice(1, kernel)?.first()?.as_ref()
    }

    /// A pseudo-random number, for what must not matter: the shape of trees, and forgetting.
    fn random(&self) -> u32 {
        let mut x = self.seed.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.seed.set(x);
        x
    }

    /// A number that has not been given out before.
    fn next_epoch(&self) -> u64 {
        self.epochs.set(self.epochs.get() + 1);
        self.epochs.get()
    }

    /// Ends a trap: returns the thread that runs next.
    #[inline(always)]
    fn exit_trap(&'static self, t: &'static Thread) -> &'static Thread {
        self.release_lock(t);
        probe::exit_trap(self);
        if t.run.get() == Run::Running {
            if !self.sched.pending(t) {
                return t;
            }
        } else if self.sched.has_only_heir() {
            return self.schedule_heir(t);
        }
        self.schedule(t)
    }

    /// The running thread waits, and somebody has become ready in this trap.
    #[inline(never)]
    fn schedule_heir(&'static self, t: &'static Thread) -> &'static Thread {
        match self.sched.take_heir(self, t) {
            Some(heir) => self.tail_switch_to(t, heir),
            None => self.schedule(t),
        }
    }

    #[inline(never)]
    fn schedule(&'static self, t: &'static Thread) -> &'static Thread {
        let was = t.run.get();
        if !exec::MAY_BE_KEPT {
            self.tell_notices();
        }
        let next = self.sched.next(self, t);
        if core::ptr::eq(t, next) {
            exec::counters::resumed(was);
            return t;
        }
        self.switch_to(t, next)
    }

    /// Tells waiting servers which of their ports nobody names any more since this trap.
    #[inline(always)]
    fn tell_notices(&'static self) {
        if self.sched.take_notices() {
            self.notices.tell(self);
        }
    }

    /// The processor goes on with another thread.
    #[inline]
    fn switch_to(&'static self, from: &'static Thread, to: &'static Thread) -> &'static Thread {
        self.activate_space(from, to);
        exec::switch(self, from, to)
    }

    /// As [`Kernel::switch_to`], where nothing is called but as the last thing.
    #[inline(always)]
    fn tail_switch_to(
        &'static self,
        from: &'static Thread,
        to: &'static Thread,
    ) -> &'static Thread {
        if exec::SWITCHES_STACKS || CONFIG.counters {
            return self.switch_to(from, to);
        }
        self.activate_space(from, to);
        to
    }

    /// As [`Kernel::switch_to`], in a trap in which the timer has rung.
    #[cold]
    #[inline(never)]
    fn switch_after_ring(
        &'static self,
        from: &'static Thread,
        to: &'static Thread,
    ) -> &'static Thread {
        self.sched.set_timer_for(self, to);
        self.switch_to(from, to)
    }

    /// The running thread waits, and `to`, which no queue holds, goes on in its place.
    #[inline(always)]
    fn exit_trap_to(&'static self, from: &'static Thread, to: &'static Thread) -> &'static Thread {
        self.release_lock(from);
        if !exec::MAY_BE_KEPT || !self.sched.somebody_above(to) {
            if exec::MAY_BE_KEPT && self.sched.has_rung() {
                return self.switch_after_ring(from, to);
            }
            return self.switch_to(from, to);
        }
        // Somebody waited to be let into the kernel.
        to.run.set(Run::Ready);
        self.sched.add(to);
        self.schedule(from)
    }

    /// The thread is the running one, after `from`: its address space, if it has one, is the processor's.
    #[inline(always)]
    fn activate_space(&self, from: &'static Thread, to: &'static Thread) {
        let space = to.space_or_nowhere();
        if !core::ptr::eq(from.space_or_nowhere(), space) {
            space.table.activate();
        }
    }

    /// Ends a trap whose handler was stopped.
    #[inline(never)]
    fn stopped(&'static self, t: &'static Thread, stop: Stop) -> &'static Thread {
        self.counters.abandon(t, &stop);
        if let Stop::Fault(fault) = &stop {
            if let Some(next) = fault::ask_keeper(self, t, fault) {
                return next;
            }
        }
        self.deal_with(t, stop);
        self.exit_trap(t)
    }

    /// Deals with what stopped a handler or an instruction of the running thread.
    fn deal_with(&'static self, t: &'static Thread, stop: Stop) {
        match stop {
            Stop::Code(code) => t.finish(code),
            Stop::Again | Stop::Cut => {}
            Stop::Vacant(met) => t.wait_vacant(self, met),
            Stop::Fault(fault) => fault::memory(self, t, &fault),
            Stop::Device(page, access) => {
                fault::exception(self, t, Exception::Memory, page, access.0);
            }
            Stop::Exception(exception, address) => {
                fault::exception(self, t, exception, address, 0);
            }
        }
    }

    /// An interrupt has come, while something of that priority was done.
    fn note(&'static self, trap: Trap, priority: u8) {
        match trap {
            Trap::Irq(line) => irq::device(self, line),
            _ => irq::timer(self, priority),
        }
    }

    /// The running thread, which begins a wait, has a deadline.
    fn add_deadline(&self, t: &'static Thread, at: u64) {
        exec::core(|| {
            self.deadlines.add(t, at);
            self.sched.note_deadline(at);
        });
    }

    /// How many objects of each type there are, in the order of the types.
    fn census(&self) -> [usize; 9] {
        [
            self.mutexes.used(),
            self.conds.used(),
            self.mappings.used(),
            self.regions.used(),
            self.ports.used(),
            self.portsets.used(),
            self.spaces.used(),
            self.threads.used(),
            self.references.used(),
        ]
    }

    /// The thread that runs first.
    fn begin(&'static self, t: &'static Thread) {
        t.run.set(Run::Running);
        exec::begin(self, t);
        t.space_or_nowhere().table.activate();
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
            Trap::Exception { vector, error } => fault::processor(self, t, vector, error),
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
        fault::page(self, t, address, write, execute)
    }

    fn resume(&'static self, t: &'static Thread) -> &'static Thread {
        self.resume_continuation(t)
    }

    fn change_ports(&'static self, t: &'static Thread) {
        match t.space() {
            Some(space) => space.load_ports(),
            None => hal::load_ports(0, &[]),
        }
    }

    fn interrupt(&'static self, trap: Trap) {
        // The processor is idle, or at work in a call of a thread whose priority only the lock knows.
        self.note(trap, self.lock.priority());
        self.preempt();
    }
}
