//! Threads: the frame, scheduling, and the two ends of connections.
//!
//! The frame is the thread's only continuation (rule A1). Everything else in here that is not
//! exported by `get_state` is either scheduling (queues, the time slice) or a hint that may be
//! dropped at any time ([`Thread::touch`], [`Thread::refused`], [`Thread::served_by`]).

use super::region::Region;
use super::space::Space;
use super::{Handles, Header, Link, Object, Table, Target, CHUNK};
use crate::exec;
use crate::ipc::Errand;
use crate::memory::Access;
use crate::object::port::Port;
use crate::wait::{self, DeadlineLinks, Links, WaitQueue};
use crate::K;
use abi::state::{Stage, Waiting};
use abi::{Call, Code, Exception, Type};
use core::cell::Cell;
use hal::{Context, FpuArea};

/// Whether a thread runs, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// In a ready queue.
    Ready,
    /// On the processor.
    Running,
    /// Waiting, and for what.
    Waiting(Waiting),
    /// Stopped, without a body, or without a space: it is in no queue.
    Stopped,
}

/// An obstacle to a message that only the thread itself can deal with.
#[derive(Clone, Copy)]
pub(crate) enum Touch {
    /// A page that is absent, or a device's.
    Page(u64, Access),
    /// Wrong use, at an address.
    Wrong(Exception, u64),
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) stage: Cell<Stage>,
    /// The thread at the other end. The connection exists while both name each other.
    pub(crate) peer: Cell<Link<Thread>>,
}

impl End {
    const fn new() -> Self {
        End {
            stage: Cell::new(Stage::None),
            peer: Cell::new(Link::NONE),
        }
    }

    pub(crate) fn set(&self, stage: Stage, peer: Link<Thread>) {
        self.stage.set(stage);
        self.peer.set(peer);
    }

    pub(crate) fn clear(&self) {
        self.set(Stage::None, Link::NONE);
    }

    /// Whether it is an end of a connection with that thread, as far as this end knows.
    pub(crate) fn connects(&self, peer: &'static Thread) -> bool {
        self.peer.get() == Link::to(peer) && crate::ipc::reliable(self.stage.get())
    }

    /// The peer as a state shows it: who has ended the connection is a peer no more.
    pub(crate) fn shown(&self) -> Link<Thread> {
        match self.stage.get() {
            Stage::Finished => Link::NONE,
            _ => self.peer.get(),
        }
    }
}

/// A thread. The frame is first, so that the machine's entry code finds it at the same address.
#[repr(C)]
pub struct Thread {
    pub(crate) ctx: Context,
    head: Header,
    pub(crate) run: Cell<Run>,
    pub(crate) priority: Cell<u8>,
    pub(crate) stop_count: Cell<u32>,
    pub(crate) interrupt: Cell<bool>,
    pub(crate) tag: Cell<u64>,
    /// Its space, while that identity lives: a space that ends lets go of its threads.
    space: Cell<Option<&'static Space>>,
    pub(crate) next_in_space: Cell<Option<&'static Thread>>,
    pub(crate) prev_in_space: Cell<Option<&'static Thread>>,
    pub(crate) client: End,
    pub(crate) server: End,
    /// An exception has been delivered to the keeper and awaits its reply.
    pub(crate) exception_delivered: Cell<bool>,
    /// Who it was delivered to. Nobody, after a state was set: then whoever says that it has it.
    pub(crate) excepted_to: Cell<Link<Thread>>,
    pub(crate) exception: Cell<u8>,
    pub(crate) exception_address: Cell<u64>,
    pub(crate) links: Links,
    pub(crate) deadline: DeadlineLinks,
    /// What it waits for, or waited for when it was stopped: for people.
    pub(crate) waiting: Cell<Waiting>,
    pub(crate) waiting_for: Cell<u64>,
    /// While it waits for a server: the port, and what it wants there.
    pub(crate) errand: Cell<Option<(&'static Port, Errand)>>,
    /// While it waits for a reply: who owes it, and to what (`Call` or `Fault`). Hint: without it
    /// the request is sent again.
    pub(crate) served_by: Cell<(Link<Thread>, Stage)>,
    /// What a peer met in its memory, and it has to settle when it goes on. Hint.
    pub(crate) touch: Cell<Option<Touch>>,
    /// The address that it told a keeper of, the access that it needs, and the keeper's region.
    pub(crate) missing: Cell<(u64, Access, Link<Region>)>,
    /// The page whose fault its keeper answered without resolving it. Hint.
    pub(crate) refused: Cell<Option<u64>>,
}

impl Thread {
    /// Its space, if that identity is alive (it may be vacant).
    #[inline]
    pub(crate) fn space(&self) -> Option<&'static Space> {
        self.space.get()
    }

    /// The entrypoint in the frame, if there is such a one.
    #[inline]
    pub(crate) fn call(&self) -> Option<Call> {
        Call::from_number(self.ctx.rax.get() as u8)
    }

    /// Writes another entrypoint into the frame: the call has become that one (rule A3). The
    /// count of a register message starts again at 0.
    #[inline]
    pub(crate) fn become_call(&self, call: Call) {
        self.ctx.rax.set(call as u64);
    }

    /// Writes a result into the frame and steps over the `syscall` instruction. For the running
    /// thread, or together with [`Thread::wake`].
    #[inline]
    pub(crate) fn finish(&self, code: Code) {
        self.finish_with(code as u64);
    }

    /// As [`Thread::finish`], with the byte count of a register message.
    #[inline]
    pub(crate) fn finish_with(&self, rax: u64) {
        self.ctx.rax.set(rax);
        self.ctx.rip.set(self.ctx.rip.get().wrapping_add(2));
    }

    /// Completes the call of a waiting thread: result in the frame, and ready (rule A8).
    pub(crate) fn complete(&'static self, k: K, code: Code) {
        self.finish(code);
        self.wake(k);
    }

    /// Ends the thread's wait with nothing granted: it does what its frame says, again.
    pub(crate) fn wake(&'static self, k: K) {
        self.quit(k);
        self.make_ready(k);
    }

    /// Takes the thread out of whatever queue it is in.
    pub(crate) fn quit(&'static self, k: K) {
        if self.run.get() == Run::Ready {
            k.sched.remove(self);
        } else {
            wait::leave_queue(self);
        }
        k.deadlines.remove(self);
        self.errand.set(None);
    }

    /// Makes a thread that is in no queue ready, or whatever comes next for it.
    pub(crate) fn make_ready(&'static self, k: K) {
        if self.stop_count.get() > 0 || self.head.phase.get() != super::Phase::Active {
            self.run.set(Run::Stopped);
            return;
        }
        match self.space() {
            None => self.halt(Exception::NoSpace, 0),
            Some(space) if space.head().open().is_err() => {
                self.wait_vacant(k);
            }
            Some(_) if self.exception_delivered.get() => {
                self.wait_plain(Waiting::Exception, self.exception_address.get());
            }
            Some(_) => {
                self.run.set(Run::Ready);
                k.sched.add(self);
            }
        }
    }

    /// Stops a thread that nobody can help: the exception stands in its state.
    pub(crate) fn halt(&self, exception: Exception, address: u64) {
        self.exception.set(exception as u8);
        self.exception_address.set(address);
        self.stop_count.set(self.stop_count.get().saturating_add(1));
        self.run.set(Run::Stopped);
    }

    /// Begins a wait. The caller returns [`crate::Outcome::Wait`].
    pub(crate) fn wait_on(&'static self, queue: &'static WaitQueue, why: Waiting, what: u64) {
        queue.push(self);
        self.wait_plain(why, what);
    }

    /// Begins a wait for something that knows whom to wake.
    pub(crate) fn wait_plain(&self, why: Waiting, what: u64) {
        self.waiting.set(why);
        self.waiting_for.set(what);
        self.run.set(Run::Waiting(why));
    }

    /// Begins a wait for a vacant identity to have a body again, or to end. In order of arrival:
    /// who finds nothing changed comes back behind all others.
    pub(crate) fn wait_vacant(&'static self, k: K) {
        k.vacant.append(self);
        self.wait_plain(Waiting::Vacant, 0);
    }

    pub(crate) fn waits_for(&self, why: Waiting) -> bool {
        self.run.get() == Run::Waiting(why)
    }

    /// The thread's space has lost its body or its identity: it cannot go on for now.
    pub(crate) fn suspend_for_space(&'static self, k: K) {
        if self.run.get() != Run::Stopped {
            self.quit(k);
            self.make_ready(k);
        }
    }

    /// One stop more. The thread is out of every queue and its frame is complete when this
    /// returns; nothing is completed in it until it goes on.
    pub(crate) fn stop(&'static self, k: K) {
        self.stop_count.set(self.stop_count.get().saturating_add(1));
        if matches!(self.run.get(), Run::Ready | Run::Running) {
            self.waiting.set(Waiting::Nothing);
        }
        self.quit(k);
        self.run.set(Run::Stopped);
    }

    /// One stop less.
    pub(crate) fn resume(&'static self, k: K) {
        self.stop_count.set(self.stop_count.get() - 1);
        if self.stop_count.get() == 0 {
            self.make_ready(k);
        }
    }

    /// Makes an interrupt pending; a thread that waits for one has its call completed.
    pub(crate) fn interrupt(&'static self, k: K) {
        if self.waits_for(Waiting::Interrupt) {
            self.complete(k, Code::Ok);
        } else {
            self.interrupt.set(true);
        }
    }

    /// Moves the thread to a space, or to none.
    pub(crate) fn attach(&'static self, space: Option<&'static Space>) {
        if let Some(old) = self.space() {
            match self.prev_in_space.get() {
                Some(p) => p.next_in_space.set(self.next_in_space.get()),
                None => old.threads.set(self.next_in_space.get()),
            }
            if let Some(n) = self.next_in_space.take() {
                n.prev_in_space.set(self.prev_in_space.get());
            }
        }
        self.next_in_space.set(None);
        self.prev_in_space.set(None);
        self.space.set(space);
        if let Some(space) = space {
            let first = space.threads.replace(Some(self));
            self.next_in_space.set(first);
            if let Some(first) = first {
                first.prev_in_space.set(Some(self));
            }
        }
    }

    /// Ends both connections: the peers are told.
    fn disconnect(&'static self, k: K) {
        crate::ipc::drop_client_end(k, self);
        crate::ipc::drop_server_end(k, self);
    }
}

impl Object for Thread {
    const TYPE: Type = Type::Thread;
    fn target(link: Link<Self>) -> Target {
        Target::Thread(link)
    }
    fn named(target: Target) -> Option<Link<Self>> {
        match target {
            Target::Thread(link) => Some(link),
            _ => None,
        }
    }
    type Part = FpuArea;
    fn parts() -> Option<&'static [FpuArea; CHUNK]> {
        hal::alloc_slice(CHUNK, |_| FpuArea::new())?.try_into().ok()
    }
    fn blank(head: Header, fpu: &'static FpuArea) -> Self {
        Thread {
            ctx: Context::new(fpu),
            head,
            run: Cell::new(Run::Stopped),
            priority: Cell::new(0),
            stop_count: Cell::new(1),
            interrupt: Cell::new(false),
            tag: Cell::new(0),
            space: Cell::new(None),
            next_in_space: Cell::new(None),
            prev_in_space: Cell::new(None),
            client: End::new(),
            server: End::new(),
            exception_delivered: Cell::new(false),
            excepted_to: Cell::new(Link::NONE),
            exception: Cell::new(0),
            exception_address: Cell::new(0),
            links: Links::new(),
            deadline: DeadlineLinks::new(),
            waiting: Cell::new(Waiting::Nothing),
            waiting_for: Cell::new(0),
            errand: Cell::new(None),
            served_by: Cell::new((Link::NONE, Stage::None)),
            touch: Cell::new(None),
            missing: Cell::new((0, Access::READ, Link::NONE)),
            refused: Cell::new(None),
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
        (core::mem::size_of::<Self>() + core::mem::size_of::<FpuArea>()) as u64 + exec::STACK_COST
    }
    fn provide(&'static self) -> Option<()> {
        exec::provide_stack(&self.ctx)
    }
    fn open(&'static self, _: K) {
        self.ctx.set_registers(&abi::Registers::default());
        self.ctx.set_fpu(&abi::state::initial_fpu());
        exec::drop_activation(&self.ctx);
        self.run.set(Run::Stopped);
        self.priority.set(0);
        self.stop_count.set(1);
        self.tag.set(0);
        self.exception_delivered.set(false);
        self.excepted_to.set(Link::NONE);
        self.exception.set(0);
        self.exception_address.set(0);
        self.waiting.set(Waiting::Nothing);
        self.waiting_for.set(0);
        self.served_by.set((Link::NONE, Stage::None));
        self.touch.set(None);
        self.refused.set(None);
    }
    fn close(&'static self, k: K) {
        self.quit(k);
        self.run.set(Run::Stopped);
        self.attach(None);
        // The connections belong to the identity: peers go on waiting for it.
    }
    fn end(&'static self, k: K) {
        self.disconnect(k);
        self.interrupt.set(false);
        k.irqs.detach(self);
    }
}
