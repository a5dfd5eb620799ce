//! The short way of an RPC whose message fits into registers.
//!
//! What `ipc` does in general is done here for the case that nearly every call is: no references,
//! whole words, the other end waits for just this, and nobody more important is ready. Everything
//! is checked before anything is changed; whatever does not fit is `None` and takes the long way,
//! which does the same thing from the same frame. The receiver's restart is never executed: its
//! call is completed in its frame and the processor handed to it (Draves et al., Continuations,
//! section 2.4: recognition and handoff).

use crate::object::port::Portset;
use crate::object::reference::Reference;
use crate::object::thread::{Run, Thread};
use crate::object::{self, Link, Object, Phase, Target};
use crate::K;
use abi::state::{Stage, Waiting};
use abi::{Call, Code, MAX_LIST_REFS, MAX_SHORT};
use hal::Context;

/// Does the call if it is one of those four and nothing stands in the way.
#[inline(always)]
pub(crate) fn short_cut(k: K, t: &'static Thread) -> Option<&'static Context> {
    const REQUEST: u64 = Call::ClientConnectSendOverReceiveShort as u64;
    const ANSWER: u64 = Call::ServerAckSendWaitReceiveShort as u64;
    const CALL: u64 = Call::CallShort as u64;
    const REPLY: u64 = Call::ReplyWaitReceiveShort as u64;
    match t.ctx.rax.get() & 0xff {
        REQUEST => request::<false>(k, t),
        ANSWER => answer::<false>(k, t),
        CALL => request::<true>(k, t),
        REPLY => answer::<true>(k, t),
        _ => None,
    }
}

/// Number of whole words of the message in the frame, if it has no references.
#[inline(always)]
fn words(t: &Thread) -> Option<u64> {
    let bytes = t.ctx.rax.get() >> 8 & 0xff;
    (bytes <= MAX_SHORT && bytes.is_multiple_of(8) && t.ctx.r15.get() & MAX_LIST_REFS == 0)
        .then_some(bytes / 8)
}

fn active<T: Object>(object: &'static T) -> Option<&'static T> {
    (object.head().phase.get() == Phase::Active).then_some(object)
}

/// The object at a handle of the running thread, if it is found where it was last seen.
#[inline(always)]
fn at_hand<T: Object>(k: K, t: &'static Thread, handle: u64) -> Option<&'static T> {
    let space = t.space()?;
    if space.foreign.get() || t.touch.get().is_some() {
        return None;
    }
    object::at_hand(k, space, handle)
}

/// Copies the message from frame to frame.
#[inline(always)]
fn copy(from: &Context, to: &Context, words: u64) {
    macro_rules! registers {
        ($($register:ident)*) => {{
            $(to.$register.set(from.$register.get());)*
        }};
    }
    match words {
        8 => registers!(rsi rdx r10 r8 r9 r12 r13 r14),
        7 => registers!(rsi rdx r10 r8 r9 r12 r13),
        6 => registers!(rsi rdx r10 r8 r9 r12),
        5 => registers!(rsi rdx r10 r8 r9),
        4 => registers!(rsi rdx r10 r8),
        3 => registers!(rsi rdx r10),
        2 => registers!(rsi rdx),
        1 => registers!(rsi),
        _ => {}
    }
}

/// The running thread waits, and the processor goes straight to the thread whose call has just
/// been completed with this code.
#[inline(always)]
fn hand_off(
    k: K,
    t: &'static Thread,
    why: Waiting,
    to: &'static Thread,
    code: Code,
    words: u64,
) -> &'static Context {
    copy(&t.ctx, &to.ctx, words);
    to.finish_with(code as u64 | words << 11);
    to.run.set(Run::Running);
    t.waiting.set(why);
    t.run.set(Run::Waiting(why));
    k.go_to(t, to)
}

/// `client_connect_send_over_receive_short`, or with `IDEMPOTENT` `call_short`: to a server that
/// waits in `server_wait_receive_short`.
#[inline(always)]
fn request<const IDEMPOTENT: bool>(k: K, t: &'static Thread) -> Option<&'static Context> {
    let words = words(t)?;
    let Target::Port(link) = at_hand::<Reference>(k, t, t.ctx.rdi.get())?.target.get() else {
        return None;
    };
    let port = active(link.get()?)?;
    let set = active(port.portset()?)?;
    let s = set.servers.first()?;
    let ready = s.ctx.rax.get() & 0xff == Call::ServerWaitReceiveShort as u64
        && (IDEMPOTENT || t.client.stage.get() == Stage::None)
        && !k.sched.somebody_above(s);
    if !ready {
        return None;
    }
    set.servers.pop(s);
    s.ctx.rdi.set(port.alias.get());
    Some(if IDEMPOTENT {
        s.server.set(Stage::Call, Link::to(t));
        t.served_by.set((Link::to(s), Stage::Call));
        t.waiting_for.set(t.ctx.rdi.get());
        hand_off(k, t, Waiting::Reply, s, Code::Call, words)
    } else {
        s.server.set(Stage::Ack, Link::to(t));
        t.client.set(Stage::Over, Link::to(s));
        t.become_call(Call::ClientReceiveShort);
        t.waiting_for.set(0);
        hand_off(k, t, Waiting::Peer, s, Code::Ok, words)
    })
}

/// `server_ack_send_wait_receive_short`, or with `IDEMPOTENT` `reply_wait_receive_short`: to a
/// client that waits for the answer in registers, while no other client waits.
#[inline(always)]
fn answer<const IDEMPOTENT: bool>(k: K, s: &'static Thread) -> Option<&'static Context> {
    let words = words(s)?;
    let handle = s.ctx.rdi.get();
    let set = at_hand::<Portset>(k, s, handle)?;
    let c = s.server.peer.get().get()?;
    let awaited = if IDEMPOTENT {
        s.server.stage.get() == Stage::Call
            && c.run.get() == Run::Waiting(Waiting::Reply)
            && c.served_by.get().0.is(s)
            && c.served_by.get().1 == Stage::Call
            && c.ctx.rax.get() & 0xff == Call::CallShort as u64
    } else {
        s.server.stage.get() == Stage::Ack
            && c.run.get() == Run::Waiting(Waiting::Peer)
            && c.client.peer.get().is(s)
            && c.client.stage.get() == Stage::Over
            && c.ctx.rax.get() & 0xffff == Call::ClientReceiveShort as u64
    };
    if !awaited || !set.clients.is_empty() || k.sched.somebody_above(c) {
        return None;
    }
    if !IDEMPOTENT {
        c.client.clear();
    }
    s.server.clear();
    s.become_call(Call::ServerWaitReceiveShort);
    set.servers.push(s);
    s.waiting_for.set(handle);
    Some(hand_off(k, s, Waiting::Portset, c, Code::Ok, words))
}
