//! Faults and exceptions: the messages to keepers.
//!
//! A *memory fault* goes as an idempotent message to the keeper of the region where the walk failed. The fault leaves
//! no trace in the thread's state: after the reply, or a restart, the thread tries again. An *exception* goes as a
//! reliable message to the keeper of the thread's space: once it is delivered, the thread's state says so, and the
//! keeper's reply with registers is the commit.

use super::KernelMessage;
use crate::kept::Continuation;
use crate::memory;
use crate::object::port::Port;
use crate::object::region::Region;
use crate::object::space::Space;
use crate::object::thread::{Hint, Missing, Thread};
use crate::object::{Header, Object};
use crate::stop::{Access, Fault, Stop};
use crate::{Kernel, K};
use abi::message::FAULT_WORDS;
use abi::state::Waiting;
use abi::{access, Code, Exception, PAGE_SIZE};

/// Handles a page fault of an instruction of the running thread. Returns the thread to resume.
pub(crate) fn page(
    k: K,
    t: &'static Thread,
    address: u64,
    write: bool,
    execute: bool,
) -> &'static Thread {
    let need = match (write, execute) {
        (true, _) => access::WRITE,
        (_, true) => access::EXECUTE,
        _ => access::READ,
    };
    absent(k, t, address, Access(need), memory::enter_around)
}

/// Makes a page present that an instruction of the running thread needs, or asks its keeper for the page. `entered` is
/// called when the page is present. Returns the thread to resume.
#[inline(always)]
fn absent(
    k: K,
    t: &'static Thread,
    address: u64,
    need: Access,
    entered: impl FnOnce(&'static Space, u64),
) -> &'static Thread {
    let Some(space) = t.open_space() else {
        t.halt(Exception::NoSpace, address);
        return k.exit_trap(t);
    };
    match memory::make_present(k, space, address, need) {
        Ok(_) => entered(space, address),
        Err(Stop::Device(..)) => {}
        // The kernel has no memory even for the page tables of one page, and there is no call to fail with `NoMemory`.
        Err(Stop::Code(_)) => exception(k, t, Exception::Memory, address, need.0),
        Err(Stop::Fault(fault)) => {
            if let Some(next) = ask_keeper(k, t, &fault, keeper_of(t, &fault)) {
                return next;
            }
            if matches!(t.waiting(), Waiting::Reply | Waiting::Port) {
                goes_on_with_page(t, address, need);
            }
        }
        Err(stop) => return k.stopped(t, stop),
    }
    k.exit_trap(t)
}

/// Sets the continuation of a thread that has begun to wait for a page which its own instruction needs.
#[inline(always)]
pub(super) fn goes_on_with_page(t: &Thread, address: u64, need: Access) {
    t.kept.set(Continuation {
        function: look_again,
        words: [address, need.0, t.ctx.pc().get(), 0],
    });
}

/// The continuation: looks for the page again, so that the instruction need not fault again.
fn look_again(k: K, t: &'static Thread, [address, need, pc, _]: [u64; 4]) -> &'static Thread {
    if t.ctx.pc().get() == pc {
        // Enters no pages around this one: its keeper decides which pages it supplies together.
        return absent(k, t, address, Access(need), |_, _| ());
    }
    k.exit_trap(t)
}

/// The keeper's port, the message to it, and the region whose keeper it is.
type Question = (&'static Port, [u64; FAULT_WORDS], &'static Region);

/// The keeper to ask for a page. `None` if there is no keeper, or if it has already replied to the fault at this page
/// without supplying the page.
#[inline(always)]
fn keeper_of(t: &Thread, fault: &Fault) -> Option<Question> {
    let page = fault.address & !(PAGE_SIZE - 1);
    if t.is_refused(page) {
        return None;
    }
    let (region, offset) = fault.at?;
    let port = region.keeper.get().get::<Port>()?;
    let words = [
        offset & !(PAGE_SIZE - 1),
        (region.start.get() + offset) & !(PAGE_SIZE - 1),
        fault.access.0,
        t.ctx.tag.get(),
    ];
    Some((port, words, region))
}

/// Asks the keeper for a page that the running thread needs. Returns the thread to resume if the processor is
/// handed off to a waiting keeper; otherwise the caller ends the trap.
#[inline(always)]
fn ask_keeper(
    k: K,
    t: &'static Thread,
    fault: &Fault,
    question: Option<Question>,
) -> Option<&'static Thread> {
    if let Some((port, words, region)) = &question {
        let next = super::fast::fault(k, t, port, words, fault, region);
        if next.is_some() {
            return next;
        }
    }
    send_fault(k, t, fault, question);
    None
}

/// Asks the keeper for a page on behalf of a thread that is not the running one.
pub(super) fn ask_for(k: K, t: &'static Thread, fault: &Fault) {
    send_fault(k, t, fault, keeper_of(t, fault));
}

/// Sends the message about a fault by the general path. Without a keeper to ask, the fault becomes an
/// exception.
#[inline(never)]
fn send_fault(k: K, t: &'static Thread, fault: &Fault, question: Option<Question>) {
    t.hint.set(Hint::None);
    if let Some((port, words, region)) = question {
        // The reply is compared with the page that is missing here.
        return send(
            k,
            t,
            port,
            &KernelMessage::Fault(words, Missing::of(fault), region),
        );
    }
    exception(k, t, Exception::Memory, fault.address, fault.access.0);
}

/// Sends an exception of the thread to the keeper of its space. Without a keeper it halts the thread.
pub(crate) fn exception(k: K, t: &'static Thread, code: Exception, address: u64, detail: u64) {
    let keeper = t.space().and_then(|s| s.keeper.get().get::<Port>());
    let Some(port) = keeper else {
        t.quit(k);
        // The thread's next fault is another one, even at the same page.
        t.hint.set(Hint::None);
        return t.halt(code, address);
    };
    // The thread has met something other than the page that it was refused, so that hint goes, also if the thread has
    // to wait for a port without a body.
    t.hint.set(Hint::None);
    t.exception.set(code as u8);
    t.exception_address.set(address);
    let content = KernelMessage::Exception([code as u64, address, detail, t.ctx.tag.get()]);
    send(k, t, port, &content);
}

fn send(k: K, t: &'static Thread, port: &'static Port, content: &KernelMessage) {
    if !port.head().is_open() {
        return await_body(k, t, port.head());
    }
    super::send_from_kernel(k, t, port, content);
}

/// Makes a thread wait for the body of an identity that its message needs, whichever thread met the vacant identity.
pub(super) fn await_body(k: K, t: &'static Thread, met: &'static Header) {
    t.wait_vacant(k, met);
}

/// Handles an exception of the processor. Returns the thread to resume.
pub(crate) fn processor(k: K, t: &'static Thread, vector: u8, error: u64) -> &'static Thread {
    let code = match Exception::from_raw(u64::from(vector)) {
        Some(code) if vector < 32 => code,
        _ => Exception::Processor,
    };
    raise(k, t, code, t.ctx.pc().get(), error)
}

/// Raises an exception of the running thread, and ends the trap. Returns the thread to resume.
#[inline(always)]
fn raise(k: K, t: &'static Thread, code: Exception, address: u64, detail: u64) -> &'static Thread {
    match super::fast::exception(k, t, code, address, detail) {
        Some(next) => next,
        None => raise_otherwise(k, t, code, address, detail),
    }
}

/// As [`raise`], if the keeper does not wait for a register message. A function of its own, so that `raise` need not
/// save registers.
#[inline(never)]
fn raise_otherwise(
    k: K,
    t: &'static Thread,
    code: Exception,
    address: u64,
    detail: u64,
) -> &'static Thread {
    if let Some(next) = super::fast::exception_whole(k, t, code, address, detail) {
        return next;
    }
    exception(k, t, code, address, detail);
    k.exit_trap(t)
}

/// Called before a call of a thread for which [`Thread::goes_straight`] is `None`. Returns its space if it can
/// make the call. Otherwise the call has become an exception, and the result is the thread to resume.
#[cold]
pub(crate) fn prepare(k: K, t: &'static Thread) -> Result<&'static Space, &'static Thread> {
    match t.space() {
        None => Err(raise(k, t, Exception::NoSpace, 0, 0)),
        Some(space) if space.foreign.get() => {
            let (pc, call) = (t.ctx.pc().get(), t.ctx.call().get());
            Err(raise(k, t, Exception::ForeignCall, pc, call))
        }
        Some(space) => {
            t.begins_call(k);
            Ok(space)
        }
    }
}

/// As [`prepare`], before a call that exchanges no message. A fault that a peer left belongs to the exchange in which
/// the thread was. The thread has given that exchange up, as the instructions at the same place are others now, so the
/// fault is dropped and no later call meets it.
#[cold]
pub(crate) fn prepare_ordinary(
    k: K,
    t: &'static Thread,
) -> Result<&'static Space, &'static Thread> {
    let space = prepare(k, t)?;
    t.take_pending_fault(k);
    Ok(space)
}

impl Kernel {
    /// Ends a trap whose handler was stopped. Returns the thread to resume.
    #[inline(never)]
    pub(crate) fn stopped(&'static self, t: &'static Thread, stop: Stop) -> &'static Thread {
        self.counters.abandon(t, &stop);
        let absent = matches!(stop, Stop::Absent(_));
        match stop {
            Stop::Code(code) => t.finish(code),
            Stop::Again | Stop::Cut => {}
            Stop::Vacant(met) => t.wait_vacant(self, met),
            Stop::Fault(fault) | Stop::Absent(fault) => {
                let question = keeper_of(t, &fault);
                if absent && question.is_none() {
                    t.hint.set(Hint::None);
                    t.finish(Code::NoObject);
                } else if self.cpu().sched.pending(t) {
                    // No handoff: before it was stopped, the call has left work for the scheduler: a timer to set, a
                    // notice, or a thread that has become ready, for which the slice must have an end.
                    send_fault(self, t, &fault, question);
                } else if let Some(next) = ask_keeper(self, t, &fault, question) {
                    return next;
                }
            }
            Stop::Device(page, access) => {
                exception(self, t, Exception::Memory, page, access.0);
            }
            Stop::Exception(code, address) => exception(self, t, code, address, 0),
        }
        self.exit_trap(t)
    }
}
