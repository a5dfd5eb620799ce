//! The fast path of an RPC whose message fits into registers, lies on one page, or has few pieces, and of faults and
//! exceptions that go to a keeper in such a message.
//!
//! It does the same as the general path in `ipc`, for the case of nearly every call: the message has no references and
//! all its pages are present, the thread at the other end waits for a message of this form, and no more important
//! thread is ready. Everything is checked before anything is changed; in all other cases the result is `None` and the
//! general path does the same from the same frame. The receiver does not restart its call: the call is completed in its
//! frame and the processor handed off to it (Draves et al., Continuations, section 2.4: recognition and handoff).

use super::pump::Way;
use super::{call, keeper, KernelMessage, Message};
use crate::exec;
use crate::memory;
use crate::object::port::{Port, Portset};
use crate::object::region::Region;
use crate::object::thread::{Hint, Missing, Run, Thread};
use crate::object::{Link, Object};
use crate::probe::{self, Kind};
use crate::stop::{Access, Fault, Handler, Stop};
use crate::{counters, K};
use abi::message::{FAULT_WORDS, SHORT_ANSWER_WORDS};
use abi::state::{Stage, Waiting, REGISTER_WORDS};
use abi::{Call, Code, Exception, Registers, MAX_LIST_REFS, MAX_SHORT, PAGE_SIZE};
use core::cell::Cell;
use hal::Pfn;

/// The handler of a call that has a fast path.
pub(crate) const fn handler(call: Call) -> Option<Handler> {
    Some(match call {
        Call::ClientConnectSendOverReceiveShort => by_length!(connect_short),
        Call::ServerAckSendWaitReceiveShort => by_length!(ack_short),
        Call::CallShort => by_length!(call_short),
        Call::ReplyWaitReceiveShort => by_length!(reply_short),
        Call::ClientConnectSendOverReceive => request_in_memory::<false>,
        Call::ServerAckSendWaitReceive => answer_in_memory::<false>,
        Call::Call => request_in_memory::<true>,
        Call::Reply => reply_alone,
        Call::ReplyWaitReceive => reply_in_memory,
        _ => return None,
    })
}

/// Makes a handler that dispatches by the byte count of a register message to a handler for that number of
/// words: the table costs less than a loop over the words. A count that is not a multiple of 8 takes the
/// general path.
macro_rules! by_length {
    ($handler:ident) => {{
        static HANDLERS: [Handler; 256] = {
            let mut all: [Handler; 256] = [call; 256];
            all[0] = $handler::<0>;
            all[8] = $handler::<1>;
            all[16] = $handler::<2>;
            all[24] = $handler::<3>;
            all[32] = $handler::<4>;
            all[40] = $handler::<5>;
            all[48] = $handler::<6>;
            all[56] = $handler::<7>;
            all[64] = $handler::<8>;
            all
        };
        |k, t| HANDLERS[usize::from((t.ctx.call().get() >> 8) as u8)](k, t)
    }};
}
use by_length;

const _: () = assert!(MAX_SHORT == 64);

fn connect_short<const N: usize>(k: K, t: &'static Thread) -> &'static Thread {
    or_else(k, t, request::<InRegisters<N>, false>(k, t))
}

fn ack_short<const N: usize>(k: K, t: &'static Thread) -> &'static Thread {
    or_else(k, t, answer::<InRegisters<N>, false>(k, t))
}

fn call_short<const N: usize>(k: K, t: &'static Thread) -> &'static Thread {
    or_else(k, t, request::<InRegisters<N>, true>(k, t))
}

fn reply_short<const N: usize>(k: K, t: &'static Thread) -> &'static Thread {
    match t.server().stage.get() {
        Stage::Fault => answer_fault(k, t),
        Stage::Exception if N == SHORT_ANSWER_WORDS => answer_exception(k, t),
        _ => or_else(k, t, answer::<InRegisters<N>, true>(k, t)),
    }
}

fn reply_in_memory(k: K, t: &'static Thread) -> &'static Thread {
    match t.server().stage.get() {
        Stage::Exception if t.ctx.send().length.get() == CONTROL => {
            answer_exception_by_control(k, t)
        }
        Stage::Exception => answer_exception_whole(k, t),
        _ => answer_in_memory::<true>(k, t),
    }
}

#[inline(always)]
fn request_in_memory<const IDEMPOTENT: bool>(k: K, t: &'static Thread) -> &'static Thread {
    match request::<OnAPage, IDEMPOTENT>(k, t) {
        Some(next) => next,
        None => request_otherwise::<IDEMPOTENT>(k, t),
    }
}

// Functions of their own, so that a message on a page needs no room for pieces.
#[inline(never)]
fn request_otherwise<const IDEMPOTENT: bool>(k: K, t: &'static Thread) -> &'static Thread {
    if IDEMPOTENT {
        if let Some(next) = request::<IntoRegisters, true>(k, t) {
            return next;
        }
    }
    or_else(k, t, request::<InPieces, IDEMPOTENT>(k, t))
}

#[inline(always)]
fn answer_in_memory<const IDEMPOTENT: bool>(k: K, t: &'static Thread) -> &'static Thread {
    match answer::<OnAPage, IDEMPOTENT>(k, t) {
        Some(next) => next,
        None => answer_in_pieces::<IDEMPOTENT>(k, t),
    }
}

#[inline(never)]
fn answer_in_pieces<const IDEMPOTENT: bool>(k: K, t: &'static Thread) -> &'static Thread {
    or_else(k, t, answer::<InPieces, IDEMPOTENT>(k, t))
}

#[inline(always)]
fn or_else(k: K, t: &'static Thread, done: Option<&'static Thread>) -> &'static Thread {
    match done {
        Some(next) => next,
        None if probe::rings() => k.exit_trap(t),
        None => call(k, t),
    }
}

/// The form in which a message travels: in registers, on a page or in pieces.
trait Form: Copy {
    /// The calls in which the other end waits for a message of this form.
    const RECEIVES: Call;
    const WAITS: Call;
    const CALLS: Call;
    /// The running thread's message, if it has this form.
    fn of(t: &Thread) -> Option<Self>;
    /// The byte count of a message that arrives in registers, as it stands beside the result code.
    #[inline(always)]
    fn count(self) -> u64 {
        0
    }
    /// The places between which the message moves.
    type Route: Copy;
    /// The places between which the message moves to that thread, if it can.
    fn route(self, k: K, t: &'static Thread, to: &'static Thread) -> Option<Self::Route>;
    /// Whether the running thread can receive a reply of this form.
    fn can_be_answered(t: &Thread) -> bool;
    /// Takes the message's length from the receiver's room.
    fn fill(self, route: &Self::Route, to: &Thread);
    /// Takes the message from what the sender's frame has still to send.
    fn consume(self, route: &Self::Route, t: &Thread);
    /// Moves the message, in a tail position. Returns the receiver.
    fn transfer(
        self,
        route: Self::Route,
        t: &'static Thread,
        to: &'static Thread,
    ) -> &'static Thread;
}

/// `N` words in registers.
#[derive(Clone, Copy)]
struct InRegisters<const N: usize>;

impl<const N: usize> Form for InRegisters<N> {
    const RECEIVES: Call = Call::ClientReceiveShort;
    const WAITS: Call = Call::ServerWaitReceiveShort;
    const CALLS: Call = Call::CallShort;

    #[inline(always)]
    fn of(t: &Thread) -> Option<Self> {
        brings_nothing(t).then_some(InRegisters)
    }

    #[inline(always)]
    fn count(self) -> u64 {
        (8 * N as u64) << 8
    }

    type Route = ();

    #[inline(always)]
    fn route(self, _: K, _: &'static Thread, _: &'static Thread) -> Option<()> {
        Some(())
    }

    #[inline(always)]
    fn can_be_answered(_: &Thread) -> bool {
        true
    }

    #[inline(always)]
    fn fill(self, (): &(), _: &Thread) {}

    #[inline(always)]
    fn consume(self, (): &(), _: &Thread) {}

    #[inline(always)]
    fn transfer(self, (): (), t: &'static Thread, to: &'static Thread) -> &'static Thread {
        let (from, into) = (t.ctx.words(), to.ctx.words());
        // The compiler would not unroll a loop.
        macro_rules! move_words {
            ($($n:literal)*) => {
                $(if N > $n {
                    into[$n].set(from[$n].get());
                })*
            };
        }
        move_words!(0 1 2 3 4 5 6 7);
        to
    }
}

/// Whether a register message carries no references.
#[inline(always)]
fn brings_nothing(t: &Thread) -> bool {
    t.ctx.words_refs().get() & MAX_LIST_REFS == 0 && probe::fast_paths()
}

/// A message of so many bytes, from 1 to [`PAGE_SIZE`], in one segment that lies on one page.
#[derive(Clone, Copy)]
struct OnAPage(u64);

impl OnAPage {
    /// The physical frame of the thread's receive area, if there is room for `length` bytes on that page.
    #[inline(always)]
    fn room(t: &Thread, length: u64) -> Option<Pfn> {
        let (address, room) = (t.ctx.receive().address.get(), t.ctx.receive().length.get());
        // The sum does not overflow: the length is at most a page.
        if length > room || (address % PAGE_SIZE).wrapping_add(length) > PAGE_SIZE {
            return None;
        }
        t.space_or_nowhere().near(address, Access::WRITE)
    }

    /// Notes in the sender's frame that the message has been sent.
    #[inline(always)]
    fn take_from(self, t: &Thread) {
        let sent = t.ctx.send();
        sent.address.set(sent.address.get().wrapping_add(self.0));
        sent.length.set(0);
    }
}

impl Form for OnAPage {
    const RECEIVES: Call = Call::ClientReceive;
    const WAITS: Call = Call::ServerWaitReceive;
    const CALLS: Call = Call::Call;

    #[inline(always)]
    fn of(t: &Thread) -> Option<Self> {
        let sent = t.ctx.send();
        let length = sent.length.get();
        // At least one byte, and all on one page.
        let simple = length.wrapping_sub(1) < PAGE_SIZE - sent.address.get() % PAGE_SIZE
            && sent.entries.get() == 0
            && sent.refs.get() & MAX_LIST_REFS == 0
            && probe::fast_paths();
        simple.then_some(OnAPage(length))
    }

    /// Physical frame and address on the sender's and on the receiver's side.
    type Route = [(Pfn, u64); 2];

    #[inline(always)]
    fn route(self, _: K, t: &'static Thread, to: &'static Thread) -> Option<Self::Route> {
        let (from, into) = (t.ctx.send().address.get(), to.ctx.receive().address.get());
        let here = t.straight().near(from, Access::READ)?;
        let there = OnAPage::room(to, self.0)?;
        Some([(here, from), (there, into)])
    }

    #[inline(always)]
    fn can_be_answered(t: &Thread) -> bool {
        let room = t.ctx.receive().length.get();
        room == 0 || room <= PAGE_SIZE && OnAPage::room(t, room).is_some()
    }

    #[inline(always)]
    fn fill(self, _: &Self::Route, to: &Thread) {
        let into = to.ctx.receive();
        into.address.set(into.address.get().wrapping_add(self.0));
        into.length.set(into.length.get().wrapping_sub(self.0));
    }

    #[inline(always)]
    fn consume(self, _: &Self::Route, t: &Thread) {
        self.take_from(t);
    }

    #[inline(always)]
    fn transfer(
        self,
        route: Self::Route,
        _: &'static Thread,
        to: &'static Thread,
    ) -> &'static Thread {
        copy(route[0], route[1], self.0, to)
    }
}

/// A request of so many whole words on one page, to a server that waits for a register message. The client receives its
/// reply in memory.
#[derive(Clone, Copy)]
struct IntoRegisters(u64);

impl Form for IntoRegisters {
    const RECEIVES: Call = Call::ClientReceive;
    const WAITS: Call = Call::ServerWaitReceiveShort;
    const CALLS: Call = Call::Call;

    #[inline(always)]
    fn of(t: &Thread) -> Option<Self> {
        let OnAPage(length) = OnAPage::of(t)?;
        let aligned = (length | t.ctx.send().address.get()).is_multiple_of(8);
        (aligned && length <= MAX_SHORT).then_some(IntoRegisters(length / 8))
    }

    #[inline(always)]
    fn count(self) -> u64 {
        self.0 << 11
    }

    /// The frame on the sender's side.
    type Route = Pfn;

    #[inline(always)]
    fn route(self, _: K, t: &'static Thread, _: &'static Thread) -> Option<Pfn> {
        memory::present(t.straight(), t.ctx.send().address.get(), Access::READ)
    }

    #[inline(always)]
    fn can_be_answered(t: &Thread) -> bool {
        InPieces::can_be_answered(t)
    }

    #[inline(always)]
    fn fill(self, _: &Pfn, _: &Thread) {}

    #[inline(always)]
    fn consume(self, _: &Pfn, t: &Thread) {
        OnAPage(8 * self.0).take_from(t);
    }

    #[inline(always)]
    fn transfer(self, pfn: Pfn, t: &'static Thread, to: &'static Thread) -> &'static Thread {
        let from = t.ctx.send().address.get() % PAGE_SIZE;
        for (n, register) in (0..self.0).zip(to.ctx.words()) {
            register.set(hal::read_word(pfn, from + 8 * n));
        }
        to
    }
}

/// A message of at most two segments, in few pieces ([`Way`]).
#[derive(Clone, Copy)]
struct InPieces;

impl Form for InPieces {
    const RECEIVES: Call = Call::ClientReceive;
    const WAITS: Call = Call::ServerWaitReceive;
    const CALLS: Call = Call::Call;

    #[inline(always)]
    fn of(t: &Thread) -> Option<Self> {
        (Way::may_be(t) && probe::fast_paths()).then_some(InPieces)
    }

    type Route = Way;

    #[inline(always)]
    fn route(self, k: K, t: &'static Thread, to: &'static Thread) -> Option<Way> {
        Way::of(k, t, t.straight(), to)
    }

    /// As in the general path, checks only the first segment, which every reply needs.
    #[inline(always)]
    fn can_be_answered(t: &Thread) -> bool {
        let (address, room) = (t.ctx.receive().address.get(), t.ctx.receive().length.get());
        let is_there = |address| {
            let space = t.space_or_nowhere();
            memory::present(space, address, Access::WRITE).is_some()
        };
        room == 0
            || room <= PAGE_SIZE && is_there(address) && is_there(address.wrapping_add(room - 1))
    }

    #[inline(always)]
    fn fill(self, route: &Way, to: &Thread) {
        route.save_received(to);
    }

    #[inline(always)]
    fn consume(self, route: &Way, t: &Thread) {
        route.save_sent(t);
    }

    #[inline(always)]
    fn transfer(self, route: Way, _: &'static Thread, to: &'static Thread) -> &'static Thread {
        route.go();
        to
    }
}

/// Copies `length` bytes between two pages. Returns `to`.
#[inline(never)]
fn copy(
    (here, from): (Pfn, u64),
    (there, into): (Pfn, u64),
    length: u64,
    to: &'static Thread,
) -> &'static Thread {
    hal::copy_bytes((there, into % PAGE_SIZE), (here, from % PAGE_SIZE), length);
    to
}

/// Hands the processor off from the running thread, which begins a wait, to a thread whose call this completes,
/// with this code and this message.
#[inline(always)]
fn hand_off<F: Form>(
    k: K,
    t: &'static Thread,
    why: Waiting,
    to: &'static Thread,
    code: Code,
    message: F,
    route: F::Route,
) -> &'static Thread {
    to.finish_with(code as u64 | message.count());
    switch_to(k, t, why, to, message, route)
}

/// Hands the processor off from the running thread, which begins a wait, to a thread whose wait this ends.
#[inline(always)]
fn switch_to<F: Form>(
    k: K,
    t: &'static Thread,
    why: Waiting,
    to: &'static Thread,
    message: F,
    route: F::Route,
) -> &'static Thread {
    to.run.set(Run::Running);
    t.wait_plain(why);
    if probe::rings() {
        // The probe's interrupt may have made a more important thread ready after priorities were compared.
        message.transfer(route, t, to);
        to.run.set(Run::Ready);
        k.cpu().sched.add(to);
        return k.exit_trap(t);
    }
    // Only tail calls from here on: saving registers around another call would cost half as much as the rest.
    if exec::SWITCHES_STACKS {
        message.transfer(route, t, to);
        return k.exit_trap_to(t, to);
    }
    counters::blocked(t, counters::Kind::HandedOff);
    message.transfer(route, t, to)
}

/// `client_connect_send_over_receive`, or with `IDEMPOTENT` `call`: to a server that waits in the call
/// [`Form::WAITS`]. `None`: nothing has changed.
#[inline(always)]
fn request<F: Form, const IDEMPOTENT: bool>(k: K, t: &'static Thread) -> Option<&'static Thread> {
    let message = F::of(t)?;
    probe::site(Kind::Handle).ok()?;
    let reference = k
        .handles
        .references
        .probe(t.straight(), t.ctx.parameter(0).get())?;
    let port = reference.port()?.active()?;
    let set = port.meets_at.get().active()?;
    let s = set.servers.first()?;
    let ready = s.ctx.call().get() as u8 == F::WAITS as u8
        && (IDEMPOTENT || t.client().stage.get() == Stage::None && !port.calls_only.get())
        && !k.cpu().sched.somebody_above(s)
        && (!IDEMPOTENT || F::can_be_answered(t));
    if !ready {
        return None;
    }
    let route = message.route(k, t, s)?;
    set.servers.pop(s);
    message.fill(&route, s);
    s.ctx.parameter(0).set(port.alias.get());
    Some(if IDEMPOTENT {
        s.server().set(Stage::Call, Link::to_active(t));
        t.hint.set(Hint::Called(Link::to_active(s)));
        hand_off(k, t, Waiting::Reply, s, Code::Call, message, route)
    } else {
        s.server().set(Stage::Ack, Link::to_active(t));
        t.client().set(Stage::Over, Link::to_active(s));
        message.consume(&route, t);
        t.become_call(F::RECEIVES);
        hand_off(k, t, Waiting::Peer, s, Code::Ok, message, route)
    })
}

/// The portset at which a server that replies waits next, and the thread to which it owes the reply.
#[inline(always)]
#[cfg_attr(fermata_probe, track_caller)]
fn to_answer(k: K, s: &'static Thread) -> Option<(&'static Portset, &'static Thread)> {
    probe::site(Kind::Handle).ok()?;
    let handle = s.ctx.parameter(0).get();
    let set = k.handles.portsets.probe(s.straight(), handle)?;
    Some((set, s.server().peer().active()?))
}

/// Whether the thread waits for this server's reply to a request, and made the request with the call `by`.
#[inline(always)]
fn awaits_reply(c: &Thread, s: &'static Thread, by: Call) -> bool {
    s.server().stage.get() == Stage::Call
        && c.run.get() == Run::Waiting(Waiting::Reply)
        && matches!(c.hint.get(), Hint::Called(server) if server == Link::to_active(s))
        && c.ctx.call().get() as u8 == by as u8
}

/// `reply` to a request, with a message in memory: the client is ready, and the server goes on.
fn reply_alone(k: K, s: &'static Thread) -> &'static Thread {
    match try_reply_alone(k, s) {
        Some(()) => k.exit_trap(s),
        None => or_else(k, s, None),
    }
}

/// `None`: nothing has changed.
#[inline(always)]
fn try_reply_alone(k: K, s: &'static Thread) -> Option<()> {
    let message = InPieces::of(s)?;
    let c = s.server().peer().active()?;
    if !awaits_reply(c, s, InPieces::CALLS) {
        return None;
    }
    let route = message.route(k, s, c)?;
    message.fill(&route, c);
    route.go();
    c.complete(k, Code::Ok);
    s.server().clear();
    s.finish(Code::Ok);
    Some(())
}

/// `server_ack_send_wait_receive`, or with `IDEMPOTENT` `reply_wait_receive`: to a client that waits for a
/// reply of the same form, while no other client waits. `None`: nothing has changed.
#[inline(always)]
fn answer<F: Form, const IDEMPOTENT: bool>(k: K, s: &'static Thread) -> Option<&'static Thread> {
    let message = F::of(s)?;
    let (set, c) = to_answer(k, s)?;
    let awaited = if IDEMPOTENT {
        awaits_reply(c, s, F::CALLS)
    } else {
        s.server().stage.get() == Stage::Ack
            && c.run.get() == Run::Waiting(Waiting::Peer)
            && c.client().stage.get() == Stage::Over
            && c.client().peer() == Link::to_active(s)
            && c.ctx.call().get() as u16 == F::RECEIVES as u16
    };
    if !awaited {
        return None;
    }
    let route = message.route(k, s, c)?;
    wait_again(k, s, set, c, F::WAITS)?;
    message.fill(&route, c);
    if !IDEMPOTENT {
        message.consume(&route, s);
        c.client().clear();
    }
    Some(hand_off(
        k,
        s,
        Waiting::Portset,
        c,
        Code::Ok,
        message,
        route,
    ))
}

/// Takes the server that waits at the port in this call out of its queue, if the scheduler would run it next.
#[inline(always)]
fn ready_server(k: K, port: &'static Port, call: Call) -> Option<&'static Thread> {
    let set = port.meets_at.get().active()?;
    let s = set.servers.first()?;
    let ready = s.ctx.call().get() as u8 == call as u8
        && !k.cpu().sched.somebody_above(s)
        && probe::fast_paths();
    if !ready {
        return None;
    }
    set.servers.pop(s);
    Some(s)
}

/// Delivers an exception of the running thread to a keeper that waits for a register message. `None`: nothing
/// has changed.
#[inline(always)]
pub(crate) fn exception(
    k: K,
    t: &'static Thread,
    code: Exception,
    address: u64,
    detail: u64,
) -> Option<&'static Thread> {
    let port = Port::named(t.space()?.keeper.get())?.active()?;
    let s = ready_server(k, port, Call::ServerWaitReceiveShort)?;
    let begin = [code as u64, address, detail, t.ctx.tag.get()];
    tell(s, port, &super::short_exception(t, begin), Code::Exception);
    Some(excepted(k, t, s, code, address))
}

/// Delivers an exception of the running thread, with all its registers, to a keeper that waits for a message in
/// memory and has the place for it on one page. `None`: nothing has changed.
#[inline(always)]
pub(crate) fn exception_whole(
    k: K,
    t: &'static Thread,
    code: Exception,
    address: u64,
    detail: u64,
) -> Option<&'static Thread> {
    let port = Port::named(t.space()?.keeper.get())?.active()?;
    let set = port.meets_at.get().active()?;
    let content = KernelMessage::Exception([code as u64, address, detail, t.ctx.tag.get()]);
    let message = Message {
        content: &content,
        about: t,
        short: false,
    };
    let s = set.servers.first()?;
    if !s.ctx.receive().address.get().is_multiple_of(8) {
        return None;
    }
    let pfn = OnAPage::room(s, message.length())?;
    let s = ready_server(k, port, Call::ServerWaitReceive)?;
    tell_on_page(s, port, &message, pfn);
    Some(excepted(k, t, s, code, address))
}

/// Hands the processor off to the keeper to which an exception of the running thread has been delivered.
#[inline(always)]
fn excepted(
    k: K,
    t: &'static Thread,
    s: &'static Thread,
    code: Exception,
    address: u64,
) -> &'static Thread {
    t.exception.set(code as u8);
    t.exception_address.set(address);
    s.server().set(Stage::Exception, Link::to_active(t));
    t.set_exception_delivered(true);
    t.hint.set(Hint::Excepted(Link::to_active(s)));
    switch_to(k, t, Waiting::Exception, s, InRegisters::<0>, ())
}

/// Delivers a page fault of the running thread to a keeper that waits for a register message. `None`: nothing
/// has changed.
#[inline(always)]
pub(crate) fn fault(
    k: K,
    t: &'static Thread,
    port: &'static Port,
    words: &[u64; FAULT_WORDS],
    fault: &Fault,
    region: &'static Region,
) -> Option<&'static Thread> {
    port.head().open().ok()?;
    let s = ready_server(k, port, Call::ServerWaitReceiveShort)?;
    tell(s, port, words, Code::Fault);
    s.server().set(Stage::Fault, Link::to_active(t));
    super::note_fault(t, s, Missing::of(fault), region);
    keeper::goes_on_with_page(t, fault.address, fault.access);
    Some(switch_to(k, t, Waiting::Reply, s, InRegisters::<0>, ()))
}

/// Whether the thread waits for this server's answer to its exception.
#[inline(always)]
fn awaits_answer(c: &Thread, s: &'static Thread) -> bool {
    c.run.get() == Run::Waiting(Waiting::Exception)
        && matches!(c.hint.get(), Hint::Excepted(keeper) if keeper == Link::to_active(s))
}

/// `reply_wait_receive_short` to a thread with an exception: the thread goes on with the control registers in the
/// reply.
#[inline(never)]
fn answer_exception(k: K, s: &'static Thread) -> &'static Thread {
    or_else(k, s, try_answer_exception(k, s))
}

#[inline(always)]
fn try_answer_exception(k: K, s: &'static Thread) -> Option<&'static Thread> {
    if !brings_nothing(s) {
        return None;
    }
    let (set, c) = to_answer(k, s)?;
    let [pc, sp, flags, call, ..] = s.ctx.words();
    let answer = [pc, sp, flags, call].map(Cell::get);
    if !(awaits_answer(c, s) && hal::user_pc_ok(answer[0])) {
        return None;
    }
    wait_again(k, s, set, c, Call::ServerWaitReceiveShort)?;
    super::go_on_at(c, answer);
    super::end_exception(c);
    Some(switch_to(k, s, Waiting::Portset, c, InRegisters::<0>, ()))
}

/// The length of an answer to an exception in memory that has the control registers alone.
const CONTROL: u64 = 8 * SHORT_ANSWER_WORDS as u64;

/// `reply_wait_receive` to a thread with an exception: the thread goes on with the control registers in the reply.
#[inline(never)]
fn answer_exception_by_control(k: K, s: &'static Thread) -> &'static Thread {
    or_else(k, s, try_answer_exception_by_control(k, s))
}

#[inline(always)]
fn try_answer_exception_by_control(k: K, s: &'static Thread) -> Option<&'static Thread> {
    let (set, c, pfn, at) = to_answer_from(k, s, CONTROL)?;
    let answer = hal::read_array(pfn, at);
    if !hal::user_pc_ok(answer[0]) {
        return None;
    }
    wait_again(k, s, set, c, Call::ServerWaitReceive)?;
    super::go_on_at(c, answer);
    super::end_exception(c);
    Some(switch_to(k, s, Waiting::Portset, c, InRegisters::<0>, ()))
}

/// As [`answer_exception_by_control`], with all registers in the reply.
#[inline(never)]
fn answer_exception_whole(k: K, s: &'static Thread) -> &'static Thread {
    or_else(k, s, try_answer_exception_whole(k, s))
}

#[inline(always)]
fn try_answer_exception_whole(k: K, s: &'static Thread) -> Option<&'static Thread> {
    let (set, c, pfn, at) = to_answer_from(k, s, 8 * REGISTER_WORDS as u64)?;
    let answer = Registers::from_words(&hal::read_array(pfn, at));
    if !hal::user_registers_ok(&answer) {
        return None;
    }
    wait_again(k, s, set, c, Call::ServerWaitReceive)?;
    c.ctx.set_registers(&answer);
    super::end_exception(c);
    Some(switch_to(k, s, Waiting::Portset, c, InRegisters::<0>, ()))
}

/// As [`to_answer`], for a thread that waits for the reply to its exception, if the reply has so many bytes. Also
/// returns the physical frame of the reply and the offset in the frame.
#[inline(always)]
fn to_answer_from(
    k: K,
    s: &'static Thread,
    bytes: u64,
) -> Option<(&'static Portset, &'static Thread, Pfn, u64)> {
    let OnAPage(length) = OnAPage::of(s)?;
    let (set, c) = to_answer(k, s)?;
    let from = s.ctx.send().address.get();
    let whole = length == bytes && from.is_multiple_of(8);
    if !(whole && awaits_answer(c, s)) {
        return None;
    }
    let pfn = s.straight().near(from, Access::READ)?;
    Some((set, c, pfn, from % PAGE_SIZE))
}

/// `reply_wait_receive_short` to a thread that faulted and whose page is present now.
#[inline(never)]
fn answer_fault(k: K, s: &'static Thread) -> &'static Thread {
    or_else(k, s, try_answer_fault(k, s))
}

#[inline(always)]
fn try_answer_fault(k: K, s: &'static Thread) -> Option<&'static Thread> {
    if !brings_nothing(s) {
        return None;
    }
    let (set, c) = to_answer(k, s)?;
    let Hint::Faulted(server, missing, id, region) = c.hint.get() else {
        return None;
    };
    let awaited = c.run.get() == Run::Waiting(Waiting::Reply)
        && core::ptr::eq(server.get(), s)
        && !memory::still_missing(k, c.open_space()?, missing, (id, region));
    if !awaited {
        return None;
    }
    wait_again(k, s, set, c, Call::ServerWaitReceiveShort)?;
    c.found_page();
    Some(switch_to(k, s, Waiting::Portset, c, InRegisters::<0>, ()))
}

/// Makes the server, which has replied to `to`, wait for its next client. `None`, with nothing changed, if a
/// client or a notice is waiting or the scheduler would not run `to` next.
#[inline(always)]
fn wait_again(
    k: K,
    s: &'static Thread,
    set: &'static Portset,
    to: &'static Thread,
    call: Call,
) -> Option<()> {
    if !set.clients.is_empty()
        || set.unreferenced().is_some()
        || !k.cpu().sched.comes_next(to)
        || !set.servers.push_last(s)
    {
        return None;
    }
    s.server().clear();
    s.become_call(call);
    Some(())
}

/// Completes the call of a server with a register message of the kernel, if the server waits in
/// `server_wait_receive_short`. Returns whether it did.
#[inline(always)]
pub(super) fn tell<const N: usize>(
    s: &'static Thread,
    port: &'static Port,
    words: &[u64; N],
    code: Code,
) -> bool {
    if s.ctx.call().get() as u8 != Call::ServerWaitReceiveShort as u8 {
        return false;
    }
    for (register, word) in s.ctx.words().into_iter().zip(words) {
        register.set(*word);
    }
    s.ctx.parameter(0).set(port.alias.get());
    probe::progress();
    s.finish_with(code as u64 | (N as u64) << 11);
    true
}

/// Completes the call of a server with a message of the kernel in memory, if the server waits in
/// `server_wait_receive` and the message fits into its first segment, on one page. Returns whether it did.
#[inline(always)]
pub(super) fn tell_in_memory(
    k: K,
    s: &'static Thread,
    port: &'static Port,
    message: &Message<'_>,
) -> Result<bool, Stop> {
    let into = s.ctx.receive();
    let (address, room) = (into.address.get(), into.length.get());
    let length = message.length();
    let offset = address % PAGE_SIZE;
    let fits = s.ctx.call().get() as u8 == Call::ServerWaitReceive as u8
        && length <= room
        && offset + length <= PAGE_SIZE
        && offset.is_multiple_of(8)
        && probe::fast_paths();
    if !fits {
        return Ok(false);
    }
    let pfn = memory::translate(k, s.space_or_nowhere(), address, Access::WRITE)?;
    tell_on_page(s, port, message, pfn);
    Ok(true)
}

/// Completes the call of a server with a message of the kernel, which fits into the server's first segment, at an
/// aligned address on this frame's page.
#[inline(always)]
fn tell_on_page(s: &'static Thread, port: &'static Port, message: &Message<'_>, pfn: Pfn) {
    let into = s.ctx.receive();
    let (address, length) = (into.address.get(), message.length());
    message.write(pfn, address % PAGE_SIZE);
    into.address.set(address + length);
    into.length.set(into.length.get() - length);
    s.ctx.parameter(0).set(port.alias.get());
    probe::progress();
    s.finish(message.content.code());
}
