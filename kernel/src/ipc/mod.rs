//! IPC: reliable connections, idempotent calls, and the kernel's own messages.
//!
//! An entrypoint is a sequence of stages ([`abi::ipc::plan`]). [`run`] does the first stage, writes the
//! entrypoint of the remaining stages into the frame, and goes on with the next; a wait or a fault between two
//! stages therefore needs no other record (rule A3).
//!
//! The thread at either end does the work of both: a sender that meets a waiting receiver moves the bytes and completes
//! the receiver's call in its frame, and the other way round (Mach's recognition). If a page of the peer is absent, the
//! keeper of the page is asked for it on the peer's behalf. Any other obstacle on the peer's side is left to the peer:
//! it is woken with nothing granted, meets the same obstacle itself, and goes on from there.

pub(crate) mod fast;
pub(crate) mod keeper;
mod pump;

use crate::handle;
use crate::kernel::core;
use crate::memory;
use crate::object::connection::{is_of_connection, End};
use crate::object::port::{Port, Portset};
use crate::object::region::Region;
use crate::object::space::Space;
use crate::object::thread::{Hint, Missing, PendingFault, PortWait, Run, Thread, Word};
use crate::object::{Link, Object};
use crate::stop::{Access, Fault, Handled, Outcome, Stop};
use crate::{counters, K};
use abi::ipc::{next, plan, Plan};
use abi::message::{EXCEPTION_WORDS, FAULT_WORDS, SHORT_ANSWER_WORDS, SHORT_EXCEPTION_WORDS};
use abi::state::{Stage, Waiting};
use abi::{Call, Code, Exception, MAX_IDEMPOTENT};
use hal::{NarrowRef, Pfn};
use pump::{pump, pump_whole, Pumped, Sink, Source, Trouble};

/// The most threads of the other side that a call refuses in one turn, and between two preemption points, because of an
/// obstacle in their memory or their call. Each refusal can cost the search through a list of maximal length and a
/// message to a keeper.
const REFUSALS_PER_TURN: u32 = 64;
const REFUSALS_PER_POINT: u32 = 2;

/// Counts one more thread that the call of `t` is about to try, after `refused` threads that it refused. Returns
/// whether the call must pause first; its frame is unchanged.
fn is_turn_over(k: K, t: &Thread, refused: &mut u32) -> bool {
    let before = *refused;
    *refused += 1;
    let is_over = before == REFUSALS_PER_TURN
        || before > 0 && before.is_multiple_of(REFUSALS_PER_POINT) && k.preempts(t);
    #[cfg(test)]
    if is_over {
        crate::probe::points::note_refusals(before);
    }
    is_over
}

/// As [`is_turn_over`], for servers to which the kernel delivers a message about a fault or an exception of `t`. If `t`
/// is not the running thread, only few servers are tried.
fn is_telling_over(k: K, t: &'static Thread, refused: &mut u32) -> bool {
    if t.run.get() != Run::Running {
        *refused += 1;
        return *refused > REFUSALS_PER_POINT;
    }
    let is_over = is_turn_over(k, t, refused);
    #[cfg(test)]
    if is_over {
        crate::probe::points::they_were_keepers();
    }
    is_over
}

/// The result of a stage that was not stopped.
enum Step {
    /// The stage is done. If it was the last one or the code is not `Ok`, the code is the call's result.
    Done(Code),
    /// The whole call is complete, with its result in the frame.
    Finished,
    /// The thread has begun a wait.
    Wait,
}

/// Runs the stages of the call in the frame of the running thread.
pub(crate) fn run(k: K, t: &'static Thread, call: Call) -> Handled {
    let mut call = call;
    match t.take_pending_fault(k) {
        Some(PendingFault::Page(page, access)) => {
            memory::translate(k, space(t)?, page.0, Access(access.into()))?;
        }
        Some(PendingFault::Wrong(exception, address)) => {
            return Err(Stop::Exception(exception, address.0))
        }
        // A client looks for the refused page of its reply here, not when the reply is to be written: otherwise its
        // request would be delivered, and its keeper asked, again and again.
        None => {
            if let Some(refused) = t.refused_in_call() {
                memory::translate(k, space(t)?, refused.page(), refused.access())?;
            }
        }
    }
    loop {
        let stages = plan(call);
        let step = match stages.first() {
            Some(Plan::CONNECT) => connect(k, t)?,
            Some(Plan::ACK) => ack(t, stages)?,
            Some(Plan::REPLY) => reply(k, t, stages)?,
            Some(Plan::CALL) => return call_idempotent(k, t, stages),
            Some(Plan::SEND) => send(k, t, stages)?,
            Some(Plan::OVER) => over(k, t, stages)?,
            Some(Plan::WAIT) => wait(k, t, stages)?,
            Some(Plan::RECEIVE) => return receive(k, t, stages),
            Some(Plan::DISCONNECT) => disconnect(k, t, stages)?,
            _ => return Err(Stop::Exception(Exception::NoCall, t.ctx.pc().get())),
        };
        match (step, next(call)) {
            (Step::Wait, _) => return Ok(Outcome::Wait),
            (Step::Finished, _) => return Ok(Outcome::Done),
            (Step::Done(Code::Ok), Some(rest)) => {
                t.become_stage(rest);
                call = rest;
            }
            (Step::Done(code), _) => {
                t.finish(code);
                return Ok(Outcome::Done);
            }
        }
    }
}

impl Thread {
    /// The call has finished its first stage and becomes the call of the remaining ones. A register message
    /// that has still to be sent keeps its byte count.
    #[inline(always)]
    fn become_stage(&self, rest: Call) {
        let mut count = 0;
        if plan(rest).has(Plan::SHORT_SEND) {
            count = self.ctx.call().get() & 0xff00;
        }
        self.become_call(rest);
        self.ctx.call().set(rest as u64 | count);
    }
}

/// The general path of an IPC call, stage by stage: the handler of calls without a fast path, and of those that
/// the fast path declines.
pub(crate) fn call(k: K, t: &'static Thread) -> &'static Thread {
    if t.goes_straight().is_none() {
        if let Err(next) = keeper::prepare(k, t) {
            return next;
        }
    }
    let Some(call) = t.call() else {
        return k.stopped(t, Stop::Exception(Exception::NoCall, t.ctx.call().get()));
    };
    match run(k, t, call) {
        Ok(_) => k.exit_trap(t),
        Err(stop) => k.stopped(t, stop),
    }
}

fn space(t: &'static Thread) -> Result<&'static Space, Stop> {
    t.space().ok_or(Stop::Exception(Exception::NoSpace, 0))
}

/// The end of the connection that a call with these stages uses; and the peer's end of the same connection.
fn end_of(t: &'static Thread, stages: Plan) -> End<'static> {
    if stages.has(Plan::CLIENT) {
        t.client()
    } else {
        t.server()
    }
}

fn peer_end(peer: &'static Thread, stages: Plan) -> End<'static> {
    if stages.has(Plan::CLIENT) {
        peer.server()
    } else {
        peer.client()
    }
}

/// The thread at the other end of the connection. A connection exists while both ends name each other; if it
/// has ended, this end is cleared.
fn peer(t: &'static Thread, stages: Plan) -> Result<&'static Thread, Stop> {
    let end = end_of(t, stages);
    if !is_of_connection(end.stage.get()) {
        return Err(Stop::Code(Code::WrongStage));
    }
    match end.peer().get() {
        Some(p) if peer_end(p, stages).connects(t) => Ok(p),
        _ => {
            end.clear();
            Err(Stop::Code(Code::Disconnected))
        }
    }
}

/// The remaining stages of the peer's call, if the peer waits on this connection.
fn peer_waits(p: &'static Thread, stages: Plan) -> Option<Plan> {
    if !p.waits_for(Waiting::Peer) {
        return None;
    }
    let theirs = plan(p.call()?);
    (theirs.has(Plan::SERVER) == stages.has(Plan::CLIENT)).then_some(theirs)
}

#[cfg_attr(fermata_probe, track_caller)]
fn wait_for_peer(t: &'static Thread) -> Step {
    t.wait_plain(Waiting::Peer);
    Step::Wait
}

/// Wakes the peer, which makes its call again and meets the obstacle on its own side itself. This is also done with a
/// server that should get a message of the kernel, even if the obstacle is an absent page: otherwise one trap could ask
/// a long chain of keepers whose buffers are all absent.
fn leave_to_peer(k: K, p: &'static Thread, stop: &Stop) {
    if let Stop::Vacant(met) = *stop {
        // It would only come back here, without a look at its memory, and others would send it away again.
        p.quit(k);
        p.hint.set(Hint::None);
        return keeper::await_body(k, p, met);
    }
    p.wake(k);
    match *stop {
        Stop::Fault(Fault {
            address, access, ..
        })
        | Stop::Device(address, access) => {
            p.leave_fault(k, PendingFault::Page(Word(address), access.0 as u8))
        }
        Stop::Exception(exception, address) => {
            p.leave_fault(k, PendingFault::Wrong(exception, Word(address)))
        }
        _ => {}
    }
}

/// Handles an obstacle that stopped a message on the peer's side. If a page is missing, its keeper is asked at once on
/// behalf of the peer, which would do the same if it ran. Any other obstacle is left to the peer.
fn settle_for_peer(k: K, p: &'static Thread, stop: &Stop) {
    let Stop::Fault(missing) = stop else {
        return leave_to_peer(k, p, stop);
    };
    k.counters.abandon(p, stop);
    p.quit(k);
    p.hint.set(Hint::None);
    keeper::ask_for(k, p, missing);
}

// ---- the client's connection -------------------------------------------------------------------

/// Connects to a port: finds a server that waits there, or waits for one.
fn connect(k: K, t: &'static Thread) -> Result<Step, Stop> {
    let port = handle::find_target::<Port>(k, space(t)?, t.ctx.parameter(0).get())?;
    if port.calls_only.get() {
        return Err(Stop::Code(Code::Denied));
    }
    if t.client().stage.get() != Stage::None {
        return Err(Stop::Code(Code::WrongStage));
    }
    match waiting_server(port) {
        Some(s) => {
            link(k, t, s, port);
            Ok(Step::Done(Code::Ok))
        }
        None => {
            wait_for_server(t, port, PortWait::Connect);
            Ok(Step::Wait)
        }
    }
}

#[cfg_attr(fermata_probe, track_caller)]
fn wait_for_server(t: &'static Thread, port: &'static Port, purpose: PortWait) {
    t.wait_on(port.client_queue(), Waiting::Port);
    t.hint.set(Hint::PortWait(NarrowRef::of(port), purpose));
}

fn waiting_server(port: &'static Port) -> Option<&'static Thread> {
    port.meets_at()
        .filter(|set| set.head().open().is_ok())?
        .servers
        .first()
}

/// Connects client `c` with server `s`. If `s` waits at a portset, completes that wait in its frame. The running
/// thread, which may be either of them, goes on with its own next stage.
fn link(k: K, c: &'static Thread, s: &'static Thread, port: &'static Port) {
    c.client().set(Stage::Sending, Link::to(s));
    s.server().set(Stage::Receiving, Link::to(c));
    s.ctx.parameter(0).set(port.alias.get());
    if !s.waits_for(Waiting::Portset) {
        return;
    }
    match s.call().and_then(next) {
        Some(rest) => {
            s.quit(k);
            s.become_stage(rest);
            s.wait_plain(Waiting::Peer);
        }
        _ => s.complete(k, Code::Ok),
    }
}

/// Acknowledges that the peer turned the direction round: this end may send now.
fn ack(t: &'static Thread, stages: Plan) -> Result<Step, Stop> {
    let p = peer(t, stages)?;
    let end = end_of(t, stages);
    if end.stage.get() != Stage::Ack {
        return Err(Stop::Code(Code::WrongStage));
    }
    p.head().open()?;
    end.stage.set(Stage::Sending);
    peer_end(p, stages).stage.set(Stage::Receiving);
    Ok(Step::Done(Code::Ok))
}

fn send(k: K, t: &'static Thread, stages: Plan) -> Result<Step, Stop> {
    let p = peer(t, stages)?;
    if end_of(t, stages).stage.get() != Stage::Sending {
        return Err(Stop::Code(Code::WrongStage));
    }
    let Some(theirs) = peer_waits(p, stages).filter(|s| s.first() == Some(Plan::RECEIVE)) else {
        // An empty message needs no receiver.
        let mut source = Source::of(t, stages, space(t)?);
        let empty = pump::is_empty(k, &mut source);
        source.save(t);
        return Ok(if empty? {
            Step::Done(Code::Ok)
        } else {
            wait_for_peer(t)
        });
    };
    match pump(k, (t, stages), (p, theirs), t) {
        Ok(Pumped::Exhausted) => Ok(Step::Done(Code::Ok)),
        Ok(Pumped::Preempted) => Err(Stop::Again),
        Ok(Pumped::Full) => {
            p.complete_receive(k, Code::More);
            Ok(wait_for_peer(t))
        }
        Err(Trouble::Source(stop)) => Err(stop),
        Err(Trouble::Sink(stop)) => {
            settle_for_peer(k, p, &stop);
            Ok(wait_for_peer(t))
        }
    }
}

/// Turns the direction round if the peer waits to receive; otherwise waits until the peer does.
fn over(k: K, t: &'static Thread, stages: Plan) -> Result<Step, Stop> {
    let p = peer(t, stages)?;
    let end = end_of(t, stages);
    if end.stage.get() != Stage::Sending {
        return Err(Stop::Code(Code::WrongStage));
    }
    match peer_waits(p, stages) {
        Some(theirs) if theirs.first() == Some(Plan::RECEIVE) => {
            end.stage.set(Stage::Over);
            peer_end(p, stages).stage.set(Stage::Ack);
            p.complete_receive(k, Code::Ok);
            Ok(Step::Done(Code::Ok))
        }
        _ => Ok(wait_for_peer(t)),
    }
}

fn receive(k: K, t: &'static Thread, stages: Plan) -> Handled {
    let end = end_of(t, stages);
    if end.stage.get() == Stage::Finished {
        end.clear();
        t.finish_receive(Code::Ok);
        return Ok(Outcome::Done);
    }
    let p = match peer(t, stages) {
        Ok(p) => p,
        Err(Stop::Code(code)) => {
            t.finish_receive(code);
            return Ok(Outcome::Done);
        }
        Err(stop) => return Err(stop),
    };
    if !matches!(end.stage.get(), Stage::Receiving | Stage::Over) {
        t.finish_receive(Code::WrongStage);
        return Ok(Outcome::Done);
    }
    if let Some(theirs) = peer_waits(p, stages) {
        if theirs.first() == Some(Plan::SEND) {
            match pump(k, (p, theirs), (t, stages), t) {
                Ok(Pumped::Exhausted) => sent(k, p),
                Ok(Pumped::Preempted) => return Err(Stop::Again),
                Ok(Pumped::Full) => {
                    t.finish_receive(Code::More);
                    return Ok(Outcome::Done);
                }
                Err(Trouble::Sink(stop)) => return Err(stop),
                Err(Trouble::Source(stop)) => settle_for_peer(k, p, &stop),
            }
        }
        // The stages that the peer has left now: the pump may have completed its send.
        let theirs = peer_waits(p, stages);
        if theirs.is_some_and(|s| s.first() == Some(Plan::OVER)) {
            peer_end(p, stages).stage.set(Stage::Over);
            end.stage.set(Stage::Ack);
            turned(k, p);
            t.finish_receive(Code::Ok);
            return Ok(Outcome::Done);
        }
    }
    t.wait_plain(Waiting::Peer);
    Ok(Outcome::Wait)
}

/// Completes the send stage of a waiting peer: its call is complete, or becomes the call of the remaining
/// stages.
fn sent(k: K, p: &'static Thread) {
    match p.call().and_then(next) {
        Some(rest) => {
            p.become_stage(rest);
            // The peer goes on waiting on this connection, unless its next stage is `wait`, which only the
            // peer itself can do.
            if plan(rest).first() == Some(Plan::WAIT) {
                p.wake(k);
            }
        }
        _ => p.complete(k, Code::Ok),
    }
}

/// Completes the `over` stage of a waiting peer; if its next stage is to receive, the peer goes on waiting.
fn turned(k: K, p: &'static Thread) {
    match p.call().and_then(next) {
        Some(rest) => p.become_stage(rest),
        _ => p.complete(k, Code::Ok),
    }
}

fn disconnect(k: K, t: &'static Thread, stages: Plan) -> Result<Step, Stop> {
    let stage = end_of(t, stages).stage.get();
    if stage == Stage::None {
        return Ok(Step::Done(Code::Ok));
    }
    if stages.has(Plan::CLIENT) {
        t.drop_client_end(k);
    } else {
        t.drop_server_end(k);
    }
    Ok(Step::Done(Code::Ok))
}

// ---- the server's wait ---------------------------------------------------------------------------

/// Ends the connection and waits for the next client.
fn wait(k: K, t: &'static Thread, stages: Plan) -> Result<Step, Stop> {
    let handle = t.ctx.parameter(0).get();
    let set = handle::find::<Portset>(k, space(t)?, handle)?;
    leave_client(k, t);
    if let Some(port) = set.unreferenced() {
        t.ctx.parameter(0).set(port.told(k));
        return Ok(Step::Done(Code::Unreferenced));
    }
    let mut refused = 0;
    while let Some(c) = set.clients.first() {
        if is_turn_over(k, t, &mut refused) {
            return Err(Stop::Again);
        }
        let (Some(call), Hint::PortWait(port, purpose)) = (c.call(), c.hint.get()) else {
            c.wake(k);
            continue;
        };
        let port = port.get();
        match purpose {
            PortWait::Connect => {
                c.quit(k);
                link(k, c, t, port);
                match next(call) {
                    Some(rest) => {
                        c.become_stage(rest);
                        if may_send_nothing(c, rest) {
                            // An empty message needs no receiver: the client sends it when it runs.
                            c.make_ready(k);
                        } else {
                            c.wait_plain(Waiting::Peer);
                        }
                    }
                    None => c.complete(k, Code::Ok),
                }
                return Ok(Step::Done(Code::Ok));
            }
            PortWait::Call => {
                if take_call(k, t, c, port)? {
                    return Ok(Step::Finished);
                }
            }
            // The client meets its fault or exception again, and then finds this server waiting.
            PortWait::Trap => c.wake(k),
        }
    }
    let mut deadline = u64::MAX;
    if stages.has(Plan::UNTIL) {
        deadline = space(t)?.machine_time(t.ctx.deadline().get());
        if deadline <= hal::now() {
            return Err(Stop::Code(Code::TimedOut));
        }
    }
    t.wait_on(&set.servers, Waiting::Portset);
    if deadline != u64::MAX {
        k.add_deadline(t, deadline);
    }
    Ok(Step::Wait)
}

/// Whether the call sends a message that seems to be empty, as far as can be told without reading memory.
fn may_send_nothing(c: &'static Thread, call: Call) -> bool {
    let stages = plan(call);
    let nothing = |space| Source::of(c, stages, space).seems_empty();
    stages.first() == Some(Plan::SEND) && c.space().is_some_and(nothing)
}

/// Delivers the idempotent request of a waiting client to the running server. Returns whether it was delivered.
/// An obstacle on the client's side does not stop the server ([`settle_for_peer`]); an obstacle on the server's own
/// side does.
fn take_call(
    k: K,
    s: &'static Thread,
    c: &'static Thread,
    port: &'static Port,
) -> Result<bool, Stop> {
    let Some((call, space)) = c.call().zip(c.space()) else {
        c.wake(k);
        return Ok(false);
    };
    match deliver(k, s, port, Source::of(c, plan(call), space), Code::Call) {
        Ok(Ok(())) => {
            c.quit(k);
            owe_reply(c, s);
            Ok(true)
        }
        Ok(Err(code)) => {
            c.complete(k, code);
            Ok(false)
        }
        Err(Trouble::Sink(stop)) => Err(stop),
        Err(Trouble::Source(stop)) => {
            settle_for_peer(k, c, &stop);
            Ok(false)
        }
    }
}

/// Notes that the server has the client's request; the client begins to wait for the reply.
#[cfg_attr(fermata_probe, track_caller)]
fn owe_reply(c: &'static Thread, s: &'static Thread) {
    s.server().set(Stage::Call, Link::to(c));
    c.hint.set(Hint::Called(Link::to(s)));
    c.wait_plain(Waiting::Reply);
}

/// Ends the connection of a server that goes on to its next client: in order if it is the server's turn to send,
/// otherwise with an error for the client.
fn leave_client(k: K, s: &'static Thread) {
    if s.server().stage.get() == Stage::Sending {
        if let Some(c) = s.server().peer().get() {
            if c.client().connects(s) {
                s.server().clear();
                let receives = peer_waits(c, Plan::SERVER)
                    .is_some_and(|theirs| theirs.first() == Some(Plan::RECEIVE));
                if receives {
                    c.client().clear();
                    c.complete_receive(k, Code::Ok);
                } else {
                    // The link to the server is kept, in case an older state of the client is set (`finished` in
                    // `syscall/state.rs`).
                    c.client().set(Stage::Finished, Link::to(s));
                }
                return;
            }
        }
    }
    if s.server().stage.get() != Stage::None {
        s.drop_server_end(k);
    }
}

// ---- idempotent messages -------------------------------------------------------------------------

/// Delivers a whole message to a server that waits or is about to wait, and completes its call in the frame
/// with `code`. The frame changes only if all of the message arrives.
fn deliver(
    k: K,
    s: &'static Thread,
    port: &'static Port,
    mut source: Source<'_>,
    code: Code,
) -> Result<Result<(), Code>, Trouble> {
    let Some(call) = s.call() else {
        return Ok(Err(Code::TooLarge));
    };
    let Some(rest) = next(call).filter(|&c| plan(c).has(Plan::RECEIVE)) else {
        return Ok(Err(Code::TooLarge));
    };
    let Some(space) = s.space() else {
        return Ok(Err(Code::TooLarge));
    };
    let mut sink = Sink::fresh(s, plan(rest), space);
    // A place for a reference may let go of an identity that takes long to end, and interrupts come meanwhile. The
    // server's own deadline must not end its call in the middle of this.
    let deadlines = &k.cpu_of(s).deadlines;
    let until = match source.brings_refs() {
        true => core(|| deadlines.suspend(s)),
        false => u64::MAX,
    };
    let moved = pump_whole(k, &mut source, &mut sink, false);
    if !matches!(moved, Ok(true)) {
        // The timer may have been set meanwhile, without regard to this deadline.
        k.add_deadline(s, until);
    }
    let all = match moved {
        // A list with too many empty segments. There is no progress that could be kept.
        Err(Trouble::Source(Stop::Again) | Trouble::Sink(Stop::Again)) => false,
        other => other?,
    };
    if !all {
        return Ok(Err(Code::TooLarge));
    }
    s.become_stage(rest);
    sink.save();
    s.ctx.parameter(0).set(port.alias.get());
    s.finish_receive(code);
    Ok(Ok(()))
}

/// The stages of `call`: sends the request and waits for the reply. Until the reply arrives the frame says to make the
/// whole call again.
fn call_idempotent(k: K, t: &'static Thread, stages: Plan) -> Handled {
    let space = space(t)?;
    let port = handle::find_target::<Port>(k, space, t.ctx.parameter(0).get())?;
    if Source::of(t, stages, space).known_length() > MAX_IDEMPOTENT {
        return Err(Stop::Code(Code::TooLarge));
    }
    // If the reply met an absent page, the client would have to send its request again.
    Sink::fresh(t, stages, space).find_segment(k)?;
    let mut refused = 0;
    loop {
        if is_turn_over(k, t, &mut refused) {
            return Err(Stop::Again);
        }
        // Not looked up earlier: at the preemption point the timer may have ended a server's wait.
        let Some(s) = waiting_server(port) else {
            break;
        };
        match deliver(k, s, port, Source::of(t, stages, space), Code::Call) {
            Ok(Ok(())) => {
                s.wake(k);
                owe_reply(t, s);
                return Ok(Outcome::Wait);
            }
            Ok(Err(code)) => return Err(Stop::Code(code)),
            Err(Trouble::Source(stop)) => return Err(stop),
            // This server has to handle its own memory first; perhaps another server waits.
            Err(Trouble::Sink(stop)) => settle_for_peer(k, s, &stop),
        }
    }
    wait_for_server(t, port, PortWait::Call);
    Ok(Outcome::Wait)
}

/// A message of the kernel to a keeper, on behalf of a thread.
pub(crate) enum KernelMessage {
    /// A [`abi::message::FaultMessage`]: its words, the page that is missing, and the region whose keeper is
    /// asked.
    Fault([u64; FAULT_WORDS], Missing, &'static Region),
    /// An exception: the words with which its message begins. Registers follow.
    Exception([u64; 4]),
}

impl KernelMessage {
    /// The result code of the call that receives it.
    fn code(&self) -> Code {
        match self {
            KernelMessage::Fault(..) => Code::Fault,
            KernelMessage::Exception(_) => Code::Exception,
        }
    }
}

/// A message of the kernel whose words are put together only when the buffer for it has been found.
pub(crate) struct Message<'a> {
    content: &'a KernelMessage,
    about: &'static Thread,
    /// Whether the receiver waits for a register message.
    short: bool,
}

impl Message<'_> {
    /// Number of words of the longest message.
    const WORDS: usize = EXCEPTION_WORDS;

    /// Length in bytes.
    fn length(&self) -> u64 {
        let words = match self.content {
            KernelMessage::Fault(..) => FAULT_WORDS,
            KernelMessage::Exception(_) if self.short => SHORT_EXCEPTION_WORDS,
            KernelMessage::Exception(_) => EXCEPTION_WORDS,
        };
        words as u64 * 8
    }

    /// Calls `f` with each part of the message: the number of its first word, and its words.
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, &[u64])) {
        match self.content {
            KernelMessage::Fault(words, ..) => f(0, words),
            KernelMessage::Exception(begin) if self.short => {
                f(0, &short_exception(self.about, *begin))
            }
            KernelMessage::Exception(begin) => {
                f(0, begin);
                f(begin.len(), &self.about.ctx.registers().to_words());
            }
        }
    }

    /// All its words, filled up with zeros.
    #[cold]
    fn words(&self) -> [u64; Message::WORDS] {
        let mut all = [0; Message::WORDS];
        self.each(|at, words| all[at..at + words.len()].copy_from_slice(words));
        all
    }

    /// Writes the message at byte offset `to` of a physical frame, where it must fit.
    fn write(&self, pfn: Pfn, to: u64) {
        self.each(|at, words| hal::write_words(pfn, to + 8 * at as u64, words));
    }
}

/// A [`abi::message::ShortExceptionMessage`] that begins with these words.
#[inline(always)]
fn short_exception(
    t: &Thread,
    [code, address, detail, tag]: [u64; 4],
) -> [u64; SHORT_EXCEPTION_WORDS] {
    let c = &t.ctx;
    let [pc, sp, flags, call] = [c.pc().get(), c.sp().get(), c.flags(), c.call().get()];
    [code, address, detail, tag, pc, sp, flags, call]
}

/// Notes in the thread that `keeper` has got the message about its page fault.
#[inline(always)]
fn note_fault(t: &Thread, keeper: &'static Thread, missing: Missing, region: &Region) {
    let (id, region) = region.head().name();
    t.hint
        .set(Hint::Faulted(NarrowRef::of(keeper), missing, id, region));
}

/// Delivers a message of the kernel about `t` to a waiting server.
fn tell(
    k: K,
    t: &'static Thread,
    s: &'static Thread,
    port: &'static Port,
    content: &KernelMessage,
) -> Result<Result<(), Code>, Trouble> {
    let told = match content {
        KernelMessage::Fault(words, ..) => fast::tell(s, port, words, Code::Fault),
        KernelMessage::Exception(begin) => {
            fast::tell(s, port, &short_exception(t, *begin), Code::Exception)
        }
    };
    if told {
        return Ok(Ok(()));
    }
    let short = s.call().is_some_and(|call| plan(call).has(Plan::SHORT));
    let message = Message {
        content,
        about: t,
        short,
    };
    if fast::tell_in_memory(k, s, port, &message).map_err(Trouble::Sink)? {
        return Ok(Ok(()));
    }
    deliver(k, s, port, Source::kernel(k, &message), content.code())
}

/// Sends a message of the kernel to a port, on behalf of a thread that faulted or met an exception. The thread waits
/// for the reply or for a server. If the message was refused so often that other threads must have a turn, the thread
/// stays ready and meets the same fault or exception again.
pub(crate) fn send_from_kernel(
    k: K,
    t: &'static Thread,
    port: &'static Port,
    content: &KernelMessage,
) {
    let mut refused = 0;
    while let Some(s) = waiting_server(port) {
        if is_telling_over(k, t, &mut refused) {
            if t.run.get() != Run::Running {
                t.make_ready(k);
            }
            return;
        }
        match tell(k, t, s, port, content) {
            Ok(Ok(())) => {
                s.wake(k);
                match *content {
                    KernelMessage::Fault(_, missing, region) => {
                        s.server().set(Stage::Fault, Link::to(t));
                        note_fault(t, s, missing, region);
                        t.wait_plain(Waiting::Reply);
                    }
                    KernelMessage::Exception(_) => {
                        s.server().set(Stage::Exception, Link::to(t));
                        t.set_exception_delivered(true);
                        t.hint.set(Hint::Excepted(Link::to(s)));
                        t.wait_plain(Waiting::Exception);
                    }
                }
                return;
            }
            // The server's buffer is too small: its call ends with that code.
            Ok(Err(code)) => s.complete(k, code),
            Err(Trouble::Sink(stop)) => leave_to_peer(k, s, &stop),
            Err(Trouble::Source(_)) => s.wake(k),
        }
        k.look_at_interrupts();
    }
    wait_for_server(t, port, PortWait::Trap);
}

/// Replies to an idempotent request, a fault or an exception.
fn reply(k: K, t: &'static Thread, stages: Plan) -> Result<Step, Stop> {
    let end = t.server();
    let mine = space(t)?;
    match end.stage.get() {
        Stage::Call => {
            let source = Source::of(t, stages, mine);
            if source.known_length() > MAX_IDEMPOTENT {
                return Err(Stop::Code(Code::TooLarge));
            }
            if let Some(c) = owed(t) {
                reply_call(k, c, source)?;
            }
        }
        Stage::Fault => {
            if let Some(c) = owed(t) {
                let refused = match c.hint.get() {
                    Hint::Faulted(_, missing, id, life) => c
                        .space()
                        .filter(|s| memory::still_missing(k, s, missing, (id, life)))
                        .map(|_| missing),
                    _ => None,
                };
                c.wake(k);
                match refused {
                    Some(missing) => c.refuse(k, missing),
                    None => c.found_page(),
                }
            }
        }
        Stage::Exception => {
            let source = Source::of(t, stages, mine);
            let in_registers = stages.has(Plan::SHORT);
            if in_registers || source.is_piece(8 * SHORT_ANSWER_WORDS as u64) {
                let answer = match in_registers {
                    true => source.short_words()?,
                    false => source.read_words(k)?,
                };
                sound(hal::user_pc_ok(answer[0]))?;
                if let Some(c) = excepted(t) {
                    go_on_at(c, answer);
                    commit_exception(k, c, true);
                }
            } else {
                let answer = abi::Registers::from_words(&source.read_words(k)?);
                sound(hal::user_registers_ok(&answer))?;
                if let Some(c) = excepted(t) {
                    c.ctx.set_registers(&answer);
                    commit_exception(k, c, false);
                }
            }
        }
        _ => return Err(Stop::Code(Code::WrongStage)),
    }
    end.clear();
    Ok(Step::Done(Code::Ok))
}

/// The thread that still waits for this server's reply. Both must agree on the kind of request: a reply to a call is
/// written into the client's frame, which would be an attack on a thread that only faulted.
fn owed(s: &'static Thread) -> Option<&'static Thread> {
    let owner = (Link::to(s), s.server().stage.get());
    let c = s.server().peer().get()?;
    (c.waits_for(Waiting::Reply) && c.served_by() == owner).then_some(c)
}

/// Moves the reply into the client's buffer and completes its call.
fn reply_call(k: K, c: &'static Thread, mut source: Source<'_>) -> Result<(), Stop> {
    let Some((call, space)) = c.call().zip(c.space()) else {
        return Ok(());
    };
    let mut sink = Sink::fresh(c, plan(call), space);
    let all = match pump_whole(k, &mut source, &mut sink, true) {
        Ok(all) => all,
        Err(Trouble::Sink(Stop::Again)) => false,
        Err(Trouble::Source(Stop::Again)) => return Err(Stop::Code(Code::TooLarge)),
        Err(Trouble::Source(stop)) => return Err(stop),
        // The client makes its call, which is idempotent, again once its page is there.
        Err(Trouble::Sink(stop)) => {
            settle_for_peer(k, c, &stop);
            return Ok(());
        }
    };
    // The count beside the call's number is that of the request; the reply has its own.
    c.ctx.call().set(call as u64);
    sink.save();
    c.complete_receive(k, if all { Code::Ok } else { Code::Truncated });
    Ok(())
}

/// Refuses a keeper's reply to an exception if a thread could not run with these registers.
fn sound(answer: bool) -> Result<(), Stop> {
    match answer {
        true => Ok(()),
        false => Err(Stop::Code(Code::Invalid)),
    }
}

/// The thread to whose exception this server replies, if that thread still waits for the reply. `None` if the
/// exception has meanwhile been delivered to another keeper, or the thread has gone on: the reply is then too
/// late.
fn excepted(s: &'static Thread) -> Option<&'static Thread> {
    let c = s.server().peer().get()?;
    // A vacant thread has no state that could say whether it still waits.
    let waits = !c.head().is_open() || c.exception_delivered();
    (waits && has_exception(s, c)).then_some(c)
}

/// Whether the exception of `c` was delivered to this server, or taken over by it.
fn has_exception(s: &'static Thread, c: &Thread) -> bool {
    matches!(c.hint.get(), Hint::Excepted(keeper) if keeper == Link::to(s))
}

/// Makes `s` the server to which the exception of client `c` is delivered, as the state that is being set for `s` says.
/// This needs the right to be the client's server, which a handle of the client gives; an older state of `s` that
/// showed such a connection does not give it. For a client that is being restored, its own state is set afterwards.
pub(crate) fn take_over_exception(k: K, s: &'static Thread, c: &'static Thread) {
    let delivered = c.exception_delivered();
    // A server that has already replied to the exception has the last word.
    let answered = matches!(c.hint.get(), Hint::Answered { .. });
    if answered || !delivered && c.stop_count.get() == 0 {
        return;
    }
    c.hint.set(Hint::Excepted(Link::to(s)));
    if !delivered {
        // The note of its last wait is dropped, as when its own state is set.
        c.waiting.set(Waiting::Nothing);
    }
    c.note_space(k);
}

/// Ends the exception of `c`, whose registers are those of the keeper's reply; `short`: the control registers only. The
/// exception of a stopped thread ends as well, as with `set_state`. If the thread is vacant, its identity keeps the
/// reply until a state is set that waits for it.
fn commit_exception(k: K, c: &'static Thread, short: bool) {
    if !c.head().is_open() {
        c.hint.set(Hint::Answered { short });
        return;
    }
    end_exception_of(k, c);
}

/// Ends the exception of `c`, whose registers are set, and wakes `c` if it waits for the reply.
pub(crate) fn end_exception_of(k: K, c: &'static Thread) {
    end_exception(c);
    if c.waits_for(Waiting::Exception) {
        c.wake(k);
    }
}

/// Sets the control registers.
#[inline(always)]
fn go_on_at(c: &Thread, [pc, sp, flags, call]: [u64; SHORT_ANSWER_WORDS]) {
    c.ctx.set_control(pc, sp, flags);
    c.ctx.call().set(call);
}

/// Ends the thread's exception: the thread goes on from its frame. No server has the exception any more, even if an
/// older state of the thread or of its keeper is set later.
#[inline(always)]
fn end_exception(c: &Thread) {
    c.hint.set(Hint::None);
    counters::completed(c);
    c.kept.clear();
    c.set_exception_delivered(false);
}

/// `server_release`: gives up the duty to reply to an exception. The exception stays delivered until the thread's
/// manager ends it.
pub(crate) fn release(t: &'static Thread) -> Handled {
    if t.server().stage.get() != Stage::Exception {
        return Err(Stop::Code(Code::WrongStage));
    }
    if let Some(c) = t.server().peer().get().filter(|c| has_exception(t, c)) {
        c.hint.set(Hint::None);
    }
    t.server().clear();
    t.finish(Code::Ok);
    Ok(Outcome::Done)
}
