//! Threads: the frame, the scheduling state, and the two ends of connections.
//!
//! The frame is the thread's only continuation (rule A1). All other state here that `get_state` does not export is
//! either scheduling state (queues, the time slice) or a [`Hint`]. All hints but two may be dropped at any time.

use super::account::Account;
use super::cond::Cond;
use super::connection::End;
use super::space::Space;
use super::{Handles, Header, Life, Link, NonNullLink, ObjId, Object, Table, Target};
use crate::deadlines::{DeadlineLinks, DEADLINE_IN_QUEUE};
use crate::kept::{self, Kept};
use crate::kernel::core;
use crate::object::port::Port;
use crate::queue::{self, Links, WaitQueue};
use crate::stop::{Access, Fault};
use crate::{counters, probe, Kernel, K};
use abi::state::{Stage, Waiting};
use abi::{Call, Code, Exception, Type, PAGE_SIZE};
use core::cell::Cell;
use hal::{Context, NarrowCell, NarrowRef};

/// The run state: whether a thread runs, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// In a ready queue.
    Ready,
    /// On the processor.
    Running,
    /// Waiting for this.
    Waiting(Waiting),
    /// Stopped, without a body, or without a space: it is in no queue.
    Stopped,
}

/// A fault or wrong use that a peer met in this thread's memory while the peer transferred a message. This thread
/// handles it when it runs again.
#[derive(Clone, Copy)]
pub(crate) enum PendingFault {
    /// The page at this address cannot be used for this access: it is absent or belongs to a device.
    Page(Word, u8),
    /// An exception, with its address.
    Wrong(Exception, Word),
}

/// Why a thread waits at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortWait {
    /// The call in its frame is at a connect stage.
    Connect,
    /// The call in its frame sends an idempotent request.
    Call,
    /// The kernel has a message for a keeper on the thread's behalf. Without the hint, the thread meets the same
    /// fault or exception again.
    Trap,
}

/// The kernel's note about a thread's wait, or about how its last wait ended, besides its frame and state. Unless a
/// variant says otherwise the note can be dropped: the thread then makes its call again, with the same result.
#[derive(Clone, Copy)]
pub(crate) enum Hint {
    None,
    /// Waits at this port for a server, for this reason.
    PortWait(NarrowRef<Port>, PortWait),
    /// Waits for this server's reply to its call.
    Called(Link<Thread>),
    /// Waits for a keeper's reply to a page fault: the server that owes the reply (it lives, since the wait
    /// ends when the server does), the page with the access that is needed, and the keeper's region.
    Faulted(NarrowRef<Thread>, Missing, ObjId, Life),
    /// The thread's exception is delivered to this server. Cannot be dropped: no other server may reply.
    Excepted(Link<Thread>),
    /// The thread's keeper replied to its exception while the thread had no body. The reply is in its registers: all of
    /// them, or only the control registers if the reply was short. Cannot be dropped: the keeper does not reply again.
    Answered {
        short: bool,
    },
    /// Waits on the cond with this handle, which is no longer in the frame.
    Cond(Word),
    /// Its broadcast on this cond has not woken all waiters yet.
    Broadcast(NonNullLink<Cond>),
    /// A peer met this fault in the thread's memory; the thread handles it when it goes on.
    PendingFault(PendingFault),
    /// The keeper replied to the fault at this page without supplying the page. If the thread's next fault is at this
    /// page again, it is an exception. `in_call`: the page was missing in the middle of a call, or at the place for
    /// its reply. `called`: the thread has begun a call since, so that only this call can still meet the page.
    Refused {
        missing: Missing,
        in_call: bool,
        called: bool,
    },
}

// The largest variant takes 20 bytes; a larger hint would make every thread larger.
#[cfg(target_os = "none")]
const _: () = assert!(size_of::<Hint>() == 20);

/// A word that needs an alignment of four bytes only, so that [`Hint`] is smaller.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(Rust, packed(4))]
pub(crate) struct Word(pub(crate) u64);

/// The address of a page and the access for which the page is needed, in five bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(crate) struct Missing {
    /// The lower half of the page's number.
    low: u32,
    /// The access in the lower [`ACCESS_BITS`] bits, above them the upper bits of the page's number.
    rest: u8,
}

const ACCESS_BITS: u32 = 4;
const _: () = assert!(abi::access::ALL < 1 << ACCESS_BITS);
const _: () = assert!(abi::USER_END / PAGE_SIZE <= 1 << (32 + 8 - ACCESS_BITS));

impl Missing {
    /// The page and access of a fault at a user's address.
    #[inline(always)]
    pub(crate) fn of(fault: &Fault) -> Self {
        let number = fault.address / PAGE_SIZE;
        Missing {
            low: number as u32,
            rest: ((number >> 32) << ACCESS_BITS) as u8 | fault.access.0 as u8,
        }
    }

    #[inline(always)]
    pub(crate) fn page(self) -> u64 {
        (u64::from(self.rest >> ACCESS_BITS) << 32 | u64::from(self.low)) * PAGE_SIZE
    }

    #[inline(always)]
    pub(crate) fn access(self) -> Access {
        Access(u64::from(self.rest) & ((1 << ACCESS_BITS) - 1))
    }
}

/// The registers of a thread after its keeper replied to its exception while the thread had no body: `answer` or, if
/// the reply was `short`, `registers` with the control registers of `answer`.
pub(crate) fn answered(
    mut registers: abi::Registers,
    answer: &abi::Registers,
    short: bool,
) -> abi::Registers {
    if !short {
        return *answer;
    }
    registers.set_pc(answer.pc());
    registers.set_sp(answer.sp());
    registers.set_flags(answer.flags());
    registers.set_call(answer.call());
    registers
}

/// In [`Thread::flags`]: the thread is, or was, attached to a device's line.
const HAS_LINES: u8 = 1;
/// In [`Thread::flags`]: an exception has been delivered to the keeper and awaits its reply.
const DELIVERED: u8 = 2;
// `crate::deadlines` has the third flag.
const _: () = assert!((HAS_LINES | DELIVERED) & DEADLINE_IN_QUEUE == 0);

/// A thread. The frame is its first field, so that the machine's entry code finds it at the thread's address.
#[repr(C, align(16))]
pub struct Thread {
    pub(crate) ctx: Context,
    head: Header,
    pub(crate) run: Cell<Run>,
    pub(crate) priority: Cell<u8>,
    /// The kind of wait in which the thread was stopped. Only for display, by `get_state`.
    pub(crate) waiting: Cell<Waiting>,
    pub(crate) interrupt: Cell<bool>,
    /// [`HAS_LINES`], [`DELIVERED`], [`DEADLINE_IN_QUEUE`].
    pub(crate) flags: Cell<u8>,
    pub(crate) exception: Cell<u8>,
    client_stage: Cell<Stage>,
    server_stage: Cell<Stage>,
    /// The balance of its node in the tree of deadlines; here, since there is room for it.
    pub(crate) deadline_balance: Cell<i8>,
    pub(crate) stop_count: Cell<u32>,
    /// Its space, or the space for which [`Space::is_nowhere`] holds if it has none. The space's identity is alive,
    /// since a space that ends detaches its threads.
    space: Cell<NarrowRef<Space>>,
    /// Its space if the fast path may take its next call: the thread has no hint that a call must check first, and the
    /// space is not foreign. Otherwise the space that is nowhere, in which no lookup succeeds.
    straight: Cell<NarrowRef<Space>>,
    pub(crate) next_in_space: NarrowCell<Thread>,
    pub(crate) prev_in_space: NarrowCell<Thread>,
    client_peer: Cell<Link<Thread>>,
    server_peer: Cell<Link<Thread>>,
    pub(crate) links: Links,
    pub(crate) hint: Cell<Hint>,
    pub(crate) deadline: DeadlineLinks,
    pub(crate) exception_address: Cell<u64>,
    pub(crate) kept: Kept,
}

impl Thread {
    /// Its end of the connection in which it is the client.
    #[inline(always)]
    pub(crate) fn client(&self) -> End<'_> {
        End {
            peer: &self.client_peer,
            stage: &self.client_stage,
        }
    }

    /// Its end of the connection in which it is the server, or of a request to which it owes a reply.
    #[inline(always)]
    pub(crate) fn server(&self) -> End<'_> {
        End {
            peer: &self.server_peer,
            stage: &self.server_stage,
        }
    }

    #[inline(always)]
    fn set_flag(&self, flag: u8, on: bool) {
        let others = self.flags.get() & !flag;
        self.flags.set(if on { others | flag } else { others });
    }

    /// Whether the thread is, or was, attached to a device's line.
    pub(crate) fn has_lines(&self) -> bool {
        self.flags.get() & HAS_LINES != 0
    }

    pub(crate) fn set_has_lines(&self, has: bool) {
        self.set_flag(HAS_LINES, has);
    }

    /// Whether an exception has been delivered to the keeper and awaits its reply.
    pub(crate) fn exception_delivered(&self) -> bool {
        self.flags.get() & DELIVERED != 0
    }

    pub(crate) fn set_exception_delivered(&self, delivered: bool) {
        self.set_flag(DELIVERED, delivered);
    }

    /// Its space, if that identity is alive (it may be vacant).
    #[inline]
    pub(crate) fn space(&self) -> Option<&'static Space> {
        Some(self.space.get().get()).filter(|space| !space.is_nowhere())
    }

    /// Its space, if the space has an open body. That of a running thread has one.
    #[inline(always)]
    pub(crate) fn open_space(&self) -> Option<&'static Space> {
        Some(self.space.get().get()).filter(|space| space.head().is_open())
    }

    /// Its space, or else the space that is nowhere and translates nothing.
    #[inline(always)]
    pub(crate) fn space_or_nowhere(&self) -> &'static Space {
        self.space.get().get()
    }

    /// Its space, if the fast path may take its next call.
    #[inline(always)]
    pub(crate) fn goes_straight(&self) -> Option<&'static Space> {
        Some(self.straight.get().get()).filter(|space| space.head().is_open())
    }

    /// As [`Thread::goes_straight`], with the space that is nowhere instead of `None`.
    #[inline(always)]
    pub(crate) fn straight(&self) -> &'static Space {
        self.straight.get().get()
    }

    /// Drops everything that the kernel keeps for the thread besides its frame: its activation and its continuation.
    /// The thread must not be running.
    pub(crate) fn drop_activation(&'static self) {
        if kept::OWN_STACK {
            hal::reset_stack::<Kernel>(self);
        }
        self.kept.clear();
    }

    /// Recomputes `straight`. Called when the thread's space, the space's `foreign` flag, or a hint about a pending
    /// fault, a refused page or an incomplete broadcast has changed.
    pub(crate) fn note_space(&self, k: K) {
        let pending = matches!(
            self.hint.get(),
            Hint::PendingFault(_) | Hint::Refused { .. } | Hint::Broadcast(_)
        );
        let space = self.space.get().get();
        let straight = !pending && !space.foreign.get();
        let straight = if straight { space } else { k.nowhere };
        self.straight.set(NarrowRef::of(straight));
    }

    /// Records a fault that a peer met in the thread's memory. The thread handles it before it goes on with its call.
    pub(crate) fn leave_fault(&self, k: K, fault: PendingFault) {
        self.hint.set(Hint::PendingFault(fault));
        self.straight.set(NarrowRef::of(k.nowhere));
    }

    /// Records that its keeper has not supplied this page.
    pub(crate) fn refuse(&self, k: K, missing: Missing) {
        self.hint.set(Hint::Refused {
            missing,
            in_call: !self.ctx.is_full(),
            called: false,
        });
        self.straight.set(NarrowRef::of(k.nowhere));
    }

    /// Whether a fault at this page is the fault to which the thread's keeper replied without supplying the page.
    #[inline(always)]
    pub(crate) fn is_refused(&self, page: u64) -> bool {
        let Hint::Refused {
            missing, called, ..
        } = self.hint.get()
        else {
            return false;
        };
        // The thread has made a call since and faults in user code now: that is another fault.
        missing.page() == page && !(called && self.ctx.is_full())
    }

    /// The page that the thread's keeper has not supplied, if it was missing in the middle of the exchange of messages
    /// that the thread begins again, or where the reply of that exchange was to be written.
    pub(crate) fn refused_in_call(&self) -> Option<Missing> {
        match self.hint.get() {
            Hint::Refused {
                missing,
                in_call: true,
                ..
            } => Some(missing),
            _ => None,
        }
    }

    /// Notes that the thread begins a call. Drops the hint about a refused page, unless this is the call that may meet
    /// the page again, and the hint about an incomplete broadcast, unless this call is a broadcast.
    pub(crate) fn begins_call(&self, k: K) {
        match self.hint.get() {
            Hint::Refused {
                missing,
                in_call,
                called: false,
            } => self.hint.set(Hint::Refused {
                missing,
                in_call,
                called: true,
            }),
            // The handler of the broadcast checks whether it goes on with the same cond.
            Hint::Broadcast(_) if self.call() == Some(Call::CondBroadcast) => {}
            Hint::Refused { .. } | Hint::Broadcast(_) => {
                self.hint.set(Hint::None);
                self.note_space(k);
            }
            _ => self.note_space(k),
        }
    }

    /// Drops the hint about a broadcast: it is complete, or another one begins.
    pub(crate) fn forget_broadcast(&self, k: K) {
        self.hint.set(Hint::None);
        if self.goes_straight().is_none() {
            self.note_space(k);
        }
    }

    /// Takes the fault that a peer left for the thread, if there is one.
    pub(crate) fn take_pending_fault(&self, k: K) -> Option<PendingFault> {
        let Hint::PendingFault(fault) = self.hint.get() else {
            return None;
        };
        self.hint.set(Hint::None);
        self.note_space(k);
        Some(fault)
    }

    /// The server that owes the thread a reply, and the kind of request (`Call` or `Fault`).
    pub(crate) fn served_by(&self) -> (Link<Thread>, Stage) {
        match self.hint.get() {
            Hint::Called(server) => (server, Stage::Call),
            Hint::Faulted(server, ..) => (Link::to(server.get()), Stage::Fault),
            _ => (Link::NONE, Stage::None),
        }
    }

    /// What the thread waits for, or waited for when it was stopped, as one word for `get_state`: a handle, an address
    /// or a time.
    pub(crate) fn waiting_for(&self) -> u64 {
        match (self.waiting(), self.hint.get()) {
            (Waiting::Cond, Hint::Cond(handle)) => handle.0,
            (Waiting::Reply, Hint::Faulted(_, missing, ..)) => missing.page(),
            (Waiting::Exception, _) => self.exception_address.get(),
            (
                Waiting::Mutex
                | Waiting::Port
                | Waiting::Portset
                | Waiting::Reply
                | Waiting::Deadline,
                _,
            ) => self.ctx.parameter(0).get(),
            _ => 0,
        }
    }

    /// The kind of the thread's wait, or of the wait in which it was stopped.
    pub(crate) fn waiting(&self) -> Waiting {
        match self.run.get() {
            Run::Waiting(why) => why,
            Run::Stopped => self.waiting.get(),
            Run::Ready | Run::Running => Waiting::Nothing,
        }
    }

    /// The call whose entrypoint is in the frame, if there is such a call.
    #[inline]
    pub(crate) fn call(&self) -> Option<Call> {
        Call::from_number(self.ctx.call().get() as u8)
    }

    /// Writes another entrypoint into the frame: the call has become that one (rule A3). The
    /// count of a register message starts again at 0.
    #[inline]
    pub(crate) fn become_call(&self, call: Call) {
        self.ctx.call().set(call as u64);
        probe::progress();
    }

    /// Writes a result into the frame and steps over the instruction that called. For the running
    /// thread, or together with [`Thread::wake`].
    #[inline]
    pub(crate) fn finish(&self, code: Code) {
        self.finish_with(code as u64);
    }

    /// As [`Thread::finish`], with the byte count of a register message.
    #[inline]
    pub(crate) fn finish_with(&self, word: u64) {
        self.kept.clear();
        counters::completed(self);
        self.ctx.call().set(word);
        self.ctx.pc().set(self.ctx.behind_call());
    }

    /// Completes the call of a waiting thread: writes the result into its frame and makes it ready (rule A8).
    pub(crate) fn complete(&'static self, k: K, code: Code) {
        self.finish(code);
        self.wake(k);
    }

    /// Ends the thread's wait with nothing granted: the thread makes the call in its frame again.
    pub(crate) fn wake(&'static self, k: K) {
        core(|| {
            self.quit(k);
            self.make_ready(k);
        });
    }

    /// Takes the thread out of the queue that it is in, if any, and removes its deadline.
    pub(crate) fn quit(&'static self, k: K) {
        core(|| {
            if self.run.get() == Run::Ready {
                k.cpu_of(self).sched.remove(self);
            } else {
                queue::leave_queue(self);
            }
            k.cpu_of(self).deadlines.remove(self);
        });
    }

    /// Makes a thread that is in no queue ready; or leaves it stopped, halts it or lets it wait, if it cannot
    /// run.
    pub(crate) fn make_ready(&'static self, k: K) {
        if self.stop_count.get() > 0 || self.head.phase() != super::Phase::Active {
            self.run.set(Run::Stopped);
            return;
        }
        match self.space() {
            None => self.halt(Exception::NoSpace, 0),
            // The call in the frame may be complete, so the thread goes on from its frame and makes no call again.
            Some(space) if space.head().open().is_err() => {
                self.wait_vacant(k, space.head());
                self.kept.clear();
            }
            Some(_) if self.exception_delivered() => {
                self.wait_plain(Waiting::Exception);
                self.kept.clear();
            }
            Some(_) => {
                self.run.set(Run::Ready);
                k.cpu_of(self).sched.add(self);
            }
        }
    }

    /// Stops a thread that has no keeper for its exception. `get_state` shows the exception.
    pub(crate) fn halt(&self, exception: Exception, address: u64) {
        self.exception.set(exception as u8);
        self.exception_address.set(address);
        self.stop_count.set(self.stop_count.get().saturating_add(1));
        self.waiting.set(Waiting::Nothing);
        self.run.set(Run::Stopped);
    }

    /// Begins a wait. The caller returns [`crate::Outcome::Wait`].
    #[inline]
    #[cfg_attr(fermata_probe, track_caller)]
    pub(crate) fn wait_on(&'static self, queue: &'static WaitQueue, why: Waiting) {
        queue.push(self);
        self.wait_plain(why);
    }

    /// Begins a wait in no queue: the thread or event that ends the wait finds this thread in another way.
    #[inline(always)]
    #[cfg_attr(fermata_probe, track_caller)]
    pub(crate) fn wait_plain(&self, why: Waiting) {
        self.run.set(Run::Waiting(why));
        // A thread that waits within a call goes on by making the call again; a thread that waits after another trap
        // resumes its instruction.
        if !self.ctx.is_full() {
            self.kept.redo();
        }
        probe::wait(self);
    }

    /// Begins a wait for a vacant identity to get a body again or to end. The queue is in order of arrival: a
    /// thread that was woken and waits again comes last.
    #[cfg_attr(fermata_probe, track_caller)]
    pub(crate) fn wait_vacant(&'static self, k: K, met: &'static Header) {
        met.await_body();
        k.vacancies.of(met).append(self);
        self.wait_plain(Waiting::Vacant);
    }

    pub(crate) fn waits_for(&self, why: Waiting) -> bool {
        self.run.get() == Run::Waiting(why)
    }

    /// Ends the thread's wait because its space has lost its body: the thread now waits for the space's next body.
    pub(crate) fn suspend_for_space(&'static self, k: K) {
        if self.run.get() != Run::Stopped {
            self.wake(k);
        }
    }

    /// Notes that the page for which the thread waited is there. An instruction that faulted is tried again from the
    /// frame.
    #[inline(always)]
    pub(crate) fn found_page(&self) {
        if self.ctx.is_full() {
            self.kept.clear();
        }
    }

    /// Adds one to the thread's stop count. When this returns the thread is in no queue and its frame is complete; the
    /// frame does not change until the thread goes on.
    pub(crate) fn stop(&'static self, k: K) {
        core(|| {
            self.stop_count.set(self.stop_count.get().saturating_add(1));
            self.waiting.set(self.waiting());
            self.quit(k);
            self.run.set(Run::Stopped);
        });
    }

    /// Takes one from the thread's stop count. At 0 the thread goes on.
    pub(crate) fn resume(&'static self, k: K) {
        self.stop_count.set(self.stop_count.get() - 1);
        if self.stop_count.get() == 0 {
            if !self.exception_delivered() && matches!(self.hint.get(), Hint::Excepted(_)) {
                // A server's state took over this thread's exception while the thread was being restored, but the
                // thread's own state does not say that it waits for a reply.
                self.hint.set(Hint::None);
            }
            self.make_ready(k);
        }
    }

    /// Delivers an interrupt: completes the thread's call if it waits for an interrupt, and otherwise makes the
    /// interrupt pending.
    pub(crate) fn interrupt(&'static self, k: K) {
        core(|| {
            if self.waits_for(Waiting::Interrupt) {
                // A thread that waits for an interrupt is in no queue and may run: if it were stopped, or its
                // space vacant, its wait would have been ended.
                if self.deadline.is_set() {
                    k.cpu_of(self).deadlines.remove(self);
                }
                self.finish(Code::Ok);
                self.run.set(Run::Ready);
                k.cpu_of(self).sched.add(self);
            } else {
                self.interrupt.set(true);
            }
        });
    }

    /// Moves the thread to a space, or to none.
    pub(crate) fn attach(&'static self, k: K, space: Option<&'static Space>) {
        if let Some(old) = self.space() {
            match self.prev_in_space.get() {
                Some(p) => p.next_in_space.set(self.next_in_space.get()),
                None => old.threads.set(self.next_in_space.get()),
            }
            if let Some(n) = self.next_in_space.take() {
                n.prev_in_space.set(self.prev_in_space.get());
            }
            old.population.set(old.population.get() - 1);
        }
        self.next_in_space.set(None);
        self.prev_in_space.set(None);
        self.space.set(NarrowRef::of(space.unwrap_or(k.nowhere)));
        self.ctx.set_ports(space.map_or(0, Space::ports_number));
        self.ctx.set_table(&self.space_or_nowhere().table);
        self.note_space(k);
        if let Some(space) = space {
            let first = space.threads.replace(Some(self));
            self.next_in_space.set(first);
            if let Some(first) = first {
                first.prev_in_space.set(Some(self));
            }
            space.population.set(space.population.get() + 1);
        }
    }
}

impl Object for Thread {
    const TYPE: Type = Type::Thread;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Thread(link)
    }
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Thread(link) => Some(link),
            _ => None,
        }
    }
    /// The space that stands for none.
    type Seed = &'static Space;
    fn blank(head: Header, nowhere: &'static Space) -> Self {
        Thread {
            ctx: Context::new(),
            head,
            run: Cell::new(Run::Stopped),
            straight: Cell::new(NarrowRef::of(nowhere)),
            priority: Cell::new(0),
            stop_count: Cell::new(1),
            interrupt: Cell::new(false),
            flags: Cell::new(0),
            space: Cell::new(NarrowRef::of(nowhere)),
            next_in_space: NarrowCell::none(),
            prev_in_space: NarrowCell::none(),
            client_stage: Cell::new(Stage::None),
            server_stage: Cell::new(Stage::None),
            deadline_balance: Cell::new(0),
            client_peer: Cell::new(Link::NONE),
            server_peer: Cell::new(Link::NONE),
            exception: Cell::new(0),
            exception_address: Cell::new(0),
            links: Links::new(),
            deadline: DeadlineLinks::new(),
            waiting: Cell::new(Waiting::Nothing),
            hint: Cell::new(Hint::None),
            kept: Kept::new(),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.threads
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.threads
    }
    fn cost() -> u64 {
        core::mem::size_of::<Self>() as u64 + kept::STACK_COST
    }
    fn provide(&'static self, _: K, _: &'static Account) -> Option<()> {
        kept::provide_stack(&self.ctx)
    }
    fn open(&'static self, k: K) {
        // The identity keeps the hint about its exception (the server that has it, or the reply) for a new body.
        match self.hint.get() {
            Hint::Answered { short } => {
                let answer = self.ctx.registers();
                let none = abi::Registers::default();
                self.ctx.set_registers(&answered(none, &answer, short));
            }
            hint => {
                self.ctx.set_registers(&abi::Registers::default());
                if !matches!(hint, Hint::Excepted(_)) {
                    self.hint.set(Hint::None);
                }
            }
        }
        // Its slot may be that of the thread whose registers the FPU still holds.
        core(|| self.ctx.set_fpu(&abi::state::initial_fpu()));
        self.drop_activation();
        self.run.set(Run::Stopped);
        self.priority.set(0);
        self.stop_count.set(1);
        self.ctx.tag.set(0);
        self.set_exception_delivered(false);
        self.exception.set(0);
        self.exception_address.set(0);
        self.waiting.set(Waiting::Nothing);
        self.note_space(k);
    }
    fn close(&'static self, k: K) {
        // In one core section, since an interrupt in between could make the thread ready again.
        core(|| {
            self.quit(k);
            self.run.set(Run::Stopped);
        });
        self.attach(k, None);
        // The connections belong to the identity: peers go on waiting for it.
    }
    fn end(&'static self, k: K) {
        // Drops its connections, which completes or restarts the calls of waiting peers.
        self.drop_client_end(k);
        self.drop_server_end(k);
        self.hint.set(Hint::None);
        // An interrupt can come until its lines are detached, so the flag is cleared after that.
        k.lines.detach_all(self);
        self.set_has_lines(false);
        self.interrupt.set(false);
    }
}
