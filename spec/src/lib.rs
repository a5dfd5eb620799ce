//! What every call of the kernel does: an executable specification.
//!
//! This is the shortest text from which one can understand the kernel. It stays correct because the kernel's tests
//! run it beside the kernel, event by event, and compare all visible state. It has no scheduler, queue, cache, list,
//! tree or page table: an object is a plain value, and whatever can be found by searching the objects is found that
//! way.
//!
//! A [`System`] is all there is at an instant. It changes by an [`Event`]: the running thread makes
//! a call or meets a fault, the timer rings, a line is raised. [`System::step`] says what follows.
//!
//! * [`calls`]: what each call does; [`state`]: `get_state` and `set_state` of every type.
//! * [`ipc`]: the stages of connections and idempotent calls; [`message`]: what is moved, in which
//!   order, and what is left in the frames.
//! * [`object`]: identities and bodies; [`memory`]: what a thread sees of memory.
//! * [`wait`]: how a wait begins and ends, and why a thread may go on waiting.
//!
//! # What is left open
//!
//! Rule A8 leaves the kernel some choices. The specification has them in these four forms and nowhere else.
//!
//! * *Which of several waiters.* Wait order is promised by priority only. Where one of several waiters of the highest
//!   priority goes on, [`System::first`] takes the first of them in a given order ([`Seen::order`]): the kernel is
//!   right if some order leads to what it did.
//! * *Restarts.* A waiting thread may begin its call again at any time: [`System::restart`]. This covers spurious
//!   returns of `cond_wait` and second deliveries of idempotent messages, and it is why the specification need not
//!   wake a thread unless something is granted to it. It does not excuse a lost wake-up: after each step, every
//!   thread that waits must have a reason ([`System::may_wait`]).
//! * *Pauses.* Work that can be long makes a pause at the latest after a fixed number of units
//!   ([`calls::PAGES_PER_TURN`], [`abi::ENTRIES_PER_TURN`]), and may make one at any step before, so that other
//!   threads run ([`Seen::pause`]): the frame says how the work goes on, and the result is the same (rules A3, A9).
//! * *Memory.* When the kernel's own memory is short, `create` may fail for that reason ([`Seen::no_memory`]).
//!
//! Which thread runs is a choice as well, among the ready threads of the highest priority ([`System::may_run`]).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod calls;
pub mod ipc;
pub mod memory;
pub mod message;
pub mod object;
pub mod state;
pub mod wait;

use abi::{access, Call, Code, Exception, Type};
use memory::Missing;
use object::{Account, Body, Object, Phase, Thread};
use std::collections::BTreeMap;
use std::sync::Arc;
use wait::{Meets, Status, Waiting};

/// Names an identity, by a number that no other identity ever has: see [`id`].
pub type Id = u32;
/// The bits of an [`Id`] below the type.
const SERIAL: u32 = 0xff_ffff;

/// The identity with a serial number: those of a type are neighbours.
#[must_use]
pub const fn id(ty: Type, serial: u32) -> Id {
    (ty as u32) << 24 | serial
}

/// A physical frame, and an offset in it.
pub type Place = (u64, u64);

/// What happens to the running thread, or to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The thread executes the `syscall` instruction.
    Syscall,
    /// The thread's own access to memory is not allowed by the page tables as they are.
    PageFault {
        /// The address.
        address: u64,
        /// The right that the access needs, of [`abi::access`].
        access: u64,
    },
    /// An exception of the processor.
    Processor {
        /// The vector.
        vector: u8,
        /// The error code.
        error: u64,
    },
    /// The timer rings.
    Timer,
    /// A device raises its line.
    Line(u8),
}

/// What was seen of the kernel's free choices in a step.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The threads that waited, in the order in which the kernel may have chosen among them.
    pub order: Vec<Id>,
    /// The ports whose servers were told that they are unreferenced, in this order.
    pub told: Vec<Id>,
    /// The threads whose deadline has come but which the timer has left to be told at a later ring.
    pub left: Vec<Id>,
    /// The call ended with [`Code::NoMemory`], at a time when memory was short.
    pub no_memory: bool,
    /// The frames of all threads, if the call of the running thread has made a pause: the call is not complete, and
    /// does not wait. Otherwise empty.
    pub pause: BTreeMap<Id, abi::Registers>,
    /// If the call of the running thread has made a pause after it sent away waiting clients or servers: how many.
    /// They were sent away because their memory or their call was not as it has to be.
    pub refused: Option<u64>,
    /// If the running thread goes on to meet its fault or exception again after waiting servers of the keeper's port
    /// were sent away: how many.
    pub keepers: Option<u64>,
}

/// What the machine is like.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// What an object of each type costs its payer, in bytes, in the order of [`abi::TYPES`].
    pub costs: [u64; 9],
    /// What an account costs the account above it, in bytes.
    pub account_cost: u64,
    /// The frames of memory that programs can have.
    pub frames: std::ops::Range<u64>,
    /// One more than the highest frame that the processor can address.
    pub end_frame: u64,
}

/// Everything there is.
#[derive(Clone, Debug, Default)]
pub struct System {
    /// The machine.
    pub machine: Machine,
    /// The machine's clock at the last event, in nanoseconds.
    pub now: u64,
    /// All identities that live.
    pub objects: BTreeMap<Id, Arc<Object>>,
    /// What is in memory. Frames that are not in here are zero.
    pub memory: memory::Memory,
    /// The accounts that pay for objects.
    pub accounts: Vec<Account>,
    /// The thread that each interrupt line is attached to.
    pub lines: [Option<Id>; 16],
    /// The thread that runs.
    pub running: Id,
    /// What was seen in this step.
    pub seen: Seen,
    /// How many identities have been given out.
    pub last: u32,
}

/// What keeps a call from being done now. A call that ends in a `Stop` has changed nothing (rule A2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The call is complete, with this result.
    Code(Code),
    /// Wrong use, at an address.
    Exception(Exception, u64),
    /// A page is not there.
    Fault(memory::Fault),
    /// The page of the object that the call manages is not there.
    Absent(memory::Fault),
    /// Memory of a device, which the kernel does not touch on behalf of a call.
    Device(u64, u64),
    /// This identity is vacant.
    Vacant(Id),
    /// The call has used up its turn; its frame says how to go on.
    Again,
}

/// What became of a call that nothing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The result is in the frame.
    Done,
    /// The thread waits, and its frame says for what.
    Wait,
}

/// What a call comes to.
pub type Handled = Result<Outcome, Stop>;

impl System {
    /// What an event at a time leads to.
    pub fn step(&mut self, event: Event, now: u64, seen: Seen) {
        self.now = now;
        self.seen = seen;
        let t = self.running;
        match event {
            Event::Syscall => {
                self.thread_mut(t).in_call = true;
                let met = self.thread(t).meets;
                if let Err(stop) = self.dispatch(t, met) {
                    self.stopped(t, stop);
                }
                // The call has met what was to be met; a page that it needs later is missing anew, and its keeper is
                // asked.
                if self.objects.contains_key(&t) {
                    self.thread_mut(t).meets = None;
                }
            }
            Event::PageFault { address, access } => self.page_fault(t, address, access),
            Event::Processor { vector, error } => {
                self.thread_mut(t).in_call = false;
                let code = Exception::from_raw(u64::from(vector)).filter(|_| vector < 32);
                let pc = self.thread(t).registers.pc();
                self.exception(t, code.unwrap_or(Exception::Processor), pc, error);
            }
            Event::Timer => self.timer(),
            Event::Line(line) => {
                if let Some(t) = self.lines[usize::from(line)] {
                    self.interrupt(t);
                }
            }
        }
        self.tell_unreferenced();
    }

    /// Does the call in the frame of the running thread. In a foreign space the call is an exception; otherwise the
    /// thread first meets what a peer left to it, then does what the call's row in the table says.
    fn dispatch(&mut self, t: Id, met: Option<Meets>) -> Handled {
        let space = self.thread(t).space.ok_or(Stop::Exception(Exception::NoSpace, 0))?;
        let r = self.thread(t).registers;
        if self.space(space).foreign {
            self.exception(t, Exception::ForeignCall, r.pc(), r.call());
            return Ok(Outcome::Wait);
        }
        // What a peer left to the thread belongs to that exchange: another call does not meet it.
        let exchanges = abi::ipc::plan_of_number(r.call() as u8).first().is_some();
        match met.filter(|_| exchanges) {
            Some(Meets::Page(address, need) | Meets::Refused(address, Some(need))) => {
                self.translate(space, address, need)?;
            }
            Some(Meets::Wrong(code, address)) => return Err(Stop::Exception(code, address)),
            Some(Meets::Refused(_, None)) | None => {}
        }
        match Call::from_number(r.call() as u8) {
            None => Err(Stop::Exception(Exception::NoCall, r.call())),
            Some(call) => self.call(t, space, call),
        }
    }

    /// Turns what stopped a call into its result, a wait, or a message to a keeper. When the message has been
    /// answered, or at any time before, the thread begins again with what its frame says.
    fn stopped(&mut self, t: Id, stop: Stop) {
        match stop {
            Stop::Code(code) => self.finish(t, code),
            Stop::Again => {}
            Stop::Vacant(met) => self.wait(t, Waiting::Vacant, Some(met)),
            Stop::Fault(fault) => self.fault(t, fault),
            Stop::Absent(fault) => self.ask_or(t, fault, |system| system.finish(t, Code::NoObject)),
            Stop::Device(page, need) => self.exception(t, Exception::Memory, page, need),
            Stop::Exception(exception, address) => self.exception(t, exception, address, 0),
        }
    }

    /// An access of the program itself: if a walk finds the page, the program simply tries again.
    fn page_fault(&mut self, t: Id, address: u64, need: u64) {
        self.thread_mut(t).in_call = false;
        let Some(space) = self.thread(t).space else {
            return self.halt(t, Exception::NoSpace, address);
        };
        match self.translate(space, address, need) {
            Ok(_) | Err(Stop::Device(..)) => {}
            Err(stop) => self.stopped(t, stop),
        }
    }

    /// A missing page for which no keeper can be asked is an exception.
    pub(crate) fn fault(&mut self, t: Id, fault: memory::Fault) {
        self.ask_or(t, fault, |system| {
            system.exception(t, Exception::Memory, fault.address, fault.access);
        });
    }

    /// A missing page: the keeper of the region where the walk failed is asked for it. `otherwise` is done if there
    /// is no keeper, or if the keeper's answer to this very fault resolved nothing.
    fn ask_or(&mut self, t: Id, fault: memory::Fault, otherwise: impl FnOnce(&mut System)) {
        let page = memory::page(fault.address);
        let met = self.thread_mut(t).meets.take();
        let refused = matches!(met, Some(Meets::Refused(its, _)) if its == page);
        let keeper = fault.at.filter(|_| !refused).and_then(|(region, offset)| {
            let keeper = self.live(self.region(region).keeper, Type::Port)?;
            Some((keeper, region, offset))
        });
        let Some((port, region, offset)) = keeper else {
            return otherwise(self);
        };
        let start = self.region(region).start;
        let words =
            [memory::page(offset), memory::page(start + offset), fault.access, self.thread(t).tag];
        self.tell(t, port, words, Some((page, fault.access, region)));
    }

    /// An exception: it is sent to the keeper of the thread's space, with the registers. Without a keeper the thread
    /// stops with the exception in its state.
    fn exception(&mut self, t: Id, code: Exception, address: u64, detail: u64) {
        self.thread_mut(t).meets = None;
        let keeper = self.thread(t).space.and_then(|s| self.live(self.space(s).keeper, Type::Port));
        let Some(port) = keeper else {
            return self.halt(t, code, address);
        };
        let thread = self.thread_mut(t);
        thread.exception = (code as u8, address);
        let words = [code as u64, address, detail, thread.tag];
        self.tell(t, port, words, None);
    }

    /// Sends the kernel's own message about a missing page or an exception; waits while the port is vacant.
    fn tell(&mut self, t: Id, port: Id, words: [u64; 4], missing: Option<Missing>) {
        if self.is_open(port) {
            self.send_from_kernel(t, port, words, missing);
        } else {
            self.wait(t, Waiting::Vacant, Some(port));
        }
    }

    /// The timer: a thread whose deadline has come goes on. A sleep is over; `cond_wait_until` goes on as the
    /// `mutex_lock` that it has become; every other wait with a deadline has timed out. A thread that could not run
    /// anyway, because the running thread is more important, is told later. Of the others at least the two most
    /// important are told; for the rest the timer rings again.
    fn timer(&mut self) {
        let running = self.thread(self.running).priority;
        let due = |t: &Thread| t.deadline.is_some_and(|at| at <= self.now) && t.priority >= running;
        let due = self.threads().filter(|&(_, t)| due(t)).map(|(id, _)| id);
        let (left, mut told): (Vec<Id>, Vec<Id>) = due.partition(|id| self.seen.left.contains(id));
        let most = left.iter().map(|&t| self.thread(t).priority).max();
        let least = told.iter().map(|&t| self.thread(t).priority).min();
        if told.len() < 2 || most > least {
            told.extend(left);
        }
        for t in told {
            match self.thread(t).status {
                Status::Waiting(Waiting::Deadline) => self.complete(t, Code::Ok),
                Status::Waiting(Waiting::Cond) => self.wake(t),
                _ => self.complete(t, Code::TimedOut),
            }
        }
    }

    /// Whether the thread may be the one that runs: it is ready, and no ready thread is more important.
    #[must_use]
    pub fn may_run(&self, t: Id) -> bool {
        let ready = |t: &Thread| t.status == Status::Ready;
        let Some(mine) = self.objects.get(&t) else {
            return false;
        };
        let Body::Thread(mine) = &mine.body else {
            return false;
        };
        ready(mine) && !self.threads().any(|(_, o)| ready(o) && o.priority > mine.priority)
    }
}

impl System {
    /// All threads that live.
    pub fn threads(&self) -> impl Iterator<Item = (Id, &Thread)> {
        self.all(Type::Thread).map(|(id, _)| (id, self.thread(id)))
    }

    /// All objects of a type that live.
    pub fn all(&self, ty: Type) -> impl Iterator<Item = (Id, &Object)> {
        let ids = id(ty, 0)..=id(ty, SERIAL);
        self.objects.range(ids).map(|(&id, object)| (id, &**object))
    }

    /// Whether the identity lives and has a body that has been opened.
    #[must_use]
    pub fn is_open(&self, id: Id) -> bool {
        self.objects.get(&id).is_some_and(|o| o.phase == Phase::Active)
    }

    /// Finds the identity open. A caller that operates on a vacant identity waits.
    pub(crate) fn open(&self, id: Id) -> Result<Id, Stop> {
        if self.is_open(id) {
            Ok(id)
        } else {
            Err(Stop::Vacant(id))
        }
    }
}

/// Checks that the value has no bits but those of access rights.
pub(crate) fn rights(value: u64) -> Result<u64, Stop> {
    if value & !access::ALL == 0 {
        Ok(value)
    } else {
        Err(Stop::Code(Code::Invalid))
    }
}
