//! The short way of an RPC whose message fits into registers.
//!
//! What `ipc` does in general is done here for the case that nearly every call is: no references,
//! whole words, the other end waits for just this, and nobody more important is ready. Everything
//! is checked before anything is changed; whatever does not fit is `None` and takes the long way,
//! which does the same thing from the same frame. The receiver's restart is never executed: its
//! call is completed in its frame and the processor handed to it (Draves et al., Continuations,
//! section 2.4: recognition and handoff).

use super::pump::short_registers;
use crate::exec::{self, counters};
use crate::memory;
use crate::object::port::{Port, Portset};
use crate::object::thread::{Hint, Run, Thread};
use crate::object::Link;
use crate::probe::{self, Kind};
use crate::syscall::{self, Handler};
use crate::K;
use abi::message::SHORT_ANSWER_WORDS;
use abi::state::{Stage, Waiting};
use abi::{Call, Code, MAX_LIST_REFS, MAX_SHORT};
use core::cell::Cell;
use hal::Context;

/// The handler of a call that has a short way.
pub(crate) const fn handler(call: Call) -> Option<Handler> {
    Some(match call {
        Call::ClientConnectSendOverReceiveShort => |k, t| or_else(k, t, request::<false>(k, t)),
        Call::ServerAckSendWaitReceiveShort => |k, t| or_else(k, t, answer::<false>(k, t)),
        Call::CallShort => |k, t| or_else(k, t, request::<true>(k, t)),
        Call::ReplyWaitReceiveShort => |k, t| match t.server.stage.get() {
            Stage::Fault => or_else(k, t, answer_fault(k, t)),
            Stage::Exception => or_else(k, t, answer_exception(k, t)),
            _ => or_else(k, t, answer::<true>(k, t)),
        },
        _ => return None,
    })
}

#[inline(always)]
fn or_else(k: K, t: &'static Thread, done: Option<&'static Context>) -> &'static Context {
    match done {
        Some(next) => next,
        None if probe::rings() => k.leave(t),
        None => syscall::ipc_call(k, t),
    }
}

/// The number of words for a number of bytes, if they are whole words that registers can hold.
static WORDS: [u8; 256] = {
    let mut words = [MORE; 256];
    let mut n = 0;
    while n <= MAX_SHORT {
        words[n as usize] = n as u8 / 8;
        n += 8;
    }
    words
};
const MORE: u8 = 0xff;

/// Number of words of the message in the frame, if it is whole words and nothing else: no
/// references, and nothing to settle first.
#[inline(always)]
fn words(t: &Thread) -> Option<u64> {
    let words = WORDS[(t.ctx.rax.get() >> 8) as u8 as usize];
    if words == MORE {
        return None;
    }
    if t.ctx.r15.get() & MAX_LIST_REFS != 0 {
        return None;
    }
    if t.makes_detour() || !probe::short_way() {
        return None;
    }
    Some(u64::from(words))
}

/// Copies a message of so many words from frame to frame, and returns the receiver's.
type Copy = fn(&Context, &'static Context) -> &'static Context;

/// The words after the first; one function per number of words: a compiler that sees all of them together makes one of
/// them, which takes four times as long.
static COPIES: [Copy; MAX_SHORT as usize / 8 + 1] = {
    macro_rules! registers {
        ($($register:ident)*) => {{
            fn copy(from: &Context, to: &'static Context) -> &'static Context {
                $(to.$register.set(from.$register.get());)*
                to
            }
            copy
        }};
    }
    [
        |_, to| to,
        |_, to| to,
        registers!(rdx),
        registers!(rdx r10),
        registers!(rdx r10 r8),
        registers!(rdx r10 r8 r9),
        registers!(rdx r10 r8 r9 r12),
        registers!(rdx r10 r8 r9 r12 r13),
        registers!(rdx r10 r8 r9 r12 r13 r14),
    ]
};

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
    to.finish_with(code as u64 | words << 11);
    go_to(k, t, why, to, words)
}

/// The running thread waits, and the processor goes straight to a thread that has waited for just this.
#[inline(always)]
fn go_to(
    k: K,
    t: &'static Thread,
    why: Waiting,
    to: &'static Thread,
    words: u64,
) -> &'static Context {
    to.run.set(Run::Running);
    t.wait_plain(why);
    if probe::rings() {
        // Somebody comes first who was not there when the priorities were compared.
        deliver(t, to, words);
        to.run.set(Run::Ready);
        k.sched.add(to);
        return k.leave(t);
    }
    // Nothing is called from here but as the last thing: what a call would have to save is half of
    // what all this takes.
    if exec::SWITCHES_STACKS {
        deliver(t, to, words);
        return k.hand_to(t, to);
    }
    counters::blocked(t, counters::Kind::HandedOff);
    k.current.set(to);
    if !k.enter_memory(to) {
        return arrive(k, t, to, words);
    }
    deliver(t, to, words)
}

/// The processor has new ports, too.
#[cold]
fn arrive(k: K, t: &'static Thread, to: &'static Thread, words: u64) -> &'static Context {
    k.load_ports(to);
    deliver(t, to, words)
}

#[inline(always)]
fn deliver(t: &'static Thread, to: &'static Thread, words: u64) -> &'static Context {
    if words == 0 {
        return &to.ctx;
    }
    to.ctx.rsi.set(t.ctx.rsi.get());
    if words == 1 {
        return &to.ctx;
    }
    COPIES[words as usize](&t.ctx, &to.ctx)
}

/// `client_connect_send_over_receive_short`, or with `IDEMPOTENT` `call_short`: to a server that
/// waits in `server_wait_receive_short`.
#[inline(always)]
fn request<const IDEMPOTENT: bool>(k: K, t: &'static Thread) -> Option<&'static Context> {
    let words = words(t)?;
    probe::site(Kind::Handle).ok()?;
    let reference = k.handles.references.probe(t.space()?, t.ctx.rdi.get())?;
    let port = reference.port()?.active()?;
    let set = port.portset.get().active()?;
    let s = set.servers.first()?;
    let ready = s.ctx.rax.get() as u8 == Call::ServerWaitReceiveShort as u8
        && (IDEMPOTENT || t.client.stage.get() == Stage::None)
        && !k.sched.somebody_above(s);
    if !ready {
        return None;
    }
    set.servers.pop(s);
    s.ctx.rdi.set(port.alias.get());
    Some(if IDEMPOTENT {
        s.server.set(Stage::Call, Link::to_active(t));
        t.hint.set(Hint::Called(Link::to_active(s)));
        hand_off(k, t, Waiting::Reply, s, Code::Call, words)
    } else {
        s.server.set(Stage::Ack, Link::to_active(t));
        t.client.set(Stage::Over, Link::to_active(s));
        t.become_call(Call::ClientReceiveShort);
        hand_off(k, t, Waiting::Peer, s, Code::Ok, words)
    })
}

/// `server_ack_send_wait_receive_short`, or with `IDEMPOTENT` `reply_wait_receive_short`: to a
/// client that waits for the answer in registers, while no other client waits.
#[inline(always)]
fn answer<const IDEMPOTENT: bool>(k: K, s: &'static Thread) -> Option<&'static Context> {
    let words = words(s)?;
    probe::site(Kind::Handle).ok()?;
    let set = k.handles.portsets.probe(s.space()?, s.ctx.rdi.get())?;
    let c = s.server.peer().active()?;
    let awaited = if IDEMPOTENT {
        s.server.stage.get() == Stage::Call
            && c.run.get() == Run::Waiting(Waiting::Reply)
            && matches!(c.hint.get(), Hint::Called(server) if server == Link::to_active(s))
            && c.ctx.rax.get() as u8 == Call::CallShort as u8
    } else {
        s.server.stage.get() == Stage::Ack
            && c.run.get() == Run::Waiting(Waiting::Peer)
            && c.client.stage.get() == Stage::Over
            && c.client.peer() == Link::to_active(s)
            && c.ctx.rax.get() as u16 == Call::ClientReceiveShort as u16
    };
    if !awaited {
        return None;
    }
    wait_again(k, s, set, c)?;
    if !IDEMPOTENT {
        c.client.clear();
    }
    Some(hand_off(k, s, Waiting::Portset, c, Code::Ok, words))
}

/// `reply_wait_receive_short` to a thread that met an exception, and goes on with what it says.
#[inline(never)]
fn answer_exception(k: K, s: &'static Thread) -> Option<&'static Context> {
    if words(s)? != SHORT_ANSWER_WORDS as u64 {
        return None;
    }
    probe::site(Kind::Handle).ok()?;
    let set = k.handles.portsets.probe(s.space()?, s.ctx.rdi.get())?;
    let c = s.server.peer().active()?;
    let answer = [&s.ctx.rsi, &s.ctx.rdx, &s.ctx.r10, &s.ctx.r8].map(Cell::get);
    let awaited = c.run.get() == Run::Waiting(Waiting::Exception)
        && matches!(c.hint.get(), Hint::Excepted(keeper) if keeper == Link::to_active(s))
        && hal::user_rip_ok(answer[0]);
    if !awaited {
        return None;
    }
    wait_again(k, s, set, c)?;
    super::go_on_at(c, answer);
    super::end_exception(c);
    Some(go_to(k, s, Waiting::Portset, c, 0))
}

/// `reply_wait_receive_short` to a thread that faulted, when its page is there.
#[inline(never)]
fn answer_fault(k: K, s: &'static Thread) -> Option<&'static Context> {
    words(s)?;
    probe::site(Kind::Handle).ok()?;
    let set = k.handles.portsets.probe(s.space()?, s.ctx.rdi.get())?;
    let c = s.server.peer().active()?;
    let Hint::Faulted(server, life, missing, id, region) = c.hint.get() else {
        return None;
    };
    let awaited = c.run.get() == Run::Waiting(Waiting::Reply)
        && Link::of((server, life)) == Link::to_active(s)
        && !memory::still_missing(k, c.space()?, missing, (id, region));
    if !awaited {
        return None;
    }
    wait_again(k, s, set, c)?;
    Some(go_to(k, s, Waiting::Portset, c, 0))
}

/// The server has answered `to`, and waits for its next client, if it is the processor's turn to go to
/// `to`.
#[inline(always)]
fn wait_again(k: K, s: &'static Thread, set: &'static Portset, to: &'static Thread) -> Option<()> {
    if !set.clients.is_empty() || k.sched.somebody_above(to) || !set.servers.push_last(s) {
        return None;
    }
    s.server.clear();
    s.become_call(Call::ServerWaitReceiveShort);
    Some(())
}

/// Completes the call of a server that waits in `server_wait_receive_short` with a message of the
/// kernel's. Whether it does.
#[inline(always)]
pub(super) fn tell<const N: usize>(
    s: &'static Thread,
    port: &'static Port,
    words: &[u64; N],
    code: Code,
) -> bool {
    if s.ctx.rax.get() as u8 != Call::ServerWaitReceiveShort as u8 {
        return false;
    }
    for (register, word) in short_registers(s).into_iter().zip(words) {
        register.set(*word);
    }
    s.ctx.rdi.set(port.alias.get());
    probe::progress();
    s.finish_with(code as u64 | (N as u64) << 11);
    true
}
